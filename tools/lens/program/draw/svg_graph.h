/* Edges between the parts of a model as a picture: the embeddings at the bottom, above them for each layer a
 * row of heads and one of the MLP, and the logits at the top. Rows and columns without a part are left out.
 *
 * A head has a side by side entry for queries, keys and values. An edge passes a row of boxes upright, between
 * two boxes, and bends only between rows, so that it crosses no box. */
#ifndef LENS_SVG_GRAPH_H
#define LENS_SVG_GRAPH_H

#include "lens_svg.h"
#include "tools/lens/edges.h"

enum {
    GRAPH_ROW = 92,    /* from one row to the next */
    GRAPH_COLUMN = 92, /* from one column to the next */
    GRAPH_WIDE = 66,   /* of a box */
    GRAPH_HIGH = 40,
    GRAPH_ENTRY = 18, /* from one entry of a head to the next */
    GRAPH_NEAR = 6,   /* least distance of an edge from a box that it passes */
    GRAPH_LANE = 5    /* distance of edges that pass a row side by side, if there is room */
};

typedef struct lens_drawn_graph {
    lens_graph graph;
    const lens_edge *edges;
    size_t n;
} lens_drawn_graph;

typedef struct graph_layout {
    const lens_drawn_graph *of;
    size_t n_rows, n_columns, width; /* of those that are drawn */
    double most, top;                /* the largest magnitude; where the rows begin */
    size_t *row, *column;            /* [2 L + 2], [H]: their places among those that are drawn */
    unsigned char *used;             /* [S + 1]: the parts with an edge; last the logits */
    unsigned char *entries;          /* [S + 1]: bits of a head's entries with an edge */
    unsigned char *lanes;            /* [n_rows, width]: 2 a box, 1 an edge */
} graph_layout;

/* Rows: 0 the embeddings, 1 + 2i the heads of layer i, 2 + 2i its MLP, 2L + 1 the logits. */
static size_t graph_row(const lens_graph *g, size_t node)
{
    const size_t layer = (node - 1) / (g->n_head + 1), part = (node - 1) % (g->n_head + 1);
    return node == 0              ? 0
           : node == g->n_senders ? 2 * g->n_layer + 1
                                  : 2 * layer + 1 + (part == g->n_head);
}

/* The head of a node; n_head if it is none. */
static size_t graph_head(const lens_graph *g, size_t node)
{
    return node == 0 || node == g->n_senders ? g->n_head : (node - 1) % (g->n_head + 1);
}

/* 0, 1, 2: an edge into the queries, keys, values of a head. */
static size_t graph_entry(const lens_graph *g, size_t receiver)
{
    return receiver % (3 * g->n_head + 1) / g->n_head;
}

static double graph_x(const graph_layout *a, size_t node)
{
    const size_t head = graph_head(&a->of->graph, node);
    return head < a->of->graph.n_head
               ? 2.0 * SVG_EDGE + GRAPH_COLUMN * ((double)a->column[head] + 0.5)
               : (double)a->width / 2;
}

static double graph_y(const graph_layout *a, size_t row)
{
    return a->top + GRAPH_ROW * (double)(a->n_rows - 1 - row) + GRAPH_HIGH / 2.0;
}

static int graph_allocate(graph_layout *a, const lens_drawn_graph *of)
{
    const lens_graph *g = &of->graph;
    memset(a, 0, sizeof *a);
    a->of = of;
    a->row = (size_t *)calloc(2 * g->n_layer + 2 + g->n_head, sizeof *a->row);
    a->used = (unsigned char *)calloc(2 * (g->n_senders + 1), 1);
    a->column = a->row ? a->row + 2 * g->n_layer + 2 : NULL;
    a->entries = a->used ? a->used + g->n_senders + 1 : NULL;
    return a->row && a->used;
}

static void graph_free(graph_layout *a)
{
    free(a->row);
    free(a->used);
    free(a->lanes);
}

