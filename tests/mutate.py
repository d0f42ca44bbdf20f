#!/usr/bin/env python3
"""Are errors noticed? `make mutate` calls this.

    python3 tests/mutate.py [--check] [--quick] [--only TEXT] [--from N] [--to N] [--every N]

Plants one error at a time in a private copy of the sources, builds, and runs the tests that should
notice: the suites named beside it first, then all of them. An error that no test notices survives,
and somebody has to look at it. At least BAR of 100 must be noticed.

The table is below. An error is an old text, which must stand exactly once in its file (or be given
with the number of the occurrence), and a new one. What cannot change any result has its reason
beside it (`equivalent`): it is planted all the same, and must survive. A text that is not found, or
a planted error that does not compile, is a mistake in the table, and ends in status 1 too. A test
program that crashes or hangs has noticed; so has one that asks for more memory than MEMORY or makes
a file larger than FILE.

--check only looks for the texts. --quick runs the suites named beside an error and no others.
--every N takes one in N, --only those whose file, old or new text contains TEXT."""
import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

TREE = "build/mutate"
BAR = 95
MEMORY = 12 << 30
FILE = 8 << 30

# Ways to build. Where no vector kernel changes, one instruction set is enough, and built in half the
# time; where no kernel matters at all, optimizing is not worth its time.
ALL_SETS = ("sets", "-O1")
ONE_SET = ("one", "-O1 -DATTN_NO_DISPATCH -march=native")
PLAIN = ("plain", "-O0 -DATTN_NO_DISPATCH -march=native")
# What only writes where it should not takes a sanitizer to be noticed; the gate has one.
CHECKED = ("checked", "-O1 -DATTN_NO_SIMD -fsanitize=address")

# The programs that suites run, besides the test program itself.
TOOLS = ["attn-convert", "attn-info", "attn-tokenize", "gpt2"]
NEEDS = {"kernels": TOOLS[:1], "format": TOOLS[:1], "model": TOOLS[:1], "hooks": TOOLS[:1],
         "lens": TOOLS[:1], "properties": TOOLS[:1], "corners": TOOLS[:1],
         "convert": TOOLS + ["lens"],
         "tools": TOOLS + ["hello", "lens", "bench"], "lens-tool": TOOLS + ["lens"],
         "bench": TOOLS + ["bench"], "mistakes": TOOLS + ["lens", "bench"]}
ALL_SUITES = ["tensors", "ops", "kernels", "tokenizer", "format", "model", "hooks", "sampling",
              "convert", "tools", "notebooks", "lens", "bench", "lens-tool", "properties", "fuzz",
              "corners", "faults", "fma", "load", "sizes", "mistakes"]

# --- the table ------------------------------------------------------------------------------------


class Error:
    """One error to plant."""

    def __init__(self, section, old, new, suites, occurrence, equivalent):
        self.file, self.way, usual = section
        self.old, self.new = old, new
        self.suites = (suites or usual).split()
        self.occurrence, self.equivalent = occurrence, equivalent

    def place(self, text):
        """Where the old text begins, or -1."""
        if self.occurrence == 0:
            return text.find(self.old) if text.count(self.old) == 1 else -1
        at = -1
        for _ in range(self.occurrence):
            at = text.find(self.old, at + 1)
            if at < 0:
                break
        return at

    def title(self, line):
        old, new = (" ".join(t.split()) for t in (self.old, self.new))
        return "%s:%d: %.60s -> %.40s" % (self.file, line, old, new or "(nothing)")


ERRORS = []
section = None


def within(file, way, suites):
    """The errors that follow are in this file, built this way, noticed by these suites."""
    global section
    section = file, way, suites


def plant(old, new, suites="", occurrence=0, equivalent=""):
    ERRORS.append(Error(section, old, new, suites, occurrence, equivalent))


def opening(text, at, opens, closes):
    """Where the bracket begins that `at` is in, or -1."""
    depth = 1
    while depth > 0 and at > 0:
        at -= 1
        depth += (text[at] == closes) - (text[at] == opens)
    return at if depth == 0 else -1


def condition_before(text, at):
    """Where the condition begins and ends ("if (" and ")" not among it) on which the statement at
    `at` depends, or None."""
    end = len(text[:at].rstrip())
    if text[:end].endswith("else"):
        return None
    if text[end - 1] != ")":
        end = len(text[:max(opening(text, at, "{", "}"), 0)].rstrip())
    if end == 0 or text[end - 1] != ")":
        return None
    start = opening(text, end - 1, "(", ")")
    return (start + 1, end - 1) if text[:start].endswith("if ") else None


def refusals(calls):
    """Every refusal of the section's file, `attn__fail(...)` and the like, taken away: what is refused
    there is let through. What stands in the table already is left out."""
    listed = {e.old for e in ERRORS if e.file == section[0]}
    with open(section[0], encoding="utf-8") as file:
        text = file.read()
    for call in re.finditer(r"(?m)^ +(?:return )?(?:%s)\(" % calls, text):
        place = condition_before(text, call.start())
        if place and text[place[0] - 4:place[1] + 1] not in listed:
            condition, old = text[place[0]:place[1]], text[place[0] - 4:call.end()]
            new = "if ((" + condition + ") && 0)" + text[place[1] + 1:call.end()]
            out_of_reach = re.search(r"/\* cover: (.*?) \*/", old)
            plant(old, new, "", text.count(old, 0, place[0] + len(old)),
                  out_of_reach.group(1) if out_of_reach else "")


# The vector operations of each instruction set.
within("attn.h", ALL_SETS, "kernels")
# VNNI
plant("return _mm512_and_si512(high ? _mm512_srli_epi16(line, 4)",
      "return _mm512_and_si512(high ? _mm512_srli_epi16(line, 3)")
plant("return _mm512_set1_epi32(start);", "return _mm512_set1_epi32(start - 1);")
plant("_mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x))",
      "_mm512_dpbusd_epi32(_mm512_setzero_si512(), w, _mm512_set1_epi32(x))")
# AVX-512
plant("v = _mm512_mask_sub_epi8(v, w.negative,", "v = _mm512_mask_sub_epi8(v, 0,")
plant("return _mm512_set1_epi32(is_q4 ? start : ATTN__MAGIC_I32);",
      "return _mm512_set1_epi32(start);")
plant("line = _mm512_xor_si512(line, _mm512_set1_epi8(-128));",
      "line = _mm512_xor_si512(line, _mm512_set1_epi8(-64));")
plant("_mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT)",
      "_mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_ZERO)")
plant("_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ)", "_mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ)", "ops")
plant("_mm512_slli_epi32(_mm512_castps_si512(t), 23)",
      "_mm512_slli_epi32(_mm512_castps_si512(t), 22)", "ops")
plant("_mm512_cvtepi32_epi8(_mm512_castps_si512(v))",
      "_mm512_cvtsepi32_epi8(_mm512_castps_si512(v))")
plant("return _mm512_reduce_max_ps(v);", "return _mm512_reduce_min_ps(v);")
plant("return _mm512_fmadd_ps(a, b, c);", "return _mm512_add_ps(_mm512_mul_ps(a, b), c);")
# AVX2
plant("_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)", "_mm256_cvtps_ph(v, _MM_FROUND_TO_ZERO)")
plant("_mm256_cmp_ps(a, b, _CMP_GT_OQ)", "_mm256_cmp_ps(a, b, _CMP_NLE_UQ)", "ops")
plant("_mm_packs_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1))",
      "_mm_packs_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 0))")
plant("m = _mm_max_ps(m, _mm_movehl_ps(m, m));", "m = _mm_max_ps(m, m);")
plant("s = _mm_add_ps(s, _mm_movehl_ps(s, s));", "s = _mm_add_ps(s, s);")
plant("v = _mm256_sign_epi8(v, w.sign);", "v = _mm256_sign_epi8(v, w.size);")
plant("w.size = _mm256_and_si256(high ? _mm256_srli_epi16(line, 4)",
      "w.size = _mm256_and_si256(high ? _mm256_srli_epi16(line, 3)")
plant("return _mm256_fmadd_ps(a, b, c);", "return _mm256_add_ps(_mm256_mul_ps(a, b), c);")
plant("_mm256_slli_epi32(_mm256_castps_si256(t), 23)",
      "_mm256_slli_epi32(_mm256_castps_si256(t), 24)", "ops")
# SSE2
plant("_mm_or_ps(_mm_and_ps(mask, x), _mm_andnot_ps(mask, y))",
      "_mm_or_ps(_mm_and_ps(mask, y), _mm_andnot_ps(mask, x))")
plant("__m128i low = _mm_and_si128(_mm_castps_si128(v), _mm_set1_epi32(255));",
      "__m128i low = _mm_and_si128(_mm_castps_si128(v), _mm_set1_epi32(127));")
plant("_MM_SHUFFLE(3, 1, 3, 1)", "_MM_SHUFFLE(2, 0, 2, 0)")
plant("line = _mm_sub_epi8(line, _mm_set1_epi8(8));",
      "line = _mm_sub_epi8(line, _mm_set1_epi8(7));")
plant("w.high = _mm_srai_epi16(_mm_unpackhi_epi8(line, line), 8);",
      "w.high = _mm_srai_epi16(_mm_unpacklo_epi8(line, line), 8);")
