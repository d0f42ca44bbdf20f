#!/usr/bin/env python3
"""Trains the transcoders in the folder transcoders: what each MLP of the included model does, as features.

    examples/sae/transcoders.py [DIRECTORY] [--texts 800] [--epochs 12]

Needs PyTorch, safetensors and transformers; a few minutes on one core. The model writes the texts itself
(train.py); half of them lose their <|endoftext|>, so that prompts with and without it are known. A transcoder reads
what LayerNorm makes of the stream (ln2.hook_normalized) and predicts the MLP's output (Dunefsky et al. 2024):

    y ≈ relu(x · W_enc + b_enc) · W_dec + b_dec

In training the strongest K features a token stay, counted over a batch (Bussmann et al. 2024); silent features learn
from the error (Gao et al. 2024). Afterwards the mean of the smallest activation that stayed is a threshold
(JumpReLU), the form in which SAELens reads it. The weights become f16. How good they are is measured on other texts,
and printed as README.md's table.
"""
import argparse
import json
import os

import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from transformers import GPT2LMHeadModel

from train import here, write_texts

FEATURES, K, BATCH, WIDTH = 320, 16, 1024, 192


def halves(texts):
    """[n, 255] ids twice: texts that begin with <|endoftext|>, and texts that do not."""
    half = len(texts) // 2
    return torch.cat([texts[:half, :-1], texts[half:, 1:]])


def normalized(x):
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()


@torch.no_grad()
def activations(model, texts, layer):
    """x and y [tokens, 192]: the normalised stream before an MLP, and the MLP's output."""
    x, y, block = [], [], model.transformer.h[layer]
    hooks = [block.ln_2.register_forward_pre_hook(lambda _, of: x.append(normalized(of[0]).reshape(-1, WIDTH))),
             block.mlp.register_forward_hook(lambda _, __, out: y.append(out.reshape(-1, WIDTH)))]
    for part in texts.split(50):
        model.transformer(part)
    for hook in hooks:
        hook.remove()
    return torch.cat(x), torch.cat(y)


