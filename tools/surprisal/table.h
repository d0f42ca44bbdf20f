/* Reads the input: lines of text, a table in CSV or TSV by RFC 4180, or the texts of a caller. */
#ifndef SURPRISAL_TABLE_H
#define SURPRISAL_TABLE_H

#include "run.h"

/* What is left of a table. */
typedef struct table_reader {
    const char *at, *end;
    uint64_t line;
    char separator;
} table_reader;

/* >> Encodings ================================================================================= */

static int begins_with(const char *text, size_t size, const char *with)
{
    return size >= strlen(with) && memcmp(text, with, strlen(with)) == 0;
}

/* Names what is no text by its first bytes. */
static attn_status check_kind(surprisal_run *r, const char *text, size_t size)
{
    if (is_utf16(text, size))
        return tool_fail(&r->ctx, ATTN_E_FORMAT, "%s " UTF16_ADVICE, name_of(r));
    if (begins_with(text, size, "PK\003\004") ||
        begins_with(text, size, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"))
        return tool_fail(&r->ctx, ATTN_E_FORMAT, "%s is an Excel workbook: save it as CSV UTF-8",
                         name_of(r));
    if (is_binary(text, size))
        return tool_fail(&r->ctx, ATTN_E_FORMAT, "%s is no text: it has many control characters",
                         name_of(r));
    return ATTN_OK;
}

/* How many bytes are before the first that is not UTF-8, or is zero. */
static size_t utf8_end(const char *text, size_t size)
{
    const unsigned char *const bytes = (const unsigned char *)text;
    size_t at = 0, length = 1;
    uint32_t code;
    while (at < size && length > 0) {
        length = bytes[at] ? utf8_length(bytes + at, size - at, &code) : 0;
        at += length;
    }
    return at;
}

/* Other encodings give wrong numbers for every letter outside ASCII. `line`: of the first byte; without
 * a file, the number of the text. */
static attn_status check_utf8(surprisal_run *r, const char *text, size_t size, uint64_t line)
{
    const size_t end = utf8_end(text, size);
    place_text where;
    if (end == size)
        return ATTN_OK;
    for (size_t at = 0; r->name && at < end; at++)
        line += text[at] == '\n';
    return tool_fail(
        &r->ctx, ATTN_E_FORMAT, "%s: the byte %02x is not UTF-8; %s", place_of(where, r, line),
        (unsigned)(unsigned char)text[end],
        r->name
            ? "save the file as UTF-8 (in Excel \"CSV UTF-8\"), or convert it: iconv -f "
              "WINDOWS-1252 -t UTF-8"
            : "read its file in the encoding that it has, perhaps Windows-1252, or save that as "
              "UTF-8 (in Excel \"CSV UTF-8\")");
}

/* Makes lines of UTF-8 of a file's bytes, in place. */
static attn_status to_lines(surprisal_run *r, char *text, size_t *size)
{
    attn_status status = check_kind(r, text, *size);
    if (status)
        return status;
    if (memchr(text, '\r', *size) && !memchr(text, '\n', *size))
        return tool_fail(&r->ctx, ATTN_E_FORMAT,
                         "the line ends of %s are CR alone, as in \"CSV (Macintosh)\": save it as "
                         "CSV UTF-8, or as a text whose lines end in LF or CR LF",
                         name_of(r));
    *size = plain_text(text, *size);
    return check_utf8(r, text, *size, 1);
}

/* >> Fields ==================================================================================== */

/* Copies a quoted field without its quotes. 0: a quote is never closed, or text follows it. */
static int read_quoted(surprisal_run *r, table_reader *in, text_span *field)
{
    const char *const begin = in->at + 1;
    const char *from;
    char *copy;
    size_t n = 0;
    for (from = begin; from < in->end && (*from != '"' || (from + 1 < in->end && from[1] == '"'));
         from += 1 + (*from == '"'))
        n++;
    in->at = from + 1;
    if (from == in->end || (in->at < in->end && *in->at != in->separator && *in->at != '\n'))
        return 0;
    if (!(copy = (char *)arena_alloc(&r->ctx, &r->memory, n + 1, 1)))
        return 0;
    field->text = copy;
    field->size = n;
    for (from = begin; n > 0; n--, from += 1 + (*from == '"')) {
        in->line += *from == '\n';
        *copy++ = *from;
    }
    return 1;
}

/* Reads a field and what ends it. *last: it is the last one of its record. 0: see read_quoted. */
static int read_field(surprisal_run *r, table_reader *in, text_span *field, int *last)
{
    const char *const begin = in->at;
    if (in->at < in->end && *in->at == '"') {
        if (!read_quoted(r, in, field))
            return 0;
    } else {
        while (in->at < in->end && *in->at != in->separator && *in->at != '\n')
            in->at++;
        field->text = begin;
        field->size = (size_t)(in->at - begin);
    }
    *last = in->at >= in->end || *in->at == '\n';
    in->line += (uint64_t)*last;
    in->at += in->at < in->end;
    return 1;
}

static attn_status refuse_quote(surprisal_run *r, uint64_t line)
{
    place_text where;
    return r->ctx.status ? r->ctx.status
                         : tool_fail(&r->ctx, ATTN_E_FORMAT,
                                     "%s: a quoted field has no closing quote before the next "
                                     "separator or the end of the line",
                                     place_of(where, r, line));
}

/* >> Names of columns ========================================================================== */

/* Reads the names of the columns. Returns how many; 0: see read_quoted. */
static size_t read_names(surprisal_run *r, table_reader *in, text_span **names)
{
    table_reader probe = *in;
    text_span field = {NULL, 0};
    size_t n = 0;
    int last = 0;
    for (; !last; n++)
        if (!read_field(r, &probe, &field, &last))
            return 0;
    *names = (text_span *)arena_alloc(&r->ctx, &r->memory, n, sizeof **names);
    for (n = 0, last = 0; *names && !last; n++)
        read_field(r, in, *names + n, &last);
    return *names ? n : 0;
}

static int is_named(text_span one, const char *name)
{
    return one.size == strlen(name) && memcmp(one.text, name, one.size) == 0;
}

/* Finds the first column of that name. Returns how many have it. */
static size_t find_column(const text_table *t, const char *name, size_t *column)
{
    size_t found = 0;
    for (size_t i = t->n_columns; name && i-- > 0;)
        if (is_named(t->names[i], name)) {
            *column = i;
            found++;
        }
    return found;
}

/* name: the one that no column has, or NULL if none is given. */
static attn_status refuse_column(surprisal_run *r, const char *option, const char *name)
{
    char list[160] = "";
    size_t used = 0, i;
    shown one;
    for (i = 0; i < r->input.n_columns && used + 64 + 6 < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 show(one, r->input.names[i].text, r->input.names[i].size));
    if (!name)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                         "%s%sname the column of texts with --column; its columns are %s%s",
                         r->name ? r->name : "", r->name ? " is a table: " : "", list,
                         i < r->input.n_columns ? ", ..." : "");
    return tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                     "%s: %s has no column \"%s\"; its columns are %s%s%s", option, name_of(r),
                     name, list, i < r->input.n_columns ? ", ..." : "",
                     r->o.is_suite ? "; name them with --pair GOOD,BAD" : "");
}

