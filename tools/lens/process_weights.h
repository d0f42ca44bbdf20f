/* A model whose weights are rewritten without changing its log-probabilities, but for rounding:
 * TransformerLens's fold_ln, center_writing_weights, center_unembed and fold_value_biases, which its
 * from_pretrained does by default and in this order. (refactor.h has refactor_factored_attn_matrices.) On
 * attn.h's public API alone.
 *
 *     lens_process_weights(&ctx, &made, model, LENS_PROCESS_DEFAULT);
 *
 * C = d_model, V = n_vocab. */
#ifndef LENS_PROCESS_WEIGHTS_H
#define LENS_PROCESS_WEIGHTS_H

#include "../write/writer.h"
#include "result.h"

typedef enum lens_process_flags {
    /* Folds the gain and bias of every LayerNorm into the weights that read its output: w becomes 1
     * and b 0, and the logits get a bias b_U. These weights are then centred over their inputs,
     * whose mean is zero. */
    LENS_PROCESS_FOLD_LN = 1,
    /* The weights that write to the residual stream no longer write a mean over C, which no
     * LayerNorm would see: W_E, W_pos, W_O, b_O, W_out, b_out. */
    LENS_PROCESS_CENTER_WRITING_WEIGHTS = 2,
    /* W_U and b_U without their means over V: shifts all logits of a position by the same number. */
    LENS_PROCESS_CENTER_UNEMBED = 4,
    /* Moves b_V into b_O: as a row of a pattern sums to 1, b_V always adds b_V · W_O. */
    LENS_PROCESS_FOLD_VALUE_BIASES = 8,
    LENS_PROCESS_DEFAULT = 15 /* all of these */
} lens_process_flags;

/* ---- one matrix ---- */

/* layernorm(x) · W + b with the gain and bias of the LayerNorm in W [K, N] and b [N]. The inputs of W
 * then have mean 0, so the mean of each of its columns does nothing. */
LENS_FN attn_status lens_fold_ln(attn_ctx *ctx, attn_tensor w, attn_tensor b, attn_tensor ln_w,
                                 attn_tensor ln_b)
{
    const size_t n_in = w.shape[0], n_out = w.shape[1];
    double *const biases = (double *)attn_alloc(ctx, 2 * n_out, sizeof(double), "sums of columns");
    int stopped = 0; /* as rows of W_U are long, this looks at each */
    if (!biases)
        return ATTN_E_MEMORY;
    double *means = biases + n_out;
    for (size_t n = 0; n < n_out; n++)
        biases[n] = (double)((float *)b.data)[n];
    for (size_t k = 0; k < n_in && !(stopped = lens_is_stopped(ctx)); k++)
        for (size_t n = 0; n < n_out; n++) {
            const double weight = (double)((float *)w.data)[k * n_out + n];
            biases[n] = fma(weight, (double)((float *)ln_b.data)[k], biases[n]);
            means[n] = fma(weight, (double)((float *)ln_w.data)[k], means[n]);
        }
    for (size_t n = 0; n < n_out; n++) {
        means[n] /= (double)n_in;
        ((float *)b.data)[n] = (float)biases[n];
    }
    for (size_t k = 0; k < n_in && !stopped && !(stopped = lens_is_stopped(ctx)); k++)
        for (size_t n = 0; n < n_out; n++) {
            float *const weight = (float *)w.data + k * n_out + n;
            *weight = (float)fma((double)*weight, (double)((float *)ln_w.data)[k], -means[n]);
        }
    attn_free(biases);
    return stopped ? ATTN_STOPPED : ATTN_OK;
}

/* A LayerNorm without gain and bias. */
LENS_FN void lens_clear_ln(attn_tensor ln_w, attn_tensor ln_b)
{
    for (size_t k = 0; k < ln_w.shape[0]; k++) {
        ((float *)ln_w.data)[k] = 1;
        ((float *)ln_b.data)[k] = 0;
    }
}

/* Takes the mean of each row [.., n] from it. */
LENS_FN attn_status lens_center_rows(attn_ctx *ctx, attn_tensor x)
{
    const size_t n = x.shape[x.ndim - 1], rows = attn_count(x) / n;
    for (size_t i = 0; i < rows; i++) {
        float *const row = (float *)x.data + i * n;
        double mean = 0;
        if (lens_is_stopped(ctx))
            return ATTN_STOPPED;
        for (size_t j = 0; j < n; j++)
            mean += (double)row[j];
        mean /= (double)n;
        for (size_t j = 0; j < n; j++)
            row[j] = (float)((double)row[j] - mean);
    }
    return ATTN_OK;
}

