#!/usr/bin/env python3
"""Writes tests/fixtures/steering: control vectors and a tuned lens, and what they make of a model.

    python3 tests/makers/make_steering_fixtures.py    (PyPI: numpy, torch, transformers, safetensors, gguf)

    control.gguf        directions of layers 1 and 2 for golden/narrow, by the gguf package, with the keys
                        that llama-cvector-generator and repeng write
    rows.safetensors    directions of layers 0 and 2, in f16
    layers.safetensors  one tensor of all layers
    tuned.safetensors   a tuned lens: the names and shapes of tuned-lens's params.pt
    steering.bin        "tokens"; "control", "rows" and "layers": the logits of golden/narrow with the vector
                        at strength 1.5; "tuned.I": what the lens makes of the stream that enters layer I

The logits are those of transformers' GPT2LMHeadModel in float64, whose blocks' outputs are changed by
PyTorch's hooks; the lens follows the package: unembed(h + translator(h)).
"""
import os
import sys

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import GPT2LMHeadModel

here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from control_vector import write_gguf
from fixture_file import save

OUT = os.path.join(here, "fixtures", "steering")
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


@torch.no_grad()
def main():
    os.makedirs(OUT, exist_ok=True)
    rng = np.random.default_rng(5)
    model = GPT2LMHeadModel.from_pretrained(os.path.join(here, "golden", "narrow")).double().eval()
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
    save(os.path.join(OUT, "steering.bin"), written)


main()
