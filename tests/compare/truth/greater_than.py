"""Circuits of the greater-than task, by edge attribution patching on TransformerLens: the numbers that
tools/reproduce/greater_than.h should give; and EAP-IG's scores of other pairs. compare_reproduce.py and
makers/make_reproduce_fixtures.py use it.

Written from the papers (EAP: Syed, Rager & Conmy 2023; EAP-IG: Hanna, Pezzelle & Belinkov 2024) by autograd, one pair
at a time: every receiver's input is a tensor whose gradient is kept, and a circuit runs with inputs that are put
together anew. What a notebook may choose (points between the texts, weights of batches) is as hannamw/EAP-IG has it.
"""
import csv

import torch

STEPS, EDGES, BATCH = 5, 200, 120
CIRCUITS = ([STEPS], list(range(STEPS)), [0, STEPS])  # EAP, EAP-IG, clean-corrupted: their points


class Graph:
    """Senders in the order of writing, receivers as (hook, head or None, how many senders come before)."""

    def __init__(self, model):
        self.model, n_heads = model, model.cfg.n_heads
        self.written = ["blocks.0.hook_resid_pre"]
        self.receivers, self.node = [], []
        before = 1
        for layer in range(model.cfg.n_layers):
            at = "blocks.%d." % layer
            for letter in "qkv":
                for head in range(n_heads):
                    self.receivers.append((at + "hook_%s_input" % letter, head, before))
                    self.node.append(before + head)
            self.receivers.append((at + "hook_mlp_in", None, before + n_heads))
            self.node.append(before + n_heads)
            self.written += [at + "attn.hook_result", at + "hook_mlp_out"]
            before += n_heads + 1
        self.receivers.append(("blocks.%d.hook_resid_post" % (model.cfg.n_layers - 1), None, before))
        self.node.append(before)
        self.n_senders = before
        self.real = torch.tensor([[s < r[2] for r in self.receivers] for s in range(before)])

    def names(self):
        """(sender, receiver) -> where its score is, by the names of EAP-IG's files."""
        layers, heads = self.model.cfg.n_layers, self.model.cfg.n_heads
        senders = ["input"] + [n for i in range(layers) for n in ["a%d.h%d" % (i, h) for h in range(heads)] + ["m%d" % i]]
        receivers = [n for i in range(layers) for n in
                     ["a%d.h%d<%s>" % (i, h, part) for part in "qkv" for h in range(heads)] + ["m%d" % i]] + ["logits"]
        return {(senders[s], receivers[r]): (s, r) for s, r in self.real.nonzero().tolist()}

    def rows(self, values, n=None):
        """[senders, T, C] of a dictionary of activations: all, or the first n."""
        rows = []
        for name in self.written:
            if len(rows) >= (n or self.n_senders):
                break
            v = values[name][0]
            rows += v.unbind(1) if v.ndim == 3 else [v]
        return torch.stack(rows[:n])

    def writes(self, tokens):
        return self.rows(self.model.run_with_cache(tokens, names_filter=self.written)[1])

    def scores(self, clean, corrupted, metric):
        """[points, senders, receivers]"""
        with torch.no_grad():
            now, other = self.writes(clean), self.writes(corrupted)
        out = torch.zeros(STEPS + 1, self.n_senders, len(self.receivers), dtype=now.dtype)
        for k in range(STEPS + 1):
            stream = (other[0] + k / STEPS * (now[0] - other[0]))[None].requires_grad_(True)
            seen = {}

            def watch(value, hook):
                value.retain_grad()
                seen[hook.name] = value

            hooks = [("blocks.0.hook_resid_pre", lambda value, hook: stream)]
            hooks += [(name, watch) for name in dict.fromkeys(r[0] for r in self.receivers)]
            with torch.enable_grad():
                metric(self.model.run_with_hooks(clean, fwd_hooks=hooks)).backward()
            for r, (name, head, before) in enumerate(self.receivers):
                slope = seen[name].grad[0] if head is None else seen[name].grad[0, :, head]
                out[k, :before, r] = ((other - now)[:before] * slope).sum((1, 2))
        return out

    def run(self, clean, corrupted, kept):
        """Logits of the clean text, all edges but those kept carrying the corrupted text's writes."""
        other, now = self.writes(corrupted), {}

        def note(value, hook):
            now[hook.name] = value

        def put_together(value, hook):
            values = [(r, head, before) for r, (name, head, before) in enumerate(self.receivers) if name == hook.name]
            value, before = value.clone(), values[0][2]
            change = other[:before] - self.rows(now, before)
            for r, head, _ in values:
                missing = (change * (~kept[:before, r])[:, None, None]).sum(0)
                if head is None:
                    value[0] += missing
                else:
                    value[0, :, head] += missing
            return value

        hooks = [(name, note) for name in self.written]
        hooks += [(name, put_together) for name in dict.fromkeys(r[0] for r in self.receivers)]
        return self.model.run_with_hooks(clean, fwd_hooks=hooks)

    def circuit(self, scores):
        """The largest scores' edges, without those of nodes that nothing enters or leaves."""
        size = scores.abs().masked_fill(~self.real, -1).flatten()
        kept = torch.zeros_like(size, dtype=torch.bool)
        kept[size.topk(min(EDGES, int(self.real.sum()))).indices] = True
        kept = kept.reshape(scores.shape)
        nodes = torch.tensor(self.node)
        while True:
            alive = [bool(kept[s].any()) and (s == 0 or bool(kept[:, nodes == s].any())) for s in range(self.n_senders)]
            ends = torch.tensor([n == self.n_senders or alive[n] for n in self.node])
            next_kept = kept & torch.tensor(alive)[:, None] & ends
            if bool((next_kept == kept).all()):
                return kept, sum(alive)
            kept = next_kept


