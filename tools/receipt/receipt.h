/* A receipt records what a model computed, so that another person can compute it again on another
 * machine and compare every bit. This header has the parts: the digest of a model, the links over
 * logits, and writing and reading the text of a receipt. verify.h verifies one.
 *
 * A receipt is one JSON object:
 *
 *   receipt    2 or 3, the version of this format: 3 if the model's file has a name or a checkpoint; 4 of a question
 *   contract   1, the version of the rules that define the numbers (tests/contract/contract.md)
 *   kind       "text", "question", or of earlier programs "score" or "activations"
 *   model      SHA-256 of the model with its tokenizer and its end-of-text tokens, see
 *              receipt_model_digest
 *   in version 3 and 4:
 *     name         what the model's file says it is called, and the SHA-256 of its checkpoint; null if
 *     checkpoint   the file does not say it. They are quoted; only `model` is compared
 *   dtype      the type of the model's matrices
 *   in a question:
 *     command    lens's, or "surprisal", "suite" or "score"
 *     settings   those that differ from their defaults, as text; a setting that has several values is there several times.
 *                "file" is the input, and - standard input
 *     files      the SHA-256 of the file, or of the directory (question.h), that a setting names
 *     left_out   columns that are no part of the digests, because the C library computes them
 *     units      how many the answer has (tools/waist/units.h)
 *     blocks     the digest of each 64 of them
 *     root       the root of the tree
 *   in all others:
 *     cache      the type of keys and values
 *     ids        token ids: of the text whose losses or activations follow, or those generated
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
#include "tools/waist/units.h"
#include "tools/write/model_file.h"
#include "tools/common/sha256.h"
#include "tools/write/new_file.h"

enum {
    RECEIPT_VERSION = 4,
    RECEIPT_N_DIGESTS = 2, /* ways to digest a model: of version 1, and of later ones */
    RECEIPT_CONTRACT = 1,
    RECEIPT_LINK = 8, /* bytes of a link */
    RECEIPT_MAX_STOPS = 16,
    RECEIPT_MAX_SIZE = 1 << 26 /* bytes of a file */
};

typedef enum receipt_kind {
    RECEIPT_TEXT,
    RECEIPT_SCORE,
    RECEIPT_ACTIVATIONS,
    RECEIPT_QUESTION
} receipt_kind;

/* A generated text. */
typedef struct receipt_generated {
    attn_sampler_desc sampling;
    size_t max_tokens;
    int ignore_eos, f16_cache;
    const char *const *stop; /* [n_stop], at most RECEIPT_MAX_STOPS */
    size_t n_stop;
    attn_token *prompt, *ids; /* [n_prompt], [n_ids] */
    size_t n_prompt, n_ids;
    attn_stop_reason ended;
    const unsigned char
        *digests; /* [n_ids, 32]: SHA-256 of the logits of each draw, as f32 bits; one
                                   * more if an end-of-text token ended the text */
} receipt_generated;

/* One activation of a text. */
typedef struct receipt_value {
    const char *name;
    size_t *shape, ndim; /* [ndim] */
    unsigned char digest[SHA256_SIZE];
} receipt_value;

/* A setting of a question by its name, or the SHA-256 of the file that a setting names. */
typedef struct receipt_setting {
    const char *name, *value;
} receipt_setting;

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
    attn_dtype dtype;
    receipt_generated text; /* of scores and activations only ids and f16_cache */
    attn_token eos;
    float *losses; /* of scores */
    size_t n_losses;
    receipt_value *activations;
    size_t n_activations;
    unsigned char *links; /* [n_links, RECEIPT_LINK], of texts and scores */
    size_t n_links;
    unsigned char chain[SHA256_SIZE];
    /* in questions */
    const char *command;
    receipt_setting *settings, *files;
    size_t n_settings, n_files;
    const char **left_out;
    size_t n_left_out, units;
    unsigned char *blocks; /* [n_blocks, SHA256_SIZE] */
    size_t n_blocks;
    unsigned char root[SHA256_SIZE];
} receipt;

static const char *const receipt_kinds[] = {"text", "score", "activations", "question"};
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

