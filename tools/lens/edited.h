/* Backward formulas for a model with edits, where an edit stands between two activations of one formula
 * of gradients.h: in a LayerNorm's scale, in the heads' results, in the heads' copies of the stream. This
 * file is part of gradients.h, which includes it below the types that it uses. */
#include "gradients.h"
#ifndef LENS_EDITED_H
#define LENS_EDITED_H

/* Formula 2 for a LayerNorm whose scale is edited. The edits change the scale s0 to s, and the LayerNorm
 * computes n = (x - mean(x)) / s. The gradient of s is d s = -C / s * mean(g * n); the edits take it back
 * to d s0 (changes.h). Then
 *
 *     d x = (g - mean(g) + d s0 / C * s / s0 * s * n) / s
 *
 * Without edits s = s0 and d s = d s0, and this is formula 2. */
LENS_FN attn_status lens_back_edited_scale(attn_ctx *ctx, const lens_pass *p, int layer,
                                           const char *name, attn_tensor d, attn_tensor n)
{
    const attn_tensor s = lens_seen(ctx, p, layer, name);
    const attn_tensor was = lens_seen_before(ctx, p, layer, name);
    const size_t rows = d.shape[0], width = d.shape[1];
    attn_tensor d_scale = ATTN_ZERO, means = ATTN_ZERO;
    int failed =
        attn_zeros(ctx, &d_scale, ATTN_F32, attn_shape2(rows, 1)) || attn_mean(ctx, &means, d);
    size_t row, i;
    for (row = 0; row < rows && !failed; row++) {
        const float *g = (const float *)d.data + row * width;
        double products = 0;
        for (i = 0; i < width; i++)
            products += (double)g[i] * (double)attn_get2(n, row, i);
        ((float *)d_scale.data)[row] = (float)(-products / (double)attn_get2(s, row, 0));
    }
    failed = failed || lens_pass_on(ctx, p, layer, name, d_scale);
    for (row = 0; row < rows && !failed; row++) {
        float *g = (float *)d.data + row * width;
        const double by = (double)attn_get2(s, row, 0);
        const double part = (double)attn_get2(d_scale, row, 0) / (double)width * by /
                            (double)attn_get2(was, row, 0) * by;
        for (i = 0; i < width; i++)
            g[i] = (float)(((double)g[i] - (double)attn_get2(means, row, 0) +
                            (double)(float)part * (double)attn_get2(n, row, i)) /
                           by);
    }
    attn_tensor_free(ctx, &d_scale);
    attn_tensor_free(ctx, &means);
    return failed ? ctx->status : ATTN_OK;
}

/* Formula 6 for edited head results: *z [T, C] becomes d z, head by head, from d attn_out [T, C]. */
LENS_FN attn_status lens_back_edited_results(attn_ctx *ctx, const lens_pass *p, int layer,
                                             attn_tensor *z, attn_tensor d_out)
{
    const attn_config *c = attn_model_config(p->b->model);
    const size_t n = d_out.shape[0], width = c->d_model;
    attn_tensor o = ATTN_ZERO, all = ATTN_ZERO, by_head = ATTN_ZERO, to;
    size_t head;
    int failed = lens_layer_tensor(ctx, &o, p->b->model, (size_t)layer, "attn.W_O") ||
                 attn_zeros(ctx, &all, ATTN_F32, attn_shape3(n, c->n_head, width)) ||
                 attn_zeros(ctx, z, ATTN_F32, attn_shape2(n, width));
    for (head = 0; head < c->n_head && !failed; head++) {
        to = attn_select(all, 1, head);
        failed = attn_copy(ctx, &to, d_out) != ATTN_OK;
    }
    if (!failed) { /* [H, T, d] = [H, T, C] · [H, C, d] */
        to = lens_heads_of(p, *z);
        failed = lens_pass_on(ctx, p, layer, "attn.hook_result", all) ||
                 attn_matmul(ctx, &by_head, lens_by_head(all), attn_transpose(o, 1, 2)) ||
                 attn_copy(ctx, &to, lens_by_head(by_head));
    }
    attn_tensor_free(ctx, &o);
    attn_tensor_free(ctx, &all);
    attn_tensor_free(ctx, &by_head);
    return failed ? ctx->status : ATTN_OK;
}

