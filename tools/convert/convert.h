/* Converts checkpoints of GPT-2 to .attn files, and .attn files to checkpoints (export.h), for attn-convert.c and, in the
 * process, for other languages (asked.h).
 *
 * The work is in three steps. A reader (huggingface.h, transformerlens.h, gguf.h, llmc.h)
 * lists the checkpoint's tensors without reading the weights. A plan lists the tensors of the output, each
 * with its source. Then the weights are copied, tensor by tensor and in pieces of at most 32 MB, so
 * that memory does not grow with the model. */
#ifndef CONVERT_CONVERT_H
#define CONVERT_CONVERT_H

#include "adapter.h"
#include "export.h"
#include "gguf.h"
#include "llmc.h"
#include "tools/common/prompt.h"
#include "tools/common/vocab_files.h"

/* >> The question ============================================================================== */

#define DTYPES "f32 f16 q8 q4"
static const attn_dtype dtypes[] = {ATTN_F32, ATTN_F16, ATTN_Q8, ATTN_Q4};

typedef struct convert_options {
    const char *input, *output, *tokenizer;
    int no_tokenizer, ignore_normalizer,
        dtype; /* dtype: an index of dtypes; -1: the smallest type that loses nothing */
    int quiet;
    const char *prefix;
    text_list adapters;
    const char *said[N_SAID]; /* --name, --source, --license */
} convert_options;

/* A conversion: its settings, its checkpoint, and the sizes of the file that it wrote. */
typedef struct conversion {
    convert_options o;
    attn_ctx ctx;
    source s;
    attn_progress_fn progress_fn; /* or NULL */
    void *progress_user;
    uint64_t n_bytes, n_tensors;
    uint64_t n_parameters, n_read; /* of a .attn file; n_read: bytes of the checkpoint */
    size_t dtype;                  /* of dtypes */
    size_t n_tokens;               /* of the vocabulary; 0: there is none */
} conversion;

/* >> The plan ================================================================================== */

/* One tensor of the output. */
typedef struct planned {
    char name[64];
    const source_tensor *from[3]; /* one tensor, or three that are concatenated */
    size_t n_from;
    float fill; /* without a tensor: the value of all numbers */
    enum part_kind kind;
    uint64_t n_in, n_out;
    int is_vector; /* one dimension, n_out (which differs from one row) */
    int out_in;    /* the source stores it as [out, in] */
    attn_dtype dtype;
} planned;

typedef struct plan {
    planned *tensors;
    size_t n_tensors;
    int tied, has_b_U;
    size_t n_labels, n_heads; /* of a head, and the number of its tensors */
    attn_dtype dtype;         /* of the panels */
    unsigned char *tokenizer;
    size_t tokenizer_size;
    uint64_t size; /* bytes of all tensors */
} plan;

/* Checks the configuration, without the tensors. */
static attn_status check_config(attn_ctx *ctx, source *s)
{
    const struct {
        const char *name;
        uint64_t value, most;
    } sizes[] = {{"vocabulary", s->n_vocab, SOURCE_MAX_SIZE},
                 {"context", s->n_ctx, SOURCE_MAX_SIZE},
                 {"width", s->d_model, SOURCE_MAX_SIZE},
                 {"number of heads", s->n_head, SOURCE_MAX_SIZE},
                 {"number of layers", s->n_layer, SOURCE_MAX_LAYERS},
                 {"inner width", s->d_mlp, SOURCE_MAX_SIZE}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        if (sizes[i].value == 0 || sizes[i].value > sizes[i].most)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "by %s, the %s is %llu, which cannot be: attn.h takes 1 to %llu",
                             s->config_name, sizes[i].name, TOOLS_LLU(sizes[i].value),
                             TOOLS_LLU(sizes[i].most));
    if (s->d_model % s->n_head)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "by %s, %llu heads share a width of %llu, which does not divide evenly",
                         s->config_name, TOOLS_LLU(s->n_head), TOOLS_LLU(s->d_model));
    if (!((float)s->ln_eps > 0 && s->ln_eps < 1))
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "by %s, the layer norm epsilon is %g; expected a small positive number",
                         s->config_name, s->ln_eps);
    return ATTN_OK;
}

/* Reports a missing tensor. The most similar name may show an unknown prefix or an adapter. */
static attn_status fail_missing(attn_ctx *ctx, const source *s, const char *name)
{
    const source_tensor *closest = source_nearest(s, name);
    shown found;
    return tool_fail(ctx, ATTN_E_FORMAT, "the tensor %s is missing (%s asks for %llu layers)%s%s",
                     name, s->config_name, TOOLS_LLU(s->n_layer),
                     closest ? "; the nearest is " : "",
                     closest ? show(found, closest->name, strlen(closest->name)) : "");
}

/* Finds a tensor of the source, which must have the shape that the configuration implies. */
static attn_status take_tensor(attn_ctx *ctx, const source *s, const char *name, int ndim,
                               const uint64_t *expected, const source_tensor **found)
{
    const source_tensor *t = source_find(s, name);
    int extra = 0; /* minGPT's table of positions is [1, T, C] */
    shown have, want, dtype;
    if (!t)
        return fail_missing(ctx, s, name);
    if (s->names == NAMES_MINGPT && t->ndim == ndim + 1 && t->shape[0] == 1)
        extra = 1;
    if (t->dtype == SOURCE_OTHER)
        return tool_fail(ctx, ATTN_E_VERSION, "%s: %s is of type %s; supported are %s",
                         t->file->name, name, show(dtype, t->dtype_name, strlen(t->dtype_name)),
                         s->names == NAMES_GGUF ? "F32, F16, BF16, F64, Q2_K to Q6_K, Q4_0 to "
                                                  "Q8_0, IQ4_NL and IQ4_XS"
                                                : "F32, F16, BF16 and F64");
    if (t->ndim != ndim + extra ||
        memcmp(t->shape + extra, expected, (size_t)ndim * sizeof *expected) != 0)
        return tool_fail(ctx, ATTN_E_SHAPE, "%s: %s is %s, but %s asks for %s", t->file->name, name,
                         show_shape(have, t->ndim, t->shape), s->config_name,
                         show_shape(want, ndim, expected));
    *found = t;
    return ATTN_OK;
}

