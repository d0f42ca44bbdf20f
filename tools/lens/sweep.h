/* A sweep: many small changes of one text, each with the metric of its own pass. Uses attn.h's public API
 * only. patch.h and paths.h sweep over patches; lens_ablate_heads, below, sweeps over heads.
 *
 * Both texts of a pair are fed once. A change of layer i alters nothing below that layer, and nothing
 * before the first position that it changes. So each change runs on a copy of the corrupted text's session,
 * truncated to that position, from the stream that enters layer i. Many copies run as one batch. Edits, if
 * there are any, are in force in all of these runs. */
#ifndef LENS_SWEEP_H
#define LENS_SWEEP_H

#include "changes.h"
#include "metric.h"

/* The metric of the two texts without a change. */
typedef struct lens_baseline {
    float clean, corrupted;
} lens_baseline;

enum {
    LENS_AT_ONCE = 64,       /* most changes of a batch */
    LENS_ROWS_AT_ONCE = 512, /* most rows of a batch, unless the text is longer */
    LENS_LOGITS_CTX = 128,   /* a workspace for such texts has room to unembed a batch together */
    LENS_LOGITS_AT_ONCE = 1 << 24 /* most logits of a batch, if the metric reads all positions */
};

/* A change of a sweep: its index in the results, and the first position that it changes. */
typedef struct lens_sweep_entry {
    size_t index, first;
} lens_sweep_entry;

typedef struct lens_sweep {
    const attn_model *model;
    const lens_pair *pair;
    const attn_edit *edits; /* [n_edits] */
    size_t n_edits;
    size_t n;      /* tokens up to the metric's position: later ones have no effect */
    size_t n_rows; /* most rows of a batch */
    attn_record *clean, *corrupted; /* of the activations that lens_sweep_begin names */
    lens_baseline values;
    attn_workspace *workspace;
    attn_session *base; /* the corrupted text, fed */
    attn_session *sessions[LENS_AT_ONCE];
    size_t n_sessions;
    /* If the metric is not local: */
    attn_tensor logits;  /* [n, V] of the corrupted text */
    attn_tensor changed; /* [n_rows, V] of a batch */
    attn_tensor whole;   /* [n, V] of one changed text */
} lens_sweep;

/* A sweep that has not begun. */
LENS_FN lens_sweep lens_sweep_of(const attn_model *model, const attn_edit *edits, size_t n_edits)
{
    lens_sweep s = ATTN_ZERO;
    s.model = model;
    s.edits = edits;
    s.n_edits = n_edits;
    return s;
}

LENS_FN void lens_sweep_end(attn_ctx *ctx, lens_sweep *s)
{
    attn_session_free(s->base);
    for (size_t i = 0; i < s->n_sessions; i++)
        attn_session_free(s->sessions[i]);
    attn_workspace_free(s->workspace);
    attn_record_free(s->clean);
    attn_record_free(s->corrupted);
    attn_tensor_free(ctx, &s->logits);
    attn_tensor_free(ctx, &s->changed);
    attn_tensor_free(ctx, &s->whole);
}

LENS_FN attn_status lens_sweep_session(attn_ctx *ctx, const lens_sweep *s, attn_session **session)
{
    attn_session_desc size = ATTN_ZERO;
    size.n_ctx = s->pair->n_tokens; /* edits may name positions behind the metric's */
    size.workspace = s->workspace;
    return attn_session_new(ctx, session, s->model, &size);
}

/* The metric of a session that was fed `tokens`: from its last logits if the metric is local, else from
 * `logits` [n, V]. */
LENS_FN attn_status lens_sweep_value(attn_ctx *ctx, float *value, const lens_sweep *s,
                                     const attn_session *session, const attn_token *tokens,
                                     attn_tensor logits)
{
    const size_t n_vocab = attn_model_config(s->model)->n_vocab;
    if (lens_metric_is_local(&s->pair->metric))
        logits = attn_borrow(attn_session_logits(session), ATTN_F32, attn_shape2(1, n_vocab));
    return lens_metric_value(ctx, value, logits, &s->pair->metric, tokens);
}

