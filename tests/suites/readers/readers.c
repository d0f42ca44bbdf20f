/* The converter's readers as functions, where a program for each of a hundred thousand runs would take
 * too long: checkpoints that are cut at every byte, with every bit flipped and with every size changed;
 * names made to collide; the bounds of memory. */
#define ATTN__IMPLEMENTED
#define PROGRAM "attn-convert"
#define INPUT   "checkpoint"
#include "tools/common/system.h"
#include "tools/convert/settings.h"
#include "tests/support/converting.h"
#include <sys/resource.h>

SUITE_WITH(NULL, forget);

/* >> Vocabularies ============================================================================== */

static unsigned char *section_of(const char *dir, size_t *size)
{
    attn_ctx ctx = ATTN_ZERO;
    unsigned char *section = NULL;
    OK(&ctx, vocab_read(&ctx, dir, &section, size, NULL));
    return section;
}

static int same_section(const char *what, const unsigned char *a, size_t a_size,
                        const unsigned char *b, size_t b_size)
{
    return CHECKF(a && b && a_size == b_size && memcmp(a, b, a_size) == 0,
                  "%s: another tokenizer section", what);
}

/* One vocabulary in all its spellings gives the same section, alone and within a .attn file. */
TEST(vocabularies_agree)
{
    static const char *const dirs[] = {FIXTURES "sharded", FIXTURES "strings"};
    static const char *const models[] = {FIXTURES "sharded", FIXTURES "bf16", FIXTURES "tiny.gguf"};
    size_t size = 0, other_size = 0;
    unsigned char *section = section_of(FIXTURES "bf16", &size), *other;
    for (size_t i = 0; section && i < sizeof dirs / sizeof dirs[0]; i++) {
        other = section_of(dirs[i], &other_size);
        same_section(dirs[i], section, size, other, other_size);
        free(other);
    }
    for (size_t i = 0; section && i < sizeof models / sizeof models[0]; i++) {
        attn_model_close(converted(models[i], ""));
        other = test_read(test_tmp("converted.attn"), &other_size);
        if (CHECK(other != NULL))
            same_section(models[i], section, size, other + get_u64(other + 96),
                         (size_t)get_u64(other + 104));
        free(other);
    }
    other = section_of(variant(FIXTURES "sharded", "tokenizer.json", ",\"<|endoftext|>\":299", ""),
                       &other_size);
    same_section("only added_tokens", section, size, other, other_size);
    free(other);
    CHECK(run("awk '{ printf \"%%s\\r\\n\", $0 }' " FIXTURES "bf16/merges.txt >%s/merges.txt",
              copied(FIXTURES "bf16")) == 0); /* lines as Windows ends them */
    edit(test_tmp("variant"), "vocab.json", ", \"<|endoftext|>\": 299", "");
    write_in(test_tmp("variant"), "added_tokens.json", "{\r\n\t\"<|endoftext|>\": 299}", 25);
    other = section_of(test_tmp("variant"), &other_size);
    same_section("added_tokens.json", section, size, other, other_size);
    free(other);
    free(section);
}

/* What the section must hold, from how make_convert_fixtures.py numbers the tokens: stand-ins in
 * the order of Unicode, merges in the order of training, "<|endoftext|>". */
TEST(section_holds_the_vocabulary)
{
    size_t size = 0, merges_size, id, n_own = 0;
    SCOPED_BYTES section = section_of(FIXTURES "bf16", &size);
    SCOPED_TEXT merges = (char *)test_read(FIXTURES "bf16/merges.txt", &merges_size);
    const unsigned char *ends = section + 16;
    int byte;
    if (!CHECK(section && merges && get_u32(section) == 300 && get_u32(section + 4) == 43 &&
               get_u32(section + 8) == 1))
        return;
    const unsigned char *triples = ends + 4 * 300;
    const unsigned char *bytes = triples + 12 * 43 + 4;
    CHECK(get_u32(bytes - 4) == 299 && bytes + get_u32(section + 12) == section + size);
    CHECK(memcmp(bytes + get_u32(ends + 4 * 298), "<|endoftext|>", 13) == 0);
    for (byte = 0; byte < 256; byte++) {
        const int own = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
        id = own ? n_own++ : 0;
        if (own)
            CHECKF(get_u32(ends + 4 * id) == id + 1 && bytes[id] == byte, "id %zu", id);
    }
    for (byte = 0, id = n_own; byte < 256; byte++)
        if (!((byte > 32 && byte < 127) || (byte > 160 && byte != 173))) {
            CHECKF(get_u32(ends + 4 * id) == id + 1 && bytes[id] == byte, "id %zu", id);
            id++;
        }
    char *line = strchr(merges, '\n') + 1;
    for (id = 256; id < 299; id++, triples += 12) {
        char want[64], got[64];
        size_t n = 0, i, at = get_u32(ends + 4 * (id - 1));
        for (; *line != '\n'; line++) { /* without the blank; U+0120 is a space */
            if ((unsigned char)line[0] == 0xc4 && (unsigned char)line[1] == 0xa0)
                want[n++] = ' ', line++;
            else if (*line != ' ')
                want[n++] = *line;
        }
        line++;
        memcpy(got, bytes + at, get_u32(ends + 4 * id) - at);
        CHECKF(get_u32(ends + 4 * id) - at == n && memcmp(got, want, n) == 0, "token %zu", id);
        EQUAL(get_u32(triples + 8), id);
        for (i = 0, n = 0; i < 2; i++) { /* left and right joined are the token */
            const size_t part = get_u32(triples + 4 * i);
            const size_t from = part ? get_u32(ends + 4 * (part - 1)) : 0;
            const size_t length = get_u32(ends + 4 * part) - from;
            CHECK(memcmp(want + n, bytes + from, length) == 0);
            n += length;
        }
        CHECK(n == get_u32(ends + 4 * id) - at);
    }
}

