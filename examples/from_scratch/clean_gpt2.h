/* GPT-2 from tensor operations, module by module, as notebook 004 writes it. Nothing is tuned and
 * nothing is reused: this is the equations. The engine's forward pass is >>gpt2 in attn.h.
 *
 * x is [B, T, C] throughout: batch, positions, d_model. */
#ifndef CLEAN_GPT2_H
#define CLEAN_GPT2_H

#include "notebook.h"
#include "torch.h"

enum { MAX_LAYERS = 48 };

typedef struct gpt {
    attn_config c;
    attn_tensor w_e, w_pos; /* [V, C], [N, C] */
    attn_block_weights block[MAX_LAYERS];
    attn_tensor ln_w, ln_b; /* [C] */
    attn_tensor w_u;        /* [C, V], often w_e transposed */
} gpt;

/* A table: row i of W_E is the vector of token i. */
static attn_tensor embed(attn_ctx *ctx, attn_tensor ids, const gpt *m)
{
    attn_tensor out = none;
    attn_embedding(ctx, &out, m->w_e, ids);
    return out;
}

/* Attention does not depend on the order of its vectors. So the model adds row t of a table to the
 * vector at position t, in every sequence of the batch. */
static attn_tensor pos_embed(attn_ctx *ctx, attn_tensor ids, const gpt *m)
{
    attn_tensor out = none;
    attn_zeros(ctx, &out, ATTN_F32, attn_shape3(ids.shape[0], ids.shape[1], m->c.d_model));
    attn_add(ctx, &out, out, attn_slice(m->w_pos, 0, 0, ids.shape[1]));
    return out;
}

/* (x - mean) / sqrt(variance + eps) * w + b, before everything that reads the stream; eps keeps a vector of
 * equal numbers from a division by 0. But for the division it is linear, and w and b could be folded
 * into the matrix that follows: lens_process_weights does that. */
static attn_tensor layer_norm(attn_ctx *ctx, attn_tensor x, attn_tensor w, attn_tensor b, float eps)
{
    attn_tensor mean = none, variance = none, out = none;
    attn_mean(ctx, &mean, x);
    attn_variance(ctx, &variance, x, 0);
    for (size_t i = 0; i < attn_count(variance); i++) {
        float *v = (float *)variance.data + i;
        *v = sqrtf(*v + eps);
    }
    attn_sub(ctx, &out, x, mean);
    attn_div(ctx, &out, out, variance);
    attn_mul(ctx, &out, out, w);
    attn_add(ctx, &out, out, b);
    return out;
}

/* x · W + b, cut into heads: [B, T, C] to [B, H, T, d] */
static attn_tensor project(attn_ctx *ctx, attn_tensor x, attn_tensor w, attn_tensor b,
                           size_t n_head)
{
    attn_tensor y = none;
    attn_linear(ctx, &y, x, w, b);
    y = attn_reshape(y, attn_shape4(x.shape[0], x.shape[1], n_head, x.shape[2] / n_head));
    return attn_transpose(y, 1, 2);
}

/* Scores [.., T, T]: nobody sees what comes later. exp(-inf) is 0. */
static attn_tensor apply_causal_mask(attn_ctx *ctx, attn_tensor scores)
{
    attn_tensor mask = none, masked = none;
    torch_causal_mask(ctx, &mask, scores.shape[2], scores.shape[3]);
    attn_add(ctx, &masked, scores, mask);
    return masked;
}

/* The only place where something moves from one position to another. Each head adds its result to
 * the residual stream. Queries and keys set the weights of the positions that a head reads; values
 * and W_O set the vector that it adds. */
static attn_tensor attention(attn_ctx *ctx, attn_tensor x, const attn_block_weights *w,
                             size_t n_head)
{
    const attn_tensor q = project(ctx, x, w->w_q, w->b_q, n_head);
    const attn_tensor k = project(ctx, x, w->w_k, w->b_k, n_head);
    const attn_tensor v = project(ctx, x, w->w_v, w->b_v, n_head);
    attn_tensor scores = none, pattern = none, z = none, joined = none, out = none;
    attn_matmul(ctx, &scores, q, attn_transpose(k, -2, -1));
    attn_scale(ctx, &scores, scores, 1 / sqrtf((float)q.shape[3]));
    attn_softmax(ctx, &pattern, apply_causal_mask(ctx, scores));
    attn_matmul(ctx, &z, pattern, v);
    attn_copy(ctx, &joined, attn_transpose(z, 1, 2));
    joined = attn_reshape(joined, attn_shape3(x.shape[0], x.shape[1], x.shape[2]));
    attn_linear(ctx, &out, joined, w->w_o, w->b_o);
    return out;
}

/* The same for each position by itself: what attention has brought there is computed with. A column of
 * W_in is a pattern to look for, the row of W_out what to write where it is found. */
