/* Edge attribution patching: which connections between the parts of a model make the difference
 * between two texts. EAP (Syed, Rager & Conmy 2023), EAP-IG (Hanna, Pezzelle & Belinkov 2024), and the
 * circuit of the best edges, run. Uses attn.h's public API only.
 *
 * The residual stream is a sum, so each part of the model reads what each earlier part wrote. Senders
 * are the embeddings, every head and every MLP; receivers are the queries, keys and values of every
 * head, every MLP, and the logits. An edge leads from a sender to a later receiver: GPT-2 small has
 * 32,491 edges. If one edge carries the value of the corrupted text, and all other edges carry values of
 * the clean text, the metric changes by about
 *
 *     score = (corrupted write of the sender - clean write) · d metric / d input of the receiver
 *
 * with the gradient of the clean text (EAP), or with its mean over `steps` runs whose embeddings lie
 * between both texts: corrupted + k / steps * (clean - corrupted), k = 1 .. steps (EAP-IG). One forward and
 * one backward pass for each step give the scores of all edges. The input of a receiver is the one before
 * LayerNorm, as in the code of both papers.
 *
 *     attn_tensor scores = ATTN_ZERO, kept = ATTN_ZERO;
 *     float value;
 *     if (lens_edge_scores(&ctx, &scores, &backward, pairs, n_pairs, 5) == ATTN_OK &&
 *         lens_best_edges(&ctx, &kept, model, scores, 200) == ATTN_OK &&
 *         lens_run_edges(&ctx, &value, &backward, &pairs[0], kept) == ATTN_OK)
 *         printf("with 200 edges the metric is %.3f\n", value);
 *
 * With backward.rules the gradients are those of GIM (gradients.h), for any number of steps.
 *
 * These are estimates; exact.h has the true effects. Where attention is sure of its key, its gradient is
 * near zero, and EAP misses the edges into it. On five models of induction GIM found the best circuits (CPR
 * 0.76 to 0.94, EAP 0.29 to 0.44, the true effects 0.85 to 0.96); on another model EAP's order was closer
 * to the true one (rank correlation 0.93, GIM 0.76): tests/compare/truth/estimates.tsv.
 *
 * With backward.edits all runs use the edited model. A sender's output is its edited output, and an edit of
 * a receiver's input applies after all edges into that receiver have been added. EAP needs the stream to be
 * a sum of the senders' outputs. So edits of hook_attn_out and of the stream above the embeddings must be
 * ATTN_EDIT_ADD, and ln1 and hook_attn_in cannot be edited, because each head reads its own copy.
 *
 * S = 1 + L * (H + 1) senders, R = L * (3H + 1) + 1 receivers. */
#ifndef LENS_EDGES_H
#define LENS_EDGES_H

#include "pairs.h"
#include <stdlib.h>

/* ---- the graph ---- */

/* Senders in the order in which they write: the embeddings, then of each layer its heads and its MLP.
 * Receivers likewise: of each layer the queries of its heads, their keys, their values, and its MLP;
 * last the logits. */
typedef struct lens_graph {
    size_t n_layer, n_head;
    size_t n_senders, n_receivers, n_edges;
} lens_graph;

/* Number of senders that write before the heads of a layer read, or before its MLP reads. */
LENS_FN size_t lens_senders_before(const lens_graph *g, size_t layer, int mlp)
{
    return 1 + layer * (g->n_head + 1) + (mlp ? g->n_head : 0);
}

LENS_FN size_t lens_senders_to(const lens_graph *g, size_t receiver)
{
    const size_t in_layer = 3 * g->n_head + 1;
    return lens_senders_before(g, receiver / in_layer, receiver % in_layer == in_layer - 1);
}

LENS_FN lens_graph lens_graph_of(const attn_model *model)
{
    const attn_config *c = attn_model_config(model);
    lens_graph g = ATTN_ZERO;
    g.n_layer = c->n_layer;
    g.n_head = c->n_head;
    g.n_senders = 1 + g.n_layer * (g.n_head + 1);
    g.n_receivers = g.n_layer * (3 * g.n_head + 1) + 1;
    for (size_t i = 0; i < g.n_receivers; i++)
        g.n_edges += lens_senders_to(&g, i);
    return g;
}

typedef struct lens_node_name {
    char text[48];
} lens_node_name;

