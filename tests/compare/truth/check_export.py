#!/usr/bin/env python3
"""Opens what `attn-convert MODEL.attn` writes with the libraries it is written for.

    python3 tests/compare/truth/check_export.py BUILD MODEL.attn...    (PyPI: torch, transformers, gguf)

For each model: AutoModelForCausalLM gives the logits of build/gpt2 to 2e-5 of the largest,
AutoTokenizer the ids of build/attn-tokenize, the gguf package reads the same tensors and keys, and
build/attn-convert makes the same file again of both. Exits with 1 if any of that fails.
"""
import filecmp, json, os, subprocess, sys, tempfile
import numpy as np
import torch
from gguf import GGUFReader
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXTS = ["Once upon a time, there was a little girl named Lily.", "a  b\n\n\tc   ", "don't won't 12345",
         "\u00e9\u00e8 \u4e2d\u6587 \U0001f600 \u0000 end", "x <|endoftext|> y", " ", ""]
GGUF_NAMES = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "lm_head": "output",
              "ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
              "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
bad = []


def check(good, what):
    if not good:
        bad.append(what)
        print("FAILED: " + what)


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, **options)


def same_logits(build, path, directory, tmp):
    model = AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager",
                                                 dtype=torch.float32).eval()
    config = model.config
    rng = np.random.default_rng(1)
    ids = rng.integers(0, config.vocab_size, min(config.n_positions - 1, 40)).tolist()
    npy = os.path.join(tmp, "logits.npy")
    run(os.path.join(build, "gpt2"), path, "--ids", " ".join(map(str, ids)), "-n", "1", "--temperature",
        "0", "--logits", npy, "--quiet")
    ours = np.load(npy)[:len(ids)]
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0].numpy()[:len(ours)]
    error = np.abs(ours - theirs).max() / np.abs(theirs).max()
    check(error < 2e-5, f"{path}: logits differ by {error:.3g}")
    return model


def same_tokens(build, path, directory):
    tokenizer = AutoTokenizer.from_pretrained(directory)
    for text in TEXTS:
        ours = run(os.path.join(build, "attn-tokenize"), path, "--special", input=text.encode()).stdout
        ours = [int(x) for x in ours.split()]
        theirs = tokenizer(text)["input_ids"]
        check(ours == theirs, f"{path}: {text!r}: {ours} and {theirs}")
        check(tokenizer.decode(theirs) == text, f"{path}: {text!r} decoded: {tokenizer.decode(theirs)!r}")


def gguf_name(name):
    name = name.removeprefix("transformer.")
    for old, new in GGUF_NAMES.items():
        name = name.replace(old + ".", new + ".")
    return "blk." + name[2:] if name.startswith("h.") else name


def same_gguf(path, file, model):
    reader = GGUFReader(file)
    tensors = {t.name: t.data for t in reader.tensors}
    tied = model.config.tie_word_embeddings
    weights = {k: v for k, v in model.state_dict().items() if not (tied and k == "lm_head.weight")}
    check(sorted(tensors) == sorted(map(gguf_name, weights)), f"{path}: names of GGUF's tensors")
    for name, value in weights.items():
        value = value.t() if ".c_" in name and value.ndim == 2 else value
        check(np.array_equal(tensors[gguf_name(name)].astype(np.float32), value.numpy()),
              f"{path}: {name} in GGUF")
    for key, value in (("context_length", model.config.n_positions), ("block_count", model.config.n_layer),
                       ("attention.head_count", model.config.n_head)):
        check(reader.get_field("gpt2." + key).contents() == value, f"{path}: {key} in GGUF")
    field = reader.get_field("tokenizer.ggml.tokens")
    check(not field or len(field.contents()) == model.config.vocab_size, f"{path}: tokens in GGUF")


def main():
    build = sys.argv[1]
    convert = os.path.join(build, "attn-convert")
    for path in sys.argv[2:]:
        with tempfile.TemporaryDirectory() as tmp:
            directory, again = os.path.join(tmp, "hf"), os.path.join(tmp, "again.attn")
            run(convert, path, directory)
            model = same_logits(build, path, directory, tmp)
            if os.path.exists(os.path.join(directory, "tokenizer.json")):
                same_tokens(build, path, directory)
            run(convert, directory, again)
            check(filecmp.cmp(path, again, shallow=False), f"{path}: another file from the directory")
            file = os.path.join(tmp, "x.gguf")
            config = model.config
            if config.activation_function != "gelu_new" or not config.scale_attn_weights or \
                    config.scale_attn_by_inverse_layer_idx:
                said = subprocess.run([convert, path, file], capture_output=True)
                check(said.returncode == 1 and b"GGUF's gpt2 has" in said.stderr, f"{path}: {said.stderr}")
                continue
            run(convert, path, file)
            same_gguf(path, file, model)
            run(convert, file, again)
            check(filecmp.cmp(path, again, shallow=False), f"{path}: another file from GGUF")
    print(f"{len(sys.argv) - 2} models, {len(bad)} differences")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
