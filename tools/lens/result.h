/* What the research headers of this folder share: messages, checks of tensors, and the rule for results. Uses attn.h's public API only.
 *
 * A result follows attn.h's rule: a zeroed *out becomes a new tensor of the context; any other *out must
 * have the result's shape, and receives the numbers. A failed call leaves *out unchanged. So a function
 * computes its numbers in a dense tensor of its own, and gives them to *out at the end:
 *
 *     lens_result r;
 *     if (lens_begin(ctx, "lens_thing", out, attn_shape1(n), &r) != ATTN_OK)
 *         return ctx->status;
 *     status = fill(ctx, (float *)r.numbers.data);
 *     return lens_finish(ctx, &r, status);
 */
#ifndef LENS_RESULT_H
#define LENS_RESULT_H

#include "../write/base.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* After a call that did not give ATTN_OK: its failure, or ATTN_STOPPED. A stop leaves ctx->status alone, so
 * that an older failure may stand there. */
LENS_FN attn_status lens_failure(const attn_ctx *ctx)
{
    return lens_is_stopped(ctx) || ctx->status == ATTN_OK ? ATTN_STOPPED : ctx->status;
}

/* Tells the caller the share of the work that is done; `tell` may be NULL. */
LENS_FN attn_status lens_progress(attn_progress_fn tell, void *user, double done)
{
    return tell && tell(done, user) != 0 ? ATTN_STOPPED : ATTN_OK;
}

/* The name of a part of the stream. */
typedef struct lens_label {
    char text[48];
} lens_label;

/* Checks that x is a tensor of floats. */
LENS_FN attn_status lens_need(attn_ctx *ctx, const char *op, const char *name, attn_tensor x)
{
    if (x.ndim == 0 && !x.error && ctx->status != ATTN_OK)
        return ctx->status; /* an earlier call failed to make x, and its message stays */
    if (x.ndim == 0)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: %s is no tensor%s%s", op, name,
                         x.error ? ": " : "; make it first", x.error ? x.error : "");
    if ((unsigned)x.ndim > 4 || (x.dtype != ATTN_F32 && x.dtype != ATTN_F16))
        return attn_fail(
            ctx, ATTN_E_ARGUMENT,
            "%s: %s has %d dimensions and data type %d; expected 1 to 4 of ATTN_F32 or ATTN_F16",
            op, name, x.ndim, (int)x.dtype);
    return ATTN_OK;
}

/* Checks that there is a model, and that it has the layer. */
LENS_FN attn_status lens_need_layer(attn_ctx *ctx, const char *op, const attn_model *model,
                                    size_t layer)
{
    if (!model)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no model given (NULL)", op);
    if (layer >= attn_model_config(model)->n_layer)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: layer %llu; the model has layers 0 to %zu", op,
                         LENS_LLU(layer), attn_model_config(model)->n_layer - 1);
    return ATTN_OK;
}

/* Checks that there are 1 to n_ctx tokens. (attn_feed checks each token.) */
LENS_FN attn_status lens_need_tokens(attn_ctx *ctx, const char *op, const attn_model *model,
                                     const attn_token *tokens, size_t n_tokens)
{
    if (!tokens || n_tokens == 0)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no tokens given", op);
    if (n_tokens > attn_model_config(model)->n_ctx)
        return attn_fail(ctx, ATTN_E_CONTEXT, "%s: %llu tokens; the model's n_ctx is %zu", op,
                         LENS_LLU(n_tokens), attn_model_config(model)->n_ctx);
    return ATTN_OK;
}

/* ---- results ---- */

typedef struct lens_result {
    attn_tensor numbers; /* dense, f32, zeros at first */
    attn_tensor *out;
} lens_result;

LENS_FN attn_status lens_begin(attn_ctx *ctx, const char *op, attn_tensor *out, attn_shape shape,
                               lens_result *result)
{
    memset(result, 0, sizeof *result);
    if (!out)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no place for the result given (NULL)", op);
    if ((unsigned)out->ndim > 4)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "%s: out has %d dimensions; expected 0 to 4 (was the struct zeroed?)", op,
                         out->ndim);
    if (out->ndim == 0 && out->error)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: out is no tensor: %s", op, out->error);
    if (attn_zeros(ctx, &result->numbers, ATTN_F32, shape) != ATTN_OK)
        return ctx->status;
    result->out = out;
    if (out->ndim > 0 && (out->ndim != shape.ndim ||
                          memcmp(out->shape, result->numbers.shape, sizeof out->shape) != 0)) {
        const lens_shape_text expected = lens_show(result->numbers);
        attn_tensor_free(ctx, &result->numbers);
        return attn_fail(ctx, ATTN_E_SHAPE, "%s: the result has shape %s, but out has shape %s", op,
                         expected.text, lens_show(*out).text);
    }
    return ATTN_OK;
}

/* Gives the numbers to *out, or frees them if `status` is a failure. */
LENS_FN attn_status lens_finish(attn_ctx *ctx, lens_result *result, attn_status status)
{
    if (status == ATTN_OK && result->out->ndim == 0) {
        *result->out = result->numbers;
        return ATTN_OK;
    }
    if (status == ATTN_OK)
        status = attn_copy(ctx, result->out, result->numbers);
    attn_tensor_free(ctx, &result->numbers);
    return status;
}

/* A head of a model. Both numbers count from 0. */
typedef struct lens_head {
    size_t layer, head;
} lens_head;

/* A weight of a layer: layer 3 and "attn.W_Q" give blocks.3.attn.W_Q. ATTN_STOPPED if the caller asks to stop. */
LENS_FN attn_status lens_layer_tensor(attn_ctx *ctx, attn_tensor *out, const attn_model *model,
                                      size_t layer, const char *name)
{
    char full[64];
    if (lens_is_stopped(ctx))
        return ATTN_STOPPED;
    snprintf(full, sizeof full, "blocks.%llu.%s", LENS_LLU(layer), name);
    return attn_model_tensor(ctx, out, model, full);
}

/* The factor by which a layer's scores q · k are multiplied: 1 / √d in GPT-2. */
LENS_FN float lens_score_scale(const attn_config *c, size_t layer)
{
    const float root = c->unscaled_attn ? 1.0f : sqrtf((float)c->d_head);
    return 1.0f / (c->scale_attn_by_inverse_layer_idx ? root * (float)(layer + 1) : root);
}

#endif
