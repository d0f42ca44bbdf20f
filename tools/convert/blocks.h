/* ggml's quantised types. A row is divided into blocks of 32 or 256 numbers. A block holds small whole
 * numbers q and factors that they share: a number is factor * q, or factor * q - minimum. Types whose name
 * ends in _K, and IQ4_XS, have factors of two levels: one f16 for the block, and for each 16 or 32 numbers a
 * small whole number that multiplies it.
 *
 * f32 holds all products here exactly. So a compiler that fuses a product with the subtraction after it does
 * not change a bit. */
#ifndef TOOLS_BLOCKS_H
#define TOOLS_BLOCKS_H

#include "tools/common/files.h"

TOOLS_FN float block_f16(const unsigned char *p)
{
    return attn_f32_from_f16((uint16_t)(p[0] | p[1] << 8));
}

TOOLS_FN int block_i8(unsigned char byte)
{
    return byte < 128 ? byte : byte - 256;
}

/* Number i of 32 numbers of four bits in 16 bytes: the first half in the lower bits of the bytes, the second
 * half in the upper bits. */
TOOLS_FN int block_nibble(const unsigned char *p, int i)
{
    return i < 16 ? p[i] & 15 : p[i - 16] >> 4;
}

TOOLS_FN void block_q8_0(const unsigned char *p, float *out)
{
    const float factor = block_f16(p);
    for (int i = 0; i < 32; i++)
        out[i] = factor * (float)block_i8(p[2 + i]);
}

TOOLS_FN void block_q4_0(const unsigned char *p, float *out)
{
    const float factor = block_f16(p);
    for (int i = 0; i < 32; i++)
        out[i] = factor * (float)(block_nibble(p + 2, i) - 8);
}

TOOLS_FN void block_q4_1(const unsigned char *p, float *out)
{
    const float minimum = block_f16(p + 2);
    const float factor = block_f16(p);
    for (int i = 0; i < 32; i++)
        out[i] = factor * (float)block_nibble(p + 4, i) + minimum;
}

/* The fifth bits of the 32 numbers are in a separate word. */
TOOLS_FN void block_q5_0(const unsigned char *p, float *out)
{
    const float factor = block_f16(p);
    const uint32_t high = get_u32(p + 2);
    for (int i = 0; i < 32; i++)
        out[i] = factor * (float)(block_nibble(p + 6, i) + (int)(high >> i & 1) * 16 - 16);
}

TOOLS_FN void block_q5_1(const unsigned char *p, float *out)
{
    const float minimum = block_f16(p + 2);
    const float factor = block_f16(p);
    const uint32_t high = get_u32(p + 4);
    for (int i = 0; i < 32; i++)
        out[i] = factor * (float)(block_nibble(p + 8, i) + (int)(high >> i & 1) * 16) + minimum;
}

/* Factors and minima of four bits for each 16 numbers; then two bits a number, those of every 128
 * numbers in 32 bytes, whose first 32 numbers are the lowest bits. */
TOOLS_FN void block_q2_k(const unsigned char *p, float *out)
{
    const float factor = block_f16(p + 80), minimum = block_f16(p + 82);
    for (int i = 0; i < 256; i++) {
        const int shared = p[i / 16], q = p[16 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
        out[i] = factor * (float)(shared & 15) * (float)q - minimum * (float)(shared >> 4);
    }
}

/* As Q2_K, with a third bit, which is 0 if the number is negative; 16 factors of six bits: the lower four
 * bits of all, then the upper two. */
TOOLS_FN void block_q3_k(const unsigned char *p, float *out)
{
    const float whole = block_f16(p + 108);
    const unsigned char *factors = p + 96;
    for (int i = 0; i < 256; i++) {
        const int k = i / 16;
        const int low = k < 8 ? factors[k] & 15 : factors[k - 8] >> 4;
        const int factor = low + (factors[8 + k % 4] >> k / 4 * 2 & 3) * 16 - 32;
        const int q = p[32 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
        const int sign = p[i % 32] >> i / 32 & 1 ? 0 : 4;
        out[i] = whole * (float)factor * (float)(q - sign);
    }
}

/* Factor and minimum k of eight, six bits each, in twelve bytes. */
TOOLS_FN void block_pair(const unsigned char *p, int k, int *factor, int *minimum)
{
    *factor = k < 4 ? p[k] & 63 : (p[k + 4] & 15) + (p[k - 4] >> 6) * 16;
    *minimum = k < 4 ? p[k + 4] & 63 : (p[k + 4] >> 4) + (p[k] >> 6) * 16;
}

/* Numbers of four bits, two runs of 32 in every 32 bytes; `high` has a fifth bit or is NULL. */
TOOLS_FN void block_q45_k(const unsigned char *p, const unsigned char *high,
                          const unsigned char *low, float *out)
{
    const float least = block_f16(p + 2);
    const float whole = block_f16(p);
    int factor, minimum, q;
    for (int i = 0; i < 256; i++) {
        block_pair(p + 4, i / 32, &factor, &minimum);
        q = low[i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 15;
        q += high ? (high[i % 32] >> i / 32 & 1) * 16 : 0;
        out[i] = whole * (float)factor * (float)q - least * (float)minimum;
    }
}

TOOLS_FN void block_q4_k(const unsigned char *p, float *out)
{
    block_q45_k(p, NULL, p + 16, out);
}

TOOLS_FN void block_q5_k(const unsigned char *p, float *out)
{
    block_q45_k(p, p + 16, p + 48, out);
}

/* The lower four bits of 128 numbers in 64 bytes, their upper two in 32; a factor of eight bits for
 * each 16 numbers. */
TOOLS_FN void block_q6_k(const unsigned char *p, float *out)
{
    const float whole = block_f16(p + 208);
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, at = i % 128;
        const int low = p[half * 64 + at % 64] >> at / 64 * 4 & 15;
        const int high = p[128 + half * 32 + at % 32] >> at / 32 * 2 & 3;
        out[i] = whole * (float)block_i8(p[192 + i / 16]) * (float)(low + high * 16 - 32);
    }
}

/* Four bits choose one of sixteen numbers, closer together around zero. */
TOOLS_FN float block_uneven(int q)
{
    static const signed char values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                           1,    13,   25,  38,  53,  69,  89,  113};
    return (float)values[q];
}

TOOLS_FN void block_iq4_nl(const unsigned char *p, float *out)
{
    const float factor = block_f16(p);
    for (int i = 0; i < 32; i++)
        out[i] = factor * block_uneven(block_nibble(p + 2, i));
}

/* A factor of six bits for each 32 numbers: the upper two bits of all factors, then the lower four. */
TOOLS_FN void block_iq4_xs(const unsigned char *p, float *out)
{
    const float factor = block_f16(p);
    for (int i = 0; i < 256; i++) {
        const int k = i / 32, low = p[4 + k / 2] >> k % 2 * 4 & 15;
        const int high = p[2 + k / 4] >> k % 4 * 2 & 3;
        out[i] = factor * (float)(low + high * 16 - 32) *
                 block_uneven(block_nibble(p + 8 + (size_t)k * 16, i % 32));
    }
}

#endif
