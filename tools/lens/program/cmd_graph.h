/* lens graph: which features of transcoders cause each other, and the next token. */
#ifndef LENS_CMD_GRAPH_H
#define LENS_CMD_GRAPH_H

#include "cmd_gradients.h"
#include "draw/svg_features.h"
#include "tools/lens/graph_check.h"
#include "tools/lens/graph_files.h"
#include "tools/lens/graph_prune.h"

typedef struct graph_finding {
    lens_feature_graph graph;
    lens_graph_pruned pruned;
    lens_graph_check check; /* of --check; zeroed without it */
    lens_graph_groups groups;
    lens_drawn_features drawn;
    lens_backward backward;
    lens_ranked *ranked; /* [n_nodes]: room for those that a grid shows */
} graph_finding;

/* ---- the graph ---- */

/* Says how large the graph becomes, before its memory and time are spent: the edges and what pruning them
 * takes, two rows for each node, four for each row of a batch, and the matrices of the backward passes. */
static void announce_graph(const lens *l, const lens_feature_graph *g)
{
    const attn_config *const c = l->config;
    const double width = (double)c->d_model;
    const double per_edge = sizeof *g->edges + 2 * sizeof(double) + 1;
    const double weights = (double)c->n_layer * width * (4 * width + 2 * (double)c->d_mlp);
    const double bytes = per_edge * (double)g->n_edges +
                         4 * (width * (2 * (double)g->n_nodes + 4.0 * LENS_FG_ROWS) + weights);
    tell(l,
         "%zu nodes, %zu of them active features, and %zu edges; about %.0f MB of memory beside "
         "the model, %.3g billion multiplications",
         g->n_nodes, g->n_features, g->n_edges, ceil(bytes / 1e6), 2e-9 * g->work * width * width);
}

static attn_status fill_graph(lens *l, graph_finding *f)
{
    lens_feature_graph *const g = &f->graph;
    attn_status status = lens_feature_graph_plan(&l->ctx, g);
    if (status != ATTN_OK)
        return status;
    announce_graph(l, g);
    begin_progress(l, "edges");
    status = lens_feature_graph_fill(&l->ctx, g);
    end_progress(l);
    return status;
}

/* Switches off the features that stay. */
static attn_status check_graph(lens *l, graph_finding *f)
{
    attn_status status = ATTN_OK;
    if (l->o.group && l->o.group[0] == '{') {
        char *const text = (char *)keep(l, "%s", l->o.group);
        status =
            lens_graph_groups_read(&l->ctx, &f->groups, &f->graph, "groups", text, strlen(text));
    } else if (l->o.group)
        status = lens_graph_groups_open(&l->ctx, &f->groups, &f->graph, l->o.group);
    if (status != ATTN_OK)
        return status;
    f->check.groups = f->groups.groups;
    f->check.n_groups = f->groups.n;
    f->check.which = f->pruned.nodes;
    begin_progress(l, "features");
    status = lens_feature_graph_check(&l->ctx, &f->check, &f->graph);
    end_progress(l);
    return status;
}

static int make_graph(lens *l, graph_finding *f)
{
    lens_feature_graph *const g = &f->graph;
    g->tokens = l->text.ids;
    g->n_tokens = l->text.n;
    g->keep = l->o.keep;
    g->progress = f->check.progress = so_far;
    g->user = f->check.user = l;
    f->pruned.node_threshold = (double)l->o.node_threshold;
    f->pruned.edge_threshold = (double)l->o.edge_threshold;
    if (lens_backward_new(&l->ctx, &f->backward, l->model) ||
        lens_feature_graph_begin(&l->ctx, g, &f->backward) ||
        lens_feature_graph_open(&l->ctx, g, l->o.transcoders) || fill_graph(l, f) ||
        lens_feature_graph_prune(&l->ctx, &f->pruned, g) || (l->o.check && check_graph(l, f)))
        return failed(&l->ctx);
    f->ranked = (lens_ranked *)allocate(l, g->n_nodes, sizeof *f->ranked);
    f->drawn = (lens_drawn_features){&l->ctx,      &l->memory, g,    &f->pruned, &f->check,
                                     l->tokenizer, NULL,       NULL, NULL};
    return f->ranked ? FINE : failed(&l->ctx);
}

