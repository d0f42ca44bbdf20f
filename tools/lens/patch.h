/* Activation patching (Vig et al. 2020; Meng et al. 2022): the corrupted text runs with one activation
 * of the clean text. How far does that restore the clean metric? Uses attn.h's public API only.
 *
 *     lens_pair pair = ATTN_ZERO;
 *     lens_patch_desc d = ATTN_ZERO;
 *     attn_tensor effect = ATTN_ZERO;
 *     pair.clean = clean, pair.corrupted = corrupted, pair.n_tokens = 15;
 *     pair.metric.kind = LENS_METRIC_LOGIT_DIFF;
 *     pair.metric.token = mary, pair.metric.against = john;
 *     d.pairs = &pair, d.n_pairs = 1;
 *     d.name = "hook_resid_pre";
 *     if (lens_patch(&ctx, &effect, NULL, model, &d) == ATTN_OK)
 *         printf("layer 3, position 7: %.3f\n", attn_get2(effect, 3, 7));
 *
 * Each number has the bits of a whole forward pass with that patch. But the patches of a layer run in
 * batches, and from that layer and position on (sweep.h). */
#ifndef LENS_PATCH_H
#define LENS_PATCH_H

#include "sweep.h"
#include <stdlib.h>

/* What one patch replaces, and the shape of the result: L layers, T positions, H heads. The functions of
 * TransformerLens that do the same are in parentheses. */
typedef enum lens_patch_kind {
    LENS_PATCH_POSITIONS = 0,  /* [L, T]: a position; of scores and patterns, one query of all heads
                                  (get_act_patch_resid_pre, _attn_out, _mlp_out) */
    LENS_PATCH_HEADS,          /* [L, H]: a head at all positions (.._attn_head_out_all_pos, ..) */
    LENS_PATCH_POSITION_HEADS, /* [L, T, H]: a head at a position; of scores and patterns, at a query
                                  (.._attn_head_out_by_pos, ..; _pattern_by_pos as [L, H, T]) */
    LENS_PATCH_SOURCES,      /* [L, T]: of scores and patterns, one key of all queries and heads */
    LENS_PATCH_SOURCE_HEADS, /* [L, T, H]: of scores and patterns, one key of all queries of a head */
    LENS_PATCH_WEIGHTS /* [L, H, T, T]: of scores and patterns, one head's weight of a query and
                                  a key (.._pattern_dest_src_pos) */
} lens_patch_kind;

typedef struct lens_patch_desc {
    const lens_pair
        *pairs; /* [n_pairs]: the result is the mean over them. All as long as the first,
                               but for LENS_PATCH_HEADS */
    size_t n_pairs;
    const char
        *name; /* what follows "blocks.i.": "hook_resid_pre", "hook_attn_out", "hook_mlp_out",
                             "attn.hook_z", "attn.hook_pattern" .. */
    lens_patch_kind kind;
    int normalize; /* (mean - corrupted mean) / (clean mean - corrupted mean): 0 if the patch
                               changes nothing, 1 if it restores the clean metric; mean -
                               corrupted mean alone where lens_no_gap says so */
    const attn_edit *edits; /* [n_edits]: in force in every run, of both texts */
    size_t n_edits;
    attn_progress_fn progress; /* may be NULL: called after every batch, */
    void *user;                /* with this */
    float *each; /* may be NULL: [n_pairs, 2 + numbers of the result], the metrics of both texts
                    and the numbers of every pair (spread.h) */
} lens_patch_desc;

/* A part of an activation: some heads at some positions, and in scores and patterns some keys. */
typedef struct lens_part {
    size_t head, n_heads;
    size_t position, n_positions; /* n_positions 0: an empty part */
    size_t key, n_keys;
} lens_part;

/* A patch of some keys, for the hook lens_set_keys. */
typedef struct lens_patch_keys {
    attn_tensor clean; /* [H, T, T] */
    lens_part part;
} lens_patch_keys;

