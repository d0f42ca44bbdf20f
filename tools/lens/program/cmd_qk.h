/* lens qk: an attention score as a sum over pairs of parts of the stream, at the query and at the key. */
#ifndef LENS_CMD_QK_H
#define LENS_CMD_QK_H

#include "findings.h"
#include "tools/lens/qk.h"

typedef struct pair {
    size_t query, key; /* parts */
    float share;
} pair;

typedef struct score_finding {
    lens_qk which;
    attn_tensor terms; /* [n, n] */
    size_t n;
    double score, weight; /* weight: softmax over the query's scores */
    pair *pairs;          /* [n * n], sorted by the magnitude of the share, largest first */
} score_finding;

/* Reads the query's scores. Without --key, chooses the key with the highest score. */
static int find_key(lens *l, score_finding *s)
{
    const char *const name = keep(l, "blocks.%zu.attn.hook_attn_scores", s->which.layer);
    attn_record_desc desc = ATTN_ZERO;
    attn_record *record = NULL;
    attn_tensor row;
    double sum = 0;
    size_t k;
    int code;
    desc.names = &name;
    desc.n_names = 1;
    desc.n_positions = l->text.n;
    if ((code = make_session(l, 0)) != FINE)
        return code;
    if (attn_record_new(&l->ctx, &record, l->session, &desc) ||
        attn_feed(&l->ctx, l->session, l->text.ids, l->text.n) ||
        attn_record_get(&l->ctx, &row, record, name))
        code = failed(&l->ctx);
    if (code == FINE) {
        row = attn_select(attn_select(row, 0, s->which.head), 0, s->which.query);
        for (k = 0; l->o.key == not_given && k <= s->which.query; k++)
            if (attn_get1(row, k) > attn_get1(row, s->which.key))
                s->which.key = k;
        s->score = (double)attn_get1(row, s->which.key);
        for (k = 0; k <= s->which.query; k++)
            sum += exp((double)attn_get1(row, k) - s->score);
        s->weight = 1 / sum;
    }
    attn_record_free(record);
    return code;
}

