#!/usr/bin/env python3
"""tests/contract/contract.md in plain Python: exact integers in place of floats, and the standard library alone.

    contract.py vectors >vectors.json        inputs with the bits of their results
    contract.py logits MODEL.attn ID...      the bits of each position's logits, a line of hexadecimal for each

It takes some microseconds for each multiply-add: for models of a few thousand weights.
"""
import json
import math
import struct
import sys

MAGIC = 12582912.0


# Numbers. A float of Python is a binary64, which holds each f32 exactly, and the exact product of two.

def rounded(m, e, sticky=0):
    """The f32 nearest to m * 2^e, or just above it if `sticky`. m is not 0."""
    sign, m = (-1, -m) if m < 0 else (1, m)
    shift = max(m.bit_length() - 24, -149 - e)
    if shift > 0:
        rest, m, e = m & ((1 << shift) - 1), m >> shift, e + shift
        half = 1 << (shift - 1)
        if rest > half or (rest == half and (sticky or m & 1)):
            m += 1
    if m.bit_length() + e > 128:
        return sign * math.inf
    return math.ldexp(sign * m, e)


def whole(x):
    """x = m * 2^e, m a whole number."""
    m, e = math.frexp(x)
    return int(m * 9007199254740992.0), e - 53


def fma(a, b, c):
    p = a * b
    m, e = whole(p)
    n, f = whole(c)
    if m == 0 or n == 0:
        return rounded(m or n, e if m else f) if m or n else p + c
    total, low = (m + (n << (f - e)), e) if f >= e else ((m << (e - f)) + n, f)
    return rounded(total, low) if total else p + c


def add(a, b):
    return fma(a, 1.0, b)


def sub(a, b):
    return fma(b, -1.0, a)


def mul(a, b):
    return fma(a, b, -0.0)


def div(a, b):
    m, e = whole(a)
    n, f = whole(b)
    if m == 0:
        return a / b
    sign = -1 if (m < 0) != (n < 0) else 1
    quotient, rest = divmod(abs(m) << 64, abs(n))
    return rounded(sign * (2 * quotient + (rest > 0)), e - f - 65)


