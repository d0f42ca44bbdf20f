/* The pictures of lens, and how they are drawn as HTML: pages that need no other file, in light and in
 * dark, which scroll and tell more under the pointer and the arrow keys. lens_svg.h draws the same
 * pictures as SVG.
 *
 * Texts that come in here are UTF-8 without control characters; run.h sees to that. */
#ifndef LENS_HTML_H
#define LENS_HTML_H

#include "tools/common/utf8.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* One cell of a grid. colour is -1 to 1: how much of the one colour or of the other. A cell with a
 * larger number has the full colour and a frame, which the legend explains. */
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

/* A stretch of text on a coloured ground. */
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

/* The legend of clipped cells; a picture of their frame stands before it. */
static void clipped_note(FILE *file, size_t n)
{
    fprintf(file, "beyond the scale (%zu cell%s)", n, n == 1 ? "" : "s");
}

/* Escaped for an element's content and for an attribute in double quotes. */
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

/* A JSON string of any bytes; those that are no character become U+FFFD. No < is left in it, so
 * that nothing in a text can end the script around it. */
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

/* The two colours are grounds for text in both themes; in light, text on much of one is white. */
static const char html_style[] =
    ":root { color-scheme: light dark; --ground: #ffffff; --text: #1b1f24; --dim: #5d6671;\n"
    "  --line: #d5dae0; --more: 29 84 200; --less: 196 78 10;\n"
    "  --ink: 29 84 200; --warning: #8a4b00; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "  :root { --ground: #15181c; --text: #eceff3; --dim: #9aa4b0; --line: #363c44;\n"
    "    --more: 45 105 230; --less: 190 74 14; --ink: 130 175 255; --warning: #ffb454; } }\n"
    "* { box-sizing: border-box; }\n"
    "body { margin: 1.2rem; background: var(--ground); color: var(--text);\n"
    "  font: 15px/1.45 system-ui, sans-serif; }\n"
    "@media (max-width: 500px) { body { margin: .7rem; } }\n"
    "h1 { font-size: 1.35rem; margin: 0 0 .3rem; }\n"
    "h2 { font-size: 1.05rem; margin: 1.6rem 0 .3rem; }\n"
    "p { margin: .3rem 0; color: var(--dim); max-width: 70em; overflow-wrap: anywhere; }\n"
    ".warning { color: var(--warning); font-weight: 600; }\n"
    ".facts { margin: .6rem 0; font-size: 13px; max-width: 90em; }\n"
    ".facts div { display: flex; gap: .8em; }\n"
    ".facts dt { flex: 0 0 5.2em; color: var(--dim); }\n"
    ".facts dd { margin: 0; min-width: 0; max-height: 12em; overflow: auto;\n"
    "  overflow-wrap: anywhere; font-family: ui-monospace, monospace; white-space: pre-wrap; }\n"
    ".scale { display: inline-block; width: 12em; height: .8em; margin: 0 .5em;\n"
    "  border: 1px solid var(--line); vertical-align: -1px; }\n"
    ".from0 { background: linear-gradient(90deg, rgb(var(--more) / 0), rgb(var(--more))); }\n"
    ".costs { background: linear-gradient(90deg, rgb(var(--less) / 0), rgb(var(--less))); }\n"
    ".roots { background: linear-gradient(90deg, rgb(var(--ink) / 0), rgb(var(--ink) / .5) 25%,\n"
    "  rgb(var(--ink) / .71) 50%, rgb(var(--ink) / .87) 75%, rgb(var(--ink))); }\n"
    ".both { background: linear-gradient(90deg, rgb(var(--less)), rgb(var(--less) / 0) 50%,\n"
    "  rgb(var(--more) / 0) 50%, rgb(var(--more))); }\n"
    ".m { background: rgb(var(--more) / var(--v)); }\n"
    ".l { background: rgb(var(--less) / var(--v)); }\n"
    ".s { color: #ffffff; }\n"
    ".x { box-shadow: inset 0 0 0 2px var(--text); }\n"
    ".frame { display: inline-block; width: 1.6em; height: 1em; margin: 0 .4em 0 1em;\n"
    "  vertical-align: -2px; }\n"
    "#tip { position: fixed; z-index: 9; max-width: min(30em, 95vw); padding: .4em .6em;\n"
    "  white-space: pre-wrap; overflow-wrap: anywhere; pointer-events: none;\n"
    "  border: 1px solid var(--dim); border-radius: 4px; background: var(--ground);\n"
    "  font: 13px/1.4 ui-monospace, monospace; }\n"
    "#tip[hidden] { display: none; }\n"
    ":focus-visible { outline: 3px solid var(--text); outline-offset: -2px; }\n";

static const char html_grid_style[] =
    ".scroll { overflow: auto; max-height: 85vh; width: fit-content; max-width: 100%;\n"
    "  scroll-padding: 3.5em 1em 1em 10em; }\n"
    "table { border-collapse: separate; border-spacing: 1px;\n"
    "  font: 13px/1.5 ui-monospace, monospace; }\n"
    "td { padding: 0 .4em; min-width: 2.6em; text-align: center; }\n"
    "td, th { white-space: pre; max-width: 11em; overflow: hidden; text-overflow: ellipsis;\n"
    "  unicode-bidi: isolate; }\n"
    "th { padding: 0 .5em; background: var(--ground); font-weight: normal; color: var(--dim);\n"
    "  box-shadow: 0 0 0 1px var(--ground); }\n"
    "thead th { position: sticky; top: 0; z-index: 1; vertical-align: bottom; }\n"
    "tbody th { position: sticky; left: 0; text-align: right; }\n"
    "thead th:first-child { left: 0; z-index: 2; }\n"
    "@media (max-width: 500px) {\n"
    "  td { padding: 0 .15em; } th { padding: 0 .25em; } }\n"
    "td:hover { outline: 2px solid var(--text); outline-offset: -2px; }\n";

static const char html_words_style[] =
    ".words { font: 16px/1.9 ui-monospace, monospace; white-space: pre-wrap;\n"
    "  overflow-wrap: anywhere; max-width: 60em; margin-top: 1rem; }\n"
    ".words span { padding: .15em 0; border-radius: 2px; unicode-bidi: isolate; }\n"
    ".words span:hover { outline: 2px solid var(--text); }\n";

/* Shows the tip of the element under the pointer or with the focus. */
static const char html_tip_script[] =
    "const tip = document.getElementById('tip');\n"
    "let tipOf = null; // the element with the focus, if the tip is about that\n"
    "function placeTip(x, above, below, text) {\n"
    "  tip.textContent = text;\n"
    "  tip.hidden = !text;\n"
    "  const fits = below + tip.offsetHeight < innerHeight;\n"
    "  tip.style.left = Math.max(Math.min(x, innerWidth - tip.offsetWidth - 8), 4) + 'px';\n"
    "  tip.style.top = Math.max(fits ? below : above - tip.offsetHeight, 4) + 'px';\n"
    "}\n"
    "function tipUnder(element) {\n"
    "  const box = element.getBoundingClientRect();\n"
    "  const seen = box.bottom > 0 && box.top < innerHeight;\n"
    "  tipOf = element;\n"
    "  placeTip(box.left, box.top - 6, box.bottom + 6, seen && element.dataset.tip || '');\n"
    "}\n"
    "function showTip(event, text) {\n"
    "  tipOf = null;\n"
    "  placeTip(event.clientX + 12, event.clientY - 10, event.clientY + 18, text);\n"
    "}\n"
    "function hideTip() {\n"
    "  tipOf = null;\n"
    "  tip.hidden = true;\n"
    "}\n"
    "addEventListener('pointermove', event => {\n"
    "  const from = event.target.closest('[data-tip]');\n"
    "  if (!event.target.closest('canvas')) showTip(event, from ? from.dataset.tip : '');\n"
    "});\n"
    "addEventListener('scroll', () => tipOf ? tipUnder(tipOf) : hideTip(), true);\n"
    "\n"
    "// The Tab key stops once in each table and text; the arrow keys go on from there.\n"
    "const groups = 'tbody, .words', places = 'td, .words span';\n"
    "document.querySelectorAll(groups).forEach(group => {\n"
    "  const first = group.querySelector(places);\n"
    "  if (first) first.tabIndex = 0;\n"
    "});\n"
    "function goTo(place) {\n"
    "  const old = place.closest(groups).querySelector('[tabindex=\"0\"]');\n"
    "  if (old) old.tabIndex = -1;\n"
    "  place.tabIndex = 0;\n"
    "  place.setAttribute('aria-describedby', 'tip');\n"
    "  place.focus();\n"
    "}\n"
    "function beside(place, key) {\n"
    "  const cell = place.matches('td');\n"
    "  const list = [...place.parentNode.querySelectorAll(cell ? 'td' : 'span')];\n"
    "  const at = list.indexOf(place);\n"
    "  const row = key == 'ArrowUp' ? place.parentNode.previousElementSibling\n"
    "    : key == 'ArrowDown' ? place.parentNode.nextElementSibling : null;\n"
    "  return key == 'ArrowLeft' ? list[at - 1] : key == 'ArrowRight' ? list[at + 1]\n"
    "    : key == 'Home' ? list[0] : key == 'End' ? list[list.length - 1]\n"
    "    : cell && row ? row.querySelectorAll('td')[at] : null;\n"
    "}\n"
    "addEventListener('click', event => {\n"
    "  const place = event.target.closest(places);\n"
    "  if (place) goTo(place);\n"
    "});\n"
    "addEventListener('focusin', event => {\n"
    "  if (event.target.matches(places)) tipUnder(event.target);\n"
    "});\n"
    "addEventListener('focusout', hideTip);\n"
    "addEventListener('keydown', event => {\n"
    "  const place = event.target.closest && event.target.closest(places);\n"
    "  const next = place && beside(place, event.key);\n"
    "  if (event.key == 'Escape') hideTip();\n"
    "  if (!next) return;\n"
    "  event.preventDefault();\n"
    "  goTo(next);\n"
    "  tipUnder(next);\n"
    "});\n";

static void html_element(FILE *file, const char *tag, const char *attributes, const char *text)
{
    fprintf(file, "<%s%s>", tag, attributes);
    html_text(file, text);
    fprintf(file, "</%s>", tag);
}

static void html_begin(FILE *file, const lens_page *page, const char *style, const char *more_style)
{
    size_t i;
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
          file);
    html_element(file, "title", "", page->title);
    fprintf(file, "\n<style>\n%s%s%s</style>\n</head>\n<body>\n", html_style, style, more_style);
    html_element(file, "h1", "", page->title);
    fputs("\n<dl class=\"facts\">\n", file);
    for (i = 0; i < page->n_facts; i++) {
        fputs("<div>", file);
        html_element(file, "dt", "", page->facts[i].name);
        html_element(file, "dd", " dir=\"auto\"", page->facts[i].value);
        fputs("</div>\n", file);
    }
    fputs("</dl>\n", file);
    html_element(file, "p", "", page->note);
    if (page->warning)
        html_element(file, "p", " class=\"warning\" role=\"alert\"", page->warning);
    fputs("\n", file);
}