/* added_tokens.json says which tokens are special, be they in vocab.json or not; special tokens
 * are spelled as they are, without stand-ins. */
TEST(added_tokens)
{
    static const struct {
        const char *json, *text;
    } cases[] = {
        {"{\"he\": 256}", "merges.txt, line 2 makes \"he\", a special token"},
        {"{\"h\": 72}", "the tokens \"i\" of vocab.json and \"h\" both have id 72"},
        {"{\"h\": 4000000}", "added_tokens.json: the id of \"h\" is not a whole number below"},
        {"{\"a\": }", "added_tokens.json: malformed JSON"},
        {"[1]", "added_tokens.json: no vocabulary"}};
    const char *dir = copied(FIXTURES "bf16");
    size_t i, size = 0, other_size = 0;
    SCOPED_CTX ctx = ATTN_ZERO;
    attn_tokenizer *t = NULL;
    const char *const path = test_text("%s/added_tokens.json", dir);
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_write(path, cases[i].json, strlen(cases[i].json));
        refused(dir, "", cases[i].text);
    }
    unsigned char *section = section_of(FIXTURES "bf16", &size);
    test_write(path, "{}", 2);
    unsigned char *other = section_of(dir, &other_size);
    same_section("no added tokens", section, size, other, other_size);
    free(other);
    free(section);

    test_write(path, "{\"\": 305, \"a b\": 300}", 21); /* one has no bytes, so it is no token */
    section = section_of(dir, &size);
    if (CHECK(section && get_u32(section) == 306 && get_u32(section + 8) == 2) &&
        OK(&ctx, attn_tokenizer_new(&ctx, &t, section, size))) {
        int32_t ids[8];
        size_t n = 0;
        n = 8;
        OK(&ctx, attn_encode_special(&ctx, ids, &n, t, "a b", 3));
        CHECK(n == 1 && ids[0] == 300);
    }
    attn_tokenizer_free(t);
    free(section);

    /* One begins another: the longest is found, as transformers 4.46 and 5.24 do. */
    test_write(path, "{\"new_1\": 300, \"new_10\": 301}", 29);
    section = section_of(dir, &size);
    t = NULL;
    if (CHECK(section) && OK(&ctx, attn_tokenizer_new(&ctx, &t, section, size))) {
        int32_t ids[24];
        size_t n = 24;
        OK(&ctx, attn_encode_special(&ctx, ids, &n, t, "new_10new_1new_100", 18));
        CHECK(n == 4 && ids[0] == 301 && ids[1] == 300 && ids[2] == 301);
    }
    attn_tokenizer_free(t);
    free(section);
}

/* How the lines of merges.txt end, and whether its first one names a version, changes nothing. */
TEST(lines_of_merges)
{
    static const char *const edits[] = {
        "tail -n +2",                             /* no version */
        "sed '3i\\\n'",                           /* blank lines */
        "awk 'NR > 1 { printf \"\\n\" } 1' ORS=", /* no end of the last line */
    };
    const char *dir = copied(FIXTURES "bf16");
    size_t size = 0, other_size = 0;
    unsigned char *section = section_of(FIXTURES "bf16", &size), *other;
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        RUNS("%s " FIXTURES "bf16/merges.txt >%s/merges.txt", edits[i], dir);
        other = section_of(dir, &other_size);
        same_section(edits[i], section, size, other, other_size);
        free(other);
    }
    free(section);
    CHECK(run("echo '#version: 0.2' >%s/merges.txt", dir) == 0);
    refused(dir, "", "merges.txt has no merges");
}

/* The longest stretch of a table without a free place: what a search may have to walk. */
static size_t longest_run(const name_table *table)
{
    size_t run_length = 0, longest = 0;
    for (size_t i = 0; i <= table->mask; i++) {
        run_length = table->slots[i].text ? run_length + 1 : 0;
        longest = run_length > longest ? run_length : longest;
    }
    return longest;
}

/* Keys that fall into one place of a table whose hash is known: here FNV-1a's, and the table's own
 * with a seed that is known. They are spread all the same, for the seed is another. */
