#!/usr/bin/env python3
"""Writes tests/fixtures/spread.bin: intervals and p-values of numbers of pairs, by SciPy.

    python3 tests/makers/make_spread_fixtures.py [tests/fixtures/spread.bin]

Needs SciPy and numpy. "N.each" [N, 2 + 4] has N pairs as spread.h takes them. "N.KIND.ends" [4, 2] are the ends of
the intervals by the words of Mersenne Twister in numpy, ".scipy" [4, 2] those of scipy.stats.bootstrap, which draws
others, ".p" [4] the p-values of scipy.stats.permutation_test and ".holm" [4] the same with Holm's correction. The
last two columns are those of the corrupted text: no change. KIND is 1 (changes) or 2 (shares), as in spread.h. compare_spread.py
has the definitions; the layout is in fixture_file.py.

"joint.each" [6, 2 + 9] are symmetric matrices [3, 3] of six pairs. "joint.diagonal" and "joint.beside" [3, 3] are the
p-values, with Holm's correction over the six entries, or the three beside the diagonal; there it has those without one.
"""
import os
import sys

import numpy as np

from fixture_file import save

here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(here, "compare", "truth"))
from compare_spread import holm, of_scipy, of_twister


def main():
    written, random = [], np.random.default_rng(58)
    for n in (5, 13, 14, 60):
        each = random.normal(size=(n, 6)) * 0.7 + (3, 0, 0.5, 0, 0, 0)
        each = each.astype(np.float32)
        each[:, 4:] = each[:, 1:2]
        written.append((f"{n}.each", 0, each))
        numbers = each.astype(float)
        for kind in (1, 2):
            gaps = numbers[:, 0] - numbers[:, 1] if kind == 2 else np.ones(n)
            columns = [numbers[:, 2 + k] - numbers[:, 1] for k in range(4)]
            scipy = np.array([of_scipy(x, gaps) for x in columns])
            for name, array in (("ends", [of_twister(x, gaps) for x in columns]), ("scipy", scipy[:, :2]), ("p", scipy[:, 2]),
                                ("holm", holm(scipy[:, 2]))):
                written.append((f"{n}.{kind}.{name}", 0, np.array(array, np.float32)))
    matrices = random.normal(size=(6, 3, 3)) * 0.4 + 1
    matrices = np.triu(matrices) + np.triu(matrices, 1).transpose(0, 2, 1)
    matrices[:, 0, 1] = matrices[:, 1, 0] = 1, 2, 1, 1, -0.5, 1
    matrices = matrices.astype(np.float32)
    written.append(("joint.each", 0, np.concatenate([np.zeros((6, 2), np.float32), matrices.reshape(6, 9)], 1)))
    p = {(a, b): of_scipy(matrices[:, a, b].astype(float), np.ones(6))[2] for a in range(3) for b in range(3)}
    for name, step in (("diagonal", 0), ("beside", 1)):
        tests = [(a, b) for a in range(3) for b in range(a + step, 3)]
        corrected = {**p, **dict(zip(tests, holm(np.array([p[test] for test in tests]))))}
        written.append((f"joint.{name}", 0, np.array([[corrected[min(a, b), max(a, b)] for a in range(3)] for b in range(3)], np.float32)))
    save(sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "fixtures", "spread.bin"), written)


if __name__ == "__main__":
    main()
