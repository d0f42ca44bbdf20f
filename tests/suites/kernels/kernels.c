/* The kernels of every instruction set, bit by bit against loops written from the manual: its rules
 * of arithmetic and its description of panels. This is the only test that looks inside the header,
 * because models alone would not meet every shape of a tile. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* for madvise */
#endif
#include "tools/common/system.h"
#define ATTN_STATIC
#define ATTN_IMPLEMENTATION
#include "attn.h"

#include "tests/support/fixture.h"
#include "tools/write/writer.h"
#include "tests/support/contract_vectors.h"
#include "tools/bench/roofs.h"

SUITE();

/* ---- the manual's words in plain C ---- */

static const unsigned char *panel_of(const unsigned char *panels, attn_dtype dtype, size_t n_in,
                                     size_t n)
{
    const size_t groups = (n_in + 63) / 64;
    const size_t size = dtype == ATTN_F32   ? n_in * 64
                        : dtype == ATTN_F16 ? (n_in + 1) / 2 * 64
                        : dtype == ATTN_Q8  ? groups * (64 + 16 * 64)
                                            : groups * (64 + 8 * 64);
    return panels + n / 16 * size;
}

/* Entry (k, n) of a matrix in panels; for q8 and q4 the scale and the whole number apart. */
static float weight_of(const unsigned char *panels, attn_dtype dtype, size_t n_in, size_t k,
                       size_t n, int *whole)
{
    const unsigned char *p = panel_of(panels, dtype, n_in, n);
    const size_t lane = n % 16, j = k % 64;
    float value;
    uint16_t half;
    *whole = 1;
    switch (dtype) {
    case ATTN_F32:
        memcpy(&value, p + (k * 16 + lane) * 4, 4);
        return value;
    case ATTN_F16:
        memcpy(&half, p + (k * 16 + lane) * 2, 2);
        return (float)half_value(half);
    case ATTN_Q8:
        p += k / 64 * (17 * 64);
        *whole = (int)p[64 + j / 4 * 64 + lane * 4 + j % 4] - 128;
        break;
    default:
        p += k / 64 * (9 * 64);
        *whole = p[64 + j / 8 * 64 + lane * 4 + j % 4];
        *whole = (j % 8 < 4 ? *whole % 16 : *whole / 16) - 8;
        break;
    }
    memcpy(&half, p + (j / 32 * 16 + lane) * 2, 2);
    return (float)half_value(half);
}

/* Rule 5: the block of 32 inputs that begins at k, as whole numbers and a scale. */
static float quantized(const float *x, size_t n, int whole[32])
{
    float largest = 0;
    uint32_t bits;
    for (size_t i = 0; i < n; i++)
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    if (largest < 1e-30f)
        largest = 0;
    for (size_t i = 0; i < 32; i++)
        whole[i] =
            i < n && largest > 0 ? (int)nearbyint((double)x[i] * (double)(127.0f / largest)) : 0;
    largest = largest > ldexpf(1, 100) ? NAN : largest / 127.0f;
    memcpy(&bits, &largest, 4);
    bits &= 0xfffffffcu;
    memcpy(&largest, &bits, 4);
    return largest;
}

/* One output: rules 1, 4 and 5. `from` is what stood there before. */
static float output_of(const float *x, const unsigned char *panels, attn_dtype dtype, size_t n_in,
                       size_t n, float bias, int has_bias)
{
    float total = 0;
    for (size_t first = 0; first < n_in || first == 0; first += 256) {
        const size_t end = n_in - first < 256 ? n_in : first + 256;
        float chain = 0;
        int whole, inputs[32];
        if (dtype == ATTN_F32 || dtype == ATTN_F16)
            for (size_t k = first; k < end; k++)
                chain = fmaf(x[k], weight_of(panels, dtype, n_in, k, n, &whole), chain);
        else
            for (size_t k = first; k < end; k += 32) {
                const float x_scale = quantized(x + k, end - k < 32 ? end - k : 32, inputs);
                float scale = 0;
                int sum = 0;
                for (size_t i = 0; i < 32; i++) {
                    scale = weight_of(panels, dtype, n_in, k + i, n, &whole);
                    sum += inputs[i] * whole;
                }
                chain = fmaf((float)sum * x_scale, scale, chain);
            }
        total = first == 0 ? chain : total + chain;
    }
    return has_bias ? total + bias : total;
}

/* ---- the kernels ---- */

static const attn_dtype dtypes[] = {ATTN_F32, ATTN_F16, ATTN_Q8, ATTN_Q4};
static const char *const dtype_names[] = {"f32", "f16", "i32", "q8", "q4"};

/* Any bytes at all are weights, extreme ones too; scales and floats are moderate. */
static unsigned char *random_panels(attn_dtype dtype, size_t n_in, size_t n_out)
{
    const size_t size = attn__panels_size(dtype, n_in, n_out);
    const size_t line = dtype == ATTN_Q8 ? 17 * 64 : 9 * 64;
    unsigned char *const p = (unsigned char *)pool_new(size + 64);
    unsigned char *const panels = p + (64 - (uintptr_t)p % 64) % 64;
    for (size_t at = 0; at < size; at++)
        panels[at] = (unsigned char)(random_below(4) ? random_u32() : random_below(2) ? 255 : 0);
    for (size_t at = 0; at < size && dtype == ATTN_F32; at += 4) {
        const float value = random_float();
        memcpy(panels + at, &value, 4);
    }
    for (size_t at = 0; at < size && dtype != ATTN_F32; at += dtype == ATTN_F16 ? 64 : line)
        for (size_t i = 0; i < 64; i += 2) {
            const uint16_t half = half_of(random_float() * (dtype == ATTN_F16 ? 1.0f : 0.01f));
            memcpy(panels + at + i, &half, 2);
        }
    return panels;
}

typedef struct problem {
    attn_dtype dtype;
    size_t rows, n_in, n_out;
    int transposed, has_bias;
} problem;

/* The same bits as the oracle from every instruction set with a fused multiply-add. */
static void check_matmul(const problem *p)
{
    const unsigned char *const panels = random_panels(p->dtype, p->n_in, p->n_out);
    const size_t count = p->rows * p->n_in, out_stride = p->n_out + 3;
    float *const x = (float *)pool_new((count + 1) * sizeof(float));
    float *const given = (float *)pool_new((count + 1) * sizeof(float));
    float *const bias = (float *)pool_new(p->n_out * sizeof(float));
    float *const want = (float *)pool_new(p->rows * p->n_out * sizeof(float));
    float *const got = (float *)pool_new(p->rows * out_stride * sizeof(float));
    float *const pack = (float *)pool_new(attn__pack_size(ATTN_Q8, ATTN__PACK, 1) * sizeof(float));
    float size = 1;
    for (size_t k = 0; k < count; k++) {
        if (k % p->n_in == 0) /* some rows are so small that bytes count them as zeros */
            size = random_below(8) ? 1.0f : 1e-32f;
        x[k] = size * random_float() * (random_below(50) ? 1.0f : 30.0f);
        given[p->transposed ? k % p->n_in * p->rows + k / p->n_in : k] = x[k];
    }
    for (size_t n = 0; n < p->n_out; n++)
        bias[n] = random_float();
    for (size_t row = 0; row < p->rows; row++)
        for (size_t n = 0; n < p->n_out; n++)
            want[row * p->n_out + n] =
                output_of(x + row * p->n_in, panels, p->dtype, p->n_in, n, bias[n], p->has_bias);
    attn__matmul_job job = {.in = given,
                            .in_stride = p->transposed ? 1 : (ptrdiff_t)p->n_in,
                            .in_step = p->transposed ? (ptrdiff_t)p->rows : 1,
                            .w = attn__panels_at(panels, p->dtype, p->n_in, p->n_out),
                            .bias = p->has_bias ? bias : NULL,
                            .out = got,
                            .out_stride = out_stride,
                            .rows = p->rows};
    for (int isa = ATTN_ISA_PORTABLE; isa <= ATTN_ISA_NEON_I8MM; isa++) {
        const size_t n_panels = (p->n_out + 15) / 16, cut = random_below(n_panels + 1);
        /* Without fused multiply-add the error grows with the sums. A quantized input may also be
         * rounded to the neighbouring integer. This changes it by up to 30 / 127, and the output by
         * as much times a weight, which is at most 127 * 0.01. */
        const double step = attn__is_quantized(p->dtype) ? 30.0 / 127 * (127 * 0.01) : 0;
        const double unfused = 2e-5 * (1000 + (double)p->n_in) + step;
        double worst = 0;
        size_t wrong = 0;
        attn_ctx ctx = {.isa = (attn_isa_kind)isa};
        const attn__kernels *kernels = attn__kernels_for(&ctx);
        if (!kernels)
            continue;
        memset(got, 0xFF, p->rows * out_stride * sizeof(float));
        attn__matmul_panels(kernels, &job, 0, p->rows, 0, cut, pack);
        attn__matmul_panels(kernels, &job, 0, p->rows, cut, n_panels, pack);
        for (size_t row = 0; row < p->rows; row++)
            for (size_t n = 0; n < out_stride; n++) {
                const float g = got[row * out_stride + n];
                const float w = n < p->n_out ? want[row * p->n_out + n] : 0;
                if (n >= p->n_out) { /* nothing may be written there */
                    CHECK(g != g);
                    continue;
                }
                wrong += memcmp(&g, &w, 4) != 0;
                worst = fabs((double)g - (double)w) > worst ? fabs((double)g - (double)w) : worst;
            }
        CHECKF(wrong == 0 || (strstr(kernels->names[0], "no fused") && worst < unfused),
               "%s, %s, %d rows, [%d, %d]: %d outputs differ, by up to %g", kernels->names[0],
               dtype_names[p->dtype], (int)p->rows, (int)p->n_in, (int)p->n_out, (int)wrong, worst);
    }
    pool_clear();
}

