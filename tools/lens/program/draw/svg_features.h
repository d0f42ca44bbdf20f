/* An attribution graph as a picture: a column for each token, the embeddings at the bottom, above them a row for each
 * layer, and the logits at the top. Only what stays after pruning is drawn. The larger a node, the more influence it
 * has; features are round, other nodes square. In a page, page.js lists the edges of the node that is chosen, below a
 * feature's own tokens:
 *
 *     raises    (w - mean(w)) * ln_final.w · W_U, w its row of W_dec: the tokens with the largest of these numbers
 *     active    the tokens of the text where its activation is largest */
#ifndef LENS_SVG_FEATURES_H
#define LENS_SVG_FEATURES_H

#include "svg_graph.h"
#include "tools/lens/graph_check.h"
#include "tools/lens/graph_prune.h"

enum {
    FEATURES_ROW = 78,   /* from one row to the next */
    FEATURES_STEP = 20,  /* from one node to the next */
    FEATURES_LEFT = 100, /* of the rows' names */
    FEATURES_LEAST = 76, /* least width of a column */
    FEATURES_OWN = 5,    /* tokens of each kind that are told of a feature */
    FEATURES_ONCE = 64   /* features whose logits are in memory at the same time */
};

typedef struct lens_drawn_features {
    attn_ctx *ctx;
    arena *memory; /* where the texts are */
    const lens_feature_graph *graph;
    const lens_graph_pruned *pruned;
    const lens_graph_check *check;   /* claimed NULL: none */
    const attn_tokenizer *tokenizer; /* NULL: tokens are their ids */
    /* made by lens_name_features */
    const char **tokens; /* [n_tokens] */
    const char **names;  /* [nodes] */
    const char **
        own; /* [nodes]: a feature's own tokens (lens_own_tokens); NULL for other nodes and those not drawn */
} lens_drawn_features;

typedef struct features_layout {
    const lens_drawn_features *of;
    size_t n_rows;
    size_t *counts;     /* [n_rows, n_tokens] */
    double *x, *middle; /* [nodes], [n_tokens + 1]: of nodes and of columns; last the right end */
    double top, most;   /* where the rows begin; the largest |weight| */
} features_layout;

/* ---- words ---- */

static const char *features_token(const lens_drawn_features *of, attn_token token)
{
    return token_label(of->ctx, of->memory, of->tokenizer, token);
}

static const char *features_name(const lens_drawn_features *of, const lens_graph_node *node)
{
    const int is_logit = node->kind == LENS_GRAPH_LOGIT;
    const char *const token =
        is_logit ? features_token(of, (attn_token)node->feature) : of->tokens[node->position];
    const size_t room = strlen(token) + 96;
    const double percent_ = 100 * (double)node->activation;
    char *const name = (char *)arena_alloc(of->ctx, of->memory, room, 1);
    if (!name)
        return "";
    if (node->kind == LENS_GRAPH_FEATURE)
        snprintf(name, room, "%zu.%zu.%zu %s", node->layer, node->position, node->feature, token);
    else if (node->kind == LENS_GRAPH_ERROR)
        snprintf(name, room, "%zu.%zu error", node->layer, node->position);
    else if (is_logit)
        snprintf(name, room, percent_ < 9.95 ? "%s %.1f%%" : "%s %.0f%%", token, percent_);
    else
        snprintf(name, room, "%zu %s", node->position, token);
    return name;
}

/* Names tokens and nodes: layer.position.feature and its token, layer.position of an error, ... */
TOOLS_FN attn_status lens_name_features(lens_drawn_features *of)
{
    const lens_feature_graph *const g = of->graph;
    const char **texts = (const char **)arena_alloc(of->ctx, of->memory,
                                                    g->n_tokens + 2 * g->n_nodes, sizeof *texts);
    if (!texts)
        return of->ctx->status;
    of->tokens = texts;
    of->names = texts + g->n_tokens;
    of->own = of->names + g->n_nodes;
    for (size_t i = 0; i < g->n_tokens; i++)
        of->tokens[i] = features_token(of, g->tokens[i]);
    for (size_t i = 0; i < g->n_nodes; i++)
        of->names[i] = features_name(of, &g->nodes[i]);
    return of->ctx->status;
}