static attn_tensor mlp(attn_ctx *ctx, attn_tensor x, const attn_block_weights *w)
{
    attn_tensor hidden = none, out = none;
    attn_linear(ctx, &hidden, x, w->w_in, w->b_in);
    attn_apply_mlp_act(ctx, &hidden, hidden, ATTN_ACT_GELU_TANH);
    attn_linear(ctx, &out, hidden, w->w_out, w->b_out);
    return out;
}

/* The residual stream, one vector for each position: every layer reads it and adds to it, so it carries all
 * that has been found so far. What attention finds is added, then what the MLP makes of that:
 *
 *     x' = x + attention(LN(x))        x'' = x' + MLP(LN(x')) */
static attn_tensor block(attn_ctx *ctx, attn_tensor x, const attn_block_weights *w,
                         const attn_config *c)
{
    attn_tensor mid = none, post = none;
    attn_add(ctx, &mid, x,
             attention(ctx, layer_norm(ctx, x, w->ln1_w, w->ln1_b, c->ln_eps), w, c->n_head));
    attn_add(ctx, &post, mid, mlp(ctx, layer_norm(ctx, mid, w->ln2_w, w->ln2_b, c->ln_eps), w));
    return post;
}

/* A logit is a dot product of the stream and a column of W_U. GPT-2's W_U is W_E transposed, which saves
 * parameters; a model that learns both can say that Obama follows Barack, and not the reverse. */
static attn_tensor unembed(attn_ctx *ctx, attn_tensor x, const gpt *m)
{
    attn_tensor logits = none;
    attn_linear(ctx, &logits, x, m->w_u, none);
    return logits;
}

/* Token ids [B, T] to logits [B, T, V] */
static attn_tensor transformer(attn_ctx *ctx, attn_tensor ids, const gpt *m)
{
    attn_tensor x = none;
    attn_add(ctx, &x, embed(ctx, ids, m), pos_embed(ctx, ids, m));
    for (size_t i = 0; i < m->c.n_layer; i++)
        x = block(ctx, x, &m->block[i], &m->c);
    return unembed(ctx, layer_norm(ctx, x, m->ln_w, m->ln_b, m->c.ln_eps), m);
}

/* ---- where the weights come from ---- */

static attn_tensor weight(attn_ctx *ctx, const attn_model *model, const char *format, size_t layer)
{
    char name[64];
    attn_tensor w = none;
    snprintf(name, sizeof name, format, (int)layer);
    attn_model_tensor(ctx, &w, model, name);
    return w;
}

/* The file keeps queries, keys and values side by side: W_QKV [C, 3C], b_QKV [3C]. */
static gpt load(attn_ctx *ctx, const attn_model *model)
{
    gpt m = {0};
    m.c = *attn_model_config(model);
    m.c.n_layer = m.c.n_layer < MAX_LAYERS ? m.c.n_layer : MAX_LAYERS;
    m.w_e = weight(ctx, model, "embed.W_E", 0);
    m.w_pos = weight(ctx, model, "pos_embed.W_pos", 0);
    m.ln_w = weight(ctx, model, "ln_final.w", 0);
    m.ln_b = weight(ctx, model, "ln_final.b", 0);
    m.w_u = m.c.tied ? attn_transpose(m.w_e, 0, 1) : weight(ctx, model, "unembed.W_U", 0);
    for (size_t i = 0; i < m.c.n_layer; i++) {
        const attn_tensor w_qkv = weight(ctx, model, "blocks.%d.attn.W_QKV", i);
        const attn_tensor b_qkv = weight(ctx, model, "blocks.%d.attn.b_QKV", i);
        const size_t n = m.c.d_model;
        attn_block_weights *b = &m.block[i];
        b->n_head = m.c.n_head;
        b->ln1_w = weight(ctx, model, "blocks.%d.ln1.w", i);
        b->ln1_b = weight(ctx, model, "blocks.%d.ln1.b", i);
        b->w_q = attn_slice(w_qkv, 1, 0, n);
        b->w_k = attn_slice(w_qkv, 1, n, n);
        b->w_v = attn_slice(w_qkv, 1, 2 * n, n);
        b->b_q = attn_slice(b_qkv, 0, 0, n);
        b->b_k = attn_slice(b_qkv, 0, n, n);
        b->b_v = attn_slice(b_qkv, 0, 2 * n, n);
        b->w_o = attn_reshape(weight(ctx, model, "blocks.%d.attn.W_O", i), attn_shape2(n, n));
        b->b_o = weight(ctx, model, "blocks.%d.attn.b_O", i);
        b->ln2_w = weight(ctx, model, "blocks.%d.ln2.w", i);
        b->ln2_b = weight(ctx, model, "blocks.%d.ln2.b", i);
        b->w_in = weight(ctx, model, "blocks.%d.mlp.W_in", i);
        b->b_in = weight(ctx, model, "blocks.%d.mlp.b_in", i);
        b->w_out = weight(ctx, model, "blocks.%d.mlp.W_out", i);
        b->b_out = weight(ctx, model, "blocks.%d.mlp.b_out", i);
    }
    return m;
}

#endif
