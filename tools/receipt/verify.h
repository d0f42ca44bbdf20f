/* Verifies a receipt: computes it again, in one pass over its tokens, and compares. */
#ifndef TOOLS_RECEIPT_VERIFY_H
#define TOOLS_RECEIPT_VERIFY_H

#include "receipt.h"

typedef enum receipt_verdict {
    RECEIPT_HOLDS = 0,
    RECEIPT_DIFFERS = 1, /* receipt_findings says where first */
    RECEIPT_FAILED = 2   /* it could not be checked; ctx->message says why */
} receipt_verdict;

/* The first difference from the receipt, as a sentence. */
typedef struct receipt_findings {
    char text[320];
} receipt_findings;

TOOLS_FN receipt_verdict receipt_differs(receipt_findings *f, const char *format, ...)
    TOOLS_PRINTF(2, 3);
TOOLS_FN receipt_verdict receipt_differs(receipt_findings *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
    return RECEIPT_DIFFERS;
}

/* "464 (" the")" */
TOOLS_FN const char *receipt_token(char *out, size_t room, const attn_model *model, attn_token id)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(model);
    size_t size = 0;
    const char *bytes = tokenizer ? attn_token_bytes(&size, tokenizer, id) : NULL;
    shown name;
    if (bytes)
        snprintf(out, room, "%ld (\"%s\")", (long)id, show(name, bytes, size));
    else
        snprintf(out, room, "%ld", (long)id);
    return out;
}

/* >> Passes ==================================================================================== */

enum { RECEIPT_PIECE = 128 }; /* positions whose logits are in memory at a time */

/* A text that is fed in pieces. */
typedef struct receipt_pass {
    attn_ctx *ctx;
    attn_session *session;
    size_t n_vocab;
    float *logits;          /* [RECEIPT_PIECE, n_vocab] */
    unsigned char *digests; /* [RECEIPT_PIECE, SHA256_SIZE], of the rows of logits */
} receipt_pass;

TOOLS_FN attn_status receipt_pass_begin(attn_ctx *ctx, receipt_pass *p, const attn_model *model,
                                        attn_dtype cache_dtype, size_t n_tokens)
{
    attn_session_desc desc = ATTN_ZERO;
    const size_t rows = n_tokens < RECEIPT_PIECE ? n_tokens : RECEIPT_PIECE;
    memset(p, 0, sizeof *p);
    p->ctx = ctx;
    p->n_vocab = attn_model_config(model)->n_vocab;
    desc.n_ctx = n_tokens;
    desc.cache_dtype = cache_dtype;
    p->logits = (float *)calloc(rows * p->n_vocab + 1, sizeof *p->logits);
    p->digests = (unsigned char *)calloc(rows + 1, SHA256_SIZE);
    if (!p->logits || !p->digests)
        return tool_fail(ctx, ATTN_E_MEMORY, "no memory for logits");
    return attn_session_new(ctx, &p->session, model, &desc);
}

TOOLS_FN void receipt_pass_end(receipt_pass *p)
{
    attn_session_free(p->session);
    free(p->logits);
    free(p->digests);
}

/* Feeds at most RECEIPT_PIECE tokens, and digests the logits of those from `first` on. *n_rows is
 * their number. */
TOOLS_FN attn_status receipt_pass_feed(receipt_pass *p, size_t *n_rows, const attn_token *tokens,
                                       size_t n, size_t first)
{
    size_t rows[RECEIPT_PIECE], i;
    attn_feed_item item = ATTN_ZERO;
    for (*n_rows = 0, i = first; i < n; i++)
        rows[(*n_rows)++] = i;
    if (*n_rows == 0)
        return attn_feed(p->ctx, p->session, tokens, n);
    item.session = p->session;
    item.tokens = tokens;
    item.n_tokens = n;
    item.logits = p->logits;
    item.rows = rows;
    item.n_rows = *n_rows;
    if (attn_feed_batch(p->ctx, &item, 1))
        return p->ctx->status;
    receipt_digest_rows(p->ctx, p->digests, p->logits, *n_rows, p->n_vocab);
    return ATTN_OK;
}

