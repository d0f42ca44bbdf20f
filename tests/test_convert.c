/* The converter: what comes out holds the numbers that went in, and what cannot be converted is
 * refused with a message that says why. The checkpoints in tests/fixtures/convert and the values
 * expected of them come from numpy (make_convert_fixtures.py); the checks of Hugging Face
 * checkpoints find tensors by searching the header's text, past every reader of the project. Most
 * cases run the program; what needs a hundred thousand runs calls its functions. */
#define ATTN__IMPLEMENTED
#define main    convert_main
#define options convert_options /* names that are used here too */
#define part    convert_part
#define table   convert_table
#define run     convert_run
#include "tools/convert/attn-convert.c"
#undef main
#undef options
#undef part
#undef table
#undef run
#include "command.h"
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

SUITE("convert");

#define FIXTURES "tests/fixtures/convert/"
#define STORIES  "examples/tiny-stories"

/* >> Running the programs ====================================================================== */

static int exists(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0;
}

/* Whether a run left an unfinished file behind. */
static int leftovers(void)
{
    char path[512];
    DIR *dir;
    struct dirent *entry;
    int n = 0;
    snprintf(path, sizeof path, "%s", test_tmp(""));
    if (!CHECK((dir = opendir(path)) != NULL))
        return 1;
    while ((entry = readdir(dir)) != NULL)
        n += strstr(entry->d_name, ".part") != NULL;
    closedir(dir);
    return n;
}

/* attn-convert must exit with 1, say one line with this text, and leave nothing behind. */
static int refused(const char *input, const char *options, const char *text)
{
    char output[512], *line;
    int code;
    snprintf(output, sizeof output, "%s", test_tmp("refused.attn"));
    remove(output);
    code = run(TEST_BUILD "/attn-convert '%s' %s %s", input, output, options);
    line = err;
    while (line && strncmp(line, "note: ", 6) == 0 && strchr(line, '\n'))
        line = strchr(line, '\n') + 1;
    return CHECKF(code == 1, "exit code %d, expected 1 for \"%s\": %s", code, text, err) &
           CHECKF(line && strncmp(line, "attn-convert: ", 14) == 0 && strstr(line, text) &&
                      strchr(line, '\n') == err + err_size - 1,
                  "said \"%s\", expected one line with \"%s\"", err, text) &
           CHECKF(!exists(output), "there is an output in spite of \"%s\"", text) &
           CHECKF(!leftovers(), "an unfinished file is left after \"%s\"", text);
}

/* Converts and opens. NULL after a failure. */
static attn_model *converted(attn_ctx *ctx, const char *input, const char *options)
{
    attn_model *model = NULL;
    char output[512];
    int code;
    snprintf(output, sizeof output, "%s", test_tmp("converted.attn"));
    code = run(TEST_BUILD "/attn-convert '%s' %s %s", input, output, options);
    memset(ctx, 0, sizeof *ctx);
    if (CHECKF(code == 0, "%s %s: exit code %d: %s", input, options, code, err))
        OK(ctx, attn_model_open(ctx, &model, output, NULL));
    CHECK(!leftovers());
    return model;
}

/* >> Files to damage =========================================================================== */

/* A copy of a checkpoint under a name of its own. */
static const char *copied(const char *input)
{
    static char path[512];
    snprintf(path, sizeof path, "%s", test_tmp("variant"));
    CHECK(run("rm -rf %s && cp -r %s %s && chmod -R u+w %s", path, input, path, path) == 0);
    return path;
}

static char *find_bytes(char *bytes, size_t size, const char *text)
{
    const size_t n = strlen(text);
    size_t i;
    for (i = 0; i + n <= size; i++)
        if (memcmp(bytes + i, text, n) == 0)
            return bytes + i;
    return NULL;
}

/* Replaces the first occurrence of a text in dir/file. In a safetensors file the text belongs to
 * the header, whose size is corrected. */
static void edit(const char *dir, const char *file, const char *find, const char *replace)
{
    char path[600], *bytes, *at, *made;
    const size_t n = strlen(find), m = strlen(replace);
    size_t size, head;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    bytes = (char *)test_read(path, &size);
    at = bytes ? find_bytes(bytes, size, find) : NULL;
    if (CHECKF(at != NULL, "%s holds no %s", path, find) &&
        CHECK((made = (char *)malloc(size + m)) != NULL)) {
        head = (size_t)(at - bytes);
        memcpy(made, bytes, head);
        memcpy(made + head, replace, m);
        memcpy(made + head + m, at + n, size - head - n);
        if (strstr(file, ".safetensors") && !strstr(file, ".json"))
            put_u64((unsigned char *)made, get_u64((unsigned char *)made) + m - n);
        test_write(path, made, size - n + m);
        free(made);
    }
    free(bytes);
}

/* A fresh copy with one edit. */
static const char *variant(const char *input, const char *file, const char *find,
                           const char *replace)
{
    const char *dir = copied(input);
    edit(dir, file, find, replace);
    return dir;
}

/* >> Values ==================================================================================== */

/* A tensor of the model must hold exactly these numbers, in this order. */
static int same_values(const attn_model *model, const char *name, const float *want, size_t count)
{
    attn_ctx ctx;
    attn_tensor t;
    size_t i;
    int good = 1;
    memset(&ctx, 0, sizeof ctx);
    memset(&t, 0, sizeof t);
    if (!OK(&ctx, attn_model_tensor(&ctx, &t, model, name)))
        return 0;
    good = CHECKF(attn_count(t) == count, "%s has %zu numbers, expected %zu", name, attn_count(t),
                  count);
    for (i = 0; i < count && good; i++) {
        const float got = ((const float *)t.data)[i];
        good = CHECKF(got == want[i], "%s, number %zu: %.9g, expected %.9g", name, i, (double)got,
                      (double)want[i]);
    }
    attn_tensor_free(&ctx, &t);
    attn_ctx_free(&ctx);
    return good;
}

/* Every tensor of a .ref file, and no other one. */
static void same_as_reference(const attn_model *model, const char *name)
{
    size_t size, at = 0, n = 0;
    unsigned char *bytes;
    char path[512];
    snprintf(path, sizeof path, FIXTURES "%s.ref", name);
    bytes = test_read(path, &size);
    if (!CHECKF(bytes != NULL, "cannot read %s", path))
        return;
    while (at + 72 <= size) {
        const size_t count = (size_t)get_u64(bytes + at + 64);
        float *want = (float *)malloc(count * sizeof(float));
        if (CHECK(want && count * 4 <= size - at - 72)) {
            memcpy(want, bytes + at + 72, count * 4);
            if (!same_values(model, (const char *)bytes + at, want, count))
                n = SIZE_MAX / 2;
        }
        free(want);
        at += 72 + 4 * count;
        n++;
    }
    CHECKF(n == attn_model_n_tensors(model), "%s: %zu tensors, expected %zu", name,
           attn_model_n_tensors(model), n);
    free(bytes);
}

typedef struct expected {
    const char *input, *options;
    uint32_t n_ctx, d_model, n_head, n_layer, d_mlp;
    double eps;
    int tied, bos, has_tokenizer;
} expected;

TEST(every_format_keeps_its_numbers)
{
    static const expected cases[] = {
        {"sharded", "", 12, 24, 3, 2, 40, 1e-6, 0, 299, 1},
        {"bf16", "", 8, 16, 2, 1, 64, 1e-5, 1, 299, 1},
        {"tiny.gguf", "", 16, 32, 4, 2, 64, 2e-5, 1, 299, 1},
        {"tiny.gguf", "--no-tokenizer", 16, 32, 4, 2, 64, 2e-5, 1, 299, 0},
        {"v3.bin", "", 8, 16, 2, 2, 64, 1e-5, 1, -1, 0},
        {"v3.bin", "--tokenizer " FIXTURES "strings", 8, 16, 2, 2, 64, 1e-5, 1, 299, 1},
        {"v5.bin", "", 8, 16, 2, 2, 64, 1e-5, 1, -1, 0}};
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const expected *e = &cases[i];
        const attn_config *c;
        char path[512];
        attn_ctx ctx;
        attn_model *model;
        snprintf(path, sizeof path, FIXTURES "%s", e->input);
        if ((model = converted(&ctx, path, e->options)) == NULL)
            continue;
        c = attn_model_config(model);
        CHECKF(c->n_vocab == 300 && c->n_ctx == e->n_ctx && c->d_model == e->d_model &&
                   c->n_head == e->n_head && c->n_layer == e->n_layer && c->d_mlp == e->d_mlp &&
                   c->ln_eps == (float)e->eps && c->tied == e->tied && c->bos == e->bos &&
                   c->eos == e->bos,
               "%s: another configuration", e->input);
        CHECKF((attn_model_tokenizer(model) != NULL) == e->has_tokenizer, "%s: tokenizer",
               e->input);
        same_as_reference(model, e->input);
        attn_model_close(model);
        CHECKF(!strstr(err, "note:") || e->bos < 0, "%s: %s", e->input, err);
    }
    forget();
}

/* Where the header of a safetensors file puts a tensor, found as text. */
static const unsigned char *find_tensor(char *file, size_t size, const char *name, size_t *n)
{
    char quoted[128], *at;
    unsigned long long begin, end;
    const uint64_t head = get_u64((unsigned char *)file);
    snprintf(quoted, sizeof quoted, "\"%s\"", name);
    if ((at = find_bytes(file, size, quoted)) == NULL ||
        (at = strstr(at, "\"data_offsets\"")) == NULL ||
        sscanf(strchr(at, '['), "[%llu,%llu", &begin, &end) != 2)
        return NULL;
    *n = (size_t)(end - begin);
    return (unsigned char *)file + 8 + head + begin;
}

static double half_value(unsigned bits)
{
    const int exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 1023);
    const double size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return bits >> 15 ? -size : size;
}

/* Each tensor of a checkpoint in f32 or f16 against the converted one. */
static void same_as_safetensors(const attn_model *model, const char *dir)
{
    static const char *const names[][2] = {{"embed.W_E", "wte.weight"},
                                           {"pos_embed.W_pos", "wpe.weight"},
                                           {"ln_final.w", "ln_f.weight"},
                                           {"ln_final.b", "ln_f.bias"},
                                           {"ln1.w", "ln_1.weight"},
                                           {"ln1.b", "ln_1.bias"},
                                           {"ln2.w", "ln_2.weight"},
                                           {"ln2.b", "ln_2.bias"},
                                           {"attn.W_QKV", "attn.c_attn.weight"},
                                           {"attn.b_QKV", "attn.c_attn.bias"},
                                           {"attn.W_O", "attn.c_proj.weight"},
                                           {"attn.b_O", "attn.c_proj.bias"},
                                           {"mlp.W_in", "mlp.c_fc.weight"},
                                           {"mlp.b_in", "mlp.c_fc.bias"},
                                           {"mlp.W_out", "mlp.c_proj.weight"},
                                           {"mlp.b_out", "mlp.c_proj.bias"}};
    const attn_config *c = attn_model_config(model);
    char path[600], ours[64], theirs[64], *file;
    size_t size, i, k, n;
    uint32_t layer;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (!CHECKF((file = (char *)test_read(path, &size)) != NULL, "cannot read %s", path))
        return;
    for (i = 0; i < sizeof names / sizeof names[0]; i++)
        for (layer = 0; layer < (i < 4 ? 1 : c->n_layer); layer++) {
            const unsigned char *data;
            attn_tensor t;
            attn_ctx ctx;
            float *want;
            int wide;
            snprintf(ours, sizeof ours, i < 4 ? "%s" : "blocks.%s", names[i][0]);
            snprintf(theirs, sizeof theirs, "%s", names[i][1]);
            if (i >= 4) {
                snprintf(ours, sizeof ours, "blocks.%u.%s", (unsigned)layer, names[i][0]);
                snprintf(theirs, sizeof theirs, "h.%u.%s", (unsigned)layer, names[i][1]);
            }
            memset(&ctx, 0, sizeof ctx);
            memset(&t, 0, sizeof t);
            data = find_tensor(file, size, theirs, &n);
            if (!CHECKF(data != NULL, "no %s in %s", theirs, path) ||
                !OK(&ctx, attn_model_tensor(&ctx, &t, model, ours)))
                continue;
            wide = n == 4 * attn_count(t);
            CHECK(wide || n == 2 * attn_count(t));
            n = attn_count(t);
            attn_tensor_free(&ctx, &t);
            attn_ctx_free(&ctx);
            if (!CHECK((want = (float *)malloc(n * sizeof(float))) != NULL))
                continue;
            if (wide)
                memcpy(want, data, 4 * n);
            for (k = 0; !wide && k < n; k++)
                want[k] = (float)half_value((unsigned)data[2 * k] | (unsigned)data[2 * k + 1] << 8);
            same_values(model, ours, want, n);
            free(want);
        }
    free(file);
}

static attn_dtype dtype_of(const attn_model *model, const char *name)
{
    attn_ctx ctx;
    attn_tensor_info info;
    size_t i;
    memset(&ctx, 0, sizeof ctx);
    for (i = 0; i < attn_model_n_tensors(model); i++)
        if (attn_model_tensor_info(&ctx, &info, model, i) == ATTN_OK &&
            strcmp(info.name, name) == 0)
            return info.dtype;
    test_fail(__FILE__, __LINE__, "no tensor %s", name);
    return ATTN_I32;
}

TEST(included_model)
{
    attn_ctx ctx;
    attn_model *model = converted(&ctx, STORIES, "");
    if (!model)
        return;
    CHECK(attn_model_config(model)->n_vocab == 2048);
    CHECK(attn_model_config(model)->bos == 2047 && attn_model_config(model)->eos == 2047);
    CHECK(dtype_of(model, "embed.W_E") == ATTN_F16); /* as in the checkpoint */
    CHECK(dtype_of(model, "blocks.3.mlp.W_out") == ATTN_F16);
    CHECK(dtype_of(model, "ln_final.w") == ATTN_F32);
    CHECKF(!strstr(err, "note:"), "%s", err);
    CHECKF(strncmp(err,
                   "wrote converted.attn: 4.6 MB, 2.2 million parameters in 52 tensors, weights "
                   "in f16, a vocabulary of 2048 tokens; read tiny-stories: 4.4 MB; took ",
                   143) == 0 &&
               strchr(err, '\n') == err + err_size - 1,
           "%s", err);
    CHECK(run(TEST_BUILD "/attn-convert -q -m " STORIES " -o %s", test_tmp("x.attn")) == 0 &&
          err_size == 0);
    same_as_safetensors(model, STORIES);
    attn_model_close(model);
    forget();
}

TEST(golden_models)
{
    static const char *const names[] = {"golden/plain", "golden/odd"};
    size_t i;
    for (i = 0; i < 2; i++) {
        char dir[512];
        attn_ctx ctx;
        attn_model *model;
        if (!test_data_path(names[i])) {
            test_skip("no larger test data here");
            return;
        }
        snprintf(dir, sizeof dir, "%s", test_data_path(names[i]));
        if ((model = converted(&ctx, dir, "")) == NULL)
            continue;
        CHECK(attn_model_config(model)->tied == (i == 0));
        CHECK(dtype_of(model, "embed.W_E") == ATTN_F32);
        same_as_safetensors(model, dir);
        attn_model_close(model);
    }
    forget();
}

/* f16 from f32: the nearest half of every weight, and vectors as they are. */
TEST(narrowing_to_f16)
{
    attn_ctx ctx;
    attn_model *model = converted(&ctx, FIXTURES "v3.bin", "--dtype f16");
    size_t size, at = 0, k, n_rounded = 0;
    unsigned char *bytes = test_read(FIXTURES "v3.bin.ref", &size);
    while (model && CHECK(bytes != NULL) && at + 72 <= size) {
        const char *name = (const char *)bytes + at;
        const size_t count = (size_t)get_u64(bytes + at + 64);
        const int narrow = strstr(name, "W_") && !strstr(name, "W_pos");
        attn_tensor t;
        memset(&t, 0, sizeof t);
        if (!OK(&ctx, attn_model_tensor(&ctx, &t, model, name)))
            break;
        CHECK(dtype_of(model, name) == (narrow ? ATTN_F16 : ATTN_F32));
        for (k = 0; k < count; k++) {
            float want;
            double got, step;
            int exponent;
            memcpy(&want, bytes + at + 72 + 4 * k, 4);
            got = (double)((const float *)t.data)[k];
            frexp((double)want, &exponent);
            step = ldexp(1.0, (exponent < -13 ? -13 : exponent) - 11);
            n_rounded += got != (double)want;
            if (!CHECKF(narrow ? fabs(got - (double)want) <= step / 2 && fmod(got, step) == 0
                               : got == (double)want,
                        "%s, number %zu: %.9g for %.9g", name, k, got, (double)want))
                break;
        }
        attn_tensor_free(&ctx, &t);
        at += 72 + 4 * count;
    }
    CHECK(n_rounded > 1000);
    attn_model_close(model);
    attn_ctx_free(&ctx);
    free(bytes);

    /* The largest half is 65504; what lies below the middle between it and the next power of two
     * is rounded to it. */
    bytes = test_read(FIXTURES "v3.bin", &size);
    if (CHECK(bytes != NULL)) {
        const float large[2] = {-65519.99609375f, 65520.0f};
        attn_tensor t;
        memcpy(bytes + 1024 + 4 * 18, &large[0], 4);
        test_write(test_tmp("variant.bin"), bytes, size);
        model = converted(&ctx, test_tmp("variant.bin"), "--dtype f16");
        memset(&t, 0, sizeof t);
        if (model && OK(&ctx, attn_model_tensor(&ctx, &t, model, "embed.W_E")))
            CHECK(attn_get2(t, 1, 2) == -65504.0f);
        attn_tensor_free(&ctx, &t);
        attn_model_close(model);
        memcpy(bytes + 1024 + 4 * 18, &large[1], 4);
        test_write(test_tmp("variant.bin"), bytes, size);
        refused(test_tmp("variant.bin"), "--dtype f16",
                "element 2 of row 1 of wte.weight is 65520, more than f16 can hold");
    }
    free(bytes);
    forget();
}

