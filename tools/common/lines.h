/* Reads the lines of a stream, each as soon as it is complete: of a file, or of a pipe to which another
 * program writes a line and waits for the answer. */
#ifndef TOOLS_LINES_H
#define TOOLS_LINES_H

#include "plain.h"
#include "program.h"

enum { MAX_LINE = 1 << 24 }; /* bytes */

typedef enum line_status {
    LINE_READ,
    LINE_TOO_LONG, /* a line has more than MAX_LINE bytes, and was skipped */
    LINE_LATER,    /* there is no whole line yet, or a signal came */
    LINE_END,      /* there are no more lines */
    LINE_FAILED    /* lines_why gives the reason */
} line_status;

/* Zero it and set the file, from which nothing else may read. */
typedef struct line_reader {
    FILE *file;
    char *buffer;
    size_t start, seen,
        end; /* bytes [start, end) were not returned yet; [start, seen) has no newline */
    size_t capacity;
    int at_end, skips; /* skips: the rest of a line that is too long is being skipped */
    int is_utf16;      /* the first line is UTF-16, so no line can be read */
    int is_exact;      /* as --exact: keep a byte order mark and CR */
    uint64_t n_lines, n_bytes;
} line_reader;

/* Reads more bytes. LINE_READ if there were some. */
TOOLS_FN line_status lines_fill(line_reader *r, int wait)
{
    const size_t most = 1 << 16;
    if (r->start > 0) {
        memmove(r->buffer, r->buffer + r->start, r->end - r->start);
        r->seen -= r->start;
        r->end -= r->start;
        r->start = 0;
    }
    if (r->capacity - r->end <= most) { /* a zero follows the last line */
        const size_t capacity = 2 * (r->capacity + most);
        char *const larger = (char *)realloc(r->buffer, capacity);
        errno = ENOMEM;
        if (!larger)
            return LINE_FAILED;
        r->buffer = larger;
        r->capacity = capacity;
    }
    if (!wait && !system_is_ready(r->file))
        return LINE_LATER;
    long got = system_read(r->file, r->buffer + r->end, (unsigned)most);
    if (got < 0)
        return errno == EINTR ? LINE_LATER : LINE_FAILED;
    r->at_end = got == 0;
    if (input_seen)
        input_seen(r->buffer + r->end, (size_t)got);
    r->end += (size_t)got;
    return LINE_READ;
}

/* Gives the next line by the rule of plain.h, with a zero behind it, valid until the next call. Waits for a
 * line if `wait` is not 0. */
TOOLS_FN line_status lines_next(line_reader *r, int wait, const char **line, size_t *size)
{
    char *newline = NULL;
    line_status status;
    while (1) {
        if (r->end > r->seen)
            newline = (char *)memchr(r->buffer + r->seen, '\n', r->end - r->seen);
        if (newline || r->at_end)
            break;
        r->seen = r->end;
        if (r->end - r->start > MAX_LINE) {
            r->n_bytes += r->end - r->start;
            r->start = r->seen = r->end = 0;
            r->skips = 1;
        }
        if ((status = lines_fill(r, wait)) != LINE_READ)
            return status;
    }
    if (!newline && r->start == r->end && !r->skips)
        return LINE_END;
    char *at = r->buffer + r->start;
    *size = newline ? (size_t)(newline - at) : r->end - r->start;
    at[*size] = 0;
    r->is_utf16 = r->n_lines == 0 && !r->is_exact && is_utf16(at, *size);
    if (r->is_utf16)
        return LINE_FAILED;
    r->n_bytes += *size + (newline != NULL);
    r->start = r->seen = r->start + *size + (newline != NULL);
    status = r->skips || *size > MAX_LINE ? LINE_TOO_LONG : LINE_READ;
    if (newline && !r->is_exact)
        *size = plain_line(at, *size);
    size_t mark = r->n_lines == 0 && !r->is_exact ? order_mark_size(at, *size) : 0;
    *line = at + mark;
    *size -= mark;
    r->skips = 0;
    r->n_lines++;
    return status;
}

/* Why LINE_FAILED was returned: the end of a sentence that begins with the file's name. */
TOOLS_FN const char *lines_why(const line_reader *r)
{
    return r->is_utf16 ? "it " UTF16_ADVICE : why(errno);
}

TOOLS_FN void lines_free(line_reader *r)
{
    free(r->buffer);
    memset(r, 0, sizeof *r);
}

#endif
