/* Sampling against its definitions. Probabilities are worked out here in double precision straight
 * from the formulas, and what is drawn is compared by Pearson's chi-square test or, where filters
 * are concerned, as sets. Seeds are fixed, so a case that passes once passes always. Then
 * generation on the included model: samplers that live on, callbacks on logits, stop strings, the
 * reasons. */
#include "models.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static attn_model *tiny; /* the included model, for the cases that generate */

static int open_tiny(void)
{
    attn_ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    return OK(&ctx, attn_model_open(&ctx, &tiny, TEST_BUILD "/tiny-stories.attn", NULL));
}

static void close_tiny(void)
{
    attn_model_close(tiny);
}

SUITE_WITH("sampling", open_tiny, close_tiny);

enum { MOST = 64 }; /* tokens in these vocabularies */

/* Any numbers do; these come from a congruence (Knuth's MMIX constants), not from the library. */
static void make_logits(float *logits, size_t n, uint64_t seed)
{
    size_t i;
    for (i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        logits[i] = (float)(seed >> 40) / (float)(1 << 24) * 4 - 2;
    }
}

static attn_sampler_desc plain(float temperature, uint64_t seed)
{
    attn_sampler_desc desc = {0};
    desc.temperature = temperature;
    desc.seed = seed;
    return desc;
}

/* Draws `draws` times and counts each token. 0 after a failure, which is then reported. */
static int count_draws(const float *logits, size_t n, const attn_sampler_desc *desc,
                       const int32_t *past, size_t n_past, size_t draws, size_t *counts)
{
    attn_ctx ctx = {0};
    attn_sampler *sampler = NULL;
    int fine = OK(&ctx, attn_sampler_new(&ctx, &sampler, n, desc));
    size_t i;
    memset(counts, 0, n * sizeof *counts);
    for (i = 0; fine && i < draws; i++) {
        int32_t token = -1;
        fine = OK(&ctx, attn_sample(&ctx, &token, sampler, logits, past, n_past)) &&
               CHECKF(token >= 0 && (size_t)token < n, "drew token %ld", (long)token);
        if (fine)
            counts[token]++;
    }
    attn_sampler_free(sampler);
    return fine;
}

/* One draw. -1 after a failure. */
static int32_t draw(const float *logits, size_t n, const attn_sampler_desc *desc,
                    const int32_t *past, size_t n_past)
{
    size_t counts[MOST], i;
    if (count_draws(logits, n, desc, past, n_past, 1, counts))
        for (i = 0; i < n; i++)
            if (counts[i])
                return (int32_t)i;
    return -1;
}

/* The definition: penalty, temperature, softmax, then top-k, top-p and min-p, each on the
 * renormalised rest; p receives the probabilities. Ties in logits must not occur. */
static void define(const float *logits, size_t n, const attn_sampler_desc *desc,
                   const int32_t *past, size_t n_past, double *p)
{
    double x[MOST], largest = -INFINITY, sum = 0, before;
    size_t order[MOST], i, j, kept = n;
    for (i = 0; i < n; i++) {
        int is_seen = 0;
        size_t first =
            desc->repeat_last && desc->repeat_last < n_past ? n_past - desc->repeat_last : 0;
        for (j = first; j < n_past; j++)
            is_seen |= (size_t)past[j] == i;
        x[i] = logits[i];
        if (is_seen && desc->repeat_penalty > 0)
            x[i] = x[i] > 0 ? x[i] / desc->repeat_penalty : x[i] * desc->repeat_penalty;
        x[i] /= desc->temperature;
        largest = x[i] > largest ? x[i] : largest;
    }
    for (i = 0; i < n; i++)
        sum += p[i] = exp(x[i] - largest);
    for (i = 0; i < n; i++) {
        p[i] /= sum;
        for (j = i; j > 0 && p[order[j - 1]] < p[i]; j--) /* insertion, likeliest first */
            order[j] = order[j - 1];
        order[j] = i;
    }
    if (desc->top_k > 0 && (size_t)desc->top_k < kept)
        kept = (size_t)desc->top_k;
    if (desc->top_p > 0 && desc->top_p < 1) {
        for (sum = 0, i = 0; i < kept; i++)
            sum += p[order[i]];
        for (before = 0, i = 0; i < kept && before < desc->top_p * sum; i++)
            before += p[order[i]];
        kept = i;
    }
    for (i = 0; i < kept; i++)
        if (p[order[i]] < desc->min_p * p[order[0]])
            kept = i;
    for (i = kept; i < n; i++)
        p[order[i]] = 0;
    for (sum = 0, i = 0; i < n; i++)
        sum += p[i];
    for (i = 0; i < n; i++)
        p[i] /= sum;
}

/* Draws many and compares with the definition: the set exactly, the frequencies by chi-square. */
static void check_draws(const char *what, const float *logits, size_t n,
                        const attn_sampler_desc *desc, const int32_t *past, size_t n_past)
{
    const size_t draws = 40000;
    double p[MOST], chi2 = 0, bound;
    size_t counts[MOST], i, degrees = 0;
    define(logits, n, desc, past, n_past, p);
    if (!count_draws(logits, n, desc, past, n_past, draws, counts))
        return;
    for (i = 0; i < n; i++) {
        const double expected = p[i] * (double)draws;
        CHECKF(p[i] == 0 ? counts[i] == 0 : counts[i] > 0 || expected < 20,
               "%s: token %d was drawn %d times, expected %.1f", what, (int)i, (int)counts[i],
               expected);
        if (p[i] == 0)
            continue;
        degrees++;
        chi2 += ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
    }
    /* The distribution has mean d and variance 2d; 1e-6 of it lies about this far out. */
    degrees--;
    bound = (double)degrees + 6 * sqrt(2 * (double)degrees) + 14;
    CHECKF(chi2 < bound, "%s: chi-square %.1f with %d degrees of freedom", what, chi2,
           (int)degrees);
}

TEST(greedy_takes_the_first_of_the_largest)
{
    const float tie[5] = {1, 3, -2, 3, 3}, negative[3] = {-5, -4, -4};
    const float hidden[3] = {-INFINITY, -100, -INFINITY}, first[2] = {0, 0}, one[1] = {-7};
    attn_sampler_desc desc = plain(0, 5);
    CHECK(draw(tie, 5, &desc, NULL, 0) == 1);
    CHECK(draw(negative, 3, &desc, NULL, 0) == 1);
    CHECK(draw(hidden, 3, &desc, NULL, 0) == 1);
    CHECK(draw(first, 2, &desc, NULL, 0) == 0);
    CHECK(draw(one, 1, &desc, NULL, 0) == 0);
}

/* The largest logit wherever it is: vector code has edges. */
TEST(greedy_finds_it_anywhere)
{
    float logits[MOST];
    size_t n, at;
    attn_sampler_desc desc = plain(0, 0);
    for (n = 1; n <= MOST; n++)
        for (at = 0; at<n; at += n> 20 ? 3 : 1) {
            make_logits(logits, n, n);
            logits[at] = 2.5f;
            CHECK(draw(logits, n, &desc, NULL, 0) == (int32_t)at);
        }
}

