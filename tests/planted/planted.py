"""The errors that mutate.py plants: the table.

    within(file, way to build, suites that should notice)
    plant(function, old, new, suites, occurrence=n, equivalent=reason)

An error stands in `function`: there `new` takes the place of `old`. White space in `old` does not
count. planting.py says how a place is found. An error that cannot change any result has its reason
beside it (`equivalent`): it is planted all the same, and must survive."""
from planting import plant, refusals, within

# Ways to build. Where no vector kernel changes, one instruction set is enough, and built in half the
# time; where no kernel matters at all, optimizing is not worth its time.
ALL_SETS = ("sets", "-O1")
ONE_SET = ("one", "-O1 -DATTN_NO_DISPATCH -march=native")
PLAIN = ("plain", "-O0 -DATTN_NO_DISPATCH -march=native")
# What only writes where it should not takes a sanitizer to be noticed; the gate has one.
CHECKED = ("checked", "-O1 -DATTN_NO_SIMD -fsanitize=address")

# The vector operations of each instruction set.
within("attn.h", ALL_SETS, "kernels")
# VNNI
plant("attn__r_weights", "return _mm512_and_si512(high ? _mm512_srli_epi16(line, 4)",
      "return _mm512_and_si512(high ? _mm512_srli_epi16(line, 3)")
plant("attn__r_start", "return _mm512_set1_epi32(start);", "return _mm512_set1_epi32(start - 1);")
plant("attn__r_dot", "_mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x))",
      "_mm512_dpbusd_epi32(_mm512_setzero_si512(), w, _mm512_set1_epi32(x))")
# AVX-512
plant("attn__r_dot", "v = _mm512_mask_sub_epi8(v, w.negative,", "v = _mm512_mask_sub_epi8(v, 0,")
plant("attn__r_start", "return _mm512_set1_epi32(is_q4 ? start : ATTN__MAGIC_I32);",
      "return _mm512_set1_epi32(start);")
plant("attn__r_weights", "line = _mm512_xor_si512(line, _mm512_set1_epi8(-128));",
      "line = _mm512_xor_si512(line, _mm512_set1_epi8(-64));")
plant("attn__r_narrow", "_mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT)",
      "_mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_ZERO)")
plant("attn__r_pick", "_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ)", "_mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ)", "ops")
plant("attn__r_exp2", "_mm512_slli_epi32(_mm512_castps_si512(t), 23)",
      "_mm512_slli_epi32(_mm512_castps_si512(t), 22)", "ops")
plant("attn__r_low", "_mm512_cvtepi32_epi8(_mm512_castps_si512(v))",
      "_mm512_cvtsepi32_epi8(_mm512_castps_si512(v))")
plant("attn__r_most", "return _mm512_reduce_max_ps(v);", "return _mm512_reduce_min_ps(v);")
plant("attn__r_fma", "return _mm512_fmadd_ps(a, b, c);", "return _mm512_add_ps(_mm512_mul_ps(a, b), c);")
# AVX2
plant("attn__r_narrow", "_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)",
      "_mm256_cvtps_ph(v, _MM_FROUND_TO_ZERO)")
plant("attn__r_pick", "_mm256_cmp_ps(a, b, _CMP_GT_OQ)", "_mm256_cmp_ps(a, b, _CMP_NLE_UQ)", "ops")
plant("attn__r_low", "_mm_packs_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1))",
      "_mm_packs_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 0))")
plant("attn__r_most", "m = _mm_max_ps(m, _mm_movehl_ps(m, m));", "m = _mm_max_ps(m, m);")
plant("attn__r_total", "s = _mm_add_ps(s, _mm_movehl_ps(s, s));", "s = _mm_add_ps(s, s);")
plant("attn__r_dot", "v = _mm256_sign_epi8(v, w.sign);", "v = _mm256_sign_epi8(v, w.size);")
plant("attn__r_weights", "w.size = _mm256_and_si256(high ? _mm256_srli_epi16(line, 4)",
      "w.size = _mm256_and_si256(high ? _mm256_srli_epi16(line, 3)")
plant("attn__r_fma", "return _mm256_fmadd_ps(a, b, c);", "return _mm256_add_ps(_mm256_mul_ps(a, b), c);")
plant("attn__r_exp2", "_mm256_slli_epi32(_mm256_castps_si256(t), 23)",
      "_mm256_slli_epi32(_mm256_castps_si256(t), 24)", "ops")
# SSE2
plant("attn__r_pick", "_mm_or_ps(_mm_and_ps(mask, x), _mm_andnot_ps(mask, y))",
      "_mm_or_ps(_mm_and_ps(mask, y), _mm_andnot_ps(mask, x))")
plant("attn__r_low", "__m128i low = _mm_and_si128(_mm_castps_si128(v), _mm_set1_epi32(255));",
      "__m128i low = _mm_and_si128(_mm_castps_si128(v), _mm_set1_epi32(127));")
plant("attn__r_dot", "_MM_SHUFFLE(3, 1, 3, 1)", "_MM_SHUFFLE(2, 0, 2, 0)")
plant("attn__r_weights", "line = _mm_sub_epi8(line, _mm_set1_epi8(8));",
      "line = _mm_sub_epi8(line, _mm_set1_epi8(7));")
plant("attn__r_weights", "w.high = _mm_srai_epi16(_mm_unpackhi_epi8(line, line), 8);",
      "w.high = _mm_srai_epi16(_mm_unpacklo_epi8(line, line), 8);")
plant("attn__r_narrow", "p[i] = attn_f16_from_f32(lanes[i]);", "p[i] = attn_f16_from_f32(lanes[i & 2]);")
# portable C
plant("attn__r_weights", "- 8 : p[i] - 128;", "- 8 : p[i] - 127;")
plant("attn__r_weights", "(high ? p[i] >> 4 : p[i] & 15) - 8", "(high ? p[i] >> 4 : p[i] & 7) - 8")
plant("attn__r_exp2", "p_bits += t_bits << 23;", "p_bits += t_bits << 22;", "ops")
plant("attn__r_fma", "return attn__fmaf(a, b, c); #else attn__reg product",
      "return a * b + c;\n#else\n    attn__reg product")
plant("attn__r_dot", "for (int i = 0; i < 4; i++) acc +=", "for (int i = 0; i < 3; i++) acc +=")
# fused multiply-add where there is none in hardware
plant("attn__fmaf", "(lost < 0 || lost > 0) && (bits & 1) == 0", "(lost < 0 || lost > 0) && 0")
plant("attn__fmaf", "(lost > 0) == (sum > 0) ? bits + 1 : bits - 1", "(lost > 0) ? bits + 1 : bits - 1")
# which kernels run
plant("attn__features_of", "const unsigned ymm = 0x6, zmm = 0xe6,", "const unsigned ymm = 0x6, zmm = 0x66,")
plant("attn__features_of", "tiles = 0x60000;", "tiles = 0x40000;")
plant("attn__features_of", "tile_int8 = 1u << 24 | 1u << 25;", "tile_int8 = 1u << 24;")
plant("attn__features_of", "features |= ATTN__HAS_AVX512_VNNI; if (", "if (")
plant("attn__features_of", "leaf7c >> 11 & 1", "leaf7c >> 10 & 1")
plant("attn__features_of", "fma_f16c = 1u << 12 | 1u << 29;", "fma_f16c = 1u << 12;")
plant("attn__kernels_of",
      "(attn__choices[i].feature & ~features) == 0)", "features + 1 > 0)")
plant("attn__features_of", "if (leaf7_1a >> 4 & 1)", "if (leaf7_1a >> 3 & 1)")

# The matmul: tiles of f32 and f16, of q8 and q4, their edges, packing, walking. Those that stand in
# the source once are planted in one instruction set only, by turns.
plant("attn__tile", "const size_t end = job->n_k - k < ATTN__CHAIN ? job->n_k : k + ATTN__CHAIN;",
      "const size_t end = ATTN__PASS == 2 ? job->n_k : job->n_k - k < ATTN__CHAIN ? job->n_k : k + ATTN__CHAIN;")
plant("attn__q_tile", "const size_t end = job->n_k - k < ATTN__CHAIN ? job->n_k : k + ATTN__CHAIN;",
      "const size_t end = ATTN__PASS == 4 ? job->n_k : job->n_k - k < ATTN__CHAIN ? job->n_k : k + ATTN__CHAIN;")
plant("attn__tile", "const attn__start start = k == 0 ? job->start : ATTN__SUM;",
      "const attn__start start = k == 0 ? job->start : ATTN__PASS == 3 ? ATTN__RESUME : ATTN__SUM;")
plant("attn__tile", "if (job->bias) ATTN__FN(tile_bias)",
      "if (job->bias && ATTN__PASS != 0) ATTN__FN(tile_bias)")
plant("attn__q_tile", "if (job->bias) ATTN__FN(tile_bias)",
      "if (job->bias && ATTN__PASS != 3) ATTN__FN(tile_bias)")
plant("attn__tile", "line_bytes = is_half ? 32 : 64,",
      "line_bytes = is_half && ATTN__PASS != 1 ? 32 : 64,")
plant("attn__tile", "attn__vfma(x, w[col], acc[row][col]);",
      "attn__vfma(x, w[ATTN__PASS == 3 ? 0 : col], acc[row][col]);")
plant("attn__tile", "const attn__vec x = attn__set1(in[row]);",
      "const attn__vec x = attn__set1(in[ATTN__PASS == 2 ? 0 : row]);")
plant("ATTN__WALK_PANELS", "job->out += n * 16;", "job->out += ATTN__PASS == 3 ? 16 : n * 16;")
plant("ATTN__WALK_PANELS", "job->bias += n * 16;", "job->bias += ATTN__PASS == 4 ? 16 : n * 16;")
plant("pack_rows", "from[stride], from[2 * stride], from[3 * stride]",
      "from[stride], from[2 * stride], from[2 * stride]")
plant("pack_rows", "k++, from += step, to += n_rows) *to = *from;",
      "k++, from += step, to += n_rows) *to = *in;")
plant("attn__q_tile", "const int is_first = k == 0 && job->start == ATTN__FRESH;",
      "const int is_first = k == 0;")
plant("attn__q_tile", "if (k / ATTN__PER_SCALE % 2 == 1) {", "if (k / ATTN__PER_SCALE % 2 == (ATTN__PASS != 2)) {")
plant("attn__q_tile", "attn__i_scaled(sum[row][col], in + row)",
      "attn__i_scaled(sum[row][col], in + (ATTN__PASS == 3 ? 0 : row))")
plant("attn__q_tile", "scales += 32;", "scales += ATTN__PASS == 4 ? 0 : 32;")
plant("attn__q_tile", "attn__i_start(in[row].start, is_q4)",
      "attn__i_start(in[ATTN__PASS == 2 ? 0 : row].start, is_q4)")