/* Finds the source tensors of a part. */
static attn_status find_sources(attn_ctx *ctx, const source *s, const gpt2_part *p,
                                const char *prefix, planned *out)
{
    static const char *const all[3][3] = {
        {"query", "key", "value"}, {"Q", "K", "V"}, {"q", "k", "v"}};
    const int is_tl = s->names == NAMES_TRANSFORMERLENS, is_bridge = s->names == NAMES_BRIDGE;
    const char *tail = p->names[s->names], *star = strchr(tail, '*');
    char name[64];
    uint64_t expected[3];
    int ndim;
    out->kind = p->kind;
    out->n_in = dim_size(s, p->in);
    out->n_out = dim_size(s, p->out);
    out->out_in = (p->kind == PART_TABLE && !(is_tl && p == &unembed_part)) ||
                  (p->kind == PART_LINEAR && (s->linears_out_in || (star && is_bridge)));
    out->is_vector = p->in == DIM_1;
    size_t n = star ? 3 : 1;
    if (is_tl && tl_lacks(s, p->name, &out->fill))
        n = 0;
    if ((s->no_biases && strcmp(tail + strlen(tail) - 5, ".bias") == 0) ||
        (s->no_qkv_biases && p->in == DIM_1 && p->out == DIM_3C))
        n = 0;
    out->n_from = n;
    expected[0] = out->is_vector || out->out_in ? out->n_out : out->n_in;
    expected[1] = out->out_in ? out->n_in : out->n_out;
    if (star)
        expected[0] /= 3;
    if (!is_tl || (ndim = tl_shape(s, p->name, expected)) == 0)
        ndim = out->is_vector ? 1 : 2;
    for (size_t i = 0; i < n; i++) {
        const int head = star ? (int)(star - tail) : (int)strlen(tail);
        snprintf(name, sizeof name, "%s%.*s%s%s", prefix, head, tail,
                 star ? all[is_tl ? 1 : 2 * is_bridge][i] : "", star ? star + 1 : "");
        if (take_tensor(ctx, s, name, ndim, expected, &out->from[i]))
            return ctx->status;
    }
    return ATTN_OK;
}

/* Checks the tensors that no part uses. Heads for other tasks are left out. Tensors of a layer or of the
 * logits are refused, because then it is another model. */
static attn_status check_leftovers(attn_ctx *ctx, const source *s, const plan *out)
{
    const char *layer = layer_prefix[s->names], *unembed = unembed_part.names[s->names];
    unsigned char *used = (unsigned char *)calloc(s->n_tensors + 1, 1);
    const source_tensor *first = NULL;
    size_t n = 0;
    shown name;
    if (!used)
        return tool_fail(ctx, ATTN_E_MEMORY, "no memory for the plan");
    for (size_t i = 0; i < out->n_tensors; i++)
        for (size_t k = 0; k < out->tensors[i].n_from; k++)
            used[out->tensors[i].from[k] - s->tensors] = 1;
    for (size_t i = 0; i < s->n_tensors && !ctx->status; i++) {
        const source_tensor *t = &s->tensors[i];
        if (used[i] || source_is_mask(t) || strcmp(t->name, unembed) == 0 ||
            (unembed_bias.names[s->names] && strcmp(t->name, unembed_bias.names[s->names]) == 0))
            continue;
        show(name, t->name, strlen(t->name));
        if (strncmp(t->name, layer, strlen(layer)) == 0 && !strstr(t->name, "dropout"))
            tool_fail(ctx, ATTN_E_FORMAT,
                      "%s: nothing in a GPT-2 of %llu layers asks for the tensor %s", t->file->name,
                      TOOLS_LLU(s->n_layer), name);
        else if (strcmp(t->name, "lm_head.bias") == 0 || strcmp(t->name, "output.bias") == 0 ||
                 strcmp(t->name, "out_head.bias") == 0)
            tool_fail(ctx, ATTN_E_UNSUPPORTED, "%s: %s is a bias of the logits, which GPT-2 lacks",
                      t->file->name, name);
        first = n++ ? first : t;
    }
    if (n > 0 && !ctx->status) {
        show(name, first->name, strlen(first->name));
        if (n == 1)
            source_note("the tensor %s is not part of GPT-2; left out", name);
        else
            source_note("%llu tensors are not part of GPT-2, %s among them; left out", TOOLS_LLU(n),
                        name);
    }
    free(used);
    return ctx->status;
}

/* The part whose name the embedding has. If it is tied, a checkpoint may name the tensor after the
 * unembedding, as safetensors' save_model does. */
static const gpt2_part *embedding_of(const source *s)
{
    const int missing = !source_find(s, head_parts[0].names[s->names]);
    return missing && !s->says_untied && source_find(s, unembed_part.names[s->names])
               ? &unembed_part
               : &head_parts[0];
}

