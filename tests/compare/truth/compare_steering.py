#!/usr/bin/env python3
"""Compares `lens steer`, `logit-lens --tuned` and `qk` with PyTorch in float64.

    compare_steering.py BUILD [--count 5]

BUILD holds lens and tiny-stories.attn. Random control vectors (written by the gguf package and by
safetensors), the difference of two random texts, random tuned lenses in the layout of tuned-lens, and
scores taken apart, COUNT of each. The model is transformers' GPT2LMHeadModel, or compare_gradients.py's for
the scores. Where the package tuned-lens is installed (0.2.0), a lens of its own is saved by it, turned into
a file as tuned.h says, and its logits are compared. Prints the largest difference of a logit or a share,
divided by the largest one; the exit code is 1 if one is above 1e-5. Needs numpy, PyTorch, transformers,
safetensors and gguf.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import GPT2LMHeadModel

try:
    from tuned_lens import TunedLens
except ImportError:
    TunedLens = None

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "..", "..", "makers")]
from compare_gradients import Model
from control_vector import write_gguf

DIRECTORY = os.path.join(here, "..", "..", "..", "examples", "tiny-stories")
LAYERS, HEADS, WIDTH, VOCAB = 4, 6, 192, 2048


class Compared:
    def __init__(self, build, folder):
        self.lens = [f"{build}/lens", f"{build}/tiny-stories.attn"]
        self.folder, self.worst = folder, 0
        self.model = GPT2LMHeadModel.from_pretrained(DIRECTORY).double().eval()
        self.rng = np.random.default_rng(4)

    def run(self, *words):
        return json.loads(subprocess.run([*self.lens, *words, "--json"], check=True, capture_output=True,
                                         text=True).stdout)

    def ids(self, most=24):
        return [int(i) for i in self.rng.integers(0, VOCAB - 1, self.rng.integers(2, most))]

    def judge(self, what, got, want):
        got, want = np.asarray(got, float), np.asarray(want, float)
        share = np.abs(got - want).max() / np.abs(want).max()
        print(f"{what:44} {share:.1e} of {np.abs(want).max():.3g}, {got.size} numbers")
        self.worst = max(self.worst, share)

    @torch.no_grad()
    def logits(self, ids, hooks):
        """Of the last token; hooks: (module, what its stream becomes, before it or behind it)."""
        handles = []
        for module, change, before in hooks:
            if before:
                handles.append(module.register_forward_pre_hook(
                    lambda m, args, change=change: (change(args[0]), *args[1:])))
            else:
                handles.append(module.register_forward_hook(
                    lambda m, args, out, change=change: (change(out[0]), *out[1:]) if isinstance(out, tuple)
                    else change(out)))
        out = self.model(torch.tensor([ids])).logits[0, -1].numpy()
        for handle in handles:
            handle.remove()
        return out

    def judge_logits(self, what, answer, logits):
        rows = answer["logits"]
        self.judge(what, [row["logit_with"] for row in rows], logits[[row["token_id"] for row in rows]])

    def control(self, kind):
        ids, strength = self.ids(), float(self.rng.uniform(-3, 3))
        directions = {i: self.rng.normal(0, 0.5, WIDTH).astype(np.float32)
                      for i in range(kind == "gguf", LAYERS) if kind != "rows" or i != 1}
        path = os.path.join(self.folder, "vector." + ("gguf" if kind == "gguf" else "safetensors"))
        if kind == "gguf":
            write_gguf(path, directions)
        elif kind == "rows":
            save_file({f"direction.{i}": torch.tensor(d) for i, d in directions.items()}, path)
        else:
            save_file({"v": torch.tensor(np.stack([directions[i] for i in range(LAYERS)]))}, path)
        answer = self.run("steer", "--ids", " ".join(map(str, ids)), "--vector", path, "--top", "50",
                          f"--strength={strength}", "-n", "0")
        strength = float(np.float32(strength))
        hooks = [(self.model.transformer.h[i],
                  lambda x, d=d: x + strength * torch.tensor(d.astype(np.float64)), False)
                 for i, d in directions.items()]
        self.judge_logits(f"control vector, {kind}", answer, self.logits(ids, hooks))

    @torch.no_grad()
    def texts(self):
        ids, towards, away = self.ids(), self.ids(), self.ids()
        layer, strength = int(self.rng.integers(0, LAYERS)), float(np.float32(self.rng.uniform(-4, 4)))
        text = lambda ids: " ".join(map(str, ids))
        answer = self.run("steer", "--ids", text(ids), "--towards", text(towards), "--away", text(away), "--layer",
                          str(layer), f"--strength={strength}", "--top", "50", "-n", "0")
        mean = lambda ids: self.model(torch.tensor([ids]), output_hidden_states=True).hidden_states[layer][0].mean(0)
        direction = mean(towards) - mean(away)
        hooks = [(self.model.transformer.h[layer], lambda x: x + strength * direction, True)]
        self.judge_logits("difference of two texts", answer, self.logits(ids, hooks))

    @torch.no_grad()
    def tuned(self):
        ids = self.ids()
        translators = torch.nn.ModuleList([torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
        path = os.path.join(self.folder, "params.safetensors")
        save_file(translators.state_dict(), path)
        layers = self.run("logit-lens", "--ids", " ".join(map(str, ids)), "--tuned", path, "--top", "50")["layers"]
        streams = self.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        got, want = [], []
        for i, translator in enumerate(translators.double()):
            h = streams[i][0]
            logits = self.model.lm_head(self.model.transformer.ln_f(h + translator(h)))
            for t, position in enumerate(layers[i]["positions"]):
                got += [guess["logit"] for guess in position["top"]]
                want += [logits[t, guess["id"]].item() for guess in position["top"]]
        self.judge("tuned lens", got, want)

    @torch.no_grad()
    def package(self):
        """A lens that tuned-lens made, saved and reads again."""
        ids, saved, path = self.ids(), os.path.join(self.folder, "lens"), os.path.join(self.folder, "params.safetensors")
        made = TunedLens.from_model(GPT2LMHeadModel.from_pretrained(DIRECTORY))
        for translator in made.layer_translators:
            translator.reset_parameters()
        made.save(saved)
        save_file(torch.load(os.path.join(saved, "params.pt"), weights_only=True), path)
        theirs = TunedLens.from_model_and_pretrained(self.model, saved).double()
        layers = self.run("logit-lens", "--ids", " ".join(map(str, ids)), "--tuned", path, "--top", "50")["layers"]
        streams = self.model(torch.tensor([ids]), output_hidden_states=True).hidden_states
        got, want = [], []
        for i in range(LAYERS):
            logits = theirs(streams[i][0], i)
            for t, position in enumerate(layers[i]["positions"]):
                got += [guess["logit"] for guess in position["top"]]
                want += [logits[t, guess["id"]].item() for guess in position["top"]]
        self.judge("tuned lens, by the package", got, want)

    def score(self):
        ids, layer, head = self.ids(), int(self.rng.integers(0, LAYERS)), int(self.rng.integers(0, HEADS))
        query = int(self.rng.integers(0, len(ids)))
        key = int(self.rng.integers(0, query + 1))
        answer = self.run("qk", "--ids", " ".join(map(str, ids)), "--layer", str(layer), "--head", str(head), "--at",
                          str(query), "--key", str(key))
        model = Model(DIRECTORY)
        model.run(ids, split=True)
        a, w = model.a, model.w
        parts = {t: [a["hook_embed"][t], a["hook_pos_embed"][t]] for t in (query, key)}
        for t in parts:
            for i in range(layer):
                parts[t] += [*a[f"blocks.{i}.attn.hook_result"][t], w[f"h.{i}.attn.c_proj.bias"],
                             a[f"blocks.{i}.hook_mlp_out"][t]]
        sides = []
        for t, part in ((query, 0), (key, 1)):
            d = WIDTH // HEADS
            columns = slice(part * WIDTH + head * d, part * WIDTH + (head + 1) * d)
            w_side = w[f"h.{layer}.attn.c_attn.weight"][:, columns]
            x = torch.stack(parts[t])
            stream = x.sum(0)
            scale = ((stream - stream.mean()).pow(2).mean() + 1e-5).sqrt()
            rows = (x - x.mean(-1, keepdim=True)) / scale * w[f"h.{layer}.ln_1.weight"] @ w_side
            bias = w[f"h.{layer}.ln_1.bias"] @ w_side + w[f"h.{layer}.attn.c_attn.bias"][columns]
            sides.append(torch.cat([rows, bias[None]]))
        want = (sides[0] @ sides[1].T / (WIDTH // HEADS) ** 0.5).detach().numpy()
        self.judge("score taken apart", answer["grids"][0]["values"], want)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build")
    ap.add_argument("--count", type=int, default=5)
    o = ap.parse_args()
    torch.manual_seed(3)
    with tempfile.TemporaryDirectory() as folder:
        compared = Compared(o.build, folder)
        for _ in range(o.count):
            for kind in ("gguf", "rows", "layers"):
                compared.control(kind)
            compared.texts()
            compared.tuned()
            if TunedLens:
                compared.package()
            compared.score()
    print(f"largest of all: {compared.worst:.2e}")
    sys.exit(bool(compared.worst > 1e-5))


if __name__ == "__main__":
    main()
