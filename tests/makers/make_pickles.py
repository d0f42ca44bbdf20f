"""python3 tests/makers/make_pickles.py DIRECTORY OUTPUT, for tests/suites/convert: pickled PyTorch
checkpoints with the numbers of DIRECTORY/model.safetensors (bfloat16 throughout).

    OUTPUT/hub/pytorch_model.bin    as Hugging Face's transformers wrote it, with mask buffers
    OUTPUT/nano/ckpt.pt             as nanoGPT writes it after torch.compile: linears transposed
    OUTPUT/state/model.pt           a training state: its configuration is an object of a class that is not
                                    there, and stands beside numpy's numbers
    OUTPUT/lightning/last.ckpt      a state dict below "state_dict", with the prefix of Lightning and FSDP
    OUTPUT/lens/model.pt            a HookedTransformer's state dict below "model" and its configuration below "cfg":
                                    fixtures/transformerlens/full, with the masks of old versions
    OUTPUT/code/pytorch_model.bin   a pickle that runs code when it is loaded

Each with config.json (the hub's two) and the vocabulary beside it. Needs PyTorch.
"""
import json
import os
import shutil
import struct
import sys

import torch

source, output = sys.argv[1:]
LINEARS = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


class Code:
    def __reduce__(self):
        return os.mkdir, (os.path.join(output, "it-ran"),)


def read_tensors(directory, dtype, torch_dtype):
    with open(os.path.join(directory, "model.safetensors"), "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(size))
        data = bytearray(f.read())
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == dtype:
            begin, end = entry["data_offsets"]
            tensor = torch.frombuffer(data[begin:end], dtype=torch_dtype).reshape(entry["shape"])
            tensors[name.replace("transformer.", "")] = tensor.clone()
    return tensors


tensors = read_tensors(source, "BF16", torch.bfloat16)
with open(os.path.join(source, "config.json")) as f:
    config = json.load(f)

hub = {name if name == "lm_head.weight" else "transformer." + name: tensor
       for name, tensor in tensors.items()}
hub["transformer.h.0.attn.bias"] = torch.ones(1, 1, 8, 8, dtype=torch.bool)
hub["transformer.h.0.attn.masked_bias"] = torch.tensor(-1e4)
nano = {"_orig_mod." + ("" if name == "lm_head.weight" else "transformer.") + name:
        tensor.t().contiguous() if name.endswith(LINEARS) else tensor
        for name, tensor in tensors.items()}
args = {"n_layer": config["n_layer"], "n_head": config["n_head"], "n_embd": config["n_embd"],
        "block_size": config["n_positions"], "vocab_size": config["vocab_size"], "bias": True}


class GPTConfig:
    def __init__(self):
        self.__dict__.update({name: value for name, value in args.items() if name != "bias"})


fsdp = {"model._fsdp_wrapped_module." + name: tensor for name, tensor in hub.items()}
pickles = {"state/model.pt": {"model": {name: tensor for name, tensor in nano.items()}, "config": GPTConfig(),
                              "step": 5, "val_loss": 3.0},
           "lightning/last.ckpt": {"state_dict": fsdp, "epoch": 1, "optimizer_states": []},
           "hub/pytorch_model.bin": hub, "code/pytorch_model.bin": dict(hub, extra=Code()),
           "nano/ckpt.pt": {"model": nano, "model_args": args, "iter_num": 100}}
lens = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures", "transformerlens", "full")
with open(os.path.join(lens, "config.json")) as f:
    pickles["lens/model.pt"] = {"cfg": json.load(f), "model": {
        **read_tensors(lens, "F32", torch.float32), "blocks.0.attn.mask": torch.ones(11, 11, dtype=torch.bool)}}
for path, pickle in pickles.items():
    directory = os.path.join(output, os.path.dirname(path))
    os.makedirs(directory)
    torch.save(pickle, os.path.join(output, path))
    for name in ("vocab.json", "merges.txt") + (() if directory.endswith(("nano", "state")) else ("config.json",)):
        shutil.copyfile(os.path.join(source, name), os.path.join(directory, name))
