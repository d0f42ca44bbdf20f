#!/usr/bin/env python3
"""Writes tests/fixtures/exact/: the effect of every edge between the parts of small models.

    python3 tests/makers/make_exact_fixtures.py [tests/fixtures/exact]

Needs numpy. Three models are those of golden/; two of other shapes are written beside effects.bin. Each effect is a whole pass in float64: the clean text runs, and what one
receiver reads is changed by what one sender writes in the corrupted text minus what it writes in the clean one.
"MODEL.CASE.clean" and ".corrupted" are the texts, ".metric" [kind, from_end, token, against] (kinds of
metric.h), ".values" the metric of both texts, ".effects" [S, R] in the order of edges.h; ".nodes" [S]. The
layout is in fixture_file.py.
"""
import json
import os
import sys

import numpy as np

import float64
from fixture_file import entry, save

here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOSS, LOGIT, LOGIT_DIFF, LOG_PROB = range(4)  # as in metric.h


class Model(float64.Model):
    """Senders and receivers have EAP's names."""

    def __init__(self, *of):
        super().__init__(*of)
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

    def place(self, node, reads):
        """The activation that a node reads or writes, and where in it."""
        if node in ("input", "logits"):
            return ("blocks.0.hook_resid_pre" if node == "input" else f"blocks.{self.layers - 1}.hook_resid_post"), ...
        layer, _, head = node[1:].partition(".h")
        if node[0] == "m":
            return f"blocks.{layer}.hook_mlp_" + ("in" if reads else "out"), ...
        head, _, part = head.partition("<")
        return f"blocks.{layer}." + (f"hook_{part[0]}_input" if reads else "attn.hook_result"), (slice(None), int(head))

    def edit(self, name, x):
        for at, change in self.changes.get(name, ()):
            x = x.copy()
            x[at] = change(x[at])
        return x

    def run(self, ids, change={}, outputs={}, ablated={}):
        """Logits, and what each sender writes. change: what is added to what a receiver reads; outputs: what is
        added to what a sender writes; ablated: what a sender writes in place of it."""
        self.changes = {}
        for of, reads, kept in ((change, True, 1), (outputs, False, 1), (ablated, False, 0)):
            for node, value in of.items():
                name, at = self.place(node, reads)
                self.changes.setdefault(name, []).append((at, lambda x, kept=kept, value=value: x * kept + value))
        logits = super().run(ids, split=True)
        places = {node: self.place(node, False) for node in self.senders}
        return logits, {node: self.a[name][at] for node, (name, at) in places.items()}


def metric_of(logits, ids, metric):
    kind, from_end, token, against = metric
    at = len(ids) - 1 - from_end
    if kind in (LOGIT, LOGIT_DIFF):
        return logits[at, token] - (logits[at, against] if kind == LOGIT_DIFF else 0)
    logs = float64.log_softmax(logits)
    return logs[at, token] if kind == LOG_PROB else -logs[np.arange(len(ids) - 1), ids[1:]].mean()


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


def make_model(directory, layers, heads, d, inner, vocab, ctx, untied=False, scaled_by=1, **config):
    """A random checkpoint; its unembedding, if it has one of its own, is larger by a factor."""
    os.makedirs(directory, exist_ok=True)
    w = float64.random_weights(layers, heads * d, inner, vocab, ctx, untied, seed=d)
    w = {name: x.astype(np.float32) * (scaled_by if name == "lm_head.weight" else 1) for name, x in w.items()}
    float64.write_safetensors(os.path.join(directory, "model.safetensors"), w)
    config = {"model_type": "gpt2", "vocab_size": vocab, "n_positions": ctx, "n_embd": heads * d, "n_layer": layers,
              "n_head": heads, "n_inner": inner, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": not untied,
              "activation_function": "gelu_new", **config}
    with open(os.path.join(directory, "config.json"), "w") as file:
        json.dump(config, file, indent=2)
        file.write("\n")


def open_model(name):
    """Of golden/, or of those that this script makes."""
    own = os.path.join(here, "fixtures", "exact", name)
    return Model.open(own if os.path.isdir(own) else os.path.join(here, "golden", name))


def texts(rng, model, length, same):
    clean, corrupted = rng.integers(0, model.vocab, (2, length))
    corrupted[:same] = clean[:same]
    return clean, corrupted


def main():
    written = []
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "fixtures", "exact")
    make_model(os.path.join(out, "single"), 1, 1, 7, 11, 13, 9, activation_function="relu")
    make_model(os.path.join(out, "uneven"), 2, 3, 5, 23, 31, 40, True, activation_function="gelu",
          scale_attn_by_inverse_layer_idx=True)
    cases = {"plain": [(9, 0, [LOGIT_DIFF, 0, 3, 8])],
             "odd": [(7, 0, [LOGIT_DIFF, 0, 5, 6]), (8, 7, [LOGIT, 0, 9, 0]), (9, 4, [LOG_PROB, 2, 11, 0])],
             "narrow": [(12, 5, [LOGIT_DIFF, 0, 1, 2]), (6, 0, [LOSS, 0, 0, 0])],
             "single": [(9, 0, [LOGIT_DIFF, 0, 1, 2]), (5, 3, [LOGIT, 1, 3, 0]), (1, 0, [LOG_PROB, 0, 4, 0])],
             "uneven": [(40, 20, [LOGIT_DIFF, 0, 7, 30]), (11, 7, [LOSS, 0, 0, 0])]}
    rng = np.random.default_rng(49)
    for name, of_model in cases.items():
        model = open_model(name)
        for i, (length, same, metric) in enumerate(of_model):
            clean, corrupted = texts(rng, model, length, same)
            values, edges, nodes = effects_of(model, clean, corrupted, metric)
            for key, x in (("clean", clean), ("corrupted", corrupted), ("metric", metric), ("values", values),
                           ("effects", matrix_of(model, edges)), ("nodes", list(nodes.values()))):
                written.append(entry(f"{name}.{i}.{key}", x))
    save(os.path.join(out, "effects.bin"), written)


if __name__ == "__main__":
    main()
