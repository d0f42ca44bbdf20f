/* A receipt records what a model computed, so that another person can compute it again on another
 * machine and compare every bit. This header has the parts: the digest of a model, the links over
 * logits, and writing and reading the text of a receipt. verify.h verifies one.
 *
 * A receipt is one JSON object:
 *
 *   receipt    2 or 3, the version of this format: 3 if the model's file has a name or a checkpoint
 *   contract   1, the version of the rules that define the numbers (tests/contract/contract.md)
 *   kind       "text", "score" or "activations"
 *   model      SHA-256 of the model with its tokenizer and its end-of-text tokens, see
 *              receipt_model_digest
 *   in version 3:
 *     name         what the model's file says it is called, and the SHA-256 of its checkpoint; null if
 *     checkpoint   the file does not say it. They are quoted; only `model` is compared
 *   dtype      the type of the model's matrices
 *   cache      the type of keys and values
 *   ids        token ids: of the text whose losses or activations follow, or those generated
 *   in a text:
 *     sampling, max_tokens, ignore_eos, eos, stop (every setting that decides the text),
 *                prompt (ids), ended (why the text ended). eos is the model's first end-of-text
 *                token; the chain has it in place of whichever end-of-text token was drawn
 *   in a score:
 *     losses     of ids 1, 2, ..., in nats
 *   in activations:
 *     activations  the name, the shape and the SHA-256 of the f32 bits of each, little-endian
 *   links      the first 16 hexadecimal digits of the chain at each position that counts
 *   chain      the last value of chain = SHA-256(chain, SHA-256 of the position's logits as f32
 *              bits, value), which begins with 32 zero bytes; value is the id that was drawn from
 *              these logits, or the bits of the loss, as 4 bytes. All numbers are little-endian
 *   sha256     of everything before it, as this header writes it
 *
 * The same computation with the same file gives the same receipt, byte for byte: it holds no time and
 * nothing about the machine.
 *
 * Version 1 differs in `model` only, which covers neither the tokenizer nor any end-of-text token.
 * Receipts of version 1 still verify. */
#ifndef TOOLS_RECEIPT_H
#define TOOLS_RECEIPT_H

#include "tools/common/json.h"
#include "tools/common/json_out.h"
#include "tools/write/model_file.h"
#include "tools/common/sha256.h"
#include "tools/write/new_file.h"

enum {
    RECEIPT_VERSION = 3,
    RECEIPT_N_DIGESTS = 2, /* ways to digest a model: of version 1, and of later ones */
    RECEIPT_CONTRACT = 1,
    RECEIPT_LINK = 8, /* bytes of a link */
    RECEIPT_MAX_STOPS = 16,
    RECEIPT_MAX_SIZE = 1 << 26 /* bytes of a file */
};

typedef enum receipt_kind { RECEIPT_TEXT, RECEIPT_SCORE, RECEIPT_ACTIVATIONS } receipt_kind;

/* One activation of a text. */
typedef struct receipt_value {
    const char *name;
    int ndim; /* 2 or 3 */
    size_t shape[3];
    char digest[SHA256_HEX];
} receipt_value;

/* A model by its digests: digest[0] is the member "model" of receipts of version 1, digest[1] of later
 * ones. */
typedef struct receipt_identity {
    char digest[RECEIPT_N_DIGESTS][SHA256_HEX];
    attn_dtype dtype;              /* of its matrices */
    const char *name, *checkpoint; /* what its file says, which the model owns; or NULL */
} receipt_identity;

/* The contents of a receipt. The caller owns the memory that it points at. */
typedef struct receipt {
    size_t version; /* 1 to RECEIPT_VERSION */
    receipt_kind kind;
    char model[SHA256_HEX];
    const char *name, *checkpoint; /* of version 3; NULL if the model's file does not say it */
    attn_dtype dtype, cache_dtype;
    /* in receipts of texts */
    attn_sampler_desc sampling;
    size_t max_tokens;
    int ignore_eos;
    attn_token eos;
    const char *stop[RECEIPT_MAX_STOPS];
    size_t n_stop;
    attn_token *prompt;
    size_t n_prompt;
    attn_stop_reason ended;
    /* in all receipts */
    attn_token *ids;
    size_t n_ids;
    float *losses;         /* of scores: [n_ids - 1] */
    receipt_value *values; /* of activations */
    size_t n_values;
    unsigned char *links; /* [n_links, RECEIPT_LINK], of texts and scores */
    size_t n_links;
    unsigned char chain[SHA256_SIZE];
} receipt;

static const char *const receipt_kinds[] = {"text", "score", "activations"};
static const char *const receipt_dtypes[] = {"f32", "f16", "i32", "q8", "q4"};

/* >> The chain ================================================================================= */

