/* The converter: what comes out holds the numbers that went in, and what cannot be converted is
 * refused with a message that says why. The checkpoints in tests/fixtures/convert and the values
 * expected of them come from numpy (make_convert_fixtures.py); the checks of Hugging Face
 * checkpoints find tensors by searching the header's text, past every reader of the project. */
#define PROGRAM "test"
#include "tools/common/program.h"
#include "tests/support/converting.h"
#include <fcntl.h>
#include <math.h>
#include <sys/resource.h>

SUITE_WITH(NULL, forget);

/* >> Values ==================================================================================== */

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
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const expected *e = &cases[i];
        attn_model *model;
        if ((model = converted(test_text(FIXTURES "%s", e->input), e->options)) == NULL)
            continue;
        const attn_config *c = attn_model_config(model);
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
    size_t size, n;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (!CHECKF((file = (char *)test_read(path, &size)) != NULL, "cannot read %s", path))
        return;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (uint32_t layer = 0; layer < (i < 4 ? 1 : c->n_layer); layer++) {
            attn_tensor t = ATTN_ZERO;
            attn_ctx ctx = ATTN_ZERO;
            float *want;
            snprintf(ours, sizeof ours, i < 4 ? "%s" : "blocks.%s", names[i][0]);
            snprintf(theirs, sizeof theirs, "%s", names[i][1]);
            if (i >= 4) {
                snprintf(ours, sizeof ours, "blocks.%u.%s", (unsigned)layer, names[i][0]);
                snprintf(theirs, sizeof theirs, "h.%u.%s", (unsigned)layer, names[i][1]);
            }
            const unsigned char *data = find_tensor(file, size, theirs, &n);
            if (!CHECKF(data != NULL, "no %s in %s", theirs, path) ||
                !OK(&ctx, attn_model_tensor(&ctx, &t, model, ours)))
                continue;
            int wide = n == 4 * attn_count(t);
            CHECK(wide || n == 2 * attn_count(t));
            n = attn_count(t);
            attn_tensor_free(&ctx, &t);
            attn_ctx_free(&ctx);
            if (!CHECK((want = (float *)malloc(n * sizeof(float))) != NULL))
                continue;
            if (wide)
                memcpy(want, data, 4 * n);
            for (size_t k = 0; !wide && k < n; k++)
                want[k] = (float)half_value((unsigned)data[2 * k] | (unsigned)data[2 * k + 1] << 8);
            same_values(model, ours, want, n);
            free(want);
        }
    free(file);
}

static attn_dtype dtype_of(const attn_model *model, const char *name)
{
    for (size_t i = 0; i < model_n_tensors(model); i++)
        if (strcmp(model_tensor_at(model, i).name, name) == 0)
            return model_tensor_at(model, i).dtype;
    test_fail(__FILE__, __LINE__, "no tensor %s", name);
    return ATTN_I32;
}

TEST(included_model)
{
    SCOPED_MODEL model = converted(STORIES, "");
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
    CHECK(run(TEST_BUILD "/attn-convert -q --model " STORIES " -o %s", test_tmp("x.attn")) == 0 &&
          err_size == 0);
    same_as_safetensors(model, STORIES);
}

TEST(golden_models)
{
    static const char *const names[] = {"tests/golden/plain", "tests/golden/odd"};
    for (size_t i = 0; i < 2; i++) {
        SCOPED_MODEL model = converted(names[i], "");
        if (!model)
            continue;
        CHECK(attn_model_config(model)->tied == (i == 0));
        CHECK(dtype_of(model, "embed.W_E") == ATTN_F32);
        same_as_safetensors(model, names[i]);
    }
}

/* f16 from f32: the nearest half of every weight, and vectors as they are. */
TEST(narrowing_to_f16)
{
    attn_ctx ctx = ATTN_ZERO;
    attn_model *model = converted(FIXTURES "v3.bin", "--dtype f16");
    size_t size, at = 0, n_rounded = 0;
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
        for (size_t k = 0; k < count; k++) {
            float want;
            int exponent;
            memcpy(&want, bytes + at + 72 + 4 * k, 4);
            double got = (double)((const float *)t.data)[k];
            frexp((double)want, &exponent);
            double step = ldexp(1.0, (exponent < -13 ? -13 : exponent) - 11);
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
        model = converted(test_tmp("variant.bin"), "--dtype f16");
        memset(&t, 0, sizeof t);
        if (model && OK(&ctx, attn_model_tensor(&ctx, &t, model, "embed.W_E")))
            EQUAL(attn_get2(t, 1, 2), -65504.0f);
        attn_tensor_free(&ctx, &t);
        attn_model_close(model);
        memcpy(bytes + 1024 + 4 * 18, &large[1], 4);
        test_write(test_tmp("variant.bin"), bytes, size);
        refused(test_tmp("variant.bin"), "--dtype f16",
                "element 2 of row 1 of wte.weight is 65520, more than f16 can hold");
    }
    free(bytes);
}

/* An unembedding that differs from the embedding is kept whatever config.json says, a copy of the
 * embedding is not, and one that is announced must be there. */
