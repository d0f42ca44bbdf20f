/* The forms of an answer that programs read: JSON, CSV, and .npz for NumPy. Each is written here once, from columns.
 *
 * JSON is an object: "notes", a list of sentences, and a member for each table, whose value is a list of rows. A row is
 * an object in one line, with the columns in their order. A missing value is null, in CSV an empty cell, in .npz nan.
 * Numbers have 9 digits, so that an f32 reads back exactly. */
#ifndef WAIST_FORMS_H
#define WAIST_FORMS_H

#include "answer.h"
#include "tools/common/json_out.h"
#include "tools/common/utf8.h"
#include "tools/lens/save.h"

/* Where a form goes: what `to` has goes on into the file, if there is one, as soon as a row is complete. */
typedef struct answer_sink {
    json_out *to;
    FILE *file;
} answer_sink;

TOOLS_FN void sink_flush(answer_sink s)
{
    if (!s.file || !s.to->size)
        return;
    fwrite(s.to->text, 1, s.to->size, s.file);
    s.to->size = 0;
}

/* A finite number of a column. One with six decimals is spelled from whole numbers, which every C library spells alike. */
TOOLS_FN void out_number(json_out *o, const answer_column *c, double number)
{
    const double millionths = floor(fabs(number) * 1e6 + 0.5);
    number_text spelled;
    if (number < 1e9 && copysign(1, number) > 0 && number == floor(number) &&
        (c->kind != LENS_NUMBERS || !c->has_millionths)) { /* most are so, and printf is slow */
        uint64_t left = (uint64_t)number;
        char *at = spelled + sizeof spelled;
        do
            *--at = (char)('0' + left % 10);
        while (left /= 10);
        out_bytes(o, at, (size_t)(spelled + sizeof spelled - at));
        return;
    }
    if (c->kind != LENS_NUMBERS)
        snprintf(spelled, sizeof spelled, "%.0f", number);
    else if (c->has_millionths && millionths < 1e18)
        snprintf(spelled, sizeof spelled, "%s%llu.%06llu", number < 0 ? "-" : "",
                 TOOLS_LLU((uint64_t)millionths / 1000000),
                 TOOLS_LLU((uint64_t)millionths % 1000000));
    else
        spell_number(spelled, number, 9);
    out_bytes(o, spelled, strlen(spelled));
}

/* ---- JSON ---- */

TOOLS_FN void answer_json_value(json_out *o, const char *key, const answer_table *t,
                                const answer_column *c, size_t row)
{
    size_t size;
    if (is_text_kind(c->kind)) {
        const char *const text = answer_text(t, c, row, &size);
        if (!text)
            out_null(o, key);
        else
            (c->kind == LENS_LISTS ? out_spelled : out_text)(o, key, text, size);
        return;
    }
    const double number = answer_number(t, c, row);
    if (!(fabs(number) <= DBL_MAX)) {
        out_null(o, key);
    } else if (c->kind == LENS_FLAGS) {
        out_flag(o, key, number != 0);
    } else {
        out_key(o, key);
        out_number(o, c, number);
        o->follows = 1;
    }
}

/* One row as an object. */
TOOLS_FN void answer_json_row(json_out *o, const answer_table *t, size_t row)
{
    out_open(o, NULL, '{');
    for (size_t i = 0; i < t->n_columns; i++)
        answer_json_value(o, t->columns[i].name, t, &t->columns[i], row);
    out_close(o, '}');
}

TOOLS_FN void answer_json(answer_sink s, const answer *a)
{
    json_out *const o = s.to;
    out_open(o, NULL, '{');
    out_open(o, "notes", '[');
    for (size_t i = 0; i < a->n_notes; i++)
        out_word(o, NULL, a->notes[i]);
    out_close(o, ']');
    for (size_t i = 0; i < a->n_tables; i++) {
        const answer_table *const t = a->tables[i];
        const size_t n = t->is_dense ? 0 : answer_n_rows(t);
        if (t->is_dense)
            continue;
        out_bytes(o, ",\n ", 3);
        o->follows = 0;
        out_open(o, t->name, '[');
        for (size_t row = 0; row < n; row++, sink_flush(s)) {
            out_bytes(o, row ? ",\n  " : "\n  ", row ? 4 : 3);
            o->follows = 0;
            answer_json_row(o, t, row);
        }
        out_close(o, ']');
    }
    out_close(o, '}');
    out_bytes(o, "\n", 1);
    sink_flush(s);
}