/* Every number of rows that a tile may have, and a few beyond. */
TEST(every_tile)
{
    problem p = {ATTN_F32, 1, 70, 150, 0, 1};
    for (size_t i = 0; i < 4; i++)
        for (p.rows = 1; p.rows <= 20; p.rows++) {
            p.dtype = dtypes[i];
            check_matmul(&p);
        }
}

/* Every depth with every width and type, for so many rows, or for a random number if rows is 0. */
static void check_sizes(size_t rows, const size_t *depths, size_t n_depths, const size_t *widths,
                        size_t n_widths)
{
    problem p;
    for (size_t i = 0; i < 4; i++)
        for (size_t d = 0; d < n_depths; d++)
            for (size_t w = 0; w < n_widths; w++) {
                p.dtype = dtypes[i];
                p.rows = rows ? rows : 1 + random_below(random_below(2) ? 8 : 40);
                p.n_in = depths[d];
                p.n_out = widths[w];
                p.transposed = (int)random_below(2);
                p.has_bias = (int)random_below(2);
                check_matmul(&p);
            }
}

/* Depths around the lengths of blocks, groups and chains; widths around those of panels. */
TEST(every_edge)
{
    static const size_t depths[] = {0, 1, 2, 31, 32, 33, 63, 64, 65, 96, 255, 256, 257, 511, 600};
    static const size_t widths[] = {1, 15, 16, 17, 33};
    check_sizes(0, depths, sizeof depths / sizeof depths[0], widths,
                sizeof widths / sizeof widths[0]);
}

/* One row, which goes along a matrix in streams: fewer panels than streams, as many, and more. */
TEST(one_row)
{
    static const size_t depths[] = {1, 7, 8, 40, 255, 300, 520};
    static const size_t widths[] = {63, 64, 65, 128, 129, 300, 1100, 4200};
    check_sizes(1, depths, sizeof depths / sizeof depths[0], widths,
                sizeof widths / sizeof widths[0]);
}

/* One row whose chain is made in two parts, as attention does at the end of a prompt's rows. */
TEST(chain_goes_on)
{
    enum { DEPTH = 200, PART = 77, WIDTH = 200 };
    float whole[WIDTH], parts[WIDTH], in[DEPTH];
    for (size_t i = 0; i < DEPTH; i++)
        in[i] = random_float();
    for (size_t i = 0; i < 2; i++)
        for (size_t width = 16; width <= WIDTH; width += 23) /* tiles of 8, 4, 2 and 1 panels */
            for (int isa = ATTN_ISA_PORTABLE; isa <= ATTN_ISA_NEON_I8MM; isa++) {
                const size_t n_panels = (width + 15) / 16;
                const attn__panels panels = attn__panels_at(random_panels(dtypes[i], DEPTH, width),
                                                            dtypes[i], DEPTH, width);
                attn__matmul_job job;
                attn_ctx ctx = {.isa = (attn_isa_kind)isa};
                const attn__kernels *kernels = attn__kernels_for(&ctx);
                if (kernels) {
                    job = attn__job(parts, WIDTH, in, DEPTH, attn__inputs(panels, 0, PART), 1);
                    attn__matmul_panels(kernels, &job, 0, 1, 0, n_panels, NULL);
                    job = attn__job(whole, WIDTH, in, DEPTH, panels, 1);
                    attn__matmul_panels(kernels, &job, 0, 1, 0, n_panels, NULL);
                    job = attn__job(parts, WIDTH, in + PART, DEPTH,
                                    attn__inputs(panels, PART, DEPTH - PART), 1);
                    job.start = ATTN__RESUME;
                    attn__matmul_panels(kernels, &job, 0, 1, 0, n_panels, NULL);
                    CHECKF(memcmp(whole, parts, width * sizeof *whole) == 0,
                           "%s, %s: %d outputs differ", kernels->names[0], dtype_names[dtypes[i]],
                           (int)width);
                }
                pool_clear();
            }
}

/* More rows than are packed at once, and rows so long that not all chains are. */
TEST(large)
{
    static const problem problems[] = {
        {ATTN_F32, 180, 40, 40, 0, 1},  {ATTN_F16, 171, 33, 20, 1, 1},
        {ATTN_Q8, 80, 70, 40, 0, 1},    {ATTN_Q4, 150, 33, 20, 1, 1},
        {ATTN_F32, 160, 2000, 3, 0, 1}, {ATTN_F16, 150, 1900, 3, 0, 1},
        {ATTN_Q8, 72, 6000, 3, 0, 1},   {ATTN_Q4, 70, 6100, 3, 0, 1},
        {ATTN_Q8, 450, 33, 70, 1, 0},   {ATTN_Q4, 20, 1100, 130, 0, 1},
        {ATTN_Q8, 3, 4500, 20, 0, 1},   {ATTN_Q8, 1, 4500, 20, 0, 1},
        {ATTN_Q4, 2, 4160, 20, 1, 1},   {ATTN_F32, 1, 130000, 3, 0, 1}};
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++)
        check_matmul(&problems[i]);
}

/* What is not finite, or too large to have a scale, must not turn into a number. */
TEST(not_finite)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, 1.27e30f, -3e38f};
    for (size_t i = 2; i < 4; i++)
        for (size_t j = 0; j < sizeof bad / sizeof bad[0]; j++)
            for (int isa = ATTN_ISA_PORTABLE; isa <= ATTN_ISA_NEON_I8MM; isa++) {
                float *const pack =
                    (float *)pool_new(attn__pack_size(ATTN_Q8, ATTN__PACK, 1) * sizeof(float));
                float x[17][40], out[17][16]; /* two tiles and a row */
                attn_ctx ctx = {.isa = (attn_isa_kind)isa};
                const attn__kernels *kernels = attn__kernels_for(&ctx);
                if (!kernels)
                    continue;
                for (size_t k = 0; k < 17 * 40; k++)
                    x[k / 40][k % 40] = random_float();
                x[0][random_below(40)] = -1.26e30f;
                x[1][random_below(40)] = bad[j];
                attn__matmul_job job = {
                    .in = x[0],
                    .in_stride = 40,
                    .in_step = 1,
                    .w = attn__panels_at(random_panels(dtypes[i], 40, 16), dtypes[i], 40, 16),
                    .out = out[0],
                    .out_stride = 16,
                    .rows = 17};
                attn__matmul_panels(kernels, &job, 0, 17, 0, 1, pack);
                for (size_t n = 0; n < 16; n++) {
                    CHECKF(isfinite(out[0][n]), "%s: a neighbour is spoiled", kernels->names[0]);
                    CHECKF(!isfinite(out[1][n]), "%s: %g became %g", kernels->names[0],
                           (double)bad[j], (double)out[1][n]);
                }
                pool_clear();
            }
}