/* >> A text ==================================================================================== */

/* Does one of the stop strings end within the last n_new bytes of a text? */
TOOLS_FN int receipt_has_stop(const receipt *r, const char *text, size_t size, size_t n_new)
{
    size_t end, length;
    for (size_t i = 0; i < r->n_stop; i++)
        for (length = strlen(r->stop[i]), end = size - n_new + 1; end <= size; end++)
            if (end >= length && memcmp(text + end - length, r->stop[i], length) == 0)
                return 1;
    return 0;
}

/* The index of the generated token that completes a stop string, n_ids if there is none, or SIZE_MAX
 * without memory. */
TOOLS_FN size_t receipt_stops_at(const receipt *r, const attn_model *model)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(model);
    size_t i, size = 0, n = 0, room = 1;
    char *text;
    if (r->n_stop == 0 || !tokenizer)
        return r->n_ids;
    for (i = 0; i < r->n_ids; i++)
        if (attn_token_bytes(&n, tokenizer, r->ids[i]))
            room += n;
    if (!(text = (char *)malloc(room)))
        return SIZE_MAX;
    for (i = 0; i < r->n_ids; i++) {
        const char *bytes = attn_token_bytes(&n, tokenizer, r->ids[i]);
        n = bytes ? n : 0;
        if (n > 0)
            memcpy(text + size, bytes, n);
        size += n;
        if (receipt_has_stop(r, text, size, n))
            break;
    }
    free(text);
    return i;
}

/* Compares why the text ended with how many tokens it has. A stop string ends a text before its
 * number of tokens does, and that before the context does. */
TOOLS_FN receipt_verdict receipt_check_count(receipt_findings *f, const attn_config *c,
                                             const receipt *r)
{
    const size_t last = r->n_prompt + r->n_ids - 1, n_ctx = c->n_ctx;
    if (r->n_ids > r->max_tokens || (r->ended == ATTN_STOP_COUNT && r->n_ids != r->max_tokens))
        return receipt_differs(f, "position %zu: %zu tokens were generated, not max_tokens = %zu",
                               last, r->n_ids, r->max_tokens);
    if (r->n_ids == r->max_tokens && r->ended != ATTN_STOP_COUNT && r->ended != ATTN_STOP_STRING)
        return receipt_differs(f,
                               "position %zu: max_tokens = %zu is reached there, so the text ends "
                               "by \"%s\", not by \"%s\"",
                               last, r->max_tokens, attn_stop_reason_name(ATTN_STOP_COUNT),
                               attn_stop_reason_name(r->ended));
    if (r->ended == ATTN_STOP_CONTEXT && r->n_prompt + r->n_ids != n_ctx + 1)
        return receipt_differs(f, "position %zu: the context of %zu tokens is not full there", last,
                               n_ctx);
    return RECEIPT_HOLDS;
}

/* Compares the end of the text with its tokens. */
TOOLS_FN receipt_verdict receipt_check_end(attn_ctx *ctx, receipt_findings *f,
                                           const attn_model *model, const receipt *r)
{
    const attn_config *c = attn_model_config(model);
    const size_t last = r->n_prompt + r->n_ids - 1, stops_at = receipt_stops_at(r, model);
    if (stops_at == SIZE_MAX) {
        tool_fail(ctx, ATTN_E_MEMORY, "no memory to look for stop strings");
        return RECEIPT_FAILED;
    }
    if (r->n_stop > 0 && !attn_model_tokenizer(model))
        return receipt_differs(f, "the receipt has stop strings, but the model has no tokenizer");
    if (r->eos != c->eos)
        return receipt_differs(f, "the end-of-text token is %ld in the receipt, %ld in the model",
                               (long)r->eos, (long)c->eos);
    for (size_t i = 0; i < r->n_ids && !r->ignore_eos; i++)
        if (attn_config_is_eos(c, r->ids[i]))
            return receipt_differs(f,
                                   "position %zu: the end-of-text token is among the generated "
                                   "ones, but a text ends before it",
                                   r->n_prompt + i);
    if (stops_at + (r->ended == ATTN_STOP_STRING) < r->n_ids)
        return receipt_differs(f,
                               "position %zu: a stop string is complete there, but the text "
                               "goes on or ended for another reason",
                               r->n_prompt + stops_at);
    if (r->ended == ATTN_STOP_STRING && (r->n_ids == 0 || stops_at == r->n_ids))
        return receipt_differs(f, "position %zu: the text does not end with a stop string", last);
    if (r->ended == ATTN_STOP_EOS && (r->ignore_eos || c->eos < 0))
        return receipt_differs(f, "position %zu: no end-of-text token ends this text", last);
    return receipt_check_count(f, c, r);
}

