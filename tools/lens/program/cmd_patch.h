/* lens patch: which activations of the clean text, patched into the corrupted one, restore its answer. */
#ifndef LENS_CMD_PATCH_H
#define LENS_CMD_PATCH_H

#include "cmd_gradients.h"
#include "each_pair.h"
#include "pair_file.h"
#include "tools/lens/pairs.h"
#include "tools/lens/patch.h"
#include "question.h"

/* A share of a gap below this many logits is mostly noise. */
static const double small_gap = 0.5;

typedef struct patching {
    question question, changes; /* changes: the likely tokens whose logits change most */
    double changes_gap;
    const char *reason;     /* why this question was chosen, if the user asked none */
    lens_pair pair;         /* of the command line */
    const lens_pair *pairs; /* [n_pairs]: &pair, or those of --pairs */
    size_t n_pairs;
    lens_baseline whole;    /* the answers of both texts without a patch */
    lens_baseline *answers; /* [n_pairs]: the same of each pair of --pairs */
    float *each;            /* of edges and nodes, with --each or --ci: as spread.h takes them */
    lens_backward backward; /* of --estimate */
} patching;

static double gap_of(const patching *p)
{
    return (double)p->whole.clean - (double)p->whole.corrupted;
}

static int is_small(const patching *p)
{
    return !(fabs(gap_of(p)) >= small_gap);
}

/* Cells show shares of the gap, or changes. */
static lens_spread_kind spread_of(const patching *p)
{
    return is_small(p) ? LENS_SPREAD_CHANGES : LENS_SPREAD_SHARES;
}

/* Finds, among the likeliest tokens after either text, the token whose logit is highest in the clean text
 * relative to the corrupted one, and the token whose logit is lowest. (Logits of rare tokens may differ
 * more, but say less.) `logits` are [2, n_vocab]: clean, corrupted. */
static int find_changes(lens *l, float *logits, patching *p)
{
    enum { MOST = 50 };
    const size_t n_vocab = l->config->n_vocab, k = n_vocab < MOST ? n_vocab : MOST;
    const attn_tensor rows = attn_borrow(logits, ATTN_F32, attn_shape2(2, n_vocab));
    attn_prediction top[2 * MOST] = {{0, 0, 0}};
    double most = -INFINITY, least = INFINITY;
    size_t i;
    p->changes.metric.kind = LENS_METRIC_LOGIT_DIFF;
    if (attn_logit_stats(&l->ctx, NULL, &(attn_top){top, k}, rows, NULL))
        return failed(&l->ctx);
    for (i = 0; i < 2 * k; i++) {
        const attn_token id = top[i].token;
        const double change = (double)logits[id] - (double)logits[n_vocab + (size_t)id];
        if (change > most) {
            most = change;
            p->changes.metric.token = id;
        }
        if (change < least) {
            least = change;
            p->changes.metric.against = id;
        }
    }
    p->changes_gap = most - least;
    return FINE;
}

/* Chooses a question: the difference of two logits that differs between the texts. */
static int choose_question(lens *l, patching *p)
{
    const size_t n_vocab = l->config->n_vocab;
    float *logits = (float *)allocate(l, 2 * n_vocab, sizeof *logits);
    lens_metric *const m = &p->question.metric;
    int code;
    if (!logits)
        return failed(&l->ctx);
    m->kind = LENS_METRIC_LOGIT_DIFF;
    if ((code = likeliest(l, &l->text, l->text.n, &m->token, logits)) != FINE ||
        (code = likeliest(l, &l->corrupted, l->text.n, &m->against, logits + n_vocab)) != FINE ||
        (code = find_changes(l, logits, p)) != FINE)
        return code;
    p->reason = l->o.token ? "" : " (the likeliest token after each text)";
    if (!l->o.token && m->token == m->against) {
        if (p->changes.metric.token == p->changes.metric.against)
            return fail(FAILED, "the logits are the same after both texts: patching needs two "
                                "texts that the model tells apart");
        p->reason = keep(l,
                         " (%s is the likeliest token after both texts; of the likely tokens, the "
                         "logits of these two change most)",
                         quoted_token(l, m->token));
        p->question = p->changes;
    }
    if ((code = name_tokens(l, &p->question)) == FINE) {
        p->whole.clean = lens_logit_value(m, logits);
        p->whole.corrupted = lens_logit_value(m, logits + n_vocab);
    }
    return code;
}

