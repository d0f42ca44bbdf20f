/* Questions to surprisal and score by a caller in the process, beside what the programs print. The numbers belong to the
 * suites of these programs. */
#include "tests/support/test.h"
#define PROGRAM "surprisal"
#define INPUT   "text"
#include "tools/score/asked.h"
#include "tools/surprisal/asked.h"
#include <math.h>
#include "tests/support/command.h"

#define TINY       TEST_BUILD "/tiny-stories.attn"
#define TEXTS_FILE "tests/fixtures/surprisal/texts.txt"
#define ITEMS      TEST_TMP "items.csv"
#define SUITE_FILE TEST_TMP "suite.json"
#define PAIRS_FILE TEST_TMP "pairs.csv"

enum { MOST_WORDS = 16 };

static const lens_asked *const *asked_programs(void)
{
    static const lens_asked *const programs[] = {&asked_surprisal, &asked_score, NULL};
    return programs;
}

static attn_ctx ctx;
static attn_model *model;

static int set_up(void)
{
    static const char items[] = "s,n,age\nThe old_man  the boats.,np vp dp dp,3\n"
                                "\"_A__b \"\"c\"\"\",x y,4\n";
    static const char pairs[] =
        "sentence_good,sentence_bad,field\nThe cat sat.,The cat sit.,a\nSame,Same,\n";
    static const char tests[] =
        "{\"meta\": {\"metric\": \"sum\"}, \"predictions\": [{\"formula\": \"(2;%a%) < (2;%b%)\"}],"
        "\"items\": [{\"conditions\": ["
        "{\"condition_name\": \"a\", \"regions\": [{\"region_number\": 1, \"content\": \"The cat\"},"
        "{\"region_number\": 2, \"content\": \"sat.\"}]},"
        "{\"condition_name\": \"b\", \"regions\": [{\"region_number\": 1, \"content\": \"The cat\"},"
        "{\"region_number\": 2, \"content\": \"sit.\"}]}]}]}";
    test_write(ITEMS, items, sizeof items - 1);
    test_write(PAIRS_FILE, pairs, sizeof pairs - 1);
    test_write(SUITE_FILE, tests, sizeof tests - 1);
    return OK(&ctx, attn_model_open(&ctx, &model, TINY, NULL));
}

static void tear_down(void)
{
    forget();
    attn_model_close(model);
    attn_ctx_free(&ctx);
}

SUITE_WITH(set_up, tear_down);

/* ---- asking ---- */

/* A command, and settings by name, each with its value. */
typedef const char *words[MOST_WORDS];

/* A question that was not asked yet; NULL after a message in *c. */
static lens_query *prepare(attn_ctx *c, const char *const *w, int face)
{
    lens_query *q = NULL;
    if (lens_query_new(c, &q, model, w[0], face, 0))
        return NULL;
    for (size_t i = 1; i + 1 < MOST_WORDS && w[i]; i += 2)
        if (lens_query_set(c, q, w[i], w[i + 1], SIZE_MAX)) {
            lens_query_free(q);
            return NULL;
        }
    return q;
}

/* Asks; frees the question and gives NULL after a message. */
static lens_query *asked_in(attn_ctx *c, lens_query *q)
{
    if (q && lens_query_run(c, q, NULL, NULL) == ATTN_OK)
        return q;
    lens_query_free(q);
    return NULL;
}

static lens_query *ask(lens_query *q)
{
    lens_query *const answered = asked_in(&ctx, q);
    CHECKF(answered != NULL, "%s", ctx.message);
    ctx.status = ATTN_OK;
    return answered;
}

/* Gives texts, with `|` between them, to a setting, or as a column of a table. */
static void give(lens_query *q, int is_input, const char *name, const char *texts)
{
    char bytes[512];
    uint64_t ends[32];
    size_t n = 0, used = 0;
    for (const char *at = texts; at; at = *at ? at + 1 : NULL) {
        const size_t size = strcspn(at, "|");
        memcpy(bytes + used, at, size);
        ends[n++] = used += size;
        at += size;
    }
    OK(&ctx, (is_input ? lens_query_input : lens_query_texts)(&ctx, q, name, bytes, ends, n));
}