/* Adds a position of a text to the chain, and compares the token that the sampler drew, and the
 * link, with the receipt's. */
TOOLS_FN receipt_verdict receipt_check_draw(attn_ctx *ctx, receipt_findings *f, receipt *again,
                                            const receipt *r, const attn_model *model,
                                            attn_token drawn, const unsigned char *digest)
{
    const size_t at = again->n_links;
    const int32_t told = at < r->n_ids ? r->ids[at] : r->eos;
    char a[96], b[96];
    (void)ctx;
    receipt_add(again, digest, (uint32_t)told);
    if (at < r->n_ids ? drawn != told : !attn_config_is_eos(attn_model_config(model), drawn))
        return receipt_differs(f,
                               "position %zu (generated token %zu): the receipt has token %s, "
                               "but the sampler draws %s",
                               r->n_prompt + at, at + 1, receipt_token(a, sizeof a, model, told),
                               receipt_token(b, sizeof b, model, drawn));
    if (memcmp(again->links + at * RECEIPT_LINK, r->links + at * RECEIPT_LINK, RECEIPT_LINK) != 0) {
        sha256_hex(a, r->links + at * RECEIPT_LINK, RECEIPT_LINK);
        sha256_hex(b, again->links + at * RECEIPT_LINK, RECEIPT_LINK);
        return receipt_differs(f,
                               "position %zu (generated token %zu): the same token, but the "
                               "bits of its logits differ: link %s in the receipt, %s here",
                               r->n_prompt + at, at + 1, a, b);
    }
    return RECEIPT_HOLDS;
}

/* Feeds the text and draws each token again. `all` is the prompt followed by the ids. */
TOOLS_FN receipt_verdict receipt_draw_again(attn_ctx *ctx, receipt_findings *f, receipt *again,
                                            const receipt *r, const attn_model *model,
                                            const int32_t *all)
{
    const size_t n_fed = r->n_links > 0 ? r->n_prompt - 1 + r->n_links : 0;
    receipt_verdict verdict = RECEIPT_HOLDS;
    attn_sampler *sampler = NULL;
    receipt_pass pass;
    size_t n, n_rows;
    attn_token drawn = 0;
    if (receipt_pass_begin(ctx, &pass, model, r->cache, n_fed) ||
        attn_sampler_new(ctx, &sampler, pass.n_vocab, &r->sampling))
        verdict = RECEIPT_FAILED;
    for (size_t done = 0; done < n_fed && !verdict; done += n) {
        const size_t first = done < r->n_prompt - 1 ? r->n_prompt - 1 - done : 0;
        n = n_fed - done < RECEIPT_PIECE ? n_fed - done : RECEIPT_PIECE;
        if (receipt_pass_feed(&pass, &n_rows, all + done, n, first)) {
            verdict = RECEIPT_FAILED;
            break;
        }
        for (size_t i = 0; i < n_rows && !verdict; i++) {
            const float *logits = pass.logits + i * pass.n_vocab;
            verdict = attn_sample(ctx, &drawn, sampler, logits, all, done + first + i + 1)
                          ? RECEIPT_FAILED
                          : receipt_check_draw(ctx, f, again, r, model, drawn,
                                               pass.digests + i * SHA256_SIZE);
        }
    }
    attn_sampler_free(sampler);
    receipt_pass_end(&pass);
    return verdict;
}

