/* Single figures of a block's text: losses, probabilities, greedy continuations, hidden states. A
 * procedure may have numbers after its name: "ablated-loss@0,8". */
#ifndef REPRODUCE_FIGURES_H
#define REPRODUCE_FIGURES_H

#include "study.h"
#include "table.h"

/* The numbers after a procedure's name; 0 where there is none. */
typedef struct figure_numbers {
    size_t at[2];
} figure_numbers;

static figure_numbers numbers_behind(const char *procedure)
{
    figure_numbers n = {{0, 0}};
    const char *at = strchr(procedure, '@');
    char *end = NULL;
    if (at) {
        n.at[0] = strtoul(at + 1, &end, 10);
        n.at[1] = *end == ',' ? strtoul(end + 1, NULL, 10) : 0;
    }
    return n;
}

/* ---- losses ---- */

/* The losses of ids[1 .. n), and whether each is the likeliest token. */
static attn_status losses_of(study *s, float *losses, int *is_likeliest, const attn_token *ids,
                             size_t n)
{
    attn_token_stats *stats = (attn_token_stats *)arena_alloc(s->ctx, s->memory, n, sizeof *stats);
    attn_session *session = NULL;
    size_t i;
    if (!stats)
        return s->ctx->status;
    if (!attn_session_new(s->ctx, &session, s->raw, NULL) &&
        !attn_score(s->ctx, stats, NULL, session, ids, n))
        for (i = 0; i + 1 < n; i++) {
            losses[i] = stats[i].nll;
            if (is_likeliest)
                is_likeliest[i] = stats[i].rank == 0;
        }
    attn_session_free(session);
    return s->ctx->status;
}

/* The mean loss, or the mean probability, of the tokens of a block. */
static attn_status mean_loss(study *s, const block *b, float *out, int as_probability)
{
    float *losses = room_for(s, b->n_ids);
    double sum = 0;
    size_t i;
    if (!losses || losses_of(s, losses, NULL, b->ids, b->n_ids))
        return s->ctx->status;
    for (i = 0; i + 1 < b->n_ids; i++)
        sum += as_probability ? exp(-(double)losses[i]) : (double)losses[i];
    out[0] = (float)(sum / (double)(b->n_ids - 1));
    return ATTN_OK;
}

/* The log-probability of the tokens from number `first` on, or whether all of them are the likeliest. */
static attn_status continuation(study *s, const block *b, float *out, size_t first, int is_greedy)
{
    float *losses = room_for(s, b->n_ids);
    int *likeliest = (int *)arena_alloc(s->ctx, s->memory, b->n_ids, sizeof *likeliest);
    double sum = 0;
    size_t i;
    int all = 1;
    if (!losses || !likeliest || losses_of(s, losses, likeliest, b->ids, b->n_ids))
        return s->ctx->status;
    for (i = first - 1; i + 1 < b->n_ids; i++) {
        sum -= (double)losses[i];
        all = all && likeliest[i];
    }
    out[0] = is_greedy ? (float)all : (float)sum;
    return ATTN_OK;
}

/* out [n_ids - 1]. With a window, each run of `window` tokens is predicted separately, with only the
 * token before it as context. A shorter last run is filled up with the tokens before it. */
static attn_status log_probabilities(study *s, const block *b, float *out, size_t window)
{
    const size_t n = b->n_ids - 1;
    float *losses = room_for(s, b->n_ids);
    size_t begin, end, from, i;
    if (!losses)
        return s->ctx->status;
    if (window == 0 || window > n)
        window = n;
    for (begin = 0; begin < n; begin = end) {
        end = n - begin < window ? n : begin + window;
        from = end - window;
        if (losses_of(s, losses, NULL, b->ids + from, window + 1))
            return s->ctx->status;
        for (i = begin; i < end; i++)
            out[i] = -losses[i - from];
    }
    return ATTN_OK;
}

/* The loss of the model as TransformerLens processes it, with the values of one head set to zero.
 * That processing has moved b_V into b_O, so the share of b_V stays. */
