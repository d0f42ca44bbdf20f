/* The exercises of the notebooks in C, solved as a reader would: the line is changed, the program built
 * and run, and what it prints is what the answer says. A check that fails makes the exit code 1. */
#include "tests/support/command.h"

SUITE_WITH(NULL, forget);

#define DIR TEST_TMP "exercise/"

/* The exit code of a notebook in which sed has changed a file; -1 if it cannot be built. */
static int changed(const char *notebook, const char *file, const char *change,
                   const char *arguments)
{
    int code = run("rm -rf " DIR " && mkdir -p " DIR " && cp examples/from_scratch/*.[ch] " DIR
                   " && chmod -R u+w " DIR " && sed '%s' examples/from_scratch/%s >" DIR "%s && "
                   "! cmp -s examples/from_scratch/%s " DIR "%s",
                   change, file, file, file, file);
    if (!CHECKF(code == 0, "%s has no line to change by %s: %s", file, change, err))
        return -1;
    code = run("$(cat " TEST_BUILD "/flags) -MF /dev/null -DATTN__IMPLEMENTED "
               "-DBUILD='\"" TEST_BUILD "\"' " DIR "%s.c " TEST_BUILD "/attn.o -lm -o " DIR "run",
               notebook);
    return CHECKF(code == 0, "%s: %s", notebook, err) ? run(DIR "run %s", arguments) : -1;
}

static void says(const char *text)
{
    CHECKF(out && strstr(out, text), "nowhere printed: %s\nbut\n%s", text, out);
}

static void check_failed(const char *how_many)
{
    CHECKF(err && strstr(err, "of the checks above failed\n") &&
               strncmp(err, how_many, strlen(how_many)) == 0,
           "said: %s", err);
}

TEST(self_attention_without_scores)
{
    CHECK(changed("002_self_attention", "002_self_attention.c",
                  "s/attn_scale(ctx, pattern, \\*pattern, .*);/"
                  "attn_scale(ctx, pattern, *pattern, 0);/",
                  "") == 1);
    says("33% --- 33% --- 33% ---\n   33% --- 33% --- 33% ---\n   33% --- 33% --- 33% ---\n");
    check_failed("2 ");
}

/* Those modules that contain an MLP, and the loss */
TEST(clean_gpt2_with_relu)
{
    static const char *const modules[] = {"LayerNorm",        "Embed",          "PosEmbed",
                                          "Attention",        "Unembed",        "MLP",
                                          "TransformerBlock", "DemoTransformer"};
    CHECK(changed("004_clean_gpt2", "clean_gpt2.h", "s/ATTN_ACT_GELU_TANH/ATTN_ACT_RELU/", "") ==
          1);
    for (size_t i = 0; i < 8 && out; i++) {
        const char *at = out;
        size_t right = 0, wrong = 0;
        const char *const name = test_text("\n%s\n", modules[i]);
        while ((at = strstr(at, name)) != NULL) {
            const char *end = strstr(++at, "\n\n"), *percent = strstr(at, "% of the values");
            if (end && percent && percent < end)
                (strncmp(percent - 6, "100.00", 6) == 0) ? right++ : wrong++;
        }
        CHECKF(i < 5 ? right == 2 && wrong == 0 : right == 0 && wrong == 2,
               "%s: right %d times, wrong %d times", modules[i], (int)right, (int)wrong);
    }
    CHECKF(err && strstr(err, "6 of the checks above failed\n1 of the checks above failed\n"),
           "said: %s", err);
}

TEST(averages_without_a_mask)
{
    CHECK(changed("001_averaging", "001_averaging.c",
                  "s/torch_causal_mask(ctx, &weights, TIME, TIME);/"
                  "torch_full(ctx, \\&weights, attn_shape2(TIME, TIME), 0);/",
                  "1") == 1);
    says("differs from the loops by at most 3e-07, the softmax by at most 4.\n");
    check_failed("1 ");
}

