#!/usr/bin/env python3
"""Makes tests/fixtures/heads: a classifier and a reward model of random weights, and what they give.

    python3 tests/makers/make_head_fixtures.py      (transformers 5.24.0, torch)

expected.tsv has a line for each model and list of ids: its directory, the ids, and the logits at the last token, of
GPT2ForSequenceClassification and of a linear layer on GPT2LMHeadModel's last hidden state, in float64."""
import json
import os

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel

HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures", "heads")
IDS = [[3], [7, 1, 22, 5], list(range(12)), [22] * 5]
SIZES = dict(vocab_size=23, n_positions=12, n_embd=6, n_layer=2, n_head=2, bos_token_id=None, eos_token_id=None)
LABELS = {0: "contradiction", 1: "na\u00efve \"neutral\"", 2: "entailment"}


def shaken(model):
    """The same with random numbers for every gain and bias, too."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn(p.shape))
    return model.double().eval()


def save(name, config, tensors):
    os.makedirs(os.path.join(HERE, name), exist_ok=True)
    save_file({k: v.float() for k, v in tensors.items() if k != "lm_head.weight"},
              os.path.join(HERE, name, "model.safetensors"), {"format": "pt"})
    with open(os.path.join(HERE, name, "config.json"), "w") as file:
        json.dump({k: v for k, v in config.items() if k in ("id2label", "model_type") or k in SIZES}, file, indent=1)


def main():
    torch.manual_seed(1)
    config = GPT2Config(**SIZES, initializer_range=0.5, id2label=LABELS, pad_token_id=None)
    model = shaken(GPT2ForSequenceClassification(config))
    with torch.no_grad():
        lines = [("classifier", ids, model(torch.tensor([ids])).logits[0].tolist()) for ids in IDS]
        save("classifier", config.to_dict(), model.state_dict())
        model = shaken(GPT2LMHeadModel(GPT2Config(**SIZES, initializer_range=0.5)))
        head = torch.nn.Linear(SIZES["n_embd"], 1).double()
        lines += [("reward", ids, head(model.transformer(torch.tensor([ids])).last_hidden_state)[0, -1].tolist()) for ids in IDS]
        heads = {"v_head.summary." + k: v for k, v in head.state_dict().items()}
        save("reward", model.config.to_dict(), {**model.state_dict(), **heads})
    with open(os.path.join(HERE, "expected.tsv"), "w") as file:
        for name, ids, logits in lines:
            file.write("%s\t%s\t%s\n" % (name, ",".join(map(str, ids)), " ".join("%.7f" % x for x in logits)))


main()
