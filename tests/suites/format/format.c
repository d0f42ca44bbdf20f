/* Files that are damaged, cut, or lie: each must be refused with a status and a sentence, and none
 * may crash. The file that is damaged here is built by this test straight from the manual, so that
 * reading it is also a check of the format as it is written down; the converter's files get the
 * same treatment in larger steps. */
#include "tests/support/models.h"
#include "tools/common/files.h"
#include "tools/write/writer.h"
#include <sys/stat.h>
#include <unistd.h>

#define PLAIN TEST_TMP "plain.attn"
#define MIB   ((size_t)1 << 20)

static int set_up(void)
{
    return CHECK(system(TEST_BUILD "/attn-convert tests/golden/plain " PLAIN " >/dev/null 2>&1") ==
                 0);
}

SUITE_WITH(set_up, NULL);

/* ---- the checksum, as the manual has it ---- */

static uint64_t digest_of(const unsigned char *block, size_t size)
{
    uint32_t a[64];
    uint64_t d = size;
    size_t padded = (size + 255) / 256 * 256;
    for (size_t j = 0; j < 64; j++)
        a[j] = (uint32_t)j;
    for (size_t at = 0; at < padded; at += 4) {
        const size_t lane = at / 4 % 64;
        uint32_t w = 0;
        for (size_t j = 0; j < 4; j++)
            w |= (uint32_t)(at + j < size ? block[at + j] : 0) << 8 * j;
        a[lane] = (a[lane] ^ w) * 0x9E3779B1u;
        a[lane] = a[lane] ^ (a[lane] >> 15);
    }
    for (size_t j = 0; j < 64; j++) {
        d = (d ^ a[j]) * 0x9E3779B97F4A7C15u;
        d = d ^ (d >> 32);
    }
    return d;
}

static uint64_t checksum_of(const unsigned char *data, size_t size)
{
    uint64_t c = 0;
    for (size_t at = 0; at < size; at += MIB) {
        c = (c ^ digest_of(data + at, size - at < MIB ? size - at : MIB)) * 0x9E3779B97F4A7C15u;
        c = c ^ (c >> 32);
    }
    return c;
}

TEST(checksums)
{
    static const size_t sizes[] = {0,   1,    3,       4,   5,       252,         255,         256,
                                   257, 1000, MIB - 1, MIB, MIB + 1, 2 * MIB + 4, 3 * MIB + 77};
    unsigned char *const data = (unsigned char *)pool_new(4 * MIB);
    random_state = 77;
    for (size_t i = 0; i < 4 * MIB; i++)
        data[i] = (unsigned char)random_u32();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const size_t shift = i % 4; /* any alignment */
        const uint64_t want = checksum_of(data + shift, sizes[i]);
        uint64_t chain = 0;
        CHECKF(model_checksum(0, data + shift, sizes[i]) == want, "%llu bytes", LLU(sizes[i]));
        for (size_t j = 0; j < sizes[i]; j += (1 + j / MIB % 2) * MIB) { /* 1 MiB, then 2, .. */
            const size_t most = (1 + j / MIB % 2) * MIB, left = sizes[i] - j;
            chain = model_checksum(chain, data + shift + j, left < most ? left : most);
        }
        CHECKF(chain == want, "%llu bytes in pieces", LLU(sizes[i]));
    }
    {
        const uint64_t whole = model_checksum(0, data, 3000);
        for (size_t i = 0; i < 3000; i++) {
            data[i] ^= (unsigned char)(1 << i % 8);
            if (!CHECKF(model_checksum(0, data, 3000) != whole, "byte %llu does not count", LLU(i)))
                break;
            data[i] ^= (unsigned char)(1 << i % 8);
        }
        memset(data, 0, 3000); /* zeros count too */
        CHECK(model_checksum(0, data, 3000) != model_checksum(0, data, 2999));
        CHECK(model_checksum(0, data, 0) == 0);
    }
}

/* ---- a small file, built from the manual ---- */

enum { V = 270, CTX = 5, C = 6, HEADS = 2, LAYERS = 2, F = 10, MERGES = 13 };
enum { HEADER = 256, RECORD = 128, MOST = 64 * 1024, MOST_TENSORS = 40 };
enum {
    NAME = 0,
    DTYPE = 64,
    LAYOUT = 68,
    NDIM = 72,
    SHAPE0 = 80,
    SHAPE1 = 88,
    OFFSET = 96,
    SIZE = 104,
    SUM = 112
}; /* of a record */

typedef struct image {
    unsigned char *data; /* MOST bytes at a multiple of 64 */
    size_t size, n_tensors, tokenizer, tokenizer_size;
} image;

static unsigned char *record_of(const image *m, size_t index)
{
    return m->data + HEADER + RECORD * index;
}

static void seal_text(image *m, size_t offset, size_t size)
{
    if (offset <= m->size && size <= m->size - offset)
        put_u64(m->data + 112, checksum_of(m->data + offset, size));
}

/* Makes the checksums right again after bytes were changed. */
static void seal(image *m)
{
    for (size_t i = 0; i < m->n_tensors; i++) {
        unsigned char *r = record_of(m, i);
        const uint64_t offset = get_u64(r + OFFSET), size = get_u64(r + SIZE);
        if (offset <= m->size && size <= m->size - offset)
            put_u64(r + SUM, checksum_of(m->data + offset, (size_t)size));
    }
    put_u64(m->data + 88, checksum_of(m->data + HEADER, m->n_tensors * RECORD));
    seal_text(m, m->tokenizer, m->tokenizer_size);
    put_u64(m->data + 248, checksum_of(m->data, 248));
}

/* Entry (k, n) of tensor number `index`: a small number that f16 holds, different everywhere. */
static float value_at(size_t index, size_t k, size_t n)
{
    return (float)((index * 37 + k * 11 + n * 5) % 64) / 64.0f - 0.5f;
}

static void put_value(image *m, size_t at, int is_half, float value)
{
    uint32_t bits;
    if (is_half) {
        const uint16_t h = half_of(value);
        m->data[at] = (unsigned char)h;
        m->data[at + 1] = (unsigned char)(h >> 8);
    } else {
        memcpy(&bits, &value, 4);
        put_u32(m->data + at, bits);
    }
}

/* Adds a tensor at the end: rows [n_out] or [n_in, n_out], or panels [n_in, n_out]. */
static void add_as(image *m, const char *name, size_t n_in, size_t n_out, int is_panels,
                   int is_half)
{
    unsigned char *r = record_of(m, m->n_tensors);
    const size_t lines = is_half ? (n_in + 1) / 2 : n_in, offset = (m->size + 63) / 64 * 64;
    const size_t size = is_panels ? (n_out + 15) / 16 * lines * 64 : (n_in ? n_in : 1) * n_out * 4;
    snprintf((char *)r, 64, "%s", name);
    put_u32(r + DTYPE, is_panels && is_half);
    put_u32(r + LAYOUT, is_panels != 0);
    put_u32(r + NDIM, n_in ? 2 : 1);
    put_u64(r + SHAPE0, n_in ? n_in : n_out);
    put_u64(r + SHAPE1, n_in ? n_out : 1);
    put_u64(r + OFFSET, offset);
    put_u64(r + SIZE, size);
    for (size_t k = 0; k < (n_in ? n_in : 1); k++)
        for (size_t n = 0; n < n_out; n++) {
            const float value = value_at(m->n_tensors, k, n);
            if (!is_panels)
                put_value(m, offset + 4 * (k * n_out + n), 0, value);
            else if (is_half)
                put_value(m, offset + 2 * ((n / 16 * lines * 2 + k) * 16 + n % 16), 1, value);
            else
                put_value(m, offset + 4 * ((n / 16 * n_in + k) * 16 + n % 16), 0, value);
        }
    m->n_tensors++;
    m->size = offset + size;
}

/* The number of a tensor that gets the other layout; -1: none. */
static int misplaced = -1;
/* Files are built without a tokenizer. */
static int is_bare;

static void add(image *m, const char *name, size_t n_in, size_t n_out, int is_panels, int is_half)
{
    if ((int)m->n_tensors == misplaced)
        is_panels = !is_panels;
    if (n_in == 0)
        is_panels = 0;
    add_as(m, name, n_in, n_out, is_panels, is_half);
}

static unsigned char byte_of_id(size_t id)
{
    return (unsigned char)(id * 7 + 3);
}
static size_t id_of_byte(unsigned char byte)
{
    size_t id = 0;
    while (byte_of_id(id) != byte)
        id++;
    return id;
}

/* 256 bytes in an order of their own, the merges ab, bb, cb, ... and one special token. */
static void add_tokenizer(image *m)
{
    static const char special[] = "<|end|>";
    const size_t n_bytes = 256 + 2 * MERGES + sizeof special - 1;
    unsigned char *p = m->data + m->size, *ends = p + 16, *merges = ends + 4 * V,
                  *text = merges + 12 * MERGES + 4;
    size_t at = 0;
    put_u32(p, V);
    put_u32(p + 4, MERGES);
    put_u32(p + 8, 1);
    put_u32(p + 12, (uint32_t)n_bytes);
    for (size_t id = 0; id < V; id++) {
        if (id < 256) {
            text[at++] = byte_of_id(id);
        } else if (id < 256 + MERGES) {
            const size_t rank = id - 256;
            text[at] = (unsigned char)('a' + rank);
            text[at + 1] = 'b';
            put_u32(merges + 12 * rank, (uint32_t)id_of_byte(text[at]));
            put_u32(merges + 12 * rank + 4, (uint32_t)id_of_byte('b'));
            put_u32(merges + 12 * rank + 8, (uint32_t)id);
            at += 2;
        } else {
            memcpy(text + at, special, sizeof special - 1);
            at += sizeof special - 1;
        }
        put_u32(ends + 4 * id, (uint32_t)at);
    }
    put_u32(merges + 12 * MERGES, V - 1);
    m->tokenizer = m->size;
    m->tokenizer_size = (size_t)(text + n_bytes - p);
    m->size += m->tokenizer_size;
    put_u64(m->data + 96, m->tokenizer);
    put_u64(m->data + 104, m->tokenizer_size);
}

