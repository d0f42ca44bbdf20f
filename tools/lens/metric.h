/* A metric: one number from the logits of a text, and its derivative by each logit. And a pair of texts
 * that a metric compares. Uses attn.h's public API only. gradients.h and sweep.h include it. */
#ifndef LENS_METRIC_H
#define LENS_METRIC_H

#include "result.h"

typedef enum lens_metric_kind {
    LENS_METRIC_LOSS = 0,   /* mean of -log softmax(logits)[target] over the positions */
    LENS_METRIC_LOGIT,      /* logits[token] */
    LENS_METRIC_LOGIT_DIFF, /* logits[token] - logits[against] */
    LENS_METRIC_LOG_PROB,   /* log softmax(logits)[token] */
    LENS_METRIC_FUNCTION,   /* a function of the caller's, of the logits of all positions */
    LENS_METRIC_FUNCTION_AT /* a function of the caller's, of the logits of one position */
} lens_metric_kind;

/* A metric of the caller: sets *value, and d_logits = d value / d logits, which is filled with zeros before
 * the call and used only if gradients are asked for. Both tensors are [T, V], or [1, V] for FUNCTION_AT.
 * Return 0 to go on, anything else to stop (ATTN_STOPPED). */
typedef int (*lens_metric_fn)(float *value, attn_tensor d_logits, attn_tensor logits, void *user);

/* Zeroed, it is the loss of the text. A field that the kind does not read must be zero. */
typedef struct lens_metric {
    lens_metric_kind kind;
    attn_token token;          /* LOGIT, LOGIT_DIFF, LOG_PROB */
    attn_token against;        /* LOGIT_DIFF */
    size_t from_end;           /* these three and FUNCTION_AT: the position, counted back from the
                               last, which is 0 */
    const attn_token *targets; /* LOSS: [T], the token whose loss counts after each position, -1 for
                               none; NULL: the next token of the text */
    lens_metric_fn fn;         /* FUNCTION, FUNCTION_AT */
    void *user;                /* fn gets it */
} lens_metric;

/* Two texts of the same length, and a metric that differs between them. Both have the same targets, if the
 * metric has targets. */
typedef struct lens_pair {
    const int32_t *clean, *corrupted; /* [n_tokens] each */
    size_t n_tokens;
    lens_metric metric;
} lens_pair;

/* Does the metric read the logits of one position only? */
LENS_FN int lens_metric_is_local(const lens_metric *m)
{
    return m && m->kind != LENS_METRIC_LOSS && m->kind != LENS_METRIC_FUNCTION;
}

LENS_FN int lens_metric_is_function(const lens_metric *m)
{
    return m->kind == LENS_METRIC_FUNCTION || m->kind == LENS_METRIC_FUNCTION_AT;
}

LENS_FN int lens_metric_has_token(const lens_metric *m)
{
    return lens_metric_is_local(m) && !lens_metric_is_function(m);
}

/* Is the metric linear in the logits? Then its gradient needs no logits. */
LENS_FN int lens_metric_is_linear(const lens_metric *m)
{
    return m->kind == LENS_METRIC_LOGIT || m->kind == LENS_METRIC_LOGIT_DIFF;
}

/* The token that is subtracted, as attn_logit_directions takes it: [1], or NULL if there is none. */
LENS_FN const int32_t *lens_metric_against(const lens_metric *m)
{
    return m->kind == LENS_METRIC_LOGIT_DIFF ? &m->against : NULL;
}

LENS_FN attn_status lens_need_target(attn_ctx *ctx, const char *op, const char *name,
                                     attn_token token, size_t n_vocab)
{
    if (token >= 0 && (size_t)token < n_vocab)
        return ATTN_OK;
    return attn_fail(ctx, ATTN_E_TOKEN, "%s: %s is %ld; the vocabulary is 0 to %llu", op, name,
                     (long)token, LENS_LLU(n_vocab - 1));
}

/* A field that is set, although the metric's kind does not read it; NULL if there is none. */
LENS_FN const char *lens_unread_field(const lens_metric *m)
{
    if (m->token && !lens_metric_has_token(m))
        return "token";
    if (m->against && !lens_metric_against(m))
        return "against";
    if (m->from_end && !lens_metric_is_local(m))
        return "from_end";
    if (m->targets && m->kind != LENS_METRIC_LOSS)
        return "targets";
    return m->fn && !lens_metric_is_function(m) ? "fn" : NULL;
}

