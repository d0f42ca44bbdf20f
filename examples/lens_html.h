/* The pictures of lens.c: HTML and SVG files that need nothing else, in light and in dark. An HTML
 * page scrolls and shows more under the pointer; an SVG is the same picture, to put into a paper.
 *
 * Texts that come in here are UTF-8 without control characters; lens.c sees to that. */
#ifndef LENS_HTML_H
#define LENS_HTML_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* What a cell shows. colour is -1 to 1: how much of the one colour or of the other. */
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

/* A page: what is above the pictures. */
typedef struct lens_page {
    const char *title, *note;
} lens_page;

/* A stretch of text on a coloured ground. */
typedef struct lens_word {
    float colour;
    int breaks; /* a line of the text ends here */
    const char *text, *tip;
} lens_word;

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

/* Length of the UTF-8 character at p, of at most n bytes; 0: there is none. */
static size_t utf8_length(const unsigned char *p, size_t n, uint32_t *code)
{
    const size_t length = *p < 0x80   ? 1
                          : *p < 0xC2 ? 0
                          : *p < 0xE0 ? 2
                          : *p < 0xF0 ? 3
                          : *p < 0xF5 ? 4
                                      : 0;
    size_t i;
    if (length == 0 || length > n)
        return 0;
    *code = length == 1 ? *p : *p & (0xFFu >> (length + 1));
    for (i = 1; i < length; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        *code = *code << 6 | (p[i] & 0x3Fu);
    }
    if ((length == 3 && (*code < 0x800 || (*code >= 0xD800 && *code < 0xE000))) ||
        (length == 4 && (*code < 0x10000 || *code > 0x10FFFF)))
        return 0;
    return length;
}

/* Columns of a terminal, or of a monospace font, that a character takes. */
static int width_of(uint32_t c)
{
    const int wide = (c >= 0x1100 && c < 0x1160) || (c >= 0x2E80 && c < 0xA4D0) ||
                     (c >= 0xAC00 && c < 0xD7A4) || (c >= 0xF900 && c < 0xFB00) ||
                     (c >= 0xFE30 && c < 0xFE70) || (c >= 0xFF00 && c < 0xFF61) ||
                     (c >= 0x1F300 && c < 0x1FB00) || (c >= 0x20000 && c < 0x3FFFE);
    return wide ? 2 : c >= 0x300 && c < 0x370 ? 0 : 1;
}

/* Columns of the first `size` bytes of a text. */
static size_t text_width(const char *text, size_t size)
{
    size_t at, length, width = 0;
    uint32_t code;
    for (at = 0; at < size; at += length ? length : 1) {
        length = utf8_length((const unsigned char *)text + at, size - at, &code);
        width += length ? (size_t)width_of(code) : 0;
    }
    return width;
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
    "  --ink: 29 84 200; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "  :root { --ground: #15181c; --text: #eceff3; --dim: #9aa4b0; --line: #363c44;\n"
    "    --more: 45 105 230; --less: 190 74 14; --ink: 130 175 255; } }\n"
    "body { margin: 1.5rem; background: var(--ground); color: var(--text);\n"
    "  font: 15px/1.45 system-ui, sans-serif; }\n"
    "h1 { font-size: 1.35rem; margin: 0 0 .3rem; }\n"
    "h2 { font-size: 1.05rem; margin: 1.6rem 0 .3rem; }\n"
    "p { margin: .3rem 0; color: var(--dim); max-width: 70em; overflow-wrap: anywhere; }\n"
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
    "#tip { position: fixed; z-index: 9; max-width: 30em; padding: .4em .6em; white-space: "
    "pre-wrap;\n"
    "  overflow-wrap: anywhere; pointer-events: none; border: 1px solid var(--dim);\n"
    "  border-radius: 4px; background: var(--ground); font: 13px/1.4 ui-monospace, monospace; }\n"
    "#tip[hidden] { display: none; }\n";

static const char html_grid_style[] =
    ".scroll { overflow: auto; max-height: 85vh; width: fit-content; max-width: 100%; }\n"
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
    "td:hover { outline: 2px solid var(--text); outline-offset: -2px; }\n";

static const char html_words_style[] =
    ".words { font: 16px/1.9 ui-monospace, monospace; white-space: pre-wrap;\n"
    "  overflow-wrap: anywhere; max-width: 60em; margin-top: 1rem; }\n"
    ".words span { padding: .15em 0; border-radius: 2px; unicode-bidi: isolate; }\n"
    ".words span:hover { outline: 2px solid var(--text); }\n";

/* Shows what the element under the pointer has to tell. */
static const char html_tip_script[] =
    "const tip = document.getElementById('tip');\n"
    "function showTip(event, text) {\n"
    "  tip.textContent = text;\n"
    "  tip.hidden = !text;\n"
    "  const below = event.clientY + 18 + tip.offsetHeight < innerHeight;\n"
    "  const left = Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8);\n"
    "  tip.style.left = Math.max(left, 4) + 'px';\n"
    "  tip.style.top = Math.max(event.clientY + (below ? 18 : -tip.offsetHeight - 10), 4) + 'px';\n"
    "}\n"
    "addEventListener('pointermove', event => {\n"
    "  const from = event.target.closest('[data-tip]');\n"
    "  if (!event.target.closest('canvas')) showTip(event, from ? from.dataset.tip : '');\n"
    "});\n";

static void html_begin(FILE *file, const lens_page *page, const char *style)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width\">\n<title>",
          file);
    html_text(file, page->title);
    fprintf(file, "</title>\n<style>\n%s%s</style>\n</head>\n<body>\n<h1>", html_style, style);
    html_text(file, page->title);
    fputs("</h1>\n<p>", file);
    html_text(file, page->note);
    fputs("</p>\n", file);
}