/* Adds the next position to the chain: the digest of its logits, and its token or the bits of its
 * loss. r->links must have room for one more. */
TOOLS_FN void receipt_add(receipt *r, const unsigned char *digest, uint32_t value)
{
    unsigned char joined[2 * SHA256_SIZE + 4];
    memcpy(joined, r->chain, SHA256_SIZE);
    memcpy(joined + SHA256_SIZE, digest, SHA256_SIZE);
    put_u32(joined + (size_t)2 * SHA256_SIZE, value);
    sha256_of(r->chain, joined, sizeof joined);
    memcpy(r->links + r->n_links++ * RECEIPT_LINK, r->chain, RECEIPT_LINK);
}

/* Rows of numbers, and where their digests go. */
typedef struct receipt_rows {
    unsigned char *digests; /* [n, SHA256_SIZE] */
    const float *rows;      /* [n, width] */
    size_t n, width;
} receipt_rows;

/* Digests rows 2i and 2i + 1; the latter may be missing. */
TOOLS_FN void receipt_digest_pair(size_t i, void *user)
{
    const receipt_rows *r = (const receipt_rows *)user;
    const float *row = r->rows + 2 * i * r->width;
    unsigned char *to = r->digests + 2 * i * SHA256_SIZE;
    if (2 * i + 1 < r->n)
        sha256_two_rows(to, row, row + r->width, r->width);
    else
        sha256_floats(to, row, r->width);
}

/* digests [n, SHA256_SIZE] of rows [n, width], on as many threads as the context allows. */
TOOLS_FN void receipt_digest_rows(attn_ctx *ctx, unsigned char *digests, const float *rows,
                                  size_t n, size_t width)
{
    receipt_rows r;
    r.digests = digests;
    r.rows = rows;
    r.n = n;
    r.width = width;
    sha256_is_fast(); /* its first call must not be in several threads */
    attn_parallel_for(ctx, (n + 1) / 2, receipt_digest_pair, &r);
}

TOOLS_FN uint32_t receipt_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* >> The digest of a model ===================================================================== */

enum { RECEIPT_BLOCK = 1 << 20, RECEIPT_AT_ONCE = 16 }; /* bytes; blocks in memory */

/* Blocks in memory, and where their digests go. */
typedef struct receipt_blocks {
    unsigned char *digests;
    const unsigned char *bytes;
    size_t n; /* bytes */
} receipt_blocks;

/* Digests blocks 2i and 2i + 1. The last block may be shorter, and block 2i + 1 may be missing. */
TOOLS_FN void receipt_digest_blocks(size_t i, void *user)
{
    const receipt_blocks *b = (const receipt_blocks *)user;
    const size_t block = RECEIPT_BLOCK, begin = 2 * i * block, rest = b->n - begin;
    const unsigned char *bytes = b->bytes + begin;
    unsigned char *to = b->digests + 2 * i * SHA256_SIZE;
    if (rest >= 2 * block) {
        sha256_of_two(to, bytes, bytes + block, block);
        return;
    }
    sha256_of(to, bytes, rest < block ? rest : block);
    if (rest > block)
        sha256_of(to + SHA256_SIZE, bytes + block, rest - block);
}

/* The digest of `size` bytes of a file from `offset` on: SHA-256 of the SHA-256 of each block of
 * 1 MiB, so that several threads can digest blocks at the same time. */
TOOLS_FN attn_status receipt_tensor_digest(attn_ctx *ctx, unsigned char *digest, FILE *file,
                                           unsigned char *buffer, const model_tensor *info)
{
    unsigned char digests[RECEIPT_AT_ONCE * SHA256_SIZE];
    receipt_blocks b;
    uint64_t done = 0, n;
    size_t n_blocks;
    sha256 whole;
    b.digests = digests;
    b.bytes = buffer;
    sha256_begin(&whole);
    if (system_seek(file, info->offset))
        return tool_fail(ctx, ATTN_E_IO, "cannot read the model's tensor %s again", info->name);
    for (; done < info->size; done += n) {
        const uint64_t left = info->size - done, most = RECEIPT_AT_ONCE * (uint64_t)RECEIPT_BLOCK;
        n = left < most ? left : most;
        if (lens_is_stopped(ctx))
            return ATTN_STOPPED;
        if (fread(buffer, 1, (size_t)n, file) != n)
            return tool_fail(ctx, ATTN_E_IO, "cannot read the model's tensor %s again", info->name);
        b.n = (size_t)n;
        n_blocks = (b.n + RECEIPT_BLOCK - 1) / RECEIPT_BLOCK;
        attn_parallel_for(ctx, (n_blocks + 1) / 2, receipt_digest_blocks, &b);
        sha256_add(&whole, digests, n_blocks * SHA256_SIZE);
    }
    sha256_end(&whole, digest);
    return ATTN_OK;
}

