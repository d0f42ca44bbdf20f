/* Sparse autoencoders: an activation as a sum of a few of many directions, its features (Cunningham et
 * al. 2023; Bricken et al. 2023). Transcoders: the output of an MLP as such a sum, whose features are found
 * in the MLP's input (Dunefsky et al. 2024). Features can be read, and changed while the model runs. Uses
 * attn.h's public API only; sae_files.h reads the files that SAELens writes.
 *
 *     lens_sae sae = ATTN_ZERO;
 *     lens_sae_watch watch = ATTN_ZERO;
 *     const lens_sae_change changes[] = {{417, LENS_SAE_CLAMP, 8}};
 *     if (lens_sae_open(&ctx, &sae, "my-sae") != ATTN_OK)
 *         return 1;
 *     watch.sae = &sae;
 *     watch.keep_error = 1;                        the stream keeps the reconstruction error
 *     watch.changes = changes, watch.n_changes = 1;
 *     if (lens_sae_attach(&ctx, session, &watch) == ATTN_OK)
 *         attn_feed(&ctx, session, tokens, n);     feature 417 is 8 at every token
 *     lens_sae_end(&watch);
 *
 * For x [T, n] and m features, row by row:
 *
 *     y       = normalized(x) - b_dec             (b_dec only if apply_b_dec)
 *     pre     = y · W_enc + b_enc                 [T, m] = [T, n] · [n, m]
 *     feature = max(pre, 0)                       standard
 *               pre > threshold ? max(pre, 0) : 0 JumpReLU (Rajamanoharan et al. 2024b)
 *               max(pre, 0) of the k largest      top-k (Gao et al. 2024)
 *               y · W_enc + b_gate > 0 ? max((y · W_enc) * exp(r_mag) + b_mag, 0) : 0
 *                                                 gated (Rajamanoharan et al. 2024a)
 *     x̂       = undo(feature · W_dec + b_dec)     [T, n] = [T, m] · [m, n]
 *
 * A transcoder has no b_dec in the first line, and in the last one W_dec and b_dec of the width of its
 * output; a skip transcoder adds x · W_skip. It does not undo the normalization.
 *
 * Normalization is none; or each row is rescaled to the norm √n; or each row minus its mean is divided by
 * (standard deviation + 1e-5), with n - 1 in the deviation's denominator. undo reverses it with the row's
 * own numbers; as in SAELens, it multiplies by the deviation without 1e-5. */
#ifndef LENS_SAE_H
#define LENS_SAE_H

#include "result.h"
#include <math.h>
#include <stdlib.h>

typedef enum lens_sae_kind {
    LENS_SAE_STANDARD = 0,
    LENS_SAE_JUMPRELU,
    LENS_SAE_TOPK,
    LENS_SAE_GATED
} lens_sae_kind;

typedef enum lens_sae_norm {
    LENS_SAE_NORM_NONE = 0,
    LENS_SAE_NORM_CONSTANT, /* constant_norm_rescale */
    LENS_SAE_NORM_LAYER     /* layer_norm */
} lens_sae_norm;

/* An autoencoder or a transcoder. n = d_in, m = d_sae; all tensors are f32. A matrix is [rows, columns], or panels from
 * lens_pack if 16 divides its number of columns. attn_linear takes both, but packs rows again in each call. */
typedef struct lens_sae {
    lens_sae_kind kind;
    lens_sae_norm norm;
    size_t n, m, k;  /* k: of top-k */
    int apply_b_dec; /* b_dec is subtracted before encoding */
    int is_signed; /* JumpReLU and top-k choose among pre, not max(pre, 0), as circuit-tracer's do */
    int by_decoder_norm; /* top-k: features are multiplied by |row of W_dec|, and decoded accordingly */
    size_t n_out;        /* of a transcoder: the width of its output; otherwise 0 */
    char hook[64];       /* the activation that is encoded */
    char hook_out[64]; /* of a transcoder: the activation that it predicts; otherwise "" */
    attn_tensor w_enc, w_dec, b_dec; /* [n, m], [m, n], [n]; of a transcoder [m, n_out], [n_out] */
    attn_tensor w_skip;              /* of a skip transcoder: [n, n_out] */
    attn_tensor b_enc;               /* [m]; GATED: b_gate */
    attn_tensor threshold;           /* [m], JUMPRELU */
    attn_tensor gain, b_mag;         /* [m], GATED: exp(r_mag), b_mag */
    attn_tensor norms;               /* [m], with by_decoder_norm: |row of W_dec| */
} lens_sae;