/* Column n of the vectors, from a list of its scales and one of its numbers, into panels. */
static void put_column(unsigned char *panels, attn_dtype dtype, size_t n_in, size_t n,
                       vector_file *v, const json_value *column)
{
    size_t n_scales, k;
    const float *scales = vectors_floats(v, json_get(column, "scales"), &n_scales);
    const int32_t *numbers = vectors_ids(v, json_get(column, "numbers"), &k);
    CHECK(k == n_in && n_scales == (n_in + 31) / 32);
    panels += n / 16 * ((n_in + 63) / 64) * (dtype == ATTN_Q8 ? 17 * 64 : 9 * 64);
    for (k = 0; k < n_in; k++) {
        const uint16_t half = half_of(scales[k / 32]);
        const size_t j = k % 64;
        unsigned char *p = panels + k / 64 * (dtype == ATTN_Q8 ? 17 * 64 : 9 * 64);
        memcpy(p + (j / 32 * 16 + n % 16) * 2, &half, 2);
        if (dtype == ATTN_Q8)
            p[64 + j / 4 * 64 + n % 16 * 4 + j % 4] = (unsigned char)(numbers[k] + 128);
        else {
            unsigned char *const at = p + 64 + j / 8 * 64 + n % 16 * 4 + j % 4;
            *at = (unsigned char)(*at | (numbers[k] + 8) << (j % 8 < 4 ? 0 : 4));
        }
    }
}

/* Products of q8 and q4 weights; 17 equal rows, or one. */
static void check_quantised(const attn__kernels *kernels, vector_file *v)
{
    const attn_dtype dtype = vectors_is(v->entry, "type", "q8") ? ATTN_Q8 : ATTN_Q4;
    const json_value *column = json_get(v->entry, "columns");
    const size_t n_out = column->size;
    float *pack = (float *)pool_new(attn__pack_size(ATTN_Q8, ATTN__PACK, 1) * sizeof(float));
    float out[17][16];
    size_t n_in, n_bias, n;
    const float *x = vectors_floats(v, json_get(v->entry, "x"), &n_in);
    size_t size = attn__panels_size(dtype, n_in, n_out);
    unsigned char *panels = (unsigned char *)pool_new(size + 64);
    panels += (64 - (uintptr_t)panels % 64) % 64;
    memset(panels, 0, size);
    for (n = 0, column++; n < n_out; n++, column += column->span)
        put_column(panels, dtype, n_in, n, v, column);
    attn__matmul_job job = {.in = x,
                            .in_step = 1,
                            .w = attn__panels_at(panels, dtype, n_in, n_out),
                            .bias = vectors_floats(v, json_get(v->entry, "bias"), &n_bias),
                            .out = out[0],
                            .out_stride = 16};
    for (job.rows = 1; job.rows <= 17; job.rows += 16) {
        attn__matmul_panels(kernels, &job, 0, job.rows, 0, 1, pack);
        vectors_compare(v, out[0], n_out, kernels->names[0]);
        vectors_compare(v, out[job.rows - 1], n_out, kernels->names[0]);
    }
    pool_clear();
}

/* What of contract.md is not public; suite proof has the rest. */
TEST(contract_vectors)
{
    for (int isa = ATTN_ISA_PORTABLE; isa <= ATTN_ISA_NEON_I8MM; isa++) {
        vector_file v;
        float y[64];
        size_t n, i;
        attn_ctx ctx = {.isa = (attn_isa_kind)isa};
        const attn__kernels *kernels = attn__kernels_for(&ctx);
        if (!kernels || strstr(kernels->names[0], "no fused"))
            continue;
        for (vectors_open(&v); v.index < v.n; vectors_next(&v)) {
            const json_value *type = json_get(v.entry, "type");
            if (type && type->text[0] == 'q')
                check_quantised(kernels, &v);
            if (!vectors_is(v.entry, "function", "log"))
                continue;
            const float *x = vectors_floats(&v, json_get(v.entry, "x"), &n);
            for (i = 0; i < n && i < 64; i++)
                y[i] = attn__log(x[i]);
            vectors_compare(&v, y, i, kernels->names[0]);
        }
        vectors_close(&v);
    }
}

/* Every half, times one. */
TEST(widening)
{
    enum { N = 65536 };
    float *const pack = (float *)pool_new(attn__pack_size(ATTN_F16, 1, 1) * sizeof(float));
    float *const got = (float *)pool_new(N * sizeof(float));
    uint16_t *const halves = (uint16_t *)pool_new(2 * N * sizeof(uint16_t));
    const float one[2] = {1, 1};
    for (int i = 0; i < N; i++)
        halves[i / 16 * 32 + i % 16] = (uint16_t)i; /* a panel of one line and an empty one */
    attn__matmul_job job = {.in = one,
                            .in_stride = 1,
                            .in_step = 1,
                            .w = attn__panels_at(halves, ATTN_F16, 1, N),
                            .out = got,
                            .out_stride = N,
                            .rows = 1};
    for (int isa = ATTN_ISA_PORTABLE; isa <= ATTN_ISA_NEON_I8MM; isa++) {
        attn_ctx ctx = {.isa = (attn_isa_kind)isa};
        const attn__kernels *kernels = attn__kernels_for(&ctx);
        if (!kernels)
            continue;
        attn__matmul_panels(kernels, &job, 0, 1, 0, N / 16, pack);
        for (int i = 0; i < N; i++) {
            const double want = half_value((uint16_t)i);
            CHECKF(want != want ? got[i] != got[i] : (double)got[i] == want, "%s: %04x gave %a",
                   kernels->names[0], (unsigned)i, (double)got[i]);
        }
    }
}

/* Rounding to f16 as one number at a time does, rows of any length. */
TEST(narrowing)
{
    static const float special[] = {0.0f,     -0.0f,     65504.0f, 65519.99f, 65520.0f, -1e30f,
                                    INFINITY, -INFINITY, 6.1e-5f,  5.96e-8f,  2.98e-8f, 2.99e-8f,
                                    1e-40f,   NAN,       2049.0f,  2051.0f};
    const size_t n_special = sizeof special / sizeof special[0];
    for (int isa = ATTN_ISA_PORTABLE; isa <= ATTN_ISA_NEON_I8MM; isa++) {
        float x[40];
        uint16_t got[41];
        attn_ctx ctx = {.isa = (attn_isa_kind)isa};
        const attn__kernels *kernels = attn__kernels_for(&ctx);
        for (size_t n = 0; kernels && n <= 40; n++) {
            for (size_t i = 0; i < n; i++)
                x[i] = random_below(2) ? special[random_below(n_special)]
                                       : ldexpf(random_float(), (int)random_below(50) - 30);
            got[n] = 0xABCD;
            kernels->narrow(got, x, n);
            for (size_t i = 0; i < n; i++)
                CHECKF(got[i] == attn_f16_from_f32(x[i]), "%s: %a gave %04x", kernels->names[0],
                       (double)x[i], (unsigned)got[i]);
            EQUAL(got[n], 0xABCD);
        }
    }
}

/* ---- quantising weights ---- */

/* ggml's q4_0, from its description: the weight of largest magnitude becomes -8, and the scale is
 * kept as f16. Gives the sum of squared errors of one block. */
