/* The pictures of picture.h as SVG: files that need no other file, in light and dark colours, for papers and
 * notebooks. */
#ifndef LENS_SVG_H
#define LENS_SVG_H

#include "picture.h"

enum {
    SVG_LINE = 20,     /* height of a line, in pixels */
    SVG_EDGE = 16,     /* margins */
    SVG_LEAST = 700,   /* least width of a picture with facts */
    SVG_MOST = 1000,   /* grids stand side by side up to this width */
    SVG_SMALL = 15,    /* side of a small cell */
    SVG_MANY = 6000,   /* more small cells than this are drawn as a few paths */
    SVG_PATTERN = 100, /* width of one head's pattern */
    SVG_LETTERS = 110  /* most letters of a line */
};
#define SVG_LETTER 7.85 /* the width of a letter of a 13 px monospace font, or a little less */
#define SVG_FULL                                                                                   \
    0.55 /* the full colour's opacity, so that text on it is legible: --full of draw.css */

/* The colours of examples/web/draw.css. Each rule names the class of the root, because a page that holds the
 * picture has rules of its own. Without media queries, as in CairoSVG, the colours are the light ones. */
static const char svg_style[] =
    "<style>\n"
    ".lens text { font: 13px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace;\n"
    "  white-space: pre; fill: #1c2326; }\n"
    ".lens .big { font-size: 17px; } .lens .dim { fill: #566066; }\n"
    ".lens .c { text-anchor: middle; } .lens .r { text-anchor: end; }\n"
    ".lens .ground { fill: #ffffff; } .lens .line { fill: #dcdad4; }\n"
    ".lens .rule { stroke: #dcdad4; } .lens .node { fill: #ffffff; stroke: #566066; }\n"
    ".lens .m, .lens .ink { fill: rgb(11,106,114); } .lens .l { fill: rgb(150,104,40); }\n"
    ".lens .more { stroke: rgb(11,106,114); } .lens .less { stroke: rgb(150,104,40); }\n"
    ".lens .edge { fill: none; stroke-opacity: 0.8; } .lens .quiet { stroke: #566066; }\n"
    ".lens .x { stroke: #1c2326; stroke-width: 2; } .lens .warning { font-weight: 600; }\n"
    "@media (prefers-color-scheme: dark) { .lens text { fill: #e8eaea; }\n"
    "  .lens .dim { fill: #a8b1b5; } .lens .ground { fill: #1b2023; }\n"
    "  .lens .line { fill: #343b3f; } .lens .rule { stroke: #343b3f; }\n"
    "  .lens .node { fill: #1b2023; stroke: #a8b1b5; } .lens .m, .lens .l { opacity: 0.73; }\n"
    "  .lens .m, .lens .ink { fill: rgb(111,198,204); } .lens .l { fill: rgb(205,160,95); }\n"
    "  .lens .more { stroke: rgb(111,198,204); } .lens .less { stroke: rgb(205,160,95); }\n"
    "  .lens .quiet { stroke: #a8b1b5; } .lens .x { stroke: #e8eaea; } }\n"
    "</style>\n";

/* Where the next line begins, or NULL. */
TOOLS_FN const char *svg_next(const char *text)
{
    text = strchr(text, '\n');
    return text ? text + 1 : NULL;
}

TOOLS_FN size_t svg_lines(const char *text)
{
    size_t n = 0;
    for (; text; text = svg_next(text))
        n++;
    return n;
}

static double svg_wider(double a, double b)
{
    return a > b ? a : b;
}

/* The width of the first line of a text that is cut to `most` columns. */
static double svg_width(const char *text, size_t most)
{
    const size_t n = line_width(text);
    return SVG_LETTER * (double)(n < most ? n : most);
}

/* Writes at most `most` columns of the first `size` bytes of a text, with "…" for the rest. */
static void svg_cut(canvas *to, const char *text, size_t size, size_t most)
{
    const int is_cut = text_width(text, size) > most;
    ink_escaped(to, text, is_cut ? fitting_bytes(text, size, most - 1) : size);
    ink(to, is_cut ? "…" : "");
}

static void svg_bytes(canvas *to, double x, double y, const char *class_name, const char *text,
                      size_t size, size_t most)
{
    ink_format(to, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class_name);
    svg_cut(to, text, size, most);
    ink(to, "</text>\n");
}

