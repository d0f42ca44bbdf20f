/* Export: converts a .attn file to a directory for Hugging Face's transformers, or to a GGUF file for
 * llama.cpp. No number changes. f16 matrices are written as F16. GGUF also takes q8 and q4, as Q8_0 and Q4_0:
 * the same bits in another order. Everything else is written as F32, for Hugging Face also q8 and q4.
 *
 * Both formats have a list of tensors before the data. So an export first lists all tensors with their
 * offsets, then writes them in that order, some rows at a time. */
#ifndef TOOLS_EXPORT_H
#define TOOLS_EXPORT_H

#include "gguf.h"
#include "parts.h"
#include "tools/write/writer.h"

typedef struct exported {
    char from[64], name[64]; /* its names in the .attn file, and in the output */
    int turned;              /* the output is the transpose of what attn_model_tensor gives */
    attn_dtype dtype;        /* ATTN_Q8 and ATTN_Q4 for Q8_0 and Q4_0 */
    uint64_t stored;         /* its offset in the .attn file */
    int ndim;
    uint64_t shape[2];     /* slowest first, as written */
    uint64_t offset, size; /* within the data */
} exported;

typedef struct export_job {
    attn_ctx *ctx;
    const attn_model *model;
    arena memory;
    const unsigned char *section; /* the model's; NULL for no vocabulary */
    unsigned char *special;       /* for each token: is it special? */
    name_table by_name;           /* of the model's tensors */
    exported *tensors;
    size_t n_tensors, n_heads;              /* n_heads: tensors of a head, the last ones */
    uint64_t size;                          /* of the data */
    FILE *input, *file;                     /* the .attn file, and the output */
    int (*goes_on)(void *of, double share); /* 0: the caller asks to stop */
    void *of;
} export_job;

/* >> The tensors =============================================================================== */

/* The names of the types in the output, by attn_dtype. */
static const struct {
    source_dtype source;
    uint32_t gguf;
    const char *name;
} export_types[] = {{SOURCE_F32, 0, "F32"},
                    {SOURCE_F16, 1, "F16"},
                    {SOURCE_OTHER, 26, "I32"},
                    {SOURCE_Q8_0, 8, "Q8_0"},
                    {SOURCE_Q4_0, 2, "Q4_0"}};

/* The type in the output. A row of GGUF must consist of whole blocks of 32. */
TOOLS_FN attn_dtype export_dtype(attn_dtype stored, source_names names, uint64_t width)
{
    const int is_quantized = stored == ATTN_Q8 || stored == ATTN_Q4;
    return is_quantized && (names != NAMES_GGUF || width % 32) ? ATTN_F32 : stored;
}

/* A head, which without a bias is a classifier's, and with one a reward model's. */
static const gpt2_part export_heads[] = {PART(ROWS, 1, C, "head.weight", "score.weight"),
                                         PART(ROWS, 1, C, "head.weight", "v_head.summary.weight"),
                                         PART(ROWS, 1, C, "head.bias", "v_head.summary.bias")};

/* Adds one tensor to the list. */
TOOLS_FN attn_status export_part(export_job *e, const gpt2_part *p, source_names names,
                                 size_t layer, uint64_t alignment)
{
    exported *t = &e->tensors[e->n_tensors++];
    size_t i = 0;
    const char *const before =
        names == NAMES_HF && p != &unembed_part && !strstr(p->name, "head.") ? "transformer." : "";
    lens_weight_name(t->from, layer, p->name);
    if (layer == ATTN_NO_LAYER)
        snprintf(t->name, sizeof t->name, "%s%s", before, p->names[names]);
    else
        snprintf(t->name, sizeof t->name, "%s%s%zu.%s", before, layer_prefix[names], layer,
                 p->names[names]);
    names_find(&e->by_name, t->from, strlen(t->from), &i); /* it is there: the model was opened */
    model_tensor info = model_tensor_at(e->model, i);
    t->ndim = info.ndim;
    t->turned = p == &unembed_part || (p->kind == PART_LINEAR && names == NAMES_GGUF);
    t->stored = info.offset;
    /* the embedding is kept as its transpose, but attn_model_tensor gives it as a table */
    i = t->turned || strcmp(t->from, "embed.W_E") == 0;
    t->shape[0] = info.shape[i];
    t->shape[1] = info.ndim == 2 ? info.shape[!i] : 1;
    t->dtype = export_dtype(info.dtype, names, t->shape[1]);
    t->size = source_size(export_types[t->dtype].source, t->shape[0] * t->shape[1]);
    t->offset = (e->size + alignment - 1) / alignment * alignment;
    e->size = t->offset + t->size;
    return e->ctx->status;
}