/* The form of the answer is what a program prints. */
static void check_form(lens_query *q, const char *form, const char *command)
{
    const char *bytes;
    size_t size;
    if (q && OK(&ctx, lens_query_form(&ctx, q, form, &bytes, &size)) &&
        CHECKF(run("%s", command) == 0, "%s: %s", command, err))
        CHECKF(size == out_size && memcmp(bytes, out, size) == 0,
               "%s prints \"%.200s\", but a caller gets \"%.200s\"", command, out, bytes);
}

/* Column `name` of the first table. */
static lens_values column(lens_query *q, const char *name)
{
    lens_values v = ATTN_ZERO;
    for (size_t i = 0; q && lens_query_column(&ctx, &v, q, 0, i); i++)
        if (strcmp(v.name, name) == 0)
            return v;
    test_fail(__FILE__, __LINE__, "there is no column %s", name);
    memset(&v, 0, sizeof v);
    return v;
}

/* Is text `row` of a column this one? */
static int is_bytes(const lens_values *v, size_t row, const char *text, size_t size)
{
    const uint64_t begin = row && v->ends ? v->ends[row - 1] : 0;
    return row < v->n && !v->is_missing[row] && v->ends[row] - begin == size &&
           memcmp(v->bytes + begin, text, size) == 0;
}

static int is_text(const lens_values *v, size_t row, const char *text)
{
    return is_bytes(v, row, text, strlen(text));
}

/* --help columns lists the columns of the first table, where N stands for a number. */
static void check_listed(lens_query *q, const char *const (*list)[2])
{
    lens_values v;
    for (size_t i = 0; lens_query_column(&ctx, &v, q, 0, i); i++) {
        int n = 0;
        const char *const name = test_text("%.*s", (int)strcspn(v.name, "0123456789"), v.name);
        for (size_t k = 0; list[k][0]; k++)
            for (const char *at = list[k][1]; (at = strstr(at, name)) != NULL; at++)
                n += strchr(" [", at[-1]) != NULL;
        CHECKF(n > 0, "--help columns has no %s", v.name);
    }
}

/* ---- rows ---- */

static const words questions[] = {
    {"surprisal", "file", TEXTS_FILE},
    {"surprisal", "file", TEXTS_FILE, "by", "token", "rank", "1"},
    {"surprisal", "file", TEXTS_FILE, "top", "2", "no-bos", "1", "unit", "nats"},
    {"surprisal", "file", TEXTS_FILE, "layers", "0,2", "spillover", "1"},
    {"surprisal", "file", TEXTS_FILE, "renyi", "0.5", "entropy-reduction", "1"},
    {"surprisal", "file", TEXTS_FILE, "punctuation", "apart", "continue", "1", "stride", "100"},
    {"surprisal", "file", ITEMS, "column", "s", "region-names", "n", "regions", "_", "by",
     "region"},
    {"surprisal", "file", ITEMS, "column", "s", "regions", "_", "by", "token"},
    {"surprisal", "file", TEXTS_FILE, "regions", "e"},
    {"suite", "file", SUITE_FILE},
    {"suite", "file", SUITE_FILE, "by", "region", "corrected", "1"},
    {"suite", "file", PAIRS_FILE},
    {"suite", "file", PAIRS_FILE, "by", "region", "pair", "sentence_bad,sentence_good"}};
enum { N_QUESTIONS = sizeof questions / sizeof questions[0] };

/* The command line of a question. */
static const char *line_of(const char *const *w, const char *more)
{
    static char line[1024];
    int n = snprintf(line, sizeof line, TEST_BUILD "/surprisal " TINY " -q %s%s", more,
                     strcmp(w[0], "suite") == 0 ? "--suite " : "");
    for (size_t i = 1; w[i]; i += 2) {
        const int is_file = strcmp(w[i], "file") == 0,
                  is_flag = strcmp(w[i + 1], "1") == 0 && strcmp(w[i], "spillover") != 0;
        n += snprintf(line + n, sizeof line - (size_t)n, " %s%s %s", is_file ? "" : "--",
                      is_file ? "" : w[i], is_flag ? "" : w[i + 1]);
    }
    return line;
}