static double error_of_q4_0(const float *x)
{
    float largest = 0;
    double sum = 0;
    for (int i = 0; i < 32; i++)
        largest = fabsf(x[i]) > fabsf(largest) ? x[i] : largest;
    float scale = largest / -8;
    for (int i = 0; i < 32; i++) {
        const double level = floor((scale != 0 ? (double)(x[i] / scale) : 0) + 8.5);
        const double e =
            ((level > 15 ? 15 : level) - 8) * half_value(half_of(scale)) - (double)x[i];
        sum += e * e;
    }
    return sum;
}

/* q8 is within half a step everywhere; q4 is closer to the weights than q4_0 is. */
TEST(rounding_of_weights)
{
    static const float sizes[] = {1.0f, 0.02f, 1e-4f, 1e-6f, 300.0f};
    const size_t n_in = 96, n_out = 48;
    attn_ctx ctx = {0};
    float *const x = (float *)pool_new(n_in * n_out * sizeof(float));
    unsigned char *const panels =
        (unsigned char *)pool_new(attn__panels_size(ATTN_Q8, n_in, n_out));
    int whole;
    for (size_t i = 0; i < 5; i++) {
        double ours = 0, theirs = 0;
        for (size_t k = 0; k < n_in * n_out; k++) /* bell-shaped */
            x[k] = sizes[i] * (random_float() + random_float() + random_float() + random_float());
        OK(&ctx, lens_make_panels(&ctx, panels, ATTN_Q8,
                                  attn_borrow(x, ATTN_F32, attn_shape2(n_in, n_out))));
        for (size_t k = 0; k < n_in; k++)
            for (size_t n = 0; n < n_out; n++) {
                const float scale = weight_of(panels, ATTN_Q8, n_in, k, n, &whole);
                const double e = fabs((double)scale * whole - (double)x[k * n_out + n]);
                CHECKF(e <= 0.5001 * (double)scale, "q8 (%d, %d): off by %g steps", (int)k, (int)n,
                       e / (double)scale);
            }
        OK(&ctx, lens_make_panels(&ctx, panels, ATTN_Q4,
                                  attn_borrow(x, ATTN_F32, attn_shape2(n_in, n_out))));
        for (size_t k = 0; k < n_in; k += 32)
            for (size_t n = 0; n < n_out; n++) {
                float block[32];
                for (size_t j = 0; j < 32; j++) {
                    const float scale = weight_of(panels, ATTN_Q4, n_in, k + j, n, &whole);
                    block[j] = x[(k + j) * n_out + n];
                    double e = (double)scale * whole - (double)block[j];
                    ours += e * e;
                }
                theirs += error_of_q4_0(block);
            }
        CHECKF(ours < 0.95 * theirs, "weights around %g: squared error %g, q4_0's %g",
               (double)sizes[i], ours, theirs);
    }
}

/* Blocks of zeros, of one value, of one spike; and what lies beyond the edges is zero. */
TEST(special_blocks)
{
    const size_t n_in = 70, n_out = 18;
    attn_ctx ctx = {0};
    float *const x = (float *)pool_new(n_in * n_out * sizeof(float));
    unsigned char *const panels =
        (unsigned char *)pool_new(attn__panels_size(ATTN_Q8, n_in, n_out));
    int whole;
    for (size_t i = 2; i < 4; i++) {
        const attn_dtype dtype = dtypes[i];
        memset(x, 0, n_in * n_out * sizeof(float));
        for (size_t k = 0; k < n_in; k++)
            x[k * n_out + 1] = 3.0f;
        x[33 * n_out + 2] = -5.0f;
        OK(&ctx, lens_make_panels(&ctx, panels, dtype,
                                  attn_borrow(x, ATTN_F32, attn_shape2(n_in, n_out))));
        for (size_t k = 0; k < 128; k++)
            for (size_t n = 0; n < 32; n++) {
                const float scale = weight_of(panels, dtype, n_in, k, n, &whole);
                const float want = k < n_in && n < n_out ? x[k * n_out + n] : 0;
                CHECKF(fabs((double)scale * whole - (double)want) <= 2e-3,
                       "%s (%d, %d) is %g, not %g", dtype_names[dtype], (int)k, (int)n,
                       (double)scale * whole, (double)want);
            }
    }
}

/* Threads share out the panels; the bytes are the same. */
TEST(writing_on_threads)
{
    const size_t n_in = 65, n_out = 200;
    attn_ctx ctx = {0};
    float *const x = (float *)pool_new(n_in * n_out * sizeof(float));
    for (size_t k = 0; k < n_in * n_out; k++)
        x[k] = random_float();
    for (size_t i = 0; i < 4; i++) {
        const size_t size = attn__panels_size(dtypes[i], n_in, n_out);
        unsigned char *const one = (unsigned char *)pool_new(size);
        unsigned char *const four = (unsigned char *)pool_new(size);
        const attn_tensor w = attn_borrow(x, ATTN_F32, attn_shape2(n_in, n_out));
        ctx.n_threads = 1;
        OK(&ctx, lens_make_panels(&ctx, one, dtypes[i], w));
        ctx.n_threads = 4;
        OK(&ctx, lens_make_panels(&ctx, four, dtypes[i], w));
        CHECK(memcmp(one, four, size) == 0);
    }
    CHECK(attn__panels_size(ATTN_I32, 4, 4) == 0);
    CHECK(attn__panels_size(ATTN_F32, SIZE_MAX / 32, 64) == 0);
    CHECK(attn__panels_size(ATTN_F16, SIZE_MAX, 1) == 0);
}

/* ---- which kernels run ---- */

/* What Intel's manual calls the bits: a processor that lacks one of them, or a system that does not
 * save the wide registers, must not get code that needs it. */
