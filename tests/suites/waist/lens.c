/* Questions to lens by a caller in the process: what holds for every command, by the tables of settings and of answers
 * alone. The numbers belong to the suites `headers` and `lens`. */
#include "tests/support/test.h"
#include "tests/support/printed_json.h"
#define PROGRAM "lens"
#define INPUT   "text"
#include "tools/waist/programs.h"
#include <math.h>
#include <unistd.h>
#include "tests/support/comma.h"

#define TINY      TEST_BUILD "/tiny-stories.attn"
#define CLEAN     "Tom was a boy. He"
#define CORRUPTED "Tom was a girl. He"
#define STORY     "Tom and Lily saw a cat. Tom and Lily ran"
#define PAIRS     TEST_TMP "pairs.jsonl"
#define SHORT     TEST_TMP "short.jsonl"
#define SAE_OF    "examples/sae"
#define GRAPH_OF  "examples/sae/transcoders"
#define GROUPS    TEST_TMP "groups.json"
#define SCORES    TEST_TMP "scores.json"

enum { MOST_WORDS = 14 };

/* A command, and settings by name. Every command is here, and those with answers of several forms in all of them. */
static const char *const questions[][MOST_WORDS] = {
    {"tokens", "prompt", STORY},
    {"loss", "prompt", STORY, "edit", "zero blocks.1.attn.hook_z head 2"},
    {"logit-lens", "prompt", CLEAN, "top", "2"},
    {"logit-lens", "ids", "1 2 3", "saved_scale", "1", "top", "0"},
    {"patterns", "prompt", CLEAN},
    {"patterns", "prompt", CLEAN, "layer", "1", "head", "2"},
    {"patch", "prompt", CLEAN, "corrupted", CORRUPTED},
    {"patch", "prompt", CLEAN, "corrupted", CORRUPTED, "names", "attn.hook_z", "names",
     "hook_resid_pre", "names", "attn.hook_q"},
    {"patch", "prompt", CLEAN, "corrupted", CORRUPTED, "by", "position-heads"},
    {"patch", "prompt", CLEAN, "corrupted", CORRUPTED, "by", "weights"},
    {"patch", "prompt", CLEAN, "corrupted", CORRUPTED, "by", "sources"},
    {"patch", "prompt", CLEAN, "corrupted", CORRUPTED, "by", "source-heads"},
    {"patch", "pairs", PAIRS, "by", "heads", "ci", "1", "each", "1"},
    {"path", "prompt", CLEAN, "corrupted", CORRUPTED},
    {"path", "pairs", PAIRS, "ci", "1", "each", "1", "to", "blocks.2.hook_q_input.1"},
    {"edges", "prompt", CLEAN, "corrupted", CORRUPTED},
    {"edges", "pairs", PAIRS, "ci", "1", "each", "1"},
    {"edges", "prompt", CLEAN, "corrupted", CORRUPTED, "exact", "1", "of", "nodes"},
    {"edges", "prompt", "The cat", "corrupted", "The dog", "curve", "1"},
    {"edges", "pairs", PAIRS, "shapley", "m0,a1.h2,m2", "ci", "1", "each", "1"},
    {"edges", "prompt", "The cat", "corrupted", "The dog", "interactions", "1"},
    {"edges", "prompt", "The cat", "corrupted", "The dog", "exact", "1", "prune", "0.5"},
    {"attribute", "prompt", CLEAN},
    {"decompose", "prompt", CLEAN},
    {"decompose", "prompt", CLEAN, "kind", "neurons", "token", " was"},
    {"ablate", "prompt", CLEAN},
    {"ablate", "pairs", PAIRS, "ci", "1", "each", "1"},
    {"heads", "prompt", STORY},
    {"heads"},
    {"heads", "prompt", STORY, "measure", "abs"},
    {"circuits"},
    {"circuits", "layer", "1", "head", "2"},
    {"qk", "prompt", CLEAN, "layer", "1", "head", "2"},
    {"sae", "directory", SAE_OF, "prompt", CLEAN, "bos", "1"},
    {"sae", "directory", SAE_OF, "prompt", CLEAN, "bos", "1", "change", "12=8"},
    {"graph", "prompt", CLEAN, "transcoders", GRAPH_OF},
    {"graph", "prompt", "Once upon", "transcoders", GRAPH_OF, "check", "1", "group", GROUPS},
    {"steer", "prompt", CLEAN, "towards", "so happy", "away", "so sad"},
    {"gradients", "prompt", CLEAN, "names", "blocks.1.*"},
    {"pairs", "task", "pronouns", "count", "5"},
    {"process", "output", TEST_TMP "processed.attn"},
    {"record", "prompt", CLEAN, "names", "*"},
    /* Their answers have columns that no answer above has. */
    {"edges", "pairs", SHORT, "curve", "1", "circuit", SCORES, "ci", "1", "each", "1"},
    {"edges", "pairs", SHORT, "interactions", "1", "ci", "1", "each", "1"},
    {"attribute", "prompt", CLEAN, "token", " was", "against", " had"},
    {"decompose", "prompt", CLEAN, "token", " was", "against", " had"},
    {"ablate", "prompt", CLEAN, "token", " was", "against", " had"}};