plant("p[i] = attn_f16_from_f32(lanes[i]);", "p[i] = attn_f16_from_f32(lanes[i & 2]);")
# portable C
plant("- 8 : p[i] - 128;", "- 8 : p[i] - 127;")
plant("(high ? p[i] >> 4 : p[i] & 15) - 8", "(high ? p[i] >> 4 : p[i] & 7) - 8")
plant("p_bits += t_bits << 23;", "p_bits += t_bits << 22;", "ops")
plant("    return attn__fmaf(a, b, c);\n#else\n    attn__reg product",
      "    return a * b + c;\n#else\n    attn__reg product")
plant("for (int i = 0; i < 4; i++) acc +=", "for (int i = 0; i < 3; i++) acc +=")
# fused multiply-add where there is none in hardware
plant("(lost < 0 || lost > 0) && (bits & 1) == 0", "(lost < 0 || lost > 0) && 0")
plant("(lost > 0) == (sum > 0) ? bits + 1 : bits - 1", "(lost > 0) ? bits + 1 : bits - 1")
# which kernels run
plant("const unsigned ymm = 0x6, zmm = 0xe6;", "const unsigned ymm = 0x6, zmm = 0x66;")
plant("leaf7c >> 11 & 1", "leaf7c >> 10 & 1")
plant("fma_f16c = 1u << 12 | 1u << 29;", "fma_f16c = 1u << 12;")
plant("if ((isa == ATTN_ISA_AUTO || isa == ATTN_ISA_AVX2) && (features & ATTN__HAS_AVX2))",
      "if (isa == ATTN_ISA_AUTO || isa == ATTN_ISA_AVX2)")

# The matmul: tiles of f32 and f16, of q8 and q4, their edges, packing, walking. Those that stand in
# the source once are planted in one instruction set only, by turns.
plant("const size_t end = job->n_k - k < ATTN__CHAIN ? job->n_k : k + ATTN__CHAIN;",
      "const size_t end = ATTN__PASS == 2 ? job->n_k : job->n_k - k < ATTN__CHAIN ? job->n_k"
      " : k + ATTN__CHAIN;", occurrence=1)
plant("const size_t end = job->n_k - k < ATTN__CHAIN ? job->n_k : k + ATTN__CHAIN;",
      "const size_t end = ATTN__PASS == 4 ? job->n_k : job->n_k - k < ATTN__CHAIN ? job->n_k"
      " : k + ATTN__CHAIN;", occurrence=2)
plant("const attn__start start = k == 0 ? job->start : ATTN__SUM;",
      "const attn__start start = k == 0 ? job->start : ATTN__PASS == 3 ? ATTN__RESUME : ATTN__SUM;")
plant("attn__vadd(attn__load(out + at), attn__load(job->bias + at))",
      "attn__vadd(attn__load(out + at), attn__load(job->bias + (ATTN__PASS == 3 ? 0 : at)))")
plant("const size_t line_bytes = is_half ? 32 : 64;",
      "const size_t line_bytes = is_half && ATTN__PASS != 1 ? 32 : 64;")
plant("attn__vfma(x, w[col], acc[row][col]);",
      "attn__vfma(x, w[ATTN__PASS == 3 ? 0 : col], acc[row][col]);")
plant("const attn__vec x = attn__set1(in[row]);",
      "const attn__vec x = attn__set1(in[ATTN__PASS == 2 ? 0 : row]);")
plant("job->out += n * 16;", "job->out += ATTN__PASS == 3 ? 16 : n * 16;")
plant("job->bias += n * 16;", "job->bias += ATTN__PASS == 4 ? 16 : n * 16;")
plant("from[stride], from[2 * stride], from[3 * stride]",
      "from[stride], from[2 * stride], from[2 * stride]")
plant("k++, from += step, to += n_rows)\n            *to = *from;",
      "k++, from += step, to += n_rows)\n            *to = *in;")
plant("const int is_first = k == 0 && job->start == ATTN__FRESH;", "const int is_first = k == 0;")
plant("if (k / ATTN__SHARED % 2 == 1) {", "if (k / ATTN__SHARED % 2 == (ATTN__PASS != 2)) {")
plant("attn__i_scaled(sum[row][col], in + row)",
      "attn__i_scaled(sum[row][col], in + (ATTN__PASS == 3 ? 0 : row))")
plant("scales += 32;", "scales += ATTN__PASS == 4 ? 0 : 32;")
plant("attn__i_start(in[row].start, is_q4)",
      "attn__i_start(in[ATTN__PASS == 2 ? 0 : row].start, is_q4)")
plant("attn__i_weights(line + (size_t)col * stride, is_q4, high);",
      "attn__i_weights(line + (size_t)col * stride, is_q4, ATTN__PASS == 0 ? 0 : high);")
plant("in[row].bytes + 4 * (step + high), is_q4);",
      "in[row].bytes + 4 * (step + (ATTN__PASS == 4 ? 0 : high)), is_q4);")
plant("const int is_alone = n_rows <=", "const int is_alone = n_rows + 1 <=",
      equivalent="the same sums, in more blocks")
plant("tiles[n - fewest], &tile", "tiles[n - fewest - (n == 5)], &tile")
plant("inverse = largest >= 1e-30f ? 127.0f / largest : 0;",
      "inverse = largest >= 1e-30f ? 126.5f / largest : 0;")
plant("scale = largest >= 1e-30f ? largest / 127.0f : 0;",
      "scale = largest >= 1e-30f ? largest * (1 / 127.0f) : 0;")
plant("bits &= ~(uint32_t)3;", "bits &= ~(uint32_t)7;")
plant("if (total != total || largest > 1.26765060e30f)", "if (largest > 1.26765060e30f)")
plant("attn__low_bytes(bytes + 16, t);", "attn__low_bytes(bytes + 16, s);")
plant("m = attn__vpick(m, t, m, t);\n    largest", "m = ATTN__PASS == 2 ? m : "
      "attn__vpick(m, t, m, t);\n    largest")
plant("x[i] = i < n ? from[(ptrdiff_t)i * step] : 0;", "x[i] = i < n ? from[(ptrdiff_t)i * step] : 9;")
plant("ATTN__MAGIC_I32 - zero_point * sum;", "ATTN__MAGIC_I32 - zero_point * sum + (k == 32);")
plant("to - from, n_k, job->w.dtype == ATTN_Q8 ? 128 : 8);", "to - from, n_k, 128);")
plant("row < n_rows && tile->start != ATTN__FRESH; row++", "row < n_rows && 0; row++")
plant("    tile->out_stride = stride;\n", "")
plant("memcpy(out + row * stride, lines + row * 16, n_part * sizeof(float));",
      "memcpy(out + row * stride, lines + row * 16, 16 * sizeof(float));")
plant("tile.start = k > 0 ? ATTN__SUM : job->start;", "tile.start = job->start;")
plant("tile.bias = k + n_k == n_in && job->bias ?", "tile.bias = job->bias ?")
plant("panel * job->w.stride + attn__line_of(dtype, k);",
      "panel * job->w.stride + attn__line_of(dtype, k & 1024);")
plant("const size_t to = row + rows + (block < n_larger);", "const size_t to = row + rows;")
plant("for (; row0 < row1; row0 += max_rows) {", "for (; row0 < row1; row0 += max_rows + 1) {")
plant("for (size_t i = 1; i < job->n_ahead; i++)", "for (size_t i = 1; i < 1; i++)",
      equivalent="it only fetches ahead")
plant("const size_t n = (cols) > 1 && n_panels >= (cols) ? (cols) : 1;",
      "const size_t n = n_panels > (cols) ? (cols) : 1;",
      equivalent="as many panels, in other groups")

# Packing weights, and entries of panels.
within("attn.h", ONE_SET, "kernels tensors model")
plant("bits = scales[64 + j / 4 * 64 + n % 16 * 4 + j % 4] - 128;",
      "bits = scales[64 + j / 4 * 64 + n % 16 * 4 + j % 4] - 127;")
plant("(j % 8 / 4 * 4) & 15) - 8;", "(j % 8 / 4 * 2) & 15) - 8;")
plant("memcpy(&half, scales + (j / 32 * 16 + n % 16) * 2, 2);", "memcpy(&half, scales + n % 16 * 2, 2);")
plant("scale = fabsf(largest) / 127;", "scale = fabsf(largest) / 128;")
plant("if (fabsf(x[i]) > fabsf(largest))", "if (x[i] > fabsf(largest))")
plant("(float)(j < 0 ? j - 50 : j + 60) * 0.125f / largest;", "8.0f / largest;")
plant("q = y <= (float)low ? low : y >= (float)high ? high : (int)y;", "q = (int)y;")
plant("half++; /* among", "(void)0; /* among")
plant("(unsigned char)(bits[k] | bits[k + 4] << 4);", "(unsigned char)(bits[k + 4] | bits[k] << 4);")
plant("x[i] = lane < n_lanes && k + i < n_in", "x[i] = lane < n_lanes && k + i <= n_in")
plant("for (; lane < 16; lane++)\n                    row[lane] = 0;", "")
plant("memcpy(lines + (block * 16 + lane) * 2, &half, 2);", "memcpy(lines + lane * 2, &half, 2);")
plant("row_parts > 1 && (me->count % row_parts != 0 ||", "row_parts > 1 && (0 ||", "model ops")
plant("*last = (size_t)((uint64_t)n * ((uint64_t)me->id + 1) / (uint64_t)me->count);",
      "*last = (size_t)((uint64_t)n * ((uint64_t)me->id + 1) / (uint64_t)me->count) - (me->id == 2);",
      "model ops")
