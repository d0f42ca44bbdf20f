/* A checkpoint of any format: a configuration, named tensors with their places in files, and perhaps a
 * vocabulary. The reader of each format (huggingface.h, gguf.h, llmc.h) fills a `source`. The weights stay on
 * disk until source_read reads a piece. */
#ifndef TOOLS_SOURCE_H
#define TOOLS_SOURCE_H

#include "blocks.h"
#include "tools/common/json_out.h"
#include "tools/common/vocab.h"
#include "tools/write/base.h"
#include <float.h>
#include <math.h>

typedef enum source_dtype {
    SOURCE_F32,
    SOURCE_F16,
    SOURCE_BF16,
    SOURCE_F64,  /* rounded to f32 */
    SOURCE_Q8_0, /* this and the following are GGUF's types of blocks */
    SOURCE_Q4_0,
    SOURCE_Q4_1,
    SOURCE_Q5_0,
    SOURCE_Q5_1,
    SOURCE_Q2_K,
    SOURCE_Q3_K,
    SOURCE_Q4_K,
    SOURCE_Q5_K,
    SOURCE_Q6_K,
    SOURCE_IQ4_NL,
    SOURCE_IQ4_XS,
    SOURCE_OTHER /* cannot be converted; allowed in a tensor that is not needed */
} source_dtype;

/* Numbers and bytes of a block. Plain types have blocks of one number. */
typedef struct source_block {
    unsigned count, size;
    void (*widen)(const unsigned char *block, float *out);
} source_block;
static const source_block source_blocks[] = {{1, 4, NULL},           {1, 2, NULL},
                                             {1, 2, NULL},           {1, 8, NULL},
                                             {32, 34, block_q8_0},   {32, 18, block_q4_0},
                                             {32, 20, block_q4_1},   {32, 22, block_q5_0},
                                             {32, 24, block_q5_1},   {256, 84, block_q2_k},
                                             {256, 110, block_q3_k}, {256, 144, block_q4_k},
                                             {256, 176, block_q5_k}, {256, 210, block_q6_k},
                                             {32, 18, block_iq4_nl}, {256, 136, block_iq4_xs}};

typedef struct source_file {
    struct source_file *next;
    FILE *file;
    const char *path, *name; /* the name is the end of the path */
    uint64_t size;
} source_file;

enum { SOURCE_MAX_DIMS = 4 };

/* Limits: the number of layers and every other size of a model as in attn_model_open. A checkpoint may have
 * some tensors more than the layers; its header is in memory while it is read. */
enum {
    SOURCE_MAX_LAYERS = 1 << 16,
    SOURCE_MAX_SIZE = 1 << 24,
    SOURCE_MAX_TENSORS = 1 << 20,
    SOURCE_MAX_HEADER = 100000000 /* as in the original reader of safetensors */
};

/* What an adapter adds to a tensor: factor times the product of two matrices, whose product has the tensor's shape. */
typedef struct source_pair {
    struct source_pair *next;
    const struct source_tensor *tensors[2]; /* [r, in] and [out, r]; or none and [out] */
    float factor;
    int turned; /* the tensor is [in, out], else [out, in] */
    attn_tensor factors[2];
} source_pair;

typedef struct source_tensor {
    char *name; /* "h.0.ln_1.weight" */
    source_dtype dtype;
    const char *dtype_name; /* the source's name for it */
    int ndim;
    uint64_t shape[SOURCE_MAX_DIMS]; /* slowest first */
    source_file *file;
    uint64_t offset, size; /* within the file */
    int has_strides;       /* its elements do not follow one another in the file */
    uint64_t stride[SOURCE_MAX_DIMS];
    source_pair *pairs; /* NULL: none; else they follow this one, which is empty */
} source_tensor;

enum { SOURCE_NO_TOKEN = -1, SOURCE_UNSAID = -2, SOURCE_MORE_EOS = 31 };

/* The names of the tensors: Hugging Face's (nanoGPT and today's minGPT have the same), GGUF's, those of
 * minGPT's first version, those of the book "Build a Large Language Model (From Scratch)", and those of
 * TransformerLens's HookedTransformer and TransformerBridge. */
