/* Receipts of questions: what lens, surprisal and score answered, and the answers that people keep. */
#include "tests/support/test.h"
#define PROGRAM "attn-verify"
#define INPUT   "text"
#include "tools/receipt/ask.h"
#include "tools/waist/programs.h"
#include "tests/support/command.h"

SUITE_WITH(NULL, forget);

#define MODEL     TEST_BUILD "/tiny-stories.attn "
#define VERIFY    TEST_BUILD "/attn-verify " MODEL
#define LENS      TEST_BUILD "/lens " MODEL
#define SURPRISAL TEST_BUILD "/surprisal " MODEL
#define SCORE     TEST_BUILD "/score " MODEL
#define TMP       TEST_TMP
#define RECEIPT   TMP "question.json"
#define TEXTS     TMP "texts.txt"
#define PATCH     LENS "patch 'Tom was a boy. He' 'Tom was a girl. He' "

/* 4 * n texts, of which n have no words. */
static void write_texts(int n)
{
    CHECK(
        run("for i in $(seq %d); do printf 'Once there was a cat.\\nTom ran.\\n\\nA %%s b\\n' $i; "
            "done >" TEXTS,
            n) == 0);
}

static void write_requests(void)
{
    CHECK(run("printf '{\"text\": \"Once upon a\"}\\n{\"task\": \"generate\", \"text\": \"Once\", "
              "\"max_tokens\": 4, \"temperature\": 1}\\n{\"task\": \"embed\", \"id\": 7, \"text\": "
              "\"Tom\"}\\n{}\\n' >" TMP "requests.jsonl") == 0);
}

TEST(questions_hold)
{
    static const char *const asked[] = {
        PATCH "--by heads --json",
        PATCH "hook_resid_pre attn.hook_z",
        LENS "circuits",
        LENS "record 'Once upon' 'blocks.*.hook_resid_post' -o " TMP "a.npz",
        LENS "loss 'Once upon' --edit 'zero blocks.0.attn.hook_z head 1'",
        LENS "edges 'Tom was a boy. He' 'Tom was a girl. He' --steps 2",
        LENS "heads </dev/null",
        SURPRISAL TEXTS " --by token --top 2",
        SURPRISAL TEXTS " --vectors hook_embed --vectors-file " TMP "v$(date +%s%N).npz",
        SURPRISAL TEXTS " --continue --json",
        SCORE TMP "requests.jsonl -q"};
    write_texts(5);
    write_requests();
    const char *const first = test_text("%s", test_tmp("first.json"));
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        const int is_slow = i % 7 == 0 || test_full(); /* portable takes fifty times as long */
        const char *const ways[] = {"-t 1", is_slow ? "--isa portable" : "-t 2", "-t 4"};
        CHECKF(run("%s --receipt " RECEIPT, asked[i]) == 0, "%s: %s", asked[i], err);
        CHECKF(run(VERIFY RECEIPT " %s", ways[i % 3]) == 0 && strstr(out, ": holds: the answer of"),
               "%s: %s%s", asked[i], out, err);
        CHECK(run("mv " RECEIPT " %s", first) == 0);
        CHECKF(run("%s --receipt " RECEIPT " %s", asked[i], ways[(i + 1) % 3]) == 0 &&
                   test_same_file(RECEIPT, first),
               "%s %s: another receipt; %s", asked[i], ways[(i + 1) % 3], err);
    }
}

/* Verifies after a change by sed, and looks for a sentence. */
static void notices(int code, const char *sed, const char *more, const char *text)
{
    CHECK(run("sed '%s' " RECEIPT " >" TMP "changed.json", sed) == 0);
    const int got = run(VERIFY TMP "changed.json %s", more);
    CHECKF(got == code && strstr(code == 1 ? out : err, text), "%s: code %d, %s%s", sed, got, out,
           err);
}

TEST(questions_that_changed)
{
    CHECK(run(PATCH "--by heads --receipt " RECEIPT) == 0);
    notices(1, "s/He\"/She\"/", "", "the answer differs, which is one unit: the tables facts");
    notices(1, "s/heads\"/positions\"/", "", "the answer differs");
    notices(2, "s/\"value\": \"heads\"/\"value\": \"legs\"/", "", "--by: ");
    notices(2, "s/\"patch\"/\"ptch\"/", "", "there is no command ptch");
    notices(2, "s/\"name\": \"by\"/\"name\": \"bye\"/", "", "--bye means nothing to patch");
    notices(1, "s/\"root\": \"./&0/; s/\\(\"root\": \".\\)0./\\10/", "", "the root is not");
    notices(2, "s/\"units\": 1/\"units\": 65/", "", "\"blocks\"");
    notices(1, "s/\"left_out\": \\[\\]/\"left_out\": [\"a.b\"]/", "", "except its own digest");
    notices(2, "s/\"receipt\": 4/\"receipt\": 3/", "", "\"kind\"");
}

