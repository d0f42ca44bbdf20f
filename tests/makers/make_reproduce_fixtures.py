#!/usr/bin/env python3
"""Makes fixtures/reproduce/: small data sets in the shape of LAMBADA, HellaSwag, WikiText and greater-than, and
figures.txt, in which stand the figures that PyTorch's GPT-2 in float64 (transformers; for greater-than transformer_lens
3) gives for them and for single texts, with the included model. tests/suites/proof lets tools/reproduce work them out.

    python3 tests/makers/make_reproduce_fixtures.py

HellaSwag is prepared twice: as lm-evaluation-harness does (regular expressions of its task) and as llm.c does.
"""
import json
import math
import os
import re
import sys

import torch
from transformers import GPT2LMHeadModel, GPT2TokenizerFast

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TESTS, "compare", "truth"))
import compare_reproduce  # noqa: E402
import greater_than  # noqa: E402

MODEL = os.path.join(TESTS, "..", "examples", "tiny-stories")
OUT = os.path.join(TESTS, "fixtures", "reproduce")

PASSAGES = [
    "Once upon a time there was a little girl. She loved to play with her red ball. One day she lost her ball",
    "Tom had a dog. The dog liked to run in the park. Tom went to the park with his dog",
    "The cat saw a big bird in the tree. The cat wanted to catch the bird",
    "Mom said it was time for bed. Lily was sad, but she went to bed",
    "Ben wanted a caf\u00e9 \u201ccake\u201d. He said, \"I want a cake!\"",
]
ITEMS = [
    ("Playing ball", "A girl has a red ball.", "she throws it to her", ["dog. [step] The dog runs.", "sky and ground.",
                                                                       "mom's blue", "very the of"]),
    ("Going to bed", "[header] How to sleep [title] Lie down.", "the Boy", ["closes his eyes and sleeps.", "eats  a  tree.",
                                                                           "is [note] happy", "and the end"]),
    ("Looking", "The cat saw a bird. ", "", ["It was happy.", "tree tree tree", "The bird flew away.", "no"]),
    ("Walking", "Tom went to the park.", "he", ["played with his dog.", "was", "said \u00e9t\u00e9", "zz zz"]),
]
WIKI = " \n = A story = \n \n Once upon a time there was a big dog . The dog liked to play . \n Tom saw the dog . \n \n" \
       " = = The end = = \n \n" + " She was happy and they went home to play with the ball in the park . \n" * 24
# A pair has one number of tokens, of which the first of "00" to "99" are the years.
PAIRS = [
    ("Tom has 3 balls and Lily has ", "Tom has 1 balls and Lily has ", 34),
    ("The year was 52. The next year was ", "The year was 01. The next year was ", 52),
    ("Sam is 7 years old. Ben is ", "Sam is 0 years old. Ben is ", 70),
]


class Reference:
    def __init__(self):
        self.model = GPT2LMHeadModel.from_pretrained(MODEL, attn_implementation="eager").double().eval()
        self.tokenizer = GPT2TokenizerFast(os.path.join(MODEL, "vocab.json"), os.path.join(MODEL, "merges.txt"))
        self.window = self.model.config.n_positions

    def ids(self, text):
        return self.tokenizer(text, split_special_tokens=True)["input_ids"]

    def rows(self, ids):
        """Log-probabilities of each next token [n - 1], and whether it is the likeliest."""
        logits = self.model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
        target = torch.tensor(ids[1:])
        return logits.gather(-1, target[:, None])[:, 0], logits.argmax(-1) == target

    def continuation(self, context, more, together):
        first = self.ids(context)
        whole = self.ids(context + more) if together else first + self.ids(more)
        log_probs, likeliest = self.rows(whole)
        return log_probs[len(first) - 1:], likeliest[len(first) - 1:]


def cleaned(text):
    text = text.strip().replace(" [title]", ". ")
    return re.sub("\\[.*?\\]", "", text).replace("  ", " ")


def lambada(r):
    words, lasts, losses, last_losses = 0, 0, [], []
    for text in PASSAGES:
        context, last = text.rsplit(" ", 1)
        log_probs, likeliest = r.continuation(context, " " + last, True)
        words += bool(likeliest.all())
        lasts += bool(likeliest[-1])
        losses.append(-log_probs.sum().item())
        last_losses.append(-log_probs[-1].item())
    n = len(PASSAGES)
    return [words / n, math.exp(sum(losses) / n), lasts / n, math.exp(sum(last_losses) / n)]


def hellaswag(r):
    right, answers = [0, 0, 0, 0], []
    for label, a, b, endings in ITEMS:
        query = cleaned(label + ": " + a + " " + b.capitalize())
        scores = [[], [], [], []]
        for ending in endings:
            log_probs = r.continuation(a + " " + b, " " + ending, False)[0]
            scores[0].append(log_probs.sum().item())
            scores[1].append(log_probs.mean().item())
            choice = cleaned(ending)
            whole = r.continuation(query, " " + choice, True)[0].sum().item()
            scores[2].append(whole)
            scores[3].append(whole / len(choice))
        picks = [s.index(max(s)) for s in scores]
        answers.append(picks[len(answers)])  # so that each way is right somewhere
        for i, pick in enumerate(picks):
            right[i] += pick == answers[-1]
    return [v / len(ITEMS) for v in right], answers