/* An unembedding that differs from the embedding is kept whatever config.json says, a copy of the
 * embedding is not, and one that is announced must be there. */
TEST(tied_and_untied)
{
    const char *dir = variant(FIXTURES "sharded", "config.json", "\"tie_word_embeddings\": false",
                              "\"unknown\": 1");
    char path[600];
    unsigned char *file;
    const unsigned char *table;
    size_t size, n;
    attn_ctx ctx;
    attn_model *model = converted(&ctx, dir, "");
    CHECK(model && !attn_model_config(model)->tied);
    attn_model_close(model);
    dir = variant(FIXTURES "bf16", "config.json", "\"model_type\"",
                  "\"tie_word_embeddings\": false, \"model_type\"");
    model = converted(&ctx, dir, "");
    CHECK(model && attn_model_config(model)->tied); /* its own table, but the same numbers */
    attn_model_close(model);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    file = test_read(path, &size);
    if (CHECK(file && (table = find_tensor((char *)file, size, "lm_head.weight", &n)) != NULL)) {
        file[(size_t)(table - file) + n - 31] ^= 1; /* in the last row */
        test_write(path, file, size);
        model = converted(&ctx, dir, "");
        CHECK(model && !attn_model_config(model)->tied && !strstr(err, "transformers 4"));
        attn_model_close(model);
        edit(dir, "config.json", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
        model = converted(&ctx, dir, "");
        CHECK(model && !attn_model_config(model)->tied);
        CHECKF(strstr(err, "transformers 4 would use wte.weight for both"), "%s", err);
        attn_model_close(model);
        edit(dir, "config.json", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
        file[(size_t)(table - file) + n - 31] ^= 1;
        test_write(path, file, size);
    }
    free(file);
    edit(dir, "model.safetensors", "\"lm_head.weight\"", "\"score.weight\"");
    refused(dir, "",
            "lm_head.weight is missing, but config.json says tie_word_embeddings is false");
    CHECK(strstr(err, "note: the tensor score.weight is not part of GPT-2") != NULL);
    forget();
}

/* >> Vocabularies ============================================================================== */

static unsigned char *section_of(const char *dir, size_t *size)
{
    attn_ctx ctx;
    unsigned char *section = NULL;
    memset(&ctx, 0, sizeof ctx);
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
    size_t size = 0, other_size = 0, i;
    unsigned char *section = section_of(FIXTURES "bf16", &size), *other;
    char path[600];
    for (i = 0; section && i < sizeof dirs / sizeof dirs[0]; i++) {
        other = section_of(dirs[i], &other_size);
        same_section(dirs[i], section, size, other, other_size);
        free(other);
    }
    for (i = 0; section && i < sizeof models / sizeof models[0]; i++) {
        attn_ctx ctx;
        attn_model_close(converted(&ctx, models[i], ""));
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
    snprintf(path, sizeof path, "%s/added_tokens.json", test_tmp("variant"));
    test_write(path, "{\r\n\t\"<|endoftext|>\": 299}", 25);
    other = section_of(test_tmp("variant"), &other_size);
    same_section("added_tokens.json", section, size, other, other_size);
    free(other);
    free(section);
    forget();
}

/* What the section must hold, from how make_convert_fixtures.py numbers the tokens: stand-ins in
 * the order of Unicode, merges in the order of training, "<|endoftext|>". */
TEST(section_holds_the_vocabulary)
{
    size_t size = 0, merges_size, id, n_own = 0;
    unsigned char *section = section_of(FIXTURES "bf16", &size);
    char *merges = (char *)test_read(FIXTURES "bf16/merges.txt", &merges_size), *line;
    const unsigned char *ends = section + 16, *triples, *bytes;
    int byte;
    if (!CHECK(section && merges && get_u32(section) == 300 && get_u32(section + 4) == 43 &&
               get_u32(section + 8) == 1))
        return;
    triples = ends + 4 * 300;
    bytes = triples + 12 * 43 + 4;
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
    line = strchr(merges, '\n') + 1;
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
        CHECK(get_u32(triples + 8) == id);
        for (i = 0, n = 0; i < 2; i++) { /* left and right joined are the token */
            const size_t part = get_u32(triples + 4 * i);
            const size_t from = part ? get_u32(ends + 4 * (part - 1)) : 0;
            const size_t length = get_u32(ends + 4 * part) - from;
            CHECK(memcmp(want + n, bytes + from, length) == 0);
            n += length;
        }
        CHECK(n == get_u32(ends + 4 * id) - at);
    }
    free(section);
    free(merges);
}

TEST(vocabularies_that_are_none)
{
    static const struct {
        const char *dir, *file, *find, *replace, *text;
    } cases[] = {
        {"bf16", "merges.txt", "h e", "h\xc3\xb7x e", "is not a token of the vocabulary"},
        {"bf16", "merges.txt", "h e", "q z", "merges.txt, line 2"},
        {"bf16", "merges.txt", "h e", "q z", "\"q\" and \"z\" together are not a token"},
        {"bf16", "merges.txt", "h e", "he", "is not two tokens with a blank between them"},
        {"bf16", "merges.txt", "h e", "h e e", "is not two tokens with a blank between them"},
        {"bf16", "merges.txt", "h e", "<|endoftext|> e", "is a special token"},
        {"bf16", "merges.txt", "h e", "#version: 0.2", "merges.txt, line 2"},
        {"bf16", "merges.txt", "h e", "h ", "is not two tokens with a blank between them"},
        {"bf16", "merges.txt", "#version: 0.2", "version", "merges.txt, line 1"},
        {"bf16", "merges.txt", "#version: 0.2", "a long line", "merges.txt, line 1"},
        {"bf16", "vocab.json", "\"<|endoftext|>\"", "\"\\ud83d\\ude00\"",
         "299 (\"\xf0\x9f\x98\x80\") has a character"},
        {"bf16", "vocab.json", "\"!\": 0", "\"!\": 1", "both have id 1"},
        {"bf16", "vocab.json", "\"!\": 0", "\"<|endoftext|>\": 0", "appears twice"},
        {"bf16", "vocab.json", "\"!\": 0", "\"!!\": 0", "no token for the byte 21 alone"},
        {"bf16", "vocab.json", "\"!\": 0", "\"\u4e2d\": 0", "stand-ins for bytes"},
        {"bf16", "vocab.json", "\"!\": 0", "\"!\": -1", "is not a whole number below"},
        {"bf16", "vocab.json", "\"!\": 0", "\"!\": 4000000000", "is not a whole number below"},
        {"bf16", "vocab.json", "\"!\": 0", "\"!\": \"0\"", "is not a whole number below"},
        {"bf16", "vocab.json", "\"!\": 0", "\"!\": 300", "the model knows 300"},
        {"sharded", "tokenizer.json", "\"BPE\"", "\"Unigram\"", "its model is not BPE"},
        {"sharded", "tokenizer.json", "\"ByteLevel\"", "\"Whitespace\"", "pre_tokenizer"},
        {"sharded", "tokenizer.json", "\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}",
         "it has a normalizer"},
        {"sharded", "tokenizer.json", "\"add_prefix_space\":false", "\"add_prefix_space\":true",
         "add_prefix_space"},
        {"sharded", "tokenizer.json", "\"use_regex\":true", "\"use_regex\":false", "use_regex"},
        {"sharded", "tokenizer.json", "\"BPE\"", "\"BPE\",\"ignore_merges\":true", "ignore_merges"},
        {"sharded", "tokenizer.json", "prefix\":\"\"", "prefix\":\"##\"", "a continuing_subword"},
        {"sharded", "tokenizer.json", "suffix\":\"\"", "suffix\":\"_\"", "an end_of_word_suffix"},
        {"sharded", "tokenizer.json", "[\"h\",\"e\"]", "[\"h\",\"e\",\"e\"]", "neither a string"},
        {"sharded", "tokenizer.json", "[\"h\",\"e\"]", "[\"q\",\"z\"]", "tokenizer.json, merge 0"},
        {"sharded", "tokenizer.json", "[\"h\",\"e\"]", "[5,\"e\"]", "neither a string"},
        {"sharded", "tokenizer.json", "[\"h\",\"e\"]", "[\"h\",5]", "neither a string"},
        {"sharded", "tokenizer.json", "\"merges\"", "\"Merges\"", "has no list \"merges\""},
        {"sharded", "tokenizer.json", "\"merges\"", "\"merges\":5,\"Merges\"", "no list"},
        {"sharded", "tokenizer.json", "\"model\"", "\"Model\"", "has no object \"model\""},
        {"sharded", "tokenizer.json", "\"model\"", "\"model\":5,\"Model\"", "has no object"},
        {"sharded", "tokenizer.json", "\"pre_tokenizer\"", "\"Pre_tokenizer\"", "pre_tokenizer"},
        {"sharded", "tokenizer.json", "\"pre_tokenizer\"", "\"pre_tokenizer\":{},\"x\"",
         "pre_tokenizer"},
        {"sharded", "tokenizer.json", "\"added_tokens\"", "\"added_tokens\":{},\"x\"",
         "added_tokens is not a list"},
        {"sharded", "tokenizer.json", "\"added_tokens\"", "\"added_tokens\":[7],\"x\"",
         "entry 0 of added_tokens"},
        {"sharded", "tokenizer.json", "\"id\":299,", "\"id\":5000000,", "entry 0 of added_tokens"},
        {"sharded", "tokenizer.json", "\"content\":\"<|endoftext|>\"", "\"content\":299",
         "entry 0 of added_tokens"},
        {"sharded", "tokenizer.json", "\"content\":\"<|endoftext|>\"", "\"content\":\"\"",
         "entry 0 of added_tokens"},
        {"sharded", "tokenizer.json", "\"content\":\"<|endoftext|>\"",
         "\"content\":\"<|endoftexT|>\"", "both have id 299"},
        {"sharded", "tokenizer.json", "\"vocab\":{", "\"vocab\":{},\"x\":{", "no vocabulary"},
        {"sharded", "tokenizer.json", "\"vocab\":{", "\"vocab\":[],\"x\":{", "no vocabulary"},
        {"sharded", "tokenizer.json", "\"vocab\"", "\"Vocab\"", "no vocabulary"},
        {"sharded", "tokenizer.json", "\"id\":299,", "", "entry 0 of added_tokens"},
        {"sharded", "tokenizer.json", "\"id\":299,", "\"id\":7,", "both have id 7"}};
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char base[256];
        snprintf(base, sizeof base, FIXTURES "%s", cases[i].dir);
        refused(variant(base, cases[i].file, cases[i].find, cases[i].replace), "", cases[i].text);
    }
    CHECK(run("rm %s/merges.txt", copied(FIXTURES "bf16")) == 0);
    refused(test_tmp("variant"), "", "no merges.txt");
    CHECK(run("echo 'h e' >>%s/merges.txt", copied(FIXTURES "bf16")) == 0);
    refused(test_tmp("variant"), "",
            "merges.txt, line 45: \"h\" and \"e\" are merged already, by line 2");
    CHECK(run("rm %s/vocab.json", copied(FIXTURES "bf16")) == 0);
    refused(test_tmp("variant"), "", "a merges.txt but no vocab.json");
    refused(FIXTURES "v3.bin", "--tokenizer no/such", "there is no directory no/such");
    refused(FIXTURES "v3.bin", "--tokenizer LICENSE", "there is no directory LICENSE");
    edit(variant(FIXTURES "sharded", "tokenizer.json", "\"\\u0120and\":298", "\"\":298"),
         "tokenizer.json", "[\"\\u0120\",\"and\"]", "[\"\",\"h\"]");
    refused(test_tmp("variant"), "", "298 is a token without bytes");
    refused(FIXTURES "v3.bin", "--tokenizer tests", "neither vocab.json with merges.txt nor");
    forget();
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
    char path[600];
    const char *dir = copied(FIXTURES "bf16");
    size_t i, size = 0, other_size = 0;
    unsigned char *section, *other;
    attn_ctx ctx;
    attn_tokenizer *t = NULL;
    snprintf(path, sizeof path, "%s/added_tokens.json", dir);
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_write(path, cases[i].json, strlen(cases[i].json));
        refused(dir, "", cases[i].text);
    }
    section = section_of(FIXTURES "bf16", &size);
    test_write(path, "{}", 2);
    other = section_of(dir, &other_size);
    same_section("no added tokens", section, size, other, other_size);
    free(other);
    free(section);

    test_write(path, "{\"\": 305, \"a b\": 300}", 21); /* one has no bytes, so it is no token */
    section = section_of(dir, &size);
    memset(&ctx, 0, sizeof ctx);
    if (CHECK(section && get_u32(section) == 306 && get_u32(section + 8) == 2) &&
        OK(&ctx, attn_tokenizer_new(&ctx, &t, section, size))) {
        int32_t ids[8];
        size_t n = 0;
        OK(&ctx, attn_encode(&ctx, ids, 8, &n, t, "a b", 3, 1));
        CHECK(n == 1 && ids[0] == 300);
    }
    attn_tokenizer_free(t);
    free(section);
    attn_ctx_free(&ctx);
    forget();
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
    size_t i, size = 0, other_size = 0;
    unsigned char *section = section_of(FIXTURES "bf16", &size), *other;
    for (i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        CHECKF(run("%s " FIXTURES "bf16/merges.txt >%s/merges.txt", edits[i], dir) == 0, "%s", err);
        other = section_of(dir, &other_size);
        same_section(edits[i], section, size, other, other_size);
        free(other);
    }
    free(section);
    CHECK(run("echo '#version: 0.2' >%s/merges.txt", dir) == 0);
    refused(dir, "", "merges.txt has no merges");
    forget();
}

/* Without "<|endoftext|>", or where it is no special token, nothing begins and ends a text. */
TEST(no_end_of_text)
{
    static const struct {
        const char *input, *file;
    } cases[] = {{"bf16", "vocab.json"}, {"sharded", "tokenizer.json"}};
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        attn_ctx ctx;
        attn_model *model;
        char base[256];
        snprintf(base, sizeof base, FIXTURES "%s", cases[i].input);
        CHECK(run("sed -i 's/<|endoftext|>/<|endoftexT|>/g' %s/%s", copied(base), cases[i].file) ==
              0);
        CHECK(run("sed -i 's/\"[be]os_token_id\"/\"x&/; s/\"x\"/\"x/' %s/config.json",
                  test_tmp("variant")) == 0);
        model = converted(&ctx, test_tmp("variant"), "");
        CHECKF(model && attn_model_tokenizer(model) && attn_model_config(model)->bos == -1 &&
                   attn_model_config(model)->eos == -1,
               "%s: %s", cases[i].input, err);
        attn_model_close(model);
        CHECK(run(TEST_BUILD "/gpt2 %s --bos -n 1 -q hi", test_tmp("converted.attn")) == 1 &&
              strstr(err, "has no beginning-of-text token for --bos"));
    }
    forget();
}

