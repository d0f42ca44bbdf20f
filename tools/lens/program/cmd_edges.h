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
    lens_edge *edges;  /* [n], the largest scores first; with --prune, as lens_pruned has them. With
                         --of nodes their receivers are 0 */
    float value;       /* the answer of the circuit */
    const char *title; /* of the grid */
    lens_drawn_graph drawn;
} edge_finding;

/* Computes the circuit's answer, a mean over the pairs. */
static attn_status run_circuit(lens *l, edge_finding *f, lens_backward *backward, attn_tensor kept)
{
    attn_status status = ATTN_OK;
    float value = 0;
    for (size_t i = 0; i < f->p.n_pairs && status == ATTN_OK; i++) {
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
    for (size_t i = 0; i < l->n_pairs && status == ATTN_OK; i++) {
        attn_tensor one = attn_borrow(f->p.each + i * (2 + count_of(shape)) + 2, ATTN_F32, shape);
        l->part = 1 + i;
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
    d.pairs = f->p.pairs;
    d.n_pairs = f->p.n_pairs;
    d.amount = (double)l->o.prune;
    d.scores = scores;
    d.progress = so_far;
    d.user = l;
    l->part = 1;
    begin_progress(l, "removing");
    attn_status status = lens_prune(&l->ctx, &found, backward, &d);
    end_progress(l);
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
    for (size_t i = 0; i < f->n; i++)
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
    l->n_parts = l->o.prune >= 0 ? 2 : l->o.exact || !wants_each(l) ? 1 : 1 + l->n_pairs;
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

/* "nodes", or "edges": the best ones, or all if a whole answer of true effects is asked for. */
static void add_edges(lens *l, const edge_finding *f)
{
    const int of_nodes = l->o.of_nodes;
    const size_t n_receivers = of_nodes ? 1 : f->graph.n_receivers, n_kept = f->n_kept;
    const size_t n = l->o.exact && wants_all(l) ? f->n : n_kept;
    answer_table *const t = add_rows(l, of_nodes ? "nodes" : "edges", n,
                                     of_nodes ? "node:s | score" : "from:s to:s | score");
    measured_column *const m = add_measure(l, t, "score", n_kept);
    size_t *const at = (size_t *)allocate(l, f->n, sizeof *at);
    for (size_t i = 0; at && i < f->n; i++)
        at[i] = f->edges[i].sender * n_receivers + f->edges[i].receiver;
    for (size_t i = 0; !l->ctx.status && i < n; i++) {
        const lens_edge *const e = &f->edges[i];
        const char *const from = keep(l, "%s", lens_sender_name(&f->graph, e->sender).text);
        if (of_nodes)
            answer_put(&l->answer, t, i, from, e->score);
        else
            answer_put(&l->answer, t, i, from,
                       keep(l, "%s", lens_receiver_name(&f->graph, e->receiver).text), e->score);
    }
    const results from = {NULL, f->p.each, f->graph.n_senders * n_receivers, 0};
    if (l->ctx.status)
        return;
    take_rows(l, m, 0, at, n_kept, from);
    if (n_kept < f->n)
        choose_rows(m, at, f->n, from);
}

static void add_edge_facts(lens *l, const edge_finding *f)
{
    add_patching(l, &f->p);
    if (!l->o.exact)
        facts(l, "method:s steps:z", methods[l->o.method].title, f->n_steps);
    if (!l->o.of_nodes)
        facts(l, "circuit n_kept:z n_edges:z", f->value, f->n_kept, f->n);
}

/* An SVG shows the graph alone, unless the numbers of pairs are asked for. */
static void dress_edges(lens *l, const void *of)
{
    const edge_finding *const f = (const edge_finding *)of;
    if (l->form != FORM_SVG || l->o.of_nodes || wants_each(l))
        add_scores(l, f->title, f->n_kept);
}

static int save_edges(lens *l, const void *of)
{
    const edge_finding *const f = (const edge_finding *)of;
    return write_circuit(l, &f->p, &f->graph, f->edges, f->n_kept);
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

static int run_scores(lens *l, void *finding)
{
    edge_finding *const f = (edge_finding *)finding;
    int code;
    show_as(l,
            l->o.of_nodes ? "Effects of nodes"
            : l->o.exact  ? "Effects of edges"
                          : "Edge attribution",
            dress_edges);
    if (l->o.method < 0)
        l->o.method = l->o.steps > 1 ? METHOD_EAP_IG : METHOD_EAP;
    if (l->o.method == METHOD_EAP_IG && !l->o.steps)
        l->o.steps = 5;
    f->n_steps = l->o.steps ? l->o.steps : 1;
    if ((code = ask_about_patches(l, &f->p)) != FINE || (code = find_edges(l, f)) != FINE)
        return code;
    f->title = l->o.of_nodes     ? keep(l, "the effects of all %zu nodes", f->n)
               : l->o.prune >= 0 ? keep(l, "%zu of %zu edges are left", f->n_kept, f->n)
                                 : keep(l, "the best %zu of %zu edges", f->n_kept, f->n);
    add_edge_facts(l, f);
    add_edges(l, f);
    l->shown.page.warning = warn_of_gap(l, &f->p);
    l->shown.page.note = l->o.prune >= 0 ? note_of_pruned(l, f) : note_of_edges(l, f);
    if (!l->o.of_nodes) {
        f->drawn = (lens_drawn_graph){f->graph, f->edges, f->n_kept};
        l->shown.page.figure = (lens_figure){svg_graph, &f->drawn, "the graph of these edges"};
        l->shown.save = save_edges;
    }
    return show_pairs(l, LENS_SPREAD_VALUES);
}

typedef union any_edges {
    edge_finding scores;
    curve_finding curves;
    joint_finding joint;
} any_edges;

static int run_edges(lens *l, void *finding)
{
    return (l->o.interactions || l->o.shapley ? run_joint
            : l->o.curve                      ? run_curves
                                              : run_scores)(l, finding);
}

#endif
