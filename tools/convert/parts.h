/* The tensors of a model: their names in a .attn file and in the formats of others, and their shapes. */
#ifndef TOOLS_PARTS_H
#define TOOLS_PARTS_H

#include "source.h"

enum dim { DIM_1, DIM_C, DIM_3C, DIM_F, DIM_V, DIM_T, N_DIMS };

/* A linear layer maps `in` to `out`. A table of embeddings has `out` rows in every format. Plain rows are
 * copied. */
enum part_kind { PART_LINEAR, PART_TABLE, PART_ROWS };

typedef struct gpt2_part {
    const char *name;
    const char *names[N_SOURCE_NAMES]; /* "*" stands for query, key and value, one tensor each */
    enum part_kind kind;
    enum dim in, out;
} gpt2_part;

/* One tensor: its kind and dimensions, its name in a .attn file, and those in the order of source_names. */
#define PART(kind, in, out, name, ...)                                                             \
    {                                                                                              \
        name, {__VA_ARGS__}, PART_##kind, DIM_##in, DIM_##out                                      \
    }

static const gpt2_part head_parts[] = {
    PART(TABLE, C, V, "embed.W_E", "wte.weight", "token_embd.weight", "tok_emb.weight",
         "tok_emb.weight", "embed.W_E", "embed.weight"),
    PART(ROWS, T, C, "pos_embed.W_pos", "wpe.weight", "position_embd.weight", "pos_emb",
         "pos_emb.weight", "pos_embed.W_pos", "pos_embed.weight")};

static const gpt2_part layer_parts[] = {
    PART(ROWS, 1, C, "ln1.w", "ln_1.weight", "attn_norm.weight", "ln1.weight", "norm1.scale",
         "ln1.w", "ln1.weight"),
    PART(ROWS, 1, C, "ln1.b", "ln_1.bias", "attn_norm.bias", "ln1.bias", "norm1.shift", "ln1.b",
         "ln1.bias"),
    PART(LINEAR, C, 3C, "attn.W_QKV", "attn.c_attn.weight", "attn_qkv.weight", "attn.*.weight",
         "att.W_*.weight", "attn.W_*", "attn.*.weight"),
    PART(ROWS, 1, 3C, "attn.b_QKV", "attn.c_attn.bias", "attn_qkv.bias", "attn.*.bias",
         "att.W_*.bias", "attn.b_*", "attn.*.bias"),
    PART(LINEAR, C, C, "attn.W_O", "attn.c_proj.weight", "attn_output.weight", "attn.proj.weight",
         "att.out_proj.weight", "attn.W_O", "attn.o.weight"),
    PART(ROWS, 1, C, "attn.b_O", "attn.c_proj.bias", "attn_output.bias", "attn.proj.bias",
         "att.out_proj.bias", "attn.b_O", "attn.o.bias"),
    PART(ROWS, 1, C, "ln2.w", "ln_2.weight", "ffn_norm.weight", "ln2.weight", "norm2.scale",
         "ln2.w", "ln2.weight"),
    PART(ROWS, 1, C, "ln2.b", "ln_2.bias", "ffn_norm.bias", "ln2.bias", "norm2.shift", "ln2.b",
         "ln2.bias"),
    PART(LINEAR, C, F, "mlp.W_in", "mlp.c_fc.weight", "ffn_up.weight", "mlp.0.weight",
         "ff.layers.0.weight", "mlp.W_in", "mlp.in.weight"),
    PART(ROWS, 1, F, "mlp.b_in", "mlp.c_fc.bias", "ffn_up.bias", "mlp.0.bias", "ff.layers.0.bias",
         "mlp.b_in", "mlp.in.bias"),
    PART(LINEAR, F, C, "mlp.W_out", "mlp.c_proj.weight", "ffn_down.weight", "mlp.2.weight",
         "ff.layers.2.weight", "mlp.W_out", "mlp.out.weight"),
    PART(ROWS, 1, C, "mlp.b_out", "mlp.c_proj.bias", "ffn_down.bias", "mlp.2.bias",
         "ff.layers.2.bias", "mlp.b_out", "mlp.out.bias")};

static const gpt2_part tail_parts[] = {
    PART(ROWS, 1, C, "ln_final.w", "ln_f.weight", "output_norm.weight", "ln_f.weight",
         "final_norm.scale", "ln_final.w", "ln_final.weight"),
    PART(ROWS, 1, C, "ln_final.b", "ln_f.bias", "output_norm.bias", "ln_f.bias", "final_norm.shift",
         "ln_final.b", "ln_final.bias")};

static const gpt2_part unembed_part =
    PART(TABLE, C, V, "unembed.W_U", "lm_head.weight", "output.weight", "head.weight",
         "out_head.weight", "unembed.W_U", "unembed.weight");

/* A bias of the logits, which only TransformerLens's names have. */
static const gpt2_part unembed_bias =
    PART(ROWS, 1, V, "unembed.b_U", NULL, NULL, NULL, NULL, "unembed.b_U", "unembed.bias");

/* The beginning of the name of a layer's tensor, up to the number of the layer. */
static const char *const layer_prefix[N_SOURCE_NAMES] = {"h.",          "blk.",    "blocks.",
                                                         "trf_blocks.", "blocks.", "blocks."};

TOOLS_FN uint64_t dim_size(const source *s, enum dim dim)
{
    const uint64_t sizes[N_DIMS] = {1, s->d_model, 3 * s->d_model, s->d_mlp, s->n_vocab, s->n_ctx};
    return sizes[dim];
}

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

/* Part number i of a model of n_layer layers but its unembedding; *layer: of the part, or ATTN_NO_LAYER. NULL: there are
 * fewer. */
TOOLS_FN const gpt2_part *part_at(size_t i, size_t n_layer, size_t *layer)
{
    const size_t n_head = COUNT_OF(head_parts), n = COUNT_OF(layer_parts);
    *layer = ATTN_NO_LAYER;
    if (i < n_head)
        return &head_parts[i];
    if ((i - n_head) / n < n_layer) {
        *layer = (i - n_head) / n;
        return &layer_parts[(i - n_head) % n];
    }
    i -= n_head + n * n_layer;
    return i < COUNT_OF(tail_parts) ? &tail_parts[i] : NULL;
}

#endif
