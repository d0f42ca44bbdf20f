/* Reads the input: lines of text, or a table in CSV or TSV by RFC 4180. */
#ifndef SURPRISAL_TABLE_H
#define SURPRISAL_TABLE_H

#include "run.h"
#include "tools/common/utf8.h"

/* What is left of a table. */
typedef struct table_reader {
    const char *at, *end;
    uint64_t line;
    char separator;
} table_reader;

/* Copies a quoted field without its quotes. 0: a quote is never closed, or text follows it. */
static int read_quoted(run *r, table_reader *in, span *field)
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
static int read_field(run *r, table_reader *in, span *field, int *last)
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

static int refuse_quote(const run *r, uint64_t line)
{
    return r->ctx.status
               ? failed(&r->ctx)
               : fail(FAILED,
                      "%s, line %llu: a quoted field has no closing quote before the next "
                      "separator or the end of the line",
                      r->name, TOOLS_LLU(line));
}

/* Reads the names of the columns. Returns how many; 0: see read_quoted. */
static size_t read_names(run *r, table_reader *in, span **names)
{
    table_reader probe = *in;
    span field = {NULL, 0};
    size_t n = 0;
    int last = 0;
    for (; !last; n++)
        if (!read_field(r, &probe, &field, &last))
            return 0;
    *names = (span *)arena_alloc(&r->ctx, &r->memory, n, sizeof **names);
    for (n = 0, last = 0; *names && !last; n++)
        read_field(r, in, *names + n, &last);
    return *names ? n : 0;
}

/* Finds the first column of that name. Returns how many have it. */
static size_t find_column(const table *t, const char *name, size_t *column)
{
    const size_t size = name ? strlen(name) : 0;
    size_t found = 0, i;
    for (i = t->n_columns; name && i-- > 0;)
        if (t->names[i].size == size && memcmp(t->names[i].text, name, size) == 0) {
            *column = i;
            found++;
        }
    return found;
}

/* name: the one that no column has, or NULL if none is given. */
static int refuse_column(const run *r, const char *option, const char *name)
{
    char list[160] = "";
    size_t used = 0, i;
    shown one;
    for (i = 0; i < r->input.n_columns && used + 64 + 6 < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 show(one, r->input.names[i].text, r->input.names[i].size));
    if (!name)
        return fail(USAGE,
                    "%s is a table: name the column of texts with --column; its columns are %s%s",
                    r->name, list, i < r->input.n_columns ? ", ..." : "");
    return fail(USAGE, "--%s: %s has no column \"%s\"; its columns are %s%s", option, r->name, name,
                list, i < r->input.n_columns ? ", ..." : "");
}

static int check_column(const run *r, const char *option, const char *name, size_t *column)
{
    const size_t found = find_column(&r->input, name, column);
    if (found > 1)
        return fail(USAGE, "--%s: %s has %zu columns \"%s\"; give each a name of its own", option,
                    r->name, found, name);
    return found ? FINE : refuse_column(r, option, name);
}

/* Reads the names with the separator by which the column is found: a comma, a tab, or the semicolon
 * of spreadsheets in much of Europe. */
static int read_header(run *r, table_reader *in)
{
    static const char separators[] = ",\t;";
    table *const t = &r->input;
    const table_reader begin = *in;
    size_t most = 0, i, best = 0;
    int code;
    t->has_names = 1;
    for (i = 0; i < 3; i++) {
        *in = begin;
        in->separator = separators[i];
        t->n_columns = read_names(r, in, &t->names);
        if (r->ctx.status || (t->n_columns && find_column(t, r->o.column, &t->column)))
            break;
        best = t->n_columns > most ? i : best;
        most = t->n_columns > most ? t->n_columns : most;
    }
    if (r->ctx.status || most + (i < 3) == 0)
        return refuse_quote(r, 1);
    if (i == 3) {
        *in = begin;
        in->separator = separators[best];
        t->n_columns = read_names(r, in, &t->names);
    }
    t->has_regions = r->o.region_names != NULL;
    code = check_column(r, "column", r->o.column, &t->column);
    return code == FINE && t->has_regions
               ? check_column(r, "region-names", r->o.region_names, &t->regions)
               : code;
}

