/* What a file says of its model: read, written, and in files that lie. */
#include "tests/support/models.h"
#include "tools/common/files.h"
#include "tools/write/writer.h"

#define NAMED   TEST_TMP "named.attn"
#define WRITTEN TEST_TMP "strings.attn"

static int set_up(void)
{
    return CHECK(system(TEST_BUILD "/attn-convert tests/golden/plain " NAMED
                                   " --name 'A pl\xC3\xA4in one' --source here --license mit"
                                   " >/dev/null 2>&1") == 0);
}

SUITE_WITH(set_up, NULL);

/* A file in memory, and where its strings are. */
typedef struct image {
    unsigned char *data; /* at a multiple of 64 */
    size_t size, begin, end;
} image;

static size_t next_section(size_t at)
{
    return (at + 63) / 64 * 64;
}

static void *aligned(size_t size)
{
    unsigned char *const block = (unsigned char *)pool_new(size + 64);
    return block + (64 - (uintptr_t)block % 64) % 64;
}

static image load(const char *path)
{
    image m = {NULL, 0, 0, 0};
    unsigned char *const file = test_read(path, &m.size);
    if (!CHECK(file != NULL))
        return m;
    m.data = (unsigned char *)memcpy(aligned(m.size), file, m.size);
    free(file);
    m.begin = (size_t)(get_u64(m.data + 96) + get_u64(m.data + 104));
    m.begin = next_section(m.begin > 0 ? m.begin : (size_t)(256 + get_u64(m.data + 80)));
    m.end = m.begin + (size_t)get_u64(m.data + m.begin + 8);
    return m;
}

/* Makes the checksums of header, table and strings right again. */
static void seal(image *m)
{
    if (m->end >= m->begin + 16 && m->end <= m->size)
        put_u64(m->data + m->begin,
                model_checksum(0, m->data + m->begin + 8, m->end - m->begin - 8));
    put_u64(m->data + 16, m->size);
    put_u64(m->data + 88, model_checksum(0, m->data + 256, (size_t)get_u64(m->data + 80)));
    put_u64(m->data + 248, model_checksum(0, m->data, 248));
}

/* The same file with other strings; what follows them moves. */
static image with_strings(const image *m, const void *text, size_t size)
{
    const size_t from = next_section(m->end), end = m->begin + 16 + size, to = next_section(end);
    const size_t n_tensors = get_u32(m->data + 64);
    image made = *m;
    made.end = end;
    made.size = m->size - from + to;
    made.data = (unsigned char *)aligned(made.size);
    memcpy(made.data, m->data, m->begin);
    memset(made.data + m->begin, 0, to - m->begin);
    put_u64(made.data + m->begin + 8, 16 + size);
    memcpy(made.data + m->begin + 16, text, size);
    memcpy(made.data + to, m->data + from, m->size - from);
    for (size_t i = 0; i < n_tensors; i++) {
        unsigned char *const offset = made.data + 256 + 128 * i + 96;
        put_u64(offset, get_u64(offset) - from + to);
    }
    seal(&made);
    return made;
}

static attn_status try_open(attn_ctx *ctx, const image *m, int unchecked)
{
    attn_model *model = NULL;
    attn_model_desc desc = {.skip_checksums = unchecked};
    const attn_status status = attn_model_open_memory(ctx, &model, m->data, m->size, &desc);
    const char *key = NULL, *value;
    CHECK((model != NULL) == (status == ATTN_OK));
    while (model && (key = model_next_key(model, key)) != NULL)
        CHECK((value = attn_model_meta(model, key)) != NULL && *value && *key);
    attn_model_close(model);
    return status;
}