typedef enum source_names {
    NAMES_HF,
    NAMES_GGUF,
    NAMES_MINGPT,
    NAMES_FROM_SCRATCH,
    NAMES_TRANSFORMERLENS,
    NAMES_BRIDGE,
    N_SOURCE_NAMES
} source_names;

/* What a checkpoint says of itself, or a person says of it: see card.h. */
typedef enum source_said { SAID_NAME, SAID_SOURCE, SAID_LICENSE, N_SAID } source_said;

typedef struct source {
    arena memory;
    source_file *files;
    source_tensor *tensors;
    size_t n_tensors, capacity;
    name_table by_name;

    uint64_t n_vocab, n_ctx, d_model, n_head, n_layer, d_mlp;
    double ln_eps;
    attn_mlp_act act_fn; /* this and the next two are settings that GPT-2 itself does not need */
    int unscaled_attn, scale_attn_by_inverse_layer_idx;
    int says_untied;                   /* there must be a separate unembedding */
    int64_t bos, eos;                  /* ids, or one of the two constants above */
    int64_t generation_bos;            /* what counts if bos is outside the vocabulary, or -1 */
    int32_t more_eos[SOURCE_MORE_EOS]; /* tokens that end a text, besides eos */
    size_t n_more_eos;
    const char *config_name; /* the file of these settings, for messages */

    const char *said[N_SAID]; /* NULL: nobody says it */
    const char *prefix;       /* of the tensors that count; NULL: all do */
    const char *dir;          /* where a vocabulary may be; NULL: nowhere */
    source_names names;
    int linears_out_in;  /* weights of linear layers are stored [out, in], else [in, out] */
    int no_biases;       /* the checkpoint has no biases: all are zero */
    int no_qkv_biases;   /* ... no biases of queries, keys and values */
    int transformerlens; /* the configuration is TransformerLens's; the next two are 0 without it */
    int folded_ln;       /* LayerNorm has no weights: they are folded into what reads from it */
    int attn_only;       /* there are no MLPs */

    const char **labels; /* [n_labels]: names of a classifier's labels, each may be NULL */
    size_t n_labels;

    int has_vocab;
    vocab vocabulary;
    const char *other_vocab; /* the file of a vocabulary that is of another kind; NULL: none */

    unsigned char raw[1 << 16]; /* bytes that are converted to floats */
    const source_tensor *gathered;
    unsigned char *dense; /* the bytes of that tensor, which has strides */
    const source_tensor *merged;
    arena merging;          /* the matrices that are added to that tensor */
    struct source *adapter; /* what is merged into this; of that, what is merged next */
} source;

/* Where this thread's notes go, each ended by a zero, if a caller gets them; NULL: on standard error, if this is a program. */
TOOLS_THREAD json_out *source_notes;

/* Notes something that a person should know, and that is not a failure. */
TOOLS_FN void source_note(const char *format, ...) TOOLS_PRINTF(1, 2);
TOOLS_FN void source_note(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (source_notes)
        out_bytes(source_notes, text, strlen(text) + 1);
    else if (system_errors)
        fprintf(system_errors, "note: %s\n", text);
}

TOOLS_FN source_file *source_open(attn_ctx *ctx, source *s, const char *path)
{
    source_file *f = (source_file *)arena_alloc(ctx, &s->memory, 1, sizeof *f);
    if (!f || (f->path = arena_text(ctx, &s->memory, path, strlen(path))) == NULL)
        return NULL;
    f->name = base_name(f->path);
    if ((f->file = open_input(ctx, path)) == NULL)
        return NULL;
    f->next = s->files;
    s->files = f;
    if (system_size(f->file, &f->size)) {
        tool_fail_io(ctx, "cannot tell the size of", path);
        return NULL;
    }
    if (f->size == 0) {
        tool_fail(ctx, ATTN_E_FORMAT, "%s is empty", path);
        return NULL;
    }
    return f;
}