TEST(the_rows_of_the_program)
{
    for (int n = 0; n < N_QUESTIONS; n++) {
        const int is_predictions = n == 9; /* whose lines of JSON say more */
        lens_query *const q = ask(prepare(&ctx, questions[n], LENS_FACE_C));
        check_form(q, "csv", line_of(questions[n], ""));
        if (q && !strstr(questions[n][2], "items")) /* which has columns of its own */
            check_listed(q, surprisal_columns);
        if (!is_predictions)
            check_form(q, "lines", line_of(questions[n], "--json "));
        lens_query_free(q);
    }
}

/* Texts that are given at once, one by one or in a file have the same rows. */
TEST(texts)
{
    static const words as_file = {"surprisal", "file", TEST_TMP "two.txt"};
    static const words one_by_one = {"surprisal", "texts", "Once upon a time", "texts", "The end."};
    lens_query *q = prepare(&ctx, (words){"surprisal"}, LENS_FACE_C);
    test_write(TEST_TMP "two.txt", "Once upon a time\nThe end.", 25);
    give(q, 0, "texts", "Once upon a time|The end.");
    check_form(q = ask(q), "csv", line_of(as_file, ""));
    lens_query_free(q);
    check_form(q = ask(prepare(&ctx, one_by_one, LENS_FACE_C)), "csv", line_of(as_file, ""));
    lens_query_free(q);
    q = prepare(&ctx, (words){"surprisal"}, LENS_FACE_C);
    OK(&ctx, lens_query_texts(&ctx, q, "texts", "", NULL, 0));
    lens_query_free(q);
    q = prepare(&ctx, (words){"surprisal"}, LENS_FACE_C);
    OK(&ctx, lens_query_texts(&ctx, q, "texts", "", (uint64_t[]){0}, 1));
    q = ask(q); /* no words, and so no rows */
    EQUAL(column(q, "surprisal").n, 0);
    lens_query_free(q);
}

/* A caller's table: columns without texts are carried by the caller, by the numbers of its rows. */
TEST(carried_columns)
{
    static const words w = {"surprisal", "column", "s", "regions", "_", "region_names", "n"};
    lens_query *q = prepare(&ctx, w, LENS_FACE_C);
    give(q, 1, "s", "The old_man  the boats.|_A__b \"c\"");
    give(q, 1, "n", "np vp dp dp|x y");
    give(q, 1, "age", "3|4");
    check_form(q = ask(q), "csv",
               line_of((words){"surprisal", "file", ITEMS, "column", "s", "regions", "_",
                               "region-names", "n"},
                       ""));
    lens_query_free(q);
    q = prepare(&ctx, (words){"surprisal", "column", "s"}, LENS_FACE_C);
    OK(&ctx, lens_query_input(&ctx, q, "text", NULL, NULL, 2));
    give(q, 1, "s", "The cat|Tom ran on");
    OK(&ctx, lens_query_input(&ctx, q, "age", NULL, NULL, 2));
    if ((q = ask(q)) != NULL) {
        const lens_values text = column(q, "text"), age = column(q, "age"),
                          other = column(q, "input_text");
        EQUAL(age.kind, LENS_CARRIED);
        EQUAL(age.source, 2);
        EQUAL(other.source, 0);
        for (size_t row = 0; EQUAL(age.n, 5) && row < 5; row++)
            CHECK(age.numbers[row] == text.numbers[row] && text.numbers[row] == (row < 2 ? 1 : 2));
        check_form(q, "csv",
                   "printf 'text,s,age\\nNA,The cat,NA\\nNA,Tom ran on,NA\\n' >" TEST_TMP
                   "na.csv; " TEST_BUILD "/surprisal " TINY " -q -c s " TEST_TMP "na.csv");
    }
    lens_query_free(q);
}

