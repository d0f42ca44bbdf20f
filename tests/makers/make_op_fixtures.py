#!/usr/bin/env python3
"""Writes tests/fixtures/ops.bin: inputs and expected outputs of tier 1's operations.

    python3 tests/makers/make_op_fixtures.py [tests/fixtures/ops.bin]

Needs torch and numpy (made with torch 1.13 and numpy 1.24, on the CPU). Inputs are float32 (or
float16, where that keeps the file small); what is expected is computed by PyTorch in float64 from
exactly those inputs and stored as float32.

The file's layout is in fixture_file.py. A case of an operation is a group of names, "matmul.3.a",
"matmul.3.b", "matmul.3.out"; cases of one operation are numbered from 0 without gaps.
"""
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F

from fixture_file import entry, save

torch.set_num_threads(1)
rng = np.random.default_rng(20240607)
NEG_INF = float("-inf")
written = []
counts = {}


def case(op, **tensors):
    """One case. Lists of Python ints become i32, lists of floats f32."""
    number = counts.get(op, 0)
    counts[op] = number + 1
    for key, value in tensors.items():
        if isinstance(value, list):
            value = np.array(value, np.int32 if isinstance(value[0], int) else np.float32)
        if value is not None:
            value = value.detach() if isinstance(value, torch.Tensor) else value
            written.append(entry(f"{op}.{number}.{key}", value))


def normal(*shape, scale=1.0, shift=0.0):
    return (rng.standard_normal(shape) * scale + shift).astype(np.float32)


def half(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float16)


def ids(limit, *shape):
    return rng.integers(0, limit, shape).astype(np.int32)


def wide(array):
    """The same numbers as a float64 tensor."""
    return torch.from_numpy(np.asarray(array).astype(np.float64))


def matmul():
    pairs = [((3, 4), (4, 5)), ((1, 1), (1, 1)), ((1, 7), (7, 1)), ((5, 1), (1, 6)),
             ((1, 33), (33, 47)), ((9, 40), (40, 1)), ((15, 16), (16, 17)), ((16, 17), (17, 33)),
             ((17, 33), (33, 15)), ((33, 15), (15, 16)), ((16, 16), (16, 16)), ((7, 65), (65, 49)),
             ((2, 3, 4, 5), (2, 3, 5, 6)), ((2, 1, 4, 5), (3, 5, 6)), ((4, 5), (3, 5, 6)),
             ((2, 3, 4, 5), (5, 6)), ((1, 1, 4, 5), (2, 3, 5, 6)), ((3, 17, 9), (1, 9, 18))]
    for left, right in pairs:
        a, b = normal(*left), normal(*right)
        case("matmul", a=a, b=b, out=wide(a) @ wide(b))
    a, b = normal(4, 50, scale=1e18), normal(50, 3, scale=1e18)
    case("matmul", a=a, b=b, out=wide(a) @ wide(b))
    for rows, inner, columns in [(5, 768, 17), (3, 3072, 9)]:
        a, b = half(rows, inner), half(inner, columns)
        case("matmul", a=a, b=b, out=wide(a) @ wide(b))
    a, b = half(2, 3072), half(3072, 1)
    case("matmul", a=a, b=b, out=wide(a) @ wide(b))


def linear():
    """args: 1 if w is stored [N, K], as nn.Linear does."""
    for shape, columns, torch_layout, bias in [
            ((5, 7), 9, 0, True), ((5, 7), 9, 1, True), ((33,), 17, 0, True), ((33,), 17, 1, False),
            ((2, 3, 20), 31, 1, True), ((2, 1, 3, 16), 16, 0, False), ((1, 1), 1, 0, True),
            ((19, 48), 50, 1, True), ((2, 2, 2, 5), 1, 1, True)]:
        x = normal(*shape)
        layer = torch.nn.Linear(shape[-1], columns, bias=bias).double()
        w = normal(columns, shape[-1], scale=0.3)
        b = normal(columns) if bias else None
        layer.weight.data = wide(w)
        if bias:
            layer.bias.data = wide(b)
        case("linear", x=x, w=w if torch_layout else w.T.copy(), b=b, args=[torch_layout],
             out=layer(wide(x)))


