#!/usr/bin/env python3
"""Compares sweeps of attn.lens with TransformerLens's patching functions, in float64, and path patching
with its definition by hooks.

    compare_patching.py BUILD [HF_DIRECTORY...] [--only WORD] [--float32]

BUILD holds attn-convert and libattn.so. A directory is any that attn-convert and transformers take
(default: two random models of golden/ and the included model). Two pairs of texts are one batch there and
a list of pairs here; the metric is the mean difference of two logits. Prints the largest difference of each
sweep, relative to the largest logit, in whose float32 rounding it lies, and as a share of the gap between
both texts; with --float32 the same of TransformerLens's own float32. The exit code is 1 if one is above the
limit, or if no patch of a sweep changes more than ten times that. --only: sweeps whose name has the word.

What differs is float32's rounding: of the included model's resid_mid sweep, whose gap is a fiftieth of its
largest logit, we are off by 1.6e-5 of the gap, and TransformerLens in float32 by 9.5e-6.
Needs transformer-lens 3 (4.0 has no HookedTransformer), transformers and torch.
"""
import argparse
import itertools
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig, patching
from transformer_lens.pretrained.weight_conversions import convert_gpt2_weights
from transformers import GPT2LMHeadModel

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "examples", "python"))
LIMIT = 1e-5
patching.tqdm = list  # no progress bars
RIGHT, WRONG = 7, 3
SWEEPS = [  # their function; the activation, the kind, and how our axes become theirs
    ("get_act_patch_resid_pre", "hook_resid_pre", "positions", None),
    ("get_act_patch_resid_mid", "hook_resid_mid", "positions", None),
    ("get_act_patch_attn_out", "hook_attn_out", "positions", None),
    ("get_act_patch_mlp_out", "hook_mlp_out", "positions", None),
    *[(f"get_act_patch_attn_head_{a}_by_pos", f"attn.hook_{b}", "position_heads", None)
      for a, b in (("out", "z"), ("q", "q"), ("k", "k"), ("v", "v"))],
    ("get_act_patch_attn_head_pattern_by_pos", "attn.hook_pattern", "position_heads", (0, 2, 1)),
    ("get_act_patch_attn_head_pattern_dest_src_pos", "attn.hook_pattern", "weights", None),
    *[(f"get_act_patch_attn_head_{a}_all_pos", f"attn.hook_{b}", "heads", None)
      for a, b in (("out", "z"), ("q", "q"), ("k", "k"), ("v", "v"), ("pattern", "pattern"))]]


def theirs(directory):
    source = GPT2LMHeadModel.from_pretrained(directory, dtype=torch.float32).eval()
    c = source.config
    cfg = HookedTransformerConfig(
        d_model=c.n_embd, n_heads=c.n_head, d_head=c.n_embd // c.n_head, n_layers=c.n_layer, n_ctx=c.n_positions,
        d_vocab=c.vocab_size, d_mlp=c.n_inner or 4 * c.n_embd, act_fn=c.activation_function,
        eps=c.layer_norm_epsilon, normalization_type="LN", device="cpu", original_architecture="GPT2LMHeadModel")
    model = HookedTransformer(cfg)
    model.load_and_process_state_dict(convert_gpt2_weights(source, cfg), fold_ln=False, center_writing_weights=False,
                                      center_unembed=False, fold_value_biases=False)
    model.set_use_attn_result(True)
    model.set_use_split_qkv_input(True)
    model.set_use_hook_mlp_in(True)
    return model.double().eval()


def metric(logits):
    return (logits[:, -1, RIGHT] - logits[:, -1, WRONG]).mean()


def path(model, clean, corrupted, sender, receivers, mlps):
    """Wang et al. 2022, or with MLPs frozen: what the receivers read in a run whose heads are fixed, all but
    the sender (a head, an MLP, the embedding) at the corrupted text's; then a run in which they read that."""
    _, is_ = model.run_with_cache(clean)
    _, was = model.run_with_cache(corrupted)
    layer, head = (0, sender) if sender == "embed" else sender
    got = {}
    sends = {"mlp": f"blocks.{layer}.hook_mlp_out", "embed": "blocks.0.hook_resid_pre"}.get(head)

    def fix(value, hook):
        value[:] = (is_ if hook.name == sends else was)[hook.name]
        if not sends and hook.name == f"blocks.{layer}.attn.hook_z":
            value[:, :, head] = is_[hook.name][:, :, head]
        return value

    def keep(value, hook):
        got[hook.name] = value.clone()

    def give(value, hook):
        for at, name, of in receivers:
            if name_of(at, name, model) == hook.name:
                if of is None:
                    value[:] = got[hook.name]
                else:
                    value[:, :, of] = got[hook.name][:, :, of]
        return value

    names = {name_of(at, name, model) for at, name, _ in receivers}
    fixed = [f"blocks.{i}.attn.hook_z" for i in range(model.cfg.n_layers)]
    fixed += [f"blocks.{i}.hook_mlp_out" for i in range(model.cfg.n_layers)] if mlps == "frozen" else []
    fixed += [sends] if sends and sends not in fixed else []
    model.run_with_hooks(corrupted, fwd_hooks=[(n, fix) for n in fixed] + [(n, keep) for n in names])
    return metric(model.run_with_hooks(corrupted, fwd_hooks=[(n, give) for n in names]))


