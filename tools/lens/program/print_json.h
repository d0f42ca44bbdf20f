/* What --json prints. */
#ifndef LENS_PRINT_JSON_H
#define LENS_PRINT_JSON_H

#include "run.h"

static void json_token(const lens *l, attn_token id)
{
    size_t size = 0;
    const char *bytes = l->tokenizer ? attn_token_bytes(&size, l->tokenizer, id) : NULL;
    printf("\"id\": %ld", (long)id);
    if (bytes) {
        fputs(", \"token\": ", stdout);
        json_text(stdout, bytes, size);
    }
}

/* "tokens": [..], the tokens of the text. */
static void json_tokens(const lens *l)
{
    size_t t;
    printf("\"tokens\": [");
    for (t = 0; t < l->text.n; t++) {
        printf(t ? ", {" : "{");
        json_token(l, l->text.ids[t]);
        printf("}");
    }
    printf("]");
}

/* Prints a number; null if it is not finite, because JSON has no infinities. */
static void json_figure(double value)
{
    if (isfinite(value))
        printf("%.9g", value);
    else
        fputs("null", stdout);
}

static void json_guesses(const lens *l, const attn_prediction *top, size_t k)
{
    size_t i;
    fputs("\"top\": [", stdout);
    for (i = 0; i < k; i++) {
        fputs(i ? ", {" : "{", stdout);
        json_token(l, top[i].token);
        fputs(", \"logit\": ", stdout);
        json_figure((double)top[i].logit);
        fputs(", \"probability\": ", stdout);
        json_figure((double)top[i].probability);
        fputs("}", stdout);
    }
    fputs("]", stdout);
}

static void json_stats(const attn_token_stats *stats)
{
    fputs(", \"loss\": ", stdout);
    json_figure((double)stats->nll);
    fputs(", \"probability\": ", stdout);
    json_figure((double)stats->probability);
    printf(", \"rank\": %zu", stats->rank);
}

static void json_quoted(const char *string)
{
    json_text(stdout, string, strlen(string));
}

static void json_strings(const char *const *strings, size_t n)
{
    size_t i;
    fputs("[", stdout);
    for (i = 0; i < n; i++) {
        fputs(i ? ", " : "", stdout);
        json_quoted(strings[i]);
    }
    fputs("]", stdout);
}

/* {"title": .., "axes": .., "columns": .., "values": [[..], ..]}; values are the rows of the grid. */
static void json_grid(const lens_grid *grid)
{
    size_t i, j;
    fputs("{\"title\": ", stdout);
    json_quoted(grid->title);
    printf(", \"axes\": [\"%s\", \"%s\"], \"columns\": ", grid->row_name, grid->column_name);
    json_strings(grid->columns, grid->n_columns);
    fputs(", \"values\": [", stdout);
    for (i = 0; i < grid->n_rows; i++) {
        fputs(i ? ",\n  [" : "\n  [", stdout);
        for (j = 0; j < grid->n_columns; j++) {
            fputs(j ? ", " : "", stdout);
            json_figure((double)grid->cells[i * grid->n_columns + j].number);
        }
        fputs("]", stdout);
    }
    fputs("]}", stdout);
}

static void json_grids(const lens_grid *grids, size_t n)
{
    size_t i;
    fputs("\"grids\": [", stdout);
    for (i = 0; i < n; i++) {
        fputs(i ? ",\n " : "\n ", stdout);
        json_grid(&grids[i]);
    }
    fputs("]", stdout);
}

#endif
