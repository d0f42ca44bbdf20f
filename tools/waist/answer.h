/* An answer: tables of named, typed columns, and notes. A command makes it; printers and faces read it.
 *
 * A table is the product of its axes: of layer and head it has a row for each head of each layer, in row-major order.
 * A column runs along one axis, as the numbers of the layers do, or has a value for each cell, as scores do.
 * Columns along an axis are the keys: together they identify a row.
 *
 *     answer_table *const t = answer_add(a, "heads");
 *     answer_axis(a, t, "layer", n_layer);                        axes, the slowest first, numbered from 0
 *     answer_axis(a, t, "head", n_head);
 *     double *const score = answer_numbers(a, t, CELLS, "score", LENS_NUMBERS);        [n_layer, n_head]
 *
 * A table of rows has one axis, and columns of cells, which one text may name:
 *
 *     answer_rows(t, n);
 *     answer_add_columns(a, t, "from:s to:s | weight");
 *     answer_put(a, t, row, from, to, weight);
 *
 * Values lie once: a large result is a view of a tensor (answer_tensor), and rows are made of it where somebody asks for
 * rows. After a failure, which a->ctx has, functions return NULL; they also take a table that is NULL. */
#ifndef WAIST_ANSWER_H
#define WAIST_ANSWER_H

#include "tools/common/numbers.h"

/* What a column has. WHOLES are numbers without a fraction, FLAGS are 0 or 1, LISTS are texts of JSON. CARRIED is a
 * column of the caller's own table, which has the values. */
typedef enum lens_kind {
    LENS_NUMBERS,
    LENS_WHOLES,
    LENS_FLAGS,
    LENS_TEXTS,
    LENS_LISTS,
    LENS_CARRIED
} lens_kind;

enum { ANSWER_AXES = 6, ANSWER_NOTES = 16 };
enum { CELLS = -1, LAST_AXIS = -2 }; /* where a column runs, beside the number of an axis */

/* Values of one of these forms: numbers, in which NaN is missing; a tensor; texts, in which NULL is missing; texts as
 * bytes, of which number i is [ends[i - 1], ends[i]), missing where numbers[i] is NaN; or the tokens whose ids are numbers.
 * Of what is CARRIED, numbers say which row of the caller's table a row has, from 1, and ends may be NULL. */
typedef struct answer_column {
    const char *name;
    lens_kind kind;
    int axis; /* or CELLS */
    const double *numbers;
    attn_tensor tensor; /* [axes of the table] */
    const char *const *texts;
    const char *bytes;
    const uint64_t *ends;
    const attn_tokenizer *tokens;
    size_t source;      /* CARRIED: which column of the caller's table it is */
    char take;          /* what answer_put takes for it; 0: nothing */
    int has_millionths; /* numbers are written with six decimals */
    int is_inexact; /* they went through exp or log of the C library, of which each has other last digits */
} answer_column;

typedef struct answer_table {
    const char *name;
    size_t axes[ANSWER_AXES];
    int n_axes;
    answer_column *columns;
    size_t n_columns, room, n_keys;
    int is_dense;        /* a large tensor, of which forms write no rows */
    const char *missing; /* what CSV has for a missing value; NULL: an empty cell */
} answer_table;

typedef struct answer {
    attn_ctx *ctx;
    arena *memory;
    const attn_tokenizer *tokenizer; /* of columns of tokens; NULL: these are ids alone */
    answer_table **tables;           /* [n_tables] */
    size_t n_tables, room;
    const char *notes[ANSWER_NOTES];
    size_t n_notes;
} answer;

/* ---- making ---- */

/* A list with room for more than n: itself, or a larger copy in place of it. NULL without memory. */
TOOLS_FN void *answer_grown(attn_ctx *ctx, arena *memory, void *list, size_t n, size_t *room,
                            size_t size)
{
    if (n < *room)
        return list;
    void *const larger = arena_alloc(ctx, memory, 2 * n + 8, size);
    if (larger && list)
        memcpy(larger, list, n * size);
    if (larger)
        *room = 2 * n + 8;
    return larger;
}

