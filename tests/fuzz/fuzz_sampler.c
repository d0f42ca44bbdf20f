/* The sampler: any settings, any logits. It answers with a token that the filters allow, the same
 * one for the same seed, or with an error for settings and numbers that are none. */
#include "fuzz.h"
#include <float.h>
#include <math.h>

static float take_float(input *in)
{
    static const float odd[] = {0.0f,    -0.0f,   1.0f,      0.5f,      -1.0f, 1e-45f,
                                FLT_MIN, FLT_MAX, -FLT_MAX,  INFINITY,  0.9f,  1e-30f,
                                1e30f,   2.0f,    -INFINITY, (float)NAN};
    const unsigned kind = take(in);
    uint32_t bits;
    float value;
    if (kind < 128)
        return ((float)kind - 64) / 8; /* many are equal */
    if (kind < 240)
        return odd[kind % 16];
    bits = take32(in);
    memcpy(&value, &bits, 4);
    return value;
}

static void check_token(const attn_sampler_desc *d, const float *logits, size_t n,
                        const int32_t *seen, size_t n_seen, int32_t token)
{
    float changed[64];
    size_t i, larger = 0, best = 0;
    memcpy(changed, logits, n * sizeof *logits);
    i = d->repeat_last && d->repeat_last < n_seen ? n_seen - d->repeat_last : 0;
    for (; i < n_seen && d->repeat_penalty > 0 && d->repeat_penalty != 1; i++)
        if (seen[i] >= 0 && (size_t)seen[i] < n)
            changed[seen[i]] = logits[seen[i]] > 0 ? logits[seen[i]] / d->repeat_penalty
                                                   : logits[seen[i]] * d->repeat_penalty;
    for (i = 1; i < n; i++)
        if (changed[i] > changed[best])
            best = i;
    MUST(token >= 0 && (size_t)token < n);
    if (d->temperature == 0) {
        MUST((size_t)token == best);
        return;
    }
    MUST(changed[token] > -INFINITY || changed[best] == -INFINITY);
    for (i = 0; i < n; i++)
        larger += changed[i] > changed[token];
    MUST(d->top_k == 0 || larger < (size_t)d->top_k);
    if (d->min_p > 0 && changed[token] < changed[best])
        MUST(exp((double)(changed[token] - changed[best]) / (double)d->temperature) >=
             (double)d->min_p * 0.9999);
}

int fuzz_sampler(const unsigned char *data, size_t size)
{
    input in;
    attn_ctx ctx;
    attn_sampler_desc d;
    attn_sampler *sampler = NULL, *again = NULL;
    float logits[64];
    int32_t seen[16], token = -7, other = -7;
    size_t n, i, n_seen;
    int valid, has_nan = 0, turn;
    in.data = data;
    in.size = size;
    memset(&ctx, 0, sizeof ctx);
    memset(&d, 0, sizeof d);
    n = take(&in) % 65;
    n_seen = take(&in) % 17;
    d.temperature = take_float(&in);
    d.top_p = take_float(&in);
    d.min_p = take_float(&in);
    d.repeat_penalty = take_float(&in);
    d.top_k = (int32_t)take(&in) - 10;
    d.repeat_last = take(&in) % 20;
    d.seed = take(&in);
    for (i = 0; i < n_seen; i++)
        seen[i] = (int32_t)take(&in) - 20;
    for (i = 0; i < n; i++) {
        logits[i] = take_float(&in);
        has_nan |= isnan(logits[i]);
    }
    valid = n > 0 && d.temperature >= 0 && d.temperature <= FLT_MAX && d.top_k >= 0 &&
            d.top_p >= 0 && d.top_p <= 1 && d.min_p >= 0 && d.min_p <= 1 && d.repeat_penalty >= 0 &&
            d.repeat_penalty <= FLT_MAX;
    MUST((attn_sampler_new(&ctx, &sampler, n, &d) == ATTN_OK) == valid);
    MUST((sampler != NULL) == valid);
    if (!sampler)
        return 0;
    MUST(attn_sampler_new(&ctx, &again, n, &d) == ATTN_OK);
    for (turn = 0; turn < 3; turn++) {
        const attn_status status = attn_sample(&ctx, sampler, logits, seen, n_seen, &token);
        MUST(status == (has_nan ? ATTN_E_ARGUMENT : ATTN_OK));
        MUST(attn_sample(&ctx, again, logits, seen, n_seen, &other) == status);
        if (status == ATTN_OK) {
            MUST(token == other);
            check_token(&d, logits, n, seen, n_seen, token);
        }
    }
    attn_sampler_free(sampler);
    attn_sampler_free(again);
    return 0;
}
