"""The stations of the way of a token, computed with the library and NumPy: what the page shows must be these numbers."""

import os
import sys

import numpy as np

sys.path.append(os.path.join(os.path.dirname(__file__), "../makers"))
from float64 import gelu_tanh, softmax

NAMES = ["hook_embed", "hook_pos_embed", "*.hook_resid_pre", "*.hook_attn_out", "*.hook_resid_mid", "*.hook_mlp_out", "*.hook_resid_post",
         *(f"*.attn.hook_{name}" for name in ("q", "k", "v", "attn_scores", "pattern", "z")), "*.mlp.hook_pre"]


def stations(model, session, ids, layer, head, changes=()):
    """{key: {sign and name of each line: its numbers}}, the lines in their order, for the last of `ids`."""
    record = session.record(NAMES)
    session.feed(ids)
    p, config = len(ids) - 1, model.config
    tensor = lambda name: np.asarray(model.tensor(name), np.float64)
    row = lambda name: np.array(record[name], np.float64)[p]
    block = f"blocks.{layer}."

    def norm(name, stream):
        normalized = (stream - stream.mean()) / np.sqrt(stream.var() + config.ln_eps)
        weighed, bias = normalized * tensor(f"{name}.w"), tensor(f"{name}.b")
        return [weighed, bias, weighed + bias]

    found = {"embedding": [row("hook_embed"), row("hook_pos_embed"), row("hook_embed") + row("hook_pos_embed")]}
    before = found["embedding"][-1]
    for i in range(config.n_layer):
        pre, after = row(f"blocks.{i}.hook_resid_pre"), row(f"blocks.{i}.hook_resid_post")
        is_changed = any("head" not in c and c["layer"] == i for c in changes)
        found[f"layer {i}"] = [before, *([pre - before] if is_changed else []), row(f"blocks.{i}.hook_attn_out"), row(f"blocks.{i}.hook_mlp_out"), after]
        before = after
    found["last"] = norm("ln_final", before)
    logits = np.array(session.logits, np.float64)
    best = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:6]
    found["logits"] = [logits[best], softmax(logits)[best]]

    pre, middle, after = (row(block + name) for name in ("hook_resid_pre", "hook_resid_mid", "hook_resid_post"))
    found["ln1"] = norm(block + "ln1", pre)
    w, b = tensor(block + "attn.W_Q")[head], tensor(block + "attn.b_Q")[head]
    found["query"] = [found["ln1"][-1] @ w, b, row(block + "attn.hook_q")[head]]
    keys, values = (np.array(record[f"{block}attn.hook_{name}"], np.float64)[: p + 1, head] for name in "kv")
    scores, weights = (np.array(record[f"{block}attn.hook_{name}"], np.float64)[head, p, : p + 1] for name in ("attn_scores", "pattern"))
    found["scores"] = [keys @ row(block + "attn.hook_q")[head], scores]
    found["softmax"] = [scores, softmax(scores)]
    ranked, z = sorted(range(p + 1), key=lambda t: (-weights[t], t)), row(block + "attn.hook_z")
    brought = weights[:, None] * values
    is_changed = any(c["layer"] == layer and c.get("head") == head for c in changes)
    found["values"] = [*(brought[t] for t in ranked[:3]), *([brought[ranked[3:]].sum(0)] if p >= 3 else []), *([z[head] - brought.sum(0)] if is_changed else []), z[head]]
    added = np.einsum("hd,hdc->hc", z, tensor(block + "attn.W_O"))
    found["heads"] = [pre, added[head], *([added.sum(0) - added[head]] if config.n_head > 1 else []), tensor(block + "attn.b_O"), middle]
    found["ln2"] = norm(block + "ln2", middle)
    hidden, b_in = row(block + "mlp.hook_pre"), tensor(block + "mlp.b_in")
    activated = gelu_tanh(np, hidden)
    found["neurons"] = [found["ln2"][-1] @ tensor(block + "mlp.W_in"), b_in, hidden, activated]
    found["mlp"] = [middle, activated @ tensor(block + "mlp.W_out"), tensor(block + "mlp.b_out"), after]
    return found


# Of the station that is open: each column's lines, as they are written.
SHOWN = """() => [opened, [...document.querySelectorAll("#flow-numbers .numbers > span")].map((column) => [...column.querySelectorAll("span")].map((line) => line.textContent))]"""


def number(line):
    """What a line says: its sign, and the number that it adds or gives."""
    text = line.replace("\u2212", "-")
    if text[:2] in ("+ ", "= ", "→ ", "- "):
        return text[0], float(text[2:]) * (-1 if text[0] == "-" else 1)
    return "", float(text)


def faults(shown, lines, tolerance=0.0006):
    """What is wrong with the columns that are shown, beside the numbers that they should have: one sentence, or none."""
    for i, column in enumerate(shown):
        got, want = [number(line) for line in column], [numbers[i] for numbers in lines]
        if len(got) != len(want) or any(abs(g - w) > tolerance * max(1, abs(w)) for (_, g), w in zip(got, want)):
            return f"number {i}: {column}; expected {[round(float(w), 4) for w in want]}"
        signs = [sign for sign, _ in got]
        if "=" in signs:
            at = signs.index("=")
            if abs(sum(x for _, x in got[:at]) - got[at][1]) > 0.0005 * (at + 1) + 1e-9:
                return f"number {i}: {column} does not add up"
    return ""
