/* Compares an answer that somebody kept, as CSV, JSON, lines of JSON or .npz, with one that was computed again: each cell is
 * printed again, and the file must go on with it. */
#ifndef TOOLS_RECEIPT_COMPARE_H
#define TOOLS_RECEIPT_COMPARE_H

#include "verify.h"
#include "tools/waist/query.h"

/* An answer as it was kept. */
typedef struct kept_answer {
    attn_ctx *ctx;
    arena *memory;
    const answer *again;
    receipt_findings *found;
    const char *name; /* of the file */
    char *at, *end;   /* the bytes [at, end) are not compared yet; *end is 0 */
    json_out printed;
} kept_answer;

TOOLS_FN receipt_verdict kept_differs(const kept_answer *k, const answer_table *t, size_t row,
                                      const char *column)
{
    return receipt_differs(k->found,
                           "%.80s: row %zu of the table %.60s differs, in its column %.60s",
                           base_name(k->name), row + 1, t->name, column);
}

/* >> CSV and JSON ============================================================================== */

/* Returns 1 if the file has this text at k->at, and moves k->at behind it. Otherwise k->at stays. */
TOOLS_FN int kept_has(kept_answer *k, const char *text, size_t size)
{
    const int has = (size_t)(k->end - k->at) >= size && (!size || !memcmp(k->at, text, size));
    k->at += has ? size : 0;
    return has;
}

TOOLS_FN int kept_has_word(kept_answer *k, const char *text)
{
    return kept_has(k, text, strlen(text));
}

/* The same for the text in k->printed, which becomes empty. */
TOOLS_FN int kept_has_printed(kept_answer *k)
{
    const int has = !k->printed.failed && kept_has(k, k->printed.text, k->printed.size);
    k->printed.size = 0;
    k->printed.follows = 0;
    return has;
}

/* The same for the cell of a column in a row. The file may write a number with as many digits as this program does, or with
 * all digits. An inexact column accepts any number. In JSON a text may stand without quotes, as ids do. */
TOOLS_FN int kept_has_cell(kept_answer *k, const answer_table *t, const answer_column *c,
                           size_t row, int is_json)
{
    static const char ends[] = ",}\n"; /* of cells; strchr finds the zero behind a file, too */
    char *const begin = k->at;
    size_t size;
    if (c->is_inexact) {
        k->at += strcspn(k->at, ends);
        return 1;
    }
    if (is_json)
        answer_json_value(&k->printed, NULL, t, c, row);
    else
        answer_csv_value(&k->printed, t, c, row);
    if (kept_has_printed(k) && strchr(ends, *k->at))
        return 1;
    k->at = begin;
    if (is_text_kind(c->kind)) {
        const char *const text = answer_text(t, c, row, &size);
        return text && is_json && kept_has(k, text, size) && strchr(ends, *k->at);
    }
    return number_at(begin, &k->at) == answer_number(t, c, row) && k->at > begin &&
           strchr(ends, *k->at);
}

TOOLS_FN receipt_verdict kept_csv_row(kept_answer *k, const answer_table *t, size_t row)
{
    for (size_t i = 0; i < t->n_columns; i++)
        if (!kept_has(k, ",", i > 0) || !kept_has_cell(k, t, &t->columns[i], row, 0))
            return kept_differs(k, t, row, t->columns[i].name);
    return RECEIPT_HOLDS;
}

/* The column whose name is the next key of the file; NULL if no column has it. */
TOOLS_FN const answer_column *kept_key(kept_answer *k, const answer_table *t)
{
    for (size_t i = 0; i < t->n_columns; i++) {
        out_key(&k->printed, t->columns[i].name);
        if (kept_has_printed(k))
            return &t->columns[i];
    }
    return NULL;
}

TOOLS_FN int answer_has(const answer_table *t, const answer_column *c, size_t row)
{
    size_t size;
    return is_text_kind(c->kind) ? answer_text(t, c, row, &size) != NULL
                                 : fabs(answer_number(t, c, row)) <= DBL_MAX;
}

/* Compares a row with a JSON object. The object may leave out missing values and keys: a line of JSON does not have its own
 * number. */
