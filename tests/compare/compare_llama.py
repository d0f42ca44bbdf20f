#!/usr/bin/env python3
"""Compares our speed with llama.cpp's on the same weights.

    compare_llama.py build/bench LLAMA-BENCH MODEL.attn=MODEL.gguf... [--rounds 3] [--threads 1,2]

LLAMA-BENCH is llama.cpp's program of that name, built with its defaults (which are for the machine
that builds it). A GGUF file of f32 weights comes from its convert_hf_to_gguf.py, the other types
from its llama-quantize; build/attn-convert reads the f32 one and writes f32, f16, q8 and q4. Rounds
are interleaved; the figures are medians over them, the ratio is ours / theirs. Its generation starts
from nothing, ours after 32 tokens, which is to its advantage.
"""
import argparse, json, statistics, subprocess

def ours(a, model, threads):
    command = [a.bench, model, "--only", "prompt,generation", "--threads", str(threads), "--json", "-"]
    figures = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["figures"]
    return {f["name"]: (f["value"], f["share"]) for f in figures if f["threads"] == threads}

def theirs(a, model, threads):
    command = [a.llama, "-m", model, "-t", str(threads), "-p", "64,512,1024", "-n", "64", "-r", "3", "-o", "json"]
    results = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return {f"{r['n_prompt']} tokens" if r["n_prompt"] else "after 32 tokens": r["avg_ts"] for r in results}

def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("bench")
    ap.add_argument("llama")
    ap.add_argument("models", nargs="+", metavar="MODEL.attn=MODEL.gguf")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--threads", default="1,2")
    a = ap.parse_args()
    pairs = [m.split("=") for m in a.models]
    found = {}
    for _ in range(a.rounds):
        for threads in map(int, a.threads.split(",")):
            for model, gguf in pairs:
                mine, its = ours(a, model, threads), theirs(a, gguf, threads)
                for name in its:
                    found.setdefault((threads, model, name), []).append((*mine[name], its[name]))
    print(f"tokens/s, medians of {a.rounds}             ours  of roof   llama.cpp  ratio")
    for (threads, model, name), rates in found.items():
        mine, share, its = (statistics.median(r[i] for r in rates) for i in range(3))
        print(f"{threads} thread{'s' * (threads > 1):1} {model.split('/')[-1]:10} {name:16}"
              f"{mine:8.1f} {100 * share:7.0f} % {its:11.1f} {mine / its:6.2f}")

if __name__ == "__main__":
    main()