/* A file is looked for by its name, then beside the receipt. */
TEST(questions_about_files)
{
    write_texts(50);
    CHECK(run(SURPRISAL TEXTS " --receipt " RECEIPT " && mkdir -p " TMP "there && mv " TEXTS
                              " " RECEIPT " " TMP "there") == 0);
    CHECKF(run(VERIFY TMP "there/question.json") == 0, "%s%s", out, err);
    CHECKF(run("echo more >>" TMP "there/texts.txt; " VERIFY TMP "there/question.json") == 1 &&
               strstr(out, "differs: another file texts.txt: SHA-256 "),
           "%s%s", out, err);
    write_texts(50);
    CHECK(run(SURPRISAL "--receipt " RECEIPT " <" TEXTS) == 0);
    CHECKF(run(VERIFY RECEIPT) == 2 && strstr(err, "give it with --input FILE"), "%s", err);
    CHECKF(run(VERIFY RECEIPT " --input " TEXTS) == 0, "%s%s", out, err);
    CHECK(run(VERIFY RECEIPT " --input LICENSE") == 1 && strstr(out, "another file LICENSE"));
    CHECK(run("rm -rf " TMP "sae && cp -r examples/sae " TMP "sae && " LENS "sae " TMP
              "sae --bos Tom --receipt " RECEIPT " && echo >>" TMP "sae/cfg.json") == 0);
    CHECKF(run(VERIFY RECEIPT) == 1 && strstr(out, "another file sae: SHA-256 "), "%s%s", out, err);
}

TEST(samples_of_questions)
{
    write_texts(50);
    CHECK(run(SURPRISAL TEXTS " --receipt " RECEIPT) == 0);
    CHECKF(run(VERIFY RECEIPT " --sample 1%%") == 0 && strstr(out, "200 units in 4 blocks"), "%s%s",
           out, err);
    notices(1, "s/cat/dog/; s/\\(\"blocks\": \\[\"\\)./\\1x/; s/\"x/\"0/", "--sample 1 --seed a",
            "units 1 to 64 differ: rows 1 to ");
    CHECK(run(SCORE TEXTS " --lines -q --receipt " RECEIPT) == 0);
    CHECKF(run(VERIFY RECEIPT " --sample 0.3 --seed b") == 0, "%s%s", out, err);
    CHECK(run(LENS "loss 'Once upon' --receipt " RECEIPT) == 0);
    CHECKF(run(VERIFY RECEIPT " --sample 1%%") == 0 && strstr(out, "--sample does not apply"), "%s",
           out);
}

/* >> Answers =================================================================================== */

/* Each form of a kept answer, with one digit changed by sed. */
TEST(kept_answers)
{
    static const char *const kept[][4] = {
        {PATCH "--by heads -o $a.csv", "$a.csv", "3s/.$/x/", "row 2 of the table heads"},
        {PATCH "--by heads --json >$a.json", "$a.json", "s/\"gap\": [0-9.]*/\"gap\": 1/",
         "in its column gap"},
        {PATCH "--by heads -o $a.npz", "$a.npz", "", ""},
        {SURPRISAL TEXTS " -o $a.csv", "$a.csv", "6s/cat/dog/", "row 5 of the table rows"},
        {SURPRISAL TEXTS " --json -o $a.txt", "$a.txt", "2s/there/their/", "in its column word"},
        {SCORE TMP "requests.jsonl -q >$a.txt", "$a.txt", "2s/Once/one/; 2s/ids/di/",
         "row 2 of the table scores"},
    };
    char file[256];
    write_texts(50);
    write_requests();
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        snprintf(file, sizeof file, TMP "a%s", kept[i][1] + 2);
        CHECKF(run("%s", test_text("a=" TMP "a; rm -f %s; set --; %s --receipt " RECEIPT, file,
                                   kept[i][0])) == 0,
               "%s: %s", kept[i][0], err);
        CHECKF(run(VERIFY RECEIPT " %s", file) == 0, "%s: %s%s", kept[i][0], out, err);
        if (*kept[i][2])
            CHECKF(run("sed -i.old '%s' %s; " VERIFY RECEIPT " %s", kept[i][2], file, file) == 1 &&
                       strstr(out, kept[i][3]),
                   "%s: %s%s", kept[i][0], out, err);
        else
            CHECKF(run("printf x | dd of=%s bs=1 seek=540 conv=notrunc && " VERIFY RECEIPT " %s",
                       file, file) == 1 &&
                       strstr(out, "differs, in its column"),
                   "%s: %s%s", kept[i][0], out, err);
    }
}

static uint32_t noise(uint32_t most)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % most;
}

/* Every digit counts. */
TEST(changed_digits)
{
    static const char *const set[][2] = {
        {"prompt", "Tom was a boy. He"}, {"corrupted", "Tom was a girl. He"}, {"by", "heads"}};
    const int most = test_full() ? 10000 : 1000;
    attn_ctx ctx = {0};
    SCOPED_MODEL model = NULL;
    lens_query *q = NULL;
    const char *bytes;
    size_t size;
    int n = 0;
    OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL));
    OK(&ctx, lens_query_new(&ctx, &q, model, "patch", LENS_FACE_C, 0));
    for (size_t i = 0; i < 3; i++)
        OK(&ctx, lens_query_set(&ctx, q, set[i][0], set[i][1], SIZE_MAX));
    OK(&ctx, lens_query_run(&ctx, q, NULL, NULL));
    OK(&ctx, lens_query_form(&ctx, q, "csv", &bytes, &size));
    char *const text = (char *)malloc(size);
    while (n < most && !ctx.status) {
        receipt_findings found = {{0}};
        arena memory = {NULL};
        const size_t at = noise((uint32_t)size);
        memcpy(text, bytes, size);
        if (text[at] < '0' || text[at] > '9')
            continue;
        text[at] = (char)('0' + (text[at] - '0' + 1 + (int)noise(9)) % 10);
        test_write(TMP "digits.csv", text, size);
        CHECKF(receipt_compare_answer(&ctx, &found, &memory, q->answer, TMP "digits.csv") ==
                   RECEIPT_DIFFERS,
               "byte %d was not found", (int)at);
        arena_free(&memory);
        n++;
    }
    free(text);
    lens_query_free(q);
}
