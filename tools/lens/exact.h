/* The exact effect of each edge, or of each node, between the parts of a model. edges.h estimates these
 * effects; this header computes them, each with its own pass. Uses attn.h's public API only.
 *
 * An edge leads from a sender to a later receiver (edges.h names both). The clean text runs, but the
 * receiver alone reads what the sender writes in the corrupted text. All later parts are computed again:
 *
 *     effect = metric of this run - metric of the clean text
 *
 * The effect of a node is that of all edges from one sender together.
 *
 * A change of layer i alters nothing below that layer, and nothing before the first position at which the
 * sender's two writes differ. So each run computes only the later rows of the layers from i on, and many
 * runs form one batch (sweep.h). A logit, or the difference of two, takes one row of the last layer's
 * output and the logits of one or two tokens; other metrics, and edited models, take all logits. An edge whose
 * sender writes the same in both texts has effect 0, without a run. Results have the same bits for any number
 * of threads, and do not depend on the batches. With weights of GPT-2 124M's shape and 15 tokens, of which
 * the last five differ, all 32,491 edges took 82 s of processor time (two cores with AVX-512) and 186 MB; with
 * AVX2 128 s. EAP-IG's procedure of two passes for each edge would take 19,800 s in PyTorch
 * (tests/compare/speed/compare_exact_speed.py).
 *
 *     lens_exact_desc d = ATTN_ZERO;
 *     attn_tensor effects = ATTN_ZERO;
 *     d.pairs = &pair, d.n_pairs = 1;                    as for lens_patch (patch.h)
 *     if (lens_exact_effects(&ctx, &effects, NULL, model, &d) == ATTN_OK)
 *         printf("input to logits: %+.3f\n", attn_get2(effects, 0, effects.shape[1] - 1));
 *
 * With edits all runs use the edited model, by the rules of edges.h. */
#ifndef LENS_EXACT_H
#define LENS_EXACT_H

#include "edges.h"
#include "logits.h"
#include "sweep.h"

/* What a call has done, so that another call with the same description can continue it. The caller owns
 * the arrays, of lens_exact_count numbers each, and zeroes all of it at the beginning. */
typedef struct lens_exact_state {
    size_t n_pairs;      /* pairs that are done */
    lens_baseline sum;   /* over these pairs */
    float *sums;         /* of the effects of these pairs */
    float *values;       /* effects of the next pair */
    unsigned char *done; /* 1 where `values` has been computed */
} lens_exact_state;

typedef struct lens_exact_desc {
    const lens_pair *pairs; /* [n_pairs]: the result is the mean over them */
    size_t n_pairs;
    int of_nodes; /* 1: effects of senders; 0: of edges */
    const attn_edit *edits;
    size_t n_edits;
    attn_progress_fn
        progress; /* gets the share of the work that is done, of what the state leaves */
    void *user;
    lens_exact_state *state; /* where to continue; updated before each call of progress. Or NULL */
    float *each;             /* as in lens_patch_desc; only of the pairs that the state leaves */
} lens_exact_desc;

/* Number of the effects: [S, R] of edges, [S] of nodes. */
LENS_FN size_t lens_exact_count(const attn_model *model, int of_nodes)
{
    const lens_graph g = lens_graph_of(model);
    return of_nodes ? g.n_senders : g.n_senders * g.n_receivers;
}

typedef struct lens_exact_run {
    const lens_exact_desc *d;
    lens_exact_state *state; /* d->state, or one of the call */
    lens_graph graph;
    lens_pair pair; /* the texts exchanged: a sweep changes the text that it calls corrupted */
    lens_sweep sweep;
    size_t n_layer, width;
    attn_tensor differences; /* [S * n, C]: corrupted - clean writes */
    attn_tensor streams;     /* [n_rows, C]: of a batch, what the logits or the last layer read */
    size_t n_streams;        /* rows of streams that are in use */
    attn_tensor ends; /* [LENS_AT_ONCE, C]: of a batch, the row that the metric's logits read */
    size_t *first;    /* [S]: the first position at which a sender's writes differ, or n */
    lens_sweep_entry *entries; /* of one layer; index: sender * R + receiver, or the sender */
    lens_baseline sum;         /* over the pairs that are done */
    size_t first_pair;         /* where the call began */
    double done, work;         /* of this pair, in rows times layers */
} lens_exact_run;

