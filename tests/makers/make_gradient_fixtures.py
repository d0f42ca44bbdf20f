#!/usr/bin/env python3
"""Writes tests/fixtures/gradients.bin: gradients of models of golden/ by PyTorch's autograd in float64.

    python3 tests/makers/make_gradient_fixtures.py [tests/fixtures/gradients.bin]

Needs numpy and PyTorch. The file's layout is in fixture_file.py. Of `narrow` every activation is there, for the difference of two
logits ("logit.NAME"); of its variants with other activation functions and scores ("erf.NAME",
"relu.NAME", "silu.NAME"), and of `plain` for a loss and a log-probability, some are. "eap.1" and "eap.3"
are the scores of all edges by edge attribution patching and with integrated gradients in three steps,
"patch.NAME" the estimates of attribution patching, by their definitions, of two texts. "edited.CASE.NAME"
are gradients under the edits of EDITED, whose values are "edited.CASE.I", and "edited.eap.*" and
"edited.patch.NAME" both methods' scores. "sae.KIND.*" are
random sparse autoencoders and what SAELens's formulas make of "sae.x".
"""
import fnmatch
import os
import re
import sys
from typing import NamedTuple, Optional

import numpy as np
import torch

import float64
from fixture_file import entry, save

here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VARIANTS = {"logit": {}, "erf": {"activation_function": "gelu", "scale_attn_by_inverse_layer_idx": True},
            "relu": {"activation_function": "relu"},
            "silu": {"activation_function": "silu", "scale_attn_weights": False}}
SOME = ("hook_embed", "blocks.0.mlp.hook_pre", "blocks.1.attn.hook_attn_scores", "blocks.1.attn.hook_k")
SOME_EDITED = re.compile(
    r"hook_embed|blocks\.0\.(hook_resid_pre|attn.hook_[qv]|mlp.hook_pre|ln1.hook_scale|hook_q_input|hook_attn_in)$|"
    r"blocks\.1\.(attn.hook_pattern|attn.hook_attn_scores|attn.hook_result|hook_v_input|hook_mlp_in|hook_attn_out|"
    r"ln1.hook_normalized.pre)|blocks\.2\.(attn.hook_[qk]|hook_k_input|hook_attn_in|hook_resid_mid|ln2.hook_scale)$")
# Of `narrow`, 9 positions, 4 heads of 5, width 20: name, kind, first, count, first_head, n_heads, the value's shape, a factor
EDITED = {
    "stream": [
        ("blocks.0.attn.hook_z", "zero", 0, 0, 1, 1), ("blocks.1.hook_resid_pre", "set", 2, 2, 0, 0, (2, 20)),
        ("blocks.1.hook_mlp_out", "add", 0, 0, 0, 0, (1, 20), 0.7), ("blocks.0.mlp.hook_post", "scale", 0, 0, 0, 0, (1,)),
        ("blocks.1.attn.hook_pattern", "zero", 4, 2, 2, 1), ("blocks.0.hook_attn_out", "mean", 5, 1, 0, 0, (9, 20)),
        ("blocks.2.attn.hook_k", "scale", 0, 0, 1, 2, (2, 1)), ("blocks.2.attn.hook_v", "scale", 0, 0, 0, 0, (9, 4, 5)),
        ("blocks.2.ln2.hook_scale", "set", 1, 1, 0, 0, (1,)), ("ln_final.hook_scale", "scale", 0, 0, 0, 0, (1,)),
        ("blocks.0.ln1.hook_normalized.pre", "add", 3, 1, 0, 0, (20,), 1), ("blocks.0.ln1.hook_scale", "add", 0, 0, 0, 0, (1,), 0.3),
        ("blocks.1.ln1.hook_normalized.pre", "scale", 0, 0, 0, 0, (1,)), ("blocks.1.ln1.hook_normalized.post", "zero", 0, 2),
        ("blocks.2.hook_resid_mid", "scale", 6, 1, 0, 0, (1,)), ("blocks.1.attn.hook_attn_scores", "set", 0, 0, 3, 1, (1,)),
        ("hook_embed", "scale", 0, 0, 0, 0, (1,)), ("*.attn.hook_q", "scale", 2, 5, 0, 0, (5, 4, 1))],
    "copies": [
        ("blocks.1.attn.hook_result", "zero", 0, 0, 0, 1), ("blocks.0.attn.hook_result", "scale", 0, 0, 2, 1, (20,)),
        ("blocks.2.hook_q_input", "set", 3, 4, 1, 1, (4, 20)), ("*.hook_v_input", "scale", 0, 0, 0, 0, (1,)),
        ("blocks.2.hook_attn_in", "add", 0, 0, 2, 2, (1, 2, 20), 1), ("blocks.0.hook_mlp_in", "zero", 4, 1),
        ("blocks.1.hook_mlp_in", "scale", 0, 0, 0, 0, (1,)), ("blocks.1.hook_attn_in", "scale", 5, 2, 3, 1, (1,)),
        ("blocks.0.attn.hook_z", "zero", 0, 0, 1, 1), ("blocks.2.ln2.hook_normalized.pre", "scale", 0, 0, 0, 0, (1,))],
    "paths": [
        ("blocks.0.attn.hook_z", "zero", 0, 0, 1, 1), ("blocks.1.hook_q_input", "scale", 0, 0, 2, 1, (1,)),
        ("blocks.2.hook_mlp_in", "set", 3, 1, 0, 0, (20,)), ("blocks.1.attn.hook_result", "scale", 0, 0, 3, 1, (1,)),
        ("blocks.0.hook_mlp_out", "scale", 0, 0, 0, 0, (1,)), ("blocks.1.hook_resid_mid", "add", 0, 0, 0, 0, (1, 20), 1),
        ("blocks.2.attn.hook_pattern", "zero", 2, 3, 0, 1), ("blocks.0.hook_resid_pre", "scale", 0, 0, 0, 0, (1,))]}
