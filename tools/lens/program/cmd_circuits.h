/* lens circuits: singular values and copying scores of each head, and which heads compose. It reads only
 * weights, so it needs no text. */
#ifndef LENS_CMD_CIRCUITS_H
#define LENS_CMD_CIRCUITS_H

#include "cmd_directions.h"

typedef struct composition {
    lens_head from, to;
    float score;
} composition;

enum {
    N_SPACES = LENS_OV_TOKENS + 1,
    N_COMPOSITIONS = LENS_COMPOSE_V + 1,
    FIRST_COPYING = N_CIRCUITS, /* the parts */
    FIRST_COMPOSITION = FIRST_COPYING + N_SPACES,
    N_OF_CIRCUITS = FIRST_COMPOSITION + N_COMPOSITIONS
};

typedef struct circuits {
    size_t n_values;                    /* shown singular values of each circuit */
    attn_tensor singular;               /* [N_CIRCUITS, L, H, d], largest first */
    attn_tensor eigen[N_SPACES];        /* [L, H, d, 2], largest magnitude first */
    attn_tensor copying[N_SPACES];      /* [L, H] */
    size_t n_pairs;                     /* shown pairs of heads of each kind of composition */
    composition *pairs[N_COMPOSITIONS]; /* [n_pairs], strongest first */
} circuits;

static const char *const space_names[N_SPACES] = {"OV", "full_OV"};
static const char *const composition_names[N_COMPOSITIONS] = {"Q", "K", "V"};

/* ---- what is found ---- */

static attn_status find_singular_values(lens *l, attn_tensor all, lens_circuit_kind kind)
{
    attn_tensor left = {0}, right = {0};
    attn_status status = ATTN_OK;
    lens_head at;
    for (at.layer = 0; at.layer < all.shape[0]; at.layer++)
        for (at.head = 0; at.head < all.shape[1] && status == ATTN_OK; at.head++) {
            attn_tensor values = attn_select(attn_select(all, 0, at.layer), 0, at.head);
            status = was_stopped(l) ? ATTN_STOPPED
                                    : lens_circuit(&l->ctx, &left, &right, l->model, at, kind);
            if (status == ATTN_OK)
                status = lens_singular_values(&l->ctx, &values, left, right);
        }
    attn_tensor_free(&l->ctx, &left);
    attn_tensor_free(&l->ctx, &right);
    return status;
}

static attn_status find_copying(lens *l, circuits *found, int space)
{
    if (was_stopped(l) ||
        lens_ov_eigenvalues(&l->ctx, &found->eigen[space], l->model, (lens_ov_space)space))
        return was_stopped(l) ? ATTN_STOPPED : l->ctx.status;
    return lens_copying_scores(&l->ctx, &found->copying[space], found->eigen[space]);
}

/* Inserts a pair into a list of n pairs, strongest first, which keeps `most` pairs. */
static void insert_pair(composition *list, size_t n, size_t most, const composition *pair)
{
    size_t i = n < most ? n : most - 1;
    if (n == most && !(pair->score > list[most - 1].score))
        return;
    for (; i > 0 && pair->score > list[i - 1].score; i--)
        list[i] = list[i - 1];
    list[i] = *pair;
}

static attn_status find_pairs(lens *l, circuits *found, lens_composition_kind kind)
{
    const attn_config *c = l->config;
    const size_t most = found->n_pairs;
    attn_tensor scores = {0};
    composition pair;
    size_t n = 0;
    found->pairs[kind] = (composition *)allocate(l, most, sizeof *found->pairs[kind]);
    if (was_stopped(l) || !found->pairs[kind] ||
        lens_composition_scores(&l->ctx, &scores, l->model, kind))
        return was_stopped(l) ? ATTN_STOPPED : l->ctx.status;
    for (pair.from.layer = 0; pair.from.layer < c->n_layer; pair.from.layer++)
        for (pair.from.head = 0; pair.from.head < c->n_head; pair.from.head++)
            for (pair.to.layer = pair.from.layer + 1; pair.to.layer < c->n_layer; pair.to.layer++)
                for (pair.to.head = 0; pair.to.head < c->n_head; pair.to.head++) {
                    pair.score = attn_get4(scores, pair.from.layer, pair.from.head, pair.to.layer,
                                           pair.to.head);
                    insert_pair(found->pairs[kind], n, most, &pair);
                    n += n < most;
                }
    attn_tensor_free(&l->ctx, &scores);
    return ATTN_OK;
}