static image build_as(int tied, int is_half, int has_b_U)
{
    static const unsigned char magic[8] = {0x89, 0x41, 0x54, 0x54, 0x4E, 0x0D, 0x0A, 0x1A};
    static const uint32_t numbers[] = {V, CTX, C, HEADS, LAYERS, F, 0x3727C5AC /* 1e-5 */};
    const size_t n_tensors = 4 + 12 * LAYERS + (tied ? 0u : 1u) + (has_b_U ? 1u : 0u);
    image m;
    char name[64];
    m.data = (unsigned char *)pool_new(MOST + 64);
    m.data += (64 - (uintptr_t)m.data % 64) % 64;
    memset(m.data, 0, MOST);
    memcpy(m.data, magic, 8);
    put_u32(m.data + 8, has_b_U ? 3 : 1);
    put_u32(m.data + 12, HEADER);
    for (size_t i = 0; i < 7; i++)
        put_u32(m.data + 24 + 4 * i, numbers[i]);
    put_u32(m.data + 52, (tied != 0) + 8 * (uint32_t)has_b_U);
    put_u32(m.data + 56, V - 1);
    put_u32(m.data + 60, 0xFFFFFFFF);
    put_u32(m.data + 64, (uint32_t)n_tensors);
    put_u64(m.data + 72, HEADER);
    put_u64(m.data + 80, n_tensors * RECORD);
    m.size = HEADER + n_tensors * RECORD;
    m.n_tensors = 0;
    m.tokenizer = m.tokenizer_size = 0;
    if (!is_bare)
        add_tokenizer(&m);
    add(&m, "embed.W_E", C, V, 1, is_half);
    add(&m, "pos_embed.W_pos", CTX, C, 0, 0);
    for (size_t i = 0; i < LAYERS; i++) {
#define ADD(tail, n_in, n_out, is_panels)                                                          \
    (snprintf(name, sizeof name, "blocks.%d." tail, (int)i),                                       \
     add(&m, name, n_in, n_out, is_panels, is_half))
        ADD("ln1.w", 0, C, 0);
        ADD("ln1.b", 0, C, 0);
        ADD("attn.W_QKV", C, 3 * C, 1);
        ADD("attn.b_QKV", 0, 3 * C, 0);
        ADD("attn.W_O", C, C, 1);
        ADD("attn.b_O", 0, C, 0);
        ADD("ln2.w", 0, C, 0);
        ADD("ln2.b", 0, C, 0);
        ADD("mlp.W_in", C, F, 1);
        ADD("mlp.b_in", 0, F, 0);
        ADD("mlp.W_out", F, C, 1);
        ADD("mlp.b_out", 0, C, 0);
#undef ADD
    }
    add(&m, "ln_final.w", 0, C, 0, 0);
    add(&m, "ln_final.b", 0, C, 0, 0);
    if (!tied)
        add(&m, "unembed.W_U", C, V, 1, is_half);
    if (has_b_U)
        add(&m, "unembed.b_U", 0, V, 0, 0);
    put_u64(m.data + 16, m.size);
    seal(&m);
    return m;
}

static image build(int tied, int is_half)
{
    return build_as(tied, is_half, 0);
}

/* ---- opening ---- */

/* Memory up to a limit, far below what the sizes in damaged files ask for: one that is believed
 * before it is checked ends in ATTN_E_MEMORY, which is wrong for all of them. A sanitizer sees more
 * of the library's own allocator. */
typedef struct bound {
    size_t used, limit;
} bound;

enum { ENOUGH = 1 << 24 }; /* for the largest n_layer there may be; good files take 1/16 of it */
enum { BOUND_HEAD = 64 };  /* bytes before a block, for its size */
static void *bounded_alloc(size_t size, void *user)
{
    bound *b = (bound *)user;
    unsigned char *block;
    if (size > b->limit - b->used || (block = (unsigned char *)malloc(BOUND_HEAD + size)) == NULL)
        return NULL;
    memcpy(block, &size, sizeof size);
    b->used += size;
    return block + BOUND_HEAD;
}

static void bounded_free(void *block, void *user)
{
    SCOPED_BYTES const start = (unsigned char *)block - BOUND_HEAD;
    size_t size;
    memcpy(&size, start, sizeof size);
    ((bound *)user)->used -= size;
}

static attn_ctx bounded(bound *b, size_t limit)
{
    attn_ctx ctx = alone();
    b->used = 0;
    b->limit = limit;
    ctx.alloc = TEST_SANITIZED ? NULL : bounded_alloc;
    ctx.free = TEST_SANITIZED ? NULL : bounded_free;
    ctx.user = b;
    return ctx;
}

/* One number for all that a model tells of its header and its table. */
static uint64_t told_by(const attn_model *model)
{
    attn_config c = *attn_model_config(model);
    model_tensor t;
    c.more_eos = NULL;
    uint64_t all = model_checksum(0, &c, sizeof c) + (attn_model_tokenizer(model) != NULL);
    for (size_t i = 0; i < model_n_tensors(model); i++) {
        t = model_tensor_at(model, i);
        all = all * 31 + model_checksum(0, t.name, strlen(t.name));
        t.name = NULL;
        all = all * 31 + model_checksum(0, &t, sizeof t);
    }
    return all;
}
static uint64_t told; /* by the model that was opened last */

/* Opens and, if that works, runs the model, so that whatever was believed is put to use. */
static attn_status try_open(attn_ctx *ctx, const unsigned char *data, size_t size, int unchecked)
{
    static const int32_t tokens[] = {0, 1, 2};
    attn_model *model = NULL;
    attn_session *session = NULL;
    attn_model_desc desc = {.skip_checksums = unchecked};
    ctx->message[0] = 0;
    attn_status status = attn_model_open_memory(ctx, &model, data, size, &desc);
    CHECK((model != NULL) == (status == ATTN_OK));
    if (model) {
        attn_session_desc small = {.n_ctx = 4, .n_batch = 2};
        if (OK(ctx, attn_session_new(ctx, &session, model, &small)))
            OK(ctx, attn_feed(ctx, session, tokens, 3));
        told = told_by(model);
        attn_session_free(session);
        attn_model_close(model);
    } else {
        CHECKF(status != ATTN_E_MEMORY, "%s", ctx->message);
        CHECKF(strstr(ctx->message, "model in memory"), "\"%s\" does not name the file",
               ctx->message);
        CHECKF(strlen(ctx->message) > 25, "\"%s\" does not say much", ctx->message);
    }
    return status;
}

#define REFUSED(status_, text, image_)                                                             \
    test_fails(__FILE__, __LINE__, "opening", &ctx, status_, text,                                 \
               try_open(&ctx, (image_).data, (image_).size, 0))

/* The file as built is read as built: every number of every tensor, the configuration, the text. */
TEST(as_the_manual_says)
{
    for (int tied = 0; tied < 2; tied++)
        for (int is_half = 0; is_half < 2; is_half++) {
            SCOPED_CTX ctx = alone();
            const image m = build(tied, is_half);
            SCOPED_MODEL model = NULL;
            int32_t ids[16];
            if (!OK(&ctx, attn_model_open_memory(&ctx, &model, m.data, m.size, NULL)))
                continue;
            CHECK(try_open(&ctx, m.data, m.size, 0) == ATTN_OK);
            const attn_config *c = attn_model_config(model);
            CHECK(c->n_vocab == V && c->n_ctx == CTX && c->d_model == C && c->n_head == HEADS);
            CHECK(c->n_layer == LAYERS && c->d_mlp == F && c->d_head == C / HEADS);
            CHECK(c->ln_eps == 1e-5f && c->tied == tied && c->bos == V - 1 && c->eos == -1);
            EQUAL(model_n_tensors(model), m.n_tensors);
            for (size_t index = 0; index < m.n_tensors; index++) {
                attn_tensor w = {0};
                int right = 1;
                model_tensor info = model_tensor_at(model, index);
                CHECK(strcmp(info.name, (const char *)record_of(&m, index)) == 0);
                CHECK(info.offset == get_u64(record_of(&m, index) + OFFSET) &&
                      info.size == get_u64(record_of(&m, index) + SIZE) &&
                      info.checksum == get_u64(record_of(&m, index) + SUM));
                OK(&ctx, attn_model_tensor(&ctx, &w, model, info.name));
                if (w.ndim == 3) /* W_O [H, d, C] */
                    w = attn_reshape(w, attn_shape2(C, C));
                for (size_t i = 0; i < w.shape[0]; i++)
                    for (size_t j = 0; j < w.shape[1]; j++) {
                        const float want = info.ndim == 1 ? value_at(index, 0, i)
                                           : index == 0   ? value_at(index, j, i)
                                                          : value_at(index, i, j);
                        right &= (w.ndim == 1 ? attn_get1(w, i) : attn_get2(w, i, j)) == want;
                    }
                CHECKF(right && w.shape[0] * w.shape[1] == info.shape[0] * info.shape[1],
                       "%s holds other numbers", info.name);
            }
            size_t n = 16;
            OK(&ctx,
               attn_encode_special(&ctx, ids, &n, attn_model_tokenizer(model), "xdb<|end|>", 10));
            CHECK(n == 3 && ids[0] == (int32_t)id_of_byte('x') && ids[1] == 256 + 3 &&
                  ids[2] == V - 1);
            pool_clear();
        }
}

TEST(no_file_at_all)
{
    attn_ctx ctx = alone();
    attn_model *model = (attn_model *)(uintptr_t)1;
    FAILS(IO, "nowhere/x.attn", attn_model_open(&ctx, &model, "nowhere/x.attn", NULL));
    CHECK(model == NULL);
    FAILS(IO, "cannot be read", attn_model_open(&ctx, &model, "nowhere/x.attn", NULL));
    FAILS(IO, "directory", attn_model_open(&ctx, &model, "tests", NULL));
    FAILS(IO, "tests", attn_model_open(&ctx, &model, "tests", NULL));
    test_write(test_tmp("format-empty.attn"), "", 0);
    FAILS(FORMAT, "empty", attn_model_open(&ctx, &model, test_tmp("format-empty.attn"), NULL));
    FAILS(FORMAT, "format-empty.attn",
          attn_model_open(&ctx, &model, test_tmp("format-empty.attn"), NULL));
    FAILS(FORMAT, "not an .attn file",
          attn_model_open(&ctx, &model, "tests/golden/plain/config.json", NULL));
    FAILS(FORMAT, "attn-convert",
          attn_model_open(&ctx, &model, "tests/golden/plain/model.safetensors", NULL));
    FAILS(FORMAT, "empty", attn_model_open_memory(&ctx, &model, NULL, 0, NULL));
    CHECK(model == NULL);
}

