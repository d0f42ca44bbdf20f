/* What parts of a model do together: the interaction of all pairs of nodes, and Shapley values, not estimated but run.
 * Uses attn.h's public API only.
 *
 * Nodes are the senders of edges.h: the embeddings, heads and MLPs. With a set S of them ablated,
 *
 *     v(S) = metric of the clean text in which the nodes of S write their ablated value - metric of the clean text
 *     interaction of a and b = v(a, b) - v(a) - v(b)
 *
 * It is 0 if a and b act apart. If b takes over once a is gone (backup heads, self-repair), single effects are small
 * and the interaction is large. The Shapley value (Shapley 1953) of one of n nodes is the mean of v(S and a) - v(S)
 * over all orders in which the nodes may be ablated, S being those before a. Shapley values add up to v of all n. The
 * interaction index of two nodes (Grabisch & Roubens 1999) is the mean of v(S and a and b) - v(S and a) - v(S and b) +
 * v(S) over all orders of the other nodes and the pair as one.
 *
 * Each v(S) has the same bits as a run of the whole model in which the nodes of S are ablated. But layers that are the
 * same for several sets run once: two sets with the same nodes in the first layers share these layers, and part at the
 * first layer whose nodes differ. Results have the same bits for any number of threads.
 *
 *     lens_joint_desc d = ATTN_ZERO;
 *     attn_tensor both = ATTN_ZERO;
 *     d.pairs = &pair, d.n_pairs = 1;                    as for lens_patch (patch.h)
 *     if (lens_interactions(&ctx, &both, NULL, model, &d) == ATTN_OK)
 *         printf("input and a0.h0: %+.3f\n", attn_get3(both, 1, 0, 1));
 *
 * With edits all runs use the edited model, by the rules of edges.h; an edit of attn.hook_result changes what an
 * ablated head writes too. */
#ifndef LENS_INTERACTION_H
#define LENS_INTERACTION_H

#include "exact.h"

enum { LENS_MOST_PLAYERS = 20 }; /* nodes with Shapley values: 2^20 runs */

/* What an ablated node writes. Heads are ablated at z, so that b_O stays. */
typedef enum lens_ablation {
    LENS_ABLATION_CORRUPTED = 0, /* the node writes its value of the corrupted text */
    LENS_ABLATION_ZERO,
    LENS_ABLATION_MEAN /* the mean of its values of the clean text, over the positions */
} lens_ablation;

typedef struct lens_joint_desc {
    const lens_pair *pairs; /* [n_pairs]: the result is the mean over them */
    size_t n_pairs;
    lens_ablation ablation;
    const size_t *nodes; /* [n_nodes]: numbers of senders, ascending; n_nodes 0: all */
    size_t n_nodes;
    const attn_edit *edits;
    size_t n_edits;
    attn_progress_fn progress; /* may be NULL: gets the share of the work that is done */
    void *user;
    float *each; /* as in lens_patch_desc */
    float
        *subsets; /* lens_shapley: NULL, or room for v(S) of all 2^n_nodes sets; bit i is node i */
} lens_joint_desc;

typedef struct lens_node_set {
    size_t n;
    size_t at[LENS_MOST_PLAYERS]; /* [n]: places in the list of nodes, ascending */
    size_t from;                  /* number of the set in the batch before that this one extends */
} lens_node_set;

/* A layer that has nodes, and the batch of sets that runs from it. */
typedef struct lens_joint_layer {
    size_t layer, first, end; /* its nodes are those at places [first, end) */
    lens_node_set sets[LENS_AT_ONCE];
    size_t n;
    attn_tensor streams; /* [n_rows, C]: of the sets, what enters the next layer that has nodes */
} lens_joint_layer;

typedef struct lens_joint {
    const lens_joint_desc *d;
    lens_exact_run run;
    int of_subsets; /* 1: lens_shapley, which runs all sets; 0: sets of at most two nodes */
    size_t n, most; /* number of nodes; most nodes of a set */
    lens_joint_layer *layers;
    size_t n_layers;
    size_t first;     /* the first position that an ablation changes */
    size_t n_at_once; /* sets of a batch */
    float *values;    /* v(S) of one pair of texts: [n, n], one node on the diagonal; or [2^n] */
    double *sums;     /* of lens_fill_shapley */
    size_t pair;
    double done, work; /* sets of a pair: those that have run, and all */
} lens_joint;

