#!/usr/bin/env python3
"""Makes tests/fixtures/convert: tiny random checkpoints in every format that attn-convert reads.

    python3 tests/makers/make_convert_fixtures.py            (numpy only; Debian: python3-numpy)

    sharded/    Hugging Face, F32, two shards, prefix "transformer.", mask buffers, untied, n_inner,
                tokenizer.json with merges as pairs
    bf16/       Hugging Face, BF16, no prefix, a copy of the embedding as lm_head, vocab.json + merges.txt
    strings/    only a tokenizer.json, with merges as strings: the same vocabulary
    tiny.gguf   GGUF 3: Q8_0, F16 and F32, tokenizer inside, a copy of the embedding as output
    v3.bin      llm.c, f32, vocabulary padded from 300 to 384;  v5.bin: the same in bf16

Each NAME.ref holds what the converted file must hold: for each tensor 64 bytes of name, u64 count,
then f32 values in the shape that attn_model_tensor gives (embed.W_E as [V, C]). The numbers come
from numpy here, through none of the project's code.
"""
import json, os, struct
import numpy as np
from float64 import shapes, write_safetensors
from vocabulary import stand_ins

HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures", "convert")
TEXT = ("the cat sat on the mat and the dog sat on the log. she said that they were not there when "
        "the other one was here. there is no end to it, is there? 12 34 12 34 don't won't")


def train_bpe(n_merges):
    """Byte-level merges by count over TEXT, ties by spelling."""
    table = stand_ins()
    words = [[table[b] for b in w.encode()] for w in
             [(" " if i else "") + w for i, w in enumerate(TEXT.split(" "))]]
    merges = []
    while len(merges) < n_merges:
        counts = {}
        for w in words:
            for pair in zip(w, w[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        best = max(sorted(counts), key=lambda p: counts[p])
        merges.append(best)
        for w in words:
            i = 0
            while i + 1 < len(w):
                if (w[i], w[i + 1]) == best:
                    w[i:i + 2] = [w[i] + w[i + 1]]
                i += 1
    tokens = sorted(table) + [a + b for a, b in merges] + ["<|endoftext|>"]
    assert len(set(tokens)) == len(tokens)
    return tokens, merges


def make_weights(C, F, L, T, V, seed, untied=False):
    """Names and shapes of Hugging Face, float32."""
    r, w = np.random.default_rng(seed), {}
    for name, shape in shapes(L, C, F, V, T, untied):
        w[name] = r.normal(0, 0.2, shape).astype(np.float32) + ("ln_" in name and name.endswith(".weight"))
    return w


ATTN = {"ln_1.weight": "ln1.w", "ln_1.bias": "ln1.b", "attn.c_attn.weight": "attn.W_QKV",
        "attn.c_attn.bias": "attn.b_QKV", "attn.c_proj.weight": "attn.W_O",
        "attn.c_proj.bias": "attn.b_O", "ln_2.weight": "ln2.w", "ln_2.bias": "ln2.b",
        "mlp.c_fc.weight": "mlp.W_in", "mlp.c_fc.bias": "mlp.b_in", "mlp.c_proj.weight": "mlp.W_out",
        "mlp.c_proj.bias": "mlp.b_out", "wte.weight": "embed.W_E", "wpe.weight": "pos_embed.W_pos",
        "ln_f.weight": "ln_final.w", "ln_f.bias": "ln_final.b", "lm_head.weight": "unembed.W_U"}


def attn_name(name):
    if name.startswith("h."):
        _, layer, rest = name.split(".", 2)
        return f"blocks.{layer}.{ATTN[rest]}"
    return ATTN[name]


def write_reference(name, weights):
    with open(os.path.join(HERE, name + ".ref"), "wb") as f:
        for key, a in weights.items():
            a = a.T if key == "lm_head.weight" else a
            f.write(attn_name(key).encode().ljust(64, b"\0") + struct.pack("<Q", a.size))
            f.write(np.ascontiguousarray(a).astype("<f4").tobytes())


def to_bf16(a):
    """Bits of the nearest bfloat16, ties to even; and the float32 they stand for."""
    bits = a.astype("<f4").view("<u4").astype(np.uint64)
    bits = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
    return bits, (bits.astype("<u4") << 16).view("<f4")


def config(C, F, L, T, V, H, **more):
    c = {"model_type": "gpt2", "activation_function": "gelu_new", "vocab_size": V, "n_positions": T,
         "n_ctx": T, "n_embd": C, "n_layer": L, "n_head": H, "n_inner": F,
         "layer_norm_epsilon": 1e-05, "bos_token_id": V - 1, "eos_token_id": V - 1,
         "reorder_and_upcast_attn": False, "scale_attn_weights": True,
         "scale_attn_by_inverse_layer_idx": False}
    c.update(more)
    return c


def dump(path, value, **options):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, **options)


def tokenizer_json(tokens, merges, pairs):
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": len(tokens) - 1, "content": tokens[-1], "single_word": False,
                              "lstrip": False, "rstrip": False, "normalized": False,
                              "special": True}],
            "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                              "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": "", "end_of_word_suffix": "",
                      "fuse_unk": False, "byte_fallback": False,
                      "vocab": {t: i for i, t in enumerate(tokens)},
                      "merges": [list(m) if pairs else " ".join(m) for m in merges]}}