written = []


def add(name, array):
    written.append(entry(name, array))


COPIES = ("hook_attn_in", "hook_q_input", "hook_k_input", "hook_v_input")


class Edit(NamedTuple):
    """attn_edit: kind is zero, set, mean, add or scale."""

    name: str
    kind: str
    first: int = 0
    count: int = 0
    first_head: int = 0
    n_heads: int = 0
    value: Optional[np.ndarray] = None

    def apply(self, name, x):
        short = re.sub(r"blocks\.\d+\.", "", name)
        over_keys = short in ("attn.hook_pattern", "attn.hook_attn_scores")
        has_heads = short.startswith("attn.") or short in COPIES
        y = x.transpose(0, 1) if over_keys else x if has_heads else x[:, None]  # positions, heads, numbers
        n_heads = self.n_heads or y.shape[1] - self.first_head
        v = None
        if self.value is not None:
            v = torch.tensor(self.value).to(x.dtype)
            if v.ndim < 3:
                v = v[None, None] if v.ndim == 1 else v[None] if has_heads and not over_keys and n_heads > 1 else v[:, None]
            elif over_keys:
                v = v.transpose(0, 1)
        end = self.first + self.count if self.count else None
        part = slice(self.first, end), slice(self.first_head, self.first_head + n_heads)
        old, new = y[part], y.clone()
        new[part] = {"zero": lambda: old * 0, "set": lambda: v.expand_as(old), "mean": lambda: v.mean(0).expand_as(old),
                     "add": lambda: old + v, "scale": lambda: old * v}[self.kind]()
        if over_keys:  # later keys stay hidden
            new = torch.where(torch.tril(torch.ones_like(y[:, 0], dtype=torch.bool))[:, None], new, y)
            return new.transpose(0, 1)
        return new if has_heads else new[:, 0]


class Model(float64.Model):
    """By PyTorch: each activation keeps its gradient, before and after the `edits` too."""

    edits = ()

    def hook(self, name, x):
        def kept(x):
            x = (x + 0).requires_grad_()
            x.retain_grad()
            return x
        x = self.before[name] = kept(x)
        for edit in self.edits:
            if fnmatch.fnmatchcase(name, edit.name):
                x = edit.apply(name, x)
        self.a[name] = kept(x)
        return self.a[name]

    def run(self, ids, split=False, stream=None):
        self.before = {}
        return super().run(ids, split, stream)

    def gradients(self, ids, metric, splits=(True, False)):
        """Of metric(logits), under the names of the activations; those on request come from a run in which
        each head has copies of the stream."""
        found, value = {}, None
        for split in splits:
            value = metric(self.run(ids, split))
            value.backward()
            found.update({name: self.a[name].grad.numpy() for name in self.before if self.a[name].grad is not None})
        for name in found:  # what is written at later keys is ignored
            if name.endswith("hook_pattern"):
                found[name] = np.tril(found[name])
        return value.item(), found


def open_golden(name, **config):
    return Model.open(os.path.join(here, "golden", name), torch, **config)


def metrics(ids, n_vocab):
    """Of the logits [T, V], by name."""
    a, b, at = int(ids[0] + 1) % n_vocab, int(ids[-1] + 3) % n_vocab, len(ids) // 2
    return {"logit": lambda x: x[-1, a] - x[-1, b], "log-prob": lambda x: torch.log_softmax(x, -1)[at, a],
            "loss": lambda x: torch.nn.functional.cross_entropy(x[:-1], torch.tensor(ids[1:]))}


def add_gradients(prefix, model, ids, metric, some):
    value, found = model.gradients(ids, metric)
    add(prefix + ".value", np.array([value]))
    for name, gradient in found.items():
        if not some or name in SOME:
            add(f"{prefix}.{name}", gradient)


def writes_of(model, a):
    """What each sender writes [S, T, C]."""
    rows = [a["blocks.0.hook_resid_pre"]]
    for i in range(model.layers):
        rows += [*a[f"blocks.{i}.attn.hook_result"].unbind(1), a[f"blocks.{i}.hook_mlp_out"]]
    return torch.stack(rows).detach()