static attn_status ablated_loss(study *s, const block *b, float *out, size_t layer, size_t head)
{
    attn_token_stats *stats =
        (attn_token_stats *)arena_alloc(s->ctx, s->memory, b->n_ids, sizeof *stats);
    attn_session *session = NULL;
    attn_edit edit = ATTN_ZERO;
    char name[48];
    snprintf(name, sizeof name, "blocks.%u.attn.hook_v", (unsigned)layer);
    edit.name = name;
    edit.kind = ATTN_EDIT_SET;
    edit.value = attn_reshape(attn_select(attn_select(s->b_v, 0, layer), 0, head),
                              attn_shape3(1, 1, attn_model_config(s->model)->d_head));
    edit.first_head = head;
    edit.n_heads = 1;
    if (stats && !attn_session_new(s->ctx, &session, s->model, NULL) &&
        !attn_hook_edit(s->ctx, NULL, session, &edit) &&
        !attn_score(s->ctx, stats, NULL, session, b->ids, b->n_ids))
        out[0] = (float)attn_mean_nll(stats, b->n_ids - 1);
    attn_session_free(session);
    return s->ctx->status;
}

/* ---- the next token ---- */

static attn_status greedy_ids(study *s, const block *b, float *out)
{
    attn_generate_desc how = ATTN_ZERO;
    attn_generation made = ATTN_ZERO;
    attn_session *session = NULL;
    attn_token *ids = (int32_t *)arena_alloc(s->ctx, s->memory, b->n, sizeof *ids);
    size_t i;
    made.tokens = ids;
    made.room = b->n;
    how.prompt_tokens = b->ids;
    how.n_prompt_tokens = b->n_ids;
    how.max_tokens = b->n;
    how.ignore_eos = 1;
    if (ids && !attn_session_new(s->ctx, &session, s->raw, NULL) &&
        !attn_generate(s->ctx, &made, session, NULL, &how))
        for (i = 0; i < made.n_tokens; i++)
            out[i] = (float)ids[i];
    attn_session_free(session);
    return s->ctx->status;
}

/* logits [n_vocab] after a block's text, from the processed model, whose unembedding is centred. */
static attn_status last_logits(study *s, const block *b, float *logits)
{
    attn_session *session = NULL;
    if (!attn_session_new(s->ctx, &session, s->model, NULL) &&
        !attn_feed(s->ctx, session, b->ids, b->n_ids))
        memcpy(logits, attn_session_logits(session),
               attn_model_config(s->model)->n_vocab * sizeof *logits);
    attn_session_free(session);
    return s->ctx->status;
}

static double log_of_sum(const float *logits, size_t n)
{
    double sum, most = (double)logits[0];
    size_t i;
    for (i = 1; i < n; i++)
        most = (double)logits[i] > most ? (double)logits[i] : most;
    sum = exp((double)logits[0] - most);
    for (i = 1; i < n; i++)
        sum += exp((double)logits[i] - most);
    return most + log(sum);
}

typedef enum likeliest_kind { IDS, LOGITS, PROBABILITIES } likeliest_kind;

/* The b->n likeliest tokens, the likeliest first. */
static attn_status likeliest(study *s, const block *b, float *out, likeliest_kind kind)
{
    const size_t n_vocab = attn_model_config(s->model)->n_vocab;
    float *logits = room_for(s, n_vocab);
    double whole;
    size_t i, j, best;
    if (!logits || last_logits(s, b, logits))
        return s->ctx->status;
    whole = log_of_sum(logits, n_vocab);
    for (i = 0; i < b->n; i++) {
        for (best = 0, j = 1; j < n_vocab; j++)
            best = logits[j] > logits[best] ? j : best;
        out[i] = kind == IDS      ? (float)best
                 : kind == LOGITS ? logits[best]
                                  : (float)exp((double)logits[best] - whole);
        logits[best] = -INFINITY;
    }
    return ATTN_OK;
}

/* The probability of one token, or the difference of two logits. */
static attn_status of_tokens(study *s, const block *b, float *out, figure_numbers of,
                             int difference)
{
    const size_t n_vocab = attn_model_config(s->model)->n_vocab;
    float *logits = room_for(s, n_vocab);
    if (!logits || last_logits(s, b, logits))
        return s->ctx->status;
    if (of.at[0] >= n_vocab || of.at[1] >= n_vocab)
        return tool_fail(s->ctx, ATTN_E_TOKEN, "%s: there is no such token", b->procedure);
    out[0] = difference ? logits[of.at[0]] - logits[of.at[1]]
                        : (float)exp((double)logits[of.at[0]] - log_of_sum(logits, n_vocab));
    return ATTN_OK;
}

/* ---- parts of matrices ---- */

