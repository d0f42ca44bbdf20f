/* score: its answers beside those of PyTorch's GPT-2 in float64; the same bytes however the lines are
 * computed; lines and commands that are wrong; interruptions. */
#include "tools/common/json.h"
#include "tests/support/command.h"
#include <math.h>
#include <unistd.h>

SUITE_WITH(NULL, forget);

#define SCORE    TEST_BUILD "/score "
#define MODEL    TEST_BUILD "/tiny-stories.attn "
#define FIXTURES "tests/fixtures/score/"
#define TMP      TEST_TMP

/* ---- the numbers ---- */

/* Numbers with a point or an exponent may differ a little; everything else must be equal. *worst is
 * the largest difference. Returns where they part, or NULL. */
static const json_value *unequal(const json_value *a, const json_value *b, double *worst)
{
    const json_value *x = a + 1, *y = b + 1, *found;
    double p, q, error;
    if (a->kind != b->kind)
        return b;
    if (a->kind == JSON_NUMBER && json_double(a, &p) && json_double(b, &q)) {
        if (strcspn(a->text, ".eE,]} ") >= a->size)
            return p == q ? NULL : b;
        error = fabs(p - q) / (fabs(p) > 1 ? fabs(p) : 1);
        *worst = error > *worst ? error : *worst;
        return error < 1e-5 ? NULL : b;
    }
    if (a->size != b->size || (a->kind == JSON_STRING && memcmp(a->text, b->text, a->size) != 0))
        return b;
    for (size_t i = 0; a->kind >= JSON_ARRAY && i < a->size; i++, x += x->span, y += y->span)
        if (x->key_size != y->key_size || (x->key_size && memcmp(x->key, y->key, x->key_size) != 0))
            return y;
        else if ((found = unequal(x, y, worst)) != NULL)
            return found;
    return NULL;
}

/* Cuts a line off a text; NULL at its end. */
static char *next_line(char **text)
{
    char *const line = *text, *const end = strchr(line, '\n');
    if (!end)
        return NULL;
    *end = 0;
    *text = end + 1;
    return line;
}

TEST(as_pytorch)
{
    size_t size, n = 0;
    char *answers = (char *)test_read(FIXTURES "answers.jsonl", &size), *at = answers, *line;
    char *given, *got;
    double worst = 0;
    if (!CHECK(answers != NULL) || !RUNS(SCORE MODEL FIXTURES "lines.jsonl")) {
        free(answers);
        return;
    }
    for (given = out; (line = next_line(&at)) != NULL; n++) {
        attn_ctx ctx = ATTN_ZERO;
        json_value *a = NULL, *b = NULL;
        const json_value *part;
        if (!CHECKF((got = next_line(&given)) != NULL, "only %zu answers", n))
            break;
        const char *const shown_line = test_text("%s", got);
        OK(&ctx, json_parse(&ctx, "answers.jsonl", line, strlen(line), &a));
        OK(&ctx, json_parse(&ctx, "standard output", got, strlen(got), &b));
        if (a && b && (part = unequal(a, b, &worst)) != NULL)
            test_fail(__FILE__, __LINE__, "line %zu, %s: other at %.*s %.*s", n + 1, shown_line,
                      (int)part->key_size, part->key ? part->key : "",
                      part->kind == JSON_NUMBER || part->kind == JSON_STRING ? (int)part->size : 0,
                      part->text ? part->text : "");
        free(a);
        free(b);
    }
    CHECKF(n > 25 && *given == 0, "%zu answers, then \"%s\"", n, given);
    CHECKF(worst > 0, "no number was compared");
    free(answers);
}

/* Each number is the spelling of the nearest float, or of the nearest double. */
/* A classifier's logits and a reward model's value as transformers has them (make_head_fixtures.py), of models that
 * went to its files and back. */
TEST(heads_as_transformers)
{
    size_t size;
    char *file = (char *)test_read("tests/fixtures/heads/expected.tsv", &size), *line;
    int n_lines = 0;
    CHECK(run("cd " TMP
              " && for m in classifier reward; do rm -rf $m.dir; for to in attn dir again; do "
              "$OLDPWD/" TEST_BUILD
              "/attn-convert -q ${from:-$OLDPWD/tests/fixtures/heads/$m} $m.$to || exit; "
              "from=$m.$to; done; from=; done") == 0);
    for (char *at = file; at && (line = next_line(&at)) != NULL; n_lines++) {
        char *const ids = strchr(line, '\t') + 1, *want = strchr(ids, '\t') + 1;
        ids[-1] = want[-1] = 0;
        CHECK(run("echo '{\"ids\": [%s]}' | " SCORE TMP "%s.again - --task classify", ids, line) ==
              0);
        char *got = strstr(out, *line == 'r' ? "\"labels\": [\"LABEL_0\"]"
                                             : "\"na\xC3\xAFve \\\"neutral\\\"\", ");
        got = got ? strstr(got, "\"logits\": [") + 10 : out;
        while (*want && CHECKF(*got == '[' || *got == ',', "%s", out)) {
            const double a = strtod(want, &want), b = strtod(got + 1, &got);
            CHECKF(fabs(a - b) < 2e-6, "%s of %s: %g, not %g", line, ids, b, a);
        }
        CHECK(*got == ']');
    }
    CHECK(n_lines == 8);
    free(file);
}