TOOLS_FN int receipt_compare_names(const void *a, const void *b)
{
    return strcmp(((const model_tensor *)a)->name, ((const model_tensor *)b)->name);
}

/* Writes the first line of a model's list: the settings that decide its logits. */
TOOLS_FN void receipt_out_config(json_out *list, const attn_config *c, int version)
{
    char line[256];
    const int n = snprintf(
        line, sizeof line,
        "attn.h model %d: n_vocab %zu n_ctx %zu d_model %zu n_head %zu n_layer %zu d_mlp %zu "
        "ln_eps %08lx tied %d act_fn %d unscaled_attn %d scale_attn_by_inverse_layer_idx %d\n",
        version, c->n_vocab, c->n_ctx, c->d_model, c->n_head, c->n_layer, c->d_mlp,
        (unsigned long)receipt_float_bits(c->ln_eps), c->tied != 0, (int)c->act_fn,
        c->unscaled_attn != 0, c->scale_attn_by_inverse_layer_idx != 0);
    out_bytes(list, line, (size_t)n);
}

/* Writes the last two lines of a model's list, which version 1 does not have: the tokens that end a
 * text, in ascending order, and the digest of the file's tokenizer section. */
TOOLS_FN void receipt_out_texts(json_out *list, const attn_model *model)
{
    const attn_config *c = attn_model_config(model);
    unsigned char digest[SHA256_SIZE];
    char line[96], hex[SHA256_HEX];
    size_t size = 0, id;
    const void *section = model_tokenizer_section(&size, model);
    out_bytes(list, "eos", 3);
    for (id = 0; id < c->n_vocab; id++)
        if (attn_config_is_eos(c, (int32_t)id))
            out_bytes(list, line, (size_t)snprintf(line, sizeof line, " %zu", id));
    sha256_of(digest, section, section ? size : 0);
    sha256_hex(hex, digest, SHA256_SIZE);
    out_bytes(list, line,
              (size_t)snprintf(line, sizeof line, "\ntokenizer %s\n", section ? hex : "none"));
}

/* Writes the part of a model's list that all versions share: a line for each tensor, in the order of
 * their names, with its name, type, shape and the digest of its bytes in the file. */
TOOLS_FN attn_status receipt_list(attn_ctx *ctx, json_out *list, model_tensor *infos,
                                  const attn_model *model, FILE *file)
{
    const size_t n = model_n_tensors(model);
    unsigned char *buffer = (unsigned char *)malloc((size_t)RECEIPT_AT_ONCE * RECEIPT_BLOCK);
    unsigned char digest[SHA256_SIZE];
    char line[256], hex[SHA256_HEX];
    size_t i;
    ctx->status = buffer ? ATTN_OK : tool_fail(ctx, ATTN_E_MEMORY, "no memory to read a model");
    for (i = 0; i < n && !ctx->status; i++)
        infos[i] = model_tensor_at(model, i);
    if (!ctx->status)
        qsort(infos, n, sizeof *infos, receipt_compare_names);
    for (i = 0; i < n && !ctx->status; i++)
        if (!receipt_tensor_digest(ctx, digest, file, buffer, &infos[i])) {
            sha256_hex(hex, digest, SHA256_SIZE);
            out_bytes(list, line,
                      (size_t)snprintf(line, sizeof line, "%.100s %s %llu %llu %s\n", infos[i].name,
                                       receipt_dtypes[infos[i].dtype], TOOLS_LLU(infos[i].shape[0]),
                                       TOOLS_LLU(infos[i].shape[1]), hex));
        }
    free(buffer);
    return ctx->status;
}

/* The digest of a version: of its first line, the lines of the tensors and, from version 2 on, the
 * lines after them. Returns 0 without memory. */
TOOLS_FN int receipt_list_digest(char *digest, const json_out *tensors, const attn_model *model,
                                 int version)
{
    unsigned char bytes[SHA256_SIZE];
    json_out list = {NULL, 0, 0, 0, 0};
    int whole;
    receipt_out_config(&list, attn_model_config(model), version);
    out_bytes(&list, tensors->text, tensors->size);
    if (version > 1)
        receipt_out_texts(&list, model);
    whole = !list.failed && !tensors->failed;
    sha256_of(bytes, list.text, whole ? list.size : 0);
    sha256_hex(digest, bytes, SHA256_SIZE);
    out_free(&list);
    return whole;
}

/* Identifies a model, independent of the order of the tensors in its file: each digest is the SHA-256
 * of a list above, in hexadecimal. `path` is the file from which the model was opened. */