/* Reads a whole number at *at, and moves *at behind it. */
static int read_number(const char **at, size_t *number)
{
    char *end;
    if (**at < '0' || **at > '9')
        return 0;
    *number = (size_t)strtoul(*at, &end, 10);
    *at = end;
    return 1;
}

/* Reads L.H, a head of the model, up to a comma or the end. */
static int read_head(const lens *l, const char *option, const char **at, size_t *layer,
                     size_t *head)
{
    const char *const word = *at;
    if (!read_number(at, layer) || *(*at)++ != '.' || !read_number(at, head) ||
        (**at && **at != ','))
        return fail(USAGE, "--%s: \"%s\" is not a layer and a head, such as 0.1", option, word);
    if (*layer >= l->config->n_layer || *head >= l->config->n_head)
        return fail(FAILED,
                    "--%s: there is no head %zu.%zu: the model has layers 0 to %u of heads 0 to %u",
                    option, *layer, *head, (unsigned)l->config->n_layer - 1,
                    (unsigned)l->config->n_head - 1);
    *at += **at == ',';
    return FINE;
}

/* --pairs: each pair has its own question. Computes the means of the answers. */
static int ask_about_pairs(lens *l, patching *p)
{
    float *const logits = (float *)allocate(l, l->config->n_vocab, sizeof *logits);
    size_t i;
    int code = FINE;
    p->answers = (lens_baseline *)allocate(l, l->n_pairs, sizeof *p->answers);
    if (!p->answers || !logits)
        return failed(&l->ctx);
    p->question.metric = l->pairs[0].metric;
    p->question.text = "logits of the pairs' tokens";
    p->reason = keep(l, " (mean of %zu pairs)", l->n_pairs);
    for (i = 0; i < l->n_pairs && code == FINE; i++) {
        const lens_pair *pair = &l->pairs[i];
        lens_baseline *const of = &p->answers[i];
        const size_t n = pair->n_tokens;
        if ((code = logits_after(l, pair->clean, n, n, logits)) != FINE)
            return code;
        of->clean = lens_logit_value(&pair->metric, logits);
        code = logits_after(l, pair->corrupted, n, n, logits);
        of->corrupted = lens_logit_value(&pair->metric, logits);
        p->whole.clean += of->clean / (float)l->n_pairs;
        p->whole.corrupted += of->corrupted / (float)l->n_pairs;
    }
    return code;
}

static int ask_about_patches(lens *l, patching *p)
{
    int code;
    p->pairs = l->pairs;
    p->n_pairs = l->n_pairs;
    if (l->pairs)
        return ask_about_pairs(l, p);
    code = l->text.n == l->corrupted.n
               ? choose_question(l, p)
               : fail(FAILED, "the texts have %zu and %zu tokens; patching needs as many in both",
                      l->text.n, l->corrupted.n);
    p->pair.clean = l->text.ids;
    p->pair.corrupted = l->corrupted.ids;
    p->pair.n_tokens = l->text.n;
    p->pair.metric = p->question.metric;
    p->pairs = &p->pair;
    p->n_pairs = 1;
    return code;
}

/* --estimate: the results of one sweep by attribution patching, with one backward pass for each pair. each (may
 * be NULL) becomes their answers, as lens_patch writes them. */
static int estimate(lens *l, patching *p, const char *name, attn_tensor *values, float *each)
{
    attn_status status = p->backward.model ? ATTN_OK : new_backward(l, &p->backward);
    size_t i, k;
    for (i = 0; i < p->n_pairs && status == ATTN_OK; i++) {
        attn_tensor one = {0};
        status = lens_attribution_patch(&l->ctx, &one, &p->backward, &p->pairs[i], name);
        if (status == ATTN_OK)
            status = values->ndim ? attn_add(&l->ctx, values, *values, one)
                                  : attn_copy(&l->ctx, values, one);
        for (k = 0; each && status == ATTN_OK && k < attn_count(one); k++)
            each[i * (2 + attn_count(one)) + 2 + k] =
                ((const float *)one.data)[k] + p->answers[i].corrupted;
        attn_tensor_free(&l->ctx, &one);
    }
    if (status == ATTN_OK)
        status = attn_scale(&l->ctx, values, *values, 1.0f / (float)p->n_pairs);
    for (i = 0; status == ATTN_OK && i < attn_count(*values); i++)
        ((float *)values->data)[i] += p->whole.corrupted;
    return status ? failed(&l->ctx) : FINE;
}

