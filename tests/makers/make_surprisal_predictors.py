"""Makes tests/fixtures/surprisal/predictors*.csv: what `surprisal --layers`, --entropy-reduction and --renyi say, and vectors*.csv:
some numbers of --vectors, and what --suite says of the suites here, by NumPy in float64 with the included model. Written from the definitions in `surprisal --help formula` alone. Tokens are those of
`surprisal --by token`, which other tests compare with transformers.

    make build/surprisal build/tiny-stories.attn && python3 tests/makers/make_surprisal_predictors.py
"""
import csv
import io
import json
import os
import re
import subprocess
import numpy as np

from float64 import Model, log_softmax
from vocabulary import byte_of_character

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(TESTS, "..", "build")
MODEL = os.path.join(TESTS, "..", "examples", "tiny-stories")
OUT = os.path.join(TESTS, "fixtures", "surprisal")


M = Model.open(MODEL)
N_CTX, N_LAYER, BOS = M.n_ctx, M.layers, M.config["bos_token_id"]


def begins_with_blank():
    spelling = byte_of_character()
    with open(os.path.join(MODEL, "vocab.json"), encoding="utf-8") as file:
        vocabulary = json.load(file)
    found = np.zeros(len(vocabulary), bool)
    for name, i in vocabulary.items():
        found[i] = i != BOS and spelling[name[0]] == 32
    return found


BLANK = begins_with_blank()


def streams(ids):
    """[n_layer, tokens, width]: behind each layer."""
    found = M.activations(ids)
    return np.stack([found[f"blocks.{i}.hook_resid_post"] for i in range(N_LAYER)])


def log_probabilities(ids):
    """[n_layer, tokens, vocabulary]: of the next token, under the logit lens of each layer."""
    return log_softmax(M.norm(streams(ids), "ln_f") @ M.W_U)


def tuned_log_probabilities(ids):
    """The same through the tuned lens of the test: the stream behind layer l enters layer l + 1."""
    found, (i, j) = streams(ids), np.indices((M.width,) * 2)
    for entered in range(1, N_LAYER):
        x = found[entered - 1]
        found[entered - 1] = x + x @ (((7 * i + 3 * j + entered) % 11 - 5) / 256).T + ((i[:, 0] + entered) % 5 - 2) / 32
    return log_softmax(M.norm(found, "ln_f") @ M.W_U)


def positions(ids, bos, stride, what=log_probabilities, width=len(BLANK)):
    """[n_layer, tokens + 1, width]: before each token and after the last one, in windows. NaN: nothing is before."""
    room = N_CTX - bos
    known = np.full((N_LAYER, len(ids) + 1, width), np.nan)
    begin, done = 0, 0
    while done <= len(ids):
        end = min(begin + room, len(ids))
        rows = what([BOS] * bos + ids[begin:end])
        first = max(done, begin + 1 - bos)
        known[:, first:end + 1] = rows[:, first - begin + bos - 1:]
        done = end + 1
        begin = done - stride
    return known


def rows_of(words, order, layers, bos, stride, what=log_probabilities):
    """The numbers of each word of one text. words: (text, index, word, ids)."""
    ids = [i for word in words for i in word[3]]
    known = positions(ids, bos, stride, what)
    ends = BLANK.copy()
    ends[BOS] = True

    def log_sum(layer, at, chosen):
        return np.logaddexp.reduce(known[layer, at, chosen])

    def entropy(at):
        row = known[-1, at]
        return -(np.exp(row) * row).sum()

    at = 0
    for number, (text, index, word, tokens) in enumerate(words):
        end = at + len(tokens)
        surprisals = []
        for layer in range(N_LAYER):
            sum_of_tokens = -sum(known[layer, t, ids[t]] for t in range(at, end))
            before = log_sum(layer, at, ~BLANK if number == 0 else ends)
            surprisals.append((sum_of_tokens, sum_of_tokens + before - log_sum(layer, end, ends)))
        renyi = np.log(np.exp(order * known[-1, at]).sum()) / (1 - order)
        numbers = [surprisals[-1][1], surprisals[-1][0], entropy(at), entropy(at) - entropy(end), renyi,
                   *(surprisals[layer][1] for layer in layers)]
        yield [text, index, word, len(tokens), *("NA" if np.isnan(x) else f"{x / np.log(2):.9f}" for x in numbers)]
        at = end


def words_of(lines, *options):
    """The words of some lines, and the ids of their tokens."""
    done = subprocess.run([os.path.join(BUILD, "surprisal"), os.path.join(BUILD, "tiny-stories.attn"), "-q", "--by", "token", *options],
                          input=lines, stdout=subprocess.PIPE, check=True)
    words = []
    for row in csv.DictReader(io.StringIO(done.stdout.decode(), newline="")):
        if not words or words[-1][:2] != [row["text"], row["index"]]:
            words.append([row["text"], row["index"], row["word"], []])
        words[-1][3].append(int(row["token_id"]))
    return words