TEST(told)
{
    static const char *const want[][2] = {{"checkpoint_sha256", NULL},
                                          {"converter", NULL},
                                          {"license", "mit"},
                                          {"name", "A pl\xC3\xA4in one"},
                                          {"source", "here"}};
    attn_ctx ctx = alone();
    SCOPED_MODEL model = NULL;
    const char *key = NULL;
    if (!OK(&ctx, attn_model_open(&ctx, &model, NAMED, NULL)))
        return;
    for (size_t i = 0; i < 5; i++) {
        key = model_next_key(model, key);
        if (!CHECK(key && strcmp(key, want[i][0]) == 0))
            break;
        CHECK(!want[i][1] || strcmp(attn_model_meta(model, key), want[i][1]) == 0);
    }
    CHECK(model_next_key(model, key) == NULL);
    CHECK(strncmp(attn_model_meta(model, "converter"), "attn-convert ", 13) == 0);
    size_t n = strspn(attn_model_meta(model, "checkpoint_sha256"), "0123456789abcdef");
    CHECK(n == 64 && strlen(attn_model_meta(model, "checkpoint_sha256")) == 64);
    CHECK(!attn_model_meta(model, "mit") && !attn_model_meta(model, "nam") &&
          !attn_model_meta(model, "names") && !attn_model_meta(model, "") &&
          !attn_model_meta(model, NULL) && !attn_model_meta(NULL, "name"));
    CHECK(model_next_key(NULL, NULL) == NULL);
}

#define TEXT(text) text, sizeof(text) - 1

/* Strings that are refused, each with its sentence. */
TEST(hostile_strings)
{
    static const struct {
        const char *text;
        size_t size;
        const char *says;
    } all[] = {
        {TEXT(""), "16 bytes; expected 20 to 65536"},
        {TEXT("a\0b"), "19 bytes; expected 20 to 65536"},
        {TEXT("long-key"), "string 0 about the model has no end"},
        {TEXT("key\0"), "string 1 about the model has no end"},
        {TEXT("key\0value"), "string 1 about the model has no end"},
        {TEXT("a\0b\0key\0"), "string 3 about the model has no end"},
        {TEXT("a\0b\0key\0value"), "string 3 about the model has no end"},
        {TEXT("\0value\0"), "string 0 about the model is empty"},
        {TEXT("key\0\0"), "string 1 about the model is empty"},
        {TEXT("a\0b\0\0\0"), "string 2 about the model is empty"},
        {TEXT("a\0b\0\0"), "string 2 about the model is empty"},
        {TEXT("b\0x\0a\0y\0"), "string 2 about the model is a key that does not follow"},
        {TEXT("a\0x\0a\0y\0"), "string 2 about the model is a key that does not follow"},
        {TEXT("a\0x\0b\0y\0a\0z\0"), "string 4 about the model is a key that does not follow"},
        {TEXT("ab\0x\0a\0y\0"), "string 2 about the model is a key that does not follow"},
        {TEXT("\xC3\xA4\0x\0z\0y\0"), "string 2 about the model is a key that does not follow"},
        {TEXT("key\0x\xFF\0"), "string 1 about the model is not UTF-8"},
        {TEXT("k\x80y\0x\0"), "string 0 about the model is not UTF-8"},
        {TEXT("key\0\xC0\x80\0"), "string 1 about the model is not UTF-8"},
        {TEXT("key\0\xED\xA0\x80\0"), "string 1 about the model is not UTF-8"},
        {TEXT("key\0\xF4\x90\x80\x80\0"), "string 1 about the model is not UTF-8"},
        {TEXT("key\0\xE2\x82\0"), "string 1 about the model is not UTF-8"},
        {TEXT("key\0x\ny\0"), "string 1 about the model has a control character"},
        {TEXT("key\0x\x1B[2J\0"), "string 1 about the model has a control character"},
        {TEXT("key\0x\x7F\0"), "string 1 about the model has a control character"},
        {TEXT("k\ty\0x\0"), "string 0 about the model has a control character"},
        {TEXT("key\0x\xC2\x9B\0"), "string 1 about the model has a control character"},
    };
    static const struct {
        const char *text;
        size_t size;
    } fine[] = {{TEXT("a\0b\0")},
                {TEXT("a\0x\0ab\0y\0\xC3\xA4\0\xF0\x9F\x90\x88\0")},
                {TEXT("key\0\xC2\xA0 ~\0")},
                {TEXT("Key\0\xEF\xBF\xBD\0key\0\xEF\xBF\xBF\0")}};
    attn_ctx ctx = alone();
    const image m = load(NAMED);
    for (size_t i = 0; m.data && i < sizeof all / sizeof all[0]; i++) {
        const image made = with_strings(&m, all[i].text, all[i].size);
        CHECKF(try_open(&ctx, &made, 0) == ATTN_E_FORMAT && strstr(ctx.message, all[i].says),
               "%d: \"%s\", expected \"%s\"", (int)i, ctx.message, all[i].says);
    }
    for (size_t i = 0; m.data && i < sizeof fine / sizeof fine[0]; i++) {
        const image made = with_strings(&m, fine[i].text, fine[i].size);
        CHECKF(try_open(&ctx, &made, 0) == ATTN_OK, "%d: %s", (int)i, ctx.message);
    }
}

