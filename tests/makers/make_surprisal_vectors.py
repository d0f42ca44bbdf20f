"""Makes tests/fixtures/surprisal/: texts, and what tools/surprisal says of them by PyTorch's GPT-2 in float64
(transformers) with the included model. Written from the definition
in `surprisal --help formula` alone.

    python3 tests/makers/make_surprisal_vectors.py
"""
import csv
import math
import os
import torch
from transformers import GPT2LMHeadModel, GPT2TokenizerFast

from vocabulary import byte_of_character

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = os.path.join(TESTS, "..", "examples", "tiny-stories")
OUT = os.path.join(TESTS, "fixtures", "surprisal")
BOS, N_CTX = 2047, 256
MARKS = set("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\u00a1\u00a7\u00ab\u00b6\u00b7\u00bb\u00bf")

TEXTS = [
    "Once upon a time, there was a little girl named Lily.",
    "She loved to play outside in the park with her friends.",
    "The old man the boats.",
    "The horse raced past the barn fell.",
    "\"I don't know,\" said Tom. \"It's a well-known dog (a big one).\"",
    "",
    "word",
    "The caf\u00e9 \u2013 \u201cna\u00efve\u201d \u2014 cost 3.50\u20ac, \u65e5\u672c!",
    "A happy \U0001f600 dog \U0001f469\u200d\U0001f52c ran.",
    "Ten\u00a0km of no-break\u00a0space",
    "a" * 30 + " " + "xyz" * 20 + " end.",
    "... !? -- ,",
]
LONG = ("One day, Lily went for a walk in the park. She saw a big red ball and a small dog that could not sleep. "
        "\"Look, Mom!\" she said. Then they all went home and had some cake. ") * 8


class Reference:
    def __init__(self):
        self.model = GPT2LMHeadModel.from_pretrained(MODEL, attn_implementation="eager").double().eval()
        self.tokenizer = GPT2TokenizerFast(os.path.join(MODEL, "vocab.json"), os.path.join(MODEL, "merges.txt"))
        names = self.tokenizer.convert_ids_to_tokens(range(self.model.config.vocab_size))
        table = byte_of_character()
        self.bytes = [b"" if i == BOS else bytes(table[c] for c in name) for i, name in enumerate(names)]
        self.memo = {}

    def rows(self, ids):
        if tuple(ids) not in self.memo:
            with torch.no_grad():
                self.memo[tuple(ids)] = torch.log_softmax(self.model(torch.tensor([ids])).logits[0], -1)
        return self.memo[tuple(ids)]


def starts_with_mark(data):
    """Bytes that are a mark, or the beginning of one."""
    return data[:1].decode("latin-1") in MARKS - {chr(c) for c in range(128, 256)} or \
        data[:2] in (b"\xe2\x80", b"\xe3\x80") or (len(data) > 1 and data[:2].decode("utf-8", "ignore") in MARKS)


def row_at(ref, ids, position, stride, bos):
    """The log-probabilities of the next token at a position, in the first window that has it; None: no token is
    before it."""
    room = N_CTX - bos
    begin, end = 0, min(room, len(ids))
    while position > end:
        begin = end + 1 - stride
        end = min(begin + room, len(ids))
    seen = position - begin + bos
    return ref.rows([BOS] * bos + ids[begin:end])[seen - 1] if seen else None


def ends_with_mark(tokens):
    """Is the last character that begins in one of these tokens a mark, by the bytes that this token has of it?"""
    whole = [data.removeprefix(b" ") for data in tokens]
    data = [data for data in whole if any(not 0x80 <= c < 0xc0 for c in data)][-1]
    last = max(i for i in range(len(data)) if not 0x80 <= data[i] < 0xc0)
    return starts_with_mark(data[last:])


