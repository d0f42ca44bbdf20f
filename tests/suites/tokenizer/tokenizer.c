/* The tokenizer against GPT-2's own vectors, against a plain slow program in Python
 * (make_tokenizer_vectors.py) and against Python's UTF-8 decoder; then everything that a hostile
 * file, text or allocator can do. */
#include "tests/support/test.h"
#include "tools/common/vocab_files.h"
#include <stdlib.h>
#include <string.h>

SUITE();

/* --- vocabularies made here --- */

/* A vocabulary to be written as a tokenizer section. Starts with the 256 bytes as ids 0 to 255. */
typedef struct sketch {
    unsigned char *bytes; /* of all tokens */
    uint32_t *ends, (*merges)[3], *special;
    size_t n_tokens, n_merges, n_special;
    uint32_t flags;
} sketch;

enum { MOST_TOKENS = 66000, MOST_BYTES = 1 << 18 };

static void *get(size_t size)
{
    void *block = calloc(1, size ? size : 1);
    if (!block) {
        printf("no memory for a test\n");
        exit(2);
    }
    return block;
}

static size_t sketch_size(const sketch *s)
{
    return s->n_tokens ? s->ends[s->n_tokens - 1] : 0;
}

static uint32_t sketch_token(sketch *s, const void *bytes, size_t size)
{
    const size_t start = sketch_size(s);
    memcpy(s->bytes + start, bytes, size);
    s->ends[s->n_tokens] = (uint32_t)(start + size);
    return (uint32_t)s->n_tokens++;
}

/* Adds a merge, and its result unless there already is a token with that id. */
static void sketch_merge(sketch *s, uint32_t left, uint32_t right, uint32_t result)
{
    const uint32_t parts[2] = {left, right};
    size_t end = sketch_size(s);
    if (result == s->n_tokens) {
        for (size_t i = 0; i < 2; i++) {
            const size_t start = parts[i] ? s->ends[parts[i] - 1] : 0;
            memcpy(s->bytes + end, s->bytes + start, s->ends[parts[i]] - start);
            end += s->ends[parts[i]] - start;
        }
        s->ends[s->n_tokens++] = (uint32_t)end;
    }
    s->merges[s->n_merges][0] = left;
    s->merges[s->n_merges][1] = right;
    s->merges[s->n_merges++][2] = result;
}

static void sketch_special(sketch *s, const char *text)
{
    s->special[s->n_special++] = sketch_token(s, text, strlen(text));
}

static sketch sketch_new(void)
{
    sketch s = {.bytes = (unsigned char *)get(MOST_BYTES)};
    s.ends = (uint32_t *)get(MOST_TOKENS * sizeof *s.ends);
    s.merges = (uint32_t(*)[3])get(MOST_TOKENS * sizeof *s.merges);
    s.special = (uint32_t *)get(MOST_TOKENS * sizeof *s.special);
    for (int byte = 0; byte < 256; byte++) {
        const unsigned char b = (unsigned char)byte;
        sketch_token(&s, &b, 1);
    }
    return s;
}

static void sketch_free(sketch *s)
{
    free(s->bytes);
    free(s->ends);
    free(s->merges);
    free(s->special);
}

/* The section, from malloc. It begins at an odd address: nothing says that it has to be aligned. */
static unsigned char *sketch_section(const sketch *s, size_t *size, unsigned char **block)
{
    unsigned char *p;
    *size = 16 + 4 * s->n_tokens + 12 * s->n_merges + 4 * s->n_special + sketch_size(s);
    *block = (unsigned char *)get(*size + 1);
    unsigned char *section = p = *block + 1;
    put_u32(p, (uint32_t)s->n_tokens);
    put_u32(p + 4, (uint32_t)s->n_merges);
    put_u32(p + 8, (uint32_t)s->n_special | s->flags << 16);
    put_u32(p + 12, (uint32_t)sketch_size(s));
    p += 16;
    for (size_t i = 0; i < s->n_tokens; i++, p += 4)
        put_u32(p, s->ends[i]);
    for (size_t i = 0; i < 3 * s->n_merges; i++, p += 4)
        put_u32(p, s->merges[i / 3][i % 3]);
    for (size_t i = 0; i < s->n_special; i++, p += 4)
        put_u32(p, s->special[i]);
    memcpy(p, s->bytes, sketch_size(s));
    return section;
}

/* A tokenizer and the data it stands on. */
typedef struct loaded {
    attn_ctx ctx;
    attn_tokenizer *tokenizer;
    unsigned char *block;
} loaded;

static loaded load_sketch(sketch *s)
{
    loaded l;
    size_t size;
    memset(&l, 0, sizeof l);
    const unsigned char *section = sketch_section(s, &size, &l.block);
    OK(&l.ctx, attn_tokenizer_new(&l.ctx, &l.tokenizer, section, size));
    sketch_free(s);
    return l;
}

static loaded load_directory(const char *directory)
{
    loaded l;
    size_t size = 0;
    memset(&l, 0, sizeof l);
    if (OK(&l.ctx, vocab_read(&l.ctx, directory, &l.block, &size, NULL)))
        OK(&l.ctx, attn_tokenizer_new(&l.ctx, &l.tokenizer, l.block, size));
    return l;
}

static loaded load_included(void)
{
    return load_directory("examples/tiny-stories");
}

static void unload(loaded *l)
{
    attn_tokenizer_free(l->tokenizer);
    free(l->block);
    memset(l, 0, sizeof *l);
}

/* --- comparing --- */

/* Encodes into fresh memory: room for `size` ids, which must be enough. NULL after a failure. */
static int32_t *encode(loaded *l, const char *text, size_t size, int special, size_t *n)
{
    int32_t *ids = (int32_t *)get((size + 1) * sizeof *ids);
    *n = size + (size_t)attn_tokenizer_adds_blank(l->tokenizer);
    if (OK(&l->ctx, (special ? attn_encode_special : attn_encode)(&l->ctx, ids, n, l->tokenizer,
                                                                  text, size)))
        return ids;
    free(ids);
    return NULL;
}

static void check_round_trip(loaded *l, const char *text, size_t size)
{
    size_t n = 0, back_size = 0;
    SCOPED_TEXT back = (char *)get(size + 1);
    int32_t *ids = encode(l, text, size, 0, &n);
    back_size = size;
    if (ids && OK(&l->ctx, attn_decode(&l->ctx, back, &back_size, l->tokenizer, ids, n)))
        CHECK(back_size == size && memcmp(back, text, size) == 0);
    free(ids);
}

static void check_ids(loaded *l, const char *what, const char *text, size_t size, int special,
                      const int32_t *expected, size_t n_expected)
{
    size_t n = 0, i;
    int32_t *ids = encode(l, text, size, special, &n);
    if (!ids)
        return;
    for (i = 0; i < n && i < n_expected && ids[i] == expected[i];)
        i++;
    CHECKF(n == n_expected && i == n, "%.60s: %llu ids, expected %llu; they differ at %llu", what,
           TOOLS_LLU(n), TOOLS_LLU(n_expected), TOOLS_LLU(i));
    free(ids);
    if (!special)
        check_round_trip(l, text, size);
}