/* The values of grid i of a sweep, [n_rows, n_columns]. */
static attn_tensor values_of_grid(const lens *l, attn_tensor values, lens_patch_kind kind, size_t i)
{
    if (kind == LENS_PATCH_WEIGHTS)
        return attn_select(attn_select(values, 0, i / l->config->n_head), 0, i % l->config->n_head);
    return values.ndim == 3 ? attn_transpose(attn_select(values, 0, i), 0, 1) : values;
}

/* Labels the columns with the positions and tokens of both texts. */
static void label_both(lens *l, lens_grid *grid)
{
    size_t j;
    label_positions(l, grid);
    for (j = 0; j < grid->n_columns; j++)
        if (l->n_pairs > 1)
            ((const char **)grid->columns)[j] = keep(l, "%zu", j);
        else if (l->text.ids[j] != l->corrupted.ids[j])
            ((const char **)grid->columns)[j] =
                keep(l, "%s\n%s", grid->columns[j], l->corrupted.shown[j]);
}

/* The kind of --by, or the usual kind for the activation. */
static lens_patch_kind kind_of(const lens *l, const char *name)
{
    if (l->o.by >= 0)
        return (lens_patch_kind)l->o.by;
    return lens_axes_named(name) == ATTN_AXES_POSITIONS ? LENS_PATCH_POSITIONS : LENS_PATCH_HEADS;
}

/* Number of grids: one, one for each layer, or one for each head. */
static size_t n_grids_of(const lens *l, const char *name)
{
    const lens_patch_kind kind = kind_of(l, name);
    return kind == LENS_PATCH_WEIGHTS ? (size_t)l->config->n_layer * l->config->n_head
           : kind == LENS_PATCH_POSITION_HEADS || kind == LENS_PATCH_SOURCE_HEADS
               ? l->config->n_layer
               : 1;
}

/* Makes grid i of a sweep, with its labels; finish_patches adds texts and colours. Rows are layers; or heads if each layer has a grid; or queries if
 * each head has a grid. */
static int fill_sweep(lens *l, lens_grid *grid, attn_tensor values, lens_patch_kind kind, size_t i)
{
    const attn_tensor there = values_of_grid(l, values, kind, i);
    size_t t;
    const int code = make_grid(l, grid, there.shape[0], there.shape[1]);
    if (code != FINE)
        return code;
    for (t = 0; t < attn_count(there); t++)
        cell_of(grid, 0, t)->number = attn_get2(there, t / grid->n_columns, t % grid->n_columns);
    if (kind != LENS_PATCH_HEADS)
        label_both(l, grid);
    if (kind == LENS_PATCH_POSITION_HEADS || kind == LENS_PATCH_SOURCE_HEADS)
        grid->row_name = "head";
    if (kind == LENS_PATCH_WEIGHTS) {
        grid->row_name = "query";
        grid->column_name = "key";
        for (t = 0; t < grid->n_rows; t++)
            ((const char **)grid->rows)[t] = keep(l, "%zu", t);
    }
    return outcome(&l->ctx);
}

/* Gives grid i what each pair has there. */
static int fill_each(lens *l, const patching *p, lens_grid *grid, const lens_patch_desc *d,
                     size_t i)
{
    const attn_shape shape = lens_patch_shape(l->config, d);
    const int code = make_each(l, grid, p->answers);
    size_t pair, k;
    for (pair = 0; d->each && code == FINE && pair < l->n_pairs; pair++) {
        const attn_tensor one =
            attn_borrow(d->each + pair * (2 + count_of(shape)) + 2, ATTN_F32, shape);
        const attn_tensor there = values_of_grid(l, one, d->kind, i);
        for (k = 0; k < attn_count(there); k++)
            cells_of_pair(grid, pair)[k] = attn_get2(there, k / there.shape[1], k % there.shape[1]);
    }
    return code;
}

