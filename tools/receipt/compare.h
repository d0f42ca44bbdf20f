/* Compares an answer that somebody kept, as CSV, JSON, lines of JSON or .npz, with one that was computed again. */
#ifndef TOOLS_RECEIPT_COMPARE_H
#define TOOLS_RECEIPT_COMPARE_H

#include "verify.h"
#include "tools/common/json_keys.h"
#include "tools/waist/query.h"

/* An answer as it was kept. */
typedef struct kept_answer {
    attn_ctx *ctx;
    arena *memory;
    const answer *again;
    receipt_findings *found;
    const char *name; /* of the file */
    char *text;
    size_t size;
} kept_answer;

/* >> Cells ===================================================================================== */

/* Is a spelled value that of the cell? A number may have the digits of the answer's forms, or all that it has. */
TOOLS_FN int kept_is(const answer_table *t, const answer_column *c, size_t row, const char *text,
                     size_t size)
{
    size_t n = 0;
    const char *const expected = is_text_kind(c->kind) ? answer_text(t, c, row, &n) : NULL;
    json_out o = {NULL, 0, 0, 0, 0};
    char *end;
    if (expected)
        return n == size && memcmp(expected, text, n) == 0;
    if (is_text_kind(c->kind) || !(fabs(answer_number(t, c, row)) <= DBL_MAX))
        return size == 0;
    out_number(&o, c, answer_number(t, c, row));
    out_bytes(&o, "", 1);
    double number = number_at(text, &end);
    int same = size > 0 && end == text + size && !o.failed &&
               (number == answer_number(t, c, row) || number == number_at(o.text, NULL));
    out_free(&o);
    return same;
}

TOOLS_FN receipt_verdict kept_differs(const kept_answer *k, const answer_table *t, size_t row,
                                      const char *column)
{
    return receipt_differs(k->found,
                           "%.80s: row %zu of the table %.60s differs, in its column %.60s",
                           base_name(k->name), row + 1, t->name, column);
}

TOOLS_FN receipt_verdict kept_has_rows(const kept_answer *k, const answer_table *t, size_t n)
{
    return n == answer_n_rows(t)
               ? RECEIPT_HOLDS
               : receipt_differs(k->found, "%.80s: %zu rows of the table %.60s, but there are %zu",
                                 base_name(k->name), n, t->name, answer_n_rows(t));
}

/* >> JSON ====================================================================================== */

TOOLS_FN int kept_is_json(const kept_answer *k, const answer_table *t, const answer_column *c,
                          size_t row, const json_value *v)
{
    json_out o = {NULL, 0, 0, 0, 0};
    if (v->kind == JSON_NULL)
        return kept_is(t, c, row, "", 0);
    if (v->kind == JSON_TRUE || v->kind == JSON_FALSE)
        return kept_is(t, c, row, v->kind == JSON_TRUE ? "1" : "0", 1);
    if (v->kind != JSON_ARRAY && v->kind != JSON_OBJECT)
        return kept_is(t, c, row, v->text, v->size);
    out_value(&o, k->memory, NULL, v);
    int same = !o.failed && kept_is(t, c, row, o.text, o.size);
    out_free(&o);
    return same;
}

/* A row as an object. Keys may be missing, as the number of a line is in that line. */
TOOLS_FN receipt_verdict kept_object(const kept_answer *k, const answer_table *t, size_t row,
                                     const json_value *object)
{
    static const json_value missing = {JSON_NULL, NULL, 0, NULL, 0, 1};
    size_t n = 0;
    for (size_t i = 0; i < t->n_columns; i++) {
        const answer_column *const c = &t->columns[i];
        const json_value *const v = json_get(object, c->name);
        n += v != NULL;
        if (c->is_inexact || (!v && i < t->n_keys))
            continue;
        if (!kept_is_json(k, t, c, row, v ? v : &missing))
            return kept_differs(k, t, row, c->name);
    }
    return object->kind == JSON_OBJECT && object->size == n ? RECEIPT_HOLDS
                                                            : kept_differs(k, t, row, "names");
}