TEST(features_of_processors)
{
#if defined(ATTN__DISPATCH) && defined(ATTN__X86)
    enum { AVX2 = 1u << 5, F = 1u << 16, DQ = 1u << 17, BW = 1u << 30, VNNI = 1u << 11 };
    const unsigned vl = 1u << 31, fma = 1u << 12, f16c = 1u << 29;
    const unsigned all = AVX2 | F | DQ | BW | vl;
    const unsigned avx2 = ATTN__BIT(AVX2), avx512 = avx2 | ATTN__BIT(AVX512);
    const unsigned vnni = avx512 | ATTN__BIT(AVX512_VNNI);
    const struct {
        unsigned leaf1, xcr0, leaf7b, leaf7c, want, leaf7_1a;
    } cases[] = {{fma | f16c, 0xe7, all, VNNI, vnni, 0},
                 {fma | f16c, 0xe7, all, VNNI, vnni, ~16u},
                 {fma | f16c, 0xe7, all & ~(unsigned)F, 0, avx2 | ATTN__BIT(AVX2_VNNI), 16},
                 {fma | f16c, 0x07, all, VNNI, avx2 | ATTN__BIT(AVX2_VNNI), 16},
                 {fma | f16c, 0x03, all, VNNI, 0, 16},
                 {fma | f16c, 0xe7, all, 0, avx512, 0},
                 {fma | f16c, 0xe7, all & ~(unsigned)F, VNNI, avx2, 0},
                 {fma | f16c, 0xe7, all & ~(unsigned)DQ, VNNI, avx2, 0},
                 {fma | f16c, 0xe7, all & ~(unsigned)BW, VNNI, avx2, 0},
                 {fma | f16c, 0xe7, all & ~vl, VNNI, avx2, 0},
                 {fma | f16c, 0x67, all, VNNI, avx2, 0}, /* the upper 16 of the registers */
                 {fma | f16c, 0x07, all, VNNI, avx2, 0},
                 {fma | f16c, 0x03, all, VNNI, 0, 0}, /* the upper halves of ymm */
                 {fma | f16c, 0x05, all, VNNI, 0, 0},
                 {fma | f16c, 0xe7, all & ~(unsigned)AVX2, VNNI, 0, 0},
                 {fma, 0xe7, all, VNNI, 0, 0},
                 {f16c, 0xe7, all, VNNI, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECKF(attn__features_of(cases[i].leaf1, cases[i].xcr0, cases[i].leaf7b, cases[i].leaf7c,
                                 cases[i].leaf7_1a) == cases[i].want,
               "case %d", (int)i);
    CHECK(attn__kernels_of(ATTN_ISA_AUTO, avx512 | ATTN__BIT(AVX512_VNNI)) ==
          &attn__kernels_avx512_vnni);
#ifdef ATTN__AVX2_VNNI
    CHECK(attn__kernels_of(ATTN_ISA_AUTO, avx2 | ATTN__BIT(AVX2_VNNI)) == &attn__kernels_avx2_vnni);
    CHECK(attn__kernels_of(ATTN_ISA_AVX2_VNNI, avx2) == NULL);
#endif
    CHECK(attn__kernels_of(ATTN_ISA_AUTO, avx512) == &attn__kernels_avx512);
    CHECK(attn__kernels_of(ATTN_ISA_AUTO, avx2) == &attn__kernels_avx2);
    CHECK(attn__kernels_of(ATTN_ISA_AUTO, 0) == &attn__kernels_base);
    CHECK(attn__kernels_of(ATTN_ISA_AVX512_VNNI, avx512) == NULL);
    CHECK(attn__kernels_of(ATTN_ISA_AVX512, avx2) == NULL);
    CHECK(attn__kernels_of(ATTN_ISA_AVX2, 0) == NULL);
    CHECK(attn__kernels_of(ATTN_ISA_BASE, avx512) == &attn__kernels_base);
    CHECK(attn__kernels_of(attn__kernels_base.kind, 0) == &attn__kernels_base);
#endif
    CHECK(attn__kernels_of(ATTN_ISA_PORTABLE, 7) == &attn__kernels_portable);
    CHECK(attn__kernels_of(ATTN_ISA_NEON, 7) == NULL || attn__kernels_base.kind == ATTN_ISA_NEON);
}

/* ---- the other byte order ---- */

/* What a big-endian host does with the weights, done here: every number is turned around, and of q8
 * and q4 only the scales are numbers of more than a byte. */
TEST(turned_around)
{
    static const char *const options[] = {"", "--dtype q8", "--dtype q4", "--dtype f16"};
    char command[700];
    size_t at, size;
    const char *const path = test_text("%s", test_tmp("kernels.attn"));
    for (size_t i = 0; i < 4; i++) {
        SCOPED_CTX ctx = {0};
        SCOPED_MODEL model = NULL;
        snprintf(command, sizeof command, TEST_BUILD "/attn-convert tests/golden/plain %s %s 2>&1",
                 path, options[i]);
        CHECKF(system(command) == 0, "%s failed", command);
        SCOPED_BYTES file = test_read(path, &size);
        if (!CHECK(file != NULL) || !OK(&ctx, attn_model_open(&ctx, &model, path, NULL)))
            continue;
        OK(&ctx, attn__to_host_order(&ctx, model));
        unsigned char *copy = (unsigned char *)model->turned;
        for (size_t w = 0; w < model->n_weights && copy; w++) {
            const attn__weight *t = &model->weights[w];
            const unsigned char *old = file + t->offset, *now = copy + t->offset;
            const size_t panel = t->dtype == ATTN_Q8 ? 17 * 64 : 9 * 64;
            int good = 1;
            for (at = 0; at < t->size && good; at++) {
                const size_t n = t->dtype == ATTN_F32 ? 4 : 2;
                const int is_number = t->dtype < ATTN_Q8 || at % panel < 64;
                good = now[at] == old[is_number ? at / n * n + (n - 1 - at % n) : at];
            }
            CHECKF(good, "%s, byte %d", t->name, (int)at);
            CHECK(model->weights[w].data == copy + t->offset);
        }
        CHECK(memcmp(model->bytes, file, size) == 0 &&
              memcmp(copy, file, (size_t)model->weights[0].offset) == 0);
    }
}

/* ---- the loops that the bench compares with ---- */

TEST(roofs_of_every_kind)
{
    static unsigned char memory[16384 + 64];
    unsigned char *const p = memory + (64 - (uintptr_t)memory % 64) % 64;
    size_t at;
    for (size_t i = 0; i < sizeof roof_table / sizeof roof_table[0]; i++) {
        const roof_loops *r = &roof_table[i];
        float x[4] = {0.5f, 0.25f, 0, 0}, y[4] = {0.5f, 0.25f, 0, 0};
        attn_ctx ctx = {.isa = strcmp(r->isa, "avx512 vnni") == 0 ? ATTN_ISA_AVX512_VNNI
                               : strcmp(r->isa, "avx2 vnni") == 0 ? ATTN_ISA_AVX2_VNNI
                               : strcmp(r->isa, "avx512") == 0    ? ATTN_ISA_AVX512
                               : strcmp(r->isa, "avx2") == 0      ? ATTN_ISA_AVX2
                               : strcmp(r->isa, "i8mm") == 0      ? ATTN_ISA_NEON_I8MM
                               : strcmp(r->isa, "dotprod") == 0   ? ATTN_ISA_NEON_DOT
                                                                  : ATTN_ISA_BASE};
        if (!attn_isa(&ctx))
            continue;
        r->f32(0, x); /* the sums begin at 0, 1, 2 ...: how many there are is what a step costs */
        for (at = 0; (float)at * ((float)at - 1) / 2 < x[2]; at++)
            ;
        CHECKF((float)at * ((float)at - 1) / 2 == x[2] && r->f32_ops >= 2 * (double)at &&
                   fmod(r->f32_ops, 2 * (double)at) == 0,
               "%s: a step of %d sums and %g operations", r->isa, (int)at, r->f32_ops);
        x[2] = 0;
        r->f32(1, x); /* a + w v or a w + v, which comes to the same or half of it, and n v */
        CHECKF(x[2] == (float)at * ((float)at - 1) / 2 + 0.125f * (float)at ||
                   x[2] == (float)at * ((float)at - 1) / 4 + 0.25f * (float)at,
               "%s: %g", r->isa, (double)x[2]);
        if (r->bytes) {
            r->bytes(1, x);
            r->bytes(1, y);
            x[2] = 0;
            r->bytes(1, x);
            CHECKF(memcmp(&x[2], &y[2], 4) == 0 && r->bytes_ops > 0, "%s: other sums", r->isa);
        }
        for (int form = 0; form < ROOF_FORMS; form++)
            for (at = 0; at < 16384; at += 8 * 31) { /* every part of what is read counts */
                p[at] = 4;
                CHECKF(r->read(p, 16384, roof_forms[form].streams, roof_forms[form].ahead) != 0,
                       "%s, form %d: byte %d is not read", r->isa, form, (int)at);
                p[at] = 0;
                CHECK(r->read(p, 16384, roof_forms[form].streams, 0) == 0);
            }
    }
}

/* The measuring itself: more time for more work, and something at all of every kind. */
TEST(measured_roofs)
{
    static roofs r;
    roof_loops without;
    attn_ctx ctx = {0};
    roofs_init(&r, attn_isa(&ctx), 1e-4);
    CHECK(strstr(attn_isa(&ctx), r.loops->isa) != NULL);
    CHECK(roofs_memory(&r, 3 << 20) && r.size == 4 << 20 && (uintptr_t)r.memory % (2 << 20) == 0);
    CHECK(roofs_memory(&r, 1) && r.size == 4 << 20);
    CHECK(!roofs_memory(&r, SIZE_MAX / 2) && r.size == 0);
    CHECK(roofs_memory(&r, 1) && r.size == 2 << 20);
    for (int threads = 1; threads <= 2; threads++)
        for (int kind = 0; kind < ROOF_KINDS; kind++) {
            const double rate = roof_measure(&r, (roof_kind)kind, 1 << 16, threads);
            if (kind == ROOF_BYTES && !r.loops->bytes) /* no roof is known in plain C */
                EQUAL(rate, 0);
            else
                CHECKF(rate > 0 && rate < 1e18, "kind %d: %g", kind, rate);
        }
    CHECK(roof_measure(&r, ROOF_MEMORY, SIZE_MAX, 1) > 0); /* all there is */
    CHECK(roof_measure(&r, ROOF_MEMORY, 1, 1) > 0);        /* 64 KiB at least */
    without = *r.loops;
    without.bytes = NULL;
    r.loops = &without;
    CHECK(roof_measure(&r, ROOF_BYTES, 0, 1) == 0);
    roofs_free(&r);
    roofs_init(&r, "portable", 1e-5);
    CHECK(r.loops->isa[0] == 0);
#if defined(__GNUC__)
#ifdef ATTN__TEAMS
    CHECK(roof_ping_pong(0.001) > 0);
#else
    EQUAL(roof_ping_pong(0.001), 0);
#endif
#endif
}

/* Drafts that fail again and again cost at most three rows in a hundred; ones that come true are
 * made in full again soon. */
TEST(wrong_drafts_become_rare)
{
    size_t drafted = 0, tries = 0;
    attn__drafter g = {.most = ATTN__MOST_DRAFTED, .next = 4};
    for (size_t token = 0; token < 2000; token++) {
        const size_t n = g.wait > 0 ? 0 : g.next;
        if (g.wait > 0)
            g.wait--;
        drafted += n;
        tries += n > 0;
        if (n > 0)
            attn__adapt_draft(&g, n, 0);
    }
    CHECKF(drafted <= 60, "%d drafted", (int)drafted);
    CHECKF(tries >= 20, "%d tries", (int)tries); /* a text may become repetitive at any time */
    for (size_t token = 0; token < 4; token++)
        attn__adapt_draft(&g, g.next, g.next);
    CHECK(g.next == ATTN__MOST_DRAFTED && g.failures == 0);
}

/* ---- the number of threads ---- */

#ifdef ATTN__TEAMS
/* A machine on which a pass takes seconds[n] on n threads, which wait for a part of that. */
typedef struct machine {
    const double *seconds, *waiting;
    int start, most;
    double noise; /* every pass takes up to this part more */
    attn_rng rng;
} machine;

/* Passes on it until they have taken so long; how long the best fixed number would have taken for
 * them. */
static double run_machine(attn__tuner *t, machine *m, double until, double *took)
{
    double best = 0, least = m->seconds[1];
    int n, passes = 0;
    for (n = 2; n <= m->most; n++)
        least = m->seconds[n] > 0 && m->seconds[n] < least ? m->seconds[n] : least;
    for (*took = 0; *took < until; passes++) {
        n = attn__tuner_next(t, m->start, m->most);
        if (!CHECKF(n >= 1 && n <= m->most && m->seconds[n] > 0, "%d threads", n))
            return 0;
        double seconds = m->seconds[n] * (1 + m->noise * (double)attn_rng_uniform(&m->rng));
        attn__tuner_note(t, m->most, 1e6, seconds, seconds * m->waiting[n]);
        *took += seconds;
        best += least * (1 + m->noise / 2);
    }
    return best;
}

/* On machines that stay as they are, the default is never a tenth slower than the best number. */
TEST(the_best_number_is_found)
{
    static const struct {
        double seconds[9], waiting[9];
        int start, most, best;
    } machines[] = {
        {{0, 0.05, 0.028}, {0, 0, 0.1}, 2, 2, 2},     /* idle, large */
        {{0, 0.0002, 0.00025}, {0, 0, 0.2}, 1, 2, 1}, /* idle, small */
        {{0, 0.0002, 0.00012}, {0, 0, 0.2}, 1, 2, 2}, /* the same with fast barriers */
        {{0, 0.001, 0.04}, {0, 0, 0.9}, 1, 2, 1},     /* beside busy programs, small */
        {{0, 0.02, 0.07}, {0, 0, 0.5}, 2, 2, 1},      /* and large */
        {{0, 0.3, 0.2}, {0, 0, 0.4}, 2, 2, 2},        /* more threads, more of the processors */
        {{0, 0.08, 0.05, 0, 0.02, 0, 0, 0, 0.09}, {0, 0, 0, 0, 0.1, 0, 0, 0, 0.4}, 8, 8, 4},
        {{0, 0.08, 0.05, 0, 0.02, 0, 0, 0, 0.09}, {0, 0, 0, 0, 0.1, 0, 0, 0, 0.4}, 1, 8, 4},
        {{0, 0.01, 0.2, 0.9, 0, 0, 0.9}, {0, 0, 0.5, 0.9, 0, 0, 0.9}, 6, 6, 1},
    };
    for (size_t i = 0; i < 2 * sizeof machines / sizeof *machines; i++) {
        const size_t at = i / 2;
        machine m;
        attn__tuner t;
        double took;
        memset(&t, 0, sizeof t);
        m.seconds = machines[at].seconds;
        m.waiting = machines[at].waiting;
        m.start = machines[at].start;
        m.most = machines[at].most;
        m.noise = i % 2 ? 0.2 : 0;
        attn_rng_seed(&m.rng, i);
        run_machine(&t, &m, 60, &took);
        CHECKF(t.n_threads == machines[at].best, "machine %d: %d threads", (int)i, t.n_threads);
        double best = run_machine(&t, &m, 300, &took);
        CHECKF(took < 1.1 * best, "machine %d: %g s, the best number %g s", (int)i, took, best);
    }
}

/* A program comes and keeps processors busy: fewer threads after a few passes. It goes: more again.
 * Trials that fail become rare. */
TEST(others_come_and_go)
{
    static const double idle[] = {0, 0.05, 0.028}, beside[] = {0, 0.06, 0.3};
    static const double even[] = {0, 0, 0.1}, late[] = {0, 0, 0.8};
    machine m;
    attn__tuner t;
    double took;
    int trials = 0;
    memset(&t, 0, sizeof t);
    memset(&m, 0, sizeof m);
    m.start = m.most = 2;
    for (int turn = 0; turn < 3; turn++) {
        m.seconds = idle;
        m.waiting = even;
        run_machine(&t, &m, 30, &took);
        CHECKF(t.n_threads == 2, "turn %d, idle: %d threads", turn, t.n_threads);
        m.seconds = beside;
        m.waiting = late;
        run_machine(&t, &m, 2, &took);
        CHECKF(t.n_threads == 1, "turn %d, beside others: %d threads", turn, t.n_threads);
    }
    for (int passes = 0; passes < 5000; passes++) {
        const int n = attn__tuner_next(&t, 2, 2);
        trials += n == 2;
        attn__tuner_note(&t, 2, 1e6, beside[n], beside[n] * late[n]);
    }
    CHECKF(trials >= 5 && trials <= 40, "%d passes of 5000 on trial", trials);
    CHECK(attn__tuner_next(&t, 2, 1) == 1); /* the caller may allow fewer at any time */
}

/* Workers that are late now and then, as those are that wait for a callback, do not bring trial
 * after trial of fewer threads. */
TEST(late_now_and_then)
{
    static const double seconds[] = {0, 0.05, 0.028}, even[] = {0, 0, 0.1}, late[] = {0, 0, 0.6};
    machine m;
    attn__tuner t;
    double took, best, all = 0, all_best = 0;
    memset(&t, 0, sizeof t);
    memset(&m, 0, sizeof m);
    m.start = m.most = 2;
    m.seconds = seconds;
    for (int turn = 0; turn < 2000; turn++) {
        m.waiting = turn % 2 ? late : even;
        best = run_machine(&t, &m, 0.06, &took);
        all += took;
        all_best += best;
    }
    CHECKF(all < 1.15 * all_best, "%g s, the best number %g s", all, all_best);
}

/* Passes of a small model, every so often held up for a slice of the processor. */
static int held_up(attn__tuner *t, const double *seconds, const double *late, int often,
                   double until)
{
    double took;
    int i, n = 0;
    for (i = 1, took = 0; took < until; i++) {
        const double slice = i % often ? 0 : 0.0042;
        n = attn__tuner_next(t, 2, 2);
        attn__tuner_note(t, 2, 1e6, seconds[n] + slice,
                         seconds[n] * late[n] + (n > 1 ? slice * 0.9 : 0));
        took += seconds[n] + slice;
    }
    return t->n_threads;
}

/* Beside one busy program, two threads wait for each other in most passes, not in all, and one
 * thread loses a slice now and then: neither hides that one thread is faster. On an idle machine a
 * slice that is lost does not bring fewer threads. */
TEST(slices_of_the_processor)
{
    static const double idle[] = {0, 0.00015, 0.0001}, large[] = {0, 0.019, 0.0133};
    static const double beside[] = {0, 0.0002, 0.004}, even[] = {0, 0, 0.1}, late[] = {0, 0, 0.5};
    attn__tuner t;
    memset(&t, 0, sizeof t);
    for (int turn = 0; turn < 5; turn++) {
        CHECK(held_up(&t, idle, even, 1000, 10) == 2);
        CHECK(held_up(&t, beside, late, 16, 1) == 1);
    }
    memset(&t, 0, sizeof t);
    for (int turn = 0; turn < 50; turn++)
        CHECK(held_up(&t, large, even, 25, 2) == 2);
}

/* Whatever number each pass is given, every bit stays. */
TEST(any_number_of_threads_gives_the_same_bits)
{
    attn_ctx ctx;
    attn_model *model = NULL;
    attn_session *one = NULL, *tuned = NULL;
    memset(&ctx, 0, sizeof ctx);
    if (OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL)) &&
        OK(&ctx, attn_session_new(&ctx, &one, model, NULL)) &&
        OK(&ctx, attn_session_new(&ctx, &tuned, model, NULL)))
        for (int32_t token = 0; token < 40; token++) {
            for (size_t i = 0; i < ATTN__PASS_SIZES; i++) {
                attn__tuner *t = &tuned->workspace->tuners->of_size[i];
                memset(t, 0, sizeof *t);
                t->n_threads = 1 + (token + 1) % 3;
                t->trial_threads = 1 + token % 2;
                t->speed = 1e9;
            }
            ctx.n_threads = 1;
            OK(&ctx, attn_feed(&ctx, one, &token, 1));
            ctx.n_threads = 0;
            OK(&ctx, attn_feed(&ctx, tuned, &token, 1));
            CHECKF(memcmp(attn_session_logits(one), attn_session_logits(tuned),
                          attn_model_config(model)->n_vocab * sizeof(float)) == 0,
                   "token %d", (int)token);
        }
    attn_session_free(one);
    attn_session_free(tuned);
    attn_model_close(model);
    attn_ctx_free(&ctx);
}

