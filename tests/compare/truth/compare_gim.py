#!/usr/bin/env python3
"""Compares `lens gradients --method gim` with gim-explain on HookedTransformer in float64, activation by activation.

    compare_gim.py BUILD [HF_DIRECTORY...] [--tokens 16]

BUILD holds attn-convert and lens. Without a directory: the models of tests/golden, an odd shape, and the included model.
For GIM and for each of its three rules alone it prints the largest difference as a share of the largest gradient of its
tensor, and where. The exit code is 1 if one is above 1e-5. Needs numpy, PyTorch, transformer-lens 3.9 and gim-explain
0.1.4. Gradients of q, k and v are those before the hooks of gim-explain, which divide them.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import gim
import numpy as np
import torch
from compare_gradients import here, make, metrics, read_safetensors, shares
from transformer_lens import HookedTransformer, HookedTransformerConfig

OFF = {"freeze_norm": False, "softmax_temperature": None, "q_scale": None, "k_scale": None, "v_scale": None}
RULES = {"gim": {}, "gim-norm": {**OFF, "freeze_norm": True}, "gim-softmax": {**OFF, "softmax_temperature": 2},
         "gim-qkv": {**OFF, "q_scale": 0.25, "k_scale": 0.25, "v_scale": 0.5}, "plain": OFF}
ACTS = {"gelu_new": "gelu_new", "gelu": "gelu", "relu": "relu", "silu": "silu"}
COPIES = ("use_attn_in", "use_split_qkv_input")
ON_REQUEST = ("*.hook_result", "*.hook_attn_in", "*.hook_q_input", "*.hook_k_input", "*.hook_v_input", "*.hook_mlp_in")


class Model:
    """A HookedTransformer of a directory of Hugging Face, as it is: nothing is folded."""

    def __init__(self, directory):
        self.c = c = json.load(open(os.path.join(directory, "config.json")))
        w = {k: torch.tensor(v.astype(np.float64)) for k, v in read_safetensors(os.path.join(directory, "model.safetensors")).items()
             if v.dtype.kind == "f"}
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


def compare(build, directory, ids, folder):
    """The largest share by which a gradient differs."""
    model, path, worst = Model(directory), os.path.join(folder, "model.attn"), 0
    subprocess.run([f"{build}/attn-convert", "--quiet", directory, path, "--dtype", "f32"], check=True)
    options, metric = metrics(ids, model.c["vocab_size"])["logit"]
    for method, rules in RULES.items():
        out = os.path.join(folder, "gradients.safetensors")
        subprocess.run([f"{build}/lens", path, "gradients", "--ids", " ".join(map(str, ids)), "-o", out, *options, "--method", method,
                        "--", "*", *ON_REQUEST], check=True, stdout=subprocess.DEVNULL)
        got = read_safetensors(out)
        _, want = model.gradients(ids, metric, rules)
        if missing := sorted(set(got) ^ set(want)):
            sys.exit(f"only one of both has {missing}")
        share = shares(got, want)
        largest = max(share, key=share.get)
        print(f"{os.path.basename(directory.rstrip('/')):14} {method:12} {len(share):4} tensors  largest {share[largest]:.2e} at {largest}, "
              f"median {np.median(list(share.values())):.1e}", flush=True)
        worst = max(worst, share[largest])
    return worst


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build")
    ap.add_argument("directories", nargs="*")
    ap.add_argument("--tokens", type=int, default=16)
    o = ap.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        directories = o.directories or [os.path.join(here, "golden", n) for n in ("plain", "odd", "narrow")] + [
            os.path.join(os.path.dirname(here), "examples", "tiny-stories"),
            make(folder, "odd shape", "--layers", "3", "--heads", "7", "--width", "91", "--inner", "133", "--vocab",
                 "211", "--ctx", "70", "--tokens", "2", "--untied", "--seed", "5")]
        worst = 0
        for directory in directories:
            c = json.load(open(os.path.join(directory, "config.json")))
            ids = [int(i) for i in np.random.default_rng(7).integers(0, c["vocab_size"], min(o.tokens, c["n_positions"]))]
            worst = max(worst, compare(o.build, directory, ids, folder))
    print(f"largest of all: {worst:.2e}")
    sys.exit(worst > 1e-5)


if __name__ == "__main__":
    main()