/* Feeds one of the texts to a new session, with a record of `names`. */
LENS_FN attn_status lens_sweep_feed(attn_ctx *ctx, lens_sweep *s, attn_session **session,
                                    int is_clean, const char *const *names, size_t n_names)
{
    attn_record_desc what = ATTN_ZERO;
    attn_feed_item item = ATTN_ZERO;
    attn_status status = lens_sweep_session(ctx, s, session);
    what.names = names;
    what.n_names = n_names;
    what.n_positions = s->n;
    if (status == ATTN_OK)
        status = lens_hook_edits(ctx, *session, s->edits, s->n_edits);
    if (status == ATTN_OK)
        status = attn_record_new(ctx, is_clean ? &s->clean : &s->corrupted, *session, &what);
    item.session = *session;
    item.tokens = is_clean ? s->pair->clean : s->pair->corrupted;
    item.n_tokens = s->n;
    item.logits = (float *)s->logits.data;
    if (status == ATTN_OK)
        status = attn_feed_batch(ctx, &item, 1);
    if (status == ATTN_OK)
        status = lens_sweep_value(ctx, is_clean ? &s->values.clean : &s->values.corrupted, s,
                                  *session, item.tokens, s->logits);
    return status;
}

/* Most rows of a batch. */
LENS_FN size_t lens_sweep_rows(const lens_sweep *s)
{
    const size_t n_ctx = attn_model_config(s->model)->n_ctx;
    const size_t fit = LENS_LOGITS_AT_ONCE / attn_model_config(s->model)->n_vocab;
    size_t n_rows = LENS_ROWS_AT_ONCE;
    if (n_ctx < n_rows)
        n_rows = n_ctx;
    if (!lens_metric_is_local(&s->pair->metric) && fit < n_rows)
        n_rows = fit;
    return n_rows < s->n ? s->n : n_rows;
}

/* The workspace of a sweep over texts of n_tokens. A batch is one pass, which reads the weights once. */
LENS_FN attn_workspace_desc lens_sweep_workspace(const lens_sweep *s, size_t n_tokens)
{
    const size_t n_ctx = attn_model_config(s->model)->n_ctx;
    attn_workspace_desc room = ATTN_ZERO;
    room.n_ctx = n_tokens;
    if (room.n_ctx < LENS_LOGITS_CTX)
        room.n_ctx = n_ctx < LENS_LOGITS_CTX ? n_ctx : (size_t)LENS_LOGITS_CTX;
    room.n_batch = lens_sweep_rows(s);
    return room;
}

/* Allocates logits if the metric is not local. */
LENS_FN attn_status lens_sweep_room(attn_ctx *ctx, lens_sweep *s)
{
    const size_t n_vocab = attn_model_config(s->model)->n_vocab;
    if (lens_metric_is_local(&s->pair->metric))
        return ATTN_OK;
    return attn_zeros(ctx, &s->logits, ATTN_F32, attn_shape2(s->n, n_vocab)) ||
                   attn_zeros(ctx, &s->whole, ATTN_F32, attn_shape2(s->n, n_vocab)) ||
                   attn_zeros(ctx, &s->changed, ATTN_F32, attn_shape2(s->n_rows, n_vocab))
               ? ctx->status
               : ATTN_OK;
}

/* Feeds both texts of s->pair. The first n_both names are recorded of both texts, all n_names of the
 * corrupted one. Call lens_sweep_end afterwards, after a failure too. */
LENS_FN attn_status lens_sweep_begin(attn_ctx *ctx, lens_sweep *s, const char *const *names,
                                     size_t n_both, size_t n_names)
{
    const lens_metric *const m = &s->pair->metric;
    attn_session *session = NULL;
    s->n = s->pair->n_tokens - (lens_metric_is_local(m) ? m->from_end : 0);
    s->n_rows = lens_sweep_rows(s);
    attn_workspace_desc room = lens_sweep_workspace(s, s->pair->n_tokens);
    attn_status status = lens_sweep_room(ctx, s);
    if (status == ATTN_OK)
        status = attn_workspace_new(ctx, &s->workspace, s->model, &room);
    if (status == ATTN_OK)
        status = lens_sweep_feed(ctx, s, &session, 1, names, n_both);
    attn_session_free(session);
    if (status == ATTN_OK)
        status = lens_sweep_feed(ctx, s, &s->base, 0, names, n_names);
    return status;
}

/* Makes the first n sessions copies of the corrupted text's session. */
LENS_FN attn_status lens_sweep_copy(attn_ctx *ctx, lens_sweep *s, size_t n)
{
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < n && i < LENS_AT_ONCE && status == ATTN_OK; i++) {
        if (i == s->n_sessions) {
            status = lens_sweep_session(ctx, s, &s->sessions[i]);
            s->n_sessions += status == ATTN_OK;
        }
        if (status == ATTN_OK)
            status = attn_session_copy(ctx, s->sessions[i], s->base);
    }
    return status;
}

/* Truncates session i to `first`, hooks the edits to it, and makes *item the feed of the remaining tokens
 * from the corrupted stream that enters `layer` (0 to n_layer). Needs a record of "*.hook_resid_post". */