typedef struct lens_patching {
    const lens_patch_desc *d;
    lens_sweep sweep;
    int over_keys; /* [H, T, Tk] */
    size_t n_head, n_tokens, n_columns;
    lens_sweep_entry *entries; /* of a layer, [n_columns]; index: the column */
    attn_tensor rows; /* [n_rows, C]: the streams that enter the next layer, of one batch */
    lens_patch_keys keys[LENS_AT_ONCE];
} lens_patching;

/* ---- the parts of an activation ---- */

LENS_FN int lens_patch_is_of_keys(lens_patch_kind kind)
{
    return kind >= LENS_PATCH_SOURCES;
}

LENS_FN int lens_patch_is_of_heads(lens_patch_kind kind)
{
    return kind != LENS_PATCH_POSITIONS && kind != LENS_PATCH_SOURCES;
}

/* Does a patch of this activation leave the keys and values of its own layer as they are? Then it changes
 * only its own row there. */
LENS_FN int lens_stays_in_row(const char *name)
{
    static const char *const others[] = {"hook_resid_pre", "hook_attn_in", "hook_k_input",
                                         "hook_v_input",   "attn.hook_k",  "attn.hook_v"};
    for (int i = 0; i < 6; i++)
        if (strcmp(name, others[i]) == 0)
            return 0;
    return strncmp(name, "ln1.", 4) != 0;
}

/* The part that a column's patch replaces. Positions after the metric's have no effect. */
LENS_FN lens_part lens_part_of(const lens_patching *p, size_t column)
{
    const size_t n = p->sweep.n, n_heads = p->n_head, n_tokens = p->n_tokens;
    const lens_patch_kind kind = p->d->kind;
    lens_part part = {0, n_heads, 0, n, 0, n};
    if (kind == LENS_PATCH_HEADS)
        part.head = column;
    if (kind == LENS_PATCH_POSITION_HEADS || kind == LENS_PATCH_SOURCE_HEADS)
        part.head = column % n_heads;
    if (kind == LENS_PATCH_WEIGHTS)
        part.head = column / n_tokens / n_tokens;
    if (kind == LENS_PATCH_POSITIONS)
        part.position = column;
    if (kind == LENS_PATCH_POSITION_HEADS)
        part.position = column / n_heads;
    if (kind == LENS_PATCH_WEIGHTS)
        part.position = column / n_tokens % n_tokens;
    if (kind == LENS_PATCH_SOURCES) /* the queries that see the key */
        part.key = part.position = column;
    if (kind == LENS_PATCH_SOURCE_HEADS)
        part.key = part.position = column / n_heads;
    if (kind == LENS_PATCH_WEIGHTS)
        part.key = column % n_tokens;
    if (lens_patch_is_of_heads(kind))
        part.n_heads = 1;
    if (lens_patch_is_of_keys(kind))
        part.n_keys = 1;
    if (part.position >= n || part.key > part.position)
        part.n_positions = 0;
    else if (kind == LENS_PATCH_SOURCES || kind == LENS_PATCH_SOURCE_HEADS)
        part.n_positions = n - part.position;
    else if (kind != LENS_PATCH_HEADS)
        part.n_positions = 1;
    return part;
}

/* A view of a part at `count` positions: [count, C], [count, heads, d] or [heads, count, keys]. */
LENS_FN attn_tensor lens_part_at(const lens_patching *p, attn_tensor x, const lens_part *part,
                                 size_t first, size_t count)
{
    x = attn_slice(x, p->over_keys, first, count);
    if (x.ndim == 3)
        x = attn_slice(x, !p->over_keys, part->head, part->n_heads);
    return p->over_keys ? attn_slice(x, 2, part->key, part->n_keys) : x;
}

/* Do both texts have the same bits in this part at this position? */
LENS_FN int lens_same_part(const lens_patching *p, attn_tensor x, attn_tensor y,
                           const lens_part *part, size_t position)
{
    x = lens_part_at(p, x, part, position, 1);
    y = lens_part_at(p, y, part, position, 1);
    if (x.ndim == 2)
        return memcmp(x.data, y.data, x.shape[1] * sizeof(float)) == 0;
    for (size_t i = 0; i < x.shape[0]; i++)
        for (size_t j = 0; j < x.shape[1]; j++) {
            const ptrdiff_t at = (ptrdiff_t)i * x.stride[0] + (ptrdiff_t)j * x.stride[1];
            if (memcmp((const float *)x.data + at, (const float *)y.data + at,
                       x.shape[2] * sizeof(float)) != 0)
                return 0;
        }
    return 1;
}

