/* Sizes that 32 bits cannot count. Where size_t has 64 they must come out right; where it has 32
 * (make test-32bit) they must be refused, before anything is allocated, multiplied or indexed. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* for MAP_ANONYMOUS under -std=c99 */
#endif
#include "tools/bench/bench_model.h"
#include "tests/support/models.h"
#include "tests/support/command.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

SUITE();

#ifdef MAP_NORESERVE /* addresses alone; memory comes with what is written */
#define HOLLOW (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)
#else
#define HOLLOW (MAP_PRIVATE | MAP_ANONYMOUS)
#endif

enum { IS_32_BIT = SIZE_MAX <= 0xFFFFFFFFu };

static void u32(unsigned char *at, size_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

static void same_count(size_t bytes, uint64_t want)
{
    CHECKF(bytes == want, "%llu bytes, expected %llu", LLU(bytes), LLU(want));
}

/* A token of 1 MiB, 5000 times. */
TEST(text_beyond_4_gib)
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
    size = 0;
    if (OK(&ctx, attn_tokenizer_new(&ctx, &tokenizer, section, 16 + 4 * N + 256 + LARGE))) {
        if (IS_32_BIT)
            FAILS(SPACE, "too long for any buffer",
                  attn_decode(&ctx, NULL, &size, tokenizer, ids, MANY));
        else
            OK(&ctx, attn_decode(&ctx, NULL, &size, tokenizer, ids, MANY));
        CHECK(size == (IS_32_BIT ? 0 : (size_t)LARGE * MANY));
    }
    attn_tokenizer_free(tokenizer);
}

/* Ids and ranks end at 2^31 - 1. All that there is of these sections is their first 64 bytes, and
 * no memory for what would come next. */
TEST(tokens_and_merges_beyond_2_31)
{
    static const struct {
        uint64_t n_tokens, n_merges;
        const char *text;
    } counts[] = {{(uint64_t)1 << 31, 0, "2147483648 tokens and 0 merges; ids and ranks end at"},
                  {256, (uint64_t)1 << 31, "256 tokens and 2147483648 merges; ids and ranks end"},
                  {INT32_MAX, INT32_MAX, ""}};
    unsigned char *const section = (unsigned char *)pool_new(64);
    for (size_t i = 0; i < (IS_32_BIT ? 2 : 3); i++) {
        const uint64_t size = 16 + 4 * counts[i].n_tokens + 12 * counts[i].n_merges;
        attn_tokenizer *tokenizer = NULL;
        meter m;
        attn_ctx ctx = metered(&m);
        m.fail_at = 0;
        memset(section, 0, 64);
        u32(section, (size_t)counts[i].n_tokens);
        u32(section + 4, (size_t)counts[i].n_merges);
        if (IS_32_BIT)
            FAILS(FORMAT, "bytes of data, but",
                  attn_tokenizer_new(&ctx, &tokenizer, section, (size_t)size));
        else
            FAILS_IN(&ctx, i < 2 ? ATTN_E_FORMAT : ATTN_E_MEMORY, counts[i].text,
                     attn_tokenizer_new(&ctx, &tokenizer, section, (size_t)size));
        CHECK(tokenizer == NULL && m.live == 0 && m.asked == (i == 2));
    }
}

/* A model of random weights, opened. */
static attn_model *random_model(attn_ctx *ctx, uint32_t n_layer, uint32_t n_head, uint32_t width)
{
    const model_shape shape = {"made", n_layer, n_head, width};
    const char *const path = test_tmp("sizes.attn");
    attn_model *model = NULL;
    if (OK(ctx, model_write(ctx, path, &shape, ATTN_F16)))
        OK(ctx, attn_model_open(ctx, &model, path, NULL));
    remove(path); /* large; it stays until Bad file descriptor */
    return model;
}