static void html_end(FILE *file)
{
    fprintf(file,
            "<div id=\"tip\" role=\"tooltip\" hidden></div>\n<script>\n%s</script>\n</body>\n"
            "</html>\n",
            html_tip_script);
}

/* `scale` is one of the style's: from0, costs, roots or both. */
static void html_legend(FILE *file, const char *low, const char *scale, const char *high,
                        size_t n_clipped)
{
    fputs("<p class=\"legend\">", file);
    html_text(file, low);
    fprintf(file, "<span class=\"scale %s\"></span>", scale);
    html_text(file, high);
    if (n_clipped) {
        fputs(" <span class=\"frame x\"></span>", file);
        clipped_note(file, n_clipped);
    }
    fputs("</p>\n", file);
}

/* The attributes of a cell or a word: its colour and its tip. */
static void html_colour(FILE *file, float colour, const char *tip)
{
    fprintf(file, " class=\"%c%s%s\" style=\"--v:%.3f\"", colour < 0 ? 'l' : 'm',
            opacity(colour) > 0.76 ? " s" : "", is_clipped(colour) ? " x" : "", opacity(colour));
    if (!tip)
        return;
    fputs(" data-tip=\"", file);
    html_text(file, tip);
    putc('"', file);
}

static void html_grid(FILE *file, const lens_grid *grid)
{
    size_t i, j;
    html_element(file, "h2", "", grid->title);
    fputs("\n", file);
    html_legend(file, grid->low ? grid->low : "0", grid->low ? "both" : "from0", grid->high,
                count_clipped(grid));
    fputs("<div class=\"scroll\"><table aria-label=\"", file);
    html_text(file, grid->title);
    fputs("\">\n<thead><tr>", file);
    html_element(file, "th", "", corner_of(grid->row_name, grid->column_name).text);
    for (j = 0; j < grid->n_columns; j++)
        html_element(file, "th", " scope=\"col\"", grid->columns[j]);
    fputs("</tr></thead>\n<tbody>\n", file);
    for (i = 0; i < grid->n_rows; i++) {
        fputs("<tr>", file);
        html_element(file, "th", " scope=\"row\"", grid->rows[i]);
        for (j = 0; j < grid->n_columns; j++) {
            const lens_cell *cell = &grid->cells[i * grid->n_columns + j];
            fputs("<td", file);
            html_colour(file, cell->colour, cell->tip);
            putc('>', file);
            html_text(file, cell->text);
            fputs("</td>", file);
        }
        fputs("</tr>\n", file);
    }
    fputs("</tbody></table></div>\n", file);
}

