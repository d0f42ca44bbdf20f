/* The pictures of lens_html.h drawn as SVG, for papers: files that need no other file, in light and dark
 * colours. */
#ifndef LENS_SVG_H
#define LENS_SVG_H

#include "lens_html.h"

enum {
    SVG_LINE = 20,    /* height of a line, in pixels */
    SVG_EDGE = 16,    /* margins */
    SVG_LEAST = 700,  /* least width of a picture, for its title and legends */
    SVG_PATTERN = 100 /* width of one head's pattern */
};
#define SVG_LETTER 7.85 /* the width of a letter of a 13 px monospace font, or a little less */

static const char svg_style[] =
    "<style>\n"
    "text { font: 13px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace;\n"
    "  white-space: pre; fill: #1b1f24; }\n"
    ".big { font-size: 17px; } .dim { fill: #5d6671; } .c { text-anchor: middle; }\n"
    ".r { text-anchor: end; } .ground { fill: #ffffff; } .line { fill: #d5dae0; }\n"
    ".m, .ink { fill: rgb(29,84,200); } .l { fill: rgb(196,78,10); } .s { fill: #ffffff; }\n"
    ".x { stroke: #1b1f24; stroke-width: 2; } .warning { fill: #8a4b00; }\n"
    "@media (prefers-color-scheme: dark) { text { fill: #eceff3; } .dim { fill: #9aa4b0; }\n"
    "  .ground { fill: #15181c; } .line { fill: #363c44; } .m { fill: rgb(45,105,230); }\n"
    "  .l { fill: rgb(190,74,14); } .s { fill: #ffffff; } .ink { fill: rgb(130,175,255); }\n"
    "  .x { stroke: #eceff3; } .warning { fill: #ffb454; } }\n"
    "</style>\n";

/* Where the next line begins, or NULL. */
static const char *svg_next(const char *text)
{
    text = strchr(text, '\n');
    return text ? text + 1 : NULL;
}

static size_t svg_lines(const char *text)
{
    size_t n = 0;
    for (; text; text = svg_next(text))
        n++;
    return n;
}

/* Writes at most `most` columns of the first `size` bytes of a text, with "…" for the rest. */
static void svg_cut(FILE *file, const char *text, size_t size, size_t most)
{
    const size_t needed = text_width(text, size);
    size_t at = 0, used = 0;
    char letter[5] = "";
    uint32_t code = 0;
    for (; at < size; at += strlen(letter)) {
        const size_t length = utf8_length((const unsigned char *)text + at, size - at, &code);
        used += (size_t)width_of(code);
        if (needed > most && used > most - 1)
            break;
        memcpy(letter, text + at, length ? length : 1);
        letter[length ? length : 1] = 0;
        html_text(file, letter);
    }
    fputs(needed > most ? "…" : "", file);
}

static void svg_bytes(FILE *file, double x, double y, const char *class_name, const char *text,
                      size_t size, size_t most)
{
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class_name);
    svg_cut(file, text, size, most);
    fputs("</text>\n", file);
}

/* The first line of a text. */
static void svg_text(FILE *file, double x, double y, const char *class_name, const char *text,
                     size_t most)
{
    svg_bytes(file, x, y, class_name, text, strcspn(text, "\n"), most);
}

/* Number of bytes of a text that fit into `most` columns; up to a space if the second half has one. */
static size_t svg_fitting(const char *text, size_t most)
{
    const size_t size = strlen(text);
    size_t at, length, used = 0, space = 0;
    uint32_t code = 0;
    for (at = 0; at < size; at += length) {
        length = utf8_length((const unsigned char *)text + at, size - at, &code);
        length = length ? length : 1;
        if ((used += (size_t)width_of(code)) > most && at)
            return space ? space : at;
        if (code == ' ' && used > most / 2)
            space = at + length;
    }
    return size;
}

/* Writes a text in at most `lines` lines, and returns their number. Without a file it only counts them. */
static size_t svg_paragraph(FILE *file, double x, double y, const char *class_name,
                            const char *text, size_t letters, size_t lines)
{
    size_t i;
    for (i = 0; i < lines && (*text || !i); i++, y += SVG_LINE - 2) {
        const size_t size = i + 1 < lines ? svg_fitting(text, letters) : strlen(text);
        if (file)
            svg_bytes(file, x, y, class_name, text, size, letters);
        text += size;
    }
    return i;
}

