/* The nodes of an attribution graph, layer by layer: the vector that each node writes to the residual stream, and the
 * vector by which a node reads it. graph.h includes this header and defines the kinds of nodes.
 * Uses attn.h's public API only. */
#ifndef LENS_GRAPH_NODES_H
#define LENS_GRAPH_NODES_H

#include "gradients.h"
#include "logits.h"
#include "sae.h"

enum { LENS_FG_LOGITS = 10, LENS_FG_ROWS = 2048 }; /* most logits; most rows of a batch, roughly */

typedef enum lens_graph_kind {
    LENS_GRAPH_EMBEDDING = 0,
    LENS_GRAPH_FEATURE,
    LENS_GRAPH_ERROR,
    LENS_GRAPH_LOGIT
} lens_graph_kind;

typedef struct lens_graph_node {
    lens_graph_kind kind;
    size_t layer, position; /* layer: 0 of an embedding, n_layer of a logit */
    size_t feature;         /* of a logit: the token */
    float activation;       /* of a feature; of a logit the token's probability */
    float pre_activation;   /* of a feature or a logit */
    double constant;        /* likewise */
} lens_graph_node;

typedef struct lens_graph_edge {
    uint32_t from; /* a node */
    float weight;
} lens_graph_edge;

/* What a transcoder reads. */
typedef enum lens_fg_hook {
    LENS_FG_MID,  /* hook_resid_mid, or hook_mlp_in, which is a copy of it */
    LENS_FG_PRE,  /* ln2.hook_normalized.pre */
    LENS_FG_POST, /* ln2.hook_normalized.post */
    LENS_FG_HOOKS
} lens_fg_hook;

/* What the MLP of a layer writes. Its nodes are in the order of positions; at each position first its
 * features, and then its error. */
typedef struct lens_fg_layer {
    int has_transcoder;
    lens_fg_hook hook;
    size_t first;           /* its first node in the graph */
    size_t *start;          /* [T + 1]: its nodes at position t are start[t] .. start[t + 1] - 1 */
    lens_graph_node *nodes; /* [start[T]], until lens_feature_graph_plan */
    attn_tensor writes;     /* [start[T], C] */
    attn_tensor readers;    /* [start[T], C]: r of each feature, back at resid_mid; 0 of an error */
    attn_tensor skip;       /* panels of W_skipᵀ [C, C]; zeroed without */
    attn_tensor mlp_bias;   /* [1, C]: what the transcoder adds at every position */
    attn_tensor attn_bias;  /* [1, C]: the same of the attention */
    double explained;       /* the share of variance that the transcoder explains (sae.h) */
} lens_fg_layer;

/* Zero it, and set its first four fields. */
typedef struct lens_feature_graph {
    const attn_token *tokens; /* [n_tokens] */
    size_t n_tokens;
    size_t keep;               /* edges that stay of each target; 0: all */
    attn_progress_fn progress; /* may be NULL */
    void *user;                /* progress gets it */

    /* results */
    size_t n_nodes, n_features, n_logits, n_edges; /* the logits are the last nodes */
    lens_graph_node *nodes;                        /* [n_nodes] */
    size_t *rows;           /* [n_nodes + 1]: edges into node i are rows[i] .. rows[i + 1] - 1 */
    lens_graph_edge *edges; /* [n_edges], of each target in the order of the sources */
    double off;             /* the largest |constant + sum of weights - pre_activation| */
    double off_share;       /* the largest of these over |constant| + sum of |weight| */
    double kept;            /* the share of |weight| that stayed */

    /* of the computation */
    lens_backward *b;
    attn_record *record;
    attn_tensor logits;    /* [1, V] */
    lens_fg_layer *layers; /* [n_layer] */
    double weight, weight_kept;
    double work, done;
} lens_feature_graph;

/* a · b, rounded before anything is added to it, so that all compilers get the same bits. */
LENS_FN double lens_fg_product(double a, double b)
{
    volatile const double rounded = a * b;
    return rounded;
}

LENS_FN void lens_fg_free_layer(attn_ctx *ctx, lens_fg_layer *layer)
{
    attn_free(layer->start);
    attn_free(layer->nodes);
    attn_tensor_free(ctx, &layer->writes);
    attn_tensor_free(ctx, &layer->readers);
    attn_tensor_free(ctx, &layer->skip);
    attn_tensor_free(ctx, &layer->mlp_bias);
    attn_tensor_free(ctx, &layer->attn_bias);
    memset(layer, 0, sizeof *layer);
}