plant("while (__atomic_load_n(&team->phase, __ATOMIC_ACQUIRE) == phase) {", "while (0) {",
      "model ops")

# Halfs and numbers as text.
within("attn.h", PLAIN, "tensors")
plant("if (!block->before && ctx->blocks != block)", "if (0)")
plant("block->next->before = block->before;", "(void)0;")
plant("block->next->before = block;", "(void)0;")
plant("before < 0x80 && *at >= 0x80 && *at < 0xa0", "0", "corners")
plant("x.ndim < 1 || x.ndim > 4)", "x.ndim < 1)")
plant("            *at = '?';", "            (void)0;", "corners")
plant("at[1] < 0xa0)\n            at[0]", "at[1] < 0x9b)\n            at[0]", "corners")
plant("(x->ndim > 0 && (unsigned)x->dtype > ATTN_I32)", "0")
plant("if (!(fabsf(attn_get2(*p->w, k, j)) < 65520.0f))",
      "if (!(fabsf(attn_get2(*p->w, k, j)) < 1e30f))")
plant("value = (float)fraction * (1.0f / 16777216.0f);", "value = (float)fraction * (1.0f / 8388608.0f);")
plant("(fraction ? 0x400000u : 0);", "0;")
plant("if (bits >= 0x477ff000u)", "if (bits > 0x477ff000u)",
      equivalent="65520 is a tie, and the even one of the two is infinity")
plant("if (bits < 0x33000000u)", "if (bits <= 0x33000000u)",
      equivalent="half of the smallest is a tie, and goes to zero either way")
plant("(round == 1u << (shift - 1) && (rest & 1))", "(round == 1u << (shift - 1))")
plant("shift = 126 - (int)(bits >> 23);", "shift = 125 - (int)(bits >> 23);")
plant("(rest == half && (m >> shift & 1)));\n        e = 0;", "rest == half);\n        e = 0;",
      "corners tensors")

# Kernels over rows.
within("attn.h", ALL_SETS, "ops properties")
plant("r = attn__vsub(x, y);", "r = attn__vsub(y, x);")
plant("s[i] = s[i] + s[i + half];", "s[i] = s[2 * i] + s[2 * i + 1];")
plant("attn__get(x + i, n_part, center), c);", "attn__get(x + i, n_part, 0), c);")
plant("attn__put(out + i, attn__vfma(attn__get(x + i, n_part, 0), f, attn__get(mask + i, n_part, 0)),",
      "attn__put(out + i, attn__vfma(attn__get(x + i, n_part, 0), f, attn__set1(0)),")
plant("attn__vexp(attn__vsub(attn__get(x + i, n_part, -INFINITY), m))",
      "attn__vexp(attn__vsub(attn__get(x + i, n_part, 0), m))", occurrence=1)
plant("attn__vexp(attn__vsub(attn__get(x + i, n_part, -INFINITY), m))",
      "attn__vexp(attn__vsub(attn__get(x + i, n_part, 0), m))", occurrence=2)
plant("const attn__vec v = attn__get(x + i, n_part, -INFINITY);",
      "const attn__vec v = attn__get(x + i, n_part, 0);", occurrence=1)
plant("spoiled = attn__vpick(top, v, spoiled, attn__vpick(v, bottom, spoiled, one));",
      "spoiled = attn__vpick(top, v, spoiled, one);", "sampling")
plant("return attn__fold(spoiled) > 0 ? (float)NAN : result;", "return result;", "sampling")
plant("0.0416682586f", "0.0416666679f")
plant("attn__r_set1(88.7228394f)", "attn__r_set1(88.0f)")
plant("attn__r_set1(-87.3365402f)", "attn__r_set1(-87.0f)")
plant("attn__r_set1(-1.42860677e-06f), r)", "attn__r_set1(-1.42860677e-05f), r)")
plant("attn__r_set1(0.044715f)", "attn__r_set1(0.0447f)")
plant("attn__r_pick(attn__r_set1(-10.0f), x,", "attn__r_pick(attn__r_set1(-9.0f), x,")
plant("p = ATTN__STEP(p, q, -0.206402615f);", "p = ATTN__STEP(p, q, -0.206403f);")
plant("q = attn__r_fma(s, e, q);", "q = attn__r_fma(s, zero, q);")
plant("return attn__r_fma(e, attn__r_mul(minus_half, l), e);", "return e;")
plant("y = y + (lost + p);", "y = y + p;", "ops lens")
plant("p = attn__fmaf(p, f, -0.250000119f);", "p = attn__fmaf(p, f, -0.25f);", "ops lens")
plant("y = x <= FLT_MAX ? y : x + INFINITY;", "", "ops properties lens")
plant("lanes[j] = a ^ (a >> 15);", "lanes[j] = a ^ (a >> 14);", "format")
plant("memset(words, 0, sizeof words);", "(void)0;", "format")

# Operations of tier 1.
within("attn.h", ONE_SET, "ops tensors")
plant("const size_t n = h->first + row + 1;", "const size_t n = h->first + row + 2;")
plant("            s[key] = -INFINITY;", "            s[key] = -1e4f;")
plant("(common - 1) / ATTN__CHAIN * ATTN__CHAIN : 0;", "0 : 0;", "ops model")
plant("    job.start = ATTN__RESUME;\n", "    job.start = ATTN__SUM;\n", "ops model")
plant("const size_t room = ATTN__QUERIES - first % ATTN__QUERIES;",
      "const size_t room = ATTN__QUERIES;", "ops model")
plant("const size_t visible = n - args->n_queries + args->row % args->n_queries + 1;",
      "const size_t visible = args->row % args->n_queries + 1;")
plant("out[i] = (x[i] - largest) - log_sum;", "out[i] = x[i] - log_sum;")
plant("kernels->square_distance(x, *mean, n) / (float)n + eps)",
      "kernels->square_distance(x, *mean, n) / (float)n + 0 * eps)")
plant("square_distance(x, mean, n) / ((float)n - args->number);", "square_distance(x, mean, n) / (float)n;")
plant("((float *)result.dense.data)[t] = log_sum - (row[id] - largest);",
      "((float *)result.dense.data)[t] = log_sum - row[id];")
plant("a->scale = desc && desc->scale != 0 ? desc->scale :", "a->scale = 0 ? desc->scale :")
plant("h.first = a->causal ? a->n_keys - a->n_queries + row : 0;",
      "h.first = a->causal ? row : 0;")
plant("offset += (ptrdiff_t)(index % n) * x->stride[d];", "offset += (ptrdiff_t)index * x->stride[d];")
plant("if (x.stride[from] != expected)", "if (0)")
plant("while (n_to * shape.dim[to] > n_from) {", "while (n_to * shape.dim[to] >= n_from) {")
plant("if (start > x.shape[d] || count > x.shape[d] - start)", "if (start > x.shape[d])")
plant("if (index >= x.shape[d])", "if (index > x.shape[d])")
plant("if (m != n && m != 1 && n != 1)", "if (m != n && m != 1)")
plant("i <= last ? from[i] : 0;", "i < last ? from[i] : 0;")
plant("i + n_queries <= row + n_keys ? 0", "i <= row ? 0")
plant("n > PTRDIFF_MAX)", "0)")
plant("rng->next = 624;", "rng->next = 0;")
plant("y ^= (y << 15) & 0xefc60000u;", "y ^= (y << 15) & 0xefc61000u;")
plant("if (n > 16 && n % 16 != 0) {", "if (0) {")
plant("f < 0.70710678118654752440", "f < 0.5")
plant("(quarter & 2 ? s : -s)", "(quarter & 2 ? -s : s)")
plant("draw = draw * 1132489760u % 2147483647u;", "draw = draw * 1132489761u % 2147483647u;")
plant("id < 0 || (size_t)id >= table.shape[0]", "id < 0 || (size_t)id > table.shape[0]")

# The reader of .attn files.
within("attn.h", PLAIN, "format")
plant("m->size < 8 || memcmp(h, attn__magic, 8) != 0", "m->size < 8 || memcmp(h, attn__magic, 5) != 0")
plant("if (m->size < ATTN__HEADER)", "if (m->size < 8)")
plant("if (attn__u32(h + 8) != 1)", "if (attn__u32(h + 8) > 1)")
plant("if (!attn__header_is_whole(h))", "if (0)")
plant("if (attn__u64(h + 16) > m->size)", "if (0)")
plant("if (attn__u64(h + 16) < m->size)", "if (0)")
plant("!attn__header_is_whole(block) || *size", "*size")
plant("|| *size > attn__u64(block + 16)))", "))")
plant("sizes[i].value == 0 || ", "")
plant("sizes[i].value > sizes[i].most", "0")
plant("c->d_model % c->n_head != 0", "0")
plant("attn__u32(h + 12) != ATTN__HEADER", "0")
plant("attn__u32(h + 52) > 1", "0")
plant("c->ln_eps >= 0 && c->ln_eps <= 1", "c->ln_eps >= 0")
plant("c->ln_eps >= 0 && c->ln_eps <= 1", "c->ln_eps <= 1")
plant("!(c->ln_eps >= 0 && c->ln_eps <= 1)", "c->ln_eps < 0 || c->ln_eps > 1")
plant("c->bos < -1 || ", "")
plant("c->bos >= (int32_t)c->n_vocab ||", "c->bos > (int32_t)c->n_vocab ||")
plant("c->eos < -1 ||", "0 ||")
plant("c->eos >= (int32_t)c->n_vocab)", "c->eos > (int32_t)c->n_vocab)")
plant("offset % 64 == 0 && ", "")
plant("offset <= file_size && ", "")
plant("&& size <= file_size - offset;", ";")
plant("for (; from < to; from++)\n        if (m->bytes[from] != 0)",
      "for (; from + 1 < to; from++)\n        if (m->bytes[from] != 0)")
