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
} curve_finding;

/* Scores in a random order, the same each time: a mix of the bits of each edge's number. */
static attn_status random_scores(lens *l, const lens_graph *g, attn_tensor *scores)
{
    const attn_status status =
        attn_zeros(&l->ctx, scores, ATTN_F32, attn_shape2(g->n_senders, g->n_receivers));
    size_t i, n = status == ATTN_OK ? attn_count(*scores) : 0;
    for (i = 0; i < n; i++) {
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
    attn_status status;
    int i, j, code;
    f->graph = lens_graph_of(l->model);
    if (l->o.circuit && (code = read_circuit(l, &f->p, &f->given)) != FINE)
        return code;
    status = new_backward(l, &backward);
    f->n_methods = l->o.circuit ? N_METHODS : BY_FILE;
    for (i = 0; i < N_METHODS; i++)
        f->methods[i] = i == BY_EAP_IG ? keep(l, "EAP-IG, %zu steps", l->o.steps) : names[i];
    for (i = 0; i < (int)f->n_methods && status == ATTN_OK; i++) {
        attn_tensor scores = {0};
        status = score_by(l, f, &backward, i, &scores);
        if (status == ATTN_OK && l->o.circuit)
            status = lens_rank_correlation(&l->ctx, &f->agreement[i], l->model, scores, f->given);
        for (j = 0; j < N_ORDERS && status == ATTN_OK; j++) {
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

static void json_curve(const curve_finding *f, int method, int order)
{
    const lens_curve *c = &f->curves[method][order];
    int k;
    printf("{\"method\": \"%s\", \"order\": \"%s\", \"n_edges\": [", f->methods[method],
           order_names[order]);
    for (k = 0; k < LENS_CURVE_POINTS; k++)
        printf("%s%zu", k ? ", " : "", c->n_edges[k]);
    fputs("], \"faithfulness\": [", stdout);
    for (k = 0; k < LENS_CURVE_POINTS; k++) {
        fputs(k ? ", " : "", stdout);
        json_figure(c->faithfulness[k]);
    }
    json_named("], \"cpr\": ", c->cpr);
    json_named(", \"cmd\": ", c->cmd);
    fputs("}", stdout);
}

static void json_curves(const lens *l, const void *of)
{
    const curve_finding *f = (const curve_finding *)of;
    int i;
    json_patches(l, &f->p);
    fputs(" \"curves\": [", stdout);
    for (i = 0; i < (int)f->n_methods * N_ORDERS; i++) {
        fputs(i ? ",\n  " : "\n  ", stdout);
        json_curve(f, i / N_ORDERS, i % N_ORDERS);
    }
    fputs("],\n", stdout);
    for (i = 0; l->o.circuit && i < BY_FILE; i++) {
        printf("%s\"%s\": ", i ? ", " : " \"rank_correlation\": {", f->methods[i]);
        json_figure(f->agreement[i]);
    }
    if (l->o.circuit)
        fputs("},\n", stdout);
}

/* The numbers of every pair. A share of the gap is a mean of theirs, and so is CPR; CMD is not, and has none. */
static void show_each_curve(const lens *l, const curve_finding *f, int order, const lens_grid *grid)
{
    size_t pair, i, k;
    for (pair = 0; grid->each && pair < l->n_pairs; pair++)
        for (i = 0; i < f->n_methods; i++) {
            const float *const row = f->curves[i][order].each + pair * (2 + LENS_CURVE_POINTS);
            float *const to = cells_of_pair(grid, pair) + i * CURVE_COLUMNS;
            lens_curve one = ATTN_ZERO;
            memcpy(cells_of_pair(grid, pair) - 2, row,
                   2 * sizeof *row); /* the runs of no and of all edges */
            for (k = 0; k < LENS_CURVE_POINTS; k++) {
                to[k] = row[2 + k];
                one.faithfulness[k] = (double)row[2 + k] - (double)row[1];
            }
            lens_integrate_curve(&one);
            to[LENS_CURVE_POINTS] = row[1] + (float)one.cpr;
            to[LENS_CURVE_POINTS + 1] = NAN;
        }
}

/* One order of edges: a row for each method, a column for each share, and the integrals. */
static int show_curves(lens *l, const curve_finding *f, int order, lens_grid *grid)
{
    int code = make_grid(l, grid, f->n_methods, CURVE_COLUMNS);
    size_t i, k;
    if (code != FINE || (code = make_each(l, grid, NULL)) != FINE)
        return code;
    show_each_curve(l, f, order, grid);
    grid->title = order == LENS_CURVE_HELPFUL ? "helpful edges first" : "largest scores first";
    grid->row_name = "scores";
    grid->column_name = "% of edges";
    grid->low = "-1";
    grid->high = "1";
    for (k = 0; k < CURVE_COLUMNS; k++)
        ((const char **)grid->columns)[k] = k < LENS_CURVE_POINTS
                                                ? keep(l, "%g", 100 * lens_curve_shares[k])
                                            : k == LENS_CURVE_POINTS ? "CPR"
                                                                     : "CMD";
    for (i = 0; i < f->n_methods; i++) {
        const lens_curve *c = &f->curves[i][order];
        ((const char **)grid->rows)[i] = f->methods[i];
        for (k = 0; k < CURVE_COLUMNS; k++) {
            lens_cell *cell = cell_of(grid, i, k);
            const double x = k < LENS_CURVE_POINTS    ? c->faithfulness[k]
                             : k == LENS_CURVE_POINTS ? c->cpr
                                                      : c->cmd;
            cell->number = (float)x;
            cell->colour = (float)fmax(-1, fmin(x, 1));
            cell->text = keep(l, "%.2f", fabs(x) < 0.005 ? 0.0 : x);
            cell->tip = keep(l, "%s, %s\n%.5f", grid->rows[i], grid->columns[k], x);
        }
    }
    return outcome(&l->ctx);
}

/* The same as a chart: a line for each method. */
static int chart_curves(lens *l, const curve_finding *f, const lens_grid *grid, int order,
                        lens_chart *chart)
{
    const size_t n = f->n_methods * LENS_CURVE_POINTS;
    double *y = (double *)allocate(l, 3 * n, sizeof *y);
    size_t i;
    if (!y)
        return failed(&l->ctx);
    chart->low = grid->spreads ? y + n : NULL;
    chart->high = grid->spreads ? y + 2 * n : NULL;
    for (i = 0; i < n; i++) {
        const size_t method = i / LENS_CURVE_POINTS, point = i % LENS_CURVE_POINTS;
        y[i] = f->curves[method][order].faithfulness[point];
        if (grid->spreads) {
            y[n + i] = grid->spreads[method * CURVE_COLUMNS + point].low;
            y[2 * n + i] = grid->spreads[method * CURVE_COLUMNS + point].high;
        }
    }
    chart->title = order == LENS_CURVE_HELPFUL ? "faithfulness, helpful edges first"
                                               : "faithfulness, largest scores first";
    chart->x_name = "share of the model's edges";
    chart->x = lens_curve_shares;
    chart->n_points = LENS_CURVE_POINTS;
    chart->names = f->methods;
    chart->y = y;
    chart->n_lines = f->n_methods;
    return FINE;
}

static int run_curves(lens *l)
{
    curve_finding f = {0};
    lens_chart charts[N_ORDERS];
    const lens_charts both = {charts, N_ORDERS};
    lens_grid grids[N_ORDERS];
    findings found = {make_page(l, "Circuits of growing size"), grids, N_ORDERS, json_curves, &f};
    int code, order;
    if (l->o.steps <= 1)
        l->o.steps = 5;
    if ((code = ask_about_patches(l, &f.p)) != FINE || (code = find_curves(l, &f)) != FINE)
        return code;
    for (order = 0; order < N_ORDERS && code == FINE; order++)
        code = show_curves(l, &f, order, &grids[order]);
    if (code != FINE)
        return code;
    if (is_small(&f.p))
        found.page.warning =
            keep(l,
                 "warning: the gap between the texts is only %.3f logits. A share of "
                 "so small a gap says little.",
                 fabs(gap_of(&f.p)));
    found.page.note = keep(
        l,
        "%s. Faithfulness: the share of this gap that the best edges restore when they alone are clean. CPR is its integral "
        "over the share of edges (larger is better), CMD that of its distance from 1 (smaller is "
        "better). MIB takes CPR from the first table and CMD from the second.",
        answers_of(l, &f.p));
    if (l->o.circuit)
        found.page.note = keep(l,
                               "%s Rank correlations with the scores of the file: EAP %.3f, EAP-IG "
                               "%.3f, GIM %.3f, exact %.3f.",
                               found.page.note, f.agreement[BY_EAP], f.agreement[BY_EAP_IG],
                               f.agreement[BY_GIM], f.agreement[BY_EFFECT]);
    code = add_spreads(l, &found, LENS_SPREAD_SHARES);
    for (order = 0; order < N_ORDERS && code == FINE; order++)
        code = chart_curves(l, &f, &grids[order], order, &charts[order]);
    found.page.figure = (lens_figure){svg_charts, &both, "faithfulness by share of edges"};
    return code == FINE ? present(l, &found) : code;
}

#endif
