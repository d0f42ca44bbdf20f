/* Characters of UTF-8, and their width in columns of a terminal. */
#ifndef TOOLS_UTF8_H
#define TOOLS_UTF8_H

#include "files.h"

/* Length of the UTF-8 character at p, which has at most n bytes; 0: it is not valid. */
TOOLS_FN size_t utf8_length(const unsigned char *p, size_t n, uint32_t *code)
{
    const size_t length = *p < 0x80   ? 1
                          : *p < 0xC2 ? 0
                          : *p < 0xE0 ? 2
                          : *p < 0xF0 ? 3
                          : *p < 0xF5 ? 4
                                      : 0;
    if (length == 0 || length > n)
        return 0;
    *code = length == 1 ? *p : *p & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        *code = *code << 6 | (p[i] & 0x3Fu);
    }
    if ((length == 3 && (*code < 0x800 || (*code >= 0xD800 && *code < 0xE000))) ||
        (length == 4 && (*code < 0x10000 || *code > 0x10FFFF)))
        return 0;
    return length;
}

/* Width of a character in columns of a terminal or of a monospace font. */
TOOLS_FN int width_of(uint32_t c)
{
    const int wide = (c >= 0x1100 && c < 0x1160) || (c >= 0x2E80 && c < 0xA4D0) ||
                     (c >= 0xAC00 && c < 0xD7A4) || (c >= 0xF900 && c < 0xFB00) ||
                     (c >= 0xFE30 && c < 0xFE70) || (c >= 0xFF00 && c < 0xFF61) ||
                     (c >= 0x1F300 && c < 0x1FB00) || (c >= 0x20000 && c < 0x3FFFE);
    return wide ? 2 : c >= 0x300 && c < 0x370 ? 0 : 1;
}

/* Width of the first `size` bytes of a text. */
TOOLS_FN size_t text_width(const char *text, size_t size)
{
    size_t length, width = 0;
    uint32_t code;
    for (size_t at = 0; at < size; at += length ? length : 1) {
        length = utf8_length((const unsigned char *)text + at, size - at, &code);
        width += length ? (size_t)width_of(code) : 0;
    }
    return width;
}

/* Bytes of the first characters of a text that fit into `most` columns. */
TOOLS_FN size_t fitting_bytes(const char *text, size_t size, size_t most)
{
    size_t at, length, used = 0;
    uint32_t code;
    for (at = 0; at < size; at += length ? length : 1) {
        length = utf8_length((const unsigned char *)text + at, size - at, &code);
        if ((used += length ? (size_t)width_of(code) : 0) > most)
            break;
    }
    return at;
}

#endif