TEST(hostile_names)
{
    enum { N_NAMES = 4096, SLOTS = 2 * N_NAMES, PLACE = SLOTS / 128 };
    static char names[N_NAMES][12];
    uint64_t seed, theirs = 0;
    int ends[2], which;
    pid_t child;
    for (which = 0; which < 2; which++) {
        arena memory = {NULL};
        attn_ctx ctx = ATTN_ZERO;
        name_table table;
        uint64_t number = 0;
        size_t value;
        for (size_t n = 0; n < N_NAMES; number++) {
            const size_t size =
                (size_t)snprintf(names[n], sizeof names[n], "%llx", TOOLS_LLU(number));
            uint64_t hash = which ? names_hash(0, names[n], size) : 14695981039346656037u;
            for (value = 0; !which && value < size; value++)
                hash = (hash ^ (unsigned char)names[n][value]) * 1099511628211u;
            n += ((hash ^ (which ? 0 : hash >> 32)) & (SLOTS - 1)) < PLACE;
        }
        OK(&ctx, names_init(&ctx, &memory, &table, N_NAMES));
        CHECK(table.mask == SLOTS - 1 && table.seed != 0);
        for (size_t n = 0; n < N_NAMES; n++) {
            value = n;
            CHECK(names_add(&table, names[n], strlen(names[n]), &value));
        }
        for (size_t n = 0; n < N_NAMES; n++)
            CHECK(names_find(&table, names[n], strlen(names[n]), &value) && value == n);
        value = longest_run(&table);
        CHECKF(value < 300, "%zu names in a row", value); /* about 40 where chance has its way */
        arena_free(&memory);
    }
    seed = system_seed();
    if (!CHECK(pipe(ends) == 0) || !CHECK((child = fork()) >= 0))
        return;
    if (child == 0) {
        seed = system_seed();
        _exit(write(ends[1], &seed, sizeof seed) != sizeof seed);
    }
    close(ends[1]);
    CHECK(read(ends[0], &theirs, sizeof theirs) == sizeof theirs && theirs != seed);
    close(ends[0]);
    CHECK(waitpid(child, &which, 0) == child && which == 0);
}

/* A safetensors header with blanks up to the most that one can have is as good as without. */
static void largest_header(void)
{
    const size_t most = 100000000;
    const char *dir = copied(FIXTURES "bf16");
    char path[600], *bytes, *made = (char *)malloc(most + 8);
    size_t size, head;
    FILE *file;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (CHECK((bytes = (char *)test_read(path, &size)) != NULL && made != NULL)) {
        head = 8 + (size_t)get_u64((unsigned char *)bytes);
        memcpy(made, bytes, head);
        memset(made + head, ' ', most + 8 - head);
        put_u64((unsigned char *)made, most);
        if (CHECK((file = fopen(path, "wb")) != NULL)) {
            CHECK(fwrite(made, 1, most + 8, file) == most + 8 &&
                  fwrite(bytes + head, 1, size - head, file) == size - head && !fclose(file));
            attn_model_close(converts_as("bf16", dir));
            EQUAL(remove(path), 0);
        }
    }
    free(made);
    free(bytes);
}

/* The bounds that keep the memory for a header, a configuration or a vocabulary below half a
 * gigabyte: on each side of each. */
