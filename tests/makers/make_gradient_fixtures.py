#!/usr/bin/env python3
"""Writes tests/fixtures/gradients.bin: gradients of models of golden/ by PyTorch's autograd in float64.

    python3 tests/makers/make_gradient_fixtures.py [tests/fixtures/gradients.bin]

Needs numpy and PyTorch. The model and its gradients are those of compare/compare_gradients.py; the
file's layout is in fixture_file.py. Of `narrow` every activation is there, for the difference of two
logits ("logit.NAME"); of its variants with other activation functions and scores ("erf.NAME",
"relu.NAME", "silu.NAME"), and of `plain` for a loss and a log-probability, some are. "eap.1" and "eap.3"
are the scores of all edges by edge attribution patching and with integrated gradients in three steps,
"patch.NAME" the estimates of attribution patching, by their definitions, of two texts. "sae.KIND.*" are
random sparse autoencoders and what SAELens's formulas make of "sae.x".
"""
import os
import sys

import numpy as np
import torch

here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(here, "compare"))
from compare_gradients import Model, metrics
from fixture_file import save

VARIANTS = {"logit": {}, "erf": {"activation_function": "gelu", "scale_attn_by_inverse_layer_idx": True},
            "relu": {"activation_function": "relu"},
            "silu": {"activation_function": "silu", "scale_attn_weights": False}}
SOME = ("hook_embed", "blocks.0.mlp.hook_pre", "blocks.1.attn.hook_attn_scores", "blocks.1.attn.hook_k")
written = []


def add(name, array):
    kind = np.int32 if np.asarray(array).dtype.kind == "i" else np.float32
    written.append((name, 2 if kind == np.int32 else 0, np.ascontiguousarray(array, kind)))


def add_gradients(prefix, model, ids, metric, some):
    value, found = model.gradients(ids, metric)
    add(prefix + ".value", np.array([value]))
    for name, gradient in found.items():
        if not some or name in SOME:
            add(f"{prefix}.{name}", gradient)


def edges(model, clean, corrupted, metric, steps):
    """Scores [S, R]: (corrupted write - clean write) · gradient of the receiver's input, over positions and width."""
    writes, streams = [], []
    for ids in (clean, corrupted):
        model.run(ids, split=True)
        a, rows = model.a, [model.a["blocks.0.hook_resid_pre"]]
        for i in range(model.layers):
            rows += list(a[f"blocks.{i}.attn.hook_result"].unbind(1)) + [a[f"blocks.{i}.hook_mlp_out"]]
        writes.append(torch.stack(rows).detach())
        streams.append(rows[0].detach())
    difference, scores = writes[1] - writes[0], 0
    for step in range(1, steps + 1):
        stream = streams[1] + step / steps * (streams[0] - streams[1])
        metric(model.run(clean, split=True, stream=stream)).backward()
        grad = lambda i, name: model.a[f"blocks.{i}.{name}"].grad
        inputs, before = [], []
        for i in range(model.layers):
            for part in "qkv":
                inputs += list(grad(i, f"hook_{part}_input").unbind(1))
            inputs.append(grad(i, "hook_mlp_in"))
            first = 1 + i * (model.heads + 1)
            before += [first] * 3 * model.heads + [first + model.heads]
        inputs.append(grad(model.layers - 1, "hook_resid_post"))
        before.append(len(difference))
        scores = scores + torch.einsum("stc,rtc->sr", difference, torch.stack(inputs)) / steps
    leads = np.arange(len(difference))[:, None] < np.array(before)[None]
    return np.where(leads, scores.numpy(), 0)


def estimates(model, clean, corrupted, metric, name):
    """(clean - corrupted) · gradient of the corrupted text: by position, or by head."""
    model.run(clean)
    was = [model.a[f"blocks.{i}.{name}"].detach() for i in range(model.layers)]
    metric(model.run(corrupted)).backward()
    x = [model.a[f"blocks.{i}.{name}"] for i in range(model.layers)]
    product = torch.stack([(w - y.detach()) * y.grad for w, y in zip(was, x)])
    if name == "attn.hook_pattern":
        return product.sum((2, 3)).numpy()
    return product.sum((1, 3) if name.startswith("attn.") else -1).numpy()


