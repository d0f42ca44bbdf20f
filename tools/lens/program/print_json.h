/* What --json prints. */
#ifndef LENS_PRINT_JSON_H
#define LENS_PRINT_JSON_H

#include "run.h"
#include "tools/lens/spread.h"

static void json_token(const lens *l, attn_token id)
{
    size_t size = 0;
    const char *bytes = l->tokenizer ? attn_token_bytes(&size, l->tokenizer, id) : NULL;
    printf("\"id\": %ld", (long)id);
    if (bytes) {
        fputs(", \"token\": ", stdout);
        json_text(stdout, bytes, size);
    }
}

/* "tokens": [..], the tokens of the text. */
static void json_tokens(const lens *l)
{
    size_t t;
    printf("\"tokens\": [");
    for (t = 0; t < l->text.n; t++) {
        printf(t ? ", {" : "{");
        json_token(l, l->text.ids[t]);
        printf("}");
    }
    printf("]");
}

/* Writes a number; null if it is not finite, because JSON has no infinities. */
static void write_figure(FILE *file, double value)
{
    if (isfinite(value))
        fprintf(file, "%.9g", value);
    else
        fputs("null", file);
}

static void json_figure(double value)
{
    write_figure(stdout, value);
}

/* The same behind its name. */
static void json_named(const char *name, double value)
{
    fputs(name, stdout);
    json_figure(value);
}

static void json_guesses(const lens *l, const attn_prediction *top, size_t k)
{
    size_t i;
    fputs("\"top\": [", stdout);
    for (i = 0; i < k; i++) {
        fputs(i ? ", {" : "{", stdout);
        json_token(l, top[i].token);
        json_named(", \"logit\": ", (double)top[i].logit);
        json_named(", \"probability\": ", (double)top[i].probability);
        fputs("}", stdout);
    }
    fputs("]", stdout);
}

static void json_stats(const attn_token_stats *stats)
{
    json_named(", \"loss\": ", (double)stats->nll);
    json_named(", \"probability\": ", (double)stats->probability);
    printf(", \"rank\": %zu", stats->rank);
}

static void json_quoted(const char *string)
{
    json_text(stdout, string, strlen(string));
}

static void json_strings(FILE *file, const char *const *strings, size_t n)
{
    size_t i;
    fputs("[", file);
    for (i = 0; i < n; i++) {
        fputs(i ? ", " : "", file);
        json_text(file, strings[i], strlen(strings[i]));
    }
    fputs("]", file);
}

/* The numbers of a cell: the one that it shows, those of its spread. */
enum { FIGURE_NUMBER, FIGURE_MEAN, FIGURE_LOW, FIGURE_HIGH, FIGURE_P };

static double figure_of(const lens_grid *grid, size_t cell, int figure)
{
    const lens_spread *const s = grid->spreads ? &grid->spreads[cell] : NULL;
    return !s || figure == FIGURE_NUMBER ? (double)grid->cells[cell].number
           : figure == FIGURE_MEAN       ? s->mean
           : figure == FIGURE_LOW        ? s->low
           : figure == FIGURE_HIGH       ? s->high
                                         : s->p;
}

static void json_figures(const lens_grid *grid, const char *name, int figure)
{
    size_t i, j;
    printf(", \"%s\": [", name);
    for (i = 0; i < grid->n_rows; i++) {
        fputs(i ? ",\n  [" : "\n  [", stdout);
        for (j = 0; j < grid->n_columns; j++) {
            fputs(j ? ", " : "", stdout);
            json_figure(figure_of(grid, i * grid->n_columns + j, figure));
        }
        fputs("]", stdout);
    }
    fputs("]", stdout);
}

/* {"title": .., "axes": .., "columns": .., "values": [[..], ..]}; values are the rows of the grid. With --ci
 * "mean", "low", "high" and "p", in the same form. */
static void json_grid(const lens_grid *grid)
{
    static const char *const names[] = {"values", "mean", "low", "high", "p"};
    int figure;
    fputs("{\"title\": ", stdout);
    json_quoted(grid->title);
    printf(", \"axes\": [\"%s\", \"%s\"], \"columns\": ", grid->row_name, grid->column_name);
    json_strings(stdout, grid->columns, grid->n_columns);
    for (figure = FIGURE_NUMBER; figure <= (grid->spreads ? FIGURE_P : FIGURE_NUMBER); figure++)
        json_figures(grid, names[figure], figure);
    fputs("}", stdout);
}

static void json_grids(const lens_grid *grids, size_t n)
{
    size_t i;
    fputs("\"grids\": [", stdout);
    for (i = 0; i < n; i++) {
        fputs(i ? ",\n " : "\n ", stdout);
        json_grid(&grids[i]);
    }
    fputs("]", stdout);
}

#endif
