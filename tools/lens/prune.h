/* The smallest circuit that keeps the metric: edges are removed one after the other, the least first, until the
 * metric has moved by a given amount (Conmy et al. 2023, ACDC, by a metric and in the order of effects). Uses
 * attn.h's public API only.
 *
 * The effect of an edge in the whole model (exact.h) says little where another part takes over: backup heads
 * hide each other. Here an edge is removed from the circuit that is left, and its effect is measured there, in a
 * run of that circuit (lens_run_edges in edges.h: a removed edge carries what its sender writes in the corrupted
 * text).
 *
 * The order is greedy. Every edge has the effect that was last measured; at first that in the whole model. The edge
 * of the least magnitude is measured in the present circuit. If it is still the least, it is removed; else another
 * one is measured. Of equal ones the edge nearest to the logits comes first: that of the later receiver, then of
 * the later sender. The order ends before the removal after which the metric would differ from the clean text's by
 * more than the amount. It is the same on every machine.
 *
 *     attn_tensor kept = ATTN_ZERO;
 *     lens_pruned found = ATTN_ZERO;
 *     d.pairs = &pair, d.n_pairs = 1, d.amount = 0.5;
 *     if (lens_prune(&ctx, &found, &backward, &d) == ATTN_OK)
 *         printf("%d edges keep the metric at %.3f\n", (int)found.n_kept, found.value);
 *     attn_free(found.edges); */
#ifndef LENS_PRUNE_H
#define LENS_PRUNE_H

#include "exact.h"

typedef struct lens_prune_desc {
    const lens_pair *pairs; /* [n_pairs]: metrics and effects are means over them */
    size_t n_pairs;
    double amount; /* by how much the metric may move, 0 or more */
    attn_tensor
        scores; /* [S, R]: effects in the whole model, of lens_exact_effects; zeroed: computed here */
    attn_progress_fn progress; /* gets the share of the edges that are removed, and 1 at the end */
    void *user;
} lens_prune_desc;

typedef struct lens_pruned {
    /* [lens_graph.n_edges], owned by the caller (attn_free): first those of the circuit, the largest last
     * measured effect first; then those that were removed, the last one first, with their effect then. */
    lens_edge *edges;
    size_t n_kept, n_runs; /* edges of the circuit; runs of circuits, over all pairs */
    double clean, value;   /* the metric of the clean text; of the circuit */
} lens_pruned;

typedef struct lens_pruning {
    const lens_prune_desc *d;
    lens_backward *b;
    lens_graph graph;
    lens_edge_run *runs; /* [n_pairs], with one `kept` for all */
    attn_tensor kept;
    lens_edge *edges; /* [n_edges]: the n that are left, in any order; then those removed */
    size_t n;
    double clean, value; /* of the present circuit */
    size_t n_runs;
} lens_pruning;

/* Is x measured or removed before y? */
LENS_FN int lens_prune_before(const lens_edge *x, const lens_edge *y)
{
    const float left = fabsf(x->score), right = fabsf(y->score);
    if (left < right || left > right)
        return left < right;
    return x->receiver != y->receiver ? x->receiver > y->receiver : x->sender > y->sender;
}

/* The place of the edge that is measured or removed next. */
LENS_FN size_t lens_prune_next(const lens_edge *edges, size_t n)
{
    size_t next = 0;
    for (size_t i = 1; i < n; i++)
        next = lens_prune_before(&edges[i], &edges[next]) ? i : next;
    return next;
}

/* *mean: the mean metric of the present circuit. */
LENS_FN attn_status lens_prune_value(attn_ctx *ctx, double *mean, lens_pruning *p)
{
    attn_status status = ATTN_OK;
    float value = 0;
    *mean = 0;
    for (size_t i = 0; i < p->d->n_pairs && status == ATTN_OK; i++) {
        status = lens_feed_edges(ctx, &value, p->b, &p->d->pairs[i], &p->runs[i]);
        *mean += (double)value / (double)p->d->n_pairs;
    }
    p->n_runs += p->d->n_pairs;
    return status;
}

