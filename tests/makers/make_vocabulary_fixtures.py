#!/usr/bin/env python3
"""Makes tests/fixtures/vocabularies: one small vocabulary, and many ways to write it down.

    python3 tests/makers/make_vocabulary_fixtures.py      (transformers 4.57.6, which brings tokenizers)

tokenizer.json, vocab.json and merges.txt are written by the trainer of Hugging Face's tokenizers.
cases.tsv describes directories made of them, one line a step, words between tabs:

    case NAME                   begins a directory
    take FILE                   copies one of the three files
    edit FILE OLD NEW           replaces the first OLD by NEW there
    file FILE TEXT              writes a file
    ids HEX IDS                 the ids that AutoTokenizer gives to this text in UTF-8, as hex
    letters HEX IDS             the same, where special tokens count as their letters
    first ID                    AutoTokenizer puts this id in front of every text
    note TEXT                   the reader of the project must say this
    refused TEXT                or must refuse the directory, with this sentence
"""
import json, os, shutil, tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["HF_HUB_OFFLINE"] = "1"
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures", "vocabularies")
TEXT = ["the cat sat on the mat, and they're not there", "hello world, hello other", "12 34 the end   of   it"]
FIRST = ["<s>", "</s>", "<pad>", "<unk>", "<mask>", "<|endoftext|>"]
WHOLE, TOKENS, MERGES = "tokenizer.json", "vocab.json", "merges.txt"
CONFIG, NAMES, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
TEXTS = ["the <pad> cat</s>", "<s>hello <|endoftext|> there<mask>  x", "caf\u00e9 \u4e2d\u6587\n they're",
         "the <q> end<a>", ""]


