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
    backward->progress = so_far;
    backward->user = l;
    return status;
}

enum { METRIC_LOGIT, METRIC_LOG_PROB, METRIC_LOSS };
#define METRIC_NAMES "logit log-prob loss"

/* The metric that the options name. Without --token it is about the likeliest token. */
static int choose_metric(lens *l, lens_metric *metric)
{
    question q = ATTN_ZERO;
    size_t at;
    int code;
    if (l->o.metric == METRIC_LOSS)
        return FINE;
    if ((code = choose_position(l, &at)) != FINE ||
        (code = ask_about_logit(l, at, &q, NULL)) != FINE)
        return code;
    *metric = q.metric;
    if (l->o.metric == METRIC_LOG_PROB)
        metric->kind = LENS_METRIC_LOG_PROB;
    metric->from_end = l->text.n - 1 - at;
    return FINE;
}

/* A line on standard output, of what -o wrote. */
static int print_gradients(lens *l, const void *of)
{
    (void)of;
    say(l, "%s\n", l->shown.page.note);
    return FINE;
}

/* The gradients, each under the name and in the shape of its activation. */
static int run_gradients(lens *l, void *finding)
{
    lens_gradients_desc *const what = (lens_gradients_desc *)finding;
    lens_backward backward = ATTN_ZERO;
    float value = 0;
    int code;
    if ((code = choose_metric(l, &what->metric)) != FINE)
        return code;
    what->tokens = l->text.ids;
    what->n_tokens = l->text.n;
    what->names = l->o.names.at;
    what->n_names = l->o.names.n;
    if (new_backward(l, &backward) ||
        lens_gradients(&l->ctx, &l->record, &value, &backward, what) ||
        (l->o.output && lens_save_record(&l->ctx, l->o.output, l->record)))
        code = failed(&l->ctx);
    lens_backward_free(&l->ctx, &backward);
    if (code != FINE)
        return code;
    facts(l, "metric", value);
    l->shown.print = print_gradients;
    l->shown.page.note = keep(l,
                              l->o.output ? "metric %.6f; gradients of %zu activations in %s"
                                          : "metric %.6f; gradients of %zu activations",
                              (double)value, attn_record_n_activations(l->record), l->o.output);
    return show_record(l, l->record);
}

#endif
