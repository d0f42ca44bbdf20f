#!/usr/bin/env python3
"""A clean GPT-2 in NumPy, module by module, each checked against the activations of the engine; then the
glass box: a head taken out, the logit lens, activation patching.

    make build/libattn.so build/tiny-stories.attn build/induction.attn
    python3 examples/python/clean_gpt2.py [MODEL.attn [INDUCTION.attn]]

The first part is notebook 001 (examples/from_scratch/001_clean_gpt2.c), with NumPy in the place of
PyTorch and attn.h in that of TransformerLens. `# %%` begins a cell, for editors that run cells.
"""
# %% Setup
import math
import pathlib
import sys
from dataclasses import dataclass

import numpy as np

import attn
from attn import lens as research

ROOT = pathlib.Path(__file__).resolve().parents[2]
Array = attn.Array

reference_gpt2 = attn.Model(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "tiny-stories.attn")
reference_text = ("I am an amazing autoregressive, decoder-only, GPT-2 style transformer. One day I will exceed human "
                  "level intelligence and take over the world!")
tokens = reference_gpt2.to_tokens(reference_text, prepend_bos=True)
logits, cache = reference_gpt2.run_with_cache(tokens)

# %% All activations of a block, and their shapes
for name in cache:
    if not name.startswith("blocks.") or name.startswith("blocks.0."):
        print(f"{name:36} {cache[name].shape}")

# %% All parameters, and their shapes. W_QKV holds W_Q, W_K and W_V, which have names of their own, too.
for name in reference_gpt2.tensor_names():
    if not name.startswith("blocks.") or name.startswith("blocks.0."):
        print(f"{name:36} {reference_gpt2.tensor(name).shape}")


# %% The configuration
@dataclass
class Config:
    d_model: int
    layer_norm_eps: float
    d_vocab: int
    n_ctx: int
    d_head: int
    d_mlp: int
    n_heads: int
    n_layers: int


c = reference_gpt2.config
cfg = Config(c.d_model, c.ln_eps, c.n_vocab, c.n_ctx, c.d_head, c.d_mlp, c.n_head, c.n_layer)
print(cfg)


def load_gpt2_test(module: str, output: Array, reference: Array) -> None:
    """The share of a module's values that are the reference's."""
    print(f"\n{module}\nOutput shape: {output.shape}\nReference output shape: {reference.shape}")
    print(f"{np.isclose(output, reference, atol=1e-4, rtol=1e-3).mean():.2%} of the values are correct")


# %% LayerNorm: mean 0, variance 1, then a gain and a bias
class LayerNorm:
    def __init__(self, name: str) -> None:
        self.w, self.b = reference_gpt2.tensor(name + ".w"), reference_gpt2.tensor(name + ".b")

    def __call__(self, residual: Array) -> Array:
        residual = residual - residual.mean(-1, keepdims=True)
        scale: Array = np.sqrt(residual.var(-1, keepdims=True) + cfg.layer_norm_eps)
        return residual / scale * self.w + self.b


load_gpt2_test("LayerNorm", LayerNorm("ln_final")(cache["resid_post", cfg.n_layers - 1]),
               cache["ln_final.hook_normalized.post"])


# %% Embeddings: rows of two tables
class Embed:
    def __init__(self) -> None:
        self.W_E = reference_gpt2.tensor("embed.W_E")

    def __call__(self, tokens: attn.Ids) -> Array:
        return self.W_E[tokens]


class PosEmbed:
    def __init__(self) -> None:
        self.W_pos = reference_gpt2.tensor("pos_embed.W_pos")

    def __call__(self, tokens: attn.Ids) -> Array:
        return self.W_pos[:len(tokens)]


load_gpt2_test("Embed", Embed()(tokens), cache["hook_embed"])
load_gpt2_test("PosEmbed", PosEmbed()(tokens), cache["hook_pos_embed"])


# %% Attention: every position looks back
def softmax(x: Array) -> Array:
    exp = np.exp(x - x.max(-1, keepdims=True))
    out: Array = exp / exp.sum(-1, keepdims=True)
    return out