/* Lists all tensors in the order in which they are written. */
TOOLS_FN attn_status export_list(export_job *e, source_names names, uint64_t alignment)
{
    const attn_config *c = attn_model_config(e->model);
    const size_t n = model_n_tensors(e->model);
    const gpt2_part *p;
    model_tensor info;
    size_t number, layer;
    e->tensors = (exported *)arena_alloc(e->ctx, &e->memory, n, sizeof *e->tensors);
    if (!e->tensors || names_init(e->ctx, &e->memory, &e->by_name, n))
        return e->ctx->status;
    for (size_t i = 0; i < n; i++) {
        number = i;
        info = model_tensor_at(e->model, i);
        names_add(&e->by_name, info.name, strlen(info.name), &number);
    }
    for (size_t i = 0; (p = part_at(i, c->n_layer, &layer)) != NULL; i++)
        export_part(e, p, names, layer, alignment);
    if (!c->tied)
        export_part(e, &unembed_part, names, ATTN_NO_LAYER, alignment);
    e->n_heads = n - e->n_tensors; /* what is left */
    for (size_t i = 0; i < e->n_heads && names == NAMES_HF; i++)
        export_part(e, &export_heads[e->n_heads - 1 + i], names, ATTN_NO_LAYER, alignment);
    if (e->n_heads > 0 && names != NAMES_HF)
        source_note("its head, of a classifier or a reward model, is left out");
    return e->ctx->status;
}

/* Writes numbers little-endian, on any host. */
TOOLS_FN void export_numbers(export_job *e, const float *x, size_t n, int is_f16)
{
    unsigned char bytes[4096];
    const size_t width = is_f16 ? 2 : 4;
    size_t part_size;
    for (size_t i = 0; i < n; i += part_size) {
        part_size = n - i < sizeof bytes / width ? n - i : sizeof bytes / width;
        for (size_t k = 0; k < part_size; k++) {
            const uint16_t half = attn_f16_from_f32(x[i + k]);
            uint32_t bits;
            memcpy(&bits, &x[i + k], sizeof bits);
            if (is_f16) {
                bytes[2 * k] = (unsigned char)(half & 255);
                bytes[2 * k + 1] = (unsigned char)(half >> 8);
            } else {
                put_u32(bytes + 4 * k, bits);
            }
        }
        fwrite(bytes, 1, width * part_size, e->file); /* lens_new_file_end reports errors */
    }
}

/* Writes 32 numbers of output n (0 to 15) of a panel, from input k on, as a block of Q8_0 or Q4_0. The manual
 * of attn.h describes panels; `group` is the 64 inputs that k belongs to. */
TOOLS_FN size_t export_block(unsigned char *block, const unsigned char *group, attn_dtype dtype,
                             size_t n, size_t k)
{
    const unsigned char *line = group + 64 + 4 * n; /* this output's bytes of the first line */
    memcpy(block, group + k / 32 * 32 + n * 2, 2);  /* the factor */
    for (size_t i = 0; i < 16; i++, k++)
        if (dtype == ATTN_Q8) {
            block[2 + i] = line[k / 4 * 64 + k % 4] ^ 0x80; /* signed, where it was 128 more */
            block[18 + i] = line[(k + 16) / 4 * 64 + k % 4] ^ 0x80;
        } else { /* bytes of two numbers: 4 inputs apart in a panel, 16 in a block */
            const int shift = k % 8 < 4 ? 0 : 4, a = line[k / 8 * 64 + k % 4] >> shift & 15;
            const int b = line[(k + 16) / 8 * 64 + k % 4] >> shift & 15;
            block[2 + i] = (unsigned char)(a | b << 4);
        }
    return dtype == ATTN_Q8 ? 34 : 18;
}

/* Writes a matrix of 8 or 4 bits, read from the file a panel of 16 outputs at a time. */
TOOLS_FN attn_status export_panels(export_job *e, const exported *t)
{
    const size_t n_in = (size_t)t->shape[1], size = model_panels_size(t->dtype, n_in, 16);
    const size_t group = t->dtype == ATTN_Q8 ? 17 * 64 : 9 * 64; /* the scales, and 64 inputs */
    unsigned char block[34] = {0}, *panel = (unsigned char *)malloc(size);
    if (!panel)
        return tool_fail(e->ctx, ATTN_E_MEMORY, "no memory to write %s", t->name);
    for (size_t n = 0; n < t->shape[0] && !e->ctx->status; n++) {
        if (n % 16 == 0 && (system_seek(e->input, t->stored + n / 16 * size) ||
                            fread(panel, 1, size, e->input) != size))
            tool_fail_io(e->ctx, "cannot read", t->from);
        else if (lens_is_stopped(e->ctx))
            tool_fail(e->ctx, ATTN_STOPPED, "interrupted");
        for (size_t k = 0; k < n_in && !e->ctx->status; k += 32)
            fwrite(block, 1, export_block(block, panel + k / 64 * group, t->dtype, n % 16, k % 64),
                   e->file);
    }
    free(panel);
    return e->ctx->status;
}

