#!/usr/bin/env python3
"""Writes tests/fixtures/graph/: a model, transcoders of each kind that sae.h reads, and whole attribution graphs.

    python3 tests/makers/make_graph_fixtures.py [tests/fixtures/graph]

Needs numpy. The weights are those of tools/lens/graph.h, found the other way round and in float64: what each source
writes is carried forwards through frozen attention and LayerNorms, and each target reads the stream that arrives.
"CASE.ids" is the text, ".nodes" [nodes, 4] kind, layer, position and feature in the order of graph.h, ".values"
[targets, 2] pre_activation and constant, ".weights" [targets, sources]; of the pruned graph ".influence" and ".stay"
[nodes], ".n_edges", ".scores" replacement and completeness; ".claimed" and ".measured" [nodes] as in tools/lens/graph_check.h, ".group" some nodes, ".together" their
claimed and measured effects if they are off together; ".raised" [features, 5] the tokens that each raises most. A case is a directory with a
directory for each transcoder; "tracer" has circuit-tracer's files.
"""
import json
import os
import sys

import numpy as np

import float64
from fixture_file import entry, save
from make_exact_fixtures import Model, make_model

here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EMBEDDING, FEATURE, ERROR, LOGIT = range(4)  # as in graph.h
FEATURES = 14


class Transcoder:
    """A random one, written in SAELens's form."""

    def __init__(self, rng, directory, layer, width, hook, architecture, **cfg):
        self.hook, self.cfg, self.kind, n = hook, cfg, architecture, lambda *s, by=0.3: rng.normal(0, by, s)
        w = {"W_enc": n(width, FEATURES), "W_dec": n(FEATURES, width), "b_enc": n(FEATURES) - 0.3, "b_dec": n(width)}
        if "skip" in architecture:
            w["W_skip"] = n(width, width, by=0.2)
        if "jumprelu" in architecture:
            w["threshold"] = np.abs(n(FEATURES))
        w = {key: x.astype(np.float32) for key, x in w.items()}
        self.w = {key: x.astype(np.float64) for key, x in w.items()}
        if os.path.basename(os.path.dirname(directory)) == "tracer":
            self.write_as_circuit_tracer(os.path.dirname(directory), layer, w)
            return
        os.makedirs(directory, exist_ok=True)
        float64.write_safetensors(os.path.join(directory, "sae_weights.safetensors"), w)
        with open(os.path.join(directory, "cfg.json"), "w") as file:
            json.dump({"architecture": architecture, "d_in": width, "d_out": width, "d_sae": FEATURES, **cfg,
                       "apply_b_dec_to_input": False,
                       "metadata": {"hook_name": f"blocks.{layer}.{hook}", "hook_name_out": f"blocks.{layer}.hook_mlp_out"}},
                      file, indent=1)

    def write_as_circuit_tracer(self, directory, layer, w):
        """Its SingleLayerTranscoder.to_safetensors, and the config.yaml of a set that reads what the MLP reads."""
        w = {**w, "W_enc": np.ascontiguousarray(w["W_enc"].T)}
        if "threshold" in w:
            w["activation_function.threshold"] = w.pop("threshold")
        os.makedirs(directory, exist_ok=True)
        float64.write_safetensors(os.path.join(directory, f"layer_{layer}.safetensors"), w)
        with open(os.path.join(directory, "config.yaml"), "w") as file:
            file.write('model_name: "fixture"\nmodel_kind: "transcoder_set"\n\nfeature_input_hook: "mlp.hook_in"\n'
                       "feature_output_hook: hook_mlp_out  # as circuit-tracer names it\nscan: fixture\n")

    def input_of(self, x):
        """y, and the linear map from x to it, its scale frozen."""
        norm = self.cfg.get("normalize_activations", "none")
        if norm == "layer_norm":
            s = x.std(-1, ddof=1, keepdims=True) + 1e-5
            return (x - x.mean(-1, keepdims=True)) / s, lambda d: (d - d.mean(-1, keepdims=True)) / s
        if norm == "constant_norm_rescale":
            s = np.sqrt((x * x).mean(-1, keepdims=True))
            return x / s, lambda d: d / s
        return x, lambda d: d

    def encode(self, y):
        """Active features [T, m], and encoder and bias with which an active feature is linear."""
        norms = np.linalg.norm(self.w["W_dec"], axis=1) if self.cfg.get("rescale_acts_by_decoder_norm") else np.ones(FEATURES)
        enc, bias = self.w["W_enc"] * norms, self.w["b_enc"] * norms
        pre = y @ enc + bias
        edge = np.zeros_like(pre)  # the value above which a feature is active
        if "jumprelu" in self.kind:
            edge = np.maximum(self.w["threshold"], 0) + edge
        if self.cfg.get("activation_fn") == "topk":
            edge = np.maximum(np.sort(pre, -1)[:, [-1 - self.cfg["k"]]], 0) + edge
        assert np.abs(pre - edge)[pre != edge].min() > 1e-4, "a feature is at the edge; take another seed"
        return np.where(pre > edge, pre, 0), enc, bias, self.w["W_dec"] / norms[:, None]