TOOLS_FN uint32_t receipt_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Bytes that are digested in pieces of one size, of which the last may be shorter; rows of floats have no shorter one. */
typedef struct receipt_pieces {
    unsigned char *digests; /* [number of pieces, SHA256_SIZE] */
    const unsigned char *bytes;
    size_t size, piece; /* bytes */
    int is_floats;
} receipt_pieces;

/* Digests pieces 2i and 2i + 1; the latter may be missing. */
TOOLS_FN void receipt_digest_pair(size_t i, void *user)
{
    const receipt_pieces *p = (const receipt_pieces *)user;
    const size_t begin = 2 * i * p->piece, rest = p->size - begin;
    const unsigned char *const a = p->bytes + begin, *const b = a + p->piece;
    unsigned char *const to = p->digests + 2 * i * SHA256_SIZE;
    if (p->is_floats && rest > p->piece) {
        sha256_two_rows(to, (const float *)(const void *)a, (const float *)(const void *)b,
                        p->piece / sizeof(float));
    } else if (p->is_floats) {
        sha256_floats(to, (const float *)(const void *)a, rest / sizeof(float));
    } else if (rest >= 2 * p->piece) {
        sha256_of_two(to, a, b, p->piece);
    } else {
        sha256_of(to, a, rest < p->piece ? rest : p->piece);
        if (rest > p->piece)
            sha256_of(to + SHA256_SIZE, b, rest - p->piece);
    }
}

/* The digests of all pieces, on as many threads as the context allows. Returns how many they are. */
TOOLS_FN size_t receipt_digest_pieces(attn_ctx *ctx, receipt_pieces p)
{
    const size_t n = p.size / p.piece + (p.size % p.piece > 0);
    sha256_is_fast(); /* its first call must not be in several threads */
    attn_parallel_for(ctx, (n + 1) / 2, receipt_digest_pair, &p);
    return n;
}

/* >> The digest of a model ===================================================================== */

enum { RECEIPT_BLOCK = 1 << 20, RECEIPT_AT_ONCE = 16 }; /* bytes; blocks in memory */

/* The digest of a tensor in the file: SHA-256 of the SHA-256 of each block of 1 MiB, so that several threads can digest
 * blocks at the same time. */
TOOLS_FN attn_status receipt_tensor_digest(attn_ctx *ctx, unsigned char *digest, FILE *file,
                                           unsigned char *buffer, const model_tensor *info)
{
    const uint64_t most = RECEIPT_AT_ONCE * (uint64_t)RECEIPT_BLOCK;
    unsigned char digests[RECEIPT_AT_ONCE * SHA256_SIZE];
    size_t n = 0;
    sha256 whole;
    sha256_begin(&whole);
    int failed = system_seek(file, info->offset) != 0;
    for (uint64_t done = 0; done < info->size && !failed; done += n) {
        n = (size_t)(info->size - done < most ? info->size - done : most);
        if (lens_is_stopped(ctx))
            return ATTN_STOPPED;
        failed = fread(buffer, 1, n, file) != n;
        const receipt_pieces blocks = {digests, buffer, n, RECEIPT_BLOCK, 0};
        sha256_add(&whole, digests, receipt_digest_pieces(ctx, blocks) * SHA256_SIZE);
    }
    sha256_end(&whole, digest);
    return failed ? tool_fail(ctx, ATTN_E_IO, "cannot read the model's tensor %s again", info->name)
                  : ATTN_OK;
}

TOOLS_FN int receipt_compare_names(const void *a, const void *b)
{
    return strcmp(((const model_tensor *)a)->name, ((const model_tensor *)b)->name);
}

/* Adds to the list that identifies a model. */
TOOLS_FN void receipt_say(json_out *list, const char *format, ...) TOOLS_PRINTF(2, 3);
TOOLS_FN void receipt_say(json_out *list, const char *format, ...)
{
    char text[320];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    out_bytes(list, text, strlen(text));
}

/* A line for each tensor, in the order of their names, with its name, type, shape and the digest of its bytes in the
 * file. All versions share them. *dtype: that of the embedding. */
