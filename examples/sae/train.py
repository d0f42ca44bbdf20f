#!/usr/bin/env python3
"""Trains the sparse autoencoder in this folder: features of the included model's stream.

    examples/sae/train.py [DIRECTORY] [--texts 1200] [--epochs 10]

Needs sae-lens (6.x) and transformers; a few minutes on one core. The model writes the texts itself, at
temperature 1, each from an <|endoftext|> on; the autoencoder reads the residual stream before layer 2 at
every token but that first one. Top-k (Gao et al. 2024), as sae-lens trains it; the weights become f16.
"""
import argparse
import os

import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2LMHeadModel

here = os.path.dirname(os.path.abspath(__file__))
LAYER, FEATURES, K, BATCH = 2, 512, 8, 1024
torch.set_num_threads(1)


@torch.no_grad()
def write_texts(model, n):
    """[n, 256] ids; what follows a text's end is another text."""
    parts = []
    for done in range(0, n, 250):
        start = torch.full((min(250, n - done), 1), 2047)
        parts.append(model.generate(start, attention_mask=torch.ones_like(start), do_sample=True, top_k=0,
                                    max_length=256, eos_token_id=None, pad_token_id=2047))
    return torch.cat(parts)


@torch.no_grad()
def streams(model, texts):
    return torch.cat([model(part, output_hidden_states=True).hidden_states[LAYER][:, 1:].reshape(-1, 192)
                      for part in texts.split(50)])


def train(x, epochs):
    """b_dec begins at the mean; the activations are scaled to a mean norm of sqrt(d_in) while it trains, and
    that scale is folded into the weights at the end, as SAELens's expected_average_only_in does."""
    from sae_lens.saes.sae import TrainStepInput
    from sae_lens.saes.topk_sae import TopKTrainingSAE, TopKTrainingSAEConfig

    scale = 192 ** 0.5 / x.norm(dim=-1).mean()
    sae = TopKTrainingSAE(TopKTrainingSAEConfig(d_in=192, d_sae=FEATURES, k=K, decoder_init_norm=0.1,
                                                normalize_activations="none", apply_b_dec_to_input=True))
    steps, rate = epochs * (len(x) // BATCH), 1e-3
    optimizer = torch.optim.Adam(sae.parameters(), lr=rate)
    sae.b_dec.data = (x.mean(0) * scale).clone()
    quiet, step = torch.zeros(FEATURES), 0
    for epoch in range(epochs):
        for batch in torch.randperm(len(x))[:len(x) // BATCH * BATCH].split(BATCH):
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1, step / 100, 5 * (steps - step) / steps)
            out = sae.training_forward_pass(TrainStepInput(
                sae_in=x[batch] * scale, dead_neuron_mask=quiet > 300, coefficients={}, n_training_steps=step,
                is_logging_step=False))
            optimizer.zero_grad()
            out.loss.backward()
            torch.nn.utils.clip_grad_norm_(sae.parameters(), 1.0)
            optimizer.step()
            quiet = (quiet + 1) * ~(out.feature_acts > 0).any(0)
            step += 1
        error = (out.sae_out - x[batch] * scale).pow(2).sum() / (x[batch] * scale - sae.b_dec).pow(2).sum()
        print(f"epoch {epoch}: {1 - error:.3f} of the variance explained, {(quiet > 300).sum()} features silent",
              flush=True)
    with torch.no_grad(): # features of unit directions, in the activation's own units
        sae.fold_W_dec_norm()
        sae.b_enc /= scale
        sae.b_dec /= scale
    sae.cfg.rescale_acts_by_decoder_norm = False
    return sae


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("directory", nargs="?", default=here)
    ap.add_argument("--texts", type=int, default=1200)
    ap.add_argument("--epochs", type=int, default=10)
    o = ap.parse_args()
    torch.manual_seed(1)
    model = GPT2LMHeadModel.from_pretrained(os.path.join(here, "..", "tiny-stories")).float().eval()
    x = streams(model, write_texts(model, o.texts))
    print(f"{len(x)} activations", flush=True)
    sae = train(x, o.epochs)
    sae.cfg.metadata.hook_name = f"blocks.{LAYER}.hook_resid_pre"
    sae.cfg.metadata.model_name = "tiny-stories"
    sae.save_inference_model(o.directory)
    path = os.path.join(o.directory, "sae_weights.safetensors")
    save_file({name: tensor.half().contiguous() for name, tensor in load_file(path).items()}, path)


if __name__ == "__main__":
    main()