static void html_grids(FILE *file, const lens_page *page, const lens_grid *grids, size_t n)
{
    size_t i;
    html_begin(file, page, html_grid_style, "");
    html_element(file, "p", "",
                 "Point at a cell, or go to it with Tab and the arrow keys: it tells more.");
    fputs("\n", file);
    for (i = 0; i < n; i++)
        html_grid(file, &grids[i]);
    html_end(file);
}

/* A text, a word for each token. */
static void html_tokens(FILE *file, const char *label, const lens_word *words, size_t n)
{
    size_t i;
    fprintf(file, "<div class=\"words\" role=\"listbox\" aria-label=\"%s\">", label);
    for (i = 0; i < n; i++) {
        fputs("<span role=\"option\"", file);
        html_colour(file, words[i].colour, words[i].tip);
        putc('>', file);
        html_text(file, words[i].text);
        fputs(words[i].breaks ? "</span><br>" : "</span>", file);
    }
    fputs("</div>\n", file);
}

static void html_words(FILE *file, const lens_page *page, const char *high, const lens_word *words,
                       size_t n)
{
    html_begin(file, page, html_words_style, "");
    html_element(file, "p", "",
                 "Point at a token, or go to it with Tab and the arrow keys: it tells more.");
    fputs("\n", file);
    html_legend(file, "0", "costs", high, 0);
    html_tokens(file, "the text, token by token", words, n);
    html_end(file);
}

