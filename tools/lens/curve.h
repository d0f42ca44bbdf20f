/* How well scores of edges find the circuit: the metric with the best n edges, for growing n. Uses attn.h's
 * public API only.
 *
 * The benchmark MIB (Mueller et al. 2025) takes the best 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50 and 100 percent
 * of a model's edges as the circuit. In a run of the circuit (lens_run_edges in edges.h), an edge of the
 * circuit passes on what its sender writes in this run. Any other edge passes on what its sender writes in
 * the corrupted text. With the means over the pairs of texts,
 *
 *     faithfulness f = (metric of the circuit - metric of the corrupted text)
 *                    / (metric of the clean text - metric of the corrupted text)
 *     CPR = integral of f over the share of edges        larger is better
 *     CMD = integral of |1 - f| over the share of edges  smaller is better
 *
 * by the trapezoidal rule over the ten shares. MIB computes CPR for edges in the order in which they help
 * the metric, and CMD for edges in the order of the magnitude of their scores. An edge helps if the
 * metric moves towards that of the corrupted text when the edge is corrupted: if its score is negative,
 * where the clean text has the higher metric. Of equal scores the earlier edge comes first. */
#ifndef LENS_CURVE_H
#define LENS_CURVE_H

#include "edges.h"
#include "sweep.h"

enum { LENS_CURVE_POINTS = 10 };

static const double lens_curve_shares[LENS_CURVE_POINTS] = {0.001, 0.002, 0.005, 0.01, 0.02,
                                                            0.05,  0.1,   0.2,   0.5,  1};

/* The first edges of a circuit. */
typedef enum lens_curve_order {
    LENS_CURVE_HELPFUL = 0, /* those that help most */
    LENS_CURVE_LARGEST      /* those of the largest magnitudes */
} lens_curve_order;

typedef struct lens_curve {
    size_t n_edges[LENS_CURVE_POINTS];
    double faithfulness[LENS_CURVE_POINTS];
    double cpr, cmd; /* the integrals */
    float *each; /* the caller's: NULL, or room for [n_pairs, 2 + LENS_CURVE_POINTS], the metrics of
                        both texts and of the circuits for every pair (spread.h) */
} lens_curve;

/* Computes the integrals of a curve from its faithfulness. */
LENS_FN void lens_integrate_curve(lens_curve *curve)
{
    const double *const f = curve->faithfulness;
    curve->cpr = curve->cmd = 0;
    for (size_t i = 1; i < LENS_CURVE_POINTS; i++) {
        const double half = (lens_curve_shares[i] - lens_curve_shares[i - 1]) / 2;
        curve->cpr += half * (f[i - 1] + f[i]);
        curve->cmd += half * (fabs(1 - f[i - 1]) + fabs(1 - f[i]));
    }
}

/* For qsort: the lower score first; of equal ones, the earlier edge. */
LENS_FN int lens_compare_helpful(const void *a, const void *b)
{
    const lens_edge *x = (const lens_edge *)a, *y = (const lens_edge *)b;
    if (x->score < y->score || x->score > y->score)
        return x->score < y->score ? -1 : 1;
    if (x->sender != y->sender)
        return x->sender < y->sender ? -1 : 1;
    return x->receiver < y->receiver ? -1 : x->receiver > y->receiver;
}

/* ranks [S * R]: the rank of each edge's score, the mean rank of equal ones; 0 where there is no edge.
 * edges [n_edges] get another order. */
LENS_FN void lens_rank_edges(double *ranks, size_t n_receivers, lens_edge *edges, size_t n_edges)
{
    size_t end;
    qsort(edges, n_edges, sizeof *edges, lens_compare_helpful);
    for (size_t first = 0; first < n_edges; first = end) {
        for (end = first + 1; end < n_edges && edges[end].score == edges[first].score; end++)
            ;
        for (size_t i = first; i < end; i++)
            ranks[edges[i].sender * n_receivers + edges[i].receiver] =
                (double)(first + 1 + end) / 2;
    }
}

