/* A .attn file of one of GPT-2's sizes, with random weights: speed does not depend on what the
 * weights are. It goes to disk, so that it is used as any model is: where the file is mapped. */
#ifndef TOOLS_BENCH_MODEL_H
#define TOOLS_BENCH_MODEL_H

#include "files.h"

typedef struct model_shape {
    const char *name;
    uint32_t n_layer, n_head, d_model;
} model_shape;
static const model_shape model_shapes[] = {
    {"124M", 12, 12, 768}, {"355M", 24, 16, 1024}, {"774M", 36, 20, 1280}, {"1558M", 48, 25, 1600}};
enum { N_SHAPES = sizeof model_shapes / sizeof model_shapes[0], N_VOCAB = 50257, N_CTX = 1024 };

typedef struct model_writer {
    attn_ctx *ctx;
    FILE *file;
    const char *path;
    attn_dtype dtype;             /* of the matrices */
    float *random;                /* N_VOCAB + 16 * 6400 of them */
    unsigned char *table, *block; /* 128 bytes a tensor; the data of one tensor */
    size_t n_tensors, room;       /* tensors so far, and in the table */
    uint64_t end;                 /* bytes so far */
    int failed;                   /* something could not be written */
} model_writer;

static void model_put(model_writer *w, const void *data, size_t size)
{
    w->failed |= fwrite(data, 1, size, w->file) != size;
    w->end += size;
}

/* Appends a tensor: [n_in, n_out] as panels, or [n_out] or [n_in, n_out] as rows. Element (k, n)
 * is number 16 k + n of the random numbers: lines overlap, which saves memory. Rows are alike: a
 * model whose positions are goes on with a text that repeats itself, which drafting is about. */
static void model_add(model_writer *w, const char *name, int panels, size_t n_in, size_t n_out)
{
    static const unsigned char zeros[64];
    const size_t size = panels ? attn_panels_size(w->dtype, n_in, n_out) : 4 * n_in * n_out;
    unsigned char *record = w->table + 128 * w->n_tensors;
    attn_tensor x = attn_borrow(w->random, ATTN_F32, attn_shape2(n_in, n_out));
    attn_tensor rows = attn_borrow(w->block, ATTN_F32, attn_shape2(n_in, n_out));
    model_put(w, zeros, (size_t)((64 - w->end % 64) % 64));
    x.stride[0] = panels ? 16 : 0;
    if (panels)
        attn_panels_write(w->ctx, w->block, w->dtype, x);
    else
        attn_copy(w->ctx, &rows, x);
    snprintf((char *)record, 64, "%s", name);
    put_u32(record + 64, panels ? w->dtype : ATTN_F32);
    put_u32(record + 68, (uint32_t)panels);
    put_u32(record + 72, n_in > 1 ? 2 : 1);
    put_u64(record + 80, n_in > 1 ? n_in : n_out);
    put_u64(record + 88, n_in > 1 ? n_out : 1);
    put_u64(record + 96, w->end);
    put_u64(record + 104, size);
    put_u64(record + 112, attn_checksum(0, w->block, size));
    w->n_tensors++;
    model_put(w, w->block, size);
}

static void model_add_layer(model_writer *w, uint32_t layer, size_t width)
{
    const struct {
        const char *name;
        int panels;
        size_t n_in, n_out;
    } tensors[] = {{"ln1.w", 0, 1, width},
                   {"ln1.b", 0, 1, width},
                   {"attn.W_QKV", 1, width, 3 * width},
                   {"attn.b_QKV", 0, 1, 3 * width},
                   {"attn.W_O", 1, width, width},
                   {"attn.b_O", 0, 1, width},
                   {"ln2.w", 0, 1, width},
                   {"ln2.b", 0, 1, width},
                   {"mlp.W_in", 1, width, 4 * width},
                   {"mlp.b_in", 0, 1, 4 * width},
                   {"mlp.W_out", 1, 4 * width, width},
                   {"mlp.b_out", 0, 1, width}};
    char name[64];
    size_t i;
    for (i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        snprintf(name, sizeof name, "blocks.%u.%s", (unsigned)layer, tensors[i].name);
        model_add(w, name, tensors[i].panels, tensors[i].n_in, tensors[i].n_out);
    }
}