static void html_end(FILE *file, const char *script)
{
    fprintf(file, "<div id=\"tip\" hidden></div>\n<script>\n%s%s</script>\n</body>\n</html>\n",
            html_tip_script, script);
}

/* `scale` is one of the style's: from0, costs, roots or both. */
static void html_legend(FILE *file, const char *low, const char *scale, const char *high)
{
    fputs("<p class=\"legend\">", file);
    html_text(file, low);
    fprintf(file, "<span class=\"scale %s\"></span>", scale);
    html_text(file, high);
    fputs("</p>\n", file);
}

/* The attributes of a cell or a word: its colour and its tip. */
static void html_colour(FILE *file, float colour, const char *tip)
{
    const double size = colour < 0 ? -(double)colour : (double)colour;
    fprintf(file, " class=\"%c%s\" style=\"--v:%.3f\" data-tip=\"", colour < 0 ? 'l' : 'm',
            size > 0.76 ? " s" : "", size < 1 ? size : 1.0);
    html_text(file, tip);
    putc('"', file);
}

static void html_grid(FILE *file, const lens_grid *grid)
{
    size_t i, j;
    fputs("<h2>", file);
    html_text(file, grid->title);
    fputs("</h2>\n", file);
    html_legend(file, grid->low ? grid->low : "0", grid->low ? "both" : "from0", grid->high);
    fputs("<div class=\"scroll\"><table>\n<thead><tr><th>", file);
    html_text(file, grid->row_name);
    fputs("</th>", file);
    for (j = 0; j < grid->n_columns; j++) {
        fputs("<th>", file);
        html_text(file, grid->columns[j]);
        fputs("</th>", file);
    }
    fputs("</tr></thead>\n<tbody>\n", file);
    for (i = 0; i < grid->n_rows; i++) {
        fputs("<tr><th>", file);
        html_text(file, grid->rows[i]);
        fputs("</th>", file);
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
    html_begin(file, page, html_grid_style);
    for (i = 0; i < n; i++)
        html_grid(file, &grids[i]);
    html_end(file, "");
}

static void html_words(FILE *file, const lens_page *page, const char *high, const lens_word *words,
                       size_t n)
{
    size_t i;
    html_begin(file, page, html_words_style);
    html_legend(file, "0", "costs", high);
    fputs("<div class=\"words\">", file);
    for (i = 0; i < n; i++) {
        fputs("<span", file);
        html_colour(file, words[i].colour, words[i].tip);
        putc('>', file);
        html_text(file, words[i].text);
        fputs(words[i].breaks ? "</span><br>" : "</span>", file);
    }
    fputs("</div>\n", file);
    html_end(file, "");
}

/* ---- attention patterns ----
 *
 * A page holds every weight of every head: two digits of base 64 that begin at '0', which makes
 * steps of 1/4095, for the lower triangle row by row. None of the digits means anything to HTML. A
 * weight that is no number (the model is damaged, or its numbers have overflowed) is "--". */

static const char html_pattern_style[] =
    ".heads { display: grid; gap: 8px 6px; overflow-x: auto; padding: 3px; margin: .6rem 0;\n"
    "  width: fit-content; max-width: 100%; }\n"
    ".heads button { padding: 2px; border: 1px solid var(--line); border-radius: 3px;\n"
    "  background: var(--ground); color: var(--dim); font: 11px/1.3 ui-monospace, monospace;\n"
    "  cursor: pointer; }\n"
    ".heads button[aria-pressed=true] { outline: 2px solid var(--text); color: var(--text); }\n"
    ".heads canvas { display: block; width: 88px; height: 88px; image-rendering: pixelated; }\n"
    "#large { position: relative; overflow: auto; border: 1px solid var(--line);\n"
    "  width: fit-content; max-width: 100%; max-height: 90vh; }\n"
    "#large canvas { position: sticky; left: 0; top: 0; display: block; }\n"
    "#large div { position: absolute; left: 0; top: 0; z-index: -1; }\n";

static const char html_pattern_script[] =
    "const info = JSON.parse(document.getElementById('info').textContent);\n"
    "const tokens = info.tokens, n = tokens.length;\n"
    "const data = [...document.querySelectorAll('script.head')].map(s => s.textContent);\n"
    "const large = document.getElementById('large'), view = large.querySelector('canvas');\n"
    "const space = large.querySelector('div'), title = document.getElementById('head');\n"
    "const margin = 120, cell = Math.max(20, Math.min(44, 700 / n));\n"
    "let chosen = 0, over = null;\n"
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
    "// At a glance: a pixel is a weight, or in a long text the largest of several. Its opacity "
    "is\n"
    "// the square root of the weight, here and below, for most weights are small.\n"
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
    "const cut = text => [...text].length > 14 ? [...text].slice(0, 13).join('') + '…' : text;\n"
    "\n"
    "// Only what is in sight is drawn, so that a text of any length can be large.\n"
    "function drawLarge() {\n"
    "  const w = Math.min(margin + n * cell + 2, large.parentNode.clientWidth - 2);\n"
    "  const h = Math.min(margin + n * cell + 2, innerHeight * 0.9 - 2);\n"
    "  const ratio = devicePixelRatio || 1, pen = view.getContext('2d'), style = colour();\n"
    "  const x0 = margin - large.scrollLeft, y0 = margin - large.scrollTop;\n"
    "  space.style.width = space.style.height = margin + n * cell + 'px';\n"
    "  view.style.width = w + 'px';\n"
    "  view.style.height = h + 'px';\n"
    "  view.width = w * ratio;\n"
    "  view.height = h * ratio;\n"
    "  pen.scale(ratio, ratio);\n"
    "  pen.font = '13px ui-monospace, monospace';\n"
    "  pen.textBaseline = 'middle';\n"
    "  const q0 = Math.max(0, Math.floor((margin - y0) / cell)), q1 = Math.min(n, (h - y0) / "
    "cell);\n"
    "  const k0 = Math.max(0, Math.floor((margin - x0) / cell)), k1 = Math.min(n, (w - x0) / "
    "cell);\n"
    "  for (let q = q0; q < q1; q++)\n"
    "    for (let k = k0; k < k1; k++) {\n"
    "      pen.fillStyle = k > q ? style.getPropertyValue('--line')\n"
    "        : `rgb(${rgb().join(' ')} / ${root(chosen, q, k)})`;\n"
    "      pen.globalAlpha = k > q ? 0.2 : 1;\n"
    "      pen.fillRect(x0 + k * cell, y0 + q * cell, cell - 1, cell - 1);\n"
    "    }\n"
    "  pen.globalAlpha = 1;\n"
    "  pen.strokeStyle = style.getPropertyValue('--text');\n"
    "  if (over) pen.strokeRect(x0 + over.k * cell, y0 + over.q * cell, cell - 1, cell - 1);\n"
    "  pen.fillStyle = style.getPropertyValue('--ground');\n"
    "  pen.fillRect(0, 0, w, margin - 1);\n"
    "  pen.fillRect(0, 0, margin - 1, h);\n"
    "  pen.textAlign = 'right';\n"
    "  for (let q = q0; q < q1; q++) {\n"
    "    if (y0 + (q + 0.5) * cell < margin) continue;\n"
    "    pen.fillStyle = style.getPropertyValue(over && over.q == q ? '--text' : '--dim');\n"
    "    pen.fillText(cut(tokens[q]), margin - 6, y0 + (q + 0.5) * cell);\n"
    "  }\n"
    "  pen.textAlign = 'left';\n"
    "  for (let k = k0; k < k1; k++) {\n"
    "    if (x0 + (k + 0.5) * cell < margin) continue;\n"
    "    pen.fillStyle = style.getPropertyValue(over && over.k == k ? '--text' : '--dim');\n"
    "    pen.save();\n"
    "    pen.translate(x0 + (k + 0.5) * cell, margin - 6);\n"
    "    pen.rotate(-Math.PI / 2);\n"
    "    pen.fillText(cut(tokens[k]), 0, 0);\n"
    "    pen.restore();\n"
    "  }\n"
    "  pen.fillStyle = style.getPropertyValue('--ground');\n"
    "  pen.fillRect(0, 0, margin - 1, margin - 1);\n"
    "  pen.fillStyle = style.getPropertyValue('--dim');\n"
    "  pen.fillText('key →', margin - 46, 12);\n"
    "  pen.fillText('query ↓', 6, margin - 12);\n"
    "}\n";

static const char html_pattern_events[] =
    "\n"
    "function choose(head) {\n"
    "  chosen = head;\n"
    "  title.textContent = `layer ${info.heads[head][0]}, head ${info.heads[head][1]}`;\n"
    "  buttons.forEach((b, i) => b.setAttribute('aria-pressed', i == head));\n"
    "  drawLarge();\n"
    "}\n"
    "function drawAll() {\n"
    "  buttons.forEach((b, i) => drawSmall(b.querySelector('canvas'), i));\n"
    "  drawLarge();\n"
    "}\n"
    "const buttons = info.heads.map(([layer, head], i) => {\n"
    "  const button = document.createElement('button');\n"
    "  button.append(document.createElement('canvas'), `${layer}.${head}`);\n"
    "  button.title = `layer ${layer}, head ${head}`;\n"
    "  button.onclick = () => { choose(i); history.replaceState(null, '', `#${layer}.${head}`); "
    "};\n"
    "  return button;\n"
    "});\n"
    "const heads = document.getElementById('heads');\n"
    "heads.style.gridTemplateColumns = `repeat(${info.columns}, max-content)`;\n"
    "heads.append(...buttons);\n"
    "view.addEventListener('pointermove', event => {\n"
    "  const box = view.getBoundingClientRect();\n"
    "  const x = event.clientX - box.left, y = event.clientY - box.top;\n"
    "  const k = Math.floor((x - margin + large.scrollLeft) / cell);\n"
    "  const q = Math.floor((y - margin + large.scrollTop) / cell);\n"
    "  over = x >= margin && y >= margin && k <= q && q < n ? {q, k} : null;\n"
    "  showTip(event, over ? `query ${q}  ${tokens[q]}\\nkey ${k}  ${tokens[k]}\\n`\n"
    "    + `weight ${weight(chosen, q, k).toFixed(3)}` : '');\n"
    "  drawLarge();\n"
    "});\n"
    "view.addEventListener('pointerleave', () => { over = null; drawLarge(); });\n"
    "large.addEventListener('scroll', drawLarge);\n"
    "addEventListener('resize', drawLarge);\n"
    "matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawAll);\n"
    "drawAll();\n"
    "choose(Math.max(0, info.heads.findIndex(h => '#' + h.join('.') == location.hash)));\n";

/* heads [n_heads][2] are layers and heads; after this, html_pattern for each of them. */
static void html_patterns_begin(FILE *file, const lens_page *page, const char *const *tokens,
                                size_t n, size_t (*heads)[2], size_t n_heads, size_t n_columns)
{
    size_t i;
    html_begin(file, page, html_pattern_style);
    html_legend(file, "0", "roots", "1: all of a query's attention");
    fputs("<div id=\"heads\" class=\"heads\"></div>\n<h2 id=\"head\"></h2>\n<div><div id=\"large\">"
          "<div></div><canvas></canvas></div></div>\n"
          "<script type=\"application/json\" id=\"info\">\n{\"tokens\": [",
          file);
    for (i = 0; i < n; i++) {
        fputs(i ? ", " : "", file);
        json_text(file, tokens[i], strlen(tokens[i]));
    }
    fputs("], \"heads\": [", file);
    for (i = 0; i < n_heads; i++)
        fprintf(file, "%s[%zu, %zu]", i ? ", " : "", heads[i][0], heads[i][1]);
    fprintf(file, "], \"columns\": %zu}\n</script>\n", n_columns);
}

/* `at` gives the weight of a key for a query. */
typedef float (*lens_weight_fn)(const void *pattern, size_t query, size_t key);

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
    fputs("<div id=\"tip\" hidden></div>\n<script>\n", file);
    fputs(html_tip_script, file);
    fputs(html_pattern_script, file);
    fprintf(file, "%s</script>\n</body>\n</html>\n", html_pattern_events);
}