/* The same over a vocabulary that is searched in pieces, with twins of the largest behind it. */
TEST(greedy_in_a_large_vocabulary)
{
    enum { LARGE = 50257 };
    static const size_t places[] = {0, 15, 16, 1023, 1024, 1025, 2047, 2048, 50175, 50176, 50256};
    float *const logits = (float *)malloc(LARGE * sizeof *logits);
    const attn_sampler_desc desc = plain(0, 0);
    attn_ctx ctx = {0};
    attn_sampler *sampler = NULL;
    size_t i, j;
    int32_t token;
    OK(&ctx, attn_sampler_new(&ctx, &sampler, LARGE, &desc));
    for (i = 0; logits && i < LARGE; i++)
        logits[i] = -1.0f - (float)(i * 7919 % 1000);
    for (i = 0; logits && i < sizeof places / sizeof places[0]; i++) {
        for (j = i; j < sizeof places / sizeof places[0]; j += 2)
            logits[places[j]] = 4;
        token = -1;
        OK(&ctx, attn_sample(&ctx, &token, sampler, logits, NULL, 0));
        CHECKF(token == (int32_t)places[i], "%ld, not %ld", (long)token, (long)places[i]);
        for (j = i; j < sizeof places / sizeof places[0]; j += 2)
            logits[places[j]] = -3;
    }
    /* of two that are no numbers the first is named, whatever lies between them */
    if (logits) {
        logits[1500] = logits[40000] = NAN;
        logits[30000] = 9;
        FAILS(&ctx, ATTN_E_ARGUMENT, "the logit of token 1500 is NaN",
              attn_sample(&ctx, &token, sampler, logits, NULL, 0));
    }
    attn_sampler_free(sampler);
    free(logits);
}

TEST(temperature_follows_softmax)
{
    const float temperatures[4] = {0.5f, 0.7f, 1, 3};
    float logits[MOST];
    char what[32];
    size_t i;
    for (i = 0; i < 4; i++) {
        attn_sampler_desc desc = plain(temperatures[i], 11 + i);
        make_logits(logits, 20, 3 + i);
        snprintf(what, sizeof what, "temperature %g", (double)temperatures[i]);
        check_draws(what, logits, 20, &desc, NULL, 0);
    }
}

TEST(filters_keep_the_right_tokens)
{
    static const struct {
        int32_t k;
        float p, min;
    } filters[] = {{1, 0, 0},        {7, 0, 0},       {20, 0, 0},      {1000, 0, 0},
                   {0, 0.5f, 0},     {0, 0.9f, 0},    {0, 1, 0},       {0, 0.01f, 0},
                   {0, 0, 0.1f},     {0, 0, 0.5f},    {0, 0, 1},       {5, 0.6f, 0},
                   {12, 0.95f, 0},   {9, 0, 0.3f},    {0, 0.8f, 0.2f}, {15, 0.9f, 0.1f},
                   {3, 1, 0.05f},    {10, 0.999f, 0}, {1, 0.1f, 0.9f}, {0, 0.99f, 0.4f},
                   {12, 0.98f, 0.4f}};
    float logits[MOST];
    char what[64];
    size_t i;
    for (i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        attn_sampler_desc desc = plain(0.9f, 100 + i);
        desc.top_k = filters[i].k;
        desc.top_p = filters[i].p;
        desc.min_p = filters[i].min;
        make_logits(logits, 20, 50 + i);
        snprintf(what, sizeof what, "top-k %d, top-p %g, min-p %g", (int)filters[i].k,
                 (double)filters[i].p, (double)filters[i].min);
        check_draws(what, logits, 20, &desc, NULL, 0);
    }
}

/* 0.4, 0.3, 0.2, 0.1: what top-k leaves is 4/7 and 3/7, so top-p 0.5 keeps one, though 0.4 < 0.5.
 */
TEST(top_p_counts_what_top_k_left)
{
    const float logits[4] = {-0.916290732f, -1.203972804f, -1.609437912f, -2.302585093f};
    attn_sampler_desc desc = plain(1, 1);
    size_t counts[4];
    desc.top_p = 0.5f;
    if (count_draws(logits, 4, &desc, NULL, 0, 2000, counts))
        CHECK(counts[0] && counts[1] && !counts[2] && !counts[3]);
    desc.top_k = 2;
    if (count_draws(logits, 4, &desc, NULL, 0, 2000, counts))
        CHECK(counts[0] == 2000);
}

/* What a filter's bound meets exactly: top-p stops there, min-p keeps it. */
TEST(filters_at_their_bound)
{
    const float logits[8] = {-1, 4, 4, -1, 4, 4, -1, -1};
    attn_sampler_desc desc = plain(1, 2);
    size_t counts[8];
    desc.top_k = 4;
    desc.top_p = 0.5f;
    if (count_draws(logits, 8, &desc, NULL, 0, 500, counts))
        CHECK(counts[1] && counts[2] && counts[1] + counts[2] == 500);
    desc = plain(1, 3);
    desc.min_p = 1;
    if (count_draws(logits, 8, &desc, NULL, 0, 500, counts))
        CHECK(counts[1] && counts[2] && counts[4] && counts[5] &&
              counts[1] + counts[2] + counts[4] + counts[5] == 500);
}

/* Infinite logits cannot be weighed: the first of the largest is taken. */
TEST(infinite_logits)
{
    float logits[8] = {1, 2, INFINITY, 3, INFINITY, -INFINITY, 0, 1};
    attn_sampler_desc desc = plain(1, 4);
    size_t i;
    for (i = 0; i < 3; i++) {
        desc.top_k = i == 1 ? 3 : 0;
        desc.top_p = i == 2 ? 0.9f : 0;
        CHECK(draw(logits, 8, &desc, NULL, 0) == 2);
    }
    for (i = 0; i < 8; i++)
        logits[i] = -INFINITY;
    logits[6] = 1; /* the only one that can come */
    CHECK(draw(logits, 8, &desc, NULL, 0) == 6);
}

/* Where no token is possible none is picked, whatever the sampler: not even a greedy one. */
TEST(no_token_is_possible)
{
    float logits[3] = {-INFINITY, -INFINITY, -INFINITY};
    const int32_t before[3] = {0, 1, 2};
    int i;
    for (i = 0; i < 4; i++) {
        attn_ctx ctx = {0};
        attn_sampler *sampler;
        attn_sampler_desc desc = plain(i % 2 ? 1.0f : 0.0f, 4);
        int32_t token = 77;
        desc.repeat_penalty = i / 2 ? 2.0f : 0.0f;
        if (!OK(&ctx, attn_sampler_new(&ctx, &sampler, 3, &desc)))
            return;
        FAILS(&ctx, ATTN_E_ARGUMENT, "all logits are -inf",
              attn_sample(&ctx, &token, sampler, logits, before, 3));
        CHECK(token == 77);
        attn_sampler_free(sampler);
    }
    for (i = 0; i < 3; i++) /* the penalty makes them so */
        logits[i] = -3e38f;
    {
        attn_ctx ctx = {0};
        attn_sampler *sampler;
        attn_sampler_desc desc = plain(0, 4);
        int32_t token = 77;
        desc.repeat_penalty = 2;
        if (!OK(&ctx, attn_sampler_new(&ctx, &sampler, 3, &desc)))
            return;
        FAILS(&ctx, ATTN_E_ARGUMENT, "all logits are -inf",
              attn_sample(&ctx, &token, sampler, logits, before, 3));
        attn_sampler_free(sampler);
    }
}

