/* Where attention heads look: the entropy of their patterns, and whether they are of a kind that
 * TransformerLens's head_detector knows. Uses attn.h's public API only.
 *
 *     attn_tensor entropy = ATTN_ZERO, scores = ATTN_ZERO;
 *     if (lens_detect_heads(&ctx, &entropy, &scores, model, tokens, n_tokens) == ATTN_OK)
 *         printf("L5H1 is an induction head by %.2f of its attention\n",
 *                attn_get3(scores, LENS_HEAD_INDUCTION, 5, 1));
 *
 * L layers, H heads, T tokens. Results are f32 tensors and follow attn.h's rule for outputs; sums are in
 * double. Repeated text shows duplicate-token and induction heads best: for example 25 random tokens,
 * twice. */
#ifndef LENS_HEADS_H
#define LENS_HEADS_H

#include "result.h"
#include "logarithm.h"
#include <float.h>
#include <math.h>

/* ---- from a pattern ---- */

/* -sum of p * log(p) over one row of a pattern, n keys. Weights below FLT_MIN are skipped: each would add
 * less than 1e-36. */
LENS_FN float lens_row_entropy(const float *p, ptrdiff_t step, size_t n)
{
    double sum = 0;
    for (size_t j = 0; j < n; j++, p += step)
        if (!(*p < FLT_MIN))
            sum -= lens_rounded_product((double)*p, lens_natural_log((double)*p));
    return (float)sum;
}

/* out [.., Tq] = -sum over keys of p * log(p), in nats, for patterns [.., Tq, Tk] (Shannon 1948). 0: all on
 * one key; log(n): even over n keys. */
LENS_FN attn_status lens_pattern_entropy(attn_ctx *ctx, attn_tensor *out, attn_tensor pattern)
{
    static const char op[] = "lens_pattern_entropy";
    attn_tensor dense = ATTN_ZERO;
    attn_shape shape = ATTN_ZERO;
    lens_result result;
    if (lens_need(ctx, op, "pattern", pattern) != ATTN_OK)
        return lens_failure(ctx);
    if (pattern.ndim < 2)
        return attn_fail(ctx, ATTN_E_SHAPE, "%s: pattern has shape %s; expected [.., Tq, Tk]", op,
                         lens_show(pattern).text);
    shape.ndim = pattern.ndim - 1;
    memcpy(shape.dim, pattern.shape, sizeof *shape.dim * (size_t)shape.ndim);
    if (lens_begin(ctx, op, out, shape, &result) != ATTN_OK)
        return lens_failure(ctx);
    attn_status status = attn_scale(ctx, &dense, pattern, 1); /* f32, dense */
    size_t n = pattern.shape[pattern.ndim - 1];
    for (size_t i = 0; status == ATTN_OK && i < attn_count(result.numbers); i++)
        ((float *)result.numbers.data)[i] =
            lens_row_entropy((const float *)dense.data + i * n, 1, n);
    attn_tensor_free(ctx, &dense);
    return lens_finish(ctx, &result, status);
}

/* Kinds of heads, by the keys that query i looks at. */
typedef enum lens_head_kind {
    LENS_HEAD_PREVIOUS = 0, /* i - 1 */
    LENS_HEAD_DUPLICATE,    /* earlier positions of the same token */
    LENS_HEAD_INDUCTION,    /* the positions after those: Olsson et al. 2022 */
    LENS_N_HEAD_KINDS
} lens_head_kind;

/* Does a head of this kind look from position i at position j <= i? */
LENS_FN int lens_looks(lens_head_kind kind, const attn_token *tokens, size_t i, size_t j)
{
    switch (kind) {
    case LENS_HEAD_PREVIOUS:
        return j + 1 == i;
    case LENS_HEAD_DUPLICATE:
        return j < i && tokens[j] == tokens[i];
    default:
        return j > 0 && tokens[j - 1] == tokens[i];
    }
}

