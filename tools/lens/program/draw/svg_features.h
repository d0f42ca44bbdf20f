/* An attribution graph as a picture: a column for each token, the embeddings at the bottom, above them a row for each
 * layer, and the logits at the top. Only what stays after pruning is drawn. The larger a node, the more influence it
 * has; features are round, other nodes square. In a page, page.js lists the edges of the node that is chosen. */
#ifndef LENS_SVG_FEATURES_H
#define LENS_SVG_FEATURES_H

#include "svg_graph.h"
#include "tools/lens/graph_check.h"
#include "tools/lens/graph_prune.h"

enum {
    FEATURES_ROW = 78,   /* from one row to the next */
    FEATURES_STEP = 20,  /* from one node to the next */
    FEATURES_LEFT = 100, /* of the rows' names */
    FEATURES_LEAST = 76  /* least width of a column */
};

typedef struct lens_drawn_features {
    const lens_feature_graph *graph;
    const lens_graph_pruned *pruned;
    const lens_graph_check *check; /* claimed NULL: none */
    const char *const *names;      /* [nodes] */
    const char *const *tokens;     /* [n_tokens] */
} lens_drawn_features;

typedef struct features_layout {
    const lens_drawn_features *of;
    size_t n_rows;
    size_t *counts;     /* [n_rows, n_tokens] */
    double *x, *middle; /* [nodes], [n_tokens + 1]: of nodes and of columns; last the right end */
    double top, most;   /* where the rows begin; the largest |weight| */
} features_layout;

/* 0 the embeddings, 1 + l layer l, last the logits. */
static size_t features_row(const lens_graph_node *node)
{
    return node->kind == LENS_GRAPH_EMBEDDING ? 0 : node->layer + 1;
}

static double features_y(const features_layout *a, const lens_graph_node *node)
{
    return a->top + FEATURES_ROW * ((double)(a->n_rows - features_row(node)) - 0.5);
}

/* Puts the nodes of each row and token side by side. 0: no memory. */
static int features_lay_out(features_layout *a, const lens_drawn_features *of, size_t n_layer)
{
    const lens_feature_graph *const g = of->graph;
    size_t i, t, row;
    memset(a, 0, sizeof *a);
    a->of = of;
    a->n_rows = n_layer + 2;
    a->counts = (size_t *)calloc(a->n_rows * g->n_tokens, sizeof *a->counts);
    a->x = (double *)calloc(g->n_nodes + g->n_tokens + 1, sizeof *a->x);
    if (!a->counts || !a->x)
        return 0;
    a->middle = a->x + g->n_nodes;
    a->most = 1e-9;
    for (i = 0; i < g->n_nodes; i++)
        if (of->pruned->nodes[i])
            a->x[i] =
                (double)
                    a->counts[features_row(&g->nodes[i]) * g->n_tokens + g->nodes[i].position]++;
    for (i = 0; i < g->n_edges; i++)
        if (of->pruned->edges[i])
            a->most = svg_wider(a->most, fabs((double)g->edges[i].weight));
    a->middle[g->n_tokens] = FEATURES_LEFT;
    for (t = 0; t < g->n_tokens; t++) {
        double wide = FEATURES_LEAST;
        for (row = 0; row < a->n_rows; row++)
            wide = svg_wider(wide, FEATURES_STEP * (double)(a->counts[row * g->n_tokens + t] + 1));
        a->middle[t] = a->middle[g->n_tokens] + wide / 2;
        a->middle[g->n_tokens] += wide;
    }
    for (i = 0; i < g->n_nodes; i++) {
        t = g->nodes[i].position;
        row = features_row(&g->nodes[i]);
        a->x[i] = a->middle[t] +
                  FEATURES_STEP * (a->x[i] - ((double)a->counts[row * g->n_tokens + t] - 1) / 2);
    }
    return 1;
}

