/* The pictures of picture.h as HTML: pages that need no other file, in light and dark colours, with tooltips
 * for pointer and keyboard. A page consists of a picture's numbers as JSON and of the script that draws them:
 * page.js beside this file, and examples/web/draw.js, which it shares with the page of examples/web. A graph or
 * a chart is the same SVG as in lens_svg.h.
 *
 * All texts that are passed here must be UTF-8 without control characters, as run.h makes them. */
#ifndef LENS_HTML_H
#define LENS_HTML_H

#include "lens_embedded.h" /* scripts and styles as C: embed.sh makes it when lens is built */
#include "lens_svg.h"

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

static void html_element(canvas *to, const char *tag, const char *attributes, const char *text)
{
    ink_format(to, "<%s%s>", tag, attributes);
    ink_text(to, text);
    ink_format(to, "</%s>\n", tag);
}

/* A graph or a chart. */
static void html_figure(canvas *to, const lens_figure *figure)
{
    double width = 0;
    const double height = figure->draw(NULL, figure->of, 0, &width);
    ink(to, "<figure>\n");
    svg_open(to, figure->name, width, height);
    figure->draw(to, figure->of, 0, &width);
    ink(to, "</svg>\n</figure>\n");
}

/* Writes a page up to its data. The content security policy forbids all requests. */
static void html_begin(canvas *to, const lens_page *page)
{
    size_t i;
    ink(to, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
            "script-src 'unsafe-inline'; style-src 'unsafe-inline'\">\n");
    html_element(to, "title", "", page->title);
    ink(to, "<style>\n");
    for (i = 0; i < sizeof lens_page_style / sizeof lens_page_style[0]; i++)
        ink(to, lens_page_style[i]);
    ink(to, "</style>\n</head>\n<body>\n");
    html_element(to, "h1", "", page->title);
    ink(to, "<dl class=\"facts\">\n");
    for (i = 0; i < page->n_facts; i++) {
        ink(to, "<div>");
        ink_format(to, "<dt>%s</dt>", page->facts[i].name);
        html_element(to, "dd", " dir=\"auto\"", page->facts[i].value);
        ink(to, "</div>\n");
    }
    ink(to, "</dl>\n");
    html_element(to, "p", "", page->note);
    if (page->warning)
        html_element(to, "p", " class=\"warning\" role=\"alert\"", page->warning);
    if (page->figure.draw)
        html_figure(to, &page->figure);
    ink(to, "<main></main>\n<noscript><p>The picture needs JavaScript.</p></noscript>\n"
            "<script type=\"application/json\" id=\"data\">\n");
}

/* Writes the rest of a page, after the data and, in a page of patterns, after the heads. */
static void html_end(canvas *to)
{
    size_t i;
    ink(to, "<script>\n\"use strict\";\n");
    for (i = 0; i < sizeof lens_page_script / sizeof lens_page_script[0]; i++)
        ink(to, lens_page_script[i]);
    ink(to, "</script>\n</body>\n</html>\n");
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

static void html_grids(canvas *to, const lens_page *page, const lens_grid *grids, size_t n)
{
    FILE *file = to->file;
    size_t i;
    html_begin(to, page);
    fputs("{\"tables\": [", file);
    for (i = 0; i < n; i++) {
        fputs(i ? ",\n" : "", file);
        html_grid(file, &grids[i]);
    }
    fputs("]}\n</script>\n", file);
    html_end(to);
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

static void html_words(canvas *to, const lens_page *page, const char *high, const lens_word *words,
                       size_t n)
{
    html_begin(to, page);
    html_text_of(to->file, high, words, n);
    ink(to, "}\n</script>\n");
    html_end(to);
}

/* ---- attention patterns ----
 *
 * A page holds every weight of every head, for the lower triangle row by row. A weight is two digits of
 * base 64, in steps of 1/4095; digit 0 is the character '0'. No digit has a meaning in HTML. A weight that
 * is NaN (the model is damaged, or its numbers have overflowed) is "--". */

/* Call html_pattern for each head after this. `words` are the tokens as they appear in the text, `tokens`
 * their labels. */
static void html_patterns_begin(canvas *to, const lens_page *page, const lens_heads *heads,
                                const char *const *tokens, const lens_word *words, size_t n)
{
    FILE *file = to->file;
    size_t i;
    html_begin(to, page);
    html_text_of(file, "1: all of a query's attention. " LENS_ROOTS, words, n);
    html_strings(file, "tokens", tokens, n);
    fputs(", \"heads\": [", file);
    for (i = 0; i < heads->n_heads; i++)
        fprintf(file, "%s[%zu, %zu]", i ? ", " : "", heads->heads[i][0], heads->heads[i][1]);
    fprintf(file, "], \"columns\": %zu}\n</script>\n", heads->n_columns);
}

static void html_pattern(canvas *to, lens_weight_fn at, const void *pattern, size_t n)
{
    FILE *file = to->file;
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
