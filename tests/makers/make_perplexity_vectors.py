"""Makes perplexity_vectors.h: what PyTorch's GPT-2 in float64 (transformers) finds for the included
model, by the two recipes of tools/perplexity.c, which are written out here one token at a time.

    python3 tests/makers/make_perplexity_vectors.py >tests/fixtures/perplexity_vectors.h
"""
import os
import torch
from transformers import GPT2LMHeadModel, GPT2TokenizerFast

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = os.path.join(TESTS, "..", "examples", "tiny-stories")
CASES = [("LICENSE", "strided", 256, 128), ("LICENSE", "strided", 100, 7),
         ("LICENSE", "strided", 64, 64), ("LICENSE", "halves", 64, 64),
         ("LICENSE", "strided", 256, 64),
         ("LICENSE", "halves", 256, 256)]


def losses(model, window):
    """-log p of window[1:], each after all before it."""
    logits = model(torch.tensor([window])).logits[0, :-1]
    return -torch.log_softmax(logits, -1)[torch.arange(len(window) - 1), window[1:]]


def strided(model, ids, context, stride):
    found, seen, begin = [], 0, 0
    while seen < len(ids):
        window = ids[begin:begin + context]
        nll = losses(model, window)
        found += [nll[j - begin - 1] for j in range(max(seen, begin + 1), begin + len(window))]
        seen = begin + len(window)
        begin += stride
    return found


def halves(model, ids, context, stride):
    found = []
    for begin in range(0, len(ids) - context + 1, context):
        found += list(losses(model, ids[begin:begin + context])[context // 2:])
    return found


def main():
    model = GPT2LMHeadModel.from_pretrained(MODEL).double().eval()
    tokenizer = GPT2TokenizerFast(os.path.join(MODEL, "vocab.json"), os.path.join(MODEL, "merges.txt"))
    print("/* Made by make_perplexity_vectors.py: change that, not this. */")
    print("static const struct {\n    const char *file, *recipe;\n    int context, stride, n_tokens;\n"
          "    double nll, error; /* mean, and its standard error */\n} perplexity_vectors[] = {")
    for file, recipe, context, stride in CASES:
        with open(os.path.join(TESTS, "..", file), encoding="utf-8") as f:
            ids = tokenizer(f.read())["input_ids"]
        with torch.no_grad():
            nll = torch.stack({"strided": strided, "halves": halves}[recipe](model, ids, context, stride))
        print('    {"%s", "%s", %d, %d, %d, %.9f, %.9f},' % (
            file, recipe, context, stride, len(nll), nll.mean(), nll.std() / len(nll) ** 0.5))
    print("};")


if __name__ == "__main__":
    main()
