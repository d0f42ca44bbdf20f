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
    N_CIRCUITS = LENS_CIRCUIT_OV + 1,
    N_SPACES = LENS_OV_TOKENS + 1,
    N_COMPOSITIONS = LENS_COMPOSE_V + 1
};

typedef struct circuits {
    size_t n_values;                    /* shown singular values of each circuit */
    attn_tensor singular[N_CIRCUITS];   /* [L, H, d], largest first */
    attn_tensor eigen[N_SPACES];        /* [L, H, d, 2], largest magnitude first */
    attn_tensor copying[N_SPACES];      /* [L, H] */
    size_t n_pairs;                     /* shown pairs of heads of each kind of composition */
    composition *pairs[N_COMPOSITIONS]; /* [n_pairs], strongest first */
} circuits;

static const char *const circuit_names[N_CIRCUITS] = {"QK", "OV"};
static const char *const space_names[N_SPACES] = {"OV", "full_OV"};
static const char *const composition_names[N_COMPOSITIONS] = {"Q", "K", "V"};

/* ---- singular values ---- */

static attn_status find_singular_values(lens *l, attn_tensor *all, lens_circuit_kind kind)
{
    const attn_config *c = l->config;
    attn_tensor left = {0}, right = {0};
    lens_head at;
    attn_status status =
        attn_zeros(&l->ctx, all, ATTN_F32, attn_shape3(c->n_layer, c->n_head, c->d_head));
    for (at.layer = 0; at.layer < c->n_layer; at.layer++)
        for (at.head = 0; at.head < c->n_head && status == ATTN_OK; at.head++) {
            attn_tensor values = attn_select(attn_select(*all, 0, at.layer), 0, at.head);
            status = interrupted ? ATTN_STOPPED
                                 : lens_circuit(&l->ctx, &left, &right, l->model, at, kind);
            if (status == ATTN_OK)
                status = lens_singular_values(&l->ctx, &values, left, right);
        }
    attn_tensor_free(&l->ctx, &left);
    attn_tensor_free(&l->ctx, &right);
    return status;
}

/* A grid of the largest value of each head; the tooltips list the largest few. */
static int show_singular_values(lens *l, const circuits *found, int kind, lens_grid *grid)
{
    const attn_tensor values = found->singular[kind];
    double most = 1e-9;
    size_t i, j, k;
    const int code = make_grid(l, grid, l->config->n_layer, l->config->n_head);
    if (code != FINE)
        return code;
    for (i = 0; i < grid->n_rows; i++)
        for (j = 0; j < grid->n_columns; j++)
            most = fmax(most, (double)attn_get3(values, i, j, 0));
    for (i = 0; i < grid->n_rows; i++)
        for (j = 0; j < grid->n_columns; j++) {
            lens_cell *cell = cell_of(grid, i, j);
            cell->number = attn_get3(values, i, j, 0);
            cell->colour = (float)((double)cell->number / most);
            cell->text = keep(l, "%.2f", (double)cell->number);
            cell->tip = keep(l, "layer %zu, head %zu", i, j);
            for (k = 0; k < found->n_values; k++)
                cell->tip = keep(l, "%s\n%.4f", cell->tip, (double)attn_get3(values, i, j, k));
        }
    grid->title = keep(l, "largest singular value of the %s circuit", circuit_names[kind]);
    grid->high = keep(l, "%.2f: the largest of all heads", most);
    return FINE;
}

/* ---- copying ---- */