/* As many bytes as there may be, and one more; many keys. */
TEST(large_strings)
{
    attn_ctx ctx = alone();
    const image m = load(NAMED);
    char *const text = (char *)pool_new(70000);
    if (!m.data)
        return;
    memset(text, 'x', 70000);
    text[1] = text[65519] = 0;
    image made = with_strings(&m, text, 65520);
    CHECKF(try_open(&ctx, &made, 0) == ATTN_OK, "%s", ctx.message);
    text[65519] = 'x';
    text[65520] = 0;
    made = with_strings(&m, text, 65521);
    CHECK(try_open(&ctx, &made, 0) == ATTN_E_FORMAT && strstr(ctx.message, "65537 bytes"));
    for (size_t i = 0; i < 8000; i++) {
        snprintf(text + 8 * i, 6, "k%04d", (int)i);
        text[8 * i + 6] = 'v';
        text[8 * i + 7] = 0;
    }
    made = with_strings(&m, text, 64000);
    CHECKF(try_open(&ctx, &made, 0) == ATTN_OK, "%s", ctx.message);
}

/* Sizes that lie under a good checksum, and versions. */
TEST(lying_sizes)
{
    static const uint64_t sizes[] = {0,
                                     1,
                                     15,
                                     16,
                                     17,
                                     19,
                                     20,
                                     65536,
                                     65537,
                                     0xFFFFFFFF,
                                     0x100000000,
                                     (uint64_t)1 << 63,
                                     UINT64_MAX - 15,
                                     UINT64_MAX};
    attn_ctx ctx = alone();
    image m = load(NAMED);
    const size_t end = m.end;
    for (size_t i = 0; m.data && i < sizeof sizes / sizeof sizes[0]; i++) {
        put_u64(m.data + m.begin + 8, sizes[i]);
        m.end = sizes[i] < m.size - m.begin ? m.begin + (size_t)sizes[i] : 0;
        seal(&m);
        CHECKF(try_open(&ctx, &m, 1) == ATTN_E_FORMAT, "size %llx: %s", LLU(sizes[i]), ctx.message);
    }
    for (long delta = -70; m.data && delta <= 70; delta++) {
        m.end = end + (size_t)delta;
        put_u64(m.data + m.begin + 8, m.end - m.begin);
        seal(&m);
        CHECKF(try_open(&ctx, &m, 1) == (delta == 0 ? ATTN_OK : ATTN_E_FORMAT), "%ld more: %s",
               delta, ctx.message);
    }
    m = load(NAMED);
    for (size_t i = 1; m.data && i <= 3; i++) { /* a version without strings */
        put_u32(m.data + 8, (uint32_t)i);
        seal(&m);
        CHECKF(try_open(&ctx, &m, 1) == ATTN_E_FORMAT && strstr(ctx.message, "embed.W_E lies at"),
               "version %d: %s", (int)i, ctx.message);
    }
}

/* Only version 5 can say that texts get a blank, and have a section without a string. */
TEST(version_5)
{
    attn_ctx ctx = alone();
    CHECK(system(TEST_BUILD "/attn-convert -q tests/fixtures/convert/bf16 " WRITTEN) == 0);
    image m = load(WRITTEN), none = with_strings(&m, "", 0);
    CHECK(try_open(&ctx, &none, 0) == ATTN_E_FORMAT && strstr(ctx.message, "expected 20 to"));
    put_u32(none.data + 8, 5);
    seal(&none);
    CHECKF(try_open(&ctx, &none, 0) == ATTN_OK, "%s", ctx.message);
    unsigned char *const section = m.data + get_u64(m.data + 96);
    section[10] |= 8;
    put_u64(m.data + 112, model_checksum(0, section, (size_t)get_u64(m.data + 104)));
    for (uint32_t version = 4; version <= 6; version++) {
        put_u32(m.data + 8, version);
        seal(&m);
        CHECKF(try_open(&ctx, &m, 0) == (version == 4   ? ATTN_E_FORMAT
                                         : version == 5 ? ATTN_OK
                                                        : ATTN_E_VERSION),
               "version %d: %s", (int)version, ctx.message);
    }
    pool_clear();
}

