#!/usr/bin/env python3
"""Writes tests/fixtures/exact/interactions.bin: what pairs and sets of nodes do together, in small models.

    python3 tests/makers/make_interaction_fixtures.py [interactions.bin]

Needs numpy. Brute force in float64, a whole pass for each set, by the equations of make_exact_fixtures.py. "MODEL.CASE.clean"
and ".corrupted" are the texts, ".metric" [kind, from_end, token, against] (kinds of metric.h), ".ablation" that of
interaction.h, ".effects" [S, S] v of all pairs of nodes, of one on the diagonal; ".nodes" the nodes of the Shapley values,
".subsets" v of all sets of them, bit i for node i, and ".shapley" their values, with the interaction indices beside the
diagonal. These are means over all orders of the nodes, one by one.
"""
import itertools
import os
import sys

import numpy as np

from fixture_file import entry, save
from make_exact_fixtures import LOGIT, LOGIT_DIFF, LOSS, here, metric_of, open_model, texts

CORRUPTED, ZERO, MEAN = range(3)  # as in interaction.h


def effect_of_sets(model, clean, corrupted, metric, ablation):
    """v: the effect of ablating the named nodes together."""
    logits, writes = model.run(clean)
    n = len(clean) - metric[1]  # later positions have no effect, and no part in the mean
    other = model.run(corrupted)[1]
    instead = {CORRUPTED: lambda x, y: y, ZERO: lambda x, y: 0 * x, MEAN: lambda x, y: 0 * x + x[:n].mean(0)}[ablation]
    value = metric_of(logits, clean, metric)
    return lambda nodes: metric_of(model.run(clean, ablated={s: instead(writes[s], other[s]) for s in nodes})[0],
                                   clean, metric) - value


def shapley_by_orders(k, v):
    """v: of a set of numbers below k."""
    values, indices = np.zeros((k, k)), np.zeros((k, k))
    for order in itertools.permutations(range(k)):
        for at, a in enumerate(order):
            values[a, a] += v({*order[:at], a}) - v({*order[:at]})
    for a, b in itertools.combinations(range(k), 2):
        orders = list(itertools.permutations([i for i in range(k) if i != b]))  # a stands for both
        for order in orders:
            s = {*order[:order.index(a)]}
            indices[a, b] += (v(s | {a, b}) - v(s | {a}) - v(s | {b}) + v(s)) / len(orders)
    return values / len(list(itertools.permutations(range(k)))) + indices + indices.T


def main():
    cases = {"plain": [(6, 2, [LOGIT_DIFF, 0, 3, 8], ZERO, ["input", "a0.h1", "m0"])],
             "odd": [(7, 0, [LOGIT_DIFF, 0, 5, 6], CORRUPTED, ["a0.h1", "a0.h2", "m0", "a1.h0", "m1"]),
                     (6, 3, [LOGIT, 1, 9, 0], MEAN, ["a0.h0", "a1.h2"])],
             "narrow": [(6, 0, [LOSS, 0, 0, 0], CORRUPTED, ["input", "m0", "m1"])],
             "single": [(9, 4, [LOGIT_DIFF, 0, 1, 2], CORRUPTED, ["a0.h0"]), (5, 5, [LOGIT, 0, 3, 0], ZERO, ["a0.h0", "m0"])],
             "uneven": [(11, 7, [LOSS, 0, 0, 0], MEAN, ["input", "a0.h0", "m0", "a1.h0", "a1.h2", "m1"]),
                        (9, 3, [LOGIT_DIFF, 2, 7, 30], CORRUPTED, ["a1.h1", "m1"])]}
    rng, written = np.random.default_rng(58), []
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "fixtures", "exact", "interactions.bin")
    for name, of_model in cases.items():
        model = open_model(name)
        for i, (length, same, metric, ablation, nodes) in enumerate(of_model):
            clean, corrupted = texts(rng, model, length, same)
            v = effect_of_sets(model, clean, corrupted, metric, ablation)
            effects = [[v({a, b}) for b in model.senders] for a in model.senders]
            subsets = [v({s for k, s in enumerate(nodes) if bits >> k & 1}) for bits in range(2 ** len(nodes))]
            shapley = shapley_by_orders(len(nodes), lambda s: subsets[sum(1 << k for k in s)])
            assert abs(np.trace(shapley) - subsets[-1]) < 1e-9
            for key, x in (("clean", clean), ("corrupted", corrupted), ("metric", metric), ("ablation", [ablation]),
                           ("effects", effects), ("nodes", [model.senders.index(s) for s in nodes]),
                           ("subsets", subsets), ("shapley", shapley)):
                written.append(entry(f"{name}.{i}.{key}", x))
    save(out, written)


if __name__ == "__main__":
    main()