def scores_between(model, clean, corrupted, answers):
    """EAP-IG's scores of a logit difference [senders, receivers], from the points k / STEPS for k = 1 to STEPS: the mean
    over the pairs; and the graph."""
    with_parts(model, True)
    graph, scores = Graph(model), 0
    for i, (good, bad) in enumerate(answers.tolist()):
        points = graph.scores(clean[i:i + 1], corrupted[i:i + 1], lambda logits: logits[0, -1, good] - logits[0, -1, bad])
        scores = scores + points[1:].mean(0) / len(answers)
    with_parts(model, False)
    return scores, graph


def with_parts(model, on):
    for flag in ("use_split_qkv_input", "use_attn_result", "use_hook_mlp_in"):
        setattr(model.cfg, flag, on)


def figures(model, encode, path, bos):
    """Mean probability difference of the model, of the three circuits; nodes and edges of the second circuit."""
    with_parts(model, True)
    graph = Graph(model)
    years = torch.tensor([encode("%02d" % year)[0] for year in range(100)])
    with open(path, newline="") as file:
        pairs = [(torch.tensor([[bos] + encode(row["clean"])]), torch.tensor([[bos] + encode(row["corrupted"])]),
                  int(row["label"])) for row in csv.DictReader(file)]

    def difference(logits, year):
        p = logits[0, -1].softmax(-1)[years]
        return p[year + 1:].sum() - p[:year + 1].sum()

    scores = 0
    for i, (clean, corrupted, year) in enumerate(pairs):
        size = min(BATCH, len(pairs) - i // BATCH * BATCH)
        scores = scores + graph.scores(clean, corrupted, lambda logits: -difference(logits, year)) / size
    circuits = [graph.circuit(scores[points].sum(0)) for points in CIRCUITS]
    sums = torch.zeros(1 + len(CIRCUITS), dtype=torch.double)
    with torch.no_grad():
        for clean, corrupted, year in pairs:
            sums += torch.stack([difference(model(clean), year)] +
                                [difference(graph.run(clean, corrupted, kept), year) for kept, _ in circuits]).double()
    with_parts(model, False)
    kept, n_nodes = circuits[1]
    return torch.cat([sums / len(pairs), torch.tensor([n_nodes, int(kept.sum())]).double()])
