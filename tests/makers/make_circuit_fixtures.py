#!/usr/bin/env python3
"""Writes tests/fixtures/circuits.bin: eigenvalues, the stream taken apart, and head detection.

    python3 tests/makers/make_circuit_fixtures.py [tests/fixtures/circuits.bin]

Needs numpy. Everything is computed in float64 from the stored weights of golden/, by the formulas of
TransformerLens 3.9 (FactoredMatrix.eigenvalues, ActivationCache.accumulated_resid, decompose_resid,
get_full_resid_decomposition and apply_ln_to_stack, head_detector); compare/truth/compare_lens.py compares with that
package itself. "eig.N.left", "right" and "values" [r, 2] are products; "MODEL.ov.SPACE" [L, H, d, 2] the
eigenvalues of a model's OV circuits over the stream (0) and the tokens (1), "MODEL.copying.SPACE" their copying
scores; "parts.KIND.LAYER.MLP.LN" the parts of a text of `narrow`, "projected.*" the same times "project";
"heads.PATTERN.MEASURE.BOS.CURRENT" scores, of which pattern 3 is "keys". The layout is in fixture_file.py.
"""
import os
import sys

import numpy as np

from fixture_file import entry, save
from float64 import Model
from make_lens_fixtures import Weights, detection, here

FIRST, COUNT = 4, 2
rng = np.random.default_rng(34)
written = []


def add(name, array):
    written.append(entry(name, array))


def pairs(values):
    return np.stack([values.real, values.imag], -1)


def products():
    def case(left, right):
        number = sum(n.endswith(".left") for n, _, _ in written)
        left, right = np.atleast_2d(left).astype(np.float32), np.atleast_2d(right).astype(np.float32)
        add(f"eig.{number}.left", left)
        add(f"eig.{number}.right", right)
        add(f"eig.{number}.values", pairs(np.linalg.eigvals(right.astype(float) @ left.astype(float))))
    one, normal = np.eye, lambda *shape: rng.normal(0, 1, shape)
    case(normal(30, 12), normal(12, 30))
    case(normal(5, 9), normal(9, 5))                               # four zeros
    case([[2.5]], [[-1]])
    case(one(2), [[0, -3], [3, 0]])                                # +- 3i
    case(one(2), [[2, 1], [0, 2]])                                 # one eigenvector for two
    case(one(7), np.roll(one(7), 1, 0))                            # seven on a circle: unshifted steps go round
    case(one(6), np.roll(one(6), 2, 1) * [[1], [-2], [3], [1], [-1], [2]])
    symmetric = normal(11, 11)
    case(one(11), symmetric + symmetric.T)
    case(one(16), normal(16, 16) * np.logspace(4, -4, 16))
    case(np.zeros((4, 3)), normal(3, 4))
    case(one(5), np.triu(normal(5, 5)))
    case(one(3), [[0, 1, 0], [0, 0, 1], [0, 0, 0]])                # nilpotent


def circuits(name, c, w):
    ov = [[(b["W_V"][h], b["W_O"][h]) for h in range(c.heads)] for b in w.blocks]
    for space in (0, 1):
        through = lambda v, o: o @ (w.W_U @ w.W_E if space else np.eye(c.width)) @ v
        values = np.array([[np.linalg.eigvals(through(*pair)) for pair in layer] for layer in ov])
        add(f"{name}.ov.{space}", pairs(values))
        add(f"{name}.copying.{space}", values.sum(-1).real / np.abs(values).sum(-1))