/* Does column `most` of a row of the picture stand for the largest weight, and have two columns 1% or
 * more? -1: without the second question */
static void row_of_picture(const char *word, int most, int cells)
{
    const char *at = NULL;
    int i, share[6], n = 0;
    const char *const start = test_text("\n  %-8s", word);
    at = out ? strstr(out, start) : NULL;
    if (!CHECKF(at != NULL, "no row of %s", word))
        return;
    for (i = 0, at += strlen(start); i < 6; i++, at += 8) {
        share[i] = atoi(at);
        n += share[i] >= 1;
    }
    for (i = 0; i < 6; i++)
        CHECKF(share[i] <= share[most], "%s looks at word %d by %d%%", word, i, share[i]);
    CHECKF(n == cells, "%s has %d cells", word, n);
}

/* Your, journey look at themselves; starts, with and step at journey. one looks at starts. */
TEST(scores_a_hundred_times_as_large)
{
    CHECK(run(TEST_BUILD "/from_scratch/000_scores") == 0);
    row_of_picture("Your", 0, 6);
    row_of_picture("journey", 1, 6);
    row_of_picture("starts", 1, 6);
    row_of_picture("with", 1, 6);
    row_of_picture("one", 2, 6);
    row_of_picture("step", 1, 6);
    CHECK(changed("000_scores", "words.h",
                  "s/attn_softmax(ctx, &weights, scores);/"
                  "attn_scale(ctx, \\&scores, scores, 100); &/",
                  "") == 0);
    row_of_picture("Your", 0, 2);
    row_of_picture("journey", 1, 2);
    row_of_picture("starts", 1, 2);
    row_of_picture("with", 1, 2);
    row_of_picture("one", 2, 2);
    row_of_picture("step", 1, 2);
}

TEST(one_head_in_place_of_two)
{
    CHECK(
        changed("003_multi_head", "003_multi_head.c",
                "s/multi_head(&ctx, batch, &w, 2, mask)/multi_head(\\&ctx, batch, \\&w, 1, mask)/",
                "") == 1);
    says("Multi-head attention with an output layer, seed 123:\ntensor([[[0.3190, 0.4858],\n");
    CHECK(out && !strstr(out, "[0.2943, 0.3897]"));
    check_failed("1 ");
}

TEST(scores_scaled_in_two_steps)
{
    CHECK(changed("005_inside_the_engine", "005_inside_the_engine.c",
                  "s/attn_scale(w->ctx, &out, out, .*/attn_scale(w->ctx, \\&out, out, "
                  "1 \\/ sqrtf(sqrtf((float)w->q.shape[2]))); &/;"
                  "s/\\(sqrtf(.*; \\).*/\\1attn_scale(w->ctx, \\&out, out, "
                  "1 \\/ sqrtf(sqrtf((float)w->q.shape[2])));/",
                  "") == 1);
    says(" 4       0  DIFFERENT\n");
    says(" 8       4  DIFFERENT\n");
    says(" 12       8  DIFFERENT\n");
    says(" 16      12  DIFFERENT\n");
    says(" 28      24  DIFFERENT\n");
    check_failed("5 ");
}

TEST(largest_rank_first)
{
    CHECK(changed("006_tokenizer", "006_tokenizer.c", "s/rank < best/rank > best/", "") == 1);
    CHECK(occurrences(out, "OTHER IDS; the text comes back") == 2);
    says("19 tokens: the library's ids; the text comes back");
    check_failed("2 ");
}

TEST(cache_without_a_mask)
{
    CHECK(changed("007_cache", "007_cache.c", "/attn_add(ctx, &scores, scores, mask);/d", "") == 1);
    says("one token at a time: the same");
    says("in two halves, the second with a mask: DIFFERENT");
    says("as the engine keeps them: the same");
    check_failed("3 ");
}

