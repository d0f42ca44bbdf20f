"""python3 tests/programs/published_lenses.py DIRECTORY BUILD, for tests/suites/convert: what others saved by torch.save, read
by BUILD/lens, must give what the same numbers give as SAELens's directories and as safetensors. Needs PyTorch.

    a transcoder as Dunefsky et al. (2024) published it, its configuration an object
    an autoencoder of SAELens's first versions; one of hook_z, a file of weights beside NAME_cfg.json
    a tuned lens (params.pt) and a Jacobian lens ({"J": {layer: matrix}}, beside other fields)
"""
import json
import os
import struct
import subprocess
import sys

import torch

output, build = sys.argv[1:]
C, M, LAYERS, IDS = 192, 30, 4, "506 511 258"


class LanguageModelSAERunnerConfig:
    def __init__(self, **fields):
        self.__dict__.update(fields, dtype=torch.float32, device=torch.device("cpu"), use_ghost_grads=(False,))


def at(*names):
    return os.path.join(output, *names)


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        part = tensor.float().contiguous().numpy().astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)


def write_directory(name, w, **cfg):
    os.mkdir(at(name))
    write_safetensors(at(name, "sae_weights.safetensors"), w)
    write_json(at(name, "cfg.json"), {"architecture": "standard", "d_in": C, "d_sae": M, **cfg})


def lens(*words):
    said = subprocess.run([f"{build}/lens", f"{build}/tiny-stories.attn", *words, "--ids", IDS, "--json"], capture_output=True, text=True)
    assert said.returncode == 0, (words, said.stderr)
    return {key: value for key, value in json.loads(said.stdout).items() if key != "notes"}  # they name the file


def same(ours, theirs, numbers=1e-5):
    """Equal, but for small differences of numbers."""
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[k], theirs[k], numbers) for k in ours)
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(same(a, b, numbers) for a, b in zip(ours, theirs))
    return abs(ours - theirs) <= numbers * (1 + abs(theirs)) if isinstance(ours, float) else ours == theirs


torch.manual_seed(59)
w = {"W_enc": torch.randn(C, M), "b_enc": torch.randn(M), "W_dec": torch.randn(M, C), "b_dec": torch.randn(C)}
names = {"hook_point": "blocks.1.ln2.hook_normalized", "out_hook_point": "blocks.1.hook_mlp_out"}
more = {"b_dec": torch.randn(C), "b_dec_out": w["b_dec"]}
torch.save({"cfg": LanguageModelSAERunnerConfig(model_name="gpt2-small", is_transcoder=True, d_in=C, d_out=C, d_sae=M, **names),
            "state_dict": {**w, **more}}, at("transcoder.pt"))
centred = w["b_enc"].double() - more["b_dec"].double() @ w["W_enc"].double()
write_directory("transcoder", {**w, "b_enc": centred}, architecture="transcoder", d_out=C, hook_name=names["hook_point"],
                hook_name_out=names["out_hook_point"])
torch.save({"cfg": LanguageModelSAERunnerConfig(hook_point="blocks.2.hook_resid_pre", hook_point_head_index=None, d_in=C, d_sae=M),
            "state_dict": w}, at("first.pt"))
write_directory("first", w, hook_name="blocks.2.hook_resid_pre")
torch.save(w, at("z.pt"), _use_new_zipfile_serialization=False)
write_json(at("z_cfg.json"), {"act_name": "blocks.3.attn.hook_z", "act_size": C, "dict_size": M, "model_name": "gpt2-small"})
write_directory("z", w, hook_name="blocks.3.attn.hook_z")
for name in ("transcoder", "first", "z"):
    ours, theirs = lens("sae", at(name + ".pt")), lens("sae", at(name))
    assert same(ours, theirs) and len(ours["features"]) > 9, (name, len(ours["features"]))

maps = {f"{i}.{k}": torch.randn(*shape) / 99 for i in range(LAYERS) for k, shape in (("weight", (C, C)), ("bias", (C,)))}
torch.save(maps, at("params.pt"))
write_safetensors(at("params.safetensors"), maps)
maps = {i: torch.randn(C, C).half().t() for i in range(LAYERS - 1)}
torch.save({"J": maps, "n_prompts": 9, "d_model": C}, at("jacobian.pt"))
write_safetensors(at("jacobian.safetensors"), {f"J.{i}": maps[i] for i in maps})
for name in ("params", "jacobian"):
    ours, theirs = (lens("logit-lens", "--tuned", at(name + end)) for end in (".pt", ".safetensors"))
    assert same(ours, theirs, 0), name
