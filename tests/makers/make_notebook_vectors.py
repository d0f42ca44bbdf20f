#!/usr/bin/env python3
"""Writes tests/fixtures/notebooks.txt: what the programs in examples/from_scratch must print.

    make_notebook_vectors.py SEEDS_DIRECTORY > tests/fixtures/notebooks.txt

The numbers are cut out of the five notebooks, as their authors' PyTorch printed them, and paired
with the sentences that announce them in our programs. Where a print-out is cut off, or our programs
show more than the notebooks, seed_vectors.json in the same directory has what PyTorch gives. The
notebooks use other weights than the model that comes with this repository, so its loss and its text
are computed here, by PyTorch in float64 (needs torch and numpy).

At the end every line of numbers that a notebook printed is looked for in what was written. One that
is neither there nor among EXCEPTIONS stops the script, so that none is forgotten.

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

from float64 import read_safetensors

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STORIES = os.path.join(TESTS, "..", "examples", "tiny-stories")
GOLDEN = os.path.join(TESTS, "golden", "plain")
NUMBER = re.compile(r"-inf|-?\d+\.\d*")

# What the programs cannot print: how it begins in the notebook, and why.
EXCEPTIONS = {
    0: {"Parameter containing:": "drawn without a seed"},
    1: {"'attn_scores_soft_cap'": "a setting of other architectures",
        "'output_logits_soft_cap'": "a setting of other architectures",
        "'n_devices'": "about the notebook's machine",
        "['<|endoftext|>', 'I', ' am'": "needs GPT-2's vocabulary",
        "Avg cross entropy loss: 4.5647": "needs GPT-2's weights",
        "Avg probability assigned to correct token: 0.087910": "needs GPT-2's weights",
        "0%|": "a progress bar"},
    2: {"[CUDA]": "a time of the notebook's machine",
        "time taken": "a time of the notebook's machine"},
    3: {},
    4: {}}

# How a paragraph begins that a cell printed, as opposed to its code and to the prose between cells
PRINTED = re.compile(
    r"tensor\(|\(tensor|torch\.Size|Parameter containing|Linear\(|Raw attention|Attention weights|"
    r"Context|Softmax|PyTorch softmax|Keys|Batch|Doc|\[CUDA\]|time taken|hook_embed|embed\.W_E|"
    r"HookedT|Config\(|All tests|Input shape|100\.00%|Avg cross|Test set of tokens:\n\[|\('The Total|"
    r"  0%| *\[\[| *\.\.\.")

written = []  # the bodies of the running program's records


def read(folder, number):
    (path,) = glob.glob("%s/%03d_*.txt" % (folder, number))
    return open(path, encoding="utf-8").read()


def prints(text):
    """All printed tensors of a notebook, in order, without their gradients."""
    pattern = r"(?<!torch\.)tensor\(((?:\[.*?\]+)(?=\s*(?:,\s*grad_fn=<\w+>)?\s*\))|[-\d.]+(?=\)))"
    return ["tensor(%s)" % m.group(1) for m in re.finditer(pattern, text, re.S)]


def begin(program):
    written.clear()
    print("== " + program)


def record(kind, sentence, body):
    print("-%s %s\n%s" % (kind, sentence, body))
    written.append(body)


def literal(text):
    print("-=\n%s" % text)
    written.append(text)


def decimals(numbers, places=4):
    return " ".join("%.*f" % (places, x) for x in numbers)


def numbers_of(text):
    """All numbers, whole ones too, but not the digits of names like gpt2, ln1 and blocks.0."""
    return re.findall(r"(?<![\w.])-?(?:inf|\d+(?:\.\d*)?(?:e-\d+)?)(?![\w.])", text)


def printed_lines(text):
    """The lines that the notebook's cells printed, without a number that is cut off at the end."""
    for cell in re.split(r"^In \[[\w ]+\]:\n", text, flags=re.M)[1:]:
        parts = re.split(r"\n\n+", cell.strip("\n"))
        start = next((i for i, p in enumerate(parts) if i and PRINTED.match(p)), len(parts))
        for part in parts[start:]:
            if PRINTED.match(part):
                lines = part.split("\n")
                if part.count("[") > part.count("]"):
                    lines[-1] = re.sub(r"[-\d.]+\s*$", "", lines[-1])
                for line in lines:
                    for piece in re.split(r"(?<=\)), (?=tensor)", line):
                        yield part, piece.strip()