/* --- files of vectors --- */

static size_t from_hex(const char *hex, size_t size, char *bytes)
{
    for (size_t i = 0; i < size / 2; i++) {
        const char pair[3] = {hex[2 * i], hex[2 * i + 1], 0};
        bytes[i] = (char)strtoul(pair, NULL, 16);
    }
    return size / 2;
}

/* FNV-1a over one more byte. */
static const uint64_t fnv_start = 0xCBF29CE484222325u;
static uint64_t fnv(uint64_t digest, unsigned byte)
{
    return (digest ^ byte) * 0x100000001B3u;
}

static void check_digest(const char *what, uint64_t digest, const char *expected)
{
    const char *const actual = test_text("%016llx", TOOLS_LLU(digest));
    CHECKF(strcmp(actual, expected) == 0, "%.40s: digest %s, expected %s", what, actual, expected);
}

/* L  size  alphabet  count  digest: a word as long_word() in make_tokenizer_vectors.py makes it. */
static void check_long_word(loaded *l, const char *line)
{
    unsigned long size, expected;
    char alphabet[32], digest[17];
    uint64_t actual = fnv_start;
    uint32_t x = 1;
    size_t n = 0;
    if (!CHECK(sscanf(line, "L %lu %31s %lu %16s", &size, alphabet, &expected, digest) == 4))
        return;
    SCOPED_TEXT text = (char *)get(size);
    for (size_t i = 0; i < size; i++) {
        x = x * 1664525u + 1013904223u;
        text[i] = alphabet[(x >> 16) % strlen(alphabet)];
    }
    int32_t *ids = encode(l, text, size, 0, &n);
    for (size_t i = 0; i < n; i++)
        for (size_t byte = 0; byte < 4; byte++)
            actual = fnv(actual, (unsigned)ids[i] >> 8 * byte & 255);
    CHECKF(n == expected, "%.40s: %llu ids", line, TOOLS_LLU(n));
    check_digest(line, actual, digest);
    free(ids);
}

/* One line: `hex`, a tab, ids with spaces between them. */
static void check_line(loaded *l, const char *line)
{
    const size_t hex_size = strcspn(line, "\t"), most = strlen(line);
    char *text = (char *)get(hex_size / 2), *end; /* no byte more, to see reads beyond the end */
    int32_t *ids = (int32_t *)get((most + 1) * sizeof *ids);
    const char *p = line + hex_size;
    size_t n = 0;
    for (;; p = end) {
        const long id = strtol(p, &end, 10);
        if (end == p)
            break;
        ids[n++] = (int32_t)id;
    }
    check_ids(l, line, text, from_hex(line, hex_size, text), 0, ids, n);
    free(text);
    free(ids);
}

/* Reads a file and calls `each` for every line, without its newline. Returns how many there were.
 */
static size_t each_line(const char *path, void (*each)(char *line, void *user), void *user)
{
    size_t size = 0, n = 0;
    char *whole = (char *)test_read(path, &size), *line, *end;
    if (!CHECKF(whole != NULL, "cannot read %s", path))
        return 0;
    for (line = whole; line < whole + size; line = end + 1, n++) {
        end = line + strcspn(line, "\n");
        *end = 0;
        each(line, user);
    }
    free(whole);
    return n;
}

static void vector_line(char *line, void *user)
{
    check_line((loaded *)user, line);
}

TEST(gpt2_vectors)
{
    const char *path = test_data_path("gpt2-tokenizer");
    if (!path) {
        test_skip("GPT-2's vocabulary is not here (gpt2-tokenizer in $ATTN_TEST_DATA)");
        return;
    }
    SCOPED(unload) loaded l = load_directory(path);
    if (l.tokenizer)
        CHECK(each_line(test_data_path("gpt2-tokenizer/vectors.tsv"), vector_line, &l) > 700);
}

static loaded load_pairs(void)
{
    sketch s = sketch_new();
    uint32_t *by_rank = (uint32_t *)get(65536 * sizeof *by_rank), pair, rank;
    for (pair = 0; pair < 65536; pair++) {
        const unsigned char bytes[2] = {(unsigned char)(pair / 256), (unsigned char)(pair % 256)};
        sketch_token(&s, bytes, 2);
        by_rank[pair * 40503u % 65536] = pair;
    }
    for (rank = 0; rank < 65536; rank++) {
        pair = by_rank[rank];
        sketch_merge(&s, pair / 256, pair % 256, 256 + pair);
    }
    free(by_rank);
    return load_sketch(&s);
}

static loaded load_given(const char *merges)
{
    sketch s = sketch_new();
    uint32_t part[3];
    const char *p;
    char *end;
    /* A shuffled list needs its tokens before their merges: make those in order of id first. */
    for (int pass = 0; pass < 2; pass++) {
        size_t made;
        do {
            made = 0;
            for (p = merges; *p; p = *end ? end + 1 : end) {
                for (int i = 0; i < 3; i++, p = end + 1)
                    part[i] = (uint32_t)strtoul(p, &end, 10);
                p = end;
                if (pass == 0 && part[2] == s.n_tokens) {
                    sketch_merge(&s, part[0], part[1], part[2]);
                    s.n_merges = 0;
                    made++;
                } else if (pass == 1) {
                    sketch_merge(&s, part[0], part[1], part[2]);
                }
            }
        } while (made);
    }
    return load_sketch(&s);
}

static void kinds_line(const char *line);
static void replacement_line(const char *line);

/* The lines that make_tokenizer_vectors.py describes. `user` is the vocabulary named last. */
static void fixture_line(char *line, void *user)
{
    loaded *l = (loaded *)user;
    if (line[0] == 'K') {
        kinds_line(line);
    } else if (line[0] == 'R') {
        replacement_line(line + 2);
    } else if (line[0] == 'L') {
        check_long_word(l, line);
    } else if (line[0] == 'V') {
        unload(l);
        *l = strcmp(line + 2, "included") == 0 ? load_included()
             : strcmp(line + 2, "pairs") == 0  ? load_pairs()
                                               : load_given(line + 2 + strlen("given "));
    } else if (CHECK(line[0] == 'T' && l->tokenizer)) {
        check_line(l, line + 2);
    }
}

TEST(python_vectors)
{
    loaded l;
    memset(&l, 0, sizeof l);
    CHECK(each_line("tests/fixtures/tokenizer_vectors.tsv", fixture_line, &l) > 1000);
    unload(&l);
}

/* --- the kinds of all characters --- */

/* After one of these three, a character of its kind belongs to the same word, and the merges of
 * load_probe make that visible; white space belongs to none. */
static const char witness[3] = {'!', 'a', '1'}; /* other, letter, number: kinds 0, 1, 2 */

static loaded load_probe(void)
{
    sketch s = sketch_new();
    for (int kind = 0; kind < 3; kind++)
        for (uint32_t byte = 0; byte < 256; byte++)
            sketch_merge(&s, (uint32_t)witness[kind], byte, (uint32_t)s.n_tokens);
    return load_sketch(&s);
}