plant("q_line", "attn__i_weights(line + (size_t)col * stride, is_q4, high);",
      "attn__i_weights(line + (size_t)col * stride, is_q4, ATTN__PASS == 0 ? 0 : high);")
plant("q_lines", "const unsigned char *at = line + (size_t)col * stride;",
      "const unsigned char *at = line + (size_t)(col & 6) * stride;")
plant("q_lines", "(sum, 1, col, 1, is_q4, step, in, at, stride);", "(sum, 1, 0, 1, is_q4, step, in, at, stride);")
plant("q_line", "in[row].bytes + 4 * (step + high), is_q4);",
      "in[row].bytes + 4 * (step + (ATTN__PASS == 4 ? 0 : high)), is_q4);")
plant("attn__matmul_panels", "const int is_alone = n_blocks == 1;", "const int is_alone = n_blocks == 2;",
      equivalent="the same sums, in other groups of panels")
plant("attn__matmul_panels", "tile.n_rows = n;", "tile.n_rows = n - (n == 4);")
plant("quantize", "attn__vdiv(most, l)", "attn__vdiv(attn__set1(126.5f), l)")
plant("quantize", "attn__vdiv(l, most)", "attn__vmul(l, attn__set1(1 / 127.0f))")
plant("quantize", "bits &= ~(uint32_t)3;", "bits &= ~(uint32_t)7;")
plant("quantize", "attn__vsub(t, t)", "none")
plant("quantize", "attn__vpick(l, high, attn__set1(NAN), s)", "s")
plant("quantize", "attn__low_bytes(to[i * step].bytes + 16, b);", "attn__low_bytes(to[i * step].bytes + 16, a);")
plant("quantize", "attn__vmax(a, attn__vsub(none, a))",
      "(ATTN__PASS == 2 ? a : attn__vmax(a, attn__vsub(none, a)))")
plant("quantize", "attn__vfma(t, attn__set1(-zero), magic)", "attn__vfma(t, attn__set1(1 - zero), magic)")
plant("quantize_rows", "x[i] = i < n ? from[(ptrdiff_t)i * step] : 0;",
      "x[i] = i < n ? from[(ptrdiff_t)i * step] : 9;")
plant("quantize_rows", "to += n / 32 * n_rows", "to += n / 32")
plant("attn__r_max", "return _mm512_max_ps(a, b);", "return _mm512_min_ps(a, b);", "ops")
plant("attn__r_max", "return _mm256_max_ps(a, b);", "return _mm256_min_ps(a, b);", "ops")
plant("attn__r_max", "return _mm_max_ps(a, b);", "return _mm_min_ps(a, b);", "ops")
plant("attn__matmul_panels", "to - row, n_k, attn__weight_type_of(dtype)->zero);", "to - row, n_k, 128);")
plant("attn__edge", "row < tile->n_rows && tile->start != ATTN__FRESH; row++",
      "row < tile->n_rows && 0; row++")
plant("attn__group", "n_whole - n_whole % tiles->cols;", "n_whole - n_whole % tiles->cols / 2;")
plant("attn__group", "(tile->n_rows == 1 && !attn__is_quantized(dtype));", "tile->n_rows == 1;")
plant("attn__group", "for (; n < n_whole; n++)", "for (; n + 1 < n_whole; n++)")
plant("attn__tile_end", "if ((size_t)row < n_real) attn__store", "attn__store")
plant("attn__tile_end", "if ((size_t)row < n_real) acc", "if (row < 1) acc")
plant("tile_bias", "row < job->n_rows; row++", "row < 1; row++")
plant("attn__r_half", "_mm_set1_epi32(0x0f7fffff)", "_mm_set1_epi32(0x0fffffff)")
plant("attn__r_half", "_mm_set1_ps(5.19229686e33f)", "_mm_set1_ps(5.1922963e33f)")
plant("attn__r_half", "_mm_slli_epi32(_mm_and_si128(half, _mm_set1_epi32(0x8000)), 16)",
      "_mm_slli_epi32(_mm_and_si128(half, _mm_set1_epi32(0x8000)), 15)")
plant("attn__edge", "tile->out_stride = stride;", "")
plant("attn__edge", "memcpy(out + row * stride, lines + row * 16, n_part * sizeof(float));",
      "memcpy(out + row * stride, lines + row * 16, 16 * sizeof(float));")
plant("attn__streams", "panel0 < n_whole ? (n_whole - panel0) / cols : 0;", "(n_whole - panel0) / cols;")
plant("attn__streams", "panel1 * 16 > job->w.n_out ? panel1 - 1 : panel1;", "panel1;")
plant("attn__streams", "sums[i] + stream * 16,", "sums[i],")
plant("attn__streams", "(stream * length + first + i) * 16,", "(stream * length + i) * 16,")
plant("attn__streams", "if (job->bias)", "if (job->bias && panel0 > 0)")
plant("attn__streams", "job->bias + panel0 * 16, length * cols * 16);", "job->bias, length * cols * 16);")
plant("attn__streams", "tile->panel_stride = job->w.stride;", "")
plant("attn__matmul_panels", "n_k == n_in && job->start == ATTN__FRESH)", "n_k == n_in)")
plant("attn__matmul_panels", "tile.start = k > 0 ? ATTN__SUM : job->start;", "tile.start = job->start;")
plant("attn__matmul_panels", "(ptrdiff_t)row0 * job->in_stride + k", "(ptrdiff_t)row0 * job->in_stride")
plant("attn__matmul_panels", "n_rows == 1 && !quantized && job->in_step == 1;", "n_rows == 1 && !quantized;")
plant("attn__matmul_panels", "tile.bias = k + n_k == n_in && job->bias ?", "tile.bias = job->bias ?")
plant("attn__matmul_panels", "panel * job->w.stride + attn__line_of(dtype, k);",
      "panel * job->w.stride + attn__line_of(dtype, k & 1024);")
plant("attn__matmul_panels", "const size_t to = row + rows + (block < n_larger);", "const size_t to = row + rows;")
plant("attn__matmul_panels", "for (; row0 < row1; row0 += max_rows) {", "for (; row0 < row1; row0 += max_rows + 1) {")
plant("attn__tile", "i < job->n_ahead; i++)", "i < 1; i++)",
      equivalent="it only fetches ahead")
plant("ATTN__WALK_PANELS", "n_panels >= (cols) ?", "n_panels > (cols) ?",
      equivalent="as many panels, in other groups")
plant("ATTN__WALK_PANELS", "n_panels >= (few) ? (few) : 1;", "n_panels >= (few) - 1 ? (few) : 1;")
plant("ATTN__WALK_PANELS", "kernel(rows, few, flag, job);", "kernel(rows, 1, flag, job);")

# Packing weights, and entries of panels.
within("attn.h", ONE_SET, "kernels tensors model")
plant("attn__panels_get", "((1 << t->bits) - 1)) - t->zero;", "((1 << t->bits) - 1)) - 128;")
plant("attn__bits_at", "(int)(four % 2) * 4;", "(int)(four % 2) * 2;")
plant("attn__weight_type_of", "1088, 8, 128, -127, 127}", "1088, 8, 127, -127, 127}")
plant("attn__panels_get", "memcpy(&half, scales + (j / 32 * 16 + n % 16) * 2, 2);",
      "memcpy(&half, scales + n % 16 * 2, 2);")
plant("attn__quantize_weights", "fabsf(largest) / 127 :", "fabsf(largest) / 128 :")
plant("attn__quantize_weights", "if (fabsf(x[i]) > fabsf(largest))", "if (x[i] > fabsf(largest))")
plant("attn__closest_scale", "(float)(j < 0 ? j - 50 : j + 60) * 0.125f / largest;", "8.0f / largest;")
plant("attn__quantize_weights", "q = y <= (float)t->lowest ? t->lowest : y >= (float)t->highest ? t->highest : (int)y;",
      "q = (int)y;")
plant("attn__quantize_weights", "half++; /* among", "(void)0; /* among")
plant("attn__quantize_lane", "(*at | bits[k] << shift);", "(bits[k] << shift);")
plant("attn__pack_panels", "x[i] = lane < n_lanes && k + i < n_in", "x[i] = lane < n_lanes && k + i <= n_in")
plant("attn__pack_panels", "for (; lane < 16; lane++) row[lane] = 0;", "")
plant("attn__quantize_lane", "memcpy(lines + (first / ATTN__PER_SCALE * 16 + lane) * 2, &half, 2);",
      "memcpy(lines + lane * 2, &half, 2);")
plant("attn__matmul", "row_parts > 1 && (me->count % row_parts != 0 ||", "row_parts > 1 && (0 ||",
      "model ops")
plant("attn__share", "*last = (size_t)((uint64_t)n * ((uint64_t)me->id + 1) / (uint64_t)me->count);",
      "*last = (size_t)((uint64_t)n * ((uint64_t)me->id + 1) / (uint64_t)me->count) - (me->id == 2);",
      "model ops")
plant("attn__barrier", "attn__until(team, &team->phase, phase + 1);", ";", "model ops")
plant("attn__gait_note", "5 * usual + 0.01", "5 * usual", "kernels")
plant("attn__gait_window", "attn__gait_is_late(g, 1)", "attn__gait_is_late(g, 0)", "kernels")

# Halfs and numbers as text.
within("attn.h", PLAIN, "tensors")
plant("attn__unchain", "if (!block->before && ctx->blocks != block)", "if (0)")
plant("attn__unchain", "block->next->before = block->before;", "(void)0;")
plant("attn__chain", "block->next->before = block;", "(void)0;")
plant("attn__fail", "before < 0x80 && *at >= 0x80 && *at < 0xa0", "0", "model")
plant("attn_format", "x.ndim < 1 || x.ndim > 4)", "x.ndim < 1)")
plant("attn__fail", "*at = '?';", "(void)0;", "model")
plant("attn__fail", "at[1] < 0xa0) at[0]", "at[1] < 0x9b) at[0]", "model")
plant("attn__need_any", "(x->ndim > 0 && (unsigned)x->dtype > ATTN_I32)", "0")
plant("attn__pack_body", "if (!(fabsf(attn_get2(*p->w, k, j)) < 65520.0f))",
      "if (!(fabsf(attn_get2(*p->w, k, j)) < 1e30f))")
plant("attn_f32_from_f16", "value = (float)fraction * (1.0f / 16777216.0f);",
      "value = (float)fraction * (1.0f / 8388608.0f);")
plant("attn_f32_from_f16", "(fraction ? 0x400000u : 0);", "0;")
plant("attn_f16_from_f32", "if (bits >= 0x477ff000u)", "if (bits > 0x477ff000u)",
      equivalent="65520 is a tie, and the even one of the two is infinity")