/* ---- SVG ---- */

enum { SVG_LINE = 20, SVG_EDGE = 16 }; /* heights and margins, in pixels */
#define SVG_LETTER 7.85 /* the width of a letter of a 13 px monospace font, or a little less */

static const char svg_style[] =
    "<style>\n"
    "text { font: 13px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace;\n"
    "  white-space: pre; fill: #1b1f24; }\n"
    ".big { font-size: 17px; } .dim { fill: #5d6671; } .c { text-anchor: middle; }\n"
    ".r { text-anchor: end; } .ground { fill: #ffffff; } .line { fill: #d5dae0; }\n"
    ".m, .ink { fill: rgb(29,84,200); } .l { fill: rgb(196,78,10); } .s { fill: #ffffff; }\n"
    "@media (prefers-color-scheme: dark) { text { fill: #eceff3; } .dim { fill: #9aa4b0; }\n"
    "  .ground { fill: #15181c; } .line { fill: #363c44; } .m { fill: rgb(45,105,230); }\n"
    "  .l { fill: rgb(190,74,14); } .s { fill: #ffffff; } .ink { fill: rgb(130,175,255); } }\n"
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

/* At most `most` columns of a line, "…" in place of the rest. */
static void svg_cut(FILE *file, const char *text, size_t most)
{
    const size_t size = strcspn(text, "\n"), needed = text_width(text, size);
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

static void svg_text(FILE *file, double x, double y, const char *class_name, const char *text,
                     size_t most)
{
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class_name);
    svg_cut(file, text, most);
    fputs("</text>\n", file);
}

