#!/usr/bin/env python3
"""Sample stories from the included model in float64 with numpy, for tests/suites/generate.

    make_generation_vectors.py > generation_vectors.h     (in tests/; needs numpy)

The forward pass is that of float64.py. The sampler follows the header's description of
attn_sampler_desc, one candidate after the other, likeliest first; its random numbers come from
numpy's own mt19937: random_sample() is the 53-bit number that one draw takes. Every draw must lie
so far from its neighbours, and every filter's edge so far from what it cuts, that float32 cannot
change the outcome; otherwise the next seed is taken.
"""
import os
import numpy as np
from float64 import Model

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STORIES = os.path.join(TESTS, "..", "examples", "tiny-stories")
PROMPT = [506, 511, 258, 433]  # "Once upon a time", as reference.json has it
COUNT = 60
MARGIN = 2e-5
SAMPLERS = [
    dict(temperature=0.8, top_k=40, top_p=0, min_p=0, repeat_penalty=0, repeat_last=0, seed=1),
    dict(temperature=1.1, top_k=0, top_p=0.9, min_p=0, repeat_penalty=0, repeat_last=0, seed=2),
    dict(temperature=1.5, top_k=0, top_p=0, min_p=0.05, repeat_penalty=1.3, repeat_last=16, seed=3),
    dict(temperature=0.9, top_k=100, top_p=0.95, min_p=0.02, repeat_penalty=1.1, repeat_last=0, seed=4),
]

def pick(logits, seen, s, random):
    """One token, and how far it was from being another: in probability or, for order, in logits."""
    x = logits.copy()
    penalty = s["repeat_penalty"] or 1
    for token in set(seen[-s["repeat_last"]:] if s["repeat_last"] else seen):
        x[token] = x[token] / penalty if x[token] > 0 else x[token] * penalty
    order = np.argsort(-x, kind="stable")
    w = np.exp((x[order] - x[order[0]]) / s["temperature"])
    margin, kept = 1.0, len(w)
    if s["top_k"]:
        kept = min(kept, s["top_k"])
    if s["top_p"]:
        share = np.cumsum(w[:kept]) / w[:kept].sum()
        margin = np.abs(share - s["top_p"]).min()
        kept = int(np.searchsorted(share, s["top_p"])) + 1
    if s["min_p"]:
        margin = min(margin, np.abs(np.log(w[:kept] / s["min_p"])).min())
        kept = int((w[:kept] >= s["min_p"]).sum())
    share = np.cumsum(w[:kept]) / w[:kept].sum()
    u = random.random_sample()
    chosen = int(np.searchsorted(share, u, side="right"))
    edges = np.concatenate([[1.0], np.abs(share[:-1] - u)])
    neighbours = -np.diff(x[order[max(chosen - 1, 0):chosen + 2]])
    return int(order[chosen]), min(margin, edges.min(), neighbours.min())

def main():
    model = Model.open(STORIES)
    print("/* Made by make_generation_vectors.py: change that, not this. */\n/* clang-format off */")
    print("enum { GENERATED = %d };" % COUNT)
    print("static const struct {\n    attn_sampler_desc sampler;\n    int32_t ids[GENERATED];\n} generation_vectors[] = {")
    for s in SAMPLERS:
        margin = 0
        while margin < MARGIN:
            random, ids, margin = np.random.RandomState(s["seed"]), list(PROMPT), 1.0
            while len(ids) < len(PROMPT) + COUNT and margin >= MARGIN:
                logits = model.run(ids)[-1]
                token, least = pick(logits, ids, s, random)
                margin = min(margin, least)
                ids.append(token)
            s["seed"] += margin < MARGIN
        number = lambda x: ("%rf" % x if isinstance(x, float) else str(x))
        print("    {{%s}," % ", ".join(".%s = %s" % (k, number(v)) for k, v in s.items() if v))
        rows = [ids[len(PROMPT):][i:i + 15] for i in range(0, COUNT, 15)]
        print("     {%s}}," % (",\n      ".join(", ".join(map(str, r)) for r in rows)))
    print("};")

if __name__ == "__main__":
    main()
