/* Saves a session to a file: its tokens, keys, values and last logits. A program that loads it continues
 * with the same bits, and does not feed the tokens again.
 *
 *     if (session_save(&ctx, "story.session", session) != ATTN_OK)
 *         fprintf(stderr, "%s\n", ctx.message);
 *
 * The file, in the byte order of the machine that wrote it (a machine of the other order refuses it):
 *
 *     u64 [5]          SESSION_MAGIC; the model, see session_words; the type of the keys and values, 0 for
 *                      f32 or 1 for f16; n, the number of tokens; 1 if there are logits, else 0
 *     i32 [n]          tokens
 *     f32 [n_vocab]    logits of the last token, if there are any
 *     [n, H, d]        for each layer the keys, then the values, H heads of d
 *     u64              checksum: model_checksum of each of these arrays, chained from one to the next */
#ifndef TOOLS_SESSION_FILE_H
#define TOOLS_SESSION_FILE_H

#include "files.h"
#include "tools/lens/model_file.h"
#include "tools/lens/new_file.h"

#define SESSION_MAGIC 0x316E6F6973736573u /* "session1" */

typedef struct session_stream {
    attn_ctx *ctx;
    FILE *file;
    const char *path;
    int saves; /* 0: it loads */
    uint64_t sum;
} session_stream;

/* Writes or reads `size` bytes, and adds them to the checksum. */
TOOLS_FN attn_status session_move(session_stream *s, void *bytes, size_t size)
{
    if (s->saves)
        fwrite(bytes, 1, size, s->file); /* lens_new_file_end reports errors */
    else if (fread(bytes, 1, size, s->file) < size)
        return ferror(s->file)
                   ? tool_fail_io(s->ctx, "cannot read", s->path)
                   : tool_fail(s->ctx, ATTN_E_FORMAT,
                               "%s ends early: it was cut, or is not a session", s->path);
    s->sum = model_checksum(s->sum, bytes, size);
    return ATTN_OK;
}

/* The five numbers at the beginning of a file. The number of the model is a checksum of its
 * configuration, and of the types and checksums of its tensors. */
TOOLS_FN void session_words(uint64_t words[5], const attn_session *session)
{
    const attn_model *model = attn_session_model(session);
    const attn_config *c = attn_model_config(model);
    uint64_t facts[9] = {c->n_ctx, c->d_model, c->n_head, c->n_layer, c->d_mlp};
    size_t i;
    facts[5] = (uint64_t)c->act_fn;
    facts[6] = (uint64_t)c->unscaled_attn;
    facts[7] = (uint64_t)c->scale_attn_by_inverse_layer_idx;
    memcpy(&facts[8], &c->ln_eps, sizeof c->ln_eps);
    words[0] = SESSION_MAGIC;
    words[1] = model_checksum(0, facts, sizeof facts);
    words[2] = (uint64_t)attn_session_cache_dtype(session);
    words[3] = attn_session_length(session);
    words[4] = attn_session_logits(session) != NULL;
    for (i = 0; i < model_n_tensors(model); i++) {
        const model_tensor info = model_tensor_at(model, i);
        facts[0] = info.checksum;
        facts[1] = (uint64_t)info.dtype;
        words[1] = model_checksum(words[1], facts, 2 * sizeof *facts);
    }
}

/* Writes or reads what follows the five numbers: tokens [n], logits [n_vocab] unless NULL, keys and values.
 * `room` has space for the keys of a layer as f32 and as f16. */
TOOLS_FN attn_status session_body(session_stream *s, attn_session *session, size_t n,
                                  int32_t *tokens, float *logits, float *room)
{
    const attn_config *c = attn_model_config(attn_session_model(session));
    const size_t count = n * c->n_head * c->d_head;
    const attn_shape shape = attn_shape3(n, c->n_head, c->d_head);
    const int is_f16 = attn_session_cache_dtype(session) == ATTN_F16;
    attn_tensor floats = attn_borrow(room, ATTN_F32, shape);
    attn_tensor kept = is_f16 ? attn_borrow(room + count, ATTN_F16, shape) : floats;
    attn_status status = session_move(s, tokens, n * sizeof *tokens);
    uint64_t sum, told;
    size_t i;
    if (status == ATTN_OK && logits)
        status = session_move(s, logits, c->n_vocab * sizeof *logits);
    for (i = 0; i < 2 * (size_t)c->n_layer && status == ATTN_OK; i++) {
        const attn_cache_part part = i % 2 ? ATTN_CACHE_VALUES : ATTN_CACHE_KEYS;
        if (s->saves)
            status = attn_session_get_cache(s->ctx, &floats, session, part, i / 2, 0);
        if (s->saves && status == ATTN_OK && is_f16)
            status = attn_copy(s->ctx, &kept, floats);
        if (status == ATTN_OK)
            status = session_move(s, kept.data, count * (is_f16 ? 2 : 4));
        if (!s->saves && status == ATTN_OK)
            status = attn_session_set_cache(s->ctx, session, part, i / 2, 0, kept);
    }
    sum = told = s->sum;
    if (status == ATTN_OK)
        status = session_move(s, &told, sizeof told);
    if (status == ATTN_OK && (told != sum || (!s->saves && fgetc(s->file) != EOF)))
        status =
            tool_fail(s->ctx, ATTN_E_CHECKSUM, "%s is damaged: %s", s->path,
                      told == sum ? "it has more bytes than a session" : "its checksum is wrong");
    return status;
}

