/* The library as a WebAssembly module: `make web` builds build/attn.wasm from it.
 *
 * JavaScript hands over numbers and addresses in the module's memory, so every function here takes
 * and returns those alone. Structs of more than a few numbers are filled in here. A function that
 * can fail returns 0 or NULL for success or failure as its comment says, and glue_message() then
 * has the sentence. attn.js is the other half and documents what a program may call. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "tools/lens/decompose.h"
#include "tools/lens/logits.h"
#include "tools/lens/steering.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef __wasm__
#define EXPORT(name) __attribute__((export_name(#name)))
#define IMPORT(name) __attribute__((import_module("attn"), import_name(#name)))
#else /* for tools that read the code with another compiler */
#define EXPORT(name)
#define IMPORT(name)
#endif

/* JavaScript's part of a hook: 0 goes on, anything else stops. `view` is glue_view's. */
IMPORT(hook)
int glue_js_hook(uint32_t number, const char *name, int layer, size_t first, const uint32_t *view);

static attn_ctx ctx;

/* A tensor for JavaScript: address, number of dimensions, 4 sizes, 4 strides in elements. */
static uint32_t view_words[10];

static const uint32_t *view_of(attn_tensor x)
{
    int i;
    view_words[0] = (uint32_t)(uintptr_t)x.data;
    view_words[1] = (uint32_t)x.ndim;
    for (i = 0; i < 4; i++) {
        view_words[2 + i] = (uint32_t)x.shape[i];
        view_words[6 + i] = (uint32_t)x.stride[i];
    }
    return view_words;
}

/* ---- memory, errors ---- */

EXPORT(glue_alloc) void *glue_alloc(size_t size);
void *
glue_alloc(size_t size) /* aligned to 64 bytes, as a model wants to be; NULL if there is none */
{
    if (size > SIZE_MAX - 63)
        return NULL;
    return aligned_alloc(64, (size + 63) / 64 * 64);
}

EXPORT(glue_free) void glue_free(void *block);
void glue_free(void *block)
{
    free(block);
}

EXPORT(glue_message) const char *glue_message(void);
const char *glue_message(void)
{
    return ctx.message;
}

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

EXPORT(glue_isa) const char *glue_isa(void);
const char *glue_isa(void)
{
#ifndef __wasm_simd128__
    ctx.isa = ATTN_ISA_PORTABLE; /* slower than the base kernels, and exact */
#endif
    return attn_isa(&ctx);
}

/* ---- models, text ---- */

EXPORT(glue_open) attn_model *glue_open(const void *data, size_t size);
attn_model *glue_open(const void *data, size_t size)
{
    attn_model *model = NULL;
    glue_isa();
    attn_model_open_memory(&ctx, &model, data, size, NULL);
    return model;
}

EXPORT(glue_close) void glue_close(attn_model *model);
void glue_close(attn_model *model)
{
    attn_model_close(model);
}

/* n_vocab, n_ctx, d_model, n_head, n_layer, d_mlp, d_head, bos, eos, whether it has a tokenizer */
EXPORT(glue_config) const int32_t *glue_config(const attn_model *model);
const int32_t *glue_config(const attn_model *model)
{
    static int32_t words[10];
    const attn_config *c = attn_model_config(model);
    const size_t sizes[] = {c->n_vocab, c->n_ctx, c->d_model, c->n_head,
                            c->n_layer, c->d_mlp, c->d_head};
    int i;
    for (i = 0; i < 7; i++)
        words[i] = (int32_t)sizes[i];
    words[7] = c->bos;
    words[8] = c->eos;
    words[9] = attn_model_tokenizer(model) != NULL;
    return words;
}

/* 0 if a text goes on after this token; 1 if the token ends it and belongs to it, as a full stop may;
 * 2 if it is a special token, which is left out. */
EXPORT(glue_ends) int glue_ends(const attn_model *model, attn_token token);
int glue_ends(const attn_model *model, attn_token token)
{
    if (!attn_config_is_eos(attn_model_config(model), token))
        return 0;
    return attn_tokenizer_is_special(attn_model_tokenizer(model), token) ? 2 : 1;
}