static int kind_of(loaded *l, uint32_t code)
{
    int32_t ids[8];
    size_t n, size;
    char text[8], *end;
    int found = 3;
    for (int kind = 0; kind < 3; kind++) {
        text[0] = witness[kind];
        end = json_put_utf8(text + 1, (long)code);
        size = (size_t)(end - text);
        n = 8;
        if (!OK(&l->ctx, attn_encode(&l->ctx, ids, &n, l->tokenizer, text, size)))
            return -1;
        if (n == size - 1)
            found = kind;
    }
    return found;
}

/* K  version  letters  numbers  spaces  digest */
static void kinds_line(const char *line)
{
    SCOPED(unload) loaded l = load_probe();
    uint64_t digest = fnv_start;
    size_t count[4] = {0, 0, 0, 0};
    unsigned long expected[4];
    char expected_digest[17];
    for (uint32_t code = 0; l.tokenizer && code < 0x110000; code++) {
        const int kind = code >= 0xD800 && code < 0xE000 ? -1 : kind_of(&l, code);
        if (kind < 0)
            continue;
        count[kind]++;
        digest = fnv(digest, (unsigned)kind);
    }
    if (CHECK(sscanf(line, "K %*s %lu %lu %lu %16s", &expected[1], &expected[2], &expected[3],
                     expected_digest) == 4)) {
        CHECKF(count[1] == expected[1] && count[2] == expected[2] && count[3] == expected[3],
               "%llu letters, %llu numbers, %llu white space", TOOLS_LLU(count[1]),
               TOOLS_LLU(count[2]), TOOLS_LLU(count[3]));
        check_digest("kinds of all characters", digest, expected_digest);
    }
}

/* --- special_vectors.json --- */

/* An array of numbers as ids, from malloc. */
static int32_t *json_ids(const json_value *array, size_t *n)
{
    int32_t *ids = (int32_t *)get((array->size + 1) * sizeof *ids);
    const json_value *v = array + 1;
    for (size_t i = 0; i < array->size; i++, v += v->span) {
        uint64_t number = 0;
        CHECK(json_u64(v, &number));
        ids[i] = (int32_t)number;
    }
    *n = array->size;
    return ids;
}

static void check_json(loaded *l, const json_value *text, const json_value *ids_value, int special,
                       size_t skip)
{
    size_t n;
    if (!CHECK(text && ids_value))
        return;
    int32_t *ids = json_ids(ids_value, &n);
    check_ids(l, text->text, text->text, text->size, special, ids + skip, n - skip);
    free(ids);
}

/* Tokens whose bytes are no UTF-8 by themselves, as the decoder sees it. */
static size_t count_broken(const loaded *l)
{
    size_t n = 0, size;
    for (size_t id = 0; id < attn_tokenizer_n_tokens(l->tokenizer); id++) {
        const char *bytes = attn_token_bytes(&size, l->tokenizer, (int32_t)id);
        SCOPED_TEXT text = (char *)get(3 * (size + 4));
        attn_utf8 state = {{0}, 0};
        size_t made = attn_utf8_push(text, &state, bytes, size);
        made += attn_utf8_push(text + made, &state, NULL, 0);
        n += made != size || memcmp(text, bytes, size) != 0;
    }
    return n;
}

static void check_special_vectors(loaded *l, const json_value *root)
{
    const json_value *seed = json_get(root, "seed001"), *vortex = json_get(root, "vortex");
    const json_value *list = json_get(root, "special"), *v;
    uint64_t number;
    size_t i, size;

    check_json(l, json_get(seed, "text"), json_get(seed, "ids_with_bos"), 0, 1);
    check_json(l, json_get(vortex, "prompt"), json_get(vortex, "prompt_ids_no_bos"), 0, 0);
    check_json(l, json_get(vortex, "continuation"), json_get(vortex, "continuation_ids"), 0, 0);
    if (CHECK(list && list->size))
        for (i = 0, v = list + 1; i < list->size; i++, v += v->span) {
            check_json(l, json_get(v, "text"), json_get(v, "allowed"), 1, 0);
            check_json(l, json_get(v, "text"), json_get(v, "ordinary"), 0, 0);
        }

    list = json_get(root, "byte_token_ids");
    if (CHECK(list && list->size == 256))
        for (i = 0, v = list + 1; i < 256; i++, v += v->span) {
            const char byte = (char)i;
            int32_t id = -1;
            size = 1;
            CHECK(json_u64(v, &number) &&
                  attn_encode(&l->ctx, &id, &size, l->tokenizer, &byte, 1) == ATTN_OK &&
                  (uint64_t)id == number);
        }

    if (CHECK(json_u64(json_get(root, "n_tokens_not_valid_utf8_alone"), &number)))
        CHECKF(count_broken(l) == number, "%llu tokens are no UTF-8", TOOLS_LLU(count_broken(l)));

    list = json_get(root, "examples_split_codepoint"); /* the key begins with the character */
    if (CHECK(list && list->size))
        for (i = 0, v = list + 1; i < list->size; i++, v += v->span) {
            json_value text = {.text = v->key};
            for (text.size = 0; text.size < v->key_size && v->key[text.size] != ' ';)
                text.size++;
            check_json(l, &text, v, 0, 0);
        }
}

TEST(gpt2_special_vectors)
{
    const char *path = test_data_path("gpt2-tokenizer");
    json_value *root = NULL;
    size_t size = 0;
    if (!path) {
        test_skip("GPT-2's vocabulary is not here (gpt2-tokenizer in $ATTN_TEST_DATA)");
        return;
    }
    SCOPED(unload) loaded l = load_directory(path);
    char *text = (char *)test_read(test_data_path("gpt2-tokenizer/special_vectors.json"), &size);
    if (CHECK(text) && l.tokenizer &&
        OK(&l.ctx, json_parse(&l.ctx, "special_vectors.json", text, size, &root)))
        check_special_vectors(&l, root);
    free(root);
    free(text);
}

/* --- special tokens --- */

/* Encodes with special tokens allowed or not and compares ids, ended by -1. */
static void check_special(loaded *l, const char *text, int allow, const int32_t *expected)
{
    size_t n = 0;
    while (expected[n] >= 0)
        n++;
    check_ids(l, text, text, strlen(text), allow, expected, n);
}
#define SPECIAL(l, text, allow, ...)                                                               \
    do {                                                                                           \
        const int32_t expected_[] = {__VA_ARGS__, -1};                                             \
        check_special(l, text, allow, expected_);                                                  \
    } while (0)

