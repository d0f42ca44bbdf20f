#!/usr/bin/env python3
"""Tests contract.py's operations, each beside a second way: Fraction, random, heapq, struct and math.

    selftest.py [SEED [TEST...]]    prints what failed; exit status 1 then
"""
import heapq
import json
import math
import os
import random
import struct
import sys
from bisect import bisect_right
from fractions import Fraction

import contract as c

INFINITY = 0x7F800000
RANDOM = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 1)

HARD = [0, 1, 2, 3, 0x7FFFFF, 0x800000, 0x800001, 0xFFFFFF, 0x1000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001,
        0x3FFFFFFF, 0x40000000, 0x40400000, 0x4B000000, 0x4B000001, 0x4B7FFFFF, 0x4B800000, 0x4B800001,
        0x33000000, 0x33800000, 0x33800001, 0x34000000, 0x1A000000, 0x1A3504F3, 0x5F000000, 0x7E800000,
        0x7F000000, 0x7F7FFFFE, 0x7F7FFFFF, 0x72000000, 0x73000000, 0x72FFFFFF]
HARD += [bits | 0x80000000 for bits in HARD]


# The second way: a search among all f32

def value(pattern):
    """The exact value of a positive pattern; infinity stands for 2^128, as IEEE 754 rounds."""
    if pattern == INFINITY:
        return Fraction(2) ** 128
    return Fraction(struct.unpack("<f", struct.pack("<I", pattern))[0])


def signed_value(bits):
    return -value(bits & 0x7FFFFFFF) if bits >> 31 else value(bits)


class Values:
    """Values of all positive patterns as a sequence for bisect, to some power."""

    def __init__(self, power):
        self.power = power

    def __len__(self):
        return INFINITY + 1

    def __getitem__(self, pattern):
        return value(pattern) ** self.power


def nearest(exact, power=1):
    """The pattern whose value is nearest to exact >= 0 (or, with power 2, to its root)."""
    below = bisect_right(Values(power), exact) - 1
    if below == INFINITY:
        return INFINITY
    middle = ((value(below) + value(below + 1)) / 2) ** power
    if exact == middle:
        return below + below % 2
    return below if exact < middle else below + 1


def reference(exact, negative_zero=False):
    if exact == 0:
        return 0x80000000 if negative_zero else 0
    return nearest(abs(exact)) | (0x80000000 if exact < 0 else 0)


def some_bits():
    """The bits of a finite f32: of any size, or near 1 so that the operands of a sum meet."""
    kind = RANDOM.random()
    if kind < 0.2:
        return RANDOM.choice(HARD)
    sign = RANDOM.getrandbits(1) << 31
    if kind < 0.5:
        return sign | RANDOM.randrange(INFINITY)
    return sign | RANDOM.randrange(110, 145) << 23 | RANDOM.getrandbits(23) & -(1 << RANDOM.randrange(24))


def some_f32(low, high):
    return c.F32(reference(Fraction(RANDOM.uniform(low, high))))


def same(what, expected, got, *inputs):
    if expected != got:
        raise AssertionError(f"{what} of {inputs}: expected {expected:08x}, got {got:08x}")


def refused(function):
    try:
        function()
    except c.Refused:
        return
    raise AssertionError("something was not refused")


# Tests

def test_rounding():
    """Denominators that are no powers of two, ties between neighbours, and neighbours of ties."""
    for _ in range(300):
        pattern = RANDOM.choice(HARD) & 0x7FFFFFFF if RANDOM.random() < 0.5 else RANDOM.randrange(INFINITY)
        tie = (value(pattern) + value(pattern + 1)) / 2
        for exact in (tie, tie * (1 + Fraction(1, 10 ** 20)), tie * (1 - Fraction(1, 10 ** 20)), tie / 3):
            got = c.rounded(*c.quotient(exact.numerator, exact.denominator)).bits
            same("rounding", nearest(exact), got, pattern, exact)


def test_whole_numbers():
    for _ in range(2000):
        number, drop = RANDOM.randrange(-5000, 5000), RANDOM.randrange(-3, 14)
        assert c.half_even(number, drop) == round(Fraction(number) / Fraction(2) ** drop), (number, drop)


def fused(a, b, d):
    exact = signed_value(a) * signed_value(b) + signed_value(d)
    expected = reference(exact, a >> 31 ^ b >> 31 and d >> 31)
    same("fma", expected, c.fma(c.F32(a), c.F32(b), c.F32(d)).bits, a, b, d)


