#!/usr/bin/env python3
"""Compares the intervals and p-values of lens --ci with SciPy's, on the same numbers.

    compare_spread.py [BUILD]

Needs SciPy and numpy; BUILD (build) holds lens and the included model. Each command writes the numbers of every
pair (--each) and prints their spread (--ci). SciPy computes from these the percentile bootstrap
(scipy.stats.bootstrap, 10,000 resamples) and the sign-flip test (permutation_test, permutation_type="samples").
Its random numbers are others, so the ends of an interval agree to a part of its width, and p-values of more than
13 pairs to a few parts in a thousand; of fewer pairs p-values are exact. Mersenne Twister's words in numpy give
the ends themselves.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from scipy import stats

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


def taken(lines, kind):
    """values and gaps [n_pairs, n_cells] of lines of --each, in which the number stands last."""
    pairs = [[line for line in lines if line["pair"] == i] for i in range(lines[-1]["pair"] + 1)]
    cells = np.array([[list(line.values())[-1] for line in pair] for pair in pairs], float)
    if kind == "values":
        return cells, np.ones_like(cells)
    clean, corrupted = (np.array([pair[0][name] for pair in pairs])[:, None] for name in ("clean", "corrupted"))
    return cells - corrupted, (clean - corrupted if kind.startswith("shares") else 1) + np.zeros_like(cells)


def compare(lens, model, pairs, command, directory):
    each = os.path.join(directory, "each.jsonl")
    told = json.loads(subprocess.run([lens, model, *command, "--pairs", pairs, "--ci", "--json", "-q", "--each", each],
                                     check=True, stdout=subprocess.PIPE).stdout)
    with open(each) as file:
        values, gaps = taken([json.loads(line) for line in file], told["facts"][0]["ci_of"])
    rows = [row for table in told.values() for row in table if isinstance(row, dict) and row.get("low") is not None]
    low, high, ours = (np.array([row[name] for row in rows]) for name in ("low", "high", "p"))
    scipy = np.array([of_scipy(values[:, k], gaps[:, k]) for k in range(len(rows))])
    exact = np.array([of_twister(values[:, k], gaps[:, k]) for k in range(len(rows))])
    p = holm(scipy[:, 2])
    width = np.where(high > low, high - low, 1)
    off = np.abs(ours - p).max()
    part = max((np.abs(low - scipy[:, 0]) / width).max(), (np.abs(high - scipy[:, 1]) / width).max())
    digits = max(np.abs(low - exact[:, 0]).max(), np.abs(high - exact[:, 1]).max())
    print(f"{' '.join(command):42} {len(values):3} pairs {len(rows):4} cells: ends differ by at most {part:.4f} of the width "
          f"(by the same draws {digits:.1g}), corrected p by {off:.2g}; {told['facts'][0]['ci_of']}")
    return part < 0.1 and off < (1e-6 if len(values) <= 13 else 0.01 * len(p)) and digits < 1e-6


def write_pairs(path, n, shares):
    """Pairs whose answers differ much, so that lens shows shares of the gap, or little."""
    kinds, likes = ("boy", "girl", "dog", "cat", "bird"), ("little", "big", "happy", "sad", "small", "good", "new")
    verbs = (" was", " had", " said", " liked")
    with open(path, "w") as file:
        for i in range(n):
            start = f"Once upon a time, there was a {likes[i % 7]} "
            story = {"clean": start + "girl named", "corrupted": start + "boy named", "token": " Lily",
                     "against": (" Tim", " Tom", " Ben")[i % 3]}
            other = {"clean": f"Tom was a {kinds[i % 5]}. He", "corrupted": f"Tom was a {kinds[(i + 1 + i // 5 % 4) % 5]}. He",
                     "token": verbs[i % 4], "against": verbs[(i + 1) % 4]}
            print(json.dumps(story if shares else other), file=file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", nargs="?", default="build")
    build = parser.parse_args().build
    fine = True
    with tempfile.TemporaryDirectory() as directory:
        for n, shares in ((6, True), (13, False), (40, True)):
            pairs = os.path.join(directory, "pairs.jsonl")
            write_pairs(pairs, n, shares)
            for command in (["patch", "attn.hook_z"], ["patch", "--estimate", "hook_resid_mid"], ["path"], ["ablate"],
                            ["edges"], ["edges", "--exact"], ["edges", "--exact", "--of", "nodes"],
                            *[["edges", "--curve"]] * shares):  # shares of a small gap have no steady interval
                fine &= compare(os.path.join(build, "lens"), os.path.join(build, "tiny-stories.attn"), pairs, command, directory)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
