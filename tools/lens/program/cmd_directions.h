/* lens circuits --layer L --head H: the singular vectors of one head's circuits, by tokens. A direction that
 * the head reads is shown by the tokens whose embeddings have the largest products with it; a direction
 * that it writes by the tokens whose logits it raises most (Millidge & Black 2022; TransformerLens's
 * SVDInterpreter). The sign of a vector is arbitrary, but both vectors of a pair change it together. */
#ifndef LENS_CMD_DIRECTIONS_H
#define LENS_CMD_DIRECTIONS_H

#include "findings.h"
#include "tools/lens/spectrum.h"

enum { MOST_OF_A_DIRECTION = 5, N_CIRCUITS = LENS_CIRCUIT_OV + 1 };

/* The first pairs of singular vectors of one circuit. */
typedef struct vector_pairs {
    lens_svd svd;
    size_t n;                 /* shown vectors */
    size_t k;                 /* tokens for each vector */
    attn_prediction *side[2]; /* [n, k]: the tokens with the largest products, for U and for V */
} vector_pairs;

/* The tokens with the largest products with the first n columns of x [C, r]: products with W_E, or with W_U
 * if the direction is written. */
static int name_directions(lens *l, attn_top top, attn_tensor x, size_t n, int written)
{
    attn_tensor w = ATTN_ZERO, products = ATTN_ZERO, rows = ATTN_ZERO;
    const attn_tensor some = attn_transpose(attn_slice(x, 1, 0, n), 0, 1);
    int failed_call =
        attn_model_tensor(&l->ctx, &w, l->model, written ? "unembed.W_U" : "embed.W_E") ||
        (written ? attn_matmul(&l->ctx, &products, some, w)
                 : attn_matmul(&l->ctx, &products, w, attn_transpose(some, 0, 1))) ||
        attn_copy(&l->ctx, &rows, written ? products : attn_transpose(products, 0, 1)) ||
        attn_logit_stats(&l->ctx, NULL, &top, rows, NULL);
    attn_tensor_free(&l->ctx, &w);
    attn_tensor_free(&l->ctx, &products);
    attn_tensor_free(&l->ctx, &rows);
    return failed_call ? failed(&l->ctx) : FINE;
}

static int find_directions(lens *l, vector_pairs *d, lens_circuit_kind kind)
{
    const lens_head of = {l->o.layer, l->o.head};
    attn_tensor left = ATTN_ZERO, right = ATTN_ZERO;
    int code = FINE;
    if (lens_circuit(&l->ctx, &left, &right, l->model, of, kind) ||
        lens_singular_vectors(&l->ctx, &d->svd, left, right))
        return failed(&l->ctx);
    d->k = l->config->n_vocab < MOST_OF_A_DIRECTION ? l->config->n_vocab : MOST_OF_A_DIRECTION;
    d->n = l->o.top < l->config->d_head ? l->o.top : l->config->d_head;
    for (int side = 0; side < 2 && code == FINE; side++) {
        const attn_tensor vectors = side ? d->svd.v : d->svd.u;
        attn_top top = {NULL, d->k};
        d->side[side] = (attn_prediction *)allocate(l, d->n * d->k, sizeof **d->side);
        top.best = d->side[side];
        code = !top.best ? failed(&l->ctx)
               : d->n == 0
                   ? FINE
                   : name_directions(l, top, vectors, d->n, side && kind == LENS_CIRCUIT_OV);
    }
    return code;
}

static const char *const side_names[2][2] = {{"query", "key"}, {"reads", "writes"}};
static const char *const circuit_names[N_CIRCUITS] = {"QK", "OV"};

static void add_directions(lens *l, const vector_pairs *d)
{
    answer *const a = &l->answer;
    answer_table *const values = add_table(l, "singular_values");
    const size_t n = d->n, k = d->k, n_rows = N_CIRCUITS * n * 2 * k;
    add_names(l, values, "circuit", circuit_names, N_CIRCUITS);
    answer_axis(a, values, "k", n);
    answer_add_columns(a, values, "value");
    for (size_t i = 0; i < N_CIRCUITS * n; i++)
        answer_put(a, values, i, attn_get1(d[i / n].svd.s, i % n));
    answer_table *const t =
        add_rows(l, "directions", n_rows, "circuit:s k:z side:s place:z | token:t product");
    for (size_t i = 0; i < n_rows; i++) {
        const size_t kind = i / (n * 2 * k), which = i / k % 2, vector = i / (2 * k) % n;
        const attn_prediction *const p = &d[kind].side[which][vector * k + i % k];
        answer_put(a, t, i, circuit_names[kind], vector, side_names[kind][which], i % k, p->token,
                   p->logit);
    }
}

static void add_vectors(lens *l, const vector_pairs *d, int kind)
{
    lens_grid *const grid = add_grid(l,
                                     kind == LENS_CIRCUIT_OV ? "singular vectors of the OV circuit"
                                                             : "singular vectors of the QK circuit",
                                     d->n, 1 + 2 * d->k);
    const double most = d->n ? fmax((double)attn_get1(d->svd.s, 0), 1e-9) : 1;
    name_axes(grid, "vector", "tokens");
    grid->high = "the largest singular value";
    label_column(grid, 0, "value");
    for (size_t k = 1; k < grid->n_columns; k++)
        label_column(grid, k,
                     keep(l, "%s %zu", side_names[kind][k > d->k], k > d->k ? k - d->k : k));
    for (size_t i = 0; i < n_cells(grid); i++) {
        lens_cell *const cell = cell_of(grid, 0, i);
        const size_t vector = i / grid->n_columns, column = i % grid->n_columns;
        if (column == 0) {
            cell->number = (double)attn_get1(d->svd.s, vector);
            cell->text = cell->tip = keep(l, "%.3f", cell->number);
            cell->colour = (float)(cell->number / most);
            continue;
        }
        const int side = column > d->k;
        const attn_prediction *const p =
            &d->side[side][vector * d->k + column - 1 - (side ? d->k : 0)];
        cell->number = (double)p->logit;
        cell->text = brief(l, shown_token(l, p->token), 12);
        cell->tip =
            keep(l, "%s %s\n%.4f", side_names[kind][side], shown_token(l, p->token), cell->number);
    }
}

static void dress_directions(lens *l, const void *of)
{
    for (int kind = 0; kind < N_CIRCUITS; kind++)
        add_vectors(l, (const vector_pairs *)of + kind, kind);
}

static int run_directions(lens *l, void *finding)
{
    vector_pairs *const found = (vector_pairs *)finding;
    int code = FINE;
    show_as(l, "Circuits of a head", dress_directions);
    for (int kind = 0; kind < N_CIRCUITS && code == FINE; kind++)
        code = find_directions(l, &found[kind], (lens_circuit_kind)kind);
    if (code != FINE)
        return code;
    facts(l, "layer:z head:z", l->o.layer, l->o.head);
    add_directions(l, found);
    l->shown.page.note = keep(
        l,
        "Head %zu of layer %zu. A query along the one side of a pair attends to keys along the "
        "other; what is read along the one side is written along the other. Directions are shown "
        "by the tokens with the largest products: with W_E, or with W_U for what is written.",
        l->o.head, l->o.layer);
    return show_answer(l);
}

#endif