/* A grid of the score of each head; the tooltips list the largest eigenvalues. */
static int show_copying(lens *l, circuits *found, int space, lens_grid *grid)
{
    size_t i, j, k;
    int code;
    if (interrupted ||
        lens_ov_eigenvalues(&l->ctx, &found->eigen[space], l->model, (lens_ov_space)space) ||
        lens_copying_scores(&l->ctx, &found->copying[space], found->eigen[space]))
        return failed(&l->ctx);
    if ((code = make_grid(l, grid, l->config->n_layer, l->config->n_head)) != FINE)
        return code;
    for (i = 0; i < grid->n_rows; i++)
        for (j = 0; j < grid->n_columns; j++) {
            lens_cell *cell = cell_of(grid, i, j);
            cell->number = attn_get2(found->copying[space], i, j);
            cell->text = keep(l, "%.2f", (double)cell->number);
            cell->tip =
                keep(l, "layer %zu, head %zu\n%.4f\neigenvalues:", i, j, (double)cell->number);
            for (k = 0; k < found->n_values; k++)
                cell->tip = keep(l, "%s\n%.4g %+.4gi", cell->tip,
                                 (double)attn_get4(found->eigen[space], i, j, k, 0),
                                 (double)attn_get4(found->eigen[space], i, j, k, 1));
        }
    grid->title =
        space == LENS_OV_TOKENS ? "copying score of W_E · W_OV · W_U" : "copying score of W_OV";
    grid->low = "-1: no eigenvalue is positive";
    grid->high = "1: all are";
    colour_cells(grid, 1);
    return FINE;
}

/* ---- compositions ---- */

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

static int find_pairs(lens *l, circuits *found, lens_composition_kind kind)
{
    const attn_config *c = l->config;
    const size_t most = found->n_pairs;
    attn_tensor scores = {0};
    composition pair;
    size_t n = 0;
    found->pairs[kind] = (composition *)allocate(l, most, sizeof *found->pairs[kind]);
    if (interrupted || !found->pairs[kind] ||
        lens_composition_scores(&l->ctx, &scores, l->model, kind))
        return failed(&l->ctx);
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
    return FINE;
}

static int show_pairs(lens *l, const circuits *found, int kind, lens_grid *grid)
{
    const composition *pair = found->pairs[kind];
    const int code = make_grid(l, grid, found->n_pairs, 1);
    double most;
    size_t i;
    if (code != FINE)
        return code;
    grid->title = keep(l, "strongest %s-compositions", composition_names[kind]);
    grid->row_name = "writer to reader";
    grid->column_name = "pair";
    ((const char **)grid->columns)[0] = "score";
    for (i = 0; i < found->n_pairs; i++, pair++) {
        lens_cell *cell = cell_of(grid, i, 0);
        ((const char **)grid->rows)[i] = keep(l, "%zu.%zu to %zu.%zu", pair->from.layer,
                                              pair->from.head, pair->to.layer, pair->to.head);
        cell->number = pair->score;
        cell->text = keep(l, "%.3f", (double)pair->score);
        cell->tip = keep(l, "%s\n%.4f", grid->rows[i], (double)pair->score);
    }
    grid->high = keep(l, "%g", most = fitting_scale(grid, 1));
    colour_cells(grid, most);
    return FINE;
}

/* ---- all of it ---- */

static void json_singular_values(const circuits *found, int kind)
{
    const attn_tensor all = found->singular[kind];
    size_t i, j, k;
    printf("\"%s\": [", circuit_names[kind]);
    for (i = 0; i < all.shape[0]; i++) {
        fputs(i ? ",\n  [" : "\n  [", stdout);
        for (j = 0; j < all.shape[1]; j++) {
            fputs(j ? ", [" : "[", stdout);
            for (k = 0; k < found->n_values; k++) {
                fputs(k ? ", " : "", stdout);
                json_figure((double)attn_get3(all, i, j, k));
            }
            fputs("]", stdout);
        }
        fputs("]", stdout);
    }
    fputs("]", stdout);
}

static void json_eigenvalues(const circuits *found, int space)
{
    const attn_tensor all = found->eigen[space];
    size_t i, j, k;
    printf("\"%s\": [", space_names[space]);
    for (i = 0; i < all.shape[0]; i++) {
        fputs(i ? ",\n  [" : "\n  [", stdout);
        for (j = 0; j < all.shape[1]; j++) {
            fputs(j ? ", [" : "[", stdout);
            for (k = 0; k < found->n_values; k++) {
                fputs(k ? ", [" : "[", stdout);
                json_figure((double)attn_get4(all, i, j, k, 0));
                json_named(", ", (double)attn_get4(all, i, j, k, 1));
                fputs("]", stdout);
            }
            fputs("]", stdout);
        }
        fputs("]", stdout);
    }
    fputs("]", stdout);
}