/* ---- attention patterns ----
 *
 * A page holds every weight of every head: two digits of base 64 that begin at '0', which makes
 * steps of 1/4095, for the lower triangle row by row. None of the digits means anything to HTML. A
 * weight that is not a number (the model is damaged, or its numbers have overflowed) is "--". */

static const char html_pattern_style[] =
    "#both { display: flex; gap: 1.2rem; height: calc(100vh - 1rem); min-height: 30rem; }\n"
    "#heads { display: grid; gap: 2px; overflow: auto; padding: 3px; flex: none; max-width: 55%;\n"
    "  align-content: start; justify-content: start; font: 12px/1.3 ui-monospace, monospace;\n"
    "  color: var(--dim); }\n"
    "#heads span { padding: 0 .3em; text-align: center; align-self: center; }\n"
    "#heads span:first-child { max-width: 4.5em; align-self: end; }\n"
    "#heads button { padding: 1px; border: 1px solid var(--line); border-radius: 3px;\n"
    "  background: var(--ground); cursor: pointer; }\n"
    "#heads button[aria-pressed=true] { outline: 2px solid var(--text); outline-offset: 0; }\n"
    "#heads canvas { display: block; width: var(--size); height: var(--size);\n"
    "  image-rendering: pixelated; }\n"
    "#one { flex: 1; min-width: 0; min-height: 0; display: flex; flex-direction: column; }\n"
    "#one h2 { margin: 0 0 .2rem; }\n"
    "#one .words { margin: .2rem 0 .5rem; padding: 3px; max-height: 30%; overflow: auto;\n"
    "  flex: none; line-height: 1.6; }\n"
    "#said { margin: 0; min-height: 2.9em; }\n"
    ".later { color: var(--dim); opacity: .6; }\n"
    ".words [aria-selected=true] { outline: 2px solid var(--text); }\n"
    "#large { position: relative; overflow: auto; flex: 1; min-height: 0; }\n"
    "#large canvas { position: sticky; left: 0; top: 0; display: block; }\n"
    "#large div { position: absolute; left: 0; top: 0; z-index: -1; }\n"
    "@media (max-width: 760px) {\n"
    "  #both { flex-direction: column; gap: .6rem; min-height: 40rem; }\n"
    "  #heads { max-width: 100%; max-height: 38%; }\n"
    "  #one .words { max-height: 22%; font-size: 14px; } }\n";