/* "input", "a3.h5", "m3" */
LENS_FN lens_node_name lens_sender_name(const lens_graph *g, size_t sender)
{
    lens_node_name name;
    const size_t width = g->n_head + 1;        /* an attention's heads, and its MLP */
    const size_t layer = (sender - 1) / width; /* NOLINT: n_head is a model's, and width above 0 */
    const size_t head = (sender - 1) % width;
    if (sender == 0)
        snprintf(name.text, sizeof name.text, "input");
    else if (head == g->n_head)
        snprintf(name.text, sizeof name.text, "m%llu", LENS_LLU(layer));
    else
        snprintf(name.text, sizeof name.text, "a%llu.h%llu", LENS_LLU(layer), LENS_LLU(head));
    return name;
}

/* "a3.h5<q>", "m3", "logits" */
LENS_FN lens_node_name lens_receiver_name(const lens_graph *g, size_t receiver)
{
    lens_node_name name;
    const size_t in_layer = 3 * g->n_head + 1, layer = receiver / in_layer;
    const size_t part = receiver % in_layer;
    if (receiver == g->n_receivers - 1)
        snprintf(name.text, sizeof name.text, "logits");
    else if (part == in_layer - 1)
        snprintf(name.text, sizeof name.text, "m%llu", LENS_LLU(layer));
    else
        snprintf(name.text, sizeof name.text, "a%llu.h%llu<%c>", LENS_LLU(layer),
                 LENS_LLU(part % g->n_head), "qkv"[part / g->n_head]);
    return name;
}

/* The sender of that name; n_senders if there is none. */
LENS_FN size_t lens_sender_named(const lens_graph *g, const char *name)
{
    char *end = NULL;
    size_t sender = 0;
    if (*name == 'a' || *name == 'm') {
        sender = lens_senders_before(g, (size_t)strtoul(name + 1, &end, 10), *name == 'm');
        sender += end[0] == '.' && end[1] == 'h' ? (size_t)strtoul(end + 2, NULL, 10) : 0;
    }
    return sender < g->n_senders && strcmp(lens_sender_name(g, sender).text, name) == 0
               ? sender
               : g->n_senders;
}

/* The receiver of that name; n_receivers if there is none. */
LENS_FN size_t lens_receiver_named(const lens_graph *g, const char *name)
{
    char *end = NULL;
    size_t receiver = g->n_receivers - 1;
    if (*name == 'a' || *name == 'm') {
        receiver = (size_t)strtoul(name + 1, &end, 10) * (3 * g->n_head + 1);
        receiver += *name == 'm' ? 3 * g->n_head : 0;
        receiver += end[0] == '.' && end[1] == 'h' ? (size_t)strtoul(end + 2, &end, 10) : 0;
        if (end[0] == '<' && (end[1] == 'k' || end[1] == 'v'))
            receiver += (end[1] == 'k' ? 1 : 2) * g->n_head;
    }
    return receiver < g->n_receivers && strcmp(lens_receiver_name(g, receiver).text, name) == 0
               ? receiver
               : g->n_receivers;
}

/* The sender that a receiver belongs to: its head, or its MLP; n_senders for the logits. */
LENS_FN size_t lens_node_of_receiver(const lens_graph *g, size_t receiver)
{
    const size_t in_layer = 3 * g->n_head + 1, part = receiver % in_layer;
    if (receiver == g->n_receivers - 1)
        return g->n_senders;
    return lens_senders_before(g, receiver / in_layer, part == in_layer - 1) +
           (part == in_layer - 1 ? 0 : part % g->n_head);
}

/* ---- what senders write ---- */

static const char *const lens_written[] = {"blocks.0.hook_resid_pre", "*.attn.hook_result",
                                           "*.hook_mlp_out", "hook_embed", "hook_pos_embed"};

/* Refuses edits after which the stream is not the sum of what senders write. */
LENS_FN attn_status lens_need_sums(attn_ctx *ctx, const char *op, const lens_backward *b)
{
    static const char *const names[] = {
        "hook_resid_pre", "hook_resid_mid", "hook_resid_post",         "hook_attn_out",
        "hook_attn_in",   "ln1.hook_scale", "ln1.hook_normalized.pre", "ln1.hook_normalized.post"};
    const size_t n_layer = attn_model_config(b->model)->n_layer;
    if (lens_need_edits(ctx, op, b->edits, b->n_edits) != ATTN_OK)
        return lens_failure(ctx);
    for (size_t i = 0; i < b->n_edits; i++)
        for (size_t layer = 0; layer < n_layer; layer++)
            for (size_t j = 0; j < 8; j++) {
                const lens_full_name name = lens_name_in(layer, names[j]);
                if ((j == 0 && layer == 0) || (j < 4 && b->edits[i].kind == ATTN_EDIT_ADD) ||
                    !attn_activation_matches(b->edits[i].name, name.text))
                    continue;
                return attn_fail(ctx, ATTN_E_ARGUMENT,
                                 "%s: an edit of %s leaves no sum of what senders write; edit what "
                                 "heads and MLPs read or write%s",
                                 op, name.text, j < 4 ? ", or add to it" : "");
            }
    return ATTN_OK;
}