def rows_of(ref, lines, apart=False, by="word", unit=math.log(2), stride=127, bos=1, front=""):
    """Rows for the lines of one text. front: what the vocabulary puts in front of it."""
    tokens, words = [], []  # a word: line, index, text, first token, end
    for number, line in enumerate(lines):
        index = 0
        for spelled in line.split(" ") if line else []:
            ids = ref.tokenizer((" " if tokens else front) + spelled)["input_ids"]
            parts = [[]]
            for i in ids:
                data = ref.bytes[i]
                before = [ref.bytes[k] for k in parts[-1] if ref.bytes[k] != b" "]
                continues = 0x80 <= data[0] < 0xc0
                if apart and before and not continues and ends_with_mark(before) != starts_with_mark(data):
                    parts.append([])
                parts[-1].append(i)
            for part in parts:
                index += 1
                text = b"".join(ref.bytes[i] for i in part).decode().removeprefix(" ")
                words.append((number + 1, index, text, len(tokens), len(tokens) + len(part)))
                tokens += part
    known = [row_at(ref, tokens, p, stride, bos) for p in range(len(tokens) + 1)]
    blank = [data[:1] == b" " for data in ref.bytes]
    mark = [starts_with_mark(data) for data in ref.bytes]
    rest = [0x80 <= (data or b"a")[0] < 0xc0 for data in ref.bytes]

    def log_sum(position, chosen):
        return math.nan if known[position] is None else \
            torch.logsumexp(known[position][torch.tensor(chosen)], 0).item()

    def ends(word):  # the log of the probability that it ends where it does
        inside = [ref.bytes[i] for i in tokens[word[3]:word[4]]]
        if apart and ends_with_mark(inside):
            chosen = [i == BOS or blank[i] or not (mark[i] or rest[i]) for i in range(len(blank))]
        else:
            chosen = [i == BOS or blank[i] or (apart and mark[i]) for i in range(len(blank))]
        return log_sum(word[4], chosen)

    result = []
    before = log_sum(0, [b or i == BOS for i, b in enumerate(blank)] if front else [not b for b in blank])
    for word in words:
        after = ends(word)
        losses = [math.nan if known[t] is None else -known[t][tokens[t]].item() for t in range(word[3], word[4])]
        groups = [(word[3], word[4])] if by == "word" else [(t, t + 1) for t in range(word[3], word[4])]
        for first, end in groups:
            raw = sum(losses[first - word[3]:end - word[3]])
            fixed = raw + (before if first == word[3] else 0) - (after if end == word[4] else 0)
            row = known[first]
            entropy = math.nan if row is None else -(row.exp() * row).sum().item()
            rank = "NA" if row is None else (row > row[tokens[first]]).sum().item()
            result.append([*word[:3], word[4] - word[3],
                           *("NA" if math.isnan(x) else "%.9f" % (x / unit) for x in (fixed, raw, entropy)), rank])
        before = after
    return result


def main():
    torch.set_num_threads(1)
    ref = Reference()
    os.makedirs(OUT, exist_ok=True)
    for name, lines in ("texts", TEXTS), ("long", [LONG.strip(), "The end."]):
        with open(os.path.join(OUT, name + ".txt"), "w", newline="") as file:
            file.writelines(line + "\n" for line in lines)
    long = [LONG.strip(), "The end."]
    each = lambda lines, **how: [[i + 1, *row[1:]] for i, line in enumerate(lines) for row in rows_of(ref, [line], **how)]
    cases = {
        "texts": each(TEXTS),
        "apart": each(TEXTS, apart=True),
        "tokens": each(TEXTS, by="token"),
        "no-bos": each(TEXTS, bos=0, unit=1),
        "blank": each(TEXTS, front=" "),
        "blank-apart": each(TEXTS, front=" ", apart=True),
        "long": each(long),
        "stride": each(long, stride=200),
        "continue": rows_of(ref, TEXTS + long),
        "continue-no-bos": rows_of(ref, TEXTS + long, bos=0, stride=128),
    }
    for name, rows in cases.items():
        with open(os.path.join(OUT, name + ".csv"), "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["text", "index", "word", "tokens", "surprisal", "uncorrected", "entropy", "rank"])
            writer.writerows(rows)


main()