LENS_FN size_t lens_joint_node(const lens_joint *j, size_t at)
{
    return j->d->n_nodes ? j->d->nodes[at] : at;
}

/* ---- sets ---- */

/* Steps through the sets that are the first n_before nodes of *set and some nodes of the layer, at most `most` in all.
 * Returns 0 after the last one. */
LENS_FN int lens_next_set(lens_node_set *set, size_t n_before, const lens_joint_layer *layer,
                          size_t most)
{
    const size_t next = set->n > n_before ? set->at[set->n - 1] + 1 : layer->first;
    if (set->n < most && next < layer->end) {
        set->at[set->n++] = next;
        return 1;
    }
    for (; set->n > n_before; set->n--)
        if (++set->at[set->n - 1] < layer->end)
            return 1;
    return 0;
}

/* Stores v of a set. */
LENS_FN void lens_store_set(lens_joint *j, const lens_node_set *set, float value)
{
    size_t index = 0;
    j->done++;
    for (size_t i = 0; i < set->n && j->of_subsets; i++)
        index |= (size_t)1 << set->at[i];
    if (j->of_subsets) {
        j->values[index] = value;
    } else if (set->n > 0) {
        const size_t a = set->at[0], b = set->at[set->n - 1];
        j->values[a * j->n + b] = j->values[b * j->n + a] = value;
    }
}

/* ---- the runs ---- */

/* Hooks the ablation of a node to a session. */
LENS_FN attn_status lens_ablate(attn_ctx *ctx, const lens_joint *j, attn_session *session,
                                size_t node)
{
    static const attn_edit_kind kinds[] = {ATTN_EDIT_SET, ATTN_EDIT_ZERO, ATTN_EDIT_MEAN};
    const lens_graph *const g = &j->run.graph;
    const lens_sweep *const s = &j->run.sweep;
    const int is_head = node > 0 && (node - 1) % (g->n_head + 1) < g->n_head;
    const lens_exact_place place = lens_place_of_sender(g, node);
    const lens_full_name name = lens_name_in(place.layer, is_head ? "attn.hook_z" : place.name);
    attn_edit edit = ATTN_ZERO;
    attn_tensor x;
    edit.name = name.text;
    edit.kind = kinds[j->d->ablation];
    edit.first = j->first;
    edit.count = s->n - j->first;
    if (is_head) {
        edit.first_head = (node - 1) % (g->n_head + 1);
        edit.n_heads = 1;
    }
    if (edit.kind != ATTN_EDIT_ZERO) { /* the sweep's clean text is the corrupted one */
        if (attn_record_get(ctx, &x, edit.kind == ATTN_EDIT_SET ? s->clean : s->corrupted,
                            name.text) != ATTN_OK)
            return lens_failure(ctx);
        x = is_head ? attn_select(x, 1, edit.first_head) : x;
        edit.value = edit.kind == ATTN_EDIT_SET ? attn_slice(x, 0, edit.first, edit.count) : x;
    }
    return attn_hook_edit(ctx, NULL, session, &edit);
}

/* Makes *item the run of set i of a batch, from its layer to the next layer that has nodes. */
LENS_FN attn_status lens_joint_item(attn_ctx *ctx, lens_joint *j, attn_feed_item *item, size_t at,
                                    size_t i)
{
    lens_joint_layer *const layer = &j->layers[at];
    const lens_node_set *const set = &layer->sets[i];
    const size_t size = (j->run.sweep.n - j->first) * j->run.width;
    attn_status status = lens_sweep_item(ctx, item, &j->run.sweep, i, layer->layer, j->first);
    for (size_t k = 0; k < set->n && status == ATTN_OK; k++)
        if (set->at[k] >= layer->first) /* those below are in the stream */
            status = lens_ablate(ctx, j, item->session, lens_joint_node(j, set->at[k]));
    if (at > 0)
        item->layers.resid = (const float *)layer[-1].streams.data + set->from * size;
    if (at + 1 < j->n_layers) {
        item->layers.end = layer[1].layer;
        item->layers.resid_out = (float *)layer->streams.data + i * size;
    }
    return status;
}

LENS_FN attn_status lens_joint_branch(attn_ctx *ctx, lens_joint *j, size_t at);