/* Plans everything but the unembedding, in the order of the file. */
static attn_status plan_parts(attn_ctx *ctx, source *s, plan *out)
{
    const uint64_t most =
        COUNT_OF(head_parts) + COUNT_OF(tail_parts) + 4 + COUNT_OF(layer_parts) * s->n_layer;
    const gpt2_part *p;
    size_t n, layer;
    char prefix[32];
    /* a plan is not longer than the checkpoint (than its double, if all biases are missing), whatever
     * number of layers the configuration claims */
    out->tensors = (planned *)arena_alloc(
        ctx, &s->memory, most < 2 * s->n_tensors + 4 ? (size_t)most : 2 * s->n_tensors + 4,
        sizeof *out->tensors);
    if (!out->tensors)
        return ctx->status;
    for (n = 0; (p = part_at(n, (size_t)s->n_layer, &layer)) != NULL; n++) {
        lens_weight_name(out->tensors[n].name, layer, p->name);
        prefix[0] = 0;
        if (layer != ATTN_NO_LAYER)
            snprintf(prefix, sizeof prefix, "%s%zu.", layer_prefix[s->names], layer);
        if (find_sources(ctx, s, n == 0 ? embedding_of(s) : p, prefix, &out->tensors[n]))
            return ctx->status;
    }
    out->n_tensors = n;
    if (s->no_biases)
        source_note("no tensor is a bias: they are taken as zero, as after training without any");
    if (s->no_qkv_biases)
        source_note("queries, keys and values have no biases: "
                    "they are taken as zero, as after training without them");
    return ATTN_OK;
}

/* Plans the bias of the logits, if it is not zero. */
static attn_status plan_logit_bias(attn_ctx *ctx, source *s, plan *out)
{
    planned *last = &out->tensors[out->n_tensors];
    float *bias;
    snprintf(last->name, sizeof last->name, "%s", unembed_bias.name);
    if (find_sources(ctx, s, &unembed_bias, "", last))
        return ctx->status;
    bias = (float *)calloc((size_t)s->n_vocab, sizeof *bias);
    if (!bias)
        return tool_fail(ctx, ATTN_E_MEMORY, "no memory for a bias of the logits");
    if (source_run(ctx, s, last->from[0], 0, s->n_vocab, FLT_MAX, bias) == ATTN_OK)
        for (uint64_t i = 0; i < s->n_vocab; i++)
            out->has_b_U |= bias[i] < 0 || bias[i] > 0;
    free(bias);
    out->n_tensors += (size_t)out->has_b_U;
    return ctx->status;
}

/* Plans the unembedding, if it differs from the embedding: many checkpoints store the same table twice. */
static attn_status plan_unembedding(attn_ctx *ctx, source *s, plan *out)
{
    planned *last = &out->tensors[out->n_tensors];
    const char *name = unembed_part.names[s->names];
    out->tied = 1;
    if (!source_find(s, name)) {
        if (s->says_untied)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "the tensor %s is missing, but %s says tie_word_embeddings is false",
                             name, s->config_name);
        return s->names == NAMES_BRIDGE ? plan_logit_bias(ctx, s, out) : ATTN_OK;
    }
    snprintf(last->name, sizeof last->name, "%s", unembed_part.name);
    if (find_sources(ctx, s, &unembed_part, "", last))
        return ctx->status;
    if (s->names == NAMES_TRANSFORMERLENS) { /* its table is transposed */
        out->tied = 0;
        out->n_tensors++;
        return plan_logit_bias(ctx, s, out);
    }
    if (source_same(ctx, s, out->tensors[0].from[0], last->from[0], &out->tied))
        return ctx->status;
    if (!out->tied)
        out->n_tensors++;
    if (s->names == NAMES_BRIDGE)
        return plan_logit_bias(ctx, s, out);
    if (!out->tied && !s->says_untied && s->names == NAMES_HF && !s->linears_out_in && !s->adapter)
        source_note("lm_head.weight differs from wte.weight, but config.json does not say "
                    "that tie_word_embeddings is false: both are used, as by transformers 5; "
                    "transformers 4 would use wte.weight for both");
    return ATTN_OK;
}

/* Plans the head of a classifier or of a reward model, a linear layer behind the last layer norm. It comes last. */
static attn_status plan_head(attn_ctx *ctx, const source *s, plan *out)
{
    static const char *const heads[] = {"score", "v_head.summary", "v_head"};
    char name[64];
    for (size_t i = 0; i < COUNT_OF(heads) && out->n_heads == 0 && s->names == NAMES_HF; i++)
        for (int is_bias = 0; is_bias < 2; is_bias++) {
            planned *const t = &out->tensors[out->n_tensors];
            snprintf(name, sizeof name, "%s.%s", heads[i], is_bias ? "bias" : "weight");
            const source_tensor *const x = source_find(s, name);
            if (!x || x->dtype == SOURCE_OTHER || x->ndim != 2 - is_bias || x->shape[0] == 0 ||
                x->shape[0] > SOURCE_MAX_SIZE ||
                (is_bias ? x->shape[0] != out->n_labels : x->shape[1] != s->d_model))
                break;
            memset(t, 0, sizeof *t);
            snprintf(t->name, sizeof t->name, "head%s", strrchr(name, '.'));
            t->from[t->n_from++] = x;
            t->kind = PART_ROWS;
            t->is_vector = is_bias;
            t->n_in = is_bias ? 1 : x->shape[0];
            t->n_out = x->shape[!is_bias];
            out->n_labels = (size_t)x->shape[0];
            out->n_heads++;
            out->n_tensors++;
        }
    return check_leftovers(ctx, s, out);
}

