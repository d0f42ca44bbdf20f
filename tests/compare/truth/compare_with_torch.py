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
import argparse, json, os, subprocess, sys, tempfile
import numpy as np
import torch
import torch.nn.functional as F

TESTS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TESTS, "makers"))
import float64

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
    subprocess.run([sys.executable, os.path.join(TESTS, "golden", "make_golden.py"), directory, "--layers", "12", "--heads", "12",
                    "--width", "768", "--vocab", "50257", "--ctx", "1024", "--tokens", "2", "--seed", str(seed)], check=True)

def open_checkpoint(directory):
    """The model in float64, its start token as `start`; and the weights as float32 for PyTorch."""
    model = float64.Model.open(directory)
    bos = model.config.get("bos_token_id")
    bos = bos[0] if isinstance(bos, list) else bos
    model.start = bos if bos is not None and bos < model.vocab else model.vocab - 1
    return model, {k: torch.tensor(x.astype(np.float32)) for k, x in model.w.items()}

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

def nll_of(logits, ids):
    return -float64.log_softmax(logits)[np.arange(len(ids) - 1), ids[1:]]

def compare(a, directory, random, tmp):
    """Prints what there is to say of one checkpoint; whether the engine's errors are too large."""
    gpt2, convert, lens = (os.path.join(a.build, name) for name in ("gpt2", "attn-convert", "lens"))
    c, of_torch = open_checkpoint(directory)
    greedy = min(a.greedy, c.n_ctx // 2)
    tokens = min(a.tokens, c.n_ctx - greedy)
    n_texts = min(32, -(-95 // max(1, tokens + greedy - 1))) # for about as many losses as 96 tokens have
    model, npy = os.path.join(tmp, "model.attn"), os.path.join(tmp, "logits.npy")
    subprocess.run([convert, directory, model, "--dtype", "f32"], check=True)
    logits, losses, said = [[], [], []], [[], [], []], []
    for seed in range(a.seed, a.seed + n_texts):
        ids = continued(gpt2, model, text_of(gpt2, model, c, tokens, seed, random), greedy, "--temperature", "0")
        subprocess.run([gpt2, model, "--ids", " ".join(map(str, ids)), "--logits", npy, "--quiet"], check=True)
        pytorch, exact = torch_logits(of_torch, c, ids), c.run(ids)
        for to, x in zip(logits, (np.load(npy), pytorch.numpy(), exact)):
            to.append(x)
        if len(ids) > 1:
            nll = F.cross_entropy(pytorch[:-1], torch.tensor(ids[1:]), reduction="none").numpy()
            for to, x in zip(losses, (our_losses(lens, model, ids), nll, nll_of(exact, ids))):
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
