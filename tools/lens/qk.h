/* An attention score as a sum over pairs: each part of the stream at the query with each part of the stream
 * at the key (Elhage et al. 2021; Kamath et al. 2025 call it QK attribution). Uses attn.h's public API
 * only.
 *
 * The stream that a head reads is a sum of parts: the embeddings, and what each earlier head and MLP
 * wrote. If LayerNorm's scale counts as a constant, queries and keys are sums over these parts. So the
 * score of a query and a key is a sum over pairs of parts:
 *
 *   score = sum over i and j of q_i · k_j * s
 *   q_i   = ((x_i - mean(x_i)) / scale * w) · W_Q for the parts x_i of the query's position,
 *   k_j   the same with W_K for the parts of the key's position; one more part is b_Q + b · W_Q, or
 *         b_K + b · W_K
 *
 * where w, b and scale belong to the block's ln1, and s is the factor of the scores.
 *
 *     lens_qk which = ATTN_ZERO;
 *     attn_tensor terms = ATTN_ZERO;
 *     which.tokens = tokens, which.n_tokens = n;
 *     which.layer = 5, which.head = 1, which.query = n - 1, which.key = 7;
 *     if (lens_qk_terms(&ctx, &terms, model, &which) == ATTN_OK)
 *         printf("%s at the query with %s at the key: %+.2f\n", lens_qk_label(model, 5, 1).text,
 *                lens_qk_label(model, 5, 12).text, attn_get2(terms, 1, 12));
 */
#ifndef LENS_QK_H
#define LENS_QK_H

#include "result.h"
#include <math.h>

/* Which score of which text. */
typedef struct lens_qk {
    const attn_token *tokens; /* [n_tokens] */
    size_t n_tokens;
    size_t layer, head;
    size_t query, key; /* positions; key <= query */
} lens_qk;

/* Number of parts of the stream that a layer reads: the token's embedding, the position's embedding, of each
 * earlier layer its heads, b_O and its MLP; and last the biases of queries or keys. */
LENS_FN size_t lens_qk_count(const attn_model *model, size_t layer)
{
    return 2 + layer * (attn_model_config(model)->n_head + 2) + 1;
}

/* "embed", "pos_embed", "L3H5", "3_b_O", "3_mlp_out", "bias"; empty if out of range. */
LENS_FN lens_label lens_qk_label(const attn_model *model, size_t layer, size_t index)
{
    const size_t n_head = attn_model_config(model)->n_head, n = lens_qk_count(model, layer);
    const size_t of = index < 2 ? 0 : (index - 2) / (n_head + 2);
    const size_t part = index < 2 ? 0 : (index - 2) % (n_head + 2);
    lens_label label = ATTN_ZERO;
    if (index < 2)
        snprintf(label.text, sizeof label.text, index ? "pos_embed" : "embed");
    else if (index + 1 == n)
        snprintf(label.text, sizeof label.text, "bias");
    else if (index < n && part < n_head)
        snprintf(label.text, sizeof label.text, "L%lluH%llu", LENS_LLU(of), LENS_LLU(part));
    else if (index < n)
        snprintf(label.text, sizeof label.text, "%llu_%s", LENS_LLU(of),
                 part == n_head ? "b_O" : "mlp_out");
    return label;
}

/* Copies a row of a recorded activation; of one head if the activation has heads. */
LENS_FN attn_status lens_qk_row(attn_ctx *ctx, attn_tensor to, const attn_record *record,
                                const char *name, size_t position, size_t head)
{
    attn_tensor value = ATTN_ZERO;
    if (attn_record_get(ctx, &value, record, name) != ATTN_OK)
        return lens_failure(ctx);
    value = attn_select(value, 0, position);
    return attn_copy(ctx, &to, value.ndim == 2 ? attn_select(value, 0, head) : value);
}

/* parts [n - 1, C]: the parts of the stream at one position. */
LENS_FN attn_status lens_qk_parts(attn_ctx *ctx, attn_tensor parts, const attn_record *record,
                                  const attn_model *model, size_t layer, size_t position)
{
    const size_t n_head = attn_model_config(model)->n_head;
    char name[64];
    size_t at = 2;
    attn_status status =
        lens_qk_row(ctx, attn_select(parts, 0, 0), record, "hook_embed", position, 0);
    if (status == ATTN_OK)
        status = lens_qk_row(ctx, attn_select(parts, 0, 1), record, "hook_pos_embed", position, 0);
    for (size_t i = 0; i < layer && status == ATTN_OK; i++) {
        attn_tensor b_o = ATTN_ZERO;
        snprintf(name, sizeof name, "blocks.%llu.attn.hook_result", LENS_LLU(i));
        for (size_t j = 0; j < n_head && status == ATTN_OK; j++)
            status = lens_qk_row(ctx, attn_select(parts, 0, at++), record, name, position, j);
        attn_tensor to = attn_select(parts, 0, at++);
        if (status == ATTN_OK)
            status = lens_layer_tensor(ctx, &b_o, model, i, "attn.b_O");
        if (status == ATTN_OK)
            status = attn_copy(ctx, &to, b_o);
        attn_tensor_free(ctx, &b_o);
        snprintf(name, sizeof name, "blocks.%llu.hook_mlp_out", LENS_LLU(i));
        if (status == ATTN_OK)
            status = lens_qk_row(ctx, attn_select(parts, 0, at++), record, name, position, 0);
    }
    return status;
}