/* The same for a matrix and for its bias. */
LENS_FN attn_status lens_center_both(attn_ctx *ctx, attn_tensor w, attn_tensor b)
{
    const attn_status status = lens_center_rows(ctx, w);
    return status == ATTN_OK ? lens_center_rows(ctx, b) : status;
}

/* b_O + b_V · W_O, for b_QKV [3C], W_O [H, d, C] and b_O [C]; b_V becomes 0. */
LENS_FN void lens_fold_values(attn_tensor b_qkv, attn_tensor w_o, attn_tensor b_o)
{
    const size_t width = b_o.shape[0];
    float *const b_v = (float *)b_qkv.data + 2 * width;
    for (size_t n = 0; n < width; n++) {
        double bias = (double)((float *)b_o.data)[n];
        for (size_t k = 0; k < width; k++)
            bias = fma((double)b_v[k], (double)((float *)w_o.data)[k * width + n], bias);
        ((float *)b_o.data)[n] = (float)bias;
    }
    memset(b_v, 0, width * sizeof *b_v);
}

/* ---- a group of tensors: those of a block, or those around the blocks ---- */

enum { LENS_MOST_IN_GROUP = 12 };
typedef struct lens_group {
    const char *const *names;
    size_t n;
    size_t layer; /* or ATTN_NO_LAYER */
    attn_tensor at[LENS_MOST_IN_GROUP];
} lens_group;

LENS_FN const char *lens_group_name(char name[64], const lens_group *g, size_t i)
{
    if (g->layer == ATTN_NO_LAYER)
        return g->names[i];
    snprintf(name, 64, "blocks.%zu.%s", g->layer, g->names[i]);
    return name;
}

LENS_FN attn_status lens_group_read(attn_ctx *ctx, lens_group *g, const attn_model *model)
{
    attn_status status = ATTN_OK;
    char name[64];
    for (size_t i = 0; i < g->n && status == ATTN_OK; i++)
        status = lens_is_stopped(ctx)
                     ? ATTN_STOPPED
                     : attn_model_tensor(ctx, &g->at[i], model, lens_group_name(name, g, i));
    return status;
}

/* Writes the tensors after a `status` of ATTN_OK, and frees them in any case. */
LENS_FN attn_status lens_group_write(attn_ctx *ctx, lens_group *g, lens_writer *w,
                                     attn_status status)
{
    char name[64];
    for (size_t i = 0; i < g->n; i++) {
        attn_tensor x = g->at[i];
        if (x.ndim == 3) /* W_O, by head */
            x = attn_reshape(x, attn_shape2(x.shape[0] * x.shape[1], x.shape[2]));
        if (status == ATTN_OK)
            status = lens_writer_add(ctx, w, lens_group_name(name, g, i), ATTN_F32, x);
        attn_tensor_free(ctx, &g->at[i]);
    }
    return status;
}

LENS_FN attn_status lens_process_outside(attn_ctx *ctx, lens_writer *w, const attn_model *from,
                                         unsigned flags, int has_b_u)
{
    static const char *const names[] = {"embed.W_E",  "pos_embed.W_pos", "ln_final.w",
                                        "ln_final.b", "unembed.W_U",     "unembed.b_U"};
    enum { W_E, W_POS, LN_W, LN_B, W_U, B_U };
    lens_group g = ATTN_ZERO;
    attn_status status;
    g.names = names;
    g.n = has_b_u ? 6 : 5;
    g.layer = ATTN_NO_LAYER;
    status = lens_group_read(ctx, &g, from);
    if (status == ATTN_OK && (flags & LENS_PROCESS_FOLD_LN)) {
        status = lens_fold_ln(ctx, g.at[W_U], g.at[B_U], g.at[LN_W], g.at[LN_B]);
        lens_clear_ln(g.at[LN_W], g.at[LN_B]);
    }
    if (status == ATTN_OK && (flags & LENS_PROCESS_CENTER_WRITING_WEIGHTS))
        status = lens_center_both(ctx, g.at[W_E], g.at[W_POS]);
    if (status == ATTN_OK && (flags & LENS_PROCESS_CENTER_UNEMBED))
        status = has_b_u ? lens_center_both(ctx, g.at[W_U], g.at[B_U])
                         : lens_center_rows(ctx, g.at[W_U]);
    return lens_group_write(ctx, &g, w, status);
}