/* Do edits make the heads' input differ from ln1's output, or a head's copy of the stream from the
 * stream? */
LENS_FN int lens_copies_differ(const lens_pass *p, int layer)
{
    int i, any = lens_is_edited_in(p, layer, "ln1.hook_scale") ||
                 lens_is_edited_in(p, layer, "ln1.hook_normalized.pre");
    for (i = 0; i < 4; i++)
        any |= lens_is_edited_in(p, layer, lens_head_inputs[i]);
    return any;
}

/* Does an edit name the copy that a head's queries, keys or values have of a position? */
LENS_FN int lens_copy_is_edited(const lens_pass *p, int layer, const char *name, size_t t, size_t h)
{
    const char *const names[] = {lens_head_inputs[0], name};
    const size_t n_head = attn_model_config(p->b->model)->n_head;
    size_t i, j, first, end;
    for (i = 0; i < p->b->n_edits; i++)
        for (j = 0; j < 2; j++) {
            const attn_edit *e = &p->b->edits[i];
            const size_t n_heads = e->n_heads ? e->n_heads : n_head - e->head;
            if (!lens_means(e->name, lens_name_in(layer, names[j]).text))
                continue;
            lens_edited_positions(e, names[j], n_heads == 1, p->desc->n_tokens, &first, &end);
            if (t >= first && t < end && h >= e->head && h - e->head < n_heads)
                return 1;
        }
    return 0;
}

/* n [H * T, C], the normalized copies x [T, H, C] of all heads, and their scales [H * T, 1]. */
LENS_FN attn_status lens_normalize_copies(attn_ctx *ctx, attn_tensor *n, attn_tensor *scale,
                                          attn_tensor x, float eps)
{
    const size_t rows = x.shape[0] * x.shape[1], width = x.shape[2];
    attn_tensor dense = ATTN_ZERO, mean = ATTN_ZERO, flat;
    size_t i;
    int failed = attn_copy(ctx, &dense, lens_by_head(x)) != ATTN_OK;
    flat = attn_reshape(dense, attn_shape2(rows, width));
    failed = failed || attn_mean(ctx, &mean, flat) || attn_variance(ctx, scale, flat, 0);
    for (i = 0; i < rows && !failed; i++)
        ((float *)scale->data)[i] = sqrtf(((float *)scale->data)[i] + eps);
    failed = failed || attn_sub(ctx, n, flat, mean) || attn_div(ctx, n, *n, *scale);
    attn_tensor_free(ctx, &dense);
    attn_tensor_free(ctx, &mean);
    return failed ? ctx->status : ATTN_OK;
}

/* *d [H, T, C]: the gradients of the copies that heads read as queries, keys or values (part 0, 1, 2),
 * for those of q, k or v [T, H, d]: 8. and 2. head by head, with each copy's own LayerNorm. */
LENS_FN attn_status lens_back_copies_of(attn_ctx *ctx, const lens_pass *p, int layer, size_t part,
                                        attn_tensor gradient, attn_tensor *d)
{
    static const char *const weights[] = {"attn.W_Q", "attn.W_K", "attn.W_V"};
    const char *const name = lens_head_inputs[1 + part];
    const float eps = attn_model_config(p->b->model)->ln_eps;
    attn_tensor w = ATTN_ZERO, n = ATTN_ZERO, scale = ATTN_ZERO, moment = ATTN_ZERO, flat;
    int failed = /* [H, T, C] = [H, T, d] · [H, d, C] */
        lens_layer_tensor(ctx, &w, p->b->model, (size_t)layer, weights[part]) ||
        attn_matmul(ctx, d, lens_by_head(gradient), attn_transpose(w, 1, 2)) ||
        attn_mul(ctx, d, *d, p->b->layers[layer].ln1_w) ||
        lens_normalize_copies(ctx, &n, &scale, lens_seen(ctx, p, layer, name), eps);
    if (!failed) {
        flat = attn_reshape(*d, attn_shape2(n.shape[0], n.shape[1]));
        failed = lens_layernorm_back(ctx, flat, n, scale, &moment) != ATTN_OK;
    }
    attn_tensor_free(ctx, &w);
    attn_tensor_free(ctx, &n);
    attn_tensor_free(ctx, &scale);
    attn_tensor_free(ctx, &moment);
    return failed ? ctx->status : ATTN_OK;
}

