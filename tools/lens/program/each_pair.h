/* --pairs: the numbers of every pair, which --each writes, and the spread of their means, which --ci shows. */
#ifndef LENS_EACH_PAIR_H
#define LENS_EACH_PAIR_H

#include "findings.h"
#include "tools/lens/sweep.h"

static int wants_each(const lens *l)
{
    return l->o.each || l->o.ci;
}

/* *each: room for what every pair answers to both texts and for its numbers, [n_pairs, 2 + n]; NULL without --each and --ci. */
static attn_status room_for_each(lens *l, float **each, size_t n)
{
    *each = wants_each(l) ? (float *)allocate(l, l->n_pairs * (2 + n), sizeof(float)) : NULL;
    for (size_t i = 0; *each && l->baselines && i < l->n_pairs; i++) {
        (*each)[i * (2 + n)] = l->baselines[i].clean;
        (*each)[i * (2 + n) + 1] = l->baselines[i].corrupted;
    }
    return wants_each(l) && !*each ? l->ctx.status : ATTN_OK;
}

static size_t count_of(attn_shape shape)
{
    size_t n = 1;
    for (int i = 0; i < shape.ndim; i++)
        n *= shape.dim[i];
    return n;
}

/* ---- columns that are measured ---- */

/* Says that the first n numbers of a column are measured for every pair, too. NULL without memory. */
static measured_column *add_measure(lens *l, answer_table *t, const char *column, size_t n)
{
    measured_column *const m = &l->shown.measures[l->shown.n_measures];
    if (l->ctx.status)
        return NULL;
    *m = (measured_column){.table = t, .column = column, .name = column, .n = n};
    m->numbers = (double *)answer_column_named(t, column)->numbers;
    if (room_for_each(l, &m->each, n) != ATTN_OK)
        return NULL;
    l->shown.n_measures++;
    return m;
}

/* A further column whose numbers are all measured. */
static measured_column *new_measure(lens *l, answer_table *t, const char *column)
{
    answer_add_columns(&l->answer, t, column);
    return add_measure(l, t, column, t ? answer_n_rows(t) : 0);
}

/* What was measured: numbers [n], and with --each or --ci those of every pair, [n_pairs, 2 + n]. Numbers NULL: the column has
 * them. */
typedef struct results {
    const float *numbers, *each;
    size_t n;
    float otherwise; /* in place of a number that is not_given */
} results;

/* Rows [first, first + n) get number at[i] of the results, or without `at` number i. For every pair one that is not_given is
 * the answer to the corrupted text. */
static void take_rows(const lens *l, const measured_column *m, size_t first, const size_t *at,
                      size_t n, results from)
{
    for (size_t i = 0; i < n && from.numbers; i++) {
        const size_t k = at ? at[i] : i;
        m->numbers[first + i] = (double)(k == not_given ? from.otherwise : from.numbers[k]);
    }
    for (size_t pair = 0; m->each && pair < l->n_pairs; pair++) {
        const float *const row = from.each + pair * (2 + from.n);
        float *const to = m->each + pair * (2 + m->n);
        memcpy(to, row, 2 * sizeof *row);
        for (size_t i = 0; i < n; i++) {
            const size_t k = at ? at[i] : i;
            to[2 + first + i] = row[k == not_given ? 1 : 2 + k];
        }
    }
}

/* The n rows of a measure were chosen by their numbers, the first of at [n_all]. */
static void choose_rows(measured_column *m, const size_t *at, size_t n_all, results from)
{
    m->all = from.each;
    m->width = from.n;
    m->others = at + m->n;
    m->n_others = n_all - m->n;
}

/* ---- tables ---- */

/* A copy of the keys of a table, along axes of which one more stands in front. Of a table of rows, the first n. */
static void copy_keys(lens *l, answer_table *to, const answer_table *from, size_t n)
{
    const int is_rows = from->n_columns && from->columns[0].axis == CELLS;
    for (int i = 0; i < from->n_axes; i++)
        to->axes[to->n_axes++] = is_rows ? n : from->axes[i];
    for (size_t i = 0; i < from->n_keys; i++) {
        answer_column *const c = answer_column_new(
            &l->answer, to, is_rows ? 1 : from->columns[i].axis + 1, "", LENS_NUMBERS);
        if (!c)
            return;
        const int axis = c->axis;
        *c = from->columns[i];
        c->axis = axis;
    }
}

/* "TABLE_each": for every pair the keys, what the pair answers to both texts, and the numbers, of which those of further
 * measures of the table follow. */
static void add_each(lens *l, const measured_column *m)
{
    const char *const name = keep(l, "%s_each", m->table->name);
    answer_table *t = answer_named(&l->answer, name);
    if (!t) {
        t = add_table(l, name);
        answer_axis(&l->answer, t, "pair", l->n_pairs);
        if (!t)
            return;
        copy_keys(l, t, m->table, m->n);
        double *const clean = answer_numbers(&l->answer, t, 0, "clean", LENS_NUMBERS);
        double *const corrupted = answer_numbers(&l->answer, t, 0, "corrupted", LENS_NUMBERS);
        t->n_keys = 1 + m->table->n_keys;
        for (size_t pair = 0; corrupted && pair < l->n_pairs; pair++) {
            clean[pair] = (double)m->each[pair * (2 + m->n)];
            corrupted[pair] = (double)m->each[pair * (2 + m->n) + 1];
        }
    }
    double *const to = answer_numbers(&l->answer, t, CELLS, m->name, LENS_NUMBERS);
    for (size_t i = 0; to && i < l->n_pairs * m->n; i++)
        to[i] = (double)m->each[i / m->n * (2 + m->n) + 2 + i % m->n];
}

