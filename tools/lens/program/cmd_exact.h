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
    if (status == ATTN_OK)
        tell(l, "%zu %s, %zu %s of texts; about %.0f MB of memory beside the model",
             d->of_nodes ? g.n_senders : g.n_edges, d->of_nodes ? "nodes" : "edges", d->n_pairs,
             d->n_pairs == 1 ? "pair" : "pairs", ceil(bytes / 1e6));
    return status;
}

/* Computes exact effects, with a line of progress. */
static attn_status find_effects(lens *l, const patching *p, attn_tensor *effects)
{
    lens_exact_desc d = ATTN_ZERO;
    exact_file f = {0};
    d.pairs = p->pairs;
    d.n_pairs = p->n_pairs;
    d.of_nodes = l->o.of_nodes;
    d.edits = l->edits;
    d.n_edits = l->n_edits;
    d.progress = exact_so_far;
    d.user = &f;
    d.state = &f.state;
    d.each = p->each;
    attn_status status = begin_state(l, &f, p);
    if (status == ATTN_OK)
        status = announce(l, &d);
    if (status != ATTN_OK)
        return status;
    begin_progress(l, d.of_nodes ? "nodes" : "edges");
    status = lens_exact_effects(&l->ctx, effects, NULL, l->model, &d);
    end_progress(l);
    if (l->o.state && save_state(&f) != ATTN_OK)
        return l->ctx.status;
    if (l->o.state && status == ATTN_STOPPED)
        tell(l, "stopped: %s has what is done; --resume continues", l->o.state);
    return status;
}

/* A grid with a row for each of n edges, or nodes, and a column with its score. */
static lens_grid *add_scores(lens *l, const char *title, size_t n)
{
    const int of_nodes = l->o.of_nodes;
    const answer_table *const t = answer_named(&l->answer, of_nodes ? "nodes" : "edges");
    const char *const *const from = t->columns[0].texts, *const *const to = t->columns[1].texts;
    lens_grid *const grid = add_grid(l, title, n, 1);
    name_axes(grid, of_nodes ? "node" : "from -> to", of_nodes ? "effect" : "edge");
    label_column(grid, 0, of_nodes ? "effect" : "score");
    for (size_t i = 0; i < grid->n_rows; i++)
        label_row(grid, i, of_nodes ? from[i] : keep(l, "%s->%s", from[i], to[i]));
    show_column(l, grid, t->name, "score", 0);
    spell_cells(l, grid, "%.3f", TIP_OF_ROW "%.5f");
    scale_cells(l, grid, grid->n_rows ? fmax(fabs(grid->cells[0].number), 1e-9) : 1, "%.2f");
    return grid;
}

#endif
