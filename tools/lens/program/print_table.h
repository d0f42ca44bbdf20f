/* Tables for a terminal, in its width and its own colours. */
#ifndef LENS_PRINT_TABLE_H
#define LENS_PRINT_TABLE_H

#include "run.h"
#include "tools/lens/spread.h"

/* Prints a text in `width` columns, cut with "…" if it needs more. A negative width aligns it to the right;
 * 0: as many columns as it needs. A newline becomes a slash. `sgr` is the terminal's code for its look, or
 * NULL. */
static void put(lens *l, const char *shown_text, int width, const char *sgr)
{
    const size_t size = strlen(shown_text);
    const int needed = (int)text_width(shown_text, size);
    const int columns = width < 0 ? -width : width ? width : needed;
    const size_t end =
        needed > columns ? fitting_bytes(shown_text, size, (size_t)columns - 1) : size;
    int used = (int)text_width(shown_text, end) + (needed > columns);
    for (; width < 0 && needed < columns && used < columns; used++)
        ink(l->out, " ");
    if (sgr && l->colour)
        say(l, "\033[%sm", sgr);
    for (size_t at = 0; at < end; at++)
        ink_bytes(l->out, shown_text[at] == '\n' ? "/" : shown_text + at, 1);
    ink(l->out, needed > columns ? "…" : "");
    if (sgr && l->colour)
        say(l, "\033[0m");
    for (; used < columns; used++)
        ink(l->out, " ");
}

static void put_number(lens *l, double value, int width, const char *sgr)
{
    char digits[40];
    snprintf(digits, sizeof digits, fabs(value) < 9999.995 ? "%.2f" : "%.3g", value);
    put(l, digits, -width, sgr);
}

/* The code of a colour for -1 to 1. The terminal's own colours are legible on its background. */
static const char *sgr_of(float colour)
{
    return colour > 0.6f    ? "1;34"
           : colour > 0.2f  ? "34"
           : colour < -0.6f ? "1;31"
           : colour < -0.2f ? "31"
                            : NULL;
}

static const char dim[] = "2", bold[] = "1";

/* The numbers of a spread, from its mean on; NaN if there is none. */
static double figure_of(const lens_spread *s, int k)
{
    if (!s)
        return (double)NAN;
    const double figures[] = {s->mean, s->low, s->high, s->p};
    return figures[k];
}

/* The layout of a printed grid. A grid with a column for each position is transposed, because a terminal
 * scrolls down. */
typedef struct table_layout {
    const char *const *rows, *const *columns;
    size_t n_rows, n_columns;
    int turned;       /* transposed */
    int label, width; /* of the first column and of each other column, in columns of the terminal */
} table_layout;

static table_layout lay_out(const lens *l, const lens_grid *grid)
{
    table_layout t;
    int n;
    t.turned = strcmp(grid->column_name, "position") == 0;
    t.n_rows = t.turned ? grid->n_columns : grid->n_rows;
    t.n_columns = t.turned ? grid->n_rows : grid->n_columns;
    t.rows = t.turned ? grid->columns : grid->rows;
    t.columns = t.turned ? grid->rows : grid->columns;
    t.label = t.turned ? l->columns && l->columns < 60 ? 16 : 20
                       : (int)(strlen(grid->row_name) + strlen(grid->column_name) + 1);
    t.width = 6;
    for (size_t i = 0; i < grid->n_rows * grid->n_columns; i++)
        t.width = (n = (int)line_width(grid->cells[i].text)) > t.width ? n : t.width;
    for (size_t i = 0; i < t.n_columns; i++)
        t.width = (n = (int)line_width(t.columns[i])) > t.width ? n : t.width;
    t.width = t.width > 10 ? 10 : t.width;
    return t;
}

/* Prints columns [first, end) of a grid. */
static void print_columns(lens *l, const lens_grid *grid, const table_layout *t, size_t first,
                          size_t end)
{
    put(l,
        grid->row_name[0] ? keep(l, "%s\\%s", t->turned ? grid->column_name : grid->row_name,
                                 t->turned ? grid->row_name : grid->column_name)
                          : "",
        t->label, dim);
    for (size_t j = first; j < end; j++) {
        say(l, " ");
        put(l, t->columns[j], -t->width, dim);
    }
    say(l, "\n");
    for (size_t i = 0; i < t->n_rows; i++) {
        put(l, t->rows[i], t->label, dim);
        for (size_t j = first; j < end; j++) {
            const lens_cell *cell =
                &grid->cells[t->turned ? j * grid->n_columns + i : i * grid->n_columns + j];
            say(l, " ");
            put(l, cell->text, -t->width, sgr_of(cell->colour));
        }
        say(l, "\n");
    }
}

/* Prints a grid. If it is too wide for the terminal, it is divided into parts, one below the other. */
static void print_grid(lens *l, const lens_grid *grid)
{
    const table_layout t = lay_out(l, grid);
    const int room = (l->columns - t.label) / (t.width + 1);
    const size_t most = !l->columns ? t.n_columns : room > 1 ? (size_t)room : 1;
    put(l, grid->title, 0, bold);
    say(l, "\n");
    for (size_t first = 0; first < t.n_columns; first += most)
        print_columns(l, grid, &t, first, t.n_columns - first < most ? t.n_columns : first + most);
}

/* Prints a grid, and the spreads of its cells: beside its only column, or else as grids of their own. */
static void print_with_spreads(lens *l, const lens_grid *grid)
{
    static const char *const names[] = {"", "from", "to", "p"};
    static const char *const titles[] = {"", "95 % interval, from", "95 % interval, to", "p"};
    const size_t n = grid->n_rows * grid->n_columns, width = grid->n_columns == 1 ? 4 : 1;
    lens_cell *const cells = (lens_cell *)allocate(l, n * width, sizeof *cells);
    const char *columns[4];
    lens_grid view = *grid;
    if (!cells)
        return;
    view.cells = cells;
    if (width > 1) {
        view.n_columns = width;
        view.columns = columns;
    }
    for (size_t k = 0; k < 4; k++) {
        columns[k] = k ? names[k] : grid->columns[0];
        for (size_t i = 0; i < n; i++) {
            lens_cell *const to = &cells[width > 1 ? i * width + k : i];
            *to = grid->cells[i];
            if (k) {
                const double figure = figure_of(grid->cells[i].spread, (int)k);
                to->text = isfinite(figure) ? keep(l, k == 3 ? "%.4f" : "%.3f", figure) : "";
                to->colour = 0;
            }
        }
        view.title = k && width == 1 ? keep(l, "%s: %s", grid->title, titles[k]) : grid->title;
        if (width == 1 && k)
            say(l, "\n");
        if (width == 1 || k == 3)
            print_grid(l, &view);
    }
}

#endif
