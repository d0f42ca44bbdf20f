/* The sampler: any settings, any logits. It answers with a token that the filters allow, by sums
 * that are worked out here once more; with all of those in the long run, no others; with the same
 * ones for the same seed; or with an error for settings and numbers that are none. */
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

/* What may be drawn. A weight is exp of a float's rounded quotient (at most 88 in size, else the
 * weight is 0) and an exp of some units in the last place: 1 in 10^5. A token that stands nearer
 * than EDGE to a filter's border may be on either side of it. */
#define EDGE 1e-4

typedef struct candidate {
    float logit;
    double weight;
    int id, allowed, surely; /* allowed: by the widest reading of the border; surely: by any */
} candidate;

typedef struct choice {
    candidate by_rank[64];
    size_t n, most; /* most tokens that may ever be drawn */
    double total;   /* of those */
} choice;

static int by_likelihood(const void *a, const void *b)
{
    const candidate *x = (const candidate *)a, *y = (const candidate *)b;
    return x->logit != y->logit ? (x->logit < y->logit ? 1 : -1) : x->id - y->id;
}

/* The logits after the repetition penalty. */
static void punish(const attn_sampler_desc *d, float *changed, const float *logits, size_t n,
                   const int32_t *seen, size_t n_seen)
{
    size_t i = d->repeat_last && d->repeat_last < n_seen ? n_seen - d->repeat_last : 0;
    memcpy(changed, logits, n * sizeof *logits);
    for (; i < n_seen && d->repeat_penalty > 0 && d->repeat_penalty != 1; i++)
        if (seen[i] >= 0 && (size_t)seen[i] < n)
            changed[seen[i]] = logits[seen[i]] > 0 ? logits[seen[i]] / d->repeat_penalty
                                                   : logits[seen[i]] * d->repeat_penalty;
}

/* Every token, sorted, with the filters one after the other in double arithmetic. Which of equal
 * ones a filter keeps is nobody's promise, only how many: each is allowed if one of them is. */
static void choose(choice *c, const attn_sampler_desc *d, const float *changed, size_t n)
{
    const double p = d->top_p > 0 && d->top_p < 1 ? (double)d->top_p : 2; /* never reached */
    const size_t k = d->top_k > 0 && d->top_k < n ? d->top_k : n;
    double share = 0, before = 0;
    size_t last;
    for (size_t i = 0; i < n; i++) {
        c->by_rank[i].logit = changed[i];
        c->by_rank[i].id = (int)i;
    }
    qsort(c->by_rank, n, sizeof *c->by_rank, by_likelihood);
    for (size_t i = 0; i < n; i++) {
        const double below = (double)c->by_rank[i].logit - (double)c->by_rank[0].logit;
        c->by_rank[i].weight =
            below == 0 || d->temperature == 0 ? below == 0 : exp(below / (double)d->temperature);
        share += i < k ? c->by_rank[i].weight : 0; /* top-p shares out what top-k left */
    }
    c->n = n;
    c->most = 0;
    c->total = 0;
    for (size_t first = 0; first < n; first = last) { /* a run of equal ones */
        const double weight = c->by_rank[first].weight;
        const int by_p = first == 0 || before * (1 - EDGE) < p * share;
        const int by_min = first == 0 || weight > 0.9999 * (double)d->min_p - 1e-37;
        for (last = first; last < n && c->by_rank[last].logit == c->by_rank[first].logit; last++) {
            const double rank = (double)(last - first), sum = before + rank * weight;
            if (last < k && by_min && (last == 0 || sum * (1 - EDGE) < p * share)) {
                c->most++;
                c->total += weight;
            }
        }
        for (size_t i = first; i < last; i++) {
            const double others = before + (double)(last - first - 1) * weight;
            c->by_rank[i].allowed = first < k && by_p && by_min;
            c->by_rank[i].surely = last <= k && others * (1 + EDGE) < p * share &&
                                   weight * (1 - EDGE) > (double)d->min_p;
        }
        before += (double)(last - first) * weight;
    }
}

static void check_token(const choice *c, const attn_sampler_desc *d, int32_t token)
{
    const float best = c->by_rank[0].logit;
    size_t i = 0;
    while (i < c->n && c->by_rank[i].id != token)
        i++;
    MUST(i < c->n);
    if (d->temperature == 0)
        MUST(i == 0); /* the first of the largest */
    else if (best == INFINITY)
        MUST(c->by_rank[i].logit == best); /* nothing to weigh against each other */
    else
        MUST(c->by_rank[i].allowed && c->by_rank[i].logit > -INFINITY);
}