/* Frees the tensors. ctx must be the context that made them. */
LENS_FN void lens_sae_free(attn_ctx *ctx, lens_sae *s)
{
    attn_tensor *const all[] = {&s->w_enc, &s->w_dec,     &s->b_dec, &s->w_skip, &s->b_enc,
                                &s->gain,  &s->threshold, &s->b_mag, &s->norms};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        attn_tensor_free(ctx, all[i]);
    memset(s, 0, sizeof *s);
}

/* The width of what it rebuilds or predicts. */
LENS_FN size_t lens_sae_width(const lens_sae *s)
{
    return s->n_out ? s->n_out : s->n;
}

/* ---- encoding ---- */

/* What undo needs of each row. */
typedef struct lens_sae_scales {
    attn_tensor mean, scale; /* [T, 1]; undo: x * scale + mean */
} lens_sae_scales;

LENS_FN void lens_sae_free_scales(attn_ctx *ctx, lens_sae_scales *s)
{
    attn_tensor_free(ctx, &s->mean);
    attn_tensor_free(ctx, &s->scale);
}

/* *y, a new tensor [T, n], becomes normalized(x), and *s what undo needs. */
LENS_FN attn_status lens_sae_normalize(attn_ctx *ctx, attn_tensor *y, lens_sae_scales *s,
                                       const lens_sae *sae, attn_tensor x)
{
    attn_tensor squares = ATTN_ZERO;
    int failed = attn_scale(ctx, y, x, 1) != ATTN_OK; /* f32, dense */
    if (sae->norm == LENS_SAE_NORM_NONE || failed)
        return failed ? lens_failure(ctx) : ATTN_OK;
    if (sae->norm == LENS_SAE_NORM_LAYER)
        failed = attn_mean(ctx, &s->mean, *y) || attn_sub(ctx, y, *y, s->mean) ||
                 attn_variance(ctx, &s->scale, *y, 1);
    else
        failed = attn_mul(ctx, &squares, *y, *y) || attn_mean(ctx, &s->scale, squares);
    attn_tensor_free(ctx, &squares);
    for (size_t t = 0; t < x.shape[0] && !failed; t++) {
        const float root = sqrtf(((float *)s->scale.data)[t]);
        ((float *)s->scale.data)[t] = sae->norm == LENS_SAE_NORM_LAYER ? root + 1e-5f : root;
    }
    failed = failed || attn_div(ctx, y, *y, s->scale);
    for (size_t t = 0; t < x.shape[0] && !failed && sae->norm == LENS_SAE_NORM_LAYER; t++)
        ((float *)s->scale.data)[t] -= 1e-5f; /* undo multiplies by the deviation only */
    return failed ? lens_failure(ctx) : ATTN_OK;
}

typedef struct lens_ranked {
    float value;
    size_t index;
} lens_ranked;