/* differences [n * T, C]: the corrupted minus the clean value of one activation that n senders write, [T, C]
 * or, of all heads, [T, H, C]. (b_O is not part of it: it is the same in both texts.) */
LENS_FN attn_status lens_subtract_writes(attn_ctx *ctx, attn_tensor differences,
                                         const attn_record *clean, const attn_record *corrupted,
                                         size_t layer, const char *name)
{
    attn_tensor x, y;
    lens_find(ctx, &x, clean, layer, name);
    lens_find(ctx, &y, corrupted, layer, name);
    if (x.ndim == 3) {
        x = attn_transpose(x, 0, 1);
        y = attn_transpose(y, 0, 1);
        differences = attn_reshape(differences, attn_shape3(x.shape[0], x.shape[1], x.shape[2]));
    }
    return attn_sub(ctx, &differences, y, x);
}

/* differences [S * T, C]: corrupted write - clean write, for records of both texts. */
LENS_FN attn_status lens_differences(attn_ctx *ctx, attn_tensor *differences, const lens_graph *g,
                                     const attn_record *clean, const attn_record *corrupted)
{
    attn_tensor x;
    lens_find(ctx, &x, clean, 0, "hook_resid_pre");
    size_t n = x.shape[0];
    int failed =
        attn_zeros(ctx, differences, ATTN_F32, attn_shape2(g->n_senders * n, x.shape[1])) ||
        lens_subtract_writes(ctx, attn_slice(*differences, 0, 0, n), clean, corrupted, 0,
                             "hook_resid_pre");
    for (size_t layer = 0; layer < g->n_layer && !failed; layer++) {
        const size_t heads = lens_senders_before(g, layer, 0) * n, n_rows = g->n_head * n;
        failed = lens_subtract_writes(ctx, attn_slice(*differences, 0, heads, n_rows), clean,
                                      corrupted, layer, "attn.hook_result") ||
                 lens_subtract_writes(ctx, attn_slice(*differences, 0, heads + n_rows, n), clean,
                                      corrupted, layer, "hook_mlp_out");
    }
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* *panels (a zeroed tensor): the transposed differences [T * C, S] as panels (panels.h), for the products
 * with the gradients of the receivers. */
LENS_FN attn_status lens_pack_differences(attn_ctx *ctx, attn_tensor *panels, const lens_graph *g,
                                          const attn_record *clean, const attn_record *corrupted)
{
    attn_tensor d = ATTN_ZERO;
    attn_status status = lens_differences(ctx, &d, g, clean, corrupted);
    if (status == ATTN_OK) {
        const attn_shape shape = attn_shape2(g->n_senders, attn_count(d) / g->n_senders);
        status = lens_pack(ctx, panels, attn_transpose(attn_reshape(d, shape), 0, 1));
    }
    attn_tensor_free(ctx, &d);
    return status;
}

/* ---- scores ---- */

/* Adds factor * products [receivers, senders] to scores [S, R], for the first n_senders senders and the
 * receivers from number `first` on. */
LENS_FN attn_status lens_add_scores(attn_ctx *ctx, attn_tensor scores, attn_tensor products,
                                    size_t n_senders, size_t first, float factor)
{
    attn_tensor part = attn_slice(attn_slice(scores, 0, 0, n_senders), 1, first, products.shape[0]);
    attn_tensor scaled = ATTN_ZERO;
    attn_status status = attn_scale(
        ctx, &scaled, attn_transpose(attn_slice(products, 1, 0, n_senders), 0, 1), factor);
    if (status == ATTN_OK)
        status = attn_add(ctx, &part, part, scaled);
    attn_tensor_free(ctx, &scaled);
    return status;
}

/* The gradient of a receiver's input before its edits: of the sum of all edges into the receiver. */
LENS_FN attn_tensor lens_input_gradient(attn_ctx *ctx, const lens_backward *b,
                                        const attn_record *gradients, size_t layer,
                                        const char *name)
{
    attn_tensor value;
    lens_find(ctx, &value, gradients, layer, name);
    lens_back_edits(b->edits, b->n_edits, layer, name, value);
    return value;
}

/* inputs [3H + 1, T, C]: the input gradients of one layer's receivers; or [1, T, C], of the logits (layer
 * n_layer). */
LENS_FN attn_status lens_gather_inputs(attn_ctx *ctx, attn_tensor inputs, const lens_backward *b,
                                       const attn_record *gradients, size_t layer)
{
    static const char *const names[] = {"hook_q_input", "hook_k_input", "hook_v_input"};
    const attn_config *c = attn_model_config(b->model);
    const int is_end = layer == c->n_layer;
    attn_tensor value, to;
    for (size_t i = 0; i < 3 && !is_end; i++) {
        value = lens_input_gradient(ctx, b, gradients, layer, names[i]);
        to = attn_slice(inputs, 0, i * c->n_head, c->n_head);
        if (attn_copy(ctx, &to, attn_transpose(value, 0, 1)) != ATTN_OK)
            return lens_failure(ctx);
    }
    value = lens_input_gradient(ctx, b, gradients, layer - (size_t)is_end,
                                is_end ? "hook_resid_post" : "hook_mlp_in");
    to = attn_select(inputs, 0, inputs.shape[0] - 1);
    return attn_copy(ctx, &to, value);
}

/* Scores the edges into one layer, or into the logits (layer n_layer), with one matrix product: the
 * receivers' gradients times the differences of all senders below the layer's last receiver. */
LENS_FN attn_status lens_score_layer(attn_ctx *ctx, attn_tensor scores, attn_tensor panels,
                                     const lens_backward *b, const attn_record *gradients,
                                     size_t layer, float factor)
{
    const lens_graph g = lens_graph_of(b->model);
    const int is_end = layer == g.n_layer;
    const size_t n_heads = is_end ? 0 : 3 * g.n_head, first = layer * (3 * g.n_head + 1);
    const size_t n_senders = lens_senders_before(&g, layer, !is_end);
    attn_tensor last, inputs = ATTN_ZERO, products = ATTN_ZERO, none = ATTN_ZERO;
    lens_find(ctx, &last, gradients, g.n_layer - 1, "hook_resid_post");
    int failed =
        attn_zeros(ctx, &inputs, ATTN_F32,
                   attn_shape3(n_heads + 1, last.shape[0], last.shape[1])) ||
        lens_gather_inputs(ctx, inputs, b, gradients, layer) ||
        attn_linear(ctx, &products, attn_reshape(inputs, attn_shape2(n_heads + 1, panels.shape[1])),
                    attn_slice(panels, 0, 0, (n_senders + 15) / 16), none) ||
        (!is_end && lens_add_scores(ctx, scores, attn_slice(products, 0, 0, n_heads),
                                    lens_senders_before(&g, layer, 0), first, factor)) ||
        lens_add_scores(ctx, scores, attn_slice(products, 0, n_heads, 1), n_senders,
                        first + n_heads, factor);
    attn_tensor_free(ctx, &inputs);
    attn_tensor_free(ctx, &products);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* The sum of the embeddings in a record. */
LENS_FN attn_status lens_embeddings(attn_ctx *ctx, attn_tensor *sum, const attn_record *record)
{
    attn_tensor tokens, positions;
    lens_find(ctx, &tokens, record, ATTN_NO_LAYER, "hook_embed");
    lens_find(ctx, &positions, record, ATTN_NO_LAYER, "hook_pos_embed");
    return attn_add(ctx, sum, tokens, positions);
}

/* *stream [T, C]: `share` of the way from the corrupted text's embeddings to the clean text's. */
LENS_FN attn_status lens_stream_between(attn_ctx *ctx, attn_tensor *stream,
                                        const attn_record *clean, const attn_record *corrupted,
                                        float share)
{
    attn_tensor from = ATTN_ZERO;
    const int failed =
        lens_embeddings(ctx, stream, clean) || lens_embeddings(ctx, &from, corrupted) ||
        attn_sub(ctx, stream, *stream, from) || attn_scale(ctx, stream, *stream, share) ||
        attn_add(ctx, stream, *stream, from);
    attn_tensor_free(ctx, &from);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* Points between the embeddings of two texts: corrupted + k / of * (clean - corrupted), for
 * k = first .. first + n - 1. The last point, k = of, is the clean text. */
typedef struct lens_points {
    size_t first, n, of;
    size_t n_done, n_all; /* for progress: points of the pairs before this one, and of all pairs */
} lens_points;

/* Adds factor * the scores of one pair to `scores`: [S, R] for the sum over the points, or [points, S, R]
 * for each point's own. */
LENS_FN attn_status lens_score_pair(attn_ctx *ctx, attn_tensor scores, lens_backward *b,
                                    const lens_pair *pair, lens_points points, float factor)
{
    const lens_graph g = lens_graph_of(b->model);
    char last[48];
    const char *const names[] = {"*.hook_q_input", "*.hook_k_input", "*.hook_v_input",
                                 "*.hook_mlp_in", last};
    lens_gradients_desc what = lens_text_of(pair, pair->clean, names, 5);
    const lens_gradients_desc other = lens_text_of(pair, pair->corrupted, lens_written, 5);
    lens_kept clean = ATTN_ZERO;
    attn_record *corrupted = NULL, *gradients = NULL;
    attn_tensor panels = ATTN_ZERO, stream = ATTN_ZERO;
    attn_status status = lens_record_metric(ctx, &corrupted, NULL, b, &other);
    snprintf(last, sizeof last, "blocks.%llu.hook_resid_post", LENS_LLU(g.n_layer - 1));
    clean.names = lens_written;
    clean.n_names = 5;
    for (size_t i = points.n; i > 0 && status == ATTN_OK; i--) { /* the clean text first */
        const attn_tensor to = scores.ndim == 3 ? attn_select(scores, 0, i - 1) : scores;
        const int is_clean = i == points.n;
        if (!is_clean) {
            const float share = (float)(points.first + i - 1) / (float)points.of;
            status = lens_stream_between(ctx, &stream, clean.record, corrupted, share);
            what.resid = (const float *)stream.data;
        }
        if (status == ATTN_OK)
            status =
                lens_gradients_beside(ctx, &gradients, is_clean ? &clean : NULL, NULL, b, &what);
        if (status == ATTN_OK && is_clean)
            status = lens_pack_differences(ctx, &panels, &g, clean.record, corrupted);
        for (size_t layer = 0; layer <= g.n_layer && status == ATTN_OK; layer++)
            status = lens_score_layer(ctx, to, panels, b, gradients, layer, factor);
        if (status == ATTN_OK && points.n_all)
            status =
                lens_progress(b->progress, b->user,
                              (double)(points.n_done + points.n - i + 1) / (double)points.n_all);
        attn_record_free(gradients);
        gradients = NULL;
    }
    attn_record_free(corrupted);
    attn_record_free(clean.record);
    attn_tensor_free(ctx, &panels);
    attn_tensor_free(ctx, &stream);
    return status;
}

enum { LENS_MOST_STEPS = 1000 };

/* out [S, R]: the score of each edge, a mean over the pairs; 0 where there is no edge. n_steps 1 (or 0):
 * EAP; up to LENS_MOST_STEPS: EAP-IG. Memory does not grow with the number of pairs. */
LENS_FN attn_status lens_edge_scores(attn_ctx *ctx, attn_tensor *out, lens_backward *b,
                                     const lens_pair *pairs, size_t n_pairs, size_t n_steps)
{
    static const char op[] = "lens_edge_scores";
    lens_points points = {1, 0, 0, 0, 0};
    lens_result result;
    attn_status status = ATTN_OK;
    if (!b || !b->model)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no lens_backward that lens_backward_new made",
                         op);
    if (!pairs || n_pairs == 0)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no pairs of texts given", op);
    if (n_steps > LENS_MOST_STEPS)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: steps is %zu; expected at most %d", op, n_steps,
                         LENS_MOST_STEPS);
    if (lens_need_sums(ctx, op, b) != ATTN_OK)
        return lens_failure(ctx);
    for (size_t i = 0; i < n_pairs; i++)
        if (lens_need_pair(ctx, op, b->model, &pairs[i]) != ATTN_OK)
            return lens_failure(ctx);
    points.n = points.of = n_steps ? n_steps : 1;
    points.n_all = n_pairs * points.n;
    lens_graph g = lens_graph_of(b->model);
    if (lens_begin(ctx, op, out, attn_shape2(g.n_senders, g.n_receivers), &result) != ATTN_OK)
        return lens_failure(ctx);
    for (size_t i = 0; i < n_pairs && status == ATTN_OK; i++, points.n_done += points.n)
        status = lens_score_pair(ctx, result.numbers, b, &pairs[i], points,
                                 1.0f / (float)n_pairs / (float)points.n);
    return lens_finish(ctx, &result, status);
}

/* ---- a circuit ---- */

typedef struct lens_edge {
    size_t sender, receiver;
    float score;
} lens_edge;

/* The larger score first; of equal ones, the earlier edge. */
LENS_FN int lens_compare_edges(const void *a, const void *b)
{
    const lens_edge *x = (const lens_edge *)a, *y = (const lens_edge *)b;
    const float left = fabsf(x->score), right = fabsf(y->score);
    if (left != right)
        return left < right ? 1 : -1;
    if (x->sender != y->sender)
        return x->sender < y->sender ? -1 : 1;
    return x->receiver < y->receiver ? -1 : x->receiver > y->receiver;
}

/* edges [lens_graph.n_edges]: all edges, sorted by the magnitude of their scores, largest first. */
LENS_FN attn_status lens_sort_edges(attn_ctx *ctx, lens_edge *edges, const attn_model *model,
                                    attn_tensor scores)
{
    static const char op[] = "lens_sort_edges";
    const lens_graph g = lens_graph_of(model);
    size_t n = 0;
    if (lens_need(ctx, op, "scores", scores) != ATTN_OK)
        return lens_failure(ctx);
    if (scores.ndim != 2 || scores.shape[0] != g.n_senders || scores.shape[1] != g.n_receivers)
        return attn_fail(ctx, ATTN_E_SHAPE, "%s: scores have shape %s; expected [%llu, %llu]", op,
                         lens_show(scores).text, LENS_LLU(g.n_senders), LENS_LLU(g.n_receivers));
    for (size_t receiver = 0; receiver < g.n_receivers; receiver++)
        for (size_t sender = 0; sender < lens_senders_to(&g, receiver); sender++, n++) {
            edges[n].sender = sender;
            edges[n].receiver = receiver;
            edges[n].score = attn_get2(scores, sender, receiver);
            if (edges[n].score != edges[n].score)
                return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: the score of the edge %s->%s is NaN",
                                 op, lens_sender_name(&g, sender).text,
                                 lens_receiver_name(&g, receiver).text);
        }
    qsort(edges, n, sizeof *edges, lens_compare_edges);
    return ATTN_OK;
}