LENS_FN attn_status lens_process_block(attn_ctx *ctx, lens_writer *w, const attn_model *from,
                                       unsigned flags, size_t layer)
{
    static const char *const names[] = {"ln1.w",    "ln1.b",    "attn.W_QKV", "attn.b_QKV",
                                        "attn.W_O", "attn.b_O", "ln2.w",      "ln2.b",
                                        "mlp.W_in", "mlp.b_in", "mlp.W_out",  "mlp.b_out"};
    enum { LN1_W, LN1_B, W_QKV, B_QKV, W_O, B_O, LN2_W, LN2_B, W_IN, B_IN, W_OUT, B_OUT };
    lens_group g = ATTN_ZERO;
    attn_status status;
    g.names = names;
    g.n = 12;
    g.layer = layer;
    status = lens_group_read(ctx, &g, from);
    if (status == ATTN_OK && (flags & LENS_PROCESS_FOLD_LN)) {
        status = lens_fold_ln(ctx, g.at[W_QKV], g.at[B_QKV], g.at[LN1_W], g.at[LN1_B]);
        if (status == ATTN_OK)
            status = lens_fold_ln(ctx, g.at[W_IN], g.at[B_IN], g.at[LN2_W], g.at[LN2_B]);
        lens_clear_ln(g.at[LN1_W], g.at[LN1_B]);
        lens_clear_ln(g.at[LN2_W], g.at[LN2_B]);
    }
    if (status == ATTN_OK && (flags & LENS_PROCESS_CENTER_WRITING_WEIGHTS)) {
        status = lens_center_both(ctx, g.at[W_O], g.at[B_O]);
        if (status == ATTN_OK)
            status = lens_center_both(ctx, g.at[W_OUT], g.at[B_OUT]);
    }
    if (status == ATTN_OK && (flags & LENS_PROCESS_FOLD_VALUE_BIASES))
        lens_fold_values(g.at[B_QKV], g.at[W_O], g.at[B_O]);
    return lens_group_write(ctx, &g, w, status);
}

/* ---- the model ---- */

/* "fold_ln center_unembed": what the flags ask for. */
LENS_FN const char *lens_process_names(char names[128], unsigned flags)
{
    static const char *const all[] = {"fold_ln", "center_writing_weights", "center_unembed",
                                      "fold_value_biases"};
    size_t n = 0;
    for (size_t i = 0; i < 4; i++)
        if (flags >> i & 1)
            n += (size_t)snprintf(names + n, 128 - n, "%s%s", n > 0 ? " " : "", all[i]);
    return names;
}

/* As lens_process_weights. progress_fn (may be NULL) gets the share of the work that is done. If it asks to stop,
 * the status is ATTN_STOPPED and *model is NULL. */
LENS_FN attn_status lens_process_weights_told(attn_ctx *ctx, attn_model **model,
                                              const attn_model *from, unsigned flags,
                                              attn_progress_fn progress_fn, void *user)
{
    static const char op[] = "lens_process_weights";
    lens_writer *w = NULL;
    char names[128];
    size_t size;
    if (!model)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no place for the model given (NULL)", op);
    *model = NULL;
    if (lens_need_layer(ctx, op, from, 0) != ATTN_OK)
        return lens_failure(ctx);
    if (flags == 0 || flags > LENS_PROCESS_DEFAULT)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "%s: flags are %u; expected a sum "
                         "of LENS_PROCESS_FOLD_LN, LENS_PROCESS_CENTER_WRITING_WEIGHTS, "
                         "LENS_PROCESS_CENTER_UNEMBED, LENS_PROCESS_FOLD_VALUE_BIASES",
                         op, flags);
    attn_config config = *attn_model_config(from);
    config.tied = 0;
    config.has_b_U |= (flags & LENS_PROCESS_FOLD_LN) != 0;
    const void *section = model_tokenizer_section(&size, from);
    attn_status status = lens_writer_new(ctx, &w, NULL, &config, section, size);
    if (status == ATTN_OK)
        status = lens_writer_made_from(ctx, w, from, lens_process_names(names, flags));
    if (status == ATTN_OK)
        status = lens_process_outside(ctx, w, from, flags, config.has_b_U);
    for (size_t i = 0; i < config.n_layer && status == ATTN_OK; i++) {
        status = lens_process_block(ctx, w, from, flags, i);
        if (status == ATTN_OK)
            status =
                lens_progress(progress_fn, user, (double)(i + 1) / (double)(config.n_layer + 1));
    }
    if (status == ATTN_OK)
        status = lens_writer_open(ctx, model, w);
    lens_writer_free(w);
    if (status == ATTN_OK && lens_progress(progress_fn, user, 1) != ATTN_OK) {
        attn_model_close(*model);
        *model = NULL;
        status = ATTN_STOPPED;
    }
    return status;
}

/* A new model in memory, f32 and untied, which lives without the old one; attn_model_close frees it.
 * Quantized weights become f32, and a product with f32 weights does not round its inputs to 8 bits.
 * `flags` is the sum of one or more of the above. *model is NULL on failure. */
LENS_FN attn_status lens_process_weights(attn_ctx *ctx, attn_model **model, const attn_model *from,
                                         unsigned flags)
{
    return lens_process_weights_told(ctx, model, from, flags, NULL, NULL);
}

#endif