/* Checks a metric for a text of n tokens. */
LENS_FN attn_status lens_need_metric(attn_ctx *ctx, const char *op, const lens_metric *m,
                                     size_t n_vocab, size_t n)
{
    static const char *const kinds[] = {"LOSS",     "LOGIT",    "LOGIT_DIFF",
                                        "LOG_PROB", "FUNCTION", "FUNCTION_AT"};
    size_t n_targets = 0;
    if ((unsigned)m->kind > LENS_METRIC_FUNCTION_AT)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "%s: kind %d is none of LENS_METRIC_LOSS, _LOGIT, _LOGIT_DIFF, "
                         "_LOG_PROB, _FUNCTION, _FUNCTION_AT",
                         op, (int)m->kind);
    if (lens_unread_field(m))
        return attn_fail(
            ctx, ATTN_E_ARGUMENT,
            "%s: the metric's %s is set, but its kind LENS_METRIC_%s does not read it; "
            "set kind to what is measured, and leave other fields zero",
            op, lens_unread_field(m), kinds[m->kind]);
    if (lens_metric_is_function(m) && !m->fn)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no function of the metric given (NULL)", op);
    if (lens_metric_is_local(m)) {
        if (m->from_end >= n)
            return attn_fail(ctx, ATTN_E_ARGUMENT,
                             "%s: position %llu from the end; the text has %llu tokens", op,
                             LENS_LLU(m->from_end), LENS_LLU(n));
        if (lens_metric_is_function(m))
            return ATTN_OK;
        return lens_need_target(ctx, op, "token", m->token, n_vocab)
                   ? ctx->status
                   : lens_need_target(ctx, op, "against", m->against, n_vocab);
    }
    for (size_t t = 0; m->kind == LENS_METRIC_LOSS && m->targets && t < n; t++) {
        if (m->targets[t] == -1)
            continue;
        n_targets++;
        if (lens_need_target(ctx, op, "a target", m->targets[t], n_vocab) != ATTN_OK)
            return lens_failure(ctx);
    }
    if (m->kind == LENS_METRIC_LOSS && (m->targets ? n_targets == 0 : n < 2))
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no position has a token whose loss counts", op);
    return ATTN_OK;
}