def write(name, layers, rows):
    with open(os.path.join(OUT, name), "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["text", "index", "word", "tokens", "surprisal", "uncorrected", "entropy", "entropy_reduction", "renyi",
                         *(f"surprisal.{layer}" for layer in layers)])
        writer.writerows(rows)


def vectors_of(words, pool, layers, bos, stride):
    """Numbers 0 and 100 of the vectors of the words of one text, at each layer: `pool` of those of their tokens."""
    known = positions([i for word in words for i in word[3]], bos, stride, streams, M.width)
    at = 1  # what is known after the first token
    for word in words:
        yield [f"{pool(known[layer, at:at + len(word[3]), i]):.6f}" for layer in layers for i in (0, 100)]
        at += len(word[3])


def write_vectors(name, rows):
    with open(os.path.join(OUT, name), "w", encoding="utf-8") as file:
        file.writelines(",".join(row) + "\n" for row in rows)


def measure(sentences):
    """For each sentence the tokens, the surprisal and the uncorrected surprisal of its words, in bits."""
    words = words_of("".join(sentence + "\n" for sentence in sentences).encode())
    for number in range(len(sentences)):
        one = [word for word in words if word[0] == str(number + 1)]
        yield [(row[3], float(row[4]), float(row[5])) for row in rows_of(one, 0.5, [], 1, 127)]


def write_rows(name, rows):
    with open(os.path.join(OUT, name), "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def write_suite(name):
    """The regions of a suite, and for each prediction and item whether it holds, by Python's own arithmetic."""
    with open(os.path.join(OUT, name + ".json"), encoding="utf-8") as file:
        suite = json.load(file)
    conditions = [(number, condition) for number, item in enumerate(suite["items"]) for condition in item["conditions"]]
    known = list(measure([" ".join(region["content"] for region in condition["regions"] if region["content"])
                          for _, condition in conditions]))
    rows, values = [], {}
    for (number, condition), words in zip(conditions, known):
        at = 0
        for region in condition["regions"]:
            mine = words[at:at + len(region["content"].split())]
            at += len(mine)
            tokens, corrected, sums = (sum(word[i] for word in mine) for i in range(3))
            rows.append([number + 1, condition["condition_name"], region["region_number"], region["content"], tokens, f"{corrected:.9f}", f"{sums:.9f}"])
            values[number, condition["condition_name"], str(region["region_number"])] = sums / (tokens if suite["meta"]["metric"] == "mean" else 1)
    write_rows(name + "-regions.csv", rows)

    def value(item, region, condition):
        return sum(x for (i, c, r), x in values.items() if i == item and c == condition and region in ("*", r))

    def holds(item, formula):
        code = re.sub(r"\((\d+|\*);%([^%]*)%\)", rf'value({item}, "\1", "\2")', formula)
        code = re.sub(r"(value\([^()]*\)) *= *(value\([^()]*\))", r"np.isclose(\1, \2, rtol=1e-5, atol=1e-3)", code)
        functions = {"value": value, "np": np, "mean": lambda *x: np.mean(x), "sum": lambda *x: np.sum(x)}
        return int(bool(eval(code.replace("&", " and ").replace("|", " or "), functions)))

    write_rows(name + ".csv", [[holds(item, one["formula"]) for item in range(len(suite["items"]))] for one in suite["predictions"]])


def write_pairs():
    with open(os.path.join(OUT, "pairs.jsonl"), encoding="utf-8") as file:
        pairs = [json.loads(line) for line in file]
    sums = [sum(word[2] for word in words) for words in measure([pair[key] for pair in pairs for key in ("sentence_good", "sentence_bad")])]
    write_rows("pairs.csv", [[number + 1, pair.get("field", ""), f"{good:.9f}", f"{bad:.9f}",
                              "right" if good < bad - 1e-5 else "wrong" if bad < good - 1e-5 else "tie"]
                             for number, (pair, good, bad) in enumerate(zip(pairs, sums[::2], sums[1::2]))])


def main():
    write_suite("agreement")
    write_suite("reflexives")
    write_pairs()
    texts, long = (open(os.path.join(OUT, name), "rb").read() for name in ("texts.txt", "long.txt"))
    words = words_of(texts)
    each = [[word for word in words if word[0] == text] for text in dict.fromkeys(word[0] for word in words)]
    write("predictors.csv", range(N_LAYER), [row for text in each for row in rows_of(text, 0.5, range(N_LAYER), 1, 127)])
    write("tuned.csv", range(N_LAYER), [row for text in each for row in rows_of(text, 0.5, range(N_LAYER), 1, 127, tuned_log_probabilities)])
    whole = words_of(texts + long, "--continue")
    write("predictors-continue.csv", [0, 2], rows_of(whole, 3, [0, 2], 0, 128))
    write_vectors("vectors.csv", [row for text in each for row in vectors_of(text, np.mean, [0, 3], 1, 127)])
    write_vectors("vectors-first.csv", vectors_of(whole, lambda x: x[0], [2], 1, 100))
    write_vectors("vectors-last.csv", vectors_of(whole, lambda x: x[-1], [2], 0, 128))


main()
