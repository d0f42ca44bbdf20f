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

/* A grid with a row for each of n edges, or nodes, and a column with its score. */
static int show_scores(lens *l, lens_grid *grid, const lens_edge *edges, size_t n)
{
    const lens_graph g = lens_graph_of(l->model);
    const int code = make_grid(l, grid, n, 1), of_nodes = l->o.of_nodes;
    size_t i;
    if (code != FINE)
        return code;
    grid->row_name = of_nodes ? "node" : "from -> to";
    grid->column_name = of_nodes ? "effect" : "edge";
    ((const char **)grid->columns)[0] = of_nodes ? "effect" : "score";
    for (i = 0; i < n; i++) {
        lens_cell *const cell = cell_of(grid, i, 0);
        ((const char **)grid->rows)[i] =
            keep(l, "%s%s%s", lens_sender_name(&g, edges[i].sender).text, of_nodes ? "" : "->",
                 of_nodes ? "" : lens_receiver_name(&g, edges[i].receiver).text);
        cell->number = edges[i].score;
        cell->text = keep(l, "%.3f", (double)cell->number);
        cell->tip = keep(l, "%s\n%.5f", grid->rows[i], (double)cell->number);
    }
    scale_cells(l, grid, n ? fmax(fabs((double)edges[0].score), 1e-9) : 1);
    return FINE;
}

/* Gives a grid with a row for each edge, or node, the numbers of every pair. */
static int show_each(lens *l, const patching *p, lens_grid *grid, const lens_edge *edges)
{
    const lens_graph g = lens_graph_of(l->model);
    const size_t n_receivers = l->o.of_nodes ? 1 : g.n_receivers, n = g.n_senders * n_receivers;
    const int code = make_each(l, grid, p->answers);
    size_t pair, i;
    for (pair = 0; p->each && code == FINE && pair < l->n_pairs; pair++)
        for (i = 0; i < grid->n_rows; i++)
            cells_of_pair(grid, pair)[i] =
                p->each[pair * (2 + n) + 2 + edges[i].sender * n_receivers + edges[i].receiver];
    return code;
}

#endif