/* Ids [n], with their number before them; the caller frees them. NULL on failure. */
EXPORT(glue_encode) int32_t *glue_encode(const attn_model *model, const char *text, size_t size);
int32_t *glue_encode(const attn_model *model, const char *text, size_t size)
{
    size_t n = size;
    attn_token *ids = NULL;
    if (size < SIZE_MAX / sizeof *ids - 1)
        ids = (int32_t *)malloc((size + 1) * sizeof *ids);
    if (!ids) {
        strcpy(ctx.message, "there is no memory for the ids of this text");
        return NULL;
    }
    if (attn_encode(&ctx, ids + 1, &n, attn_model_tokenizer(model), text, size)) {
        free(ids);
        return NULL;
    }
    ids[0] = (int32_t)n;
    return ids;
}

static size_t token_size;

EXPORT(glue_token) const char *glue_token(const attn_model *model, attn_token id);
const char *glue_token(const attn_model *model,
                       attn_token id) /* its bytes, glue_token_size() of them */
{
    token_size = 0;
    return attn_token_bytes(&token_size, attn_model_tokenizer(model), id);
}

EXPORT(glue_token_size) size_t glue_token_size(void);
size_t glue_token_size(void)
{
    return token_size;
}

/* A weight by TransformerLens's name, as a view; glue_tensor_free frees it. NULL on failure. */
static attn_tensor weight;

EXPORT(glue_weight) const uint32_t *glue_weight(const attn_model *model, const char *name);
const uint32_t *glue_weight(const attn_model *model, const char *name)
{
    attn_tensor_free(&ctx, &weight);
    return attn_model_tensor(&ctx, &weight, model, name) ? NULL : view_of(weight);
}

EXPORT(glue_weight_free) void glue_weight_free(void);
void glue_weight_free(void)
{
    attn_tensor_free(&ctx, &weight);
}

/* ---- sessions ---- */

EXPORT(glue_session) attn_session *glue_session(const attn_model *model, size_t n_ctx, int is_half);
attn_session *glue_session(const attn_model *model, size_t n_ctx, int is_half)
{
    attn_session *session = NULL;
    attn_session_desc desc = ATTN_ZERO;
    desc.n_ctx = n_ctx;
    desc.cache_dtype = is_half ? ATTN_F16 : ATTN_F32;
    attn_session_new(&ctx, &session, model, &desc);
    return session;
}

EXPORT(glue_session_free) void glue_session_free(attn_session *session);
void glue_session_free(attn_session *session)
{
    attn_session_free(session);
}

EXPORT(glue_feed) int glue_feed(attn_session *session, const attn_token *ids, size_t n);
int glue_feed(attn_session *session, const attn_token *ids, size_t n) /* a status */
{
    return (int)attn_feed(&ctx, session, ids, n);
}

EXPORT(glue_truncate) int glue_truncate(attn_session *session, size_t length);
int glue_truncate(attn_session *session, size_t length) /* a status */
{
    return (int)attn_session_truncate(&ctx, session, length);
}

EXPORT(glue_length) size_t glue_length(const attn_session *session);
size_t glue_length(const attn_session *session)
{
    return attn_session_length(session);
}

EXPORT(glue_capacity) size_t glue_capacity(const attn_session *session);
size_t glue_capacity(const attn_session *session)
{
    return attn_session_capacity(session);
}

EXPORT(glue_tokens) const int32_t *glue_tokens(const attn_session *session);
const int32_t *glue_tokens(const attn_session *session)
{
    return attn_session_tokens(session);
}

EXPORT(glue_logits) const float *glue_logits(const attn_session *session);
const float *glue_logits(const attn_session *session) /* NULL before the first feed */
{
    return attn_session_logits(session);
}

/* Feeds ids and tells, for each position, the k likeliest next tokens and their probabilities, [n, k]
 * each, and the losses of ids[1] to ids[n - 1] in nats, [n - 1]. A status. */
EXPORT(glue_score)
int glue_score(attn_session *session, const attn_token *ids, size_t n, size_t k, attn_token *tokens,
               float *probabilities);
