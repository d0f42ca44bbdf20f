#!/usr/bin/env python3
"""Ten exercises of courses on interpretability, solved with the package attn and with TransformerLens on the
same weights.

    compare_exercises.py BUILD [HF_DIRECTORY]

BUILD holds attn-convert and libattn.so. The directory is any that attn-convert and transformers take
(default: the included model). Both solutions of an exercise are given token ids and return arrays. Prints
for each the largest difference as a share of the largest number (of at least 1, since numbers near 0 are
sums of larger ones), and the lines of both solutions. TransformerLens computes in float64. The exit code is
1 if a difference is above 1e-5.
Needs transformer-lens 3 (4.0 has no HookedTransformer), transformers and torch.
"""
import inspect
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from compare_patching import theirs
from transformer_lens import patching

ROOT = pathlib.Path(__file__).resolve().parents[3]
LIMIT = 1e-5
patching.tqdm = list  # no progress bars
CLEAN, CORRUPTED = [18, 505, 301, 260, 33, 260, 505, 301], [18, 505, 301, 260, 40, 260, 505, 301]
REPEATED = list(range(100, 120)) * 2
RIGHT, WRONG = 260, 301


class Exercises:
    """Each method is an exercise: ours(model) and theirs(model)."""

    class loss_of_each_token:
        def ours(model):
            return model.score(CLEAN).nll

        def theirs(model):
            tokens = torch.tensor([CLEAN])
            return model(tokens, return_type="loss", loss_per_token=True)[0]

    class induction_heads:
        def ours(model):
            pattern = np.stack([model.run_with_cache(REPEATED)[1]["pattern", i] for i in range(model.config.n_layer)])
            return pattern.diagonal(-19, 2, 3).mean(-1)

        def theirs(model):
            _, cache = model.run_with_cache(torch.tensor([REPEATED]))
            pattern = torch.stack([cache["pattern", i][0] for i in range(model.cfg.n_layers)])
            return pattern.diagonal(-19, 2, 3).mean(-1)

    class logit_lens:
        def ours(model):
            return model.logit_lens(model.run_with_cache(CLEAN)[1])[:, -1]

        def theirs(model):
            _, cache = model.run_with_cache(torch.tensor([CLEAN]))
            streams = cache.accumulated_resid(layer=-1, incl_mid=False, pos_slice=-1, apply_ln=False)
            return model.unembed(model.ln_final(streams))[:, 0]

    class who_writes_the_answer:
        def ours(model):
            return lens.parts(model, CLEAN, RIGHT, WRONG, "sublayers").to_numpy()[:, -1]

        def theirs(model):
            _, cache = model.run_with_cache(torch.tensor([CLEAN]))
            parts = cache.decompose_resid(layer=-1, pos_slice=-1)[:, 0]
            scaled = cache.apply_ln_to_stack(parts[:, None], layer=-1, pos_slice=-1)[:, 0]
            scaled = scaled * model.ln_final.w
            return scaled @ (model.W_U[:, RIGHT] - model.W_U[:, WRONG])

    class loss_without_each_head:
        def ours(model):
            return lens.ablate_heads(model, CLEAN).change

        def theirs(model):
            tokens = torch.tensor([CLEAN])
            whole, change = model(tokens, return_type="loss"), torch.zeros(model.cfg.n_layers, model.cfg.n_heads)
            for layer in range(model.cfg.n_layers):
                for head in range(model.cfg.n_heads):
                    def without(z, hook):
                        z[:, :, head] = 0
                        return z

                    hooks = [(f"blocks.{layer}.attn.hook_z", without)]
                    change[layer, head] = model.run_with_hooks(tokens, return_type="loss", fwd_hooks=hooks) - whole
            return change

    class patching_the_stream:
        def ours(model):
            return lens.patch(model, pair(), "hook_resid_pre", normalize=True).effect

        def theirs(model):
            clean, corrupted = torch.tensor([CLEAN]), torch.tensor([CORRUPTED])
            clean_logits, cache = model.run_with_cache(clean)
            best, worst = difference(clean_logits), difference(model(corrupted))

            def metric(logits):
                return (difference(logits) - worst) / (best - worst)

            return patching.get_act_patch_resid_pre(model, corrupted, cache, metric)

    class patching_heads:
        def ours(model):
            return lens.patch(model, pair(), "attn.hook_z", "heads").effect

        def theirs(model):
            _, cache = model.run_with_cache(torch.tensor([CLEAN]))
            return patching.get_act_patch_attn_head_out_all_pos(model, torch.tensor([CORRUPTED]), cache, difference)

    class attribution_patching:
        def ours(model):
            return lens.Backward(model).attribution_patch(pair(), "attn.hook_z")

        def theirs(model):
            _, clean = model.run_with_cache(torch.tensor([CLEAN]), names_filter=lambda name: name.endswith("hook_z"))
            corrupted, gradients = {}, {}

            def forward(z, hook):
                corrupted[hook.name] = z.detach()

            def backward(gradient, hook):
                gradients[hook.name] = gradient.detach()

            with torch.enable_grad(), model.hooks([(lambda name: name.endswith("hook_z"), forward)],
                                                  [(lambda name: name.endswith("hook_z"), backward)]):
                difference(model(torch.tensor([CORRUPTED]))).backward()
            return torch.stack([((clean[name] - corrupted[name]) * gradients[name]).sum((0, 1, 3)) for name in
                                (f"blocks.{layer}.attn.hook_z" for layer in range(model.cfg.n_layers))])

    class composition_of_keys:
        def ours(model):
            return lens.composition_scores(model, "K")

        def theirs(model):
            return model.all_composition_scores("K")

    class steering:
        def ours(model):
            name = f"blocks.{model.config.n_layer // 2}.hook_resid_pre"
            vector = lens.steering_vector(model, name, CLEAN[:4], CORRUPTED[4:])
            with model.session() as session:
                session.edit(name, "add", 3 * vector)
                return session.feed(CLEAN, all_logits=True)

        def theirs(model):
            name = f"blocks.{model.cfg.n_layers // 2}.hook_resid_pre"
            towards, away = (model.run_with_cache(torch.tensor([ids]))[1][name][0].mean(0) for ids in (CLEAN[:4], CORRUPTED[4:]))

            def steer(stream, hook):
                return stream + 3 * (towards - away)

            return model.run_with_hooks(torch.tensor([CLEAN]), fwd_hooks=[(name, steer)])[0]


