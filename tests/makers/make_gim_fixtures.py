#!/usr/bin/env python3
"""Writes tests/fixtures/gim.bin: gradients of the model golden/narrow by gim-explain on HookedTransformer in float64.

    python3 tests/makers/make_gim_fixtures.py [tests/fixtures/gim.bin]

Needs numpy, PyTorch, transformer-lens 3.9 and gim-explain 0.1.4. The model and its gradients are those of
compare/truth/compare_gim.py; the file's layout is in fixture_file.py. "gim.NAME" is the gradient of every activation by all
three rules, for the difference of two logits; "gim-norm.NAME", "gim-softmax.NAME" and "gim-qkv.NAME" are some by one rule
alone. "METHOD.edges.1" and "METHOD.edges.3" are the scores of all edges in one and three steps, "gim.patch.NAME" the
estimates of attribution patching, by their definitions, of two texts.
"""
import os
import re
import sys

import numpy as np
import torch

here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(here, "compare", "truth"))
from compare_gim import RULES, Model, metrics
from fixture_file import save

SOME = re.compile(r"hook_embed|blocks\.1\.(attn\.hook_(q|k|v|attn_scores|pattern)|ln2\.hook_scale|hook_v_input|hook_mlp_in)$")
written = []


def add(name, array):
    kind = np.int32 if np.asarray(array).dtype.kind == "i" else np.float32
    written.append((name, 2 if kind == np.int32 else 0, np.ascontiguousarray(array, kind)))


def activations(model, ids):
    with torch.no_grad():
        model.model.reset_hooks()
        model.run(ids)
    return {name: made[0][0] for name, made in model.a.items()}


def edges(model, clean, corrupted, metric, rules, steps):
    """Scores [S, R]: (corrupted write - clean write) · gradient of the receiver's input, over positions and width."""
    seen, names, writes = [activations(model, ids) for ids in (clean, corrupted)], range(model.layers), []
    for a in seen:
        writes.append([a["blocks.0.hook_resid_pre"]])
        for i in names:
            writes[-1] += [*a[f"blocks.{i}.attn.hook_result"].unbind(1), a[f"blocks.{i}.hook_mlp_out"]]
    difference, scores = (torch.stack(writes[1]) - torch.stack(writes[0])).numpy(), 0
    for step in range(1, steps + 1):
        stream = writes[1][0] + step / steps * (writes[0][0] - writes[1][0])
        _, found = model.gradients(clean, metric, rules, stream)
        inputs, before = [], []
        for i in names:
            first = 1 + i * (model.heads + 1)
            inputs += [found[f"blocks.{i}.hook_{part}_input"][:, head] for part in "qkv" for head in range(model.heads)]
            inputs.append(found[f"blocks.{i}.hook_mlp_in"])
            before += [first] * 3 * model.heads + [first + model.heads]
        inputs.append(found[f"blocks.{model.layers - 1}.hook_resid_post"])
        scores = scores + np.einsum("stc,rtc->sr", difference, np.stack(inputs)) / steps
    return np.where(np.arange(len(difference))[:, None] < np.array([*before, len(difference)])[None], scores, 0)


def estimates(model, clean, corrupted, metric, name):
    """(clean - corrupted) · gradient of the corrupted text: by position, or by head."""
    x, y = (activations(model, ids) for ids in (clean, corrupted))
    _, found = model.gradients(corrupted, metric, RULES["gim"])
    keys = [f"blocks.{i}.{name}" for i in range(model.layers)]
    product = np.stack([(x[key] - y[key]).numpy() * found[key] for key in keys])
    return product.sum((1, 3) if name.startswith("attn.") else -1)


def main():
    model, rng = Model(os.path.join(here, "golden", "narrow")), np.random.default_rng(13)
    ids, other = ([int(i) for i in rng.integers(0, 43, 7)] for _ in range(2))
    _, metric = metrics(ids, 43)["logit"]
    add("tokens", np.array(ids))
    add("corrupted", np.array(other))
    for method, rules in RULES.items():
        if method == "plain":
            continue
        for name, gradient in model.gradients(ids, metric, rules)[1].items():
            if method == "gim" or SOME.match(name):
                add(f"{method}.{name}", gradient)
        for steps in (1, 3) if method == "gim" else (1,):
            add(f"{method}.edges.{steps}", edges(model, ids, other, metric, rules, steps))
    for name in ("hook_resid_pre", "attn.hook_q"):
        add("gim.patch." + name, estimates(model, ids, other, metric, name))
    save(sys.argv[1] if len(sys.argv) > 1 else "tests/fixtures/gim.bin", written)


main()
