/* lens edges --curve: how well circuits of growing size answer, by estimates, true effects and chance. */
#ifndef LENS_CMD_CURVE_H
#define LENS_CMD_CURVE_H

#include "circuit_file.h"
#include "cmd_exact.h"
#include "draw/svg_chart.h"
#include "tools/lens/curve.h"

enum { BY_EAP, BY_EAP_IG, BY_GIM, BY_EFFECT, BY_CHANCE, BY_FILE, N_METHODS };
enum { N_ORDERS = 2, CURVE_COLUMNS = LENS_CURVE_POINTS + 2 };

static const char *const order_names[N_ORDERS] = {"helpful", "largest"};

typedef struct curve_finding {
    patching p;
    lens_graph graph;
    const char *methods[N_METHODS];
    size_t n_methods;  /* the last one only with --circuit */
    attn_tensor given; /* [S, R]: scores of --circuit */
    lens_curve curves[N_METHODS][N_ORDERS];
    double agreement[N_METHODS]; /* with --circuit: the rank correlation with the file's scores */
    lens_chart charts[N_ORDERS];
    lens_charts both;
} curve_finding;

/* Scores in a random order, the same each time: a mix of the bits of each edge's number. */
static attn_status random_scores(lens *l, const lens_graph *g, attn_tensor *scores)
{
    const attn_status status =
        attn_zeros(&l->ctx, scores, ATTN_F32, attn_shape2(g->n_senders, g->n_receivers));
    size_t n = status == ATTN_OK ? attn_count(*scores) : 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t x = (uint32_t)i + 1;
        x = (x ^ (x >> 16)) * 0x7FEB352Du;
        x = (x ^ (x >> 15)) * 0x846CA68Bu;
        ((float *)scores->data)[i] = (float)((x ^ (x >> 16)) >> 8) / 16777216.0f - 0.5f;
    }
    return status;
}

/* The scores of one method. */
static attn_status score_by(lens *l, const curve_finding *f, lens_backward *b, int method,
                            attn_tensor *scores)
{
    const size_t steps = method == BY_EAP_IG ? l->o.steps : 1;
    b->rules = method == BY_GIM ? LENS_RULES_GIM : 0;
    if (method <= BY_GIM)
        return lens_edge_scores(&l->ctx, scores, b, f->p.pairs, f->p.n_pairs, steps);
    if (method == BY_FILE)
        return attn_copy(&l->ctx, scores, f->given);
    return method == BY_EFFECT ? find_effects(l, &f->p, scores)
                               : random_scores(l, &f->graph, scores);
}

static int find_curves(lens *l, curve_finding *f)
{
    static const char *const names[] = {"EAP", NULL, "GIM", "exact", "random", "file"};
    lens_backward backward = ATTN_ZERO;
    int code;
    f->graph = lens_graph_of(l->model);
    if (l->o.circuit && (code = read_circuit(l, &f->p, &f->given)) != FINE)
        return code;
    attn_status status = new_backward(l, &backward);
    f->n_methods = l->o.circuit ? N_METHODS : BY_FILE;
    for (int i = 0; i < N_METHODS; i++)
        f->methods[i] = i == BY_EAP_IG
                            ? keep(l, "EAP-IG, %zu step%s", l->o.steps, l->o.steps > 1 ? "s" : "")
                            : names[i];
    l->n_parts = (1 + N_ORDERS) * f->n_methods;
    for (int i = 0; i < (int)f->n_methods && status == ATTN_OK; i++, l->part++) {
        attn_tensor scores = {0};
        status = score_by(l, f, &backward, i, &scores);
        if (status == ATTN_OK && l->o.circuit)
            status = lens_rank_correlation(&l->ctx, &f->agreement[i], l->model, scores, f->given);
        for (int j = 0; j < N_ORDERS && status == ATTN_OK; j++) {
            l->part++;
            status = room_for_each(l, &f->curves[i][j].each, LENS_CURVE_POINTS);
            if (status == ATTN_OK)
                status = lens_edge_curve(&l->ctx, &f->curves[i][j], &backward, f->p.pairs,
                                         f->p.n_pairs, scores, (lens_curve_order)j);
        }
        attn_tensor_free(&l->ctx, &scores);
    }
    lens_backward_free(&l->ctx, &backward);
    attn_tensor_free(&l->ctx, &f->given);
    return status ? failed(&l->ctx) : FINE;
}