def train(x, y, epochs):
    """The tensors of a transcoder. The outputs are scaled to a mean square of 1 while it trains."""
    scale = (y - y.mean(0)).pow(2).mean().sqrt()
    w_dec = torch.nn.functional.normalize(torch.randn(FEATURES, WIDTH), dim=1)
    w = {"W_enc": torch.randn(WIDTH, FEATURES) / WIDTH ** 0.5, "W_dec": w_dec, "b_enc": torch.zeros(FEATURES),
         "b_dec": y.mean(0) / scale}
    for tensor in w.values():
        tensor.requires_grad_()
    steps, rate = epochs * (len(x) // BATCH), 2e-3
    optimizer = torch.optim.Adam(w.values(), lr=rate, betas=(0.9, 0.99))
    quiet, step, threshold = torch.zeros(FEATURES), 0, 0.0
    for epoch in range(epochs):
        for batch in torch.randperm(len(x))[:len(x) // BATCH * BATCH].split(BATCH):
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1, step / 100, 3 * (steps - step) / steps)
            target = y[batch] / scale
            pre = (x[batch] @ w["W_enc"] + w["b_enc"]).relu()
            sizes = pre * w["W_dec"].norm(dim=1) # a feature is as strong as what it writes
            least = sizes.detach().flatten().topk(K * BATCH).values[-1]
            f = pre * (sizes >= least)
            missing = target - f @ w["W_dec"] - w["b_dec"]
            loss = missing.pow(2).mean()
            silent = quiet > 200
            if silent.any():
                loss = loss + (missing.detach() - (pre * silent) @ w["W_dec"]).pow(2).mean() / 32
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            quiet = (quiet + 1) * ~(f > 0).any(0)
            threshold += (least.item() - threshold) * (0.01 if step else 1)
            step += 1
        print(f"  epoch {epoch}: {1 - missing.pow(2).mean():.3f} explained, {int(silent.sum())} silent", flush=True)
    w = {name: tensor.detach() for name, tensor in w.items()}
    norms = w["W_dec"].norm(dim=1)
    return {"W_enc": w["W_enc"] * norms * scale, "b_enc": w["b_enc"] * norms * scale,
            "W_dec": w["W_dec"] / norms[:, None], "b_dec": w["b_dec"] * scale,
            "threshold": torch.full((FEATURES,), threshold) * scale}


def encode(w, x):
    pre = x @ w["W_enc"] + w["b_enc"]
    return pre * (pre > w["threshold"])


@torch.no_grad()
def loss(model, texts, layers, outputs):
    """Nats a token while the MLPs of some layers write outputs[layer](x)."""
    def write(layer):
        block, seen = model.transformer.h[layer], []
        return [block.ln_2.register_forward_pre_hook(lambda _, of: seen.append(normalized(of[0]))),
                block.mlp.register_forward_hook(lambda _, __, ___: outputs(layer, seen.pop()))]
    hooks = [hook for layer in layers for hook in write(layer)]
    total = sum(cross_entropy(model(part).logits[:, :-1].reshape(-1, 2048), part[:, 1:].reshape(-1),
                              reduction="sum").item() for part in texts.split(50))
    for hook in hooks:
        hook.remove()
    return total / texts[:, 1:].numel()


def card(model, texts, transcoders):
    """The table of README.md: how good the transcoders are on these texts."""
    def of_transcoder(layer, x):
        w = transcoders[layer]
        return encode(w, x) @ w["W_dec"] + w["b_dec"]

    def nothing(layer, x):
        return torch.zeros_like(x)

    plain = loss(model, texts, [], None)
    yield "| layer | L0 | variance explained | loss | loss with zeros | loss recovered |\n|---|---|---|---|---|---|\n"
    for layers in [[i] for i in range(len(transcoders))] + [list(range(len(transcoders)))]:
        l0, explained = "", ""
        if len(layers) == 1:
            x, y = activations(model, texts, layers[0])
            missing = (y - of_transcoder(layers[0], x)).pow(2).sum() / (y - y.mean(0)).pow(2).sum()
            l0 = f"{(encode(transcoders[layers[0]], x) > 0).sum(1).float().mean():.1f}"
            explained = f"{100 * (1 - missing):.0f} %"
        ours, zeros = loss(model, texts, layers, of_transcoder), loss(model, texts, layers, nothing)
        yield (f"| {layers[0] if l0 else 'all'} | {l0} | {explained} | {ours:.3f} | {zeros:.3f} | "
               f"{100 * (zeros - ours) / (zeros - plain):.0f} % |\n")
    yield f"The model's own loss on these {len(texts)} texts is {plain:.3f}.\n"


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("directory", nargs="?", default=os.path.join(here, "transcoders"))
    ap.add_argument("--texts", type=int, default=800)
    ap.add_argument("--epochs", type=int, default=12)
    o = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = GPT2LMHeadModel.from_pretrained(os.path.join(here, "..", "tiny-stories")).float().eval()
    texts, transcoders = halves(write_texts(model, o.texts)), []
    for layer in range(model.config.n_layer):
        print(f"layer {layer}", flush=True)
        w = train(*activations(model, texts, layer), o.epochs)
        transcoders.append({name: tensor.half() for name, tensor in w.items()})
        path = os.path.join(o.directory, f"layer{layer}")
        os.makedirs(path, exist_ok=True)
        save_file({name: tensor.contiguous() for name, tensor in transcoders[-1].items()},
                  os.path.join(path, "sae_weights.safetensors"))
        transcoders[-1] = {name: tensor.float() for name, tensor in transcoders[-1].items()}
        cfg = {"architecture": "jumprelu_transcoder", "d_in": WIDTH, "d_out": WIDTH, "d_sae": FEATURES,
               "dtype": "float32", "device": "cpu", "apply_b_dec_to_input": False, "normalize_activations": "none",
               "reshape_activations": "none",
               "metadata": {"model_name": "tiny-stories", "hook_name": f"blocks.{layer}.ln2.hook_normalized",
                            "hook_name_out": f"blocks.{layer}.hook_mlp_out"}}
        with open(os.path.join(path, "cfg.json"), "w") as f:
            json.dump(cfg, f, indent=1)
    torch.manual_seed(2)
    print(*card(model, halves(write_texts(model, o.texts // 6)), transcoders), sep="", end="")


if __name__ == "__main__":
    main()