TEST(numbers_read_back)
{
    char again[40], *at;
    size_t n = 0;
    if (!RUNS(SCORE MODEL FIXTURES "lines.jsonl"))
        return;
    for (at = out; (at = strpbrk(at, "-0123456789")) != NULL; at += strspn(at, "-+.e0123456789")) {
        const size_t size = strspn(at, "-+.e0123456789");
        const double number = strtod(at, NULL);
        if (!memchr(at, '.', size) || at[-1] != ' ')
            continue;
        snprintf(again, sizeof again, "%.9g", (double)(float)number);
        if (strlen(again) != size || memcmp(again, at, size) != 0)
            snprintf(again, sizeof again, "%.17g", number);
        if (!CHECKF(strlen(again) == size && memcmp(again, at, size) == 0, "%.*s reads as %s",
                    (int)size, at, again))
            return;
        n++;
    }
    CHECKF(n > 1000, "%zu numbers", n);
}

/* Drawn with the same seed, a text is the one that gpt2 writes. */
TEST(draws_as_gpt2)
{
    char *text = prints(TEST_BUILD "/gpt2 " MODEL "'One day, Tom' --no-prompt -qn 50 --seed 7 "
                                   "--temperature 0.9 --top-k 30 --top-p 0.95 --min-p 0.01 "
                                   "--repeat-penalty 1.2 --repeat-last 20");
    char *end;
    RUNS("echo '{\"task\": \"generate\", \"text\": \"One day, Tom\", \"max_tokens\": 50, "
         "\"seed\": 7, \"temperature\": 0.9, \"top_k\": 30, \"top_p\": 0.95, \"min_p\": 1e-2, "
         "\"repeat_penalty\": 1.2, \"repeat_last\": 20}' | " SCORE MODEL);
    if (!text || !out)
        return;
    if ((end = strchr(text, '\n')) != NULL) /* the first line is long enough */
        *end = 0;
    CHECKF(strlen(text) > 40 && strstr(out, text) != NULL, "%s is not in %s", text, out);
    free(text);
    same(
        "echo '{\"task\": \"generate\", \"text\": \"Once\", \"max_tokens\": 9}' | " SCORE MODEL,
        "echo '{\"task\": \"generate\", \"text\": \"Once\", \"max_tokens\": 9, \"temperature\": 2, "
        "\"top_p\": 0}' | " SCORE MODEL);
}

/* ---- the same bytes ---- */

/* A few hundred lines: those of the fixture, random texts and drawings, and mistakes. */
static void write_lines(const char *path, int n_lines)
{
    static const char *const words[] = {" the", " dog", " cat",    ", ", " said", " Lily",
                                        " red", " ran", "\\u00e9", "! ", " big",  " because"};
    FILE *const file = fopen(path, "w");
    unsigned state = 1;
    for (int i = 0; file && i < n_lines; i++) {
        state = state * 1664525 + 1013904223;
        fprintf(file, "{\"id\": %d, \"text\": \"Once", i);
        for (int k = (int)(state >> 24) % (i % 9 ? 20 : 150); k >= 0; k--)
            fputs(words[(state >> 8) * (unsigned)(k + 1) % 12], file);
        switch (state >> 16 & 7) {
        case 0:
            fprintf(file,
                    "\", \"task\": \"generate\", \"temperature\": 1, \"seed\": %d, "
                    "\"max_tokens\": %u}\n",
                    i, 1 + (state >> 27));
            break;
        case 1:
            fprintf(file, "\", \"task\": \"embed\", \"pooling\": \"mean\"}\n");
            break;
        case 2:
            fprintf(file, "\", \"task\": \"top-k\", \"positions\": \"all\", \"k\": 2}\n");
            break;
        case 3:
            fprintf(file, "\", \"task\": \"logit-lens\", \"k\": 2}\n");
            break;
        case 4:
            fprintf(file, i % 5 ? "\", \"context\": \"\"}\n" : "\"\n");
            break;
        default:
            fprintf(file, "\"}\n");
        }
    }
    if (CHECKF(file != NULL, "cannot write %s", path))
        fclose(file);
}