/* ---- one layer ---- */

/* The patched activation of a layer, from a record. */
LENS_FN attn_status lens_patched(attn_ctx *ctx, attn_tensor *out, const lens_patching *p,
                                 const attn_record *record, size_t layer)
{
    char name[80];
    snprintf(name, sizeof name, "blocks.%llu.%s", LENS_LLU(layer), p->d->name);
    return attn_record_get(ctx, out, record, name);
}

/* Lists the entries of a layer whose patch changes something. `values` of the other columns become the
 * corrupted text's metric. */
LENS_FN attn_status lens_plan_layer(attn_ctx *ctx, lens_patching *p, size_t layer, float *values,
                                    size_t *n_entries)
{
    const size_t n_layer = attn_model_config(p->sweep.model)->n_layer;
    const int one_row = layer + 1 == n_layer && lens_stays_in_row(p->d->name) &&
                        lens_metric_is_local(&p->sweep.pair->metric);
    attn_tensor clean, corrupted;
    size_t n = 0;
    if (lens_patched(ctx, &clean, p, p->sweep.clean, layer) ||
        lens_patched(ctx, &corrupted, p, p->sweep.corrupted, layer))
        return lens_failure(ctx);
    for (size_t column = 0; column < p->n_columns; column++) {
        const lens_part part = lens_part_of(p, column);
        const size_t end = part.position + part.n_positions;
        size_t first = part.position;
        if (one_row && first + 1 < p->sweep.n) /* the metric reads only the last position */
            first = p->sweep.n - 1;
        while (first < end && lens_same_part(p, clean, corrupted, &part, first))
            first++;
        values[column] = p->sweep.values.corrupted;
        if (first < end) {
            p->entries[n].index = column;
            p->entries[n++].first = first;
        }
    }
    qsort(p->entries, n, sizeof *p->entries, lens_compare_entries);
    *n_entries = n;
    return ATTN_OK;
}

/* A hook: replaces weights of the corrupted text by those of the clean one. */
LENS_FN int lens_set_keys(const attn_activation *a, void *user)
{
    const lens_patch_keys *k = (const lens_patch_keys *)user;
    const attn_tensor x = a->value, y = k->clean;
    for (size_t i = k->part.head; i < k->part.head + k->part.n_heads; i++)
        for (size_t j = 0; j < x.shape[1]; j++) { /* the query at a->first + j */
            const size_t t = a->first + j;
            if (t >= k->part.position && t - k->part.position < k->part.n_positions)
                ((float *)x.data)[(ptrdiff_t)i * x.stride[0] + (ptrdiff_t)j * x.stride[1] +
                                  (ptrdiff_t)k->part.key * x.stride[2]] =
                    attn_get3(y, i, t, k->part.key);
        }
    return 0;
}

/* Hooks an entry's patch to session i, which is truncated to the first position of the patch. */
LENS_FN attn_status lens_hook_patch(attn_ctx *ctx, lens_patching *p, size_t i, size_t layer,
                                    const lens_sweep_entry *entry)
{
    const lens_part part = lens_part_of(p, entry->index);
    const size_t count = part.position + part.n_positions - entry->first;
    attn_edit edit = ATTN_ZERO;
    attn_tensor clean;
    char name[80];
    if (lens_patched(ctx, &clean, p, p->sweep.clean, layer) != ATTN_OK)
        return lens_failure(ctx);
    snprintf(name, sizeof name, "blocks.%llu.%s", LENS_LLU(layer), p->d->name);
    if (lens_patch_is_of_keys(p->d->kind)) {
        p->keys[i].clean = clean;
        p->keys[i].part = part;
        return attn_hook(ctx, NULL, p->sweep.sessions[i], name, lens_set_keys, &p->keys[i]);
    }
    edit.name = name;
    edit.kind = ATTN_EDIT_SET;
    edit.first = entry->first;
    edit.count = count;
    edit.first_head = part.head;
    edit.n_heads = lens_patch_is_of_heads(p->d->kind) ? 1 : 0;
    edit.value = lens_part_at(p, clean, &part, entry->first, count);
    return attn_hook_edit(ctx, NULL, p->sweep.sessions[i], &edit);
}