/* A head stands behind the other tensors, in version 5 alone; each of its fields counts. */
TEST(heads)
{
    static const struct {
        size_t at,
            head; /* a number of the header, or of the entry of the weight (2) or the bias (1) */
        uint32_t number;
        const char *message;
    } bad[] = {{8, 0, 4, "holds 30"},          {5, 2, 0x7a7a7a7a, "holds 30"},
               {5, 1, 0x67696577, "holds 30"}, {68, 2, 1, "lies at"},
               {72, 2, 1, "impossible"},       {88, 2, 5, "lies at"},
               {72, 1, 2, "asks for [1, 1]"}};
    attn_ctx ctx = alone();
    CHECK(system(TEST_BUILD "/attn-convert -q tests/fixtures/heads/reward " WRITTEN) == 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        image m = load(WRITTEN);
        CHECK(try_open(&ctx, &m, 0) == ATTN_OK);
        unsigned char *const from = m.data + (bad[i].head ? m.begin - 128 * bad[i].head : 0);
        put_u32(from + bad[i].at, bad[i].number);
        seal(&m);
        CHECKF(try_open(&ctx, &m, 1) != ATTN_OK && strstr(ctx.message, bad[i].message), "%d: %s",
               (int)i, ctx.message);
    }
    pool_clear();
}

/* Cut anywhere near the strings, with a size to match; each bit of them flipped. */
TEST(cut_and_flipped_strings)
{
    attn_ctx ctx = alone();
    image m = load(NAMED);
    const size_t whole = m.size;
    attn_status status;
    for (size_t at = m.begin - 65; m.data && at < next_section(m.end) + 65; at++) {
        image cut = m;
        cut.size = at;
        cut.data =
            (unsigned char *)memcpy(aligned(at), m.data, at); /* ends where its memory does */
        put_u64(cut.data + 16, at);
        put_u64(cut.data + 248, model_checksum(0, cut.data, 248));
        status = try_open(&ctx, &cut, 1);
        CHECKF(status == ATTN_E_FORMAT, "cut at %llu: %s", LLU(at), ctx.message);
    }
    pool_clear();
    m = load(NAMED);
    for (size_t at = m.begin; m.data && at < next_section(m.end); at++)
        for (size_t bit = 0; bit < 8; bit++) {
            m.data[at] ^= (unsigned char)(1u << bit);
            status = try_open(&ctx, &m, 1);
            CHECKF(status == (at / 8 == m.begin / 8 + 1 || at >= m.end ? ATTN_E_FORMAT
                                                                       : ATTN_E_CHECKSUM) ||
                       status == ATTN_E_CHECKSUM,
                   "byte %llu, bit %llu: %s (%s)", LLU(at), LLU(bit), attn_status_name(status),
                   ctx.message);
            m.data[at] ^= (unsigned char)(1u << bit);
        }
    CHECK(m.size == whole && try_open(&ctx, &m, 0) == ATTN_OK);
}

/* ---- writing ---- */

/* Writes the model again, with these strings and as many tokens that end a text as there may be. */
static void write_named(attn_ctx *ctx, const attn_model *model, const char *path, attn_model **made)
{
    attn_config config = *attn_model_config(model);
    attn_token more[31];
    lens_writer *writer = NULL;
    for (size_t i = 0; i < 31; i++)
        more[i] = (attn_token)i;
    config.eos = 0;
    config.more_eos = more;
    config.n_more_eos = 31;
    if (!OK(ctx, lens_writer_new(ctx, &writer, path, &config, NULL, 0)))
        return;
    OK(ctx, lens_writer_meta(ctx, writer, "name", "one"));
    OK(ctx, lens_writer_meta(ctx, writer, "z", "last"));
    OK(ctx, lens_writer_meta(ctx, writer, "a", "first"));
    OK(ctx, lens_writer_meta(ctx, writer, "name", "an\xC3\xB6ther one"));
    for (size_t i = 0; i < model_n_tensors(model); i++) {
        const model_tensor t = model_tensor_at(model, i);
        const size_t width = config.d_model;
        attn_tensor x = {0};
        OK(ctx, attn_model_tensor(ctx, &x, model, t.name));
        OK(ctx, lens_writer_add(ctx, writer, t.name, t.dtype,
                                x.ndim == 3 ? attn_reshape(x, attn_shape2(width, width)) : x));
        if (i == 0)
            FAILS_IN(ctx, ATTN_E_ARGUMENT, "before the first",
                     lens_writer_meta(ctx, writer, "late", "one"));
    }
    OK(ctx, path ? lens_writer_end(ctx, writer) : lens_writer_open(ctx, made, writer));
    lens_writer_free(writer);
}