/* Sets `kept` [S, R] to 1 for the first n edges, else to 0. */
LENS_FN void lens_keep_edges(attn_tensor kept, const lens_edge *edges, size_t n)
{
    float *const to = (float *)kept.data;
    memset(to, 0, attn_count(kept) * sizeof *to);
    for (size_t i = 0; i < n; i++)
        to[edges[i].sender * kept.shape[1] + edges[i].receiver] = 1;
}

/* kept [S, R]: 1 for the n edges with the largest scores (by magnitude), else 0. */
LENS_FN attn_status lens_best_edges(attn_ctx *ctx, attn_tensor *kept, const attn_model *model,
                                    attn_tensor scores, size_t n)
{
    lens_result result;
    lens_edge *edges;
    if (lens_need_layer(ctx, "lens_best_edges", model, 0) != ATTN_OK)
        return lens_failure(ctx);
    lens_graph g = lens_graph_of(model);
    if (lens_begin(ctx, "lens_best_edges", kept, attn_shape2(g.n_senders, g.n_receivers), &result))
        return lens_failure(ctx);
    edges = (lens_edge *)attn_alloc(ctx, g.n_edges, sizeof *edges, "a list of edges");
    attn_status status = edges ? lens_sort_edges(ctx, edges, model, scores) : ATTN_E_MEMORY;
    if (status == ATTN_OK)
        lens_keep_edges(result.numbers, edges, n < g.n_edges ? n : g.n_edges);
    attn_free(edges);
    return lens_finish(ctx, &result, status);
}