plant("if (r[0] == 0 || memchr(r, 0, 64) == NULL)", "if (memchr(r, 0, 64) == NULL)")
plant("if (r[0] == 0 || memchr(r, 0, 64) == NULL)", "if (r[0] == 0)")
plant("attn__check_zeros(ctx, m, path, at + strlen(w->info.name), at + 64) ||", "")
plant("attn__check_zeros(ctx, m, path, at + 76, at + 80) ||", "")
plant("        attn__check_zeros(ctx, m, path, at + 76, at + 80) ||\n"
      "        attn__check_zeros(ctx, m, path, at + 120, at + 128))",
      "        attn__check_zeros(ctx, m, path, at + 76, at + 80))")
plant("dtype > ATTN_Q4 || dtype", "dtype")
plant("dtype == ATTN_I32 || layout", "layout")
plant("layout > 1 || (layout", "(layout")
plant("(layout == 0 && dtype > ATTN_F16)", "0")
plant("ndim < 1 || ndim > 2 ||", "ndim > 2 ||",
      equivalent="refused a moment later: no tensor of a model has 0 dimensions")
plant("ndim < 1 || ndim > 2 ||", "ndim < 1 ||")
plant("w->info.shape[0] == 0 || ", "", equivalent="refused a moment later: 0 bytes are expected")
plant("w->info.shape[0] > 1u << 26 ||", "0 ||")
plant("w->info.shape[1] == 0 || ", "", equivalent="refused a moment later: 0 bytes are expected")
plant("w->info.shape[1] > 1u << 26 ||", "0 ||")
plant("(ndim == 1 && w->info.shape[1] != 1)", "0",
      equivalent="such a vector is refused a moment later, by its size or by its first dimension")
plant("expected == 0 || w->info.size != expected ||", "expected == 0 ||")
plant("w->info.offset - *end >= 64)", "0)")
plant("if (attn__check_zeros(ctx, m, path, *end, w->info.offset) != ATTN_OK)", "if (0)")
plant("if (attn__check_zeros(ctx, m, path, 68, 72) || ", "if (")
plant("attn__check_zeros(ctx, m, path, 120, 248))", "0)")
plant("n == 0 || table != ATTN__HEADER ||", "table != ATTN__HEADER ||",
      equivalent="refused a moment later: bytes follow, or a tensor is missing")
plant("n == 0 || table != ATTN__HEADER ||", "n == 0 ||")
plant("table_size != n * ATTN__RECORD ||", "0 ||")
plant("!attn__lies_within(table, table_size, m->size))", "0)")
plant("attn_checksum(0, h + table, (size_t)table_size) != attn__u64(h + 88)", "0")
plant("text != end || !attn__lies_within", "!attn__lies_within")
plant("text != end || !attn__lies_within(text, text_size, m->size)", "text != end")
plant("attn_checksum(0, h + text, (size_t)text_size) != attn__u64(h + 112)", "0")
plant("attn_tokenizer_n_tokens(m->tokenizer) > m->config.n_vocab", "0")
plant("if (end != m->size)", "if (0)")
plant("if (chain != w->info.checksum)", "if (0)")
plant("(digits > 1 && name[-digits] == '0') || ", "")
plant("if (!attn__is_bound(&e[i]))", "if (0)")
plant("if (i == n || attn__is_bound(&e[i]))", "if (i == n)")
plant("layer < (int)m->config.n_layer ? attn__expect(m, layer, e) : 0",
      "attn__expect(m, layer % (int)m->config.n_layer, e)")
plant("if (w->info.panels != e->is_panels ||", "if (0 ||")
plant("(!w->info.panels && w->info.dtype != ATTN_F32)", "0")
plant("w->info.ndim != (is_matrix ? 2 : 1) ||", "0 ||")
plant("w->info.shape[0] != (is_matrix ? e->n_in : e->n_out) ||", "0 ||")
plant("(is_matrix && w->info.shape[1] != e->n_out)", "0")
plant("if (found != m->n_weights)", "if (0)")
plant("if ((uintptr_t)data % 64 != 0 && size > 0) {", "if (0) {")
plant("            memcpy(larger, block, *size);", "            memcpy(larger, block, room / 2);")
plant("(part - all) * width;", "(part - all) * width / 2;", "format lens")
plant("s->group_step = width * d;", "s->group_step = width;", "format lens")

# The tokenizer: what it refuses.
within("attn.h", PLAIN, "tokenizer")
plant("attn__token_size(tokenizer, id) > ATTN__SPECIAL_MAX", "0")
plant("attn__special_half(nodes, node, p[depth] & 15u)",
      "attn__special_half(nodes, node, p[depth] & 7u)")
plant("end < previous || end > n_bytes", "end > n_bytes")
plant("end < previous || end > n_bytes", "end < previous")
plant("if (previous != n_bytes)", "if (0)")
plant("if (!found[octet])\n            return",
      "if (0)\n            return")
plant("if (!found[octet])\n            tokenizer->byte_id", "if (1)\n            tokenizer->byte_id")
plant("!= 1 || is_special[id])\n            continue;", "!= 1)\n            continue;")
plant("        if (id >= tokenizer->n_tokens)\n            return attn__fail(ctx, ATTN_E_FORMAT,\n"
      "                              \"tokenizer: merge",
      "        if (id > tokenizer->n_tokens)\n            return attn__fail(ctx, ATTN_E_FORMAT,\n"
      "                              \"tokenizer: merge")
plant("        if (is_special[id])\n            return attn__fail(ctx, ATTN_E_FORMAT,\n"
      "                              \"tokenizer: merge",
      "        if (0)\n            return attn__fail(ctx, ATTN_E_FORMAT,\n"
      "                              \"tokenizer: merge")
plant("if (size[i] == 0)", "if (0)")
plant("size[2] - size[0] != size[1] || ", "")
plant("memcmp(bytes[2], bytes[0], size[0]) != 0 ||", "0 ||")
plant("memcmp(bytes[2] + size[0], bytes[1], size[1]) != 0)", "0)")
plant("if (joined > most)", "if (0)")
plant("tokenizer->right[i] == tokenizer->right[i - 1])", "0)")
plant("if (i > tokenizer->first[left] && ", "if (i > 0 && ")
plant("        if (id >= tokenizer->n_tokens)\n            return attn__fail(ctx, ATTN_E_FORMAT,\n"
      "                              \"tokenizer: special",
      "        if (id > tokenizer->n_tokens)\n            return attn__fail(ctx, ATTN_E_FORMAT,\n"
      "                              \"tokenizer: special")
plant("if (attn__token_size(tokenizer, id) == 0)", "if (0)")
plant("        if (is_special[id])\n            return attn__fail(ctx, ATTN_E_FORMAT,\n"
      "                              \"tokenizer: special",
      "        if (0)\n            return attn__fail(ctx, ATTN_E_FORMAT,\n"
      "                              \"tokenizer: special")
plant("if (!data || size < 16)", "if (!data || size < 15)")
plant("if (needed != size)", "if (needed > size)")
plant("if (!nodes[node].token)\n            nodes", "if (1)\n            nodes")

# The tokenizer: what it makes of text.
plant("if (first < 0xC2 || first > 0xF4)", "if (first < 0xC0 || first > 0xF4)")
plant("if (first < 0xC2 || first > 0xF4)", "if (first < 0xC2 || first > 0xF7)")
plant("octet >= (first == 0xE0 ? 0xA0 : 0x90)", "octet >= 0x80")
plant("octet <= (first == 0xED ? 0x9F : 0x8F)", "octet <= 0x9F")
plant("if (index == 1 && (first == 0xED || first == 0xF4))", "if (index == 1 && (first == 0xF4))")
plant("length == 0 || (size_t)(end - p) < length", "length == 0")
plant("*code = *code << 6 | (p[i] & 0x3Fu);", "*code = *code << 6 | (p[i] & 0x1Fu);")
plant("if (size == 0 && state->n > 0) {", "if (0) {")
plant("if (state->n > 0 && !attn__utf8_continues", "if (0 && !attn__utf8_continues")
plant("at += at[half] <= right ? half : 0;", "at += at[half] < right ? half : 0;")
plant("return count && *at == right ?", "return *at == right ?", "tokenizer")
plant("if (start[middle] <= code)", "if (start[middle] < code)")
plant("code < encoder->run_start || code >= encoder->run_end",
      "code < encoder->run_start || code > encoder->run_end")
plant("    36, 23, 72, 7, 60,", "    36, 23, 72, 7, 56,")
plant("6024, 19757, 20, 16769}", "6024, 19757, 24, 16769}")
plant("97, 4, 37, 4, 5, 8, 29, 124, 42,", "97, 4, 37, 4, 5, 8, 29, 128, 42,")
plant("rest >= 2 && (p[1] == 's' || p[1] == 't' || p[1] == 'm'",
      "rest >= 2 && (p[1] == 's' || p[1] == 't' || p[1] == 'n'")
