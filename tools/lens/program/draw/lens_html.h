/* The pictures of lens, and their output as HTML: pages that need no other file, in light and dark colours,
 * with tooltips for pointer and keyboard. A page consists of a picture's numbers as JSON and of the script
 * that draws them: page.js beside this file, and examples/web/draw.js, which it shares with the page of
 * examples/web. lens_svg.h draws the same pictures as SVG.
 *
 * All texts that are passed here must be UTF-8 without control characters, as run.h makes them. */
#ifndef LENS_HTML_H
#define LENS_HTML_H

#include "lens_page.h" /* scripts and styles as C: embed.sh makes it when lens is built */
#include "tools/common/utf8.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* One cell of a grid. colour is -1 to 1: from the full colour of negative numbers, by none, to that of
 * positive ones. Beyond that range a cell has the full colour and a frame, which the legend explains. */
typedef struct lens_cell {
    float colour, number;
    const char *text, *tip;
} lens_cell;

/* A table of coloured cells. */
typedef struct lens_grid {
    const char *title;
    const char *row_name, *column_name;       /* of the axes: "layer", "position" */
    const char *low, *high;                   /* the legend: at -1 (NULL: it begins at 0), at 1 */
    const char *const *rows, *const *columns; /* labels; a newline in one begins a second line */
    size_t n_rows, n_columns;
    const lens_cell *cells; /* [n_rows, n_columns] */
} lens_grid;

/* Where a page comes from: "model", "prompt", "command", "version". */
typedef struct lens_fact {
    const char *name, *value;
} lens_fact;

/* The part of a page above its pictures. */
typedef struct lens_page {
    const char *title, *note;
    const char *warning; /* or NULL */
    const lens_fact *facts;
    size_t n_facts;
} lens_page;

/* A token of a text, on a coloured background. */
typedef struct lens_word {
    float colour;
    int breaks; /* a line of the text ends here */
    const char *text, *tip;
} lens_word;

/* The heads of a page of patterns: a row for each layer, a column for each head. */
typedef struct lens_heads {
    size_t (*heads)[2]; /* layer and head, row by row */
    size_t n_heads, n_columns;
} lens_heads;

/* Gives the weight of a key for a query. */
typedef float (*lens_weight_fn)(const void *pattern, size_t query, size_t key);

/* The note on square roots in pictures of both formats. */
#define LENS_ROOTS "Colours show the square root of a weight: 0.25 looks half as strong as 1."

/* A label between the two axes: "layer\head". */
typedef struct lens_corner {
    char text[48];
} lens_corner;

static lens_corner corner_of(const char *row_name, const char *column_name)
{
    lens_corner corner;
    snprintf(corner.text, sizeof corner.text, "%s%s%s", row_name, *row_name ? "\\" : "",
             column_name);
    return corner;
}

static int is_clipped(float colour)
{
    return fabs((double)colour) > 1.005;
}

static size_t count_clipped(const lens_grid *grid)
{
    size_t i, n = 0;
    for (i = 0; i < grid->n_rows * grid->n_columns; i++)
        n += (size_t)is_clipped(grid->cells[i].colour);
    return n;
}

/* How opaque a colour is, 0 to 1; a number that is not finite has no colour. */
static double opacity(float colour)
{
    const double size = fabs((double)colour);
    return size < 1 ? size : isfinite(colour) ? 1 : 0;
}

/* The legend of clipped cells, to the right of a picture of their frame. */
static void clipped_note(FILE *file, size_t n)
{
    fprintf(file, "beyond the scale (%zu cell%s)", n, n == 1 ? "" : "s");
}

/* Writes a text escaped for the content of an element or an attribute in double quotes. */
static void html_text(FILE *file, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '&':
            fputs("&amp;", file);
            break;
        case '"':
            fputs("&quot;", file);
            break;
        case '\n':
            fputs("&#10;", file);
            break;
        default:
            putc(*text, file);
        }
}

/* Columns of a line of text. */
static size_t line_width(const char *text)
{
    return text_width(text, strcspn(text, "\n"));
}

/* Writes any bytes as a JSON string; invalid UTF-8 becomes U+FFFD. `<` is escaped, so that no text can end
 * the script element around it. */
static void json_text(FILE *file, const char *text, size_t size)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t i, length;
    uint32_t code;
    putc('"', file);
    for (i = 0; i < size; i += length ? length : 1) {
        length = utf8_length(p + i, size - i, &code);
        if (length == 0)
            fputs("\\ufffd", file);
        else if (code == '"' || code == '\\')
            fprintf(file, "\\%c", (int)code);
        else if (code < ' ' || code == '<' || code == 0x7f)
            fprintf(file, "\\u%04x", (unsigned)code);
        else
            fwrite(p + i, 1, length, file);
    }
    putc('"', file);
}

/* ---- what all pages share ---- */

static void html_element(FILE *file, const char *tag, const char *attributes, const char *text)
{
    fprintf(file, "<%s%s>", tag, attributes);
    html_text(file, text);
    fprintf(file, "</%s>\n", tag);
}

/* Writes a page up to its data. The content security policy forbids all requests. */
static void html_begin(FILE *file, const lens_page *page)
{
    size_t i;
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "script-src 'unsafe-inline'; style-src 'unsafe-inline'\">\n",
          file);
    html_element(file, "title", "", page->title);
    fputs("<style>\n", file);
    for (i = 0; i < sizeof lens_page_style / sizeof lens_page_style[0]; i++)
        fputs(lens_page_style[i], file);
    fputs("</style>\n</head>\n<body>\n", file);
    html_element(file, "h1", "", page->title);
    fputs("<dl class=\"facts\">\n", file);
    for (i = 0; i < page->n_facts; i++) {
        fputs("<div>", file);
        fprintf(file, "<dt>%s</dt>", page->facts[i].name);
        html_element(file, "dd", " dir=\"auto\"", page->facts[i].value);
        fputs("</div>\n", file);
    }
    fputs("</dl>\n", file);
    html_element(file, "p", "", page->note);
    if (page->warning)
        html_element(file, "p", " class=\"warning\" role=\"alert\"", page->warning);
    fputs("<main></main>\n<noscript><p>The picture needs JavaScript.</p></noscript>\n"
          "<script type=\"application/json\" id=\"data\">\n",
          file);
}