/* Frees what lens_feature_graph_begin made. ctx is the same context. A zeroed struct is fine. */
LENS_FN void lens_feature_graph_free(attn_ctx *ctx, lens_feature_graph *g)
{
    size_t n = g->layers ? attn_model_config(g->b->model)->n_layer : 0;
    for (size_t i = 0; i < n; i++)
        lens_fg_free_layer(ctx, &g->layers[i]);
    attn_free(g->layers);
    attn_free(g->nodes);
    attn_free(g->rows);
    attn_free(g->edges);
    attn_tensor_free(ctx, &g->logits);
    attn_record_free(g->record);
    memset(g, 0, sizeof *g);
}

/* ---- the text ---- */

LENS_FN attn_status lens_fg_run(attn_ctx *ctx, lens_feature_graph *g)
{
    static const char *const names[] = {"*.hook_scale",           "*.ln2.hook_normalized.pre",
                                        "*.hook_resid_mid",       "*.ln2.hook_normalized.post",
                                        "*.hook_mlp_out",         "*.attn.hook_pattern",
                                        "blocks.0.hook_resid_pre"};
    const size_t n_vocab = attn_model_config(g->b->model)->n_vocab;
    attn_session_desc size = ATTN_ZERO;
    attn_record_desc what = ATTN_ZERO;
    attn_session *session = NULL;
    size.n_ctx = what.n_positions = g->n_tokens;
    size.workspace = g->b->workspace;
    what.names = names;
    what.n_names = sizeof names / sizeof names[0];
    int failed =
        attn_session_new(ctx, &session, g->b->model, &size) ||
        attn_record_new(ctx, &g->record, session, &what) ||
        attn_feed(ctx, session, g->tokens, g->n_tokens) ||
        attn_copy(ctx, &g->logits,
                  attn_borrow(attn_session_logits(session), ATTN_F32, attn_shape2(1, n_vocab)));
    attn_session_free(session);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* Runs the text. The backward passes' model must have no edits. After a failure g is zeroed. */
LENS_FN attn_status lens_feature_graph_begin(attn_ctx *ctx, lens_feature_graph *g, lens_backward *b)
{
    static const char op[] = "lens_feature_graph_begin";
    if (!g || !b || !b->model)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no %s given", op,
                         g ? "lens_backward that lens_backward_new made" : "graph");
    if (b->n_edits > 0)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "%s: the model has edits; a graph is of the model as it is", op);
    if (lens_need_tokens(ctx, op, b->model, g->tokens, g->n_tokens) != ATTN_OK)
        return lens_failure(ctx);
    g->b = b;
    g->layers = (lens_fg_layer *)attn_alloc(ctx, attn_model_config(b->model)->n_layer,
                                            sizeof *g->layers, "the layers of a graph");
    attn_status status = g->layers ? lens_fg_run(ctx, g) : ctx->status;
    if (status != ATTN_OK)
        lens_feature_graph_free(ctx, g);
    return status;
}

/* An activation of the text; of layer ATTN_NO_LAYER outside the blocks. */
LENS_FN attn_tensor lens_fg_seen(attn_ctx *ctx, const lens_feature_graph *g, size_t layer,
                                 const char *name)
{
    attn_tensor out;
    lens_find(ctx, &out, g->record, layer, name);
    return out;
}

/* What a feature or an error writes, [1, C]. */
LENS_FN attn_tensor lens_fg_row(const lens_feature_graph *g, size_t node)
{
    const lens_fg_layer *const layer = &g->layers[g->nodes[node].layer];
    return attn_slice(layer->writes, 0, node - layer->first, 1);
}

/* ---- a transcoder ---- */

/* Of each lens_fg_hook; and the copy of the first. */
static const char *const lens_fg_hooks[LENS_FG_HOOKS + 1] = {
    "hook_resid_mid", "ln2.hook_normalized.pre", "ln2.hook_normalized.post", "hook_mlp_in"};