/* Each names its counterpart in NumPy, which names it. */
TEST(counterparts)
{
    const int code =
        run("for c in examples/from_scratch/0*.c; do "
            "n=$(sed -n 's/.*\\(examples.python.notebooks.[a-z0-9_]*.ipynb\\).*/\\1/p' $c | head "
            "-n 1); "
            "[ \"$n\" ] && grep -q \"$c\" \"$n\" || { echo \"$c and $n\"; exit 1; }; echo; done");
    CHECKF(code == 0 && occurrences(out, "\n") == 8, "%s", out);
}

/* The text of a page, without its tags; the caller frees it. */
static char *text_of(const char *page)
{
    static const char *const entities[] = {"&lt;<", "&gt;>", "&amp;&"};
    char *text = (char *)malloc(strlen(page) + 1), *to = text;
    size_t i, n;
    while (text && *page) {
        if (*page == '<') {
            page += strcspn(page, ">");
            page += *page != 0;
            continue;
        }
        *to = *page;
        for (i = 0, n = 1; i < 3; i++)
            if (strncmp(page, entities[i], strlen(entities[i]) - 1) == 0) {
                n = strlen(entities[i]) - 1;
                *to = entities[i][n];
            }
        to++;
        page += n;
    }
    if (text)
        *to = 0;
    return text;
}

/* Are the lines of `lines` in the text, in their order? Those that begin with `skip` may be missing. */
static void in_order(const char *text, char *lines, const char *skip)
{
    char *line;
    for (line = strtok(lines, "\n"); line && text; line = strtok(NULL, "\n")) {
        const char *at = strstr(text, line);
        if (strncmp(line, skip, strlen(skip)) == 0)
            continue;
        if (!CHECKF(at != NULL, "not there, or not in its place: %s", line))
            return;
        text = at + strlen(line);
    }
}

/* What `make docs` makes of a notebook has all lines of main and all that is printed, in their order, heat maps,
 * the answer, and nothing of the network. */
static void check_page(const char *notebook, size_t heat_maps)
{
    size_t size;
    char path[64], *page = NULL, *text, *lines;
    snprintf(path, sizeof path, TEST_BUILD "/from_scratch/%s", notebook);
    SCOPED_TEXT printed = prints(path);
    CHECK(run("mkdir -p " DIR) == 0);
    RUNS("$(cat " TEST_BUILD "/flags) -MF /dev/null -DATTN__IMPLEMENTED "
         "-DBUILD='\"" TEST_BUILD "\"' -DNOTEBOOK_PAGE -fno-inline "
         "-fno-optimize-sibling-calls examples/from_scratch/%s.c " TEST_BUILD "/attn.o -lm -o " DIR
         "page && " DIR "page >" DIR "page.out",
         notebook);
    if (run("awk -f examples/from_scratch/page/page.awk -v source=examples/from_scratch/%s.c "
            "-v style=examples/from_scratch/page/page.css -v pages='a %s b' " DIR "page.out",
            notebook, notebook) == 0)
        page = text_of(out);
    snprintf(path, sizeof path, "examples/from_scratch/%s.c", notebook);
    SCOPED_TEXT source = (char *)test_read(path, &size);
    if (CHECK(page && printed && source)) {
        CHECKF(occurrences(out, "<figure>") == heat_maps, "%d heat maps",
               (int)occurrences(out, "<figure>"));
        CHECK(!strstr(out, "http") && !strstr(out, "src=") && !strstr(out, "url("));
        CHECK(occurrences(out, "<details>") == 1 && occurrences(out, "<section>") > 5);
        CHECK(strstr(out, "<a href=\"a.html\">a</a>") != NULL);
        lines = strstr(source, "int main(");
        text = strstr(lines, "\n}\n");
        text[3] = 0;
        in_order(page, lines, "#");
        in_order(page, printed, "  "); /* letters in place of heat maps */
    }
    free(page);
}

TEST(pages)
{
    check_page("000_scores", 14);
    check_page("002_self_attention", 8);
    check_page("005_inside_the_engine", 1);
    check_page("007_cache", 0);
}