def check_nothing_forgotten(number, text):
    """Each line's numbers must stand side by side in one record."""
    have = [" %s " % " ".join(numbers_of(body)) for body in written]
    n_found = n_excepted = 0
    for part, line in printed_lines(text):
        wanted = " %s " % " ".join(numbers_of(line.replace("[0]", "")))  # an index, no output
        if not wanted.strip():
            continue
        if any(part.startswith(e) or line.startswith(e) for e in EXCEPTIONS[number]):
            n_excepted += 1
        elif any(wanted in body for body in have):
            n_found += 1
        else:
            sys.exit("notebook %03d prints this, our program does not: %s" % (number, line))
    print("notebook %03d: %d lines of numbers, and %d exceptions" % (number, n_found, n_excepted),
          file=sys.stderr)


def notebook_002(text, vectors):
    """Its tensors are cut off where the file stops showing them; what is left counts."""
    cut = re.findall(r"tensor\((\[\[\[.*?)\n\n(?=\S)", text, re.S)
    assert len(cut) == 4
    names = ["1. The average of the past, by loops:", "2. By a triangular matrix:",
             "3. By a softmax of masked zeros:",
             "4. By self-attention, one head of size 16, not scaled:"]
    begin("001_averaging")
    literal("x: " + shapes_of(text)[0])
    v = vectors["seed002_seed74"]
    record("#", "It begins with", decimals(v["x_0_0_first8"]))
    record("#", "and ends with", decimals(v["x_31_255_last8"]))
    record("#", "x.sum() of all its numbers, to compare with PyTorch:", decimals([v["x_sum"]], 2))
    record("#", "The first eight averages:", decimals(v["xbow_0_255_first8"]))
    record("#", "and the last eight:", decimals(v["xbow_0_255_last8"]))
    record("#", "The sum() of all averages, to compare with PyTorch:", decimals([v["xbow_sum"]], 2))
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


def six_words(t, naive_sum, softmax):
    """The steps with which 003 and 004 begin, t: the print-outs that both have."""
    record("-", 'The scores of "journey": its dot product with every word. Larger is more alike.',
           t[0])
    record("-", "Weights should sum to 1. The simplest way is to divide by the sum:", t[1])
    record("#", "Their sum, in which one can see the rounding:", naive_sum)
    record("-", "Softmax is positive whatever the scores are: exp(score) over the sum of all "
                "exp(score).", t[2])
    record("-", "exp overflows for scores above 88. attn_softmax takes the largest score off "
                "first:", t[3])
    record("-", "The context vector: all words, mixed by these weights.", t[4])
    record("-", "Every word's score with every word, by two loops:", t[5])
    record("-", "The same by one matrix product, inputs @ inputs.T:", t[6])
    # 003's print-out of it is cut off, and 004 has none
    record("#", "Softmax of each row:", " ".join(decimals(row) for row in softmax))


def notebook_003(text, vectors):
    t = prints(text)
    begin("000_scores")
    sums = [NUMBER.findall(t[i])[0] for i in (2, 4, 6)]
    six_words([t[i] for i in (0, 1, 3, 5, 7, 8, 9)], sums[0], vectors["untrained"]["softmax"])
    record("#", "Their sum:", sums[1])
    record("#", "Their sum, without that danger:", sums[2])
    context = vectors["untrained"]["context"]  # cut off too
    record("#", "The context vectors of all words, weights @ inputs:",
           " ".join(decimals(row) for row in context))
    literal(re.search(r"^Linear\(.*\)$", text, re.M).group())
    weight = text[text.index("tensor([[-0.1833"):]
    record("-", "The weight of nn.Linear(3, 2):", weight[:weight.index("]]") + 2] + ")")
    record("-", "Version 1, matrices [3, 2] of torch.rand, seed 123:", t[-2])
    record("-", "Version 2, nn.Linear without bias, seed 789, so the stored weights are "
                "transposed:", t[-1])


def shapes_of(text):
    """The sizes that a notebook printed, "Keys shape: torch.Size([6, 2])" and the like."""
    return ["[%s]" % s for s in re.findall(r"torch\.Size\(\[([\d, ]+)\]\)", text)]