static int compare_pairs(const void *a, const void *b)
{
    const pair *x = (const pair *)a, *y = (const pair *)b;
    const float p = fabsf(x->share), q = fabsf(y->share);
    if (p != q)
        return p < q ? 1 : -1;
    if (x->query != y->query)
        return x->query < y->query ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

static int find_score(lens *l, score_finding *s)
{
    const attn_config *c = l->config;
    size_t i, j;
    int code;
    s->which.tokens = l->text.ids;
    s->which.n_tokens = l->text.n;
    s->which.layer = l->o.layer;
    s->which.head = l->o.head;
    s->which.query = l->o.position == not_given ? l->text.n - 1 : l->o.position;
    s->which.key = l->o.key == not_given ? 0 : l->o.key;
    if (s->which.layer >= c->n_layer || s->which.head >= c->n_head)
        return fail(FAILED,
                    "there is no head %zu of layer %zu: the model has layers 0 to %u of "
                    "heads 0 to %u",
                    s->which.head, s->which.layer, (unsigned)c->n_layer - 1,
                    (unsigned)c->n_head - 1);
    if (s->which.query >= l->text.n || s->which.key > s->which.query)
        return fail(
            FAILED,
            "position %zu cannot look at position %zu: the text has %zu tokens, from 0, and "
            "a key is not later than its query",
            s->which.query, s->which.key, l->text.n);
    if ((code = find_key(l, s)) != FINE)
        return code;
    if (lens_qk_terms(&l->ctx, &s->terms, l->model, &s->which))
        return failed(&l->ctx);
    s->n = s->terms.shape[0];
    s->pairs = (pair *)allocate(l, s->n * s->n, sizeof *s->pairs);
    for (i = 0; s->pairs && i < s->n; i++)
        for (j = 0; j < s->n; j++) {
            pair *p = s->pairs + i * s->n + j;
            p->query = i;
            p->key = j;
            p->share = attn_get2(s->terms, i, j);
        }
    if (!s->pairs)
        return failed(&l->ctx);
    qsort(s->pairs, s->n * s->n, sizeof *s->pairs, compare_pairs);
    return FINE;
}

static const char *part_name(lens *l, const score_finding *s, size_t part)
{
    return keep(l, "%s", lens_qk_label(l->model, s->which.layer, part).text);
}

/* A grid of all pairs of parts, for JSON and pictures. */
static int grid_of_pairs(lens *l, const score_finding *s, lens_grid *grid)
{
    const int code = make_grid(l, grid, s->n, s->n);
    double most;
    size_t i, j;
    if (code != FINE)
        return code;
    for (i = 0; i < s->n; i++) {
        ((const char **)grid->rows)[i] = part_name(l, s, i);
        ((const char **)grid->columns)[i] = part_name(l, s, i);
        for (j = 0; j < s->n; j++) {
            lens_cell *cell = cell_of(grid, i, j);
            cell->number = attn_get2(s->terms, i, j);
            cell->text = keep(l, "%.2f", (double)cell->number);
            cell->tip = keep(l, "%s at the query with %s at the key\n%.4f", part_name(l, s, i),
                             part_name(l, s, j), (double)cell->number);
        }
    }
    most = fmax(fabs((double)s->pairs[0].share), 1e-9);
    colour_cells(grid, most);
    grid->title = "share of the score, by part of the query and part of the key";
    grid->row_name = "query";
    grid->column_name = "key";
    grid->low = keep(l, "%.2f", -most);
    grid->high = keep(l, "%.2f", most);
    return FINE;
}

/* A table of the largest pairs, for the terminal. */
static int grid_of_largest(lens *l, const score_finding *s, lens_grid *grid)
{
    const size_t n = l->o.top < s->n * s->n ? l->o.top : s->n * s->n;
    const int code = make_grid(l, grid, n, 3);
    const double most = fmax(fabs((double)s->pairs[0].share), 1e-9);
    size_t i;
    if (code != FINE)
        return code;
    ((const char **)grid->columns)[0] = "query";
    ((const char **)grid->columns)[1] = "key";
    ((const char **)grid->columns)[2] = "share";
    for (i = 0; i < n; i++) {
        const pair *p = s->pairs + i;
        ((const char **)grid->rows)[i] = keep(l, "%zu.", i + 1);
        cell_of(grid, i, 0)->text = part_name(l, s, p->query);
        cell_of(grid, i, 1)->text = part_name(l, s, p->key);
        cell_of(grid, i, 2)->text = keep(l, "%.2f", (double)p->share);
        cell_of(grid, i, 2)->number = p->share;
        cell_of(grid, i, 2)->colour = (float)((double)p->share / most);
    }
    grid->title = "the largest pairs";
    grid->row_name = "pair";
    grid->column_name = "part";
    return FINE;
}

/* A table of the sums over the other side: each part of the query with the whole key, and each part of the
 * key with the whole query. */
static int grid_of_sums(lens *l, const score_finding *s, lens_grid *grid)
{
    const int code = make_grid(l, grid, s->n, 2);
    double most = 0;
    size_t i, j;
    if (code != FINE)
        return code;
    ((const char **)grid->columns)[0] = "as query";
    ((const char **)grid->columns)[1] = "as key";
    for (i = 0; i < s->n; i++) {
        double sums[2] = {0, 0};
        ((const char **)grid->rows)[i] = part_name(l, s, i);
        for (j = 0; j < s->n; j++) {
            sums[0] += (double)attn_get2(s->terms, i, j);
            sums[1] += (double)attn_get2(s->terms, j, i);
        }
        for (j = 0; j < 2; j++) {
            cell_of(grid, i, j)->number = (float)sums[j];
            cell_of(grid, i, j)->text = keep(l, "%.2f", sums[j]);
            most = fmax(most, fabs(sums[j]));
        }
    }
    colour_cells(grid, fmax(most, 1e-9));
    grid->title = "each part with the whole other side";
    grid->row_name = "part";
    grid->column_name = "side";
    return FINE;
}

static void json_score(const lens *l, const void *of)
{
    const score_finding *s = (const score_finding *)of;
    json_tokens(l);
    printf(",\n \"layer\": %zu, \"head\": %zu, \"query\": %zu, \"key\": %zu, \"score\": ",
           s->which.layer, s->which.head, s->which.query, s->which.key);
    json_figure(s->score);
    json_named(", \"weight\": ", s->weight);
    fputs(",\n ", stdout);
}

static int run_qk(lens *l)
{
    score_finding s = {0};
    lens_grid grids[2];
    findings found = {make_page(l, "A score taken apart"), grids, 1, json_score, &s};
    int code = find_score(l, &s);
    if (code != FINE)
        return code;
    if (l->o.output || l->o.json) {
        code = grid_of_pairs(l, &s, &grids[0]);
    } else {
        found.n_grids = 2;
        code = grid_of_largest(l, &s, &grids[0]);
        if (code == FINE)
            code = grid_of_sums(l, &s, &grids[1]);
    }
    if (code != FINE)
        return code;
    found.page.note = keep(
        l,
        "Head %zu of layer %zu, from position %zu %s to position %zu %s: score %.3f, weight %s. "
        "The score is a sum over pairs: what each part of the stream gives the query with what "
        "each gives the key.",
        s.which.head, s.which.layer, s.which.query, brief(l, l->text.shown[s.which.query], 40),
        s.which.key, brief(l, l->text.shown[s.which.key], 40), s.score, percent(l, s.weight));
    return present(l, &found);
}

#endif
