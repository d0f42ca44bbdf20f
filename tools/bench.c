/* cc tools/bench.c -I. -O2 -fopenmp -lm -o bench
 *
 * How fast does it read a prompt, and how fast does it write? Measures a .attn file, or a model of
 * one of GPT-2's sizes with random weights, which is made in memory: speed does not depend on what
 * the weights are. Each line is the best of several runs. */

#define _POSIX_C_SOURCE 200112L /* for clock_gettime under -std=c99 */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds(void)
{
#if defined(__unix__) || defined(__APPLE__)
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#else
    return (double)clock() / CLOCKS_PER_SEC;
#endif
}

/* A model from nothing: the file format's sections, written into one block of memory. */

typedef struct shape {
    const char *name;
    uint32_t n_layer, n_head, d_model;
} shape;
static const shape shapes[] = {{"distilgpt2", 6, 12, 768},
                               {"gpt2", 12, 12, 768},
                               {"gpt2-medium", 24, 16, 1024},
                               {"gpt2-large", 36, 20, 1280},
                               {"gpt2-xl", 48, 25, 1600}};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0], N_VOCAB = 50257, N_CTX = 1024 };

typedef struct image {
    attn_ctx *ctx;
    attn_dtype dtype;            /* of the matrices */
    const float *random;         /* N_VOCAB + 16 * 6400 of them */
    unsigned char *bytes;        /* NULL while sizes are counted */
    size_t n_tensors, room, end; /* tensors so far, tensors in the table, bytes so far */
} image;