/* Chooses data types and sizes. `dtype` -1: the smallest type that loses nothing. */
static attn_status plan_types(attn_ctx *ctx, plan *p, int dtype)
{
    size_t size, n_f64 = 0;
    int all_f16 = 1;
    for (size_t i = 0; i < p->n_tensors; i++)
        for (size_t k = 0; k < p->tensors[i].n_from; k++) {
            const source_dtype from = p->tensors[i].from[k]->dtype;
            all_f16 &= p->tensors[i].kind == PART_ROWS ||
                       (from == SOURCE_F16 && !p->tensors[i].from[k]->pairs);
            n_f64 += from == SOURCE_F64;
        }
    if (n_f64)
        source_note("%llu tensors are F64, and are rounded to f32", TOOLS_LLU(n_f64));
    p->dtype = dtype >= 0 ? (attn_dtype)dtype : all_f16 ? ATTN_F16 : ATTN_F32;
    for (size_t i = 0; i < p->n_tensors; i++) {
        planned *t = &p->tensors[i];
        t->dtype = t->kind == PART_ROWS ? ATTN_F32 : p->dtype;
        size = t->kind == PART_ROWS
                   ? (size_t)(4 * t->n_in * t->n_out)
                   : model_panels_size(t->dtype, (size_t)t->n_in, (size_t)t->n_out);
        if (size == 0) /* cover: 32-bit */
            return tool_fail(ctx, ATTN_E_SHAPE, "%s is too large for this machine", t->name);
        p->size += size;
    }
    return ATTN_OK;
}

/* Embeddings are often padded to a multiple of up to 1,024 rows, so some ids have no text. More of them
 * mean that the vocabulary is another model's. */
static attn_status check_padding(attn_ctx *ctx, const source *s)
{
    const uint64_t n = s->vocabulary.n_tokens, usual = n / 32 > 127 ? n / 32 : 127;
    if (s->n_vocab - n > usual)
        return tool_fail(
            ctx, ATTN_E_FORMAT,
            "the vocabulary has %llu tokens, but by %s the model knows %llu: "
            "is it another model's? --tokenizer DIR takes the right one, --no-tokenizer none",
            TOOLS_LLU(n), s->config_name, TOOLS_LLU(s->n_vocab));
    if (s->n_vocab > n)
        source_note("the model knows %llu ids, the vocabulary has %llu tokens; "
                    "ids from %llu on, which may be padding, have no text",
                    TOOLS_LLU(s->n_vocab), TOOLS_LLU(n), TOOLS_LLU(n));
    return ATTN_OK;
}

/* Plans the vocabulary, with an id for each row of the embedding. */
static attn_status plan_tokenizer(attn_ctx *ctx, source *s, plan *p)
{
    vocab *v = &s->vocabulary;
    size_t dropped = 0;
    shown name;
    while (v->n_tokens > s->n_vocab) {
        const vocab_token *last = &v->tokens[v->n_tokens - 1];
        if (last->spelling && !last->special)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "the vocabulary has %llu tokens (the last is \"%s\"), "
                             "but by %s the model knows %llu",
                             TOOLS_LLU(v->n_tokens),
                             show(name, last->spelling, last->spelling_size), s->config_name,
                             TOOLS_LLU(s->n_vocab));
        dropped += last->spelling != NULL;
        v->n_tokens--;
    }
    if (dropped)
        source_note("%llu special tokens have ids that the model does not know; left out",
                    TOOLS_LLU(dropped));
    return check_padding(ctx, s) ||
                   vocab_section(ctx, v, (size_t)s->n_vocab, &p->tokenizer, &p->tokenizer_size)
               ? ctx->status
               : ATTN_OK;
}

/* >> Writing =================================================================================== */

/* Tells how far it is. 0: the caller asks to stop. */
static int convert_goes_on(const conversion *c, double share)
{
    return !lens_is_stopped(&c->ctx) &&
           !(c->progress_fn && c->progress_fn(share, c->progress_user));
}

enum { PIECE = 8 << 20 }; /* floats in a piece of a tensor: 32 MB */

/* Reads outputs or rows first .. first+n-1 of `width` numbers each: from the source tensors, each of which
 * has an equal share of them. */
static attn_status read_rows(attn_ctx *ctx, source *s, const planned *t, uint64_t first, uint64_t n,
                             uint64_t width, float limit, float *out)
{
    const uint64_t all = t->out_in || t->is_vector ? t->n_out : t->n_in;
    const uint64_t each = t->n_from ? all / t->n_from : all;
    uint64_t count;
    for (; t->n_from && n > 0; first += count, n -= count, out += count * width) {
        const uint64_t left = each - first % each;
        count = n < left ? n : left;
        if (source_run(ctx, s, t->from[first / each], first % each * width, count * width, limit,
                       out))
            return ctx->status;
    }
    return ATTN_OK;
}