TOOLS_FN receipt_verdict receipt_verify_text(attn_ctx *ctx, receipt_findings *f, receipt *again,
                                             arena *memory, const attn_model *model,
                                             const receipt *r)
{
    const size_t n_draws = r->n_ids + (r->ended == ATTN_STOP_EOS);
    receipt_verdict verdict = RECEIPT_HOLDS;
    int32_t *all;
    if (r->n_links != n_draws)
        return receipt_differs(f, "position %zu: there are %zu links for %zu draws",
                               r->n_prompt + (r->n_links < n_draws ? r->n_links : n_draws),
                               r->n_links, n_draws);
    if (r->n_prompt + (n_draws > 0 ? n_draws - 1 : 0) > attn_model_config(model)->n_ctx)
        return receipt_differs(f, "position %u: the text is longer than the model's context",
                               (unsigned)attn_model_config(model)->n_ctx);
    all = (int32_t *)arena_alloc(ctx, memory, r->n_prompt + r->n_ids, sizeof *all);
    again->links = (unsigned char *)arena_alloc(ctx, memory, n_draws + 1, RECEIPT_LINK);
    if (!all || !again->links)
        return RECEIPT_FAILED;
    if (r->n_prompt > 0)
        memcpy(all, r->prompt, r->n_prompt * sizeof *all);
    if (r->n_ids > 0)
        memcpy(all + r->n_prompt, r->ids, r->n_ids * sizeof *all);
    verdict = receipt_draw_again(ctx, f, again, r, model, all);
    return verdict ? verdict : receipt_check_end(ctx, f, model, r);
}

/* >> A score =================================================================================== */

/* Computes the losses, the links and the chain of r->ids. */
TOOLS_FN attn_status receipt_score(attn_ctx *ctx, receipt *r, arena *memory,
                                   const attn_model *model)
{
    const size_t n_fed = r->n_ids - 1;
    attn_token_stats stats[RECEIPT_PIECE];
    size_t n, n_rows;
    receipt_pass pass;
    memset(r->chain, 0, sizeof r->chain);
    r->n_links = 0;
    r->n_losses = n_fed;
    r->losses = (float *)arena_alloc(ctx, memory, n_fed, sizeof *r->losses);
    r->links = (unsigned char *)arena_alloc(ctx, memory, n_fed, RECEIPT_LINK);
    if (!r->losses || !r->links)
        return ctx->status;
    ctx->status = ATTN_OK;
    receipt_pass_begin(ctx, &pass, model, r->cache, n_fed);
    for (size_t done = 0; done < n_fed && !ctx->status; done += n) {
        n = n_fed - done < RECEIPT_PIECE ? n_fed - done : RECEIPT_PIECE;
        if (receipt_pass_feed(&pass, &n_rows, r->ids + done, n, 0) ||
            attn_logit_stats(ctx, stats, NULL,
                             attn_borrow(pass.logits, ATTN_F32, attn_shape2(n, pass.n_vocab)),
                             r->ids + done + 1))
            break;
        for (size_t i = 0; i < n; i++) {
            r->losses[done + i] = stats[i].nll;
            receipt_add(r, pass.digests + i * SHA256_SIZE, receipt_float_bits(stats[i].nll));
        }
    }
    receipt_pass_end(&pass);
    return ctx->status;
}

TOOLS_FN receipt_verdict receipt_verify_score(attn_ctx *ctx, receipt_findings *f, receipt *again,
                                              arena *memory, const attn_model *model,
                                              const receipt *r)
{
    const size_t n = r->n_ids - 1;
    if (r->n_links != n)
        return receipt_differs(f, "position %zu: there are %zu links for %zu losses",
                               r->n_links < n ? r->n_links : n, r->n_links, n);
    if (n > attn_model_config(model)->n_ctx)
        return receipt_differs(f, "position %u: the text is longer than the model's context",
                               (unsigned)attn_model_config(model)->n_ctx);
    again->ids = r->ids;
    again->n_ids = r->n_ids;
    again->cache = r->cache;
    if (receipt_score(ctx, again, memory, model))
        return RECEIPT_FAILED;
    for (size_t i = 0; i < n; i++) {
        if (receipt_float_bits(again->losses[i]) != receipt_float_bits(r->losses[i]))
            return receipt_differs(f,
                                   "position %zu: the loss of token %ld is %.9g "
                                   "in the receipt, %.9g here",
                                   i + 1, (long)r->ids[i + 1], (double)r->losses[i],
                                   (double)again->losses[i]);
        if (memcmp(again->links + i * RECEIPT_LINK, r->links + i * RECEIPT_LINK, RECEIPT_LINK) != 0)
            return receipt_differs(
                f, "position %zu: the same loss, but the bits of the logits differ", i + 1);
    }
    return RECEIPT_HOLDS;
}

