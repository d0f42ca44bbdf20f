/* lens edges: which connections make the difference between two texts, and the answer of the circuit that
 * the best of them form. */
#ifndef LENS_CMD_EDGES_H
#define LENS_CMD_EDGES_H

#include "circuit_file.h"
#include "cmd_curve.h"
#include "tools/lens/prune.h"

typedef struct edge_finding {
    patching p;
    lens_graph graph;
    size_t n_kept, n_steps;
    lens_edge *
        edges; /* [graph.n_edges], the largest scores first; with --prune, as lens_pruned has them */
    float value; /* the answer of the circuit */
} edge_finding;

/* Computes the circuit's answer, a mean over the pairs. */
static attn_status run_circuit(lens *l, edge_finding *f, lens_backward *backward, attn_tensor kept)
{
    attn_status status = ATTN_OK;
    float value = 0;
    size_t i;
    for (i = 0; i < f->p.n_pairs && status == ATTN_OK; i++) {
        status = lens_run_edges(&l->ctx, &value, backward, &f->p.pairs[i], kept);
        f->value += value / (float)f->p.n_pairs;
    }
    return status;
}

/* Scores all edges: estimates, or with --exact true effects. */
static attn_status score_edges(lens *l, edge_finding *f, lens_backward *backward,
                               attn_tensor *scores)
{
    attn_status status;
    if (l->o.exact) { /* without a backward pass: only the circuit's run reads *backward */
        backward->model = l->model;
        backward->edits = l->edits;
        backward->n_edits = l->n_edits;
        return find_effects(l, &f->p, scores);
    }
    status = new_backward(l, backward);
    return status
               ? status
               : lens_edge_scores(&l->ctx, scores, backward, f->p.pairs, f->p.n_pairs, f->n_steps);
}

/* Removes edges one after the other. */
static attn_status prune_edges(lens *l, edge_finding *f, lens_backward *backward,
                               attn_tensor scores)
{
    lens_prune_desc d = ATTN_ZERO;
    lens_pruned found = ATTN_ZERO;
    attn_status status;
    progress bar;
    d.pairs = f->p.pairs;
    d.n_pairs = f->p.n_pairs;
    d.amount = (double)l->o.prune;
    d.scores = scores;
    d.progress = verified_so_far;
    d.user = &bar;
    progress_begin(&bar, "removing");
    status = lens_prune(&l->ctx, &found, backward, &d);
    progress_end(&bar);
    if (status == ATTN_OK && found.edges)
        memcpy(f->edges, found.edges, f->graph.n_edges * sizeof *f->edges);
    f->n_kept = found.n_kept;
    f->value = (float)found.value;
    attn_free(found.edges);
    return status;
}

static attn_status choose_edges(lens *l, edge_finding *f, lens_backward *backward,
                                attn_tensor scores, attn_tensor *kept)
{
    if (l->o.prune >= 0)
        return prune_edges(l, f, backward, scores);
    return lens_sort_edges(&l->ctx, f->edges, l->model, scores) ||
                   lens_best_edges(&l->ctx, kept, l->model, scores, f->n_kept)
               ? l->ctx.status
               : run_circuit(l, f, backward, *kept);
}

static int find_edges(lens *l, edge_finding *f)
{
    lens_backward backward = ATTN_ZERO;
    attn_tensor scores = ATTN_ZERO, kept = ATTN_ZERO;
    int code = FINE;
    f->graph = lens_graph_of(l->model);
    f->n_kept = l->o.edges < f->graph.n_edges ? l->o.edges : f->graph.n_edges;
    f->edges = (lens_edge *)allocate(l, f->graph.n_edges, sizeof *f->edges);
    if (!f->edges || score_edges(l, f, &backward, &scores) ||
        choose_edges(l, f, &backward, scores, &kept))
        code = failed(&l->ctx);
    attn_tensor_free(&l->ctx, &scores);
    attn_tensor_free(&l->ctx, &kept);
    lens_backward_free(&l->ctx, &backward);
    return code;
}

static const char *edge_name(lens *l, const lens_graph *g, const lens_edge *e)
{
    return keep(l, "%s->%s", lens_sender_name(g, e->sender).text,
                lens_receiver_name(g, e->receiver).text);
}

static void json_edges(const lens *l, const void *of)
{
    const edge_finding *f = (const edge_finding *)of;
    const size_t n = l->o.exact ? f->graph.n_edges : f->n_kept;
    size_t i;
    json_patches(l, &f->p);
    fputs(" \"circuit\": ", stdout);
    json_figure((double)f->value);
    if (!l->o.exact)
        printf(", \"steps\": %zu", f->n_steps);
    if (l->o.prune >= 0)
        printf(", \"n_kept\": %zu", f->n_kept);
    printf(", \"n_edges\": %zu,\n \"edges\": [", f->graph.n_edges);
    for (i = 0; i < n; i++) {
        printf("%s{\"from\": \"%s\", \"to\": \"%s\", \"score\": ", i ? ",\n  " : "\n  ",
               lens_sender_name(&f->graph, f->edges[i].sender).text,
               lens_receiver_name(&f->graph, f->edges[i].receiver).text);
        json_figure((double)f->edges[i].score);
        fputs("}", stdout);
    }
    fputs("],\n", stdout);
}

