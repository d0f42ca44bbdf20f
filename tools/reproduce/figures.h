/* Single figures of a block's text: losses, probabilities, greedy continuations, hidden states. Most are a question to
 * lens and a choice among the numbers of the answer; the others are computed here. A procedure may have numbers after
 * its name: "ablated-loss@0,8". */
#ifndef REPRODUCE_FIGURES_H
#define REPRODUCE_FIGURES_H

#include "ask.h"
#include "table.h"

typedef enum needs { A_TEXT, A_TOKENIZER, GPT2_SMALL, ITS_NEURONS } needs;
enum { AS_STORED, PROCESSED }; /* the model */

/* Chooses the figures among the numbers x [n] of a column. */
typedef void (*choose_fn)(const block *b, float *out, const float *x, size_t n);
typedef attn_status (*figure_fn)(study *s, const block *b, float *out);

typedef struct figure {
    const char *name;
    needs needs;
    int of;
    const char *question, *column; /* question NULL: fn computes the figures */
    choose_fn choose;
    figure_fn fn;
} figure;

/* ---- choices ---- */

static void last_numbers(const block *b, float *out, const float *x, size_t n)
{
    memcpy(out, x + n - b->n, b->n * sizeof *out);
}

/* Of losses, of which the first token has none. */
static void mean_probability(const block *b, float *out, const float *x, size_t n)
{
    double sum = 0;
    (void)b;
    for (size_t i = 1; i < n; i++)
        sum += exp(-(double)x[i]);
    out[0] = (float)(sum / (double)(n - 1));
}

/* The log-probability of the tokens from the number behind the name on. */
static void sum_from(const block *b, float *out, const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = b->at[1]; i < n; i++)
        sum -= (double)x[i];
    out[0] = (float)sum;
}

/* Are the ranks zero from there on? */
static void zero_from(const block *b, float *out, const float *x, size_t n)
{
    out[0] = 1;
    for (size_t i = b->at[1]; i < n; i++)
        out[0] = x[i] == 0 ? out[0] : 0;
}

/* A submatrix, of which the numbers behind the name are the first row and column. x [tokens, width]. */
static void corner(const block *b, float *out, const float *x, size_t n)
{
    for (size_t i = 0; i < b->shape[0]; i++)
        for (size_t j = 0; j < b->shape[1]; j++)
            *out++ = x[(b->at[1] + i) * (n / b->n_ids) + b->at[2] + j];
}

/* ---- several questions ---- */

/* out [n_ids - 1]. With a window, each run of `window` tokens is predicted separately, with only the token before it
 * as context. A shorter last run is filled up with the tokens before it. */
static attn_status log_probabilities(study *s, const block *b, float *out)
{
    const size_t n = b->n_ids - 1, window = b->at[1] && b->at[1] < n ? b->at[1] : n;
    for (size_t begin = 0, end; begin < n; begin = end) {
        end = n - begin < window ? n : begin + window;
        const subject text = {b->ids + end - window, NULL, window + 1, {0}};
        size_t n_losses;
        const float *x = ask_for(s, s->raw, "loss", "tokens.loss", &text, &n_losses);
        if (!x)
            return s->ctx->status;
        for (size_t i = begin; i < end; i++)
            out[i] = -x[i - (end - window) + 1];
    }
    return ATTN_OK;
}

/* The probabilities of the likeliest tokens after the text, or of the token whose number is behind the name. Those of
 * lens are computed in single precision, these in double. */
static attn_status probabilities(study *s, const block *b, float *out)
{
    const subject text = {b->ids, NULL, b->n_ids, {b->at[0]}};
    const size_t n_vocab = attn_model_config(s->model)->n_vocab;
    attn_session *session = NULL;
    float one = (float)b->at[1];
    size_t n = 1;
    if (b->at[1] >= n_vocab)
        return tool_fail(s->ctx, ATTN_E_TOKEN, "%s: there is no such token", b->procedure);
    const float *ids = strchr(b->procedure, '@')
                           ? &one
                           : ask_for(s, s->model, "tokens top=@0", "top.guess_id", &text, &n);
    if (ids && !attn_session_new(s->ctx, &session, s->model, NULL) &&
        !attn_feed(s->ctx, session, b->ids, b->n_ids)) {
        const float *const logits = attn_session_logits(session);
        const double whole = log_of_sum(logits, n_vocab);
        for (size_t i = 0; i < b->n; i++)
            out[i] = (float)exp((double)logits[(size_t)ids[n - b->n + i]] - whole);
    }
    attn_session_free(session);
    return s->ctx->status;
}