static void features_edges(canvas *to, const features_layout *a, size_t node)
{
    const lens_feature_graph *const g = a->of->graph;
    const double y = features_y(a, &g->nodes[node]);
    size_t i;
    for (i = g->rows[node]; i < g->rows[node + 1]; i++) {
        const size_t from = g->edges[i].from;
        const double weight = (double)g->edges[i].weight, start = features_y(a, &g->nodes[from]);
        if (!a->of->pruned->edges[i])
            continue;
        ink_format(
            to,
            "<path class=\"edge %s\" stroke-width=\"%.2f\" opacity=\"%.2f\" data-from=\"%zu\" "
            "data-to=\"%zu\" data-weight=\"%.6g\" d=\"M%.1f %.1f",
            weight < 0 ? "less" : "more", 0.5 + 3 * fabs(weight) / a->most,
            0.1 + 0.9 * fabs(weight) / a->most, from, node, weight, a->x[from], start);
        graph_bend(to, a->x[from], start, a->x[node], y);
        ink(to, "\"/>\n");
    }
}

static void features_node(canvas *to, const features_layout *a, size_t i, double most)
{
    const lens_graph_node *const node = &a->of->graph->nodes[i];
    const lens_graph_check *const check = a->of->check;
    const double r = 3 + 6 * sqrt(a->of->pruned->influence[i] / most), y = features_y(a, node);
    ink_format(to, "<g class=\"part\" data-node=\"%zu\"", i);
    if (check->claimed && isfinite(check->measured[i]))
        ink_format(to, " data-claimed=\"%.6g\" data-measured=\"%.6g\"", check->claimed[i],
                   check->measured[i]);
    ink(to, "><title>");
    ink_text(to, a->of->names[i]);
    ink(to, "</title>");
    if (node->kind == LENS_GRAPH_FEATURE)
        ink_format(to, "<circle class=\"m\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>", a->x[i], y, r);
    else
        ink_format(to, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
                   node->kind == LENS_GRAPH_ERROR ? "l" : "node", a->x[i] - r, y - r, 2 * r, 2 * r);
    ink(to, "</g>\n");
}

static void features_draw(canvas *to, const features_layout *a)
{
    const lens_feature_graph *const g = a->of->graph;
    const double bottom = a->top + FEATURES_ROW * (double)a->n_rows;
    double most = 1e-9;
    char name[40];
    size_t i;
    for (i = 0; i < a->n_rows; i++) {
        snprintf(name, sizeof name,
                 i == 0               ? "embeddings"
                 : i + 1 == a->n_rows ? "logits"
                                      : "layer %zu",
                 i - 1);
        svg_text(to, SVG_EDGE, bottom - FEATURES_ROW * ((double)i + 0.5) + 4.5, "dim", name, 12);
    }
    for (i = 0; i < g->n_tokens; i++)
        svg_text(to, a->middle[i], bottom + 14, "c", a->of->tokens[i], 9);
    for (i = 0; i < g->n_nodes; i++) {
        features_edges(to, a, i);
        most = svg_wider(most, a->of->pruned->influence[i]);
    }
    for (i = 0; i < g->n_nodes; i++)
        if (a->of->pruned->nodes[i])
            features_node(to, a, i, most);
}

/* lens_figure's function, of a lens_drawn_features. */
static double svg_features(canvas *to, const void *drawn, double y, double *width)
{
    const lens_drawn_features *const of = (const lens_drawn_features *)drawn;
    const size_t n_layer = attn_model_config(of->graph->b->model)->n_layer;
    features_layout a;
    double height = 0;
    if (features_lay_out(&a, of, n_layer)) {
        a.top = y;
        *width = a.middle[of->graph->n_tokens] + SVG_EDGE;
        height = FEATURES_ROW * (double)a.n_rows + SVG_LINE + 4;
        if (to)
            features_draw(to, &a);
    } else if (to) {
        to->memory.failed = 1;
    }
    free(a.counts);
    free(a.x);
    return height;
}

#endif
