#!/usr/bin/env python3
"""Writes tests/fixtures/steering: control vectors, a tuned and a Jacobian lens, and what they make of a model.

    python3 tests/makers/make_steering_fixtures.py    (PyPI: torch, transformers, transformer-lens 4.3, safetensors, gguf)

    control.gguf        directions of layers 1 and 2 for golden/narrow, by the gguf package, with the keys
                        that llama-cvector-generator and repeng write
    rows.safetensors    directions of layers 0 and 2, in f16
    layers.safetensors  one tensor of all layers
    tuned.safetensors   a tuned lens: the names and shapes of tuned-lens's params.pt
    jacobian.safetensors    a lens that transformer-lens fitted and saved in f16, as a .pt, turned into safetensors by
                        the command of tools/lens/transformerlens.md
    steering.bin        "tokens"; "control", "rows" and "layers": the logits of golden/narrow with the vector
                        at strength 1.5; "tuned.I", "jacobian.I": what the lens makes of the stream that enters layer I

The logits are those of transformers' GPT2LMHeadModel in float64, whose blocks' outputs are changed by
PyTorch's hooks; the lenses follow the packages: unembed(h + translator(h)), and unembed(J h), with which
transformer-lens's own readout must agree.
"""
import os
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import save_file
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.tools.analysis import JacobianLens
from transformers import GPT2LMHeadModel

here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from control_vector import write_gguf
from fixture_file import save

OUT = os.path.join(here, "fixtures", "steering")
NARROW = os.path.join(here, "golden", "narrow")
LAYERS, WIDTH, STRENGTH = 3, 20, 1.5


@torch.no_grad()
def steered(model, ids, directions):
    hooks = []
    for layer, direction in directions.items():
        added = STRENGTH * torch.tensor(np.asarray(direction, np.float64))

        def add(module, inputs, output, added=added):
            return (output[0] + added, *output[1:]) if isinstance(output, tuple) else output + added

        hooks.append(model.transformer.h[layer].register_forward_hook(add))
    logits = model(torch.tensor([ids])).logits[0]
    for hook in hooks:
        hook.remove()
    return logits


def jacobian(exact, ids):
    rng = np.random.default_rng(7)
    texts = {str(i): torch.tensor(rng.integers(0, 43, (1, 24))) for i in range(6)}
    bridge = TransformerBridge.boot_transformers(NARROW, hf_model=GPT2LMHeadModel.from_pretrained(NARROW).eval())
    bridge.to_tokens = texts.__getitem__
    lens = JacobianLens.fit(bridge, list(texts), corpus="random tokens", skip_first_positions=4, show_progress=False)
    with tempfile.TemporaryDirectory() as saved:
        path = os.path.join(saved, "lens.pt")
        lens.save(path)
        lens, j = JacobianLens.load(path), torch.load(path, weights_only=True)["J"]
    save_file({f"J.{i}": j[i].contiguous() for i in j}, os.path.join(OUT, "jacobian.safetensors"))
    theirs = lens.readout(bridge, torch.tensor([ids]), return_full_logits=True).lens_logits
    with torch.no_grad():
        streams = exact(torch.tensor([ids]), output_hidden_states=True).hidden_states
        for i in range(1, LAYERS):
            logits = exact.lm_head(exact.transformer.ln_f(streams[i][0] @ j[i - 1].double().T))
            assert abs(logits - theirs[i - 1]).max() < 1e-4 * abs(logits).max(), i
            yield f"jacobian.{i}", 0, logits.numpy().astype(np.float32)


@torch.no_grad()
def main():
    os.makedirs(OUT, exist_ok=True)
    rng = np.random.default_rng(5)
    model = GPT2LMHeadModel.from_pretrained(NARROW).double().eval()
    ids = [int(i) for i in rng.integers(0, 43, 9)]
    draw = lambda *shape: rng.normal(0, 0.7, shape).astype(np.float32)
    vectors = {"control": {i: draw(WIDTH) for i in (1, 2)},
               "rows": {i: draw(WIDTH).astype(np.float16) for i in (0, 2)},
               "layers": dict(enumerate(draw(LAYERS, WIDTH)))}
    write_gguf(os.path.join(OUT, "control.gguf"), vectors["control"])
    save_file({f"direction.{i}": torch.tensor(d) for i, d in vectors["rows"].items()},
              os.path.join(OUT, "rows.safetensors"))
    save_file({"directions": torch.tensor(np.stack(list(vectors["layers"].values())))},
              os.path.join(OUT, "layers.safetensors"))
    written = [("tokens", 2, np.array(ids, np.int32))]
    for name, directions in vectors.items():
        written.append((name, 0, steered(model, ids, directions).numpy().astype(np.float32)))

    translators = torch.nn.ModuleList([torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
    for parameter in translators.parameters():
        parameter.copy_(torch.tensor(draw(*parameter.shape) * 0.3))
    save_file(translators.state_dict(), os.path.join(OUT, "tuned.safetensors"))
    translators.double()
    streams = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    for i, translator in enumerate(translators):
        h = streams[i][0]
        logits = model.lm_head(model.transformer.ln_f(h + translator(h)))
        written.append((f"tuned.{i}", 0, logits.numpy().astype(np.float32)))
    with torch.enable_grad():
        written += jacobian(model, ids)
    save(os.path.join(OUT, "steering.bin"), written)


main()