/* The longest stretch of a table without a free place: what a search may have to walk. */
static size_t longest_run(const name_table *table)
{
    size_t i, run_length = 0, longest = 0;
    for (i = 0; i <= table->mask; i++) {
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
        attn_ctx ctx;
        name_table table;
        uint64_t number = 0;
        size_t n, value;
        memset(&ctx, 0, sizeof ctx);
        for (n = 0; n < N_NAMES; number++) {
            const size_t size =
                (size_t)snprintf(names[n], sizeof names[n], "%llx", TOOLS_LLU(number));
            uint64_t hash = which ? names_hash(0, names[n], size) : 14695981039346656037u;
            for (value = 0; !which && value < size; value++)
                hash = (hash ^ (unsigned char)names[n][value]) * 1099511628211u;
            n += ((hash ^ (which ? 0 : hash >> 32)) & (SLOTS - 1)) < PLACE;
        }
        OK(&ctx, names_init(&ctx, &memory, &table, N_NAMES));
        CHECK(table.mask == SLOTS - 1 && table.seed != 0);
        for (n = 0; n < N_NAMES; n++) {
            value = n;
            CHECK(names_add(&table, names[n], strlen(names[n]), &value));
        }
        for (n = 0; n < N_NAMES; n++)
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

/* A GGUF file with another number so many bytes behind a text, and long enough to hold as much. */
static void refused_gguf(const char *text, size_t skip, uint64_t number, const char *message)
{
    const char *const path = test_tmp("variant.gguf");
    size_t size;
    unsigned char *gguf = test_read(FIXTURES "tiny.gguf", &size);
    char *at = gguf ? find_bytes((char *)gguf, size, text) : NULL;
    if (CHECK(at != NULL)) {
        put_u64((unsigned char *)at + skip, number);
        test_write(path, gguf, size);
        CHECK(truncate(path, 200000000) == 0);
        refused(path, "", message);
    }
    free(gguf);
}

/* A safetensors header with blanks up to the most that one can have is as good as without. */
static void largest_header(void)
{
    const size_t most = 100000000;
    const char *dir = copied(FIXTURES "bf16");
    char path[600], *bytes, *made = (char *)malloc(most + 8);
    attn_ctx ctx;
    attn_model *model;
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
            model = converted(&ctx, dir, "");
            if (CHECK(model != NULL))
                same_as_reference(model, "bf16");
            attn_model_close(model);
            CHECK(remove(path) == 0);
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
    attn_ctx ctx;
    arena memory = {NULL};
    json_value *root = NULL;
    vocab v;
    source s;
    size_t i;
    char *text = (char *)malloc(2 * most + 8), path[512];
    const char *dir;
    memset(&ctx, 0, sizeof ctx);
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
    FAILS(&ctx, ATTN_E_FORMAT, "a holds more than 1048576 values",
          json_parse(&ctx, "a", text, 2 * most + 3, &root));
    free(text);

    /* files, without room on the disk */
    dir = copied(FIXTURES "bf16");
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
    FAILS(&ctx, ATTN_E_FORMAT, "v: a vocabulary of 1048577 tokens",
          vocab_init(&ctx, &v, &memory, "v", VOCAB_MAX_TOKENS + 1, 1));
    FAILS(&ctx, ATTN_E_FORMAT, "up to 1048577 merges",
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
    attn_ctx_free(&ctx);
    forget();
}

/* What the readers are made of, where a file that shows it would be too large to keep. */
TEST(parts_of_the_readers)
{
    attn_ctx ctx;
    arena memory = {NULL};
    vocab v;
    vocab_token token;
    unsigned char *section = NULL;
    char *bytes = NULL, *path;
    size_t size = 0;
    FILE *file;
    memset(&ctx, 0, sizeof ctx);
    CHECK(strcmp(base_name("a/b.c"), "b.c") == 0 && strcmp(base_name("a\\b.c"), "b.c") == 0);
    CHECK(strcmp(base_name("a/b/"), "b/") == 0 && strcmp(base_name("b"), "b") == 0);
    path = arena_path(&ctx, &memory, "a", "b");
    CHECK(path && strcmp(path, "a/b") == 0);
    path = arena_path(&ctx, &memory, "a/", "b");
    CHECK(path && strcmp(path, "a/b") == 0);
    CHECK(arena_alloc(&ctx, &memory, SIZE_MAX / 4, 8) == NULL);
    FAILS(&ctx, ATTN_E_MEMORY, "no memory for", ctx.status);
    ctx.status = ATTN_OK;
    CHECK(arena_alloc(&ctx, &memory, 5, 0) != NULL);

    test_write(test_tmp("long"), "123456789", 9);
    if (CHECK((file = fopen(test_tmp("long"), "rb")) != NULL)) {
        OK(&ctx, read_all(&ctx, &memory, file, "a text", 9, &bytes, &size));
        CHECK(bytes && size == 9 && strcmp(bytes, "123456789") == 0);
        rewind(file);
        FAILS(&ctx, ATTN_E_FORMAT, "a text is larger than 8 bytes",
              read_all(&ctx, &memory, file, "a text", 8, &bytes, &size));
        CHECK(bytes == NULL);
        fclose(file);
    }
    arena_free(&memory);

    /* a section's numbers have 32 bits */
    memset(&v, 0, sizeof v);
    memset(&token, 0, sizeof token);
    v.name = "many.json";
    v.n_tokens = 1;
    v.tokens = &token;
    token.size = (size_t)UINT32_MAX;
    if (sizeof(size_t) > 4) {
        const size_t most = (size_t)INT32_MAX;
        token.size++;
        FAILS(&ctx, ATTN_E_FORMAT, "many.json: the vocabulary is larger than 4 GB",
              vocab_section(&ctx, &v, 1, &section, &size));
        token.size = 1;
        FAILS(&ctx, ATTN_E_FORMAT, "larger than",
              vocab_section(&ctx, &v, most + 1, &section, &size));
        v.n_merges = most + 1;
        FAILS(&ctx, ATTN_E_FORMAT, "larger than", vocab_section(&ctx, &v, 1, &section, &size));
        CHECK(section == NULL);
    }
    attn_ctx_free(&ctx);
}

/* An id without a token is a token without bytes; special tokens beyond the model are left out. */
TEST(gaps_and_extra_tokens)
{
    const char *dir =
        variant(FIXTURES "bf16", "config.json", "\"vocab_size\": 300", "\"vocab_size\": 300");
    attn_ctx ctx;
    attn_model *model;
    size_t size = 1;
    edit(dir, "vocab.json", "\"<|endoftext|>\": 299", "\"<|endoftext|>\": 310");
    model = converted(&ctx, dir, "");
    if (CHECK(model != NULL)) {
        const attn_tokenizer *t = attn_model_tokenizer(model);
        CHECK(attn_tokenizer_n_tokens(t) == 300);
        CHECK(attn_token_bytes(&size, t, 299) == NULL || size == 0);
        CHECK(strstr(err, "note: 1 special tokens") != NULL);
    }
    attn_model_close(model);
    /* what ends a text is then no token of the model's, whoever says which it is */
    edit(dir, "config.json", "\"bos_token_id\"", "\"bos\"");
    edit(dir, "config.json", "\"eos_token_id\"", "\"eos\"");
    model = converted(&ctx, dir, "");
    if (CHECK(model != NULL))
        CHECK(attn_model_config(model)->bos == -1 && attn_model_config(model)->eos == -1);
    attn_model_close(model);
    forget();
}

/* >> Refusals ================================================================================== */

TEST(configurations_that_are_none)
{
    static const struct {
        const char *find, *replace, *text;
    } cases[] = {
        {"\"gpt2\"", "\"gpt_neox\"", "model_type is gpt_neox; only gpt2"},
        {"gelu_pytorch_tanh", "mish", "activation_function is mish; only gelu (also as gelu_new"},
        {"layer_idx\": false", "layer_idx\": \"x\"", "scale_attn_by_inverse_layer_idx is neither"},
        {"\"model_type\"", "\"add_cross_attention\": true, \"model_type\"",
         "add_cross_attention is true"},
        {"\"n_head\": 2", "\"n_head\": 3", "3 heads share a width of 16"},
        {"\"n_head\": 2", "\"n_head\": 0", "number of heads is 0"},
        {"\"n_head\": 2,", "", "config.json has no n_head"},
        {"\"n_head\": 2", "\"n_head\": 2.5", "n_head is not a whole number"},
        {"\"n_layer\": 1", "\"n_layer\": 2", "h.1.ln_1.weight is missing (config.json asks for 2"},
        {"\"n_layer\": 1", "\"n_layer\": 65536", "h.1.ln_1.weight is missing"},
        {"\"n_layer\": 1", "\"n_layer\": 65537",
         "layers is 65537, which cannot be: attn.h takes 1 to 65536"},
        {"\"n_layer\": 1", "\"n_layer\": 9999999999999999999", "which cannot be"},
        {"\"n_embd\": 16", "\"n_embd\": 32",
         "wte.weight is [300, 16], but config.json asks for "
         "[300, 32]"},
        {"\"n_layer\": 1", "\"n_layer\": 18446744073709551617", "n_layer is not a whole number"},
        {"\"n_embd\": 16", "\"n_embd\": 0", "the width is 0"},
        {"\"n_inner\": null", "\"n_inner\": 63",
         "c_fc.weight is [16, 64], but config.json asks "
         "for [16, 63]"},
        {"\"vocab_size\": 300", "\"vocab_size\": 299", "wte.weight is [300, 16]"},
        {"\"n_positions\": 8", "\"n_positions\": 9", "wpe.weight is [8, 16]"},
        {"1e-05", "0", "the layer norm epsilon is 0"},
        {"1e-05", "1", "the layer norm epsilon is 1"},
        {"1e-05", "\"tiny\"", "layer_norm_epsilon is not a number"},
        {"[\n  299\n ]", "\"x\"", "eos_token_id is not a token id"},
        {"\"bos_token_id\": 299", "\"bos_token_id\": 2147483648", "bos_token_id is not a token"},
        {"[\n  299\n ]", "[]", "eos_token_id is not a token id"},
        {"\"gpt2\"", "null", "model_type is null; only gpt2"},
        {"\"gpt2\"", "[\"gpt2\"]", "model_type is a list or object; only gpt2"},
        {"\"vocab_size\"", "\"size\"", "config.json has no vocab_size"},
        {"\"n_positions\": 8,\n \"n_ctx\"", "\"n\"", "config.json has no n_positions"},
        {"\"n_embd\"", "\"n\"", "config.json has no n_embd"},
        {"\"n_embd\": 16", "\"n_embd\": 9999999999999999999", "the width is 9999999999999999999"},
        {"\"n_layer\": 1", "\"n_layer\": 1e0", "n_layer is not a whole number"},
        {"\"n_inner\": null", "\"n_inner\": \"64\"", "n_inner is not a whole number"},
        {"\"model_type\"", "\"tie_word_embeddings\": 1, \"model_type\"",
         "tie_word_embeddings is neither true nor false"}};
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(variant(FIXTURES "bf16", "config.json", cases[i].find, cases[i].replace), "",
                cases[i].text);
    forget();
}

/* The converter takes what the reader takes, and no more: of each size, the largest number that
 * both let pass and the smallest that neither does. What the configuration asks for is then not
 * there, which is another message. */
TEST(sizes_that_are_too_large)
{
    static const struct {
        const char *key, *old;
        size_t field; /* in the header of a .attn file */
        uint32_t most;
    } cases[] = {{"vocab_size", "300", 24, 1 << 24},
                 {"n_positions", "8", 28, 1 << 24},
                 {"n_embd", "16", 32, 1 << 24},
                 {"n_layer", "1", 40, 1 << 16},
                 {"n_inner", "null", 44, 1 << 24}};
    char find[64], replace[64];
    const char *dir;
    attn_ctx ctx;
    attn_model *model = NULL;
    unsigned char *file = NULL;
    size_t size = 0, i;
    uint32_t more;
    attn_model_close(converted(&ctx, FIXTURES "bf16", ""));
    if (!CHECK((file = test_read(test_tmp("converted.attn"), &size)) != NULL))
        return;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (more = 0; more < 2; more++) {
            const uint32_t value = cases[i].most + more, old = get_u32(file + cases[i].field);
            snprintf(find, sizeof find, "\"%s\": %s", cases[i].key, cases[i].old);
            snprintf(replace, sizeof replace, "\"%s\": %lu", cases[i].key, (unsigned long)value);
            dir = variant(FIXTURES "bf16", "config.json", find, replace);
            if (cases[i].field == 32) /* which is four times the width otherwise */
                edit(dir, "config.json", "\"n_inner\": null", "\"n_inner\": 64");
            refused(dir, "",
                    !more                      ? "config.json asks for"
                    : cases[i].most == 1 << 24 ? "is 16777217, which cannot be"
                                               : "is 65537, which cannot be");
            put_u32(file + cases[i].field, value);
            if (cases[i].field == 32)
                put_u32(file + 36, 1); /* one head divides any width */
            put_u64(file + 248, attn_checksum(0, file, 248));
            attn_model_open_memory(&ctx, &model, file, size, NULL);
            CHECK(model == NULL);
            CHECKF((strstr(ctx.message, "; expected 1 to ") != NULL) == (int)more, "%s: %s",
                   replace, ctx.message);
            put_u32(file + cases[i].field, old);
            put_u32(file + 36, 2);
        }
    free(file);
    attn_ctx_free(&ctx);
    forget();
}

/* Which token begins a text and which ends it need not be the same, nor in the vocabulary. */
TEST(first_and_last_tokens)
{
    static const struct {
        const char *find, *replace;
        int bos, eos;
    } cases[] = {{"\"bos_token_id\": 299", "\"bos_token_id\": 298", 298, 299},
                 {"\"bos_token_id\": 299", "\"bos_token_id\": null", -1, 299},
                 {"\"bos_token_id\": 299", "\"bos_token_id\": 300", -1, 299},
                 {"\"bos_token_id\": 299,", "", 299, 299}, /* <|endoftext|> */
                 {"[\n  299\n ]", "[7, 299]", 299, 7}};
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        attn_ctx ctx;
        attn_model *model = converted(
            &ctx, variant(FIXTURES "bf16", "config.json", cases[i].find, cases[i].replace), "");
        const attn_config *c = model ? attn_model_config(model) : NULL;
        CHECKF(c && c->bos == cases[i].bos && c->eos == cases[i].eos, "%s: %d and %d",
               cases[i].replace, c ? (int)c->bos : -9, c ? (int)c->eos : -9);
        attn_model_close(model);
    }
    forget();
}

/* A checkpoint with a file of settings beside its vocabulary, and a line of config.json changed. */
static const char *with_settings(const char *settings, const char *find, const char *replace)
{
    const char *dir = variant(FIXTURES "bf16", "config.json", find, replace);
    char path[600];
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    test_write(path, settings, strlen(settings));
    return dir;
}

/* What the vocabulary's files say of the tokens that begin and end a text counts where config.json
 * leaves it open, and is said where they disagree; so is what a program has to add itself. */
TEST(ends_that_the_vocabulary_names)
{
    static const char ends[] = "{\"eos_token\": \"<|endoftext|>\", \"chat_template\": \"x\"}";
    static const char begins[] = "{\"add_bos_token\": true, \"bos_token\": \"<|endoftext|>\"}";
    attn_ctx ctx;
    attn_model *model = converted(&ctx, with_settings(ends, "[\n  299\n ]", "298"), "");
    CHECK(model && attn_model_config(model)->eos == 298);
    CHECK(strstr(err, "note: config.json says that id 298 ends a text, the vocabulary's files say "
                      "id 299; the first counts\n"));
    CHECK(strstr(err, "note: tokenizer_config.json has a chat template") &&
          strstr(err, "give --special"));
    attn_model_close(model);
    model = converted(&ctx, with_settings(begins, "\"bos_token_id\": 299,", ""), "");
    CHECK(model && attn_model_config(model)->bos == 299);
    CHECK(strstr(err, "note: texts shall begin with \"<|endoftext|>\" (id 299): give --bos"));
    attn_model_close(model);
    refused(with_settings(begins, "\"bos_token_id\": 299", "\"bos_token_id\": 298"), "",
            "texts shall begin with id 299 by the vocabulary's files, but --bos would give id 298");
    forget();
}

TEST(harmless_settings)
{
    static const struct {
        const char *find, *replace;
    } cases[] = {
        {"\"reorder_and_upcast_attn\": false", "\"reorder_and_upcast_attn\": true"},
        {"\"n_inner\": null", "\"n_inner\": 64"},
        {"\"n_inner\": null,", ""},
        {"gelu_pytorch_tanh", "gelu_new"},
        {"\"n_positions\": 8,", ""},
        {"\"bos_token_id\": 299", "\"bos_token_id\": 300"},
        {"\"bos_token_id\": 299", "\"bos_token_id\": 50256"},
        {"1e-05", "1.0E-5"},
        {"1e-05", "0.0000001e+2"},
        {"1e-05", "10e-6"},
        {"\"model_type\"", "\"\\uffff\xe0\xa0\x80\xed\x9f\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\": "
                           "null, \"model_type\""},
        {"\"model_type\"", "\"\\u00e9\\ud83d\\ude00\\n\": [1.5e3, {}, [], true], \"model_type\""}};
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        attn_ctx ctx;
        attn_model *model = converted(
            &ctx, variant(FIXTURES "bf16", "config.json", cases[i].find, cases[i].replace), "");
        if (model)
            same_as_reference(model, "bf16");
        attn_model_close(model);
    }
    forget();
}

TEST(malformed_json)
{
    static const struct {
        const char *text, *message;
    } cases[] = {{"", "is empty"},
                 {" \n ", "line 2, column 2: the text ends where a value was expected"},
                 {"[]", "config.json is not a JSON object"},
                 {"{", "what opens here is never closed"},
                 {"{\"a\": 1", "what opens here is never closed"},
                 {"{\"a\" 1}", "column 6: a colon was expected"},
                 {"{a: 1}", "a key in quotes was expected"},
                 {"{\"a\": 1,}", "a key in quotes was expected"},
                 {"{\"a\": 1 \"b\": 2}", "a comma or the closing bracket"},
                 {"{\"a\": [1, 2}", "a comma or the closing bracket"},
                 {"{\"a\": 1, \"a\": 2}", "the key \"a\" appears twice"},
                 {"{\"a\": tru}", "a value was expected"},
                 {"{\"a\": NaN}", "a value was expected"},
                 {"{\"a\": 01}", "a value was expected"},
                 {"{\"a\": 1.}", "without digits behind its point"},
                 {"{\"a\": 1e}", "without digits in its exponent"},
                 {"{\"a\": \"b", "a string that does not end"},
                 {"{\"a\": \"\\x41\"}", "an escape that JSON does not have"},
                 {"{\"a\": \"\\u12G4\"}", "an escape that JSON does not have"},
                 {"{\"a\": \"\\ud800\"}", "half of a surrogate pair"},
                 {"{\"a\": \"\\ud800\\u0041\"}", "half of a surrogate pair"},
                 {"{\"a\": \"\\udc00\"}", "half of a surrogate pair"},
                 {"{\"a\": \"\\ud800 and on\"}", "half of a surrogate pair"},
                 {"{\"a\": \"\\ud800\\n and on\"}", "half of a surrogate pair"},
                 {"{\"a\": \"\\ud800\\ue000\"}", "half of a surrogate pair"},
                 {"{\"a\": \"\\ud8", "an escape that JSON does not have"},
                 {"{\"a\": \"\xe2\x82", "bytes that are not UTF-8"},
                 {"{\"a\": tru", "a value was expected"},
                 {"{\"a\": 1e", "without digits in its exponent"},
                 {"{\"a\": 1", "what opens here is never closed"},
                 {"{\"a\": \"\n\"}", "a control character inside a string"},
                 {"{\"a\": \"\xff\"}", "bytes that are not UTF-8"},
                 {"{\"a\": \"\xed\xa0\x80\"}", "bytes that are not UTF-8"},
                 {"{\"a\": \"\xe0\x9f\xbf\"}", "bytes that are not UTF-8"},
                 {"{\"a\": \"\xf0\x8f\xbf\xbf\"}", "bytes that are not UTF-8"},
                 {"{\"a\": \"\xf4\x90\x80\x80\"}", "bytes that are not UTF-8"},
                 {"{} x", "something follows where the text should end"}};
    char deep[256], path[600];
    const char *dir = copied(FIXTURES "bf16");
    size_t i;
    snprintf(path, sizeof path, "%s/config.json", dir);
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_write(path, cases[i].text, strlen(cases[i].text));
        refused(dir, "", cases[i].message);
    }
    memset(deep, '[', 65);
    memset(deep + 65, ']', 65);
    test_write(path, deep, 130);
    refused(dir, "", "more than 64 values inside each other");
    test_write(path, deep + 1, 128);
    refused(dir, "", "config.json is not a JSON object");
    forget();
}