/* Tokens that the vocabulary does not have are no tokens that were seen. */
TEST(seen_outside_the_vocabulary)
{
    const float logits[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    const int32_t outside[4] = {-1, 16, INT32_MAX, INT32_MIN};
    attn_sampler_desc desc = plain(0, 5);
    desc.repeat_penalty = 4;
    CHECK(draw(logits, 16, &desc, outside, 4) == 15);
}

TEST(top_k_keeps_k_of_equals)
{
    const float logits[6] = {1, 2, 2, 2, 2, 0};
    size_t counts[6], i, kept;
    int32_t k;
    for (k = 1; k <= 4; k++) {
        attn_sampler_desc desc = plain(1, 9);
        desc.top_k = k;
        if (!count_draws(logits, 6, &desc, NULL, 0, 2000, counts))
            return;
        for (kept = i = 0; i < 6; i++)
            kept += counts[i] > 0;
        CHECKF(kept == (size_t)k && !counts[0] && !counts[5], "k = %d kept %d", (int)k, (int)kept);
    }
}

/* A vocabulary of GPT-2's size: nothing but the 40 likeliest, all of them, evenly. */
TEST(large_vocabulary)
{
    const size_t n = 50257;
    float *logits = (float *)calloc(n, sizeof *logits);
    size_t *counts = (size_t *)calloc(n, sizeof *counts);
    attn_sampler_desc desc = plain(1, 4);
    size_t i, fine = 0;
    desc.top_k = 40;
    desc.top_p = 0.999f;
    if (!CHECK(logits && counts))
        goto end;
    for (i = 0; i < 40; i++)
        logits[(i * 1291 + 77) % n] = 5;
    if (!count_draws(logits, n, &desc, NULL, 0, 4000, counts))
        goto end;
    for (i = 0; i < 40; i++) /* 100 each, give or take 10 */
        fine += counts[(i * 1291 + 77) % n] > 50 && counts[(i * 1291 + 77) % n] < 150;
    CHECKF(fine == 40, "%d of 40 tokens were drawn about 100 times", (int)fine);
end:
    free(logits);
    free(counts);
}

TEST(repetition_penalty)
{
    const float positive[2] = {2, 1.5f}, negative[2] = {-1, -1.5f}, thrice[2] = {3, 1.4f};
    const int32_t zero[3] = {0, 0, 0}, both[2] = {0, 1}, first_last[2] = {1, 0};
    attn_sampler_desc desc = plain(0, 0);
    float logits[MOST];
    int32_t past[6] = {3, 8, 3, 3, 0, 11};
    desc.repeat_penalty = 2;
    CHECK(draw(positive, 2, &desc, zero, 0) == 0);
    CHECK(draw(positive, 2, &desc, zero, 1) == 1); /* 1 and 1.5 */
    CHECK(draw(negative, 2, &desc, zero, 1) == 1); /* -2 and -1.5 */
    CHECK(draw(thrice, 2, &desc, zero, 3) == 0);   /* once, however often it was seen */
    CHECK(draw(positive, 2, &desc, both, 2) == 0); /* 1 and 0.75 */
    desc.repeat_last = 1;
    CHECK(draw(thrice, 2, &desc, both, 2) == 0); /* 3 and 0.7 */
    desc.repeat_last = 2;
    CHECK(draw(positive, 2, &desc, both, 2) == 0);
    CHECK(draw(positive, 2, &desc, first_last, 2) == 0); /* 1 and 0.75 */
    desc.repeat_last = 1;
    CHECK(draw(positive, 2, &desc, first_last, 2) == 1); /* 1 and 1.5 */
    desc.repeat_last = 5;                                /* more than there are */
    CHECK(draw(positive, 2, &desc, zero, 1) == 1);
    desc.repeat_penalty = 0.5f; /* below 1 encourages */
    CHECK(draw(positive, 2, &desc, both + 1, 1) == 1);
    make_logits(logits, 20, 70);
    desc = plain(0.8f, 71);
    desc.repeat_penalty = 1.3f;
    check_draws("penalty 1.3", logits, 20, &desc, past, 6);
    desc.repeat_last = 3;
    check_draws("penalty 1.3 of the last 3", logits, 20, &desc, past, 6);
    desc.top_k = 8;
    desc.min_p = 0.2f;
    check_draws("penalty 1.3 of the last 3, then filters", logits, 20, &desc, past, 6);
}

/* The caller's logits are read, never written. */
TEST(logits_stay)
{
    float logits[MOST], before[MOST];
    int32_t past[2] = {1, 2};
    attn_sampler_desc desc = plain(0.7f, 1);
    desc.top_k = 10;
    desc.top_p = 0.9f;
    desc.repeat_penalty = 1.5f;
    make_logits(logits, MOST, 2);
    memcpy(before, logits, sizeof logits);
    CHECK(draw(logits, MOST, &desc, past, 2) >= 0);
    CHECK(memcmp(before, logits, sizeof logits) == 0);
}

TEST(the_seed_decides)
{
    static const uint64_t seeds[4] = {42, 42, 43, 42 + ((uint64_t)1 << 32)};
    int32_t drawn[4][200], token;
    float logits[MOST];
    size_t i, run, differ = 0, high = 0;
    make_logits(logits, MOST, 12);
    for (run = 0; run < 4; run++) {
        attn_ctx ctx = {0};
        attn_sampler *sampler;
        attn_sampler_desc desc = plain(1, seeds[run]);
        if (!OK(&ctx, attn_sampler_new(&ctx, &sampler, MOST, &desc)))
            return;
        for (i = 0; i < 200; i++)
            drawn[run][i] =
                OK(&ctx, attn_sample(&ctx, &token, sampler, logits, NULL, 0)) ? token : -1;
        attn_sampler_free(sampler);
    }
    CHECK(memcmp(drawn[0], drawn[1], sizeof drawn[0]) == 0);
    for (i = 0; i < 200; i++)
        differ += drawn[0][i] != drawn[2][i];
    CHECKF(differ > 100, "seeds 42 and 43 differ in %d of 200 draws", (int)differ);
    for (i = 0; i < 200; i++)
        high += drawn[0][i] != drawn[3][i];
    CHECKF(high > 100, "seeds 42 and 2^32 + 42 differ in %d of 200 draws", (int)high);
}

TEST(extremes)
{
    const float hidden[4] = {-INFINITY, 1, -INFINITY, 1}, huge[3] = {-3e38f, 3e38f, 3e38f};
    const float certain[3] = {0, 1000, 0}, one[1] = {-3};
    size_t counts[4];
    attn_sampler_desc desc = plain(1, 3);
    if (count_draws(hidden, 4, &desc, NULL, 0, 1000, counts))
        CHECK(counts[1] > 400 && counts[3] > 400 && counts[1] + counts[3] == 1000);
    desc.top_k = 3; /* reaches into what is hidden */
    desc.top_p = 1;
    if (count_draws(hidden, 4, &desc, NULL, 0, 1000, counts))
        CHECK(counts[1] + counts[3] == 1000);
    desc.top_k = INT32_MAX;
    if (count_draws(certain, 3, &desc, NULL, 0, 100, counts))
        CHECK(counts[1] == 100);
    if (count_draws(one, 1, &desc, NULL, 0, 100, counts))
        CHECK(counts[0] == 100);
    desc.temperature = 0.5f; /* 3e38 / 0.5 is more than a float holds */
    if (count_draws(huge, 3, &desc, NULL, 0, 200, counts))
        CHECK(counts[0] == 0 && counts[1] > 50 && counts[2] > 50);
    desc.temperature = 1e-30f; /* nearly greedy */
    desc.top_k = 0;
    if (count_draws(certain, 3, &desc, NULL, 0, 100, counts))
        CHECK(counts[1] == 100);
    desc.temperature = 1e30f; /* nearly even */
    if (count_draws(certain, 3, &desc, NULL, 0, 600, counts))
        CHECK(counts[0] > 100 && counts[1] > 100 && counts[2] > 100);
    desc = plain(1, 3);
    desc.top_p = 1e-9f; /* never fewer than one */
    if (count_draws(certain, 3, &desc, NULL, 0, 100, counts))
        CHECK(counts[1] == 100);
}

/* NaN anywhere is an error, in every mode; so is a row in which nothing can be picked. */
TEST(nan_is_an_error)
{
    attn_sampler_desc modes[4];
    float logits[MOST];
    size_t mode, at;
    modes[0] = plain(0, 0);
    modes[1] = plain(1, 0);
    modes[2] = plain(1, 0);
    modes[2].top_k = 3;
    modes[3] = plain(0, 0);
    modes[3].repeat_penalty = 2;
    for (mode = 0; mode < 4; mode++)
        for (at = 0; at < MOST; at += 7) {
            attn_ctx ctx = {0};
            attn_sampler *sampler = NULL;
            int32_t token = 5, past = 0;
            make_logits(logits, MOST, 1);
            logits[at] = NAN;
            if (!OK(&ctx, attn_sampler_new(&ctx, &sampler, MOST, &modes[mode])))
                return;
            FAILS(&ctx, ATTN_E_ARGUMENT, "NaN",
                  attn_sample(&ctx, &token, sampler, logits, &past, 1));
            attn_sampler_free(sampler);
        }
}

static void refused(const char *text, attn_sampler_desc desc, size_t n_vocab)
{
    attn_ctx ctx = {0};
    attn_sampler *sampler = (attn_sampler *)(void *)&ctx; /* must be overwritten */
    FAILS(&ctx, ATTN_E_ARGUMENT, text, attn_sampler_new(&ctx, &sampler, n_vocab, &desc));
    CHECK(sampler == NULL);
}

TEST(arguments)
{
    const attn_sampler_desc good = plain(1, 0);
    const float bad[3] = {-1, NAN, INFINITY};
    attn_sampler_desc desc;
    size_t i;
    for (i = 0; i < 3; i++) {
        desc = good;
        desc.temperature = bad[i];
        refused("temperature", desc, 10);
        desc = good;
        desc.top_p = bad[i];
        refused("top_p", desc, 10);
        desc = good;
        desc.min_p = bad[i];
        refused("min_p", desc, 10);
        desc = good;
        desc.repeat_penalty = bad[i];
        refused("repeat_penalty", desc, 10);
    }
    desc = good;
    desc.top_k = -1;
    refused("top_k", desc, 10);
    desc = good;
    desc.top_p = 1.5f;
    refused("top_p", desc, 10);
    desc = good;
    desc.min_p = 1.5f;
    refused("min_p", desc, 10);
    refused("vocabulary of 0", good, 0);
}

/* An allocator that counts, and gives nothing once `left` is used up. */
typedef struct counter {
    size_t calls, left, alive;
} counter;

static void *count_alloc(size_t size, void *user)
{
    counter *c = (counter *)user;
    void *block = NULL;
    c->calls++;
    if (c->left) {
        c->left--;
        block = malloc(size);
        c->alive += block != NULL;
    }
    return block;
}

static void count_free(void *block, void *user)
{
    ((counter *)user)->alive -= block != NULL;
    free(block);
}

TEST(memory)
{
    counter c = {0, 0, 0};
    attn_ctx ctx = {0};
    attn_sampler *sampler = NULL;
    attn_sampler_desc desc = plain(0.8f, 1);
    float logits[MOST];
    int32_t token = 0, past[2] = {3, 4};
    size_t needed, calls;
    desc.top_k = 5;
    desc.top_p = 0.9f;
    desc.repeat_penalty = 1.1f;
    ctx.alloc = count_alloc;
    ctx.free = count_free;
    ctx.user = &c;
    make_logits(logits, MOST, 5);
    for (needed = 0; needed < 10; needed++) {
        c.left = needed;
        if (attn_sampler_new(&ctx, &sampler, MOST, &desc) == ATTN_OK)
            break;
        CHECK(sampler == NULL && ctx.status == ATTN_E_MEMORY && ctx.message[0] && c.alive == 0);
    }
    if (!CHECK(needed > 0 && needed < 10 && sampler))
        return;
    calls = c.calls;
    c.left = 0;
    OK(&ctx, attn_sample(&ctx, &token, sampler, logits, past, 2));
    CHECK(c.calls == calls); /* sampling allocates nothing */
    attn_sampler_free(sampler);
    CHECK(c.alive == 0);
    attn_sampler_free(NULL);
    memset(&ctx, 0, sizeof ctx);
    CHECK(attn_sampler_new(&ctx, &sampler, SIZE_MAX / 2, &desc) != ATTN_OK && sampler == NULL);
}

/* ---- generation ---- */

enum { TOTAL = 48 };
static const int drafts[] = {-1, 0, 7};

/* The prompt goes round in circles, so that there is something to draft. */
static const int32_t circle[] = {506, 511, 258, 433, 265, 506, 511, 258, 433, 265, 506, 511};

static attn_generate_desc after_circle(int32_t *ids, size_t *n, int n_draft)
{
    attn_generate_desc d;
    memset(&d, 0, sizeof d);
    d.prompt_ids = circle;
    d.n_prompt_ids = sizeof circle / sizeof circle[0];
    d.ignore_eos = 1;
    d.n_draft = n_draft;
    d.max_tokens = TOTAL;
    d.ids = ids;
    d.n_ids = n;
    return d;
}

/* TOTAL tokens in calls of `step` tokens, with one sampler. */
static void in_calls(attn_sampler_desc how, size_t step, int n_draft, int32_t *ids)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, tiny, 0, 0);
    attn_sampler *sampler = NULL;
    size_t n, at;
    OK(&ctx, attn_sampler_new(&ctx, &sampler, vocab_of(tiny), &how));
    for (at = 0; at < TOTAL; at += n) {
        attn_generate_desc d = after_circle(ids + at, &n, n_draft);
        d.sampler = sampler;
        d.max_tokens = step < TOTAL - at ? step : TOTAL - at;
        d.n_prompt_ids = at ? 0 : d.n_prompt_ids;
        if (!OK(&ctx, attn_generate(&ctx, session, NULL, &d, NULL, NULL)) ||
            !CHECK(n == d.max_tokens))
            break;
    }
    attn_sampler_free(sampler);
    attn_session_free(session);
}

