#!/usr/bin/env python3
"""Turns a pickled PyTorch checkpoint of GPT-2 into a directory that attn-convert reads.

    pickle-to-safetensors.py INPUT OUTPUT_DIR [--prefix NAME] [--trust]

INPUT is one of
    a Hugging Face directory with pytorch_model.bin (or shards with pytorch_model.bin.index.json)
    a file of tensors beside its config.json
    a training state of nanoGPT, build-nanogpt, Lightning, DeepSpeed or a loop of one's own: the
    tensors are found under "model", "state_dict", "model_state_dict", "module" and the like, and
    config.json is made of the configuration that was saved with them, if there is one
    a state dict of TransformerLens, with its configuration: {"model": model.state_dict(),
    "cfg": model.cfg.to_dict()}, or beside a config.json that has the fields of model.cfg
    a transcoder as Dunefsky et al. (2024) published them, one file: OUTPUT_DIR gets cfg.json and
    sae_weights.safetensors, which lens and SAELens read

What stands in front of the names of all tensors is taken off ("transformer.", "module.",
"base_model.model.", ...). Linear layers that are [out, in] are transposed, and missing biases become
zeros, where config.json is made here.

OUTPUT_DIR gets model.safetensors, config.json and copies of the vocabulary's files where there are
any. nanoGPT's meta.pkl, a vocabulary of characters, becomes vocab.json. Needs Python 3.7 and PyTorch,
and memory for the weights.

A pickle can run code when it is loaded. With PyTorch 2.6 or later this script has it load nothing
but tensors and plain values. For a class that the file names, such as its configuration's, stands
an empty one that keeps the fields: no code of it runs. What older versions of PyTorch have for that
can be made to run code all the same (CVE-2025-32434), so with them the script loads nothing. --trust
loads whatever there is, with any version, for files that you trust.
"""
import argparse
import json
import os
import pickle
import re
import shutil
import struct
import sys
import types
import warnings

import torch

DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
LINEAR = re.compile(r"h\.\d+\.(attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj)\.weight")
MASK = re.compile(r"(h|blocks|trf_blocks)\.\d+\.att(n|n\.attn)?\.(bias|masked_bias|mask|IGNORE)")
# Modules that wrap another anywhere in it: torch.compile, FSDP, activation checkpointing
WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"}
PREFIXES = re.compile(r"^(module\.|model\.|transformer\.)+(?=.)")
EMBEDDINGS = ("wte.weight", "tok_emb.weight", "embed.W_E", "embed.weight")  # by which a model is recognised
STATES = ("model", "state_dict", "model_state_dict", "module", "model_state", "net", "network", "weights")
CONFIGS = ("model_args", "config", "model_config", "gpt_config", "hyper_parameters", "hparams", "args", "cfg")
HEADS = ("n_head", "n_heads", "num_heads", "num_attention_heads")
VOCABULARY = ("vocab.json", "merges.txt", "encoder.json", "vocab.bpe", "tokenizer.json",
              "added_tokens.json", "tokenizer_config.json", "special_tokens_map.json",
              "chat_template.jinja", "generation_config.json")


def fail(message):
    sys.exit(f"pickle-to-safetensors: {message}")


def note(message):
    print(f"note: {message}", file=sys.stderr)


# Loading ==================================================================================

class Unknown(dict):
    """An object of a class that the file names: its fields, and none of the class's code."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def __setstate__(self, state):
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                self.update(part)


def stand_in(module, name):
    return type(name, (Unknown,), {"__module__": module})


class Trusting(pickle.Unpickler):
    def find_class(self, module, name):
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            return stand_in(module, name)


def refused_class(error):
    """The module and the name of a class at which weights_only stopped, or None. Functions, which
    would be called, get no stand-in, but for those that make numpy's numbers."""
    found = re.search(r"Unsupported global: GLOBAL (\S+)", str(error))
    module, _, name = found.group(1).rpartition(".") if found else ("", "", "")
    return (module, name) if name[:1].isupper() or module.split(".")[0] == "numpy" else None


