/* What a stream, or a part of it, says about the logits: the logit lens and direct logit attribution. On
 * attn.h's public API alone.
 *
 *     attn_tensor own_scale = ATTN_ZERO, all_tokens = ATTN_ZERO;
 *     lens_logit_lens(&ctx, &logits, model, streams, own_scale, all_tokens);
 *
 *     attn_logit_directions(&ctx, &direction, model, &right, &wrong, 1);
 *     lens_logit_attrs(&ctx, &terms, model, parts, scale, direction);    parts: decompose.h
 *
 * A logit is a sum over the parts of the final stream, once the final LayerNorm's scale is taken as given
 * (Elhage et al. 2021; TransformerLens's logit_attrs, with the gain that it expects to be folded):
 *
 *   logit[v] = sum over parts x of ((x - mean(x)) / scale * ln_final.w) · W_U[:, v]
 *              + ln_final.b · W_U[:, v] + b_U[v]
 *
 * to float error. The last two terms are lens_bias_logit_attrs of decompose.h. Quantized weights round their
 * inputs too, so the logits of such a model are off by as much.
 *
 * V = n_vocab, C = d_model, T positions. Activations come from anywhere: a hook, a record, decompose.h. */
#ifndef LENS_LOGITS_H
#define LENS_LOGITS_H

#include "result.h"

/* x [.., T, C] has the width of the model; scale, if it is there, is [T, 1]. */
LENS_FN attn_status lens_need_stream(attn_ctx *ctx, const char *op, const char *name,
                                     const attn_model *model, attn_tensor x, attn_tensor scale)
{
    if (lens_need_layer(ctx, op, model, 0) != ATTN_OK || lens_need(ctx, op, name, x) != ATTN_OK)
        return ctx->status;
    size_t width = attn_model_config(model)->d_model;
    if (x.ndim < 2 || x.shape[x.ndim - 1] != width)
        return attn_fail(ctx, ATTN_E_SHAPE, "%s: %s has shape %s; expected [.., T, %llu]", op, name,
                         lens_show(x).text, LENS_LLU(width));
    if (scale.ndim == 0 && !scale.error)
        return ATTN_OK;
    if (lens_need(ctx, op, "scale", scale) != ATTN_OK)
        return ctx->status;
    size_t n = x.shape[x.ndim - 2];
    if (scale.ndim != 2 || scale.shape[0] != n || scale.shape[1] != 1)
        return attn_fail(ctx, ATTN_E_SHAPE, "%s: scale has shape %s; expected [%llu, 1]", op,
                         lens_show(scale).text, LENS_LLU(n));
    return ATTN_OK;
}

/* *out (a zeroed tensor) becomes (x - mean) / scale. */
LENS_FN attn_status lens_normalize(attn_ctx *ctx, attn_tensor *out, attn_tensor x,
                                   attn_tensor scale)
{
    attn_tensor mean = ATTN_ZERO;
    attn_status status = attn_mean(ctx, &mean, x);
    if (status == ATTN_OK)
        status = attn_sub(ctx, out, x, mean);
    if (status == ATTN_OK)
        status = attn_div(ctx, out, *out, scale);
    attn_tensor_free(ctx, &mean);
    return status;
}

/* out [.., T] = ((x - mean) / scale) · gained, for x [.., T, C] and gained [1 or T, C]; a stack matrix by
 * matrix, so that memory stays small. */
LENS_FN attn_status lens_attribute(attn_ctx *ctx, attn_tensor out, attn_tensor x, attn_tensor scale,
                                   attn_tensor gained)
{
    attn_tensor normed = ATTN_ZERO;
    attn_status status = ATTN_OK;
    for (size_t i = 0; x.ndim > 2 && i < x.shape[0] && status == ATTN_OK; i++)
        status = lens_attribute(ctx, attn_select(out, 0, i), attn_select(x, 0, i), scale, gained);
    if (x.ndim > 2 || x.shape[0] == 0)
        return status;
    status = lens_normalize(ctx, &normed, x, scale);
    if (status == ATTN_OK)
        status = attn_mul(ctx, &normed, normed, gained);
    out = attn_reshape(out, attn_shape2(x.shape[0], 1));
    if (status == ATTN_OK)
        status = attn_sum(ctx, &out, normed);
    attn_tensor_free(ctx, &normed);
    return status;
}

