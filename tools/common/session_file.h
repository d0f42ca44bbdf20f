/* Saves a session to a file: its tokens, keys, values and last logits. A program that loads it continues
 * with the same bits, and does not feed the tokens again.
 *
 *     if (lens_session_save(&ctx, "story.session", session) != ATTN_OK)
 *         fprintf(stderr, "%s\n", ctx.message);
 *
 * lens_session_load gives ATTN_E_IO if it cannot open the file, as before the first save. After another failure keep the
 * file: it is damaged, or of another model.
 *
 * The file, in the byte order of the machine that wrote it (a machine of the other order refuses it):
 *
 *     u64 [5]          LENS_SESSION_MAGIC; the model, see lens_session_words; the type of the keys and values, 0 for
 *                      f32 or 1 for f16; n, the number of tokens; 1 if there are logits, else 0
 *     i32 [n]          tokens
 *     f32 [n_vocab]    logits of the last token, if there are any
 *     [n, H, d]        for each layer the keys, then the values, H heads of d
 *     u64              checksum: model_checksum of each of these arrays, chained from one to the next */
#ifndef TOOLS_SESSION_FILE_H
#define TOOLS_SESSION_FILE_H

#include "tools/write/model_file.h"
#include "tools/write/new_file.h"

#define LENS_SESSION_MAGIC 0x316E6F6973736573u /* "session1" */

typedef struct lens_session_stream {
    attn_ctx *ctx;
    FILE *file;
    const char *path;
    uint64_t sum; /* the checksum so far */
} lens_session_stream;

/* Writes `size` bytes, and adds them to the checksum. lens_new_file_end reports errors. */
LENS_FN void lens_session_write(lens_session_stream *s, const void *bytes, size_t size)
{
    fwrite(bytes, 1, size, s->file);
    s->sum = model_checksum(s->sum, bytes, size);
}

/* Reads `size` bytes, and adds them to the checksum. */
LENS_FN attn_status lens_session_read(lens_session_stream *s, void *bytes, size_t size)
{
    if (fread(bytes, 1, size, s->file) < size)
        return ferror(s->file) ? lens_fail_io(s->ctx, s->path, "cannot be read", errno)
                               : attn_fail(s->ctx, ATTN_E_FORMAT,
                                           "%s ends early: it was cut, or is not a session",
                                           lens_shown_path(s->path));
    s->sum = model_checksum(s->sum, bytes, size);
    return ATTN_OK;
}

/* The five numbers at the beginning of a file. The number of the model is a checksum of its
 * configuration, and of the types and checksums of its tensors. */
LENS_FN void lens_session_words(uint64_t words[5], const attn_session *session)
{
    const attn_model *model = attn_session_model(session);
    const attn_config *c = attn_model_config(model);
    uint64_t facts[9] = {c->n_ctx, c->d_model, c->n_head, c->n_layer, c->d_mlp};
    facts[5] = (uint64_t)c->act_fn;
    facts[6] = (uint64_t)c->unscaled_attn;
    facts[7] = (uint64_t)c->scale_attn_by_inverse_layer_idx;
    memcpy(&facts[8], &c->ln_eps, sizeof c->ln_eps);
    words[0] = LENS_SESSION_MAGIC;
    words[1] = model_checksum(0, facts, sizeof facts);
    words[2] = (uint64_t)attn_session_cache_dtype(session);
    words[3] = attn_session_length(session);
    words[4] = attn_session_logits(session) != NULL;
    for (size_t i = 0; i < model_n_tensors(model); i++) {
        const model_tensor info = model_tensor_at(model, i);
        facts[0] = info.checksum;
        facts[1] = (uint64_t)info.dtype;
        words[1] = model_checksum(words[1], facts, 2 * sizeof *facts);
    }
}

