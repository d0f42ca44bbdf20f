/* Writes models as .attn files, or makes them in memory: see >>format in attn.h. Uses attn.h's public
 * API only. */
#ifndef LENS_WRITER_H
#define LENS_WRITER_H

#include "new_file.h"
#include "model_file.h"
#include <float.h>
#include <math.h>

enum { LENS_HEADER = 256, LENS_ENTRY = 128, LENS_MORE_EOS = 31 };
enum { LENS_MOST_META = 65536 };     /* bytes of the section of strings */
#define LENS_PER_SCALE  ((size_t)32) /* q8 and q4: inputs k that share a scale */
#define LENS_PER_SCALES ((size_t)64) /* inputs k that share a line of scales */

LENS_FN int lens_host_turns(void)
{
    const uint16_t one = 1;
    return *(const unsigned char *)&one == 0;
}

LENS_FN attn_status lens_need_given(attn_ctx *ctx, const char *op, const char *name,
                                    const void *pointer)
{
    LENS_REFUSE_IF(ctx, !pointer, ATTN_E_ARGUMENT, "%s: no %s given%s%s", op, name,
                   ctx->status ? "; before that: " : "", ctx->status ? ctx->message : "");
    return ATTN_OK;
}

/* ---- the tensors of a model ---- */

/* A tensor that a model of this configuration has. */
typedef struct lens_expected {
    const char *name; /* in a block without "blocks.i." */
    int is_panels;
    size_t n_in, n_out; /* a vector has n_out only */
} lens_expected;

/* The tensors of a block, or for ATTN_NO_LAYER those outside the blocks. Returns their number. */
LENS_FN int lens_expect(const attn_config *c, size_t layer, lens_expected e[16])
{
    const size_t C = c->d_model, F = c->d_mlp, V = c->n_vocab;
    const lens_expected outside[] = {{"embed.W_E", 1, C, V},   {"pos_embed.W_pos", 0, c->n_ctx, C},
                                     {"ln_final.w", 0, 0, C},  {"ln_final.b", 0, 0, C},
                                     {"unembed.W_U", 1, C, V}, {"unembed.b_U", 0, 0, V}};
    const lens_expected block[] = {
        {"ln1.w", 0, 0, C},          {"ln1.b", 0, 0, C},     {"attn.W_QKV", 1, C, 3 * C},
        {"attn.b_QKV", 0, 0, 3 * C}, {"attn.W_O", 1, C, C},  {"attn.b_O", 0, 0, C},
        {"ln2.w", 0, 0, C},          {"ln2.b", 0, 0, C},     {"mlp.W_in", 1, C, F},
        {"mlp.b_in", 0, 0, F},       {"mlp.W_out", 1, F, C}, {"mlp.b_out", 0, 0, C}};
    int n = 4;
    if (layer != ATTN_NO_LAYER) {
        memcpy(e, block, sizeof block);
        return 12;
    }
    memcpy(e, outside, 4 * sizeof *e);
    if (!c->tied)
        e[n++] = outside[4];
    if (c->has_b_U)
        e[n++] = outside[5];
    return n;
}

LENS_FN void lens_weight_name(char name[64], size_t layer, const char *rest)
{
    if (layer == ATTN_NO_LAYER)
        snprintf(name, 64, "%s", rest);
    else
        snprintf(name, 64, "blocks.%llu.%s", LENS_LLU(layer), rest);
}

/* Checks what opening the file would refuse, before anything is written. */
LENS_FN attn_status lens_check_config(attn_ctx *ctx, const attn_config *c, const char *path)
{
    const struct {
        const char *name;
        size_t value, most;
    } sizes[] = {{"n_vocab", c->n_vocab, 1u << 24}, {"n_ctx", c->n_ctx, 1u << 24},
                 {"d_model", c->d_model, 1u << 24}, {"n_head", c->n_head, 1u << 24},
                 {"n_layer", c->n_layer, 1u << 16}, {"d_mlp", c->d_mlp, 1u << 24}};
    size_t i;
    for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        LENS_REFUSE_IF(ctx, sizes[i].value == 0 || sizes[i].value > sizes[i].most, ATTN_E_FORMAT,
                       "%s: %s is %llu; expected 1 to %llu", path, sizes[i].name,
                       LENS_LLU(sizes[i].value), LENS_LLU(sizes[i].most));
    LENS_REFUSE_IF(ctx, c->d_model % c->n_head != 0, ATTN_E_FORMAT,
                   "%s: d_model %llu does not divide evenly among n_head %llu", path,
                   LENS_LLU(c->d_model), LENS_LLU(c->n_head));
    LENS_REFUSE_IF(ctx, (unsigned)c->act_fn > ATTN_ACT_SILU, ATTN_E_VERSION,
                   "%s: the activation function is %d; expected ATTN_ACT_...", path,
                   (int)c->act_fn);
    LENS_REFUSE_IF(ctx, !(c->ln_eps >= 0 && c->ln_eps <= 1), ATTN_E_FORMAT,
                   "%s: the layer norm epsilon is %g; expected 0 to 1", path, (double)c->ln_eps);
    LENS_REFUSE_IF(ctx,
                   c->bos < -1 || c->bos >= (int32_t)c->n_vocab || c->eos < -1 ||
                       c->eos >= (int32_t)c->n_vocab,
                   ATTN_E_FORMAT, "%s: the ids that begin and end a text are %ld and %ld", path,
                   (long)c->bos, (long)c->eos);
    for (i = 0; i < c->n_more_eos && i < LENS_MORE_EOS && c->more_eos[i] >= 0 &&
                (size_t)c->more_eos[i] < c->n_vocab;)
        i++;
    LENS_REFUSE_IF(ctx, i < c->n_more_eos || (c->n_more_eos > 0 && c->eos < 0), ATTN_E_FORMAT,
                   "%s: %llu further ids end a text, and number %llu is not right", path,
                   LENS_LLU(c->n_more_eos), LENS_LLU(i));
    return ATTN_OK;
}