TEST(same_bytes)
{
    static const char *const ways[] = {
        SCORE MODEL TMP "lines.jsonl --batch 1 --threads 1",
        SCORE MODEL TMP "lines.jsonl --batch 3",
        SCORE MODEL TMP "lines.jsonl --batch 256 --threads 2 -q",
        SCORE MODEL "<" TMP "lines.jsonl",
        "cat " TMP "lines.jsonl | " SCORE MODEL "-",
        "(while IFS= read -r l; do printf '%s\\n' \"$l\"; done) <" TMP "lines.jsonl | " SCORE MODEL,
        SCORE MODEL TMP "lines.jsonl -o " TMP "out.jsonl >&2 && cat " TMP "out.jsonl",
        "for i in 1 2 3; do " SCORE MODEL TMP "lines.jsonl --shard $i/3 >" TMP "part$i || exit; "
        "done; paste -d '\\n' " TMP "part1 " TMP "part2 " TMP "part3 | grep ."};
    size_t n = 0;
    const char *at;
    write_lines(TMP "lines.jsonl", 60);
    CHECK(run("cat " FIXTURES "lines.jsonl >>" TMP "lines.jsonl") == 0);
    unlink(TMP "out.jsonl");
    SCOPED_TEXT first = prints(SCORE MODEL TMP "lines.jsonl");
    for (at = first; at && (at = strchr(at, '\n')) != NULL; at++)
        n++;
    CHECKF(n == 89, "%zu answers", n);
    for (size_t i = 0; first && i < sizeof ways / sizeof ways[0]; i++) {
        SCOPED_TEXT const again = prints(ways[i]);
        CHECKF(again && strcmp(first, again) == 0, "other bytes by %s", ways[i]);
    }
}

/* Somebody who waits for each answer before the next line gets it. */
TEST(answers_at_once)
{
    RUNS(
        "cd " TMP
        " && rm -f to from && mkfifo to from && { \"$BUILT/score\" \"$BUILT\"/tiny-stories.attn <to >from -q & } && exec 3>to 4<from && "
        "echo '{\"id\": 1, \"text\": \"Once upon\"}' >&3 && read -r line <&4 && "
        "echo \"$line\" && printf '{\"id\": 2, \"te' >&3 && sleep 0.1 && "
        "printf 'xt\": \"Once upon\"}\\n{\"id\"' >&3 && read -r line <&4 && echo \"$line\" && "
        "printf ': 3, \"task\": \"tokens\", \"text\": \"Once\"}' >&3 && exec 3>&- && "
        "read -r line <&4 && echo \"$line\" && wait");
    CHECKF(out && strstr(out, "{\"id\": 1, \"task\": \"score\"") == out &&
               strstr(out, "\n{\"id\": 2, \"task\": \"score\"") &&
               strstr(out, "\n{\"id\": 3, \"task\": \"tokens\""),
           "%s", out);
}

/* ---- mistakes ---- */