TOOLS_FN void source_close(source *s)
{
    source_file *f;
    for (f = s->files; f; f = f->next)
        fclose(f->file);
    free(s->tensors);
    free(s->dense);
    arena_free(&s->memory);
    arena_free(&s->merging);
    if (s->adapter)
        source_close(s->adapter);
    free(s->adapter);
    memset(s, 0, sizeof *s);
}

TOOLS_FN attn_status source_bytes(attn_ctx *ctx, source_file *f, uint64_t offset, void *bytes,
                                  size_t size)
{
    if (offset > f->size || size > f->size - offset)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s ends at byte %llu, but something in it should reach to %llu: the file "
                         "was cut short",
                         f->name, TOOLS_LLU(f->size), TOOLS_LLU(offset + size));
    if (system_seek(f->file, offset) || fread(bytes, 1, size, f->file) != size)
        return tool_fail(ctx, ATTN_E_IO, "cannot read %s at byte %llu: %s", f->name,
                         TOOLS_LLU(offset), ferror(f->file) ? reason() : "it ends there");
    return ATTN_OK;
}

/* Adds a tensor, which the caller fills in. The pointer is valid until the next call. */
TOOLS_FN source_tensor *source_add(attn_ctx *ctx, source *s)
{
    if (s->n_tensors == s->capacity) {
        size_t larger = s->capacity ? 2 * s->capacity : 256;
        if (s->n_tensors == SOURCE_MAX_TENSORS) {
            tool_fail(ctx, ATTN_E_FORMAT, "the checkpoint has more than %d tensors",
                      (int)SOURCE_MAX_TENSORS);
            return NULL;
        }
        source_tensor *tensors = (source_tensor *)realloc(s->tensors, larger * sizeof *s->tensors);
        if (!tensors) {
            tool_fail(ctx, ATTN_E_MEMORY, "no memory for a list of %llu tensors",
                      TOOLS_LLU(larger));
            return NULL;
        }
        s->tensors = tensors;
        s->capacity = larger;
    }
    memset(&s->tensors[s->n_tensors], 0, sizeof *s->tensors);
    return &s->tensors[s->n_tensors++];
}

/* Call this after the last tensor. Then tensors can be found by name. */
TOOLS_FN attn_status source_index(attn_ctx *ctx, source *s)
{
    size_t other;
    shown name;
    if (names_init(ctx, &s->memory, &s->by_name, s->n_tensors))
        return ctx->status;
    for (size_t i = 0; i < s->n_tensors; i++) {
        const source_tensor *t = &s->tensors[i];
        other = i;
        if (!names_add(&s->by_name, t->name, strlen(t->name), &other))
            return tool_fail(ctx, ATTN_E_FORMAT, "the tensor %s is there twice (in %s and in %s)",
                             show(name, t->name, strlen(t->name)), s->tensors[other].file->name,
                             t->file->name);
    }
    return ATTN_OK;
}

/* Is it the causal mask, or what stands under one, which PyTorch saves with the weights? */
TOOLS_FN int source_is_mask(const source_tensor *t)
{
    return lens_ends_in(t->name, ".attn.bias") || lens_ends_in(t->name, ".attn.masked_bias") ||
           lens_ends_in(t->name, ".attn.mask") || lens_ends_in(t->name, ".att.mask") ||
           lens_ends_in(t->name, ".attn.IGNORE");
}

TOOLS_FN const source_tensor *source_find(const source *s, const char *name)
{
    size_t i;
    return names_find(&s->by_name, name, strlen(name), &i) ? &s->tensors[i] : NULL;
}

/* Similarity of two names: one may be the other with a prefix; or they may share a beginning, which names the
 * layer, and an end. */
TOOLS_FN size_t source_likeness(const char *name, const char *other)
{
    const size_t n = strlen(name), m = strlen(other), most = n < m ? n : m;
    size_t head = 0, tail = 0;
    while (head < most && name[head] == other[head])
        head++;
    while (head + tail < most && name[n - 1 - tail] == other[m - 1 - tail])
        tail++;
    return tail == n ? 4 * n : 2 * head + tail;
}