/* A sampler that lives on draws in several calls what one call draws, whatever is drafted. */
TEST(a_sampler_lives_on)
{
    size_t i, step, n;
    for (i = 0; i < 6; i++) {
        attn_ctx ctx = alone();
        attn_session *session = session_on(&ctx, tiny, 0, 0);
        attn_sampler_desc how = plain(i < 3 ? 0.8f : 0.3f, 7 + i);
        int32_t want[TOTAL], got[TOTAL];
        attn_generate_desc d = after_circle(want, &n, drafts[i % 3]);
        how.repeat_penalty = i == 5 ? 1.2f : 0;
        d.sampling = how;
        OK(&ctx, attn_generate(&ctx, session, NULL, &d, NULL, NULL));
        for (step = 1; step <= TOTAL; step = 3 * step + 1) {
            in_calls(how, step, drafts[(i + step) % 3], got);
            CHECKF(memcmp(got, want, sizeof got) == 0, "seed %d in calls of %d: other tokens",
                   (int)how.seed, (int)step);
        }
        attn_session_free(session);
    }
}

TEST(samplers_that_do_not_fit)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, tiny, 0, 0);
    attn_sampler *sampler = NULL, *other = NULL;
    attn_sampler_desc one[7];
    int32_t ids[TOTAL];
    size_t n, i;
    attn_generate_desc d = after_circle(ids, &n, 0);
    memset(one, 0, sizeof one);
    one[0].temperature = one[2].top_p = one[3].min_p = one[4].repeat_penalty = 1;
    one[1].top_k = 1;
    one[5].repeat_last = 1;
    one[6].seed = 1;
    OK(&ctx, attn_sampler_new(&ctx, &sampler, vocab_of(tiny), NULL));
    OK(&ctx, attn_sampler_new(&ctx, &other, 97, NULL));
    d.sampler = sampler;
    for (i = 0; i < 7; i++) {
        d.sampling = one[i];
        FAILS(&ctx, ATTN_E_ARGUMENT, "both", attn_generate(&ctx, session, NULL, &d, NULL, NULL));
    }
    memset(&d.sampling, 0, sizeof d.sampling);
    d.sampler = other;
    FAILS(&ctx, ATTN_E_ARGUMENT, "97", attn_generate(&ctx, session, NULL, &d, NULL, NULL));
    CHECK(attn_session_length(session) == 0 && n == 0);
    attn_sampler_free(sampler);
    attn_sampler_free(other);
    attn_session_free(session);
}

