/* What the fuzz targets share. Each is a function of some bytes that must come back, whatever the
 * bytes: fuzz_attn, fuzz_gguf ... libFuzzer calls it through driver.c; replay.c calls it for the
 * committed corpus and simple mutations of it, with any compiler. */
#ifndef FUZZ_H
#define FUZZ_H

#include "attn.h"
#include "tools/write/model_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef TEST_BUILD
#define TEST_BUILD "build"
#endif

int fuzz_attn(const unsigned char *data, size_t size);
int fuzz_huggingface(const unsigned char *data, size_t size);
int fuzz_gguf(const unsigned char *data, size_t size);
int fuzz_pickle(const unsigned char *data, size_t size);
int fuzz_llmc(const unsigned char *data, size_t size);
int fuzz_vocab(const unsigned char *data, size_t size);
int fuzz_tokenizer(const unsigned char *data, size_t size);
int fuzz_session(const unsigned char *data, size_t size);
int fuzz_sampler(const unsigned char *data, size_t size);
int fuzz_hooks(const unsigned char *data, size_t size);
int fuzz_lens(const unsigned char *data, size_t size);
int fuzz_surprisal(const unsigned char *data, size_t size);

/* What must hold, or the program ends there: that is what fuzzers look for. */
#define MUST(condition) ((condition) ? (void)0 : fuzz_broken(__FILE__, __LINE__, #condition))
static inline void fuzz_broken(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    abort();
}

/* For slow programs that answers are compared with: a fuzzer that counts their branches too takes
 * most of its time for that, and there is nothing to be found in them. */
#if defined(__clang__)
#define UNTRACED __attribute__((no_sanitize("coverage"), noinline))
#else
#define UNTRACED
#endif

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

/* ---- a small model, made here once ----
 *
 * Three layers, so that a pass can stop between them; 40 positions, more than attn_score takes at
 * once and than a panel of keys holds; five dimensions to a head, which halfs do not pair up; a
 * tokenizer of the 256 bytes, two merges, an end of text that is special, and an id without bytes.
 */

enum { LAYERS = 3, MOST = 40, HEADS = 2, WIDE = 10, DEEP = 12, VOCAB = 260, END = 258 };

typedef struct fuzz_file {
    unsigned char *bytes;
    size_t size, record; /* so far: of the file, and where the next tensor's record goes */
    uint32_t noise;
} fuzz_file;

static inline void fuzz_put(unsigned char *to, uint64_t value, int n)
{
    for (; n > 0; n--, value >>= 8)
        *to++ = (unsigned char)value;
}

/* Adds a tensor of noise between -scale and scale; a gain is that around 1. */
static inline void fuzz_tensor(fuzz_file *f, const char *name, int panels, size_t n_in,
                               size_t n_out, float scale)
{
    static float values[WIDE * VOCAB];
    unsigned char *record = f->bytes + f->record, *data = f->bytes + (f->size + 63) / 64 * 64;
    const size_t n = n_in * n_out, size = panels ? model_panels_size(ATTN_F32, n_in, n_out) : 4 * n;
    const int gain = strcmp(name + strlen(name) - 2, ".w") == 0;
    for (size_t i = 0; i < n; i++) {
        f->noise = f->noise * 1664525u + 1013904223u;
        values[i] = (float)gain + scale * ((float)(f->noise >> 8) / 8388608 - 1);
    }
    memset(data, 0, size); /* what is left of a panel */
    for (size_t i = 0; i < n; i++) {
        const size_t k = i / n_out, column = i % n_out;
        const size_t at = panels ? (column / 16 * n_in + k) * 16 + column % 16 : i;
        memcpy(data + 4 * at, &values[i], 4);
    }
    strcpy((char *)record, name);
    fuzz_put(record + 68, panels != 0, 4);
    fuzz_put(record + 72, n_in > 1 ? 2 : 1, 4);
    fuzz_put(record + 80, n_in > 1 ? n_in : n_out, 8);
    fuzz_put(record + 88, n_in > 1 ? n_out : 1, 8);
    fuzz_put(record + 96, (uint64_t)(data - f->bytes), 8);
    fuzz_put(record + 104, size, 8);
    fuzz_put(record + 112, model_checksum(0, data, size), 8);
    f->record += 128;
    f->size = (size_t)(data - f->bytes) + size;
}