/* The tensor with the most similar name, the shortest of several; NULL: there is none. */
TOOLS_FN const source_tensor *source_nearest(const source *s, const char *name)
{
    const source_tensor *best = NULL;
    size_t likeness, most = 0;
    for (size_t i = 0; s->tensors && i < s->n_tensors; i++) {
        likeness = source_likeness(name, s->tensors[i].name);
        if (!best || likeness > most ||
            (likeness == most && strlen(s->tensors[i].name) < strlen(best->name))) {
            best = &s->tensors[i];
            most = likeness;
        }
    }
    return best;
}

/* Bytes of `count` elements, which must be whole blocks. */
TOOLS_FN uint64_t source_size(source_dtype dtype, uint64_t count)
{
    return count / source_blocks[dtype].count * source_blocks[dtype].size;
}

TOOLS_FN float float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

TOOLS_FN float float_from_f64(const unsigned char *p)
{
    const uint64_t bits = get_u64(p);
    double value;
    memcpy(&value, &bits, sizeof value);
    return (float)value;
}

/* Converts `size` raw bytes to floats. */
TOOLS_FN void source_widen(source_dtype dtype, const unsigned char *raw, size_t size, float *out)
{
    const source_block *block = &source_blocks[dtype];
    switch (dtype) {
    case SOURCE_F32:
        for (size_t i = 0; i < size; i += 4)
            *out++ = float_from_bits(get_u32(raw + i));
        break;
    case SOURCE_F16:
        for (size_t i = 0; i < size; i += 2)
            *out++ = block_f16(raw + i);
        break;
    case SOURCE_BF16: /* the upper half of an f32 */
        for (size_t i = 0; i < size; i += 2)
            *out++ = float_from_bits((uint32_t)raw[i] << 16 | (uint32_t)raw[i + 1] << 24);
        break;
    case SOURCE_F64:
        for (size_t i = 0; i < size; i += 8)
            *out++ = float_from_f64(raw + i);
        break;
    default:
        for (size_t i = 0; i < size; i += block->size, out += block->count)
            block->widen(raw + i, out);
        break;
    }
}

/* Makes s->dense the elements of a tensor with strides, until another one needs it. */
TOOLS_FN attn_status source_gather(attn_ctx *ctx, source *s, const source_tensor *t)
{
    const size_t element = source_blocks[t->dtype].size, count = (size_t)(t->size / element);
    uint64_t span = 1, at, place[SOURCE_MAX_DIMS] = {0};
    if (s->gathered == t)
        return ATTN_OK;
    for (int i = 0; i < t->ndim; i++)
        span += (t->shape[i] - 1) * t->stride[i];
    free(s->dense);
    s->gathered = NULL;
    s->dense = t->size < SIZE_MAX ? (unsigned char *)malloc((size_t)t->size) : NULL;
    unsigned char *const from =
        span < SIZE_MAX / element ? (unsigned char *)malloc((size_t)span * element) : NULL;
    if (!s->dense || !from)
        tool_fail(ctx, ATTN_E_MEMORY, "no memory for %s", t->name);
    else if (!source_bytes(ctx, t->file, t->offset, from, (size_t)span * element))
        s->gathered = t;
    for (size_t n = 0; s->gathered && n < count; n++) {
        at = 0;
        for (int i = 0; i < t->ndim; i++)
            at += place[i] * t->stride[i];
        memcpy(s->dense + n * element, from + at * element, element);
        for (int i = t->ndim - 1; i >= 0 && ++place[i] == t->shape[i]; i--)
            place[i] = 0;
    }
    free(from);
    return ctx->status;
}

TOOLS_FN attn_status source_run(attn_ctx *ctx, source *s, const source_tensor *t, uint64_t first,
                                uint64_t count, float limit, float *out);

