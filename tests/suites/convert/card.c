/* What a converted file says of its model: from options, README.md, config.json and GGUF's metadata. */
#include "tests/support/test.h"
#include "tests/support/converting.h"

SUITE_WITH(NULL, forget);

/* Compares what the converted checkpoint says; NULL: nothing. */
static void says(const char *input, const char *options, const char *name, const char *source,
                 const char *license)
{
    const char *const want[] = {name, source, license};
    static const char *const keys[] = {"name", "source", "license"};
    SCOPED_MODEL const model = converted(input, options);
    for (size_t i = 0; model && i < 3; i++) {
        const char *const got = attn_model_meta(model, keys[i]);
        CHECKF(got && want[i] ? strcmp(got, want[i]) == 0 : !got && !want[i],
               "%s: the %s is %s, expected %s", options, keys[i], got ? got : "not there",
               want[i] ? want[i] : "none");
    }
}

/* A copy of the sharded checkpoint with this README.md. */
static const char *with_readme(const char *text)
{
    const char *const dir = copied(FIXTURES "sharded");
    write_in(dir, "README.md", text, strlen(text));
    return dir;
}

TEST(front_matter)
{
    says(with_readme("---\nlanguage: en\nlicense: mit\nbase_model: gpt2\nmodel_name: a model\n---\n"
                     "# More\nlicense: other\n"),
         "", "a model", "gpt2", "mit");
    says(with_readme(
             "---\r\nlicense: \"apache-2.0\" # so\r\nbase_model:\r\n- org/base\r\n- second\r\n"
             "model-index:\r\n  - name: 'it is'\r\n    results: []\r\n---\r\n"),
         "", "it is", "org/base", "apache-2.0");
    says(with_readme("---\nlicense: mit   # a comment\nlicense: second\n name: nested\n"
                     "  license: nested\nbase_model: a#b\n---\n"),
         "", NULL, "a#b", "mit");
    says(with_readme("# A title\nlicense: mit\n---\nlicense: mit\n"), "", NULL, NULL, NULL);
    says(with_readme("---\nlicense: mit\n"), "", NULL, NULL, "mit"); /* it does not end */
    says(with_readme("---\nlicense:\n"), "", NULL, NULL, NULL);
    says(with_readme("---\nlicense: \"mit\n---\n"), "", NULL, NULL, NULL);
    says(with_readme("---\nlicense:\nbase_model: |\n  text\n---\n"), "", NULL, "|", NULL);
    says(with_readme("--"), "", NULL, NULL, NULL);
    says(with_readme(""), "", NULL, NULL, NULL);
}

/* What cannot stand in a file is left out with a note, and the conversion goes on. */
TEST(hostile_front_matter)
{
    static const char *const wrong[] = {"---\nlicense: m\x1B[2Jit\n---\n",
                                        "---\nlicense: m\xFFit\n---\n",
                                        "---\nlicense: m\xC2\x9Bit\n---\n"};
    SCOPED_TEXT const text = (char *)malloc(70000);
    for (size_t i = 0; i < 3; i++) {
        says(with_readme(wrong[i]), "", NULL, NULL, NULL);
        CHECKF(strstr(err, "note: the license in README.md is not UTF-8, has a control character"),
               "%s", err);
    }
    memset(text, 'x', 70000);
    memcpy(text, "---\nlicense: ", 13);
    text[69999] = 0;
    says(with_readme(text), "", NULL, NULL, NULL); /* one line, longer than what is read */
    text[13 + 1000] = '\n';
    text[13 + 1001] = 0;
    text[13 + 1000] = 0;
    {
        char longest[1001];
        memset(longest, 'x', 1000);
        longest[1000] = 0;
        says(with_readme(text), "", NULL, NULL, longest);
    }
    CHECK(run("rm -f %s/README.md && mkdir %s/README.md", test_tmp("variant"),
              test_tmp("variant")) == 0);
    says(test_tmp("variant"), "", NULL, NULL, NULL);
}