/* The whole answer: an object of tables. */
TOOLS_FN receipt_verdict kept_json(const kept_answer *k)
{
    receipt_verdict verdict = RECEIPT_HOLDS;
    json_value *root = NULL;
    if (json_parse(k->ctx, k->name, k->text, k->size, &root))
        return RECEIPT_FAILED;
    for (size_t i = 0; i < k->again->n_tables && !verdict; i++) {
        const answer_table *const t = k->again->tables[i];
        const json_value *const rows = t->is_dense ? NULL : json_get(root, t->name), *v = rows + 1;
        if (t->is_dense)
            continue;
        verdict = kept_has_rows(k, t, rows && rows->kind == JSON_ARRAY ? rows->size : 0);
        for (size_t row = 0; rows && !verdict && row < rows->size; row++, v += v->span)
            verdict = kept_object(k, t, row, v);
    }
    free(root);
    return verdict;
}

TOOLS_FN receipt_verdict kept_lines(const kept_answer *k)
{
    const answer_table *const t = k->again->tables[0];
    receipt_verdict verdict = RECEIPT_HOLDS;
    char *at = k->text, *const end = k->text + k->size;
    size_t n = 0;
    for (; at < end && !verdict; n++) {
        char *const newline = (char *)memchr(at, '\n', (size_t)(end - at));
        char *const next = newline ? newline + 1 : end;
        json_value *root = NULL;
        if (newline)
            *newline = 0;
        if (json_parse_at(k->ctx, k->name, n + 1, at, (size_t)(next - at) - (newline != NULL),
                          &root))
            return RECEIPT_FAILED;
        if (n < answer_n_rows(t))
            verdict = kept_object(k, t, n, root);
        free(root);
        at = next;
    }
    return verdict ? verdict : kept_has_rows(k, t, n);
}

/* >> CSV ======================================================================================= */

/* Reads a field, in place. *last: it ends its line. */
TOOLS_FN char *kept_field(char **at, char *end, size_t *size, int *last)
{
    char *from = *at, *to = *at;
    char *const begin = from;
    const int is_quoted = from < end && *from == '"';
    for (from += is_quoted; from < end; from++)
        if (is_quoted ? *from == '"' && (from + 1 == end || from[1] != '"')
                      : *from == ',' || *from == '\n')
            break;
        else
            *to++ = (char)(is_quoted && *from == '"' ? *from++ : *from);
    from += is_quoted && from < end;
    *size = (size_t)(to - begin);
    *last = from >= end || *from == '\n';
    *at = from < end ? from + 1 : end;
    return begin;
}

/* Has the first line the names of the table's columns? *next becomes the line after it. */
TOOLS_FN int kept_is_table(const kept_answer *k, const answer_table *t, char **next)
{
    char *const line = arena_text(k->ctx, k->memory, k->text, strcspn(k->text, "\n"));
    char *at = line, *const end = line ? line + strlen(line) : NULL;
    size_t i = 0, size;
    int last = 0, same = 1;
    *next = k->text + strcspn(k->text, "\n");
    *next += **next == '\n';
    for (; line && !last; i++) {
        const char *const name = kept_field(&at, end, &size, &last);
        same &= i < t->n_columns && strlen(t->columns[i].name) == size &&
                memcmp(t->columns[i].name, name, size) == 0;
    }
    return same && i == t->n_columns;
}