TOOLS_FN attn_status receipt_say_tensors(attn_ctx *ctx, json_out *list, attn_dtype *dtype,
                                         const attn_model *model, FILE *file)
{
    const size_t n = model_n_tensors(model);
    model_tensor *const infos = (model_tensor *)calloc(n + 1, sizeof *infos);
    unsigned char *buffer = (unsigned char *)malloc((size_t)RECEIPT_AT_ONCE * RECEIPT_BLOCK);
    unsigned char digest[SHA256_SIZE];
    char hex[SHA256_HEX];
    attn_status status =
        infos && buffer ? ATTN_OK : tool_fail(ctx, ATTN_E_MEMORY, "no memory to read a model");
    for (size_t i = 0; i < n && !status; i++)
        infos[i] = model_tensor_at(model, i);
    if (!status)
        qsort(infos, n, sizeof *infos, receipt_compare_names);
    for (size_t i = 0; i < n && !status; i++) {
        const model_tensor *const t = &infos[i];
        if ((status = receipt_tensor_digest(ctx, digest, file, buffer, t)) != ATTN_OK)
            break;
        sha256_hex(hex, digest, SHA256_SIZE);
        receipt_say(list, "%.100s %s %llu %llu %s\n", t->name, receipt_dtypes[t->dtype],
                    TOOLS_LLU(t->shape[0]), TOOLS_LLU(t->shape[1]), hex);
        *dtype = strcmp(t->name, "embed.W_E") == 0 ? t->dtype : *dtype;
    }
    free(buffer);
    free(infos);
    return status;
}

/* The first line: the settings that decide a model's logits. */
TOOLS_FN void receipt_say_config(json_out *list, const attn_config *c, int version)
{
    receipt_say(
        list,
        "attn.h model %d: n_vocab %zu n_ctx %zu d_model %zu n_head %zu n_layer %zu d_mlp %zu "
        "ln_eps %08lx tied %d act_fn %d unscaled_attn %d scale_attn_by_inverse_layer_idx %d\n",
        version, c->n_vocab, c->n_ctx, c->d_model, c->n_head, c->n_layer, c->d_mlp,
        (unsigned long)receipt_float_bits(c->ln_eps), c->tied != 0, (int)c->act_fn,
        c->unscaled_attn != 0, c->scale_attn_by_inverse_layer_idx != 0);
}

/* The last two lines, which version 1 does not have: the tokens that end a text, in ascending order, and the digest of
 * the file's tokenizer section. */
TOOLS_FN void receipt_say_texts(json_out *list, const attn_model *model)
{
    const attn_config *c = attn_model_config(model);
    unsigned char digest[SHA256_SIZE];
    char hex[SHA256_HEX];
    size_t size = 0;
    const void *section = model_tokenizer_section(&size, model);
    receipt_say(list, "eos");
    for (size_t id = 0; id < c->n_vocab; id++)
        if (attn_config_is_eos(c, (int32_t)id))
            receipt_say(list, " %zu", id);
    sha256_of(digest, section, section ? size : 0);
    sha256_hex(hex, digest, SHA256_SIZE);
    receipt_say(list, "\ntokenizer %s\n", section ? hex : "none");
}

/* Identifies a model, independent of the order of the tensors in its file: the digest of a version is the SHA-256 of the
 * list above, in hexadecimal. `path` is the file from which the model was opened. */
