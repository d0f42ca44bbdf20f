"""python3 tests/makers/make_pickles.py DIRECTORY OUTPUT, for tests/suites/convert: PyTorch's
checkpoints with the numbers of DIRECTORY/model.safetensors (bfloat16 throughout).

    OUTPUT/hub, old, views, shards  pytorch_model.bin as Hugging Face's transformers wrote it, with mask buffers; without
                                    zip; of transposed and cut storages; in two files
    OUTPUT/nano/ckpt.pt             as nanoGPT writes it after torch.compile: linears transposed, with the optimizer and
                                    best_val_loss, a tensor; beside meta.pkl, a vocabulary of characters
    OUTPUT/state/model.pt           a training state: its configuration is an object of a class that is not
                                    there, and stands beside numpy's numbers
    OUTPUT/lightning/last.ckpt      a state dict below "state_dict", with the prefix of Lightning and FSDP
    OUTPUT/ddp/model.pt             parameters of DistributedDataParallel around torch.compile, in pickle's protocol 4
    OUTPUT/deepspeed/mp_rank_00_model_states.pt  as DeepSpeed's engine saves it, beside shapes and its own settings
    OUTPUT/two/ckpt.pt, keys/ckpt.pt  two models in one dict, "student" and "teacher"; in two dicts, "best" and "last"
    OUTPUT/module/model.pt          a module that was pickled whole
    OUTPUT/lens/model.pt            a HookedTransformer's state dict below "model" and its configuration below "cfg":
                                    fixtures/transformerlens/full, with the masks of old versions

Each with config.json (but the training states) and the vocabulary beside it (but nano). Needs PyTorch.
"""
import json
import os
import pickle
import shutil
import struct
import sys
from collections import OrderedDict, defaultdict

import numpy
import torch

source, output = sys.argv[1:]
LINEARS = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


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


def view(name, tensor):
    """The same numbers in another order of a storage, or within a larger one."""
    return tensor.t().contiguous().t() if tensor.ndim == 2 else torch.cat([tensor, tensor])[len(tensor):]


def half(first):
    return {name: tensor for i, (name, tensor) in enumerate(hub.items()) if i % 2 == first}


module = torch.nn.Module()
module.add_module("model", torch.nn.Module())
module.model._parameters.update(hub)
fsdp = {"model._fsdp_wrapped_module." + name: tensor for name, tensor in hub.items()}
zeros = {name: torch.zeros_like(tensor) for name, tensor in hub.items()}
optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(3))])
losses = torch.tensor([3.0, 2.0])
shards = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
pickles = {"hub/pytorch_model.bin": hub, "old/pytorch_model.bin": hub,
           "views/pytorch_model.bin": {name: tensor if tensor.ndim > 2 or tensor.ndim == 0 else view(name, tensor)
                                       for name, tensor in hub.items()},
           "shards/" + shards[0]: half(0), "shards/" + shards[1]: half(1),
           "nano/ckpt.pt": {"model": nano, "optimizer": optimizer.state_dict(), "model_args": args, "iter_num": 100,
                            "best_val_loss": losses.mean(), "config": {"learning_rate": 6e-4, "dataset": "shakespeare_char"}},
           "state/model.pt": {"model": nano, "config": GPTConfig(), "step": 5, "val_loss": numpy.float64(3.0)},
           "ddp/model.pt": defaultdict(float, {"module._orig_mod.transformer." + name: torch.nn.Parameter(tensor)
                                               for name, tensor in hub.items() if tensor.is_floating_point()}),
           "deepspeed/mp_rank_00_model_states.pt": {
               "module": {"module.transformer." + name: tensor for name, tensor in hub.items()}, "optimizer": None,
               "param_shapes": [OrderedDict((name, tensor.shape) for name, tensor in hub.items())], "dp_world_size": 1,
               "ds_config": {"train_batch_size": 8, "fp16": {"enabled": True}}, "ds_version": "0.16.4"},
           "lightning/last.ckpt": {"state_dict": fsdp, "epoch": 1, "optimizer_states": []},
           "two/ckpt.pt": {**{"teacher." + name: tensor for name, tensor in zeros.items()},
                           **{"student." + name: tensor for name, tensor in hub.items()}},
           "keys/ckpt.pt": {"best": hub, "last": zeros}, "module/model.pt": module}
lens = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures", "transformerlens", "full")
with open(os.path.join(lens, "config.json")) as f:
    pickles["lens/model.pt"] = {"cfg": json.load(f), "model": {
        **read_tensors(lens, "F32", torch.float32), "blocks.0.attn.mask": torch.ones(11, 11, dtype=torch.bool)}}
for path, value in pickles.items():
    directory = os.path.join(output, os.path.dirname(path))
    os.makedirs(directory, exist_ok=True)
    torch.save(value, os.path.join(output, path), _use_new_zipfile_serialization=not path.startswith("old/"),
               pickle_protocol=4 if path.startswith("ddp/") else 2)
    for name in (() if path.startswith("nano") else ("vocab.json", "merges.txt")) + (
            () if path.startswith(("nano", "state")) else ("config.json",)):
        shutil.copyfile(os.path.join(source, name), os.path.join(directory, name))
with open(os.path.join(output, "nano", "meta.pkl"), "wb") as f:
    characters = {chr(ord("A") + i): i for i in range(config["vocab_size"])}
    pickle.dump({"vocab_size": len(characters), "itos": {i: c for c, i in characters.items()}, "stoi": characters}, f)
with open(os.path.join(output, "shards", "pytorch_model.bin.index.json"), "w") as f:
    json.dump({"metadata": {}, "weight_map": {name: shards[name not in half(0)] for name in hub}}, f)