def test_fma():
    for _ in range(1000):
        a, b = some_bits(), some_bits()
        fused(a, b, some_bits())
        product = signed_value(a) * signed_value(b)
        near = nearest(abs(product))
        if near < INFINITY:                     # the product cancels but for its low digits
            fused(a, b, near | (0 if product < 0 else 0x80000000))
    for _ in range(300):                        # far below a tie
        tiny = RANDOM.randrange(0x100, 0x1000000) | RANDOM.getrandbits(1) << 31
        fused(0x33800001 - RANDOM.randrange(3), 0x3F800000, RANDOM.randrange(0x3F800000, 0x40000000))
        fused(tiny, 0x3F800000, RANDOM.randrange(0x3F800000, 0x40000000))


def test_plain_operations():
    for _ in range(600):
        a, b = some_bits(), some_bits()
        x, y, u, v = c.F32(a), c.F32(b), signed_value(a), signed_value(b)
        differ = a >> 31 ^ b >> 31
        same("+", reference(u + v, a >> 31 and b >> 31), (x + y).bits, a, b)
        same("-", reference(u - v, a >> 31 and not b >> 31), (x - y).bits, a, b)
        same("*", reference(u * v, differ), (x * y).bits, a, b)
        if v:
            same("/", reference(u / v, differ), (x / y).bits, a, b)
        same("sqrt", nearest(abs(u), 2), c.sqrt(abs(x)).bits, a)
        assert (x < y, x > y, x >= y) == (u < v, u > v, u >= v)


def test_infinities():
    """What arises from finite inputs that are too large."""
    inf, big, one, two = (c.F32(bits) for bits in (INFINITY, 0x7F7FFFFF, 0x3F800000, 0x40000000))
    for got, expected in [
            (big + big, INFINITY), (big * two, INFINITY), (-big - big, 0xFF800000), (one / inf, 0),
            (c.fma(big, two, -big), 0x7F7FFFFF), (one / -c.ZERO, 0xFF800000), (c.exp(-inf), 0),
            (c.exp(inf), INFINITY), (c.gelu(big), 0x7F7FFFFF), (c.gelu(-big), 0x80000000)]:
        same("infinity", expected, got.bits)
    for nan in (lambda: inf - inf, lambda: c.ZERO / c.ZERO, lambda: inf * c.ZERO, lambda: inf / inf,
                lambda: c.F32(0x7FC00000), lambda: c.sqrt(-one)):
        refused(nan)


def test_f16():
    for half in list(range(0, 0x7C00, 37)) + [1, 0x3FF, 0x400, 0x7BFF]:
        wide = struct.unpack("<e", struct.pack("<H", half))[0]
        assert float(c.widened(half)) == wide and float(c.widened(half | 0x8000)) == -wide
        middle = (Fraction(wide) + Fraction(float(c.widened(min(half + 1, 0x7BFF))))) / 2
        for bits in (nearest(middle) - (half > 0), nearest(middle), nearest(middle) + 1):
            x = c.F32(bits)
            expected = struct.unpack("<e", struct.pack("<e", float(x)))[0]
            assert float(c.through_f16(x)) == expected and float(c.through_f16(-x)) == -expected, bits
    same("f16", INFINITY, c.through_f16(c.of_setting(65520)).bits)
    same("f16", 0x80000000, c.through_f16(-c.ZERO).bits)


def test_functions():
    """Not the bits, but that nothing is mistaken: a few units of the last place from the true function."""
    def close(got, expected):
        assert abs(float(got) - expected) <= 1e-6 * abs(expected) + 1e-38, (float(got), expected)

    for _ in range(300):
        x = some_f32(-87.3, 88.7)
        close(c.exp(x), math.exp(float(x)))
        x = some_f32(-5, 10)
        u = math.sqrt(2 / math.pi) * (float(x) + 0.044715 * float(x) ** 3)
        assert abs(float(c.gelu(x)) - float(x) / (1 + math.exp(-2 * u))) < 1e-6 * max(1, abs(float(x)))
        x = c.F32(RANDOM.randrange(0x00800000, INFINITY))
        assert abs(float(c.log(x)) - math.log(float(x))) <= 2e-7 * max(1, abs(math.log(float(x))))


def plain_chain(x, w):
    """A chain with Fraction for each step; with weights of 1, a plain sum."""
    acc = 0
    for a, b in zip(x, w):
        acc = reference(signed_value(a.bits) * signed_value(b.bits) + signed_value(acc))
    return c.F32(acc)


