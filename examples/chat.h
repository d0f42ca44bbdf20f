/* A turn of a conversation in one call: it makes room in the session, feeds what a person wrote, and
 * answers without forbidden words and within a limit.
 *
 *     char answer[401];
 *     chat talk = ATTN_ZERO;
 *     talk.session = session;
 *     talk.answer = answer;
 *     talk.max_bytes = 400;
 *     chat_turn(&ctx, NULL, &talk, "Hello! ");
 *
 * The session keeps the person's text and the answer. It keeps no stop string, and no text over the limit.
 * When it is full, the oldest tokens are forgotten. */
#ifndef CHAT_H
#define CHAT_H

#include "attn.h"
#include <math.h>
#include <string.h>

enum { CHAT_LONGEST = 256 }; /* bytes of a forbidden word */

/* Zero it, and set the session. What pointers point at belongs to the caller. */
typedef struct chat {
    attn_session *session;  /* of a model with a tokenizer */
    attn_generate_desc how; /* of each answer; prompt_tokens and allow_special must be zero */
    size_t n_first; /* the session's first tokens, such as rules, that are never forgotten */
    /* [n_forbidden]: strings that no answer contains, in any case of A to Z, wherever tokens begin and
     * end. An answer does not complete one that the person began, either. */
    const char *const *forbidden;
    size_t n_forbidden;
    /* of an answer, whole characters and whole tokens; 0: no limit. how.text_fn may get the beginning
     * of one token more. */
    size_t max_bytes;
    char *answer;   /* NULL, or [max_bytes + 1]: receives the answer, ended by a zero */
    size_t n_bytes; /* of the latest answer */
    int is_cut;     /* 1: the latest answer ended because more was over max_bytes */
} chat;

static inline int chat_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

/* Does the word end in this token? It may begin in the text before it. */
static inline int chat_completes(const char *word, const char *text, size_t n_text,
                                 const char *token, size_t n_token)
{
    const size_t size = strlen(word);
    size_t i;
    for (size_t end = 1; end <= n_token; end++) {
        for (i = 0; i < size && i < n_text + end; i++) {
            const char *c = i < end ? &token[end - 1 - i] : &text[n_text + end - 1 - i];
            if (chat_lower(*c) != chat_lower(word[size - 1 - i]))
                break;
        }
        if (i == size)
            return 1;
    }
    return 0;
}

/* Forbids each token that would complete a forbidden word. */
static inline int chat_logits(float *logits, const attn_session *session, void *user)
{
    const chat *c = (const chat *)user;
    const attn_tokenizer *tokenizer = attn_model_tokenizer(attn_session_model(session));
    const size_t n_vocab = attn_model_config(attn_session_model(session))->n_vocab;
    char text[CHAT_LONGEST]; /* the latest bytes, at its end */
    size_t n_text = 0, size, n;
    const char *bytes;
    for (size_t i = attn_session_length(session);
         c->n_forbidden && i > 0 && n_text < sizeof text;) {
        bytes = attn_token_bytes(&size, tokenizer, attn_session_tokens(session)[--i]);
        n = size < sizeof text - n_text ? size : sizeof text - n_text;
        n_text += n;
        if (n > 0)
            memcpy(text + sizeof text - n_text, bytes + size - n, n);
    }
    for (size_t i = 0; c->n_forbidden && i < n_vocab; i++) {
        bytes = attn_token_bytes(&size, tokenizer, (int32_t)i);
        for (size_t k = 0; bytes && k < c->n_forbidden; k++)
            if (chat_completes(c->forbidden[k], text + sizeof text - n_text, n_text, bytes, size))
                logits[i] = -INFINITY;
    }
    return c->how.logits_fn ? c->how.logits_fn(logits, session, c->how.logits_user) : 0;
}

/* Takes whole characters, which may be those of several tokens. */
static inline int chat_text(const char *text, size_t size, void *user)
{
    chat *c = (chat *)user;
    c->is_cut = c->max_bytes && size > c->max_bytes - c->n_bytes;
    if (c->is_cut)
        return 1;
    if (c->answer)
        memcpy(c->answer + c->n_bytes, text, size);
    c->n_bytes += size;
    return c->how.text_fn ? c->how.text_fn(text, size, c->how.text_user) : 0;
}

/* Makes room for n more tokens: the first ones and the latest ones stay that the session has room for. */
static inline attn_status chat_make_room(attn_ctx *ctx, const chat *c, size_t n)
{
    const size_t length = attn_session_length(c->session), all = attn_session_capacity(c->session);
    const size_t keep = n + c->n_first < all ? (all - n - c->n_first) / 2 : 0;
    if (length + n <= all)
        return ATTN_OK;
    if (attn_session_truncate(ctx, c->session, c->n_first < length ? c->n_first : length))
        return ctx->status;
    return keep == 0
               ? ATTN_OK
               : attn_feed(ctx, c->session, attn_session_tokens(c->session) + length - keep, keep);
}

