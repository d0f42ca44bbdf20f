/* The header's own fused multiply-add, for processors without one, against libm's: the same bits
 * for numbers of any size, and for those where rounding twice, or losing a sign, would show. */
#undef FP_FAST_FMAF /* with these attn.h would take libm's */
#undef __FMA__
#undef __ARM_FEATURE_FMA
#define ATTN_STATIC
#ifndef ATTN_NO_SIMD
#define ATTN_NO_SIMD
#endif
#define ATTN_IMPLEMENTATION
#include "tests/support/fixture.h"

SUITE();

#ifdef attn__fmaf
TEST(without_software)
{
    test_skip("this processor always has a fused multiply-add");
}
#else

enum { CASES = 1 << 20 };

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Which NaN it is nobody promises. */
static int check(float a, float b, float c)
{
    const float got = attn__fmaf(a, b, c), want = fmaf(a, b, c);
    return CHECKF(bits_of(got) == bits_of(want) || (isnan(got) && isnan(want)),
                  "%a * %a + %a is %a, not %a", (double)a, (double)b, (double)c, (double)want,
                  (double)got);
}

/* Any sign and fraction, 2^low to 2^high (below 2^-126: subnormal). */
static float between(int low, int high)
{
    const int exponent = low + (int)random_below((size_t)(high - low + 1));
    const float x = (float)ldexp(1.0 + (random_u32() >> 9) * 0x1p-23, exponent);
    return random_u32() & 1 ? -x : x;
}

TEST(any_bits)
{
    random_state = 11;
    for (size_t i = 0; i < 4 * CASES; i++)
        check(of_bits(random_u32()), of_bits(random_u32()), of_bits(random_u32()));
}

/* The sum is of the product's size, or up to 2^60 away from it. */
TEST(any_size)
{
    random_state = 12;
    for (size_t i = 0; i < 2 * CASES; i++) {
        const int a = (int)random_below(140) - 70, b = (int)random_below(100) - 50;
        int c = a + b + (int)random_below(121) - 60;
        c = c < -149 ? -149 : c > 127 ? 127 : c;
        check(between(a, a), between(b, b), between(c, c));
    }
}

/* The product is half of c's last bit times 1 - k^2 / 2^46: exactly half for k = 0, and for small k
 * so near to it that a double cannot tell. Then any odd number of such halves. */
TEST(halfway)
{
    random_state = 13;
    for (size_t i = 0; i < CASES; i++) {
        const int exponent = (int)random_below(240) - 120;
        const double k = (double)(random_below(3) ? random_below(1 << 12) : 0) * 0x1p-23;
        const float c = between(exponent, exponent), sign = random_u32() & 1 ? -1.0f : 1.0f;
        const float half = (float)ldexp(1, exponent - 24 < -140 ? -140 : exponent - 24);
        const float odd = (float)(2 * random_below(1 << 11) + 1);
        check((float)(1 + k), sign * half * (float)(1 - k), c);
        check((float)(1 + k), sign * half * (float)(1 + k), c);
        check(odd, sign * half, c);
    }
}

/* Results below 2^-126, where the last bit is 2^-149 whatever the number. */
TEST(subnormals)
{
    random_state = 14;
    for (size_t i = 0; i < CASES; i++) {
        const int a = -(int)random_below(126), product = -120 - (int)random_below(45);
        const float x = between(a, a), y = between(product - a, product - a);
        check(x, y, of_bits(random_u32() & 0x80FFFFFF));
        check(x, y, random_u32() & 1 ? 0.0f : -0.0f);
        check(of_bits(random_u32() & 0x807FFFFF), between(-1, 24),
              of_bits(random_u32() & 0x80FFFFFF));
    }
}

/* Sums around the largest number and beyond; a product may be infinite in float, the sum not. */
TEST(overflows)
{
    random_state = 15;
    for (size_t i = 0; i < CASES; i++) {
        const int a = (int)random_below(127), product = 124 + (int)random_below(5);
        const int b = product - a > 127 ? 127 : product - a;
        check(between(a, a), between(b, b), between(126, 127));
        check(between(a, a), between(b, b), of_bits((random_u32() & 0x80000000) | 0x7F7FFFFF));
    }
}

/* c takes the product away: all of it (the zero is positive), all but what float cannot hold, or
 * all but a last bit. */
TEST(cancellation)
{
    random_state = 16;
    for (size_t i = 0; i < CASES; i++) {
        const float a = between(-60, 60), b = between(-60, 60), p = a * b;
        const float x = of_bits(bits_of(a) & 0xFFFFF000), y = of_bits(bits_of(b) & 0xFFFFF000);
        const float z = x * y; /* exact */
        check(x, y, -z);
        check(x, y, of_bits(bits_of(-z) + 1));
        check(x, y, of_bits(bits_of(-z) - 1));
        check(a, b, -p);
        check(a, b, of_bits(bits_of(-p) + 1));
        check(a, b, of_bits(bits_of(-p) - 1));
    }
}

/* Everything that is special, with everything. */
TEST(special_numbers)
{
    static const uint32_t sizes[] = {0x00000000, 0x00000001, 0x00000002, 0x003FFFFF, 0x00400000,
                                     0x007FFFFF, 0x00800000, 0x00800001, 0x00FFFFFF, 0x33800000,
                                     0x34000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3FFFFFFF,
                                     0x40000000, 0x4B000000, 0x4B7FFFFF, 0x7E7FFFFF, 0x7F000000,
                                     0x7F7FFFFE, 0x7F7FFFFF, 0x7F800000, 0x7FC00000};
    const size_t n = 2 * sizeof sizes / sizeof *sizes;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            for (size_t k = 0; k < n; k++)
                check(of_bits(sizes[i / 2] | (uint32_t)i << 31),
                      of_bits(sizes[j / 2] | (uint32_t)j << 31),
                      of_bits(sizes[k / 2] | (uint32_t)k << 31));
}
#endif
