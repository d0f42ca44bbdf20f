#!/usr/bin/env python3
"""What do 8 and 4 bits cost? Ours beside ggml's q8_0 and q4_0 on the same weights.

    compare_quantized.py BUILD [HF_DIRECTORY] [--tokens 256] [--texts 4] [--groups] [--caches]

Without a directory it makes a random checkpoint of GPT-2's size (golden/make_golden.py's weights).
For each type: the mean Kullback-Leibler divergence of the next-token distribution from the one of
the unquantised weights, and the change in loss. On the included model the text is what the model
itself writes, sampled; on a random one, random ids.

q8_0 and q4_0 follow ggml's description: blocks of 32 along the inputs with an f16 scale; q8_0 puts
the largest magnitude at 127, q4_0 puts it at -8. ggml's CPU kernels quantise the activations of
both to q8_0 (here "w+a"); "w" is the weights' part alone. All matrices are quantised, the embedding
that unembeds too; position embeddings, gains and biases are not. Needs numpy and PyTorch.

Two options measure formats that attn.h does not have instead, all simulated. --groups: q8 with other
groups than 32, of weights and of inputs, beside q8_0. --caches: keys and values kept in f16, or as
-127 .. 127 with an f32 scale for each head and position (queries as they are, or rounded so too),
on the weights in f32, q8 and q4 as attn.h rounds them, and what that adds to a cache in f32.

Measured (divergence beside q8_0's; 64 texts of the included model, 8 random ones for random weights of
GPT-2 124M's size, 8 for larger random weights): groups of 32 0.995 +- 0.009, 0.990 +- 0.003, 1.016 +-
0.010; of 64 1.334, 1.281, 1.108; of 64 with the best scales and 256 levels 1.229, 1.196, 1.062; of 128
1.636, 1.509, 1.228. So groups of 32 stay: 64 may only come if all three are within 1.1. A cache in 8
bits adds 10 % of q8's own divergence on the included model (13 % with rounded queries), and 35 % (56 %)
on the larger random weights in f32. Trained weights with outlier channels, such as GPT-2's, were not at
hand.
"""
import argparse, functools, os, subprocess, sys, tempfile
import numpy as np
import torch
import torch.nn.functional as F

from compare_with_torch import make_checkpoint, open_checkpoint, text_of, torch_logits

def groups(x, n):
    """[..., K] -> [..., K/n, n], zeros at the end."""
    pad = -x.shape[-1] % n
    return F.pad(x, (0, pad)).unflatten(-1, (-1, n))

def back(b, k):
    return b.flatten(-2)[..., :k]

def largest(b):
    return torch.gather(b, -1, b.abs().argmax(-1, keepdim=True))

def divided(b, d):
    return torch.where(d != 0, b / d, torch.zeros_like(b))

def q8(x, group=32, scale="f32", levels=255, search=False):
    """The scale is f32, f16, or "late": rounded to f16 when the numbers are chosen, as ggml does. With
    256 levels the largest is -128. A search takes the least squared error of 31 scales within 3 %."""
    b = groups(x, group)
    d = largest(b) / -128 if levels == 256 else largest(b).abs() / 127
    best = least = None
    for j in range(-15, 16) if search else [0]:
        by = d * (1 + j / 500)
        kept = by if scale == "f32" else by.half().float()
        y = torch.clamp(torch.round(divided(b, by if scale == "late" else kept)), 127 - (levels - 1), 127) * kept
        error = ((b - y) ** 2).sum(-1, keepdim=True) if search else None
        best = y if best is None else torch.where(error < least, y, best)
        least = error if least is None else torch.minimum(error, least)
    return back(best, x.shape[-1])

q8_0 = functools.partial(q8, scale="late")

def q4_0(x):
    b = groups(x, 32)
    d = largest(b) / -8
    q = torch.clamp(torch.floor(divided(b, d) + 8.5), 0, 15) - 8
    return back(q * d.half().float(), x.shape[-1])

def rounded(w, how):
    """The weights with each matrix rounded along its inputs."""
    def one(name, x):
        if name in ("wte.weight", "lm_head.weight"):
            return how(x)
        return how(x.T).T if name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")) else x
    return {name: one(name, x) for name, x in w.items()}

def scores(exact, made, texts):
    """Of each text the divergence from what is exact, the change in loss, and the exact loss."""
    def one(exact, made, ids):
        p, q = torch.log_softmax(exact.double(), -1), torch.log_softmax(made.double(), -1)
        target = torch.tensor(ids[1:])
        loss = lambda q: -q[:-1].gather(-1, target[:, None]).mean().item()
        return (p.exp() * (p - q)).sum(-1).mean().item(), loss(q) - loss(p), loss(p)
    return np.array([one(*x) for x in zip(exact, made, texts)])

def error(values):
    return np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")

def line(name, s, width):
    kl, change = s[:, 0], s[:, 1]
    return (f"  {name:{width}s} KL divergence {np.mean(kl):.3e} +- {error(kl):.1e}   change in loss "
            f"{np.mean(change):+.5f} +- {error(change):.5f}")