/* A submatrix [rows, columns] of the hidden states after ln_final, or of the logits. */
static attn_status corner(study *s, const block *b, float *out, figure_numbers from, int of_logits)
{
    static const char *const name = "ln_final.hook_normalized.post";
    const size_t n_vocab = attn_model_config(s->raw)->n_vocab;
    attn_record_desc what = ATTN_ZERO;
    attn_feed_item item = ATTN_ZERO;
    attn_session *session = NULL;
    attn_record *record = NULL;
    attn_tensor x;
    size_t i, j;
    what.names = &name;
    what.n_names = 1;
    what.n_positions = item.n_tokens = b->n_ids;
    item.tokens = b->ids;
    item.logits = room_for(s, b->n_ids * n_vocab);
    if (item.logits && !attn_session_new(s->ctx, &session, s->raw, NULL) &&
        !attn_record_new(s->ctx, &record, session, &what)) {
        item.session = session;
        if (!attn_feed_batch(s->ctx, &item, 1) && !attn_record_get(s->ctx, &x, record, name)) {
            if (of_logits)
                x = attn_borrow(item.logits, ATTN_F32, attn_shape2(b->n_ids, n_vocab));
            for (i = 0; i < b->shape[0]; i++)
                for (j = 0; j < b->shape[1]; j++)
                    *out++ = attn_get2(x, from.at[0] + i, from.at[1] + j);
        }
    }
    attn_record_free(record);
    attn_session_free(session);
    return s->ctx->status;
}

/* The processed model's b_U for the tokens of a block. */
static attn_status unembedding_bias(study *s, const block *b, float *out)
{
    attn_tensor bias = ATTN_ZERO;
    size_t i;
    if (!attn_model_tensor(s->ctx, &bias, s->model, "unembed.b_U"))
        for (i = 0; i < b->n_ids; i++)
            out[i] = attn_get1(bias, (size_t)b->ids[i]);
    attn_tensor_free(s->ctx, &bias);
    return s->ctx->status;
}

/* The token ids of a text, whose bytes are the ids of the block. */
static attn_status token_ids(study *s, const block *b, float *out)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(s->raw);
    char *text = (char *)arena_alloc(s->ctx, s->memory, b->n_ids + 1, 1);
    attn_token *ids = (int32_t *)arena_alloc(s->ctx, s->memory, b->n_ids + 1, sizeof *ids);
    size_t i, n = b->n_ids + 1;
    if (!text || !ids)
        return s->ctx->status;
    for (i = 0; i < b->n_ids; i++)
        text[i] = (char)b->ids[i];
    if (attn_encode(s->ctx, ids, &n, tokenizer, text, b->n_ids))
        return s->ctx->status;
    for (i = 0; i < b->n; i++) /* -1 at the end if the lengths differ */
        out[i] = i < n && (i + 1 < b->n || n == b->n) ? (float)ids[i] : -1;
    return ATTN_OK;
}

/* ---- parts of the first prompt's logits ---- */

/* How much neurons add to logits; the block's ids are layer, neuron and token of each. */
static attn_status neurons_of_first(study *s, const block *b, float *out)
{
    static const char *const names[] = {"blocks.*.mlp.hook_post", "ln_final.hook_scale"};
    const size_t c = attn_model_config(s->model)->d_model;
    attn_record_desc what = ATTN_ZERO;
    attn_session *session = NULL;
    attn_record *record = NULL;
    attn_tensor scale = ATTN_ZERO, post;
    char name[48];
    size_t i;
    what.names = names;
    what.n_names = 2;
    what.first = N_TOKENS - 1;
    what.n_positions = 1;
    if (!attn_session_new(s->ctx, &session, s->model, NULL) &&
        !attn_record_new(s->ctx, &record, session, &what) &&
        !attn_feed(s->ctx, session, prompts[0], N_TOKENS))
        attn_record_get(s->ctx, &scale, record, "ln_final.hook_scale");
    for (i = 0; i + 2 < b->n_ids && !s->ctx->status; i += 3) {
        attn_tensor w = ATTN_ZERO, part = ATTN_ZERO, direction = ATTN_ZERO, term = ATTN_ZERO;
        const unsigned layer = (unsigned)b->ids[i];
        const size_t neuron = (size_t)b->ids[i + 1];
        snprintf(name, sizeof name, "blocks.%u.mlp.W_out", layer);
        if (!attn_model_tensor(s->ctx, &w, s->model, name)) {
            snprintf(name, sizeof name, "blocks.%u.mlp.hook_post", layer);
            if (!attn_record_get(s->ctx, &post, record, name) &&
                !attn_scale(s->ctx, &part, attn_slice(w, 0, neuron, 1),
                            attn_get2(post, 0, neuron)) &&
                !attn_logit_directions(s->ctx, &direction, s->model, &b->ids[i + 2], NULL, 1) &&
                !lens_logit_attrs(s->ctx, &term, s->model, attn_reshape(part, attn_shape3(1, 1, c)),
                                  scale, direction))
                out[i / 3] = attn_get2(term, 0, 0);
        }
        attn_tensor_free(s->ctx, &w);
        attn_tensor_free(s->ctx, &part);
        attn_tensor_free(s->ctx, &direction);
        attn_tensor_free(s->ctx, &term);
    }
    attn_record_free(record);
    attn_session_free(session);
    return s->ctx->status;
}