plant("(p[1] == 'v' && p[2] == 'e')", "(p[1] == 'v')")
plant("(*p == ' ' && end - p > 1)", "(*p == ' ')")
plant("p + (*p == ' ' && end - p > 1)", "p")
plant("if (contraction)\n        return p + contraction;", "")
plant("    if (next == end)\n        return end;\n", "")
plant("(*last & 0xC0) == 0x80;)", "0;)")
plant("return last == p ? next : last;", "return last;")
plant("best = rank[i] < best ? rank[i] : best;", "best = rank[i] <= best ? rank[i] : best;",
      equivalent="equal ranks are the same number")
plant("if (ids[i] == result || ids[i + 1] == result)", "if (ids[i] == result)")
plant("i += merges ? 1 : 0;\n            rank[kept] = rank[i];",
      "rank[kept] = rank[i];\n            i += merges ? 1 : 0;")
plant("places[place->further].previous = index;", "places[place->further].previous = 0;")
plant("        places[place->further].previous = place->previous;", "        (void)0;")
plant("attn__leave_place(encoder, place->before);", "", "tokenizer")
plant("attn__enter_place(encoder, place->before);", "", "tokenizer")
plant("while (places[places[index].before].rank == rank)", "while (0)")
plant("common == 0 || common == attn__place_size(encoder, 1, count)", "1")
plant("is_last ? count : count - count / 16", "count")
plant("common = is_last ? 0 :", "common = 1 ? 0 :")
plant("encoder->n_ids = n_before;", "")
plant("encoder->occupied[rank / 32] &= ~(1u << rank % 32);", "", "tokenizer")
plant("if (!encoder->occupied[rank / 32])\n", "if (1)\n")
plant("key[i / 8] |= (uint64_t)word[i] << 8 * (i % 8);", "key[i / 8] |= (uint64_t)(word[i] & 0x7F)"
      " << 8 * (i % 8);")
plant("entry->key[1] == key[1])", "1)")
plant("if (entry->size == size && ", "if (entry->size && ")
plant("longest = depth;\n            *id", "longest = longest ? longest : depth;\n            *id")
plant("while (allow_special && p < end) {", "while (p < end) {")
plant("if (attn__encode_part(encoder, part, p))", "if (0)")
plant("if (encoder->n_ids < encoder->capacity)", "if (encoder->n_ids <= encoder->capacity)")
plant("if (encoder.n_ids > capacity)", "if (0)")
plant("length <= capacity && total <= capacity - length)", "total <= capacity)")
plant("if (total > capacity)", "if (0)")
plant("id >= 0 && (size_t)id < tokenizer->n_tokens;", "id >= 0 && (size_t)id <= tokenizer->n_tokens;")

# Sessions: the forward pass, rewinding, batches.
within("attn.h", ONE_SET, "model properties hooks")
plant("return n % 256 == 0 ? n + 16 : n;", "return n;",
      equivalent="the gap only keeps rows apart in the cache")
plant("h.scale = 1.0f / sqrtf((float)c->d_head);", "h.scale = 1.0f / (float)c->d_head;")
plant("position = of->length + of->fed + row;\n            const size_t token",
      "position = of->length + row;\n            const size_t token")
plant("p->model->w_pos + position * width,", "p->model->w_pos + (position + 1) * width,")
plant("const size_t position = of->length + of->fed + row;\n                const float *k",
      "const size_t position = of->length + row;\n                const float *k")
plant("attn__keep_value(of, index, position, k + c->d_model);",
      "attn__keep_value(of, index, position, k);")
plant("((uint16_t *)to)[(j + k) * 16] = halves[k];", "((uint16_t *)to)[j * 16 + k] = halves[k];")
plant("h.q = p->s->qkv + (of->first_row + row) * stride + head * c->d_head;",
      "h.q = p->s->qkv + (of->first_row + row) * stride;")
plant("of->fed += from - of->first_row;", "")
plant("if (item->resid_out || attn__wants", "if (attn__wants")
plant("attn__wants(of, later, (int)p->model->config.n_layer - 1) ||", "0 ||")
plant("attn__wants(of, final, -1))", "0)")
plant("memmove(p->s->qkv + to * stride, p->s->qkv + row * stride, width * sizeof(float));", "")
plant("job.w.data = (const unsigned char *)job.w.data + first * job.w.stride;\n"
      "            job.w.n_out = n_out;", "job.w.n_out = n_out;")
plant("if (p->n_items > 1 && 16 * n_final <= tile_floats) {", "if (0) {",
      equivalent="the same logits in as many walks as there are items")
plant("*first < item->n_rows && item->rows[*first] < of->fed; ++*first)", "0; ++*first)")
plant("return end == item->n_tokens && of->n_rows > 0;", "return of->n_rows > 0;")
plant("        attn__visit(me, p, ATTN__HOOK_RESID_PRE, i);",
      "        attn__visit(me, p, ATTN__HOOK_RESID_MID, i);")
plant("attn__layernorm(me, p, ATTN__HOOK_LN2, i, in, l->ln2_w, l->ln2_b);",
      "attn__layernorm(me, p, ATTN__HOOK_LN2, i, in, l->ln1_w, l->ln2_b);")
plant("        attn__activate(me, p);\n", "")
plant("m->ln_f_w, m->ln_f_b);\n    if (!p->stopped)", "m->ln_f_w, m->ln_f_w);\n    if (!p->stopped)")
plant("i < (int)p->end_layer && !p->stopped; i++", "i < (int)p->end_layer; i++")
plant("if (end > n_layer || item->first_layer > end ||", "if (item->first_layer > end ||")
plant("(item->first_layer == end && end < n_layer))", "0)")
plant("if (item->first_layer > 0 && !item->resid)", "if (0)")
plant("if (end < n_layer && (item->logits || item->rows))", "if (0)")
plant("        if (s->held[i] < until)", "        if (s->held[i] + 1 < until)")
plant("item->n_tokens * sizeof *item->tokens) != 0)", "item->n_tokens) != 0 && 0)")
plant("s->held[layer] = s->held[layer] < s->length ? s->held[layer] : s->length;", "")
plant("for (layer = p->first_layer; layer < p->end_layer; layer++)\n        s->held",
      "for (layer = p->first_layer; layer + 1 < p->end_layer; layer++)\n        s->held")
plant("if (p->end_layer == p->model->config.n_layer)\n        s->length = end;", "s->length = end;")
plant("if (!s || s->model != model)", "if (!s)")
plant("if (item->n_tokens > s->capacity - s->length)", "if (item->n_tokens > s->capacity)")
plant("item->tokens[i] < 0 || (uint32_t)item->tokens[i] >= n_vocab",
      "item->tokens[i] < 0 || (uint32_t)item->tokens[i] > n_vocab")
plant("(i > 0 && item->rows[i] <= item->rows[i - 1])", "0")
plant("item->rows[i] >= item->n_tokens ||", "item->rows[i] > item->n_tokens ||")
plant("items[i].first_layer != p.first_layer || ", "")
plant("!items[i].resid != !items[0].resid ||", "0 ||")
plant("attn__end_layer(&items[i], p.model) != p.end_layer)", "0)")
plant("if (items[i].session->capacity > p.s->capacity)", "if (0)")
plant("if (items[i].session->n_rows == 0)", "if (0)")
plant("if (s->hooks && most > s->n_batch)", "if (0)")
plant("s->first_row = p.n_rows;", "s->first_row = 0;")
plant("items[i].session->fed += items[i].session->n_rows;", "items[i].session->fed += 1;")
plant("(item->n_rows > 0 && item->rows[item->n_rows - 1] == item->n_tokens - 1);",
      "item->n_rows > 0;")
plant("if (n_threads > p.s->n_threads)", "if (0)", "model corners")
plant("if (!session || length > session->length)", "if (!session)")
plant("    attn__cut(session, length);\n    session->has_logits = 0;",
      "    attn__cut(session, length);")
plant("if (to->model != from->model)", "if (0)")
plant("if (to->cache != from->cache)", "if (0)")
plant("if (from->length > to->capacity)", "if (0)")
plant("(n + 15) / 16 * to->keys_panel);", "n / 16 * to->keys_panel);")
plant("from->values + head * from->values_size + panel * from->values_panel,",
      "from->values + head * from->values_size + panel * to->values_panel,")
plant("to->has_logits = from->has_logits;", "")
plant("if (session->running)\n        return attn__fail", "if (0)\n        return attn__fail",
      "model hooks")
plant("if (first > held || count > held - first)", "if (first > held || count > held)", "hooks")

# Drafting and generation.
plant("s->length = length + right + 1;", "s->length = length + right + 2;", "model")
plant("if (w->ended || right == n || token != w->due[right + 1])", "if (w->ended || right == n)",
      "model")
plant("w->drafter.logits + right * n_vocab, n_vocab", "w->drafter.logits, n_vocab", "model")
plant("n = n < room ? n : room;", "", "model")
plant("d->wait = (size_t)1 << d->failures;", "d->wait = 0;", "kernels")
plant("if (n_draft < 0 || session->hooks)", "if (n_draft < 0)", "model hooks")
plant("*token == s->model->config.eos && !w->desc.ignore_eos", "*token == s->model->config.eos",
      "model")
plant("w->ended = w->reason != ATTN_STOP_NONE || s->length == s->capacity;",
      "w->ended = w->reason != ATTN_STOP_NONE;", "model")
