/* lens heads: previous-token, duplicate-token and induction heads, and the entropy of each head's pattern. */
#ifndef LENS_CMD_HEADS_H
#define LENS_CMD_HEADS_H

#include "tools/lens/detect.h"
#include "findings.h"

/* Is there a text? A pipe counts, unless it is empty. */
static int is_text_given(const lens *l)
{
    int c;
    if (l->clean_word || l->o.file || l->o.ids || l->o.bos)
        return 1;
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

/* The heads that --heads names: "5.1 5.5". */
static int read_heads(lens *l, lens_detect_desc *how)
{
    const char *at = l->o.heads;
    lens_head *list;
    int used;
    if (!at)
        return FINE;
    list = (lens_head *)allocate(l, strlen(at), sizeof *list);
    if (!list)
        return failed(&l->ctx);
    how->heads = list;
    for (; at[strspn(at, " ,")]; at += used) {
        unsigned long layer, head;
        at += strspn(at, " ,");
        used = 0;
        if (!strchr("0123456789", *at) || /* no sign, which %lu would take */
            /* NOLINTNEXTLINE(cert-err34-c): seven digits fit into every unsigned long */
            sscanf(at, "%7lu.%7lu%n", &layer, &head, &used) != 2 || !used ||
            !strchr(" ,", at[used]) || layer >= l->config->n_layer || head >= l->config->n_head)
            return fail(FAILED,
                        "--heads: \"%s\" at \"%.20s\": expected layer.head, such as 1.0; the model "
                        "has layers 0 to %zu of heads 0 to %zu",
                        l->o.heads, at, l->config->n_layer - 1, l->config->n_head - 1);
        list[how->n_heads].layer = layer;
        list[how->n_heads++].head = head;
    }
    return how->n_heads ? FINE : fail(FAILED, "--heads names no head: give \"1.0 1.3\"");
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
    const options *o = &l->o;
    return o->heads || o->pattern || o->measure || o->exclude_bos || o->exclude_current_token;
}

static int run_detection(lens *l)
{
    static const char *const titles[] = {"previous-token heads", "duplicate-token heads",
                                         "induction heads"};
    lens_detect_desc how = ATTN_ZERO;
    lens_grid grids[LENS_N_HEAD_KINDS];
    findings found = {make_page(l, "Detected heads"), grids, l->o.pattern ? 1 : LENS_N_HEAD_KINDS,
                      NULL, NULL};
    size_t kind, i, j;
    int code;
    how.tokens = l->text.ids;
    how.n_tokens = l->text.n;
    how.measure = l->o.measure ? LENS_HEAD_ABS : LENS_HEAD_MUL;
    how.exclude_bos = l->o.exclude_bos;
    how.exclude_current_token = l->o.exclude_current_token;
    if ((code = read_heads(l, &how)) != FINE || (code = read_pattern(l, &how)) != FINE)
        return code;
    for (kind = 0; kind < found.n_grids; kind++) {
        attn_tensor scores = {0};
        how.kind = (lens_head_kind)kind;
        if (lens_detect_head(&l->ctx, &scores, l->model, &how))
            return failed(&l->ctx);
        if ((code = make_grid(l, &grids[kind], l->config->n_layer, l->config->n_head)) != FINE)
            return code;
        for (i = 0; i < grids[kind].n_rows; i++)
            for (j = 0; j < grids[kind].n_columns; j++) {
                lens_cell *cell = cell_of(&grids[kind], i, j);
                cell->number = attn_get2(scores, i, j);
                cell->text = keep(l, "%.2f", (double)cell->number);
                cell->tip = keep(l, "layer %zu, head %zu\n%.4f", i, j, (double)cell->number);
            }
        grids[kind].title = l->o.pattern ? "heads that look as the pattern says" : titles[kind];
        grids[kind].low = "-1: nothing in common";
        grids[kind].high = how.measure == LENS_HEAD_ABS ? "1: the attention is the pattern"
                                                        : "1: all of the attention";
        colour_cells(&grids[kind], 1);
    }
    found.page.note =
        keep(l, "Scores of detect_head with measure \"%s\"%s%s over %zu tokens%s. %s",
             how.measure == LENS_HEAD_ABS ? "abs" : "mul",
             how.exclude_bos ? ", without the first key" : "",
             how.exclude_current_token ? ", without the query's own position" : "", l->text.n,
             l->text.made_up ? keep(l, ", %s", l->text.made_up) : "",
             how.n_heads ? "Heads that were not asked for have -1." : "Every head was asked for.");
    return present(l, &found);
}

/* ---- without options ---- */

static int run_heads(lens *l)
{
    static const char *const titles[] = {"previous-token heads", "duplicate-token heads",
                                         "induction heads", "entropy of the attention, in nats"};
    static const char *const keys[] = {"the token before", "earlier places of the same token",
                                       "what followed those"};
    enum { N = LENS_N_HEAD_KINDS + 1 };
    const size_t n = l->text.n;
    const double even = n > 1 ? log((double)n) : 1;
    double most;
    lens_grid grids[N];
    findings found = {make_page(l, "Kinds of heads"), grids, N, NULL, NULL};
    attn_tensor entropy = {0}, scores = {0}, mean = {0};
    size_t kind, i, j;
    int code;
    if (is_detection(l))
        return run_detection(l);
    if (lens_detect_heads(&l->ctx, &entropy, &scores, l->model, l->text.ids, n) ||
        attn_mean(&l->ctx, &mean, entropy))
        return failed(&l->ctx);
    for (kind = 0; kind < N; kind++) {
        if ((code = make_grid(l, &grids[kind], l->config->n_layer, l->config->n_head)) != FINE)
            return code;
        grids[kind].title = titles[kind];
        for (i = 0; i < grids[kind].n_rows; i++)
            for (j = 0; j < grids[kind].n_columns; j++) {
                lens_cell *cell = cell_of(&grids[kind], i, j);
                cell->number = kind < LENS_N_HEAD_KINDS ? attn_get3(scores, kind, i, j)
                                                        : attn_get3(mean, i, j, 0);
                cell->text = keep(l, "%.2f", (double)cell->number);
                cell->tip = keep(l, "layer %zu, head %zu\n%.4f", i, j, (double)cell->number);
            }
        most = kind < LENS_N_HEAD_KINDS ? fitting_scale(&grids[kind], 1) : even;
        grids[kind].high = kind < LENS_N_HEAD_KINDS
                               ? keep(l, "%g%s of the attention goes to %s", most,
                                      most < 1 ? "" : ": all", keys[kind])
                               : keep(l, "%.2f: even over the whole text", even);
        colour_cells(&grids[kind], most);
    }
    found.page.note =
        keep(l,
             "Means over %zu tokens%s. A head with a large number in one of the first "
             "three grids is of that kind; duplicate-token and induction heads show "
             "in texts that repeat themselves.",
             n, l->text.made_up ? keep(l, ", %s", l->text.made_up) : "");
    return present(l, &found);
}

#endif