/* Writes the rest of a page, after the data and, in a page of patterns, after the heads. */
static void html_end(FILE *file)
{
    size_t i;
    fputs("<script>\n\"use strict\";\n", file);
    for (i = 0; i < sizeof lens_page_script / sizeof lens_page_script[0]; i++)
        fputs(lens_page_script[i], file);
    fputs("</script>\n</body>\n</html>\n", file);
}

static void html_string(FILE *file, const char *before, const char *text)
{
    fputs(before, file);
    json_text(file, text, strlen(text));
}

static void html_strings(FILE *file, const char *name, const char *const *texts, size_t n)
{
    size_t i;
    fprintf(file, ", \"%s\": [", name);
    for (i = 0; i < n; i++)
        html_string(file, i ? ", " : "", texts[i]);
    fputs("]", file);
}

/* Writes a cell's colour; null if it is not finite. */
static void html_colour(FILE *file, float colour)
{
    if (isfinite(colour))
        fprintf(file, "%.4g", (double)colour);
    else
        fputs("null", file);
}

/* A cell is [colour, text, tip]. */
static void html_grid(FILE *file, const lens_grid *grid)
{
    size_t i;
    html_string(file, "{\"title\": ", grid->title);
    html_string(file, ", \"corner\": ", corner_of(grid->row_name, grid->column_name).text);
    if (grid->low)
        html_string(file, ", \"low\": ", grid->low);
    else
        fputs(", \"low\": null", file);
    html_string(file, ", \"high\": ", grid->high);
    html_strings(file, "rows", grid->rows, grid->n_rows);
    html_strings(file, "columns", grid->columns, grid->n_columns);
    fputs(", \"cells\": [", file);
    for (i = 0; i < grid->n_rows * grid->n_columns; i++) {
        const lens_cell *cell = &grid->cells[i];
        fputs(i ? ",\n[" : "\n[", file);
        html_colour(file, cell->colour);
        html_string(file, ", ", cell->text);
        html_string(file, ", ", cell->tip ? cell->tip : "");
        fputs("]", file);
    }
    fputs("]}", file);
}

static void html_grids(FILE *file, const lens_page *page, const lens_grid *grids, size_t n)
{
    size_t i;
    html_begin(file, page);
    fputs("{\"tables\": [", file);
    for (i = 0; i < n; i++) {
        fputs(i ? ",\n" : "", file);
        html_grid(file, &grids[i]);
    }
    fputs("]}\n</script>\n", file);
    html_end(file);
}

/* Writes the first members of a picture of a text. A word is [colour, text, does a line end, tip]. */
static void html_text_of(FILE *file, const char *high, const lens_word *words, size_t n)
{
    size_t i;
    html_string(file, "{\"high\": ", high);
    fputs(", \"words\": [", file);
    for (i = 0; i < n; i++) {
        fputs(i ? ",\n[" : "\n[", file);
        html_colour(file, words[i].colour);
        html_string(file, ", ", words[i].text);
        html_string(file, words[i].breaks ? ", true, " : ", false, ",
                    words[i].tip ? words[i].tip : "");
        fputs("]", file);
    }
    fputs("]", file);
}

static void html_words(FILE *file, const lens_page *page, const char *high, const lens_word *words,
                       size_t n)
{
    html_begin(file, page);
    html_text_of(file, high, words, n);
    fputs("}\n</script>\n", file);
    html_end(file);
}

/* ---- attention patterns ----
 *
 * A page holds every weight of every head, for the lower triangle row by row. A weight is two digits of
 * base 64, in steps of 1/4095; digit 0 is the character '0'. No digit has a meaning in HTML. A weight that
 * is NaN (the model is damaged, or its numbers have overflowed) is "--". */

/* Call html_pattern for each head after this. `words` are the tokens as they appear in the text, `tokens`
 * their labels. */
static void html_patterns_begin(FILE *file, const lens_page *page, const lens_heads *heads,
                                const char *const *tokens, const lens_word *words, size_t n)
{
    size_t i;
    html_begin(file, page);
    html_text_of(file, "1: all of a query's attention. " LENS_ROOTS, words, n);
    html_strings(file, "tokens", tokens, n);
    fputs(", \"heads\": [", file);
    for (i = 0; i < heads->n_heads; i++)
        fprintf(file, "%s[%zu, %zu]", i ? ", " : "", heads->heads[i][0], heads->heads[i][1]);
    fprintf(file, "], \"columns\": %zu}\n</script>\n", heads->n_columns);
}

static void html_pattern(FILE *file, lens_weight_fn at, const void *pattern, size_t n)
{
    size_t q, k;
    fputs("<script type=\"text/plain\" class=\"head\">", file);
    for (q = 0; q < n; q++)
        for (k = 0; k <= q; k++) {
            const double weight = (double)at(pattern, q, k);
            const unsigned step = weight > 0 ? (unsigned)(fmin(weight, 1) * 4095 + 0.5) : 0;
            putc(isnan(weight) ? '-' : (int)('0' + (step >> 6 & 63)), file);
            putc(isnan(weight) ? '-' : (int)('0' + (step & 63)), file);
        }
    fputs("</script>\n", file);
}

#endif