/* Allocates memory for n tokens, the logits, and the room of session_body. */
TOOLS_FN float *session_room(attn_ctx *ctx, const attn_session *session, size_t n)
{
    const attn_config *c = attn_model_config(attn_session_model(session));
    return (float *)attn_alloc(ctx, n + c->n_vocab + n * c->d_model * 3 / 2 + 1, sizeof(float),
                               "a session");
}

/* Saves a session that holds tokens. If that fails, there is no new file: see lens_new_file_begin. */
TOOLS_FN attn_status session_save(attn_ctx *ctx, const char *path, attn_session *session)
{
    const size_t n = attn_session_length(session);
    const float *logits = attn_session_logits(session);
    session_stream s = {ctx, NULL, path, 1, 0};
    lens_new_file *file = NULL;
    uint64_t words[5];
    float *room;
    attn_status status;
    if (n == 0)
        return tool_fail(ctx, ATTN_E_ARGUMENT, "%s: the session holds no tokens", path);
    if ((room = session_room(ctx, session, n)) == NULL)
        return ATTN_E_MEMORY;
    memcpy(room, attn_session_tokens(session), n * sizeof *room);
    if (logits)
        memcpy(room + n, logits,
               attn_model_config(attn_session_model(session))->n_vocab * sizeof *room);
    session_words(words, session);
    status = lens_new_file_begin(ctx, &file, path);
    if (status == ATTN_OK) {
        s.file = (FILE *)lens_new_file_stream(file);
        session_move(&s, words, sizeof words);
        status = session_body(&s, session, n, (int32_t *)(void *)room, logits ? room + n : NULL,
                              room + n + attn_model_config(attn_session_model(session))->n_vocab);
        status = lens_new_file_end(ctx, file, status);
    }
    attn_free(room);
    return status;
}

/* Compares the numbers of a file with those of the session that loads it. */
TOOLS_FN attn_status session_compare(const session_stream *s, const attn_session *session,
                                     const uint64_t found[5], const uint64_t want[5])
{
    static const char *const types[] = {"f32", "f16"};
    if (found[0] != want[0] || found[2] > 1 || found[3] == 0 || found[4] > 1)
        return tool_fail(s->ctx, ATTN_E_FORMAT, "%s is not a session that this program can read",
                         s->path);
    if (found[1] != want[1])
        return tool_fail(s->ctx, ATTN_E_ARGUMENT, "%s was saved with another model", s->path);
    if (found[2] != want[2])
        return tool_fail(s->ctx, ATTN_E_ARGUMENT, "%s has keys and values in %s, and not in %s",
                         s->path, types[found[2]], types[want[2]]);
    if (found[3] > attn_session_capacity(session))
        return tool_fail(s->ctx, ATTN_E_CONTEXT,
                         "%s holds %llu tokens; the session has room for %llu", s->path,
                         TOOLS_LLU(found[3]), TOOLS_LLU(attn_session_capacity(session)));
    return ATTN_OK;
}

/* Loads a session of the same model, configuration and type of keys and values. After a failure the
 * session holds no tokens. */
TOOLS_FN attn_status session_load(attn_ctx *ctx, attn_session *session, const char *path)
{
    session_stream s = {ctx, system_open(path, "rb"), path, 0, 0};
    const size_t n_vocab = attn_model_config(attn_session_model(session))->n_vocab;
    uint64_t found[5], want[5];
    float *room = NULL, *logits = NULL;
    size_t n = 0;
    attn_status status;
    if (!s.file)
        return tool_fail_io(ctx, "cannot open", path);
    session_words(want, session);
    status = attn_session_truncate(ctx, session, 0);
    if (status == ATTN_OK && (status = session_move(&s, found, sizeof found)) == ATTN_OK &&
        (status = session_compare(&s, session, found, want)) == ATTN_OK) {
        n = (size_t)found[3];
        room = session_room(ctx, session, n);
        logits = room && found[4] ? room + n : NULL;
        status =
            room ? session_body(&s, session, n, (int32_t *)(void *)room, logits, room + n + n_vocab)
                 : ATTN_E_MEMORY;
    }
    if (status == ATTN_OK)
        status = attn_session_set_tokens(ctx, session, (int32_t *)(void *)room, n, logits);
    attn_free(room);
    fclose(s.file);
    return status;
}

#endif