/* The first line of a text. */
static void svg_text(canvas *to, double x, double y, const char *class_name, const char *text,
                     size_t most)
{
    svg_bytes(to, x, y, class_name, text, strcspn(text, "\n"), most);
}

/* Number of bytes of a text that fit into `most` columns; up to a space if the second half has one. */
static size_t svg_fitting(const char *text, size_t most)
{
    const size_t size = strlen(text);
    size_t length, used = 0, space = 0;
    uint32_t code = 0;
    for (size_t at = 0; at < size; at += length) {
        length = utf8_length((const unsigned char *)text + at, size - at, &code);
        length = length ? length : 1;
        if ((used += (size_t)width_of(code)) > most && at)
            return space ? space : at;
        if (code == ' ' && used > most / 2)
            space = at + length;
    }
    return size;
}

/* Writes a text in at most `lines` lines, and returns their height. Without a canvas it only measures. */
static double svg_paragraph(canvas *to, double x, double y, const char *class_name,
                            const char *text, size_t letters, size_t lines)
{
    const double high = strcmp(class_name, "big") == 0 ? 24 : SVG_LINE - 2;
    size_t i;
    for (i = 0; i < lines && (*text || !i); i++) {
        const size_t size = i + 1 < lines ? svg_fitting(text, letters) : strlen(text);
        if (to)
            svg_bytes(to, x, y + high * (double)i, class_name, text, size, letters);
        text += size;
    }
    return high * (double)i;
}

/* Writes the lines above the pictures: title, facts, note, warning. Returns their height. Without a canvas it
 * only measures it. */
static double svg_head(canvas *to, const lens_page *page, double width)
{
    const double fact = SVG_EDGE + SVG_LETTER * 10;
    const size_t letters = (size_t)((width - 2 * SVG_EDGE) / SVG_LETTER);
    double y = 30;
    y += svg_paragraph(to, SVG_EDGE, y, "big", page->title, letters * 13 / 17, 4) - 2;
    for (size_t i = 0; i < page->n_facts; i++) {
        if (to)
            svg_text(to, SVG_EDGE, y, "dim", page->facts[i].name, 9);
        y += svg_paragraph(to, fact, y, "", page->facts[i].value, letters - 10, 3);
    }
    if (*page->note)
        y += 6 + svg_paragraph(to, SVG_EDGE, y + 6, "dim", page->note, letters, 9);
    if (page->warning)
        y += svg_paragraph(to, SVG_EDGE, y, "warning", page->warning, letters, 9);
    return *page->note || page->n_facts ? y : y - 12;
}

/* The opening tag. */
static void svg_open(canvas *to, const char *name, double width, double height)
{
    ink_format(
        to,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"lens\" width=\"%.0f\" height=\"%.0f\" "
        "viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"",
        width, height, width, height);
    ink_text(to, name);
    ink(to, "\">\n");
    ink(to, svg_style);
}

/* Begins a picture whose contents need `width` and `height`. Returns the y at which they begin. */
static double svg_begin(canvas *to, const lens_page *page, double width, double height)
{
    const double title =
        2 * SVG_EDGE + (svg_width(page->title, SVG_LETTERS) + 2 * SVG_LETTER) * 17 / 13;
    width = svg_wider(width, page->n_facts ? SVG_LEAST : title < SVG_LEAST ? title : SVG_LEAST);
    svg_open(to, page->title, width, svg_head(NULL, page, width) + height + SVG_EDGE);
    ink(to, "<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n");
    return svg_head(to, page, width);
}

static void svg_tip(canvas *to, const char *tip)
{
    ink(to, "<title>");
    ink_text(to, tip);
    ink(to, "</title>");
}

static void svg_box(canvas *to, double x, double y, double w, double h, float colour)
{
    ink_format(to,
               "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
               "height=\"%.1f\" class=\"%c%s\" fill-opacity=\"%.3f\"",
               x, y, w, h, colour < 0 ? 'l' : 'm', is_clipped(colour) ? " x" : "",
               SVG_FULL * strength(colour));
}

/* ---- legends ---- */

enum {
    SVG_STEPS = 12
}; /* of a scale of colours: not all viewers of SVG know gradients of opacity */

static double svg_legend_width(const char *low, const char *high)
{
    return svg_width(low, SVG_LETTERS) + svg_width(high, SVG_LETTERS) + 16 +
           7 * (2 * SVG_STEPS + 1);
}

