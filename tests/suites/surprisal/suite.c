/* Suites of SyntaxGym and pairs of sentences, beside NumPy in float64, and mistakes in formulae. */
#include "tests/support/test.h"
#include "tests/support/command.h"
#include "tools/common/system.h"
#include <math.h>

SUITE_WITH(NULL, forget);

#define SUITE_OF TEST_BUILD "/surprisal " TEST_BUILD "/tiny-stories.attn -q --suite "
#define FIXTURES "tests/fixtures/surprisal/"

/* Compares the last run's rows, less the header, with a fixture. A field with a point in the fixture is a number. */
static void compare_with(const char *name)
{
    size_t size, n = 0;
    SCOPED_TEXT const fixture = (char *)test_read(name, &size);
    const char *want = fixture, *got = out ? strchr(out, '\n') : NULL;
    if (!CHECKF(fixture && got, "no %s", name))
        return;
    for (got++; *want && *got; n++) {
        const size_t a = strcspn(want, ",\n"), b = strcspn(got, ",\n");
        const int is_number = a > 10 && want[a - 10] == '.';
        CHECKF(is_number ? fabs(atof(want) - atof(got)) < 1e-4
                         : a == b && strncmp(want, got, a) == 0,
               "%s, field %d: %.*s, not %.*s", name, (int)n, (int)b, got, (int)a, want);
        want += a + (want[a] != 0);
        got += b + (got[b] != 0);
    }
    CHECKF(!*want && !*got && n > 20, "%s: another number of fields", name);
}

/* The lists "holds" of the predictions, in JSON, beside rows of 1 and 0. */
static void compare_held(const char *name)
{
    size_t size;
    SCOPED_TEXT const fixture = (char *)test_read(name, &size);
    const char *want = fixture, *got = out;
    while (want && got && *want && (got = strstr(got, "\"holds\": [")) != NULL) {
        for (got += strlen("\"holds\": ["); *want && *want != '\n'; want += 1 + (want[1] == ',')) {
            CHECKF(strncmp(got, *want == '1' ? "true" : "false", 4) == 0, "%s: %.20s", name, got);
            got += strcspn(got, " ]") + 1;
        }
        want += *want == '\n';
    }
    CHECKF(want && got && !*want, "%s: fewer predictions", name);
}

TEST(suites_as_numpy)
{
    RUNS(SUITE_OF FIXTURES "agreement.json --by region");
    compare_with(FIXTURES "agreement-regions.csv");
    CHECK(run(SUITE_OF FIXTURES "agreement.json --json") == 0);
    compare_held(FIXTURES "agreement.csv");
    CHECK(run(SUITE_OF FIXTURES "reflexives.json --by region") == 0);
    compare_with(FIXTURES "reflexives-regions.csv");
    CHECK(run(SUITE_OF FIXTURES "reflexives.json --json -t 1 --batch 1") == 0);
    compare_held(FIXTURES "reflexives.csv");
    CHECK(run(SUITE_OF FIXTURES "reflexives.json") == 0);
    CHECKF(strstr(out, "\n2,3,0,0.000000,0.000000,0.561497,\"(3;%mismatch%)") ||
               strstr(out, "\n2,3,0,0.000000,0.000000,0.561497,(3;%mismatch%)"),
           "%s", out);
}