enum { N_QUESTIONS = sizeof questions / sizeof questions[0] };

static attn_ctx ctx;
static attn_model *model;
static lens_query *answers[N_QUESTIONS]; /* see answered */

static int set_up(void)
{
    static const char pairs[] =
        "{\"clean\": \"Tom was a boy. He\", \"corrupted\": \"Tom was a girl. He\", \"token\": \" was\", "
        "\"against\": \" had\"}\n"
        "{\"clean\": \"Sam was a boy. He\", \"corrupted\": \"Sam was a girl. He\", \"token\": \" was\", "
        "\"against\": \" had\"}\n"
        "{\"clean\": \"Ben was a boy. He\", \"corrupted\": \"Ben was a girl. He\", \"token\": \" ran\", "
        "\"against\": \" had\"}\n";
    static const char short_pairs[] =
        "{\"clean\": \"The cat\", \"corrupted\": \"The dog\", \"token\": \" was\", \"against\": \" had\"}\n"
        "{\"clean\": \"A cat\", \"corrupted\": \"A dog\", \"token\": \" was\", \"against\": \" had\"}\n";
    test_write(PAIRS, pairs, sizeof pairs - 1);
    test_write(SHORT, short_pairs, sizeof short_pairs - 1);
    test_write(GROUPS, "{}", 2);
    run(TEST_BUILD "/lens " TINY " edges 'The cat' 'The dog' -q -o " SCORES);
    return OK(&ctx, attn_model_open(&ctx, &model, TINY, NULL));
}

static void tear_down(void)
{
    forget();
    for (int n = 0; n < N_QUESTIONS; n++)
        lens_query_free(answers[n]);
    attn_model_close(model);
    attn_ctx_free(&ctx);
}

SUITE_WITH(set_up, tear_down);

/* ---- asking ---- */

/* A question that has its settings, but was not asked yet; NULL after a message in *c. */
static lens_query *prepare(attn_ctx *c, const char *const *words, int face)
{
    lens_query *q = NULL;
    if (lens_query_new(c, &q, model, words[0], face, 0))
        return NULL;
    for (size_t i = 1; i + 1 < MOST_WORDS && words[i]; i += 2)
        if (lens_query_set(c, q, words[i], words[i + 1], SIZE_MAX)) {
            lens_query_free(q);
            return NULL;
        }
    return q;
}

static lens_query *ask_in(attn_ctx *c, const char *const *words)
{
    lens_query *const q = prepare(c, words, LENS_FACE_C);
    if (q && lens_query_run(c, q, NULL, NULL) == ATTN_OK)
        return q;
    lens_query_free(q);
    return NULL;
}

static lens_query *ask(const char *const *words)
{
    lens_query *const q = ask_in(&ctx, words);
    CHECKF(q != NULL, "%s: %s", words[0], ctx.message);
    ctx.status = ATTN_OK;
    return q;
}

/* Each question is asked once, and its answer is kept for all cases. */
static lens_query *answered(int n)
{
    if (!answers[n])
        answers[n] = ask(questions[n]);
    return answers[n];
}

/* Asks all questions with standard streams that nothing may touch. */
TEST(nothing_is_printed_or_read)
{
    const char *const path = test_tmp("printed");
    const int before[] = {dup(0), dup(1), dup(2)};
    size_t size = 0;
    fflush(NULL);
    close(0);
    if (CHECK(freopen(path, "wb", stdout) && freopen(path, "ab", stderr)))
        for (int n = 0; n < N_QUESTIONS; n++)
            answers[n] = ask_in(&ctx, questions[n]);
    fflush(NULL);
    for (int i = 0; i < 3; i++) {
        dup2(before[i], i);
        close(before[i]);
    }
    SCOPED_TEXT const printed = (char *)test_read(path, &size);
    CHECKF(size == 0, "printed: %.80s", printed);
}

