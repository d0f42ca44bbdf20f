/* Gradients of a metric with respect to activations: one backward pass through recorded activations,
 * without autograd. Uses attn.h's public API only.
 *
 *     static const char *const names[] = {"*.hook_resid_pre", "*.attn.hook_z"};
 *     lens_backward backward = ATTN_ZERO;
 *     lens_gradients_desc what = ATTN_ZERO;
 *     attn_record *gradients = NULL;
 *     attn_tensor d_z = ATTN_ZERO;
 *     float difference;
 *     what.tokens = tokens, what.n_tokens = n;
 *     what.names = names, what.n_names = 2;
 *     what.metric.kind = LENS_METRIC_LOGIT_DIFF;                 logits[mary] - logits[john]
 *     what.metric.token = mary, what.metric.against = john;
 *     if (lens_backward_new(&ctx, &backward, model) == ATTN_OK &&
 *         lens_gradients(&ctx, &gradients, &difference, &backward, &what) == ATTN_OK &&
 *         attn_record_get(&ctx, &d_z, gradients, "blocks.3.attn.hook_z") == ATTN_OK)
 *         printf("d metric / d z[5, 0, 0] of layer 3 is %g\n", attn_get3(d_z, 5, 0, 0));
 *     attn_record_free(gradients);
 *     lens_backward_free(&ctx, &backward);
 *
 * The forward pass of a block is
 *
 *     resid_mid  = resid_pre + z · W_O + b_O           z = pattern · v, pattern = softmax(scores),
 *     resid_post = resid_mid + post · W_out + b_out    scores = q · kᵀ * s, [q k v] = y1 · W_QKV + b;
 *                                                      post = act(pre), pre = y2 · W_in + b_in
 *
 * where y1 and y2 are the LayerNorms of resid_pre and resid_mid. Write d x for d metric / d x, which has
 * the shape of x. By the chain rule (Rumelhart, Hinton & Williams 1986), from the logits downwards:
 *
 *  1. d y       = d logits · W_Uᵀ                               [T, C] = [T, V] · [V, C]
 *  2. d x       = (g - mean(g) - n * mean(g * n)) / scale       [T, C], with g = d y * w,
 *                                              n = (x - mean(x)) / scale, y = n * w + b
 *  3. d post    = d mlp_out · W_outᵀ                            [T, F] = [T, C] · [C, F]
 *  4. d pre     = d post * act'(pre)                            [T, F]
 *  5. d y2      = d pre · W_inᵀ                                 [T, C] = [T, F] · [F, C]
 *  6. d z       = d attn_out · W_Oᵀ                             [T, C] = [T, H, d], as z
 *  7. d pattern = d z · vᵀ,   d v = patternᵀ · d z              [H, T, T], [T, H, d], head by head
 *     d scores  = pattern * (d pattern - sum(pattern * d pattern))
 *     d q       = d scores · k * s,   d k = d scoresᵀ · q * s
 *  8. d y1      = [d q, d k, d v] · W_QKVᵀ                      [T, C] = [T, 3C] · [3C, C]
 *
 * The gradient of a sum is the gradient of each term: d mlp_out = d resid_post, d resid_mid = d resid_post
 * + (2. of 5.), d attn_out = d resid_mid, d resid_pre = d resid_mid + (2. of 8.), and d embed = d pos_embed
 * = d resid_pre of the first block.
 *
 * Each product is an operation of attn.h, and the sums of 2. and of d scores are computed in double. So the
 * bits do not depend on the number of threads, nor on the instruction set if it fuses. q8 and q4 weights
 * count as the numbers that they represent; the rounding of their inputs counts as the identity.
 *
 * Time. At 124M with 64 tokens on one thread, a backward pass takes 1.4 times as long as the forward pass
 * without its logits. The products of both have the same size; sums over heads and slopes of the
 * activation function add to them.
 *
 * Accuracy. Gradients differ from autograd in float64 by less than 1e-5 of the largest gradient of their
 * tensor (tests/golden, the included model, a model of GPT-2 124M's size and random initialization). The
 * error comes from the forward pass, whose activations are f32: exact formulas on f32 activations have the
 * same error. If weights are so large that attention saturates and roundings grow from layer to layer
 * (124M, standard deviation 0.12 instead of 0.02), the patterns are off by 6e-5 and the gradients by 1e-4,
 * here and in PyTorch's float32. On activations in float64, the f32 formulas below are off by 3e-6 there.
 *
 * Edits. With backward.edits the recorded pass runs in the changed model, and each formula uses the
 * numbers of that pass. A gradient belongs to an activation after its edits. Further down it is 0 where an
 * edit replaced a number, and multiplied where an edit scales (changes.h).
 *
 * Rules. GIM (Edin et al. 2025, arXiv 2505.17630) changes three formulas, for better estimates where a
 * softmax is sure of its key or a LayerNorm divides a change away. backward.rules has the bits of lens_rule
 * that are in force; each may be set alone. The forward pass does not change.
 *
 *     LENS_RULE_NORM      2.  the scale counts as a constant: d x = (g - mean(g)) / scale, d scale = 0
 *     LENS_RULE_SOFTMAX   7.  softmax(scores / 2) takes the place of pattern in d scores
 *     LENS_RULE_QKV       7.  d q and d k are divided by 4, d v by 2, at hook_q, hook_k and hook_v already
 *
 * These differ from gim-explain 0.1.4 in float64 by as little as plain gradients do from autograd's. RelP is
 * left out: the rules of LRP are under a patent that allows scientific and private use only.
 *
 * Conventions. The gradient of an activation includes all that depends on it. At later keys d scores and
 * d pattern are 0, because the model ignores what is written there; autograd gives d pattern another number
 * there, because PyTorch multiplies those weights with values too. At hook_resid_mid the gradient includes
 * the path around the MLP; TransformerLens's bridge shows the gradient of ln2's input there, which lacks it
 * (here hook_mlp_in). */
#ifndef LENS_GRADIENTS_H
#define LENS_GRADIENTS_H

#include "changes.h"
#include "metric.h"
#include "panels.h"
#include <math.h>

/* ---- weights ---- */

typedef struct lens_layer_weights {
    attn_tensor qkv, o, in,
        out; /* panels of W_QKVᵀ [3C, C], W_Oᵀ [C, C], W_inᵀ [F, C], W_outᵀ [C, F] */
    attn_tensor ln1_w, ln2_w; /* [C] */
} lens_layer_weights;

/* Rules that change the formulas: see above. */
typedef enum lens_rule {
    LENS_RULE_NORM = 1,
    LENS_RULE_SOFTMAX = 2,
    LENS_RULE_QKV = 4,
    LENS_RULES_GIM = 7 /* all of them */
} lens_rule;

/* What backward passes of a model share. It holds a transposed f32 copy of all matrices: 4 bytes for each
 * weight. One thread at a time may use it. */
typedef struct lens_backward {
    const attn_model *model;
    attn_workspace *workspace;  /* of the forward passes */
    lens_layer_weights *layers; /* [n_layer] */
    attn_tensor ln_final_w;
    attn_tensor w_u;        /* panels of W_Uᵀ [V, C]; made when they are needed */
    const attn_edit *edits; /* [n_edits], of the caller: in force in every later pass */
    size_t n_edits;
    attn_progress_fn progress; /* may be NULL: lens_edge_scores and lens_edge_curve call it */
    void *user;                /* progress gets it */
    int rules;                 /* bits of lens_rule, in force in every later pass; 0: none */
} lens_backward;

