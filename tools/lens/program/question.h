/* A question to the model: one logit, or the difference of two. */
#ifndef LENS_QUESTION_H
#define LENS_QUESTION_H

#include "findings.h"

typedef struct question {
    lens_metric metric; /* LENS_METRIC_LOGIT or _LOGIT_DIFF */
    const char *text;   /* "logit of X minus logit of Y"; NULL: nothing was asked */
} question;

static int likeliest(lens *l, const lens_text *what, size_t n, attn_token *token, float *logits)
{
    const size_t n_vocab = l->config->n_vocab;
    attn_session *session = NULL;
    attn_prediction best;
    attn_tensor row;
    attn_status status;
    status = attn_session_new(&l->ctx, &session, l->model, NULL);
    if (status == ATTN_OK)
        status = hook_edits(l, session);
    if (status == ATTN_OK)
        status = attn_feed(&l->ctx, session, what->ids, n);
    if (status == ATTN_OK) {
        memcpy(logits, attn_session_logits(session), n_vocab * sizeof *logits);
        row = attn_borrow(logits, ATTN_F32, attn_shape2(1, n_vocab));
        status = attn_logit_stats(&l->ctx, NULL, &(attn_top){&best, 1}, row, NULL);
        *token = best.token;
    }
    attn_session_free(session);
    return status ? failed(&l->ctx) : FINE;
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

static void json_question(const lens *l, const question *q)
{
    printf(", \"token\": {");
    json_token(l, q->metric.token);
    if (lens_metric_against(&q->metric)) {
        printf("}, \"against\": {");
        json_token(l, q->metric.against);
    }
    printf("},\n");
}

#endif
