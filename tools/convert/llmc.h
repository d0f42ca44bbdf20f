/* Reads llm.c's checkpoints: a header of 256 int32, then the weights in a fixed order, each kind for all
 * layers, linear layers as [out, in].
 *
 *     0 magic 20240326   1 version: 3 = f32, 5 = bf16   2 n_ctx   3 n_vocab   4 n_layer
 *     5 n_head           6 d_model                      7 n_vocab as padded in the file
 *
 * The padding rows of the embedding are left out. */
#ifndef TOOLS_LLMC_H
#define TOOLS_LLMC_H

#include "source.h"

enum { LLMC_MAGIC = 20240326, LLMC_HEADER = 1024 };

/* The weights in the order of the file. */
TOOLS_FN attn_status llmc_add_all(attn_ctx *ctx, source *s, source_dtype dtype, uint64_t n_padded)
{
    const uint64_t C = s->d_model, F = s->d_mlp, V = s->n_vocab;
    const struct {
        const char *name;
        int per_layer;
        uint64_t rows, columns; /* no rows: a vector */
        uint64_t padding;       /* elements after it */
    } parts[] = {{"wte.weight", 0, V, C, (n_padded - V) * C},
                 {"wpe.weight", 0, s->n_ctx, C, 0},
                 {"ln_1.weight", 1, 0, C, 0},
                 {"ln_1.bias", 1, 0, C, 0},
                 {"attn.c_attn.weight", 1, 3 * C, C, 0},
                 {"attn.c_attn.bias", 1, 0, 3 * C, 0},
                 {"attn.c_proj.weight", 1, C, C, 0},
                 {"attn.c_proj.bias", 1, 0, C, 0},
                 {"ln_2.weight", 1, 0, C, 0},
                 {"ln_2.bias", 1, 0, C, 0},
                 {"mlp.c_fc.weight", 1, F, C, 0},
                 {"mlp.c_fc.bias", 1, 0, F, 0},
                 {"mlp.c_proj.weight", 1, C, F, 0},
                 {"mlp.c_proj.bias", 1, 0, C, 0},
                 {"ln_f.weight", 0, 0, C, 0},
                 {"ln_f.bias", 0, 0, C, 0}};
    uint64_t at = LLMC_HEADER, layer;
    size_t i;
    for (i = 0; i < sizeof parts / sizeof parts[0]; i++)
        for (layer = 0; layer < (parts[i].per_layer ? s->n_layer : 1); layer++) {
            source_tensor *t = source_add(ctx, s);
            char name[64];
            if (!t)
                return ctx->status;
            if (parts[i].per_layer)
                snprintf(name, sizeof name, "h.%llu.%s", TOOLS_LLU(layer), parts[i].name);
            else
                snprintf(name, sizeof name, "%s", parts[i].name);
            if ((t->name = arena_text(ctx, &s->memory, name, strlen(name))) == NULL)
                return ctx->status;
            t->dtype = dtype;
            t->dtype_name = dtype == SOURCE_F32 ? "F32" : "BF16";
            t->file = s->files;
            t->ndim = parts[i].rows ? 2 : 1;
            t->shape[0] = parts[i].rows ? parts[i].rows : parts[i].columns;
            t->shape[1] = parts[i].rows ? parts[i].columns : 0;
            t->offset = at;
            t->size = source_size(dtype, shape_count(t->ndim, t->shape));
            at += t->size + source_size(dtype, parts[i].padding);
        }
    return source_index(ctx, s);
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
