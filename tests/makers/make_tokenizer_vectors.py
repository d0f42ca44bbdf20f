#!/usr/bin/env python3
"""Writes tokenizer_vectors.tsv: what byte-level BPE must give, worked out by a plain slow program.

    make_tokenizer_vectors.py > tokenizer_vectors.tsv      (needs Unicode 15.0: Python 3.12)

It shares nothing with attn.h: the kinds of characters come from Python's unicodedata, the pattern
is tried alternative by alternative, and merging follows GPT-2's encoder.py (all places of the
lowest rank at once). Before it writes anything it checks itself on GPT-2's own vectors, if
$ATTN_TEST_DATA names a directory with gpt2-tokenizer in it.

Lines of the file, with tabs between the parts:
    K  version  letters  numbers  spaces  digest    of all code points but surrogates; the digest
                                                    is FNV-1a, 64 bits, of a byte (kind) for each
    V  included                                     the vocabulary in examples/tiny-stories
    V  pairs                                        every pair of bytes merges, see pairs()
    V  given  left,right,result ...                 bytes are their own ids; merges by rank
    T  text in hex  ids                             with the vocabulary named last
    L  size  alphabet  count  digest                a long word, see long_word(), with the
                                                    vocabulary named last: how many ids and their
                                                    FNV-1a, 64 bits, four bytes each, lowest first
    R  bytes in hex  text in hex                    the bytes decoded, U+FFFD for each maximal part
                                                    of what is no UTF-8 (Python's "replace")
"""
import json
import os
import random
import sys
import unicodedata

from vocabulary import stand_ins

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WHITE_SPACE = {*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029,
               0x202F, 0x205F, 0x3000}


def kind(character):
    if ord(character) in WHITE_SPACE:
        return "space"
    return {"L": "letter", "N": "number"}.get(unicodedata.category(character)[0], "other")


def run(text, at, wanted):
    """Where the run of this kind that begins at `at` ends."""
    while at < len(text) and kind(text[at]) == wanted:
        at += 1
    return at


def word_end(text, at):
    """'s|'t|'re|'ve|'m|'ll|'d| ?L+| ?N+| ?[^sLN]+|s+(?!S)|s+, one alternative after the other."""
    for contraction in "'s", "'t", "'re", "'ve", "'m", "'ll", "'d":
        if text.startswith(contraction, at):
            return at + len(contraction)
    for wanted in "letter", "number", "other":
        inner = at + 1 if text[at] == " " else at
        end = run(text, inner, wanted)
        if end > inner:
            return end
    end = run(text, at, "space")
    for stop in range(end, at, -1):  # the longest that nothing but white space or the end follows
        if stop == len(text) or kind(text[stop]) == "space":
            return stop
    return end


def words(data):
    """Bytes that are no UTF-8 become lone surrogates: neither letter, number nor space."""
    text, at = data.decode("utf-8", "surrogateescape"), 0
    while at < len(text):
        end = word_end(text, at)
        yield text[at:end].encode("utf-8", "surrogateescape")
        at = end


class Vocabulary:
    def __init__(self, byte_ids, merges):
        """merges: (left, right) -> (rank, result)"""
        self.byte_ids, self.merges = byte_ids, merges

    def word(self, data):
        ids = [self.byte_ids[b] for b in data]
        while True:
            ranked = [self.merges[p] + p for p in zip(ids, ids[1:]) if p in self.merges]
            if not ranked:
                return ids
            _, result, left, right = min(ranked)
            merged, i = [], 0
            while i < len(ids):
                if ids[i:i + 2] == [left, right]:
                    merged.append(result)
                    i += 2
                else:
                    merged.append(ids[i])
                    i += 1
            ids = merged

    def encode(self, data):
        return [i for word in words(data) for i in self.word(word)]


def read_vocabulary(folder):
    with open(f"{folder}/vocab.json", encoding="utf-8") as file:
        ids = json.load(file)
    with open(f"{folder}/merges.txt", encoding="utf-8") as file:
        lines = [line.split(" ") for line in file.read().split("\n")[1:] if line]
    return Vocabulary([ids[letter] for letter in stand_ins()],
                      {(ids[a], ids[b]): (rank, ids[a + b]) for rank, (a, b) in enumerate(lines)})