/* Writes one tensor, some rows at a time. */
TOOLS_FN attn_status export_tensor(export_job *e, const exported *t)
{
    enum { ROWS = 64 };
    attn_tensor whole = {0}, rows = {0}, x;
    size_t first, n, count = (size_t)t->shape[0];
    if (t->dtype == ATTN_Q8 || t->dtype == ATTN_Q4)
        return export_panels(e, t);
    if (attn_model_tensor(e->ctx, &whole, e->model, t->from) == ATTN_OK) {
        x = whole;
        if (x.ndim == 3) /* W_O [H, d, C] */
            x = attn_reshape(x, attn_shape2(x.shape[0] * x.shape[1], x.shape[2]));
        if (t->turned)
            x = attn_transpose(x, 0, 1);
        for (first = 0; first < count && !e->ctx->status; first += n) {
            n = count - first < ROWS ? count - first : ROWS;
            if (lens_is_stopped(e->ctx)) {
                tool_fail(e->ctx, ATTN_STOPPED, "interrupted");
            } else if (attn_copy(e->ctx, &rows, attn_slice(x, 0, first, n)) == ATTN_OK) {
                export_numbers(e, (const float *)rows.data, attn_count(rows), t->dtype == ATTN_F16);
                attn_tensor_free(e->ctx, &rows);
            }
        }
    }
    attn_tensor_free(e->ctx, &whole);
    return e->ctx->status;
}

TOOLS_FN void export_zeros(export_job *e, uint64_t n)
{
    for (; n > 0; n--)
        fputc(0, e->file);
}

TOOLS_FN attn_status export_data(export_job *e)
{
    uint64_t at = 0;
    for (size_t i = 0; i < e->n_tensors && !e->ctx->status; i++) {
        const exported *t = &e->tensors[i];
        export_zeros(e, t->offset - at);
        export_tensor(e, t);
        at = t->offset + t->size;
        if (!e->goes_on(e->of, (double)at / (double)e->size))
            tool_fail(e->ctx, ATTN_STOPPED, "interrupted");
    }
    return e->ctx->status;
}

/* >> The vocabulary ============================================================================ */

typedef struct export_token {
    const char *bytes;
    size_t size;
    int special;
} export_token;

/* Numbers of tokens, merges and special tokens: fields 0 to 2 of the section. */
TOOLS_FN uint32_t export_count(const export_job *e, int field)
{
    const uint32_t mask = field == 2 ? 0xffff : 0xffffffff;
    return e->section ? get_u32(e->section + 4 * (size_t)field) & mask : 0;
}

/* VOCAB_LACKS and the like. */
TOOLS_FN uint32_t export_vocab_flags(const export_job *e)
{
    return e->section ? get_u32(e->section + 8) & 0xffff0000 : 0;
}

/* The unknown token, for bytes or characters without a token; -1: there is none. */
TOOLS_FN int64_t export_unknown(const export_job *e)
{
    const size_t at = 16 + 4 * (size_t)export_count(e, 0) + 12 * (size_t)export_count(e, 1);
    return export_vocab_flags(e) & VOCAB_HAS_UNKNOWN ? (int64_t)get_u32(e->section + at) : -1;
}

/* Token `id` of the section, which the library has checked. */
TOOLS_FN export_token export_token_at(const export_job *e, uint32_t id)
{
    const uint32_t n = export_count(e, 0), n_special = export_count(e, 2);
    const unsigned char *ends = e->section + 16;
    const unsigned char *special = ends + 4 * (size_t)n + 12 * (size_t)export_count(e, 1);
    const uint32_t first = id ? get_u32(ends + 4 * (size_t)(id - 1)) : 0;
    export_token token;
    token.bytes = (const char *)special + 4 * (size_t)n_special + first;
    token.size = get_u32(ends + 4 * (size_t)id) - first;
    token.special = e->special[id];
    return token;
}

/* The printable character that spells a byte (see vocab.h), as UTF-8. Returns its size. */
TOOLS_FN size_t export_stand_in(unsigned char byte, char out[2])
{
    const int own = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int rank = byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67;
    const int c = own ? byte : 256 + rank;
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 63));
    return 2;
}

