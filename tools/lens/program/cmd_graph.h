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
    lens_ranked *ranked; /* [n_nodes]: by influence, the largest first */
    progress bar;
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
    if (!l->o.quiet)
        fprintf(stderr,
                "%zu nodes, %zu of them active features, and %zu edges; about %.0f MB of memory "
                "beside the model, %.3g billion multiplications\n",
                g->n_nodes, g->n_features, g->n_edges, ceil(bytes / 1e6),
                2e-9 * g->work * width * width);
}

static attn_status fill_graph(lens *l, graph_finding *f)
{
    lens_feature_graph *const g = &f->graph;
    attn_status status = lens_feature_graph_plan(&l->ctx, g);
    if (status != ATTN_OK)
        return status;
    announce_graph(l, g);
    progress_begin(&f->bar, "edges");
    status = lens_feature_graph_fill(&l->ctx, g);
    progress_end(&f->bar);
    return status;
}

/* Switches off the features that stay. */
static attn_status check_graph(lens *l, graph_finding *f)
{
    attn_status status = ATTN_OK;
    if (l->o.group)
        status = lens_graph_groups_open(&l->ctx, &f->groups, &f->graph, l->o.group);
    if (status != ATTN_OK)
        return status;
    f->check.groups = f->groups.groups;
    f->check.n_groups = f->groups.n;
    f->check.which = f->pruned.nodes;
    progress_begin(&f->bar, "features");
    status = lens_feature_graph_check(&l->ctx, &f->check, &f->graph);
    progress_end(&f->bar);
    return status;
}

static int make_graph(lens *l, graph_finding *f, lens_backward *backward)
{
    lens_feature_graph *const g = &f->graph;
    size_t i;
    g->tokens = l->text.ids;
    g->n_tokens = l->text.n;
    g->keep = l->o.keep;
    g->progress = f->check.progress = verified_so_far;
    g->user = f->check.user = &f->bar;
    f->pruned.node_threshold = (double)l->o.node_threshold;
    f->pruned.edge_threshold = (double)l->o.edge_threshold;
    if (lens_backward_new(&l->ctx, backward, l->model) ||
        lens_feature_graph_begin(&l->ctx, g, backward) ||
        lens_feature_graph_open(&l->ctx, g, l->o.transcoders) || fill_graph(l, f) ||
        lens_feature_graph_prune(&l->ctx, &f->pruned, g) || (l->o.check && check_graph(l, f)))
        return failed(&l->ctx);
    if (!(f->ranked = (lens_ranked *)allocate(l, g->n_nodes, sizeof *f->ranked)))
        return failed(&l->ctx);
    for (i = 0; i < g->n_nodes; i++) {
        f->ranked[i].value = (float)f->pruned.influence[i];
        f->ranked[i].index = i;
    }
    qsort(f->ranked, g->n_nodes, sizeof *f->ranked, lens_compare_ranked);
    f->drawn = (lens_drawn_features){&l->ctx,      &l->memory, g,    &f->pruned, &f->check,
                                     l->tokenizer, NULL,       NULL, NULL};
    return lens_name_features(&f->drawn) ? failed(&l->ctx) : FINE;
}

/* ---- JSON ---- */

/* A member that is null for nodes that have none. */
static void json_optional(const char *name, int there, double value)
{
    printf(", \"%s\": ", name);
    json_figure(there ? value : (double)NAN);
}

static void json_graph_node(const lens *l, const graph_finding *f, size_t i)
{
    const lens_graph_node *const node = &f->graph.nodes[i];
    const int is_feature = node->kind == LENS_GRAPH_FEATURE;
    const int is_target = is_feature || node->kind == LENS_GRAPH_LOGIT;
    printf("{\"id\": \"%s\", \"kind\": \"%s\", \"layer\": %zu, \"position\": %zu",
           lens_graph_id_of(node).text, lens_graph_kinds[node->kind], node->layer, node->position);
    json_optional("feature", is_target, (double)node->feature);
    json_optional("activation", is_feature, (double)node->activation);
    json_optional("probability", node->kind == LENS_GRAPH_LOGIT, (double)node->activation);
    json_optional("pre_activation", is_target, (double)node->pre_activation);
    json_optional("constant", is_target, node->constant);
    json_optional("influence", 1, f->pruned.influence[i]);
    if (l->o.check) {
        json_optional("claimed", node->kind != LENS_GRAPH_LOGIT, f->check.claimed[i]);
        json_optional("measured", 1, f->check.measured[i]);
    }
    printf(", \"stays\": %s}", f->pruned.nodes[i] ? "true" : "false");
}