/* Reads the matrices of a pair, [rows, r] and [r, columns]. No tensor is the number 1. */
TOOLS_FN attn_status source_read_pair(attn_ctx *ctx, source *s, source_pair *p)
{
    for (int i = 0; i < 2; i++) {
        const source_tensor *const t = p->tensors[i];
        const size_t rows = t ? (size_t)t->shape[0] : 1,
                     columns = t && t->ndim > 1 ? (size_t)t->shape[1] : 1;
        float *const x = (float *)arena_alloc(ctx, &s->merging, rows, columns * sizeof *x);
        if (!x)
            return ctx->status;
        *x = 1;
        if (t && source_run(ctx, s, t, 0, (uint64_t)rows * columns, FLT_MAX, x))
            return ctx->status;
        const attn_tensor matrix = attn_borrow(x, ATTN_F32, attn_shape2(rows, columns));
        p->factors[p->turned ? i : 1 - i] = p->turned ? attn_transpose(matrix, 0, 1) : matrix;
    }
    return ATTN_OK;
}

/* Adds to elements first .. first+count-1 what their tensor has of adapters, in turn: chains of fused multiply-adds over r
 * (attn_matmul), times the factor, each result rounded to f32. PEFT on x86 has the same bits, up to r = 256. */
TOOLS_FN attn_status source_merge(attn_ctx *ctx, source *s, const source_tensor *t, uint64_t first,
                                  size_t count, float *out)
{
    const size_t width = (size_t)t->shape[t->ndim - 1], column = (size_t)(first % width),
                 rows = (column + count + width - 1) / width, from = rows > 1 ? 0 : column;
    source_pair *p;
    if (s->merged != t)
        arena_free(&s->merging);
    for (p = t->pairs->next; s->merged != t && p; p = p->next)
        if (source_read_pair(ctx, s, p))
            return ctx->status;
    s->merged = t;
    for (p = t->pairs->next; p && !ctx->status; p = p->next) {
        attn_tensor sum = ATTN_ZERO;
        if (!attn_matmul(ctx, &sum, attn_slice(p->factors[0], 0, (size_t)(first / width), rows),
                         attn_slice(p->factors[1], 1, from, rows > 1 ? width : count)) &&
            !attn_scale(ctx, &sum, sum, p->factor))
            for (size_t i = 0; i < count; i++)
                /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): source_widen wrote it */
                out[i] += ((const float *)sum.data)[column - from + i];
        attn_tensor_free(ctx, &sum);
    }
    return ctx->status;
}

/* Reads elements first .. first+count-1 in the order of the file. NaN and numbers larger than `limit` are
 * refused. For types of blocks, first and count must be whole blocks. */
TOOLS_FN attn_status source_run(attn_ctx *ctx, source *s, const source_tensor *t, uint64_t first,
                                uint64_t count, float limit, float *out)
{
    const source_block *block = &source_blocks[t->dtype];
    const size_t most = sizeof s->raw / block->size * block->count;
    while (count > 0) {
        size_t n = count < most ? (size_t)count : most;
        size_t size = (size_t)source_size(t->dtype, n);
        if (t->has_strides && source_gather(ctx, s, t))
            return ctx->status;
        if (t->has_strides)
            memcpy(s->raw, s->dense + source_size(t->dtype, first), size);
        else if (source_bytes(ctx, t->file, t->offset + source_size(t->dtype, first), s->raw, size))
            return ctx->status;
        source_widen(t->dtype, s->raw, size, out);
        if (t->pairs && source_merge(ctx, s, t, first, n, out))
            return ctx->status;
        for (size_t i = 0; i < n; i++) {
            const uint64_t at = first + i, columns = t->shape[t->ndim - 1];
            /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): size is n numbers' */
            const char *what = isnan(out[i]) ? "not a number (NaN)" : "infinite";
            if (fabsf(out[i]) <= limit)
                continue;
            if (fabsf(out[i]) <= FLT_MAX)
                return tool_fail(ctx, ATTN_E_FORMAT,
                                 "%s: element %llu of row %llu of %s is %g, more than f16 can "
                                 "hold; convert with --dtype f32",
                                 t->file->name, TOOLS_LLU(at % columns), TOOLS_LLU(at / columns),
                                 t->name, (double)out[i]);
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "%s: element %llu of row %llu of %s is %s; the "
                             "checkpoint is damaged or its training diverged",
                             t->file->name, TOOLS_LLU(at % columns), TOOLS_LLU(at / columns),
                             t->name, what);
        }
        out += n;
        first += n;
        count -= n;
    }
    return ATTN_OK;
}

