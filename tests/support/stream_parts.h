/* The final residual stream, taken apart at some positions (0: at all). */
#ifndef STREAM_PARTS_H
#define STREAM_PARTS_H

#include "test.h"
#include "tools/lens/decompose.h"
#include "tools/lens/logits.h"

/* The kinds in the order of the fixtures' numbers. */
static const lens_parts_kind kinds_of_parts[] = {LENS_PARTS_STREAMS, LENS_PARTS_STREAMS_MID,
                                                 LENS_PARTS_SUBLAYERS, LENS_PARTS_HEADS};

/* Parts of the final stream, and the scale of the LayerNorm that reads it. */
typedef struct stream_parts {
    attn_tensor stack, scale;
} stream_parts;

static inline lens_parts_desc final_parts(lens_parts_kind kind, const attn_token *tokens,
                                          size_t n_tokens, size_t first, size_t count)
{
    lens_parts_desc d = {
        .kind = kind, .tokens = tokens, .n_tokens = n_tokens, .first = first, .count = count};
    return d;
}

static inline attn_status take_apart(attn_ctx *ctx, stream_parts *out, const attn_model *m,
                                     lens_parts_kind kind, const attn_token *tokens,
                                     size_t n_tokens, size_t first, size_t count)
{
    const lens_parts_desc d = final_parts(kind, tokens, n_tokens, first, count);
    return lens_decompose(ctx, &out->stack, &out->scale, m, &d);
}

#endif
