/* What an attribution graph (graph.h) claims of its nodes, beside what happens in the model. Uses attn.h's public
 * API only.
 *
 *     lens_graph_check check = ATTN_ZERO;
 *     check.which = pruned.nodes;                    NULL: all features
 *     if (lens_feature_graph_check(&ctx, &check, &graph) == ATTN_OK)
 *         printf("rank correlation %.2f\n", check.correlation);
 *     lens_graph_check_free(&check);
 *
 * A node is switched off: it no longer writes its row w to the stream. The effect is the change of the likeliest
 * token's logit, minus the mean of all logits.
 *
 *     claimed   all paths of the graph together: each target changes by the weights into it, and a feature's own
 *               row by the share of its activation that this is. Features stay as active as they are, patterns and
 *               LayerNorm scales stay frozen.
 *     measured  the model itself runs again from the layer behind, with w taken away. Attention, LayerNorms and
 *               MLPs compute anew; what the transcoder misses stays in the MLP's output.
 *
 * Each feature has a run of its own, from its layer and position on, many in a batch (sweep.h). A group of features is
 * switched off together, in one run. Their claimed effect counts each path through two of them once. */
#ifndef LENS_GRAPH_CHECK_H
#define LENS_GRAPH_CHECK_H

#include "curve.h"
#include "graph.h"

/* Features that are switched off together. */
typedef struct lens_graph_group {
    const size_t *nodes; /* [n], of the caller */
    size_t n;
    double claimed, measured; /* results */
} lens_graph_group;

typedef struct lens_graph_check {
    const unsigned char
        *which; /* [nodes], of the caller: 1 where a feature is measured; NULL: all */
    attn_progress_fn progress; /* may be NULL */
    void *user;                /* progress gets it */
    lens_graph_group *groups;  /* [n_groups], of the caller */
    size_t n_groups;
    double *claimed;  /* [nodes]; of the logit itself and of other logits 0 */
    double *measured; /* [nodes]; NaN where nothing was measured */
    size_t n_measured;
    double correlation; /* of claimed and measured, by rank (Spearman); NaN of fewer than two */
} lens_graph_check;

/* Frees what lens_feature_graph_check made. */
LENS_FN void lens_graph_check_free(lens_graph_check *check)
{
    attn_free(check->claimed);
    attn_free(check->measured);
    memset(check, 0, sizeof *check);
}

/* Is a node measured? */
LENS_FN int lens_graph_is_measured(const lens_graph_check *check, const lens_feature_graph *g,
                                   size_t i)
{
    return g->nodes[i].kind == LENS_GRAPH_FEATURE && (!check->which || check->which[i]);
}

/* ---- claimed ---- */

/* Is a node in the group? NULL has none. */
LENS_FN int lens_graph_is_in(const lens_graph_group *group, size_t node)
{
    for (size_t i = 0; group && i < group->n; i++)
        if (group->nodes[i] == node)
            return 1;
    return 0;
}

/* Each edge leads to a later node, so one pass from the last node to the first adds up all paths. Those through
 * the group's features end there, because these are off. */
LENS_FN void lens_graph_claims(const lens_feature_graph *g, const lens_graph_group *off,
                               double *claimed)
{
    const size_t logit = g->n_nodes - g->n_logits;
    memset(claimed, 0, g->n_nodes * sizeof *claimed);
    claimed[logit] = -1;
    for (size_t t = logit + 1; t-- > 0;) {
        const int is_feature = g->nodes[t].kind == LENS_GRAPH_FEATURE;
        const double gain = is_feature ? claimed[t] / (double)g->nodes[t].activation : claimed[t];
        if (lens_graph_is_in(off, t))
            continue;
        for (size_t i = g->rows[t]; i < g->rows[t + 1]; i++)
            claimed[g->edges[i].from] += lens_fg_product(gain, (double)g->edges[i].weight);
    }
    claimed[logit] = 0;
}

/* ---- measured ---- */

typedef struct lens_graph_runs {
    const lens_feature_graph *g;
    lens_graph_check *check;
    lens_sweep sweep;
    attn_tensor streams;       /* [rows, C]: of a batch, what the layers behind read */
    lens_sweep_entry *entries; /* of one layer */
    size_t n_done;
} lens_graph_runs;

/* A lens_metric_fn: the logit of *user minus the mean of all logits. */
LENS_FN int lens_graph_logit(float *value, attn_tensor d_logits, attn_tensor logits, void *user)
{
    const size_t token = *(const size_t *)user, n = logits.shape[1];
    double mean = 0;
    (void)d_logits;
    for (size_t i = 0; i < n; i++)
        mean += (double)attn_get2(logits, 0, i) / (double)n;
    *value = (float)((double)attn_get2(logits, 0, token) - mean);
    return 0;
}