LENS_FN lens_exact_run lens_exact_run_of(const attn_model *model, const lens_exact_desc *desc)
{
    lens_exact_run run = ATTN_ZERO;
    run.d = desc;
    run.sweep.model = model;
    run.graph = lens_graph_of(model);
    run.n_layer = run.graph.n_layer;
    run.width = attn_model_config(model)->d_model;
    return run;
}

/* ---- what changes ---- */

/* An activation to which the difference of a sender's writes is added. */
typedef struct lens_exact_place {
    size_t layer; /* n_layer: the stream that is unembedded */
    const char *name;
    size_t head, n_heads; /* n_heads 0: the activation has no heads */
} lens_exact_place;

/* What a receiver reads. */
LENS_FN lens_exact_place lens_place_of_receiver(const lens_graph *g, size_t receiver)
{
    static const char *const names[] = {"hook_q_input", "hook_k_input", "hook_v_input",
                                        "hook_mlp_in"};
    const size_t in_layer = 3 * g->n_head + 1, part = receiver % in_layer;
    lens_exact_place p = ATTN_ZERO;
    p.layer = receiver / in_layer;
    p.name = names[part / g->n_head];
    if (part < in_layer - 1) {
        p.head = part % g->n_head;
        p.n_heads = 1;
    }
    return p;
}

/* What a sender writes to. */
LENS_FN lens_exact_place lens_place_of_sender(const lens_graph *g, size_t sender)
{
    lens_exact_place p = ATTN_ZERO;
    p.name = "hook_resid_pre";
    if (sender > 0) {
        p.layer = (sender - 1) / (g->n_head + 1);
        p.name = (sender - 1) % (g->n_head + 1) == g->n_head ? "hook_mlp_out" : "hook_attn_out";
    }
    return p;
}

LENS_FN lens_exact_place lens_place_of(const lens_exact_run *run, size_t index)
{
    return run->d->of_nodes ? lens_place_of_sender(&run->graph, index)
                            : lens_place_of_receiver(&run->graph, index % run->graph.n_receivers);
}

LENS_FN size_t lens_exact_sender(const lens_exact_run *run, size_t index)
{
    return run->d->of_nodes ? index : index / run->graph.n_receivers;
}

/* Adds an entry to the n of a list, unless the sender writes the same in both texts, or the effect is known
 * already. */
LENS_FN size_t lens_exact_add(lens_exact_run *run, size_t n, size_t index)
{
    const size_t first = run->first[lens_exact_sender(run, index)];
    if (first == run->sweep.n || run->state->done[index])
        return n;
    run->entries[n].index = index;
    run->entries[n].first = first;
    return n + 1;
}

/* Lists the changes of one layer (n_layer: of what the logits read), late positions first. Returns their
 * number. */
LENS_FN size_t lens_list_changes(lens_exact_run *run, size_t layer)
{
    const lens_graph *const g = &run->graph;
    const size_t in_layer = 3 * g->n_head + 1, from = layer * in_layer;
    size_t n = 0;
    for (size_t sender = 0; sender < g->n_senders && run->d->of_nodes; sender++)
        if (lens_place_of_sender(g, sender).layer == layer)
            n = lens_exact_add(run, n, sender);
    for (size_t receiver = from; !run->d->of_nodes && receiver < from + in_layer; receiver++)
        for (size_t sender = 0; receiver < g->n_receivers && sender < lens_senders_to(g, receiver);
             sender++)
            n = lens_exact_add(run, n, sender * g->n_receivers + receiver);
    qsort(run->entries, n, sizeof *run->entries, lens_compare_entries);
    return n;
}

/* Most changes of a layer. */
LENS_FN size_t lens_most_changes(const lens_graph *g)
{
    return g->n_senders * (3 * g->n_head + 1);
}

/* About the cost of a change: its rows, times the layers that run and the unembedding. */
LENS_FN double lens_cost_of(const lens_exact_run *run, size_t layer, size_t first)
{
    return (double)(run->sweep.n - first) * (double)(run->n_layer - layer + 1);
}

/* ---- the runs ---- */

