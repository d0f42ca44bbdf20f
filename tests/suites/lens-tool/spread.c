/* --each and --ci of lens: the numbers of every pair, and their spread as the library computes it. */
#include "tests/support/test.h"
#include "tools/lens/spread.h"
#include "lens_tool.h"

SUITE_WITH(NULL, tear_down);

#define LIVELY TMP "lively.jsonl "
#define EACH   TMP "each.jsonl"

/* Four pairs with a large gap, or with a small one. */
static void write_lively(int is_small)
{
    static const char *const likes[] = {"little", "big", "happy", "sad"};
    char lines[1024];
    int n = 0;
    for (int i = 0; i < 4; i++)
        n += snprintf(
            lines + n, sizeof lines - (size_t)n,
            "{\"clean\": \"There was a %s girl named\", \"corrupted\": \"There was a %s boy "
            "named\", \"token\": \" %s\", \"against\": \" %s\"}\n",
            likes[i], likes[i], is_small ? "and" : "Lily", is_small ? "with" : "Tim");
    test_write(TMP "lively.jsonl", lines, (size_t)n);
}

/* A number of a table that has an interval: the names of table and column, and what stands before "low". */
typedef struct figure {
    const char *table, *number, *prefix;
} figure;

enum { MOST = 1000, N_PAIRS = 4 };
static double numbers[2][N_PAIRS][MOST]; /* of --each, for each figure */
static float texts[N_PAIRS][2];          /* the answers to both texts */

/* Reads what --each wrote, a row in each line. n [2]: how many numbers of each figure a pair has. */
static int read_each(const figure *figures, size_t n_figures, size_t *n)
{
    char *const file = read_text(EACH), *line, *end;
    size_t counts[2][N_PAIRS] = {{0}}, i;
    int good = file != NULL;
    for (line = file; good && *line; line = end + 1) {
        attn_ctx ctx = {0};
        json_value *row = NULL;
        end = strchr(line, '\n');
        good = CHECK(end) && OK(&ctx, json_parse(&ctx, "line", line, (size_t)(end - line), &row));
        i = (size_t)number(member(row, "pair"));
        good = good && CHECK(i < N_PAIRS);
        for (size_t k = 0; good && k < n_figures; k++)
            if (json_get(row, figures[k].number) && CHECK(counts[k][i] < MOST))
                numbers[k][i][counts[k][i]++] = number(member(row, figures[k].number));
        if (good) {
            texts[i][0] = (float)number(member(row, "clean"));
            texts[i][1] = member(row, "corrupted")->kind == JSON_NULL
                              ? 0
                              : (float)number(member(row, "corrupted"));
        }
        free(row);
    }
    for (size_t k = 0; k < n_figures; k++) {
        n[k] = counts[k][0];
        for (i = 0; i < N_PAIRS; i++)
            good &= CHECK(n[k] > 0 && counts[k][i] == n[k]);
    }
    free(file);
    return good;
}

/* Are the rows of an answer chosen among more of them? */
static int is_chosen(const char *command)
{
    return strstr(command, " edges ") && !strstr(command, "nodes") && !strstr(command, "shapley");
}

/* The p-values of chosen rows are those that they have among all. */
static void check_chosen(const char *command, const char *table, const char *column)
{
    enum { SHOWN = 4 };
    double p[SHOWN];
    const json_value *told = parse(command);
    for (size_t k = 0; k < SHOWN; k++)
        p[k] = number(member(table_row(told, table, k), column));
    told = parse(test_text("%s --edges 2000", command));
    for (size_t k = 0; k < SHOWN; k++)
        CHECKF(fabs(number(member(table_row(told, table, k), column)) - p[k]) < 1e-9,
               "%s: %s of row %d is %.9g", command, column, (int)k, p[k]);
    CHECK(p[0] > 0);
}

/* The mean of what --each wrote is what --json shows, and its spread is that of the library, with p corrected over all
 * figures. */