static void json_graph_edges(const lens *l, const graph_finding *f)
{
    const lens_feature_graph *const g = &f->graph;
    const char *before = "\n  ";
    size_t to, i;
    fputs(" \"edges\": [", stdout);
    for (to = 0; to < g->n_nodes; to++)
        for (i = g->rows[to]; i < g->rows[to + 1]; i++) {
            if (l->o.pruned && !f->pruned.edges[i])
                continue;
            printf("%s{\"from\": \"%s\", \"to\": \"%s\", \"weight\": ", before,
                   lens_graph_id_of(&g->nodes[g->edges[i].from]).text,
                   lens_graph_id_of(&g->nodes[to]).text);
            json_figure((double)g->edges[i].weight);
            fputs("}", stdout);
            before = ",\n  ";
        }
    fputs("],\n", stdout);
}

static void json_groups(const graph_finding *f)
{
    size_t i, k;
    fputs(" \"groups\": [", stdout);
    for (i = 0; i < f->groups.n; i++) {
        const lens_graph_group *const group = &f->groups.groups[i];
        html_string(stdout, i ? ",\n  {\"name\": " : "\n  {\"name\": ", f->groups.names[i]);
        fputs(", \"nodes\": [", stdout);
        for (k = 0; k < group->n; k++)
            printf("%s\"%s\"", k ? ", " : "",
                   lens_graph_id_of(&f->graph.nodes[group->nodes[k]]).text);
        fputs("]", stdout);
        json_optional("claimed", 1, group->claimed);
        json_optional("measured", 1, group->measured);
        fputs("}", stdout);
    }
    fputs("],\n", stdout);
}

static void json_graph(const lens *l, const void *of)
{
    const graph_finding *const f = (const graph_finding *)of;
    const lens_feature_graph *const g = &f->graph;
    const char *before = "\n  ";
    size_t i;
    json_tokens(l);
    fputs(",\n \"explained\": [", stdout);
    for (i = 0; i < l->config->n_layer; i++) {
        fputs(i ? ", " : "", stdout);
        json_figure(g->layers[i].has_transcoder ? g->layers[i].explained : (double)NAN);
    }
    fputs("]", stdout);
    json_optional("off", 1, g->off);
    json_optional("off_share", 1, g->off_share);
    json_optional("kept", 1, g->kept);
    json_optional("replacement", 1, f->pruned.replacement);
    json_optional("completeness", 1, f->pruned.completeness);
    if (l->o.check)
        json_optional("rank_correlation", 1, f->check.correlation);
    fputs(",\n \"nodes\": [", stdout);
    for (i = 0; i < g->n_nodes; i++)
        if (!l->o.pruned || f->pruned.nodes[i]) {
            fputs(before, stdout);
            json_graph_node(l, f, i);
            before = ",\n  ";
        }
    fputs("],\n", stdout);
    json_graph_edges(l, f);
    if (l->o.group)
        json_groups(f);
}

/* ---- the table ---- */

/* The weight of an edge; 0 if there is none. */
static float weight_into(const lens_feature_graph *g, size_t from, size_t to)
{
    size_t i;
    for (i = g->rows[to]; i < g->rows[to + 1]; i++)
        if (g->edges[i].from == from)
            return g->edges[i].weight;
    return 0;
}

/* A number of the table; `most` has the full colour. */
static void fill_cell(lens *l, const lens_grid *grid, size_t row, size_t column, float number,
                      double most)
{
    lens_cell *const cell = cell_of(grid, row, column);
    cell->number = number;
    cell->colour = (float)fmax(-1, fmin(1, (double)number / most));
    cell->text = keep(l, "%.3f", (double)number);
    cell->tip = keep(l, "%s\n%s: %.5f", grid->rows[row], grid->columns[column], (double)number);
}

/* The nodes with the largest influence, except logits, which have none. */
static int show_graph(lens *l, const graph_finding *f, lens_grid *grid)
{
    const lens_feature_graph *const g = &f->graph;
    const size_t logit = g->n_nodes - g->n_logits, n = l->o.nodes < logit ? l->o.nodes : logit;
    const double most = fmax((double)f->ranked[0].value, 1e-9);
    const int code = make_grid(l, grid, n, 3);
    size_t i;
    if (code != FINE)
        return code;
    ((const char **)grid->columns)[0] = "influence";
    ((const char **)grid->columns)[1] = "activation";
    ((const char **)grid->columns)[2] = "to logit";
    for (i = 0; i < n; i++) {
        const size_t at = f->ranked[i].index;
        const lens_graph_node *const node = &g->nodes[at];
        ((const char **)grid->rows)[i] = f->drawn.names[at];
        fill_cell(l, grid, i, 0, f->ranked[i].value, most);
        if (node->kind == LENS_GRAPH_FEATURE)
            fill_cell(l, grid, i, 1, node->activation, HUGE_VAL);
        fill_cell(l, grid, i, 2, weight_into(g, at, logit),
                  fmax(fabs((double)g->nodes[logit].pre_activation), 1e-9));
    }
    grid->title = keep(
        l,
        "the %zu nodes with the largest influence: layer.position.feature, layer.position of an "
        "error, position of an embedding",
        n);
    grid->row_name = "node";
    grid->column_name = "measure";
    grid->low = keep(l, "-%.2f", most);
    grid->high = keep(l, "%.2f", most);
    return FINE;
}