/* Writes the keys and values of a session, layer by layer. */
LENS_FN attn_status lens_session_write_cache(lens_session_stream *s, const attn_session *session)
{
    const size_t n_layer = attn_model_config(attn_session_model(session))->n_layer;
    const int is_f16 = attn_session_cache_dtype(session) == ATTN_F16;
    attn_tensor floats = ATTN_ZERO, halves = ATTN_ZERO;
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < 2 * n_layer && status == ATTN_OK; i++) {
        const attn_cache_part part = i % 2 ? ATTN_CACHE_VALUES : ATTN_CACHE_KEYS;
        status = attn_session_get_cache(s->ctx, &floats, session, part, i / 2, 0);
        if (i == 0 && is_f16 && status == ATTN_OK)
            status = attn_zeros(s->ctx, &halves, ATTN_F16,
                                attn_shape3(floats.shape[0], floats.shape[1], floats.shape[2]));
        if (is_f16 && status == ATTN_OK)
            status = attn_copy(s->ctx, &halves, floats);
        if (status == ATTN_OK)
            lens_session_write(s, is_f16 ? halves.data : floats.data,
                               attn_count(floats) * (is_f16 ? 2 : 4));
    }
    attn_tensor_free(s->ctx, &floats);
    attn_tensor_free(s->ctx, &halves);
    return status;
}

/* Saves a session that holds tokens. If that fails, there is no new file: see lens_new_file_begin. */
LENS_FN attn_status lens_session_save(attn_ctx *ctx, const char *path, attn_session *session)
{
    const size_t n_vocab = attn_model_config(attn_session_model(session))->n_vocab;
    const float *logits = attn_session_logits(session);
    lens_session_stream s = {ctx, NULL, path, 0};
    lens_new_file *file = NULL;
    uint64_t words[5];
    attn_status status;
    if (attn_session_length(session) == 0)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: the session holds no tokens",
                         lens_shown_path(path));
    lens_session_words(words, session);
    if ((status = lens_new_file_begin(ctx, &file, path)) == ATTN_OK) {
        s.file = (FILE *)lens_new_file_stream(file);
        lens_session_write(&s, words, sizeof words);
        lens_session_write(&s, attn_session_tokens(session),
                           attn_session_length(session) * sizeof(attn_token));
        if (logits)
            lens_session_write(&s, logits, n_vocab * sizeof *logits);
        status = lens_session_write_cache(&s, session);
        lens_session_write(&s, &s.sum, sizeof s.sum);
        status = lens_new_file_end(ctx, file, status);
    }
    return status;
}

/* Compares the numbers of a file with those of the session that loads it. */
LENS_FN attn_status lens_session_compare(const lens_session_stream *s, const attn_session *session,
                                         const uint64_t found[5], const uint64_t want[5])
{
    static const char *const types[] = {"f32", "f16"};
    if (found[0] != want[0] || found[2] > 1 || found[3] == 0 || found[4] > 1)
        return attn_fail(s->ctx, ATTN_E_FORMAT, "%s is not a session that this program can read",
                         lens_shown_path(s->path));
    if (found[1] != want[1])
        return attn_fail(s->ctx, ATTN_E_ARGUMENT, "%s was saved with another model",
                         lens_shown_path(s->path));
    if (found[2] != want[2])
        return attn_fail(s->ctx, ATTN_E_ARGUMENT, "%s has keys and values in %s, and not in %s",
                         lens_shown_path(s->path), types[found[2]], types[want[2]]);
    if (found[3] > attn_session_capacity(session))
        return attn_fail(
            s->ctx, ATTN_E_CONTEXT, "%s holds %llu tokens; the session has room for %llu",
            lens_shown_path(s->path), LENS_LLU(found[3]), LENS_LLU(attn_session_capacity(session)));
    return ATTN_OK;
}

/* What a file holds, until all of it is known to be right. */
typedef struct lens_session_parts {
    attn_tensor tokens, logits; /* logits: zeroed if there are none */
    attn_tensor all;            /* [2 * n_layer, n, H, d]: keys and values */
    attn_tensor *cache;         /* [2 * n_layer]: views of `all` */
} lens_session_parts;