/* Passes that are too small are not even timed. A number that the caller chose is the first one. */
static void count_workers(attn__worker *me, void *arg)
{
    if (me->id == 0)
        *(int *)arg = me->count;
}

TEST(when_there_is_a_choice)
{
    attn__tuners tuners, untouched;
    int n = 0, cores = 4;
#if defined(__linux__) && defined(__GNUC__)
    cores = attn__cores("", 4);
#endif
    memset(&tuners, 0, sizeof tuners);
    memset(&untouched, 0, sizeof untouched);
    attn__parallel_tuned(&tuners, 0, 4, 1e5, 10, count_workers, &n);
    CHECK(n == 1 && memcmp(&tuners, &untouched, sizeof tuners) == 0);
    attn__parallel_tuned(&tuners, 1, 4, 1e5, 10, count_workers, &n);
    CHECK(n == 4 && memcmp(&tuners, &untouched, sizeof tuners) != 0);
    attn__dismiss(&tuners.crew); /* its threads must not wait in a crew that is zeroed or gone */
    memset(&tuners, 0, sizeof tuners);
    attn__parallel_tuned(&tuners, 0, 4, 1e9, 10, count_workers, &n);
    CHECK(n == cores && memcmp(&tuners, &untouched, sizeof tuners) != 0);
    attn__parallel_tuned(&tuners, 0, 4, 2.5e6, 10, count_workers, &n);
    EQUAL(n, 1); /* to start threads would cost more than it saves */
    attn__parallel_tuned(&tuners, 0, 4, 3.5e7, 50, count_workers, &n);
    EQUAL(n, cores < 3 ? cores : 3);
    attn__parallel_tuned(&tuners, 0, 4, 1e300, 10, count_workers, &n);
    EQUAL(n, cores);
    attn__dismiss(&tuners.crew);
}
#endif