TOOLS_FN attn_status receipt_model_digest(attn_ctx *ctx, receipt_identity *identity,
                                          const attn_model *model, const char *path)
{
    unsigned char digest[SHA256_SIZE];
    json_out tensors = {NULL, 0, 0, 0, 0}, list = {NULL, 0, 0, 0, 0};
    FILE *file = open_input(ctx, path);
    memset(identity, 0, sizeof *identity);
    attn_status status =
        file ? receipt_say_tensors(ctx, &tensors, &identity->dtype, model, file) : ctx->status;
    for (int version = 1; !status && version <= RECEIPT_N_DIGESTS; version++) {
        list.size = 0;
        receipt_say_config(&list, attn_model_config(model), version);
        out_bytes(&list, tensors.text, tensors.size);
        if (version > 1)
            receipt_say_texts(&list, model);
        if (list.failed || tensors.failed)
            status = tool_fail(ctx, ATTN_E_MEMORY, "no memory to read a model");
        sha256_of(digest, list.text, list.failed ? 0 : list.size);
        sha256_hex(identity->digest[version - 1], digest, SHA256_SIZE);
    }
    identity->name = attn_model_meta(model, "name");
    identity->checkpoint = attn_model_meta(model, "checkpoint_sha256");
    if (file)
        fclose(file);
    out_free(&tensors);
    out_free(&list);
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

/* >> Fields ==================================================================================== */

/* What the value of a member is. */
typedef enum receipt_form {
    A_COUNT,  /* size_t, up to `most` */
    A_NUMBER, /* float */
    A_SEED,   /* uint64_t, as text, because many JSON parsers round numbers to 53 bits */
    A_WORD,   /* int: the index of one of `most` words */
    A_FLAG,   /* int */
    AN_ID,    /* attn_token */
    AN_EOS,   /* attn_token; null: -1 */
    A_TEXT,   /* const char *, any but an empty one */
    A_LABEL,  /* the same, which may be printed */
    A_NAME,   /* the same; null: NULL */
    A_DIGEST, /* char[SHA256_HEX] */
    BYTES,    /* unsigned char[most], in hexadecimal */
    AN_OBJECT /* of `most` bytes; its members are `fields` */
} receipt_form;

typedef struct receipt_field {
    const char *name; /* NULL: the end of the members */
    receipt_form form;
    unsigned kinds;  /* bits: the kinds that have it */
    size_t at, n_at; /* offsets: of the value; of how many there are, where it is a list, else 0 */
    size_t most;
    const char *const *words;
    const struct receipt_field *fields;
} receipt_field;

/* Bits for `kinds`; NAMED: receipts that say what the model's file is called. */
enum {
    IN_TEXT = 1 << RECEIPT_TEXT,
    IN_SCORE = 1 << RECEIPT_SCORE,
    IN_ACTIVATIONS = 1 << RECEIPT_ACTIVATIONS,
    IN_QUESTION = 1 << RECEIPT_QUESTION,
    IN_IDS = IN_TEXT | IN_SCORE | IN_ACTIVATIONS,
    IN_EACH = IN_IDS | IN_QUESTION,
    NAMED = 1 << 8
};

/* By attn_stop_reason. */
static const char *const receipt_endings[] = {NULL,           "end of text", "token count",
                                              "context full", NULL,          "stop string"};

#define FIELD(kinds, of, name, at, form, most, words, fields)                                      \
    {                                                                                              \
        name, form, kinds, offsetof(of, at), 0, most, words, fields                                \
    }
#define LIST(kinds, of, name, at, n, form, most, fields)                                           \
    {                                                                                              \
        name, form, kinds, offsetof(of, at), offsetof(of, n), most, NULL, fields                   \
    }
#define END                                                                                        \
    {                                                                                              \
        NULL, A_COUNT, 0, 0, 0, 0, NULL, NULL                                                      \
    }

#define SETTING(name, form, most)                                                                  \
    FIELD(IN_EACH, attn_sampler_desc, #name, name, form, most, NULL, NULL)
static const receipt_field receipt_sampling[] = {SETTING(temperature, A_NUMBER, 0),
                                                 SETTING(top_k, A_COUNT, INT32_MAX),
                                                 SETTING(top_p, A_NUMBER, 0),
                                                 SETTING(min_p, A_NUMBER, 0),
                                                 SETTING(repeat_penalty, A_NUMBER, 0),
                                                 SETTING(repeat_last, A_COUNT, SIZE_MAX),
                                                 SETTING(seed, A_SEED, 0),
                                                 END};
#undef SETTING

static const receipt_field receipt_activation[] = {
    FIELD(IN_EACH, receipt_value, "name", name, A_LABEL, 0, NULL, NULL),
    LIST(IN_EACH, receipt_value, "shape", shape, ndim, A_COUNT, SIZE_MAX, NULL),
    FIELD(IN_EACH, receipt_value, "sha256", digest, BYTES, SHA256_SIZE, NULL, NULL), END};

static const receipt_field receipt_setting_fields[] = {
    FIELD(IN_EACH, receipt_setting, "name", name, A_LABEL, 0, NULL, NULL),
    FIELD(IN_EACH, receipt_setting, "value", value, A_TEXT, 0, NULL, NULL), END};

static const receipt_field receipt_file_fields[] = {
    FIELD(IN_EACH, receipt_setting, "name", name, A_LABEL, 0, NULL, NULL),
    FIELD(IN_EACH, receipt_setting, "sha256", value, A_LABEL, 0, NULL, NULL), END};

/* Behind "receipt", "contract" and "kind", and before "sha256", in the order of the file. */
#define MEMBER(kinds, name, form, most, words)                                                     \
    FIELD(kinds, receipt, #name, name, form, most, words, NULL)
#define OF_TEXT(name, form, most, words)                                                           \
    FIELD(IN_TEXT, receipt, #name, text.name, form, most, words, NULL)
#define LIST_OF(kinds, name, form, most, fields)                                                   \
    LIST(kinds, receipt, #name, name, n_##name, form, most, fields)
#define LIST_OF_TEXT(kinds, name, form)                                                            \
    LIST(kinds, receipt, #name, text.name, text.n_##name, form, 0, NULL)
static const receipt_field receipt_fields[] = {
    MEMBER(IN_EACH, model, A_DIGEST, 0, NULL),
    MEMBER(NAMED, name, A_NAME, 0, NULL),
    MEMBER(NAMED, checkpoint, A_NAME, 0, NULL),
    MEMBER(IN_EACH, dtype, A_WORD, 5, receipt_dtypes),
    FIELD(IN_IDS, receipt, "cache", text.f16_cache, A_WORD, 2, receipt_dtypes, NULL),
    FIELD(IN_TEXT, receipt, "sampling", text.sampling, AN_OBJECT, 0, NULL, receipt_sampling),
    OF_TEXT(max_tokens, A_COUNT, SIZE_MAX, NULL),
    OF_TEXT(ignore_eos, A_FLAG, 0, NULL),
    MEMBER(IN_TEXT, eos, AN_EOS, 0, NULL),
    LIST_OF_TEXT(IN_TEXT, stop, A_TEXT),
    LIST_OF_TEXT(IN_TEXT, prompt, AN_ID),
    OF_TEXT(ended, A_WORD, 6, receipt_endings),
    LIST_OF_TEXT(IN_IDS, ids, AN_ID),
    LIST_OF(IN_SCORE, losses, A_NUMBER, 0, NULL),
    LIST_OF(IN_ACTIVATIONS, activations, AN_OBJECT, sizeof(receipt_value), receipt_activation),
    LIST_OF(IN_TEXT | IN_SCORE, links, BYTES, RECEIPT_LINK, NULL),
    MEMBER(IN_TEXT | IN_SCORE, chain, BYTES, SHA256_SIZE, NULL),
    MEMBER(IN_QUESTION, command, A_LABEL, 0, NULL),
    LIST_OF(IN_QUESTION, settings, AN_OBJECT, sizeof(receipt_setting), receipt_setting_fields),
    LIST_OF(IN_QUESTION, files, AN_OBJECT, sizeof(receipt_setting), receipt_file_fields),
    LIST_OF(IN_QUESTION, left_out, A_LABEL, 0, NULL),
    MEMBER(IN_QUESTION, units, A_COUNT, SIZE_MAX, NULL),
    LIST_OF(IN_QUESTION, blocks, BYTES, SHA256_SIZE, NULL),
    MEMBER(IN_QUESTION, root, BYTES, SHA256_SIZE, NULL),
    END};
#undef FIELD
#undef LIST
#undef END
#undef MEMBER
#undef OF_TEXT
#undef LIST_OF
#undef LIST_OF_TEXT

/* The kinds of fields that a receipt has. */
TOOLS_FN unsigned receipt_has(const receipt *r)
{
    return 1u << r->kind | (r->version > 2 ? (unsigned)NAMED : 0);
}

/* >> Writing =================================================================================== */

TOOLS_FN void receipt_out_fields(json_out *o, const receipt_field *f, unsigned has, const void *of);

TOOLS_FN void receipt_out_value(json_out *o, const receipt_field *f, const char *key,
                                const void *at)
{
    char text[SHA256_HEX];
    switch (f->form) {
    case A_COUNT:
        out_count(o, key, *(const size_t *)at);
        break;
    case A_NUMBER:
        out_f32(o, key, *(const float *)at);
        break;
    case A_SEED:
        snprintf(text, sizeof text, "%llu", TOOLS_LLU(*(const uint64_t *)at));
        out_word(o, key, text);
        break;
    case A_WORD:
        out_word(o, key, f->words[*(const int *)at]);
        break;
    case A_FLAG:
        out_flag(o, key, *(const int *)at);
        break;
    case AN_ID:
    case AN_EOS:
        if (*(const attn_token *)at < 0)
            out_null(o, key);
        else
            out_count(o, key, (uint64_t) * (const attn_token *)at);
        break;
    case A_TEXT:
    case A_LABEL:
    case A_NAME:
        if (*(const char *const *)at)
            out_word(o, key, *(const char *const *)at);
        else
            out_null(o, key);
        break;
    case A_DIGEST:
        out_word(o, key, (const char *)at);
        break;
    case BYTES:
        sha256_hex(text, (const unsigned char *)at, f->most);
        out_word(o, key, text);
        break;
    case AN_OBJECT:
        out_open(o, key, '{');
        receipt_out_fields(o, f->fields, IN_EACH, at);
        out_close(o, '}');
        break;
    }
}

/* Bytes from one element of a list to the next. */
TOOLS_FN size_t receipt_stride(const receipt_field *f)
{
    return f->form == A_NUMBER  ? sizeof(float)
           : f->form == AN_ID   ? sizeof(attn_token)
           : f->form == A_COUNT ? sizeof(size_t)
           : f->most            ? f->most
                                : sizeof(const char *);
}

TOOLS_FN void receipt_out_fields(json_out *o, const receipt_field *f, unsigned has, const void *of)
{
    for (; f->name; f++) {
        const char *const at = (const char *)of + f->at;
        if (!(f->kinds & has))
            continue;
        if (!f->n_at) {
            receipt_out_value(o, f, f->name, at);
            continue;
        }
        const size_t n = *(const size_t *)(const void *)((const char *)of + f->n_at);
        out_open(o, f->name, '[');
        for (size_t i = 0; i < n; i++)
            receipt_out_value(o, f, NULL,
                              *(const char *const *)(const void *)at + i * receipt_stride(f));
        out_close(o, ']');
    }
}

/* Writes the whole receipt. Its last member is the digest of everything before. */
TOOLS_FN void receipt_out(json_out *o, char *seal, const receipt *r)
{
    unsigned char digest[SHA256_SIZE];
    out_open(o, NULL, '{');
    out_count(o, "receipt", r->version);
    out_count(o, "contract", RECEIPT_CONTRACT);
    out_word(o, "kind", receipt_kinds[r->kind]);
    receipt_out_fields(o, receipt_fields, receipt_has(r), r);
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

/* Writes the receipt of a generated text. `model_path` is the file from which the model was opened. */
TOOLS_FN attn_status receipt_write_text(attn_ctx *ctx, const receipt_generated *text,
                                        const attn_model *model, const char *model_path,
                                        const char *path)
{
    const size_t n = text->n_ids + (text->ended == ATTN_STOP_EOS);
    receipt_identity identity;
    receipt r;
    memset(&r, 0, sizeof r);
    r.text = *text;
    r.eos = attn_model_config(model)->eos;
    r.links = (unsigned char *)calloc(n + 1, RECEIPT_LINK);
    attn_status status = r.links ? receipt_model_digest(ctx, &identity, model, model_path)
                                 : tool_fail(ctx, ATTN_E_MEMORY, "no memory for a receipt");
    if (!status) {
        receipt_of_model(&r, &identity);
        for (size_t i = 0; i < n; i++)
            receipt_add(&r, text->digests + i * SHA256_SIZE,
                        (uint32_t)(i < text->n_ids ? text->ids[i] : r.eos));
        status = receipt_write(ctx, path, &r);
    }
    free(r.links);
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
    if (!from->ctx->status)
        tool_fail(from->ctx, ATTN_E_FORMAT,
                  "%s: \"%s\" is missing or not %s, so this is no whole receipt",
                  base_name(from->name), member, expected);
    return 0;
}

/* Reads n_bytes in hexadecimal; 0 if the member is something else. */
TOOLS_FN int receipt_hex(const json_value *v, unsigned char *bytes, size_t n_bytes)
{
    static const char digits[] = "0123456789abcdef";
    const char *high, *low;
    if (v->kind != JSON_STRING || v->size != 2 * n_bytes)
        return 0;
    for (size_t i = 0; i < n_bytes; i++) {
        high = (const char *)memchr(digits, v->text[2 * i], 16);
        low = (const char *)memchr(digits, v->text[2 * i + 1], 16);
        if (!high || !low)
            return 0;
        bytes[i] = (unsigned char)((high - digits) << 4 | (low - digits));
    }
    return 1;
}

TOOLS_FN int receipt_seed(const json_value *v, uint64_t *seed)
{
    const size_t n = v->kind == JSON_STRING ? v->size : 0;
    uint64_t digit;
    size_t i;
    for (*seed = 0, i = 0; i < n; i++) {
        digit = (uint64_t)((unsigned char)v->text[i] - '0');
        if (digit > 9 || *seed > (UINT64_MAX - digit) / 10)
            break;
        *seed = *seed * 10 + digit;
    }
    return n > 0 && i == n;
}

/* Reads a text; with is_label one without control characters, which may be printed. */
TOOLS_FN int receipt_read_text(const receipt_reader *from, const json_value *v, int is_label,
                               const char **text)
{
    size_t i = 0;
    if (v->kind != JSON_STRING || v->size == 0)
        return 0;
    while (i < v->size && v->text[i] &&
           (!is_label || ((unsigned char)v->text[i] >= ' ' && v->text[i] != 0x7F)))
        i++;
    *text = i < v->size ? NULL : arena_text(from->ctx, from->memory, v->text, v->size);
    return *text != NULL;
}

TOOLS_FN int receipt_read_fields(const receipt_reader *from, const json_value *object,
                                 const receipt_field *f, unsigned has, size_t n_more, void *to);

/* 0: the value is not what the field has. */
TOOLS_FN int receipt_read_value(const receipt_reader *from, const receipt_field *f,
                                const json_value *v, void *to)
{
    unsigned char bytes[SHA256_SIZE];
    uint64_t whole = 0;
    double number = 0;
    int *const word = (int *)to;
    switch (f->form) {
    case A_COUNT:
        *(size_t *)to = json_u64(v, &whole) && whole <= f->most ? (size_t)whole : 0;
        return json_u64(v, &whole) && whole <= f->most;
    case A_NUMBER:
        if (!json_double(v, &number) || !(fabs(number) <= (double)FLT_MAX))
            return 0;
        *(float *)to = (float)number;
        return 1;
    case A_SEED:
        return receipt_seed(v, (uint64_t *)to);
    case A_WORD:
        for (*word = 0; (size_t)*word < f->most; ++*word)
            if (f->words[*word] && json_is(v, f->words[*word]))
                return 1;
        return 0;
    case A_FLAG:
        *word = v->kind == JSON_TRUE;
        return v->kind == JSON_TRUE || v->kind == JSON_FALSE;
    case AN_EOS:
    case AN_ID:
        *(attn_token *)to = -1;
        if (v->kind == JSON_NULL)
            return f->form == AN_EOS;
        if (json_u64(v, &whole) && whole <= INT32_MAX)
            *(attn_token *)to = (attn_token)whole;
        return *(attn_token *)to >= 0;
    case A_TEXT:
    case A_LABEL:
        return receipt_read_text(from, v, f->form == A_LABEL, (const char **)to);
    case A_NAME:
        *(const char **)to = NULL;
        return v->kind == JSON_NULL || receipt_read_text(from, v, 1, (const char **)to);
    case A_DIGEST:
        if (!receipt_hex(v, bytes, SHA256_SIZE))
            return 0;
        sha256_hex((char *)to, bytes, SHA256_SIZE);
        return 1;
    case BYTES:
        return receipt_hex(v, (unsigned char *)to, f->most);
    case AN_OBJECT:
        return receipt_read_fields(from, v, f->fields, IN_EACH, 0, to);
    }
    return 0;
}

TOOLS_FN int receipt_read_list(const receipt_reader *from, const receipt_field *f,
                               const json_value *v, char **list, size_t *n)
{
    if (v->kind != JSON_ARRAY)
        return 0;
    *n = v->size;
    *list = (char *)arena_alloc(from->ctx, from->memory, *n + 1, receipt_stride(f));
    v++;
    for (size_t i = 0; *list && i < *n; i++, v += v->span)
        if (!receipt_read_value(from, f, v, *list + i * receipt_stride(f)))
            return 0;
    return *list != NULL;
}

/* Reads the members of an object, which has n_more others. */
TOOLS_FN int receipt_read_fields(const receipt_reader *from, const json_value *object,
                                 const receipt_field *f, unsigned has, size_t n_more, void *to)
{
    static const char *const expected[] = {"a whole number in its range",
                                           "a number",
                                           "a whole number of 64 bits in quotes",
                                           "one of the words that a receipt has there",
                                           "true or false",
                                           "a token id",
                                           "a token id or null",
                                           "a text",
                                           "a text without control characters",
                                           "a text without control characters, or null",
                                           "64 hexadecimal digits",
                                           "hexadecimal digits, as many as a receipt has there",
                                           "an object with the members that it has in a receipt"};
    for (; f->name; f++) {
        const json_value *const v = json_get(object, f->name);
        char *const at = (char *)to + f->at;
        char text[96];
        if (!(f->kinds & has))
            continue;
        n_more++;
        if (v && (f->n_at ? receipt_read_list(from, f, v, (char **)(void *)at,
                                              (size_t *)(void *)((char *)to + f->n_at))
                          : receipt_read_value(from, f, v, at)))
            continue;
        snprintf(text, sizeof text, f->n_at ? "a list, each %s" : "%s", expected[f->form]);
        return receipt_wrong(from, f->name, text);
    }
    return object->size == n_more;
}

/* Lists whose lengths belong together. */
TOOLS_FN int receipt_check_lists(const receipt_reader *from, const receipt *r)
{
    if (r->kind == RECEIPT_TEXT && r->text.n_stop > RECEIPT_MAX_STOPS)
        return receipt_wrong(from, "stop", "a list of at most 16 texts");
    if (r->kind == RECEIPT_TEXT && r->text.n_prompt == 0)
        return receipt_wrong(from, "prompt", "a list of at least one token");
    if (r->kind == RECEIPT_SCORE && (r->text.n_ids < 2 || r->n_losses != r->text.n_ids - 1))
        return receipt_wrong(from, "losses", "a list with a loss for each token but the first");
    if (r->kind == RECEIPT_ACTIVATIONS && (r->text.n_ids == 0 || r->n_activations == 0))
        return receipt_wrong(from, "activations", "a list of at least one, of a text");
    if (r->kind == RECEIPT_QUESTION &&
        r->n_blocks != r->units / UNITS_OF_BLOCK + (r->units % UNITS_OF_BLOCK > 0))
        return receipt_wrong(from, "blocks", "a list with a digest for each 64 units");
    return 1;
}

TOOLS_FN int receipt_read_all(const receipt_reader *from, const json_value *root, receipt *r,
                              char *seal)
{
    static const receipt_field head = {"kind", A_WORD, 0, 0, 0, 4, receipt_kinds, NULL};
    static const receipt_field last = {"sha256", A_DIGEST, 0, 0, 0, 0, NULL, NULL};
    const json_value *const kind = json_get(root, "kind"), *const end = json_get(root, "sha256");
    uint64_t version = 0;
    int which = 0;
    if (root->kind != JSON_OBJECT || !json_u64(json_get(root, "receipt"), &version))
        return receipt_wrong(from, "receipt", "the version of a receipt");
    if (version == 0 || version > RECEIPT_VERSION) {
        tool_fail(from->ctx, ATTN_E_VERSION,
                  "%s is a receipt of version %llu; this program knows versions 1 to %d: update it",
                  base_name(from->name), TOOLS_LLU(version), RECEIPT_VERSION);
        return 0;
    }
    r->version = (size_t)version;
    if (!json_u64(json_get(root, "contract"), &version) || version != RECEIPT_CONTRACT)
        return receipt_wrong(from, "contract", "a version that this program knows");
    if (!kind || !receipt_read_value(from, &head, kind, &which) ||
        (which == RECEIPT_QUESTION) != (r->version == RECEIPT_VERSION))
        return receipt_wrong(from, "kind", "that of a receipt of this version");
    r->kind = (receipt_kind)which;
    if (!receipt_read_fields(from, root, receipt_fields, receipt_has(r), 4, r))
        return receipt_wrong(from, "kind", "that of a receipt with these members");
    if (!end || !receipt_read_value(from, &last, end, seal))
        return receipt_wrong(from, "sha256", "64 hexadecimal digits");
    return receipt_check_lists(from, r);
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