TEST(bounds_of_texts)
{
    static const struct {
        const char *input, *file, *text; /* what is said of it and many zeros */
    } texts[] = {{FIXTURES "bf16", "vocab.json", "vocab.json: malformed JSON"},
                 {FIXTURES "bf16", "merges.txt", "is not two tokens with a blank"},
                 {FIXTURES "sharded", "tokenizer.json", "tokenizer.json: malformed JSON"},
                 {FIXTURES "sharded", "model.safetensors.index.json", "json: malformed JSON"}};
    static const char *const settings[] = {"added_tokens.json", "tokenizer_config.json",
                                           "special_tokens_map.json"};
    const size_t most = JSON_MAX_VALUES - 1; /* and the array itself */
    SCOPED_CTX ctx = ATTN_ZERO;
    arena memory = {NULL};
    json_value *root = NULL;
    vocab v;
    source s;
    size_t i;
    char *text = (char *)malloc(2 * most + 8), path[600];
    if (!CHECK(text != NULL))
        return;
    text[0] = '[';
    for (i = 0; i <= most; i++)
        memcpy(text + 1 + 2 * i, "0,", 2);
    memcpy(text + 2 * most, "]", 2);
    OK(&ctx, json_parse(&ctx, "a", text, 2 * most + 1, &root));
    CHECK(root && root->size == most && sizeof *root <= 48);
    free(root);
    memcpy(text + 2 * most, ",0]", 4);
    FAILS(FORMAT, "a holds more than 1048576 values",
          json_parse(&ctx, "a", text, 2 * most + 3, &root));
    free(text);

    /* files, without room on the disk */
    const char *dir = copied(FIXTURES "bf16");
    snprintf(path, sizeof path, "%s/config.json", dir);
    CHECK(truncate(path, 1 << 20) == 0);
    refused(dir, "", "config.json: malformed JSON");
    CHECK(truncate(path, (1 << 20) + 1) == 0);
    refused(dir, "", "config.json is larger than 1048576 bytes");
    for (i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        dir = copied(texts[i].input);
        snprintf(path, sizeof path, "%s/%s", dir, texts[i].file);
        CHECK(run("echo >>%s", path) == 0 && truncate(path, 1 << 26) == 0);
        refused(dir, "", texts[i].text);
        CHECK(truncate(path, (1 << 26) + 1) == 0);
        snprintf(path, sizeof path, "%s is larger than 67108864 bytes", texts[i].file);
        refused(dir, "", path);
    }
    for (i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        dir = copied(FIXTURES "bf16");
        snprintf(path, sizeof path, "%s/%s", dir, settings[i]);
        CHECK(run("echo >>%s", path) == 0 && truncate(path, 1 << 22) == 0);
        refused(dir, "", "json: malformed JSON");
        CHECK(truncate(path, (1 << 22) + 1) == 0);
        snprintf(path, sizeof path, "%s is larger than 4194304 bytes", settings[i]);
        refused(dir, "", path);
    }
    largest_header();

    /* tokens and merges */
    ctx.status = ATTN_OK;
    OK(&ctx, vocab_init(&ctx, &v, &memory, "v", VOCAB_MAX_TOKENS, VOCAB_MAX_TOKENS));
    FAILS(FORMAT, "v: a vocabulary of 1048577 tokens",
          vocab_init(&ctx, &v, &memory, "v", VOCAB_MAX_TOKENS + 1, 1));
    FAILS(FORMAT, "up to 1048577 merges",
          vocab_init(&ctx, &v, &memory, "v", 1, VOCAB_MAX_TOKENS + 1));
    arena_free(&memory);
    dir = variant(FIXTURES "bf16", "vocab.json", "\"<|endoftext|>\": 299",
                  "\"<|endoftext|>\": 1048575");
    CHECK(run(TEST_BUILD "/attn-convert %s %s", dir, test_tmp("x.attn")) == 0);
    dir = variant(FIXTURES "bf16", "vocab.json", "\"<|endoftext|>\": 299",
                  "\"<|endoftext|>\": 1048576");
    refused(dir, "", "is not a whole number below 1048576");

    /* tensors */
    memset(&s, 0, sizeof s);
    ctx.status = ATTN_OK;
    s.capacity = SOURCE_MAX_TENSORS;
    s.n_tensors = s.capacity - 1;
    s.tensors = (source_tensor *)calloc(s.capacity, sizeof *s.tensors);
    CHECK(s.tensors && source_add(&ctx, &s) == &s.tensors[s.capacity - 1] &&
          s.n_tensors == SOURCE_MAX_TENSORS);
    free(s.tensors);
    CHECK(!source_add(&ctx, &s));
    CHECK(strstr(ctx.message, "the checkpoint has more than 1048576 tensors") != NULL);

    /* GGUF's header and its lists; a value of no use here may be any size. What the bounds let pass
     * leads to another message, for nothing is where it was. */
    text = (char *)test_read(FIXTURES "tiny.gguf", &i);
    if (CHECK(text && find_bytes(text, i, "general.name"))) {
        const uint64_t rest = 100000000 - (uint64_t)(find_bytes(text, i, "general.name") - text);
        refused_gguf("general.name", 16, rest - 24, "a key's name ends beyond byte 100000000");
        refused_gguf("general.name", 16, rest - 23, "general.name ends beyond byte 100000000");
    }
    free(text);
    refused_gguf("tokenizer.ggml.tokens", 29, 1048576,
                 "as the size of tokenizer.ggml.tokens is more than");
    refused_gguf("tokenizer.ggml.tokens", 29, 1048577,
                 "tokenizer.ggml.tokens has 1048577 elements; 1048576 is the most");
    refused_gguf("GGUF", 24, 65535, "the type of");
    refused_gguf("GGUF", 24, 65536, "a key's name has 65536 bytes; GGUF allows 65535");
}

