/* The weights of attention in their singular vectors: TransformerLens's
 * refactor_factored_attn_matrices. Uses attn.h's public API only.
 *
 * A head depends on its weights only through two products (circuits.h), so other factors of the same
 * products give the same head. For W_QK = U · S · Vᵀ, and the same for W_OV (Elhage et al. 2021):
 *
 *     W_Q = U · √S    W_K = V · √S    W_V = U · S    W_O = Vᵀ    b_O = b_O + b_V · W_O    b_V = 0
 *
 * with b_Q and b_K as last rows of W_Q and W_K. The sign of singular vectors is arbitrary: here the entry of
 * U with the largest magnitude is positive. TransformerLens's may have the other sign.
 *
 *     lens_refactor_attention(&ctx, "out.attn", model);
 */
#ifndef LENS_REFACTOR_H
#define LENS_REFACTOR_H

#include "circuits.h"
#include "../write/writer.h"

/* ---- singular vectors of a product ---- */

/* out [m, r] = x [m, r] · (Rᵀ · v), for a triangle R [r, r] and columns v of length r, which begin `length`
 * numbers apart. */
LENS_FN void lens_times_columns(double *out, attn_tensor x, const double *triangle, const double *v,
                                size_t length)
{
    const size_t m = x.shape[0], r = x.shape[1];
    for (size_t k = 0; k < r; k++) {
        double *column = out + k * m;
        memset(column, 0, m * sizeof *column);
        for (size_t j = 0; j < r; j++) {
            double factor = 0;
            for (size_t i = 0; i <= j; i++) /* R[i, j] is 0 below the diagonal */
                factor += triangle[i * r + j] * v[k * length + i];
            for (size_t i = 0; i < m; i++)
                column[i] += factor * (double)attn_get2(x, i, j);
        }
    }
}

/* Sorts the r columns by the length of their first r numbers, largest first. */
LENS_FN void lens_sort_columns(double *columns, size_t r, size_t length)
{
    for (size_t i = 1; i < r; i++)
        for (size_t j = i; j > 0; j--) {
            double *a = columns + (j - 1) * length, *b = columns + j * length;
            if (!(lens_dot(b, b, r) > lens_dot(a, a, r)))
                break;
            for (size_t k = 0; k < length; k++) {
                const double was = a[k];
                a[k] = b[k];
                b[k] = was;
            }
        }
}

/* left [m, r] · rightᵀ [r, n] = U · S · Vᵀ: left becomes U · S^a and right V · S^(1 - a), with a = 1/2 if
 * `even`, else 1. Both are f32 and dense. QR of both factors, then one-sided Jacobi rotations of
 * R_left · R_rightᵀ, in double: the product of the factors is not computed. A column whose singular value
 * is 0 becomes 0. */
LENS_FN attn_status lens_refactor(attn_ctx *ctx, attn_tensor left, attn_tensor right, int even)
{
    const size_t r = left.shape[1], m = left.shape[0], n = right.shape[0], most = m > n ? m : n;
    double *const first = lens_doubles(ctx, 4 * r + 2 * most, r);
    if (!first)
        return lens_failure(ctx);
    double *second = first + r * r;
    double *core =
        second + r * r; /* columns of R_left · R_rightᵀ · V', and below them the columns of V' */
    double *u = core + 2 * r * r;
    double *v = u + most * r;
    lens_triangle(first, left, u);
    lens_triangle(second, right, u);
    for (size_t j = 0; j < r; j++)
        for (size_t i = 0; i < r; i++) {
            core[j * 2 * r + i] = lens_dot(first + i * r, second + j * r, r);
            core[j * 2 * r + r + i] = i == j;
        }
    lens_rotate_columns(core, r, 2 * r);
    lens_sort_columns(core, r, 2 * r);
    lens_times_columns(u, left, second, core + r, 2 * r);   /* U · S */
    lens_times_columns(v, right, first, core, 2 * r);       /* V · S² */
    double nothing = 1e-13 * sqrt(lens_dot(core, core, r)); /* beside the largest singular value */
    for (size_t j = 0; j < r; j++) {
        const double s = sqrt(lens_dot(core + j * 2 * r, core + j * 2 * r, r));
        const double by = s <= nothing ? 0 : even ? 1 / sqrt(s) : 1;
        const double back = s <= nothing ? 0 : even ? 1 / (s * sqrt(s)) : 1 / (s * s);
        size_t largest = 0;
        for (size_t i = 1; i < m; i++)
            largest = fabs(u[j * m + i]) > fabs(u[j * m + largest]) ? i : largest;
        double sign = u[j * m + largest] < 0 ? -1 : 1;
        for (size_t i = 0; i < m; i++)
            ((float *)left.data)[i * r + j] = (float)(sign * by * u[j * m + i]);
        for (size_t i = 0; i < n; i++)
            ((float *)right.data)[i * r + j] = (float)(sign * back * v[j * n + i]);
    }
    attn_free(first);
    return ATTN_OK;
}

