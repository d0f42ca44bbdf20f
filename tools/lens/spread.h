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

/* Numbers that are drawn for together: each has the same draws, and its own sums in the same order as alone. */
enum { LENS_LANES = 8 };

/* The p-values [LENS_LANES] of values [n, LENS_LANES]. Equal sums in another order may differ by rounding, hence the
 * tolerance. */
LENS_FN void lens_sign_flips(double *p, const double *values, size_t n)
{
    const int all = lens_flips_all(n);
    const size_t n_flips = all ? (size_t)1 << n : (size_t)LENS_RESAMPLES;
    double sum[LENS_LANES] = {0}, size[LENS_LANES] = {0};
    size_t n_as_far[LENS_LANES] = {0};
    attn_rng rng;
    attn_rng_seed(&rng, 0);
    for (size_t j = 0; j < n; j++)
        for (size_t k = 0; k < LENS_LANES; k++) {
            sum[k] += values[j * LENS_LANES + k];
            size[k] += fabs(values[j * LENS_LANES + k]);
        }
    for (size_t i = 0; i < n_flips; i++) {
        double flipped[LENS_LANES] = {0};
        for (size_t j = 0; j < n; j++) {
            const double sign = (all ? i >> j & 1 : attn_rng_u32(&rng) >> 31) ? -1 : 1;
            for (size_t k = 0; k < LENS_LANES; k++)
                flipped[k] += sign * values[j * LENS_LANES + k];
        }
        for (size_t k = 0; k < LENS_LANES; k++)
            n_as_far[k] += fabs(flipped[k]) >= fabs(sum[k]) - 1e-12 * size[k];
    }
    for (size_t k = 0; k < LENS_LANES; k++)
        p[k] = isfinite(sum[k]) ? (double)(n_as_far[k] + !all) / (double)(n_flips + !all)
                                : (double)NAN;
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

/* Number k of x [n] in ascending order, by Hoare's selection, which reorders x. No number is NaN. */
LENS_FN double lens_nth(double *x, size_t n, size_t k)
{
    ptrdiff_t low = 0, high = (ptrdiff_t)n - 1, i, j;
    while (low < high) {
        const double pivot = x[low + (high - low) / 2];
        for (i = low, j = high; i <= j;) {
            for (; x[i] < pivot; i++)
                continue;
            for (; x[j] > pivot; j--)
                continue;
            if (i <= j) {
                const double at = x[i];
                x[i++] = x[j];
                x[j--] = at;
            }
        }
        if ((ptrdiff_t)k > j && (ptrdiff_t)k < i)
            break;
        if ((ptrdiff_t)k <= j)
            high = j;
        else
            low = i;
    }
    return x[k];
}

/* Fills s [LENS_LANES] from values [n, LENS_LANES] and gaps [n]. `means` is room for [LENS_LANES, LENS_RESAMPLES + 1]. */
LENS_FN void lens_bootstrap(lens_spread *s, double *means, const double *values, const double *gaps,
                            size_t n)
{
    enum { EACH = LENS_RESAMPLES + 1 }; /* last, the values as they are */
    double sums[LENS_LANES], p[LENS_LANES], gap = 0;
    attn_rng rng;
    attn_rng_seed(&rng, 0);
    for (size_t i = 0; i < EACH; i++) {
        memset(sums, 0, sizeof sums);
        gap = 0;
        for (size_t j = 0; j < n; j++) {
            const size_t drawn =
                i < LENS_RESAMPLES ? (size_t)((uint64_t)attn_rng_u32(&rng) * n >> 32) : j;
            gap += gaps[drawn];
            for (size_t k = 0; k < LENS_LANES; k++)
                sums[k] += values[drawn * LENS_LANES + k];
        }
        for (size_t k = 0; k < LENS_LANES; k++)
            means[k * EACH + i] = lens_share(sums[k], gap);
    }
    lens_sign_flips(p, values, n);
    for (size_t k = 0; k < LENS_LANES; k++, means += EACH) {
        s[k].mean = means[LENS_RESAMPLES];
        s[k].low = s[k].high = s[k].p = (double)NAN;
        if (!isfinite(sums[k]) || !isfinite(gap))
            continue;
        s[k].low = lens_nth(means, LENS_RESAMPLES, LENS_RESAMPLES / 40);
        s[k].high = lens_nth(means, LENS_RESAMPLES, LENS_RESAMPLES - LENS_RESAMPLES / 40 - 1);
        s[k].p = p[k];
    }
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
    values = (double *)attn_alloc(
        ctx, (1 + LENS_LANES) * n_pairs + (size_t)LENS_LANES * (LENS_RESAMPLES + 1), sizeof *values,
        "resamples");
    if (!values)
        return lens_failure(ctx);
    double *const gaps = values + LENS_LANES * n_pairs;
    for (k = 0; k < n_numbers && !lens_is_stopped(ctx); k += LENS_LANES) {
        const size_t n = n_numbers - k < LENS_LANES ? n_numbers - k : LENS_LANES;
        lens_spread found[LENS_LANES];
        memset(values, 0, LENS_LANES * n_pairs * sizeof *values);
        for (size_t i = 0; i < n_pairs; i++) {
            const float *const row = each + i * (2 + n_numbers);
            const double clean = (double)row[0], corrupted = (double)row[1];
            for (size_t lane = 0; lane < n; lane++)
                values[i * LENS_LANES + lane] =
                    (double)row[2 + k + lane] - (kind == LENS_SPREAD_VALUES ? 0 : corrupted);
            gaps[i] = kind == LENS_SPREAD_SHARES ? clean - corrupted : 1;
        }
        lens_bootstrap(found, gaps + n_pairs, values, gaps, n_pairs);
        memcpy(spreads + k, found, n * sizeof *found);
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