static const char html_pattern_draw[] =
    "const info = JSON.parse(document.getElementById('info').textContent);\n"
    "const tokens = info.tokens, n = tokens.length, columns = info.columns;\n"
    "const data = [...document.querySelectorAll('script.head')].map(s => s.textContent);\n"
    "const at = id => document.getElementById(id);\n"
    "const large = at('large'), view = large.querySelector('canvas');\n"
    "const space = large.querySelector('div');\n"
    "const longest = Math.max(6, ...tokens.map(token => [...token].length));\n"
    "let chosen = 0, query = n - 1, over = null, margin = 120, cell = 20;\n"
    "\n"
    "function weight(head, query, key) {\n"
    "  const at = query * (query + 1) + 2 * key;\n"
    "  const digit = i => data[head].charCodeAt(i) - 48;\n"
    "  return digit(at) < 0 ? NaN : (digit(at) * 64 + digit(at + 1)) / 4095;\n"
    "}\n"
    "const root = (head, query, key) => Math.sqrt(weight(head, query, key)) || 0;\n"
    "const colour = () => getComputedStyle(document.documentElement);\n"
    "const rgb = () => colour().getPropertyValue('--ink').trim().split(' ').map(Number);\n"
    "\n"
    "// At a glance: a pixel is a weight, or in a long text the largest of several. Its opacity\n"
    "// is the square root of the weight, here and below, for most weights are small.\n"
    "function drawSmall(canvas, head) {\n"
    "  const size = canvas.width = canvas.height = Math.min(n, 176);\n"
    "  const pixels = new ImageData(size, size), ink = rgb();\n"
    "  for (let q = 0; q < n; q++)\n"
    "    for (let k = 0; k <= q; k++) {\n"
    "      const at = 4 * ((q * size / n | 0) * size + (k * size / n | 0));\n"
    "      const alpha = Math.max(pixels.data[at + 3], 255 * root(head, q, k));\n"
    "      pixels.data.set([...ink, alpha], at);\n"
    "    }\n"
    "  canvas.getContext('2d').putImageData(pixels, 0, 0);\n"
    "}\n"
    "\n"
    "function cut(text) {\n"
    "  const most = (margin - 10) / 8 | 0, letters = [...text];\n"
    "  return letters.length > most ? letters.slice(0, most - 1).join('') + '…' : text;\n"
    "}\n"
    "\n"
    "function drawLabels(pen, w, h, x0, y0, part, style) {\n"
    "  const shade = lit => {\n"
    "    pen.fillStyle = style.getPropertyValue(lit ? '--text' : '--dim');\n"
    "  };\n"
    "  pen.fillStyle = style.getPropertyValue('--ground');\n"
    "  pen.fillRect(0, 0, w, margin - 1);\n"
    "  pen.fillRect(0, 0, margin - 1, h);\n"
    "  pen.textAlign = 'right';\n"
    "  for (let q = part.q0; q < part.q1; q++) {\n"
    "    if (y0 + (q + 0.5) * cell < margin) continue;\n"
    "    shade(q == query);\n"
    "    pen.fillText(cut(tokens[q]), margin - 6, y0 + (q + 0.5) * cell);\n"
    "  }\n"
    "  pen.textAlign = 'left';\n"
    "  for (let k = part.k0; k < part.k1; k++) {\n"
    "    if (x0 + (k + 0.5) * cell < margin) continue;\n"
    "    shade(over && over.k == k);\n"
    "    pen.save();\n"
    "    pen.translate(x0 + (k + 0.5) * cell, margin - 6);\n"
    "    pen.rotate(-Math.PI / 2);\n"
    "    pen.fillText(cut(tokens[k]), 0, 0);\n"
    "    pen.restore();\n"
    "  }\n"
    "  pen.fillStyle = style.getPropertyValue('--ground');\n"
    "  pen.fillRect(0, 0, margin - 1, margin - 1);\n"
    "  shade(false);\n"
    "  pen.fillText('key →', margin - 46, 12);\n"
    "  pen.fillText('query ↓', 6, margin - 12);\n"
    "}\n";