/* ---- one layer ---- */

/* The tensors of one layer's attention, as a file holds them. */
typedef struct lens_attention {
    attn_tensor w_qkv, b_qkv, w_o, b_o; /* [C, 3C], [3C], [C, C], [C] */
} lens_attention;

/* Copies columns of W_QKV to x [rows, d], or with `back` from x. If x has one row more than W_QKV, that row
 * is b_QKV's. */
LENS_FN void lens_copy_factor(const lens_attention *a, attn_tensor x, size_t column, int back)
{
    const size_t width = a->w_qkv.shape[0], d = x.shape[1];
    for (size_t i = 0; i < x.shape[0]; i++)
        for (size_t j = 0; j < d; j++) {
            float *to = (float *)x.data + i * d + j;
            float *from = i < width ? (float *)a->w_qkv.data + i * 3 * width + column + j
                                    : (float *)a->b_qkv.data + column + j;
            *(back ? from : to) = *(back ? to : from);
        }
}

LENS_FN attn_status lens_refactor_head(attn_ctx *ctx, const lens_attention *a, size_t head,
                                       size_t d)
{
    const size_t width = a->w_qkv.shape[0], column = head * d;
    attn_tensor left = ATTN_ZERO, right = ATTN_ZERO;
    float *const b_v = (float *)a->b_qkv.data + 2 * width + column;
    float *const w_o = (float *)a->w_o.data + column * width;
    attn_status status = lens_is_stopped(ctx)
                             ? ATTN_STOPPED
                             : attn_zeros(ctx, &left, ATTN_F32, attn_shape2(width + 1, d));
    if (status == ATTN_OK)
        status = attn_zeros(ctx, &right, ATTN_F32, attn_shape2(width + 1, d));
    if (status == ATTN_OK) {
        lens_copy_factor(a, left, column, 0);
        lens_copy_factor(a, right, width + column, 0);
        status = lens_refactor(ctx, left, right, 1);
    }
    if (status == ATTN_OK) {
        lens_copy_factor(a, left, column, 1);
        lens_copy_factor(a, right, width + column, 1);
        left.shape[0] = right.shape[0] = width; /* W_V and W_O take no row of biases */
        lens_copy_factor(a, left, 2 * width + column, 0);
        for (size_t i = 0; i < width; i++) {
            double bias = (double)((float *)a->b_o.data)[i];
            for (size_t j = 0; j < d; j++) {
                ((float *)right.data)[i * d + j] = w_o[j * width + i];
                bias += (double)b_v[j] * (double)w_o[j * width + i];
            }
            ((float *)a->b_o.data)[i] = (float)bias;
        }
        memset(b_v, 0, d * sizeof *b_v);
        status = lens_refactor(ctx, left, right, 0);
    }
    if (status == ATTN_OK) {
        lens_copy_factor(a, left, 2 * width + column, 1);
        for (size_t i = 0; i < width; i++)
            for (size_t j = 0; j < d; j++)
                w_o[j * width + i] = ((const float *)right.data)[i * d + j];
    }
    attn_tensor_free(ctx, &left);
    attn_tensor_free(ctx, &right);
    return status;
}

LENS_FN void lens_free_attention(attn_ctx *ctx, lens_attention *a)
{
    attn_tensor_free(ctx, &a->w_qkv);
    attn_tensor_free(ctx, &a->b_qkv);
    attn_tensor_free(ctx, &a->w_o);
    attn_tensor_free(ctx, &a->b_o);
}

