#!/usr/bin/env python3
"""Random checkpoints of GPT-2's family, converted and run beside transformers.

    python3 tests/compare/truth/attack_checkpoints.py BUILD [--count 500] [--seed 1] [--keep DIRECTORY]
                                              (PyPI: torch, transformers, safetensors, gguf)

Each checkpoint is random in its sizes, configuration, types, names, shards, prefixes, what is beside the
model, and in what is missing. Its logits are compared with those of transformers' GPT2LMHeadModel in
float64: loaded by from_pretrained where transformers can read the directory, else made of the same
weights. Some checkpoints ask for what attn.h does not compute; those must be refused. A fifth of the
converted models goes out again, to a directory that transformers opens.

An error is allowed to be 2e-5 of the largest logit. A model that magnifies rounding may have three times
the error of transformers in float32, or ten times what the rounding of every weight to float32 can do.
Exits with 1 if there is any other difference.
"""
import argparse, collections, copy, json, os, random, shutil, subprocess, sys, tempfile
import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel
from transformers.utils import logging

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "makers"))
from check_export import gguf_name
from make_family_fixtures import FACTORS, random_blocks

logging.set_verbosity_error()
logging.disable_progress_bar()
TANH = ["gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_accurate", "gelu_python_tanh"]
KNOWN = TANH + ["gelu", "gelu_python", "relu", "silu", "swish"]
OTHERS = ["quick_gelu", "gelu_10", "mish", "tanh", "sigmoid", "relu6", "relu2", "linear", "leaky_relu"]
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}
PREFIXES = ["transformer.", "model.", "module.", "_orig_mod."]


def random_config(r):
    heads = r.choice([1, 1, 2, 3, 4, 5])
    return GPT2Config(
        vocab_size=r.randint(2, 70), n_positions=r.randint(3, 24), n_layer=r.randint(1, 5), n_head=heads,
        n_embd=heads * r.choice([1, 2, 4, 5, 8, 16]), n_inner=r.choice([None, None, r.randint(1, 70)]),
        activation_function=r.choice(KNOWN), layer_norm_epsilon=r.choice([1e-5, 1e-6, 1e-3, 1e-12]),
        scale_attn_weights=r.random() < 0.7, scale_attn_by_inverse_layer_idx=r.random() < 0.4,
        reorder_and_upcast_attn=r.random() < 0.3, tie_word_embeddings=r.random() < 0.7,
        bos_token_id=None, eos_token_id=None, attn_implementation="eager")


def random_model(r, config, dtype):
    """Weights that `dtype` holds exactly."""
    model = GPT2LMHeadModel(config).eval()
    scale = r.choice([0.05, 0.2, 0.5])
    for name, p in model.named_parameters():
        value = torch.randn(p.shape) * scale * (1 + ("wte" in name)) + (name.endswith("weight") and "ln_" in name)
        p.data = value.to(DTYPES[dtype]).to(torch.float64 if dtype == "F64" else torch.float32).float()
    return model


def logits_of(model, ids, dtype, noise=0.0):
    config = copy.deepcopy(model.config)
    config.reorder_and_upcast_attn = config.reorder_and_upcast_attn and dtype == torch.float32
    other = GPT2LMHeadModel._from_config(config, attn_implementation="eager", dtype=dtype).eval()
    other.load_state_dict({k: v.to(dtype) for k, v in model.state_dict().items()})
    for p in other.parameters() if noise else ():
        p.data *= 1 + noise * torch.randn(p.shape, dtype=dtype)
    with torch.no_grad():
        return other(torch.tensor([ids])).logits[0].double().numpy()


def is_linear(name):
    return ".c_" in name and name.endswith(".weight")


def beside(r, tensors, width):
    """Heads and buffers that belong to no GPT-2."""
    for name in ("score.weight", "classifier.weight", "classifier.bias", "v_head.summary.weight",
                 "v_head.summary.bias", "multiple_choice_head.summary.weight", "qa_outputs.weight"):
        if r.random() < 0.2:
            tensors[name] = torch.randn((2, width) if "weight" in name else (2,))
    if r.random() < 0.05:
        for i in range(3000):
            tensors[f"extra.{i}"] = torch.zeros(1)


