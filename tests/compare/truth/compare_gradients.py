#!/usr/bin/env python3
"""Compares `lens gradients` with PyTorch's autograd in float64, activation by activation.

    compare_gradients.py BUILD [HF_DIRECTORY...] [--large] [--tokens 16] [--metric NAME]

BUILD holds attn-convert and lens. Without a directory: the models of tests/golden, an odd shape, and
the included model; --large adds a random one of GPT-2 124M's size. Prints, for each model and
metric, the largest difference as a share of the largest gradient of its tensor, and where; the median
over the tensors; and the same two of PyTorch's autograd in float32. The exit code is 1 if one of lens's
is above 1e-5. Needs numpy and PyTorch.
"""
import argparse
import fnmatch
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
from typing import NamedTuple, Optional

import numpy as np
import torch

here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BITS = {"F32": np.float32, "F16": np.float16, "I64": np.int64}


def read_safetensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    return {name.removeprefix("transformer."): np.frombuffer(
        data, BITS[t["dtype"]], int(np.prod(t["shape"])), t["data_offsets"][0]).reshape(t["shape"])
        for name, t in header.items() if name != "__metadata__" and t["dtype"] in BITS}


def act(kind, x):
    if kind == "gelu_new":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))
    if kind == "gelu":
        return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    return {"relu": torch.relu, "silu": lambda x: x * torch.sigmoid(x)}[kind](x)


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