/* Reads outputs (of a matrix) or rows first .. first+n-1 into `piece`, and adds them. */
static attn_status write_piece(attn_ctx *ctx, lens_writer *w, source *s, const planned *t,
                               uint64_t first, uint64_t n, float *piece)
{
    /* f16 rounds to nearest: from 65520 on, to infinity */
    const float limit = t->dtype != ATTN_F32 ? 65519.996f : FLT_MAX;
    const size_t n_in = (size_t)t->n_in, count = (size_t)n;
    attn_tensor x;
    attn_status status = ATTN_OK;
    for (size_t i = 0; t->n_from == 0 && i < count * (t->is_vector ? 1 : n_in); i++)
        piece[i] = t->fill;
    if (t->kind == PART_ROWS) {
        const size_t width = t->is_vector ? 1 : (size_t)t->n_out;
        status = read_rows(ctx, s, t, first, n, width, limit, piece);
        x = attn_borrow(piece, ATTN_F32,
                        t->is_vector ? attn_shape1(count) : attn_shape2(count, width));
    } else if (t->out_in) {
        status = read_rows(ctx, s, t, first, n, n_in, limit, piece);
        x = attn_borrow(piece, ATTN_F32, attn_shape2(count, n_in));
        if (strcmp(t->name, "embed.W_E") != 0) /* the writer takes this one as a table */
            x = attn_transpose(x, 0, 1);
    } else {
        if (t->n_from > 0)
            status = t->n_from == 3
                         ? tl_read_qkv(ctx, s, t->from, first, n, limit, piece)
                         : source_read(ctx, s, t->from[0], 0, n_in, first, n, limit, piece);
        x = attn_borrow(piece, ATTN_F32, attn_shape2(n_in, count));
    }
    return status ? status : lens_writer_add(ctx, w, t->name, t->dtype, x);
}

/* Copies a tensor in pieces, so that memory does not grow with its size. */
static attn_status write_tensor(conversion *c, lens_writer *w, const planned *t, uint64_t size)
{
    attn_ctx *const ctx = &c->ctx;
    const int rows = t->kind == PART_ROWS && !t->is_vector;
    const uint64_t all = rows ? t->n_in : t->n_out; /* outputs or rows */
    const uint64_t each = rows ? t->n_out : t->n_in;
    const uint64_t room = each < PIECE / 16 ? PIECE / each / 16 * 16 : 16;
    const uint64_t most = room < all ? room : all;
    uint64_t n;
    float *piece = (float *)malloc((size_t)(most * each) * sizeof(float));
    if (!piece)
        return tool_fail(ctx, ATTN_E_MEMORY, "no memory to convert %s", t->name);
    for (uint64_t first = 0; first < all && !ctx->status; first += n) {
        n = all - first < most ? all - first : most;
        if (!convert_goes_on(c, (double)c->n_bytes / (double)size))
            tool_fail(ctx, ATTN_STOPPED, "interrupted");
        else if (write_piece(ctx, w, &c->s, t, first, n, piece) == ATTN_OK)
            c->n_bytes += t->kind == PART_ROWS
                              ? 4 * n * each
                              : model_panels_size(t->dtype, (size_t)each, (size_t)n);
    }
    free(piece);
    return ctx->status;
}

/* Says in the file what the model is. */
static attn_status write_card(attn_ctx *ctx, lens_writer *w, const source *s, const char *sum,
                              size_t n_labels)
{
    static const char *const keys[] = {"name", "source", "license"};
    char converter[64];
    for (size_t i = 0; i < N_SAID && !ctx->status; i++)
        if (s->said[i])
            lens_writer_meta(ctx, w, keys[i], s->said[i]);
    for (size_t i = 0; i < s->n_labels && s->n_labels == n_labels && !ctx->status; i++) {
        snprintf(converter, sizeof converter, "head.label.%zu", i);
        const char *const name =
            s->labels[i]; /* transformers writes "LABEL_0" where nobody named a label */
        if (name && lens_is_meta(name) && strncmp(name, "LABEL_", 6) != 0 &&
            w->meta_size < LENS_MOST_META / 2)
            lens_writer_meta(ctx, w, converter, name);
    }
    snprintf(converter, sizeof converter, "attn-convert %d.%d.%d", ATTN_VERSION_MAJOR,
             ATTN_VERSION_MINOR, ATTN_VERSION_PATCH);
    return ctx->status || lens_writer_meta(ctx, w, "checkpoint_sha256", sum)
               ? ctx->status
               : lens_writer_meta(ctx, w, "converter", converter);
}

static attn_status write_model(conversion *c, plan *p)
{
    attn_ctx *const ctx = &c->ctx;
    source *const s = &c->s;
    attn_config config = {0};
    char sum[SHA256_HEX];
    lens_writer *w;
    config.n_vocab = (uint32_t)s->n_vocab;
    config.n_ctx = (uint32_t)s->n_ctx;
    config.d_model = (uint32_t)s->d_model;
    config.n_head = (uint32_t)s->n_head;
    config.n_layer = (uint32_t)s->n_layer;
    config.d_mlp = (uint32_t)s->d_mlp;
    config.ln_eps = (float)s->ln_eps;
    config.tied = p->tied;
    config.has_b_U = p->has_b_U;
    config.act_fn = s->act_fn;
    config.unscaled_attn = s->unscaled_attn;
    config.scale_attn_by_inverse_layer_idx = s->scale_attn_by_inverse_layer_idx;
    config.bos = (int32_t)s->bos;
    config.eos = (int32_t)s->eos;
    config.more_eos = s->n_more_eos ? s->more_eos : NULL;
    config.n_more_eos = (uint32_t)s->n_more_eos;
    const lens_contents what = {&config, p->tokenizer, p->tokenizer_size, p->n_labels, p->n_heads};
    if (card_sum(ctx, s, sum) || lens_writer_begin(ctx, &w, c->o.output, &what))
        return ctx->status;
    write_card(ctx, w, s, sum, p->n_labels);
    for (size_t i = 0; i < p->n_tensors && !ctx->status; i++)
        write_tensor(c, w, &p->tensors[i], p->size);
    if (!ctx->status && !convert_goes_on(c, 1))
        tool_fail(ctx, ATTN_STOPPED, "interrupted");
    if (!ctx->status)
        lens_writer_end(ctx, w);
    lens_writer_free(w);
    return ctx->status;
}