/* Finds the layer whose MLP a transcoder replaces, and the activation of that layer that the transcoder reads. */
LENS_FN attn_status lens_fg_place(attn_ctx *ctx, const lens_feature_graph *g, const lens_sae *sae,
                                  size_t *layer, lens_fg_hook *hook)
{
    const size_t n_layer = attn_model_config(g->b->model)->n_layer;
    for (*layer = 0; strcmp(lens_name_in(*layer, "hook_mlp_out").text, sae->hook_out) != 0;)
        if (++*layer == n_layer)
            return attn_fail(ctx, ATTN_E_ARGUMENT,
                             "a transcoder predicts %s; expected the output of an MLP of this "
                             "model, blocks.0.hook_mlp_out to blocks.%zu.hook_mlp_out",
                             sae->hook_out, n_layer - 1);
    for (int k = 0; k <= LENS_FG_HOOKS; k++)
        if (strcmp(lens_name_in(*layer, lens_fg_hooks[k]).text, sae->hook) == 0) {
            *hook = (lens_fg_hook)(k % LENS_FG_HOOKS);
            return ATTN_OK;
        }
    return attn_fail(ctx, ATTN_E_ARGUMENT,
                     "the transcoder of %s reads %s; expected what the same MLP reads: "
                     "blocks.%zu.ln2.hook_normalized, .hook_resid_mid or .hook_mlp_in",
                     sae->hook_out, sae->hook, *layer);
}

/* Which tensor of a transcoder holds a NaN or an infinity? NULL: none. (A comparison with NaN would make a
 * feature silent.) */
LENS_FN const char *lens_fg_not_finite(const lens_sae *sae)
{
    static const char *const names[] = {"W_enc", "W_dec", "b_enc", "b_dec", "W_skip", "threshold"};
    const attn_tensor *const all[6] = {&sae->w_enc, &sae->w_dec,  &sae->b_enc,
                                       &sae->b_dec, &sae->w_skip, &sae->threshold};
    for (size_t i = 0; i < 6; i++)
        for (size_t k = 0; all[i]->ndim && k < attn_count(*all[i]); k++)
            if (!isfinite(((const float *)all[i]->data)[k]))
                return names[i];
    return NULL;
}

/* Is it a transcoder of an MLP of this width, whose layer has none yet? */
LENS_FN attn_status lens_fg_need(attn_ctx *ctx, const lens_feature_graph *g, const lens_sae *sae,
                                 size_t *layer, lens_fg_hook *hook)
{
    static const char op[] = "lens_feature_graph_add";
    const size_t width = attn_model_config(g->b->model)->d_model;
    if (!sae || sae->n == 0 || lens_sae_lack(sae))
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: the transcoder has no %s", op,
                         !sae || sae->n == 0 ? "weights; lens_sae_open reads one"
                                             : lens_sae_lack(sae));
    if (!sae->n_out || sae->kind == LENS_SAE_GATED)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "an autoencoder of %s; expected a transcoder, which has hook_name_out and "
                         "d_out and is not gated",
                         sae->hook);
    if (lens_fg_place(ctx, g, sae, layer, hook) != ATTN_OK)
        return lens_failure(ctx);
    if (sae->n != width || sae->n_out != width)
        return attn_fail(ctx, ATTN_E_SHAPE,
                         "the transcoder of %s reads %zu numbers and writes %zu; the width of this "
                         "model is %zu",
                         sae->hook_out, sae->n, sae->n_out, width);
    if (g->layers[*layer].has_transcoder)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "a second transcoder predicts %s; expected one",
                         sae->hook_out);
    if (lens_fg_not_finite(sae))
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "the transcoder of %s: %s holds a number that is not finite",
                         sae->hook_out, lens_fg_not_finite(sae));
    return ATTN_OK;
}

/* Element [i, j] of a matrix, which may be panels. */
LENS_FN float lens_fg_at(attn_tensor w, size_t i, size_t j)
{
    return w.dtype == ATTN_PANELS ? ((const float *)w.data)[(j / 16 * w.shape[1] + i) * 16 + j % 16]
                                  : attn_get2(w, i, j);
}

/* Counts the active features [T, m], and allocates the layer's nodes, which write rows of the width. */
LENS_FN attn_status lens_fg_room(attn_ctx *ctx, lens_fg_layer *layer, attn_tensor features,
                                 size_t n, size_t width)
{
    size_t count = 0;
    layer->start = (size_t *)attn_alloc(ctx, n + 1, sizeof *layer->start, "positions of a graph");
    if (!layer->start)
        return ctx->status;
    for (size_t t = 0; t < n; t++) {
        layer->start[t] = count++;
        for (size_t f = 0; features.ndim && f < features.shape[1]; f++)
            count += fabsf(attn_get2(features, t, f)) > 0;
    }
    layer->start[n] = count;
    layer->nodes =
        (lens_graph_node *)attn_alloc(ctx, count, sizeof *layer->nodes, "nodes of a graph");
    return !layer->nodes || attn_zeros(ctx, &layer->writes, ATTN_F32, attn_shape2(count, width)) ||
                   (features.ndim &&
                    attn_zeros(ctx, &layer->readers, ATTN_F32, attn_shape2(count, width)))
               ? lens_failure(ctx)
               : ATTN_OK;
}