/* What mail and old transfer programs do to bytes. */
TEST(text_mode)
{
    attn_ctx ctx = alone();
    const image m = build(1, 0);
    image t = build(1, 0);
    for (size_t i = t.size = 0; i < m.size; i++) /* \r\n to \n */
        if (!(m.data[i] == '\r' && m.data[i + 1] == '\n'))
            t.data[t.size++] = m.data[i];
    REFUSED(ATTN_E_FORMAT, "as text", t);
    for (size_t i = t.size = 0; i < m.size; i++) { /* \n to \r\n */
        if (m.data[i] == '\n')
            t.data[t.size++] = '\r';
        t.data[t.size++] = m.data[i];
    }
    REFUSED(ATTN_E_FORMAT, "as text", t);
    for (size_t i = 0; i < m.size; i++) /* seven bits */
        t.data[i] = m.data[i] & 127;
    t.size = m.size;
    REFUSED(ATTN_E_FORMAT, "not an .attn file", t);
    for (t.size = 0; m.data[t.size] != 0x1A; t.size++) /* up to the end-of-file character */
        t.data[t.size] = m.data[t.size];
    REFUSED(ATTN_E_FORMAT, "", t);
}

/* Cut anywhere, believed to be whole or with a size to match. The cut copy ends where its memory
 * ends, so that a checker of memory sees what is read beyond. */
static void check_cut(const image *m, size_t size)
{
    bound b;
    attn_ctx ctx = bounded(&b, ENOUGH);
    image cut = *m;
    SCOPED_BYTES const block = (unsigned char *)malloc(size + 64);
    const size_t shift = (64 - (uintptr_t)block % 64) % 64;
    cut.data = block + shift;
    cut.size = size;
    memcpy(cut.data, m->data, size);
    attn_status status = try_open(&ctx, cut.data, size, 0);
    CHECKF(status == ATTN_E_FORMAT, "cut at %llu: %s (%s)", LLU(size), attn_status_name(status),
           ctx.message);
    if (size >= HEADER) {
        CHECKF(strstr(ctx.message, "cut"), "cut at %llu: %s", LLU(size), ctx.message);
        put_u64(cut.data + 16, size);
        put_u64(cut.data + 248, checksum_of(cut.data, 248));
        status = try_open(&ctx, cut.data, size, 1);
        CHECKF(status == ATTN_E_FORMAT, "cut at %llu with that size: %s (%s)", LLU(size),
               attn_status_name(status), ctx.message);
    }
}

TEST(cuts)
{
    const image m = build(1, 1);
    image large;
    for (size_t size = 0; size < m.size; size++)
        check_cut(&m, size);
    memset(&large, 0, sizeof large);
    large.data = test_read(PLAIN, &large.size);
    if (!CHECK(large.data))
        return;
    large.n_tensors = large.data[64];
    random_state = 5;
    for (size_t i = 0; i < large.n_tensors; i++) {
        const size_t offset = (size_t)get_u64(record_of(&large, i) + OFFSET);
        const size_t end = offset + (size_t)get_u64(record_of(&large, i) + SIZE);
        check_cut(&large, offset - 1);
        check_cut(&large, offset);
        check_cut(&large, offset + 1);
        check_cut(&large, end - 1);
        if (end < large.size)
            check_cut(&large, end);
        check_cut(&large, random_below(large.size));
    }
    free(large.data);
}

/* Does this byte lie between two sections? */
static int is_padding(const image *m, size_t at)
{
    size_t end = m->tokenizer + m->tokenizer_size;
    for (size_t index = 0; index < m->n_tensors; index++) {
        const size_t offset = (size_t)get_u64(record_of(m, index) + OFFSET);
        if (at >= end && at < offset)
            return 1;
        end = offset + (size_t)get_u64(record_of(m, index) + SIZE);
    }
    return 0;
}

/* Every byte counts, in every section, padding included. */
TEST(flips)
{
    bound b;
    attn_ctx ctx = bounded(&b, ENOUGH);
    image m = build(0, 1);
    const size_t table_end = HEADER + m.n_tensors * RECORD;
    size_t n_unseen = 0;
    attn_status status, wanted;
    for (size_t at = 0; at < m.size; at++)
        for (size_t bit = 0; bit < 8; bit++) {
            if (at >= HEADER && bit != (at * 5 + 1) % 8) /* one bit of the others */
                continue;
            m.data[at] ^= (unsigned char)(1u << bit);
            status = try_open(&ctx, m.data, m.size, 0);
            wanted = at < 8 || is_padding(&m, at) ? ATTN_E_FORMAT
                     : at < 12 && (at != 8 || bit < 1 || bit > 2)
                         ? ATTN_E_VERSION /* 3 and 5 are known */
                         : ATTN_E_CHECKSUM;
            n_unseen += status == ATTN_OK;
            CHECKF(status == wanted, "byte %llu, bit %llu: %s (%s)", LLU(at), LLU(bit),
                   attn_status_name(status), ctx.message);
            if (at < table_end + m.tokenizer_size) { /* these are verified in any case */
                status = try_open(&ctx, m.data, m.size, 1);
                CHECKF(status == wanted, "byte %llu, unchecked: %s", LLU(at),
                       attn_status_name(status));
            }
            m.data[at] ^= (unsigned char)(1u << bit);
        }
    CHECKF(n_unseen == 0, "%llu changes were not seen", LLU(n_unseen));
    CHECK(try_open(&ctx, m.data, m.size, 0) == ATTN_OK);
    m.data[m.size - 1] ^= 1; /* in the last tensor, which nobody looks at then */
    CHECK(try_open(&ctx, m.data, m.size, 1) == ATTN_OK);
}

TEST(flips_in_a_converted_file)
{
    bound b;
    attn_ctx ctx = bounded(&b, ENOUGH);
    attn_isa_kind kind;
    size_t size;
    SCOPED_BYTES file = test_read(PLAIN, &size);
    if (!CHECK(file))
        return;
    unsigned char *data = (unsigned char *)pool_new(size + 64);
    data += (64 - (uintptr_t)data % 64) % 64;
    memcpy(data, file, size);
    for (kind = ATTN_ISA_AUTO; kind <= ATTN_ISA_NEON_I8MM; kind = (attn_isa_kind)(kind + 1)) {
        ctx.isa = kind;
        if (attn_isa(&ctx))
            CHECKF(try_open(&ctx, data, size, 0) == ATTN_OK, "%s: %s", attn_isa(&ctx), ctx.message);
    }
    ctx.isa = ATTN_ISA_AUTO;
    random_state = 6;
    for (size_t i = 0; i < 300; i++) {
        const size_t at = random_below(size);
        const unsigned char mask = (unsigned char)(1u << random_below(8));
        data[at] ^= mask;
        ctx.n_threads = 1 + (int)(i % 3);
        CHECKF(try_open(&ctx, data, size, 0) != ATTN_OK, "byte %llu", LLU(at));
        data[at] ^= mask;
    }
}

/* ---- lies with a good checksum ---- */

/* Writes `value` into a field of `bytes` bytes at `at`, seals, opens, and puts it back. */
static attn_status lie(attn_ctx *ctx, image *m, size_t at, size_t bytes, uint64_t value)
{
    unsigned char kept[MOST_TENSORS * RECORD + HEADER];
    const size_t before = HEADER + m->n_tensors * RECORD;
    unsigned char field[8];
    memcpy(kept, m->data, before);
    memcpy(field, m->data + at, 8);
    if (bytes == 4)
        put_u32(m->data + at, (uint32_t)value);
    else
        put_u64(m->data + at, value);
    if (at >= 96 && at < 112) /* a good checksum of wherever that is */
        seal_text(m, (size_t)get_u64(m->data + 96), (size_t)get_u64(m->data + 104));
    else if (at / 8 != 88 / 8 && at / 8 != 112 / 8 &&
             !(at >= HEADER && at < before && (at - HEADER) % RECORD / 8 == SUM / 8))
        seal(m); /* those three are checksums themselves */
    if (at >= HEADER)
        put_u64(m->data + 88, checksum_of(m->data + HEADER, m->n_tensors * RECORD));
    put_u64(m->data + 248, checksum_of(m->data, 248));
    attn_status status = try_open(ctx, m->data, m->size, 0);
    memcpy(m->data + at, field, bytes);
    memcpy(m->data, kept, before);
    return status;
}

static const uint64_t lies[] = {0,
                                1,
                                2,
                                3,
                                63,
                                64,
                                127,
                                255,
                                256,
                                257,
                                65535,
                                65536,
                                (uint64_t)1 << 24,
                                (uint64_t)1 << 26,
                                0x7FFFFFFF,
                                0x80000000,
                                0xFFFFFFFE,
                                0xFFFFFFFF,
                                (uint64_t)1 << 32,
                                ((uint64_t)1 << 32) + 64,
                                (uint64_t)1 << 58,
                                (uint64_t)1 << 63,
                                UINT64_MAX - 63,
                                UINT64_MAX};
enum { N_LIES = sizeof lies / sizeof lies[0] };

/* The fields of the header that may hold other numbers without contradicting the rest. */
static int may_differ(size_t at, uint64_t value)
{
    const uint32_t low = (uint32_t)value;
    float eps;
    memcpy(&eps, &low, 4);
    switch (at) {
    case 8: /* version: this file is the same in all */
        return low >= 1 && low <= 3;
    case 36: /* heads */
        return low == 1 || low == 2 || low == 3 || low == 6;
    case 48: /* epsilon */
        return eps >= 0 && eps <= 1;
    case 56: /* bos, eos */
    case 60:
        return low < V || low == 0xFFFFFFFF;
    default:
        return 0;
    }
}

