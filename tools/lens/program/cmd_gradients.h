/* lens gradients: how a logit, a log-probability or a loss changes with each activation. */
#ifndef LENS_CMD_GRADIENTS_H
#define LENS_CMD_GRADIENTS_H

#include "tools/lens/gradients.h"
#include "question.h"
#include "cmd_record.h"

enum { METHOD_PLAIN, METHOD_EAP, METHOD_EAP_IG, METHOD_GIM };
#define METHOD_NAMES "plain eap eap-ig gim gim-norm gim-softmax gim-qkv"

static const struct {
    const char *title;
    int rules; /* bits of lens_rule */
} methods[] = {{"plain", 0},
               {"EAP", 0},
               {"EAP-IG", 0},
               {"GIM", LENS_RULES_GIM},
               {"GIM's rule of LayerNorm alone", LENS_RULE_NORM},
               {"GIM's rule of softmax alone", LENS_RULE_SOFTMAX},
               {"GIM's rule of q, k and v alone", LENS_RULE_QKV}};

/* Backward passes by --method in the model that --edit makes. */
static attn_status new_backward(lens *l, lens_backward *backward)
{
    const attn_status status = lens_backward_new(&l->ctx, backward, l->model);
    backward->edits = l->edits;
    backward->n_edits = l->n_edits;
    backward->rules = l->o.method > 0 ? methods[l->o.method].rules : 0;
    return status;
}

enum { METRIC_LOGIT, METRIC_LOG_PROB, METRIC_LOSS };
#define METRIC_NAMES "logit log-prob loss"

/* The metric that the options name. Without --token it is about the likeliest token. */
static int choose_metric(lens *l, lens_metric *metric)
{
    const size_t at = l->o.position == not_given ? l->text.n - 1 : l->o.position;
    float *logits = (float *)allocate(l, l->config->n_vocab, sizeof *logits);
    question q = ATTN_ZERO;
    int code;
    if (!logits)
        return failed(&l->ctx);
    q.metric.kind = LENS_METRIC_LOGIT;
    if (l->o.metric == METRIC_LOSS)
        return FINE;
    if (at >= l->text.n)
        return fail(FAILED, "there is no position %zu: the text has %zu tokens, from 0", at,
                    l->text.n);
    if ((!l->o.token && (code = likeliest(l, &l->text, at + 1, &q.metric.token, logits)) != FINE) ||
        (code = name_tokens(l, &q)) != FINE)
        return code;
    *metric = q.metric;
    if (l->o.metric == METRIC_LOG_PROB)
        metric->kind = LENS_METRIC_LOG_PROB;
    metric->from_end = l->text.n - 1 - at;
    return FINE;
}

/* Writes the gradients to a file, each under the name and in the shape of its activation. */
static int run_gradients(lens *l)
{
    lens_backward backward = ATTN_ZERO;
    lens_gradients_desc what = ATTN_ZERO;
    attn_record *gradients = NULL;
    float value = 0;
    int code;
    if ((code = choose_metric(l, &what.metric)) != FINE)
        return code;
    what.tokens = l->text.ids;
    what.n_tokens = l->text.n;
    what.names = l->names;
    what.n_names = l->n_names;
    if (new_backward(l, &backward) ||
        lens_gradients(&l->ctx, &gradients, &value, &backward, &what) ||
        lens_save_record(&l->ctx, l->o.output, gradients))
        code = failed(&l->ctx);
    if (code == FINE && l->o.json)
        json_record(l, gradients);
    else if (code == FINE)
        printf("metric %.6f; gradients of %zu activations in %s\n", (double)value,
               attn_record_n_activations(gradients), l->o.output);
    attn_record_free(gradients);
    lens_backward_free(&l->ctx, &backward);
    return code;
}

#endif
