/* Activation patching of the eight prompts: a corrupted prompt runs with one activation of the clean
 * one. The figures are the mean logit difference, between 0 (as corrupted) and 1 (as clean). */
#ifndef REPRODUCE_PATCHING_H
#define REPRODUCE_PATCHING_H

#include "study.h"

/* Sums of the logit differences over prompts: of what was patched, and of the two texts as they are. */
static void normalise(float *out, size_t n, const attn_patch_baseline *sum)
{
    size_t i;
    for (i = 0; i < n; i++)
        out[i] = (out[i] - sum->corrupted) / (sum->clean - sum->corrupted);
}

/* out [layers, positions], or [layers, heads] at all positions at once. */
static attn_status patch_everywhere(study *s, float *out, const char *name, int heads)
{
    const size_t n = s->n_layer * (heads ? s->n_head : N_TOKENS);
    attn_patch_baseline sum = {0, 0};
    size_t i, j;
    for (i = 0; i < N_PROMPTS && !s->ctx->status; i++) {
        attn_patch_desc desc = ATTN_ZERO;
        attn_patch_baseline one = {0, 0};
        attn_tensor effect = ATTN_ZERO;
        desc.clean = prompts[i];
        desc.corrupted = prompts[i ^ 1];
        desc.n_tokens = N_TOKENS;
        desc.right = answers[i][0];
        desc.wrong = answers[i][1];
        (heads ? attn_patch_heads : attn_patch_positions)(s->ctx, &effect, &one, s->model, &desc,
                                                          name);
        for (j = 0; j < n && !s->ctx->status; j++)
            out[j] += ((const float *)effect.data)[j];
        sum.clean += one.clean;
        sum.corrupted += one.corrupted;
        attn_tensor_free(s->ctx, &effect);
    }
    normalise(out, n, &sum);
    return s->ctx->status;
}

/* The other notebook's prompt, by layer and position of hook_resid_pre. */
static attn_status patch_one(study *s, float *out)
{
    attn_patch_desc desc = ATTN_ZERO;
    attn_patch_baseline one = {0, 0};
    attn_tensor effect = ATTN_ZERO;
    desc.clean = one_prompt[0];
    desc.corrupted = one_prompt[1];
    desc.n_tokens = N_ONE;
    desc.right = one_answer[0];
    desc.wrong = one_answer[1];
    if (!attn_patch_positions(s->ctx, &effect, &one, s->model, &desc, "hook_resid_pre"))
        memcpy(out, effect.data, attn_count(effect) * sizeof *out);
    normalise(out, s->n_layer * N_ONE, &one);
    attn_tensor_free(s->ctx, &effect);
    return s->ctx->status;
}

/* ---- by head and position ----
 *
 * The heads of a layer run together, each in a session of its own for every prompt, from that layer and
 * position on. Later positions come first, so that what a session remembers of earlier ones is always
 * the corrupted text's own. */

typedef struct sweep {
    const char *name; /* "attn.hook_z" */
    attn_workspace *work;
    attn_session *base[N_PROMPTS], *runs[N_HEAD][N_PROMPTS];
    attn_record *clean[N_PROMPTS], *corrupted[N_PROMPTS];
    attn_session *clean_run[N_PROMPTS];
    attn_patch_baseline sum;
} sweep;

static attn_status record_run(study *s, sweep *w, attn_session **session, attn_record **record,
                              size_t i)
{
    char pattern[48];
    const char *names[2] = {pattern, "blocks.*.hook_resid_pre"};
    attn_session_desc size = ATTN_ZERO;
    attn_record_desc what = ATTN_ZERO;
    snprintf(pattern, sizeof pattern, "blocks.*.%s", w->name);
    size.n_ctx = what.n_positions = N_TOKENS;
    size.workspace = w->work;
    what.names = names;
    what.n_names = 2;
    if (!attn_session_new(s->ctx, session, s->model, &size) &&
        !attn_record_new(s->ctx, record, *session, &what, NULL, 0))
        attn_feed(s->ctx, *session, prompts[i], N_TOKENS);
    return s->ctx->status;
}

static attn_status begin_sweep(study *s, sweep *w, const char *name)
{
    attn_workspace_desc room = ATTN_ZERO;
    attn_session_desc size = ATTN_ZERO;
    size_t i, h;
    memset(w, 0, sizeof *w);
    w->name = name;
    room.n_ctx = N_TOKENS;
    attn_workspace_new(s->ctx, &w->work, s->model, &room);
    size.n_ctx = N_TOKENS;
    size.workspace = w->work;
    for (i = 0; i < N_PROMPTS && !s->ctx->status; i++) {
        record_run(s, w, &w->clean_run[i], &w->clean[i], i);
        if (record_run(s, w, &w->base[i], &w->corrupted[i], i ^ 1))
            break;
        w->sum.clean += attn_logits(w->clean_run[i])[answers[i][0]] -
                        attn_logits(w->clean_run[i])[answers[i][1]];
        w->sum.corrupted +=
            attn_logits(w->base[i])[answers[i][0]] - attn_logits(w->base[i])[answers[i][1]];
        for (h = 0; h < s->n_head && !s->ctx->status; h++)
            attn_session_new(s->ctx, &w->runs[h][i], s->model, &size);
    }
    return s->ctx->status;
}