static void check_each(const char *command, const figure *figures, const char *ci_of,
                       lens_spread_kind kind)
{
    static float each[N_PAIRS * (2 + 2 * MOST)];
    static lens_spread spreads[2 * MOST];
    const size_t n_figures = figures[1].table ? 2 : 1;
    size_t n[2] = {0, 0}, first = 0;
    SCOPED_CTX ctx = {0};
    if (!read_each(figures, n_figures, n))
        return;
    size_t all = n[0] + n[1];
    for (size_t i = 0; i < N_PAIRS; i++) {
        memcpy(each + i * (2 + all), texts[i], sizeof texts[i]);
        for (size_t k = 0; k < all; k++)
            each[i * (2 + all) + 2 + k] =
                (float)(k < n[0] ? numbers[0][i][k] : numbers[1][i][k - n[0]]);
    }
    OK(&ctx, lens_spreads(&ctx, spreads, each, N_PAIRS, all, kind));
    OK(&ctx, lens_holm(&ctx, spreads, all));
    const json_value *told = parse(command);
    CHECK(json_is(fact(told, "ci_of"), ci_of) && json_is(fact(told, "sign_flips"), "all 16"));
    for (size_t f = 0; f < n_figures; first += n[f++])
        for (size_t k = 0; k < n[f]; k++) {
            const lens_spread *const s = &spreads[first + k];
            const json_value *const row = table_row(told, figures[f].table, k);
            const struct {
                const char *name;
                double want;
            } columns[] = {{"mean", s->mean}, {"low", s->low}, {"high", s->high}, {"p", s->p}};
            double mean = 0;
            for (size_t i = 0; i < N_PAIRS; i++)
                mean += numbers[f][i][k] / N_PAIRS;
            CHECK(fabs(mean - number(member(row, figures[f].number))) < 1e-5);
            for (size_t i = 0; i < (is_chosen(command) ? 3 : 4); i++) {
                const char *const name = test_text("%s%s", figures[f].prefix, columns[i].name);
                CHECKF(fabs(number(member(row, name)) - columns[i].want) < 1e-5,
                       "%s: %s of row %d is not %.9g", command, name, (int)k, columns[i].want);
            }
        }
}

#define SPREAD(command) LENS MODEL command " -q --pairs " LIVELY "--ci --json --each " EACH

#define SHARES          "shares of the gap", LENS_SPREAD_SHARES
#define CHANGES         "changes", LENS_SPREAD_CHANGES
#define VALUES          "values", LENS_SPREAD_VALUES