static int show_edges(lens *l, const edge_finding *f, lens_grid *grid)
{
    const double most = f->n_kept ? fmax(fabs((double)f->edges[0].score), 1e-9) : 1;
    const int code = make_grid(l, grid, f->n_kept, 1);
    size_t i;
    if (code != FINE)
        return code;
    grid->title =
        keep(l, l->o.prune >= 0 ? "%zu of %zu edges are left" : "the best %zu of %zu edges",
             f->n_kept, f->graph.n_edges);
    grid->row_name = "from -> to";
    grid->column_name = "edge";
    grid->low = keep(l, "-%.2f", most);
    grid->high = keep(l, "%.2f", most);
    ((const char **)grid->columns)[0] = "score";
    for (i = 0; i < f->n_kept; i++) {
        lens_cell *cell = cell_of(grid, i, 0);
        ((const char **)grid->rows)[i] = edge_name(l, &f->graph, &f->edges[i]);
        cell->number = f->edges[i].score;
        cell->colour = (float)((double)cell->number / most);
        cell->text = keep(l, "%.3f", (double)cell->number);
        cell->tip = keep(l, "%s\n%.5f", grid->rows[i], (double)cell->number);
    }
    return FINE;
}

/* ---- the graph as a picture ---- */

enum { GRAPH_ROW = 64, GRAPH_COLUMN = 58 };

typedef struct graph_place {
    double x, y;
} graph_place;

/* The embeddings are at the bottom; each layer has a row of heads and, above it, one of the MLP. */
static graph_place place_of(const lens_graph *g, double bottom, size_t row, size_t column)
{
    const double width = (double)(g->n_head * GRAPH_COLUMN);
    graph_place p;
    p.y = bottom - (double)(row * GRAPH_ROW);
    p.x = SVG_EDGE + (row % 2 ? (double)column * GRAPH_COLUMN + GRAPH_COLUMN / 2.0 : width / 2);
    return p;
}

/* Rows: 0 the embeddings, 1 + 2i the heads of layer i, 2 + 2i its MLP, 2L + 1 the logits. */
static graph_place sender_place(const lens_graph *g, double bottom, size_t sender)
{
    const size_t layer = (sender - 1) / (g->n_head + 1), head = (sender - 1) % (g->n_head + 1);
    if (sender == 0)
        return place_of(g, bottom, 0, 0);
    return place_of(g, bottom, 2 * layer + 1 + (head == g->n_head), head);
}

static graph_place receiver_place(const lens_graph *g, double bottom, size_t receiver)
{
    const size_t in_layer = 3 * g->n_head + 1, layer = receiver / in_layer;
    const size_t part = receiver % in_layer, side = part / g->n_head; /* 0: queries, 1: keys */
    graph_place p;
    if (receiver == g->n_receivers - 1) {
        p = place_of(g, bottom, 0, 0);
        p.y = bottom - (double)((2 * g->n_layer + 1) * GRAPH_ROW);
        return p;
    }
    p = place_of(g, bottom, 2 * layer + 1 + (part == in_layer - 1), part % g->n_head);
    if (part < in_layer - 1) /* queries, keys and values enter side by side */
        p.x += 12.0 * ((double)side - 1);
    return p;
}

static void draw_edge(FILE *file, const edge_finding *f, double bottom, const lens_edge *e)
{
    const graph_place a = sender_place(&f->graph, bottom, e->sender);
    const graph_place b = receiver_place(&f->graph, bottom, e->receiver);
    const lens_node_name reader = lens_receiver_name(&f->graph, e->receiver);
    const size_t size = strcspn(reader.text, "<"); /* "a3.h5<q>" is shown as "a3.h5 q" */
    const double share = fabs((double)e->score) / fmax(fabs((double)f->edges[0].score), 1e-9);
    fprintf(file,
            "<path d=\"M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f\" class=\"%s\" "
            "stroke-width=\"%.2f\"><title>%s to %.*s %.1s: %.4f</title></path>\n",
            a.x, a.y - 12, a.x, a.y - 36, b.x, b.y + 36, b.x, b.y + 12,
            e->score < 0 ? "less" : "more", 0.5 + 4 * share,
            lens_sender_name(&f->graph, e->sender).text, (int)size, reader.text,
            reader.text[size] ? reader.text + size + 1 : "", (double)e->score);
}

