/* How certain a mean over pairs of texts is: an interval, and the p-value of no effect. Uses attn.h's public API
 * only.
 *
 * lens_patch, lens_patch_paths, lens_exact_effects and lens_edge_curve write the numbers of every pair into `each`
 * of their description, [n_pairs, 2 + n_numbers]: the metric of the clean text, that of the corrupted text, and
 * then the numbers of the result. From these,
 *
 *     interval    95 %, by the percentile bootstrap (Efron 1979): 10,000 times as many pairs are drawn, with
 *                 replacement, and the mean taken; the interval leaves out the lowest and the highest 2.5 %
 *     p           of the sign-flip test (Fisher 1935), two-sided: every value keeps its sign or gets the other one,
 *                 and p is the share of these choices after which the mean is at least as far from 0. Up to 13
 *                 pairs have all 2^n choices. More pairs have 10,000 random ones, of which k are as far, and p is
 *                 (1 + k) / 10,001
 *
 * and lens_holm corrects the p-values of a table for the number of its entries. The draws begin with the seed 0
 * for each number, so that the digits are the same on every machine, and do not depend on the other numbers. */
#ifndef LENS_SPREAD_H
#define LENS_SPREAD_H

#include "result.h"
#include <stdlib.h>

enum { LENS_RESAMPLES = 10000 };

/* The number whose spread is asked for. */
typedef enum lens_spread_kind {
    LENS_SPREAD_VALUES = 0, /* the mean of the values */
    LENS_SPREAD_CHANGES,    /* the mean of value - corrupted */
    LENS_SPREAD_SHARES /* the same, divided by the mean of clean - corrupted over the same pairs */
} lens_spread_kind;

typedef struct lens_spread {
    double mean;      /* or share */
    double low, high; /* the interval */
    double p;         /* these three are NaN if a value is not finite */
} lens_spread;

/* Does the test try all choices of signs? */
LENS_FN int lens_flips_all(size_t n_pairs)
{
    return n_pairs < 32 && (size_t)1 << n_pairs <= LENS_RESAMPLES;
}

/* The p-value of values [n]. Equal sums in another order may differ by rounding, hence the tolerance. */
LENS_FN double lens_sign_flip(const double *values, size_t n)
{
    const int all = lens_flips_all(n);
    const size_t n_flips = all ? (size_t)1 << n : (size_t)LENS_RESAMPLES;
    double sum = 0, size = 0;
    size_t n_as_far = 0;
    attn_rng rng;
    attn_rng_seed(&rng, 0);
    for (size_t j = 0; j < n; j++) {
        sum += values[j];
        size += fabs(values[j]);
    }
    for (size_t i = 0; i < n_flips; i++) {
        double flipped = 0;
        for (size_t j = 0; j < n; j++) {
            const size_t negative = all ? i >> j & 1 : attn_rng_u32(&rng) >> 31;
            flipped += negative ? -values[j] : values[j];
        }
        n_as_far += fabs(flipped) >= fabs(sum) - 1e-12 * size;
    }
    return (double)(n_as_far + !all) / (double)(n_flips + !all);
}

