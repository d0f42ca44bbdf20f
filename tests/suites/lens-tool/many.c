/* lens record --lines and DIRECTORY: the activations of many texts, resumed and killed. */
#include "tools/common/system.h"
#include "lens_tool.h"

SUITE_WITH(NULL, tear_down);

#define CORPUS TEST_TMP
#define RECORD_AS(input)                                                                           \
    LENS MODEL "record --lines " CORPUS input " --rows 256 '*.hook_resid_post' -o " CORPUS
#define RECORDS     RECORD_AS("texts.jsonl")
#define RECORDS_ALL RECORD_AS("folder")

static void put_cats(FILE *file, int n)
{
    fputs("Once upon a time", file);
    for (; n > 0; n--)
        fputs(n % 4 ? " was a cat" : " there was a cat", file);
}

/* So many texts, and in between one that is refused: as lines, and as files of a folder. */
static void write_texts(int n)
{
    FILE *const lines = fopen(CORPUS "texts.jsonl", "w");
    int number = 0;
    CHECK(run("cd " CORPUS " && rm -rf folder && mkdir folder") == 0);
    for (int i = 0; lines && i < n; i++) {
        FILE *file;
        if (i == 3) {
            fputs("Once upon a time\n", lines);
            test_write(test_text(CORPUS "folder/%04d", ++number), "Once upon a \xE9", 13);
        }
        fputs("{\"text\": \"", lines);
        put_cats(lines, i * 7 % 60);
        fputs("\"}\n", lines);
        if (CHECK((file = fopen(test_text(CORPUS "folder/%04d", ++number), "w")) != NULL)) {
            put_cats(file, i * 7 % 60);
            fclose(file);
        }
    }
    if (CHECK(lines != NULL))
        fclose(lines);
}

/* A shard has the numbers of the texts' own records, text after text. */
TEST(record_of_lines)
{
    CHECK(run("cd " CORPUS " && rm -rf many && mkdir many") == 0);
    CHECK(run("printf '%%s\\n' '{\"text\": \"Once upon a time\"}' '{\"ids\": [506, 9999]}' '{}' "
              "'{\"ids\": [506, 511]}' >" CORPUS "texts.jsonl") == 0);
    if (!RUNS(RECORDS "many"))
        return;
    /* per shard: 4 + 2 rows of 192 floats for 4 activations, 6 ids, 6 lines */
    CHECKF(run("for i in 0 1 2 3; do " LENS MODEL "record 'Once upon a time' "
               "blocks.$i.hook_resid_post -o " CORPUS "one.safetensors && tail -c 3072 " CORPUS
               "one.safetensors; " LENS MODEL
               "record --ids '506 511' blocks.$i.hook_resid_post -o " CORPUS
               "one.safetensors && tail -c 1536 " CORPUS "one.safetensors; done >" CORPUS
               "joined && "
               "tail -c 18480 " CORPUS "many/00001.safetensors | head -c 18432 | cmp - " CORPUS
               "joined") == 0,
           "%s%s", out, err);
    CHECKF(run("tail -c 48 " CORPUS "many/00001.safetensors | od -An -td4 | tr -s ' \\n' ' '") ==
                   0 &&
               strcmp(out, " 506 511 258 433 506 511 1 1 1 1 4 4 ") == 0,
           "%s", out);
    CHECKF(run("cat " CORPUS "many/index.jsonl") == 0 &&
               strstr(out, "{\"line\": 2, \"error\": \"ids[1] is not in the vocabulary of 2048\"}\n"
                           "{\"line\": 3, \"error\": \"expected a \\\"text\\\", or a list of "
                           "\\\"ids\\\"\"}\n{\"file\": \"00001.safetensors\", \"first_line\": 1, "
                           "\"last_line\": 4, \"texts\": \"") &&
               strstr(out, "\", \"rows\": 6, \"bytes\": "),
           "%s", out);
    refuses(1, "index.jsonl is there already: --resume goes on", RECORDS "many");
    refuses(1, "was made with another model, --bos or activations", RECORDS "many --resume --bos");
    refuses(1, "nowhere: make it first", RECORDS "nowhere");
    refuses(2, "needs the names of activations",
            LENS MODEL "record --lines LICENSE -o " CORPUS "many");
    refuses(2, "into a directory: -o DIRECTORY", LENS MODEL "record --lines LICENSE hook_embed");
    refuses(1, "README.md is not a directory: the shards need one",
            LENS MODEL "record --lines LICENSE hook_embed -o README.md");
    refuses(2, "--resume is for the texts of --lines", LENS MODEL "record Once --resume -o x.npz");
    refuses(1, "attn.hook_pattern has no row for each position",
            LENS MODEL "record --lines LICENSE '*.hook_pattern' -o " CORPUS "many");
}

