#!/usr/bin/env python3
"""Compares decompositions, head detection and circuits with TransformerLens's, on the same weights.

    compare_lens.py BUILD [HF_DIRECTORY...] [--tokens 12]

BUILD holds attn-convert and lens. A directory is any that attn-convert and transformers take (default: models of
golden/ and the included one). `lens decompose` against ActivationCache.accumulated_resid, decompose_resid and
get_full_resid_decomposition, labels too, at several layers, with and without mlp_input and apply_ln; `lens heads`
against head_detector with all its options; `lens circuits` against FactoredMatrix.eigenvalues and copying scores
as in Main_Demo. Prints the largest difference of each, relative to the largest magnitude of its tensor; the exit
code is 1 if one is above 1e-5 (eigenvalues over the tokens: 1e-4, for TransformerLens's own are float32).
Needs transformer-lens 3 (4.0 has no HookedTransformer), transformers and torch.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "makers")]
from float64 import read_safetensors
from compare_processing import ROOT, theirs
from transformer_lens.head_detector import HEAD_NAMES, compute_head_attention_similarity_score
from transformer_lens import head_detector

OPTIONS = ("fold_ln", "center_writing_weights", "center_unembed", "fold_value_biases")
worst = {}


def note(what, got, want, limit=1e-5):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape, (what, got.shape, want.shape)
    off = np.abs(got - want).max() / max(np.abs(want).max(), 1e-30)
    worst[what] = max(worst.get(what, (0, limit)), (off, limit))


def lens(o, model, *words):
    return json.loads(subprocess.run([f"{o.build}/lens", model, *words, "--json"], check=True, capture_output=True,
                                     text=True).stdout)


def decompositions(o, path, ids, tl, cache, folder):
    out = os.path.join(folder, "parts.safetensors")
    n = tl.cfg.n_layers
    for layer in sorted({0, 1, n - 1, n}):
        for mlp_input in (False, True)[:1 + (layer < n)]:
            for apply_ln in (False, True):
                how = dict(layer=layer, mlp_input=mlp_input, apply_ln=apply_ln, return_labels=True)
                cases = {"streams": cache.accumulated_resid(**how),
                         "streams-mid": cache.accumulated_resid(incl_mid=True, **how),
                         "heads": cache.get_full_resid_decomposition(expand_neurons=False, **how),
                         "neurons": cache.get_full_resid_decomposition(expand_neurons=True, **how)}
                cases.update({kind: cache.decompose_resid(mode=mode, **how) for kind, mode in
                              (("sublayers", "all"), ("attns", "attn"), ("mlps", "mlp"))})
                for kind, (stack, labels) in cases.items():
                    words = ["--layer", str(layer)] + ["--mlp-input"] * mlp_input + ["--apply-ln"] * apply_ln
                    rows = lens(o, path, "decompose", "--ids", ids, "--kind", kind, "-q", "-o", out, *words)["parts"]
                    got = [row["part"] for row in rows if row["position"] == 0]
                    assert got == list(labels), (kind, layer, mlp_input, got, labels)
                    note(f"decompose {kind}", read_safetensors(out)["stack"], stack)


def detection(o, path, ids, tl, cache, folder):
    n = len(ids.split())
    keys = np.tril(np.random.default_rng(1).uniform(0, 1, (n, n))).astype(np.float32)
    file = os.path.join(folder, "pattern.txt")
    np.savetxt(file, keys, fmt="%.9g")
    tokens = torch.tensor([[int(i) for i in ids.split()]])
    def scores(*words):
        """[kind, layer, head]"""
        rows = lens(o, path, "heads", "--ids", ids, *words)["heads"]
        return np.array([row["score"] for row in rows]).reshape(-1, tl.cfg.n_layers, tl.cfg.n_heads)

    patterns = [getattr(head_detector, f"get_{name}_detection_pattern")(tokens) for name in HEAD_NAMES]
    for measure in ("mul", "abs"):
        for bos in (False, True):
            for current in (False, True):
                words = ["--measure", measure] + ["--exclude-bos"] * bos + ["--exclude-current-token"] * current
                found = np.append(scores(*words)[:3], scores("--pattern", file, *words), 0)
                for got, wanted in zip(found, patterns + [torch.tensor(keys)]):
                    want = [[compute_head_attention_similarity_score(
                        cache["pattern", layer][head].clone(), wanted, exclude_bos=bos, exclude_current_token=current,
                        error_measure=measure) for head in range(tl.cfg.n_heads)] for layer in range(tl.cfg.n_layers)]
                    if measure == "abs": # a number beside 1, which TransformerLens rounds to three decimals
                        note("heads abs", np.append(got, 1), np.append(want, 1), 5.1e-4)
                    else:
                        note("heads mul", got, want)


def circuits(o, path, tl):
    found = lens(o, path, "circuits", "--top", "50")
    for name, matrix, limit in (("OV", tl.OV, 1e-5), ("full_OV", tl.W_E @ tl.OV @ tl.W_U, 1e-4)):
        values = matrix.eigenvalues.detach()
        rows = [row for row in found["eigenvalues"] if row["space"] == name]
        got = np.array([row["real"] + 1j * row["imaginary"] for row in rows]).reshape(tl.cfg.n_layers, tl.cfg.n_heads, -1)
        for layer in range(tl.cfg.n_layers):
            for head in range(tl.cfg.n_heads):
                want = values[layer, head].numpy()
                want = want[np.argsort(-np.abs(want))][:got.shape[2]]
                note(f"magnitudes of eigenvalues, {name}", np.abs(got[layer, head]), np.abs(want), limit)
        score = (values.sum(-1).real / values.abs().sum(-1)).numpy()
        column = "copying_ov" if name == "OV" else "copying_full"
        note(f"copying scores, {name}", [row[column] for row in found["heads"]], score.flatten(), limit)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("build")
    ap.add_argument("directories", nargs="*")
    ap.add_argument("--tokens", type=int, default=12)
    o = ap.parse_args()
    directories = o.directories or [os.path.join(ROOT, "tests", "golden", n) for n in ("plain", "odd", "narrow")] + [
        os.path.join(ROOT, "examples", "tiny-stories")]
    for directory in directories:
        worst.clear()
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            path = os.path.join(folder, "model.attn")
            subprocess.run([f"{o.build}/attn-convert", "--quiet", directory, path, "--dtype", "f32"], check=True)
            tl = theirs(directory, dict.fromkeys(OPTIONS, False), False)
            ids = np.random.default_rng(7).integers(0, tl.cfg.d_vocab, o.tokens)
            ids[o.tokens // 2:] = ids[:o.tokens - o.tokens // 2]
            _, cache = tl.run_with_cache(torch.tensor(ids)[None])
            cache = cache.remove_batch_dim()
            words = " ".join(map(str, ids))
            decompositions(o, path, words, tl, cache, folder)
            detection(o, path, words, tl, cache, folder)
            circuits(o, path, tl)
        name = os.path.basename(directory.rstrip("/"))
        for what, (off, limit) in worst.items():
            print(f"{name:14} {what:32} {off:.1e}" + (f"  ABOVE {limit:g}" if off > limit else ""), flush=True)
        failed = any(off > limit for off, limit in worst.values())
        if failed:
            sys.exit(1)


if __name__ == "__main__":
    main()