/* Writes the lines above the pictures: title, facts, note, warning. Returns their height. Without a file it
 * only measures it. */
static double svg_head(FILE *file, const lens_page *page, double width)
{
    const double fact = SVG_EDGE + SVG_LETTER * 10;
    const size_t letters = (size_t)((width - 2 * SVG_EDGE) / SVG_LETTER);
    size_t i, lines;
    double y = 52;
    if (file)
        svg_text(file, SVG_EDGE, 30, "big", page->title, letters * 3 / 4);
    for (i = 0; i < page->n_facts; i++, y += (SVG_LINE - 2) * (double)lines) {
        if (file)
            svg_text(file, SVG_EDGE, y, "dim", page->facts[i].name, 9);
        lines = svg_paragraph(file, fact, y, "", page->facts[i].value, letters - 10, 3);
    }
    y += 6;
    y += (SVG_LINE - 2) * (double)svg_paragraph(file, SVG_EDGE, y, "dim", page->note, letters, 9);
    if (page->warning)
        y += (SVG_LINE - 2) *
             (double)svg_paragraph(file, SVG_EDGE, y, "warning", page->warning, letters, 9);
    return y;
}

/* Begins a picture whose contents need `width` and `height`. Returns the y at which they begin. */
static double svg_begin(FILE *file, const lens_page *page, double width, double height)
{
    double top;
    width = width > SVG_LEAST ? width : SVG_LEAST;
    top = svg_head(NULL, page, width);
    height += top + SVG_EDGE;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"",
            width, height, width, height);
    html_text(file, page->title);
    fprintf(file, "\">\n%s<rect class=\"ground\" width=\"100%%\" height=\"100%%\"/>\n", svg_style);
    return svg_head(file, page, width);
}

static void svg_box(FILE *file, double x, double y, double w, double h, float colour)
{
    fprintf(file,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
            "height=\"%.1f\" class=\"%c%s\" fill-opacity=\"%.3f\"/>",
            x, y, w, h, colour < 0 ? 'l' : 'm', is_clipped(colour) ? " x" : "", opacity(colour));
}

/* The scale of colours, in twelve steps: not all viewers of SVG know gradients of opacity. */
static void svg_legend(FILE *file, double y, const char *low, int from, int to, const char *high)
{
    double x = SVG_EDGE + SVG_LETTER * (double)line_width(low) + 8;
    const int way = from < to ? 1 : -1;
    int i;
    svg_text(file, SVG_EDGE, y + 13, "dim", low, 100);
    for (i = from; i != to + way; i += way, x += 7)
        svg_box(file, x, y + 3, 7, 12, (float)i / 12);
    svg_text(file, x + 8, y + 13, "dim", high, 100);
}

/* The line of a legend that explains frames. */
static void svg_clipped(FILE *file, double y, size_t n)
{
    svg_box(file, SVG_EDGE + 1, y + 3, 20, 12, 2);
    fprintf(file, "<text x=\"%d\" y=\"%.1f\" class=\"dim\">", SVG_EDGE + 30, y + 13);
    clipped_note(file, n);
    fputs("</text>\n", file);
}

typedef struct svg_sizes {
    double label, cell, head; /* widths of row labels and of cells, height of column labels */
    size_t letters;           /* of a cell and its label */
    size_t n_clipped;
    double width, height;
} svg_sizes;

static svg_sizes svg_measure(const lens_grid *grid)
{
    const size_t most = 12;
    size_t i, label = strlen(corner_of(grid->row_name, grid->column_name).text), n;
    size_t letters = 4, lines = 1;
    svg_sizes s;
    for (i = 0; i < grid->n_rows; i++)
        label = (n = line_width(grid->rows[i])) > label ? n : label;
    for (i = 0; i < grid->n_rows * grid->n_columns; i++)
        letters = (n = line_width(grid->cells[i].text)) > letters ? n : letters;
    for (i = 0; i < grid->n_columns; i++) {
        const char *text = grid->columns[i];
        lines = (n = svg_lines(text)) > lines ? n : lines;
        for (; text; text = svg_next(text))
            letters = (n = line_width(text)) > letters ? n : letters;
    }
    s.n_clipped = count_clipped(grid);
    s.letters = letters < most ? letters : most;
    s.label = SVG_LETTER * (double)label + 10;
    s.cell = SVG_LETTER * (double)s.letters + 10;
    s.head = SVG_LINE * (double)lines;
    s.width = 2 * SVG_EDGE + s.label + s.cell * (double)grid->n_columns;
    s.height =
        (s.n_clipped ? 3.6 : 2.6) * SVG_LINE + s.head + SVG_LINE * (double)(grid->n_rows + 1);
    return s;
}