/* Reads some rows and columns of a tensor of two dimensions into a dense array. For types of blocks only
 * whole rows. */
TOOLS_FN attn_status source_read(attn_ctx *ctx, source *s, const source_tensor *t, uint64_t row,
                                 uint64_t n_rows, uint64_t column, uint64_t n_columns, float limit,
                                 float *out)
{
    const uint64_t columns = t->shape[t->ndim - 1];
    if (n_columns == columns)
        return source_run(ctx, s, t, row * columns, n_rows * columns, limit, out);
    for (; n_rows > 0; n_rows--, row++, out += n_columns)
        if (source_run(ctx, s, t, row * columns + column, n_columns, limit, out))
            return ctx->status;
    return ATTN_OK;
}

/* Do two tables of the same shape hold the same numbers? */
TOOLS_FN attn_status source_same(attn_ctx *ctx, source *s, const source_tensor *a,
                                 const source_tensor *b, int *same)
{
    const uint64_t columns = a->shape[1], n_rows = a->shape[0], most = 1 + (1 << 18) / columns;
    float *x = (float *)malloc((size_t)(2 * most * columns) * sizeof(float));
    const int one = a->file == b->file && a->offset == b->offset && a->dtype == b->dtype &&
                    !a->has_strides && !b->has_strides && a->pairs == b->pairs;
    uint64_t n, row = one ? n_rows : 0; /* two names of one storage */
    *same = 1;
    if (!x)
        return tool_fail(ctx, ATTN_E_MEMORY, "no memory to compare %s", b->name);
    float *y = x + most * columns;
    for (; row < n_rows && *same; row += n) {
        n = n_rows - row < most ? n_rows - row : most;
        if (source_read(ctx, s, a, row, n, 0, columns, FLT_MAX, x) ||
            source_read(ctx, s, b, row, n, 0, columns, FLT_MAX, y))
            break;
        *same = memcmp(x, y, (size_t)(n * columns) * sizeof(float)) == 0;
    }
    free(x);
    return ctx->status;
}

/* "[64, 256]" */
TOOLS_FN const char *show_shape(shown out, int ndim, const uint64_t *shape)
{
    int i;
    size_t n = 0;
    out[n++] = '[';
    for (i = 0; i < ndim && n + 24 < sizeof(shown); i++)
        /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): shape has ndim sizes */
        n += (size_t)snprintf(out + n, sizeof(shown) - n, i ? ", %llu" : "%llu",
                              TOOLS_LLU(shape[i]));
    snprintf(out + n, sizeof(shown) - n, i < ndim ? ", ...]" : "]");
    return out;
}

/* The number of elements; UINT64_MAX if it overflows. */
TOOLS_FN uint64_t shape_count(int ndim, const uint64_t *shape)
{
    uint64_t count = 1;
    for (int i = 0; i < ndim; i++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): as above */
        if (shape[i] != 0 && count > UINT64_MAX / shape[i])
            return UINT64_MAX;
        count *= shape[i];
    }
    return count;
}

TOOLS_FN int source_by_place(const void *a, const void *b)
{
    const source_tensor *x = (const source_tensor *)a, *y = (const source_tensor *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->size > y->size) - (x->size < y->size);
}

/* Sorts the tensors from index `first` on, which are of one file, by offset. They must not overlap. */
TOOLS_FN attn_status source_check_overlaps(attn_ctx *ctx, source *s, size_t first)
{
    shown a, b;
    if (s->n_tensors - first > 1)
        qsort(s->tensors + first, s->n_tensors - first, sizeof *s->tensors, source_by_place);
    for (size_t i = first + 1; i < s->n_tensors; i++) {
        const source_tensor *t = &s->tensors[i - 1], *u = &s->tensors[i];
        if (t->offset + t->size > u->offset)
            return tool_fail(ctx, ATTN_E_FORMAT, "%s: the tensors %s and %s overlap", t->file->name,
                             show(a, t->name, strlen(t->name)), show(b, u->name, strlen(u->name)));
    }
    return ATTN_OK;
}

#endif
