#!/usr/bin/env python3
"""attn.h beside TransformerLens: how long the same experiments take on the same weights and machine.

    compare_speed_tl.py BUILD [HF_DIRECTORY] [--small] [--threads 1,2] [--rounds 5] [--only NAME,...] [--cpu]
    PyPI: transformer-lens (3.x), torch, transformers, numpy; sae-lens for the last row

BUILD holds attn-convert. Without a directory the model has random weights and the shape of GPT-2 124M;
--small takes the included one. speed_tl.c, compiled here with cc -O2 -march=native, does our side in one process; this
program does TransformerLens's, with transformer-lens's own functions. Both wait while the other works. Every
round does each experiment once on either side; figures are medians over the rounds, after one round that is
not counted. What takes TransformerLens more than 10 s is done once, and the last line names it. --cpu counts
seconds of the processor in place of the clock's, for one thread on a machine that others use. Loading, converting and what is prepared once for many calls (sessions, transposed weights,
hooked copies of the model) are not timed. Texts are random tokens: 64 for the cache, 15 for the others, in
which the corrupted text differs by one token.

The experiments: run_with_cache of all activations; the logit difference without each head (zero ablation of
hook_z); activation patching of hook_z for every head, and of hook_resid_pre for every layer and position
(transformer_lens.patching); both with the pass that finds what is patched in; attribution patching of hook_z for all heads, from the gradients of one backward
pass; EAP, the scores of all edges from split inputs and heads' results, as its authors' code asks
TransformerLens for them; encoding 64 rows with a sparse autoencoder of 24,576 features (standard).
The last column is the difference of a result of both sides, so that the same thing is timed.
"""
import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "truth"))
SLOW = 10  # seconds
NAMES = {"cache": "`run_with_cache` of 64 tokens", "ablate": "ablating each head, 15 tokens",
         "heads": "patching each head's `z`, 15 tokens",
         "positions": "patching `hook_resid_pre` of each layer at each of 15 positions",
         "attribution": "attribution patching, 15 tokens", "eap": "EAP, all edges, 15 tokens",
         "sae": "an autoencoder's encoding, 64 rows to 24,576 features"}