static void svg_begin(FILE *file, const lens_page *page, double width, double height)
{
    const double title = SVG_EDGE * 2 + 10.5 * (double)line_width(page->title);
    const double note = SVG_EDGE * 2 + SVG_LETTER * (double)line_width(page->note);
    width = width > title ? width : title;
    width = width > note ? width : note;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\">\n%s<rect class=\"ground\" width=\"100%%\" "
            "height=\"100%%\"/>\n",
            width, height, width, height, svg_style);
    svg_text(file, SVG_EDGE, 30, "big", page->title, 1000);
    svg_text(file, SVG_EDGE, 52, "dim", page->note, 1000);
}
enum { SVG_TOP = 68 }; /* what svg_begin has used */

static void svg_box(FILE *file, double x, double y, double w, double h, float colour)
{
    const double size = colour < 0 ? -(double)colour : (double)colour;
    fprintf(file,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%c\" "
            "fill-opacity=\"%.3f\"/>",
            x, y, w, h, colour < 0 ? 'l' : 'm', size < 1 ? size : 1.0);
}

/* The scale of colours in steps, twelve to 1, for SVG has no gradient of opacity that all viewers
 * know. */
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

typedef struct svg_sizes {
    double label, cell, head; /* widths of row labels and of cells, height of column labels */
    size_t letters;           /* of a cell and its label */
    double width, height;
} svg_sizes;