/* Columns "mean", "low", "high" and "p"; of a second measure of a table "NAME_mean" ... */
static void add_spread_columns(lens *l, const measured_column *m, int is_second)
{
    static const char *const names[] = {"mean", "low", "high", "p"};
    for (int k = 0; k < 4; k++) {
        const char *const name = is_second ? keep(l, "%s_%s", m->column, names[k]) : names[k];
        double *const to = answer_numbers(&l->answer, m->table, CELLS, name, LENS_NUMBERS);
        for (size_t i = 0; to && i < m->n; i++)
            to[i] = figure_of(&m->spreads[i], k);
    }
}

/* ---- spreads ---- */

/* Marks a cell whose interval has 0, and adds the interval to its tip. */
static void mark_cell(lens *l, lens_cell *cell)
{
    const lens_spread *const s = cell->spread;
    if (!s || !isfinite(s->low))
        return;
    if (!(s->low > 0 || s->high < 0))
        cell->text = keep(l, "·%s", cell->text);
    cell->tip =
        keep(l, "%s\n95 %% interval %.4f to %.4f\np %.4f", cell->tip, s->low, s->high, s->p);
}

/* Corrects the p-values of rows that were chosen, over all among which they were. */
static attn_status correct_chosen(lens *l, const measured_column *m)
{
    lens_spread *const all = (lens_spread *)allocate(l, m->n + m->n_others, sizeof *all);
    double *const values = (double *)allocate(l, l->n_pairs * LENS_LANES, sizeof *values);
    double p[LENS_LANES];
    if (!all || !values)
        return l->ctx.status;
    memcpy(all, m->spreads, m->n * sizeof *all);
    for (size_t i = 0; i < m->n_others; i += LENS_LANES) {
        const size_t n = m->n_others - i < LENS_LANES ? m->n_others - i : LENS_LANES;
        if (was_stopped(l))
            return ATTN_STOPPED;
        for (size_t pair = 0; pair < l->n_pairs; pair++)
            for (size_t k = 0; k < n; k++)
                values[pair * LENS_LANES + k] =
                    (double)m->all[pair * (2 + m->width) + 2 + m->others[i + k]];
        lens_sign_flips(p, values, l->n_pairs);
        for (size_t k = 0; k < n; k++)
            all[m->n + i + k].p = p[k];
    }
    const attn_status status = lens_holm(&l->ctx, all, m->n + m->n_others);
    memcpy(m->spreads, all, m->n * sizeof *all);
    return status;
}

/* Computes the spreads of measures [n]. The p-values are corrected over all of them, of chosen rows over all of that measure;
 * n_nodes: over the pairs of nodes of the only one, which is a matrix that has each pair twice. */
static int find_spreads(lens *l, measured_column *measures, size_t n, lens_spread_kind kind,
                        size_t n_nodes)
{
    size_t n_all = 0, first = 0;
    for (size_t i = 0; i < n; i++)
        n_all += measures[i].n;
    lens_spread *const all = (lens_spread *)allocate(l, n_all, sizeof *all);
    for (size_t i = 0; all && i < n; first += measures[i].n, i++) {
        measures[i].spreads = all + first;
        if (lens_spreads(&l->ctx, all + first, measures[i].each, l->n_pairs, measures[i].n, kind))
            return failed(&l->ctx);
    }
    attn_status status = all ? ATTN_OK : l->ctx.status;
    for (size_t i = 0; i < n && status == ATTN_OK && measures->others; i++)
        status = correct_chosen(l, &measures[i]);
    if (status == ATTN_OK && !measures->others)
        status =
            n_nodes ? lens_holm_pairs(&l->ctx, all, n_nodes, 0) : lens_holm(&l->ctx, all, n_all);
    return status == ATTN_OK ? FINE : status == ATTN_STOPPED ? INTERRUPTED : failed(&l->ctx);
}

/* How many signs were tried. */
static const char *flips_of(lens *l)
{
    return lens_flips_all(l->n_pairs) ? keep(l, "all %zu", (size_t)1 << l->n_pairs)
                                      : keep(l, "%d random", LENS_RESAMPLES);
}

/* A note, and with --ci how its intervals are made. */
static const char *note_with_spreads(lens *l, const char *note, int is_matrix)
{
    if (!l->o.ci)
        return note;
    return keep(l,
                "%s The intervals have 95 %% of the means over %d samples of the pairs, drawn with "
                "replacement; a dot marks one that has 0. p is of %s sign flips of the pairs, with "
                "Holm's correction for all cells%s.",
                note, LENS_RESAMPLES, flips_of(l),
                is_matrix ? " on one side of the diagonal"
                : l->shown.measures[0].others
                    ? keep(l,
                           ", %zu more that are not shown, too. The intervals "
                           "are not corrected for the choice of rows",
                           l->shown.measures[0].n_others)
                    : "");
}

/* Ends a command that asks about pairs: adds what --ci and --each ask for. */
static int show_pairs(lens *l, lens_spread_kind kind)
{
    static const char *const kinds[] = {"values", "changes", "shares of the gap"};
    showing *const s = &l->shown;
    if (l->o.ci) {
        const int code = find_spreads(l, s->measures, s->n_measures, kind, 0);
        if (code != FINE)
            return code;
        facts(l, "ci_of:s sign_flips:s", kinds[kind], flips_of(l));
        s->page.note = note_with_spreads(l, s->page.note, l->o.shapley != NULL);
    }
    for (size_t i = 0; i < s->n_measures; i++) {
        const measured_column *const m = &s->measures[i];
        if (l->o.ci && m->n)
            add_spread_columns(l, m, i > 0 && m->table == m[-1].table);
        if (l->o.each && m->n)
            add_each(l, m);
    }
    return show_answer(l);
}

#endif