def sqrt(a):
    m, e = whole(a)
    if m == 0:
        return a
    m, e = (m << 65, e - 65) if e % 2 else (m << 64, e - 64)
    if e % 2:
        m, e = m << 1, e - 1
    root = math.isqrt(m)
    return rounded(2 * root + (root * root < m), e // 2 - 1)


def bits(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def of_bits(n):
    return struct.unpack("<f", struct.pack("<I", n & 0xFFFFFFFF))[0]


def const(x):
    return of_bits(bits(x))


def horner(x, coefficients):
    p = const(coefficients[0])
    for c in coefficients[1:]:
        p = fma(p, x, const(c))
    return p


# Functions

def fold(s):
    for h in (8, 4, 2, 1):
        s = [add(s[i], s[i + h]) for i in range(h)]
    return s[0]


def fold16(x):
    s = [0.0] * 16
    for j, v in enumerate(x):
        s[j % 16] = add(s[j % 16], v)
    return fold(s)


def times_power(p, t):
    return of_bits(bits(p) + (bits(t) << 23))


def exp(x):
    if x < const(-87.3365402):
        return 0.0
    t = fma(x, const(1.44269502), MAGIC)
    n = sub(t, MAGIC)
    r = fma(n, const(-0.693145752), x)
    r = fma(n, const(-1.42860677e-06), r)
    return times_power(horner(r, (0.00138213579, 0.00836867001, 0.0416682586, 0.166665211, 0.49999994, 1, 1)), t)


def gelu(x):
    if x < -10:
        return -0.0
    u = min(fma(mul(x, x), mul(x, const(0.044715)), x), 30.0)
    c = const(-2.30220819)
    t = fma(u, c, MAGIC)
    f = fma(u, c, sub(MAGIC, t))
    p = horner(f, (0.000157358314, 0.00134167797, 0.00961719733, 0.0555027537, 0.240226567, 0.693147242, 1))
    return div(x, add(1.0, times_power(p, t)))


def log(x):
    b = bits(x) + 0x004AFB0D
    n = float((b >> 23) - 127)
    f = sub(of_bits((b & 0x7FFFFF) + 0x3F3504F3), 1.0)
    p = horner(f, (0.0673199221, -0.116601132, 0.118863232, -0.124082781, 0.142202303, -0.166678518, 0.20002073,
                   -0.250000119, 0.333333135, -0.5))
    p = fma(n, const(1.42860677e-06), mul(p, mul(f, f)))
    h = mul(n, const(0.693145752))
    y = add(h, f)
    return add(y, add(sub(f, sub(y, h)), p))


def softmax(x):
    m = max(x)
    e = [exp(sub(v, m)) for v in x]
    r = div(1.0, fold16(e))
    return [mul(v, r) for v in e]


def layernorm(x, w, b, eps):
    n = float(len(x))
    mean = div(fold16(x), n)
    s = [0.0] * 16
    for j, v in enumerate(x):
        d = sub(v, mean)
        s[j % 16] = fma(d, d, s[j % 16])
    scale = sqrt(add(div(fold(s), n), eps))
    return [fma(div(sub(v, mean), scale), w[j], b[j]) for j, v in enumerate(x)]


def loss(x, i):
    m = max(x)
    return sub(log(fold16([exp(sub(v, m)) for v in x])), sub(x[i], m))


# Products. A column is a list of f32 weights, or of groups (scale, whole numbers).

def chain(a, w):
    result = None
    for k in range(0, len(a), 256):
        acc = 0.0
        for x, y in zip(a[k:k + 256], w[k:k + 256]):
            acc = fma(x, y, acc)
        result = acc if result is None else add(result, acc)
    return result


def quantized(a):
    """Groups of inputs: (scale, whole numbers)."""
    groups = []
    for k in range(0, len(a), 32):
        part = a[k:k + 32] + [0.0] * (32 - len(a[k:k + 32]))
        m = max(abs(v) for v in part)
        f = 0.0 if m < const(1e-30) else div(127.0, m)
        e = 0.0 if m < const(1e-30) else of_bits(bits(div(m, 127.0)) & ~3)
        groups.append((e, [round(v * f) for v in part]))  # the product is exact, and ties go to even
    return groups


def q_chain(a, column):
    result = None
    for g in range(0, len(a), 8):
        acc = 0.0
        for (e, i), (d, q) in zip(a[g:g + 8], column[g:g + 8]):
            s = sum(x * y for x, y in zip(i, q))
            acc = fma(mul(float(s), e), d, acc)
        result = acc if result is None else add(result, acc)
    return result


def matmul(a, columns, bias=None):
    if isinstance(columns[0][0], tuple):
        groups = quantized(a)
        out = [q_chain(groups, c) for c in columns]
    else:
        out = [chain(a, c) for c in columns]
    return [add(r, b) for r, b in zip(out, bias)] if bias else out


# A model from a .attn file, whose format the manual of attn.h describes.

class Model:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        head = struct.unpack_from("<6I", self.data, 24)
        self.n_vocab, self.n_ctx, self.width, self.n_head, self.n_layer, self.d_mlp = head
        self.eps = struct.unpack_from("<f", self.data, 48)[0]
        flags, = struct.unpack_from("<I", self.data, 52)
        n_tensors, act = struct.unpack_from("<2I", self.data, 64)
        table, = struct.unpack_from("<Q", self.data, 72)
        if act or flags & 6:
            sys.exit("contract.py: this version of the contract is for GPT-2's own settings")
        self.entries = {}
        for at in range(table, table + 128 * n_tensors, 128):
            name = self.data[at:at + 64].rstrip(b"\0").decode()
            dtype, layout, ndim = struct.unpack_from("<3I", self.data, at + 64)
            d0, d1, offset = struct.unpack_from("<3Q", self.data, at + 80)
            self.entries[name] = (dtype, layout, [d0, d1][:ndim], offset)
        self.kept = {}

    def floats(self, offset, n):
        return list(struct.unpack_from("<%df" % n, self.data, offset))

    def vector(self, name):
        if name not in self.kept:
            dtype, layout, shape, offset = self.entries[name]
            self.kept[name] = self.floats(offset, shape[0])
        return self.kept[name]

    def columns(self, name):
        if name not in self.kept:
            dtype, _, (n_in, n_out), offset = self.entries[name]
            read = {0: self.f32_column, 1: self.f16_column, 3: self.q8_column, 4: self.q4_column}[dtype]
            self.kept[name] = [read(offset, n_in, n) for n in range(n_out)]
        return self.kept[name]

    def f32_column(self, offset, n_in, n):
        return [struct.unpack_from("<f", self.data, offset + 4 * ((n // 16 * n_in + k) * 16 + n % 16))[0]
                for k in range(n_in)]

    def f16_column(self, offset, n_in, n):
        even = (n_in + 1) // 2 * 2
        # a line is 16 outputs times 2 consecutive k, "the 16 outputs of the first k first"
        return [struct.unpack_from("<e", self.data, offset + 2 * ((n // 16 * even + k) * 16 + n % 16))[0]
                for k in range(n_in)]

    def groups(self, offset, n_in, n, per_line, numbers):
        lines = 1 + 64 // per_line
        blocks = (n_in + 63) // 64
        column = []
        for block in range(blocks):
            start = offset + 64 * lines * (n // 16 * blocks + block)
            q = []
            for line in range(64 // per_line):
                q += numbers(self.data[start + 64 * (line + 1) + 4 * (n % 16):][:4])
            for half in range(2):
                if block * 64 + half * 32 < n_in:
                    scale = struct.unpack_from("<e", self.data, start + 2 * (16 * half + n % 16))[0]
                    column.append((scale, q[32 * half:32 * half + 32]))
        return column

    def q8_column(self, offset, n_in, n):
        return self.groups(offset, n_in, n, 4, lambda b: [v - 128 for v in b])

    def q4_column(self, offset, n_in, n):
        return self.groups(offset, n_in, n, 8, lambda b: [(v & 15) - 8 for v in b] + [(v >> 4) - 8 for v in b])

    def embedding(self, token):
        column = self.columns("embed.W_E")[token]
        if isinstance(column[0], tuple):
            return [d * q for d, numbers in column for q in numbers][:self.width]
        return column

    def logits(self, tokens):
        """One list for each position."""
        caches = [([], []) for _ in range(self.n_layer)]
        return [self.step(t, p, caches) for p, t in enumerate(tokens)]

    def step(self, token, position, caches):
        width = self.width
        where = self.floats(self.entries["pos_embed.W_pos"][3] + 4 * width * position, width)
        resid = [add(a, b) for a, b in zip(self.embedding(token), where)]
        for i, (keys, values) in enumerate(caches):
            block = "blocks.%d." % i
            a = layernorm(resid, self.vector(block + "ln1.w"), self.vector(block + "ln1.b"), self.eps)
            qkv = matmul(a, self.columns(block + "attn.W_QKV"), self.vector(block + "attn.b_QKV"))
            keys.append(qkv[width:2 * width])
            values.append(qkv[2 * width:])
            z = self.attend(qkv[:width], keys, values)
            out = matmul(z, self.columns(block + "attn.W_O"), self.vector(block + "attn.b_O"))
            resid = [add(x, y) for x, y in zip(resid, out)]
            a = layernorm(resid, self.vector(block + "ln2.w"), self.vector(block + "ln2.b"), self.eps)
            pre = matmul(a, self.columns(block + "mlp.W_in"), self.vector(block + "mlp.b_in"))
            out = matmul([gelu(x) for x in pre], self.columns(block + "mlp.W_out"), self.vector(block + "mlp.b_out"))
            resid = [add(x, y) for x, y in zip(resid, out)]
        a = layernorm(resid, self.vector("ln_final.w"), self.vector("ln_final.b"), self.eps)
        bias = self.vector("unembed.b_U") if "unembed.b_U" in self.entries else None
        return matmul(a, self.columns("unembed.W_U" if "unembed.W_U" in self.entries else "embed.W_E"), bias)

    def attend(self, q, keys, values):
        d = self.width // self.n_head
        g = div(1.0, sqrt(float(d)))
        z = []
        for at in range(0, self.width, d):
            pattern = softmax([mul(chain(q[at:at + d], k[at:at + d]), g) for k in keys])
            z += [chain(pattern, [v[at + j] for v in values]) for j in range(d)]
        return z


# The sampler

class Twister:
    def __init__(self, seed):
        if seed < 1 << 32:
            self.fill(seed)
        else:
            self.mix([seed & 0xFFFFFFFF, seed >> 32])
        self.next = 624

    def fill(self, seed):
        self.state = [seed]
        for i in range(1, 624):
            before = self.state[-1]
            self.state.append((1812433253 * (before ^ before >> 30) + i) & 0xFFFFFFFF)

    def mix(self, key):
        self.fill(19650218)
        s, i, j = self.state, 1, 0
        for _ in range(624):
            s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1664525) + key[j] + j & 0xFFFFFFFF
            i, j = i + 1, (j + 1) % 2
            if i == 624:
                s[0], i = s[623], 1
        for _ in range(623):
            s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1566083941) - i & 0xFFFFFFFF
            i += 1
            if i == 624:
                s[0], i = s[623], 1
        s[0] = 0x80000000

    def u32(self):
        s = self.state
        if self.next == 624:
            for i in range(624):
                y = (s[i] & 0x80000000) | (s[(i + 1) % 624] & 0x7FFFFFFF)
                s[i] = s[(i + 397) % 624] ^ y >> 1 ^ (0x9908B0DF if y & 1 else 0)
            self.next = 0
        y = s[self.next]
        self.next += 1
        y ^= y >> 11
        y ^= y << 7 & 0x9D2C5680
        y ^= y << 15 & 0xEFC60000
        return y ^ y >> 18


def heap_order(logits):
    """The candidates where nothing is sorted."""
    heap = list(range(len(logits)))

    def key(v):
        return (-logits[v], v)
    for first in range(len(heap) // 2 - 1, -1, -1):
        i = first
        while 2 * i + 1 < len(heap):
            child = min(range(2 * i + 1, min(2 * i + 3, len(heap))), key=lambda c: key(heap[c]))
            if key(heap[i]) < key(heap[child]):
                break
            heap[i], heap[child] = heap[child], heap[i]
            i = child
    return heap[::-1]


def kept(s, logits, w):
    order = sorted(range(len(w)), key=lambda v: (-logits[v], v))
    top_p, min_p = const(s["top_p"]), const(s["min_p"])
    by_k = 0 < s["top_k"] < len(w)
    if by_k:
        order = order[:s["top_k"]]
    if 0 < top_p < 1:
        total, n, running = 0.0, 0, 0.0
        for v in order if by_k else range(len(w)):
            total += w[v]
        while n < len(order) and running < top_p * total:
            running += w[order[n]]
            n += 1
        order = order[:n]
    elif not by_k and not min_p > 0:
        return heap_order(logits)
    while len(order) > 1 and w[order[-1]] < min_p:
        order.pop()
    return order


def draw(s, twister, logits, seen):
    x = list(logits)
    penalty = const(s["repeat_penalty"])
    if penalty not in (0, 1):
        for t in set(seen[-s["repeat_last"]:] if s["repeat_last"] else seen):
            x[t] = div(logits[t], penalty) if logits[t] > 0 else mul(logits[t], penalty)
    m = max(x)
    if s["temperature"] == 0:
        return x.index(m)
    w = [exp(div(sub(v, m), const(s["temperature"]))) for v in x]
    order = kept(s, x, w)
    total, running = 0.0, 0.0
    for v in order:
        total += w[v]
    a, b = twister.u32(), twister.u32()
    target = ((a >> 5) * 67108864.0 + (b >> 6)) / 9007199254740992.0 * total
    for v in order:
        running += w[v]
        if running > target:
            break
    return v


# Vectors

class Numbers:
    """The same numbers for everybody."""

    def __init__(self, seed):
        self.seed = seed

    def some(self, n, scale):
        out = []
        for _ in range(n):
            self.seed = (self.seed * 1664525 + 1013904223) & 0xFFFFFFFF
            out.append(const(((self.seed >> 8) / 16777216 - 0.5) * scale))
        return out

    def whole(self, n, least, most):
        return [int(least + (v + 0.5) * (most + 1 - least)) if v < 0.5 else most for v in self.some(n, 1)]


def shown(x):
    return ["%08x" % bits(v) for v in x]


def halves(x):
    return [struct.unpack("<e", struct.pack("<e", v))[0] for v in x]


def make_vectors():
    out = {"contract": 1, "note": "made by contract.py; each number is the bits of an f32 in hexadecimal"}
    r = Numbers(1)
    edges = [0.0, -0.0, 1.0, -1.0, 88.0, -87.0, -88.0, -104.0, 1e-40, 30.0, -10.0, -10.5, 9.9, 5.0]
    x = [const(v) for v in edges] + r.some(30, 20) + r.some(20, 2)
    positive = [abs(v) + const(1e-6) for v in r.some(30, 300)]
    out["exp"] = {"x": shown(x), "out": shown([exp(v) for v in x])}
    out["gelu"] = {"x": shown(x), "out": shown([gelu(v) for v in x])}
    positive = [const(v) for v in positive]
    out["log"] = {"x": shown(positive), "out": shown([log(v) for v in positive])}
    row = r.some(37, 12)
    out["softmax"] = {"x": shown(row), "out": shown(softmax(row))}
    row, w, b = r.some(67, 4), r.some(67, 2), r.some(67, 1)
    out["layernorm"] = {"x": shown(row), "w": shown(w), "b": shown(b), "eps": shown([const(1e-5)]),
                        "out": shown(layernorm(row, w, b, const(1e-5)))}
    a, bias = r.some(300, 4), r.some(3, 1)
    columns = [r.some(300, 1) for _ in range(3)]
    out["matmul_f32"] = {"x": shown(a), "columns": [shown(c) for c in columns], "bias": shown(bias),
                         "out": shown(matmul(a, columns, bias))}
    columns = [halves(c) for c in columns]
    out["matmul_f16"] = {"x": shown(a), "columns": [shown(c) for c in columns], "bias": shown(bias),
                         "out": shown(matmul(a, columns, bias))}
    for name, least, most in (("q8", -127, 127), ("q4", -8, 7)):
        columns = []
        for _ in range(3):
            scales = halves([abs(v) + 0.01 for v in r.some(10, 0.1)])
            columns.append([(d, r.whole(32 if g < 9 else 12, least, most)) for g, d in enumerate(scales)])
        out["matmul_" + name] = {"x": shown(a), "bias": shown(bias), "columns": [
            {"scales": shown([d for d, q in c]), "numbers": [v for d, q in c for v in q]} for c in columns],
            "out": shown(matmul(a, columns, bias))}
    out["attention"] = attention_vector(r)
    logits = r.some(97, 8)
    out["loss"] = {"logits": shown(logits), "id": 5, "out": shown([loss(logits, 5)])}
    out["sampler"] = sampler_vectors(logits)
    return out


def attention_vector(r):
    d, n = 8, 5
    q, k, v = ([r.some(d, 3) for _ in range(n)] for _ in range(3))
    g = div(1.0, sqrt(float(d)))
    z = []
    for p in range(n):
        pattern = softmax([mul(chain(q[p], key), g) for key in k[:p + 1]])
        z += [chain(pattern, [value[j] for value in v[:p + 1]]) for j in range(d)]
    flat = [[x for row in m for x in row] for m in (q, k, v)]
    return {"d": d, "n": n, "q": shown(flat[0]), "k": shown(flat[1]), "v": shown(flat[2]), "out": shown(z)}


def sampler_vectors(logits):
    plain = {"temperature": 0.8, "top_k": 0, "top_p": 0, "min_p": 0, "repeat_penalty": 0, "repeat_last": 0,
             "seed": "7"}
    tries = [{}, {"top_k": 20}, {"top_p": 0.9}, {"min_p": 0.05}, {"top_k": 30, "top_p": 0.8, "min_p": 0.02},
             {"repeat_penalty": 1.3}, {"repeat_penalty": 1.3, "repeat_last": 3}, {"temperature": 0},
             {"seed": "12345678901234567890"}]
    out = []
    for change in tries:
        s = dict(plain, **change)
        twister, seen = Twister(int(s["seed"])), [3, 5, 8, 13]
        for _ in range(12):
            seen.append(draw(s, twister, logits, seen))
        out.append(dict(s, seen=seen[:4], drawn=seen[4:]))
    return {"logits": shown(logits), "tries": out}


def main(argv):
    if argv[1:] == ["vectors"]:
        print(json.dumps(make_vectors()).replace('}, "', '},\n"'))
    elif argv[1:2] == ["logits"] and len(argv) > 3:
        for row in Model(argv[2]).logits([int(v) for v in argv[3:]]):
            print(" ".join(shown(row)))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv)