def masks(r, config, tensors):
    for i in range(config.n_layer):
        n = config.n_positions
        tensors[f"h.{i}.attn.bias"] = torch.tril(torch.ones(n, n, dtype=r.choice([torch.bool, torch.uint8])))[None, None]
        tensors[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)


def stored(name, value, dtype):
    return value.to(DTYPES[dtype]).contiguous().clone() if value.is_floating_point() else value


def write(r, path, tensors, dtype, config):
    tensors = {k: stored(k, v, dtype) for k, v in tensors.items()}
    if r.random() < 0.3 and len(tensors) > 3:
        names, n, where = list(tensors), r.randint(2, 4), {}
        r.shuffle(names)
        for i in range(n):
            file = f"model-{i + 1:05}-of-{n:05}.safetensors"
            part = {k: tensors[k] for k in names[i::n]}
            save_file(part, os.path.join(path, file))
            where.update({k: file for k in part})
        with open(os.path.join(path, "model.safetensors.index.json"), "w") as f:
            json.dump({"metadata": {}, "weight_map": where}, f)
    else:
        save_file(tensors, os.path.join(path, "model.safetensors"))
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)


def edit_config(path, change):
    file = os.path.join(path, "config.json")
    with open(file) as f:
        config = change(json.load(f))
    with open(file, "w") as f:
        json.dump(config, f)


def hub(r, path, config, dtype):
    """As save_pretrained writes it; transformers reads it back by itself."""
    model = random_model(r, config, dtype)
    model.to(DTYPES[dtype]).save_pretrained(path, max_shard_size=r.choice(["1KB", "4KB", "5GB"]))
    if r.random() < 0.3:  # a configuration that says tied for tables that are not, and settings left out
        edit_config(path, lambda c: {k: v for k, v in c.items() if k not in (
            "tie_word_embeddings", "reorder_and_upcast_attn", "add_cross_attention", "model_type")
            and v is not None} | {"model_type": "gpt2"})
    wide = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64, attn_implementation="eager")
    model.load_state_dict(wide.state_dict())
    return model.float()


def wrapped(r, path, config, dtype):
    """Other prefixes, masks, heads; Linear instead of Conv1D; no biases; one of the tied names missing."""
    nano = r.random() < 0.4
    model = random_model(r, config, dtype)
    if nano and r.random() < 0.5:
        for name, p in model.named_parameters():
            if name.endswith(".bias"):
                p.data.zero_()
    tensors = {k.removeprefix("transformer."): v for k, v in model.state_dict().items()}
    if not any(v.any() for k, v in tensors.items() if k.endswith(".bias")):
        tensors = {k: v for k, v in tensors.items() if not k.endswith(".bias")}
    if nano:
        tensors = {k: v.t() if is_linear(k) else v for k, v in tensors.items()}
    if config.tie_word_embeddings:
        del tensors[r.choice(["lm_head.weight", "lm_head.weight", "wte.weight"])]
    if r.random() < 0.3:
        masks(r, config, tensors)
    beside(r, tensors, config.n_embd)
    prefix = "".join(r.choices(PREFIXES, k=r.randint(0, 3)))
    settings = {k: v for k, v in config.to_dict().items() if v is not None}
    if nano and config.n_inner is None:
        settings = dict(n_layer=config.n_layer, n_head=config.n_head, n_embd=config.n_embd, dropout=0.1,
                        block_size=config.n_positions, vocab_size=config.vocab_size,
                        **{k: settings[k] for k in ("activation_function", "scale_attn_weights",
                                                    "scale_attn_by_inverse_layer_idx",
                                                    "layer_norm_epsilon", "tie_word_embeddings")})
        if config.activation_function == "gelu":
            del settings["activation_function"]
    write(r, path, {prefix + k: v for k, v in tensors.items()}, dtype, settings)
    return model