/* Runs only the patched rows through their layer, and appends the corrupted text's later rows: the streams
 * that enter the next layer. */
LENS_FN attn_status lens_run_patched_rows(attn_ctx *ctx, lens_patching *p, size_t layer,
                                          attn_feed_item *items, size_t n)
{
    const size_t width = attn_model_config(p->sweep.model)->d_model;
    float *to = (float *)p->rows.data;
    attn_feed_item rows[LENS_AT_ONCE];
    attn_tensor stream;
    char next[64];
    snprintf(next, sizeof next, "blocks.%llu.hook_resid_post", LENS_LLU(layer));
    if (attn_record_get(ctx, &stream, p->sweep.corrupted, next) != ATTN_OK)
        return lens_failure(ctx);
    for (size_t i = 0; i < n; i++) {
        const size_t n_rows = items[i].n_tokens, first = p->sweep.n - n_rows;
        memcpy(to, (const float *)stream.data + first * width, n_rows * width * sizeof *to);
        rows[i] = items[i];
        rows[i].n_tokens = 1;
        rows[i].layers.end = layer + 1;
        rows[i].layers.resid_out = to;
        items[i].layers.first = layer + 1;
        items[i].layers.resid = to;
        to += n_rows * width;
    }
    attn_status status = attn_feed_batch(ctx, rows, n);
    for (size_t i = 0; i < n && status == ATTN_OK; i++) {
        attn_unhook_all(items[i].session);
        status = attn_session_truncate(ctx, items[i].session, p->sweep.n - items[i].n_tokens);
        if (status == ATTN_OK)
            status = lens_hook_edits(ctx, items[i].session, p->d->edits, p->d->n_edits);
    }
    return status;
}

/* Some entries of one layer, as a batch. */
LENS_FN attn_status lens_patch_some(attn_ctx *ctx, lens_patching *p, size_t layer,
                                    const lens_sweep_entry *entries, size_t n, float *values)
{
    const lens_patch_kind kind = p->d->kind;
    attn_feed_item items[LENS_AT_ONCE];
    float found[LENS_AT_ONCE] = {0};
    attn_status status = ATTN_OK;
    size_t i, n_hooked = 0;
    while (n_hooked < n && status == ATTN_OK) {
        i = n_hooked++;
        status = lens_sweep_item(ctx, &items[i], &p->sweep, i, layer, entries[i].first);
        if (status == ATTN_OK)
            status = lens_hook_patch(ctx, p, i, layer, &entries[i]);
    }
    if (status == ATTN_OK && lens_stays_in_row(p->d->name) &&
        (kind == LENS_PATCH_POSITIONS || kind == LENS_PATCH_POSITION_HEADS ||
         kind == LENS_PATCH_WEIGHTS))
        status = lens_run_patched_rows(ctx, p, layer, items, n);
    if (status == ATTN_OK)
        status = lens_sweep_run(ctx, found, &p->sweep, items, n);
    for (i = 0; i < n_hooked; i++) {
        attn_unhook_all(p->sweep.sessions[i]);
        if (status == ATTN_OK)
            values[entries[i].index] = found[i];
    }
    return status;
}

LENS_FN attn_status lens_patch_layer(attn_ctx *ctx, lens_patching *p, size_t layer, float *values)
{
    size_t n, left = 0, done = 0;
    attn_status status = lens_plan_layer(ctx, p, layer, values, &left);
    if (status == ATTN_OK)
        status = lens_sweep_copy(ctx, &p->sweep, left);
    for (; left > 0 && status == ATTN_OK; left -= n, done += n) {
        n = lens_sweep_batch(&p->sweep, p->entries + done, left);
        status = lens_patch_some(ctx, p, layer, p->entries + done, n, values);
    }
    return status;
}