def reason_of(error):
    """What was wrong, without PyTorch's advice around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [repr(error)]
    advice = re.compile(r"Weights only load failed|Check the documentation|\(\d\)|Please |Re-running ")
    reason = next((line for line in lines if not advice.match(line)), lines[0])
    return re.split(r"\.?\s+(?:Please use|In PyTorch)", reason.split("WeightsUnpickler error: ")[-1])[0]


def load(path, trust):
    version = tuple(int(n) for n in re.match(r"(\d+)\.(\d+)", torch.__version__).groups())
    if not trust and version < (2, 6):
        fail(f"PyTorch {torch.__version__} may run code that is in {path} (CVE-2025-32434); "
             "upgrade to 2.6, or give --trust if you trust the file")
    options = {"map_location": "cpu"}
    if version >= (1, 13):
        options["weights_only"] = not trust
    if trust:
        options["pickle_module"] = types.SimpleNamespace(__name__="pickle", Unpickler=Trusting,
                                                         load=pickle.load)
        torch.serialization.pickle = options["pickle_module"]  # 1.13 does not look at the option
    known = set()
    while True:
        try:
            return torch.load(path, **options)
        except OSError as error:
            fail(f"cannot open {path}: {error.strerror}")
        except Exception as error:  # whatever a damaged or hostile pickle may raise
            refused = refused_class(error)
            if not trust and refused and refused not in known:
                known.add(refused)
                torch.serialization.add_safe_globals([stand_in(*refused)])
                continue
            hint = "" if trust else " (--trust lets the file run code, which may get it loaded)"
            fail(f"cannot load {path}: {reason_of(error)}{hint}")


def load_directory(directory, trust):
    """The tensors of pytorch_model.bin or of all its shards."""
    index = os.path.join(directory, "pytorch_model.bin.index.json")
    if not os.path.exists(index):
        return load(os.path.join(directory, "pytorch_model.bin"), trust)
    with open(index, encoding="utf-8-sig") as f:
        shards = sorted(set(json.load(f)["weight_map"].values()))
    tensors = {}
    for shard in shards:
        tensors.update(load(os.path.join(directory, os.path.basename(shard)), trust))
    return tensors


# What is in it ============================================================================

def module_tensors(module, prefix="", depth=32):
    """The tensors of a module that was pickled whole, by the fields that PyTorch's modules have."""
    if depth == 0:
        fail("a module contains itself, or 32 modules are inside each other")
    tensors = {}
    for field in ("_parameters", "_buffers"):
        tensors.update({prefix + name: value for name, value in module.get(field, {}).items()
                        if isinstance(value, torch.Tensor)})
    for name, inner in module.get("_modules", {}).items():
        if isinstance(inner, torch.nn.Module):
            inner = vars(inner)
        if isinstance(inner, dict):
            tensors.update(module_tensors(inner, f"{prefix}{name}.", depth - 1))
    return tensors


def find_tensors(value, depth=3):
    """The tensors of the model, wherever they are in a training state; or None."""
    if isinstance(value, torch.nn.Module):
        return value.state_dict()
    if not isinstance(value, dict) or depth == 0:
        return None
    if "_modules" in value:
        return module_tensors(value)
    if any(isinstance(v, torch.Tensor) for v in value.values()):
        return value
    for key in STATES:
        tensors = find_tensors(value.get(key), depth - 1)
        if tensors:
            return tensors
    others = [key for key, inner in value.items() if "optim" not in str(key) and find_tensors(inner, depth - 1)]
    if len(others) > 1:
        fail("there are tensors under " + ", ".join(repr(key) for key in others) + "; save the one that "
             "holds the model by itself: torch.save(torch.load(INPUT)[KEY], \"model.pt\")")
    return find_tensors(value[others[0]], depth - 1) if others else None


def fields_of(value):
    """The fields of a configuration: of a dictionary, or of an object."""
    return value if isinstance(value, dict) else getattr(value, "__dict__", {})


def find_config(value, depth=3):
    """The fields of the configuration that was saved with the tensors; or None."""
    fields = fields_of(value)
    if any(name in fields for name in HEADS):
        return fields
    for key in CONFIGS:
        if depth > 0 and key in fields:
            found = find_config(fields[key], depth - 1)
            if found:
                return found
    return None