TEST(pairs)
{
    RUNS(SUITE_OF FIXTURES "pairs.jsonl --by region");
    compare_with(FIXTURES "pairs.csv");
    CHECK(run(SUITE_OF FIXTURES "pairs.jsonl") == 0);
    CHECKF(strcmp(out, "group,pairs,right,ties,accuracy,low,high\n"
                       "agreement,4,3,0,0.750000,0.300642,0.954413\n"
                       "reflexives,3,3,0,1.000000,0.438503,1.000000\n"
                       "order,4,2,1,0.500000,0.150039,0.849961\n"
                       "all,12,9,1,0.750000,0.467695,0.911058\n") == 0,
           "%s", out);
    CHECK(run("printf 'n,b,a\\nx,The dog were big.,The dog was big.\\ny,a b,a b\\n' | " SUITE_OF
              "--pair a,b --group n --json --corrected -o " TEST_TMP "o.json && cat " TEST_TMP
              "o.json") == 0);
    CHECKF(occurrences(out, "\n") == 3 &&
               strstr(out, "{\"group\": \"x\", \"pairs\": 1, \"right\": 1, \"ties\": 0, ") &&
               strstr(out, "{\"group\": \"all\", \"pairs\": 2, \"right\": 1, \"ties\": 1, "),
           "%s", out);
    /* the corrected sum of a sentence is that of its words */
    CHECK(run("printf 'a,b\\nThe dog,A dog\\n' | " SUITE_OF "--pair a,b --corrected --by region "
              "| tail -n 1 | cut -d, -f3 >" TEST_TMP "a; printf 'The dog' | " TEST_BUILD
              "/surprisal " TEST_BUILD "/tiny-stories.attn | awk -F, 'NR > 1 { s += $5 } END "
              "{ printf \"%%.6f\\n\", s }' | cmp - " TEST_TMP "a") == 0);
    /* without a token before it, the first of a sentence has no probability: lens's mean is over the others */
    CHECK(run(TEST_BUILD "/lens " TEST_BUILD "/tiny-stories.attn loss 'The dog was big.' --json") ==
          0);
    const char *const mean = strstr(out, "\"mean_loss\": ");
    const double bits = mean ? strtod(mean + 13, NULL) * 4 / log(2) : NAN;
    CHECK(run("printf 'a,b\nThe dog was big.,The dog were big.\n' | " SUITE_OF
              "--pair a,b --no-bos --by region | tail -n 1 | cut -d, -f3") == 0);
    CHECKF(fabs(strtod(out, NULL) - bits) < 1e-5, "%s, not %f", out, bits);
    CHECK(run("printf 'a,b\na,The dog was\n' | " SUITE_OF
              "--pair a,b --no-bos --by region | tail -n 1 | cut -d, -f3,5") == 0 &&
          strcmp(out, "NA,NA\n") == 0); /* a sentence of one token has none */
}

/* A run that was killed, wherever its output ended, goes on to the same bytes. */
TEST(suites_resume)
{
    static const char *const ways[] = {"reflexives.json --by region", "pairs.jsonl --json",
                                       "agreement.json", "pairs.jsonl --by region"};
    size_t size;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        CHECK(run("rm -f " TEST_TMP "s.*; " SUITE_OF FIXTURES "%s -o " TEST_TMP "s.w", ways[i]) ==
              0);
        free(test_read(TEST_TMP "s.w", &size));
        for (size_t cut = 0; cut <= size; cut += cut < size && size - cut < 97 ? size - cut : 97) {
            CHECK(run("cd " TEST_TMP "; head -c %zu s.w >s.r.part", cut) == 0);
            CHECKF(run(SUITE_OF FIXTURES "%s --resume -o " TEST_TMP "s.r", ways[i]) == 0 &&
                       test_same_file(TEST_TMP "s.r", TEST_TMP "s.w") &&
                       !system_exists(TEST_TMP "s.r.part"),
                   "%s, cut at %zu: %s", ways[i], cut, err);
            if (cut == size)
                break;
        }
    }
    CHECK(run("cd " TEST_TMP "; head -c 99 s.w >s.r.part") == 0);
    refuses(1, "s.r.part has rows of a run that was interrupted: continue it with --resume",
            SUITE_OF FIXTURES "pairs.jsonl --by region -o " TEST_TMP "s.r");
    refuses(1, "--resume: line 2 of",
            SUITE_OF FIXTURES "pairs.jsonl --by region --unit nats --resume -o " TEST_TMP "s.r");
}