/* Many draws. No more tokens come than the filters keep; each that they surely keep comes, if it is
 * likely: a fourth of the weight not drawn in 100 draws is one chance in 10^12. Another seed draws
 * others, if there are two such tokens: to draw the same 100 times is rarer yet. */
static void draw_many(attn_ctx *ctx, const attn_sampler_desc *d, const choice *c,
                      const float *logits, const int32_t *seen, size_t n_seen)
{
    attn_sampler_desc reseeded = *d;
    attn_sampler *sampler, *another;
    size_t drawn[64] = {0}, distinct = 0, likely = 0, same = 0;
    int32_t token, other;
    reseeded.seed++;
    MUST(attn_sampler_new(ctx, &sampler, c->n, d) == ATTN_OK);
    MUST(attn_sampler_new(ctx, &another, c->n, &reseeded) == ATTN_OK);
    if (c->by_rank[0].logit == -INFINITY) { /* no token is possible */
        MUST(attn_sample(ctx, &token, sampler, logits, seen, n_seen) == ATTN_E_ARGUMENT);
        attn_sampler_free(sampler);
        attn_sampler_free(another);
        return;
    }
    for (size_t turn = 0; turn < 100; turn++) {
        MUST(attn_sample(ctx, &token, sampler, logits, seen, n_seen) == ATTN_OK);
        MUST(attn_sample(ctx, &other, another, logits, seen, n_seen) == ATTN_OK);
        check_token(c, d, token);
        distinct += drawn[token]++ == 0;
        same += token == other;
    }
    attn_sampler_free(sampler);
    attn_sampler_free(another);
    if (d->temperature == 0 || c->by_rank[0].logit == INFINITY) {
        MUST(distinct == 1 && same == 100);
        return;
    }
    MUST(distinct <= c->most);
    for (size_t i = 0; i < c->n; i++)
        if (c->by_rank[i].surely && c->by_rank[i].weight >= c->total / 4) {
            MUST(drawn[c->by_rank[i].id] > 0);
            likely++;
        }
    MUST(likely < 2 || same < 100);
}

int fuzz_sampler(const unsigned char *data, size_t size)
{
    input in;
    attn_ctx ctx;
    attn_sampler_desc d;
    attn_sampler *sampler = NULL, *again = NULL;
    choice c;
    float logits[64], changed[64];
    int32_t seen[16], token = -7, other = -7;
    int has_nan = 0;
    in.data = data;
    in.size = size;
    memset(&ctx, 0, sizeof ctx);
    memset(&d, 0, sizeof d);
    size_t n = take(&in) % 65;
    size_t n_seen = take(&in);
    int many = n_seen % 8 == 7;
    n_seen = n_seen / 8 % 17;
    d.temperature = take_float(&in);
    d.top_p = take_float(&in);
    d.min_p = take_float(&in);
    d.repeat_penalty = take_float(&in);
    d.top_k = take(&in);
    d.repeat_last = take(&in) % 20;
    d.seed = take(&in);
    for (size_t i = 0; i < n_seen; i++)
        seen[i] = (int32_t)take(&in) - 20;
    for (size_t i = 0; i < n; i++) {
        logits[i] = take_float(&in);
        has_nan |= isnan(logits[i]);
    }
    int valid = n > 0 && d.temperature >= 0 && d.temperature <= FLT_MAX && d.top_p >= 0 &&
                d.top_p <= 1 && d.min_p >= 0 && d.min_p <= 1 && d.repeat_penalty >= 0 &&
                d.repeat_penalty <= FLT_MAX;
    MUST((attn_sampler_new(&ctx, &sampler, n, &d) == ATTN_OK) == valid);
    MUST((sampler != NULL) == valid);
    if (!sampler)
        return 0;
    MUST(attn_sampler_new(&ctx, &again, n, &d) == ATTN_OK);
    if (!has_nan) {
        punish(&d, changed, logits, n, seen, n_seen);
        choose(&c, &d, changed, n);
    }
    int is_possible = !has_nan && c.by_rank[0].logit > -INFINITY;
    for (int turn = 0; turn < 3; turn++) {
        const attn_status status = attn_sample(&ctx, &token, sampler, logits, seen, n_seen);
        MUST(status == (is_possible ? ATTN_OK : ATTN_E_ARGUMENT));
        MUST(attn_sample(&ctx, &other, again, logits, seen, n_seen) == status);
        if (status == ATTN_OK) {
            MUST(token == other); /* the seed decides */
            check_token(&c, &d, token);
        }
    }
    if (many && !has_nan)
        draw_many(&ctx, &d, &c, logits, seen, n_seen);
    attn_sampler_free(sampler);
    attn_sampler_free(again);
    return 0;
}
