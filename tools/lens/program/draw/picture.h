/* The pictures of lens as data, and how their texts are written. lens_html.h makes pages of them, lens_svg.h
 * and the headers beside it SVGs, shared.h SVGs for libattn.so. */
#ifndef LENS_PICTURE_H
#define LENS_PICTURE_H

#include "tools/common/json_out.h"
#include "tools/common/utf8.h"
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* One cell of a grid. colour is -1 to 1: from the full colour of negative numbers, by none, to that of
 * positive ones. Beyond that range a cell has the full colour and a frame, which the legend explains. */
typedef struct lens_cell {
    float colour;
    double number;
    const char *text, *tip;           /* tip: NULL or "" for none */
    const struct lens_spread *spread; /* of the number, with --ci; else NULL */
} lens_cell;

/* A table of coloured cells. */
typedef struct lens_grid {
    const char *title;
    const char *row_name, *column_name;       /* of the axes: "layer", "position" */
    const char *low, *high;                   /* the legend: at -1 (NULL: it begins at 0), at 1 */
    const char *const *rows, *const *columns; /* labels; a newline in one begins a second line */
    size_t n_rows, n_columns;
    const lens_cell *cells; /* [n_rows, n_columns] */
    int small;              /* in an SVG the cells are squares without texts */
} lens_grid;

/* Where a page comes from: "model", "prompt", "command", "version". */
typedef struct lens_fact {
    const char *name, *value;
} lens_fact;

/* Where a drawing goes: into a file, or without one into memory. memory.failed: there was no memory for it. */
typedef struct canvas {
    FILE *file;
    json_out memory;
} canvas;

/* A graph or a chart. `draw` draws it from y on and returns its height; *width becomes the width that it
 * needs. Without a canvas it only measures. */
typedef struct lens_figure {
    double (*draw)(canvas *to, const void *of, double y, double *width);
    const void *of;
    const char *name;
} lens_figure;

/* The part of a page above its pictures. */
typedef struct lens_page {
    const char *title, *note;
    const char *warning; /* or NULL */
    const lens_fact *facts;
    size_t n_facts;
    lens_figure figure; /* above the grids; zeroed: none */
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
    char text[256];
} lens_corner;

TOOLS_FN lens_corner corner_of(const char *row_name, const char *column_name)
{
    lens_corner corner;
    snprintf(corner.text, sizeof corner.text, "%s%s%s", row_name,
             *row_name && *column_name ? "\\" : "", column_name);
    return corner;
}

TOOLS_FN int is_clipped(float colour)
{
    return fabs((double)colour) > 1.005;
}

TOOLS_FN size_t count_clipped(const lens_grid *grid)
{
    size_t n = 0;
    for (size_t i = 0; i < grid->n_rows * grid->n_columns; i++)
        n += (size_t)is_clipped(grid->cells[i].colour);
    return n;
}

/* How strong a colour is, 0 to 1; a number that is not finite has no colour. */
TOOLS_FN double strength(float colour)
{
    const double size = fabs((double)colour);
    return size < 1 ? size : isfinite(colour) ? 1 : 0;
}

/* Columns of a line of text. */
TOOLS_FN size_t line_width(const char *text)
{
    return text_width(text, strcspn(text, "\n"));
}

/* ---- tokens as they are shown ---- */

/* Is a character invisible, or does it change the direction of the line? Controls, zero widths, marks of
 * direction. */
TOOLS_FN int is_invisible(uint32_t c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0xAD || c == 0x61C ||
           (c >= 0x200B && c < 0x2010) || (c >= 0x2028 && c < 0x202F) ||
           (c >= 0x2060 && c < 0x2070) || c == 0xFEFF || (c >= 0xFFF0 && c < 0xFFFC) ||
           (c & 0xFFFE) == 0xFFFE;
}

/* Writes a text in visible characters: a newline and a tab become arrows, other invisible characters and
 * invalid UTF-8 \xNN or \uNNNN. With `space`, spaces at both ends become `space`. Returns the number of
 * bytes; `out` has room for 8 * size + 1. */