LENS_FN attn_status lens_check_tokenizer(attn_ctx *ctx, const attn_config *c, const void *section,
                                         size_t size, const char *path)
{
    char reason[sizeof ctx->message];
    attn_tokenizer *made;
    if (attn_tokenizer_new(ctx, &made, section, size) != ATTN_OK) {
        memcpy(reason, ctx->message, sizeof reason);
        return attn_fail(ctx, ctx->status, "%s: %s", path, reason);
    }
    size_t n = attn_tokenizer_n_tokens(made);
    attn_tokenizer_free(made);
    LENS_REFUSE_IF(ctx, n > c->n_vocab, ATTN_E_FORMAT,
                   "%s: the tokenizer has %llu tokens, the model %llu", path, LENS_LLU(n),
                   LENS_LLU(c->n_vocab));
    return ATTN_OK;
}

/* ---- panels ---- */

/* A quantised weight is its scale times an integer from `lowest` to `highest`. The file holds this
 * integer plus `zero`, in `bits` bits; 64 inputs take `bytes`. */
typedef struct lens_packed_type {
    size_t bytes;
    int bits, zero, lowest, highest;
} lens_packed_type;

LENS_FN const lens_packed_type *lens_packed_type_of(attn_dtype dtype)
{
    static const lens_packed_type q8 = {1088, 8, 128, -127, 127}, q4 = {576, 4, 8, -8, 7};
    return dtype == ATTN_Q8 ? &q8 : &q4;
}

LENS_FN int lens_is_quantized(attn_dtype dtype)
{
    return dtype == ATTN_Q8 || dtype == ATTN_Q4;
}

/* Where weight k (of 64) of an output lies: bytes behind the output's first byte in the line after
 * the scales. *shift is the number of bits below it in its byte. */
LENS_FN size_t lens_bits_at(const lens_packed_type *t, size_t k, int *shift)
{
    const size_t four = k / 4; /* a lane holds 4 weights of q8; of q4, 4 low and the next 4 high */
    *shift = t->bits == 8 ? 0 : (int)(four % 2) * 4;
    return (t->bits == 8 ? four : four / 2) * 64 + k % 4;
}

/* The scale of 32 weights of q4, by least squares among 31 candidates. They are near the two scales
 * that make `largest` the integer -8 or 7. With 4 bits the choice matters. */
LENS_FN float lens_closest_scale(const float *x, float largest)
{
    double best_gain = 0;
    float best = 0;
    for (int j = -15; j <= 15 && largest != 0; j++) {
        const float per = (float)(j < 0 ? j - 50 : j + 60) * 0.125f / largest; /* to -8 or to 7 */
        double xq = 0, qq = 0; /* exact: sums of a few short products */
        for (size_t i = 0; i < LENS_PER_SCALE; i++) {
            const float y = x[i] * per;
            const int q = y <= -8 ? -8 : y >= 7 ? 7 : (int)rintf(y);
            xq += (double)x[i] * q;
            qq += q * q;
        }
        if (qq > 0 && xq / qq * xq > best_gain) {
            best_gain = xq / qq * xq;
            best = (float)(xq / qq);
        }
    }
    return best;
}

/* 32 weights as unsigned integers of 8 or 4 bits. Returns their scale as f16. In q8 the largest
 * weight is the integer 127 or -127. */
LENS_FN uint16_t lens_quantize_weights(const lens_packed_type *t, const float *x,
                                       unsigned char *bits)
{
    float largest = 0;
    for (size_t i = 0; i < LENS_PER_SCALE; i++)
        if (fabsf(x[i]) > fabsf(largest))
            largest = x[i];
    uint16_t half =
        attn_f16_from_f32(t->bits == 8 ? fabsf(largest) / 127 : lens_closest_scale(x, largest));
    if (t->bits == 8 && attn_f32_from_f16(half) * 127.5f < fabsf(largest))
        half++; /* a denormal scale that was rounded down would cut off the largest weights */
    float scale = attn_f32_from_f16(half);
    for (size_t i = 0; i < LENS_PER_SCALE; i++) {
        const float y = scale != 0 ? rintf(x[i] / scale) : 0;
        const int q = y <= (float)t->lowest    ? t->lowest
                      : y >= (float)t->highest ? t->highest
                                               : (int)y;
        bits[i] = (unsigned char)(q + t->zero);
    }
    return half;
}

/* Writes 64 weights x of output `lane` into a line of scales and the lines after it, which must
 * hold zeros. */
LENS_FN void lens_quantize_lane(attn_dtype dtype, unsigned char *lines, size_t lane, const float *x)
{
    const lens_packed_type *t = lens_packed_type_of(dtype);
    unsigned char bits[LENS_PER_SCALES];
    for (size_t first = 0; first < LENS_PER_SCALES; first += LENS_PER_SCALE) {
        const uint16_t half = lens_quantize_weights(t, x + first, bits + first);
        memcpy(lines + (first / LENS_PER_SCALE * 16 + lane) * 2, &half, 2);
    }
    lines += 64 + lane * 4;
    for (size_t k = 0; k < LENS_PER_SCALES; k++) {
        int shift;
        unsigned char *at = lines + lens_bits_at(t, k, &shift);
        *at = (unsigned char)(*at | bits[k] << shift);
    }
}

LENS_FN float lens_element(const attn_tensor *w, size_t k, size_t n)
{
    const ptrdiff_t at = (ptrdiff_t)k * w->stride[0] + (ptrdiff_t)n * w->stride[1];
    return w->dtype == ATTN_F32 ? ((const float *)w->data)[at]
                                : attn_f32_from_f16(((const uint16_t *)w->data)[at]);
}