static void svg_legend(canvas *to, double left, double y, const char *low, int from, int last,
                       const char *high)
{
    double x = left + svg_width(low, SVG_LETTERS) + 8;
    const int way = from < last ? 1 : -1;
    svg_text(to, left, y + 13, "dim", low, SVG_LETTERS);
    for (int i = from; i != last + way; i += way, x += 7) {
        svg_box(to, x, y + 3, 7, 12, (float)i / SVG_STEPS);
        ink(to, "/>");
    }
    svg_text(to, x + 8, y + 13, "dim", high, SVG_LETTERS);
}

static void svg_scale(canvas *to, double x, double y, const lens_grid *grid)
{
    svg_legend(to, x, y, grid->low ? grid->low : "0", grid->low ? -SVG_STEPS : 0, SVG_STEPS,
               grid->high);
}

/* The line of a legend that explains frames. */
static void svg_clipped(canvas *to, double x, double y, size_t n)
{
    svg_box(to, x + 1, y + 3, 20, 12, 2);
    ink_format(to, "/><text x=\"%.1f\" y=\"%.1f\" class=\"dim\">", x + 30, y + 13);
    clipped_note(to, n);
    ink(to, "</text>\n");
}

/* ---- grids ---- */

typedef struct svg_sizes {
    double label, cell, line, head; /* widths of row labels and cells, heights of a row and of
                                     * column labels */
    size_t letters;                 /* of a cell and its label */
    size_t n_clipped;
    double width, height;
} svg_sizes;

/* Row labels have at most so many letters. */
enum { SVG_LABEL = 60, SVG_CELL = 12 };

static size_t svg_letters(const lens_grid *grid, size_t *lines)
{
    size_t n, letters = 4;
    for (size_t i = 0; i < grid->n_rows * grid->n_columns; i++)
        letters = (n = line_width(grid->cells[i].text)) > letters ? n : letters;
    for (size_t i = 0; i < grid->n_columns; i++) {
        const char *text = grid->columns[i];
        *lines = (n = svg_lines(text)) > *lines ? n : *lines;
        for (; text; text = svg_next(text))
            letters = (n = line_width(text)) > letters ? n : letters;
    }
    return letters < SVG_CELL ? letters : SVG_CELL;
}

static svg_sizes svg_measure(const lens_grid *grid)
{
    const char *low = grid->low ? grid->low : "0";
    size_t lines = 1;
    svg_sizes s;
    s.label = svg_width(corner_of(grid->row_name, grid->column_name).text, SVG_LABEL);
    for (size_t i = 0; i < grid->n_rows; i++)
        s.label = svg_wider(s.label, svg_width(grid->rows[i], SVG_LABEL));
    s.label += 10;
    s.n_clipped = count_clipped(grid);
    s.letters = grid->small ? 0 : svg_letters(grid, &lines);
    s.cell = grid->small ? SVG_SMALL : SVG_LETTER * (double)s.letters + 10;
    s.line = grid->small ? SVG_SMALL : SVG_LINE;
    s.head = SVG_LINE * (double)lines;
    s.width = s.label + s.cell * (double)grid->n_columns;
    s.width = svg_wider(s.width, svg_width(grid->title, SVG_LETTERS));
    s.width = svg_wider(s.width, svg_legend_width(low, grid->high));
    s.height = (*grid->title ? 1.6 : 0.3) * SVG_LINE + s.head + s.line * (double)grid->n_rows;
    return s;
}

/* A small cell has no room for its text but for the dot of an interval that has 0. */
static void svg_grid_cell(canvas *to, const lens_cell *cell, double x, double y, const svg_sizes *s,
                          int small)
{
    const int told = cell->tip && *cell->tip;
    const int has_dot = small && cell->text && strncmp(cell->text, "·", strlen("·")) == 0;
    const int has_text = !small || has_dot;
    if (has_text)
        ink(to, "<g>");
    if (has_text && told)
        svg_tip(to, cell->tip);
    svg_box(to, x, y, s->cell - 1, s->line - 1, cell->colour);
    if (!has_text && told) {
        ink(to, ">");
        svg_tip(to, cell->tip);
        ink(to, "</rect>\n");
        return;
    }
    ink(to, "/>");
    if (has_text) {
        svg_text(to, x + s->cell / 2, y + (small ? 12 : 14), "c", small ? "·" : cell->text,
                 small ? 1 : s->letters);
        ink(to, "</g>\n");
    }
}