/* Runs a batch to the next layer that has nodes, and from there the sets that extend its sets. */
LENS_FN attn_status lens_joint_batch(attn_ctx *ctx, lens_joint *j, size_t at)
{
    lens_joint_layer *const layer = &j->layers[at];
    const int is_last = at + 1 == j->n_layers;
    attn_feed_item items[LENS_AT_ONCE] = ATTN_ZERO;
    float values[LENS_AT_ONCE] = {0};
    attn_status status = ATTN_OK;
    size_t i, n_hooked = 0;
    while (n_hooked < layer->n && status == ATTN_OK) {
        i = n_hooked++;
        status = lens_joint_item(ctx, j, &items[i], at, i);
    }
    if (status == ATTN_OK)
        status = is_last ? lens_exact_values(ctx, values, &j->run, layer->layer, items, layer->n)
                         : attn_feed_batch(ctx, items, layer->n);
    for (i = 0; i < n_hooked; i++)
        attn_unhook_all(j->run.sweep.sessions[i]);
    if (status == ATTN_OK && !is_last)
        status = lens_joint_branch(ctx, j, at + 1);
    for (i = 0; i < layer->n && status == ATTN_OK && is_last; i++)
        lens_store_set(j, &layer->sets[i], values[i] - j->run.sweep.values.corrupted);
    layer->n = 0;
    return status || !is_last
               ? status
               : lens_progress(j->d->progress, j->d->user,
                               ((double)j->pair + j->done / j->work) / (double)j->d->n_pairs);
}

/* Runs all sets that extend those of the batch before by nodes of layer number `at`, or by none. */
LENS_FN attn_status lens_joint_branch(attn_ctx *ctx, lens_joint *j, size_t at)
{
    static const lens_node_set empty = {0, {0}, 0};
    lens_joint_layer *const layer = &j->layers[at];
    const size_t n_from = at ? layer[-1].n : 1;
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < n_from && status == ATTN_OK; i++) {
        const size_t n_before = at ? layer[-1].sets[i].n : 0;
        lens_node_set set = at ? layer[-1].sets[i] : empty;
        set.from = i;
        do {
            layer->sets[layer->n++] = set;
            if (layer->n == j->n_at_once)
                status = lens_joint_batch(ctx, j, at);
        } while (status == ATTN_OK && lens_next_set(&set, n_before, layer, j->most));
    }
    return status || layer->n == 0 ? status : lens_joint_batch(ctx, j, at);
}

/* Computes v of all sets for one pair of texts. */
LENS_FN attn_status lens_joint_pair(attn_ctx *ctx, lens_joint *j)
{
    static const char *const names[] = {"blocks.0.hook_resid_pre", "*.attn.hook_z",
                                        "*.hook_mlp_out", "*.hook_resid_post"};
    const lens_pair *const pair = &j->d->pairs[j->pair];
    lens_sweep *const s = &j->run.sweep;
    attn_status status = lens_exact_begin(ctx, &j->run, pair, names);
    j->first = 0;
    while (j->d->ablation == LENS_ABLATION_CORRUPTED && j->first + 1 < s->n &&
           pair->clean[j->first] == pair->corrupted[j->first])
        j->first++;
    if (status == ATTN_OK) {
        const size_t fit = s->n_rows / (s->n - j->first);
        j->n_at_once = fit < LENS_AT_ONCE ? fit : (size_t)LENS_AT_ONCE;
        status = lens_sweep_copy(ctx, s, j->n_at_once);
    }
    for (size_t i = 0; i + 1 < j->n_layers && status == ATTN_OK; i++)
        status =
            attn_zeros(ctx, &j->layers[i].streams, ATTN_F32, attn_shape2(s->n_rows, j->run.width));
    j->done = 0;
    if (status == ATTN_OK)
        status = lens_joint_branch(ctx, j, 0);
    for (size_t i = 0; i < j->n_layers; i++) {
        attn_tensor_free(ctx, &j->layers[i].streams);
        j->layers[i].n = 0;
    }
    lens_exact_end(ctx, &j->run);
    return status;
}

/* ---- results ---- */

/* numbers [2, n, n]: v of each pair of nodes, on the diagonal v of each node; then the interactions, there 0. */
LENS_FN void lens_fill_interactions(float *numbers, const float *v, size_t n)
{
    for (size_t a = 0; a < n; a++)
        for (size_t b = 0; b < n; b++) {
            const double both = (double)v[a * n + b];
            numbers[a * n + b] = v[a * n + b];
            numbers[(n + a) * n + b] =
                a == b ? 0 : (float)(both - (double)v[a * n + a] - (double)v[b * n + b]);
        }
}