plant("w.desc.prepend_bos && session->length == 0,", "w.desc.prepend_bos,", "model")
plant("attn__hand_over(to)) || attn__hand_over(to);", "attn__hand_over(to));", "model")
plant("s->matched = s->border[s->matched - 1];", "s->matched = 0;", "sampling")
plant("if (whole != (longest->matched == longest->size)", "if (0", "sampling")
plant("if (longest && reason != ATTN_STOP_STRING &&", "if (longest &&", "sampling")
plant("w->sampler = w->desc.sampler;", "w->sampler = NULL;", "sampling")
plant("if (w->logits && logits[*token] == -INFINITY)", "if (0)", "sampling")
plant("to->session->running = ATTN__WRITING;", "to->session->running = ATTN__IDLE;", "corners")
plant("if (session->running == ATTN__WRITING)", "if (0)", "corners")

# Hooks: names, edits, records.
within("attn.h", ONE_SET, "hooks model")
plant("text = ++retry;", "text = retry;")
plant("if ((ATTN__OPT_IN & ATTN__POINT(point)) && attn__ends_with(pattern, \"*\"))", "if (0)")
plant("const int n_layers = point < ATTN__HOOK_RESID_PRE ? 0", "const int n_layers = point <= "
      "ATTN__HOOK_RESID_PRE ? 0")
plant("best = diagonal + (from[i] != to[j - 1]);", "best = diagonal + 1;", "hooks corners")
plant("if (!hook->record && (hook->points[1 + layer] & points))", "if (hook->points[1 + layer] & points)",
      equivalent="what a record makes the pass look for is not there: a record writes nothing")
plant("    while (*last) /* hooks run in the order they were made */\n        last = &(*last)->next;\n"
      "    *last = hook;", "    hook->next = *last;\n    *last = hook;")
plant("a.first = of->length + of->fed;", "a.first = of->length;")
plant("t.stride[1] = (ptrdiff_t)attn__round_up(n_keys, 16);", "t.stride[1] = (ptrdiff_t)n_keys;")
plant("base = p->s->qkv + (size_t)(point - ATTN__HOOK_Q) * c->d_model;",
      "base = p->s->qkv + (size_t)(ATTN__HOOK_V - point) * c->d_model;")
plant("base += of->first_row * stride;", "", "hooks")
plant("if (e->position >= s->capacity ||", "if (e->position > s->capacity ||")
plant("e->n_heads > n_heads - e->head ||", "e->n_heads > n_heads ||")
plant("(!has_heads && e->n_heads > 0)", "0")
plant("e->value.dtype != ATTN_F32)", "0)")
plant("if (over_keys && e->kind == ATTN_EDIT_MEAN)", "if (0)")
plant("(v.n[1] != 1 && v.n[1] != heads) ||", "0 ||")
plant("v.n[2] != 1 && v.n[2] != width)", "0)")
plant("if (n_keys > 1 && n_keys < until)", "if (n_keys > 1 && n_keys + 1 < until)")
plant("first + row < e->position || at >= e->n_positions", "first + row < e->position")
plant("(ptrdiff_t)(e->head + head) * to.step[1];", "(ptrdiff_t)head * to.step[1];")
plant("v += (ptrdiff_t)at * from.step[0] +", "v += (ptrdiff_t)row * from.step[0] +")
plant("hook->mean[head * width + k] = (float)(sum / (double)n);",
      "hook->mean[head * width + k] = (float)sum;")
plant("fmaf(new_one, e->factor, *number)", "fmaf(new_one, 1, *number)")
plant("if (after > r->room) {", "if (after > r->room + 1) {")
plant("r->slots[i].held < before)", "0)")
plant("slot->held = below || slot->held < before ? slot->held : before;", "")
plant("r->slots[i].n = r->slots[i].n < left ? r->slots[i].n : left;", "")
plant("return slot->point < ATTN__HOOK_LN_FINAL ? embedded : end == c->n_layer;",
      "return slot->point < ATTN__HOOK_LN_FINAL || end == c->n_layer;")
plant("to[key] = masked;", "to[key] = 0;")
plant("if (session->length > plan.first)", "if (0)")
plant("if (bytes < needed) {", "if (0) {")
plant("plan->first >= n_ctx || plan->n_positions > n_ctx - plan->first", "plan->first >= n_ctx")
plant("t.stride[0] = (ptrdiff_t)(n_keys * r->room);", "")
plant("0xEDB88320u ^ crc >> 1", "0xEDB88321u ^ crc >> 1")
plant("while (out->n % 8 != 0)", "while (out->n % 4 != 0)")
plant("text[117] = '\\n';", "text[116] = '\\n';")
plant("if (strcmp(name, names[j]) == 0)", "if (0)")
plant("if (is_draft && status != ATTN_OK)", "if (0)", "hooks corners")
plant("attn__open(d->part[0] ? d->part : path, \"wb\")", "attn__open(path, \"wb\")",
      "hooks corners")
plant("if (length - name > 240)", "if (0)", "corners")
plant("if (mode >= 0)\n        chmod", "if (0)\n        chmod", "corners")
plant("O_WRONLY | O_CREAT | O_EXCL", "O_WRONLY | O_CREAT", "corners")
plant("S_ISREG(there.st_mode) && access", "access", "corners")
plant("if (mode >= 0)\n        chmod", "if (0)\n        chmod", "corners")
plant("if (memcmp(copy, p->s->resid + (of->first_row + row) * p->wide,\n"
      "                   c->d_model * sizeof(float)) == 0)", "if (0)",
      equivalent="a patch that changes nothing is run all the same")
plant("for (head = 1; head < c->n_head; head++)\n                p->kernels->binary",
      "for (head = 1; head + 1 < c->n_head; head++)\n                p->kernels->binary")
plant("memcpy(tile + i * span + head * d - from,", "memcpy(tile + i * span,")
plant("one.first = attn__reach(scores + i * stride, h->first + i + 1, n_keys, 0) - 1;",
      "one.first = h->first + i;")
plant("(!name || k == 0 || name[k] || k > 100)", "(!name || k == 0 || name[k])")
plant("while (first < end && attn__same_part(sweep, clean, corrupted, column, first))",
      "while (first < end && 1)")
plant("sweep->sessions[i]->held[layer] = sweep->desc->n_tokens;", "")
plant("edit.n_heads = sweep->by_head ? 1 : 0;", "edit.n_heads = 0;")
plant("path->to_layer < path->from_layer + (end != ATTN__HOOK_MLP_IN))",
      "path->to_layer < path->from_layer)")

# The sampler.
within("attn.h", ONE_SET, "sampling")
plant("a->logit == b->logit && a->id < b->id", "a->logit == b->logit && a->id > b->id")
plant("if (child + 1 < n && attn__above", "if (child + 1 < n && !attn__above")
plant("attn__likelier(a, b) : attn__likelier(b, a)", "attn__likelier(a, b) : attn__likelier(a, b)")
plant("size_t child = 2 * at + 1;", "size_t child = 2 * at + 2;")
plant("most = (size_t)d->top_k;", "most = (size_t)d->top_k + 1;")
plant("sum < d->top_p * total; i++)", "sum <= d->top_p * total; i++)")
plant("while (kept < n && sum < d->top_p * total)", "while (kept < n && sum < d->top_p)")
plant("if (kept > 0 && best.weight < d->min_p)", "if (kept > 0 && best.weight <= d->min_p)")
plant("while (kept > 1 && c[n - kept].weight < d->min_p)", "while (0)")
plant("if (here > largest || here != here) {", "if (here >= largest || here != here) {")
plant("        if (here != here)\n            break;\n", "")
plant("x > 0 ? x / d->repeat_penalty : x * d->repeat_penalty", "x / d->repeat_penalty")
plant("n_seen - d->repeat_last : 0;", "0 : 0;")
plant("(s->logits[i] - s->logits[best]) / d->temperature", "s->logits[i] / d->temperature")
plant("(high >> 5) * 67108864.0", "(high >> 6) * 67108864.0")
plant("if (total > target)", "if (total >= target)",
      equivalent="a random number of 53 bits meets a sum of weights exactly only at 0 of nothing")
plant("!(d.temperature >= 0 && d.temperature <= FLT_MAX)", "d.temperature < 0")
plant("!(d.top_p >= 0 && d.top_p <= 1) ||", "0 ||")
plant("!(d.repeat_penalty >= 0 && d.repeat_penalty <= FLT_MAX)", "0")
plant("if (s->logits[best] == -INFINITY || s->logits[best] == INFINITY)", "if (0)")

# What activations say.
within("attn.h", ONE_SET, "lens")
plant("x[i] > x[target] || (i < target && x[i] == x[target]);", "x[i] > x[target];")
plant("if (count == k && !(x[i] > top[k - 1].logit))", "if (count == k && !(x[i] >= top[k - 1].logit))")
plant("return j > 0 && tokens[j - 1] == tokens[i];", "return j > 1 && tokens[j - 1] == tokens[i];")
plant("if (!(*p < FLT_MIN))", "if (1)")
plant("layer = index / 2 - (index >= 2);", "layer = index / 2 - 1;",
      equivalent="the first two have names of their own")
plant("to = a->first + rows < last ? a->first + rows : last;", "to = last;")
plant("diagonal = v[0] > 0 ? -length : length;", "diagonal = length;")
plant("zeta = (bb - aa) / (2 * ab);", "zeta = (bb - aa) / ab;",
      equivalent="more rounds come to the same")
plant("row[j] = norms > 0 ? row[j] / norms : 0;", "row[j] = row[j];")
plant("*weight = (float)fma((double)*weight, (double)ln_w[k], -mean);",
      "*weight = (float)((double)*weight * (double)ln_w[k]);")
