/* Reads llm.c's checkpoints: a header of 256 int32, then the weights in a fixed order, each kind for all
 * layers, linear layers as [out, in].
 *
 *     0 magic 20240326   1 version: 3 = f32, 5 = bf16   2 n_ctx   3 n_vocab   4 n_layer
 *     5 n_head           6 d_model                      7 n_vocab as padded in the file
 *
 * The padding rows of the embedding are left out. */
#ifndef TOOLS_LLMC_H
#define TOOLS_LLMC_H

#include "parts.h"

enum { LLMC_MAGIC = 20240326, LLMC_HEADER = 1024 };

/* Adds a part of each of n_layer layers, or with 0 one outside them, from byte *at on. */
TOOLS_FN attn_status llmc_add(attn_ctx *ctx, source *s, source_dtype dtype, const gpt2_part *p,
                              uint64_t n_layer, uint64_t *at)
{
    const uint64_t in = dim_size(s, p->in), out = dim_size(s, p->out);
    for (uint64_t layer = 0; layer < (n_layer ? n_layer : 1); layer++) {
        source_tensor *t = source_add(ctx, s);
        char name[64] = "";
        if (!t)
            return ctx->status;
        if (n_layer)
            snprintf(name, sizeof name, "h.%llu.", TOOLS_LLU(layer));
        snprintf(name + strlen(name), sizeof name - strlen(name), "%s", p->names[NAMES_HF]);
        if ((t->name = arena_text(ctx, &s->memory, name, strlen(name))) == NULL)
            return ctx->status;
        t->dtype = dtype;
        t->dtype_name = dtype == SOURCE_F32 ? "F32" : "BF16";
        t->file = s->files;
        t->ndim = p->in == DIM_1 ? 1 : 2;
        t->shape[0] = p->kind == PART_ROWS && t->ndim == 2 ? in : out;
        t->shape[1] = p->in == DIM_1 ? 0 : p->kind == PART_ROWS ? out : in;
        t->offset = *at;
        t->size = source_size(dtype, shape_count(t->ndim, t->shape));
        *at += t->size;
    }
    return ATTN_OK;
}

/* The weights in the order of the file. */
TOOLS_FN attn_status llmc_add_all(attn_ctx *ctx, source *s, source_dtype dtype, uint64_t n_padded)
{
    const gpt2_part *p;
    uint64_t at = LLMC_HEADER;
    size_t layer;
    for (size_t i = 0; (p = part_at(i, 1, &layer)) != NULL && !ctx->status; i++) {
        llmc_add(ctx, s, dtype, p, layer == ATTN_NO_LAYER ? 0 : s->n_layer, &at);
        at += i == 0 ? source_size(dtype, (n_padded - s->n_vocab) * s->d_model) : 0;
    }
    return ctx->status ? ctx->status : source_index(ctx, s);
}

TOOLS_FN attn_status llmc_open(attn_ctx *ctx, source *s, const char *path)
{
    source_file *f = source_open(ctx, s, path);
    unsigned char header[LLMC_HEADER];
    uint64_t n[8], C, L;
    if (!f)
        return ctx->status;
    if (source_bytes(ctx, f, 0, header, sizeof header))
        return ctx->status;
    for (int i = 0; i < 8; i++)
        n[i] = get_u32(header + (size_t)4 * (size_t)i);
    if (n[1] != 3 && n[1] != 5)
        return tool_fail(ctx, ATTN_E_VERSION,
                         "%s is an llm.c checkpoint of version %llu; "
                         "versions 3 (f32) and 5 (bf16) are supported",
                         f->name, TOOLS_LLU(n[1]));
    if (n[7] == 0)
        return tool_fail(ctx, ATTN_E_VERSION,
                         "%s comes from an early llm.c that did not pad the vocabulary and ordered "
                         "the weights differently; write it again with today's train_gpt2.py",
                         f->name);
    for (int i = 2; i < 8; i++)
        if (n[i] == 0 || n[i] > (i == 4 ? SOURCE_MAX_LAYERS : SOURCE_MAX_SIZE))
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "%s: number %d of its header is %llu, which cannot be", f->name, i,
                             TOOLS_LLU(n[i]));
    if (n[7] < n[3])
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s: its vocabulary of %llu tokens is padded to only %llu", f->name,
                         TOOLS_LLU(n[3]), TOOLS_LLU(n[7]));
    source_dtype dtype = n[1] == 3 ? SOURCE_F32 : SOURCE_BF16;
    s->config_name = "its header";
    s->n_ctx = n[2];
    s->n_vocab = n[3];
    s->n_layer = L = n[4];
    s->n_head = n[5];
    s->d_model = C = n[6];
    s->d_mlp = 4 * C;
    s->ln_eps = 1e-5;
    s->linears_out_in = 1;
    s->bos = s->eos = n[3] == 50257 ? 50256 : SOURCE_UNSAID; /* llm.c has only GPT-2's */

    /* the sizes above are below 2^24 each, so only the product with L can overflow 64 bits */
    uint64_t count = 12 * C * C + 13 * C;
    if (count > ((uint64_t)1 << 60) / L)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s: its header asks for more weights than any file can hold", f->name);
    count = count * L + n[7] * C + n[2] * C + 2 * C;
    if (source_size(dtype, count) != f->size - LLMC_HEADER)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s has %llu bytes, but its header asks for %llu; it was cut short, or is "
                         "no such checkpoint",
                         f->name, TOOLS_LLU(f->size),
                         TOOLS_LLU(source_size(dtype, count) + LLMC_HEADER));
    return llmc_add_all(ctx, s, dtype, n[7]);
}

#endif
