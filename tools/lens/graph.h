/* The attribution graph of a text: which features of per-layer transcoders cause each other, and the logits
 * (Dunefsky et al. 2024, "Transcoders find interpretable LLM feature circuits"; Ameisen et al. 2025, "Circuit
 * tracing"). Complete: all active features of the text are nodes. Uses attn.h's public API only.
 *
 *     lens_backward backward = ATTN_ZERO;
 *     lens_feature_graph graph = ATTN_ZERO;
 *     lens_sae sae = ATTN_ZERO;
 *     size_t i;
 *     graph.tokens = tokens, graph.n_tokens = n;
 *     if (lens_backward_new(&ctx, &backward, model) != ATTN_OK ||
 *         lens_feature_graph_begin(&ctx, &graph, &backward) != ATTN_OK)
 *         return 1;
 *     for (i = 0; i < n_transcoders; i++) {            one at a time, so that memory stays small
 *         if (lens_sae_open(&ctx, &sae, paths[i]) != ATTN_OK ||
 *             lens_feature_graph_add(&ctx, &graph, &sae) != ATTN_OK)
 *             return 1;
 *         lens_sae_free(&ctx, &sae);
 *     }
 *     if (lens_feature_graph_plan(&ctx, &graph) == ATTN_OK &&     n_nodes and n_edges are known now
 *         lens_feature_graph_fill(&ctx, &graph) == ATTN_OK)
 *         printf("%zu nodes, %zu edges\n", graph.n_nodes, graph.n_edges);
 *     lens_feature_graph_free(&ctx, &graph);
 *
 * Nodes. C = d_model, L layers, T positions. Each source writes a row w [C] to the stream:
 *
 *     embedding (t)         w = the rows of token and position together
 *     feature (l, t, f)     w = activation * row f of W_dec
 *     error (l, t)          w = hook_mlp_out - x̂, x̂ the transcoder's output; without a transcoder hook_mlp_out
 *     logit (token)         writes nothing; the likeliest next tokens until they have 95 %, at most ten
 *
 * A target is a feature or a logit. It reads the stream in the direction r [C]: column f of W_enc, or
 * W_U[:, token] minus the mean of W_U over all tokens. So the value of a logit is the logit minus the mean
 * of all logits.
 *
 * Edges. Attention patterns and the scales of all LayerNorms are taken as the numbers of this text. Then the
 * stream that a target reads is a linear function of the rows that earlier sources write. J is this linear map: it
 * goes along the residual stream and through the values and outputs of heads. It never passes an MLP, because features and errors
 * stand for what the MLPs write. (A skip transcoder's x · W_skip is linear, and belongs to J.)
 *
 *     weight(source -> target) = w · Jᵀ · r
 *     pre_activation(target)   = constant(target) + sum over sources of weight
 *
 * The constant sums the biases: b_enc, b_dec, and those of LayerNorms and heads through the same J. It is
 * computed from the biases, not from the difference. So the last line can fail: `off` is the largest difference between its two sides.
 * For an active feature pre_activation = activation.
 *
 * One target goes back as a row for each position [T, C], from its layer to the embeddings:
 *
 *     d mid   = d post  (+ hook's LayerNorm back of d post · W_skipᵀ)
 *     d pre   = d mid + ln1_back((patternᵀ · (d mid · W_Oᵀ)) · W_Vᵀ)         head by head
 *     ln_back(g) = (g * gain - mean(g * gain)) / scale
 *
 * and weights are products with the rows w at each layer. Targets of one layer and position make one batch.
 * Each product is an operation of attn.h, and sums beside them are in double. So the bits do not depend on the
 * number of threads.
 *
 * With `keep`, only the strongest edges into each target stay; `kept` is their share of the sum of |weight|. */
#ifndef LENS_FEATURE_GRAPH_H
#define LENS_FEATURE_GRAPH_H

#include "graph_nodes.h"

/* ---- the nodes of the graph ---- */

/* Edges that a target of this layer and position can have. */
LENS_FN size_t lens_fg_sources(const lens_feature_graph *g, size_t layer, size_t t)
{
    size_t n = t + 1;
    for (size_t i = 0; i < layer; i++)
        n += g->layers[i].start[t + 1];
    return n;
}

