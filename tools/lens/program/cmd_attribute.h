/* lens attribute: what each head and each MLP adds to a logit. */
#ifndef LENS_CMD_ATTRIBUTE_H
#define LENS_CMD_ATTRIBUTE_H

#include "question.h"
#include "tools/lens/edges.h"
#include "tools/lens/logits.h"

/* The terms that sum to a logit: heads and the MLP of each layer, in the order of senders, then the others. */
typedef struct terms {
    const char **names; /* [n] */
    float *values;      /* [n] */
    size_t n, in_layers, n_others;
    double sum;
    float logit; /* the model's own */
} terms;

/* Writes a part to the place that its label names: "L3H4", "3_mlp_out"; or to the others. */
static void place_term(lens *l, terms *out, const char *label, float value)
{
    const size_t n_head = l->config->n_head;
    unsigned layer, head;
    char end;
    size_t at = out->in_layers + out->n_others;
    /* NOLINTBEGIN(cert-err34-c): the numbers are lens_parts_label's */
    if (sscanf(label, "L%uH%u%c", &layer, &head, &end) == 2)
        at = layer * (n_head + 1) + head;
    else if (sscanf(label, "%u_mlp_ou%c", &layer, &end) == 2)
        at = layer * (n_head + 1) + n_head;
    else
        out->n_others++;
    /* NOLINTEND(cert-err34-c) */
    out->names[at] = keep(l, "%s", label);
    out->values[at] = value;
    out->sum += (double)value;
}

/* Computes the terms of out->logit. What edits of the stream add belongs to no part: it is the difference
 * between the logit and the sum. */
static int find_terms(lens *l, const question *q, size_t position, terms *out)
{
    const lens_parts_desc heads = parts_of_text(l, LENS_PARTS_HEADS, position, 1);
    attn_tensor parts = {0}, scale = {0}, directions = {0}, values = {0}, bias = {0};
    const size_t n_parts = lens_parts_count(l->model, &heads);
    const attn_token *const against = lens_metric_against(&q->metric);
    if (attn_logit_directions(&l->ctx, &directions, l->model, &q->metric.token, against, 1) ||
        decompose_edited(l, &parts, &scale, &heads) ||
        lens_logit_attrs(&l->ctx, &values, l->model, parts, scale, directions) ||
        lens_bias_logit_attrs(&l->ctx, &bias, l->model, &q->metric.token, against, 1))
        return failed(&l->ctx);
    out->n = n_parts + 1 + (l->n_edits > 0);
    out->in_layers = l->config->n_layer * ((size_t)l->config->n_head + 1);
    out->names = (const char **)allocate(l, out->n, sizeof *out->names);
    out->values = (float *)allocate(l, out->n, sizeof *out->values);
    if (!out->names || !out->values)
        return failed(&l->ctx);
    for (size_t i = 0; i < n_parts; i++)
        place_term(l, out, lens_parts_label(l->model, &heads, i).text, attn_get2(values, i, 0));
    place_term(l, out, l->config->has_b_U ? "b_U" : "ln_final.b", attn_get1(bias, 0));
    if (l->n_edits)
        place_term(l, out, "edits", (float)((double)out->logit - out->sum));
    return outcome(&l->ctx);
}

static void dress_terms(lens *l, const void *of)
{
    const terms *const found = (const terms *)of;
    const size_t width = (size_t)l->config->n_head + 1;
    double most = 1e-9;
    add_grid(l, "what heads and MLPs add to it", l->config->n_layer, width);
    add_grid(l, "other terms", 1, found->n_others);
    for (size_t g = 0; g < l->shown.n_grids; g++) {
        show_column(l, &l->shown.grids[g], "terms", "contribution", g * found->in_layers);
        most = fmax(most, largest_of(&l->shown.grids[g]));
    }
    for (size_t g = 0; g < l->shown.n_grids; g++) {
        lens_grid *const grid = &l->shown.grids[g];
        if (g) {
            name_axes(grid, "", "part");
            label_row(grid, 0, "");
            label_columns(grid, found->names + found->in_layers);
        } else {
            label_column(grid, width - 1, "MLP");
        }
        scale_cells(l, grid, most, "%.2f");
        for (size_t i = 0, column = 0; i < n_cells(grid); i++) {
            spell_cell(l, grid, i, "%.2f",
                       g                    ? "%s%s\n%.5f"
                       : column + 1 < width ? "layer %s, head %s\n%.5f"
                                            : "layer %s, %s\n%.5f");
            cell_of(grid, 0, i)->text = hundredths(l, grid->cells[i].number);
            column = column + 1 < width ? column + 1 : 0;
        }
    }
}

/* A row for each term. Those of heads and MLPs have the names of senders. */
static void add_terms(lens *l, const terms *of)
{
    const lens_graph graph = lens_graph_of(l->model);
    const size_t in_layer = (size_t)l->config->n_head + 1;
    answer_table *const t = add_rows(l, "terms", of->n, "part:s layer:z head:z | contribution");
    for (size_t i = 0; i < of->n; i++) {
        const int is_other = i >= of->in_layers, is_mlp = i % in_layer + 1 == in_layer;
        answer_put(&l->answer, t, i,
                   is_other ? of->names[i] : keep(l, "%s", lens_sender_name(&graph, i + 1).text),
                   is_other ? not_given : i / in_layer,
                   is_other || is_mlp ? not_given : i % in_layer, of->values[i]);
    }
}

static int run_attribute(lens *l, void *finding)
{
    float *const logits = (float *)allocate(l, l->config->n_vocab, sizeof *logits);
    terms *const found = (terms *)finding;
    question q = ATTN_ZERO;
    size_t position;
    int code;
    show_as(l, "Direct logit attribution", dress_terms);
    if (!logits)
        return failed(&l->ctx);
    if ((code = choose_position(l, &position)) != FINE ||
        (code = ask_about_logit(l, position, &q, logits)) != FINE)
        return code;
    found->logit = lens_logit_value(&q.metric, logits);
    if ((code = find_terms(l, &q, position, found)) != FINE)
        return code;
    facts(l, "logit sum position:z", found->logit, found->sum, position);
    add_question(l, &q);
    add_terms(l, found);
    l->shown.page.note = keep(
        l,
        "%s after position %zu %s: %.4f; the terms sum to %.4f. A positive term raises it, a "
        "negative one lowers it.",
        q.text, position, brief(l, l->text.shown[position], 40), (double)found->logit, found->sum);
    return show_answer(l);
}

#endif
