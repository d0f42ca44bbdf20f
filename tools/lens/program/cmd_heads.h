/* lens heads: previous-token, duplicate-token and induction heads, and the entropy of each head's pattern. */
#ifndef LENS_CMD_HEADS_H
#define LENS_CMD_HEADS_H

#include "tools/lens/detect.h"
#include "findings.h"

/* Is there a text? A pipe counts, unless it is empty. */
static int is_text_given(const lens *l)
{
    int c;
    if (l->o.text || l->o.file || l->o.ids || l->o.bos || l->is_query)
        return l->o.text || l->o.file || l->o.ids || l->o.bos;
    if (system_is_terminal(stdin) || (c = getc(stdin)) == EOF)
        return 0;
    ungetc(c, stdin);
    return 1;
}

/* Random tokens, then the same tokens again, as in TransformerLens's demos. Only the repetition can be
 * predicted, and only duplicate-token and induction heads see it. */
static int make_repeated(lens *l)
{
    enum { MOST = 50 };
    const size_t bos = l->config->bos >= 0, room = (l->config->n_ctx - bos) / 2;
    const size_t n = room < MOST ? room : MOST;
    uint64_t state = 1, z;
    size_t i;
    l->text.n = bos + 2 * n;
    l->text.ids = (int32_t *)allocate(l, l->text.n, sizeof *l->text.ids);
    l->text.shown = (const char **)allocate(l, l->text.n, sizeof *l->text.shown);
    if (!l->text.ids || !l->text.shown)
        return failed(&l->ctx);
    l->text.ids[0] = l->config->bos;
    for (i = 0; i < n; i++) { /* splitmix64 */
        z = state += UINT64_C(0x9E3779B97F4A7C15);
        z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
        z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
        z = (z ^ z >> 31) % l->config->n_vocab;
        l->text.ids[bos + i] = l->text.ids[bos + n + i] = (int32_t)z;
    }
    for (i = 0; i < l->text.n; i++)
        l->text.shown[i] = shown_token(l, l->text.ids[i]);
    l->text.made_up = keep(l, "%s%zu random tokens twice, seed 1",
                           bos ? "the beginning-of-text token, then " : "", n);
    return outcome(&l->ctx);
}

/* ---- with options: TransformerLens's detect_head ---- */

#define MEASURE_NAMES "mul abs"

/* The heads that --heads names: "5.1 L5H5". */
static int read_heads(lens *l, lens_detect_desc *how)
{
    const char *at = l->o.heads;
    lens_head *list;
    int code;
    if (!at)
        return FINE;
    at += strspn(at, " ,");
    list = (lens_head *)allocate(l, strlen(at) + 1, sizeof *list);
    if (!list)
        return failed(&l->ctx);
    how->heads = list;
    do
        code = read_head(l, "heads", " ,", &at, &list[how->n_heads++]);
    while (code == FINE && *(at += strspn(at, " ,")));
    return code;
}

/* Reads the pattern [T, T] from the file of --pattern: numbers separated by spaces, commas or newlines. */
static int read_pattern(lens *l, lens_detect_desc *how)
{
    const size_t n = l->text.n;
    size_t i = 0, size = 0;
    float *numbers;
    char *text, *at, *end;
    if (!l->o.pattern)
        return FINE;
    if (!(text = file_text(l, l->o.pattern, n * n * 64 + 4096, &size)))
        return failed(&l->ctx);
    if (!(numbers = (float *)allocate(l, n * n, sizeof *numbers)))
        return failed(&l->ctx);
    for (at = text; at[strspn(at, " ,\t\r\n")]; at = end) {
        const double number = strtod(at += strspn(at, " ,\t\r\n"), &end);
        if (end == at) {
            at[strcspn(at, " ,\t\r\n")] = 0;
            return fail(FAILED, "%s: \"%.20s\" is not a number", l->o.pattern, at);
        }
        if (i < n * n)
            numbers[i] = (float)number;
        i++;
    }
    if (i != n * n)
        return fail(FAILED, "%s has %zu numbers; the text has %zu tokens, so %zu are needed",
                    l->o.pattern, i, n, n * n);
    how->keys = attn_borrow(numbers, ATTN_F32, attn_shape2(n, n));
    return FINE;
}

static int is_detection(const lens *l)
{
    const lens_options *o = &l->o;
    return o->heads || o->pattern || o->measure || o->exclude_bos || o->exclude_current_token;
}

/* The scores of each kind, and what they are of. */
typedef struct kinds_of_heads {
    const char *const *titles;
    size_t n;
} kinds_of_heads;

static const char *const head_kinds[] = {"previous-token", "duplicate-token", "induction",
                                         "entropy", "pattern"};

/* A column for scores of each head and kind, of which the first is `first`. */
static double *add_kinds(lens *l, size_t first, size_t n)
{
    answer_table *const t = add_table(l, "heads");
    add_names(l, t, "kind", head_kinds + first, n);
    add_layers_and_heads(l, t);
    return answer_numbers(&l->answer, t, CELLS, "score", LENS_NUMBERS);
}

/* Copies the scores of kind number i. */
static void take_kind(double *to, size_t i, attn_tensor scores)
{
    const size_t n = attn_count(scores);
    for (size_t k = 0; to && k < n; k++)
        to[i * n + k] = answer_element(scores, k);
}