TOOLS_FN attn_status receipt_model_digest(attn_ctx *ctx, receipt_identity *identity,
                                          const attn_model *model, const char *path)
{
    const size_t n = model_n_tensors(model);
    model_tensor *infos = (model_tensor *)calloc(n + 1, sizeof *infos);
    json_out tensors = {NULL, 0, 0, 0, 0};
    int version;
    size_t i;
    FILE *file = infos ? open_input(ctx, path) : NULL;
    attn_status status = file    ? receipt_list(ctx, &tensors, infos, model, file)
                         : infos ? ctx->status
                                 : tool_fail(ctx, ATTN_E_MEMORY, "no memory to read a model");
    for (version = 1; !status && version <= RECEIPT_N_DIGESTS; version++)
        if (!receipt_list_digest(identity->digest[version - 1], &tensors, model, version))
            status = tool_fail(ctx, ATTN_E_MEMORY, "no memory to read a model");
    for (i = 0; i < n && !status; i++)
        /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): receipt_list filled them */
        if (strcmp(infos[i].name, "embed.W_E") == 0)
            identity->dtype = infos[i].dtype;
    identity->name = attn_model_meta(model, "name");
    identity->checkpoint = attn_model_meta(model, "checkpoint_sha256");
    if (file)
        fclose(file);
    free(infos);
    out_free(&tensors);
    return status;
}

/* Says in a receipt to be written that it is of this model. */
TOOLS_FN void receipt_of_model(receipt *r, const receipt_identity *identity)
{
    r->version = identity->name || identity->checkpoint ? 3 : 2;
    r->dtype = identity->dtype;
    r->name = identity->name;
    r->checkpoint = identity->checkpoint;
    memcpy(r->model, identity->digest[1], sizeof r->model);
}

/* >> Writing =================================================================================== */

TOOLS_FN void receipt_out_sampling(json_out *o, const attn_sampler_desc *s)
{
    char seed[24];
    out_open(o, "sampling", '{');
    out_f32(o, "temperature", s->temperature);
    out_count(o, "top_k", s->top_k);
    out_f32(o, "top_p", s->top_p);
    out_f32(o, "min_p", s->min_p);
    out_f32(o, "repeat_penalty", s->repeat_penalty);
    out_count(o, "repeat_last", s->repeat_last);
    snprintf(seed, sizeof seed, "%llu", TOOLS_LLU(s->seed));
    out_word(o, "seed", seed); /* a string, because many JSON parsers round numbers to 53 bits */
    out_close(o, '}');
}

TOOLS_FN void receipt_out_text(json_out *o, const receipt *r)
{
    size_t i;
    receipt_out_sampling(o, &r->sampling);
    out_count(o, "max_tokens", r->max_tokens);
    out_flag(o, "ignore_eos", r->ignore_eos);
    if (r->eos < 0)
        out_null(o, "eos");
    else
        out_count(o, "eos", (uint64_t)r->eos);
    out_open(o, "stop", '[');
    for (i = 0; i < r->n_stop; i++)
        out_word(o, NULL, r->stop[i]);
    out_close(o, ']');
    out_ids(o, "prompt", r->prompt, r->n_prompt);
    out_word(o, "ended", attn_stop_reason_name(r->ended));
}

TOOLS_FN void receipt_out_values(json_out *o, const receipt *r)
{
    size_t i;
    int j;
    out_open(o, "activations", '[');
    for (i = 0; i < r->n_values; i++) {
        out_open(o, NULL, '{');
        out_word(o, "name", r->values[i].name);
        out_open(o, "shape", '[');
        for (j = 0; j < r->values[i].ndim; j++)
            out_count(o, NULL, r->values[i].shape[j]);
        out_close(o, ']');
        out_word(o, "sha256", r->values[i].digest);
        out_close(o, '}');
    }
    out_close(o, ']');
}

TOOLS_FN void receipt_out_chain(json_out *o, const receipt *r)
{
    char hex[SHA256_HEX];
    size_t i;
    out_open(o, "links", '[');
    for (i = 0; i < r->n_links; i++) {
        sha256_hex(hex, r->links + i * RECEIPT_LINK, RECEIPT_LINK);
        out_word(o, NULL, hex);
    }
    out_close(o, ']');
    sha256_hex(hex, r->chain, SHA256_SIZE);
    out_word(o, "chain", hex);
}

/* A text, or null. */
TOOLS_FN void receipt_out_said(json_out *o, const char *member, const char *text)
{
    if (text)
        out_word(o, member, text);
    else
        out_null(o, member);
}

