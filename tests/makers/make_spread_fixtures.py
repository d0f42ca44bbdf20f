#!/usr/bin/env python3
"""Writes tests/fixtures/spread.bin: intervals and p-values of numbers of pairs, by SciPy.

    python3 tests/makers/make_spread_fixtures.py [tests/fixtures/spread.bin]

Needs SciPy and numpy. "N.each" [N, 2 + 4] has N pairs as spread.h takes them. "N.KIND.ends" [4, 2] are the ends of
the intervals by the words of Mersenne Twister in numpy, ".scipy" [4, 2] those of scipy.stats.bootstrap, which draws
others, ".p" [4] the p-values of scipy.stats.permutation_test and ".holm" [4] the same with Holm's correction. The
last two columns are those of the corrupted text: no change. KIND is 1 (changes) or 2 (shares), as in spread.h. The
layout is in fixture_file.py.

"joint.each" [6, 2 + 9] are symmetric matrices [3, 3] of six pairs. "joint.diagonal" and "joint.beside" [3, 3] are the
p-values, with Holm's correction over the six entries, or the three beside the diagonal; there it has those without one.
"""
import os
import sys

import numpy as np
from scipy import stats

from fixture_file import entry, save

here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
R = 10000


def drawn(n):
    """[R, n]: which pairs each resample has, by the words of Mersenne Twister from seed 0."""
    twister = np.random.RandomState(0)
    words = twister.randint(0, 2 ** 32, R * n, np.uint64)  # one word each: the range is that of a word
    return (words * np.uint64(n) >> np.uint64(32)).astype(int).reshape(R, n)


def of_twister(values, gaps):
    """The ends of the interval by these draws."""
    ratios = np.sort(values[drawn(len(values))].sum(1) / gaps[drawn(len(values))].sum(1))
    return ratios[R // 40], ratios[R - R // 40 - 1]


def of_scipy(values, gaps, seed=1):
    """The ends of the interval and the p-value, by SciPy."""
    if np.ptp(values) == 0 and np.ptp(gaps) == 0:
        low = high = values[0] / gaps[0]
    else:
        found = stats.bootstrap((values, gaps), lambda x, y, axis: x.sum(axis) / y.sum(axis), paired=True, vectorized=True,
                                n_resamples=R, method="percentile", rng=np.random.default_rng(seed))
        low, high = found.confidence_interval
    p = stats.permutation_test((values,), lambda x, axis: x.mean(axis), permutation_type="samples", vectorized=True, n_resamples=R,
                               rng=np.random.default_rng(seed)).pvalue
    return low, high, p


def holm(p):
    """Holm's correction."""
    order, out = np.argsort(p, kind="stable"), np.empty(len(p))
    out[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return out


def main():
    written, random = [], np.random.default_rng(58)
    for n in (5, 13, 14, 60):
        each = random.normal(size=(n, 6)) * 0.7 + (3, 0, 0.5, 0, 0, 0)
        each = each.astype(np.float32)
        each[:, 4:] = each[:, 1:2]
        written.append(entry(f"{n}.each", each))
        numbers = each.astype(float)
        for kind in (1, 2):
            gaps = numbers[:, 0] - numbers[:, 1] if kind == 2 else np.ones(n)
            columns = [numbers[:, 2 + k] - numbers[:, 1] for k in range(4)]
            scipy = np.array([of_scipy(x, gaps) for x in columns])
            for name, array in (("ends", [of_twister(x, gaps) for x in columns]), ("scipy", scipy[:, :2]), ("p", scipy[:, 2]),
                                ("holm", holm(scipy[:, 2]))):
                written.append(entry(f"{n}.{kind}.{name}", array))
    matrices = random.normal(size=(6, 3, 3)) * 0.4 + 1
    matrices = np.triu(matrices) + np.triu(matrices, 1).transpose(0, 2, 1)
    matrices[:, 0, 1] = matrices[:, 1, 0] = 1, 2, 1, 1, -0.5, 1
    matrices = matrices.astype(np.float32)
    written.append(entry("joint.each", np.concatenate([np.zeros((6, 2)), matrices.reshape(6, 9)], 1)))
    p = {(a, b): of_scipy(matrices[:, a, b].astype(float), np.ones(6))[2] for a in range(3) for b in range(3)}
    for name, step in (("diagonal", 0), ("beside", 1)):
        tests = [(a, b) for a in range(3) for b in range(a + step, 3)]
        corrected = {**p, **dict(zip(tests, holm(np.array([p[test] for test in tests]))))}
        written.append(entry(f"joint.{name}", [[corrected[min(a, b), max(a, b)] for a in range(3)] for b in range(3)]))
    save(sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "fixtures", "spread.bin"), written)


if __name__ == "__main__":
    main()