/* The tokens best [n, k] that features raise most, whose rows [n, C] are changed. */
static attn_status features_raise(attn_ctx *ctx, const lens_feature_graph *g, const attn_top *top,
                                  attn_tensor rows)
{
    const attn_tensor all = ATTN_ZERO;
    attn_tensor mean = ATTN_ZERO, logits = ATTN_ZERO, bias = ATTN_ZERO;
    const int failed = attn_mean(ctx, &mean, rows) || attn_sub(ctx, &rows, rows, mean) ||
                       attn_mul(ctx, &rows, rows, g->b->ln_final_w) ||
                       attn_model_logits(ctx, &logits, g->b->model, rows, all) ||
                       (attn_model_config(g->b->model)->has_b_U &&
                        (attn_model_tensor(ctx, &bias, g->b->model, "unembed.b_U") ||
                         attn_sub(ctx, &logits, logits, bias))) ||
                       attn_logit_stats(ctx, NULL, top, logits, NULL);
    attn_tensor_free(ctx, &mean);
    attn_tensor_free(ctx, &logits);
    attn_tensor_free(ctx, &bias);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* Finds where in the text a feature is most active: at most FEATURES_OWN positions. Returns their number. */
static size_t features_active(const lens_feature_graph *g, const lens_graph_node *node,
                              lens_ranked found[FEATURES_OWN + 1])
{
    const lens_fg_layer *const layer = &g->layers[node->layer];
    const size_t end = layer->first + layer->start[g->n_tokens];
    size_t k, n = 0;
    for (size_t i = layer->first; i < end; i++) {
        const lens_ranked one = {g->nodes[i].activation, g->nodes[i].position};
        if (g->nodes[i].kind != LENS_GRAPH_FEATURE || g->nodes[i].feature != node->feature)
            continue;
        for (k = n; k > 0 && one.value > found[k - 1].value; k--)
            found[k] = found[k - 1];
        found[k] = one;
        n += n < FEATURES_OWN;
    }
    return n;
}

/* A feature's own tokens as a text; best [k] are those that it raises. */
static const char *features_own(const lens_drawn_features *of, size_t node,
                                const attn_prediction *best, size_t k)
{
    lens_ranked at[FEATURES_OWN + 1];
    const size_t n = features_active(of->graph, &of->graph->nodes[node], at);
    canvas words = ATTN_ZERO;
    const char *text = NULL;
    ink(&words, "raises most at the unembedding: ");
    for (size_t i = 0; i < k; i++) {
        ink(&words, i ? ", " : "");
        ink(&words, features_token(of, best[i].token));
    }
    ink(&words, "\nmost active in this text at: ");
    for (size_t i = 0; i < n; i++) {
        ink_format(&words, "%s%zu ", i ? ", " : "", at[i].index);
        ink(&words, of->tokens[at[i].index]);
        ink_format(&words, " (%.2f)", (double)at[i].value);
    }
    if (words.memory.failed)
        tool_fail(of->ctx, ATTN_E_MEMORY, "no memory for the texts of a graph");
    else
        text = arena_text(of->ctx, of->memory, words.memory.text, words.memory.size);
    out_free(&words.memory);
    return text;
}

/* Finds the own tokens of the features that are drawn, after lens_name_features. */
TOOLS_FN attn_status lens_own_tokens(lens_drawn_features *of)
{
    const lens_feature_graph *const g = of->graph;
    const attn_config *const c = attn_model_config(g->b->model);
    attn_prediction best[FEATURES_ONCE * FEATURES_OWN];
    const attn_top top = {best, c->n_vocab < FEATURES_OWN ? c->n_vocab : (size_t)FEATURES_OWN};
    size_t nodes[FEATURES_ONCE], n = 0;
    attn_tensor rows = ATTN_ZERO;
    attn_status status =
        attn_zeros(of->ctx, &rows, ATTN_F32, attn_shape2(FEATURES_ONCE, c->d_model));
    for (size_t i = 0; i < g->n_nodes && status == ATTN_OK; i++) {
        if (of->pruned->nodes[i] && g->nodes[i].kind == LENS_GRAPH_FEATURE) {
            memcpy((float *)rows.data + n * c->d_model, lens_fg_row(g, i).data,
                   c->d_model * sizeof(float));
            nodes[n++] = i;
        }
        if (n < FEATURES_ONCE && (n == 0 || i + 1 < g->n_nodes))
            continue;
        status = features_raise(of->ctx, g, &top, attn_slice(rows, 0, 0, n));
        for (size_t k = 0; k < n && status == ATTN_OK; k++) {
            of->own[nodes[k]] = features_own(of, nodes[k], best + k * top.k, top.k);
            status = of->ctx->status;
        }
        n = 0;
    }
    attn_tensor_free(of->ctx, &rows);
    return status;
}

/* ---- places ---- */

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
    size_t t, row;
    memset(a, 0, sizeof *a);
    a->of = of;
    a->n_rows = n_layer + 2;
    a->counts = (size_t *)calloc(a->n_rows * g->n_tokens, sizeof *a->counts);
    a->x = (double *)calloc(g->n_nodes + g->n_tokens + 1, sizeof *a->x);
    if (!a->counts || !a->x)
        return 0;
    a->middle = a->x + g->n_nodes;
    a->most = 1e-9;
    for (size_t i = 0; i < g->n_nodes; i++)
        if (of->pruned->nodes[i])
            a->x[i] =
                (double)
                    a->counts[features_row(&g->nodes[i]) * g->n_tokens + g->nodes[i].position]++;
    for (size_t i = 0; i < g->n_edges; i++)
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
    for (size_t i = 0; i < g->n_nodes; i++) {
        t = g->nodes[i].position;
        row = features_row(&g->nodes[i]);
        a->x[i] = a->middle[t] +
                  FEATURES_STEP * (a->x[i] - ((double)a->counts[row * g->n_tokens + t] - 1) / 2);
    }
    return 1;
}

/* ---- drawing ---- */

static void features_edges(canvas *to, const features_layout *a, size_t node)
{
    const lens_feature_graph *const g = a->of->graph;
    const double y = features_y(a, &g->nodes[node]);
    for (size_t i = g->rows[node]; i < g->rows[node + 1]; i++) {
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
    if (a->of->own[i]) {
        ink_text(to, "\n");
        ink_text(to, a->of->own[i]);
    }
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
    for (size_t i = 0; i < a->n_rows; i++) {
        snprintf(name, sizeof name,
                 i == 0               ? "embeddings"
                 : i + 1 == a->n_rows ? "logits"
                                      : "layer %zu",
                 i - 1);
        svg_text(to, SVG_EDGE, bottom - FEATURES_ROW * ((double)i + 0.5) + 4.5, "dim", name, 12);
    }
    for (size_t i = 0; i < g->n_tokens; i++)
        svg_text(to, a->middle[i], bottom + 14, "c", a->of->tokens[i], 9);
    for (size_t i = 0; i < g->n_nodes; i++) {
        features_edges(to, a, i);
        most = svg_wider(most, a->of->pruned->influence[i]);
    }
    for (size_t i = 0; i < g->n_nodes; i++)
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