static const char html_pattern_large[] =
    "\n"
    "// Only what is in sight is drawn, so that a text of any length can be large.\n"
    "function drawLarge() {\n"
    "  margin = Math.min(large.clientWidth < 480 ? 80 : 120, longest * 8 + 14);\n"
    "  const room = Math.min(large.clientWidth, large.clientHeight) - margin - 4;\n"
    "  cell = Math.max(16, Math.min(44, Math.floor(room / n)));\n"
    "  const all = margin + n * cell + 2;\n"
    "  space.style.width = space.style.height = all + 'px';\n"
    "  const w = Math.min(all, large.clientWidth), h = Math.min(all, large.clientHeight);\n"
    "  const ratio = devicePixelRatio || 1, pen = view.getContext('2d'), style = colour();\n"
    "  const x0 = margin - large.scrollLeft, y0 = margin - large.scrollTop;\n"
    "  view.style.width = w + 'px';\n"
    "  view.style.height = h + 'px';\n"
    "  view.width = w * ratio;\n"
    "  view.height = h * ratio;\n"
    "  pen.scale(ratio, ratio);\n"
    "  pen.font = '13px ui-monospace, monospace';\n"
    "  pen.textBaseline = 'middle';\n"
    "  const part = {\n"
    "    q0: Math.max(0, Math.floor((margin - y0) / cell)), q1: Math.min(n, (h - y0) / cell),\n"
    "    k0: Math.max(0, Math.floor((margin - x0) / cell)), k1: Math.min(n, (w - x0) / cell)};\n"
    "  const ink = rgb().join(' '), later = style.getPropertyValue('--line');\n"
    "  for (let q = part.q0; q < part.q1; q++)\n"
    "    for (let k = part.k0; k < part.k1; k++) {\n"
    "      pen.fillStyle = k > q ? later : `rgb(${ink} / ${root(chosen, q, k)})`;\n"
    "      pen.globalAlpha = k > q ? 0.2 : 1;\n"
    "      pen.fillRect(x0 + k * cell, y0 + q * cell, cell - 1, cell - 1);\n"
    "    }\n"
    "  pen.globalAlpha = 1;\n"
    "  pen.strokeStyle = style.getPropertyValue('--dim');\n"
    "  pen.strokeRect(x0, y0 + query * cell, (query + 1) * cell - 1, cell - 1);\n"
    "  pen.strokeStyle = style.getPropertyValue('--text');\n"
    "  pen.lineWidth = 2;\n"
    "  if (over) pen.strokeRect(x0 + over.k * cell, y0 + over.q * cell, cell - 1, cell - 1);\n"
    "  drawLabels(pen, w, h, x0, y0, part, style);\n"
    "}\n"
    "function reveal(q, k) {\n"
    "  const shift = (place, size, now) => Math.max(Math.min(now, place),\n"
    "    place + margin + cell - size);\n"
    "  large.scrollTo(shift(k * cell, large.clientWidth, large.scrollLeft),\n"
    "    shift(q * cell, large.clientHeight, large.scrollTop));\n"
    "}\n";