static inline void fuzz_layer(fuzz_file *f, int layer)
{
    static const struct {
        const char *name;
        int panels;
        size_t n_in, n_out;
        float scale;
    } parts[] = {{"ln1.w", 0, 1, WIDE, 0.2f},          {"ln1.b", 0, 1, WIDE, 0.2f},
                 {"attn.W_QKV", 1, WIDE, 3 * WIDE, 1}, {"attn.b_QKV", 0, 1, 3 * WIDE, 0.2f},
                 {"attn.W_O", 1, WIDE, WIDE, 0.7f},    {"attn.b_O", 0, 1, WIDE, 0.2f},
                 {"ln2.w", 0, 1, WIDE, 0.2f},          {"ln2.b", 0, 1, WIDE, 0.2f},
                 {"mlp.W_in", 1, WIDE, DEEP, 0.7f},    {"mlp.b_in", 0, 1, DEEP, 0.2f},
                 {"mlp.W_out", 1, DEEP, WIDE, 0.7f},   {"mlp.b_out", 0, 1, WIDE, 0.2f}};
    char name[64];
    size_t i;
    for (i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(name, sizeof name, "blocks.%d.%s", layer, parts[i].name);
        fuzz_tensor(f, name, parts[i].panels, parts[i].n_in, parts[i].n_out, parts[i].scale);
    }
}

/* The tokenizer's section: bytes, a b -> ab, ab c -> abc, the end. */
static inline size_t fuzz_section(unsigned char *p)
{
    static const char more[] = "ababc<|end|>";
    static const uint32_t merges[] = {'a', 'b', 256, 256, 'c', 257};
    const uint32_t ends[] = {258, 261, 268, 268};
    fuzz_put(p, VOCAB, 4);
    fuzz_put(p + 4, 2, 4);
    fuzz_put(p + 8, 1, 4);
    fuzz_put(p + 12, 268, 4);
    p += 16;
    for (uint32_t i = 0; i < VOCAB; i++, p += 4)
        fuzz_put(p, i < 256 ? i + 1 : ends[i - 256], 4);
    for (uint32_t i = 0; i < 6; i++, p += 4)
        fuzz_put(p, merges[i], 4);
    fuzz_put(p, END, 4);
    for (uint32_t i = 0; i < 256; i++)
        p[4 + i] = (unsigned char)i;
    memcpy(p + 4 + 256, more, 12);
    return 16 + 4 * VOCAB + 24 + 4 + 268;
}

static inline const attn_model *fuzz_model(void)
{
    static unsigned char bytes[1 << 16]; /* aligned or not: it is copied if not */
    static attn_model *model;
    const uint32_t numbers[] = {VOCAB, MOST, WIDE, HEADS, LAYERS, DEEP, 0x3727C5AC, 1, END, END};
    const size_t n_tensors = 4 + 12 * LAYERS, table = 128 * n_tensors;
    fuzz_file f = {bytes, 0, 256, 1};
    if (model)
        return model;
    size_t n = fuzz_section(bytes + 256 + table);
    f.size = 256 + table + n;
    fuzz_tensor(&f, "embed.W_E", 1, WIDE, VOCAB, 1);
    fuzz_tensor(&f, "pos_embed.W_pos", 0, MOST, WIDE, 0.5f);
    for (size_t i = 0; i < LAYERS; i++)
        fuzz_layer(&f, (int)i);
    fuzz_tensor(&f, "ln_final.w", 0, 1, WIDE, 0.2f);
    fuzz_tensor(&f, "ln_final.b", 0, 1, WIDE, 0.2f);
    memcpy(bytes,
           "\x89"
           "ATTN\r\n\x1a",
           8);
    fuzz_put(bytes + 8, 1, 4);
    fuzz_put(bytes + 12, 256, 4);
    fuzz_put(bytes + 16, f.size, 8);
    for (size_t i = 0; i < 10; i++)
        fuzz_put(bytes + 24 + 4 * i, numbers[i], 4);
    fuzz_put(bytes + 64, n_tensors, 4);
    fuzz_put(bytes + 72, 256, 8);
    fuzz_put(bytes + 80, table, 8);
    fuzz_put(bytes + 88, model_checksum(0, bytes + 256, table), 8);
    fuzz_put(bytes + 96, 256 + table, 8);
    fuzz_put(bytes + 104, n, 8);
    fuzz_put(bytes + 112, model_checksum(0, bytes + 256 + table, n), 8);
    fuzz_put(bytes + 248, model_checksum(0, bytes, 248), 8);
    attn_ctx ctx = {.n_threads = 1};
    if (attn_model_open_memory(&ctx, &model, bytes, f.size, NULL) != ATTN_OK) {
        fprintf(stderr, "%s\n", ctx.message);
        exit(2);
    }
    return model;
}

#endif