/* A run in which the input of every receiver is computed from its edges. */
typedef struct lens_edge_run {
    lens_graph graph;
    attn_record *corrupted; /* streams and writes of the corrupted text */
    attn_tensor kept;       /* [S, R], dense */
    attn_tensor
        moved; /* [S, T, C]: each sender's write in this run minus that of the corrupted text */
} lens_edge_run;

/* Row `t` of a receiver's input: adds what its kept edges carry to `to`, which holds the corrupted stream. */
LENS_FN void lens_add_kept_edges(const lens_edge_run *run, float *to, size_t receiver, size_t t)
{
    const size_t n = run->moved.shape[1], width = run->moved.shape[2];
    const size_t n_before = lens_senders_to(&run->graph, receiver);
    const float *kept = (const float *)run->kept.data + receiver;
    for (size_t sender = 0; sender < n_before; sender++)
        if (kept[sender * run->graph.n_receivers] != 0) {
            const float *from = (const float *)run->moved.data + (sender * n + t) * width;
            for (size_t i = 0; i < width; i++)
                to[i] += from[i];
        }
}

/* Writes the rows of an input: of each head, or of the MLP or the logits. */
LENS_FN void lens_write_input(const lens_edge_run *run, const attn_activation *a,
                              attn_tensor stream, size_t first_receiver)
{
    const attn_tensor *v = &a->value;
    const size_t n_heads = v->ndim == 3 ? v->shape[1] : 1, width = run->moved.shape[2];
    for (size_t t = 0; t < v->shape[0]; t++)
        for (size_t head = 0; head < n_heads; head++) {
            float *to = (float *)v->data + (ptrdiff_t)t * v->stride[0] +
                        (v->ndim == 3 ? (ptrdiff_t)head * v->stride[1] : 0);
            for (size_t i = 0; i < width; i++)
                to[i] = attn_get2(stream, a->first + t, i);
            lens_add_kept_edges(run, to, first_receiver + head, a->first + t);
        }
}