/* Value `row` of a column as text; "\1" where it is missing. */
static const char *value_text(char *to, size_t room, const lens_values *v, size_t row)
{
    if (v->kind == LENS_TEXTS || v->kind == LENS_LISTS) {
        const uint64_t begin = row ? v->ends[row - 1] : 0;
        snprintf(to, room, "%s%.*s", v->is_missing[row] ? "\1" : "", (int)(v->ends[row] - begin),
                 v->bytes + begin);
    } else {
        snprintf(to, room, "%.17g", v->numbers[row]);
    }
    return to;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* ---- the answer ---- */

/* The keys of all rows of a table are different. */
static void check_keys(lens_query *q, size_t t, const lens_table *table, const char *command)
{
    char **const keys = (char **)calloc(table->n_rows + 1, sizeof *keys);
    char one[512];
    for (size_t row = 0; keys && row < table->n_rows; row++)
        keys[row] = (char *)calloc(1, 1);
    for (size_t i = 0; i < table->n_keys; i++) {
        lens_values v;
        if (!CHECK(lens_query_column(&ctx, &v, q, t, i)))
            break;
        for (size_t row = 0; row < table->n_rows; row++) {
            const size_t used = strlen(keys[row]);
            keys[row] = (char *)realloc(keys[row], used + sizeof one + 2);
            sprintf(keys[row] + used, "%s|", value_text(one, sizeof one, &v, row));
        }
    }
    qsort((void *)keys, table->n_rows, sizeof *keys, compare_texts);
    for (size_t row = 1; row < table->n_rows; row++)
        if (!CHECKF(strcmp(keys[row - 1], keys[row]) != 0,
                    "%s, table %s: two rows have the keys %s", command, table->name, keys[row]))
            break;
    for (size_t row = 0; row < table->n_rows; row++)
        free(keys[row]);
    free((void *)keys);
}

TEST(every_row_is_identified)
{
    for (int n = 0; n < N_QUESTIONS; n++) {
        lens_query *const q = answered(n);
        lens_table table, other;
        for (size_t t = 0; q && lens_query_table(&table, q, t); t++) {
            for (size_t u = 0; u < t && lens_query_table(&other, q, u); u++)
                CHECKF(strcmp(table.name, other.name) != 0, "%s has two tables %s", questions[n][0],
                       table.name);
            CHECKF(table.n_keys > 0 || table.n_rows == 1, "%s, table %s: no keys", questions[n][0],
                   table.name);
            if (!table.is_dense)
                check_keys(q, t, &table, questions[n][0]);
        }
        CHECKF(!q || lens_query_table(&table, q, 0), "%s answers without a table", questions[n][0]);
    }
}

/* ---- --help columns ---- */

/* A word of the list: a column of a table, or of any table of its command if it stands in brackets. */
typedef struct listed_column {
    const char *command;
    char table[24], name[32];
    int is_key, is_bracketed, n_seen;
} listed_column;

static listed_column listed[500];
static size_t n_listed;

static void list_columns(const char *command, const char *lines)
{
    char table[24] = "", word[64];
    int is_key = 1, is_bracketed = 0, size;
    for (; sscanf(lines, " %63s%n", word, &size) == 1; lines += size) {
        const size_t n = strcspn(word + (*word == '['), "]:");
        is_bracketed |= *word == '[';
        if (strchr(word, ':')) {
            snprintf(table, sizeof table, "%.*s", (int)n, word);
            is_key = 1;
        } else if (strcmp(word, "|") == 0) {
            is_key = 0;
        } else if (CHECK(n_listed < sizeof listed / sizeof listed[0])) {
            listed_column *const c = &listed[n_listed++];
            c->command = command;
            strcpy(c->table, table);
            snprintf(c->name, sizeof c->name, "%.*s", (int)n, word + (*word == '['));
            c->is_key = is_key;
            c->is_bracketed = is_bracketed;
        }
        is_bracketed &= !strchr(word, ']');
    }
}

/* Counts a column of an answer in the list, and of each line in brackets that has it. */
static void find_listed(const char *command, const char *table, const char *name, int is_key)
{
    int n = 0;
    for (size_t i = 0; i < n_listed; i++) {
        listed_column *const c = &listed[i];
        if (strcmp(c->command, command) != 0 || strcmp(c->name, name) != 0)
            continue;
        const int is_there = strcmp(c->table, table) == 0 || strcmp(c->table, "NAME") == 0;
        n += is_there && c->is_key == is_key;
        c->n_seen += is_there || c->is_bracketed;
    }
    CHECKF(n == 1, "lens %s --help columns does not have %s of %s, %s |", command, name, table,
           is_key ? "before" : "behind");
}

/* A table "NAME_each" has the keys of NAME behind that of the pair, and its own numbers. */
static void find_all_listed(const char *command, const lens_query *q)
{
    lens_table table;
    for (size_t t = 0; q && lens_query_table(&table, q, t); t++) {
        const char *const each = strstr(table.name, "_each");
        const char *const name =
            test_text("%.*s", (int)(strlen(table.name) - (each ? 5 : 0)), table.name);
        for (size_t i = each != NULL; i < (each ? table.n_keys : table.n_columns); i++)
            find_listed(command, name, q->answer->tables[t]->columns[i].name, i < table.n_keys);
    }
}

TEST(columns_are_those_of_the_help)
{
    n_listed = 0;
    for (size_t i = 0; lens_columns[i][0]; i++)
        list_columns(lens_columns[i][0], lens_columns[i][1]);
    for (int n = 0; n < N_QUESTIONS; n++)
        find_all_listed(questions[n][0], answered(n));
    for (size_t i = 0; i < n_listed; i++)
        CHECKF(listed[i].n_seen || strcmp(listed[i].table, "TABLE_each") == 0,
               "no answer has %s of %s, which lens %s --help columns lists", listed[i].name,
               listed[i].table, listed[i].command);
}

/* ---- JSON ---- */

enum { MOST_COLUMNS = 24 };

/* --help json has the settings of callers, and the same ranges and defaults. */
TEST(settings_are_those_of_the_help)
{
    const char *about, *command;
    if (!EQUAL(run(TEST_BUILD "/lens --help json"), 0))
        return;
    for (size_t i = 0; i < N_COMMANDS && (command = lens_query_command(i, &about)) != NULL; i++) {
        char text[400];
        snprintf(text, sizeof text, "{\"name\": \"%s\", \"about\": \"%s\"", command, about);
        const char *const at = strstr(out, text), *const end =
                                                      at ? strstr(at + 1, "{\"name\"") : NULL;
        lens_setting s;
        CHECKF(at != NULL, "lens --help json has no %s", text);
        for (size_t k = 0; at && lens_query_setting(&s, command, k); k++) {
            snprintf(text, sizeof text, "{\"option\": \"%s\", \"name\": \"%s\"", s.option, s.name);
            const char *const line = strstr(at, text);
            if (!CHECKF(line && (!end || line < end), "%s has no %s", command, text))
                continue;
            snprintf(text, sizeof text,
                     s.kind == CHOICE ? "\"default\": \"%s\"" : "\"default\": %s", s.usual);
            CHECKF(!*s.usual || (strstr(line, text) && strstr(line, text) < strchr(line, '\n')),
                   "--%s of %s has not %s", s.option, command, text);
        }
    }
}

/* A row of the JSON has the columns in their order, and their values. */
static void check_row(const json_value *row, const lens_values *columns, size_t n,
                      size_t number_of_row)
{
    const json_value *v = row ? row + 1 : NULL;
    char want[512], got[512];
    if (!row || !EQUAL(row->size, n))
        return;
    for (size_t i = 0; i < n; i++, v += v->span) {
        const lens_values *const c = &columns[i];
        CHECKF(strlen(c->name) == v->key_size && memcmp(c->name, v->key, v->key_size) == 0,
               "a member is %s, not %s", v->key, c->name);
        value_text(want, sizeof want, c, number_of_row);
        if (v->kind == JSON_NULL) {
            CHECKF(c->numbers ? !isfinite(c->numbers[number_of_row]) : want[0] == '\1',
                   "%s is null, not %s", c->name, want);
        } else if (v->kind == JSON_NUMBER) {
            snprintf(got, sizeof got, "%.9g", strtod(v->text, NULL));
            snprintf(want, sizeof want, "%.9g", c->numbers[number_of_row]);
            CHECKF(strcmp(got, want) == 0, "%s is %s, not %s", c->name, got, want);
        } else if (v->kind == JSON_STRING && strlen(want) < sizeof want - 1 &&
                   !strstr(v->text, "\xef\xbf\xbd")) {
            snprintf(got, sizeof got, "%.*s", (int)v->size, v->text);
            CHECKF(strcmp(got, want) == 0, "%s is \"%s\", not \"%s\"", c->name, got, want);
        }
    }
}

static void check_rows(const json_value *rows, lens_query *q, size_t t, const lens_table *table)
{
    lens_values columns[MOST_COLUMNS];
    if (!rows || !EQUAL(rows->size, table->n_rows) || !CHECK(table->n_columns <= MOST_COLUMNS))
        return;
    for (size_t i = 0; i < table->n_columns; i++)
        if (!CHECK(lens_query_column(&ctx, &columns[i], q, t, i)))
            return;
    const json_value *v = rows + 1;
    for (size_t row = 0; row < table->n_rows; row++, v += v->span)
        if (row < 50 || row % 97 == 0)
            check_row(v, columns, table->n_columns, row);
}

TEST(json_has_the_columns)
{
    for (int n = 0; n < N_QUESTIONS; n++) {
        lens_query *const q = answered(n);
        json_value *root = NULL;
        lens_table table;
        const char *bytes;
        size_t size;
        if (!q || !OK(&ctx, lens_query_form(&ctx, q, "json", &bytes, &size)))
            continue;
        SCOPED_TEXT const text = (char *)malloc(size + 1);
        memcpy(text, bytes, size + 1);
        if (OK(&ctx, json_parse(&ctx, questions[n][0], text, size, &root))) {
            for (size_t t = 0; lens_query_table(&table, q, t); t++)
                if (!table.is_dense)
                    check_rows(member(root, table.name), q, t, &table);
        }
        free(root);
    }
}

/* A word quoted for the shell. */
static const char *quoted_word(char *to, const char *word)
{
    sprintf(to, "'%s'", word);
    return to;
}

TEST(the_program_prints_the_same_json)
{
    for (int n = 0; n < N_QUESTIONS; n++) {
        char line[1024], word[512];
        int used =
            snprintf(line, sizeof line, TEST_BUILD "/lens " TINY " %s --json", questions[n][0]);
        int is_file = 0;
        for (size_t i = 1; i + 1 < MOST_WORDS && questions[n][i]; i += 2) {
            const char *const value = questions[n][i + 1];
            is_file |=
                strcmp(questions[n][i], "each") == 0 || strcmp(questions[n][i], "output") == 0 ||
                strcmp(questions[n][0], "gradients") == 0 ||
                strcmp(questions[n][0], "record") == 0 || strcmp(questions[n][0], "pairs") == 0;
            char *at = line + used;
            used += snprintf(line + used, sizeof line - (size_t)used, " --%s", questions[n][i]);
            for (; *at; at++)
                *at = *at == '_' ? '-' : *at;
            if (strcmp(value, "1") != 0 || strcmp(questions[n][i], "layer") == 0)
                used += snprintf(line + used, sizeof line - (size_t)used, " %s",
                                 quoted_word(word, value));
        }
        if (is_file)
            continue;
        lens_query *const q = answered(n);
        const char *bytes = "";
        size_t size = 0;
        if (q && OK(&ctx, lens_query_form(&ctx, q, "json", &bytes, &size)) &&
            EQUAL(run("%s", line), 0))
            CHECKF(size == out_size && memcmp(bytes, out, size) == 0,
                   "%s prints other JSON than a caller gets", line);
    }
}

/* Every form of an answer is made, once and again. */
TEST(forms)
{
    static const char *const forms[] = {"text", "json", "csv", "svg", "html"};
    for (int n = 0; n < N_QUESTIONS; n++) {
        lens_query *const q = answered(n);
        for (size_t i = 0; q && i < sizeof forms / sizeof forms[0]; i++) {
            const char *bytes;
            size_t size, again;
            if (lens_query_form(&ctx, q, forms[i], &bytes, &size) != ATTN_OK)
                break;
            SCOPED_TEXT const first = (char *)malloc(size + 1);
            memcpy(first, bytes, size + 1);
            if (OK(&ctx, lens_query_form(&ctx, q, forms[i], &bytes, &again)))
                CHECKF(size == again && memcmp(first, bytes, size) == 0,
                       "%s: %s twice is not the same", questions[n][0], forms[i]);
        }
    }
    ctx.status = ATTN_OK;
}

/* ---- around it ---- */

TEST(answers_are_saved)
{
    static const char *const words[MOST_WORDS] = {"patch",   "prompt", CLEAN,           "corrupted",
                                                  CORRUPTED, "by",     "position_heads"};
    static const char *const files[] = {TEST_TMP "saved.svg", TEST_TMP "saved.json",
                                        TEST_TMP "saved.npz"};
    lens_query *const q = ask(words);
    const char *bytes;
    unsigned char *file;
    size_t size, read;
    CHECK(lens_query_save(&ctx, q, TEST_TMP "saved.pdf") == ATTN_E_ARGUMENT);
    CHECKF(strstr(ctx.message, "must end in .html"), "%s", ctx.message);
    CHECK(lens_query_save(&ctx, q, "no/such/directory/saved.svg") == ATTN_E_IO);
    ctx.status = ATTN_OK;
    for (int i = 0; q && i < 3; i++)
        if (OK(&ctx, lens_query_save(&ctx, q, files[i])) && i < 2 &&
            OK(&ctx, lens_query_form(&ctx, q, strrchr(files[i], '.') + 1, &bytes, &size))) {
            file = test_read(files[i], &read);
            CHECKF(file && read == size && memcmp(file, bytes, size) == 0, "%s", files[i]);
            free(file);
        }
    lens_query_free(q);
}

TEST(ids_and_columns_without_values)
{
    static const char *const words[MOST_WORDS] = {"loss", "prompt", CLEAN};
    lens_query *q = ask(words);
    lens_values about, whole;
    for (size_t i = 0; q && lens_query_about(&about, q, 1, i); i++)
        if (CHECK(lens_query_column(&ctx, &whole, q, 1, i)))
            CHECK(about.name == whole.name && about.kind == whole.kind &&
                  about.axis == whole.axis && about.n == whole.n);
    lens_query_free(q);
    if (!OK(&ctx, lens_query_new(&ctx, &q, model, "patch", LENS_FACE_C, 0)))
        return;
    CHECK(lens_query_ids(&ctx, q, "token", (attn_token[]){1, 2}, 2) == ATTN_E_ARGUMENT);
    CHECKF(strstr(ctx.message, "token ids stand for no text here"), "%s", ctx.message);
    lens_query_free(q);
    ctx.status = ATTN_OK;
}

/* What threads find. */
typedef struct asked_in_threads {
    char *want[4];
    int n_wrong;
} asked_in_threads;

static const char *const in_threads[4][MOST_WORDS] = {
    {"patch", "prompt", CLEAN, "corrupted", CORRUPTED, "by", "heads"},
    {"heads", "prompt", STORY},
    {"patch", "prompt", CLEAN, "by", "feet"},
    {"logit-lens", "prompt", STORY}};

static char *answer_of(attn_ctx *c, const char *const *words)
{
    const char *bytes;
    size_t size;
    lens_query *const q = ask_in(c, words);
    char *text = NULL;
    if (q && lens_query_form(c, q, "json", &bytes, &size) == ATTN_OK) {
        text = (char *)malloc(size + 1);
        memcpy(text, bytes, size + 1);
    } else {
        text = (char *)malloc(sizeof c->message);
        memcpy(text, c->message, sizeof c->message);
    }
    lens_query_free(q);
    return text;
}

static void ask_in_thread(size_t task, void *of)
{
    asked_in_threads *const a = (asked_in_threads *)of;
    SCOPED_CTX own = ATTN_ZERO;
    own.n_threads = 1;
    SCOPED_TEXT const got = answer_of(&own, in_threads[task % 4]);
    if (strcmp(got, a->want[task % 4]) != 0)
        a->n_wrong++;
}

TEST(six_threads_ask_at_once)
{
    asked_in_threads a = {{NULL}, 0};
    attn_ctx six = {.n_threads = 6};
    for (int i = 0; i < 4; i++)
        a.want[i] = answer_of(&ctx, in_threads[i]);
    CHECK(strstr(a.want[2], "there is no \"feet\"") != NULL);
    attn_parallel_for(&six, 60, ask_in_thread, &a);
    EQUAL(a.n_wrong, 0);
    for (int i = 0; i < 4; i++)
        free(a.want[i]);
    attn_ctx_free(&six);
    ctx.status = ATTN_OK;
}

static int stop_at(double done, void *left)
{
    (void)done;
    return --*(int *)left < 0;
}

/* A progress function that stops ends the run at once, and a flag does before the first pass. */
TEST(stops)
{
    static const volatile int flag = 1;
    for (int n = 0; n < N_QUESTIONS; n++) {
        for (int calls = 0; calls < 4; calls++) {
            lens_query *const q = prepare(&ctx, questions[n], LENS_FACE_C);
            int left = calls;
            if (!CHECK(q != NULL))
                break;
            const attn_status status = lens_query_run(&ctx, q, stop_at, &left);
            CHECKF(status == (left < 0 ? ATTN_STOPPED : ATTN_OK), "%s, stopped at call %d: %s",
                   questions[n][0], calls, ctx.message);
            CHECKF(left >= -1, "%s goes on after a stop", questions[n][0]);
            lens_query_free(q);
            if (left >= 0)
                break;
        }
        lens_query *const q = prepare(&ctx, questions[n], LENS_FACE_C);
        ctx.stop_flag = &flag;
        if (q && strcmp(questions[n][0], "pairs") != 0)
            CHECKF(lens_query_run(&ctx, q, NULL, NULL) == ATTN_STOPPED, "%s runs on: %s",
                   questions[n][0], ctx.message);
        ctx.stop_flag = NULL;
        lens_query_free(q);
    }
    ctx.status = ATTN_OK;
}

/* ---- settings ---- */

/* A value that no setting of its kind takes; NULL: it takes any. */
static const char *wrong_value(const lens_setting *s)
{
    return s->kind == FLAG     ? "perhaps"
           : s->kind == COUNT  ? "-1"
           : s->kind == NUMBER ? "1e30"
           : s->kind == CHOICE ? "nonesuch"
                               : NULL;
}

/* Each setting of each command refuses a wrong value by its name, in each face, and one that another command has. */
TEST(settings_are_refused_by_name)
{
    const char *about, *name;
    for (size_t i = 0; (name = lens_query_command(i, &about)) != NULL; i++) {
        lens_setting s;
        CHECKF(about[0] != 0, "%s: nothing says what it is for", name);
        for (size_t k = 0; lens_query_setting(&s, name, k); k++) {
            const char *const words[MOST_WORDS] = {name, s.name, wrong_value(&s)};
            CHECKF(s.help[0] != 0, "%s, %s: no help", name, s.name);
            CHECKF(!s.word || s.kind == TEXT || s.is_many, "%s, %s: a word is a text", name,
                   s.name);
            if (!words[2])
                continue;
            CHECKF(!prepare(&ctx, words, LENS_FACE_PYTHON) &&
                       strncmp(ctx.message, s.name, strlen(s.name)) == 0,
                   "%s, %s=%s: %s", name, s.name, words[2], ctx.message);
        }
        const char *const unknown[MOST_WORDS] = {name, "nonesuch", "1"};
        CHECK(!prepare(&ctx, unknown, LENS_FACE_R));
        CHECKF(strstr(ctx.message, "nonesuch means nothing to"), "%s", ctx.message);
    }
    ctx.status = ATTN_OK;
}

/* All that an answer has, in one number. */
static uint64_t digest_of(lens_query *q)
{
    static const char *const forms[] = {"json", "text"};
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    lens_table table;
    lens_values v;
    const char *bytes;
    size_t size;
    for (int i = 0; i < 2; i++)
        if (OK(&ctx, lens_query_form(&ctx, q, forms[i], &bytes, &size)))
            for (size_t k = 0; k < size; k++)
                h = (h ^ (unsigned char)bytes[k]) * 1099511628211u;
    for (size_t t = 0; lens_query_table(&table, q, t); t++)
        if (table.is_dense && CHECK(lens_query_column(&ctx, &v, q, t, table.n_keys)))
            for (size_t k = 0; k < v.n * sizeof *v.numbers; k++)
                h = (h ^ ((const unsigned char *)v.numbers)[k]) * 1099511628211u;
    return h;
}

/* The value number i that this test gives a setting; NULL after the last one. A setting that names a file gets none. */
static const char *value_for(const lens_setting *s, size_t i)
{
    static const char *const numbers[] = {"1", "2", "0", "0.5", "12"},
                             *const texts[][3] = {
                                 {"prompt", "Lily had a dog. She", "One"},
                                 {"corrupted", "Tom was a dog. He", "Two"},
                                 {"ids", "1 2 3", "4"},
                                 {"corrupted_ids", "1 2 4", "4"},
                                 {"token", " ran", " said"},
                                 {"against", " ran", " said"},
                                 {"edit", "zero blocks.0.hook_mlp_out", "scale hook_embed by 2"},
                                 {"second", "Sam was a boy. He", "One"},
                                 {"towards", "so happy", "big"},
                                 {"away", "so sad", "small"},
                                 {"names", "hook_embed", "blocks.0.*"},
                                 {"shapley", "m0,a0.h1", "m0"},
                                 {"from_", "a0.h1", "m0"},
                                 {"to", "blocks.2.hook_q_input.1", "m2"},
                                 {"heads", "0.1 1.2", "0.0"},
                                 {"change", "12=8", "3=0"},
                                 {"task", "ioi", "agreement"}};
    static char choice[32];
    const char *takes = s->takes;
    if (s->is_file)
        return NULL;
    if (s->kind == FLAG)
        return i ? NULL : s->is_negated ? "0" : "1";
    if (s->kind == COUNT || s->kind == NUMBER)
        return i < sizeof numbers / sizeof *numbers ? numbers[i] : NULL;
    if (s->kind == CHOICE) {
        for (; *takes && i > 0; i--)
            takes += strcspn(takes, " ") + (strchr(takes, ' ') != NULL);
        snprintf(choice, sizeof choice, "%.*s", (int)strcspn(takes, " "), takes);
        return *choice ? choice : NULL;
    }
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
        if (strcmp(texts[k][0], s->name) == 0)
            return i < 2 ? texts[k][i + 1] : NULL;
    test_fail(__FILE__, __LINE__, "this test has no value for the setting %s", s->name);
    return NULL;
}

/* Is the setting one of a question's words? */
static int is_asked(const char *const *words, const char *name)
{
    for (size_t i = 1; i < MOST_WORDS && words[i]; i += 2)
        if (strcmp(words[i], name) == 0)
            return 1;
    return 0;
}

/* Where ATTN_TEST_SETTINGS names a file: a line for each question that settings_are_obeyed asks, its words and the digest of
 * its JSON, or "refused". tests/platforms/faces/settings.py asks the same in other faces. */
static void note_question(const char *const *words, lens_query *q)
{
    const char *const path = getenv("ATTN_TEST_SETTINGS");
    FILE *const file = path ? fopen(path, "a") : NULL;
    unsigned char digest[SHA256_SIZE];
    char hex[SHA256_HEX] = "refused";
    const char *bytes;
    size_t size;
    if (!file)
        return;
    if (q && OK(&ctx, lens_query_form(&ctx, q, "json", &bytes, &size))) {
        sha256_of(digest, bytes, size);
        sha256_hex(hex, digest, SHA256_SIZE);
    }
    fputs(hex, file);
    for (size_t i = 0; i < MOST_WORDS && words[i]; i++)
        fprintf(file, "\t%s", words[i]);
    fputc('\n', file);
    fclose(file);
}

/* A setting beside a question changes the answer, or is refused: one that is taken and changes nothing misleads. Texts here
 * have no special token, and the included model has the same bits in exact arithmetic; a default changes nothing. */
TEST(settings_are_obeyed)
{
    for (int n = 0; n < N_QUESTIONS; n++) {
        const char *words[MOST_WORDS] = {NULL};
        size_t n_words = 0;
        lens_setting s;
        const int is_long = is_asked(questions[n], "curve") || is_asked(questions[n], "prune");
        if (is_asked(questions[n], "ci") || is_asked(questions[n], "check") ||
            (is_long && !test_full()) || strcmp(questions[n][0], "process") == 0 || !answered(n))
            continue; /* they take long and stand here without them, or answer by a file */
        const uint64_t before = digest_of(answered(n));
        for (; questions[n][n_words]; n_words++)
            words[n_words] = questions[n][n_words];
        for (size_t k = 0; lens_query_setting(&s, words[0], k); k++) {
            const char *value, *silent = NULL;
            int is_changed = 0;
            if (is_asked(words, s.name) || strcmp(s.name, "special") == 0 ||
                (strcmp(s.name, "exact") == 0 && strcmp(words[0], "edges") != 0))
                continue;
            for (size_t i = 0; !is_changed && (value = value_for(&s, i)) != NULL; i++) {
                words[n_words] = s.name;
                words[n_words + 1] = value;
                lens_query *const q = strcmp(value, s.usual) == 0 ? NULL : ask_in(&ctx, words);
                is_changed = q && digest_of(q) != before;
                silent = q && !is_changed ? value : silent;
                if (strcmp(value, s.usual) != 0)
                    note_question(words, q);
                lens_query_free(q);
                ctx.status = ATTN_OK;
            }
            words[n_words] = words[n_words + 1] = NULL;
            CHECKF(is_changed || !silent, "%s, question %d: %s=%s changes nothing", words[0], n,
                   s.name, silent);
        }
    }
}

/* A setting "no-NAME" is NAME, switched off; words of languages have another spelling. */
TEST(spellings_of_faces)
{
    static const char *const same[][MOST_WORDS] = {
        {"process", "fold_ln", "false", "output", TEST_TMP "a.attn"},
        {"process", "no-fold-ln", "1", "output", TEST_TMP "b.attn"}};
    lens_setting s;
    int found = 0;
    for (size_t k = 0; lens_query_setting(&s, "path", k); k++)
        found += strcmp(s.name, "from_") == 0 && strcmp(s.option, "from") == 0;
    EQUAL(found, 1);
    for (int i = 0; i < 2; i++)
        lens_query_free(ask(same[i]));
    EQUAL(run("cmp " TEST_TMP "a.attn " TEST_TMP "b.attn"), 0);
}

TEST(a_caller_may_forbid_files)
{
    lens_query *q;
    if (!OK(&ctx, lens_query_new(&ctx, &q, model, "patch", LENS_FACE_PAGE, LENS_QUERY_NO_FILES)))
        return;
    CHECK(lens_query_set(&ctx, q, "pairs", PAIRS, SIZE_MAX) == ATTN_E_ARGUMENT);
    CHECKF(strstr(ctx.message, "pairs: files are not read or written here"), "%s", ctx.message);
    lens_query_free(q);
    ctx.status = ATTN_OK;
}

TEST(zero_bytes_and_standard_input)
{
    lens_query *q;
    if (!OK(&ctx, lens_query_new(&ctx, &q, model, "loss", LENS_FACE_C, 0)))
        return;
    CHECK(lens_query_set(&ctx, q, "prompt", "a\0b", 3) && strstr(ctx.message, "zero byte"));
    CHECK(lens_query_set(&ctx, q, "file", "-", SIZE_MAX) && strstr(ctx.message, "standard input"));
    OK(&ctx, (ctx.status = ATTN_OK,
              lens_query_set(&ctx, q, "prompt", "-", SIZE_MAX))); /* a text of one dash */
    lens_query_set(&ctx, q, "bos", "1", SIZE_MAX);
    OK(&ctx, lens_query_run(&ctx, q, NULL, NULL));
    CHECKF(lens_query_run(&ctx, q, NULL, NULL) == ATTN_E_ARGUMENT, "it runs twice");
    lens_query_free(q);
    ctx.status = ATTN_OK;
}

/* A decimal comma of the caller's locale changes neither settings nor forms. */
TEST(decimal_commas)
{
    static const char *const words[MOST_WORDS] = {
        "steer", "prompt", CLEAN, "towards", "so happy", "away", "so sad", "strength", "0.5"};
    char *plain[2] = {NULL, NULL};
    if (!comma_begin()) {
        test_skip("no locale with a decimal comma can be made");
        return;
    }
    for (int comma = 0; comma < 2; comma++) {
        const char *bytes;
        size_t size;
        setlocale(LC_NUMERIC, comma ? "comma" : "C");
        lens_query *const q = ask(words);
        for (int form = 0; q && form < 2; form++)
            if (OK(&ctx, lens_query_form(&ctx, q, form ? "svg" : "json", &bytes, &size))) {
                if (!comma && (plain[form] = (char *)malloc(size + 1)) != NULL)
                    memcpy(plain[form], bytes, size + 1);
                else
                    CHECKF(plain[form] && strcmp(plain[form], bytes) == 0,
                           "another %s with a decimal comma", form ? "svg" : "json");
            }
        lens_query_free(q);
    }
    comma_end();
    free(plain[0]);
    free(plain[1]);
}