TEST(lies_in_the_header)
{
    bound b;
    attn_ctx ctx = bounded(&b, ENOUGH);
    image m = build(0, 0);
    size_t bytes;
    for (size_t at = 8; at < 120; at += bytes) {
        const uint64_t now = get_u64(m.data + at);
        bytes = at == 16 || at >= 72 ? 8 : 4;
        for (size_t i = 0; i < N_LIES + 2; i++) {
            const uint64_t value = i < N_LIES ? lies[i] : i == N_LIES ? now + 1 : now - 1;
            const int same = bytes == 4 ? (uint32_t)value == (uint32_t)now : value == now;
            attn_status status = lie(&ctx, &m, at, bytes, value);
            if (same || may_differ(at, value))
                CHECKF(status == ATTN_OK, "offset %llu = %llx: %s", LLU(at), LLU(value),
                       ctx.message);
            else
                CHECKF(status == (at == 8 || (at == 52 && (uint32_t)value > 1) ? ATTN_E_VERSION
                                  : at == 88 || at == 112                      ? ATTN_E_CHECKSUM
                                                                               : ATTN_E_FORMAT),
                       "offset %llu = %llx: %s (%s)", LLU(at), LLU(value), attn_status_name(status),
                       ctx.message);
        }
    }
    CHECK(lie(&ctx, &m, 8, 4, 6) == ATTN_E_VERSION && strstr(ctx.message, "version 6"));
    CHECK(strstr(ctx.message, "versions 1 to 5"));
    CHECK(lie(&ctx, &m, 48, 4, 0x7FC00000) == ATTN_E_FORMAT); /* NaN */
    CHECK(lie(&ctx, &m, 48, 4, 0x7F800000) == ATTN_E_FORMAT); /* infinite */
    CHECK(lie(&ctx, &m, 48, 4, 0x3F800001) == ATTN_E_FORMAT &&
          lie(&ctx, &m, 48, 4, 0x3F800000) == 0);
    CHECK(lie(&ctx, &m, 36, 4, 4) == ATTN_E_FORMAT && strstr(ctx.message, "n_head 4"));
    CHECK(lie(&ctx, &m, 12, 4, 512) == ATTN_E_FORMAT && strstr(ctx.message, "512 bytes"));
    CHECK(lie(&ctx, &m, 40, 4, 70000) == ATTN_E_FORMAT && strstr(ctx.message, "n_layer is 70000"));
    CHECK(lie(&ctx, &m, 48, 4, 0xBF800000) == ATTN_E_FORMAT &&
          strstr(ctx.message, "epsilon is -1"));
    CHECK(lie(&ctx, &m, 52, 4, 2) == ATTN_E_VERSION && strstr(ctx.message, "flags 2"));
    CHECK(lie(&ctx, &m, 60, 4, 1u << 20) == ATTN_E_FORMAT && strstr(ctx.message, "1048576"));
    for (size_t at = 56; at <= 60; at += 4) { /* the last id, and the one after it */
        const uint32_t n_vocab = (uint32_t)get_u64(m.data + 24);
        CHECK(lie(&ctx, &m, at, 4, n_vocab - 1) == ATTN_OK);
        CHECK(lie(&ctx, &m, at, 4, n_vocab) == ATTN_E_FORMAT);
    }
    CHECK(lie(&ctx, &m, 72, 8, HEADER + 64) == ATTN_E_FORMAT); /* the table begins at 256 */
    CHECK(try_open(&ctx, m.data, m.size, 0) == ATTN_OK);
}

/* No byte of the header and the table is without a meaning: one that is changed under a good checksum ends
 * in a refusal, or in a model that tells something else. */
TEST(each_byte_has_a_meaning)
{
    bound b;
    attn_ctx ctx = bounded(&b, ENOUGH);
    for (is_bare = 0; is_bare < 2; is_bare++) {
        image m = build(0, 0);
        CHECKF(try_open(&ctx, m.data, m.size, 0) == ATTN_OK, "%s", ctx.message);
        uint64_t before = told;
        for (size_t at = 8; at < HEADER + m.n_tensors * RECORD; at += at == 244 ? 12 : 4)
            for (size_t bit = 0; bit < 32;
                 bit += at < HEADER ? 1 : 7) { /* in the table, one or two of a byte */
                const uint32_t value = get_u32(m.data + at) ^ (1u << bit);
                if (at == 8 && value <= 3) /* the version: this file is the same in all */
                    continue;
                CHECKF(lie(&ctx, &m, at, 4, value) != ATTN_OK || told != before,
                       "bit %llu at %llu says nothing", LLU(bit), LLU(at));
            }
        pool_clear();
    }
    is_bare = 0;
}

/* A size or a checksum of no tokenizer. */
TEST(lies_without_a_tokenizer)
{
    bound b;
    attn_ctx ctx = bounded(&b, ENOUGH);
    is_bare = 1;
    image m = build(1, 0);
    is_bare = 0;
    for (size_t at = 96; at < 120; at += 8)
        for (size_t i = 1; i < N_LIES; i++)
            CHECKF(lie(&ctx, &m, at, 8, lies[i]) == ATTN_E_FORMAT, "offset %llu = %llx: %s",
                   LLU(at), LLU(lies[i]), ctx.message);
    m.data[119] = 1;
    put_u64(m.data + 248, checksum_of(m.data, 248));
    REFUSED(ATTN_E_FORMAT, "byte 119 is padding and must be zero", m);
}

TEST(lies_in_the_table)
{
    bound b;
    attn_ctx ctx = bounded(&b, ENOUGH);
    image m = build(0, 1);
    size_t bytes;
    for (size_t index = 0; index < m.n_tensors; index++)
        for (size_t at = DTYPE; at < 120; at += bytes) {
            const size_t field = HEADER + index * RECORD + at;
            const uint64_t now = get_u64(m.data + field);
            bytes = at < SHAPE0 ? 4 : 8;

            for (size_t i = 0; i < N_LIES + 4; i++) {
                const uint64_t value = i < N_LIES ? lies[i] : now + (i - N_LIES) * 64 - 65;
                const int same = bytes == 4 ? (uint32_t)value == (uint32_t)now : value == now;
                const int is_panels = record_of(&m, index)[LAYOUT] == 1;
                const int known = (uint32_t)value <= 1 ||
                                  (at == DTYPE && is_panels &&
                                   ((uint32_t)value == ATTN_Q8 || (uint32_t)value == ATTN_Q4));
                const attn_status status = lie(&ctx, &m, field, bytes, value);
                const attn_status wanted = same           ? ATTN_OK
                                           : at == SUM    ? ATTN_E_CHECKSUM
                                           : at <= LAYOUT ? (known ? ATTN_E_FORMAT : ATTN_E_VERSION)
                                                          : ATTN_E_FORMAT;
                CHECKF(status == wanted, "%s, offset %llu = %llx: %s (%s)",
                       (const char *)record_of(&m, index), LLU(at), LLU(value),
                       attn_status_name(status), ctx.message);
                if (status == ATTN_E_VERSION)
                    CHECK(strstr(ctx.message, "f16") && strstr(ctx.message, "panels"));
                if (status != ATTN_OK)
                    CHECKF(strstr(ctx.message, (const char *)record_of(&m, index)) ||
                               strstr(ctx.message, "tensor") || at == 76,
                           "%s", ctx.message);
            }
        }
    CHECK(try_open(&ctx, m.data, m.size, 0) == ATTN_OK);
}

TEST(lies_in_the_tokenizer)
{
    bound b;
    attn_ctx ctx = bounded(&b, ENOUGH);
    image m = build(1, 0);
    const size_t merges = m.tokenizer + 16 + 4 * V, special = merges + 12 * MERGES;
    for (size_t at = m.tokenizer; at < special + 4; at += 4)
        for (size_t i = 0; i < N_LIES; i++) {
            const uint32_t now = (uint32_t)get_u64(m.data + at);
            if (lies[i] > 0xFFFFFFFF)
                continue;
            attn_status status = lie(&ctx, &m, at, 4, lies[i]);
            if (now == lies[i])
                CHECKF(status == ATTN_OK, "offset %llu: %s", LLU(at), ctx.message);
            else if (at == special && status == ATTN_OK)
                CHECK(lies[i] <
                      V); /* another token may be special, unless it takes part in merges */
            else
                CHECKF(status == ATTN_E_FORMAT, "offset %llu = %llx: %s (%s)",
                       LLU(at - m.tokenizer), LLU(lies[i]), attn_status_name(status), ctx.message);
        }
    put_u64(m.data + 96, 0); /* none: then its bytes belong to nobody */
    put_u64(m.data + 104, 0);
    put_u64(m.data + 112, 0);
    put_u64(m.data + 248, checksum_of(m.data, 248));
    CHECK(try_open(&ctx, m.data, m.size, 0) == ATTN_E_FORMAT);
}

/* The tokenizer may know fewer tokens than the model has rows, but not more. */
TEST(more_tokens_than_rows)
{
    bound b;
    attn_ctx ctx = bounded(&b, ENOUGH);
    image m = build(1, 0);
    put_u32(m.data + 24, V - 1);
    put_u64(record_of(&m, 0) + SHAPE1, V - 1); /* as many panels as before */
    put_u32(m.data + 56, 0);
    seal(&m);
    REFUSED(ATTN_E_FORMAT, "270 tokens, the model 269", m);
    put_u32(m.data + 24, V + 1);
    put_u64(record_of(&m, 0) + SHAPE1, V + 1);
    seal(&m);
    CHECKF(try_open(&ctx, m.data, m.size, 0) == ATTN_OK, "%s", ctx.message);
}

/* Zeros in the middle; what lies behind them moves, and is found there. */
static void insert_zeros(image *m, size_t at, size_t n)
{
    memmove(m->data + at + n, m->data + at, m->size - at);
    memset(m->data + at, 0, n);
    m->size += n;
    put_u64(m->data + 16, m->size);
    for (size_t i = 0; i < m->n_tensors; i++)
        if (get_u64(record_of(m, i) + OFFSET) >= at)
            put_u64(record_of(m, i) + OFFSET, get_u64(record_of(m, i) + OFFSET) + n);
    if (m->tokenizer >= at)
        m->tokenizer += n;
    put_u64(m->data + 96, m->tokenizer);
}

