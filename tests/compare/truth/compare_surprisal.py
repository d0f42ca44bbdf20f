"""tools/surprisal beside the packages wordsprobability 0.17 and minicons 0.3.39 (bow_correction) in float64 on the
same weights, 1,000 texts each: the included model; random weights, and the included induction model's blocks, with
GPT-2's own vocabulary.

    ATTN_TEST_DATA=DIRECTORY python3 tests/compare/truth/compare_surprisal.py BUILD [NUMBER_OF_TEXTS]

DIRECTORY has gpt2-tokenizer/vocab.json and merges.txt in it; without it only the included model is tried. Needs torch,
transformers and pandas besides the two packages.

The differences that the packages have by their definition are computed from the same logits and taken out:
  wordsprobability counts the end-of-text token twice in the divisor of a text's first word;
  minicons has no divisor for the first word, and does not count the end of the text as the end of a word.

What remains is taken apart, for each word:
  formula     float64 logits through the formula of surprisal, here in float64, beside the packages: 1e-9 bits at most;
  program     what surprisal prints beside the same formula on its own f32 logits: 1e-6 bits at most, which are the six
              decimals;
  logits      what the rounding of the f32 logits makes of a word, which no program can remove behind them. For its
              size there is PyTorch in f32, and float64 logits that are only stored as f32.
A word may differ from the packages by 1e-5 bits and what the logits make of it, no more; and the logits by no more than
half again as much as PyTorch's, in the root mean square.

BUILD has attn-convert, surprisal and libattn.so.
"""
import contextlib
import csv
import glob
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy
import pandas
import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel, GPT2TokenizerFast
from minicons import scorer
from wordsprobability import main as wordsprobability
from wordsprobability.models.bow_lm import GPT2BaseModel

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "examples", "python"))
os.environ.setdefault("ATTN_LIBRARY", os.path.join(os.path.abspath(sys.argv[1]), "libattn.so"))
import attn

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
END = "<|endoftext|>"
LOG_OF_2 = torch.log(torch.tensor(2.0, dtype=torch.float64))


class Words(GPT2BaseModel):
    """wordsprobability's model, of a directory and in float64."""
    def __init__(self, model, tokenizer):
        self.given = model, tokenizer
        super().__init__()

    def _initialise_model(self):
        return self.given


