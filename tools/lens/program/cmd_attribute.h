/* lens attribute: what each head and each MLP adds to a logit. */
#ifndef LENS_CMD_ATTRIBUTE_H
#define LENS_CMD_ATTRIBUTE_H

#include "question.h"
#include "tools/lens/logits.h"

/* The terms that sum to a logit: by layers and heads (the last column is the MLP), and the others. */
typedef struct terms {
    lens_grid layers, others;
    double sum;
    float logit; /* the model's own */
} terms;

static void set_term(lens *l, lens_grid *grid, size_t row, size_t column, float value)
{
    lens_cell *cell = cell_of(grid, row, column);
    cell->number = value;
    cell->text = keep(l, "%.2f", fabs((double)value) < 0.005 ? 0.0 : (double)value);
}

/* Writes a part to the cell that its label names: "L3H4", "3_mlp_out"; or to the others. */
static void place_term(lens *l, terms *out, const char *label, float value, size_t *n_others)
{
    unsigned layer, head;
    char end;
    out->sum += (double)value;
    /* NOLINTBEGIN(cert-err34-c): the numbers are lens_parts_label's */
    if (sscanf(label, "L%uH%u%c", &layer, &head, &end) == 2) {
        set_term(l, &out->layers, layer, head, value);
    } else if (sscanf(label, "%u_mlp_ou%c", &layer, &end) == 2) {
        /* NOLINTEND(cert-err34-c) */
        set_term(l, &out->layers, layer, l->config->n_head, value);
    } else {
        ((const char **)out->others.columns)[*n_others] = keep(l, "%s", label);
        set_term(l, &out->others, 0, (*n_others)++, value);
    }
}

/* Computes the terms of out->logit. What edits of the stream add belongs to no part: it is the difference
 * between the logit and the sum. */
static int find_terms(lens *l, const question *q, size_t position, terms *out)
{
    const lens_parts_desc heads = parts_of_text(l, LENS_PARTS_HEADS, position, 1);
    attn_tensor parts = {0}, scale = {0}, directions = {0}, values = {0}, bias = {0};
    size_t i, n_others = 0, n_parts = lens_parts_count(l->model, &heads);
    const size_t n_edited = l->n_edits > 0;
    const attn_token *const against = lens_metric_against(&q->metric);
    int code;
    if (attn_logit_directions(&l->ctx, &directions, l->model, &q->metric.token, against, 1) ||
        decompose_edited(l, &parts, &scale, &heads) ||
        lens_logit_attrs(&l->ctx, &values, l->model, parts, scale, directions) ||
        lens_bias_logit_attrs(&l->ctx, &bias, l->model, &q->metric.token, against, 1))
        return failed(&l->ctx);
    if ((code = make_grid(l, &out->layers, l->config->n_layer, l->config->n_head + 1)) != FINE ||
        (code = make_grid(l, &out->others, 1,
                          n_parts + 1 + n_edited -
                              l->config->n_layer * ((size_t)l->config->n_head + 1))) != FINE)
        return code;
    ((const char **)out->layers.columns)[l->config->n_head] = "MLP";
    ((const char **)out->others.rows)[0] = "";
    for (i = 0; i < n_parts; i++)
        place_term(l, out, lens_parts_label(l->model, &heads, i).text, attn_get2(values, i, 0),
                   &n_others);
    place_term(l, out, l->config->has_b_U ? "b_U" : "ln_final.b", attn_get1(bias, 0), &n_others);
    if (n_edited)
        place_term(l, out, "edits", (float)((double)out->logit - out->sum), &n_others);
    return FINE;
}

/* Sets colours and tooltips, which need the largest term. */
static void finish_terms(lens *l, terms *out)
{
    lens_grid *const grids[] = {&out->layers, &out->others};
    double most = 1e-9;
    size_t g, i;
    for (g = 0; g < 2; g++)
        for (i = 0; i < grids[g]->n_rows * grids[g]->n_columns; i++)
            most = fmax(most, fabs((double)grids[g]->cells[i].number));
    for (g = 0; g < 2; g++) {
        grids[g]->low = keep(l, "-%.2f", most);
        grids[g]->high = keep(l, "%.2f", most);
        for (i = 0; i < grids[g]->n_rows * grids[g]->n_columns; i++) {
            lens_cell *cell = cell_of(grids[g], 0, i);
            const char *column = grids[g]->columns[i % grids[g]->n_columns];
            cell->colour = (float)((double)cell->number / most);
            cell->tip =
                g ? keep(l, "%s\n%.5f", column, (double)cell->number)
                  : keep(l, "layer %zu, %s%s\n%.5f", i / grids[g]->n_columns,
                         strcmp(column, "MLP") ? "head " : "", column, (double)cell->number);
        }
    }
    out->layers.title = "what heads and MLPs add to it";
    out->others.title = "other terms";
    out->others.row_name = "";
    out->others.column_name = "part";
}

typedef struct attribution {
    size_t position;
    question question;
    terms terms;
} attribution;

static void json_attribution(const lens *l, const void *of)
{
    const attribution *a = (const attribution *)of;
    printf("\"position\": %zu, \"logit\": ", a->position);
    json_figure((double)a->terms.logit);
    json_named(", \"sum\": ", a->terms.sum);
    json_question(l, &a->question);
}

static int run_attribute(lens *l)
{
    const size_t position = l->o.position == not_given ? l->text.n - 1 : l->o.position;
    float *logits = (float *)allocate(l, l->config->n_vocab, sizeof *logits);
    attribution a = {0};
    lens_grid grids[2];
    findings found = {make_page(l, "Direct logit attribution"), grids, 2, json_attribution, &a};
    int code;
    a.position = position;
    a.question.metric.kind = LENS_METRIC_LOGIT;
    if (!logits)
        return failed(&l->ctx);
    if (position >= l->text.n)
        return fail(FAILED, "there is no position %zu: the text has %zu tokens, from 0", position,
                    l->text.n);
    if ((code = likeliest(l, &l->text, position + 1, &a.question.metric.token, logits)) != FINE ||
        (code = name_tokens(l, &a.question)) != FINE)
        return code;
    a.terms.logit = lens_logit_value(&a.question.metric, logits);
    if ((code = find_terms(l, &a.question, position, &a.terms)) != FINE)
        return code;
    finish_terms(l, &a.terms);
    grids[0] = a.terms.layers;
    grids[1] = a.terms.others;
    found.page.note =
        keep(l,
             "%s after position %zu %s: %.4f; the terms sum to %.4f. A positive term raises it, a "
             "negative one lowers it.",
             a.question.text, position, brief(l, l->text.shown[position], 40),
             (double)a.terms.logit, a.terms.sum);
    return present(l, &found);
}

#endif
