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

/* What verifies a receipt. */
typedef struct receipt_check {
    attn_ctx *ctx;
    receipt_findings *found;
    arena memory;
    const attn_model *model;
    const receipt
        *told;     /* of a score as if its first token were the prompt, and the others generated */
    receipt again; /* the links and the chain, computed again */
} receipt_check;

/* >> A text ==================================================================================== */

/* Does one of the stop strings end within the last n_new bytes of a text? */
TOOLS_FN int receipt_has_stop(const receipt_generated *r, const json_out *text, size_t n_new)
{
    for (size_t i = 0; i < r->n_stop; i++) {
        const size_t length = strlen(r->stop[i]);
        for (size_t end = text->size - n_new + 1; end <= text->size; end++)
            if (end >= length && memcmp(text->text + end - length, r->stop[i], length) == 0)
                return 1;
    }
    return 0;
}

/* The index of the generated token that completes a stop string, n_ids if there is none. */
TOOLS_FN size_t receipt_stops_at(const receipt_check *c)
{
    const attn_tokenizer *const tokenizer = attn_model_tokenizer(c->model);
    const receipt_generated *const r = &c->told->text;
    json_out text = {NULL, 0, 0, 0, 0};
    size_t i = r->n_stop && tokenizer ? 0 : r->n_ids, n = 0;
    for (; i < r->n_ids; i++) {
        const char *const bytes = attn_token_bytes(&n, tokenizer, r->ids[i]);
        out_bytes(&text, bytes, bytes ? n : 0);
        if (!text.failed && bytes && receipt_has_stop(r, &text, n))
            break;
    }
    if (text.failed)
        tool_fail(c->ctx, ATTN_E_MEMORY, "no memory to look for stop strings");
    out_free(&text);
    return i;
}

/* Compares why the text ended with how many tokens it has. A stop string ends a text before its
 * number of tokens does, and that before the context does. */
TOOLS_FN receipt_verdict receipt_check_count(receipt_findings *f, const attn_config *c,
                                             const receipt_generated *r)
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
TOOLS_FN receipt_verdict receipt_check_end(const receipt_check *c, size_t stops_at)
{
    const attn_config *const config = attn_model_config(c->model);
    const receipt_generated *const r = &c->told->text;
    const size_t last = r->n_prompt + r->n_ids - 1;
    if (r->n_stop > 0 && !attn_model_tokenizer(c->model))
        return receipt_differs(c->found,
                               "the receipt has stop strings, but the model has no tokenizer");
    if (c->told->eos != config->eos)
        return receipt_differs(c->found,
                               "the end-of-text token is %ld in the receipt, %ld in the model",
                               (long)c->told->eos, (long)config->eos);
    for (size_t i = 0; i < r->n_ids && !r->ignore_eos; i++)
        if (attn_config_is_eos(config, r->ids[i]))
            return receipt_differs(c->found,
                                   "position %zu: the end-of-text token is among the generated "
                                   "ones, but a text ends before it",
                                   r->n_prompt + i);
    if (stops_at + (r->ended == ATTN_STOP_STRING) < r->n_ids)
        return receipt_differs(c->found,
                               "position %zu: a stop string is complete there, but the text "
                               "goes on or ended for another reason",
                               r->n_prompt + stops_at);
    if (r->ended == ATTN_STOP_STRING && (r->n_ids == 0 || stops_at == r->n_ids))
        return receipt_differs(c->found, "position %zu: the text does not end with a stop string",
                               last);
    if (r->ended == ATTN_STOP_EOS && (r->ignore_eos || config->eos < 0))
        return receipt_differs(c->found, "position %zu: no end-of-text token ends this text", last);
    return receipt_check_count(c->found, config, r);
}

/* Is the latest link that of the receipt? */
TOOLS_FN int receipt_has_link(const receipt_check *c)
{
    const size_t at = (c->again.n_links - 1) * RECEIPT_LINK;
    return memcmp(c->again.links + at, c->told->links + at, RECEIPT_LINK) == 0;
}

/* Adds a position of a text to the chain, and compares the token that the sampler drew, and the
 * link, with the receipt's. */
