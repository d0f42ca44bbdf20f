#!/usr/bin/env python3
"""Random vocabularies against Hugging Face's own reader.

    attack_vocabularies.py BUILD [--count 500] [--seed 1] [--keep DIRECTORY]

Each vocabulary is trained by the tokenizers package on random texts in many scripts and written in a
random combination of files with random attributes, by hand or by save_pretrained. attn-convert makes
a model of it, around a random checkpoint of one layer. Then random texts become ids by attn-tokenize
and by transformers' AutoTokenizer, and ids become texts again: all must be the same. Where the
converter refuses, the vocabulary must have an attribute that it says it refuses; where it does not,
there must be none. The counts are printed; a difference without an explanation ends in exit code 1.

Needs numpy, tokenizers and transformers, 4 or 5 (python3 -m venv; pip install transformers).
"""
import argparse, collections, json, os, random, shutil, subprocess, sys, tempfile, unicodedata

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "makers"))
import transformers
from tokenizers import (AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)
from make_convert_fixtures import config, dump, make_weights, write_safetensors

SCRIPTS = [(0x61, 0x7A), (0x41, 0x5A), (0xE0, 0xF6), (0x3B1, 0x3C9), (0x430, 0x44F), (0x5D0, 0x5EA),
           (0x627, 0x64A), (0x905, 0x939), (0xE01, 0xE2E), (0x4E00, 0x4EFF), (0x3041, 0x3096),
           (0xAC00, 0xACFF), (0x1F600, 0x1F640), (0x30, 0x39), (0x660, 0x669), (0x21, 0x2F),
           (0x2010, 0x2027), (0x300, 0x310)]
BLANKS = [" ", " ", " ", " ", "  ", "\n", "\n\n", "\t", "   ", "\u00a0", "\u3000", "\r\n"]
NAMES = ["<s>", "</s>", "<pad>", "<unk>", "<mask>", "<|endoftext|>", "[PAD]", "[CLS]", "<|im_start|>",
         "<|im_end|>", "<br>", "###", "a b", "\u00e9t\u00e9", "\u4e2d\u6587", "\U0001f600", "<a", "<a>", "a>b",
         "Hello", " x", "\n\n", "  ", "12", "'s"]
ROLES = ["bos_token", "eos_token", "unk_token", "pad_token", "mask_token", "sep_token", "cls_token"]


# What the converter says of an attribute, where it is not the attribute's name.
SAYS = {"pre_tokenizer": ("pre_tokenizer", "use_regex"), "alphabet": ("no token for the byte",),
        "disagreement": ("vocab.json", "merges.txt")}
# What chance brings about: added tokens that merges make too, or that are letters of the alphabet.
CHANCE = ("cannot come from merges", "cannot be merged", "can overlap in a text",
          "is a special token by", "stand-ins for bytes", "has no merges")