/* >> Reading ==================================================================================== */

/* Opens a path that is not a directory. */
static attn_status open_file(attn_ctx *ctx, source *s, const convert_options *o)
{
    unsigned char magic[8] = {0};
    if (hf_is_openai(ctx, &s->memory, o->input))
        return hf_refuse_openai(ctx, o->input);
    FILE *file = open_input(ctx, o->input);
    if (!file)
        return ctx->status;
    size_t n = fread(magic, 1, sizeof magic, file);
    fclose(file);
    if (n == 0)
        return tool_fail(ctx, ATTN_E_FORMAT, "%s is empty", o->input);
    if (memcmp(magic, "GGUF", 4) == 0)
        return gguf_open(ctx, s, o->input, !o->tokenizer && !o->no_tokenizer);
    if (get_u32(magic) == LLMC_MAGIC)
        return llmc_open(ctx, s, o->input);
    if (pickle_begins(magic))
        return hf_open_file(ctx, s, o->input);
    if (memcmp(magic, "\x89HDF", 4) == 0 || lens_ends_in(o->input, ".msgpack"))
        return hf_refuse_weights(ctx, o->input, magic[0] == 0x89);
    if (magic[7] == 0 && n == 8 && get_u64(magic) < SOURCE_MAX_HEADER)
        return tool_fail(
            ctx, ATTN_E_FORMAT,
            "%s may be a safetensors file; give the directory that holds it and its config.json",
            o->input);
    return tool_fail(
        ctx, ATTN_E_FORMAT,
        "%s is neither a GGUF file, nor a checkpoint of PyTorch or llm.c, nor a directory",
        o->input);
}

/* Reads nanoGPT's meta.pkl, whose "stoi" goes from characters to ids. */
static attn_status open_characters(attn_ctx *ctx, source *s, const char *path)
{
    vocab *const v = &s->vocabulary;
    pickle_file f;
    uint32_t code;
    int64_t most = -1;
    if (pickle_open(ctx, s, &f, path))
        return ctx->status;
    const pickle_value *const ids = pickle_get(f.root, "stoi");
    const size_t n = ids && ids->kind == PICKLE_DICT ? ids->n : 0;
    for (size_t i = 0; i < n; i += 2) {
        const pickle_value *const text = ids->items[i], *const id = ids->items[i + 1];
        if (text->kind != PICKLE_TEXT || id->kind != PICKLE_WHOLE || id->whole < 0)
            return tool_fail(ctx, ATTN_E_FORMAT, "%s: stoi is not from characters to ids", path);
        if (!text->size ||
            utf8_length((const unsigned char *)text->text, text->size, &code) != text->size) {
            source_note("%s has tokens that are not single characters; left out", path);
            return ATTN_OK;
        }
        most = id->whole > most ? id->whole : most;
    }
    if (n == 0)
        return tool_fail(ctx, ATTN_E_FORMAT, "%s has no dict stoi, from characters to ids", path);
    vocab_init(ctx, v, &s->memory, path, most < VOCAB_MAX_TOKENS ? (size_t)most + 1 : SIZE_MAX, 0);
    for (size_t i = 0; i < n && !ctx->status; i += 2)
        vocab_add(ctx, v, (size_t)ids->items[i + 1]->whole, ids->items[i]->text,
                  ids->items[i]->size);
    v->characters = s->has_vocab = 1;
    return ctx->status ? ctx->status : vocab_finish(ctx, v);
}

/* Reads the vocabulary from the directory of --tokenizer, or from that of the input. */
static attn_status open_vocab(attn_ctx *ctx, source *s, const convert_options *o)
{
    const char *dir = o->tokenizer ? o->tokenizer : s->dir, *meta = NULL, *above = NULL;
    if (o->no_tokenizer || (!dir && !s->has_vocab))
        return ATTN_OK;
    if (!s->has_vocab &&
        vocab_load(ctx, &s->vocabulary, &s->memory, dir, o->ignore_normalizer) == ATTN_OK)
        s->has_vocab = 1;
    else if (dir && ctx->status == ATTN_E_TOKENIZER &&
             (meta = arena_path(ctx, &s->memory, dir, "meta.pkl")) != NULL && system_exists(meta)) {
        ctx->status = ATTN_OK;
        open_characters(ctx, s, meta);
    } else if (dir && ctx->status == ATTN_E_TOKENIZER && !o->tokenizer &&
               strncmp(base_name(dir), "checkpoint-", 11) == 0 &&
               (above = arena_path(ctx, &s->memory, dir, "..")) != NULL) { /* a Trainer's */
        ctx->status = ATTN_OK;
        s->has_vocab =
            vocab_load(ctx, &s->vocabulary, &s->memory, above, o->ignore_normalizer) == ATTN_OK;
        if (s->has_vocab)
            source_note("no vocabulary in %s; that of %s is taken", dir, above);
    }
    if (s->has_vocab) {
        for (const vocab_note *note = s->vocabulary.notes; note; note = note->next)
            source_note("%s", note->text);
    } else if (ctx->status == ATTN_E_TOKENIZER && !o->tokenizer) {
        ctx->status = ATTN_OK; /* a model without a vocabulary is useful too */
        s->other_vocab = vocab_other_kind(ctx, &s->memory, dir);
    } else if (ctx->status == ATTN_E_UNSUPPORTED && !o->tokenizer) {
        source_note("--no-tokenizer would convert the model without its vocabulary");
    }
    return ctx->status;
}