LENS_FN attn_status lens_sweep_item(attn_ctx *ctx, attn_feed_item *item, const lens_sweep *s,
                                    size_t i, size_t layer, size_t first)
{
    attn_tensor stream;
    char entry[64];
    memset(item, 0, sizeof *item);
    item->session = s->sessions[i];
    item->tokens = s->pair->corrupted + first;
    item->n_tokens = s->n - first;
    item->layers.first = layer;
    if (layer > 0) { /* before any hook of this layer has changed it */
        snprintf(entry, sizeof entry, "blocks.%llu.hook_resid_post", LENS_LLU(layer - 1));
        if (attn_record_get(ctx, &stream, s->corrupted, entry) != ATTN_OK)
            return lens_failure(ctx);
        item->layers.resid = (const float *)stream.data + first * stream.shape[1];
    }
    if (attn_session_truncate(ctx, item->session, first) != ATTN_OK)
        return lens_failure(ctx);
    return lens_hook_edits(ctx, item->session, s->edits, s->n_edits);
}

/* For qsort: late positions first, so that each session holds the corrupted text before the next change. */
LENS_FN int lens_compare_entries(const void *a, const void *b)
{
    const lens_sweep_entry *x = (const lens_sweep_entry *)a, *y = (const lens_sweep_entry *)b;
    if (x->first != y->first)
        return x->first < y->first ? 1 : -1;
    return x->index < y->index ? 1 : -1;
}

/* Number of the next entries [n_left] that fit into a batch. */
LENS_FN size_t lens_sweep_batch(const lens_sweep *s, const lens_sweep_entry *entries, size_t n_left)
{
    size_t n = 0, rows = 0;
    while (n < n_left && n < LENS_AT_ONCE) {
        rows += s->n - entries[n].first;
        if (n > 0 && rows > s->n_rows)
            break;
        n++;
    }
    return n;
}

/* Feeds changed copies of the corrupted text; values[i] becomes the metric of items[i]. */
LENS_FN attn_status lens_sweep_run(attn_ctx *ctx, float *values, lens_sweep *s,
                                   attn_feed_item *items, size_t n)
{
    const size_t n_vocab = attn_model_config(s->model)->n_vocab;
    const int is_local = lens_metric_is_local(&s->pair->metric);
    float *to = (float *)s->changed.data;
    for (size_t i = 0; i < n && !is_local; i++) {
        items[i].logits = to;
        to += items[i].n_tokens * n_vocab;
    }
    attn_status status = attn_feed_batch(ctx, items, n);
    for (size_t i = 0; i < n && status == ATTN_OK; i++) {
        if (!is_local) {
            const size_t n_same = (s->n - items[i].n_tokens) * n_vocab;
            memcpy(s->whole.data, s->logits.data, n_same * sizeof(float));
            memcpy((float *)s->whole.data + n_same, items[i].logits,
                   items[i].n_tokens * n_vocab * sizeof(float));
        }
        status =
            lens_sweep_value(ctx, &values[i], s, items[i].session, s->pair->corrupted, s->whole);
    }
    return status;
}

/* Where the numbers of a pair are added: zeroed room in `each` [n_pairs, 2 + n], or without it the sums. */
LENS_FN float *lens_sweep_row(float *each, float *sums, size_t pair, size_t n)
{
    float *const row = each ? each + pair * (2 + n) : NULL;
    if (row)
        memset(row, 0, (2 + n) * sizeof *row);
    return row ? row + 2 : sums;
}

/* Completes the row, and adds it to the sums. */
LENS_FN void lens_sweep_add_row(const lens_sweep *s, float *sums, float *row, size_t n)
{
    if (row == sums)
        return;
    row[-2] = s->values.clean;
    row[-1] = s->values.corrupted;
    for (size_t i = 0; i < n; i++)
        sums[i] += row[i];
}

/* Checks that a call has its model and its description. */
LENS_FN attn_status lens_need_described(attn_ctx *ctx, const char *op, const attn_model *model,
                                        const void *description)
{
    if (!model || !description)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no %s given (NULL)", op,
                         model ? "description" : "model");
    return ATTN_OK;
}

/* Checks the pairs of a call. */
LENS_FN attn_status lens_need_pairs(attn_ctx *ctx, const char *op, const attn_model *model,
                                    const lens_pair *pairs, size_t n_pairs)
{
    if (!pairs || n_pairs == 0)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no pair of texts given", op);
    for (size_t i = 0; i < n_pairs; i++)
        if (lens_need_pair(ctx, op, model, &pairs[i]) != ATTN_OK)
            return lens_failure(ctx);
    return ATTN_OK;
}