def texts(n):
    """Sentences of the project's pages, and sentences of random words: held out from any training."""
    prose = []
    for path in sorted(glob.glob(os.path.join(ROOT, "*.md")) + glob.glob(os.path.join(ROOT, "*", "*.md")) +
                       glob.glob(os.path.join(ROOT, "*", "*", "*.md"))):
        with open(path, encoding="utf-8") as file:
            prose += [" ".join(s.split()) for s in re.split(r"(?<=[.:;])\s", file.read())]
    prose = sorted({s for s in prose if 3 <= len(s.split()) <= 40 and END not in s and "\u00a0" not in s})
    rng = random.Random(1)
    words = sorted({w for s in prose for w in s.split()}) + ["caf\u00e9,", "na\u00efve", "\U0001f600", "\u65e5\u672c", "Dr.", "x" * 40]
    made = [" ".join(rng.choice(words) for _ in range(rng.randint(1, 15))) for _ in range(n - n // 2)]
    return rng.sample(prose, min(n // 2, len(prose))) + made


def random_model(directory, data, blocks_of=None):
    """Weights for GPT-2's vocabulary: random ones, or those of a model with a random embedding. Logits are about
    as wide as a trained model's."""
    torch.manual_seed(1)
    if blocks_of:
        model = GPT2LMHeadModel(GPT2Config.from_pretrained(blocks_of))
        model.transformer.load_state_dict(load_file(os.path.join(blocks_of, "model.safetensors")), strict=False)
        spread = model.transformer.wte.weight.std().item()
        model.resize_token_embeddings(50257)
        model.transformer.wte.weight.data.normal_(0, spread)
        model.config.vocab_size = 50257
        for config in model.config, model.generation_config:
            config.bos_token_id = config.eos_token_id = 50256
    else:
        model = GPT2LMHeadModel(GPT2Config(n_embd=96, n_layer=3, n_head=4, initializer_range=0.2))
    model.save_pretrained(directory)
    for name in "vocab.json", "merges.txt":
        shutil.copy(os.path.join(data, "gpt2-tokenizer", name), directory)
    with open(os.path.join(directory, "tokenizer_config.json"), "w") as file:
        json.dump({"bos_token": END, "eos_token": END, "unk_token": END, "model_max_length": 1024}, file)


def by_surprisal(build, attn, items):
    got = subprocess.run([build + "/surprisal", attn, "-q"], input="\n".join(items), stdout=subprocess.PIPE, text=True,
                         check=True).stdout
    rows = [[] for _ in items]
    for row in csv.DictReader(io.StringIO(got)):
        rows[int(row["text"]) - 1].append(row)
    return rows


def by_wordsprobability(words, text):
    results, _ = words.get_predictions(text)
    frame = pandas.DataFrame(results)
    frame["text_id"] = 0
    frame = wordsprobability.agg_surprisal_per_word(frame, "gpt2-small", return_buggy_surprisals=True)
    return torch.tensor(frame["surprisal"].to_numpy(float)), torch.tensor(frame["surprisal_buggy"].to_numpy(float))


def by_minicons(mini, text):
    scores = mini.word_score_tokenized([text], str.split, bow_correction=True, bos_token=True, surprisal=True)[0]
    return torch.tensor([score for _, score in scores], dtype=torch.float64)


def formula(logits, ids, at, blank, end):
    """Bits of each word, corrected and not, from the logits behind each token. at: where words begin and end."""
    rows = torch.log_softmax(logits.double(), -1)
    losses = -rows[:-1].gather(1, ids[1:, None])[:, 0]
    ends = torch.logaddexp(rows[at][:, blank].logsumexp(1), rows[at, end])
    ends[0] = rows[0][~blank].logsumexp(0)
    plain = torch.stack([losses[a:b].sum() for a, b in zip(at, at[1:])])
    return (plain + ends[:-1] - ends[1:]) / LOG_OF_2, plain / LOG_OF_2


def differences(logits, at, blank, end):
    """What each package's definition adds to a word, in bits."""
    rows = torch.log_softmax(logits, -1)
    ends = rows[at][:, blank].logsumexp(1)
    whole = torch.logaddexp(ends, rows[at, end])
    divisor = rows[0][~blank].logsumexp(0)
    of_words = torch.zeros(len(at) - 1, dtype=torch.float64)
    of_words[0] = torch.logaddexp(divisor, rows[0][end]) - divisor
    of_mini = (whole - ends)[1:]
    of_mini[1:] -= (whole - ends)[1:-1]
    of_mini[0] -= divisor
    return of_words / LOG_OF_2, of_mini / LOG_OF_2


class Differences:
    """Largest and mean differences by name."""
    def __init__(self):
        self.all = {}

    def add(self, name, difference):
        self.all.setdefault(name, []).append(difference.abs())

    def most(self, name):
        return torch.cat(self.all[name]).max().item()

    def text(self, *names):
        each = []
        for name in names:
            x = torch.cat(self.all[name])
            each.append("%s %.1e (root mean square %.1e)" % (name, x.max().item(), x.square().mean().sqrt().item()))
        return ", ".join(each)

    def rms(self, name):
        return torch.cat(self.all[name]).square().mean().sqrt().item()


def compare(build, name, directory, items):
    path = os.path.join(tempfile.gettempdir(), "surprisal-%d.attn" % os.getpid())
    subprocess.run([build + "/attn-convert", "-q", directory, path], check=True, stderr=subprocess.DEVNULL)
    rows = by_surprisal(build, path, items)
    engine = attn.Model(path, threads=1)
    os.remove(path)
    single = GPT2LMHeadModel.from_pretrained(directory, attn_implementation="eager").eval()
    model = GPT2LMHeadModel.from_pretrained(directory, attn_implementation="eager").double().eval()
    tokenizer = GPT2TokenizerFast.from_pretrained(directory, bos_token=END, eos_token=END, pad_token=END)
    end = tokenizer.eos_token_id
    blank = torch.tensor([t.startswith("\u0120") for t in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))])
    words = Words(model, tokenizer)
    mini = scorer.IncrementalLMScorer(model, "cpu", tokenizer=tokenizer)
    found, beyond, n_words = Differences(), 0.0, 0
    for text, mine in zip(items, rows):
        got, raw = (torch.tensor([float(row[column]) for row in mine], dtype=torch.float64)
                    for column in ("surprisal", "uncorrected"))
        fixed, buggy = (x / LOG_OF_2 for x in by_wordsprobability(words, text))
        corrected = by_minicons(mini, text) / LOG_OF_2
        at = numpy.cumsum([0] + [int(row["tokens"]) for row in mine])
        ids = torch.tensor([end] + tokenizer(text)["input_ids"])
        with torch.no_grad():
            exact, torchs = model(ids[None]).logits[0], single(ids[None]).logits[0]
        ours = torch.tensor(engine(ids.numpy()))
        of_words, of_mini = differences(exact, at, blank, end)
        right, right_raw = formula(exact, ids, at, blank, end)
        for package, value in ("wordsprobability", fixed - of_words), ("minicons", corrected - of_mini):
            found.add(package, got - value)
            found.add("formula", right - value)
        found.add("uncorrected", raw - buggy)
        found.add("formula", right_raw - buggy)
        found.add("with the named ones: wordsprobability", got - fixed)
        found.add("minicons as it is", got - corrected)
        mine_right, mine_raw = formula(ours, ids, at, blank, end)
        found.add("program", got - mine_right)
        found.add("program", raw - mine_raw)
        found.add("logits", mine_right - right)
        found.add("PyTorch's", formula(torchs, ids, at, blank, end)[0] - right)
        found.add("float64 stored as f32", formula(exact.float(), ids, at, blank, end)[0] - right)
        beyond = max(beyond, ((got - fixed + of_words).abs() - (mine_right - right).abs()).max().item())
        n_words += len(mine)
    print("%s: %d texts, %d words, differences in bits" % (name, len(items), n_words))
    print("  largest, named ones taken out: " + found.text("wordsprobability", "minicons", "uncorrected"))
    print("  of which: " + found.text("formula", "program", "logits"))
    print("  for the logits: " + found.text("PyTorch's", "float64 stored as f32"))
    print("  " + found.text("with the named ones: wordsprobability", "minicons as it is"), flush=True)
    return (found.most("formula") < 1e-9 and found.most("program") < 1e-6 and beyond < 1e-5 and
            found.rms("logits") < 1.5 * found.rms("PyTorch's"))


def main():
    build, n = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    torch.set_num_threads(1)
    items, fine = texts(n), True
    data = os.environ.get("ATTN_TEST_DATA")
    with tempfile.TemporaryDirectory() as directory:
        models = [("the included model", os.path.join(ROOT, "examples", "tiny-stories"))]
        if data:
            models += [("random weights", directory + "/random"), ("induction blocks", directory + "/induction")]
            random_model(models[1][1], data)
            random_model(models[2][1], data, os.path.join(ROOT, "examples", "induction"))
        for name, path in models:
            tokenizer = GPT2TokenizerFast.from_pretrained(path)
            room = GPT2Config.from_pretrained(path).n_positions - 2  # longer texts are read in windows
            short = [t for t in items if len(tokenizer(t)["input_ids"]) <= room]
            with contextlib.redirect_stderr(io.StringIO()):
                fine &= compare(build, name, path, short)
    sys.exit(not fine)


main()