/* In place of a token outside the vocabulary: what another file names, in transformers' order. */
static int64_t find_inside(const source *s, int is_eos, int64_t id, int64_t named)
{
    const vocab *v = &s->vocabulary;
    const char *const file = is_eos ? v->eos_file : v->bos_file;
    const int64_t ids[] = {named, is_eos ? -1 : s->generation_bos, vocab_end_of_text(v), -1};
    const char *const files[] = {file ? file : "tokenizer.json", "generation_config.json",
                                 "GPT-2's default, <|endoftext|>",
                                 "no file: write the right id there"};
    size_t i = 0;
    while (ids[i] < 0 && i + 1 < COUNT_OF(ids))
        i++;
    source_note("%s: %cos_token_id %lld is outside the vocabulary of %llu; one is taken from %s",
                s->config_name, is_eos ? 'e' : 'b', (long long)id, TOOLS_LLU(s->n_vocab), files[i]);
    return ids[i];
}

/* The tokens that begin and end a text. The configuration decides; else the vocabulary; else both are
 * "<|endoftext|>". */
static attn_status name_ends(attn_ctx *ctx, source *s)
{
    const vocab *v = &s->vocabulary;
    const int32_t named[] = {v->first >= 0 ? v->first : v->bos, v->eos};
    int64_t *const ids[] = {&s->bos, &s->eos};
    shown name;
    if (s->eos >= (int64_t)s->n_vocab && s->n_more_eos > 0) { /* another one is inside */
        s->eos = s->more_eos[0];
        memmove(s->more_eos, s->more_eos + 1, --s->n_more_eos * sizeof s->more_eos[0]);
    }
    for (size_t i = 0; i < 2; i++) {
        const int known = named[i] >= 0 && (size_t)named[i] < v->n_tokens;
        if (*ids[i] >= (int64_t)s->n_vocab)
            *ids[i] = find_inside(s, (int)i, *ids[i], known ? named[i] : -1);
        else if (*ids[i] == SOURCE_UNSAID)
            *ids[i] = known ? named[i] : vocab_end_of_text(v);
        else if (known && *ids[i] >= 0 && *ids[i] != named[i])
            source_note("%s says that id %lld %s a text, the vocabulary's files say id %ld; "
                        "the first counts",
                        s->config_name, (long long)*ids[i], i ? "ends" : "begins", (long)named[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        const int64_t id = *ids[i];
        const vocab_token *const t = id >= 0 && (uint64_t)id < v->n_tokens ? &v->tokens[id] : NULL;
        if (t && t->spelling && !t->special)
            source_note("by %s, texts %s with id %lld, \"%s\", which is an ordinary token of this "
                        "vocabulary: is %cos_token_id another model's?",
                        s->config_name, i ? "end" : "begin", (long long)id,
                        show(name, t->spelling, t->spelling_size), i ? 'e' : 'b');
    }
    if (!ctx->status && v->first >= 0 && s->bos != v->first)
        tool_fail(ctx, ATTN_E_UNSUPPORTED,
                  "texts shall begin with id %ld by the vocabulary's files, "
                  "but --bos would give id %lld by %s; make bos_token_id there the same",
                  (long)v->first, (long long)s->bos, s->config_name);
    return ctx->status;
}

/* Refuses an output that is one of the input files, which would be lost. */
static attn_status check_output(attn_ctx *ctx, source *s, const convert_options *o)
{
    const char *const dirs[] = {s->dir, o->tokenizer};
    const source_file *f;
    const char *path;
    for (f = s->files; f; f = f->next)
        if (system_same_file(o->output, f->path))
            return tool_fail(ctx, ATTN_E_ARGUMENT, "%s is part of the input", o->output);
    if (s->adapter && check_output(ctx, s->adapter, o))
        return ctx->status;
    for (size_t i = 0; i < COUNT_OF(dirs); i++)
        for (size_t k = 0; dirs[i] && k < COUNT_OF(hf_files); k++) {
            if ((path = arena_path(ctx, &s->memory, dirs[i], hf_files[k])) == NULL)
                return ctx->status;
            if (system_same_file(o->output, path))
                return tool_fail(ctx, ATTN_E_ARGUMENT, "%s is part of the input", o->output);
        }
    return ATTN_OK;
}

/* >> Export ===================================================================================== */

/* Tells how far an export is; an export_job's goes_on. */
static int export_goes_on(void *of, double share)
{
    return convert_goes_on((const conversion *)of, share);
}

static int is_attn_file(const char *path)
{
    unsigned char magic[5] = {0};
    FILE *file = system_not_a_file(path) ? NULL : system_open(path, "rb");
    const size_t n = file ? fread(magic, 1, sizeof magic, file) : 0;
    if (file)
        fclose(file);
    return n == sizeof magic && magic[0] == 0x89 && memcmp(magic + 1, "ATTN", 4) == 0;
}

/* Converts a .attn file to a directory or a GGUF file. */
static attn_status convert_back(conversion *c)
{
    attn_ctx *const ctx = &c->ctx;
    const convert_options *const o = &c->o;
    const char *taken = system_not_a_file(o->output);
    attn_model *model = NULL;
    export_job e = ATTN_ZERO;
    if (lens_ends_in(o->output, ".safetensors"))
        return tool_fail(ctx, ATTN_E_ARGUMENT,
                         "%s would be a directory; "
                         "give one by a name of its own, and model.safetensors will be in it",
                         o->output);
    if (lens_ends_in(o->output, ".attn"))
        return tool_fail(
            ctx, ATTN_E_FORMAT,
            "%s is a .attn file already: cp copies it; "
            "name a directory or FILE.gguf as the output to write it for other programs%s",
            o->input,
            o->dtype < 0 ? ""
                         : ", or the checkpoint that it was made from as the input "
                           "for another --dtype");
    if (o->dtype >= 0 || o->tokenizer || o->prefix || o->adapters.n || o->said[SAID_NAME] ||
        o->said[SAID_SOURCE] || o->said[SAID_LICENSE])
        return tool_fail(
            ctx, ATTN_E_ARGUMENT,
            "%s is a .attn file, and is written as it is: "
            "--dtype, --tokenizer, --prefix, --adapter, --name, --source and --license are for other "
            "inputs",
            o->input);
    if (export_is_gguf(o->output) ? taken != NULL
                                  : system_exists(o->output) && !system_is_directory(o->output))
        return tool_fail(ctx, ATTN_E_IO, "%s is %s; expected %s", o->output,
                         taken ? taken : "a file",
                         export_is_gguf(o->output) ? "a file name" : "a directory, or FILE.gguf");
    if (system_same_file(o->input, o->output))
        return tool_fail(ctx, ATTN_E_ARGUMENT, "%s is part of the input", o->output);
    if (open_verified(ctx, &model, o->input, NULL) == ATTN_OK) {
        e.ctx = ctx;
        e.model = model;
        e.goes_on = export_goes_on;
        e.of = c;
        export_model(&e, o->input, o->output, !o->no_tokenizer);
    }
    c->n_bytes = e.size;
    c->n_tensors = e.n_tensors;
    c->n_tokens = e.section ? export_count(&e, 0) : 0;
    arena_free(&e.memory);
    attn_model_close(model);
    return ctx->status;
}

/* >> The work ================================================================================== */

/* Counts the tensors and parameters of the new file, and the bytes of the checkpoint. */
static void count_written(conversion *c, const plan *p)
{
    c->n_tensors = p->n_tensors;
    c->n_tokens = p->tokenizer ? c->s.vocabulary.n_tokens : 0;
    for (const source *a = &c->s; a; a = a->adapter)
        for (const source_file *file = a->files; file; file = file->next)
            c->n_read += file->size;
    for (size_t i = 0; i < p->n_tensors; i++)
        c->n_parameters += p->tensors[i].n_in * p->tensors[i].n_out;
    while (dtypes[c->dtype] != p->dtype)
        c->dtype++;
}

static attn_status convert(conversion *c)
{
    attn_ctx *const ctx = &c->ctx;
    source *const s = &c->s;
    const convert_options *const o = &c->o;
    const char *taken = system_not_a_file(o->output);
    /* asked once: if the answer changed, the vocabulary would be left out */
    const int is_directory = system_is_directory(o->input);
    plan p = ATTN_ZERO;
    if (!is_directory && is_attn_file(o->input))
        return convert_back(c);
    if (export_is_gguf(o->output))
        return tool_fail(ctx, ATTN_E_ARGUMENT,
                         "%s would be a .attn file in spite of its name; "
                         "for GGUF, convert to FILE.attn first, and that to %s",
                         o->output, base_name(o->output));
    if (taken && !system_exists(o->input))
        return tool_fail(ctx, ATTN_E_IO,
                         "there is no %s; the output comes last: attn-convert %s %s", o->input,
                         o->output, o->input);
    if (taken)
        return tool_fail(ctx, ATTN_E_IO, "%s is %s; expected a file name", o->output, taken);
    memcpy(s->said, o->said, sizeof s->said);
    s->prefix = o->prefix;
    s->generation_bos = s->vocabulary.bos = s->vocabulary.eos = s->vocabulary.first = -1;
    if (is_directory ? hf_open(ctx, s, o->input) : open_file(ctx, s, o))
        return ctx->status;
    if (s->prefix)
        return tool_fail(ctx, ATTN_E_ARGUMENT,
                         "--prefix is for models of PyTorch, and %s is another's", o->input);
    for (size_t i = 0; i < o->adapters.n; i++)
        if (adapter_open(ctx, s, o->adapters.at[i]))
            return ctx->status;
    if (s->adapter && !o->said[SAID_NAME])
        s->said[SAID_NAME] = NULL; /* it is the base's */
    if (check_output(ctx, s, o) || check_config(ctx, s) || plan_parts(ctx, s, &p) ||
        plan_unembedding(ctx, s, &p) || plan_head(ctx, s, &p) || open_vocab(ctx, s, o))
        return ctx->status;
    if (s->has_vocab)
        plan_tokenizer(ctx, s, &p); /* first: it drops tokens that the model does not have */
    else if (!o->no_tokenizer)
        source_note("no vocabulary here%s%s: the model will take and give token ids only; "
                    "--tokenizer DIR takes that of a directory",
                    s->other_vocab ? ", but one of another kind, " : "",
                    s->other_vocab ? s->other_vocab : "");
    name_ends(ctx, s);
    if (s->bos < 0)
        s->bos = SOURCE_NO_TOKEN;
    if (s->eos < 0)
        s->eos = SOURCE_NO_TOKEN;
    if (!ctx->status && plan_types(ctx, &p, o->dtype < 0 ? -1 : (int)dtypes[o->dtype]) == ATTN_OK)
        write_model(c, &p);
    if (!ctx->status)
        count_written(c, &p);
    free(p.tokenizer);
    return ctx->status;
}

#endif
