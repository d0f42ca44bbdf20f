/* Several texts: generated from one prompt in one batch and printed at the end, or given as choices and
 * compared. A generated text is scored afterwards; feeding it again gives the same bits. */
#ifndef GPT2_MANY_H
#define GPT2_MANY_H

#include "tools/common/json_out.h"

/* >> Scores ==================================================================================== */

/* The losses of n tokens after the prompt. The session holds all of the prompt but its last token. */
static int score_tokens(run *r, const attn_token *ids, size_t n, attn_token_stats *stats)
{
    const size_t n_vocab = attn_model_config(r->model)->n_vocab;
    if (n == 0)
        return FINE;
    r->drawn[0] = r->prompt[r->n_prompt - 1];
    memcpy(r->drawn + 1, ids, (n - 1) * sizeof *ids);
    if (attn_session_truncate(&r->ctx, r->session, r->n_prompt - 1) ||
        attn_score(&r->ctx, stats, NULL, r->session, r->drawn, n) ||
        attn_logit_stats(
            &r->ctx, &stats[n - 1], NULL,
            attn_borrow(attn_session_logits(r->session), ATTN_F32, attn_shape2(1, n_vocab)),
            &ids[n - 1]))
        return failed(&r->ctx);
    return FINE;
}

/* Feeds all of the prompt but its last token. */
static int begin_scores(run *r, attn_token_stats **stats)
{
    *stats = (attn_token_stats *)arena_alloc(
        &r->ctx, &r->memory, (size_t)attn_model_config(r->model)->n_ctx + 1, sizeof **stats);
    return *stats ? feed_ids(r, r->prompt, r->n_prompt - 1) : failed(&r->ctx);
}

/* >> JSON ====================================================================================== */

/* Writes the text of ids. */
static void out_decoded(const run *r, json_out *o, const char *key, const attn_token *ids, size_t n)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(r->model);
    attn_ctx ctx = {0};
    size_t size = 0;
    char *text = NULL;
    if (tokenizer && attn_decode(&ctx, NULL, &size, tokenizer, ids, n) == ATTN_OK)
        text = (char *)malloc(size);
    o->failed |= size > 0 && !text;
    if (text)
        attn_decode(&ctx, text, &size, tokenizer, ids, n);
    out_text(o, key, text, text ? size : 0);
    free(text);
}

static void out_tokens(const run *r, json_out *o, const attn_token *ids, size_t n,
                       const attn_token_stats *stats)
{
    out_open(o, "tokens", '[');
    for (size_t i = 0; i < n; i++) {
        out_open(o, NULL, '{');
        out_count(o, "id", (uint64_t)ids[i]);
        out_decoded(r, o, "token", &ids[i], 1);
        if (stats)
            out_f32(o, "logprob", -stats[i].nll);
        out_close(o, '}');
    }
    out_close(o, ']');
}

static void out_prompt(const run *r, json_out *o)
{
    out_open(o, NULL, '{');
    out_id(o, &r->id);
    out_decoded(r, o, "prompt", r->prompt, r->n_prompt);
}

static int end_line(json_out *o)
{
    out_close(o, '}');
    if (!out_line(o, stdout))
        return fail(FAILED, "no memory for a line of JSON");
    return flush_output();
}

/* >> Several texts ============================================================================= */

/* An attn_logits_fn for all texts: shows the progress, and stops at Ctrl-C. */
/* NOLINTNEXTLINE(readability-non-const-parameter): the type of a callback */
static int before_any_draw(float *logits, const attn_session *session, void *user)
{
    run *r = (run *)user;
    (void)logits, (void)session;
    if (r->n_draws++ == 0)
        r->prompt_seconds = system_seconds() - r->progress.begin;
    progress_at(&r->progress, (double)r->n_draws / ((double)r->o.tokens * (double)r->o.count + 1));
    return 0;
}