class Model:
    """A GPT-2 whose activations are leaves of the graph's middle: each passes through `hook`, and `edits`."""

    edits = ()

    def __init__(self, directory, config=None, dtype=torch.float64):
        self.c = dict(json.load(open(os.path.join(directory, "config.json"))), **(config or {}))
        self.w = {k: torch.tensor(v.astype(np.float32)).to(dtype) for k, v in
                  read_safetensors(os.path.join(directory, "model.safetensors")).items()}
        self.layers, self.heads, self.width = self.c["n_layer"], self.c["n_head"], self.c["n_embd"]

    def hook(self, name, x):
        x = x + 0
        if x.requires_grad:
            x.retain_grad()
        self.before[name] = x
        for edit in self.edits:
            if fnmatch.fnmatchcase(name, edit.name):
                x = edit.apply(name, x) + 0
        if x.requires_grad:
            x.retain_grad()
        self.a[name] = x
        return x

    def norm(self, name, key, x):
        centred = x - x.mean(-1, keepdim=True)
        scale = ((centred ** 2).mean(-1, keepdim=True) + self.c.get("layer_norm_epsilon", 1e-5)).sqrt()
        scale = self.hook(name + ".hook_scale", scale)
        n = self.hook(name + ".hook_normalized.pre", centred / scale)
        return self.hook(name + ".hook_normalized.post",
                         n * self.w[key + ".weight"] + self.w[key + ".bias"])

    def heads_of(self, i, x, split):
        """q, k and v [T, H, d]; with `split` each head reads copies of the stream of its own."""
        p, t, C, H = f"h.{i}.", f"blocks.{i}.", self.width, self.heads
        W, b = self.w[p + "attn.c_attn.weight"], self.w[p + "attn.c_attn.bias"]
        if not split:
            y = self.norm(t + "ln1", p + "ln_1", x)
            return [m.reshape(-1, H, C // H) for m in (y @ W + b).split(C, -1)]
        x = self.hook(t + "hook_attn_in", x[:, None, :].expand(-1, H, -1))
        out = []
        for part, name in enumerate("qkv"):
            y = self.hook(t + f"hook_{name}_input", x)
            y = torch.nn.functional.layer_norm(y, (C,), self.w[p + "ln_1.weight"], self.w[p + "ln_1.bias"],
                                               self.c.get("layer_norm_epsilon", 1e-5))
            w = W[:, part * C:(part + 1) * C].reshape(C, H, -1)
            out.append(torch.einsum("thc,chd->thd", y, w) + b[part * C:(part + 1) * C].reshape(H, -1))
        return out

    def block(self, i, x, split):
        p, t, T = f"h.{i}.", f"blocks.{i}.", len(x)
        w = lambda name: self.w[p + name + ".weight"]
        x = self.hook(t + "hook_resid_pre", x)
        q, k, v = (self.hook(t + "attn.hook_" + n, m) for n, m in zip("qkv", self.heads_of(i, x, split)))
        scale = 1 if self.c.get("scale_attn_weights", True) is False else math.sqrt(q.shape[-1])
        scale *= i + 1 if self.c.get("scale_attn_by_inverse_layer_idx") else 1
        seen = torch.tril(torch.ones(T, T, dtype=torch.bool))
        s = torch.einsum("qhd,khd->hqk", q, k) / scale
        s = self.hook(t + "attn.hook_attn_scores", torch.where(seen, s, -torch.inf))
        pattern = self.hook(t + "attn.hook_pattern", torch.softmax(s, -1))
        z = self.hook(t + "attn.hook_z", torch.einsum("hqk,khd->qhd", pattern, v))
        w_o = w("attn.c_proj").reshape(self.heads, -1, self.width)
        result = torch.einsum("qhd,hdc->qhc", z, w_o)
        if split:
            result = self.hook(t + "attn.hook_result", result)
        x = x + self.hook(t + "hook_attn_out", result.sum(1) + self.w[p + "attn.c_proj.bias"])
        x = self.hook(t + "hook_resid_mid", x)
        y = self.norm(t + "ln2", p + "ln_2", self.hook(t + "hook_mlp_in", x))
        h = self.hook(t + "mlp.hook_pre", y @ w("mlp.c_fc") + self.w[p + "mlp.c_fc.bias"])
        h = self.hook(t + "mlp.hook_post", act(self.c.get("activation_function", "gelu_new"), h))
        x = x + self.hook(t + "hook_mlp_out", h @ w("mlp.c_proj") + self.w[p + "mlp.c_proj.bias"])
        return self.hook(t + "hook_resid_post", x)

    def run(self, ids, split=False, stream=None):
        """Logits [T, V] and, in self.a, every activation; a stream [T, C] takes the place of the embeddings."""
        self.a, self.before = {}, {}
        grown = lambda x: x.clone().requires_grad_()
        x = self.hook("hook_embed", grown(self.w["wte.weight"][ids])) + \
            self.hook("hook_pos_embed", grown(self.w["wpe.weight"][:len(ids)]))
        x = x if stream is None else grown(stream)
        for i in range(self.layers):
            x = self.block(i, x, split)
        return self.norm("ln_final", "ln_f", x) @ self.w.get("lm_head.weight", self.w["wte.weight"]).T

    def gradients(self, ids, metric, splits=(True, False)):
        """Of metric(logits), under the names of the activations; those on request come from a run in which
        each head has copies of the stream."""
        found, value = {}, None
        for split in splits:
            value = metric(self.run(ids, split))
            value.backward()
            found.update({k: x.grad for k, x in self.a.items() if x.grad is not None})
        for name in found: # what is written at later keys is ignored
            if name.endswith("hook_pattern"):
                found[name] = torch.tril(found[name])
        return value.item(), {k: v.numpy() for k, v in found.items()}


def metrics(ids, n_vocab):
    """For each name: the options of lens, and the function of the logits [T, V]."""
    a, b = int(ids[0] + 1) % n_vocab, int(ids[-1] + 3) % n_vocab
    return {
        "logit": (["--token", str(a), "--against", str(b)], lambda x: x[-1, a] - x[-1, b]),
        "log-prob": (["--metric", "log-prob", "--token", str(a), "--at", str(len(ids) // 2)],
                     lambda x: torch.log_softmax(x, -1)[len(ids) // 2, a]),
        "loss": (["--metric", "loss"], lambda x: torch.nn.functional.cross_entropy(x[:-1], torch.tensor(ids[1:]))),
    }


def shares(got, want):
    """By which each gradient differs, of the largest of its tensor."""
    return {k: np.abs(got[k] - want[k]).max() / max(np.abs(want[k]).max(), 1e-30) for k in want}


def compare(build, directory, ids, folder, only):
    """The largest share by which a gradient differs."""
    model, path, worst = Model(directory), os.path.join(folder, "model.attn"), 0
    single = Model(directory, dtype=torch.float32)
    subprocess.run([f"{build}/attn-convert", "--quiet", directory, path, "--dtype", "f32"], check=True)
    for name, (options, metric) in metrics(ids, model.c["vocab_size"]).items():
        if only not in (None, name):
            continue
        out = os.path.join(folder, "gradients.safetensors")
        subprocess.run([f"{build}/lens", path, "gradients", "--ids", " ".join(map(str, ids)), "-o", out, *options,
                        "--", "*", "*.hook_result", "*.hook_attn_in", "*.hook_q_input",
                        "*.hook_k_input", "*.hook_v_input", "*.hook_mlp_in"], check=True, stdout=subprocess.DEVNULL)
        got = read_safetensors(out)
        _, want = model.gradients(ids, metric)
        missing = sorted(set(got) ^ set(want))
        if missing:
            sys.exit(f"only one of both has {missing}")
        share, other = shares(got, want), shares(single.gradients(ids, metric)[1], want)
        largest = max(share, key=share.get)
        print(f"{os.path.basename(directory.rstrip('/')):14} {name:8} {len(share):4} tensors  "
              f"largest {share[largest]:.2e} at {largest}, median {np.median(list(share.values())):.1e}; "
              f"PyTorch float32 {max(other.values()):.2e}, {np.median(list(other.values())):.1e}", flush=True)
        worst = max(worst, share[largest])
    return worst


def make(folder, name, *options):
    directory = os.path.join(folder, name)
    subprocess.run([sys.executable, os.path.join(here, "golden", "make_golden.py"), directory, *options], check=True)
    return directory


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build")
    ap.add_argument("directories", nargs="*")
    ap.add_argument("--large", action="store_true")
    ap.add_argument("--tokens", type=int, default=16)
    ap.add_argument("--metric", choices=["logit", "log-prob", "loss"])
    o = ap.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        directories = o.directories or [os.path.join(here, "golden", n) for n in ("plain", "odd", "narrow")] + [
            os.path.join(os.path.dirname(here), "examples", "tiny-stories"),
            make(folder, "odd shape", "--layers", "3", "--heads", "7", "--width", "91", "--inner", "133", "--vocab",
                 "211", "--ctx", "70", "--tokens", "2", "--untied", "--seed", "5")]
        if o.large:
            directories.append(make(folder, "124M", "--layers", "12", "--heads", "12", "--width", "768", "--vocab",
                                    "50257", "--ctx", "1024", "--tokens", "2"))
        worst = 0
        for directory in directories:
            c = json.load(open(os.path.join(directory, "config.json")))
            n = min(o.tokens, c["n_positions"])
            ids = [int(i) for i in np.random.default_rng(7).integers(0, c["vocab_size"], n)]
            worst = max(worst, compare(o.build, directory, ids, folder, o.metric))
    print(f"largest of all: {worst:.2e}")
    sys.exit(worst > 1e-5)


if __name__ == "__main__":
    main()
