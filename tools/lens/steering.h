/* Steering (Turner et al. 2023, activation addition): a direction, the difference of two texts, is added to
 * an activation while the model runs. Uses attn.h's public API only.
 *
 *     attn_tensor direction = ATTN_ZERO;
 *     attn_edit steer = ATTN_ZERO;
 *     if (lens_steering_vector(&ctx, &direction, model, "blocks.2.hook_resid_pre", &happy, &sad))
 *         return 1;
 *     steer.name = "blocks.2.hook_resid_pre", steer.kind = ATTN_EDIT_ADD;
 *     attn_scale(&ctx, &steer.value, direction, 4);
 *     attn_hook_edit(&ctx, NULL, session, &steer);       at every position that is fed later
 */
#ifndef LENS_STEERING_H
#define LENS_STEERING_H

#include "result.h"

/* A text. */
typedef struct lens_tokens {
    const attn_token *ids; /* [n] */
    size_t n;
} lens_tokens;

/* Adds sign * the mean over positions of a text's activation [T, width] to sum [1, width]. */
LENS_FN attn_status lens_add_mean(attn_ctx *ctx, attn_tensor sum, const attn_model *model,
                                  const char *name, const lens_tokens *text, float sign)
{
    attn_record_desc what = ATTN_ZERO;
    attn_session_desc size = ATTN_ZERO;
    attn_session *session = NULL;
    attn_record *record = NULL;
    attn_tensor value = ATTN_ZERO, mean = ATTN_ZERO, row;
    what.names = &name;
    what.n_names = 1;
    size.n_ctx = what.n_positions = text->n;
    int failed = attn_session_new(ctx, &session, model, &size) ||
                 attn_record_new(ctx, &record, session, &what) ||
                 attn_feed(ctx, session, text->ids, text->n) ||
                 attn_record_get(ctx, &value, record, name) ||
                 attn_mean(ctx, &mean, attn_transpose(value, 0, 1));
    if (!failed) {
        row = attn_transpose(mean, 0, 1);
        failed = attn_scale(ctx, &mean, mean, sign) || attn_add(ctx, &sum, sum, row);
    }
    attn_session_free(session);
    attn_record_free(record);
    attn_tensor_free(ctx, &mean);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* out [1, C]: the mean of an activation over the positions of one text, minus its mean over another text.
 * `name` is one activation [T, C], such as "blocks.2.hook_resid_pre". The texts may differ in length. */
LENS_FN attn_status lens_steering_vector(attn_ctx *ctx, attn_tensor *out, const attn_model *model,
                                         const char *name, const lens_tokens *towards,
                                         const lens_tokens *away)
{
    static const char op[] = "lens_steering_vector";
    lens_result result;
    if (!name || !towards || !away || strchr(name, '*'))
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "%s: expected two texts and the name of one activation", op);
    if (lens_need_layer(ctx, op, model, 0) ||
        lens_need_tokens(ctx, op, model, towards->ids, towards->n) ||
        lens_need_tokens(ctx, op, model, away->ids, away->n) ||
        lens_begin(ctx, op, out, attn_shape2(1, attn_model_config(model)->d_model), &result))
        return lens_failure(ctx);
    attn_status status = lens_add_mean(ctx, result.numbers, model, name, towards, 1);
    if (status == ATTN_OK)
        status = lens_add_mean(ctx, result.numbers, model, name, away, -1);
    return lens_finish(ctx, &result, status);
}

#endif