/* Stores the difference between a sender's write and that of the corrupted text. */
LENS_FN void lens_store_write(const lens_edge_run *run, const attn_activation *a,
                              attn_tensor corrupted, size_t first_sender)
{
    const attn_tensor *v = &a->value;
    const size_t n_heads = v->ndim == 3 ? v->shape[1] : 1;
    const size_t n = run->moved.shape[1], width = run->moved.shape[2];
    for (size_t t = 0; t < v->shape[0]; t++)
        for (size_t head = 0; head < n_heads; head++) {
            const size_t at = a->first + t;
            float *to = (float *)run->moved.data + ((first_sender + head) * n + at) * width;
            for (size_t i = 0; i < width; i++)
                to[i] = v->ndim == 3 ? attn_get3(*v, t, head, i) - attn_get3(corrupted, at, head, i)
                                     : attn_get2(*v, t, i) - attn_get2(corrupted, at, i);
        }
}

/* Is this the last part of an activation's name? */
LENS_FN int lens_is_called(const attn_activation *a, const char *name)
{
    const size_t n = strlen(a->name), m = strlen(name);
    return n > m && a->name[n - m - 1] == '.' && strcmp(a->name + n - m, name) == 0;
}

/* The hook of the run. It sees the activations of a layer in their order: the inputs of the heads, their
 * results, the input of the MLP, its output. */
