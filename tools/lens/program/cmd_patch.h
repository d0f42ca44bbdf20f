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
    lens_baseline whole;      /* the answers of both texts without a patch */
    float *each;              /* of edges and nodes, with --each or --ci: as spread.h takes them */
    lens_backward backward;   /* of --estimate */
    const char *const *names; /* [n_names]: of patch, its activations */
    size_t n_names;
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

/* --pairs: each pair has its own question. Computes the means of the answers. */
static int ask_about_pairs(lens *l, patching *p)
{
    float *const logits = (float *)allocate(l, l->config->n_vocab, sizeof *logits);
    int code = FINE;
    l->baselines = (lens_baseline *)allocate(l, l->n_pairs, sizeof *l->baselines);
    if (!l->baselines || !logits)
        return failed(&l->ctx);
    p->question.metric = l->pairs[0].metric;
    p->question.text = "logits of the pairs' tokens";
    p->reason = keep(l, " (mean of %zu pairs)", l->n_pairs);
    for (size_t i = 0; i < l->n_pairs && code == FINE; i++) {
        const lens_pair *pair = &l->pairs[i];
        lens_baseline *const of = &l->baselines[i];
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
    p->pairs = l->pairs;
    p->n_pairs = l->n_pairs;
    if (l->pairs)
        return ask_about_pairs(l, p);
    int code =
        l->text.n == l->corrupted.n
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
    for (size_t i = 0; i < p->n_pairs && status == ATTN_OK; i++) {
        attn_tensor one = {0};
        status = lens_attribution_patch(&l->ctx, &one, &p->backward, &p->pairs[i], name);
        if (status == ATTN_OK)
            status = values->ndim ? attn_add(&l->ctx, values, *values, one)
                                  : attn_copy(&l->ctx, values, one);
        for (size_t k = 0; each && status == ATTN_OK && k < attn_count(one); k++)
            each[i * (2 + attn_count(one)) + 2 + k] =
                ((const float *)one.data)[k] + l->baselines[i].corrupted;
        attn_tensor_free(&l->ctx, &one);
    }
    if (status == ATTN_OK)
        status = attn_scale(&l->ctx, values, *values, 1.0f / (float)p->n_pairs);
    for (size_t i = 0; status == ATTN_OK && i < attn_count(*values); i++)
        ((float *)values->data)[i] += p->whole.corrupted;
    return status ? failed(&l->ctx) : FINE;
}

/* Labels the columns with the positions and tokens of both texts. */
static void label_both(lens *l, lens_grid *grid)
{
    grid->column_name = "position";
    for (size_t j = 0; j < grid->n_columns; j++)
        label_column(grid, j,
                     l->n_pairs > 1 ? keep(l, "%zu", j)
                     : l->text.ids[j] == l->corrupted.ids[j]
                         ? keep(l, "%zu %s", j, l->text.shown[j])
                         : keep(l, "%zu %s\n%s", j, l->text.shown[j], l->corrupted.shown[j]));
}

/* The kind of --by, or the usual kind for the activation. */
static lens_patch_kind kind_of(const lens *l, const char *name)
{
    if (l->o.by >= 0)
        return (lens_patch_kind)l->o.by;
    return lens_axes_named(name) == ATTN_AXES_POSITIONS ? LENS_PATCH_POSITIONS : LENS_PATCH_HEADS;
}

static lens_patch_desc desc_of_patch(const lens *l, const patching *p, const char *name)
{
    lens_patch_desc d = ATTN_ZERO;
    d.pairs = p->pairs;
    d.n_pairs = p->n_pairs;
    d.name = name;
    d.kind = kind_of(l, name);
    d.edits = l->edits;
    d.n_edits = l->n_edits;
    d.progress = so_far;
    d.user = (void *)(uintptr_t)l;
    return d;
}

static const char *const sweep_tables[] = {"positions", "heads",        "position_heads",
                                           "sources",   "source_heads", "weights"};

/* Rows of the table of a kind that stand before those of activation `end`, or all of them. */
static size_t rows_before(const lens *l, const patching *p, lens_patch_kind kind, size_t end)
{
    size_t n = 0;
    for (size_t i = 0; i < end; i++) {
        const lens_patch_desc d = desc_of_patch(l, p, p->names[i]);
        n += d.kind == kind ? count_of(lens_patch_shape(l->config, &d)) : 0;
    }
    return n;
}

/* Runs the sweep of activation i. In the table heads come before positions. */
static int sweep(lens *l, patching *p, size_t i, const measured_column *m)
{
    lens_patch_desc d = desc_of_patch(l, p, p->names[i]);
    const size_t n = count_of(lens_patch_shape(l->config, &d));
    size_t *const at = (size_t *)allocate(l, n, sizeof *at);
    attn_tensor values = {0};
    int code = FINE;
    if (!at || room_for_each(l, &d.each, n) != ATTN_OK)
        return failed(&l->ctx);
    if (l->o.estimate && (code = estimate(l, p, d.name, &values, d.each)) != FINE)
        return code;
    if (!l->o.estimate && lens_patch(&l->ctx, &values, &p->whole, l->model, &d) != ATTN_OK)
        return failed(&l->ctx);
    const attn_tensor rows = values.ndim == 3 ? attn_transpose(values, 1, 2) : values;
    for (size_t k = 0; k < n; k++)
        at[k] = (size_t)answer_offset(rows, k);
    take_rows(l, m, rows_before(l, p, d.kind, i), at, n,
              (results){(const float *)values.data, d.each, n, 0});
    attn_tensor_free(&l->ctx, &values);
    return outcome(&l->ctx);
}

static double change_of(const patching *p, const lens_cell *cell)
{
    return cell->number - (double)p->whole.corrupted;
}

/* A cell shows its change divided by `unit`; `most` of them have the full colour. */
static void dress_patch(lens *l, const patching *p, const lens_grid *grid, size_t index,
                        double unit, double most)
{
    lens_cell *cell = cell_of(grid, 0, index);
    const double change = change_of(p, cell), value = change / unit;
    const char *column = grid->columns[index % grid->n_columns], *second = svg_next(column);
    cell->colour = (float)(value / most);
    cell->text = hundredths(l, value);
    cell->tip =
        keep(l, "%s %s, %s %.*s%s%s\n%s: %.4f\n%+.4f logits%s", grid->row_name,
             grid->rows[index / grid->n_columns], grid->column_name, (int)strcspn(column, "\n"),
             column, second ? "/" : "", second ? second : "", p->question.text, cell->number,
             change, is_small(p) ? "" : keep(l, ", %.3f of the gap", value));
}

/* Cells show shares of the gap; if the gap is small, changes in logits. */
static void dress_changes(lens *l, const patching *p)
{
    const int small = is_small(p);
    const double unit = small ? 1 : gap_of(p);
    double largest = 1e-9;
    for (size_t g = 0; g < l->shown.n_grids; g++)
        for (size_t i = 0; i < n_cells(&l->shown.grids[g]); i++)
            largest = fmax(largest, fabs(change_of(p, &l->shown.grids[g].cells[i])));
    const double most = small ? largest : fitting(fabs(largest / unit), 1);
    const char *const whole = most < 1 ? " of the gap" : ": as in the clean text";
    const char *const other = most < 1 ? " of the gap" : ": as far the other way";
    for (size_t g = 0; g < l->shown.n_grids; g++) {
        lens_grid *const grid = &l->shown.grids[g];
        grid->low = keep(l, small ? "-%.2f%s" : "-%g%s", most, small ? " logits" : other);
        grid->high = keep(l, small ? "%.2f%s" : "%g%s", most, small ? " logits" : whole);
        for (size_t i = 0; i < n_cells(grid); i++)
            dress_patch(l, p, grid, i, unit, most);
    }
}

/* Grid g of the sweep of activation i, whose rows are layers; or heads if each layer has a grid; or queries if each head has
 * one. It shows the rows of the sweep's table from `first` on. */
static void add_patch_grid(lens *l, const char *name, lens_patch_kind kind, size_t g, size_t first)
{
    static const char *const each[] = {"at one position",
                                       "of one head at all positions",
                                       "of one head at one position",
                                       "at one key, of all queries and heads",
                                       "of one head at one key, of all queries",
                                       "one weight"};
    const size_t n_layer = l->config->n_layer, n_head = l->config->n_head, n = l->text.n;
    const int of_weights = kind == LENS_PATCH_WEIGHTS;
    const int of_heads = kind == LENS_PATCH_POSITION_HEADS || kind == LENS_PATCH_SOURCE_HEADS;
    lens_grid *const grid =
        add_grid(l,
                 of_weights ? keep(l, "layer %zu, head %zu, %s, %s", g / n_head, g % n_head, name,
                                   each[kind])
                 : of_heads && n_layer > 1 ? keep(l, "layer %zu, %s, %s", g, name, each[kind])
                                           : keep(l, "%s, %s", name, each[kind]),
                 of_weights ? n
                 : of_heads ? n_head
                            : n_layer,
                 kind == LENS_PATCH_HEADS ? n_head : n);
    if (kind != LENS_PATCH_HEADS)
        label_both(l, grid);
    if (of_heads)
        grid->row_name = "head";
    if (of_weights)
        name_axes(grid, "query", "key");
    show_column(l, grid, sweep_tables[kind], "answer", first + g * n_cells(grid));
}

static void dress_patches(lens *l, const void *of)
{
    const patching *const p = (const patching *)of;
    for (size_t i = 0; i < p->n_names; i++) {
        const lens_patch_kind kind = kind_of(l, p->names[i]);
        const size_t first = rows_before(l, p, kind, i);
        const size_t n = kind == LENS_PATCH_WEIGHTS ? l->config->n_layer * l->config->n_head
                         : kind == LENS_PATCH_POSITION_HEADS || kind == LENS_PATCH_SOURCE_HEADS
                             ? l->config->n_layer
                             : 1;
        for (size_t g = 0; g < n; g++)
            add_patch_grid(l, p->names[i], kind, g, first);
    }
    dress_changes(l, p);
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
    if (lens_no_gap(&p->whole).text[0])
        return keep(l, "warning: %s.%s", lens_no_gap(&p->whole).text, advice);
    return keep(l,
                "warning: the gap between the texts is only %.3f logits. A share of so small a "
                "gap says little, so cells show changes in logits.%s",
                fabs(gap_of(p)), advice);
}

/* What the texts answer, as facts. */
static void add_patching(lens *l, const patching *p)
{
    facts(l, "clean corrupted gap", p->whole.clean, p->whole.corrupted, gap_of(p));
    if (l->pairs)
        facts(l, "n_pairs:z", p->n_pairs);
    facts(l, "gap_is_small:b", is_small(p));
    add_question(l, &p->question);
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

/* The table of a kind of sweep, if there is one; its axes are the activations and those of one sweep. */
static const measured_column *add_sweep(lens *l, const patching *p, lens_patch_kind kind)
{
    const char **const some = (const char **)allocate(l, p->n_names, sizeof *some);
    answer *const a = &l->answer;
    size_t n = 0;
    for (size_t i = 0; some && i < p->n_names; i++)
        if (kind_of(l, p->names[i]) == kind)
            some[n++] = p->names[i];
    if (!n)
        return NULL;
    answer_table *const t = add_table(l, sweep_tables[kind]);
    add_names(l, t, "activation", some, n);
    answer_axis(a, t, "layer", l->config->n_layer);
    if (kind != LENS_PATCH_POSITIONS && kind != LENS_PATCH_SOURCES)
        answer_axis(a, t, "head", l->config->n_head);
    if (kind == LENS_PATCH_WEIGHTS)
        answer_axis(a, t, "query", l->text.n);
    if (kind == LENS_PATCH_WEIGHTS || kind == LENS_PATCH_SOURCES || kind == LENS_PATCH_SOURCE_HEADS)
        answer_axis(a, t, "key", l->text.n);
    else if (kind != LENS_PATCH_HEADS)
        add_positions(l, t, &l->text, 0, l->text.n);
    return new_measure(l, t, "answer");
}

static int sweep_all(lens *l, patching *p)
{
    const measured_column *of[LENS_PATCH_WEIGHTS + 1];
    int code = FINE;
    answer_facts(&l->answer); /* is the first table */
    for (int kind = 0; kind <= LENS_PATCH_WEIGHTS; kind++)
        of[kind] = add_sweep(l, p, (lens_patch_kind)kind);
    if (l->ctx.status)
        return failed(&l->ctx);
    l->n_parts = p->n_names;
    for (size_t i = 0; i < p->n_names && code == FINE; i++) {
        l->part = i;
        code = sweep(l, p, i, of[kind_of(l, p->names[i])]);
    }
    lens_backward_free(&l->ctx, &p->backward);
    return code;
}

static int run_patch(lens *l, void *finding)
{
    static const char *const usual[] = {"hook_resid_pre", "hook_attn_out", "hook_mlp_out",
                                        "attn.hook_z"};
    static const char *const over[] = {"attn.hook_pattern"};
    const int by = l->o.by; /* a lens_patch_kind; -1: not given */
    patching *const p = (patching *)finding;
    int code;
    show_as(l, "Activation patching", dress_patches);
    p->names = l->o.names.n               ? l->o.names.at
               : by >= LENS_PATCH_SOURCES ? over
               : by > 0                   ? usual + 3
                                          : usual;
    p->n_names = l->o.names.n ? l->o.names.n : by > 0 ? 1 : by == 0 ? 3 : 4;
    if ((code = ask_about_patches(l, p)) != FINE || (code = sweep_all(l, p)) != FINE)
        return code;
    add_patching(l, p);
    l->shown.page.warning = warn_of_gap(l, p);
    l->shown.page.note = note_of_patches(
        l, p,
        l->o.estimate ? keep(l,
                             "Each cell estimates, by the gradient%s, the corrupted text with one "
                             "activation of the clean text",
                             l->o.method > 0 ? keep(l, " (%s)", methods[l->o.method].title) : "")
                      : "Each cell runs the corrupted text with one activation of the clean text");
    return show_pairs(l, spread_of(p));
}

#endif