/* *panels: the transpose of a layer's matrix [K, N], or [H, d, N] with K = H * d. */
LENS_FN attn_status lens_fetch_transposed(attn_ctx *ctx, attn_tensor *panels,
                                          const attn_model *model, size_t layer, const char *name)
{
    attn_tensor w = ATTN_ZERO;
    attn_status status = lens_layer_tensor(ctx, &w, model, layer, name);
    if (status == ATTN_OK) {
        const size_t n_out = w.shape[w.ndim - 1];
        const attn_tensor flat = attn_reshape(w, attn_shape2(attn_count(w) / n_out, n_out));
        status = lens_pack(ctx, panels, attn_transpose(flat, 0, 1));
    }
    attn_tensor_free(ctx, &w);
    return status;
}

LENS_FN attn_status lens_fetch_layer(attn_ctx *ctx, lens_layer_weights *w, const attn_model *model,
                                     size_t layer)
{
    const int failed = lens_fetch_transposed(ctx, &w->qkv, model, layer, "attn.W_QKV") ||
                       lens_fetch_transposed(ctx, &w->o, model, layer, "attn.W_O") ||
                       lens_fetch_transposed(ctx, &w->in, model, layer, "mlp.W_in") ||
                       lens_fetch_transposed(ctx, &w->out, model, layer, "mlp.W_out") ||
                       lens_layer_tensor(ctx, &w->ln1_w, model, layer, "ln1.w") ||
                       lens_layer_tensor(ctx, &w->ln2_w, model, layer, "ln2.w");
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* Frees what lens_backward_new made. A zeroed struct is fine. */
LENS_FN void lens_backward_free(attn_ctx *ctx, lens_backward *b)
{
    size_t n = b->layers ? attn_model_config(b->model)->n_layer : 0;
    for (size_t i = 0; i < n; i++) {
        attn_tensor_free(ctx, &b->layers[i].qkv);
        attn_tensor_free(ctx, &b->layers[i].o);
        attn_tensor_free(ctx, &b->layers[i].in);
        attn_tensor_free(ctx, &b->layers[i].out);
        attn_tensor_free(ctx, &b->layers[i].ln1_w);
        attn_tensor_free(ctx, &b->layers[i].ln2_w);
    }
    attn_free(b->layers);
    attn_tensor_free(ctx, &b->ln_final_w);
    attn_tensor_free(ctx, &b->w_u);
    attn_workspace_free(b->workspace);
    memset(b, 0, sizeof *b);
}

/* Prepares backward passes. *b must be zeroed; after a failure it is zeroed again. The model must outlive
 * it. lens_backward_free frees it, with the same context. */
LENS_FN attn_status lens_backward_new(attn_ctx *ctx, lens_backward *b, const attn_model *model)
{
    if (lens_need_layer(ctx, "lens_backward_new", model, 0) != ATTN_OK)
        return lens_failure(ctx);
    size_t n_layer = attn_model_config(model)->n_layer;
    b->model = model;
    attn_status status = attn_workspace_new(ctx, &b->workspace, model, NULL);
    if (status == ATTN_OK)
        b->layers = (lens_layer_weights *)attn_alloc(ctx, n_layer, sizeof *b->layers,
                                                     "the weights of backward passes");
    if (status == ATTN_OK && !b->layers)
        status = ctx->status;
    if (status == ATTN_OK)
        status = attn_model_tensor(ctx, &b->ln_final_w, model, "ln_final.w");
    for (size_t i = 0; i < n_layer && status == ATTN_OK; i++)
        status = lens_fetch_layer(ctx, &b->layers[i], model, i);
    if (status != ATTN_OK)
        lens_backward_free(ctx, b);
    return status;
}

/* Makes the panels of W_Uᵀ if they are not there yet. */
LENS_FN attn_status lens_need_unembedding(attn_ctx *ctx, lens_backward *b)
{
    const int tied = attn_model_config(b->model)->tied;
    attn_tensor w = ATTN_ZERO;
    attn_status status = ATTN_OK;
    if (b->w_u.ndim > 0)
        return ATTN_OK;
    status = attn_model_tensor(ctx, &w, b->model, tied ? "embed.W_E" : "unembed.W_U");
    if (status == ATTN_OK)
        status = lens_pack(ctx, &b->w_u, tied ? w : attn_transpose(w, 0, 1));
    attn_tensor_free(ctx, &w);
    return status;
}

/* ---- a pass ---- */

/* Of which metric, of which text, and with respect to which activations. */
typedef struct lens_gradients_desc {
    const attn_token *tokens; /* [n_tokens] */
    size_t n_tokens;
    const char *const
        *names;         /* activations, names and patterns as for attn_hook; n_names 0: all but */
    size_t n_names;     /* those on request */
    const float *resid; /* NULL, or [n_tokens, C]: the stream that enters the first block in place
                           of the embeddings (which then have no gradients) */
    lens_metric metric;
} lens_gradients_desc;

/* Activations of the forward pass that a caller wants as well. record is NULL after a failure. */
typedef struct lens_kept {
    const char *const *names;
    size_t n_names;
    attn_record *record;
} lens_kept;

/* A backward pass under way. */
typedef struct lens_pass {
    lens_backward *b;
    const lens_gradients_desc *desc;
    attn_record *seen;      /* activations of the forward pass */
    attn_record *before;    /* some of them as they were before the edits; NULL without edits */
    attn_record *gradients; /* the gradients that were asked for */
    lens_kept *kept;        /* may be NULL */
    attn_tensor logits;     /* [T, V]; [1, V] if the metric is local; or zeroed: not computed */
    attn_tensor later;      /* [T, T]: 1 where a query sees the key, 0 at later keys */
    attn_tensor resid;      /* [T, C]: the gradient of the stream at the current layer */
} lens_pass;

/* Gives an activation of a record, and returns 1; 0 if the record does not have it. layer -1: outside the
 * blocks. */
LENS_FN int lens_find(attn_ctx *ctx, attn_tensor *out, const attn_record *record, size_t layer,
                      const char *name)
{
    const lens_full_name full = lens_name_in(layer, name);
    const char *other;
    for (size_t i = 0; (other = attn_record_name(record, i)) != NULL; i++)
        if (strcmp(full.text, other) == 0)
            return attn_record_get(ctx, out, record, full.text) == ATTN_OK;
    memset(out, 0, sizeof *out);
    return 0;
}

/* An activation of the forward pass, after its edits. */
LENS_FN attn_tensor lens_seen(attn_ctx *ctx, const lens_pass *p, size_t layer, const char *name)
{
    attn_tensor out;
    lens_find(ctx, &out, p->seen, layer, name);
    return out;
}

/* The same before its edits. */
LENS_FN attn_tensor lens_seen_before(attn_ctx *ctx, const lens_pass *p, size_t layer,
                                     const char *name)
{
    attn_tensor out;
    lens_find(ctx, &out, p->before ? p->before : p->seen, layer, name);
    return out;
}

LENS_FN int lens_is_edited_in(const lens_pass *p, size_t layer, const char *name)
{
    return lens_is_edited(p->b->edits, p->b->n_edits, layer, name);
}

/* Copies a gradient to the caller's record, if it was asked for. */
LENS_FN attn_status lens_give(attn_ctx *ctx, const lens_pass *p, size_t layer, const char *name,
                              attn_tensor gradient)
{
    attn_tensor place;
    return lens_find(ctx, &place, p->gradients, layer, name) ? attn_copy(ctx, &place, gradient)
                                                             : ATTN_OK;
}

/* The same; then the gradient becomes that of the activation before its edits. */
LENS_FN attn_status lens_pass_on(attn_ctx *ctx, const lens_pass *p, size_t layer, const char *name,
                                 attn_tensor gradient)
{
    const attn_status status = lens_give(ctx, p, layer, name, gradient);
    if (status == ATTN_OK)
        lens_back_edits(p->b->edits, p->b->n_edits, layer, name, gradient);
    return status;
}

/* Views of an activation of all heads, [T, C]: as [T, H, d], and by heads as [H, T, d]. */
LENS_FN attn_tensor lens_heads_of(const lens_pass *p, attn_tensor x)
{
    const attn_config *c = attn_model_config(p->b->model);
    return attn_reshape(x, attn_shape3(x.shape[0], c->n_head, c->d_head));
}
LENS_FN attn_tensor lens_by_head(attn_tensor x)
{
    return attn_transpose(x, 0, 1);
}

/* ---- the eight formulas ---- */

/* 3. 5. 6. 8. *out (a zeroed tensor) = d · Wᵀ [T, K] for d [T, N] and the panels of Wᵀ [N, K]. */
LENS_FN attn_status lens_back_product(attn_ctx *ctx, attn_tensor *out, attn_tensor d,
                                      attn_tensor panels, size_t width)
{
    if (attn_zeros(ctx, out, ATTN_F32, attn_shape2(d.shape[0], width)) != ATTN_OK)
        return lens_failure(ctx);
    return lens_multiply(ctx, *out, d, panels);
}

/* 2. d holds g [.., T, C], dense, and becomes d x; n [T, C] is the normalized input. *moment becomes
 * mean(g * n) [.., T, 1]; d scale is -C / scale times that. By LENS_RULE_NORM it is 0. The sums are in double
 * because most of their terms cancel. Every product is of two floats, which double holds exactly, so a
 * compiler that fuses does not change the result. */
LENS_FN attn_status lens_layernorm_back(attn_ctx *ctx, attn_tensor d, attn_tensor n,
                                        attn_tensor scale, attn_tensor *moment, int rules)
{
    const size_t n_rows = n.shape[0], width = n.shape[1];
    const size_t rows = width ? attn_count(d) / width : 0;
    attn_shape shape = ATTN_ZERO;
    shape.ndim = d.ndim;
    memcpy(shape.dim, d.shape, sizeof shape.dim);
    shape.dim[d.ndim - 1] = 1;
    if (moment->ndim == 0 && attn_zeros(ctx, moment, ATTN_F32, shape) != ATTN_OK)
        return lens_failure(ctx);
    for (size_t row = 0; row < rows; row++) {
        float *g = (float *)d.data + row * width;
        const float *normal = (const float *)n.data + (ptrdiff_t)(row % n_rows) * n.stride[0];
        const double by = 1 / (double)attn_get2(scale, row % n_rows, 0);
        double sum[4] = {0, 0, 0, 0}; /* four independent sums are four times as fast */
        double products[4] = {0, 0, 0, 0};
        for (size_t i = 0; i < width; i++) {
            sum[i % 4] += (double)g[i];
            products[i % 4] += (double)g[i] * (double)normal[i];
        }
        float mean = (float)((sum[0] + sum[1] + sum[2] + sum[3]) / (double)width);
        float product =
            (float)((products[0] + products[1] + products[2] + products[3]) / (double)width);
        product = rules & LENS_RULE_NORM ? 0 : product;
        for (size_t i = 0; i < width; i++)
            g[i] =
                (float)(((double)g[i] - (double)mean - (double)product * (double)normal[i]) * by);
        ((float *)moment->data)[row] = product;
    }
    return ATTN_OK;
}

/* ---- the same formulas with edits ----
 *
 * For edits between two activations of one formula: of a LayerNorm's scale, of the heads' results, and of
 * the heads' copies of the stream. */

/* Formula 2 for a LayerNorm whose scale is edited. The edits change the scale s0 to s, and the LayerNorm
 * computes n = (x - mean(x)) / s. The gradient of s is d s = -C / s * mean(g * n), and lens_back_edits
 * turns it into d s0. Then
 *
 *     d x = (g - mean(g) + d s0 / C * s / s0 * s * n) / s
 *
 * Without edits s = s0 and d s = d s0, and this is formula 2. */
LENS_FN attn_status lens_back_edited_scale(attn_ctx *ctx, const lens_pass *p, size_t layer,
                                           const char *name, attn_tensor d, attn_tensor n)
{
    const attn_tensor s = lens_seen(ctx, p, layer, name);
    const attn_tensor was = lens_seen_before(ctx, p, layer, name);
    const size_t rows = d.shape[0], width = d.shape[1];
    attn_tensor d_scale = ATTN_ZERO, means = ATTN_ZERO;
    int failed =
        attn_zeros(ctx, &d_scale, ATTN_F32, attn_shape2(rows, 1)) || attn_mean(ctx, &means, d);
    for (size_t row = 0; row < rows && !failed; row++) {
        const float *g = (const float *)d.data + row * width;
        double products = 0;
        for (size_t i = 0; i < width; i++)
            products += (double)g[i] * (double)attn_get2(n, row, i);
        products = p->b->rules & LENS_RULE_NORM ? 0 : products;
        ((float *)d_scale.data)[row] = (float)(-products / (double)attn_get2(s, row, 0));
    }
    failed = failed || lens_pass_on(ctx, p, layer, name, d_scale);
    for (size_t row = 0; row < rows && !failed; row++) {
        float *g = (float *)d.data + row * width;
        const double by = (double)attn_get2(s, row, 0);
        const double part = (double)attn_get2(d_scale, row, 0) / (double)width * by /
                            (double)attn_get2(was, row, 0) * by;
        for (size_t i = 0; i < width; i++)
            g[i] = (float)(((double)g[i] - (double)attn_get2(means, row, 0) +
                            (double)(float)part * (double)attn_get2(n, row, i)) /
                           by);
    }
    attn_tensor_free(ctx, &d_scale);
    attn_tensor_free(ctx, &means);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* Formula 6 for edited head results: *z [T, C] becomes d z, head by head, from d attn_out [T, C]. */
LENS_FN attn_status lens_back_edited_results(attn_ctx *ctx, const lens_pass *p, size_t layer,
                                             attn_tensor *z, attn_tensor d_out)
{
    const attn_config *c = attn_model_config(p->b->model);
    const size_t n = d_out.shape[0], width = c->d_model;
    attn_tensor o = ATTN_ZERO, all = ATTN_ZERO, by_head = ATTN_ZERO, to;
    int failed = lens_layer_tensor(ctx, &o, p->b->model, (size_t)layer, "attn.W_O") ||
                 attn_zeros(ctx, &all, ATTN_F32, attn_shape3(n, c->n_head, width)) ||
                 attn_zeros(ctx, z, ATTN_F32, attn_shape2(n, width));
    for (size_t head = 0; head < c->n_head && !failed; head++) {
        to = attn_select(all, 1, head);
        failed = attn_copy(ctx, &to, d_out) != ATTN_OK;
    }
    if (!failed) { /* [H, T, d] = [H, T, C] · [H, C, d] */
        to = lens_heads_of(p, *z);
        failed = lens_pass_on(ctx, p, layer, "attn.hook_result", all) ||
                 attn_matmul(ctx, &by_head, lens_by_head(all), attn_transpose(o, 1, 2)) ||
                 attn_copy(ctx, &to, lens_by_head(by_head));
    }
    attn_tensor_free(ctx, &o);
    attn_tensor_free(ctx, &all);
    attn_tensor_free(ctx, &by_head);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* Can the input of a head differ from ln1's output, or its copy of the stream from the stream, because of
 * edits? */
LENS_FN int lens_copies_differ(const lens_pass *p, size_t layer)
{
    int any = lens_is_edited_in(p, layer, "ln1.hook_scale") ||
              lens_is_edited_in(p, layer, "ln1.hook_normalized.pre");
    for (int i = 0; i < 4; i++)
        any |= lens_is_edited_in(p, layer, lens_head_inputs[i]);
    return any;
}

/* Does an edit change the row that the queries, keys or values of head h read at position t? */
LENS_FN int lens_copy_is_edited(const lens_pass *p, size_t layer, const char *name, size_t t,
                                size_t h)
{
    const char *const names[] = {lens_head_inputs[0], name};
    const size_t n_head = attn_model_config(p->b->model)->n_head;
    size_t first, end;
    for (size_t i = 0; i < p->b->n_edits; i++)
        for (size_t j = 0; j < 2; j++) {
            const attn_edit *e = &p->b->edits[i];
            const size_t n_heads = e->n_heads ? e->n_heads : n_head - e->first_head;
            if (!attn_activation_matches(e->name, lens_name_in(layer, names[j]).text))
                continue;
            lens_edited_positions(e, p->desc->n_tokens, &first, &end);
            if (t >= first && t < end && h >= e->first_head && h - e->first_head < n_heads)
                return 1;
        }
    return 0;
}

/* n [H * T, C], the normalized copies x [T, H, C] of all heads, and their scales [H * T, 1]. */
LENS_FN attn_status lens_normalize_copies(attn_ctx *ctx, attn_tensor *n, attn_tensor *scale,
                                          attn_tensor x, float eps)
{
    const size_t rows = x.shape[0] * x.shape[1], width = x.shape[2];
    attn_tensor dense = ATTN_ZERO, mean = ATTN_ZERO;
    int failed = attn_copy(ctx, &dense, lens_by_head(x)) != ATTN_OK;
    attn_tensor flat = attn_reshape(dense, attn_shape2(rows, width));
    failed = failed || attn_mean(ctx, &mean, flat) || attn_variance(ctx, scale, flat, 0);
    for (size_t i = 0; i < rows && !failed; i++)
        ((float *)scale->data)[i] = sqrtf(((float *)scale->data)[i] + eps);
    failed = failed || attn_sub(ctx, n, flat, mean) || attn_div(ctx, n, *n, *scale);
    attn_tensor_free(ctx, &dense);
    attn_tensor_free(ctx, &mean);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* *d [H, T, C]: from the gradients of q, k or v [T, H, d] (part 0, 1, 2), the gradients of the copies of
 * the stream that heads read for them: 8. and 2. head by head, with each copy's own LayerNorm. */
LENS_FN attn_status lens_back_copies_of(attn_ctx *ctx, const lens_pass *p, size_t layer,
                                        size_t part, attn_tensor gradient, attn_tensor *d)
{
    static const char *const weights[] = {"attn.W_Q", "attn.W_K", "attn.W_V"};
    const char *const name = lens_head_inputs[1 + part];
    const float eps = attn_model_config(p->b->model)->ln_eps;
    attn_tensor w = ATTN_ZERO, n = ATTN_ZERO, scale = ATTN_ZERO, moment = ATTN_ZERO, flat;
    int failed = /* [H, T, C] = [H, T, d] · [H, d, C] */
        lens_layer_tensor(ctx, &w, p->b->model, (size_t)layer, weights[part]) ||
        attn_matmul(ctx, d, lens_by_head(gradient), attn_transpose(w, 1, 2)) ||
        attn_mul(ctx, d, *d, p->b->layers[layer].ln1_w) ||
        lens_normalize_copies(ctx, &n, &scale, lens_seen(ctx, p, layer, name), eps);
    if (!failed) {
        flat = attn_reshape(*d, attn_shape2(n.shape[0], n.shape[1]));
        failed = lens_layernorm_back(ctx, flat, n, scale, &moment, p->b->rules) != ATTN_OK;
    }
    attn_tensor_free(ctx, &w);
    attn_tensor_free(ctx, &n);
    attn_tensor_free(ctx, &scale);
    attn_tensor_free(ctx, &moment);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* A head reads an edited copy instead of the stream. So the gradients d [H, T, C] of edited copies are added
 * to through [T, H, C], and there the gradient of q, k or v [T, H, d] becomes 0: it must not reach the
 * stream through ln1 as well. */
LENS_FN void lens_split_copies(const lens_pass *p, size_t layer, const char *name,
                               attn_tensor gradient, attn_tensor d, attn_tensor through)
{
    const size_t n_head = d.shape[0], n = d.shape[1], width = d.shape[2];
    for (size_t h = 0; h < n_head; h++)
        for (size_t t = 0; t < n; t++) {
            const float *from = (const float *)d.data + (h * n + t) * width;
            float *to = (float *)through.data + (t * n_head + h) * width;
            float *left = (float *)gradient.data + (ptrdiff_t)t * gradient.stride[0] +
                          (ptrdiff_t)h * gradient.stride[1];
            if (!lens_copy_is_edited(p, layer, name, t, h))
                continue;
            for (size_t i = 0; i < width; i++)
                to[i] += from[i];
            memset(left, 0, gradient.shape[2] * sizeof *left);
        }
}

/* *copies (a zeroed tensor): the gradient [T, C] that reaches the stream through the edited copies of a
 * layer. qkv [T, 3C] holds the gradients of queries, keys and values. */
LENS_FN attn_status lens_back_edited_copies(attn_ctx *ctx, const lens_pass *p, size_t layer,
                                            attn_tensor qkv, attn_tensor *copies)
{
    const attn_config *c = attn_model_config(p->b->model);
    const size_t width = c->d_model;
    const attn_shape shape = attn_shape3(qkv.shape[0], c->n_head, width);
    attn_tensor sum = ATTN_ZERO, through = ATTN_ZERO, d = ATTN_ZERO;
    int failed = attn_zeros(ctx, &sum, ATTN_F32, shape) ||
                 attn_zeros(ctx, &through, ATTN_F32, shape) ||
                 attn_zeros(ctx, copies, ATTN_F32, attn_shape2(qkv.shape[0], width));
    for (size_t i = 0; i < 3 && !failed; i++) {
        const attn_tensor part = lens_heads_of(p, attn_slice(qkv, 1, i * width, width));
        const char *const name = lens_head_inputs[1 + i];
        failed = lens_back_copies_of(ctx, p, layer, i, part, &d) ||
                 lens_pass_on(ctx, p, layer, name, lens_by_head(d)) ||
                 attn_add(ctx, &sum, sum, lens_by_head(d));
        if (!failed)
            lens_split_copies(p, layer, name, part, d, through);
    }
    failed = failed || lens_give(ctx, p, layer, lens_head_inputs[0], sum);
    if (!failed)
        lens_back_edits(p->b->edits, p->b->n_edits, layer, lens_head_inputs[0], through);
    for (size_t i = 0; i < c->n_head && !failed; i++)
        failed = attn_add(ctx, copies, *copies, attn_select(through, 1, i)) != ATTN_OK;
    attn_tensor_free(ctx, &sum);
    attn_tensor_free(ctx, &through);
    attn_tensor_free(ctx, &d);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* ---- one layer after the other ---- */

/* 2. with the gradients of everything inside a LayerNorm; d [T, C] holds d y and becomes d x. */
LENS_FN attn_status lens_back_layernorm(attn_ctx *ctx, const lens_pass *p, size_t layer,
                                        const char *norm, attn_tensor w, attn_tensor d)
{
    char scale_name[32], pre_name[48], post_name[48];
    attn_tensor moment = ATTN_ZERO;
    snprintf(scale_name, sizeof scale_name, "%s.hook_scale", norm);
    snprintf(pre_name, sizeof pre_name, "%s.hook_normalized.pre", norm);
    snprintf(post_name, sizeof post_name, "%s.hook_normalized.post", norm);
    attn_tensor scale = lens_seen(ctx, p, layer, scale_name);
    attn_tensor n = lens_seen_before(ctx, p, layer, pre_name);
    int failed = lens_pass_on(ctx, p, layer, post_name, d) || attn_mul(ctx, &d, d, w) ||
                 lens_pass_on(ctx, p, layer, pre_name, d);
    if (!failed && lens_is_edited_in(p, layer, scale_name))
        return lens_back_edited_scale(ctx, p, layer, scale_name, d, n);
    failed = failed || lens_layernorm_back(ctx, d, n, scale, &moment, p->b->rules) ||
             attn_div(ctx, &moment, moment, scale) ||
             attn_scale(ctx, &moment, moment, -(float)d.shape[1]) ||
             lens_give(ctx, p, layer, scale_name, moment);
    attn_tensor_free(ctx, &moment);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* 4. slope = act'(x), for x and slope [T, F]. With s = 1 / (1 + e) and e = exp(-a):
 *   silu       a = x                                 act' = s + s * e * s * x
 *   gelu tanh  a = 2c * (x + k * x^3)                act' = s + s * e * s * 2c * (x + 3k * x^3)
 *              c = sqrt(2 / pi), k = 0.044715
 *   gelu erf   act' = gelu(x) / x + x * exp(-x^2 / 2) / sqrt(2 pi)
 *   relu       act' = 1 for x > 0, else 0 */
LENS_FN attn_status lens_sigmoid_slope(attn_ctx *ctx, attn_tensor slope, attn_tensor x, int is_tanh)
{
    const float twice_c = 1.5957691216057308f, k = 0.044715f;
    attn_tensor cube = ATTN_ZERO, e = ATTN_ZERO, one = ATTN_ZERO, s = ATTN_ZERO;
    size_t n = attn_count(slope);
    int failed = attn_mul(ctx, &cube, x, x) || attn_mul(ctx, &cube, cube, x) ||
                 attn_scale(ctx, &cube, cube, is_tanh ? k : 0) || attn_add(ctx, &e, x, cube) ||
                 attn_scale(ctx, &e, e, is_tanh ? -twice_c : -1) ||
                 attn_zeros(ctx, &one, ATTN_F32, attn_shape1(1));
    for (size_t i = 0; i < n && !failed; i++) /* e stays finite, and e * s rounds to 1 there */
        if (((float *)e.data)[i] > 80)
            ((float *)e.data)[i] = 80;
    if (!failed)
        *(float *)one.data = 1;
    failed = failed || attn_exp(ctx, &e, e) || attn_add(ctx, &s, e, one) ||
             attn_div(ctx, &s, one, s) || attn_mul(ctx, &e, e, s) || attn_mul(ctx, &e, e, s) ||
             attn_scale(ctx, &cube, cube, 3) || attn_add(ctx, &slope, x, cube) ||
             attn_scale(ctx, &slope, slope, is_tanh ? twice_c : 1) ||
             attn_mul(ctx, &slope, slope, e) || attn_add(ctx, &slope, slope, s);
    attn_tensor_free(ctx, &cube);
    attn_tensor_free(ctx, &e);
    attn_tensor_free(ctx, &one);
    attn_tensor_free(ctx, &s);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* gelu(x) / x is the cumulative normal distribution. For |x| < 2^-24 it is taken at 2^-24, where it has
 * practically the same value and the division is safe. */
LENS_FN attn_status lens_erf_slope(attn_ctx *ctx, attn_tensor slope, attn_tensor x)
{
    const float root = 0.39894228040143268f, small = 5.9604645e-8f; /* 2^-24 */
    attn_tensor share = ATTN_ZERO, away = ATTN_ZERO;
    size_t n = attn_count(slope);
    int failed = attn_copy(ctx, &away, x) != ATTN_OK;
    for (size_t i = 0; i < n && !failed; i++) {
        float *value = (float *)away.data + i;
        if (fabsf(*value) < small)
            *value = *value < 0 ? -small : small;
    }
    failed = failed || attn_apply_mlp_act(ctx, &share, away, ATTN_ACT_GELU_ERF) ||
             attn_div(ctx, &share, share, away) || attn_mul(ctx, &slope, x, x) ||
             attn_scale(ctx, &slope, slope, -0.5f) || attn_exp(ctx, &slope, slope) ||
             attn_scale(ctx, &slope, slope, root) || attn_mul(ctx, &slope, slope, x) ||
             attn_add(ctx, &slope, slope, share);
    attn_tensor_free(ctx, &share);
    attn_tensor_free(ctx, &away);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

LENS_FN attn_status lens_act_slope(attn_ctx *ctx, attn_tensor slope, attn_tensor x,
                                   attn_mlp_act kind)
{
    if (kind == ATTN_ACT_GELU_TANH || kind == ATTN_ACT_SILU)
        return lens_sigmoid_slope(ctx, slope, x, kind == ATTN_ACT_GELU_TANH);
    if (kind == ATTN_ACT_GELU_ERF)
        return lens_erf_slope(ctx, slope, x);
    for (size_t i = 0; i < x.shape[0]; i++)
        for (size_t j = 0; j < x.shape[1]; j++)
            ((float *)slope.data)[i * x.shape[1] + j] = attn_get2(x, i, j) > 0 ? 1 : 0;
    return ATTN_OK;
}

/* The gradient of what a sublayer adds to the stream is that of the stream. *out (a zeroed tensor) becomes a
 * copy if edits change it, else a view. attn_tensor_free frees either. */
LENS_FN attn_status lens_back_branch(attn_ctx *ctx, const lens_pass *p, size_t layer,
                                     const char *name, attn_tensor *out)
{
    if (lens_is_edited_in(p, layer, name)) {
        if (attn_copy(ctx, out, p->resid) != ATTN_OK)
            return lens_failure(ctx);
    } else {
        *out = p->resid;
        out->owned = NULL;
    }
    return lens_pass_on(ctx, p, layer, name, *out);
}

/* 3. 4. 5. From d resid_post to d resid_mid. */
LENS_FN attn_status lens_back_mlp(attn_ctx *ctx, const lens_pass *p, size_t layer)
{
    const lens_layer_weights *w = &p->b->layers[layer];
    const attn_tensor pre = lens_seen(ctx, p, layer, "mlp.hook_pre");
    attn_tensor resid = p->resid, out = ATTN_ZERO, wide = ATTN_ZERO, slope = ATTN_ZERO;
    attn_tensor d = ATTN_ZERO;
    const int failed =
        lens_pass_on(ctx, p, layer, "hook_resid_post", resid) ||
        lens_back_branch(ctx, p, layer, "hook_mlp_out", &out) ||
        lens_back_product(ctx, &wide, out, w->out, pre.shape[1]) ||
        lens_pass_on(ctx, p, layer, "mlp.hook_post", wide) ||
        attn_zeros(ctx, &slope, ATTN_F32, attn_shape2(pre.shape[0], pre.shape[1])) ||
        lens_act_slope(ctx, slope, pre, attn_model_config(p->b->model)->act_fn) ||
        attn_mul(ctx, &wide, wide, slope) || lens_pass_on(ctx, p, layer, "mlp.hook_pre", wide) ||
        lens_back_product(ctx, &d, wide, w->in, resid.shape[1]) ||
        lens_back_layernorm(ctx, p, layer, "ln2", w->ln2_w, d) ||
        lens_pass_on(ctx, p, layer, "hook_mlp_in", d) || attn_add(ctx, &resid, resid, d) ||
        lens_pass_on(ctx, p, layer, "hook_resid_mid", resid);
    attn_tensor_free(ctx, &out);
    attn_tensor_free(ctx, &wide);
    attn_tensor_free(ctx, &slope);
    attn_tensor_free(ctx, &d);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* hook_result of every head: attn_out is their sum. */
LENS_FN attn_status lens_give_results(attn_ctx *ctx, const lens_pass *p, size_t layer,
                                      attn_tensor d_out)
{
    attn_tensor place;
    if (!lens_find(ctx, &place, p->gradients, layer, "attn.hook_result"))
        return ATTN_OK;
    for (size_t head = 0; head < place.shape[1]; head++) {
        attn_tensor one = attn_select(place, 1, head);
        if (attn_copy(ctx, &one, d_out) != ATTN_OK)
            return lens_failure(ctx);
    }
    return ATTN_OK;
}

/* 6. */
LENS_FN attn_status lens_back_results(attn_ctx *ctx, const lens_pass *p, size_t layer,
                                      attn_tensor *z, attn_tensor d_out)
{
    if (lens_is_edited_in(p, layer, "attn.hook_result"))
        return lens_back_edited_results(ctx, p, layer, z, d_out);
    if (lens_give_results(ctx, p, layer, d_out) != ATTN_OK)
        return lens_failure(ctx);
    return lens_back_product(ctx, z, d_out, p->b->layers[layer].o, d_out.shape[1]);
}

/* 8. head by head: d y1 [H, T, C] for the gradients [T, C] of queries, keys or values (`part` 0, 1, 2). */
LENS_FN attn_status lens_back_inputs(attn_ctx *ctx, attn_tensor d, const lens_pass *p, size_t layer,
                                     attn_tensor gradient, size_t part)
{
    const size_t n_head = d.shape[0], d_head = gradient.shape[1] / n_head;
    const attn_tensor panels = p->b->layers[layer].qkv;
    attn_status status = ATTN_OK;
    for (size_t head = 0; head < n_head && status == ATTN_OK; head++)
        status = lens_multiply(ctx, attn_select(d, 0, head),
                               attn_slice(gradient, 1, head * d_head, d_head),
                               attn_slice(panels, 1, (part * n_head + head) * d_head, d_head));
    return status;
}

/* The gradients of each head's own copy of the stream, if they were asked for: 8. and 2. for one head at a
 * time, separately for queries, keys and values. qkv is [T, 3C]. */
LENS_FN attn_status lens_back_copies(attn_ctx *ctx, const lens_pass *p, size_t layer,
                                     attn_tensor qkv)
{
    static const char *const names[] = {"hook_q_input", "hook_k_input", "hook_v_input"};
    const size_t n_head = attn_model_config(p->b->model)->n_head, width = p->resid.shape[1];
    const attn_tensor scale = lens_seen(ctx, p, layer, "ln1.hook_scale");
    const attn_tensor n = lens_seen(ctx, p, layer, "ln1.hook_normalized.pre");
    attn_tensor sum = ATTN_ZERO, place, d = ATTN_ZERO, moment = ATTN_ZERO;
    const int all = lens_find(ctx, &sum, p->gradients, layer, "hook_attn_in");
    int failed = all && attn_scale(ctx, &sum, sum, 0);
    for (size_t i = 0; i < 3 && !failed; i++) {
        const int asked = lens_find(ctx, &place, p->gradients, layer, names[i]);
        if (!asked && !all)
            continue;
        failed = (d.ndim == 0 &&
                  attn_zeros(ctx, &d, ATTN_F32, attn_shape3(n_head, qkv.shape[0], width))) ||
                 lens_back_inputs(ctx, d, p, layer, attn_slice(qkv, 1, i * width, width), i) ||
                 attn_mul(ctx, &d, d, p->b->layers[layer].ln1_w) ||
                 lens_layernorm_back(ctx, d, n, scale, &moment, p->b->rules) ||
                 (asked && attn_copy(ctx, &place, lens_by_head(d))) ||
                 (all && attn_add(ctx, &sum, sum, lens_by_head(d)));
    }
    attn_tensor_free(ctx, &d);
    attn_tensor_free(ctx, &moment);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* 7. scores [H, T, T] holds d pattern, dense, and becomes d scores; sums in double. */
LENS_FN void lens_softmax_back(attn_tensor scores, attn_tensor pattern)
{
    const size_t n = scores.shape[1];
    for (size_t head = 0; head < scores.shape[0]; head++)
        for (size_t i = 0; i < n; i++) {
            float *d = (float *)scores.data + (head * n + i) * n;
            const float *p = (const float *)pattern.data + (ptrdiff_t)head * pattern.stride[0] +
                             (ptrdiff_t)i * pattern.stride[1];
            const ptrdiff_t step = pattern.stride[2];
            double sum = 0;
            for (size_t j = 0; j <= i; j++)
                sum += (double)p[(ptrdiff_t)j * step] * (double)d[j];
            for (size_t j = 0; j < n; j++)
                d[j] = j <= i ? (float)((double)p[(ptrdiff_t)j * step] * ((double)d[j] - sum)) : 0;
        }
}

/* *out (a zeroed tensor) = softmax(scores / 2) for pattern = softmax(scores), [H, T, T]: the roots of a row's
 * weights, divided by their sum. */
LENS_FN attn_status lens_soften(attn_ctx *ctx, attn_tensor *out, attn_tensor pattern)
{
    const size_t n = pattern.shape[1];
    if (attn_zeros(ctx, out, ATTN_F32, attn_shape3(pattern.shape[0], n, n)) != ATTN_OK)
        return lens_failure(ctx);
    for (size_t row = 0; row < pattern.shape[0] * n; row++) {
        const float *p = (const float *)pattern.data + (ptrdiff_t)(row / n) * pattern.stride[0] +
                         (ptrdiff_t)(row % n) * pattern.stride[1];
        float *soft = (float *)out->data + row * n;
        double sum = 0;
        for (size_t j = 0; j <= row % n; j++)
            sum += (double)(soft[j] = sqrtf(p[(ptrdiff_t)j * pattern.stride[2]]));
        for (size_t j = 0; j <= row % n; j++)
            soft[j] = (float)((double)soft[j] / sum);
    }
    return ATTN_OK;
}

/* 7. d scores [H, T, T] for d z [H, T, d]; *scores must be zeroed. */
LENS_FN attn_status lens_back_pattern(attn_ctx *ctx, const lens_pass *p, size_t layer,
                                      attn_tensor *scores, attn_tensor d_z)
{
    const attn_tensor v = lens_by_head(lens_seen(ctx, p, layer, "attn.hook_v"));
    const attn_tensor pattern = lens_seen_before(ctx, p, layer, "attn.hook_pattern");
    const int is_soft = (p->b->rules & LENS_RULE_SOFTMAX) != 0;
    attn_tensor soft = ATTN_ZERO;
    int failed = attn_matmul(ctx, scores, d_z, attn_transpose(v, 1, 2)) ||
                 attn_mul(ctx, scores, *scores, p->later) ||
                 lens_pass_on(ctx, p, layer, "attn.hook_pattern", *scores) ||
                 (is_soft && lens_soften(ctx, &soft, pattern));
    if (!failed)
        lens_softmax_back(*scores, is_soft ? soft : pattern);
    attn_tensor_free(ctx, &soft);
    if (failed)
        return lens_failure(ctx);
    return lens_pass_on(ctx, p, layer, "attn.hook_attn_scores", *scores);
}

/* 6. 7. From d attn_out [T, C] to qkv [T, 3C], the gradients of queries, keys and values. */
LENS_FN attn_status lens_back_heads(attn_ctx *ctx, const lens_pass *p, size_t layer,
                                    attn_tensor d_out, attn_tensor qkv)
{
    const attn_config *c = attn_model_config(p->b->model);
    const size_t width = c->d_model;
    const attn_tensor pattern = lens_seen(ctx, p, layer, "attn.hook_pattern");
    const attn_tensor q = lens_by_head(lens_seen(ctx, p, layer, "attn.hook_q"));
    const attn_tensor k = lens_by_head(lens_seen(ctx, p, layer, "attn.hook_k"));
    const int divide = (p->b->rules & LENS_RULE_QKV) != 0;
    const float scale = lens_score_scale(c, layer) * (divide ? 0.25f : 1);
    attn_tensor d[3], z = ATTN_ZERO, scores = ATTN_ZERO;
    int failed = lens_back_results(ctx, p, layer, &z, d_out) != ATTN_OK;
    for (size_t i = 0; i < 3; i++)
        d[i] = lens_by_head(lens_heads_of(p, attn_slice(qkv, 1, i * width, width)));
    attn_tensor d_z = lens_by_head(lens_heads_of(p, z));
    failed = failed || lens_pass_on(ctx, p, layer, "attn.hook_z", lens_by_head(d_z)) ||
             attn_matmul(ctx, &d[2], attn_transpose(pattern, 1, 2), d_z) ||
             (divide && attn_scale(ctx, &d[2], d[2], 0.5f)) ||
             lens_back_pattern(ctx, p, layer, &scores, d_z) ||
             attn_scale(ctx, &scores, scores, scale) || attn_matmul(ctx, &d[0], scores, k) ||
             attn_matmul(ctx, &d[1], attn_transpose(scores, 1, 2), q) ||
             lens_pass_on(ctx, p, layer, "attn.hook_q", lens_by_head(d[0])) ||
             lens_pass_on(ctx, p, layer, "attn.hook_k", lens_by_head(d[1])) ||
             lens_pass_on(ctx, p, layer, "attn.hook_v", lens_by_head(d[2]));
    attn_tensor_free(ctx, &z);
    attn_tensor_free(ctx, &scores);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* 6. 7. 8. From d resid_mid to d resid_pre. */
LENS_FN attn_status lens_back_attention(attn_ctx *ctx, const lens_pass *p, size_t layer)
{
    const lens_layer_weights *w = &p->b->layers[layer];
    attn_tensor resid = p->resid, out = ATTN_ZERO, qkv = ATTN_ZERO, d = ATTN_ZERO;
    attn_tensor copies = ATTN_ZERO;
    int failed = lens_back_branch(ctx, p, layer, "hook_attn_out", &out) ||
                 attn_zeros(ctx, &qkv, ATTN_F32, attn_shape2(out.shape[0], 3 * out.shape[1])) ||
                 lens_back_heads(ctx, p, layer, out, qkv);
    if (!failed && lens_copies_differ(p, layer))
        failed = lens_back_edited_copies(ctx, p, layer, qkv, &copies) != ATTN_OK;
    else if (!failed)
        failed = lens_back_copies(ctx, p, layer, qkv) != ATTN_OK;
    failed = failed || lens_back_product(ctx, &d, qkv, w->qkv, resid.shape[1]) ||
             lens_back_layernorm(ctx, p, layer, "ln1", w->ln1_w, d) ||
             attn_add(ctx, &resid, resid, d) ||
             (copies.ndim && attn_add(ctx, &resid, resid, copies)) ||
             lens_pass_on(ctx, p, layer, "hook_resid_pre", resid);
    attn_tensor_free(ctx, &out);
    attn_tensor_free(ctx, &qkv);
    attn_tensor_free(ctx, &d);
    attn_tensor_free(ctx, &copies);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* 1. The metric, and d y of the last LayerNorm: d [T, C], which holds zeros. */
LENS_FN attn_status lens_back_metric(attn_ctx *ctx, float *value, const lens_pass *p, attn_tensor d)
{
    const lens_metric *m = &p->desc->metric;
    const size_t row = p->desc->n_tokens - 1 - m->from_end;
    attn_tensor at = lens_metric_is_local(m) ? attn_slice(d, 0, row, 1) : d;
    attn_status status = ATTN_OK;
    if (p->logits.ndim > 0)
        status = lens_metric_back(ctx, value, p->logits, m, p->desc->tokens);
    if (status == ATTN_OK && lens_metric_is_linear(m)) /* one or two columns of W_U are enough */
        return attn_logit_directions(ctx, &at, p->b->model, &m->token, lens_metric_against(m), 1);
    if (status == ATTN_OK)
        status = lens_need_unembedding(ctx, p->b);
    return status == ATTN_OK ? lens_multiply(ctx, at, p->logits, p->b->w_u) : status;
}

/* All formulas, from the logits down to the embeddings. */
LENS_FN attn_status lens_back(attn_ctx *ctx, float *value, const lens_pass *p)
{
    size_t layer = attn_model_config(p->b->model)->n_layer;
    int failed = lens_back_metric(ctx, value, p, p->resid) ||
                 lens_back_layernorm(ctx, p, ATTN_NO_LAYER, "ln_final", p->b->ln_final_w, p->resid);
    while (layer-- > 0 && !failed)
        failed = lens_is_stopped(ctx) || lens_back_mlp(ctx, p, layer) ||
                 lens_back_attention(ctx, p, layer);
    if (!failed && !p->desc->resid)
        failed = lens_give(ctx, p, ATTN_NO_LAYER, "hook_embed", p->resid) ||
                 lens_give(ctx, p, ATTN_NO_LAYER, "hook_pos_embed", p->resid);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* ---- the forward pass before it ---- */

/* Feeds a text to an empty session. *logits (a zeroed tensor) becomes the logits that the metric reads,
 * [1, V] or [T, V]; NULL: none are computed, which saves reading W_U. */
LENS_FN attn_status lens_feed_metric(attn_ctx *ctx, attn_tensor *logits, attn_session *session,
                                     const lens_gradients_desc *desc)
{
    const size_t n_vocab = attn_model_config(attn_session_model(session))->n_vocab;
    const int is_local = lens_metric_is_local(&desc->metric);
    const size_t row = desc->n_tokens - 1 - (is_local ? desc->metric.from_end : 0);
    attn_feed_item item = ATTN_ZERO;
    float nothing = 0; /* where no logits go */
    if (logits &&
        attn_zeros(ctx, logits, ATTN_F32, attn_shape2(is_local ? 1 : desc->n_tokens, n_vocab)))
        return lens_failure(ctx);
    item.session = session;
    item.tokens = desc->tokens;
    item.n_tokens = desc->n_tokens;
    item.logits = logits ? (float *)logits->data : &nothing;
    item.rows = is_local || !logits ? &row : NULL;
    item.n_rows = is_local && logits ? 1 : 0;
    item.layers.resid = desc->resid;
    return attn_feed_batch(ctx, &item, 1);
}

/* Runs the text, with a record of what the formulas need and one that the gradients will fill. A linear
 * metric's gradient needs no logits: they are computed only if its value is wanted. */
LENS_FN attn_status lens_forward(attn_ctx *ctx, lens_pass *p, attn_session *session, int has_value)
{
    static const char *const needed[] = {
        "*.hook_scale",   "*.hook_normalized.pre", "*.attn.hook_pattern", "*.attn.hook_q",
        "*.attn.hook_k",  "*.attn.hook_v",         "*.mlp.hook_pre",      "*.hook_q_input",
        "*.hook_k_input", "*.hook_v_input"};
    const size_t n_layer = attn_model_config(p->b->model)->n_layer;
    const lens_gradients_desc *desc = p->desc;
    attn_record_desc names = ATTN_ZERO;
    int copies = 0;
    for (size_t layer = 0; layer < n_layer; layer++)
        copies |= lens_copies_differ(p, layer);
    names.n_positions = desc->n_tokens;
    names.names = desc->names;
    names.n_names = desc->n_names;
    int failed = attn_record_new(ctx, &p->gradients, session, &names) != ATTN_OK;
    names.names = needed;
    names.n_names = 3;
    if (p->b->n_edits > 0)
        failed = failed || attn_record_new(ctx, &p->before, session, &names) ||
                 lens_hook_edits(ctx, session, p->b->edits, p->b->n_edits);
    names.n_names = copies ? 10 : 7;
    failed = failed || attn_record_new(ctx, &p->seen, session, &names);
    if (p->kept) {
        names.names = p->kept->names;
        names.n_names = p->kept->n_names;
        failed = failed || attn_record_new(ctx, &p->kept->record, session, &names);
    }
    has_value = has_value || !lens_metric_is_linear(&desc->metric);
    failed = failed || lens_feed_metric(ctx, has_value ? &p->logits : NULL, session, desc);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* Allocates the gradient of the stream, and marks the keys that each query sees. */
LENS_FN attn_status lens_prepare_pass(attn_ctx *ctx, lens_pass *p)
{
    const size_t n = p->desc->n_tokens, width = attn_model_config(p->b->model)->d_model;
    if (attn_zeros(ctx, &p->resid, ATTN_F32, attn_shape2(n, width)) ||
        attn_zeros(ctx, &p->later, ATTN_F32, attn_shape2(n, n)))
        return lens_failure(ctx);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++)
            ((float *)p->later.data)[i * n + j] = 1;
    return ATTN_OK;
}

/* One forward and one backward pass. The caller frees what it leaves in *p, after a failure too. */
LENS_FN attn_status lens_run_pass(attn_ctx *ctx, float *value, lens_pass *p)
{
    attn_session_desc size = ATTN_ZERO;
    attn_session *session = NULL;
    float metric = 0;
    size.n_ctx = p->desc->n_tokens;
    size.workspace = p->b->workspace;
    attn_status status = attn_session_new(ctx, &session, p->b->model, &size);
    if (status == ATTN_OK)
        status = lens_prepare_pass(ctx, p);
    if (status == ATTN_OK)
        status = lens_forward(ctx, p, session, value != NULL);
    if (status == ATTN_OK)
        status = lens_back(ctx, &metric, p);
    if (status == ATTN_OK && value)
        *value = metric;
    attn_session_free(session);
    return status;
}

/* lens_gradients, with a record of the activations that `kept` (may be NULL) names. */
LENS_FN attn_status lens_gradients_beside(attn_ctx *ctx, attn_record **gradients, lens_kept *kept,
                                          float *value, lens_backward *b,
                                          const lens_gradients_desc *desc)
{
    static const char op[] = "lens_gradients";
    lens_pass pass = ATTN_ZERO;
    if (!gradients || !b || !b->model || !desc)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no %s given", op,
                         !gradients ? "place for the gradients"
                         : !desc    ? "description"
                                    : "lens_backward that lens_backward_new made");
    *gradients = NULL;
    if (b->rules < 0 || b->rules > LENS_RULES_GIM)
        return attn_fail(
            ctx, ATTN_E_ARGUMENT,
            "%s: the rules of lens_backward are %d; expected bits of lens_rule, 0 to %d", op,
            b->rules, (int)LENS_RULES_GIM);
    if (lens_need_edits(ctx, op, b->edits, b->n_edits) ||
        lens_need_tokens(ctx, op, b->model, desc->tokens, desc->n_tokens) ||
        lens_need_metric(ctx, op, &desc->metric, attn_model_config(b->model)->n_vocab,
                         desc->n_tokens))
        return lens_failure(ctx);
    pass.b = b;
    pass.desc = desc;
    pass.kept = kept;
    attn_status status = lens_run_pass(ctx, value, &pass);
    attn_record_free(pass.seen);
    attn_record_free(pass.before);
    attn_tensor_free(ctx, &pass.logits);
    attn_tensor_free(ctx, &pass.later);
    attn_tensor_free(ctx, &pass.resid);
    if (status == ATTN_OK) {
        *gradients = pass.gradients;
        return ATTN_OK;
    }
    attn_record_free(pass.gradients);
    if (kept) {
        attn_record_free(kept->record);
        kept->record = NULL;
    }
    return status;
}

/* *gradients: a record that holds d metric / d activation, in the activation's shape, for every activation
 * that desc names. attn_record_free frees it; it is NULL after a failure. *value (may be NULL) becomes the
 * value of the metric. The text runs once, in a session that this function makes and frees. */
LENS_FN attn_status lens_gradients(attn_ctx *ctx, attn_record **gradients, float *value,
                                   lens_backward *b, const lens_gradients_desc *desc)
{
    return lens_gradients_beside(ctx, gradients, NULL, value, b, desc);
}

#endif
