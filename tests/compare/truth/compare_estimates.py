#!/usr/bin/env python3
"""How well estimates of edges and of nodes agree with their true effects: the tables of tools/reproduce/estimates.md.

    compare_estimates.py [BUILD] [--pairs 8] [--train SEED...] [MODEL.attn "IDS" "IDS" TOKEN AGAINST]

Without a model: the included model and that of examples/induction, each with pairs of texts that this program
draws (seed 49), and with --train those that examples/induction/train.py makes from other seeds (minutes each).
With a model: one pair of its own, as ids. Needs numpy; BUILD (build) holds libattn.so and the models.

Of edges: EAP, and EAP-IG with 5 and 20 steps; of nodes: attribution patching, write by write (attribution by
node). The columns: the rank correlation (Spearman) of the estimates with the true effects, over all edges whose
true effect or estimate is not zero; false negatives: edges of the top 1 %, but at least ten, by true effect (of
nodes the top 10 %, but at least three) that are not in the top of the estimate; and how much of the top's magnitude
they have. Each pair counts by itself; the figures are means over the pairs. A second table has the largest
effects in the model of examples/induction, means over 48 pairs, and the estimates' ranks.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def ranks(x):
    """Ranks, of equal numbers their mean."""
    _, at, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[at]


def compare(exact, estimate, share, least):
    """Rank correlation; false negatives and the size of the top; the missed share of the top's magnitude."""
    used = (exact != 0) | (estimate != 0)
    exact, estimate = exact[used].astype(float), estimate[used].astype(float)
    n = max(least, int(np.ceil(share * len(exact))))
    best = lambda x: set(np.argsort(-np.abs(x), kind="stable")[:n].tolist())
    top = best(exact)
    missed = list(top - best(estimate))
    return np.array([np.corrcoef(ranks(exact), ranks(estimate))[0, 1], len(missed), n,
                     np.abs(exact[missed]).sum() / np.abs(exact[list(top)]).sum()])


def node_estimates(attn, back, model, pair):
    """[senders]: (corrupted - clean write) · gradient in the clean text, summed over all positions."""
    swapped = attn.lens.Pair(pair.corrupted, pair.clean, pair.metric)
    heads = back.attribution_patch(swapped, "attn.hook_result")
    mlps = back.attribution_patch(swapped, "hook_mlp_out").sum(1)
    first = back.attribution_patch(swapped, "hook_resid_pre")[0].sum()
    return np.r_[first, np.concatenate([heads, mlps[:, None]], 1).ravel()]


def of_pair(attn, model, back, pair):
    exact = attn.lens.exact_effects(model, pair).effect
    nodes = attn.lens.exact_effects(model, pair, "nodes").effect
    found = {"EAP": compare(exact.ravel(), back.edge_scores(pair).ravel(), 0.01, 10)}
    for steps in (5, 20):
        found[f"EAP-IG, {steps} steps"] = compare(exact.ravel(), back.edge_scores(pair, steps).ravel(), 0.01, 10)
    found["attribution by node"] = compare(nodes, node_estimates(attn, back, model, pair), 0.1, 3)
    return found


def story_pairs(attn, model, n):
    """Two names at the same place; the answer is one of two words that the model tells apart best."""
    names = ["Tom", "Lily", "Ben", "Mia", "Sam", "Anna", "Max", "Sue"]
    ends = ["was very happy. One day,", "went to the park. There,", "had a big red ball and", "saw a dog. The dog"]
    for i in range(n):
        texts = [f"Once upon a time there was a {kind} named {names[(i + k) % 8]}. {who} {ends[i % 4]}"
                 for k, (kind, who) in enumerate((("boy", "He"), ("girl", "She")))]
        ids = [model.to_tokens(text).tolist() for text in texts]
        if len(ids[0]) != len(ids[1]):
            continue
        likely = [int(np.argmax(model.session().feed(x))) for x in ids]
        if likely[0] == likely[1]:
            logits = [model.session().feed(x) for x in ids]
            change = logits[0] - logits[1]
            both = np.argsort(-np.maximum(*logits))[:50]
            likely = [int(both[np.argmax(change[both])]), int(both[np.argmin(change[both])])]
        yield attn.lens.Pair(ids[0], ids[1], attn.lens.logit_diff(*likely))


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
    back, found = attn.lens.Backward(model), []
    for pair in pairs:
        found.append(of_pair(attn, model, back, pair))
    for name in found[0]:
        rho, missed, n, weight = np.mean([f[name] for f in found], 0)
        print(f"| {title} | {name} | {rho:.3f} | {missed:.1f} of {n:.0f} | {weight:.1%} |", flush=True)