/* The header, which is known when everything else is written. */
static void model_finish(model_writer *w, const model_shape *s)
{
    static const unsigned char magic[8] = {0x89, 'A', 'T', 'T', 'N', '\r', '\n', 0x1A};
    const float eps = 1e-5f;
    unsigned char header[256];
    const uint64_t size = w->end;
    uint32_t bits;
    memset(header, 0, sizeof header);
    memcpy(header, magic, sizeof magic);
    memcpy(&bits, &eps, sizeof bits);
    put_u32(header + 8, 1);
    put_u32(header + 12, 256);
    put_u64(header + 16, size);
    put_u32(header + 24, N_VOCAB);
    put_u32(header + 28, N_CTX);
    put_u32(header + 32, s->d_model);
    put_u32(header + 36, s->n_head);
    put_u32(header + 40, s->n_layer);
    put_u32(header + 44, 4 * s->d_model);
    put_u32(header + 48, bits);
    put_u32(header + 52, 1); /* tied */
    put_u32(header + 56, 0xFFFFFFFF);
    put_u32(header + 60, 0xFFFFFFFF);
    put_u32(header + 64, (uint32_t)w->n_tensors);
    put_u64(header + 72, 256);
    put_u64(header + 80, 128 * w->n_tensors);
    put_u64(header + 88, attn_checksum(0, w->table, 128 * w->n_tensors));
    put_u64(header + 248, attn_checksum(0, header, 248));
    w->failed |= system_seek(w->file, 0) != 0;
    model_put(w, header, sizeof header);
    model_put(w, w->table, 128 * w->n_tensors);
}

static void model_add_all(model_writer *w, const model_shape *s)
{
    const size_t width = s->d_model;
    uint32_t i;
    model_put(w, w->table, 128 * w->room); /* for later */
    model_put(w, w->table, 256);
    model_add(w, "embed.W_E", 1, width, N_VOCAB);
    model_add(w, "pos_embed.W_pos", 0, N_CTX, width);
    for (i = 0; i < s->n_layer && !w->failed; i++)
        model_add_layer(w, i, width);
    model_add(w, "ln_final.w", 0, 1, width);
    model_add(w, "ln_final.b", 0, 1, width);
    model_finish(w, s);
}

/* Bytes of all its tensors but the positions. */
static inline uint64_t model_bytes(const model_shape *s, attn_dtype dtype)
{
    const size_t width = s->d_model;
    const uint64_t layer = (uint64_t)attn_panels_size(dtype, width, 3 * width) +
                           attn_panels_size(dtype, width, width) +
                           attn_panels_size(dtype, width, 4 * width) +
                           attn_panels_size(dtype, 4 * width, width) + 4 * width * 13;
    return attn_panels_size(dtype, width, N_VOCAB) + s->n_layer * layer + 4 * width * 2;
}

static attn_status model_write(attn_ctx *ctx, const char *path, const model_shape *s,
                               attn_dtype dtype)
{
    const size_t n_random = N_VOCAB + 16 * 6400,
                 largest = attn_panels_size(dtype, s->d_model, N_VOCAB);
    model_writer w;
    attn_rng rng;
    size_t i;
    memset(&w, 0, sizeof w);
    w.ctx = ctx;
    w.path = path;
    w.dtype = dtype;
    w.room = 4 + 12 * (size_t)s->n_layer;
    w.random = (float *)malloc(n_random * sizeof(float));
    w.table = (unsigned char *)calloc(w.room + 2, 128);
    w.block = (unsigned char *)malloc(largest);
    if (!w.random || !w.table || !w.block) {
        tool_fail(ctx, ATTN_E_MEMORY, "no memory to make a model of size %s", s->name);
    } else if ((w.file = fopen(path, "wb")) != NULL) {
        attn_rng_seed(&rng, 1);
        for (i = 0; i < n_random; i++)
            w.random[i] = 0.1f * (attn_rng_uniform(&rng) - 0.5f);
        model_add_all(&w, s);
        w.failed |= fclose(w.file) != 0;
        if (w.failed)
            tool_fail(ctx, ATTN_E_IO,
                      "cannot write %s: %s (the environment variable TMPDIR names another "
                      "directory)",
                      path, strerror(errno));
    } else {
        tool_fail(ctx, ATTN_E_IO,
                  "cannot make %s: %s (the environment variable TMPDIR names "
                  "another directory)",
                  path, strerror(errno));
    }
    free(w.random);
    free(w.table);
    free(w.block);
    return ctx->status;
}

#endif