/* keys [T, T]: 1 where a head of this kind looks, else 0. */
LENS_FN attn_status lens_head_keys(attn_ctx *ctx, attn_tensor *keys, lens_head_kind kind,
                                   const attn_token *tokens, size_t n_tokens)
{
    lens_result result;
    if (!tokens || n_tokens == 0)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "lens_head_keys: no tokens given");
    if ((unsigned)kind >= LENS_N_HEAD_KINDS)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "lens_head_keys: kind %d is none "
                         "of LENS_HEAD_PREVIOUS, LENS_HEAD_DUPLICATE, LENS_HEAD_INDUCTION",
                         (int)kind);
    if (lens_begin(ctx, "lens_head_keys", keys, attn_shape2(n_tokens, n_tokens), &result))
        return lens_failure(ctx);
    for (size_t i = 0; i < n_tokens; i++)
        for (size_t j = 0; j <= i; j++)
            if (lens_looks(kind, tokens, i, j))
                ((float *)result.numbers.data)[i * n_tokens + j] = 1;
    return lens_finish(ctx, &result, ATTN_OK);
}

/* out [H] = sum(pattern * keys) / sum(pattern), for pattern [H, T, T] and keys [T, T]: the share of a head's
 * attention on the keys that are 1. (head_detector's measure "mul".) */
LENS_FN attn_status lens_head_score(attn_ctx *ctx, attn_tensor *out, attn_tensor pattern,
                                    attn_tensor keys)
{
    static const char op[] = "lens_head_score";
    lens_result result;
    if (lens_need(ctx, op, "pattern", pattern) || lens_need(ctx, op, "keys", keys))
        return lens_failure(ctx);
    if (pattern.ndim != 3 || keys.ndim != 2 || keys.shape[0] != pattern.shape[1] ||
        keys.shape[1] != pattern.shape[2])
        return attn_fail(ctx, ATTN_E_SHAPE,
                         "%s: pattern has shape %s and keys %s; expected [H, T, T] and [T, T]", op,
                         lens_show(pattern).text, lens_show(keys).text);
    if (lens_begin(ctx, op, out, attn_shape1(pattern.shape[0]), &result) != ATTN_OK)
        return lens_failure(ctx);
    for (size_t head = 0; head < pattern.shape[0]; head++) {
        double sum = 0, total = 0;
        for (size_t i = 0; i < pattern.shape[1]; i++)
            for (size_t j = 0; j < pattern.shape[2]; j++) {
                const double p = (double)attn_get3(pattern, head, i, j);
                sum += p * (double)attn_get2(keys, i, j);
                total += p;
            }
        ((float *)result.numbers.data)[head] = (float)(sum / total);
    }
    return lens_finish(ctx, &result, ATTN_OK);
}

/* ---- over a text ---- */

typedef struct lens_head_watch {
    const attn_token *tokens;
    size_t n_tokens, n_head;
    float *entropy; /* [L, H, T] or NULL */
    double
        *sums; /* [L, H, LENS_N_HEAD_KINDS + 1]: attention on the keys of each kind, and in all */
} lens_head_watch;

/* A hook. Of one layer's pattern [H, queries, keys], stores the entropy of each query and adds each head's
 * attention on each kind of key to its sums. */
LENS_FN int lens_watch_pattern(const attn_activation *a, void *user)
{
    const lens_head_watch *w = (const lens_head_watch *)user;
    const attn_tensor *p = &a->value;
    for (size_t head = 0; head < p->shape[0]; head++) {
        const size_t index = (size_t)a->layer * w->n_head + head;
        double *sums = w->sums + index * (LENS_N_HEAD_KINDS + 1);
        for (size_t i = 0; i < p->shape[1]; i++) {
            const float *row = (const float *)p->data + (ptrdiff_t)head * p->stride[0] +
                               (ptrdiff_t)i * p->stride[1];
            const size_t query = a->first + i;
            if (w->entropy)
                w->entropy[index * w->n_tokens + query] =
                    lens_row_entropy(row, p->stride[2], query + 1);
            for (size_t j = 0; j <= query; j++) {
                const double weight = (double)row[(ptrdiff_t)j * p->stride[2]];
                for (int kind = 0; kind < LENS_N_HEAD_KINDS; kind++)
                    if (lens_looks((lens_head_kind)kind, w->tokens, query, j))
                        sums[kind] += weight;
                sums[LENS_N_HEAD_KINDS] += weight;
            }
        }
    }
    return 0;
}

