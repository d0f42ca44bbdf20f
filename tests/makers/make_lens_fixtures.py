#!/usr/bin/env python3
"""Writes tests/fixtures/lens.bin: what the analysis functions must find in the models of golden/.

    python3 tests/makers/make_lens_fixtures.py [tests/fixtures/lens.bin]

Needs numpy (Debian: python3-numpy). Everything is computed in float64 from the stored weights, by
the formulas of TransformerLens (head_detector, ActivationCache.decompose_resid, logit_attrs,
apply_ln_to_stack, FactoredMatrix, fold_layer_norm, center_writing_weights, center_unembed) and
stored as float32. The file's layout is in fixture_file.py. Names are "plain.rank" and so
on; T is the length of the text, L layers, H heads, P the positions 5 to 7. Of large
matrices only the first rows are kept.
"""
import os
import sys

import numpy as np

from fixture_file import entry, save
from float64 import Model, read_safetensors

here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

FIRST, COUNT = 5, 3  # the positions whose parts are kept
ROWS = 16  # so many rows of a large matrix are kept
rng = np.random.default_rng(20240611)
written = []


def add(name, array):
    written.append(entry(name, array))


class Weights:
    """The parameters of one model under TransformerLens's names and shapes."""

    def __init__(self, c):
        w = c.w
        split = lambda m: m.reshape(c.width, c.heads, c.d).transpose(1, 0, 2)
        self.W_E, self.W_pos = w["wte.weight"], w["wpe.weight"]
        self.W_U = c.W_U
        self.b_U = np.zeros(c.vocab)
        self.lnf_w, self.lnf_b = w["ln_f.weight"], w["ln_f.bias"]
        self.blocks = []
        for i in range(c.layers):
            get = lambda name: w[f"h.{i}.{name}"]
            b = dict(ln1_w=get("ln_1.weight"), ln1_b=get("ln_1.bias"), ln2_w=get("ln_2.weight"),
                     ln2_b=get("ln_2.bias"), b_O=get("attn.c_proj.bias"),
                     W_O=get("attn.c_proj.weight").reshape(c.heads, c.d, c.width),
                     W_in=get("mlp.c_fc.weight"), b_in=get("mlp.c_fc.bias"),
                     W_out=get("mlp.c_proj.weight"), b_out=get("mlp.c_proj.bias"))
            for name, m, v in zip("QKV", np.split(get("attn.c_attn.weight"), 3, axis=1),
                                  np.split(get("attn.c_attn.bias"), 3)):
                b["W_" + name], b["b_" + name] = split(m), v.reshape(c.heads, c.d)
            self.blocks.append(b)


def statistics(name, logits, tokens):
    """logits [T, V]; rank and probability of each next token; the five likeliest."""
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    true = p[np.arange(len(tokens) - 1), tokens[1:]]
    order = np.argsort(-logits, axis=-1, kind="stable")
    add(name + ".nll", -np.log(true))
    add(name + ".probability", true)
    add(name + ".rank", [int(np.where(order[t] == tokens[t + 1])[0][0])
                         for t in range(len(tokens) - 1)])
    add(name + ".top", order[:, :5])
    add(name + ".top_probability", np.take_along_axis(p, order[:, :5], -1))


def detection(kind, tokens):
    """head_detector's patterns."""
    n = len(tokens)
    if kind == 0:
        return np.eye(n, k=-1)
    same = np.tril((tokens[None, :] == tokens[:, None]) & ~np.eye(n, dtype=bool))
    if kind == 1:
        return same.astype(float)
    shifted = np.roll(same, 1, axis=1)
    shifted[:, 0] = 0
    return np.tril(shifted).astype(float)


def heads(name, c, a, tokens):
    """a: the activations of a text in which tokens come again."""
    patterns = np.stack([a[f"blocks.{i}.attn.hook_pattern"] for i in range(c.layers)])
    logs = np.log(np.where(patterns > 0, patterns, 1))
    keys = np.stack([detection(kind, tokens) for kind in range(3)])
    add(name + ".again", tokens)
    add(name + ".pattern", patterns[0])
    add(name + ".entropy", -(patterns * logs).sum(-1))
    add(name + ".keys", keys)
    add(name + ".head_scores", np.einsum("lhqk,nqk->nlh", patterns, keys) /
        patterns.sum((-2, -1)))