plant("if (*gain == 0 || !(fabsf(*bias / *gain) <= FLT_MAX))", "if (*gain == 0)")
plant("attn__center_panels(&m->w_e, 1);", "attn__center_panels(&m->w_e, 0);")
plant("attn__put_u32(h + 52, c->tied ? 1 : 0);", "attn__put_u32(h + 52, 1);", "lens format")

# Writing behind the end.
within("attn.h", CHECKED, "sampling")
plant("seen[i] >= 0 && (size_t)seen[i] < s->n_vocab", "seen[i] >= 0 && (size_t)seen[i] <= s->n_vocab")

# The tools.
within("tools/attn-convert.c", PLAIN, "convert")
plant("if (system_same_file(o->output, path))", "if (0)")
plant("(p->kind == PART_LINEAR && s->linears_out_in)", "0")
plant("attn_transpose(attn_borrow(piece, ATTN_F32, attn_shape2(n, n_in)), 0, 1)",
      "attn_borrow(piece, ATTN_F32, attn_shape2(n_in, n))")
plant("uint64_t columns = t->n_in < PIECE / 16 ? PIECE / t->n_in / 16 * 16 : 16;",
      "uint64_t columns = t->n_in < PIECE / 16 ? PIECE / t->n_in : 16;")
plant("{\"ln1.w\", \"ln_1.weight\"", "{\"ln1.w\", \"ln_2.weight\"")
plant("\"blk.%llu.\"", "\"blk.%llu\"")
plant("\"attn_norm.bias\"", "\"attn_norm.weight\"")
plant("if (used[i] || mask ||", "if (used[i] ||")
plant("(n > 17 && strcmp(text + n - 17, \".attn.masked_bias\") == 0)", "0")
plant("*same = memcmp(x, y, (size_t)(n * columns) * sizeof(float)) == 0;",
      "*same = memcmp(x, y, (size_t)columns * sizeof(float)) == 0;")
plant("row < n_rows && *same; row += n", "row < n_rows && *same; row += n_rows")
plant("strcmp(text, \"lm_head.weight\") == 0 ||", "0 ||")
plant("if (s->says_untied)", "if (0)")
plant("return (offset + 63) / 64 * 64;", "return (offset + 64) / 64 * 64;")
plant("all_f16 &= p->tensors[i].kind == PART_ROWS ||", "all_f16 &=")
plant("if (last->spelling && !last->special)", "if (0)")
plant("dropped += last->spelling != NULL;", "dropped++;")
plant("attn_tokenizer_new(ctx, &reader, p->tokenizer, p->tokenizer_size))", "0)")
plant("if (interrupted)\n        return tool_fail(w->ctx, ATTN_STOPPED, \"interrupted\");",
      "if (0)\n        return ATTN_OK;")
plant("w->checksum = 0;", "(void)0;")
plant("n = count - first < PIECE ? count - first : PIECE;", "n = count;")
plant("put_u32(header + 56, (uint32_t)(s->bos & 0xffffffff));",
      "put_u32(header + 56, (uint32_t)(s->eos & 0xffffffff));")
plant("if (system_same_file(o->output, f->path))", "if (0)")
plant("if (signal(number, on_signal) == SIG_IGN)", "if (0)")
plant("if (s->bos == SOURCE_UNSAID)", "if (0)")
plant("ctx->status == ATTN_E_TOKENIZER && !o->tokenizer", "ctx->status == ATTN_E_TOKENIZER")
plant("*ids[i] >= 0 && (uint64_t)*ids[i] >= s->n_vocab",
      "*ids[i] >= 0 && (uint64_t)*ids[i] > s->n_vocab")
plant("raise(interrupted);", "(void)0;")
plant("s->ln_eps < 1", "1")
plant("catch_signal(SIGTERM);", "")
within("tools/source.h", PLAIN, "convert")
plant("if (s->n_tensors == SOURCE_MAX_TENSORS) {", "if (0) {")
plant("const size_t most = t->dtype == SOURCE_Q8_0 ? (size_t)32 * 1024 : sizeof s->raw / 4;",
      "const size_t most = sizeof s->raw / 4;", equivalent="that is whole blocks, too")
plant("*out++ = factor * (float)(q < 128 ? q : q - 256);",
      "*out++ = factor * (float)(q <= 128 ? q : q - 256);")
plant("(uint32_t)raw[i] << 16 | (uint32_t)raw[i + 1] << 24", "(uint32_t)raw[i + 1] << 24")
plant("if (t->offset + t->size > u->offset)", "if (t->offset + t->size > u->offset + 1)")
plant("source_run(ctx, s, t, row * columns + column, n_columns",
      "source_run(ctx, s, t, row * columns, n_columns")
plant("TOOLS_LLU(at % columns), TOOLS_LLU(at / columns),\n                                 t->name, (double)out[i]",
      "TOOLS_LLU(at / columns), TOOLS_LLU(at % columns),\n                                 t->name, (double)out[i]")
plant("if (shape[i] != 0 && count > UINT64_MAX / shape[i])\n            return UINT64_MAX;",
      "if (0)\n            return UINT64_MAX;")
plant("fclose(f->file);", "(void)0;")
within("tools/safetensors.h", PLAIN, "convert")
plant("begin > end || end > data_size", "begin > end || end > data_size + 1")
plant("if (at != f->size)", "if (0)")
plant("shape->size > 16", "shape->size > 1000")
plant("memchr(v->key, 0, v->key_size)", "0")
plant("size > SOURCE_MAX_HEADER)", "0)")
plant("t->ndim = shape->size > SOURCE_MAX_DIMS ? 0 : (int)shape->size;",
      "t->ndim = (int)(shape->size & 3);")
within("tools/huggingface.h", PLAIN, "convert")
plant("if (v && v->kind == JSON_ARRAY && v->size > 0)\n        v++;", "")
plant("s->says_untied = v && v->kind == JSON_FALSE;", "s->says_untied = v && v->kind == JSON_TRUE;")
plant("memchr(v->text, '\\\\', v->size) || ", "")
plant("memchr(v->text, 0, v->size)", "0")
plant("hf_number(ctx, root, \"n_positions\", \"n_ctx\", &s->n_ctx)",
      "hf_number(ctx, root, \"n_positions\", NULL, &s->n_ctx)")
within("tools/llmc.h", PLAIN, "convert")
plant("(i == 4 ? SOURCE_MAX_LAYERS : SOURCE_MAX_SIZE)", "SOURCE_MAX_SIZE")
plant("n[3] == 50257 ? 50256 : SOURCE_UNSAID", "SOURCE_UNSAID")
plant("if (n[7] < n[3])", "if (n[7] <= n[3])")
plant("at += t->size + source_size(dtype, parts[i].padding);", "at += t->size;")
within("tools/gguf.h", PLAIN, "convert")
plant("if (g->at + size > SOURCE_MAX_HEADER &&", "if (0 &&")
plant("if (v && count > VOCAB_MAX_TOKENS) {", "if (0) {")
plant("if (is_signed && bytes[size - 1] & 0x80)", "if (0)")
plant("if (key < N_KEYS && values[key].present) {", "if (0) {")
plant("t->shape[n_dims - 1 - i]", "t->shape[i]")
plant("t->dtype == SOURCE_Q8_0 && t->shape[t->ndim - 1] % 32", "0")
plant("t->offset % alignment ||", "0 ||")
plant("if (type == GGUF_TOKEN_UNUSED)", "if (0)")
plant("id != s->n_head)", "0)")
plant("alignment > 1 << 20", "0")
plant("if (depth > 4)", "if (0)")
plant("if (memchr(name.text, 0, name.size))", "if (0)")
within("tools/json.h", PLAIN, "convert")
plant("if (j->n == JSON_MAX_VALUES) {", "if (0) {")
plant("if (depth >= JSON_MAX_DEPTH)", "if (depth > JSON_MAX_DEPTH)")
plant("return 0x10000 + ((high - 0xd800) << 10)", "return ((high - 0xd800) << 10)")
plant("*j->p == '\\r' || ", "")
plant("(s[0] == 0xe0 && s[1] < 0xa0) || ", "")
plant("(s[0] == 0xf4 && s[1] > 0x8f)", "0")
plant("v->size > 19)", "0)")
plant("*first == '0' && n > 1", "0")
within("tools/vocab.h", PLAIN, "convert")
plant("if (n_tokens > VOCAB_MAX_TOKENS || n_merges > VOCAB_MAX_TOKENS)", "if (0)")
plant("memchr(blank + 1, ' ', size - left - 1)", "0")
plant("if (n && p[n - 1] == '\\r')", "if (0)")
plant("byte <= 66 ? byte - 33 + 127 : 173", "byte <= 65 ? byte - 33 + 127 : 173")
plant("json_u64(m, &number) && vocab_add_special", "0 && vocab_add_special")
plant("return vocab_refuse(ctx, \"use_regex is false\");", "(void)0;")
plant("return vocab_refuse(ctx, \"ignore_merges is true\");", "(void)0;")
plant("return vocab_refuse(ctx, \"byte_fallback is true\");", "(void)0;")
plant("return vocab_refuse(ctx, \"it has a continuing_subword_prefix\");", "(void)0;")
plant("return vocab_refuse(ctx, \"it has an end_of_word_suffix\");", "(void)0;")
plant("n_special += v->tokens[i].special && v->tokens[i].size;",
      "n_special += v->tokens[i].special;")