TOOLS_FN answer_table *answer_add(answer *a, const char *name)
{
    answer_table *const t = (answer_table *)arena_alloc(a->ctx, a->memory, 1, sizeof *t);
    answer_table **const tables = (answer_table **)answer_grown(
        a->ctx, a->memory, a->tables, a->n_tables, &a->room, sizeof(void *));
    if (!t || !tables)
        return NULL;
    t->name = name;
    a->tables = tables;
    return a->tables[a->n_tables++] = t;
}

TOOLS_FN answer_table *answer_named(const answer *a, const char *name)
{
    for (size_t i = 0; i < a->n_tables; i++)
        if (strcmp(a->tables[i]->name, name) == 0)
            return a->tables[i];
    return NULL;
}

TOOLS_FN size_t answer_n_rows(const answer_table *t)
{
    size_t n = 1;
    for (int i = 0; i < t->n_axes; i++)
        n *= t->axes[i];
    return n;
}

/* Number of values of a column. */
TOOLS_FN size_t answer_size(const answer_table *t, const answer_column *c)
{
    return c->axis == CELLS ? answer_n_rows(t) : t->axes[c->axis];
}

TOOLS_FN answer_column *answer_column_new(answer *a, answer_table *t, int where, const char *name,
                                          lens_kind kind)
{
    if (!t || a->ctx->status)
        return NULL;
    answer_column *const columns = (answer_column *)answer_grown(
        a->ctx, a->memory, t->columns, t->n_columns, &t->room, sizeof *columns);
    if (!columns)
        return NULL;
    t->columns = columns;
    answer_column *c = &t->columns[t->n_columns++];
    c->name = name;
    c->kind = kind;
    c->axis = where == LAST_AXIS ? t->n_axes - 1 : where;
    t->n_keys += c->axis != CELLS && t->n_keys + 1 == t->n_columns;
    return c;
}

/* Room for numbers, which are NaN. */
TOOLS_FN double *answer_numbers(answer *a, answer_table *t, int where, const char *name,
                                lens_kind kind)
{
    answer_column *const c = answer_column_new(a, t, where, name, kind);
    const size_t n = c ? answer_size(t, c) : 0;
    double *const numbers =
        c ? (double *)arena_alloc(a->ctx, a->memory, n + 1, sizeof *numbers) : NULL;
    for (size_t i = 0; numbers && i < n; i++)
        numbers[i] = (double)NAN;
    if (c)
        c->numbers = numbers;
    return numbers;
}

/* Room for texts, each of which ends at a zero. */
TOOLS_FN const char **answer_texts(answer *a, answer_table *t, int where, const char *name)
{
    answer_column *const c = answer_column_new(a, t, where, name, LENS_TEXTS);
    const char **const texts =
        c ? (const char **)arena_alloc(a->ctx, a->memory, answer_size(t, c) + 1, sizeof *texts)
          : NULL;
    if (c)
        c->texts = texts;
    return texts;
}

/* Room for texts that are JSON. */
TOOLS_FN const char **answer_lists(answer *a, answer_table *t, const char *name)
{
    const char **const texts = answer_texts(a, t, CELLS, name);
    if (texts)
        t->columns[t->n_columns - 1].kind = LENS_LISTS;
    return texts;
}

/* "NAME_id" and "NAME" of tokens: room for the ids. */
TOOLS_FN double *answer_tokens(answer *a, answer_table *t, int where, const char *name)
{
    char *const id = (char *)arena_alloc(a->ctx, a->memory, strlen(name) + 4, 1);
    answer_column *c;
    if (!id)
        return NULL;
    snprintf(id, strlen(name) + 4, "%s_id", name);
    double *ids = answer_numbers(a, t, where, id, LENS_WHOLES);
    if (!ids || !a->tokenizer || !(c = answer_column_new(a, t, where, name, LENS_TEXTS)))
        return ids;
    c->numbers = ids;
    c->tokens = a->tokenizer;
    return ids;
}

/* A view of a tensor that has the shape of the axes, and that lives as long as the answer. */
TOOLS_FN void answer_tensor(answer *a, answer_table *t, const char *name, attn_tensor x)
{
    answer_column *const c =
        answer_column_new(a, t, CELLS, name, x.dtype == ATTN_I32 ? LENS_WHOLES : LENS_NUMBERS);
    if (c)
        c->tensor = x;
}

