/* SHA-256 (FIPS 180-4) of bytes in pieces:
 *
 *     sha256 h;
 *     unsigned char digest[SHA256_SIZE];
 *     sha256_begin(&h);
 *     sha256_add(&h, "abc", 3);
 *     sha256_end(&h, digest);
 *
 * On x86 processors with instructions for SHA-256 it is several times as fast as plain C. */
#ifndef TOOLS_SHA256_H
#define TOOLS_SHA256_H

#include "files.h"
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__)) && !defined(ATTN_NO_SIMD)
#define SHA256_X86
#include <cpuid.h>
#include <immintrin.h>
#endif

enum { SHA256_SIZE = 32, SHA256_HEX = 2 * SHA256_SIZE + 1 };

typedef struct sha256 {
    uint32_t state[8];
    uint64_t size; /* bytes so far */
    unsigned char block[64];
    int fast; /* the processor has instructions for SHA-256 */
} sha256;

static const uint32_t sha256_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

TOOLS_FN uint32_t sha256_rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

TOOLS_FN void sha256_block(uint32_t *state, const unsigned char *block)
{
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7], w[64], s, t;
    size_t i;
    for (i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (; i < 64; i++) {
        s = sha256_rotate(w[i - 15], 7) ^ sha256_rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        t = sha256_rotate(w[i - 2], 17) ^ sha256_rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s + w[i - 7] + t;
    }
    for (i = 0; i < 64; i++) {
        s = sha256_rotate(e, 6) ^ sha256_rotate(e, 11) ^ sha256_rotate(e, 25);
        s += h + ((e & f) ^ (~e & g)) + sha256_k[i] + w[i];
        t = sha256_rotate(a, 2) ^ sha256_rotate(a, 13) ^ sha256_rotate(a, 22);
        t += (a & b) ^ (a & c) ^ (b & c);
        h = g, g = f, f = e, e = d + s;
        d = c, c = b, b = a, a = s + t;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

#ifdef SHA256_X86
#define SHA256_FN __attribute__((target("sha,sse4.1"))) TOOLS_FN
#ifdef __AVX__ /* these instructions are ten times slower while upper halves of registers are in use */
#define SHA256_CLEAN() __builtin_ia32_vzeroupper()
#else
#define SHA256_CLEAN() ((void)0)
#endif

/* The state of one text. Its words are in two registers, in the order of the instructions: A B E F and
 * C D G H. */
typedef struct sha256_lane {
    __m128i abef, cdgh, w[4];
} sha256_lane;

SHA256_FN inline void sha256_load(sha256_lane *l, const uint32_t *state)
{
    const __m128i low =
        _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)state), 0xb1);
    const __m128i high =
        _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)(state + 4)), 0x1b);
    l->abef = _mm_alignr_epi8(low, high, 8);
    l->cdgh = _mm_blend_epi16(high, low, 0xf0);
}

SHA256_FN inline void sha256_store(uint32_t *state, const sha256_lane *l)
{
    const __m128i low = _mm_shuffle_epi32(l->abef, 0x1b), high = _mm_shuffle_epi32(l->cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(low, high, 0xf0));
    _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(high, low, 8));
}

/* Rounds 4i to 4i + 3. */
SHA256_FN inline void sha256_rounds(sha256_lane *l, size_t i, int j)
{
    __m128i k = _mm_loadu_si128((const __m128i *)(const void *)&sha256_k[4 * i]);
    k = _mm_add_epi32(k, l->w[j]);
    l->cdgh = _mm_sha256rnds2_epu32(l->cdgh, l->abef, k);
    l->abef = _mm_sha256rnds2_epu32(l->abef, l->cdgh, _mm_shuffle_epi32(k, 0x0e));
}

/* The same rounds; then the four words of the message schedule become those of rounds 4i + 16 on. */
SHA256_FN inline void sha256_rounds_on(sha256_lane *l, size_t i, int j)
{
    const __m128i before = l->w[(j + 3) & 3];
    __m128i x = _mm_sha256msg1_epu32(l->w[j], l->w[(j + 1) & 3]);
    sha256_rounds(l, i, j);
    x = _mm_add_epi32(x, _mm_alignr_epi8(before, l->w[(j + 2) & 3], 4));
    l->w[j] = _mm_sha256msg2_epu32(x, before);
}