/* What the readers are made of, where a file that shows it would be too large to keep. */
TEST(parts_of_the_readers)
{
    SCOPED_CTX ctx = ATTN_ZERO;
    arena memory = {NULL};
    vocab_token token = ATTN_ZERO;
    unsigned char *section = NULL;
    char *bytes = NULL;
    size_t size = 0;
    FILE *file;
    CHECK(strcmp(base_name("a/b.c"), "b.c") == 0 && strcmp(base_name("a\\b.c"), "b.c") == 0);
    CHECK(strcmp(base_name("a/b/"), "b/") == 0 && strcmp(base_name("b"), "b") == 0);
    char *path = arena_path(&ctx, &memory, "a", "b");
    CHECK(path && strcmp(path, "a/b") == 0);
    path = arena_path(&ctx, &memory, "a/", "b");
    CHECK(path && strcmp(path, "a/b") == 0);
    CHECK(arena_alloc(&ctx, &memory, SIZE_MAX / 4, 8) == NULL);
    FAILS(MEMORY, "no memory for", ctx.status);
    ctx.status = ATTN_OK;
    CHECK(arena_alloc(&ctx, &memory, 5, 0) != NULL);

    test_write(test_tmp("long"), "123456789", 9);
    if (CHECK((file = fopen(test_tmp("long"), "rb")) != NULL)) {
        OK(&ctx, read_all(&ctx, &memory, file, "a text", 9, &bytes, &size));
        CHECK(bytes && size == 9 && strcmp(bytes, "123456789") == 0);
        rewind(file);
        FAILS(FORMAT, "a text is larger than 8 bytes",
              read_all(&ctx, &memory, file, "a text", 8, &bytes, &size));
        CHECK(bytes == NULL);
        fclose(file);
    }
    arena_free(&memory);

    /* a section's numbers have 32 bits */
    vocab v = {.name = "many.json", .n_tokens = 1, .tokens = &token};
    token.size = (size_t)UINT32_MAX;
    if (sizeof(size_t) > 4) {
        const size_t most = (size_t)INT32_MAX;
        token.size++;
        FAILS(FORMAT, "many.json: the vocabulary is larger than 4 GB",
              vocab_section(&ctx, &v, 1, &section, &size));
        token.size = 1;
        FAILS(FORMAT, "larger than", vocab_section(&ctx, &v, most + 1, &section, &size));
        v.n_merges = most + 1;
        FAILS(FORMAT, "larger than", vocab_section(&ctx, &v, 1, &section, &size));
        CHECK(section == NULL);
    }
}

/* >> Every cut and every bit ===================================================================
 *
 * Each of these files is cut at every byte of its header and at every boundary behind it, and each
 * bit of the header is flipped (with a sanitizer: every seventh), in a copy of the checkpoint.
 * Whatever comes of it is a message or a model that opens, with at most half a gigabyte more of
 * memory than the tests had before. */

/* How many things are in the directory that a path leads into. */
static int neighbours(const char *path)
{
    DIR *dir;
    struct dirent *entry;
    int n = 0;
    if ((dir = opendir(test_text("%.*s", (int)(strrchr(path, '/') - path), path))) == NULL)
        return -1;
    while ((entry = readdir(dir)) != NULL)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* The program's own function, on a checkpoint; 1 if the answer was a model. */
static int convert_here(const char *input, const char *what, size_t at)
{
    static conversion c;
    char output[512];
    attn_model *model = NULL;
    attn_ctx ctx = ATTN_ZERO;
    snprintf(output, sizeof output, "%s.attn", input);
    memset(&c, 0, sizeof c);
    c.ctx.n_threads = ctx.n_threads = 1;
    c.o.input = input;
    c.o.output = output;
    convert_set_defaults(&c.o);
    const attn_status status = convert(&c);
    if (status == ATTN_OK)
        OK(&ctx, attn_model_open(&ctx, &model, output, NULL));
    else
        CHECKF(c.ctx.message[0] && status != ATTN_E_MEMORY && !exists(output), "%s, %zu: %s, %s",
               what, at, attn_status_name(status), c.ctx.message);
    if (status == ATTN_OK)
        CHECKF(remove(output) == 0 && model, "%s, %zu: no model", what, at);
    CHECKF(neighbours(input) == 1, "%s, %zu: something is left behind", what, at);
    attn_model_close(model);
    end_conversion(&c);
    attn_ctx_free(&ctx);
    return status == ATTN_OK;
}

/* The same for a vocabulary alone. */
static int read_vocabulary(const char *dir, const char *what, size_t at)
{
    attn_tokenizer *tokenizer = NULL;
    unsigned char *section = NULL;
    attn_ctx ctx = ATTN_ZERO;
    size_t size;
    attn_status status = vocab_read(&ctx, dir, &section, &size, NULL);
    if (status == ATTN_OK)
        OK(&ctx, attn_tokenizer_new(&ctx, &tokenizer, section, size));
    else
        CHECKF(ctx.message[0] && status != ATTN_E_MEMORY, "%s, %zu: %s, %s", what, at,
               attn_status_name(status), ctx.message);
    attn_tokenizer_free(tokenizer);
    attn_ctx_free(&ctx);
    free(section);
    return status == ATTN_OK;
}

typedef struct damaged {
    const char *input, *file; /* file: of the directory, or NULL */
    int (*read)(const char *path, const char *what, size_t at);
    const char *last; /* the header ends 64 bytes behind the last of these; NULL: the file's end */
    size_t size;      /* of the header, if that is known */
    size_t harmless;  /* how many cuts leave a whole file */
} damaged;

/* Where the header ends. */
static size_t header_end(const damaged *d, char *bytes, size_t size)
{
    size_t end = 0;
    if (d->file && strstr(d->file, ".safetensors") && !strstr(d->file, ".json"))
        return 8 + (size_t)get_u64((unsigned char *)bytes);
    if (!d->last)
        return d->size ? d->size : size;
    for (size_t i = 0; i + strlen(d->last) < size; i++)
        if (memcmp(bytes + i, d->last, strlen(d->last)) == 0)
            end = i + 64;
    return end;
}

/* Half a gigabyte more of addresses than now, where the system tells how many there are: 1 then,
 * and `before` is what to go back to. A sanitizer wants more than that for itself. */
static int bound_memory(struct rlimit *before)
{
    FILE *file = TEST_SANITIZED ? NULL : fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    struct rlimit bound;
    int good = file && fscanf(file, "%lu", &pages) == 1 && getrlimit(RLIMIT_AS, before) == 0;
    if (file)
        fclose(file);
    bound.rlim_max = before->rlim_max;
    bound.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)1 << 29);
    return good && setrlimit(RLIMIT_AS, &bound) == 0;
}

