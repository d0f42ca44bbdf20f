"""python3 tests/programs/odd_pickles.py DIRECTORY, for tests/suites/convert: what torch.load gives may be anything.

A pickle each, with one thing that no model has, goes through tools/convert/pickle-to-safetensors.py, which must answer
with one line that has the words beside it, and leave no output. Needs PyTorch.
"""
import contextlib
import io
import os
import runpy
import sys
import warnings

import torch

output = sys.argv[1]
warnings.simplefilter("ignore")  # PyTorch's, about PyTorch
C, V, T, F, H, D = 8, 11, 6, 8, 2, 4
SHAPES = {"embed.W_E": (V, C), "pos_embed.W_pos": (T, C), "unembed.W_U": (C, V), "unembed.b_U": (V,), "ln_final.w": (C,),
          "ln_final.b": (C,)}
SHAPES.update({"blocks.0." + k: v for k, v in {
    "ln1.w": (C,), "ln1.b": (C,), "ln2.w": (C,), "ln2.b": (C,), "attn.W_Q": (H, C, D), "attn.W_K": (H, C, D), "attn.W_V": (H, C, D),
    "attn.W_O": (H, D, C), "attn.b_Q": (H, D), "attn.b_K": (H, D), "attn.b_V": (H, D), "attn.b_O": (C,), "mlp.W_in": (C, F),
    "mlp.b_in": (F,), "mlp.W_out": (F, C), "mlp.b_out": (C,)}.items()})
CFG = dict(n_layers=1, d_model=C, d_head=D, n_heads=H, d_mlp=F, d_vocab=V, n_ctx=T, act_fn="gelu_new", normalization_type="LN",
           attn_only=False, eps=1e-5)
Q = "blocks.0.attn.W_Q"


def lens(cfg=None, **other):
    return {"model": {**{k: torch.zeros(s) for k, s in SHAPES.items()}, **other}, "cfg": {**CFG, **(cfg or {})}}


def hub(**other):
    shapes = {"wte.weight": (V, C), "wpe.weight": (T, C), "h.0.attn.c_attn.weight": (C, 3 * C)}
    return {"model": {**{k: torch.zeros(s) for k, s in shapes.items()}, **other}, "config": {"n_head": 2}}


def transcoder(**other):
    """As Dunefsky et al. (2024) published them."""
    w = {"W_enc": torch.zeros(C, F), "b_enc": torch.zeros(F), "W_dec": torch.zeros(F, C), "b_dec": torch.zeros(C),
         "b_dec_out": torch.zeros(C)}
    cfg = {"is_transcoder": True, "hook_point": "blocks.0.ln2.hook_normalized", "out_hook_point": "blocks.0.hook_mlp_out"}
    return {"state_dict": {**w, **{k: v for k, v in other.items() if k in w}},
            "cfg": {**cfg, **{k: v for k, v in other.items() if k not in w}}}


itself = {"_modules": {}}
itself["_modules"]["a"] = itself
loop = []
loop.append(loop)
pickles = {
    "expanded": (lens(**{Q: torch.zeros(1).expand(10**6, 10**6, 1)}), f"{Q} repeats 4 bytes"),
    "overlapping": (lens(**{Q: torch.zeros(2 * 10**4).as_strided((10**4, 10**4), (1, 1))}), f"{Q} repeats 80000 bytes"),
    "sparse": (lens(**{Q: torch.zeros(H, C, D).to_sparse()}), f"{Q} is sparse"),
    "csr": (lens(**{Q: torch.zeros(C, D).to_sparse_csr()}), f"{Q} is sparse"),
    "meta": (lens(**{Q: torch.zeros(H, C, D, device="meta")}), f"{Q} is without numbers"),
    "nested": (lens(**{Q: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])}), "nested"),
    "complex": (lens(**{Q: torch.zeros(H, C, D, dtype=torch.complex64)}), "is of type torch.complex64"),
    "quantized": (lens(**{Q: torch.quantize_per_tensor(torch.zeros(C), 0.1, 0, torch.qint8)}), "is of type torch.qint8"),
    "number-as-name": ({"model": {**lens()["model"], 5: torch.zeros(2)}, "cfg": CFG}, "a tensor's name is 5"),
    "pair-as-name": ({"model": {**lens()["model"], ("a", 1): torch.zeros(2)}, "cfg": CFG}, "a tensor's name is ('a', 1)"),
    "number-as-setting": (lens({3: 4}), ""),
    "pair-as-setting": (lens({("a", 1): 4}), "TypeError"),
    "setting-in-itself": (lens({"loop": loop}), "ValueError"),
    "module-in-itself": ({"model": itself, "cfg": CFG}, "a module contains itself"),
    "modules-that-are-none": ({"model": {"_modules": 5}, "cfg": CFG}, "AttributeError"),
    "table-without-rows": (hub(**{"wte.weight": torch.zeros(())}), "IndexError"),
    "places-without-rows": (hub(**{"wpe.weight": torch.zeros(3)}), "IndexError"),
    "norm-without-width": (hub(**{"ln_f.weight": torch.zeros(())}), "IndexError"),
    "transcoder": (transcoder(), ""),
    "autoencoder": (transcoder(is_transcoder=False), "W_enc and W_dec of an autoencoder; expected a transcoder"),
    "transcoder-of-nothing": (transcoder(hook_point=None), "in its cfg is_transcoder, hook_point and out_hook_point"),
    "transcoder-of-another-width": (transcoder(b_dec=torch.zeros(C + 1)), "b_dec is [9]; expected [8] beside W_enc [8, 8]"),
    "transcoder-of-bytes": (transcoder(b_enc=torch.zeros(F, dtype=torch.uint8)), "b_enc is of type torch.uint8"),
    "a-list": ([torch.zeros(3)], "no tensors in"),
    "a-number": (5, "no tensors in"),
    "nothing": (None, "no tensors in"),
}


def answer(path, made):
    """What the script says, and whether it ended as it should: with a sentence or an output."""
    sys.argv = ["pickle-to-safetensors.py", "--trust", path, made]
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            runpy.run_path("tools/convert/pickle-to-safetensors.py", run_name="__main__")
        except SystemExit as error:
            return str(error.code), not os.path.exists(made)
    return "", os.path.exists(made)


wrong = 0
for name, (value, words) in pickles.items():
    path = os.path.join(output, name + ".pt")
    try:
        torch.save(value, path)
    except RuntimeError:  # an older PyTorch cannot save a nested tensor
        continue
    said, good = answer(path, os.path.join(output, name))
    if not good or "\n" in said or words not in said or said.startswith("pickle-to-safetensors: ") != bool(words):
        print(f"{name}: {said!r}", file=sys.stderr)
        wrong += 1
sys.exit(wrong > 0)