/* out [.., T]: the sum's terms for parts [.., T, C]; scale [T, 1] is ln_final.hook_scale, directions are
 * [1, C], or [T, C] for one at each position. */
LENS_FN attn_status lens_logit_attrs(attn_ctx *ctx, attn_tensor *out, const attn_model *model,
                                     attn_tensor parts, attn_tensor scale, attn_tensor directions)
{
    static const char op[] = "lens_logit_attrs";
    attn_tensor gain = ATTN_ZERO, gained = ATTN_ZERO;
    lens_result result;
    attn_shape shape;
    if (lens_need_stream(ctx, op, "parts", model, parts, scale) != ATTN_OK ||
        lens_need(ctx, op, "scale", scale) != ATTN_OK ||
        lens_need(ctx, op, "directions", directions) != ATTN_OK)
        return ctx->status;
    shape.ndim = parts.ndim - 1;
    for (int i = 0; i < 4; i++)
        shape.dim[i] = i < shape.ndim ? parts.shape[i] : 1;
    if (directions.ndim != 2 || directions.shape[1] != parts.shape[shape.ndim] ||
        (directions.shape[0] != 1 && directions.shape[0] != scale.shape[0]))
        return attn_fail(ctx, ATTN_E_SHAPE,
                         "%s: directions have shape %s; expected [1, %llu] or [%llu, %llu]", op,
                         lens_show(directions).text, LENS_LLU(parts.shape[shape.ndim]),
                         LENS_LLU(scale.shape[0]), LENS_LLU(parts.shape[shape.ndim]));
    if (lens_begin(ctx, op, out, shape, &result) != ATTN_OK)
        return ctx->status;
    attn_status status = attn_model_tensor(ctx, &gain, model, "ln_final.w");
    if (status == ATTN_OK)
        status = attn_mul(ctx, &gained, directions, gain);
    if (status == ATTN_OK)
        status = lens_attribute(ctx, result.numbers, parts, scale, gained);
    attn_tensor_free(ctx, &gain);
    attn_tensor_free(ctx, &gained);
    return lens_finish(ctx, &result, status);
}

/* x = x * w + b, rounded once as in attn_layernorm; x is f32 and dense. */
LENS_FN void lens_affine(attn_tensor x, attn_tensor w, attn_tensor b)
{
    const size_t n = w.shape[0], count = attn_count(x);
    float *const at = (float *)x.data;
    for (size_t i = 0; i < count; i++)
        at[i] = fmaf(at[i], ((const float *)w.data)[i % n], ((const float *)b.data)[i % n]);
}

/* The logit lens (nostalgebraist 2020): the logits of a model that ended at the residual stream
 * [.., T, C]. out is [.., T, V] with `tokens` zeroed, or [.., T, n] for tokens I32 [n]. The stream
 * is normalized in one of two ways. With `scale` zeroed, the final LayerNorm takes the stream's own
 * scale, as if it were the final stream; for the final stream that gives the bits of the model's
 * logits. With `scale` [T, 1], it takes the scale of the real run (ln_final.hook_scale); the logits
 * of two streams then differ by the number that lens_logit_attrs gives for their difference. */
LENS_FN attn_status lens_logit_lens(attn_ctx *ctx, attn_tensor *out, const attn_model *model,
                                    attn_tensor resid, attn_tensor scale, attn_tensor tokens)
{
    attn_tensor w = ATTN_ZERO, b = ATTN_ZERO, normed = ATTN_ZERO;
    const int own = scale.ndim == 0;
    attn_status status = lens_need_stream(ctx, "lens_logit_lens", "resid", model, resid, scale);
    if (status == ATTN_OK)
        status = attn_model_tensor(ctx, &w, model, "ln_final.w");
    if (status == ATTN_OK)
        status = attn_model_tensor(ctx, &b, model, "ln_final.b");
    if (status == ATTN_OK)
        status = own ? attn_layernorm(ctx, &normed, resid, w, b, attn_model_config(model)->ln_eps)
                     : lens_normalize(ctx, &normed, resid, scale);
    if (status == ATTN_OK && !own)
        lens_affine(normed, w, b);
    if (status == ATTN_OK)
        status = attn_model_logits(ctx, out, model, normed, tokens);
    attn_tensor_free(ctx, &w);
    attn_tensor_free(ctx, &b);
    attn_tensor_free(ctx, &normed);
    return status;
}

#endif
