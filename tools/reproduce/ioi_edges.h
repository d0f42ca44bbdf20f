/* EAP-IG's scores of all edges on indirect objects (IOI), compared with a published file: circuits/
 * ioi-eap-ig.json of hannamw/MIB-circuit-track has the scores of GPT-2 small's 32,491 edges.
 *
 * The prompts of that file are not printed. It was made from prompts of the same kind, in which the repeated
 * name of the corrupted text is the other one. So the scores cannot agree in their digits; their order can, and
 * the signs of the largest ones. The file's scores have the sign of edges.h: the name mover 9.9 is negative. */
#ifndef REPRODUCE_IOI_EDGES_H
#define REPRODUCE_IOI_EDGES_H

#include "data.h"
#include "tools/common/edge_scores.h"
#include "tools/lens/curve.h"

enum { IOI_STEPS = 5, N_IOI_FIGURES = 2 };

/* scores [prompts, S, R]: of each of the eight prompts. */
static attn_status score_prompts(reading *r, attn_tensor *scores)
{
    study *s = r->study;
    lens_backward backward = ATTN_ZERO;
    attn_status status = lens_backward_new(s->ctx, &backward, s->model);
    const lens_graph g = lens_graph_of(s->model);
    if (status == ATTN_OK)
        status = attn_zeros(s->ctx, scores, ATTN_F32,
                            attn_shape3(N_PROMPTS, g.n_senders, g.n_receivers));
    for (size_t i = 0; i < N_PROMPTS && status == ATTN_OK; i++) {
        attn_tensor to = attn_select(*scores, 0, i);
        const lens_metric metric = {
            .kind = LENS_METRIC_LOGIT_DIFF, .token = answers[i][0], .against = answers[i][1]};
        const lens_pair texts = {prompts[i], prompts[i ^ 1], N_TOKENS, metric};
        status = at_share(s, (double)i / N_PROMPTS)
                     ? s->ctx->status
                     : lens_edge_scores(s->ctx, &to, &backward, &texts, 1, IOI_STEPS);
    }
    lens_backward_free(s->ctx, &backward);
    return status;
}

/* both: the rank correlation of scores [S, R] with those of a file; then the share of equal signs among the
 * file's largest 1 % of edges, which come first in `edges`. */
static attn_status compare_edges(attn_ctx *ctx, double both[N_IOI_FIGURES], const attn_model *model,
                                 attn_tensor scores, attn_tensor published, const lens_edge *edges)
{
    const size_t n = (lens_graph_of(model).n_edges + 99) / 100;
    size_t n_equal = 0;
    for (size_t i = 0; i < n; i++) {
        const float x = attn_get2(scores, edges[i].sender, edges[i].receiver), y = edges[i].score;
        n_equal += (x > 0 && y > 0) || (x < 0 && y < 0);
    }
    both[1] = (double)n_equal / (double)n;
    return lens_rank_correlation(ctx, &both[0], model, scores, published);
}

/* The figures of the sum of all prompts' scores, and their standard errors by the jackknife: the figures without
 * each prompt in turn. */
static attn_status compare_prompts(reading *r, float *out, float *errors, attn_tensor scores,
                                   attn_tensor published, const lens_edge *edges)
{
    attn_ctx *ctx = r->study->ctx;
    double found[N_PROMPTS + 1][N_IOI_FIGURES] = {{0}};
    attn_tensor sum = ATTN_ZERO, rest = ATTN_ZERO;
    attn_status status = attn_copy(ctx, &sum, attn_select(scores, 0, 0));
    for (size_t i = 1; i < N_PROMPTS && status == ATTN_OK; i++)
        status = attn_add(ctx, &sum, sum, attn_select(scores, 0, i));
    for (size_t i = 0; i <= N_PROMPTS && status == ATTN_OK; i++) {
        status = i < N_PROMPTS ? attn_sub(ctx, &rest, sum, attn_select(scores, 0, i))
                               : attn_copy(ctx, &rest, sum);
        if (status == ATTN_OK)
            status = compare_edges(ctx, found[i], r->study->model, rest, published, edges);
    }
    for (size_t j = 0; j < N_IOI_FIGURES && status == ATTN_OK; j++) {
        double mean = 0, squares = 0;
        for (size_t i = 0; i < N_PROMPTS; i++)
            mean += found[i][j] / N_PROMPTS;
        for (size_t i = 0; i < N_PROMPTS; i++)
            squares += (found[i][j] - mean) * (found[i][j] - mean);
        out[j] = (float)found[N_PROMPTS][j];
        errors[j] = (float)sqrt(squares * (N_PROMPTS - 1) / N_PROMPTS);
    }
    attn_tensor_free(ctx, &sum);
    attn_tensor_free(ctx, &rest);
    return status;
}

/* out and errors [2]: the figures of compare_edges, for the file at `path`. */
static attn_status ioi_edges(reading *r, const char *path, float *out, float *errors)
{
    attn_ctx *ctx = r->study->ctx;
    const attn_model *model = r->study->model;
    attn_tensor published = ATTN_ZERO, scores = ATTN_ZERO;
    lens_edge *edges = (lens_edge *)arena_alloc(ctx, r->study->memory, lens_graph_of(model).n_edges,
                                                sizeof *edges);
    attn_status status =
        edges ? read_edge_scores(ctx, r->study->memory, &published, model, path, 1) : ctx->status;
    if (status == ATTN_OK)
        status = lens_sort_edges(ctx, edges, model, published);
    if (status == ATTN_OK)
        status = score_prompts(r, &scores);
    if (status == ATTN_OK)
        status = compare_prompts(r, out, errors, scores, published, edges);
    attn_tensor_free(ctx, &published);
    attn_tensor_free(ctx, &scores);
    return status;
}

#endif