/* Fills one feature's node, the row that it writes, and the direction in which it reads. */
LENS_FN void lens_fg_feature(lens_fg_layer *layer, size_t i, const lens_sae *sae, size_t f,
                             float activation)
{
    const float norm = sae->by_decoder_norm ? ((const float *)sae->norms.data)[f] : 1;
    float *const w = (float *)layer->writes.data + i * sae->n;
    float *const r = (float *)layer->readers.data + i * sae->n;
    lens_graph_node *const node = &layer->nodes[i];
    for (size_t c = 0; c < sae->n; c++) {
        w[c] = activation / norm * lens_fg_at(sae->w_dec, f, c);
        r[c] = norm * lens_fg_at(sae->w_enc, c, f);
    }
    node->kind = LENS_GRAPH_FEATURE;
    node->feature = f;
    node->activation = node->pre_activation = activation;
    node->constant = (double)norm * (double)attn_get1(sae->b_enc, f);
}

/* Makes the nodes of a layer: of the active features [T, m], and of errors [T, C], what the transcoder's output lacks.
 * Without a transcoder (NULL) the error is all that the MLP writes. */
LENS_FN attn_status lens_fg_nodes(attn_ctx *ctx, lens_feature_graph *g, size_t number,
                                  const lens_sae *sae, attn_tensor features, attn_tensor errors)
{
    lens_fg_layer *const layer = &g->layers[number];
    const size_t width = errors.shape[1];
    size_t i = 0;
    if (lens_fg_room(ctx, layer, features, g->n_tokens, width) != ATTN_OK)
        return lens_failure(ctx);
    for (size_t t = 0; t < g->n_tokens; t++) {
        for (size_t f = 0; sae && f < sae->m; f++)
            if (fabsf(attn_get2(features, t, f)) > 0)
                lens_fg_feature(layer, i++, sae, f, attn_get2(features, t, f));
        memcpy((float *)layer->writes.data + i * width, (const float *)errors.data + t * width,
               width * sizeof(float));
        layer->nodes[i++].kind = LENS_GRAPH_ERROR;
        for (size_t f = layer->start[t]; f < i; f++) {
            layer->nodes[f].layer = number;
            layer->nodes[f].position = t;
        }
    }
    return ATTN_OK;
}

/* d [.., T, C] becomes its gradient before the LayerNorm ln2, as far as the transcoder's hook stands behind
 * it; T positions from `first` on. */
LENS_FN attn_status lens_fg_hook_back(attn_ctx *ctx, const lens_feature_graph *g, size_t layer,
                                      attn_tensor d, size_t first)
{
    const lens_fg_hook hook = g->layers[layer].hook;
    const attn_tensor scale = lens_fg_seen(ctx, g, layer, "ln2.hook_scale");
    if (hook == LENS_FG_MID)
        return ATTN_OK;
    if (hook == LENS_FG_POST && attn_mul(ctx, &d, d, g->b->layers[layer].ln2_w))
        return lens_failure(ctx);
    return lens_normalize(ctx, &d, d, attn_slice(scale, 0, first, d.shape[d.ndim - 2]));
}

/* Brings the readers of a position back to resid_mid, through the transcoder's own normalization and the
 * LayerNorm before it. The LayerNorm's bias [C] (zeroed: none is read) goes to the constants. */
LENS_FN attn_status lens_fg_readers_back(attn_ctx *ctx, const lens_feature_graph *g, size_t number,
                                         const lens_sae *sae, const lens_sae_scales *scales,
                                         attn_tensor bias, size_t t)
{
    const lens_fg_layer *const layer = &g->layers[number];
    const size_t from = layer->start[t], n = layer->start[t + 1] - from;
    attn_tensor d = attn_slice(layer->readers, 0, from, n), scale = ATTN_ZERO;
    int failed = 0;
    d = attn_reshape(d, attn_shape3(n, 1, sae->n));
    if (sae->norm != LENS_SAE_NORM_NONE)
        scale = attn_slice(scales->scale, 0, t, 1);
    if (sae->norm == LENS_SAE_NORM_LAYER) {
        ((float *)scale.data)[0] += 1e-5f; /* undo has taken it away */
        failed = lens_normalize(ctx, &d, d, scale) != ATTN_OK;
    } else if (sae->norm == LENS_SAE_NORM_CONSTANT) {
        failed = attn_div(ctx, &d, d, scale) != ATTN_OK;
    }
    for (size_t i = 0; i < n && bias.ndim && !failed; i++)
        for (size_t c = 0; c < sae->n; c++)
            layer->nodes[from + i].constant +=
                (double)attn_get1(bias, c) * (double)attn_get3(d, i, 0, c);
    return failed ? lens_failure(ctx) : lens_fg_hook_back(ctx, g, number, d, t);
}

