#!/usr/bin/env python3
"""Makes tests/fixtures/family: small checkpoints of GPT-2's relatives, with random weights.

    python3 tests/makers/make_family_fixtures.py [NAME...]  (PyPI: torch, transformers, safetensors, gguf)

    base/       saved by GPT2LMHeadModel.save_pretrained. NAME.json beside it is another config.json
                for the same weights: another activation function, another factor of the scores
    nano/       nanoGPT's names under torch.compile's prefix, Linear layers [out, in], no biases, F16,
                nanoGPT's own configuration
    mingpt/     the names of minGPT's first version: query, key and value apart, masks, an unembedding of
                its own
    scratch/    the names of "Build a Large Language Model (From Scratch)", its own configuration, no
                biases of queries, keys and values, masks, an unembedding of its own
    wrapped/    prefixes on prefixes, F64, n_inner = n_embd, an unembedding of its own, and heads for
                other tasks, which attn-convert leaves out
    head/       lm_head.weight alone: the embedding is the same tensor, and was saved once
    blocks.bin  random blocks of every quantised type of GGUF that is read, and their numbers by the gguf
                package: u32 type, u32 blocks, the blocks, then the numbers as f32

NAME.logits beside each configuration: the logits of TOKENS by transformers' GPT2LMHeadModel with that
configuration, in float64, as little-endian doubles.
"""
import copy, json, os, shutil, struct, sys
import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures", "family")
TOKENS = [3, 17, 0, 21, 9, 9]
SIZES = dict(vocab_size=24, n_positions=8, n_embd=8, n_layer=3, n_head=2, n_inner=20,
             bos_token_id=None, eos_token_id=None, attn_implementation="eager")


def random_model(seed, **settings):
    """Weights large enough for every part to matter; saved as f32, so they are rounded to that."""
    torch.manual_seed(seed)
    model = GPT2LMHeadModel(GPT2Config(**{**SIZES, **settings})).eval()
    for name, p in model.named_parameters():
        p.data = torch.randn(p.shape) * (0.8 if p.ndim > 1 and "wpe" not in name else 0.2)
        if name.endswith(".weight") and "ln_" in name:
            p.data += 1
    return model


def logits(model, config=None):
    """In float64, of the same weights under another configuration if there is one. transformers has
    no reorder_and_upcast_attn in float64, so it is left out there and compared in float32."""
    config = copy.deepcopy(config or model.config)
    results = {}
    for dtype in (torch.float64, torch.float32):
        config.reorder_and_upcast_attn &= dtype == torch.float32
        other = GPT2LMHeadModel._from_config(config, attn_implementation="eager", dtype=dtype).eval()
        other.load_state_dict({k: v.to(dtype) for k, v in model.state_dict().items()})
        with torch.no_grad():
            results[dtype] = other(torch.tensor([TOKENS])).logits[0].double().numpy()
        config = copy.deepcopy(config)
    wide, narrow = results[torch.float64], results[torch.float32]
    assert np.abs(wide - narrow).max() < 1e-4 * np.abs(wide).max()
    return wide


def write_logits(path, values):
    with open(path + ".logits", "wb") as f:
        f.write(values.astype("<f8").tobytes())