/* A line for each row. */
TOOLS_FN void answer_json_lines(answer_sink s, const answer_table *t)
{
    const size_t n = answer_n_rows(t);
    for (size_t row = 0; row < n; row++, sink_flush(s)) {
        s.to->follows = 0;
        answer_json_row(s.to, t, row);
        out_bytes(s.to, "\n", 1);
    }
}

/* ---- CSV, by RFC 4180 with LF ---- */

/* A field, in quotes where it needs them, as blanks at an end do, which some readers cut off. */
TOOLS_FN void answer_csv_text(json_out *o, const char *text, size_t size)
{
    size_t i = 0;
    while (i < size && text[i] != '"' && text[i] != ',' && text[i] != '\n' && text[i] != '\r')
        i++;
    if (i == size && (!size || (text[0] != ' ' && text[size - 1] != ' '))) {
        out_bytes(o, text, size);
        return;
    }
    out_bytes(o, "\"", 1);
    for (i = 0; i < size; i++)
        out_bytes(o, text[i] == '"' ? "\"\"" : text + i, text[i] == '"' ? 2 : 1);
    out_bytes(o, "\"", 1);
}

TOOLS_FN void answer_csv_value(json_out *o, const answer_table *t, const answer_column *c,
                               size_t row)
{
    const int is_text = is_text_kind(c->kind);
    size_t size = 0;
    const char *const text = is_text ? answer_text(t, c, row, &size) : NULL;
    const double number = is_text ? 0 : answer_number(t, c, row);
    if (is_text ? !text : number != number)
        out_bytes(o, t->missing, t->missing ? strlen(t->missing) : 0);
    else if (is_text && size == 0 && !t->missing)
        out_bytes(o, "\"\"", 2);
    else if (is_text)
        answer_csv_text(o, text, size);
    else if (fabs(number) <= DBL_MAX)
        out_number(o, c, number);
    else
        out_bytes(o, number < 0 ? "-Inf" : "Inf", number < 0 ? 4 : 3);
}

/* One row; the names of the columns if row is SIZE_MAX. */
TOOLS_FN void answer_csv_row(json_out *o, const answer_table *t, size_t row)
{
    for (size_t i = 0; i < t->n_columns; i++) {
        out_bytes(o, ",", i > 0);
        if (row == SIZE_MAX)
            answer_csv_text(o, t->columns[i].name, strlen(t->columns[i].name));
        else
            answer_csv_value(o, t, &t->columns[i], row);
    }
    out_bytes(o, "\n", 1);
}

TOOLS_FN void answer_csv(answer_sink s, const answer_table *t)
{
    const size_t n = answer_n_rows(t);
    answer_csv_row(s.to, t, SIZE_MAX);
    for (size_t row = 0; row < n; row++, sink_flush(s))
        answer_csv_row(s.to, t, row);
    sink_flush(s);
}

/* An answer whose rows are its first table, in a form: csv (or text), lines of JSON, or json. 0: there is no such form. */
TOOLS_FN int answer_form(answer_sink s, const answer *a, const char *form)
{
    const int is_csv = strcmp(form, "csv") == 0 || strcmp(form, "text") == 0;
    if (strcmp(form, "json") == 0)
        answer_json(s, a);
    else if (!is_csv && strcmp(form, "lines") != 0)
        return 0;
    else if (a->n_tables)
        (is_csv ? answer_csv : answer_json_lines)(s, a->tables[0]);
    return 1;
}

/* ---- .npz: an array "TABLE.COLUMN" for each column ---- */

/* Characters of the longest text of a column, of which NumPy gives every text the room. */
TOOLS_FN size_t npz_width(const answer_table *t, const answer_column *c)
{
    const size_t n = answer_n_rows(t);
    size_t most = 1, size;
    for (size_t row = 0; row < n; row++) {
        const char *const text = answer_text(t, c, row, &size);
        most = text && size > most ? size : most;
    }
    return most;
}

