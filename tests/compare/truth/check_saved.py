#!/usr/bin/env python3
"""Does Python read what lens_save wrote?  check_saved.py numpy|torch FILE LIST

LIST has a line for each tensor, "name [shape] sum", where the sum is that of (i + 1) * (bits of
element i) modulo 2^64. FILE is .npz, read by numpy.load, or .safetensors, read by the safetensors
package if there is one, else by the ten lines that the format takes.
"""
import json, struct, sys
import numpy as np


def safetensors(path):
    try:
        from safetensors.numpy import load_file
        return load_file(path)
    except ImportError:
        raw = open(path, "rb").read()
        size = struct.unpack("<Q", raw[:8])[0]
        header = json.loads(raw[8:8 + size])
        data = raw[8 + size:]
        return {name: np.frombuffer(data[t["data_offsets"][0]:t["data_offsets"][1]],
                                    {"F32": "<f4", "F16": "<f2", "I32": "<i4"}[t["dtype"]])
                .reshape(t["shape"]) for name, t in header.items()}


module, path, expected = sys.argv[1:]
tensors = dict(np.load(path)) if path.endswith(".npz") else safetensors(path)
if module == "torch":
    import torch
    tensors = {name: torch.from_numpy(x.copy()).numpy() for name, x in tensors.items()}
lines = open(expected).read().splitlines()
assert len(lines) == len(tensors) > 0, (len(lines), len(tensors))
for line in lines:
    name, rest = line.split(" ", 1)
    shape, total = rest.rsplit(" ", 1)
    x = tensors[name]
    bits = np.ascontiguousarray(x).view(np.uint32).astype(np.uint64).ravel()
    with np.errstate(over="ignore"):
        got = int((bits * np.arange(1, bits.size + 1, dtype=np.uint64)).sum(dtype=np.uint64))
    assert list(x.shape) == json.loads(shape), (name, x.shape, shape)
    assert got == int(total), name