TEST(wrong_tensors)
{
    bound b;
    attn_ctx ctx = bounded(&b, ENOUGH);
    attn_model *model;
    image m;
    unsigned char spare[RECORD];
    size_t i, n;
    for (i = 0, n = 5 + 12 * LAYERS; i < n; i++) { /* each name in turn */
        m = build(0, 0);
        const char *const name = test_text("%s", (const char *)record_of(&m, i));
        const char *const text = test_text("tensor %s is missing", name);
        memset(record_of(&m, i), 0, 64);
        memcpy(record_of(&m, i), "something.else", 14);
        seal(&m);
        REFUSED(ATTN_E_FORMAT, text, m);
        memcpy(record_of(&m, i), record_of(&m, (i + 1) % n), 64); /* one twice, one missing */
        seal(&m);
        REFUSED(ATTN_E_FORMAT, "", m);
        memset(record_of(&m, i), 'x', 64); /* a name without an end */
        seal(&m);
        REFUSED(ATTN_E_FORMAT, "name", m);
        memset(record_of(&m, i), 0, 64);
        seal(&m);
        REFUSED(ATTN_E_FORMAT, "name", m);
        pool_clear();
    }
    m = build(0, 0); /* an untied unembedding in a tied file is one too many */
    put_u32(m.data + 52, 1);
    seal(&m);
    REFUSED(ATTN_E_FORMAT, "29 tensors, but a model of this configuration has 28", m);
    m = build(1, 0); /* one twice, and none missing */
    insert_zeros(&m, HEADER + m.n_tensors * RECORD, RECORD);
    memcpy(record_of(&m, m.n_tensors), record_of(&m, m.n_tensors - 1), RECORD);
    size_t end = (m.size + 63) / 64 * 64;
    memcpy(m.data + end, m.data + get_u64(record_of(&m, m.n_tensors) + OFFSET), C * 4);
    put_u64(record_of(&m, m.n_tensors) + OFFSET, end);
    m.n_tensors++;
    put_u32(m.data + 64, (uint32_t)m.n_tensors);
    put_u64(m.data + 80, m.n_tensors * RECORD);
    m.size = end + C * 4;
    put_u64(m.data + 16, m.size);
    seal(&m);
    REFUSED(ATTN_E_FORMAT, "29 tensors, but a model of this configuration has 28", m);
    m = build(1, 0); /* a matrix of three dimensions, of which two are listed */
    put_u32(record_of(&m, 0) + NDIM, 3);
    seal(&m);
    REFUSED(ATTN_E_FORMAT, "impossible shape", m);
    m = build(1, 0); /* rows whose bytes, counted with 64 bits, are as many as there are */
    put_u64(record_of(&m, 1) + SHAPE0, CTX + ((uint64_t)1 << 61));
    seal(&m);
    REFUSED(ATTN_E_FORMAT, "impossible shape", m);
    m = build(1, 0);
    put_u64(record_of(&m, 1) + SHAPE1, C + ((uint64_t)1 << 62));
    seal(&m);
    REFUSED(ATTN_E_FORMAT, "impossible shape", m);
    m = build(1, 0); /* a gap before the tokenizer */
    insert_zeros(&m, m.tokenizer, 64);
    seal(&m);
    REFUSED(ATTN_E_FORMAT, "the tokenizer does not fit", m);
    m = build(0, 0); /* the last of the table not listed */
    put_u32(m.data + 64, (uint32_t)m.n_tensors - 1);
    put_u64(m.data + 80, (m.n_tensors - 1) * RECORD);
    m.n_tensors--;
    seal(&m);
    REFUSED(ATTN_E_FORMAT, "", m);
    m = build(1, 0); /* names that look like others' */
    snprintf((char *)record_of(&m, 2), 64, "blocks.00.ln1.w");
    seal(&m);
    REFUSED(ATTN_E_FORMAT, "blocks.0.ln1.w is missing", m);
    snprintf((char *)record_of(&m, 2), 64, "blocks.2.ln1.w"); /* there are two layers */
    seal(&m);
    REFUSED(ATTN_E_FORMAT, "blocks.0.ln1.w is missing", m);
    snprintf((char *)record_of(&m, 2), 64, "blocks.4294967296.ln1.w");
    seal(&m);
    REFUSED(ATTN_E_FORMAT, "blocks.0.ln1.w is missing", m);

    for (i = 0, n = 0; i < 3 + 12 * LAYERS; i++) { /* a vector of f16; all else fits */
        m = build(1, 0);
        unsigned char *r = record_of(&m, i);
        end = (size_t)get_u64(r + SIZE);
        if (get_u32(r + LAYOUT) == 0 && end < 64) {
            put_u32(r + DTYPE, 1);
            put_u64(r + SIZE, end / 2);
            memset(m.data + get_u64(r + OFFSET) + end / 2, 0, end - end / 2);
            seal(&m);
            REFUSED(ATTN_E_FORMAT, "expected rows of f32", m);
            n++;
        }
        pool_clear();
    }
    CHECK(n > 4 * LAYERS);
    m = build(1, 0); /* two tensors in one place */
    put_u64(record_of(&m, 3) + OFFSET, get_u64(record_of(&m, 2) + OFFSET));
    seal(&m);
    REFUSED(ATTN_E_FORMAT, "blocks.0.ln1.b", m);
    m = build(1, 0); /* the records in another order than the data */
    memcpy(spare, record_of(&m, 2), RECORD);
    memcpy(record_of(&m, 2), record_of(&m, 3), RECORD);
    memcpy(record_of(&m, 3), spare, RECORD);
    seal(&m);
    REFUSED(ATTN_E_FORMAT, "blocks.0.ln1.b", m);
    m = build(1, 0); /* a gap of 64 bytes before the last */
    end = (size_t)get_u64(record_of(&m, m.n_tensors - 1) + OFFSET);
    memmove(m.data + end + 64, m.data + end, m.size - end);
    memset(m.data + end, 0, 64);
    m.size += 64;
    put_u64(m.data + 16, m.size);
    put_u64(record_of(&m, m.n_tensors - 1) + OFFSET, end + 64);
    seal(&m);
    REFUSED(ATTN_E_FORMAT, "ln_final.b", m);
    m = build(1, 0); /* the last behind the end of the file, though its bytes are there */
    end = (size_t)(get_u64(record_of(&m, m.n_tensors - 2) + OFFSET) +
                   get_u64(record_of(&m, m.n_tensors - 2) + SIZE));
    m.size = end;
    put_u64(m.data + 16, m.size);
    seal(&m);
    CHECK(attn_model_open_memory(&ctx, &model, m.data, m.size, NULL) == ATTN_E_FORMAT);
    CHECKF(strstr(ctx.message, "ln_final.b lies at"), "%s", ctx.message);
    m = build(1, 0); /* something behind the end */
    m.size++;
    REFUSED(ATTN_E_FORMAT, "something was added", m);
    put_u64(m.data + 16, m.size);
    seal(&m);
    REFUSED(ATTN_E_FORMAT, "follow the last tensor", m);
}

/* The bytes between sections are zero, whoever forgot to make them so. */
TEST(padding)
{
    attn_ctx ctx = alone();
    image m = build(0, 1);
    size_t n = 0;
    for (size_t at = 0; at < m.size; at++)
        if (is_padding(&m, at)) {
            m.data[at] = 0xFF;
            REFUSED(ATTN_E_FORMAT, "padding", m);
            m.data[at] = 0;
            n++;
        }
    CHECK(n > 100);
}

/* A tensor in the other layout, with checksums and sizes that are right for it. */
TEST(other_layouts)
{
    attn_ctx ctx = alone();
    for (misplaced = 0; misplaced < 4 + 12 * LAYERS; misplaced++) {
        image m = build(1, 0);
        if (get_u32(record_of(&m, (size_t)misplaced) + NDIM) == 1)
            continue; /* a vector has one layout */
        REFUSED(ATTN_E_FORMAT, "has the wrong layout; expected", m);
    }
    misplaced = -1;
}

/* Reading what cannot be mapped, without memory for it. */
TEST(no_memory_for_a_pipe)
{
    int n;
    for (n = 0; n < 30; n++) {
        meter m;
        attn_ctx ctx = metered(&m);
        attn_model *model = NULL;
        FILE *pipe = popen("cat " TEST_BUILD "/tiny-stories.attn 2>/dev/null", "r");
        if (!CHECK(pipe))
            return;
        m.fail_at = n;
        attn_status status =
            attn_model_open(&ctx, &model, test_text("/dev/fd/%d", fileno(pipe)), NULL);
        attn_model_close(model);
        CHECK(m.live == 0 && m.wrong == 0);
        pclose(pipe);
        if (status == ATTN_OK)
            break;
        CHECKF(status == ATTN_E_MEMORY && !model, "call %d: %s", n, ctx.message);
    }
    CHECKF(n > 5 && n < 30, "%d allocations", n);
}

/* Reserved bytes may one day mean something that this header would miss. */
TEST(reserved_bytes)
{
    static const size_t in_header[] = {68, 71, 120, 247}, in_record[] = {63, 76, 79, 120, 127};
    attn_ctx ctx = alone();
    image m = build(0, 1);
    for (size_t i = 0; i < 4; i++) {
        m.data[in_header[i]] = 1;
        seal(&m);
        REFUSED(ATTN_E_FORMAT, "must be zero", m);
        m.data[in_header[i]] = 0;
    }
    for (size_t record = 0; record < 3; record++)
        for (size_t i = 0; i < 5; i++) {
            record_of(&m, record)[in_record[i]] = 1;
            seal(&m);
            REFUSED(ATTN_E_FORMAT, "must be zero", m);
            record_of(&m, record)[in_record[i]] = 0;
        }
    seal(&m);
    CHECK(try_open(&ctx, m.data, m.size, 0) == ATTN_OK);
}