/* What an attention adds at every position, because each row of a pattern has the sum 1:
 * b_O + sum over heads of (ln1.b · W_V + b_V) · W_O. */
LENS_FN attn_status lens_fg_attn_bias(attn_ctx *ctx, const lens_feature_graph *g, size_t layer)
{
    static const char *const names[] = {"ln1.b", "attn.W_V", "attn.b_V", "attn.W_O", "attn.b_O"};
    const attn_config *c = attn_model_config(g->b->model);
    attn_tensor w[5], v = ATTN_ZERO, out = ATTN_ZERO, sum = ATTN_ZERO;
    int failed = 0;
    memset(w, 0, sizeof w);
    for (int i = 0; i < 5 && !failed; i++)
        failed = lens_layer_tensor(ctx, &w[i], g->b->model, layer, names[i]) != ATTN_OK;
    failed = failed || attn_matmul(ctx, &v, attn_reshape(w[0], attn_shape2(1, c->d_model)), w[1]) ||
             attn_add(ctx, &v, v, attn_reshape(w[2], attn_shape3(c->n_head, 1, c->d_head))) ||
             attn_matmul(ctx, &out, v, w[3]) || attn_sum(ctx, &sum, attn_transpose(out, 0, 2)) ||
             attn_add(ctx, &g->layers[layer].attn_bias,
                      attn_reshape(sum, attn_shape2(1, c->d_model)), w[4]);
    for (int i = 0; i < 5; i++)
        attn_tensor_free(ctx, &w[i]);
    attn_tensor_free(ctx, &v);
    attn_tensor_free(ctx, &out);
    attn_tensor_free(ctx, &sum);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* Completes the layers, those without a transcoder too, and counts their nodes. */
LENS_FN attn_status lens_fg_layers(attn_ctx *ctx, lens_feature_graph *g)
{
    const size_t n_layer = attn_model_config(g->b->model)->n_layer;
    const attn_tensor none = ATTN_ZERO;
    size_t n_transcoders = 0;
    g->n_nodes = g->n_tokens;
    g->n_features = 0;
    for (size_t i = 0; i < n_layer; i++) {
        lens_fg_layer *const layer = &g->layers[i];
        if ((!layer->has_transcoder &&
             lens_fg_nodes(ctx, g, i, NULL, none, lens_fg_seen(ctx, g, i, "hook_mlp_out"))) ||
            lens_fg_attn_bias(ctx, g, i))
            return lens_failure(ctx);
        n_transcoders += (size_t)layer->has_transcoder;
        layer->first = g->n_nodes;
        g->n_nodes += layer->start[g->n_tokens];
        g->n_features += layer->start[g->n_tokens] - g->n_tokens;
    }
    if (g->n_features > 0)
        return ATTN_OK;
    return attn_fail(ctx, ATTN_E_ARGUMENT,
                     "no feature of the %zu transcoders is active in this text; are they of this "
                     "model?",
                     n_transcoders);
}

/* The logits' nodes, to[0] .. */
LENS_FN attn_status lens_fg_logits(attn_ctx *ctx, lens_feature_graph *g, lens_graph_node *to)
{
    const size_t n_vocab = attn_model_config(g->b->model)->n_vocab;
    attn_prediction best[LENS_FG_LOGITS];
    const attn_top top = {best, n_vocab < LENS_FG_LOGITS ? n_vocab : (size_t)LENS_FG_LOGITS};
    double mean = 0, reached = 0;
    size_t i;
    if (attn_logit_stats(ctx, NULL, &top, g->logits, NULL) != ATTN_OK)
        return lens_failure(ctx);
    for (i = 0; i < n_vocab; i++)
        mean += (double)((const float *)g->logits.data)[i];
    mean /= (double)n_vocab;
    for (i = 0; i < top.k && reached < 0.95; i++) {
        to[i].kind = LENS_GRAPH_LOGIT;
        to[i].layer = attn_model_config(g->b->model)->n_layer;
        to[i].position = g->n_tokens - 1;
        to[i].feature = (size_t)best[i].token;
        to[i].activation = best[i].probability;
        to[i].pre_activation = (float)((double)best[i].logit - mean);
        reached += (double)best[i].probability;
    }
    g->n_logits = i;
    return ATTN_OK;
}

/* Makes nodes, and counts edges: n_nodes and n_edges are known then. All transcoders must have been added. It is
 * called once; after a failure, here or later, only lens_feature_graph_free is left. */
LENS_FN attn_status lens_feature_graph_plan(attn_ctx *ctx, lens_feature_graph *g)
{
    size_t i, n;
    if (lens_fg_layers(ctx, g) != ATTN_OK)
        return lens_failure(ctx);
    size_t most = g->n_nodes + LENS_FG_LOGITS;
    if (most > UINT32_MAX)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "a graph of %zu nodes; at most 2^32 can be numbered",
                         most);
    g->nodes = (lens_graph_node *)attn_alloc(ctx, most, sizeof *g->nodes, "nodes of a graph");
    g->rows = (size_t *)attn_alloc(ctx, most + 1, sizeof *g->rows, "edges of a graph");
    if (!g->nodes || !g->rows || lens_fg_logits(ctx, g, g->nodes + g->n_nodes))
        return lens_failure(ctx);
    for (i = 0; i < g->n_tokens; i++)
        g->nodes[i].position = i;
    for (size_t layer = 0; i < g->n_nodes; layer++, i += n) {
        n = g->layers[layer].start[g->n_tokens];
        memcpy(g->nodes + i, g->layers[layer].nodes, n * sizeof *g->nodes);
    }
    g->n_nodes += g->n_logits;
    for (i = n = 0; i < g->n_nodes; i++) {
        const lens_graph_node *const to = &g->nodes[i];
        g->rows[i] = n;
        if (to->kind != LENS_GRAPH_FEATURE && to->kind != LENS_GRAPH_LOGIT)
            continue;
        most = lens_fg_sources(g, to->layer, to->position);
        n += g->keep && g->keep < most ? g->keep : most;
        g->work += (double)(to->position + 1) * (double)(to->layer + 1);
    }
    g->rows[i] = g->n_edges = n;
    return ATTN_OK;
}