/* A further axis, inside those before, whose places have numbers from 0 on: the room for others. */
TOOLS_FN double *answer_axis(answer *a, answer_table *t, const char *name, size_t n)
{
    if (!t || t->n_axes == ANSWER_AXES)
        return NULL;
    t->axes[t->n_axes++] = n;
    double *numbers = answer_numbers(a, t, LAST_AXIS, name, LENS_WHOLES);
    for (size_t i = 0; numbers && i < n; i++)
        numbers[i] = (double)i;
    return numbers;
}

/* A further axis whose places have texts: the room for them. */
TOOLS_FN const char **answer_text_axis(answer *a, answer_table *t, const char *name, size_t n)
{
    if (!t || t->n_axes == ANSWER_AXES)
        return NULL;
    t->axes[t->n_axes++] = n;
    return answer_texts(a, t, LAST_AXIS, name);
}

/* The only axis of a table of rows, whose columns all have a value for each cell. */
TOOLS_FN void answer_rows(answer_table *t, size_t n)
{
    if (t)
        t->axes[t->n_axes++] = n;
}

/* The first n columns are keys. */
TOOLS_FN void answer_keys(answer_table *t, size_t n)
{
    if (t)
        t->n_keys = n;
}

/* A table of one tensor with named axes. */
TOOLS_FN void answer_dense(answer *a, const char *name, const char *const *axes, const char *value,
                           attn_tensor x)
{
    answer_table *const t = answer_add(a, name);
    for (int i = 0; i < x.ndim; i++)
        answer_axis(a, t, axes[i], x.shape[i]);
    answer_tensor(a, t, value, x);
    if (t)
        t->is_dense = 1;
}

/* The table of one row for what a question has one value of. */
TOOLS_FN answer_table *answer_facts(answer *a)
{
    answer_table *facts = answer_named(a, "facts");
    if (!facts && (facts = answer_add(a, "facts")) != NULL)
        answer_rows(facts, 1);
    return facts;
}

/* Further columns with a value for each cell, named in one text, such as "from:s to:s | weight": those before | are keys.
 * Behind a name stands what answer_put takes for it:
 *
 *     (nothing)   a double, in which NaN is missing
 *     :x          the same, of a number that is inexact
 *     :z          a size_t, in which SIZE_MAX is missing
 *     :b          an int that is a flag
 *     :s :j       a text, or a text of JSON; NULL is missing
 *     :t          a token: the columns "NAME_id" and "NAME" */
TOOLS_FN void answer_add_columns(answer *a, answer_table *t, const char *columns)
{
    for (size_t size; t && *(columns += strspn(columns, " ")); columns += size) {
        const size_t length = strcspn(columns, ": "), at = t->n_columns;
        const char take = (char)(columns[length] == ':' ? columns[length + 1] : 'd');
        char *const name = arena_text(a->ctx, a->memory, columns, length);
        size = strcspn(columns, " ");
        if (*columns == '|')
            t->n_keys = at;
        else if (name && take == 't')
            answer_tokens(a, t, CELLS, name);
        else if (name && take == 'j')
            answer_lists(a, t, name);
        else if (name && take == 's')
            answer_texts(a, t, CELLS, name);
        else if (name)
            answer_numbers(a, t, CELLS, name,
                           take == 'z'   ? LENS_WHOLES
                           : take == 'b' ? LENS_FLAGS
                                         : LENS_NUMBERS);
        if (t->n_columns == at)
            continue;
        t->columns[at].take = take;
        t->columns[at].is_inexact = take == 'x';
    }
}

/* Gives a row the values of the columns of answer_add_columns, from column number `first` on. The caller passes a value of the
 * type above for every such column that the table has by now: the compiler checks neither their number nor their types. */
