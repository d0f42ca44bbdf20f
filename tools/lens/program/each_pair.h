/* --pairs: the numbers of every pair, which --each writes, and the spread of their means, which --ci shows. */
#ifndef LENS_EACH_PAIR_H
#define LENS_EACH_PAIR_H

#include "findings.h"
#include "tools/lens/sweep.h"

static int wants_each(const lens *l)
{
    return l->o.each || l->o.ci;
}

/* *each: room for the numbers of every pair, [n_pairs, 2 + n]; NULL without --each and --ci. */
static attn_status room_for_each(lens *l, float **each, size_t n)
{
    *each = wants_each(l) ? (float *)allocate(l, l->n_pairs * (2 + n), sizeof(float)) : NULL;
    return wants_each(l) && !*each ? l->ctx.status : ATTN_OK;
}

static size_t count_of(attn_shape shape)
{
    size_t n = 1;
    int i;
    for (i = 0; i < shape.ndim; i++)
        n *= shape.dim[i];
    return n;
}

/* Gives a grid such room, and fills in what every pair answers to both texts; NaN if `answers` is NULL. */
static int make_each(lens *l, lens_grid *grid, const lens_baseline *answers)
{
    const size_t n = grid->n_rows * grid->n_columns;
    size_t i;
    if (room_for_each(l, &grid->each, n) != ATTN_OK)
        return failed(&l->ctx);
    for (i = 0; grid->each && i < l->n_pairs; i++) {
        grid->each[i * (2 + n)] = answers ? answers[i].clean : NAN;
        grid->each[i * (2 + n) + 1] = answers ? answers[i].corrupted : NAN;
    }
    return FINE;
}

/* The cells of a grid for one pair; NULL without --each and --ci. */
static float *cells_of_pair(const lens_grid *grid, size_t pair)
{
    return grid->each ? grid->each + pair * (2 + grid->n_rows * grid->n_columns) + 2 : NULL;
}

/* One line of --each: {"pair": .., "clean": .., "corrupted": .., "grids": [..]}, as --json has them. */
static void write_pair(FILE *file, const lens_grid *grids, size_t n, size_t pair)
{
    size_t g, i;
    fprintf(file, "{\"pair\": %zu, \"clean\": ", pair);
    write_figure(file, (double)cells_of_pair(grids, pair)[-2]);
    fputs(", \"corrupted\": ", file);
    write_figure(file, (double)cells_of_pair(grids, pair)[-1]);
    for (g = 0; g < n; g++) {
        const lens_grid *const grid = &grids[g];
        fputs(g ? ", {\"title\": " : ", \"grids\": [{\"title\": ", file);
        json_text(file, grid->title, strlen(grid->title));
        fputs(", \"rows\": ", file);
        json_strings(file, grid->rows, grid->n_rows);
        fputs(", \"columns\": ", file);
        json_strings(file, grid->columns, grid->n_columns);
        fputs(", \"values\": [", file);
        for (i = 0; i < grid->n_rows * grid->n_columns; i++) {
            fputs(i % grid->n_columns ? ", " : i ? "], [" : "[", file);
            write_figure(file, (double)cells_of_pair(grid, pair)[i]);
        }
        fputs("]]}", file);
    }
    fputs("]}\n", file);
}

static int write_each(lens *l, const findings *found)
{
    lens_new_file *file = NULL;
    size_t i;
    if (lens_new_file_begin(&l->ctx, &file, l->o.each))
        return failed(&l->ctx);
    for (i = 0; i < l->n_pairs; i++)
        write_pair((FILE *)lens_new_file_stream(file), found->grids, found->n_grids, i);
    if (lens_new_file_end(&l->ctx, file, interrupted ? ATTN_STOPPED : ATTN_OK))
        return failed(&l->ctx);
    if (!l->o.quiet)
        fprintf(stderr, "wrote %s: the numbers of every pair\n", l->o.each);
    return FINE;
}

/* Marks a cell whose interval has 0, and adds the interval to its tip. */
static void mark_cell(lens *l, const lens_grid *grid, size_t i)
{
    lens_cell *const cell = cell_of(grid, 0, i);
    const lens_spread *const s = &grid->spreads[i];
    if (!isfinite(s->low))
        return;
    if (!(s->low > 0 || s->high < 0))
        cell->text = keep(l, "·%s", cell->text);
    cell->tip =
        keep(l, "%s\n95 %% interval %.4f to %.4f\np %.4f", cell->tip, s->low, s->high, s->p);
}

/* Is the grid a matrix of nodes, in which each pair of nodes stands twice? */
static int is_of_nodes(const lens *l)
{
    return l->o.shapley || (l->o.interactions && l->o.output);
}

/* Computes the spreads of all cells. The p-values are corrected over all of them. */
static int find_spreads(lens *l, const findings *found, lens_spread_kind kind)
{
    lens_grid *const grids = (lens_grid *)found->grids;
    lens_spread *all;
    size_t g, i, n = 0, first = 0;
    for (g = 0; g < found->n_grids; g++)
        n += grids[g].n_rows * grids[g].n_columns;
    if (!(all = (lens_spread *)allocate(l, n, sizeof *all)))
        return failed(&l->ctx);
    for (g = 0; g < found->n_grids; first += i, g++) {
        grids[g].spreads = all + first;
        i = grids[g].n_rows * grids[g].n_columns;
        if (lens_spreads(&l->ctx, all + first, grids[g].each, l->n_pairs, i, kind))
            return failed(&l->ctx);
    }
    if (is_of_nodes(l) ? lens_holm_pairs(&l->ctx, all, grids->n_rows, l->o.shapley != NULL)
                       : lens_holm(&l->ctx, all, n))
        return failed(&l->ctx);
    for (g = 0; g < found->n_grids; g++)
        for (i = 0; i < grids[g].n_rows * grids[g].n_columns; i++)
            mark_cell(l, &grids[g], i);
    return FINE;
}

/* What --each and --ci ask for: writes the file, and adds the spreads to grids and note. */
static int add_spreads(lens *l, findings *found, lens_spread_kind kind)
{
    static const char *const kinds[] = {"values", "changes", "shares of the gap"};
    int code = FINE;
    if (l->o.each && (code = write_each(l, found)) != FINE)
        return code;
    if (l->o.ci && (code = find_spreads(l, found, kind)) != FINE)
        return code;
    l->flips = lens_flips_all(l->n_pairs) ? keep(l, "all %zu", (size_t)1 << l->n_pairs)
                                          : keep(l, "%d random", LENS_RESAMPLES);
    l->ci_of = kinds[kind];
    if (l->o.ci)
        found->page.note = keep(
            l,
            "%s The intervals have 95 %% of the means over %d samples of the pairs, drawn with "
            "replacement; a dot marks one that has 0. p is of %s sign flips of the pairs, with "
            "Holm's correction for all cells%s.",
            found->page.note, LENS_RESAMPLES, l->flips,
            is_of_nodes(l) ? " on one side of the diagonal" : "");
    return FINE;
}

static int present_pairs(lens *l, findings *found, lens_spread_kind kind)
{
    const int code = add_spreads(l, found, kind);
    return code == FINE ? present(l, found) : code;
}

#endif
