#!/usr/bin/env python3
"""Writes the first files of tests/fuzz/corpus, from which fuzzing starts.

    make && python3 tests/makers/make_fuzz_seeds.py

They are as small as a file of their kind can be that is read to its end. What fuzzing adds to the
corpus has names that libFuzzer gives."""

import io
import json
import os
import struct
import subprocess
import tempfile
from collections import OrderedDict
from types import SimpleNamespace

from float64 import shapes
from vocabulary import stand_ins

CORPUS = "tests/fuzz/corpus"
DIVIDER = b"\n%%%\n"


def put(target, name, data):
    os.makedirs(f"{CORPUS}/{target}", exist_ok=True)
    with open(f"{CORPUS}/{target}/{name}", "wb") as file:
        file.write(data)


def config(n_vocab, **more):
    return dict(model_type="gpt2", vocab_size=n_vocab, n_positions=3, n_embd=2, n_head=1, n_layer=1,
                n_inner=2, **more)


def header(n_vocab, untied=False, dtype="F32"):
    entries, at = {}, 0
    for name, shape in shapes(1, 2, 2, n_vocab, 3, untied):
        size = (4 if dtype == "F32" else 2)
        for n in shape:
            size *= n
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return entries, at


def version_1(file):
    """The same model without its strings; its checksums are left to the target."""
    n_tensors, begin = struct.unpack_from("<I", file, 64)[0], struct.unpack_from("<Q", file, 96)[0]
    begin = begin + struct.unpack_from("<Q", file, 104)[0] if begin else 256 + 128 * n_tensors
    begin += -begin % 64
    end = begin + struct.unpack_from("<Q", file, begin + 8)[0]
    end += -end % 64
    made = bytearray(file[:begin] + file[end:])
    struct.pack_into("<I", made, 8, 1)
    for at in [256 + 128 * i + 96 for i in range(n_tensors)]:
        struct.pack_into("<Q", made, at, struct.unpack_from("<Q", made, at)[0] - (end - begin))
    return bytes(made)


def version_3(file):
    """The same model with a b_U and three tokens that end a text; its checksums are left to the target."""
    n_vocab, n_tensors = struct.unpack_from("<I", file, 24)[0], struct.unpack_from("<I", file, 64)[0]
    end = 256 + 128 * n_tensors
    file = bytearray(file[:end] + bytes(128) + file[end:])
    for at in [96] + [256 + 128 * i + 96 for i in range(n_tensors)]:  # where sections begin: after one entry more
        begin = struct.unpack_from("<Q", file, at)[0]
        struct.pack_into("<Q", file, at, begin + 128 if begin else 0)
    file += bytes(-len(file) % 64)
    struct.pack_into("<64s3I4xQQQQ", file, end, b"unembed.b_U", 0, 0, 1, n_vocab, 1, len(file), 4 * n_vocab)
    file += struct.pack(f"<{n_vocab}f", *range(n_vocab))
    struct.pack_into("<I", file, 8, 3)
    struct.pack_into("<I", file, 52, file[52] | 8)
    struct.pack_into("<I", file, 60, 1)
    struct.pack_into("<I", file, 64, n_tensors + 1)
    struct.pack_into("<Q", file, 80, 128 * (n_tensors + 1))
    struct.pack_into("<3I", file, 120, 2, 0, n_vocab - 1)
    return bytes(file)


def shards(n_vocab):
    """Two headers, each for a kilobyte of weights (a mask takes the rest), and the index of both."""
    entries, _ = header(n_vocab)
    names = list(entries)
    made, places = [], {}
    for file, half in [("a", names[::2]), ("b", names[1::2])]:
        at, some = 0, {}
        for name in half:
            begin, end = entries[name]["data_offsets"]
            some[name] = dict(entries[name], data_offsets=[at, at + end - begin])
            at += end - begin
        mask = "h.0.attn.bias" if file == "a" else "h.0.attn.masked_bias"
        some[mask] = {"dtype": "U8", "shape": [1024 - at], "data_offsets": [at, 1024]}
        made.append(some)
        places.update(dict.fromkeys(some, file))
    return made, {"metadata": {"total_size": 2048}, "weight_map": places}


def small(value):
    return json.dumps(value, separators=(",", ":")).encode()