/* A sentence about a gap; empty if there is nothing to say. */
typedef struct lens_gap_text {
    char text[160];
} lens_gap_text;

/* What every front end says where the metric is the same after both texts: nothing is divided by 0. */
LENS_FN lens_gap_text lens_no_gap(const lens_baseline *b)
{
    lens_gap_text told = ATTN_ZERO;
    if (!(b->clean < b->corrupted || b->clean > b->corrupted))
        snprintf(told.text, sizeof told.text,
                 "there is no gap between the texts: the metric is %.6g after both, so these are "
                 "changes of it, not shares of a gap",
                 (double)b->clean);
    return told;
}

/* Sums over n pairs become means; with `normalize` rescaled so that the corrupted mean is 0 and, unless that is the
 * same, the clean mean is 1. */
LENS_FN attn_status lens_sweep_means(attn_ctx *ctx, const char *op, attn_tensor sums,
                                     lens_baseline *sum, size_t n, int normalize)
{
    float *x = (float *)sums.data;
    const size_t count = attn_count(sums);
    sum->clean /= (float)n;
    sum->corrupted /= (float)n;
    float gap = lens_no_gap(sum).text[0] ? 1 : sum->clean - sum->corrupted;
    if (normalize && isnan(sum->clean - sum->corrupted))
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "%s: the metric is %g after the clean and %g after the corrupted text, "
                         "which leaves nothing to divide by; leave out normalize",
                         op, (double)sum->clean, (double)sum->corrupted);
    for (size_t i = 0; i < count; i++) {
        x[i] /= (float)n;
        if (normalize)
            x[i] = (x[i] - sum->corrupted) / gap;
    }
    return ATTN_OK;
}

/* ---- ablation ---- */

/* The clean texts alone count: corrupted ones may be NULL. each: the metric, NaN and the changes of every text. */
typedef struct lens_ablate_desc {
    const lens_pair *pairs; /* [n_pairs]: the result is the mean over them */
    size_t n_pairs;
    const attn_edit *edits; /* [n_edits]: in force in every run */
    size_t n_edits;
    attn_progress_fn progress; /* may be NULL: called after every head, */
    void *user;                /* with this */
    float *each;               /* may be NULL: [n_pairs, 2 + L * H] (spread.h) */
} lens_ablate_desc;

typedef struct lens_ablating {
    const lens_ablate_desc *d;
    lens_sweep sweep;
    attn_token_stats *stats; /* [T]: the loss of each token of the text */
    double *changes;         /* [L * H], the sums over the texts so far */
    double whole;            /* the sum of their metrics without a change */
} lens_ablating;

/* Is the metric the loss of the text's own tokens, which needs no room for all logits? */
LENS_FN int lens_metric_is_own_loss(const lens_metric *m)
{
    return m->kind == LENS_METRIC_LOSS && !m->targets;
}

/* A session for the clean text, with the edits, and room for what the metric reads. */
LENS_FN attn_status lens_ablate_room(attn_ctx *ctx, lens_ablating *a)
{
    lens_sweep *const s = &a->sweep;
    const lens_metric *const m = &s->pair->metric;
    attn_status status = lens_sweep_session(ctx, s, &s->base);
    if (status == ATTN_OK)
        status = lens_hook_edits(ctx, s->base, s->edits, s->n_edits);
    if (status == ATTN_OK && !lens_metric_is_local(m) && !lens_metric_is_own_loss(m))
        status = attn_zeros(ctx, &s->logits, ATTN_F32,
                            attn_shape2(s->n, attn_model_config(s->model)->n_vocab));
    a->stats = (attn_token_stats *)attn_alloc(ctx, s->n, sizeof *a->stats, "losses of tokens");
    return a->stats ? status : ATTN_E_MEMORY;
}

/* *value: the metric of the clean text in a pass that the session's hooks change. The loss of the text's own tokens is
 * in double, as attn_mean_nll has it; other metrics are floats. */
LENS_FN attn_status lens_ablated_value(attn_ctx *ctx, double *value, lens_ablating *a)
{
    const lens_sweep *const s = &a->sweep;
    attn_feed_item item = ATTN_ZERO;
    attn_status status = attn_session_truncate(ctx, s->base, 0);
    float found = 0;
    item.session = s->base;
    item.tokens = s->pair->clean;
    item.n_tokens = s->n;
    item.logits = (float *)s->logits.data;
    if (status == ATTN_OK && lens_metric_is_own_loss(&s->pair->metric)) {
        status = attn_score(ctx, a->stats, NULL, s->base, item.tokens, s->n);
        *value = attn_mean_nll(a->stats, s->n - 1);
        return status;
    }
    if (status == ATTN_OK)
        status = attn_feed_batch(ctx, &item, 1);
    if (status == ATTN_OK)
        status = lens_sweep_value(ctx, &found, s, s->base, item.tokens, s->logits);
    *value = (double)found;
    return status;
}