TEST(spreads)
{
    static const struct {
        const char *command;
        int is_small;
        figure figures[2];
        const char *of;
        lens_spread_kind kind;
    } cases[] = {
        {SPREAD("patch attn.hook_z"), 0, {{"heads", "answer", ""}}, SHARES},
        {SPREAD("patch attn.hook_z"), 1, {{"heads", "answer", ""}}, CHANGES},
        {SPREAD("patch attn.hook_z --by position-heads"),
         0,
         {{"position_heads", "answer", ""}},
         SHARES},
        {SPREAD("patch --by weights"), 0, {{"weights", "answer", ""}}, SHARES},
        {SPREAD("patch hook_mlp_out --estimate"), 0, {{"positions", "answer", ""}}, SHARES},
        {SPREAD("path"), 0, {{"paths", "answer", ""}}, SHARES},
        {SPREAD("path --from 1.mlp"), 1, {{"paths", "answer", ""}}, CHANGES},
        {SPREAD("ablate"), 0, {{"heads", "change", ""}}, VALUES},
        {SPREAD("edges --edges 12"), 0, {{"edges", "score", ""}}, VALUES},
        {SPREAD("edges --steps 3"), 1, {{"edges", "score", ""}}, VALUES},
        {SPREAD("edges --exact --edges 5"), 0, {{"edges", "score", ""}}, VALUES},
        {SPREAD("edges --exact --of nodes"), 0, {{"nodes", "score", ""}}, VALUES},
        {SPREAD("edges --interactions --edges 4"),
         0,
         {{"interactions", "interaction", ""}, {"interactions", "effect", "effect_"}},
         VALUES},
        {SPREAD("edges --shapley m0,a1.h2"),
         0,
         {{"shapley", "value", ""}, {"interactions", "interaction", ""}},
         VALUES},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_lively(cases[i].is_small);
        CHECK(works(cases[i].command));
        check_each(cases[i].command, cases[i].figures, cases[i].of, cases[i].kind);
        if (is_chosen(cases[i].command))
            check_chosen(cases[i].command, cases[i].figures[0].table, "p");
    }
    /* a dot marks the intervals that have 0, and no other */
    const json_value *const heads =
        member(parse(LENS MODEL "ablate -q --ci --json --pairs " LIVELY), "heads");
    size_t n_with_0 = 0;
    for (size_t i = 0; heads && i < heads->size; i++)
        n_with_0 += number(member(item(heads, i), "low")) <= 0 &&
                    number(member(item(heads, i), "high")) >= 0;
    CHECK(heads && n_with_0 > 0 && n_with_0 < heads->size);
    CHECK(works(LENS MODEL "ablate -q --ci --pairs " LIVELY));
    EQUAL(occurrences(out, "·"), n_with_0);
    CHECK(works(LENS MODEL "path --ci --pairs " LIVELY) && strstr(out, "95 % interval, from") &&
          strstr(out, "·") && strstr(out, "all 16 sign flips"));
    CHECK(works(LENS MODEL "path --ci -o " TMP "ci.svg --pairs " LIVELY));
    CHECK(occurrences_in(TMP "ci.svg", "95 % interval") > 0);
    CHECK(works(LENS MODEL "edges --ci -o " TMP "ci.svg --pairs " LIVELY));
    CHECK(occurrences_in(TMP "ci.svg", "95 % interval") > 0);
    CHECK(works(LENS MODEL "edges --interactions --ci -o " TMP "ci.svg --pairs " LIVELY));
    CHECK(occurrences_in(TMP "ci.svg", ">·<") > 0);
    CHECK(run("sed -n 1p " LIVELY "> " TMP "one.jsonl") == 0);
    refuses(1, "an interval needs two pairs or more; got 1",
            LENS MODEL "edges --exact --ci --pairs " TMP "one.jsonl");
    CHECK(works(LENS MODEL "path -q --each " EACH " --pairs " TMP "one.jsonl"));
    refuses(2, "--ci is for means", LENS MODEL "patch Tom Lily --ci");
    refuses(2, "--each is for means", LENS MODEL "ablate Tom --each x");
    refuses(2, "leave out --at", LENS MODEL "ablate --at 1 --pairs " LIVELY);
    refuses(2, "leave out --prune", LENS MODEL "edges --exact --prune 1 --ci --pairs " LIVELY);
    refuses(2, "leave out --state", LENS MODEL "edges --exact --state s --each x --pairs " LIVELY);
    refuses(2, "leave out --ci", LENS MODEL "edges --ci -o x.json --pairs " LIVELY);
    refuses(1, "no/such", LENS MODEL "ablate --each no/such --pairs " LIVELY);
}

/* The circuit of all edges has a faithfulness of 1 for every pair. Intervals of integrals are those of CPR: CMD is not a
 * mean over pairs. */
TEST(spreads_of_curves)
{
    size_t largest = 10; /* the row where this order of the first method begins */
    write_lively(0);
    const json_value *all =
        parse(LENS MODEL "edges --curve -q --ci --json --each " EACH " --pairs " LIVELY);
    CHECK(fabs(number(cell(all, "curves", largest + 9, "low")) - 1) < 1e-9 &&
          fabs(number(cell(all, "curves", largest + 9, "high")) - 1) < 1e-9);
    CHECK(number(cell(all, "curves", 4 * 2 * 10 + largest, "low")) <= 0);
    CHECK(fabs(number(cell(all, "integrals", 5, "mean")) -
               number(cell(all, "integrals", 5, "cpr"))) < 1e-5);
    CHECK(occurrences_in(EACH, "\"share\": 0.1,") == 4 * 10 &&
          occurrences_in(EACH, "\"answer\": ") == 4 * 10 * (10 + 1));
    CHECK(works(LENS MODEL "edges --curve -q --ci -o " TMP "ci.svg --pairs " LIVELY));
    CHECK(occurrences_in(TMP "ci.svg", "m-4 0h8") == 2 * 5 * 10); /* whiskers */
}
