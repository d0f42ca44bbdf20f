"""Makes fixtures/score/lines.jsonl and answers.jsonl: lines for tools/score/score.c, and their answers by
PyTorch's GPT-2 in float64 (transformers) with the included model.

    python3 tests/makers/make_score_vectors.py
"""
import json
import os
import torch
from transformers import GPT2LMHeadModel, GPT2TokenizerFast

from vocabulary import byte_of_character

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = os.path.join(TESTS, "..", "examples", "tiny-stories")
BOS = 2047
LONG = ("Once upon a time, there was a little girl named Lily. She loved to play outside in the sunshine. "
        "One day, Lily went for a walk in the park. ") * 6

LINES = [
    {"id": 1, "text": "Once upon a time, there was a cat who could not sleep."},
    {"id": "bos", "text": "Once upon a time", "bos": True},
    {"id": 2.5, "context": "Once upon a", "text": " time"},
    {"id": "a \"quoted\" \\ name\n\u00e9\U0001f600", "context": "The dog said that", "text": " he was sad and hungry."},
    {"context_ids": [506, 511], "ids": [258, 433, 11, 400]},
    {"id": "long", "text": LONG},
    {"id": "long after a context", "context": LONG, "text": " She saw a big lake."},
    {"id": "bytes", "text": "caf\u00e9 \u65e5\u672c \U0001f600 \u0000\u0007 \t\r\n"},
    {"id": "special", "text": "The end.<|endoftext|>Once", "special": True},
    {"id": "letters", "text": "The end.<|endoftext|>Once"},
    {"id": "one token", "text": "O"},
    {"task": "score", "id": "surrogates", "text": "\U0001f600\U0001f601"},
    {"task": "generate", "id": 3, "text": "Once upon a time", "max_tokens": 60},
    {"task": "generate", "text": "The little dog", "max_tokens": 1},
    {"task": "generate", "text": "Tom and Sue went to the", "max_tokens": 40, "stop": "."},
    {"task": "generate", "text": "Tom and Sue went to the", "max_tokens": 40, "stop": ["zebra", " the", "ay"]},
    {"task": "generate", "id": "full", "text": LONG, "max_tokens": 1000, "ignore_eos": True},
    {"task": "embed", "text": "A big red bird"},
    {"task": "embed", "text": "A big red bird", "pooling": "mean"},
    {"task": "embed", "text": LONG, "pooling": "mean", "activation": "blocks.1.hook_resid_mid"},
    {"task": "embed", "text": "A big red bird", "activation": "blocks.0.hook_resid_pre", "pooling": "last"},
    {"task": "embed", "text": "A big red bird", "activation": "ln_final.hook_normalized.post", "bos": True},
    {"task": "top-k", "text": "Once upon a", "k": 3},
    {"task": "top-k", "text": "Mom said that the ball", "positions": "all"},
    {"task": "top-k", "ids": [506, 511, 258], "k": 1},
    {"task": "logit-lens", "text": "Once upon a", "k": 2},
    {"task": "logit-lens", "text": "The sun was", "positions": "all", "k": 1},
    {"task": "tokens", "text": " Once<|endoftext|> \u00e9", "special": True},
    {"task": "tokens", "text": ""},
]


