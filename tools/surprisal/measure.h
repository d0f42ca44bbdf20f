/* Measures what a row of logits says, with the same bits on every machine: the logits are, attn_exp is,
 * and what follows is a fixed order of additions and of rounded products of doubles. */
#ifndef SURPRISAL_MEASURE_H
#define SURPRISAL_MEASURE_H

#include "tools/lens/logarithm.h"
#include "words.h"

enum {
    LANES = 8
}; /* element i of a sum is added to number i mod 8, so that a processor adds several */

static double sum_of_lanes(const double *lanes)
{
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

static float largest(const float *x, size_t n)
{
    float lanes[LANES], most;
    size_t i, k;
    for (k = 0; k < LANES; k++)
        lanes[k] = x[0];
    for (i = 0; i + LANES <= n; i += LANES)
        for (k = 0; k < LANES; k++)
            lanes[k] = x[i + k] > lanes[k] ? x[i + k] : lanes[k];
    for (; i < n; i++)
        lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
    for (most = lanes[0], k = 1; k < LANES; k++)
        most = lanes[k] > most ? lanes[k] : most;
    return most;
}

/* *sum = sum of e, *weighted = sum of e * x. The product of two floats is exact in a double. */
static void sum_row(const float *e, const float *x, size_t n, double *sum, double *weighted)
{
    double sums[LANES] = {0}, products[LANES] = {0};
    size_t i;
    for (i = 0; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++) {
            sums[k] += (double)e[i + k];
            products[k] += (double)e[i + k] * (double)x[i + k];
        }
    for (size_t k = 0; i < n; i++, k++) {
        sums[k] += (double)e[i];
        products[k] += (double)e[i] * (double)x[i];
    }
    *sum = sum_of_lanes(sums);
    *weighted = sum_of_lanes(products);
}

static double sum_of_set(const surprisal_run *r, int set)
{
    const attn_token *const ids = r->sets[set];
    const size_t n = r->set_sizes[set];
    double lanes[LANES] = {0};
    size_t i;
    for (i = 0; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            lanes[k] += (double)r->powers[ids[i + k]];
    for (size_t k = 0; i < n; i++, k++)
        lanes[k] += (double)r->powers[ids[i]];
    return sum_of_lanes(lanes);
}

/* r->powers = exp(logits - most). What would be less than exp(-200) becomes that, which is 0 too. */
static attn_status exponentials(surprisal_run *r, const float *logits, float most)
{
    const attn_shape shape = attn_shape1(r->n_vocab);
    attn_tensor powers = attn_borrow(r->powers, ATTN_F32, shape);
    for (size_t i = 0; i < r->n_vocab; i++) {
        const float less = logits[i] - most;
        r->less[i] = less < -200 ? -200 : less > 0 ? 0 : less;
    }
    return attn_exp(&r->ctx, &powers, attn_borrow(r->less, ATTN_F32, shape));
}

/* The log of the sum over a set of exp(logits - most). A set of improbable tokens is summed by exp(logits -
 * its own largest), because exp(logits - most) has few bits below 1e-38. */
static double log_of_set(surprisal_run *r, const float *logits, float most, int set)
{
    const attn_token *const ids = r->sets[set];
    const double sum = sum_of_set(r, set);
    float best = logits[ids[0]];
    if (sum > 1e-20)
        return lens_natural_log(sum);
    for (size_t i = 1; i < r->set_sizes[set]; i++)
        best = logits[ids[i]] > best ? logits[ids[i]] : best;
    exponentials(r, logits, best);
    return lens_natural_log(sum_of_set(r, set)) + ((double)best - (double)most);
}

/* order * (logit - most), which exp makes 0 below -200. */
static double scaled(double order, float logit, float most)
{
    const double x = lens_rounded_product(order, (double)logit - (double)most);
    return x < -200 ? -200 : x;
}

/* The entropy of Renyi, log(sum of p^order) / (1 - order). log_sum: the log of the sum of exp(logits -
 * most). attn_exp takes floats, so each power is multiplied by what rounding left out: exp(x) is 1 + x for
 * so small an x. */
static attn_status renyi_entropy(surprisal_run *r, const float *logits, float most, double log_sum,
                                 double *entropy)
{
    const attn_shape shape = attn_shape1(r->n_vocab);
    const double order = (double)r->o.renyi;
    attn_tensor powers = attn_borrow(r->powers, ATTN_F32, shape);
    double lanes[LANES] = {0};
    for (size_t i = 0; i < r->n_vocab; i++)
        r->less[i] = (float)scaled(order, logits[i], most);
    if (attn_exp(&r->ctx, &powers, attn_borrow(r->less, ATTN_F32, shape)))
        return r->ctx.status;
    for (size_t i = 0; i < r->n_vocab; i++)
        lanes[i % LANES] += lens_rounded_product(
            (double)r->powers[i], 1 + (scaled(order, logits[i], most) - (double)r->less[i]));
    *entropy = (lens_natural_log(sum_of_lanes(lanes)) - lens_rounded_product(order, log_sum)) /
               (1 - order);
    return ATTN_OK;
}

/* Of a row of logits: the largest, the log of the sum of exp(logits - most), and the mean of logits - most
 * by their probabilities. */
typedef struct softmax {
    float most;
    double log_sum, mean;
} softmax;

/* Measures how likely the token at position `at` and the end of the word before it are. */
static attn_status measure_likelihood(surprisal_run *r, const passage *p, size_t at,
                                      const float *logits, likelihood *to, softmax *s)
{
    double sum = 0, weighted = 0;
    s->most = largest(logits, r->n_vocab);
    if (exponentials(r, logits, s->most))
        return r->ctx.status;
    sum_row(r->powers, r->less, r->n_vocab, &sum, &weighted);
    s->log_sum = lens_natural_log(sum);
    s->mean = weighted / sum;
    if (p->sets[at])
        to->ends = log_of_set(r, logits, s->most, p->sets[at]) - s->log_sum;
    if (at < p->n)
        to->nll = s->log_sum - ((double)logits[p->ids[at]] - (double)s->most);
    return r->ctx.status;
}

/* Measures position `at` of a passage by its logits. */
static attn_status measure_token(surprisal_run *r, passage *p, size_t at, const float *logits)
{
    text_position *const to = &p->positions[at];
    const int is_known = r->o.rank && at < p->n; /* the next token, for its rank */
    attn_top top = ATTN_ZERO;
    attn_token_stats stats = ATTN_ZERO;
    softmax s = ATTN_ZERO;
    if (measure_likelihood(r, p, at, logits, &to->of, &s))
        return r->ctx.status;
    to->entropy = to->renyi = s.log_sum - s.mean; /* the same in order 1 */
    if (r->o.renyi > 0 && r->o.renyi != 1 &&
        renyi_entropy(r, logits, s.most, s.log_sum, &to->renyi))
        return r->ctx.status;
    top.best = p->best + (p->best ? at * r->o.top : 0);
    top.k = r->o.top;
    if (is_known || r->o.top)
        attn_logit_stats(&r->ctx, is_known ? &stats : NULL, r->o.top ? &top : NULL,
                         attn_borrow(logits, ATTN_F32, attn_shape2(1, r->n_vocab)),
                         is_known ? &p->ids[at] : NULL);
    to->rank = stats.rank;
    return r->ctx.status;
}

#endif