plant("attn_f16_from_f32", "if (bits < 0x33000000u)", "if (bits <= 0x33000000u)",
      equivalent="half of the smallest is a tie, and goes to zero either way")
plant("attn_f16_from_f32", "(round == 1u << (shift - 1) && (rest & 1))", "(round == 1u << (shift - 1))")
plant("attn_f16_from_f32", "shift = 126 - (int)(bits >> 23);", "shift = 125 - (int)(bits >> 23);")
plant("attn__write_float", "(rest == half && (m >> shift & 1))); e = 0;", "rest == half); e = 0;",
      "tensors ops")

# Kernels over rows.
within("attn.h", ALL_SETS, "ops")
plant("binary", "r = attn__vsub(x, y);", "r = attn__vsub(y, x);")
plant("attn__fold", "s[i] = s[i] + s[i + half];", "s[i] = s[2 * i] + s[2 * i + 1];")
plant("square_distance", "attn__get(x + i, n_part, center), c);", "attn__get(x + i, n_part, 0), c);")
plant("scale_mask",
      "attn__put(out + i, attn__vfma(attn__get(x + i, n_part, 0), f, attn__get(mask + i, n_part, 0)),",
      "attn__put(out + i, attn__vfma(attn__get(x + i, n_part, 0), f, attn__set1(0)),")
plant("softmax", "attn__vexp(attn__vsub(attn__get(x + i, n_part, -INFINITY), m))",
      "attn__vexp(attn__vsub(attn__get(x + i, n_part, 0), m))")
plant("log_sum_exp", "attn__vexp(attn__vsub(attn__get(x + i, n_part, -INFINITY), m))",
      "attn__vexp(attn__vsub(attn__get(x + i, n_part, 0), m))")
plant("largest", "const attn__vec v = attn__get(x + i, n_part, -INFINITY);",
      "const attn__vec v = attn__get(x + i, n_part, 0);")
plant("largest_or_nan", "spoiled = attn__vpick(top, v, spoiled, attn__vpick(v, bottom, spoiled, one));",
      "spoiled = attn__vpick(top, v, spoiled, one);", "sampling")
plant("largest_or_nan", "return attn__fold(spoiled) > 0 ? (float)NAN : result;", "return result;", "sampling")
plant("attn__r_exp", "0.0416682586f", "0.0416666679f")
plant("attn__r_exp", "attn__r_set1(88.7228394f)", "attn__r_set1(88.0f)")
plant("attn__r_exp", "attn__r_set1(-87.3365402f)", "attn__r_set1(-87.0f)")
plant("attn__r_exp", "attn__r_set1(-1.42860677e-06f), r)", "attn__r_set1(-1.42860677e-05f), r)")
plant("attn__r_gelu_tanh", "attn__r_set1(0.044715f)", "attn__r_set1(0.0447f)")
plant("attn__r_silu", "attn__r_pick(attn__r_set1(-88.7f), x,", "attn__r_pick(attn__r_set1(-1000.0f), x,", "ops")
plant("attn__r_gelu_tanh", "attn__r_pick(attn__r_set1(-10.0f), x,",
      "attn__r_pick(attn__r_set1(-9.0f), x,")
plant("attn__r_tail", "p = ATTN__STEP(p, q, -0.206402615f);", "p = ATTN__STEP(p, q, -0.206403f);")
plant("attn__r_tail", "q = attn__r_fma(s, e, q);", "q = attn__r_fma(s, zero, q);")
plant("attn__r_tail", "return attn__r_fma(e, attn__r_mul(minus_half, l), e);", "return e;")
plant("attn__log", "y = y + (lost + p);", "y = y + p;", "ops lens")
plant("attn__log", "p = attn__fmaf(p, f, -0.250000119f);", "p = attn__fmaf(p, f, -0.25f);", "ops lens")
plant("attn__log", "y = x <= FLT_MAX ? y : x + INFINITY;", "", "ops lens")
plant("digest", "words = padded;", "", "format")
plant("digest", "lanes[j] = a ^ (a >> 15);", "lanes[j] = a ^ (a >> 14);", "format")
plant("digest", "memset(padded, 0, sizeof padded);", "(void)0;", "format")

# Operations of tier 1.
within("attn.h", ONE_SET, "ops tensors")
plant("attn__visible", "const size_t n = h->first + row + 1;", "const size_t n = h->first + row + 2;")
plant("attn__head_scores", "s[key] = -INFINITY;", "s[key] = -1e4f;")
plant("attn__head_weigh", "(common - 1) / ATTN__CHAIN * ATTN__CHAIN : 0;", "0 : 0;", "ops model")
plant("attn__head_weigh", "job.start = ATTN__RESUME;", "job.start = ATTN__SUM;", "ops model")
plant("attn__query_block", "const size_t room = ATTN__QUERIES - first % ATTN__QUERIES;",
      "const size_t room = ATTN__QUERIES;", "ops model")
plant("attn__row_softmax_causal",
      "const size_t visible = n - args->n_queries + args->row % args->n_queries + 1;",
      "const size_t visible = args->row % args->n_queries + 1;")
plant("attn__row_log_softmax", "out[i] = (x[i] - largest) - log_sum;", "out[i] = x[i] - log_sum;")
plant("attn__moments", "kernels->square_distance(x, *mean, n) / (float)n + eps)",
      "kernels->square_distance(x, *mean, n) / (float)n + 0 * eps)")
plant("attn__row_variance", "square_distance(x, mean, n) / ((float)n - args->number);",
      "square_distance(x, mean, n) / (float)n;")
plant("attn__row_cross_entropy", "(x[((const int32_t *)targets->data)[at]] - largest);",
      "x[((const int32_t *)targets->data)[at]];")
plant("attn__row_cross_entropy", "(ptrdiff_t)args->row * targets->stride[0];", "(ptrdiff_t)args->row;")
plant("attn__attention_check", "a->scale = desc && desc->scale != 0 ? desc->scale :",
      "a->scale = 0 ? desc->scale :")
plant("attn__attention_body", "h.first = a->causal ? a->n_keys - a->n_queries + row : 0;",
      "h.first = a->causal ? row : 0;")
plant("attn__row_offset", "offset += (ptrdiff_t)(index % n) * x->stride[d];",
      "offset += (ptrdiff_t)index * x->stride[d];")
plant("attn_reshape", "if (x.stride[from] != expected)", "if (0)")
plant("attn_reshape", "while (n_to * shape.dim[to] > n_from) {", "while (n_to * shape.dim[to] >= n_from) {")
plant("attn_slice", "if (start > x.shape[d] || count > x.shape[d] - start)", "if (start > x.shape[d])")
plant("attn_select", "if (index >= x.shape[d])", "if (index > x.shape[d])")
plant("attn__broadcast", "if (m != n && m != 1 && n != 1)", "if (m != n && m != 1)")
plant("attn__row_tril", "i <= last ? x[i] : 0;", "i < last ? x[i] : 0;")
plant("attn_mask_causal", "i + n_queries <= row + n_keys ? 0", "i <= row ? 0")
plant("attn__measure", "n > PTRDIFF_MAX)", "0)")
plant("attn_rng_seed", "rng->next = 624;", "rng->next = 0;")
plant("attn_rng_u32", "y ^= (y << 15) & 0xefc60000u;", "y ^= (y << 15) & 0xefc61000u;")
plant("attn_randn", "if (n > 16 && n % 16 != 0) {", "if (0) {")
plant("attn__log_double", "f < 0.70710678118654752440", "f < 0.5")
plant("attn__cos_sin", "(quarter & 2 ? s : -s)", "(quarter & 2 ? -s : s)")
plant("attn__row_dropout", "d->draw * 1132489760u % 2147483647u;", "d->draw * 1132489761u % 2147483647u;")
plant("attn__row_dropout", "if (args->row == 0)", "if (1)")
plant("attn__need_ids", "(size_t)id >= n_vocab", "(size_t)id > n_vocab")

# The reader of .attn files.
within("attn.h", PLAIN, "format")
plant("attn__read_header", "m->size < 8 || memcmp(h, attn__magic, 8) != 0",
      "m->size < 8 || memcmp(h, attn__magic, 5) != 0")
plant("attn__read_header", "if (m->size < ATTN__HEADER)", "if (m->size < 8)")
plant("attn__read_header", "attn__u32(h + 8) < 1 ||", "")
plant("attn__read_header", "|| attn__u32(h + 8) > 2)", ")")
plant("attn__read_header", "attn__u32(h + 52) >> 1 & 1", "0", "family")
plant("attn__read_header", "attn__u32(h + 52) >> 2 & 1", "0", "family")
plant("attn__read_header", "if (!attn__header_is_whole(h))", "if (0)")
plant("attn__read_header", "if (attn__u64(h + 16) > m->size)", "if (0)")
plant("attn__read_header", "if (attn__u64(h + 16) < m->size)", "if (0)")
plant("attn__read_file", "!attn__header_is_whole(block) || *size", "*size")
plant("attn__read_file", "|| *size > attn__u64(block + 16)))", "))")
plant("attn__check_config", "sizes[i].value == 0 ||", "")
plant("attn__check_config", "sizes[i].value > sizes[i].most", "0")
plant("attn__check_config", "c->d_model % c->n_head != 0", "0")
plant("attn__check_config", "attn__u32(h + 12) != ATTN__HEADER", "0")
plant("attn__check_config", "attn__u32(h + 52) > (version == 1 ? 1 : 7)", "0")
plant("attn__check_config", "version == 1 ? 1 : 7", "7")
plant("attn__check_config", "version > 1 && attn__u32(h + 68) > ATTN_ACT_SILU", "0")
plant("attn__check_config", "c->ln_eps >= 0 && c->ln_eps <= 1", "c->ln_eps >= 0")
plant("attn__check_config", "c->ln_eps >= 0 && c->ln_eps <= 1", "c->ln_eps <= 1")
plant("attn__check_config", "!(c->ln_eps >= 0 && c->ln_eps <= 1)", "c->ln_eps < 0 || c->ln_eps > 1")
plant("attn__check_config", "c->bos < -1 ||", "")
plant("attn__check_config", "c->bos >= (int32_t)c->n_vocab ||", "c->bos > (int32_t)c->n_vocab ||")
plant("attn__check_config", "c->eos < -1 ||", "0 ||")
plant("attn__check_config", "c->eos >= (int32_t)c->n_vocab)", "c->eos > (int32_t)c->n_vocab)")
plant("attn__lies_within", "offset % 64 == 0 &&", "")
plant("attn__lies_within", "offset <= file_size &&", "")
plant("attn__lies_within", "&& size <= file_size - offset;", ";")
plant("attn__check_zeros", "for (; from < to; from++) if (m->bytes[from] != 0)",
      "for (; from + 1 < to; from++) if (m->bytes[from] != 0)")