/* A head reads an edited copy in place of the stream. So the gradients d [H, T, C] of edited copies are
 * added to through [T, H, C], and the gradient of q, k or v [T, H, d] at those places becomes 0, so that
 * it does not reach the stream through ln1 as well. */
LENS_FN void lens_part_copies(const lens_pass *p, int layer, const char *name, attn_tensor gradient,
                              attn_tensor d, attn_tensor through)
{
    const size_t n_head = d.shape[0], n = d.shape[1], width = d.shape[2];
    size_t t, h, i;
    for (h = 0; h < n_head; h++)
        for (t = 0; t < n; t++) {
            const float *from = (const float *)d.data + (h * n + t) * width;
            float *to = (float *)through.data + (t * n_head + h) * width;
            float *left = (float *)gradient.data + (ptrdiff_t)t * gradient.stride[0] +
                          (ptrdiff_t)h * gradient.stride[1];
            if (!lens_copy_is_edited(p, layer, name, t, h))
                continue;
            for (i = 0; i < width; i++)
                to[i] += from[i];
            memset(left, 0, gradient.shape[2] * sizeof *left);
        }
}

/* The gradient through all edited copies of a layer. qkv [T, 3C] holds the gradients of queries, keys
 * and values. *copies (a zeroed tensor) becomes the gradient [T, C] that reaches the stream through
 * edited copies. */
LENS_FN attn_status lens_back_edited_copies(attn_ctx *ctx, const lens_pass *p, int layer,
                                            attn_tensor qkv, attn_tensor *copies)
{
    const attn_config *c = attn_model_config(p->b->model);
    const size_t width = c->d_model;
    const attn_shape shape = attn_shape3(qkv.shape[0], c->n_head, width);
    attn_tensor sum = ATTN_ZERO, through = ATTN_ZERO, d = ATTN_ZERO;
    size_t i;
    int failed = attn_zeros(ctx, &sum, ATTN_F32, shape) ||
                 attn_zeros(ctx, &through, ATTN_F32, shape) ||
                 attn_zeros(ctx, copies, ATTN_F32, attn_shape2(qkv.shape[0], width));
    for (i = 0; i < 3 && !failed; i++) {
        const attn_tensor part = lens_heads_of(p, attn_slice(qkv, 1, i * width, width));
        const char *const name = lens_head_inputs[1 + i];
        failed = lens_back_copies_of(ctx, p, layer, i, part, &d) ||
                 lens_pass_on(ctx, p, layer, name, lens_by_head(d)) ||
                 attn_add(ctx, &sum, sum, lens_by_head(d));
        if (!failed)
            lens_part_copies(p, layer, name, part, d, through);
    }
    failed = failed || lens_give(ctx, p, layer, lens_head_inputs[0], sum);
    if (!failed)
        lens_back_edits(p->b->edits, p->b->n_edits, layer, lens_head_inputs[0], through);
    for (i = 0; i < c->n_head && !failed; i++)
        failed = attn_add(ctx, copies, *copies, attn_select(through, 1, i)) != ATTN_OK;
    attn_tensor_free(ctx, &sum);
    attn_tensor_free(ctx, &through);
    attn_tensor_free(ctx, &d);
    return failed ? ctx->status : ATTN_OK;
}

#endif