TEST(special_tokens)
{
    sketch s = sketch_new();
    size_t n = 99;
    sketch_merge(&s, 'a', 'b', 256);
    sketch_merge(&s, ' ', ' ', 257);
    sketch_special(&s, "<s>");   /* 258 */
    sketch_special(&s, "<s>ab"); /* 259 */
    sketch_special(&s, "<");     /* 260 */
    sketch_special(&s, "ab<s>"); /* 261 */
    sketch_special(&s, "<s>");   /* 262: the same bytes; the first in the list counts */
    SCOPED(unload) loaded l = load_sketch(&s);
    if (!l.tokenizer)
        return;
    SPECIAL(&l, "<s>", 1, 258);
    SPECIAL(&l, "<s>", 0, '<', 's', '>');
    SPECIAL(&l, "<s>a", 1, 258, 'a');
    SPECIAL(&l, "<s>ab", 1, 259);
    SPECIAL(&l, "<s>ab<s>", 1, 259, 258); /* what begins first wins, then what is longest */
    SPECIAL(&l, "ab<s>ab", 1, 261, 256);
    SPECIAL(&l, "ab<s", 1, 256, 260, 's');
    SPECIAL(&l, "<<s><s", 1, 260, 258, 260, 's');
    SPECIAL(&l, "ab<s", 0, 256, '<', 's');
    SPECIAL(&l, "a  <s>  b", 1, 'a', 257, 258, ' ', ' ', 'b'); /* a part ends like a text */
    SPECIAL(&l, "a  b", 1, 'a', ' ', ' ', 'b');
    n = 0;
    OK(&l.ctx, attn_encode_special(&l.ctx, NULL, &n, l.tokenizer, "", 0));
    EQUAL(n, 0);
}

/* A blank before a text, and before each part between special tokens. (fixtures/vocabularies/blank.tsv has
 * what transformers give.) */
TEST(added_blanks)
{
    sketch s = sketch_new();
    s.flags = 8;
    sketch_merge(&s, ' ', 'a', 256);
    sketch_special(&s, "<>"); /* 257 */
    loaded l = load_sketch(&s);
    CHECK(!attn_tokenizer_adds_blank(NULL));
    if (!l.tokenizer || !CHECK(attn_tokenizer_adds_blank(l.tokenizer)))
        return;
    SPECIAL(&l, "b", 1, ' ', 'b');
    SPECIAL(&l, "  b", 1, ' ', ' ', 'b');
    SPECIAL(&l, "a", 1, 256);
    SPECIAL(&l, "", 1, -1);
    SPECIAL(&l, "b<><>b<>b", 1, ' ', 'b', 257, 257, ' ', 'b', 257, ' ', 'b');
    SPECIAL(&l, "b<>b<>b", 1, ' ', 'b', 257, ' ', 'b', 257, ' ', 'b'); /* one more than bytes */
    SPECIAL(&l, "a<> a", 1, 256, 257, 256);
    unload(&l);
}

/* --- arguments and capacities --- */

TEST(capacities)
{
    static const char text[] = "Once upon a time there was a dog named Max. He didn't bark!";
    const size_t size = sizeof text - 1;
    int32_t all[64], ids[64];
    char back[80];
    size_t n_all = 0, n;
    SCOPED(unload) loaded l = load_included();
    n_all = 64;
    if (!l.tokenizer || !OK(&l.ctx, attn_encode(&l.ctx, all, &n_all, l.tokenizer, text, size)))
        return;
    for (size_t room = 0; room < n_all; room++) {
        memset(ids, 0x55, sizeof ids);
        n = room;
        FAILS_IN(&l.ctx, ATTN_E_SPACE, "room for only",
                 attn_encode(&l.ctx, ids, &n, l.tokenizer, text, size));
        CHECK(n == n_all && memcmp(ids, all, room * sizeof *ids) == 0 && ids[room] == 0x55555555);
    }
    for (size_t room = 0; room < size; room++) {
        memset(back, 0x55, sizeof back);
        n = room;
        FAILS_IN(&l.ctx, ATTN_E_SPACE, "room for only",
                 attn_decode(&l.ctx, back, &n, l.tokenizer, all, n_all));
        CHECK(n == size && back[room] == 0x55);
    }
    /* to ask is no failure */
    l.ctx.status = ATTN_OK;
    n = 0;
    OK(&l.ctx, attn_encode(&l.ctx, NULL, &n, l.tokenizer, text, size));
    EQUAL(n, n_all);
    n = 0;
    OK(&l.ctx, attn_encode_special(&l.ctx, NULL, &n, l.tokenizer, "a<|endoftext|>", 14));
    EQUAL(n, 2);
    n = 0;
    OK(&l.ctx, attn_decode(&l.ctx, NULL, &n, l.tokenizer, all, n_all));
    EQUAL(n, size);
    CHECK(l.ctx.status == ATTN_OK);
    n = size;
    OK(&l.ctx, attn_decode(&l.ctx, back, &n, l.tokenizer, all, n_all));
    CHECK(n == size && memcmp(back, text, size) == 0 && back[size] == 0x55);
    FAILS_IN(&l.ctx, ATTN_E_ARGUMENT, "no n_tokens",
             attn_encode(&l.ctx, all, NULL, l.tokenizer, text, size));
    FAILS_IN(&l.ctx, ATTN_E_ARGUMENT, "no size",
             attn_decode(&l.ctx, back, NULL, l.tokenizer, all, n_all));
}

/* What lies behind a text does not count, not even where it would complete a character. */
TEST(texts_end_where_they_end)
{
    static const char text[] =
        "na\xC3\xAFve \xE2\x82\xAC\xE5\x9B\x9E and \xF0\x9F\x8D\x8E\xCC\x81 5";
    int32_t ids[64], want[64];
    size_t n, n_want;
    SCOPED(unload) loaded l = load_included();
    for (size_t size = 0; l.tokenizer && size < sizeof text; size++) {
        SCOPED_TEXT const alone = (char *)malloc(size + 1);
        memcpy(alone, text, size);
        alone[size] = 'x';
        n = n_want = 64;
        if (OK(&l.ctx, attn_encode(&l.ctx, ids, &n, l.tokenizer, text, size)) &&
            OK(&l.ctx, attn_encode(&l.ctx, want, &n_want, l.tokenizer, alone, size)))
            CHECKF(n == n_want && memcmp(ids, want, n * sizeof *ids) == 0, "%llu bytes",
                   TOOLS_LLU(size));
    }
}

/* Words of zeros, which differ by nothing but their length. */
TEST(zeros)
{
    enum { SIZE = 9000 };
    SCOPED(unload) loaded l = load_included();
    char *const text = (char *)calloc(2, SIZE), *const back = text + SIZE;
    int32_t *const ids = (int32_t *)malloc(SIZE * sizeof *ids);
    size_t at, n;
    for (at = 0, n = 1; at + n < SIZE; at += n + 1, n = n % 5 + 1)
        text[at + n] = 'a'; /* 0a00a000a0000a00000a0a00a .. */
    n = SIZE;
    size_t n_back = SIZE;
    if (l.tokenizer && OK(&l.ctx, attn_encode(&l.ctx, ids, &n, l.tokenizer, text, SIZE)) &&
        OK(&l.ctx, attn_decode(&l.ctx, back, &n_back, l.tokenizer, ids, n)))
        CHECK(n_back == SIZE && memcmp(text, back, SIZE) == 0);
    free(ids);
    free(text);
}

