#!/usr/bin/env python3
"""Writes tests/fixtures/notebooks.txt: what the programs in examples/from_scratch must print.

    make_notebook_vectors.py SEEDS_DIRECTORY > tests/fixtures/notebooks.txt

The numbers are cut out of the five notebooks, as their authors' PyTorch printed them, and paired
with the sentences that announce them in our programs. The notebooks use other weights than the
model that comes with this repository, so its loss and its text are computed here, by PyTorch in
float64 (needs torch and numpy).

    == PROGRAM
    -- SENTENCE            then a print-out that must look the same, digits aside
    -# SENTENCE            then numbers that must follow in this order, whatever is around them
    -=                     then lines that must be there to the letter
"""
import glob
import json
import math
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
STORIES = os.path.join(HERE, "..", "examples", "tiny-stories")
NUMBER = re.compile(r"-inf|-?\d+\.\d*")


def read(folder, number):
    (path,) = glob.glob("%s/%03d_*.txt" % (folder, number))
    return open(path, encoding="utf-8").read()


def prints(text):
    """All printed tensors of a notebook, in order, without their gradients."""
    pattern = r"(?<!torch\.)tensor\(((?:\[.*?\]+)(?=\s*(?:,\s*grad_fn=<\w+>)?\s*\))|[-\d.]+(?=\)))"
    return ["tensor(%s)" % m.group(1) for m in re.finditer(pattern, text, re.S)]


def record(kind, sentence, body):
    print("-%s %s\n%s" % (kind, sentence, body))


def literal(text):
    print("-=\n%s" % text)


def notebook_002(text):
    """Its tensors are cut off where the file stops showing them; what is left counts."""
    cut = re.findall(r"tensor\((\[\[\[.*?)\n\n(?=\S)", text, re.S)
    assert len(cut) == 4
    names = ["1. The average of the past, by loops:", "2. By a triangular matrix:",
             "3. By a softmax of masked zeros:",
             "4. By self-attention, one head of size 16, not scaled:"]
    print("== 002_averaging")
    for name, body in zip(names, cut):
        body = body[:body.rindex(",")]  # the last number may be cut
        record("#", name, " ".join(NUMBER.findall(body)))
    k, k2, q, q2, scores, scaled = re.findall(r"tensor\((\d+\.\d+)\)", text)
    for name, value in (("of k:", k), ("of k2:", k2), ("of q:", q), ("of q2:", q2),
                        ("of their dot products:", scores), ("of the scaled ones:", scaled)):
        record("#", name, value)
    hot, spread = re.findall(r"tensor\((\[[^\[\]]*\])\)", text)[-2:]
    record("#", "Softmax of the unscaled scores is almost one-hot:", " ".join(NUMBER.findall(hot)))
    record("-", "Softmax of the scaled scores is spread:", "tensor(%s)" % spread)


def notebook_003(text, folder):
    t = prints(text)
    print("== 003_scores")
    record("-", 'The scores of "journey": its dot product with every word. Larger is more alike.',
           t[0])
    record("-", "Weights should sum to 1. The simplest way is to divide by the sum:", t[1])
    record("-", "Softmax is positive whatever the scores are: exp(score) over the sum of all "
                "exp(score).", t[3])
    record("-", "exp overflows for scores above 88. attn_softmax takes the largest score off "
                "first:", t[5])
    record("#", "Sum:", "1.0000")
    record("-", "The context vector: all words, mixed by these weights.", t[7])
    record("-", "Every word's score with every word, by two loops:", t[8])
    record("-", "The same by one matrix product, inputs @ inputs.T:", t[9])
    vectors = json.load(open(os.path.join(folder, "seed_vectors.json")))
    softmax = vectors["untrained"]["softmax"]  # the notebook's own print-out is cut off
    record("#", "Softmax of each row:", " ".join("%.4f" % x for row in softmax for x in row))
    weight = text[text.index("tensor([[-0.1833"):]
    record("-", "The weight of nn.Linear(3, 2):", weight[:weight.index("]]") + 2] + ")")
    record("-", "Version 1, matrices [3, 2] of torch.rand, seed 123:", t[-2])
    record("-", "Version 2, nn.Linear without bias, seed 789, so the stored weights are "
                "transposed:", t[-1])


def shapes_of(text):
    """The sizes that a notebook printed, "Keys shape: torch.Size([6, 2])" and the like."""
    return ["[%s]" % s for s in re.findall(r"torch\.Size\(\[([\d, ]+)\]\)", text)]


