/* Path patching along one direct path, the MLPs frozen (Goldowsky-Dill et al. 2023): does what a
 * head writes matter to one reader of the residual stream? On attn.h's public API alone: records of
 * both texts, one edit, and a pass that begins at the reader's layer.
 *
 * The reader receives the clean result of a head (attn.hook_result); the other heads and the MLPs
 * between the two stay as in the corrupted text. So the reader's input is the corrupted stream plus
 * (clean result - corrupted result). The reader and all that follows are computed again.
 *
 *     attn_patch_desc texts = ATTN_ZERO;                two texts and a question, as for
 *     lens_path path = ATTN_ZERO;                       attn_patch_positions
 *     float value;
 *     texts.clean = clean, texts.corrupted = corrupted, texts.n_tokens = 15;
 *     texts.right = mary, texts.wrong = john;
 *     path.from_layer = 5, path.from_head = 5;
 *     path.to_layer = 7, path.to = "hook_k_input", path.to_head = 3;
 *     if (lens_patch_path(&ctx, &value, model, &texts, &path) == ATTN_OK)
 *         printf("L5H5 to the keys of L7H3: logit difference %.3f\n", value);
 */
#ifndef LENS_PATHS_H
#define LENS_PATHS_H

#include "result.h"

typedef struct lens_path {
    size_t from_layer, from_head;
    size_t to_layer; /* above from_layer; with hook_mlp_in it may be the same */
    const char *to;  /* "hook_resid_pre", "hook_mlp_in", or with to_head "hook_q_input",
                        "hook_k_input", "hook_v_input". "hook_resid_pre" of layer n_layer is the
                        stream that is unembedded */
    size_t to_head;
} lens_path;

/* A path under way: one session, which feeds the clean text and then the corrupted one. */
typedef struct lens_path_run {
    const attn_patch_desc *texts;
    const lens_path *path;
    attn_session *session;
    char sender[64],
        entry[64];          /* the sender's results; the stream that enters the reader's layer */
    attn_tensor difference; /* [T, C]: clean result - corrupted result */
    attn_tensor stream;     /* [T, C]: of the corrupted text */
} lens_path_run;

LENS_FN attn_status lens_check_path(attn_ctx *ctx, const attn_model *model, const lens_path *path)
{
    static const char *const ends[] = {"hook_resid_pre", "hook_mlp_in", "hook_q_input",
                                       "hook_k_input", "hook_v_input"};
    const attn_config *c = attn_model_config(model);
    int end = 0;
    while (end < 5 && !(path->to && strcmp(path->to, ends[end]) == 0))
        end++;
    if (end == 5)
        return lens_fail(ctx, ATTN_E_NAME,
                         "lens_patch_path: expected to be hook_resid_pre, hook_mlp_in, "
                         "hook_q_input, hook_k_input or hook_v_input, not %.60s",
                         path->to ? path->to : "nothing");
    if (path->from_layer >= c->n_layer || path->from_head >= c->n_head ||
        path->to_head >= (end >= 2 ? c->n_head : 1) ||
        path->to_layer >= c->n_layer + (size_t)(end == 0) ||
        path->to_layer < path->from_layer + (size_t)(end != 1))
        return lens_fail(ctx, ATTN_E_ARGUMENT,
                         "lens_patch_path: no path leads from head %llu of layer %llu to %s of "
                         "layer %llu (head %llu)",
                         LENS_LLU(path->from_head), LENS_LLU(path->from_layer), path->to,
                         LENS_LLU(path->to_layer), LENS_LLU(path->to_head));
    return ATTN_OK;
}

LENS_FN attn_status lens_check_texts(attn_ctx *ctx, const attn_model *model,
                                     const attn_patch_desc *texts)
{
    const size_t n_vocab = attn_model_config(model)->n_vocab;
    if (!texts->clean || !texts->corrupted)
        return lens_fail(ctx, ATTN_E_ARGUMENT, "lens_patch_path: no %s text given (NULL)",
                         texts->clean ? "corrupted" : "clean");
    if (texts->n_tokens == 0 || texts->n_tokens > attn_model_config(model)->n_ctx)
        return lens_fail(ctx, ATTN_E_ARGUMENT,
                         "lens_patch_path: texts of %llu tokens; expected 1 to %lu",
                         LENS_LLU(texts->n_tokens), (unsigned long)attn_model_config(model)->n_ctx);
    if (!texts->metric && (texts->right < 0 || (size_t)texts->right >= n_vocab ||
                           texts->wrong < 0 || (size_t)texts->wrong >= n_vocab))
        return lens_fail(ctx, ATTN_E_TOKEN,
                         "lens_patch_path: right is %ld and wrong %ld; the vocabulary is 0 to %llu",
                         (long)texts->right, (long)texts->wrong, LENS_LLU(n_vocab - 1));
    return ATTN_OK;
}

/* Feeds a text with a record of the sender's results, and of the stream that enters the reader's
 * layer if `stream` is given. Adds sign * (the head's result) to run->difference. */
