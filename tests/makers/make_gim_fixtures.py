#!/usr/bin/env python3
"""Writes tests/fixtures/gim.bin: gradients of the model golden/narrow by gim-explain on HookedTransformer in float64.

    python3 tests/makers/make_gim_fixtures.py [tests/fixtures/gim.bin]

Needs numpy, PyTorch, transformer-lens 3.9 and gim-explain 0.1.4. The file's layout is in fixture_file.py. Gradients of q, k and
v are those before the hooks of gim-explain, which divide them. "gim.NAME" is the gradient of every activation by all
three rules, for the difference of two logits; "gim-norm.NAME", "gim-softmax.NAME" and "gim-qkv.NAME" are some by one rule
alone. "METHOD.edges.1" and "METHOD.edges.3" are the scores of all edges in one and three steps, "gim.patch.NAME" the
estimates of attribution patching, by their definitions, of two texts.
"""
import os
import re
import sys

import gim
import numpy as np
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig

import float64
from fixture_file import entry, save
from make_gradient_fixtures import between, edge_scores, here, metrics, summed, writes_of

OFF = {"freeze_norm": False, "softmax_temperature": None, "q_scale": None, "k_scale": None, "v_scale": None}
RULES = {"gim": {}, "gim-norm": {**OFF, "freeze_norm": True}, "gim-softmax": {**OFF, "softmax_temperature": 2},
         "gim-qkv": {**OFF, "q_scale": 0.25, "k_scale": 0.25, "v_scale": 0.5}, "plain": OFF}
ACTS = {"gelu_new": "gelu_new", "gelu": "gelu", "relu": "relu", "silu": "silu"}
COPIES = ("use_attn_in", "use_split_qkv_input")
SOME = re.compile(r"hook_embed|blocks\.1\.(attn\.hook_(q|k|v|attn_scores|pattern)|ln2\.hook_scale|hook_v_input|hook_mlp_in)$")
written = []


class Model:
    """A HookedTransformer of a directory of Hugging Face, as it is: nothing is folded."""

    def __init__(self, directory):
        of = float64.Model.open(directory, torch)
        c, w = of.config, of.w
        self.layers, self.heads, C = c["n_layer"], c["n_head"], c["n_embd"]
        self.model = HookedTransformer(HookedTransformerConfig(
            n_layers=self.layers, d_model=C, n_ctx=c["n_positions"], d_head=C // self.heads, n_heads=self.heads,
            d_mlp=w["h.0.mlp.c_fc.weight"].shape[1], act_fn=ACTS[c.get("activation_function", "gelu_new")],
            d_vocab=c["vocab_size"], eps=c.get("layer_norm_epsilon", 1e-5), normalization_type="LN", dtype=torch.float64, device="cpu",
            use_attn_result=True, use_hook_mlp_in=True))
        by_head = lambda x: x.reshape(*x.shape[:-1], self.heads, -1).movedim(-2, 0)  # noqa: E731
        state = {"embed.W_E": w["wte.weight"], "pos_embed.W_pos": w["wpe.weight"], "ln_final.w": w["ln_f.weight"],
                 "ln_final.b": w["ln_f.bias"], "unembed.W_U": w.get("lm_head.weight", w["wte.weight"]).T,
                 "unembed.b_U": torch.zeros(c["vocab_size"], dtype=torch.float64)}
        for i in range(self.layers):
            for ours, theirs in (("ln1.w", "ln_1.weight"), ("ln1.b", "ln_1.bias"), ("ln2.w", "ln_2.weight"), ("ln2.b", "ln_2.bias"),
                                 ("mlp.W_in", "mlp.c_fc.weight"), ("mlp.b_in", "mlp.c_fc.bias"), ("mlp.W_out", "mlp.c_proj.weight"),
                                 ("mlp.b_out", "mlp.c_proj.bias"), ("attn.b_O", "attn.c_proj.bias")):
                state[f"blocks.{i}.{ours}"] = w[f"h.{i}.{theirs}"]
            state[f"blocks.{i}.attn.W_O"] = w[f"h.{i}.attn.c_proj.weight"].reshape(self.heads, -1, C)
            for n, part in enumerate("QKV"):
                for kind, name in (("W", "weight"), ("b", "bias")):
                    state[f"blocks.{i}.attn.{kind}_{part}"] = by_head(w[f"h.{i}.attn.c_attn.{name}"][..., n * C:(n + 1) * C])
        wrong = self.model.load_state_dict(state, strict=False)
        assert not wrong.unexpected_keys and all(re.search("mask|IGNORE", key) for key in wrong.missing_keys), wrong

    def run(self, ids, copies=None, stream=None):
        """Logits [T, V], and in self.a every activation as often as the model makes it (ln1 runs for q, k and v), before the
        hooks of gim-explain. copies: the setting by which each head has copies of the stream."""
        self.a = {}

        def keep(x, hook):
            if stream is not None and hook.name == "blocks.0.hook_resid_pre":
                x = stream[None].clone().requires_grad_()
            if x.requires_grad:
                x.retain_grad()
            self.a.setdefault(hook.name, []).append(x)
            return x

        for name in COPIES:
            setattr(self.model.cfg, name, name == copies)
        for name, point in self.model.hook_dict.items():  # in front of gim-explain's own
            if not name.startswith("unembed."):
                point.add_hook(keep, prepend=True)
        return self.model(torch.tensor([ids]))[0]

    def gradients(self, ids, metric, rules, stream=None):
        """The value, and the gradients; those of copies of the stream come from runs in which each head has some."""
        found, value = {}, None
        for copies in (None, *COPIES):
            self.model.reset_hooks()
            with gim.GIM(self.model, **rules):
                value = metric(self.run(ids, copies, stream))
                value.backward()
            for name, made in self.a.items():
                key = name.replace("hook_normalized", "hook_normalized.pre")
                if key not in found and (made[0].grad is not None or name.endswith("hook_scale")):  # a scale may be a constant
                    found[key] = sum((torch.zeros_like(x) if x.grad is None else x.grad)[0] for x in made).numpy()
        for name in list(found):
            if name.endswith("hook_pattern"):  # what is written at later keys is ignored
                found[name] = np.tril(found[name])
            if name.endswith("hook_normalized.pre"):  # behind it the gain multiplies
                gain = self.model.get_submodule(name.removesuffix(".hook_normalized.pre")).w.detach().numpy()
                found[name.replace(".pre", ".post")] = found[name] / gain
        return value.item(), found


def add(name, array):
    written.append(entry(name, array))


def activations(model, ids):
    with torch.no_grad():
        model.model.reset_hooks()
        model.run(ids)
    return {name: made[0][0] for name, made in model.a.items()}


def edges(model, clean, corrupted, metric, rules, steps):
    writes = [writes_of(model, activations(model, ids)) for ids in (clean, corrupted)]
    found = [model.gradients(clean, metric, rules, stream)[1] for stream in between(writes[0][0], writes[1][0], steps)]
    return edge_scores(model, writes[1] - writes[0], found)


def estimates(model, clean, corrupted, metric, name):
    x, y = (activations(model, ids) for ids in (clean, corrupted))
    _, found = model.gradients(corrupted, metric, RULES["gim"])
    keys = [f"blocks.{i}.{name}" for i in range(model.layers)]
    return summed(name, [(x[key] - y[key]).numpy() * found[key] for key in keys])


def main():
    model, rng = Model(os.path.join(here, "golden", "narrow")), np.random.default_rng(13)
    ids, other = ([int(i) for i in rng.integers(0, 43, 7)] for _ in range(2))
    metric = metrics(ids, 43)["logit"]
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