static void draw_node(FILE *file, graph_place p, const char *name)
{
    fprintf(file,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"52\" height=\"24\" rx=\"5\" class=\"node\"/>",
            p.x - 26, p.y - 12);
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" class=\"c\">%s</text>\n", p.x, p.y + 4.5, name);
}

/* Draws the edges of the circuit, and the nodes that they connect. */
static int draw_graph(lens *l, const lens_page *page, const edge_finding *f)
{
    const lens_graph *g = &f->graph;
    const double height = (double)((2 * g->n_layer + 2) * GRAPH_ROW);
    char *used = (char *)allocate(l, g->n_senders, 1);
    lens_new_file *picture;
    double bottom;
    FILE *file;
    size_t i;
    int code;
    if (!used)
        return failed(&l->ctx);
    if ((code = open_picture(l, &picture)) != FINE)
        return code;
    file = (FILE *)lens_new_file_stream(picture);
    bottom = svg_begin(file, page, (double)(g->n_head * GRAPH_COLUMN) + 2 * SVG_EDGE, height);
    bottom += height - GRAPH_ROW;
    fputs("<style>path { fill: none; stroke-opacity: 0.75; } .more { stroke: rgb(29,84,200); }\n"
          ".less { stroke: rgb(196,78,10); } .node { fill: #eef1f5; stroke: #9aa4b0; }\n"
          "@media (prefers-color-scheme: dark) { .node { fill: #262b32; stroke: #5d6671; }\n"
          ".more { stroke: rgb(95,145,255); } .less { stroke: rgb(230,110,40); } }</style>\n",
          file);
    memset(used, 0, g->n_senders);
    for (i = 0; i < f->n_kept; i++) {
        const size_t to = f->edges[i].receiver, in_layer = 3 * g->n_head + 1;
        draw_edge(file, f, bottom, &f->edges[i]);
        used[f->edges[i].sender] = 1;
        if (to < g->n_receivers - 1)
            used[1 + to / in_layer * (g->n_head + 1) +
                 (to % in_layer == in_layer - 1 ? g->n_head : to % in_layer % g->n_head)] = 1;
    }
    for (i = 0; i < g->n_senders; i++)
        if (used[i])
            draw_node(file, sender_place(g, bottom, i), lens_sender_name(g, i).text);
    draw_node(file, receiver_place(g, bottom, g->n_receivers - 1), "logits");
    fputs("</svg>\n", file);
    return close_picture(l, picture, interrupted ? INTERRUPTED : FINE);
}

static const char *note_of_edges(lens *l, const edge_finding *f)
{
    return keep(
        l,
        "%s%s: %.3f after the clean text, %.3f after the corrupted one. "
        "Score of an edge: %sby how much the clean answer changes when this edge alone carries "
        "what its sender writes in the corrupted text (%s). "
        "With these %zu edges clean and all others corrupted the answer is %.3f.",
        f->p.question.text, f->p.reason, (double)f->p.whole.clean, (double)f->p.whole.corrupted,
        l->o.exact ? "" : "about ",
        l->o.exact       ? "exact"
        : f->n_steps > 1 ? keep(l, "EAP-IG, %zu steps", f->n_steps)
                         : "EAP",
        f->n_kept, (double)f->value);
}

static const char *note_of_pruned(lens *l, const edge_finding *f)
{
    return keep(
        l,
        "%s%s: %.3f after the clean text, %.3f after the corrupted one. Edges were corrupted "
        "one after the other, the least first, while the answer stayed within %g of the clean "
        "one. With the %zu edges that are left it is %.3f. Score of an edge: its effect in "
        "the circuit in which it was last measured.",
        f->p.question.text, f->p.reason, (double)f->p.whole.clean, (double)f->p.whole.corrupted,
        (double)l->o.prune, f->n_kept, (double)f->value);
}

static int run_edges(lens *l)
{
    edge_finding f = {0};
    lens_grid grid;
    findings found = {make_page(l, l->o.exact ? "Effects of edges" : "Edge attribution"), &grid, 1,
                      json_edges, &f};
    int code;
    if (l->o.of_nodes || l->o.curve)
        return l->o.curve ? run_curves(l) : run_nodes(l);
    f.n_steps = l->o.steps;
    if ((code = ask_about_patches(l, &f.p)) != FINE || (code = find_edges(l, &f)) != FINE ||
        (code = show_edges(l, &f, &grid)) != FINE)
        return code;
    if (l->o.output && ends_in(l->o.output, ".json"))
        return write_circuit(l, &f.p, &f.graph, f.edges, f.n_kept);
    found.page.warning = warn_of_gap(l, &f.p);
    found.page.note = l->o.prune >= 0 ? note_of_pruned(l, &f) : note_of_edges(l, &f);
    if (l->o.output && is_svg(l) && !l->ctx.status)
        return draw_graph(l, &found.page, &f);
    return present(l, &found);
}

#endif