/* A table with a row for each method and order of edges. */
static answer_table *add_methods(lens *l, const curve_finding *f, const char *name)
{
    answer_table *const t = add_table(l, name);
    add_names(l, t, "method", f->methods, f->n_methods);
    add_names(l, t, "order", order_names, N_ORDERS);
    return t;
}

/* "curves": of each method and order, a row for each size of the circuit. Of every pair it is the circuit's answer. */
static void add_curves(lens *l, const curve_finding *f)
{
    const size_t n = LENS_CURVE_POINTS;
    answer_table *const t = add_methods(l, f, "curves");
    double *const sizes = answer_axis(&l->answer, t, "n_edges", n);
    double *const shares = answer_numbers(&l->answer, t, LAST_AXIS, "share", LENS_NUMBERS);
    measured_column *const m = new_measure(l, t, "faithfulness");
    if (!m)
        return;
    m->name = "answer";
    for (size_t k = 0; k < n; k++) {
        sizes[k] = (double)f->curves[0][0].n_edges[k];
        shares[k] = lens_curve_shares[k];
    }
    for (size_t i = 0; i < f->n_methods * N_ORDERS; i++) {
        const lens_curve *const c = &f->curves[i / N_ORDERS][i % N_ORDERS];
        memcpy(m->numbers + i * n, c->faithfulness, sizeof c->faithfulness);
        take_rows(l, m, i * n, NULL, n, (results){NULL, c->each, n, 0});
    }
}

/* CPR of every pair, as an answer: the mean of theirs is that of the curve. (CMD's is not.) */
static float cpr_of_pair(const float *row)
{
    lens_curve one = ATTN_ZERO;
    for (size_t k = 0; k < LENS_CURVE_POINTS; k++)
        one.faithfulness[k] = (double)row[2 + k] - (double)row[1];
    lens_integrate_curve(&one);
    return row[1] + (float)one.cpr;
}

static void add_integrals(lens *l, const curve_finding *f)
{
    answer_table *const t = add_methods(l, f, "integrals");
    measured_column *const cpr = new_measure(l, t, "cpr");
    double *const cmd = answer_numbers(&l->answer, t, CELLS, "cmd", LENS_NUMBERS);
    double *const agreement =
        l->o.circuit ? answer_numbers(&l->answer, t, 0, "rank_correlation", LENS_NUMBERS) : NULL;
    if (!cpr || !cmd)
        return;
    cpr->name = "answer";
    for (size_t i = 0; i < f->n_methods * N_ORDERS; i++) {
        const lens_curve *const c = &f->curves[i / N_ORDERS][i % N_ORDERS];
        cpr->numbers[i] = c->cpr;
        cmd[i] = c->cmd;
        for (size_t pair = 0; cpr->each && pair < l->n_pairs; pair++) {
            const float *const row = c->each + pair * (2 + LENS_CURVE_POINTS);
            float *const to = cpr->each + pair * (2 + cpr->n);
            memcpy(to, row, 2 * sizeof *row); /* the runs of no and of all edges */
            to[2 + i] = cpr_of_pair(row);
        }
    }
    for (size_t i = 0; agreement && i < f->n_methods; i++)
        agreement[i] = f->agreement[i];
}