/* ---- callbacks on logits ---- */

/* What a callback saw, and what it does. */
typedef struct watcher {
    attn_ctx *ctx;
    size_t calls, stop_at;   /* stop_at: this call stops; 0 none does */
    int32_t last[TOTAL + 1]; /* before each draw, and a number of the logits then */
    float logit[TOTAL + 1];
    size_t length[TOTAL + 1];
    const int32_t *forced; /* if not NULL: the only tokens it leaves, one a call */
    int32_t forbidden;     /* else a token that it forbids, or -1 */
    int feeds, forbids_all;
} watcher;

static int watch(float *logits, const attn_session *session, void *user)
{
    watcher *w = (watcher *)user;
    const size_t n_vocab = vocab_of(tiny), length = attn_session_length(session);
    const size_t call = w->calls++;
    size_t i;
    if (!CHECK(call <= TOTAL))
        return 1;
    same_floats(logits, attn_logits(session), 1, n_vocab, "the copy of the logits");
    w->length[call] = length;
    w->last[call] = attn_session_tokens(session)[length - 1];
    w->logit[call] = logits[call];
    if (w->feeds)
        FAILS(w->ctx, ATTN_E_ARGUMENT, "callback",
              attn_feed(w->ctx, (attn_session *)(uintptr_t)session, circle, 1));
    for (i = 0; i < n_vocab; i++)
        if (w->forbids_all || (w->forced && (int32_t)i != w->forced[call]) ||
            (int32_t)i == w->forbidden)
            logits[i] = -INFINITY;
    return w->calls == w->stop_at;
}

static watcher watching(attn_ctx *ctx)
{
    watcher w;
    memset(&w, 0, sizeof w);
    w.ctx = ctx;
    w.forbidden = -1;
    return w;
}

/* A callback is called once for each token, with a session as it is without drafts. */
TEST(logits_are_shown)
{
    attn_ctx ctx = alone();
    watcher want = watching(&ctx);
    int32_t ids[3][TOTAL];
    size_t i, n;
    for (i = 0; i < 3; i++) {
        attn_session *session = session_on(&ctx, tiny, 0, 0);
        attn_generate_desc d = after_circle(ids[i], &n, drafts[i]);
        watcher w = watching(&ctx);
        w.feeds = i == 2;
        d.sampling = plain(0.5f, 3);
        d.logits_fn = watch;
        d.logits_user = &w;
        OK(&ctx, attn_generate(&ctx, session, NULL, &d, NULL, NULL));
        w.feeds = 0;
        if (i == 0)
            want = w;
        CHECKF(n == TOTAL && w.calls == TOTAL && w.length[0] == d.n_prompt_ids &&
                   w.length[TOTAL - 1] == d.n_prompt_ids + TOTAL - 1,
               "%d calls, the last with %d tokens", (int)w.calls, (int)w.length[TOTAL - 1]);
        CHECK(memcmp(ids[i], ids[0], sizeof ids[0]) == 0 && memcmp(&w, &want, sizeof w) == 0);
        CHECK(memcmp(w.last + 1, ids[0], (TOTAL - 1) * sizeof *w.last) == 0);
        CHECK(attn_logits(session) && attn_session_length(session) == d.n_prompt_ids + TOTAL);
        attn_session_free(session);
    }
}

/* A forbidden token never comes; the others are those of a loop that forbids it by hand. */
TEST(logits_are_changed)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, tiny, 0, 0), *other = session_on(&ctx, tiny, 0, 0);
    int32_t ids[TOTAL], usual[TOTAL];
    float *const logits = (float *)pool_new(vocab_of(tiny) * sizeof *logits);
    attn_sampler *greedy = NULL;
    size_t i, n;
    watcher w = watching(&ctx);
    attn_generate_desc d = after_circle(usual, &n, 0);
    OK(&ctx, attn_sampler_new(&ctx, &greedy, vocab_of(tiny), NULL));
    OK(&ctx, attn_generate(&ctx, session, NULL, &d, NULL, NULL));
    OK(&ctx, attn_truncate(&ctx, session, 0));
    d = after_circle(ids, &n, 0);
    d.logits_fn = watch;
    d.logits_user = &w;
    w.forbidden = usual[5];
    OK(&ctx, attn_generate(&ctx, session, NULL, &d, NULL, NULL));
    OK(&ctx, attn_feed(&ctx, other, circle, d.n_prompt_ids));
    for (i = 0; i < TOTAL; i++) {
        int32_t token = -1;
        memcpy(logits, attn_logits(other), vocab_of(tiny) * sizeof *logits);
        logits[usual[5]] = -INFINITY;
        OK(&ctx, attn_sample(&ctx, &token, greedy, logits, NULL, 0));
        CHECKF(ids[i] == token && token != usual[5], "token %d is %d", (int)i, (int)ids[i]);
        OK(&ctx, attn_feed(&ctx, other, &token, 1));
    }
    same_logits(attn_logits(session), attn_logits(other), 1, tiny, "the last logits");
    w.forbids_all = 1;
    w.calls = 0;
    FAILS(&ctx, ATTN_E_ARGUMENT, "all logits are -inf",
          attn_generate(&ctx, session, NULL, &d, NULL, NULL));
    CHECK(n == 0);
    attn_sampler_free(greedy);
    attn_session_free(session);
    attn_session_free(other);
    pool_clear();
}

