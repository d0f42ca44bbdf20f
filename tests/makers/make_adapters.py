"""python3 tests/makers/make_adapters.py, for tests/suites/convert/adapter.c: adapters of the model in
fixtures/convert/bf16 (whose embeddings are tied), as PEFT saves them in fixtures/adapters.

    first/   LoRA for layers, with patterns, biases and a module of its own (safetensors)
    second/  LoRA for the embeddings and the unembedding, rank-stabilized (a pickle)
    third/   an unembedding of its own, and LoRA with a bias

two.ref has what PEFT's merge_and_unload() made of the first and then the second, third.ref of the third, in the form of
make_convert_fixtures.py. Needs PyTorch, transformers and peft.
"""
import os
import shutil
import struct

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import GPT2LMHeadModel

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures")
BASE, OUTPUT = os.path.join(HERE, "convert", "bf16"), os.path.join(HERE, "adapters")
NAMES = {"wte.weight": "embed.W_E", "wpe.weight": "pos_embed.W_pos", "ln_f.weight": "ln_final.w",
         "ln_f.bias": "ln_final.b", "lm_head.weight": "unembed.W_U"}
PARTS = {"ln_1.weight": "ln1.w", "ln_1.bias": "ln1.b", "ln_2.weight": "ln2.w", "ln_2.bias": "ln2.b",
         "attn.c_attn.weight": "attn.W_QKV", "attn.c_attn.bias": "attn.b_QKV",
         "attn.c_proj.weight": "attn.W_O", "attn.c_proj.bias": "attn.b_O",
         "mlp.c_fc.weight": "mlp.W_in", "mlp.c_fc.bias": "mlp.b_in",
         "mlp.c_proj.weight": "mlp.W_out", "mlp.c_proj.bias": "mlp.b_out"}
NAMES.update({f"h.0.{theirs}": f"blocks.0.{ours}" for theirs, ours in PARTS.items()})
ADAPTERS = {
    "first": dict(r=3, lora_alpha=6, target_modules=["c_attn", "c_fc", "attn.c_proj"], bias="lora_only",
                  alpha_pattern={"mlp.c_fc": 5, "transformer.h.0.attn.c_proj": 7.5},
                  rank_pattern={"attn.c_proj": 2}, modules_to_save=["ln_f"], fan_in_fan_out=True),
    "second": dict(r=2, lora_alpha=3, target_modules=["wte", "wpe", "lm_head"], use_rslora=True),
    "third": dict(r=1, lora_alpha=2, target_modules=["mlp.c_proj"], lora_bias=True,
                  modules_to_save=["lm_head"], fan_in_fan_out=True)}


def load():
    return GPT2LMHeadModel.from_pretrained(BASE, dtype=torch.float32)


def make(name):
    torch.manual_seed(len(name))
    model = get_peft_model(load(), LoraConfig(init_lora_weights=False, **ADAPTERS[name]))
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            step = 0.3 * torch.randn_like(parameter)
            parameter.data = step if "lora_" in key else parameter.data + step
    model.peft_config["default"].base_model_name_or_path = "someone/tiny"
    directory = os.path.join(OUTPUT, name)
    model.save_pretrained(directory, safe_serialization=name != "second", save_embedding_layers=False)
    os.remove(os.path.join(directory, "README.md"))


def merged(path, *names):
    model = load()
    for name in names:
        model = PeftModel.from_pretrained(model, os.path.join(OUTPUT, name)).merge_and_unload()
    tensors = {key.replace("transformer.", ""): tensor for key, tensor in model.state_dict().items()}
    if torch.equal(tensors["lm_head.weight"], tensors["wte.weight"]):
        del tensors["lm_head.weight"]
    with open(os.path.join(OUTPUT, path), "wb") as f:
        for key, tensor in tensors.items():
            if key in NAMES:
                tensor = tensor.t() if key == "lm_head.weight" else tensor
                f.write(NAMES[key].encode().ljust(64, b"\0") + struct.pack("<Q", tensor.numel()))
                f.write(tensor.contiguous().numpy().astype("<f4").tobytes())


shutil.rmtree(OUTPUT, ignore_errors=True)
for each in ADAPTERS:
    make(each)
merged("two.ref", "first", "second")
merged("third.ref", "third")