def attribution(name, c, w, a, tokens):
    part = slice(FIRST, FIRST + COUNT)
    act = lambda i, n: a[f"blocks.{i}.{n}"][part]
    layers = range(c.layers)
    final = act(c.layers - 1, "hook_resid_post")
    embeds = [a["hook_embed"][part], a["hook_pos_embed"][part]]
    scale = a["ln_final.hook_scale"][part]
    results = [act(i, "attn.hook_result")[:, h] for i in layers for h in range(c.heads)]
    bias = sum(b["b_O"] for b in w.blocks) + np.zeros_like(final)
    stacks = [
        [act(i, "hook_resid_pre") for i in layers] + [final],
        [act(i, n) for i in layers for n in ("hook_resid_pre", "hook_resid_mid")] + [final],
        embeds + [act(i, n) for i in layers for n in ("hook_attn_out", "hook_mlp_out")],
        results + [act(i, "hook_mlp_out") for i in layers] + embeds + [bias]]
    for kind, stack in enumerate(stacks):
        stacks[kind] = np.stack(stack)
        add(f"{name}.parts.{kind}", stacks[kind])
    for stack in stacks[2:]:
        assert np.allclose(stack.sum(0), final)
    add(name + ".scale", scale)
    add(name + ".resid", final)

    right, wrong = tokens[FIRST + 1:FIRST + COUNT + 1], (tokens[FIRST:FIRST + COUNT] + 3) % c.vocab
    directions = (w.W_U[:, right] - w.W_U[:, wrong]).T
    gained = directions * w.lnf_w
    centred = lambda x: (x - x.mean(-1, keepdims=True)) / scale
    difference = a["logits"][part][np.arange(COUNT), right] - a["logits"][part][np.arange(COUNT), wrong]
    add(name + ".right", right)
    add(name + ".wrong", wrong)
    add(name + ".directions", directions)
    add(name + ".difference", difference)
    add(name + ".bias", directions @ w.lnf_b)
    for kind, stack in enumerate(stacks):
        terms = np.einsum("ntc,tc->nt", centred(stack), gained)
        add(f"{name}.attributed.{kind}", terms)
        if kind >= 2:
            assert np.allclose(terms.sum(0) + directions @ w.lnf_b, difference)
    last = c.layers - 1
    post, w_out = act(last, "mlp.hook_post"), w.blocks[last]["W_out"]
    each = post[:, :, None] * w_out
    add(name + ".z", act(last, "attn.hook_z"))
    add(name + ".result", act(last, "attn.hook_result"))
    add(name + ".post", post)
    add(name + ".neurons", each[:, 7:10])
    each = (each - each.mean(-1, keepdims=True)) / scale[:, :, None]
    add(name + ".neuron_terms", np.einsum("tfc,tc->tf", each, gained))
    add(name + ".neuron_terms_one", each @ gained[0])

    def lens(x, s):
        return ((x - x.mean(-1, keepdims=True)) / s * w.lnf_w + w.lnf_b) @ w.W_U
    x = stacks[0]
    add(name + ".lens_fresh", lens(x, np.sqrt(x.var(-1, keepdims=True) + 1e-5)))
    add(name + ".lens_saved", lens(x, scale))