static void free_graph(lens *l, const void *of)
{
    graph_finding *const f = (graph_finding *)(uintptr_t)of;
    lens_graph_check_free(&f->check);
    lens_graph_groups_free(&f->groups);
    lens_graph_pruned_free(&f->pruned);
    lens_feature_graph_free(&l->ctx, &f->graph);
    lens_backward_free(&l->ctx, &f->backward);
}

/* ---- tables ---- */

/* Values are missing for nodes that have none. */
static void add_nodes(lens *l, const graph_finding *f, const char *const *ids)
{
    const lens_feature_graph *const g = &f->graph;
    const double none = (double)NAN;
    answer_table *const t =
        add_rows(l, "nodes", l->o.pruned ? f->pruned.n_nodes : g->n_nodes,
                 "id:s | kind:s layer:z position:z feature:z activation probability "
                 "pre_activation constant influence claimed measured stays:b");
    for (size_t i = 0, row = 0; i < g->n_nodes; i++) {
        const lens_graph_node *const node = &g->nodes[i];
        const int is_logit = node->kind == LENS_GRAPH_LOGIT;
        const int is_feature = node->kind == LENS_GRAPH_FEATURE, is_target = is_feature || is_logit;
        if (l->o.pruned && !f->pruned.nodes[i])
            continue;
        answer_put(
            &l->answer, t, row++, ids[i], lens_graph_kinds[node->kind], node->layer, node->position,
            is_target ? node->feature : not_given, is_feature ? (double)node->activation : none,
            is_logit ? (double)node->activation : none,
            is_target ? (double)node->pre_activation : none, is_target ? node->constant : none,
            f->pruned.influence[i], l->o.check && !is_logit ? f->check.claimed[i] : none,
            l->o.check ? f->check.measured[i] : none, f->pruned.nodes[i]);
    }
    if (!l->o.check) {
        answer_drop(t, "claimed");
        answer_drop(t, "measured");
    }
}

static void add_graph_edges(lens *l, const graph_finding *f, const char *const *ids)
{
    const lens_feature_graph *const g = &f->graph;
    answer_table *const t = add_rows(l, "edges", l->o.pruned ? f->pruned.n_edges : g->n_edges,
                                     "from:s to:s | weight stays:b");
    for (size_t target = 0, row = 0; target < g->n_nodes; target++)
        for (size_t i = g->rows[target]; i < g->rows[target + 1]; i++)
            if (f->pruned.edges[i] || !l->o.pruned)
                answer_put(&l->answer, t, row++, ids[g->edges[i].from], ids[target],
                           g->edges[i].weight, f->pruned.edges[i]);
}

static void add_groups(lens *l, const graph_finding *f, const char *const *ids)
{
    answer_table *const t = add_rows(l, "groups", f->groups.n, "name:s | nodes:j claimed measured");
    for (size_t i = 0; i < f->groups.n; i++) {
        const lens_graph_group *const group = &f->groups.groups[i];
        json_out list = {NULL, 0, 0, 0, 0};
        out_open(&list, NULL, '[');
        for (size_t k = 0; k < group->n; k++)
            out_word(&list, NULL, ids[group->nodes[k]]);
        out_close(&list, ']');
        answer_put(&l->answer, t, i, f->groups.names[i], keep(l, "%.*s", (int)list.size, list.text),
                   group->claimed, group->measured);
        out_free(&list);
    }
}

static void add_graph_facts(lens *l, const graph_finding *f)
{
    const lens_feature_graph *const g = &f->graph;
    facts(l, "off off_share kept replacement completeness", g->off, g->off_share, g->kept,
          f->pruned.replacement, f->pruned.completeness);
    if (l->o.check)
        facts(l, "rank_correlation", f->check.correlation);
    facts(l, "n_features:z n_nodes:z n_edges:z n_nodes_that_stay:z n_edges_that_stay:z",
          g->n_features, g->n_nodes, g->n_edges, f->pruned.n_nodes, f->pruned.n_edges);
}