/* A copy of a checkpoint to damage, alone in a directory, in memory where there is such a place. */
typedef struct scene {
    char dir[500], copy[600], path[700]; /* path: of the file that is damaged */
    char *bytes;
    size_t size;
    struct rlimit before;
    int quiet, bounded;
} scene;

/* `text`: what the file shall hold instead, or NULL. */
static int scene_begin(scene *s, const char *input, const char *file, const char *text)
{
    memset(s, 0, sizeof *s);
    snprintf(s->dir, sizeof s->dir, "%s/attn-test.%lu",
             exists("/dev/shm") ? "/dev/shm" : TEST_BUILD, system_process());
    snprintf(s->copy, sizeof s->copy, "%s/copy", s->dir);
    snprintf(s->path, sizeof s->path, "%s%s%s", s->copy, file ? "/" : "", file ? file : "");
    if (!CHECK(run("rm -rf %s && mkdir %s && cp -r " FIXTURES "%s %s && chmod -R u+w %s", s->dir,
                   s->dir, input, s->copy, s->copy) == 0))
        return 0;
    if (text)
        test_write(s->path, text, strlen(text));
    if (!CHECK((s->bytes = (char *)test_read(s->path, &s->size)) != NULL))
        return 0;
    s->quiet = dup(STDERR_FILENO); /* notes go nowhere */
    CHECK(s->quiet >= 0 && freopen("/dev/null", "w", stderr) != NULL);
    s->bounded = bound_memory(&s->before);
    return 1;
}

static void scene_end(scene *s)
{
    free(s->bytes);
    if (s->bounded)
        setrlimit(RLIMIT_AS, &s->before);
    fflush(stderr);
    CHECK(dup2(s->quiet, STDERR_FILENO) >= 0 && close(s->quiet) == 0);
    CHECK(run("rm -rf %s", s->dir) == 0);
}

static void every_cut_and_bit(const damaged *d)
{
    scene s;
    size_t n_whole = 0;
    if (!scene_begin(&s, d->input, d->file, NULL))
        return;
    size_t end = header_end(d, s.bytes, s.size);
    CHECKF(end > 30 && end <= s.size, "%s: %zu of %zu", s.path, end, s.size);
    size_t n_good = (size_t)d->read(s.copy, s.path, s.size);
    CHECKF(n_good == 1, "%s cannot be read by itself", s.path);
    int file = open(s.path, O_WRONLY);
    for (size_t at = 0; CHECK(file >= 0) && at < 8 * end; at += test_full() ? 1 : 13) {
        const char other = (char)(s.bytes[at / 8] ^ 1 << at % 8);
        if (!CHECK(pwrite(file, &other, 1, (off_t)(at / 8)) == 1))
            break;
        n_good += (size_t)d->read(s.copy, s.path, at);
        if (!CHECK(pwrite(file, &s.bytes[at / 8], 1, (off_t)(at / 8)) == 1))
            break;
    }
    CHECKF(n_good > 1 && n_good < 8 * end, "%s: %zu good", s.path, n_good);
    for (size_t at = s.size; at-- > 0;) /* the weights begin and end at multiples of 8 */
        if (at < end || (at - end) % 8 == 0 || at + 1 == s.size) {
            if (!CHECK(ftruncate(file, (off_t)at) == 0))
                break;
            n_whole += (size_t)d->read(s.copy, s.path, at);
        }
    CHECKF(n_whole == d->harmless, "%s: %zu cuts are harmless, expected %zu", s.path, n_whole,
           d->harmless);
    close(file);
    scene_end(&s);
}

TEST(every_cut_and_bit_of_safetensors)
{
    static const damaged one = {"bf16", "model.safetensors", convert_here, NULL, 0, 0};
    static const damaged shard = {
        "sharded", "model-00001-of-00002.safetensors", convert_here, NULL, 0, 0};
    every_cut_and_bit(&one);
    every_cut_and_bit(&shard);
}

TEST(every_cut_and_bit_of_json)
{
    static const damaged config = {"bf16", "config.json", convert_here, NULL, 0, 0};
    static const damaged index = {"sharded", "model.safetensors.index.json", convert_here, NULL, 0,
                                  0};
    every_cut_and_bit(&config);
    every_cut_and_bit(&index);
}