TEST(arguments)
{
    SCOPED(unload) loaded l = load_included();
    const size_t n_tokens = attn_tokenizer_n_tokens(l.tokenizer);
    int32_t ids[4] = {1, 2, 3, 4};
    char text[64];
    size_t n = 9;
    if (!l.tokenizer)
        return;
    n = 4;
    FAILS_IN(&l.ctx, ATTN_E_TOKENIZER, "no tokenizer", attn_encode(&l.ctx, ids, &n, NULL, "a", 1));
    n = 9;
    FAILS_IN(&l.ctx, ATTN_E_TOKENIZER, "no tokenizer", attn_decode(&l.ctx, text, &n, NULL, ids, 1));
    n = 4;
    FAILS_IN(&l.ctx, ATTN_E_ARGUMENT, "text is NULL",
             attn_encode(&l.ctx, ids, &n, l.tokenizer, NULL, 1));
    n = 4;
    FAILS_IN(&l.ctx, ATTN_E_ARGUMENT, "tokens is NULL",
             attn_encode(&l.ctx, NULL, &n, l.tokenizer, "a", 1));
    n = 9;
    FAILS_IN(&l.ctx, ATTN_E_ARGUMENT, "tokens is NULL",
             attn_decode(&l.ctx, text, &n, l.tokenizer, NULL, 1));
    n = 9;
    FAILS_IN(&l.ctx, ATTN_E_ARGUMENT, "text is NULL",
             attn_decode(&l.ctx, NULL, &n, l.tokenizer, ids, 1));
    n = 0;
    OK(&l.ctx, attn_encode(&l.ctx, NULL, &n, l.tokenizer, NULL, 0));
    EQUAL(n, 0);
    n = 0;
    OK(&l.ctx, attn_decode(&l.ctx, NULL, &n, l.tokenizer, NULL, 0));
    EQUAL(n, 0);

    ids[2] = (int32_t)n_tokens;
    n = sizeof text;
    FAILS_IN(&l.ctx, ATTN_E_TOKEN, "token 2048 at index 2",
             attn_decode(&l.ctx, text, &n, l.tokenizer, ids, 4));
    ids[1] = -7;
    n = sizeof text;
    FAILS_IN(&l.ctx, ATTN_E_TOKEN, "token -7 at index 1",
             attn_decode(&l.ctx, text, &n, l.tokenizer, ids, 4));

    CHECK(n_tokens == 2048 && attn_tokenizer_n_tokens(NULL) == 0);
    CHECK(attn_token_bytes(&n, l.tokenizer, -1) == NULL && n == 0);
    CHECK(attn_token_bytes(&n, l.tokenizer, 2048) == NULL && n == 0);
    CHECK(attn_token_bytes(&n, NULL, 0) == NULL && n == 0);
    CHECK(attn_token_bytes(NULL, l.tokenizer, 2047) != NULL);
    CHECK(memcmp(attn_token_bytes(&n, l.tokenizer, 2047), "<|endoftext|>", 13) == 0 && n == 13);
    attn_tokenizer_free(NULL);
}

/* --- damaged sections --- */

/* Tokens 256 "ab", 257 "abc", 258 "aa", 259 "<s>" (special), 260 without bytes. */
static sketch small_sketch(void)
{
    sketch s = sketch_new();
    sketch_merge(&s, 'a', 'b', 256);
    sketch_merge(&s, 256, 'c', 257);
    sketch_merge(&s, 'a', 'a', 258);
    sketch_special(&s, "<s>");
    sketch_token(&s, "", 0);
    return s;
}

static void expect_refused(const sketch *s, const char *message)
{
    attn_ctx ctx = {0};
    attn_tokenizer *tokenizer = (attn_tokenizer *)(void *)&ctx; /* anything but NULL */
    unsigned char *block;
    size_t size;
    const unsigned char *section = sketch_section(s, &size, &block);
    FAILS(FORMAT, message, attn_tokenizer_new(&ctx, &tokenizer, section, size));
    CHECK(tokenizer == NULL && ctx.status == ATTN_E_FORMAT);
    free(block);
}

/* Makes a fresh small vocabulary, changes it in one way, and expects to be told so. */
#define REFUSED(message, change)                                                                   \
    do {                                                                                           \
        sketch s = small_sketch();                                                                 \
        change;                                                                                    \
        expect_refused(&s, message);                                                               \
        sketch_free(&s);                                                                           \
    } while (0)

TEST(damaged_tokens)
{
    REFUSED("token 5 ends at byte 70000, expected 5 to 266", s.ends[5] = 70000);
    REFUSED("token 6 ends at byte 7, expected 9 to 266", s.ends[5] = 9);
    REFUSED("no token for the single byte 41", s.bytes[0x41] = 'B');
    REFUSED("no token for the single byte 41", s.special[s.n_special++] = 0x41);
    REFUSED("no token for the single byte 00", (s.n_tokens = s.n_merges = s.n_special = 0));
}

/* Each merge has the same long result: checking them all would take time by the square of the
 * section's size. Enough of them are let pass for vocabularies that have each way to a token. */
TEST(merges_of_one_long_token)
{
    enum { COPIES = 300, LONG = 10000 };
    sketch s = sketch_new();
    char *const letters = (char *)malloc(LONG);
    memset(letters, 'a', LONG);
    uint32_t first = (uint32_t)s.n_tokens;
    for (uint32_t i = 0; i < COPIES; i++)
        sketch_token(&s, "a", 1);
    sketch_token(&s, letters, LONG - 1);
    sketch_token(&s, letters, LONG);
    for (uint32_t i = 0; i < COPIES; i++)
        sketch_merge(&s, first + i, first + COPIES, first + COPIES + 1);
    /* 20,300 bytes beside the 256, and 12 for each merge: 64 times that */
    expect_refused(&s, "the results of merges 0 to 154 have 1550000 bytes together; expected at "
                       "most 1545920,");
    free(letters);
    sketch_free(&s);
}

TEST(damaged_merges)
{
    REFUSED("merge 1: its left id 261 is too large (of 261 tokens)", s.merges[1][0] = 261);
    REFUSED("merge 1: its right id 4294967295 is too large", s.merges[1][1] = 0xFFFFFFFFu);
    REFUSED("merge 2: its result id 999 is too large", s.merges[2][2] = 999);
    REFUSED("merge 0: its left id 259 is a special token", s.merges[0][0] = 259);
    REFUSED("merge 0: its right id 259 is a special token", s.merges[0][1] = 259);
    REFUSED("merge 0: its result id 256 is a special token", s.special[0] = 256);
    REFUSED("merge 0: its left id 260 is a token without bytes", s.merges[0][0] = 260);
    REFUSED("merge 0: its right id 260 is a token without bytes", s.merges[0][1] = 260);
    REFUSED("merge 0: its result id 260 is a token without bytes", s.merges[0][2] = 260);
    REFUSED("merge 0: the bytes of its result are not", s.merges[0][0] = 'x');
    REFUSED("merge 0: the bytes of its result are not", s.merges[0][1] = 'x');
    REFUSED("merge 0: the bytes of its result are not", s.merges[0][2] = 257);
    REFUSED("merge 1: the bytes of its result are not", s.merges[1][2] = 'a');
    REFUSED("merges 0 and 3 both join tokens 97 and 98", sketch_merge(&s, 'a', 'b', 261));
}