/* ---- the edges ---- */

/* Targets of one layer and position, on the way back. */
typedef struct lens_fg_batch {
    size_t first, n;     /* nodes */
    size_t layer, rows;  /* positions 0 .. rows - 1 */
    attn_tensor d;       /* [n, rows, C]: where the batch reads, at the current layer */
    attn_tensor weights; /* [n, sources] */
} lens_fg_batch;

/* Adds the bias [1, C], which is written at every position, to the constants. */
LENS_FN attn_status lens_fg_add_bias(attn_ctx *ctx, lens_feature_graph *g, const lens_fg_batch *b,
                                     attn_tensor bias)
{
    attn_tensor products = ATTN_ZERO;
    const attn_status status = attn_matmul(ctx, &products, b->d, attn_transpose(bias, 0, 1));
    for (size_t i = 0; i < b->n && status == ATTN_OK; i++)
        for (size_t j = 0; j < b->rows; j++)
            g->nodes[b->first + i].constant +=
                (double)((const float *)products.data)[i * b->rows + j];
    attn_tensor_free(ctx, &products);
    return status;
}

/* The weights of sources that write the rows [.., C]. start: where those of each position begin (NULL: there
 * is one at each); `first` is the node of the first. */
LENS_FN attn_status lens_fg_read(attn_ctx *ctx, const lens_fg_batch *b, attn_tensor writes,
                                 const size_t *start, size_t first)
{
    attn_status status = ATTN_OK;
    for (size_t t = 0; t < b->rows && status == ATTN_OK; t++) {
        const size_t from = start ? start[t] : t, n = start ? start[t + 1] - from : 1;
        attn_tensor to = attn_slice(b->weights, 1, first + from, n);
        status = attn_matmul(ctx, &to, attn_select(b->d, 1, t),
                             attn_transpose(attn_slice(writes, 0, from, n), 0, 1));
    }
    return status;
}

/* d [n, rows, C] as a matrix. */
LENS_FN attn_tensor lens_fg_flat(const lens_fg_batch *b, attn_tensor d)
{
    return attn_reshape(d, attn_shape2(b->n * b->rows, attn_count(d) / (b->n * b->rows)));
}