/* One panel of w [K, N]. Returns 0 if a number has no scale. */
LENS_FN int lens_pack_panel(void *panels, attn_dtype dtype, const attn_tensor *w, size_t panel)
{
    const size_t n_in = w->shape[0], n_out = w->shape[1], size = model_panels_size(dtype, n_in, 16);
    unsigned char *const line = (unsigned char *)panels + panel * size;
    const size_t n_lanes = n_out - panel * 16 < 16 ? n_out - panel * 16 : 16;
    float x[64];
    memset(line, 0, size);
    for (size_t k = 0; k < n_in && !lens_is_quantized(dtype); k++)
        for (size_t lane = 0; lane < n_lanes; lane++) {
            x[0] = lens_element(w, k, panel * 16 + lane);
            if (dtype == ATTN_F32)
                ((float *)(void *)line)[k * 16 + lane] = x[0];
            else
                ((uint16_t *)(void *)line)[k * 16 + lane] = attn_f16_from_f32(x[0]);
        }
    for (size_t k = 0; k < n_in && lens_is_quantized(dtype); k += LENS_PER_SCALES)
        for (size_t lane = 0; lane < 16; lane++) {
            for (size_t i = 0; i < LENS_PER_SCALES; i++) {
                x[i] =
                    lane < n_lanes && k + i < n_in ? lens_element(w, k + i, panel * 16 + lane) : 0;
                if (!(fabsf(x[i]) < 65520.0f)) /* 65504 when rounded to f16 */
                    return 0;
            }
            lens_quantize_lane(dtype, line + k / 64 * lens_packed_type_of(dtype)->bytes, lane, x);
        }
    return 1;
}

/* Turns rows, or panels, from one byte order into the other. */
LENS_FN void lens_swap_order(unsigned char *p, attn_dtype dtype, size_t size)
{
    const size_t n = dtype == ATTN_F32 ? 4 : 2, run = lens_is_quantized(dtype) ? 64 : size;
    const size_t step = lens_is_quantized(dtype) ? lens_packed_type_of(dtype)->bytes : size;
    for (size_t at = 0; at < size; at += step)
        for (size_t i = at; i < at + run; i += n)
            for (size_t j = 0; j < n / 2; j++) {
                const unsigned char t = p[i + j];
                p[i + j] = p[i + n - 1 - j];
                p[i + n - 1 - j] = t;
            }
}

/* ---- writing ---- */

LENS_FN void lens_put_u32(unsigned char *p, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(value >> 8 * i);
}

LENS_FN void lens_put_u64(unsigned char *p, uint64_t value)
{
    lens_put_u32(p, (uint32_t)value);
    lens_put_u32(p + 4, (uint32_t)(value >> 32));
}

/* The number of tensors: those outside the blocks, and 12 in each block. */
LENS_FN size_t lens_n_tensors(const attn_config *c)
{
    return (c->tied ? 4u : 5u) + (c->has_b_U ? 1u : 0u) + 12 * c->n_layer;
}

/* Writes the parts of the header that the configuration gives. */
LENS_FN void lens_put_config(unsigned char *h, const attn_config *c)
{
    const size_t n_more = c->n_more_eos;
    const uint32_t act_fn = (uint32_t)c->act_fn;
    const uint32_t flags = (c->tied ? 1u : 0u) | (c->unscaled_attn ? 2u : 0u) |
                           (c->scale_attn_by_inverse_layer_idx ? 4u : 0u) | (c->has_b_U ? 8u : 0u);
    static const unsigned char magic[8] = {0x89, 'A', 'T', 'T', 'N', 0x0d, 0x0a, 0x1a};
    uint32_t eps_bits;
    memcpy(&eps_bits, &c->ln_eps, sizeof eps_bits);
    memcpy(h, magic, sizeof magic);
    lens_put_u32(h + 8, flags > 7 || c->n_more_eos ? 3 : flags > 1 || act_fn ? 2 : 1);
    lens_put_u32(h + 12, LENS_HEADER);
    lens_put_u32(h + 24, (uint32_t)c->n_vocab);
    lens_put_u32(h + 28, (uint32_t)c->n_ctx);
    lens_put_u32(h + 32, (uint32_t)c->d_model);
    lens_put_u32(h + 36, (uint32_t)c->n_head);
    lens_put_u32(h + 40, (uint32_t)c->n_layer);
    lens_put_u32(h + 44, (uint32_t)c->d_mlp);
    lens_put_u32(h + 48, eps_bits);
    lens_put_u32(h + 52, flags);
    lens_put_u32(h + 56, (uint32_t)c->bos);
    lens_put_u32(h + 60, (uint32_t)c->eos);
    lens_put_u32(h + 68, act_fn);
    lens_put_u64(h + 72, LENS_HEADER);
    lens_put_u32(h + 120, n_more < UINT32_MAX ? (uint32_t)n_more : UINT32_MAX);
    for (size_t i = 0; i < n_more && i < LENS_MORE_EOS; i++)
        lens_put_u32(h + 124 + 4 * i, (uint32_t)c->more_eos[i]);
}

/* Bytes of a tensor in a file, which may exceed a size_t. */
LENS_FN uint64_t lens_tensor_size(const lens_expected *e, attn_dtype dtype)
{
    const uint64_t n_in = e->n_in ? e->n_in : 1;
    return e->is_panels ? ((uint64_t)e->n_out + 15) / 16 * model_panels_size(dtype, e->n_in, 16)
                        : n_in * e->n_out * sizeof(float);
}

/* Writes an entry of the tensor table, without the checksum. */
LENS_FN void lens_put_entry(unsigned char *r, const char *name, attn_dtype dtype,
                            const lens_expected *e, uint64_t offset, uint64_t size)
{
    const int is_matrix = e->is_panels || e->n_in > 0;
    memcpy(r, name, strlen(name));
    lens_put_u32(r + 64, (uint32_t)dtype);
    lens_put_u32(r + 68, (uint32_t)e->is_panels);
    lens_put_u32(r + 72, is_matrix ? 2 : 1);
    lens_put_u64(r + 80, is_matrix ? e->n_in : e->n_out);
    lens_put_u64(r + 88, is_matrix ? e->n_out : 1);
    lens_put_u64(r + 96, offset);
    lens_put_u64(r + 104, size);
}

