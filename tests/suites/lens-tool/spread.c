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
    int i, n = 0;
    for (i = 0; i < 4; i++)
        n += snprintf(
            lines + n, sizeof lines - (size_t)n,
            "{\"clean\": \"There was a %s girl named\", \"corrupted\": \"There was a %s boy "
            "named\", \"token\": \" %s\", \"against\": \" %s\"}\n",
            likes[i], likes[i], is_small ? "and" : "Lily", is_small ? "with" : "Tim");
    test_write(TMP "lively.jsonl", lines, (size_t)n);
}

/* Each line of --each has its numbers in [n_pairs, 2 + n_cells]. Their mean is what --json shows, and their spread
 * is that of the library. */
static void check_each(const char *command, size_t n_pairs, const char *ci_of,
                       lens_spread_kind kind)
{
    enum { MOST = 200 };
    static float each[4][2 + MOST];
    static lens_spread s[MOST];
    attn_ctx ctx = {0};
    const json_value *grid, *line;
    size_t i, k, n = 0, n_columns = 1, n_told;
    for (i = 0; i < n_pairs; i++) {
        CHECK(run("sed -n %dp " EACH " > " TMP "line.json", (int)i + 1) == 0);
        line = parse("cat " TMP "line.json");
        CHECK(number(member(line, "pair")) == (double)i);
        grid = item(member(line, "grids"), 0);
        n_columns = member(grid, "columns")->size;
        n = member(grid, "rows")->size * n_columns;
        if (!CHECK(n <= MOST))
            return;
        each[i][0] = (float)number(member(line, "clean"));
        each[i][1] = kind == LENS_SPREAD_VALUES ? 0 : (float)number(member(line, "corrupted"));
        for (k = 0; k < n; k++)
            each[i][2 + k] =
                (float)number(item(item(member(grid, "values"), k / n_columns), k % n_columns));
    }
    for (i = 1; i < n_pairs; i++) /* close the gaps between rows */
        memmove((float *)each + i * (2 + n), each[i], (2 + n) * sizeof(float));
    OK(&ctx, lens_spreads(&ctx, s, (float *)each, n_pairs, n, kind));
    OK(&ctx, strstr(command, "--shapley") ? lens_holm_pairs(&ctx, s, n_columns, 1)
                                          : lens_holm(&ctx, s, n));
    line = parse(command);
    CHECK(json_is(member(line, "ci_of"), ci_of) && json_is(member(line, "sign_flips"), "all 16"));
    n_told = member(line, "grids")->size == 1 ? 4 : 3; /* p is corrected over all grids */
    grid = item(member(line, "grids"), 0);
    for (k = 0; k < n; k++) {
        double mean = 0;
        const struct {
            const char *name;
            double want;
        } told[] = {{"mean", s[k].mean}, {"low", s[k].low}, {"high", s[k].high}, {"p", s[k].p}};
        for (i = 0; i < n_pairs; i++)
            mean += (double)((float *)each)[i * (2 + n) + 2 + k] / (double)n_pairs;
        CHECK(fabs(mean - number(item(item(member(grid, "values"), k / n_columns),
                                      k % n_columns))) < 1e-5);
        for (i = 0; i < n_told; i++)
            CHECKF(
                fabs(number(item(item(member(grid, told[i].name), k / n_columns), k % n_columns)) -
                     told[i].want) < 1e-5,
                "%s: %s of cell %d is not %.9g", command, told[i].name, (int)k, told[i].want);
    }
    attn_ctx_free(&ctx);
}

#define SPREAD(command) LENS MODEL command " -q --pairs " LIVELY "--ci --json --each " EACH

TEST(spreads)
{
    size_t i;
    static const struct {
        const char *command;
        int is_small;
        const char *of;
        lens_spread_kind kind;
    } cases[] = {
        {SPREAD("patch attn.hook_z"), 0, "shares of the gap", LENS_SPREAD_SHARES},
        {SPREAD("patch attn.hook_z"), 1, "changes", LENS_SPREAD_CHANGES},
        {SPREAD("patch attn.hook_z --by position-heads"), 0, "shares of the gap",
         LENS_SPREAD_SHARES},
        {SPREAD("patch hook_mlp_out --estimate"), 0, "shares of the gap", LENS_SPREAD_SHARES},
        {SPREAD("path"), 0, "shares of the gap", LENS_SPREAD_SHARES},
        {SPREAD("path --from 1.mlp"), 1, "changes", LENS_SPREAD_CHANGES},
        {SPREAD("ablate"), 0, "values", LENS_SPREAD_VALUES},
        {SPREAD("edges --edges 12"), 0, "values", LENS_SPREAD_VALUES},
        {SPREAD("edges --steps 3"), 1, "values", LENS_SPREAD_VALUES},
        {SPREAD("edges --exact --edges 5"), 0, "values", LENS_SPREAD_VALUES},
        {SPREAD("edges --exact --of nodes"), 0, "values", LENS_SPREAD_VALUES},
        {SPREAD("edges --interactions --edges 4"), 0, "values", LENS_SPREAD_VALUES},
        {SPREAD("edges --shapley m0,a1.h2"), 0, "values", LENS_SPREAD_VALUES},
    };
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_lively(cases[i].is_small);
        CHECK(works(cases[i].command));
        check_each(cases[i].command, 4, cases[i].of, cases[i].kind);
    }
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

/* The circuit of all edges has a faithfulness of 1 for every pair. CMD has no interval, because it is not a mean over
 * pairs. */
TEST(spreads_of_curves)
{
    const json_value *grid, *last;
    write_lively(0);
    grid =
        item(member(parse(LENS MODEL "edges --curve -q --ci --json --pairs " LIVELY), "grids"), 1);
    CHECK(fabs(number(item(item(member(grid, "low"), 0), 9)) - 1) < 1e-9 &&
          fabs(number(item(item(member(grid, "high"), 0), 9)) - 1) < 1e-9);
    CHECK(fabs(number(item(item(member(grid, "mean"), 2), 10)) -
               number(item(item(member(grid, "values"), 2), 10))) < 1e-5);
    last = item(item(member(grid, "p"), 0), 11);
    CHECK(last && last->kind == JSON_NULL);
    CHECK(number(item(item(member(grid, "low"), 4), 0)) <= 0);
    CHECK(works(LENS MODEL "edges --curve -q --ci -o " TMP "ci.svg --pairs " LIVELY));
    CHECK(occurrences_in(TMP "ci.svg", "m-4 0h8") == 2 * 5 * 10); /* whiskers */
}