TOOLS_FN receipt_verdict kept_csv(const kept_answer *k)
{
    char *at = NULL, *const end = k->text + k->size;
    const answer_table *t = NULL;
    size_t row = 0, size;
    for (size_t i = 0; i < k->again->n_tables && !t; i++)
        if (!k->again->tables[i]->is_dense && kept_is_table(k, k->again->tables[i], &at))
            t = k->again->tables[i];
    if (!t)
        return receipt_differs(k->found, "%.80s: no table of the answer has these columns",
                               base_name(k->name));
    for (; at < end; row++) {
        const int known = row < answer_n_rows(t);
        int last = 0;
        for (size_t i = 0; !last; i++) {
            const char *const text = kept_field(&at, end, &size, &last);
            const answer_column *const c = i < t->n_columns ? &t->columns[i] : NULL;
            const int is_missing =
                t->missing && size == strlen(t->missing) && memcmp(text, t->missing, size) == 0;
            if (known && (!c || (last && i + 1 < t->n_columns)))
                return kept_differs(k, t, row, "names");
            if (known && !c->is_inexact && !kept_is(t, c, row, text, size) &&
                !(is_missing && kept_is(t, c, row, "", 0)))
                return kept_differs(k, t, row, c->name);
        }
    }
    return kept_has_rows(k, t, row);
}

/* >> .npz ====================================================================================== */

/* Finds the first difference from the file that this program writes: entry by entry, which have no gaps. */
TOOLS_FN receipt_verdict kept_npz(const kept_answer *k)
{
    const unsigned char *told = (const unsigned char *)k->text;
    char *text = NULL;
    size_t at = 0, size = 0;
    FILE *const file = tmpfile();
    receipt_verdict verdict = RECEIPT_HOLDS;
    if (!file || answer_npz(k->again, file) || fseek(file, 0, SEEK_SET) != 0 ||
        read_all(k->ctx, k->memory, file, "the answer", SIZE_MAX / 2, &text, &size))
        verdict = RECEIPT_FAILED;
    const unsigned char *again = (const unsigned char *)text;
    for (size_t i = 0; i < k->again->n_tables && !verdict; i++)
        for (size_t c = 0; c < k->again->tables[i]->n_columns && !verdict; c++) {
            const answer_table *const t = k->again->tables[i];
            const size_t head = 30 + (again[at + 26] | (size_t)again[at + 27] << 8),
                         n = get_u32(again + at + 22), rows = answer_n_rows(t);
            const size_t header = 10 + (again[at + head + 8] | (size_t)again[at + head + 9] << 8);
            const size_t width = rows ? (n - header) / rows : 1, begin = at + head + header;
            size_t b = at + 18; /* behind a checksum */
            for (at += head + n; b < at && !verdict && !t->columns[c].is_inexact; b++)
                if (b >= k->size || told[b] != again[b])
                    verdict = kept_differs(k, t, b > begin && width ? (b - begin) / width : 0,
                                           t->columns[c].name);
        }
    if (!verdict && (k->size != size || (at < size && memcmp(told + at, again + at, 4) != 0)))
        verdict =
            receipt_differs(k->found, "%.80s: not as this program writes it", base_name(k->name));
    if (file)
        fclose(file);
    return verdict;
}

/* >> All forms ================================================================================= */

TOOLS_FN receipt_verdict receipt_compare_answer(attn_ctx *ctx, receipt_findings *found,
                                                arena *memory, const answer *again,
                                                const char *path)
{
    kept_answer k = {ctx, memory, again, found, path, NULL, 0};
    const char *const dot = strrchr(path, '.');
    const char *const newline = read_bytes(ctx, memory, path, (size_t)1 << 31, &k.text, &k.size)
                                    ? NULL
                                    : (const char *)memchr(k.text, '\n', k.size);
    if (ctx->status)
        return RECEIPT_FAILED;
    if (k.size > 4 && memcmp(k.text, "PK\003\004", 4) == 0)
        return kept_npz(&k);
    if (dot && strcmp(dot, ".csv") == 0)
        return kept_csv(&k);
    if (k.size && k.text[0] == '{')
        return again->n_tables && strncmp(k.text, "{\"notes\": [", 11) != 0 && newline
                   ? kept_lines(&k)
                   : kept_json(&k);
    return kept_csv(&k);
}

#endif