TOOLS_FN receipt_verdict receipt_check_draw(receipt_check *c, attn_token drawn,
                                            const unsigned char *digest)
{
    const receipt_generated *const r = &c->told->text;
    const size_t at = c->again.n_links, position = r->n_prompt + at;
    const attn_token told = at < r->n_ids ? r->ids[at] : c->told->eos;
    char a[96], b[96];
    receipt_add(&c->again, digest, (uint32_t)told);
    if (at < r->n_ids ? drawn != told : !attn_config_is_eos(attn_model_config(c->model), drawn))
        return receipt_differs(c->found,
                               "position %zu (generated token %zu): the receipt has token %s, "
                               "but the sampler draws %s",
                               position, at + 1, receipt_token(a, sizeof a, c->model, told),
                               receipt_token(b, sizeof b, c->model, drawn));
    if (receipt_has_link(c))
        return RECEIPT_HOLDS;
    sha256_hex(a, c->told->links + at * RECEIPT_LINK, RECEIPT_LINK);
    sha256_hex(b, c->again.links + at * RECEIPT_LINK, RECEIPT_LINK);
    return receipt_differs(c->found,
                           "position %zu (generated token %zu): the same token, but the "
                           "bits of its logits differ: link %s in the receipt, %s here",
                           position, at + 1, a, b);
}

/* The same for a score, whose value is the loss. */
TOOLS_FN receipt_verdict receipt_check_loss(receipt_check *c, attn_tensor logits,
                                            const unsigned char *digest)
{
    const size_t at = c->again.n_links;
    const attn_token id = c->told->text.ids[at];
    const float told = c->told->losses[at];
    attn_token_stats stats;
    if (attn_logit_stats(c->ctx, &stats, NULL, logits, &id))
        return RECEIPT_FAILED;
    receipt_add(&c->again, digest, receipt_float_bits(stats.nll));
    if (receipt_float_bits(stats.nll) != receipt_float_bits(told))
        return receipt_differs(c->found,
                               "position %zu: the loss of token %ld is %.9g "
                               "in the receipt, %.9g here",
                               at + 1, (long)id, (double)told, (double)stats.nll);
    return receipt_has_link(c)
               ? RECEIPT_HOLDS
               : receipt_differs(c->found,
                                 "position %zu: the same loss, but the bits of the logits differ",
                                 at + 1);
}

enum { RECEIPT_PIECE = 128 }; /* positions whose logits are in memory at a time */

/* Feeds n tokens, the prompt followed by the ids, in pieces, and draws each token again. */
TOOLS_FN receipt_verdict receipt_draw_again(receipt_check *c, const attn_token *all, size_t n)
{
    const size_t n_vocab = attn_model_config(c->model)->n_vocab, n_prompt = c->told->text.n_prompt;
    attn_session_desc desc = ATTN_ZERO;
    attn_feed_item item = ATTN_ZERO;
    attn_sampler *sampler = NULL;
    receipt_verdict verdict = RECEIPT_HOLDS;
    size_t rows[RECEIPT_PIECE];
    unsigned char digests[RECEIPT_PIECE * SHA256_SIZE];
    float *const logits = (float *)arena_alloc(
        c->ctx, &c->memory, (n < RECEIPT_PIECE ? n : RECEIPT_PIECE) + 1, n_vocab * sizeof *logits);
    desc.n_ctx = n;
    desc.cache_dtype = c->told->text.f16_cache ? ATTN_F16 : ATTN_F32;
    item.logits = logits;
    item.rows = rows;
    if (!logits || attn_session_new(c->ctx, &item.session, c->model, &desc) ||
        attn_sampler_new(c->ctx, &sampler, n_vocab, &c->told->text.sampling))
        verdict = RECEIPT_FAILED;
    for (size_t done = 0; done < n && !verdict; done += item.n_tokens) {
        const size_t first = done < n_prompt - 1 ? n_prompt - 1 - done : 0;
        item.tokens = all + done;
        item.n_tokens = n - done < RECEIPT_PIECE ? n - done : RECEIPT_PIECE;
        item.n_rows = 0;
        for (size_t i = first; i < item.n_tokens; i++)
            rows[item.n_rows++] = i;
        if (attn_feed_batch(c->ctx, &item, 1))
            verdict = RECEIPT_FAILED;
        const receipt_pieces pieces = {digests, (const unsigned char *)logits,
                                       item.n_rows * n_vocab * sizeof *logits,
                                       n_vocab * sizeof *logits, 1};
        receipt_digest_pieces(c->ctx, pieces);
        for (size_t i = 0; i < item.n_rows && !verdict; i++) {
            float *const row = logits + i * n_vocab;
            attn_token drawn = 0;
            if (c->told->kind == RECEIPT_SCORE)
                verdict = receipt_check_loss(c, attn_borrow(row, ATTN_F32, attn_shape2(1, n_vocab)),
                                             digests + i * SHA256_SIZE);
            else
                verdict = attn_sample(c->ctx, &drawn, sampler, row, all, done + first + i + 1)
                              ? RECEIPT_FAILED
                              : receipt_check_draw(c, drawn, digests + i * SHA256_SIZE);
        }
    }
    attn_sampler_free(sampler);
    attn_session_free(item.session);
    return verdict;
}