static void put32(unsigned char *at, uint64_t value)
{
    int i;
    for (i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

static void put64(unsigned char *at, uint64_t value)
{
    put32(at, value & 0xFFFFFFFF);
    put32(at + 4, value >> 32);
}

/* Appends a tensor: [n_in, n_out] as panels, or [n_out] or [n_in, n_out] as rows. Element (k, n)
 * is number 16 k + n of the random numbers. */
static void add_tensor(image *im, const char *name, int panels, size_t n_in, size_t n_out)
{
    const size_t start = (im->end + 63) / 64 * 64;
    const size_t size = panels ? attn_panels_size(im->dtype, n_in, n_out) : 4 * n_in * n_out;
    unsigned char *record = im->bytes + 256 + 128 * im->n_tensors;
    unsigned char *data = im->bytes + start;
    attn_tensor w = attn_borrow((void *)(uintptr_t)im->random, ATTN_F32, attn_shape2(n_in, n_out));
    im->end = start + size;
    im->n_tensors++;
    if (!im->bytes)
        return;
    w.stride[0] = 16; /* rows overlap, which saves memory and harms nothing */
    if (panels) {
        attn_panels_write(im->ctx, data, im->dtype, w);
    } else {
        attn_tensor rows = attn_borrow(data, ATTN_F32, attn_shape2(n_in, n_out));
        attn_copy(im->ctx, &rows, w);
    }
    snprintf((char *)record, 64, "%s", name);
    put32(record + 64, panels ? im->dtype : ATTN_F32);
    put32(record + 68, (uint64_t)panels);
    put32(record + 72, n_in > 1 ? 2 : 1);
    put64(record + 80, n_in > 1 ? n_in : n_out);
    put64(record + 88, n_in > 1 ? n_out : 1);
    put64(record + 96, start);
    put64(record + 104, size);
    put64(record + 112, attn_checksum(0, data, size));
}

static void add_block_tensor(image *im, uint32_t layer, const char *name, int panels, size_t n_in,
                             size_t n_out)
{
    char full[64];
    snprintf(full, sizeof full, "blocks.%u.%s", (unsigned)layer, name);
    add_tensor(im, full, panels, n_in, n_out);
}

static void add_tensors(image *im, const shape *s)
{
    const size_t width = s->d_model;
    uint32_t i;
    im->n_tensors = 0;
    im->end = 256 + 128 * im->room;
    add_tensor(im, "embed.W_E", 1, width, N_VOCAB);
    add_tensor(im, "pos_embed.W_pos", 0, N_CTX, width);
    for (i = 0; i < s->n_layer; i++) {
        add_block_tensor(im, i, "ln1.w", 0, 1, width);
        add_block_tensor(im, i, "ln1.b", 0, 1, width);
        add_block_tensor(im, i, "attn.W_QKV", 1, width, 3 * width);
        add_block_tensor(im, i, "attn.b_QKV", 0, 1, 3 * width);
        add_block_tensor(im, i, "attn.W_O", 1, width, width);
        add_block_tensor(im, i, "attn.b_O", 0, 1, width);
        add_block_tensor(im, i, "ln2.w", 0, 1, width);
        add_block_tensor(im, i, "ln2.b", 0, 1, width);
        add_block_tensor(im, i, "mlp.W_in", 1, width, 4 * width);
        add_block_tensor(im, i, "mlp.b_in", 0, 1, 4 * width);
        add_block_tensor(im, i, "mlp.W_out", 1, 4 * width, width);
        add_block_tensor(im, i, "mlp.b_out", 0, 1, width);
    }
    add_tensor(im, "ln_final.w", 0, 1, width);
    add_tensor(im, "ln_final.b", 0, 1, width);
}

static void put_header(const image *im, const shape *s)
{
    const float eps = 1e-5f;
    unsigned char *at = im->bytes;
    uint32_t bits;
    memcpy(&bits, &eps, sizeof bits);
    memcpy(at,
           "\x89"
           "ATTN\r\n\x1a",
           8);
    put32(at + 8, 1);
    put32(at + 12, 256);
    put64(at + 16, im->end);
    put32(at + 24, N_VOCAB);
    put32(at + 28, N_CTX);
    put32(at + 32, s->d_model);
    put32(at + 36, s->n_head);
    put32(at + 40, s->n_layer);
    put32(at + 44, 4 * s->d_model);
    put32(at + 48, bits);
    put32(at + 52, 1); /* tied */
    put32(at + 56, 0xFFFFFFFF);
    put32(at + 60, 0xFFFFFFFF);
    put32(at + 64, im->n_tensors);
    put64(at + 72, 256);
    put64(at + 80, 128 * im->n_tensors);
    put64(at + 88, attn_checksum(0, at + 256, 128 * im->n_tensors));
    put64(at + 248, attn_checksum(0, at, 248));
}

/* *block is what to free when the model is closed. */
static attn_status open_random(attn_ctx *ctx, attn_model **model, void **block, const shape *s,
                               attn_dtype dtype)
{
    const size_t n_random = N_VOCAB + 16 * 6400;
    float *random = (float *)malloc(n_random * sizeof *random);
    image im = {0};
    attn_rng rng;
    attn_status status = ATTN_E_MEMORY;
    size_t i;
    im.ctx = ctx;
    im.dtype = dtype;
    im.random = random;
    im.room = 4 + 12 * (size_t)s->n_layer;
    add_tensors(&im, s);
    *block = calloc(1, im.end + 64);
    if (random && *block) {
        attn_rng_seed(&rng, 1);
        for (i = 0; i < n_random; i++)
            random[i] = 0.1f * (attn_rng_uniform(&rng) - 0.5f);
        im.bytes = (unsigned char *)*block + (64 - (uintptr_t)*block % 64) % 64;
        add_tensors(&im, s);
        put_header(&im, s);
        status = attn_model_open_memory(ctx, model, im.bytes, im.end, NULL);
    } else {
        snprintf(ctx->message, sizeof ctx->message, "no memory for a random %s", s->name);
    }
    free(random);
    return status;
}

/* Measuring. */

#ifdef _OPENMP
enum { MAX_THREADS = 256 }; /* attn.h starts no more */
#else
enum { MAX_THREADS = 1 };
#endif

static const char usage[] =
    "bench [MODEL.attn | SIZE]: tokens per second, with one and with all threads\n\n"
    "SIZE is distilgpt2, gpt2 (the default), gpt2-medium, gpt2-large or gpt2-xl, with\n"
    "random weights.\n\n"
    "  --dtype TYPE     of random weights: f32, f16 (the default), q8 or q4\n"
    "  --threads COUNT  this many threads and no other number; without OpenMP, one\n\n"
    "Exit codes: 0 done, 1 it failed, 2 wrong usage.\n";

/* Feeds n tokens, in pieces of `piece`, `runs` times. The best rate, or a negative number. */
static double measure(attn_ctx *ctx, attn_session *session, size_t n, size_t piece, int runs)
{
    int32_t tokens[N_CTX];
    double best = -1;
    size_t i;
    for (i = 0; i < n; i++)
        tokens[i] = (int32_t)(i % attn_model_config(attn_session_model(session))->n_vocab);
    while (runs-- > 0) {
        const double start = seconds();
        double rate;
        attn_rewind(ctx, session, 0);
        for (i = 0; i < n; i += piece)
            if (attn_feed(ctx, session, tokens + i, n - i < piece ? n - i : piece))
                return -1;
        rate = (double)n / (seconds() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

static int bench(attn_ctx *ctx, const attn_model *model)
{
    const size_t n_ctx = attn_model_config(model)->n_ctx;
    const size_t n_prompt = n_ctx < 256 ? n_ctx : 256, n_generate = n_ctx < 32 ? n_ctx : 32;
    attn_session *session;
    double prompt, generation;
    if (attn_session_new(ctx, &session, model, NULL))
        return 1;
    prompt = measure(ctx, session, n_prompt, n_prompt, 3);
    generation = measure(ctx, session, n_generate, 1, 3);
    attn_session_free(session);
    if (prompt < 0 || generation < 0)
        return 1;
    if (ctx->n_threads)
        printf("%2d thread%s  ", ctx->n_threads, ctx->n_threads == 1 ? " " : "s");
    else
        printf("all threads ");
    printf("prompt of %u: %8.1f tokens/s   generation: %7.1f tokens/s\n", (unsigned)n_prompt,
           prompt, generation);
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv)
{
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_dtype dtype = ATTN_F16;
    void *block = NULL;
    const char *name = NULL;
    int i, threads = 0, failed;
    for (i = 1; i < argc; i++) {
        char *end = NULL;
        if (strcmp(argv[i], "--help") == 0)
            return fputs(usage, stdout) == EOF;
        if (strcmp(argv[i], "--dtype") == 0 && i + 1 < argc) {
            i++;
            dtype = strcmp(argv[i], "f32") == 0   ? ATTN_F32
                    : strcmp(argv[i], "f16") == 0 ? ATTN_F16
                    : strcmp(argv[i], "q8") == 0  ? ATTN_Q8
                                                  : ATTN_Q4;
        } else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
            const long count = strtol(argv[++i], &end, 10);
            threads = count > 0 && count <= MAX_THREADS && !*end ? (int)count : -1;
        } else if (argv[i][0] == '-' || name) {
            threads = -1;
        } else {
            name = argv[i];
        }
        if (threads < 0) {
            fprintf(stderr, "bench: cannot make sense of \"%s\"\n%s", argv[i], usage);
            return 2;
        }
    }
    name = name ? name : "gpt2";
    for (i = 0; i < N_SHAPES && strcmp(name, shapes[i].name) != 0; i++)
        continue;
    failed = i < N_SHAPES ? open_random(&ctx, &model, &block, &shapes[i], dtype) != ATTN_OK
                          : attn_model_open(&ctx, &model, name, NULL) != ATTN_OK;
    if (!failed)
        printf("%s, %s\n", name, attn_isa(&ctx));
    ctx.n_threads = threads ? threads : 1;
    failed = failed || bench(&ctx, model);
    ctx.n_threads = 0;
#ifdef _OPENMP
    failed = failed || (!threads && bench(&ctx, model));
#endif
    if (failed)
        fprintf(stderr, "bench: %s\n", ctx.message);
    attn_model_close(model);
    free(block);
    return failed;
}
