/* lens edges: which connections make the difference between two texts, and the answer of the circuit that
 * the best of them form. */
#ifndef LENS_CMD_EDGES_H
#define LENS_CMD_EDGES_H

#include "circuit_file.h"
#include "draw/svg_graph.h"
#include "cmd_curve.h"
#include "cmd_interactions.h"
#include "tools/lens/prune.h"

typedef struct edge_finding {
    patching p;
    lens_graph graph;
    size_t n, n_kept, n_steps;
    lens_edge *edges; /* [n], the largest scores first; with --prune, as lens_pruned has them. With
                         --of nodes their receivers are 0 */
    float value;      /* the answer of the circuit */
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

/* Scores all edges again, for one pair at a time: the mean of these would have other bits. */
static attn_status score_each(lens *l, edge_finding *f, lens_backward *backward)
{
    const attn_shape shape = attn_shape2(f->graph.n_senders, f->graph.n_receivers);
    attn_status status = ATTN_OK;
    size_t i;
    for (i = 0; i < l->n_pairs && status == ATTN_OK; i++) {
        attn_tensor one = attn_borrow(f->p.each + i * (2 + count_of(shape)) + 2, ATTN_F32, shape);
        status = lens_edge_scores(&l->ctx, &one, backward, &l->pairs[i], 1, f->n_steps);
    }
    return status;
}

/* Scores all edges: estimates, or with --exact true effects. */
static attn_status score_edges(lens *l, edge_finding *f, lens_backward *backward,
                               attn_tensor *scores)
{
    attn_status status = room_for_each(l, &f->p.each, lens_exact_count(l->model, l->o.of_nodes));
    if (status != ATTN_OK)
        return status;
    if (l->o.exact) { /* without a backward pass: only the circuit's run reads *backward */
        backward->model = l->model;
        backward->edits = l->edits;
        backward->n_edits = l->n_edits;
        return find_effects(l, &f->p, scores);
    }
    status = new_backward(l, backward);
    if (status == ATTN_OK)
        status = lens_edge_scores(&l->ctx, scores, backward, f->p.pairs, f->p.n_pairs, f->n_steps);
    return status == ATTN_OK && f->p.each ? score_each(l, f, backward) : status;
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

/* Sorts the nodes. */
static attn_status choose_nodes(edge_finding *f, attn_tensor scores)
{
    size_t i;
    for (i = 0; i < f->n; i++)
        f->edges[i] = (lens_edge){i, 0, attn_get1(scores, i)};
    qsort(f->edges, f->n, sizeof *f->edges, lens_compare_edges);
    return ATTN_OK;
}

static attn_status choose_edges(lens *l, edge_finding *f, lens_backward *backward,
                                attn_tensor scores, attn_tensor *kept)
{
    if (l->o.of_nodes)
        return choose_nodes(f, scores);
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
    f->n = l->o.of_nodes ? f->graph.n_senders : f->graph.n_edges;
    f->n_kept = l->o.edges < f->n && !l->o.of_nodes ? l->o.edges : f->n;
    f->edges = (lens_edge *)allocate(l, f->n, sizeof *f->edges);
    if (!f->edges || score_edges(l, f, &backward, &scores) ||
        choose_edges(l, f, &backward, scores, &kept))
        code = failed(&l->ctx);
    attn_tensor_free(&l->ctx, &scores);
    attn_tensor_free(&l->ctx, &kept);
    lens_backward_free(&l->ctx, &backward);
    return code;
}

/* How scores were made, for the note above them. */
static const char *method_of(lens *l, const edge_finding *f)
{
    const char *const title = methods[l->o.method].title;
    return l->o.exact       ? "exact"
           : f->n_steps > 1 ? keep(l, "%s, %zu steps", title, f->n_steps)
                            : title;
}

static void json_edges(const lens *l, const void *of)
{
    const edge_finding *f = (const edge_finding *)of;
    const size_t n = l->o.exact ? f->n : f->n_kept;
    const int of_nodes = l->o.of_nodes;
    size_t i;
    json_patches(l, &f->p);
    if (!of_nodes)
        json_named(" \"circuit\": ", (double)f->value);
    if (!l->o.exact)
        printf(", \"method\": \"%s\", \"steps\": %zu", methods[l->o.method].title, f->n_steps);
    if (l->o.prune >= 0)
        printf(", \"n_kept\": %zu", f->n_kept);
    if (!of_nodes)
        printf(", \"n_edges\": %zu,\n", f->n);
    fputs(of_nodes ? " \"nodes\": [" : " \"edges\": [", stdout);
    for (i = 0; i < n; i++) {
        printf("%s{\"%s\": \"%s\"", i ? ",\n  " : "\n  ", of_nodes ? "node" : "from",
               lens_sender_name(&f->graph, f->edges[i].sender).text);
        if (!of_nodes)
            printf(", \"to\": \"%s\"", lens_receiver_name(&f->graph, f->edges[i].receiver).text);
        json_named(", \"score\": ", (double)f->edges[i].score);
        fputs("}", stdout);
    }
    fputs("],\n", stdout);
}

static const char *note_of_edges(lens *l, const edge_finding *f)
{
    if (l->o.of_nodes)
        return keep(l,
                    "%s. Effect of a node: by how much the clean answer changes when this node "
                    "alone writes what it writes in the corrupted text.",
                    answers_of(l, &f->p));
    return keep(
        l,
        "%s. Score of an edge: %sby how much the clean answer changes when this edge alone carries "
        "what its sender writes in the corrupted text (%s). "
        "With these %zu edges clean and all others corrupted the answer is %.3f.",
        answers_of(l, &f->p), l->o.exact ? "" : "about ", method_of(l, f), f->n_kept,
        (double)f->value);
}

static const char *note_of_pruned(lens *l, const edge_finding *f)
{
    return keep(
        l,
        "%s. Edges were corrupted one after the other, the least first, while the answer stayed within %g of the clean "
        "one. With the %zu edges that are left it is %.3f. Score of an edge: its effect in "
        "the circuit in which it was last measured.",
        answers_of(l, &f->p), (double)l->o.prune, f->n_kept, (double)f->value);
}

static int run_edges(lens *l)
{
    edge_finding f = {0};
    lens_drawn_graph graph = {{0}, NULL, 0};
    lens_grid grid;
    findings found = {make_page(l, l->o.of_nodes ? "Effects of nodes"
                                   : l->o.exact  ? "Effects of edges"
                                                 : "Edge attribution"),
                      &grid, 1, json_edges, &f};
    int code;
    if (l->o.interactions || l->o.shapley)
        return run_joint(l);
    if (l->o.curve)
        return run_curves(l);
    if (l->o.method < 0)
        l->o.method = l->o.steps > 1 ? METHOD_EAP_IG : METHOD_EAP;
    if (l->o.method == METHOD_EAP_IG && !l->o.steps)
        l->o.steps = 5;
    f.n_steps = l->o.steps ? l->o.steps : 1;
    if ((code = ask_about_patches(l, &f.p)) != FINE || (code = find_edges(l, &f)) != FINE ||
        (code = show_scores(l, &grid, f.edges, f.n_kept)) != FINE ||
        (code = show_each(l, &f.p, &grid, f.edges)) != FINE)
        return code;
    grid.title =
        l->o.of_nodes
            ? keep(l, "the effects of all %zu nodes", f.n)
            : keep(l, l->o.prune >= 0 ? "%zu of %zu edges are left" : "the best %zu of %zu edges",
                   f.n_kept, f.n);
    if (l->o.output && ends_in(l->o.output, ".json"))
        return write_circuit(l, &f.p, &f.graph, f.edges, f.n_kept);
    found.page.warning = warn_of_gap(l, &f.p);
    found.page.note = l->o.prune >= 0 ? note_of_pruned(l, &f) : note_of_edges(l, &f);
    if (l->o.of_nodes)
        return present_pairs(l, &found, LENS_SPREAD_VALUES);
    graph.graph = f.graph;
    graph.edges = f.edges;
    graph.n = f.n_kept;
    found.page.figure = (lens_figure){svg_graph, &graph, "the graph of these edges"};
    if (l->o.output && is_svg(l) && !wants_each(l))
        found.n_grids = 0;
    return present_pairs(l, &found, LENS_SPREAD_VALUES);
}

#endif