def mingpt(r, path, config, dtype):
    """The first minGPT's names: query, key and value apart."""
    config.n_inner, config.tie_word_embeddings = None, False
    model = random_model(r, config, dtype)
    tensors = {}
    for name, value in model.state_dict().items():
        name, value = name.removeprefix("transformer."), value.t() if is_linear(name) else value
        for old, new in (("wte", "tok_emb"), ("lm_head", "head"), ("attn.c_proj", "attn.proj"), ("h.", "blocks."),
                         ("mlp.c_fc", "mlp.0"), ("mlp.c_proj", "mlp.2"), ("ln_1", "ln1"), ("ln_2", "ln2")):
            name = new + name[len(old):] if old == "h." and name.startswith(old) else \
                name if old == "h." else name.replace(old, new)
        if name == "wpe.weight":
            tensors["pos_emb"] = value[None]
        elif ".c_attn." in name:
            for part, piece in zip(("query", "key", "value"), value.chunk(3)):
                tensors[name.replace("c_attn", part)] = piece
        else:
            tensors[name] = value
    for i in range(config.n_layer):
        tensors[f"blocks.{i}.attn.mask"] = torch.ones(1, 1, config.n_positions, config.n_positions)
    settings = {k: v for k, v in config.to_dict().items() if v is not None}
    write(r, path, tensors, dtype, settings)
    return model


def from_gguf(r, path, config, dtype):
    """Every type of GGUF that is read, by the gguf package's writer and dequantisation."""
    config.scale_attn_weights, config.scale_attn_by_inverse_layer_idx = True, False
    config.activation_function = "gelu_new"
    config.n_head = r.choice([1, 2, 4])
    config.n_embd, config.n_inner = r.choice([(32, 32), (32, 64), (64, 128), (256, 256), (256, 512)])
    config.n_layer = r.randint(1, 2)
    model = random_model(r, config, "F32")
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(config.n_positions)
    writer.add_embedding_length(config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_feed_forward_length(config.n_inner)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    rng = np.random.default_rng(r.randint(0, 2 ** 31))
    parameters = dict(model.named_parameters())
    for name, p in parameters.items():
        value = p.data.t() if is_linear(name) else p.data
        shape, array = value.shape, value.contiguous().numpy()
        kinds = [k for k in FACTORS if shape[-1] % gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[k]][0] == 0]
        kind = r.choice(kinds + ["F32", "F16", "BF16", "F64"]) if p.ndim == 2 else "F32"
        of = gguf.GGMLQuantizationType[kind]
        if kind in FACTORS:
            count, size = gguf.GGML_QUANT_SIZES[of]
            blocks = random_blocks(of, array.size // count, rng)
            for at in FACTORS[kind]:  # small factors: a model, not noise that saturates
                few = (rng.normal(0, 0.3, len(blocks)) / 2 ** {"Q8_0": 7, "Q6_K": 12, "IQ4_NL": 7, "IQ4_XS": 11}.get(
                    kind, 4 if count == 32 else 8)).astype("<f2")
                blocks[:, at:at + 2] = few.view(np.uint8).reshape(-1, 2)
            data = blocks.reshape(shape[0], -1)
            array = gguf.dequantize(data, of)
        elif kind == "F64":
            data = array.astype(np.float64)
        else:
            data = gguf.quantize(array, of)
            array = gguf.dequantize(data, of).astype(np.float32)
        writer.add_tensor(gguf_name(name), data, raw_dtype=None if kind in ("F64",) else of)
        value = torch.from_numpy(np.ascontiguousarray(array))
        p.data = (value.t() if is_linear(name) else value).contiguous()
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def refused(r, path, config, dtype):
    """What attn.h does not compute, with a word that the message must have."""
    model = random_model(r, config, dtype)
    model.save_pretrained(path)
    changes = r.choice([{"activation_function": r.choice(OTHERS)}, {"add_cross_attention": True},
                        {"model_type": r.choice(["gpt_neo", "gptj", "gpt_bigcode", "openai-gpt", "llama"])},
                        {"pruned_heads": {"0": [0]}}, {"quantization_config": {"load_in_8bit": True}},
                        {"n_layer": config.n_layer + 1}, {"n_embd": 2 * config.n_embd},
                        {"vocab_size": config.vocab_size + 1}, {"n_layer": config.n_layer - 1}])
    edit_config(path, lambda c: {**c, **changes})
    key, value = next(iter(changes.items()))
    return {"n_layer": "layers", "n_embd": "asks for", "vocab_size": "asks for"}.get(key, key)


def engine(build, model, ids, tmp):
    npy = os.path.join(tmp, "logits.npy")
    subprocess.run([os.path.join(build, "gpt2"), model, "--ids", " ".join(map(str, ids)), "-n", "1", "--temperature",
                    "0", "--logits", npy, "--quiet"], check=True, capture_output=True)
    return np.load(npy)[:len(ids)].astype(np.float64)


def compare(got, model, ids):
    """The error beside what is allowed."""
    want, narrow = logits_of(model, ids, torch.float64), logits_of(model, ids, torch.float32)
    error, largest = np.abs(got - want).max(), np.abs(want).max()
    allowed = max(2e-5 * largest, 3 * np.abs(narrow - want).max())
    if error > allowed:
        allowed = max(10 * np.abs(logits_of(model, ids, torch.float64, 2.0 ** -24) - want).max() for _ in range(5))
    return error, allowed, largest


def out_again(build, model, made, ids, tmp):
    """The converted model, written for others: transformers' logits of what they read, in float64."""
    directory = os.path.join(tmp, "out")
    shutil.rmtree(directory, ignore_errors=True)
    subprocess.run([os.path.join(build, "attn-convert"), made, directory, "-q"], check=True, capture_output=True)
    again = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float64, attn_implementation="eager")
    theirs = logits_of(again, ids, torch.float64)
    want = logits_of(model, ids, torch.float64)
    # F64 weights were rounded to f32 before; everything else is exact
    return np.abs(theirs - want).max() <= 2e-5 * np.abs(want).max()