TOOLS_FN receipt_verdict kept_json_row(kept_answer *k, const answer_table *t, size_t row)
{
    size_t n_values = 0;
    for (size_t i = t->n_keys; i < t->n_columns; i++)
        n_values += (size_t)answer_has(t, &t->columns[i], row);
    for (int n = 0; kept_has_word(k, n ? ", " : "{"); n = 1) {
        const answer_column *const c = kept_key(k, t);
        if (!c || !kept_has_cell(k, t, c, row, 1))
            return kept_differs(k, t, row, c ? c->name : "names");
        n_values -= c >= t->columns + t->n_keys && answer_has(t, c, row);
    }
    return kept_has_word(k, "}") && n_values == 0 ? RECEIPT_HOLDS
                                                  : kept_differs(k, t, row, "names");
}

/* Compares the rows of a table. `before` separates two rows. The last row must be followed by the end of the list or file. */
TOOLS_FN receipt_verdict kept_rows(kept_answer *k, const answer_table *t, const char *before,
                                   receipt_verdict (*row_of)(kept_answer *k, const answer_table *t,
                                                             size_t row))
{
    const size_t n = answer_n_rows(t);
    receipt_verdict verdict = RECEIPT_HOLDS;
    size_t row = 0;
    for (; row < n && k->at < k->end && !verdict; row++)
        verdict = kept_has_word(k, row              ? before
                                   : *before == ',' ? before + 1
                                                    : "")
                      ? row_of(k, t, row)
                      : kept_differs(k, t, row, "names");
    int is_end = kept_has_word(k, *before == ',' ? "]" : "\n");
    is_end = *before == ',' ? is_end : k->at == k->end;
    return verdict || (row == n && is_end)
               ? verdict
               : receipt_differs(k->found, "%.80s: %s than the %zu rows of the table %.60s",
                                 base_name(k->name), row < n ? "fewer" : "more", n, t->name);
}

/* Compares the tables of an object. The first line has the notes, which are not compared. */
TOOLS_FN receipt_verdict kept_json(kept_answer *k)
{
    receipt_verdict verdict = RECEIPT_HOLDS;
    k->at += strcspn(k->at, "\n") - 1;
    for (size_t i = 0; i < k->again->n_tables && !verdict; i++) {
        const answer_table *const t = k->again->tables[i];
        if (t->is_dense)
            continue;
        out_bytes(&k->printed, ",\n ", 3);
        out_open(&k->printed, t->name, '[');
        verdict = kept_has_printed(k) ? kept_rows(k, t, ",\n  ", kept_json_row)
                                      : kept_differs(k, t, 0, "names");
    }
    return verdict || (kept_has_word(k, "}\n") && k->at == k->end)
               ? verdict
               : receipt_differs(k->found, "%.80s: not as this program writes it",
                                 base_name(k->name));
}

TOOLS_FN receipt_verdict kept_csv(kept_answer *k)
{
    for (size_t i = 0; i < k->again->n_tables; i++) {
        const answer_table *const t = k->again->tables[i];
        answer_csv_row(&k->printed, t, SIZE_MAX);
        if (!t->is_dense && kept_has_printed(k))
            return kept_rows(k, t, "\n", kept_csv_row);
        k->printed.size = 0;
    }
    return receipt_differs(k->found, "%.80s: no table of the answer has these columns",
                           base_name(k->name));
}

/* >> .npz ====================================================================================== */

/* Finds the first byte that differs from the file that this program writes. Its entries follow each other without gaps. */
TOOLS_FN receipt_verdict kept_npz(const kept_answer *k)
{
    const unsigned char *told = (const unsigned char *)k->at;
    const size_t n_told = (size_t)(k->end - k->at);
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
                if (b >= n_told || told[b] != again[b])
                    verdict = kept_differs(k, t, b > begin && width ? (b - begin) / width : 0,
                                           t->columns[c].name);
        }
    if (!verdict && (n_told != size || (at < size && memcmp(told + at, again + at, 4) != 0)))
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
    kept_answer k = {ctx, memory, again, found, path, NULL, NULL, {NULL, 0, 0, 0, 0}};
    const char *const dot = strrchr(path, '.');
    receipt_verdict verdict;
    size_t size;
    if (read_bytes(ctx, memory, path, (size_t)1 << 31, &k.at, &size))
        return RECEIPT_FAILED;
    k.end = k.at + size;
    if (size > 4 && memcmp(k.at, "PK\003\004", 4) == 0)
        verdict = kept_npz(&k);
    else if ((dot && strcmp(dot, ".csv") == 0) || *k.at != '{' || !again->n_tables)
        verdict = kept_csv(&k);
    else if (strncmp(k.at, "{\"notes\": [", 11) == 0)
        verdict = kept_json(&k);
    else
        verdict = kept_rows(&k, again->tables[0], "\n", kept_json_row);
    out_free(&k.printed);
    return verdict;
}

#endif