static void add_graph(lens *l, const graph_finding *f)
{
    const lens_feature_graph *const g = &f->graph;
    const char **const ids = (const char **)allocate(l, g->n_nodes, sizeof *ids);
    for (size_t i = 0; ids && i < g->n_nodes; i++)
        ids[i] = keep(l, "%s", lens_graph_id_of(&g->nodes[i]).text);
    add_graph_facts(l, f);
    if (l->ctx.status)
        return;
    add_nodes(l, f, ids);
    add_graph_edges(l, f, ids);
    if (l->o.group)
        add_groups(l, f, ids);
    answer_table *t = add_table(l, "layers");
    answer_axis(&l->answer, t, "layer", l->config->n_layer);
    answer_add_columns(&l->answer, t, "explained");
    for (size_t i = 0; i < l->config->n_layer; i++)
        if (g->layers[i].has_transcoder)
            answer_put(&l->answer, t, i, g->layers[i].explained);
    add_tokens(l);
}

/* ---- grids ---- */

/* The weight of an edge; 0 if there is none. */
static float weight_into(const lens_feature_graph *g, size_t from, size_t to)
{
    for (size_t i = g->rows[to]; i < g->rows[to + 1]; i++)
        if (g->edges[i].from == from)
            return g->edges[i].weight;
    return 0;
}

/* A number of the table; `most` has the full colour. */
static void fill_cell(lens *l, const lens_grid *grid, size_t row, size_t column, float number,
                      double most)
{
    lens_cell *const cell = cell_of(grid, row, column);
    cell->number = (double)number;
    cell->colour = (float)fmax(-1, fmin(1, cell->number / most));
    spell_cell(l, grid, row * grid->n_columns + column, "%.3f", "%s\n%s: %.5f");
}

/* The nodes with the largest influence, except logits, which have none. */
static void show_graph(lens *l, const graph_finding *f)
{
    static const char *const columns[] = {"influence", "activation", "to logit"};
    const lens_feature_graph *const g = &f->graph;
    const size_t logit = g->n_nodes - g->n_logits, n = l->o.nodes < logit ? l->o.nodes : logit;
    for (size_t i = 0; i < g->n_nodes; i++)
        f->ranked[i] = (lens_ranked){(float)f->pruned.influence[i], i};
    qsort(f->ranked, g->n_nodes, sizeof *f->ranked, lens_compare_ranked);
    const double most = fmax((double)f->ranked[0].value, 1e-9);
    lens_grid *const grid = add_grid(
        l,
        keep(l,
             "the %zu nodes with the largest influence: layer.position.feature, layer.position of "
             "an error, position of an embedding",
             n),
        n, 3);
    name_axes(grid, "node", "measure");
    label_columns(grid, columns);
    for (size_t i = 0; i < grid->n_rows; i++) {
        const size_t at = f->ranked[i].index;
        const lens_graph_node *const node = &g->nodes[at];
        label_row(grid, i, f->drawn.names[at]);
        fill_cell(l, grid, i, 0, f->ranked[i].value, most);
        if (node->kind == LENS_GRAPH_FEATURE)
            fill_cell(l, grid, i, 1, node->activation, HUGE_VAL);
        fill_cell(l, grid, i, 2, weight_into(g, at, logit),
                  fmax(fabs((double)g->nodes[logit].pre_activation), 1e-9));
    }
    grid->low = keep(l, "-%.2f", most);
    grid->high = keep(l, "%.2f", most);
}

/* By how much a feature's claim misses what was measured, for qsort with lens_compare_ranked. */
static size_t rank_checked(const graph_finding *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->graph.n_nodes; i++)
        if (lens_graph_is_measured(&f->check, &f->graph, i)) {
            f->ranked[n].value = (float)fabs(f->check.claimed[i] - f->check.measured[i]);
            f->ranked[n++].index = i;
        }
    qsort(f->ranked, n, sizeof *f->ranked, lens_compare_ranked);
    return n;
}