static svg_sizes svg_measure(const lens_grid *grid)
{
    const size_t most = 12;
    size_t i, label = strlen(grid->row_name), letters = 4, lines = 1, n;
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
    s.letters = letters < most ? letters : most;
    s.label = SVG_LETTER * (double)label + 10;
    s.cell = SVG_LETTER * (double)s.letters + 10;
    s.head = SVG_LINE * (double)lines;
    s.width = 2 * SVG_EDGE + s.label + s.cell * (double)grid->n_columns;
    s.height = 2.6 * SVG_LINE + s.head + SVG_LINE * (double)(grid->n_rows + 1);
    return s;
}

static void svg_grid(FILE *file, const lens_grid *grid, double y)
{
    const svg_sizes s = svg_measure(grid);
    const double left = SVG_EDGE + s.label;
    size_t i, j;
    svg_text(file, SVG_EDGE, y + 15, "", grid->title, 1000);
    svg_legend(file, y + SVG_LINE, grid->low ? grid->low : "0", grid->low ? -12 : 0, 12,
               grid->high);
    y += 2.6 * SVG_LINE;
    svg_text(file, left - 8, y + s.head - 6, "dim r", grid->row_name, 100);
    for (j = 0; j < grid->n_columns; j++) {
        const char *text = grid->columns[j];
        double line = y + s.head - 6 - (SVG_LINE - 3) * (double)(svg_lines(text) - 1);
        for (; text; text = svg_next(text), line += SVG_LINE - 3) {
            fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" class=\"dim c\">",
                    left + s.cell * ((double)j + 0.5), line);
            svg_cut(file, text, s.letters);
            fputs("</text>\n", file);
        }
    }
    y += s.head;
    for (i = 0; i < grid->n_rows; i++, y += SVG_LINE) {
        svg_text(file, left - 8, y + 14, "dim r", grid->rows[i], 100);
        for (j = 0; j < grid->n_columns; j++) {
            const lens_cell *cell = &grid->cells[i * grid->n_columns + j];
            const double x = left + s.cell * (double)j;
            fputs("<g><title>", file);
            html_text(file, cell->tip);
            fputs("</title>", file);
            svg_box(file, x, y, s.cell - 1, SVG_LINE - 1, cell->colour);
            svg_text(file, x + s.cell / 2, y + 14,
                     cell->colour > 0.76f || cell->colour < -0.76f ? "c s" : "c", cell->text,
                     s.letters);
            fputs("</g>\n", file);
        }
    }
}