/* The spelling of a token in vocabularies. NULL after a message. */
TOOLS_FN char *export_spelling(export_job *e, export_token token, size_t *size)
{
    char *text = (char *)arena_alloc(e->ctx, &e->memory, 2 * token.size + 1, 1);
    const int as_is = token.special || export_vocab_flags(e) & VOCAB_CHARACTERS;
    json_parser whole = ATTN_ZERO;
    size_t n;
    *size = 0;
    whole.end = (char *)(uintptr_t)token.bytes + token.size;
    for (size_t i = 0; text && i < token.size; i += n) {
        n = as_is ? json_utf8_length(&whole, token.bytes + i) : 1;
        if (n == 0) {
            tool_fail(
                e->ctx, ATTN_E_TOKENIZER,
                "a special token is not UTF-8, which no vocabulary of these formats can hold");
            return NULL;
        }
        if (as_is)
            memcpy(text + *size, token.bytes + i, n);
        *size += as_is ? n : export_stand_in((unsigned char)token.bytes[i], text + *size);
    }
    return text;
}

TOOLS_FN void export_json_text(FILE *file, const char *text, size_t size)
{
    fputc('"', file);
    for (size_t i = 0; i < size; i++)
        if (text[i] == '"' || text[i] == '\\')
            fprintf(file, "\\%c", text[i]);
        else if ((unsigned char)text[i] < 0x20)
            fprintf(file, "\\u%04x", (unsigned)text[i]);
        else
            fputc(text[i], file);
    fputc('"', file);
}

/* Writes token `id` in quotes. */
TOOLS_FN attn_status export_json_token(export_job *e, uint32_t id)
{
    size_t size;
    const char *text = export_spelling(e, export_token_at(e, id), &size);
    if (text)
        export_json_text(e->file, text, size);
    return e->ctx->status;
}

/* Writes {"token": id, ...} for all tokens, or for the special ones. Ids without a token are left out. */
TOOLS_FN attn_status export_ids(export_job *e, int only_special)
{
    const char *comma = "";
    fputs("{", e->file);
    for (uint32_t id = 0; id < export_count(e, 0) && !e->ctx->status; id++) {
        const export_token token = export_token_at(e, id);
        if (token.size == 0 || (only_special && !token.special))
            continue;
        fputs(comma, e->file);
        comma = ", ";
        export_json_token(e, id);
        fprintf(e->file, ": %lu", (unsigned long)id);
    }
    fputs("}", e->file);
    return e->ctx->status;
}

TOOLS_FN attn_status export_vocab(export_job *e)
{
    return export_ids(e, 0);
}

/* Writes added_tokens.json. No other file beside vocab.json and merges.txt says that these are special. */
TOOLS_FN attn_status export_added_tokens(export_job *e)
{
    return export_ids(e, 1);
}

/* The left and the right side of a merge. */
TOOLS_FN attn_status export_merge(export_job *e, uint32_t index, const char *text[2],
                                  size_t size[2])
{
    const unsigned char *merge =
        e->section + 16 + 4 * (size_t)export_count(e, 0) + 12 * (size_t)index;
    for (size_t i = 0; i < 2; i++)
        if ((text[i] = export_spelling(e, export_token_at(e, get_u32(merge + 4 * i)), &size[i])) ==
            NULL)
            return e->ctx->status;
    return ATTN_OK;
}

/* >> A directory for Hugging Face ============================================================== */

TOOLS_FN void export_id(FILE *file, const char *key, attn_token id)
{
    if (id < 0)
        fprintf(file, "  \"%s\": null,\n", key);
    else
        fprintf(file, "  \"%s\": %ld,\n", key, (long)id);
}

/* Writes one id, or a list if several tokens end a text. */
TOOLS_FN void export_eos(FILE *file, const attn_config *c)
{
    if (c->n_more_eos == 0) {
        export_id(file, "eos_token_id", c->eos);
        return;
    }
    fprintf(file, "  \"eos_token_id\": [%ld", (long)c->eos);
    for (uint32_t i = 0; i < c->n_more_eos; i++)
        fprintf(file, ", %ld", (long)c->more_eos[i]);
    fputs("],\n", file);
}

/* Writes what the model's file says of it, under the keys that card.h reads. */
TOOLS_FN void export_said(FILE *f, const char *key, const char *text)
{
    if (!text)
        return;
    fprintf(f, "  \"%s\": ", key);
    export_json_text(f, text, strlen(text));
    fputs(",\n", f);
}

/* Writes the names of a classifier's labels. */
TOOLS_FN void export_labels(export_job *e)
{
    const uint64_t n = e->n_heads == 1 ? e->tensors[e->n_tensors - 1].shape[0] : 0; /* the last */
    char room[32];
    for (size_t i = 0; i < n; i++) {
        const char *const name = model_label(e->model, i, room);
        fprintf(e->file, "%s\"%zu\": ", i ? ", " : "  \"id2label\": {", i);
        export_json_text(e->file, name, strlen(name));
    }
    fputs(n ? "},\n" : "", e->file);
}