/* Marks the pixels of a row that a box keeps free of edges. */
static void graph_block(graph_layout *a, size_t node)
{
    const size_t half = GRAPH_WIDE / 2 + GRAPH_NEAR;
    memset(a->lanes + a->row[graph_row(&a->of->graph, node)] * a->width + (size_t)graph_x(a, node) -
               half,
           2, 2 * half + 1);
}

/* Finds the parts that have an edge, and numbers their rows and columns. 0: no memory. */
static int graph_lay_out(graph_layout *a, const lens_drawn_graph *of)
{
    const lens_graph *g = &of->graph;
    if (!graph_allocate(a, of))
        return 0;
    a->used[g->n_senders] = 1;
    a->most = 1e-9;
    for (size_t i = 0; i < of->n; i++) {
        const size_t node = lens_node_of_receiver(g, of->edges[i].receiver);
        a->used[of->edges[i].sender] = a->used[node] = 1;
        if (graph_head(g, node) < g->n_head)
            a->entries[node] |= (unsigned char)(1u << graph_entry(g, of->edges[i].receiver));
        a->most = svg_wider(a->most, fabs((double)of->edges[i].score));
    }
    for (size_t i = 0; i <= g->n_senders; i++)
        if (a->used[i]) {
            a->row[graph_row(g, i)] = 1;
            if (graph_head(g, i) < g->n_head)
                a->column[graph_head(g, i)] = 1;
        }
    for (size_t i = 0; i < 2 * g->n_layer + 2; i++)
        a->row[i] = a->row[i] ? a->n_rows++ : 0;
    for (size_t i = 0; i < g->n_head; i++)
        a->column[i] = a->column[i] ? a->n_columns++ : 0;
    size_t wide = (size_t)4 * SVG_EDGE + GRAPH_COLUMN * a->n_columns;
    a->width = wide < 400 ? 400 : wide;
    a->lanes = (unsigned char *)calloc(a->n_rows + 1, a->width);
    for (size_t i = 0; a->lanes && i <= g->n_senders; i++)
        if (a->used[i])
            graph_block(a, i);
    return a->lanes != NULL;
}

/* The place nearest to `want`, at most `most` away, whose mark is at most `mark`; 0: there is none. */
static size_t graph_nearest(const graph_layout *a, const unsigned char *lanes, size_t want,
                            size_t most, unsigned char mark)
{
    for (size_t away = 0; away <= most; away++) {
        if (want >= SVG_EDGE + away && lanes[want - away] <= mark)
            return want - away;
        if (want + away + SVG_EDGE < a->width && lanes[want + away] <= mark)
            return want + away;
    }
    return 0;
}

/* Where an edge that would pass a row at x passes it: at the nearest place that is free, or that only edges
 * have. */
static double graph_lane(const graph_layout *a, size_t row, double x)
{
    unsigned char *lanes = a->lanes + row * a->width;
    size_t lane = graph_nearest(a, lanes, (size_t)x, 100, 0);
    if (!lane)
        lane = graph_nearest(a, lanes, (size_t)x, a->width, 1);
    for (size_t at = lane - GRAPH_LANE + 1; at < lane + GRAPH_LANE; at++)
        if (lanes[at] == 0)
            lanes[at] = 1;
    return (double)lane;
}

static void graph_bend(canvas *to, double from_x, double from_y, double x, double y)
{
    const double bend = (from_y - y) / 2;
    ink_format(to, "C%.1f %.1f %.1f %.1f %.1f %.1f", from_x, from_y - bend, x, y + bend, x, y);
}