def test_sums():
    for n in (1, 5, 16, 17, 100, 257, 600):
        x, w = [some_f32(-2, 2) for _ in range(n)], [some_f32(-2, 2) for _ in range(n)]
        s = [plain_chain(x[i::16], [c.ONE] * n) for i in range(16)]
        for h in (8, 4, 2, 1):
            s = [plain_chain((a, b), (c.ONE, c.ONE)) for a, b in zip(s, s[h:2 * h])]
        same("fold16", s[0].bits, c.fold16(x).bits)
        chains = [plain_chain(x[k:k + 256], w[k:k + 256]) for k in range(0, n, 256)]
        same("chain", plain_chain(chains, [c.ONE] * n).bits, c.chain(x, w).bits)


def test_quantised_inputs():
    for size in [0, 1e-31, 1e-30, 1.0000001e-30, 1e-20, 1, 1000, 2.0 ** 100] + [3.7] * 10:
        a = [some_f32(-size, size) for _ in range(RANDOM.choice((32, 7)))]
        m = max(abs(signed_value(x.bits)) for x in a)
        tiny = m < value(c.constant("1e-30").bits)
        f = 0 if tiny else value(nearest(127 / m))
        (i, e), = c.quantised_inputs(a)
        assert i == [round(signed_value(x.bits) * f) for x in a]
        same("e", 0 if tiny else nearest(m / 127) >> 2 << 2, e.bits)
    refused(lambda: c.quantised_inputs([c.rounded(2 ** 24 + 2, 76)]))


def test_generator():
    """Python's own is seeded by init_by_array; its state can be set to that of init_genrand."""
    same("init_genrand", 3499211612, c.MT19937(5489).number())
    for seed in (0, 7, 2 ** 32 - 1, 2 ** 32, 2 ** 64 - 1, 12345678901234567890):
        own, python = c.MT19937(seed), random.Random(seed)
        if seed < 2 ** 32:
            python.setstate((3, tuple(own.state) + (624,), None))
        assert [own.number() for _ in range(700)] == [python.getrandbits(32) for _ in range(700)], seed


def test_unsorted_order():
    """The heap is the one that heapq makes, when its smallest is the likeliest."""
    for n in list(range(1, 30)) + [200]:
        x = [c.whole(RANDOM.randrange(-n, n)) for _ in range(n)]
        heap = [c.likeliness(x)(j) for j in range(n)]
        heapq.heapify(heap)
        assert c.unsorted_order(x) == [j for _, j in reversed(heap)]


def test_kept_candidates():
    x = [c.whole(v) for v in (3, 5, -2, 5, 0)]
    w = [c.exp(v - x[1]) for v in x]
    for top_k, top_p, min_p, expected in [
            (4, 0, 0, [1, 3, 0, 4]), (2, 0, 0, [1, 3]), (5, 0, 0, c.unsorted_order(x)), (0, 0.01, 0, [1]),
            (0, 0.5, 0, [1, 3]), (0, 1, 0, c.unsorted_order(x)), (0, 0, 1, [1, 3]), (3, 0.99, 0.5, [1, 3])]:
        settings = {"top_k": top_k, "top_p": top_p, "min_p": min_p}
        assert c.kept_candidates(x, w, settings) == expected, settings
    settings = {"repeat_penalty": 2, "repeat_last": 2}
    assert [float(v) for v in c.repetition(x, [0, 2, 1, 2], settings)] == [3, 2.5, -4, 5, 0]


PANELS = {0: (1, "f", 4), 1: (2, "e", 2), 3: (4, "B", 1), 4: (8, None, 1)}  # k of a line, type of a number, bytes