typedef struct lens_writer {
    attn_config config;
    lens_new_file *file;   /* the file that is written; NULL if `memory` is, or at the end */
    unsigned char *memory; /* the model that is written, with room for all of it; or NULL */
    uint64_t n_written;    /* bytes that were written to file or memory */
    unsigned char *start;  /* the header and the tensor table, which are written last */
    unsigned char *meta;   /* [LENS_MOST_META]: the section of the strings */
    size_t meta_size;      /* bytes of the strings; 0: none were given */
    unsigned char *block;  /* [LENS_IO_BLOCK]: bytes that are not written yet */
    size_t n_filled;       /* their number */
    uint64_t end;          /* bytes so far: written and not written */
    uint64_t checksum;     /* of the latest section */
    size_t n_tensors;      /* that were begun */
    unsigned char *has;    /* [1 + n_layer, 16], in the order of lens_expect: 1 if it was begun */
    size_t n_done, n_all;  /* outputs or rows of the latest tensor: so far, and in all */
    size_t n_labels, n_heads; /* of a head, and its tensors: 0, 1 or with a bias 2 */
    attn_status status;       /* ATTN_OK, or how writing failed */
} lens_writer;

LENS_FN attn_status lens_writer_failed(attn_ctx *ctx, lens_writer *w)
{
    return w->status = lens_fail_io(ctx, w->file->path, "writing failed", errno);
}

LENS_FN attn_status lens_writer_put(attn_ctx *ctx, lens_writer *w, const void *data, size_t n)
{
    if (w->memory)
        memcpy(w->memory + w->n_written, data, n);
    else if (fwrite(data, 1, n, w->file->stream) != n)
        return lens_writer_failed(ctx, w);
    w->n_written += n;
    return ATTN_OK;
}

LENS_FN attn_status lens_writer_flush(attn_ctx *ctx, lens_writer *w)
{
    const size_t n = w->n_filled;
    w->n_filled = 0;
    w->checksum = n > 0 ? model_checksum(w->checksum, w->block, n) : w->checksum;
    return lens_writer_put(ctx, w, w->block, n);
}

LENS_FN attn_status lens_writer_bytes(attn_ctx *ctx, lens_writer *w, const void *data, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)data;
    while (size > 0) {
        const size_t room = LENS_IO_BLOCK - w->n_filled, n = room < size ? room : size;
        memcpy(w->block + w->n_filled, bytes, n);
        w->n_filled += n;
        w->end += n;
        bytes += n;
        size -= n;
        if (w->n_filled == LENS_IO_BLOCK && lens_writer_flush(ctx, w) != ATTN_OK)
            return ctx->status;
    }
    return ATTN_OK;
}

/* Begins a section: zeros up to a multiple of 64, which no checksum covers. */
LENS_FN attn_status lens_writer_section(attn_ctx *ctx, lens_writer *w)
{
    static const unsigned char zeros[64] = {0};
    const size_t n = (size_t)(-w->end % 64);
    w->end += n;
    w->checksum = 0;
    return lens_writer_put(ctx, w, zeros, n);
}

/* The most bytes of a model of this configuration, which it has in f32. */
LENS_FN size_t lens_largest_file(const attn_config *c, size_t tokenizer_size, size_t n_labels)
{
    uint64_t size = LENS_HEADER + (uint64_t)lens_n_tensors(c) * LENS_ENTRY + tokenizer_size +
                    LENS_MOST_META + 63;
    int n;
    if (n_labels > 0)
        size += (uint64_t)2 * LENS_ENTRY + 4 * (uint64_t)n_labels * (c->d_model + 1) + 126;
    for (size_t layer = ATTN_NO_LAYER; layer + 1 <= c->n_layer && size <= SIZE_MAX; layer++) {
        lens_expected e[16];
        n = lens_expect(c, layer, e);
        for (int i = 0; i < n; i++) {
            e[i].n_in = e[i].is_panels ? (e[i].n_in + 63) / 64 * 64 : e[i].n_in;
            size += lens_tensor_size(&e[i], ATTN_F32) + 63;
        }
    }
    return size > SIZE_MAX ? SIZE_MAX : (size_t)size;
}

/* Frees the writer; a file that is not finished is removed. NULL is fine. */
LENS_FN void lens_writer_free(lens_writer *writer)
{
    attn_ctx none = ATTN_ZERO;
    if (!writer)
        return;
    lens_new_file_end(&none, writer->file, ATTN_STOPPED);
    attn_free(writer->memory);
    attn_free(writer->start);
    attn_free(writer->meta);
    attn_free(writer->has);
    attn_free(writer->block);
    attn_free(writer);
}

/* Checks the configuration and the tokenizer with the code that opens files. Then writes zeros for
 * the header and the table, whose checksums are known only at the end. */
/* Makes a model from weights of any origin: training, another format, another model
 * (tools/lens/process_weights.h). Begin with a configuration, add every tensor in any order, and
 * end. With a path, the model becomes a .attn file. A tensor is written when it is added, and may
 * come in pieces, so little memory is needed. The file takes its name when it is whole and on the
 * disk (fsync). Without a path, the model is made in memory. */

/* What a file will hold, with the tensors of a head (head.weight, head.bias), to be added last. */
typedef struct lens_contents {
    const attn_config *config;
    const void *tokenizer;
    size_t tokenizer_size;
    size_t n_labels, n_heads; /* n_heads: 0, 1 without a bias, 2 with one */
} lens_contents;