def parts_of(name):
    return [part for part in name.split(".") if part not in WRAPPERS]


def model_prefix(names):
    """What stands in front of the embedding's name, and so of all names of the model."""
    found = {".".join(parts_of(name))[:-len(end)] for name in names for end in EMBEDDINGS
             if name == end or name.endswith("." + end)}
    if len(found) > 1:
        fail("there are several models, with the prefixes " + ", ".join(sorted(repr(p) for p in found)) +
             "; choose one with --prefix")
    return found.pop().split(".")[:-1] if found else []


def plain_name(name, prefix):
    """Without as much of the prefix as it has: heads beside the model have only a part of it."""
    parts, prefix = parts_of(name), list(prefix)
    while prefix and len(parts) > 1 and parts[0] == prefix[0]:
        del parts[0], prefix[0]
    return PREFIXES.sub("", ".".join(parts))


def check_tensor(name, tensor):
    """Refuses a tensor that is not all of its numbers, one after the other."""
    is_nested = getattr(tensor, "is_nested", False)
    if tensor.layout != torch.strided or is_nested or tensor.is_meta:
        kind = "nested" if is_nested else "without numbers (meta)" if tensor.is_meta else "sparse"
        fail(f"{name} is {kind}; save the model with plain tensors")
    if tensor.dtype not in DTYPES and tensor.dtype != torch.float64:
        fail(f"{name} is of type {tensor.dtype}; supported are float32, float16 and bfloat16")
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    if tensor.numel() * tensor.element_size() > storage.nbytes():
        fail(f"{name} repeats {storage.nbytes()} bytes as {list(tensor.shape)}; save its contiguous() or clone()")


def plain_tensors(tensors, chosen):
    odd = next((name for name in tensors if not isinstance(name, str)), None)
    if odd is not None:
        fail(f"a tensor's name is {odd!r:.80}, where a text is needed")
    if chosen:
        tensors = {name: t for name, t in tensors.items() if ".".join(parts_of(name)).startswith(chosen)}
    prefix = model_prefix(tensors)
    plain, others = {}, []
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            others.append(name)
            continue
        name = plain_name(name, prefix)
        if MASK.fullmatch(name):
            continue
        if ".lora_" in name or ".base_layer." in name:
            fail(f"{name} belongs to an adapter (LoRA) that is not merged; save the model after "
                 "merge_and_unload()")
        check_tensor(name, tensor)
        plain[name] = tensor.float() if tensor.dtype == torch.float64 else tensor
    if others:
        note(f"{others[0]} is no tensor but {type(tensors[others[0]]).__name__}; left out"
             + (f", and so are {len(others) - 1} others" if len(others) > 1 else ""))
    # a tied unembedding is the same tensor under a second name
    if "lm_head.weight" in plain and "wte.weight" in plain and \
            torch.equal(plain["lm_head.weight"], plain["wte.weight"]):
        del plain["lm_head.weight"]
    return plain


def fill_in(tensors):
    """Hugging Face's shapes for names that are Hugging Face's: Conv1D [in, out], and every bias."""
    first = tensors.get("h.0.attn.c_attn.weight")
    if first is None:
        return
    width = tensors["wte.weight"].shape[1] if "wte.weight" in tensors else min(first.shape)
    if tuple(first.shape) == (3 * width, width):
        for name in list(tensors):
            if LINEAR.fullmatch(name):
                tensors[name] = tensors[name].t()
    for name in list(tensors):
        if re.fullmatch(r"(h\.\d+\..*|ln_f)\.weight", name):
            tensors.setdefault(name[:-len("weight")] + "bias", torch.zeros(tensors[name].shape[-1]))


def activation_of(fields, is_nanogpt):
    named = fields.get("activation_function", fields.get("activation"))
    if isinstance(named, str):
        return named
    if is_nanogpt:
        note("activation_function is \"gelu\" in config.json, the exact GELU of nanoGPT since 2023; "
             "put \"gelu_new\" there if an older one trained this")
        return "gelu"
    note("activation_function is \"gelu_new\" in config.json, GELU by tanh as in GPT-2 and "
         "build-nanogpt; put \"gelu\" there if this was trained with the exact one")
    return "gelu_new"