TEST(tied_and_untied)
{
    const char *dir = variant(FIXTURES "sharded", "config.json", "\"tie_word_embeddings\": false",
                              "\"unknown\": 1");
    const unsigned char *table;
    size_t size, n;
    attn_model *model = converted(dir, "");
    CHECK(model && !attn_model_config(model)->tied);
    attn_model_close(model);
    dir = variant(FIXTURES "bf16", "config.json", "\"model_type\"",
                  "\"tie_word_embeddings\": false, \"model_type\"");
    model = converted(dir, "");
    CHECK(model && attn_model_config(model)->tied); /* its own table, but the same numbers */
    attn_model_close(model);
    const char *const path = test_text("%s/model.safetensors", dir);
    unsigned char *file = test_read(path, &size);
    if (CHECK(file && (table = find_tensor((char *)file, size, "lm_head.weight", &n)) != NULL)) {
        file[(size_t)(table - file) + n - 31] ^= 1; /* in the last row */
        test_write(path, file, size);
        model = converted(dir, "");
        CHECK(model && !attn_model_config(model)->tied && !strstr(err, "transformers 4"));
        attn_model_close(model);
        edit(dir, "config.json", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
        model = converted(dir, "");
        CHECK(model && !attn_model_config(model)->tied);
        CHECKF(strstr(err, "transformers 4 would use wte.weight for both"), "%s", err);
        attn_model_close(model);
        edit(dir, "config.json", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
        file[(size_t)(table - file) + n - 31] ^= 1;
        test_write(path, file, size);
    }
    free(file);
    edit(dir, "model.safetensors", "\"lm_head.weight\"", "\"other.weight\"");
    refused(dir, "",
            "lm_head.weight is missing, but config.json says tie_word_embeddings is false");
}

/* >> Vocabularies ============================================================================== */

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
        {"bf16", "vocab.json", "\"!\": 0", "\"\u4e2d\": 0", "stand-ins for bytes"},
        {"bf16", "vocab.json", "\"!\": 0", "\"!\": -1", "is not a whole number below"},
        {"bf16", "vocab.json", "\"!\": 0", "\"!\": 4000000000", "is not a whole number below"},
        {"bf16", "vocab.json", "\"!\": 0", "\"!\": \"0\"", "is not a whole number below"},
        {"bf16", "vocab.json", "\"!\": 0", "\"!\": 300", "the model knows 300"},
        {"sharded", "tokenizer.json", "\"BPE\"", "\"Unigram\"", "its model is not BPE"},
        {"sharded", "tokenizer.json", "\"ByteLevel\"", "\"Whitespace\"", "pre_tokenizer"},
        {"sharded", "tokenizer.json", "\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}",
         "it has a normalizer"},
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
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        refused(variant(test_text(FIXTURES "%s", cases[i].dir), cases[i].file, cases[i].find,
                        cases[i].replace),
                "", cases[i].text);
    }
    CHECK(run("rm %s/merges.txt", copied(FIXTURES "bf16")) == 0);
    refused(test_tmp("variant"), "", "no merges.txt");
    CHECK(run("echo '#version: 0.2' >%s/merges.txt", copied(FIXTURES "bf16")) == 0);
    refused(test_tmp("variant"), "",
            "merges.txt has no merges, but no text would have the token \"he\" without");
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
    refused(STORIES, "--tokenizer " FIXTURES "bf16",
            "the vocabulary has 300 tokens, but by config.json the model knows 2048: is it another "
            "model's? --tokenizer DIR takes the right one");
}

/* A few ids more than tokens are padding, which is noted. */
TEST(padded_embedding)
{
    SCOPED_MODEL model =
        converted(variant(STORIES, "vocab.json", ", \"<|endoftext|>\": 2047", ""), "");
    size_t size = 0;
    CHECKF(
        strstr(
            err,
            "note: the model knows 2048 ids, the vocabulary has 2047 tokens; ids from 2047 on") &&
            strstr(err, ", a vocabulary of 2047 tokens; "),
        "%s", err);
    if (model)
        CHECK(attn_token_bytes(&size, attn_model_tokenizer(model), 2047) && size == 0);
}

