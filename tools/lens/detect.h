/* How well the attention of heads fits a pattern: TransformerLens's detect_head with all its options. On
 * attn.h's public API alone.
 *
 *     lens_detect_desc how = ATTN_ZERO;
 *     attn_tensor scores = ATTN_ZERO;
 *     how.tokens = tokens, how.n_tokens = n;
 *     how.kind = LENS_HEAD_INDUCTION;
 *     how.exclude_bos = 1;
 *     if (lens_detect_head(&ctx, &scores, model, &how) == ATTN_OK)
 *         printf("L5H1: %.2f\n", attn_get2(scores, 5, 1));
 *
 * For the attention p [T, T] of a head and the keys where it is expected to look, k [T, T], the score is
 *
 *     mul   sum(p * k) / sum(p)      the share of the attention that goes there, for k of 0 and 1
 *     abs   1 - sum(|p - k|) / T     1: p is k; -1: they have nothing in common, if rows of k sum to 1
 *
 * over the queries and keys that are not excluded. TransformerLens rounds "abs" to three decimals, and by
 * default adds a beginning-of-text token to a text. For several texts it takes the mean of their scores. */
#ifndef LENS_DETECT_H
#define LENS_DETECT_H

#include "heads.h"

typedef enum lens_head_measure { LENS_HEAD_MUL = 0, LENS_HEAD_ABS } lens_head_measure;

/* Which pattern is scored, for which heads. With only the text set: previous-token heads, all heads, "mul". */
typedef struct lens_detect_desc {
    const attn_token *tokens; /* [n_tokens] */
    size_t n_tokens;
    lens_head_kind kind; /* a kind of head, */
    attn_tensor keys;    /* or, if it is not zeroed, the expected keys: [T, T], 0 at later keys */
    const lens_head
        *heads; /* [n_heads]: only these are scored, the others get -1; n_heads 0: all */
    size_t n_heads;
    lens_head_measure measure;
    int exclude_bos;           /* exclude the first key */
    int exclude_current_token; /* exclude the key at the query's own position */
} lens_detect_desc;

/* What the hook of a run reads and writes. */
typedef struct lens_detection {
    const lens_detect_desc *desc;
    const float *keys; /* [T, T] */
    size_t n_head;
    const float *scores; /* [L, H]: -1 for a head that is not scored */
    double *sums;        /* [L, H, 2]: sum(p * k) or sum(|p - k|), and sum(p) */
} lens_detection;

/* Adds one query's row p of a head's pattern to the sums. */
LENS_FN void lens_add_row(double sums[2], const lens_detection *d, const float *p, ptrdiff_t step,
                          size_t query)
{
    const float *keys = d->keys + query * d->desc->n_tokens;
    for (size_t j = d->desc->exclude_bos ? 1 : 0; j < query + !d->desc->exclude_current_token;
         j++) {
        const double weight = (double)p[(ptrdiff_t)j * step], key = (double)keys[j];
        sums[0] += d->desc->measure == LENS_HEAD_MUL ? weight * key : fabs(weight - key);
        sums[1] += weight;
    }
}

/* A hook: adds the pattern [H, queries, keys] of one layer to the sums. */
LENS_FN int lens_see_pattern(const attn_activation *a, void *user)
{
    const lens_detection *d = (const lens_detection *)user;
    const attn_tensor *p = &a->value;
    for (size_t head = 0; head < p->shape[0]; head++) {
        const size_t index = (size_t)a->layer * d->n_head + head;
        for (size_t i = 0; i < p->shape[1] && d->scores[index] >= 0; i++)
            lens_add_row(d->sums + 2 * index, d,
                         (const float *)p->data + (ptrdiff_t)head * p->stride[0] +
                             (ptrdiff_t)i * p->stride[1],
                         p->stride[2], a->first + i);
    }
    return 0;
}

/* keys [T, T], dense: the caller's, or those of a kind of head. */
LENS_FN attn_status lens_keys_of(attn_ctx *ctx, const char *op, attn_tensor *keys,
                                 const lens_detect_desc *desc)
{
    const size_t n = desc->n_tokens;
    if (desc->keys.ndim == 0 && !desc->keys.error)
        return lens_head_keys(ctx, keys, desc->kind, desc->tokens, n);
    if (lens_need(ctx, op, "keys", desc->keys) != ATTN_OK)
        return lens_failure(ctx);
    if (desc->keys.ndim != 2 || desc->keys.shape[0] != n || desc->keys.shape[1] != n)
        return attn_fail(ctx, ATTN_E_SHAPE, "%s: keys have shape %s; expected [%llu, %llu]", op,
                         lens_show(desc->keys).text, LENS_LLU(n), LENS_LLU(n));
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++)
            if (attn_get2(desc->keys, i, j) != 0)
                return attn_fail(ctx, ATTN_E_ARGUMENT,
                                 "%s: keys[%llu, %llu] is %g, "
                                 "but a query sees no later key; expected 0",
                                 op, LENS_LLU(i), LENS_LLU(j), (double)attn_get2(desc->keys, i, j));
    return attn_scale(ctx, keys, desc->keys, 1);
}