def make_sharded(tokens, merges):
    C, F, L, T, V, H = 24, 40, 2, 12, 300, 3
    w = make_weights(C, F, L, T, V, 1, untied=True)
    d = os.path.join(HERE, "sharded")
    os.makedirs(d, exist_ok=True)
    shards, where = [{}, {}], {}
    for name, a in w.items():
        n = int(name.startswith(("h.1.", "ln_f", "lm_head")))
        full = name if name == "lm_head.weight" else "transformer." + name
        shards[n][full] = ("F32", a.shape, a.tobytes())
    for i in range(L):
        shards[i][f"transformer.h.{i}.attn.bias"] = ("BOOL", (1, 1, T, T), bytes(np.tril(
            np.ones((T, T), np.uint8)).tobytes()))
        shards[i][f"transformer.h.{i}.attn.masked_bias"] = ("F32", (), struct.pack("<f", -1e4))
    for n, tensors in enumerate(shards):
        file = f"model-{n + 1:05}-of-00002.safetensors"
        write_safetensors(os.path.join(d, file), tensors, {"format": "pt"})
        where.update({name: file for name in tensors})
    total = sum(len(t[2]) for s in shards for t in s.values())
    dump(os.path.join(d, "model.safetensors.index.json"),
         {"metadata": {"total_size": total}, "weight_map": where}, indent=1)
    dump(os.path.join(d, "config.json"),
         config(C, F, L, T, V, H, layer_norm_epsilon=1e-06, tie_word_embeddings=False), indent=1)
    dump(os.path.join(d, "tokenizer.json"), tokenizer_json(tokens, merges, True),
         ensure_ascii=True, separators=(",", ":"))
    write_reference("sharded", w)