/* What is not known is missing: NaN, or no text. */
TEST(missing_values)
{
    lens_query *const q = ask(prepare(&ctx,
                                      (words){"surprisal", "texts", "The cat", "bos", "false",
                                              "top", "1", "rank", "1", "spillover", "1"},
                                      LENS_FACE_PYTHON));
    const lens_values surprisal = column(q, "surprisal"), top = column(q, "top1"),
                      before = column(q, "prev1_surprisal"), rank = column(q, "rank"),
                      word = column(q, "word");
    if (!EQUAL(surprisal.n, 2))
        return;
    CHECK(isnan(surprisal.numbers[0]) && surprisal.numbers[1] > 0);
    CHECK(isnan(before.numbers[0]) && isnan(rank.numbers[0]) && rank.numbers[1] >= 0);
    CHECK(top.is_missing[0] && !top.is_missing[1] && is_text(&word, 1, "cat"));
    CHECK(surprisal.kind == LENS_NUMBERS && rank.kind == LENS_WHOLES && word.kind == LENS_TEXTS);
    CHECK(surprisal.numbers[1] == rint(surprisal.numbers[1] * 1e6) / 1e6);
    lens_query_free(q);
}

/* Two columns identify a row, but for tokens, of which a word may have one twice. */
TEST(keys_and_notes)
{
    lens_query *q = prepare(&ctx, (words){"surprisal"}, LENS_FACE_C);
    lens_table t;
    give(q, 0, "texts", "The  cat||Tom");
    q = ask(q);
    CHECK(q && lens_query_table(&t, q, 0) && strcmp(t.name, "rows") == 0 && t.n_keys == 2);
    CHECK(!lens_query_table(&t, q, 1));
    CHECKF(strcmp(lens_query_note(q, 0), "1 of 3 texts have no words, and so no rows") == 0, "%s",
           lens_query_note(q, 0));
    CHECK(strncmp(lens_query_note(q, 1), "1 of 3 texts have tabs", 22) == 0 &&
          !lens_query_note(q, 2));
    lens_query_free(q);
    q = ask(prepare(&ctx, (words){"surprisal", "texts", "a", "by", "token"}, LENS_FACE_C));
    CHECK(q && lens_query_table(&t, q, 0) && t.n_keys == 0);
    lens_query_free(q);
}

/* The vectors are those of the program's file, and the table beside them is the same as without. */
TEST(vectors)
{
    static const char *const file = TEST_TMP "vectors.safetensors";
    lens_query *const q = ask(prepare(&ctx,
                                      (words){"surprisal", "file", TEXTS_FILE, "vectors",
                                              "blocks.1.hook_resid_post", "pooling", "last"},
                                      LENS_FACE_C));
    attn_tensor x = ATTN_ZERO;
    lens_table t;
    size_t size = 0;
    check_form(q, "csv", line_of(questions[0], ""));
    if (!q || !CHECK(lens_query_table(&t, q, 1) && t.is_dense && strcmp(t.name, "vectors") == 0 &&
                     lens_query_tensor(&x, q, 1, 2)))
        return;
    EQUAL(x.shape[0], column(q, "text").n);
    EQUAL(x.shape[1], 192);
    EQUAL(run("rm -f %s; " TEST_BUILD "/surprisal " TINY " -q " TEXTS_FILE
              " --vectors blocks.1.hook_resid_post --pooling last --vectors-file %s",
              file, file),
          0);
    unsigned char *const bytes = test_read(file, &size);
    const size_t n = x.shape[0] * x.shape[1] * sizeof(float);
    CHECK(bytes && size > n && memcmp(bytes + size - n, x.data, n) == 0);
    free(bytes);
    lens_query_free(q);
}

/* ---- refusals ---- */