def circuits(name, c, w):
    pair = lambda b, h: ((b["W_Q"][h] @ b["W_K"][h].T), (b["W_V"][h] @ b["W_O"][h]))
    all_qk = np.stack([[pair(b, h)[0] for h in range(c.heads)] for b in w.blocks])
    all_ov = np.stack([[pair(b, h)[1] for h in range(c.heads)] for b in w.blocks])
    add(name + ".qk", all_qk[-1, 1][:ROWS])
    add(name + ".ov", all_ov[-1, 1][:ROWS])
    add(name + ".singular.0", np.linalg.svd(all_qk, compute_uv=False)[..., :c.d])
    add(name + ".singular.1", np.linalg.svd(all_ov, compute_uv=False)[..., :c.d])
    norm = lambda m: np.sqrt((m * m).sum((-2, -1)))
    for kind, readers in enumerate([all_qk, all_qk.swapaxes(-1, -2), all_ov]):
        scores = np.zeros((c.layers, c.heads, c.layers, c.heads))
        for i in range(c.layers):
            for j in range(i + 1, c.layers):
                for g in range(c.heads):
                    for h in range(c.heads):
                        left, right = all_ov[i, g], readers[j, h]
                        scores[i, g, j, h] = norm(left @ right) / (norm(left) * norm(right))
        add(f"{name}.composition.{kind}", scores)


def products():
    """Singular values of left · right: tall, flat, of low rank, of very different sizes."""
    def case(left, right):
        number = sum(n.startswith("svd.") for n, _, _ in written) // 3
        left, right = left.astype(np.float32), right.astype(np.float32)
        values = np.linalg.svd(left.astype(float) @ right.astype(float), compute_uv=False)
        values = np.r_[values, np.zeros(left.shape[1])][:left.shape[1]]
        for key, value in zip(("left", "right", "values"), (left, right, values)):
            add(f"svd.{number}.{key}", value)
    normal = lambda *shape: rng.normal(0, 1, shape)
    case(normal(40, 12), normal(12, 30))
    case(normal(5, 9), normal(9, 33))
    case(normal(1, 1), normal(1, 1))
    case(normal(30, 4) @ normal(4, 10), normal(10, 30))
    case(normal(30, 16) * np.logspace(3, -3, 16), normal(16, 20))
    case(np.zeros((8, 3)), normal(3, 8))
    case(np.eye(6)[:, :4], np.diag([4.0, 1, 3, 2]) @ np.eye(6)[:4])


def reworked(name, c, w):
    """The last block and the unembedding after each operation alone."""
    b = w.blocks[-1]
    folded = b["W_K"] * b["ln1_w"][:, None]
    add(f"{name}.folded.W_K", folded - folded.mean(1, keepdims=True))
    add(f"{name}.folded.b_K", b["b_K"] + np.einsum("hcd,c->hd", b["W_K"], b["ln1_b"]))
    folded = b["W_in"] * b["ln2_w"][:, None]
    add(f"{name}.folded.W_in", (folded - folded.mean(0))[:ROWS])
    add(f"{name}.folded.b_in", b["b_in"] + b["ln2_b"] @ b["W_in"])
    folded = w.W_U * w.lnf_w[:, None]
    add(f"{name}.folded.W_U", (folded - folded.mean(0))[:ROWS])
    add(f"{name}.folded.b_U", w.lnf_b @ w.W_U)
    add(f"{name}.values.b_O", b["b_O"] + np.einsum("hd,hdc->c", b["b_V"], b["W_O"]))
    centre = lambda m: m - m.mean(-1, keepdims=True)
    for key, value in (("W_E", w.W_E), ("W_pos", w.W_pos), ("W_O", b["W_O"]), ("b_O", b["b_O"]),
                       ("W_out", b["W_out"]), ("b_out", b["b_out"]), ("W_U", w.W_U)):
        add(f"{name}.centred.{key}", centre(value)[:ROWS])


def main():
    for name in ("plain", "odd"):
        directory = os.path.join(here, "golden", name)
        c = Model.open(directory)
        tokens = read_safetensors(os.path.join(directory, "reference.safetensors"))["tokens"]
        w, a = Weights(c), c.activations(tokens)
        half = rng.integers(0, c.vocab, 10)
        again = np.r_[half, half[:4], half[3], half[3], half]
        add(name + ".tokens", tokens)
        statistics(name, a["logits"], tokens)
        heads(name, c, c.activations(again), again)
        attribution(name, c, w, a, tokens)
        circuits(name, c, w)
        reworked(name, c, w)
    products()
    save(sys.argv[1] if len(sys.argv) > 1 else "tests/fixtures/lens.bin", written)


if __name__ == "__main__":
    main()
