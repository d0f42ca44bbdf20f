#!/usr/bin/env python3
"""Compares `lens edges --exact` with float64: the effect of every edge, and of every node, by whole passes.

    compare_exact.py BUILD [HF_DIRECTORY...] [--seed 1] [--texts 3]

BUILD holds attn-convert and lens. Without directories: models of golden/, the included ones that are small, and
random ones with one layer, one head, odd d_head and each activation function. Texts are random. They differ from
some position on, in one token, or not at all. makers/make_exact_fixtures.py has the equations. Prints the
largest difference of a score as a share of the largest effect, and fails above 1e-5 of it where that is more
than float32's rounding of the logits (6e-8 of the largest logit, times 4). Needs numpy.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(here, "makers"))
from make_exact_fixtures import LOGIT, LOGIT_DIFF, Model, Shape, effects_of


def random_models(folder):
    at = lambda name: os.path.join(folder, name)
    Shape(at("one layer, one head"), 1, 1, 9, 17, 23, 16, activation_function="silu")
    Shape(at("one head"), 4, 1, 15, 40, 50, 33, True)
    Shape(at("one layer"), 1, 5, 3, 16, 19, 24, activation_function="gelu")
    Shape(at("d_head 1"), 2, 7, 1, 5, 11, 12, scale_attn_by_inverse_layer_idx=True)
    Shape(at("d_head 33"), 3, 2, 33, 70, 90, 130, scale_attn_weights=False, activation_function="relu")
    return sorted(at(name) for name in os.listdir(folder) if os.path.isdir(at(name)))


def ask(build, path, clean, corrupted, metric, *options):
    words = ["--token", str(metric[2])] + (["--against", str(metric[3])] if metric[0] == LOGIT_DIFF else [])
    done = subprocess.run([os.path.join(build, "lens"), path, "edges", "--ids", " ".join(map(str, clean)),
                           "--corrupted-ids", " ".join(map(str, corrupted)), "--exact", "--json", *words, *options],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def compare(build, directory, path, rng, turn):
    """The difference of the worst score, and what is allowed."""
    model = Model(directory)
    n = int(rng.integers(2, min(model.n_ctx, 14) + 1))
    clean, corrupted = rng.integers(0, model.vocab, (2, n))
    same = int(rng.integers(0, n))
    corrupted[:same] = clean[:same]
    if turn % 3 == 1:  # one token
        corrupted = clean.copy()
        corrupted[same] = (clean[same] + 1) % model.vocab
    token, against = (int(i) for i in rng.choice(model.vocab, 2, replace=False))
    metric = [LOGIT_DIFF if turn % 2 == 0 else LOGIT, 0, token, against]
    values, edges, nodes = effects_of(model, clean, corrupted, metric)
    got = ask(build, path, clean, corrupted, metric)
    of_nodes = ask(build, path, clean, corrupted, metric, "--of", "nodes")
    assert len(got["edges"]) == len(edges) and len(of_nodes["nodes"]) == len(nodes)
    off = max(abs(e["score"] - edges[e["from"], e["to"]]) for e in got["edges"])
    off = max(off, max(abs(e["score"] - nodes[e["node"]]) for e in of_nodes["nodes"]))
    largest = max(map(abs, [*edges.values(), *nodes.values()]))
    scale = max(np.abs(model.run(clean)[0]).max(), 1)
    return off, largest, max(1e-5 * largest, 4 * 6e-8 * scale)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build")
    ap.add_argument("directories", nargs="*")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--texts", type=int, default=3)
    o = ap.parse_args()
    rng, wrong = np.random.default_rng(o.seed), 0
    with tempfile.TemporaryDirectory() as folder:
        golden = [os.path.join(here, "golden", name) for name in ("plain", "odd", "narrow")]
        induction = os.path.join(os.path.dirname(here), "examples", "induction")
        for directory in o.directories or golden + [induction] + random_models(folder):
            path = os.path.join(folder, "model.attn")
            subprocess.run([os.path.join(o.build, "attn-convert"), "--quiet", "--no-tokenizer", directory, path,
                            "--dtype", "f32"], check=True)
            for turn in range(o.texts):
                off, largest, allowed = compare(o.build, directory, path, rng, turn)
                wrong += off > allowed
                print(f"{os.path.basename(directory)}: {off:.1e} off, largest effect {largest:.3g}, "
                      f"{off / largest if largest else 0:.1e} of it{'  WRONG' if off > allowed else ''}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