TEST(configuration)
{
    const char *const file = "config.json", *const first = "\"model_type\"";
    says(variant(FIXTURES "sharded", file, first,
                 "\"model_name\": \"it\", \"_name_or_path\": \"org/base\", \"license\": \"mit\", "
                 "\"model_type\""),
         "", "it", "org/base", "mit");
    says(variant(FIXTURES "sharded", file, first, "\"_name_or_path\": \"gpt2\", \"model_type\""),
         "", NULL, "gpt2", NULL);
    /* a path tells of the machine, and not of the model */
    says(variant(FIXTURES "sharded", file, first,
                 "\"_name_or_path\": \"/home/me/x\", \"model_type\""),
         "", NULL, NULL, NULL);
    says(variant(FIXTURES "sharded", file, first, "\"_name_or_path\": \"./x\", \"model_type\""), "",
         NULL, NULL, NULL);
    says(variant(FIXTURES "sharded", file, first, "\"_name_or_path\": \"a/b/c\", \"model_type\""),
         "", NULL, NULL, NULL);
    says(variant(FIXTURES "sharded", file, first, "\"_name_or_path\": \"C:\\\\x\", \"model_type\""),
         "", NULL, NULL, NULL);
    says(variant(FIXTURES "sharded", file, first,
                 "\"license\": 7, \"model_name\": null, \"_name_or_path\": \"\", \"model_type\""),
         "", NULL, NULL, NULL);
    says(with_readme("---\nlicense: mit\n---\n"), "", NULL, NULL, "mit");
    edit(test_tmp("variant"), file, first,
         "\"license\": \"other\", \"model_name\": \"it\", \"model_type\"");
    says(test_tmp("variant"), "", "it", NULL, "mit"); /* README.md first */
}

TEST(options)
{
    says(with_readme("---\nlicense: mit\nmodel_name: a\n---\n"),
         "--name 'B\xC3\xA9' --source https://example.org/x", "B\xC3\xA9", "https://example.org/x",
         "mit");
    says(test_tmp("variant"), "--license other", "a", NULL, "other");
    says(FIXTURES "v3.bin", "--no-tokenizer --name llm", "llm", NULL, NULL);
    refuses(2, "--name needs a text of 1 to 1000 bytes",
            TEST_BUILD "/attn-convert " STORIES " x.attn --name ''");
    refuses(2, "--license needs a text of 1 to 1000 bytes",
            TEST_BUILD "/attn-convert " STORIES " x.attn --license \"$(printf 'a\\nb')\"");
    refuses(2, "--source needs a text of 1 to 1000 bytes",
            TEST_BUILD "/attn-convert " STORIES " x.attn --source \"$(printf '\\377')\"");
    CHECK(run(TEST_BUILD "/attn-convert " STORIES " %s", test_tmp("converted.attn")) == 0);
    refuses(1, "--source and --license are for other inputs",
            TEST_BUILD "/attn-convert " TEST_TMP "converted.attn " TEST_TMP "x.gguf --name x");
}

/* GGUF takes the strings there and back. */
TEST(gguf)
{
    CHECK(run(TEST_BUILD "/attn-convert %s %s --name 'a \"b\" \\c' --source there --license mit",
              FIXTURES "sharded", test_tmp("named.attn")) == 0);
    CHECK(run("rm -rf %s %s", test_tmp("named.gguf"), test_tmp("named")) == 0);
    CHECK(run(TEST_BUILD "/attn-convert %s %s", test_tmp("named.attn"), test_tmp("named.gguf")) ==
          0);
    says(test_tmp("named.gguf"), "", "a \"b\" \\c", "there", "mit");
    CHECK(run(TEST_BUILD "/attn-convert %s %s", test_tmp("named.attn"), test_tmp("named")) == 0);
    says(test_tmp("named"), "", "a \"b\" \\c", "there", "mit");
    says(FIXTURES "tiny.gguf", "", "tiny", NULL, NULL);
}

/* The sum is that of sha256sum, of all shards in the order of their names; and the same input gives the
 * same bytes. */
TEST(sums_of_checkpoints)
{
    static const char *const files[] = {STORIES "/model.safetensors",
                                        FIXTURES
                                        "sharded/model-00001-of-00002.safetensors " FIXTURES
                                        "sharded/model-00002-of-00002.safetensors",
                                        FIXTURES "tiny.gguf", FIXTURES "v3.bin"};
    static const char *const inputs[] = {STORIES, FIXTURES "sharded", FIXTURES "tiny.gguf",
                                         FIXTURES "v3.bin"};
    if (run("sha256sum --version") != 0) {
        test_skip("no sha256sum here");
        return;
    }
    for (size_t i = 0; i < 4; i++) {
        attn_model *const model = converted(inputs[i], "");
        const char *const sum = attn_model_meta(model, "checkpoint_sha256");
        CHECK(run("cat %s | sha256sum", files[i]) == 0);
        CHECKF(sum && strncmp(out, sum, 64) == 0, "%s: %s, expected %s", inputs[i], sum, out);
        attn_model_close(model);
        CHECK(run("mv %s %s", test_tmp("converted.attn"), test_tmp("first.attn")) == 0);
        attn_model_close(converted(inputs[i], ""));
        CHECK(test_same_file(test_tmp("first.attn"), test_tmp("converted.attn")));
    }
}
