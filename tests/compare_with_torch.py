#!/usr/bin/env python3
"""Compares the engine with PyTorch on one model: whose logits and losses are closer to float64?

    compare_with_torch.py BUILD [HF_DIRECTORY] [--tokens 64] [--greedy 32]

BUILD holds attn-convert, gpt2 and lens. Without a directory it makes a random checkpoint of GPT-2's
size (golden/make_golden.py's weights). The text is some tokens that the model samples (random ids
for a random checkpoint) and their greedy continuation by the engine. PyTorch runs the same steps as
Hugging Face's GPT-2 in float32; numpy runs them in float64. Prints the errors of both, and how much
of the greedy text is what PyTorch and float64 would have said; ends with exit code 1 if a root mean
square of the engine's is more than a fifth above PyTorch's, or if its text parts from float64's where
PyTorch's does not. Needs numpy and PyTorch (Debian: python3-numpy, python3-torch).
"""
import argparse, json, os, struct, subprocess, sys, tempfile
import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden"))
import make_golden

BITS = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}

def read_safetensors(path):
    """Its floats by name, as float32."""
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
        data = f.read()
    tensors = {}
    for name, t in header.items():
        if t.get("dtype") in BITS: # the others are attention masks, and __metadata__
            x = np.frombuffer(data, BITS[t["dtype"]], int(np.prod(t["shape"])), t["data_offsets"][0])
            x = (x.astype(np.uint32) << 16).view(np.float32) if t["dtype"] == "BF16" else x.astype(np.float32)
            tensors[name.removeprefix("transformer.")] = x.reshape(t["shape"])
    return tensors

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
    index = os.path.join(directory, "model.safetensors.index.json")
    files = set(json.load(open(index))["weight_map"].values()) if os.path.exists(index) else ["model.safetensors"]
    w = {k: x for f in files for k, x in read_safetensors(os.path.join(directory, f)).items()}
    return cfg, c, w, {k: torch.tensor(x) for k, x in w.items()}

def text_of(gpt2, model, cfg, n, seed, random):
    """n ids: any for random weights, else what the model itself samples, which is plausible text."""
    if random:
        return [int(i) for i in np.random.default_rng(seed).integers(0, cfg["vocab_size"], n)]
    start = cfg.get("bos_token_id", cfg["vocab_size"] - 1)
    return continued(gpt2, model, [start], n - 1, "--temperature", "1", "--seed", str(seed))

def continued(gpt2, model, ids, n, *how):
    """ids and n more that the engine generates."""
    out = subprocess.run([gpt2, model, "--ids", " ".join(map(str, ids)), "-n", str(n), "--print-ids", "--no-prompt",
                          "--ignore-eos", "--quiet", *how], check=True, stdout=subprocess.PIPE, text=True).stdout
    return ids + [int(i) for i in out.split()]

def our_losses(lens, model, ids):
    out = subprocess.run([lens, model, "loss", "--json", "--ids", " ".join(map(str, ids))], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    return np.array([t["loss"] for t in json.loads(out)["tokens"][1:]])

def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("build")
    ap.add_argument("directory", nargs="?")
    ap.add_argument("--tokens", type=int, default=64)
    ap.add_argument("--greedy", type=int, default=32)
    ap.add_argument("--seed", type=int, default=0)
    a = ap.parse_args()
    gpt2, convert, lens = (os.path.join(a.build, name) for name in ("gpt2", "attn-convert", "lens"))
    with tempfile.TemporaryDirectory() as tmp:
        random = not a.directory
        if random:
            a.directory = os.path.join(tmp, "random")
            make_checkpoint(a.directory, a.seed)
        cfg, c, w, of_torch = open_checkpoint(a.directory)
        a.greedy = min(a.greedy, cfg["n_positions"] // 2)
        a.tokens = min(a.tokens, cfg["n_positions"] - a.greedy)
        model, npy = os.path.join(tmp, "model.attn"), os.path.join(tmp, "logits.npy")
        subprocess.run([convert, a.directory, model, "--dtype", "f32"], check=True)
        prompt = text_of(gpt2, model, cfg, a.tokens, a.seed, random)
        ids = continued(gpt2, model, prompt, a.greedy, "--temperature", "0")
        subprocess.run([gpt2, model, "--ids", " ".join(map(str, ids)), "--logits", npy, "--quiet"], check=True)
        of_torch = torch_logits(of_torch, c, ids)
        logits = {"attn.h": np.load(npy), "PyTorch f32": of_torch.numpy()}
        nll = {"attn.h": our_losses(lens, model, ids),
               "PyTorch f32": F.cross_entropy(of_torch[:-1], torch.tensor(ids[1:]), reduction="none").numpy()}
    exact = make_golden.forward({k: x.astype(np.float64) for k, x in w.items()}, c, np.array(ids), c.eps)
    print(f"{a.tokens} tokens and {a.greedy} greedy ones; logits [{len(ids)}, {cfg['vocab_size']}] of standard deviation "
          f"{exact['logits'].std():.4g}, mean loss {exact['nll'].mean():.6g}")

    def errors(what, made, right):
        print(f"{what}, errors against float64:")
        rms = {name: np.sqrt(((x - right) ** 2).mean()) for name, x in made.items()}
        for name, x in made.items():
            print(f"  {name:12s} largest {np.abs(x - right).max():.3g}, root mean square {rms[name]:.3g}")
        return rms["attn.h"] > 1.2 * rms["PyTorch f32"]

    larger = errors("logits", logits, exact["logits"]) | errors("losses", nll, exact["nll"])
    print(f"mean loss: attn.h {nll['attn.h'].mean():.7g}, PyTorch f32 {nll['PyTorch f32'].mean():.7g}, "
          f"float64 {exact['nll'].mean():.7g}")

    def same(x): # its likeliest token at each step, given the engine's text so far
        said = x[a.tokens - 1:-1].argmax(-1)
        differ = np.flatnonzero(said != ids[a.tokens:])
        return differ[0] if len(differ) else a.greedy

    agree = {"PyTorch f32": same(logits["PyTorch f32"]), "float64": same(exact["logits"])}
    print(f"greedy text, {a.greedy} tokens: " + ", ".join(f"{n} like {name}'s" for name, n in agree.items()))
    return int(larger or agree["float64"] < agree["PyTorch f32"])

if __name__ == "__main__":
    sys.exit(main())