/* Makes room for one more record. */
static int add_record(run *r, uint64_t line)
{
    table *const t = &r->input;
    if (t->n_records == t->room) {
        const size_t room = t->room ? 2 * t->room : 64;
        span *const cells =
            (span *)arena_alloc(&r->ctx, &r->memory, room, t->n_columns * sizeof(span));
        uint64_t *const lines = (uint64_t *)arena_alloc(&r->ctx, &r->memory, room, sizeof *lines);
        if (!cells || !lines)
            return failed(&r->ctx);
        if (t->n_records) {
            memcpy(cells, t->cells, t->n_records * t->n_columns * sizeof(span));
            memcpy(lines, t->lines, t->n_records * sizeof *lines);
        }
        t->cells = cells;
        t->lines = lines;
        t->room = room;
    }
    t->lines[t->n_records++] = line;
    return FINE;
}

static int read_record(run *r, table_reader *in)
{
    table *const t = &r->input;
    const uint64_t line = in->line;
    span field = {NULL, 0};
    size_t n = 0;
    int last = 0;
    const int code = add_record(r, line);
    for (; code == FINE && !last; n++) {
        const uint64_t begins = in->line;
        if (!read_field(r, in, &field, &last))
            return refuse_quote(r, begins);
        if (n < t->n_columns)
            t->cells[(t->n_records - 1) * t->n_columns + n] = field;
    }
    if (code == FINE && n != t->n_columns)
        return fail(FAILED,
                    "%s, line %llu: the record has %zu field%s; expected %zu, as many as the "
                    "first line names",
                    r->name, TOOLS_LLU(line), n, n == 1 ? "" : "s", t->n_columns);
    return code;
}

/* Other encodings give wrong numbers for every letter outside ASCII. */
static int check_utf8(const run *r, const char *text, size_t size)
{
    const unsigned char *const bytes = (const unsigned char *)text;
    size_t at, length;
    uint64_t line = 1;
    uint32_t code;
    for (at = 0; at < size; at += length) {
        length = bytes[at] ? utf8_length(bytes + at, size - at, &code) : 0;
        if (length == 0)
            return fail(
                FAILED,
                "%s, line %llu: the byte %02x is not UTF-8; save the file as UTF-8 (in Excel "
                "\"CSV UTF-8\"), or convert it: iconv -f WINDOWS-1252 -t UTF-8",
                r->name, TOOLS_LLU(line), (unsigned)bytes[at]);
        line += bytes[at] == '\n';
    }
    return FINE;
}

/* Does the name of a file say that it is a table? */
static int is_named_table(const char *path)
{
    const size_t n = strlen(path);
    return n > 4 && (strcmp(path + n - 4, ".csv") == 0 || strcmp(path + n - 4, ".tsv") == 0);
}

/* Reads the records of a text, which must live as long as the run. */
static int read_records(run *r, const char *text, size_t size)
{
    table_reader in = {NULL, NULL, 1, '\n'}; /* lines: no separator but the end of a line */
    table *const t = &r->input;
    int code = check_utf8(r, text, size);
    if (code != FINE)
        return code;
    in.at = text;
    in.end = text + size;
    t->n_columns = 1;
    if (size == 0)
        return fail(FAILED, "%s is empty; expected a text on each line%s", r->name,
                    r->o.column ? ", after a line with the names of the columns" : "");
    if (r->o.column && (code = read_header(r, &in)) != FINE)
        return code;
    while (code == FINE && in.at < in.end) {
        const char *const begin = in.at;
        if (r->o.column && t->n_columns > 1 && *in.at == '\n') { /* an empty line is no record */
            in.at++;
            in.line++;
        } else if (r->o.column) {
            code = read_record(r, &in);
        } else if ((code = add_record(r, in.line)) == FINE) {
            const char *const newline = (const char *)memchr(begin, '\n', (size_t)(in.end - begin));
            t->cells[t->n_records - 1].text = begin;
            t->cells[t->n_records - 1].size = (size_t)((newline ? newline : in.end) - begin);
            in.at = newline ? newline + 1 : in.end;
            in.line++;
        }
    }
    return code;
}

static int read_input(run *r)
{
    const char *text = NULL;
    size_t size = 0;
    const int code = read_text(&r->ctx, &r->memory, r->o.file, 0, &text, &size);
    r->name = strcmp(r->o.file, "-") == 0 ? "standard input" : r->o.file;
    if (code == FINE && size && !r->o.column && is_named_table(r->name)) {
        table_reader in = {text, text + size, 1, ','};
        return read_header(r, &in);
    }
    return code == FINE ? read_records(r, text, size) : code;
}

/* The text of an item. */
static span item_text(const table *t, size_t item)
{
    return t->cells[item * t->n_columns + t->column];
}

#endif