/* Feeds the text to a new session whose patterns are hooked. */
LENS_FN attn_status lens_watch_heads(attn_ctx *ctx, const attn_model *model, lens_head_watch *watch)
{
    attn_session_desc desc = ATTN_ZERO;
    attn_session *session = NULL;
    desc.n_ctx = watch->n_tokens;
    attn_status status = attn_session_new(ctx, &session, model, &desc);
    if (status == ATTN_OK)
        status =
            attn_hook(ctx, NULL, session, "blocks.*.attn.hook_pattern", lens_watch_pattern, watch);
    if (status == ATTN_OK)
        status = attn_feed(ctx, session, watch->tokens, watch->n_tokens);
    attn_session_free(session);
    return status;
}

/* Both statistics of every head over a text: entropy [L, H, T] and scores [LENS_N_HEAD_KINDS, L, H]. Either
 * may be NULL. Memory does not grow with T * T of the patterns, which are read in pieces. No
 * beginning-of-text token is added. TransformerLens adds one by default: put it first to get the same
 * numbers. */
LENS_FN attn_status lens_detect_heads(attn_ctx *ctx, attn_tensor *entropy, attn_tensor *scores,
                                      const attn_model *model, const attn_token *tokens,
                                      size_t n_tokens)
{
    static const char op[] = "lens_detect_heads";
    lens_head_watch watch = ATTN_ZERO;
    lens_result entropies = ATTN_ZERO, result = ATTN_ZERO;
    attn_status status = ATTN_OK;
    if (lens_need_layer(ctx, op, model, 0) || lens_need_tokens(ctx, op, model, tokens, n_tokens))
        return lens_failure(ctx);
    size_t n_layer = attn_model_config(model)->n_layer;
    watch.tokens = tokens;
    watch.n_tokens = n_tokens;
    watch.n_head = attn_model_config(model)->n_head;
    size_t n_heads = n_layer * watch.n_head;
    watch.sums = (double *)attn_alloc(ctx, n_heads * (LENS_N_HEAD_KINDS + 1), sizeof *watch.sums,
                                      "scores of heads");
    if (!watch.sums)
        return lens_failure(ctx);
    if (entropy)
        status =
            lens_begin(ctx, op, entropy, attn_shape3(n_layer, watch.n_head, n_tokens), &entropies);
    if (status == ATTN_OK && scores)
        status = lens_begin(ctx, op, scores, attn_shape3(LENS_N_HEAD_KINDS, n_layer, watch.n_head),
                            &result);
    watch.entropy = (float *)entropies.numbers.data; /* NULL if the caller wants no entropies */
    if (status == ATTN_OK)
        status = lens_watch_heads(ctx, model, &watch);
    for (size_t i = 0; i < n_heads && scores && status == ATTN_OK; i++)
        for (size_t kind = 0; kind < LENS_N_HEAD_KINDS; kind++) {
            const double *of_head = watch.sums + i * (LENS_N_HEAD_KINDS + 1);
            ((float *)result.numbers.data)[kind * n_heads + i] =
                (float)(of_head[kind] / of_head[LENS_N_HEAD_KINDS]);
        }
    attn_free(watch.sums);
    if (entropies.out)
        status = lens_finish(ctx, &entropies, status);
    return result.out ? lens_finish(ctx, &result, status) : status;
}

#endif