/* ---- all of it ---- */

/* Adds the values of one pair to sums [L, n_columns]. */
LENS_FN attn_status lens_patch_pair(attn_ctx *ctx, lens_patching *p, float *sums, size_t index)
{
    const size_t n_layer = attn_model_config(p->sweep.model)->n_layer;
    char pattern[80];
    const char *const names[] = {pattern, "*.hook_resid_post"};
    attn_tensor values = ATTN_ZERO;
    snprintf(pattern, sizeof pattern, "blocks.*.%s", p->d->name);
    p->sweep.pair = &p->d->pairs[index];
    attn_status status = lens_sweep_begin(ctx, &p->sweep, names, 1, 2);
    if (status == ATTN_OK)
        status = attn_zeros(ctx, &values, ATTN_F32, attn_shape1(p->n_columns));
    if (status == ATTN_OK)
        status =
            attn_zeros(ctx, &p->rows, ATTN_F32,
                       attn_shape2(p->sweep.n_rows, attn_model_config(p->sweep.model)->d_model));
    for (size_t layer = 0; layer < n_layer && status == ATTN_OK; layer++) {
        status = lens_patch_layer(ctx, p, layer, (float *)values.data);
        for (size_t i = 0; i < p->n_columns && status == ATTN_OK; i++)
            sums[layer * p->n_columns + i] += ((const float *)values.data)[i];
        if (status == ATTN_OK)
            status = lens_progress(p->d->progress, p->d->user,
                                   ((double)index + (double)(layer + 1) / (double)n_layer) /
                                       (double)p->d->n_pairs);
    }
    attn_tensor_free(ctx, &values);
    attn_tensor_free(ctx, &p->rows);
    lens_sweep_end(ctx, &p->sweep);
    return status;
}

/* Checks that every layer has the activation, with the heads or keys that the kind needs. */
LENS_FN attn_status lens_need_patched(attn_ctx *ctx, const attn_model *model,
                                      const lens_patch_desc *d)
{
    attn_record_desc what = ATTN_ZERO;
    char name[80], told[sizeof ctx->message];
    const char *const names[] = {name};
    size_t bytes;
    if (!d->name)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "lens_patch: no name given (NULL)");
    if ((unsigned)d->kind > LENS_PATCH_WEIGHTS)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "lens_patch: kind %d is no lens_patch_kind",
                         (int)d->kind);
    if (strchr(d->name, '*') || strlen(d->name) > 60)
        return attn_fail(ctx, ATTN_E_NAME,
                         "lens_patch: no activation has a name \"blocks.i.\" and then %.60s",
                         d->name);
    snprintf(name, sizeof name, "blocks.0.%s", d->name);
    what.names = names;
    what.n_names = what.n_positions = 1;
    if (attn_record_size(ctx, &bytes, model, &what) != ATTN_OK) {
        memcpy(told, ctx->message, sizeof told);
        return attn_fail(ctx, ctx->status, "lens_patch: %.240s", told);
    }
    if (lens_patch_is_of_heads(d->kind) && lens_axes_named(d->name) == ATTN_AXES_POSITIONS)
        return attn_fail(ctx, ATTN_E_NAME, "lens_patch: %s has no heads", d->name);
    if (lens_patch_is_of_keys(d->kind) && lens_axes_named(d->name) != ATTN_AXES_KEYS)
        return attn_fail(
            ctx, ATTN_E_NAME,
            "lens_patch: %s has no keys; attn.hook_pattern and attn.hook_attn_scores do", d->name);
    return ATTN_OK;
}