def autoencoders(rng):
    n, m, k, T = 12, 40, 5, 6
    x = torch.tensor(rng.normal(0, 2, (T, n)) + 1)
    add("sae.x", x.numpy())
    for kind, norm, b_dec in (("standard", "none", 1), ("jumprelu", "layer_norm", 0),
                              ("topk", "constant_norm_rescale", 1), ("gated", "none", 0), ("norms", "none", 1)):
        w = {"W_enc": rng.normal(0, 0.4, (n, m)), "W_dec": rng.normal(0, 0.4, (m, n)), "b_dec": rng.normal(0, 0.3, n)}
        for name in ("b_gate", "r_mag", "b_mag") if kind == "gated" else ("b_enc",):
            w[name] = rng.normal(0, 0.3, m)
        if kind == "jumprelu":
            w["threshold"] = np.abs(rng.normal(0, 1, m))
        for name, value in w.items():
            w[name] = torch.tensor(value.astype(np.float32).astype(np.float64))
            add(f"sae.{kind}.{name}", value.astype(np.float32))
        y, undo = x, lambda out: out
        if norm == "layer_norm":
            mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
            y, undo = (x - mean) / (std + 1e-5), lambda out: out * std + mean
        elif norm == "constant_norm_rescale":
            factor = n ** 0.5 / x.norm(dim=-1, keepdim=True)
            y, undo = x * factor, lambda out: out / factor
        y = y - b_dec * w["b_dec"]
        norms = w["W_dec"].norm(dim=-1) if kind == "norms" else 1
        if kind == "gated":
            f = torch.relu(y @ (w["W_enc"] * w["r_mag"].exp()) + w["b_mag"]) * (y @ w["W_enc"] + w["b_gate"] > 0)
        else:
            pre = (y @ w["W_enc"] + w["b_enc"]) * norms
            f = torch.relu(pre)
            if kind == "jumprelu":
                f = f * (pre > w["threshold"])
            if kind in ("topk", "norms"):
                best = pre.topk(k)
                f = torch.zeros_like(pre).scatter(-1, best.indices, best.values.relu())
        add(f"sae.{kind}.features", f.numpy())
        add(f"sae.{kind}.rebuilt", undo(f / norms @ w["W_dec"] + w["b_dec"]).numpy())


def main():
    rng = np.random.default_rng(11)
    golden = lambda name: os.path.join(here, "golden", name)
    ids = [int(i) for i in rng.integers(0, 43, 9)]
    add("narrow.tokens", np.array(ids))
    other = [int(i) for i in rng.integers(0, 43, 9)]
    add("narrow.corrupted", np.array(other))
    _, metric = metrics(ids, 43)["logit"]
    for steps in (1, 3):
        add(f"eap.{steps}", edges(Model(golden("narrow")), ids, other, metric, steps))
    for name in ("hook_resid_pre", "hook_mlp_out", "attn.hook_z", "attn.hook_pattern"):
        add("patch." + name, estimates(Model(golden("narrow")), ids, other, metric, name))
    autoencoders(rng)
    for prefix, config in VARIANTS.items():
        _, metric = metrics(ids, 43)["logit"]
        add_gradients(prefix, Model(golden("narrow"), config), ids, metric, some=prefix != "logit")
    ids = [int(i) for i in rng.integers(0, 97, 7)]
    add("plain.tokens", np.array(ids))
    for prefix in ("loss", "log-prob"):
        _, metric = metrics(ids, 97)[prefix]
        add_gradients(prefix, Model(golden("plain")), ids, metric, some=True)
    save(sys.argv[1] if len(sys.argv) > 1 else "tests/fixtures/gradients.bin", written)


main()
