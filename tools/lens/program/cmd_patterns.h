/* lens patterns: where each head looks.
 *
 * The patterns of a long text are large, so each layer's pattern is printed or drawn as soon as it is computed, and kept
 * only where all weights are asked for. The session's batch holds the whole text, so the hook sees the whole pattern of
 * each layer once, in order. */
#ifndef LENS_CMD_PATTERNS_H
#define LENS_CMD_PATTERNS_H

#include "cmd_loss.h"

typedef struct patterns {
    lens *l;
    lens_heads heads;
    attn_tensor weights; /* [layers, heads, T, T] of the chosen heads, if they are kept */
    void (*take)(struct patterns *p, const attn_tensor *matrix); /* shows or keeps the next head */
    size_t n_done;
    canvas *to;
    double top;       /* where the heads of an SVG begin */
    lens_grid *grids; /* the overview's */
} patterns;

static float weight_at(const void *pattern, size_t query, size_t key)
{
    return attn_get2(*(const attn_tensor *)pattern, query, key);
}

/* ---- going through the heads ---- */

static int take_layer(const attn_activation *activation, void *user)
{
    patterns *p = (patterns *)user;
    lens *l = p->l;
    for (size_t head = 0; head < l->config->n_head && !was_stopped(l); head++) {
        const attn_tensor matrix = attn_select(activation->value, 0, head);
        if (l->o.head != not_given && head != l->o.head)
            continue;
        p->take(p, &matrix);
        p->n_done++;
    }
    return was_stopped(l) || l->ctx.status;
}

/* Runs the model; p->take gets the chosen heads one after the other. */
static int feed_patterns(patterns *p)
{
    lens *l = p->l;
    const char *name = l->o.layer == not_given
                           ? "blocks.*.attn.hook_pattern"
                           : keep(l, "blocks.%zu.attn.hook_pattern", l->o.layer);
    int code = make_session(l, l->text.n);
    if (code == FINE &&
        (hook_edits(l, l->session) || attn_hook(&l->ctx, NULL, l->session, name, take_layer, p) ||
         attn_feed(&l->ctx, l->session, l->text.ids, l->text.n)))
        code = failed(&l->ctx);
    attn_session_free(l->session);
    l->session = NULL;
    return code;
}

/* The kept pattern of the chosen head i. */
static attn_tensor kept_pattern(const patterns *p, size_t i)
{
    const size_t n = p->heads.n_columns;
    return attn_select(attn_select(p->weights, 0, i / n), 0, i % n);
}

/* Shows the chosen heads. If their patterns were kept, the model does not run again. */
static int each_pattern(patterns *p, void (*take)(patterns *p, const attn_tensor *matrix))
{
    p->take = take;
    p->n_done = 0;
    if (!p->weights.ndim)
        return feed_patterns(p);
    for (; p->n_done < p->heads.n_heads; p->n_done++) {
        const attn_tensor matrix = kept_pattern(p, p->n_done);
        take(p, &matrix);
    }
    return outcome(&p->l->ctx);
}

static void keep_pattern(patterns *p, const attn_tensor *matrix)
{
    attn_tensor to = kept_pattern(p, p->n_done);
    attn_copy(&p->l->ctx, &to, *matrix);
}

/* Keeps the patterns of the chosen heads. */
static int keep_patterns(patterns *p)
{
    const size_t n = p->l->text.n, n_columns = p->heads.n_columns;
    float *const room = (float *)allocate(p->l, p->heads.n_heads * n * n, sizeof *room);
    if (!room)
        return failed(&p->l->ctx);
    p->weights =
        attn_borrow(room, ATTN_F32, attn_shape4(p->heads.n_heads / n_columns, n_columns, n, n));
    p->take = keep_pattern;
    return feed_patterns(p);
}

/* ---- tables of a terminal ---- */

/* Prints, for one head, the keys with the largest weights of each query. */
static void print_pattern(patterns *p, const attn_tensor *matrix)
{
    lens *l = p->l;
    const size_t n = l->text.n;
    unsigned char *taken = (unsigned char *)allocate(l, n, 1);
    for (size_t q = 0; taken && q < n; q++) {
        say(l, "%5zu ", q);
        put(l, l->text.shown[q], 16, NULL);
        memset(taken, 0, n);
        for (size_t i = 0; i <= q && i < l->o.top; i++) {
            size_t best = n;
            for (size_t k = 0; k <= q; k++)
                if (!taken[k] &&
                    (best == n || weight_at(matrix, q, k) > weight_at(matrix, q, best)))
                    best = k;
            taken[best] = 1;
            say(l, "  ");
            put(l, keep(l, "%zu %s", best, brief(l, l->text.shown[best], 12)), 0, NULL);
            put(l, keep(l, " %s", percent(l, (double)weight_at(matrix, q, best))), 0, dim);
        }
        say(l, "\n");
    }
}