LENS_FN attn_status lens_record_text(attn_ctx *ctx, lens_path_run *run, const int32_t *tokens,
                                     float sign, attn_tensor *stream)
{
    const char *const names[2] = {run->sender, run->entry};
    attn_tensor part = ATTN_ZERO, view;
    attn_record_desc desc = ATTN_ZERO;
    attn_record *record = NULL;
    attn_status status;
    desc.names = names;
    desc.n_names = stream ? 2 : 1;
    desc.n_positions = run->texts->n_tokens;
    status = attn_truncate(ctx, run->session, 0);
    if (status == ATTN_OK)
        status = attn_record_new(ctx, &record, run->session, &desc, NULL, 0);
    if (status == ATTN_OK)
        status = attn_feed(ctx, run->session, tokens, run->texts->n_tokens);
    if (status == ATTN_OK)
        status = attn_record_get(ctx, &view, record, run->sender);
    if (status == ATTN_OK)
        status = attn_scale(ctx, &part, attn_select(view, 1, run->path->from_head), sign);
    if (status == ATTN_OK)
        status = attn_add(ctx, &run->difference, run->difference, part);
    if (status == ATTN_OK && stream)
        status = attn_record_get(ctx, &view, record, run->entry);
    if (status == ATTN_OK && stream)
        status = attn_copy(ctx, stream, view);
    attn_unhook_all(run->session);
    attn_record_free(record);
    attn_tensor_free(ctx, &part);
    return status;
}

/* Feeds the corrupted text from the path's end on, with the difference added there: to the stream
 * itself, or to the reader's copy of it. */
LENS_FN attn_status lens_feed_path(attn_ctx *ctx, lens_path_run *run)
{
    const lens_path *path = run->path;
    attn_feed_item item = ATTN_ZERO;
    attn_edit edit = ATTN_ZERO;
    attn_status status = attn_truncate(ctx, run->session, 0);
    char name[64];
    if (status == ATTN_OK && strcmp(path->to, "hook_resid_pre") == 0) {
        status = attn_add(ctx, &run->stream, run->stream, run->difference);
    } else if (status == ATTN_OK) {
        const attn_tensor d = run->difference;
        snprintf(name, sizeof name, "blocks.%llu.%s", LENS_LLU(path->to_layer), path->to);
        edit.name = name;
        edit.kind = ATTN_EDIT_ADD;
        edit.factor = 1;
        edit.value = d;
        if (strcmp(path->to, "hook_mlp_in") != 0) {
            edit.head = path->to_head;
            edit.n_heads = 1;
            edit.value = attn_reshape(d, attn_shape3(d.shape[0], 1, d.shape[1]));
        }
        status = attn_hook_edit(ctx, NULL, run->session, &edit);
    }
    if (status != ATTN_OK)
        return status;
    item.session = run->session;
    item.tokens = run->texts->corrupted;
    item.n_tokens = run->texts->n_tokens;
    item.layers.resid = (const float *)run->stream.data;
    item.layers.first = path->to_layer;
    return attn_feed_batch(ctx, &item, 1);
}

/* *value: the metric of the corrupted text with the path patched. ATTN_STOPPED if texts->metric asks
 * to stop. */
LENS_FN attn_status lens_patch_path(attn_ctx *ctx, float *value, const attn_model *model,
                                    const attn_patch_desc *texts, const lens_path *path)
{
    attn_session_desc desc = ATTN_ZERO;
    lens_path_run run = ATTN_ZERO;
    attn_status status;
    const float *logits;
    size_t is_last;
    if (lens_need_layer(ctx, "lens_patch_path", model, 0) != ATTN_OK)
        return ctx->status;
    if (!texts || !path || !value)
        return lens_fail(ctx, ATTN_E_ARGUMENT, "lens_patch_path: no %s given (NULL)",
                         !texts  ? "description"
                         : !path ? "path"
                                 : "place for the value");
    if (lens_check_texts(ctx, model, texts) || lens_check_path(ctx, model, path))
        return ctx->status;
    run.texts = texts;
    run.path = path;
    is_last = path->to_layer == attn_model_config(model)->n_layer;
    snprintf(run.sender, sizeof run.sender, "blocks.%llu.attn.hook_result",
             LENS_LLU(path->from_layer));
    snprintf(run.entry, sizeof run.entry, "blocks.%llu.%s", LENS_LLU(path->to_layer - is_last),
             is_last ? "hook_resid_post" : "hook_resid_pre");
    desc.n_ctx = texts->n_tokens;
    status = attn_session_new(ctx, &run.session, model, &desc);
    if (status == ATTN_OK)
        status = attn_zeros(ctx, &run.difference, ATTN_F32,
                            attn_shape2(texts->n_tokens, attn_model_config(model)->d_model));
    if (status == ATTN_OK)
        status = lens_record_text(ctx, &run, texts->clean, 1, NULL);
    if (status == ATTN_OK)
        status = lens_record_text(ctx, &run, texts->corrupted, -1, &run.stream);
    if (status == ATTN_OK)
        status = lens_feed_path(ctx, &run);
    logits = attn_logits(run.session);
    if (status == ATTN_OK && !texts->metric)
        *value = logits[texts->right] - logits[texts->wrong];
    else if (status == ATTN_OK && texts->metric(value, logits, texts->user) != 0)
        status = lens_fail(ctx, ATTN_STOPPED, "the metric asked to stop");
    attn_session_free(run.session);
    attn_tensor_free(ctx, &run.difference);
    attn_tensor_free(ctx, &run.stream);
    return status;
}

#endif
