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

static attn_config model_config_of(const model_shape *s)
{
    return (attn_config){.n_vocab = N_VOCAB,
                         .n_ctx = N_CTX,
                         .d_model = s->d_model,
                         .n_head = s->n_head,
                         .n_layer = s->n_layer,
                         .d_mlp = (size_t)4 * s->d_model,
                         .ln_eps = 1e-5f,
                         .tied = 1,
                         .bos = -1,
                         .eos = -1};
}

/* All position embeddings are equal. Such a model continues a text that repeats itself with more
 * repetitions, which the section speculation needs. */
static void model_add_all(attn_ctx *ctx, lens_writer *w, const attn_config *c, attn_dtype dtype,
                          float *random)
{
    lens_expected e[16];
    char name[64];
    for (size_t layer = ATTN_NO_LAYER; layer + 1 <= c->n_layer; layer++) {
        const int n = lens_expect(c, layer, e);
        for (int i = 0; i < n && !ctx->status; i++) {
            attn_tensor x = model_random(random, e[i].n_in, e[i].n_out);
            if (strcmp(e[i].name, "embed.W_E") == 0) /* the writer takes it as a table */
                x = attn_transpose(x, 0, 1);
            else if (strcmp(e[i].name, "pos_embed.W_pos") == 0)
                x.stride[0] = 0;
            lens_weight_name(name, layer, e[i].name);
            lens_writer_add(ctx, w, name, e[i].is_panels ? dtype : ATTN_F32, x);
        }
    }
}

/* The bytes of all tensors except the position embeddings. */
static inline uint64_t model_bytes(const model_shape *s, attn_dtype dtype)
{
    const attn_config c = model_config_of(s);
    lens_expected e[16];
    uint64_t sum = 0;
    for (size_t layer = ATTN_NO_LAYER; layer + 1 <= c.n_layer; layer++) {
        const int n = lens_expect(&c, layer, e);
        for (int i = 0; i < n; i++)
            if (strcmp(e[i].name, "pos_embed.W_pos") != 0)
                sum += lens_tensor_size(&e[i], dtype);
    }
    return sum;
}

static attn_status model_write(attn_ctx *ctx, const char *path, const model_shape *s,
                               attn_dtype dtype)
{
    const size_t n_random = N_VOCAB + 16 * 6400;
    const attn_config config = model_config_of(s);
    lens_writer *w = NULL;
    attn_rng rng;
    float *random = (float *)malloc(n_random * sizeof(float));
    if (!random)
        return tool_fail(ctx, ATTN_E_MEMORY, "no memory to make a model of size %s", s->name);
    attn_rng_seed(&rng, 1);
    for (size_t i = 0; i < n_random; i++)
        random[i] = 0.1f * (attn_rng_uniform(&rng) - 0.5f);
    if (lens_writer_new(ctx, &w, path, &config, NULL, 0) == ATTN_OK)
        model_add_all(ctx, w, &config, dtype, random);
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