/* Makes *item the run of one change, from the layer on, in session i. */
LENS_FN attn_status lens_exact_item(attn_ctx *ctx, lens_exact_run *run, attn_feed_item *item,
                                    size_t i, size_t layer, const lens_sweep_entry *entry)
{
    const lens_exact_place place = lens_place_of(run, entry->index);
    const lens_full_name name = lens_name_in(layer, place.name);
    const size_t count = run->sweep.n - entry->first;
    const size_t row = lens_exact_sender(run, entry->index) * run->sweep.n + entry->first;
    attn_edit edit = ATTN_ZERO;
    attn_status status = lens_sweep_item(ctx, item, &run->sweep, i, layer, entry->first);
    edit.name = name.text;
    edit.kind = ATTN_EDIT_ADD;
    edit.first = entry->first;
    edit.count = count;
    edit.first_head = place.head;
    edit.n_heads = place.n_heads;
    edit.value = attn_slice(run->differences, 0, row, count);
    if (status == ATTN_OK && layer == run->n_layer) { /* only the unembedding is left to run */
        const attn_shape shape = attn_shape2(count, run->width);
        const attn_tensor clean = attn_borrow(item->layers.resid, ATTN_F32, shape);
        attn_tensor to = attn_slice(run->streams, 0, run->n_streams, count);
        item->layers.resid = (const float *)to.data;
        run->n_streams += count;
        return attn_add(ctx, &to, clean, edit.value);
    }
    if (status != ATTN_OK || run->d->of_nodes)
        return status ? status : attn_hook_edit(ctx, NULL, item->session, &edit);
    attn_unhook_all(item->session); /* edits of an input come after all edges into it */
    status = attn_hook_edit(ctx, NULL, item->session, &edit);
    return status ? status : lens_hook_edits(ctx, item->session, run->d->edits, run->d->n_edits);
}

/* Does the metric need the logits of one or two tokens only? */
LENS_FN int lens_exact_is_linear(const lens_exact_run *run)
{
    return lens_metric_is_linear(&run->pair.metric) && run->d->n_edits == 0;
}

/* Runs the layers below the last one; the items continue from their output. */
LENS_FN attn_status lens_exact_lower_layers(attn_ctx *ctx, lens_exact_run *run,
                                            attn_feed_item *items, size_t n)
{
    float *to = (float *)run->streams.data;
    for (size_t i = 0; i < n; i++) {
        items[i].layers.end = run->n_layer - 1;
        items[i].layers.resid_out = to;
        to += items[i].n_tokens * run->width;
    }
    attn_status status = attn_feed_batch(ctx, items, n);
    for (size_t i = 0; i < n; i++) {
        items[i].layers.first = run->n_layer - 1;
        items[i].layers.end = 0;
        items[i].layers.resid = items[i].layers.resid_out;
        items[i].layers.resid_out = NULL;
    }
    return status;
}

/* Runs the last layer: only the keys and values of the rows before the last, and no logits. */
LENS_FN attn_status lens_exact_last_layer(attn_ctx *ctx, lens_exact_run *run, attn_feed_item *items,
                                          size_t n)
{
    static const size_t no_rows[1] = {0};
    float *const to = (float *)run->ends.data;
    attn_feed_item early[LENS_AT_ONCE];
    attn_status status = ATTN_OK;
    size_t n_early = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t n_before = items[i].n_tokens - 1;
        items[i].logits = to; /* with no rows nothing is written there */
        items[i].rows = no_rows;
        early[n_early] = items[i];
        early[n_early].n_tokens = n_before;
        n_early += n_before > 0;
        items[i].tokens += n_before;
        items[i].n_tokens = 1;
        if (items[i].layers.resid)
            items[i].layers.resid += n_before * run->width;
        items[i].layers.resid_out = to + i * run->width;
    }
    if (n_early > 0)
        status = attn_feed_batch(ctx, early, n_early);
    return status ? status : attn_feed_batch(ctx, items, n);
}

/* values[i] becomes the metric of items[i], which run from `layer` on. */
LENS_FN attn_status lens_exact_values(attn_ctx *ctx, float *values, lens_exact_run *run,
                                      size_t layer, attn_feed_item *items, size_t n)
{
    const lens_metric *const m = &run->pair.metric;
    const attn_token *const against = lens_metric_against(m);
    attn_token tokens[2];
    attn_tensor logits = ATTN_ZERO, none = ATTN_ZERO;
    attn_status status = ATTN_OK;
    if (!lens_exact_is_linear(run))
        return lens_sweep_run(ctx, values, &run->sweep, items, n);
    for (size_t i = 0; i < n && layer == run->n_layer; i++)
        memcpy((float *)run->ends.data + i * run->width,
               items[i].layers.resid + (items[i].n_tokens - 1) * run->width,
               run->width * sizeof(float));
    if (layer + 1 < run->n_layer)
        status = lens_exact_lower_layers(ctx, run, items, n);
    if (layer < run->n_layer && status == ATTN_OK)
        status = lens_exact_last_layer(ctx, run, items, n);
    tokens[0] = m->token;
    tokens[1] = against ? *against : m->token;
    if (status == ATTN_OK)
        status = lens_logit_lens(ctx, &logits, run->sweep.model, attn_slice(run->ends, 0, 0, n),
                                 none, attn_borrow(tokens, ATTN_I32, attn_shape1(against ? 2 : 1)));
    for (size_t i = 0; i < n && status == ATTN_OK; i++)
        values[i] = attn_get2(logits, i, 0) - (against ? attn_get2(logits, i, 1) : 0);
    attn_tensor_free(ctx, &logits);
    return status;
}