/* ---- others ---- */

/* The loss of the processed model with the values of one head set to zero. That processing has moved b_V into b_O, so
 * the share of b_V stays. */
static attn_status ablated_loss(study *s, const block *b, float *out)
{
    attn_token_stats *stats =
        (attn_token_stats *)arena_alloc(s->ctx, s->memory, b->n_ids, sizeof *stats);
    attn_session *session = NULL;
    char name[48];
    const attn_edit edit = edit_to_bias(s, name, "hook_v", b->at[1], b->at[2]);
    if (stats && !attn_session_new(s->ctx, &session, s->model, NULL) &&
        !attn_hook_edit(s->ctx, NULL, session, &edit) &&
        !attn_score(s->ctx, stats, NULL, session, b->ids, b->n_ids))
        out[0] = (float)attn_mean_nll(stats, b->n_ids - 1);
    attn_session_free(session);
    return s->ctx->status;
}

static attn_status greedy_ids(study *s, const block *b, float *out)
{
    attn_token *const ids = (int32_t *)arena_alloc(s->ctx, s->memory, b->n, sizeof *ids);
    const attn_generate_desc how = {
        .prompt_tokens = b->ids, .n_prompt_tokens = b->n_ids, .max_tokens = b->n, .ignore_eos = 1};
    attn_generation made = {.tokens = ids, .room = b->n};
    attn_session *session = NULL;
    if (ids && !attn_session_new(s->ctx, &session, s->raw, NULL) &&
        !attn_generate(s->ctx, &made, session, NULL, &how))
        for (size_t i = 0; i < made.n_tokens; i++)
            out[i] = (float)ids[i];
    attn_session_free(session);
    return s->ctx->status;
}

/* A submatrix of the logits. */
static attn_status some_logits(study *s, const block *b, float *out)
{
    const size_t n = b->n_ids * attn_model_config(s->raw)->n_vocab;
    attn_feed_item item = {.tokens = b->ids, .n_tokens = b->n_ids, .logits = room_for(s, n)};
    if (item.logits && !attn_session_new(s->ctx, &item.session, s->raw, NULL) &&
        !attn_feed_batch(s->ctx, &item, 1))
        corner(b, out, item.logits, n);
    attn_session_free(item.session);
    return s->ctx->status;
}

/* The processed model's b_U for the tokens of a block. */
static attn_status unembedding_bias(study *s, const block *b, float *out)
{
    attn_tensor bias = ATTN_ZERO;
    if (!attn_model_tensor(s->ctx, &bias, s->model, "unembed.b_U"))
        for (size_t i = 0; i < b->n_ids; i++)
            out[i] = attn_get1(bias, (size_t)b->ids[i]);
    attn_tensor_free(s->ctx, &bias);
    return s->ctx->status;
}

/* The token ids of a text, whose bytes are the ids of the block. No model runs, so the text may be long. */
static attn_status token_ids(study *s, const block *b, float *out)
{
    char *text = (char *)arena_alloc(s->ctx, s->memory, b->n_ids + 1, 1);
    attn_token *ids = (int32_t *)arena_alloc(s->ctx, s->memory, b->n_ids + 1, sizeof *ids);
    size_t n = b->n_ids + 1;
    if (!text || !ids)
        return s->ctx->status;
    for (size_t i = 0; i < b->n_ids; i++)
        text[i] = (char)b->ids[i];
    if (attn_encode(s->ctx, ids, &n, attn_model_tokenizer(s->raw), text, b->n_ids))
        return s->ctx->status;
    for (size_t i = 0; i < b->n; i++) /* -1 at the end if the lengths differ */
        out[i] = i < n && (i + 1 < b->n || n == b->n) ? (float)ids[i] : -1;
    return ATTN_OK;
}

