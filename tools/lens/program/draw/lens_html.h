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
static void json_text(canvas *to, const char *text, size_t size)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t length;
    uint32_t code;
    ink(to, "\"");
    for (size_t i = 0; i < size; i += length ? length : 1) {
        length = utf8_length(p + i, size - i, &code);
        if (length == 0)
            ink(to, "\\ufffd");
        else if (code == '"' || code == '\\')
            ink_format(to, "\\%c", (int)code);
        else if (code < ' ' || code == '<' || code == 0x7f)
            ink_format(to, "\\u%04x", (unsigned)code);
        else
            ink_bytes(to, text + i, length);
    }
    ink(to, "\"");
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
    ink(to, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
            "script-src 'unsafe-inline'; style-src 'unsafe-inline'\">\n");
    html_element(to, "title", "", page->title);
    ink(to, "<style>\n");
    for (size_t i = 0; i < sizeof lens_page_style / sizeof lens_page_style[0]; i++)
        ink(to, lens_page_style[i]);
    ink(to, "</style>\n</head>\n<body>\n");
    html_element(to, "h1", "", page->title);
    ink(to, "<dl class=\"facts\">\n");
    for (size_t i = 0; i < page->n_facts; i++) {
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
    ink(to, "<script>\n\"use strict\";\n");
    for (size_t i = 0; i < sizeof lens_page_script / sizeof lens_page_script[0]; i++)
        ink(to, lens_page_script[i]);
    ink(to, "</script>\n</body>\n</html>\n");
}

static void html_string(canvas *to, const char *before, const char *text)
{
    ink(to, before);
    json_text(to, text, strlen(text));
}

static void html_strings(canvas *to, const char *name, const char *const *texts, size_t n)
{
    ink_format(to, ", \"%s\": [", name);
    for (size_t i = 0; i < n; i++)
        html_string(to, i ? ", " : "", texts[i]);
    ink(to, "]");
}

/* Writes a cell's colour; null if it is not finite. */
static void html_colour(canvas *to, float colour)
{
    if (isfinite(colour))
        ink_format(to, "%.4g", (double)colour);
    else
        ink(to, "null");
}

/* A cell is [colour, text, tip]. */
static void html_grid(canvas *to, const lens_grid *grid)
{
    html_string(to, "{\"title\": ", grid->title);
    html_string(to, ", \"corner\": ", corner_of(grid->row_name, grid->column_name).text);
    if (grid->low)
        html_string(to, ", \"low\": ", grid->low);
    else
        ink(to, ", \"low\": null");
    html_string(to, ", \"high\": ", grid->high);
    html_strings(to, "rows", grid->rows, grid->n_rows);
    html_strings(to, "columns", grid->columns, grid->n_columns);
    ink(to, ", \"cells\": [");
    for (size_t i = 0; i < grid->n_rows * grid->n_columns; i++) {
        const lens_cell *cell = &grid->cells[i];
        ink(to, i ? ",\n[" : "\n[");
        html_colour(to, cell->colour);
        html_string(to, ", ", cell->text);
        html_string(to, ", ", cell->tip ? cell->tip : "");
        ink(to, "]");
    }
    ink(to, "]}");
}

static void html_grids(canvas *to, const lens_page *page, const lens_grid *grids, size_t n)
{
    html_begin(to, page);
    ink(to, "{\"tables\": [");
    for (size_t i = 0; i < n; i++) {
        ink(to, i ? ",\n" : "");
        html_grid(to, &grids[i]);
    }
    ink(to, "]}\n</script>\n");
    html_end(to);
}

/* Writes the first members of a picture of a text. A word is [colour, text, does a line end, tip]. */
static void html_text_of(canvas *to, const char *high, const lens_word *words, size_t n)
{
    html_string(to, "{\"high\": ", high);
    ink(to, ", \"words\": [");
    for (size_t i = 0; i < n; i++) {
        ink(to, i ? ",\n[" : "\n[");
        html_colour(to, words[i].colour);
        html_string(to, ", ", words[i].text);
        html_string(to, words[i].breaks ? ", true, " : ", false, ",
                    words[i].tip ? words[i].tip : "");
        ink(to, "]");
    }
    ink(to, "]");
}

static void html_words(canvas *to, const lens_page *page, const char *high, const lens_word *words,
                       size_t n)
{
    html_begin(to, page);
    html_text_of(to, high, words, n);
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
    html_begin(to, page);
    html_text_of(to, "1: all of a query's attention. " LENS_ROOTS, words, n);
    html_strings(to, "tokens", tokens, n);
    ink(to, ", \"heads\": [");
    for (size_t i = 0; i < heads->n_heads; i++)
        ink_format(to, "%s[%zu, %zu]", i ? ", " : "", heads->heads[i][0], heads->heads[i][1]);
    ink_format(to, "], \"columns\": %zu}\n</script>\n", heads->n_columns);
}

static void html_pattern(canvas *to, lens_weight_fn at, const void *pattern, size_t n)
{
    ink(to, "<script type=\"text/plain\" class=\"head\">");
    for (size_t q = 0; q < n; q++)
        for (size_t k = 0; k <= q; k++) {
            const double weight = (double)at(pattern, q, k);
            const unsigned step = weight > 0 ? (unsigned)(fmin(weight, 1) * 4095 + 0.5) : 0;
            const char digits[] = {(char)(isnan(weight) ? '-' : '0' + (step >> 6 & 63)),
                                   (char)(isnan(weight) ? '-' : '0' + (step & 63))};
            ink_bytes(to, digits, sizeof digits);
        }
    ink(to, "</script>\n");
}

#endif