def pairs():
    """Every pair of bytes merges, in a scrambled order: nearly every end of a word shows."""
    return Vocabulary(list(range(256)),
                      {(p // 256, p % 256): (p * 40503 % 65536, 256 + p) for p in range(65536)})


def given(rng, alphabet, n_merges, order):
    """A random vocabulary over a few bytes. Some results are made in several ways. order "shuffled"
    ranks merges without regard to which is needed for which."""
    tokens, by_bytes, merges = [bytes([b]) for b in range(256)], {}, []
    usable = [ord(c) for c in alphabet]
    while len(merges) < n_merges:
        left, right = rng.choice(usable), rng.choice(usable)
        whole = tokens[left] + tokens[right]
        if (left, right) in [m[:2] for m in merges] or len(whole) > 24:
            continue
        if whole not in by_bytes or rng.random() < 0.3:
            by_bytes[whole] = len(tokens)
            tokens.append(whole)
            usable.append(by_bytes[whole])
        merges.append((left, right, by_bytes[whole]))
    if order == "shuffled":
        rng.shuffle(merges)
    return merges, Vocabulary(list(range(256)),
                              {m[:2]: (rank, m[2]) for rank, m in enumerate(merges)})


EDGES = [
    "Hello world", " a", "a ", "  a", "   a   ", "a\n\nb", "a \n b", "\n", " ", "\r\n\r\nx",
    "\t\tx", " \t x", "I'm you're he's we'll they'd I've can't", "I'M YOU'RE HE'S WE'LL", "'s",
    "''s", " 's", "'S", "'", "'l", "'r", "'lll", "it's1", "1's", "'re've", "don''t", "s's's",
    "'la", "'rx", "x'vx", "'lex", "a1b2c3", " 12 34", "3.14", "x_y", "a-b--c", "!!!", " !!!",
    "...a", "a...", "<|endoftext|>", "\u00e9t\u00e9 \u00c9t\u00e9", "e\u0301",
    "\u4e2d\u6587 \u65e5\u672c\u8a9e", "\u0661\u0662\u0663 x\u00b2 \u00bd \u2167",
    "\U0001F600 \U0001F600\U0001F600", "\U00020000\U0002F800", "a\u00a0b", "a\u00a0\u00a0b",
    "\u3000\u3000x", " \u3000x", "\u3000 x", "\u2028\u2029", "\u0085a", "\u180ea", "\u200ba",
    "\ufeffa", "\u1680\u1680a", "\u202f1", "\u205f!", "\x1c\x1d\x1e\x1fa", "\0a\0", "\u0378a",
    "\U0010FFFF", "\u00aa\u00ba\u00b5", "\u2160\u2161", "\u3007\u4e00", "\ud7a3\ud7a4",
    "\ua000\ua48d", "a\u200d\u0930", "\u1d2c1",
]
BROKEN = [
    "ff", "80", "c0", "c080", "c3", "61c3", "c361", "e282", "e28261", "e2", "20e282", "f09f98",
    "f09f9820", "eda080", "edbfbf", "f4908080", "f8888080", "fefe", "61ff62", "20ff", "ff20ff",
    "2020ff", "e0809f", "f0808080", "c2", "c2c285", "85", "a0", "20c2", "e28080e280", "ffe28081",
    "e3808061", "e38080e380", "f5", "27ff73",
]
PIECES = [
    " ", "  ", "\n", "\t", "'s", "'ll", "'", "a", "the", " the", "Tim", "1", "22", ".", "!?",
    "\u00e9", "\u4e2d", "\u0301", "\u00a0", "\u3000", "\u2003", "\u0663", "\u00bd", "\U0001F600",
    b"\xff", b"\xe2\x82", b"\x80", "little", " girl", "\u1680", "\u0085", "\u202f", "x", "re",
    "ve",
]


def as_bytes(text):
    return text if isinstance(text, bytes) else text.encode()


def pattern_texts(rng):
    texts = [as_bytes(t) for t in EDGES] + [bytes.fromhex(t) for t in BROKEN]
    for n in range(1, 120):
        texts.append(b"".join(as_bytes(rng.choice(PIECES)) for _ in range(n // 6 + 1)))
    for _ in range(60):  # anything, but only code points that this Unicode version knows
        text = ""
        while len(text) < 6:
            c = chr(rng.choice([rng.randrange(0x80, 0x3000), rng.randrange(0x3000, 0x110000)]))
            if unicodedata.category(c) not in ("Cn", "Cs", "Co"):
                text += rng.choice(["", "a", "1", " ", "!"]) + c
        texts.append(text.encode())
    return texts + [rng.randbytes(n) for n in range(1, 40)]


def broken_text(rng):
    """Bytes from the edges of what UTF-8 allows, so that sequences nearly fit."""
    edges = bytes.fromhex("41 7f 80 8f 90 9f a0 bf c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")
    return bytes(rng.choice(edges) for _ in range(rng.randrange(1, 24)))


def long_texts(rng, alphabet):
    """Single words around the sizes where an implementation may change its way, and far beyond."""
    texts = []
    for n in [*range(1, 7), 16, 17, 32, 33, 47, 48, 49, 64, 65, 129, 300]:
        texts.append("".join(rng.choice(alphabet) for _ in range(n)).encode())
        texts.append((alphabet[0] * n).encode())
    texts.append((alphabet[:2] * 70).encode())
    texts.append((alphabet[0] * 7 + alphabet[1]).encode() * 20)
    return texts


def long_word(size, alphabet):
    """Letters picked by a congruence (of Numerical Recipes), so that it need not be in the file."""
    x, out = 1, []
    for _ in range(size):
        x = (x * 1664525 + 1013904223) % 2**32
        out.append(alphabet[(x >> 16) % len(alphabet)])
    return "".join(out).encode()


def fnv(data):
    digest = 0xCBF29CE484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return f"{digest:016x}"


def self_check():
    folder = os.path.join(os.environ.get("ATTN_TEST_DATA", ""), "gpt2-tokenizer")
    if not os.path.exists(folder + "/vectors.tsv"):
        return "not checked on GPT-2's vectors"
    vocabulary, n = read_vocabulary(folder), 0
    with open(folder + "/vectors.tsv", encoding="ascii") as file:
        for line in file:
            text, ids = line.rstrip("\n").split("\t")
            assert vocabulary.encode(bytes.fromhex(text)) == [int(i) for i in ids.split()], text
            n += 1
    return f"agrees with {n} of GPT-2's vectors"


def write(vocabulary, texts):
    for text in texts:
        print("T", text.hex(), " ".join(map(str, vocabulary.encode(text))), sep="\t")


def write_long(vocabulary, alphabet):
    for size in 8191, 8192, 8193, 20000, 30001:
        ids = vocabulary.encode(long_word(size, alphabet))
        digest = fnv(b"".join(i.to_bytes(4, "little") for i in ids))
        print("L", size, alphabet, len(ids), digest, sep="\t")


def main():
    assert unicodedata.unidata_version == "15.0.0", "run this with Python 3.12"
    print(self_check(), file=sys.stderr)
    rng = random.Random(20)
    kinds = [["other", "letter", "number", "space"].index(kind(chr(c)))
             for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    print("K", unicodedata.unidata_version, *(kinds.count(k) for k in (1, 2, 3)), fnv(kinds),
          sep="\t")

    for text in [bytes.fromhex(t) for t in BROKEN] + [broken_text(rng) for _ in range(60)]:
        print("R", text.hex(), text.decode("utf-8", "replace").encode().hex(), sep="\t")

    folder = os.path.join(TESTS, "../examples/tiny-stories")
    with open(folder + "/reference.json", encoding="utf-8") as file:
        stories = "\n".join(entry["text"] for entry in json.load(file)["greedy"])
    print("V", "included", sep="\t")
    included = read_vocabulary(folder)
    # The last ones repeat words, so that a cache of words has something to do, and many of them are
    # alike at first.
    alike = [b"together" + bytes(rng.choices(b"abs", k=4)) for _ in range(400)]
    write(included, pattern_texts(rng) + long_texts(rng, "etaoin") +
          [stories.encode(), b" ".join(as_bytes(rng.choice(PIECES)) for _ in range(700)),
           b" ".join(alike)])
    write_long(included, "etaoin")
    print("V", "pairs", sep="\t")
    write(pairs(), pattern_texts(rng))
    for alphabet, n_merges, order in (("ab", 12, "trained"), ("abc", 40, "trained"),
                                      ("abcd", 150, "trained"), ("a", 6, "trained"),
                                      ("ab", 30, "shuffled"), ("abc", 60, "shuffled"),
                                      ("a", 8, "shuffled")):
        merges, vocabulary = given(rng, alphabet, n_merges, order)
        print("V", "given", " ".join("%d,%d,%d" % m for m in merges), sep="\t")
        alphabet = alphabet if len(alphabet) > 1 else "aaaaaaaaaaaaaaab"
        write(vocabulary, long_texts(rng, alphabet))
        write_long(vocabulary, alphabet)


if __name__ == "__main__":
    main()