/* numbers [n, n]: Shapley values on the diagonal and interaction indices beside it, from v [2^n]. In a random order
 * all sizes of S are equally likely, and so are all S of one size. So the changes are averaged over the S of each
 * size, and then over the sizes. `sums` is room for n * n * n numbers. */
LENS_FN void lens_fill_shapley(float *numbers, double *sums, const float *v, size_t n)
{
    size_t a, size;
    memset(sums, 0, n * n * n * sizeof *sums);
    for (size_t set = 0; set < (size_t)1 << n; set++) {
        for (size = a = 0; a < n; a++)
            size += set >> a & 1;
        for (a = 0; a < n; a++)
            for (size_t b = a; b < n && !(set >> a & 1); b++) {
                const size_t one = set | (size_t)1 << a, other = set | (size_t)1 << b;
                double change = (double)v[one] - (double)v[set];
                if (set >> b & 1)
                    continue;
                if (a != b)
                    change = (double)v[one | other] - (double)v[other] - change;
                sums[(a * n + b) * n + size] += change;
            }
    }
    for (a = 0; a < n; a++)
        for (size_t b = a; b < n; b++) {
            const size_t n_ordered = n - (a != b);
            double n_sets = 1, total = 0;
            for (size = 0; size < n_ordered; size++) {
                total += sums[(a * n + b) * n + size] / n_sets;
                n_sets = n_sets * (double)(n_ordered - 1 - size) / (double)(size + 1);
            }
            numbers[a * n + b] = numbers[b * n + a] = (float)(total / (double)n_ordered);
        }
}

LENS_FN void lens_fill_joint(const lens_joint *j, float *numbers, const float *v)
{
    if (j->of_subsets)
        lens_fill_shapley(numbers, j->sums, v, j->n);
    else
        lens_fill_interactions(numbers, v, j->n);
}

/* Computes all pairs of texts. total [n_values]: zeros, for the sum of v over them. */
LENS_FN attn_status lens_joint_pairs(attn_ctx *ctx, lens_joint *j, float *numbers, float *total,
                                     size_t n_values)
{
    const size_t n_numbers = j->of_subsets ? j->n * j->n : 2 * j->n * j->n;
    float *const each = j->d->each;
    lens_baseline *const sum = &j->run.sum;
    attn_status status = ATTN_OK;
    for (j->pair = 0; j->pair < j->d->n_pairs && status == ATTN_OK; j->pair++) {
        float *const row = each ? each + j->pair * (2 + n_numbers) : NULL;
        status = lens_joint_pair(ctx, j);
        for (size_t i = 0; i < n_values && status == ATTN_OK; i++)
            total[i] += j->values[i];
        lens_exact_answers(&j->run, sum, row);
        if (row && status == ATTN_OK)
            lens_fill_joint(j, row + 2, j->values);
    }
    if (status != ATTN_OK)
        return status;
    lens_sweep_means(ctx, "", attn_borrow(total, ATTN_F32, attn_shape1(n_values)), sum,
                     j->d->n_pairs, 0); /* does not fail */
    if (j->of_subsets && j->d->subsets)
        memcpy(j->d->subsets, total, n_values * sizeof *total);
    lens_fill_joint(j, numbers, total);
    return ATTN_OK;
}

/* ---- all of it ---- */

LENS_FN attn_status lens_need_joint(attn_ctx *ctx, const char *op, const attn_model *model,
                                    const lens_joint_desc *d, int of_subsets)
{
    const size_t n_senders = lens_graph_of(model).n_senders;
    if ((unsigned)d->ablation > LENS_ABLATION_MEAN)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "%s: ablation is %d; expected LENS_ABLATION_CORRUPTED, _ZERO or _MEAN", op,
                         (int)d->ablation);
    if (of_subsets && (d->n_nodes == 0 || d->n_nodes > LENS_MOST_PLAYERS))
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: %llu nodes; expected 1 to %d", op,
                         LENS_LLU(d->n_nodes), (int)LENS_MOST_PLAYERS);
    for (size_t i = 0; i < d->n_nodes; i++)
        if (!d->nodes || d->nodes[i] >= n_senders || (i > 0 && d->nodes[i] <= d->nodes[i - 1]))
            return attn_fail(ctx, ATTN_E_ARGUMENT,
                             "%s: nodes[%llu] is %lld; expected ascending numbers of 0 to %llu", op,
                             LENS_LLU(i), d->nodes ? (long long)d->nodes[i] : -1,
                             LENS_LLU(n_senders - 1));
    return ATTN_OK;
}