/* A small file that asks for sessions of 2 GiB, and for 128 GiB of records. */
TEST(sessions_and_records_of_many_heads)
{
    enum { LAYERS = 256, HEADS = 64, WIDTH = 64 };
    static const char *const names[] = {"*hook_pattern", "*hook_attn_scores"};
    SCOPED_CTX ctx = alone();
    SCOPED_MODEL const model = random_model(&ctx, LAYERS, HEADS, WIDTH);
    SCOPED_SESSION session = NULL;
    attn_record *record = NULL;
    attn_session_desc small = {.n_ctx = 8};
    float number;
    size_t bytes = 1;
    attn_record_desc desc = {.names = names, .n_names = 2};
    if (!model)
        return;
    OK(&ctx, attn_session_new(&ctx, &session, model, &small));
    if (IS_32_BIT) {
        FAILS(MEMORY, "does not fit in memory", attn_session_size(&ctx, &bytes, model, NULL));
        FAILS(MEMORY, "do not fit in memory", attn_record_size(&ctx, &bytes, model, &desc));
    } else { /* keys and values alone: [L, T, C] of floats each */
        const uint64_t cache = (uint64_t)LAYERS * 2 * N_CTX * WIDTH * sizeof(float);
        const uint64_t scores = (uint64_t)LAYERS * 2 * HEADS * N_CTX * N_CTX * sizeof(float);
        OK(&ctx, attn_session_size(&ctx, &bytes, model, NULL));
        CHECK(bytes > cache);
        OK(&ctx, attn_record_size(&ctx, &bytes, model, &desc));
        same_count(bytes, scores);
    }
    desc.memory = &number;
    desc.memory_size = sizeof number;
    if (session)
        FAILS_IN(&ctx, IS_32_BIT ? ATTN_E_MEMORY : ATTN_E_SPACE, "",
                 attn_record_new(&ctx, &record, session, &desc));
    CHECK(record == NULL);
}

/* The pattern of one layer has 2^30 numbers, 4 GiB exactly. */
TEST(patterns_of_4_gib)
{
    enum { HEADS = 1024, WIDTH = 1024 };
    static const char *const names[] = {"*hook_pattern"};
    SCOPED_CTX ctx = alone();
    SCOPED_MODEL const model = random_model(&ctx, 1, HEADS, WIDTH);
    attn_session *session = NULL;
    attn_session_desc whole = {.n_batch = N_CTX, .cache_dtype = ATTN_F16};
    size_t bytes = 0;
    attn_record_desc desc = {.names = names, .n_names = 1};
    if (!model)
        return;
    if (IS_32_BIT) {
        FAILS(MEMORY, "do not fit in memory", attn_record_size(&ctx, &bytes, model, &desc));
        if (OK(&ctx, attn_session_new(&ctx, &session, model, &whole)))
            FAILS(MEMORY, "do not fit in memory",
                  attn_hook(&ctx, NULL, session, "*hook_pattern", do_nothing, NULL));
        attn_session_free(session);
    } else {
        const uint64_t pattern = (uint64_t)HEADS * N_CTX * N_CTX * sizeof(float);
        OK(&ctx, attn_record_size(&ctx, &bytes, model, &desc));
        same_count(bytes, pattern);
    }
}

/* Where a hollow model lies. */
typedef struct hollow {
    unsigned char *bytes;
    size_t size;
} hollow;

/* Lays the tensors of a model with one token out behind its table, as f16 panels or rows of f32.
 * Writes their records if there is memory for them; returns where the last ends. */
static uint64_t lay_tensors(unsigned char *table, size_t n_ctx, size_t width, size_t n_layers)
{
    const struct {
        const char *name;
        int in_layers, panels;
        size_t n_in, n_out; /* n_in 0: a vector */
    } tensors[] = {{"embed.W_E", 0, 1, width, 1},
                   {"pos_embed.W_pos", 0, 0, n_ctx, width},
                   {"ln_final.w", 0, 0, 0, width},
                   {"ln_final.b", 0, 0, 0, width},
                   {"ln1.w", 1, 0, 0, width},
                   {"ln1.b", 1, 0, 0, width},
                   {"attn.W_QKV", 1, 1, width, 3 * width},
                   {"attn.b_QKV", 1, 0, 0, 3 * width},
                   {"attn.W_O", 1, 1, width, width},
                   {"attn.b_O", 1, 0, 0, width},
                   {"ln2.w", 1, 0, 0, width},
                   {"ln2.b", 1, 0, 0, width},
                   {"mlp.W_in", 1, 1, width, 1},
                   {"mlp.b_in", 1, 0, 0, 1},
                   {"mlp.W_out", 1, 1, 1, width},
                   {"mlp.b_out", 1, 0, 0, width}};
    uint64_t at = 256 + 128 * (uint64_t)(4 + 12 * n_layers);
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        for (size_t layer = 0; layer < (tensors[i].in_layers ? n_layers : 1); layer++) {
            const size_t n_in = tensors[i].n_in, n_out = tensors[i].n_out;
            const uint64_t size = tensors[i].panels
                                      ? (uint64_t)model_panels_size(ATTN_F16, n_in, n_out)
                                      : 4 * (uint64_t)(n_in ? n_in : 1) * n_out;
            at = (at + 63) / 64 * 64;
            if (table) {
                if (tensors[i].in_layers)
                    snprintf((char *)table, 64, "blocks.%u.%s", (unsigned)layer, tensors[i].name);
                else
                    snprintf((char *)table, 64, "%s", tensors[i].name);
                put_u32(table + 64, tensors[i].panels ? ATTN_F16 : ATTN_F32);
                put_u32(table + 68, (uint32_t)tensors[i].panels);
                put_u32(table + 72, n_in ? 2 : 1);
                put_u64(table + 80, n_in ? n_in : n_out);
                put_u64(table + 88, n_in ? n_out : 1);
                put_u64(table + 96, at);
                put_u64(table + 104, size);
                table += 128;
            }
            at += size;
        }
    return at;
}