/* One order of edges: a row for each method, a column for each share, and the integrals. */
static void add_order(lens *l, const curve_finding *f, size_t order)
{
    const answer_table *const curves = answer_named(&l->answer, "curves");
    const answer_table *const integrals = answer_named(&l->answer, "integrals");
    lens_grid *const grid =
        add_grid(l, order == LENS_CURVE_HELPFUL ? "helpful edges first" : "largest scores first",
                 f->n_methods, CURVE_COLUMNS);
    name_axes(grid, "scores", "% of edges");
    for (size_t k = 0; k < CURVE_COLUMNS; k++)
        label_column(grid, k,
                     k < LENS_CURVE_POINTS    ? keep(l, "%g", 100 * lens_curve_shares[k])
                     : k == LENS_CURVE_POINTS ? "CPR"
                                              : "CMD");
    for (size_t i = 0; i < n_cells(grid); i++) {
        lens_cell *const cell = cell_of(grid, 0, i);
        const size_t k = i % CURVE_COLUMNS, row = i / CURVE_COLUMNS * N_ORDERS + order;
        label_row(grid, i / CURVE_COLUMNS, f->methods[i / CURVE_COLUMNS]);
        if (k < LENS_CURVE_POINTS)
            show_number(l, cell, curves, "faithfulness", row * LENS_CURVE_POINTS + k);
        else
            show_number(l, cell, integrals, k == LENS_CURVE_POINTS ? "cpr" : "cmd", row);
        cell->colour = (float)fmax(-1, fmin(cell->number, 1));
        spell_cell(l, grid, i, "%.2f", "%s, %s\n%.5f");
        cell->text = hundredths(l, cell->number);
    }
    grid->low = "-1";
    grid->high = "1";
}

/* The same as a chart: a line for each method. */
static void chart_order(lens *l, const curve_finding *f, const lens_grid *grid, int order,
                        lens_chart *chart)
{
    const size_t n = f->n_methods * LENS_CURVE_POINTS;
    double *y = (double *)allocate(l, 3 * n, sizeof *y);
    chart->low = l->o.ci ? y + n : NULL;
    chart->high = l->o.ci ? y + 2 * n : NULL;
    for (size_t i = 0; y && i < n && grid->n_rows; i++) {
        const lens_cell *const cell = cell_of(grid, i / LENS_CURVE_POINTS, i % LENS_CURVE_POINTS);
        y[i] = cell->number;
        y[n + i] = figure_of(cell->spread, 1);
        y[2 * n + i] = figure_of(cell->spread, 2);
    }
    chart->title = order == LENS_CURVE_HELPFUL ? "faithfulness, helpful edges first"
                                               : "faithfulness, largest scores first";
    chart->x_name = "share of the model's edges";
    chart->x = lens_curve_shares;
    chart->n_points = LENS_CURVE_POINTS;
    chart->names = f->methods;
    chart->y = y;
    chart->n_lines = f->n_methods;
}

static void dress_curves(lens *l, const void *of)
{
    curve_finding *const f = (curve_finding *)(uintptr_t)of;
    for (int order = 0; order < N_ORDERS; order++) {
        add_order(l, f, (size_t)order);
        chart_order(l, f, &l->shown.grids[order], order, &f->charts[order]);
    }
    f->both = (lens_charts){f->charts, N_ORDERS};
    l->shown.page.figure = (lens_figure){svg_charts, &f->both, "faithfulness by share of edges"};
}

static const char *note_of_curves(lens *l, const curve_finding *f)
{
    const char *const note = keep(
        l,
        "%s. Faithfulness: the share of this gap that the best edges restore when they alone are clean. CPR is its integral "
        "over the share of edges (larger is better), CMD that of its distance from 1 (smaller is "
        "better). MIB takes CPR from the first table and CMD from the second.",
        answers_of(l, &f->p));
    return l->o.circuit ? keep(l,
                               "%s Rank correlations with the scores of the file: EAP %.3f, EAP-IG "
                               "%.3f, GIM %.3f, exact %.3f.",
                               note, f->agreement[BY_EAP], f->agreement[BY_EAP_IG],
                               f->agreement[BY_GIM], f->agreement[BY_EFFECT])
                        : note;
}

static int run_curves(lens *l, void *finding)
{
    curve_finding *const f = (curve_finding *)finding;
    int code;
    show_as(l, "Circuits of growing size", dress_curves);
    if (!l->o.steps)
        l->o.steps = 5;
    if ((code = ask_about_patches(l, &f->p)) != FINE || (code = find_curves(l, f)) != FINE)
        return code;
    add_patching(l, &f->p);
    add_curves(l, f);
    add_integrals(l, f);
    if (is_small(&f->p))
        l->shown.page.warning =
            keep(l,
                 "warning: the gap between the texts is only %.3f logits. A share of "
                 "so small a gap says little.",
                 fabs(gap_of(&f->p)));
    l->shown.page.note = note_of_curves(l, f);
    return show_pairs(l, LENS_SPREAD_SHARES);
}

#endif
