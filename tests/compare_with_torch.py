#!/usr/bin/env python3
"""Compares the engine with PyTorch on one model: whose logits are closer to float64?

    compare_with_torch.py build/gpt2 build/attn-convert [HF_DIRECTORY] [--tokens 64]

Without a directory it makes a random checkpoint of GPT-2's size (golden/make_golden.py's weights).
PyTorch runs the same steps as Hugging Face's GPT-2 in float32; numpy runs them in float64. Prints
the largest error of each and ends with exit code 1 if the engine's is the larger one. Needs numpy
and PyTorch (Debian: python3-numpy, python3-torch).
"""
import argparse, json, os, struct, subprocess, sys, tempfile
import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden"))
import make_golden

TYPES = {"F32": np.float32, "F16": np.float16}

def read_safetensors(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
        data = f.read()
    return {k.removeprefix("transformer."): np.frombuffer(data, TYPES[v["dtype"]],
            count=int(np.prod(v["shape"])), offset=v["data_offsets"][0]).reshape(v["shape"])
            for k, v in header.items() if k != "__metadata__" and v["dtype"] in TYPES}

def torch_logits(w, c, ids, weights=None, inputs=None):
    """GPT-2 as Hugging Face runs it; weights and inputs round along the inputs of a matrix."""
    T, C, H = len(ids), c.width, c.heads
    weights, inputs = weights or (lambda m: m), inputs or (lambda x: x)
    table = weights(w["wte.weight"])
    unembed = weights(w["lm_head.weight"]) if "lm_head.weight" in w else table
    x = table[torch.tensor(ids)] + w["wpe.weight"][:T]
    mask = torch.tril(torch.ones(T, T, dtype=torch.bool))
    for i in range(c.layers):
        p = f"h.{i}."
        ln = lambda name, x: F.layer_norm(x, (C,), w[p + name + ".weight"], w[p + name + ".bias"], c.eps)
        linear = lambda name, x: torch.addmm(w[p + name + ".bias"], inputs(x), weights(w[p + name + ".weight"].T).T)
        q, k, v = (m.view(T, H, C // H).transpose(0, 1)
                   for m in linear("attn.c_attn", ln("ln_1", x)).split(C, dim=-1))
        s = (q @ k.transpose(-1, -2)) / (C // H) ** 0.5
        s = torch.where(mask, s, torch.full([], float("-inf")))
        z = (torch.softmax(s, -1) @ v).transpose(0, 1).reshape(T, C)
        x = x + linear("attn.c_proj", z)
        h = linear("mlp.c_fc", ln("ln_2", x))
        h = 0.5 * h * (1 + torch.tanh((2 / np.pi) ** 0.5 * (h + 0.044715 * torch.pow(h, 3.0))))
        x = x + linear("mlp.c_proj", h)
    x = F.layer_norm(x, (C,), w["ln_f.weight"], w["ln_f.bias"], c.eps)
    return F.linear(inputs(x), unembed)

def make_checkpoint(directory, seed):
    """A random one of GPT-2's size."""
    sys.argv = ["make_golden.py", directory, "--layers", "12", "--heads", "12", "--width", "768",
                "--vocab", "50257", "--ctx", "1024", "--tokens", "2", "--seed", str(seed)]
    make_golden.main()

def open_checkpoint(directory):
    """Its config.json, the sizes in it and the weights, for numpy and as float32 for PyTorch."""
    cfg = json.load(open(os.path.join(directory, "config.json")))
    c = argparse.Namespace(layers=cfg["n_layer"], heads=cfg["n_head"], width=cfg["n_embd"],
                           eps=cfg["layer_norm_epsilon"])
    w = read_safetensors(os.path.join(directory, "model.safetensors"))
    return cfg, c, w, {k: torch.tensor(v.astype(np.float32)) for k, v in w.items()}

def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("gpt2")
    ap.add_argument("convert")
    ap.add_argument("directory", nargs="?")
    ap.add_argument("--tokens", type=int, default=64)
    ap.add_argument("--seed", type=int, default=0)
    a = ap.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        if not a.directory:
            a.directory = os.path.join(tmp, "random")
            make_checkpoint(a.directory, a.seed)
        cfg, c, w, of_torch = open_checkpoint(a.directory)
        ids = np.random.default_rng(a.seed + 7).integers(0, cfg["vocab_size"], a.tokens)
        exact = make_golden.forward({k: v.astype(np.float64) for k, v in w.items()}, c, ids)["logits"]
        model, npy = os.path.join(tmp, "model.attn"), os.path.join(tmp, "logits.npy")
        subprocess.run([a.convert, a.directory, model], check=True)
        subprocess.run([a.gpt2, model, "--ids", " ".join(map(str, ids)), "--logits", npy, "--quiet"], check=True)
        ours, theirs = np.load(npy), torch_logits(of_torch, c, ids).numpy()
    error = lambda x: np.abs(x - exact).max()
    rms = lambda x: np.sqrt(((x - exact) ** 2).mean())
    print(f"logits [{a.tokens}, {exact.shape[1]}], standard deviation {exact.std():.4g}")
    print(f"largest error against float64: attn.h {error(ours):.3g}, PyTorch f32 {error(theirs):.3g}")
    print(f"root mean square of it:        attn.h {rms(ours):.3g}, PyTorch f32 {rms(theirs):.3g}")
    return int(error(ours) > error(theirs))

if __name__ == "__main__":
    sys.exit(main())