/* What a version adds is read, and nothing beyond it; in those before it the bytes mean nothing. */
TEST(versions)
{
    static const uint32_t most_flags[] = {1, 7, 15};
    static const char *const known[] = {"knows bit 0 only", "knows bits 0 to 2 only",
                                        "knows bits 0 to 3 only"};
    attn_ctx ctx = alone();
    image m = build(0, 0);
    for (uint32_t version = 1; version <= 3; version++)
        for (uint32_t flags = 0; flags <= 16; flags++)
            for (uint32_t act_fn = 0; act_fn <= 4; act_fn++) {
                SCOPED_MODEL model = NULL;
                put_u32(m.data + 8, version);
                put_u32(m.data + 52, flags);
                put_u32(m.data + 68, act_fn);
                seal(&m);
                if (flags > most_flags[version - 1]) {
                    REFUSED(ATTN_E_VERSION, known[version - 1], m);
                } else if (version == 1 && act_fn > 0 && !(flags & 1)) {
                    REFUSED(ATTN_E_FORMAT, "byte 68 is padding", m);
                } else if (act_fn > 3 && version > 1) {
                    REFUSED(ATTN_E_VERSION, "the activation function is 4", m);
                } else if ((flags & 9) == 8) {
                    REFUSED(ATTN_E_FORMAT, "unembed.b_U is missing", m);
                } else if (!(flags & 1) /* the file has an unembedding of its own */ &&
                           OK(&ctx, attn_model_open_memory(&ctx, &model, m.data, m.size, NULL))) {
                    const attn_config *c = attn_model_config(model);
                    CHECK((uint32_t)c->act_fn == act_fn);
                    CHECK(c->unscaled_attn == (int)(flags >> 1 & 1));
                    CHECK(c->scale_attn_by_inverse_layer_idx == (int)(flags >> 2 & 1));
                    CHECK(try_open(&ctx, m.data, m.size, 0) == ATTN_OK);
                }
            }
}

/* Further tokens that end a text: as many as there is room for, all of the vocabulary. */
TEST(more_eos)
{
    enum { N_MORE = 120, MORE = 124, EOS = 60 };
    SCOPED_CTX ctx = alone();
    image m = build(0, 0);
    attn_model *model = NULL;
    const attn_config *c;
    int32_t id;
    put_u32(m.data + 8, 3);
    for (uint32_t n = 0; n <= 31; n++) {
        put_u32(m.data + EOS, 7);
        put_u32(m.data + N_MORE, n);
        if (n > 0)
            put_u32(m.data + MORE + 4 * (n - 1), V - n);
        seal(&m);
        if (!OK(&ctx, attn_model_open_memory(&ctx, &model, m.data, m.size, NULL)))
            continue;
        c = attn_model_config(model);
        CHECK(c->eos == 7 && c->n_more_eos == n && (c->more_eos != NULL) == (n > 0));
        for (id = -2; id < V + 2; id++)
            CHECKF(attn_config_is_eos(c, id) == (id == 7 || (id >= V - (int32_t)n && id < V)),
                   "token %ld of %lu", (long)id, (unsigned long)n);
        attn_model_close(model);
        if (n == 0 || n == 31)
            continue;
        put_u32(m.data + N_MORE, n - 1); /* an id beyond the list */
        seal(&m);
        REFUSED(ATTN_E_FORMAT, "must be zero", m);
    }
    CHECK(attn_config_is_eos(NULL, 7) == 0);
    put_u32(m.data + N_MORE, 32);
    seal(&m);
    REFUSED(ATTN_E_FORMAT,
            "32 further ids end a text, and number 31 is not right; expected at most 31", m);
    put_u32(m.data + N_MORE, 31);
    put_u32(m.data + EOS, 0xFFFFFFFF);
    seal(&m);
    REFUSED(ATTN_E_FORMAT, "none without a first", m);
    put_u32(m.data + EOS, 7);
    put_u32(m.data + MORE + 4 * 2, V);
    seal(&m);
    REFUSED(ATTN_E_FORMAT, "31 further ids end a text, and number 2 is not right", m);
    put_u32(m.data + MORE + 4 * 2, 5);
    put_u32(m.data + 8, 2);
    seal(&m);
    REFUSED(ATTN_E_FORMAT, "must be zero", m);
}

static int force(float *logits, const attn_session *session, void *user)
{
    (void)session;
    logits[*(const int32_t *)user] = 1e9f;
    return 0;
}

/* Each of the tokens that end a text ends one, and no other does. */
TEST(texts_end_at_any_of_them)
{
    static const int32_t first = 1;
    SCOPED_CTX ctx = alone();
    image m = build(0, 0);
    SCOPED_MODEL model = NULL;
    put_u32(m.data + 8, 3);
    put_u32(m.data + 60, 7);
    put_u32(m.data + 120, 2);
    put_u32(m.data + 124, 0);
    put_u32(m.data + 128, V - 1);
    seal(&m);
    if (!OK(&ctx, attn_model_open_memory(&ctx, &model, m.data, m.size, NULL)))
        return;
    for (int32_t id = 0; id < 2 * V; id++) {
        SCOPED_SESSION session = session_on(&ctx, model, 0, 0);
        const int32_t forced = id % V;
        const int ends = forced == 7 || forced == 0 || forced == V - 1;
        attn_generation made = {0};
        attn_generate_desc d = {.max_tokens = 2, .prompt_tokens = &first, .n_prompt_tokens = 1};
        d.ignore_eos = id >= V;
        d.logits_fn = force;
        d.logits_user = (void *)(uintptr_t)&forced;
        OK(&ctx, attn_generate(&ctx, &made, session, NULL, &d));
        CHECKF(made.reason == (ends && id < V ? ATTN_STOP_EOS : ATTN_STOP_COUNT) &&
                   made.n_tokens == (ends && id < V ? 0 : 2),
               "token %ld: %s", (long)forced, attn_stop_reason_name(made.reason));
    }
}

/* ---- b_U ---- */

/* The manual adds a bias at the end, so the logits are those without it and one addition more: one
 * session's rows or several sessions', all tokens or some, and in the logit lens. */
TEST(a_bias_of_logits)
{
    static const int32_t tokens[] = {3, 260, 17, 90};
    SCOPED_CTX ctx = alone();
    attn_model *with = NULL, *without = NULL;
    attn_tensor b_u = {0}, none = {0};
    for (int tied = 0; tied < 2; tied++)
        for (int is_half = 0; is_half < 2; is_half++) {
            const image m = build_as(tied, is_half, 1), plain = build_as(tied, is_half, 0);
            float together[2][V];
            attn_workspace *ws = NULL;
            attn_session *sessions[2] = {NULL, NULL};
            attn_feed_item items[2] = {{0}, {0}};
            size_t wrong = 0;
            if (!OK(&ctx, attn_model_open_memory(&ctx, &with, m.data, m.size, NULL)) ||
                !OK(&ctx, attn_model_open_memory(&ctx, &without, plain.data, plain.size, NULL)))
                return;
            CHECK(attn_model_config(with)->has_b_U && !attn_model_config(without)->has_b_U);
            OK(&ctx, attn_model_tensor(&ctx, &b_u, with, "unembed.b_U"));
            OK(&ctx, attn_model_tensor(&ctx, &none, without, "unembed.b_U"));
            float *got = logits_of(&ctx, with, 0, tokens, 4, 4);
            float *want = logits_of(&ctx, without, 0, tokens, 4, 4);
            OK(&ctx, attn_workspace_new(&ctx, &ws, with, NULL));
            for (size_t i = 0; i < 2; i++) {
                const attn_session_desc desc = {.workspace = ws};
                OK(&ctx, attn_session_new(&ctx, &sessions[i], with, &desc));
                items[i].session = sessions[i];
                items[i].tokens = tokens;
                items[i].n_tokens = 2 + i;
            }
            OK(&ctx, attn_feed_batch(&ctx, items, 2));
            for (size_t i = 0; i < 2; i++)
                memcpy(together[i], attn_session_logits(sessions[i]), sizeof together[i]);
            for (size_t i = 0; i < V; i++) {
                const float b = attn_get1(b_u, i);
                wrong += b != value_at(m.n_tensors - 1, 0, i) || attn_get1(none, i) != 0;
                for (size_t t = 0; t < 4; t++)
                    wrong += got[t * V + i] != want[t * V + i] + b;
                for (size_t t = 0; t < 2; t++)
                    wrong += together[t][i] != want[(t + 1) * V + i] + b;
            }
            CHECKF(wrong == 0, "%zu numbers are wrong", wrong);
            attn_session_free(sessions[0]);
            attn_session_free(sessions[1]);
            attn_workspace_free(ws);
            attn_model_close(with);
            attn_model_close(without);
            attn_tensor_free(&ctx, &b_u);
            attn_tensor_free(&ctx, &none);
        }
}

/* ---- other ways in ---- */

TEST(unaligned_memory)
{
    attn_ctx ctx = alone();
    const image m = build(1, 1);
    unsigned char *const room = (unsigned char *)pool_new(m.size + 192);
    size_t usual;
    for (size_t shift = 0; shift < 66; shift++) {
        memcpy(room + shift, m.data, m.size);
        CHECKF(try_open(&ctx, room + shift, m.size, 0) == ATTN_OK, "shift %llu: %s", LLU(shift),
               ctx.message);
        CHECK(memcmp(room + shift, m.data, m.size) == 0);
        room[shift + m.size - 1] ^= 1;
        CHECK(try_open(&ctx, room + shift, m.size, 0) == ATTN_E_CHECKSUM);
        CHECK(try_open(&ctx, room + shift, 0, 0) == ATTN_E_FORMAT);
    }
    for (size_t shift = 0; shift < 130 && !TEST_SANITIZED;
         shift++) { /* copied only where it must be */
        bound b;
        attn_model *model = NULL;
        memmove(room + shift, m.data, m.size);
        ctx = bounded(&b, ENOUGH);
        OK(&ctx, attn_model_open_memory(&ctx, &model, m.data, m.size, NULL));
        usual = b.used;
        attn_model_close(model);
        OK(&ctx, attn_model_open_memory(&ctx, &model, room + shift, m.size, NULL));
        CHECKF((b.used >= usual + m.size) == ((uintptr_t)(room + shift) % 64 != 0),
               "shift %llu: %llu bytes, usually %llu", LLU(shift), LLU(b.used), LLU(usual));
        attn_model_close(model);
    }
}

