/* The runner of the tests (main.c), by a program whose cases fail (programs/failing.c); and the suites
 * that attn.h names. */
#include "tests/support/command.h"

SUITE_WITH(NULL, forget);

/* How many lines of what was printed begin with a text. */
static int lines_with(const char *text)
{
    const char *at = out;
    int n = 0;
    for (; at && *at; at += strcspn(at, "\n"), at += *at == '\n')
        n += strncmp(at, text, strlen(text)) == 0;
    return n;
}

static size_t longest_line(void)
{
    const char *at = out;
    size_t most = 0;
    for (; at && *at; at += strcspn(at, "\n"), at += *at == '\n')
        most = strcspn(at, "\n") > most ? strcspn(at, "\n") : most;
    return most;
}

/* A line for the suite, two that failed with what they printed, one for what was skipped, the sums. */
TEST(what_is_printed)
{
    EQUAL(run(TEST_BUILD "/tests/failing"), 1);
    EQUAL(lines_with("failing           1 passed    2 failed    2 skipped"), 1);
    EQUAL(
        lines_with("FAILED failing/fails at tests/programs/failing.c:21: 1 + 1 is 2, expected 3   "
                   "(" TEST_BUILD "/tests/failing failing/fails)\n"),
        1);
    EQUAL(lines_with("    it printed, at the end:\n"), 1);
    EQUAL(lines_with("    | a program prints\n"), 11);
    EQUAL(lines_with("    | 100 lines\n"), 1);
    EQUAL(lines_with("FAILED failing/fails_at_length at tests/programs/failing.c:31: begin xxx"),
          1);
    CHECKF(strstr(out, "xx end   (") && longest_line() < 550, "%d bytes in a line",
           (int)longest_line());
    EQUAL(
        lines_with(
            "skipped, a reason: failing/skips failing/skips_too\n1 passed, 2 failed, 2 skipped\n"),
        1);
    CHECK(!strstr(out, "nobody sees this"));
}

/* A process that ends before its suite has failed where it was. */
TEST(a_crash)
{
    EQUAL(run("CRASH=1 " TEST_BUILD "/tests/failing"), 1);
    EQUAL(lines_with("FAILED failing/crashes: its process ended with signal 9   (" TEST_BUILD
                     "/tests/failing failing/crashes)\n    it printed:\n    | last words\n"),
          1);
    EQUAL(lines_with("1 passed, 3 failed, 2 skipped\n"), 1);
}

/* One case alone prints where it runs. */
TEST(one_case)
{
    EQUAL(run(TEST_BUILD "/tests/failing failing/passes"), 0);
    EQUAL(lines_with("nobody sees this\n"), 1);
    EQUAL(lines_with("1 passed, 0 failed, 0 skipped\n"), 1);
    EQUAL(run(TEST_BUILD "/tests/failing failing/nothing"), 2);
    CHECK(strstr(out, "the suite failing has no case \"nothing\"; its cases are: passes"));
}

/* The banner of each section of the implementation, "/" "* >>ops (tests: ops attention) ===", names
 * suites, which exist. */
TEST(sections_name_their_suites)
{
    char name[64], *suites = prints("ls tests/suites | sed 's/.*/ & /'");
    char *banners = prints("sed -n 's/^\\/\\* >>//p' attn.h | grep -v -e ^api- -e ^changes");
    const char *line = banners;
    int n = 0;
    for (; suites && line && *line; line += strcspn(line, "\n") + 1, n++) {
        const char *at = strstr(line, " (tests: ");
        const int length = (int)strcspn(line, "\n");
        if (!CHECKF(at && at < line + length, "no suites: %.*s", length, line))
            continue;
        for (at += 9; *at != '='; at += strcspn(at, ") ") + 1 + (at[strcspn(at, ") ")] == ')')) {
            snprintf(name, sizeof name, " %.*s \n", (int)strcspn(at, ") "), at);
            CHECKF(strstr(suites, name), "no such suite:%.*s of %.*s", (int)strlen(name) - 1, name,
                   length, line);
        }
    }
    CHECKF(n > 20, "%d sections", n);
    free(banners);
    free(suites);
}

/* A setting of the sampler that only attn.h knows: each place that lacks it is named. So is the limit of attn.h. */
TEST(a_new_setting)
{
    static const char *const named[] = {
        "the setting top_z of attn_sampler_desc is not in examples/gpt2/gpt2.c",
        "tools/receipt/receipt.h", "attn__run_sampler takes top_z beside reuse_sampler",
        "lines of code; at most "};
    if (run("command -v python3") != 0) {
        test_skip("no python3 here");
        return;
    }
    CHECKF(
        run("root=$PWD; cd " TEST_TMP " && rm -rf rules && mkdir rules && cd rules && "
            "ln -s $root/examples $root/tests $root/tools . && "
            "awk '{ print } /^    float top_p; / { print \"    float top_z;\" }' $root/attn.h >attn.h && "
            "python3 tests/api.py .") == 1,
        "%s%s", out, err);
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
        CHECKF(strstr(out, named[i]), "%s is not in: %s", named[i], out);
}

/* A setting of lens has three places, and each that is forgotten is named. So is a name that a language has for itself. */
TEST(a_new_setting_of_lens)
{
    static const struct {
        const char *option, *places, *named;
    } cases[] = {
        {"zeal", "row member use", NULL},
        {"zeal", "member use", "the member zeal of lens_options has no row in lens_settings"},
        {"zeal", "row use", "--zeal fills the member zeal, which lens_options does not have"},
        {"zeal", "row member",
         "--zeal fills the member zeal of lens_options, which nothing in tools/lens reads"},
        {"while", "row member use",
         "--while is a word of Python, JavaScript, R or Lua: add to face_names"},
    };
    if (run("command -v python3") != 0) {
        test_skip("no python3 here");
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int code = run(
            "root=$PWD; cd " TEST_TMP " && rm -rf rules && mkdir rules && cd rules && "
            "ln -s $root/examples $root/tests $root/attn.h . && cp -R $root/tools . && "
            "cd tools/lens/program && for place in %s; do case $place in "
            "row) sed 's/^    {0, \"bos\", .*/&\\n    {0, \"%s\", NULL, FLAG, AT(zeal), ALL, NULL, \"\"},/' help.h >x && "
            "mv x help.h ;; "
            "member) sed 's/^    int pruned, check;/&\\n    int zeal;/' run.h >x && mv x run.h ;; "
            "use) echo 'static int zeal(const lens_options *o) { return o->zeal; }' >>cmd_loss.h ;; esac; "
            "done; cd ../../.. && python3 tests/api.py .",
            cases[i].places, cases[i].option);
        CHECKF(code == (cases[i].named != NULL), "%s: %s%s", cases[i].places, out, err);
        CHECKF(!cases[i].named || strstr(out, cases[i].named), "%s is not in: %s", cases[i].named,
               out);
    }
}
