/* A question to the model: one logit, or the difference of two. */
#ifndef LENS_QUESTION_H
#define LENS_QUESTION_H

#include "findings.h"

typedef struct question {
    int32_t token, against; /* against -1: none */
    const char *text;       /* "logit of X - logit of Y" */
} question;

static int likeliest(lens *l, const lens_text *what, size_t n, int32_t *token, float *logits)
{
    const size_t n_vocab = l->config->n_vocab;
    attn_session *session = NULL;
    attn_prediction best;
    attn_tensor row;
    attn_status status;
    status = attn_session_new(&l->ctx, &session, l->model, NULL);
    if (status == ATTN_OK)
        status =
            attn_hook(&l->ctx, NULL, session, "blocks.*.hook_resid_pre", stop_if_interrupted, NULL);
    if (status == ATTN_OK)
        status = hook_edits(l, session);
    if (status == ATTN_OK)
        status = attn_feed(&l->ctx, session, what->ids, n);
    if (status == ATTN_OK) {
        memcpy(logits, attn_logits(session), n_vocab * sizeof *logits);
        row = attn_borrow(logits, ATTN_F32, attn_shape2(1, n_vocab));
        status = attn_logit_stats(&l->ctx, NULL, &(attn_top){&best, 1}, row, NULL);
        *token = best.token;
    }
    attn_session_free(session);
    return status ? failed(&l->ctx) : FINE;
}

static int name_tokens(lens *l, question *q)
{
    int code = FINE;
    if (l->o.token)
        code = name_token(l, "token", l->o.token, &q->token);
    if (l->o.against && code == FINE)
        code = name_token(l, "against", l->o.against, &q->against);
    if (code != FINE)
        return code;
    q->text = q->against < 0 ? keep(l, "logit of %s", shown_token(l, q->token))
                             : keep(l, "logit of %s minus logit of %s", shown_token(l, q->token),
                                    shown_token(l, q->against));
    return FINE;
}

static int judge_logits(float *value, const float *logits, void *user)
{
    const question *q = (const question *)user;
    *value = logits[q->token] - (q->against < 0 ? 0 : logits[q->against]);
    return interrupted;
}

static void json_question(const lens *l, const question *q)
{
    printf(", \"token\": {");
    json_token(l, q->token);
    if (q->against >= 0) {
        printf("}, \"against\": {");
        json_token(l, q->against);
    }
    printf("},\n");
}

#endif