class Attention:
    def __init__(self, layer: int) -> None:
        self.W_Q, self.W_K, self.W_V, self.W_O, self.b_Q, self.b_K, self.b_V, self.b_O = (
            reference_gpt2.tensor(f"blocks.{layer}.attn.{kind}_{letter}") for kind in "Wb" for letter in "QKVO")

    def apply_causal_mask(self, scores: Array) -> Array:
        masked: Array = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, np.float32("-inf"))
        return masked

    def __call__(self, normalized_resid_pre: Array) -> Array:
        q, k, v = (np.einsum("td,hde->hte", normalized_resid_pre, w) + b[:, None]
                   for w, b in ((self.W_Q, self.b_Q), (self.W_K, self.b_K), (self.W_V, self.b_V)))
        scores = self.apply_causal_mask(q @ k.transpose(0, 2, 1) / np.float32(math.sqrt(cfg.d_head)))
        z = softmax(scores) @ v
        out: Array = np.einsum("hte,hed->td", z, self.W_O) + self.b_O
        return out


load_gpt2_test("Attention", Attention(0)(cache["normalized.post", 0, "ln1"]), cache["attn_out", 0])


# %% MLP: each position for itself
def gelu_new(x: Array) -> Array:
    tanh: Array = np.tanh(np.float32(math.sqrt(2 / math.pi)) * (x + 0.044715 * x ** 3))
    return 0.5 * x * (1 + tanh)


class MLP:
    def __init__(self, layer: int) -> None:
        self.W_in, self.b_in, self.W_out, self.b_out = (
            reference_gpt2.tensor(f"blocks.{layer}.mlp.{name}") for name in ("W_in", "b_in", "W_out", "b_out"))

    def __call__(self, normalized_resid_mid: Array) -> Array:
        return gelu_new(normalized_resid_mid @ self.W_in + self.b_in) @ self.W_out + self.b_out


load_gpt2_test("MLP", MLP(0)(cache["normalized.post", 0, "ln2"]), cache["mlp_out", 0])


# %% A block adds both to the residual stream
class TransformerBlock:
    def __init__(self, layer: int) -> None:
        self.ln1, self.attn = LayerNorm(f"blocks.{layer}.ln1"), Attention(layer)
        self.ln2, self.mlp = LayerNorm(f"blocks.{layer}.ln2"), MLP(layer)

    def __call__(self, resid_pre: Array) -> Array:
        resid_mid = resid_pre + self.attn(self.ln1(resid_pre))
        return resid_mid + self.mlp(self.ln2(resid_mid))


load_gpt2_test("TransformerBlock", TransformerBlock(0)(cache["resid_pre", 0]), cache["resid_post", 0])


# %% The unembedding, and the whole
class Unembed:
    def __init__(self) -> None:
        self.W_U, self.b_U = reference_gpt2.tensor("unembed.W_U"), reference_gpt2.tensor("unembed.b_U")

    def __call__(self, normalized_resid_final: Array) -> Array:
        return normalized_resid_final @ self.W_U + self.b_U


class DemoTransformer:
    def __init__(self) -> None:
        self.embed, self.pos_embed = Embed(), PosEmbed()
        self.blocks = [TransformerBlock(layer) for layer in range(cfg.n_layers)]
        self.ln_final, self.unembed = LayerNorm("ln_final"), Unembed()

    def __call__(self, tokens: attn.Ids) -> Array:
        residual = self.embed(tokens) + self.pos_embed(tokens)
        for block in self.blocks:
            residual = block(residual)
        return self.unembed(self.ln_final(residual))


demo_gpt2 = DemoTransformer()
load_gpt2_test("Unembed", demo_gpt2.unembed(cache["ln_final.hook_normalized.post"]), logits)
load_gpt2_test("DemoTransformer", demo_gpt2(tokens), logits)

# %% How well does it know the text?
print("\nTest set of tokens:")
print(reference_gpt2.to_str_tokens(tokens))
demo_logits = demo_gpt2(tokens)
log_probs = np.log(softmax(demo_logits))[np.arange(len(tokens) - 1), tokens[1:]]
print(f"Avg cross entropy loss: {-log_probs.mean():.4f}")
print(f"Avg cross entropy loss by score: {reference_gpt2.score(tokens).nll.mean():.4f}")
print(f"Avg cross entropy loss for uniform distribution: {math.log(cfg.d_vocab):4f}")
print(f"Avg probability assigned to correct token: {np.exp(log_probs).mean():4f}")