SHA256_FN inline void sha256_words(sha256_lane *l, const unsigned char *at)
{
    const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    for (size_t j = 0; j < 4; j++)
        l->w[j] =
            _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(at + j * 16)), order);
}

/* Digests two texts at once. A round depends on the round before it of the same text only, so the
 * processor computes rounds of both texts at the same time. */
SHA256_FN void sha256_x86_two(uint32_t *state, uint32_t *other, const unsigned char *at,
                              const unsigned char *other_at, size_t n_blocks)
{
    sha256_lane a, b;
    SHA256_CLEAN();
    sha256_load(&a, state);
    sha256_load(&b, other);
    for (; n_blocks > 0; n_blocks--, at += 64, other_at += 64) {
        const __m128i before[4] = {a.abef, a.cdgh, b.abef, b.cdgh};
        sha256_words(&a, at);
        sha256_words(&b, other_at);
        for (size_t i = 0; i < 12; i += 4) {
            sha256_rounds_on(&a, i, 0), sha256_rounds_on(&b, i, 0);
            sha256_rounds_on(&a, i + 1, 1), sha256_rounds_on(&b, i + 1, 1);
            sha256_rounds_on(&a, i + 2, 2), sha256_rounds_on(&b, i + 2, 2);
            sha256_rounds_on(&a, i + 3, 3), sha256_rounds_on(&b, i + 3, 3);
        }
        sha256_rounds(&a, 12, 0), sha256_rounds(&b, 12, 0);
        sha256_rounds(&a, 13, 1), sha256_rounds(&b, 13, 1);
        sha256_rounds(&a, 14, 2), sha256_rounds(&b, 14, 2);
        sha256_rounds(&a, 15, 3), sha256_rounds(&b, 15, 3);
        a.abef = _mm_add_epi32(a.abef, before[0]);
        a.cdgh = _mm_add_epi32(a.cdgh, before[1]);
        b.abef = _mm_add_epi32(b.abef, before[2]);
        b.cdgh = _mm_add_epi32(b.cdgh, before[3]);
    }
    sha256_store(state, &a);
    sha256_store(other, &b);
}

SHA256_FN void sha256_x86(uint32_t *state, const unsigned char *at, size_t n_blocks)
{
    sha256_lane l;
    SHA256_CLEAN();
    sha256_load(&l, state);
    for (; n_blocks > 0; n_blocks--, at += 64) {
        const __m128i abef = l.abef, cdgh = l.cdgh;
        sha256_words(&l, at);
        for (size_t i = 0; i < 12; i += 4) {
            sha256_rounds_on(&l, i, 0);
            sha256_rounds_on(&l, i + 1, 1);
            sha256_rounds_on(&l, i + 2, 2);
            sha256_rounds_on(&l, i + 3, 3);
        }
        sha256_rounds(&l, 12, 0);
        sha256_rounds(&l, 13, 1);
        sha256_rounds(&l, 14, 2);
        sha256_rounds(&l, 15, 3);
        l.abef = _mm_add_epi32(l.abef, abef);
        l.cdgh = _mm_add_epi32(l.cdgh, cdgh);
    }
    sha256_store(state, &l);
}
#endif

/* Does the processor have the instructions? Asked once, because asking is slow in a virtual machine. */
TOOLS_FN int sha256_is_fast(void)
{
#ifdef SHA256_X86
    static int known; /* 0: not asked yet */
    unsigned a = 0, b = 0, c = 0, d = 0, e = 0;
    if (known == 0)
        known = __get_cpuid(1, &a, &e, &c, &d) && (c >> 19 & 1) &&
                        __get_cpuid_count(7, 0, &a, &b, &e, &d) && (b >> 29 & 1)
                    ? 1
                    : -1;
    return known > 0;
#else
    return 0;
#endif
}

TOOLS_FN void sha256_blocks(sha256 *h, const unsigned char *at, size_t n_blocks)
{
#ifdef SHA256_X86
    if (h->fast) {
        sha256_x86(h->state, at, n_blocks);
        return;
    }
#endif
    for (; n_blocks > 0; n_blocks--, at += 64)
        sha256_block(h->state, at);
}