/* Many squares of 1 x 1: gives the strength of one, -SVG_LEVELS to SVG_LEVELS, whose sign is the colour. */
typedef int (*svg_level_fn)(const void *of, size_t row, size_t column);

typedef struct svg_squares {
    svg_level_fn level;
    const void *of;
    size_t n_rows, n_columns;
    const char *classes[2]; /* of positive strengths, of negative ones */
    double full;            /* opacity of SVG_LEVELS */
} svg_squares;

enum { SVG_LEVELS = 15 };

static int svg_level(double share)
{
    return (int)(share * SVG_LEVELS + (share < 0 ? -0.5 : 0.5));
}

/* Draws the squares of one strength as one path, in which neighbours of a row are one rectangle. */
static void svg_squares_of(canvas *to, const svg_squares *squares, int level)
{
    size_t end;
    int begun = 0;
    for (size_t row = 0; row < squares->n_rows; row++)
        for (size_t first = 0; first < squares->n_columns; first = end) {
            end = first + 1;
            if (squares->level(squares->of, row, first) != level)
                continue;
            while (end < squares->n_columns && squares->level(squares->of, row, end) == level)
                end++;
            if (!begun++)
                ink_format(to, "<path class=\"%s\" fill-opacity=\"%.3f\" d=\"",
                           squares->classes[level < 0],
                           squares->full * fabs((double)level) / SVG_LEVELS);
            ink_format(to, "M%llu %lluh%lluv1h-%lluz", TOOLS_LLU(first), TOOLS_LLU(row),
                       TOOLS_LLU(end - first), TOOLS_LLU(end - first));
        }
    if (begun)
        ink(to, "\"/>\n");
}

static void svg_draw_squares(canvas *to, const svg_squares *squares)
{
    for (int level = -SVG_LEVELS; level <= SVG_LEVELS; level++)
        if (level)
            svg_squares_of(to, squares, level);
}

static int svg_cell_level(const void *of, size_t row, size_t column)
{
    const lens_grid *grid = (const lens_grid *)of;
    const float colour = grid->cells[row * grid->n_columns + column].colour;
    return svg_level(colour < 0 ? -strength(colour) : strength(colour));
}

/* Many small cells, without tips. */
static void svg_small_cells(canvas *to, const lens_grid *grid, double x, double y)
{
    const svg_squares squares = {svg_cell_level,  grid,       grid->n_rows,
                                 grid->n_columns, {"m", "l"}, SVG_FULL};
    ink_format(to, "<g transform=\"translate(%.1f %.1f) scale(%d)\">\n", x, y, SVG_SMALL);
    svg_draw_squares(to, &squares);
    ink(to, "</g>\n");
}

/* Draws a grid without its legend. `many`: without tips. */
static void svg_grid(canvas *to, const lens_grid *grid, double x, double y, int many)
{
    const svg_sizes s = svg_measure(grid);
    const double left = x + s.label;
    if (*grid->title) {
        svg_text(to, x, y + 15, "", grid->title, SVG_LETTERS);
        y += 1.3 * SVG_LINE;
    }
    svg_text(to, left - 8, y + s.head - 6, "dim r",
             corner_of(grid->row_name, grid->column_name).text, SVG_LABEL);
    for (size_t j = 0; j < grid->n_columns && !grid->small; j++) {
        const char *text = grid->columns[j];
        double line = y + s.head - 6 - (SVG_LINE - 3) * (double)(svg_lines(text) - 1);
        for (; text; text = svg_next(text), line += SVG_LINE - 3)
            svg_text(to, left + s.cell * ((double)j + 0.5), line, "dim c", text, s.letters);
    }
    y += s.head;
    if (grid->small)
        ink_format(to,
                   "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"line\" "
                   "fill-opacity=\"0.3\"/>\n",
                   left, y, s.cell * (double)grid->n_columns - 1,
                   s.line * (double)grid->n_rows - 1);
    if (many)
        svg_small_cells(to, grid, left, y);
    for (size_t i = 0; i < grid->n_rows; i++, y += s.line) {
        svg_text(to, left - 8, y + (grid->small ? 11.5 : 14), "dim r", grid->rows[i], SVG_LABEL);
        for (size_t j = 0; j < grid->n_columns && !many; j++)
            svg_grid_cell(to, &grid->cells[i * grid->n_columns + j], left + s.cell * (double)j, y,
                          &s, grid->small);
    }
}