int glue_score(attn_session *session, const attn_token *ids, size_t n, size_t k, attn_token *tokens,
               float *probabilities)
{
    attn_token_stats *stats = (attn_token_stats *)calloc(n, sizeof *stats);
    attn_top top = ATTN_ZERO;
    float *const losses = probabilities + n * k;
    attn_status status = ATTN_E_MEMORY;
    size_t i;
    top.k = k;
    top.best = (attn_prediction *)calloc(n * k, sizeof *top.best);
    if (stats && top.best)
        status = attn_score(&ctx, stats, &top, session, ids, n);
    for (i = 0; status == ATTN_OK && i < n * k; i++) {
        tokens[i] = top.best[i].token;
        probabilities[i] = top.best[i].probability;
    }
    for (i = 0; status == ATTN_OK && i + 1 < n; i++)
        losses[i] = stats[i].nll;
    free(stats);
    free(top.best);
    return (int)status;
}

/* The numbers: temperature, top_k, top_p, min_p, repeat_penalty, repeat_last, and the lower and the
 * upper 32 bits of the seed, which one double could not hold. */
EXPORT(glue_sampler) attn_sampler *glue_sampler(const attn_model *model, const double *numbers);
attn_sampler *glue_sampler(const attn_model *model, const double *numbers)
{
    attn_sampler *sampler = NULL;
    attn_sampler_desc desc = ATTN_ZERO;
    desc.temperature = (float)numbers[0];
    desc.top_k = (size_t)numbers[1];
    desc.top_p = (float)numbers[2];
    desc.min_p = (float)numbers[3];
    desc.repeat_penalty = (float)numbers[4];
    desc.repeat_last = (size_t)numbers[5];
    desc.seed = (uint64_t)numbers[6] | (uint64_t)numbers[7] << 32;
    attn_sampler_new(&ctx, &sampler, attn_model_config(model)->n_vocab, &desc);
    return sampler;
}

EXPORT(glue_sampler_free) void glue_sampler_free(attn_sampler *sampler);
void glue_sampler_free(attn_sampler *sampler)
{
    attn_sampler_free(sampler);
}

EXPORT(glue_sample) int32_t glue_sample(attn_sampler *sampler, const attn_session *session);
int32_t glue_sample(attn_sampler *sampler, const attn_session *session) /* -1 on failure */
{
    attn_token token = -1;
    if (attn_sample(&ctx, &token, sampler, attn_session_logits(session),
                    attn_session_tokens(session), attn_session_length(session)))
        return -1;
    return token;
}

/* ---- hooks, edits ---- */

static int call_js(const attn_activation *a, void *user)
{
    return glue_js_hook((uint32_t)(uintptr_t)user, a->name,
                        a->layer == ATTN_NO_LAYER ? -1 : (int)a->layer, a->first,
                        view_of(a->value));
}

/* `number` comes back with every call. The id of the hook, or 0 on failure. */
EXPORT(glue_hook) uint32_t glue_hook(attn_session *session, const char *name, uint32_t number);
uint32_t glue_hook(attn_session *session, const char *name, uint32_t number)
{
    attn_hook_id id = 0;
    attn_hook(&ctx, &id, session, name, call_js, (void *)(uintptr_t)number);
    return id;
}

/* An edit: what glue_edit takes, one number each. */
enum { KIND, FIRST, COUNT, FIRST_HEAD, N_HEADS, VALUE, NDIM, DIM, N_NUMBERS = DIM + 3 };

/* The id of the edit, or 0 on failure. A value must outlive it. */
EXPORT(glue_edit)
uint32_t glue_edit(attn_session *session, const char *name, const double *numbers);
uint32_t glue_edit(attn_session *session, const char *name, const double *numbers)
{
    attn_hook_id id = 0;
    attn_edit edit = ATTN_ZERO;
    attn_shape shape = ATTN_ZERO;
    int i;
    edit.name = name;
    edit.kind = (attn_edit_kind)numbers[KIND];
    edit.first = (size_t)numbers[FIRST];
    edit.count = (size_t)numbers[COUNT];
    edit.first_head = (size_t)numbers[FIRST_HEAD];
    edit.n_heads = (size_t)numbers[N_HEADS];
    shape.ndim = (int)numbers[NDIM];
    for (i = 0; i < 3; i++)
        shape.dim[i] = (size_t)numbers[DIM + i];
    if (shape.ndim)
        edit.value = attn_borrow((const void *)(uintptr_t)numbers[VALUE], ATTN_F32, shape);
    attn_hook_edit(&ctx, &id, session, &edit);
    return id;
}