/* What a transcoder adds at every position: b_dec, and what its skip makes of the LayerNorm's bias. */
LENS_FN attn_status lens_fg_skip(attn_ctx *ctx, lens_fg_layer *layer, const lens_sae *sae,
                                 attn_tensor bias)
{
    const attn_tensor none = ATTN_ZERO;
    attn_tensor back = ATTN_ZERO, more = ATTN_ZERO;
    int failed = attn_scale(ctx, &layer->mlp_bias, attn_reshape(sae->b_dec, attn_shape2(1, sae->n)),
                            1) != ATTN_OK;
    if (!sae->w_skip.ndim || failed)
        return failed ? lens_failure(ctx) : ATTN_OK;
    failed = attn_zeros(ctx, &back, ATTN_F32, attn_shape2(sae->n, sae->n)) != ATTN_OK;
    for (size_t i = 0; i < sae->n && !failed; i++)
        for (size_t j = 0; j < sae->n; j++)
            ((float *)back.data)[i * sae->n + j] = lens_fg_at(sae->w_skip, j, i);
    failed = failed || lens_pack(ctx, &layer->skip, back) ||
             (bias.ndim && (attn_linear(ctx, &more, attn_reshape(bias, attn_shape2(1, sae->n)),
                                        sae->w_skip, none) ||
                            attn_add(ctx, &layer->mlp_bias, layer->mlp_bias, more)));
    attn_tensor_free(ctx, &back);
    attn_tensor_free(ctx, &more);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* Copies what a layer needs of its transcoder. The scales are those by which the transcoder normalizes its inputs. */
LENS_FN attn_status lens_fg_keep(attn_ctx *ctx, const lens_feature_graph *g, size_t number,
                                 const lens_sae *sae, const lens_sae_scales *scales)
{
    attn_tensor bias = ATTN_ZERO;
    attn_status status = ATTN_OK;
    if (g->layers[number].hook == LENS_FG_POST)
        status = lens_layer_tensor(ctx, &bias, g->b->model, number, "ln2.b");
    if (status == ATTN_OK)
        status = lens_fg_skip(ctx, &g->layers[number], sae, bias);
    for (size_t t = 0; t < g->n_tokens && status == ATTN_OK; t++)
        status = lens_fg_readers_back(ctx, g, number, sae, scales, bias, t);
    attn_tensor_free(ctx, &bias);
    return status;
}

/* Adds the transcoder of one layer. The graph keeps nothing of *sae. */
LENS_FN attn_status lens_feature_graph_add(attn_ctx *ctx, lens_feature_graph *g,
                                           const lens_sae *sae)
{
    attn_tensor features = ATTN_ZERO, rebuilt = ATTN_ZERO, errors = ATTN_ZERO;
    lens_sae_scales scales = ATTN_ZERO;
    lens_fg_hook hook = LENS_FG_MID;
    size_t number = 0;
    if (lens_fg_need(ctx, g, sae, &number, &hook) != ATTN_OK)
        return lens_failure(ctx);
    lens_fg_layer *layer = &g->layers[number];
    layer->hook = hook;
    attn_tensor x = lens_fg_seen(ctx, g, number, lens_fg_hooks[hook]);
    attn_tensor y = lens_fg_seen(ctx, g, number, "hook_mlp_out");
    int failed = lens_sae_see(ctx, &features, &scales, sae, x) ||
                 lens_sae_decode(ctx, &rebuilt, sae, features, x) ||
                 attn_sub(ctx, &errors, y, rebuilt) ||
                 lens_fg_nodes(ctx, g, number, sae, features, errors) ||
                 lens_fg_keep(ctx, g, number, sae, &scales);
    if (!failed) {
        layer->explained = lens_sae_explained(y, rebuilt);
        layer->has_transcoder = 1;
    }
    attn_tensor_free(ctx, &features);
    attn_tensor_free(ctx, &rebuilt);
    attn_tensor_free(ctx, &errors);
    lens_sae_free_scales(ctx, &scales);
    if (failed)
        lens_fg_free_layer(ctx, layer);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

#endif
