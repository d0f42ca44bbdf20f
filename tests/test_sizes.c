/* Sizes that 32 bits cannot count. Where size_t has 64 they must come out right; where it has 32
 * (make test-32bit) they must be refused, before anything is allocated, multiplied or indexed. */
#define _POSIX_C_SOURCE 200809L
#include "tools/bench_model.h"
#include "models.h"
#include "command.h"
#include <fcntl.h>
#include <unistd.h>

enum { IS_32_BIT = SIZE_MAX <= 0xFFFFFFFFu };

static void u32(unsigned char *at, size_t value)
{
    int i;
    for (i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

static void same_count(size_t bytes, uint64_t want)
{
    CHECKF(bytes == want, "%llu bytes, expected %llu", LLU(bytes), LLU(want));
}

/* A token of 1 MiB, 5000 times. */
static void text_beyond_4_gib(void)
{
    enum { LARGE = 1 << 20, N = 257, MANY = 5000 };
    attn_ctx ctx = alone();
    unsigned char *const section = (unsigned char *)pool_new(16 + 4 * N + 256 + LARGE);
    int32_t *const ids = (int32_t *)pool_new(MANY * sizeof *ids);
    attn_tokenizer *tokenizer = NULL;
    size_t size = 1, i;
    memset(section, 0, 16);
    u32(section, N);
    u32(section + 12, 256 + LARGE);
    for (i = 0; i < N; i++)
        u32(section + 16 + 4 * i, i < 256 ? i + 1 : 256 + LARGE);
    for (i = 0; i < 256; i++)
        section[16 + 4 * N + i] = (unsigned char)i;
    memset(section + 16 + 4 * N + 256, 'a', LARGE);
    for (i = 0; i < MANY; i++)
        ids[i] = 256;
    if (OK(&ctx, attn_tokenizer_new(&ctx, &tokenizer, section, 16 + 4 * N + 256 + LARGE))) {
        FAILS(&ctx, ATTN_E_SPACE, IS_32_BIT ? "too long for any buffer" : "5242880000 bytes",
              attn_decode(&ctx, tokenizer, ids, MANY, NULL, 0, &size));
        CHECK(size == (IS_32_BIT ? 0 : (size_t)LARGE * MANY));
    }
    attn_tokenizer_free(tokenizer);
    pool_clear();
}

/* A model of random weights, opened. */
static attn_model *random_model(attn_ctx *ctx, uint32_t n_layer, uint32_t n_head, uint32_t width)
{
    const model_shape shape = {"made", n_layer, n_head, width};
    const char *const path = test_tmp("sizes.attn");
    attn_model *model = NULL;
    if (OK(ctx, model_write(ctx, path, &shape, ATTN_F16)))
        OK(ctx, attn_model_open(ctx, &model, path, NULL));
    remove(path); /* large; it stays until it is closed */
    return model;
}

/* A small file that asks for sessions of 2 GiB, and for 128 GiB of records. */
static void sessions_and_records_of_many_heads(void)
{
    enum { LAYERS = 256, HEADS = 64, WIDTH = 64 };
    static const char *const names[] = {"*hook_pattern", "*hook_attn_scores"};
    attn_ctx ctx = alone();
    attn_model *const model = random_model(&ctx, LAYERS, HEADS, WIDTH);
    attn_session *session = NULL;
    attn_record *record = NULL;
    attn_session_desc small = {8, 0, ATTN_F32};
    attn_record_desc desc;
    float number;
    size_t bytes = 1;
    memset(&desc, 0, sizeof desc);
    desc.names = names;
    desc.n_names = 2;
    if (!model)
        return;
    OK(&ctx, attn_session_new(&ctx, &session, model, &small));
    if (IS_32_BIT) {
        FAILS(&ctx, ATTN_E_MEMORY, "does not fit in memory",
              attn_session_size(&ctx, model, NULL, &bytes));
        FAILS(&ctx, ATTN_E_MEMORY, "do not fit in memory",
              attn_record_size(&ctx, model, &desc, &bytes));
    } else { /* keys and values alone: [L, T, C] of floats each */
        const uint64_t cache = (uint64_t)LAYERS * 2 * N_CTX * WIDTH * sizeof(float);
        const uint64_t scores = (uint64_t)LAYERS * 2 * HEADS * N_CTX * N_CTX * sizeof(float);
        OK(&ctx, attn_session_size(&ctx, model, NULL, &bytes));
        CHECK(bytes > cache);
        OK(&ctx, attn_record_size(&ctx, model, &desc, &bytes));
        same_count(bytes, scores);
    }
    if (session)
        FAILS(&ctx, IS_32_BIT ? ATTN_E_MEMORY : ATTN_E_SPACE, "",
              attn_record_new(&ctx, &record, session, &desc, &number, sizeof number));
    CHECK(record == NULL);
    attn_session_free(session);
    attn_model_close(model);
    attn_ctx_free(&ctx);
}

/* The pattern of one layer has 2^30 numbers, 4 GiB exactly. */
static void patterns_of_4_gib(void)
{
    enum { HEADS = 1024, WIDTH = 1024 };
    static const char *const names[] = {"*hook_pattern"};
    attn_ctx ctx = alone();
    attn_model *const model = random_model(&ctx, 1, HEADS, WIDTH);
    attn_session *session = NULL;
    attn_session_desc whole = {0, N_CTX, ATTN_F16};
    attn_record_desc desc;
    size_t bytes = 0;
    memset(&desc, 0, sizeof desc);
    desc.names = names;
    desc.n_names = 1;
    if (!model)
        return;
    if (IS_32_BIT) {
        FAILS(&ctx, ATTN_E_MEMORY, "do not fit in memory",
              attn_record_size(&ctx, model, &desc, &bytes));
        if (OK(&ctx, attn_session_new(&ctx, &session, model, &whole)))
            FAILS(&ctx, ATTN_E_MEMORY, "does not fit in memory",
                  attn_hook(&ctx, session, "*hook_pattern", do_nothing, NULL));
        attn_session_free(session);
    } else {
        const uint64_t pattern = (uint64_t)HEADS * N_CTX * N_CTX * sizeof(float);
        OK(&ctx, attn_record_size(&ctx, model, &desc, &bytes));
        same_count(bytes, pattern);
    }
    attn_model_close(model);
    attn_ctx_free(&ctx);
}

/* As many ids as can be told, where there is one. */
static void a_prompt_beyond_memory(void)
{
    static const int32_t id = 3;
    attn_ctx ctx = alone();
    attn_model *model = NULL;
    attn_session *session;
    attn_generate_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.prompt_ids = &id;
    if (!OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/fuzz/long.attn", NULL)))
        return;
    session = session_on(&ctx, model, 0, 0);
    for (desc.n_prompt_ids = SIZE_MAX / 4; session && desc.n_prompt_ids != 0;
         desc.n_prompt_ids = desc.n_prompt_ids == SIZE_MAX ? 0 : SIZE_MAX)
        FAILS(&ctx, ATTN_E_ARGUMENT, "too long",
              attn_generate(&ctx, session, NULL, &desc, NULL, NULL));
    attn_session_free(session);
    attn_model_close(model);
}

/* A file of 5 GiB, nearly all of it a hole. 0 if the disk does not take it. */
static int with_hole(const char *path, off_t size)
{
    const int file = open(path, O_WRONLY);
    const int done = file >= 0 && ftruncate(file, size) == 0;
    if (file >= 0)
        close(file);
    return done;
}

static void a_file_beyond_4_gib(void)
{
    const char *const path = "build/test-tmp/sizes-hole.attn";
    attn_ctx ctx = alone();
    attn_model *model = NULL;
    size_t size;
    unsigned char *const start = test_read(TEST_BUILD "/fuzz/long.attn", &size);
    if (!CHECK(start))
        return;
    test_write(path, start, size);
    free(start);
    if (sizeof(off_t) < 8 || !with_hole(path, (off_t)((int64_t)5 << 30))) {
        remove(path);
        test_skip("no file of 5 GiB can be made here");
        return;
    }
    if (!IS_32_BIT)
        FAILS(&ctx, ATTN_E_FORMAT, "more follow", attn_model_open(&ctx, &model, path, NULL));
    CHECK(model == NULL);
    refuses(1, IS_32_BIT ? "sizes-hole.attn" : "more follow",
            TEST_SANITIZED ? TEST_BUILD "/attn-info build/test-tmp/sizes-hole.attn"
                           : "ulimit -v 100000; " TEST_BUILD
                             "/attn-info build/test-tmp/sizes-hole.attn");
    remove(path);
    forget();
}

void suite_sizes(void)
{
    RUN("sizes", text_beyond_4_gib);
    RUN("sizes", sessions_and_records_of_many_heads);
    RUN("sizes", patterns_of_4_gib);
    RUN("sizes", a_prompt_beyond_memory);
    RUN("sizes", a_file_beyond_4_gib);
}