def notebook_004(text, vectors):
    t = prints(text)
    assert len(t) == 37
    begin("003_multi_head")
    sums = re.findall(r"^Sum.*: ([\d.]+)$", text, re.M)
    six_words([t[i] for i in (0, 2, 3, 4, 5, 6, 7)], sums[0], vectors["untrained"]["softmax"])
    record("#", "Their sum:", sums[1])
    record("#", "Their sum, without that danger:", sums[2])
    record("-", "The rows sum to", t[9])
    record("-", "The context vectors of all words, weights @ inputs:", t[10])
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
    names = ["keys: ", "values: ", "batch: ", "Context vectors shape: ", "their shape: ",
             "queries: ", "viewed: ", "viewed[0]: ", "Context matrix shape: ", "doc: ", "batch: ",
             "the result: "]
    sizes = shapes_of(text)
    assert len(sizes) == len(names)
    for name, size in zip(names, sizes):
        literal(name + size)
    literal(re.search(r"^Batch size: \d+\nNum tokens: \d+\nInput token .*: \d+$", text,
                      re.M).group())


def notebook_000(text):
    begin("002_self_attention")
    one, out, swapped = shapes_of(text)
    literal("test: " + one)
    literal("out: " + out)
    literal("test.transpose(-1, 0): " + swapped)


def tested(module, shapes, want=None):
    """What a test of a module prints; `want`: the shape of the reference's output."""
    text = "%s\nInput shape: %s\nOutput shape: %s" % (module, *shapes)
    if want:
        text += "\nReference output shape: %s\n100.00%% of the values are correct" % want
    literal(text)


def golden_shapes(modules):
    """Input and output of each module in the model of tests/golden/plain."""
    config = json.load(open(GOLDEN + "/config.json"))
    n = len(read_safetensors(GOLDEN + "/reference.safetensors")["tokens"])
    ids, stream = "[1, %d]" % n, "[1, %d, %d]" % (n, config["n_embd"])
    logits = "[1, %d, %d]" % (n, config["vocab_size"])
    for module in modules:
        yield (ids if module in ("Embed", "PosEmbed", "DemoTransformer") else stream,
               logits if module in ("Unembed", "DemoTransformer") else stream)


def notebook_001(text):
    begin("004_clean_gpt2")
    listed = re.search(r"^(hook_embed .*?)\n\n", text, re.S | re.M).group(1)
    literal("All activation shapes of GPT-2 for the notebook's 35 tokens:\n\n" + listed)
    listed = re.search(r"^embed\.W_E .*?\n\n", text, re.S | re.M).group()
    literal("All parameter shapes of GPT-2:\n\n" + listed[:listed.rindex(")") + 1])  # it is cut off
    literal(re.sub(r" +debug=True,\n", "", re.search(r"^Config\(.*?\)$", text, re.S | re.M).group()))
    for name, sentence in (("attn_scale", "attn_scale = sqrt(d_head) ="),
                           ("initializer_range", "initializer_range = 0.8 / sqrt(d_model) ="),
                           ("n_params", "n_params =")):
        record("#", sentence, re.search(r"'%s': ([\d.]+)" % name, text).group(1))
    modules = ("LayerNorm", "LayerNorm of zeros", "Embed", "PosEmbed", "Attention", "MLP",
               "TransformerBlock", "Unembed", "DemoTransformer")
    size = r" shape: torch.Size\((.*?)\) ?\n"
    shapes = re.findall("^Input" + size + "Output" + size + "\n", text, re.M)
    for module, pair in zip((m for m in modules if "zeros" not in m), shapes):
        tested(module, pair)
    literal(re.search("^All tests in .*$", text, re.M).group())
    shapes = re.findall("^Input" + size + "Output" + size + "Reference output" + size, text, re.M)
    assert len(shapes) == len(modules)
    for module, (source, out, want) in zip(modules, shapes):
        tested(module, (source, out), want)
    for module, (source, out) in zip(modules, golden_shapes(modules)):
        tested(module, (source, out), out)
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
    vectors = json.load(open(os.path.join(folder, "seed_vectors.json")))
    programs = (notebook_000, notebook_001, lambda text: notebook_002(text, vectors),
                lambda text: notebook_003(text, vectors), lambda text: notebook_004(text, vectors))
    for number, program in enumerate(programs):
        text = read(folder, number)
        program(text)
        check_nothing_forgotten(number, text)


if __name__ == "__main__":
    main(sys.argv[1])
