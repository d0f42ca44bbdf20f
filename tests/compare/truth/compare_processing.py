#!/usr/bin/env python3
"""Compares processed models with TransformerLens's, weight by weight and activation by activation.

    compare_processing.py BUILD [HF_DIRECTORY...]

BUILD holds attn-convert, lens and libattn.so. A directory is any that attn-convert and transformers
take (default: the random models of golden/ and the included model). For every set of options, `lens
process` writes a model, and HookedTransformer.load_and_process_state_dict, with which from_pretrained
ends, processes the same weights. Prints the largest difference of a weight and of an activation,
relative to the largest magnitude of its tensor; the exit code is 1 if one is above the limit.
Singular vectors have no sign, so refactored columns are compared by magnitude.
Needs transformer-lens 3 (4.0 has no HookedTransformer), transformers and torch.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from transformers import GPT2LMHeadModel
from transformer_lens import HookedTransformer, HookedTransformerConfig
from transformer_lens.pretrained.weight_conversions import convert_gpt2_weights

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "examples", "python"))
OPTIONS = ("fold_ln", "center_writing_weights", "center_unembed", "fold_value_biases")
LIMIT = 1e-5


def theirs(directory, options, refactor):
    source = GPT2LMHeadModel.from_pretrained(directory, dtype=torch.float32).eval()
    c = source.config
    cfg = HookedTransformerConfig(
        d_model=c.n_embd, n_heads=c.n_head, d_head=c.n_embd // c.n_head, n_layers=c.n_layer, n_ctx=c.n_positions,
        d_vocab=c.vocab_size, d_mlp=c.n_inner or 4 * c.n_embd, act_fn=c.activation_function,
        eps=c.layer_norm_epsilon, normalization_type="LNPre" if options["fold_ln"] else "LN", device="cpu",
        original_architecture="GPT2LMHeadModel")
    model = HookedTransformer(cfg)
    state = convert_gpt2_weights(source, cfg)
    model.load_and_process_state_dict(state, **options, refactor_factored_attn_matrices=refactor)
    return model.eval()


def difference(a, b):
    b = np.asarray(b, np.float64)
    finite = np.isfinite(b)
    assert a.shape == b.shape and (np.isfinite(a) == finite).all(), (a.shape, b.shape)
    largest = np.abs(b[finite]).max(initial=0)
    off = np.abs(a[finite] - b[finite]).max(initial=0)
    return off / largest if largest > 0 else off


def compare(attn, build, directory, converted, options, refactor, scratch):
    out = os.path.join(scratch, "processed.attn")
    words = ["--no-" + o.replace("_", "-") for o in OPTIONS if not options[o]] + ["--refactor"] * refactor
    subprocess.run([os.path.join(build, "lens"), converted, "process", "-o", out, *words], check=True)
    ours, other = attn.Model(out), theirs(directory, options, refactor)
    worst = {"weights": (0, ""), "activations": (0, "")}

    def note(kind, name, got, want):
        if refactor and name.split(".")[-1] in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "hook_q", "hook_k",
                                                "hook_v", "hook_z"):
            got, want = np.abs(got), np.abs(want)
        worst[kind] = max(worst[kind], (difference(got, want), name))
    for name, want in other.state_dict().items():
        if not name.endswith(("mask", "IGNORE")):
            note("weights", name, ours.tensor(name), want.numpy())
    if options["fold_ln"]:  # which TransformerLens then leaves out
        for layer in range(ours.config.n_layer):
            for norm in (f"blocks.{layer}.ln1", f"blocks.{layer}.ln2", "ln_final"):
                assert (ours.tensor(norm + ".w") == 1).all() and (ours.tensor(norm + ".b") == 0).all()
    tokens = np.random.default_rng(7).integers(0, ours.config.n_vocab, min(ours.config.n_ctx, 24)).astype(np.int32)
    with torch.no_grad():
        logits, cache = other.run_with_cache(torch.tensor(tokens[None].astype(np.int64)))
    note("activations", "logits", ours(tokens), logits[0].numpy())
    seen = ours.run_with_cache(tokens)[1]
    for name in seen:
        if name in cache.cache_dict:
            note("activations", name, np.asarray(seen[name]), cache[name][0].numpy())
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("directories", nargs="*")
    args = parser.parse_args()
    os.environ.setdefault("ATTN_LIBRARY", os.path.join(args.build, "libattn.so"))
    import attn
    directories = args.directories or [os.path.join(ROOT, d) for d in (
        "tests/golden/plain", "tests/golden/odd", "examples/tiny-stories")]
    everything = dict.fromkeys(OPTIONS, True)
    sets = [(everything, False), (everything, True)]
    sets += [({**everything, o: False}, False) for o in OPTIONS]
    sets += [({**dict.fromkeys(OPTIONS, False), o: True}, False) for o in OPTIONS]
    sets += [(dict.fromkeys(OPTIONS, False), True)]
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        for directory in directories:
            converted = os.path.join(scratch, "model.attn")
            subprocess.run([os.path.join(args.build, "attn-convert"), "--quiet", "--no-tokenizer", directory, converted],
                           check=True)
            for options, refactor in sets:
                worst = compare(attn, args.build, directory, converted, options, refactor, scratch)
                chosen = [o for o in OPTIONS if options[o]] + ["refactor"] * refactor
                limit = LIMIT * (100 if refactor else 1)
                bad = any(value > limit for value, _ in worst.values())
                failed |= bad
                print(f"{os.path.basename(directory)}: {', '.join(chosen)}: " + ", ".join(
                    f"{kind} {value:.1e} ({name})" for kind, (value, name) in worst.items()), "TOO FAR" if bad else "")
    sys.exit(failed)


if __name__ == "__main__":
    main()