static const char html_pattern_heads[] =
    "\n"
    "const words = [...document.querySelectorAll('.words span')];\n"
    "const heads = at('heads'), label = ([layer, head]) => `layer ${layer}, head ${head}`;\n"
    "const percent = part => isNaN(part) ? 'not a number' : (100 * part).toFixed(1) + ' %';\n"
    "\n"
    "// The text on the colours of one query's attention, and its largest weights in words.\n"
    "function showQuery() {\n"
    "  const most = [...words.keys()].slice(0, query + 1)\n"
    "    .sort((a, b) => weight(chosen, query, b) - weight(chosen, query, a))\n"
    "    .filter((k, i) => i == 0 || weight(chosen, query, k) >= 0.0005).slice(0, 4);\n"
    "  words.forEach((word, k) => {\n"
    "    const v = k > query ? 0 : root(chosen, query, k);\n"
    "    word.className = k > query ? 'later' : v > 0.76 ? 'm s' : 'm';\n"
    "    word.style.setProperty('--v', v.toFixed(3));\n"
    "    word.setAttribute('aria-selected', k == query);\n"
    "  });\n"
    "  at('said').textContent = `${query} ${tokens[query]} attends to `\n"
    "    + most.map(k => `${k} ${tokens[k]} ${percent(weight(chosen, query, k))}`).join(', ');\n"
    "}\n"
    "function look(q) {\n"
    "  query = q;\n"
    "  showQuery();\n"
    "  drawLarge();\n"
    "}\n"
    "function choose(head) {\n"
    "  chosen = head;\n"
    "  at('head').textContent = label(info.heads[head]);\n"
    "  view.setAttribute('aria-label', 'attention pattern of ' + label(info.heads[head]));\n"
    "  buttons.forEach((button, i) => {\n"
    "    button.setAttribute('aria-pressed', i == head);\n"
    "    button.tabIndex = i == head ? 0 : -1;\n"
    "  });\n"
    "  look(query);\n"
    "}\n"
    "function follow(head) {\n"
    "  choose(head);\n"
    "  history.replaceState(null, '', `#${info.heads[head].join('.')}`);\n"
    "  buttons[head].scrollIntoView({block: 'nearest', inline: 'nearest'});\n"
    "  at('both').scrollIntoView({block: 'nearest'});\n"
    "}\n"
    "const buttons = info.heads.map((head, i) => {\n"
    "  const button = document.createElement('button');\n"
    "  button.append(document.createElement('canvas'));\n"
    "  button.title = label(head);\n"
    "  button.setAttribute('aria-label', label(head));\n"
    "  button.onclick = () => follow(i);\n"
    "  return button;\n"
    "});\n"
    "function heading(text) {\n"
    "  const place = document.createElement('span');\n"
    "  place.textContent = text;\n"
    "  heads.append(place);\n"
    "}\n"
    "heads.style.gridTemplateColumns = `repeat(${columns + 1}, max-content)`;\n"
    "heading('layer\\\\\\u200bhead');\n"
    "for (let i = 0; i < columns; i++) heading(info.heads[i][1]);\n"
    "buttons.forEach((button, i) => {\n"
    "  if (i % columns == 0) heading(info.heads[i][0]);\n"
    "  heads.append(button);\n"
    "});\n";