/* Larger values first; equal values by their index. */
LENS_FN int lens_compare_ranked(const void *a, const void *b)
{
    const lens_ranked *x = (const lens_ranked *)a, *y = (const lens_ranked *)b;
    if (x->value != y->value)
        return x->value < y->value ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Sets all but the k largest numbers of a row to 0. */
LENS_FN void lens_keep_largest(float *row, size_t m, size_t k, lens_ranked *room)
{
    for (size_t i = 0; i < m; i++) {
        room[i].value = row[i];
        room[i].index = i;
    }
    qsort(room, m, sizeof *room, lens_compare_ranked);
    for (size_t i = k; i < m; i++)
        row[room[i].index] = 0;
}

/* JumpReLU of a row that is above 0, or a signed one. */
LENS_FN void lens_zero_below(float *row, size_t m, const float *threshold)
{
    for (size_t i = 0; i < m; i++)
        row[i] = row[i] > threshold[i] ? row[i] : 0;
}

/* Rows of pre [T, m] become features. (lens_sae_gate is for GATED.) */
LENS_FN attn_status lens_sae_activate(attn_ctx *ctx, attn_tensor pre, const lens_sae *sae)
{
    lens_ranked *room = NULL;
    attn_status status = ATTN_OK;
    if (sae->kind == LENS_SAE_TOPK && sae->by_decoder_norm)
        status = attn_mul(ctx, &pre, pre, sae->norms);
    if (status == ATTN_OK && sae->kind == LENS_SAE_TOPK &&
        (room = (lens_ranked *)attn_alloc(ctx, sae->m, sizeof *room, "a list of features")) == NULL)
        status = ctx->status;
    if (status == ATTN_OK && (!sae->is_signed || sae->kind == LENS_SAE_STANDARD))
        status = attn_apply_mlp_act(ctx, &pre, pre, ATTN_ACT_RELU);
    for (size_t t = 0; t < pre.shape[0] && status == ATTN_OK; t++) {
        float *row = (float *)pre.data + t * sae->m;
        if (sae->kind == LENS_SAE_TOPK)
            lens_keep_largest(row, sae->m, sae->k, room);
        else if (sae->kind == LENS_SAE_JUMPRELU)
            lens_zero_below(row, sae->m, (const float *)sae->threshold.data);
    }
    attn_free(room);
    return status;
}

/* GATED: features [T, m], which hold y · W_enc, become features. */
LENS_FN attn_status lens_sae_gate(attn_ctx *ctx, attn_tensor features, const lens_sae *sae)
{
    attn_tensor gate = ATTN_ZERO;
    size_t n = attn_count(features);
    const int failed = attn_add(ctx, &gate, features, sae->b_enc) ||
                       attn_mul(ctx, &features, features, sae->gain) ||
                       attn_add(ctx, &features, features, sae->b_mag);
    for (size_t i = 0; i < n && !failed; i++)
        if (!(((float *)gate.data)[i] > 0) || !(((float *)features.data)[i] > 0))
            ((float *)features.data)[i] = 0;
    attn_tensor_free(ctx, &gate);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* What an autoencoder of its kind needs and this one does not have; NULL: nothing. */
LENS_FN const char *lens_sae_lack(const lens_sae *s)
{
    const int gated = s->kind == LENS_SAE_GATED;
    return !s->w_enc.ndim                                       ? "w_enc"
           : !s->w_dec.ndim                                     ? "w_dec"
           : !s->b_dec.ndim                                     ? "b_dec"
           : !s->b_enc.ndim                                     ? "b_enc"
           : s->kind == LENS_SAE_TOPK && !s->k                  ? "k"
           : s->kind == LENS_SAE_JUMPRELU && !s->threshold.ndim ? "threshold"
           : gated && !s->gain.ndim                             ? "gain"
           : gated && !s->b_mag.ndim                            ? "b_mag"
           : s->by_decoder_norm && !s->norms.ndim               ? "norms"
                                                                : NULL;
}

LENS_FN attn_status lens_sae_need(attn_ctx *ctx, const char *op, const lens_sae *sae, attn_tensor x,
                                  size_t width)
{
    if (!sae || sae->n == 0)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no autoencoder given; lens_sae_open reads one",
                         op);
    if (lens_sae_lack(sae))
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: the autoencoder has no %s", op,
                         lens_sae_lack(sae));
    if (lens_need(ctx, op, "x", x) != ATTN_OK)
        return lens_failure(ctx);
    if (x.ndim != 2 || x.shape[1] != width)
        return attn_fail(ctx, ATTN_E_SHAPE, "%s: x has shape %s; expected [T, %llu]", op,
                         lens_show(x).text, LENS_LLU(width));
    return ATTN_OK;
}

