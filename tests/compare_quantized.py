#!/usr/bin/env python3
"""What do 8 and 4 bits cost? Ours beside ggml's q8_0 and q4_0 on the same weights.

    compare_quantized.py BUILD [HF_DIRECTORY] [--tokens 256] [--texts 4]

Without a directory it makes a random checkpoint of GPT-2's size (golden/make_golden.py's weights).
For each type: the mean Kullback-Leibler divergence of the next-token distribution from the one of
the unquantised weights, and the change in loss. On the included model the text is what the model
itself writes, sampled; on a random one, random ids.

q8_0 and q4_0 follow ggml's description: blocks of 32 along the inputs with an f16 scale; q8_0 puts
the largest magnitude at 127, q4_0 puts it at -8. ggml's CPU kernels quantise the activations of
both to q8_0 (here "w+a"); "w" is the weights' part alone. All matrices are quantised, the embedding
that unembeds too; position embeddings, gains and biases are not. Needs numpy and PyTorch.
"""
import argparse, os, subprocess, sys, tempfile
import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from compare_with_torch import make_checkpoint, open_checkpoint, text_of, torch_logits

def blocks(x):
    """[..., K] -> [..., K/32, 32], zeros at the end."""
    pad = -x.shape[-1] % 32
    return F.pad(x, (0, pad)).unflatten(-1, (-1, 32))

def back(b, k):
    return b.flatten(-2)[..., :k]

def q8_0(x):
    b = blocks(x)
    d = b.abs().amax(-1, keepdim=True) / 127
    q = torch.round(torch.where(d > 0, b / d, torch.zeros_like(b)))
    return back(q * d.half().float(), x.shape[-1])

def q4_0(x):
    b = blocks(x)
    m = torch.gather(b, -1, b.abs().argmax(-1, keepdim=True))
    d = m / -8
    q = torch.clamp(torch.floor(torch.where(d != 0, b / d, torch.zeros_like(b)) + 8.5), 0, 15) - 8
    return back(q * d.half().float(), x.shape[-1])

def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("build")
    ap.add_argument("directory", nargs="?")
    ap.add_argument("--tokens", type=int, default=256)
    ap.add_argument("--texts", type=int, default=4)
    a = ap.parse_args()
    gpt2, convert = (os.path.join(a.build, name) for name in ("gpt2", "attn-convert"))
    with tempfile.TemporaryDirectory() as tmp:
        random = not a.directory
        if random:
            a.directory = os.path.join(tmp, "random")
            make_checkpoint(a.directory, 0)
        c, _, w = open_checkpoint(a.directory)
        for t in ("f32", "q8", "q4"):
            subprocess.run([convert, a.directory, f"{tmp}/{t}.attn", "--dtype", t], check=True,
                           stderr=subprocess.DEVNULL)
        T = min(a.tokens, c.ctx)
        texts = [text_of(gpt2, f"{tmp}/f32.attn", c, T, seed, random) for seed in range(a.texts)]
        ways = {"ggml q8_0, w": (q8_0, None), "ggml q8_0, w+a": (q8_0, q8_0),
                "ggml q4_0, w": (q4_0, None), "ggml q4_0, w+a": (q4_0, q8_0)}
        results = {}
        for ids in texts:
            exact = torch_logits(w, c, ids)
            made = {name: torch_logits(w, c, ids, *how) for name, how in ways.items()}
            for t in ("q8", "q4"):
                subprocess.run([gpt2, f"{tmp}/{t}.attn", "--ids", " ".join(map(str, ids)), "-n", "1", "--logits",
                                f"{tmp}/l.npy", "--quiet"], check=True, stdout=subprocess.DEVNULL)
                made["attn.h " + t] = torch.tensor(np.load(f"{tmp}/l.npy"))
            p = torch.log_softmax(exact.double(), -1)
            target = torch.tensor(ids[1:])
            loss = lambda q: -q[:-1].gather(-1, target[:, None]).mean().item()
            for name, logits in made.items():
                q = torch.log_softmax(logits.double(), -1)
                kl = (p.exp() * (p - q)).sum(-1).mean().item()
                results.setdefault(name, []).append((kl, loss(q) - loss(p), loss(p)))
        print(f"{len(texts)} texts of {T} tokens, loss {np.mean([r[2] for r in results['attn.h q8']]):.4f}")
        for name, r in sorted(results.items(), key=lambda x: x[0][5:]):
            kl, change = ([x[i] for x in r] for i in (0, 1))
            error = lambda values: np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
            print(f"  {name:16s} KL divergence {np.mean(kl):.3e} +- {error(kl):.1e}   change in loss "
                  f"{np.mean(change):+.5f} +- {error(change):.5f}")
        mean = lambda name: np.mean([x[0] for x in results[name]])
        return int(mean("attn.h q8") > mean("ggml q8_0, w+a") or
                   mean("attn.h q4") > mean("ggml q4_0, w+a"))

if __name__ == "__main__":
    sys.exit(main())