def make_config(tensors, fields, is_nanogpt):
    """config.json, with the sizes that the tensors have."""
    table = next((tensors[name] for name in EMBEDDINGS if name in tensors), tensors.get("lm_head.weight"))
    places = next((tensors[name] for name in ("wpe.weight", "pos_emb.weight", "pos_emb") if name in tensors), None)
    if table is None or places is None:
        fail("the tensors have none of the names that GPT-2's embeddings have: wte.weight and "
             f"wpe.weight; the first is {next(iter(tensors), 'missing')}")
    layers = {int(found.group(1)) for found in (re.match(r"(?:h|blocks|trf_blocks)\.(\d+)\.", n) for n in tensors)
              if found}
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
              "activation_function": activation_of(fields, is_nanogpt), "vocab_size": table.shape[0],
              "n_positions": places.shape[-2], "n_embd": table.shape[1], "n_layer": len(layers),
              "n_head": next(fields[name] for name in HEADS if name in fields), "layer_norm_epsilon": 1e-5,
              "tie_word_embeddings": "lm_head.weight" not in tensors}
    inner = tensors.get("h.0.mlp.c_fc.bias")
    if inner is not None and inner.shape[0] != 4 * table.shape[1]:
        config["n_inner"] = inner.shape[0]
    if config["vocab_size"] >= 50257:  # GPT-2's own vocabulary, perhaps padded
        config["bos_token_id"] = config["eos_token_id"] = 50256
    return config


# nanoGPT's characters =====================================================================

class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"it names {module}.{name}, where plain values are expected")


def characters(directory):
    """The vocabulary of meta.pkl: from characters to ids; or None."""
    path = os.path.join(directory, "meta.pkl")
    if not os.path.exists(path):
        return None
    try:
        with open(path, "rb") as f:
            ids = Plain(f).load()["stoi"]
        if not all(isinstance(c, str) and isinstance(i, int) for c, i in ids.items()):
            raise ValueError("stoi is not from characters to ids")
    except Exception as error:  # as above
        fail(f"cannot read {path}: {error}")
    if any(len(c) != 1 for c in ids):
        note("meta.pkl has tokens that are not single characters; the vocabulary is left out")
        return None
    return ids


def copy_vocabulary(directory, output, may_be_characters):
    n = 0
    for name in VOCABULARY:
        source, target = os.path.join(directory, name), os.path.join(output, name)
        if os.path.exists(source) and os.path.abspath(source) != os.path.abspath(target):
            shutil.copyfile(source, target)
        n += os.path.exists(source)
    ids = None if n else characters(directory)
    if ids:
        with open(os.path.join(output, "vocab.json"), "w", encoding="utf-8") as f:
            json.dump(ids, f, ensure_ascii=False, indent=0)
            f.write("\n")
    elif n == 0 and may_be_characters:
        note(f"no vocabulary in {directory}; for nanoGPT's characters copy data/.../meta.pkl there")


# Transcoders ==============================================================================