static attn_status check_column(surprisal_run *r, const char *option, const char *name,
                                size_t *column)
{
    const size_t found = find_column(&r->input, name, column);
    if (found > 1)
        return tool_fail(&r->ctx, ATTN_E_ARGUMENT,
                         "%s: %s has %zu columns \"%s\"; give each a name of its own", option,
                         name_of(r), found, name);
    return found ? ATTN_OK : refuse_column(r, option, name);
}

/* Finds the columns that the options name. */
static attn_status find_columns(surprisal_run *r)
{
    text_table *const t = &r->input;
    if (check_column(r, r->o.is_suite ? "--pair" : "--column", r->o.column, &t->column) ||
        (r->o.region_names && check_column(r, "--region-names", r->o.region_names, &t->regions)) ||
        (r->o.text_column && check_column(r, "--text-column", r->o.text_column, &t->text)))
        return r->ctx.status;
    return ATTN_OK;
}

/* The first record behind those that are one text with `first`. */
static size_t end_of_text(const surprisal_run *r, size_t first)
{
    const text_span *const of = r->input.of_text;
    size_t end = first + 1;
    if (r->o.continues)
        return r->input.n_records;
    while (r->o.text_column && end < r->input.n_records && of[end].size == of[first].size &&
           memcmp(of[end].text, of[first].text, of[first].size) == 0)
        end++;
    return end;
}