/* Removes edges until the next one would move the metric too far. */
LENS_FN attn_status lens_prune_edges(attn_ctx *ctx, lens_pruning *p)
{
    float *const kept = (float *)p->kept.data;
    attn_status status = ATTN_OK;
    while (p->n > 0 && status == ATTN_OK) {
        const size_t next = lens_prune_next(p->edges, p->n);
        lens_edge least = p->edges[next];
        const size_t at = least.sender * p->graph.n_receivers + least.receiver;
        double value = 0;
        kept[at] = 0;
        status = lens_prune_value(ctx, &value, p);
        if (status != ATTN_OK)
            break;
        p->edges[next].score = least.score = (float)(value - p->value);
        if (lens_prune_next(p->edges, p->n) != next) {
            kept[at] = 1; /* another one may be less */
            continue;
        }
        if (!(fabs(value - p->clean) <= p->d->amount)) {
            kept[at] = 1;
            break;
        }
        p->value = value;
        p->edges[next] = p->edges[--p->n];
        p->edges[p->n] = least;
        status =
            lens_progress(p->d->progress, p->d->user, 1 - (double)p->n / (double)p->graph.n_edges);
    }
    return status || p->n == 0 ? status : lens_progress(p->d->progress, p->d->user, 1);
}

/* Lists all edges, and records the corrupted texts. */
LENS_FN attn_status lens_prune_begin(attn_ctx *ctx, lens_pruning *p, attn_tensor scores)
{
    attn_status status =
        attn_zeros(ctx, &p->kept, ATTN_F32, attn_shape2(p->graph.n_senders, p->graph.n_receivers));
    if (status == ATTN_OK)
        status = lens_sort_edges(ctx, p->edges, p->b->model, scores);
    for (size_t i = 0; i < p->d->n_pairs && status == ATTN_OK; i++)
        status = lens_edge_run_begin(ctx, &p->runs[i], p->b, &p->d->pairs[i], p->kept);
    if (status != ATTN_OK)
        return status;
    p->n = p->graph.n_edges;
    lens_keep_edges(p->kept, p->edges, p->n);
    status = lens_prune_value(ctx, &p->clean, p);
    p->value = p->clean;
    return status;
}

LENS_FN attn_status lens_prune_all(attn_ctx *ctx, lens_pruning *p)
{
    lens_exact_desc exact = ATTN_ZERO;
    attn_tensor scores = p->d->scores, found = ATTN_ZERO;
    attn_status status = ATTN_OK;
    exact.pairs = p->d->pairs;
    exact.n_pairs = p->d->n_pairs;
    exact.edits = p->b->edits;
    exact.n_edits = p->b->n_edits;
    if (scores.ndim == 0 && !scores.error) {
        status = lens_exact_effects(ctx, &found, NULL, p->b->model, &exact);
        scores = found;
    }
    if (status == ATTN_OK)
        status = lens_prune_begin(ctx, p, scores);
    if (status == ATTN_OK)
        status = lens_prune_edges(ctx, p);
    for (size_t i = 0; i < p->d->n_pairs; i++)
        lens_edge_run_end(ctx, &p->runs[i]);
    attn_tensor_free(ctx, &p->kept);
    attn_tensor_free(ctx, &found);
    return status;
}

/* *found: the circuit that is left, and the order in which the other edges were removed. A pair's run of a
 * circuit takes a pass with hooks; each removal takes one run for each pair, or a few. ATTN_STOPPED if
 * desc->progress asks to stop. */
LENS_FN attn_status lens_prune(attn_ctx *ctx, lens_pruned *found, lens_backward *b,
                               const lens_prune_desc *desc)
{
    static const char op[] = "lens_prune";
    lens_pruning p = ATTN_ZERO;
    if (!found || !b || !b->model || !desc)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no %s given", op,
                         !found  ? "place for the result"
                         : !desc ? "description"
                                 : "lens_backward with a model");
    if (!(desc->amount >= 0))
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: an amount of %g; expected 0 or more", op,
                         desc->amount);
    if (lens_need_pairs(ctx, op, b->model, desc->pairs, desc->n_pairs) ||
        lens_need_sums(ctx, op, b))
        return lens_failure(ctx);
    p.d = desc;
    p.b = b;
    p.graph = lens_graph_of(b->model);
    p.edges = (lens_edge *)attn_alloc(ctx, p.graph.n_edges, sizeof *p.edges, "a list of edges");
    p.runs = (lens_edge_run *)attn_alloc(ctx, desc->n_pairs, sizeof *p.runs, "runs of pairs");
    attn_status status = p.edges && p.runs ? ATTN_OK : ATTN_E_MEMORY;
    if (status == ATTN_OK) {
        memset(p.runs, 0, desc->n_pairs * sizeof *p.runs);
        status = lens_prune_all(ctx, &p);
    }
    attn_free(p.runs);
    if (status != ATTN_OK) {
        attn_free(p.edges);
        return status;
    }
    qsort(p.edges, p.n, sizeof *p.edges, lens_compare_edges);
    found->edges = p.edges;
    found->n_kept = p.n;
    found->n_runs = p.n_runs;
    found->clean = p.clean;
    found->value = p.value;
    return ATTN_OK;
}

#endif