static const struct {
    const char *line, *answer;
} mistakes[] = {
    {"", "\"line\": 1, \"error\": \"the line is empty\""},
    {"  \t ", "\"line\": 2, \"error\": \"the line is empty\""},
    {"hello", "malformed JSON at line 3, column 1: a value was expected here"},
    {"{\"text\": \"Once\"", "malformed JSON at line 4, column 1: what opens here is never closed"},
    {"{\"text\": \"Once\"} {}", "column 18: something follows where the text should end"},
    {"[\"Once\"]", "expected an object, such as {\\\"text\\\": \\\"Once upon a time\\\"}"},
    {"{}", "nothing to do: give a \\\"text\\\", or its \\\"ids\\\""},
    {"{\"text\": 5}", "text: expected a string, not 5"},
    {"{\"text\": null}", "nothing to do: give a \\\"text\\\", or its \\\"ids\\\""},
    {"{\"text\": \"\"}", "the text is empty"},
    {"{\"text\": \"\", \"bos\": true}", "the text is empty"},
    {"{\"text\": \"\", \"task\": \"top-k\"}", "the text is empty"},
    {"{\"text\": \"a\", \"ids\": [1]}", "text and its ids are both given"},
    {"{\"text\": \"a\", \"context\": \"b\", \"context_ids\": [1]}", "context and its ids are both"},
    {"{\"text\": \"a\\ud800\"}", "half of a surrogate pair"},
    {"{\"text\": \"a\xff\"}", "bytes that are not UTF-8"},
    {"{\"text\": \"a\", \"text\": \"b\"}", "the key \\\"text\\\" appears twice"},
    {"{\"text\": \"a\", \"task\": \"scroe\"}",
     "task: expected score, generate, embed, logit-lens, top-k, tokens or classify, not \\\"scroe\\\""},
    {"{\"text\": \"a\", \"id\": 3, \"txet\": 1}",
     "{\"id\": 3, \"line\": 19, \"error\": \"there is no key \\\"txet\\\"; do you mean "
     "\\\"text\\\"?\""},
    {"{\"text\": \"a\", \"colour\": 1}", "no key \\\"colour\\\"; --help keys lists them"},
    {"{\"text\": \"a\", \"id\": [1]}", "id: expected a string or a number, not a list"},
    {"{\"text\": \"a\", \"max_tokens\": 3}", "max_tokens means nothing to the task score"},
    {"{\"text\": \"a\", \"bos\": 1}", "bos: expected true or false, not 1"},
    {"{\"text\": \"a\", \"k\": 0, \"task\": \"top-k\"}",
     "k: expected a whole number from 1 to 1000000"},
    {"{\"text\": \"a\", \"k\": 2.5, \"task\": \"top-k\"}", "k: expected a whole number from 1 to"},
    {"{\"text\": \"a\", \"k\": 2049, \"task\": \"top-k\"}",
     "k is 2049, more than the vocabulary's 2048"},
    {"{\"text\": \"a\", \"task\": \"generate\", \"top_p\": 2}",
     "top_p: expected a number from 0 to 1, not 2"},
    {"{\"text\": \"a\", \"task\": \"generate\", \"seed\": 1e3}",
     "seed: expected a whole number of 64 bits"},
    {"{\"text\": \"a\", \"task\": \"generate\", \"stop\": [\"a\", 3]}",
     "stop: expected strings that are not empty"},
    {"{\"text\": \"a\", \"task\": \"generate\", \"stop\": \"\"}",
     "stop: expected strings that are not empty"},
    {"{\"text\": \"a\", \"task\": \"generate\", \"stop\": 3}",
     "stop: expected a string or a list of strings"},
    {"{\"text\": \"a\", \"task\": \"embed\", \"pooling\": \"max\"}",
     "pooling: expected last or mean"},
    {"{\"text\": \"a\", \"task\": \"embed\", \"activation\": \"blocks.0.hook_resid_prr\"}",
     "no activation is called blocks.0.hook_resid_prr: did you mean blocks.0.hook_resid_pre?"},
    {"{\"text\": \"a\", \"task\": \"embed\", \"activation\": \"blocks.*.hook_resid_pre\"}",
     "is a pattern; give the name of one activation"},
    {"{\"text\": \"a\", \"task\": \"embed\", \"activation\": \"blocks.0.attn.hook_pattern\"}",
     "blocks.0.attn.hook_pattern does not have one row of numbers for each position"},
    {"{\"text\": \"a\", \"task\": \"embed\", \"activation\": \"blocks.0.attn.hook_z\"}",
     "does not have one row"},
    {"{\"ids\": [1, 2048]}", "ids[1] is 2048, which is not in the vocabulary of 2048"},
    {"{\"ids\": [-1]}", "ids[0] is -1, not a token id"},
    {"{\"ids\": [1, 2.5]}", "ids[1] is 2.5, not a token id"},
    {"{\"ids\": [\"a\"]}", "ids[0] is a, not a token id"},
    {"{\"ids\": [[1]]}", "ids[0] is a list, not a token id"},
    {"{\"ids\": \"1 2\"}", "ids: expected a list of token ids, not \\\"1 2\\\""},
    {"{\"ids\": []}", "the text is empty"},
    {"{\"text\": \"a\", \"task\": \"classify\"}", "classify: the model has no head"},
};
enum { N_MISTAKES = sizeof mistakes / sizeof mistakes[0] };

TEST(bad_lines)
{
    FILE *const file = fopen(TMP "bad.jsonl", "w");
    char *at, *line;
    size_t i;
    if (!CHECK(file != NULL))
        return;
    for (i = 0; i < N_MISTAKES; i++)
        fprintf(file, "%s\n", mistakes[i].line);
    fputs("{\"id\": \"after\", \"text\": \"Once upon\"}", file);
    fclose(file);
    if (!RUNS(SCORE MODEL TMP "bad.jsonl"))
        return;
    CHECKF(strstr(err, "45 lines, 44 errors") != NULL, "%s", err);
    for (i = 0, at = out; i < N_MISTAKES; i++) {
        if (!CHECK((line = next_line(&at)) != NULL))
            return;
        CHECKF(strstr(line, test_text("\"line\": %zu, \"error\": ", i + 1)) &&
                   strstr(line, mistakes[i].answer),
               "%s: %s, not %s", mistakes[i].line, line, mistakes[i].answer);
    }
    line = next_line(&at);
    CHECKF(line && strstr(line, "{\"id\": \"after\", \"task\": \"score\"") == line, "%s", line);
    EQUAL(*at, 0);
}

