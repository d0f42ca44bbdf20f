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
} score_finding;

/* Reads the query's scores. Without --key, chooses the key with the highest score. */
static int find_key_position(lens *l, score_finding *s)
{
    const char *const name = keep(l, "blocks.%zu.attn.hook_attn_scores", s->which.layer);
    attn_record_desc desc = ATTN_ZERO;
    attn_record *record = NULL;
    attn_tensor row;
    double sum = 0;
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
        for (size_t k = 0; l->o.key == not_given && k <= s->which.query; k++)
            if (attn_get1(row, k) > attn_get1(row, s->which.key))
                s->which.key = k;
        s->score = (double)attn_get1(row, s->which.key);
        for (size_t k = 0; k <= s->which.query; k++)
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
    if ((code = find_key_position(l, s)) != FINE)
        return code;
    if (lens_qk_terms(&l->ctx, &s->terms, l->model, &s->which))
        return failed(&l->ctx);
    s->n = s->terms.shape[0];
    return FINE;
}

/* All pairs of parts, sorted by the magnitude of the share, largest first. */
static pair *sort_pairs(lens *l, const score_finding *s)
{
    pair *const pairs = (pair *)allocate(l, s->n * s->n, sizeof *pairs);
    for (size_t i = 0; pairs && i < s->n * s->n; i++) {
        pairs[i].query = i / s->n;
        pairs[i].key = i % s->n;
        pairs[i].share = attn_get2(s->terms, pairs[i].query, pairs[i].key);
    }
    if (pairs)
        qsort(pairs, s->n * s->n, sizeof *pairs, compare_pairs);
    return pairs;
}

static const char *part_name(lens *l, const score_finding *s, size_t part)
{
    return keep(l, "%s", lens_qk_label(l->model, s->which.layer, part).text);
}

/* A grid of all pairs of parts, for pictures. */
static void grid_of_pairs(lens *l, const score_finding *s)
{
    lens_grid *const grid =
        add_grid(l, "share of the score, by part of the query and part of the key", s->n, s->n);
    name_axes(grid, "query", "key");
    for (size_t i = 0; i < s->n; i++) {
        label_row(grid, i, part_name(l, s, i));
        label_column(grid, i, part_name(l, s, i));
    }
    show_column(l, grid, "terms", "contribution", 0);
    spell_cells(l, grid, "%.2f", "%s at the query with %s at the key\n%.4f");
    scale_cells(l, grid, fmax(largest_of(grid), 1e-9), "%.2f");
}

/* A table of the largest pairs, for the terminal. */
static void grid_of_largest(lens *l, const score_finding *s)
{
    static const char *const columns[] = {"query", "key", "share"};
    const pair *const pairs = sort_pairs(l, s);
    const size_t n = !pairs ? 0 : l->o.top < s->n * s->n ? l->o.top : s->n * s->n;
    lens_grid *const grid = add_grid(l, "the largest pairs", n, 3);
    name_axes(grid, "pair", "part");
    label_columns(grid, columns);
    for (size_t i = 0; i < n; i++) {
        const pair *const p = pairs + i;
        lens_cell *const cells = cell_of(grid, i, 0);
        label_row(grid, i, keep(l, "%zu.", i + 1));
        cells[0].text = part_name(l, s, p->query);
        cells[1].text = part_name(l, s, p->key);
        cells[2].text = keep(l, "%.2f", (double)p->share);
        cells[2].colour = (float)((double)p->share / fmax(fabs((double)pairs->share), 1e-9));
    }
}

/* A table of the sums over the other side: each part of the query with the whole key, and each part of the
 * key with the whole query. */
static void grid_of_sums(lens *l, const score_finding *s)
{
    static const char *const columns[] = {"as query", "as key"};
    lens_grid *const grid = add_grid(l, "each part with the whole other side", s->n, 2);
    name_axes(grid, "part", "side");
    label_columns(grid, columns);
    for (size_t i = 0; i < n_cells(grid); i++) {
        lens_cell *const cell = cell_of(grid, 0, i);
        for (size_t j = 0; j < s->n; j++)
            cell->number +=
                (double)(i % 2 ? attn_get2(s->terms, j, i / 2) : attn_get2(s->terms, i / 2, j));
        cell->text = keep(l, "%.2f", cell->number);
        label_row(grid, i / 2, part_name(l, s, i / 2));
    }
    colour_cells(grid, fmax(largest_of(grid), 1e-9));
}

static void dress_score(lens *l, const void *of)
{
    const score_finding *const s = (const score_finding *)of;
    if (l->form != FORM_TEXT) {
        grid_of_pairs(l, s);
        return;
    }
    grid_of_largest(l, s);
    grid_of_sums(l, s);
}

static void add_score(lens *l, const score_finding *s)
{
    facts(l, "layer:z head:z query:z key:z score weight:x", s->which.layer, s->which.head,
          s->which.query, s->which.key, s->score, s->weight);
    answer_table *t = add_table(l, "terms");
    const char **queries = answer_text_axis(&l->answer, t, "query_part", s->n);
    const char **keys = answer_text_axis(&l->answer, t, "key_part", s->n);
    for (size_t i = 0; queries && keys && i < s->n; i++)
        queries[i] = keys[i] = part_name(l, s, i);
    answer_tensor(&l->answer, t, "contribution", s->terms);
    add_tokens(l);
}

static int run_qk(lens *l, void *finding)
{
    score_finding *const s = (score_finding *)finding;
    int code;
    show_as(l, "A score taken apart", dress_score);
    if ((code = find_score(l, s)) != FINE)
        return code;
    add_score(l, s);
    l->shown.page.note = keep(
        l,
        "Head %zu of layer %zu, from position %zu %s to position %zu %s: score %.3f, weight %s. "
        "The score is a sum over pairs: what each part of the stream gives the query with what "
        "each gives the key.",
        s->which.head, s->which.layer, s->which.query, brief(l, l->text.shown[s->which.query], 40),
        s->which.key, brief(l, l->text.shown[s->which.key], 40), s->score, percent(l, s->weight));
    return show_answer(l);
}

#endif