LENS_FN attn_status lens_writer_begin(attn_ctx *ctx, lens_writer **writer, const char *path,
                                      const lens_contents *what)
{
    const attn_config *const config = what->config;
    const size_t size = what->tokenizer_size;
    unsigned char header[LENS_HEADER] = {0};
    const char *const shown_as = path ? lens_shown_path(path) : "model in memory";
    LENS_TRY(lens_need_given(ctx, "lens_writer_new", "place for the writer", writer));
    *writer = NULL;
    LENS_TRY(lens_need_given(ctx, "lens_writer_new", "configuration", config));
    for (size_t i = 0; i < 4; i++)
        LENS_REFUSE_IF(ctx, config->reserved[i], ATTN_E_ARGUMENT,
                       "lens_writer_new: attn_config.reserved is not zero: zero the struct");
    if (size > 0)
        LENS_TRY(lens_need_given(ctx, "lens_writer_new", "tokenizer", what->tokenizer));
    if (config->n_more_eos > 0)
        LENS_TRY(lens_need_given(ctx, "lens_writer_new", "more_eos", config->more_eos));
    attn_config c = *config;
    lens_put_config(header, &c);
    LENS_TRY(lens_check_config(ctx, &c, shown_as));
    c.d_head = c.d_model / c.n_head;
    if (size > 0)
        LENS_TRY(lens_check_tokenizer(ctx, &c, what->tokenizer, size, shown_as));
    if (what->n_heads > 0 || (size > 0 && ((const unsigned char *)what->tokenizer)[10] & 8))
        lens_put_u32(header + 8, 5); /* a head, or a blank in front of texts */
    size_t start_size = (lens_n_tensors(&c) + what->n_heads) * LENS_ENTRY;
    lens_put_u32(header + 64, (uint32_t)(start_size / LENS_ENTRY));
    lens_put_u64(header + 80, start_size);
    start_size += LENS_HEADER;
    lens_writer *w = (lens_writer *)attn_alloc(ctx, 1, sizeof(lens_writer), "a writer");
    if (!w)
        return ATTN_E_MEMORY;
    w->config = c;
    w->n_labels = what->n_labels;
    w->n_heads = what->n_heads;
    w->start = (unsigned char *)attn_alloc(ctx, 1, start_size, "a table of tensors");
    w->meta = (unsigned char *)attn_alloc(ctx, 1, LENS_MOST_META, "strings about a model");
    w->has = (unsigned char *)attn_alloc(ctx, 1 + c.n_layer, 16, "a list of tensors");
    w->block = (unsigned char *)attn_alloc(ctx, 1, LENS_IO_BLOCK, "a block of a file");
    if (w->start)
        memcpy(w->start, header, sizeof header);
    if (!path)
        w->memory = (unsigned char *)attn_alloc(ctx, 1, lens_largest_file(&c, size, w->n_labels),
                                                "a model in memory");
    if (!w->start || !w->meta || !w->has || !w->block || (!path && !w->memory) ||
        (path && lens_new_file_begin(ctx, &w->file, path)) ||
        lens_writer_bytes(ctx, w, w->start, start_size) || lens_writer_flush(ctx, w) ||
        lens_writer_section(ctx, w) || lens_writer_bytes(ctx, w, what->tokenizer, size) ||
        lens_writer_flush(ctx, w)) {
        lens_writer_free(w);
        return ctx->status;
    }
    if (size > 0) {
        lens_put_u64(w->start + 96, w->end - size);
        lens_put_u64(w->start + 104, size);
        lens_put_u64(w->start + 112, w->checksum);
    }
    *writer = w;
    return ATTN_OK;
}

/* path: NULL for a model in memory; the writer then allocates what the model takes in f32. config:
 * d_head is not needed; more_eos is copied. tokenizer: a tokenizer section
 * (model_tokenizer_section), which is copied, or NULL and 0. *writer is NULL on failure. */
LENS_FN attn_status lens_writer_new(attn_ctx *ctx, lens_writer **writer, const char *path,
                                    const attn_config *config, const void *tokenizer,
                                    size_t tokenizer_size)
{
    const lens_contents what = {config, tokenizer, tokenizer_size, 0, 0};
    return lens_writer_begin(ctx, writer, path, &what);
}

/* Bytes of the strings about the model before those of `key`, which the writer has or not. */
LENS_FN size_t lens_meta_before(const lens_writer *w, const char *key, int *has_key)
{
    const char *const text = (const char *)w->meta + 16;
    size_t at = 0;
    *has_key = 0;
    while (at < w->meta_size && strcmp(text + at, key) < 0) {
        at += strlen(text + at) + 1;
        at += strlen(text + at) + 1;
    }
    *has_key = at < w->meta_size && strcmp(text + at, key) == 0;
    return at;
}

/* Is it what a file may say: UTF-8 without control characters, and not empty? */
LENS_FN int lens_is_meta(const char *text)
{
    char whole[16]; /* the character that ends at p; U+FFFD in place of each wrong byte */
    attn_utf8 state = ATTN_ZERO;
    const char *p;
    size_t n;
    for (p = text; *p; p++) {
        const unsigned char now = (unsigned char)*p;
        const int after_c2 = p > text && (unsigned char)p[-1] == 0xC2; /* U+0080 to U+00BF */
        n = attn_utf8_push(whole, &state, p, 1);
        if (n > (size_t)(p - text) + 1 || memcmp(p + 1 - n, whole, n) != 0 || now < ' ' ||
            now == 0x7F || (after_c2 && now < 0xA0))
            return 0;
    }
    return p > text && state.n == 0;
}

/* Says something of the model in its file: see "Strings" in >>format. It must come before the first
 * tensor. A second value of a key takes the place of the first. */
LENS_FN attn_status lens_writer_meta(attn_ctx *ctx, lens_writer *writer, const char *key,
                                     const char *value)
{
    lens_writer *const w = writer;
    int has_key;
    LENS_TRY(lens_need_given(ctx, "lens_writer_meta", "writer", w));
    LENS_TRY(lens_need_given(ctx, "lens_writer_meta", "key", key));
    LENS_TRY(lens_need_given(ctx, "lens_writer_meta", "value", value));
    if (w->status != ATTN_OK)
        return ctx->status = w->status; /* the first message stays */
    LENS_REFUSE_IF(
        ctx, w->n_tensors > 0, ATTN_E_ARGUMENT,
        "lens_writer_meta: a tensor is in the file already; expected it before the first");
    LENS_REFUSE_IF(ctx, !lens_is_meta(key) || !lens_is_meta(value), ATTN_E_ARGUMENT,
                   "lens_writer_meta: a key or a value is empty, is not UTF-8 or has a control "
                   "character");
    char *text = (char *)w->meta + 16;
    size_t at = lens_meta_before(w, key, &has_key);
    size_t n_key = strlen(key) + 1;
    size_t n_new = n_key + strlen(value) + 1;
    size_t old = has_key ? n_key + strlen(text + at + n_key) + 1 : 0;
    LENS_REFUSE_IF(ctx, n_new > LENS_MOST_META - 16 - (w->meta_size - old), ATTN_E_ARGUMENT,
                   "lens_writer_meta: with %s there are more than %d bytes of strings", key,
                   (int)LENS_MOST_META);
    memmove(text + at + n_new, text + at + old, w->meta_size - at - old);
    memcpy(text + at, key, n_key);
    memcpy(text + at + n_key, value, n_new - n_key);
    w->meta_size += n_new - old;
    return ATTN_OK;
}