KINDS = {"hub": hub, "wrapped": wrapped, "mingpt": mingpt, "gguf": from_gguf, "refused": refused}


def one(build, seed, tmp, counts):
    r = random.Random(seed)
    torch.manual_seed(seed)
    kind = r.choices(list(KINDS), weights=[3, 4, 1, 2, 1])[0]
    config, dtype = random_config(r), r.choice(["F32", "F32", "F16", "BF16", "F64"])
    path, made = os.path.join(tmp, "checkpoint"), os.path.join(tmp, "made.attn")
    shutil.rmtree(path, ignore_errors=True)
    if kind == "gguf":
        path += ".gguf"
    else:
        os.makedirs(path)
    model = KINDS[kind](r, path, config, dtype)
    said = subprocess.run([os.path.join(build, "attn-convert"), path, made], capture_output=True, text=True)
    counts[kind] += 1
    if kind == "refused":
        return None if said.returncode == 1 and model in said.stderr else f"not refused for {model}: {said.stderr}"
    if said.returncode:
        return f"refused: {said.stderr}"
    if said.stderr.count("\n") > 6:
        return f"says too much: {said.stderr}"
    ids = [r.randrange(config.vocab_size) for _ in range(r.randint(1, config.n_positions - 1))]
    error, allowed, largest = compare(engine(build, made, ids, tmp), model, ids)
    if not error <= allowed:
        return f"logits differ by {error:.3g} of {largest:.3g}, allowed {allowed:.3g}"
    if error > 2e-5 * largest:
        counts["above 2e-5 where rounding is magnified"] += 1
    elif largest > 0:
        worst = "largest other error, in 1e-9 of the largest logit"
        counts[worst] = max(counts[worst], int(1e9 * error / largest))
    if seed % 5 == 0:
        counts["out again"] += 1
        if not out_again(build, model, made, ids, tmp):
            return "transformers computes something else of what was written"
    return None


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("build")
    p.add_argument("--count", type=int, default=500)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--keep", help="copy checkpoints that differ here")
    a = p.parse_args()
    counts, bad = collections.Counter(), 0
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        for seed in range(a.seed, a.seed + a.count):
            what = one(a.build, seed, tmp, counts)
            if what:
                bad += 1
                print(f"seed {seed}: {what}", flush=True)
                if a.keep:
                    shutil.copytree(tmp, os.path.join(a.keep, str(seed)), dirs_exist_ok=True)
    print(f"{a.count} checkpoints, {bad} differences: " + ", ".join(f"{k} {v}" for k, v in sorted(counts.items())))
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