class Graph:
    """What one run leaves behind: sources and targets, and in `a` all that is frozen."""

    def __init__(self, model, transcoders, ids):
        self.m, self.n, self.transcoders = model, len(ids), transcoders
        self.a = model.activations(ids)
        x = self.a["blocks.0.hook_resid_pre"]
        self.sources, self.targets = [((EMBEDDING, 0, t, 0), -1, x[t]) for t in range(self.n)], []
        for i in range(model.layers):
            self.add_layer(i, self.a[f"blocks.{i}.hook_mlp_out"])
        self.add_logits(self.a["logits"][-1])

    def add_logits(self, logits):
        """The likeliest, until they have 95 %, and their shares."""
        w, layers = self.m.w, self.m.layers
        centred = self.m.W_U.T - self.m.W_U.mean(1)
        shares = float64.softmax(logits)
        order = np.argsort(-shares)
        order = order[:min(10, 1 + int(np.searchsorted(np.cumsum(shares[order]), 0.95)))]
        self.shares = shares[order]
        for v in order:
            self.targets.append(((LOGIT, layers, self.n - 1, v), layers, centred[v] * w["ln_f.weight"],
                                 logits[v] - logits.mean(), centred[v] @ w["ln_f.bias"]))

    def add_layer(self, i, out):
        """The nodes that write what the MLP writes."""
        c = self.transcoders.get(i)
        if not c:
            self.sources += [((ERROR, i, t, 0), i, out[t]) for t in range(self.n)]
            return
        read = self.a[f"blocks.{i}." + (c.hook + ".pre" if c.hook == "ln2.hook_normalized" else c.hook)]
        y, c.linear = c.input_of(read)
        features, enc, bias, dec = c.encode(y)
        error = out - features @ dec - c.w["b_dec"]
        if "W_skip" in c.w:
            error -= read @ c.w["W_skip"].T
        for t in range(self.n):
            for f in np.flatnonzero(features[t]):
                self.sources.append(((FEATURE, i, t, f), i, features[t, f] * dec[f]))
                self.targets.append(((FEATURE, i, t, f), i, enc[:, f], features[t, f], bias[f]))
            self.sources.append(((ERROR, i, t, 0), i, error[t]))

    def linear_norm(self, d, name):
        return (d - d.mean(-1, keepdims=True)) / self.a[name + ".hook_scale"]

    def hook(self, d, i, bias):
        """What the transcoder of layer i reads of the stream d; with the biases if `bias`."""
        w, p, c = self.m.w, f"h.{i}.", self.transcoders[i]
        if c.hook.startswith("ln2"):
            d = self.linear_norm(d, f"blocks.{i}.ln2")
        if c.hook.endswith(".post"):
            d = d * w[p + "ln_2.weight"] + bias * w[p + "ln_2.bias"]
        return d

    def carry(self, layer, rows, bias):
        """The streams {layer: stream} that targets of each layer read if `rows` [T, C] are written behind the MLP of
        a layer (-1: the embeddings). bias 1: the biases of the model and the transcoders are written too."""
        w, m, streams = self.m.w, self.m, {}
        d = rows
        for i in range(layer + 1, m.layers):
            p, t = f"h.{i}.", f"blocks.{i}."
            y = self.linear_norm(d, t + "ln1") * w[p + "ln_1.weight"] + bias * w[p + "ln_1.bias"]
            v = y @ w[p + "attn.c_attn.weight"][:, 2 * m.width:] + bias * w[p + "attn.c_attn.bias"][2 * m.width:]
            z = (self.a[t + "attn.hook_pattern"] @ v.reshape(self.n, m.heads, m.d).transpose(1, 0, 2)).transpose(1, 0, 2)
            d = d + z.reshape(self.n, -1) @ w[p + "attn.c_proj.weight"] + bias * w[p + "attn.c_proj.bias"]
            if i in self.transcoders:
                c = self.transcoders[i]
                streams[i] = c.linear(self.hook(d, i, bias))
                if "W_skip" in c.w:
                    d = d + self.hook(d, i, bias) @ c.w["W_skip"].T
                d = d + bias * c.w["b_dec"]
        streams[m.layers] = self.linear_norm(d, "ln_final")
        return streams

    def results(self):
        weights = np.zeros((len(self.targets), len(self.sources)))
        for s, (node, layer, row) in enumerate(self.sources):
            rows = np.zeros((self.n, self.m.width))
            rows[node[2]] = row
            streams = self.carry(layer, rows, 0)
            for k, (target, reads, direction, *_) in enumerate(self.targets):
                if reads in streams and reads > layer:
                    weights[k, s] = streams[reads][target[2]] @ direction
        biases = self.carry(-1, np.zeros((self.n, self.m.width)), 1)
        values = np.array([(pre, own + biases[reads][target[2]] @ direction)
                           for target, reads, direction, pre, own in self.targets])
        off = np.abs(values[:, 1] + weights.sum(1) - values[:, 0]).max()
        assert off < 1e-10, off
        nodes = [s[0] for s in self.sources] + [t[0] for t in self.targets if t[0][0] == LOGIT]
        return nodes, values, weights


