/* What the suites of operations share: tolerances, and instruction sets to go through. */
#ifndef OPS_H
#define OPS_H

#include "fixture.h"

/* What a correct f32 implementation keeps to, relative to the largest expected magnitude. */
#define TIGHT 5e-7 /* a few roundings */
#define ROWS  1e-6 /* sums along a row, exp, log */

/* A chain of `depth` multiply-adds. */
static inline double chain_error(size_t depth)
{
    return 2e-7 + 6e-8 * sqrt((double)depth);
}

/* A label for messages: "matmul.3". */
static inline const char *label(const char *name, int number)
{
    static char texts[4][80];
    static int turn;
    char *text = texts[turn++ % 4];
    snprintf(text, sizeof texts[0], "%s.%d", name, number);
    return text;
}

static const attn_isa_kind all_kinds[] = {
    ATTN_ISA_PORTABLE,    ATTN_ISA_BASE,      ATTN_ISA_AVX2,     ATTN_ISA_AVX512,   ATTN_ISA_NEON,
    ATTN_ISA_AVX512_VNNI, ATTN_ISA_AVX2_VNNI, ATTN_ISA_NEON_DOT, ATTN_ISA_NEON_I8MM};
#define N_KINDS (sizeof all_kinds / sizeof all_kinds[0])
static const int all_threads[] = {1, 2, 4, 7};
#define N_THREADS (sizeof all_threads / sizeof all_threads[0])

/* 0: not here. 1: must give the exact bits. 2: runs unfused, must be close. */
static inline int kind_of(attn_isa_kind kind)
{
    attn_ctx ctx = {.isa = kind};
    const char *name = attn_isa(&ctx);
    return name == NULL ? 0 : strstr(name, "no fused") ? 2 : 1;
}

enum { MOST = 1030 };

/* Calls body for each instruction set that runs here, the portable one first. */
static inline void each_isa(void (*body)(attn_ctx *ctx))
{
    for (int kind = ATTN_ISA_PORTABLE; kind <= (int)ATTN_ISA_NEON_I8MM; kind++) {
        attn_ctx ctx = {.isa = (attn_isa_kind)kind};
        if (attn_isa(&ctx))
            body(&ctx);
        attn_ctx_free(&ctx);
    }
}

static inline attn_tensor row(float *x, size_t n)
{
    return attn_borrow(x, ATTN_F32, attn_shape2(1, n));
}

#endif