static lens_grid *add_kind(lens *l, const kinds_of_heads *kinds, size_t i)
{
    lens_grid *const grid = add_head_grid(l, kinds->titles[i]);
    show_column(l, grid, "heads", "score", i * n_cells(grid));
    spell_cells(l, grid, "%.2f", TIP_OF_HEAD);
    return grid;
}

static void dress_detection(lens *l, const void *of)
{
    const kinds_of_heads *const kinds = (const kinds_of_heads *)of;
    for (size_t i = 0; i < kinds->n; i++) {
        lens_grid *const grid = add_kind(l, kinds, i);
        grid->low = "-1: nothing in common";
        grid->high = l->o.measure ? "1: the attention is the pattern" : "1: all of the attention";
        colour_cells(grid, 1);
    }
}

static int run_detection(lens *l, kinds_of_heads *kinds)
{
    static const char *const titles[] = {"previous-token heads", "duplicate-token heads",
                                         "induction heads"};
    static const char *const own[] = {"heads that look as the pattern says"};
    lens_detect_desc how = ATTN_ZERO;
    int code;
    show_as(l, "Detected heads", dress_detection);
    how.tokens = l->text.ids;
    how.n_tokens = l->text.n;
    how.measure = l->o.measure ? LENS_HEAD_ABS : LENS_HEAD_MUL;
    how.exclude_bos = l->o.exclude_bos;
    how.exclude_current_token = l->o.exclude_current_token;
    if ((code = read_heads(l, &how)) != FINE || (code = read_pattern(l, &how)) != FINE)
        return code;
    *kinds = l->o.pattern ? (kinds_of_heads){own, 1} : (kinds_of_heads){titles, LENS_N_HEAD_KINDS};
    double *const to = add_kinds(l, l->o.pattern ? LENS_N_HEAD_KINDS + 1 : 0, kinds->n);
    for (size_t kind = 0; kind < kinds->n; kind++) {
        attn_tensor scores = {0};
        how.kind = (lens_head_kind)kind;
        if (lens_detect_head(&l->ctx, &scores, l->model, &how))
            return failed(&l->ctx);
        take_kind(to, kind, scores);
        attn_tensor_free(&l->ctx, &scores);
    }
    l->shown.page.note =
        keep(l, "Scores of detect_head with measure \"%s\"%s%s over %zu tokens%s. %s",
             how.measure == LENS_HEAD_ABS ? "abs" : "mul",
             how.exclude_bos ? ", without the first key" : "",
             how.exclude_current_token ? ", without the query's own position" : "", l->text.n,
             l->text.made_up ? keep(l, ", %s", l->text.made_up) : "",
             how.n_heads ? "Heads that were not asked for have -1." : "Every head was asked for.");
    return show_answer(l);
}

/* ---- without options ---- */

static void dress_kinds(lens *l, const void *of)
{
    static const char *const keys[] = {"the token before", "earlier places of the same token",
                                       "what followed those"};
    const kinds_of_heads *const kinds = (const kinds_of_heads *)of;
    const double even = l->text.n > 1 ? log((double)l->text.n) : 1;
    for (size_t i = 0; i < kinds->n; i++) {
        lens_grid *const grid = add_kind(l, kinds, i);
        const double most = i < LENS_N_HEAD_KINDS ? fitting(largest_of(grid), 1) : even;
        grid->high = i < LENS_N_HEAD_KINDS ? keep(l, "%g%s of the attention goes to %s", most,
                                                  most < 1 ? "" : ": all", keys[i])
                                           : keep(l, "%.2f: even over the whole text", even);
        colour_cells(grid, most);
    }
}

static int run_heads(lens *l, void *finding)
{
    kinds_of_heads *const kinds = (kinds_of_heads *)finding;
    static const char *const titles[] = {"previous-token heads", "duplicate-token heads",
                                         "induction heads", "entropy of the attention, in nats"};
    enum { N = LENS_N_HEAD_KINDS + 1 };
    attn_tensor entropy = {0}, scores = {0}, mean = {0};
    if (is_detection(l))
        return run_detection(l, kinds);
    show_as(l, "Kinds of heads", dress_kinds);
    if (lens_detect_heads(&l->ctx, &entropy, &scores, l->model, l->text.ids, l->text.n) ||
        attn_mean(&l->ctx, &mean, entropy))
        return failed(&l->ctx);
    *kinds = (kinds_of_heads){titles, N};
    double *const to = add_kinds(l, 0, N);
    for (size_t kind = 0; kind < N; kind++)
        take_kind(to, kind,
                  kind < LENS_N_HEAD_KINDS ? attn_select(scores, 0, kind)
                                           : attn_select(mean, 2, 0));
    attn_tensor_free(&l->ctx, &entropy);
    attn_tensor_free(&l->ctx, &scores);
    attn_tensor_free(&l->ctx, &mean);
    l->shown.page.note =
        keep(l,
             "Means over %zu tokens%s. A head with a large number in one of the first "
             "three grids is of that kind; duplicate-token and induction heads show "
             "in texts that repeat themselves.",
             l->text.n, l->text.made_up ? keep(l, ", %s", l->text.made_up) : "");
    return show_answer(l);
}

#endif
