/* What the fuzz targets share. Each is a function of some bytes that must come back, whatever the
 * bytes: fuzz_attn, fuzz_gguf ... libFuzzer calls it through driver.c; replay.c calls it for the
 * committed corpus and simple mutations of it, with any compiler. */
#ifndef FUZZ_H
#define FUZZ_H

#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef TEST_BUILD
#define TEST_BUILD "build"
#endif

int fuzz_attn(const unsigned char *data, size_t size);
int fuzz_huggingface(const unsigned char *data, size_t size);
int fuzz_gguf(const unsigned char *data, size_t size);
int fuzz_llmc(const unsigned char *data, size_t size);
int fuzz_vocab(const unsigned char *data, size_t size);
int fuzz_tokenizer(const unsigned char *data, size_t size);
int fuzz_session(const unsigned char *data, size_t size);
int fuzz_sampler(const unsigned char *data, size_t size);
int fuzz_hooks(const unsigned char *data, size_t size);

/* What must hold, or the program ends there: that is what fuzzers look for. */
#define MUST(condition) ((condition) ? (void)0 : fuzz_broken(__FILE__, __LINE__, #condition))
static inline void fuzz_broken(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    abort();
}

/* The next byte of the input, 0 after its end. */
typedef struct input {
    const unsigned char *data;
    size_t size;
} input;
static inline unsigned take(input *in)
{
    if (in->size == 0)
        return 0;
    in->size--;
    return *in->data++;
}
static inline uint32_t take32(input *in)
{
    uint32_t value = take(in);
    value |= (uint32_t)take(in) << 8;
    value |= (uint32_t)take(in) << 16;
    return value | (uint32_t)take(in) << 24;
}

/* A small model, opened once: tests/golden/long, 40 tokens, 20 wide, one layer. */
static inline const attn_model *fuzz_model(void)
{
    static attn_model *model;
    attn_ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    ctx.n_threads = 1;
    if (!model && attn_model_open(&ctx, &model, TEST_BUILD "/fuzz/long.attn", NULL) != ATTN_OK) {
        fprintf(stderr, "%s\n", ctx.message);
        exit(2);
    }
    return model;
}

#endif
