#!/usr/bin/env python3
"""How long EAP-IG's exact procedure takes in PyTorch: seconds of processor time for an edge, one thread.

    compare_exact_speed.py [--edges 200] [--plain]

GPT-2 124M's shape with random weights, 15 tokens. The procedure, for each edge: the corrupted text runs and every
sender's write is stored; then the clean text runs, and every receiver's input is the sum over the senders before
it, of which one edge is the corrupted one. Heads read inputs of their own for q, k and v, as in that code. --plain:
two passes without any of it, a lower bound. Compare with the processor time of lens edges --exact. PyTorch only.
"""
import argparse
import time

import torch
import torch.nn.functional as F

L, H, C, V, T = 12, 12, 768, 50257, 15
D, S = C // H, 1 + L * (H + 1)


def weights():
    torch.manual_seed(1)
    n = lambda *s: torch.randn(*s) * 0.02
    return {"wte": n(V, C), "wpe": n(T, C), "layers": [{"qkv": n(3, H, C, D), "o": n(H, D, C), "in": n(C, 4 * C),
                                                        "out": n(4 * C, C)} for _ in range(L)]}


def norm(x):
    return F.layer_norm(x, (C,))


def plain(w, ids):
    x, later = w["wte"][ids] + w["wpe"], torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
    for layer in w["layers"]:
        q, k, v = torch.einsum("tc,ahcd->ahtd", norm(x), layer["qkv"])
        p = torch.softmax((q @ k.transpose(1, 2) / D ** 0.5).masked_fill(later, -torch.inf), -1)
        x = x + torch.einsum("htd,hdc->tc", p @ v, layer["o"])
        x = x + F.gelu(norm(x) @ layer["in"], approximate="tanh") @ layer["out"]
    return norm(x) @ w["wte"].T


def split(w, ids, was=None, kept=None):
    """Logits, and [T, S, C] of all writes. was: those of the corrupted text; kept [S, receivers of a layer]."""
    writes, later = torch.zeros(T, S, C), torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
    writes[:, 0] = w["wte"][ids] + w["wpe"]

    def read(n, mask):
        """[T, receivers, C]: the stream, less what the edges that are not kept change."""
        stream = writes[:, :n].sum(1, keepdim=True)
        if was is None:
            return stream.expand(T, mask.shape[1], C)
        return stream + torch.einsum("tsc,sr->trc", was[:, :n] - writes[:, :n], 1 - mask[:n])

    for i, layer in enumerate(w["layers"]):
        n, mask = 1 + i * (H + 1), torch.ones(S, 3 * H) if kept is None else kept
        inputs = norm(read(n, mask)).view(T, 3, H, C)
        q, k, v = torch.einsum("tahc,ahcd->ahtd", inputs, layer["qkv"])
        p = torch.softmax((q @ k.transpose(1, 2) / D ** 0.5).masked_fill(later, -torch.inf), -1)
        writes[:, n:n + H] = torch.einsum("htd,hdc->thc", p @ v, layer["o"])
        x = norm(read(n + H, mask[:, :1])[:, 0])
        writes[:, n + H] = F.gelu(x @ layer["in"], approximate="tanh") @ layer["out"]
    return norm(read(S, torch.ones(S, 1))[:, 0]) @ w["wte"].T, writes


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--edges", type=int, default=200)
    ap.add_argument("--plain", action="store_true")
    o = ap.parse_args()
    torch.set_num_threads(1)
    w, clean = weights(), torch.randint(V, (T,))
    corrupted = torch.cat([clean[:10], torch.randint(V, (5,))])
    with torch.inference_mode():
        split(w, clean)
        begin = time.process_time()
        for i in range(o.edges):
            kept = torch.ones(S, 3 * H)
            kept[i % S, i % (3 * H)] = 0
            if o.plain:
                plain(w, corrupted), plain(w, clean)
            else:
                split(w, clean, split(w, corrupted)[1], kept)
        each = (time.process_time() - begin) / o.edges
    print(f"{each:.3f} s of processor time for an edge, {each * 32491:.0f} s for 32,491 ({o.edges} timed)")


if __name__ == "__main__":
    main()