/* Runs the model without each of some features of one layer, as a batch. Each run gets its own stream behind the layer,
 * which lacks the row of its feature. */
LENS_FN attn_status lens_graph_some(attn_ctx *ctx, lens_graph_runs *r, size_t layer,
                                    const lens_sweep_entry *entries, size_t n)
{
    attn_feed_item items[LENS_AT_ONCE];
    float values[LENS_AT_ONCE] = {0}, *to = (float *)r->streams.data;
    const size_t width = r->streams.shape[1];
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < n && status == ATTN_OK; i++) {
        const attn_tensor row = lens_fg_row(r->g, entries[i].index);
        status = lens_sweep_item(ctx, &items[i], &r->sweep, i, layer + 1, entries[i].first);
        if (status != ATTN_OK)
            break;
        memcpy(to, items[i].layers.resid, items[i].n_tokens * width * sizeof *to);
        for (size_t c = 0; c < width; c++)
            to[c] -= ((const float *)row.data)[c];
        items[i].layers.resid = to;
        to += items[i].n_tokens * width;
    }
    if (status == ATTN_OK)
        status = lens_sweep_run(ctx, values, &r->sweep, items, n);
    for (size_t i = 0; i < n && status == ATTN_OK; i++)
        r->check->measured[entries[i].index] =
            (double)values[i] - (double)r->sweep.values.corrupted;
    r->n_done += n;
    return status ? status
                  : lens_progress(r->check->progress, r->check->user,
                                  (double)r->n_done / (double)r->check->n_measured);
}

/* All features of one layer, late positions first. */
LENS_FN attn_status lens_graph_layer_runs(attn_ctx *ctx, lens_graph_runs *r, size_t layer)
{
    const lens_fg_layer *const from = &r->g->layers[layer];
    const size_t end = from->first + from->start[r->g->n_tokens];
    size_t n, left = 0, done = 0;
    for (size_t i = from->first; i < end; i++)
        if (lens_graph_is_measured(r->check, r->g, i)) {
            r->entries[left].index = i;
            r->entries[left++].first = r->g->nodes[i].position;
        }
    qsort(r->entries, left, sizeof *r->entries, lens_compare_entries);
    attn_status status = lens_sweep_copy(ctx, &r->sweep, left);
    for (; left > 0 && status == ATTN_OK; left -= n, done += n) {
        n = lens_sweep_batch(&r->sweep, r->entries + done, left);
        status = lens_graph_some(ctx, r, layer, r->entries + done, n);
    }
    return status;
}

/* The group's effects. claimed [nodes] has room. */
LENS_FN attn_status lens_graph_measure_group(attn_ctx *ctx, lens_graph_runs *r,
                                             lens_graph_group *group, double *claimed)
{
    attn_session *session = NULL;
    attn_tensor changes = ATTN_ZERO;
    float value = 0;
    attn_status status = lens_sweep_session(ctx, &r->sweep, &session);
    lens_graph_claims(r->g, group, claimed);
    group->claimed = 0;
    if (status == ATTN_OK)
        status = attn_zeros(ctx, &changes, ATTN_F32, attn_shape2(group->n, r->streams.shape[1]));
    for (size_t i = 0; i < group->n && status == ATTN_OK; i++) {
        const lens_graph_node *const node = &r->g->nodes[group->nodes[i]];
        const lens_full_name name = lens_name_in(node->layer, "hook_mlp_out");
        attn_edit edit = ATTN_ZERO;
        edit.name = name.text;
        edit.kind = ATTN_EDIT_ADD;
        edit.first = node->position;
        edit.count = 1;
        edit.value = attn_slice(changes, 0, i, 1);
        group->claimed += claimed[group->nodes[i]];
        status = attn_scale(ctx, &edit.value, lens_fg_row(r->g, group->nodes[i]), -1);
        if (status == ATTN_OK)
            status = attn_hook_edit(ctx, NULL, session, &edit);
    }
    if (status == ATTN_OK)
        status = attn_feed(ctx, session, r->g->tokens, r->g->n_tokens);
    if (status == ATTN_OK)
        status = lens_sweep_value(ctx, &value, &r->sweep, session, r->g->tokens, r->sweep.logits);
    group->measured = (double)value - (double)r->sweep.values.corrupted;
    attn_session_free(session);
    attn_tensor_free(ctx, &changes);
    return status;
}

