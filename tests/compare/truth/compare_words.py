"""tools/surprisal --layers, --vectors and --suite beside the packages that people use for them: the logit lens of
replicaverse 0.0.1, the vectors of minicons 0.3.39 and of transformers, and BLiMP of lm-evaluation-harness 0.4.13, on the
included model's directory.

    python3 tests/compare/truth/compare_words.py BUILD [NUMBER_OF_TEXTS]

Needs these packages, torch and transformers. BUILD has surprisal and tiny-stories.attn.

Where the definitions differ, what is common to both is compared:
  replicaverse puts a blank before the first word and sums the tokens of a word, without the correction for where a word
  ends; its layer L is the stream before block L, so that of our layer L - 1. Here its tokenizer is given no such blank,
  and the correction is computed from its logits.
  minicons has no beginning-of-text token, and finds a word by its tokens, of which it takes the first place. Here:
  --no-bos, and words that a text has once.
  lm-evaluation-harness's task blimp puts a blank before each sentence. Here its template does not (target_delimiter ""),
  and how many decisions the blank changes is printed.
A layer's surprisal may differ by 1e-4 bits, and a number of a vector by 1e-5 of the largest one of its layer, which
float32 explains. All decisions about pairs are the same.
"""
import csv
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
import numpy
import lm_eval
import torch
import yaml
from lm_eval.models.huggingface import HFLM
from minicons import cwe
from replica.core import AnnotationLayer, Span, Stimulus
from replica.feature.surprisal.logit_lens import LogitLensLM
from safetensors.numpy import load_file, save_file

BUILD = sys.argv[1]
N = int(sys.argv[2]) if len(sys.argv) > 2 else 100
MODEL = "examples/tiny-stories"
LAYERS = 4
END = "<|endoftext|>"


def texts():
    """Words of stories, some in capitals, with apostrophes, emoji and other scripts, in random order. The first word has
    as many tokens with a blank as without one, as replicaverse's alignment asks for."""
    words = ("Once upon a time there was little girl named Lily she loved to play outside in the sunshine don't It's "
             "dog, cat. big; red (ball) WOW! café naïve \U0001f600 日本 x1y2 o'clock Tom's happily-ever-after 3.14").split()
    rng = random.Random(60)
    return [" ".join([rng.choice(["Lily", "Tom", "The", "He", "I", "a"])] + rng.choices(words, k=rng.randint(1, 30))) for _ in range(N)]