def elementwise():
    """The expected bits are exact: float64 rounded once more to float32 is the f32 result."""
    for left, right in [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 3), (2, 1)), ((4, 1, 3), (2, 1)),
                        ((2, 3, 4, 5), (3, 1, 5)), ((1,), (2, 2)), ((5,), (1,)), ((1, 5), (4, 1)),
                        ((2, 1, 1, 3), (1, 4, 5, 1)), ((257,), (257,)), ((3, 33), (1, 33)),
                        ((1, 1, 1, 1), (2, 2, 2, 2)), ((3,), (2, 1, 2, 3))]:
        a, b = normal(*left, scale=3), normal(*right, scale=0.7)
        case("binary", a=a, b=b, add=wide(a) + wide(b), sub=wide(a) - wide(b), mul=wide(a) * wide(b),
             div=wide(a) / wide(b))
    x = normal(3, 37)
    for factor in [0.125, -0.3, 1e10]:
        f = np.float32(factor)
        case("scale", x=x, f=[float(f)], out=wide(x) * float(f))


def exponential():
    x = np.concatenate([normal(60), normal(60, scale=20), np.linspace(-87, 88.7, 80),
                        np.array([0, 1, -1, 88.5, -87.3, 1e-8, -1e-8, 89, 200, NEG_INF, 1e30,
                                  -200, -1e30, float("inf")])]).astype(np.float32)
    case("exp", x=x, out=torch.exp(wide(x)))


def reductions():
    for shape, scale, shift in [((5,), 1, 0), ((3, 1), 1, 0), ((2, 3, 17), 1, 0), ((3, 500), 1, 0),
                                ((2, 2, 2, 33), 4, 1), ((2, 100), 1, 1000), ((4, 16), 1e-3, 0),
                                ((1, 15), 1e15, 0)]:
        x = normal(*shape, scale=scale, shift=shift)
        variance = torch.var(wide(x), -1, unbiased=True, keepdim=True) if shape[-1] > 1 else None
        case("reduce", x=x, sum=wide(x).sum(-1, keepdim=True), mean=wide(x).mean(-1, keepdim=True),
             variance=torch.var(wide(x), -1, unbiased=False, keepdim=True), unbiased=variance)


def softmax():
    inputs = [normal(1, 1), normal(7), normal(5, 17), normal(2, 3, 33), normal(2, 2, 3, 20),
              normal(3, 200, scale=30), np.full((2, 19), 0.7, np.float32),
              np.full((2, 5), -3e38, np.float32), normal(2, 40, scale=1e30)]
    hidden = normal(4, 33)
    hidden[0, 5:] = NEG_INF
    hidden[1, ::2] = NEG_INF
    hidden[2, :32] = NEG_INF
    inputs.append(hidden)
    near = normal(3, 18, scale=1e-3, shift=1e4)
    inputs.append(near)
    for x in inputs:
        case("softmax", x=x, out=torch.softmax(wide(x), -1), log=torch.log_softmax(wide(x), -1))
    for shape in [(5, 5), (3, 7), (1, 6), (2, 4, 4), (1, 1), (2, 3, 5, 21), (2, 18, 35)]:
        x = normal(*shape, scale=2)
        queries, keys = shape[-2:]
        see = torch.ones(queries, keys).tril(keys - queries).bool()
        case("causal", x=x, out=torch.softmax(wide(x).masked_fill(~see, NEG_INF), -1))


def cross_entropy():
    for rows, vocabulary, scale in [(6, 50, 1), (1, 1, 1), (4, 257, 20), (3, 16, 1e4), (2, 1000, 3)]:
        logits, targets = normal(rows, vocabulary, scale=scale), ids(vocabulary, rows)
        case("xent", logits=logits, targets=targets,
             out=F.cross_entropy(wide(logits), torch.from_numpy(targets).long(), reduction="none"))