TEST(refusals)
{
    static const struct {
        words w;
        const char *message;
    } cases[] = {
        {{"surprisal"}, "surprisal needs texts, a table with a column of them, or a file"},
        {{"surprisal", "texts", "a", "file", ITEMS}, "surprisal needs texts, a table"},
        {{"suite"}, "suite needs a file"},
        {{"suite", "rank", "1"}, "rank means nothing to suite"},
        {{"surprisal", "corrected", "1"}, "corrected means nothing to surprisal"},
        {{"surprisal", "output", "x.csv"}, "output means nothing to surprisal"},
        {{"surprisal", "by", "line"}, "by: there is no \"line\"; choose word, token or region"},
        {{"surprisal", "stride", "0"}, "stride: \"0\" is not a whole number from 1 to 1000000000"},
        {{"surprisal", "renyi", "0"}, "renyi: \"0\" is not a number from 0.01 to 100"},
        {{"surprisal", "renyi", "1.001"}, "renyi is 1.001; expected 1, which is the entropy"},
        {{"surprisal", "texts", "a", "stride", "1000"}, "stride is 1000, but the model's context"},
        {{"surprisal", "texts", "a", "by", "region"},
         "by region needs regions MARK or region_names COLUMN"},
        {{"surprisal", "texts", "a", "column", "s"}, "column: there is no table, but only texts"},
        {{"surprisal", "texts", "a", "region_names", "s"}, "region_names is for a table: give"},
        {{"surprisal", "texts", "a", "layers", "9"},
         "layers: the model has no layer 9; it has 0 to"},
        {{"surprisal", "texts", "a", "pooling", "last"}, "pooling is for vectors"},
        {{"surprisal", "texts", "a", "vectors", "b"}, "vectors: "},
        {{"surprisal", "texts", "a", "tuned", "nowhere"}, "tuned is for layers"},
        {{"surprisal", "texts", "caf\xe9"}, "text 1: the byte e9 is not UTF-8; read its file in"},
        {{"surprisal", "file", TEST_TMP "nowhere"}, "cannot open"},
        {{"surprisal", "file", "-"}, "file: a caller's standard input is not read"},
        {{"surprisal", "file", ITEMS}, ITEMS " is a table: name the column of texts with column;"},
        {{"suite", "file", PAIRS_FILE, "pair", "a,b"}, PAIRS_FILE " has no column \"a\""},
        {{"suite", "file", PAIRS_FILE, "by", "token"}, "by token means nothing to suite"},
        {{"score"}, "score needs requests"},
        {{"score", "requests", "{\"text\": \"\"}\n[1]"},
         "no request could be answered, of 2. The first error: the text is empty"},
        {{"score", "requests", "Once"}, "line 1 of the requests is \"Once\", where a JSON object"},
        {{"score", "requests", "{\"task\": \"generate\", \"text\": \"a\"}"},
         "generation is no table"},
        {{"score", "task", "sing"}, "task: there is no \"sing\"; choose score, generate, embed"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ctx.message[0] = 0;
        CHECKF(!asked_in(&ctx, prepare(&ctx, cases[i].w, LENS_FACE_PYTHON)) &&
                   strstr(ctx.message, cases[i].message),
               "%s: \"%s\", not \"%s\"", cases[i].w[0], ctx.message, cases[i].message);
        ctx.status = ATTN_OK;
    }
}

TEST(refused_tables)
{
    static const struct {
        const char *column, *message;
    } cases[] = {{"q", "column: the table has no column \"q\"; its columns are s, age"},
                 {"age", "column: the column \"age\" has no texts"}};
    lens_query *q;
    for (size_t i = 0; i < 2; i++) {
        q = prepare(&ctx, (words){"surprisal", "column", cases[i].column}, LENS_FACE_R);
        give(q, 1, "s", "The cat|Tom ran");
        OK(&ctx, lens_query_input(&ctx, q, "age", NULL, NULL, 2));
        CHECKF(!asked_in(&ctx, q) && strcmp(ctx.message, cases[i].message) == 0, "%s", ctx.message);
        ctx.status = ATTN_OK;
    }
    q = prepare(&ctx, (words){"surprisal", "column", "s"}, LENS_FACE_C);
    give(q, 1, "s", "The cat|Tom ran");
    FAILS(ARGUMENT, "the column \"age\" has 3 rows, but \"s\" has 2",
          lens_query_input(&ctx, q, "age", NULL, NULL, 3));
    lens_query_free(q);
    ctx.status = ATTN_OK;
    q = prepare(&ctx, (words){"score"}, LENS_FACE_C);
    FAILS(ARGUMENT, "score reads no table", lens_query_input(&ctx, q, "age", NULL, NULL, 3));
    lens_query_free(q);
    ctx.status = ATTN_OK;
}

/* ---- steps ---- */

static int stop_at(double done, void *left)
{
    (void)done;
    return --*(int *)left < 0;
}

/* A stop ends the run within a pass, by the flag or the function; the rows of the steps before it stay. */
TEST(stops_and_steps)
{
    static const volatile int flag = 1;
    static const words w = {"surprisal", "file", "tests/fixtures/surprisal/long.txt"},
                       lines = {"score", "requests",
                                "{\"text\": \"Once\"}\n{\"text\": \"upon a\"}"};
    int left = 3;
    double done = 0;
    size_t n = 0, steps = 0;
    lens_query *q = prepare(&ctx, w, LENS_FACE_C);
    CHECK(lens_query_run(&ctx, q, stop_at, &left) == ATTN_STOPPED && left == -1);
    lens_query_free(q);
    ctx.status = ATTN_OK;
    for (size_t i = 0; i < 2; i++) {
        q = prepare(&ctx, i ? lines : w, LENS_FACE_C);
        OK(&ctx, lens_query_step(&ctx, q, &done));
        CHECK(done == 0);
        ctx.stop_flag = &flag;
        CHECK(lens_query_step(&ctx, q, &done) == ATTN_STOPPED);
        ctx.stop_flag = NULL;
        ctx.status = ATTN_OK;
        lens_query_free(q);
    }
    q = prepare(&ctx, w, LENS_FACE_C);
    for (done = 0; done < 1 && OK(&ctx, lens_query_step(&ctx, q, &done)); steps++) {
        CHECK(column(q, "text").n >= n);
        n = column(q, "text").n;
    }
    CHECKF(steps > 5 && n > 100, "%d steps, %d rows", (int)steps, (int)n);
    FAILS(ARGUMENT, "a question is asked once", lens_query_step(&ctx, q, &done));
    ctx.status = ATTN_OK;
    lens_query_free(q);
}

/* What threads find. */
typedef struct asked_in_threads {
    char *want[3];
    int n_wrong;
} asked_in_threads;

static const words in_threads[3] = {
    {"surprisal", "texts", "The cat sat on the mat.", "layers", "all"},
    {"score", "requests", "{\"text\": \"The cat\"}"},
    {"surprisal", "texts", "a", "layers", "x"}};

static char *answer_of(attn_ctx *c, const char *const *w)
{
    const char *bytes;
    size_t size;
    char *text = NULL;
    lens_query *const q = asked_in(c, prepare(c, w, LENS_FACE_C));
    if (!q || lens_query_form(c, q, "json", &bytes, &size)) {
        bytes = c->message;
        size = strlen(bytes);
    }
    if ((text = (char *)calloc(1, size + 1)) != NULL)
        memcpy(text, bytes, size);
    lens_query_free(q);
    return text;
}

static void ask_in_thread(size_t task, void *of)
{
    asked_in_threads *const a = (asked_in_threads *)of;
    SCOPED_CTX own = ATTN_ZERO;
    own.n_threads = 1;
    SCOPED_TEXT const got = answer_of(&own, in_threads[task % 3]);
    if (strcmp(got, a->want[task % 3]) != 0)
        a->n_wrong++;
}

TEST(six_threads_ask_at_once)
{
    asked_in_threads a = {{NULL}, 0};
    attn_ctx six = {.n_threads = 6};
    for (int i = 0; i < 3; i++)
        a.want[i] = answer_of(&ctx, in_threads[i]);
    attn_parallel_for(&six, 60, ask_in_thread, &a);
    EQUAL(a.n_wrong, 0);
    for (int i = 0; i < 3; i++)
        free(a.want[i]);
    attn_ctx_free(&six);
    ctx.status = ATTN_OK;
}

/* ---- score ---- */

/* The row has what the program prints as JSON in `line`. */
static void check_scores(lens_query *q, size_t row, const char *line)
{
    SCOPED_TEXT const text = strdup(line);
    json_value *root = NULL;
    lens_values v;
    if (!text || !OK(&ctx, json_parse(&ctx, "the line", text, strlen(text), &root)))
        return;
    for (size_t i = 1; lens_query_column(&ctx, &v, q, 0, i); i++) {
        const json_value *const want = json_get(root, v.name);
        double n = 0;
        if (v.numbers ? isnan(v.numbers[row]) : v.is_missing[row]) {
            CHECKF(!want, "no %s, but %s", v.name, line);
        } else if (CHECKF(want != NULL, "%s, but %s", v.name, line) && v.kind == LENS_NUMBERS) {
            CHECK(json_double(want, &n));
            EQUAL(v.numbers[row], n);
        } else if (want && v.kind == LENS_FLAGS) {
            EQUAL(v.numbers[row], want->kind == JSON_TRUE);
        } else if (want && v.kind == LENS_TEXTS) {
            CHECKF(is_bytes(&v, row, want->text, want->size), "another %s than in %s", v.name,
                   line);
        } else if (want) {
            const uint64_t begin = row ? v.ends[row - 1] : 0;
            const char *const part =
                test_text("\"%s\": %.*s", v.name, (int)(v.ends[row] - begin), v.bytes + begin);
            CHECKF(strstr(line, part) != NULL, "%s, but %s", part, line);
        }
    }
    free(root);
}

TEST(scores)
{
    static const char lines[] =
        "{\"text\": \"Once upon a time\"}\n"
        "{\"id\": 5, \"context\": \"Once upon a\", \"text\": \" time\", \"more\": [1, null]}\n"
        "{\"text\": \"\"}\n"
        "{\"id\": \"x\", \"task\": \"top-k\", \"text\": \"Once upon\", \"k\": 2}\n"
        "{\"task\": \"logit-lens\", \"text\": \"Once\", \"k\": 1}\n"
        "{\"task\": \"embed\", \"text\": \"Once\"}\n"
        "{\"task\": \"tokens\", \"text\": \"Once\"}\n";
    lens_query *const q =
        ask(prepare(&ctx, (words){"score", "requests", lines, "carry", "true"}, LENS_FACE_C));
    lens_table t;
    if (!q || !CHECK(lens_query_table(&t, q, 0)) || !EQUAL(t.n_rows, 7))
        return;
    CHECK(strcmp(t.name, "scores") == 0 && t.n_keys == 1 && column(q, "line").numbers[6] == 7);
    CHECK(column(q, "greedy").kind == LENS_FLAGS && column(q, "ids").kind == LENS_LISTS);
    check_listed(q, score_columns);
    test_write(TEST_TMP "lines", lines, sizeof lines - 1);
    EQUAL(run(TEST_BUILD "/score " TINY " -q --carry " TEST_TMP "lines"), 0);
    char *at = out;
    for (size_t row = 0; row < t.n_rows && at; row++) {
        char *const end = strchr(at, '\n');
        *end = 0;
        check_scores(q, row, at);
        at = end + 1;
    }
    lens_query_free(q);
}

/* Many texts at once, one of them a request that no table answers. */
TEST(scores_of_texts)
{
    lens_query *q = prepare(&ctx, (words){"score"}, LENS_FACE_C);
    give(q, 0, "requests", "{\"text\": \"Once\"}|{\"task\": \"generate\", \"text\": \"Once\"}|[1]");
    if (!(q = ask(q)))
        return;
    const lens_values error = column(q, "error"), logprob = column(q, "logprob");
    CHECK(error.n == 3 && error.is_missing[0] && !isnan(logprob.numbers[0]));
    CHECK(is_text(&error, 1, "generation is no table of numbers: the program score answers it"));
    CHECK(isnan(logprob.numbers[2]) && !error.is_missing[2]);
    lens_query_free(q);
    q = prepare(&ctx, (words){"score", "lines", "1", "task", "tokens"}, LENS_FACE_C);
    give(q, 0, "requests", "Once|A \"b\"");
    q = ask(q);
    EQUAL(column(q, "ids").n, 2);
    lens_query_free(q);
}