static void svg_grid_cell(FILE *file, const lens_cell *cell, double x, double y,
                          const svg_sizes *sizes)
{
    fputs("<g><title>", file);
    html_text(file, cell->tip);
    fputs("</title>", file);
    svg_box(file, x, y, sizes->cell - 1, SVG_LINE - 1, cell->colour);
    svg_text(file, x + sizes->cell / 2, y + 14, opacity(cell->colour) > 0.76 ? "c s" : "c",
             cell->text, sizes->letters);
    fputs("</g>\n", file);
}

static void svg_grid(FILE *file, const lens_grid *grid, double y)
{
    const svg_sizes s = svg_measure(grid);
    const double left = SVG_EDGE + s.label;
    size_t i, j;
    svg_text(file, SVG_EDGE, y + 15, "", grid->title, 1000);
    y += SVG_LINE;
    svg_legend(file, y, grid->low ? grid->low : "0", grid->low ? -12 : 0, 12, grid->high);
    if (s.n_clipped)
        svg_clipped(file, y += SVG_LINE, s.n_clipped);
    y += 1.6 * SVG_LINE;
    svg_text(file, left - 8, y + s.head - 6, "dim r",
             corner_of(grid->row_name, grid->column_name).text, 100);
    for (j = 0; j < grid->n_columns; j++) {
        const char *text = grid->columns[j];
        double line = y + s.head - 6 - (SVG_LINE - 3) * (double)(svg_lines(text) - 1);
        for (; text; text = svg_next(text), line += SVG_LINE - 3)
            svg_text(file, left + s.cell * ((double)j + 0.5), line, "dim c", text, s.letters);
    }
    y += s.head;
    for (i = 0; i < grid->n_rows; i++, y += SVG_LINE) {
        svg_text(file, left - 8, y + 14, "dim r", grid->rows[i], 100);
        for (j = 0; j < grid->n_columns; j++)
            svg_grid_cell(file, &grid->cells[i * grid->n_columns + j], left + s.cell * (double)j, y,
                          &s);
    }
}

static void svg_grids(FILE *file, const lens_page *page, const lens_grid *grids, size_t n)
{
    double width = 0, height = 0, y;
    size_t i;
    for (i = 0; i < n; i++) {
        const svg_sizes s = svg_measure(&grids[i]);
        width = s.width > width ? s.width : width;
        height += s.height;
    }
    y = svg_begin(file, page, width, height);
    for (i = 0; i < n; i++) {
        svg_grid(file, &grids[i], y);
        y += svg_measure(&grids[i]).height;
    }
    fputs("</svg>\n", file);
}

/* Writes the words of a text from y on, in lines of `letters` letters, and returns the number of lines.
 * Without a file it only counts them. */
static size_t svg_place(const lens_word *words, size_t n, size_t letters, FILE *file, double y)
{
    size_t i, at = 0, line = 0;
    for (i = 0; i < n; i++) {
        const size_t all = line_width(words[i].text);
        const size_t shown_ = all < letters ? all : letters;
        const double width = SVG_LETTER * (double)shown_;
        if (at + shown_ > letters) {
            at = 0;
            line++;
        }
        if (file) {
            const double x = SVG_EDGE + SVG_LETTER * (double)at;
            const double top = y + 1.3 * SVG_LINE * (double)line;
            fputs("<g><title>", file);
            html_text(file, words[i].tip);
            fputs("</title>", file);
            svg_box(file, x, top, width, SVG_LINE + 2, words[i].colour);
            fprintf(file,
                    "<text x=\"%.1f\" y=\"%.1f\" textLength=\"%.1f\" "
                    "lengthAdjust=\"spacingAndGlyphs\"%s>",
                    x, top + 15, width, words[i].colour < -0.76f ? " class=\"s\"" : "");
            svg_cut(file, words[i].text, strlen(words[i].text), letters);
            fputs("</text></g>\n", file);
        }
        at += shown_;
        if (words[i].breaks) {
            at = 0;
            line++;
        }
    }
    return line + 1;
}