/* value = log p(token), and logits [1, V] become d value / d logits = onehot(token) - p. */
LENS_FN attn_status lens_log_prob_back(attn_ctx *ctx, float *value, attn_tensor logits,
                                       attn_token token)
{
    attn_tensor logs = ATTN_ZERO;
    float *row = (float *)logits.data;
    const int failed = attn_log_softmax(ctx, &logs, logits) || attn_softmax(ctx, &logits, logits) ||
                       attn_scale(ctx, &logits, logits, -1);
    if (!failed) {
        *value = attn_get2(logs, 0, (size_t)token);
        row[token] += 1;
    }
    attn_tensor_free(ctx, &logs);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* The token whose loss counts after position t; -1 if there is none. */
LENS_FN attn_token lens_target_of(const lens_metric *m, const attn_token *tokens, size_t n,
                                  size_t t)
{
    if (m->targets)
        return m->targets[t];
    return t + 1 < n ? tokens[t + 1] : -1;
}

/* value = the mean of -log p(target), and logits [T, V] become d value / d logits =
 * (p - onehot(target)) / n, 0 where no target counts. */
LENS_FN attn_status lens_loss_back(attn_ctx *ctx, float *value, attn_tensor logits,
                                   const lens_metric *m, const attn_token *tokens)
{
    const size_t n = logits.shape[0], n_vocab = logits.shape[1];
    attn_tensor targets = ATTN_ZERO, losses = ATTN_ZERO, total = ATTN_ZERO;
    size_t n_targets = 0;
    int failed = attn_zeros(ctx, &targets, ATTN_I32, attn_shape1(n)) != ATTN_OK;
    for (size_t t = 0; t < n && !failed; t++)
        if (lens_target_of(m, tokens, n, t) >= 0) {
            ((int32_t *)targets.data)[t] = lens_target_of(m, tokens, n, t);
            n_targets++;
        }
    failed = failed || attn_cross_entropy(ctx, &losses, logits, targets) ||
             attn_softmax(ctx, &logits, logits);
    for (size_t t = 0; t < n && !failed; t++) {
        float *row = (float *)logits.data + t * n_vocab;
        if (lens_target_of(m, tokens, n, t) >= 0) {
            row[((const int32_t *)targets.data)[t]] -= 1;
        } else {
            ((float *)losses.data)[t] = 0;
            memset(row, 0, n_vocab * sizeof *row);
        }
    }
    failed = failed || attn_scale(ctx, &logits, logits, 1.0f / (float)n_targets) ||
             attn_sum(ctx, &total, losses);
    if (!failed)
        *value = attn_get1(total, 0) / (float)n_targets;
    attn_tensor_free(ctx, &targets);
    attn_tensor_free(ctx, &losses);
    attn_tensor_free(ctx, &total);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* The metric of the caller's function. logits [T, V] become its d_logits. */
LENS_FN attn_status lens_function_back(attn_ctx *ctx, float *value, attn_tensor logits,
                                       const lens_metric *m)
{
    attn_tensor d_logits = ATTN_ZERO;
    attn_status status =
        attn_zeros(ctx, &d_logits, ATTN_F32, attn_shape2(logits.shape[0], logits.shape[1]));
    if (status == ATTN_OK && m->fn(value, d_logits, logits, m->user) != 0)
        status = ATTN_STOPPED;
    if (status == ATTN_OK)
        status = attn_copy(ctx, &logits, d_logits);
    attn_tensor_free(ctx, &d_logits);
    return status;
}

/* LOGIT or LOGIT_DIFF of a row of logits [V]. */
LENS_FN float lens_logit_value(const lens_metric *m, const float *row)
{
    const attn_token *against = lens_metric_against(m);
    return row[m->token] - (against ? row[*against] : 0);
}

/* The same of logits [1, V], which become d value / d logits. */
LENS_FN void lens_logit_back(float *value, attn_tensor logits, const lens_metric *m)
{
    const attn_token *against = lens_metric_against(m);
    float *row = (float *)logits.data;
    *value = lens_logit_value(m, row);
    memset(row, 0, logits.shape[1] * sizeof *row);
    row[m->token] += 1;
    if (against)
        row[*against] -= 1;
}

/* *value: the metric of logits, which become d value / d logits. They are dense, [1, V] at the metric's
 * position if lens_metric_is_local, else [T, V]. */
LENS_FN attn_status lens_metric_back(attn_ctx *ctx, float *value, attn_tensor logits,
                                     const lens_metric *m, const attn_token *tokens)
{
    switch (m->kind) {
    case LENS_METRIC_LOGIT:
    case LENS_METRIC_LOGIT_DIFF:
        lens_logit_back(value, logits, m);
        return ATTN_OK;
    case LENS_METRIC_LOG_PROB:
        return lens_log_prob_back(ctx, value, logits, m->token);
    case LENS_METRIC_LOSS:
        return lens_loss_back(ctx, value, logits, m, tokens);
    default:
        return lens_function_back(ctx, value, logits, m);
    }
}

/* *value: the metric of logits [1, V] or [T, V], dense, as lens_metric_back takes them. They do not
 * change. `tokens` [T] is the text, which LOSS without targets needs. */
LENS_FN attn_status lens_metric_value(attn_ctx *ctx, float *value, attn_tensor logits,
                                      const lens_metric *m, const attn_token *tokens)
{
    const size_t n = lens_metric_is_local(m) ? m->from_end + 1 : logits.shape[0];
    attn_tensor copy = ATTN_ZERO;
    if (lens_need_metric(ctx, "lens_metric_value", m, logits.shape[1], n) != ATTN_OK)
        return lens_failure(ctx);
    if (lens_metric_is_linear(m)) {
        *value = lens_logit_value(m, (const float *)logits.data);
        return ATTN_OK;
    }
    attn_status status = attn_copy(ctx, &copy, logits);
    if (status == ATTN_OK)
        status = lens_metric_back(ctx, value, copy, m, tokens);
    attn_tensor_free(ctx, &copy);
    return status;
}

/* Checks a pair of texts and its metric. */
LENS_FN attn_status lens_need_pair(attn_ctx *ctx, const char *op, const attn_model *model,
                                   const lens_pair *pair)
{
    const size_t n_vocab = attn_model_config(model)->n_vocab;
    if (!pair || !pair->clean || !pair->corrupted)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no %s given (NULL)", op,
                         !pair          ? "pair of texts"
                         : !pair->clean ? "clean text"
                                        : "corrupted text");
    if (lens_need_tokens(ctx, op, model, pair->clean, pair->n_tokens) != ATTN_OK)
        return lens_failure(ctx);
    for (size_t i = 0; i < 2 * pair->n_tokens; i++) {
        const attn_token token = (i % 2 ? pair->corrupted : pair->clean)[i / 2];
        if (token < 0 || (size_t)token >= n_vocab)
            return attn_fail(
                ctx, ATTN_E_TOKEN, "%s: %s token %llu is %ld; the vocabulary is 0 to %llu", op,
                i % 2 ? "corrupted" : "clean", LENS_LLU(i / 2), (long)token, LENS_LLU(n_vocab - 1));
    }
    return lens_need_metric(ctx, op, &pair->metric, n_vocab, pair->n_tokens);
}

#endif