static const char html_pattern_events[] =
    "\n"
    "function arrange() {\n"
    "  const beside = getComputedStyle(at('both')).flexDirection == 'row';\n"
    "  const width = at('both').clientWidth * (beside ? 0.45 : 1);\n"
    "  const room = width - heads.firstChild.offsetWidth - 24;\n"
    "  const size = Math.max(22, Math.min(88, Math.floor(room / columns) - 6));\n"
    "  heads.style.setProperty('--size', size + 'px');\n"
    "  drawLarge();\n"
    "}\n"
    "function drawAll() {\n"
    "  buttons.forEach((b, i) => drawSmall(b.querySelector('canvas'), i));\n"
    "  arrange();\n"
    "}\n"
    "const step = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};\n"
    "function stepHead(row, column) {\n"
    "  const x = chosen % columns + column, next = chosen + row * columns + column;\n"
    "  if (x < 0 || x >= columns || !buttons[next]) return;\n"
    "  follow(next);\n"
    "  if (heads.contains(document.activeElement)) buttons[next].focus();\n"
    "}\n"
    "function stepCell(row, column) {\n"
    "  const q = Math.max(0, Math.min(n - 1, (over ? over.q : query) + row));\n"
    "  over = {q, k: Math.max(0, Math.min(q, (over ? over.k : q) + column))};\n"
    "  reveal(q, over.k);\n"
    "  look(q);\n"
    "  const box = large.getBoundingClientRect(), x = box.left + margin - large.scrollLeft;\n"
    "  const y = box.top + margin - large.scrollTop + q * cell;\n"
    "  placeTip(x + over.k * cell, y - 4, y + cell + 4, tell());\n"
    "}\n"
    "const tell = () => `query ${over.q}  ${tokens[over.q]}\\n`\n"
    "  + `key ${over.k}  ${tokens[over.k]}\\n`\n"
    "  + `weight ${weight(chosen, over.q, over.k).toFixed(3)}`;\n"
    "addEventListener('keydown', event => {\n"
    "  const way = step[event.key];\n"
    "  if (!way || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey\n"
    "    || (event.target.closest && event.target.closest('.words'))) return;\n"
    "  event.preventDefault();\n"
    "  (large.contains(event.target) ? stepCell : stepHead)(...way);\n"
    "});\n"
    "words.forEach((word, q) => {\n"
    "  word.addEventListener('pointerenter', () => look(q));\n"
    "  word.addEventListener('focus', () => {\n"
    "    reveal(q, Math.min(q, over ? over.k : 0));\n"
    "    look(q);\n"
    "  });\n"
    "});\n"
    "view.addEventListener('pointermove', event => {\n"
    "  const box = view.getBoundingClientRect();\n"
    "  const x = event.clientX - box.left, y = event.clientY - box.top;\n"
    "  const k = Math.floor((x - margin + large.scrollLeft) / cell);\n"
    "  const q = Math.floor((y - margin + large.scrollTop) / cell);\n"
    "  over = x >= margin && y >= margin && k <= q && q < n ? {q, k} : null;\n"
    "  showTip(event, over ? tell() : '');\n"
    "  look(over ? over.q : query);\n"
    "});\n"
    "view.addEventListener('pointerleave', () => { over = null; hideTip(); drawLarge(); });\n"
    "large.addEventListener('scroll', drawLarge);\n"
    "addEventListener('resize', arrange);\n"
    "matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawAll);\n"
    "drawAll();\n"
    "choose(Math.max(0, info.heads.findIndex(h => '#' + h.join('.') == location.hash)));\n";

/* After this, html_pattern for each head. `words` are the tokens as they stand in the text, tokens
 * their names. */
static void html_patterns_begin(FILE *file, const lens_page *page, const lens_heads *heads,
                                const char *const *tokens, const lens_word *words, size_t n)
{
    size_t i;
    html_begin(file, page, html_words_style, html_pattern_style);
    html_legend(file, "0", "roots", "1: all of a query's attention. " LENS_ROOTS, 0);
    fputs("<div id=\"both\">\n<div id=\"heads\" role=\"group\" aria-label=\"heads\"></div>\n"
          "<div id=\"one\"><h2 id=\"head\" aria-live=\"polite\"></h2>\n",
          file);
    html_tokens(file, "the text: choose the token that attends", words, n);
    fputs("<p id=\"said\" aria-live=\"polite\"></p>\n"
          "<div id=\"large\" tabindex=\"0\" role=\"region\" aria-label=\"the chosen head, large\">"
          "<div></div><canvas role=\"img\"></canvas></div></div></div>\n"
          "<script type=\"application/json\" id=\"info\">\n{\"tokens\": [",
          file);
    for (i = 0; i < n; i++) {
        fputs(i ? ", " : "", file);
        json_text(file, tokens[i], strlen(tokens[i]));
    }
    fputs("], \"heads\": [", file);
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

static void html_patterns_end(FILE *file)
{
    const char *const scripts[] = {html_tip_script, html_pattern_draw, html_pattern_large,
                                   html_pattern_heads, html_pattern_events};
    size_t i;
    fputs("<div id=\"tip\" role=\"tooltip\" hidden></div>\n<script>\n", file);
    for (i = 0; i < sizeof scripts / sizeof scripts[0]; i++)
        fputs(scripts[i], file);
    fputs("</script>\n</body>\n</html>\n", file);
}

#endif