LENS_FN int lens_compare_numbers(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The sum of values divided by that of gaps; 0 if that is 0. */
LENS_FN double lens_share(double sum, double gap)
{
    return gap < 0 || gap > 0 ? sum / gap : 0;
}

/* Fills *s from values and gaps [n]. `means` is room for LENS_RESAMPLES + 1 numbers. */
LENS_FN void lens_bootstrap(lens_spread *s, double *means, const double *values, const double *gaps,
                            size_t n)
{
    double sum = 0, gap = 0;
    size_t j;
    attn_rng rng;
    attn_rng_seed(&rng, 0);
    for (size_t i = 0; i <= LENS_RESAMPLES; i++) { /* last, the values as they are */
        for (sum = gap = 0, j = 0; j < n; j++) {
            const size_t drawn =
                i < LENS_RESAMPLES ? (size_t)((uint64_t)attn_rng_u32(&rng) * n >> 32) : j;
            sum += values[drawn];
            gap += gaps[drawn];
        }
        means[i] = lens_share(sum, gap);
    }
    s->mean = means[LENS_RESAMPLES];
    s->low = s->high = s->p = (double)NAN;
    if (!isfinite(sum) || !isfinite(gap))
        return;
    qsort(means, LENS_RESAMPLES, sizeof *means, lens_compare_numbers);
    s->low = means[LENS_RESAMPLES / 40];
    s->high = means[LENS_RESAMPLES - LENS_RESAMPLES / 40 - 1];
    s->p = lens_sign_flip(values, n);
}

/* Checks that there are enough pairs for a spread. */
LENS_FN attn_status lens_need_spread(attn_ctx *ctx, size_t n_pairs)
{
    return n_pairs > 1
               ? ATTN_OK
               : attn_fail(ctx, ATTN_E_ARGUMENT, "an interval needs two pairs or more; got %llu",
                           LENS_LLU(n_pairs));
}

/* spreads [n_numbers] of each [n_pairs, 2 + n_numbers]. ATTN_STOPPED if the caller asks to stop. */
LENS_FN attn_status lens_spreads(attn_ctx *ctx, lens_spread *spreads, const float *each,
                                 size_t n_pairs, size_t n_numbers, lens_spread_kind kind)
{
    double *values;
    size_t k;
    if (!spreads || !each)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "lens_spreads: no %s given",
                         spreads ? "values of the pairs" : "place for the spreads");
    if (lens_need_spread(ctx, n_pairs) != ATTN_OK)
        return lens_failure(ctx);
    if ((unsigned)kind > LENS_SPREAD_SHARES)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "lens_spreads: kind is %d; expected LENS_SPREAD_VALUES, _CHANGES or "
                         "_SHARES",
                         (int)kind);
    values =
        (double *)attn_alloc(ctx, 2 * n_pairs + LENS_RESAMPLES + 1, sizeof *values, "resamples");
    if (!values)
        return lens_failure(ctx);
    double *gaps = values + n_pairs;
    for (k = 0; k < n_numbers && !lens_is_stopped(ctx); k++) {
        for (size_t i = 0; i < n_pairs; i++) {
            const float *const row = each + i * (2 + n_numbers);
            const double clean = (double)row[0], corrupted = (double)row[1];
            values[i] = (double)row[2 + k] - (kind == LENS_SPREAD_VALUES ? 0 : corrupted);
            gaps[i] = kind == LENS_SPREAD_SHARES ? clean - corrupted : 1;
        }
        lens_bootstrap(&spreads[k], gaps + n_pairs, values, gaps, n_pairs);
    }
    attn_free(values);
    return k < n_numbers ? ATTN_STOPPED : ATTN_OK;
}

typedef struct lens_p_value {
    double p;  /* stands first, for lens_compare_numbers */
    size_t at; /* the number that it is of */
} lens_p_value;

/* Corrects the p-values of spreads [n] (Holm 1979): the k-th smallest, from 0, becomes n - k times as large, but not
 * smaller than the one before, nor larger than 1. NaN stays, and does not count. */
LENS_FN attn_status lens_holm(attn_ctx *ctx, lens_spread *spreads, size_t n)
{
    lens_p_value *const sorted =
        (lens_p_value *)attn_alloc(ctx, n ? n : 1, sizeof *sorted, "a list of p-values");
    double last = 0;
    size_t n_sorted = 0;
    if (!sorted)
        return lens_failure(ctx);
    for (size_t i = 0; i < n; i++)
        if (!isnan(spreads[i].p)) {
            sorted[n_sorted].p = spreads[i].p;
            sorted[n_sorted++].at = i;
        }
    qsort(sorted, n_sorted, sizeof *sorted, lens_compare_numbers);
    for (size_t i = 0; i < n_sorted; i++) {
        const double p = (double)(n_sorted - i) * sorted[i].p;
        last = p > last ? p : last;
        spreads[sorted[i].at].p = last = last < 1 ? last : 1;
    }
    attn_free(sorted);
    return ATTN_OK;
}

/* The same correction for a symmetric matrix, spreads [n, n]: each pair counts once. diagonal: 1 corrects the diagonal
 * with the pairs, 0 leaves its p-values as they are. */
LENS_FN attn_status lens_holm_pairs(attn_ctx *ctx, lens_spread *spreads, size_t n, int diagonal)
{
    const size_t step = diagonal ? 0 : 1;
    lens_spread *const once =
        (lens_spread *)attn_alloc(ctx, n ? n * n : 1, sizeof *once, "p-values of pairs");
    size_t a, n_once = 0;
    if (!once)
        return lens_failure(ctx);
    for (a = 0; a < n; a++)
        for (size_t b = a + step; b < n; b++)
            once[n_once++] = spreads[a * n + b];
    attn_status status = lens_holm(ctx, once, n_once);
    for (n_once = a = 0; a < n; a++)
        for (size_t b = a + step; b < n; b++)
            spreads[a * n + b].p = spreads[b * n + a].p = once[n_once++].p;
    attn_free(once);
    return status;
}

#endif