/* Writes config.json, with every setting that changes logits. */
TOOLS_FN attn_status export_hf_config(export_job *e)
{
    static const char *const act_fns[] = {"gelu_new", "gelu", "relu", "silu"};
    const attn_config *c = attn_model_config(e->model);
    const char *const origin = attn_model_meta(e->model, "source");
    FILE *f = e->file;
    fputs("{\n", f);
    export_said(f, "model_name", attn_model_meta(e->model, "name"));
    if (origin && card_is_hub_name(origin, strlen(origin)))
        export_said(f, "_name_or_path", origin);
    export_said(f, "license", attn_model_meta(e->model, "license"));
    fprintf(f, "  \"architectures\": [\"GPT2%s\"],\n  \"model_type\": \"gpt2\",\n",
            e->n_heads == 1 ? "ForSequenceClassification" : "LMHeadModel");
    export_labels(e);
    fprintf(f, "  \"activation_function\": \"%s\",\n", act_fns[c->act_fn]);
    fprintf(f, "  \"vocab_size\": %zu,\n  \"n_positions\": %zu,\n  \"n_embd\": %zu,\n", c->n_vocab,
            c->n_ctx, c->d_model);
    fprintf(f, "  \"n_layer\": %zu,\n  \"n_head\": %zu,\n  \"n_inner\": %zu,\n", c->n_layer,
            c->n_head, c->d_mlp);
    fprintf(f, "  \"layer_norm_epsilon\": %.9g,\n", (double)c->ln_eps);
    fprintf(f, "  \"scale_attn_weights\": %s,\n", c->unscaled_attn ? "false" : "true");
    fprintf(f, "  \"scale_attn_by_inverse_layer_idx\": %s,\n",
            c->scale_attn_by_inverse_layer_idx ? "true" : "false");
    export_id(f, "bos_token_id", c->bos);
    export_eos(f, c);
    fprintf(f, "  \"tie_word_embeddings\": %s,\n  \"torch_dtype\": \"float32\"\n}\n",
            c->tied ? "true" : "false");
    return ATTN_OK;
}

/* The size of the header, the header, the data. */
TOOLS_FN attn_status export_safetensors(export_job *e)
{
    unsigned char start[8];
    size_t n = 0, room = 64 + e->n_tensors * 256;
    char *header = (char *)arena_alloc(e->ctx, &e->memory, room, 1);
    if (!header)
        return e->ctx->status;
    n += (size_t)snprintf(header + n, room - n, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < e->n_tensors; i++) {
        const exported *t = &e->tensors[i];
        shown shape;
        n += (size_t)snprintf(
            header + n, room - n,
            ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%llu,%llu]}", t->name,
            export_types[t->dtype].name, show_shape(shape, t->ndim, t->shape), TOOLS_LLU(t->offset),
            TOOLS_LLU(t->offset + t->size));
    }
    header[n++] = '}';
    while (n % 8)
        header[n++] = ' ';
    put_u64(start, n);
    fwrite(start, 1, sizeof start, e->file);
    fwrite(header, 1, n, e->file);
    return export_data(e);
}

TOOLS_FN attn_status export_merges_file(export_job *e)
{
    const char *text[2] = {NULL, NULL};
    size_t size[2] = {0, 0};
    fputs("#version: 0.2\n", e->file);
    for (uint32_t i = 0; i < export_count(e, 1); i++) {
        if (export_merge(e, i, text, size))
            return e->ctx->status;
        fprintf(e->file, "%.*s %.*s\n", (int)size[0], text[0], (int)size[1], text[1]);
    }
    return ATTN_OK;
}

