#!/usr/bin/env python3
"""How well estimates of edges and of nodes agree with their true effects: prints the two tables of estimates.tsv.

    compare_estimates.py [BUILD] [--pairs 24] [--train]

Models: the included one, with pairs that `lens pairs pronouns` makes, and that of examples/induction, with pairs that this
program draws (seed 49); with --train four more that examples/induction/train.py makes, in 10 to 30 minutes each and the
first time only: two from other seeds, one of 3 layers and one of 4. Needs numpy, and PyTorch to train; BUILD (build)
holds libattn.so, the programs and the models, and keeps those that were trained.

Estimates of edges: EAP, EAP-IG with 5 and 20 steps, GIM with 1 and 5; of nodes: attribution patching, write by write
(attribution by node). Each pair counts by itself: the figures are means over the pairs, and their 95 % intervals those of spread.h.
  rank correlation   Spearman's, over all edges whose effect or estimate is not zero
  false negatives    how many of the largest true effects, 1 % of the edges but at least ten (of nodes 10 %, but at least three), are not
                     among as many of the largest estimates
  CPR, CMD           MIB's, of the circuits that the scores find (curve.h): a larger CPR is better, a smaller CMD. Of edges only
A second table has the largest effects in the model of examples/induction, means over 48 pairs, and the estimates' ranks. PyTorch 2.15
trained the four models of estimates.tsv; another version may train others.
"""
import argparse
import json
import os
import subprocess
import sys

import numpy as np

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
ESTIMATES = {"EAP": (1, "plain"), "EAP-IG, 5 steps": (5, "plain"), "EAP-IG, 20 steps": (20, "plain"), "GIM": (1, "gim"),
             "GIM, 5 steps": (5, "gim")}
TRAINED = {"seed 2": "--seed 2", "seed 3": "--seed 3", "3 layers": "--layers 3", "4 layers": "--layers 4"}


def ranks(x):
    """Ranks, of equal numbers their mean."""
    _, at, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[at]


def compare(exact, estimate, share, least):
    """Rank correlation, and how many of the top are missed."""
    used = (exact != 0) | (estimate != 0)
    exact, estimate = exact[used].astype(float), estimate[used].astype(float)
    n = max(least, int(np.ceil(share * len(exact))))
    best = lambda x: set(np.argsort(-np.abs(x), kind="stable")[:n].tolist())
    return [np.corrcoef(ranks(exact), ranks(estimate))[0, 1], len(best(exact) - best(estimate))]


def node_estimates(attn, back, model, pair):
    """[senders]: (corrupted - clean write) · gradient in the clean text, summed over all positions."""
    swapped = attn.lens.Pair(pair.corrupted, pair.clean, pair.metric)
    heads = back.attribution_patch(swapped, "attn.hook_result")
    mlps = back.attribution_patch(swapped, "hook_mlp_out").sum(1)
    first = back.attribution_patch(swapped, "hook_resid_pre")[0].sum()
    return np.r_[first, np.concatenate([heads, mlps[:, None]], 1).ravel()]


def of_pair(attn, model, back, pair):
    """{estimate: [rank correlation, false negatives, CPR, CMD]}"""
    circuits = lambda scores: [attn.lens.curve(model, pair, scores).cpr, attn.lens.curve(model, pair, scores, "largest").cmd]
    exact = attn.lens.exact_effects(model, pair).effect
    nodes = attn.lens.exact_effects(model, pair, "nodes").effect
    found = {}
    for name, (steps, method) in ESTIMATES.items():
        scores = back.edge_scores(pair, steps, method=method)
        found[name] = compare(exact.ravel(), scores.ravel(), 0.01, 10) + circuits(scores)
    found["true effects"] = [np.nan, np.nan] + circuits(exact)
    found["attribution by node"] = compare(nodes, node_estimates(attn, back, model, pair), 0.1, 3) + [np.nan, np.nan]
    return found