/* ---- why it ended ---- */

TEST(stopped_by_logits)
{
    attn_ctx ctx = alone();
    int32_t ids[TOTAL];
    size_t at, n;
    for (at = 1; at < 30; at += 7) {
        attn_session *session = session_on(&ctx, tiny, 0, 0);
        watcher w = watching(&ctx);
        attn_stop_reason reason = ATTN_STOP_NONE;
        attn_generate_desc d = after_circle(ids, &n, drafts[at % 3]);
        w.stop_at = at;
        d.logits_fn = watch;
        d.logits_user = &w;
        d.reason = &reason;
        FAILS(&ctx, ATTN_STOPPED, "callback", attn_generate(&ctx, session, "", &d, NULL, NULL));
        CHECK(n == at - 1 && reason == ATTN_STOP_CALLBACK);
        CHECK(attn_session_length(session) == d.n_prompt_ids + n && attn_logits(session));
        attn_session_free(session);
    }
}

typedef struct heard {
    char text[4000];
    size_t size, pieces, most; /* most: pieces to take before it asks to stop; 0: all */
} heard;

static int hear(const char *text, size_t size, void *user)
{
    heard *h = (heard *)user;
    if (CHECK(h->size + size < sizeof h->text))
        memcpy(h->text + h->size, text, size);
    h->size += size;
    return ++h->pieces == h->most;
}

TEST(reasons)
{
    static const char *const stop[] = {"upon"};
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, tiny, 20, 0);
    attn_stop_reason reason = ATTN_STOP_EOS;
    const int32_t eos = attn_model_config(tiny)->eos;
    heard h;
    watcher w = watching(&ctx);
    attn_generate_desc d;
    memset(&h, 0, sizeof h);
    memset(&d, 0, sizeof d);
    d.reason = &reason;
    FAILS(&ctx, ATTN_E_ARGUMENT, "", attn_generate(&ctx, session, "", &d, NULL, NULL));
    CHECK(reason == ATTN_STOP_NONE);
    d.max_tokens = 16; /* which just fit */
    OK(&ctx, attn_generate(&ctx, session, "Once upon a time", &d, NULL, NULL));
    CHECK(reason == ATTN_STOP_COUNT && attn_session_length(session) == 20);
    OK(&ctx, attn_generate(&ctx, session, NULL, &d, NULL, NULL));
    CHECK(reason == ATTN_STOP_CONTEXT && attn_session_length(session) == 20);
    d.max_tokens = 1; /* drawn, though it does not fit */
    OK(&ctx, attn_generate(&ctx, session, NULL, &d, NULL, NULL));
    CHECK(reason == ATTN_STOP_COUNT);
    d.max_tokens = 0;
    h.most = 3;
    OK(&ctx, attn_truncate(&ctx, session, 0));
    FAILS(&ctx, ATTN_STOPPED, "", attn_generate(&ctx, session, "Once upon", &d, hear, &h));
    CHECK(reason == ATTN_STOP_CALLBACK);
    w.forced = &eos;
    d.logits_fn = watch;
    d.logits_user = &w;
    OK(&ctx, attn_truncate(&ctx, session, 0));
    OK(&ctx, attn_generate(&ctx, session, "Once upon", &d, NULL, NULL));
    CHECK(reason == ATTN_STOP_EOS && attn_session_length(session) == 2);
    d.logits_fn = NULL;
    d.stop = stop;
    d.n_stop = 1;
    OK(&ctx, attn_truncate(&ctx, session, 0));
    OK(&ctx, attn_feed(&ctx, session, circle, 1));
    OK(&ctx, attn_generate(&ctx, session, NULL, &d, NULL, NULL));
    CHECKF(reason == ATTN_STOP_STRING, "%s", attn_stop_reason_name(reason));
    CHECK(strcmp(attn_stop_reason_name(ATTN_STOP_NONE), "none") == 0);
    CHECK(strcmp(attn_stop_reason_name(ATTN_STOP_EOS), "end of text") == 0);
    CHECK(strcmp(attn_stop_reason_name(ATTN_STOP_COUNT), "token count") == 0);
    CHECK(strcmp(attn_stop_reason_name(ATTN_STOP_CONTEXT), "context full") == 0);
    CHECK(strcmp(attn_stop_reason_name(ATTN_STOP_CALLBACK), "callback") == 0);
    CHECK(strcmp(attn_stop_reason_name(ATTN_STOP_STRING), "stop string") == 0);
    CHECK(strcmp(attn_stop_reason_name((attn_stop_reason)6), "none") == 0);
    attn_session_free(session);
}

/* ---- stop strings ---- */

static int32_t byte_token(unsigned char byte)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(tiny);
    int32_t id;
    size_t size;
    for (id = 0; id < (int32_t)vocab_of(tiny); id++) {
        const char *text = attn_token_bytes(&size, tokenizer, id);
        if (text && size == 1 && (unsigned char)*text == byte)
            return id;
    }
    test_fail(__FILE__, __LINE__, "no token for byte %02x", byte);
    return 0;
}

/* Ids of a text: a token for each byte, or the tokenizer's. */
static size_t ids_for(const char *text, int bytewise, int32_t *ids)
{
    attn_ctx ctx = alone();
    size_t n = 0;
    if (!bytewise)
        OK(&ctx,
           attn_encode(&ctx, ids, TOTAL, &n, attn_model_tokenizer(tiny), text, strlen(text), 0));
    for (; bytewise && text[n]; n++)
        ids[n] = byte_token((unsigned char)text[n]);
    return n;
}

static int begins(const char *string, const char *text, size_t n)
{
    return n <= strlen(string) && memcmp(string, text, n) == 0;
}

/* By the definition: how much of the first n bytes of a text is handed over, and whether they hold
 * a stop string. */
static size_t handed_over(const char *text, size_t n, const char *const *stop, size_t n_stop,
                          int *found)
{
    size_t end, from, i;
    *found = 0;
    for (end = 1; end <= n; end++)
        for (from = 0; from < end; from++)
            for (i = 0; i < n_stop; i++)
                if (end - from == strlen(stop[i]) && begins(stop[i], text + from, end - from)) {
                    *found = 1;
                    return from;
                }
    for (from = 0; from < n; from++)
        for (i = 0; i < n_stop; i++)
            if (begins(stop[i], text + from, n - from))
                return from;
    return n;
}

/* A text that is forced on the model, and what should have been handed over before each draw. */
typedef struct recital {
    const char *text, *const *stop;
    size_t n_stop, at; /* at: tokens so far */
    int32_t ids[TOTAL];
    heard heard;
} recital;

static int recite(float *logits, const attn_session *session, void *user)
{
    recital *r = (recital *)user;
    size_t i, size, bytes = 0;
    int found;
    (void)session;
    for (i = 0; i < r->at; i++) {
        attn_token_bytes(&size, attn_model_tokenizer(tiny), r->ids[i]);
        bytes += size;
    }
    i = handed_over(r->text, bytes, r->stop, r->n_stop, &found);
    CHECKF(!found, "\"%s\": generation went on after a stop string", r->text);
    CHECKF(r->heard.size == i && memcmp(r->heard.text, r->text, i) == 0,
           "\"%s\" after %d bytes: \"%s\" was handed over, not %d bytes", r->text, (int)bytes,
           r->heard.text, (int)i);
    for (i = 0; i < vocab_of(tiny); i++)
        if ((int32_t)i != r->ids[r->at])
            logits[i] = -INFINITY;
    r->at++;
    return 0;
}

