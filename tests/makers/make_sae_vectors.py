#!/usr/bin/env python3
"""Writes tests/fixtures/sae_vectors.h: where the named features of examples/sae fire, and how strongly.

    python3 tests/makers/make_sae_vectors.py    (PyPI: torch, transformers, safetensors)

The activation of each named feature at every token of each text, behind an <|endoftext|>, by transformers
and SAELens's formula of top-k in float64. 0: not active.
"""
import json
import os

import torch
from safetensors.torch import load_file
from transformers import GPT2LMHeadModel, GPT2TokenizerFast

here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL, SAE = (os.path.join(here, "..", "examples", name) for name in ("tiny-stories", "sae"))
NAMED = [132, 301, 283, 497]
TEXTS = ["Lily was sad. She could not find her cat.",
         "Tom said that he did not want to play. He never shared.",
         "The old woman shouted, but the girl could not hear. Then she cried."]


@torch.no_grad()
def main():
    model = GPT2LMHeadModel.from_pretrained(MODEL).double().eval()
    tokenizer = GPT2TokenizerFast(os.path.join(MODEL, "vocab.json"), os.path.join(MODEL, "merges.txt"))
    with open(os.path.join(SAE, "cfg.json"), encoding="utf-8") as f:
        cfg = json.load(f)
    w = {k: v.double() for k, v in load_file(os.path.join(SAE, "sae_weights.safetensors")).items()}
    layer = int(cfg["metadata"]["hook_name"].split(".")[1])
    rows = []
    for text in TEXTS:
        ids = [2047, *tokenizer(text)["input_ids"]]
        x = model(torch.tensor([ids]), output_hidden_states=True).hidden_states[layer][0]
        best = ((x - w["b_dec"]) @ w["W_enc"] + w["b_enc"]).topk(cfg["k"])
        features = torch.zeros(len(ids), cfg["d_sae"], dtype=torch.float64).scatter(1, best.indices, best.values.relu())
        rows.append((text, features[:, NAMED].T.tolist()))
    with open(os.path.join(here, "fixtures", "sae_vectors.h"), "w", encoding="utf-8") as f:
        f.write("/* Made by make_sae_vectors.py: change that, not this. */\n")
        f.write(f"enum {{ N_NAMED = {len(NAMED)}, MOST_POSITIONS = {max(len(r[1][0]) for r in rows)} }};\n")
        f.write(f"static const int sae_named[N_NAMED] = {{{', '.join(map(str, NAMED))}}};\n")
        f.write("static const struct {\n    const char *text;\n    size_t n;\n"
                "    double values[N_NAMED][MOST_POSITIONS];\n} sae_vectors[] = {\n")
        for text, values in rows:
            lists = ",\n      ".join("{" + ", ".join(f"{v:.6f}" if v else "0" for v in row) + "}" for row in values)
            f.write(f'    {{"{text}",\n     {len(values[0])},\n     {{{lists}}}}},\n')
        f.write("};\n")


main()
