#!/usr/bin/env python3
"""Compares `lens sae` with the sae-lens package: random autoencoders of every kind that it writes.

    compare_sae.py BUILD [--ids "506 511 ..."]

BUILD holds lens and tiny-stories.attn. sae-lens saves each autoencoder and encodes in float64 what
`lens record` recorded. Prints the largest difference of a feature as a share of the largest one; the
exit code is 1 if it is above 1e-5, or if other features are active. Needs sae-lens (6.x) and PyTorch.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from sae_lens.saes.gated_sae import GatedSAE, GatedSAEConfig
from sae_lens.saes.jumprelu_sae import JumpReLUSAE, JumpReLUSAEConfig
from sae_lens.saes.sae import SAEMetadata
from sae_lens.saes.standard_sae import StandardSAE, StandardSAEConfig
from sae_lens.saes.topk_sae import TopKSAE, TopKSAEConfig

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from compare_gradients import read_safetensors

HOOK, WIDTH, FEATURES = "blocks.2.hook_resid_pre", 192, 500
KINDS = [("standard", StandardSAE, StandardSAEConfig, {}), ("jumprelu", JumpReLUSAE, JumpReLUSAEConfig, {}),
         ("topk", TopKSAE, TopKSAEConfig, {"k": 20}),
         ("topk, scaled", TopKSAE, TopKSAEConfig, {"k": 20, "rescale_acts_by_decoder_norm": True}),
         ("gated", GatedSAE, GatedSAEConfig, {})]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build")
    ap.add_argument("--ids", default="506 511 258 433 265 338 414 286")
    o = ap.parse_args()
    lens = [f"{o.build}/lens", f"{o.build}/tiny-stories.attn"]
    torch.manual_seed(3)
    worst = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.safetensors")
        subprocess.run([*lens, "record", "--ids", o.ids, HOOK, "-o", path], check=True, stdout=subprocess.DEVNULL)
        x = torch.tensor(read_safetensors(path)[HOOK].astype(np.float64))
        for norm in ("none", "layer_norm", "constant_norm_rescale"):
            for b_dec in (True, False):
                for name, kind, config, more in KINDS:
                    sae = kind(config(d_in=WIDTH, d_sae=FEATURES, dtype="float64", apply_b_dec_to_input=b_dec,
                                      normalize_activations=norm, metadata=SAEMetadata(hook_name=HOOK), **more))
                    with torch.no_grad():
                        for parameter in sae.parameters(): # what a file of f32 holds
                            parameter.copy_((torch.randn_like(parameter) * 0.1).float().double())
                    directory = os.path.join(folder, "sae")
                    sae.save_model(directory)
                    out = subprocess.run([*lens, "sae", directory, "--ids", o.ids, "--json"], check=True,
                                         capture_output=True, text=True).stdout
                    got = torch.zeros(len(x), FEATURES, dtype=torch.float64)
                    for t, token in enumerate(json.loads(out)["tokens"]):
                        for index, value in token["features"]:
                            got[t, index] = value
                    with torch.no_grad():
                        want = sae.encode(x)
                        rebuilt = sae.decode(want)
                    explained = 1 - ((x - rebuilt) ** 2).sum() / ((x - x.mean(0)) ** 2).sum()
                    share = ((got - want).abs().max() / want.abs().max()).item()
                    off = abs(json.loads(out)["explained"] - explained.item()) / max(1, abs(explained.item()))
                    print(f"{name:13} {norm:22} b_dec {b_dec:d}: features {share:.1e}, explained {off:.1e}, "
                          f"{int((want > 0).sum())} active, {int(((got > 0) != (want > 0)).sum())} differ")
                    worst = max(worst, share, off)
    print(f"largest of all: {worst:.2e}")
    sys.exit(worst > 1e-5)


if __name__ == "__main__":
    main()
