/* A question to the model: one logit, or the difference of two. */
#ifndef LENS_QUESTION_H
#define LENS_QUESTION_H

#include "findings.h"

typedef struct question {
    lens_metric metric; /* LENS_METRIC_LOGIT or _LOGIT_DIFF */
    const char *text;   /* "logit of X minus logit of Y"; NULL: nothing was asked */
} question;

/* logits [n_vocab]: those after n tokens, in the edited model. n_ctx 0: the model's. */
static int logits_after(lens *l, const attn_token *ids, size_t n, size_t n_ctx, float *logits)
{
    attn_session_desc size = ATTN_ZERO;
    attn_session *session = NULL;
    size.n_ctx = n_ctx;
    attn_status status = attn_session_new(&l->ctx, &session, l->model, &size);
    if (status == ATTN_OK)
        status = hook_edits(l, session);
    if (status == ATTN_OK)
        status = attn_feed(&l->ctx, session, ids, n);
    if (status == ATTN_OK)
        memcpy(logits, attn_session_logits(session), l->config->n_vocab * sizeof *logits);
    attn_session_free(session);
    return status ? failed(&l->ctx) : FINE;
}

static int likeliest(lens *l, const lens_text *what, size_t n, attn_token *token, float *logits)
{
    const attn_tensor row = attn_borrow(logits, ATTN_F32, attn_shape2(1, l->config->n_vocab));
    attn_prediction best;
    const int code = logits_after(l, what->ids, n, 0, logits);
    if (code != FINE)
        return code;
    if (attn_logit_stats(&l->ctx, NULL, &(attn_top){&best, 1}, row, NULL) != ATTN_OK)
        return failed(&l->ctx);
    *token = best.token;
    return FINE;
}

/* Completes a question: its tokens from --token and --against, if they are given, and its text. */
static int name_tokens(lens *l, question *q)
{
    lens_metric *const m = &q->metric;
    int code = FINE;
    if (l->o.token) {
        m->kind = LENS_METRIC_LOGIT;
        m->against = 0;
        code = name_token(l, "token", l->o.token, &m->token);
    }
    if (l->o.against && code == FINE) {
        m->kind = LENS_METRIC_LOGIT_DIFF;
        code = name_token(l, "against", l->o.against, &m->against);
    }
    if (code != FINE)
        return code;
    q->text = lens_metric_against(m) ? keep(l, "logit of %s minus logit of %s",
                                            quoted_token(l, m->token), quoted_token(l, m->against))
                                     : keep(l, "logit of %s", quoted_token(l, m->token));
    return FINE;
}

/* *position: that of --at, or the last one of the text. */
static int choose_position(const lens *l, size_t *position)
{
    *position = l->o.position == not_given ? l->text.n - 1 : l->o.position;
    return *position < l->text.n
               ? FINE
               : fail(FAILED, "there is no position %zu: the text has %zu tokens, from 0",
                      *position, l->text.n);
}

/* Asks about a logit after a position; of the likeliest token, if --token names none. logits [n_vocab] are those there;
 * NULL: only the tokens matter, and the model runs for the likeliest one alone. */
static int ask_about_logit(lens *l, size_t position, question *q, float *logits)
{
    float *const to = logits ? logits : (float *)allocate(l, l->config->n_vocab, sizeof *logits);
    int code = to ? FINE : failed(&l->ctx);
    q->metric.kind = LENS_METRIC_LOGIT;
    if (code == FINE && (logits || !l->o.token))
        code = likeliest(l, &l->text, position + 1, &q->metric.token, to);
    return code == FINE ? name_tokens(l, q) : code;
}

/* The question's tokens as facts. */
static void add_question(lens *l, const question *q)
{
    facts(l, "target:t", q->metric.token);
    if (lens_metric_against(&q->metric))
        facts(l, "against:t", q->metric.against);
}

#endif