def layernorm():
    constant = np.repeat(np.array([[0.1], [3.0], [-700.0], [0.0]], np.float32), 48, 1)
    for x, eps, gain, shift in [(normal(4, 64), 1e-5, True, True), (normal(4, 64), 1e-5, False, False),
                                (normal(3, 33, scale=5), 1e-5, True, False),
                                (normal(2, 3, 17), 1e-12, False, True), (normal(9), 1e-2, True, True),
                                (normal(2, 50, scale=1e-3), 1e-5, True, True),
                                (normal(2, 90, shift=1000), 1e-5, True, True),
                                (constant, 1e-5, True, True), (normal(2, 1), 1e-5, True, True),
                                (normal(2, 2, 2, 16), 1e-3, True, True)]:
        size = x.shape[-1]
        w = normal(size, scale=0.2, shift=1) if gain else None
        b = normal(size) if shift else None
        eps = float(np.float32(eps))
        case("layernorm", x=x, w=w, b=b, f=[eps],
             out=F.layer_norm(wide(x), (size,), wide(w) if gain else None,
                              wide(b) if shift else None, eps))


def gelu():
    x = np.concatenate([normal(80), normal(60, scale=5), np.linspace(-12, 12, 97),
                        np.array([0, -0.0, 1e-3, -1e-3, 1e-20, -1e-20, 30, -30, 1e4, -1e4, 1e20,
                                  -1e20])]).astype(np.float32)
    case("gelu", x=x, tanh=F.gelu(wide(x), approximate="tanh"), erf=F.gelu(wide(x)))


def embedding():
    for table, shape in [(normal(11, 5), (4,)), (normal(11, 5), (2, 3)), (half(30, 17), (2, 2, 3)),
                         (normal(1, 1), (1,)), (normal(7, 40), (1, 1, 1))]:
        picks = ids(table.shape[0], *shape)
        case("embedding", table=table, ids=picks,
             out=F.embedding(torch.from_numpy(picks).long(), wide(table)))
    for first, count in [(0, 6), (2, 3), (5, 1), (6, 0)]:
        table = normal(6, 9)
        case("positions", table=table, args=[first, count], out=wide(table)[first:first + count])


NONE, CAUSAL, GIVEN = 0, 1, 2


def attend(q, k, v, kind, mask, scale):
    """The textbook's lines, in float64."""
    scores = wide(q) @ wide(k).transpose(-1, -2) * scale
    queries, keys = scores.shape[-2:]
    if kind == CAUSAL:
        see = torch.ones(queries, keys).tril(keys - queries).bool()
        scores = scores.masked_fill(~see, NEG_INF)
    if kind == GIVEN:
        scores = scores + wide(mask)
    pattern = torch.softmax(scores, -1)
    return pattern @ wide(v), pattern


def attention():
    """args: mask kind; f: desc.scale (0: the default, 1/sqrt(d))."""
    def one(lead, queries, keys, d, dv, kind=NONE, mask=None, scale=0.0):
        q, k, v = normal(*lead, queries, d), normal(*lead, keys, d), normal(*lead, keys, dv)
        scale = float(np.float32(scale))
        out, pattern = attend(q, k, v, kind, mask, scale if scale else 1 / math.sqrt(d))
        case("attention", q=q, k=k, v=v, mask=mask, args=[kind], f=[scale], out=out, pattern=pattern)

    def hide(*shape):
        mask = np.where(rng.random(shape) < 0.4, NEG_INF, 0).astype(np.float32)
        mask[..., 0] = 0  # every query sees one key at least
        return mask

    for kind in (NONE, CAUSAL):
        one((), 6, 6, 4, 4, kind)
        one((), 1, 1, 1, 1, kind)
        one((), 1, 9, 8, 8, kind)
        one((), 5, 11, 7, 3, kind)
        one((2,), 4, 4, 16, 5, kind, scale=1)
        one((2, 3), 5, 18, 6, 17, kind)
        one((3, 1), 17, 17, 3, 2, kind, scale=0.37)
        one((), 33, 49, 16, 16, kind)
    one((), 9, 4, 8, 8)  # more queries than keys
    one((), 6, 6, 4, 4, GIVEN, hide(6, 6))
    one((2, 3), 5, 7, 4, 6, GIVEN, hide(5, 7))
    one((2, 3), 5, 7, 4, 6, GIVEN, hide(3, 5, 7), scale=1)
    one((2, 3), 5, 7, 4, 6, GIVEN, hide(2, 1, 5, 7))
    one((2,), 4, 17, 8, 4, GIVEN, normal(4, 17))  # a bias, as ALiBi or T5 add
    one((2,), 6, 5, 4, 4, GIVEN, hide(2, 6, 5), scale=-0.5)