TEST(safetensors_that_are_none)
{
    static const struct {
        const char *find, *replace, *text;
    } cases[] = {
        {"\"h.0.ln_1.bias\"", "\"h.0.ln_9.bias\"", "h.0.ln_1.bias is missing"},
        {"\"h.0.ln_1.bias\"", "\"h.0.ln_1.weight\"", "\"h.0.ln_1.weight\" appears twice"},
        {"\"h.0.ln_1.bias\"", "\"transformer.h.0.ln_1.weight\"", "is there twice"},
        {"\"lm_head.weight\"", "\"h.7.ln_1.weight\"", "asks for the tensor h.7.ln_1.weight"},
        {"\"h.0.ln_1.bias\":{\"dtype\":\"BF16\"", "\"h.0.ln_1.bias\":{\"dtype\":\"F8_E4M3\"",
         "h.0.ln_1.bias is of type F8_E4M3; supported are F32, F16, BF16 and F64"},
        {"\"h.0.ln_1.bias\":{\"dtype\":\"BF16\"", "\"h.0.ln_1.bias\":{\"dtype\":\"I16\"",
         "h.0.ln_1.bias is of type I16"},
        {"\"h.0.ln_1.bias\":{\"dtype\":\"BF16\"",
         "\"h.0.ln_1.bias\":{\"dtype\":\"\\u001b[31m\xc2\x9b\xc3\xa9\"",
         "h.0.ln_1.bias is of type \\x1b[31m\\xc2\\x9b\xc3\xa9; supported"},
        {"\"shape\":[300,16]", "\"shape\":[16,300]", "wte.weight is [16, 300], but config.json"},
        {"\"shape\":[300,16]", "\"shape\":[300,17]", "of shape [300, 17] does not take the 9600"},
        {"\"shape\":[300,16]", "\"shape\":[18446744073709551615,18446744073709551615]", "shape"},
        {"\"shape\":[300,16]", "\"shape\":[4294967296,4294967296,1]", "does not take"},
        {"\"shape\":[300,16]", "\"shape\":[64,288230376151711819]",
         "does not take"}, /* 2^64 + 4800 */
        {"\"shape\":[300,16]", "\"shape\":[300,-16]", "not a list of whole numbers"},
        {"\"shape\":[300,16],", "", "no usable dtype, shape and data_offsets"},
        {"\"shape\":[300,16]", "\"shape\":[300,16,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "no usable"},
        {"\"shape\":[300,16]", "\"shape\":[300,16,1,1,1,1]", "but config.json asks for [300, 16]"},
        {"\"h.0.ln_1.bias\"", "\"h.0.ln_1.\\u0000bias\"", "holds a zero byte"},
        {"\"lm_head.weight\"",
         "\"h.0.\\u0001\\u0001\\u0001\\u0001\\u0001\\u0001\\u0001\\u0001\\u0001\\u0001"
         "\\u0001\\u0001\\u0001\\u0001\\u0001\\u0001\\u0001\\u0001\\u0001\\u0001\"",
         "h.0.\\x01\\x01\\x01\\x01\\x01\\x01\\x01\\x01\\x01\\x01\\x01\\x01\\x01\\x01...\n"},
        {"\"data_offsets\":[0,9600]", "\"data_offsets\":[9600,0]", "should lie at bytes 9600 to 0"},
        {"\"data_offsets\":[0,9600]", "\"data_offsets\":[0,9600,1]", "no usable dtype"},
        {"\"data_offsets\":[0,9600]", "\"data_offsets\":[2,9602]", "overlap"},
        {"\"data_offsets\":[0,9600]", "\"data_offsets\":[90000,99600]", "was the file cut short?"},
        {"\"data_offsets\":[16480,26080]", "\"data_offsets\":[16481,26081]",
         "bytes 16481 to 26081 of the data, but the data has 26080"},
        {"{\"__metadata__\"",
         "{\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":"
         "[7,7]},\"__metadata__\"",
         "overlap"},
        {"\"h.0.ln_1.bias\":{\"dtype\":\"BF16\"", "\"h.0.ln_1.bias\":{\"dtype\":16", "no usable"},
        {"\"shape\":[300,16]", "\"shape\":300", "no usable dtype"},
        {"\"shape\":[300,16]",
         "\"shape\":[1111111111111111111,1111111111111111111,1111111111111111111]",
         "of shape [1111111111111111111, 1111111111111111111, ...] does not take"},
        {"\"data_offsets\":[0,9600]", "\"data_offsets\":9600", "no usable dtype"},
        {"\"data_offsets\":[0,9600]", "\"data_offsets\":[null,9600]", "no usable dtype"},
        {"\"data_offsets\":[0,9600]", "\"data_offsets\":[0,9600.5]", "no usable dtype"},
        {"\"dtype\":\"BF16\",\"shape\":[300,16],\"data_offsets\":[0,9600]",
         "\"dtype\":\"F4\",\"shape\":[300,16],\"data_offsets\":[0,9590]",
         "10 bytes in front of wpe.weight belong to no tensor"},
        {"{\"__metadata__\"", "[\"__metadata__\"", "malformed JSON"}};
    char path[600];
    const char *dir;
    size_t i, size, head;
    unsigned char *file;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(variant(FIXTURES "bf16", "model.safetensors", cases[i].find, cases[i].replace), "",
                cases[i].text);

    dir = copied(FIXTURES "bf16");
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    file = test_read(path, &size);
    if (!CHECK(file != NULL))
        return;
    head = (size_t)get_u64(file);
    for (i = 0; i < size; i += i < 16 ? 3 : size / 23) { /* cut */
        test_write(path, file, i);
        refused(dir, "",
                i == 0         ? "is empty"
                : i < 8        ? "too few"
                : i < 8 + head ? "cut"
                               : "cut short?");
    }
    test_write(path, "\2\0\0\0\0\0\0\0[]", 10);
    refused(dir, "", "its header is not a JSON object");
    test_write(path, "\2\0\0\0\0\0\0\0{}", 10); /* as good as any, but for what it lacks */
    refused(dir, "", "wte.weight is missing");
    put_u64(file, head - 1); /* the header ends in blanks, so one fewer is as good JSON */
    test_write(path, file, size);
    refused(dir, "", "belong to no tensor");
    put_u64(file, UINT64_MAX);
    test_write(path, file, size);
    refused(dir, "", "its header alone should have 18446744073709551615");
    put_u64(file, 100000001); /* in a file that is large enough, and takes no room on the disk */
    test_write(path, file, size);
    CHECK(truncate(path, 200000000) == 0);
    refused(dir, "", "its header alone should have 100000001");
    put_u64(file, head);
    file[size] = 0;
    test_write(path, file, size + 1); /* test_read leaves room for one byte */
    refused(dir, "", "1 bytes at its end belong to no tensor");

    memcpy(file + 8 + head + 2 * 33, "\xc0\x7f", 2); /* element 33 of wte.weight: NaN */
    test_write(path, file, size);
    refused(dir, "", "element 1 of row 2 of wte.weight is not a number (NaN)");
    memcpy(file + 8 + head + 2 * 33, "\x80\xff", 2);
    test_write(path, file, size);
    refused(dir, "", "element 1 of row 2 of wte.weight is infinite");
    memcpy(file + 8 + head + 2 * 33, "\x80\x47", 2); /* 65536 */
    test_write(path, file, size);
    refused(dir, "--dtype f16", "more than f16 can hold; convert with --dtype f32");
    free(file);
    forget();
}

TEST(shards_that_are_none)
{
    static const struct {
        const char *find, *replace, *text;
    } cases[] = {{"\"transformer.wte.weight\": \"model-00001",
                  "\"transformer.wte.weight\": \"model-00002",
                  "transformer.wte.weight is not in model-00002-of-00002"},
                 {"\"transformer.wte.weight\": \"model-00001",
                  "\"transformer.wte.weight\": \"model-00003", "cannot open"},
                 {"\"transformer.wte.weight\": \"model-00001",
                  "\"transformer.wte.weight\": \"\\u001b]0;x\\u0007\\u009b\\u007f",
                  "/?]0;x???\?-of-00002.safetensors: no such"},
                 {"\"transformer.wte.weight\": \"model", "\"transformer.wte.weight\": \"../model",
                  "not the name of a file beside it"},
                 {"\"transformer.wte.weight\": \"model",
                  "\"transformer.wte.weight\": \"..\\\\model", "not the name of a file beside it"},
                 {"\"transformer.wte.weight\": \"model",
                  "\"transformer.wte.weight\": \"\\u0000model", "not the name of a file beside it"},
                 {"\"transformer.wte.weight\"", "\"transformer.wte.bias\"",
                  "transformer.wte.bias is not in"},
                 {"\"transformer.wte.weight\"", "\"transmitter.wte.weight\"",
                  "transmitter.wte.weight is not in"},
                 {"\"weight_map\"", "\"weights\"", "has no object weight_map"},
                 {"\"weight_map\"", "\"weight_map\": {}, \"x\"", "has no object weight_map"},
                 {"\"weight_map\"", "\"weight_map\": [], \"x\"", "has no object weight_map"},
                 {"\"weight_map\": {", "\"weight_map\": {\"x\": 1, ",
                  "the file of x is not the name of a file"},
                 {"\"weight_map\": {", "\"weight_map\": {\"x\": \"\", ",
                  "the file of x is not the name of a file"}};
    const char *dir;
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(variant(FIXTURES "sharded", "model.safetensors.index.json", cases[i].find,
                        cases[i].replace),
                "", cases[i].text);
    dir = variant(FIXTURES "sharded", "model-00002-of-00002.safetensors", "transformer.ln_f.weight",
                  "transformer.wte.weight");
    refused(dir, "", "wte.weight is there twice");
    CHECK(run("rm %s/model-00002*", copied(FIXTURES "sharded")) == 0);
    refused(test_tmp("variant"), "", "cannot open");
    dir = variant(FIXTURES "sharded", "model.safetensors.index.json",
                  "\"transformer.wte.weight\": \"model-00001-of-00002.safetensors\"",
                  "\"transformer.wte.weight\": \"x\"");
    CHECK(run("printf '\\2\\0\\0\\0\\0\\0\\0\\0{}' >%s/x", dir) == 0);
    refused(dir, "", "transformer.wte.weight is not in x");
    forget();
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
    char parent[600];
    DIR *dir;
    struct dirent *entry;
    int n = 0;
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(path, '/') - path), path);
    if ((dir = opendir(parent)) == NULL)
        return -1;
    while ((entry = readdir(dir)) != NULL)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* The program's own function, on a checkpoint; 1 if the answer was a model. */
static int convert_here(const char *input, const char *what, size_t at)
{
    static source s;
    char output[512];
    attn_model *model = NULL;
    attn_ctx ctx;
    convert_options o;
    attn_status status;
    memset(&ctx, 0, sizeof ctx);
    memset(&o, 0, sizeof o);
    snprintf(output, sizeof output, "%s.attn", input);
    ctx.n_threads = 1;
    o.input = input;
    o.output = output;
    o.dtype = -1;
    o.quiet = 1;
    status = convert(&ctx, &s, &o);
    source_close(&s);
    if (status == ATTN_OK)
        OK(&ctx, attn_model_open(&ctx, &model, output, NULL));
    else
        CHECKF(ctx.message[0] && status != ATTN_E_MEMORY && !exists(output), "%s, %zu: %s, %s",
               what, at, attn_status_name(status), ctx.message);
    if (status == ATTN_OK)
        CHECKF(remove(output) == 0 && model, "%s, %zu: no model", what, at);
    CHECKF(neighbours(input) == 1, "%s, %zu: something is left behind", what, at);
    attn_model_close(model);
    attn_ctx_free(&ctx);
    return status == ATTN_OK;
}

/* The same for a vocabulary alone. */
static int read_vocabulary(const char *dir, const char *what, size_t at)
{
    attn_tokenizer *tokenizer = NULL;
    unsigned char *section = NULL;
    attn_ctx ctx;
    attn_status status;
    size_t size;
    memset(&ctx, 0, sizeof ctx);
    status = vocab_read(&ctx, dir, &section, &size, NULL);
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
    size_t end = 0, i;
    if (d->file && strstr(d->file, ".safetensors") && !strstr(d->file, ".json"))
        return 8 + (size_t)get_u64((unsigned char *)bytes);
    if (!d->last)
        return d->size ? d->size : size;
    for (i = 0; i + strlen(d->last) < size; i++)
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
    forget();
}

