/* lens circuits --layer L --head H: the singular vectors of one head's circuits, by tokens. A direction that
 * the head reads is shown by the tokens whose embeddings have the largest products with it; a direction
 * that it writes by the tokens whose logits it raises most (Millidge & Black 2022; TransformerLens's
 * SVDInterpreter). The sign of a vector is arbitrary, but both vectors of a pair change it together. */
#ifndef LENS_CMD_DIRECTIONS_H
#define LENS_CMD_DIRECTIONS_H

#include "findings.h"
#include "tools/lens/spectrum.h"

enum { MOST_OF_A_DIRECTION = 5 };

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
    int side, code = FINE;
    if (lens_circuit(&l->ctx, &left, &right, l->model, of, kind) ||
        lens_singular_vectors(&l->ctx, &d->svd, left, right))
        return failed(&l->ctx);
    d->k = l->config->n_vocab < MOST_OF_A_DIRECTION ? l->config->n_vocab : MOST_OF_A_DIRECTION;
    d->n = l->o.top < l->config->d_head ? l->o.top : l->config->d_head;
    for (side = 0; side < 2 && code == FINE; side++) {
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

/* Fills a cell with a token of a direction; the tooltip shows the product. */
static void show_token(lens *l, lens_cell *cell, const attn_prediction *p, const char *where)
{
    cell->number = p->logit;
    cell->text = brief(l, shown_token(l, p->token), 12);
    cell->tip = keep(l, "%s %s\n%.4f", where, shown_token(l, p->token), (double)p->logit);
}

static int show_directions(lens *l, const vector_pairs *d, int kind, lens_grid *grid)
{
    const int code = make_grid(l, grid, d->n, 1 + 2 * d->k);
    size_t i, k, column;
    int side;
    if (code != FINE)
        return code;
    grid->title = kind == LENS_CIRCUIT_OV ? "singular vectors of the OV circuit"
                                          : "singular vectors of the QK circuit";
    grid->row_name = "vector";
    grid->column_name = "tokens";
    grid->high = "the largest singular value";
    ((const char **)grid->columns)[0] = "value";
    for (column = 1; column < grid->n_columns; column++)
        ((const char **)grid->columns)[column] =
            keep(l, "%s %zu", side_names[kind][column > d->k], (column - 1) % d->k + 1);
    for (i = 0; i < d->n; i++) {
        const double most = fmax((double)attn_get1(d->svd.s, 0), 1e-9);
        lens_cell *value = cell_of(grid, i, 0);
        value->number = attn_get1(d->svd.s, i);
        value->text = keep(l, "%.3f", (double)value->number);
        value->tip = value->text;
        value->colour = (float)((double)value->number / most);
        for (side = 0; side < 2; side++)
            for (k = 0; k < d->k; k++)
                show_token(l, cell_of(grid, i, 1 + (size_t)side * d->k + k),
                           &d->side[side][i * d->k + k], side_names[kind][side]);
    }
    return outcome(&l->ctx);
}

static void json_directions(const lens *l, const void *of)
{
    const vector_pairs *d = (const vector_pairs *)of;
    size_t i, k;
    int kind, side;
    for (kind = 0; kind < 2; kind++, d++) {
        printf("\"%s\": [", kind == LENS_CIRCUIT_OV ? "OV" : "QK");
        for (i = 0; i < d->n; i++) {
            fputs(i ? ",\n {\"value\": " : "\n {\"value\": ", stdout);
            json_figure((double)attn_get1(d->svd.s, i));
            for (side = 0; side < 2; side++) {
                printf(", \"%s\": [", side_names[kind][side]);
                for (k = 0; k < d->k; k++) {
                    const attn_prediction *p = &d->side[side][i * d->k + k];
                    fputs(k ? ", {" : "{", stdout);
                    json_token(l, p->token);
                    json_named(", \"product\": ", (double)p->logit);
                    fputs("}", stdout);
                }
                fputs("]", stdout);
            }
            fputs("}", stdout);
        }
        fputs("],\n", stdout);
    }
}

static int run_directions(lens *l)
{
    vector_pairs found[2];
    lens_grid grids[2];
    findings shown_findings = {make_page(l, "Circuits of a head"), grids, 2, json_directions,
                               found};
    int kind, code = FINE;
    memset(found, 0, sizeof found);
    for (kind = 0; kind < 2 && code == FINE; kind++)
        if ((code = find_directions(l, &found[kind], (lens_circuit_kind)kind)) == FINE)
            code = show_directions(l, &found[kind], kind, &grids[kind]);
    if (code != FINE)
        return code;
    shown_findings.page.note = keep(
        l,
        "Head %zu of layer %zu. A query along the one side of a pair attends to keys along the "
        "other; what is read along the one side is written along the other. Directions are shown "
        "by the tokens with the largest products: with W_E, or with W_U for what is written.",
        l->o.head, l->o.layer);
    return present(l, &shown_findings);
}

#endif