/* Says of the new model what the file of another one says, from which it was made, and under the key
 * "processed" what was done to it. */
LENS_FN attn_status lens_writer_made_from(attn_ctx *ctx, lens_writer *writer,
                                          const attn_model *from, const char *what)
{
    const char *const before = attn_model_meta(from, "processed");
    const size_t n = before ? strlen(before) : 0, n_what = strlen(what) + 1;
    const char *key = NULL;
    char all[512];
    while ((key = model_next_key(from, key)) != NULL)
        if (strncmp(key, "head.", 5) != 0) /* it has no head */
            LENS_TRY(lens_writer_meta(ctx, writer, key, attn_model_meta(from, key)));
    if (n == 0 || n + 2 + n_what > sizeof all)
        return lens_writer_meta(ctx, writer, "processed", what);
    memcpy(all, before, n);
    memcpy(all + n, ", ", 2);
    memcpy(all + n + 2, what, n_what);
    return lens_writer_meta(ctx, writer, "processed", all);
}

/* Writes the strings about the model, if there are any, before the first tensor. */
LENS_FN attn_status lens_writer_put_meta(attn_ctx *ctx, lens_writer *w)
{
    const size_t size = w->meta_size + 16;
    const int is_newest = w->start[8] == 5;
    if (w->meta_size == 0 && !is_newest)
        return ATTN_OK;
    lens_put_u32(w->start + 8, is_newest ? 5 : 4);
    lens_put_u64(w->meta + 8, size);
    lens_put_u64(w->meta, model_checksum(0, w->meta + 8, size - 8));
    LENS_TRY(lens_writer_section(ctx, w));
    LENS_TRY(lens_writer_bytes(ctx, w, w->meta, size));
    return lens_writer_flush(ctx, w);
}

/* Finds a tensor of the model by name. Returns its index in lens_writer.has; -1 if the model has no
 * such tensor. */
LENS_FN ptrdiff_t lens_find_expected(const attn_config *config, const char *name,
                                     lens_expected *wanted)
{
    lens_expected e[16];
    unsigned long layer = 0;
    char whole[64];
    size_t at = ATTN_NO_LAYER;
    if (strncmp(name, "blocks.", 7) == 0) {
        layer = strtoul(name + 7, NULL, 10);
        at = layer < config->n_layer ? (size_t)layer : config->n_layer;
    }
    int n = at + 1 <= config->n_layer ? lens_expect(config, at, e) : 0;
    for (int i = 0; i < n; i++)
        if (lens_weight_name(whole, at, e[i].name), strcmp(whole, name) == 0) {
            *wanted = e[i];
            return (ptrdiff_t)((1 + at) * 16) + i;
        }
    return -1;
}

/* The same for a tensor of the head, which a file may have besides. */
LENS_FN ptrdiff_t lens_find_tensor(const lens_writer *w, const char *name, lens_expected *wanted)
{
    const lens_expected heads[] = {{"head.weight", 0, w->n_labels, w->config.d_model},
                                   {"head.bias", 0, 0, w->n_labels}};
    for (size_t i = 0; i < 2 && i < w->n_heads; i++)
        if (strcmp(name, heads[i].name) == 0 && w->n_tensors >= lens_n_tensors(&w->config) + i) {
            *wanted = heads[i];
            return 14 + (ptrdiff_t)i; /* there are at most 6 outside the blocks */
        }
    return lens_find_expected(&w->config, name, wanted);
}

/* Checks that a piece of a tensor is the next one that is expected. `n`: its outputs or rows.
 * is_there: the file has a piece of this tensor, or all of it. */
LENS_FN attn_status lens_check_piece(attn_ctx *ctx, const lens_writer *w, const char *name,
                                     attn_dtype dtype, const lens_expected *e, int is_there,
                                     attn_tensor x, size_t n)
{
    const size_t before = w->n_tensors > 0 ? (size_t)w->n_tensors - 1 : 0; /* the latest tensor */
    const unsigned char *latest = w->start + LENS_HEADER + before * LENS_ENTRY;
    const size_t done = w->n_done < w->n_all ? w->n_done : 0;
    const size_t all = e->is_panels || e->n_in == 0 ? e->n_out : e->n_in;
    const size_t each = e->is_panels ? e->n_in : e->n_in > 0 ? e->n_out : 1;
    LENS_REFUSE_IF(ctx,
                   done > 0 && (strcmp((const char *)latest, name) != 0 ||
                                (uint32_t)latest[64] != (uint32_t)dtype),
                   ATTN_E_ARGUMENT,
                   "lens_writer_add: %s came, but %s has %zu of %zu columns or rows so "
                   "far; expected its next piece, of the same type",
                   name, (const char *)latest, done, w->n_all);
    LENS_REFUSE_IF(ctx, done == 0 && is_there, ATTN_E_NAME,
                   "lens_writer_add: %s is in the file already", name);
    LENS_REFUSE_IF(ctx, dtype != ATTN_F32 && (!e->is_panels || model_panels_size(dtype, 1, 1) == 0),
                   ATTN_E_ARGUMENT,
                   "lens_writer_add: %s cannot have the type %d; matrices take ATTN_F32, "
                   "ATTN_F16, ATTN_Q8 and ATTN_Q4, everything else ATTN_F32",
                   name, (int)dtype);
    LENS_REFUSE_IF(ctx,
                   x.ndim != (e->is_panels || e->n_in > 0 ? 2 : 1) || attn_count(x) != n * each ||
                       n == 0 || n > all - done || (e->is_panels && n < all - done && n % 16 != 0),
                   ATTN_E_SHAPE,
                   "lens_writer_add: %s came as %s; expected %zu times %zu, or a piece of "
                   "%s",
                   name, lens_show(x).text, all - done, each,
                   e->is_panels ? "a multiple of 16" : "its rows");
    return ATTN_OK;
}