static void end_sweep(sweep *w)
{
    size_t i, h;
    for (i = 0; i < N_PROMPTS; i++) {
        attn_record_free(w->clean[i]);
        attn_record_free(w->corrupted[i]);
        attn_session_free(w->clean_run[i]);
        attn_session_free(w->base[i]);
        for (h = 0; h < N_HEAD; h++)
            attn_session_free(w->runs[h][i]);
    }
    attn_workspace_free(w->work);
}

/* What the clean run has at this layer, position and head, in the shape that an edit takes. */
static attn_status set_clean(study *s, sweep *w, size_t layer, size_t position, size_t head,
                             size_t prompt)
{
    const int is_pattern = strcmp(w->name, "attn.hook_pattern") == 0;
    attn_tensor value = ATTN_ZERO;
    attn_edit edit = ATTN_ZERO;
    char name[48];
    snprintf(name, sizeof name, "blocks.%u.%s", (unsigned)layer, w->name);
    if (attn_record_get(s->ctx, &value, w->clean[prompt], name))
        return s->ctx->status;
    value = attn_slice(attn_slice(value, is_pattern, position, 1), !is_pattern, head, 1);
    edit.name = name;
    edit.kind = ATTN_EDIT_SET;
    edit.position = position;
    edit.n_positions = edit.n_heads = 1;
    edit.head = head;
    edit.value = value;
    return attn_hook_edit(s->ctx, NULL, w->runs[head][prompt], &edit);
}

/* out [heads, positions] at one position of one layer */
static attn_status sweep_position(study *s, sweep *w, float *out, size_t layer, size_t position)
{
    static attn_feed_item items[N_HEAD * N_PROMPTS];
    const size_t width = attn_model_config(s->model)->d_model;
    attn_tensor resid;
    size_t h, i, n = 0;
    char name[48];
    snprintf(name, sizeof name, "blocks.%u.hook_resid_pre", (unsigned)layer);
    for (h = 0; h < s->n_head && !s->ctx->status; h++)
        for (i = 0; i < N_PROMPTS && !s->ctx->status; i++, n++) {
            attn_feed_item *item = &items[n];
            memset(item, 0, sizeof *item);
            if (attn_truncate(s->ctx, w->runs[h][i], position) ||
                set_clean(s, w, layer, position, h, i) ||
                attn_record_get(s->ctx, &resid, w->corrupted[i], name))
                break;
            item->session = w->runs[h][i];
            item->tokens = prompts[i ^ 1] + position;
            item->n_tokens = N_TOKENS - position;
            item->layers.first = layer;
            item->layers.resid = layer ? (const float *)resid.data + position * width : NULL;
        }
    if (!s->ctx->status)
        attn_feed_batch(s->ctx, items, n);
    for (h = 0; h < s->n_head && !s->ctx->status; h++)
        for (i = 0; i < N_PROMPTS; i++) {
            const float *logits = attn_logits(w->runs[h][i]);
            out[h * N_TOKENS + position] += logits[answers[i][0]] - logits[answers[i][1]];
        }
    for (h = 0; h < s->n_head; h++)
        for (i = 0; i < N_PROMPTS; i++)
            attn_unhook_all(w->runs[h][i]);
    return s->ctx->status;
}

/* out [layers, heads, positions] */
static attn_status patch_by_position(study *s, float *out, const char *name, progress *line)
{
    const size_t each = s->n_head * N_TOKENS;
    size_t layer, position, h, i;
    sweep w;
    begin_sweep(s, &w, name);
    for (layer = 0; layer < s->n_layer && !s->ctx->status; layer++) {
        for (h = 0; h < s->n_head; h++)
            for (i = 0; i < N_PROMPTS && !s->ctx->status; i++)
                attn_session_copy(s->ctx, w.runs[h][i], w.base[i]);
        for (position = N_TOKENS; position-- > 0 && !s->ctx->status;) {
            progress_at(line,
                        ((double)layer + 1 - (double)position / N_TOKENS) / (double)s->n_layer);
            if (interrupted)
                tool_fail(s->ctx, ATTN_STOPPED, "stopped by Ctrl-C");
            else
                sweep_position(s, &w, out + layer * each, layer, position);
        }
    }
    end_sweep(&w);
    normalise(out, s->n_layer * each, &w.sum);
    return s->ctx->status;
}

#endif
