#!/usr/bin/env python3
"""Makes tests/fixtures/transcoder/: random transcoders of every architecture that sae-lens has, in its files, and
outputs.bin: their features and predictions on fixtures/transformerlens/full, and the logits while features are changed,
by sae-lens and HookedTransformer in float64. tests/suites/lens-tool/transcoder.c compares.

    python3 tests/makers/make_transcoder_fixtures.py    (PyPI: sae-lens 6, transformer-lens 3, torch)
"""
import json
import os

import numpy
import torch
from sae_lens.saes.sae import SAEMetadata
from sae_lens.saes.transcoder import (JumpReLUSkipTranscoder, JumpReLUSkipTranscoderConfig, JumpReLUTranscoder,
                                      JumpReLUTranscoderConfig, SkipTranscoder, SkipTranscoderConfig, Transcoder,
                                      TranscoderConfig)
from safetensors.torch import load_file
from transformer_lens import HookedTransformer, HookedTransformerConfig

from fixture_file import save

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL, OUT = (os.path.join(HERE, "fixtures", *names) for names in (("transformerlens", "full"), ("transcoder",)))
IDS = [3, 17, 28, 0, 5, 5, 17, 9, 1]
WIDTH, FEATURES = 16, 24
# hook_normalized of TransformerLens is hook_normalized.pre here; hook_mlp_in is resid_mid for each MLP
KINDS = {
    "plain": (Transcoder, TranscoderConfig, "blocks.1.ln2.hook_normalized", {}),
    "skip": (SkipTranscoder, SkipTranscoderConfig, "blocks.1.hook_resid_mid", {}),
    "jumprelu": (JumpReLUTranscoder, JumpReLUTranscoderConfig, "blocks.1.hook_resid_mid",
                 {"normalize_activations": "layer_norm"}),
    "jumprelu-skip": (JumpReLUSkipTranscoder, JumpReLUSkipTranscoderConfig, "blocks.1.ln2.hook_normalized", {}),
}
CHANGES = ((3, "clamp", 2.0), (5, "scale", 0.5), (7, "add", 1.5))


def load_model():
    with open(os.path.join(MODEL, "config.json"), encoding="utf-8") as f:
        saved = json.load(f)
    keys = ("n_layers", "d_model", "n_ctx", "d_head", "n_heads", "d_mlp", "d_vocab", "act_fn", "normalization_type", "eps")
    model = HookedTransformer(HookedTransformerConfig(**{k: saved[k] for k in keys}, device="cpu"))
    model.load_state_dict(load_file(os.path.join(MODEL, "model.safetensors")), strict=False)
    return model.to(torch.float64)


def predicted(sae, features, x):
    out = sae.decode(features)
    return out + x @ sae.W_skip.T if hasattr(sae, "W_skip") else out


def changed_logits(model, sae, keep_error):
    kept = {}

    def see(x, hook):
        kept["x"] = x

    def write(y, hook):
        features = sae.encode(kept["x"])
        before = predicted(sae, features, kept["x"])
        for feature, kind, value in CHANGES:
            column = features[..., feature]
            features[..., feature] = value if kind == "clamp" else column * value if kind == "scale" else column + value
        after = predicted(sae, features, kept["x"])
        return y + after - before if keep_error else after
    return model.run_with_hooks(torch.tensor([IDS]), fwd_hooks=[(sae.cfg.metadata.hook_name, see),
                                                               (sae.cfg.metadata.hook_name_out, write)])[0]


@torch.no_grad()
def main():
    model = load_model()
    _, cache = model.run_with_cache(torch.tensor([IDS]))
    generator = torch.Generator().manual_seed(11)
    written = [("ids", 2, numpy.array(IDS, dtype=numpy.int32))]
    for name, (kind, config, hook, more) in KINDS.items():
        sae = kind(config(d_in=WIDTH, d_out=WIDTH, d_sae=FEATURES, apply_b_dec_to_input=False, device="cpu",
                          metadata=SAEMetadata(hook_name=hook, hook_name_out="blocks.1.hook_mlp_out"), **more))
        for key, p in sae.named_parameters():
            p.data = torch.randn(p.shape, generator=generator) * (0.3 if p.ndim > 1 else 0.2)
            if key == "threshold":
                p.data = p.data.abs()
        sae.save_model(os.path.join(OUT, name))
        sae = kind.load_from_disk(os.path.join(OUT, name), device="cpu").to(torch.float64)
        sae.dtype = torch.float64
        x = cache[hook][0]
        features = sae.encode(x)
        print(name, "active", (features > 0).double().mean().item())
        for key, value in (("x", x), ("features", features), ("predicted", sae(x)), ("y", cache["blocks.1.hook_mlp_out"][0]),
                           ("kept", changed_logits(model, sae, True)), ("replaced", changed_logits(model, sae, False))):
            written.append((name + "." + key, 0, value.numpy().astype(numpy.float32)))
    save(os.path.join(OUT, "outputs.bin"), written)


if __name__ == "__main__":
    main()