LENS_FN int lens_edge_hook(const attn_activation *a, void *user)
{
    static const char *const parts[][2] = {
        {"hook_q_input", "hook_resid_pre"},     {"hook_k_input", "hook_resid_pre"},
        {"hook_v_input", "hook_resid_pre"},     {"hook_mlp_in", "hook_resid_mid"},
        {"hook_resid_post", "hook_resid_post"}, {"hook_resid_pre", "hook_resid_pre"},
        {"hook_result", "attn.hook_result"},    {"hook_mlp_out", "hook_mlp_out"}};
    const lens_edge_run *run = (const lens_edge_run *)user;
    const lens_graph *g = &run->graph;
    const size_t layer = a->layer, first = layer * (3 * g->n_head + 1);
    const size_t senders[3] = {0, lens_senders_before(g, layer, 0),
                               lens_senders_before(g, layer, 1)};
    attn_ctx ctx = ATTN_ZERO;
    attn_tensor was;
    size_t i = 0;
    while (i < 7 && !lens_is_called(a, parts[i][0]))
        i++;
    lens_find(&ctx, &was, run->corrupted, layer, parts[i][1]);
    if (i < 5)
        lens_write_input(run, a, was, i < 4 ? first + i * g->n_head : g->n_receivers - 1);
    else
        lens_store_write(run, a, was, senders[i - 5]);
    return 0;
}

