#!/usr/bin/env python3
"""Writes tests/fixtures/exact/: the effect of every edge between the parts of small models.

    python3 tests/makers/make_exact_fixtures.py [tests/fixtures/exact]

Needs numpy. Three models are those of golden/; two of other shapes are written beside effects.bin. Each effect is a whole pass in float64, by the equations of GPT-2: the clean text runs, and what one
receiver reads is changed by what one sender writes in the corrupted text minus what it writes in the clean one.
"MODEL.CASE.clean" and ".corrupted" are the texts, ".metric" [kind, from_end, token, against] (kinds of
metric.h), ".values" the metric of both texts, ".effects" [S, R] in the order of edges.h; ".nodes" [S]. The
layout is in fixture_file.py. compare/truth/compare_exact.py compares models of other shapes with lens itself.
"""
import json
import math
import os
import struct
import sys

import numpy as np

from fixture_file import save

here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(here, "golden"))
import make_golden

LOSS, LOGIT, LOGIT_DIFF, LOG_PROB = range(4)  # as in metric.h
TYPES = {"F32": np.float32, "F16": np.float16}


def tensors_of(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    return {name: np.frombuffer(data, TYPES[t["dtype"]], math.prod(t["shape"]), t["data_offsets"][0])
            .reshape(t["shape"]).astype(np.float64) for name, t in header.items() if name != "__metadata__"}


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))


ACTIVATIONS = {"gelu_new": gelu_tanh, "gelu_pytorch_tanh": gelu_tanh, "gelu": gelu, "relu": lambda x: np.maximum(x, 0),
               "silu": lambda x: x / (1 + np.exp(-x))}


class Model:
    """A checkpoint in float64. Senders and receivers have EAP's names."""

    def __init__(self, directory):
        c = json.load(open(os.path.join(directory, "config.json")))
        w = tensors_of(os.path.join(directory, "model.safetensors"))
        self.w = {name.removeprefix("transformer."): x for name, x in w.items()}
        self.layers, self.heads, self.width, self.vocab = c["n_layer"], c["n_head"], c["n_embd"], c["vocab_size"]
        self.n_ctx, self.eps = c["n_positions"], c["layer_norm_epsilon"]
        self.act = ACTIVATIONS[c.get("activation_function", "gelu_new")]
        self.d = self.width // self.heads
        scaled, by_layer = c.get("scale_attn_weights", True), c.get("scale_attn_by_inverse_layer_idx", False)
        self.scales = [(self.d ** -0.5 if scaled else 1) / (i + 1 if by_layer else 1) for i in range(self.layers)]
        layers, heads = range(self.layers), range(self.heads)
        self.senders = ["input"] + [name for i in layers for name in [f"a{i}.h{h}" for h in heads] + [f"m{i}"]]
        self.receivers = [name for i in layers for name in
                          [f"a{i}.h{h}<{part}>" for part in "qkv" for h in heads] + [f"m{i}"]] + ["logits"]

    def senders_to(self, receiver):
        """The senders that write before the receiver reads."""
        node = receiver.split("<")[0]
        if node == "logits":
            return self.senders
        first = f"a{node[1:].split('.')[0]}.h0" if node[0] == "a" else node
        return self.senders[:self.senders.index(first)]

    def norm(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps)
        return x * self.w[name + ".weight"] + self.w[name + ".bias"]

    def head(self, stream, i, h, change):
        """What a head writes, without the bias of the output, which belongs to none."""
        p, n = f"h.{i}.", len(stream)
        w, b = self.w[p + "attn.c_attn.weight"], self.w[p + "attn.c_attn.bias"]
        read = []
        for k, part in enumerate("qkv"):
            at = slice(k * self.width + h * self.d, k * self.width + (h + 1) * self.d)
            x = stream + change.get(f"a{i}.h{h}<{part}>", 0)
            read.append(self.norm(x, p + "ln_1") @ w[:, at] + b[at])
        scores = read[0] @ read[1].T * self.scales[i]
        scores[np.triu_indices(n, 1)] = -np.inf
        pattern = np.exp(scores - scores.max(-1, keepdims=True))
        pattern /= pattern.sum(-1, keepdims=True)
        return pattern @ read[2] @ self.w[p + "attn.c_proj.weight"][h * self.d:(h + 1) * self.d]

    def run(self, ids, change={}, outputs={}, ablated={}):
        """Logits, and what each sender writes. change: what is added to what a receiver reads; outputs: what is
        added to what a sender writes; ablated: what a sender writes in place of it."""
        written = lambda name, x: ablated.get(name, x + outputs.get(name, 0))
        writes = {"input": written("input", self.w["wte.weight"][ids] + self.w["wpe.weight"][:len(ids)])}
        stream = writes["input"]
        for i in range(self.layers):
            p = f"h.{i}."
            for h in range(self.heads):
                writes[f"a{i}.h{h}"] = written(f"a{i}.h{h}", self.head(stream, i, h, change))
            stream = stream + sum(writes[f"a{i}.h{h}"] for h in range(self.heads)) + self.w[p + "attn.c_proj.bias"]
            x = self.norm(stream + change.get(f"m{i}", 0), p + "ln_2")
            hidden = self.act(x @ self.w[p + "mlp.c_fc.weight"] + self.w[p + "mlp.c_fc.bias"])
            writes[f"m{i}"] = written(f"m{i}", hidden @ self.w[p + "mlp.c_proj.weight"] + self.w[p + "mlp.c_proj.bias"])
            stream = stream + writes[f"m{i}"]
        unembed = self.w.get("lm_head.weight", self.w["wte.weight"])
        return self.norm(stream + change.get("logits", 0), "ln_f") @ unembed.T, writes