TOOLS_FN size_t show_text(char *out, const char *bytes, size_t size, const char *space)
{
    const unsigned char *p = (const unsigned char *)bytes;
    char *to = out;
    size_t length, last = size;
    uint32_t code;
    int inside = 0;
    while (last > 0 && bytes[last - 1] == ' ')
        last--;
    for (size_t i = 0; i < size; i += length ? length : 1) {
        length = utf8_length(p + i, size - i, &code);
        inside |= bytes[i] != ' ';
        if (length == 0)
            to += snprintf(to, 9, "\\x%02x", (unsigned)p[i]);
        else if (code == ' ' && space && (!inside || i >= last))
            to += snprintf(to, 9, "%s", space);
        else if (code == '\n' || code == '\t')
            to += snprintf(to, 9, "%s", code == '\n' ? "↵" : "⇥");
        else if (is_invisible(code))
            to += snprintf(to, 9, code < 0x100 ? "\\x%02x" : "\\u%04x", (unsigned)code);
        else
            to += snprintf(to, 9, "%.*s", (int)length, bytes + i);
    }
    *to = 0;
    return (size_t)(to - out);
}

/* The label of a token. Without a tokenizer the label is the token's id. If memory is short, the function returns "" and
 * sets ctx->status. */
TOOLS_FN const char *token_label(attn_ctx *ctx, arena *memory, const attn_tokenizer *tokenizer,
                                 attn_token token)
{
    char number[24];
    size_t size = (size_t)snprintf(number, sizeof number, "%ld", (long)token);
    const char *const bytes = tokenizer ? attn_token_bytes(&size, tokenizer, token) : number;
    char *out = (char *)arena_alloc(ctx, memory, size + 1, 8);
    if (!out)
        return "";
    show_text(out, bytes, size, "·");
    return out;
}

/* ---- markup ---- */

TOOLS_FN void ink_bytes(canvas *to, const char *bytes, size_t size)
{
    if (to->file)
        fwrite(bytes, 1, size, to->file);
    else
        out_bytes(&to->memory, bytes, size);
}

/* Writes a text as it is. */
TOOLS_FN void ink(canvas *to, const char *text)
{
    ink_bytes(to, text, strlen(text));
}

/* Writes at most 511 bytes. */
TOOLS_FN void ink_format(canvas *to, const char *format, ...) TOOLS_PRINTF(2, 3);
TOOLS_FN void ink_format(canvas *to, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ink(to, text);
}

/* Writes the first `size` bytes of a text escaped for the content of an element or an attribute in double quotes. */
TOOLS_FN void ink_escaped(canvas *to, const char *text, size_t size)
{
    size_t length;
    char signs[16];
    uint32_t code = 0;
    for (size_t i = 0; i < size; i += length) {
        length = utf8_length((const unsigned char *)text + i, size - i, &code);
        if (length == 0 || (is_invisible(code) && code != '\n')) { /* XML has no place for some */
            length = length ? length : 1;
            show_text(signs, text + i, length, NULL);
            ink(to, signs);
        } else if (code == '<' || code == '>' || code == '&' || code == '"' || code == '\n') {
            ink(to, code == '<'   ? "&lt;"
                    : code == '>' ? "&gt;"
                    : code == '&' ? "&amp;"
                    : code == '"' ? "&quot;"
                                  : "&#10;");
        } else {
            ink_bytes(to, text + i, length);
        }
    }
}

TOOLS_FN void ink_text(canvas *to, const char *text)
{
    ink_escaped(to, text, strlen(text));
}

/* The legend of clipped cells, to the right of a picture of their frame. */
TOOLS_FN void clipped_note(canvas *to, size_t n)
{
    ink_format(to, "beyond the scale (%llu cell%s)", TOOLS_LLU(n), n == 1 ? "" : "s");
}

#endif
