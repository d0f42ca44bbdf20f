#!/usr/bin/env python3
"""The arithmetic contract, version 1, in plain Python, written from contract.md and the description of .attn files.

Every f32 is held as its 32 bits together with the whole numbers these stand for, and every operation is
worked out exactly before it is rounded, so that nothing here depends on the floating point of the machine.
The one exception is binary64 in the sampler, which is Python's own float: each of its operations rounds once.

    contract.py logits [--f16-cache] MODEL.attn ID...   the bits of the logits, a line for each position
    contract.py check VECTORS.json                      compares the results in the file with those worked out here

Exit status: 0, 1 where results differ, or 2 after a message. Logits take some microseconds for each multiply-add.
"""

import json
import struct
import sys
from collections import namedtuple
from fractions import Fraction
from math import isqrt


class Refused(Exception):
    """What the contract does not cover; its text is one sentence."""


# ---------------------------------------------------------------------------------------------- Numbers

# A binary format: how many binary digits a significand has, the power of two of the lowest of them in the
# smallest numbers, and the bits of infinity.
Format = namedtuple("Format", "digits lowest infinity sign")
BINARY32 = Format(24, -149, 0x7F800000, 0x80000000)
BINARY16 = Format(11, -24, 0x7C00, 0x8000)


def half_even(number, drop):
    """The whole number nearest to number / 2^drop, ties to even."""
    if drop <= 0:
        return number << -drop
    quotient = number >> drop
    rest = number - (quotient << drop)
    half = 1 << (drop - 1)
    return quotient + (rest > half or (rest == half and quotient & 1))


def nearest_bits(number, power, negative_zero, form):
    """The bits of number * 2^power, rounded to a format; an exact zero has no sign, so it is told one."""
    if number == 0:
        return form.sign if negative_zero else 0
    size = abs(number)
    drop = max(size.bit_length() - form.digits, form.lowest - power)
    significand = half_even(size, drop)
    # The leading digit of a normal number is added into the exponent field: a denormal, which has none,
    # and a significand rounded up to the next power of two come out right by themselves.
    bits = ((power + drop - form.lowest) << (form.digits - 1)) + significand
    return min(bits, form.infinity) | (form.sign if number < 0 else 0)


def parts(bits, form):
    """(number, power), whose product number * 2^power is the value; the power of an infinity is None."""
    width = form.digits - 1
    field = (bits & ~form.sign) >> width
    number = bits & ((1 << width) - 1)
    power = form.lowest
    if field == form.infinity >> width:
        if number:
            raise Refused("A NaN is outside of version 1 of the contract.")
        number, power = 1, None
    elif field > 0:
        number |= 1 << width
        power += field - 1
    return (-number if bits & form.sign else number), power


class F32:
    """A binary32 number: its bits, and the value number * 2^power (infinite where power is None)."""
    __slots__ = ("bits", "number", "power")

    def __init__(self, bits):
        self.bits = bits
        self.number, self.power = parts(bits, BINARY32)

    def negative(self):
        return self.bits >> 31 == 1

    def order(self):
        """A whole number that sorts as the value does; both zeros have the same."""
        return -(self.bits & 0x7FFFFFFF) if self.bits >> 31 else self.bits

    def __float__(self):
        """The same value in binary64, which has room for all of binary32."""
        return struct.unpack("<f", struct.pack("<I", self.bits))[0]

    def __neg__(self):
        return F32(self.bits ^ 0x80000000)

    def __abs__(self):
        return F32(self.bits & 0x7FFFFFFF)

    def __lt__(self, other):
        return self.order() < other.order()

    def __gt__(self, other):
        return self.order() > other.order()

    def __ge__(self, other):
        return self.order() >= other.order()

    def __add__(self, other):
        return fma(self, ONE, other)            # the product by one is exact and keeps the sign

    def __sub__(self, other):
        return self + -other

    def __mul__(self, other):
        if infinite(self, other):
            return from_float(float(self) * float(other))
        sign = self.negative() != other.negative()
        return rounded(self.number * other.number, self.power + other.power, sign)

    def __truediv__(self, other):
        sign = self.negative() != other.negative()
        if other.number == 0:
            return from_float(divided_by_zero(self, sign))
        if infinite(self, other):
            return from_float(float(self) / float(other))
        number, power = quotient(self.number, other.number)
        return rounded(number, power + self.power - other.power, sign)