def directory(name):
    path = os.path.join(HERE, name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def save(name, tensors, config, values):
    """A checkpoint that save_pretrained would not write."""
    path = directory(name)
    save_file({k: v.contiguous() for k, v in tensors.items()}, os.path.join(path, "model.safetensors"))
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    write_logits(os.path.join(path, "config"), values)


def make_base():
    path = directory("base")
    model = random_model(1)
    model.save_pretrained(path)
    os.remove(os.path.join(path, "generation_config.json"))
    plain = logits(model)
    write_logits(os.path.join(path, "config"), plain)
    variants = {
        "gelu": dict(activation_function="gelu"),
        "gelu_fast": dict(activation_function="gelu_fast"),
        "gelu_pytorch_tanh": dict(activation_function="gelu_pytorch_tanh"),
        "relu": dict(activation_function="relu"),
        "silu": dict(activation_function="silu"),
        "swish": dict(activation_function="swish"),
        "unscaled": dict(scale_attn_weights=False),
        "inverse": dict(scale_attn_by_inverse_layer_idx=True),
        "codeparrot": dict(scale_attn_by_inverse_layer_idx=True, reorder_and_upcast_attn=True),
        "everything": dict(activation_function="relu", scale_attn_weights=False,
                           scale_attn_by_inverse_layer_idx=True)}
    for name, changes in variants.items():
        config = copy.deepcopy(model.config)
        for key, value in changes.items():
            setattr(config, key, value)
        values = logits(model, config)
        if name not in ("gelu_fast", "gelu_pytorch_tanh"):  # a reader that ignores it must be noticed
            assert np.abs(values - plain).max() > 1e-4 * np.abs(plain).max(), name
        with open(os.path.join(path, "config.json")) as f:
            written = json.load(f)
        with open(os.path.join(path, name + ".json"), "w") as f:
            json.dump({**written, **changes}, f)
        write_logits(os.path.join(path, name), values)


def is_linear(name):
    return ".c_" in name and name.endswith(".weight")


def renamed(model, names, block):
    """The weights under another program's names, linear layers [out, in]."""
    for name, value in model.state_dict().items():
        name = name.removeprefix("transformer.")
        value = value.t() if is_linear(name) else value
        for old, new in names.items():
            name = name.replace(old, new)
        yield block + name[2:] if name.startswith("h.") else name, value


def make_nano():
    model = random_model(2, n_layer=2, activation_function="gelu", n_inner=None)
    for name, p in model.named_parameters():
        p.data = torch.zeros_like(p) if name.endswith(".bias") else p.data.half().float()
    tensors = {"_orig_mod." + k: (v.t() if is_linear(k) else v).half().clone()
               for k, v in model.state_dict().items() if not k.endswith(".bias")}
    config = dict(n_layer=2, n_head=2, n_embd=8, block_size=8, bias=False, vocab_size=24, dropout=0.0)
    save("nano", tensors, config, logits(model))


def make_mingpt():
    model = random_model(3, n_layer=2, activation_function="gelu", tie_word_embeddings=False,
                         n_inner=None)
    names = {"wte.weight": "tok_emb.weight", "lm_head.weight": "head.weight", "attn.c_proj": "attn.proj",
             "mlp.c_fc": "mlp.0", "mlp.c_proj": "mlp.2", "ln_1": "ln1", "ln_2": "ln2"}
    tensors = {}
    for name, value in renamed(model, names, "blocks."):
        if name == "wpe.weight":
            tensors["pos_emb"] = value[None]
        elif ".c_attn." in name:
            for part, piece in zip(("query", "key", "value"), value.chunk(3)):
                tensors[name.replace("c_attn", part)] = piece.clone()
        else:
            tensors[name] = value
    for i in range(2):
        tensors[f"blocks.{i}.attn.mask"] = torch.tril(torch.ones(8, 8))[None, None]
    config = dict(vocab_size=24, block_size=8, n_layer=2, n_head=2, n_embd=8,
                  activation_function="gelu")
    save("mingpt", tensors, config, logits(model))


def make_scratch():
    model = random_model(6, n_layer=2, tie_word_embeddings=False, n_inner=None)
    names = {"wte.weight": "tok_emb.weight", "wpe.weight": "pos_emb.weight", "lm_head.weight": "out_head.weight",
             "attn.c_proj": "att.out_proj", "mlp.c_fc": "ff.layers.0", "mlp.c_proj": "ff.layers.2",
             "ln_1.weight": "norm1.scale", "ln_1.bias": "norm1.shift", "ln_2.weight": "norm2.scale",
             "ln_2.bias": "norm2.shift", "ln_f.weight": "final_norm.scale", "ln_f.bias": "final_norm.shift"}
    for name, p in model.named_parameters():
        if "c_attn.bias" in name:
            p.data = torch.zeros_like(p)
    tensors = {}
    for name, value in renamed(model, names, "trf_blocks."):
        if "attn.c_attn.weight" in name:
            for part, piece in zip(("query", "key", "value"), value.chunk(3)):
                tensors[name.replace("attn.c_attn", f"att.W_{part}")] = piece.clone()
        elif "c_attn.bias" not in name:
            tensors[name] = value
    for i in range(2):
        tensors[f"trf_blocks.{i}.att.mask"] = torch.triu(torch.ones(8, 8), diagonal=1)
    config = dict(vocab_size=24, context_length=8, emb_dim=8, n_heads=2, n_layers=2, drop_rate=0.0,
                  qkv_bias=False)
    save("scratch", tensors, config, logits(model))


def make_wrapped():
    model = random_model(4, n_inner=8, n_layer=2, tie_word_embeddings=False)
    tensors = {"_orig_mod.module.model." + k: v.double() for k, v in model.state_dict().items()}
    for name, shape in (("score.weight", (2, 8)), ("v_head.summary.weight", (1, 8)),
                        ("v_head.summary.bias", (1,)), ("classifier.weight", (3, 8)),
                        ("multiple_choice_head.summary.weight", (1, 8))):
        tensors["model." + name] = torch.randn(shape)
    config = {k: v for k, v in model.config.to_dict().items() if v is not None}
    save("wrapped", tensors, config, logits(model))


def make_head():
    model = random_model(5, n_layer=1)
    tensors = {k: v for k, v in model.state_dict().items() if k != "transformer.wte.weight"}
    config = {k: v for k, v in model.config.to_dict().items() if v is not None}
    save("head", tensors, config, logits(model))


# Where the f16 factors are in a block: any bytes would do for the rest, but not NaN here.
FACTORS = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82],
           "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}


def random_blocks(kind, n, rng):
    size = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for at in FACTORS[kind.name]:
        factor = rng.normal(0, 10.0 ** rng.integers(-6, 1, n)).astype("<f2")
        blocks[:, at:at + 2] = factor.view(np.uint8).reshape(n, 2)
    return blocks


def make_blocks():
    rng = np.random.default_rng(6)
    with open(os.path.join(HERE, "blocks.bin"), "wb") as f:
        for name in FACTORS:
            kind = gguf.GGMLQuantizationType[name]
            n = 3 if gguf.GGML_QUANT_SIZES[kind][0] == 256 else 8
            blocks = random_blocks(kind, n, rng)
            values = gguf.dequantize(blocks, kind).astype("<f4")
            f.write(struct.pack("<II", int(kind), n) + blocks.tobytes() + values.tobytes())


if __name__ == "__main__":
    for name in sys.argv[1:] or ("base", "nano", "mingpt", "scratch", "wrapped", "head", "blocks"):
        globals()["make_" + name]()