/* By how much a feature's claim misses what was measured, for qsort with lens_compare_ranked. */
static size_t rank_checked(const graph_finding *f)
{
    size_t i, n = 0;
    for (i = 0; i < f->graph.n_nodes; i++)
        if (lens_graph_is_measured(&f->check, &f->graph, i)) {
            f->ranked[n].value = (float)fabs(f->check.claimed[i] - f->check.measured[i]);
            f->ranked[n++].index = i;
        }
    qsort(f->ranked, n, sizeof *f->ranked, lens_compare_ranked);
    return n;
}

/* Claimed and measured effects of groups, or of features, the worst claims first. */
static int show_effects(lens *l, const graph_finding *f, lens_grid *grid, int of_groups)
{
    static const char *const columns[] = {"claimed", "measured", "difference"};
    const size_t n_all = of_groups ? f->groups.n : rank_checked(f);
    const size_t n = of_groups || n_all < l->o.nodes ? n_all : l->o.nodes;
    const int code = make_grid(l, grid, n, 3);
    double most;
    size_t i, k;
    if (code != FINE)
        return code;
    for (k = 0; k < 3; k++)
        ((const char **)grid->columns)[k] = columns[k];
    for (i = 0; i < n; i++) {
        const size_t at = of_groups ? i : f->ranked[i].index;
        const double claimed = of_groups ? f->groups.groups[at].claimed : f->check.claimed[at];
        const double measured = of_groups ? f->groups.groups[at].measured : f->check.measured[at];
        const double numbers[] = {claimed, measured, claimed - measured};
        ((const char **)grid->rows)[i] = of_groups ? f->groups.names[at] : f->drawn.names[at];
        for (k = 0; k < 3; k++)
            fill_cell(l, grid, i, k, (float)numbers[k], 1);
    }
    grid->title = of_groups ? "features switched off together: the change of the logit"
                            : keep(l,
                                   "switched off, the %zu worst claims of %zu: the change of the "
                                   "logit; rank correlation %.3f",
                                   n, n_all, f->check.correlation);
    grid->row_name = of_groups ? "group" : "feature";
    grid->column_name = "change";
    most = fitting_scale(grid, 1e6);
    colour_cells(grid, most);
    grid->low = keep(l, "-%.3g", most);
    grid->high = keep(l, "%.3g", most);
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
    size_t i;
    for (i = 0; i < l->config->n_layer; i++)
        if (g->layers[i].has_transcoder && g->layers[i].explained < 0)
            return keep(l,
                        "The transcoder of layer %zu predicts worse than the output's mean does. "
                        "Is it of this model?",
                        i);
    return NULL;
}

static int run_graph(lens *l)
{
    graph_finding f;
    lens_backward backward = ATTN_ZERO;
    lens_grid grids[3];
    findings found = {make_page(l, "Attribution graph"), grids, 1, json_graph, &f};
    int code;
    memset(&f, 0, sizeof f);
    if ((code = make_graph(l, &f, &backward)) == FINE)
        code = show_graph(l, &f, &grids[0]);
    if (code == FINE && l->o.check)
        code = show_effects(l, &f, &grids[found.n_grids++], 0);
    if (code == FINE && f.groups.n)
        code = show_effects(l, &f, &grids[found.n_grids++], 1);
    if (code == FINE && l->o.output && ends_in(l->o.output, ".json")) {
        if (lens_feature_graph_save(&l->ctx, &f.graph, &f.pruned, l->tokenizer, l->o.output))
            code = failed(&l->ctx);
        else
            tell_written(l,
                         "the pruned graph, for the front end of circuit-tracer and Neuronpedia");
    } else if (code == FINE && l->o.output && lens_own_tokens(&f.drawn)) {
        code = failed(&l->ctx);
    } else if (code == FINE) {
        found.page.figure =
            (lens_figure){svg_features, &f.drawn, "the nodes and edges that stay after pruning"};
        if (l->o.output && is_svg(l))
            found.n_grids = 0;
        found.page.note = note_of_graph(l, &f);
        found.page.warning = warn_of_transcoders(l, &f.graph);
        code = present(l, &found);
    }
    lens_graph_check_free(&f.check);
    lens_graph_groups_free(&f.groups);
    lens_graph_pruned_free(&f.pruned);
    lens_feature_graph_free(&l->ctx, &f.graph);
    lens_backward_free(&l->ctx, &backward);
    return code;
}

#endif