class Cache:
    """What ActivationCache takes a stream apart into."""

    def __init__(self, c, w, a):
        self.c, self.w, self.a, self.positions = c, w, a, slice(FIRST, FIRST + COUNT)

    def act(self, layer, name):
        return self.a[f"blocks.{layer}.{name}"][self.positions]

    def pre(self, layer):
        return self.act(layer, "hook_resid_pre") if layer < self.c.layers else self.act(layer - 1, "hook_resid_post")

    def embeds(self):
        return [self.a["hook_embed"][self.positions], self.a["hook_pos_embed"][self.positions]]

    def accumulated(self, layer, mid, mlp_input):
        found = []
        for i in range(layer + 1):
            found.append(self.pre(i))
            if (mid and i < layer) or (mlp_input and i == layer):
                found.append(self.act(i, "hook_resid_mid"))
        return found

    def decompose(self, layer, mlp_input, attn=True, mlp=True):
        found = self.embeds()
        for i in range(layer):
            found += [self.act(i, "hook_attn_out")] * attn + [self.act(i, "hook_mlp_out")] * mlp
        return found + ([self.act(layer, "hook_attn_out")] if mlp_input and attn else [])

    def full(self, layer, mlp_input, neurons):
        m = layer + mlp_input
        found = [self.act(i, "attn.hook_result")[:, h] for i in range(m) for h in range(self.c.heads)]
        for i in range(layer):
            post = self.act(i, "mlp.hook_post")
            found += [post[:, [f]] * self.w.blocks[i]["W_out"][f] for f in range(post.shape[1])] if neurons else [
                self.act(i, "hook_mlp_out")]
        bias = sum((b["b_O"] for b in self.w.blocks[:m]), np.zeros(self.c.width)) + neurons * sum(
            (b["b_out"] for b in self.w.blocks[:layer]), np.zeros(self.c.width))
        return found + self.embeds() + [np.broadcast_to(bias, (COUNT, self.c.width))]

    def stacks(self, layer, mlp_input):
        return [np.stack(s) for s in (
            self.accumulated(layer, False, mlp_input), self.accumulated(layer, True, mlp_input),
            self.decompose(layer, mlp_input), self.decompose(layer, mlp_input, mlp=False),
            self.decompose(layer, mlp_input, attn=False), self.full(layer, mlp_input, False),
            self.full(layer, mlp_input, True))]

    def normed(self, stack, kind, layer, mlp_input):
        centred = stack - stack.mean(-1, keepdims=True)
        if layer == self.c.layers and kind < 2:
            scale = np.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-5)
            return centred / scale * self.w.lnf_w + self.w.lnf_b
        if layer == self.c.layers:
            return centred / self.a["ln_final.hook_scale"][self.positions]
        return centred / self.act(layer, f"ln{1 + mlp_input}.hook_scale")


def parts(cache, tokens):
    project = rng.normal(0, 1, (cache.c.width, 2)).astype(np.float32)
    add("tokens", tokens)
    add("project", project)
    for layer, mlp_input in ((0, 0), (1, 1), (2, 0), (cache.c.layers, 0)):
        whole = cache.act(layer, "hook_resid_mid") if mlp_input else cache.pre(layer)
        for kind, stack in enumerate(cache.stacks(layer, mlp_input)):
            if kind in (2, 5, 6):
                assert np.allclose(stack.sum(0), whole)
            for ln in (0, 1):
                stack = cache.normed(stack, kind, layer, mlp_input) if ln else stack
                name = f"{kind}.{layer}.{mlp_input}.{ln}"
                if kind < 6:
                    add("parts." + name, stack)
                add("projected." + name, stack @ project.astype(float))


def heads(c, a, tokens):
    """compute_head_attention_similarity_score, without its rounding."""
    n = len(tokens)
    patterns = np.stack([a[f"blocks.{i}.attn.hook_pattern"] for i in range(c.layers)])
    keys = np.tril(rng.uniform(0, 1, (n, n))).astype(np.float32)
    add("again", tokens)
    add("keys", keys)
    for kind in range(4):
        wanted = keys.astype(float) if kind == 3 else detection(kind, tokens)
        for bos in (0, 1):
            for current in (0, 1):
                shown = np.tril(np.ones((n, n)), -current)
                shown[:, 0] *= not bos
                add(f"heads.{kind}.0.{bos}.{current}",
                    (patterns * wanted * shown).sum((-2, -1)) / (patterns * shown).sum((-2, -1)))
                add(f"heads.{kind}.1.{bos}.{current}", 1 - (np.abs(patterns - wanted) * shown).sum((-2, -1)) / n)


def main():
    products()
    for name in ("odd", "narrow"):
        c = Model.open(os.path.join(here, "golden", name))
        w = Weights(c)
        circuits(name, c, w)
    tokens = rng.integers(0, c.vocab, 8)
    parts(Cache(c, w, c.activations(tokens)), tokens)
    half = rng.integers(0, c.vocab, 7)
    again = np.r_[half, half[:3], half]
    heads(c, c.activations(again), again)
    save(sys.argv[1] if len(sys.argv) > 1 else "tests/fixtures/circuits.bin", written)


main()
