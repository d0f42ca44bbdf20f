/* Attribution patching (Nanda 2023): estimates what patching one activation of a clean text into a
 * corrupted one would do. Two forward passes and one backward pass give all estimates. Uses attn.h's public API
 * only.
 *
 * The estimate is linear: (clean activation - corrupted activation) · d metric / d activation, with
 * the gradient of the corrupted text. patch.h gives the true numbers with one pass for each.
 * backward.edits are in force in all runs, like the edits of patch.h, and backward.rules in the gradient.
 *
 *     lens_pair pair = ATTN_ZERO;
 *     attn_tensor change = ATTN_ZERO;
 *     pair.clean = clean, pair.corrupted = corrupted, pair.n_tokens = 15;
 *     pair.metric.kind = LENS_METRIC_LOGIT_DIFF;
 *     pair.metric.token = mary, pair.metric.against = john;
 *     if (lens_attribution_patch(&ctx, &change, &backward, &pair, "hook_resid_pre") == ATTN_OK)
 *         printf("layer 3, position 7: %+.3f\n", attn_get2(change, 3, 7));
 */
#ifndef LENS_PAIRS_H
#define LENS_PAIRS_H

#include "gradients.h"

/* The description of one text of a pair for lens_gradients. */
LENS_FN lens_gradients_desc lens_text_of(const lens_pair *pair, const attn_token *tokens,
                                         const char *const *names, size_t n_names)
{
    lens_gradients_desc d = ATTN_ZERO;
    d.tokens = tokens;
    d.n_tokens = pair->n_tokens;
    d.names = names;
    d.n_names = n_names;
    d.metric = pair->metric;
    return d;
}

/* Runs a text. *record holds the activations that desc names, and is NULL after a failure. *value (may be
 * NULL) becomes the metric. */
LENS_FN attn_status lens_record_metric(attn_ctx *ctx, attn_record **record, float *value,
                                       lens_backward *b, const lens_gradients_desc *desc)
{
    attn_session_desc size = ATTN_ZERO;
    attn_record_desc names = ATTN_ZERO;
    attn_session *session = NULL;
    attn_tensor logits = ATTN_ZERO;
    float metric;
    *record = NULL;
    size.n_ctx = desc->n_tokens;
    size.workspace = b->workspace;
    names.names = desc->names;
    names.n_names = desc->n_names;
    names.n_positions = desc->n_tokens;
    int failed = attn_session_new(ctx, &session, b->model, &size) ||
                 lens_hook_edits(ctx, session, b->edits, b->n_edits) ||
                 attn_record_new(ctx, record, session, &names) ||
                 lens_feed_metric(ctx, value ? &logits : NULL, session, desc) ||
                 (value && lens_metric_back(ctx, &metric, logits, &desc->metric, desc->tokens));
    attn_session_free(session);
    attn_tensor_free(ctx, &logits);
    if (failed) {
        attn_record_free(*record);
        *record = NULL;
        return lens_failure(ctx);
    }
    if (value)
        *value = metric;
    return ATTN_OK;
}

/* sums [n]: (clean - corrupted) * gradient, summed over all dimensions but the heads (head_dim), or but the
 * positions if head_dim is negative. */
LENS_FN attn_status lens_sum_products(attn_ctx *ctx, attn_tensor sums, attn_tensor clean,
                                      attn_tensor corrupted, attn_tensor gradient, int head_dim)
{
    attn_tensor product = ATTN_ZERO, dense = ATTN_ZERO, sum = ATTN_ZERO;
    int failed =
        attn_sub(ctx, &product, clean, corrupted) || attn_mul(ctx, &product, product, gradient);
    if (!failed)
        failed = attn_copy(ctx, &dense, head_dim == 1 ? attn_transpose(product, 0, 1) : product) !=
                 ATTN_OK;
    if (!failed)
        failed = attn_sum(ctx, &sum,
                          attn_reshape(dense, attn_shape2(sums.shape[0],
                                                          attn_count(dense) / sums.shape[0]))) ||
                 attn_copy(ctx, &sums, attn_reshape(sum, attn_shape1(sums.shape[0])));
    attn_tensor_free(ctx, &product);
    attn_tensor_free(ctx, &dense);
    attn_tensor_free(ctx, &sum);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* out [L, T] or [L, H], from three records that hold blocks.i.`name` of every layer. */
LENS_FN attn_status lens_estimate(attn_ctx *ctx, attn_tensor *out, const attn_record *clean,
                                  const attn_record *corrupted, const attn_record *gradients,
                                  const char *name)
{
    const size_t n_layer = attn_record_n_activations(clean);
    attn_tensor x, y, g;
    lens_result result;
    attn_status status = ATTN_OK;
    lens_find(ctx, &x, clean, 0, name);
    int head_dim = strncmp(name, "attn.", 5) != 0 ? -1 : strcmp(name, "attn.hook_pattern") ? 1 : 0;
    size_t n_rows = x.shape[head_dim < 0 ? 0 : head_dim];
    if (lens_begin(ctx, "lens_attribution_patch", out, attn_shape2(n_layer, n_rows), &result))
        return lens_failure(ctx);
    for (size_t i = 0; i < n_layer && status == ATTN_OK; i++) {
        lens_find(ctx, &x, clean, i, name);
        lens_find(ctx, &y, corrupted, i, name);
        lens_find(ctx, &g, gradients, i, name);
        status = lens_sum_products(ctx, attn_select(result.numbers, 0, i), x, y, g, head_dim);
    }
    return lens_finish(ctx, &result, status);
}

/* Estimated changes of the corrupted text's metric, for blocks.i.`name` of each layer. If the name begins
 * with "attn.", out [L, H]: one head at all positions. Else out [L, T]: one position. ATTN_E_ARGUMENT for
 * scores, which have no estimate because they are -inf at later keys: ask for patterns. */
LENS_FN attn_status lens_attribution_patch(attn_ctx *ctx, attn_tensor *out, lens_backward *b,
                                           const lens_pair *pair, const char *name)
{
    static const char op[] = "lens_attribution_patch";
    attn_record *clean = NULL, *gradients = NULL;
    lens_kept corrupted = ATTN_ZERO;
    char pattern[64];
    const char *const names[] = {pattern};
    if (!b || !b->model || !name || strlen(name) > 40 || strchr(name, '*'))
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no %s given", op,
                         name ? "lens_backward that lens_backward_new made, or no plain name"
                              : "name of an activation");
    if (strcmp(name, "attn.hook_attn_scores") == 0)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "%s: scores are -inf at later keys; ask for attn.hook_pattern", op);
    if (lens_need_edits(ctx, op, b->edits, b->n_edits) || lens_need_pair(ctx, op, b->model, pair))
        return lens_failure(ctx);
    snprintf(pattern, sizeof pattern, "blocks.*.%s", name);
    lens_gradients_desc of_clean = lens_text_of(pair, pair->clean, names, 1);
    lens_gradients_desc of_corrupted = lens_text_of(pair, pair->corrupted, names, 1);
    corrupted.names = names;
    corrupted.n_names = 1;
    int failed = lens_record_metric(ctx, &clean, NULL, b, &of_clean) ||
                 lens_gradients_beside(ctx, &gradients, &corrupted, NULL, b, &of_corrupted) ||
                 lens_estimate(ctx, out, clean, corrupted.record, gradients, name);
    attn_record_free(clean);
    attn_record_free(corrupted.record);
    attn_record_free(gradients);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

#endif