#if defined(ATTN__TEAMS) && defined(__linux__)
static void quota_file(const char *path, const char *text)
{
    EQUAL(system(test_text("mkdir -p \"$(dirname %s)\"", path)), 0); /* NOLINT(cert-env33-c) */
    test_write(path, text, strlen(text));
}

/* What files of control groups allow: of the group itself or one above it. */
TEST(quotas)
{
    static const struct {
        const char *groups, *file, *text, *file2, *text2;
        int processors;
    } cases[] = {
        {"0::/\n", "cpu.max", "max 100000\n", NULL, NULL, 256},
        {"0::/\n", "cpu.max", "150000 100000\n", NULL, NULL, 2},
        {"0::/\n", "cpu.max", "20000 100000\n", NULL, NULL, 1},
        {"0::/a/b\n", "a/b/cpu.max", "300000 100000\n", NULL, NULL, 3},
        {"0::/a/b\n", "a/cpu.max", "300000 100000\n", "a/b/cpu.max", "max 100000\n", 3},
        {"0::/a/b\n", "a/cpu.max", "500000 100000\n", "a/b/cpu.max", "400000 100000\n", 4},
        {"0::/else\n", "cpu.max", "200000 100000\n", NULL, NULL, 2},
        {"0::/\n", "cpu.max", "", NULL, NULL, 256},
        {"0::/\n", "cpu.max", "9 0\n", NULL, NULL, 256},
        {"nothing\n::\n", "cpu.max", "200000 100000\n", NULL, NULL, 256},
        {"2:cpu:/\n1:name=systemd:/\n0::/v", "v/cpu.max", "700000 100000\n", NULL, NULL, 7},
        /* version 1 */
        {"3:memory:/x\n2:cpu,cpuacct:/d/x\n", "cpu,cpuacct/d/x/cpu.cfs_quota_us", "250000\n",
         "cpu,cpuacct/d/x/cpu.cfs_period_us", "100000\n", 3},
        {"2:cpu:/not/mounted\n0::/\n", "cpu/cpu.cfs_quota_us", "50000\n", "cpu/cpu.cfs_period_us",
         "100000\n", 1},
        {"2:cpu:/\n", "cpu/cpu.cfs_quota_us", "-1\n", "cpu/cpu.cfs_period_us", "100000\n", 256},
        {"2:cpu:/\n", "cpu/cpu.cfs_quota_us", "200000\n", NULL, NULL, 256},
    };
    char root[256];
    int got;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(root, sizeof root, "%s-%d", test_tmp("quota"), (int)i);
        quota_file(test_text("%s/proc/self/cgroup", root), cases[i].groups);
        quota_file(test_text("%s/sys/fs/cgroup/%s", root, cases[i].file), cases[i].text);
        if (cases[i].file2) {
            quota_file(test_text("%s/sys/fs/cgroup/%s", root, cases[i].file2), cases[i].text2);
        }
        got = attn__quota(root);
        CHECKF(got == cases[i].processors, "case %d: %d processors", (int)i, got);
    }
    CHECK(attn__quota("no/such/directory") == 256);
}

/* With hyper-threads a first pass uses a thread for each core. */
TEST(cores)
{
    static const char file[] = "sys/devices/system/cpu/smt/active";
    const char *const root = test_text("%s", test_tmp("cores"));
    const char *const path = test_text("%s/%s", root, file);
    quota_file(path, "1\n");
    EQUAL(attn__cores(root, 16), 8);
    EQUAL(attn__cores(root, 3), 2);
    EQUAL(attn__cores(root, 1), 1);
    quota_file(path, "0\n");
    EQUAL(attn__cores(root, 16), 16);
    EQUAL(attn__cores("no/such/directory", 16), 16);
}
#endif