static void json_pairs(const circuits *found, int kind)
{
    const composition *pair = found->pairs[kind];
    size_t i;
    printf("\"%s\": [", composition_names[kind]);
    for (i = 0; i < found->n_pairs; i++, pair++) {
        printf("%s{\"from\": [%zu, %zu], \"to\": [%zu, %zu], \"score\": ", i ? ",\n  " : "\n  ",
               pair->from.layer, pair->from.head, pair->to.layer, pair->to.head);
        json_figure((double)pair->score);
        fputs("}", stdout);
    }
    fputs("]", stdout);
}

static void json_circuits(const lens *l, const void *of)
{
    const circuits *found = (const circuits *)of;
    int kind;
    (void)l;
    fputs("\"singular_values\": {", stdout);
    for (kind = 0; kind < N_CIRCUITS; kind++) {
        fputs(kind ? ",\n " : "\n ", stdout);
        json_singular_values(found, kind);
    }
    fputs("},\n\"eigenvalues\": {", stdout);
    for (kind = 0; kind < N_SPACES; kind++) {
        fputs(kind ? ",\n " : "\n ", stdout);
        json_eigenvalues(found, kind);
    }
    fputs("},\n\"compositions\": {", stdout);
    for (kind = 0; kind < N_COMPOSITIONS; kind++) {
        fputs(kind ? ",\n " : "\n ", stdout);
        json_pairs(found, kind);
    }
    fputs("},\n", stdout);
}

static size_t at_most(size_t n, size_t most)
{
    return n < most ? n : most;
}

static int run_circuits(lens *l)
{
    const size_t n_layer = l->config->n_layer, n_head = l->config->n_head;
    const size_t n_pairs = n_layer * (n_layer - 1) / 2 * n_head * n_head;
    circuits found = {0};
    lens_grid grids[N_CIRCUITS + N_SPACES + N_COMPOSITIONS];
    findings shown_findings = {make_page(l, "Circuits"), grids, N_CIRCUITS + N_SPACES,
                               json_circuits, &found};
    int kind, code = FINE;
    if (l->o.layer != not_given) /* and a head of it */
        return run_directions(l);
    found.n_values = at_most(l->o.top, l->config->d_head);
    found.n_pairs = at_most(l->o.top, n_pairs);
    for (kind = 0; kind < N_CIRCUITS && code == FINE; kind++)
        code = find_singular_values(l, &found.singular[kind], (lens_circuit_kind)kind)
                   ? failed(&l->ctx)
                   : show_singular_values(l, &found, kind, &grids[kind]);
    for (kind = 0; kind < N_SPACES && code == FINE; kind++)
        code = show_copying(l, &found, kind, &grids[N_CIRCUITS + kind]);
    for (kind = 0; found.n_pairs && kind < N_COMPOSITIONS && code == FINE; kind++)
        if ((code = find_pairs(l, &found, (lens_composition_kind)kind)) == FINE)
            code = show_pairs(l, &found, kind, &grids[N_CIRCUITS + N_SPACES + kind]);
    if (code != FINE)
        return code;
    if (found.n_pairs && !l->o.json) /* JSON has the pairs with their heads, before the grids */
        shown_findings.n_grids += N_COMPOSITIONS;
    shown_findings.page.note =
        "Of the weights as the file has them, without LayerNorm's gain. A large value is a head "
        "that reads (QK) or writes (OV) strongly. A copying score is the sum of the eigenvalues "
        "divided by the sum of their magnitudes: near 1, the head raises the logits of the tokens "
        "that it looks at. A head of a pair is layer.head. The score of a pair is the Frobenius "
        "norm of the product of two circuits divided by the product of their norms: how much the "
        "reader's queries, keys or values depend on the writer's output.";
    return present(l, &shown_findings);
}

#endif
