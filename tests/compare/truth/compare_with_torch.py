#!/usr/bin/env python3
"""Compares the engine with PyTorch on models: whose logits and losses are closer to float64?

    compare_with_torch.py BUILD [HF_DIRECTORY...] [--tokens 64] [--greedy 32]

BUILD holds attn-convert, gpt2 and lens. A directory is any that attn-convert takes; without one a
random checkpoint of GPT-2's size is made (golden/make_golden.py's weights). The text is some tokens
that the model samples (random ids for a random checkpoint) and their greedy continuation by the
engine; several such texts where the model has few positions. PyTorch runs the same steps as Hugging
Face's GPT-2 in float32; numpy runs them in float64. Prints the errors of both, and how much of the
greedy text is what PyTorch and float64 would have said. The exit code is 1 if a root mean square of
the engine's errors is more than a fifth above PyTorch's and above the last bit of the largest logit
or loss, by which chance decides; or if a token of its text is less likely in float64 than another,
by more than what PyTorch errs by.
Needs numpy and PyTorch (Debian: python3-numpy, python3-torch).
"""
import argparse, json, os, struct, subprocess, sys, tempfile
import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "golden"))
import make_golden

BITS = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}

def read_safetensors(path):
    """Its floats by name, as float32."""
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
        data = f.read()
    tensors = {}
    for name, t in header.items():
        if name != "__metadata__" and t["dtype"] in BITS: # the others are attention masks
            x = np.frombuffer(data, BITS[t["dtype"]], int(np.prod(t["shape"])), t["data_offsets"][0])
            x = (x.astype(np.uint32) << 16).view(np.float32) if t["dtype"] == "BF16" else x.astype(np.float32)
            tensors[name.removeprefix("transformer.")] = x.reshape(t["shape"])
    return tensors