def weights(c, width, f, biases=True):
    def bias(size):
        return normal(size, scale=0.1) if biases else None
    return dict(
        w_q=normal(c, width, scale=0.3), b_q=bias(width), w_k=normal(c, width, scale=0.3),
        b_k=bias(width), w_v=normal(c, width, scale=0.3), b_v=bias(width),
        w_o=normal(width, c, scale=0.3), b_o=bias(c), ln1_w=normal(c, scale=0.2, shift=1),
        ln1_b=bias(c), ln2_w=normal(c, scale=0.2, shift=1), ln2_b=bias(c),
        w_in=normal(c, f, scale=0.3), b_in=bias(f), w_out=normal(f, c, scale=0.3), b_out=bias(c))


ATTENTION_PARTS = ("w_q", "b_q", "w_k", "b_k", "w_v", "b_v", "w_o", "b_o")


def multihead_module(w, c, heads):
    """PyTorch's own multi-head attention with these weights; all biases present."""
    module = torch.nn.MultiheadAttention(c, heads, batch_first=True).double().eval()
    module.in_proj_weight.data = torch.cat([wide(w[n]).T for n in ("w_q", "w_k", "w_v")])
    module.in_proj_bias.data = torch.cat([wide(w[n]) for n in ("b_q", "b_k", "b_v")])
    module.out_proj.weight.data = wide(w["w_o"]).T
    module.out_proj.bias.data = wide(w["b_o"])
    return module


def multihead():
    """args: number of heads, mask kind, 1 for cross-attention."""
    for lead, queries, keys, c, heads, kind in [
            ((), 6, 6, 24, 3, CAUSAL), ((2,), 5, 5, 16, 4, NONE), ((2,), 5, 5, 16, 1, CAUSAL),
            ((), 4, 9, 24, 2, NONE), ((3,), 2, 17, 8, 8, CAUSAL), ((1,), 1, 1, 4, 2, CAUSAL)]:
        w = weights(c, c, 4)
        x = normal(*lead, queries, c)
        y = normal(*lead, keys, c) if queries != keys else x
        hide = ~torch.ones(queries, keys).tril(keys - queries).bool() if kind == CAUSAL else None
        out, pattern = multihead_module(w, c, heads)(wide(x), wide(y), wide(y), attn_mask=hide,
                                                     average_attn_weights=False)
        case("multihead", x=x, y=None if y is x else y, args=[heads, kind, int(y is not x)], out=out,
             pattern=pattern, **{n: w[n] for n in ATTENTION_PARTS})
    # Heads whose width is not C / H, no biases.
    c, heads, d, queries = 10, 3, 6, 7
    w = weights(c, heads * d, 4, biases=False)
    x = normal(2, queries, c)
    q, k, v = ((wide(x) @ wide(w[n])).view(2, queries, heads, d).transpose(1, 2).numpy()
               for n in ("w_q", "w_k", "w_v"))
    z, pattern = attend(q, k, v, CAUSAL, None, 1 / math.sqrt(d))
    out = z.transpose(1, 2).reshape(2, queries, heads * d) @ wide(w["w_o"])
    case("multihead", x=x, args=[heads, CAUSAL, 0], out=out, pattern=pattern,
         **{n: w[n] for n in ATTENTION_PARTS if w[n] is not None})


