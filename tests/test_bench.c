/* The bench: that it runs to its end, what it prints, how it refuses. Nothing here looks at how
 * fast anything is. */
#include "command.h"

#define BENCH TEST_BUILD "/bench "
#define MODEL TEST_BUILD "/tiny-stories.attn "
#ifdef _OPENMP
#define THREADS "2"
#else
#define THREADS "1"
#endif

/* A number after "key": in the first place that has it, or -1. */
static double number_of(const char *json, const char *key)
{
    char quoted[64];
    const char *at;
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    at = json ? strstr(json, quoted) : NULL;
    return at ? strtod(at + strlen(quoted), NULL) : -1;
}

static size_t count_of(const char *text, const char *word)
{
    size_t n = 0;
    for (; text && (text = strstr(text, word)) != NULL; text++)
        n++;
    return n;
}

static void bad_options(void)
{
    refuses(2, "there is no option --fast", BENCH "--fast");
    refuses(2, "not 125M", BENCH "--size 125M");
    refuses(2, "a value is missing after --size", BENCH "--size");
    refuses(2, "not f32,q5", BENCH "--dtype f32,q5");
    refuses(2, "--dtype takes", BENCH "--dtype ''");
    refuses(2, "not matmul,", BENCH "--only matmul,");
    refuses(2, "--threads takes", BENCH "--threads 0");
    refuses(2, "--threads takes", BENCH "--threads 2x");
    refuses(2, "--threads takes", BENCH "--threads 257");
#ifndef _OPENMP
    refuses(2, "--threads takes 1 where there is no OpenMP", BENCH "--threads 2");
#endif
    refuses(2, "one model at a time", BENCH MODEL MODEL);
    refuses(2, "not for a given model", BENCH MODEL "--dtype q8");
    refuses(2, "would overwrite the model", BENCH MODEL "--only roofs --json " MODEL);
    forget();
}

static void failures(void)
{
    CHECK(run(BENCH "build/no-such-file.attn --quick --only prompt") == 1);
    CHECK(err && strstr(err, "no-such-file.attn"));
    CHECK(run(BENCH "README.md --quick --only prompt") == 1);
    CHECK(run(BENCH MODEL "--quick --only roofs --json build/no/such/directory.json") == 1);
    CHECK(err && strstr(err, "cannot write build/no/such/directory.json"));
    CHECK(run("TMPDIR=build/no/such " BENCH "--quick --only prompt") == 1);
    CHECK(err && strstr(err, "TMPDIR"));
    CHECK(run(BENCH MODEL "--quick --only tokenizer --tokenizer build/no/such") == 1);
    forget();
}

static void help(void)
{
    static const char *const options[] = {"--size", "--dtype",     "--only",     "--quick",
                                          "--json", "--tokenizer", "--cpu-time", "--threads"};
    size_t i;
    CHECK(run(BENCH "--help") == 0);
    for (i = 0; i < sizeof options / sizeof options[0]; i++)
        CHECKF(out && strstr(out, options[i]), "--help does not mention %s", options[i]);
    forget();
}

/* Every section of the table, on the included model; the table and the JSON agree. */
static void every_section(void)
{
    static const char *const headings[] = {
        "\nroofs ", "\nmatmul ",    "\nprompt ",      "\ngeneration ", "\nspeculation ",
        "\nbatch ", "\nglass box ", "\nfirst token ", "\nmemory ",     "\ntokenizer "};
    char *table = NULL, *json = NULL;
    const char *line, *end;
    size_t size, i, n;
    table = prints(BENCH MODEL "--quick --threads " THREADS " --json build/test-tmp/bench.json");
    if (!table)
        return;
    json = (char *)test_read("build/test-tmp/bench.json", &size);
    if (!CHECK(json))
        return;
    for (i = 0; i < sizeof headings / sizeof headings[0]; i++)
        CHECKF(strstr(table, headings[i]), "no heading \"%s\" in:\n%s", headings[i] + 1, table);
    for (line = table; *line; line = *end ? end + 1 : end) {
        end = line + strcspn(line, "\n");
        CHECKF(end - line <= 100, "a line of %d columns: %.*s", (int)(end - line),
               (int)(end - line), line);
    }
    n = count_of(json, "\"section\": ");
    CHECKF(n > 20, "%d figures", (int)n);
    CHECK(n == count_of(json, "\"share\": ") && n == count_of(json, "\"value\": "));
    CHECK(number_of(json, "threads") == 1 || number_of(json, "threads") == 2);
    CHECK(number_of(json, "value") > 0);
    CHECK(number_of(strstr(json, "\"section\": \"matmul\""), "roof") > 0);
    CHECK(number_of(strstr(json, "\"section\": \"generation\""), "share") > 0);
    CHECK(strstr(json, "\"model\": \"tiny-stories.attn\""));
    free(table);
    free(json);
    if (run("command -v python3") != 0) {
        forget();
        test_skip("no python3 here to read the JSON");
        return;
    }
    CHECKF(run("python3 -c 'import json; j = json.load(open(\"build/test-tmp/bench.json\")); "
               "assert {f[\"dtype\"] for f in j[\"figures\"]} == {None, \"f16\"}, j; "
               "assert all(f[\"value\"] > 0 and f[\"unit\"] for f in j[\"figures\"]), j'") == 0,
           "%s", err);
    forget();
}

/* --json - is JSON and nothing else, and --only leaves out the rest. */
static void json_alone(void)
{
    CHECK(run(BENCH MODEL "--quick --only prompt,batch --threads 1 --json -") == 0);
    CHECK(out && out[0] == '{' && strcmp(out + strlen(out) - 3, "\n}\n") == 0);
    CHECK(count_of(out, "\"section\": \"prompt\"") == 1);
    CHECK(count_of(out, "\"section\": \"batch\"") == 2);
    CHECK(count_of(out, "\"section\": ") == 3);
    CHECK(run(BENCH MODEL "--quick --only generation,first --cpu-time") == 0);
    CHECK(out && strstr(out, "generation") && !strstr(out, "first token"));
    forget();
}

void suite_bench(void)
{
    RUN("bench", bad_options);
    RUN("bench", failures);
    RUN("bench", help);
    RUN("bench", every_section);
    RUN("bench", json_alone);
}