/* Claimed and measured effects of groups, or of features, the worst claims first. */
static void show_effects(lens *l, const graph_finding *f, int of_groups)
{
    static const char *const columns[] = {"claimed", "measured", "difference"};
    const size_t n_all = of_groups ? f->groups.n : rank_checked(f);
    const size_t n = of_groups || n_all < l->o.nodes ? n_all : l->o.nodes;
    lens_grid *const grid =
        add_grid(l,
                 of_groups ? "features switched off together: the change of the logit"
                           : keep(l,
                                  "switched off, the %zu worst claims of %zu: the change of the "
                                  "logit; rank correlation %.3f",
                                  n, n_all, f->check.correlation),
                 n, 3);
    name_axes(grid, of_groups ? "group" : "feature", "change");
    label_columns(grid, columns);
    for (size_t i = 0; i < grid->n_rows; i++) {
        const size_t at = of_groups ? i : f->ranked[i].index;
        const double claimed = of_groups ? f->groups.groups[at].claimed : f->check.claimed[at];
        const double measured = of_groups ? f->groups.groups[at].measured : f->check.measured[at];
        const double numbers[] = {claimed, measured, claimed - measured};
        label_row(grid, i, of_groups ? f->groups.names[at] : f->drawn.names[at]);
        for (size_t k = 0; k < 3; k++)
            fill_cell(l, grid, i, k, (float)numbers[k], 1);
    }
    scale_cells(l, grid, fitting(largest_of(grid), 1e6), "%.3g");
}

/* Pictures also tell of the features' own tokens. */
static void dress_graph(lens *l, const void *of)
{
    graph_finding *const f = (graph_finding *)(uintptr_t)of;
    if (lens_name_features(&f->drawn) || (l->form != FORM_TEXT && lens_own_tokens(&f->drawn)))
        return;
    show_graph(l, f);
    if (l->o.check)
        show_effects(l, f, 0);
    if (f->groups.n)
        show_effects(l, f, 1);
}

/* An SVG has the graph alone. */
static int draw_graph(lens *l, canvas *to, const void *of)
{
    const showing *const s = &l->shown;
    (void)of;
    if (l->form == FORM_SVG)
        svg_grids(to, &s->page, s->grids, 0);
    else
        html_grids(to, &s->page, s->grids, s->n_grids);
    return FINE;
}

static int save_graph(lens *l, const void *of)
{
    const graph_finding *const f = (const graph_finding *)of;
    if (lens_feature_graph_save(&l->ctx, &f->graph, &f->pruned, l->tokenizer, l->o.output))
        return failed(&l->ctx);
    tell_written(l, "the pruned graph, for the front end of circuit-tracer and Neuronpedia");
    return FINE;
}

static const char *note_of_graph(lens *l, const graph_finding *f)
{
    const lens_feature_graph *const g = &f->graph;
    const lens_graph_node *const logit = &g->nodes[g->n_nodes - g->n_logits];
    const char *const kept =
        g->kept < 1
            ? keep(l, " The edges that were kept have %s of all |weight|.", percent(l, g->kept))
            : "";
    return keep(l,
                "%zu active features, %zu nodes and %zu edges; %zu nodes and %zu edges stay after "
                "pruning.%s Replacement score %.3f, completeness score %.3f. Weights and constants "
                "add up to each value within %.2g (%.1g of their terms). To logit: the weight "
                "of the edge to %s (%.3f above the mean of all logits, probability %s).",
                g->n_features, g->n_nodes, g->n_edges, f->pruned.n_nodes, f->pruned.n_edges, kept,
                f->pruned.replacement, f->pruned.completeness, g->off, g->off_share,
                quoted_token(l, (attn_token)logit->feature), (double)logit->pre_activation,
                percent(l, (double)logit->activation));
}

/* A warning if a transcoder predicts worse than a constant would; NULL: none does. */
static const char *warn_of_transcoders(lens *l, const lens_feature_graph *g)
{
    for (size_t i = 0; i < l->config->n_layer; i++)
        if (g->layers[i].has_transcoder && g->layers[i].explained < 0)
            return keep(l,
                        "The transcoder of layer %zu predicts worse than the output's mean does. "
                        "Is it of this model?",
                        i);
    return NULL;
}

static int run_graph(lens *l, void *finding)
{
    graph_finding *const f = (graph_finding *)finding;
    showing *const s = &l->shown;
    int code;
    show_as(l, "Attribution graph", dress_graph);
    s->end = free_graph;
    if ((code = make_graph(l, f)) != FINE)
        return code;
    if (wants_all(l))
        add_graph(l, f);
    s->draw = draw_graph;
    s->save = save_graph;
    s->page.figure =
        (lens_figure){svg_features, &f->drawn, "the nodes and edges that stay after pruning"};
    s->page.note = note_of_graph(l, f);
    s->page.warning = warn_of_transcoders(l, &f->graph);
    return show_answer(l);
}

#endif