def name_of(layer, name, model):
    last = model.cfg.n_layers - 1
    return f"blocks.{last}.hook_resid_post" if layer > last else f"blocks.{layer}.{name}"


def compare(lens, model, other, only):
    c, random = model.config, np.random.default_rng(7)
    n = 7
    clean = random.integers(0, c.n_vocab, (2, n))
    corrupted = np.where(np.arange(n) < 2, clean, random.integers(0, c.n_vocab, (2, n)))
    pairs = [lens.Pair(a, b, lens.logit_diff(RIGHT, WRONG)) for a, b in zip(clean, corrupted)]
    texts = torch.tensor(clean), torch.tensor(corrupted)
    with torch.no_grad():
        cache = other.run_with_cache(texts[0])[1]
        logits = [other(text) for text in texts]
        whole = (float(metric(logits[1])), max(float(x[:, -1].abs().max()) for x in logits),
                 abs(float(metric(logits[0]) - metric(logits[1]))))
        for name, activation, kind, axes in SWEEPS:
            if only not in name:
                continue
            want = getattr(patching, name)(other, texts[1], cache, metric).numpy()
            got = lens.patch(model, pairs, activation, kind).effect
            yield name, np.transpose(got, axes) if axes else got, want, whole
        last = c.n_layer - 1
        ends = [[(c.n_layer, "hook_resid_pre", None)], [(last, "hook_mlp_in", None)], [(last, "hook_q_input", 1)],
                [(last, "hook_k_input", 0), (last, "hook_k_input", 1), (last, "hook_v_input", 1)],
                [(1, "hook_v_input", 0), (last, "hook_q_input", 0), (c.n_layer, "hook_resid_pre", None)]]
        senders = [(0, 0), (0, 1), (0, "mlp"), "embed"]
        for end, mlps in itertools.product(ends, ("frozen", "through")):
            if only not in "paths":
                break
            want = np.array([float(path(other, *texts, s, end, mlps)) for s in senders])
            given = [tuple(part for part in r if part is not None) for r in end]
            got = lens.path_patch(model, pairs, senders, given, mlps=mlps).effect
            yield f"paths to {given}, MLPs {mlps}", got, want, whole


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("directories", nargs="*")
    parser.add_argument("--only", default="")
    parser.add_argument("--float32", action="store_true")
    args = parser.parse_args()
    os.environ.setdefault("ATTN_LIBRARY", os.path.join(args.build, "libattn.so"))
    import attn
    from attn import lens
    failed = False
    for directory in args.directories or [os.path.join(ROOT, d) for d in (
            "tests/golden/plain", "tests/golden/odd", "examples/tiny-stories")]:
        with tempfile.TemporaryDirectory() as scratch:
            converted = os.path.join(scratch, "model.attn")
            subprocess.run([os.path.join(args.build, "attn-convert"), "--quiet", "--no-tokenizer", directory, converted],
                           check=True)
            other, ours = theirs(directory), attn.Model(converted)
            single = compare(lens, ours, theirs(directory).float(), args.only) if args.float32 else itertools.repeat(None)
            for (name, got, want, whole), theirs_too in zip(compare(lens, ours, other, args.only), single):
                largest = np.abs(got - want).max()
                off, change = largest / whole[1], np.abs(want - whole[0]).max() / whole[1]
                bad = not (off <= LIMIT and change > 10 * off)
                failed |= bad
                more = f", its float32 {np.abs(theirs_too[2] - want).max() / whole[2]:.1e}" if theirs_too else ""
                print(f"{os.path.basename(directory)}: {name}: {off:.1e}; of the gap {largest / whole[2]:.1e}{more}",
                      "TOO FAR" if bad else "", flush=True)
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