# %% Greedy text: the clean model runs all of it again for each token, the engine keeps keys and values
prompt = "The Total Perspective Vortex derives its picture of the whole Universe on the principle of"
n_tokens = 100
demo_tokens = reference_gpt2.to_tokens(prompt, prepend_bos=True)
for _ in range(n_tokens):
    demo_tokens = np.append(demo_tokens, np.argmax(demo_gpt2(demo_tokens)[-1])).astype(np.int32)
text = reference_gpt2.session().generate(prompt, max_tokens=n_tokens, prepend_bos=True, ignore_eos=True)
print(f"\n{prompt}{text.read()}")
print("The clean model says the same:", list(demo_tokens[-n_tokens:]) == text.ids)

# %% The story of the README's first program: another seed, another story
story = reference_gpt2.session().generate("Once upon a time", max_tokens=200,
                                          sampling=attn.Sampling(temperature=0.7, top_k=40, seed=1))
print(f"\nOnce upon a time{story.read()}")

# %% The glass box: one head taken out
with reference_gpt2.session() as session:
    comma = reference_gpt2.to_single_token(",")
    with_it = session.feed("Once upon a time")[comma]
    session.truncate(0)
    session.edit("blocks.2.attn.hook_z", "zero", heads=3)
    without_it = session.feed("Once upon a time")[comma]
print(f"\nwith the head {with_it:.2f}, without it {without_it:.2f}")


# %% The same by a function
def without_the_head(z: Array, point: attn.HookPoint) -> None:
    z[:, 3] = 0


hooked = reference_gpt2.run_with_hooks("Once upon a time", [("blocks.2.attn.hook_z", without_the_head)])
print(f"by a function {hooked[-1, comma]:.2f}")

# %% The logit lens: the likeliest next token, read from the residual stream before each layer and after the last
lens_text = "Once upon a time there was a little cat who"
lens_cache = reference_gpt2.run_with_cache(lens_text, ["*.hook_resid_pre", f"*.{cfg.n_layers - 1}.hook_resid_post"])[1]
lens = reference_gpt2.logit_lens(np.stack(list(lens_cache.values()))).argmax(-1)
print("\n" + "".join(f"{piece:>9}" for piece in reference_gpt2.to_str_tokens(lens_text)))
for best in lens:
    print("".join(f"{piece!r:>9}" for piece in reference_gpt2.to_str_tokens(best)))

# %% Activation patching: at which layers and positions does "cat" differ from "boy"?
question = research.logit_diff(" was", " had")
patched = research.patch(reference_gpt2, research.Pair("The cat said that she", "The boy said that she", question),
                          "hook_resid_pre")
print(f"\nlogit difference: clean {patched.clean:.2f}, corrupted {patched.corrupted:.2f}, and patched")
print(np.round(patched.effect, 2))

# %% A model whose circuit is known: examples/induction was trained to go on with what stood there before
circuit = attn.Model(sys.argv[2] if len(sys.argv) > 2 else ROOT / "build" / "induction.attn")
repeated = [0, 7, 21, 5, 90, 33, 7, 21, 5]
pattern = circuit.run_with_cache(repeated, "*.attn.hook_pattern")[1]
kinds = research.detect_heads(circuit, repeated)

# %% The patterns of its heads, side by side: a row is a token that looks, and the darker the stronger
for layer in range(circuit.config.n_layer):
    print(f"\nlayer {layer}" + "".join(f"{f'head {head}':>14}" for head in range(circuit.config.n_head)))
    for at, token in enumerate(repeated):
        shades = [[" ░▒▓█"[round(4 * weight)] for weight in row] for row in pattern["pattern", layer][:, at].tolist()]
        print(f"{token:>7}" + "".join(f"{'':5}{''.join(row)}" for row in shades))

# %% One head of layer 0 looks at the token before, those of layer 1 at the token after an earlier copy of their own
for kind in ("previous", "induction"):
    print(f"\n{kind}-token heads, [layers, heads]\n{np.round(kinds[kind], 2)}")

# %% Patching finds the same heads: which of them turn a text without the repetition into one with it?
again = [0, 50, 93, 12, 77, 31, 64, 9, 101, 50, 93, 12, 77]
other = again[:4] + [8] + again[5:]
of_heads = research.patch(circuit, research.Pair(again, other, research.logit_diff(31, 64)), "attn.hook_z", "heads",
                           normalize=True)
print(f"\nshare of the difference that each head's z brings back\n{np.round(of_heads.effect, 2)}")