TOOLS_FN int npz_has_missing(const answer_table *t, const answer_column *c)
{
    const size_t n = answer_n_rows(t);
    for (size_t row = 0; row < n; row++)
        if (!(fabs(answer_number(t, c, row)) <= DBL_MAX))
            return 1;
    return 0;
}

TOOLS_FN uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

TOOLS_FN void npz_text(lens_out *out, const answer_table *t, const answer_column *c, size_t row,
                       size_t width)
{
    size_t size, n = 0;
    const char *const text = answer_text(t, c, row, &size);
    for (size_t at = 0, length; text && at < size; at += length, n++) {
        uint32_t code = 0xFFFD;
        length = utf8_length((const unsigned char *)text + at, size - at, &code);
        lens_out_number(out, length ? code : 0xFFFD, 4);
        length = length ? length : 1;
    }
    for (; n < width; n++)
        lens_out_number(out, 0, 4);
}

/* A .npy file. Its header is padded so that the values begin at a multiple of 64. */
TOOLS_FN void npz_column(lens_out *out, const answer_table *t, const answer_column *c)
{
    const size_t n = answer_n_rows(t), width = is_text_kind(c->kind) ? npz_width(t, c) : 0;
    const int is_whole = c->kind == LENS_WHOLES && !npz_has_missing(t, c);
    char header[256];
    if (c->tensor.ndim) {
        lens_out_npy(out, c->tensor);
        return;
    }
    int used = snprintf(header, sizeof header, "{'descr': '%s",
                        width      ? "<U"
                        : is_whole ? "<i8"
                                   : "<f8");
    if (width)
        used += snprintf(header + used, sizeof header - (size_t)used, "%llu", TOOLS_LLU(width));
    used += snprintf(header + used, sizeof header - (size_t)used,
                     "', 'fortran_order': False, 'shape': (%llu,), }", TOOLS_LLU(n));
    for (; (used + 11) % 64; used++)
        header[used] = ' ';
    header[used++] = '\n';
    lens_out_bytes(out, "\x93NUMPY\x01\0", 8);
    lens_out_number(out, (uint64_t)used, 2);
    lens_out_bytes(out, header, (size_t)used);
    for (size_t row = 0; row < n; row++)
        if (width)
            npz_text(out, t, c, row, width);
        else if (is_whole)
            lens_out_number(out, (uint64_t)(int64_t)answer_number(t, c, row), 8);
        else
            lens_out_number(out, bits_of(answer_number(t, c, row)), 8);
}

TOOLS_FN attn_status answer_npz(const answer *a, FILE *file)
{
    lens_out out = ATTN_ZERO;
    uint32_t crc[256];
    size_t n = 0, at = 0;
    for (size_t i = 0; i < a->n_tables; i++)
        n += a->tables[i]->n_columns;
    lens_zip_entry *const entries =
        (lens_zip_entry *)arena_alloc(a->ctx, a->memory, n + 1, sizeof *entries);
    const char **const names = (const char **)arena_alloc(a->ctx, a->memory, n + 1, sizeof *names);
    if (!entries || !names)
        return a->ctx->status;
    lens_crc_table(crc);
    out.file = file;
    for (size_t i = 0; i < a->n_tables; i++)
        for (size_t k = 0; k < a->tables[i]->n_columns; k++, at++) {
            const answer_column *const c = &a->tables[i]->columns[k];
            const size_t room = strlen(a->tables[i]->name) + strlen(c->name) + 2;
            char *const name = (char *)arena_alloc(a->ctx, a->memory, room, 1);
            lens_out count = ATTN_ZERO;
            if (!name)
                return a->ctx->status;
            snprintf(name, room, "%s.%s", a->tables[i]->name, c->name);
            names[at] = name;
            count.crc_table = crc;
            npz_column(&count, a->tables[i], c);
            if (count.n > UINT32_MAX || out.n > UINT32_MAX - count.n)
                return tool_fail(a->ctx, ATTN_E_SPACE,
                                 "the answer is larger than the 4 GiB that a .npz holds");
            entries[at].crc = count.crc;
            entries[at].size = (uint32_t)count.n;
            entries[at].offset = (uint32_t)out.n;
            lens_out_zip_entry(&out, name, entries[at], 0);
            npz_column(&out, a->tables[i], c);
        }
    lens_out_zip_end(&out, entries, names, n);
    return ATTN_OK;
}

#endif