plant("attn__read_entry", "if (r[0] == 0 || memchr(r, 0, 64) == NULL)", "if (memchr(r, 0, 64) == NULL)")
plant("attn__read_entry", "if (r[0] == 0 || memchr(r, 0, 64) == NULL)", "if (r[0] == 0)")
plant("attn__read_entry", "attn__check_zeros(ctx, m, path, at + strlen(t->name), at + 64) ||", "")
plant("attn__read_entry", "attn__check_zeros(ctx, m, path, at + 76, at + 80) ||", "")
plant("attn__read_entry",
      "attn__check_zeros(ctx, m, path, at + 76, at + 80) || attn__check_zeros(ctx, m, path, at + 120, at + 128))",
      "attn__check_zeros(ctx, m, path, at + 76, at + 80))")
plant("attn__read_entry", "dtype > ATTN_Q4 || dtype", "dtype")
plant("attn__read_entry", "dtype == ATTN_I32 || layout", "layout")
plant("attn__read_entry", "layout > 1 || (layout", "(layout")
plant("attn__read_entry", "(layout == 0 && dtype > ATTN_F16)", "0")
plant("attn__read_entry", "ndim < 1 || ndim > 2 ||", "ndim > 2 ||",
      equivalent="refused a moment later: no tensor of a model has 0 dimensions")
plant("attn__read_entry", "ndim < 1 || ndim > 2 ||", "ndim < 1 ||")
plant("attn__read_entry", "t->shape[0] == 0 ||", "",
      equivalent="refused a moment later: 0 bytes are expected")
plant("attn__read_entry", "t->shape[0] > 1u << 26 ||", "0 ||")
plant("attn__read_entry", "t->shape[1] == 0 ||", "",
      equivalent="refused a moment later: 0 bytes are expected")
plant("attn__read_entry", "t->shape[1] > 1u << 26 ||", "0 ||")
plant("attn__read_entry", "(ndim == 1 && t->shape[1] != 1)", "0",
      equivalent="such a vector is refused a moment later, by its size or by its first dimension")
plant("attn__read_entry", "expected == 0 || t->size != expected ||", "expected == 0 ||")
plant("attn__read_entry", "t->offset - *end >= 64)", "0)")
plant("attn__read_entry", "if (attn__check_zeros(ctx, m, path, *end, t->offset) != ATTN_OK)", "if (0)")
plant("attn__read_sections", "if ((attn__u32(h + 8) == 1 && attn__check_zeros(ctx, m, path, 68, 72)) ||", "if (")
plant("attn__put_config", "flags > 1 || act_fn ? 2 : 1", "2", "format")
plant("attn__put_config", "attn__put_u32(h + 68, act_fn);", "", "family")
plant("attn__read_sections", "attn__check_zeros(ctx, m, path, 120, 248))", "0)")
plant("attn__read_sections", "n == 0 || table != ATTN__HEADER ||", "table != ATTN__HEADER ||",
      equivalent="refused a moment later: bytes follow, or a tensor is missing")
plant("attn__read_sections", "n == 0 || table != ATTN__HEADER ||", "n == 0 ||")
plant("attn__read_sections", "table_size != n * ATTN__ENTRY ||", "0 ||")
plant("attn__read_sections", "!attn__lies_within(table, table_size, m->size))", "0)")
plant("attn__read_sections", "attn_checksum(0, h + table, (size_t)table_size) != attn__u64(h + 88)", "0")
plant("attn__read_sections", "text != end || !attn__lies_within", "!attn__lies_within")
plant("attn__read_sections", "text != end || !attn__lies_within(text, text_size, m->size)", "text != end")
plant("attn__read_sections", "attn_checksum(0, h + text, (size_t)text_size) != attn__u64(h + 112)", "0")
plant("attn__read_tokenizer", "if (attn_tokenizer_n_tokens(*tokenizer) > config->n_vocab)",
      "if (0)")
plant("attn__read_sections", "if (end != m->size)", "if (0)")
plant("attn__verify_weights", "if (chain != w->info.checksum)", "if (0)")
plant("attn__split_name", "(digits > 1 && name[-digits] == '0') ||", "")
plant("attn__bind", "if (!attn__is_bound(&e[i]))", "if (0)")
plant("attn__bind", "if (i == n || attn__is_bound(&e[i]))", "if (i == n)")
plant("attn__bind", "layer < (int)m->config.n_layer ? attn__expect(m, layer, e) : 0",
      "attn__expect(m, layer % (int)m->config.n_layer, e)")
plant("attn__bind_one", "if (t->panels != e->is_panels ||", "if (0 ||")
plant("attn__bind_one", "(!t->panels && t->dtype != ATTN_F32)", "0")
plant("attn__bind_one", "t->ndim != (is_matrix ? 2 : 1) ||", "0 ||")
plant("attn__bind_one", "t->shape[0] != (is_matrix ? e->n_in : e->n_out) ||", "0 ||")
plant("attn__bind_one", "(is_matrix && t->shape[1] != e->n_out)", "0")
plant("attn__bind", "if (found != m->n_weights)", "if (0)")
plant("attn_model_open_memory", "if ((uintptr_t)data % 64 != 0 && size > 0) {", "if (0) {")
plant("attn__read_file", "memcpy(larger, block, *size);", "memcpy(larger, block, room / 2);")
plant("attn__find_source", "(part - all) * width;", "(part - all) * width / 2;", "format lens")
plant("attn__find_source", "s->group_step = width * d;", "s->group_step = width;", "format lens")

# The tokenizer: what it refuses.
within("attn.h", PLAIN, "tokenizer")
plant("attn__mark_special", "size > ATTN__SPECIAL_MAX", "0")
plant("attn__special_at", "attn__special_half(nodes, node, p[depth] & 15u)",
      "attn__special_half(nodes, node, p[depth] & 7u)")
plant("attn__check_ends", "end < previous || end > n_bytes", "end > n_bytes")
plant("attn__check_ends", "end < previous || end > n_bytes", "end < previous")
plant("attn__check_ends", "if (previous != n_bytes)", "if (0)")
plant("attn__find_byte_ids", "if (!found[octet]) return", "if (0) return")
plant("attn__find_byte_ids", "if (!found[octet]) tokenizer->byte_id", "if (1) tokenizer->byte_id")
plant("attn__find_byte_ids", "!= 1 || is_special[id]) continue;", "!= 1) continue;")
plant("attn__check_merge", "why = id >= tokenizer->n_tokens", "why = id > tokenizer->n_tokens")
plant("attn__check_merge", ": is_special[id] ?", ": 0 ?")
plant("attn__check_merge", "attn__token_size(tokenizer, id) == 0 ?", "0 ?")
plant("attn__check_merge", "size[2] - size[0] != size[1] ||", "")
plant("attn__check_merge", "memcmp(bytes[2], bytes[0], size[0]) != 0 ||", "0 ||")
plant("attn__check_merge", "memcmp(bytes[2] + size[0], bytes[1], size[1]) != 0)", "0)")
plant("attn__check_merges", "if (joined > most)", "if (0)")
plant("attn__index_merges", "tokenizer->right[i] == tokenizer->right[i - 1])", "0)")
plant("attn__index_merges", "if (i > tokenizer->first[left] &&", "if (i > 0 &&")
plant("attn__mark_special", "why = id >= tokenizer->n_tokens", "why = 0")
plant("attn__mark_special", "size == 0 ?", "0 ?")
plant("attn__mark_special", "is_special[id] ?", "0 ?")
plant("attn_tokenizer_new", "if (size < 16)", "if (size < 15)")
plant("attn_tokenizer_new", "if (needed != size)", "if (needed > size)")
plant("attn__plant_special", "if (!nodes[node].token) nodes", "if (1) nodes")

# The tokenizer: what it makes of text.
plant("attn__utf8_length", "if (first < 0xC2 || first > 0xF4)", "if (first < 0xC0 || first > 0xF4)")
plant("attn__utf8_length", "if (first < 0xC2 || first > 0xF4)", "if (first < 0xC2 || first > 0xF7)")
plant("attn__utf8_continues", "octet >= (first == 0xE0 ? 0xA0 : 0x90)", "octet >= 0x80")
plant("attn__utf8_continues", "octet <= (first == 0xED ? 0x9F : 0x8F)", "octet <= 0x9F")
plant("attn__utf8_continues", "if (index == 1 && (first == 0xED || first == 0xF4))",
      "if (index == 1 && (first == 0xF4))")
plant("attn__utf8_read", "length == 0 || (size_t)(end - p) < length", "length == 0")
plant("attn__utf8_read", "*code = *code << 6 | (p[i] & 0x3Fu);", "*code = *code << 6 | (p[i] & 0x1Fu);")
plant("attn_utf8_push", "if (size == 0 && state->n > 0) {", "if (0) {")
plant("attn_utf8_push", "if (state->n > 0 && !attn__utf8_continues", "if (0 && !attn__utf8_continues")
plant("attn__merge_rank", "at += at[half] <= right ? half : 0;", "at += at[half] < right ? half : 0;")
plant("attn__merge_rank", "return count && *at == right ?", "return *at == right ?", "tokenizer")
plant("attn__kind_at", "if (start[middle] <= code)", "if (start[middle] < code)")
plant("attn__kind_at", "code < encoder->run_start || code >= encoder->run_end",
      "code < encoder->run_start || code > encoder->run_end")
plant("attn__runs", "36, 23, 72, 7, 60,", "36, 23, 72, 7, 56,")
plant("attn__runs", "6024, 19757, 20, 16769}", "6024, 19757, 24, 16769}")
plant("attn__runs", "97, 4, 37, 4, 5, 8, 29, 124, 42,", "97, 4, 37, 4, 5, 8, 29, 128, 42,")
plant("attn__contraction", "rest >= 2 && (p[1] == 's' || p[1] == 't' || p[1] == 'm'",
      "rest >= 2 && (p[1] == 's' || p[1] == 't' || p[1] == 'n'")
plant("attn__contraction", "(p[1] == 'v' && p[2] == 'e')", "(p[1] == 'v')")
plant("attn__word_end", "(*p == ' ' && end - p > 1)", "(*p == ' ')")
plant("attn__word_end", "p + (*p == ' ' && end - p > 1)", "p")
plant("attn__word_end", "if (contraction) return p + contraction;", "")
plant("attn__word_end", "if (next == end) return end;", "")
plant("attn__word_end", "(*last & 0xC0) == 0x80;)", "0;)")
plant("attn__word_end", "return last == p ? next : last;", "return last;")
plant("attn__merge_short", "best = rank[i] < best ? rank[i] : best;",
      "best = rank[i] <= best ? rank[i] : best;", equivalent="equal ranks are the same number")