/* Answers with an error, then a text. */
static void too_long(const char *make)
{
    if (!RUNS("{ %s; echo '{\"text\": \"Once upon\"}'; } | " SCORE MODEL, make))
        return;
    char *at = out;
    char *first = next_line(&at);
    char *second = next_line(&at);
    CHECKF(first && strstr(first, "{\"line\": 1, \"error\": \"the ") == first, "%s: %s", make,
           first);
    CHECKF(second && strstr(second, "logprob") && *at == 0, "%s: %s", make, second);
}

TEST(long_lines)
{
    too_long("head -c 16777217 /dev/zero | tr '\\0' a; echo");
    too_long("head -c 40000000 /dev/zero | tr '\\0' ' '; echo");
    too_long("printf '{\"text\": \"'; head -c 3000 /dev/zero | tr '\\0' a; echo '\"}'");
    too_long("printf '{\"ids\": [1'; for i in $(seq 257); do printf ', 2'; done; echo ']}'");
    CHECKF(strstr(out, "the text has 258 tokens; expected at most 257") != NULL, "%s", out);
    /* the last line, without a newline; the longest that is read */
    CHECK(run("head -c 16777217 /dev/zero | tr '\\0' a | " SCORE MODEL) == 1);
    CHECKF(strstr(out, "the line is longer than 16777216 bytes") != NULL, "%s", out);
    char *first = prints("echo '{\"text\": \"Once upon\"}' | " SCORE MODEL);
    char *second =
        prints("{ echo '{\"text\": \"Once upon\"}'; head -c 16777190 /dev/zero | tr '\\0' ' '; } "
               "| tr '\\n' ' ' | " SCORE MODEL);
    CHECK(first && second && strcmp(first, second) == 0);
    free(first);
    free(second);
    CHECKF(run(SCORE MODEL "/dev/null") == 0 && out_size == 0, "%s", err);
    same("printf '\\357\\273\\277{\"text\": \"a\"}\\r\\n' | " SCORE MODEL,
         "echo '{\"text\": \"a\"}' | " SCORE MODEL);
}

/* pandas and datasets write 5.0 for 5 in a column with gaps, and null for what is not there. */
TEST(numbers_of_tables)
{
    same("echo '{\"id\": null, \"task\": \"generate\", \"text\": \"Once upon\", \"ids\": null, "
         "\"max_tokens\": 5.0, \"top_k\": 3.00, \"top_p\": null, \"temperature\": 1.0, \"seed\": "
         "7.0, \"stop\": null, \"bos\": null, \"ignore_eos\": true, \"k\": null, \"context\": "
         "null}' | " SCORE MODEL,
         "echo '{\"task\": \"generate\", \"text\": \"Once upon\", \"max_tokens\": 5, \"top_k\": 3, "
         "\"temperature\": 1, \"seed\": 7, \"ignore_eos\": true}' | " SCORE MODEL);
    same("echo '{\"context_ids\": [506.0, 511.0], \"ids\": [258.0, 433]}' | " SCORE MODEL,
         "echo '{\"context_ids\": [506, 511], \"ids\": [258, 433]}' | " SCORE MODEL);
}

/* The exit code tells a program that it gave the wrong file. */
/* A plain text is told at its first line, and read with --lines. */
TEST(plain_lines)
{
    refuses(1, "line 1 of standard input is \"Once upon\", where a JSON object such as",
            "printf 'Once upon\\na \\\"time\\\"\\n' | " SCORE MODEL);
    same(
        "printf '{\"text\": \"Once upon\"}\\n{\"text\": \"a \\\\\"time\\\\\"\"}\\n' | " SCORE MODEL,
        "printf 'Once upon\\na \"time\"\\n' | " SCORE MODEL "--lines");
}

/* Columns that score does not know: null counts as absent, others are an error or are carried. */
TEST(other_keys)
{
    CHECK(run("echo '{\"text\": \"Once\", \"txet\": null}' | " SCORE MODEL) == 0);
    refuses(1, "there is no key \"label\"",
            "echo '{\"text\": \"Once\", \"label\": 1}' | " SCORE MODEL "-q >/dev/null");
    CHECKF(run("echo '{\"id\": 4, \"text\": \"Once\", \"label\": [1.50, {\"a\\\"b\": null}, true], "
               "\"task\": \"tokens\", \"logprob\": \"x\\u0001\"}' | " SCORE MODEL "--carry") == 0 &&
               strstr(out,
                      "{\"id\": 4, \"given\": {\"label\": [1.50, {\"a\\\"b\": null}, true], "
                      "\"logprob\": \"x\\u0001\"}, \"task\": \"tokens\", \"ids\": [506]") == out,
           "%s%s", out, err);
}