def normalized(matrix):
    size = np.abs(matrix)
    return size / np.maximum(size.sum(1, keepdims=True), 1e-10)


def influence_of(matrix, start):
    total = now = start @ matrix
    while now.any():
        now = now @ matrix
        total = total + now
    return total


def threshold_of(scores, share):
    scores = np.sort(scores.flatten())[::-1]
    return scores[min(int(np.searchsorted(np.cumsum(scores) / scores.sum(), share)), scores.size - 1)]


def pruned(kinds, weights, targets, shares, node_threshold=0.8, edge_threshold=0.98):
    """The rule of circuit-tracer (Ameisen et al. 2025, graph.py), on whole matrices."""
    n = len(kinds)
    matrix, start = np.zeros((n, n)), np.zeros(n)
    matrix[targets, :weights.shape[1]] = weights
    start[kinds == LOGIT] = shares
    share = normalized(matrix)
    influence = influence_of(share, start)
    errors, embeddings = influence[kinds == ERROR].sum(), influence[kinds == EMBEDDING].sum()
    out = influence + start
    completeness = ((1 - share[:, kinds == ERROR].sum(1)) * out).sum() / out.sum()
    ends = (kinds == EMBEDDING) | (kinds == LOGIT)
    nodes = (influence >= threshold_of(influence, node_threshold)) | ends
    inner = matrix * nodes * nodes[:, None]
    scores = normalized(inner)
    scores = scores * (influence_of(scores, start) + start)[:, None]
    edges = (scores >= threshold_of(scores, edge_threshold)) & (matrix != 0)
    while True:
        edges &= nodes & nodes[:, None]
        fewer = nodes & (ends | edges.any(0)) & ((kinds != FEATURE) | edges.any(1))
        if (fewer == nodes).all():
            return influence, nodes, edges.sum(), [embeddings / (embeddings + errors), completeness]
        nodes = fewer


