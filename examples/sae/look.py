#!/usr/bin/env python3
"""Which tokens fire each feature of the autoencoder in this folder, over texts that the model writes.

    examples/sae/look.py [FEATURE...] [--texts 500] [--contexts 8]

Of each feature: how often it fires, and the tokens at which it fires, each with its share of the feature's
whole activation; of those that are named, the texts around the strongest places too. Features are sorted by
the share of their first three tokens: at the top are those that one can name at a glance. Needs
transformers.
"""
import argparse
import collections
import json
import os

import torch
from safetensors.torch import load_file
from transformers import GPT2LMHeadModel

from train import LAYER, here, write_texts


def encode(x):
    with open(os.path.join(here, "cfg.json")) as f:
        cfg = json.load(f)
    w = {k: v.float() for k, v in load_file(os.path.join(here, "sae_weights.safetensors")).items()}
    pre = (x - w["b_dec"] * cfg["apply_b_dec_to_input"]) @ w["W_enc"] + w["b_enc"]
    best = pre.topk(cfg["k"])
    return torch.zeros_like(pre).scatter(-1, best.indices, best.values.relu())


def spellings():
    with open(os.path.join(here, "..", "tiny-stories", "vocab.json"), encoding="utf-8") as f:
        return {i: s.replace("Ġ", " ").replace("Ċ", "↵") for s, i in json.load(f).items()}


@torch.no_grad()
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("features", nargs="*", type=int)
    ap.add_argument("--texts", type=int, default=500)
    ap.add_argument("--contexts", type=int, default=8)
    o = ap.parse_args()
    torch.manual_seed(2) # other texts than those of the training
    model = GPT2LMHeadModel.from_pretrained(os.path.join(here, "..", "tiny-stories")).float().eval()
    texts = write_texts(model, o.texts)
    features = torch.cat([encode(model(part, output_hidden_states=True).hidden_states[LAYER][:, 1:])
                          for part in texts.split(50)])
    token = spellings()
    rows = []
    for i in o.features or range(features.shape[-1]):
        where = features[:, :, i].nonzero().tolist()
        mass = collections.Counter()
        for text, t in where:
            mass[token[int(texts[text, t + 1])]] += features[text, t, i].item()
        total = sum(mass.values()) or 1
        best = [(s, round(v / total, 2)) for s, v in mass.most_common(12)]
        rows.append((sum(v for _, v in best[:3]), i, len(where) / features[..., 0].numel(), best))
    for share, i, often, best in sorted(rows, reverse=True):
        print(f"{i:4}  fires at {100 * often:.2f} % of tokens: " + ", ".join(f"{s!r} {v}" for s, v in best))
        if i in o.features:
            flat = features[:, :, i].flatten().topk(o.contexts)
            for value, at in zip(flat.values.tolist(), flat.indices.tolist()):
                text, t = divmod(at, features.shape[1])
                words = [token[int(n)] for n in texts[text, max(0, t - 9):t + 5]]
                words.insert(min(t, 9) + 1, f"[{token[int(texts[text, t + 1])]}]")
                del words[min(t, 9) + 2]
                print(f"        {value:6.2f}  {''.join(words)}")


if __name__ == "__main__":
    main()