/* Runs some changes of one layer as a batch, and stores their effects. */
LENS_FN attn_status lens_exact_some(attn_ctx *ctx, lens_exact_run *run, size_t layer,
                                    const lens_sweep_entry *entries, size_t n)
{
    attn_feed_item items[LENS_AT_ONCE];
    float values[LENS_AT_ONCE] = {0};
    attn_status status = ATTN_OK;
    size_t i, n_hooked = 0;
    run->n_streams = 0;
    while (n_hooked < n && status == ATTN_OK) {
        i = n_hooked++;
        status = lens_exact_item(ctx, run, &items[i], i, layer, &entries[i]);
    }
    if (status == ATTN_OK)
        status = lens_exact_values(ctx, values, run, layer, items, n);
    for (i = 0; i < n_hooked; i++)
        attn_unhook_all(run->sweep.sessions[i]);
    for (i = 0; i < n && status == ATTN_OK; i++) {
        run->state->values[entries[i].index] = values[i] - run->sweep.values.corrupted;
        run->state->done[entries[i].index] = 1;
        run->done += lens_cost_of(run, layer, entries[i].first);
    }
    return status;
}

/* All changes of one layer, for pair number `index` of the call. */
LENS_FN attn_status lens_exact_layer(attn_ctx *ctx, lens_exact_run *run, size_t layer, size_t index)
{
    size_t n, left = lens_list_changes(run, layer), done = 0;
    attn_status status = lens_sweep_copy(ctx, &run->sweep, left);
    for (; left > 0 && status == ATTN_OK; left -= n, done += n) {
        n = lens_sweep_batch(&run->sweep, run->entries + done, left);
        status = lens_exact_some(ctx, run, layer, run->entries + done, n);
        if (status == ATTN_OK)
            status = lens_progress(run->d->progress, run->d->user,
                                   ((double)index + run->done / run->work) /
                                       (double)(run->d->n_pairs - run->first_pair));
    }
    return status;
}

/* Finds the first position at which the writes of each sender differ, and the cost of all changes. */
LENS_FN void lens_plan_exact(lens_exact_run *run)
{
    const size_t size = run->sweep.n * run->width;
    size_t i, n;
    for (size_t sender = 0; sender < run->graph.n_senders; sender++) {
        const float *const x = (const float *)run->differences.data + sender * size;
        for (i = 0; i < size && x[i] == 0; i++)
            ;
        run->first[sender] = i / run->width;
    }
    run->done = run->work = 0;
    for (size_t layer = 0; layer <= run->n_layer; layer++)
        for (n = lens_list_changes(run, layer), i = 0; i < n; i++)
            run->work += lens_cost_of(run, layer, run->entries[i].first);
}

/* Adds the metrics of a pair's texts, which are exchanged here, to *sum, and begins the pair's row (may be NULL)
 * with them. */
LENS_FN void lens_exact_answers(const lens_exact_run *run, lens_baseline *sum, float *row)
{
    const lens_baseline *const values = &run->sweep.values;
    sum->clean += values->corrupted;
    sum->corrupted += values->clean;
    if (row) {
        row[0] = values->corrupted;
        row[1] = values->clean;
    }
}

/* Adds the effects of a pair that is done to the sums. */
LENS_FN void lens_exact_end_pair(lens_exact_run *run)
{
    lens_exact_state *const state = run->state;
    const size_t n = lens_exact_count(run->sweep.model, run->d->of_nodes);
    float *const row = run->d->each ? run->d->each + state->n_pairs * (2 + n) : NULL;
    for (size_t i = 0; i < n; i++)
        state->sums[i] += state->values[i];
    lens_exact_answers(run, &state->sum, row);
    if (row)
        memcpy(row + 2, state->values, n * sizeof *row);
    memset(state->values, 0, n * sizeof *state->values);
    memset(state->done, 0, n);
    state->n_pairs++;
}