def between(clean, corrupted, steps):
    return [corrupted + step / steps * (clean - corrupted) for step in range(1, steps + 1)]


def edge_scores(model, difference, gradients):
    """Scores [S, R]: (corrupted write - clean write) · gradient of the receiver's input, over positions and width, in
    the mean of the gradients of some runs."""
    scores, before = 0, [1 + i * (model.heads + 1) + head for i in range(model.layers) for head in [0] * 3 * model.heads + [model.heads]]
    for found in gradients:
        inputs = []
        for i in range(model.layers):
            for part in "qkv":
                inputs += torch.as_tensor(found[f"blocks.{i}.hook_{part}_input"]).unbind(1)
            inputs.append(torch.as_tensor(found[f"blocks.{i}.hook_mlp_in"]))
        inputs.append(torch.as_tensor(found[f"blocks.{model.layers - 1}.hook_resid_post"]))
        scores = scores + torch.einsum("stc,rtc->sr", difference, torch.stack(inputs)) / len(gradients)
    return np.where(np.arange(len(difference))[:, None] < np.array([*before, len(difference)]), scores.numpy(), 0)


def edges(model, clean, corrupted, metric, steps):
    writes, streams, found = [], [], []
    for ids in (clean, corrupted):
        model.run(ids, split=True)
        writes.append(writes_of(model, model.a))
        streams.append(model.before["blocks.0.hook_resid_pre"].detach())
    for stream in between(*streams, steps):
        metric(model.run(clean, split=True, stream=stream)).backward()
        found.append({name: x.grad for name, x in model.before.items()})
    return edge_scores(model, writes[1] - writes[0], found)


def summed(name, products):
    """(clean - corrupted) · gradient of the corrupted text, of all layers: by position, or by head."""
    axes = (2, 3) if name == "attn.hook_pattern" else (1, 3) if name.startswith("attn.") else -1
    return np.stack(products).sum(axes)


def estimates(model, clean, corrupted, metric, name, split=False):
    keys = [f"blocks.{i}.{name}" for i in range(model.layers)]
    model.run(clean, split)
    was = [model.a[key].detach() for key in keys]
    metric(model.run(corrupted, split)).backward()
    return summed(name, [(x - model.a[key].detach()) * model.a[key].grad for x, key in zip(was, keys)])


def edited(ids, other, rng):
    metric = metrics(ids, 43)["logit"]
    for case, rows in EDITED.items():
        model, made = open_golden("narrow"), []
        for i, (name, kind, *where) in enumerate(rows):
            shape, factor = where[4] if len(where) > 4 else None, where[5] if len(where) > 5 else 1
            value = None if shape is None else rng.normal(0.5 if kind == "scale" else 0, 0.5, shape).astype(np.float32)
            if name.endswith("hook_scale"):
                value = np.abs(value) + 0.5
            if value is not None:
                add(f"edited.{case}.{i}", value)
                value = value.astype(np.float64) * factor
            made.append(Edit(name, kind, *where[:4], value=value))
        model.edits = made
        value, found = model.gradients(ids, metric, (case != "stream",))  # ln1's hooks are in the one, copies in the other
        add(f"edited.{case}.value", np.array([value]))
        for name, gradient in found.items():
            if SOME_EDITED.search(name):
                add(f"edited.{case}.{name}", gradient)
        if case == "paths":
            for steps in (1, 3):
                add(f"edited.eap.{steps}", edges(model, ids, other, metric, steps))
            for name in ("hook_resid_pre", "attn.hook_z"):
                add("edited.patch." + name, estimates(model, ids, other, metric, name, True))


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
    ids = [int(i) for i in rng.integers(0, 43, 9)]
    add("narrow.tokens", np.array(ids))
    other = [int(i) for i in rng.integers(0, 43, 9)]
    add("narrow.corrupted", np.array(other))
    metric = metrics(ids, 43)["logit"]
    for steps in (1, 3):
        add(f"eap.{steps}", edges(open_golden("narrow"), ids, other, metric, steps))
    for name in ("hook_resid_pre", "hook_mlp_out", "attn.hook_z", "attn.hook_pattern"):
        add("patch." + name, estimates(open_golden("narrow"), ids, other, metric, name))
    edited(ids, other, np.random.default_rng(12))
    autoencoders(rng)
    for prefix, config in VARIANTS.items():
        add_gradients(prefix, open_golden("narrow", **config), ids, metric, some=prefix != "logit")
    ids = [int(i) for i in rng.integers(0, 97, 7)]
    add("plain.tokens", np.array(ids))
    for prefix in ("loss", "log-prob"):
        add_gradients(prefix, open_golden("plain"), ids, metrics(ids, 97)[prefix], some=True)
    save(sys.argv[1] if len(sys.argv) > 1 else "tests/fixtures/gradients.bin", written)


if __name__ == "__main__":
    main()