/* From behind a layer's MLP to before it: only what a skip transcoder passes on is added. */
LENS_FN attn_status lens_fg_mlp(attn_ctx *ctx, lens_feature_graph *g, lens_fg_batch *b,
                                size_t number)
{
    const lens_fg_layer *const layer = &g->layers[number];
    attn_tensor skipped = ATTN_ZERO, d;
    int failed = lens_fg_read(ctx, b, layer->writes, layer->start, layer->first) ||
                 (layer->mlp_bias.ndim && lens_fg_add_bias(ctx, g, b, layer->mlp_bias));
    if (layer->skip.ndim && !failed) {
        failed = lens_back_product(ctx, &skipped, lens_fg_flat(b, b->d), layer->skip,
                                   b->d.shape[2]) != ATTN_OK;
        d = attn_reshape(skipped, attn_shape3(b->n, b->rows, b->d.shape[2]));
        failed = failed || lens_fg_hook_back(ctx, g, number, d, 0) || attn_add(ctx, &b->d, b->d, d);
    }
    attn_tensor_free(ctx, &skipped);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* From z [n, rows, C] to v: each key gets what the queries read of it. */
LENS_FN attn_status lens_fg_keys(attn_ctx *ctx, const lens_feature_graph *g, const lens_fg_batch *b,
                                 size_t layer, attn_tensor v, attn_tensor z)
{
    const attn_config *c = attn_model_config(g->b->model);
    const attn_shape shape = attn_shape4(b->n, b->rows, c->n_head, c->d_head);
    attn_tensor pattern = lens_fg_seen(ctx, g, layer, "attn.hook_pattern");
    attn_tensor to = attn_transpose(attn_reshape(v, shape), 1, 2);
    pattern = attn_slice(attn_slice(pattern, 1, 0, b->rows), 2, 0, b->rows);
    return attn_matmul(ctx, &to, attn_transpose(pattern, 1, 2),
                       attn_transpose(attn_reshape(z, shape), 1, 2));
}

/* From behind a layer's attention to before it. */
LENS_FN attn_status lens_fg_attention(attn_ctx *ctx, lens_feature_graph *g, lens_fg_batch *b,
                                      size_t layer)
{
    const lens_layer_weights *const w = &g->b->layers[layer];
    const size_t width = b->d.shape[2];
    const attn_tensor scale = lens_fg_seen(ctx, g, layer, "ln1.hook_scale");
    attn_tensor z = ATTN_ZERO, v = ATTN_ZERO, x = ATTN_ZERO;
    int failed = lens_fg_add_bias(ctx, g, b, g->layers[layer].attn_bias) ||
                 lens_back_product(ctx, &z, lens_fg_flat(b, b->d), w->o, width) ||
                 attn_zeros(ctx, &v, ATTN_F32, attn_shape2(b->n * b->rows, width)) ||
                 lens_fg_keys(ctx, g, b, layer, v, z) ||
                 lens_back_product(ctx, &x, v, attn_slice(w->qkv, 1, 2 * width, width), width);
    attn_tensor d = attn_reshape(x, attn_shape3(b->n, b->rows, width));
    failed = failed || attn_mul(ctx, &d, d, w->ln1_w) ||
             lens_normalize(ctx, &d, d, attn_slice(scale, 0, 0, b->rows)) ||
             attn_add(ctx, &b->d, b->d, d);
    attn_tensor_free(ctx, &z);
    attn_tensor_free(ctx, &v);
    attn_tensor_free(ctx, &x);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* The whole way back. A feature reads between the attention and the MLP of its layer. */
LENS_FN attn_status lens_fg_back(attn_ctx *ctx, lens_feature_graph *g, lens_fg_batch *b)
{
    size_t layer = b->layer;
    int failed = lens_is_stopped(ctx) || /* also where no layer is before */
                 (layer < attn_model_config(g->b->model)->n_layer &&
                  lens_fg_attention(ctx, g, b, layer) != ATTN_OK);
    while (layer-- > 0 && !failed)
        failed = lens_is_stopped(ctx) || lens_fg_mlp(ctx, g, b, layer) ||
                 lens_fg_attention(ctx, g, b, layer);
    failed = failed ||
             lens_fg_read(ctx, b, lens_fg_seen(ctx, g, 0, "hook_resid_pre"), NULL, 0) != ATTN_OK;
    return failed ? lens_failure(ctx) : ATTN_OK;
}

LENS_FN int lens_fg_compare_from(const void *a, const void *b)
{
    const lens_graph_edge *x = (const lens_graph_edge *)a, *y = (const lens_graph_edge *)b;
    return x->from < y->from ? -1 : x->from > y->from;
}

/* Larger magnitudes first; equal ones by their source. */
LENS_FN int lens_fg_compare_size(const void *a, const void *b)
{
    const lens_graph_edge *x = (const lens_graph_edge *)a, *y = (const lens_graph_edge *)b;
    const float p = fabsf(x->weight), q = fabsf(y->weight);
    return p > q ? -1 : p < q ? 1 : lens_fg_compare_from(a, b);
}

/* The edges into one target, from its row of weights: checks their sum, and stores those that stay. `room`
 * is for all of them. */
LENS_FN void lens_fg_store(lens_feature_graph *g, size_t to, size_t layer, const float *weights,
                           lens_graph_edge *room)
{
    const lens_graph_node *const node = &g->nodes[to];
    const size_t keep = g->rows[to + 1] - g->rows[to];
    double sum = node->constant, all = 0;
    size_t n = 0;
    for (size_t k = 0; k <= layer; k++) { /* the embeddings, and each layer before */
        const size_t first = k ? g->layers[k - 1].first : 0;
        const size_t count = k ? g->layers[k - 1].start[node->position + 1] : node->position + 1;
        for (size_t i = 0; i < count; i++, n++) {
            room[n].from = (uint32_t)(first + i);
            room[n].weight = weights[first + i];
            sum += (double)room[n].weight;
            all += fabs((double)room[n].weight);
        }
    }
    sum = fabs(sum - (double)node->pre_activation);
    g->off = sum > g->off || sum != sum ? sum : g->off;
    g->off_share = fmax(g->off_share, sum / (all + fabs(node->constant)));
    g->weight += all;
    if (keep < n) {
        qsort(room, n, sizeof *room, lens_fg_compare_size);
        qsort(room, keep, sizeof *room, lens_fg_compare_from);
    }
    for (size_t i = 0; i < keep; i++)
        g->weight_kept += fabs((double)room[i].weight);
    memcpy(g->edges + g->rows[to], room, keep * sizeof *room);
}

/* The edges into the batch's targets, which read the rows [n, C] at its last position. */
LENS_FN attn_status lens_fg_edges(attn_ctx *ctx, lens_feature_graph *g, lens_fg_batch *b,
                                  attn_tensor readers)
{
    const size_t n_sources = g->n_nodes - g->n_logits;
    lens_graph_edge *const room =
        (lens_graph_edge *)attn_alloc(ctx, n_sources, sizeof *room, "edges of a graph");
    int failed = !room ||
                 attn_zeros(ctx, &b->d, ATTN_F32, attn_shape3(b->n, b->rows, readers.shape[1])) ||
                 attn_zeros(ctx, &b->weights, ATTN_F32, attn_shape2(b->n, n_sources));
    attn_tensor at = attn_select(b->d, 1, b->rows - 1);
    failed = failed || attn_copy(ctx, &at, readers) || lens_fg_back(ctx, g, b);
    for (size_t i = 0; i < b->n && !failed; i++)
        lens_fg_store(g, b->first + i, b->layer, (const float *)b->weights.data + i * n_sources,
                      room);
    attn_free(room);
    attn_tensor_free(ctx, &b->d);
    attn_tensor_free(ctx, &b->weights);
    g->done += (double)(b->n * b->rows) * (double)(b->layer + 1);
    return failed ? lens_failure(ctx) : lens_progress(g->progress, g->user, g->done / g->work);
}

/* The targets of a layer at position t, in batches of about LENS_FG_ROWS rows. */
LENS_FN attn_status lens_fg_targets(attn_ctx *ctx, lens_feature_graph *g, size_t number, size_t t)
{
    const lens_fg_layer *const layer = &g->layers[number];
    const size_t most = t < LENS_FG_ROWS ? LENS_FG_ROWS / (t + 1) : 1;
    const size_t end = layer->start[t + 1] - 1; /* without the error, into which no edge leads */
    attn_status status = ATTN_OK;
    for (size_t from = layer->start[t]; from < end && status == ATTN_OK; from += most) {
        lens_fg_batch b = ATTN_ZERO;
        b.first = layer->first + from;
        b.n = end - from < most ? end - from : most;
        b.layer = number;
        b.rows = t + 1;
        status = lens_fg_edges(ctx, g, &b, attn_slice(layer->readers, 0, from, b.n));
    }
    return status;
}

/* r [n, C] of logits: W_U[:, token] minus the mean of W_U. What the biases of the last LayerNorm and of the logits add
 * becomes their constant. */
LENS_FN attn_status lens_fg_directions(attn_ctx *ctx, attn_tensor *r, const attn_model *model,
                                       lens_graph_node *logits, size_t n)
{
    const attn_config *c = attn_model_config(model);
    attn_tensor w = ATTN_ZERO, mean = ATTN_ZERO, ln_b = ATTN_ZERO, b_u = ATTN_ZERO;
    attn_token tokens[LENS_FG_LOGITS];
    double mean_b = 0;
    for (size_t i = 0; i < n; i++)
        tokens[i] = (attn_token)logits[i].feature;
    int failed = attn_model_tensor(ctx, &w, model, c->tied ? "embed.W_E" : "unembed.W_U") ||
                 attn_mean(ctx, &mean, c->tied ? attn_transpose(w, 0, 1) : w) ||
                 attn_logit_directions(ctx, r, model, tokens, NULL, n) ||
                 attn_sub(ctx, r, *r, attn_reshape(mean, attn_shape2(1, c->d_model))) ||
                 attn_model_tensor(ctx, &ln_b, model, "ln_final.b") ||
                 (c->has_b_U && attn_model_tensor(ctx, &b_u, model, "unembed.b_U"));
    for (size_t i = 0; i < c->n_vocab && b_u.ndim && !failed; i++)
        mean_b += (double)attn_get1(b_u, i) / (double)c->n_vocab;
    for (size_t i = 0; i < n && !failed; i++) {
        logits[i].constant = b_u.ndim ? (double)attn_get1(b_u, logits[i].feature) - mean_b : 0;
        for (size_t k = 0; k < c->d_model; k++)
            logits[i].constant += (double)attn_get1(ln_b, k) * (double)attn_get2(*r, i, k);
    }
    attn_tensor_free(ctx, &w);
    attn_tensor_free(ctx, &mean);
    attn_tensor_free(ctx, &ln_b);
    attn_tensor_free(ctx, &b_u);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* The edges into the logits. */
LENS_FN attn_status lens_fg_logit_edges(attn_ctx *ctx, lens_feature_graph *g)
{
    const attn_tensor scale = lens_fg_seen(ctx, g, ATTN_NO_LAYER, "ln_final.hook_scale");
    attn_tensor r = ATTN_ZERO;
    lens_fg_batch b = ATTN_ZERO;
    b.n = g->n_logits;
    b.first = g->n_nodes - b.n;
    b.layer = attn_model_config(g->b->model)->n_layer;
    b.rows = g->n_tokens;
    int failed = lens_fg_directions(ctx, &r, g->b->model, g->nodes + b.first, b.n) ||
                 attn_mul(ctx, &r, r, g->b->ln_final_w) ||
                 lens_normalize(ctx, &r, r, attn_slice(scale, 0, g->n_tokens - 1, 1)) ||
                 lens_fg_edges(ctx, g, &b, r);
    attn_tensor_free(ctx, &r);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* Computes all edges and constants, after lens_feature_graph_plan. */
LENS_FN attn_status lens_feature_graph_fill(attn_ctx *ctx, lens_feature_graph *g)
{
    const size_t n_layer = attn_model_config(g->b->model)->n_layer;
    attn_status status = ATTN_OK;
    g->edges = (lens_graph_edge *)attn_alloc(ctx, g->n_edges, sizeof *g->edges, "edges of a graph");
    if (!g->edges)
        return ctx->status;
    for (size_t layer = 0; layer < n_layer; layer++)
        for (size_t t = 0; t < g->n_tokens && g->layers[layer].has_transcoder && status == ATTN_OK;
             t++)
            status = lens_fg_targets(ctx, g, layer, t);
    if (status == ATTN_OK)
        status = lens_fg_logit_edges(ctx, g);
    g->kept = g->weight > 0 ? g->weight_kept / g->weight : 1;
    return status;
}

#endif