plant("attn__merge_short", "if (ids[i] == result || ids[i + 1] == result)", "if (ids[i] == result)")
plant("attn__merge_short", "i += merges ? 1 : 0; rank[kept] = rank[i];",
      "rank[kept] = rank[i]; i += merges ? 1 : 0;")
plant("attn__enter_place", "places[place->further].previous = index;", "places[place->further].previous = 0;")
plant("attn__leave_place", "places[place->further].previous = place->previous;", "(void)0;")
plant("attn__merge_place", "attn__leave_place(encoder, place->before);", "", "tokenizer")
plant("attn__merge_place", "attn__enter_place(encoder, place->before);", "", "tokenizer")
plant("attn__merge_window", "while (places[places[index].before].rank == rank)", "while (0)")
plant("attn__merge_long", "common == 0 || common == attn__place_size(encoder, 1, count)", "1")
plant("attn__merge_long", "is_last ? count : count - count / 16", "count")
plant("attn__merge_long", "common = is_last ? 0 :", "common = 1 ? 0 :")
plant("attn__merge_long", "encoder->n_ids = n_before;", "")
plant("attn__leave_place", "encoder->occupied[rank / 32] &= ~(1u << rank % 32);", "", "tokenizer")
plant("attn__leave_place", "if (!encoder->occupied[rank / 32])", "if (1)")
plant("attn__encode_word", "key[i / 8] |= (uint64_t)word[i] << 8 * (i % 8);",
      "key[i / 8] |= (uint64_t)(word[i] & 0x7F) << 8 * (i % 8);")
plant("attn__encode_word", "entry->key[1] == key[1])", "1)")
plant("attn__encode_word", "if (entry->size == size &&", "if (entry->size &&")
plant("attn__special_at", "longest = depth; *id", "longest = longest ? longest : depth; *id")
plant("attn__encode_all", "while (allow_special && p < end) {", "while (p < end) {")
plant("attn__encode_all", "if (attn__encode_part(encoder, part, p))", "if (0)")
plant("attn__emit", "if (encoder->n_ids < encoder->capacity)", "if (encoder->n_ids <= encoder->capacity)")
plant("attn_encode", "if (encoder.n_ids > capacity)", "if (0)")
plant("attn_decode", "length <= capacity && total <= capacity - length)", "total <= capacity)")
plant("attn_decode", "if (total > capacity)", "if (0)")
plant("attn_token_bytes", "id >= 0 && (size_t)id < tokenizer->n_tokens;",
      "id >= 0 && (size_t)id <= tokenizer->n_tokens;")

# Sessions: the forward pass, truncating, batches.
within("attn.h", ONE_SET, "model hooks")
plant("attn__stride", "return n % 256 == 0 ? n + 16 : n;", "return n;",
      equivalent="the gap only keeps rows apart in the cache")
plant("attn__score_scale", "sqrtf((float)c->d_head)", "(float)c->d_head")
plant("attn__score_scale", "root * (float)(layer + 1)", "root * (float)(layer + 2)", "family")
plant("attn__score_scale", "c->unscaled_attn ?", "0 ?", "family")
plant("attn__embed", "position = of->length + of->fed + row; const size_t token",
      "position = of->length + row; const size_t token")
plant("attn__embed", "p->model->w_pos + position * width,", "p->model->w_pos + (position + 1) * width,")
plant("attn__remember", "const size_t position = of->length + of->fed + row; const float *k",
      "const size_t position = of->length + row; const float *k")
plant("attn__remember", "attn__keep_value(p->kernels, of, index, position, k + c->d_model);",
      "attn__keep_value(p->kernels, of, index, position, k);")
plant("attn__keep_key", "((uint16_t *)to)[(j + k) * 16] = halves[k];",
      "((uint16_t *)to)[j * 16 + k] = halves[k];")
plant("attn__head_of", "h.q = attn__row_at(p->ws->qkv, of->first_row + row) + head * c->d_head;",
      "h.q = attn__row_at(p->ws->qkv, of->first_row + row);")
plant("attn__drop_rows", "of->fed += from - of->first_row;", "")
plant("attn__done_rows", "if (item->layers.resid_out || attn__wants", "if (attn__wants")
plant("attn__done_rows", "attn__wants(of, later, (int)p->model->config.n_layer - 1) ||", "0 ||")
plant("attn__done_rows", "attn__wants(of, final, -1))", "0)")
plant("attn__drop_rows",
      "memmove(attn__row_at(ws->qkv, to), attn__row_at(ws->qkv, row), width * sizeof(float));", "")
plant("attn__unembed_together",
      "job.w.data = (const unsigned char *)job.w.data + first * job.w.stride;", "")
plant("attn__unembed", "if (p->n_items > 1 && 16 * n_final", "if (0 && 16 * n_final",
      equivalent="the same logits in as many walks as there are items")
plant("attn__wanted", "*first < item->n_rows && item->rows[*first] < of->fed; ++*first)", "0; ++*first)")
plant("attn__wanted", "return end == item->n_tokens && of->n_rows > 0;", "return of->n_rows > 0;")
plant("attn__forward", "attn__visit(me, p, ATTN__HOOK_RESID_PRE);",
      "attn__visit(me, p, ATTN__HOOK_RESID_MID);")
plant("attn__forward", "l->ln2_w, l->ln2_b, ATTN__HOOK_LN2", "l->ln1_w, l->ln2_b, ATTN__HOOK_LN2")
plant("attn__forward", "attn__activate(me, p, ws->mlp);", "")
plant("attn__forward", "m->ln_f_w, m->ln_f_b, ATTN__HOOK_LN_FINAL",
      "m->ln_f_w, m->ln_f_w, ATTN__HOOK_LN_FINAL")
plant("attn__forward", "i < p->end_layer && !p->stopped; i++", "i < p->end_layer; i++")
plant("attn__check_layers", "if (end > n_layer || item->layers.first > end ||",
      "if (item->layers.first > end ||")
plant("attn__check_layers", "(item->layers.first == end && end < n_layer))", "0)")
plant("attn__check_layers", "if (item->layers.first > 0 && !item->layers.resid)", "if (0)")
plant("attn__check_layers", "if (end < n_layer && (item->logits || item->rows))", "if (0)")
plant("attn__check_layers", "s->held[i] < until)", "s->held[i] + 1 < until)")
plant("attn__check_layers", "item->n_tokens * sizeof *item->tokens) != 0)", "item->n_tokens) != 0 && 0)")
plant("attn__begin_feed", "s->held[layer] = s->held[layer] < s->length ? s->held[layer] : s->length;", "")
plant("attn__end_feed", "for (layer = p->first_layer; layer < p->end_layer; layer++) s->held",
      "for (layer = p->first_layer; layer + 1 < p->end_layer; layer++) s->held")
plant("attn__end_feed", "if (p->end_layer < p->model->config.n_layer) return;", "")
plant("attn__check_item", "if (!s || s->model != model)", "if (!s)")
plant("attn__check_item", "if (item->n_tokens > s->capacity - s->length)",
      "if (item->n_tokens > s->capacity)")
plant("attn__check_item", "model->config.n_vocab) ||", "model->config.n_vocab + 1) ||")
plant("attn__check_item", "(i > 0 && item->rows[i] <= item->rows[i - 1])", "0")
plant("attn__check_item", "item->rows[i] >= item->n_tokens ||", "item->rows[i] > item->n_tokens ||")
plant("attn__check_batch", "items[i].layers.first != items[0].layers.first ||", "")
plant("attn__check_batch", "!items[i].layers.resid != !items[0].layers.resid ||", "0 ||")
plant("attn__check_batch",
      "attn__end_layer(&items[i], model) != attn__end_layer(&items[0], model))", "0)")
plant("attn__check_batch", "if (items[i].session->workspace != items[0].session->workspace)",
      "if (0)")
plant("attn__check_batch", "if (items[i].session->n_rows == 0)", "if (0)")
plant("attn__next_rows", "s->first_row = n_rows;", "s->first_row = 0;")
plant("attn__run_pass", "p->items[i].session->fed += p->items[i].session->n_rows;",
      "p->items[i].session->fed += 1;")
plant("attn__end_feed", "(item->n_rows > 0 && item->rows[item->n_rows - 1] == item->n_tokens - 1);",
      "item->n_rows > 0;")
plant("attn__run_pass", "if (n_threads > p->ws->n_threads)", "if (0)", "model")
plant("attn_truncate", "if (length > session->length)", "if (0)")
plant("attn_truncate", "session->has_logits = 0;", "")
plant("attn__check_copy", "if (to->model != from->model)", "if (0)")
plant("attn__check_copy", "if (to->cache != from->cache)", "if (0)")
plant("attn__check_copy", "if (from->length > to->capacity)", "if (0)")
plant("attn_session_copy", "(n + 15) / 16 * to->keys_panel);", "n / 16 * to->keys_panel);")
plant("attn_session_copy", "from->values + head * from->values_size + panel * from->values_panel,",
      "from->values + head * from->values_size + panel * to->values_panel,")
plant("attn_session_copy", "to->has_logits = from->has_logits;", "")
plant("attn__scored_token", "const size_t at = s->before + i;",
      "const size_t at = s->before + i - (i > 0);")
plant("attn__scored_token",
      "return at < s->session->length ? s->session->tokens[at] : s->tokens[i];",
      "return s->tokens[i];", "model lens")
plant("attn_mean_nll", "return sum / (double)n;", "return sum / (double)(n + 1);", "lens model")
plant("attn__check_idle", "if (session->running) return attn__fail", "if (0) return attn__fail",
      "model hooks")
plant("attn__check_cache", "if (first > held || count > held - first)", "if (first > held || count > held)",
      "hooks")

# Guessing and generation.
plant("attn__read_rows", "s->length = length + right + 1;", "s->length = length + right + 2;",
      "model sampling")
plant("attn__read_rows", "if (w->ended || right == n || token != w->due[right + 1])",
      "if (w->ended || right == n)", "model sampling")
plant("attn__read_rows", "w->drafter.logits + right * n_vocab, n_vocab",
      "w->drafter.logits, n_vocab", "model sampling")
plant("attn__plan_pass", "n = n < room ? n : room;", "", "model")
plant("attn__learn", "d->wait = (size_t)1 << d->failures;", "d->wait = 0;", "kernels")
plant("attn__drafter_init", "if (n_draft < 0 || session->watchers)", "if (n_draft < 0)",
      "model hooks")
plant("attn__next_token", "*token == s->model->config.eos && !w->desc.ignore_eos",
      "*token == s->model->config.eos", "model sampling")
