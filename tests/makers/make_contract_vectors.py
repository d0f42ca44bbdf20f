#!/usr/bin/env python3
"""Writes tests/contract/vectors.json: inputs of the arithmetic contract, with the results of contract.py.

    python3 tests/makers/make_contract_vectors.py [tests/contract/vectors.json]

Beside ordinary numbers there are those at which another reading of the page would give other bits; comments name it.
Several settings of the sampler lie at a limit, so that the last bit of a weight or of a sum decides what is kept.
"""
import json
import os
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TESTS, "contract"))
import contract as c  # noqa: E402  (it is found by the line above)

seeds = iter(range(1, 1000000))


def some(count, scale):
    """Numbers between -scale / 2 and scale / 2, as the page says how to make them."""
    return {"seed": next(seeds), "count": count, "scale": scale}


def bits(*values):
    """f32 by their decimal numbers."""
    return [c.text_of(-c.ZERO if value == "-0" else c.of_setting(value)) for value in values]


def whole_numbers(count, kind):
    made = c.made_numbers(next(seeds), count, c.whole(256 if kind == "q8" else 16))
    return [int(float(x) // 1) for x in made]


# Inputs that tell a constant from its neighbours: found among all f32, since few have another result. One of some thousands
# does for the middle terms of a polynomial, one of some millions for its first. selftest.py moves each constant.
TELLING = {
    "exp": """c187db5b c120cf65 beb17251 c299d84b c17f14b2 c0c7a514 be5c9cb5 be5edfba be961f54 be8e0a80 be2e5fe5 be2d8e5c
              be03308c be0113d9 be002d18 be000247""".split(),
    "gelu": """bd122bb7 bd0da7f7 bd00003a bd000001 bfd955a5 be1f74f3 be1003a7 be08556c bd46cd26 bd5033a7 bd1f5805 bd03e566
               bd0001b7 bd000ed4""".split(),
    "log": """3fab9e5a 3fa29c96 3f9d15c4 3f9fb2d4 3f9f083a 3f9be4fe 3f96e714 3f947db9 3f8ac7e8 3f8a8120 3f89a7fc 3f81f702
              3f8293b8 3f80c29a 3f80fe22 3fb504f3 42818224 417e5744""".split()}


def functions():
    x = bits(0, "-0", 1, -1, 88, -87, -88, -104, "1e-40", 30, -10, -10.5, 9.9, 5)
    edges = [
        "42b17217", "42b17218", "7f7fffff",              # exp: the last finite result, the first infinite one
        "c2aeac4f", "c2aeac50", "ff7fffff",              # the last normal result, the first that is 0
        "42918d42", "c247a5cd", "c2a4f966",              # the second step of r is fused
        "c11fffff", "c1200001", "5f7fffff", "60000000"]  # gelu: around -10; x * x is infinite
    yield {"function": "exp", "x": x + edges}
    yield {"function": "exp", "x": some(60, 20)}
    yield {"function": "exp", "x": TELLING["exp"]}
    yield {"function": "gelu", "x": x + edges[2:6] + edges[9:]}
    yield {"function": "gelu", "x": some(60, 20)}
    yield {"function": "gelu", "x": some(60, 3)}
    yield {"function": "gelu", "x": TELLING["gelu"]}
    edges = ["3f800000", "00800000", "7f7fffff", "3f3504f3", "3f3504f2",
             "3fb51a55", "43136841", "423192fd", "463cffb2",  # fma(n, c, p * q), not fma(p, q, n * c)
             "40fdf9f9", "427d668b"]                          # nor n * c + p * q
    made = c.texts_of(abs(v) for v in c.made_numbers(next(seeds), 40, c.whole(300)))
    yield {"function": "log", "x": edges + made}
    yield {"function": "log", "x": TELLING["log"]}


def rows():
    yield {"function": "softmax", "x": some(37, 12)}
    yield {"function": "softmax", "x": some(300, 40)}
    yield {"function": "softmax", "x": bits(2, 2, -200, "-0", 2)}
    for n, scale, eps in ((67, 4, 1e-5), (300, 1, 1e-5), (100, 20, 1e-6), (5, 4, 1e-5)):
        yield {"function": "layernorm", "x": some(n, scale), "w": some(n, 2), "b": some(n, 1), "eps": bits(eps)}
    # the sum of squares is fused
    yield {"function": "layernorm", "x": {"seed": 1019, "count": 40, "scale": 4}, "w": bits(*[1] * 40),
           "b": bits(*[0] * 40), "eps": bits(1e-5)}
    # a sum of -0 begins at +0
    yield {"function": "layernorm", "x": bits(*["-0"] * 17), "w": bits(*[1] * 17), "b": bits(*["-0"] * 17),
           "eps": bits(1e-5)}
    yield {"function": "loss", "x": some(97, 8), "id": 5}
    yield {"function": "loss", "x": {"seed": 267, "count": 3, "scale": 8}, "id": 1}  # log: as at 3fb51a55
    yield {"function": "loss", "x": bits(0, -100), "id": 1}
    yield {"function": "loss", "x": {"seed": 414, "count": 97, "scale": 2}, "id": 1}  # another order of the sum


def quantised_column(kind, k):
    scales = [abs(v) + c.of_setting(0.01) for v in c.made_numbers(next(seeds), -(-k // 32), c.of_setting(0.1))]
    scales[1:3] = -scales[1], c.ZERO
    return {"scales": c.texts_of(map(c.through_f16, scales)), "numbers": whole_numbers(k, kind)}


def products():
    for kind in ("f32", "f16", "q8", "q4"):
        columns = [quantised_column(kind, 300) if kind[0] == "q" else some(300, 1) for _ in range(3)]
        yield {"function": "matmul", "type": kind, "x": some(300, 4), "columns": columns, "bias": some(3, 1)}
    # three chains are added in order
    yield {"function": "matmul", "type": "f32", "x": {"seed": 2001, "count": 700, "scale": 4}, "bias": bits(0, 0, 0, 0),
           "columns": [{"seed": seed, "count": 700, "scale": 1} for seed in (2002, 2003, 2004, 2005)]}
    # a chain begins at +0
    yield {"function": "matmul", "type": "f32", "x": bits("-0", "-0"), "columns": [bits(1, 1)], "bias": bits("-0")}
    groups = [
        ["40123918", "3fa00a14"], ["40809da3", "400ecb3c"],  # a * f is exact: 69 and 71, not 70 and 70
        ["0da2425f", "0d224260"], ["0da24260", "0d224260"],  # around m = 1e-30
        ["00000000", "80000000"], bits(2.5, 0.5, 1)]
    for x in groups:
        for kind in ("q8", "q4"):
            yield {"function": "matmul", "type": kind, "x": x, "bias": bits(0, "-0"), "columns": [
                {"scales": bits(1), "numbers": [7, -8, 3][:len(x)]}, {"scales": bits(-1), "numbers": [0, 1, 0][:len(x)]}]}


def layers():
    for d, n, asked, cache in ((8, 5, 5, "f32"), (8, 300, 2, "f32"), (6, 7, 7, "f16")):
        yield {"function": "attention", "d": d, "cache": cache, "q": some(n * d, 3), "k": some(n * d, 3),
               "v": some(n * d, 3), "out": [""] * (d * asked)}
    C, F = 8, 12
    yield {"function": "block", "d_model": C, "n_head": 2, "eps": bits(1e-5), "x": some(4 * C, 3),
           "ln1_w": some(C, 2), "ln1_b": some(C, 1), "W_QKV": some(3 * C * C, 1), "b_QKV": some(3 * C, 1),
           "W_O": some(C * C, 1), "b_O": some(C, 1), "ln2_w": some(C, 2), "ln2_b": some(C, 1),
           "W_in": some(C * F, 1), "b_in": some(F, 1), "W_out": some(F * C, 1), "b_out": some(C, 1)}


def drawing(x, settings, seen=(), draws=12):
    none = {"temperature": 1, "top_k": 0, "top_p": 0, "min_p": 0, "repeat_penalty": 0, "repeat_last": 0, "seed": "7"}
    return {"function": "sampler", "x": x, **none, **settings, "seen": list(seen), "drawn": [0] * draws}


def draws_of_many():
    logits = some(97, 8)
    for settings in ({}, {"top_k": 20}, {"top_p": 0.9}, {"min_p": 0.05}, {"top_k": 30, "top_p": 0.8, "min_p": 0.02},
                     {"repeat_penalty": 1.3}, {"repeat_penalty": 1.3, "repeat_last": 3}, {"repeat_penalty": 1},
                     {"repeat_penalty": 5, "repeat_last": 100}, {"temperature": 0},
                     {"temperature": 0, "repeat_penalty": 1.1}, {"seed": "12345678901234567890"},
                     {"seed": "4294967295"}, {"seed": "4294967296"},
                     {"top_k": 97}, {"top_k": 1000}, {"top_p": 1}, {"top_k": 97, "top_p": 0.9}):
        yield drawing(logits, {"temperature": 0.8, **settings}, [3, 5, 8, 13])


def draws_at_limits():
    same = bits(*[2] * 10)
    yield drawing(same, {})
    yield drawing(same, {"temperature": 0})
    yield drawing(same, {"top_k": 3})
    yield drawing(bits("-0", 0, "-0"), {"temperature": 0}, draws=1)
    yield drawing(bits("-0", 0, "-0"), {"top_k": 1}, draws=1)
    yield drawing(bits(-1, "-0", 0, -1), {"temperature": 0}, draws=1)
    # top_p is an f32: 0.3 of 10 is more than 3; 0.5 of 10 is reached by 5
    yield drawing(same, {"top_p": 0.3})
    yield drawing(same, {"top_p": 0.5})
    # the sum for top_p by ids, from 1e-16 to 1, is more than 2, which it is not from 1 down
    yield drawing(bits(-37, -37, -37, -37, 0, 0), {"top_p": 0.5})
    # top_p before min_p
    yield drawing(["00000000", "bf317218", *["bf9a1bc8"] * 5], {"top_k": 6, "top_p": 0.6, "min_p": 0.4})
    # the temperature and min_p are f32
    yield drawing(["00000000", "bdd9c031"], {"temperature": 0.8, "min_p": 0.875548735})
    # exp of the second is less than min_p, exp of the third is not
    for settings in ({}, {"top_k": 3}, {"top_p": 0.9}, {"top_k": 3, "top_p": 0.9}):
        yield drawing(["00000000", "bcfea86f", "bcfea870", "c0000000"], {"min_p": 0.969392061, **settings})
    yield drawing(bits(0, -1), {"min_p": 1})
    # once for a token that occurs twice; before greedy
    yield drawing(bits(4, 3), {"temperature": 0, "repeat_penalty": 1.2}, [0, 0], 1)
    yield drawing(bits(4, 3, 5), {"temperature": 0, "repeat_penalty": 2, "repeat_last": 5}, [2], 1)
    yield drawing(bits(1, "-0", 0), {"temperature": 0, "repeat_penalty": 2}, [1, 2], 1)
    # the penalty is an f32: what it makes is equal to the other logit
    yield drawing(["404b529b", "401c66ee"], {"temperature": 0, "repeat_penalty": 1.3}, [0], 1)
    yield drawing(["c061d7e6", "c092cc55"], {"temperature": 0, "repeat_penalty": 1.3}, [0], 1)
    # the running sum is equal to the target; what is read from the end is added from the end, in binary64
    yield drawing("00000000 be2c3643 c175f10d c1f6961d c2159dbc c215a6d8 c215fe08".split(), {"seed": "35"}, draws=1)
    yield drawing("00000000 be9f921b c186c075 c1fea6f7 c2129bc4 c2138aea c2158579".split(), {"seed": "189"}, draws=1)


def with_results(entry):
    if entry["function"] == "sampler":
        return {**entry, "drawn": c.results(entry)[1]}
    return {**entry, "out": c.results({"out": [], **entry})[1]}


def main(argv):
    path = argv[1] if len(argv) > 1 else os.path.join(TESTS, "contract", "vectors.json")
    parts = (functions, rows, products, layers, draws_of_many, draws_at_limits)
    lines = [json.dumps(with_results(entry)) for part in parts for entry in part()]
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"contract": 1, "note": "made by make_contract_vectors.py", "vectors": [\n%s\n]}\n' % ",\n".join(lines))


if __name__ == "__main__":
    main(sys.argv)
