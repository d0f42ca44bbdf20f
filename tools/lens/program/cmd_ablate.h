/* lens ablate: the loss or a logit without each head. */
#ifndef LENS_CMD_ABLATE_H
#define LENS_CMD_ABLATE_H

#include "each_pair.h"
#include "question.h"

typedef struct ablation {
    question question; /* if question.text is NULL, the answer is the mean loss */
    size_t position;
    lens_pair text;  /* that of the command line */
    double whole;    /* the answer of the unchanged model; of --pairs, the mean */
    double *changes; /* [layers * heads] */
} ablation;

/* Chooses the metric: the loss, or a logit if --token, --at or --pairs is given. */
static int choose_answer(lens *l, ablation *a)
{
    const int asks = l->o.token || l->o.position != not_given;
    float *logits = (float *)allocate(l, l->config->n_vocab, sizeof *logits);
    int code;
    if (l->pairs) {
        a->question.metric = l->pairs[0].metric;
        a->question.text = keep(l, "logits of the pairs' tokens (mean of %zu pairs)", l->n_pairs);
        return FINE;
    }
    a->position = l->o.position == not_given ? l->text.n - 1 : l->o.position;
    if (!logits)
        return failed(&l->ctx);
    if (a->position >= l->text.n)
        return fail(FAILED, "there is no position %zu: the text has %zu tokens, from 0",
                    a->position, l->text.n);
    if (!asks && l->text.n < 2)
        return fail(FAILED, "a text of one token has no loss: give a longer one, or --token");
    a->question.metric.kind = asks ? LENS_METRIC_LOGIT : LENS_METRIC_LOSS;
    if (asks && ((code = likeliest(l, &l->text, a->position + 1, &a->question.metric.token,
                                   logits)) != FINE ||
                 (code = name_tokens(l, &a->question)) != FINE))
        return code;
    a->text.clean = l->text.ids;
    a->text.n_tokens = a->position + 1;
    a->text.metric = a->question.metric;
    return FINE;
}

static int ablate_all(lens *l, ablation *a, lens_grid *grid)
{
    lens_ablate_desc d = {0};
    double most = 1e-9;
    int decimals, code;
    size_t i, n;
    if ((code = make_grid(l, grid, l->config->n_layer, l->config->n_head)) != FINE)
        return code;
    n = grid->n_rows * grid->n_columns;
    if (!(a->changes = (double *)allocate(l, n, sizeof *a->changes)))
        return failed(&l->ctx);
    if (l->pairs && (code = make_each(l, grid, NULL)) != FINE)
        return code;
    d.pairs = l->pairs ? l->pairs : &a->text;
    d.n_pairs = l->pairs ? l->n_pairs : 1;
    d.each = grid->each;
    if (lens_ablate_heads(&l->ctx, a->changes, &a->whole, l->model, &d) != ATTN_OK)
        return failed(&l->ctx);
    for (i = 0; i < n; i++) {
        cell_of(grid, 0, i)->number = (float)a->changes[i];
        most = fmax(most, fabs(a->changes[i]));
    }
    decimals = most < 0.1 ? 4 : most < 1 ? 3 : 2;
    for (i = 0; i < n; i++) {
        lens_cell *cell = cell_of(grid, 0, i);
        cell->text = keep(l, "%.*f", decimals, (double)cell->number);
        cell->tip = keep(l, "layer %zu, head %zu\n%+.5f", i / grid->n_columns, i % grid->n_columns,
                         (double)cell->number);
    }
    grid->low = keep(l, "-%.*f", decimals, most);
    grid->high = keep(l, "%.*f", decimals, most);
    colour_cells(grid, most);
    return FINE;
}

static void json_ablation(const lens *l, const void *of)
{
    const ablation *a = (const ablation *)of;
    if (l->pairs)
        printf("\"pairs\": %zu, \"logit\": ", l->n_pairs);
    else if (a->question.text)
        printf("\"position\": %zu, \"logit\": ", a->position);
    else
        fputs("\"mean_loss\": ", stdout);
    json_figure(a->whole);
    if (a->question.text)
        json_question(l, &a->question);
    else
        fputs(",\n", stdout);
}

static int run_ablate(lens *l)
{
    ablation a = {0};
    lens_grid grid;
    findings found = {make_page(l, "Ablation of heads"), &grid, 1, json_ablation, &a};
    int code;
    if ((code = choose_answer(l, &a)) != FINE || (code = ablate_all(l, &a, &grid)) != FINE)
        return code;
    if (a.question.text) {
        grid.title = "how much higher the logit is without the head";
        found.page.note = keep(
            l,
            "%s after %s: %.4f. Each cell sets one head to zero. A negative change is a head that "
            "raises it.",
            a.question.text,
            l->pairs
                ? "the clean text"
                : keep(l, "position %zu %s", a.position, brief(l, l->text.shown[a.position], 40)),
            a.whole);
        if (lens_metric_against(&a.question.metric))
            grid.title = "how much larger the difference of the logits is without the head";
    } else {
        grid.title = "how much higher the mean loss is without the head, in nats";
        found.page.note = keep(l,
                               "Mean loss %.4f nats over %zu tokens. Each cell sets one head to "
                               "zero. A positive change is a head that helps.",
                               a.whole, l->text.n - 1);
    }
    return present_pairs(l, &found, LENS_SPREAD_VALUES);
}

#endif