/* Feeds the clean text with the hooks of the run. */
LENS_FN attn_status lens_feed_edges(attn_ctx *ctx, float *value, lens_backward *b,
                                    const lens_pair *pair, lens_edge_run *run)
{
    char last[48];
    const char *const names[] = {
        "*.hook_q_input",          "*.hook_k_input",     "*.hook_v_input", "*.hook_mlp_in",
        "blocks.0.hook_resid_pre", "*.attn.hook_result", "*.hook_mlp_out", last};
    const lens_gradients_desc what = lens_text_of(pair, pair->clean, NULL, 0);
    attn_session_desc size = ATTN_ZERO;
    attn_session *session = NULL;
    attn_tensor logits = ATTN_ZERO;
    snprintf(last, sizeof last, "blocks.%llu.hook_resid_post", LENS_LLU(run->graph.n_layer - 1));
    size.n_ctx = pair->n_tokens;
    size.workspace = b->workspace;
    attn_status status = attn_session_new(ctx, &session, b->model, &size);
    for (size_t i = 0; i < 8 && status == ATTN_OK;
         i++) { /* first inputs, then edits, then outputs */
        if (i == 4)
            status = lens_hook_edits(ctx, session, b->edits, b->n_edits);
        if (status == ATTN_OK)
            status = attn_hook(ctx, NULL, session, names[i], lens_edge_hook, run);
    }
    if (status == ATTN_OK)
        status = lens_feed_metric(ctx, &logits, session, &what);
    if (status == ATTN_OK)
        status = lens_metric_back(ctx, value, logits, &pair->metric, pair->clean);
    attn_session_free(session);
    attn_tensor_free(ctx, &logits);
    return status;
}

/* Records the corrupted text of a pair, for runs with the edges of kept [S, R], dense. Call lens_edge_run_end
 * afterwards, after a failure too. */
LENS_FN attn_status lens_edge_run_begin(attn_ctx *ctx, lens_edge_run *run, lens_backward *b,
                                        const lens_pair *pair, attn_tensor kept)
{
    static const char *const recorded[] = {"*.hook_resid_pre", "*.hook_resid_mid",
                                           "*.hook_resid_post", "*.attn.hook_result",
                                           "*.hook_mlp_out"};
    const lens_gradients_desc what = lens_text_of(pair, pair->corrupted, recorded, 5);
    run->graph = lens_graph_of(b->model);
    run->kept = kept;
    return attn_zeros(ctx, &run->moved, ATTN_F32,
                      attn_shape3(run->graph.n_senders, pair->n_tokens,
                                  attn_model_config(b->model)->d_model)) ||
                   lens_record_metric(ctx, &run->corrupted, NULL, b, &what)
               ? lens_failure(ctx)
               : ATTN_OK;
}

LENS_FN void lens_edge_run_end(attn_ctx *ctx, lens_edge_run *run)
{
    attn_record_free(run->corrupted);
    attn_tensor_free(ctx, &run->moved);
}

/* *value: the metric of a run in which the edges with 1 in kept [S, R] carry what their senders write in
 * this run, and the other edges carry what their senders write in the corrupted text. With all edges it is
 * the clean text's metric, with none the corrupted text's. */
LENS_FN attn_status lens_run_edges(attn_ctx *ctx, float *value, lens_backward *b,
                                   const lens_pair *pair, attn_tensor kept)
{
    static const char op[] = "lens_run_edges";
    lens_edge_run run = ATTN_ZERO;
    attn_tensor dense = ATTN_ZERO;
    if (!value || !b || !b->model)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no %s given", op,
                         value ? "lens_backward that lens_backward_new made"
                               : "place for the value");
    if (lens_need_sums(ctx, op, b) || lens_need_pair(ctx, op, b->model, pair) ||
        lens_need(ctx, op, "kept", kept))
        return lens_failure(ctx);
    lens_graph g = lens_graph_of(b->model);
    if (kept.ndim != 2 || kept.shape[0] != g.n_senders || kept.shape[1] != g.n_receivers)
        return attn_fail(ctx, ATTN_E_SHAPE, "%s: kept has shape %s; expected [%llu, %llu]", op,
                         lens_show(kept).text, LENS_LLU(g.n_senders), LENS_LLU(g.n_receivers));
    int failed = attn_scale(ctx, &dense, kept, 1) || /* f32 */
                 lens_edge_run_begin(ctx, &run, b, pair, dense) ||
                 lens_feed_edges(ctx, value, b, pair, &run);
    lens_edge_run_end(ctx, &run);
    attn_tensor_free(ctx, &dense);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

#endif