/* Measures all features and groups that are asked for. claimed [nodes] has room. */
LENS_FN attn_status lens_graph_measure(attn_ctx *ctx, lens_graph_check *check,
                                       const lens_feature_graph *g, double *claimed)
{
    static const char *const names[] = {"*.hook_resid_post"};
    const attn_model *const model = g->b->model;
    size_t token = g->nodes[g->n_nodes - g->n_logits].feature;
    lens_pair pair = ATTN_ZERO;
    lens_graph_runs r = ATTN_ZERO;
    pair.clean = pair.corrupted = g->tokens;
    pair.n_tokens = g->n_tokens;
    pair.metric.kind = LENS_METRIC_FUNCTION_AT;
    pair.metric.fn = lens_graph_logit;
    pair.metric.user = &token;
    r.g = g;
    r.check = check;
    r.sweep = lens_sweep_of(model, NULL, 0);
    r.sweep.pair = &pair;
    r.entries = (lens_sweep_entry *)attn_alloc(ctx, g->n_nodes, sizeof *r.entries, "a sweep");
    int failed = !r.entries || lens_sweep_begin(ctx, &r.sweep, names, 0, 1) ||
                 attn_zeros(ctx, &r.streams, ATTN_F32,
                            attn_shape2(r.sweep.n_rows, attn_model_config(model)->d_model));
    for (size_t layer = 0; layer < attn_model_config(model)->n_layer && !failed; layer++)
        failed = lens_graph_layer_runs(ctx, &r, layer) != ATTN_OK;
    for (size_t i = 0; i < check->n_groups && !failed; i++)
        failed = lens_is_stopped(ctx) ||
                 lens_graph_measure_group(ctx, &r, &check->groups[i], claimed) != ATTN_OK;
    attn_free(r.entries);
    attn_tensor_free(ctx, &r.streams);
    lens_sweep_end(ctx, &r.sweep);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* ---- both ---- */

/* The rank correlation of claimed and measured effects. */
LENS_FN attn_status lens_graph_agreement(attn_ctx *ctx, lens_graph_check *check,
                                         const lens_feature_graph *g)
{
    lens_edge *const list =
        (lens_edge *)attn_alloc(ctx, check->n_measured, sizeof *list, "a list of nodes");
    double *const ranks = (double *)attn_alloc(ctx, check->n_measured, 2 * sizeof *ranks, "ranks");
    const int failed = !list || !ranks;
    size_t i, n;
    for (size_t k = 0; k < 2 && !failed; k++) {
        for (i = n = 0; i < g->n_nodes; i++)
            if (lens_graph_is_measured(check, g, i)) {
                list[n].sender = n;
                list[n].receiver = 0;
                list[n++].score = (float)(k ? check->measured : check->claimed)[i];
            }
        lens_rank_edges(ranks + k * n, 1, list, n);
    }
    if (!failed)
        check->correlation = lens_correlate_ranks(ranks, ranks + check->n_measured,
                                                  check->n_measured, check->n_measured);
    attn_free(list);
    attn_free(ranks);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* Are all nodes of the groups features of the graph? */
LENS_FN attn_status lens_graph_need_groups(attn_ctx *ctx, const lens_graph_check *check,
                                           const lens_feature_graph *g)
{
    for (size_t i = 0; i < check->n_groups; i++)
        for (size_t k = 0; k < check->groups[i].n; k++)
            if (check->groups[i].nodes[k] >= g->n_nodes ||
                g->nodes[check->groups[i].nodes[k]].kind != LENS_GRAPH_FEATURE)
                return attn_fail(ctx, ATTN_E_ARGUMENT,
                                 "group %zu: node %zu is not a feature of the graph", i,
                                 check->groups[i].nodes[k]);
    return ATTN_OK;
}

/* Claimed and measured effects of a graph that lens_feature_graph_fill has filled. *check: only its first five
 * fields are set. With lens_feature_graph's keep the claims are those of the edges that stayed. */
LENS_FN attn_status lens_feature_graph_check(attn_ctx *ctx, lens_graph_check *check,
                                             const lens_feature_graph *g)
{
    check->n_measured = 0;
    check->claimed = (double *)attn_alloc(ctx, g->n_nodes, sizeof *check->claimed, "effects");
    check->measured = (double *)attn_alloc(ctx, g->n_nodes, sizeof *check->measured, "effects");
    int failed = !check->claimed || !check->measured || lens_graph_need_groups(ctx, check, g);
    for (size_t i = 0; i < g->n_nodes && !failed; i++) {
        check->measured[i] = (double)NAN;
        check->n_measured += (size_t)lens_graph_is_measured(check, g, i);
    }
    failed = failed || lens_graph_measure(ctx, check, g, check->claimed);
    if (!failed)
        lens_graph_claims(g, NULL, check->claimed);
    failed = failed || lens_graph_agreement(ctx, check, g);
    if (failed)
        lens_graph_check_free(check);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

#endif