/* Feeds both texts of a pair, exchanged, with a record of the first three names of both and of all four of the
 * clean text. Call lens_exact_end afterwards, after a failure too. */
LENS_FN attn_status lens_exact_begin(attn_ctx *ctx, lens_exact_run *run, const lens_pair *pair,
                                     const char *const names[4])
{
    run->sweep = lens_sweep_of(run->sweep.model, run->d->edits, run->d->n_edits);
    run->pair = *pair;
    run->pair.clean = pair->corrupted;
    run->pair.corrupted = pair->clean;
    run->sweep.pair = &run->pair;
    attn_status status = lens_sweep_begin(ctx, &run->sweep, names, 3, 4);
    if (status == ATTN_OK)
        status =
            attn_zeros(ctx, &run->streams, ATTN_F32, attn_shape2(run->sweep.n_rows, run->width));
    if (status == ATTN_OK)
        status = attn_zeros(ctx, &run->ends, ATTN_F32, attn_shape2(LENS_AT_ONCE, run->width));
    return status;
}

LENS_FN void lens_exact_end(attn_ctx *ctx, lens_exact_run *run)
{
    attn_tensor_free(ctx, &run->differences);
    attn_tensor_free(ctx, &run->streams);
    attn_tensor_free(ctx, &run->ends);
    lens_sweep_end(ctx, &run->sweep);
}

/* Computes the effects of one pair. */
LENS_FN attn_status lens_exact_pair(attn_ctx *ctx, lens_exact_run *run, size_t index)
{
    static const char *const names[] = {"blocks.0.hook_resid_pre", "*.attn.hook_result",
                                        "*.hook_mlp_out", "*.hook_resid_post"};
    attn_status status = lens_exact_begin(ctx, run, &run->d->pairs[index], names);
    if (status == ATTN_OK)
        status = lens_differences(ctx, &run->differences, &run->graph, run->sweep.corrupted,
                                  run->sweep.clean);
    if (status == ATTN_OK)
        lens_plan_exact(run);
    for (size_t layer = 0; layer <= run->n_layer && status == ATTN_OK; layer++)
        status = lens_exact_layer(ctx, run, layer, index - run->first_pair);
    if (status == ATTN_OK)
        lens_exact_end_pair(run);
    lens_exact_end(ctx, run);
    return status;
}

/* ---- all of it ---- */

LENS_FN attn_status lens_need_exact(attn_ctx *ctx, const char *op, const attn_model *model,
                                    const lens_exact_desc *d)
{
    lens_backward edited = ATTN_ZERO;
    if (lens_need_described(ctx, op, model, d) != ATTN_OK)
        return lens_failure(ctx);
    if (d->state && (!d->state->sums || !d->state->values || !d->state->done))
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "%s: the state has no arrays of lens_exact_count numbers", op);
    if (d->state && d->state->n_pairs > d->n_pairs)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: the state has %llu pairs; the call has %llu",
                         op, LENS_LLU(d->state->n_pairs), LENS_LLU(d->n_pairs));
    edited.model = model;
    edited.edits = d->edits;
    edited.n_edits = d->n_edits;
    return lens_need_pairs(ctx, op, model, d->pairs, d->n_pairs) ? lens_failure(ctx)
                                                                 : lens_need_sums(ctx, op, &edited);
}

/* *bytes: about the most memory that lens_exact_effects takes for the arguments. Not only what it
 * allocates: the operating system also keeps the weights of a file in memory. */
