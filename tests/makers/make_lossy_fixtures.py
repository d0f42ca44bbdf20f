#!/usr/bin/env python3
"""Makes tests/fixtures/vocabularies/lossy.tsv: vocabularies that lack bytes, or whose tokens are characters.

    python3 tests/makers/make_lossy_fixtures.py      (transformers 5.24.0, which brings tokenizers)

The lines are those of cases.tsv (make_vocabulary_fixtures.py), and two more:

    rows FILE TEXT              writes a file; every byte 1F ends a line of it
    lost HEX IDS                as "ids", for a text that does not come back whole
"""
import json, os, random, tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["HF_HUB_OFFLINE"] = "1"
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures", "vocabularies")
CORPUS = ["the cat sat on the mat and then the other cat sat there"] * 3
CLASS = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
ALPHABET = "acehmnorstd \n.é日\U0001f600'"
random.seed(1)
RANDOM = ["".join(random.choice(ALPHABET) for _ in range(random.randrange(1, 70))) for _ in range(14)]
TEXTS = ["the cat", "th?e c-at", "t!h!e", "café ~ 漢", "the<|endoftext|>cat", "é", ""] + RANDOM
ABC = {c: i for i, c in enumerate("\n !abcdehorst\u00e9日\U0001f600")}
lines = []


def train(**model):
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>"] + ([model["unk_token"]] if model else [])
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=60, special_tokens=special, show_progress=False))
    return json.loads(t.to_str())


def case(name, files, notes=(), encode=None, decode=None, refused=None, texts=TEXTS):
    lines.append(("case", name))
    with tempfile.TemporaryDirectory() as d:
        for file, value in files.items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            with open(os.path.join(d, file), "w", encoding="utf-8") as f:
                f.write(text)
            lines.append(("rows" if "\n" in text else "file", file, text.replace("\n", "\x1f")))
        with open(os.path.join(d, "config.json"), "w") as f:
            json.dump({"model_type": "gpt2"}, f)
        if refused:
            lines.append(("refused", refused))
            return
        t = AutoTokenizer.from_pretrained(d) if encode is None else None
        for text in texts:
            ids = t(text, add_special_tokens=False)["input_ids"] if t else encode(text)
            back = t.decode(ids, clean_up_tokenization_spaces=False) if t else decode(ids)
            whole = back == text
            lines.append(("ids" if whole else "lost", text.encode().hex(), " ".join(map(str, ids))))
    lines.extend(("note", note) for note in notes)


def main():
    plain, unknown = train(), train(unk_token="<unk>")
    lack = len([c for c in pre_tokenizers.ByteLevel.alphabet() if c not in plain["model"]["vocab"]])
    left_out = f"{lack} of the 256 bytes have no token, 00 first: such a byte is left out of texts"
    case("bytes that training lacked", {"tokenizer.json": plain, "tokenizer_config.json": CLASS}, [left_out])
    case("... under GPT-2's class", {"tokenizer.json": plain}, [left_out])
    case("... with an unknown token", {"tokenizer.json": unknown, "tokenizer_config.json": CLASS},
         [f'{lack} of the 256 bytes have no token, 00 first: such a byte becomes "<unk>" (id 1)'])
    pair = {"vocab.json": plain["model"]["vocab"],
            "merges.txt": "#version: 0.2\n" + "".join(" ".join(m) + "\n" for m in plain["model"]["merges"])}
    case("... as a pair", pair, [left_out])
    t = Tokenizer.from_str(json.dumps(plain))  # AutoTokenizer does not know these names
    case("... under OpenAI's names", {"encoder.json": pair["vocab.json"], "vocab.bpe": pair["merges.txt"]},
         [left_out], lambda text: t.encode(text).ids, lambda ids: t.decode(ids, skip_special_tokens=False))
    fused = json.loads(json.dumps(unknown))
    fused["model"]["fuse_unk"] = True
    case("unknown bytes that are one token", {"tokenizer.json": fused}, refused="fuse_unk is true for those that have")
    fallback = json.loads(json.dumps(plain))
    fallback["model"]["byte_fallback"] = True
    case("bytes by their names", {"tokenizer.json": fallback}, refused="byte_fallback is true for those that have none")
    letters = {**ABC, "<|endoftext|>": len(ABC)}
    whole = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None,
             "added_tokens": [{"id": len(ABC), "content": "<|endoftext|>", "single_word": False, "lstrip": False,
                               "rstrip": False, "normalized": False, "special": True}],
             "post_processor": None, "decoder": {"type": "Fuse"},
             "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                       "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False,
                       "ignore_merges": False, "vocab": letters, "merges": []}}
    other = "the tokens are characters; any other is left out of texts"
    case("characters", {"tokenizer.json": whole, "tokenizer_config.json": CLASS}, [other])
    whole["model"]["unk_token"] = "!"
    case("characters, and one for the others", {"tokenizer.json": whole, "tokenizer_config.json": CLASS},
         ['the tokens are characters; any other becomes "!" (id 2)'])
    own = [text for text in TEXTS if "<" not in text]

    def encode(text):
        return [ABC[c] for c in text if c in ABC]

    def decode(ids):
        return "".join(list(ABC)[i] for i in ids)
    case("characters by hand", {"vocab.json": ABC}, [other], encode, decode, texts=own)
    case("characters and no merges", {"vocab.json": ABC, "merges.txt": "#version: 0.2\n"}, [other], encode, decode,
         texts=own)
    case("words without merges", {"vocab.json": {**ABC, "the": len(ABC)}},
         refused="there is a vocab.json but no merges.txt in")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_alone = {c: i for i, c in enumerate(alphabet)}
    case("bytes without merges", {"vocab.json": {**bytes_alone, "<|endoftext|>": 256}, "merges.txt": "#version: 0.2\n"})
    with open(os.path.join(HERE, "lossy.tsv"), "w", encoding="utf-8") as f:
        for line in lines:
            assert not any("\t" in word or "\n" in word for word in line), line
            f.write("\t".join(line) + "\n")
    print(f"{sum(line[0] == 'case' for line in lines)} cases, {len(lines)} lines")


if __name__ == "__main__":
    main()