/* Does anybody want a row of the records [first, end)? */
static int is_wanted(const surprisal_run *r, size_t first, size_t end)
{
    for (; first < end; first++)
        if (r->o.continues || units_want(r->units, first))
            return 1;
    return 0;
}

/* Excel's own line before the names, which gives the separator: sep=; */
static char given_separator(table_reader *in)
{
    const char *const at = in->at;
    if (in->end - at < 6 || memcmp(at, "sep=", 4) != 0 || at[4] == '\n' || at[5] != '\n')
        return 0;
    in->at += 6;
    in->line++;
    return at[4];
}

/* Reads the names with the separator by which the column is found: a comma, a tab, or the semicolon
 * of spreadsheets in much of Europe; behind names in quotes the blank of R's write.table. */
static attn_status read_header(surprisal_run *r, table_reader *in)
{
    char separators[] = ",\t; ";
    text_table *const t = &r->input;
    const char given = given_separator(in);
    const size_t n = given ? 1 : in->at < in->end && *in->at == '"' ? 4 : 3;
    const table_reader begin = *in;
    size_t most = 0, i, best = 0;
    t->has_names = 1;
    if (given)
        separators[0] = given;
    for (i = 0; i < n; i++) {
        *in = begin;
        in->separator = separators[i];
        t->n_columns = read_names(r, in, &t->names);
        if (r->ctx.status || (t->n_columns && find_column(t, r->o.column, &t->column)))
            break;
        best = t->n_columns > most ? i : best;
        most = t->n_columns > most ? t->n_columns : most;
    }
    if (r->ctx.status || most + (i < n) == 0)
        return refuse_quote(r, begin.line);
    if (i == n) {
        *in = begin;
        in->separator = separators[best];
        t->n_columns = read_names(r, in, &t->names);
    }
    return find_columns(r);
}

/* >> Records =================================================================================== */

/* Makes room for one more record. */
static attn_status add_input_record(surprisal_run *r, uint64_t line)
{
    text_table *const t = &r->input;
    if (t->n_records == t->room) {
        const size_t room = t->room ? 2 * t->room : 64;
        text_span *const cells =
            (text_span *)arena_alloc(&r->ctx, &r->memory, room, t->n_columns * sizeof(text_span));
        uint64_t *const lines = (uint64_t *)arena_alloc(&r->ctx, &r->memory, room, sizeof *lines);
        if (!cells || !lines)
            return r->ctx.status;
        if (t->n_records) {
            memcpy(cells, t->cells, t->n_records * t->n_columns * sizeof(text_span));
            memcpy(lines, t->lines, t->n_records * sizeof *lines);
        }
        t->cells = cells;
        t->lines = lines;
        t->room = room;
    }
    t->lines[t->n_records++] = line;
    return ATTN_OK;
}

static attn_status read_record(surprisal_run *r, table_reader *in)
{
    text_table *const t = &r->input;
    const uint64_t line = in->line;
    text_span field = {NULL, 0};
    size_t n = 0;
    int last = 0;
    place_text where;
    const attn_status status = add_input_record(r, line);
    for (; status == ATTN_OK && !last; n++) {
        const uint64_t begins = in->line;
        if (!read_field(r, in, &field, &last))
            return refuse_quote(r, begins);
        if (n < t->n_columns)
            t->cells[(t->n_records - 1) * t->n_columns + n] = field;
    }
    if (status == ATTN_OK && n != t->n_columns)
        return tool_fail(&r->ctx, ATTN_E_FORMAT,
                         "%s: the record has %zu field%s; expected %zu, as many as the first line "
                         "names (R: row.names = FALSE)",
                         place_of(where, r, line), n, n == 1 ? "" : "s", t->n_columns);
    return status;
}