/* Continues ids in r->o.count ways, with the seeds `seed`, `seed` + 1, ... */
static int draw_texts(run *r, const attn_token *ids, size_t n_ids, uint64_t seed,
                      attn_continuation *texts)
{
    const attn_generate_desc how = {.sampling = sampling_of(&r->o, seed),
                                    .logits_fn = before_any_draw,
                                    .logits_user = r,
                                    .max_tokens = r->o.tokens,
                                    .ignore_eos = r->o.ignore_eos,
                                    .stop_strings = r->o.stop.at,
                                    .n_stop_strings = r->o.stop.n};
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < r->o.count; i++) {
        texts[i].reason = ATTN_STOP_COUNT;
        texts[i].prompt_tokens = ids;
        texts[i].n_prompt_tokens = n_ids;
    }
    r->n_draws = 0;
    progress_begin(&r->progress, "texts");
    if (r->o.tokens > 0) /* 0 means the default to the library */
        status = attn_generate_many(&r->ctx, texts, r->o.count, r->model, &how);
    r->generate_seconds = system_seconds() - r->progress.begin - r->prompt_seconds;
    progress_end(&r->progress);
    return status ? failed(&r->ctx) : FINE;
}

static int print_json(run *r, const attn_continuation *text, uint64_t seed,
                      const attn_token_stats *stats)
{
    json_out o = {0};
    out_prompt(r, &o);
    out_text(&o, "text", text->text, text->size);
    out_word(&o, "reason", attn_stop_reason_name(text->reason));
    out_count(&o, "seed", seed);
    out_tokens(r, &o, text->tokens, text->n_tokens, stats);
    int code = end_line(&o);
    out_free(&o);
    return code;
}

/* Prints a text, with its number before it. */
static int print_plain(run *r, const attn_continuation *text, size_t i,
                       const attn_token_stats *stats)
{
    int code;
    r->n_printed = 0;
    printf(r->o.logprobs ? "%zu.\n" : "%zu. ", i + 1);
    if ((code = print_prompt(r)) != FINE)
        return code;
    for (size_t t = 0; stats && t < text->n_tokens && code == FINE; t++)
        code = print_token_row(r, text->tokens[t], (double)stats[t].nll);
    if (code != FINE)
        return code;
    if (!stats && (r->o.print_ids || !attn_model_tokenizer(r->model)))
        print_tokens(r, text->tokens, text->n_tokens);
    else if (!stats && text->size > 0)
        put_text(r, text->text, text->size);
    if (!stats)
        putchar('\n');
    return flush_output();
}

static int print_texts(run *r, attn_continuation *texts)
{
    attn_token_stats *stats = NULL;
    int code = FINE;
    if (r->o.logprobs && (code = make_session(r, r->o.tokens)) == FINE)
        code = begin_scores(r, &stats);
    for (size_t i = 0; i < r->o.count && code == FINE; i++) {
        if (stats && (code = score_tokens(r, texts[i].tokens, texts[i].n_tokens, stats)) != FINE)
            break;
        r->n_generated += texts[i].n_tokens;
        code = r->o.json ? print_json(r, &texts[i], r->o.seed + i, stats)
                         : print_plain(r, &texts[i], i, stats);
    }
    return code;
}

/* Continues the prompt in several ways, or in one way if it is printed as JSON. */
static int continue_many(run *r)
{
    attn_continuation *texts =
        (attn_continuation *)arena_alloc(&r->ctx, &r->memory, r->o.count, sizeof *texts);
    int code;
    if (!texts)
        return failed(&r->ctx);
    if ((code = draw_texts(r, r->prompt, r->n_prompt, r->o.seed, texts)) != FINE)
        return code;
    r->ended = interrupted       ? "stopped by Ctrl-C"
               : r->o.count == 1 ? why_ended(texts[0].reason)
                                 : "in several texts";
    code = print_texts(r, texts);
    attn_continuations_free(texts, r->o.count);
    if (code == FINE)
        print_statistics(r);
    return code == FINE && interrupted ? INTERRUPTED : code;
}

/* >> Choices =================================================================================== */

/* One of the texts that --choices allows. */
typedef struct choice {
    const char *text;
    size_t size, n;
    attn_token *ids;
    double logprob;
} choice;