static void svg_words(FILE *file, const lens_page *page, const char *high, const lens_word *words,
                      size_t n)
{
    const size_t letters = 90, lines = svg_place(words, n, letters, NULL, 0);
    const double y = svg_begin(file, page, 2 * SVG_EDGE + SVG_LETTER * (double)letters,
                               2 * SVG_LINE + 1.3 * SVG_LINE * (double)lines);
    svg_legend(file, y, "0", 0, -12, high);
    svg_place(words, n, letters, file, y + 2 * SVG_LINE);
    fputs("</svg>\n", file);
}

/* ---- many heads at a glance, as an SVG ---- */

enum { SVG_STEP = SVG_PATTERN + 10 }; /* from one head to the next */

static double svg_heads_left(void)
{
    return SVG_EDGE + 8 + SVG_LETTER * (double)strlen(corner_of("layer", "head").text);
}

/* Call svg_pattern for each head after this. Returns the y at which the first row of heads begins. */
static double svg_patterns_begin(FILE *file, const lens_page *page, const lens_heads *heads)
{
    const size_t n_rows = heads->n_heads / heads->n_columns;
    const double left = svg_heads_left();
    double y, x = SVG_EDGE + SVG_LETTER + 8;
    char number[24];
    size_t i;
    y = svg_begin(file, page, left + SVG_EDGE + SVG_STEP * (double)heads->n_columns,
                  3.5 * SVG_LINE + SVG_STEP * (double)n_rows);
    svg_text(file, SVG_EDGE, y + 13, "dim", "0", 1);
    for (i = 0; i <= 12; i++, x += 7)
        fprintf(file,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"7\" "
                "height=\"12\" class=\"ink\" fill-opacity=\"%.3f\"/>",
                x, y + 3, sqrt((double)i / 12));
    svg_text(file, x + 8, y + 13, "dim",
             "1: all of a query's attention. Less than 1/64 is left out.", 100);
    svg_text(file, SVG_EDGE, y + SVG_LINE + 13, "dim", LENS_ROOTS, 100);
    y += 3.4 * SVG_LINE;
    svg_text(file, left - 8, y - 6, "dim r", corner_of("layer", "head").text, 100);
    for (i = 0; i < heads->n_columns; i++) {
        snprintf(number, sizeof number, "%zu", heads->heads[i][1]);
        svg_text(file, left + SVG_STEP * (double)i + SVG_PATTERN / 2.0, y - 6, "dim c", number, 24);
    }
    for (i = 0; i < n_rows; i++) {
        snprintf(number, sizeof number, "%zu", heads->heads[i * heads->n_columns][0]);
        svg_text(file, left - 8, y + SVG_STEP * (double)i + SVG_PATTERN / 2.0, "dim r", number, 24);
    }
    return y;
}

/* Draws head `index`: all squares of one brightness are one path, and weights below 1/64 are left out.
 * Opacity is the square root of a weight, as on the page. */
static void svg_pattern(FILE *file, const lens_heads *heads, size_t index, double top,
                        lens_weight_fn at, const void *pattern, size_t n)
{
    enum { STEPS = 16 };
    const size_t row = index / heads->n_columns, column = index % heads->n_columns;
    unsigned step;
    size_t q, k;
    fprintf(file,
            "<g transform=\"translate(%.1f %.1f) scale(%.5f)\"><title>layer %zu, head %zu</title>"
            "\n<path class=\"line\" fill-opacity=\"0.5\" d=\"M0 0H%zuV%zuz\"/>\n",
            svg_heads_left() + SVG_STEP * (double)column, top + SVG_STEP * (double)row,
            SVG_PATTERN / (double)n, heads->heads[index][0], heads->heads[index][1], n, n);
    for (step = 0; step < STEPS; step++) {
        int begun = 0;
        for (q = 0; q < n; q++)
            for (k = 0; k <= q; k++) {
                const double weight = (double)at(pattern, q, k);
                if (!(weight >= 1. / 64) || (unsigned)(sqrt(weight) * (STEPS - 1) + 0.5) != step)
                    continue;
                if (!begun++)
                    fprintf(file, "<path class=\"ink\" fill-opacity=\"%.3f\" d=\"",
                            (double)step / (STEPS - 1));
                fprintf(file, "M%zu %zuh1v1h-1z", k, q);
            }
        if (begun)
            fputs("\"/>\n", file);
    }
    fputs("</g>\n", file);
}

#endif