/* Each file of a folder is a text, with the numbers that it has as a line. */
TEST(record_of_a_folder)
{
    write_texts(12);
    CHECK(run("cd " CORPUS "folder && rm -rf ../whole ../many && mkdir ../whole ../many below && "
              ": >0014 && ln -s nowhere 0015 && mkfifo 0016 && printf Once >'0017 \"q\"' && "
              "echo '{}' >>../texts.jsonl && echo '{}' >>../texts.jsonl && "
              "echo '{\"text\": \"Once\"}' >>../texts.jsonl") == 0);
    RUNS(RECORDS "whole");
    RUNS(RECORDS_ALL "many");
    CHECKF(run("cd " CORPUS "whole && ls | grep -c safetensors && for f in *.safetensors; do "
               "cmp $f ../many/$f || exit; done && ! test -e ../many/00$(ls | wc -l)*") == 0 &&
               atoi(out) > 1,
           "%s%s", out, err);
    CHECKF(run("sed 1d " CORPUS "many/index.jsonl | grep -v '\"file\"'") == 0 &&
               strstr(out, "{\"line\": 1, \"id\": \"0001\"}\n") == out &&
               strstr(out, "{\"line\": 3, \"id\": \"0003\"}\n{\"line\": 4, \"id\": \"0004\", "
                           "\"error\": \"" CORPUS "folder/0004: byte 13 is not UTF-8\"}\n") &&
               strstr(out, "{\"line\": 13, \"id\": \"0013\"}\n{\"line\": 14, \"id\": \"0014\", "
                           "\"error\": \"" CORPUS "folder/0014 is empty\"}\n{\"line\": 15, "
                           "\"id\": \"0015\", \"error\": \"cannot open " CORPUS "folder/0015: No "
                           "such file or directory\"}\n{\"line\": 16, \"id\": \"0017 "
                           "\\\"q\\\"\"}\n"),
           "%s", out);
    /* A file behind those of the index is one more; another among them is not the same folder. */
    CHECKF(run("printf Once >" CORPUS "folder/0018; " RECORDS_ALL
               "many --resume && tail -n 2 " CORPUS "many/index.jsonl") == 0 &&
               strstr(out, "{\"line\": 17, \"id\": \"0018\"}\n{\"file\": \"0000") == out,
           "%s%s", out, err);
    refuses(1, "the files of " CORPUS "folder have changed",
            ": >" CORPUS "folder/0003b; " RECORDS_ALL "many --resume");
    refuses(1, "the files of " CORPUS "folder have changed",
            "rm " CORPUS "folder/00*; " RECORDS_ALL "many --resume");
    refuses(1, "or a folder in place of lines", RECORDS_ALL "whole --resume");
    refuses(1, "or a folder in place of lines", RECORDS "many --resume");
    refuses(2, "folder would overwrite ", RECORDS_ALL "folder");
    CHECK(run(TEST_BUILD "/attn-convert examples/tiny-stories " TMP "lens-bare.attn "
                         "--no-tokenizer 2>/dev/null") == 0);
    refuses(1, "has no tokenizer: give the texts as lines with \"ids\"",
            LENS TMP "lens-bare.attn record --lines " CORPUS "folder '*.hook_resid_post' -o " CORPUS
                     "many");
}

/* It goes on with the same model and texts only, makes a shard again that is gone, and clears up after a
 * run that was killed. */
