#!/usr/bin/env python3
"""Compares `lens graph` with PyTorch's autograd in float64, edge by edge.

    compare_graphs.py BUILD

BUILD holds attn-convert and lens. Random models of odd shapes with random transcoders: ReLU, JumpReLU and top-k, with
and without a skip, one and several layers missing; and the included model with examples/sae/transcoders. The model runs
once; then again with its patterns and LayerNorm scales frozen, each MLP replaced by rows of sources, and every edge is
the gradient of a target with respect to a source's row, times the row. Prints of each case the largest difference of
weights as a share of the largest weight, and of constants as a share of the largest value. The exit code is 1 if one is
above 1e-5. Needs numpy and PyTorch. Where circuit-tracer is installed, its Model reads the file of -o too.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch

from compare_gradients import act, here, read_safetensors

sys.path.insert(0, os.path.join(here, "makers"))
from make_exact_fixtures import Shape  # noqa: E402
from make_graph_fixtures import Transcoder  # noqa: E402

torch.set_default_dtype(torch.float64)
PRE, POST, MID, IN = "ln2.hook_normalized", "ln2.hook_normalized.post", "hook_resid_mid", "hook_mlp_in"
TOPK = {"activation_fn": "topk", "k": 3}
CASES = {  # layers, heads, d_head, d_mlp, vocabulary; tokens; transcoders by layer: hook, architecture, more of cfg.json
    "skip and top-k, one missing": ((3, 2, 7, 19, 29), 6, {0: (PRE, "skip_transcoder", {}), 2: (POST, "transcoder", TOPK)}),
    "JumpReLU and skip, three missing": ((5, 3, 5, 31, 23), 9, {1: (MID, "jumprelu_skip_transcoder", {}),
                                                               4: (PRE, "jumprelu_transcoder", {})}),
    "every layer": ((4, 1, 11, 17, 41), 5, {0: (POST, "jumprelu_transcoder", {}), 1: (IN, "skip_transcoder", TOPK),
                                            2: (MID, "transcoder", {}), 3: (POST, "jumprelu_skip_transcoder", {})}),
    "the first alone, one token": ((2, 5, 3, 8, 13), 1, {0: (PRE, "transcoder", {})}),
}


class Frozen:
    """What the plain run leaves behind."""

    def __init__(self, directory, transcoders, ids):
        with open(os.path.join(directory, "config.json")) as f:
            self.cfg = json.load(f)
        weights = read_safetensors(os.path.join(directory, "model.safetensors"))
        self.w = {name: torch.tensor(np.array(x), dtype=torch.float64) for name, x in weights.items()}
        self.ids, self.n, self.c = torch.tensor(ids), len(ids), transcoders
        self.scale, self.pattern, self.rows, self.nodes = {}, {}, {}, []
        x = self.w["wte.weight"][self.ids] + self.w["wpe.weight"][:self.n]
        self.rows[-1] = (x, torch.arange(self.n))
        self.nodes += [f"embedding {t}" for t in range(self.n)]
        for i in range(self.cfg["n_layer"]):
            x = x + self.attention(x, i, freeze=True)
            out = self.mlp(x, i)
            self.sources(x, out, i)
            x = x + out
        self.logits = self.unembed(self.norm(x, "ln_f", freeze=True))

    def norm(self, x, name, freeze=False):
        x = x - x.mean(-1, keepdim=True)
        if freeze:
            self.scale[name] = (x.pow(2).mean(-1, keepdim=True) + self.cfg["layer_norm_epsilon"]).sqrt()
        return x / self.scale[name] * self.w[name + ".weight"] + self.w[name + ".bias"]

    def attention(self, x, i, freeze=False):
        p, heads = f"h.{i}.", self.cfg["n_head"]
        y = self.norm(x, p + "ln_1", freeze)
        q, k, v = [part.reshape(self.n, heads, -1).transpose(0, 1) for part in
                   (y @ self.w[p + "attn.c_attn.weight"] + self.w[p + "attn.c_attn.bias"]).chunk(3, -1)]
        if freeze:
            scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
            self.pattern[i] = scores.masked_fill(torch.ones(self.n, self.n).triu(1).bool(), -torch.inf).softmax(-1)
        z = (self.pattern[i] @ v).transpose(0, 1).reshape(self.n, -1)
        return z @ self.w[p + "attn.c_proj.weight"] + self.w[p + "attn.c_proj.bias"]

    def mlp(self, x, i):
        p = f"h.{i}."
        y = self.norm(x, p + "ln_2", freeze=True)
        h = act(self.cfg["activation_function"], y @ self.w[p + "mlp.c_fc.weight"] + self.w[p + "mlp.c_fc.bias"])
        return h @ self.w[p + "mlp.c_proj.weight"] + self.w[p + "mlp.c_proj.bias"]

    def read(self, x, i):
        """What the transcoder of a layer reads."""
        hook, name = self.c[i]["hook"], f"h.{i}.ln_2"
        if hook == POST:
            return self.norm(x, name)
        return (x - x.mean(-1, keepdim=True)) / self.scale[name] if hook == PRE else x

    def sources(self, x, out, i):
        """The rows that features and errors of a layer write, their positions and names."""
        rows, places = [], []
        if i in self.c:
            c, w = self.c[i], self.c[i]["w"]
            pre = self.read(x, i) @ w["W_enc"] + w["b_enc"]
            active = pre > (w["threshold"].relu() if "threshold" in w else 0)
            if c.get("activation_fn") == "topk":
                active &= pre >= pre.topk(c["k"], -1).values[:, -1:]
            c["active"] = active
            out = out - (pre * active) @ w["W_dec"] - self.constant(x, i)
        for t in range(self.n):
            for f in self.c[i]["active"][t].nonzero().flatten().tolist() if i in self.c else ():
                rows.append(pre[t, f] * w["W_dec"][f])
                self.nodes.append(f"feature {i}.{t}.{f}")
                places.append(t)
            rows.append(out[t])
            self.nodes.append(f"error {i}.{t}")
            places.append(t)
        self.rows[i] = torch.stack(rows), torch.tensor(places)

    def constant(self, x, i):
        """What a transcoder writes that is no feature."""
        w = self.c[i]["w"]
        return w["b_dec"] + (self.read(x, i) @ w["W_skip"].T if "W_skip" in w else 0)

    def unembed(self, y):
        return y[-1] @ self.w.get("lm_head.weight", self.w["wte.weight"]).T

    def edges(self):
        """{target: (value, {source: weight})} by autograd; the value of the linear model."""
        leaves = [rows.clone().requires_grad_() for rows, _ in self.rows.values()]
        x, targets = leaves[0], {}
        for i in range(self.cfg["n_layer"]):
            x = x + self.attention(x, i)
            if i in self.c:
                w = self.c[i]["w"]
                pre = self.read(x, i) @ w["W_enc"] + w["b_enc"]
                targets.update({f"feature {i}.{t}.{f}": pre[t, f] for t, f in self.c[i]["active"].nonzero().tolist()})
            more = torch.zeros_like(x).index_add(0, self.rows[i][1], leaves[i + 1])
            x = x + more + (self.constant(x, i) if i in self.c else 0)
        logits = self.unembed(self.norm(x, "ln_f"))
        order, total = self.logits.softmax(-1).sort(descending=True), 0
        for share, v in list(zip(order.values.tolist(), order.indices.tolist()))[:10]:
            if total < 0.95:
                targets[f"logit {v}"] = logits[v] - logits.mean()
            total += share
        for name, target in targets.items():
            found = torch.autograd.grad(target, leaves, retain_graph=True, allow_unused=True)
            weights = torch.cat([(leaf * (0 if g is None else g)).sum(-1) for leaf, g in zip(leaves, found)])
            yield name, target.item(), dict(zip(self.nodes, weights.tolist()))


def open_transcoders(directory):
    found = {}
    for name in sorted(os.listdir(directory)):
        if os.path.exists(os.path.join(directory, name, "cfg.json")):
            with open(os.path.join(directory, name, "cfg.json")) as f:
                cfg = json.load(f)
            w = read_safetensors(os.path.join(directory, name, "sae_weights.safetensors"))
            _, layer, hook = cfg["metadata"]["hook_name"].split(".", 2)
            found[int(layer)] = {**cfg, "hook": hook, "w": {k: torch.tensor(np.array(x), dtype=torch.float64) for k, x in w.items()}}
    return found


def open_in_circuit_tracer(command, ours, tmp):
    """Its reader must know the file, with the nodes and edges that stay."""
    try:
        from circuit_tracer.frontend.graph_models import Link, Model
    except ImportError:
        return
    path = os.path.join(tmp, "graph.json")
    subprocess.run([*command, "-o", path], check=True)
    with open(path, encoding="utf-8") as f:
        model = Model.model_validate(json.load(f))
    ids = {node.node_id for node in model.nodes}
    links = [Link.model_validate(link) for link in model.links]
    assert len(ids) == len(model.nodes) == sum(node["stays"] for node in ours["nodes"])
    assert all(link.source in ids and link.target in ids for link in links)
    print(f"  circuit-tracer reads {len(ids)} nodes and {len(links)} edges of it")


def compare(build, name, model, transcoders, ids, tmp):
    path = os.path.join(tmp, "model.attn")
    subprocess.run([os.path.join(build, "attn-convert"), "-q", "--no-tokenizer", model, path], check=True)
    command = [os.path.join(build, "lens"), path, "graph", "-q", "--ids", " ".join(map(str, ids)), "--transcoders", transcoders]
    ours = json.loads(subprocess.run([*command, "--json"], check=True, stdout=subprocess.PIPE).stdout)
    open_in_circuit_tracer(command, ours, tmp)
    nodes = {node["id"]: node for node in ours["nodes"]}
    edges = {(edge["from"], edge["to"]): edge["weight"] for edge in ours["edges"]}
    off = largest = off_value = most = n = 0
    frozen = Frozen(model, open_transcoders(transcoders), ids)
    for target, value, weights in frozen.edges():
        for source, weight in weights.items():
            off, largest = max(off, abs(weight - edges.pop((source, target), 0))), max(largest, abs(weight))
        node, n = nodes.pop(target), n + 1
        constant = value - sum(weights.values())
        off_value = max(off_value, abs(node["pre_activation"] - value), abs(node["constant"] - constant))
        most = max(most, abs(value))
    left = [i for i, node in nodes.items() if node["kind"] in ("feature", "logit")]
    assert not left and not edges and len(ours["nodes"]) == len(frozen.nodes) + sum(i.startswith("logit") for i in
                                                                                   (node["id"] for node in ours["nodes"])), left
    print(f"{name}: {n} targets, {len(ours['edges'])} edges; weights {off / largest:.1e}, values {off_value / most:.1e}", flush=True)
    return max(off / largest, off_value / most)


def main():
    build, worst = sys.argv[1], 0
    rng = np.random.default_rng(590)
    with tempfile.TemporaryDirectory() as tmp:
        for number, (name, (shape, n, layers)) in enumerate(CASES.items()):
            model, made = os.path.join(tmp, f"model{number}"), os.path.join(tmp, f"transcoders{number}")
            Shape(model, *shape, 12, number % 2 == 1)
            for i, (hook, kind, cfg) in layers.items():
                Transcoder(rng, os.path.join(made, f"layer{i}"), i, shape[1] * shape[2], hook, kind, **cfg)
            worst = max(worst, compare(build, name, model, made, rng.integers(0, shape[4], n).tolist(), tmp))
        sae = os.path.join(here, "..", "examples", "sae", "transcoders")
        if os.path.isdir(sae):
            worst = max(worst, compare(build, "tiny-stories", os.path.join(here, "..", "examples", "tiny-stories"), sae,
                                       [348, 415, 271, 340, 282, 260], tmp))
    sys.exit(worst > 1e-5)


if __name__ == "__main__":
    main()