TOOLS_FN void sha256_begin(sha256 *h)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(h->state, start, sizeof start);
    h->size = 0;
    h->fast = sha256_is_fast();
}

TOOLS_FN void sha256_add(sha256 *h, const void *bytes, size_t size)
{
    const unsigned char *at = (const unsigned char *)bytes;
    const size_t held = (size_t)(h->size & 63), room = 64 - held;
    h->size += size;
    if (held > 0 && size >= room) {
        memcpy(h->block + held, at, room);
        sha256_blocks(h, h->block, 1);
        at += room;
        size -= room;
    } else if (held > 0) {
        memcpy(h->block + held, at, size);
        return;
    }
    sha256_blocks(h, at, size / 64);
    if (size % 64 > 0)
        memcpy(h->block, at + size / 64 * 64, size % 64);
}

/* Gives the digest. h must begin again before more is added. */
TOOLS_FN void sha256_end(sha256 *h, unsigned char *digest)
{
    static const unsigned char padding[64] = {0x80};
    const uint64_t bits = h->size * 8;
    unsigned char length[8];
    for (size_t i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i) & 255);
    sha256_add(h, padding, 1 + (size_t)((119 - (h->size & 63)) & 63));
    sha256_add(h, length, 8);
    for (size_t i = 0; i < SHA256_SIZE; i++)
        digest[i] = (unsigned char)(h->state[i / 4] >> (24 - 8 * (i % 4)) & 255);
}

TOOLS_FN void sha256_of(unsigned char *digest, const void *bytes, size_t size)
{
    sha256 h;
    sha256_begin(&h);
    sha256_add(&h, bytes, size);
    sha256_end(&h, digest);
}

/* digests [2, SHA256_SIZE] of two texts of the same size, which takes little longer than one digest. */
TOOLS_FN void sha256_of_two(unsigned char *digests, const void *a, const void *b, size_t size)
{
    const unsigned char *const at[2] = {(const unsigned char *)a, (const unsigned char *)b};
    size_t done = 0;
    sha256 h[2];
    sha256_begin(&h[0]);
    sha256_begin(&h[1]);
#ifdef SHA256_X86
    if (h[0].fast) {
        sha256_x86_two(h[0].state, h[1].state, at[0], at[1], size / 64);
        done = size / 64 * 64;
        h[0].size = h[1].size = done;
    }
#endif
    for (size_t i = 0; i < 2; i++) {
        sha256_add(&h[i], at[i] + done, size - done);
        sha256_end(&h[i], digests + i * SHA256_SIZE);
    }
}

/* Adds the bits of floats, little-endian on any host. */
TOOLS_FN void sha256_floats(unsigned char *digest, const float *numbers, size_t n)
{
    const uint16_t one = 1;
    const int is_little = *(const unsigned char *)&one == 1;
    unsigned char bytes[256];
    uint32_t bits;
    size_t used = 0;
    sha256 h;
    sha256_begin(&h);
    if (is_little)
        sha256_add(&h, numbers, n * sizeof *numbers);
    for (size_t i = 0; i < n && !is_little; i++) {
        memcpy(&bits, &numbers[i], sizeof bits);
        put_u32(bytes + used, bits);
        used += 4;
        if (used == sizeof bytes || i + 1 == n) {
            sha256_add(&h, bytes, used);
            used = 0;
        }
    }
    sha256_end(&h, digest);
}

/* digests [2, SHA256_SIZE] of two rows of floats, little-endian. */
TOOLS_FN void sha256_two_rows(unsigned char *digests, const float *a, const float *b, size_t n)
{
    const uint16_t one = 1;
    if (*(const unsigned char *)&one == 1) {
        sha256_of_two(digests, a, b, n * sizeof *a);
    } else {
        sha256_floats(digests, a, n);
        sha256_floats(digests + SHA256_SIZE, b, n);
    }
}

/* The first n_bytes of a digest in hexadecimal, with a zero behind them. */
TOOLS_FN void sha256_hex(char *text, const unsigned char *digest, size_t n_bytes)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n_bytes; i++) {
        text[2 * i] = digits[digest[i] >> 4];
        text[2 * i + 1] = digits[digest[i] & 15];
    }
    text[2 * n_bytes] = 0;
}

#endif