def torch_logits(w, c, ids, inputs=None, cached=None):
    """GPT-2 as Hugging Face runs it; `inputs` rounds the inputs of a matrix, `cached` queries, keys and values."""
    T, C, H = len(ids), c.width, c.heads
    inputs, cached = inputs or (lambda x: x), cached or (lambda q, k, v: (q, k, v))
    x = w["wte.weight"][torch.tensor(ids)] + w["wpe.weight"][:T]
    mask = torch.tril(torch.ones(T, T, dtype=torch.bool))
    for i in range(c.layers):
        p = f"h.{i}."
        ln = lambda name, x: F.layer_norm(x, (C,), w[p + name + ".weight"], w[p + name + ".bias"], c.eps)
        linear = lambda name, x: torch.addmm(w[p + name + ".bias"], inputs(x), w[p + name + ".weight"])
        q, k, v = cached(*(m.view(T, H, C // H).transpose(0, 1)
                           for m in linear("attn.c_attn", ln("ln_1", x)).split(C, dim=-1)))
        s = (q @ k.transpose(-1, -2)) / (C // H) ** 0.5
        s = torch.where(mask, s, torch.full([], float("-inf")))
        z = (torch.softmax(s, -1) @ v).transpose(0, 1).reshape(T, C)
        x = x + linear("attn.c_proj", z)
        h = linear("mlp.c_fc", ln("ln_2", x))
        h = 0.5 * h * (1 + torch.tanh((2 / np.pi) ** 0.5 * (h + 0.044715 * torch.pow(h, 3.0))))
        x = x + linear("mlp.c_proj", h)
    x = F.layer_norm(x, (C,), w["ln_f.weight"], w["ln_f.bias"], c.eps)
    return F.linear(inputs(x), w.get("lm_head.weight", w["wte.weight"]))

def make_checkpoint(directory, seed):
    """A random one of GPT-2's size."""
    sys.argv = ["make_golden.py", directory, "--layers", "12", "--heads", "12", "--width", "768",
                "--vocab", "50257", "--ctx", "1024", "--tokens", "2", "--seed", str(seed)]
    make_golden.main()

def open_checkpoint(directory):
    """What its config.json says, or means by saying nothing, and the weights, for numpy and as float32
    for PyTorch."""
    def read(name):
        with open(os.path.join(directory, name), encoding="utf-8") as f:
            return json.load(f)
    cfg = read("config.json")
    files = ["model.safetensors"]
    if not os.path.exists(os.path.join(directory, files[0])):
        files = sorted(set(read(files[0] + ".index.json")["weight_map"].values()))
    w = {k: x for f in files for k, x in read_safetensors(os.path.join(directory, f)).items()}
    c = argparse.Namespace(layers=cfg["n_layer"], heads=cfg["n_head"], width=cfg["n_embd"], vocab=cfg["vocab_size"],
                           ctx=cfg.get("n_positions", cfg.get("n_ctx")), eps=cfg.get("layer_norm_epsilon", 1e-5))
    bos = cfg.get("bos_token_id")
    bos = bos[0] if isinstance(bos, list) else bos
    c.start = bos if bos is not None and bos < c.vocab else c.vocab - 1
    return c, w, {k: torch.tensor(x) for k, x in w.items()}

def text_of(gpt2, model, c, n, seed, random):
    """n ids: any for random weights, else what the model itself samples, which is plausible text."""
    if random:
        return [int(i) for i in np.random.default_rng(seed).integers(0, c.vocab, n)]
    return continued(gpt2, model, [c.start], n - 1, "--temperature", "1", "--seed", str(seed))

def continued(gpt2, model, ids, n, *how):
    """ids and n more that the engine generates."""
    if n == 0:
        return ids
    out = subprocess.run([gpt2, model, "--ids", " ".join(map(str, ids)), "-n", str(n), "--print-ids", "--no-prompt",
                          "--ignore-eos", "--quiet", *how], check=True, stdout=subprocess.PIPE, text=True).stdout
    return ids + [int(i) for i in out.split()]

def our_losses(lens, model, ids):
    out = subprocess.run([lens, model, "loss", "--json", "--ids", " ".join(map(str, ids))], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    return np.array([t["loss"] for t in json.loads(out)["tokens"][1:]])

def compare(a, directory, random, tmp):
    """Prints what there is to say of one checkpoint; whether the engine's errors are too large."""
    gpt2, convert, lens = (os.path.join(a.build, name) for name in ("gpt2", "attn-convert", "lens"))
    c, w, of_torch = open_checkpoint(directory)
    greedy = min(a.greedy, c.ctx // 2)
    tokens = min(a.tokens, c.ctx - greedy)
    n_texts = min(32, -(-95 // max(1, tokens + greedy - 1))) # for about as many losses as 96 tokens have
    model, npy = os.path.join(tmp, "model.attn"), os.path.join(tmp, "logits.npy")
    subprocess.run([convert, directory, model, "--dtype", "f32"], check=True)
    wide = {k: x.astype(np.float64) for k, x in w.items()}
    logits, losses, said = [[], [], []], [[], [], []], []
    for seed in range(a.seed, a.seed + n_texts):
        ids = continued(gpt2, model, text_of(gpt2, model, c, tokens, seed, random), greedy, "--temperature", "0")
        subprocess.run([gpt2, model, "--ids", " ".join(map(str, ids)), "--logits", npy, "--quiet"], check=True)
        pytorch, exact = torch_logits(of_torch, c, ids), make_golden.forward(wide, c, np.array(ids), c.eps)
        for to, x in zip(logits, (np.load(npy), pytorch.numpy(), exact["logits"])):
            to.append(x)
        if len(ids) > 1:
            nll = F.cross_entropy(pytorch[:-1], torch.tensor(ids[1:]), reduction="none").numpy()
            for to, x in zip(losses, (our_losses(lens, model, ids), nll, exact["nll"])):
                to.append(x)
        said.append(ids[tokens:])
    logits, losses, said = [np.stack(x) for x in logits], [np.array(x) for x in losses], np.array(said, int)
    bit = float(np.spacing(np.float32(max(np.abs(x).max() for x in (logits[2], losses[2]) if x.size))))
    print(f"{n_texts} times {tokens} tokens and {greedy} greedy ones; {c.vocab} logits each, of standard deviation "
          f"{logits[2].std():.4g}, a last bit of {bit:.3g}")

    def errors(what, engine, pytorch, right):
        print(f"{what}, errors against float64:")
        rms = [np.sqrt(((x - right) ** 2).mean()) for x in (engine, pytorch)]
        for name, x, r in zip(("attn.h", "PyTorch f32"), (engine, pytorch), rms):
            print(f"  {name:12s} largest {np.abs(x - right).max():.3g}, root mean square {r:.3g}")
        return not rms[0] <= max(1.2 * rms[1], bit) # what is not a number is too large, too

    bad = errors("logits", *logits)
    if losses[0].size:
        bad |= errors("losses", *losses)
        print("mean loss: attn.h {:.7g}, PyTorch f32 {:.7g}, float64 {:.7g}".format(*(x.mean() for x in losses)))

    steps = [x[:, tokens - 1:-1] for x in logits] # of which each gave a greedy token
    same = [int((x.argmax(-1) == said).sum()) for x in steps[1:]]
    print(f"greedy text, {said.size} tokens: {same[0]} are PyTorch f32's choice, {same[1]} are float64's")
    if not said.size:
        return bool(bad)
    lead = steps[2].max(-1) - np.take_along_axis(steps[2], said[..., None], -1)[..., 0]
    return bool(bad or lead.max() > 2 * max(np.abs(logits[1] - logits[2]).max(), bit))

def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    ap.add_argument("build")
    ap.add_argument("directories", nargs="*", metavar="HF_DIRECTORY")
    ap.add_argument("--tokens", type=int, default=64)
    ap.add_argument("--greedy", type=int, default=32)
    ap.add_argument("--seed", type=int, default=0)
    a = ap.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        if not a.directories:
            make_checkpoint(os.path.join(tmp, "random"), a.seed)
            return int(compare(a, os.path.join(tmp, "random"), True, tmp))
        bad = []
        for directory in a.directories:
            print(f"== {directory}", flush=True)
            if compare(a, directory, False, tmp):
                bad.append(directory)
        if bad:
            print("errors larger than PyTorch's: " + ", ".join(bad))
        return int(bool(bad))

if __name__ == "__main__":
    sys.exit(main())