TEST(nothing_answered)
{
    static const char *const cases[][2] = {
        {"printf '\\nOnce upon\\na time\\n'",
         "no line of standard input could be answered, of 3. The first error: the line is empty; "
         "each line has to be a JSON object: with --lines each line is a text"},
        {"echo '[{\"text\": \"a\"}]'", "expected an object, such as {\"text\": \"Once upon a "
                                       "time\"}; the file has a list"},
        {"printf '{\\n\"text\": \"a\"}\\n'", "never closed; an object has to be on one line"},
        {"printf '{\"txet\": \"a\"}\\n{}\\n'",
         "there is no key \"txet\"; do you mean \"text\"?\n"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECKF(run("%s | " SCORE MODEL "-q", cases[i][0]) == 1, "%s: %s", cases[i][0], err);
        CHECKF(strstr(err, cases[i][1]) && strchr(err, '\n') == err + err_size - 1, "%s: %s",
               cases[i][0], err);
        CHECKF(out && strstr(out, "\"error\"") != NULL, "%s", out);
    }
    CHECKF(run("printf '{}\\n{\"text\": \"Once upon\"}\\n' | " SCORE MODEL "-o -") == 0 &&
               occurrences(out, "\n") == 2,
           "%s", err);
}

/* --strict: an error in any line of the output is seen by the exit code, also in lines of earlier runs. */
TEST(strict)
{
    static const char *const lines[] = {"{\"text\": \"a b c\"}\n", "{}\n", "{\"txt\": 1}\n"};
    char text[200], command[300];
    for (size_t i = 0; i < 16; i++) { /* an error before, between, after answers */
        const int first = (int)i % 2, second = (int)i / 2 % 2, third = (int)i / 4 % 2;
        const int wrong = first + second + third, resumed = (int)i / 8;
        snprintf(text, sizeof text, "%s%s%s", lines[first], lines[2 * second], lines[third]);
        test_write(TMP "strict.jsonl", text, strlen(text));
        unlink(TMP "strict.out");
        snprintf(command, sizeof command, SCORE MODEL TMP "strict.jsonl -q -o " TMP "strict.out");
        CHECK(run("%s", command) == (wrong == 3));
        unlink(resumed ? TMP "none" : TMP "strict.out");
        CHECKF(run("%s --resume --strict", command) == (wrong > 0), "%s: %s", text, err);
        snprintf(text, sizeof text,
                 "--strict: %d lines have errors. The first of this run: ", wrong);
        CHECKF(wrong == 0 || wrong == 3 || strstr(err, text), "%d %s", wrong, err);
        CHECK(run("wc -l <" TMP "strict.out") == 0 && atoi(out) == 3);
    }
}

/* Who has too little memory learns which options need less; they do, and the answers are the same. */
TEST(short_memory)
{
    int refused = 0, code = 1;
    if (TEST_SANITIZED) {
        test_skip("a sanitizer needs more memory than any limit");
        return;
    }
    write_lines(TMP "lines.jsonl", 40);
    CHECK(run(SCORE MODEL TMP "lines.jsonl -q >" TMP "whole.jsonl") == 0);
    for (int kib = 8000; code != 0 && kib < 1000000; kib += 2000) {
        code = run("ulimit -v %d; " SCORE MODEL TMP "lines.jsonl -q -t 2 >" TMP "short.jsonl", kib);
        if (code != 1 || !strstr(err, "; --batch 1 and -t 1 need less"))
            continue;
        refused++;
        if (run("ulimit -v %d; " SCORE MODEL TMP "lines.jsonl -q -t 1 --batch 1 >" TMP
                "short.jsonl",
                kib) == 0)
            CHECK(test_same_file(TMP "short.jsonl", TMP "whole.jsonl"));
        else
            CHECKF(strstr(err, "memory") && !strstr(err, "need less"), "%s", err);
    }
    CHECKF(code == 0 && refused > 0, "exit code %d, %d times short: %s", code, refused, err);
}

/* A model without a tokenizer takes ids, and gives ids. */
TEST(no_tokenizer)
{
    RUNS("printf '%%s\\n' '{\"text\": \"a\"}' '{\"ids\": [1, 2, 3]}' "
         "'{\"ids\": [1, 2], \"task\": \"generate\", \"max_tokens\": 2, \"stop\": \"a\"}' "
         "'{\"ids\": [1, 2], \"task\": \"generate\", \"max_tokens\": 2}' | " SCORE TEST_BUILD
         "/from_scratch/plain.attn");
    CHECKF(strstr(out, "the model has no tokenizer: give ids") != NULL, "%s", out);
    CHECKF(strstr(out, "\"ids\": [1, 2, 3], \"logprobs\": [null, -") != NULL, "%s", out);
    CHECKF(strstr(out, "stop: the model has no tokenizer") != NULL, "%s", out);
    CHECKF(strstr(out, "{\"task\": \"generate\", \"ids\": [") != NULL, "%s", out);
}

TEST(usage)
{
    refuses(2, "no model given", SCORE);
    refuses(1, "No such file", SCORE MODEL "nowhere.jsonl");
    refuses(1, "give the name of a file", SCORE MODEL "tests");
    refuses(2, "too many arguments", SCORE MODEL "LICENSE README.md");
    refuses(2, "\"0/4\" is not one of N parts, such as 1/4", SCORE MODEL "LICENSE --shard 0/4");
    refuses(2, "\"5/4\" is not one of", SCORE MODEL "LICENSE --shard 5/4");
    refuses(2, "\"4\" is not one of", SCORE MODEL "LICENSE --shard 4");
    refuses(2, "\"1/4x\" is not one of", SCORE MODEL "LICENSE --shard 1/4x");
    refuses(2, "choose score, generate, embed", SCORE MODEL "LICENSE --task scores");
    refuses(2, "continues a file", SCORE MODEL "LICENSE --resume");
    refuses(2, "a device, where a file is needed", SCORE MODEL "LICENSE --resume -o /dev/null");
    refuses(2, "--output " TEST_BUILD "/tiny-stories.attn would overwrite",
            SCORE MODEL "LICENSE -o " MODEL);
    refuses(2, "--output LICENSE would overwrite LICENSE", SCORE MODEL "LICENSE -o LICENSE");
    refuses(1, "No such file", SCORE MODEL "LICENSE -o " TMP "no/such/directory");
    test_write(TMP "answered.jsonl", "{}\n", 3);
    refuses(1, "already has answers", SCORE MODEL FIXTURES "lines.jsonl -o " TMP "answered.jsonl");
}

/* ---- interruptions ---- */

TEST(lost_output)
{
    CHECK(run("{ " SCORE MODEL FIXTURES "lines.jsonl; echo $? >" TMP "code; } | head -n 1; "
              "grep -qx 141 " TMP "code") == 0);
    if (access("/dev/full", W_OK) != 0)
        return;
    refuses(1, "cannot write the output: No space left on device",
            SCORE MODEL FIXTURES "lines.jsonl >/dev/full");
    refuses(1, "cannot write /dev/full: No space left on device",
            SCORE MODEL FIXTURES "lines.jsonl -o /dev/full");
}

#define RESUME SCORE MODEL TMP "lines.jsonl -q --resume -o " TMP "out.jsonl "

/* Lines, their answers in one go, and no answers yet. */
static void begin_again(int n_lines)
{
    write_lines(TMP "lines.jsonl", n_lines);
    RUNS("cd " TMP " && rm -f out.jsonl whole.jsonl");
    RUNS(SCORE MODEL TMP "lines.jsonl -q -o " TMP "whole.jsonl --batch 9");
}

/* Killed at any moment, again and again, it ends with the same file. The time that it has grows, until
 * it is enough for a busy machine. */
TEST(resume_after_kill)
{
    double seconds = 0.03;
    int i, code = -1;
    begin_again(60);
    for (i = 0; i < 60 && code != 0; i++, seconds *= 1.15)
        code = run(RESUME "& pid=$!; (sleep %g; kill -9 $pid) 2>/dev/null & wait $pid", seconds);
    CHECKF(code == 0 && i > 1, "exit code %d after %d runs", code, i);
    CHECK(test_same_file(TMP "out.jsonl", TMP "whole.jsonl"));
    RUNS(RESUME); /* nothing is left to do */
    CHECK(test_same_file(TMP "out.jsonl", TMP "whole.jsonl"));
}

/* An output that ends anywhere: within the first line, at the end of a line, within one. */
TEST(resume_after_cut)
{
    begin_again(20);
    CHECKF(run("cd " TMP "; end=$(head -n 10 whole.jsonl | wc -c); cd - >&2; for n in 0 1 100 "
               "$((end - 1)) $end $((end + 1)); do head -c $n " TMP "whole.jsonl >" TMP
               "out.jsonl; " RESUME "|| exit; cmp " TMP "out.jsonl " TMP "whole.jsonl || exit; "
               "done") == 0,
           "%s%s", out, err);
    CHECK(run("head -c 3000 " TMP "whole.jsonl >" TMP "out.jsonl; cat " TMP
              "lines.jsonl | " SCORE MODEL "-q --resume -o " TMP "out.jsonl") == 0);
    CHECK(test_same_file(TMP "out.jsonl", TMP "whole.jsonl"));
}

/* It goes on only with what was made of the same lines. */
TEST(resume_refused)
{
    write_lines(TMP "lines.jsonl", 40);
    unlink(TMP "out.jsonl");
    RUNS(RESUME);
    refuses(1, "line 40 of " TMP "lines.jsonl has another answer in " TMP "out.jsonl",
            RESUME "--bos");
    CHECK(run("head -n 20 " TMP "lines.jsonl >" TMP "short.jsonl") == 0);
    refuses(1, TMP "out.jsonl has more lines than " TMP "short.jsonl",
            SCORE MODEL TMP "short.jsonl -q --resume -o " TMP "out.jsonl");
    CHECK(run("head -n 39 " TMP "lines.jsonl >" TMP "short.jsonl") == 0);
    refuses(1, "more lines than", SCORE MODEL TMP "short.jsonl -q --resume -o " TMP "out.jsonl");
}

/* As --help says, --resume compares only the last answer in the file. */
TEST(resume_after_a_change)
{
    CHECK(run(SCORE "--help") == 0 && strstr(out, "earlier ones are not") != NULL);
    write_lines(TMP "lines.jsonl", 8);
    unlink(TMP "out.jsonl");
    RUNS(RESUME "&& sed -i.old '8s/\"text\": \"/&Other /' " TMP "lines.jsonl");
    refuses(1, "line 8 of " TMP "lines.jsonl has another answer in " TMP "out.jsonl", RESUME);
    RUNS("cp " TMP "lines.jsonl.old " TMP "lines.jsonl; "
         "sed -i.old '2s/\"text\": \"/&Other /' " TMP "lines.jsonl; " RESUME);
}

/* What is no output of score stays as it is, and a finished one says that it is. */
TEST(resume_of_other_files)
{
    static const char *const notes[] = {"precious data without newline", "line one\nprecious tail",
                                        "{\"line\": 1, \"error\": \"of something else\"}\n",
                                        "{\"id\": 0, \"task\": \"score\", \"logprob\": -1"};
    size_t size;
    write_lines(TMP "lines.jsonl", 8);
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
        test_write(TMP "notes.txt", notes[i], strlen(notes[i]));
        refuses(1, "line 1 of " TMP "lines.jsonl has another answer in " TMP "notes.txt",
                SCORE MODEL TMP "lines.jsonl -q --resume -o " TMP "notes.txt");
        SCOPED_TEXT kept = (char *)test_read(TMP "notes.txt", &size);
        CHECKF(kept && strcmp(kept, notes[i]) == 0, "\"%s\" became \"%s\"", notes[i], kept);
    }
    unlink(TMP "out.jsonl");
    RUNS(RESUME);
    CHECKF(run(SCORE MODEL TMP "lines.jsonl --resume -o " TMP "out.jsonl") == 0 &&
               strcmp(err,
                      "score: nothing was left to do: " TMP "out.jsonl answers all 8 lines\n") == 0,
           "%s", err);
}