def infinite(*numbers):
    return any(number.power is None for number in numbers)


def rounded(number, power, negative_zero=False):
    return F32(nearest_bits(number, power, negative_zero, BINARY32))


def from_float(value):
    """The f32 of a Python float that is infinite, zero or otherwise exact in binary32."""
    if value != value:
        raise Refused("A NaN arose, and NaN are outside of version 1 of the contract.")
    return F32(struct.unpack("<I", struct.pack("<f", value))[0])


def divided_by_zero(a, sign):
    if a.number == 0:
        return float("nan")
    return float("-inf") if sign else float("inf")


def quotient(a, b):
    """(number, power) near a / b, to be rounded later to no more than 60 binary digits.

    The number has more digits than that. A remainder sets its lowest one, below all that can be kept: this
    shows on which side of a tie the true quotient lies.
    """
    shift = max(0, b.bit_length() - a.bit_length() + 64)
    whole, rest = divmod(abs(a) << shift, abs(b))
    size = 2 * whole + (rest != 0)
    return (size if (a < 0) == (b < 0) else -size), -shift - 1


def fma(a, b, c):
    """a * b + c, rounded once."""
    if infinite(a, b, c):
        # With an infinity among them the result is infinite, and no rounding takes part in it.
        return from_float(float(a) * float(b) + float(c))
    number, power = a.number * b.number, a.power + b.power
    shift = c.power - power
    if shift >= 0:
        number += c.number << shift
    else:
        number = (number << -shift) + c.number
        power = c.power
    # A sum of exactly zero is +0, unless both of its terms have a minus sign.
    negative_zero = number == 0 and c.negative() and a.negative() != b.negative()
    return rounded(number, power, negative_zero)


