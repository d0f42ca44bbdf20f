#!/usr/bin/env python3
"""Makes tests/fixtures/vocabularies/blank.tsv: vocabularies that put a blank in front of texts.

    python3 tests/makers/make_blank_fixtures.py      (transformers 5.24.0, which brings tokenizers)

The lines are those of make_vocabulary_fixtures.py, of whose vocabulary these directories are made; "lost" is a
text to which decoding gives back its ids' blanks too. First all ways to say whether there is a blank, then six texts
of each of 200 kinds of beginning."""
import itertools
import os
import unicodedata

from make_vocabulary_fixtures import CONFIG, HERE, MERGES, TOKENS, WHOLE, AutoTokenizer, Cases

NEW = ("edit", WHOLE, '"add_prefix_space": false', '"add_prefix_space": true')
ENDS = ["", "the", " the", "\ncat", "'re 12", "<pad>hello</s>  <s>\t"]


class Blanks(Cases):
    def expected(self, d, texts, first, how):
        t = AutoTokenizer.from_pretrained(d)
        all_ids = [t(text)["input_ids"] for text in texts]
        return [("ids" if t.decode(ids) == text else "lost", text.encode().hex(), " ".join(map(str, ids)))
                for text, ids in zip(texts, all_ids)]


def beginnings():
    found = [chr(c) for c in range(32, 127)] + ["'" + e for e in ("s", "t", "re", "ve", "m", "ll", "d", "S", "rea")]
    blanks = [" ", "\t", "\n", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u00a0", "\u1680", "\u2003", "\u2028", "\u3000"]
    found += blanks[1:] + [a + b for a, b in itertools.product(blanks[:3], blanks)]
    found += ["<s>", "<s> ", "<s>\n", "<s><pad>", " <s>", "<", "<|endoftext|>", "<s>'s", "\0", "\u200b", "\ufeff"]
    for code in range(0x80, 0x20000, 1867):  # a character of most scripts
        if unicodedata.category(chr(code)) not in ("Cs", "Cn"):
            found.append(chr(code))
    found = list(dict.fromkeys(found))
    return found[:200]


def main():
    c = Blanks()
    classes = {"no class": {}, **{k: {"tokenizer_class": k} for k in ("GPT2Tokenizer", "PreTrainedTokenizerFast")}}
    for (name, kind), rule, own in itertools.product(classes.items(), (False, True), (None, False, True)):
        config = dict(kind, **({} if own is None else {"add_prefix_space": own}))
        c.add(f"{name}, {rule} in {WHOLE}, {own} in {CONFIG}", [WHOLE, TOKENS, MERGES],
              ([NEW] if rule else []) + [("file", CONFIG, config)], texts=["the", " the<pad>cat", "\n"])
    for own in (False, True):
        c.add(f"the pair alone, {own}", [TOKENS, MERGES], [("file", CONFIG, {"add_prefix_space": own})],
              texts=["the", "'re"])
    c.add("the class in config.json", [WHOLE], [NEW, ("file", "config.json", {
        "model_type": "gpt2", "tokenizer_class": "PreTrainedTokenizerFast"})], texts=["the"])
    texts = [start + end for start in beginnings() for end in ENDS]
    c.add("kinds of beginning", [WHOLE], [NEW, ("file", CONFIG, classes["PreTrainedTokenizerFast"])],
          texts=list(dict.fromkeys(texts)))
    with open(os.path.join(HERE, "blank.tsv"), "w", encoding="utf-8") as f:
        f.write("\n".join(c.lines) + "\n")
    print(f"{len(c.lines)} lines, {len(beginnings())} beginnings")


if __name__ == "__main__":
    main()
