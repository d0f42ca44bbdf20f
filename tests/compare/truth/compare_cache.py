#!/usr/bin/env python3
"""Checks `lens record --shuffle` with sae-lens: its loader of cached activations reads the rows as examples/many.md makes a
data set of them, a sparse autoencoder trains on it for ten steps, and every row is one that `lens record` writes without
--shuffle, once.

    compare_cache.py BUILD [--texts N]

BUILD holds lens and tiny-stories.attn. The default of 400 texts makes blocks, buckets and batches of more than one
piece. Needs sae-lens (6.x), which brings PyTorch, and datasets.
"""
import argparse
import collections
import hashlib
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from datasets import Array2D, Dataset, Features, Sequence, Value
from safetensors.numpy import load_file
from sae_lens.config import SAETrainerConfig
from sae_lens.saes.standard_sae import StandardTrainingSAE, StandardTrainingSAEConfig
from sae_lens.training.activations_store import ActivationsStore
from sae_lens.training.sae_trainer import SAETrainer
from transformer_lens import HookedTransformer, HookedTransformerConfig

HOOKS, CONTEXT = ["blocks.2.hook_resid_pre", "blocks.1.mlp.hook_post", "blocks.2.mlp.hook_post", "blocks.3.mlp.hook_post"], 32
STEPS, BATCH = 10, 256


def write_texts(path, n):
    with open(path, "w", encoding="utf-8") as out:
        for i in range(n):
            out.write(json.dumps({"text": f"Once upon a time there was a dog number {i}. It had {i % 7} friends. " * (1 + i % 3)})
                      + "\n")


def record(build, texts, directory, *more):
    os.mkdir(directory)
    done = subprocess.run([f"{build}/lens", f"{build}/tiny-stories.attn", "record", "--lines", texts, *HOOKS, "-o", directory,
                           *more], check=True, capture_output=True, text=True)
    print(done.stderr.strip().split("\n")[-1])


def make_data_set(mixed, directory):
    arrays = {name: np.load(os.path.join(mixed, name + ".npy"), mmap_mode="r") for name in [*HOOKS, "token_ids"]}
    ids = arrays["token_ids"]
    features = Features({name: Array2D(arrays[name].shape[1:], "float32") for name in HOOKS}
                        | {"token_ids": Sequence(Value("int32"), ids.shape[1])})
    entries = lambda: ({name: x[i] for name, x in arrays.items()} for i in range(len(ids)))
    Dataset.from_generator(entries, features=features).save_to_disk(directory)


def store_of(directory, hook, width):
    """SAELens's store; the model is asked for nothing, but must be there."""
    model = HookedTransformer(HookedTransformerConfig(n_layers=1, d_model=8, n_ctx=8, d_head=4, d_vocab=8, attn_only=True))
    return ActivationsStore(
        model=model, dataset=None, streaming=False, hook_name=hook, hook_head_index=None, context_size=CONTEXT, d_in=width,
        n_batches_in_buffer=8, total_training_tokens=STEPS * BATCH, store_batch_size_prompts=4,
        train_batch_size_tokens=BATCH, prepend_bos=False, normalize_activations="none", device=torch.device("cpu"),
        dtype="float32", cached_activations_path=directory)


def rows_of(directory, hook):
    """The rows, with their tokens, of all shards."""
    rows = []
    for name in sorted(os.listdir(directory)):
        if name.endswith(".safetensors"):
            shard = load_file(os.path.join(directory, name))
            rows += zip(shard["ids"].tolist(), (r.tobytes() for r in shard[hook].reshape(len(shard["ids"]), -1)))
    return rows


def check_rows(plain, mixed, hook):
    want = rows_of(plain, hook)
    width = len(want[0][1]) // 4
    store = store_of(mixed, hook, width)
    got = []
    for _ in range(len(store.cached_activation_dataset) // store.store_batch_size_prompts):
        x, ids = store.get_raw_llm_batch()
        got += zip(ids.tolist(), (r.tobytes() for r in x.numpy().astype(np.float32)))
    lacking = collections.Counter(got) - collections.Counter(want)
    apart = np.mean([a == b for a, b in zip(got, want)])
    print("%s: %d rows of %d, %d of them not among the shards', %.4f where they were" % (
        hook, len(got), len(want), sum(lacking.values()), apart))
    return sum(lacking.values()) == 0 and len(got) > 0.9 * len(want) - 5 * CONTEXT and apart < 0.5


def train(mixed, hook, width):
    torch.manual_seed(0)
    sae = StandardTrainingSAE(StandardTrainingSAEConfig(d_in=width, d_sae=2 * width, l1_coefficient=0.1))
    losses = []
    cfg = SAETrainerConfig(total_training_samples=STEPS * BATCH, train_batch_size_samples=BATCH, lr=1e-3, lr_end=1e-3)
    trainer = SAETrainer(cfg, sae, iter(store_of(mixed, hook, width)))
    step = trainer.step
    trainer.step = lambda x: (losses.append(step(x)), losses[-1])[1]
    trainer.fit()
    losses = [out.loss.item() for out in losses]
    print("ten steps, losses %.4g to %.4g" % (losses[0], losses[-1]))
    return len(losses) == STEPS and all(np.isfinite(losses)) and losses[-1] < losses[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--texts", type=int, default=400)
    o = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as folder:
        names = ("texts.jsonl", "plain", "mixed", "again", "cached")
        texts, plain, mixed, again, cached = (os.path.join(folder, n) for n in names)
        write_texts(texts, o.texts)
        record(o.build, texts, plain)
        record(o.build, texts, mixed, "--shuffle", "7", "--rows", str(CONTEXT))
        record(o.build, texts, again, "--shuffle", "7", "--rows", str(CONTEXT), "--threads", "1", "--isa", "portable")
        digests = set()
        for directory in (mixed, again):
            digest = hashlib.sha256()
            for name in [*HOOKS, "token_ids"]:
                with open(os.path.join(directory, name + ".npy"), "rb") as file:
                    digest.update(file.read())
            digests.add(digest.hexdigest())
        print("other threads and instructions:", "the same bytes" if len(digests) == 1 else "OTHER BYTES")
        good &= len(digests) == 1
        make_data_set(mixed, cached)
        for hook in HOOKS[:2]:
            good &= check_rows(plain, cached, hook)
        good &= train(cached, HOOKS[0], 192)
    print("ok" if good else "WRONG")
    return not good


if __name__ == "__main__":
    sys.exit(main())