/* Every step along a text looks for special tokens, so they must not be long. */
TEST(long_special)
{
    char text[300];
    memset(text, 'a', sizeof text);
    text[256] = 0;
    {
        sketch s = small_sketch();
        sketch_special(&s, text); /* 261 */
        SCOPED(unload) loaded l = load_sketch(&s);
        SPECIAL(&l, text, 1, 261);
    }
    text[256] = 'a';
    text[257] = 0;
    REFUSED("special token 1: its id 261 has more than 256 bytes", sketch_special(&s, text));
}

/* Special tokens "<0>", "<1>", ...: 256 and on. */
static sketch sketch_of_special(int n)
{
    sketch s = sketch_new();
    for (int i = 0; i < n; i++) {
        sketch_special(&s, test_text("<%d>", i));
    }
    return s;
}

/* As many as a vocabulary with thousands of added words has. */
TEST(many_special)
{
    sketch s = sketch_of_special(1501);
    SCOPED(unload) loaded l = load_sketch(&s);
    if (l.tokenizer)
        SPECIAL(&l, "<1500><7>", 1, 256 + 1500, 256 + 7);
}

TEST(damaged_special)
{
    REFUSED("special token 0: its id 261 is too large (of 261 tokens)", s.special[0] = 261);
    REFUSED("special token 0: its id 260 has no bytes", s.special[0] = 260);
    REFUSED("its id 259 is listed twice", s.special[s.n_special++] = 259);
    REFUSED("has one byte, but texts get a blank", (s.flags = 8, sketch_special(&s, "<")));
    for (uint32_t flags = 0; flags < 18; flags++) /* 5, 7, 13 and 15 have no merges */
        if ((flags & 7) != 0 && ((flags & 5) != 1 || flags > 15))
            REFUSED("the flags are", s.flags = flags);
}

TEST(damaged_sizes)
{
    attn_ctx ctx = {0};
    attn_tokenizer *tokenizer;
    sketch s = small_sketch();
    unsigned char *block;
    size_t size;
    const unsigned char *section = sketch_section(&s, &size, &block);
    sketch_free(&s);
    unsigned char *copy = (unsigned char *)get(size + 64);

    FAILS(ARGUMENT, "no data", attn_tokenizer_new(&ctx, &tokenizer, NULL, 0));
    FAILS(ARGUMENT, "no data", attn_tokenizer_new(&ctx, &tokenizer, NULL, 99));
    for (size_t cut = 0; cut <= size + 64; cut++) {
        SCOPED_BYTES exact = (unsigned char *)get(cut + 1); /* to see reads beyond the end */
        memcpy(exact, section, cut < size ? cut : size);
        if (cut != size)
            FAILS(FORMAT, cut < 16 ? "its header alone" : "bytes of data, but 261",
                  attn_tokenizer_new(&ctx, &tokenizer, exact, cut));
        CHECK(cut == size || tokenizer == NULL);
    }
    for (size_t field = 0; field < 16; field += 4) {
        static const uint32_t lies[] = {0, 1, 255, 262, 0x7FFFFFFF, 0x80000000u, 0xFFFFFFFFu};
        for (size_t cut = 0; cut < sizeof lies / sizeof lies[0]; cut++) {
            memcpy(copy, section, size);
            if (get_u32(copy + field) == lies[cut])
                continue;
            put_u32(copy + field, lies[cut]);
            FAILS(FORMAT, "bytes of data, but", attn_tokenizer_new(&ctx, &tokenizer, copy, size));
        }
    }
    /* Lies that add up: three tokens more for a merge less, bytes that no token has. */
    memcpy(copy, section, size);
    put_u32(copy, 264);
    put_u32(copy + 4, 2);
    FAILS(FORMAT, "tokenizer: token", attn_tokenizer_new(&ctx, &tokenizer, copy, size));
    memcpy(copy, section, size);
    put_u32(copy + 12, get_u32(copy + 12) + 1);
    FAILS(FORMAT, "the last token ends at byte 266 of 267 token bytes",
          attn_tokenizer_new(&ctx, &tokenizer, copy, size + 1));
    free(copy);
    free(block);
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state >> 11;
}

/* Whatever one to three changed bytes do, either the section is refused in words or it works. */
TEST(damaged_anywhere)
{
    static const char text[] = "abcabaabbccc <s> aaaaaaa\xff ab";
    sketch s = small_sketch();
    uint64_t seed = 7;
    size_t size, refused = 0, worked = 0;
    unsigned char *block;
    const unsigned char *section = sketch_section(&s, &size, &block);
    unsigned char *copy = (unsigned char *)get(size);
    sketch_free(&s);
    for (size_t turn = 0; turn < 20000; turn++) {
        loaded l;
        size_t changes = 1 + turn % 3;
        memset(&l, 0, sizeof l);
        memcpy(copy, section, size);
        while (changes--)
            copy[next_random(&seed) % size] = (unsigned char)next_random(&seed);
        if (attn_tokenizer_new(&l.ctx, &l.tokenizer, copy, size)) {
            CHECK(l.ctx.status == ATTN_E_FORMAT && strstr(l.ctx.message, "tokenizer: "));
            refused++;
        } else {
            check_round_trip(&l, text, sizeof text - 1);
            worked++;
        }
        unload(&l);
    }
    CHECKF(refused > 1000 && worked > 20, "%llu refused, %llu worked", TOOLS_LLU(refused),
           TOOLS_LLU(worked));
    free(copy);
    free(block);
}

/* Twice the same bytes is no mistake; of single bytes the lowest ordinary id counts. */
TEST(duplicates)
{
    sketch s = sketch_new();
    const char text[] = "xxyab";
    sketch_special(&s, "y"); /* 256 */
    sketch_token(&s, "x", 1);
    sketch_token(&s, "ab", 2);
    sketch_merge(&s, 'a', 'b', 259);
    SCOPED(unload) loaded l = load_sketch(&s);
    if (l.tokenizer) {
        SPECIAL(&l, text, 0, 'x', 'x', 'y', 259);
        SPECIAL(&l, text, 1, 'x', 'x', 256, 259);
    }
}

/* --- any text at all --- */

TEST(random_bytes)
{
    SCOPED(unload) loaded l = load_included();
    uint64_t seed = 3;
    char text[600];
    for (size_t turn = 0; l.tokenizer && turn < 600; turn++) {
        for (size_t i = 0; i < turn; i++) { /* all bytes, or few ones, so that words get long */
            const uint64_t r = next_random(&seed);
            text[i] = (char)(turn % 3 == 0 ? r : turn % 3 == 1 ? 'a' + r % 4 : 0x20 + r % 64);
        }
        check_round_trip(&l, text, turn);
    }
}

/* A million bytes of each of these must not take forever; that the ids are right is checked on
 * smaller ones. */
/* A vocabulary in which long runs have something to merge: "a" and "b" up to 16 times, and pairs
 * of what came before. */
static loaded load_runs(void)
{
    sketch s = sketch_new();
    for (uint32_t id = 256; id < 264; id++) {
        const uint32_t half = id < 258 ? (uint32_t) "ab"[id - 256] : id - 2;
        sketch_merge(&s, half, half, id);
    }
    sketch_merge(&s, 'a', 'b', 264);
    return load_sketch(&s);
}