/* Without "<|endoftext|>", or where it is no special token, nothing begins and ends a text. */
TEST(no_end_of_text)
{
    static const struct {
        const char *input, *file;
    } cases[] = {{"bf16", "vocab.json"}, {"sharded", "tokenizer.json"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK(run("sed -i 's/<|endoftext|>/<|endoftexT|>/g' %s/%s",
                  copied(test_text(FIXTURES "%s", cases[i].input)), cases[i].file) == 0);
        CHECK(run("sed -i 's/\"[be]os_token_id\"/\"x&/; s/\"x\"/\"x/' %s/config.json",
                  test_tmp("variant")) == 0);
        attn_model *model = converted(test_tmp("variant"), "");
        CHECKF(model && attn_model_tokenizer(model) && attn_model_config(model)->bos == -1 &&
                   attn_model_config(model)->eos == -1,
               "%s: %s", cases[i].input, err);
        attn_model_close(model);
        CHECK(run(TEST_BUILD "/gpt2 %s --bos -n 1 -q hi", test_tmp("converted.attn")) == 1 &&
              strstr(err, "has no beginning-of-text token for --bos"));
    }
}

/* An id without a token is a token without bytes; special tokens beyond the model are left out. */
TEST(gaps_and_extra_tokens)
{
    const char *dir =
        variant(FIXTURES "bf16", "config.json", "\"vocab_size\": 300", "\"vocab_size\": 300");
    size_t size = 1;
    edit(dir, "vocab.json", "\"<|endoftext|>\": 299", "\"<|endoftext|>\": 310");
    attn_model *model = converted(dir, "");
    if (CHECK(model != NULL)) {
        const attn_tokenizer *t = attn_model_tokenizer(model);
        EQUAL(attn_tokenizer_n_tokens(t), 300);
        CHECK(attn_token_bytes(&size, t, 299) == NULL || size == 0);
        CHECK(strstr(err, "note: 1 special tokens") != NULL);
    }
    attn_model_close(model);
    /* what ends a text is then no token of the model's, whoever says which it is */
    edit(dir, "config.json", "\"bos_token_id\"", "\"bos\"");
    edit(dir, "config.json", "\"eos_token_id\"", "\"eos\"");
    model = converted(dir, "");
    if (CHECK(model != NULL))
        CHECK(attn_model_config(model)->bos == -1 && attn_model_config(model)->eos == -1);
    attn_model_close(model);
}

/* A blank before texts is kept, both ways, and makes a file of version 5. */
TEST(blanks_before_texts)
{
    const char *dir = variant(FIXTURES "sharded", "tokenizer.json", "\"add_prefix_space\":false",
                              "\"add_prefix_space\":true");
    char path[512];
    size_t size;
    CHECK(run("echo '{\"tokenizer_class\": \"PreTrainedTokenizerFast\"}' >%s/tokenizer_config.json",
              dir) == 0);
    snprintf(path, sizeof path, "%s", test_tmp("blank"));
    CHECK(run("rm -rf %s* && " TEST_BUILD "/attn-convert %s %s.attn && " TEST_BUILD
              "/attn-info %s.attn",
              path, dir, path, path) == 0);
    CHECKF(strstr(out, "special tokens     1\n  texts get a blank in front\n") != NULL, "%s", out);
    for (int as_gguf = 0; as_gguf < 2; as_gguf++) {
        CHECKF(run("for to in %s attn; do " TEST_BUILD
                   "/attn-convert ${from:-%s.attn} %s.$to || exit; from=%s.$to; done",
                   as_gguf ? "gguf" : "dir", path, path, path) == 0,
               "%s", err);
        unsigned char *bytes = test_read(strcat(path, ".attn"), &size);
        CHECKF(bytes && bytes[8] == 5, "%d", as_gguf);
        free(bytes);
        *strrchr(path, '.') = 0;
    }
    edit(dir, "tokenizer.json", "\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}");
    refused(dir, "", "give attn-convert --ignore-normalizer");
    attn_model_close(converted(dir, "--ignore-normalizer"));
    CHECKF(strstr(err, "normalizer is ignored") != NULL, "%s", err);
}

/* A config.json that kept another vocabulary's ids: here they are ordinary words. */
TEST(texts_that_begin_with_a_word)
{
    attn_model_close(converted(
        variant(FIXTURES "bf16", "config.json", "\"bos_token_id\": 299", "\"bos_token_id\": 270"),
        ""));
    CHECKF(strstr(err, "texts begin with id 270, ") &&
               strstr(err, "is bos_token_id another model's?") && !strstr(err, "texts end with"),
           "%s", err);
}

/* >> Refusals ================================================================================== */

TEST(configurations_that_are_none)
{
    static const mistake cases[] = {
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
        {"\"gpt2\"", "null", "model_type is null; only gpt2"},
        {"\"gpt2\"", "[\"gpt2\"]", "model_type is a list or object; only gpt2"},
        {"\"vocab_size\"", "\"size\"", "config.json has no vocab_size"},
        {"\"n_positions\": 8,\n \"n_ctx\"", "\"n\"",
         "config.json has no n_positions, as GPT-2 has"},
        {"\"n_embd\"", "\"n\"", "config.json has no n_embd"},
        {"\"n_embd\": 16", "\"n_embd\": 9999999999999999999", "the width is 9999999999999999999"},
        {"\"n_layer\": 1", "\"n_layer\": 1e0", "n_layer is not a whole number"},
        {"\"n_inner\": null", "\"n_inner\": \"64\"", "n_inner is not a whole number"},
        {"\"model_type\"", "\"tie_word_embeddings\": 1, \"model_type\"",
         "tie_word_embeddings is neither true nor false"}};
    refused_each(FIXTURES "bf16", "config.json", "", cases, sizeof cases / sizeof cases[0]);
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
    SCOPED_CTX ctx = ATTN_ZERO;
    attn_model *model = NULL;
    SCOPED_BYTES file = NULL;
    size_t size = 0, i;
    attn_model_close(converted(FIXTURES "bf16", ""));
    if (!CHECK((file = test_read(test_tmp("converted.attn"), &size)) != NULL))
        return;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (uint32_t more = 0; more < 2; more++) {
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
            put_u64(file + 248, model_checksum(0, file, 248));
            attn_model_open_memory(&ctx, &model, file, size, NULL);
            CHECK(model == NULL);
            CHECKF((strstr(ctx.message, "; expected 1 to ") != NULL) == (int)more, "%s: %s",
                   replace, ctx.message);
            put_u32(file + cases[i].field, old);
            put_u32(file + 36, 2);
        }
}

/* Which token begins a text and which ends it need not be the same, nor in the vocabulary. */
TEST(first_and_last_tokens)
{
    static const struct {
        const char *find, *replace;
        int bos, eos;
    } cases[] = {{"\"bos_token_id\": 299", "\"bos_token_id\": 298", 298, 299},
                 {"\"bos_token_id\": 299", "\"bos_token_id\": null", -1, 299},
                 {"\"bos_token_id\": 299", "\"bos_token_id\": 300", 299, 299}, /* <|endoftext|> */
                 {"\"bos_token_id\": 299,", "", 299, 299},
                 {"[\n  299\n ]", "[7, 299]", 299, 7},
                 {"[\n  299\n ]", "[]", 299, -1},
                 {"[\n  299\n ]", "[300, 299, 299]", 299, 299}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        SCOPED_MODEL model =
            converted(variant(FIXTURES "bf16", "config.json", cases[i].find, cases[i].replace), "");
        const attn_config *c = model ? attn_model_config(model) : NULL;
        CHECKF(c && c->bos == cases[i].bos && c->eos == cases[i].eos, "%s: %d and %d",
               cases[i].replace, c ? (int)c->bos : -9, c ? (int)c->eos : -9);
    }
}

/* A checkpoint with a file of settings beside its vocabulary, and a line of config.json changed. */
static const char *with_settings(const char *settings, const char *find, const char *replace)
{
    const char *dir = variant(FIXTURES "bf16", "config.json", find, replace);
    write_in(dir, "tokenizer_config.json", settings, strlen(settings));
    return dir;
}

/* What the vocabulary's files say of the tokens that begin and end a text counts where config.json
 * leaves it open, and is said where they disagree; so is what a program has to add itself. */
/* Weights of other frameworks, and an output that is no file, get a sentence that says what to do. */
TEST(other_weights)
{
    const char *dir = copied(FIXTURES "bf16");
    CHECK(run("rm %s/model.safetensors && touch %s/flax_model.msgpack", dir, dir) == 0);
    refused(dir, "", "flax_model.msgpack has the weights of Flax; in Python");
    CHECK(run("touch %s/tf_model.h5", dir) == 0);
    refused(dir, "", "tf_model.h5 has the weights of TensorFlow; in Python");
    CHECK(run("printf '\\211HDF\\r\\n\\032\\n' >%s", test_tmp("tf_model.h5")) == 0);
    refused(test_tmp("tf_model.h5"), "", "from_tf=True");
    refuses(2, "standard output cannot be one: give a name",
            TEST_BUILD "/attn-convert " FIXTURES "bf16 -");
    CHECK(run(TEST_BUILD "/attn-convert -q " STORIES " %s", test_tmp("x.attn")) == 0);
    CHECK(run(TEST_BUILD "/attn-convert %s %s --dtype q8", test_tmp("x.attn"),
              test_tmp("y.attn")) == 1 &&
          strstr(err, "the checkpoint that it was made from as the input for another --dtype"));
}

/* All tokens that end a text are kept, and generation_config.json's count first. */
TEST(several_ends)
{
    static const struct {
        const char *config, *generation, *ends, *note;
    } cases[] = {
        {"[299, 13]", NULL, "299 13", ""},
        {"299", "[299, 13, 13]", "299 13", ""},
        {"[299, 13]", "299", "299", ""},
        {"299", "null", "299", ""},
        {"[299, 13]", "[7]", "7",
         "generation_config.json says that id 7 ends a text, config.json id 299; the first counts"},
        {"[299, 13, 300]", NULL, "299 13",
         "config.json: the end-of-text token 300 is outside the vocabulary; left out"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *dir = variant(FIXTURES "bf16", "config.json", "[\n  299\n ]", cases[i].config);
        char ends[64] = "", text[100];
        attn_model *model;
        size_t n = 0;
        snprintf(text, sizeof text, "{\"eos_token_id\": %s}", cases[i].generation);
        if (cases[i].generation)
            write_in(dir, "generation_config.json", text, strlen(text));
        if ((model = converted(dir, "")) == NULL)
            continue;
        const attn_config *c = attn_model_config(model);
        n += (size_t)snprintf(ends, sizeof ends, "%ld", (long)c->eos);
        for (size_t k = 0; k < c->n_more_eos; k++)
            n += (size_t)snprintf(ends + n, sizeof ends - n, " %ld", (long)c->more_eos[k]);
        CHECKF(strcmp(ends, cases[i].ends) == 0, "%s, %s: %s", cases[i].config, cases[i].generation,
               ends);
        CHECKF(strstr(err, cases[i].note) != NULL, "%s: %s", cases[i].config, err);
        attn_model_close(model);
    }
    refused(variant(FIXTURES "bf16", "config.json", "[\n  299\n ]", "[299, \"a\"]"), "",
            "config.json: eos_token_id is not a token id");
}

/* transformers 5.24 ends the included model's story so: the full stop is part of it. */
TEST(an_ordinary_end_is_printed)
{
    static const char story[] = "Once upon a time, there was a little girl named Lily.\n";
    const char *dir =
        variant(STORIES, "config.json", "\"eos_token_id\": 2047", "\"eos_token_id\": [2047, 13]");
    run(TEST_BUILD "/attn-convert -q %s %s", dir, test_tmp("ends.attn"));
    run(TEST_BUILD "/gpt2 %s -q -n 40 'Once upon a time'", test_tmp("ends.attn"));
    CHECKF(strcmp(out, story) == 0, "\"%s\"; expected \"%s\"", out, story);
    run(TEST_BUILD "/gpt2 %s -q -n 40 --stop y. 'Once upon a time'", test_tmp("ends.attn"));
    CHECKF(strcmp(out, "Once upon a time, there was a little girl named Lil\n") == 0, "%s", out);
}

TEST(ends_that_the_vocabulary_names)
{
    static const char ends[] = "{\"eos_token\": \"<|endoftext|>\", \"chat_template\": \"x\"}";
    static const char begins[] = "{\"add_bos_token\": true, \"bos_token\": \"<|endoftext|>\"}";
    attn_model *model = converted(with_settings(ends, "[\n  299\n ]", "298"), "");
    CHECK(model && attn_model_config(model)->eos == 298);
    CHECK(strstr(err, "note: config.json says that id 298 ends a text, the vocabulary's files say "
                      "id 299; the first counts\n"));
    CHECK(strstr(err, "note: tokenizer_config.json has a chat template") &&
          strstr(err, "give --special"));
    attn_model_close(model);
    model = converted(with_settings(begins, "\"bos_token_id\": 299,", ""), "");
    CHECK(model && attn_model_config(model)->bos == 299);
    CHECK(strstr(err, "note: texts shall begin with \"<|endoftext|>\" (id 299): give --bos"));
    attn_model_close(model);
    refused(with_settings(begins, "\"bos_token_id\": 299", "\"bos_token_id\": 298"), "",
            "texts shall begin with id 299 by the vocabulary's files, but --bos would give id 298");
}

TEST(harmless_settings)
{
    static const char *const cases[][2] = {
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
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        attn_model_close(
            converts_as("bf16", variant(FIXTURES "bf16", "config.json", cases[i][0], cases[i][1])));
}

TEST(malformed_json)
{
    static const char *const cases[][2] = {
        {"", "is empty"},
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
    char deep[256];
    const char *dir = copied(FIXTURES "bf16");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_in(dir, "config.json", cases[i][0], strlen(cases[i][0]));
        refused(dir, "", cases[i][1]);
    }
    memset(deep, '[', 65);
    memset(deep + 65, ']', 65);
    write_in(dir, "config.json", deep, 130);
    refused(dir, "", "more than 64 values inside each other");
    write_in(dir, "config.json", deep + 1, 128);
    refused(dir, "", "config.json is not a JSON object");
}

TEST(safetensors_that_are_none)
{
    static const mistake cases[] = {
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
    size_t size;
    refused_each(FIXTURES "bf16", "model.safetensors", "", cases, sizeof cases / sizeof cases[0]);

    const char *dir = copied(FIXTURES "bf16");
    const char *const path = test_text("%s/model.safetensors", dir);
    SCOPED_BYTES file = test_read(path, &size);
    if (!CHECK(file != NULL))
        return;
    size_t head = (size_t)get_u64(file);
    for (size_t i = 0; i < size; i += i < 16 ? 3 : size / 23) { /* cut */
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
    EQUAL(truncate(path, 200000000), 0);
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
}

TEST(shards_that_are_none)
{
    static const mistake cases[] = {
        {"\"transformer.wte.weight\": \"model-00001", "\"transformer.wte.weight\": \"model-00002",
         "transformer.wte.weight is not in model-00002-of-00002"},
        {"\"transformer.wte.weight\": \"model-00001", "\"transformer.wte.weight\": \"model-00003",
         "cannot open"},
        {"\"transformer.wte.weight\": \"model-00001",
         "\"transformer.wte.weight\": \"\\u001b]0;x\\u0007\\u009b\\u007f",
         "/?]0;x???\?-of-00002.safetensors: No such"},
        {"\"transformer.wte.weight\": \"model", "\"transformer.wte.weight\": \"../model",
         "not the name of a file beside it"},
        {"\"transformer.wte.weight\": \"model", "\"transformer.wte.weight\": \"..\\\\model",
         "not the name of a file beside it"},
        {"\"transformer.wte.weight\": \"model", "\"transformer.wte.weight\": \"\\u0000model",
         "not the name of a file beside it"},
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
    refused_each(FIXTURES "sharded", "model.safetensors.index.json", "", cases,
                 sizeof cases / sizeof cases[0]);
    const char *dir = variant(FIXTURES "sharded", "model-00002-of-00002.safetensors",
                              "transformer.ln_f.weight", "transformer.wte.weight");
    refused(dir, "", "wte.weight is there twice");
    CHECK(run("rm %s/model-00002*", copied(FIXTURES "sharded")) == 0);
    refused(test_tmp("variant"), "", "cannot open");
    dir = variant(FIXTURES "sharded", "model.safetensors.index.json",
                  "\"transformer.wte.weight\": \"model-00001-of-00002.safetensors\"",
                  "\"transformer.wte.weight\": \"x\"");
    CHECK(run("printf '\\2\\0\\0\\0\\0\\0\\0\\0{}' >%s/x", dir) == 0);
    refused(dir, "", "transformer.wte.weight is not in x");
}

/* >> Files of bytes that are none ============================================================== */

TEST(inputs_that_are_none)
{
    const char *dir = copied(FIXTURES "bf16");
    refused("no/such/thing", "", "cannot open no/such/thing");
    refused("tests", "", "tests holds no config.json");
    test_write(test_tmp("variant.bin"), "version https://git-lfs.github.com/spec/v1\noid", 46);
    refused(test_tmp("variant.bin"), "", "`git lfs pull` fetches the file");
    CHECK(run("mv %s %s/model.safetensors", test_tmp("variant.bin"), dir) == 0);
    refused(dir, "", "`git lfs pull` fetches the file");
    dir = copied(FIXTURES "bf16");
    refused("LICENSE", "",
            "is neither a GGUF file, nor a checkpoint of PyTorch or llm.c, nor a directory");
    refused(FIXTURES "bf16/model.safetensors", "", "give the directory that holds it");
    CHECK(run(TEST_BUILD "/attn-convert %s %s", FIXTURES "bf16", test_tmp("x.attn")) == 0);
    refused(test_tmp("x.attn"), "", "is a .attn file already");
    const char *const path = test_text("%s", test_tmp("variant.pt"));
    test_write(path, "PK\003\004 and so on", 14);
    refused(path, "", "no zip archive ends at byte 14");
    test_write(path, "\x80\x02}q\x01", 5);
    refused(path, "", "variant.pt: byte 5 of its pickle: it breaks off");
    CHECK(run("mv %s/model.safetensors %s/pytorch_model.bin", dir, dir) == 0);
    refused(dir, "", "of its pickle: the unknown instruction");
    CHECK(run("rm %s/pytorch_model.bin", dir) == 0);
    refused(dir, "", "neither model.safetensors nor pytorch_model.bin, nor the index of");
    CHECK(run("mkdir %s/model.safetensors", dir) == 0);
    refused(dir, "", "model.safetensors");
}

/* What can be opened, but not read from the middle, is refused before it is opened. If it were
 * not, the pipe's other end would not keep the program waiting. */
TEST(inputs_that_are_no_files)
{
    static const char *const names[] = {"config.json", "model.safetensors", "vocab.json",
                                        "merges.txt"};
    char pipe_path[600], command[700];
    snprintf(pipe_path, sizeof pipe_path, "%s", test_tmp("pipe"));
    CHECK(run("rm -f %s; mkfifo %s", pipe_path, pipe_path) == 0);
    snprintf(command, sizeof command, "(echo >%s) 2>/dev/null & other=$!; ", pipe_path);
    for (size_t i = 0; i <= sizeof names / sizeof names[0]; i++) {
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
}

/* The hub's cache holds directories of links to files whose names are hashes. */
TEST(directories_of_links)
{
    char dir[512];
    snprintf(dir, sizeof dir, "%s", test_tmp("hub"));
    CHECK(run("rm -rf %s; mkdir -p %s/blobs %s/snapshots/main && cp " FIXTURES "bf16/* %s/blobs && "
              "cd %s/blobs && for f in *; do mv $f 0123$f && "
              "ln -s ../../blobs/0123$f ../snapshots/main/$f; done",
              dir, dir, dir, dir, dir) == 0);
    snprintf(dir, sizeof dir, "%s", test_tmp("hub/snapshots/main"));
    attn_model *model = converts_as("bf16", dir);
    CHECK(model && attn_model_tokenizer(model) != NULL);
    attn_model_close(model);
    CHECK(run("rm %s/../../blobs/*model.safetensors", dir) == 0); /* a link to nothing */
    refused(dir, "", "model.safetensors");
    CHECK(run("rm -r %s", test_tmp("hub")) == 0);
}

/* The Python that has PyTorch: the first one, or the system's behind it. NULL, and the case counts
 * as skipped, if neither has. */
static const char *python_with_torch(void)
{
    static const char *const pythons[] = {"python3", "/usr/bin/python3"};
    for (size_t i = 0; i < sizeof pythons / sizeof pythons[0]; i++)
        if (run("%s -c 'from importlib.util import find_spec as there; "
                "exit(not (there(\"numpy\") and there(\"torch\")))'",
                pythons[i]) == 0)
            return pythons[i];
    test_skip("no PyTorch here");
    return NULL;
}

/* What PyTorch saves is read without it. */
TEST(pickles)
{
    static const char *const inputs[][2] = {
        {"hub", ""},
        {"old", ""},
        {"views", ""},
        {"shards", ""},
        {"nano/ckpt.pt", ""},
        {"state/model.pt", ""},
        {"lightning/last.ckpt", ""},
        {"ddp/model.pt", ""},
        {"deepspeed/mp_rank_00_model_states.pt", ""},
        {"module/model.pt", ""},
        {"two/ckpt.pt", "--prefix student."},
        {"keys/ckpt.pt", "--prefix best"},
    };
    const char *python = python_with_torch();
    if (!python)
        return;
    const char *const dir = test_text("%s", test_tmp("pickles")), *path;
    if (!RUNS("rm -rf %s && mkdir %s && %s tests/makers/make_pickles.py " FIXTURES "bf16 %s", dir,
              dir, python, dir))
        return;
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        path = test_text("%s/%s", dir, inputs[i][0]);
        SCOPED_MODEL model = converted(path, inputs[i][1]);
        if (CHECKF(model != NULL, "%s", path))
            same_as_reference(model, "bf16");
        CHECK(model && attn_model_tokenizer(model) != NULL &&
              attn_model_config(model)->n_head == 2 &&
              (attn_model_config(model)->act_fn == ATTN_ACT_GELU_ERF) == (i == 4));
    }
    path = test_text("%s/two/ckpt.pt", dir);
    refused(path, "", "holds two models, whose tensors begin with \"teacher.");
    refused(path, "--prefix other", "--prefix: no tensor begins with \"other\"");
    refused(FIXTURES "tiny.gguf", "--prefix x", "--prefix is for models of PyTorch");
    CHECK(run(TEST_BUILD "/attn-convert -q %s/nano/ckpt.pt %s/x.attn && printf CABA | " TEST_BUILD
                         "/attn-tokenize %s/x.attn",
              dir, dir, dir) == 0 &&
          strstr(out, "2 0 1 0"));
    RUNS("for i in %s/lens/model.pt tests/fixtures/transformerlens/full; do " TEST_BUILD
         "/attn-convert -q --no-tokenizer $i %s/x.attn && " TEST_BUILD
         "/attn-info %s/x.attn | sed '1,/^tensor /d' >%s/$(basename $i).txt || exit; done; "
         "cmp %s/model.pt.txt %s/full.txt && test -s %s/full.txt",
         dir, dir, dir, dir, dir, dir, dir);
    CHECK(run("rm -r %s", dir) == 0);
}

/* Runs a program that makes files and tries them. */
static void tried_by(const char *name)
{
    const char *const python = python_with_torch();
    if (!python)
        return;
    const char *const dir = test_text("%s", test_tmp(name));
    RUNS("rm -rf %s && mkdir %s && %s tests/programs/%s.py %s " TEST_BUILD " && rm -r %s", dir, dir,
         python, name, dir, dir);
}

/* attn-convert refuses an odd pickle in one line, or converts its model and leaves other values out. */
TEST(odd_pickles)
{
    tried_by("odd_pickles");
}

/* lens reads others' pickles as it reads the same numbers elsewhere. */
TEST(published_lenses)
{
    tried_by("published_lenses");
}

/* What `make compare` does, where there is a PyTorch, on checkpoints that say as little as they may
 * and on shards; and on one whose weights get rounded on their way, which must be noticed. */
TEST(beside_pytorch)
{
    const char *python = python_with_torch();
    char script[600], text[700];
    if (!python)
        return;
    const char *dir =
        variant(FIXTURES "bf16", "config.json", " \"layer_norm_epsilon\": 1e-05,\n", "");
    edit(dir, "config.json", " \"n_positions\": 8,\n", "");
    edit(dir, "config.json", " \"n_inner\": null,\n", "");
    edit(dir, "config.json", "\"bos_token_id\": 299", "\"bos_token_id\": null");
    const char *const build = test_text("%s", test_tmp("compare"));
    snprintf(script, sizeof script, "%s/attn-convert", build);
    const char *const rounded = test_text("%s/rounded", build);
    if (!RUNS("rm -rf %s && mkdir %s && cp " TEST_BUILD "/gpt2 " TEST_BUILD "/lens %s && "
              "cp -r " FIXTURES "sharded %s",
              build, build, build, rounded))
        return;
    snprintf(text, sizeof text,
             "#!/bin/sh\ncase $1 in *rounded) set -- $1 $2 --dtype f16;; esac; exec " TEST_BUILD
             "/attn-convert $*\n");
    test_write(script, text, strlen(text));
    EQUAL(chmod(script, 0755), 0);
    snprintf(script, sizeof script,
             "OMP_NUM_THREADS=1 %s tests/compare/truth/compare_with_torch.py %s", python,
             build); /* more would mostly wait for each other */
    CHECKF(run("%s " FIXTURES "sharded %s %s", script, dir, rounded) == 1, "%s", err);
    snprintf(text, sizeof text, "\nerrors larger than PyTorch's: %s\n", rounded);
    const char *end = out && out_size > strlen(text) ? out + out_size - strlen(text) : "";
    CHECKF(strcmp(end, text) == 0, "%s%s", out, err);
    CHECK(run("rm -r %s", build) == 0);
}

/* >> The output ================================================================================ */

/* A link where the unfinished file would be is somebody else's; permissions stay; and the system's names for
 * open files lead to them. */
TEST(drafts)
{
    const char *const dir = test_text("%s", test_tmp("drafts"));
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
        RUNS(TEST_BUILD "/attn-convert " FIXTURES "bf16 /dev/fd/1 >%s/y.attn && "
                        "cmp %s/x.attn %s/y.attn",
             dir, dir, dir);
}

TEST(outputs)
{
    size_t size;
    const char *const path = test_text("%s", test_tmp("kept.attn"));
    test_write(path, "older", 5);
    CHECK(run(TEST_BUILD "/attn-convert tests %s", path) == 1);
    unsigned char *bytes = test_read(path, &size);
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
    CHECK(run("cp " FIXTURES "v3.bin %s && chmod u+w %s && " TEST_BUILD "/attn-convert %s %s",
              test_tmp("same.bin"), test_tmp("same.bin"), test_tmp("same.bin"),
              test_tmp("same.bin")) == 1 &&
          strstr(err, "is part of the input"));
    for (size_t i = 0; i < 3; i++) {
        static const char *const names[3][5] = {
            {"config.json", "model.safetensors", "vocab.json", "merges.txt", NULL},
            {"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
             "model-00002-of-00002.safetensors", "tokenizer.json"},
            {"tokenizer.json", NULL, NULL, NULL, NULL}};
        static const char *const inputs[3] = {"bf16", "sharded", "strings"};
        const char *const from = test_text(FIXTURES "%s", inputs[i]);
        const char *const dir = test_text("%s", copied(from));
        if (i == 0)
            CHECK(run("ln %s/merges.txt %s/hard", dir, dir) == 0);
        for (size_t k = 0; k < 5 && names[i][k]; k++) {
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
    refuses(2, "no model given: attn-info FILE.attn", TEST_BUILD "/attn-info");
    refuses(2, "too many arguments at \"b\": one file", TEST_BUILD "/attn-info a b");
    refuses(2, "too many arguments at \"b\": one file", TEST_BUILD "/attn-info -m a b");
    refuses(2, "there is no option --all", TEST_BUILD "/attn-info --all");
    refuses(2, "no checkpoint given", TEST_BUILD "/attn-convert");
    refuses(2, "too many arguments at \"c\": give one input", TEST_BUILD "/attn-convert a b c");
    refuses(2, "too many arguments at \"b\": give one input",
            TEST_BUILD "/attn-convert -m x -o y b");
    refuses(2, "contradict each other",
            TEST_BUILD "/attn-convert a b --no-tokenizer --tokenizer d");
    CHECK(run(TEST_BUILD "/attn-convert a b --dtype") == 2 && strstr(err, "needs a value"));
    CHECK(run(TEST_BUILD "/attn-convert a b --tokenizer") == 2 && strstr(err, "needs a value"));
    if (exists("/dev/full")) { /* a disk that has no room */
        CHECK(run(TEST_BUILD "/attn-info %s >/dev/full", path) == 1);
        CHECK(run("echo hi | " TEST_BUILD "/attn-tokenize %s >/dev/full", path) == 1);
    }
    CHECK(!leftovers());
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
    if (!has_terminal())
        return;
    /* what is done in less than two seconds shows none, and any other leaves none behind */
    CHECK(run("script -qec '" TEST_BUILD "/attn-convert " STORIES " %s' /dev/null",
              test_tmp("x.attn")) == 0);
    CHECKF(find_bytes(out, out_size, "wrote x.attn: 4.6 MB"), "%s", out);
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
    char path[600];
    size_t i, n = 8, at = 0, w_out = 0;
    attn_ctx ctx = ATTN_ZERO;
    attn_model *model;
    attn_tensor x = ATTN_ZERO;
    FILE *file;
    for (i = 0; i < 8; i++)
        put_u32(bytes + 4 * i, header[i]);
    snprintf(path, sizeof path, "%s", test_tmp("variant.bin"));
    test_write(path, bytes, sizeof bytes);
    CHECK(truncate(path, 1024 + 4 * (12 * 256 * 256 + 13 * 256 + (112 + 8 + 2) * 256)) == 0);
    model = converted(path, ""); /* W_in and W_out are 1 MiB */
    CHECK(model && attn_model_config(model)->d_mlp == 1024);
    attn_model_close(model);

    const char *const dir = test_text("%s", test_tmp("inner"));
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
          strstr(err, "writing failed: File too large") &&
          !leftovers());
    model = converted(dir, "");
    if (model && OK(&ctx, attn_model_tensor(&ctx, &x, model, "blocks.0.mlp.W_out")))
        CHECK(x.shape[0] == INNER && x.shape[1] == 2 && attn_get2(x, INNER - 1, 1) == 1.5f &&
              attn_get2(x, INNER - 1, 0) == 0 && attn_get2(x, INNER - 2, 1) == 0);
    attn_tensor_free(&ctx, &x);
    attn_model_close(model);
    attn_ctx_free(&ctx);
    CHECK(run("rm -r %s", dir) == 0);
}

/* A tensor without elements takes no room, wherever it is said to lie. */
TEST(empty_tensors)
{
    attn_model_close(converts_as(
        "bf16", variant(FIXTURES "bf16", "model.safetensors", "{\"__metadata__\"",
                        "{\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
                        "\"y\":{\"dtype\":\"U8\",\"shape\":[3,0],\"data_offsets\":[0,0]},"
                        "\"__metadata__\"")));
    CHECK(strstr(err, "note: 2 tensors are not part of GPT-2, x among them; left out") != NULL);
}

/* A signal in the middle: nothing is left, and the signal is what ends the program. The checkpoint
 * is two gigabytes of zeros that take no room on the disk. */
TEST(interruption)
{
    static const uint32_t header[8] = {20240326, 3, 1024, 50257, 12, 16, 640, 50304};
    unsigned char bytes[1024] = {0};
    static const char *const signals[] = {"TERM", "XCPU", "VTALRM", "PROF", "TRAP",
                                          "SYS",  "ABRT", "SEGV",   "FPE"};
    int code;
    for (size_t i = 0; i < 8; i++)
        put_u32(bytes + 4 * i, header[i]);
    const char *const path = test_text("%s", test_tmp("huge.bin"));
    const char *const output = test_text("%s", test_tmp("huge.attn"));
    test_write(path, bytes, sizeof bytes);
    CHECK(truncate(path, 1024 + 4 * (off_t)(12 * (12 * 640 * 640 + 13 * 640) +
                                            (50304 + 1024 + 2) * 640)) == 0);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        if (TEST_SANITIZED && i >= 7) /* a sanitizer catches the last two */
            break;
        code = run("ulimit -c 0; " TEST_BUILD "/attn-convert %s %s & run=$!; i=0; "
                   "while ! ls %s.*.part 2>/dev/null && [ $i -lt 600 ]; do sleep 0.05; "
                   "i=$((i + 1)); done; kill -%s $run; wait $run; code=$?; "
                   "[ $(kill -l $code) = %s ]",
                   path, output, output, signals[i], signals[i]);
        CHECKF(code == 0, "%s: another exit code: %s", signals[i], err);
        CHECKF(strstr(out, ".part") != NULL, "it never began to write");
        CHECKF(!exists(output) && !leftovers(), "%s", signals[i]);
    }
    remove(path);
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
    size_t n = strlen(header), at = 0, begin[N_WIDE];
    unsigned char *run_bytes = (unsigned char *)malloc(2 * (RUN_END - RUN_START));
    FILE *file;
    for (size_t i = 0; i < N_WIDE; i++) {
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
    for (size_t k = RUN_START; run_bytes && k < RUN_END; k++) {
        run_bytes[2 * (k - RUN_START)] = (unsigned char)(half_bits(wide_value(k)) & 255);
        run_bytes[2 * (k - RUN_START) + 1] = (unsigned char)(half_bits(wide_value(k)) >> 8);
    }
    if (CHECK(run_bytes && (file = fopen(path, "r+b")) != NULL)) {
        for (size_t i = 0; i < N_WIDE; i++)
            if (wide_tensors[i].converted)
                CHECK(fseek(file, (long)(n + begin[i] + 2 * RUN_START), SEEK_SET) == 0 &&
                      fwrite(run_bytes, 2, RUN_END - RUN_START, file) == RUN_END - RUN_START);
        EQUAL(fclose(file), 0);
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
    SCOPED_CTX ctx = ATTN_ZERO;
    SCOPED_MODEL model = NULL;
    if (!OK(&ctx, attn_model_open(&ctx, &model, path, NULL)))
        return;
    CHECK(!attn_model_config(model)->tied);
    for (size_t i = 0; i < N_WIDE; i++) {
        const struct wide_tensor *t = &wide_tensors[i];
        attn_tensor x = ATTN_ZERO;
        if (!t->converted || !OK(&ctx, attn_model_tensor(&ctx, &x, model, t->converted)))
            continue;
        CHECK(dtype_of(model, t->converted) == (i == 1 ? ATTN_F32 : ATTN_F16));
        for (size_t k = 0; k < t->rows * t->columns;
             k += k + 1 >= RUN_START && k < RUN_END ? 1 : 997) {
            const float got = attn_get2(x, k / t->columns, k % t->columns);
            if (!CHECKF(got == (float)wide_value(k), "%s, number %zu: %g", t->name, k, (double)got))
                break;
        }
        attn_tensor_free(&ctx, &x);
    }
}

/* Tensors pass in pieces of 32 MB, with half as much again for panels of 16 bits, so that the
 * largest model takes no more memory than this. In one piece each of the long tensors would be 80
 * MB, and the numbers at the seams could not go wrong. */
TEST(pieces_and_memory)
{
    char command[2048];
    const char *const dir = test_text("%s", test_tmp("wide"));
    const char *const path = test_text("%s", test_tmp("wide.attn"));
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
}

/* >> attn-info and attn-tokenize =============================================================== */

TEST(info)
{
    size_t size;
    const char *const path = test_text("%s", test_tmp("info.attn"));
    CHECK(run(TEST_BUILD "/attn-convert " FIXTURES "sharded %s", path) == 0);
    CHECK(run(TEST_BUILD "/attn-info %s", path) == 0);
    CHECK(strstr(out, "3 of 8") && strstr(out, "unembedding        of its own") &&
          strstr(out, "1e-06") && strstr(out, "299  <|endoftext|>") &&
          strstr(out, "merges             43") && strstr(out, "blocks.1.mlp.W_out") &&
          strstr(out, "[40, 24]"));
    /* 2 * 300 * 24 + 12 * 24 + 2 * (24 * 72 + 72 + 24 * 24 + 24 + 2 * 24 * 40 + 40 + 24 + 4 * 24)
     * + 2 * 24 */
    CHECKF(strstr(out, "23696 parameters in 29 tensors") != NULL, "%s", out);
    unsigned char *bytes = test_read(path, &size);
    for (size_t i = 0; bytes && i < 5; i++) {
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
    CHECK(run(TEST_BUILD "/attn-info no-such-file") == 1 && strstr(err, "No such file"));
    CHECK(run("cat %s | " TEST_BUILD "/attn-info /dev/stdin", path) == 0 &&
          strstr(out, "end of text        299\n"));
    CHECK(run(TEST_BUILD "/attn-info tests") == 1 && strstr(err, "tests is a directory"));
    CHECK(run(TEST_BUILD "/attn-info") == 2);
}

TEST(tokenize)
{
    unsigned char bytes[4096];
    uint32_t state = 1;
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
    for (size_t i = 0; i < sizeof bytes; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(state >> 24);
    }
    const char *const path = test_text("%s", test_tmp("bytes"));
    test_write(path, bytes, sizeof bytes);
    CHECK(run("yes 'the cat' | head -c 200000 | " TEST_BUILD "/attn-tokenize --exact " STORIES
              " | " TEST_BUILD "/attn-tokenize --decode " STORIES " | wc -c") == 0);
    CHECKF(atol(out) == 200000, "%s", out);
    for (size_t i = 0; i < 2; i++) { /* any bytes come back, from a directory and from a model */
        const char *from = i ? test_tmp("converted.attn") : FIXTURES "strings";
        if (i)
            CHECK(run(TEST_BUILD "/attn-convert " FIXTURES "tiny.gguf %s", from) == 0);
        CHECK(run(TEST_BUILD "/attn-tokenize --exact %s <%s | " TEST_BUILD
                             "/attn-tokenize %s --decode",
                  from, path, from) == 0);
        CHECK(out_size == sizeof bytes && memcmp(out, bytes, sizeof bytes) == 0);
    }
}
