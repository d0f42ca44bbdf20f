/* lens patterns: where each head looks.
 *
 * The patterns of a long text are large, so each layer's pattern is written as soon as it is computed. The
 * session's batch holds the whole text, so the hook sees the whole pattern of each layer once, in order. */
#ifndef LENS_CMD_PATTERNS_H
#define LENS_CMD_PATTERNS_H

#include "cmd_loss.h"

typedef struct patterns {
    lens *l;
    canvas to;  /* the picture; without a file there is none */
    double top; /* where the heads of an SVG begin */
    lens_heads heads;
    size_t n_done;
    attn_tensor matrix; /* of the head that is drawn */
    lens_grid *grids;   /* the overview's */
} patterns;

static float weight_at(const void *pattern, size_t query, size_t key)
{
    return attn_get2(*(const attn_tensor *)pattern, query, key);
}

static void json_pattern(const patterns *p, const attn_tensor *matrix, size_t layer, size_t head)
{
    const size_t n = p->l->text.n;
    size_t q, k;
    printf("%s\n {\"layer\": %zu, \"head\": %zu, \"pattern\": [", p->n_done ? "," : "", layer,
           head);
    for (q = 0; q < n; q++) {
        printf(q ? ",\n  [" : "\n  [");
        for (k = 0; k <= q; k++) {
            printf(k ? ", " : "");
            json_figure((double)weight_at(matrix, q, k));
        }
        printf("]");
    }
    printf("]}");
}

/* Prints, for one head, the keys with the largest weights of each query. */
static void print_pattern(lens *l, const attn_tensor *matrix)
{
    const size_t n = l->text.n;
    unsigned char *taken = (unsigned char *)allocate(l, n, 1);
    size_t q, k, i;
    for (q = 0; taken && q < n; q++) {
        printf("%5zu ", q);
        put(l, l->text.shown[q], 16, NULL);
        memset(taken, 0, n);
        for (i = 0; i <= q && i < l->o.top; i++) {
            size_t best = n;
            for (k = 0; k <= q; k++)
                if (!taken[k] &&
                    (best == n || weight_at(matrix, q, k) > weight_at(matrix, q, best)))
                    best = k;
            taken[best] = 1;
            printf("  ");
            put(l, keep(l, "%zu %s", best, brief(l, l->text.shown[best], 12)), 0, NULL);
            put(l, keep(l, " %s", percent(l, (double)weight_at(matrix, q, best))), 0, dim);
        }
        printf("\n");
    }
}

enum { TO_FIRST, TO_ITSELF, DISTANCE, N_OVERVIEWS };

/* Fills one head's cells of the overview: shares of its attention, and the mean distance to its keys. */
static void sum_up(patterns *p, const attn_tensor *matrix, size_t layer, size_t head)
{
    const size_t n = p->l->text.n;
    double sums[N_OVERVIEWS] = {0};
    size_t q, k, i;
    for (q = 0; q < n; q++)
        for (k = 0; k <= q; k++) {
            const double weight = (double)weight_at(matrix, q, k);
            sums[TO_FIRST] += k == 0 ? weight : 0;
            sums[TO_ITSELF] += k == q ? weight : 0;
            sums[DISTANCE] += weight * (double)(q - k);
        }
    for (i = 0; i < N_OVERVIEWS; i++) {
        lens_cell *cell = cell_of(&p->grids[i], layer, head);
        cell->number = (float)(sums[i] / (double)n);
        cell->colour = i == DISTANCE ? cell->number / (float)n : cell->number;
        cell->text = keep(p->l, "%.2f", (double)cell->number);
    }
}