/* Reads "A|B|C". */
static int read_choices(run *r)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(r->model);
    const char *at = r->o.choices;
    size_t i;
    r->longest_choice = 0;
    for (i = 0, r->n_choices = 1; at[i]; i++)
        r->n_choices += at[i] == '|';
    if (r->n_choices == 1)
        return fail(USAGE, "--choices \"%s\" is a single choice: put | between several", at);
    r->choices = (choice *)arena_alloc(&r->ctx, &r->memory, r->n_choices, sizeof *r->choices);
    for (i = 0; r->choices && i < r->n_choices; i++, at++) {
        choice *c = &r->choices[i];
        c->text = at;
        at += c->size = strcspn(at, "|");
        if (c->size == 0)
            return fail(USAGE, "--choices: choice %zu of \"%s\" is empty", i + 1, r->o.choices);
        c->ids = (int32_t *)arena_alloc(&r->ctx, &r->memory, c->size + 1, sizeof *c->ids);
        c->n = c->size + 1;
        if (!c->ids || (r->o.special ? attn_encode_special : attn_encode)(
                           &r->ctx, c->ids, &c->n, tokenizer, c->text, c->size))
            return failed(&r->ctx);
        r->longest_choice = c->n > r->longest_choice ? c->n : r->longest_choice;
    }
    return r->choices ? FINE : failed(&r->ctx);
}

/* The log-probability of each choice after the prompt: the sum over its tokens. */
static int score_choices(run *r)
{
    attn_token_stats *stats = NULL;
    size_t t;
    int code = begin_scores(r, &stats);
    for (size_t i = 0; i < r->n_choices && code == FINE; i++) {
        choice *c = &r->choices[i];
        code = interrupted ? INTERRUPTED : score_tokens(r, c->ids, c->n, stats);
        for (c->logprob = 0, t = 0; t < c->n; t++)
            c->logprob -= (double)stats[t].nll;
    }
    return code;
}

/* Draws a choice. The sampler treats the choices like tokens. */
static int draw_choice(run *r, attn_token *drawn)
{
    float *scores = (float *)arena_alloc(&r->ctx, &r->memory, r->n_choices, sizeof *scores);
    for (size_t i = 0; scores && i < r->n_choices; i++)
        scores[i] = (float)r->choices[i].logprob;
    return scores && !attn_sample(&r->ctx, drawn, r->sampler, scores, NULL, 0) ? FINE
                                                                               : failed(&r->ctx);
}

/* The probability of a choice, divided by the sum over the choices. */
static double share_of(const run *r, const choice *c)
{
    double sum = 0;
    for (size_t i = 0; i < r->n_choices; i++)
        sum += exp(r->choices[i].logprob - c->logprob);
    return 1 / sum;
}

static int print_choices_json(run *r, const choice *drawn)
{
    json_out o = {0};
    out_prompt(r, &o);
    out_text(&o, "text", drawn->text, drawn->size);
    out_open(&o, "choices", '[');
    for (size_t i = 0; i < r->n_choices; i++) {
        const choice *c = &r->choices[i];
        out_open(&o, NULL, '{');
        out_text(&o, "text", c->text, c->size);
        out_digits(&o, "logprob", c->logprob, 9);
        out_digits(&o, "share", share_of(r, c), 9);
        out_close(&o, '}');
    }
    out_close(&o, ']');
    int code = end_line(&o);
    out_free(&o);
    return code;
}

static int print_choices(const run *r, const choice *drawn)
{
    int code = FINE;
    puts("  logprob    share     choice");
    for (size_t i = 0; i < r->n_choices && code == FINE; i++) {
        const choice *c = &r->choices[i];
        printf("%9.4f %8.4f %% %c ", c->logprob, 100 * share_of(r, c), c == drawn ? '*' : ' ');
        code = end_row(c->text, c->size);
    }
    return code;
}

/* Continues the prompt with one of the choices. */
static int choose(run *r)
{
    attn_token drawn = 0;
    int code =
        attn_session_capacity(r->session) < r->n_prompt + r->longest_choice - 1
            ? fail(FAILED,
                   "the prompt has %zu tokens and the longest choice %zu; the model's "
                   "context holds %u: give less text",
                   r->n_prompt, r->longest_choice, (unsigned)attn_model_config(r->model)->n_ctx)
            : score_choices(r);
    if (code == FINE)
        code = draw_choice(r, &drawn);
    if (code != FINE)
        return code;
    if (r->o.json)
        return print_choices_json(r, &r->choices[drawn]);
    if (r->o.logprobs)
        return print_choices(r, &r->choices[drawn]);
    if ((code = print_prompt(r)) != FINE)
        return code;
    if (r->o.print_ids)
        print_tokens(r, r->choices[drawn].ids, r->choices[drawn].n);
    else
        put_text(r, r->choices[drawn].text, r->choices[drawn].size);
    putchar('\n');
    return flush_output();
}

#endif
