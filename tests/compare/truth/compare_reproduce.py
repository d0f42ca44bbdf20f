#!/usr/bin/env python3
"""Checks tools/reproduce against TransformerLens and transformers: every block, on a random GPT-2, by their functions.

    compare_reproduce.py DIRECTORY BUILD --tokenizer FILES [--width 48] [--sample N] [--greater-than FILE]
                         [--ioi-edges FILE]
    compare_reproduce.py DIRECTORY BUILD --model DIRECTORY_OF_HF --attn MODEL.attn [--sample N] [--greater-than FILE]
                         [--ioi-edges FILE]

Needs torch, transformers and transformer_lens 3. The first form makes a random GPT-2 of 12 layers, 12 heads and GPT-2's
vocabulary in DIRECTORY, wide enough in its weights for attention and patches to matter, and converts it by
BUILD/attn-convert; FILES has vocab.json and merges.txt. The second takes a model that is there. Then BUILD/reproduce
runs, and every block that it worked out is compared with what the notebooks' own lines give, in float32. The
tolerance is the published figures' own: 1e-5, times the largest number of a block if that is above 1. Effects of
patches are logits divided by the difference of two means of logits, so their tolerance is 1e-5 of logits divided by
it: 7.1 in GPT-2, where that changes nothing, but near 0 in a model with small random weights.

With --greater-than, a file like greater_than_data.csv, its circuits are found by greater_than.py. They need 130 lines
for both weights of pairs. With --ioi-edges, a file like ioi-eap-ig.json, EAP-IG's scores of the eight prompts are those
of the same program.

Prompts of a pair are the same before position 10: patches of positions 0 to 8 must change nothing, and are not run by
TransformerLens. --sample N compares N places of each patching, drawn at random, where all would take it an hour.
Results of TransformerLens are kept in DIRECTORY/oracle.pt, so an interrupted comparison goes on; delete it with the
model.
"""
import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys

import pandas
import torch
import transformers
from transformer_lens import HookedTransformer, HookedTransformerConfig, patching
from transformer_lens.pretrained.weight_conversions.gpt2 import convert_gpt2_weights

import greater_than

EFFECT = re.compile("patch-|attr-|paths|top-heads")  # logits divided by the baselines' difference
LAYERS = HEADS = 12
PLACES = LAYERS * HEADS
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


def lens_model(hf, dtype=torch.float32):
    c = hf.config
    cfg = HookedTransformerConfig(
        n_layers=c.n_layer, d_model=c.n_embd, n_ctx=c.n_positions, d_head=c.n_embd // c.n_head, n_heads=c.n_head,
        d_mlp=4 * c.n_embd, d_vocab=c.vocab_size, act_fn="gelu_new", eps=1e-5, normalization_type="LN",
        positional_embedding_type="standard", original_architecture="GPT2LMHeadModel", device="cpu", dtype=dtype)
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
    return torch.tensor(flat).reshape(-1, width)


def inputs_of_blocks(path):
    """The ids of every block of published.txt, which reproduce's JSON does not repeat."""
    lines = open(path).read().split("\n")
    return [[int(v) for v in line.split("\t")[8].split()] for line in lines if line.startswith("block\t")]