def effects_of(graph, model, nodes, weights, targets, ids):
    """Of each node: how the likeliest logit, minus the mean of all, changes if the node is switched off: by all paths of
    the graph, and in the model (features only; else NaN). Then every third feature, and the effects of these together."""
    n, rows = len(nodes), graph.n
    matrix, measured = np.zeros((n, n)), np.full(n, np.nan)
    matrix[targets, :weights.shape[1]] = weights
    for t, (node, _, _, pre, _) in zip(targets, graph.targets):
        matrix[t] /= pre if node[0] == FEATURE else 1
    logit = weights.shape[1]
    claimed = -np.linalg.solve((np.eye(n) - matrix).T, np.eye(n)[logit])
    claimed[logit:] = 0

    def value(off):
        outputs = {f"m{layer}": np.zeros((rows, graph.m.width)) for _, layer, _ in (graph.sources[i] for i in off)}
        for node, layer, row in (graph.sources[i] for i in off):
            outputs[f"m{layer}"][node[2]] -= row
        logits = model.run(ids, outputs=outputs)[0][-1]
        return logits[nodes[logit][3]] - logits.mean()
    plain = value([])
    features = [i for i, node in enumerate(nodes) if node[0] == FEATURE]
    for i in features:
        measured[i] = value([i]) - plain
    group = features[1::3]  # together: no edge into a feature that is off counts
    matrix[group] = 0
    together = -np.linalg.solve((np.eye(n) - matrix).T, np.eye(n)[logit])[group].sum(), value(group) - plain
    return claimed, measured, group, together


def raised_by(graph):
    """The five tokens that each feature raises most: by what it writes, through the last LayerNorm's gain and W_U."""
    w = graph.m.w
    rows = np.array([row - row.mean() for node, _, row in graph.sources if node[0] == FEATURE])
    logits = (rows * w["ln_f.weight"]) @ graph.m.W_U
    order = np.argsort(-logits, 1)[:, :5]
    best = -np.sort(-logits, 1)[:, :6]
    assert ((best[:, :-1] - best[:, 1:]) > 1e-5 * np.abs(best[:, :-1])).all(), "two tokens are too near; take another seed"
    return order


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "fixtures", "graph")
    at = os.path.join(out, "model")
    make_model(at, 3, 3, 5, 23, 31, 12, True, scaled_by=8)  # so few tokens have 95 % of the probability
    model = Model.open(at)
    rng, written = np.random.default_rng(59), []
    cases = {
        "missing": {0: ("ln2.hook_normalized", "skip_transcoder", {}),
                    2: ("hook_mlp_in", "transcoder", {"activation_fn": "topk", "k": 3, "rescale_acts_by_decoder_norm": True})},
        "whole": {0: ("ln2.hook_normalized.post", "jumprelu_transcoder", {}),
                  1: ("ln2.hook_normalized.post", "skip_transcoder", {"normalize_activations": "constant_norm_rescale"}),
                  2: ("hook_resid_mid", "jumprelu_skip_transcoder", {"normalize_activations": "layer_norm"})},
        "first": {1: ("ln2.hook_normalized", "transcoder", {})},
        "tracer": {0: ("ln2.hook_normalized.post", "skip_transcoder", {}),
                   2: ("ln2.hook_normalized.post", "jumprelu_transcoder", {})}}
    for case, layers in cases.items():
        transcoders = {i: Transcoder(rng, os.path.join(out, case, f"layer{i}"), i, model.width, hook, kind, **cfg)
                       for i, (hook, kind, cfg) in layers.items()}
        ids = rng.integers(0, model.vocab, 1 if case == "first" else 7)
        graph = Graph(float64.Model.open(at), transcoders, ids)
        nodes, values, weights = graph.results()
        kinds = np.array([node[0] for node in nodes])
        targets = np.flatnonzero((kinds == FEATURE) | (kinds == LOGIT))
        claimed, measured, group, together = effects_of(graph, model, nodes, weights, targets, ids)
        influence, stay, n_edges, scores = pruned(kinds, weights, targets, graph.shares)
        print(case, len(graph.shares), "logits; targets, sources:", weights.shape, "largest", np.abs(weights).max())
        for key, x in (("ids", ids), ("nodes", nodes), ("values", values), ("weights", weights),
                       ("influence", influence), ("stay", stay), ("n_edges", [int(n_edges)]),
                       ("scores", scores), ("claimed", claimed), ("measured", measured),
                       ("group", group), ("together", together), ("raised", raised_by(graph))):
            written.append(entry(f"{case}.{key}", x))
    save(os.path.join(out, "graphs.bin"), written)


if __name__ == "__main__":
    main()