/* A text, or a score. */
TOOLS_FN receipt_verdict receipt_verify_text(receipt_check *c)
{
    const receipt *const told = c->told;
    const receipt_generated *const r = &told->text;
    const int is_score = told->kind == RECEIPT_SCORE;
    const size_t n_draws = r->n_ids + (!is_score && r->ended == ATTN_STOP_EOS);
    const size_t n = r->n_prompt + r->n_ids, n_ctx = attn_model_config(c->model)->n_ctx;
    if (told->n_links != n_draws)
        return receipt_differs(c->found, "position %zu: there are %zu links for %zu %s",
                               r->n_prompt - (size_t)is_score +
                                   (told->n_links < n_draws ? told->n_links : n_draws),
                               told->n_links, n_draws, is_score ? "losses" : "draws");
    if (r->n_prompt + (n_draws > 0 ? n_draws - 1 : 0) > n_ctx)
        return receipt_differs(c->found,
                               "position %zu: the text is longer than the model's context", n_ctx);
    attn_token *const all = (attn_token *)arena_alloc(c->ctx, &c->memory, n + 1, sizeof *all);
    c->again.links = (unsigned char *)arena_alloc(c->ctx, &c->memory, n_draws + 1, RECEIPT_LINK);
    if (!all || !c->again.links)
        return RECEIPT_FAILED;
    memcpy(all, r->prompt, r->n_prompt * sizeof *all);
    for (size_t i = 0; i < r->n_ids; i++)
        all[r->n_prompt + i] = r->ids[i];
    receipt_verdict verdict =
        receipt_draw_again(c, all, n_draws > 0 ? r->n_prompt - 1 + n_draws : 0);
    if (!verdict && !is_score) {
        const size_t stops_at = receipt_stops_at(c);
        verdict = c->ctx->status ? RECEIPT_FAILED : receipt_check_end(c, stops_at);
    }
    return verdict || memcmp(c->again.chain, told->chain, SHA256_SIZE) == 0
               ? verdict
               : receipt_differs(c->found,
                                 "every link is the same, but the end of the chain is not");
}

/* >> Activations =============================================================================== */

/* Compares activation i with the one that was recorded. */
TOOLS_FN receipt_verdict receipt_compare_value(receipt_check *c, const attn_record *record,
                                               size_t i)
{
    const char *const name = attn_record_name(record, i);
    const receipt_value *const told = &c->told->activations[i];
    unsigned char digest[SHA256_SIZE];
    char a[SHA256_HEX], b[SHA256_HEX];
    attn_tensor x = ATTN_ZERO, dense = ATTN_ZERO;
    if (attn_record_get(c->ctx, &x, record, name) || attn_copy(c->ctx, &dense, x))
        return RECEIPT_FAILED;
    sha256_floats(digest, (const float *)dense.data, attn_count(dense));
    attn_tensor_free(c->ctx, &dense);
    if (strcmp(told->name, name) != 0)
        return receipt_differs(c->found, "the receipt has activation %.80s where %.80s is",
                               told->name, name);
    if (told->ndim != (size_t)x.ndim ||
        memcmp(told->shape, x.shape, told->ndim * sizeof *told->shape) != 0)
        return receipt_differs(c->found, "%.80s: another shape", name);
    if (memcmp(told->digest, digest, SHA256_SIZE) == 0)
        return RECEIPT_HOLDS;
    sha256_hex(a, told->digest, SHA256_SIZE);
    sha256_hex(b, digest, SHA256_SIZE);
    return receipt_differs(c->found,
                           "%.80s: its bits differ: "
                           "SHA-256 %.16s... in the receipt, %.16s... here",
                           name, a, b);
}