/* Runs the sweep of one activation, and makes its grids. */
static int sweep(lens *l, patching *p, const char *name, lens_grid *grids)
{
    static const char *const each[] = {"at one position",
                                       "of one head at all positions",
                                       "of one head at one position",
                                       "at one key, of all queries and heads",
                                       "of one head at one key, of all queries",
                                       "one weight"};
    const lens_patch_kind kind = kind_of(l, name);
    const size_t n = n_grids_of(l, name);
    lens_patch_desc d = ATTN_ZERO;
    attn_tensor values = {0};
    size_t i;
    int code = FINE;
    d.pairs = p->pairs;
    d.n_pairs = p->n_pairs;
    d.name = name;
    d.kind = kind;
    d.edits = l->edits;
    d.n_edits = l->n_edits;
    if (room_for_each(l, &d.each, count_of(lens_patch_shape(l->config, &d))) != ATTN_OK)
        return failed(&l->ctx);
    if (l->o.estimate && (code = estimate(l, p, name, &values, d.each)) != FINE)
        return code;
    if (!l->o.estimate && lens_patch(&l->ctx, &values, &p->whole, l->model, &d) != ATTN_OK)
        return failed(&l->ctx);
    for (i = 0; i < n && code == FINE; i++) {
        if ((code = fill_sweep(l, &grids[i], values, kind, i)) == FINE)
            code = fill_each(l, p, &grids[i], &d, i);
        grids[i].title = keep(l, "%s, %s", name, each[kind]);
        if (kind == LENS_PATCH_WEIGHTS)
            grids[i].title = keep(l, "layer %zu, head %zu, %s, %s", i / l->config->n_head,
                                  i % l->config->n_head, name, each[kind]);
        else if (n > 1)
            grids[i].title = keep(l, "layer %zu, %s, %s", i, name, each[kind]);
    }
    attn_tensor_free(&l->ctx, &values);
    return code == FINE ? outcome(&l->ctx) : code;
}

static double change_of(const patching *p, const lens_cell *cell)
{
    return (double)cell->number - (double)p->whole.corrupted;
}

static double largest_change(const patching *p, const lens_grid *grids, size_t n)
{
    double most = 1e-9;
    size_t g, i;
    for (g = 0; g < n; g++)
        for (i = 0; i < grids[g].n_rows * grids[g].n_columns; i++)
            most = fmax(most, fabs(change_of(p, &grids[g].cells[i])));
    return most;
}

/* A cell shows its change divided by `unit`; `most` of them have the full colour. */
static void finish_patch(lens *l, const patching *p, const lens_grid *grid, size_t index,
                         double unit, double most)
{
    lens_cell *cell = cell_of(grid, 0, index);
    const double change = change_of(p, cell), value = change / unit;
    const char *column = grid->columns[index % grid->n_columns], *second = svg_next(column);
    cell->colour = (float)(value / most);
    cell->text = keep(l, "%.2f", fabs(value) < 0.005 ? 0.0 : value);
    cell->tip =
        keep(l, "%s %s, %s %.*s%s%s\n%s: %.4f\n%+.4f logits%s", grid->row_name,
             grid->rows[index / grid->n_columns], grid->column_name, (int)strcspn(column, "\n"),
             column, second ? "/" : "", second ? second : "", p->question.text,
             (double)cell->number, change, is_small(p) ? "" : keep(l, ", %.3f of the gap", value));
}

/* Cells show shares of the gap; if the gap is small, changes in logits. */
static void finish_patches(lens *l, const patching *p, lens_grid *grids, size_t n)
{
    const double unit = is_small(p) ? 1 : gap_of(p), largest = largest_change(p, grids, n);
    const double most = is_small(p) ? largest : fitting(fabs(largest / unit), 1);
    size_t g, i;
    for (g = 0; g < n; g++) {
        const char *const whole = most < 1 ? " of the gap" : ": as in the clean text";
        const char *const other = most < 1 ? " of the gap" : ": as far the other way";
        grids[g].low =
            keep(l, is_small(p) ? "-%.2f%s" : "-%g%s", most, is_small(p) ? " logits" : other);
        grids[g].high =
            keep(l, is_small(p) ? "%.2f%s" : "%g%s", most, is_small(p) ? " logits" : whole);
        for (i = 0; i < grids[g].n_rows * grids[g].n_columns; i++)
            finish_patch(l, p, &grids[g], i, unit, most);
    }
}