plant("found && id < v->n_tokens && v->tokens[id].special", "found && v->tokens[id].special")
plant("line == 1 && n >= 8", "n >= 8")
within("tools/files.h", PLAIN, "convert")
plant("hash ^= hash >> 32;", "")
plant("table->seed = system_seed();", "table->seed = 0;")
plant("while (n / 2 < count", "while (n < count")
plant("if (n == capacity) {", "if (n > capacity) {")
plant("if (n + 8 > sizeof(shown)) {", "if (n + 1 > sizeof(shown)) {")
plant("if (control == 0)", "if (1)")
within("tools/attn-tokenize.c", PLAIN, "convert tools")
plant("id > INT32_MAX ||", "0 ||")
within("tools/program.h", PLAIN, "convert tools mistakes")
plant("if (fflush(stdout) == 0 && !lost)", "if (1)")
plant("last[j - 1] + (a[i - 1] != b[j - 1])", "last[j - 1] + 1")
plant("distance <= n / 3 + (n > 1)", "1")
plant("0 - (uint64_t)number", "(uint64_t)number")

# What is refused, each time: arguments, files, vocabularies.
within("attn.h", PLAIN,
       "corners format tokenizer tensors ops hooks lens sampling model sizes")
refusals("attn__fail")
for name in ("attn-convert.c", "attn-info.c", "attn-tokenize.c", "source.h", "safetensors.h",
             "huggingface.h", "llmc.h", "gguf.h", "json.h", "vocab.h", "files.h", "program.h",
             "prompt.h"):
    within("tools/" + name, PLAIN, "convert tools lens-tool mistakes")
    refusals("tool_fail|vocab_refuse|hf_refuse|fail")

# --- planting -------------------------------------------------------------------------------------


class Mistake(Exception):
    """What is wrong with the table, or with the sources before anything is planted."""


def copy_sources():
    """Brings the private copy up to date."""
    for directory, names, files in os.walk("."):
        names[:] = [n for n in names if not n.startswith(".") and
                    os.path.join(directory, n) != "./build" and n != "__pycache__"]
        target = os.path.join(TREE, directory)
        os.makedirs(target, exist_ok=True)
        for name in files:
            old, new = os.path.join(directory, name), os.path.join(target, name)
            with open(old, "rb") as file:
                content = file.read()
            if os.path.exists(new):
                with open(new, "rb") as file:
                    if file.read() == content:
                        continue
            shutil.copy(old, new)
    os.makedirs(TREE + "/build", exist_ok=True)


def memory_of(way):
    """What its programs may ask for; a sanitizer wants all addresses there are."""
    return None if way == CHECKED else MEMORY


def run(command, limit, memory):
    """Status (None: too slow) and output of a command in the copy."""
    def bound():
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
    process = subprocess.Popen(
        command, cwd=TREE, env=environment, start_new_session=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, preexec_fn=bound)
    try:
        output = process.communicate(timeout=limit)[0]
        return process.returncode, output.decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None, ""


def build(way, suites):
    """Makes what these suites need. What the programs are fed stays as the right ones made it."""
    name, flags = way
    made = "build/" + name
    programs = sorted({p for s in suites for p in NEEDS.get(s, [])})
    fed = [made + "/" + f for f in ("tiny-stories.attn", "from_scratch/plain.attn", "fuzz/long.attn")]
    command = ["make", "-s", "BUILD=" + made, "CFLAGS=" + flags]
    if set(suites) == set(ALL_SUITES):
        targets = ["all", made + "/test", made + "/fuzz/replay", made + "/faults.so",
                   made + "/tests/saving", made + "/tests/saving-read", made + "/tests/threads"] + fed
        targets += [made + "/from_scratch/" + f[:-2] for f in os.listdir("examples/from_scratch")
                    if f.endswith(".c")]
    else:
        targets = [made + "/test"] + [made + "/" + p for p in programs] + fed
    if all(os.path.exists(TREE + "/" + f) for f in fed):
        for f in fed:
            command += ["-o", f]
    status, output = run(command + targets, 900, memory_of(way))
    if not os.path.exists(TREE + "/build/tiny-stories.attn"):  # where programs look by themselves
        shutil.copy(TREE + "/" + fed[0], TREE + "/build")
    return status, output


def test(way, suites, limit):
    """Who noticed: a case, or what happened; None if nobody did."""
    shutil.rmtree(TREE + "/build/test-tmp", ignore_errors=True)  # what an earlier error left there
    status, output = run(["build/%s/test" % way[0]] + list(suites), limit, memory_of(way))
    if status == 0:
        return None
    failed = [line for line in output.split("\n") if line.startswith("FAILED ")]
    if failed:
        return failed[0].split()[1]
    return "it hangs" if status is None else "signal %d" % -status if status < 0 else "exit"


def forget_objects(way, file, suites):
    """attn.h is in every program, but only these hold what is behind its declarations. The others
    need not be compiled again, which is why the file keeps its date (see planted)."""
    if file != "attn.h":
        return
    needed = {"tests/test_kernels.o": "kernels", "tests/test_fma.o": "fma",
              "tests/saving-read": "faults"}
    for name in ["attn.o", "bench"] + sorted(needed):
        if name == "attn.o" and set(suites) == {"kernels"}:
            continue
        if name in needed and needed[name] not in suites:
            continue
        path = "%s/build/%s/%s" % (TREE, way[0], name)
        if os.path.exists(path):
            os.remove(path)


def write(file, text):
    """Changes a file of the copy; attn.h keeps its date."""
    path = TREE + "/" + file
    date = os.stat(path)
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    if file == "attn.h":
        os.utime(path, ns=(date.st_atime_ns, date.st_mtime_ns))


def planted(error, right, wrong, way, suites, limit):
    """Plants one error, and gives which of these suites noticed it, or None."""
    write(error.file, wrong)
    forget_objects(way, error.file, suites)
    try:
        status, output = build(way, suites)
        if status != 0:
            raise Mistake("does not compile:\n" + output[-800:])
        return test(way, suites, limit)
    finally:
        write(error.file, right)
        forget_objects(way, error.file, suites)


def usual_time(way, suites):
    """Seconds that these suites take when nothing is wrong."""
    status, output = build(way, suites)
    if status != 0:
        raise Mistake("the sources do not compile:\n" + output[-800:])
    start = time.monotonic()
    noticed = test(way, suites, 900)
    if noticed:
        raise Mistake("%s fail with nothing planted: %s" % (" ".join(suites), noticed))
    return time.monotonic() - start


class Limits:
    """How long the tests may take: measured when it is first asked for, with nothing planted."""

    def __init__(self):
        self.known = {}

    def of(self, way, suites):
        key = way, tuple(suites)
        if key not in self.known:
            self.known[key] = 20 + 5 * usual_time(way, suites)
        return self.known[key]


def who_notices(error, right, wrong, limits, quick):
    noticed = planted(error, right, wrong, error.way, error.suites,
                      limits.of(error.way, error.suites))
    if noticed or error.equivalent or quick:
        return noticed
    return planted(error, right, wrong, ALL_SETS, ALL_SUITES, limits.of(ALL_SETS, ALL_SUITES))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--from", dest="first", type=int, default=1)
    parser.add_argument("--to", dest="last", type=int, default=len(ERRORS))
    options = parser.parse_args()
    sources, mistakes, chosen = {}, 0, []
    for number, error in enumerate(ERRORS, 1):
        if error.file not in sources:
            with open(error.file, encoding="utf-8") as file:
                sources[error.file] = file.read()
        at = error.place(sources[error.file])
        if at < 0:
            mistakes += 1
            print("MISTAKE  %3d %s: %r stands there %d times"
                  % (number, error.file, error.old, sources[error.file].count(error.old)))
        elif options.first <= number <= options.last and \
                (number - options.first) % options.every == 0 and \
                any(options.only in t for t in (error.file, error.old, error.new)):
            chosen.append((number, error, at))
    print("%d errors, %d of them chosen" % (len(ERRORS), len(chosen)))
    if options.check or not chosen:
        return mistakes > 0
    copy_sources()
    limits = Limits()
    caught, survived, same = 0, [], 0
    for number, error, at in chosen:
        right = sources[error.file]
        wrong = right[:at] + error.new + right[at + len(error.old):]
        title = "%3d %s" % (number, error.title(right.count("\n", 0, at) + 1))
        start = time.monotonic()
        try:
            noticed = who_notices(error, right, wrong, limits, options.quick)
        except Mistake as mistake:
            mistakes += 1
            print("MISTAKE  %s\n         %s" % (title, mistake), flush=True)
            continue
        seconds = time.monotonic() - start
        if error.equivalent and noticed:
            mistakes += 1
            print("MISTAKE  %s\n         not equivalent: %s noticed" % (title, noticed), flush=True)
        elif error.equivalent:
            same += 1
            print("same     %s: %s (%.0f s)" % (title, error.equivalent, seconds), flush=True)
        elif noticed:
            caught += 1
            print("caught   %s: %s (%.0f s)" % (title, noticed, seconds), flush=True)
        else:
            survived.append(title)
            print("SURVIVED %s (%.0f s)" % (title, seconds), flush=True)
    whole = caught + len(survived)
    share = 100.0 * caught / whole if whole else 100.0
    print("%d of %d errors noticed, %.1f in 100; %d survived, %d change nothing, %d mistakes"
          % (caught, whole, share, len(survived), same, mistakes))
    return mistakes > 0 or share < BAR


if __name__ == "__main__":
    sys.exit(main())