/* Writes the whole receipt. Its last member is the digest of everything before. */
TOOLS_FN void receipt_out(json_out *o, char *seal, const receipt *r)
{
    unsigned char digest[SHA256_SIZE];
    size_t i;
    out_open(o, NULL, '{');
    out_count(o, "receipt", r->version);
    out_count(o, "contract", RECEIPT_CONTRACT);
    out_word(o, "kind", receipt_kinds[r->kind]);
    out_word(o, "model", r->model);
    if (r->version > 2) {
        receipt_out_said(o, "name", r->name);
        receipt_out_said(o, "checkpoint", r->checkpoint);
    }
    out_word(o, "dtype", receipt_dtypes[r->dtype]);
    out_word(o, "cache", receipt_dtypes[r->cache_dtype]);
    if (r->kind == RECEIPT_TEXT)
        receipt_out_text(o, r);
    out_ids(o, "ids", r->ids, r->n_ids);
    if (r->kind == RECEIPT_SCORE) {
        out_open(o, "losses", '[');
        for (i = 0; i + 1 < r->n_ids; i++)
            out_f32(o, NULL, r->losses[i]);
        out_close(o, ']');
    }
    if (r->kind == RECEIPT_ACTIVATIONS)
        receipt_out_values(o, r);
    else
        receipt_out_chain(o, r);
    sha256_of(digest, o->text, o->failed ? 0 : o->size);
    sha256_hex(seal, digest, SHA256_SIZE);
    out_word(o, "sha256", seal);
    out_close(o, '}');
}

/* Writes a receipt to a file. If that fails, there is no new file. */
TOOLS_FN attn_status receipt_write(attn_ctx *ctx, const char *path, const receipt *r)
{
    char seal[SHA256_HEX];
    json_out o = {NULL, 0, 0, 0, 0};
    lens_new_file *file = NULL;
    attn_status status = lens_new_file_begin(ctx, &file, path);
    if (status)
        return status;
    receipt_out(&o, seal, r);
    if (!out_line(&o, (FILE *)lens_new_file_stream(file)))
        status = tool_fail(ctx, ATTN_E_MEMORY, "no memory for a receipt");
    out_free(&o);
    return lens_new_file_end(ctx, file, status);
}

/* Writes the receipt of a generated text. The caller has set its settings, prompt, ids and ended. digests
 * [n, SHA256_SIZE] are of the logits of each draw: one for each id and, if an end-of-text token ended the
 * text, one more. `model_path` is the file from which the model was opened. */
TOOLS_FN attn_status receipt_write_text(attn_ctx *ctx, receipt *r, const attn_model *model,
                                        const char *model_path, const unsigned char *digests,
                                        const char *path)
{
    const size_t n = r->n_ids + (r->ended == ATTN_STOP_EOS);
    receipt_identity identity;
    attn_status status;
    size_t i;
    r->kind = RECEIPT_TEXT;
    r->eos = attn_model_config(model)->eos;
    r->links = (unsigned char *)calloc(n + 1, RECEIPT_LINK);
    status = r->links ? receipt_model_digest(ctx, &identity, model, model_path)
                      : tool_fail(ctx, ATTN_E_MEMORY, "no memory for a receipt");
    if (!status) {
        receipt_of_model(r, &identity);
        for (i = 0; i < n; i++)
            receipt_add(r, digests + i * SHA256_SIZE,
                        (uint32_t)(i < r->n_ids ? r->ids[i] : r->eos));
        status = receipt_write(ctx, path, r);
    }
    free(r->links);
    r->links = NULL;
    return status;
}

/* >> Reading =================================================================================== */

/* The text of a receipt, with a zero after it. */
typedef struct receipt_text {
    char *bytes;
    size_t size;
} receipt_text;

/* The state of reading a receipt. */
typedef struct receipt_reader {
    attn_ctx *ctx;
    arena *memory;
    const char *name; /* of the file */
} receipt_reader;

TOOLS_FN int receipt_wrong(const receipt_reader *from, const char *member, const char *expected)
{
    tool_fail(from->ctx, ATTN_E_FORMAT,
              "%s: \"%s\" is missing or not %s, so this is no whole receipt", base_name(from->name),
              member, expected);
    return 0;
}

TOOLS_FN int receipt_count(const receipt_reader *from, const json_value *object, const char *member,
                           uint64_t most, size_t *value)
{
    uint64_t number = 0;
    if (!json_u64(json_get(object, member), &number) || number > most || number > SIZE_MAX)
        return receipt_wrong(from, member, "a whole number in its range");
    *value = (size_t)number;
    return 1;
}

TOOLS_FN int receipt_number(const receipt_reader *from, const json_value *object,
                            const char *member, float *value)
{
    const json_value *v = json_get(object, member);
    double number = 0;
    if (!v || !json_double(v, &number) || !(fabs(number) <= (double)FLT_MAX))
        return receipt_wrong(from, member, "a number");
    *value = (float)number;
    return 1;
}

/* The index of a member's value among n words. */
TOOLS_FN int receipt_word(const receipt_reader *from, const json_value *object, const char *member,
                          const char *const *words, size_t n, int *which)
{
    for (*which = 0; (size_t)*which < n; ++*which)
        if (json_is(json_get(object, member), words[*which]))
            return 1;
    return receipt_wrong(from, member, "one of the words that a receipt has there");
}