static int svg_same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* Do all grids have one scale of colours? Then one legend is enough. */
static int svg_one_scale(const lens_grid *grids, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (!svg_same(grids[i].low, grids[0].low) || !svg_same(grids[i].high, grids[0].high) ||
            count_clipped(&grids[i]) || count_clipped(&grids[0]))
            return 0;
    return n > 1;
}

/* Draws grids from y on, side by side where there is room. Returns their height; *width becomes the width of
 * all. Without a canvas it only measures. */
static double svg_lay(canvas *to, const lens_grid *grids, size_t n, double y, double *width)
{
    const double top = y;
    const int one = svg_one_scale(grids, n);
    double x = SVG_EDGE, high = 0;
    size_t cells = 0;
    for (size_t i = 0; i < n; i++)
        cells += grids[i].n_rows * grids[i].n_columns;
    if (one && to)
        svg_scale(to, x, y, &grids[0]);
    y += one ? 1.4 * SVG_LINE : 0;
    for (size_t i = 0; i < n; i++) {
        const svg_sizes s = svg_measure(&grids[i]);
        const double legend = one ? 0 : s.n_clipped ? 2.2 * SVG_LINE : 1.2 * SVG_LINE;
        if (x > SVG_EDGE && x + s.width + SVG_EDGE > SVG_MOST) {
            x = SVG_EDGE;
            y += high;
            high = 0;
        }
        if (to)
            svg_grid(to, &grids[i], x, y, grids[i].small && cells > SVG_MANY);
        if (to && !one)
            svg_scale(to, x, y + s.height, &grids[i]);
        if (to && !one && s.n_clipped)
            svg_clipped(to, x, y + s.height + SVG_LINE, s.n_clipped);
        *width = svg_wider(*width, x + s.width + SVG_EDGE);
        high = svg_wider(high, s.height + legend + SVG_LINE);
        x += s.width + 2 * SVG_EDGE;
    }
    return y + (n ? high - SVG_LINE : 0) - top;
}

TOOLS_FN void svg_grids(canvas *to, const lens_page *page, const lens_grid *grids, size_t n)
{
    const lens_figure *figure = &page->figure;
    double width = 0, figure_width = 0;
    const double high = svg_lay(NULL, grids, n, 0, &width);
    const double above = figure->draw ? figure->draw(NULL, figure->of, 0, &figure_width) : 0;
    double y = svg_begin(to, page, svg_wider(width, figure_width), above + high);
    if (figure->draw)
        figure->draw(to, figure->of, y, &figure_width);
    svg_lay(to, grids, n, y + above, &width);
    ink(to, "</svg>\n");
}

/* ---- a text ---- */

/* Writes the words of a text from y on, in lines of `letters` letters, and returns the number of lines.
 * Without a canvas it only counts them. */
static size_t svg_place(const lens_word *words, size_t n, size_t letters, canvas *to, double y)
{
    size_t at = 0, line = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t all = line_width(words[i].text);
        const size_t shown_ = all < letters ? all : letters;
        const double width = SVG_LETTER * (double)shown_;
        if (at + shown_ > letters) {
            at = 0;
            line++;
        }
        if (to) {
            const double x = SVG_EDGE + SVG_LETTER * (double)at;
            const double top = y + 1.3 * SVG_LINE * (double)line;
            ink(to, "<g>");
            svg_tip(to, words[i].tip);
            svg_box(to, x, top, svg_wider(width - 1, 0), SVG_LINE + 2, words[i].colour);
            ink_format(to,
                       "/><text x=\"%.1f\" y=\"%.1f\" textLength=\"%.1f\" "
                       "lengthAdjust=\"spacingAndGlyphs\">",
                       x, top + 15, width);
            svg_cut(to, words[i].text, strlen(words[i].text), letters);
            ink(to, "</text></g>\n");
        }
        at += shown_;
        if (words[i].breaks) {
            at = 0;
            line++;
        }
    }
    return line + 1;
}