/* Finds the layers that have nodes. */
LENS_FN void lens_find_layers(lens_joint *j)
{
    for (size_t i = 0; i < j->n; i++) {
        const size_t layer = lens_place_of_sender(&j->run.graph, lens_joint_node(j, i)).layer;
        if (j->n_layers == 0 || j->layers[j->n_layers - 1].layer != layer) {
            j->layers[j->n_layers].layer = layer;
            j->layers[j->n_layers++].first = i;
        }
        j->layers[j->n_layers - 1].end = i + 1;
    }
}

/* Computes what lens_interactions or lens_shapley describes. */
LENS_FN attn_status lens_joint_run(attn_ctx *ctx, attn_tensor *out, lens_baseline *baseline,
                                   const attn_model *model, const lens_joint_desc *desc,
                                   int of_subsets)
{
    const char *const op = of_subsets ? "lens_shapley" : "lens_interactions";
    lens_exact_desc exact = ATTN_ZERO;
    lens_joint j = ATTN_ZERO;
    lens_result result;
    float *values;
    if (lens_need_described(ctx, op, model, desc) != ATTN_OK)
        return lens_failure(ctx);
    exact.pairs = desc->pairs;
    exact.n_pairs = desc->n_pairs;
    exact.edits = desc->edits;
    exact.n_edits = desc->n_edits;
    if (lens_need_exact(ctx, op, model, &exact) ||
        lens_need_joint(ctx, op, model, desc, of_subsets))
        return lens_failure(ctx);
    j.d = desc;
    j.run = lens_exact_run_of(model, &exact);
    j.of_subsets = of_subsets;
    j.n = desc->n_nodes ? desc->n_nodes : j.run.graph.n_senders;
    j.most = of_subsets ? j.n : 2;
    size_t n_values = of_subsets ? (size_t)1 << j.n : j.n * j.n;
    j.work = of_subsets ? (double)n_values : 1 + (double)j.n * (double)(j.n + 1) / 2;
    if (lens_begin(ctx, op, out, of_subsets ? attn_shape2(j.n, j.n) : attn_shape3(2, j.n, j.n),
                   &result) != ATTN_OK)
        return lens_failure(ctx);
    j.layers =
        (lens_joint_layer *)attn_alloc(ctx, j.run.n_layer, sizeof *j.layers, "sets of nodes");
    j.sums = (double *)attn_alloc(ctx, of_subsets ? j.n * j.n * j.n : 1, sizeof *j.sums, "sums");
    values = (float *)attn_alloc(ctx, n_values, 2 * sizeof *values, "effects of sets");
    attn_status status = j.layers && j.sums && values ? ATTN_OK : ATTN_E_MEMORY;
    if (status == ATTN_OK) {
        lens_find_layers(&j);
        j.values = values + n_values;
        status = lens_joint_pairs(ctx, &j, (float *)result.numbers.data, values, n_values);
    }
    attn_free(j.layers);
    attn_free(j.sums);
    attn_free(values);
    if (status == ATTN_OK && baseline)
        *baseline = j.run.sum;
    return lens_finish(ctx, &result, status);
}

/* out [2, n, n] of n nodes: v of all pairs, with v of each node on the diagonal; and their interactions, 0 on the
 * diagonal. *baseline (may be NULL): the mean metrics of both texts without a change. ATTN_STOPPED if the metric or
 * desc->progress asks to stop. Memory: the activations of both texts that are ablated, 64 sessions, and 512 rows of
 * the stream for each layer. */
LENS_FN attn_status lens_interactions(attn_ctx *ctx, attn_tensor *out, lens_baseline *baseline,
                                      const attn_model *model, const lens_joint_desc *desc)
{
    return lens_joint_run(ctx, out, baseline, model, desc, 0);
}

/* out [n, n] of desc->nodes: their Shapley values on the diagonal, beside it the interaction indices. Otherwise as
 * lens_interactions; 2^n sets run, so that a node more takes twice the time. */
LENS_FN attn_status lens_shapley(attn_ctx *ctx, attn_tensor *out, lens_baseline *baseline,
                                 const attn_model *model, const lens_joint_desc *desc)
{
    return lens_joint_run(ctx, out, baseline, model, desc, 1);
}

#endif
