/* lens ablate: the loss or a logit without each head. One head's z at a time is set to zero, so that the
 * head adds nothing to the stream, and the text runs again. */
#ifndef LENS_CMD_ABLATE_H
#define LENS_CMD_ABLATE_H

#include "each_pair.h"
#include "question.h"

typedef struct ablation {
    question question; /* if question.text is NULL, the answer is the mean loss */
    size_t position;
    attn_token_stats *stats; /* [n - 1] */
    double whole;            /* the answer of the unchanged model; of --pairs, the mean */
    double *changes;         /* [layers * heads], summed over the pairs */
} ablation;

/* The answer of the session, with its hooks. */
static int find_answer(lens *l, ablation *a, double *answer)
{
    const int is_loss = !a->question.text;
    attn_status status = attn_session_truncate(&l->ctx, l->session, 0);
    if (status == ATTN_OK)
        status = is_loss ? attn_score(&l->ctx, a->stats, NULL, l->session, l->text.ids, l->text.n)
                         : attn_feed(&l->ctx, l->session, l->text.ids, a->position + 1);
    if (status != ATTN_OK)
        return failed(&l->ctx);
    *answer = is_loss
                  ? attn_mean_nll(a->stats, l->text.n - 1)
                  : (double)lens_logit_value(&a->question.metric, attn_session_logits(l->session));
    return FINE;
}

static int without_head(lens *l, ablation *a, size_t layer, size_t head, double *answer)
{
    char name[64];
    attn_edit edit = {0};
    uint32_t hook;
    int code;
    snprintf(name, sizeof name, "blocks.%zu.attn.hook_z", layer);
    edit.name = name;
    edit.kind = ATTN_EDIT_ZERO;
    edit.first_head = head;
    edit.n_heads = 1;
    if (attn_hook_edit(&l->ctx, &hook, l->session, &edit))
        return failed(&l->ctx);
    code = find_answer(l, a, answer);
    return attn_unhook(&l->ctx, l->session, hook) && code == FINE ? failed(&l->ctx) : code;
}

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
    a->question.metric.kind = LENS_METRIC_LOGIT;
    a->position = l->o.position == not_given ? l->text.n - 1 : l->o.position;
    a->stats = (attn_token_stats *)allocate(l, l->text.n, sizeof *a->stats);
    if (!logits || !a->stats)
        return failed(&l->ctx);
    if (a->position >= l->text.n)
        return fail(FAILED, "there is no position %zu: the text has %zu tokens, from 0",
                    a->position, l->text.n);
    if (!asks && l->text.n < 2)
        return fail(FAILED, "a text of one token has no loss: give a longer one, or --token");
    if (asks && ((code = likeliest(l, &l->text, a->position + 1, &a->question.metric.token,
                                   logits)) != FINE ||
                 (code = name_tokens(l, &a->question)) != FINE))
        return code;
    return (code = make_session(l, 0)) == FINE ? find_answer(l, a, &a->whole) : code;
}

/* Adds the changes of the text's answer without each head. */
static int add_changes(lens *l, ablation *a, double whole, float *each)
{
    const size_t n = l->config->n_head;
    double answer = 0;
    size_t i;
    int code = FINE;
    for (i = 0; i < l->config->n_layer * n && code == FINE; i++) {
        code = without_head(l, a, i / n, i % n, &answer);
        a->changes[i] += answer - whole;
        if (each)
            each[i] = (float)(answer - whole);
    }
    return code;
}

/* --pairs: the means over all clean texts. */
static int ablate_pairs(lens *l, ablation *a, const lens_grid *grid)
{
    double whole = 0;
    size_t i;
    int code = FINE;
    for (i = 0; i < l->n_pairs && code == FINE; i++) {
        l->text.ids = (attn_token *)l->pairs[i].clean;
        l->text.n = l->pairs[i].n_tokens;
        a->position = l->text.n - 1;
        a->question.metric = l->pairs[i].metric;
        attn_session_free(l->session);
        l->session = NULL;
        if ((code = make_session(l, 0)) != FINE || (code = find_answer(l, a, &whole)) != FINE)
            return code;
        a->whole += whole / (double)l->n_pairs;
        if (grid->each)
            cells_of_pair(grid, i)[-2] = (float)whole;
        code = add_changes(l, a, whole, cells_of_pair(grid, i));
    }
    for (i = 0; i < grid->n_rows * grid->n_columns; i++)
        a->changes[i] /= (double)l->n_pairs;
    return code;
}

static int ablate_all(lens *l, ablation *a, lens_grid *grid)
{
    double most = 1e-9;
    int decimals, code;
    size_t i, n;
    if ((code = make_grid(l, grid, l->config->n_layer, l->config->n_head)) != FINE)
        return code;
    n = grid->n_rows * grid->n_columns;
    if (!(a->changes = (double *)allocate(l, n, sizeof *a->changes)))
        return failed(&l->ctx);
    memset(a->changes, 0, n * sizeof *a->changes);
    if (l->pairs && (code = make_each(l, grid, NULL)) != FINE)
        return code;
    code = l->pairs ? ablate_pairs(l, a, grid) : add_changes(l, a, a->whole, NULL);
    if (code != FINE)
        return code;
    for (i = 0; i < n; i++) {
        cell_of(grid, 0, i)->number = (float)a->changes[i];
        most = fmax(most, fabs(a->changes[i]));
    }
    decimals = most < 0.1 ? 4 : most < 1 ? 3 : 2;
    for (i = 0; i < grid->n_rows * grid->n_columns; i++) {
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
