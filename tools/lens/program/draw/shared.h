/* Pictures for the shared library, so that Python and other languages draw what lens draws. Each function
 * gives an SVG as a string, which the caller frees with attn_free. */
#ifndef LENS_DRAW_SHARED_H
#define LENS_DRAW_SHARED_H

#include "svg_chart.h"
#include "svg_graph.h"

/* Numbers with labels. Where there are few, cells show them, or their texts. */
typedef struct lens_picture {
    const char *title, *row_name, *column_name;
    const float *values; /* [n_panels, n_rows, n_columns] */
    const char *const *panels, *const *rows, *const *columns;
    const char *const *texts; /* [n_panels, n_rows, n_columns], or NULL */
    size_t n_panels, n_rows, n_columns;
} lens_picture;

/* A text and the loss of each token, which is NaN for a token without one. */
typedef struct lens_losses {
    const char *title;
    const char *const *tokens, *const *tips; /* [n] */
    const float *nll;                        /* [n] */
    size_t n;
} lens_losses;

/* lens's show_text for labels: writes at most 8 * size + 1 bytes and a zero, and returns their number. */
LENS_FN size_t lens_show_token(char *out, const char *bytes, size_t size)
{
    return size ? show_text(out, bytes, size, "·") : show_text(out, "∅", strlen("∅"), NULL);
}

/* Gives the text that a canvas has, or frees it after a failure; `before` is the locale of the caller's numbers. */
static attn_status shared_end(attn_ctx *ctx, const char *op, canvas *to, char **svg,
                              attn_status status, system_locale before)
{
    char *text = NULL;
    system_restore_numbers(before);
    out_bytes(&to->memory, "", 1);
    if (status == ATTN_OK && !to->memory.failed)
        text = (char *)attn_alloc(ctx, to->memory.size, 1, "a picture");
    if (status == ATTN_OK && text)
        memcpy(text, to->memory.text, to->memory.size);
    else if (status == ATTN_OK)
        status = attn_fail(ctx, ATTN_E_MEMORY, "%s: no memory for the picture", op);
    out_free(&to->memory);
    *svg = text;
    return status;
}

/* ---- grids ---- */

/* The number that gets the full colour. */
static double shared_most(const float *values, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(values[i]))
            most = svg_wider(most, fabs((double)values[i]));
    return most > 0 ? most : 1;
}

static void shared_number(char out[16], float value)
{
    const double x = fabs((double)value) < 0.005 ? 0 : (double)value;
    snprintf(out, 16, isfinite(x) && fabs(x) >= 9999.995 ? "%.3g" : "%.2f", x);
}

/* What cells say: [tip, number] of each. */
typedef struct shared_texts {
    char tip[160], number[16];
} shared_texts;

static void shared_cell(const lens_picture *p, size_t index, double most, shared_texts *texts,
                        lens_cell *cell)
{
    const char *row = p->rows[index / p->n_columns % p->n_rows];
    const char *column = p->columns[index % p->n_columns];
    const float value = p->values[index];
    cell->colour = isfinite(value) ? (float)((double)value / most) : value;
    snprintf(texts->tip, sizeof texts->tip, "%.60s, %.60s: %.3g", row, column, (double)value);
    shared_number(texts->number, value);
    cell->text = p->texts ? p->texts[index] : texts->number;
    cell->tip = texts->tip;
}

static void shared_grids(canvas *to, const lens_picture *p, lens_grid *grids, lens_cell *cells,
                         shared_texts *texts)
{
    const size_t each = p->n_rows * p->n_columns, n = p->n_panels * each;
    const double most = shared_most(p->values, n);
    const lens_page page = {p->title, "", NULL, NULL, 0, {0}};
    char low[24], high[24];
    int below = 0;
    for (size_t i = 0; i < n; i++) {
        shared_cell(p, i, most, &texts[i], &cells[i]);
        below |= p->values[i] < 0;
    }
    snprintf(low, sizeof low, "-%.3g", most);
    snprintf(high, sizeof high, "%.3g", most);
    for (size_t i = 0; i < p->n_panels; i++) {
        lens_grid *grid = &grids[i];
        grid->title = p->panels[i];
        grid->row_name = p->row_name;
        grid->column_name = p->column_name;
        grid->low = below ? low : NULL;
        grid->high = high;
        grid->rows = p->rows;
        grid->columns = p->columns;
        grid->n_rows = p->n_rows;
        grid->n_columns = p->n_columns;
        grid->cells = cells + i * each;
        grid->small = !p->texts && (p->n_columns > 20 || p->n_panels > 4);
    }
    svg_grids(to, &page, grids, p->n_panels);
}