EXPORT(glue_unhook) int glue_unhook(attn_session *session, uint32_t id);
int glue_unhook(attn_session *session, uint32_t id) /* a status; id 0: all hooks and edits */
{
    if (id)
        return (int)attn_unhook(&ctx, session, id);
    attn_unhook_all(session);
    return ATTN_OK;
}

/* ---- records ---- */

/* Records n_names activations at n_positions; names follow each other, each ended by a zero. NULL
 * on failure. */
EXPORT(glue_record)
attn_record *glue_record(attn_session *session, const char *names, size_t n_names,
                         size_t n_positions);
attn_record *glue_record(attn_session *session, const char *names, size_t n_names,
                         size_t n_positions)
{
    enum { MOST = 64 };
    const char *list[MOST];
    attn_record *record = NULL;
    attn_record_desc desc = ATTN_ZERO;
    size_t i;
    if (n_names > MOST) {
        strcpy(ctx.message, "a record takes at most 64 names and patterns");
        return NULL;
    }
    for (i = 0; i < n_names; i++, names += strlen(names) + 1)
        list[i] = names;
    desc.names = n_names ? list : NULL;
    desc.n_names = n_names;
    desc.n_positions = n_positions;
    attn_record_new(&ctx, &record, session, &desc);
    return record;
}

EXPORT(glue_record_free) void glue_record_free(attn_record *record);
void glue_record_free(attn_record *record)
{
    attn_record_free(record);
}

EXPORT(glue_record_count) size_t glue_record_count(const attn_record *record);
size_t glue_record_count(const attn_record *record)
{
    return attn_record_n_activations(record);
}

EXPORT(glue_record_name) const char *glue_record_name(const attn_record *record, size_t index);
const char *glue_record_name(const attn_record *record, size_t index)
{
    return attn_record_name(record, index);
}

EXPORT(glue_record_get)
const uint32_t *glue_record_get(const attn_record *record, const char *name);
const uint32_t *glue_record_get(const attn_record *record, const char *name) /* NULL on failure */
{
    attn_tensor value = ATTN_ZERO;
    return attn_record_get(&ctx, &value, record, name) ? NULL : view_of(value);
}

/* ---- what the activations say ---- */

/* The logit lens of streams [n, C]: the k likeliest tokens and their probabilities, each [n, k].
 * A status. */
EXPORT(glue_lens)
int glue_lens(const attn_model *model, const float *streams, size_t n, size_t k, attn_token *tokens,
              float *probabilities);
int glue_lens(const attn_model *model, const float *streams, size_t n, size_t k, attn_token *tokens,
              float *probabilities)
{
    const attn_tensor none = ATTN_ZERO;
    const attn_shape shape = attn_shape2(n, attn_model_config(model)->d_model);
    const attn_tensor resid = attn_borrow(streams, ATTN_F32, shape);
    attn_tensor logits = ATTN_ZERO;
    attn_top top = ATTN_ZERO;
    size_t i;
    top.k = k;
    top.best = (attn_prediction *)calloc(n * k, sizeof *top.best);
    if (!top.best)
        return (int)ATTN_E_MEMORY;
    ctx.status = ATTN_OK;
    if (lens_logit_lens(&ctx, &logits, model, resid, none, none) == ATTN_OK &&
        attn_logit_stats(&ctx, NULL, &top, logits, NULL) == ATTN_OK)
        for (i = 0; i < n * k; i++) {
            tokens[i] = top.best[i].token;
            probabilities[i] = top.best[i].probability;
        }
    attn_tensor_free(&ctx, &logits);
    free(top.best);
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