static void graph_edge(canvas *to, const graph_layout *a, const lens_edge *edge)
{
    const lens_graph *g = &a->of->graph;
    const size_t node = lens_node_of_receiver(g, edge->receiver);
    const size_t first = a->row[graph_row(g, edge->sender)], last = a->row[graph_row(g, node)];
    const lens_node_name reader = lens_receiver_name(g, edge->receiver);
    const size_t size = strcspn(reader.text, "<"); /* "a3.h5<q>" is shown as "a3.h5 q" */
    const double half = GRAPH_HIGH / 2.0;
    double x = graph_x(a, edge->sender), y = graph_y(a, first) - half, end = graph_x(a, node);
    if (graph_head(g, node) < g->n_head)
        end += GRAPH_ENTRY * ((double)graph_entry(g, edge->receiver) - 1);
    ink_format(to, "<path class=\"edge %s\" stroke-width=\"%.2f\" d=\"M%.1f %.1f",
               edge->score < 0 ? "less" : "more", 0.8 + 4 * fabs((double)edge->score) / a->most, x,
               y);
    for (size_t row = first + 1; row < last; row++) {
        const double lane = graph_lane(a, row, x + (end - x) / (double)(last - row + 1));
        graph_bend(to, x, y, lane, graph_y(a, row) + half);
        x = lane;
        y = graph_y(a, row) - half;
        ink_format(to, "V%.1f", y);
    }
    graph_bend(to, x, y, end, graph_y(a, last) + half);
    ink_format(to, "\"><title>%s to %.*s %.1s: %.4f</title></path>\n",
               lens_sender_name(g, edge->sender).text, (int)size, reader.text,
               reader.text[size] ? reader.text + size + 1 : "", (double)edge->score);
}

static void graph_node(canvas *to, const graph_layout *a, size_t node)
{
    const lens_graph *g = &a->of->graph;
    const double x = graph_x(a, node), y = graph_y(a, a->row[graph_row(g, node)]);
    const unsigned entries = a->entries[node];
    ink_format(to,
               "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"5\" class=\"node\"/>",
               x - GRAPH_WIDE / 2.0, y - GRAPH_HIGH / 2.0, GRAPH_WIDE, GRAPH_HIGH);
    svg_text(to, x, entries ? y - 4 : y + 4.5, "c",
             node == g->n_senders ? "logits" : lens_sender_name(g, node).text, 24);
    for (int i = 0; i < 3; i++)
        if (entries >> i & 1)
            svg_bytes(to, x + GRAPH_ENTRY * (double)(i - 1), y + 15, "c dim", &"qkv"[i], 1, 1);
}

static double graph_legend(canvas *to, const graph_layout *a, double y)
{
    static const char names[] =
        "input: the embeddings; a3.h5: head 5 of layer 3; m3: the MLP of layer 3. "
        "q, k, v: what a head reads for its queries, keys and values. "
        "The stronger a line, the larger its score.";
    const size_t letters = (a->width - (size_t)2 * SVG_EDGE) / 8;
    char number[32];
    for (int side = 0; side < 2 && to; side++) {
        const double x = SVG_EDGE + 140.0 * side;
        ink_format(to, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"24\" height=\"5\"/>",
                   side ? "l" : "m", x, y + 6);
        snprintf(number, sizeof number, "%s%.3g", side ? "-" : "", a->most);
        svg_text(to, x + 32, y + 13, "dim", number, 24);
    }
    return SVG_LINE + svg_paragraph(to, SVG_EDGE, y + SVG_LINE + 13, "dim", names, letters, 9);
}

/* lens_figure's function, of a lens_drawn_graph. */
TOOLS_FN double svg_graph(canvas *to, const void *of, double y, double *width)
{
    graph_layout a;
    double height = 0;
    if (graph_lay_out(&a, (const lens_drawn_graph *)of)) {
        const double legend = graph_legend(to, &a, y) + SVG_LINE;
        a.top = y + legend;
        height = legend + GRAPH_ROW * (double)(a.n_rows - 1) + GRAPH_HIGH + 4;
        *width = (double)a.width;
        for (size_t i = 0; to && i < a.of->n; i++)
            graph_edge(to, &a, &a.of->edges[i]);
        for (size_t i = 0; to && i <= a.of->graph.n_senders; i++)
            if (a.used[i])
                graph_node(to, &a, i);
    } else if (to) {
        to->memory.failed = 1;
    }
    graph_free(&a);
    return height;
}

#endif