/* *a: a layer's weights with all heads refactored. The caller frees it. */
LENS_FN attn_status lens_refactor_layer(attn_ctx *ctx, lens_attention *a, const attn_model *model,
                                        size_t layer)
{
    const attn_config *c = attn_model_config(model);
    attn_status status = lens_layer_tensor(ctx, &a->w_qkv, model, layer, "attn.W_QKV");
    if (status == ATTN_OK)
        status = lens_layer_tensor(ctx, &a->b_qkv, model, layer, "attn.b_QKV");
    if (status == ATTN_OK)
        status = lens_layer_tensor(ctx, &a->w_o, model, layer, "attn.W_O");
    if (status == ATTN_OK)
        status = lens_layer_tensor(ctx, &a->b_o, model, layer, "attn.b_O");
    for (size_t head = 0; head < c->n_head && status == ATTN_OK; head++)
        status = lens_refactor_head(ctx, a, head, c->d_head);
    return status;
}

/* ---- the file ---- */

LENS_FN attn_status lens_write_attention(attn_ctx *ctx, lens_writer *w, const attn_model *model,
                                         size_t layer)
{
    const size_t width = attn_model_config(model)->d_model;
    lens_attention a = ATTN_ZERO;
    attn_status status = lens_refactor_layer(ctx, &a, model, layer);
    static const char *const kept[] = {"W_QKV", "b_QKV", "W_O", "b_O"};
    attn_tensor all[4];
    char name[64];
    all[0] = a.w_qkv;
    all[1] = a.b_qkv;
    all[2] = attn_reshape(a.w_o, attn_shape2(width, width));
    all[3] = a.b_o;
    for (size_t i = 0; i < 4 && status == ATTN_OK; i++) {
        snprintf(name, sizeof name, "blocks.%llu.attn.%s", LENS_LLU(layer), kept[i]);
        status = lens_writer_add(ctx, w, name, ATTN_F32, all[i]);
    }
    lens_free_attention(ctx, &a);
    return status;
}

/* lens_refactor_attention, which tells progress_fn (may be NULL) the share that is done. ATTN_STOPPED if progress_fn
 * asks to stop; no file is written then. */
LENS_FN attn_status lens_refactor_attention_told(attn_ctx *ctx, const char *path,
                                                 const attn_model *model,
                                                 attn_progress_fn progress_fn, void *user)
{
    lens_writer *w = NULL;
    model_tensor info;
    size_t size;
    if (!path)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "lens_refactor_attention: no path given");
    if (lens_need_layer(ctx, "lens_refactor_attention", model, 0) != ATTN_OK)
        return lens_failure(ctx);
    const void *section = model_tokenizer_section(&size, model);
    attn_status status = lens_writer_new(ctx, &w, path, attn_model_config(model), section, size);
    if (status == ATTN_OK)
        status = lens_writer_made_from(ctx, w, model, "refactored attention");
    for (size_t i = 0; i < model_n_tensors(model) && status == ATTN_OK; i++) {
        attn_tensor x = ATTN_ZERO;
        info = model_tensor_at(model, i);
        if (strstr(info.name, ".attn.") || strncmp(info.name, "head.", 5) == 0)
            continue;
        status = attn_model_tensor(ctx, &x, model, info.name);
        if (status == ATTN_OK)
            status = lens_writer_add(ctx, w, info.name, ATTN_F32, x);
        attn_tensor_free(ctx, &x);
    }
    size_t n_layer = attn_model_config(model)->n_layer;
    for (size_t i = 0; i < n_layer && status == ATTN_OK; i++) {
        status = lens_write_attention(ctx, w, model, i);
        if (status == ATTN_OK)
            status = lens_progress(progress_fn, user, (double)(i + 1) / (double)n_layer);
    }
    if (status == ATTN_OK)
        status = lens_writer_end(ctx, w);
    lens_writer_free(w);
    return status;
}

/* Writes a model of f32 whose attention is refactored, and whose other weights and tokenizer are the
 * same. */
LENS_FN attn_status lens_refactor_attention(attn_ctx *ctx, const char *path,
                                            const attn_model *model)
{
    return lens_refactor_attention_told(ctx, path, model, NULL, NULL);
}

#endif
