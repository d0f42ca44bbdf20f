/* Reads the published figures, published.txt. */
#ifndef REPRODUCE_TABLE_H
#define REPRODUCE_TABLE_H

#include "tools/common/program.h"

/* One plot or one figure of a source. */
typedef struct block {
    const char *source, *title, *procedure;
    size_t cell, shape[3];
    int ndim;
    size_t n;
    size_t at
        [3]; /* n, and the numbers behind the procedure's name, "hidden@2,3"; 0 where there is none */
    double tolerance; /* absolute */
    double unit;      /* of the numbers in the file */
    attn_token *ids;  /* [n_ids]: the input, unless the procedure has its own */
    size_t n_ids;
    double *published; /* [n], or NULL if the figures cannot be computed */
} block;

typedef struct table_of_blocks {
    block *at;
    size_t n;
} table_of_blocks;

/* The next field of a line. The tab or line feed that ends it becomes a zero. */
TOOLS_FN char *next_field(char **at)
{
    char *field = *at;
    const size_t size = strcspn(field, "\t\n");
    *at += size + (field[size] != 0);
    field[size] = 0;
    return field;
}

/* Parses the n whole numbers of a text; 0*N means N zeros, at most a million. NULL after a failure. */
TOOLS_FN double *read_numbers(attn_ctx *ctx, arena *memory, const char *text, size_t *n)
{
    size_t room = strlen(text) / 2 + 1; /* each number has a digit, and a blank after it */
    double *numbers;
    char *end;
    for (const char *at = text; (at = strchr(at, '*')) != NULL; at++)
        room += strtoul(at + 1, NULL, 10) % 1000001;
    numbers = (double *)arena_alloc(ctx, memory, room, sizeof *numbers);
    for (*n = 0; numbers; text = end) {
        const double number = (double)strtoll(text, &end, 10);
        if (end == text)
            break;
        numbers[*n] = number;
        *n += *end == '*' ? (size_t)strtoul(end + 1, &end, 10) % 1000001 : 1;
    }
    return numbers;
}

/* Parses the line that follows the description of a block. */
TOOLS_FN int read_figures(attn_ctx *ctx, arena *memory, table_of_blocks *table, block *b,
                          const char *line)
{
    size_t n, other;
    if (strncmp(b->procedure, "none", 4) == 0)
        return 1;
    if (strncmp(line, "as ", 3) == 0) {
        other = (size_t)strtoul(line + 3, NULL, 10);
        b->published = other > 0 && other <= table->n && table->at[other - 1].n == b->n
                           ? table->at[other - 1].published
                           : NULL;
        return b->published != NULL;
    }
    b->published = read_numbers(ctx, memory, line, &n);
    for (size_t i = 0; b->published && i < n; i++)
        b->published[i] *= b->unit;
    return b->published && n >= b->n;
}

/* Whether a figure is zero within its block's tolerance, as under a causal mask. A model that has
 * nothing in common with GPT-2 gives most such figures, so their agreement is not counted. */
TOOLS_FN int is_zero(const block *b, size_t i)
{
    return fabs(b->published[i]) <= b->tolerance;
}

/* Makes a tolerance that is relative to the block's largest number absolute. */
TOOLS_FN void scale_tolerance(block *b)
{
    double largest = 0;
    for (size_t i = 0; b->published && i < b->n; i++)
        largest = fabs(b->published[i]) > largest ? fabs(b->published[i]) : largest;
    b->tolerance *= largest;
}

TOOLS_FN int read_block(attn_ctx *ctx, arena *memory, table_of_blocks *table, char **at)
{
    block *b = &table->at[table->n];
    const double *numbers;
    char *kind, *end;
    size_t n;
    b->source = next_field(at);
    b->cell = (size_t)strtoul(next_field(at), NULL, 10);
    b->title = next_field(at);
    b->procedure = next_field(at);
    const char *behind = strchr(b->procedure, '@');
    const char *tolerance = next_field(at);
    b->tolerance = strtod(tolerance, &kind);
    b->unit = strtod(next_field(at), NULL);
    if (!(numbers = read_numbers(ctx, memory, next_field(at), &n)) || n == 0 || n > 3)
        return 0;
    b->ndim = (int)n;
    b->n = 1;
    for (size_t i = 0; i < n; b->n *= b->shape[i++]) {
        if (numbers[i] < 1 || numbers[i] > 1 << 20 || b->n > 1 << 20)
            return 0;
        b->shape[i] = (size_t)numbers[i];
    }
    b->at[0] = b->n;
    b->at[1] = behind ? strtoul(behind + 1, &end, 10) : 0;
    b->at[2] = behind && *end == ',' ? strtoul(end + 1, NULL, 10) : 0;
    numbers = read_numbers(ctx, memory, next_field(at), &b->n_ids);
    b->ids = (int32_t *)arena_alloc(ctx, memory, b->n_ids + 1, sizeof *b->ids);
    if (!numbers || !b->ids)
        return 0;
    for (size_t i = 0; i < b->n_ids; i++)
        b->ids[i] = (int32_t)numbers[i];
    if (kind == tolerance || !(b->unit > 0) || !read_figures(ctx, memory, table, b, next_field(at)))
        return 0;
    if (strcmp(kind, " of the largest") == 0)
        scale_tolerance(b);
    else if (*kind)
        return 0;
    table->n++;
    return 1;
}

TOOLS_FN attn_status read_table(attn_ctx *ctx, arena *memory, table_of_blocks *table,
                                const char *path)
{
    size_t size = 0, n = 0;
    char *text = NULL, *at;
    if (read_file(ctx, memory, path, (size_t)1 << 24, &text, &size))
        return ctx->status;
    for (at = text; (at = strstr(at, "\nblock\t")) != NULL; at++)
        n++;
    table->at = (block *)arena_alloc(ctx, memory, n + 1, sizeof *table->at);
    if (!table->at)
        return ctx->status;
    for (at = text; *at;) {
        const int begins = strncmp(at, "block\t", 6) == 0;
        if (begins) {
            at += 6;
            if (!read_block(ctx, memory, table, &at))
                return tool_fail(ctx, ATTN_E_FORMAT, "%s: block %zu is damaged", path,
                                 table->n + 1);
        } else {
            next_field(&at);
        }
    }
    return ATTN_OK;
}

#endif