/* Adds one text to the sums: its metric, and the changes without each head. */
LENS_FN attn_status lens_ablate_text(attn_ctx *ctx, lens_ablating *a, size_t index)
{
    const attn_config *const c = attn_model_config(a->sweep.model);
    const size_t n = (size_t)c->n_layer * c->n_head;
    float *const each = a->d->each ? a->d->each + index * (2 + n) : NULL;
    double whole = 0, value = 0;
    attn_edit edit = ATTN_ZERO;
    char name[64];
    attn_status status = lens_ablate_room(ctx, a);
    uint32_t hook;
    if (status == ATTN_OK)
        status = lens_ablated_value(ctx, &whole, a);
    a->whole += whole;
    if (each) {
        each[0] = (float)whole;
        each[1] = NAN;
    }
    edit.name = name;
    edit.kind = ATTN_EDIT_ZERO;
    edit.n_heads = 1;
    for (size_t i = 0; i < n && status == ATTN_OK; i++) {
        snprintf(name, sizeof name, "blocks.%llu.attn.hook_z", LENS_LLU(i / c->n_head));
        edit.first_head = i % c->n_head;
        if ((status = attn_hook_edit(ctx, &hook, a->sweep.base, &edit)) == ATTN_OK &&
            (status = lens_ablated_value(ctx, &value, a)) == ATTN_OK)
            status = attn_unhook(ctx, a->sweep.base, hook);
        a->changes[i] += value - whole;
        if (each)
            each[2 + i] = (float)(value - whole);
        if (status == ATTN_OK)
            status = lens_progress(a->d->progress, a->d->user,
                                   ((double)index + (double)(i + 1) / (double)n) /
                                       (double)a->d->n_pairs);
    }
    return status;
}

LENS_FN attn_status lens_need_ablate(attn_ctx *ctx, const attn_model *model,
                                     const lens_ablate_desc *d)
{
    static const char op[] = "lens_ablate_heads";
    if (lens_need_described(ctx, op, model, d) || lens_need_edits(ctx, op, d->edits, d->n_edits))
        return lens_failure(ctx);
    if (!d->pairs || d->n_pairs == 0)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no text given", op);
    for (size_t i = 0; i < d->n_pairs; i++)
        if (lens_need_tokens(ctx, op, model, d->pairs[i].clean, d->pairs[i].n_tokens) ||
            lens_need_metric(ctx, op, &d->pairs[i].metric, attn_model_config(model)->n_vocab,
                             d->pairs[i].n_tokens))
            return lens_failure(ctx);
    return ATTN_OK;
}

/* changes [L * H]: the metric when the z of one head is zero, so that the head adds nothing to the stream, less *whole,
 * that of the unchanged model; means over the texts. Both are doubles, which a failed call leaves undefined. Each number
 * is that of a whole forward pass. ATTN_STOPPED if a metric or desc->progress asks to stop. */
LENS_FN attn_status lens_ablate_heads(attn_ctx *ctx, double *changes, double *whole,
                                      const attn_model *model, const lens_ablate_desc *desc)
{
    lens_ablating a = ATTN_ZERO;
    attn_status status = lens_need_ablate(ctx, model, desc);
    if (status != ATTN_OK)
        return status;
    if (!changes || !whole)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "lens_ablate_heads: no place for the %s given (NULL)",
                         changes ? "metric" : "changes");
    size_t n = (size_t)attn_model_config(model)->n_layer * attn_model_config(model)->n_head;
    a.d = desc;
    a.changes = changes;
    memset(changes, 0, n * sizeof *changes);
    for (size_t i = 0; i < desc->n_pairs && status == ATTN_OK; i++) {
        const lens_pair *const pair = &desc->pairs[i];
        a.sweep = lens_sweep_of(model, desc->edits, desc->n_edits);
        a.sweep.pair = pair;
        a.sweep.n = pair->n_tokens - pair->metric.from_end;
        status = lens_ablate_text(ctx, &a, i);
        attn_free(a.stats);
        a.stats = NULL;
        lens_sweep_end(ctx, &a.sweep);
    }
    *whole = a.whole / (double)desc->n_pairs;
    for (size_t i = 0; i < n; i++)
        changes[i] /= (double)desc->n_pairs;
    return status;
}

#endif