TEST(record_resumed)
{
    write_texts(20);
    CHECK(run("cd " CORPUS " && rm -rf whole many other && mkdir whole many other && "
              "echo '{\"text\": \"Once\"}' >>texts.jsonl") == 0);
    CHECKF(run(RECORDS "whole") == 0 && run(RECORDS "many") == 0, "%s", err);
    CHECKF(run("cd " CORPUS "many && rm 00002.safetensors && : >00003.safetensors.00.part && "
               ": >notes.part && cd - >&2 && " RECORDS "many --resume && cd " CORPUS
               "many && ls *.part && for f in *.safetensors index.jsonl; do cmp $f ../whole/$f || "
               "exit; done") == 0 &&
               strcmp(out, "notes.part\n") == 0,
           "%s%s", out, err);
    CHECKF(run("cd " CORPUS
               "many && head -c 4000 00002.safetensors >cut && mv cut 00002.safetensors && "
               "cd - >&2 && " RECORDS "many --resume && cd " CORPUS
               "many && for f in *.safetensors index.jsonl; do cmp $f ../whole/$f || exit; done") ==
               0,
           "a shard that was cut: %s%s", out, err);
    CHECKF(run("cd " CORPUS "many && printf wxyz | dd of=00002.safetensors bs=1 seek=4000 "
               "conv=notrunc && cd - >&2 && " RECORDS "many --resume && cd " CORPUS
               "many && for f in *.safetensors index.jsonl; do cmp $f ../whole/$f || exit; done") ==
                   0 &&
               strstr(err, "many/00002.safetensors has changed since it was written"),
           "a changed byte: %s%s", out, err);
    refuses(1, "a text among those up to number",
            "sed -i.old '2s/Once/Twice/' " CORPUS "texts.jsonl; " RECORDS "many --resume");
    CHECK(run("cd " CORPUS " && mv texts.jsonl.old texts.jsonl && cp texts.jsonl all.jsonl && "
              "head -n 5 all.jsonl >texts.jsonl") == 0);
    refuses(1, "has 5 texts, but " CORPUS "many/index.jsonl tells of 22", RECORDS "many --resume");
    CHECK(run("cd " CORPUS " && mv all.jsonl texts.jsonl && cd - >&2 && " TEST_BUILD
              "/attn-convert examples/tiny-stories " CORPUS
              "other/tiny-stories.attn --dtype q8 -q") == 0);
    refuses(1, "was made with another model",
            LENS CORPUS "other/tiny-stories.attn record --lines " CORPUS
                        "texts.jsonl '*.hook_resid_post' --rows 256 -o " CORPUS "many --resume");
}

/* Memory stays that of one shard and one text, however many are recorded or refused. */
TEST_IF(!TEST_SANITIZED, record_in_flat_memory)
{
    const int n_refused = test_full() ? 1000000 : 200000;
    write_texts(120);
    CHECK(run("cd " CORPUS " && rm -rf many && mkdir many && yes '{}' | head -n %d >>texts.jsonl",
              n_refused) == 0);
    RUNS("ulimit -v 60000; " RECORDS "many -t 1 '*.hook_mlp_out' '*.hook_attn_out' "
         "'*.hook_resid_pre' '*.hook_resid_mid'");
    CHECK(run("cd " CORPUS "many && wc -l <index.jsonl && du -sk .") == 0);
    CHECKF(atoi(out) > n_refused + 1 && atoi(strchr(out, '\n')) > 120000, "%s", out);
    CHECK(run("cd " CORPUS " && rm -rf many && : >texts.jsonl") == 0);
}

static void kill_again_and_again(const char *records, const char *whole, const char *many)
{
    int i, code = -1;
    CHECK(run("cd " CORPUS " && rm -rf %s %s && mkdir %s %s", whole, many, whole, many) == 0);
    RUNS("%s%s", records, whole);
    for (i = 0; i < 200 && code != 0; i++)
        code = run("%s%s --resume & pid=$!; (sleep %g; kill -9 $pid) 2>/dev/null & wait $pid",
                   records, many, 0.03 + i * 137 % 80 / 400.0 + i / 50.0);
    CHECKF(code == 0 && i > 1, "exit code %d after %d runs: %s", code, i, err);
    CHECKF(run("cd " CORPUS "%s && ls | grep -c safetensors && for f in *; do "
               "cmp $f ../%s/$f || exit; done",
               whole, many) == 0 &&
               atoi(out) > 5,
           "%s%s", out, err);
    RUNS("%s%s --resume && cmp " CORPUS "%s/index.jsonl " CORPUS "%s/index.jsonl", records, many,
         whole, many); /* nothing is left to do */
}

/* Killed at any moment, it ends with the same shards and the same index. */
TEST(record_killed)
{
    write_texts(60);
    kill_again_and_again(RECORDS, "whole", "many");
    kill_again_and_again(RECORDS_ALL, "whole-folder", "many-of-folder");
}