static void check_named(const attn_model *model)
{
    const char *const a = model_next_key(model, NULL), *const name = model_next_key(model, a);
    const char *const z = model_next_key(model, name);
    CHECK(a && name && z && !strcmp(a, "a") && !strcmp(name, "name") && !strcmp(z, "z") &&
          !model_next_key(model, z));
    CHECK(strcmp(attn_model_meta(model, "a"), "first") == 0 &&
          strcmp(attn_model_meta(model, "name"), "an\xC3\xB6ther one") == 0 &&
          strcmp(attn_model_meta(model, "z"), "last") == 0);
    CHECK(attn_model_config(model)->n_more_eos == 31 &&
          attn_model_config(model)->more_eos[30] == 30);
}

TEST(written_strings)
{
    SCOPED_CTX ctx = alone();
    attn_model *model = NULL, *made = NULL, *again = NULL;
    if (!OK(&ctx, attn_model_open(&ctx, &model, NAMED, NULL)))
        return;
    write_named(&ctx, model, NULL, &made);
    write_named(&ctx, model, WRITTEN, NULL);
    if (CHECK(made) && OK(&ctx, attn_model_open(&ctx, &again, WRITTEN, NULL))) {
        check_named(made);
        check_named(again);
        OK(&ctx, lens_model_save(&ctx, TEST_TMP "strings-saved.attn", made));
        CHECK(test_same_file(TEST_TMP "strings-saved.attn", WRITTEN));
    }
    attn_model_close(again);
    attn_model_close(made);
    attn_model_close(model);
}

TEST(strings_that_are_not_written)
{
    static const char *const wrong[] = {
        "",         "\xFF",     "a\n",       "\x7F",         "\xC2\x80",        "a\xC2\x9F z",
        "\xE2\x82", "\xC0\x80", "\xE2\x82z", "\xED\xA0\x80", "\xF4\x90\x80\x80"};
    static const char *const right[] = {"a", "\xC2\xA0", "\xEF\xBF\xBD", "\xF0\x9F\x90\x88 z", " "};
    attn_ctx ctx = alone();
    attn_config config = {.n_vocab = 8,
                          .n_ctx = 4,
                          .d_model = 4,
                          .n_head = 1,
                          .n_layer = 1,
                          .d_mlp = 4,
                          .tied = 1,
                          .bos = -1,
                          .eos = -1};
    char *const text = (char *)pool_new(70000);
    lens_writer *writer = NULL;
    if (!OK(&ctx, lens_writer_new(&ctx, &writer, WRITTEN, &config, NULL, 0)))
        return;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        FAILS(ARGUMENT, "is empty, is not UTF-8 or has a control",
              lens_writer_meta(&ctx, writer, wrong[i], "a"));
        FAILS(ARGUMENT, "is empty, is not UTF-8 or has a control",
              lens_writer_meta(&ctx, writer, "a", wrong[i]));
    }
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++)
        OK(&ctx, lens_writer_meta(&ctx, writer, "a", right[i]));
    memset(text, 'x', 70000);
    text[65536 - 16 - 3] = 0; /* "a", a zero, this and its zero */
    OK(&ctx, lens_writer_meta(&ctx, writer, "a", text));
    FAILS(ARGUMENT, "with b there are more than 65536 bytes",
          lens_writer_meta(&ctx, writer, "b", "c"));
    text[65536 - 16 - 3] = 'x';
    text[65536 - 16 - 2] = 0;
    FAILS(ARGUMENT, "with a there are more than 65536 bytes",
          lens_writer_meta(&ctx, writer, "a", text));
    FAILS(ARGUMENT, "no key", lens_writer_meta(&ctx, writer, NULL, "a"));
    FAILS(ARGUMENT, "no value", lens_writer_meta(&ctx, writer, "a", NULL));
    FAILS(ARGUMENT, "no writer", lens_writer_meta(&ctx, NULL, "a", "b"));
    lens_writer_free(writer);
}
