"""tools/surprisal beside the packages wordsprobability 0.17 and minicons 0.3.39 (bow_correction) in float64 on the
same weights, 1,000 texts each: the included model; random weights, and the included induction model's blocks, with
GPT-2's own vocabulary.

    ATTN_TEST_DATA=DIRECTORY python3 tests/compare/compare_surprisal.py BUILD [NUMBER_OF_TEXTS]

DIRECTORY has gpt2-tokenizer/vocab.json and merges.txt in it; without it only the included model is tried. Needs torch,
transformers and pandas besides the two packages.

The differences that the packages have by their definition are computed from the same logits and taken out:
  wordsprobability counts the end-of-text token twice in the divisor of a text's first word;
  minicons has no divisor for the first word, and does not count the end of the text as the end of a word.
What remains is f32 against float64. How much of it the model's arithmetic alone makes is shown by PyTorch in f32.
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
import pandas
import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel, GPT2TokenizerFast
from minicons import scorer
from wordsprobability import main as wordsprobability
from wordsprobability.models.bow_lm import GPT2BaseModel

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
END = "<|endoftext|>"


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


def differences(model, tokenizer, text, blank, end):
    """What each package's definition adds to a word, in nats."""
    words = text.split(" ")
    ids = [tokenizer((" " if i else "") + word)["input_ids"] for i, word in enumerate(words)]
    with torch.no_grad():
        rows = torch.log_softmax(model(torch.tensor([[end] + sum(ids, [])])).logits[0], -1)
    at = [0]
    for word in ids:
        at.append(at[-1] + len(word))
    ends = [rows[p][blank].logsumexp(0) for p in at[1:]]
    whole = [torch.logaddexp(e, rows[p][end]) for e, p in zip(ends, at[1:])]
    divisor = rows[0][~blank].logsumexp(0)
    first = torch.logaddexp(divisor, rows[0][end]) - divisor
    of_words = torch.tensor([first] + [0.0] * (len(words) - 1))
    of_mini = torch.stack([w - e for w, e in zip(whole, ends)])
    of_mini[1:] -= of_mini[:-1].clone()
    of_mini[0] -= divisor
    losses = -rows[:-1].gather(1, torch.tensor(sum(ids, []))[:, None])[:, 0]
    return of_words, of_mini, losses


def compare(build, name, directory, items):
    log_of_2 = torch.log(torch.tensor(2.0, dtype=torch.float64))
    attn = os.path.join(tempfile.gettempdir(), "surprisal-%d.attn" % os.getpid())
    subprocess.run([build + "/attn-convert", "-q", directory, attn], check=True, stderr=subprocess.DEVNULL)
    rows = by_surprisal(build, attn, items)
    os.remove(attn)
    single = GPT2LMHeadModel.from_pretrained(directory, attn_implementation="eager").eval()
    model = GPT2LMHeadModel.from_pretrained(directory, attn_implementation="eager").double().eval()
    tokenizer = GPT2TokenizerFast.from_pretrained(directory, bos_token=END, eos_token=END, pad_token=END)
    end = tokenizer.eos_token_id
    blank = torch.tensor([t.startswith("\u0120") for t in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))])
    words = Words(model, tokenizer)
    mini = scorer.IncrementalLMScorer(model, "cpu", tokenizer=tokenizer)
    worst = {"wordsprobability": 0.0, "minicons": 0.0, "uncorrected": 0.0}
    plain = {"wordsprobability": 0.0, "minicons": 0.0}
    above, n_words, single_worst, total = 0, 0, 0.0, []
    for text, mine in zip(items, rows):
        got = torch.tensor([float(row["surprisal"]) for row in mine], dtype=torch.float64)
        raw = torch.tensor([float(row["uncorrected"]) for row in mine], dtype=torch.float64)
        fixed, buggy = by_wordsprobability(words, text)
        of_words, of_mini, losses = differences(model, tokenizer, text, blank, end)
        corrected = by_minicons(mini, text)
        for package, value, known in ("wordsprobability", fixed, of_words), ("minicons", corrected, of_mini):
            difference = (got - (value - known) / log_of_2).abs()
            worst[package] = max(worst[package], difference.max().item())
            plain[package] = max(plain[package], (got - value / log_of_2).abs().max().item())
            if package == "wordsprobability":
                above += (difference > 1e-5).sum().item()
                total.append(difference)
        worst["uncorrected"] = max(worst["uncorrected"], (raw - buggy / log_of_2).abs().max().item())
        with torch.no_grad():
            ids = torch.tensor([[end] + tokenizer(text)["input_ids"]])
            coarse = torch.log_softmax(single(ids).logits[0, :-1], -1).gather(1, ids[0, 1:, None])[:, 0]
        error = torch.stack([e.sum() for e in (coarse.double() + losses).split([int(row["tokens"]) for row in mine])])
        single_worst = max(single_worst, error.abs().max().item() / log_of_2.item())
        n_words += len(mine)
    total = torch.cat(total)
    print("%s: %d texts, %d words" % (name, len(items), n_words))
    print("  largest difference in bits, named ones taken out: wordsprobability %.1e, minicons %.1e, uncorrected %.1e"
          % tuple(worst.values()))
    print("  mean %.1e; %d words above 1e-5; PyTorch in f32 beside float64, uncorrected: %.1e"
          % (total.mean().item(), above, single_worst))
    print("  with the named ones: wordsprobability %.1e, minicons %.1e" % tuple(plain.values()), flush=True)
    return max(worst.values()) < max(1e-5, 3 * single_worst)


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
