/* The numbers that numpy worked out in float64 from two random models of golden/
 * (make_lens_fixtures.py): `plain` has a tied unembedding, `odd` sizes that fit no vector. */
#ifndef LENS_FIXTURES_H
#define LENS_FIXTURES_H

#define FIXTURE_FILE "tests/fixtures/lens.bin"
#include "stream_parts.h"
#include "shared_models.h"

static const char *const lens_models[] = {"plain", "odd"};
enum { FIRST = 5, MOST = 3 }; /* the positions whose parts numpy kept */

static inline attn_model *model_of(int i)
{
    return i ? odd : plain;
}

/* A fixture that must be there. */
static inline attn_tensor expected(int model, const char *name)
{
    attn_tensor t;
    CHECKF(fixture(&t, "%s.%s", lens_models[model], name), "no fixture %s.%s", lens_models[model],
           name);
    return t;
}

static inline attn_tensor expected_n(int model, const char *name, int n)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%d", name, n);
    return expected(model, full);
}

static inline const int32_t *ids_of(attn_tensor t)
{
    return (const int32_t *)t.data;
}

static inline attn_tensor floats(float *values, size_t n)
{
    return attn_borrow(values, ATTN_F32, attn_shape1(n));
}

/* log_softmax of all logits of a text, [T, V] */
static inline attn_tensor log_probabilities(attn_ctx *ctx, const attn_model *m,
                                            const attn_token *tokens, size_t n, attn_tensor *logits)
{
    attn_tensor out = {0};
    *logits =
        attn_borrow(logits_of(ctx, m, 0, tokens, n, n), ATTN_F32, attn_shape2(n, vocab_of(m)));
    OK(ctx, attn_log_softmax(ctx, &out, *logits));
    return out;
}

static inline attn_tensor tensor_of(attn_ctx *ctx, const attn_model *model, const char *name)
{
    attn_tensor t = {0};
    OK(ctx, attn_model_tensor(ctx, &t, model, name));
    return t;
}

/* Two models that give the same log-probabilities; `shifted`: the logits of the new one have no mean. */
static inline void check_same_model(attn_ctx *ctx, const attn_model *rewritten, const attn_model *m,
                                    const attn_token *tokens, size_t n, int shifted)
{
    attn_tensor logits, before;
    const attn_tensor want = log_probabilities(ctx, m, tokens, n, &before);
    const attn_tensor got = log_probabilities(ctx, rewritten, tokens, n, &logits);
    close_to(got, want, 2e-6, "log-probabilities");
    for (size_t t = 0; t < n; t++) {
        double mean = 0, before_mean = 0;
        for (size_t v = 0; v < logits.shape[1]; v++) {
            mean += value_of(logits, t * logits.shape[1] + v) / (double)logits.shape[1];
            before_mean += value_of(before, t * logits.shape[1] + v) / (double)logits.shape[1];
        }
        CHECKF(shifted ? fabs(mean) < 1e-5 && fabs(before_mean) > 1e-3
                       : fabs(mean - before_mean) < 1e-5,
               "the logits' mean goes from %.9g to %.9g", before_mean, mean);
    }
}

#endif