def train():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(TEXT * 3, trainers.BpeTrainer(
        vocab_size=310, special_tokens=FIRST, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


class Cases:
    def __init__(self):
        self.lines = []

    def add(self, name, files, steps=(), texts=TEXTS, first=None, notes=(), refused=None, how="ids", ids=None):
        """files: copied; steps: ("edit", FILE, OLD, NEW) and ("file", FILE, TEXT or a JSON value). ids: of
        transformers 5.23, where 4.57.6 has others."""
        rows = [("case", name)] + [("take", f) for f in files]
        with tempfile.TemporaryDirectory() as d:
            for f in files:
                shutil.copy(os.path.join(HERE, f), d)
            with open(os.path.join(d, "config.json"), "w") as f:
                json.dump({"model_type": "gpt2"}, f)
            for step in steps:
                if step[0] == "edit":
                    path = os.path.join(d, step[1])
                    with open(path, encoding="utf-8") as f:
                        old = f.read()
                    assert step[2] in old, (name, step)
                    text = old.replace(step[2], step[3], 1)
                    rows.append(step)
                else:
                    text = step[2] if isinstance(step[2], str) else json.dumps(step[2])
                    rows.append(("file", step[1], text))
                with open(os.path.join(d, step[1]), "w", encoding="utf-8") as f:
                    f.write(text)
            if ids:
                rows += [("ids", text.encode().hex(), ids[text]) for text in ids]
            elif refused is None:
                rows += self.expected(d, texts, first, how)
            else:
                rows.append(("refused", refused))
        rows += [("note", n) for n in notes]
        for row in rows:
            assert not any("\t" in w or "\n" in w for w in row), row
            self.lines.append("\t".join(row))

    def expected(self, d, texts, first, how):
        t = AutoTokenizer.from_pretrained(d)
        rows = [] if first is None else [("first", str(first))]
        for text in texts:
            ids = t(text, add_special_tokens=False)["input_ids"]
            assert t(text)["input_ids"] == ([] if first is None else [first]) + ids
            rows.append((how, text.encode().hex(), " ".join(map(str, ids))))
        return rows


def added(id, content, **flags):
    entry = {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
    entry.update(flags)
    return json.dumps(entry)


def good(c, n):
    """Directories that are read, with the ids that transformers give."""
    null = '"post_processor": null'
    c.add("tokenizer.json alone", [WHOLE])
    c.add("the pair alone", [TOKENS, MERGES])
    c.add("tokenizer.json beside the pair", [WHOLE, TOKENS, MERGES])
    c.add("tokenizer.json beside vocab.json", [WHOLE, TOKENS])
    c.add("tokenizer.json beside merges.txt", [WHOLE, MERGES])
    flags = {"lstrip": False, "normalized": True, "rstrip": False, "single_word": False}
    c.add("names", [TOKENS, MERGES], [("file", NAMES, {
        "bos_token": "<s>", "eos_token": {"content": "</s>", **flags}, "pad_token": "<pad>",
        "additional_special_tokens": ["<mask>", {"content": "<unk>", **flags}]})])
    c.add("names in the settings", [TOKENS, MERGES], [("file", CONFIG, {
        "bos_token": "<s>", "eos_token": {"content": "</s>", "__type": "AddedToken", **flags},
        "pad_token": "<pad>", "sep_token": None, "mask_token": "<mask>"})])
    three = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": None}
    c.add("other names for all of its roles", [TOKENS, MERGES], [("file", CONFIG, three)])
    c.add("other names in both files", [TOKENS, MERGES], [
        ("file", CONFIG, {"unk_token": "<unk>"}), ("file", NAMES, {"bos_token": "<s>", "eos_token": "<s>"})])
    c.add("other names for two of its roles", [TOKENS, MERGES], [
        ("file", CONFIG, {"bos_token": "<s>", "eos_token": "</s>"})])
    c.add("a role of the model's own", [TOKENS, MERGES], [("file", CONFIG, {
        "image_token": "<mask>", "hole_token": {"content": "<pad>", "__type": "AddedToken", **flags},
        "no_token": {"content": "<unk>"}, "least_token": 5, "add_bos_token": False})],
        ids={"<mask><pad>": "4 2", "<unk>": "33 90 83 80 35"})
    c.add("named groups", [WHOLE, TOKENS, MERGES], [("file", CONFIG, {
        "extra_special_tokens": {"hole": "<mask>"}, "additional_special_tokens": ["</s>"]})])
    c.add("added_tokens.json", [TOKENS, MERGES], [("file", ADDED, {"<q>": n, "<a>": n + 1})],
          notes=['2 added tokens are not special ("<q>", ...)'])
    c.add("no added tokens", [TOKENS, MERGES], [("file", ADDED, {}), ("file", NAMES, {})])
    entry = {"content": "<q>", "special": True, "normalized": False, **{k: False for k in
             ("lstrip", "rstrip", "single_word")}}
    c.add("added_tokens_decoder", [TOKENS, MERGES], [("file", CONFIG, {"added_tokens_decoder": {
        str(n): entry, str(n + 1): {**entry, "content": "<a>", "special": False}}})],
        notes=['1 added tokens are not special ("<a>")'])
    c.add("an entry that repeats a token", [WHOLE], [("file", CONFIG, {"added_tokens_decoder": {
        str(n): entry, "2": {**entry, "content": "<pad>"}}})],
        notes=['"<s>" (id 0) and others are special by other files'])
    c.add("an entry too few", [TOKENS, MERGES], [("file", CONFIG, {
        "added_tokens_decoder": {"2": {**entry, "content": "<pad>"}}, "bos_token": "<s>"}), ("file", NAMES, {
            "mask_token": "<mask>"})], texts=["<pad> the"],
        notes=['"<mask>" (id 4) is special by other files'])
    c.add("new in tokenizer.json", [WHOLE], [("edit", WHOLE, '], "normalizer"', ", " + added(
        n, "<q>") + "," + added(n + 1, "<a>", special=False, normalized=True) + '], "normalizer"')],
        notes=["1 added tokens are not special"])
    with open(os.path.join(HERE, TOKENS), encoding="utf-8") as f:
        assert "\u0120\u0120" in json.load(f)
    c.add("the bytes of an ordinary token", [TOKENS, MERGES], [("file", ADDED, {"  ": n})],
          texts=["a  b   c", "a   b"], notes=["1 added tokens are not special"])
    c.add("both passes, apart", [WHOLE], [("edit", WHOLE, '], "normalizer"', ", " + added(
        n, "ab", normalized=True) + "," + added(n + 1, "cd") + '], "normalizer"')],
        texts=["abcd", "acdb", "ab cd abab"])
    c.add("rules that need nothing", [WHOLE], [
        ("edit", WHOLE, '"unk_token": null', '"unk_token": "<unk>"'),
        ("edit", WHOLE, '"fuse_unk": false', '"fuse_unk": true'),
        ("edit", WHOLE, '"byte_fallback": false', '"byte_fallback": true')])
    c.add("empty rules", [WHOLE], [
        ("edit", WHOLE, '"dropout": null', '"dropout": 0.0'),
        ("edit", WHOLE, '"continuing_subword_prefix": null', '"continuing_subword_prefix": ""'),
        ("edit", WHOLE, '"end_of_word_suffix": null', '"end_of_word_suffix": ""'),
        ("edit", WHOLE, '"normalizer": null', '"normalizer": {"type": "Sequence", "normalizers": []}')])
    c.add("an older tokenizer.json", [WHOLE], [
        ("edit", WHOLE, '"type": "BPE",', ""), ("edit", WHOLE, '"fuse_unk": false,', ""),
        ("edit", WHOLE, '"byte_fallback": false,', ""), ("edit", WHOLE, '"ignore_merges": false,', "")])
    c.add("truncation and padding", [WHOLE], [
        ("edit", WHOLE, '"truncation": null', '"truncation": {"direction": "Right", "max_length": 2, '
         '"strategy": "LongestFirst", "stride": 0}'),
        ("edit", WHOLE, '"padding": null', '"padding": {"strategy": {"Fixed": 9}, "direction": "Right", '
         '"pad_to_multiple_of": null, "pad_id": 2, "pad_type_id": 0, "pad_token": "<pad>"}')])
    bytelevel = '{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true}'
    c.add("offsets", [WHOLE], [("edit", WHOLE, null, '"post_processor": ' + bytelevel)])
    one = ('"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}',
           '"decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}')
    sequences = [("edit", WHOLE, old, '"%s": {"type": "Sequence", "%ss": [%s]}' % (
        key, key.replace("_", ""), old.split(": ", 1)[1])) for key, old in zip(("pre_tokenizer", "decoder"), one)]
    c.add("sequences of one", [WHOLE], sequences)
    bos, text = '{"SpecialToken": {"id": "<s>", "type_id": 0}}', '{"Sequence": {"id": "A", "type_id": 0}}'
    tokens = '"special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}'
    template = '{"type": "TemplateProcessing", "single": [%s], "pair": [], ' + tokens + "}"
    begins = 'texts shall begin with "<s>" (id 0)'
    c.add("a template", [WHOLE], [("edit", WHOLE, null, '"post_processor": ' + template % (
        bos + ", " + text))], first=0, notes=[begins])
    c.add("a template of the text alone", [WHOLE], [("edit", WHOLE, null, '"post_processor": ' + template % text)])
    c.add("a sequence of processors", [WHOLE], [("edit", WHOLE, null, (
        '"post_processor": {"type": "Sequence", "processors": [%s, %s]}' % (bytelevel, template % (
            bos + ", " + text))))], first=0, notes=[begins])
    c.add("add_bos_token", [TOKENS, MERGES], [("file", CONFIG, {"add_bos_token": True, "bos_token": "<s>"})],
          first=0, notes=[begins])
    c.add("add_bos_token without a name", [TOKENS, MERGES], [("file", CONFIG, {"add_bos_token": True})],
          first=5, notes=['texts shall begin with "<|endoftext|>" (id 5)'])
    c.add("add_bos_token beside tokenizer.json", [WHOLE], [("file", CONFIG, {"add_bos_token": True})])
    for kind in ("GPT2TokenizerFast", "PreTrainedTokenizerFast"):
        c.add("class " + kind, [WHOLE], [("file", CONFIG, {"tokenizer_class": kind})])
        c.add(kind + " and its end of text", [WHOLE], [
            ("file", CONFIG, {"tokenizer_class": kind}),
            ("edit", WHOLE, ', {"id": 5, "content": "<|endoftext|>", "single_word": false, "lstrip": false, '
             '"rstrip": false, "normalized": false, "special": true}', "")])
    c.add("class in config.json", [WHOLE], [("file", "config.json", {
        "model_type": "gpt2", "tokenizer_class": "GPT2Tokenizer"})])
    c.add("spaces before punctuation", [WHOLE], [("file", CONFIG, {"clean_up_tokenization_spaces": True})],
          notes=["clean_up_tokenization_spaces"])
    c.add("letters", [WHOLE], [("file", CONFIG, {"split_special_tokens": True})], how="letters")
    c.add("a chat template", [WHOLE], [("file", CONFIG, {"chat_template": "{{ messages }}"})],
          notes=["tokenizer_config.json has a chat template"])
    c.add("a chat template beside it", [WHOLE], [("file", "chat_template.jinja", "{{ messages }}")],
          notes=["chat_template.jinja has a chat template"])
    c.add("more chat templates", [WHOLE], [("file", "additional_chat_templates", "")],
          notes=["additional_chat_templates has a chat template"])
    c.add("a name without an id", [WHOLE], [("file", NAMES, {"pad_token": "<none>", "cls_token": "<no>"})],
          notes=['special_tokens_map.json names "<none>" as pad_token, but no file gives it an id: it is '
                 "left out, and so are others"])


def shortened():
    """tokenizer.json without its last merge."""
    with open(os.path.join(HERE, WHOLE), encoding="utf-8") as f:
        value = json.load(f)
    value["model"]["merges"].pop()
    return value


def bad(c, n):
    """Directories that are refused, with the beginning of the reason."""
    def whole(name, old, new, refused, files=(WHOLE,)):
        c.add(name, files, [("edit", WHOLE, old, new)], refused=refused)

    def config(name, value, refused, files=(WHOLE,)):
        c.add(name, files, [("file", CONFIG, value)], refused=refused)

    pair, all_files = (TOKENS, MERGES), (WHOLE, TOKENS, MERGES)
    whole("a normalizer", '"normalizer": null', '"normalizer": {"type": "NFC"}',
          "tokenizer.json: it has a normalizer, so texts are changed first", all_files)
    whole("another pre_tokenizer", '"type": "ByteLevel"', '"type": "Whitespace"',
          "its pre_tokenizer is not ByteLevel", all_files)
    whole("a sequence of two", '"pre_tokenizer": {"type": "ByteLevel"', '"pre_tokenizer": {"type": "Sequence", '
          '"pretokenizers": [{"type": "Digits", "individual_digits": true}, {"type": "ByteLevel"}], "x": "ByteLevel"',
          "its pre_tokenizer is not ByteLevel")
    whole("no pattern", '"use_regex": true', '"use_regex": false', "use_regex is false", all_files)
    whole("another decoder", '"decoder": {"type": "ByteLevel"', '"decoder": {"type": "BPEDecoder"',
          "its decoder is not ByteLevel")
    whole("dropout", '"dropout": null', '"dropout": 0.1', "it has a dropout, so merges are left out")
    whole("words before merges", '"ignore_merges": false', '"ignore_merges": true', "ignore_merges is true")
    whole("a prefix within words", '"continuing_subword_prefix": null', '"continuing_subword_prefix": "##"',
          "it has a continuing_subword_prefix")
    whole("a suffix of words", '"end_of_word_suffix": null', '"end_of_word_suffix": "</w>"',
          "it has an end_of_word_suffix")
    whole("a rule from the future", '"ignore_merges": false', '"soft_merges": [1]',
          'the model has a rule "soft_merges", which attn-convert does not know')
    whole("another model", '"type": "BPE"', '"type": "Unigram"', "its model is not BPE")
    for flag, done in (("lstrip", "takes the blanks before it away"), ("rstrip", "behind it away"),
                       ("single_word", "is not found within words")):
        says = f'the token "<s>" has {flag}, so it '
        whole(flag, f'"{flag}": false', f'"{flag}": true', "tokenizer.json: " + says)
        config(flag + " in the settings", {"bos_token": {"content": "<s>", flag: True}},
               "tokenizer_config.json: " + says)
        config(flag + " of an entry", {"added_tokens_decoder": {"0": {"content": "<s>", flag: True}}}, done)
        c.add(flag + " of a name", pair, [("file", NAMES, {"bos_token": {"content": "<s>", flag: True}})],
              refused="special_tokens_map.json: " + says)
    null = '"post_processor": null'
    whole("tokens around a text", null, '"post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 1], '
          '"cls": ["<s>", 0]}', "its post_processor is neither ByteLevel nor a template")
    part, text = '{"SpecialToken": {"id": "%s", "type_id": 0}}', '{"Sequence": {"id": "A", "type_id": 0}}'
    template = ('"post_processor": {"type": "TemplateProcessing", "single": [%s, %s, %s], "pair": [], '
                '"special_tokens": {"<s>": {"id": "<s>", "ids": [%s], "tokens": []}}}')
    says = "its post_processor gives something else than the text once"
    whole("a token behind a text", null, template % (part % "<s>", text, part % "<s>", "0"), says)
    whole("two tokens", null, template % (part % "<s>", part % "<s>", text, "0"), says)
    whole("two ids", null, template % (part % "<s>", text, text, "0, 1"), says)
    whole("no ids", null, template % (part % "<x>", text, text, "0"), says)
    whole("an id that is none", null, template % (part % "<s>", text, text, "5000"), says)
    whole("the text twice", null, template.replace("%s, %s, %s", "%s, %s", 1) % (text, text, "0"), says)
    whole("no text", null, template.replace("%s, %s, %s", "", 1) % "0", says)
    whole("a token alone", null, template.replace("%s, %s, %s", "%s", 1) % (part % "<s>", "0"), says)
    whole("a text after the first", null, template.replace("%s, %s, %s", "%s", 1) % (
        text.replace('"A"', '"B"'), "0"), says)
    whole("a sequence of nothing", null, '"post_processor": {"type": "Sequence"}', "is neither ByteLevel nor")
    deep = '{"type": "Sequence", "processors": [%s]}'
    whole("processors within processors", null, '"post_processor": ' + deep % (deep % (deep % (deep % (
        deep % "null")))), "is neither ByteLevel nor")
    config("small letters", {"do_lower_case": True}, "do_lower_case is true")
    config("an end behind texts", {"add_eos_token": True}, "add_eos_token is true")
    config("another class", {"tokenizer_class": "RobertaTokenizer"},
           "tokenizer_config.json: tokenizer_class is RobertaTokenizer", all_files)
    config("a class that is none", {"tokenizer_class": ["GPT2Tokenizer"]}, "tokenizer_class is ")
    c.add("another class in config.json", [WHOLE], [("file", "config.json", {"tokenizer_class": "T5Tokenizer"})],
          refused="config.json: tokenizer_class is T5Tokenizer")
    config("a program", {"auto_map": {"AutoTokenizer": ["a.B", None]}}, "auto_map names a program")
    config("entries that are none", {"added_tokens_decoder": [1]}, "added_tokens_decoder is not an object")
    for key, value in (("", "<q>"), ("x", "<q>"), ("1048576", "<q>"), (str(n), ""), (str(n), 5)):
        config(f"an entry {key!r} of {value!r}", {"added_tokens_decoder": {key: {"content": value}}},
               f'the entry "{key}" of added_tokens_decoder has no usable id and content')
    config("a name that is none", {"pad_token": 5}, "tokenizer_config.json: pad_token is not the text of a token")
    c.add("names that are none", pair, [("file", NAMES, {"additional_special_tokens": [["<s>"]]})],
          refused="special_tokens_map.json: additional_special_tokens is not the text of a token")
    c.add("files that disagree on an id", all_files, [("edit", TOKENS, '"<s>":0', '"<s>":900')],
          refused='the token "<s>" has id 900 in vocab.json and id 0 in tokenizer.json')
    c.add("a token in vocab.json alone", all_files, [("edit", TOKENS, '"<s>":0', '"<s>":0,"new":900')],
          refused='the token "new" has id 900 in vocab.json and is not in tokenizer.json')
    c.add("a token in tokenizer.json alone", all_files, [("edit", TOKENS, '"!":6,', "")],
          refused='the token "!" has id 6 in tokenizer.json and is not in vocab.json')
    with open(os.path.join(HERE, MERGES), encoding="utf-8") as f:
        lines = f.read().split("\n")
    a, b = lines[1:3]
    c.add("another merge", all_files, [("edit", MERGES, a, b)],
          refused=f'merges.txt, line 2 is "{b}", but merge 0 of tokenizer.json is "{a}"')
    c.add("a merge too few", (WHOLE, MERGES), [("edit", MERGES, lines[-2], "")],
          refused=f"merges.txt has {len(lines) - 3} merges, but tokenizer.json {len(lines) - 2}")
    c.add("a merge too many", (WHOLE, MERGES), [("edit", MERGES, lines[-2], lines[-2] + " x")],
          refused=f"merges.txt, line {len(lines) - 1} is")
    c.add("merges without an end", (WHOLE, MERGES), [("file", WHOLE, shortened())],
          refused=f'merges.txt, line {len(lines) - 1} is "{lines[-2]}", but tokenizer.json has only')
    for name, files, steps in (
            ("in added_tokens.json", pair, [("file", ADDED, {"<q>": n + 1})]),
            ("in the settings", (WHOLE,), [("file", CONFIG, {"added_tokens_decoder": {
                str(n + 1): {"content": "<q>"}}})])):
        c.add("a gap " + name, files, steps, refused=f'gives the added token "<q>" id {n + 1}, but transformers '
              f"would give it id {n}")
    whole("ids out of order", '], "normalizer"', ", " + added(n + 1, "<q>") + "," + added(n, "<a>") +
          '], "normalizer"', f"entry 7 of added_tokens has id {n}, behind one with id {n + 1}")
    for a, b in (("ab", "bc"), ("xaby", "ab"), ("abc", "ab"), ("xabc", "abcd")):
        whole(f"{a} and {b} overlap", '], "normalizer"', ", " + added(n, a, normalized=True) + "," +
              added(n + 1, b) + '], "normalizer"', f'the added tokens "{a}" and "{b}" can overlap in a text')
    c.add("two ids for a token", (WHOLE,), [("file", ADDED, {"<s>": 7})],
          refused="added_tokens.json: the tokens \"\"\" of tokenizer.json and \"<s>\" both have id 7")
    c.add("another id for a token", (WHOLE,), [("file", ADDED, {"<s>": n})],
          refused=f'added_tokens.json: the token "<s>" has two ids, 0 in tokenizer.json and {n}')
    c.add("a stand-in", pair, [("file", ADDED, {"\u00e9": n})],
          refused=f'added_tokens.json: the token "\u00e9" has two ids, 171 in vocab.json and {n}')
    c.add("a byte's token", pair, [("file", NAMES, {"pad_token": "!"})],
          refused='"!" (id 6) is a special token by special_tokens_map.json, but texts need it for the byte 21')
    c.add("a byte's token of two bytes", pair, [("file", NAMES, {"pad_token": "\u00df"})],
          refused='"\u00df" (id 161) is a special token by special_tokens_map.json, but texts need it for the byte df')
    c.add("a token of merges", pair, [("file", NAMES, {"pad_token": "the"})],
          refused='makes "the", a special token by special_tokens_map.json')
    part = next(a for a in " ".join(lines[1:]).split(" ") if len(a) > 1)
    c.add("a part of merges", pair, [("file", NAMES, {"pad_token": part})],
          refused=f'makes "{part}", a special token by special_tokens_map.json')
    part = next(a for a in "abcdefghijklmnopqrstuvwxyz" if f" {a}" in " ".join(lines[1:]))
    c.add("a letter of merges", pair, [("file", NAMES, {"pad_token": part})],
          refused=f'"{part}" is a special token by special_tokens_map.json, and those cannot be merged')
    c.add("other kinds", (), [("file", "spiece.model", "x")], refused="; spiece.model is of another kind")
    c.add("nothing", (), [], refused="neither vocab.json with merges.txt nor tokenizer.json in ")


def main():
    os.makedirs(HERE, exist_ok=True)
    t = train()
    with open(os.path.join(HERE, WHOLE), "w", encoding="utf-8") as f:
        json.dump(json.loads(t.to_str()), f, ensure_ascii=False)
        f.write("\n")
    t.model.save(HERE)
    c = Cases()
    n = t.get_vocab_size()
    good(c, n)
    bad(c, n)
    with open(os.path.join(HERE, "cases.tsv"), "w", encoding="utf-8") as f:
        f.write("\n".join(c.lines) + "\n")
    print(f"{sum(line.startswith('case') for line in c.lines)} cases around {n} tokens")


if __name__ == "__main__":
    main()
