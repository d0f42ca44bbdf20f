#!/usr/bin/env python3
"""Checks tools/reproduce against TransformerLens: its procedures on a random model, by its own functions.

    compare_reproduce.py DIRECTORY BUILD [--width 48] [--no-positions]

Needs torch, transformers and transformer_lens 3. Makes a random GPT-2 of 12 layers, 12 heads and GPT-2's vocabulary
in DIRECTORY, converts it by BUILD/attn-convert, runs BUILD/reproduce and compares every block that it worked out
with what TransformerLens gives. The weights are wide enough for attention and patches to matter. --width 768 is
GPT-2 small's own shape. float32 on both sides; the tolerance is the published figures' own, 1e-5, where numbers are
of the order of 1.
"""
import argparse
import json
import os
import subprocess
import sys

import torch
import transformers
from transformer_lens import HookedTransformer, HookedTransformerConfig, patching
from transformer_lens.pretrained.weight_conversions.gpt2 import convert_gpt2_weights

LAYERS = HEADS = 12
EOT = 50256


def make_model(directory, width):
    torch.manual_seed(5)
    config = transformers.GPT2Config(n_embd=width, n_layer=LAYERS, n_head=HEADS, n_positions=1024, vocab_size=50257)
    hf = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, p in hf.named_parameters():
            if "ln_" in name and name.endswith("weight"):
                p.copy_(1 + 0.2 * torch.randn_like(p))
            elif name.endswith("bias"):
                p.copy_(0.1 * torch.randn_like(p))
            elif "wte" in name or "wpe" in name:
                p.copy_(torch.randn_like(p) * (0.3 if "wte" in name else 0.1))
            else:
                p.copy_(torch.randn_like(p) * (1.5 / width ** 0.5))
    hf.save_pretrained(directory)
    return hf


def lens_model(hf, width):
    cfg = HookedTransformerConfig(
        n_layers=LAYERS, d_model=width, n_ctx=1024, d_head=width // HEADS, n_heads=HEADS, d_mlp=4 * width,
        d_vocab=50257, act_fn="gelu_new", eps=1e-5, normalization_type="LN", positional_embedding_type="standard",
        original_architecture="GPT2LMHeadModel", device="cpu", dtype=torch.float32)
    cfg.use_attn_scale = True
    model = HookedTransformer(cfg)
    model.load_and_process_state_dict(
        convert_gpt2_weights(hf, cfg), fold_ln=True, center_writing_weights=True, center_unembed=True)
    return model.eval()


def numbers_in(path, name, width):
    text = open(path).read()
    text = text[text.index(name):]
    text = text[text.index("= {"):text.index(";")]
    flat = [int(v) for v in text.replace("{", " ").replace("}", " ").replace(",", " ").replace("=", " ").split()]
    return torch.tensor(flat).reshape(-1, width) if width else torch.tensor(flat)