/* A model whose weights are zeros that nobody wrote: however large it is, only its header and its
 * table take memory. NULL where the system has no such memory, or not so many addresses. */
static attn_model *hollow_model(attn_ctx *ctx, hollow *h, size_t n_ctx, size_t width, size_t n_head,
                                size_t n_layer)
{
    static const unsigned char magic[8] = {0x89, 'A', 'T', 'T', 'N', '\r', '\n', 0x1A};
    const size_t sizes[] = {1, n_ctx, width, n_head, n_layer, 1}, n = 4 + 12 * n_layer;
    const uint64_t size = lay_tensors(NULL, n_ctx, width, n_layer);
    attn_model *model = NULL;
    void *const bytes = size > SIZE_MAX / 2
                            ? MAP_FAILED
                            : mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, HOLLOW, -1, 0);
    if (bytes == MAP_FAILED)
        return NULL;
    h->bytes = (unsigned char *)bytes;
    h->size = (size_t)size;
    memcpy(h->bytes, magic, 8);
    put_u32(h->bytes + 8, 1);
    put_u32(h->bytes + 12, 256);
    put_u64(h->bytes + 16, size);
    for (size_t i = 0; i < 6; i++)
        put_u32(h->bytes + 24 + 4 * i, (uint32_t)sizes[i]);
    put_u32(h->bytes + 52, 1); /* tied */
    put_u32(h->bytes + 56, 0xFFFFFFFF);
    put_u32(h->bytes + 60, 0xFFFFFFFF);
    put_u32(h->bytes + 64, (uint32_t)n);
    put_u64(h->bytes + 72, 256);
    put_u64(h->bytes + 80, 128 * n);
    lay_tensors(h->bytes + 256, n_ctx, width, n_layer);
    put_u64(h->bytes + 88, model_checksum(0, h->bytes + 256, 128 * n));
    put_u64(h->bytes + 248, model_checksum(0, h->bytes, 248));
    attn_model_desc desc = {.skip_checksums = 1};
    if (!OK(ctx, attn_model_open_memory(ctx, &model, h->bytes, h->size, &desc)))
        munmap(bytes, h->size);
    return model;
}

/* 8192 layers of 2^24 positions: the patterns take 2^63 bytes, which 64 bits count. With the scores
 * they are 2^64, and with z a little more, which would look like little. */
TEST(records_of_16_eib)
{
    enum { LAYERS = 8192, MANY = 1 << 24 };
    static const char *const names[] = {"*hook_pattern", "*hook_attn_scores", "*hook_z"};
    SCOPED_CTX ctx = alone();
    hollow h;
    attn_model *const model = hollow_model(&ctx, &h, MANY, 1, 1, LAYERS);
    attn_session *session = NULL;
    attn_record *record = NULL;
    attn_session_desc small = {.n_ctx = 8};
    float number;
    size_t bytes = 0;
    attn_record_desc desc = {.names = names, .n_names = 1};
    if (!model) {
        test_skip("no memory that takes none until it is written");
        return;
    }
    if (IS_32_BIT)
        FAILS(MEMORY, "16777216 positions do not fit in memory",
              attn_record_size(&ctx, &bytes, model, &desc));
    else if (OK(&ctx, attn_record_size(&ctx, &bytes, model, &desc)))
        same_count(bytes, (uint64_t)1 << 63);
    desc.n_names = 3;
    FAILS(MEMORY, "attn_record_size: 16777216 positions do not fit in memory",
          attn_record_size(&ctx, &bytes, model, &desc));
    desc.memory = &number;
    desc.memory_size = sizeof number;
    if (OK(&ctx, attn_session_new(&ctx, &session, model, &small)))
        FAILS(MEMORY, "attn_record_new: 16777216 positions do not fit in memory",
              attn_record_new(&ctx, &record, session, &desc));
    CHECK(record == NULL);
    attn_session_free(session);
    attn_model_close(model);
    munmap(h.bytes, h.size);
}

/* 65552 heads: the pattern of one layer at 4193280 positions of 2^24 is what 64 bits can just
 * count; the next position is too much for its bytes, and all of them for its numbers. What would
 * be left of such counts in 64 bits is never 0. */
