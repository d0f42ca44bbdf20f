/* The library as a WebAssembly module: `make web` builds build/attn.wasm from it.
 *
 * JavaScript calls the functions of attn.h with numbers and addresses in the module's memory, where it fills in and reads
 * structs. Here is what it cannot do so: hooks, and steps between a text and an answer. attn.js is the other half and
 * documents what a program may call. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "tools/lens/decompose.h"
#include "tools/lens/logits.h"
#include "tools/lens/steering.h"
#include <stddef.h>
#include <string.h>

#ifdef __wasm__
#define EXPORT(name)             __attribute__((export_name(#name)))
#define IMPORT(name)             __attribute__((import_module("attn"), import_name(#name)))

/* Where attn.js has members of structs. */
#define MEMBER(type, member, at) _Static_assert(offsetof(type, member) == at, #type)
MEMBER(attn_ctx, message, 28);
MEMBER(attn_tensor, shape, 12);
MEMBER(attn_tensor, stride, 28);
MEMBER(attn_config, bos, 36);
MEMBER(attn_session_desc, cache_dtype, 8);
MEMBER(attn_sampler_desc, seed, 24);
MEMBER(attn_record_desc, n_positions, 12);
MEMBER(attn_edit, value, 24);
MEMBER(attn_prediction, probability, 8);
MEMBER(attn_token_stats, rank, 8);
#else /* for tools that read the code with another compiler */
#define EXPORT(name)
#define IMPORT(name)
#endif

/* JavaScript's part of a hook: 0 goes on, anything else stops. */
IMPORT(hook)
int glue_js_hook(uint32_t number, const char *name, int layer, size_t first,
                 const attn_tensor *value);

static attn_ctx ctx;

/* Whether a multiply-add is fused, and so whether this module's numbers are those of the manual. */
EXPORT(glue_is_exact) int glue_is_exact(void);
int glue_is_exact(void)
{
#ifdef __wasm_relaxed_simd__
    /* (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24: without the fusion it is 0 */
    volatile float a = 1.000244140625f, c = -1.00048828125f;
    const v128_t x = wasm_f32x4_splat(a), z = wasm_f32x4_splat(c);
    return wasm_f32x4_extract_lane(__builtin_wasm_relaxed_madd_f32x4(x, x, z), 0) != 0;
#else
    return 1;
#endif
}

/* The context of all calls. */
EXPORT(glue_ctx) attn_ctx *glue_ctx(void);
attn_ctx *glue_ctx(void)
{
#ifndef __wasm_simd128__
    ctx.isa = ATTN_ISA_PORTABLE; /* slower than the base kernels, and exact */
#endif
    return &ctx;
}

static int call_js(const attn_activation *a, void *user)
{
    return glue_js_hook((uint32_t)(uintptr_t)user, a->name,
                        a->layer == ATTN_NO_LAYER ? -1 : (int)a->layer, a->first, &a->value);
}

/* attn_hook with a function of JavaScript, which gets `number` with every call. */
EXPORT(glue_hook)
int glue_hook(attn_ctx *c, attn_hook_id *id, attn_session *session, const char *name,
              uint32_t number);
int glue_hook(attn_ctx *c, attn_hook_id *id, attn_session *session, const char *name,
              uint32_t number)
{
    return (int)attn_hook(c, id, session, name, call_js, (void *)(uintptr_t)number);
}

/* ---- what the activations say ---- */

/* The logit lens of streams [n, C]: the k likeliest tokens of each, best [n, k]. A status. */
EXPORT(glue_lens)
int glue_lens(const attn_model *model, const float *streams, size_t n, size_t k,
              attn_prediction *best);
int glue_lens(const attn_model *model, const float *streams, size_t n, size_t k,
              attn_prediction *best)
{
    const attn_tensor none = ATTN_ZERO;
    const attn_shape shape = attn_shape2(n, attn_model_config(model)->d_model);
    const attn_top top = {best, k};
    attn_tensor logits = ATTN_ZERO;
    ctx.status = ATTN_OK;
    if (lens_logit_lens(&ctx, &logits, model, attn_borrow(streams, ATTN_F32, shape), none, none) ==
        ATTN_OK)
        attn_logit_stats(&ctx, NULL, &top, logits, NULL);
    attn_tensor_free(&ctx, &logits);
    return (int)ctx.status;
}

/* A direction to steer by, out [C]: the mean of a stream over the first n_towards ids, minus its mean
 * over the n_away that follow them. A status. */
EXPORT(glue_steering)
int glue_steering(const attn_model *model, const char *name, const attn_token *ids,
                  size_t n_towards, size_t n_away, float *out);
int glue_steering(const attn_model *model, const char *name, const attn_token *ids,
                  size_t n_towards, size_t n_away, float *out)
{
    const lens_tokens towards = {ids, n_towards}, away = {ids + n_towards, n_away};
    attn_tensor direction = ATTN_ZERO;
    ctx.status = ATTN_OK;
    if (lens_steering_vector(&ctx, &direction, model, name, &towards, &away) == ATTN_OK)
        memcpy(out, direction.data, attn_model_config(model)->d_model * sizeof *out);
    attn_tensor_free(&ctx, &direction);
    return (int)ctx.status;
}

/* Direct logit attribution: what each of n parts [n, C] of the final stream adds to the logit of a
 * token, out [n], and out[n] the share of the final LayerNorm's bias. A status. */
EXPORT(glue_attribute)
int glue_attribute(const attn_model *model, const float *parts, size_t n, float scale,
                   attn_token token, float *out);
int glue_attribute(const attn_model *model, const float *parts, size_t n, float scale,
                   attn_token token, float *out)
{
    const size_t width = attn_model_config(model)->d_model;
    const attn_tensor x = attn_borrow(parts, ATTN_F32, attn_shape3(n, 1, width));
    const attn_tensor s = attn_borrow(&scale, ATTN_F32, attn_shape2(1, 1));
    attn_tensor direction = ATTN_ZERO, shares = ATTN_ZERO, bias = ATTN_ZERO;
    ctx.status = ATTN_OK;
    if (attn_logit_directions(&ctx, &direction, model, &token, NULL, 1) == ATTN_OK &&
        lens_logit_attrs(&ctx, &shares, model, x, s, direction) == ATTN_OK &&
        lens_bias_logit_attrs(&ctx, &bias, model, &token, NULL, 1) == ATTN_OK) {
        memcpy(out, shares.data, n * sizeof *out);
        out[n] = attn_get1(bias, 0);
    }
    attn_tensor_free(&ctx, &direction);
    attn_tensor_free(&ctx, &shares);
    attn_tensor_free(&ctx, &bias);
    return (int)ctx.status;
}