/* A token in the form that --token takes. */
static const char *token_argument(lens *l, attn_token id)
{
    size_t size = 0;
    const char *bytes =
        l->tokenizer && !l->o.ids ? attn_token_bytes(&size, l->tokenizer, id) : NULL;
    return bytes ? quoted(l, bytes, size) : keep(l, "%ld", (long)id);
}

/* A warning if the gap is small, else NULL. */
static const char *warn_of_gap(lens *l, const patching *p)
{
    const lens_metric *other = &p->changes.metric;
    const char *advice = "";
    if (!is_small(p))
        return NULL;
    if (p->changes_gap > 2 * fabs(gap_of(p)))
        advice =
            keep(l, " With --token %s --against %s it is %.3f.", token_argument(l, other->token),
                 token_argument(l, other->against), p->changes_gap);
    return keep(l,
                "warning: the gap between the texts is only %.3f logits. A share of so small a "
                "gap says little, so cells show changes in logits.%s",
                fabs(gap_of(p)), advice);
}

static void json_patches(const lens *l, const void *of)
{
    const patching *p = (const patching *)of;
    json_named("\"clean\": ", (double)p->whole.clean);
    json_named(", \"corrupted\": ", (double)p->whole.corrupted);
    json_named(", \"gap\": ", gap_of(p));
    if (l->pairs)
        printf(", \"pairs\": %zu", p->n_pairs);
    printf(", \"gap_is_small\": %s", is_small(p) ? "true" : "false");
    json_question(l, &p->question);
}

/* The begin of a note above the grids: the question and its answers. */
static const char *answers_of(lens *l, const patching *p)
{
    return keep(l, "%s%s: %.3f after the clean text, %.3f after the corrupted one",
                p->question.text, p->reason, (double)p->whole.clean, (double)p->whole.corrupted);
}

/* The note of a sweep: the answers, and what a cell does and shows. */
static const char *note_of_patches(lens *l, const patching *p, const char *each_cell)
{
    return keep(l, "%s, a gap of %.3f. %s and shows %s.", answers_of(l, p), gap_of(p), each_cell,
                is_small(p) ? "by how many logits this changes the answer"
                            : "the share of the gap that this restores: 0 none, 1 all of it");
}

static int run_patch(lens *l)
{
    static const char *const usual[] = {"hook_resid_pre", "hook_attn_out", "hook_mlp_out",
                                        "attn.hook_z"};
    static const char *const over[] = {"attn.hook_pattern"};
    const int by = l->o.by; /* a lens_patch_kind; -1: not given */
    const char *const *names = l->n_names                 ? l->names
                               : by >= LENS_PATCH_SOURCES ? over
                               : by > 0                   ? usual + 3
                                                          : usual;
    const size_t n_usual = by > 0 ? 1 : by == 0 ? 3 : 4;
    const size_t n_names = l->n_names ? l->n_names : n_usual;
    lens_grid *grids;
    patching p = {0};
    findings found = {make_page(l, "Activation patching"), NULL, 0, json_patches, &p};
    size_t i, n = 0;
    int code;
    for (i = 0; i < n_names; i++)
        n += n_grids_of(l, names[i]);
    found.grids = grids = (lens_grid *)allocate(l, n, sizeof *grids);
    if (!grids)
        return failed(&l->ctx);
    if ((code = ask_about_patches(l, &p)) != FINE)
        return code;
    for (i = 0; i < n_names && code == FINE; i++) {
        code = sweep(l, &p, names[i], grids + found.n_grids);
        found.n_grids += n_grids_of(l, names[i]);
    }
    lens_backward_free(&l->ctx, &p.backward);
    if (code != FINE)
        return code;
    finish_patches(l, &p, grids, n);
    found.page.warning = warn_of_gap(l, &p);
    found.page.note = note_of_patches(
        l, &p,
        l->o.estimate ? keep(l,
                             "Each cell estimates, by the gradient%s, the corrupted text with one "
                             "activation of the clean text",
                             l->o.method > 0 ? keep(l, " (%s)", methods[l->o.method].title) : "")
                      : "Each cell runs the corrupted text with one activation of the clean text");
    return present_pairs(l, &found, spread_of(&p));
}

#endif