static void svg_grids(FILE *file, const lens_page *page, const lens_grid *grids, size_t n)
{
    double width = 0, height = SVG_TOP, y = SVG_TOP;
    size_t i;
    for (i = 0; i < n; i++) {
        const svg_sizes s = svg_measure(&grids[i]);
        width = s.width > width ? s.width : width;
        height += s.height;
    }
    svg_begin(file, page, width, height);
    for (i = 0; i < n; i++) {
        svg_grid(file, &grids[i], y);
        y += svg_measure(&grids[i]).height;
    }
    fputs("</svg>\n", file);
}

/* Where the words of a text stand in lines of a given number of letters. */
static size_t svg_place(const lens_word *words, size_t n, size_t letters, FILE *file)
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
            const double y = SVG_TOP + 2 * SVG_LINE + 1.3 * SVG_LINE * (double)line;
            fputs("<g><title>", file);
            html_text(file, words[i].tip);
            fputs("</title>", file);
            svg_box(file, x, y, width, SVG_LINE + 2, words[i].colour);
            fprintf(file,
                    "<text x=\"%.1f\" y=\"%.1f\" textLength=\"%.1f\" "
                    "lengthAdjust=\"spacingAndGlyphs\"%s>",
                    x, y + 15, width, words[i].colour < -0.76f ? " class=\"s\"" : "");
            svg_cut(file, words[i].text, letters);
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
    const size_t letters = 90, lines = svg_place(words, n, letters, NULL);
    svg_begin(file, page, 2 * SVG_EDGE + SVG_LETTER * (double)letters,
              SVG_TOP + 3 * SVG_LINE + 1.3 * SVG_LINE * (double)lines);
    svg_legend(file, SVG_TOP, "0", 0, -12, high);
    svg_place(words, n, letters, file);
    fputs("</svg>\n", file);
}

/* Many heads at a glance: squares of one brightness are one path, and what is fainter than 1/64 is
 * left out. Opacity is the root of a weight, as on the page. */
static void svg_pattern(FILE *file, lens_weight_fn at, const void *pattern, size_t n, double x,
                        double y, double size, const char *label)
{
    enum { STEPS = 16 };
    unsigned step;
    size_t q, k;
    svg_text(file, x, y + 14, "dim", label, 100);
    fprintf(file, "<g transform=\"translate(%.1f %.1f) scale(%.5f)\"><title>%s</title>\n", x,
            y + SVG_LINE, size / (double)n, label);
    fprintf(file, "<path class=\"line\" fill-opacity=\"0.5\" d=\"M0 0H%zuV%zuz\"/>\n", n, n);
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