/* Reads n_bytes in hexadecimal; 0 if the member is something else. */
TOOLS_FN int receipt_hex(const json_value *v, unsigned char *bytes, size_t n_bytes)
{
    static const char digits[] = "0123456789abcdef";
    const char *high, *low;
    size_t i;
    if (!v || v->kind != JSON_STRING || v->size != 2 * n_bytes)
        return 0;
    for (i = 0; i < n_bytes; i++) {
        high = (const char *)memchr(digits, v->text[2 * i], 16);
        low = (const char *)memchr(digits, v->text[2 * i + 1], 16);
        if (!high || !low)
            return 0;
        bytes[i] = (unsigned char)((high - digits) << 4 | (low - digits));
    }
    return 1;
}

TOOLS_FN int receipt_digest(const receipt_reader *from, const json_value *object,
                            const char *member, char *digest)
{
    unsigned char bytes[SHA256_SIZE];
    if (!receipt_hex(json_get(object, member), bytes, SHA256_SIZE))
        return receipt_wrong(from, member, "64 hexadecimal digits");
    sha256_hex(digest, bytes, SHA256_SIZE);
    return 1;
}

/* Allocates room for the elements of a list. Returns NULL after a message. */
TOOLS_FN void *receipt_room(const receipt_reader *from, const json_value *object,
                            const char *member, size_t size, size_t *n)
{
    const json_value *list = json_get(object, member);
    if (!list || list->kind != JSON_ARRAY) {
        receipt_wrong(from, member, "a list");
        return NULL;
    }
    *n = list->size;
    return arena_alloc(from->ctx, from->memory, *n + 1, size);
}

TOOLS_FN int receipt_ids(const receipt_reader *from, const json_value *object, const char *member,
                         attn_token **ids, size_t *n)
{
    const json_value *v = json_get(object, member);
    uint64_t id = 0;
    size_t i;
    if (!(*ids = (int32_t *)receipt_room(from, object, member, sizeof **ids, n)))
        return 0;
    for (i = 0, v++; i < *n; i++, v += v->span) {
        if (!json_u64(v, &id) || id > INT32_MAX)
            return receipt_wrong(from, member, "a list of token ids");
        (*ids)[i] = (int32_t)id;
    }
    return 1;
}

TOOLS_FN int receipt_seed(const receipt_reader *from, const json_value *object, uint64_t *seed)
{
    const json_value *v = json_get(object, "seed");
    const size_t n = v && v->kind == JSON_STRING ? v->size : 0;
    uint64_t digit;
    size_t i;
    for (*seed = 0, i = 0; i < n; i++) {
        digit = (uint64_t)((unsigned char)v->text[i] - '0');
        if (digit > 9 || *seed > (UINT64_MAX - digit) / 10)
            break;
        *seed = *seed * 10 + digit;
    }
    return (n > 0 && i == n) || receipt_wrong(from, "seed", "a whole number of 64 bits in quotes");
}

TOOLS_FN int receipt_read_sampling(const receipt_reader *from, const json_value *object,
                                   attn_sampler_desc *s)
{
    size_t top_k = 0;
    if (!object || object->size != 7)
        return receipt_wrong(from, "sampling", "an object of seven settings");
    if (!receipt_number(from, object, "temperature", &s->temperature) ||
        !receipt_count(from, object, "top_k", INT32_MAX, &top_k) ||
        !receipt_number(from, object, "top_p", &s->top_p) ||
        !receipt_number(from, object, "min_p", &s->min_p) ||
        !receipt_number(from, object, "repeat_penalty", &s->repeat_penalty) ||
        !receipt_count(from, object, "repeat_last", SIZE_MAX, &s->repeat_last) ||
        !receipt_seed(from, object, &s->seed))
        return 0;
    s->top_k = top_k;
    return 1;
}

TOOLS_FN int receipt_read_stops(const receipt_reader *from, const json_value *object, receipt *r)
{
    const json_value *v = json_get(object, "stop");
    size_t i;
    if (!v || v->kind != JSON_ARRAY || v->size > RECEIPT_MAX_STOPS)
        return receipt_wrong(from, "stop", "a list of at most 16 texts");
    r->n_stop = v->size;
    for (i = 0, v++; i < r->n_stop; i++, v += v->span) {
        if (v->kind != JSON_STRING || v->size == 0 || memchr(v->text, 0, v->size))
            return receipt_wrong(from, "stop", "a list of texts");
        if (!(r->stop[i] = arena_text(from->ctx, from->memory, v->text, v->size)))
            return 0;
    }
    return 1;
}