/* ---- tables ---- */

/* The largest singular value of each head, [L, H]. */
static attn_tensor largest_values(const circuits *found, int kind)
{
    return attn_select(attn_select(found->singular, 0, (size_t)kind), 2, 0);
}

static void add_heads(lens *l, const circuits *found)
{
    answer *const a = &l->answer;
    answer_table *const t = add_table(l, "heads");
    add_layers_and_heads(l, t);
    answer_tensor(a, t, "qk", largest_values(found, LENS_CIRCUIT_QK));
    answer_tensor(a, t, "ov", largest_values(found, LENS_CIRCUIT_OV));
    answer_tensor(a, t, "copying_ov", found->copying[LENS_OV_STREAM]);
    answer_tensor(a, t, "copying_full", found->copying[LENS_OV_TOKENS]);
}

/* A table of the first numbers of each head, for each of two names. */
static answer_table *add_spectrum(lens *l, const circuits *found, const char *name,
                                  const char *axis, const char *const names[2])
{
    answer_table *const t = add_table(l, name);
    add_names(l, t, axis, names, 2);
    add_layers_and_heads(l, t);
    answer_axis(&l->answer, t, "k", found->n_values);
    return t;
}

static void add_spectra(lens *l, const circuits *found)
{
    const size_t n = found->n_values, n_all = l->config->n_layer * l->config->n_head * n;
    answer_table *t = add_spectrum(l, found, "singular_values", "circuit", circuit_names);
    answer_tensor(&l->answer, t, "value", attn_slice(found->singular, 3, 0, n));
    t = add_spectrum(l, found, "eigenvalues", "space", space_names);
    answer_add_columns(&l->answer, t, "real imaginary");
    for (size_t i = 0; i < N_SPACES * n_all; i++) {
        const attn_tensor some = attn_slice(found->eigen[i / n_all], 2, 0, n);
        answer_put(&l->answer, t, i, answer_element(some, 2 * (i % n_all)),
                   answer_element(some, 2 * (i % n_all) + 1));
    }
}

static void add_compositions(lens *l, const circuits *found)
{
    const size_t n = found->n_pairs;
    answer_table *const t =
        add_rows(l, "compositions", N_COMPOSITIONS * n,
                 "kind:s from_layer:z from_head:z to_layer:z to_head:z | score");
    for (size_t i = 0; i < N_COMPOSITIONS * n; i++) {
        const composition *const pair = &found->pairs[i / n][i % n];
        answer_put(&l->answer, t, i, composition_names[i / n], pair->from.layer, pair->from.head,
                   pair->to.layer, pair->to.head, pair->score);
    }
}

/* ---- grids ---- */

/* A grid of the largest value of each head; the tooltips list the largest few. */
static void show_singular_values(lens *l, const circuits *found, int kind)
{
    static const char *const columns[] = {"qk", "ov"};
    const attn_tensor values = attn_select(found->singular, 0, (size_t)kind);
    lens_grid *const grid =
        add_head_grid(l, keep(l, "largest singular value of the %s circuit", circuit_names[kind]));
    show_column(l, grid, "heads", columns[kind], 0);
    for (size_t i = 0; i < n_cells(grid); i++) {
        lens_cell *const cell = cell_of(grid, 0, i);
        const size_t layer = i / grid->n_columns, head = i % grid->n_columns;
        cell->text = keep(l, "%.2f", cell->number);
        cell->tip = keep(l, "layer %zu, head %zu", layer, head);
        for (size_t k = 0; k < found->n_values; k++)
            cell->tip = keep(l, "%s\n%.4f", cell->tip, (double)attn_get3(values, layer, head, k));
    }
    const double most = fmax(largest_of(grid), 1e-9);
    grid->high = keep(l, "%.2f: the largest of all heads", most);
    colour_cells(grid, most);
}