static void every_cut_and_bit(const damaged *d)
{
    scene s;
    size_t end, at, n_good, n_whole = 0;
    int file;
    if (!scene_begin(&s, d->input, d->file, NULL))
        return;
    end = header_end(d, s.bytes, s.size);
    CHECKF(end > 30 && end <= s.size, "%s: %zu of %zu", s.path, end, s.size);
    n_good = (size_t)d->read(s.copy, s.path, s.size);
    CHECKF(n_good == 1, "%s cannot be read by itself", s.path);
    file = open(s.path, O_WRONLY);
    for (at = 0; CHECK(file >= 0) && at < 8 * end; at += TEST_SANITIZED ? 7 : 1) { /* slower */
        const char other = (char)(s.bytes[at / 8] ^ 1 << at % 8);
        if (!CHECK(pwrite(file, &other, 1, (off_t)(at / 8)) == 1))
            break;
        n_good += (size_t)d->read(s.copy, s.path, at);
        if (!CHECK(pwrite(file, &s.bytes[at / 8], 1, (off_t)(at / 8)) == 1))
            break;
    }
    CHECKF(n_good > 1 && n_good < 8 * end, "%s: %zu good", s.path, n_good);
    for (at = s.size; at-- > 0;) /* the weights begin and end at multiples of 8 */
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
    size_t head = 0, end, at, n, i, m, n_numbers = 0, n_good = 0;
    char *made;
    if (!scene_begin(&s, d->input, d->file, d->text))
        return;
    end = s.size;
    if (!d->text && strcmp(d->file, "model.safetensors") == 0) {
        head = 8;
        end = 8 + (size_t)get_u64((unsigned char *)s.bytes);
    }
    CHECKF(d->read(s.copy, s.path, 0) == 1, "%s cannot be read by itself", s.path);
    made = (char *)malloc(s.size + 24);
    for (at = head; CHECK(made != NULL) && (n = next_number(s.bytes, end, &at)) > 0; at += n) {
        n_numbers++;
        for (i = 0; i < N_ODD_SIZES; i++) {
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
        /* good: one head; tokens 0 and 1 that begin a text or end it; whatever else ends it */
        {"bf16", "config.json",
         "{\"vocab_size\": 300, \"n_ctx\": 8, \"n_embd\": 16, \"n_head\": 2, \"n_layer\": 1,\n"
         "\"n_inner\": 64, \"layer_norm_epsilon\": 1e-5, \"bos_token_id\": 299,\n"
         "\"eos_token_id\": [298, 299]}",
         convert_here, 10, 1 + 2 + 2 + 6},
        /* here any n_ctx is good, beside n_positions */
        {"bf16", "config.json", NULL, convert_here, 9, 1 + 2 + 2 + 6},
        {"bf16", "model.safetensors", NULL, convert_here, 58, 0},
        /* the sum of the sizes, which nobody needs */
        {"sharded", "model.safetensors.index.json", NULL, convert_here, 1, 6},
        {"bf16", "vocab.json", NULL, read_vocabulary, 300, 0},
        {"bf16", "added_tokens.json", "{\"<|a|>\": 300, \"<|b|>\": 301}", read_vocabulary, 2, 0},
        {"sharded", "tokenizer.json", NULL, read_vocabulary, 301, 0}};
    size_t i;
    for (i = 0; i < sizeof all / sizeof all[0]; i++)
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
    uint64_t i;
    place(p, 8, 8);
    place(p, 16, 8);
    for (i = 0; i < n_keys; i++) {
        at = place_string(p, bytes, at);
        place(p, at, 4);
        at = place_value(p, bytes, at + 4, get_u32(bytes + at), 0);
    }
    for (i = 0; i < n_tensors; i++) {
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
    size_t i, k, v, n_good;
    scene s;
    for (i = 0; i < sizeof all / sizeof all[0]; i++) {
        const size_t width = all[i].file ? 8 : 4;
        int file;
        if (!scene_begin(&s, all[i].input, all[i].file, NULL))
            return;
        p.n = n_good = 0;
        for (k = 0; k < all[i].n_words; k++)
            place(&p, width * k, width);
        if (!all[i].n_words)
            place_gguf(&p, (unsigned char *)s.bytes);
        CHECKF(convert_here(s.copy, s.path, 0) == 1, "%s cannot be read by itself", s.path);
        file = open(s.path, O_WRONLY);
        for (k = 0; CHECK(file >= 0) && k < p.n; k++) {
            for (v = 0; v < N_ODD_SIZES; v++) {
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

/* >> Files of bytes that are none ============================================================== */

/* Overwrites one byte behind the first occurrence of a text. */
static void patch(unsigned char *bytes, size_t size, const char *after, size_t skip, unsigned byte)
{
    char *at = find_bytes((char *)bytes, size, after);
    if (CHECKF(at != NULL, "no %s", after))
        at[strlen(after) + skip] = (char)byte;
}

TEST(gguf_that_is_none)
{
    static const struct {
        const char *after;
        size_t skip;
        unsigned byte;
        const char *text;
    } cases[] = {
        {"GGUF", 0, 1, "GGUF of version 1; versions 2 and 3"},
        {"GGUF", 0, 0, "GGUF of version 0 or big-endian"},
        {"GGUF", 11, 0x7f, "as the size of its list of tensors is more than"},
        {"GGUF", 19, 0x7f, "as the size of its list of keys is more than"},
        {"general.architecture", 4 + 8, 'b', "its architecture is bpt2; only gpt2"},
        {"gpt2.block_count", 4, 3, "blk.2.attn_norm.weight is missing"},
        {"gpt2.block_count", 4, 1, "asks for the tensor blk.1."},
        {"gpt2.block_count", 0, 77, "the type of gpt2.block_count is 77"},
        {"gpt2.block_coun", 0, 'x', "has no key gpt2.block_count"},
        {"gpt2.attention.head_count", 4, 5, "gpt2.attention.head_count_kv differs from"},
        {"gpt2.context_length", 4, 17, "position_embd.weight is [16, 32], but its metadata asks"},
        {"general.alignment", 4, 0, "general.alignment is 0"},
        {"general.alignment", 7, 1, "general.alignment is 16777280"},
        {"gpt2.attention.head_count_kv", 4, 2, "as many heads for keys as for queries"},
        {"tokenizer.ggml.token_type", 16 + 4 * 298, 5, "merge 42"}, /* a token that is unused */
        {"tokenizer.ggml.merge", 0, 'x', "do not make a vocabulary"},
        {"tokenizer.ggml.tokens", 15, 0x7f, "as the size of tokenizer.ggml.tokens is more than"},
        {"tokenizer.ggml.pre", 4 + 8, 'G', "its tokenizer is \"Gpt-2\"; only gpt2's"},
        {"tokenizer.ggml.merges", 8 + 8 + 8, '!', "merge 0"},
        {"general.nam", 0, 'E', ""}, /* another name is fine */
        {"blk.0.attn_qkv.weight", 0, 9, "has 9 dimensions"},
        {"blk.0.attn_qkv.weight", 4, 64, "blk.0.attn_qkv.weight"},
        {"blk.0.attn_qkv.weight", 4, 33, "[96, 33] cannot be Q8_0, whose rows are blocks of 32"},
        {"blk.0.attn_qkv.weight", 20, 12, "[96, 32] cannot be Q4_K, whose rows are blocks of 256"},
        {"blk.0.attn_qkv.weight", 20, 22,
         "is of type IQ2_S; supported are F32, F16, BF16, F64, Q2"},
        {"blk.0.attn_qkv.weight", 20, 99, "is of type number 99"},
        {"blk.0.attn_qkv.weight", 24, 1, "does not fit"},
        {"blk.0.attn_qkv.weight", 27, 1, "does not fit"},
        {"blk.0.attn_norm.weight", 17, 0x10, "overlap"},
        {"blk.0.attn_norm.weigh", 0, 'T', "blk.0.attn_norm.weight is missing"},
        {"blk.0.attn_norm.weigh", 0, 0, "holds a zero byte"},
        {"blk.0.attn_norm.bia", 0, 'S', "blk.0.attn_norm.bias is missing"}};
    enum { N_NESTED = 200000 };
    static unsigned char nested[37 + 12 * N_NESTED];
    size_t size, i;
    unsigned char *whole = test_read(FIXTURES "tiny.gguf", &size), *bytes;
    char path[512], *at;
    snprintf(path, sizeof path, "%s", test_tmp("variant.gguf"));
    if (!CHECK(whole && (bytes = (unsigned char *)malloc(size)) != NULL))
        return;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(bytes, whole, size);
        patch(bytes, size, cases[i].after, cases[i].skip, cases[i].byte);
        test_write(path, bytes, size);
        if (cases[i].text[0])
            refused(path, "", cases[i].text);
        else
            CHECK(run(TEST_BUILD "/attn-convert %s %s", path, test_tmp("x.attn")) == 0);
    }
    for (i = 0; i < size; i += i < 24 ? 4 : 1 + size / 60) { /* cut anywhere */
        test_write(path, whole, i);
        refused(path, "", "");
    }
    memcpy(bytes, whole, size);
    at = find_bytes((char *)bytes, size, "tokenizer.ggml.eos_token_id");
    if (CHECK(at != NULL)) {
        memcpy(at, "tokenizer.ggml.bos", 18);
        test_write(path, bytes, size);
        refused(path, "", "the key tokenizer.ggml.bos_token_id appears twice");
    }
    memcpy(nested, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0a\11\0\0\0", 37);
    for (i = 0; i < N_NESTED; i++)
        memcpy(nested + 37 + 12 * i, "\11\0\0\0\1\0\0\0\0\0\0\0", 12);
    test_write(path, nested, sizeof nested);
    refused(path, "", "a is arrays inside each other, more than 4 deep");
    memcpy(bytes, whole, size);
    patch(bytes, size, "GGUF", 0, 2); /* version 2 has the same layout */
    test_write(path, bytes, size);
    CHECK(run(TEST_BUILD "/attn-convert %s %s", path, test_tmp("x.attn")) == 0);
    free(whole);
    free(bytes);
    forget();
}

/* Puts a key of any type in front of the keys of a GGUF file: `value` is what follows the type.
 * Another key, as long as it takes, has the tensors' data move by a multiple of its alignment. */
static unsigned char *with_key(const unsigned char *bytes, size_t *size, const char *key,
                               unsigned type, const char *value, size_t value_size)
{
    const size_t n = strlen(key), own = 8 + n + 4 + value_size, padding = 64 - (own + 13) % 64;
    const size_t added = own + 13 + padding;
    unsigned char *made = (unsigned char *)calloc(1, *size + added), *p = made + 24;
    if (!CHECK(made != NULL))
        return NULL;
    memcpy(made, bytes, 24);
    put_u64(made + 16, get_u64(bytes + 16) + 2);
    put_u64(p, n);
    memcpy(p + 8, key, n);
    put_u32(p + 8 + n, type);
    memcpy(p + 12 + n, value, value_size);
    p += own;
    put_u64(p, padding); /* 8 bytes, the name, 4 for the type, which is 0, and a byte */
    memset(p + 8, 'x', padding);
    memcpy(p + 13 + padding, bytes + 24, *size - 24);
    *size += added;
    return made;
}

/* Every type that a key can have, for keys that mean nothing here and for those that do. */
TEST(gguf_keys)
{
    static const struct {
        const char *without, *key; /* the former is renamed */
        unsigned type;
        const char *value;
        size_t size;
        const char *text; /* of the refusal, or "" */
    } cases[] = {
        {"", "u8", 0, "\377", 1, ""},
        {"", "i8", 1, "\377", 1, ""},
        {"", "u16", 2, "\377\377", 2, ""},
        {"", "i16", 3, "\377\377", 2, ""},
        {"", "u32", 4, "\377\377\377\377", 4, ""},
        {"", "i32", 5, "\377\377\377\377", 4, ""},
        {"", "f32", 6, "\377\377\377\377", 4, ""},
        {"", "bool", 7, "\1", 1, ""},
        {"", "string", 8, "\2\0\0\0\0\0\0\0ab", 10, ""},
        {"", "array", 9, "\1\0\0\0\2\0\0\0\0\0\0\0\1\377", 14, ""},
        {"", "u64", 10, "\377\377\377\377\377\377\377\377", 8, ""},
        {"", "i64", 11, "\377\377\377\377\377\377\377\377", 8, ""},
        {"", "f64", 12, "\377\377\377\377\377\377\377\377", 8, ""},
        {"", "beyond", 13, "", 0, "the type of beyond is 13, which GGUF does not have"},
        {"", "array", 9, "\15\0\0\0\1\0\0\0\0\0\0\0", 12, "array is an array of type 13"},
        {"gpt2.block_count", "gpt2.block_count", 0, "\2", 1, ""},
        {"gpt2.block_count", "gpt2.block_count", 11, "\2\0\0\0\0\0\0\0", 8, ""},
        {"gpt2.block_count", "gpt2.block_count", 5, "\376\377\377\377", 4, "not a usable number"},
        {"gpt2.block_count", "gpt2.block_count", 1, "\376", 1, "not a usable number"},
        {"gpt2.block_count", "gpt2.block_count", 6, "\0\0\0\100", 4, "not a usable number"},
        {"gpt2.block_count", "gpt2.block_count", 12, "\0\0\0\0\0\0\0\100", 8,
         "not a usable number"},
        {"gpt2.block_count", "gpt2.block_count", 8, "\1\0\0\0\0\0\0\0002", 9,
         "not a usable number"},
        {"gpt2.block_count", "gpt2.block_count", 9, "\0\0\0\0\1\0\0\0\0\0\0\0\2", 13,
         "not a usable number"},
        {"gpt2.embedding_length", "", 0, "\0", 1, "has no key gpt2.embedding_length"},
        {"gpt2.feed_forward_length", "", 0, "\0", 1, "has no key gpt2.feed_forward_length"},
        {"gpt2.context_length", "", 0, "\0", 1, "has no key gpt2.context_length"},
        {"gpt2.attention.head_count\4", "", 0, "\0", 1, "has no key gpt2.attention.head_count"},
        {"gpt2.attention.head_count_kv", "", 0, "\0", 1, ""},
        {"gpt2.attention.head_count_kv", "gpt2.attention.head_count_kv", 6, "\0\0\0\100", 4,
         "differs from"},
        {"general.architecture", "", 0, "\0", 1, "its architecture is not given"},
        {"general.architecture", "general.architecture", 0, "\2", 1, "architecture is not given"},
        {"general.architecture", "general.architecture", 9,
         "\10\0\0\0\1\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0gpt2", 24, "architecture is not given"},
        {"general.architecture", "general.architecture", 8, "\4\0\0\0\0\0\0\0gptj", 12,
         "its architecture is gptj"},
        {"general.alignment", "general.alignment", 10, "\100\0\0\0\0\0\0\0", 8, ""},
        {"general.alignment", "general.alignment", 6, "\0\0\0\102", 4, "not a usable number"},
        {"layer_norm_epsilon", "", 0, "\0", 1, "no usable gpt2.attention.layer_norm_epsilon"},
        {"layer_norm_epsilon", "gpt2.attention.layer_norm_epsilon", 12,
         "\361\150\343\210\265\370\344\076", 8, ""}, /* 1e-5 */
        {"layer_norm_epsilon", "gpt2.attention.layer_norm_epsilon", 4, "\0\0\0\0", 4, "no usable"},
        {"layer_norm_epsilon", "gpt2.attention.layer_norm_epsilon", 9,
         "\6\0\0\0\1\0\0\0\0\0\0\0\0\0\0\75", 16, "no usable"},
        {"bos_token_id", "tokenizer.ggml.bos_token_id", 8, "\1\0\0\0\0\0\0\0002", 9,
         "bos_token_id is not a usable number"},
        {"eos_token_id", "tokenizer.ggml.eos_token_id", 6, "\0\0\0\100", 4,
         "eos_token_id is not a usable number"},
        {"tokenizer.ggml.model", "tokenizer.ggml.model", 8, "\5\0\0\0\0\0\0\0llama", 13,
         "its tokenizer is \"llama\""},
        {"tokenizer.ggml.model", "tokenizer.ggml.model", 0, "\0", 1, "its tokenizer is \"\""},
        {"tokenizer.ggml.model", "", 0, "\0", 1, ""}, /* then there is no tokenizer */
        {"tokenizer.ggml.pre", "tokenizer.ggml.pre", 8, "\4\0\0\0\0\0\0\0gpt2", 12, ""},
        {"tokenizer.ggml.pre", "tokenizer.ggml.pre", 8, "\7\0\0\0\0\0\0\0default", 15, ""},
        {"tokenizer.ggml.pre", "tokenizer.ggml.pre", 8, "\6\0\0\0\0\0\0\0llama3", 14,
         "its tokenizer is \"llama3\""},
        {"tokenizer.ggml.tokens", "", 0, "\0", 1, "do not make a vocabulary"},
        {"tokenizer.ggml.tokens", "tokenizer.ggml.tokens", 9, "\0\0\0\0\1\0\0\0\0\0\0\0\2", 13,
         "do not make a vocabulary"},
        {"tokenizer.ggml.merges", "tokenizer.ggml.merges", 9, "\0\0\0\0\1\0\0\0\0\0\0\0\2", 13,
         "do not make a vocabulary"},
        {"tokenizer.ggml.token_type", "", 0, "\0", 1, ""},
        {"tokenizer.ggml.token_type", "tokenizer.ggml.token_type", 0, "\1", 1, "do not make"},
        {"tokenizer.ggml.token_type", "tokenizer.ggml.token_type", 9, "\0\0\0\0\1\0\0\0\0\0\0\0\2",
         13, "do not make a vocabulary"}};
    size_t size, made_size, i;
    unsigned char *whole = test_read(FIXTURES "tiny.gguf", &size), *made;
    char path[512], *at;
    attn_ctx ctx;
    attn_model *model;
    snprintf(path, sizeof path, "%s", test_tmp("variant.gguf"));
    for (i = 0; whole && i < sizeof cases / sizeof cases[0]; i++) {
        const size_t n = strlen(cases[i].without);
        if (n) {
            at = find_bytes((char *)whole, size, cases[i].without);
            if (!CHECKF(at != NULL, "no %s", cases[i].without))
                continue;
            *at ^= 32; /* another key, for a moment */
        } else {
            at = NULL;
        }
        made_size = size;
        made =
            with_key(whole, &made_size, cases[i].key, cases[i].type, cases[i].value, cases[i].size);
        if (at)
            *at ^= 32;
        if (!made)
            break;
        test_write(path, made, made_size);
        free(made);
        if (cases[i].text[0]) {
            CHECKF(refused(path, "", cases[i].text), "%s of type %u", cases[i].key, cases[i].type);
        } else {
            model = converted(&ctx, path, "");
            if (CHECKF(model != NULL, "%s of type %u", cases[i].key, cases[i].type))
                same_as_reference(model, "tiny.gguf");
            CHECK(model && (attn_model_tokenizer(model) == NULL) ==
                               (strcmp(cases[i].without, "tokenizer.ggml.model") == 0));
            attn_model_close(model);
        }
    }
    free(whole);
    forget();
}

/* What a key says of the tokens around a text, or of conversations, is said; or refused. */
TEST(gguf_texts)
{
    static const struct {
        const char *key;
        unsigned type;
        const char *value, *options;
        size_t size;
        int code;
        const char *text; /* of a note or the refusal, or "" */
    } cases[] = {
        {"tokenizer.ggml.add_bos_token", 7, "\1", "", 1, 0,
         "note: texts shall begin with \"<|endoftext|>\" (id 299): give --bos"},
        {"tokenizer.ggml.add_bos_token", 7, "\0", "", 1, 0, ""},
        {"tokenizer.ggml.add_bos_token", 7, "\1", "--no-tokenizer", 1, 0, ""},
        {"tokenizer.ggml.add_eos_token", 7, "\1", "", 1, 1,
         "add_eos_token is true, so the end-of-text token is put behind texts"},
        {"tokenizer.ggml.add_eos_token", 7, "\1", "--tokenizer " FIXTURES "strings", 1, 0, ""},
        {"tokenizer.chat_template", 8, "\2\0\0\0\0\0\0\0{}", "", 10, 0,
         "note: variant.gguf has a chat template, which attn.h does not apply"}};
    size_t size, made_size, i, turn;
    unsigned char *whole = test_read(FIXTURES "tiny.gguf", &size), *made;
    char path[512], command[2048];
    snprintf(path, sizeof path, "%s", test_tmp("variant.gguf"));
    for (i = 0; whole && i < 2 * sizeof cases / sizeof cases[0]; i++) {
        const char *bos = find_bytes((char *)whole, size, "bos_token_id");
        turn = i % 2; /* 1: the model has no bos id */
        if (turn && CHECK(bos))
            whole[bos - (char *)whole] ^= 32;
        made_size = size;
        made = with_key(whole, &made_size, cases[i / 2].key, cases[i / 2].type, cases[i / 2].value,
                        cases[i / 2].size);
        if (turn && bos)
            whole[bos - (char *)whole] ^= 32;
        if (!made)
            break;
        test_write(path, made, made_size);
        free(made);
        snprintf(command, sizeof command, TEST_BUILD "/attn-convert %s %s -q %s", path,
                 test_tmp("x.attn"), cases[i / 2].options);
        CHECKF(run("%s", command) == cases[i / 2].code && strstr(err, cases[i / 2].text) &&
                   (err_size == 0) == !cases[i / 2].text[0],
               "%s: %s", cases[i / 2].key, err);
    }
    free(whole);
    forget();
}

/* Types of tokens, and spellings that are not UTF-8, which JSON could not hold. */
TEST(gguf_tokens)
{
    size_t size, i;
    unsigned char *whole = test_read(FIXTURES "tiny.gguf", &size);
    char path[512], *tokens, *types, *zero, *last, *next;
    attn_ctx ctx;
    attn_model *model;
    snprintf(path, sizeof path, "%s", test_tmp("variant.gguf"));
    if (!CHECK(whole && (tokens = find_bytes((char *)whole, size, "tokenizer.ggml.tokens")) &&
               (types = find_bytes((char *)whole, size, "tokenizer.ggml.token_type"))))
        return;
    memset(&ctx, 0, sizeof ctx);
    for (i = 1; i <= 6; i++) { /* "<|endoftext|>", id 299, as each type */
        int32_t ids[32];
        size_t n = 0;
        types[25 + 4 + 4 + 8 + 4 * 299] = (char)i;
        test_write(path, whole, size);
        model = converted(&ctx, path, "");
        if (CHECK(model && attn_model_tokenizer(model))) {
            OK(&ctx,
               attn_encode(&ctx, ids, 32, &n, attn_model_tokenizer(model), "<|endoftext|>", 13, 1));
            CHECKF((n == 1 && ids[0] == 299) == (i != 5), "type %d", (int)i); /* 5: unused */
        }
        attn_model_close(model);
        attn_ctx_free(&ctx);
    }
    types[25 + 4 + 4 + 8 + 4 * 299] = 3;
    tokens[21 + 4 + 4 + 8 + 8] = (char)0xc3; /* "!", id 0 */
    test_write(path, whole, size);
    refused(path, "", "(\"\xc3\") has a character that is none of GPT-2's stand-ins");
    tokens[21 + 4 + 4 + 8 + 8] = '!';
    zero = tokens + 21 + 4 + 4 + 8; /* U+0100 stands for the byte 0 and comes behind 188 others */
    for (i = 0; i < 188; i++)
        zero += 8 + get_u64((unsigned char *)zero);
    if (CHECK(memcmp(zero + 8, "\xc4\x80", 2) == 0)) {
        zero[9] = 'A';
        test_write(path, whole, size);
        refused(path, "", "has a character that is none of GPT-2's stand-ins");
        zero[9] = (char)0x80;
    }
    next = (char *)whole;
    do { /* the last entry of the list of tensors is whole, and nothing follows */
        last = next;
        next = find_bytes(last + 1, size - (size_t)(last + 1 - (char *)whole), "output.weight");
    } while (next);
    test_write(path, whole, (size_t)(last - (char *)whole) + 13 + 4 + 16 + 4 + 8);
    refused(path, "", "does not fit in the 0 bytes there; was the file cut short?");
    free(whole);
    attn_model_close(converted(&ctx, FIXTURES "tiny.gguf", "--tokenizer " FIXTURES "strings"));
    forget();
}

TEST(llmc_that_is_none)
{
    static const struct {
        size_t word;
        uint32_t value;
        const char *text;
    } cases[] = {{0, 20240327, "is neither a GGUF file, nor an llm.c checkpoint"},
                 {1, 1, "of version 1; versions 3 (f32) and 5 (bf16)"},
                 {1, 5, "but its header asks for"},
                 {2, 9, "but its header asks for"},
                 {3, 385, "385 tokens is padded to only 384"},
                 {4, 0, "number 4 of its header is 0"},
                 {4, 65537, "number 4 of its header is 65537, which cannot be"},
                 {4, 65536, "but its header asks for"},
                 {4, 3, "but its header asks for"},
                 {5, 3, "3 heads share a width of 16"},
                 {6, 0x7fffffff, "which cannot be"},
                 {6, 0x1000000, "more weights than any file can hold"},
                 {7, 0, "comes from an early llm.c"}};
    size_t size, i;
    unsigned char *whole = test_read(FIXTURES "v3.bin", &size), *bytes;
    char path[512];
    snprintf(path, sizeof path, "%s", test_tmp("variant.bin"));
    if (!CHECK(whole && (bytes = (unsigned char *)malloc(size)) != NULL))
        return;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(bytes, whole, size);
        put_u32(bytes + 4 * cases[i].word, cases[i].value);
        if (cases[i].value == 0x1000000)
            put_u32(bytes + 16, 65536);
        test_write(path, bytes, size);
        refused(path, "", cases[i].text);
    }
    for (i = 0; i < size; i += i < 8 ? 1 : 1 + size / 12) {
        test_write(path, whole, i);
        refused(path, "",
                i == 0     ? "is empty"
                : i < 4    ? "is neither"
                : i < 1024 ? "cut short"
                           : "header asks for");
    }
    free(whole);
    free(bytes);
    forget();
}

/* GPT-2's vocabulary, which is all that llm.c knows, and one that was not padded. */
TEST(llmc_vocabularies)
{
    static const uint32_t header[8] = {20240326, 3, 8, 50257, 1, 2, 16, 50304};
    unsigned char bytes[1024] = {0}, *whole;
    char path[512];
    attn_ctx ctx;
    attn_model *model;
    size_t i, size;
    for (i = 0; i < 8; i++)
        put_u32(bytes + 4 * i, header[i]);
    snprintf(path, sizeof path, "%s", test_tmp("variant.bin"));
    test_write(path, bytes, sizeof bytes);
    CHECK(truncate(path, 1024 + 4 * (12 * 16 * 16 + 13 * 16 + (50304 + 8 + 2) * 16)) == 0);
    model = converted(&ctx, path, "");
    CHECK(model && attn_model_config(model)->bos == 50256 &&
          attn_model_config(model)->eos == 50256);
    attn_model_close(model);
    if (CHECK((whole = test_read(FIXTURES "v3.bin", &size)) != NULL)) {
        put_u32(whole + 12, 384);
        test_write(path, whole, size);
        model = converted(&ctx, path, "");
        CHECK(model && attn_model_config(model)->n_vocab == 384);
        attn_model_close(model);
        model = converted(&ctx, path, "--tokenizer " FIXTURES "strings"); /* which has 300 */
        CHECK(model && attn_tokenizer_n_tokens(attn_model_tokenizer(model)) == 384);
        attn_model_close(model);
    }
    free(whole);
    forget();
}

TEST(inputs_that_are_none)
{
    const char *dir = copied(FIXTURES "bf16");
    char path[600];
    refused("no/such/thing", "", "cannot open no/such/thing");
    refused("tests", "", "tests holds no config.json");
    test_write(test_tmp("variant.bin"), "version https://git-lfs.github.com/spec/v1\noid", 46);
    refused(test_tmp("variant.bin"), "", "`git lfs pull` fetches the file");
    CHECK(run("mv %s %s/model.safetensors", test_tmp("variant.bin"), dir) == 0);
    refused(dir, "", "`git lfs pull` fetches the file");
    dir = copied(FIXTURES "bf16");
    refused("LICENSE", "", "is neither a GGUF file, nor an llm.c checkpoint, nor a directory");
    refused(FIXTURES "bf16/model.safetensors", "", "give the directory that holds it");
    CHECK(run(TEST_BUILD "/attn-convert %s %s", FIXTURES "bf16", test_tmp("x.attn")) == 0);
    refused(test_tmp("x.attn"), "", "is a .attn file already");
    snprintf(path, sizeof path, "%s", test_tmp("variant.pt"));
    test_write(path, "PK\003\004 and so on", 14);
    refused(path, "", "tools/convert/pickle-to-safetensors.py");
    test_write(path, "\x80\x02}q\x01", 5);
    refused(path, "", "tools/convert/pickle-to-safetensors.py");
    CHECK(run("mv %s/model.safetensors %s/pytorch_model.bin", dir, dir) == 0);
    refused(dir, "", "tools/convert/pickle-to-safetensors.py");
    CHECK(run("rm %s/pytorch_model.bin", dir) == 0);
    refused(dir, "", "neither model.safetensors nor model.safetensors.index.json");
    CHECK(run("mkdir %s/model.safetensors", dir) == 0);
    refused(dir, "", "model.safetensors");
    forget();
}

/* What can be opened, but not read from the middle, is refused before it is opened. If it were
 * not, the pipe's other end would not keep the program waiting. */
TEST(inputs_that_are_no_files)
{
    static const char *const names[] = {"config.json", "model.safetensors", "vocab.json",
                                        "merges.txt"};
    char pipe_path[512], command[700];
    size_t i;
    snprintf(pipe_path, sizeof pipe_path, "%s", test_tmp("pipe"));
    CHECK(run("rm -f %s; mkfifo %s", pipe_path, pipe_path) == 0);
    snprintf(command, sizeof command, "(echo >%s) 2>/dev/null & other=$!; ", pipe_path);
    for (i = 0; i <= sizeof names / sizeof names[0]; i++) {
        const char *input = pipe_path;
        if (i > 0) {
            input = copied(FIXTURES "bf16");
            CHECK(run("mv %s %s/%s", pipe_path, input, names[i - 1]) == 0);
            snprintf(pipe_path, sizeof pipe_path, "%s/%s", input, names[i - 1]);
            snprintf(command, sizeof command, "(echo >%s) 2>/dev/null & other=$!; ", pipe_path);
        }
        CHECK(run("%s" TEST_BUILD "/attn-convert %s %s; code=$?; kill $other; exit $code", command,
                  input, test_tmp("refused.attn")) == 1);
        CHECKF(strstr(err, "is a pipe, where a file is needed") != NULL, "%s: %s", pipe_path, err);
        if (i > 0) {
            CHECK(run("mv %s %s", pipe_path, test_tmp("pipe")) == 0);
            snprintf(pipe_path, sizeof pipe_path, "%s", test_tmp("pipe"));
        }
    }
    CHECK(!exists(test_tmp("refused.attn")) && !leftovers());
    if (exists("/dev/null")) {
        refused("/dev/null", "", "/dev/null is a device, where a file is needed");
        CHECK(run(TEST_BUILD "/attn-convert " FIXTURES "bf16 /dev/null") == 1 &&
              strstr(err, "/dev/null is a device; expected a file name"));
    }
    CHECK(run(TEST_BUILD "/attn-convert " FIXTURES "bf16 %s", pipe_path) == 1 &&
          strstr(err, "is a pipe; expected a file name"));
    remove(pipe_path);
    forget();
}

/* The hub's cache holds directories of links to files whose names are hashes. */
TEST(directories_of_links)
{
    char dir[512];
    attn_ctx ctx;
    attn_model *model;
    snprintf(dir, sizeof dir, "%s", test_tmp("hub"));
    CHECK(run("rm -rf %s; mkdir -p %s/blobs %s/snapshots/main && cp " FIXTURES "bf16/* %s/blobs && "
              "cd %s/blobs && for f in *; do mv $f 0123$f && "
              "ln -s ../../blobs/0123$f ../snapshots/main/$f; done",
              dir, dir, dir, dir, dir) == 0);
    snprintf(dir, sizeof dir, "%s", test_tmp("hub/snapshots/main"));
    model = converted(&ctx, dir, "");
    if (model)
        same_as_reference(model, "bf16");
    CHECK(model && attn_model_tokenizer(model) != NULL);
    attn_model_close(model);
    CHECK(run("rm %s/../../blobs/*model.safetensors", dir) == 0); /* a link to nothing */
    refused(dir, "", "model.safetensors");
    CHECK(run("rm -r %s", test_tmp("hub")) == 0);
    forget();
}

/* The Python that has PyTorch: the first one, or the system's behind it. NULL, and the case counts
 * as skipped, if neither has. */
static const char *python_with_torch(void)
{
    static const char *const pythons[] = {"python3", "/usr/bin/python3"};
    size_t i;
    for (i = 0; i < sizeof pythons / sizeof pythons[0]; i++)
        if (run("%s -c 'from importlib.util import find_spec as there; "
                "exit(not (there(\"numpy\") and there(\"torch\")))'",
                pythons[i]) == 0)
            return pythons[i];
    test_skip("no PyTorch here");
    return NULL;
}

/* Pickles on their way through tools/convert/pickle-to-safetensors.py, where there is a PyTorch. */
TEST(pickles)
{
    static const char *const inputs[] = {"hub", "nano/ckpt.pt"};
    const char *python = python_with_torch();
    char dir[512], made[512];
    size_t i;
    int old;
    if (!python)
        return;
    /* before 2.6 nothing is loaded that is not trusted */
    old = run("%s -c 'import torch; major, minor = torch.__version__.split(\".\")[:2]; "
              "exit((int(major), int(minor)) < (2, 6))'",
              python) != 0;
    snprintf(dir, sizeof dir, "%s", test_tmp("pickles"));
    snprintf(made, sizeof made, "%s", test_tmp("pickles/made"));
    if (!CHECKF(run("rm -rf %s && mkdir %s && %s tests/makers/make_pickles.py " FIXTURES "bf16 %s",
                    dir, dir, python, dir) == 0,
                "%s", err))
        return;
    for (i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        attn_ctx ctx;
        attn_model *model;
        CHECKF(run("rm -rf %s && %s tools/convert/pickle-to-safetensors.py %s/%s %s%s", made,
                   python, dir, inputs[i], made, old ? " --trust" : "") == 0,
               "%s: %s", inputs[i], err);
        model = converted(&ctx, made, "");
        if (model)
            same_as_reference(model, "bf16");
        CHECK(model && attn_model_tokenizer(model) != NULL &&
              attn_model_config(model)->n_head == 2);
        attn_model_close(model);
    }
    CHECK(run("%s tools/convert/pickle-to-safetensors.py %s/code %s/no", python, dir, dir) == 1);
    CHECKF(strstr(err, old ? "upgrade to 2.6, or give --trust" : "cannot load") != NULL, "%s", err);
    CHECK(run("ls %s/no", dir) != 0);
    snprintf(made, sizeof made, "%s", test_tmp("pickles/it-ran"));
    CHECKF(!exists(made), "a pickle's code was run");
    CHECK(run("rm -r %s", dir) == 0);
    forget();
}

/* What `make compare` does, where there is a PyTorch, on checkpoints that say as little as they may
 * and on shards; and on one whose weights get rounded on their way, which must be noticed. */
TEST(beside_pytorch)
{
    const char *python = python_with_torch();
    char build[512], script[600], rounded[600], text[700];
    const char *dir, *end;
    if (!python)
        return;
    dir = variant(FIXTURES "bf16", "config.json", " \"layer_norm_epsilon\": 1e-05,\n", "");
    edit(dir, "config.json", " \"n_positions\": 8,\n", "");
    edit(dir, "config.json", " \"n_inner\": null,\n", "");
    edit(dir, "config.json", "\"bos_token_id\": 299", "\"bos_token_id\": null");
    snprintf(build, sizeof build, "%s", test_tmp("compare"));
    snprintf(script, sizeof script, "%s/attn-convert", build);
    snprintf(rounded, sizeof rounded, "%s/rounded", build);
    if (!CHECKF(run("rm -rf %s && mkdir %s && cp " TEST_BUILD "/gpt2 " TEST_BUILD "/lens %s && "
                    "cp -r " FIXTURES "sharded %s",
                    build, build, build, rounded) == 0,
                "%s", err))
        return;
    snprintf(text, sizeof text,
             "#!/bin/sh\ncase $1 in *rounded) set -- $1 $2 --dtype f16;; esac; exec " TEST_BUILD
             "/attn-convert $*\n");
    test_write(script, text, strlen(text));
    CHECK(chmod(script, 0755) == 0);
    snprintf(script, sizeof script, "OMP_NUM_THREADS=1 %s tests/compare/compare_with_torch.py %s",
             python, build); /* more would mostly wait for each other */
    CHECKF(run("%s " FIXTURES "sharded %s %s", script, dir, rounded) == 1, "%s", err);
    snprintf(text, sizeof text, "\nerrors larger than PyTorch's: %s\n", rounded);
    end = out && out_size > strlen(text) ? out + out_size - strlen(text) : "";
    CHECKF(strcmp(end, text) == 0, "%s%s", out, err);
    CHECK(run("rm -r %s", build) == 0);
    forget();
}

/* >> The output ================================================================================ */

/* A link where the unfinished file would be is somebody else's; permissions stay; and the system's names for
 * open files lead to them. */
TEST(drafts)
{
    char dir[512];
    snprintf(dir, sizeof dir, "%s", test_tmp("drafts"));
    CHECK(run("rm -rf %s && mkdir %s", dir, dir) == 0);
    CHECK(run("echo hers >%s/hers; echo older >%s/x.attn; chmod 602 %s/x.attn; "
              "ln -s hers %s/x.attn.00.part; " TEST_BUILD "/attn-convert " FIXTURES
              "bf16 %s/x.attn",
              dir, dir, dir, dir, dir) == 0);
    CHECKF(run("cd %s && echo hers | cmp - hers && test ! -L x.attn && test -L x.attn.00.part && "
               "test -n \"$(find x.attn -perm 602)\" && ls | wc -l | grep -x ' *3'",
               dir) == 0,
           "%s%s", out, err);
    CHECK(run("cd %s && rm x.attn.*", dir) == 0);
    CHECK(run(TEST_BUILD "/attn-info %s/x.attn", dir) == 0);
    if (run("test -e /dev/fd/1") == 0)
        CHECKF(run(TEST_BUILD "/attn-convert " FIXTURES "bf16 /dev/fd/1 >%s/y.attn && "
                              "cmp %s/x.attn %s/y.attn",
                   dir, dir, dir) == 0,
               "%s", err);
}

TEST(outputs)
{
    char path[512];
    size_t size, i, k;
    unsigned char *bytes;
    snprintf(path, sizeof path, "%s", test_tmp("kept.attn"));
    test_write(path, "older", 5);
    CHECK(run(TEST_BUILD "/attn-convert tests %s", path) == 1);
    bytes = test_read(path, &size);
    CHECK(bytes && size == 5 && memcmp(bytes, "older", 5) == 0); /* a failure spoils nothing */
    free(bytes);
    CHECK(run(TEST_BUILD "/attn-convert " FIXTURES "bf16 %s", path) == 0 && out_size == 0);
    bytes = test_read(path, &size);
    CHECK(bytes && size > 5 &&
          memcmp(bytes,
                 "\x89"
                 "ATTN\r\n\x1a",
                 8) == 0);
    free(bytes);
    CHECK(run(TEST_BUILD "/attn-convert " FIXTURES "bf16 no/such/dir/x.attn") == 1 &&
          strstr(err, "no/such/dir/x.attn: cannot be written: no such file or directory"));
    CHECK(run(TEST_BUILD "/attn-convert " FIXTURES "bf16 %s", test_tmp("")) == 1 &&
          strstr(err, "is a directory; expected a file name"));
    CHECK(run("cp " FIXTURES "v3.bin %s && chmod u+w %s && " TEST_BUILD "/attn-convert %s %s",
              test_tmp("same.bin"), test_tmp("same.bin"), test_tmp("same.bin"),
              test_tmp("same.bin")) == 1 &&
          strstr(err, "is part of the input"));
    for (i = 0; i < 3; i++) {
        static const char *const names[3][5] = {
            {"config.json", "model.safetensors", "vocab.json", "merges.txt", NULL},
            {"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
             "model-00002-of-00002.safetensors", "tokenizer.json"},
            {"tokenizer.json", NULL, NULL, NULL, NULL}};
        static const char *const inputs[3] = {"bf16", "sharded", "strings"};
        char dir[512], from[512];
        snprintf(from, sizeof from, FIXTURES "%s", inputs[i]);
        snprintf(dir, sizeof dir, "%s", copied(from));
        if (i == 0)
            CHECK(run("ln %s/merges.txt %s/hard", dir, dir) == 0);
        for (k = 0; k < 5 && names[i][k]; k++) {
            CHECKF(run(TEST_BUILD "/attn-convert %s%s %s/%s",
                       i == 2 ? FIXTURES "v3.bin --tokenizer " : "", dir, dir, names[i][k]) == 1 &&
                       strstr(err, "is part of the input"),
                   "%s: %s", names[i][k], err);
            CHECKF(run("cmp %s/%s " FIXTURES "%s/%s", dir, names[i][k], inputs[i], names[i][k]) ==
                       0,
                   "%s is lost", names[i][k]);
        }
        if (i == 0) /* another name of the same file; and a new one beside them, which is fine */
            CHECK(run(TEST_BUILD "/attn-convert %s %s/hard", dir, dir) == 1 &&
                  strstr(err, "is part of the input") &&
                  run(TEST_BUILD "/attn-convert %s %s/new.attn", dir, dir) == 0);
    }
    CHECK(run(TEST_BUILD "/attn-convert -h && " TEST_BUILD "/attn-info -h && " TEST_BUILD
                         "/attn-tokenize -h") == 0);
    CHECK(strstr(out, "Usage: attn-convert") && strstr(out, "Usage: attn-info") &&
          strstr(out, "Usage: attn-tokenize"));
    refuses(2, "no model given: attn-tokenize MODEL.attn", TEST_BUILD "/attn-tokenize");
    refuses(2, "too many arguments at \"b\": the text comes from standard input",
            TEST_BUILD "/attn-tokenize a b");
    refuses(2, "too many arguments at \"b\"", TEST_BUILD "/attn-tokenize -m a b");
    refuses(2, "no file given: attn-info FILE.attn", TEST_BUILD "/attn-info");
    refuses(2, "too many arguments at \"b\": one file", TEST_BUILD "/attn-info a b");
    refuses(2, "too many arguments at \"b\": one file", TEST_BUILD "/attn-info -m a b");
    refuses(2, "there is no option --all", TEST_BUILD "/attn-info --all");
    refuses(2, "no checkpoint given", TEST_BUILD "/attn-convert");
    refuses(2, "no output given: attn-convert a OUTPUT.attn", TEST_BUILD "/attn-convert a");
    refuses(2, "too many arguments at \"c\": give one input", TEST_BUILD "/attn-convert a b c");
    refuses(2, "too many arguments at \"b\": give one input",
            TEST_BUILD "/attn-convert -m x -o y b");
    refuses(2, "contradict each other",
            TEST_BUILD "/attn-convert a b --no-tokenizer --tokenizer d");
    CHECK(run(TEST_BUILD "/attn-convert a b --dtype q9") == 2 && strstr(err, "f32, f16, q8 or q4"));
    CHECK(run(TEST_BUILD "/attn-convert a b --dtype") == 2 && strstr(err, "needs a value"));
    CHECK(run(TEST_BUILD "/attn-convert a b --tokenizer") == 2 && strstr(err, "needs a value"));
    if (exists("/dev/full")) { /* a disk that has no room */
        CHECK(run(TEST_BUILD "/attn-info %s >/dev/full", path) == 1);
        CHECK(run("echo hi | " TEST_BUILD "/attn-tokenize %s >/dev/full", path) == 1);
    }
    CHECK(!leftovers());
    forget();
}

/* How far a conversion is, as a line that is no wider than the terminal. */
TEST(a_bar_grows)
{
    char line[128];
    progress_line(line, sizeof line, "converting", 0.25, 10, 80);
    CHECKF(strcmp(line, "converting [##########                              ]  25 %, 30 s left") ==
               0,
           "%s", line);
    progress_line(line, sizeof line, "converting", 0.5, 150, 40);
    CHECKF(strcmp(line, "converting [#  ]  50 %, 2 min left") == 0, "%s", line);
    progress_line(line, sizeof line, "converting", 0, 0, 20);
    CHECKF(strcmp(line, "converting []   0 %, 0 s left") == 0, "%s", line);
    if (run("command -v script >/dev/null && script -qec true /dev/null") != 0) {
        test_skip("no `script` here, which makes a terminal");
        return;
    }
    /* what is done in less than two seconds shows none, and any other leaves none behind */
    CHECK(run("script -qec '" TEST_BUILD "/attn-convert " STORIES " %s' /dev/null",
              test_tmp("x.attn")) == 0);
    CHECKF(find_bytes(out, out_size, "wrote x.attn: 4.6 MB"), "%s", out);
    forget();
}

/* Sections that end where the block for the checksum does, and a layer so wide that one panel is
 * more than a piece. */
TEST(sections_of_any_size)
{
    static const uint32_t header[8] = {20240326, 3, 8, 100, 1, 2, 256, 112};
    unsigned char bytes[1024] = {0};
    enum { INNER = 600000 };
    static const char *const names[] = {"wte.weight",
                                        "wpe.weight",
                                        "h.0.ln_1.weight",
                                        "h.0.ln_1.bias",
                                        "h.0.attn.c_attn.weight",
                                        "h.0.attn.c_attn.bias",
                                        "h.0.attn.c_proj.weight",
                                        "h.0.attn.c_proj.bias",
                                        "h.0.ln_2.weight",
                                        "h.0.ln_2.bias",
                                        "h.0.mlp.c_fc.weight",
                                        "h.0.mlp.c_fc.bias",
                                        "h.0.mlp.c_proj.weight",
                                        "h.0.mlp.c_proj.bias",
                                        "ln_f.weight",
                                        "ln_f.bias"};
    static const size_t shapes[][2] = {{5, 2},     {4, 2}, {0, 2}, {0, 2}, {2, 6},     {0, 6},
                                       {2, 2},     {0, 2}, {0, 2}, {0, 2}, {2, INNER}, {0, INNER},
                                       {INNER, 2}, {0, 2}, {0, 2}, {0, 2}};
    static char text[4096];
    char path[600], dir[512];
    size_t i, n = 8, at = 0, w_out = 0;
    attn_ctx ctx;
    attn_model *model;
    attn_tensor x;
    FILE *file;
    for (i = 0; i < 8; i++)
        put_u32(bytes + 4 * i, header[i]);
    snprintf(path, sizeof path, "%s", test_tmp("variant.bin"));
    test_write(path, bytes, sizeof bytes);
    CHECK(truncate(path, 1024 + 4 * (12 * 256 * 256 + 13 * 256 + (112 + 8 + 2) * 256)) == 0);
    model = converted(&ctx, path, ""); /* W_in and W_out are 1 MiB */
    CHECK(model && attn_model_config(model)->d_mlp == 1024);
    attn_model_close(model);

    snprintf(dir, sizeof dir, "%s", test_tmp("inner"));
    CHECK(run("rm -rf %s && mkdir %s", dir, dir) == 0);
    n += (size_t)sprintf(text + n, "{\"__metadata__\":{}");
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        const size_t rows = shapes[i][0], columns = shapes[i][1];
        n += (size_t)sprintf(text + n, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[", names[i]);
        if (rows)
            n += (size_t)sprintf(text + n, "%zu,", rows);
        if (strcmp(names[i], "h.0.mlp.c_proj.weight") == 0)
            w_out = at;
        n += (size_t)sprintf(text + n, "%zu],\"data_offsets\":[%zu,%zu]}", columns, at,
                             at + 4 * (rows ? rows : 1) * columns);
        at += 4 * (rows ? rows : 1) * columns;
    }
    text[n++] = '}';
    put_u64((unsigned char *)text, n - 8);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    test_write(path, text, n);
    CHECK(truncate(path, (off_t)(n + at)) == 0);
    if (CHECK((file = fopen(path, "r+b")) != NULL)) {
        const float one = 1.5f; /* the last input's second output */
        CHECK(fseek(file, (long)(n + w_out + 4 * (2 * INNER - 1)), SEEK_SET) == 0 &&
              fwrite(&one, 4, 1, file) == 1);
        fclose(file);
    }
    snprintf(path, sizeof path, "%s/config.json", dir);
    n = (size_t)sprintf(text,
                        "{\"vocab_size\": 5, \"n_positions\": 4, \"n_embd\": 2, \"n_head\": 1, "
                        "\"n_layer\": 1, \"n_inner\": %d}",
                        (int)INNER);
    test_write(path, text, n);
    CHECK(run("trap '' XFSZ; ulimit -f 11500; " TEST_BUILD "/attn-convert %s %s", dir,
              test_tmp("inner.attn")) == 1 && /* 5.9 MB: in the middle of b_in */
          strstr(err, "writing failed: the file would exceed") &&
          !leftovers());
    model = converted(&ctx, dir, "");
    memset(&x, 0, sizeof x);
    if (model && OK(&ctx, attn_model_tensor(&ctx, &x, model, "blocks.0.mlp.W_out")))
        CHECK(x.shape[0] == INNER && x.shape[1] == 2 && attn_get2(x, INNER - 1, 1) == 1.5f &&
              attn_get2(x, INNER - 1, 0) == 0 && attn_get2(x, INNER - 2, 1) == 0);
    attn_tensor_free(&ctx, &x);
    attn_model_close(model);
    attn_ctx_free(&ctx);
    CHECK(run("rm -r %s", dir) == 0);
    forget();
}

/* A tensor without elements takes no room, wherever it is said to lie. */
TEST(empty_tensors)
{
    attn_ctx ctx;
    attn_model *model =
        converted(&ctx,
                  variant(FIXTURES "bf16", "model.safetensors", "{\"__metadata__\"",
                          "{\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
                          "\"y\":{\"dtype\":\"U8\",\"shape\":[3,0],\"data_offsets\":[0,0]},"
                          "\"__metadata__\""),
                  "");
    if (model)
        same_as_reference(model, "bf16");
    CHECK(strstr(err, "note: 2 tensors are not part of GPT-2, x among them; left out") != NULL);
    attn_model_close(model);
    forget();
}

/* A signal in the middle: nothing is left, and the signal is what ends the program. The checkpoint
 * is two gigabytes of zeros that take no room on the disk. */
TEST(interruption)
{
    static const uint32_t header[8] = {20240326, 3, 1024, 50257, 12, 16, 1600, 50304};
    unsigned char bytes[1024] = {0};
    char path[512], output[512];
    size_t i;
    static const char *const signals[] = {"TERM", "XCPU", "VTALRM", "PROF", "TRAP",
                                          "SYS",  "ABRT", "SEGV",   "FPE"};
    int code;
    for (i = 0; i < 8; i++)
        put_u32(bytes + 4 * i, header[i]);
    snprintf(path, sizeof path, "%s", test_tmp("huge.bin"));
    snprintf(output, sizeof output, "%s", test_tmp("huge.attn"));
    test_write(path, bytes, sizeof bytes);
    CHECK(truncate(path, 1024 + 4 * (off_t)(12 * (12 * 1600 * 1600 + 13 * 1600) +
                                            (50304 + 1024 + 2) * 1600)) == 0);
    for (i = 0; i < sizeof signals / sizeof *signals; i++) {
        if (TEST_SANITIZED && i >= 7) /* a sanitizer catches the last two */
            break;
        code = run("ulimit -c 0; " TEST_BUILD "/attn-convert %s %s & run=$!; i=0; "
                   "while ! ls %s.*.part 2>/dev/null && [ $i -lt 200 ]; do sleep 0.05; "
                   "i=$((i + 1)); done; kill -%s $run; wait $run; code=$?; "
                   "[ $(kill -l $code) = %s ]",
                   path, output, output, signals[i], signals[i]);
        CHECKF(code == 0, "%s: another exit code: %s", signals[i], err);
        CHECKF(strstr(out, ".part") != NULL, "it never began to write");
        CHECKF(!exists(output) && !leftovers(), "%s", signals[i]);
    }
    remove(path);
    forget();
}

#if !TEST_SANITIZED
/* The most memory, in KiB, that a shell command's programs had resident. It runs below a copy of
 * this process: what counts for the copy's children is theirs alone, and the copy's size. */
static long peak_memory(const char *command)
{
    struct rusage usage;
    long peak = -1;
    int ends[2], status = -1;
    pid_t child;
    if (!CHECK(pipe(ends) == 0) || !CHECK((child = fork()) >= 0))
        return -1;
    if (child == 0) {
        status = system(command);
        if (status == 0 && getrusage(RUSAGE_CHILDREN, &usage) == 0)
            peak = usage.ru_maxrss;
        _exit(write(ends[1], &peak, sizeof peak) != sizeof peak);
    }
    close(ends[1]);
    CHECK(read(ends[0], &peak, sizeof peak) == sizeof peak);
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
#ifdef __APPLE__
    peak /= 1024; /* bytes there */
#endif
    return peak;
}
#endif

/* A checkpoint as wide as GPT-2 XL. One tensor of each kind that the converter treats in its own
 * way has 20 million numbers: a table, linear layers both ways, rows. All are zero, so that the
 * file takes little room on the disk, but for a run in the middle. */
enum { WIDTH = 1600, LONG = 12500, RUN_START = 8188608, RUN_END = 8588608 };
static const struct wide_tensor {
    const char *name, *converted; /* the latter for those with a run */
    size_t rows, columns;         /* no rows: a vector, in f32 */
} wide_tensors[] = {{"wte.weight", "embed.W_E", LONG, WIDTH},
                    {"wpe.weight", "pos_embed.W_pos", LONG, WIDTH},
                    {"h.0.ln_1.weight", NULL, 0, WIDTH},
                    {"h.0.ln_1.bias", NULL, 0, WIDTH},
                    {"h.0.attn.c_attn.weight", NULL, WIDTH, 3 * WIDTH},
                    {"h.0.attn.c_attn.bias", NULL, 0, 3 * WIDTH},
                    {"h.0.attn.c_proj.weight", NULL, WIDTH, WIDTH},
                    {"h.0.attn.c_proj.bias", NULL, 0, WIDTH},
                    {"h.0.ln_2.weight", NULL, 0, WIDTH},
                    {"h.0.ln_2.bias", NULL, 0, WIDTH},
                    {"h.0.mlp.c_fc.weight", "blocks.0.mlp.W_in", WIDTH, LONG},
                    {"h.0.mlp.c_fc.bias", NULL, 0, LONG},
                    {"h.0.mlp.c_proj.weight", "blocks.0.mlp.W_out", LONG, WIDTH},
                    {"h.0.mlp.c_proj.bias", NULL, 0, WIDTH},
                    {"ln_f.weight", NULL, 0, WIDTH},
                    {"ln_f.bias", NULL, 0, WIDTH},
                    {"lm_head.weight", NULL, LONG, WIDTH}}; /* differs from wte in the run only */
enum { N_WIDE = sizeof wide_tensors / sizeof wide_tensors[0] };

static size_t wide_value(size_t i)
{
    return i >= RUN_START && i < RUN_END ? i % 2039 + 1 : 0;
}

/* A whole number up to 2048 as a half. */
static unsigned half_bits(size_t number)
{
    unsigned exponent = 25;
    for (; number && number < 1024; number *= 2)
        exponent--;
    return number == 2048 ? 26u << 10 : number ? exponent << 10 | (unsigned)(number & 1023) : 0;
}

static void write_wide(const char *dir)
{
    static char header[8192] = "........{\"__metadata__\":{}", config[256];
    char path[600];
    size_t n = strlen(header), at = 0, begin[N_WIDE], i, k;
    unsigned char *run_bytes = (unsigned char *)malloc(2 * (RUN_END - RUN_START));
    FILE *file;
    for (i = 0; i < N_WIDE; i++) {
        const struct wide_tensor *t = &wide_tensors[i];
        begin[i] = at;
        n += (size_t)sprintf(header + n, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name,
                             t->rows ? "F16" : "F32");
        if (t->rows)
            n += (size_t)sprintf(header + n, "%zu,", t->rows);
        at += t->rows ? 2 * t->rows * t->columns : 4 * t->columns;
        n += (size_t)sprintf(header + n, "%zu],\"data_offsets\":[%zu,%zu]}", t->columns, begin[i],
                             at);
    }
    header[n++] = '}';
    put_u64((unsigned char *)header, n - 8);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    test_write(path, header, n);
    CHECK(truncate(path, (off_t)(n + at)) == 0);
    for (k = RUN_START; run_bytes && k < RUN_END; k++) {
        run_bytes[2 * (k - RUN_START)] = (unsigned char)(half_bits(wide_value(k)) & 255);
        run_bytes[2 * (k - RUN_START) + 1] = (unsigned char)(half_bits(wide_value(k)) >> 8);
    }
    if (CHECK(run_bytes && (file = fopen(path, "r+b")) != NULL)) {
        for (i = 0; i < N_WIDE; i++)
            if (wide_tensors[i].converted)
                CHECK(fseek(file, (long)(n + begin[i] + 2 * RUN_START), SEEK_SET) == 0 &&
                      fwrite(run_bytes, 2, RUN_END - RUN_START, file) == RUN_END - RUN_START);
        CHECK(fclose(file) == 0);
    }
    free(run_bytes);
    snprintf(path, sizeof path, "%s/config.json", dir);
    snprintf(config, sizeof config,
             "{\"vocab_size\": %d, \"n_positions\": %d, \"n_embd\": %d, \"n_inner\": %d, "
             "\"n_head\": 25, \"n_layer\": 1}",
             LONG, LONG, WIDTH, LONG);
    test_write(path, config, strlen(config));
}

/* Makes one number of a tensor, all of whose numbers are halfs, a NaN. */
static void edit_wide(const char *dir, const char *name, size_t number)
{
    static char header[8192];
    char path[600], *at;
    unsigned long long begin = 0;
    FILE *file;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (!CHECK((file = fopen(path, "r+b")) != NULL))
        return;
    if (CHECK(fread(header, 1, sizeof header - 1, file) > 8 &&
              (at = find_bytes(header, sizeof header, name)) != NULL &&
              sscanf(strstr(at, "offsets") + 9, "[%llu", &begin) == 1))
        CHECK(fseek(file, (long)(8 + get_u64((unsigned char *)header) + begin + 2 * number),
                    SEEK_SET) == 0 &&
              fwrite("\0\x7e", 1, 2, file) == 2);
    fclose(file);
}

/* Every number in the run, and a sample of the others. */
static void check_wide(const char *path)
{
    attn_ctx ctx;
    attn_model *model = NULL;
    size_t i, k;
    memset(&ctx, 0, sizeof ctx);
    if (!OK(&ctx, attn_model_open(&ctx, &model, path, NULL)))
        return;
    CHECK(!attn_model_config(model)->tied);
    for (i = 0; i < N_WIDE; i++) {
        const struct wide_tensor *t = &wide_tensors[i];
        attn_tensor x;
        memset(&x, 0, sizeof x);
        if (!t->converted || !OK(&ctx, attn_model_tensor(&ctx, &x, model, t->converted)))
            continue;
        CHECK(dtype_of(model, t->converted) == (i == 1 ? ATTN_F32 : ATTN_F16));
        for (k = 0; k < t->rows * t->columns; k += k + 1 >= RUN_START && k < RUN_END ? 1 : 997) {
            const float got = attn_get2(x, k / t->columns, k % t->columns);
            if (!CHECKF(got == (float)wide_value(k), "%s, number %zu: %g", t->name, k, (double)got))
                break;
        }
        attn_tensor_free(&ctx, &x);
    }
    attn_model_close(model);
    attn_ctx_free(&ctx);
}

/* Tensors pass in pieces of 32 MB, with half as much again for panels of 16 bits, so that the
 * largest model takes no more memory than this. In one piece each of the long tensors would be 80
 * MB, and the numbers at the seams could not go wrong. */
TEST(pieces_and_memory)
{
    char dir[512], path[512], command[2048];
    snprintf(dir, sizeof dir, "%s", test_tmp("wide"));
    snprintf(path, sizeof path, "%s", test_tmp("wide.attn"));
    CHECK(run("rm -rf %s && mkdir %s", dir, dir) == 0);
    write_wide(dir);
    snprintf(command, sizeof command, TEST_BUILD "/attn-convert %s %s 2>/dev/null", dir, path);
#if TEST_SANITIZED /* it keeps what was freed */
    CHECK(run("%s", command) == 0);
#else
    {
        const long peak = peak_memory(command), bound = 72 << 10;
        CHECKF(peak > 32 << 10 && peak <= bound, "%ld KiB, expected at most %ld", peak, bound);
    }
#endif
    check_wide(path);
    remove(path);
    edit_wide(dir, "h.0.mlp.c_fc.weight", LONG + 7); /* a row of a tensor that goes in pieces */
    refused(dir, "", "element 7 of row 1 of h.0.mlp.c_fc.weight is not a number (NaN)");
    CHECK(run("rm -r %s", dir) == 0);
    forget();
}

/* >> attn-info and attn-tokenize =============================================================== */

TEST(info)
{
    char path[512];
    unsigned char *bytes;
    size_t size, i;
    snprintf(path, sizeof path, "%s", test_tmp("info.attn"));
    CHECK(run(TEST_BUILD "/attn-convert " FIXTURES "sharded %s", path) == 0);
    CHECK(run(TEST_BUILD "/attn-info %s", path) == 0);
    CHECK(strstr(out, "3 of 8") && strstr(out, "unembedding        of its own") &&
          strstr(out, "1e-06") && strstr(out, "299  <|endoftext|>") &&
          strstr(out, "merges             43") && strstr(out, "blocks.1.mlp.W_out") &&
          strstr(out, "[40, 24]"));
    /* 2 * 300 * 24 + 12 * 24 + 2 * (24 * 72 + 72 + 24 * 24 + 24 + 2 * 24 * 40 + 40 + 24 + 4 * 24)
     * + 2 * 24 */
    CHECKF(strstr(out, "23696 parameters in 29 tensors") != NULL, "%s", out);
    bytes = test_read(path, &size);
    for (i = 0; bytes && i < 5; i++) {
        static const size_t places[] = {100, 300, 5000, 60000, 99999};
        bytes[places[i]] ^= 4;
        test_write(path, bytes, size);
        CHECKF(run(TEST_BUILD "/attn-info %s", path) == 1 && out_size == 0 &&
                   strncmp(err, "attn-info: ", 11) == 0,
               "byte %zu: %s", places[i], err);
        bytes[places[i]] ^= 4;
    }
    free(bytes);
    CHECK(run(TEST_BUILD "/attn-convert " FIXTURES "v3.bin %s", path) == 0);
    CHECK(run(TEST_BUILD "/attn-info %s", path) == 0);
    CHECK(strstr(out, "\ntokenizer\n  none\n") && strstr(out, "end of text        none"));
    CHECK(run(TEST_BUILD "/attn-convert --no-tokenizer " FIXTURES "bf16 %s", path) == 0);
    CHECK(run(TEST_BUILD "/attn-info %s", path) == 0);
    CHECK(strstr(out, "\ntokenizer\n  none\n") && strstr(out, "end of text        299\n"));
    CHECK(run(TEST_BUILD "/attn-info no-such-file") == 1 && strstr(err, "no such file"));
    CHECK(run("cat %s | " TEST_BUILD "/attn-info /dev/stdin", path) == 1 &&
          strstr(err, "/dev/stdin is a pipe, where a file is needed"));
    CHECK(run(TEST_BUILD "/attn-info tests") == 1 && strstr(err, "tests is a directory"));
    CHECK(run(TEST_BUILD "/attn-info") == 2);
    forget();
}

TEST(tokenize)
{
    unsigned char bytes[4096];
    char path[512];
    uint32_t state = 1;
    size_t i;
    CHECK(run("printf 'the cat<|endoftext|>' | " TEST_BUILD "/attn-tokenize " STORIES) == 0);
    CHECKF(strstr(out, " ") && !strstr(out, "2047") && strchr(out, '\n'), "%s", out);
    CHECK(run("printf 'the cat<|endoftext|>' | " TEST_BUILD "/attn-tokenize --special " STORIES) ==
          0);
    CHECKF(strstr(out, " 2047\n") != NULL, "%s", out);
    CHECK(run("printf '2047 ' | " TEST_BUILD "/attn-tokenize --decode " STORIES) == 0);
    CHECKF(strcmp(out, "<|endoftext|>") == 0, "%s", out);
    CHECK(run(TEST_BUILD "/attn-tokenize " STORIES " </dev/null") == 0 && strcmp(out, "\n") == 0);
    CHECK(run("printf '1 2048' | " TEST_BUILD "/attn-tokenize --decode " STORIES) == 1 &&
          out_size == 0 && strstr(err, "2048"));
    CHECK(run("printf '1 2a' | " TEST_BUILD "/attn-tokenize --decode " STORIES) == 1 &&
          strstr(err, "entry 1 of the input, \"2a\", is not"));
    CHECK(run("printf '1 2147483648' | " TEST_BUILD "/attn-tokenize --decode " STORIES) == 1 &&
          strstr(err, "\"2147483648\", is not a token id"));
    CHECK(run("echo hello | " TEST_BUILD "/attn-tokenize --decode " STORIES) == 1 &&
          strstr(err, "entry 0 of the input, \"hello\", is not"));
    CHECK(run("printf '1 99999999999999999999' | " TEST_BUILD "/attn-tokenize --decode " STORIES) ==
          1);
    CHECK(run("printf '1 2\\0' | " TEST_BUILD "/attn-tokenize --decode " STORIES) == 1 &&
          strstr(err, "entry 1 of the input, \"2\", is not"));
    CHECK(run("printf '1 \\0' | " TEST_BUILD "/attn-tokenize --decode " STORIES) == 1 &&
          strstr(err, "entry 1 of the input, \"\", is not"));
    CHECK(run(TEST_BUILD "/attn-tokenize tests </dev/null") == 1 && strstr(err, "neither"));
    CHECK(run(TEST_BUILD "/attn-convert " FIXTURES "v3.bin %s", test_tmp("bare.attn")) == 0);
    CHECK(run(TEST_BUILD "/attn-tokenize %s </dev/null", test_tmp("bare.attn")) == 1 &&
          strstr(err, "has no tokenizer"));
    for (i = 0; i < sizeof bytes; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(state >> 24);
    }
    snprintf(path, sizeof path, "%s", test_tmp("bytes"));
    test_write(path, bytes, sizeof bytes);
    CHECK(run("yes 'the cat' | head -c 200000 | " TEST_BUILD "/attn-tokenize " STORIES
              " | " TEST_BUILD "/attn-tokenize --decode " STORIES " | wc -c") == 0);
    CHECKF(atol(out) == 200000, "%s", out);
    for (i = 0; i < 2; i++) { /* any bytes come back, from a directory and from a model */
        const char *from = i ? test_tmp("converted.attn") : FIXTURES "strings";
        if (i)
            CHECK(run(TEST_BUILD "/attn-convert " FIXTURES "tiny.gguf %s", from) == 0);
        CHECK(run(TEST_BUILD "/attn-tokenize %s <%s | " TEST_BUILD "/attn-tokenize %s --decode",
                  from, path, from) == 0);
        CHECK(out_size == sizeof bytes && memcmp(out, bytes, sizeof bytes) == 0);
    }
    forget();
}