/* A matrix, and the panels that are made of it. */
typedef struct lens_packing {
    void *panels;
    attn_dtype dtype;
    const attn_tensor *w;
    unsigned char *fits; /* of each panel, 0: it has no scale */
} lens_packing;

LENS_FN void lens_pack_one(size_t panel, void *user)
{
    const lens_packing *p = (const lens_packing *)user;
    p->fits[panel] = (unsigned char)lens_pack_panel(p->panels, p->dtype, p->w, panel);
}

/* Packs w [K, N], with any strides, as panels of dtype. q8 and q4 have a scale for 32 consecutive k
 * of an output, and round to a multiple of it. They need numbers that f16 can hold: up to 65504, no
 * NaN. Otherwise it fails with ATTN_E_ARGUMENT. */
LENS_FN attn_status lens_make_panels(attn_ctx *ctx, void *panels, attn_dtype dtype, attn_tensor w)
{
    const size_t n_panels = (w.shape[1] + 15) / 16;
    lens_packing p;
    p.panels = panels;
    p.dtype = dtype;
    p.w = &w;
    p.fits = (unsigned char *)attn_alloc(ctx, n_panels, 1, "a matrix's panels");
    if (!p.fits)
        return ctx->status;
    attn_parallel_for(ctx, n_panels, lens_pack_one, &p);
    int beyond = memchr(p.fits, 0, n_panels) != NULL;
    attn_free(p.fits);
    LENS_REFUSE_IF(ctx, beyond, ATTN_E_ARGUMENT,
                   "lens_writer_add: the matrix holds NaN or more than 65504, for which q8 and "
                   "q4 have no scale; expected numbers that f16 can hold");
    return ATTN_OK;
}

/* Writes rows or panels, which on a big-endian host change their order here. */
LENS_FN attn_status lens_write_numbers(attn_ctx *ctx, lens_writer *w, void *numbers,
                                       attn_dtype dtype, size_t size)
{
    if (lens_host_turns()) /* cover: another processor */
        lens_swap_order((unsigned char *)numbers, dtype, size);
    return lens_writer_bytes(ctx, w, numbers, size);
}

/* Writes a piece [n_in, n] of a matrix, some panels at a time: about a block of the file. */
LENS_FN attn_status lens_write_panels(attn_ctx *ctx, lens_writer *w, attn_dtype dtype,
                                      attn_tensor x)
{
    const size_t n_in = x.shape[0], n_out = x.shape[1];
    /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): no matrix of a model has a size of 0 */
    const size_t most = n_in < LENS_IO_BLOCK / 64 ? LENS_IO_BLOCK / 64 / n_in * 16 : 16;
    void *const panels =
        attn_alloc(ctx, 1, model_panels_size(dtype, n_in, n_out < most ? n_out : most), "panels");
    size_t n;
    attn_status status = panels ? ATTN_OK : ATTN_E_MEMORY;
    for (size_t first = 0; first < n_out && status == ATTN_OK; first += n) {
        n = n_out - first < most ? n_out - first : most;
        status = lens_make_panels(ctx, panels, dtype, attn_slice(x, 1, first, n));
        if (status == ATTN_OK)
            status = lens_write_numbers(ctx, w, panels, dtype, model_panels_size(dtype, n_in, n));
    }
    attn_free(panels);
    return status;
}

/* Writes rows as f32. */
LENS_FN attn_status lens_write_rows(attn_ctx *ctx, lens_writer *w, attn_tensor x)
{
    attn_tensor dense = ATTN_ZERO;
    attn_status status =
        attn_zeros(ctx, &dense, ATTN_F32,
                   x.ndim == 1 ? attn_shape1(x.shape[0]) : attn_shape2(x.shape[0], x.shape[1]));
    if (status == ATTN_OK)
        status = attn_copy(ctx, &dense, x);
    if (status == ATTN_OK)
        status = lens_write_numbers(ctx, w, dense.data, ATTN_F32, attn_count(x) * 4);
    attn_tensor_free(ctx, &dense);
    return status;
}

/* A piece continues the latest tensor, or begins the next one. */
/* Adds a tensor, by the names and in the shapes of attn_model_tensor, except: attn.W_QKV [C, 3C]
 * and b_QKV [3C] instead of Q, K and V, and W_O [C, C]. There is an unembed.W_U only if the
 * configuration is not tied, and a b_U only if it has_b_U. x is f32 or f16 and may have any
 * strides. dtype is the type in the file: ATTN_F32, ATTN_F16, ATTN_Q8 or ATTN_Q4 for matrices,
 * ATTN_F32 for vectors and pos_embed.W_pos. To add a tensor in pieces, call it again with the same
 * name. embed.W_E, pos_embed.W_pos and vectors are cut along the first dimension, other matrices
 * along the second. Each piece of a matrix but the last must have a multiple of 16 there. If
 * writing failed, later calls fail too. ATTN_STOPPED if ctx->stop_flag asks for it. */
