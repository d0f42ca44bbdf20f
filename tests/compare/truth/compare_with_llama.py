#!/usr/bin/env python3
"""Exported GGUF files in llama.cpp, beside the models that they were made of.

    python3 tests/compare/truth/compare_with_llama.py BUILD [MODEL.attn ...]    (PyPI: xllamacpp, numpy, safetensors)

Without models: the included one in four types, and twelve of random sizes and weights in f32
with its vocabulary. llama.cpp opens each exported file, tokenises texts, and says the next token after each of
them and after each token that attn.h goes on with. Tokens of the texts must be the same, every token that
llama.cpp says must be the likeliest here or as likely, and its ten largest log-probabilities must be those
of attn.h, to 0.02: llama.cpp computes GELU by a table in f16 and, with weights in f16, rounds the
activations to f16 as well. With weights in q8 or q4 it rounds activations to 8 bits, as attn.h does in another
way: 0.3. llama.cpp says nothing of a token that is a part of a character; such tokens are counted. Exits with
1 if there is another difference. BUILD needs attn-convert and libattn.so.
"""
import json, os, random, shutil, subprocess, sys, tempfile, urllib.request

import numpy as np
import xllamacpp as llama
from safetensors.numpy import save_file

TESTS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INCLUDED = os.path.join(TESTS, "..", "examples", "tiny-stories")
build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
os.environ["ATTN_LIBRARY"] = os.path.join(build, "libattn.so")
sys.path.insert(0, os.path.join(TESTS, "..", "examples", "python"))
import attn  # noqa: E402

TEXTS = ["Once upon a time", "The dog was very", 'Lily said: "I can\'t,', "one two  three\n\n four", "Tom's mom 12345",
         "naïve – 日本語 🙂", " leading", "a"]
N_SAID, N_TOP = 24, 10


def convert(*arguments):
    done = subprocess.run([os.path.join(build, "attn-convert"), *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)


def random_checkpoint(directory, r):
    """A Hugging Face directory with the included vocabulary: any sizes, tied or untied."""
    heads = r.randint(1, 6)
    d, layers, positions, vocab = heads * r.choice([8, 16, 24, 32, 64]), r.randint(1, 5), r.choice([48, 64, 100]), 2048
    config = {"model_type": "gpt2", "vocab_size": vocab, "n_positions": positions, "n_embd": d, "n_layer": layers,
              "n_head": heads, "n_inner": r.choice([None, d, 3 * d]), "activation_function": "gelu_new",
              "layer_norm_epsilon": r.choice([1e-5, 1e-6]), "bos_token_id": 2047, "eos_token_id": 2047,
              "tie_word_embeddings": r.random() < 0.5}
    random_numbers = np.random.default_rng(r.randint(0, 2**31))
    inner, tensors = config["n_inner"] or 4 * d, {}

    def tensor(name, *shape, mean=0.0, scale=0.1):
        tensors[name] = (mean + scale * random_numbers.standard_normal(shape)).astype(np.float32)

    tensor("wte.weight", vocab, d, scale=0.3)
    tensor("wpe.weight", positions, d)
    for i in range(layers):
        for norm in ("ln_1", "ln_2"):
            tensor(f"h.{i}.{norm}.weight", d, mean=1)
            tensor(f"h.{i}.{norm}.bias", d)
        for name, a, b in (("attn.c_attn", d, 3 * d), ("attn.c_proj", d, d), ("mlp.c_fc", d, inner),
                           ("mlp.c_proj", inner, d)):
            tensor(f"h.{i}.{name}.weight", a, b)
            tensor(f"h.{i}.{name}.bias", b)
    tensor("ln_f.weight", d, mean=1)
    tensor("ln_f.bias", d)
    if not config["tie_word_embeddings"]:
        tensor("lm_head.weight", vocab, d, scale=0.3)
    os.mkdir(directory)
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(os.path.join(INCLUDED, name), directory)
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    save_file(tensors, os.path.join(directory, "model.safetensors"))
    return f"{layers} layers of {d}, {heads} heads, inner {inner}, {'tied' if config['tie_word_embeddings'] else 'untied'}"


def serve(path):
    p = llama.CommonParams()
    p.model.path = path
    p.n_ctx, p.n_parallel, p.cpuparams.n_threads, p.warmup = 0, 1, 2, False
    p.cache_type_k = p.cache_type_v = llama.ggml_type.GGML_TYPE_F32
    p.flash_attn_type = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return llama.Server(p)


def ask(server, what, request):
    """One call of the server that xllamacpp starts on the loopback interface."""
    http = urllib.request.Request(f"{server.listening_address}/{what}", json.dumps(request).encode(),
                                  {"Content-Type": "application/json"})
    with urllib.request.urlopen(http) as reply:
        return json.load(reply)


def log_softmax(logits):
    logits = np.asarray(logits, np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def compare(name, path, allowed):
    gguf = path + ".gguf"
    convert(path, gguf)
    server, worst, n, n_compared, failed = serve(gguf), 0.0, 0, 0, []
    with attn.Model(path) as model:
        for text in TEXTS:
            ids = [int(i) for i in model.tokenizer.encode(text)]
            theirs = ask(server, "tokenize", {"content": text, "add_special": False})["tokens"]
            if theirs != ids:
                failed.append(f"{text!r}: tokens {theirs}, not {ids}")
                continue
            with model.session() as session:
                row = session.feed(ids)
                for _ in range(N_SAID):
                    row = log_softmax(row)
                    said = ask(server, "v1/completions", {"prompt": ids, "n_predict": 1, "temperature": 0,
                                                          "logprobs": N_TOP, "n_probs": N_TOP})["choices"][0]["logprobs"]
                    n += 1
                    if said:
                        n_compared += 1
                        token = said["content"][0]
                        if row[token["id"]] < row.max() - 2 * allowed:
                            failed.append(f"{text!r}: said {token['id']}, the likeliest is {row.argmax()}")
                        for top in token["top_logprobs"]:
                            worst = max(worst, abs(row[top["id"]] - top["logprob"]))
                    ids.append(int(row.argmax()))
                    row = session.feed(ids[-1:])
    if worst > allowed:
        failed.append(f"log-probabilities differ by {worst:.2g}")
    if 2 * n_compared < n:
        failed.append(f"llama.cpp said only {n_compared} tokens")
    print(f"{name}: {n_compared} tokens of {n}, log-probabilities within {worst:.1g}" + "".join(f"\n  FAILED {f}" for f in failed),
          flush=True)
    return not failed


def main():
    good = True
    with tempfile.TemporaryDirectory() as at:
        models = [(m, os.path.join(at, f"{i}.attn"), 0.3) for i, m in enumerate(sys.argv[2:])]
        for source, path, _ in models:
            shutil.copy(source, path)
        if not models:
            for dtype, allowed in (("f16", 0.02), ("f32", 0.02), ("q8", 0.3), ("q4", 0.3)):
                models.append((f"the included model, {dtype}", os.path.join(at, f"{dtype}.attn"), allowed))
                convert(INCLUDED, models[-1][1], "--dtype", dtype)
            for i in range(12):
                directory = os.path.join(at, str(i))
                models.append((random_checkpoint(directory, random.Random(i)), directory + ".attn", 0.02))
                convert(directory, models[-1][1])
        for name, path, allowed in models:
            good = compare(name, path, allowed) and good
    sys.exit(0 if good else 1)


main()
