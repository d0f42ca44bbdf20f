/* lens ablate: the loss or a logit without each head. */
#ifndef LENS_CMD_ABLATE_H
#define LENS_CMD_ABLATE_H

#include "each_pair.h"
#include "question.h"

typedef struct ablation {
    question question; /* if question.text is NULL, the answer is the mean loss */
    size_t position;
    lens_pair text; /* that of the command line */
    double whole;   /* the answer of the unchanged model; of --pairs, the mean */
    double most;    /* the largest change, by magnitude */
    results changes;
} ablation;

/* Chooses the metric: the loss, or a logit if --token, --at or --pairs is given. */
static int choose_answer(lens *l, ablation *a)
{
    const int asks = l->o.token || l->o.position != not_given;
    int code;
    if (l->pairs) {
        a->question.metric = l->pairs[0].metric;
        a->question.text = keep(l, "logits of the pairs' tokens (mean of %zu pairs)", l->n_pairs);
        return FINE;
    }
    if ((code = choose_position(l, &a->position)) != FINE)
        return code;
    if (!asks && l->text.n < 2)
        return fail(FAILED, "a text of one token has no loss: give a longer one, or --token");
    a->question.metric.kind = LENS_METRIC_LOSS;
    if (asks && (code = ask_about_logit(l, a->position, &a->question, NULL)) != FINE)
        return code;
    a->text.clean = l->text.ids;
    a->text.n_tokens = a->position + 1;
    a->text.metric = a->question.metric;
    return FINE;
}

static int ablate_all(lens *l, ablation *a)
{
    const size_t n = (size_t)l->config->n_layer * l->config->n_head;
    double *const changes = (double *)allocate(l, n, sizeof *changes);
    float *const rounded = (float *)allocate(l, n, sizeof *rounded);
    lens_ablate_desc d = {0};
    if (!changes || !rounded || room_for_each(l, &d.each, n))
        return failed(&l->ctx);
    d.pairs = l->pairs ? l->pairs : &a->text;
    d.n_pairs = l->pairs ? l->n_pairs : 1;
    if (lens_ablate_heads(&l->ctx, changes, &a->whole, l->model, &d) != ATTN_OK)
        return failed(&l->ctx);
    a->most = 1e-9;
    for (size_t i = 0; i < n; i++) {
        rounded[i] = (float)changes[i];
        a->most = fmax(a->most, fabs(changes[i]));
    }
    a->changes = (results){rounded, d.each, n, 0};
    return FINE;
}

static void dress_ablation(lens *l, const void *of)
{
    static const char *const forms[] = {"%.2f", "%.3f", "%.4f"};
    const ablation *const a = (const ablation *)of;
    const char *const form = forms[(a->most < 0.1) + (a->most < 1)];
    const int is_logit = a->question.text != NULL;
    lens_grid *const grid =
        add_head_grid(l, !is_logit ? "how much higher the mean loss is without the head, in nats"
                         : lens_metric_against(&a->question.metric)
                             ? "how much larger the difference of the logits is without the head"
                             : "how much higher the logit is without the head");
    show_column(l, grid, "heads", "change", 0);
    spell_cells(l, grid, form, "layer %s, head %s\n%+.5f");
    scale_cells(l, grid, a->most, form);
}

static void add_ablation(lens *l, const ablation *a)
{
    if (l->pairs)
        facts(l, "n_pairs:z", l->n_pairs);
    else if (a->question.text)
        facts(l, "position:z", a->position);
    facts(l, a->question.text ? "logit" : "mean_loss", a->whole);
    if (a->question.text)
        add_question(l, &a->question);
    answer_table *const t = add_table(l, "heads");
    add_layers_and_heads(l, t);
    const measured_column *const m = new_measure(l, t, "change");
    if (m)
        take_rows(l, m, 0, NULL, m->n, a->changes);
}

static const char *note_of_ablation(lens *l, const ablation *a)
{
    if (!a->question.text)
        return keep(l,
                    "Mean loss %.4f nats over %zu tokens. Each cell sets one head to zero. A "
                    "positive change is a head that helps.",
                    a->whole, l->text.n - 1);
    return keep(
        l,
        "%s after %s: %.4f. Each cell sets one head to zero. A negative change is a head that "
        "raises it.",
        a->question.text,
        l->pairs
            ? "the clean text"
            : keep(l, "position %zu %s", a->position, brief(l, l->text.shown[a->position], 40)),
        a->whole);
}

static int run_ablate(lens *l, void *finding)
{
    ablation *const a = (ablation *)finding;
    int code;
    show_as(l, "Ablation of heads", dress_ablation);
    if ((code = choose_answer(l, a)) != FINE || (code = ablate_all(l, a)) != FINE)
        return code;
    add_ablation(l, a);
    l->shown.page.note = note_of_ablation(l, a);
    return show_pairs(l, LENS_SPREAD_VALUES);
}

#endif
