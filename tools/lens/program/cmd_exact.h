/* lens edges --exact: the true effects of edges, or of nodes, each by a run of its own. */
#ifndef LENS_CMD_EXACT_H
#define LENS_CMD_EXACT_H

#include "exact_file.h"

/* Says how much there is to do, and what it takes. */
static attn_status announce(lens *l, const lens_exact_desc *d)
{
    const lens_graph g = lens_graph_of(l->model);
    double bytes = 0;
    const attn_status status = lens_exact_size(&l->ctx, &bytes, l->model, d);
    if (status == ATTN_OK && !l->o.quiet)
        fprintf(stderr, "%zu %s, %zu %s of texts; about %.0f MB of memory beside the model\n",
                d->of_nodes ? g.n_senders : g.n_edges, d->of_nodes ? "nodes" : "edges", d->n_pairs,
                d->n_pairs == 1 ? "pair" : "pairs", ceil(bytes / 1e6));
    return status;
}

/* Computes exact effects, with a line of progress. */
static attn_status find_effects(lens *l, const patching *p, attn_tensor *effects)
{
    lens_exact_desc d = ATTN_ZERO;
    attn_status status;
    exact_file f = {0};
    progress bar;
    d.pairs = p->pairs;
    d.n_pairs = p->n_pairs;
    d.of_nodes = l->o.of_nodes;
    d.edits = l->edits;
    d.n_edits = l->n_edits;
    d.progress = exact_so_far;
    d.user = &f;
    d.state = &f.state;
    d.each = p->each;
    f.bar = &bar;
    status = begin_state(l, &f, p);
    if (status == ATTN_OK)
        status = announce(l, &d);
    if (status != ATTN_OK)
        return status;
    progress_begin(&bar, d.of_nodes ? "nodes" : "edges");
    status = lens_exact_effects(&l->ctx, effects, NULL, l->model, &d);
    progress_end(&bar);
    if (l->o.state && save_state(&f) != ATTN_OK)
        return l->ctx.status;
    if (l->o.state && status == ATTN_STOPPED)
        fprintf(stderr, "stopped: %s has what is done; --resume continues\n", l->o.state);
    return status;
}

/* Room for n numbers of every pair, if --each or --ci need it. */
static attn_status make_room(lens *l, patching *p, size_t n)
{
    p->each = room_for_each(l, n);
    return wants_each(l) && !p->each ? l->ctx.status : ATTN_OK;
}

static const char *edge_name(lens *l, const lens_graph *g, const lens_edge *e)
{
    return keep(l, "%s->%s", lens_sender_name(g, e->sender).text,
                lens_receiver_name(g, e->receiver).text);
}

/* A grid with a row for each of n edges, or nodes, and a column with its score. */
static int show_scores(lens *l, lens_grid *grid, const lens_edge *edges, size_t n, int of_nodes)
{
    const lens_graph g = lens_graph_of(l->model);
    const int code = make_grid(l, grid, n, 1);
    size_t i;
    if (code != FINE)
        return code;
    grid->row_name = of_nodes ? "node" : "from -> to";
    grid->column_name = of_nodes ? "effect" : "edge";
    ((const char **)grid->columns)[0] = of_nodes ? "effect" : "score";
    for (i = 0; i < n; i++) {
        lens_cell *const cell = cell_of(grid, i, 0);
        ((const char **)grid->rows)[i] =
            of_nodes ? keep(l, "%s", lens_sender_name(&g, edges[i].sender).text)
                     : edge_name(l, &g, &edges[i]);
        cell->number = edges[i].score;
        cell->text = keep(l, "%.3f", (double)cell->number);
        cell->tip = keep(l, "%s\n%.5f", grid->rows[i], (double)cell->number);
    }
    scale_cells(l, grid, n ? fmax(fabs((double)edges[0].score), 1e-9) : 1);
    return FINE;
}

/* Gives a grid with a row for each edge, or node, the numbers of every pair, of which there are [S, n_receivers]. */
static int show_each(lens *l, const patching *p, lens_grid *grid, const lens_edge *edges,
                     size_t n_receivers)
{
    const size_t n = lens_graph_of(l->model).n_senders * n_receivers;
    const int code = make_each(l, grid, p->answers);
    size_t pair, i;
    for (pair = 0; p->each && code == FINE && pair < l->n_pairs; pair++)
        for (i = 0; i < grid->n_rows; i++)
            cells_of_pair(grid, pair)[i] =
                p->each[pair * (2 + n) + 2 + edges[i].sender * n_receivers + edges[i].receiver];
    return code;
}

/* ---- nodes ---- */

typedef struct node_finding {
    patching p;
    lens_graph graph;
    lens_edge *nodes; /* [graph.n_senders], the largest effects first; their receivers are 0 */
} node_finding;

static int find_nodes(lens *l, node_finding *f)
{
    attn_tensor effects = {0};
    size_t i;
    f->graph = lens_graph_of(l->model);
    f->nodes = (lens_edge *)allocate(l, f->graph.n_senders, sizeof *f->nodes);
    if (!f->nodes || make_room(l, &f->p, f->graph.n_senders) || find_effects(l, &f->p, &effects))
        return failed(&l->ctx);
    for (i = 0; i < f->graph.n_senders; i++) {
        f->nodes[i].sender = i;
        f->nodes[i].receiver = 0;
        f->nodes[i].score = attn_get1(effects, i);
    }
    qsort(f->nodes, f->graph.n_senders, sizeof *f->nodes, lens_compare_edges);
    attn_tensor_free(&l->ctx, &effects);
    return FINE;
}

static void json_nodes(const lens *l, const void *of)
{
    const node_finding *f = (const node_finding *)of;
    size_t i;
    json_patches(l, &f->p);
    fputs(" \"nodes\": [", stdout);
    for (i = 0; i < f->graph.n_senders; i++) {
        printf("%s{\"node\": \"%s\", \"score\": ", i ? ",\n  " : "\n  ",
               lens_sender_name(&f->graph, f->nodes[i].sender).text);
        json_figure((double)f->nodes[i].score);
        fputs("}", stdout);
    }
    fputs("],\n", stdout);
}

static int run_nodes(lens *l)
{
    node_finding f = {0};
    lens_grid grid;
    findings found = {make_page(l, "Effects of nodes"), &grid, 1, json_nodes, &f};
    int code;
    if ((code = ask_about_patches(l, &f.p)) != FINE || (code = find_nodes(l, &f)) != FINE ||
        (code = show_scores(l, &grid, f.nodes, f.graph.n_senders, 1)) != FINE ||
        (code = show_each(l, &f.p, &grid, f.nodes, 1)) != FINE)
        return code;
    grid.title = keep(l, "the effects of all %zu nodes", f.graph.n_senders);
    found.page.warning = warn_of_gap(l, &f.p);
    found.page.note = keep(
        l,
        "%s. Effect of a node: by how much the clean answer changes when this node alone writes "
        "what it writes in the corrupted text.",
        answers_of(l, &f.p));
    return present_pairs(l, &found, LENS_SPREAD_VALUES);
}

#endif
