"""GPT-2 in float64 with every activation, random models, and files of safetensors: what makers and comparisons share.

Weights have Hugging Face's names, activations TransformerLens's, except that hook_normalized stands twice: `.pre` before
the affine part and `.post` after it, because TransformerLens changed the meaning of the name in 2025.
"""
import json
import math
import os
import struct

import numpy as np

TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I64": np.int64, "I32": np.int32}
NAMES = {np.dtype(kind).name: name for name, kind in TYPES.items()}


def read_safetensors(path):
    """Its tensors without Hugging Face's prefix, BF16 as float32; masks are left out."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    tensors = {}
    for name, t in header.items():
        if name != "__metadata__" and t["dtype"] in TYPES:
            x = np.frombuffer(data[slice(*t["data_offsets"])], TYPES[t["dtype"]]).reshape(t["shape"])
            x = (x.astype(np.uint32) << 16).view(np.float32) if t["dtype"] == "BF16" else x
            tensors[name.removeprefix("transformer.")] = x
    return tensors


def write_safetensors(path, tensors, metadata=None):
    """tensors: arrays by name, or type, shape and bytes of what NumPy does not have."""
    header, blobs, at = {"__metadata__": metadata} if metadata else {}, [], 0
    for name, x in tensors.items():
        kind, shape, data = x if isinstance(x, tuple) else (NAMES[x.dtype.name], x.shape, x.tobytes())
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        blobs.append(data)
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def shapes(layers, width, inner, vocab, ctx, untied=False):
    """Name and shape of each weight, in the order of a checkpoint."""
    yield from (("wte.weight", (vocab, width)), ("wpe.weight", (ctx, width)))
    for i in range(layers):
        for name, shape in (("ln_1", (width,)), ("attn.c_attn", (width, 3 * width)), ("attn.c_proj", (width, width)),
                            ("ln_2", (width,)), ("mlp.c_fc", (width, inner)), ("mlp.c_proj", (inner, width))):
            yield from ((f"h.{i}.{name}.weight", shape), (f"h.{i}.{name}.bias", shape[-1:]))
    yield from (("ln_f.weight", (width,)), ("ln_f.bias", (width,)))
    if untied:
        yield "lm_head.weight", (vocab, width)


def random_weights(layers, width, inner, vocab, ctx, untied=False, seed=0):
    """Large enough for every part to matter. Both LayerNorms of a block are drawn before its matrices."""
    r, w = np.random.default_rng(seed), {}
    drawn = list(shapes(layers, width, inner, vocab, ctx, untied))
    blocks = [item for item in drawn if item[0].startswith("h.")]
    blocks.sort(key=lambda item: (int(item[0].split(".")[1]), ".ln_" not in item[0]))
    for name, shape in drawn[:2] + blocks + drawn[2 + len(blocks):]:
        w[name] = r.normal(0, 0.05 if name == "wpe.weight" else 0.12, shape)
        if "ln_" in name and name.endswith(".weight"):
            w[name] += 1
    return w


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def erf(x):
    return np.vectorize(math.erf)(x) if isinstance(x, np.ndarray) else x.erf()


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def softmax(x):
    if not isinstance(x, np.ndarray):
        return x.softmax(-1)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def gelu_tanh(lib, x):
    return 0.5 * x * (1 + lib.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


ACTIVATIONS = {"gelu_new": gelu_tanh, "gelu_pytorch_tanh": gelu_tanh, "gelu": lambda lib, x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
               "relu": lambda lib, x: lib.clip(x, 0, None), "silu": lambda lib, x: x / (1 + lib.exp(-x))}


class Model:
    """A checkpoint. After run() `a` has every activation, each as edit(name, x) returned it."""

    def __init__(self, weights, config, lib=np):
        """lib: numpy, or torch, which has the functions below under the same names."""
        self.w = {name: lib.asarray(x.astype(np.float64)) for name, x in weights.items() if x.dtype.kind == "f"}
        self.lib, self.config, self.a = lib, config, {}
        self.layers, self.heads, self.width, self.vocab = (config[key] for key in ("n_layer", "n_head", "n_embd", "vocab_size"))
        self.n_ctx, self.eps = config.get("n_positions", config.get("n_ctx")), config.get("layer_norm_epsilon", 1e-5)
        self.d = self.width // self.heads
        self.W_U = self.w.get("lm_head.weight", self.w["wte.weight"]).T

    @classmethod
    def open(cls, directory, lib=np, **config):
        """Of a directory of Hugging Face, in one file or several; config: what is to be other than in its config.json."""
        files, index = ["model.safetensors"], os.path.join(directory, "model.safetensors.index.json")
        if os.path.exists(index):
            files = sorted(set(read_json(index)["weight_map"].values()))
        w = {name: x for file in files for name, x in read_safetensors(os.path.join(directory, file)).items()}
        return cls(w, {**read_json(os.path.join(directory, "config.json")), **config}, lib)

    def edit(self, name, x):
        return x

    def hook(self, name, x):
        self.a[name] = self.edit(name, x)
        return self.a[name]

    def linear(self, x, name):
        return x @ self.w[name + ".weight"] + self.w[name + ".bias"]

    def norm(self, x, name, hooks=None):
        """hooks: the LayerNorm's own name, if its activations are to be kept."""
        keep = self.hook if hooks else lambda name, x: x
        x = x - x.mean(-1, keepdims=True)
        scale = keep(f"{hooks}.hook_scale", self.lib.sqrt((x ** 2).mean(-1, keepdims=True) + self.eps))
        x = keep(f"{hooks}.hook_normalized.pre", x / scale)
        return keep(f"{hooks}.hook_normalized.post", x * self.w[name + ".weight"] + self.w[name + ".bias"])

    def heads_of(self, x, i, split):
        """q, k and v [T, H, d]; with `split` each head reads copies of the stream of its own."""
        p, t, n = f"h.{i}.", f"blocks.{i}.", len(x)
        if not split:
            y = self.linear(self.norm(x, p + "ln_1", t + "ln1"), p + "attn.c_attn").reshape(n, 3, self.heads, self.d)
            return [y[:, part] for part in range(3)]
        w = self.w[p + "attn.c_attn.weight"].reshape(self.width, 3, self.heads, self.d)
        b = self.w[p + "attn.c_attn.bias"].reshape(3, self.heads, self.d)
        x = self.hook(t + "hook_attn_in", self.lib.broadcast_to(x[:, None], (n, self.heads, self.width)))
        read = [self.norm(self.hook(t + f"hook_{part}_input", x), p + "ln_1") for part in "qkv"]
        return [self.lib.einsum("thc,chd->thd", y, w[:, part]) + b[part] for part, y in enumerate(read)]

    def score_scale(self, i):
        scale = math.sqrt(self.d) if self.config.get("scale_attn_weights", True) else 1
        return scale * (i + 1 if self.config.get("scale_attn_by_inverse_layer_idx") else 1)

    def attention(self, x, i, split):
        p, t, n, lib = f"h.{i}.attn.", f"blocks.{i}.attn.", len(x), self.lib
        q, k, v = [self.hook(t + "hook_" + name, y) for name, y in zip("qkv", self.heads_of(x, i, split))]
        scores = lib.einsum("qhd,khd->hqk", q, k) / self.score_scale(i)
        scores = lib.where(lib.tril(lib.ones((n, n), dtype=bool)), scores, -lib.inf)
        pattern = self.hook(t + "hook_pattern", softmax(self.hook(t + "hook_attn_scores", scores)))
        z = self.hook(t + "hook_z", lib.einsum("hqk,khd->qhd", pattern, v))
        result = lib.einsum("qhd,hdc->qhc", z, self.w[p + "c_proj.weight"].reshape(self.heads, self.d, self.width))
        if split:
            return self.hook(t + "hook_result", result).sum(1) + self.w[p + "c_proj.bias"]
        self.a[t + "hook_result"] = result
        return self.linear(z.reshape(n, self.width), p + "c_proj")

    def block(self, x, i, split):
        p, t = f"h.{i}.", f"blocks.{i}."
        x = self.hook(t + "hook_resid_pre", x)
        x = self.hook(t + "hook_resid_mid", x + self.hook(t + "hook_attn_out", self.attention(x, i, split)))
        y = self.norm(self.hook(t + "hook_mlp_in", x), p + "ln_2", t + "ln2")
        y = self.hook(t + "mlp.hook_pre", self.linear(y, p + "mlp.c_fc"))
        y = self.hook(t + "mlp.hook_post", ACTIVATIONS[self.config.get("activation_function", "gelu_new")](self.lib, y))
        return self.hook(t + "hook_resid_post", x + self.hook(t + "hook_mlp_out", self.linear(y, p + "mlp.c_proj")))

    def activations(self, ids):
        self.run(ids)
        return self.a

    def run(self, ids, split=False, stream=None):
        """Logits [T, V]; a stream [T, C] takes the place of the embeddings."""
        self.a = {}
        x = stream
        if stream is None:
            x = self.hook("hook_embed", self.w["wte.weight"][ids]) + self.hook("hook_pos_embed", self.w["wpe.weight"][:len(ids)])
        for i in range(self.layers):
            x = self.block(x, i, split)
        self.a["logits"] = self.norm(x, "ln_f", "ln_final") @ self.W_U
        return self.a["logits"]