TOOLS_FN int receipt_read_text(const receipt_reader *from, const json_value *root, receipt *r)
{
    static const char *const reasons[] = {"end of text", "token count", "context full",
                                          "stop string"};
    static const attn_stop_reason values[] = {ATTN_STOP_EOS, ATTN_STOP_COUNT, ATTN_STOP_CONTEXT,
                                              ATTN_STOP_STRING};
    const json_value *ignore = json_get(root, "ignore_eos"), *eos = json_get(root, "eos");
    size_t id = 0;
    int reason;
    if (!receipt_read_sampling(from, json_get(root, "sampling"), &r->sampling) ||
        !receipt_count(from, root, "max_tokens", SIZE_MAX, &r->max_tokens) ||
        !receipt_read_stops(from, root, r) ||
        !receipt_ids(from, root, "prompt", &r->prompt, &r->n_prompt) ||
        !receipt_word(from, root, "ended", reasons, 4, &reason))
        return 0;
    r->ended = values[reason];
    if (!ignore || (ignore->kind != JSON_TRUE && ignore->kind != JSON_FALSE))
        return receipt_wrong(from, "ignore_eos", "true or false");
    r->ignore_eos = ignore->kind == JSON_TRUE;
    r->eos = -1;
    if (!eos || (eos->kind != JSON_NULL && !receipt_count(from, root, "eos", INT32_MAX, &id)))
        return receipt_wrong(from, "eos", "a token id or null");
    if (eos->kind != JSON_NULL)
        r->eos = (int32_t)id;
    return r->n_prompt > 0 || receipt_wrong(from, "prompt", "a list of at least one token");
}

TOOLS_FN int receipt_read_losses(const receipt_reader *from, const json_value *root, receipt *r)
{
    const json_value *v = json_get(root, "losses");
    double loss = 0;
    size_t i, n;
    if (!(r->losses = (float *)receipt_room(from, root, "losses", sizeof *r->losses, &n)))
        return 0;
    if (r->n_ids < 2 || n != r->n_ids - 1)
        return receipt_wrong(from, "losses", "a list with a loss for each token but the first");
    for (i = 0, v++; i < n; i++, v += v->span) {
        if (!json_double(v, &loss) || !(fabs(loss) <= (double)FLT_MAX))
            return receipt_wrong(from, "losses", "a list of numbers");
        r->losses[i] = (float)loss;
    }
    return 1;
}

TOOLS_FN int receipt_read_value(const receipt_reader *from, const json_value *v,
                                receipt_value *value)
{
    const json_value *name = json_get(v, "name"), *shape = json_get(v, "shape");
    uint64_t size = 0;
    size_t i;
    if (!name || name->kind != JSON_STRING || v->size != 3)
        return receipt_wrong(from, "activations", "a list of names, shapes and digests");
    for (i = 0; i < name->size; i++) /* it is printed, so no control characters */
        if (!name->text[i] ||
            !strchr("._0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
                    name->text[i]))
            return receipt_wrong(from, "name", "the name of an activation");
    if (!shape || shape->kind != JSON_ARRAY || shape->size < 2 || shape->size > 3)
        return receipt_wrong(from, "shape", "two or three numbers");
    value->ndim = (int)shape->size;
    for (i = 0; i < shape->size; i++) {
        if (!json_u64(shape + 1 + i, &size) || size > SIZE_MAX)
            return receipt_wrong(from, "shape", "two or three numbers");
        value->shape[i] = (size_t)size;
    }
    value->name = arena_text(from->ctx, from->memory, name->text, name->size);
    return value->name && receipt_digest(from, v, "sha256", value->digest);
}

TOOLS_FN int receipt_read_values(const receipt_reader *from, const json_value *root, receipt *r)
{
    const json_value *v = json_get(root, "activations");
    size_t i;
    r->values =
        (receipt_value *)receipt_room(from, root, "activations", sizeof *r->values, &r->n_values);
    if (!r->values)
        return 0;
    for (i = 0, v++; i < r->n_values; i++, v += v->span)
        if (!receipt_read_value(from, v, &r->values[i]))
            return 0;
    return (r->n_values > 0 && r->n_ids > 0) ||
           receipt_wrong(from, "activations", "a list of at least one, of a text");
}

TOOLS_FN int receipt_read_chain(const receipt_reader *from, const json_value *root, receipt *r)
{
    const json_value *v = json_get(root, "links");
    size_t i;
    r->links = (unsigned char *)receipt_room(from, root, "links", RECEIPT_LINK, &r->n_links);
    if (!r->links || !v)
        return 0;
    for (i = 0, v++; i < r->n_links; i++, v += v->span)
        if (!receipt_hex(v, r->links + i * RECEIPT_LINK, RECEIPT_LINK))
            return receipt_wrong(from, "links", "a list of 16 hexadecimal digits each");
    return receipt_hex(json_get(root, "chain"), r->chain, SHA256_SIZE) ||
           receipt_wrong(from, "chain", "64 hexadecimal digits");
}