/* A pipe cannot be mapped. */
typedef struct verified {
    double done;
    int n_calls, stop;
} verified;

static int verified_so_far(double done, void *user)
{
    verified *const v = (verified *)user;
    CHECK(done > v->done && done <= 1);
    v->done = done;
    v->n_calls++;
    return v->stop;
}

/* The caller hears how far the verification is, and may stop it. */
TEST(progress_of_checksums)
{
    attn_ctx ctx = alone();
    attn_model *model = NULL;
    verified v = {0, 0, 0};
    image m = build(0, 0);
    attn_model_desc desc = {.progress_fn = verified_so_far, .progress_user = &v};
    OK(&ctx, attn_model_open_memory(&ctx, &model, m.data, m.size, &desc));
    CHECK(v.n_calls == 1 && v.done == 1);
    attn_model_close(model);
    v.done = 0;
    v.stop = 1;
    STOPS(&ctx, attn_model_open_memory(&ctx, &model, m.data, m.size, &desc));
    CHECK(model == NULL && v.n_calls == 2);
    desc.skip_checksums = 1;
    OK(&ctx, attn_model_open_memory(&ctx, &model, m.data, m.size, &desc));
    EQUAL(v.n_calls, 2);
    attn_model_close(model);
}

TEST(from_a_pipe)
{
    attn_ctx ctx = alone();
    attn_model *model = NULL;
    FILE *pipe = popen("cat " TEST_BUILD "/tiny-stories.attn", "r");
    if (!CHECK(pipe))
        return;
    if (OK(&ctx, attn_model_open(&ctx, &model, test_text("/dev/fd/%d", fileno(pipe)), NULL)))
        CHECK(attn_model_config(model)->n_vocab == 2048);
    attn_model_close(model);
    pclose(pipe);
}

/* A named pipe may be opened once only: its writer is gone when the first reader leaves. */
TEST(from_a_named_pipe)
{
    attn_ctx ctx = alone();
    attn_model *model = NULL;
    const char *const path = test_tmp("pipe.attn");
    remove(path);
    if (!CHECK(mkfifo(path, 0600) == 0))
        return;
    EQUAL(system(test_text("cat " TEST_BUILD "/tiny-stories.attn >%s &", path)), 0);
    if (OK(&ctx, attn_model_open(&ctx, &model, path, NULL)))
        CHECK(attn_model_config(model)->n_vocab == 2048);
    attn_model_close(model);
    remove(path);
}

/* The message is about the file, and has room for what is wrong with it however long its name. */
TEST(long_names)
{
    attn_ctx ctx = alone();
    attn_model *model;
    char path[600];
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = 0;
    memcpy(path, "tests/", 6);
    FAILS(IO, "cannot be read", attn_model_open(&ctx, &model, path, NULL));
    CHECK(memchr(ctx.message, 0, sizeof ctx.message) != NULL);
}

TEST(failing_allocations)
{
    const image m = build(0, 1);
    for (int way = 0; way < 4; way++) { /* good or damaged, aligned or not */
        unsigned char *data = (unsigned char *)pool_new(m.size + 128);
        attn_status status = ATTN_E_MEMORY;
        long n;
        data += (64 - (uintptr_t)data % 64) % 64 + (way & 1);
        memcpy(data, m.data, m.size);
        data[m.size - 1] ^= (unsigned char)(way >> 1);
        for (n = 0; n < 100 && status == ATTN_E_MEMORY; n++) {
            meter counted;
            attn_ctx ctx = metered(&counted);
            attn_model *model;
            ctx.n_threads = 1;
            counted.fail_at = n;
            status = attn_model_open_memory(&ctx, &model, data, m.size, NULL);
            CHECK((model != NULL) == (status == ATTN_OK));
            attn_model_close(model);
            CHECKF(counted.live == 0 && counted.wrong == 0, "allocation %ld: %ld blocks leaked", n,
                   counted.live);
        }
        CHECKF(status == (way < 2 ? ATTN_OK : ATTN_E_CHECKSUM) && n > 5, "%s after %ld rounds",
               attn_status_name(status), n);
    }
}

/* The tensors may stand in any order. Here: in the opposite one, and in one of many layers, which a
 * search for each of them would not get through. */
TEST(any_order)
{
    static const int32_t tokens[] = {0, 1, 2};
    image m = build(0, 0), turned = build(0, 0);
    attn_ctx ctx = alone();
    float *logits[2];
    turned.size = m.tokenizer + m.tokenizer_size;
    for (size_t i = 0; i < m.n_tensors; i++) {
        unsigned char *to = record_of(&turned, i);
        const unsigned char *from = record_of(&m, m.n_tensors - 1 - i);
        const size_t offset = (turned.size + 63) / 64 * 64, size = (size_t)get_u64(from + SIZE);
        memset(turned.data + turned.size, 0, offset - turned.size);
        memcpy(turned.data + offset, m.data + get_u64(from + OFFSET), size);
        memcpy(to, from, RECORD);
        put_u64(to + OFFSET, offset);
        turned.size = offset + size;
    }
    put_u64(turned.data + 16, turned.size);
    seal(&turned);
    for (int way = 0; way < 2; way++) {
        const image *data = way ? &turned : &m;
        SCOPED_MODEL model = NULL;
        SCOPED_SESSION session = NULL;
        logits[way] = (float *)pool_new(V * sizeof(float));
        if (OK(&ctx, attn_model_open_memory(&ctx, &model, data->data, data->size, NULL)) &&
            OK(&ctx, attn_session_new(&ctx, &session, model, NULL)) &&
            OK(&ctx, attn_feed(&ctx, session, tokens, 3)))
            memcpy(logits[way], attn_session_logits(session), V * sizeof(float));
    }
    CHECK(memcmp(logits[0], logits[1], V * sizeof(float)) == 0);
}

/* A stream that is no model is not read to its end, which it may not have. */
TEST(streams_without_end)
{
    bound b;
    attn_ctx ctx = bounded(&b, 2 << 20); /* twice the first block */
    attn_model *model;
    FAILS(FORMAT, "/dev/zero", attn_model_open(&ctx, &model, "/dev/zero", NULL));
    ctx = bounded(&b, 13 << 20); /* the model has 4.4 MiB, so there are blocks of 4 and of 8 */
    FILE *pipe = popen("cat " TEST_BUILD "/tiny-stories.attn /dev/zero", "r");
    if (!CHECK(pipe))
        return;
    FAILS(FORMAT, "more follow",
          attn_model_open(&ctx, &model, test_text("/dev/fd/%d", fileno(pipe)), NULL));
    pclose(pipe);
    ctx = bounded(&b, 2 << 20); /* a size that the header's checksum knows nothing of */
    pipe = popen("{ head -c 22; printf '\\377'; tail -c +2; cat /dev/zero; } <" TEST_BUILD
                 "/tiny-stories.attn",
                 "r");
    if (!CHECK(pipe))
        return;
    FAILS(CHECKSUM, "the header's checksum",
          attn_model_open(&ctx, &model, test_text("/dev/fd/%d", fileno(pipe)), NULL));
    pclose(pipe);
}

/* ---- writing ---- */

#define WRITTEN TEST_TMP "written.attn"

/* A tensor of the model in the shape that lens_writer_add takes. */
static attn_tensor weight(attn_ctx *ctx, const attn_model *model, const char *name)
{
    const size_t width = attn_model_config(model)->d_model;
    attn_tensor x;
    memset(&x, 0, sizeof x);
    OK(ctx, attn_model_tensor(ctx, &x, model, name));
    return x.ndim == 3 ? attn_reshape(x, attn_shape2(width, width)) : x; /* W_O */
}

/* Adds a tensor in pieces: 16 outputs, 16 tokens, one position, or one number at a time. */
static void add_in_pieces(attn_ctx *ctx, lens_writer *writer, const model_tensor *info,
                          attn_tensor x)
{
    const int dim = info->panels && strcmp(info->name, "embed.W_E") != 0;
    const size_t step = info->panels ? 16 : 1;
    for (size_t at = 0; at < x.shape[dim]; at += step) {
        const size_t left = x.shape[dim] - at;
        OK(ctx, lens_writer_add(ctx, writer, info->name, info->dtype,
                                attn_slice(x, dim, at, left < step ? left : step)));
    }
}

/* Ends a writer, and saves its model if it is in memory. */
static void end_writer(attn_ctx *ctx, lens_writer *writer, int in_memory)
{
    attn_model *made = NULL, *again = NULL;
    if (!in_memory) {
        FAILS_IN(ctx, ATTN_E_ARGUMENT, "has a path", lens_writer_open(ctx, &made, writer));
        OK(ctx, lens_writer_end(ctx, writer));
        FAILS_IN(ctx, ATTN_E_ARGUMENT, "finished already", lens_writer_end(ctx, writer));
        lens_writer_free(writer);
        return;
    }
    FAILS_IN(ctx, ATTN_E_ARGUMENT, "has no path", lens_writer_end(ctx, writer));
    OK(ctx, lens_writer_open(ctx, &made, writer));
    FAILS_IN(ctx, ATTN_E_ARGUMENT, "finished already", lens_writer_open(ctx, &again, writer));
    CHECK(again == NULL);
    lens_writer_free(writer);
    OK(ctx, lens_model_save(ctx, WRITTEN, made));
    attn_model_close(made);
}

/* A model whose tensors are written one by one is the same file, whole tensors or pieces, to a file or in
 * memory. */
