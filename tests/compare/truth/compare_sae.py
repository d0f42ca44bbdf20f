#!/usr/bin/env python3
"""Compares `lens sae` with the sae-lens package: random autoencoders of every kind that it writes, the one
of examples/sae, and the model's logits while features are changed.

    compare_sae.py BUILD [--ids "506 511 ..."]

BUILD holds lens and tiny-stories.attn. sae-lens saves each autoencoder and encodes in float64 what
`lens record` recorded. Prints the largest difference of a feature as a share of the largest one, and the
same of the logits with one feature ablated, one set and one steered, with the error term and without it;
the exit code is 1 if one is above 1e-5, or if other features are active. Needs sae-lens (6.x), PyTorch and
transformers.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from sae_lens import SAE
from sae_lens.saes.gated_sae import GatedSAE, GatedSAEConfig
from sae_lens.saes.jumprelu_sae import JumpReLUSAE, JumpReLUSAEConfig
from sae_lens.saes.sae import SAEMetadata
from sae_lens.saes.standard_sae import StandardSAE, StandardSAEConfig
from sae_lens.saes.topk_sae import TopKSAE, TopKSAEConfig
from transformers import GPT2LMHeadModel

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from compare_gradients import read_safetensors

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "examples")
MODEL, SHIPPED = os.path.join(EXAMPLES, "tiny-stories"), os.path.join(EXAMPLES, "sae")
HOOK, WIDTH, FEATURES = "blocks.2.hook_resid_pre", 192, 500
KINDS = [("standard", StandardSAE, StandardSAEConfig, {}), ("jumprelu", JumpReLUSAE, JumpReLUSAEConfig, {}),
         ("topk", TopKSAE, TopKSAEConfig, {"k": 20}),
         ("topk, scaled", TopKSAE, TopKSAEConfig, {"k": 20, "rescale_acts_by_decoder_norm": True}),
         ("gated", GatedSAE, GatedSAEConfig, {})]


class Compared:
    def __init__(self, build, ids, folder):
        self.lens = [f"{build}/lens", f"{build}/tiny-stories.attn"]
        self.ids, self.folder, self.worst = ids, folder, 0
        path = os.path.join(folder, "x.safetensors")
        subprocess.run([*self.lens, "record", "--quiet", "--ids", ids, HOOK, "-o", path], check=True,
                       stdout=subprocess.DEVNULL)
        self.x = torch.tensor(read_safetensors(path)[HOOK].astype(np.float64))
        self.model = GPT2LMHeadModel.from_pretrained(MODEL).double().eval()

    def run(self, directory, *more):
        return json.loads(subprocess.run([*self.lens, "sae", directory, "--ids", self.ids, "--json", *more],
                                         check=True, capture_output=True, text=True).stdout)

    @torch.no_grad()
    def features(self, sae, directory, what):
        answer = self.run(directory)
        want = sae.encode(self.x)
        got = torch.zeros_like(want)
        for row in answer["features"]:
            got[row["position"], row["feature"]] = row["activation"]
        rebuilt = sae.decode(want)
        explained = 1 - ((self.x - rebuilt) ** 2).sum() / ((self.x - self.x.mean(0)) ** 2).sum()
        share = ((got - want).abs().max() / want.abs().max()).item()
        off = abs(answer["facts"][0]["explained"] - explained.item()) / max(1, abs(explained.item()))
        differ = int(((got > 0) != (want > 0)).sum())
        print(f"{what}: features {share:.1e}, explained {off:.1e}, {int((want > 0).sum())} active, {differ} differ")
        self.worst = max(self.worst, share, off, differ)

    @torch.no_grad()
    def changes(self, sae, directory, what):
        on = int(sae.encode(self.x)[-1].argmax())
        for keep_error in (True, False):
            answer = self.run(directory, "--change", f"{on}=0", "--change", "3=2.5", "--change", "5+1.5", "--top", "50",
                              "-n", "0", *([] if keep_error else ["--no-error"]))

            def replace(module, args):
                x = args[0][0]
                features = sae.encode(x)
                rebuilt = sae.decode(features)
                features[:, on] = 0
                features[:, 3] = 2.5
                features[:, 5] += 1.5
                changed = sae.decode(features)
                return ((x + changed - rebuilt if keep_error else changed)[None], *args[1:])

            handle = self.model.transformer.h[2].register_forward_pre_hook(replace)
            want = self.model(torch.tensor([[int(i) for i in self.ids.split()]])).logits[0, -1]
            handle.remove()
            got = torch.tensor([row["logit_with"] for row in answer["logits"]], dtype=torch.float64)
            want = want[[row["token_id"] for row in answer["logits"]]]
            share = ((got - want).abs().max() / want.abs().max()).item()
            print(f"{what}, changed, {'with' if keep_error else 'without'} the error term: logits {share:.1e}")
            self.worst = max(self.worst, share)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build")
    ap.add_argument("--ids", default="506 511 258 433 265 338 414 286")
    o = ap.parse_args()
    torch.manual_seed(3)
    with tempfile.TemporaryDirectory() as folder:
        compared = Compared(o.build, o.ids, folder)
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
                    what = f"{name:13} {norm:22} b_dec {b_dec:d}"
                    compared.features(sae, directory, what)
                    if norm == "none" and b_dec:
                        compared.changes(sae, directory, what)
        shipped = SAE.load_from_disk(SHIPPED, dtype="float64")
        compared.features(shipped, SHIPPED, "examples/sae")
        compared.changes(shipped, SHIPPED, "examples/sae")
    print(f"largest of all: {compared.worst:.2e}")
    sys.exit(compared.worst > 1e-5)


if __name__ == "__main__":
    main()