enum { TO_FIRST, TO_ITSELF, DISTANCE, N_OVERVIEWS };

/* Fills one head's cells of the overview: shares of its attention, and the mean distance to its keys. */
static void sum_up(patterns *p, const attn_tensor *matrix)
{
    const size_t n = p->l->text.n, *const head = p->heads.heads[p->n_done];
    double sums[N_OVERVIEWS] = {0};
    for (size_t q = 0; q < n; q++)
        for (size_t k = 0; k <= q; k++) {
            const double weight = (double)weight_at(matrix, q, k);
            sums[TO_FIRST] += k == 0 ? weight : 0;
            sums[TO_ITSELF] += k == q ? weight : 0;
            sums[DISTANCE] += weight * (double)(q - k);
        }
    for (size_t i = 0; i < N_OVERVIEWS; i++) {
        lens_cell *cell = cell_of(&p->grids[i], head[0], head[1]);
        const float number = (float)(sums[i] / (double)n);
        cell->colour = i == DISTANCE ? number / (float)n : number;
        cell->text = keep(p->l, "%.2f", (double)number);
    }
}

static int print_overview(patterns *p)
{
    static const char *const titles[N_OVERVIEWS] = {
        "share of attention on the first token", "on the token itself",
        "mean distance to what is looked at, in tokens"};
    lens *l = p->l;
    lens_grid grids[N_OVERVIEWS];
    int code = FINE;
    for (size_t i = 0; i < N_OVERVIEWS && code == FINE; i++) {
        code = make_grid(l, &grids[i], l->config->n_layer, l->config->n_head);
        grids[i].title = titles[i];
    }
    p->grids = grids;
    if (code == FINE)
        code = each_pattern(p, sum_up);
    p->grids = NULL;
    for (size_t i = 0; i < N_OVERVIEWS && code == FINE; i++) {
        say(l, "%s", i ? "\n" : "");
        print_grid(l, &grids[i]);
    }
    return code;
}

static int print_patterns(lens *l, const void *of)
{
    patterns *const p = (patterns *)of;
    (void)l;
    return p->heads.n_heads == 1 ? each_pattern(p, print_pattern) : print_overview(p);
}

/* ---- pictures ---- */

/* Draws one head as an SVG: a grid of queries and keys. */
static void svg_one_pattern(patterns *p, const attn_tensor *matrix)
{
    lens *l = p->l;
    const size_t n = l->text.n;
    lens_grid grid;
    if (make_grid(l, &grid, n, n) != FINE)
        return;
    label_positions(l, &grid);
    grid.title = "queries down, keys across";
    grid.high = "1: all of a query's attention";
    grid.row_name = "query";
    grid.column_name = "key";
    for (size_t q = 0; q < n; q++) {
        ((const char **)grid.rows)[q] = keep(l, "%s", brief(l, grid.columns[q], 20));
        for (size_t k = 0; k < n; k++) {
            const float weight = k <= q ? weight_at(matrix, q, k) : 0;
            lens_cell *cell = cell_of(&grid, q, k);
            cell->colour = weight;
            cell->text = k <= q ? keep(l, "%.2f", (double)weight) : "";
            cell->tip = k <= q ? keep(l, "query %s\nkey %s\nweight %.4f", grid.columns[q],
                                      grid.columns[k], (double)weight)
                               : "";
        }
    }
    svg_grids(p->to, &l->shown.page, &grid, 1);
}

static void svg_next_pattern(patterns *p, const attn_tensor *matrix)
{
    const svg_weights weights = {weight_at, matrix};
    svg_pattern(p->to, &p->heads, p->n_done, p->top, &weights, p->l->text.n);
}

static int svg_patterns(patterns *p, const lens_page *page)
{
    p->top = svg_patterns_begin(p->to, page, &p->heads);
    int code = each_pattern(p, svg_next_pattern);
    ink(p->to, "</svg>\n");
    return code;
}

static void html_next_pattern(patterns *p, const attn_tensor *matrix)
{
    html_pattern(p->to, weight_at, matrix, p->l->text.n);
}

static int html_patterns(patterns *p, const lens_page *page)
{
    lens *const l = p->l;
    const lens_word *words = make_words(l);
    if (!words)
        return failed(&l->ctx);
    html_patterns_begin(p->to, page, &p->heads, l->text.shown, words, l->text.n);
    int code = each_pattern(p, html_next_pattern);
    html_end(p->to);
    return code;
}