LENS_FN attn_status lens_need_patch(attn_ctx *ctx, const attn_model *model,
                                    const lens_patch_desc *d)
{
    if (lens_need_described(ctx, "lens_patch", model, d) != ATTN_OK)
        return lens_failure(ctx);
    if (lens_need_pairs(ctx, "lens_patch", model, d->pairs, d->n_pairs) != ATTN_OK)
        return lens_failure(ctx);
    for (size_t i = 1; i < d->n_pairs && d->kind != LENS_PATCH_HEADS; i++)
        if (d->pairs[i].n_tokens != d->pairs[0].n_tokens)
            return attn_fail(
                ctx, ATTN_E_ARGUMENT,
                "lens_patch: pair %llu has %llu tokens and pair 0 has %llu; a mean over "
                "positions needs as many in all",
                LENS_LLU(i), LENS_LLU(d->pairs[i].n_tokens), LENS_LLU(d->pairs[0].n_tokens));
    if (lens_need_edits(ctx, "lens_patch", d->edits, d->n_edits) != ATTN_OK)
        return lens_failure(ctx);
    return lens_need_patched(ctx, model, d);
}

LENS_FN attn_shape lens_patch_shape(const attn_config *c, const lens_patch_desc *d)
{
    const size_t n_layer = c->n_layer, n_head = c->n_head, n = d->pairs[0].n_tokens;
    switch (d->kind) {
    case LENS_PATCH_HEADS:
        return attn_shape2(n_layer, n_head);
    case LENS_PATCH_POSITION_HEADS:
    case LENS_PATCH_SOURCE_HEADS:
        return attn_shape3(n_layer, n, n_head);
    case LENS_PATCH_WEIGHTS:
        return attn_shape4(n_layer, n_head, n, n);
    default:
        return attn_shape2(n_layer, n);
    }
}

/* out, in the shape of desc->kind: the corrupted text's metric with a part of blocks.layer.`name` from the
 * clean text, as a mean over the pairs. *baseline (may be NULL): the mean metrics of both texts without a
 * patch. ATTN_E_NAME if there is no such activation, or if it lacks the heads or keys that the kind needs;
 * ATTN_STOPPED if the metric or desc->progress asks to stop. Memory: the activation and the residual stream
 * in all layers, and up to 65 sessions. */
LENS_FN attn_status lens_patch(attn_ctx *ctx, attn_tensor *out, lens_baseline *baseline,
                               const attn_model *model, const lens_patch_desc *desc)
{
    lens_patching p = ATTN_ZERO;
    lens_baseline sum = {0, 0};
    lens_result result;
    float *row;
    if (lens_need_patch(ctx, model, desc) ||
        lens_begin(ctx, "lens_patch", out, lens_patch_shape(attn_model_config(model), desc),
                   &result))
        return lens_failure(ctx);
    float *numbers = (float *)result.numbers.data;
    size_t n = attn_count(result.numbers);
    p.d = desc;
    p.over_keys = lens_axes_named(desc->name) == ATTN_AXES_KEYS;
    p.n_head = attn_model_config(model)->n_head;
    p.n_tokens = desc->pairs[0].n_tokens;
    p.n_columns = attn_count(result.numbers) / attn_model_config(model)->n_layer;
    p.entries =
        (lens_sweep_entry *)attn_alloc(ctx, p.n_columns, sizeof *p.entries, "a list of patches");
    attn_status status = p.entries ? ATTN_OK : ATTN_E_MEMORY;
    for (size_t i = 0; i < desc->n_pairs && status == ATTN_OK; i++) {
        p.sweep = lens_sweep_of(model, desc->edits, desc->n_edits);
        row = lens_sweep_row(desc->each, numbers, i, n);
        status = lens_patch_pair(ctx, &p, row, i);
        lens_sweep_add_row(&p.sweep, numbers, row, n);
        sum.clean += p.sweep.values.clean;
        sum.corrupted += p.sweep.values.corrupted;
    }
    attn_free(p.entries);
    if (status == ATTN_OK)
        status = lens_sweep_means(ctx, "lens_patch", result.numbers, &sum, desc->n_pairs,
                                  desc->normalize);
    if (status == ATTN_OK && baseline)
        *baseline = sum;
    return lens_finish(ctx, &result, status);
}

#endif