def transcoder(tensors, cfg):
    """The tensors and cfg.json in SAELens's convention, in which a transcoder subtracts nothing from what it reads:

        relu((x - b_dec) · W_enc + b_enc) · W_dec + b_dec_out    as published
        relu(x · W_enc + (b_enc - b_dec · W_enc)) · W_dec + b_dec_out
    """
    if "b_dec_out" not in tensors or not all(cfg.get(key) for key in ("is_transcoder", "hook_point", "out_hook_point")):
        fail("W_enc and W_dec of an autoencoder; expected a transcoder as Dunefsky et al. (2024) published them, with "
             "a tensor b_dec_out, and in its cfg is_transcoder, hook_point and out_hook_point")
    w = {name: tensors.get(name, torch.empty(0)) for name in ("W_enc", "W_dec", "b_enc", "b_dec", "b_dec_out")}
    for name, tensor in w.items():
        check_tensor(name, tensor)
        w[name] = tensor.double()
    n, m = w["W_enc"].shape
    shapes = {"W_dec": [m, w["W_dec"].shape[-1]], "b_enc": [m], "b_dec": [n], "b_dec_out": [w["W_dec"].shape[-1]]}
    for name, shape in shapes.items():
        if list(w[name].shape) != shape:
            fail(f"{name} is {list(w[name].shape)}; expected {shape} beside W_enc [{n}, {m}]")
    note("b_dec is subtracted from the input, b_dec_out added to the output (Dunefsky et al. 2024); written as SAELens "
         "has it: b_enc - b_dec · W_enc, and b_dec_out as b_dec")
    made = {"W_enc": w["W_enc"], "W_dec": w["W_dec"], "b_enc": w["b_enc"] - w["b_dec"] @ w["W_enc"],
            "b_dec": w["b_dec_out"]}
    return {name: tensor.float() for name, tensor in made.items()}, {
        "architecture": "transcoder", "d_in": n, "d_out": shapes["W_dec"][1], "d_sae": m, "dtype": "float32",
        "device": "cpu", "apply_b_dec_to_input": False, "normalize_activations": "none",
        "metadata": {"model_name": cfg.get("model_name"), "hook_name": cfg["hook_point"],
                     "hook_name_out": cfg["out_hook_point"]}}


# Output ===================================================================================

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


def write_directory(path, weights, settings, tensors, config):
    text = json.dumps(config, indent=2, default=str)
    os.makedirs(path, exist_ok=True)
    write_safetensors(os.path.join(path, weights), tensors)
    with open(os.path.join(path, settings), "w", encoding="utf-8") as f:
        f.write(text + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog="See the top of "
                                     "this file for what INPUT may be.")
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--prefix", default="", metavar="NAME",
                        help="of several models in one file, the one whose names begin so")
    parser.add_argument("--trust", action="store_true",
                        help="let the pickle run code; only for files that you trust")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # PyTorch's, about PyTorch
    directory = options.input
    if os.path.isdir(options.input):
        checkpoint = load_directory(options.input, options.trust)
    else:
        directory = os.path.dirname(options.input) or "."
        checkpoint = load(options.input, options.trust)
    found = find_tensors(checkpoint)
    if not found:
        keys = ", ".join(str(key) for key in checkpoint) if isinstance(checkpoint, dict) else ""
        fail(f"no tensors in {options.input}: expected a dictionary of them, found "
             f"{type(checkpoint).__name__}" + (f" with {keys:.200}" if keys else ""))
    if "W_enc" in found and "W_dec" in found:
        write_directory(options.output, "sae_weights.safetensors", "cfg.json",
                        *transcoder(found, fields_of(fields_of(checkpoint).get("cfg"))))
        return
    tensors, fields = plain_tensors(found, options.prefix), find_config(checkpoint)
    path = os.path.join(directory, "config.json")
    is_lens = "embed.W_E" in tensors or "embed.weight" in tensors
    if is_lens and fields:
        config = {key: value for key, value in fields.items() if not str(key).startswith("_")}
        copies_characters = False
    elif fields:
        is_nanogpt = "model_args" in fields_of(checkpoint) or "bias" in fields or "dropout" in fields
        fill_in(tensors)
        config = make_config(tensors, fields, is_nanogpt)
        copies_characters = config["vocab_size"] < 50257
    elif os.path.exists(path):
        with open(path, encoding="utf-8-sig") as f:
            config = json.load(f)
        copies_characters = False
    else:
        fail(f"no configuration in {os.path.basename(options.input)}, and no config.json in {directory}: "
             "write one, with " + ("the fields of model.cfg" if is_lens else
                                   "n_head and the other settings of GPT-2"))
    write_directory(options.output, "model.safetensors", "config.json", tensors, config)
    copy_vocabulary(directory, options.output, copies_characters)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        fail("stopped")
    except Exception as error:  # what torch.load gave may be of any kind and shape
        fail(f"this is no GPT-2 that can be read here: {type(error).__name__}: {reason_of(error):.200}")