def metric_of(logits, ids, metric):
    kind, from_end, token, against = metric
    if kind in (LOGIT, LOGIT_DIFF):
        row = logits[len(ids) - 1 - from_end]
        return row[token] - (row[against] if kind == LOGIT_DIFF else 0)
    logs = logits - logits.max(-1, keepdims=True)
    logs = logs - np.log(np.exp(logs).sum(-1, keepdims=True))
    if kind == LOG_PROB:
        return logs[len(ids) - 1 - from_end, token]
    return -logs[np.arange(len(ids) - 1), ids[1:]].mean()


def effects_of(model, clean, corrupted, metric):
    """The metric of both texts, the effect of each edge {(sender, receiver): effect}, and of each node."""
    logits, writes = model.run(clean)
    other, changed = model.run(corrupted)
    value = metric_of(logits, clean, metric)
    difference = {name: changed[name] - writes[name] for name in model.senders}
    effect = lambda **what: metric_of(model.run(clean, **what)[0], clean, metric) - value
    edges = {(s, r): effect(change={r: difference[s]}) for r in model.receivers for s in model.senders_to(r)}
    nodes = {s: effect(outputs={s: difference[s]}) for s in model.senders}
    return (value, metric_of(other, corrupted, metric)), edges, nodes


def matrix_of(model, edges):
    effects = np.zeros((len(model.senders), len(model.receivers)))
    for (sender, receiver), value in edges.items():
        effects[model.senders.index(sender), model.receivers.index(receiver)] = value
    return effects


class Shape:
    """What make_golden needs to know of a random checkpoint."""

    def __init__(self, directory, layers, heads, d, inner, vocab, ctx, untied=False, **config):
        self.layers, self.heads, self.width, self.inner = layers, heads, heads * d, inner
        self.vocab, self.ctx, self.untied = vocab, ctx, untied
        os.makedirs(directory, exist_ok=True)
        w = {name: x.astype(np.float32) for name, x in make_golden.make_weights(self, seed=d).items()}
        make_golden.write_safetensors(os.path.join(directory, "model.safetensors"), w)
        config = {"model_type": "gpt2", "vocab_size": vocab, "n_positions": ctx, "n_embd": self.width, "n_layer": layers,
                  "n_head": heads, "n_inner": inner, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": not untied,
                  "activation_function": "gelu_new", **config}
        with open(os.path.join(directory, "config.json"), "w") as file:
            json.dump(config, file, indent=2)
            file.write("\n")


def main():
    written = []
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "fixtures", "exact")
    Shape(os.path.join(out, "single"), 1, 1, 7, 11, 13, 9, activation_function="relu")
    Shape(os.path.join(out, "uneven"), 2, 3, 5, 23, 31, 40, True, activation_function="gelu",
          scale_attn_by_inverse_layer_idx=True)
    cases = {"plain": [(9, 0, [LOGIT_DIFF, 0, 3, 8])],
             "odd": [(7, 0, [LOGIT_DIFF, 0, 5, 6]), (8, 7, [LOGIT, 0, 9, 0]), (9, 4, [LOG_PROB, 2, 11, 0])],
             "narrow": [(12, 5, [LOGIT_DIFF, 0, 1, 2]), (6, 0, [LOSS, 0, 0, 0])],
             "single": [(9, 0, [LOGIT_DIFF, 0, 1, 2]), (5, 3, [LOGIT, 1, 3, 0]), (1, 0, [LOG_PROB, 0, 4, 0])],
             "uneven": [(40, 20, [LOGIT_DIFF, 0, 7, 30]), (11, 7, [LOSS, 0, 0, 0])]}
    rng = np.random.default_rng(49)
    for name, of_model in cases.items():
        own = os.path.join(out, name)
        model = Model(own if os.path.isdir(own) else os.path.join(here, "golden", name))
        for i, (length, same, metric) in enumerate(of_model):
            clean, corrupted = rng.integers(0, model.vocab, (2, length))
            corrupted[:same] = clean[:same]
            values, edges, nodes = effects_of(model, clean, corrupted, metric)
            for key, x in (("clean", clean), ("corrupted", corrupted), ("metric", metric), ("values", values),
                           ("effects", matrix_of(model, edges)), ("nodes", list(nodes.values()))):
                x = np.asarray(x)
                x = np.ascontiguousarray(x, np.int32 if x.dtype.kind == "i" else np.float32)
                written.append((f"{name}.{i}.{key}", 2 if x.dtype == np.int32 else 0, x))
    save(os.path.join(out, "effects.bin"), written)


if __name__ == "__main__":
    main()