def compare_groups(w, c, texts, exact, ours):
    ways = {"ggml q8_0": (q8_0, q8_0), "attn.h q8": None}
    def add(name, weights, inputs, scale="f16", **better):
        ways[name] = (functools.partial(q8, group=weights, scale=scale, **better),
                      functools.partial(q8, group=inputs, levels=better.get("levels", 255)))
    for n in (32, 64, 128):
        add(f"{n}", n, n)
    add("64, scales searched", 64, 64, search=True)
    add("64, 256 levels", 64, 64, levels=256)
    add("64, both", 64, 64, search=True, levels=256)
    add("weights 64, inputs 32", 64, 32)
    add("weights 32, inputs 64", 32, 64)
    for name, how in ways.items():
        if how:
            r = rounded(w, how[0])
        s = scores(exact, ours if not how else (torch_logits(r, c, ids, how[1]) for ids in texts), texts)
        ggml = s if name == "ggml q8_0" else ggml
        ratio = np.mean(s[:, 0]) / np.mean(ggml[:, 0])
        print(f"{line(name, s, 21)}   {ratio:.3f} +- {error(s[:, 0] - ratio * ggml[:, 0]) / np.mean(ggml[:, 0]):.3f} "
              "times q8_0's", flush=True)

def compare_caches(weights, c, texts, exact):
    bits = lambda x: q8(x, x.shape[-1])
    ways = {"f32": None, "f16": lambda q, k, v: (q, k.half().float(), v.half().float()),
            "8 bits": lambda q, k, v: (q, bits(k), bits(v)),
            "8 bits, queries too": lambda q, k, v: (bits(q), bits(k), bits(v))}
    for t, w in weights:
        for name, cached in ways.items():
            inputs = q8 if t != "f32" else None
            s = scores(exact, (torch_logits(w, c, ids, inputs, cached) for ids in texts), texts)
            plain = s if name == "f32" else plain
            kl, change = (s - plain).T[:2]
            print(f"{line(f'{t}, cache {name}', s, 29)}   adds {np.mean(kl):+.2e} +- {error(kl):.1e} and "
                  f"{np.mean(change):+.5f} +- {error(change):.5f}", flush=True)

def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("build")
    ap.add_argument("directory", nargs="?")
    ap.add_argument("--tokens", type=int, default=256)
    ap.add_argument("--texts", type=int, default=4)
    ap.add_argument("--groups", action="store_true", help="q8 with other groups than 32")
    ap.add_argument("--caches", action="store_true", help="keys and values in f16 and in 8 bits")
    a = ap.parse_args()
    gpt2, convert = (os.path.join(a.build, name) for name in ("gpt2", "attn-convert"))
    with tempfile.TemporaryDirectory() as tmp:
        random = not a.directory
        if random:
            a.directory = os.path.join(tmp, "random")
            make_checkpoint(a.directory, 0)
        c, w = open_checkpoint(a.directory)
        for t in ("f32", "q8", "q4"):
            subprocess.run([convert, a.directory, f"{tmp}/{t}.attn", "--dtype", t], check=True,
                           stderr=subprocess.DEVNULL)
        T = min(a.tokens, c.n_ctx)
        texts = [text_of(gpt2, f"{tmp}/f32.attn", c, T, seed, random) for seed in range(a.texts)]
        exact = [torch_logits(w, c, ids) for ids in texts]
        def ours(t):
            for ids in texts:
                subprocess.run([gpt2, f"{tmp}/{t}.attn", "--ids", " ".join(map(str, ids)), "-n", "1", "--logits",
                                f"{tmp}/l.npy", "--quiet"], check=True, stdout=subprocess.DEVNULL)
                yield torch.tensor(np.load(f"{tmp}/l.npy"))
        def back_from(t):
            """The weights that attn.h has in this type."""
            subprocess.run([convert, f"{tmp}/{t}.attn", f"{tmp}/{t}"], check=True, stderr=subprocess.DEVNULL)
            return open_checkpoint(f"{tmp}/{t}")[1]
        print(f"{len(texts)} texts of {T} tokens, loss {np.mean(scores(exact, exact, texts)[:, 2]):.4f}", flush=True)
        if a.groups:
            compare_groups(w, c, texts, exact, ours("q8"))
        if a.caches:
            compare_caches(((t, back_from(t)) for t in ("f32", "q8", "q4")), c, texts, exact)
        if a.groups or a.caches:
            return 0
        ways = {"ggml q8_0, w": (q8_0, None), "ggml q8_0, w+a": (q8_0, q8_0),
                "ggml q4_0, w": (q4_0, None), "ggml q4_0, w+a": (q4_0, q8_0)}
        results = {f"attn.h {t}": scores(exact, ours(t), texts) for t in ("q8", "q4")}
        for name, (weights, inputs) in ways.items():
            r = rounded(w, weights)
            results[name] = scores(exact, (torch_logits(r, c, ids, inputs) for ids in texts), texts)
        for name, s in sorted(results.items(), key=lambda x: x[0][5:]):
            print(line(name, s, 16))
        mean = lambda name: np.mean(results[name][:, 0])
        return int(mean("attn.h q8") > mean("ggml q8_0, w+a") or
                   mean("attn.h q4") > mean("ggml q4_0, w+a"))

if __name__ == "__main__":
    sys.exit(main())