def mlp_and_block():
    """args: number of heads; f: eps. mlp: "tanh" and "erf" are the two expected outputs."""
    for lead, c, f, heads, eps in [((7,), 24, 96, 3, 1e-5), ((2, 5), 16, 50, 4, 1e-3),
                                   ((1,), 8, 8, 2, 1e-5), ((2, 17), 18, 33, 2, 1e-5)]:
        w = weights(c, c, f)
        eps = float(np.float32(eps))
        x = normal(*lead, c)

        def mlp(h, **how):
            h = F.gelu(h @ wide(w["w_in"]) + wide(w["b_in"]), **how)
            return h @ wide(w["w_out"]) + wide(w["b_out"])

        queries = lead[-1]
        hide = ~torch.ones(queries, queries).tril().bool()
        h = F.layer_norm(wide(x), (c,), wide(w["ln1_w"]), wide(w["ln1_b"]), eps)
        mid = wide(x) + multihead_module(w, c, heads)(h, h, h, attn_mask=hide)[0]
        h = F.layer_norm(mid, (c,), wide(w["ln2_w"]), wide(w["ln2_b"]), eps)
        case("block", x=x, args=[heads], f=[eps], tanh=mlp(wide(x), approximate="tanh"),
             erf=mlp(wide(x)), out=mid + mlp(h, approximate="tanh"), **w)


def unembed():
    for shape, table in [((5, 16), normal(50, 16)), ((2, 3, 9), normal(17, 9)), ((12,), half(33, 12))]:
        x = normal(*shape)
        case("unembed", x=x, table=table, out=wide(x) @ wide(table).T)


def random_numbers():
    """seed: low and high 32 bits; u32: raw draws; uniform: torch.rand after torch.manual_seed."""
    for seed in [0, 1, 123, 789, 2**31, 2**32 - 1, 2**32 + 5, 2**63 + 77]:
        torch.manual_seed(seed)
        uniform = torch.rand(1300)
        # The words themselves: numpy's generator is seeded the same way, and torch's 64-bit
        # integers, made of two words each, confirm it.
        words = np.random.RandomState(seed % 2**32).randint(0, 2**32, 1300, dtype=np.uint32)
        torch.manual_seed(seed)
        pairs = torch.empty(650, dtype=torch.int64).random_(0, 2**32).numpy()
        assert (pairs == words[1::2]).all()
        assert (uniform.numpy() == (words & 0xFFFFFF) * np.float32(2**-24)).all()
        keep = np.r_[0:40, 600:640, 1230:1300]
        low, high = seed % 2**32, seed // 2**32
        case("rng", seed=np.array([low, high], np.uint32).view(np.int32),
             at=keep.astype(np.int32), u32=words[keep].view(np.int32), uniform=uniform.numpy()[keep])


def halves():
    """f32 bit patterns and what numpy and torch both make of them in f16."""
    words = rng.integers(0, 2**32, 1500, dtype=np.uint32)
    near = normal(500, scale=1e-5)
    x = np.concatenate([words.view(np.float32), near, normal(500, scale=3e4)])
    x = x[~np.isnan(x)]
    with np.errstate(over="ignore"):
        h = x.astype(np.float16)
    assert (torch.from_numpy(x).half().numpy().view(np.uint16) == h.view(np.uint16)).all()
    case("half", x=x, h=h)


def main():
    for make in (matmul, linear, elementwise, exponential, reductions, softmax, cross_entropy,
                 layernorm, gelu, embedding, attention, multihead, mlp_and_block, unembed,
                 random_numbers, halves):
        make()
    save(sys.argv[1] if len(sys.argv) > 1 else "tests/fixtures/ops.bin", written)


main()
