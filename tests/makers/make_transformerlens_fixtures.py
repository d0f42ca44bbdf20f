#!/usr/bin/env python3
"""Makes tests/fixtures/transformerlens/: directories of small random HookedTransformers, each with config.json (the
fields of model.cfg) and model.safetensors (model.state_dict()), and outputs.bin, their activations and logits in
float64. tests/suites/convert/transformerlens.c converts the directories and compares.

    python3 tests/makers/make_transformerlens_fixtures.py    (PyPI: torch, transformer-lens 3, safetensors)

full       GPT-2's settings, weights as they are, no mask: 2 layers of 4 heads
folded     the same model as load_and_process_state_dict leaves it: LayerNorm folded, weights that write to the stream
           centred, the unembedding centred: a bias of the logits, LNPre
attn-only  two layers of attention without MLPs, LNPre from the start, unscaled scores
odd        one layer, 3 heads of 5, an inner width of 7, ReLU, in f16
bridge     a TransformerBridge of transformers' GPT-2, tied, its weights as they are
bridge-processed   the same after enable_compatibility_mode(): folded, centred, and so untied with a bias of the logits
"""
import json
import os
import tempfile

import numpy
import torch
from safetensors.torch import save_file
from transformer_lens import HookedTransformer, HookedTransformerConfig
from transformer_lens.model_bridge import TransformerBridge
from transformers import GPT2Config, GPT2LMHeadModel

from fixture_file import save

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.path.join(HERE, "fixtures", "transformerlens")
COMMON = dict(n_ctx=11, d_vocab=29, device="cpu", seed=3)
SHAPES = {
    "full": dict(n_layers=2, d_model=16, n_heads=4, d_head=4, d_mlp=24, act_fn="gelu_new", normalization_type="LN"),
    "attn-only": dict(n_layers=2, d_model=12, n_heads=2, d_head=6, attn_only=True, normalization_type="LNPre",
                      use_attn_scale=False),
    "odd": dict(n_layers=1, d_model=15, n_heads=3, d_head=5, d_mlp=7, act_fn="relu", normalization_type="LN", eps=1e-3),
}
IDS = [3, 17, 28, 0, 5, 5, 17, 9, 1]
NAMES = ["blocks.%d.hook_resid_post", "blocks.%d.attn.hook_q", "blocks.%d.attn.hook_pattern", "blocks.%d.hook_attn_out",
         "blocks.%d.hook_mlp_out", "ln_final.hook_normalized"]


def randomize(model):
    generator = torch.Generator().manual_seed(7)
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        p.data = 1 + 0.2 * noise if name.endswith(".w") else noise * (0.3 if p.ndim > 1 else 0.2)


def write(name, model, dtype=torch.float32):
    directory = os.path.join(OUT, name)
    os.makedirs(directory, exist_ok=True)
    state = {k: (v if v.dtype == torch.bool else v.to(dtype)).clone().contiguous() for k, v in model.state_dict().items()}
    state = {k: v for k, v in state.items() if not k.endswith(("mask", "IGNORE")) or name == "full"}
    save_file(state, os.path.join(directory, "model.safetensors"))
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as out:
        json.dump(model.cfg.to_dict(), out, indent=1, default=str)
        out.write("\n")
    exact = model.to(torch.float64)
    exact.load_state_dict({k: v.to(torch.float64) if v.dtype == dtype else v for k, v in state.items()}, strict=False)
    logits, cache = exact.run_with_cache(torch.tensor([IDS]), return_type="logits")
    written = [(name + ".logits", logits)]
    for pattern in NAMES:
        for layer in range(model.cfg.n_layers if "%" in pattern else 1):
            full = pattern % layer if "%" in pattern else pattern
            if full in cache:
                written.append((name + "." + full, cache[full]))
    return [(key, 0, value[0].detach().numpy().astype(numpy.float32)) for key, value in written]


def bridge(processed):
    """A state dict of float32, and the logits of transformers in float64: less their mean, if the unembedding is
    centred."""
    name = "bridge-processed" if processed else "bridge"
    torch.manual_seed(11)
    config = GPT2Config(vocab_size=29, n_positions=11, n_embd=16, n_layer=2, n_head=4, n_inner=24, bos_token_id=1, eos_token_id=2)
    model = GPT2LMHeadModel(config).eval()
    for p in model.parameters():
        p.copy_(torch.randn_like(p) * 0.3)
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        bridged = TransformerBridge.boot_transformers(saved, hf_model=model)
        exact = GPT2LMHeadModel.from_pretrained(saved).eval().double()
    if processed:
        bridged.enable_compatibility_mode()
    directory = os.path.join(OUT, name)
    os.makedirs(directory, exist_ok=True)
    state = {k: v.clone().contiguous() for k, v in bridged.state_dict().items()}
    save_file(state, os.path.join(directory, "model.safetensors"))
    fields = {k: v for k, v in bridged.cfg.to_dict().items() if k != "model_name"}  # a temporary path
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as out:
        json.dump(fields, out, indent=1, default=str)
        out.write("\n")
    logits = exact(torch.tensor([IDS])).logits[0]
    logits = logits - logits.mean(-1, keepdim=True) if processed else logits
    return [(name + ".logits", 0, logits.numpy().astype(numpy.float32))]


@torch.no_grad()
def main():
    torch.manual_seed(1)
    written = [("ids", 2, numpy.array(IDS, dtype=numpy.int32))]
    for name, shape in SHAPES.items():
        model = HookedTransformer(HookedTransformerConfig(**COMMON, **shape))
        randomize(model)
        state = {k: v.clone() for k, v in model.state_dict().items()}
        written += write(name, model, torch.float16 if name == "odd" else torch.float32)
        if name == "full":
            folded = HookedTransformer(HookedTransformerConfig(**COMMON, **shape))
            folded.load_and_process_state_dict(state, fold_ln=True, center_writing_weights=True, center_unembed=True,
                                               fold_value_biases=True)
            written += write("folded", folded)
    written += bridge(False) + bridge(True)
    save(os.path.join(OUT, "outputs.bin"), written)


if __name__ == "__main__":
    main()