plant("attn__next_token", "w->ended = w->reason != ATTN_STOP_NONE || s->length == s->capacity;",
      "w->ended = w->reason != ATTN_STOP_NONE;", "model sampling")
plant("attn_generate", "w.desc.prepend_bos && session->length == 0,", "w.desc.prepend_bos,",
      "model sampling")
plant("attn__hand_over", "to->session->running = ATTN__WRITING;", "to->session->running = ATTN__IDLE;",
      "model")
plant("attn_cache_set", "if (session->running == ATTN__WRITING)", "if (0)", "model")

# Hooks: names, edits, records.
within("attn.h", ONE_SET, "hooks model")
plant("attn__matches", "text = ++retry;", "text = retry;")
plant("attn__match_all", "if ((ATTN__OPT_IN & ATTN__POINT(point)) && attn__ends_with(pattern, \"*\"))",
      "if (0)")
plant("attn__match_all", "const int n_layers = point < ATTN__HOOK_RESID_PRE ? 0",
      "const int n_layers = point <= ATTN__HOOK_RESID_PRE ? 0")
plant("attn__edit_distance", "best = diagonal + (from[i] != to[j - 1]);", "best = diagonal + 1;", "hooks")
plant("attn__new_watcher",
      "while (*last) /* watchers see an activation in the order in which they were made */ last = &(*last)->next; *last = w;",
      "w->next = *last; *last = w;")
plant("attn__show_rows", "shown.first = of->length + of->fed;", "shown.first = of->length;")
plant("attn__activation_view", "t.stride[1] = (ptrdiff_t)stride;",
      "t.stride[1] = (ptrdiff_t)(of->length + of->fed + n);")
plant("attn__rows_at", "rows.data += (size_t)(point - ATTN__HOOK_Q) * p->model->config.d_model;",
      "rows.data += (size_t)(ATTN__HOOK_V - point) * c->d_model;")
plant("attn__activation_view", "attn__row_at(rows, of->first_row), ATTN_F32, attn__has_heads",
      "rows.data, ATTN_F32, attn__has_heads", "hooks")
plant("attn__edit_positions", "if (room == 0 || e->n_positions > room)",
      "if (e->n_positions > room)")
plant("attn__check_edit", "e->n_heads > n_heads - e->head ||", "e->n_heads > n_heads ||")
plant("attn__check_edit", "(!has_heads && e->n_heads > 0)", "0")
plant("attn__prepare_edit", "e->value.dtype != ATTN_F32)", "0)")
plant("attn__check_edit", "if (over_keys && e->kind == ATTN_EDIT_MEAN)", "if (0)")
plant("attn__check_edit", "(v.n[1] != 1 && v.n[1] != heads) ||", "0 ||")
plant("attn__check_edit", "v.n[2] != 1 && v.n[2] != width)", "0)")
plant("attn__edit_check", "if (n_keys > 1 && n_keys < until)", "if (n_keys > 1 && n_keys + 1 < until)")
plant("attn__edit_rows", "position < e->position || at >= e->n_positions", "position < e->position")
plant("attn__edit_rows", "(ptrdiff_t)(e->head + head) * to.step[1];", "(ptrdiff_t)head * to.step[1];")
plant("attn__edit_rows", "(ptrdiff_t)at * from.step[0] +", "(ptrdiff_t)row * from.step[0] +")
plant("attn__mean_over_positions", "(float)(sum / (double)v.n[0]);", "(float)sum;")
plant("attn__edit_row", "attn__fmaf(*v, e->factor, *x)", "attn__fmaf(*v, 1, *x)")
plant("attn__record_check", "if (after > r->room) {", "if (after > r->room + 1) {")
plant("attn__record_check", "r->slots[i].held < before)", "0)")
plant("attn__record_begin", "slot->held = below || slot->held < before ? slot->held : before;", "")
plant("attn__record_truncate", "r->slots[i].n = r->slots[i].n < left ? r->slots[i].n : left;", "")
plant("attn__is_made",
      "return slot->point < ATTN__HOOK_LN_FINAL ? span->embedded : span->end_layer == r->model->config.n_layer;",
      "return slot->point < ATTN__HOOK_LN_FINAL || span->end_layer == r->model->config.n_layer;")
plant("attn__record_keys", "to[key] = masked;", "to[key] = 0;")
plant("attn_record_new", "if (session->length > plan.first)", "if (0)")
plant("attn__make_slots", "if (bytes < needed)", "if (0)")
plant("attn__record_plan", "plan->first >= n_ctx || plan->n_positions > n_ctx - plan->first",
      "plan->first >= n_ctx")
plant("attn__slot_view", "t.stride[0] = (ptrdiff_t)(n_keys * r->room);", "")
plant("attn__out_begin", "0xEDB88320u ^ crc >> 1", "0xEDB88321u ^ crc >> 1")
plant("attn__out_safetensors_header", "while (out->n % 8 != 0)", "while (out->n % 4 != 0)")
plant("attn_npy_header", "memset(text + n, ' ', sizeof text - (size_t)n);",
      "memset(text + n, 0, sizeof text - (size_t)n);", "files")
plant("attn__check_save", "if (strcmp(name, names[j]) == 0)", "if (0)")
plant("attn_new_file_end", "if (is_draft && status != ATTN_OK)", "if (0)", "files")
plant("attn_new_file_begin", "attn__open(d->part[0] ? d->part : path, \"wb\")",
      "attn__open(path, \"wb\")", "files")
plant("attn__new_file_create", "if (length - name > 240)", "if (0)", "files")
plant("attn__replace", "if (mode >= 0) chmod", "if (0) chmod", "files")
plant("attn__create", "O_WRONLY | O_CREAT | O_EXCL", "O_WRONLY | O_CREAT", "files")
plant("attn__may_replace", "S_ISREG(there.st_mode) && access", "access", "files")
plant("attn__replace", "if (mode >= 0) chmod", "if (0) chmod", "files")
plant("attn__changed_rows",
      "if (memcmp(copy, attn__row_at(p->ws->resid, row), c->d_model * sizeof(float)) == 0)",
      "if (0)", equivalent="a patch that changes nothing is run all the same")
plant("attn__show_results", "for (head = 1; head < c->n_head; head++) p->kernels->binary",
      "for (head = 1; head + 1 < c->n_head; head++) p->kernels->binary")
plant("attn__head_result", "memcpy(attn__row_at(padded, i) + head * d - from,",
      "memcpy(attn__row_at(padded, i),")
plant("attn__softmax_block", "const size_t visible = h.first + i + 1;",
      "const size_t visible = n_keys;")
plant("attn__check_save", "(!name || k == 0 || name[k] || k > 100)", "(!name || k == 0 || name[k])")
plant("attn__plan_layer", "while (first < end && attn__same_part(sweep, clean, corrupted, column, first))",
      "while (first < end && 1)")
plant("attn__run_patched_rows", "sweep->sessions[i]->held[layer] = sweep->desc->n_tokens;", "")
plant("attn__hook_patch", "edit.n_heads = sweep->by_head ? 1 : 0;", "edit.n_heads = 0;")
plant("attn__check_path", "path->to_layer < path->from_layer + (end != ATTN__HOOK_MLP_IN))",
      "path->to_layer < path->from_layer)")

# The sampler.
within("attn.h", ONE_SET, "sampling")
plant("attn__likelier", "a->logit == b->logit && a->id < b->id", "a->logit == b->logit && a->id > b->id")
plant("attn__sink", "if (child + 1 < n && attn__above", "if (child + 1 < n && !attn__above")
plant("attn__sink", "size_t child = 2 * at + 1;", "size_t child = 2 * at + 2;")
plant("attn__keep", "most = (size_t)d->top_k;", "most = (size_t)d->top_k + 1;")
plant("attn__keep", "sum < d->top_p * total; i++)", "sum <= d->top_p * total; i++)")
plant("attn__keep", "while (kept < n && sum < d->top_p * total)", "while (kept < n && sum < d->top_p)")
plant("attn__keep", "if (kept > 0 && best.weight < d->min_p)", "if (kept > 0 && best.weight <= d->min_p)")
plant("attn__keep", "while (kept > 1 && c[n - kept].weight < d->min_p)", "while (0)")
plant("attn__largest_at", "if (here > largest || here != here) {", "if (here >= largest || here != here) {")
plant("attn__largest_at", "if (here != here) break;", "")
plant("attn_sample", "x > 0 ? x / d->repeat_penalty : x * d->repeat_penalty", "x / d->repeat_penalty")
plant("attn_sample", "n_seen - d->repeat_last : 0;", "0 : 0;")
plant("attn_sample", "(s->logits[i] - s->logits[best]) / d->temperature", "s->logits[i] / d->temperature")
plant("attn_sample", "(high >> 5) * 67108864.0", "(high >> 6) * 67108864.0")
plant("attn_sample", "if (total > target)", "if (total >= target)",
      equivalent="a random number of 53 bits meets a sum of weights exactly only at 0 of nothing")
plant("attn_sampler_new", "!(d.temperature >= 0 && d.temperature <= FLT_MAX)", "d.temperature < 0")
plant("attn_sampler_new", "!(d.top_p >= 0 && d.top_p <= 1) ||", "0 ||")
plant("attn_sampler_new", "!(d.repeat_penalty >= 0 && d.repeat_penalty <= FLT_MAX)", "0")
plant("attn_sample", "if (s->logits[best] == INFINITY)", "if (0)")

# What activations say.
within("attn.h", ONE_SET, "lens")
plant("attn__rank", "x[i] > x[target] || (i < target && x[i] == x[target]);", "x[i] > x[target];")
plant("attn__likelier", "(a->logit == b->logit && a->id < b->id)", "a->logit == b->logit")
plant("attn__looks", "return j > 0 && tokens[j - 1] == tokens[i];",
      "return j > 1 && tokens[j - 1] == tokens[i];")
plant("attn__entropy", "if (!(*p < FLT_MIN))", "if (1)")
plant("attn_resid_label", "layer < n_layer", "layer <= n_layer")
plant("attn__row_scaled", "args->row % scale.shape[0]", "0")
plant("attn__row_attr", "args->row % gained->shape[0] * n", "0")
plant("attn__collect", "to = a->first + rows < last ? a->first + rows : last;", "to = last;")
plant("attn__triangle", "diagonal = v[0] > 0 ? -length : length;", "diagonal = length;")
plant("attn__rotate_columns", "zeta = (bb - aa) / (2 * ab);", "zeta = (bb - aa) / ab;",
      equivalent="more rounds come to the same")
plant("attn__compose", "row[j] = norms > 0 ? row[j] / norms : 0;", "row[j] = row[j];")
plant("attn__fold", "*weight = (float)fma((double)*weight, (double)ln_w[k], -mean);",
      "*weight = (float)((double)*weight * (double)ln_w[k]);")
