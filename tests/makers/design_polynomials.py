#!/usr/bin/env python3
"""Finds the polynomials of attn.h's exp, log, tanh, erf and GELU.

Needs mpmath; takes some seconds; prints each polynomial's coefficients as floats, lowest power
first, and the largest weighted error that is left once all of them are floats.

Each polynomial is first a minimax fit (Remez's exchange on a dense grid, in 50 digits). Rounding a
coefficient to float spoils the fit, but the coefficients above it can make good for most of it: so
they are rounded one at a time, lowest power first, and those above are fitted again, by least
squares, to the unrounded polynomial.
"""
import struct
from mpmath import mp, mpf, cos, erfc, exp, expm1, inf, log, log1p, lu_solve, matrix, pi, sqrt, tanh
from mpmath import erf

mp.dps = 50


def to_float(value):
    """The nearest float32."""
    value = mpf(value)
    if value == 0:
        return mpf(0)
    ulp = mpf(2) ** (mp.floor(log(abs(value), 2)) - 23)
    return mp.nint(value / ulp) * ulp


def text(value):
    """Shortest of 9 digits that C reads back as the same float."""
    digits = "%.9g" % float(value)
    assert struct.unpack("f", struct.pack("f", float(digits)))[0] == float(value)
    return digits if "." in digits or "e" in digits else digits + ".0"


def remez(grid, target, weight, n):
    """The n coefficients c with the smallest max |weight * (sum c[j] x^j - target)|."""
    table = [[x ** p for p in range(n)] for x in grid]
    last = len(grid) - 1
    picks = [i * last // n for i in range(n + 1)]  # the grid is dense at its ends already
    best, best_worst = None, inf
    for _ in range(30):
        system, right = matrix(n + 1, n + 1), matrix(n + 1, 1)
        for row, i in enumerate(picks):
            for j in range(n):
                system[row, j] = table[i][j]
            system[row, n] = (-1) ** row / weight[i]
            right[row] = target[i]
        solution = lu_solve(system, right)
        c = [solution[j] for j in range(n)]
        error = [w * (sum(a * b for a, b in zip(c, row)) - t)
                 for w, row, t in zip(weight, table, target)]
        worst = max(abs(e) for e in error)
        if worst < best_worst:
            best, best_worst = c, worst
        if worst <= abs(solution[n]) * mpf("1.001"):
            break
        peaks = []  # the largest error between two changes of sign
        for i, e in enumerate(error):
            if peaks and (error[peaks[-1]] > 0) == (e > 0):
                if abs(e) > abs(error[peaks[-1]]):
                    peaks[-1] = i
            else:
                peaks.append(i)
        while len(peaks) > n + 1:
            drop = 0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else len(peaks) - 1
            del peaks[drop]
        if len(peaks) < n + 1:
            break
        picks = peaks
    return best


def least_squares(grid, target, weight, powers):
    """Coefficients with the smallest sum of squares of weight * (sum c[j] x^powers[j] - target)."""
    table = [[w * x ** p for p in powers] for w, x in zip(weight, grid)]
    n = len(powers)
    system, right = matrix(n, n), matrix(n, 1)
    for j in range(n):
        for k in range(n):
            system[j, k] = sum(row[j] * row[k] for row in table)
        right[j] = sum(row[j] * w * t for row, w, t in zip(table, weight, target))
    return lu_solve(system, right)


def evaluate(c, x):
    return sum(a * x ** power for power, a in enumerate(c))


def design(name, low, high, function, weight, degree, points=400):
    """Fits a polynomial to `function` on [low, high] and prints it. `weight` turns its error into
    the relative error of the result it is for."""
    low, high = mpf(low), mpf(high)
    grid = [(low + high) / 2 - (high - low) / 2 * cos(pi * (i + mpf(1) / 2) / points)
            for i in range(points)]
    target, weights = [function(x) for x in grid], [weight(x) for x in grid]
    ideal = remez(grid, target, weights, degree + 1)
    rest, rounded = [evaluate(ideal, x) for x in grid], []
    for power in range(degree + 1):
        c = least_squares(grid, rest, weights, list(range(power, degree + 1)))
        rounded.append(to_float(c[0]))
        rest = [r - rounded[-1] * x ** power for r, x in zip(rest, grid)]
    worst = [max(abs(w * (evaluate(c, x) - t)) for w, x, t in zip(weights, grid, target))
             for c in (rounded, ideal)]
    print("%s, degree %d, on [%.5g, %.5g]: error %.3g = 2^%.2f, before rounding 2^%.2f" %
          (name, degree, low, high, worst[0], log(worst[0], 2), log(worst[1], 2)))
    for power, c in enumerate(rounded):
        print("    %2d  %s" % (power, text(c)))
    return rounded


def split(name, value, bits):
    """`value` as a sum of two floats, the first with at most `bits` significant bits."""
    ulp = mpf(2) ** (mp.floor(log(abs(value), 2)) - (bits - 1))
    head = mp.nint(value / ulp) * ulp
    print("%s = %s + %s" % (name, text(head), text(to_float(value - head))))


def main():
    ln2 = log(mpf(2))
    split("ln 2 for exp (n times the first part is exact in a fused multiply-add)", ln2, 24)
    split("ln 2 for log (n times the first part is a float)", ln2, 16)
    print("log2(e) =", text(to_float(1 / ln2)))
    print("-2 sqrt(2/pi) log2(e) =", text(to_float(-2 * sqrt(2 / pi) / ln2)))
    split("sqrt(2)", sqrt(mpf(2)), 24)

    # exp(r) = 1 + r + r^2 p(r). Half a step of the reduction, and what its rounding may add.
    half = ln2 / 2 * mpf("1.0001")
    design("exp: p(r)", -half, half, lambda r: (expm1(r) - r) / r ** 2,
           lambda r: r ** 2 / exp(r), 4)
    # 2^f = 1 + f p(f)
    design("exp2: p(f)", -0.5, 0.5, lambda f: expm1(f * ln2) / f, lambda f: f / exp(f * ln2), 5)
    # log(1 + f) = f - f^2/2 + f^3 p(f) for 1 + f in [sqrt(1/2), sqrt(2)]
    design("log: p(f)", sqrt(mpf(1) / 2) - 1, sqrt(mpf(2)) - 1,
           lambda f: (log1p(f) - f + f * f / 2) / f ** 3, lambda f: f ** 3 / log1p(f), 8)
    # tanh(x) = x + x^3 p(x^2) near 0
    design("tanh: p(x^2)", "1e-9", mpf("0.625") ** 2,
           lambda v: (tanh(sqrt(v)) - sqrt(v)) / sqrt(v) ** 3,
           lambda v: sqrt(v) ** 3 / tanh(sqrt(v)), 4)
    # erf(x) = x + x p(x^2) near 0
    design("erf: p(x^2)", "1e-9", 1, lambda v: erf(sqrt(v)) / sqrt(v) - 1,
           lambda v: sqrt(v) / erf(sqrt(v)), 6)
    # The normal distribution's tail: Phi(-t) = exp(-t^2/2) p(q), q = (t - 3) / (t + 3), 0 <= t
    def mills(q):
        t = 3 * (1 + q) / (1 - q)
        return erfc(t / sqrt(mpf(2))) / 2 * exp(t * t / 2)

    design("tail: p(q)", -1, mpf("10.3") / mpf("16.3"), mills, lambda q: 1 / mills(q), 9)


if __name__ == "__main__":
    main()