def in_float32(directory):
    """The model's files, its weights in float32: transformers computes in the type that a file has."""
    for name in "config.json", "vocab.json", "merges.txt":
        shutil.copy(os.path.join(MODEL, name), directory)
    weights = {name: value.astype(numpy.float32) for name, value in load_file(os.path.join(MODEL, "model.safetensors")).items()}
    save_file(weights, os.path.join(directory, "model.safetensors"), {"format": "pt"})
    with open(os.path.join(directory, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump({"tokenizer_class": "GPT2Tokenizer", "bos_token": END, "eos_token": END, "unk_token": END}, file)


def surprisal(items, *options):
    got = subprocess.run([BUILD + "/surprisal", BUILD + "/tiny-stories.attn", "-q", *options], input="\n".join(items),
                         stdout=subprocess.PIPE, text=True, check=True).stdout
    return list(csv.DictReader(io.StringIO(got)))


def spans_of(text):
    """The words between blanks, where each begins and ends."""
    at, spans = 0, []
    for word in text.split():
        at = text.index(word, at)
        spans.append((at, at + len(word)))
        at += len(word)
    return spans


class NoBlank:
    """A tokenizer that leaves out the blank behind the beginning-of-text token."""
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, text, **options):
        return self.tokenizer(text.replace(END + " ", END), **options)

    def __getattr__(self, name):
        return getattr(self.tokenizer, name)


def corrections(lens, ids, at, blank):
    """What is added to a word's bits for where words end, in each layer [word, layer], from the lens's own logits."""
    with torch.no_grad():
        out = lens._model(torch.tensor([ids]), output_hidden_states=True)
        each = []
        for layer in range(1, LAYERS + 1):
            rows = torch.log_softmax(lens._layer_logits(out.hidden_states, layer, out.logits)[0].double(), -1)
            ends = torch.logaddexp(rows[at][:, blank].logsumexp(1), rows[at, ids[0]])
            ends[0] = rows[0][~blank].logsumexp(0)
            each.append((ends[:-1] - ends[1:]) / numpy.log(2))
    return torch.stack(each, 1).numpy()


def compare_layers(directory, items):
    """The largest difference of a word's surprisal in bits, for each layer."""
    lens = LogitLensLM(directory, device="cpu")
    lens._ensure_loaded()
    lens._model.double()
    lens._n_blocks = LAYERS
    lens._tokenizer = NoBlank(lens._tokenizer)
    tokens = lens._tokenizer.convert_ids_to_tokens(range(lens._model.config.vocab_size))
    blank = torch.tensor([token.startswith("\u0120") for token in tokens])
    rows = surprisal(items, "--layers", "all")
    columns = [f"surprisal.{layer}" for layer in range(LAYERS)]
    largest, words = numpy.zeros(LAYERS), 0
    for number, text in enumerate(items):
        mine = [row for row in rows if int(row["text"]) == number + 1]
        spans = spans_of(text)
        outputs = lens(Stimulus(text, {"words": AnnotationLayer("words", [Span(*s) for s in spans], [None] * len(spans))}))
        theirs = [[-output.values[f"logit_lens_log_p_L{layer + 1}"] / numpy.log(2) for layer in range(LAYERS)] for output in outputs]
        ids = lens._tokenizer(END + text)["input_ids"]
        at = numpy.cumsum([0] + [int(row["tokens"]) for row in mine])
        ours = numpy.array([[float(row[column]) for column in columns] for row in mine])
        difference = ours - (numpy.array(theirs) + corrections(lens, ids, at, blank))
        largest = numpy.maximum(largest, numpy.abs(difference).max(0))
        words += len(mine)
    print(f"replicaverse, {words} words: largest difference in bits by layer", " ".join(f"{d:.1e}" for d in largest))
    return largest.max() < 1e-4


def compare_vectors(directory, items, scratch):
    """The largest difference of a number of a vector, as a share of the layer's largest."""
    extractor = cwe.CWE(directory)
    file = os.path.join(scratch, "words.npz")
    hooks = [f"blocks.{layer}.hook_resid_post" for layer in range(LAYERS - 1)]
    rows = surprisal(items, "--no-bos", "--pooling", "mean", "--vectors-file", file, *sum((["--vectors", h] for h in hooks), []))
    vectors = numpy.load(file)
    largest, words = 0.0, 0
    for number, text in enumerate(items):
        mine = [i for i, row in enumerate(rows) if int(row["text"]) == number + 1]
        spans = spans_of(text)
        assert [rows[i]["word"] for i in mine] == [text[a:b] for a, b in spans], text
        once = [k for k, (a, b) in enumerate(spans) if text.split().count(text[a:b]) == 1 and k]
        pieces = [text[a:b] for a, b in spans]
        once = [k for k in once if not any(p != pieces[k] and p.startswith(pieces[k]) for p in pieces)]
        if not once:
            continue
        theirs = extractor.extract_representation([[text, spans[k]] for k in once], layer=list(range(1, LAYERS)))
        for layer, hook in enumerate(hooks):
            ours = vectors[hook][[mine[k] for k in once]]
            largest = max(largest, float(numpy.abs(ours - theirs[layer].numpy()).max() / numpy.abs(vectors[hook]).max()))
        words += len(once)
    print(f"minicons, {words} words, {len(hooks)} layers: largest difference {largest:.1e} of the layer's largest number")
    return largest < 1e-5


def compare_states(directory, scratch):
    """The same by transformers: its hidden states behind a beginning-of-text token, averaged over the tokens that end in a
    word, of texts that no word list has. Several blanks are one to surprisal, as to transformers here."""
    texts = ["Once  upon a   time, there wasn't a cat.", "I can't; won't \U0001f600\U0001f680 fly!", "caf\u00e9\u2014na\u00efve  \u65e5\u672c \u8a9e",
             "She's   \"here\" (now)...", "e\u0301clair  o'clock\u2019s end", "a\tb  c"]
    model = LogitLensLM(directory, device="cpu")
    model._ensure_loaded()
    file, largest, words = os.path.join(scratch, "states.npz"), 0.0, 0
    hooks = [f"blocks.{layer}.hook_resid_post" for layer in range(LAYERS - 1)]
    rows = surprisal(texts, "--vectors-file", file, *sum((["--vectors", hook] for hook in hooks), []))
    vectors, at = numpy.load(file), 0
    for number, text in enumerate(" ".join(text.split()) for text in texts):
        coded = model._tokenizer(END + text, return_offsets_mapping=True)
        with torch.no_grad():
            states = model._model(torch.tensor([coded["input_ids"]]), output_hidden_states=True).hidden_states
        end, token = 0, 1
        for row in [row for row in rows if int(row["text"]) == number + 1]:
            end = text.index(row["word"], end) + len(row["word"])
            first = token
            while token < len(coded["input_ids"]) and coded["offset_mapping"][token][1] - len(END) <= end:
                token += 1
            for layer, hook in enumerate(hooks):
                difference = vectors[hook][at] - states[layer + 1][0, first:token].mean(0).numpy()
                largest = max(largest, float(numpy.abs(difference).max() / numpy.abs(vectors[hook]).max()))
            at, words = at + 1, words + 1
    print(f"transformers, {words} words, {len(hooks)} layers: largest difference {largest:.1e} of the layer's largest number")
    return largest < 1e-5 and at == len(rows)


def compare_pairs(directory, items, scratch):
    """Which of two sentences is likelier: a text, and the same with two neighbours exchanged."""
    rng, pairs = random.Random(61), os.path.join(scratch, "pairs.jsonl")
    rows = []
    for words in map(str.split, items):
        at = rng.randrange(len(words) - 1)
        other = [*words[:at], words[at + 1], words[at], *words[at + 2:]]
        if other != words:
            rows.append({"sentence_good": " ".join(words), "sentence_bad": " ".join(other)})
    with open(pairs, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    with open(os.path.join(os.path.dirname(lm_eval.__file__), "tasks", "blimp", "_template_yaml"), encoding="utf-8") as file:
        template = yaml.safe_load(file)
    template.update(dataset_path="json", dataset_kwargs={"data_files": {"train": pairs}})
    tasks = [{**template, "task": "plain", "target_delimiter": ""}, {**template, "task": "blank"}]
    samples = lm_eval.simple_evaluate(HFLM(directory, device="cpu", dtype="float32"), tasks=tasks, log_samples=True,
                                      bootstrap_iters=0, batch_size=1)["samples"]
    theirs, blank = ([sample["acc"] for sample in sorted(samples[task["task"]], key=lambda sample: sample["doc_id"])] for task in tasks)
    command = [BUILD + "/surprisal", BUILD + "/tiny-stories.attn", "--suite", pairs, "--by", "region", "-q"]
    ours = list(csv.DictReader(io.StringIO(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)))
    same = [row["decision"] != "wrong" for row in ours] == [acc == 1 for acc in theirs]
    print(f"lm-evaluation-harness, {len(rows)} pairs, {sum(theirs):.0f} right: {'the same decisions' if same else 'OTHER DECISIONS'}; "
          f"its blank changes {sum(a != b for a, b in zip(theirs, blank))}")
    return same and len(ours) == len(rows)


def main():
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as scratch:
        in_float32(directory)
        items = texts()
        right = [compare_layers(directory, items), compare_vectors(directory, items, scratch), compare_states(directory, scratch),
                 compare_pairs(directory, items, scratch)]
    sys.exit(not all(right))


main()