class Ours:
    """speed_tl in a process of its own, which sleeps between the experiments."""

    def __init__(self, program, model, threads, texts, tokens, sae=None, cpu=False):
        self.cpu = cpu
        words = [",".join(map(str, t)) for t in texts] + [str(t) for t in tokens] + ([sae] if sae else [])
        self.p = subprocess.Popen([program, model, str(threads), *words], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)

    def run(self, name):
        self.p.stdin.write(name + "\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            sys.exit(f"speed_tl failed at {name}")
        seconds, of_cpu, result = map(float, line.split())
        return of_cpu if self.cpu else seconds, result

    def close(self):
        self.p.stdin.close()
        self.p.wait()


class Theirs:
    """The experiments as a notebook writes them."""

    def __init__(self, model, texts, tokens, sae=None, cpu=False):
        self.model, self.sae = model, sae
        self.clock = time.process_time if cpu else time.perf_counter
        self.clean, self.corrupted = (torch.tensor([t]) for t in texts)
        self.right, self.wrong = tokens

    def metric(self, logits):
        return logits[0, -1, self.right] - logits[0, -1, self.wrong]

    def cache(self):
        with torch.no_grad():
            logits, _ = self.model.run_with_cache(self.clean)
        return logits[0, -1, self.right].item()

    def ablate(self):
        def zero(z, hook, head):
            z[:, :, head] = 0
            return z
        found = []
        with torch.no_grad():
            for layer in range(self.model.cfg.n_layers):
                for head in range(self.model.cfg.n_heads):
                    hook = lambda z, hook, head=head: zero(z, hook, head)
                    found.append(self.metric(self.model.run_with_hooks(
                        self.clean, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", hook)])).item())
        return float(np.mean(found))

    def patch(self, function):
        with torch.no_grad():
            _, cache = self.model.run_with_cache(self.clean)
            return function(self.model, self.corrupted, cache, self.metric).mean().item()

    def heads(self):
        from transformer_lens import patching
        return self.patch(patching.get_act_patch_attn_head_out_all_pos)

    def positions(self):
        from transformer_lens import patching
        return self.patch(patching.get_act_patch_resid_pre)

    def forward_and_backward(self, tokens, names):
        """The activations and the gradients of the metric, as in Attribution_Patching_Demo."""
        values, gradients = {}, {}
        self.model.reset_hooks()
        self.model.add_hook(names, lambda x, hook: values.__setitem__(hook.name, x.detach()), "fwd")
        self.model.add_hook(names, lambda g, hook: gradients.__setitem__(hook.name, g.detach()), "bwd")
        self.metric(self.model(tokens)).backward()
        self.model.reset_hooks()
        self.model.zero_grad(set_to_none=True)
        return values, gradients

    def attribution(self):
        is_z = lambda name: name.endswith("attn.hook_z")
        with torch.no_grad():
            _, clean = self.model.run_with_cache(self.clean, names_filter=is_z)
        corrupted, gradients = self.forward_and_backward(self.corrupted, is_z)
        return torch.stack([((clean[k] - x) * gradients[k]).sum((0, 1, 3)) for k, x in
                            corrupted.items()]).mean().item()

    def eap(self):
        m, cfg = self.model, self.model.cfg
        m.set_use_split_qkv_input(True), m.set_use_attn_result(True), m.set_use_hook_mlp_in(True)
        n, last = cfg.n_layers, f"blocks.{cfg.n_layers - 1}.hook_resid_post"
        writes = ["blocks.0.hook_resid_pre"] + [f"blocks.{i}.{p}" for i in range(n) for p in
                                                ("attn.hook_result", "hook_mlp_out")]
        reads = [f"blocks.{i}.{p}" for i in range(n) for p in
                 ("hook_q_input", "hook_k_input", "hook_v_input", "hook_mlp_in")] + [last]
        stack = lambda a, names: torch.cat([a[k][0].unsqueeze(1) if a[k].ndim == 3 else a[k][0] for k in names], 1)
        with torch.no_grad():
            _, other = m.run_with_cache(self.corrupted, names_filter=lambda k: k in writes)
        values, gradients = self.forward_and_backward(self.clean, lambda k: k in writes or k in reads)
        difference = stack(other, writes) - stack(values, writes)
        scores = torch.einsum("tsc,trc->sr", difference, stack(gradients, reads))
        m.set_use_split_qkv_input(False), m.set_use_attn_result(False), m.set_use_hook_mlp_in(False)
        before = [1 + i * (cfg.n_heads + 1) + (cfg.n_heads if r == 3 * cfg.n_heads else 0)
                  for i in range(n) for r in range(3 * cfg.n_heads + 1)] + [len(scores)]
        leads = torch.arange(len(scores))[:, None] < torch.tensor(before)[None]
        return torch.where(leads, scores, 0).mean().item()

    def encode(self):
        n, width = self.clean.shape[1], self.sae.cfg.d_in
        x = torch.tensor([i * 37 % 101 / 50 - 1 for i in range(n * width)]).reshape(1, n, width)
        with torch.no_grad():
            return self.sae.encode(x).mean().item()

    def run(self, name):
        start = self.clock()
        result = {"sae": self.encode}.get(name) or getattr(self, name)
        result = result()
        return self.clock() - start, result


def random_model(folder):
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(1)
    directory = os.path.join(folder, "124M")
    GPT2LMHeadModel(GPT2Config()).save_pretrained(directory)
    return directory


def random_sae(folder, width):
    """A SAELens directory, and the autoencoder that sae-lens makes of it."""
    from sae_lens import SAE, StandardSAE, StandardSAEConfig
    from sae_lens.saes.sae import SAEMetadata
    torch.manual_seed(2)
    sae = StandardSAE(StandardSAEConfig(d_in=width, d_sae=32 * width,
                                        metadata=SAEMetadata(hook_name="blocks.8.hook_resid_pre")))
    directory = os.path.join(folder, "sae")
    sae.save_model(directory)
    return directory, SAE.load_from_disk(directory)


def measure(o, program, path, model, threads, texts, sae):
    """For each experiment: medians of both sides, the difference of the results, how many rounds count."""
    torch.set_num_threads(threads)
    tokens = (int(texts[0][3]), int(texts[0][5]))
    sides = {}
    for length in (64, 15):
        cut = [t[:length] for t in texts]
        sides[length] = (Ours(program, path, threads, cut, tokens, sae[0] if sae else None, o.cpu),
                         Theirs(model, cut, tokens, sae[1] if sae else None, o.cpu))
    found = {name: ([], [], 0.0) for name in NAMES if (name != "sae" or sae) and (not o.only or name in o.only)}
    for turn in range(o.rounds + 1):
        for name, (a, b, _) in found.items():
            ours, theirs = sides[64 if name in ("cache", "sae") else 15]
            if turn > 0 and b[0] > SLOW:
                continue
            if turn == 1:  # the first round has made caches warm and is not counted
                a.clear(), b.clear()
            seconds, x = ours.run(name)
            a.append(seconds)
            seconds, y = theirs.run(name)
            b.append(seconds)
            found[name] = (a, b, abs(x - y))
    for ours, _ in sides.values():
        ours.close()
    return {name: (statistics.median(a), statistics.median(b), off, len(b)) for name, (a, b, off) in found.items()}


def show(seconds):
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("build")
    ap.add_argument("directory", nargs="?")
    ap.add_argument("--small", action="store_true")
    ap.add_argument("--threads", default="1,2", type=lambda s: [int(x) for x in s.split(",")])
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--only", type=lambda s: s.split(","))
    ap.add_argument("--cpu", action="store_true")
    o = ap.parse_args()
    from compare_processing import theirs
    with tempfile.TemporaryDirectory() as folder:
        small = os.path.join(ROOT, "examples", "tiny-stories")
        directory = o.directory or (small if o.small else random_model(folder))
        path, program = os.path.join(folder, "model.attn"), os.path.join(folder, "speed_tl")
        converter = os.path.join(o.build, "attn-convert")
        subprocess.run([converter, "--quiet", directory, path, "--dtype", "f32"], check=True)
        subprocess.run(["cc", "-std=c99", "-O2", "-march=native", "-DATTN_NO_DISPATCH", "-fopenmp", "-I", ROOT,
                        os.path.join(HERE, "speed_tl.c"), "-lm", "-o", program], check=True)
        plain = {"fold_ln": False, "center_writing_weights": False, "center_unembed": False, "fold_value_biases": False}
        model = theirs(directory, plain, False)
        for p in model.parameters(): # gradients of activations are asked for, and those need one of a small weight
            p.requires_grad_(p is model.pos_embed.W_pos)
        sae = random_sae(folder, model.cfg.d_model) if importlib.util.find_spec("sae_lens") else None
        rng = np.random.default_rng(3)
        clean = [int(i) for i in rng.integers(0, model.cfg.d_vocab, 64)]
        corrupted = clean[:5] + [(clean[5] + 1) % model.cfg.d_vocab] + clean[6:]
        tables = {t: measure(o, program, path, model, t, (clean, corrupted), sae) for t in o.threads}
    columns = [f"attn.h, {t} thread{'s' * (t > 1)} | TransformerLens | times faster" for t in o.threads]
    print("| experiment | " + " | ".join(columns) + " |\n|" + "---|" * (1 + 3 * len(columns)))
    for name in tables[o.threads[0]]:
        cells = [f"{show(a)} | {show(b)} | {b / a:.1f}" for a, b, *_ in (tables[t][name] for t in o.threads)]
        print(f"| {NAMES[name]} | " + " | ".join(cells) + " |")
    if not sae:
        print("\nSAE encoding: not compared, sae-lens is not installed.")
    print("\nLargest differences of the results: " + ", ".join(
        f"{name} {max(tables[t][name][2] for t in o.threads):.1e}" for name in tables[o.threads[0]]))
    once = sorted({name for t in o.threads for name, found in tables[t].items() if found[3] < o.rounds})
    print(f"Medians of {o.rounds} rounds" + (f"; done once: {', '.join(once)}" if once else ""))


if __name__ == "__main__":
    main()