/* A second process does not write to the same file. */
TEST(one_process_a_file)
{
    size_t size;
    unlink(TMP "out.jsonl");
    RUNS("cd " TMP " && rm -f to && mkfifo to && { \"$BUILT/score\" \"$BUILT\"/tiny-stories.attn "
         "-q -o out.jsonl <to & } && exec 3>to && echo '{\"text\": \"a b\"}' >&3 && "
         "for i in $(seq 100); do test -s out.jsonl && break; sleep 0.1; done; "
         "for how in --resume ''; do echo '{\"text\": \"a b\"}' | \"$BUILT/score\" "
         "\"$BUILT\"/tiny-stories.attn -q -o out.jsonl $how && exit 9; done; "
         "echo '{\"text\": \"c d\"}' >&3 && exec 3>&- && wait");
    CHECKF(occurrences(err, "score: out.jsonl: another process writes its answers there\n") == 2,
           "%s", err);
    SCOPED_TEXT text = (char *)test_read(TMP "out.jsonl", &size);
    CHECKF(text && occurrences(text, "\n") == 2, "%s", text);
}

/* Ctrl-C leaves whole lines. */
TEST(interrupted)
{
    size_t size;
    unlink(TMP "out.jsonl");
    CHECK(run("yes '{\"text\": \"Once upon a time there was\"}' | " SCORE MODEL "-o " TMP
              "out.jsonl & for i in $(seq 600); do test -s " TMP "out.jsonl && break; sleep 0.1; "
              "done; " INTERRUPT "wait $run") == 130);
    CHECKF(strstr(err, " lines, 0 errors, ") != NULL, "%s", err);
    SCOPED_TEXT text = (char *)test_read(TMP "out.jsonl", &size);
    CHECKF(text && size > 2 && strcmp(text + size - 2, "}\n") == 0, "%s", text);
}