def wikitext(r):
    lines = WIKI.split("\n")[:-1]
    ids = r.ids("\n\n".join(line + "\n" if line.strip() else "" for line in lines))
    out = []
    for stride in (r.window, r.window // 2):
        losses, end, begin = [], 0, 0
        while end < len(ids):
            seen, end = end, min(begin + r.window, len(ids))
            log_probs = r.rows(ids[begin:end])[0]
            losses += (-log_probs[max(seen, begin + 1) - begin - 1:]).tolist()
            begin += stride
        out.append(math.exp(sum(losses) / len(losses)))
    assert len(ids) > 1.5 * r.window
    return out


def single(r):
    ids = r.ids("Once upon a time, there was a little dog who wanted to play.")
    log_probs, likeliest = r.rows(ids)
    losses = -log_probs
    yield "loss", losses.mean().reshape(1), ids
    yield "mean-probability", log_probs.exp().mean().reshape(1), ids
    yield "log-likelihood@4", log_probs[3:].sum().reshape(1), ids
    yield "is-greedy@4", likeliest[3:].all().double().reshape(1), ids
    yield "is-greedy@2", r.rows(r.ids("Once upon a"))[1][1:].all().double().reshape(1), r.ids("Once upon a")
    yield "log-probs", log_probs, ids
    n, windows = len(ids) - 1, []
    for begin in range(0, n, 5):
        end = min(begin + 5, n)
        windows.append(r.rows(ids[end - 5:end + 1])[0][5 - (end - begin):])
    yield "log-probs@5", torch.cat(windows), ids
    out = r.model.generate(torch.tensor([ids]), max_new_tokens=12, min_new_tokens=12, do_sample=False, pad_token_id=0)
    yield "greedy", out[0, len(ids):].double(), ids
    logits = r.model(torch.tensor([ids])).logits[0]
    yield "hidden@2,3", r.model.transformer(torch.tensor([ids])).last_hidden_state[0, 2:5, 3:7], ids
    yield "logits@1,5", logits[1:3, 5:8], ids
    best = logits[-1].softmax(-1).topk(4)
    yield "top-tokens", best.indices.double(), ids
    yield "top-probabilities", best.values, ids
    yield "top-logits", logits[-1].topk(3).values - logits[-1].mean(), ids
    yield "probability@%d" % ids[0], logits[-1].softmax(-1)[ids[0]].reshape(1), ids
    yield "difference@%d,%d" % (ids[0], ids[1]), (logits[-1, ids[0]] - logits[-1, ids[1]]).reshape(1), ids
    text = "Tom's dog, na\u00efve."
    yield "tokens", torch.tensor(r.ids(text)).double(), list(text.encode())


def circuits(r):
    model = compare_reproduce.lens_model(r.model, torch.float64)
    path = os.path.join(OUT, "greater_than.csv")
    return greater_than.figures(model, r.ids, path, r.model.config.bos_token_id)


def block(out, procedure, values, ids):
    flat = values.flatten().tolist()
    out.write("block\ttests/makers/make_reproduce_fixtures.py\t0\t%s\t%s\t%g\t1e-7\t%s\t%s\n%s\n" % (
        procedure, procedure, 2e-5 if max(flat) < 20 else 2e-4, " ".join(str(v) for v in values.shape), " ".join(str(i) for i in ids),
        " ".join(str(round(v * 1e7)) for v in flat)))


def main():
    os.makedirs(OUT, exist_ok=True)
    r = Reference()
    with open(os.path.join(OUT, "lambada.jsonl"), "w") as out:
        for text in PASSAGES:
            out.write(json.dumps({"text": text}) + "\n")
    with torch.no_grad():
        accuracies, answers = hellaswag(r)
    with open(os.path.join(OUT, "hellaswag.jsonl"), "w") as out:
        for i, ((label, a, b, endings), answer) in enumerate(zip(ITEMS, answers)):
            out.write(json.dumps({"activity_label": label, "ctx_a": a, "ctx_b": b, "ctx": a + " " + b, "endings": endings,
                                  "label": answer if i % 2 else str(answer)}) + "\n")
    with open(os.path.join(OUT, "wiki.txt"), "w") as out:
        out.write(WIKI)
    with open(os.path.join(OUT, "greater_than.csv"), "w") as out:
        out.write("clean,corrupted,label\n" + "".join("%s,%s,%02d\n" % pair for pair in PAIRS))
    found = circuits(r)
    with torch.no_grad(), open(os.path.join(OUT, "figures.txt"), "w") as out:
        out.write("# Figures of small data sets and texts, made by tests/makers/make_reproduce_fixtures.py.\n")
        for name, values in (("lambada", lambada(r)), ("hellaswag", accuracies), ("wikitext-2", wikitext(r))):
            block(out, name, torch.tensor(values, dtype=torch.double), range(len(values)))
        block(out, "greater-than", found[:4], range(4))
        block(out, "greater-than", found[4:], (4, 5))
        for procedure, values, ids in single(r):
            block(out, procedure, values, ids)


if __name__ == "__main__":
    main()