def print_circuit(attn, model, pairs):
    """The largest effects of a model, and what the estimates say; ranks by magnitude."""
    back, pairs = attn.lens.Backward(model), list(pairs)
    senders, receivers = attn.lens.edge_names(model)
    exact = attn.lens.exact_effects(model, pairs).effect
    estimates = [back.edge_scores(pairs), back.edge_scores(pairs, 20)]
    print("\n| edge | true effect | EAP | its rank | EAP-IG, 20 steps | its rank |\n|---|---|---|---|---|---|")
    for at in np.argsort(-np.abs(exact).ravel(), kind="stable")[:11]:
        i, j = divmod(int(at), len(receivers))
        cells = [f"{x[i, j]:.2f} | {(np.abs(x) > abs(x[i, j])).sum() + 1}" for x in estimates]
        print(f"| `{senders[i]}->{receivers[j]}` | {exact[i, j]:.2f} | {' | '.join(cells)} |")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("build", nargs="?", default=os.path.join(root, "build"))
    ap.add_argument("own", nargs="*", metavar="MODEL IDS IDS TOKEN AGAINST")
    ap.add_argument("--pairs", type=int, default=8)
    ap.add_argument("--train", type=int, nargs="*", default=[])
    o = ap.parse_args()
    if len(o.own) not in (0, 5):
        ap.error("a model of your own needs MODEL IDS IDS TOKEN AGAINST")
    os.environ.setdefault("ATTN_LIBRARY", os.path.join(os.path.abspath(o.build), "libattn.so"))
    sys.path.insert(0, os.path.join(root, "examples", "python"))
    import attn
    import attn.lens
    print("| model | estimate | rank correlation | false negatives | their share of the top |\n|---|---|---|---|---|")
    if o.own:
        path, clean, corrupted, token, against = o.own
        pair = attn.lens.Pair([int(i) for i in clean.split()], [int(i) for i in corrupted.split()],
                              attn.lens.logit_diff(int(token), int(against)))
        rows_of(attn, os.path.basename(path), attn.Model(path), [pair])
        return
    model = attn.Model(os.path.join(o.build, "tiny-stories.attn"))
    rows_of(attn, "included", model, story_pairs(attn, model, o.pairs))
    model = attn.Model(os.path.join(o.build, "induction.attn"))
    rows_of(attn, "induction", model, induction_pairs(attn, model, o.pairs))
    with tempfile.TemporaryDirectory() as folder:
        for seed in o.train:
            directory, path = os.path.join(folder, str(seed)), os.path.join(folder, f"{seed}.attn")
            subprocess.run([sys.executable, os.path.join(root, "examples", "induction", "train.py"), directory, "--seed",
                            str(seed)], check=True, stdout=subprocess.DEVNULL)
            subprocess.run([os.path.join(o.build, "attn-convert"), "--quiet", directory, path], check=True)
            model = attn.Model(path)
            rows_of(attn, f"induction, seed {seed}", model, induction_pairs(attn, model, o.pairs))
    model = attn.Model(os.path.join(o.build, "induction.attn"))
    print_circuit(attn, model, induction_pairs(attn, model, 48))


if __name__ == "__main__":
    main()