plant("attn__fold_final", "if (*gain == 0 || !(fabsf(*bias / *gain) <= FLT_MAX))", "if (*gain == 0)")
plant("attn__rewrite", "attn__center_panels(&m->w_e, 1);", "attn__center_panels(&m->w_e, 0);")
plant("attn_process_weights", "m.old.config.tied = 0;", "")

# Writing behind the end.
within("attn.h", CHECKED, "sampling")
plant("attn_sample", "seen[i] >= 0 && (size_t)seen[i] < s->n_vocab",
      "seen[i] >= 0 && (size_t)seen[i] <= s->n_vocab")

# The tools.
within("tools/convert/attn-convert.c", PLAIN, "convert")
plant("check_output", "if (system_same_file(o->output, path))", "if (0)")
plant("find_part", "(p->kind == PART_LINEAR && s->linears_out_in)", "0")
plant("write_piece", "x = attn_transpose(x, 0, 1);", ";")
plant("find_part", "expected[0] /= 3;", "", "family")
plant("find_part", "s->no_biases &&", "0 &&", "family")
plant("take_tensor", "t->shape[extra] != expected[0] ||", "", "family")
plant("embedding_of", "missing && !s->says_untied &&", "missing &&", "family")
plant("read_rows", "first % each * width", "first * width", "family")
plant("write_output", "config.act_fn = s->act_fn;", "", "family")
plant("write_output", "config.unscaled_attn = s->unscaled_attn;", "", "family")
plant("check_leftovers", "if (used[i] || source_is_mask(t) ||", "if (used[i] ||")
plant("check_leftovers", "strcmp(t->name, \"lm_head.bias\") == 0 ||", "", "family")
plant("same_numbers", "*same = memcmp(x, y, (size_t)(n * columns) * sizeof(float)) == 0;",
      "*same = memcmp(x, y, (size_t)columns * sizeof(float)) == 0;")
plant("same_numbers", "row < n_rows && *same; row += n", "row < n_rows && *same; row += n_rows")
plant("check_leftovers", "strcmp(t->name, unembed) == 0)", "0)")
plant("plan_unembedding", "if (s->says_untied)", "if (0)")
plant("plan_types", "all_f16 &= p->tensors[i].kind == PART_ROWS ||", "all_f16 &=")
plant("plan_tokenizer", "if (last->spelling && !last->special)", "if (0)")
plant("plan_tokenizer", "dropped += last->spelling != NULL;", "dropped++;")
plant("write_tensor", "if (interrupted)", "if (0)")
plant("write_tensor", "n = all - first < most ? all - first : most;", "n = most;")
plant("write_output", "config.bos = (int32_t)s->bos;", "config.bos = (int32_t)s->eos;")
plant("check_output", "if (system_same_file(o->output, f->path))", "if (0)")
plant("name_ends", "if (*ids[i] == SOURCE_UNSAID)", "if (0)")
plant("open_vocab", "ctx->status == ATTN_E_TOKENIZER && !o->tokenizer", "ctx->status == ATTN_E_TOKENIZER")
plant("check_config", "*ids[i] >= 0 && (uint64_t)*ids[i] >= s->n_vocab",
      "*ids[i] >= 0 && (uint64_t)*ids[i] > s->n_vocab")
plant("run", "if (interrupted) system_end_by(interrupted);", "")
plant("check_config", "s->ln_eps < 1", "1")
within("tools/common/system.h", PLAIN, "convert mistakes")
plant("system_catch", "present.sa_handler == SIG_DFL)", "1)")
plant("system_catch", "number <= last;", "number < SIGTERM;")
plant("system_on_signal", "if (info->si_code > 0 && (", "if (info->si_code > 99 && (",
      equivalent="the errors that such signals tell of are not in the program")
plant("system_begin", "signal(SIGXFSZ, SIG_IGN);", "")
within("tools/convert/source.h", PLAIN, "convert family")
plant("source_add", "if (s->n_tensors == SOURCE_MAX_TENSORS) {", "if (0) {")
plant("source_is_mask", "source_ends_in(t, \".attn.masked_bias\") ||", "")
plant("source_size", "count / source_blocks[dtype].count *", "count *")
plant("source_widen", "(uint32_t)raw[i] << 16 | (uint32_t)raw[i + 1] << 24", "(uint32_t)raw[i + 1] << 24")
plant("source_check_overlaps", "if (t->offset + t->size > u->offset)",
      "if (t->offset + t->size > u->offset + 1)")
plant("source_read", "source_run(ctx, s, t, row * columns + column, n_columns",
      "source_run(ctx, s, t, row * columns, n_columns")
plant("source_run", "TOOLS_LLU(at % columns), TOOLS_LLU(at / columns), t->name, (double)out[i]",
      "TOOLS_LLU(at / columns), TOOLS_LLU(at % columns), t->name, (double)out[i]")
plant("shape_count", "if (shape[i] != 0 && count > UINT64_MAX / shape[i]) return UINT64_MAX;",
      "if (0) return UINT64_MAX;")
plant("source_close", "fclose(f->file);", "(void)0;")
within("tools/convert/blocks.h", PLAIN, "family")
plant("block_i8", "byte < 128 ?", "byte <= 128 ?")
plant("block_nibble", "i < 16 ? p[i] & 15", "i <= 16 ? p[i] & 15")
plant("block_pair", "(p[k - 4] >> 6) * 16", "(p[k - 4] >> 6) * 8")
plant("block_pair", "(p[k] >> 6) * 16", "(p[k - 4] >> 6) * 16")
plant("block_q3_k", "p[i % 32] >> i / 32 & 1 ? 0 : 4", "p[i % 32] >> i / 32 & 1 ? 4 : 0")
plant("block_q6_k", "at / 32 * 2 & 3", "at / 64 * 2 & 3")
plant("block_iq4_xs", "p[2 + k / 4]", "p[2]")
within("tools/convert/parts.h", PLAIN, "convert family")
plant("layer_parts", "{\"ln1.w\", {\"ln_1.weight\"", "{\"ln1.w\", {\"ln_2.weight\"")
plant("layer_parts", "\"ln2.weight\"", "\"ln1.weight\"", "family")
plant("layer_prefix", "\"blk.\"", "\"blk\"")
plant("layer_parts", "\"attn_norm.bias\"", "\"attn_norm.weight\"")
within("tools/convert/export.h", PLAIN, "family")
plant("export_dtype", "|| width % 32)", ")")
plant("export_block", "k / 32 * 32 + n * 2", "n * 2")
plant("export_block", "k % 8 < 4 ? 0 : 4", "k % 8 < 4 ? 4 : 0")
plant("export_panels", "n / 16 * size)", "0)")
plant("export_part", "p == &unembed_part ||", "0 ||")
plant("export_part", "i = t->turned || strcmp(t->from, \"embed.W_E\") == 0;", "i = t->turned;")
plant("export_part", "(p->kind == PART_LINEAR && names == NAMES_GGUF)", "0")
plant("export_numbers", "i += part_size) {", "i += part_size + 1) {")
plant("export_tensor", "n = count - first < ROWS ? count - first : ROWS;", "n = ROWS < count ? ROWS : count;")
plant("export_stand_in", "byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67", "byte <= 32 ? byte : byte - 127 + 33")
plant("export_gguf_vocab", "export_token_at(e, i).special ? GGUF_TOKEN_CONTROL", "0 ? GGUF_TOKEN_CONTROL")
plant("export_directory", "system_remove(paths[i]);", "", "faults")
plant("export_directory", "if (made && e->ctx->status)", "if (0)")
plant("export_hf_config", "c->unscaled_attn ? \"false\" : \"true\"", "\"true\"")
plant("export_gguf_file", "c->unscaled_attn ||", "0 ||")
within("tools/convert/safetensors.h", PLAIN, "convert")
plant("safetensors_prefix", "at += n;\n            i = 0;", "at += n;", "family")
plant("safetensors_entry", "begin > end || end > data_size", "begin > end || end > data_size + 1")
plant("safetensors_check_cover", "if (at != f->size)", "if (0)")
plant("safetensors_entry", "shape->size > 16", "shape->size > 1000")
plant("safetensors_entry", "memchr(v->key, 0, v->key_size)", "0")
plant("safetensors_open", "size > SOURCE_MAX_HEADER)", "0)")
plant("safetensors_entry", "t->ndim = shape->size > SOURCE_MAX_DIMS ? 0 : (int)shape->size;",
      "t->ndim = (int)(shape->size & 3);")