/* A grid of the score of each head; the tooltips list the largest eigenvalues. */
static void show_copying(lens *l, const circuits *found, int space)
{
    lens_grid *const grid = add_head_grid(
        l, space == LENS_OV_TOKENS ? "copying score of W_E · W_OV · W_U" : "copying score of W_OV");
    show_column(l, grid, "heads", space == LENS_OV_TOKENS ? "copying_full" : "copying_ov", 0);
    spell_cells(l, grid, "%.2f", TIP_OF_HEAD "\neigenvalues:");
    for (size_t i = 0; i < n_cells(grid) * found->n_values; i++) {
        const size_t at = i / found->n_values, k = i % found->n_values;
        const attn_tensor pair =
            attn_select(attn_select(attn_select(found->eigen[space], 0, at / grid->n_columns), 0,
                                    at % grid->n_columns),
                        0, k);
        lens_cell *const cell = cell_of(grid, 0, at);
        cell->tip = keep(l, "%s\n%.4g %+.4gi", cell->tip, (double)attn_get1(pair, 0),
                         (double)attn_get1(pair, 1));
    }
    grid->low = "-1: no eigenvalue is positive";
    grid->high = "1: all are";
    colour_cells(grid, 1);
}

static void show_compositions(lens *l, const circuits *found, int kind)
{
    lens_grid *const grid = add_grid(
        l, keep(l, "strongest %s-compositions", composition_names[kind]), found->n_pairs, 1);
    name_axes(grid, "writer to reader", "pair");
    label_column(grid, 0, "score");
    for (size_t i = 0; i < grid->n_rows; i++) {
        const composition *const pair = &found->pairs[kind][i];
        label_row(grid, i,
                  keep(l, "%zu.%zu to %zu.%zu", pair->from.layer, pair->from.head, pair->to.layer,
                       pair->to.head));
    }
    show_column(l, grid, "compositions", "score", (size_t)kind * found->n_pairs);
    spell_cells(l, grid, "%.3f", TIP_OF_ROW "%.4f");
    const double most = fitting(largest_of(grid), 1);
    grid->high = keep(l, "%g", most);
    colour_cells(grid, most);
}

static void dress_circuits(lens *l, const void *of)
{
    const circuits *const found = (const circuits *)of;
    for (int i = 0; i < N_CIRCUITS; i++)
        show_singular_values(l, found, i);
    for (int i = 0; i < N_SPACES; i++)
        show_copying(l, found, i);
    for (int i = 0; found->n_pairs && i < N_COMPOSITIONS; i++)
        show_compositions(l, found, i);
}

/* ---- all of it ---- */

/* Part i: of a circuit, a space or a kind of composition. */
static attn_status find_part(lens *l, circuits *found, int i)
{
    return i < FIRST_COPYING ? find_singular_values(l, attn_select(found->singular, 0, (size_t)i),
                                                    (lens_circuit_kind)i)
           : i < FIRST_COMPOSITION
               ? find_copying(l, found, i - FIRST_COPYING)
               : find_pairs(l, found, (lens_composition_kind)(i - FIRST_COMPOSITION));
}

static size_t at_most(size_t n, size_t most)
{
    return n < most ? n : most;
}

typedef union any_circuits {
    circuits all;
    vector_pairs of_head[N_CIRCUITS];
} any_circuits;

static int run_circuits(lens *l, void *finding)
{
    circuits *const found = (circuits *)finding;
    const size_t n_layer = l->config->n_layer, n_head = l->config->n_head;
    if (l->o.layer != not_given) /* and a head of it */
        return run_directions(l, finding);
    show_as(l, "Circuits", dress_circuits);
    if (attn_zeros(&l->ctx, &found->singular, ATTN_F32,
                   attn_shape4(N_CIRCUITS, n_layer, n_head, l->config->d_head)))
        return failed(&l->ctx);
    found->n_values = at_most(l->o.top, l->config->d_head);
    found->n_pairs = at_most(l->o.top, n_layer * (n_layer - 1) / 2 * n_head * n_head);
    const int n = found->n_pairs ? N_OF_CIRCUITS : FIRST_COMPOSITION;
    for (int i = 0; i < n; i++)
        if (find_part(l, found, i))
            return failed(&l->ctx);
        else if (so_far((i + 1.0) / n, l))
            return INTERRUPTED;
    add_heads(l, found);
    add_spectra(l, found);
    add_compositions(l, found);
    l->shown.page.note =
        "Of the weights as the file has them, without LayerNorm's gain. A large value is a head "
        "that reads (QK) or writes (OV) strongly. A copying score is the sum of the eigenvalues "
        "divided by the sum of their magnitudes: near 1, the head raises the logits of the tokens "
        "that it looks at. A head of a pair is layer.head. The score of a pair is the Frobenius "
        "norm of the product of two circuits divided by the product of their norms: how much the "
        "reader's queries, keys or values depend on the writer's output.";
    return show_answer(l);
}

#endif