static int draw_patterns(lens *l, canvas *to, const void *of)
{
    patterns *const p = (patterns *)of;
    const size_t n = l->text.n, n_heads = p->heads.n_heads;
    const size_t most =
        (size_t)1 << 28; /* bytes of a page that a browser can be expected to open */
    const int is_svg = l->form == FORM_SVG;
    lens_page page = l->shown.page;
    if (is_svg && n_heads == 1 && n > 256)
        return fail(FAILED,
                    "%zu tokens are too many for an SVG of one head; a page (.html) has "
                    "room for them",
                    n);
    /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a model has a head, and one was chosen */
    if (n * n > most / n_heads)
        return fail(FAILED,
                    "%zu patterns of %zu tokens are too much for a picture; choose with "
                    "--layer or --head",
                    n_heads, n);
    p->to = to;
    if (is_svg && n_heads == 1)
        return each_pattern(p, svg_one_pattern);
    if (n_heads > 1)
        page.note = keep(l, "%s %s", page.note,
                         is_svg ? "In each, queries go down and keys across."
                                : "A click or the arrow keys choose a head; a token of the text "
                                  "shows where it attends.");
    return is_svg ? svg_patterns(p, &page) : html_patterns(p, &page);
}

/* ---- the command ---- */

/* Lists the heads that the options choose, layer by layer. */
static int choose_heads(lens *l, lens_heads *heads)
{
    const size_t n_layer = l->config->n_layer, n_head = l->config->n_head;
    const int by_head = l->o.head != not_given;
    if (l->o.layer != not_given && l->o.layer >= n_layer)
        return fail(FAILED, "there is no layer %zu: the model has %zu, from 0", l->o.layer,
                    n_layer);
    if (by_head && l->o.head >= n_head)
        return fail(FAILED, "there is no head %zu: a layer has %zu, from 0", l->o.head, n_head);
    heads->heads = (size_t(*)[2])allocate(l, n_layer * n_head, sizeof *heads->heads);
    if (!heads->heads)
        return failed(&l->ctx);
    for (size_t layer = 0; layer < n_layer; layer++)
        for (size_t head = 0; head < n_head; head++)
            if ((l->o.layer == not_given || layer == l->o.layer) &&
                (!by_head || head == l->o.head)) {
                heads->heads[heads->n_heads][0] = layer;
                heads->heads[heads->n_heads++][1] = head;
            }
    heads->n_columns = by_head ? 1 : n_head;
    return FINE;
}

/* Every weight of the chosen heads, and the tokens that look and are looked at. */
static void add_patterns(lens *l, const patterns *p)
{
    answer *const a = &l->answer;
    answer_table *const t = add_table(l, "patterns");
    double *const layers = answer_axis(a, t, "layer", p->weights.shape[0]);
    double *const heads = answer_axis(a, t, "head", p->weights.shape[1]);
    for (size_t i = 0; layers && heads && i < p->heads.n_heads; i++) {
        layers[i / p->heads.n_columns] = (double)p->heads.heads[i][0];
        heads[i % p->heads.n_columns] = (double)p->heads.heads[i][1];
    }
    answer_axis(a, t, "query", l->text.n);
    answer_axis(a, t, "key", l->text.n);
    answer_tensor(a, t, "weight", p->weights);
    add_tokens(l);
}

/* Is the answer only drawn? */
static int wants_picture(const lens *l)
{
    return l->o.output && (lens_ends_in(l->o.output, ".svg") || lens_ends_in(l->o.output, ".html"));
}

static int run_patterns(lens *l, void *finding)
{
    patterns *const p = (patterns *)finding;
    int code;
    show_as(l, "Attention patterns", NULL);
    p->l = l;
    if ((code = choose_heads(l, &p->heads)) != FINE)
        return code;
    if (wants_all(l) && !wants_picture(l)) {
        if ((code = keep_patterns(p)) != FINE)
            return code;
        add_patterns(l, p);
    }
    l->shown.print = print_patterns;
    l->shown.draw = draw_patterns;
    l->shown.page.note = p->heads.n_heads == 1
                             ? keep(l, "Layer %zu, head %zu, over %zu tokens.",
                                    p->heads.heads[0][0], p->heads.heads[0][1], l->text.n)
                             : keep(l, "%zu heads over %zu tokens.", p->heads.n_heads, l->text.n);
    return show_answer(l);
}

#endif