LENS_FN attn_status lens_sae_features(attn_ctx *ctx, attn_tensor features, lens_sae_scales *scales,
                                      const lens_sae *sae, attn_tensor x)
{
    attn_tensor y = ATTN_ZERO, none = ATTN_ZERO;
    const int gated = sae->kind == LENS_SAE_GATED;
    int failed = lens_sae_normalize(ctx, &y, scales, sae, x) != ATTN_OK;
    failed = failed || (sae->apply_b_dec && attn_sub(ctx, &y, y, sae->b_dec)) ||
             attn_linear(ctx, &features, y, sae->w_enc, gated ? none : sae->b_enc) ||
             (gated ? lens_sae_gate(ctx, features, sae) : lens_sae_activate(ctx, features, sae));
    attn_tensor_free(ctx, &y);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* out [T, m]: the features of x [T, n]; 0 if they are not active. */
LENS_FN attn_status lens_sae_encode(attn_ctx *ctx, attn_tensor *out, const lens_sae *sae,
                                    attn_tensor x)
{
    static const char op[] = "lens_sae_encode";
    lens_sae_scales scales = ATTN_ZERO;
    lens_result result;
    if (lens_sae_need(ctx, op, sae, x, sae ? sae->n : 0) ||
        lens_begin(ctx, op, out, attn_shape2(x.shape[0], sae->m), &result))
        return lens_failure(ctx);
    attn_status status = lens_sae_features(ctx, result.numbers, &scales, sae, x);
    lens_sae_free_scales(ctx, &scales);
    return lens_finish(ctx, &result, status);
}

/* ---- decoding ---- */

LENS_FN attn_status lens_sae_rebuild(attn_ctx *ctx, attn_tensor out, const lens_sae_scales *scales,
                                     const lens_sae *sae, attn_tensor features)
{
    attn_tensor scaled = ATTN_ZERO;
    const int failed =
        (sae->by_decoder_norm && attn_div(ctx, &scaled, features, sae->norms)) ||
        attn_linear(ctx, &out, sae->by_decoder_norm ? scaled : features, sae->w_dec, sae->b_dec) ||
        (!sae->n_out && scales->scale.ndim > 0 && attn_mul(ctx, &out, out, scales->scale)) ||
        (!sae->n_out && scales->mean.ndim > 0 && attn_add(ctx, &out, out, scales->mean));
    attn_tensor_free(ctx, &scaled);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* *skip, a new tensor [T, n_out]: x · W_skip; zeroed if there is no W_skip. */
LENS_FN attn_status lens_sae_skip(attn_ctx *ctx, attn_tensor *skip, const lens_sae *sae,
                                  attn_tensor x)
{
    const attn_tensor none = ATTN_ZERO;
    return sae->w_skip.ndim > 0 && attn_linear(ctx, skip, x, sae->w_skip, none) ? lens_failure(ctx)
                                                                                : ATTN_OK;
}

/* out [T, n], of a transcoder [T, n_out]: the reconstruction from features [T, m]. x [T, n] are the
 * activations that were encoded; undo and W_skip need them. x may be zeroed without either. */
LENS_FN attn_status lens_sae_decode(attn_ctx *ctx, attn_tensor *out, const lens_sae *sae,
                                    attn_tensor features, attn_tensor x)
{
    static const char op[] = "lens_sae_decode";
    lens_sae_scales scales = ATTN_ZERO;
    attn_tensor y = ATTN_ZERO;
    lens_result result;
    int failed = 0;
    if (lens_sae_need(ctx, op, sae, features, sae ? sae->m : 0))
        return lens_failure(ctx);
    int undo = sae->norm != LENS_SAE_NORM_NONE && !sae->n_out;
    if ((undo || sae->w_skip.ndim > 0) && lens_sae_need(ctx, op, sae, x, sae->n))
        return lens_failure(ctx);
    if (lens_begin(ctx, op, out, attn_shape2(features.shape[0], lens_sae_width(sae)), &result))
        return lens_failure(ctx);
    failed = (undo && lens_sae_normalize(ctx, &y, &scales, sae, x)) ||
             lens_sae_rebuild(ctx, result.numbers, &scales, sae, features);
    if (!failed && sae->w_skip.ndim > 0)
        failed = lens_sae_skip(ctx, &y, sae, x) ||
                 attn_add(ctx, &result.numbers, result.numbers, y) != ATTN_OK;
    attn_tensor_free(ctx, &y);
    lens_sae_free_scales(ctx, &scales);
    return lens_finish(ctx, &result, failed ? lens_failure(ctx) : ATTN_OK);
}

/* ---- in a running model ---- */

typedef enum lens_sae_change_kind {
    LENS_SAE_CLAMP = 0, /* the feature becomes `value` (0: ablated), active or not */
    LENS_SAE_SCALE,     /* the feature is multiplied by `value` */
    LENS_SAE_STEER      /* `value` is added to the feature: the stream moves along its direction */
} lens_sae_change_kind;

typedef struct lens_sae_change {
    size_t feature;
    lens_sae_change_kind kind;
    float value;
} lens_sae_change;

/* What lens_sae_attach does to one session. Zero it and set its first fields. It must outlive the hooks; then
 * call lens_sae_end. For a transcoder x is the activation that it predicts. */
typedef struct lens_sae_watch {
    const lens_sae *sae;
    int keep_error; /* 0: x̂ replaces x. 1: x + (x̂ with the changes - x̂ without them) replaces x */
    const lens_sae_change *changes; /* [n_changes], applied in this order at every position */
    size_t n_changes;
    attn_ctx ctx; /* its message says why the hook stopped the feed */
    /* of a transcoder, from the input to the output of a pass: features [T, m], x · W_skip [T, n_out] */
    attn_tensor features, skip;
} lens_sae_watch;

LENS_FN void lens_sae_apply(const lens_sae_watch *w, attn_tensor features)
{
    for (size_t i = 0; i < w->n_changes; i++)
        for (size_t t = 0; t < features.shape[0]; t++) {
            const lens_sae_change *c = &w->changes[i];
            float *at = (float *)features.data + t * w->sae->m + c->feature;
            if (c->kind == LENS_SAE_CLAMP)
                *at = c->value;
            else if (c->kind == LENS_SAE_SCALE)
                *at *= c->value;
            else
                *at += c->value;
        }
}

/* x [T, width] becomes the reconstruction with the changes, from features that are not changed yet; see
 * lens_sae_watch.keep_error. */
LENS_FN attn_status lens_sae_write(attn_ctx *ctx, attn_tensor x, const lens_sae_watch *w,
                                   attn_tensor features, const lens_sae_scales *scales)
{
    attn_tensor plain = ATTN_ZERO, changed = ATTN_ZERO;
    int failed = attn_zeros(ctx, &changed, ATTN_F32, attn_shape2(x.shape[0], x.shape[1])) ||
                 (w->keep_error && (attn_copy(ctx, &plain, changed) ||
                                    lens_sae_rebuild(ctx, plain, scales, w->sae, features)));
    if (!failed)
        lens_sae_apply(w, features);
    failed =
        failed || lens_sae_rebuild(ctx, changed, scales, w->sae, features) ||
        (!w->keep_error && w->skip.ndim > 0 && attn_add(ctx, &changed, changed, w->skip)) ||
        (w->keep_error ? attn_sub(ctx, &changed, changed, plain) || attn_add(ctx, &x, x, changed)
                       : attn_copy(ctx, &x, changed) != ATTN_OK);
    attn_tensor_free(ctx, &plain);
    attn_tensor_free(ctx, &changed);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* Frees what a transcoder keeps between its input and its output. */
LENS_FN void lens_sae_end(lens_sae_watch *w)
{
    attn_tensor_free(&w->ctx, &w->features);
    attn_tensor_free(&w->ctx, &w->skip);
}

/* *features, a new tensor [T, m], of x [T, n]; *scales: what undo needs. */
LENS_FN attn_status lens_sae_see(attn_ctx *ctx, attn_tensor *features, lens_sae_scales *scales,
                                 const lens_sae *sae, attn_tensor x)
{
    return attn_zeros(ctx, features, ATTN_F32, attn_shape2(x.shape[0], sae->m)) ||
                   lens_sae_features(ctx, *features, scales, sae, x)
               ? lens_failure(ctx)
               : ATTN_OK;
}

/* An autoencoder's x [T, n] becomes its reconstruction with the changes. */
LENS_FN attn_status lens_sae_replace(attn_ctx *ctx, attn_tensor x, const lens_sae_watch *w)
{
    attn_tensor features = ATTN_ZERO;
    lens_sae_scales scales = ATTN_ZERO;
    const int failed = lens_sae_see(ctx, &features, &scales, w->sae, x) ||
                       lens_sae_write(ctx, x, w, features, &scales);
    attn_tensor_free(ctx, &features);
    lens_sae_free_scales(ctx, &scales);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* A transcoder at one of its activations: it keeps the features of its input, or writes its output. */
LENS_FN attn_status lens_sae_transcode(lens_sae_watch *w, const char *name, attn_tensor x)
{
    lens_sae_scales scales = ATTN_ZERO;
    int failed;
    if (strcmp(name, w->sae->hook) == 0) {
        lens_sae_end(w);
        failed = lens_sae_see(&w->ctx, &w->features, &scales, w->sae, x) ||
                 (!w->keep_error && lens_sae_skip(&w->ctx, &w->skip, w->sae, x));
        lens_sae_free_scales(&w->ctx, &scales);
    } else if (w->features.ndim != 2 || w->features.shape[0] != x.shape[0]) {
        return attn_fail(&w->ctx, ATTN_E_ARGUMENT,
                         "%s: the transcoder has not seen its input, %s, in this pass", name,
                         w->sae->hook);
    } else {
        failed = lens_sae_write(&w->ctx, x, w, w->features, &scales) != ATTN_OK;
        lens_sae_end(w);
    }
    return failed ? lens_failure(&w->ctx) : ATTN_OK;
}

/* An attn_hook_fn; user is a lens_sae_watch. In an activation with heads, all heads of a position are one
 * row. */
LENS_FN int lens_sae_hook(const attn_activation *a, void *user)
{
    lens_sae_watch *w = (lens_sae_watch *)user;
    attn_tensor x = a->value;
    size_t width = 0;
    w->ctx.n_threads = 1; /* the call that runs this hook has threads already */
    if (x.ndim == 3)
        x = attn_reshape(x, attn_shape2(x.shape[0], x.shape[1] * x.shape[2]));
    if (w->sae)
        width = strcmp(a->name, w->sae->hook) == 0 ? w->sae->n : lens_sae_width(w->sae);
    if (lens_sae_need(&w->ctx, a->name, w->sae, x, width))
        return 1;
    for (size_t i = 0; i < w->n_changes; i++)
        if (w->changes[i].feature >= w->sae->m) {
            attn_fail(&w->ctx, ATTN_E_ARGUMENT, "feature %llu; the autoencoder has 0 to %llu",
                      LENS_LLU(w->changes[i].feature), LENS_LLU(w->sae->m - 1));
            return 1;
        }
    return (w->sae->n_out ? lens_sae_transcode(w, a->name, x) : lens_sae_replace(&w->ctx, x, w)) !=
           ATTN_OK;
}

/* Hooks what a watch needs: an autoencoder's activation, or the input and the output of a transcoder. */
LENS_FN attn_status lens_sae_attach(attn_ctx *ctx, attn_session *session, lens_sae_watch *w)
{
    static const char op[] = "lens_sae_attach";
    if (!w || !w->sae || w->sae->n == 0)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no autoencoder given; lens_sae_open reads one",
                         op);
    if (w->sae->n_out && strcmp(w->sae->hook, w->sae->hook_out) == 0)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: input and output of the transcoder are both %s",
                         op, w->sae->hook);
    return attn_hook(ctx, NULL, session, w->sae->hook, lens_sae_hook, w) ||
                   (w->sae->n_out &&
                    attn_hook(ctx, NULL, session, w->sae->hook_out, lens_sae_hook, w))
               ? lens_failure(ctx)
               : ATTN_OK;
}

/* 1 - |x - x̂|² / |x - mean over positions|² for x and x̂ [T, n]: the share of variance that the
 * reconstruction explains. NaN if all rows are equal. */
LENS_FN double lens_sae_explained(attn_tensor x, attn_tensor rebuilt)
{
    double error = 0, variance = 0;
    for (size_t i = 0; i < x.shape[1]; i++) {
        double mean = 0;
        for (size_t t = 0; t < x.shape[0]; t++)
            mean += (double)attn_get2(x, t, i);
        mean /= (double)x.shape[0];
        for (size_t t = 0; t < x.shape[0]; t++) {
            const double value = (double)attn_get2(x, t, i);
            const double off = value - (double)attn_get2(rebuilt, t, i);
            error += off * off;
            variance += (value - mean) * (value - mean);
        }
    }
    return variance > 0 ? 1 - error / variance : (double)NAN;
}

#endif