/* Writes a suite of one item: its condition a has the regions "The" and "", and b has "A cat". */
static void write_suite(const char *formula)
{
    FILE *const file = fopen(TEST_TMP "one.json", "wb");
    if (!CHECK(file != NULL))
        return;
    fprintf(file,
            "{\"items\": [{\"conditions\": [{\"condition_name\": \"a\", \"regions\": "
            "[{\"region_number\": 1, \"content\": \"The\"}, {\"region_number\": 2, \"content\": "
            "\"\"}]}, {\"condition_name\": \"b\", \"regions\": [{\"region_number\": 1, "
            "\"content\": \"A cat\"}]}]}], \"predictions\": [{\"formula\": \"%s\"}]}",
            formula);
    fclose(file);
}

TEST(formulae)
{
    static const struct {
        const char *formula, *says; /* NULL: it holds */
    } cases[] = {
        {"(1;%a%) > 0", NULL},
        {" ( ( 1 + 2*3 - 4/2 ) = 5 ) & ( 1 < 2 ) & (3 > 2)", NULL},
        {"1 - 2 - 3 = -4", NULL},
        {"sum(1, 2, 3) = mean(5, 7)", NULL},
        {"(2;%a%) = 0", NULL},
        {"[(2;%a%) = 0] & [ [1 + (2;%a%)] = 1 ]", NULL},
        {"[1 < 2)", "character 7, at \")\": expected ] here"},
        {"(*;%a%) = (1;%a%)", NULL},
        {"(1;%a%) > (2;%a)", "prediction 1, character 16, at \")\": expected % behind the name"},
        {"(1;%a%) > ", "character 11, at \"\": expected a number, or a region"},
        {"(1;%c%) > 0", "character 5, at \"c%) > 0\": item 1 has no condition \"c\""},
        {"(3;%a%) > 0",
         "character 2, at \"3;%a%) > 0\": condition \"a\" of item 1 has no such region"},
        {"(1;%a%) > 1 / (2;%a%)", "item 1 divides by zero"},
        {"(1;%a%) + 1", "a prediction compares numbers by <, > or ="},
        {"1 < 2 & 3", "& and | join comparisons"},
        {"1 & 2 < 3", "character 3, at \"& 2 < 3\": & and | join comparisons"},
        {"(1 < 2) + 1 > 0", "character 9, at \"+ 1 > 0\": this joins numbers, not comparisons"},
        {"1 + (1 < 2) > 0", "a number is needed here, not a comparison"},
        {"1 < 2 < 3", "character 7, at \"< 3\": expected the end of the formula, or an operator"},
        {"1 < 2 & 2 < 3 | 1 < 2", "& and | together need parentheses"},
        {"(1 < 2", "character 7, at \"\": expected ) here"},
        {"1 < 2)", "character 6, at \")\": expected the end of the formula"},
        {"sum(1; 2) > 0", "expected , or ) in a list"},
        {"1 < - ", "expected a number"},
        {"x > 1", "character 1, at \"x > 1\": expected a number, or a region such as"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_suite(cases[i].formula);
        if (cases[i].says)
            refuses(1, cases[i].says, SUITE_OF TEST_TMP "one.json");
        else
            CHECKF(run(SUITE_OF TEST_TMP "one.json --json") == 0 &&
                       strstr(out, "\"holds\": [true]"),
                   "%s: %s%s", cases[i].formula, out, err);
    }
}

/* A sentence that is missing, as pandas writes it, decides nothing. */
TEST(missing_sentences)
{
    static const char *const inputs[] = {
        "printf 'sentence_good,sentence_bad\nA dog.,\nThe cats were.,The cats was.\n'",
        "echo '[{\"sentence_good\": \"A dog.\", \"sentence_bad\": null}, {\"sentence_good\": "
        "\"The cats were.\", \"sentence_bad\": \"The cats was.\"}]'"};
    for (size_t i = 0; i < 2; i++) {
        CHECKF(run(test_text("%s | " SUITE_OF, inputs[i])) == 0 && strstr(out, "\nall,1,"), "%s%s",
               out, err);
        CHECKF(run(test_text("%s | " SUITE_OF "--by region", inputs[i])) == 0 &&
                   strstr(out, ",NA,NA\n"),
               "%s%s", out, err);
        refuses(2, i ? "no pair of standard input has a text in \"UID\"" : "no column \"UID\"",
                test_text("%s | " SUITE_OF "--group UID", inputs[i]));
    }
    CHECK(
        run("printf '{\"items\": [{\"item_number\": 7, \"conditions\": [{\"condition_name\": \"a\", "
            "\"regions\": [{\"region_number\": 1, \"content\": \"The dog\"}]}]}]}' | " SUITE_OF
            "--by region") == 0 &&
        strstr(out, "\n7,a,1,The dog,"));
}

TEST(wrong_suites)
{
    refuses(
        1,
        "standard input has no predictions (--by region needs none), as suites of SyntaxGym have",
        "printf '{\"items\": [{\"conditions\": []}]}' | " SUITE_OF);
    refuses(1, "item 1 has no conditions, as suites",
            "printf '{\"items\": [{\"conditions\": []}], \"predictions\": [1]}' | " SUITE_OF);
    refuses(1, "the metric is not \"sum\" or \"mean\"",
            "sed 's/\"mean\"/\"median\"/' " FIXTURES "reflexives.json | " SUITE_OF);
    refuses(1, "item 1 has no regions with a region_number and a content",
            "sed 's/\"content\"/\"text\"/' " FIXTURES "reflexives.json | " SUITE_OF);
    refuses(1, "character 2, at \"1;%match%) = (1;%mismatch%)\": the region is empty in item 1",
            "sed 's/\"The little girl\"/\"\"/' " FIXTURES "reflexives.json | " SUITE_OF);
    refuses(1, "line 1: there is no text \"sentence_good\"; name them with --pair",
            "echo '{\"good\": 1}' | " SUITE_OF);
    refuses(1, "malformed JSON at line 2",
            "printf '{\"sentence_good\": \"a\", "
            "\"sentence_bad\": \"b\"}\\n{x\\n' | " SUITE_OF);
    refuses(
        2,
        "--pair: standard input has no column \"sentence_good\"; its columns are a; name them with --pair",
        "printf 'a\\nb\\n' | " SUITE_OF);
    refuses(2, "--pair: standard input has no column \"b\"; its columns are a, c",
            "printf 'a,c\\nx,y\\n' | " SUITE_OF "--pair a,b");
    refuses(2, "--pair and --group are for pairs of sentences, and tests/fixtures",
            SUITE_OF FIXTURES "reflexives.json --group uid");
    refuses(2, "is not two names of columns with a comma",
            "printf 'a,c\\nx,y\\n' | " SUITE_OF "--pair a");
    static const char *const of_rows[] = {
        "column a",    "layers 0",    "rank",     "top 2",     "entropy-reduction",
        "renyi 2",     "spillover 1", "continue", "regions _", "vectors hook_embed",
        "pooling last"};
    for (size_t i = 0; i < sizeof of_rows / sizeof of_rows[0]; i++) {
        refuses(
            2,
            test_text("--%.*s means nothing to --suite", (int)strcspn(of_rows[i], " "), of_rows[i]),
            test_text(SUITE_OF FIXTURES "reflexives.json --%s", of_rows[i]));
    }
    /* parts of a word with punctuation apart are in the word's region */
    same(SUITE_OF FIXTURES "reflexives.json --by region --punctuation apart | cut -d, -f 1-5",
         SUITE_OF FIXTURES "reflexives.json --by region | cut -d, -f 1-5");
    refuses(2, "--pair, --group and --corrected are for --suite",
            TEST_BUILD "/surprisal a.attn x --corrected");
}