TOOLS_FN void svg_words(canvas *to, const lens_page *page, const char *high, const lens_word *words,
                        size_t n)
{
    const size_t letters = 90, lines = svg_place(words, n, letters, NULL, 0);
    const double y = svg_begin(to, page, 2 * SVG_EDGE + SVG_LETTER * (double)letters,
                               2 * SVG_LINE + 1.3 * SVG_LINE * (double)lines);
    svg_legend(to, SVG_EDGE, y, "0", 0, -SVG_STEPS, high);
    svg_place(words, n, letters, to, y + 2 * SVG_LINE);
    ink(to, "</svg>\n");
}

/* ---- many heads at a glance ---- */

enum { SVG_STEP = SVG_PATTERN + 10 }; /* from one head to the next */

static double svg_heads_left(void)
{
    return SVG_EDGE + 8 + SVG_LETTER * (double)strlen(corner_of("layer", "head").text);
}

/* Call svg_pattern for each head after this. Returns the y at which the first row of heads begins. */
TOOLS_FN double svg_patterns_begin(canvas *to, const lens_page *page, const lens_heads *heads)
{
    const size_t n_rows = heads->n_heads / heads->n_columns;
    const double left = svg_heads_left();
    double x = SVG_EDGE + SVG_LETTER + 8;
    char number[24];
    double y = svg_begin(to, page, left + SVG_EDGE + SVG_STEP * (double)heads->n_columns,
                         3.5 * SVG_LINE + SVG_STEP * (double)n_rows);
    svg_text(to, SVG_EDGE, y + 13, "dim", "0", 1);
    for (size_t i = 0; i <= SVG_STEPS; i++, x += 7)
        ink_format(to,
                   "<rect x=\"%.1f\" y=\"%.1f\" width=\"7\" "
                   "height=\"12\" class=\"ink\" fill-opacity=\"%.3f\"/>",
                   x, y + 3, sqrt((double)i / SVG_STEPS));
    svg_text(to, x + 8, y + 13, "dim", "1: all of a query's attention. Less than 1/64 is left out.",
             100);
    svg_text(to, SVG_EDGE, y + SVG_LINE + 13, "dim", LENS_ROOTS, 100);
    y += 3.4 * SVG_LINE;
    svg_text(to, left - 8, y - 6, "dim r", corner_of("layer", "head").text, 100);
    for (size_t i = 0; i < heads->n_columns; i++) {
        snprintf(number, sizeof number, "%llu", TOOLS_LLU(heads->heads[i][1]));
        svg_text(to, left + SVG_STEP * (double)i + SVG_PATTERN / 2.0, y - 6, "dim c", number, 24);
    }
    for (size_t i = 0; i < n_rows; i++) {
        snprintf(number, sizeof number, "%llu", TOOLS_LLU(heads->heads[i * heads->n_columns][0]));
        svg_text(to, left - 8, y + SVG_STEP * (double)i + SVG_PATTERN / 2.0, "dim r", number, 24);
    }
    return y;
}

typedef struct svg_weights {
    lens_weight_fn at;
    const void *pattern;
} svg_weights;

static int svg_weight_level(const void *of, size_t query, size_t key)
{
    const svg_weights *weights = (const svg_weights *)of;
    const double weight = key <= query ? (double)weights->at(weights->pattern, query, key) : 0;
    return weight >= 1. / 64 ? svg_level(sqrt(weight)) : 0;
}

/* Draws head `index`. Opacity is the square root of a weight, as on the page; weights below 1/64 are left
 * out. */
TOOLS_FN void svg_pattern(canvas *to, const lens_heads *heads, size_t index, double top,
                          const svg_weights *weights, size_t n)
{
    const size_t row = index / heads->n_columns, column = index % heads->n_columns;
    const svg_squares squares = {svg_weight_level, weights, n, n, {"ink", ""}, 1};
    ink_format(
        to,
        "<g transform=\"translate(%.1f %.1f) scale(%.5f)\"><title>layer %llu, head %llu</title>"
        "\n<path class=\"line\" fill-opacity=\"0.5\" d=\"M0 0H%lluV%lluz\"/>\n",
        svg_heads_left() + SVG_STEP * (double)column, top + SVG_STEP * (double)row,
        SVG_PATTERN / (double)n, TOOLS_LLU(heads->heads[index][0]),
        TOOLS_LLU(heads->heads[index][1]), TOOLS_LLU(n), TOOLS_LLU(n));
    svg_draw_squares(to, &squares);
    ink(to, "</g>\n");
}

#endif