static void write_again(const char *path)
{
    SCOPED_CTX ctx = alone();
    SCOPED_MODEL model = NULL;
    lens_writer *writer;
    model_tensor info;
    size_t size, text_size;
    const char *key;
    SCOPED_BYTES file = test_read(path, &size);
    if (!CHECK(file != NULL) || !OK(&ctx, attn_model_open(&ctx, &model, path, NULL)))
        return;
    const void *text = model_tokenizer_section(&text_size, model);
    CHECK(text_size == get_u64(file + 104) && !text == !text_size &&
          (!text || memcmp(text, file + get_u64(file + 96), text_size) == 0) &&
          model_tokenizer_section(NULL, model) == text);
    for (int way = 0; way < 4; way++) {
        const int in_pieces = way % 2, in_memory = way / 2;
        if (!OK(&ctx, lens_writer_new(&ctx, &writer, in_memory ? NULL : WRITTEN,
                                      attn_model_config(model), text, text_size)))
            break;
        for (key = NULL; (key = model_next_key(model, key)) != NULL;)
            OK(&ctx, lens_writer_meta(&ctx, writer, key, attn_model_meta(model, key)));
        for (size_t i = 0; i < model_n_tensors(model); i++) {
            info = model_tensor_at(model, i);
            attn_tensor x = weight(&ctx, model, info.name);
            if (in_pieces)
                add_in_pieces(&ctx, writer, &info, x);
            else
                OK(&ctx, lens_writer_add(&ctx, writer, info.name, info.dtype, x));
        }
        end_writer(&ctx, writer, in_memory);
        CHECK(test_same_file(WRITTEN, path));
        remove(WRITTEN);
    }
}

TEST(written_again)
{
    const char *const path = test_tmp("format-v3.attn");
    image m = build_as(0, 1, 1);
    write_again(PLAIN);
    test_write(path, m.data, m.size);
    write_again(path);
    put_u32(m.data + 60, 4); /* and further tokens that end a text */
    put_u32(m.data + 120, 2);
    put_u32(m.data + 124, 9);
    put_u32(m.data + 128, 8);
    seal(&m);
    test_write(path, m.data, m.size);
    write_again(path);
    m = build(1, 0); /* those alone */
    put_u32(m.data + 8, 3);
    put_u32(m.data + 60, 4);
    put_u32(m.data + 120, 1);
    put_u32(m.data + 124, 9);
    seal(&m);
    test_write(path, m.data, m.size);
    write_again(path);
}

/* What does not belong is refused, and an unfinished file leaves nothing behind. */
TEST(not_written)
{
    SCOPED_CTX ctx = alone();
    static const int32_t many[32] = {0};
    lens_writer *writer = NULL;
    attn_model *made = NULL;
    attn_tensor table, narrow, row;
    memset(&table, 0, sizeof table);
    memset(&narrow, 0, sizeof narrow);
    memset(&row, 0, sizeof row);
    OK(&ctx, attn_zeros(&ctx, &table, ATTN_F32, attn_shape2(40, 8)));
    OK(&ctx, attn_zeros(&ctx, &narrow, ATTN_F32, attn_shape2(40, 7)));
    OK(&ctx, attn_zeros(&ctx, &row, ATTN_F32, attn_shape1(8)));
    attn_config config = {.n_vocab = 40,
                          .n_ctx = 4,
                          .d_model = 8,
                          .n_head = 2,
                          .n_layer = 1,
                          .d_mlp = 16,
                          .ln_eps = 1e-5f,
                          .tied = 1};
    config.bos = config.eos = -1;
    FAILS(ARGUMENT, "no configuration", lens_writer_new(&ctx, &writer, WRITTEN, NULL, NULL, 0));
    FAILS(ARGUMENT, "no tokenizer", lens_writer_new(&ctx, &writer, WRITTEN, &config, NULL, 4));
    FAILS(FORMAT, "written.attn",
          lens_writer_new(&ctx, &writer, WRITTEN, &config, "no tokenizer", 12));
    config.n_head = 3;
    FAILS(FORMAT, "does not divide", lens_writer_new(&ctx, &writer, WRITTEN, &config, NULL, 0));
    config.n_head = 2;
    config.act_fn = (attn_mlp_act)4;
    FAILS(VERSION, "the activation function is 4",
          lens_writer_new(&ctx, &writer, WRITTEN, &config, NULL, 0));
    config.act_fn = ATTN_ACT_GELU_TANH;
    config.eos = 1;
    config.n_more_eos = 1;
    FAILS(ARGUMENT, "no more_eos", lens_writer_new(&ctx, &writer, WRITTEN, &config, NULL, 0));
    config.more_eos = many;
    config.n_more_eos = 32;
    FAILS(FORMAT, "32 further ids", lens_writer_new(&ctx, &writer, WRITTEN, &config, NULL, 0));
    config.n_more_eos = 0;
    config.eos = -1;
    FAILS(ARGUMENT, "no writer", lens_writer_end(&ctx, NULL));
    FAILS(ARGUMENT, "no writer", lens_writer_open(&ctx, &made, NULL));
    FAILS(ARGUMENT, "no writer", lens_writer_add(&ctx, NULL, "ln_final.w", ATTN_F32, row));
    if (!OK(&ctx, lens_writer_new(&ctx, &writer, WRITTEN, &config, NULL, 0)))
        return;
    FAILS(ARGUMENT, "no name", lens_writer_add(&ctx, writer, NULL, ATTN_F32, row));
    FAILS(NAME, "\"unembed.W_U\"",
          lens_writer_add(&ctx, writer, "unembed.W_U", ATTN_F32, attn_transpose(table, 0, 1)));
    FAILS(NAME, "\"blocks.1.ln1.w\"",
          lens_writer_add(&ctx, writer, "blocks.1.ln1.w", ATTN_F32, row));
    FAILS(SHAPE, "[7, 40]; expected", lens_writer_add(&ctx, writer, "embed.W_E", ATTN_F32, narrow));
    FAILS(SHAPE, "multiple of 16",
          lens_writer_add(&ctx, writer, "embed.W_E", ATTN_F32, attn_slice(table, 0, 0, 15)));
    FAILS(ARGUMENT, "cannot have the type",
          lens_writer_add(&ctx, writer, "ln_final.w", ATTN_F16, row));
    FAILS(ARGUMENT, "cannot have the type",
          lens_writer_add(&ctx, writer, "embed.W_E", ATTN_I32, table));
    OK(&ctx, lens_writer_add(&ctx, writer, "embed.W_E", ATTN_Q8, attn_slice(table, 0, 0, 32)));
    FAILS(ARGUMENT, "embed.W_E has 32 of 40",
          lens_writer_add(&ctx, writer, "ln_final.w", ATTN_F32, row));
    FAILS(ARGUMENT, "embed.W_E has 32 of 40", lens_writer_end(&ctx, writer));
    FAILS(SHAPE, "8 times 8, or",
          lens_writer_add(&ctx, writer, "embed.W_E", ATTN_Q8, attn_slice(table, 0, 0, 9)));
    OK(&ctx, lens_writer_add(&ctx, writer, "embed.W_E", ATTN_Q8, attn_slice(table, 0, 32, 8)));
    FAILS(NAME, "in the file already", lens_writer_add(&ctx, writer, "embed.W_E", ATTN_Q8, table));
    FAILS(ARGUMENT, "1 of 16 tensors were added; pos_embed.W_pos is missing",
          lens_writer_end(&ctx, writer));
    CHECK(system("test -e " WRITTEN ".00.part") == 0);
    lens_writer_free(writer);
    CHECK(system("ls " WRITTEN "* >/dev/null 2>&1") != 0);
    if (OK(&ctx, lens_writer_new(&ctx, &writer, NULL, &config, NULL, 0))) {
        OK(&ctx, lens_writer_add(&ctx, writer, "embed.W_E", ATTN_Q8, table));
        FAILS(ARGUMENT, "1 of 16 tensors were added; pos_embed.W_pos is missing",
              lens_writer_open(&ctx, &made, writer));
        CHECK(made == NULL);
        lens_writer_free(writer);
    }
    config.d_model = config.d_mlp = 1u << 24;
    config.n_layer = 1u << 16;
    FAILS(MEMORY, "no memory for a model in memory",
          lens_writer_new(&ctx, &writer, NULL, &config, NULL, 0));
    CHECK(writer == NULL);
}

/* ---- reasons of the system ---- */

TEST(reasons)
{
    attn_ctx ctx = alone();
    attn_model *model = NULL;
    char path[600];
    FAILS(IO, "nowhere/x.attn: cannot be read: No such file or directory",
          attn_model_open(&ctx, &model, "nowhere/x.attn", NULL));
    FAILS(IO, "tests: it is a directory; attn-convert makes",
          attn_model_open(&ctx, &model, "tests", NULL));
    FAILS(IO, "Not a directory", attn_model_open(&ctx, &model, "LICENSE/x.attn", NULL));
    memset(path, 'n', sizeof path);
    path[sizeof path - 1] = 0;
    FAILS(IO, "name too long", attn_model_open(&ctx, &model, path, NULL));
    memset(path, '/', 300); /* a long path, a short name */
    snprintf(path + 300, sizeof path - 300, "nowhere/\xc3\xa9.attn");
    FAILS(IO, "nowhere/\xc3\xa9.attn: cannot be read: No such file or directory",
          attn_model_open(&ctx, &model, path, NULL));
    test_write(test_tmp("format-secret.attn"), "x", 1);
    CHECK(chmod(test_tmp("format-secret.attn"), 0) == 0);
    if (access(test_tmp("format-secret.attn"), R_OK) != 0)
        FAILS(IO, "cannot be read: Permission denied",
              attn_model_open(&ctx, &model, test_tmp("format-secret.attn"), NULL));
    else
        test_skip("this user may read everything");
    CHECK(remove(test_tmp("format-secret.attn")) == 0);
}

/* A header is copied alone, so it carries the licence. */
TEST(licence)
{
    size_t size, licence_size;
    char *const header = (char *)test_read("attn.h", &size), *at = header;
    char *const text = (char *)test_read("LICENSE", &licence_size), *line = text, *end;
    if (!CHECK(header && text))
        return;
    at = strstr(header, "\n * MIT License\n");
    for (; CHECK(at != NULL) && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        const char *const expected =
            test_text("\n *%s%.*s\n", end == line ? "" : " ", (int)(end - line), line);
        if (!CHECKF(strncmp(at, expected, strlen(expected)) == 0, "\"%s\" is missing", expected))
            break;
        at += strlen(expected) - 1;
    }
    CHECK(at && strcmp(at, "\n */\n") == 0);
    free(header);
    free(text);
}