static int write_patterns(const attn_activation *activation, void *user)
{
    patterns *p = (patterns *)user;
    lens *l = p->l;
    const size_t layer = (size_t)activation->layer;
    size_t head;
    for (head = 0; head < l->config->n_head && !interrupted; head++) {
        attn_tensor matrix = attn_select(activation->value, 0, head);
        const svg_weights weights = {weight_at, &matrix};
        if (l->o.head != not_given && head != l->o.head)
            continue;
        if (p->to.file && is_svg(l) && p->heads.n_heads == 1)
            attn_copy(&l->ctx, &p->matrix, matrix);
        else if (p->to.file && is_svg(l))
            svg_pattern(&p->to, &p->heads, p->n_done, p->top, &weights, l->text.n);
        else if (p->to.file)
            html_pattern(&p->to, weight_at, &matrix, l->text.n);
        else if (l->o.json)
            json_pattern(p, &matrix, layer, head);
        else if (p->heads.n_heads == 1)
            print_pattern(l, &matrix);
        else
            sum_up(p, &matrix, layer, head);
        p->n_done++;
    }
    return interrupted || l->ctx.status;
}

static int feed_patterns(patterns *p)
{
    lens *l = p->l;
    const char *name = l->o.layer == not_given
                           ? "blocks.*.attn.hook_pattern"
                           : keep(l, "blocks.%zu.attn.hook_pattern", l->o.layer);
    const int code = make_session(l, l->text.n);
    if (code != FINE)
        return code;
    if (hook_edits(l, l->session) ||
        attn_hook(&l->ctx, NULL, l->session, name, write_patterns, p) ||
        attn_feed(&l->ctx, l->session, l->text.ids, l->text.n))
        return failed(&l->ctx);
    return FINE;
}

static int print_overview(patterns *p)
{
    static const char *const titles[N_OVERVIEWS] = {
        "share of attention on the first token", "on the token itself",
        "mean distance to what is looked at, in tokens"};
    lens *l = p->l;
    lens_grid grids[N_OVERVIEWS];
    size_t i, layer;
    int code = FINE;
    for (i = 0; i < N_OVERVIEWS && code == FINE; i++) {
        code = make_grid(l, &grids[i], l->config->n_layer, l->config->n_head);
        grids[i].title = titles[i];
    }
    p->grids = grids;
    if (code == FINE)
        code = feed_patterns(p);
    p->grids = NULL;
    if (code != FINE)
        return code;
    for (i = 0; i < N_OVERVIEWS; i++) {
        for (layer = 0; layer < grids[i].n_rows * grids[i].n_columns; layer++)
            if (!grids[i].cells[layer].text) /* not chosen */
                cell_of(&grids[i], 0, layer)->text = "";
        printf(i ? "\n" : "");
        print_grid(l, &grids[i]);
    }
    return FINE;
}

/* Draws one head as an SVG: a grid of queries and keys. */
static int svg_one_pattern(lens *l, canvas *to, const lens_page *page, attn_tensor matrix)
{
    const size_t n = l->text.n;
    lens_grid grid;
    size_t q, k;
    const int code = make_grid(l, &grid, n, n);
    if (code != FINE)
        return code;
    label_positions(l, &grid);
    grid.title = "queries down, keys across";
    grid.high = "1: all of a query's attention";
    grid.row_name = "query";
    grid.column_name = "key";
    for (q = 0; q < n; q++) {
        ((const char **)grid.rows)[q] = keep(l, "%s", brief(l, grid.columns[q], 20));
        for (k = 0; k < n; k++) {
            const float weight = k <= q ? attn_get2(matrix, q, k) : 0;
            lens_cell *cell = cell_of(&grid, q, k);
            cell->colour = weight;
            cell->text = k <= q ? keep(l, "%.2f", (double)weight) : "";
            cell->tip = k <= q ? keep(l, "query %s\nkey %s\nweight %.4f", grid.columns[q],
                                      grid.columns[k], (double)weight)
                               : "";
        }
    }
    svg_grids(to, page, &grid, 1);
    return outcome(&l->ctx);
}