TOOLS_FN void answer_put_all(const answer *a, const answer_table *t, size_t first, size_t row,
                             va_list values)
{
    for (size_t i = first; t && !a->ctx->status && i < t->n_columns; i++) {
        const answer_column *const c = &t->columns[i];
        double *const numbers = (double *)c->numbers;
        size_t whole;
        switch (c->take) {
        case 0: /* another function fills it */
            break;
        case 's':
        case 'j':
            ((const char **)c->texts)[row] = va_arg(values, const char *);
            break;
        case 'z':
            whole = va_arg(values, size_t);
            numbers[row] = whole == SIZE_MAX ? (double)NAN : (double)whole;
            break;
        case 'b':
        case 't':
            numbers[row] = va_arg(values, int);
            break;
        default:
            numbers[row] = va_arg(values, double);
        }
    }
}

TOOLS_FN void answer_put(const answer *a, const answer_table *t, size_t row, ...)
{
    va_list values;
    va_start(values, row);
    answer_put_all(a, t, 0, row, values);
    va_end(values);
}

/* Takes a column away again. */
TOOLS_FN void answer_drop(answer_table *t, const char *name)
{
    for (size_t i = 0, n = t ? t->n_columns : 0; i < n; i++)
        if (strcmp(t->columns[i].name, name) == 0) {
            memmove(&t->columns[i], &t->columns[i + 1], (n - i - 1) * sizeof *t->columns);
            t->n_columns--;
            return;
        }
}

TOOLS_FN void answer_note(answer *a, const char *sentence)
{
    if (sentence && *sentence && a->n_notes < ANSWER_NOTES)
        a->notes[a->n_notes++] = sentence;
}

/* ---- reading ---- */

/* Where row `row` of the table has its value in the column. */
TOOLS_FN size_t answer_place(const answer_table *t, const answer_column *c, size_t row)
{
    size_t inner = 1;
    if (c->axis == CELLS)
        return row;
    for (int i = t->n_axes - 1; i > c->axis; i--)
        inner *= t->axes[i];
    return row / inner % t->axes[c->axis];
}

/* Where element `row` of a tensor lies, in row-major order of its shape. */
TOOLS_FN ptrdiff_t answer_offset(attn_tensor x, size_t row)
{
    ptrdiff_t at = 0;
    for (int i = x.ndim - 1; i >= 0; i--) {
        at += (ptrdiff_t)(row % x.shape[i]) * x.stride[i];
        row /= x.shape[i];
    }
    return at;
}

TOOLS_FN double answer_element(attn_tensor x, size_t row)
{
    const ptrdiff_t at = answer_offset(x, row);
    if (x.dtype == ATTN_I32)
        return (double)((const int32_t *)x.data)[at];
    if (x.dtype == ATTN_F16) {
        const attn_tensor one =
            attn_borrow((const uint16_t *)x.data + at, ATTN_F16, attn_shape1(1));
        return (double)attn_get1(one, 0);
    }
    return (double)((const float *)x.data)[at];
}

/* NaN is a missing number. */
TOOLS_FN double answer_number(const answer_table *t, const answer_column *c, size_t row)
{
    return c->tensor.ndim ? answer_element(c->tensor, row) : c->numbers[answer_place(t, c, row)];
}

/* NULL is a missing text. */
TOOLS_FN const char *answer_text(const answer_table *t, const answer_column *c, size_t row,
                                 size_t *size)
{
    const size_t at =
        c->kind == LENS_CARRIED ? (size_t)c->numbers[row] - 1 : answer_place(t, c, row);
    *size = 0;
    if (c->texts) {
        *size = c->texts[at] ? strlen(c->texts[at]) : 0;
        return c->texts[at];
    }
    if (c->tokens)
        return c->numbers[at] != c->numbers[at]
                   ? NULL
                   : attn_token_bytes(size, c->tokens, (attn_token)c->numbers[at]);
    if (c->kind == LENS_CARRIED ? !c->ends : c->numbers && c->numbers[at] != c->numbers[at])
        return NULL;
    *size = (size_t)(c->ends[at] - (at ? c->ends[at - 1] : 0));
    return c->bytes + (at ? c->ends[at - 1] : 0);
}

TOOLS_FN const answer_column *answer_column_named(const answer_table *t, const char *name)
{
    const answer_column *c = t->columns;
    while (strcmp(c->name, name) != 0)
        c++;
    return c;
}

TOOLS_FN int is_text_kind(lens_kind kind)
{
    return kind == LENS_TEXTS || kind == LENS_LISTS || kind == LENS_CARRIED;
}

#endif