def pair():
    return lens.Pair(CLEAN, CORRUPTED, lens.logit_diff(RIGHT, WRONG))


def difference(logits):
    return logits[0, -1, RIGHT] - logits[0, -1, WRONG]


def lines(function):
    return sum(bool(line.strip()) for line in inspect.getsource(function).splitlines()[1:])


def main(build, directory=ROOT / "examples" / "tiny-stories"):
    global attn, lens
    os.environ.setdefault("ATTN_LIBRARY", os.path.join(build, "libattn.so"))
    sys.path.insert(0, str(ROOT / "examples" / "python"))
    import attn
    from attn import lens
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)  # the texts are short
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "model.attn")
        subprocess.run([os.path.join(build, "attn-convert"), "-q", directory, path], check=True)
        model, other, worst = attn.Model(path), theirs(str(directory)).to(torch.float64), 0.0
        print(f"{'exercise':24} {'difference':>10} {'attn':>6} {'TransformerLens':>16} lines")
        for name, exercise in vars(Exercises).items():
            if name.startswith("_"):
                continue
            got, want = np.asarray(exercise.ours(model), np.float64), exercise.theirs(other).detach().numpy().astype(np.float64)
            if got.shape != want.shape:
                sys.exit(f"{name}: shape {got.shape} here, {want.shape} there")
            found = np.abs(got - want).max() / max(1, np.abs(want).max())
            print(f"{name:24} {found:10.1e} {lines(exercise.ours):6} {lines(exercise.theirs):16}", flush=True)
            worst = max(worst, found)
    sys.exit(int(worst > LIMIT))


if __name__ == "__main__":
    main(*sys.argv[1:])