static void check_stops(const char *text, const char *const *stop, size_t n_stop, int bytewise,
                        int n_draft)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, tiny, 0, 0);
    attn_stop_reason reason;
    attn_generate_desc d;
    recital r;
    size_t n, n_ids, want, size = strlen(text);
    int found;
    memset(&r, 0, sizeof r);
    memset(&d, 0, sizeof d);
    r.text = text;
    r.stop = stop;
    r.n_stop = n_stop;
    n = ids_for(text, bytewise, r.ids);
    want = handed_over(text, size, stop, n_stop, &found);
    d.max_tokens = n;
    d.prompt_ids = circle;
    d.n_prompt_ids = 1;
    d.n_draft = n_draft;
    d.stop = stop;
    d.n_stop = n_stop;
    d.reason = &reason;
    d.n_ids = &n_ids;
    d.logits_fn = recite;
    d.logits_user = &r;
    OK(&ctx, attn_generate(&ctx, session, NULL, &d, hear, &r.heard));
    CHECKF(reason == (found ? ATTN_STOP_STRING : ATTN_STOP_COUNT), "\"%s\" ended by %s", text,
           attn_stop_reason_name(reason));
    want = found ? want : size;
    CHECKF(r.heard.size == want && memcmp(r.heard.text, text, want) == 0,
           "of \"%s\" was heard \"%s\"", text, r.heard.text);
    CHECK(n_ids == r.at && attn_session_length(session) == 1 + n_ids);
    attn_session_free(session);
}

TEST(stop_strings)
{
    static const char *const overlapping[] = {"abcd", "bc", "bcx"}, *const aab[] = {"aab"};
    static const char *const turns[] = {"\nUser:", "\nBot:"}, *const end[] = {".", "end"};
    static const char *const accents[] = {"\xC3\xA9t", "\xE2\x82\xAC"};
    int way;
    for (way = 0; way < 4; way++) {
        const int bytewise = way % 2, n_draft = way < 2 ? -1 : 0;
        check_stops("xabcdx", overlapping, 3, bytewise, n_draft); /* "bc" ends first */
        check_stops("aaaaab", aab, 1, bytewise, n_draft);
        check_stops("aacaabaab", aab, 1, bytewise, n_draft);
        check_stops("aaaaaa", aab, 1, bytewise, n_draft); /* held back to the end, then let go */
        check_stops("Hello\nUs\nUser: you", turns, 2, bytewise, n_draft);
        check_stops("Hello\nBo", turns, 2, bytewise, n_draft);
        check_stops("upon a time.", end, 2, bytewise, n_draft);
        check_stops("the endless", end, 2, bytewise, n_draft);
        check_stops("caf\xC3\xA9 \xC3\xA8 \xC3\xA9\xC3\xA9t\xC3\xA9", accents, 2, bytewise,
                    n_draft);
        check_stops("\xE2\x82\xAD is \xE2\x82\xAC!", accents, 2, bytewise, n_draft);
    }
}

/* Short strings of few letters meet in every way. */
TEST(any_stop_strings)
{
    char text[33], strings[3][6];
    const char *stop[3];
    size_t i, j, k;
    random_state = 1;
    for (i = 0; i < 150; i++) {
        const size_t n = 1 + random_below(32), n_stop = 1 + random_below(3);
        for (j = 0; j < n; j++)
            text[j] = "aab "[random_below(4)];
        text[n] = 0;
        for (j = 0; j < n_stop; j++) {
            const size_t length = 1 + random_below(5);
            for (k = 0; k < length; k++)
                strings[j][k] = "aab "[random_below(4)];
            strings[j][length] = 0;
            stop[j] = strings[j];
        }
        check_stops(text, stop, n_stop, i % 2, (int)(i % 3) - 1);
    }
}

TEST(stop_strings_that_cannot_be)
{
    static const char *const empty[] = {"a", ""}, *const none[] = {NULL}, *const fine[] = {"a"};
    attn_ctx ctx = alone();
    attn_model *bare = converted("tests/golden/plain", "plain.attn", "--no-tokenizer");
    attn_session *session = session_on(&ctx, tiny, 0, 0), *other = session_on(&ctx, bare, 0, 0);
    attn_generate_desc d;
    memset(&d, 0, sizeof d);
    d.prompt_ids = circle + 2;
    d.n_prompt_ids = 1;
    d.n_stop = 2;
    FAILS(&ctx, ATTN_E_ARGUMENT, "stop is NULL",
          attn_generate(&ctx, session, NULL, &d, NULL, NULL));
    d.stop = empty;
    FAILS(&ctx, ATTN_E_ARGUMENT, "stop string 1 is empty",
          attn_generate(&ctx, session, NULL, &d, NULL, NULL));
    d.stop = none;
    FAILS(&ctx, ATTN_E_ARGUMENT, "stop string 0 is NULL",
          attn_generate(&ctx, session, NULL, &d, NULL, NULL));
    d.stop = fine;
    d.n_stop = 1;
    FAILS(&ctx, ATTN_E_TOKENIZER, "stop strings", attn_generate(&ctx, other, NULL, &d, NULL, NULL));
    CHECK(attn_session_length(session) == 0 && attn_session_length(other) == 0);
    attn_session_free(session);
    attn_session_free(other);
    attn_model_close(bare);
}

/* ---- several texts at once ---- */

static const char *const openings[] = {"Once upon a time",    "The cat",    "One day, a dog",
                                       "Once upon a time",    "Lily was",   "a b a b a b a b a b",
                                       "There was a caf\xC3", "Tom and Sue"};
enum { TEXTS = sizeof openings / sizeof openings[0] };

/* Each text is the one that attn_generate makes alone, with its seed. */
static void same_texts(const attn_continuation *texts, size_t n, attn_generate_desc d)
{
    size_t i;
    for (i = 0; i < n; i++) {
        attn_ctx ctx = alone();
        attn_session *session = session_on(&ctx, tiny, 0, 0);
        attn_stop_reason reason;
        attn_generate_desc one = d;
        int32_t ids[300];
        size_t n_ids;
        heard h;
        memset(&h, 0, sizeof h);
        one.sampling.seed += i;
        one.prompt_ids = texts[i].prompt_ids;
        one.n_prompt_ids = texts[i].n_prompt_ids;
        one.ids = ids;
        one.n_ids = &n_ids;
        one.reason = &reason;
        OK(&ctx, attn_generate(&ctx, session, texts[i].prompt, &one, hear, &h));
        CHECKF(n_ids == texts[i].n_ids && memcmp(ids, texts[i].ids, n_ids * sizeof *ids) == 0,
               "text %d: other tokens than alone", (int)i);
        CHECKF(h.size == texts[i].size && strlen(texts[i].text) == h.size &&
                   memcmp(h.text, texts[i].text, h.size) == 0,
               "text %d: \"%s\"", (int)i, texts[i].text);
        CHECKF(reason == texts[i].reason, "text %d ended by %s, alone by %s", (int)i,
               attn_stop_reason_name(texts[i].reason), attn_stop_reason_name(reason));
        attn_session_free(session);
    }
}