static void check_hostile(loaded *l)
{
    static const char *const alphabet[] = {"a", " ",  "0123456789", "ab", "etaoinshrdlu", "\xff",
                                           "'", "<|", " a",         "\n", "\xe3\x80\x80"};
    const size_t size = 1 << 20;
    SCOPED_TEXT text = (char *)get(size);
    uint64_t seed = 5;
    for (size_t kind = 0; l->tokenizer && kind < sizeof alphabet / sizeof alphabet[0]; kind++) {
        const size_t n = strlen(alphabet[kind]);
        for (size_t i = 0; i < size; i++)
            text[i] = alphabet[kind][n > 5 ? next_random(&seed) % n : i % n];
        check_round_trip(l, text, size);
    }
}

TEST(hostile)
{
    loaded l = load_included();
    check_hostile(&l);
    unload(&l);
    l = load_runs();
    check_hostile(&l);
    unload(&l);
}

/* The end of a word may decide how its beginning is merged, however long it is: here each pair of
 * neighbours is a merge of its own, those nearer to the end first, and their number is odd. */
TEST(far_influence)
{
    enum { LENGTH = 12001 };
    unsigned char symbols[256], *text = (unsigned char *)get(2 * LENGTH);
    int32_t *expected = (int32_t *)get(LENGTH * sizeof *expected);
    size_t n_symbols = 0, n = 0, i, j;
    sketch s = sketch_new();
    /* Bytes that are no letters, numbers or white space, whatever stands beside them. */
    for (i = 0; i < 256; i++)
        if ((i >= 0x21 && i <= 0x2F) || (i >= 0x3A && i <= 0x40) || (i >= 0x5B && i <= 0x60) ||
            (i >= 0x7B && i <= 0xC1) || i >= 0xF5 || i < 9 || (i >= 0x0E && i <= 0x1F))
            symbols[n_symbols++] = (unsigned char)i;
    /* A row in which no two symbols are neighbours twice (a de Bruijn sequence). */
    for (i = 0; i < n_symbols && n < LENGTH; i++)
        for (j = i; j < n_symbols && n < LENGTH; j++) {
            text[n++] = symbols[i];
            if (j > i)
                text[n++] = symbols[j];
        }
    CHECK(n >= LENGTH);
    for (i = LENGTH - 1; i-- > 0;)
        sketch_merge(&s, text[i], text[i + 1], (uint32_t)s.n_tokens);
    expected[0] = text[0];
    for (i = 1; i < LENGTH; i += 2)
        expected[(i + 1) / 2] = (int32_t)(256 + LENGTH - 2 - i);
    loaded l = load_sketch(&s);
    check_ids(&l, "far influence", (const char *)text, LENGTH, 0, expected, LENGTH / 2 + 1);
    unload(&l);
    free(text);
    free(expected);
}

/* Tokens may be long: here "a" 2, 4, ... 4096 times, so that a row of them is the number of "a" in
 * binary, the largest first. Other letters before them move where they begin. */
TEST(long_tokens)
{
    enum { LEVELS = 12, LONGEST = 1 << LEVELS, MOST = 21025 };
    static const size_t counts[] = {4096, 8192, 8193, 12287, 16384, 20001},
                        befores[] = {0, 1, 1024};
    char *text = (char *)get(MOST);
    int32_t *expected = (int32_t *)get(MOST * sizeof *expected);
    size_t n, rest, before;
    sketch s = sketch_new();
    for (uint32_t level = 0; level < LEVELS; level++)
        sketch_merge(&s, level ? 255 + level : 'a', level ? 255 + level : 'a', 256 + level);
    loaded l = load_sketch(&s);
    for (size_t i = 0; i < 18; i++) {
        before = befores[i / 6];
        for (n = 0; n < before; n++)
            expected[n] = text[n] = 'b';
        memset(text + before, 'a', counts[i % 6]);
        for (rest = counts[i % 6]; rest >= LONGEST; rest -= LONGEST)
            expected[n++] = 255 + LEVELS;
        for (uint32_t level = LEVELS; level-- > 0;)
            if (rest >> level & 1)
                expected[n++] = level ? (int32_t)(255 + level) : 'a';
        check_ids(&l, "long tokens", text, before + counts[i % 6], 0, expected, n);
    }
    unload(&l);
    free(text);
    free(expected);
}

/* --- memory runs out --- */

typedef struct miser {
    size_t allowed, asked; /* allocations that still succeed; all that were asked for */
    size_t alive;
} miser;

static void *miser_alloc(size_t size, void *user)
{
    miser *m = (miser *)user;
    m->asked++;
    if (m->asked > m->allowed)
        return NULL;
    void *block = malloc(size);
    m->alive += block != NULL;
    return block;
}

static void miser_free(void *block, void *user)
{
    ((miser *)user)->alive -= block != NULL;
    free(block);
}

TEST(no_memory)
{
    enum { TEXT = 4000 };
    char text[TEXT], back[TEXT];
    int32_t ids[TEXT];
    miser m = {0, 0, 0};
    attn_tokenizer *tokenizer = NULL;
    attn_status status;
    unsigned char *block;
    size_t size, n = 0, back_size, failures, i;
    sketch s = small_sketch();
    const unsigned char *section = sketch_section(&s, &size, &block);
    sketch_free(&s);
    for (i = 0; i < TEXT; i++) /* short words, a long one, and one that is longer still */
        text[i] = i < 1000 ? "ab aac "[i % 7] : i == 2300 ? ' ' : "abcaab"[i % 6];
    attn_ctx ctx = {.alloc = miser_alloc, .free = miser_free, .user = &m};

    for (failures = 0;; failures++) {
        m.allowed = failures;
        m.asked = 0;
        status = attn_tokenizer_new(&ctx, &tokenizer, section, size);
        if (status == ATTN_OK)
            break;
        if (!CHECK(status == ATTN_E_MEMORY && !tokenizer && m.alive == 0 && failures < 100))
            return;
        CHECK(strstr(ctx.message, "no memory for"));
    }
    CHECK(failures >= 4);

    for (failures = 0;; failures++) {
        const size_t before = m.alive;
        m.allowed = failures;
        m.asked = 0;
        n = 99;
        n = TEXT;
        status = attn_encode(&ctx, ids, &n, tokenizer, text, TEXT);
        EQUAL(m.alive, before);
        if (status == ATTN_OK)
            break;
        if (!CHECK(status == ATTN_E_MEMORY && n == 0 && failures < 100))
            return;
        CHECK(strstr(ctx.message, "no memory for"));
    }
    CHECKF(failures >= 4, "only %llu allocations", TOOLS_LLU(failures));

    m.allowed = m.asked = 0; /* decoding needs none */
    back_size = TEXT;
    OK(&ctx, attn_decode(&ctx, back, &back_size, tokenizer, ids, n));
    CHECK(m.asked == 0 && back_size == TEXT && memcmp(back, text, TEXT) == 0);
    attn_tokenizer_free(tokenizer);
    EQUAL(m.alive, 0);
    free(block);
}