within("tools/convert/huggingface.h", PLAIN, "convert")
plant("hf_token", "if (v && v->kind == JSON_ARRAY && v->size > 0) v++;", "")
plant("hf_read_config", "s->says_untied = !tied;", "s->says_untied = tied;")
plant("hf_read_kind", "s->unscaled_attn = !scaled;", "", "family")
plant("hf_read_activation", "{\"gelu\", ATTN_ACT_GELU_ERF}", "{\"gelu\", ATTN_ACT_GELU_TANH}", "family")
plant("hf_recognise", "s->no_biases = 0;", "s->no_biases = 1;")
plant("hf_is_bias", "&& !source_is_mask(t) &&", "&&", "family")
plant("hf_is_bias", "(strncmp(t->name, \"h.\", 2) == 0 ||", "(1 ||", "family")
plant("hf_recognise", "s->names == NAMES_MINGPT ||", "", "family")
plant("hf_open_shards", "memchr(v->text, '\\\\', v->size) ||", "")
plant("hf_open_shards", "memchr(v->text, 0, v->size)", "0")
plant("hf_read_config", "json_get(root, \"n_ctx\") ? \"n_ctx\" : \"block_size\"", "\"block_size\"")
within("tools/convert/llmc.h", PLAIN, "convert")
plant("llmc_open", "(i == 4 ? SOURCE_MAX_LAYERS : SOURCE_MAX_SIZE)", "SOURCE_MAX_SIZE")
plant("llmc_open", "n[3] == 50257 ? 50256 : SOURCE_UNSAID", "SOURCE_UNSAID")
plant("llmc_open", "if (n[7] < n[3])", "if (n[7] <= n[3])")
plant("llmc_add_all", "at += t->size + source_size(dtype, parts[i].padding);", "at += t->size;")
within("tools/convert/gguf.h", PLAIN, "convert")
plant("gguf_read_around", "bos < 0 ? vocab_end_of_text(v)", "bos < 0 ? -1")
plant("gguf_read_around", "gguf_is_true(&values[KEY_ADD_EOS])", "0")
plant("gguf_bytes", "if (g->at + size > SOURCE_MAX_HEADER &&", "if (0 &&")
plant("gguf_array", "if (v && count > VOCAB_MAX_TOKENS) {", "if (0) {")
plant("gguf_scalar", "if (is_signed && bytes[size - 1] & 0x80)", "if (0)")
plant("gguf_read_keys", "if (key < N_KEYS && values[key].present) {", "if (0) {")
plant("gguf_read_tensor", "t->shape[n_dims - 1 - i]", "t->shape[i]")
plant("gguf_place", "t->shape[t->ndim - 1] % block", "0")
plant("gguf_place", "t->offset % alignment ||", "0 ||")
plant("gguf_read_vocab", "if (type == GGUF_TOKEN_UNUSED)", "if (0)")
plant("gguf_read_config", "id != s->n_head)", "0)")
plant("gguf_open", "alignment > 1 << 20", "0")
plant("gguf_array", "if (depth > 4)", "if (0)")
plant("gguf_read_tensor", "if (memchr(name.text, 0, name.size))", "if (0)")
within("tools/common/json.h", PLAIN, "convert")
plant("json_add", "if (j->n == JSON_MAX_VALUES) {", "if (0) {")
plant("json_container", "if (depth >= JSON_MAX_DEPTH)", "if (depth > JSON_MAX_DEPTH)")
plant("json_escape", "return 0x10000 + ((high - 0xd800) << 10)", "return ((high - 0xd800) << 10)")
plant("json_blank", "*j->p == '\\r' ||", "")
plant("json_utf8_length", "(s[0] == 0xe0 && s[1] < 0xa0) ||", "")
plant("json_utf8_length", "(s[0] == 0xf4 && s[1] > 0x8f)", "0")
plant("json_u64", "v->size > 19)", "0)")
plant("json_number", "*first == '0' && n > 1", "0")
within("tools/common/vocab.h", PLAIN, "convert")
plant("vocab_init", "if (n_tokens > VOCAB_MAX_TOKENS || n_merges > VOCAB_MAX_TOKENS)", "if (0)")
plant("vocab_merge_text", "memchr(blank + 1, ' ', size - left - 1)", "0")
plant("vocab_byte", "byte <= 66 ? byte - 33 + 127 : 173", "byte <= 65 ? byte - 33 + 127 : 173")
plant("vocab_section", "n_special += v->tokens[i].special && v->tokens[i].size;",
      "n_special += v->tokens[i].special;")
plant("vocab_end_of_text", "found && id < v->n_tokens && v->tokens[id].special",
      "found && v->tokens[id].special")
within("tools/common/vocab.h", PLAIN, "vocabularies")
plant("vocab_lacks_byte", "&& p == end", "")
within("tools/common/vocab_files.h", PLAIN, "vocabularies convert")
plant("next_merge", "if (m->size && m->text[m->size - 1] == '\\r')", "if (0)")
plant("next_merge", "m->line == 1 && m->size >= 8", "m->size >= 8")
plant("vocab_check_model", "if (!vocab_is_off(json_get(model, rules[i].key)))", "if (0)")
plant("vocab_check_model", "harmless[0] && !vocab_is_off(v)", "harmless[0] && 0")
plant("vocab_check_rules", "if (vocab_is_on(split, \"add_prefix_space\"))", "if (0)")
plant("vocab_check_template", "if (n_texts > 0 || v->first >= 0 ||", "if (v->first >= 0 ||")
plant("vocab_check_template", "if (n_texts > 0 || v->first >= 0 ||", "if (n_texts > 0 ||")
plant("vocab_check_template", "if (n_texts != 1 || n_others > 0)", "if (n_others > 0)")
plant("vocab_check_template", "if (n_texts != 1 || n_others > 0)", "if (n_texts > 1 || n_others > 0)")
plant("vocab_check_flags", "if (vocab_is_on(flags, rules[i].key))", "if (i && vocab_is_on(flags, rules[i].key))")
plant("vocab_add_special", "if (!same) token->said |= VOCAB_IS_NEW;", "")
plant("vocab_add_special", "token->special = 1;", "")
plant("vocab_added_list", "if (id < latest)", "if (0)")
plant("vocab_added_map", "m->key_size > 0 &&", "")
plant("vocab_name_one", "v->tokens[found].special = 1;", "")
plant("vocab_is_role", "\"mask_token\",", "")
plant("vocab_is_role", "m->kind == JSON_STRING || json_is", "json_is")
plant("vocab_overlap", "at > 0 || early->spelling_size < late->spelling_size", "at > 0")
plant("vocab_overlap", "at > 0 || early->spelling_size < late->spelling_size", "at == 0")
plant("vocab_check_ids", "i != next++", "i < next++")
plant("vocab_check_settings", "v->first = v->bos >= 0 || f->whole ? v->bos : vocab_end_of_text(v);",
      "(void)0;")
plant("vocab_check_settings", "v->bos >= 0 || f->whole ? v->bos", "v->bos >= 0 ? v->bos")
plant("vocab_compare_tokens", "if (other != id)", "if (0)")
plant("vocab_compare_tokens", "v->tokens[other].said |= VOCAB_IN_PAIR;", "(void)0;")
plant("vocab_compare_merges", "if (n < v->n_merges)", "if (0)")
plant("vocab_name_end", "kind && !json_is", "!json_is")
plant("vocab_name_end", "&& !json_get(named, roles[i])", "")
within("tools/common/files.h", PLAIN, "convert")
plant("names_hash", "hash ^= hash >> 32;", "")
plant("names_init", "table->seed = system_seed();", "table->seed = 0;")
plant("names_init", "while (n / 2 < count", "while (n < count")
plant("read_all", "if (capacity - n < 16) {", "if (n > capacity) {")
plant("show", "if (n + 8 > sizeof(shown)) {", "if (n + 1 > sizeof(shown)) {")
plant("show", "if (control == 0)", "if (1)")
within("attn.h", PLAIN, "files convert")
plant("attn__may_replace", "strncmp(path, \"/dev/fd/\", 8) == 0", "0")
plant("attn__create", "O_WRONLY | O_CREAT | O_EXCL, mode < 0", "O_WRONLY | O_CREAT, mode < 0")
plant("attn__replace", "if (mode >= 0)", "if (0)")
plant("attn__next_section", "return (end + 63) / 64 * 64;", "return (end + 64) / 64 * 64;")
plant("attn__writer_section", "w->chain = 0;", "")
plant("attn_writer_add", "w->has[number] = 1;", "")
plant("attn__need_given", "if (pointer) return ATTN_OK;", "return ATTN_OK;", "faults")
plant("attn__need_given", "ctx->status == ATTN_OK ? 0 :", "", "faults")
plant("attn__need_given", "first ? first + sizeof link - 1 : before", "before", "faults")
plant("attn__need_zero_words", "i < n;", "i + 1 < n;", "faults")
plant("attn__head_work_body", "w->out + head * w->width,", "w->out,", "lens")
plant("attn__slot_for", "layer * n_head, n_head), 0, 1)", "0, n_head), 0, 1)", "lens")
plant("attn__sum_biases", "if (bias.data)", "if (0)", "lens")
within("attn.h", PLAIN, "process")
plant("attn__flaw", "return least * 0.5f == 0 ? 2 : 0;", "return 0;")
plant("attn__granted", "if (__atomic_load_n(&attn__is_forked, __ATOMIC_RELAXED))", "if (0)")
plant("attn__granted", "more = attn__try_threads(n_threads - had);", "more = n_threads - had;")
plant("attn__show_number", "*at++ = '.';", "at++;")
within("tools/common/files.h", PLAIN, "process")
plant("tool_fail", "cut_middle(ctx->message, sizeof ctx->message, whole);", "(void)0;")
plant("cut_middle", "while (n > 0 && (text[n] & 0xc0) == 0x80)", "while (0)")
within("tools/common/program.h", PLAIN, "process")
plant("check_model_path", "announce_pipe(path);", "(void)0;")
within("tools/common/program.h", PLAIN, "tools mistakes")
plant("finish_output", "if (fflush(stdout) == 0 && !lost)", "if (1)")
within("tools/attn-tokenize.c", PLAIN, "convert tools")
plant("parse_ids", "id > INT32_MAX ||", "0 ||")
within("tools/common/lines.h", PLAIN, "score")
plant("lines_fill", "r->seen -= r->start;", "")
plant("lines_next", "if (r->end - r->start > MAX_LINE)", "if (0)", equivalent="it takes more memory")
plant("lines_next", "r->skips || *size > MAX_LINE ?", "*size > MAX_LINE ?")
plant("lines_next", "if (!newline && r->start == r->end && !r->skips)", "if (!newline)")
within("tools/common/json_out.h", PLAIN, "score")
plant("out_escaped", "i += control > 1;", "")
plant("out_f32", "9", "8")
plant("out_f64", "17", "15")
plant("out_text", "out_escaped(o, whole, attn_utf8_push(whole, &state, \"\", 0));", "")
within("tools/score/score.c", PLAIN, "score")
plant("add_text", "j->n_made += i - stop->size;", "j->n_made += i;")
plant("stop_at", "v->size > found->size", "v->size < found->size")
plant("draw", "&& !j->q.ignore_eos", "")
plant("draw", "j->n > r->config->n_ctx", "j->n >= r->config->n_ctx")
plant("make_ids", "one = q->task == SCORE", "one = 0")
plant("first_wanted", "j->n_context > 0 ? j->n_context - 1 : 0", "j->n_context")
plant("run_pass", "if (p.jobs[i]->q.task != LOGIT_LENS)", "")
plant("keep_rows", "j->sums[k] += (double)j->row[k];", "j->sums[k] = (double)j->row[k];")
plant("find_end", "end = at + 1;", "end = at;")
plant("find_end", "system_cut(r->output, end) != 0 ||", "")
plant("check_expected", "j->answer.size == r->expected_size &&", "(1 || j->answer.size == r->expected_size) ||")
plant("read_lines", "% r->n_shards != r->shard - 1)", "% r->n_shards != r->shard % r->n_shards)")
plant("read_lines", "r->n_mine++ >= r->n_skipped", "r->n_mine++ > r->n_skipped")

# What is refused, each time: arguments, files, vocabularies.
within("attn.h", PLAIN,
       "files format tokenizer tensors ops hooks lens sampling model sizes")
refusals("attn__fail|attn__misfit")
for name in ("attn-convert.c", "attn-info.c", "attn-tokenize.c", "source.h", "safetensors.h", "export.h",
             "huggingface.h", "llmc.h", "gguf.h", "json.h", "vocab.h", "vocab_files.h", "files.h", "program.h"):
    within("tools/" + name, PLAIN, "convert family vocabularies tools lens-tool")
    refusals("tool_fail|vocab_refuse|hf_refuse|fail")
within("tools/score/score.c", PLAIN, "score")
refusals("tool_fail|fail")