TEST(every_cut_and_bit_of_gguf)
{
    static const damaged d = {"tiny.gguf", NULL, convert_here, "output_norm", 0, 0};
    every_cut_and_bit(&d);
}

TEST(every_cut_and_bit_of_llmc)
{
    static const damaged v3 = {"v3.bin", NULL, convert_here, NULL, LLMC_HEADER, 0};
    static const damaged v5 = {"v5.bin", NULL, convert_here, NULL, 64, 0}; /* then it is as v3 */
    every_cut_and_bit(&v3);
    every_cut_and_bit(&v5);
}

TEST(every_cut_and_bit_of_vocabularies)
{
    static const damaged spellings = {"bf16", "vocab.json", read_vocabulary, NULL, 0, 0};
    static const damaged merges = {
        "bf16", "merges.txt",  read_vocabulary, NULL,
        0,      2 * 43 - 1 + 1}; /* each of 43 lines, without its end and with
                                    it, but for the last; and half of one */
    static const damaged whole = {"sharded", "tokenizer.json", read_vocabulary, NULL, 0, 0};
    every_cut_and_bit(&spellings);
    every_cut_and_bit(&merges);
    every_cut_and_bit(&whole);
}

/* >> Every size ================================================================================
 *
 * 0, 1, 2^31, 2^32, 2^63 and 2^64-1 in place of every other number of a text, and of every number
 * in a header of bytes that says how many, how long, where or what. What comes of it is as above;
 * those that make a model are counted, for each needs a reason. */

static const uint64_t odd_sizes[] = {
    0, 1, (uint64_t)1 << 31, (uint64_t)1 << 32, (uint64_t)1 << 63, UINT64_MAX};
enum { N_ODD_SIZES = sizeof odd_sizes / sizeof odd_sizes[0] };

/* The next number of a JSON text behind *at that is in no string: where it is, and its length. */
static size_t next_number(const char *text, size_t size, size_t *at)
{
    size_t i = *at, n = 0;
    int quoted = 0;
    for (; i < size && (quoted || (text[i] != '-' && (text[i] < '0' || text[i] > '9'))); i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
    }
    for (*at = i; i < size && text[i] && strchr("0123456789+-.eE", text[i]); i++)
        n++;
    return n;
}

typedef struct sized {
    const char *input, *file, *text; /* text: what the file shall hold, if that is not there */
    int (*read)(const char *path, const char *what, size_t at);
    size_t n_numbers, n_good;
} sized;

static void every_size_of_text(const sized *d)
{
    scene s;
    size_t head = 0, n, m, n_numbers = 0, n_good = 0;
    if (!scene_begin(&s, d->input, d->file, d->text))
        return;
    size_t end = s.size;
    if (!d->text && strcmp(d->file, "model.safetensors") == 0) {
        head = 8;
        end = 8 + (size_t)get_u64((unsigned char *)s.bytes);
    }
    CHECKF(d->read(s.copy, s.path, 0) == 1, "%s cannot be read by itself", s.path);
    char *made = (char *)malloc(s.size + 24);
    for (size_t at = head; CHECK(made != NULL) && (n = next_number(s.bytes, end, &at)) > 0;
         at += n) {
        n_numbers++;
        for (size_t i = 0; i < N_ODD_SIZES; i++) {
            memcpy(made, s.bytes, at);
            m = (size_t)snprintf(made + at, 24, "%llu", TOOLS_LLU(odd_sizes[i]));
            memcpy(made + at + m, s.bytes + at + n, s.size - at - n);
            if (head)
                put_u64((unsigned char *)made, end - 8 + m - n);
            if (m == n && memcmp(made + at, s.bytes + at, n) == 0)
                continue;
            test_write(s.path, made, s.size + m - n);
            n_good += (size_t)d->read(s.copy, s.path, at);
        }
    }
    CHECKF(n_numbers == d->n_numbers && n_good == d->n_good,
           "%s: %zu numbers, %zu good; expected %zu, %zu", s.path, n_numbers, n_good, d->n_numbers,
           d->n_good);
    free(made);
    scene_end(&s);
}