class Reference:
    def __init__(self):
        self.model = GPT2LMHeadModel.from_pretrained(MODEL, attn_implementation="eager").double().eval()
        self.tokenizer = GPT2TokenizerFast(os.path.join(MODEL, "vocab.json"), os.path.join(MODEL, "merges.txt"))
        self.bytes_of = byte_of_character()

    def encode(self, text, special):
        parts = text.split("<|endoftext|>") if special else [text]
        ids = []
        for i, part in enumerate(parts):
            ids += ([BOS] if i else []) + self.tokenizer(part, split_special_tokens=True)["input_ids"]
        return ids

    def bytes(self, ids):
        text = b""
        for token in self.tokenizer.convert_ids_to_tokens(ids):
            text += token.encode() if token == "<|endoftext|>" else bytes(self.bytes_of[c] for c in token)
        return text

    def text(self, ids):
        return self.bytes(ids).decode("utf-8", "replace")

    def streams(self, ids):
        """By TransformerLens's names, each [T, C], and the logits [T, V]."""
        found, hooks = {}, []
        blocks = self.model.transformer.h
        for i, block in enumerate(blocks):
            hooks.append(block.register_forward_pre_hook(
                lambda m, x, i=i: found.__setitem__("blocks.%d.hook_resid_pre" % i, x[0][0])))
            hooks.append(block.ln_2.register_forward_pre_hook(
                lambda m, x, i=i: found.__setitem__("blocks.%d.hook_resid_mid" % i, x[0][0])))
        final = self.model.transformer.ln_f
        last = "blocks.%d.hook_resid_post" % (len(blocks) - 1)
        hooks.append(final.register_forward_pre_hook(lambda m, x: found.__setitem__(last, x[0][0])))
        logits = self.model(torch.tensor([ids])).logits[0]
        for hook in hooks:
            hook.remove()
        x = found[last]
        normalized = (x - x.mean(-1, keepdim=True)) / torch.sqrt(
            x.var(-1, unbiased=False, keepdim=True) + final.eps)
        found["ln_final.hook_normalized.post"] = normalized * final.weight + final.bias
        return found, logits

    def score(self, line, context, ids):
        logits = self.model(torch.tensor([(context + ids)[:-1]])).logits[0] if len(context + ids) > 1 else None
        first = 0 if context else 1
        logprobs, ranks = [None] * first, [None] * first
        for i in range(first, len(ids)):
            row = logits[len(context) + i - 1]
            logprobs.append(float(torch.log_softmax(row, -1)[ids[i]]))
            ranks.append(int((row > row[ids[i]]).sum()))
        return {"logprob": sum(logprobs[first:]), "greedy": not any(ranks[first:]), "ids": ids,
                "tokens": [self.text([i]) for i in ids], "logprobs": logprobs, "ranks": ranks}

    def generate(self, line, context, ids):
        stops = line.get("stop", [])
        stops = [stops] if isinstance(stops, str) else stops
        made, n_ctx = [], self.model.config.n_positions
        while True:
            next_id = int(self.model(torch.tensor([ids + made])).logits[0, -1].argmax())
            if next_id == BOS and not line.get("ignore_eos"):
                reason = "end of text"
                break
            before, made = self.text(made), made + [next_id]
            text = self.text(made)
            ends = [e for e in range(len(before) + 1, len(text) + 1) if any(text[:e].endswith(s) for s in stops)]
            if ends:
                cut = text[:ends[0]]
                return {"text": cut[:-max(len(s) for s in stops if cut.endswith(s))], "ids": made,
                        "reason": "stop string"}
            if len(made) == line["max_tokens"]:
                reason = "token count"
                break
            if len(ids) + len(made) > n_ctx:
                reason = "context full"
                break
        return {"text": self.text(made), "ids": made, "reason": reason}

    def embed(self, line, context, ids):
        rows = self.streams(context + ids)[0][line.get("activation", "blocks.3.hook_resid_post")]
        return {"embedding": [float(x) for x in (rows.mean(0) if line.get("pooling") == "mean" else rows[-1])]}

    def likeliest(self, rows, k):
        found = []
        for row in torch.log_softmax(rows, -1):
            values, indices = row.topk(k)
            found.append([{"id": int(i), "token": self.text([int(i)]), "logprob": float(v)}
                          for v, i in zip(values, indices)])
        return found

    def positions(self, line, n):
        return list(range(n)) if line.get("positions") == "all" else [n - 1]

    def top(self, line, context, ids):
        at = self.positions(line, len(context + ids))
        return {"positions": at, "top": self.likeliest(self.streams(context + ids)[1][at], line.get("k", 5))}

    def lens(self, line, context, ids):
        at = self.positions(line, len(context + ids))
        found = self.streams(context + ids)[0]
        names = ["blocks.%d.hook_resid_pre" % i for i in range(4)] + ["blocks.3.hook_resid_post"]
        unembed = lambda x: self.model.lm_head(self.model.transformer.ln_f(x[at]))
        return {"positions": at, "layers": ["0_pre", "1_pre", "2_pre", "3_pre", "final_post"],
                "top": [self.likeliest(unembed(found[n]), line.get("k", 5)) for n in names]}

    def tokens(self, line, context, ids):
        return {"ids": context + ids, "tokens": [self.text([i]) for i in context + ids]}

    def answer(self, line):
        special, task = line.get("special", False), line.get("task", "score")
        ids = line["ids"] if "ids" in line else self.encode(line["text"], special)
        context = [BOS] if line.get("bos") else []
        context += line.get("context_ids", []) + self.encode(line.get("context", ""), special)
        answers = {"score": self.score, "generate": self.generate, "embed": self.embed, "top-k": self.top,
                   "logit-lens": self.lens, "tokens": self.tokens}
        found = {"id": line["id"]} if "id" in line else {}
        found["task"] = task
        found.update(answers[task](line, context, ids))
        return found


def main():
    torch.manual_seed(0)
    reference = Reference()
    directory = os.path.join(TESTS, "fixtures", "score")
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "lines.jsonl"), "w", encoding="utf-8") as lines, \
            open(os.path.join(directory, "answers.jsonl"), "w", encoding="utf-8") as answers, torch.no_grad():
        for i, line in enumerate(LINES):
            # every other line in ASCII, so that escapes are read, too
            lines.write(json.dumps(line, ensure_ascii=i % 2 == 0) + "\n")
            answers.write(json.dumps(reference.answer(line), default=float) + "\n")


if __name__ == "__main__":
    main()