/* --- whole characters out of pieces --- */

/* Pushes the bytes in three pieces, cut at a and b (an empty piece is no push), and flushes. */
static void check_pushes(const char *bytes, size_t size, size_t a, size_t b, const char *expected,
                         size_t expected_size)
{
    const size_t cuts[4] = {0, a, b, size};
    attn_utf8 state = {{0}, 0};
    char *text = (char *)get(3 * (size + 4) + 12), *out = text;
    for (size_t i = 0; i < 3; i++)
        if (cuts[i + 1] > cuts[i])
            out += attn_utf8_push(out, &state, bytes + cuts[i], cuts[i + 1] - cuts[i]);
    out += attn_utf8_push(out, &state, NULL, 0);
    CHECKF((size_t)(out - text) == expected_size && memcmp(text, expected, expected_size) == 0,
           "%llu bytes cut at %llu and %llu gave %llu bytes, expected %llu", TOOLS_LLU(size),
           TOOLS_LLU(a), TOOLS_LLU(b), TOOLS_LLU(out - text), TOOLS_LLU(expected_size));
    CHECK(attn_utf8_push(text, &state, NULL, 0) == 0); /* nothing is left */
    free(text);
}

/* A state that was not zeroed gives wrong text at most, and nothing behind it is written. */
TEST(garbled_states)
{
    struct {
        attn_utf8 state;
        unsigned char behind[64];
    } at;
    char text[3 * 80];
    for (int n = -3; n < 70; n++)
        for (int first = 0; first < 256; first += 3) {
            memset(&at, 0x80, sizeof at);
            memset(at.behind, 7, sizeof at.behind);
            at.state.bytes[0] = (unsigned char)first;
            at.state.n = n;
            attn_utf8_push(text, &at.state, (const char *)&at.behind[1], 0);
            at.state.n = n;
            attn_utf8_push(text, &at.state,
                           "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
                           17);
            for (size_t i = 0; i < sizeof at.behind; i++)
                if (!CHECKF(at.behind[i] == 7, "n %d, first byte %x: byte %llu behind is written",
                            n, (unsigned)first, TOOLS_LLU(i)))
                    return;
        }
}

static void check_all_cuts(const char *bytes, size_t size, const char *expected,
                           size_t expected_size)
{
    for (size_t a = 0; a <= size; a++)
        for (size_t b = a; b <= size; b++)
            check_pushes(bytes, size, a, b, expected, expected_size);
}

/* R  bytes in hex  text in hex */
static void replacement_line(const char *line)
{
    const size_t size = strcspn(line, "\t");
    char *bytes = (char *)get(strlen(line)), *text = (char *)get(strlen(line));
    const size_t n_text = from_hex(line + size + 1, strlen(line + size + 1), text);
    check_all_cuts(bytes, from_hex(line, size, bytes), text, n_text);
    free(bytes);
    free(text);
}

#define BAD "\xEF\xBF\xBD"
TEST(utf8_push)
{
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"plain", "plain"},
        {"\xC2\xA0\xE2\x82\xAC\xF0\x9F\x98\x80\xF4\x8F\xBF\xBF\xEF\xBF\xBF",
         "\xC2\xA0\xE2\x82\xAC\xF0\x9F\x98\x80\xF4\x8F\xBF\xBF\xEF\xBF\xBF"},
        /* The Unicode Standard 15.0, chapter 3, tables 3-8 to 3-11, and the older example. */
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", BAD BAD BAD BAD BAD BAD BAD BAD "A"},
        {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", BAD BAD BAD BAD BAD BAD BAD BAD "A"},
        {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", BAD BAD BAD BAD BAD "A" BAD BAD "B"},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", BAD BAD BAD BAD "A"},
        {"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64",
         "a" BAD BAD BAD "b" BAD "c" BAD BAD "d"},
        {"\xF0\x9F\x98", BAD}, /* what is left at the end */
        {"x\xC2", "x" BAD}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_all_cuts(cases[i].bytes, strlen(cases[i].bytes), cases[i].text,
                       strlen(cases[i].text));
}

/* Texts and words for a model, against attn_encode and the vocabulary itself. */
TEST(words_of_a_model)
{
    static const char text[] = "Once upon a time <|endoftext|> there was a caf\xc3\xa9.";
    SCOPED_CTX ctx = {0};
    attn_model *model = NULL;
    int32_t expected[64], id, found;
    size_t n, size, n_ones = 0, n_hints = 0;
    if (!OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL)))
        return;
    const attn_tokenizer *tokenizer = attn_model_tokenizer(model);
    for (size_t i = 0; i < attn_tokenizer_n_tokens(tokenizer); i++) {
        const char *bytes = attn_token_bytes(&size, tokenizer, (int32_t)i);
        char word[64], number[64];
        if (!bytes || size == 0 || size >= sizeof word || memchr(bytes, 0, size))
            continue;
        memcpy(word, bytes, size);
        word[size] = 0;
        n = 64;
        OK(&ctx, attn_encode(&ctx, expected, &n, tokenizer, word, size));
        if (n != 1)
            continue; /* a special token, or one that merges never make */
        OK(&ctx, attn_text_token(&ctx, &found, model, word));
        CHECK(found == expected[0]);
        n_ones++;
        if (word[0] != ' ' || size < 2)
            continue;
        n = 64;
        OK(&ctx, attn_encode(&ctx, expected, &n, tokenizer, word + 1, size - 1));
        if (n == 1)
            continue;
        n_hints++; /* a word that is one token only behind a space: the message says so */
        FAILS(TOKEN, "with a leading space it is one", attn_text_token(&ctx, &id, model, word + 1));
        CHECK(id == -1 && strstr(ctx.message, word + 1) != NULL);
        snprintf(number, sizeof number, "%d", (int)found);
        CHECK(strstr(ctx.message, number) != NULL);
        bytes = attn_token_bytes(&size, tokenizer, expected[0]);
        snprintf(number, sizeof number, "(%d \"%.*s\", %d \"", (int)expected[0], (int)size, bytes,
                 (int)expected[1]);
        CHECKF(strstr(ctx.message, number) != NULL, "no %s in %s", number, ctx.message);
    }
    CHECK(n_ones > 100 && n_hints > 0);
    FAILS(TOKEN, "is empty", attn_text_token(&ctx, &id, model, ""));
    FAILS(TOKEN, "tokens (", attn_text_token(&ctx, &id, model, "<|endoftext|>"));
    FAILS(TOKEN, "...", attn_text_token(&ctx, &id, model, text));
    CHECK(strstr(ctx.message, "leading space") == NULL);
    FAILS(ARGUMENT, "no model", attn_text_token(&ctx, &id, NULL, "a"));
    FAILS(ARGUMENT, "no text", attn_text_token(&ctx, &id, model, NULL));
    FAILS(ARGUMENT, "no place", attn_text_token(&ctx, NULL, model, "a"));
    attn_model_close(model);
    model = NULL;
    if (OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/from_scratch/plain.attn", NULL)))
        FAILS(TOKENIZER, "no tokenizer", attn_text_token(&ctx, &id, model, "a"));
    attn_model_close(model);
}