/* scores [L, H]: 0 for a head that is scored, -1 for the others. */
LENS_FN attn_status lens_mark_heads(attn_ctx *ctx, const char *op, float *scores,
                                    const attn_config *c, const lens_detect_desc *desc)
{
    const size_t n = (size_t)c->n_layer * c->n_head;
    if (!desc->heads && desc->n_heads > 0)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: n_heads is %llu, but heads is NULL", op,
                         LENS_LLU(desc->n_heads));
    for (size_t i = 0; i < n; i++)
        scores[i] = desc->n_heads ? -1 : 0;
    for (size_t i = 0; i < desc->n_heads; i++) {
        const lens_head at = desc->heads[i];
        if (at.layer >= c->n_layer || at.head >= c->n_head)
            return attn_fail(ctx, ATTN_E_ARGUMENT,
                             "%s: head %llu of layer %llu; the model has heads 0 to %zu in layers "
                             "0 to %zu",
                             op, LENS_LLU(at.head), LENS_LLU(at.layer), c->n_head - 1,
                             c->n_layer - 1);
        scores[at.layer * c->n_head + at.head] = 0;
    }
    return ATTN_OK;
}

LENS_FN attn_status lens_run_detection(attn_ctx *ctx, const attn_model *model, lens_detection *d)
{
    attn_session_desc size = ATTN_ZERO;
    attn_session *session = NULL;
    size.n_ctx = d->desc->n_tokens;
    attn_status status = attn_session_new(ctx, &session, model, &size);
    if (status == ATTN_OK)
        status = attn_hook(ctx, NULL, session, "blocks.*.attn.hook_pattern", lens_see_pattern, d);
    if (status == ATTN_OK)
        status = attn_feed(ctx, session, d->desc->tokens, d->desc->n_tokens);
    attn_session_free(session);
    return status;
}

/* out [L, H]: the score of each head that desc names, -1 for the others. With "mul", NaN if all keys are
 * excluded. Memory does not grow with T * T of the patterns, which are read in pieces. */
LENS_FN attn_status lens_detect_head(attn_ctx *ctx, attn_tensor *out, const attn_model *model,
                                     const lens_detect_desc *desc)
{
    static const char op[] = "lens_detect_head";
    lens_detection d = ATTN_ZERO;
    attn_tensor keys = ATTN_ZERO;
    lens_result result;
    if (!desc)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no description given (NULL)", op);
    if (lens_need_layer(ctx, op, model, 0) ||
        lens_need_tokens(ctx, op, model, desc->tokens, desc->n_tokens))
        return lens_failure(ctx);
    if ((unsigned)desc->measure > LENS_HEAD_ABS)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "%s: measure %d is neither LENS_HEAD_MUL nor LENS_HEAD_ABS", op,
                         (int)desc->measure);
    const attn_config *c = attn_model_config(model);
    if (lens_begin(ctx, op, out, attn_shape2(c->n_layer, c->n_head), &result) != ATTN_OK)
        return lens_failure(ctx);
    float *scores = (float *)result.numbers.data;
    attn_status status = lens_mark_heads(ctx, op, scores, c, desc);
    if (status == ATTN_OK)
        status = lens_keys_of(ctx, op, &keys, desc);
    d.sums = (double *)attn_alloc(ctx, attn_count(result.numbers), 2 * sizeof *d.sums,
                                  "scores of heads");
    if (!d.sums)
        status = ctx->status;
    d.desc = desc;
    d.keys = (const float *)keys.data;
    d.n_head = c->n_head;
    d.scores = scores;
    if (status == ATTN_OK)
        status = lens_run_detection(ctx, model, &d);
    for (size_t i = 0; i < attn_count(result.numbers) && status == ATTN_OK; i++)
        if (scores[i] >= 0)
            scores[i] = desc->measure == LENS_HEAD_MUL
                            ? (float)(d.sums[2 * i] / d.sums[2 * i + 1])
                            : (float)(1 - d.sums[2 * i] / (double)desc->n_tokens);
    attn_free(d.sums);
    attn_tensor_free(ctx, &keys);
    return lens_finish(ctx, &result, status);
}

#endif