LENS_FN attn_status lens_writer_add(attn_ctx *ctx, lens_writer *writer, const char *name,
                                    attn_dtype dtype, attn_tensor x)
{
    lens_writer *const w = writer;
    unsigned char *entry;
    lens_expected e;
    uint64_t size;
    LENS_TRY(lens_need_given(ctx, "lens_writer_add", "writer", w));
    LENS_TRY(lens_need_given(ctx, "lens_writer_add", "name", name));
    if (w->status != ATTN_OK)
        return ctx->status = w->status; /* the first message stays */
    if (lens_is_stopped(ctx))
        return ATTN_STOPPED;
    ptrdiff_t number = lens_find_tensor(w, name, &e);
    LENS_REFUSE_IF(ctx, number < 0, ATTN_E_NAME,
                   "lens_writer_add: a model of this configuration has no tensor \"%s\"", name);
    LENS_REFUSE_IF(ctx, x.ndim == 0 || (x.dtype != ATTN_F32 && x.dtype != ATTN_F16),
                   ATTN_E_ARGUMENT, "lens_writer_add: %s is no tensor of f32 or f16%s%s", name,
                   x.error ? ": " : "", x.error ? x.error : "");
    if (strcmp(name, "embed.W_E") == 0) /* the file has its transpose */
        x = attn_transpose(x, 0, -1);
    size_t n = x.shape[e.is_panels ? 1 : 0];
    LENS_TRY(lens_check_piece(ctx, w, name, dtype, &e, w->has[number], x, n));
    if (w->n_tensors == 0)
        LENS_TRY(lens_writer_put_meta(ctx, w));
    if (w->n_done == w->n_all) {
        LENS_TRY(lens_writer_section(ctx, w));
        size = lens_tensor_size(&e, dtype);
        entry = w->start + LENS_HEADER + w->n_tensors++ * LENS_ENTRY;
        lens_put_entry(entry, name, dtype, &e, w->end, size);
        w->has[number] = 1;
        w->n_done = 0;
        w->n_all = e.is_panels || e.n_in == 0 ? e.n_out : e.n_in;
    }
    w->status = e.is_panels ? lens_write_panels(ctx, w, dtype, x) : lens_write_rows(ctx, w, x);
    w->n_done += n;
    if (w->status == ATTN_OK && w->n_done == w->n_all && lens_writer_flush(ctx, w) == ATTN_OK)
        lens_put_u64(w->start + LENS_HEADER + w->n_tensors * LENS_ENTRY - 16, w->checksum);
    return w->status;
}

/* The name of the first tensor that is missing; there is one. */
LENS_FN void lens_writer_lacks(const lens_writer *w, char name[64])
{
    lens_expected e[16];
    int n;
    for (size_t layer = ATTN_NO_LAYER; layer + 1 <= w->config.n_layer; layer++) {
        n = lens_expect(&w->config, layer, e);
        for (int i = 0; i < n; i++)
            if (!w->has[(1 + layer) * 16 + (size_t)i]) {
                lens_weight_name(name, layer, e[i].name);
                return;
            }
    }
    lens_weight_name(name, ATTN_NO_LAYER, w->has[14] ? "head.bias" : "head.weight");
}

/* The header and the table take their place when all their checksums are known. */
LENS_FN attn_status lens_writer_finish(attn_ctx *ctx, const char *op, lens_writer *w)
{
    const size_t n_tensors = w ? lens_n_tensors(&w->config) + w->n_heads : 0;
    char missing[64] = "";
    LENS_TRY(lens_need_given(ctx, op, "writer", w));
    LENS_REFUSE_IF(ctx, !w->file && !w->memory, ATTN_E_ARGUMENT,
                   "%s: the model is finished already", op);
    if (w->status != ATTN_OK)
        return ctx->status = w->status;
    LENS_REFUSE_IF(ctx, w->n_done < w->n_all, ATTN_E_ARGUMENT,
                   "%s: %s has %zu of %zu columns or rows", op,
                   (const char *)w->start + LENS_HEADER + (w->n_tensors - 1) * LENS_ENTRY,
                   w->n_done, w->n_all);
    if (w->n_tensors < n_tensors) {
        lens_writer_lacks(w, missing);
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: %zu of %zu tensors were added; %s is missing",
                         op, w->n_tensors, n_tensors, missing);
    }
    lens_put_u64(w->start + 16, w->end);
    lens_put_u64(w->start + 88, model_checksum(0, w->start + LENS_HEADER, n_tensors * LENS_ENTRY));
    lens_put_u64(w->start + 248, model_checksum(0, w->start, 248));
    w->n_written = 0;
    if (w->file && fseek(w->file->stream, 0, SEEK_SET) != 0)
        return lens_writer_failed(ctx, w);
    return lens_writer_put(ctx, w, w->start, LENS_HEADER + n_tensors * LENS_ENTRY);
}

/* Finishes the file. It fails if a tensor is missing. */
LENS_FN attn_status lens_writer_end(attn_ctx *ctx, lens_writer *writer)
{
    lens_new_file *const file = writer ? writer->file : NULL;
    LENS_REFUSE_IF(ctx, writer && writer->memory, ATTN_E_ARGUMENT,
                   "lens_writer_end: this writer has no path; lens_writer_open ends it");
    LENS_TRY(lens_writer_finish(ctx, "lens_writer_end", writer));
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): lens_writer_finish refuses NULL */
    if (fflush(file->stream) != 0 || (file->part[0] && !lens_sync(file->part)))
        return lens_writer_failed(ctx, writer);
    writer->file = NULL;
    return lens_new_file_end(ctx, file, ATTN_OK);
}

/* Finishes a model in memory and opens it. It fails if a tensor is missing; *model is NULL on
 * failure. */
LENS_FN attn_status lens_writer_open(attn_ctx *ctx, attn_model **model, lens_writer *writer)
{
    attn_model_desc desc = ATTN_ZERO;
    LENS_TRY(lens_need_given(ctx, "lens_writer_open", "place for the model", model));
    *model = NULL;
    LENS_REFUSE_IF(ctx, writer && writer->file, ATTN_E_ARGUMENT,
                   "lens_writer_open: this writer has a path; lens_writer_end ends it");
    LENS_TRY(lens_writer_finish(ctx, "lens_writer_open", writer));
    desc.skip_checksums = 1; /* they were just computed */
    desc.takes_memory = 1;
    attn_status status =
        attn_model_open_memory(ctx, model, writer->memory, (size_t)writer->end, &desc);
    if (status == ATTN_OK)
        writer->memory = NULL;
    return status;
}

/* ---- models of your own ---- */

/* Writes a model as a .attn file, which appears whole or not at all: see lens_new_file. */
LENS_FN attn_status lens_model_save(attn_ctx *ctx, const char *path, const attn_model *model)
{
    lens_new_file *file;
    size_t size;
    const void *bytes = attn_model_bytes(&size, model);
    LENS_TRY(lens_need_given(ctx, "lens_model_save", "model", model));
    LENS_TRY(lens_need_given(ctx, "lens_model_save", "path", path && *path ? path : NULL));
    LENS_TRY(lens_new_file_begin(ctx, &file, path));
    fwrite(bytes, 1, size, lens_new_file_stream(file)); /* ferror tells */
    return lens_new_file_end(ctx, file, ATTN_OK);
}

#endif