LENS_FN attn_status lens_exact_size(attn_ctx *ctx, double *bytes, const attn_model *model,
                                    const lens_exact_desc *desc)
{
    attn_session_desc of_session = ATTN_ZERO;
    attn_workspace_desc of_workspace = ATTN_ZERO, own = ATTN_ZERO;
    size_t n = 0, session, workspace, apart;
    double whole = 0;
    if (lens_need_exact(ctx, "lens_exact_effects", model, desc) != ATTN_OK)
        return lens_failure(ctx);
    lens_graph g = lens_graph_of(model);
    size_t width = attn_model_config(model)->d_model;
    lens_sweep sweep = lens_sweep_of(model, desc->edits, desc->n_edits);
    for (size_t i = 0; i < desc->n_pairs; i++) {
        sweep.pair = &desc->pairs[i];
        n = sweep.pair->n_tokens > n ? sweep.pair->n_tokens : n;
        if (!lens_metric_is_local(&sweep.pair->metric))
            whole = (double)attn_model_config(model)->n_vocab;
    }
    sweep.n = n;
    of_workspace = lens_sweep_workspace(&sweep, n);
    of_session.n_ctx = own.n_ctx = n;
    of_session.n_batch = own.n_batch = 1;
    if (attn_session_size(ctx, &session, model, &of_session) ||
        attn_workspace_size(ctx, &apart, model, &own) || /* the sessions share one instead */
        attn_workspace_size(ctx, &workspace, model, &of_workspace))
        return lens_failure(ctx);
    /* writes and their difference, streams; of a batch, its rows and those of the watched heads */
    double rows = (double)n * (3 * (double)g.n_senders + (double)g.n_layer) +
                  (double)of_workspace.n_batch * (2 * (double)g.n_head + 1);
    *bytes = 65536 + 4 * rows * (double)width +
             4 * whole * (2 * (double)n + (double)of_workspace.n_batch) + (double)workspace +
             (LENS_AT_ONCE + 2) * (double)(session - apart) +
             (double)lens_most_changes(&g) * sizeof(lens_sweep_entry) +
             (double)lens_exact_count(model, desc->of_nodes) * (3 * sizeof(float) + 1);
    return ATTN_OK;
}

/* Computes all pairs that the state leaves. The result's numbers are the state's sums if it is the call's. */
LENS_FN attn_status lens_exact_pairs(attn_ctx *ctx, lens_exact_run *run, lens_result *result)
{
    const lens_exact_desc *const desc = run->d;
    const attn_model *const model = run->sweep.model;
    const size_t n = lens_exact_count(model, desc->of_nodes);
    lens_exact_state own = ATTN_ZERO;
    attn_status status = ATTN_OK;
    run->state = desc->state ? desc->state : &own;
    if (!desc->state) {
        own.sums = (float *)result->numbers.data;
        own.values = (float *)attn_alloc(ctx, n, sizeof(float) + 1, "effects of a pair");
        if (!own.values)
            /* NOLINTNEXTLINE(clang-analyzer-core.StackAddressEscape): *run ends with the call */
            return ATTN_E_MEMORY;
        memset(own.values, 0, n * (sizeof(float) + 1));
        own.done = (unsigned char *)(own.values + n);
    }
    run->first_pair = run->state->n_pairs;
    for (size_t i = run->first_pair; i < desc->n_pairs && status == ATTN_OK; i++)
        status = lens_exact_pair(ctx, run, i);
    if (desc->state)
        memcpy(result->numbers.data, desc->state->sums, n * sizeof(float));
    run->sum = run->state->sum;
    run->state = NULL;
    attn_free(own.values);
    return status;
}

/* out [S, R], 0 where there is no edge; or [S] with desc->of_nodes: effects as a mean over the pairs.
 * *baseline (may be NULL): the mean metrics of both texts without a change. ATTN_STOPPED if the metric or
 * desc->progress asks to stop; desc->state then has what is done. Memory: lens_exact_size; it does not grow
 * with the number of pairs. */
LENS_FN attn_status lens_exact_effects(attn_ctx *ctx, attn_tensor *out, lens_baseline *baseline,
                                       const attn_model *model, const lens_exact_desc *desc)
{
    lens_result result;
    if (lens_need_exact(ctx, "lens_exact_effects", model, desc) != ATTN_OK)
        return lens_failure(ctx);
    lens_exact_run run = lens_exact_run_of(model, desc);
    if (lens_begin(ctx, "lens_exact_effects", out,
                   desc->of_nodes ? attn_shape1(run.graph.n_senders)
                                  : attn_shape2(run.graph.n_senders, run.graph.n_receivers),
                   &result) != ATTN_OK)
        return lens_failure(ctx);
    run.first =
        (size_t *)attn_alloc(ctx, run.graph.n_senders, sizeof *run.first, "a list of senders");
    run.entries = (lens_sweep_entry *)attn_alloc(ctx, lens_most_changes(&run.graph),
                                                 sizeof *run.entries, "a list of edges");
    attn_status status =
        run.first && run.entries ? lens_exact_pairs(ctx, &run, &result) : ATTN_E_MEMORY;
    attn_free(run.first);
    attn_free(run.entries);
    if (status == ATTN_OK)
        status =
            lens_sweep_means(ctx, "lens_exact_effects", result.numbers, &run.sum, desc->n_pairs, 0);
    if (status == ATTN_OK && baseline)
        *baseline = run.sum;
    return lens_finish(ctx, &result, status);
}

#endif