LENS_FN attn_status lens_draw_picture(attn_ctx *ctx, char **svg, const lens_picture *picture)
{
    const size_t n = picture->n_panels * picture->n_rows * picture->n_columns;
    lens_grid *grids = (lens_grid *)calloc(picture->n_panels + 1, sizeof *grids);
    lens_cell *cells = (lens_cell *)calloc(n + 1, sizeof *cells);
    shared_texts *texts = (shared_texts *)calloc(n + 1, sizeof *texts);
    const system_locale before = system_plain_numbers();
    canvas to = ATTN_ZERO;
    attn_status status = ATTN_OK;
    if (grids && cells && texts)
        shared_grids(&to, picture, grids, cells, texts);
    else
        status = attn_fail(ctx, ATTN_E_MEMORY, "lens_draw_picture: no memory");
    free(grids);
    free(cells);
    free(texts);
    return shared_end(ctx, "lens_draw_picture", &to, svg, status, before);
}

/* ---- the others ---- */

LENS_FN attn_status lens_draw_losses(attn_ctx *ctx, char **svg, const lens_losses *losses)
{
    const lens_page page = {losses->title, "", NULL, NULL, 0, {0}};
    const double worst = shared_most(losses->nll, losses->n), most = worst > 1 ? worst : 1;
    lens_word *words = (lens_word *)calloc(losses->n + 1, sizeof *words);
    canvas to = ATTN_ZERO;
    char high[48];
    if (!words)
        return attn_fail(ctx, ATTN_E_MEMORY, "lens_draw_losses: no memory");
    const system_locale before = system_plain_numbers();
    for (size_t i = 0; i < losses->n; i++) {
        words[i].text = losses->tokens[i];
        words[i].tip = losses->tips[i];
        words[i].breaks = strstr(losses->tokens[i], "↵") != NULL;
        words[i].colour = isfinite(losses->nll[i]) ? (float)(-(double)losses->nll[i] / most) : 0;
    }
    snprintf(high, sizeof high, "%.1f nats: unexpected", most);
    svg_words(&to, &page, high, words, losses->n);
    free(words);
    return shared_end(ctx, "lens_draw_losses", &to, svg, ATTN_OK, before);
}

static attn_status shared_figure(attn_ctx *ctx, const char *op, char **svg, const char *title,
                                 lens_figure figure)
{
    lens_page page = {title, "", NULL, NULL, 0, {0}};
    const system_locale before = system_plain_numbers();
    canvas to = ATTN_ZERO;
    page.figure = figure;
    svg_grids(&to, &page, NULL, 0);
    return shared_end(ctx, op, &to, svg, ATTN_OK, before);
}

LENS_FN attn_status lens_draw_graph(attn_ctx *ctx, char **svg, const char *title,
                                    const lens_drawn_graph *graph)
{
    const lens_figure figure = {svg_graph, graph, ""};
    for (size_t i = 0; i < graph->n; i++)
        if (graph->edges[i].sender >= graph->graph.n_senders ||
            graph->edges[i].receiver >= graph->graph.n_receivers)
            return attn_fail(ctx, ATTN_E_ARGUMENT, "lens_draw_graph: the model has no such edge");
    return shared_figure(ctx, "lens_draw_graph", svg, title, figure);
}

LENS_FN attn_status lens_draw_chart(attn_ctx *ctx, char **svg, const lens_chart *chart)
{
    lens_chart untitled = *chart;
    const lens_charts one = {&untitled, 1};
    const lens_figure figure = {svg_charts, &one, ""};
    untitled.title = ""; /* the page has it */
    if (chart->n_points == 0 || !(chart->x[0] > 0))
        return attn_fail(ctx, ATTN_E_ARGUMENT, "lens_draw_chart: x is not positive");
    return shared_figure(ctx, "lens_draw_chart", svg, chart->title, figure);
}

#endif