/* ---- the kernels' layout of weights --------------------------------------------------------- */

TEST(panels)
{
    static const size_t sizes[][2] = {{1, 1},  {1, 16},  {1, 17}, {2, 15}, {3, 16},
                                      {7, 33}, {16, 48}, {5, 1},  {4, 50}, {31, 31}};
    SCOPED_CTX ctx = {0};
    random_state = 21;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const size_t rows = sizes[s][0], columns = sizes[s][1];
        for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++) {
            const size_t deep = dtype == ATTN_F16 ? (rows + 1) / 2 * 2 : rows;
            const size_t count = (columns + 15) / 16 * deep * 16;
            const size_t size = count * size_of((attn_dtype)dtype);
            unsigned char *got = (unsigned char *)pool_new(size + 64);
            unsigned char *want = (unsigned char *)pool_new(size);
            if (!CHECK(attn__panels_size((attn_dtype)dtype, rows, columns) == size))
                return;
            for (int layout = 0; layout < N_LAYOUTS; layout++) {
                for (int from = ATTN_F32; from <= ATTN_F16; from++) {
                    attn_tensor w = random_tensor(2, (int)rows, (int)columns);
                    w = laid_out(w, (attn_dtype)from, layout);
                    memset(got, 0xEE, size + 64);
                    memset(want, 0, size);
                    for (size_t k = 0; k < rows; k++) {
                        for (size_t n = 0; n < columns; n++) {
                            const float value = (float)value_of(w, k * columns + n);
                            const size_t number = (n / 16 * deep + k) * 16 + n % 16;
                            if (dtype == ATTN_F16)
                                ((uint16_t *)(void *)want)[number] = half_of(value);
                            else
                                ((float *)(void *)want)[number] = value;
                        }
                    }
                    OK(&ctx, lens_make_panels(&ctx, got, (attn_dtype)dtype, w));
                    CHECKF(memcmp(got, want, size) == 0, "[%d, %d] layout %d, type %d from %d",
                           (int)rows, (int)columns, layout, dtype, from);
                    for (size_t i = 0; i < 64; i++)
                        EQUAL(got[size + i], 0xEE);
                }
            }
            pool_clear();
        }
    }
}

/* 8 and 4 bits need a scale that f16 holds; 32 and 16 bits take everything. */
TEST(weights_without_a_scale)
{
    static const float wrong[] = {NAN, INFINITY, -INFINITY, 65520, -65520, 1e38f};
    attn_ctx ctx = {0};
    attn_tensor w = random_tensor(2, 70, 40);
    void *room = pool_new(attn__panels_size(ATTN_F32, 70, 40)); /* the largest of them */
    for (size_t j = 0; j < 4; j++) {
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            set_value(w, 69 * 40 + 39, wrong[i]);
            if (j < 2)
                OK(&ctx, lens_make_panels(&ctx, room, dtypes[j], w));
            else
                FAILS(ARGUMENT, "no scale", lens_make_panels(&ctx, room, dtypes[j], w));
        }
        set_value(w, 69 * 40 + 39, -65519);
        OK(&ctx, lens_make_panels(&ctx, room, dtypes[j], w));
    }
}

/* ---- the barriers of a pass, by which the library guesses how many threads are worth while ---- */

#ifdef ATTN__TEAMS
static int n_passed;

static void count_barriers(attn__worker *me, void *pass)
{
    attn__forward(me, pass);
    if (me->id == 0)
        n_passed = me->team->phase + 1; /* and the one at the end of the region */
}

/* Every worker counts itself before a barrier: behind it, all have. */
typedef struct meeting {
    int n_came, n_rounds, n_early;
} meeting;

static void meet(attn__worker *me, void *arg)
{
    meeting *m = (meeting *)arg;
    for (int round = 1; round <= m->n_rounds; round++) {
        __atomic_add_fetch(&m->n_came, 1, __ATOMIC_RELAXED);
        attn__barrier(me);
        if (__atomic_load_n(&m->n_came, __ATOMIC_RELAXED) != round * me->count)
            __atomic_add_fetch(&m->n_early, 1, __ATOMIC_RELAXED);
        attn__barrier(me);
    }
}

TEST(barriers_hold)
{
    for (int n = 1; n <= 21; n += n < 6 ? 1 : 3) {
        meeting m = {0, 40, 0};
        attn__parallel(NULL, n, meet, &m);
        CHECKF(m.n_early == 0, "%d workers: %d passed a barrier early", n, m.n_early);
        CHECK(m.n_came % m.n_rounds == 0 && m.n_came >= m.n_rounds);
    }
}

/* Loops of tasks. Worker 0 waits for the others before it takes one, or the others wait for it. */
typedef struct handing_out {
    int n_rounds, waiting; /* the worker that comes last; -1: none */
    int n_finished;
    int n_done[40]; /* how often each task was done, of all rounds */
    int by[2];      /* tasks done by the worker that comes last, and by others */
} handing_out;

static void hand_out(attn__worker *me, void *arg)
{
    handing_out *h = (handing_out *)arg;
    size_t n, task;
    me->is_dynamic = 1;
    while (me->id == h->waiting &&
           __atomic_load_n(&h->n_finished, __ATOMIC_ACQUIRE) < me->count - 1)
        ATTN__YIELD();
    for (int round = 0; round < h->n_rounds; round++) {
        n = (size_t)(round * 7 % 41);
        while (attn__next_task(me, n, &task)) {
            __atomic_add_fetch(&h->n_done[task], 1, __ATOMIC_RELAXED);
            __atomic_add_fetch(&h->by[me->id != h->waiting], 1, __ATOMIC_RELAXED);
        }
        if (round % 3 > 0 || n == 0)
            continue; /* several loops may precede a barrier */
        attn__barrier(me);
    }
    __atomic_add_fetch(&h->n_finished, 1, __ATOMIC_RELEASE);
}

TEST(tasks_are_handed_out_once)
{
    for (int n = 2; n <= 21; n += n < 6 ? 1 : 3)
        for (int waiting = -1; waiting < n; waiting += n < 6 ? 1 : 7) {
            handing_out h = {82, 0, 0, {0}, {0}};
            int expected[40] = {0};
            h.waiting = waiting;
            attn__parallel(NULL, n, hand_out, &h);
            for (int round = 0; round < h.n_rounds; round++)
                for (int task = 0; task < round * 7 % 41; task++)
                    expected[task]++;
            CHECKF(memcmp(h.n_done, expected, sizeof expected) == 0, "%d workers, %d waits", n,
                   waiting);
            CHECKF(h.by[0] == 0 && h.by[1] > 0, "%d workers, %d waits: it had %d tasks", n, waiting,
                   h.by[0]);
        }
}

TEST(barriers)
{
    SCOPED_MODEL model = NULL;
    SCOPED_SESSION session = NULL;
    const int32_t token = 1;
    attn_ctx ctx = {.n_threads = 2};
    if (OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL)) &&
        OK(&ctx, attn_session_new(&ctx, &session, model, NULL)) &&
        OK(&ctx, attn_feed(&ctx, session, &token, 1))) {
        const size_t n_layer = model->config.n_layer;
        attn_feed_item item = {.session = session, .tokens = &token, .n_tokens = 1};
        session->first_row = session->fed = 0;
        session->n_rows = 1;
        attn__pass pass = {.model = model, .ws = session->workspace};
        pass.kernels = pass.ws->kernels;
        pass.items = &item;
        pass.n_items = pass.n_rows = 1;
        pass.end_layer = n_layer;
        attn__parallel(NULL, 2, count_barriers, &pass);
        CHECKF(n_passed == attn__n_barriers(n_layer, 1),
               "%d barriers were passed, %d were expected", n_passed, attn__n_barriers(n_layer, 1));
    }
}
#endif
