/* A logarithm with the same bits on every machine. */
#ifndef LENS_LOGARITHM_H
#define LENS_LOGARITHM_H

#include <math.h>

#define LENS_LOG_OF_2 0.69314718055994530942

/* a * b, rounded: through memory, because a compiler may otherwise make one operation of a product and
 * the sum that it goes into, with another rounding. */
static inline double lens_rounded_product(double a, double b)
{
    volatile double rounded = a * b;
    return rounded;
}

/* The natural logarithm of x, to 1e-15 of it: x = m * 2^k with m near 1, and log(m) = 2 * (s + s^3 / 3 +
 * s^5 / 5 + ...) with s = (m - 1) / (m + 1). The log of the C library has other bits elsewhere. */
static inline double lens_natural_log(double x)
{
    int k = 0;
    double m = frexp(x, &k), sum = 0;
    if (x <= 0)
        return -(double)INFINITY;
    if (m < 0.70710678118654752440) {
        m *= 2;
        k--;
    }
    double s = (m - 1) / (m + 1);
    for (int i = 21; i > 0; i -= 2)
        sum = lens_rounded_product(sum, lens_rounded_product(s, s)) + 1.0 / i;
    return lens_rounded_product(k, LENS_LOG_OF_2) + lens_rounded_product(2 * s, sum);
}

#endif