/* How much a neuron adds to a logit: its row of W_out, times its activation. */
static attn_status neuron_to_logit(study *s, float *out, const lens_query *run,
                                   const attn_token *of)
{
    attn_tensor w = ATTN_ZERO, part = ATTN_ZERO, direction = ATTN_ZERO, term = ATTN_ZERO;
    char weights[48], name[48];
    snprintf(weights, sizeof weights, "blocks.%u.mlp.W_out", (unsigned)of[0]);
    snprintf(name, sizeof name, "blocks.%u.mlp.hook_post", (unsigned)of[0]);
    const attn_tensor post = tensor_of(run, name), scale = tensor_of(run, "ln_final.hook_scale");
    if (!attn_model_tensor(s->ctx, &w, s->model, weights) &&
        !attn_scale(s->ctx, &part, attn_slice(w, 0, (size_t)of[1], 1),
                    attn_get2(post, N_TOKENS - 1, (size_t)of[1])) &&
        !attn_logit_directions(s->ctx, &direction, s->model, &of[2], NULL, 1) &&
        !lens_logit_attrs(s->ctx, &term, s->model,
                          attn_reshape(part, attn_shape3(1, 1, part.shape[1])),
                          attn_slice(scale, 0, N_TOKENS - 1, 1), direction))
        *out = attn_get2(term, 0, 0);
    attn_tensor_free(s->ctx, &w);
    attn_tensor_free(s->ctx, &part);
    attn_tensor_free(s->ctx, &direction);
    attn_tensor_free(s->ctx, &term);
    return s->ctx->status;
}

/* How much neurons add to logits of the first prompt; the block's ids are layer, neuron and token of each. */
static attn_status neurons_of_first(study *s, const block *b, float *out)
{
    const subject text = {prompts[0], NULL, N_TOKENS, {0}};
    lens_query *const run =
        ask(s, s->model, "record names=blocks.*.mlp.hook_post names=ln_final.hook_scale", &text);
    for (size_t i = 0; i + 2 < b->n_ids && !s->ctx->status; i += 3)
        neuron_to_logit(s, &out[i / 3], run, b->ids + i);
    lens_query_free(run);
    return s->ctx->status;
}

/* ---- the table ---- */

static const figure figures[] = {
    {"loss", A_TEXT, AS_STORED, "loss", "facts.mean_loss", last_numbers, NULL},
    {"mean-probability", A_TEXT, AS_STORED, "loss", "tokens.loss", mean_probability, NULL},
    {"log-likelihood", A_TEXT, AS_STORED, "loss", "tokens.loss", sum_from, NULL},
    {"is-greedy", A_TEXT, AS_STORED, "loss", "tokens.rank", zero_from, NULL},
    {"top-tokens", A_TEXT, PROCESSED, "tokens top=@0", "top.guess_id", last_numbers, NULL},
    {"top-logits", A_TEXT, PROCESSED, "tokens top=@0", "top.logit", last_numbers, NULL},
    {"top-probabilities", A_TEXT, PROCESSED, NULL, NULL, NULL, probabilities},
    {"difference", A_TEXT, PROCESSED, "attribute" DIFFERENCE, "facts.logit", last_numbers, NULL},
    {"hidden", A_TEXT, AS_STORED, "record names=ln_final.hook_normalized.post",
     "ln_final.hook_normalized.post.value", corner, NULL},
    {"probability", A_TEXT, PROCESSED, NULL, NULL, NULL, probabilities},
    {"log-probs", A_TEXT, AS_STORED, NULL, NULL, NULL, log_probabilities},
    {"ablated-loss", GPT2_SMALL, PROCESSED, NULL, NULL, NULL, ablated_loss},
    {"greedy", A_TEXT, AS_STORED, NULL, NULL, NULL, greedy_ids},
    {"logits", A_TEXT, AS_STORED, NULL, NULL, NULL, some_logits},
    {"unembed-bias", A_TEXT, PROCESSED, NULL, NULL, NULL, unembedding_bias},
    {"tokens", A_TOKENIZER, AS_STORED, NULL, NULL, NULL, token_ids},
    {"neurons-of-first", ITS_NEURONS, PROCESSED, NULL, NULL, NULL, neurons_of_first},
};

/* Finds a single figure by its procedure; NULL if the procedure is that of a plot. */
static const figure *find_figure(const char *procedure)
{
    const size_t length = strcspn(procedure, "@");
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        if (strlen(figures[i].name) == length && strncmp(figures[i].name, procedure, length) == 0)
            return &figures[i];
    return NULL;
}

static attn_status find_numbers(study *s, const figure *f, const block *b, float *out)
{
    const subject text = {b->ids, NULL, b->n_ids, {b->at[0], b->at[1], b->at[2]}};
    size_t n;
    if (!f->question)
        return f->fn(s, b, out);
    const float *x =
        ask_for(s, f->of == PROCESSED ? s->model : s->raw, f->question, f->column, &text, &n);
    if (x)
        f->choose(b, out, x, n);
    return s->ctx->status;
}

#endif
