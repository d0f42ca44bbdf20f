/* Writes a .attn file of one of GPT-2's sizes, with random weights: speed does not depend on the values
 * of weights. It is written to disk, so that it is mapped like any other model. */
#ifndef TOOLS_BENCH_MODEL_H
#define TOOLS_BENCH_MODEL_H

#include "tools/common/files.h"
#include "tools/write/writer.h"

typedef struct model_shape {
    const char *name;
    uint32_t n_layer, n_head, d_model;
} model_shape;
static const model_shape model_shapes[] = {
    {"124M", 12, 12, 768}, {"355M", 24, 16, 1024}, {"774M", 36, 20, 1280}, {"1558M", 48, 25, 1600}};
enum { N_SHAPES = sizeof model_shapes / sizeof model_shapes[0], N_VOCAB = 50257, N_CTX = 1024 };

/* A matrix, or with n_in 0 a vector, of random numbers. Element (k, n) is number 16 k + n: the rows
 * overlap, which saves memory. */
static attn_tensor model_random(float *random, size_t n_in, size_t n_out)
{
    attn_tensor x = attn_borrow(random, ATTN_F32, attn_shape2(n_in, n_out));
    x.stride[0] = 16;
    return n_in > 0 ? x : attn_borrow(random, ATTN_F32, attn_shape1(n_out));
}

static void model_add_layer(attn_ctx *ctx, lens_writer *w, uint32_t layer, size_t width,
                            attn_dtype dtype, float *random)
{
    const struct {
        const char *name;
        size_t n_in, n_out;
    } tensors[] = {{"ln1.w", 0, width},
                   {"ln1.b", 0, width},
                   {"attn.W_QKV", width, 3 * width},
                   {"attn.b_QKV", 0, 3 * width},
                   {"attn.W_O", width, width},
                   {"attn.b_O", 0, width},
                   {"ln2.w", 0, width},
                   {"ln2.b", 0, width},
                   {"mlp.W_in", width, 4 * width},
                   {"mlp.b_in", 0, 4 * width},
                   {"mlp.W_out", 4 * width, width},
                   {"mlp.b_out", 0, width}};
    char name[64];
    size_t i;
    for (i = 0; i < sizeof tensors / sizeof tensors[0] && !ctx->status; i++) {
        snprintf(name, sizeof name, "blocks.%u.%s", (unsigned)layer, tensors[i].name);
        lens_writer_add(ctx, w, name, tensors[i].n_in ? dtype : ATTN_F32,
                        model_random(random, tensors[i].n_in, tensors[i].n_out));
    }
}

/* All position embeddings are equal. Such a model continues a text that repeats itself with more
 * repetitions, which the section speculation needs. */
static void model_add_all(attn_ctx *ctx, lens_writer *w, const model_shape *s, attn_dtype dtype,
                          float *random)
{
    const size_t width = s->d_model;
    attn_tensor positions = model_random(random, N_CTX, width);
    positions.stride[0] = 0;
    lens_writer_add(ctx, w, "embed.W_E", dtype,
                    attn_transpose(model_random(random, width, N_VOCAB), 0, 1));
    if (!ctx->status)
        lens_writer_add(ctx, w, "pos_embed.W_pos", ATTN_F32, positions);
    for (uint32_t i = 0; i < s->n_layer; i++)
        model_add_layer(ctx, w, i, width, dtype, random);
    if (!ctx->status)
        lens_writer_add(ctx, w, "ln_final.w", ATTN_F32, model_random(random, 0, width));
    if (!ctx->status)
        lens_writer_add(ctx, w, "ln_final.b", ATTN_F32, model_random(random, 0, width));
}

/* The bytes of all tensors except the position embeddings. */
static inline uint64_t model_bytes(const model_shape *s, attn_dtype dtype)
{
    const size_t width = s->d_model;
    const uint64_t layer = (uint64_t)model_panels_size(dtype, width, 3 * width) +
                           model_panels_size(dtype, width, width) +
                           model_panels_size(dtype, width, 4 * width) +
                           model_panels_size(dtype, 4 * width, width) + 4 * width * 13;
    return model_panels_size(dtype, width, N_VOCAB) + s->n_layer * layer + 4 * width * 2;
}

static attn_status model_write(attn_ctx *ctx, const char *path, const model_shape *s,
                               attn_dtype dtype)
{
    const size_t n_random = N_VOCAB + 16 * 6400;
    attn_config config = {0};
    lens_writer *w = NULL;
    attn_rng rng;
    float *random = (float *)malloc(n_random * sizeof(float));
    if (!random)
        return tool_fail(ctx, ATTN_E_MEMORY, "no memory to make a model of size %s", s->name);
    attn_rng_seed(&rng, 1);
    for (size_t i = 0; i < n_random; i++)
        random[i] = 0.1f * (attn_rng_uniform(&rng) - 0.5f);
    config.n_vocab = N_VOCAB;
    config.n_ctx = N_CTX;
    config.d_model = s->d_model;
    config.n_head = s->n_head;
    config.n_layer = s->n_layer;
    config.d_mlp = (size_t)4 * s->d_model;
    config.ln_eps = 1e-5f;
    config.tied = 1;
    config.bos = config.eos = -1;
    if (lens_writer_new(ctx, &w, path, &config, NULL, 0) == ATTN_OK)
        model_add_all(ctx, w, s, dtype, random);
    if (!ctx->status)
        lens_writer_end(ctx, w);
    lens_writer_free(w);
    free(random);
    if (ctx->status == ATTN_E_IO) {
        char reason[sizeof ctx->message];
        memcpy(reason, ctx->message, sizeof reason);
        tool_fail(ctx, ATTN_E_IO,
                  "%.160s (the environment variable TMPDIR names another directory)", reason);
    }
    return ctx->status;
}

#endif