/* The texts and the names of their regions, out of the cells. */
static attn_status take_columns(surprisal_run *r)
{
    text_table *const t = &r->input;
    const size_t n = t->n_records;
    t->texts = (text_span *)arena_alloc(&r->ctx, &r->memory, n, sizeof(text_span));
    t->lists = (text_span *)arena_alloc(&r->ctx, &r->memory, n, sizeof(text_span));
    t->of_text = (text_span *)arena_alloc(&r->ctx, &r->memory, n, sizeof(text_span));
    for (size_t i = 0; t->texts && t->lists && t->of_text && i < n; i++) {
        t->texts[i] = t->cells[i * t->n_columns + t->column];
        t->lists[i] = t->cells[i * t->n_columns + t->regions];
        t->of_text[i] = t->cells[i * t->n_columns + t->text];
    }
    return r->ctx.status;
}

/* A text is taken for a table if all its lines have the same number of tabs, or if R's write.table wrote it. */
static int looks_like_table(const char *text, size_t size)
{
    const char *const end = text + size, *next = (const char *)memchr(text, '\n', size);
    size_t first = 0, n_lines = 0;
    if (next && *text == '"' && begins_with(next, (size_t)(end - next), "\n\"1\" "))
        return 1;
    for (const char *at = text; at < end; at = next + 1) {
        size_t n = 0;
        for (next = at; next < end && *next != '\n'; next++)
            n += *next == '\t';
        first = n_lines ? first : n;
        n_lines += next > at; /* an empty line is none */
        if (next > at && (n == 0 || n != first))
            return 0;
    }
    return n_lines > 1;
}

/* Does the name of a file say that it is a table? */
static int is_named_table(const char *path)
{
    const size_t n = strlen(path);
    char ending[5] = "";
    for (size_t k = 0; n > 4 && k < 4; k++)
        ending[k] = (char)(path[n - 4 + k] | 0x20);
    return strcmp(ending, ".csv") == 0 || strcmp(ending, ".tsv") == 0;
}

/* Reads the records of a file's bytes, which are changed, and must live as long as the run. */
TOOLS_FN attn_status read_records(surprisal_run *r, char *text, size_t size)
{
    table_reader in = {NULL, NULL, 1, '\n'}; /* lines: no separator but the end of a line */
    text_table *const t = &r->input;
    attn_status status = to_lines(r, text, &size);
    if (status)
        return status;
    const int is_table = r->o.column || is_named_table(r->name) || looks_like_table(text, size);
    in.at = text;
    in.end = text + size;
    t->n_columns = 1;
    if (size == 0)
        return tool_fail(&r->ctx, ATTN_E_FORMAT, "%s is empty; expected a text on each line%s",
                         name_of(r),
                         r->o.column ? ", after a line with the names of the columns" : "");
    if (is_table && (status = read_header(r, &in)) != ATTN_OK)
        return status;
    while (status == ATTN_OK && in.at < in.end) {
        const char *const begin = in.at;
        if (is_table && t->n_columns > 1 && *in.at == '\n') { /* an empty line is no record */
            in.at++;
            in.line++;
        } else if (is_table) {
            status = read_record(r, &in);
        } else if ((status = add_input_record(r, in.line)) == ATTN_OK) {
            const char *const newline = (const char *)memchr(begin, '\n', (size_t)(in.end - begin));
            t->cells[t->n_records - 1].text = begin;
            t->cells[t->n_records - 1].size = (size_t)((newline ? newline : in.end) - begin);
            in.at = newline ? newline + 1 : in.end;
            in.line++;
        }
    }
    return status ? status : take_columns(r);
}

#endif