def sqrt(a):
    if a.number == 0 or a.power is None and a.number > 0:
        return a
    if a.number < 0:
        raise Refused("The root of a negative number is a NaN, which version 1 does not cover.")
    shift = 64 + a.power % 2                    # leaves an even power, and more digits than are kept
    square = a.number << shift
    root = isqrt(square)
    return rounded(2 * root + (root * root != square), (a.power - shift) // 2 - 1)


def constant(text):
    """The f32 nearest to a decimal number."""
    exact = Fraction(text)
    return rounded(*quotient(exact.numerator, exact.denominator)) if exact else ZERO


def whole(number):
    """A whole number as an f32."""
    return rounded(number, 0)


def constants(text):
    return [constant(word) for word in text.split()]


def widened(half):
    """The f32 with the value of the f16 of these bits."""
    number, power = parts(half, BINARY16)
    if power is None:
        return from_float(float("inf") * number)
    return rounded(number, power, half & BINARY16.sign)


def through_f16(a):
    """a rounded to f16 and widened again, as in a cache of halves."""
    return widened(nearest_bits(a.number, a.power, a.negative(), BINARY16))


def largest(x):
    return max(x, key=F32.order)


ZERO = F32(0)
ONE = F32(0x3F800000)
INFINITY = F32(BINARY32.infinity)


def fold16(x, take=lambda partial, element: partial + element):
    s = [ZERO] * 16
    for j, element in enumerate(x):
        s[j % 16] = take(s[j % 16], element)
    for h in (8, 4, 2, 1):
        for i in range(h):
            s[i] = s[i] + s[i + h]
    return s[0]


def run_chain(steps):
    """One chain from 0, where each step (a, w) adds a * w."""
    acc = ZERO
    for a, w in steps:
        acc = fma(a, w, acc)
    return acc


def added_in_order(chains):
    r = chains[0]
    for acc in chains[1:]:
        r = r + acc
    return r


def pieces(items, size):
    return [items[start:start + size] for start in range(0, len(items), size)]


def chain(a, w):
    return added_in_order([run_chain(run) for run in pieces(list(zip(a, w)), 256)])


def matmul(a, columns):
    """An output for each column; a column is a list of f32 or one of quantised weights."""
    if isinstance(columns[0], Quantised):
        groups = quantised_inputs(a)
        return [quantised_chain(groups, column) for column in columns]
    return [chain(a, column) for column in columns]


def plus(a, b):
    """Two rows added, element by element."""
    return [x + y for x, y in zip(a, b)]


# ------------------------------------------------------------------------------------- Quantised weights

Quantised = namedtuple("Quantised", "d q")      # a column: the scales of its groups, the numbers of each k

GROUP = 32
TINY = constant("1e-30")
HIGHEST_INPUT = rounded(1, 100)
Q127 = whole(127)


def quantised_inputs(a):
    """(i, e) of each group of 32 inputs. The padding of a shorter one adds nothing, so it is left out."""
    return [quantised_group(group) for group in pieces(a, GROUP)]


def quantised_group(a):
    m = largest([abs(x) for x in a])
    if m > HIGHEST_INPUT:
        raise Refused("Inputs above 2^100 of a quantised matrix are outside of version 1 of the contract.")
    f = ZERO if m < TINY else Q127 / m
    e = ZERO if m < TINY else without_two_bits(m / Q127)
    return [half_even(x.number * f.number, -(x.power + f.power)) for x in a], e


def without_two_bits(x):
    return F32(x.bits & 0xFFFFFFFC)


def quantised_chain(groups, column):
    steps = []
    for (i, e), q, d in zip(groups, pieces(column.q, GROUP), column.d):
        s = sum(x * y for x, y in zip(i, q))
        steps.append((whole(s) * e, d))
    return added_in_order([run_chain(run) for run in pieces(steps, 256 // GROUP)])


def weights(column):
    """The weights of a column by themselves, as the embedding needs them."""
    if not isinstance(column, Quantised):
        return column
    return [column.d[k // GROUP] * whole(q) for k, q in enumerate(column.q)]


# --------------------------------------------------------------------------------------------- Functions

def polynomial(x, c):
    p = c[0]
    for next_c in c[1:]:
        p = fma(p, x, next_c)
    return p


def scaled(p, t):
    """p times the power of two in the lowest digits of t, which go to the exponent field of p."""
    return F32((p.bits + (t.bits << 23)) & 0xFFFFFFFF)


M = whole(12582912)                             # 1.5 * 2^23: adding it rounds to a whole number

EXP_LOWEST = constant("-87.3365402")
EXP_HIGHEST = constant("88.7228394")
LOG2_E = constant("1.44269502")
MINUS_LN2_HIGH = constant("-0.693145752")
MINUS_LN2_LOW = constant("-1.42860677e-06")
EXP_C = constants("0.00138213579 0.00836867001 0.0416682586 0.166665211 0.49999994 1 1")


def exp(x):
    if x < EXP_LOWEST:
        return ZERO
    if x >= EXP_HIGHEST:
        return INFINITY
    t = fma(x, LOG2_E, M)
    n = t - M
    r = fma(n, MINUS_LN2_HIGH, x)
    r = fma(n, MINUS_LN2_LOW, r)
    p = polynomial(r, EXP_C)
    return scaled(p, t)


GELU_LOWEST = whole(-10)
GELU_CUBE = constant("0.044715")
GELU_U = whole(30)
GELU_SLOPE = constant("-2.30220819")
GELU_C = constants("0.000157358314 0.00134167797 0.00961719733 0.0555027537 0.240226567 0.693147242 1")


def gelu(x):
    if x < GELU_LOWEST:
        return -ZERO
    u = fma(x * x, x * GELU_CUBE, x)
    if u > GELU_U:
        u = GELU_U
    t = fma(u, GELU_SLOPE, M)
    f = fma(u, GELU_SLOPE, M - t)
    p = polynomial(f, GELU_C)
    e = scaled(p, t)
    return x / (ONE + e)


LOG_C = constants("0.0673199221 -0.116601132 0.118863232 -0.124082781 0.142202303 -0.166678518 0.20002073"
                  " -0.250000119 0.333333135 -0.5")
LN2_HIGH = constant("0.693145752")
LN2_LOW = constant("1.42860677e-06")


def log(x):
    b = (x.bits + 0x004AFB0D) & 0xFFFFFFFF
    n = whole((b >> 23) - 127)
    f = F32((b & 0x7FFFFF) + 0x3F3504F3) - ONE
    q = f * f
    p = polynomial(f, LOG_C)
    p = fma(n, LN2_LOW, p * q)
    h = n * LN2_HIGH
    y = h + f
    return y + ((f - (y - h)) + p)


def softmax(x):
    m = largest(x)
    e = [exp(y - m) for y in x]
    share = ONE / fold16(e)
    return [y * share for y in e]


def layer_norm(x, w, b, eps):
    n = whole(len(x))
    mean = fold16(x) / n
    v = fold16([y - mean for y in x], lambda partial, d: fma(d, d, partial))
    scale = sqrt(v / n + eps)
    return [fma((x[j] - mean) / scale, w[j], b[j]) for j in range(len(x))]


# --------------------------------------------------------------------------------------------- The model

def attention_head(q, keys, values):
    """z of one head at one position, from its query and the keys and values of all positions so far."""
    g = ONE / sqrt(whole(len(q)))
    score = [chain(q, k) * g for k in keys]
    pattern = softmax(score)
    return matmul(pattern, list(zip(*values)))  # column i of the values: element i of each position


def attention(model, layer, a, cache, half_cache):
    """z of all heads side by side; cache holds (k, v) of the earlier positions and takes this one's."""
    C = model.d_model
    qkv = plus(matmul(a, layer.W_QKV), layer.b_QKV)
    q, k, v = qkv[:C], qkv[C:2 * C], qkv[2 * C:]
    if half_cache:                              # this position too reads its own key and value from there
        k, v = [through_f16(x) for x in k], [through_f16(x) for x in v]
    cache.append((k, v))
    z = []
    for head in pieces(range(C), C // model.n_head):
        part = slice(head[0], head[-1] + 1)
        z += attention_head(q[part], [k[part] for k, v in cache], [v[part] for k, v in cache])
    return z


def block(model, layer, resid, cache, half_cache):
    """The residual stream of one position after a layer."""
    a = layer_norm(resid, layer.ln1_w, layer.ln1_b, model.eps)
    z = attention(model, layer, a, cache, half_cache)
    resid = plus(resid, plus(matmul(z, layer.W_O), layer.b_O))
    a = layer_norm(resid, layer.ln2_w, layer.ln2_b, model.eps)
    hidden = [gelu(x) for x in plus(matmul(a, layer.W_in), layer.b_in)]
    return plus(resid, plus(matmul(hidden, layer.W_out), layer.b_out))


def position_logits(model, t, p, caches, half_cache):
    """The logits after token id t at position p; caches has the keys and values of each layer."""
    resid = plus(weights(model.W_E[t]), model.W_pos[p])
    for layer, cache in zip(model.layers, caches):
        resid = block(model, layer, resid, cache, half_cache)
    logits = matmul(layer_norm(resid, model.ln_final_w, model.ln_final_b, model.eps), model.W_U)
    return plus(logits, model.b_U) if model.b_U else logits


def model_logits(model, ids, half_cache=False):
    """The logits of each position, one after the other; half_cache keeps keys and values as f16."""
    if len(ids) > model.n_ctx:
        raise Refused(f"The model has {model.n_ctx} positions, fewer than the {len(ids)} ids.")
    caches = [[] for _ in model.layers]
    for p, t in enumerate(ids):
        if not 0 <= t < model.n_vocab:
            raise Refused(f"The model has no token {t}.")
        yield position_logits(model, t, p, caches, half_cache)


def loss(x, i):
    m = largest(x)
    return log(fold16([exp(y - m) for y in x])) - (x[i] - m)


# ------------------------------------------------------------------------------------------- The sampler

WORD = 0xFFFFFFFF


class MT19937:
    """The Mersenne twister of Matsumoto and Nishimura, with their two ways of seeding."""
    N, SHIFT = 624, 397

    def __init__(self, seed):
        if seed <= WORD:
            self.init_genrand(seed)
        else:
            self.init_by_array([seed & WORD, seed >> 32])

    def init_genrand(self, seed):
        self.state = [seed]
        for i in range(1, self.N):
            self.state.append((1812433253 * self.mixed(i - 1) + i) & WORD)
        self.next = self.N

    def mixed(self, i):
        return self.state[i] ^ self.state[i] >> 30

    def init_by_array(self, key):
        self.init_genrand(19650218)
        i, j = 1, 0
        for _ in range(max(self.N, len(key))):
            self.state[i] = ((self.state[i] ^ self.mixed(i - 1) * 1664525) + key[j] + j) & WORD
            i, j = self.following(i), (j + 1) % len(key)
        for _ in range(self.N - 1):
            self.state[i] = ((self.state[i] ^ self.mixed(i - 1) * 1566083941) - i) & WORD
            i = self.following(i)
        self.state[0] = 0x80000000

    def following(self, i):
        """The next place to seed. At the end it is 1 again, with the last word carried over to place 0."""
        if i < self.N - 1:
            return i + 1
        self.state[0] = self.state[-1]
        return 1

    def twist(self):
        state = self.state
        for i in range(self.N):
            y = state[i] & 0x80000000 | state[(i + 1) % self.N] & 0x7FFFFFFF
            state[i] = state[(i + self.SHIFT) % self.N] ^ y >> 1 ^ (0x9908B0DF if y & 1 else 0)
        self.next = 0

    def number(self):
        """The next 32 bits."""
        if self.next == self.N:
            self.twist()
        y = self.state[self.next]
        self.next += 1
        y ^= y >> 11
        y ^= y << 7 & 0x9D2C5680
        y ^= y << 15 & 0xEFC60000
        return y ^ y >> 18


def of_setting(value):
    """A setting as f32: of a decimal number, the f32 nearest to it."""
    return constant(str(value))


def greedy(x):
    return x.index(largest(x))


def sample(logits, seen, settings, generator):
    """The token drawn after these logits, where seen has all tokens so far."""
    x = repetition(logits, seen, settings)
    temperature = of_setting(settings["temperature"])
    if temperature.number == 0:
        return greedy(x)
    m = largest(x)
    w = [exp((y - m) / temperature) for y in x]
    return pick(kept_candidates(x, w, settings), w, generator)


def repetition(logits, seen, settings):
    penalty = of_setting(settings["repeat_penalty"])
    x = list(logits)
    if penalty.number == 0:                     # none is asked for; with 1 nothing changes
        return x
    for token in set(seen[-settings["repeat_last"]:]):      # the slice [-0:] has all
        x[token] = x[token] / penalty if x[token] > ZERO else x[token] * penalty
    return x


def likeliness(x):
    """The key by which a likelier candidate comes earlier."""
    return lambda j: (-x[j].order(), j)


def kept_candidates(x, w, settings):
    top_k, top_p, min_p = settings["top_k"], of_setting(settings["top_p"]), of_setting(settings["min_p"])
    by_k, by_p, by_min = 0 < top_k < len(x), ZERO < top_p and top_p < ONE, min_p > ZERO
    if not (by_k or by_p or by_min):
        return unsorted_order(x)
    candidates = sorted(range(len(x)), key=likeliness(x))
    if by_k:
        candidates = candidates[:top_k]
    if by_p:
        total = sum_in_order(w, candidates if by_k else range(len(x)))
        candidates = shortest_beginning(candidates, w, float(top_p) * total)
        return without_unlikely_end(candidates, w, min_p)
    return before_the_unlikely(candidates, w, min_p)


def before_the_unlikely(candidates, w, min_p):
    """Those before the first, other than the very first, whose weight is less than min_p."""
    for count, j in enumerate(candidates):
        if count > 0 and w[j] < min_p:
            return candidates[:count]
    return candidates


def without_unlikely_end(candidates, w, min_p):
    count = len(candidates)
    while count > 1 and w[candidates[count - 1]] < min_p:
        count -= 1
    return candidates[:count]


def sum_in_order(w, candidates):
    total = 0.0
    for j in candidates:                        # not sum(), which newer Pythons make more exact
        total += float(w[j])
    return total


def shortest_beginning(candidates, w, enough):
    running = 0.0
    for count, j in enumerate(candidates, 1):
        running += float(w[j])
        if running >= enough:
            return candidates[:count]
    return candidates


def unsorted_order(x):
    """All ids as a heap whose top is the likeliest, read from its end."""
    array, key = list(range(len(x))), likeliness(x)
    for i in range(len(array) // 2 - 1, -1, -1):
        sink(array, i, key)
    return array[::-1]


def sink(array, i, key):
    while 2 * i + 1 < len(array):
        child = min((c for c in (2 * i + 1, 2 * i + 2) if c < len(array)), key=lambda c: key(array[c]))
        if key(array[child]) > key(array[i]):
            return
        array[i], array[child] = array[child], array[i]
        i = child


def pick(candidates, w, generator):
    a, b = generator.number(), generator.number()
    target = ((a >> 5) * 2 ** 26 + (b >> 6)) / 2 ** 53 * sum_in_order(w, candidates)
    running = 0.0
    for j in candidates:
        running += float(w[j])
        if running > target:
            return j
    return candidates[-1]


# ------------------------------------------------------------------------------------------- Model files

MAGIC = b"\x89ATTN\r\n\x1a"
TIED, HAS_B_U = 1 << 0, 1 << 3
Tensor = namedtuple("Tensor", "dtype layout dims data")
Layer = namedtuple("Layer", "ln1_w ln1_b W_QKV b_QKV W_O b_O ln2_w ln2_b W_in b_in W_out b_out")
Model = namedtuple("Model", "n_vocab n_ctx d_model n_head eps W_E W_pos layers ln_final_w ln_final_b W_U b_U")


def words(data):
    return struct.unpack(f"<{len(data) // 4}I", data)


def halves(data):
    return [widened(half) for half in struct.unpack(f"<{len(data) // 2}H", data)]


def read_tensors(data):
    """The entries of the tensor table by name."""
    count, (table,) = struct.unpack_from("<I", data, 64)[0], struct.unpack_from("<Q", data, 72)
    if table + 128 * count > len(data):
        raise Refused("The tensor table reaches beyond the end of the file.")
    tensors = {}
    for entry in range(table, table + 128 * count, 128):
        name = data[entry:entry + 64].rstrip(b"\0").decode()
        dtype, layout, _, _, K, N, offset, size = struct.unpack_from("<4I4Q", data, entry + 64)
        tensors[name] = Tensor(dtype, layout, (K, N), data[offset:offset + size])
    return tensors


def find(tensors, name, dims, layout):
    if name not in tensors:
        raise Refused(f"The file has no tensor {name}.")
    tensor = tensors[name]
    if tensor.dims != dims or tensor.layout != layout:
        raise Refused(f"The tensor {name} does not have the shape and layout of the format.")
    return tensor


def read_rows(tensors, name, rows, width):
    """Rows of f32; a vector is a single row of a file's first dimension."""
    tensor = find(tensors, name, (rows, width) if rows else (width, 1), 0)
    if tensor.dtype != 0 or len(tensor.data) != 4 * (rows or 1) * width:
        raise Refused(f"The tensor {name} is not made of {(rows or 1) * width} f32.")
    return pieces([F32(bits) for bits in words(tensor.data)], width)


def read_vector(tensors, name, length):
    return read_rows(tensors, name, 0, length)[0]


def read_matrix(tensors, name, K, N):
    """The columns of a matrix of K inputs and N outputs in panels."""
    tensor = find(tensors, name, (K, N), 1)
    readers = {0: f32_panel, 1: f16_panel, 3: q8_panel, 4: q4_panel}
    if tensor.dtype not in readers:
        raise Refused(f"The tensor {name} has the unknown type {tensor.dtype}.")
    panels = -(-N // 16)
    size = len(tensor.data) // panels
    if panels * size != len(tensor.data) or size != panel_size(tensor.dtype, K):
        raise Refused(f"The tensor {name} does not have the size of its dimensions.")
    columns = []
    for panel in pieces(tensor.data, size):
        columns += readers[tensor.dtype](panel, K)
    return columns[:N]                          # the last panel may be padded with columns of zeros


def panel_size(dtype, K):
    blocks = -(-K // 64)
    return 64 * {0: K, 1: -(-K // 2), 3: 17 * blocks, 4: 9 * blocks}[dtype]


def f32_panel(panel, K):
    numbers = [F32(bits) for bits in words(panel)]
    return [numbers[n::16][:K] for n in range(16)]


def f16_panel(panel, K):
    numbers = halves(panel)
    return [numbers[n::16][:K] for n in range(16)]


def q8_panel(panel, K):
    """Blocks of a line of scales and 16 lines, each of 4 k: all 4 of an output together."""
    def numbers(line, n):
        return [byte - 128 for byte in line[4 * n:4 * n + 4]]
    return quantised_panel(panel, K, 17, numbers)


def q4_panel(panel, K):
    """Blocks of a line of scales and 8 lines, each of 8 k: low halves of 4 bytes, then their high halves."""
    def numbers(line, n):
        four = line[4 * n:4 * n + 4]
        return [(byte & 15) - 8 for byte in four] + [(byte >> 4) - 8 for byte in four]
    return quantised_panel(panel, K, 9, numbers)


def quantised_panel(panel, K, lines_of_block, numbers):
    columns = [Quantised([], []) for _ in range(16)]
    for block in pieces(panel, 64 * lines_of_block):
        scales, *lines = pieces(block, 64)
        scales = halves(scales)
        for n, column in enumerate(columns):
            column.d.extend((scales[n], scales[16 + n]))
            for line in lines:
                column.q.extend(numbers(line, n))
    return [Quantised(column.d[:-(-K // GROUP)], column.q[:K]) for column in columns]


def read_layer(tensors, i, C, F):
    def vector(name, length):
        return read_vector(tensors, f"blocks.{i}.{name}", length)

    def matrix(name, K, N):
        return read_matrix(tensors, f"blocks.{i}.{name}", K, N)
    return Layer(
        ln1_w=vector("ln1.w", C), ln1_b=vector("ln1.b", C),
        W_QKV=matrix("attn.W_QKV", C, 3 * C), b_QKV=vector("attn.b_QKV", 3 * C),
        W_O=matrix("attn.W_O", C, C), b_O=vector("attn.b_O", C),
        ln2_w=vector("ln2.w", C), ln2_b=vector("ln2.b", C),
        W_in=matrix("mlp.W_in", C, F), b_in=vector("mlp.b_in", F),
        W_out=matrix("mlp.W_out", F, C), b_out=vector("mlp.b_out", C))


def read_model(data):
    if data[:8] != MAGIC or len(data) < 256:
        raise Refused("This is not a model file: it does not begin with the magic of .attn.")
    version, header, size, V, n_ctx, C, H, n_layer, F, eps, flags = struct.unpack_from("<IIQ8I", data, 8)
    activation, = struct.unpack_from("<I", data, 68)
    refuse_the_uncovered(version, header, flags, activation)
    if size != len(data):
        raise Refused(f"The file should have {size} bytes, not {len(data)}.")
    if H == 0 or C % H:
        raise Refused(f"The d_model {C} cannot be shared by {H} heads.")
    tensors = read_tensors(data)
    W_E = read_matrix(tensors, "embed.W_E", C, V)
    return Model(
        n_vocab=V, n_ctx=n_ctx, d_model=C, n_head=H, eps=F32(eps), W_E=W_E,
        W_pos=read_rows(tensors, "pos_embed.W_pos", n_ctx, C),
        layers=[read_layer(tensors, i, C, F) for i in range(n_layer)],
        ln_final_w=read_vector(tensors, "ln_final.w", C), ln_final_b=read_vector(tensors, "ln_final.b", C),
        W_U=W_E if flags & TIED else read_matrix(tensors, "unembed.W_U", C, V),
        b_U=read_vector(tensors, "unembed.b_U", V) if flags & HAS_B_U else None)


def refuse_the_uncovered(version, header, flags, activation):
    if version not in (1, 2, 3, 4) or header != 256:
        raise Refused(f"Version {version} of the file format is not known here.")
    if flags & ~(TIED | HAS_B_U):
        raise Refused(f"The contract covers only bits 0 and 3 of the flags, but this model has {flags:#x}.")
    if activation != 0:
        raise Refused(f"The contract covers only the gelu by tanh, not activation function {activation}.")


# ------------------------------------------------------------------------------------------ Test vectors

def numbers_of(array):
    """The f32 of a list of their bits, or those that a description of them makes."""
    if isinstance(array, dict):
        return made_numbers(array["seed"], array["count"], of_setting(array["scale"]))
    return [F32(int(text, 16)) for text in array]


def made_numbers(seed, count, scale):
    numbers = []
    for _ in range(count):
        seed = (seed * 1664525 + 1013904223) & 0xFFFFFFFF
        numbers.append(rounded((seed >> 8) - (1 << 23), -24) * scale)
    return numbers


def text_of(number):
    return f"{number.bits:08x}"


def texts_of(numbers):
    return [text_of(number) for number in numbers]


def column_of(column, kind):
    if kind in ("q8", "q4"):
        return Quantised(numbers_of(column["scales"]), column["numbers"])
    numbers = numbers_of(column)
    return [through_f16(x) for x in numbers] if kind == "f16" else numbers


def each(function):
    return lambda entry: [function(x) for x in numbers_of(entry["x"])]


def softmax_result(entry):
    return softmax(numbers_of(entry["x"]))


def layernorm_result(entry):
    x, w, b, eps = (numbers_of(entry[key]) for key in ("x", "w", "b", "eps"))
    return layer_norm(x, w, b, eps[0])


def matmul_result(entry):
    columns = [column_of(column, entry["type"]) for column in entry["columns"]]
    return plus(matmul(numbers_of(entry["x"]), columns), numbers_of(entry["bias"]))


def attention_result(entry):
    """One head, of which the last positions are asked for: as many as `out` has room for."""
    q, k, v = (pieces(numbers_of(entry[key]), entry["d"]) for key in "qkv")
    if entry["cache"] == "f16":
        k, v = ([[through_f16(x) for x in row] for row in rows] for rows in (k, v))
    z = []
    for p in range(len(q) - len(entry["out"]) // entry["d"], len(q)):
        z += attention_head(q[p], k[:p + 1], v[:p + 1])
    return z


def block_result(entry):
    C = entry["d_model"]
    vectors = {name: numbers_of(entry[name]) for name in Layer._fields}
    inputs = {"W_QKV": C, "W_O": C, "W_in": C, "W_out": len(vectors["b_in"])}
    layer = Layer(**{name: pieces(row, inputs[name]) if name in inputs else row for name, row in vectors.items()})
    model = BlockOnly(C, entry["n_head"], numbers_of(entry["eps"])[0])
    cache, out = [], []
    for resid in pieces(numbers_of(entry["x"]), C):
        out += block(model, layer, resid, cache, half_cache=False)
    return out


def loss_result(entry):
    return [loss(numbers_of(entry["x"]), entry["id"])]


def drawn(logits, settings, count):
    """Tokens drawn one after the other from the same logits; each counts as seen by those after it."""
    generator, seen = MT19937(int(settings["seed"])), list(settings["seen"])
    for _ in range(count):
        seen.append(sample(logits, seen, settings, generator))
    return seen[len(settings["seen"]):]


BlockOnly = namedtuple("BlockOnly", "d_model n_head eps")
RESULTS = {
    "exp": each(exp), "gelu": each(gelu), "log": each(log), "softmax": softmax_result,
    "layernorm": layernorm_result, "matmul": matmul_result, "attention": attention_result,
    "block": block_result, "loss": loss_result,
}


def results(entry):
    """(expected, got) of an entry; the results that it has already tell how many are asked for."""
    if entry["function"] == "sampler":
        return entry["drawn"], drawn(numbers_of(entry["x"]), entry, len(entry["drawn"]))
    if entry["function"] not in RESULTS:
        raise Refused(f"The function {entry['function']} of the vectors is not known here.")
    return entry["out"], texts_of(RESULTS[entry["function"]](entry))


# ------------------------------------------------------------------------------------------ Command line

def command_logits(*arguments):
    half_cache = arguments[0] == "--f16-cache"
    path, *ids = arguments[half_cache:]
    if not ids or not all(t.isdigit() for t in ids):
        raise Refused("Expected a model and ids, which are whole numbers that are not negative.")
    with open(path, "rb") as file:
        model = read_model(file.read())
    for logits in model_logits(model, [int(t) for t in ids], half_cache):
        print(*texts_of(logits), flush=True)
    return 0


def command_check(path):
    with open(path, encoding="utf-8") as file:
        vectors = json.load(file)
    if vectors.get("contract") != 1:
        raise Refused("These vectors are not of version 1 of the contract.")
    count = differ = 0
    for number, entry in enumerate(vectors["vectors"]):
        expected, got = results(entry)
        if len(expected) != len(got):
            raise Refused(f"Entry {number} has {len(expected)} results instead of {len(got)}.")
        for index, pair in enumerate(zip(expected, got)):
            count += 1
            if pair[0] != pair[1]:
                differ += 1
                print(f"entry {number}, {entry['function']}, result {index}:", *pair)
    print(f"{count} numbers, {differ} differ")
    return 1 if differ else 0


COMMANDS = {"logits": command_logits, "check": command_check}


def main(arguments):
    command = COMMANDS.get(arguments[0]) if arguments else None
    enough = len(arguments) > 2 if command is command_logits else len(arguments) == 2
    if command is None or not enough:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        return command(*arguments[1:])
    except (Refused, OSError, ValueError) as error:
        print(f"contract.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