def tokenizer_json():
    vocab = {s: i for i, s in enumerate(stand_ins())}
    vocab["ab"] = 256
    return {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
            "model": {"type": "BPE", "vocab": vocab, "merges": ["a b"]},
            "added_tokens": [{"id": 257, "content": "<|endoftext|>", "special": True}]}


GGUF_TYPES = {"F32": (0, 4), "F16": (1, 2), "Q8_0": (8, 34 / 32), "BF16": (30, 2)}
GGUF_NAMES = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "lm_head": "output",
              "ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
              "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}


def gguf(dtype, version=3, align=32, untied=False, vocab=False, c=2, extra=b"", n_extra=0):
    """All of a GGUF file but its weights, and how many bytes of those there must be."""
    def u32(*numbers):
        return struct.pack(f"<{len(numbers)}I", *numbers)

    def text(s):
        return struct.pack("<Q", len(s.encode())) + s.encode()

    def strings(values):
        return u32(9, 8) + struct.pack("<Q", len(values)) + b"".join(map(text, values))

    n_vocab = 258 if vocab else 5
    keys = {"general.architecture": u32(8) + text("gpt2"), "general.alignment": u32(4, align)}
    for name, value in [("context_length", 3), ("embedding_length", c), ("block_count", 1),
                        ("feed_forward_length", c), ("attention.head_count", 1)]:
        keys["gpt2." + name] = u32(4, value)
    keys["gpt2.attention.layer_norm_epsilon"] = u32(6) + struct.pack("<f", 1e-5)
    if vocab:
        keys["tokenizer.ggml.model"] = u32(8) + text("gpt2")
        keys["tokenizer.ggml.tokens"] = strings([*stand_ins(), "ab", "<|endoftext|>"])
        keys["tokenizer.ggml.merges"] = strings(["a b"])
        keys["tokenizer.ggml.eos_token_id"] = u32(4, 257)
    infos, at, count = b"", 0, 0
    for name, shape in shapes(1, 2, 2, n_vocab, 3, untied):
        shape = [c if n == 2 else 3 * c if n == 6 else n for n in shape]
        part, kind = name.replace("h.0.", "").rsplit(".", 1)
        new = ("blk.0." if name.startswith("h.0.") else "") + GGUF_NAMES[part] + "." + kind
        number, size = GGUF_TYPES[dtype if len(shape) == 2 and part != "wpe" else "F32"]
        stored = shape if part in ("wte", "wpe", "lm_head") else shape[::-1]  # [out, in]
        infos += text(new) + u32(len(shape)) + struct.pack(f"<{len(shape)}Q", *stored[::-1])
        infos += u32(number) + struct.pack("<Q", at)
        for n in shape:
            size *= n
        at += -(-int(size) // align) * align
        count += 1
    head = b"GGUF" + u32(version) + struct.pack("<QQ", count, len(keys) + n_extra)
    head += b"".join(text(k) + v for k, v in keys.items()) + extra + infos
    return head + bytes(-len(head) % align), at


def put_gguf(name, output, dtype, **more):
    data, size = gguf(dtype, **more)
    put("gguf", name, bytes([-(-size // 1024), output]) + data)


class Pairs:
    """An OrderedDict as Python 2 pickled it."""

    def __reduce__(self):
        return OrderedDict, ([["n_head", 1], ["activation", "relu"]],)


def torch_saved(transposed, zipped, whole=False):
    """What torch.save writes of this model with nanoGPT's configuration; all tensors are of one storage. `whole`: as a module,
    by a newer protocol, beside values of all kinds."""
    import torch
    file, numbers, model = io.BytesIO(), torch.zeros(64), {}
    for name, shape in shapes(1, 2, 2, 5, 3, False):
        step = (1, shape[0]) if transposed else (shape[-1], 1)
        model[name] = numbers.as_strided(shape, step[-len(shape):])
    if whole:
        module, odd = torch.nn.Module(), torch.zeros(2)
        module._parameters.update(model)
        module.buffer, odd.note = torch.nn.Buffer(torch.zeros(2, 0).expand(2, 0)), 1
        torch.save({"net": module, "hparams": SimpleNamespace(config=Pairs()), "odd": odd, "sparse": odd.to_sparse(), "five": odd[
            None, None, None, None], "values": [1e300, 2**70, -5, {1}, b"x", True, False, (), (1, 2, 3, 4)]}, file, pickle_protocol=4)
        return file.getvalue()
    torch.save({"model": model, "model_args": {"n_head": 1, "bias": True}, "best_val_loss": numbers.mean()}, file,
               _use_new_zipfile_serialization=zipped)
    return file.getvalue()


def chain():
    """A long word whose cut changes what is merged more than a sixteenth of a window before it: seven
    tokens of 96 bytes, whose pairs merge from the last to the first."""
    merges, whole = [], []
    for letter in b"abcdefg":
        t = 128 + len(merges)  # the next token
        merges += [(letter, letter), (t, t), (t + 1, t + 1), (t + 2, t + 2), (t + 3, t + 3), (t + 4, t + 4),
                   (t + 5, t + 4)]
        whole.append(t + 6)
    merges += [(whole[i], whole[i + 1]) for i in range(5, -1, -1)]
    text = b"\1\xbaz\1\x40z" + b"".join(b"\1\x60" + bytes([letter]) for letter in b"abcdefg")
    return b"\3" + bytes([len(merges)]) + b"".join(map(bytes, merges)) + text


def main():
    tokenizer = small(tokenizer_json())
    with tempfile.TemporaryDirectory() as where:
        for n_vocab, untied in [(5, False), (5, True), (258, False)]:
            entries, size = header(n_vocab, untied)
            with open(f"{where}/config.json", "wb") as file:
                file.write(small(config(n_vocab, tie_word_embeddings=not untied)))
            with open(f"{where}/model.safetensors", "wb") as file:
                text = small(entries)
                file.write(struct.pack("<Q", len(text)) + text)
                file.write(b"".join(struct.pack("<f", i / 64 - 0.7) for i in range(size // 4)))
            if n_vocab == 258:
                with open(f"{where}/tokenizer.json", "wb") as file:
                    file.write(tokenizer)
            for dtype in ["f32", "f16", "q8", "q4"]:
                out = f"{where}/out.attn"
                subprocess.run(["build/attn-convert", where, out, "--dtype", dtype], check=True,
                               stderr=subprocess.DEVNULL)
                if n_vocab == 5 or dtype == "f32":
                    with open(out, "rb") as file:
                        made = file.read()
                    put("attn", f"{dtype}-{n_vocab}{'-untied' * untied}", made)
                    if dtype == "f32":
                        put("attn", f"version-1-{n_vocab}{'-untied' * untied}", version_1(made))
                        put("attn", f"version-3-{n_vocab}{'-untied' * untied}", version_3(version_1(made)))
        with open(f"{where}/tokenizer_config.json", "wb") as file:
            file.write(small({"add_prefix_space": True}))
        entries.update({"score.weight": {"dtype": "F32", "shape": [3, 2], "data_offsets": [size, size + 24]}})
        with open(f"{where}/model.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(small(entries))) + small(entries) + bytes(size + 24))
        subprocess.run(["build/attn-convert", "-q", where, out], check=True)
        with open(out, "rb") as file:
            put("attn", "version-5", file.read())
    for number, (n_vocab, dtype, untied) in enumerate([(5, "F32", False), (5, "F16", True),
                                                       (258, "BF16", False)]):
        entries, size = header(n_vocab, untied, dtype)
        entries["__metadata__"] = {"format": "pt"}
        # zeros to a whole number of kilobytes: a tensor that is left out takes the rest
        rest = -size % 1024
        entries["h.0.attn.bias"] = {"dtype": "U8", "shape": [rest], "data_offsets": [size, size + rest]}
        data = bytes([(size + rest) // 1024, number]) + small(config(
            n_vocab, tie_word_embeddings=not untied, bos_token_id=1, eos_token_id=[2]))
        data += DIVIDER + small(entries)
        put("huggingface", f"{dtype}-{n_vocab}", data + (DIVIDER + tokenizer if n_vocab == 258 else b""))
        if n_vocab == 258:  # what ends a text is only in the vocabulary, and the model does not know it
            data = data.replace(b'"eos', b'"not')
            put("huggingface", "end-939", data + DIVIDER + tokenizer.replace(b'"id":257', b'"id":939'))

    (first, second), index = shards(5)
    text = bytes([1, 1]) + small(config(5)) + DIVIDER + small(first) + DIVIDER
    put("huggingface", "shards", text + DIVIDER + small(index) + DIVIDER + small(second))
    entries, size = header(5)
    entries["h.0.attn.bias"] = {"dtype": "U8", "shape": [1024 - size], "data_offsets": [size, 1024]}
    put("huggingface", "shard", bytes([1, 2]) + small(config(5)) + DIVIDER + small(entries) + DIVIDER + DIVIDER
        + small({"weight_map": dict.fromkeys(entries, "a")}))

    with open("tests/fixtures/convert/tiny.gguf", "rb") as file:
        whole = file.read()
    end = max(whole.find(b"output_norm"), whole.find(b"blk.0")) + 100
    start = next(at for at in range(end, len(whole)) if not any(whole[at:at + 16])) if end else 0
    for name, cut in [("tiny", len(whole)), ("header", min(start + 1024, len(whole)))]:
        if cut < 24000 or name == "header":
            put("gguf", name, bytes([255 if name == "header" else 0, 1]) + whole[:cut])
    for name, *options in [("zip", False, True), ("views", True, True), ("old", True, False), ("module", False, True, True)]:
        put("pickle", name, b"\0\1" + torch_saved(*options))
    put_gguf("f32", 2, "F32", untied=True)
    put_gguf("f16-v2", 0, "F16", version=2)
    put_gguf("bf16", 1, "BF16", align=64)
    put_gguf("q8", 3, "Q8_0", c=32, untied=True)
    put_gguf("vocab", 0, "F32", vocab=True)
    key = struct.pack("<Q", 1) + b"x"
    put_gguf("keys", 4, "F16", n_extra=3, extra=key + struct.pack("<IIQIQ3sIQ", 9, 9, 2, 0, 3, b"abc", 10, 0)
             + key + struct.pack("<Id", 12, 0.5) + key + struct.pack("<IB", 7, 1))
    said = {"general.name": b"a", "general.source.url": b"b", "general.url": b"c", "general.license": b"\x1b"}
    put_gguf("card", 0, "F32", n_extra=len(said), extra=b"".join(
        struct.pack("<Q", len(k)) + k.encode() + struct.pack("<IQ", 8, len(v)) + v for k, v in said.items()))
    for name, version in [("v3", 3), ("v5", 5)]:
        numbers = [20240326, version, 3, 5, 1, 1, 2, 128]
        put("llmc", name, b"\2" + struct.pack("<8I", *numbers))
    put("vocab", "json", tokenizer)
    put("vocab", "far", tokenizer.replace(b'"ab":256', b'"ab":2147483646'))
    for name in ["bf16"]:
        with open(f"tests/fixtures/convert/{name}/vocab.json", "rb") as a, \
                open(f"tests/fixtures/convert/{name}/merges.txt", "rb") as b:
            pair = a.read() + DIVIDER + b.read()
            put("vocab", name, pair)
            put("vocab", "added", pair + DIVIDER + small({"<|a|>": 300, "<|endoftext|>": 299}))
    with open("tests/fixtures/convert/strings/tokenizer.json", "rb") as file:
        put("vocab", "strings", file.read())
    flags = {"content": "<|a|>", "normalized": True, "lstrip": False, "special": True}
    settings = {"added_tokens_decoder": {"258": flags}, "bos_token": "<|endoftext|>", "add_bos_token": True,
                "tokenizer_class": "GPT2Tokenizer", "chat_template": "x"}
    put("vocab", "beside", DIVIDER.join([
        small(tokenizer_json()["model"]["vocab"]), b"a b\n", small({"<|a|>": 258}), small(settings),
        small({"pad_token": flags, "additional_special_tokens": ["<|a|>"]}), tokenizer]))

    for number, text in enumerate([
            "Once upon a time, there was a little girl named Lily.\n\nShe'll don't I'VE we're 1234 x²",
            "  \n \t a   b\u00a0\u3000c\u2028 ", "café \u4e2d\u6587 \ud55c \U0001f408 ½٣ e\u0301",
            "'s't 's'' 'll're", "\r\n\r\n   end   "]):
        put("tokenizer", f"text-{number}", b"\0" + text.encode())
    put("tokenizer", "bytes", b"\x08a\xff\xfe\xe2\x82 \xf0\x9f\x90 \xed\xa0\x80 \xc0\x80b")
    put("tokenizer", "merges", b"\1\6ab\x80cbc\x81a\x80\x80aaabcabcabcab abc cab aaaa")
    put("tokenizer", "letters", b"\1\5aaaa\x80\x80\x80aa\x80aaaaaaaaa a aaaaaaaa")
    put("tokenizer", "end-of-text", b"\0a <|endoftext|><|endoftext <|endoftext|>\n b<|endoftext|>")
    # a special token, one that begins like it and is longer, and one that the merges make as well
    put("tokenizer", "special", b"\1\xc2aaaa\x80\0\x20<|\0\x22>\3\x02 <|<|><|aaaa a<|>|< |>aa")
    put("tokenizer", "windows", b"\x07\5aaaa\x80\x80\x80aa\x80a\1\xffa\2\xffba\1\xc0a\3\x90aab\1\xff ")
    put("tokenizer", "window-ends", chain())
    put("tokenizer", "words", b"\2\5\xa0 once\7\x83\n 12's!\1\xffl\2\xe0 \n")
    # calls: 16 * session + kind (0 batch, 1 truncate, 3 copy, 4 score, 5 generate, 7 stopped, 8 feed,
    # 11 the cache, 12 a hook that watches), then what each takes
    put("session", "feeds", bytes([8, 35, 1, 2, 3, 24, 34, 9, 9, 0, 2, 0, 16, 34, 4, 5, 0, 34, 6, 7,
                                   1, 8, 5, 7, 35, 3, 9, 27, 40, 2, 13]))
    put("session", "loop", bytes([8, 38, 1, 2, 3, 1, 2, 3, 5, 5, 30, 4, 5, 200, 9, 3, 5, 16, 20, 3, 1]))
    put("session", "stop", bytes([8, 34, 5, 5, 7, 3, 35, 1, 2, 3, 1, 1, 8, 34, 4, 4, 7, 131, 47, 1, 2, 3, 4]))
    put("session", "score", bytes([12, 4, 31, *range(1, 13), 27, 0, 1, 2, 3, 20, 30, 7, 8, 9, 5, 5, 5, 5, 5, 5]))
    put("session", "listener", bytes([56, 35, 1, 2, 3, 53, 192, 12, 33, 5, 3, 53, 8, 39, 59, 1, 2, 0, 30]))
    # feed 5, back to 2; then layers 1 and 2 of the same tokens, from the stream that enters them;
    # then layer 0 alone of others, and what follows it
    put("session", "layers", bytes([8, 37, 1, 2, 3, 4, 5, 1, 2, 0, 0, 141, 0, 227,
                                    0, 0, 164, 4, 34, 6, 7, 0, 0, 141, 2, 226]))
    # a feed of other tokens is stopped: the layers hold neither these nor those
    put("session", "stale", bytes([8, 36, 1, 2, 3, 4, 1, 2, 7, 40, 34, 7, 8, 0, 0, 141, 0, 34, 7, 8]))
    put("session", "kinds", bytes([8, 35, 1, 2, 3, 24, 35, 1, 2, 3, 3, 1, 67, 1, 51, 0, 35, 2, 8, 34, 4, 4]))
    # sizes, seen; temperature, top-p, min-p, repetition penalty; top-k, last seen, seed; seen, logits
    put("sampler", "greedy", bytes([8, 16, 64, 64, 64, 64, 10, 0, 1, 20, 21, *range(60, 68)]))
    put("sampler", "filters", bytes([9, 24, 72, 138, 138, 74, 14, 2, 1, 20, 21, 22, *range(50, 59)]))
    put("sampler", "top-p", bytes([12, 7, 72, 68, 64, 64, 10, 0, 3, *range(60, 72)]))
    put("sampler", "top-k-then-p", bytes([12, 7, 72, 68, 64, 64, 15, 0, 3, *range(60, 72)]))
    put("sampler", "equal", bytes([6, 7, 72, 68, 64, 64, 10, 0, 4, *[64] * 6]))
    put("sampler", "two", bytes([2, 7, 72, 64, 64, 64, 10, 0, 4, 64, 66]))
    put("sampler", "min-p", bytes([12, 7, 80, 64, 65, 64, 10, 0, 5, *range(60, 72)]))
    # even: patterns
    put("hooks", "all", bytes([0, 0, 10, 1, 42, 5]))
    put("hooks", "write", bytes([0, 3, 200, 20, *([1] * 20), 0, 70, 9, *([1, 4] * 5), 3]))
    put("hooks", "stop", bytes([0, 0, 10, 1, 42, 4, 150, 20, *([3] * 10), 4, *([1] * 9), 3]))
    put("hooks", "on-request", bytes([0, 0, 10, 14, *b"*.hook_result\0", 0, 10, 8, *b"*.hook_*"]))
    # odd: how many tokens and changes; tokens; of each change what, how, heads, factor, values; the
    # record; pieces; then what changes in the cache
    for name in range(0, 100, 7):
        put("hooks", f"change-{name}", bytes([1 + 2 * (name % 2), 9, 0, *range(97, 107), name, 7 + 16 * (name % 4),
                                              0, 1, 140, 130, 120, 1, name % 6, name % 3, 0, 3, 200, 2, 1, 7,
                                              97, name % 2, name % 3, 2, 3, *range(90, 120)]))
    put("hooks", "changes", bytes([1, 11, 2, *range(97, 109), 30, 33, 0, 1, 140, 130, 12, 2, 140, 150, 13, 3, 18,
                                   99, 1, 136, 150, 3, 1, 4, 220, 5, 255, 3, 0, 98, 1, 1, 0, 5, *range(80, 120)]))
    put_lens()


def put_numbers(name, kind, dtype, tensors, before=b""):
    """A seed of tests/fuzz/fuzz_lens.c: the header of a safetensors file of these (name, shape)."""
    entries, at = {}, 0
    for tensor, shape in tensors:
        size = 4 if dtype == "F32" else 2
        for n in shape:
            size *= n
        entries[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    put("lens", name, struct.pack("<BH", kind, at // 2) + before + small(entries))


def put_lens():
    """For the model of fuzz.h, which is 10 wide and has 3 layers."""
    n, m = 10, 13
    kinds = {"standard": [("b_enc", [m])], "topk": [("b_enc", [m])],
             "jumprelu": [("b_enc", [m]), ("threshold", [m])],
             "gated": [("b_gate", [m]), ("r_mag", [m]), ("b_mag", [m])]}
    for i, (kind, more) in enumerate(kinds.items()):
        cfg = {"architecture": kind, "d_in": n, "d_sae": m, "apply_b_dec_to_input": i % 2 == 0,
               "normalize_activations": ["none", "layer_norm", "constant_norm_rescale", "none"][i],
               "metadata": {"hook_name": ["blocks.1.hook_resid_pre", "blocks.0.attn.hook_z",
                                          "*.hook_mlp_out", "ln_final.hook_normalized"][i],
                            "hook_head_index": None}}
        if kind == "topk":
            cfg.update(k=3, rescale_acts_by_decoder_norm=True)
        put_numbers(f"sae-{kind}", 0, "F16" if kind == "gated" else "F32",
                    [("W_enc", [n, m]), ("W_dec", [m, n]), ("b_dec", [n]), *more], small(cfg) + DIVIDER)
    old = {"d_in": n, "d_sae": m, "hook_point": "hook_embed", "activation_fn_str": "topk",
           "activation_fn_kwargs": {"k": 2}}
    put_numbers("sae-old", 0, "F32", [("W_enc", [n, m]), ("W_dec", [m, n]), ("b_dec", [n]), ("b_enc", [m])],
                small(old) + DIVIDER)

    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()

    for name, layers in [("control", [1, 2]), ("control-zero", [0])]:
        head = b"GGUF" + struct.pack("<IQQ", 3, len(layers), 3)
        head += text("general.architecture") + struct.pack("<I", 8) + text("controlvector")
        head += text("controlvector.model_hint") + struct.pack("<I", 8) + text("gpt2")
        head += text("controlvector.layer_count") + struct.pack("<II", 4, len(layers))
        for i, layer in enumerate(layers):
            head += text(f"direction.{layer}") + struct.pack("<IQIQ", 1, n, 0, 64 * i)
        put("lens", name, struct.pack("<BH", 1, 32 * len(layers)) + head + bytes(-len(head) % 32))
    for name, kind, tensors in [("rows", 2, [("direction.0", [n]), ("direction.2", [n])]),
                                ("all-layers", 2, [("directions", [3, n])]),
                                ("tuned", 3, [(f"{i}.{part}", [n, n][:1 + (part == "weight")]) for i in range(3)
                                              for part in ("weight", "bias")])]:
        put_numbers(name, kind, "F32", tensors)


main()