/* >> Activations =============================================================================== */

/* Feeds r->ids and makes r->activations of the activations with these names and patterns. */
TOOLS_FN attn_status receipt_watch(attn_ctx *ctx, receipt *r, arena *memory,
                                   const attn_model *model, const char *const *names,
                                   size_t n_names)
{
    attn_session_desc desc = ATTN_ZERO;
    attn_record_desc what = ATTN_ZERO;
    attn_session *session = NULL;
    attn_record *record = NULL;
    unsigned char digest[SHA256_SIZE];
    attn_tensor x = ATTN_ZERO, dense = ATTN_ZERO;
    desc.n_ctx = what.n_positions = r->n_ids;
    desc.cache_dtype = r->cache;
    what.names = names;
    what.n_names = n_names;
    ctx->status = ATTN_OK;
    if (!attn_session_new(ctx, &session, model, &desc) &&
        !attn_record_new(ctx, &record, session, &what) &&
        !attn_feed(ctx, session, r->ids, r->n_ids))
        r->n_activations = attn_record_n_activations(record);
    r->activations =
        (receipt_value *)arena_alloc(ctx, memory, r->n_activations + 1, sizeof *r->activations);
    for (size_t i = 0; i < r->n_activations && !ctx->status; i++) {
        const char *name = attn_record_name(record, i);
        receipt_value *v = &r->activations[i];
        if (attn_record_get(ctx, &x, record, name) || attn_copy(ctx, &dense, x))
            break;
        v->name = arena_text(ctx, memory, name, strlen(name));
        v->ndim = (size_t)x.ndim;
        v->shape = (size_t *)arena_alloc(ctx, memory, v->ndim, sizeof *v->shape);
        for (size_t j = 0; v->shape && j < v->ndim; j++)
            v->shape[j] = x.shape[j];
        sha256_floats(digest, (const float *)dense.data, attn_count(dense));
        sha256_hex(v->digest, digest, SHA256_SIZE);
        attn_tensor_free(ctx, &dense);
    }
    attn_record_free(record);
    attn_session_free(session);
    return ctx->status;
}

TOOLS_FN receipt_verdict receipt_compare_value(receipt_findings *f, const receipt_value *told,
                                               const receipt_value *made)
{
    const int same_shape = told->ndim == made->ndim &&
                           memcmp(told->shape, made->shape, made->ndim * sizeof *made->shape) == 0;
    if (strcmp(told->name, made->name) != 0)
        return receipt_differs(f, "the receipt has activation %.80s where %.80s is", told->name,
                               made->name);
    if (!same_shape)
        return receipt_differs(f, "%.80s: another shape", told->name);
    return strcmp(told->digest, made->digest) == 0
               ? RECEIPT_HOLDS
               : receipt_differs(f,
                                 "%.80s: its bits differ: "
                                 "SHA-256 %.16s... in the receipt, %.16s... here",
                                 told->name, told->digest, made->digest);
}

