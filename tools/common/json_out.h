/* Writes JSON into memory that grows. Commas are added where needed. Numbers read back exactly: an f32 has 9
 * digits, a double 17.
 *
 *     json_out o = {0};
 *     out_open(&o, NULL, '{');
 *     out_open(&o, "ids", '[');
 *     out_count(&o, NULL, 464);
 *     out_close(&o, ']');
 *     out_close(&o, '}');
 *     out_line(&o, stdout);       prints {"ids": [464]} and a newline, and empties o
 *     out_free(&o);
 *
 * `key` is the name of the member whose value is appended, or NULL for an element of a list.
 * If there is no memory, `failed` is set and the text stays incomplete. Check it once, at the end. */
#ifndef TOOLS_JSON_OUT_H
#define TOOLS_JSON_OUT_H

#include "numbers.h"
#include <float.h>

typedef struct json_out {
    char *text;
    size_t size, capacity;
    int follows; /* the next value follows another one, so it needs a comma */
    int failed;
} json_out;

/* Appends bytes without change. */
TOOLS_FN void out_bytes(json_out *o, const char *bytes, size_t size)
{
    size_t capacity = o->capacity ? o->capacity : 256;
    char *larger;
    while (capacity - o->size < size && capacity <= SIZE_MAX / 2)
        capacity *= 2;
    if (capacity > o->capacity && !o->failed) {
        larger = capacity - o->size < size ? NULL : (char *)realloc(o->text, capacity);
        o->failed = !larger;
        o->text = larger ? larger : o->text;
        o->capacity = larger ? capacity : o->capacity;
    }
    if (o->failed || size == 0)
        return;
    memcpy(o->text + o->size, bytes, size);
    o->size += size;
}

/* Appends whole characters of UTF-8, escaped for quotes. Control characters are escaped. */
TOOLS_FN void out_escaped(json_out *o, const char *text, size_t size)
{
    size_t plain = 0, control;
    char escape[8];
    for (size_t i = 0; i < size; i++) {
        control = control_size(text, i, size);
        if (control == 0 && text[i] != '"' && text[i] != '\\')
            continue;
        out_bytes(o, text + plain, i - plain);
        if (control == 0)
            snprintf(escape, sizeof escape, "\\%c", text[i]);
        else if (text[i] == '\n' || text[i] == '\t')
            snprintf(escape, sizeof escape, text[i] == '\n' ? "\\n" : "\\t");
        else
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned char)text[i + control - 1]);
        out_bytes(o, escape, strlen(escape));
        i += control > 1;
        plain = i + 1;
    }
    out_bytes(o, text + plain, size - plain);
}

/* Appends a comma if another value is before this one, then the key and a colon. Append the value next, with
 * key NULL. */
TOOLS_FN void out_key(json_out *o, const char *key)
{
    out_bytes(o, ", ", o->follows ? 2 : 0);
    if (!key)
        return;
    out_bytes(o, "\"", 1);
    out_escaped(o, key, strlen(key));
    out_bytes(o, "\": ", 3);
    o->follows = 0;
}

/* Appends a value that is JSON already. */
TOOLS_FN void out_spelled(json_out *o, const char *key, const char *value, size_t size)
{
    out_key(o, key);
    out_bytes(o, value, size);
    o->follows = 1;
}

/* '{' or '[' */
TOOLS_FN void out_open(json_out *o, const char *key, char bracket)
{
    out_spelled(o, key, &bracket, 1);
    o->follows = 0;
}

TOOLS_FN void out_close(json_out *o, char bracket)
{
    out_bytes(o, &bracket, 1);
    o->follows = 1;
}

/* Appends any bytes as a string. Invalid UTF-8 becomes U+FFFD. */
TOOLS_FN void out_text(json_out *o, const char *key, const char *text, size_t size)
{
    attn_utf8 state = {{0}, 0};
    char whole[3 * (64 + 4)];
    size_t piece;
    out_spelled(o, key, "\"", 1);
    for (size_t i = 0; i < size; i += piece) {
        piece = size - i < 64 ? size - i : 64;
        out_escaped(o, whole, attn_utf8_push(whole, &state, text + i, piece));
    }
    out_escaped(o, whole, attn_utf8_push(whole, &state, "", 0));
    out_bytes(o, "\"", 1);
}

TOOLS_FN void out_word(json_out *o, const char *key, const char *text)
{
    out_text(o, key, text, strlen(text));
}

/* Appends a number; null if it is not finite, because JSON has neither infinities nor NaN. */
TOOLS_FN void out_digits(json_out *o, const char *key, double value, int digits)
{
    number_text text;
    const char *const spelled = fabs(value) <= DBL_MAX ? spell_number(text, value, digits) : "null";
    out_spelled(o, key, spelled, strlen(spelled));
}

TOOLS_FN void out_f32(json_out *o, const char *key, float value)
{
    out_digits(o, key, (double)value, 9);
}

TOOLS_FN void out_f64(json_out *o, const char *key, double value)
{
    out_digits(o, key, value, 17);
}

TOOLS_FN void out_count(json_out *o, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", TOOLS_LLU(value));
    out_spelled(o, key, text, strlen(text));
}

TOOLS_FN void out_flag(json_out *o, const char *key, int value)
{
    out_spelled(o, key, value ? "true" : "false", value ? 4 : 5);
}

TOOLS_FN void out_null(json_out *o, const char *key)
{
    out_spelled(o, key, "null", 4);
}

/* Appends a list of token ids. */
TOOLS_FN void out_ids(json_out *o, const char *key, const attn_token *ids, size_t n)
{
    out_open(o, key, '[');
    for (size_t i = 0; i < n; i++)
        out_count(o, NULL, (uint64_t)ids[i]);
    out_close(o, ']');
}

/* Prints the text as one line, and empties it. 0: memory ran out before. */
TOOLS_FN int out_line(json_out *o, FILE *file)
{
    const int whole = !o->failed;
    if (whole && o->size)
        fwrite(o->text, 1, o->size, file);
    if (whole)
        putc('\n', file);
    o->size = 0;
    o->follows = o->failed = 0;
    return whole;
}

TOOLS_FN void out_free(json_out *o)
{
    const json_out none = {NULL, 0, 0, 0, 0};
    free(o->text);
    *o = none;
}

#endif
