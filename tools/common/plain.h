/* One rule for every text that a program reads from a file, a pipe or a terminal:
 *
 *   - a byte order mark of UTF-8 at the beginning is not part of the text;
 *   - a line ends in LF or in CR LF, and both are LF in the text;
 *   - the end of the last line is not part of the text.
 *
 * So a text is the same as an argument, from echo, or saved by an editor of any system. With --exact all
 * bytes stay unchanged. An argument and a string of JSON are never changed. */
#ifndef TOOLS_PLAIN_H
#define TOOLS_PLAIN_H

#include "files.h"

#define EXACT_HELP "keep a byte order mark, CR LF, the last line feed"

/* Removes a CR at the end of a line whose LF was removed. Returns the new size; a zero follows the line. */
TOOLS_FN size_t plain_line(char *line, size_t size)
{
    size -= size > 0 && line[size - 1] == '\r';
    line[size] = 0;
    return size;
}

/* Applies the rule to a whole text, in place. Returns the new size; a zero follows the text. */
TOOLS_FN size_t plain_text(char *text, size_t size)
{
    size_t n = 0;
    for (size_t from = order_mark_size(text, size); from < size; from++)
        if (!(text[from] == '\r' && from + 1 < size && text[from + 1] == '\n'))
            text[n++] = text[from];
    n -= n > 0 && text[n - 1] == '\n';
    text[n] = 0;
    return n;
}

/* Does a text begin like a program, a picture or an archive? Texts have few control characters. */
TOOLS_FN int is_binary(const char *text, size_t size)
{
    const size_t looked = size < 65536 ? size : 65536;
    size_t n = 0;
    for (size_t i = 0; i < looked; i++)
        n += (unsigned char)text[i] < 32 && (!text[i] || !strchr("\t\n\v\f\r\b\033", text[i]));
    return n >= 16 && n > looked / 32;
}

/* Makes a text of the bytes that were read from `name`, in place. With `exact` all bytes stay unchanged. */
TOOLS_FN attn_status to_plain_text(attn_ctx *ctx, const char *name, int exact, char *text,
                                   size_t *size)
{
    if (!exact && is_utf16(text, *size))
        return tool_fail(ctx, ATTN_E_FORMAT, "%s " UTF16_ADVICE ", or give --exact for its bytes",
                         name);
    if (!exact && is_binary(text, *size))
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s is no text: it has many control characters. --exact takes any bytes",
                         name);
    if (!exact)
        *size = plain_text(text, *size);
    return ATTN_OK;
}

#endif