/* Writes tokenizer.json, which AutoTokenizer prefers: the same vocabulary, with the special tokens. */
TOOLS_FN attn_status export_tokenizer_file(export_job *e)
{
    FILE *f = e->file;
    const char *text[2] = {NULL, NULL}, *comma = "\n";
    size_t size[2] = {0, 0};
    fputs("{\n\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n\"added_tokens\": [",
          f);
    for (uint32_t i = 0; i < export_count(e, 0); i++)
        if (export_token_at(e, i).special) {
            fprintf(f, "%s  {\"id\": %lu, \"content\": ", comma, (unsigned long)i);
            comma = ",\n";
            if (export_json_token(e, i))
                return e->ctx->status;
            fputs(", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                  "\"normalized\": false, \"special\": true}",
                  f);
        }
    if (export_vocab_flags(e) & VOCAB_CHARACTERS)
        fputs("],\n\"normalizer\": null,\n\"pre_tokenizer\": null,\n\"post_processor\": null,\n"
              "\"decoder\": {\"type\": \"Fuse\"},\n",
              f);
    else
        fprintf(f,
                "],\n\"normalizer\": null,\n\"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                "\"add_prefix_space\": %s, \"trim_offsets\": true, \"use_regex\": true},\n"
                "\"post_processor\": null,\n\"decoder\": {\"type\": \"ByteLevel\", "
                "\"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true},\n",
                export_vocab_flags(e) & VOCAB_ADDS_BLANK ? "true" : "false");
    fputs("\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": ", f);
    if (export_unknown(e) < 0)
        fputs("null", f);
    else if (export_json_token(e, (uint32_t)export_unknown(e)))
        return e->ctx->status;
    fputs(", \"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": \"\", \"fuse_unk\": "
          "false, \"byte_fallback\": false, \"ignore_merges\": false,\n\"vocab\": ",
          f);
    if (export_vocab(e))
        return e->ctx->status;
    fputs(",\n\"merges\": [", f);
    for (uint32_t i = 0; i < export_count(e, 1); i++) {
        if (export_merge(e, i, text, size))
            return e->ctx->status;
        fputs(i ? ",\n[" : "\n[", f);
        export_json_text(f, text[0], size[0]);
        fputs(", ", f);
        export_json_text(f, text[1], size[1]);
        fputs("]", f);
    }
    fputs("]}\n}\n", f);
    return ATTN_OK;
}

/* Writes tokenizer_config.json, which tells AutoTokenizer to use tokenizer.json without changes. */
TOOLS_FN attn_status export_tokenizer_config(export_job *e)
{
    const attn_config *c = attn_model_config(e->model);
    const struct {
        const char *key;
        attn_token id;
    } ids[] = {{"bos_token", c->bos}, {"eos_token", c->eos}};
    size_t i;
    fprintf(e->file, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                     "  \"clean_up_tokenization_spaces\": false,\n");
    for (i = 0; i < COUNT_OF(ids); i++)
        if (ids[i].id >= 0 && (uint32_t)ids[i].id < export_count(e, 0) &&
            export_token_at(e, (uint32_t)ids[i].id).special) {
            fprintf(e->file, "  \"%s\": ", ids[i].key);
            if (export_json_token(e, (uint32_t)ids[i].id))
                return e->ctx->status;
            fputs(",\n", e->file);
        }
    fprintf(e->file, "  \"model_max_length\": %zu\n}\n", c->n_ctx);
    return ATTN_OK;
}

/* Writes one file, which gets its name when it is complete. */
TOOLS_FN attn_status export_file(export_job *e, const char *path,
                                 attn_status (*write)(export_job *))
{
    lens_new_file *file;
    if (lens_new_file_begin(e->ctx, &file, path))
        return e->ctx->status;
    e->file = (FILE *)lens_new_file_stream(file);
    return lens_new_file_end(e->ctx, file, write(e));
}

static const struct {
    const char *name;
    int of_vocabulary;
    attn_status (*write)(export_job *);
} export_files[] = {{"vocab.json", 1, export_vocab},
                    {"merges.txt", 1, export_merges_file},
                    {"added_tokens.json", 1, export_added_tokens},
                    {"tokenizer.json", 1, export_tokenizer_file},
                    {"tokenizer_config.json", 1, export_tokenizer_config},
                    {"config.json", 0, export_hf_config},
                    {"model.safetensors", 0, export_safetensors}};

/* Writes all files to a directory that has none of them. After a failure it has none again. */
TOOLS_FN attn_status export_directory(export_job *e, const char *dir)
{
    char *paths[COUNT_OF(export_files)];
    size_t n;
    int made = 0;
    for (size_t i = 0; i < COUNT_OF(export_files); i++) {
        if ((paths[i] = arena_path(e->ctx, &e->memory, dir, export_files[i].name)) == NULL)
            return e->ctx->status;
        if (system_is_directory(dir) && system_exists(paths[i]))
            return tool_fail(e->ctx, ATTN_E_IO,
                             "%s holds a %s already; give a directory that is new, or empty", dir,
                             export_files[i].name);
    }
    if (export_list(e, NAMES_HF, 1))
        return e->ctx->status;
    if (!system_is_directory(dir) && !(made = system_make_directory(dir) == 0))
        return tool_fail_io(e->ctx, "cannot make the directory", dir);
    for (n = 0; n < COUNT_OF(export_files) && !e->ctx->status; n++)
        if (e->section || !export_files[n].of_vocabulary)
            export_file(e, paths[n], export_files[n].write);
    for (size_t i = 0; i < n && e->ctx->status; i++)
        system_remove(paths[i]);
    if (made && e->ctx->status)
        system_remove(dir);
    return e->ctx->status;
}

/* >> A GGUF file =============================================================================== */

enum { EXPORT_ALIGNMENT = 32 };

TOOLS_FN void export_u32(FILE *file, uint32_t number)
{
    unsigned char bytes[4];
    put_u32(bytes, number);
    fwrite(bytes, 1, sizeof bytes, file);
}

TOOLS_FN void export_u64(FILE *file, uint64_t number)
{
    unsigned char bytes[8];
    put_u64(bytes, number);
    fwrite(bytes, 1, sizeof bytes, file);
}

TOOLS_FN void export_string(FILE *file, const char *text, size_t size)
{
    export_u64(file, size);
    fwrite(text, 1, size, file);
}

TOOLS_FN void export_key(FILE *file, int key, gguf_type type)
{
    export_string(file, gguf_key(key), strlen(gguf_key(key)));
    export_u32(file, (uint32_t)type);
}

TOOLS_FN void export_number(FILE *file, int key, size_t number)
{
    export_key(file, key, GGUF_U32);
    export_u32(file, (uint32_t)number);
}

TOOLS_FN void export_text(FILE *file, int key, const char *text)
{
    export_key(file, key, GGUF_STRING);
    export_string(file, text, strlen(text));
}

TOOLS_FN void export_array(FILE *file, int key, gguf_type type, size_t count)
{
    export_key(file, key, GGUF_ARRAY);
    export_u32(file, (uint32_t)type);
    export_u64(file, count);
}

/* Writes a token for every row of the embedding; rows without a token in the .attn file are unused. */
TOOLS_FN attn_status export_gguf_vocab(export_job *e)
{
    const attn_config *c = attn_model_config(e->model);
    FILE *f = e->file;
    const char *text[2] = {NULL, NULL};
    size_t size[2] = {0, 0};
    shown name;
    export_text(f, KEY_PRE, "gpt-2");
    export_array(f, KEY_TOKENS, GGUF_STRING, c->n_vocab);
    for (uint32_t i = 0; i < c->n_vocab; i++) {
        if (i < export_count(e, 0) && export_token_at(e, i).size > 0) {
            if ((text[0] = export_spelling(e, export_token_at(e, i), &size[0])) == NULL)
                return e->ctx->status;
        } else {
            text[0] = name;
            size[0] = (size_t)snprintf(name, sizeof name, "[PAD%lu]", (unsigned long)i);
        }
        export_string(f, text[0], size[0]);
    }
    export_array(f, KEY_TOKEN_TYPES, GGUF_I32, c->n_vocab);
    for (uint32_t i = 0; i < c->n_vocab; i++)
        export_u32(f, i >= export_count(e, 0) || export_token_at(e, i).size == 0 ? GGUF_TOKEN_UNUSED
                      : export_token_at(e, i).special ? GGUF_TOKEN_CONTROL
                                                      : GGUF_TOKEN_NORMAL);
    export_array(f, KEY_MERGES, GGUF_STRING, export_count(e, 1));
    for (uint32_t i = 0; i < export_count(e, 1); i++) {
        if (export_merge(e, i, text, size))
            return e->ctx->status;
        export_u64(f, size[0] + 1 + size[1]);
        fprintf(f, "%.*s %.*s", (int)size[0], text[0], (int)size[1], text[1]);
    }
    if (export_vocab_flags(e) & VOCAB_ADDS_BLANK) {
        export_key(f, KEY_ADD_BLANK, GGUF_BOOL);
        fputc(1, f);
    }
    return ATTN_OK;
}

/* Header, keys, the list of tensors, the data. */
TOOLS_FN attn_status export_gguf(export_job *e)
{
    const attn_config *c = attn_model_config(e->model);
    const char *const said[] = {attn_model_meta(e->model, "name"),
                                attn_model_meta(e->model, "source"),
                                attn_model_meta(e->model, "license")};
    const int said_keys[] = {KEY_NAME, KEY_SOURCE, KEY_LICENSE};
    const uint32_t n_keys = 9u + (said[0] != NULL) + (said[1] != NULL) + (said[2] != NULL) +
                            (e->section ? 4u : 0u) + (c->bos >= 0) + (c->eos >= 0) +
                            (export_vocab_flags(e) & VOCAB_ADDS_BLANK ? 1u : 0u);
    uint32_t eps;
    FILE *f = e->file;
    memcpy(&eps, &c->ln_eps, sizeof eps);
    fputs("GGUF", f);
    export_u32(f, 3);
    export_u64(f, e->n_tensors);
    export_u64(f, n_keys);
    export_text(f, KEY_ARCHITECTURE, "gpt2");
    for (size_t i = 0; i < COUNT_OF(said); i++)
        if (said[i])
            export_text(f, said_keys[i], said[i]);
    export_number(f, KEY_CONTEXT, c->n_ctx);
    export_number(f, KEY_WIDTH, c->d_model);
    export_number(f, KEY_LAYERS, c->n_layer);
    export_number(f, KEY_INNER, c->d_mlp);
    export_number(f, KEY_HEADS, c->n_head);
    export_number(f, KEY_ALIGNMENT, EXPORT_ALIGNMENT);
    export_key(f, KEY_EPSILON, GGUF_F32);
    export_u32(f, eps);
    export_text(f, KEY_TOKENIZER, e->section ? "gpt2" : "no_vocab");
    if (e->section && export_gguf_vocab(e))
        return e->ctx->status;
    if (c->bos >= 0)
        export_number(f, KEY_BOS, (size_t)c->bos);
    if (c->eos >= 0)
        export_number(f, KEY_EOS, (size_t)c->eos);
    for (size_t i = 0; i < e->n_tensors; i++) {
        const exported *t = &e->tensors[i];
        export_string(f, t->name, strlen(t->name));
        export_u32(f, (uint32_t)t->ndim);
        for (int k = t->ndim; k-- > 0;)
            export_u64(f, t->shape[k]);
        export_u32(f, export_types[t->dtype].gguf);
        export_u64(f, t->offset);
    }
    long start = ftell(f); /* below 2 GB, because vocabularies are small */
    export_zeros(e, (uint64_t)(EXPORT_ALIGNMENT - start % EXPORT_ALIGNMENT) % EXPORT_ALIGNMENT);
    return export_data(e);
}

/* Refuses relatives of GPT-2 that llama.cpp's gpt2 does not compute. */
TOOLS_FN attn_status export_gguf_file(export_job *e, const char *path)
{
    const attn_config *c = attn_model_config(e->model);
    if (c->act_fn != ATTN_ACT_GELU_TANH || c->unscaled_attn || c->scale_attn_by_inverse_layer_idx)
        return tool_fail(
            e->ctx, ATTN_E_UNSUPPORTED,
            "GGUF's gpt2 has gelu by tanh and scores over sqrt(d_head), but this model "
            "has another %s; a directory for Hugging Face can hold it",
            c->act_fn != ATTN_ACT_GELU_TANH ? "activation function" : "factor of the scores");
    if (export_vocab_flags(e) & VOCAB_CHARACTERS)
        return tool_fail(e->ctx, ATTN_E_UNSUPPORTED,
                         "GGUF's gpt2 has no vocabulary of characters: --no-tokenizer leaves it "
                         "out, and a directory for Hugging Face can hold it");
    if (c->n_more_eos > 0)
        source_note("several tokens end a text here; llama.cpp is told of the first");
    if (export_unknown(e) >= 0)
        source_note("texts have an unknown token here for bytes that the vocabulary lacks; "
                    "llama.cpp leaves such bytes out");
    return export_list(e, NAMES_GGUF, EXPORT_ALIGNMENT) ? e->ctx->status
                                                        : export_file(e, path, export_gguf);
}

/* >> Both ====================================================================================== */

TOOLS_FN attn_status export_read_section(export_job *e)
{
    e->section = (const unsigned char *)model_tokenizer_section(NULL, e->model);
    if (!e->section)
        return ATTN_OK;
    e->special = (unsigned char *)arena_alloc(e->ctx, &e->memory, export_count(e, 0), 1);
    for (size_t i = 0; e->special && i < export_count(e, 2); i++)
        e->special[get_u32(e->section + 16 + 4 * (size_t)export_count(e, 0) +
                           12 * (size_t)export_count(e, 1) + 4 * i)] = 1;
    return e->ctx->status;
}

TOOLS_FN int export_is_gguf(const char *path)
{
    const size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".gguf") == 0;
}

/* Writes the model to a GGUF file, if the path ends in .gguf, or to a directory. The caller frees
 * e->memory. */
TOOLS_FN attn_status export_model(export_job *e, const char *from, const char *to, int with_vocab)
{
    if (attn_model_config(e->model)->has_b_U)
        return tool_fail(e->ctx, ATTN_E_UNSUPPORTED,
                         "%s: its logits have a bias (unembed.b_U), which no other format of GPT-2 "
                         "can hold; convert the model that it was made of",
                         from);
    if ((e->input = system_open(from, "rb")) == NULL)
        return tool_fail_io(e->ctx, "cannot open", from);
    if (with_vocab)
        export_read_section(e);
    if (!e->ctx->status && export_is_gguf(to))
        export_gguf_file(e, to);
    else if (!e->ctx->status)
        export_directory(e, to);
    fclose(e->input);
    return e->ctx->status;
}

#endif