/* Reads a text, which may be printed, or null. */
TOOLS_FN int receipt_said(const receipt_reader *from, const json_value *root, const char *member,
                          const char **text)
{
    const json_value *v = json_get(root, member);
    size_t i = 0;
    *text = NULL;
    if (v && v->kind == JSON_NULL)
        return 1;
    while (v && v->kind == JSON_STRING && i < v->size && (unsigned char)v->text[i] >= ' ' &&
           v->text[i] != 0x7F)
        i++;
    if (!v || v->kind != JSON_STRING || v->size == 0 || i < v->size)
        return receipt_wrong(from, member, "a text without control characters, or null");
    *text = arena_text(from->ctx, from->memory, v->text, v->size);
    return *text != NULL;
}

TOOLS_FN int receipt_read_all(const receipt_reader *from, const json_value *root, receipt *r,
                              char *seal)
{
    static const size_t n_members[] = {17, 11, 9};
    size_t version = 0;
    int which = 0;
    if (root->kind != JSON_OBJECT || !json_get(root, "receipt"))
        return receipt_wrong(from, "receipt", "the version of a receipt");
    if (!receipt_count(from, root, "receipt", SIZE_MAX, &version))
        return 0;
    if (version == 0 || version > RECEIPT_VERSION) {
        tool_fail(from->ctx, ATTN_E_VERSION,
                  "%s is a receipt of version %zu; this program knows versions 1 to %d: update it",
                  base_name(from->name), version, RECEIPT_VERSION);
        return 0;
    }
    r->version = version;
    if (!receipt_count(from, root, "contract", RECEIPT_CONTRACT, &version) || version == 0)
        return receipt_wrong(from, "contract", "a version that this program knows");
    if (!receipt_word(from, root, "kind", receipt_kinds, 3, &which))
        return 0;
    r->kind = (receipt_kind)which;
    if (root->size != n_members[r->kind] + (r->version > 2 ? 2 : 0))
        return receipt_wrong(from, "kind", "that of a receipt with these members");
    if (r->version > 2 && (!receipt_said(from, root, "name", &r->name) ||
                           !receipt_said(from, root, "checkpoint", &r->checkpoint)))
        return 0;
    if (!receipt_digest(from, root, "model", r->model) ||
        !receipt_word(from, root, "dtype", receipt_dtypes, 5, &which))
        return 0;
    r->dtype = (attn_dtype)which;
    if (!receipt_word(from, root, "cache", receipt_dtypes, 2, &which))
        return 0;
    r->cache_dtype = (attn_dtype)which;
    if (!receipt_ids(from, root, "ids", &r->ids, &r->n_ids) ||
        (r->kind == RECEIPT_TEXT && !receipt_read_text(from, root, r)) ||
        (r->kind == RECEIPT_SCORE && !receipt_read_losses(from, root, r)))
        return 0;
    return (r->kind == RECEIPT_ACTIVATIONS ? receipt_read_values(from, root, r)
                                           : receipt_read_chain(from, root, r)) &&
           receipt_digest(from, root, "sha256", seal);
}

/* Reads a receipt from its text, which may be anything; it is changed, and must live as long as *r.
 * *is_whole is 0 if the receipt does not match its own digest: somebody changed it. `name` is for
 * messages. */
TOOLS_FN attn_status receipt_parse(attn_ctx *ctx, receipt *r, int *is_whole, arena *memory,
                                   const char *name, receipt_text text)
{
    const receipt_reader from = {ctx, memory, name};
    char told[SHA256_HEX], made[SHA256_HEX];
    json_out o = {NULL, 0, 0, 0, 0};
    json_value *root = NULL;
    const size_t mark = order_mark_size(text.bytes, text.size);
    memset(r, 0, sizeof *r);
    ctx->status = ATTN_OK;
    if (json_parse(ctx, name, text.bytes + mark, text.size - mark, &root) == ATTN_OK && root &&
        receipt_read_all(&from, root, r, told)) {
        receipt_out(&o, made, r);
        if (o.failed)
            tool_fail(ctx, ATTN_E_MEMORY, "no memory for a receipt");
        *is_whole = strcmp(told, made) == 0;
    }
    out_free(&o);
    free(root);
    return ctx->status;
}

TOOLS_FN attn_status receipt_read(attn_ctx *ctx, receipt *r, int *is_whole, arena *memory,
                                  const char *path)
{
    receipt_text text = {NULL, 0};
    memset(r, 0, sizeof *r);
    if (read_file(ctx, memory, path, RECEIPT_MAX_SIZE, &text.bytes, &text.size))
        return ctx->status;
    return receipt_parse(ctx, r, is_whole, memory, path, text);
}

#endif