/* ---- the table ---- */

/* What a figure needs. */
typedef enum needs { A_TEXT, A_TOKENIZER, GPT2_SMALL, ITS_NEURONS } needs;

typedef attn_status (*figure_fn)(study *s, const block *b, float *out, figure_numbers of);

#define FIGURE(name, call)                                                                         \
    static attn_status name(study *s, const block *b, float *out, figure_numbers of)               \
    {                                                                                              \
        (void)of;                                                                                  \
        return call;                                                                               \
    }
FIGURE(figure_loss, mean_loss(s, b, out, 0))
FIGURE(figure_mean_probability, mean_loss(s, b, out, 1))
FIGURE(figure_log_likelihood, continuation(s, b, out, of.at[0], 0))
FIGURE(figure_is_greedy, continuation(s, b, out, of.at[0], 1))
FIGURE(figure_log_probs, log_probabilities(s, b, out, of.at[0]))
FIGURE(figure_ablated_loss, ablated_loss(s, b, out, of.at[0], of.at[1]))
FIGURE(figure_greedy, greedy_ids(s, b, out))
FIGURE(figure_top_tokens, likeliest(s, b, out, IDS))
FIGURE(figure_top_logits, likeliest(s, b, out, LOGITS))
FIGURE(figure_top_probabilities, likeliest(s, b, out, PROBABILITIES))
FIGURE(figure_probability, of_tokens(s, b, out, of, 0))
FIGURE(figure_difference, of_tokens(s, b, out, of, 1))
FIGURE(figure_hidden, corner(s, b, out, of, 0))
FIGURE(figure_logits, corner(s, b, out, of, 1))
FIGURE(figure_unembed_bias, unembedding_bias(s, b, out))
FIGURE(figure_tokens, token_ids(s, b, out))
FIGURE(figure_neurons, neurons_of_first(s, b, out))
#undef FIGURE

static const struct figure {
    const char *name;
    figure_fn fn;
    needs needs;
} figures[] = {
    {"loss", figure_loss, A_TEXT},
    {"mean-probability", figure_mean_probability, A_TEXT},
    {"log-likelihood", figure_log_likelihood, A_TEXT},
    {"is-greedy", figure_is_greedy, A_TEXT},
    {"log-probs", figure_log_probs, A_TEXT},
    {"ablated-loss", figure_ablated_loss, GPT2_SMALL},
    {"greedy", figure_greedy, A_TEXT},
    {"top-tokens", figure_top_tokens, A_TEXT},
    {"top-logits", figure_top_logits, A_TEXT},
    {"top-probabilities", figure_top_probabilities, A_TEXT},
    {"probability", figure_probability, A_TEXT},
    {"difference", figure_difference, A_TEXT},
    {"hidden", figure_hidden, A_TEXT},
    {"logits", figure_logits, A_TEXT},
    {"unembed-bias", figure_unembed_bias, A_TEXT},
    {"tokens", figure_tokens, A_TOKENIZER},
    {"neurons-of-first", figure_neurons, ITS_NEURONS},
};

/* Finds a single figure by its procedure; NULL if the procedure is that of a plot. */
static const struct figure *find_figure(const char *procedure)
{
    const size_t length = strcspn(procedure, "@");
    size_t i;
    for (i = 0; i < sizeof figures / sizeof figures[0]; i++)
        if (strlen(figures[i].name) == length && strncmp(figures[i].name, procedure, length) == 0)
            return &figures[i];
    return NULL;
}

#endif