/* vectors [n, d]: what each part adds to the query (side 'Q') or to the key (side 'K') of the head. */
LENS_FN attn_status lens_qk_vectors(attn_ctx *ctx, attn_tensor vectors, const attn_record *record,
                                    const attn_model *model, const lens_qk *which, char side)
{
    const size_t n = vectors.shape[0], width = attn_model_config(model)->d_model;
    const size_t position = side == 'Q' ? which->query : which->key;
    attn_tensor w = ATTN_ZERO, b = ATTN_ZERO, gain = ATTN_ZERO, shift = ATTN_ZERO,
                parts = ATTN_ZERO;
    attn_tensor mean = ATTN_ZERO, scale = ATTN_ZERO, none = ATTN_ZERO;
    attn_tensor rows = attn_slice(vectors, 0, 0, n - 1);
    char names[2][16], scale_name[64];
    snprintf(names[0], sizeof names[0], "attn.W_%c", side);
    snprintf(names[1], sizeof names[1], "attn.b_%c", side);
    snprintf(scale_name, sizeof scale_name, "blocks.%llu.ln1.hook_scale", LENS_LLU(which->layer));
    int failed = lens_layer_tensor(ctx, &w, model, which->layer, names[0]) ||
                 lens_layer_tensor(ctx, &b, model, which->layer, names[1]) ||
                 lens_layer_tensor(ctx, &gain, model, which->layer, "ln1.w") ||
                 lens_layer_tensor(ctx, &shift, model, which->layer, "ln1.b") ||
                 attn_record_get(ctx, &scale, record, scale_name) ||
                 attn_zeros(ctx, &parts, ATTN_F32, attn_shape2(n - 1, width)) ||
                 lens_qk_parts(ctx, parts, record, model, which->layer, position) ||
                 attn_mean(ctx, &mean, parts) || attn_sub(ctx, &parts, parts, mean) ||
                 attn_div(ctx, &parts, parts, attn_slice(scale, 0, position, 1)) ||
                 attn_mul(ctx, &parts, parts, gain) ||
                 attn_linear(ctx, &rows, parts, attn_select(w, 0, which->head), none);
    attn_tensor last = attn_slice(vectors, 0, n - 1, 1);
    failed = failed || attn_linear(ctx, &last, attn_reshape(shift, attn_shape2(1, width)),
                                   attn_select(w, 0, which->head), attn_select(b, 0, which->head));
    attn_tensor_free(ctx, &w);
    attn_tensor_free(ctx, &b);
    attn_tensor_free(ctx, &gain);
    attn_tensor_free(ctx, &shift);
    attn_tensor_free(ctx, &parts);
    attn_tensor_free(ctx, &mean);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

LENS_FN attn_status lens_qk_check(attn_ctx *ctx, const attn_model *model, const lens_qk *which)
{
    static const char op[] = "lens_qk_terms";
    if (!which)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no score given (NULL)", op);
    if (lens_need_layer(ctx, op, model, which->layer) ||
        lens_need_tokens(ctx, op, model, which->tokens, which->n_tokens))
        return lens_failure(ctx);
    if (which->head >= attn_model_config(model)->n_head || which->query >= which->n_tokens ||
        which->key > which->query)
        return attn_fail(
            ctx, ATTN_E_ARGUMENT,
            "%s: head %llu, query %llu, key %llu; expected heads 0 to %zu, a query below "
            "%llu, and a key that it sees",
            op, LENS_LLU(which->head), LENS_LLU(which->query), LENS_LLU(which->key),
            attn_model_config(model)->n_head - 1, LENS_LLU(which->n_tokens));
    return ATTN_OK;
}

/* out [n, n], n = lens_qk_count: entry [i, j] is what part i of the query's stream and part j of the key's
 * stream add to the score (attn.hook_attn_scores). All entries sum to the score. */
LENS_FN attn_status lens_qk_terms(attn_ctx *ctx, attn_tensor *out, const attn_model *model,
                                  const lens_qk *which)
{
    static const char *const names[] = {"hook_embed", "hook_pos_embed", "*.attn.hook_result",
                                        "*.hook_mlp_out", "*.ln1.hook_scale"};
    attn_session *session = NULL;
    attn_record *record = NULL;
    attn_record_desc what = ATTN_ZERO;
    attn_session_desc size = ATTN_ZERO;
    attn_tensor q = ATTN_ZERO, k = ATTN_ZERO;
    lens_result result;
    if (lens_qk_check(ctx, model, which) != ATTN_OK)
        return lens_failure(ctx);
    const attn_config *c = attn_model_config(model);
    size_t n = lens_qk_count(model, which->layer);
    if (lens_begin(ctx, "lens_qk_terms", out, attn_shape2(n, n), &result) != ATTN_OK)
        return lens_failure(ctx);
    what.names = names;
    what.n_names = sizeof names / sizeof names[0];
    size.n_ctx = what.n_positions = which->n_tokens;
    int failed =
        attn_session_new(ctx, &session, model, &size) ||
        attn_record_new(ctx, &record, session, &what) ||
        attn_feed(ctx, session, which->tokens, which->n_tokens) ||
        attn_zeros(ctx, &q, ATTN_F32, attn_shape2(n, c->d_head)) ||
        attn_zeros(ctx, &k, ATTN_F32, attn_shape2(n, c->d_head)) ||
        lens_qk_vectors(ctx, q, record, model, which, 'Q') ||
        lens_qk_vectors(ctx, k, record, model, which, 'K') ||
        attn_matmul(ctx, &result.numbers, q, attn_transpose(k, 0, 1)) ||
        attn_scale(ctx, &result.numbers, result.numbers, lens_score_scale(c, which->layer));
    attn_session_free(session);
    attn_record_free(record);
    attn_tensor_free(ctx, &q);
    attn_tensor_free(ctx, &k);
    return lens_finish(ctx, &result, failed ? lens_failure(ctx) : ATTN_OK);
}

#endif