TEST(every_size_of_texts)
{
    static const sized all[] = {
        /* good: one head; tokens 0 and 1 that begin a text, end it, or end it as well */
        {"bf16", "config.json",
         "{\"vocab_size\": 300, \"n_ctx\": 8, \"n_embd\": 16, \"n_head\": 2, \"n_layer\": 1,\n"
         "\"n_inner\": 64, \"layer_norm_epsilon\": 1e-5, \"bos_token_id\": 299,\n"
         "\"eos_token_id\": [298, 299]}",
         convert_here, 10, 1 + 2 + 2 + 2},
        /* here any n_ctx is good, beside n_positions */
        {"bf16", "config.json", NULL, convert_here, 9, 1 + 2 + 2 + 6},
        {"bf16", "model.safetensors", NULL, convert_here, 58, 0},
        /* the sum of the sizes, which nobody needs */
        {"sharded", "model.safetensors.index.json", NULL, convert_here, 1, 6},
        {"bf16", "vocab.json", NULL, read_vocabulary, 300, 0},
        {"bf16", "added_tokens.json", "{\"<|a|>\": 300, \"<|b|>\": 301}", read_vocabulary, 2, 0},
        {"sharded", "tokenizer.json", NULL, read_vocabulary, 301, 0}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        every_size_of_text(&all[i]);
}

/* Places of numbers in a header, and their widths in bytes. */
typedef struct places_of {
    size_t n, at[2000], width[2000];
} places_of;

static void place(places_of *p, size_t at, size_t width)
{
    if (!CHECK(p->n < 2000))
        return;
    p->at[p->n] = at;
    p->width[p->n++] = width;
}

/* A string of a GGUF file; what follows it. */
static size_t place_string(places_of *p, const unsigned char *bytes, size_t at)
{
    place(p, at, 8);
    return at + 8 + (size_t)get_u64(bytes + at);
}

/* A value; the numbers of an array are not sizes. */
static size_t place_value(places_of *p, const unsigned char *bytes, size_t at, unsigned type,
                          int in_array)
{
    static const unsigned char widths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    size_t i, n;
    if (type == 8)
        return place_string(p, bytes, at);
    if (type == 9) {
        place(p, at, 4);
        place(p, at + 4, 8);
        type = get_u32(bytes + at);
        n = (size_t)get_u64(bytes + at + 4);
        for (at += 12, i = 0; i < n; i++)
            at = place_value(p, bytes, at, type, 1);
        return at;
    }
    if (!in_array)
        place(p, at, widths[type]);
    return at + widths[type];
}

/* Every count, length, dimension, offset, type and key's number of a GGUF file's header. */
static void place_gguf(places_of *p, const unsigned char *bytes)
{
    const uint64_t n_tensors = get_u64(bytes + 8), n_keys = get_u64(bytes + 16);
    size_t at = 24, n;
    place(p, 8, 8);
    place(p, 16, 8);
    for (uint64_t i = 0; i < n_keys; i++) {
        at = place_string(p, bytes, at);
        place(p, at, 4);
        at = place_value(p, bytes, at + 4, get_u32(bytes + at), 0);
    }
    for (uint64_t i = 0; i < n_tensors; i++) {
        at = place_string(p, bytes, at);
        place(p, at, 4);
        n = get_u32(bytes + at);
        for (at += 4; n > 0; n--, at += 8)
            place(p, at, 8);
        place(p, at, 4);
        place(p, at + 4, 8);
        at += 12;
    }
}

TEST(every_size_of_bytes)
{
    static const struct {
        const char *input, *file;
        size_t n_words, n_good; /* 0 words: a header of GGUF's */
    } all[] = {{"bf16", "model.safetensors", 1, 0},
               {"v3.bin", NULL, 8, 2}, /* a vocabulary of one token and much padding; one head */
               {"v5.bin", NULL, 8, 2},
               /* an epsilon of 1e-45; tokens 0 and 1 that begin a text or end it; two keys that
                * mean nothing here; four tensors in f16 that were in f32 and are numbers still */
               {"tiny.gguf", NULL, 0, 1 + 2 + 2 + (1 + 6) + 4}};
    static places_of p;
    size_t n_good;
    scene s;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const size_t width = all[i].file ? 8 : 4;
        if (!scene_begin(&s, all[i].input, all[i].file, NULL))
            return;
        p.n = n_good = 0;
        for (size_t k = 0; k < all[i].n_words; k++)
            place(&p, width * k, width);
        if (!all[i].n_words)
            place_gguf(&p, (unsigned char *)s.bytes);
        CHECKF(convert_here(s.copy, s.path, 0) == 1, "%s cannot be read by itself", s.path);
        int file = open(s.path, O_WRONLY);
        for (size_t k = 0; CHECK(file >= 0) && k < p.n; k++) {
            for (size_t v = 0; v < N_ODD_SIZES; v++) {
                unsigned char number[8];
                put_u64(number, odd_sizes[v]);
                if (memcmp(number, s.bytes + p.at[k], p.width[k]) == 0)
                    continue;
                if (p.width[k] < 8 && odd_sizes[v] >> 32 && odd_sizes[v] != UINT64_MAX)
                    continue;
                CHECK(pwrite(file, number, p.width[k], (off_t)p.at[k]) == (ssize_t)p.width[k]);
                n_good += (size_t)convert_here(s.copy, s.path, p.at[k]);
            }
            CHECK(pwrite(file, s.bytes + p.at[k], p.width[k], (off_t)p.at[k]) ==
                  (ssize_t)p.width[k]);
        }
        close(file);
        CHECKF(n_good == all[i].n_good, "%s: %zu of %zu numbers good, expected %zu", s.path, n_good,
               p.n, all[i].n_good);
        scene_end(&s);
    }
}