TOOLS_FN receipt_verdict receipt_verify_values(attn_ctx *ctx, receipt_findings *f, receipt *again,
                                               arena *memory, const attn_model *model,
                                               const receipt *r)
{
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
    const char **names = (const char **)arena_alloc(ctx, memory, r->n_activations, sizeof *names);
    receipt_verdict verdict = RECEIPT_HOLDS;
    if (!names)
        return RECEIPT_FAILED;
    for (size_t i = 0; i < r->n_activations; i++)
        names[i] = r->activations[i].name;
    if (r->n_ids > attn_model_config(model)->n_ctx)
        return receipt_differs(f, "position %u: the text is longer than the model's context",
                               (unsigned)attn_model_config(model)->n_ctx);
    again->ids = r->ids;
    again->n_ids = r->n_ids;
    again->cache = r->cache;
    if (receipt_watch(ctx, again, memory, model, names, r->n_activations)) {
        if (ctx->status == ATTN_E_NAME)
            return receipt_differs(f, "%s", ctx->message);
        return RECEIPT_FAILED;
    }
    if (again->n_activations != r->n_activations)
        return receipt_differs(f, "%zu activations have these names, the receipt has %zu",
                               again->n_activations, r->n_activations);
    for (size_t i = 0; i < r->n_activations && !verdict; i++)
        verdict = receipt_compare_value(f, &r->activations[i], &again->activations[i]);
    return verdict;
}

/* >> All kinds ================================================================================= */

/* The index of the first id outside the vocabulary, or n. */
TOOLS_FN size_t receipt_bad_id(const attn_model *model, const attn_token *ids, size_t n)
{
    size_t i;
    for (i = 0; i < n && (uint32_t)ids[i] < attn_model_config(model)->n_vocab; i++)
        continue;
    return i;
}

/* Verifies a receipt. `identity` is the model's. */
TOOLS_FN receipt_verdict receipt_verify(attn_ctx *ctx, receipt_findings *f, const attn_model *model,
                                        const receipt *r, const receipt_identity *identity)
{
    const char *const digest = identity->digest[r->version > 1];
    arena memory = {NULL};
    receipt again;
    size_t bad = receipt_bad_id(model, r->prompt, r->n_prompt);
    memset(&again, 0, sizeof again);
    if (strcmp(r->model, digest) != 0)
        return receipt_differs(f, "another model%s: SHA-256 %.16s... in the receipt, %.16s... here",
                               r->version > 1 ? ", or another tokenizer" : "", r->model, digest);
    if (r->dtype != identity->dtype)
        return receipt_differs(f, "the model's type is %s in the receipt, %s here",
                               receipt_dtypes[r->dtype], receipt_dtypes[identity->dtype]);
    if (bad == r->n_prompt)
        bad += receipt_bad_id(model, r->ids, r->n_ids);
    if (bad < r->n_prompt + r->n_ids)
        return receipt_differs(f, "position %zu: there is no such token in the vocabulary of %u",
                               bad, (unsigned)attn_model_config(model)->n_vocab);
    ctx->status = ATTN_OK;
    if (r->kind == RECEIPT_QUESTION) /* ask.h asks it again */
        return RECEIPT_HOLDS;
    receipt_verdict verdict =
        (r->kind == RECEIPT_TEXT    ? receipt_verify_text
         : r->kind == RECEIPT_SCORE ? receipt_verify_score
                                    : receipt_verify_values)(ctx, f, &again, &memory, model, r);
    if (verdict == RECEIPT_HOLDS && r->kind != RECEIPT_ACTIVATIONS &&
        memcmp(again.chain, r->chain, SHA256_SIZE) != 0)
        verdict = receipt_differs(f, "every link is the same, but the end of the chain is not");
    arena_free(&memory);
    return verdict;
}

/* The verdict of a receipt that was compared. Of one that holds, *f says what its version does not cover, or nothing. */
TOOLS_FN receipt_verdict receipt_judge(receipt_findings *f, const receipt *told,
                                       receipt_verdict verdict, int is_whole)
{
    if (verdict == RECEIPT_HOLDS && told->version == 1)
        snprintf(f->text, sizeof f->text,
                 "version 1 does not cover the tokenizer nor, besides eos, the tokens that end "
                 "a text: with another tokenizer these ids would be another text");
    return verdict == RECEIPT_HOLDS && !is_whole
               ? receipt_differs(f, "all of it holds except its own digest, so somebody changed a "
                                    "setting that has no effect on this text")
               : verdict;
}

#endif