def notebook_004(text):
    t = prints(text)
    assert len(t) == 37
    print("== 003_scores")  # the notebook begins with the same steps
    record("-", "The rows sum to", t[9])
    record("-", "The context vectors of all words, weights @ inputs:", t[10])
    print("== 004_attention")
    names = {11: 'The query of "journey":', 13: "Its scores with all keys:",
             14: "Divided by sqrt(2) and through softmax:", 15: 'The context vector of "journey":',
             16: "Version 1, for all words:", 17: "Version 2, with nn.Linear, seed 789:",
             18: "Version 2, seed 123:", 19: "Version 1, drawn after it:",
             20: "Version 2 with the weights of version 1:",
             21: "The weights when everybody sees everybody:",
             22: "The past and the present as a triangle of ones:", 23: "Weights times triangle:",
             24: "Divided by what is left of the row sums:",
             25: "Better: scores of -inf, which softmax turns into zeros.",
             26: "Their softmax, with no second division:",
             27: "Dropout of half of 36 ones, seed 123; the others double:",
             28: "The same dropout of the causal weights:", 29: "The batch:",
             30: "Causal attention:", 31: "Two heads:", 32: "The queries:",
             33: "Multi-head attention with an output layer, seed 123:",
             34: "doc, normal random numbers:", 35: "The batch of two:",
             36: "The context vectors of the first document:"}
    for i, name in names.items():
        record("-", name, t[i])
    record("#", "Its score with its own key:", NUMBER.findall(t[12])[0])
    names = ["keys: ", "values: ", "batch: ", None, "their shape: ", "queries: ", "viewed: ",
             "viewed[0]: ", None, "doc: ", "batch: ", "the result: "]
    sizes = shapes_of(text)
    assert len(sizes) == len(names)
    for name, size in zip(names, sizes):
        if name:
            literal(name + size)


def notebook_000(text):
    print("== 000_self_attention")
    one, out, swapped = shapes_of(text)
    literal("test: " + one)
    literal("out: " + out)
    literal("test.transpose(-1, 0): " + swapped)


def notebook_001(text):
    print("== 001_clean_gpt2")
    listed = re.search(r"^(hook_embed .*?)\n\n", text, re.S | re.M).group(1)
    literal("All activation shapes of GPT-2 for the notebook's 35 tokens:\n\n" + listed)
    listed = re.search(r"^(embed\.W_E .*?)\nblocks\.1", text, re.S | re.M).group(1)
    literal("All parameter shapes of GPT-2 (blocks 1 to 11 are like block 0):\n\n" + listed)
    for name in ("d_head", "d_mlp", "d_model", "d_vocab", "n_ctx", "n_heads", "n_layers",
                 "attn_scale", "n_params"):
        value = re.search(r"'%s': ([\d.]+)" % name, text).group(1)
        literal("%s=%s" % (name, value))
    for module in ("LayerNorm", "Embed", "PosEmbed", "Attention", "MLP", "TransformerBlock",
                   "Unembed", "DemoTransformer"):
        after = text[text.index("test(%s, [" % module):]
        shapes = re.findall(r"put shape: torch.Size\((.*?)\)", after)
        literal("%s\nInput shape: %s\nOutput shape: %s" % (module, *shapes[:2]))
    for name in ("LayerNorm", "of zeros", "Embed", "PosEmbed", "Attention", "MLP", "Block",
                 "Unembed", "Whole"):
        literal("%-10s 100.00%% of the values are correct" % name)
    uniform = re.search(r"uniform distribution: (\d\S+)", text).group(1)
    record("#", "Avg cross entropy loss for uniform distribution over GPT-2's 50257:", uniform)
    prompt = re.search(r'test_string = """(.*?)"""', text).group(1)
    sentence = re.search(r'reference_text = "(.*?)"', text).group(1)
    included_model(prompt, sentence)


def included_model(prompt, sentence):
    sys.path.insert(0, os.path.join(STORIES, "training"))
    import bpe
    import reference
    import torch
    weights = reference.weights(STORIES + "/model.safetensors")
    config = json.load(open(STORIES + "/config.json"))
    encoder, vocab = bpe.load(STORIES)
    end = next(i for i in range(config["vocab_size"]) if vocab[i] == bpe.END)
    with torch.no_grad():
        ids = [end] + encoder.encode(sentence)
        log_p = torch.log_softmax(reference.logits(weights, config, ids), -1)
        nll = -log_p[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
        literal("Test set of tokens, %d of them:" % len(ids))
        record("#", "Avg cross entropy loss:", "%.4f" % nll.mean())
        record("#", "Avg cross entropy loss by attn_score:", "%.4f" % nll.mean())
        record("#", "Avg cross entropy loss for uniform distribution:",
               "%.6f" % math.log(config["vocab_size"]))
        record("#", "Avg probability assigned to correct token:", "%.6f" % (-nll).exp().mean())
        ids = [end] + encoder.encode(prompt)
        start = len(ids)
        for _ in range(100):
            ids.append(int(reference.logits(weights, config, ids)[-1].argmax()))
        text = b"".join(b"<|endoftext|>" if vocab[i] == bpe.END else
                        bytes(reference.BYTE[c] for c in vocab[i]) for i in ids[start:])
        literal("Greedy continuation of 100 tokens, with the engine's key/value cache:\n\n" +
                prompt + text.decode("utf-8"))


def main(folder):
    notebook_000(read(folder, 0))
    notebook_001(read(folder, 1))
    notebook_002(read(folder, 2))
    notebook_003(read(folder, 3), folder)
    notebook_004(read(folder, 4))


if __name__ == "__main__":
    main(sys.argv[1])