class Plots:
    """The notebooks' own lines."""

    def __init__(self, model, source, sample):
        self.model, self.sample = model, sample
        self.clean = numbers_in(source, "prompts[N_PROMPTS]", 15)
        self.answers = numbers_in(source, "answers[N_PROMPTS]", 2)
        self.one = numbers_in(source, "one_prompt[2]", 17)
        self.one_answer = numbers_in(source, "one_answer[1]", 2)
        self.corrupted = self.clean[[i ^ 1 for i in range(8)]]
        logits, self.cache = model.run_with_cache(self.clean)
        self.clean_logits = logits
        self.base = self.difference(logits)
        self.worst = self.difference(model(self.corrupted))
        W_U = model.W_U
        self.begin = 10  # before it, clean and corrupted prompts are the same
        self.directions = (W_U[:, self.answers[:, 0]] - W_U[:, self.answers[:, 1]]).T

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

    def first_heads(self, ids):
        stack = self.cache.stack_head_results(layer=-1, pos_slice=-1)
        scaled = self.cache.apply_ln_to_stack(stack, layer=-1, pos_slice=-1)
        return (scaled[:, 0] @ self.directions[0])[ids]

    def ablated(self):
        top = self.heads().flatten().argmax().item()

        def ablate(z, hook):
            z[:, -1, top % HEADS, :] = 0
            return z
        self.model.blocks[top // HEADS].attn.hook_z.add_hook(ablate)
        logits, cache = self.model.run_with_cache(self.clean)
        self.model.reset_hooks()
        stack = cache.stack_head_results(layer=-1, pos_slice=-1)
        scales = [c["ln_final.hook_scale"][:, -1, 0] for c in (self.cache, cache)]
        return {"ablated": self.difference(logits).reshape(1), "ablated-heads": self.attributed(stack, cache).reshape(
            LAYERS, HEADS), "ablated-scales": scales[1], "scales": scales[0], "ablated-ratio":
                (scales[0] / scales[1]).mean().reshape(1)}

    def repeated(self):
        torch.manual_seed(0)
        tokens = torch.randint(100, 20000, size=(2, 100)).repeat(1, 2)
        _, cache = self.model.run_with_cache(tokens, names_filter=lambda name: name.endswith("hook_pattern"))
        out = {name: torch.stack([cache["pattern", l].diagonal(offset=offset, dim1=-1, dim2=-2).mean(-1).mean(0)
                                  for l in range(LAYERS)])
               for name, offset in (("previous-token", 1), ("duplicate-token", 100), ("induction", 99))}
        out["top-induction"] = out["induction"].flatten().topk(5).indices.sort().values.float()
        return out

    def copying(self):
        score = lambda e: e.sum(-1).real / e.abs().sum(-1)  # noqa: E731
        whole = self.model.OV
        values = whole.eigenvalues
        last = sorted(((v.real.item(), v.imag.item()) for v in values[-1, -1]), reverse=True)
        return {"ov-copying": score(values), "ov-eigenvalues": torch.tensor(last).T, "ov-copying-of-tokens":
                score((self.model.embed.W_E @ whole @ self.model.unembed.W_U).eigenvalues)}

    def one_prompt(self):
        _, cache = self.model.run_with_cache(self.one[:1])
        good = self.difference(self.model(self.one[:1]), self.one_answer)
        bad = self.difference(self.model(self.one[1:]), self.one_answer)
        return {"one-baselines": torch.stack([good, bad]), "patch-resid_pre-of-one": patching.get_act_patch_resid_pre(
            self.model, self.one[1:], cache, lambda x: (self.difference(x, self.one_answer) - bad) / (good - bad))}

    def attributions(self):
        """gradient * (clean - corrupted), by the notebook's cells 18 to 37, 44, 48 and 53."""
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
        a, layers = {}, range(LAYERS)
        for short in ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out"):
            a[short] = torch.stack([both["blocks.%d.hook_%s" % (l, short)].sum((0, -1)) for l in layers])
        for short in ("result", "q", "k", "v", "z"):
            a[short] = torch.stack([both["blocks.%d.attn.hook_%s" % (l, short)].sum((0, -1)).T
                                    for l in layers]).reshape(PLACES, 15)
        a["pattern"] = torch.stack([both["blocks.%d.attn.hook_pattern" % l].sum((0, -1))
                                    for l in layers]).reshape(PLACES, 15)
        out = {"attr-" + k: v for k, v in a.items()}
        for k in ("result", "q", "k", "v", "z", "pattern"):
            out["attr-%s-sum" % k] = a[k].sum(-1).reshape(LAYERS, HEADS)
        out["attr-resid"] = torch.stack([r for l in layers for r in (a["resid_pre"][l], a["resid_mid"][l])] +
                                        [a["resid_post"][-1]])
        out["attr-layers"] = torch.stack([both["hook_embed"].sum((0, -1)), torch.zeros(15)] +
                                         [r for l in layers for r in (a["attn_out"][l], a["mlp_out"][l])])
        out["attr-blocks"] = torch.stack([a["resid_pre"], a["attn_out"], a["mlp_out"]])
        heads = torch.stack([a[k] for k in ("z", "q", "k", "v", "pattern")])
        out["attr-heads"] = heads.sum(-1).reshape(5, LAYERS, HEADS)
        out["attr-heads-by-position"] = heads
        out.update(self.paths(grads, acts, clean, out["attr-result-sum"].flatten()))
        return out

    def paths(self, grads, acts, clean, strength):
        change = torch.stack([clean["blocks.%d.attn.hook_result" % l] - acts["blocks.%d.attn.hook_result" % l]
                              for l in range(LAYERS)])
        paths = torch.zeros(LAYERS, HEADS, 3, LAYERS, HEADS)
        for l in range(1, LAYERS):
            attn, scale = self.model.blocks[l].attn, grads["blocks.%d.ln1.hook_scale" % l].squeeze(-1)
            for i, (letter, w) in enumerate((("q", attn.W_Q), ("k", attn.W_K), ("v", attn.W_V))):
                slope = torch.einsum("bphd,bp,hcd->bphc", grads["blocks.%d.attn.hook_%s" % (l, letter)], scale, w)
                paths[l, :, i, :l] = torch.einsum("bphc,lbpgc->hlg", slope, change[:l])
        paths = paths.reshape(3 * PLACES, PLACES)
        order = strength.abs().sort(descending=True)
        top = order.indices[:22].sort().values
        ends = torch.stack([3 * top + j for j in range(3)], 1).flatten()
        best = paths[ends][:, top]
        out = {"paths": paths, "top-heads": order.values, "paths-of-top": best}
        for j, letter in enumerate("qkv"):
            out["paths-of-top-" + letter] = best[j::3]
        for layer, head in ((5, 5), (8, 6), (9, 9)):
            i = HEADS * layer + head
            into = paths[3 * i:3 * i + 3]
            of = paths[:, i].reshape(PLACES, 3).T
            out["paths-%d.%d" % (layer, head)] = torch.cat([into, of]).reshape(6, LAYERS, HEADS)
        return out

    def patched(self, name, heads, positions):
        """By TransformerLens's own setters, at a sample of places: [layers, heads, positions] without what is None;
        NaN elsewhere."""
        kind = name.split("-")[1]
        if heads is None:
            setter, axes = patching.layer_pos_patch_setter, ["layer", "pos"]
        elif positions is None:
            setter = patching.layer_head_pattern_patch_setter if kind == "pattern" else \
                patching.layer_head_vector_patch_setter
            axes = ["layer", "head_index"]
        elif kind == "pattern":
            setter, axes = patching.layer_head_pos_pattern_patch_setter, ["layer", "head_index", "pos"]
        else:
            setter, axes = patching.layer_pos_head_vector_patch_setter, ["layer", "pos", "head_index"]
        ranges = {"layer": range(LAYERS), "pos": positions, "head_index": heads}
        places = pandas.MultiIndex.from_product([ranges[a] for a in axes], names=axes).to_frame(index=False)
        if self.sample and len(places) > self.sample:
            places = places.iloc[sorted(random.Random(name).sample(range(len(places)), self.sample))]
        last = lambda x, hook: x[:, -1:]  # noqa: E731  logits of the other positions would be thrown away
        self.model.add_perma_hook("ln_final.hook_normalized", last)
        got = patching.generic_activation_patch(
            self.model, self.corrupted, self.cache, self.metric, setter, kind, index_df=places)
        self.model.reset_hooks(including_permanent=True)
        order = [a for a in ("layer", "head_index", "pos") if a in axes]
        out = torch.full([{"layer": LAYERS, "head_index": HEADS, "pos": 15}[a] for a in order], float("nan"))
        if positions is not None:
            out[..., :self.begin - 1] = 0  # reproduce must say so, too
        for row, value in zip(places[order].itertuples(index=False), got.flatten()):
            out[tuple(row)] = value
        return out

    def group(self, name):
        """Names and results of all that comes with a procedure; None: not one of these."""
        after = range(self.begin - 1, 15)
        simple = {
            "accumulated": lambda: self.attributed(self.cache.accumulated_resid(-1, incl_mid=True, pos_slice=-1),
                                                   self.cache),
            "sublayers": lambda: self.attributed(self.cache.decompose_resid(-1, pos_slice=-1), self.cache),
            "heads": self.heads,
            "prompts": lambda: self.difference(self.clean_logits, mean=False),
            "baselines": lambda: torch.stack([self.base, self.worst]),
        }
        if name in simple:
            return {name: simple[name]()}
        if name.startswith(("attr-", "paths")) or name == "top-heads":
            return self.attributions()
        if name.startswith("ablated") or name == "scales":
            return self.ablated()
        if name in ("previous-token", "duplicate-token", "induction", "top-induction"):
            return self.repeated()
        if name.startswith("ov-"):
            return self.copying()
        if name in ("one-baselines", "patch-resid_pre-of-one"):
            return self.one_prompt()
        if name.startswith("pattern-"):
            layer, head = (int(v) for v in name[8:].split("."))
            return {name: self.cache["pattern", layer][:, head]}
        if name.startswith("patch-") and name.endswith("-by-position"):
            return {name: self.patched(name, range(HEADS), after).reshape(PLACES, 15)}
        if name in ("patch-resid_pre", "patch-attn_out", "patch-mlp_out"):
            return {name: self.patched(name, None, after)}
        if name.startswith("patch-"):
            return {name: self.patched(name, range(HEADS), None)}
        return None


class Figures:
    """Single figures, by transformers where the model is as its file has it."""

    def __init__(self, hf, model, first_prompt, o):
        self.hf, self.model, self.first = hf, model, first_prompt
        self.pairs, self.files, self.found = o.greater_than, o.model or o.directory, None
        self.edges = o.ioi_edges

    def circuits(self):
        if self.found is None:
            tokenizer = transformers.GPT2TokenizerFast(*(os.path.join(self.files, n) for n in ("vocab.json", "merges.txt")))
            self.found = greater_than.figures(self.model, lambda text: tokenizer(text)["input_ids"], self.pairs, EOT)
        return self.found.float()

    def agreement(self):
        """Of EAP-IG's scores with those of the file: the rank correlation, the share of equal signs in the top 1 %."""
        prompts, answers = (numbers_in("tools/reproduce/study.h", *what) for what in
                            (("prompts[N_PROMPTS]", 15), ("answers[N_PROMPTS]", 2)))
        scores, graph = greater_than.scores_between(self.model, prompts, prompts[[i ^ 1 for i in range(8)]], answers)
        published = json.load(open(self.edges))["edges"]
        here = {"%s->%s" % edge: scores[at].item() for edge, at in graph.names().items()}
        table = pandas.DataFrame({"here": here, "file": {k: v["score"] for k, v in published.items()}})
        assert len(table) == len(here) == len(published) and not table.isna().any(axis=None)
        ranks = table.rank()
        best = table.loc[table.file.abs().sort_values(ascending=False).index[:(len(table) + 99) // 100]]
        return torch.tensor([ranks.here.corr(ranks.file), (best.here * best.file > 0).mean()])

    def log_probs(self, ids):
        logits = self.hf(torch.tensor([ids])).logits[0]
        return logits[:-1].log_softmax(-1)[range(len(ids) - 1), ids[1:]], logits

    def windows(self, ids, window):
        n, out = len(ids) - 1, []
        for begin in range(0, n, window):
            end = min(begin + window, n)
            of = self.log_probs(ids[end - window:end + 1])[0]
            out.append(of[window - (end - begin):])
        return torch.cat(out)

    def lens_loss(self, ids, layer, head):
        def ablate(value, hook):
            value[:, :, head] = 0
            return value
        return self.model.run_with_hooks(torch.tensor([ids]), return_type="loss",
                                         fwd_hooks=[("blocks.%d.attn.hook_v" % layer, ablate)])

    def greedy(self, ids, n):
        out = self.hf.generate(torch.tensor([ids]), max_new_tokens=n, min_new_tokens=n, do_sample=False,
                               attention_mask=torch.ones(1, len(ids)), pad_token_id=EOT)
        return out[0, len(ids):].float()

    def neurons(self, ids):
        _, cache = self.model.run_with_cache(self.first[None])
        out = []
        for layer, neuron, token in zip(ids[::3], ids[1::3], ids[2::3]):
            part = cache["post", layer][0, -1, neuron] * self.model.blocks[layer].mlp.W_out[neuron]
            out.append((part - part.mean()) / cache["ln_final.hook_scale"][0, -1, 0] @ self.model.W_U[:, token])
        return torch.stack(out)

    def work_out(self, procedure, ids, shape):
        name, _, rest = procedure.partition("@")
        of = [int(v) for v in rest.split(",")] if rest else [0, 0]
        n = shape[-1]
        if name in ("loss", "mean-probability"):
            losses = -self.log_probs(ids)[0]
            return (losses if name == "loss" else (-losses).exp()).mean().reshape(1)
        if name == "log-likelihood":
            return self.log_probs(ids)[0][of[0] - 1:].sum().reshape(1)
        if name == "is-greedy":
            _, logits = self.log_probs(ids)
            return (logits.argmax(-1)[of[0] - 1:-1] == torch.tensor(ids[of[0]:])).all().float().reshape(1)
        if name == "log-probs":
            return self.windows(ids, of[0] or len(ids) - 1)
        if name == "greedy":
            return self.greedy(ids, n)
        if name in ("hidden", "logits"):
            x = torch.tensor([ids])
            rows = self.hf(x).logits[0] if name == "logits" else self.hf.transformer(x).last_hidden_state[0]
            return rows[of[0]:of[0] + shape[0], of[1]:of[1] + shape[1]]
        if name == "ablated-loss":
            return self.lens_loss(ids, *of).reshape(1)
        if name == "unembed-bias":
            return self.model.unembed.b_U[ids]
        if name == "neurons-of-first":
            return self.neurons(ids)
        if name == "greater-than":
            return self.circuits()[list(ids)]
        if name == "ioi-edges":
            return self.agreement()[list(ids)]
        if name in ("top-tokens", "top-logits", "top-probabilities", "probability", "difference"):
            logits = self.model(torch.tensor([ids]))[0, -1]
            best = logits.topk(n)
            return {"top-tokens": lambda: best.indices.float(), "top-logits": lambda: best.values,
                    "top-probabilities": lambda: logits.softmax(-1).topk(n).values,
                    "probability": lambda: logits.softmax(-1)[of[0]].reshape(1),
                    "difference": lambda: (logits[of[0]] - logits[of[1]]).reshape(1)}[name]()
        return None


class Oracle:
    def __init__(self, hf, path, o):
        model = lens_model(hf)
        self.plots = Plots(model, "tools/reproduce/study.h", o.sample)
        self.figures = Figures(hf, model, self.plots.clean[0], o)
        self.path = path
        self.made = torch.load(path) if os.path.exists(path) else {}

    def plot(self, name):
        for separator in (",", "/"):
            if separator in name:
                parts = [self.plot(n) for n in name.split(separator)]
                if separator == "/":  # x and y of each trace
                    return torch.stack([p.flatten(1) for p in parts], 1)
                return torch.stack(parts if parts[0].ndim == 2 and parts[0].shape[0] == 22 else
                                   [p.flatten() for p in parts])
        lists = {"patch-blocks": "resid_pre attn_out mlp_out", "patch-heads": "z q k v pattern",
                 "patch-heads-by-position": "z-by-position q-by-position k-by-position v-by-position pattern-by-position"}
        if name in lists:
            return torch.stack([self.plot("patch-" + n) for n in lists[name].split()])
        if name not in self.made:
            group = self.plots.group(name)
            if group is None:
                return None
            self.made.update(group)
            torch.save(self.made, self.path)
        return self.made[name]

    def work_out(self, block, ids):
        procedure, shape = block["procedure"], torch.tensor(block["values"]).shape
        if procedure == "tokens":
            return torch.tensor(block["published"])
        if procedure == "heads-of-first":
            return self.plots.first_heads(ids)
        out = self.figures.work_out(procedure, ids, shape)
        return self.plot(procedure) if out is None else out


def run_reproduce(o, attn, figures):
    more = ["--greater-than", o.greater_than] if o.greater_than else []
    more += ["--ioi-edges", o.ioi_edges] if o.ioi_edges else []
    done = subprocess.run([o.build + "/reproduce", attn, "--json", figures] + more)
    if done.returncode != 1:
        sys.exit("reproduce ended with %d; expected 1, for figures that differ" % done.returncode)
    return json.load(open(figures))["blocks"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("build")
    parser.add_argument("--tokenizer")
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--model")
    parser.add_argument("--attn")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--greater-than")
    parser.add_argument("--ioi-edges")
    parser.add_argument("--again", action="store_true", help="take DIRECTORY/figures.json as it is")
    o = parser.parse_args()
    torch.set_grad_enabled(False)
    os.makedirs(o.directory, exist_ok=True)
    attn, figures = o.attn or os.path.join(o.directory, "random.attn"), os.path.join(o.directory, "figures.json")
    if o.model:
        hf = transformers.GPT2LMHeadModel.from_pretrained(o.model).eval()
    else:
        hf = make_model(o.directory, o.width)
        for name in ("vocab.json", "merges.txt"):
            shutil.copyfile(os.path.join(o.tokenizer, name), os.path.join(o.directory, name))
        subprocess.run([o.build + "/attn-convert", "-q", o.directory, attn], check=True)
    blocks = json.load(open(figures))["blocks"] if o.again else run_reproduce(o, attn, figures)
    oracle = Oracle(hf, os.path.join(o.directory, "oracle.pt"), o)
    bad, n, left = 0, 0, 0
    for block, ids in zip(blocks, inputs_of_blocks("tools/reproduce/published.txt")):
        if "values" not in block:
            left += 1
            continue
        expected = oracle.work_out(block, ids)
        got = torch.tensor(block["values"], dtype=torch.float32)
        if expected is None or got.shape != expected.shape:
            sys.exit("%s: shape %s, expected %s" % (block["title"], list(got.shape), expected is not None and
                                                    list(expected.shape)))
        known = ~expected.isnan()
        difference = (got - expected)[known].abs().max().item()
        largest = expected[known].abs().max().item()
        if EFFECT.search(block["procedure"]):
            right, wrong = oracle.plot(("one-" if "of-one" in block["procedure"] else "") + "baselines").tolist()
            largest = max(largest, max(1, abs(right)) / abs(right - wrong))
        scale = largest if block["procedure"] == "greater-than" else max(1, largest)  # probabilities
        wrong = not difference <= 1e-5 * scale
        bad, n = bad + wrong, n + int(known.sum())
        print("%-6s %-10.2g largest %-8.3g %s: %s" % ("WRONG" if wrong else "ok", difference, largest, block["procedure"],
                                                     block["title"]), flush=True)
    print("%d numbers of %d blocks compared, %d blocks differ, %d not computed" % (n, len(blocks) - left, bad, left))
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
