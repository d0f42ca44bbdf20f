#!/usr/bin/env python3
"""Trains the model of this directory: GPT-2 with 2 layers of 2 heads, in whose texts phrases come again.

    train.py DIRECTORY [--seed 1] [--steps 1200] [--layers 2]

Writes model.safetensors (f16) and config.json. A text is token 0, then five random phrases of 3 to 11
tokens in random order, again and again, with random tokens between. The loss counts where a phrase
comes again and its next token can be known. A model of this size finds several ways to do that. So the
loss has two more terms, hints for the heads of layer 0: half of the mean of -log(weight of head 0 on
the previous position) and of -log(weight of head 1 on its own position). The heads of layer 1 get no
hint. Prints the scores of the heads in texts [0, R, R] of different tokens: the mean weight on the
previous position, and at the second R on the token after the same token's first occurrence. Needs
PyTorch; one thread, minutes.
"""
import argparse
import json
import os
import struct
import time

import numpy as np
import torch
import torch.nn.functional as F

V, C, H, L, INNER, CTX, BATCH = 128, 64, 2, 2, 64, 96, 16


def text(rng):
    """Ids [CTX], and where the loss counts [CTX]: 1 at tokens inside a phrase that came before."""
    phrases = [rng.integers(1, V, rng.integers(3, 12)) for _ in range(5)]
    ids, counts, seen = [0], [0], set()
    while len(ids) < CTX:
        i = int(rng.integers(0, 5))
        ids += list(phrases[i])
        counts += [0] + [int(i in seen)] * (len(phrases[i]) - 1)
        seen.add(i)
        between = int(rng.integers(0, 4))
        ids += list(rng.integers(1, V, between))
        counts += [0] * between
    return ids[:CTX], counts[:CTX]


class Model(torch.nn.Module):
    def __init__(self, n_layer):
        super().__init__()
        self.n_layer = n_layer
        n = lambda *s, std=0.02: torch.nn.Parameter(torch.randn(*s) * std)
        w = {"wte.weight": n(V, C), "wpe.weight": n(CTX, C), "ln_f.weight": n(C) * 0 + 1, "ln_f.bias": n(C) * 0}
        for i in range(n_layer):
            p = f"h.{i}."
            for name, rows, columns in (("attn.c_attn", C, 3 * C), ("attn.c_proj", C, C), ("mlp.c_fc", C, INNER),
                                        ("mlp.c_proj", INNER, C)):
                w[p + name + ".weight"] = n(rows, columns, std=0.02 if "fc" in name else 0.06)
                w[p + name + ".bias"] = torch.zeros(columns)
            for name in ("ln_1", "ln_2"):
                w[p + name + ".weight"], w[p + name + ".bias"] = torch.ones(C), torch.zeros(C)
        self.names = list(w)
        self.values = torch.nn.ParameterList([torch.nn.Parameter(w[k].detach().clone()) for k in w])

    def weights(self):
        return dict(zip(self.names, self.values))

    def forward(self, ids):
        """Logits [B, T, V], and each layer's pattern [B, H, T, T]."""
        w, patterns, T = self.weights(), [], ids.shape[1]
        x = w["wte.weight"][ids] + w["wpe.weight"][:T]
        later = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
        for i in range(self.n_layer):
            get = lambda name: w[f"h.{i}.{name}"]
            linear = lambda name, y: y @ get(name + ".weight") + get(name + ".bias")
            norm = lambda name, y: F.layer_norm(y, (C,), get(name + ".weight"), get(name + ".bias"))
            q, k, v = (m.view(*ids.shape, H, -1).transpose(1, 2)
                       for m in linear("attn.c_attn", norm("ln_1", x)).split(C, -1))
            s = (q @ k.transpose(-1, -2) / (C // H) ** 0.5).masked_fill(later, -torch.inf)
            patterns.append(torch.softmax(s, -1))
            x = x + linear("attn.c_proj", (patterns[-1] @ v).transpose(1, 2).reshape(*ids.shape, C))
            x = x + linear("mlp.c_proj", F.gelu(linear("mlp.c_fc", norm("ln_2", x)), approximate="tanh"))
        x = F.layer_norm(x, (C,), w["ln_f.weight"], w["ln_f.bias"])
        return x @ w["wte.weight"].T, patterns


def save(model, directory):
    header, blobs, at = {}, [], 0
    for name, value in model.weights().items():
        raw = value.detach().numpy().astype(np.float16).tobytes()
        header[name] = {"dtype": "F16", "shape": list(value.shape), "data_offsets": [at, at + len(raw)]}
        blobs.append(raw)
        at += len(raw)
    text_ = json.dumps(header, separators=(",", ":")).encode()
    text_ += b" " * (-len(text_) % 8)
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text_)) + text_ + b"".join(blobs))
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new",
              "vocab_size": V, "n_positions": CTX, "n_embd": C, "n_layer": model.n_layer, "n_head": H, "n_inner": INNER,
              "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 0}
    with open(os.path.join(directory, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")


@torch.no_grad()
def report(model, rng):
    """Texts [0, R, R] of forty different random tokens R."""
    half = np.stack([1 + rng.permutation(V - 1)[:40] for _ in range(32)])
    ids = torch.tensor(np.concatenate([np.zeros((32, 1), int), half, half], 1))
    logits, patterns = model(ids)
    losses = F.cross_entropy(logits[:, 41:-1].reshape(-1, V), ids[:, 42:].reshape(-1))
    print(f"loss on the second R: {losses.item():.4f}")
    for i, p in enumerate(patterns):
        previous = p.diagonal(-1, 2, 3).mean((0, 2)).tolist()
        induction = p.diagonal(-39, 2, 3)[:, :, 1:].mean((0, 2)).tolist()
        print(f"layer {i}: previous {[round(x, 3) for x in previous]}, induction {[round(x, 3) for x in induction]}",
              flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("directory")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--steps", type=int, default=1200)
    ap.add_argument("--layers", type=int, default=L)
    o = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(o.seed)
    rng = np.random.default_rng(o.seed)
    model = Model(o.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01)
    begin = time.time()
    for step in range(o.steps):
        ids, counts = (torch.tensor(x) for x in zip(*(text(rng) for _ in range(BATCH))))
        logits, patterns = model(ids)
        losses = F.cross_entropy(logits[:, :-1].reshape(-1, V), ids[:, 1:].reshape(-1), reduction="none")
        wanted = counts[:, 1:].reshape(-1)
        loss = (losses * wanted).sum() / wanted.sum()
        hint = -torch.log(patterns[0][:, 0].diagonal(-1, 1, 2) + 1e-9).mean() \
            - torch.log(patterns[0][:, 1].diagonal(0, 1, 2) + 1e-9).mean()
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1, (step + 1) / 100) * (1 - step / o.steps)
        optimizer.zero_grad()
        (loss + 0.5 * hint).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        if step % 200 == 0:
            print(f"{step:6} {time.time() - begin:6.0f} s  loss {loss.item():.3f}  hint {hint.item():.3f}", flush=True)
            report(model, np.random.default_rng(99))
    with torch.no_grad():
        for value in model.values: # what the file holds
            value.copy_(value.half().float())
    report(model, np.random.default_rng(99))
    save(model, o.directory)


if __name__ == "__main__":
    main()