TEST_IF(!IS_32_BIT, a_pattern_of_16_eib)
{
    enum { WIDTH = 65552, MANY = 1 << 24, MOST = 4193280 };
    static const char *const names[] = {"*hook_pattern", "*hook_attn_scores"};
    SCOPED_CTX ctx = alone();
    hollow h;
    attn_model *const model = hollow_model(&ctx, &h, MANY, WIDTH, WIDTH, 1);
    size_t bytes = 0;
    attn_record_desc desc = {.names = names, .n_names = 1};
    if (!model) {
        test_skip("no addresses for a model of 4 TiB");
        return;
    }
    desc.n_positions = MOST;
    desc.first = MANY - desc.n_positions;
    if (OK(&ctx, attn_record_size(&ctx, &bytes, model, &desc)))
        same_count(bytes, (uint64_t)4 * WIDTH * MANY * MOST);
    desc.n_names = 2; /* each can be counted, their sum cannot */
    FAILS(MEMORY, "4193280 positions do not fit in memory",
          attn_record_size(&ctx, &bytes, model, &desc));
    desc.n_names = 1;
    desc.n_positions = MOST + 1;
    desc.first = MANY - desc.n_positions;
    FAILS(MEMORY, "4193281 positions do not fit in memory",
          attn_record_size(&ctx, &bytes, model, &desc));
    desc.n_positions = desc.first = 0;
    FAILS(MEMORY, "16777216 positions do not fit in memory",
          attn_record_size(&ctx, &bytes, model, &desc));
    attn_model_close(model);
    munmap(h.bytes, h.size);
}

/* As many ids as can be told, where there is one. */
TEST(a_prompt_beyond_memory)
{
    static const int32_t id = 3;
    attn_ctx ctx = alone();
    SCOPED_MODEL model = NULL;
    attn_generate_desc desc = {.prompt_tokens = &id};
    if (!OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/fuzz/long.attn", NULL)))
        return;
    SCOPED_SESSION session = session_on(&ctx, model, 0, 0);
    for (desc.n_prompt_tokens = SIZE_MAX / 4; session && desc.n_prompt_tokens != 0;
         desc.n_prompt_tokens = desc.n_prompt_tokens == SIZE_MAX ? 0 : SIZE_MAX)
        FAILS(ARGUMENT, "too long", attn_generate(&ctx, NULL, session, NULL, &desc));
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

TEST(a_file_beyond_4_gib)
{
    const char *const path = TEST_TMP "hole.attn";
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
        FAILS(FORMAT, "more follow", attn_model_open(&ctx, &model, path, NULL));
    CHECK(model == NULL);
    refuses(1, IS_32_BIT ? "hole.attn" : "more follow",
            TEST_SANITIZED ? TEST_BUILD "/attn-info " TEST_TMP "hole.attn"
                           : "ulimit -v 100000; " TEST_BUILD "/attn-info " TEST_TMP "hole.attn");
    remove(path);
    forget();
}

/* What the programs say of a model that 64 bits would run, and of one whose embedding is a tensor
 * of 4 GiB. The converter refuses it for its header; the weights are a hole. */
TEST_IF(IS_32_BIT, programs_of_32_bits)
{
    static const char model[] = TEST_TMP "many.attn", weights[] = TEST_TMP "hole.bin";
    const model_shape shape = {"made", 256, 64, 64};
    const uint32_t header[] = {20240326, 5, 1, 1 << 20, 1, 1, 1024, 1 << 20}; /* of llm.c */
    const uint64_t n_weights = ((uint64_t)(1 << 20) + 1 + 12 * 1024 + 15) * 1024;
    unsigned char bytes[1024];
    attn_ctx ctx = alone();
    if (OK(&ctx, model_write(&ctx, model, &shape, ATTN_F16)))
        CHECKF(run(TEST_BUILD "/gpt2 %s --ids 1 -n 1023", model) == 1 &&
                   strstr(err, " tokens does not fit in memory"),
               "gpt2 said %s", err);
    remove(model);
    memset(bytes, 0, sizeof bytes);
    for (size_t i = 0; i < 8; i++)
        u32(bytes + 4 * i, header[i]);
    test_write(weights, bytes, sizeof bytes);
    if (sizeof(off_t) < 8 || !with_hole(weights, (off_t)(1024 + 2 * n_weights)))
        test_skip("no file of 2 GiB can be made here");
    else
        CHECKF(run(TEST_BUILD "/attn-convert %s " TEST_TMP "made.attn --dtype f32", weights) == 1 &&
                   strstr(err, "embed.W_E is too large for this machine"),
               "attn-convert said %s", err);
    remove(weights);
    forget();
}
