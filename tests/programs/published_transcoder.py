"""python3 tests/programs/published_transcoder.py DIRECTORY, for tests/suites/convert: a pickle as Dunefsky et al. (2024)
published their transcoders, its configuration an object of a class that is not there, goes through
tools/convert/pickle-to-safetensors.py. What is written must compute what their SparseAutoencoder.forward does. Needs
PyTorch.
"""
import json
import os
import struct
import subprocess
import sys
import types

import torch

output = sys.argv[1]
N, M = 15, 14


class LanguageModelSAERunnerConfig:
    pass


LanguageModelSAERunnerConfig.__module__ = "sae_training.config"
sys.modules["sae_training"] = types.ModuleType("sae_training")
sys.modules["sae_training.config"] = types.ModuleType("sae_training.config")
sys.modules["sae_training.config"].LanguageModelSAERunnerConfig = LanguageModelSAERunnerConfig
torch.manual_seed(59)
cfg = LanguageModelSAERunnerConfig()
cfg.__dict__.update(model_name="gpt2-small", hook_point="blocks.1.ln2.hook_normalized", hook_point_layer=1,
                    is_transcoder=True, out_hook_point="blocks.1.hook_mlp_out", d_in=N, d_out=N, d_sae=M,
                    dtype=torch.float32, device=torch.device("cpu"), use_ghost_grads=(False,))
w = {"W_enc": torch.randn(N, M), "b_enc": torch.randn(M), "W_dec": torch.randn(M, N), "b_dec": torch.randn(N),
     "b_dec_out": torch.randn(N)}
pickled, made = os.path.join(output, "transcoder.pt"), os.path.join(output, "made")
torch.save({"cfg": cfg, "state_dict": w}, pickled)
done = subprocess.run([sys.executable, "tools/convert/pickle-to-safetensors.py", pickled, made, *sys.argv[2:]],
                      stderr=subprocess.PIPE, check=True, text=True, encoding="utf-8", env={**os.environ, "PYTHONUTF8": "1"})
assert "b_dec is subtracted from the input, b_dec_out added to the output (Dunefsky et al. 2024)" in done.stderr, done.stderr
with open(os.path.join(made, "sae_weights.safetensors"), "rb") as file:
    header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    data = bytearray(file.read())
ours = {name: torch.frombuffer(data[slice(*of["data_offsets"])], dtype=torch.float32).reshape(of["shape"]).double()
        for name, of in header.items() if name != "__metadata__"}
assert sorted(ours) == ["W_dec", "W_enc", "b_dec", "b_enc"], ours
w = {name: tensor.double() for name, tensor in w.items()}
x = torch.randn(100, N, dtype=torch.double)
theirs = ((x - w["b_dec"]) @ w["W_enc"] + w["b_enc"]).relu() @ w["W_dec"] + w["b_dec_out"]
off = ((x @ ours["W_enc"] + ours["b_enc"]).relu() @ ours["W_dec"] + ours["b_dec"] - theirs).abs().max() / theirs.abs().max()
assert off < 1e-6, off
with open(os.path.join(made, "cfg.json"), encoding="utf-8") as file:
    said = json.load(file)
assert said["metadata"]["hook_name"] == cfg.hook_point and said["metadata"]["hook_name_out"] == cfg.out_hook_point
assert (said["d_in"], said["d_out"], said["d_sae"]) == (N, N, M) and said["apply_b_dec_to_input"] is False