def pronoun_pairs(attn, build, path, n):
    lines = subprocess.run([os.path.join(build, "lens"), path, "pairs", "pronouns", "--count", str(n)], check=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    for pair in map(json.loads, lines):
        yield attn.lens.Pair(pair["clean"], pair["corrupted"], attn.lens.logit_diff(pair["token"], pair["against"]))


def induction_pairs(attn, model, n):
    """[0, R, the first half of R]: the token that the text goes on with, and the one before it, differ where they first
    stand."""
    rng = np.random.default_rng(49)
    for _ in range(n):
        drawn = [int(x) for x in rng.choice(np.arange(1, model.config.n_vocab), 10, replace=False)]
        clean = [0] + drawn[:8] + drawn[:4]
        corrupted = clean[:4] + drawn[8:] + clean[6:]
        yield attn.lens.Pair(clean, corrupted, attn.lens.logit_diff(drawn[4], drawn[9]))


def rows_of(attn, title, model, pairs):
    back = attn.lens.Backward(model)
    found = [of_pair(attn, model, back, pair) for pair in pairs]
    for name in found[0]:
        none = np.zeros(len(found))
        spread = attn.lens.Each(np.array([f[name] for f in found]), none, none).spread()
        cells = ["" if np.isnan(mean) else f"{mean:.2f} ({low:.2f}–{high:.2f})" for mean, low, high, _ in zip(*spread)]
        print(title, name, *cells, sep="\t", flush=True)


def print_circuit(attn, model, pairs):
    """The largest effects of a model, and what the estimates say; ranks by magnitude."""
    back, pairs = attn.lens.Backward(model), list(pairs)
    senders, receivers = attn.lens.edge_names(model)
    exact = attn.lens.exact_effects(model, pairs).effect
    names = ["EAP", "EAP-IG, 20 steps", "GIM"]
    estimates = [back.edge_scores(pairs, ESTIMATES[n][0], method=ESTIMATES[n][1]) for n in names]
    print("\nedge", "true effect", *names, sep="\t")
    for at in np.argsort(-np.abs(exact).ravel(), kind="stable")[:11]:
        i, j = divmod(int(at), len(receivers))
        cells = [f"{np.round(x[i, j], 2) + 0:.2f} ({(np.abs(x) > abs(x[i, j])).sum() + 1})" for x in estimates]
        print(f"{senders[i]}->{receivers[j]}", f"{exact[i, j]:.2f}", *cells, sep="\t")


def trained(build, option):
    """The path of a model that train.py makes with an option."""
    directory = os.path.join(build, "estimates" + option.replace(" ", ""))
    if not os.path.exists(directory + ".attn"):
        train = os.path.join(root, "examples", "induction", "train.py")
        subprocess.run([sys.executable, train, directory, *option.split()], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([os.path.join(build, "attn-convert"), "--quiet", directory, directory + ".attn"], check=True)
    return directory + ".attn"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("build", nargs="?", default=os.path.join(root, "build"))
    ap.add_argument("--pairs", type=int, default=24)
    ap.add_argument("--train", action="store_true")
    o = ap.parse_args()
    os.environ.setdefault("ATTN_LIBRARY", os.path.join(os.path.abspath(o.build), "libattn.so"))
    sys.path.insert(0, os.path.join(root, "examples", "python"))
    import attn
    import attn.lens
    print("model", "estimate", "rank correlation", "false negatives", "CPR", "CMD", sep="\t")
    included, induction = (os.path.join(o.build, name) for name in ("tiny-stories.attn", "induction.attn"))
    rows_of(attn, "included", attn.Model(included), pronoun_pairs(attn, o.build, included, o.pairs))
    paths = {"induction": induction, **{title: trained(o.build, option) for title, option in TRAINED.items() if o.train}}
    for title, path in paths.items():
        model = attn.Model(path)
        rows_of(attn, title, model, induction_pairs(attn, model, o.pairs))
    model = attn.Model(induction)
    print_circuit(attn, model, induction_pairs(attn, model, 48))


if __name__ == "__main__":
    main()