/* Shortens the session of an answer that reached its limit. The text handed over may end inside a token, so
 * the answer ends with the last token after `begin` that completes a character within that text. */
static inline void chat_end_whole(chat *c, attn_generation *result, size_t begin)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(attn_session_model(c->session));
    const size_t handed_over = c->n_bytes;
    attn_utf8 utf8 = ATTN_ZERO;
    char text[3 * (16 + 4)];
    size_t size, n = 0;
    result->accepted = begin;
    c->n_bytes = 0;
    for (size_t at = begin; at < attn_session_length(c->session) && n <= handed_over; at++) {
        const char *bytes = attn_token_bytes(&size, tokenizer, attn_session_tokens(c->session)[at]);
        for (; size > 16; bytes += 16, size -= 16)
            n += attn_utf8_push(text, &utf8, bytes, 16);
        if (size > 0)
            n += attn_utf8_push(text, &utf8, bytes, size);
        if (n <= handed_over && utf8.n == 0) {
            result->accepted = at + 1;
            c->n_bytes = n;
        }
    }
}

/* Removes from the session the tokens after `begin` whose text the caller did not get. */
static inline attn_status chat_forget_rest(attn_ctx *ctx, chat *c, attn_generation *result,
                                           size_t begin)
{
    if (c->is_cut)
        chat_end_whole(c, result, begin);
    return result->accepted < attn_session_length(c->session)
               ? attn_session_truncate(ctx, c->session, result->accepted)
               : ATTN_OK;
}

static inline attn_status chat_check(attn_ctx *ctx, const chat *c)
{
    size_t size;
    if (c->answer && !c->max_bytes)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "chat_turn: answer is given, but max_bytes is 0; expected the bytes that "
                         "answer has room for, less one");
    for (size_t i = 0; i < c->n_forbidden; i++)
        if ((size = strlen(c->forbidden[i])) == 0 || size > CHAT_LONGEST)
            return attn_fail(ctx, ATTN_E_ARGUMENT,
                             "chat_turn: forbidden word %d has %lu bytes; expected 1 to %d", (int)i,
                             (unsigned long)size, (int)CHAT_LONGEST);
    return ATTN_OK;
}

/* Feeds `text`, of which a part that is longer than half of the session has room for is the end, and
 * answers. An empty text goes on with the latest answer. result may be NULL; it is attn_generate's, and
 * its reason is ATTN_STOP_CALLBACK if c->is_cut. After a failure the session may have forgotten tokens. */
static inline attn_status chat_turn(attn_ctx *ctx, attn_generation *result, chat *c,
                                    const char *text)
{
    const size_t all = attn_session_capacity(c->session);
    const size_t most = c->n_first < all ? (all - c->n_first) / 2 : 0;
    attn_generation unasked = ATTN_ZERO;
    attn_generate_desc how = c->how;
    const size_t size = strlen(text);
    size_t n_encoded = size + 1; /* the vocabulary may add a blank */
    attn_token *encoded = NULL;
    size_t begin = attn_session_length(c->session), n = 0;
    int32_t last;
    attn_status status = chat_check(ctx, c);
    c->n_bytes = 0;
    c->is_cut = 0;
    result = result ? result : &unasked;
    if (status == ATTN_OK && *text) {
        encoded = (attn_token *)attn_alloc(ctx, n_encoded, sizeof *encoded, "a text's tokens");
        if (!encoded)
            return ATTN_E_MEMORY;
        status = attn_encode(ctx, encoded, &n_encoded,
                             attn_model_tokenizer(attn_session_model(c->session)), text, size);
        n = n_encoded < most ? n_encoded : most;
        how.prompt_tokens = encoded + (n_encoded - n);
    } else if (status == ATTN_OK && begin > 0) {
        n = 1;
        last = attn_session_tokens(c->session)[begin - 1];
        how.prompt_tokens = &last;
        status = attn_session_truncate(ctx, c->session, begin - 1);
    }
    if (status == ATTN_OK)
        status = chat_make_room(ctx, c, n + (how.max_tokens ? how.max_tokens : 100));
    begin = attn_session_length(c->session);
    begin += n + (begin == 0 && how.prepend_bos);
    how.n_prompt_tokens = n;
    how.text_fn = chat_text;
    how.text_user = c;
    how.logits_fn = c->n_forbidden || how.logits_fn ? chat_logits : NULL;
    how.logits_user = c;
    if (status == ATTN_OK)
        status = attn_generate(ctx, result, c->session, NULL, &how);
    if (status == ATTN_OK)
        status = chat_forget_rest(ctx, c, result, begin);
    if (c->answer)
        c->answer[c->n_bytes] = 0;
    attn_free(encoded);
    return status;
}

#endif
