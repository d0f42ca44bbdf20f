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

/* Parses at most `room` whole numbers. 0*N means N zeros. */
TOOLS_FN size_t read_numbers(const char *text, long long *numbers, size_t room)
{
    char *end;
    size_t n = 0, zeros;
    while (n < room) {
        numbers[n] = strtoll(text, &end, 10);
        if (end == text)
            break;
        zeros = *end == '*' ? (size_t)strtoul(end + 1, &end, 10) : 1;
        for (n++; zeros > 1 && n < room; zeros--)
            numbers[n++] = 0;
        text = end;
    }
    return n;
}

/* An upper bound for the count of numbers in a text: each has a digit, and a blank after it. */
TOOLS_FN size_t most_numbers(const char *text)
{
    return strlen(text) / 2 + 1;
}

/* Parses the line that follows the description of a block. */
TOOLS_FN int read_figures(attn_ctx *ctx, arena *memory, table_of_blocks *table, block *b,
                          char *line)
{
    long long *numbers, other = 0;
    size_t i;
    if (strncmp(b->procedure, "none", 4) == 0)
        return 1;
    if (strncmp(line, "as ", 3) == 0) {
        read_numbers(line + 3, &other, 1);
        if (other < 1 || (size_t)other > table->n || table->at[other - 1].n != b->n)
            return 0;
        b->published = table->at[other - 1].published;
        return b->published != NULL;
    }
    numbers = (long long *)arena_alloc(ctx, memory, b->n, sizeof *numbers);
    b->published = (double *)arena_alloc(ctx, memory, b->n, sizeof *b->published);
    if (!numbers || !b->published || read_numbers(line, numbers, b->n) != b->n)
        return 0;
    for (i = 0; i < b->n; i++)
        b->published[i] = (double)numbers[i] * b->unit;
    return 1;
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
    size_t i;
    for (i = 0; b->published && i < b->n; i++)
        largest = fabs(b->published[i]) > largest ? fabs(b->published[i]) : largest;
    b->tolerance *= largest;
}

TOOLS_FN int read_block(attn_ctx *ctx, arena *memory, table_of_blocks *table, char **at)
{
    block *b = &table->at[table->n];
    long long numbers[3], *ids;
    const char *list, *tolerance;
    char *kind;
    size_t i, n;
    b->source = next_field(at);
    b->cell = (size_t)strtoul(next_field(at), NULL, 10);
    b->title = next_field(at);
    b->procedure = next_field(at);
    tolerance = next_field(at);
    b->tolerance = strtod(tolerance, &kind);
    b->unit = strtod(next_field(at), NULL);
    n = read_numbers(next_field(at), numbers, 3);
    for (b->ndim = (int)n, b->n = 1, i = 0; i < n; i++) {
        b->shape[i] = (size_t)numbers[i];
        if (numbers[i] < 1 || numbers[i] > 1 << 20 || b->n > 1 << 20)
            return 0;
        b->n *= b->shape[i];
    }
    list = next_field(at);
    ids = (long long *)arena_alloc(ctx, memory, most_numbers(list), sizeof *ids);
    b->ids = (int32_t *)arena_alloc(ctx, memory, most_numbers(list), sizeof *b->ids);
    if (!ids || !b->ids)
        return 0;
    b->n_ids = read_numbers(list, ids, most_numbers(list));
    for (i = 0; i < b->n_ids; i++)
        b->ids[i] = (int32_t)ids[i];
    if (n == 0 || kind == tolerance || !(b->unit > 0) ||
        !read_figures(ctx, memory, table, b, next_field(at)))
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