static int draw_patterns(patterns *p, FILE *file)
{
    lens *l = p->l;
    const lens_word *words = make_words(l);
    lens_page page = make_page(l, "Attention patterns");
    int code;
    page.note =
        p->heads.n_heads == 1
            ? keep(l, "Layer %zu, head %zu, over %zu tokens.", l->o.layer, l->o.head, l->text.n)
        : is_svg(l)
            ? keep(l, "%zu heads over %zu tokens. In each, queries go down and keys across.",
                   p->heads.n_heads, l->text.n)
            : keep(l,
                   "%zu heads over %zu tokens. A click or the arrow keys choose a head; a "
                   "token of the text shows where it attends.",
                   p->heads.n_heads, l->text.n);
    if (l->ctx.status)
        return failed(&l->ctx);
    p->to.file = file;
    if (!is_svg(l))
        html_patterns_begin(&p->to, &page, &p->heads, l->text.shown, words, l->text.n);
    else if (p->heads.n_heads > 1)
        p->top = svg_patterns_begin(&p->to, &page, &p->heads);
    if ((code = feed_patterns(p)) != FINE)
        return code;
    if (!is_svg(l))
        html_end(&p->to);
    else if (p->heads.n_heads > 1)
        ink(&p->to, "</svg>\n");
    else
        code = svg_one_pattern(l, &p->to, &page, p->matrix);
    return code;
}

/* Lists the heads that the options choose, layer by layer. */
static int choose_heads(lens *l, lens_heads *heads)
{
    const size_t n_layer = l->config->n_layer, n_head = l->config->n_head;
    const int by_head = l->o.head != not_given;
    size_t layer, head;
    if (l->o.layer != not_given && l->o.layer >= n_layer)
        return fail(FAILED, "there is no layer %zu: the model has %zu, from 0", l->o.layer,
                    n_layer);
    if (by_head && l->o.head >= n_head)
        return fail(FAILED, "there is no head %zu: a layer has %zu, from 0", l->o.head, n_head);
    heads->heads = (size_t(*)[2])allocate(l, n_layer * n_head, sizeof *heads->heads);
    if (!heads->heads)
        return failed(&l->ctx);
    for (layer = 0; layer < n_layer; layer++)
        for (head = 0; head < n_head; head++)
            if ((l->o.layer == not_given || layer == l->o.layer) &&
                (!by_head || head == l->o.head)) {
                heads->heads[heads->n_heads][0] = layer;
                heads->heads[heads->n_heads++][1] = head;
            }
    heads->n_columns = by_head ? 1 : n_head;
    return FINE;
}

static int run_patterns(lens *l)
{
    const size_t n = l->text.n;
    const size_t most =
        (size_t)1 << 28; /* bytes of a page that a browser can be expected to open */
    patterns p = {0};
    lens_new_file *picture;
    int code = choose_heads(l, &p.heads);
    if (code != FINE)
        return code;
    p.l = l;
    if (l->o.output && is_svg(l) && p.heads.n_heads == 1 && n > 256)
        return fail(FAILED,
                    "%zu tokens are too many for an SVG of one head; a page (.html) has "
                    "room for them",
                    n);
    /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a model has a head, and one was chosen */
    if (l->o.output && n * n > most / p.heads.n_heads)
        return fail(FAILED,
                    "%zu patterns of %zu tokens are too much for a picture; choose with "
                    "--layer or --head",
                    p.heads.n_heads, n);
    if (l->o.output) {
        if ((code = open_picture(l, &picture)) != FINE)
            return code;
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): a canvas with a file takes no memory */
        return close_picture(l, picture, draw_patterns(&p, (FILE *)lens_new_file_stream(picture)));
    }
    if (l->o.json) {
        printf("{");
        json_tokens(l);
        printf(", \"patterns\": [");
        code = feed_patterns(&p);
        printf("]}\n");
        return code;
    }
    return p.heads.n_heads == 1 ? feed_patterns(&p) : print_overview(&p);
}

#endif