/* The rank correlation (Spearman) of ranks x and y [n], of which n_ranked are not 0; NaN if all are equal. */
LENS_FN double lens_correlate_ranks(const double *x, const double *y, size_t n, size_t n_ranked)
{
    const double mean = (double)(n_ranked + 1) / 2;
    double xy = 0, xx = 0, yy = 0;
    for (size_t i = 0; i < n; i++) {
        const double a = x[i] > 0 ? x[i] - mean : 0, b = y[i] > 0 ? y[i] - mean : 0;
        xy += a * b;
        xx += a * a;
        yy += b * b;
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : (double)NAN;
}

/* *correlation: the rank correlation of two scores [S, R] of all edges; NaN if all edges have the
 * same score. */
LENS_FN attn_status lens_rank_correlation(attn_ctx *ctx, double *correlation,
                                          const attn_model *model, attn_tensor x, attn_tensor y)
{
    const lens_graph g = lens_graph_of(model);
    const size_t n = g.n_senders * g.n_receivers;
    lens_edge *const edges =
        (lens_edge *)attn_alloc(ctx, g.n_edges, sizeof *edges, "a list of edges");
    double *const ranks = (double *)attn_alloc(ctx, n, 2 * sizeof *ranks, "ranks of edges");
    attn_status status = edges && ranks ? ATTN_OK : ATTN_E_MEMORY;
    if (status == ATTN_OK)
        status = lens_sort_edges(ctx, edges, model, x);
    if (status == ATTN_OK)
        lens_rank_edges(ranks, g.n_receivers, edges, g.n_edges);
    if (status == ATTN_OK)
        status = lens_sort_edges(ctx, edges, model, y);
    if (status == ATTN_OK)
        lens_rank_edges(ranks + n, g.n_receivers, edges, g.n_edges);
    if (status == ATTN_OK)
        *correlation = lens_correlate_ranks(ranks, ranks + n, n, g.n_edges);
    attn_free(edges);
    attn_free(ranks);
    return status;
}

/* *mean: the mean metric of a circuit over the pairs. each (may be NULL): the first of its places for a curve. */
LENS_FN attn_status lens_circuit_mean(attn_ctx *ctx, double *mean, float *each, lens_backward *b,
                                      const lens_pair *pairs, size_t n_pairs, attn_tensor kept)
{
    attn_status status = ATTN_OK;
    float value = 0;
    *mean = 0;
    for (size_t i = 0; i < n_pairs && status == ATTN_OK; i++) {
        status = lens_run_edges(ctx, &value, b, &pairs[i], kept);
        *mean += (double)value / (double)n_pairs;
        if (each)
            each[i * (2 + LENS_CURVE_POINTS)] = value;
    }
    return status;
}

/* Sorts the edges, and runs the circuits. edges [n_edges] have the largest scores first. */
LENS_FN attn_status lens_run_curve(attn_ctx *ctx, lens_curve *curve, lens_backward *b,
                                   const lens_pair *pairs, size_t n_pairs, lens_edge *edges,
                                   attn_tensor kept, lens_curve_order order)
{
    const size_t n_edges = lens_graph_of(b->model).n_edges;
    float *const each = curve->each;
    double clean, corrupted, value = 0;
    attn_status status =
        lens_circuit_mean(ctx, &corrupted, each ? each + 1 : NULL, b, pairs, n_pairs, kept);
    lens_keep_edges(kept, edges, n_edges);
    if (status == ATTN_OK)
        status = lens_circuit_mean(ctx, &clean, each, b, pairs, n_pairs, kept);
    if (status != ATTN_OK)
        return status;
    if (!(clean < corrupted || clean > corrupted))
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "lens_edge_curve: the metric is %g after both texts, which leaves no "
                         "difference to take a share of",
                         clean);
    for (size_t i = 0; i < n_edges && clean < corrupted; i++)
        edges[i].score = -edges[i].score;
    if (order == LENS_CURVE_HELPFUL)
        qsort(edges, n_edges, sizeof *edges, lens_compare_helpful);
    for (size_t i = 0; i < LENS_CURVE_POINTS && status == ATTN_OK; i++) {
        curve->n_edges[i] = (size_t)(lens_curve_shares[i] * (double)n_edges);
        lens_keep_edges(kept, edges, curve->n_edges[i]);
        status =
            lens_circuit_mean(ctx, &value, each ? each + 2 + i : NULL, b, pairs, n_pairs, kept);
        curve->faithfulness[i] = (value - corrupted) / (clean - corrupted);
        if (status == ATTN_OK)
            status = lens_progress(b->progress, b->user,
                                   (double)(i + 3) / (double)(LENS_CURVE_POINTS + 2));
    }
    return status;
}

/* *curve, zeroed but for `each`: the faithfulness of the circuits that scores [S, R] find, and its integrals.
 * ATTN_E_ARGUMENT if the metric does not tell the texts apart. Each of twelve circuits takes two passes for each pair. */
LENS_FN attn_status lens_edge_curve(attn_ctx *ctx, lens_curve *curve, lens_backward *b,
                                    const lens_pair *pairs, size_t n_pairs, attn_tensor scores,
                                    lens_curve_order order)
{
    attn_tensor kept = ATTN_ZERO;
    lens_curve found;
    lens_edge *edges;
    if (!curve || !b || !b->model)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "lens_edge_curve: no %s given",
                         curve ? "lens_backward that lens_backward_new made"
                               : "place for the curve");
    if ((unsigned)order > LENS_CURVE_LARGEST)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "lens_edge_curve: order is %d; expected LENS_CURVE_HELPFUL or _LARGEST",
                         (int)order);
    if (lens_need_pairs(ctx, "lens_edge_curve", b->model, pairs, n_pairs) != ATTN_OK)
        return lens_failure(ctx);
    found.each = curve->each;
    lens_graph g = lens_graph_of(b->model);
    edges = (lens_edge *)attn_alloc(ctx, g.n_edges, sizeof *edges, "a list of edges");
    attn_status status = edges ? lens_sort_edges(ctx, edges, b->model, scores) : ATTN_E_MEMORY;
    if (status == ATTN_OK)
        status = attn_zeros(ctx, &kept, ATTN_F32, attn_shape2(g.n_senders, g.n_receivers));
    if (status == ATTN_OK)
        status = lens_run_curve(ctx, &found, b, pairs, n_pairs, edges, kept, order);
    if (status == ATTN_OK) {
        lens_integrate_curve(&found);
        *curve = found;
    }
    attn_free(edges);
    attn_tensor_free(ctx, &kept);
    return status;
}

#endif