class Vocabulary:
    """One random vocabulary. `odd` names its attributes that must be refused, and the file that each
    of them is in."""

    def __init__(self, r):
        self.r, self.odd, self.words, self.unknown = r, {}, [], []
        for _ in range(60):
            low, high = r.choice(SCRIPTS)
            self.words.append("".join(chr(r.randint(low, high)) for _ in range(r.randint(1, 6))))
        self.train()
        self.decorate()

    def sometimes(self, share, what=None, file="tokenizer.json"):
        """True in this share of all cases; `what` is then an attribute to be refused."""
        hit = self.r.random() < share
        if hit and what:
            self.odd[what] = file
        return hit

    def text(self, n):
        parts = []
        for _ in range(self.r.randint(1, n)):
            kind = self.r.random()
            if kind < 0.12 and self.added:
                parts.append(self.r.choice(self.added))
            elif kind < 0.2:
                c = chr(self.r.choice([self.r.randint(1, 0x2FF), self.r.randint(0x3000, 0xD7FF),
                                       self.r.randint(0x10000, 0x1FFFF)]))
                # a newer Unicode than attn.h's may call it a letter by now
                parts.append(c if unicodedata.category(c) != "Cn" else "?")
            elif kind < 0.25:
                parts.append(self.r.choice(["'s", "n't", "'LL", "'ve been", "x" * self.r.randint(1, 40)]))
            else:
                parts.append(self.r.choice(self.words))
            if self.r.random() < 0.7:
                parts.append(self.r.choice(BLANKS))
        return "".join(parts)

    def token(self, name, special):
        flags = {}
        for flag in ("lstrip", "rstrip", "single_word"):
            if self.sometimes(0.008, flag, "flags"):
                flags[flag] = True
        if self.sometimes(0.2):
            flags["normalized"] = self.r.random() < 0.5
        return AddedToken(name, special=special, **flags)

    def train(self):
        r = self.r
        self.added = r.sample(NAMES, r.randint(0, 6))
        n_first = r.randint(0, len(self.added))
        model = {}
        if self.sometimes(0.1):
            model["fuse_unk"] = True
        if self.sometimes(0.1) and self.added:
            model["unk_token"] = self.added[0]
            n_first = max(n_first, 1)
        if self.sometimes(0.05):
            model["byte_fallback"] = True
        if self.sometimes(0.02, "dropout"):
            model["dropout"] = 0.3
        if self.sometimes(0.02, "ignore_merges"):
            model["ignore_merges"] = True
        self.tokenizer = t = Tokenizer(models.BPE(**model))
        space = self.sometimes(0.03, "add_prefix_space")
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
        if self.sometimes(0.02, "pre_tokenizer"):
            t.pre_tokenizer = r.choice([pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
                                        pre_tokenizers.Sequence([pre_tokenizers.Digits(), t.pre_tokenizer])])
        t.decoder = decoders.ByteLevel()
        if self.sometimes(0.03, "normalizer"):
            t.normalizer = r.choice([normalizers.NFC(), normalizers.Lowercase(), normalizers.NFKC()])
        first = [self.token(name, True) for name in self.added[:n_first]]
        options = {}
        if self.sometimes(0.03, "end_of_word_suffix"):
            options["end_of_word_suffix"] = "</w>"
        if self.sometimes(0.3):
            options["min_frequency"] = r.randint(1, 5)
        if not self.sometimes(0.03, "alphabet", "vocab.json"):
            options["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
        listed = self.added
        if not self.sometimes(0.1): # else merges may make them as well, which is refused
            self.added = []
        lines = [self.text(12) for _ in range(120)]
        self.added = listed
        t.train_from_iterator(lines, trainers.BpeTrainer(
            vocab_size=r.randint(260, 700), special_tokens=first, show_progress=False, **options))
        self.own = t.get_vocab_size(with_added_tokens=False)
        for name in self.added[n_first:]:
            special = self.sometimes(0.6)
            (t.add_special_tokens if special else t.add_tokens)([self.token(name, special)])

    def decorate(self):
        """What stands around a text, and what no id depends on."""
        r, t = self.r, self.tokenizer
        self.first = None
        names = [name for name in self.added if t.token_to_id(name) is not None]
        ids = {name: t.token_to_id(name) for name in names}
        t.post_processor = r.choice([None, processors.ByteLevel(trim_offsets=False)])
        if self.sometimes(0.1) and names:
            name = r.choice(names)
            self.first = ids[name]
            t.post_processor = processors.TemplateProcessing(
                single=f"{name} $A", special_tokens=[(name, ids[name])]) if " " not in name else None
            self.first = self.first if " " not in name else None
        elif self.sometimes(0.03) and len(names) > 1:
            self.odd["post_processor"] = "tokenizer.json"
            a, b = names[:2]
            t.post_processor = processors.RobertaProcessing((a, ids[a]), (b, ids[b]))
        if self.sometimes(0.1):
            t.enable_truncation(max_length=512)
        if self.sometimes(0.1):
            t.enable_padding(length=None)

    def settings(self):
        """tokenizer_config.json and special_tokens_map.json, each of which may be missing."""
        r, t = self.r, self.tokenizer
        tokens = {id: token for id, token in t.get_added_tokens_decoder().items()}
        contents = [token.content for token in tokens.values()]
        cfg = {"tokenizer_class": r.choice(["GPT2Tokenizer", "PreTrainedTokenizerFast"])}
        named = {}
        for role in r.sample(ROLES, r.randint(0, 4)):
            if contents:
                where = r.choice([cfg, named])
                where[role] = r.choice(contents)
        if self.sometimes(0.05):
            cfg["pad_token"] = "<|without id|>"
            self.unknown.append("<|without id|>")
        if self.sometimes(0.4):
            cfg["added_tokens_decoder"] = {str(id): {
                "content": k.content, "lstrip": k.lstrip, "rstrip": k.rstrip, "normalized": k.normalized,
                "single_word": k.single_word, "special": k.special} for id, k in tokens.items()}
        for key, value in (("add_prefix_space", True), ("do_lower_case", True), ("add_eos_token", True)):
            if self.sometimes(0.01, key, "tokenizer_config.json"):
                cfg[key] = value
        if self.sometimes(0.02, "tokenizer_class", "tokenizer_config.json"):
            cfg["tokenizer_class"] = r.choice(["RobertaTokenizer", "BartTokenizer"])
        if self.sometimes(0.1):
            cfg["chat_template"] = "{% for m in messages %}{{ m.content }}{% endfor %}"
        if self.sometimes(0.1):
            cfg["clean_up_tokenization_spaces"] = True
        return cfg if self.sometimes(0.8) else None, named if self.sometimes(0.5) else None

    def write(self, where):
        """The files. By hand, or as transformers saves them."""
        r = self.r
        os.makedirs(where)
        whole = json.loads(self.tokenizer.to_str())
        self.files = r.choice(["whole", "whole", "both", "both", "pair", "saved"])
        cfg, named = self.settings()
        if self.files == "saved":
            cfg = None
            roles = {role: r.choice(self.added) for role in ROLES[:3] if self.added and r.random() < 0.7}
            kind = r.choice([transformers.PreTrainedTokenizerFast, transformers.GPT2TokenizerFast])
            own = kind(tokenizer_object=self.tokenizer, **roles)
            own.save_pretrained(where)
        else:
            if self.files != "pair":
                dump(os.path.join(where, "tokenizer.json"), whole, ensure_ascii=r.random() < 0.5)
            if self.files != "whole":
                self.write_pair(where, whole)
            if self.files == "pair" or self.sometimes(0.2):
                more = {k["content"]: k["id"] for k in whole["added_tokens"] if k["id"] >= self.own}
                dump(os.path.join(where, "added_tokens.json"), more)
            if cfg is not None:
                dump(os.path.join(where, "tokenizer_config.json"), cfg)
            if named is not None:
                dump(os.path.join(where, "special_tokens_map.json"), named)
        written = {"tokenizer.json": self.files != "pair", "vocab.json": True,
                   "tokenizer_config.json": cfg is not None,
                   "flags": self.files != "pair" or bool(cfg and "added_tokens_decoder" in cfg)}
        self.odd = {what: file for what, file in self.odd.items() if written[file]}
        n = 1 + max(self.tokenizer.get_vocab(with_added_tokens=True).values())
        n += r.choice([0, 0, 8])
        ends = {"bos_token_id": self.first, "eos_token_id": None}
        dump(os.path.join(where, "config.json"), config(16, None, 1, 8, n, 2, **ends))
        weights = make_weights(16, 64, 1, 8, n, 1)
        write_safetensors(os.path.join(where, "model.safetensors"),
                          {k: ("F32", a.shape, a.tobytes()) for k, a in weights.items()})

    def write_pair(self, where, whole):
        tokens, merges = dict(whole["model"]["vocab"]), list(whole["model"]["merges"])
        if self.files == "both" and self.sometimes(0.06, "disagreement", "vocab.json"):
            kind = self.r.randint(0, 3)
            if kind == 0:
                a, b = self.r.sample(sorted(tokens), 2)
                tokens[a], tokens[b] = tokens[b], tokens[a]
            elif kind == 1 and len(merges) > 1:
                merges[0], merges[-1] = merges[-1], merges[0]
            elif kind == 2:
                merges = merges[:-1]
            else:
                tokens["\u0120\u0120\u0120new"] = len(tokens) + 50
        dump(os.path.join(where, "vocab.json"), tokens, ensure_ascii=self.r.random() < 0.5)
        with open(os.path.join(where, "merges.txt"), "w", encoding="utf-8") as f:
            f.write("#version: 0.2\n" + "".join((m if isinstance(m, str) else " ".join(m)) + "\n"
                                               for m in merges))


def stand_in(c):
    """Is this one of the characters that spell a byte?"""
    return 33 <= ord(c) <= 126 or 161 <= ord(c) <= 323 and ord(c) != 173


class Attack:
    def __init__(self, build):
        self.build, self.counts, self.failures = build, collections.Counter(), []

    def run(self, *command, data=None):
        return subprocess.run(command, input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def fail(self, seed, what):
        self.failures.append((seed, what))
        print(f"seed {seed}: {what}")

    def one(self, seed, where):
        v = Vocabulary(random.Random(seed))
        v.write(where)
        out = os.path.join(where, "x.attn")
        made = self.run(os.path.join(self.build, "attn-convert"), where, out)
        said = made.stderr.decode()
        try:
            theirs = transformers.AutoTokenizer.from_pretrained(where)
        except Exception as error:
            reason = ", ".join(sorted(v.odd)) or type(error).__name__
            self.counts["transformers do not load it: " + reason] += 1
            theirs = None
        if made.returncode:
            return self.refused(seed, v, said.strip().splitlines()[-1])
        self.counts["converted (" + v.files + ")"] += 1
        if theirs:
            self.compare(seed, v, said, theirs, out)

    def refused(self, seed, v, said):
        """A refusal needs a reason that was put there, or that chance made: those are counted."""
        reason = next((o for o in v.odd if any(s in said for s in SAYS.get(o, (o,)))), None)
        chance = next((c for c in CHANCE if c in said), None)
        if reason or chance:
            self.counts["refused: " + (reason or chance + " (by chance)")] += 1
        else:
            self.fail(seed, "refused without a reason: " + said)

    def compare(self, seed, v, said, theirs, out):
        tool = os.path.join(self.build, "attn-tokenize")
        if v.odd and v.files != "saved": # transformers may not have saved it
            self.fail(seed, f"{v.files}: converted in spite of {sorted(v.odd)}")
        texts = [v.text(14) for _ in range(12)] + [" ".join(v.added)]
        for text in texts:
            if any(u in text for u in v.unknown):
                continue
            ours = self.run(tool, out, "--special", "--prompt", text) if "\0" not in text else None
            ids = [int(i) for i in ours.stdout.split()] if ours and ours.returncode == 0 else None
            want = theirs(text, add_special_tokens=False)["input_ids"]
            self.counts["texts"] += 1
            if ids != want:
                self.counts["texts that differ"] += 1
                self.fail(seed, f"{v.files} {sorted(v.odd)} {text!r}: {ids}, but {want}")
                return
            full = theirs(text)["input_ids"]
            first = [v.first] if "texts shall begin with" in said and v.first is not None else []
            if full != first + want:
                self.fail(seed, f"around {text!r} transformers put {full}, expected {first} + {want}")
                return
            back = self.run(tool, out, "--decode", data=" ".join(map(str, ids)).encode()).stdout
            plain = theirs.decode(ids, clean_up_tokenization_spaces=False)
            if back != text.encode():
                self.fail(seed, f"{text!r} comes back as {back!r}")
            if plain != text:
                odd = [a for a in v.added if a in text and not a.isascii() and all(map(stand_in, a))]
                self.counts["decoded otherwise by transformers, " +
                            ("an added token of stand-ins" if odd else "unexplained")] += 1
                if not odd:
                    self.fail(seed, f"{text!r}: transformers decode {plain!r}")


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("build")
    ap.add_argument("--count", type=int, default=500)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--keep", help="leave the files of failures in this directory")
    o = ap.parse_args()
    attack = Attack(o.build)
    with tempfile.TemporaryDirectory() as tmp:
        for seed in range(o.seed, o.seed + o.count):
            where = os.path.join(tmp, str(seed))
            before = len(attack.failures)
            attack.one(seed, where)
            if o.keep and len(attack.failures) > before:
                shutil.copytree(where, os.path.join(o.keep, str(seed)), dirs_exist_ok=True)
            shutil.rmtree(where)
    print(f"transformers {transformers.__version__}, {o.count} vocabularies")
    for what, n in sorted(attack.counts.items()):
        print(f"{n:7}  {what}")
    print(f"{len(attack.failures)} differences without an explanation")
    sys.exit(bool(attack.failures))


if __name__ == "__main__":
    main()