/* Allocates the parts for n tokens. */
LENS_FN attn_status lens_session_room(attn_ctx *ctx, lens_session_parts *p,
                                      const attn_session *session, size_t n, int has_logits)
{
    const attn_config *c = attn_model_config(attn_session_model(session));
    const attn_shape shape = attn_shape4(2 * c->n_layer, n, c->n_head, c->d_head);
    if (attn_zeros(ctx, &p->tokens, ATTN_I32, attn_shape1(n)) ||
        (has_logits && attn_zeros(ctx, &p->logits, ATTN_F32, attn_shape1(c->n_vocab))) ||
        attn_zeros(ctx, &p->all, attn_session_cache_dtype(session), shape) ||
        !(p->cache = (attn_tensor *)attn_alloc(ctx, 2 * c->n_layer, sizeof *p->cache, "a list")))
        return ctx->status;
    for (size_t i = 0; i < 2 * c->n_layer; i++)
        p->cache[i] = attn_select(p->all, 0, i);
    return ATTN_OK;
}

LENS_FN void lens_session_free_parts(attn_ctx *ctx, lens_session_parts *p)
{
    attn_tensor_free(ctx, &p->tokens);
    attn_tensor_free(ctx, &p->logits);
    attn_tensor_free(ctx, &p->all);
    attn_free(p->cache);
}

/* Reads the numbers of a dense tensor. */
LENS_FN attn_status lens_session_read_tensor(lens_session_stream *s, attn_tensor t)
{
    return lens_session_read(s, t.data, attn_count(t) * (t.dtype == ATTN_F16 ? 2 : 4));
}

/* Reads what follows the five numbers. */
LENS_FN attn_status lens_session_read_parts(lens_session_stream *s, const lens_session_parts *p)
{
    uint64_t told;
    attn_status status = lens_session_read_tensor(s, p->tokens);
    if (status == ATTN_OK && p->logits.ndim)
        status = lens_session_read_tensor(s, p->logits);
    for (size_t i = 0; i < p->all.shape[0] && status == ATTN_OK; i++)
        status = lens_session_read_tensor(s, p->cache[i]);
    uint64_t sum = told = s->sum;
    if (status == ATTN_OK)
        status = lens_session_read(s, &told, sizeof told);
    if (status == ATTN_OK && (told != sum || fgetc(s->file) != EOF))
        status =
            attn_fail(s->ctx, ATTN_E_CHECKSUM, "%s is damaged: %s", lens_shown_path(s->path),
                      told == sum ? "it has more bytes than a session" : "its checksum is wrong");
    return status;
}

/* Loads a session of the same model, configuration and type of keys and values. A failed call leaves the
 * session as it was. Until it ends, it needs memory for what the file holds. */
LENS_FN attn_status lens_session_load(attn_ctx *ctx, attn_session *session, const char *path)
{
    lens_session_stream s = {ctx, lens_open(path, "rb"), path, 0};
    lens_session_parts p = ATTN_ZERO;
    uint64_t found[5], want[5];
    attn_status status;
    if (!s.file)
        return lens_fail_io(ctx, path, "cannot be opened", errno);
    lens_session_words(want, session);
    if ((status = lens_session_read(&s, found, sizeof found)) == ATTN_OK &&
        (status = lens_session_compare(&s, session, found, want)) == ATTN_OK &&
        (status = lens_session_room(ctx, &p, session, (size_t)found[3], found[4] != 0)) ==
            ATTN_OK &&
        (status = lens_session_read_parts(&s, &p)) == ATTN_OK)
        status = attn_session_restore(ctx, session, (const attn_token *)p.tokens.data,
                                      (size_t)found[3], p.cache, (const float *)p.logits.data);
    lens_session_free_parts(ctx, &p);
    fclose(s.file);
    return status;
}

#endif
