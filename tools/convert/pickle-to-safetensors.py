#!/usr/bin/env python3
"""Turns a pickled PyTorch checkpoint of GPT-2 into a directory that attn-convert reads.

    pickle-to-safetensors.py INPUT OUTPUT_DIR [--trust]

INPUT is one of
    a Hugging Face directory with pytorch_model.bin (or shards with pytorch_model.bin.index.json)
    a pytorch_model.bin beside its config.json
    a ckpt.pt written by nanoGPT: its linear layers are [out, in] and are transposed, missing biases
    become zeros, and config.json is made from model_args

OUTPUT_DIR gets model.safetensors, config.json and copies of vocab.json, merges.txt, tokenizer.json
and added_tokens.json where there are any. Needs Python 3.7 and PyTorch, and memory for the weights.

A pickle can run code when it is loaded. With PyTorch 2.6 or later this script has it load nothing
but tensors and plain values; what older versions have for that can be made to run code all the same
(CVE-2025-32434), so with them the script loads nothing. --trust loads whatever there is, with any
version, for files that you trust.
"""
import argparse
import json
import os
import re
import shutil
import struct
import sys

import torch

DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
LINEAR = re.compile(r"h\.\d+\.(attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj)\.weight")
MASK = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")
PREFIXES = re.compile(r"^(_orig_mod\.|module\.|model\.|transformer\.)+(?=.)")
VOCABULARY = ("vocab.json", "merges.txt", "tokenizer.json", "added_tokens.json",
              "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def fail(message):
    sys.exit(f"pickle-to-safetensors: {message}")


def load(path, trust):
    version = tuple(int(n) for n in re.match(r"(\d+)\.(\d+)", torch.__version__).groups())
    if not trust and version < (2, 6):
        fail(f"PyTorch {torch.__version__} may run code that is in {path} (CVE-2025-32434); "
             "upgrade to 2.6, or give --trust if you trust the file")
    options = {"map_location": "cpu"}
    if version >= (1, 13):
        options["weights_only"] = not trust
    try:
        return torch.load(path, **options)
    except OSError as error:
        fail(f"cannot open {path}: {error.strerror}")
    except Exception as error:  # whatever a damaged or hostile pickle may raise
        reason = (str(error).strip().splitlines() or [repr(error)])[-1]
        reason = reason.split("WeightsUnpickler error: ")[-1]
        hint = "" if trust else " (--trust lets the file run code, which may get it loaded)"
        fail(f"cannot load {path}: {reason}{hint}")


def load_directory(directory, trust):
    """The tensors of pytorch_model.bin or of all its shards."""
    index = os.path.join(directory, "pytorch_model.bin.index.json")
    if not os.path.exists(index):
        return load(os.path.join(directory, "pytorch_model.bin"), trust)
    with open(index, encoding="utf-8") as f:
        shards = sorted(set(json.load(f)["weight_map"].values()))
    tensors = {}
    for shard in shards:
        tensors.update(load(os.path.join(directory, os.path.basename(shard)), trust))
    return tensors


def plain_name(name):
    """Without what torch.compile, data parallelism and Hugging Face put in front, in any order."""
    return PREFIXES.sub("", name)


def plain_tensors(tensors):
    if not isinstance(tensors, dict):
        fail(f"expected a dictionary of tensors, found {type(tensors).__name__}")
    plain = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            fail(f"{name} is no tensor but {type(tensor).__name__}; is this a whole training state?")
        if MASK.fullmatch(plain_name(name)):
            continue
        if tensor.dtype == torch.float64:
            tensor = tensor.float()
        if tensor.dtype not in DTYPES:
            fail(f"{name} is of type {tensor.dtype}; supported are float32, float16 and bfloat16")
        plain[plain_name(name)] = tensor
    # a tied unembedding is the same tensor under a second name
    if "lm_head.weight" in plain and "wte.weight" in plain and \
            torch.equal(plain["lm_head.weight"], plain["wte.weight"]):
        del plain["lm_head.weight"]
    return plain


def from_nanogpt(checkpoint):
    """Tensors in Hugging Face's shapes, and a config.json."""
    args = checkpoint["model_args"]
    tensors = plain_tensors(checkpoint["model"])
    width = args["n_embd"]
    for name in list(tensors):
        if LINEAR.fullmatch(name):
            tensors[name] = tensors[name].t()
    for layer in range(args["n_layer"]):
        for part, size in (("ln_1", width), ("ln_2", width), ("attn.c_attn", 3 * width),
                           ("attn.c_proj", width), ("mlp.c_fc", 4 * width), ("mlp.c_proj", width)):
            tensors.setdefault(f"h.{layer}.{part}.bias", torch.zeros(size))
    tensors.setdefault("ln_f.bias", torch.zeros(width))
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
              "activation_function": "gelu", "vocab_size": args["vocab_size"],
              "n_positions": args["block_size"], "n_embd": width, "n_layer": args["n_layer"],
              "n_head": args["n_head"], "layer_norm_epsilon": 1e-5,
              "tie_word_embeddings": "lm_head.weight" not in tensors}
    if args["vocab_size"] >= 50257:  # GPT-2's own vocabulary, perhaps padded
        config["bos_token_id"] = config["eos_token_id"] = 50256
    print("note: activation_function is \"gelu\" in config.json, the exact GELU of nanoGPT since 2023; "
          "put \"gelu_new\" there if an older one trained this", file=sys.stderr)
    return tensors, config


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    draft = path + ".part"
    with open(draft, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            words = torch.int32 if tensor.dtype == torch.float32 else torch.int16
            array = tensor.detach().contiguous().view(words).numpy()
            f.write(array.astype(array.dtype.newbyteorder("<")).tobytes())
    os.replace(draft, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog="See the top of "
                                     "this file for what INPUT may be.")
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--trust", action="store_true",
                        help="let the pickle run code; only for files that you trust")
    options = parser.parse_args()
    directory = options.input
    if os.path.isdir(options.input):
        checkpoint = load_directory(options.input, options.trust)
    else:
        directory = os.path.dirname(options.input) or "."
        checkpoint = load(options.input, options.trust)
    if isinstance(checkpoint, dict) and "model" in checkpoint and "model_args" in checkpoint:
        tensors, config = from_nanogpt(checkpoint)
    else:
        tensors = plain_tensors(checkpoint)
        path = os.path.join(directory, "config.json")
        if not os.path.exists(path):
            fail(f"there is no config.json in {directory}")
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
    os.makedirs(options.output, exist_ok=True)
    write_safetensors(os.path.join(options.output, "model.safetensors"), tensors)
    with open(os.path.join(options.output, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=2)
        f.write("\n")
    for name in VOCABULARY:
        source, target = os.path.join(directory, name), os.path.join(options.output, name)
        if os.path.exists(source) and os.path.abspath(source) != os.path.abspath(target):
            shutil.copyfile(source, target)


if __name__ == "__main__":
    main()