def packed(dtype, w, scales):
    """Matrices of any shape, packed by the formulas of the format for single entries."""
    per_line, kind, size = PANELS[dtype]
    N, K = len(w), len(w[0])
    heads, depth = (1, 64) if kind in (None, "B") else (0, per_line)    # blocks of 64 k have a line of scales
    blocks, lines = -(-K // depth), heads + depth // per_line
    data = bytearray(-(-N // 16) * blocks * lines * 64)
    for n in range(N):
        for k in range(K):
            block, j = (n // 16 * blocks + k // depth) * lines * 64, k % depth
            if heads:
                struct.pack_into("<e", data, block + 32 * (j // 32) + 2 * (n % 16), float(scales[n][k // 32]))
            at = block + 64 * (heads + j // per_line)
            if kind is None:
                data[at + 4 * (n % 16) + j % 4] |= (w[n][k] & 15) << (4 if j % 8 >= 4 else 0)
            elif kind == "B":
                data[at + 4 * (n % 16) + j % 4] = w[n][k]
            else:
                struct.pack_into("<" + kind, data, at + size * (j % per_line * 16 + n % 16), w[n][k])
    return bytes(data)


def test_panels():
    for K, N in ((1, 1), (5, 17), (70, 33), (128, 20)):
        w = [[RANDOM.getrandbits(8) for _ in range(K)] for _ in range(N)]
        scales = [[c.widened(RANDOM.randrange(0x2000, 0x3000)) for _ in range(-(-K // 32))] for _ in range(N)]
        for dtype in PANELS:
            data = packed(dtype, w, scales)
            columns = c.read_matrix({"W": c.Tensor(dtype, 1, (K, N), data)}, "W", K, N)
            for n in range(N):
                if dtype < 2:
                    assert [float(x) for x in columns[n]] == w[n]
                else:
                    whole = [x - 128 if dtype == 3 else (x & 15) - 8 for x in w[n]]
                    assert columns[n].q == whole and c.texts_of(columns[n].d) == c.texts_of(scales[n])
            refused(lambda: c.read_matrix({"W": c.Tensor(dtype, 1, (K, N), data[:-64])}, "W", K, N))


# The vectors tell this contract from others that are close to it

def neighbours(name):
    """The values of a constant, or list of constants, one of which is a unit in the last place larger or smaller."""
    given = getattr(c, name)
    if isinstance(given, c.F32):
        return [c.F32(given.bits + step) for step in (-1, 1)]
    return [(*given[:i], c.F32(given[i].bits + step), *given[i + 1:]) for i in range(len(given)) for step in (-1, 1)]


def sum_in_order(x, take=lambda partial, element: partial + element):
    s = c.ZERO
    for element in x:
        s = take(s, element)
    return s


def sum_of_eight(x, take=lambda partial, element: partial + element):
    return sum_in_order([sum_in_order(x[i::8], take) for i in range(8)])


def sum_by_pairs(x, take=lambda partial, element: partial + element):
    s = [sum_in_order(x[i::16], take) for i in range(16)]
    while len(s) > 1:
        s = [s[i] + s[i + 1] for i in range(0, len(s), 2)]
    return s[0]


def chains_of(length):
    return lambda a, w: c.added_in_order([c.run_chain(run) for run in c.pieces(list(zip(a, w)), length)])


# (what is another, its values, the functions that have it). GELU_U is not here: where it holds, 1 + e is 1 for its neighbours too.
OTHERS = [(name, neighbours(name), [function]) for function, names in {
    "exp": "EXP_LOWEST EXP_HIGHEST LOG2_E MINUS_LN2_HIGH MINUS_LN2_LOW EXP_C M",
    "gelu": "GELU_LOWEST GELU_CUBE GELU_SLOPE GELU_C M",
    "log": "LOG_C LN2_HIGH LN2_LOW",
    "matmul": "TINY Q127"}.items() for name in names.split()]
OTHERS += [
    ("fold16", [sum_in_order, sum_of_eight, sum_by_pairs], [function]) for function in ("softmax", "layernorm", "loss")]
OTHERS += [
    ("chain", [chains_of(128), chains_of(512), lambda a, w: chains_of(256)(a[::-1], w[::-1])], ["matmul"]),
    ("added_in_order", [lambda chains: sum_in_order(chains[::-1])], ["matmul"])]


def differs(entry):
    try:
        want, got = c.results(entry)
    except c.Refused:
        return True
    return want != got


def test_others_are_told():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors.json"), encoding="utf-8") as file:
        vectors = json.load(file)["vectors"]
    for name, values, functions in OTHERS:
        given = getattr(c, name)
        for i, other in enumerate(values):
            setattr(c, name, other)
            told = any(differs(entry) for entry in vectors if entry["function"] in functions)
            setattr(c, name, given)
            assert told, f"{name} as neighbour {i}: no vector of {functions} tells"


def main():
    failed = 0
    for name, test in [(name, test) for name, test in globals().items() if name.startswith("test_")]:
        if len(sys.argv) > 2 and name[5:] not in sys.argv[2:]:
            continue
        try:
            test()
        except AssertionError as error:
            print(f"{name[5:]}: {error}")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
