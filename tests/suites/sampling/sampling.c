/* Sampling against its definitions. Probabilities are worked out here in double precision straight
 * from the formulas, and what is drawn is compared by Pearson's chi-square test or, where filters
 * are concerned, as sets. Seeds are fixed, so a case that passes once passes always. */
#include "tests/support/models.h"

SUITE();

enum { MOST = 64 }; /* tokens in these vocabularies */

/* Any numbers do; these come from a congruence (Knuth's MMIX constants), not from the library. */
static void make_logits(float *logits, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        logits[i] = (float)(seed >> 40) / (float)(1 << 24) * 4 - 2;
    }
}

/* Draws `draws` times and counts each token. 0 after a failure, which is then reported. */
static int count_draws(const float *logits, size_t n, const attn_sampler_desc *desc,
                       const int32_t *past, size_t n_past, size_t draws, size_t *counts)
{
    attn_ctx ctx = {0};
    attn_sampler *sampler = NULL;
    int fine = OK(&ctx, attn_sampler_new(&ctx, &sampler, n, desc));
    memset(counts, 0, n * sizeof *counts);
    for (size_t i = 0; fine && i < draws; i++) {
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
    size_t counts[MOST];
    if (count_draws(logits, n, desc, past, n_past, 1, counts))
        for (size_t i = 0; i < n; i++)
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
    if (desc->top_k > 0 && desc->top_k < kept)
        kept = desc->top_k;
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
    double p[MOST], chi2 = 0;
    size_t counts[MOST], degrees = 0;
    define(logits, n, desc, past, n_past, p);
    if (!count_draws(logits, n, desc, past, n_past, draws, counts))
        return;
    for (size_t i = 0; i < n; i++) {
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
    double bound = (double)degrees + 6 * sqrt(2 * (double)degrees) + 14;
    CHECKF(chi2 < bound, "%s: chi-square %.1f with %d degrees of freedom", what, chi2,
           (int)degrees);
}

TEST(greedy_takes_the_first_of_the_largest)
{
    const float tie[5] = {1, 3, -2, 3, 3}, negative[3] = {-5, -4, -4};
    const float hidden[3] = {-INFINITY, -100, -INFINITY}, first[2] = {0, 0}, one[1] = {-7};
    attn_sampler_desc desc = sampler_of(0, 5);
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
    attn_sampler_desc desc = sampler_of(0, 0);
    for (size_t n = 1; n <= MOST; n++)
        for (size_t at = 0; at<n; at += n> 20 ? 3 : 1) {
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
    const attn_sampler_desc desc = sampler_of(0, 0);
    attn_ctx ctx = {0};
    attn_sampler *sampler = NULL;
    int32_t token;
    OK(&ctx, attn_sampler_new(&ctx, &sampler, LARGE, &desc));
    for (size_t i = 0; logits && i < LARGE; i++)
        logits[i] = -1.0f - (float)(i * 7919 % 1000);
    for (size_t i = 0; logits && i < sizeof places / sizeof places[0]; i++) {
        for (size_t j = i; j < sizeof places / sizeof places[0]; j += 2)
            logits[places[j]] = 4;
        token = -1;
        OK(&ctx, attn_sample(&ctx, &token, sampler, logits, NULL, 0));
        CHECKF(token == (int32_t)places[i], "%ld, not %ld", (long)token, (long)places[i]);
        for (size_t j = i; j < sizeof places / sizeof places[0]; j += 2)
            logits[places[j]] = -3;
    }
    /* of two that are no numbers the first is named, whatever lies between them */
    if (logits) {
        logits[1500] = logits[40000] = NAN;
        logits[30000] = 9;
        FAILS(ARGUMENT, "the logit of token 1500 is NaN",
              attn_sample(&ctx, &token, sampler, logits, NULL, 0));
    }
    attn_sampler_free(sampler);
    free(logits);
}

TEST(temperature_follows_softmax)
{
    const float temperatures[4] = {0.5f, 0.7f, 1, 3};
    float logits[MOST];
    for (size_t i = 0; i < 4; i++) {
        attn_sampler_desc desc = sampler_of(temperatures[i], 11 + i);
        make_logits(logits, 20, 3 + i);
        check_draws(test_text("temperature %g", (double)temperatures[i]), logits, 20, &desc, NULL,
                    0);
    }
}

TEST(filters_keep_the_right_tokens)
{
    static const struct {
        size_t k;
        float p, min;
    } filters[] = {{1, 0, 0},        {7, 0, 0},       {20, 0, 0},      {1000, 0, 0},
                   {0, 0.5f, 0},     {0, 0.9f, 0},    {0, 1, 0},       {0, 0.01f, 0},
                   {0, 0, 0.1f},     {0, 0, 0.5f},    {0, 0, 1},       {5, 0.6f, 0},
                   {12, 0.95f, 0},   {9, 0, 0.3f},    {0, 0.8f, 0.2f}, {15, 0.9f, 0.1f},
                   {3, 1, 0.05f},    {10, 0.999f, 0}, {1, 0.1f, 0.9f}, {0, 0.99f, 0.4f},
                   {12, 0.98f, 0.4f}};
    float logits[MOST];
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        attn_sampler_desc desc = sampler_of(0.9f, 100 + i);
        desc.top_k = filters[i].k;
        desc.top_p = filters[i].p;
        desc.min_p = filters[i].min;
        make_logits(logits, 20, 50 + i);
        check_draws(test_text("top-k %d, top-p %g, min-p %g", (int)filters[i].k,
                              (double)filters[i].p, (double)filters[i].min),
                    logits, 20, &desc, NULL, 0);
    }
}

/* 0.4, 0.3, 0.2, 0.1: what top-k leaves is 4/7 and 3/7, so top-p 0.5 keeps one, though 0.4 < 0.5.
 */
TEST(top_p_counts_what_top_k_left)
{
    const float logits[4] = {-0.916290732f, -1.203972804f, -1.609437912f, -2.302585093f};
    attn_sampler_desc desc = sampler_of(1, 1);
    size_t counts[4];
    desc.top_p = 0.5f;
    if (count_draws(logits, 4, &desc, NULL, 0, 2000, counts))
        CHECK(counts[0] && counts[1] && !counts[2] && !counts[3]);
    desc.top_k = 2;
    if (count_draws(logits, 4, &desc, NULL, 0, 2000, counts))
        EQUAL(counts[0], 2000);
}

/* What a filter's bound meets exactly: top-p stops there, min-p keeps it. */
TEST(filters_at_their_bound)
{
    const float logits[8] = {-1, 4, 4, -1, 4, 4, -1, -1};
    attn_sampler_desc desc = sampler_of(1, 2);
    size_t counts[8];
    desc.top_k = 4;
    desc.top_p = 0.5f;
    if (count_draws(logits, 8, &desc, NULL, 0, 500, counts))
        CHECK(counts[1] && counts[2] && counts[1] + counts[2] == 500);
    desc = sampler_of(1, 3);
    desc.min_p = 1;
    if (count_draws(logits, 8, &desc, NULL, 0, 500, counts))
        CHECK(counts[1] && counts[2] && counts[4] && counts[5] &&
              counts[1] + counts[2] + counts[4] + counts[5] == 500);
}

/* Infinite logits cannot be weighed: the first of the largest is taken. */
TEST(infinite_logits)
{
    float logits[8] = {1, 2, INFINITY, 3, INFINITY, -INFINITY, 0, 1};
    attn_sampler_desc desc = sampler_of(1, 4);
    for (size_t i = 0; i < 3; i++) {
        desc.top_k = i == 1 ? 3 : 0;
        desc.top_p = i == 2 ? 0.9f : 0;
        CHECK(draw(logits, 8, &desc, NULL, 0) == 2);
    }
    for (size_t i = 0; i < 8; i++)
        logits[i] = -INFINITY;
    logits[6] = 1; /* the only one that can come */
    CHECK(draw(logits, 8, &desc, NULL, 0) == 6);
}

/* Where no token is possible none is picked, whatever the sampler: not even a greedy one. */
TEST(no_token_is_possible)
{
    float logits[3] = {-INFINITY, -INFINITY, -INFINITY};
    const int32_t before[3] = {0, 1, 2};
    for (int i = 0; i < 4; i++) {
        attn_ctx ctx = {0};
        attn_sampler *sampler;
        attn_sampler_desc desc = sampler_of(i % 2 ? 1.0f : 0.0f, 4);
        int32_t token = 77;
        desc.repeat_penalty = i / 2 ? 2.0f : 0.0f;
        if (!OK(&ctx, attn_sampler_new(&ctx, &sampler, 3, &desc)))
            return;
        FAILS(ARGUMENT, "all logits are -inf",
              attn_sample(&ctx, &token, sampler, logits, before, 3));
        EQUAL(token, 77);
        attn_sampler_free(sampler);
    }
    for (int i = 0; i < 3; i++) /* the penalty makes them so */
        logits[i] = -3e38f;
    {
        attn_ctx ctx = {0};
        attn_sampler *sampler;
        attn_sampler_desc desc = sampler_of(0, 4);
        int32_t token = 77;
        desc.repeat_penalty = 2;
        if (!OK(&ctx, attn_sampler_new(&ctx, &sampler, 3, &desc)))
            return;
        FAILS(ARGUMENT, "all logits are -inf",
              attn_sample(&ctx, &token, sampler, logits, before, 3));
        attn_sampler_free(sampler);
    }
}

/* Tokens that the vocabulary does not have are no tokens that were seen. */
TEST(seen_outside_the_vocabulary)
{
    const float logits[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    const int32_t outside[4] = {-1, 16, INT32_MAX, INT32_MIN};
    attn_sampler_desc desc = sampler_of(0, 5);
    desc.repeat_penalty = 4;
    CHECK(draw(logits, 16, &desc, outside, 4) == 15);
}

TEST(top_k_keeps_k_of_equals)
{
    const float logits[6] = {1, 2, 2, 2, 2, 0};
    size_t counts[6], i, kept;
    for (size_t k = 1; k <= 4; k++) {
        attn_sampler_desc desc = sampler_of(1, 9);
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
    attn_sampler_desc desc = sampler_of(1, 4);
    size_t fine = 0;
    desc.top_k = 40;
    desc.top_p = 0.999f;
    if (!CHECK(logits && counts))
        goto end;
    for (size_t i = 0; i < 40; i++)
        logits[(i * 1291 + 77) % n] = 5;
    if (!count_draws(logits, n, &desc, NULL, 0, 4000, counts))
        goto end;
    for (size_t i = 0; i < 40; i++) /* 100 each, give or take 10 */
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
    attn_sampler_desc desc = sampler_of(0, 0);
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
    desc = sampler_of(0.8f, 71);
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
    attn_sampler_desc desc = sampler_of(0.7f, 1);
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
    size_t differ = 0, high = 0;
    make_logits(logits, MOST, 12);
    for (size_t run = 0; run < 4; run++) {
        attn_ctx ctx = {0};
        attn_sampler *sampler;
        attn_sampler_desc desc = sampler_of(1, seeds[run]);
        if (!OK(&ctx, attn_sampler_new(&ctx, &sampler, MOST, &desc)))
            return;
        for (size_t i = 0; i < 200; i++)
            drawn[run][i] =
                OK(&ctx, attn_sample(&ctx, &token, sampler, logits, NULL, 0)) ? token : -1;
        attn_sampler_free(sampler);
    }
    CHECK(memcmp(drawn[0], drawn[1], sizeof drawn[0]) == 0);
    for (size_t i = 0; i < 200; i++)
        differ += drawn[0][i] != drawn[2][i];
    CHECKF(differ > 100, "seeds 42 and 43 differ in %d of 200 draws", (int)differ);
    for (size_t i = 0; i < 200; i++)
        high += drawn[0][i] != drawn[3][i];
    CHECKF(high > 100, "seeds 42 and 2^32 + 42 differ in %d of 200 draws", (int)high);
}

TEST(extremes)
{
    const float hidden[4] = {-INFINITY, 1, -INFINITY, 1}, huge[3] = {-3e38f, 3e38f, 3e38f};
    const float certain[3] = {0, 1000, 0}, one[1] = {-3};
    size_t counts[4];
    attn_sampler_desc desc = sampler_of(1, 3);
    if (count_draws(hidden, 4, &desc, NULL, 0, 1000, counts))
        CHECK(counts[1] > 400 && counts[3] > 400 && counts[1] + counts[3] == 1000);
    desc.top_k = 3; /* reaches into what is hidden */
    desc.top_p = 1;
    if (count_draws(hidden, 4, &desc, NULL, 0, 1000, counts))
        EQUAL(counts[1] + counts[3], 1000);
    desc.top_k = SIZE_MAX;
    if (count_draws(certain, 3, &desc, NULL, 0, 100, counts))
        EQUAL(counts[1], 100);
    if (count_draws(one, 1, &desc, NULL, 0, 100, counts))
        EQUAL(counts[0], 100);
    desc.temperature = 0.5f; /* 3e38 / 0.5 is more than a float holds */
    if (count_draws(huge, 3, &desc, NULL, 0, 200, counts))
        CHECK(counts[0] == 0 && counts[1] > 50 && counts[2] > 50);
    desc.temperature = 1e-30f; /* nearly greedy */
    desc.top_k = 0;
    if (count_draws(certain, 3, &desc, NULL, 0, 100, counts))
        EQUAL(counts[1], 100);
    desc.temperature = 1e30f; /* nearly even */
    if (count_draws(certain, 3, &desc, NULL, 0, 600, counts))
        CHECK(counts[0] > 100 && counts[1] > 100 && counts[2] > 100);
    desc = sampler_of(1, 3);
    desc.top_p = 1e-9f; /* never fewer than one */
    if (count_draws(certain, 3, &desc, NULL, 0, 100, counts))
        EQUAL(counts[1], 100);
}

/* NaN anywhere is an error, in every mode; so is a row in which nothing can be picked. */
TEST(nan_is_an_error)
{
    attn_sampler_desc modes[4];
    float logits[MOST];
    modes[0] = sampler_of(0, 0);
    modes[1] = sampler_of(1, 0);
    modes[2] = sampler_of(1, 0);
    modes[2].top_k = 3;
    modes[3] = sampler_of(0, 0);
    modes[3].repeat_penalty = 2;
    for (size_t mode = 0; mode < 4; mode++)
        for (size_t at = 0; at < MOST; at += 7) {
            attn_ctx ctx = {0};
            SCOPED_SAMPLER sampler = NULL;
            int32_t token = 5, past = 0;
            make_logits(logits, MOST, 1);
            logits[at] = NAN;
            if (!OK(&ctx, attn_sampler_new(&ctx, &sampler, MOST, &modes[mode])))
                return;
            FAILS(ARGUMENT, "NaN", attn_sample(&ctx, &token, sampler, logits, &past, 1));
        }
}

static void refused(const char *text, attn_sampler_desc desc, size_t n_vocab)
{
    attn_ctx ctx = {0};
    attn_sampler *sampler = (attn_sampler *)(void *)&ctx; /* must be overwritten */
    FAILS(ARGUMENT, text, attn_sampler_new(&ctx, &sampler, n_vocab, &desc));
    CHECK(sampler == NULL);
}

TEST(arguments)
{
    const attn_sampler_desc good = sampler_of(1, 0);
    const float bad[3] = {-1, NAN, INFINITY};
    attn_sampler_desc desc;
    for (size_t i = 0; i < 3; i++) {
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
    attn_sampler *sampler = NULL;
    attn_sampler_desc desc = sampler_of(0.8f, 1);
    float logits[MOST];
    int32_t token = 0, past[2] = {3, 4};
    size_t needed;
    desc.top_k = 5;
    desc.top_p = 0.9f;
    desc.repeat_penalty = 1.1f;
    attn_ctx ctx = {.alloc = count_alloc, .free = count_free, .user = &c};
    make_logits(logits, MOST, 5);
    for (needed = 0; needed < 10; needed++) {
        c.left = needed;
        if (attn_sampler_new(&ctx, &sampler, MOST, &desc) == ATTN_OK)
            break;
        CHECK(sampler == NULL && ctx.status == ATTN_E_MEMORY && ctx.message[0] && c.alive == 0);
    }
    if (!CHECK(needed > 0 && needed < 10 && sampler))
        return;
    size_t calls = c.calls;
    c.left = 0;
    OK(&ctx, attn_sample(&ctx, &token, sampler, logits, past, 2));
    EQUAL(c.calls, calls); /* sampling allocates nothing */
    attn_sampler_free(sampler);
    EQUAL(c.alive, 0);
    attn_sampler_free(NULL);
    memset(&ctx, 0, sizeof ctx);
    CHECK(attn_sampler_new(&ctx, &sampler, SIZE_MAX / 2, &desc) != ATTN_OK && sampler == NULL);
}

/* ---- several texts at once ---- */

/* Logits that all move by the same number say the same: every filter, every seed, the same token.
 * (Multiples of 1/256 moved by 512 keep their differences exactly. What centring the unembedding
 * does to a model's logits is in the suite of lenses.) */
TEST(shifted_logits)
{
    attn_ctx ctx = {0};
    random_state = 3;
    for (uint64_t seed = 0; seed < 200; seed++) {
        attn_sampler *a = NULL, *b = NULL;
        float x[200], y[200];
        int32_t from_x = -1, from_y = -2;
        attn_sampler_desc d = {.temperature = 0.7f,
                               .top_k = seed % 3 ? 0 : 20,
                               .top_p = seed % 5 ? 0 : 0.8f,
                               .min_p = seed % 7 ? 0 : 0.05f,
                               .seed = seed};
        for (size_t i = 0; i < 200; i++) {
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