class Oracle:
    """The notebooks' own lines."""

    def __init__(self, model, source):
        self.model = model
        self.clean = numbers_in(source, "prompts[N_PROMPTS]", 15)
        self.answers = numbers_in(source, "answers[N_PROMPTS]", 2)
        self.one = numbers_in(source, "one_prompt[2]", 17)
        self.one_answer = numbers_in(source, "one_answer[2]", 2)
        self.corrupted = self.clean[[i ^ 1 for i in range(8)]]
        logits, self.cache = model.run_with_cache(self.clean)
        self.clean_logits = logits
        self.base = self.difference(logits)
        self.worst = self.difference(model(self.corrupted))
        W_U = model.W_U
        self.directions = (W_U[:, self.answers[:, 0]] - W_U[:, self.answers[:, 1]]).T
        self.made = {}

    def difference(self, logits, answers=None, mean=True):
        answers = self.answers if answers is None else answers
        final = logits[:, -1, :].gather(-1, answers)
        out = final[:, 0] - final[:, 1]
        return out.mean() if mean else out

    def metric(self, logits):
        return (self.difference(logits) - self.worst) / (self.base - self.worst)

    def attributed(self, stack, cache):
        scaled = cache.apply_ln_to_stack(stack, layer=-1, pos_slice=-1)
        return torch.einsum("...bd,bd->...", scaled, self.directions) / 8

    def heads(self):
        stack = self.cache.stack_head_results(layer=-1, pos_slice=-1)
        return self.attributed(stack, self.cache).reshape(LAYERS, HEADS)

    def ablated(self):
        top = self.heads().flatten().argmax().item()

        def ablate(z, hook):
            z[:, -1, top % HEADS, :] = 0
            return z
        self.model.blocks[top // HEADS].attn.hook_z.add_hook(ablate)
        logits, cache = self.model.run_with_cache(self.clean)
        self.model.reset_hooks()
        stack = cache.stack_head_results(layer=-1, pos_slice=-1)
        return self.difference(logits), self.attributed(stack, cache).reshape(LAYERS, HEADS)

    def repeated(self, offset):
        torch.manual_seed(0)
        tokens = torch.randint(100, 20000, size=(2, 100)).repeat(1, 2)
        _, cache = self.model.run_with_cache(tokens)
        return torch.stack([cache["pattern", l].diagonal(offset=offset, dim1=-1, dim2=-2).mean(-1).mean(0)
                            for l in range(LAYERS)])

    def one_patched(self):
        _, cache = self.model.run_with_cache(self.one[:1])
        good = self.difference(self.model(self.one[:1]), self.one_answer)
        bad = self.difference(self.model(self.one[1:]), self.one_answer)
        return patching.get_act_patch_resid_pre(
            self.model, self.one[1:], cache, lambda x: (self.difference(x, self.one_answer) - bad) / (good - bad))

    def attributions(self):
        """gradient * (clean - corrupted), by the notebook's cells 18 to 29, 44, 48 and 53."""
        grads, acts = {}, {}
        with torch.enable_grad():
            self.model.reset_hooks()
            self.model.set_use_attn_result(True)
            keep = lambda n: not any(w in n for w in ("_input", "attn_in", "mlp_in"))  # noqa: E731
            self.model.add_hook(keep, lambda x, hook: acts.update({hook.name: x.detach()}), "fwd")
            self.model.add_hook(keep, lambda x, hook: grads.update({hook.name: x.detach()}), "bwd")
            self.metric(self.model(self.corrupted)).backward()
            self.model.reset_hooks()
            self.model.zero_grad()
        _, clean = self.model.run_with_cache(self.clean)
        self.model.set_use_attn_result(False)
        both = {k: grads[k] * (clean[k] - acts[k]) for k in grads if k in acts and clean[k].shape == acts[k].shape
                and grads[k].shape == acts[k].shape}
        out = {}
        for short in ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out"):
            out[short] = torch.stack([both["blocks.%d.hook_%s" % (l, short)].sum((0, -1)) for l in range(LAYERS)])
        for short in ("result", "q", "k", "v", "z"):
            out[short] = torch.stack([both["blocks.%d.attn.hook_%s" % (l, short)].sum((0, -1)).T
                                      for l in range(LAYERS)]).reshape(LAYERS * HEADS, 15)
        out["pattern"] = torch.stack([both["blocks.%d.attn.hook_pattern" % l].sum((0, -1))
                                      for l in range(LAYERS)]).reshape(LAYERS * HEADS, 15)
        out["embed"] = both["hook_embed"].sum((0, -1))
        return out

    def attribution(self, name):
        if not hasattr(self, "attributed_"):
            self.attributed_ = self.attributions()
        a, name = self.attributed_, name[5:]
        if name == "resid":
            rows = [r for l in range(LAYERS) for r in (a["resid_pre"][l], a["resid_mid"][l])]
            return torch.stack(rows + [a["resid_post"][-1]])
        if name == "layers":
            rows = [r for l in range(LAYERS) for r in (a["attn_out"][l], a["mlp_out"][l])]
            return torch.stack([a["embed"], torch.zeros(15)] + rows)
        if name == "blocks":
            return torch.stack([a["resid_pre"], a["attn_out"], a["mlp_out"]])
        if name.endswith("-sum"):
            return a[name[:-4]].sum(-1).reshape(LAYERS, HEADS)
        heads = torch.stack([a[k] for k in ("z", "q", "k", "v", "pattern")])
        if name == "heads":
            return heads.sum(-1).reshape(5, LAYERS, HEADS)
        return heads if name == "heads-by-position" else a[name]

    def work_out(self, name):
        if name not in self.made:
            self.made[name] = self.procedure(name)
        return self.made[name]

    def procedure(self, name):
        if "," in name:
            return torch.stack([self.work_out(n).flatten() for n in name.split(",")])
        given = (self.model, self.corrupted, self.cache, self.metric)
        simple = {
            "accumulated": lambda: self.attributed(self.cache.accumulated_resid(-1, incl_mid=True, pos_slice=-1),
                                                   self.cache),
            "sublayers": lambda: self.attributed(self.cache.decompose_resid(-1, pos_slice=-1), self.cache),
            "heads": self.heads,
            "ablated-heads": lambda: self.ablated()[1],
            "ablated": lambda: self.ablated()[0].reshape(1),
            "prompts": lambda: self.difference(self.clean_logits, mean=False),
            "patch-resid_pre": lambda: patching.get_act_patch_resid_pre(*given),
            "patch-attn_out": lambda: patching.get_act_patch_attn_out(*given),
            "patch-mlp_out": lambda: patching.get_act_patch_mlp_out(*given),
            "patch-z": lambda: patching.get_act_patch_attn_head_out_all_pos(*given),
            "patch-v": lambda: patching.get_act_patch_attn_head_v_all_pos(*given),
            "patch-pattern": lambda: patching.get_act_patch_attn_head_pattern_all_pos(*given),
            "patch-blocks": lambda: patching.get_act_patch_block_every(*given),
            "patch-heads": lambda: patching.get_act_patch_attn_head_all_pos_every(*given),
            "patch-z-by-position": lambda: patching.get_act_patch_attn_head_out_by_pos(*given).transpose(1, 2)
            .reshape(LAYERS * HEADS, 15),
            "patch-heads-by-position": lambda: patching.get_act_patch_attn_head_by_pos_every(*given).transpose(2, 3)
            .reshape(5, LAYERS * HEADS, 15),
            "patch-resid_pre-of-one": self.one_patched,
            "previous-token": lambda: self.repeated(1),
            "duplicate-token": lambda: self.repeated(100),
            "induction": lambda: self.repeated(99),
        }
        if name.startswith("attr-"):
            return self.attribution(name)
        if name.startswith("pattern-"):
            layer, head = (int(v) for v in name[8:].split("."))
            return self.cache["pattern", layer][:, head]
        return simple[name]() if name in simple else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("build")
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--no-positions", action="store_true")
    o = parser.parse_args()
    torch.set_grad_enabled(False)
    hf = make_model(o.directory, o.width)
    attn = os.path.join(o.directory, "random.attn")
    figures = os.path.join(o.directory, "figures.json")
    subprocess.run([o.build + "/attn-convert", "-q", "--no-tokenizer", o.directory, attn], check=True)
    done = subprocess.run([o.build + "/reproduce", attn, "--json", figures] + ["--quick"] * o.no_positions)
    if done.returncode != 1:
        sys.exit("reproduce ended with %d; expected 1, for figures that differ" % done.returncode)
    oracle = Oracle(lens_model(hf, o.width), "tools/reproduce/study.h")
    worst, n = 0.0, 0
    for block in json.load(open(figures))["blocks"]:
        expected = oracle.work_out(block["procedure"]) if "values" in block else None
        if expected is None:
            continue
        got = torch.tensor(block["values"])
        if got.shape != expected.shape:
            sys.exit("%s: shape %s, expected %s" % (block["title"], list(got.shape), list(expected.shape)))
        difference = (got - expected).abs().max().item()
        worst, n = max(worst, difference), n + got.numel()
        print("%-10.2g largest %-8.3g %s" % (difference, expected.abs().max().item(), block["title"]))
    print("%d numbers, at most %.2g apart" % (n, worst))
    return worst > 1e-5


if __name__ == "__main__":
    sys.exit(main())