/* Feeds the ids, and compares the activations whose names the receipt has. */
TOOLS_FN receipt_verdict receipt_verify_values(receipt_check *c)
{
    const receipt_generated *const r = &c->told->text;
    const size_t n = c->told->n_activations, n_ctx = attn_model_config(c->model)->n_ctx;
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
    const char **names = (const char **)arena_alloc(c->ctx, &c->memory, n, sizeof *names);
    receipt_verdict verdict = RECEIPT_HOLDS;
    attn_session_desc desc = ATTN_ZERO;
    attn_record_desc what = ATTN_ZERO;
    attn_session *session = NULL;
    attn_record *record = NULL;
    for (size_t i = 0; names && i < n; i++)
        names[i] = c->told->activations[i].name;
    if (r->n_ids > n_ctx)
        return receipt_differs(c->found,
                               "position %zu: the text is longer than the model's context", n_ctx);
    desc.n_ctx = what.n_positions = r->n_ids;
    desc.cache_dtype = r->f16_cache ? ATTN_F16 : ATTN_F32;
    what.names = names;
    what.n_names = n;
    if (!names || attn_session_new(c->ctx, &session, c->model, &desc) ||
        attn_record_new(c->ctx, &record, session, &what) ||
        attn_feed(c->ctx, session, r->ids, r->n_ids))
        verdict = c->ctx->status == ATTN_E_NAME ? receipt_differs(c->found, "%s", c->ctx->message)
                                                : RECEIPT_FAILED;
    else if (attn_record_n_activations(record) != n)
        verdict = receipt_differs(c->found, "%zu activations have these names, the receipt has %zu",
                                  attn_record_n_activations(record), n);
    for (size_t i = 0; i < n && !verdict; i++)
        verdict = receipt_compare_value(c, record, i);
    attn_record_free(record);
    attn_session_free(session);
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
    const receipt_generated *const text = &r->text;
    receipt told = *r;
    receipt_check c = {ctx, f, {NULL}, model, &told, {0}};
    size_t bad = receipt_bad_id(model, text->prompt, text->n_prompt);
    if (strcmp(r->model, digest) != 0)
        return receipt_differs(f, "another model%s: SHA-256 %.16s... in the receipt, %.16s... here",
                               r->version > 1 ? ", or another tokenizer" : "", r->model, digest);
    if (r->dtype != identity->dtype)
        return receipt_differs(f, "the model's type is %s in the receipt, %s here",
                               receipt_dtypes[r->dtype], receipt_dtypes[identity->dtype]);
    if (bad == text->n_prompt)
        bad += receipt_bad_id(model, text->ids, text->n_ids);
    if (bad < text->n_prompt + text->n_ids)
        return receipt_differs(f, "position %zu: there is no such token in the vocabulary of %u",
                               bad, (unsigned)attn_model_config(model)->n_vocab);
    ctx->status = ATTN_OK;
    if (r->kind == RECEIPT_QUESTION) /* ask.h asks it again */
        return RECEIPT_HOLDS;
    if (r->kind == RECEIPT_SCORE) {
        told.text.prompt = told.text.ids++;
        told.text.n_prompt = 1;
        told.text.n_ids--;
    }
    const receipt_verdict verdict =
        r->kind == RECEIPT_ACTIVATIONS ? receipt_verify_values(&c) : receipt_verify_text(&c);
    arena_free(&c.memory);
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