def make_bf16(tokens, merges):
    C, F, L, T, V, H = 16, 64, 1, 8, 300, 2
    w = make_weights(C, F, L, T, V, 2)
    d = os.path.join(HERE, "bf16")
    os.makedirs(d, exist_ok=True)
    both = {name: to_bf16(a) for name, a in w.items()}
    tensors = {name: ("BF16", w[name].shape, bits.tobytes()) for name, (bits, _) in both.items()}
    tensors["lm_head.weight"] = tensors["wte.weight"]
    write_safetensors(os.path.join(d, "model.safetensors"), tensors, {"format": "pt"})
    dump(os.path.join(d, "config.json"),
         config(C, None, L, T, V, H, eos_token_id=[V - 1], activation_function="gelu_pytorch_tanh"),
         indent=1)
    dump(os.path.join(d, "vocab.json"), {t: i for i, t in enumerate(tokens)}, ensure_ascii=False)
    with open(os.path.join(d, "merges.txt"), "w", encoding="utf-8") as f:
        f.write("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    write_reference("bf16", {name: value for name, (_, value) in both.items()})


def to_q8_0(a):
    """Blocks of 32 along the last dimension: f16 factor, then 32 bytes; and their values."""
    blocks = a.reshape(-1, 32)
    d = (np.abs(blocks).max(1, keepdims=True) / 127).astype("<f2")
    q = np.clip(np.rint(blocks / d.astype(np.float32)), -127, 127).astype(np.int8)
    q[::7, 3] = -128                                # what ggml never writes, but reads
    data = b"".join(d[i].tobytes() + q[i].tobytes() for i in range(len(q)))
    return data, (d.astype(np.float32) * q.astype(np.float32)).reshape(a.shape)


GGUF = {"wte.weight": "token_embd.weight", "wpe.weight": "position_embd.weight",
        "ln_f.weight": "output_norm.weight", "ln_f.bias": "output_norm.bias", "ln_1": "attn_norm",
        "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm",
        "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}


def make_gguf(tokens, merges):
    C, F, L, T, V, H = 32, 64, 2, 16, 300, 4
    w = make_weights(C, F, L, T, V, 3)
    u32 = lambda x: struct.pack("<I", x)
    u64 = lambda x: struct.pack("<Q", x)
    text = lambda s: u64(len(s.encode())) + s.encode()
    strings = lambda l: u32(9) + u32(8) + u64(len(l)) + b"".join(text(s) for s in l)
    keys = {"general.architecture": u32(8) + text("gpt2"), "general.name": u32(8) + text("tiny"),
            "general.alignment": u32(4) + u32(64),
            "gpt2.context_length": u32(4) + u32(T), "gpt2.embedding_length": u32(4) + u32(C),
            "gpt2.block_count": u32(4) + u32(L), "gpt2.feed_forward_length": u32(4) + u32(F),
            "gpt2.attention.head_count": u32(4) + u32(H),
            "gpt2.attention.head_count_kv": u32(4) + u32(H),
            "gpt2.attention.layer_norm_epsilon": u32(6) + struct.pack("<f", 2e-5),
            "an.array.of.arrays": u32(9) + u32(9) + u64(2) + u32(0) + u64(3) + b"abc" +
                                  u32(8) + u64(1) + text("x"),
            "a.float64": u32(12) + struct.pack("<d", 0.5),
            "tokenizer.ggml.model": u32(8) + text("gpt2"),
            "tokenizer.ggml.pre": u32(8) + text("gpt-2"),
            "tokenizer.ggml.tokens": strings(tokens),
            "tokenizer.ggml.token_type": u32(9) + u32(5) + u64(V) +
                                         b"".join(u32(1) for _ in range(V - 1)) + u32(3),
            "tokenizer.ggml.merges": strings([" ".join(m) for m in merges]),
            "tokenizer.ggml.bos_token_id": u32(4) + u32(V - 1),
            "tokenizer.ggml.eos_token_id": u32(4) + u32(V - 1)}
    reference, tensors = {}, []
    for name, a in w.items():
        if name.startswith("h."):
            _, layer, rest = name.split(".", 2)
            part, kind = rest.rsplit(".", 1)
            new = f"blk.{layer}.{GGUF[part]}.{kind}"
        else:
            new = GGUF[name]
        linear = ".c_" in name and a.ndim == 2
        if linear:                                          # stored [out, in]
            data, value = to_q8_0(np.ascontiguousarray(a.T))
            tensors.append((new, a.T.shape, 8, data))
            reference[name] = value.T
        elif name == "wte.weight":
            half = a.astype("<f2")
            tensors.append((new, a.shape, 1, half.tobytes()))
            reference[name] = half.astype(np.float32)
        else:
            tensors.append((new, a.shape, 0, a.astype("<f4").tobytes()))
            reference[name] = a
    tensors.append(("output.weight", w["wte.weight"].shape, 1, w["wte.weight"].astype("<f2").tobytes()))
    infos, blob = b"", b""
    for name, shape, kind, data in tensors:
        blob += b"\0" * (-len(blob) % 64)
        infos += (text(name) + u32(len(shape)) + b"".join(u64(d) for d in reversed(shape)) +
                  u32(kind) + u64(len(blob)))
        blob += data
    head = (b"GGUF" + u32(3) + u64(len(tensors)) + u64(len(keys)) +
            b"".join(text(k) + v for k, v in keys.items()) + infos)
    with open(os.path.join(HERE, "tiny.gguf"), "wb") as f:
        f.write(head + b"\0" * (-len(head) % 64) + blob)
    write_reference("tiny.gguf", reference)


def make_llmc():
    C, L, T, V, H, padded = 16, 2, 8, 300, 2, 384
    w = make_weights(C, 4 * C, L, T, V, 4)
    order = ["ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias",
             "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight", "ln_2.bias",
             "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias"]
    for version, name in ((3, "v3.bin"), (5, "v5.bin")):
        header = np.zeros(256, "<i4")
        header[:8] = [20240326, version, T, V, L, H, C, padded]
        store = (lambda a: a.astype("<f4").tobytes()) if version == 3 else \
                (lambda a: to_bf16(a)[0].tobytes())
        with open(os.path.join(HERE, name), "wb") as f:
            f.write(header.tobytes())
            f.write(store(np.concatenate([w["wte.weight"], np.zeros((padded - V, C), np.float32)])))
            f.write(store(w["wpe.weight"]))
            for part in order:
                for i in range(L):
                    a = w[f"h.{i}.{part}"]
                    f.write(store(np.ascontiguousarray(a.T) if a.ndim == 2 else a))
            f.write(store(w["ln_f.weight"]) + store(w["ln_f.bias"]))
        write_reference(name, w if version == 3 else {k: to_bf16(a)[1] for k, a in w.items()})


def main():
    os.makedirs(HERE, exist_ok=True)
    tokens, merges = train_bpe(43)
    assert len(tokens) == 300
    make_sharded(tokens, merges)
    make_bf16(tokens, merges)
    os.makedirs(os.path.join(HERE, "strings"), exist_ok=True)
    dump(os.path.join(HERE, "strings", "tokenizer.json"), tokenizer_json(tokens, merges, False),
         ensure_ascii=False, indent=1)
    make_gguf(tokens, merges)
    make_llmc()


if __name__ == "__main__":
    main()