TEST(many_texts)
{
    static const char *const stop[] = {".", "and the"};
    attn_ctx ctx = alone();
    attn_continuation texts[TEXTS];
    attn_generate_desc d;
    size_t i, round, n_passes;
    for (round = 0; round < 4; round++) {
        const size_t n = round == 1 ? 2 : TEXTS;
        memset(texts, 0xA5, sizeof texts);
        memset(&d, 0, sizeof d);
        for (i = 0; i < n; i++) {
            texts[i].prompt = openings[i];
            texts[i].prompt_ids = i == 4 ? circle : NULL;
            texts[i].n_prompt_ids = 9;
            memset(texts[i].reserved, 0, sizeof texts[i].reserved);
        }
        d.max_tokens = round == 2 ? 250 : 40;
        d.sampling = plain(round ? 0.7f : 0, 5);
        d.n_draft = round == 3 ? 7 : 0;
        d.prepend_bos = round == 1;
        d.ignore_eos = round == 2; /* then the context ends them */
        d.stop = stop;
        d.n_stop = round == 3 ? 2 : 0;
        d.n_passes = &n_passes;
        OK(&ctx, attn_generate_many(&ctx, texts, n, tiny, &d));
        CHECKF(n_passes <= d.max_tokens, "%d passes", (int)n_passes);
        CHECK(texts[0].reason == (round == 2   ? ATTN_STOP_COUNT
                                  : round == 3 ? ATTN_STOP_STRING
                                               : texts[0].reason));
        same_texts(texts, n, d);
        attn_continuations_free(texts, n);
        CHECK(!texts[0].text && !texts[0].ids && texts[0].prompt == openings[0]);
    }
    attn_continuations_free(NULL, 3);
}

static int end_the_first(float *logits, const attn_session *session, void *user)
{
    (void)logits;
    return attn_session_tokens(session)[0] == *(const int32_t *)user &&
           attn_session_length(session) > 14;
}

TEST(many_texts_end_for_themselves)
{
    attn_ctx ctx = alone();
    attn_continuation texts[2];
    attn_generate_desc d;
    int32_t first = circle[0];
    memset(texts, 0, sizeof texts);
    memset(&d, 0, sizeof d);
    texts[0].prompt_ids = circle;
    texts[0].n_prompt_ids = 12;
    texts[1].prompt = "The cat";
    d.max_tokens = 20;
    d.ignore_eos = 1;
    d.logits_fn = end_the_first;
    d.logits_user = &first;
    OK(&ctx, attn_generate_many(&ctx, texts, 2, tiny, &d));
    CHECK(texts[0].reason == ATTN_STOP_CALLBACK && texts[0].n_ids == 3);
    CHECK(texts[1].reason == ATTN_STOP_COUNT && texts[1].n_ids == 20);
    attn_continuations_free(texts, 2);
}

TEST(many_texts_refused)
{
    attn_ctx ctx = alone();
    attn_continuation texts[3];
    attn_generate_desc d;
    int32_t *const ids = random_tokens(tiny, 300, 1), id;
    attn_stop_reason reason;
    size_t n;
    attn_sampler *sampler = NULL;
    memset(texts, 0, sizeof texts);
    memset(&d, 0, sizeof d);
    texts[0].prompt = texts[1].prompt = "a";
    FAILS(&ctx, ATTN_E_ARGUMENT, "item 2: the prompt is empty",
          attn_generate_many(&ctx, texts, 3, tiny, &d));
    CHECK(!texts[0].text && !texts[1].ids);
    texts[2].prompt_ids = ids;
    texts[2].n_prompt_ids = 300;
    FAILS(&ctx, ATTN_E_CONTEXT, "item 2: the prompt has 300 tokens",
          attn_generate_many(&ctx, texts, 3, tiny, NULL));
    ids[1] = 2048;
    texts[2].n_prompt_ids = 2;
    FAILS(&ctx, ATTN_E_TOKEN, "item 2: attn_feed: token 1 is 2048",
          attn_generate_many(&ctx, texts, 3, tiny, NULL));
    CHECK(!texts[0].text && texts[0].n_ids == 0);
    FAILS(&ctx, ATTN_E_ARGUMENT, "no texts", attn_generate_many(&ctx, NULL, 3, tiny, NULL));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no texts", attn_generate_many(&ctx, texts, 0, tiny, NULL));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no model", attn_generate_many(&ctx, texts, 3, NULL, NULL));
    OK(&ctx, attn_sampler_new(&ctx, &sampler, vocab_of(tiny), NULL));
    d.sampler = sampler;
    FAILS(&ctx, ATTN_E_ARGUMENT, "->sampler", attn_generate_many(&ctx, texts, 2, tiny, &d));
    d.sampler = NULL;
    d.prompt_ids = ids;
    FAILS(&ctx, ATTN_E_ARGUMENT, "->prompt_ids", attn_generate_many(&ctx, texts, 2, tiny, &d));
    d.prompt_ids = NULL;
    d.ids = &id;
    FAILS(&ctx, ATTN_E_ARGUMENT, "->ids", attn_generate_many(&ctx, texts, 2, tiny, &d));
    d.ids = NULL;
    d.n_ids = &n;
    FAILS(&ctx, ATTN_E_ARGUMENT, "->n_ids", attn_generate_many(&ctx, texts, 2, tiny, &d));
    d.n_ids = NULL;
    d.reason = &reason;
    FAILS(&ctx, ATTN_E_ARGUMENT, "->reason", attn_generate_many(&ctx, texts, 2, tiny, &d));
    attn_sampler_free(sampler);
    pool_clear();
}

/* Logits that all move by the same number say the same: every filter, every seed, the same token.
 * (Multiples of 1/256 moved by 512 keep their differences exactly. What centring the unembedding
 * does to a model's logits is in the suite of lenses.) */
TEST(shifted_logits)
{
    attn_ctx ctx = {0};
    uint64_t seed;
    random_state = 3;
    for (seed = 0; seed < 200; seed++) {
        attn_sampler_desc d;
        attn_sampler *a = NULL, *b = NULL;
        float x[200], y[200];
        int32_t from_x = -1, from_y = -2;
        size_t i;
        memset(&d, 0, sizeof d);
        d.temperature = 0.7f;
        d.top_k = seed % 3 ? 0 : 20;
        d.top_p = seed % 5 ? 0 : 0.8f;
        d.min_p = seed % 7 ? 0 : 0.05f;
        d.seed = seed;
        for (i = 0; i < 200; i++) {
            x[i] = (float)(int)random_below(2048) / 256 - 4;
            y[i] = x[i] + 512;
        }
        OK(&ctx, attn_sampler_new(&ctx, &a, 200, &d));
        OK(&ctx, attn_sampler_new(&ctx, &b, 200, &d));
        OK(&ctx, attn_sample(&ctx, &from_x, a, x, NULL, 0));
        OK(&ctx, attn_sample(&ctx, &from_y, b, y, NULL, 0));
        CHECKF(from_x == from_y, "seed %d: %d and %d", (int)seed, (int)from_x, (int)from_y);
        attn_sampler_free(a);
        attn_sampler_free(b);
    }
}
