/* JSON, strictly by RFC 8259, into one array of values.
 *
 * A value can take fifty times the memory of its text, so there are at most JSON_MAX_VALUES values, 48 MB,
 * unless the caller knows that there may be more; GPT-2's tokenizer.json has a tenth of them. With the limits of files and of vocabularies, the memory of
 * the readers of headers, configurations and vocabularies stays below half a gigabyte for any file.
 *
 * A value is followed in the array by what it contains, so a tree needs no pointers: the first child of v is
 * v + 1, and v + v->span is the value after v and all of its children. Strings are decoded in place (they
 * only become shorter), so the text must not be freed. A key that appears twice in an object is an error. */
#ifndef TOOLS_JSON_H
#define TOOLS_JSON_H

#include "numbers.h"

typedef enum json_kind {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER, /* text: its spelling */
    JSON_STRING, /* text: its contents in UTF-8 */
    JSON_ARRAY,
    JSON_OBJECT
} json_kind;

typedef struct json_value {
    json_kind kind;
    const char *key; /* for a member of an object */
    size_t key_size;
    const char *text;
    size_t size; /* bytes of text; elements of an array; members of an object */
    size_t span; /* number of values in its tree, with itself */
} json_value;

enum { JSON_MAX_DEPTH = 64, JSON_MAX_VALUES = 1 << 20 };

typedef struct json_parser {
    attn_ctx *ctx;
    const char *name; /* of the file, for messages */
    char *p, *end;
    const char *line_start;
    size_t line;
    json_value *values;
    size_t n, most, capacity;
} json_parser;

TOOLS_FN int json_error(json_parser *j, const char *where, const char *what)
{
    tool_fail(j->ctx, ATTN_E_FORMAT, "%s: malformed JSON at line %llu, column %llu: %s",
              base_name(j->name), TOOLS_LLU(j->line), TOOLS_LLU(where - j->line_start + 1), what);
    return 0;
}

/* Skips blanks, and counts lines, which end only there. */
TOOLS_FN void json_blank(json_parser *j)
{
    for (; j->p < j->end && (*j->p == ' ' || *j->p == '\n' || *j->p == '\r' || *j->p == '\t');
         j->p++)
        if (*j->p == '\n') {
            j->line++;
            j->line_start = j->p + 1;
        }
}

/* The index of a new value; SIZE_MAX after a message. */
TOOLS_FN size_t json_add(json_parser *j, json_kind kind)
{
    if (j->n == j->most) {
        tool_fail(j->ctx, ATTN_E_FORMAT,
                  "%s holds more than %llu values, the most that such a file can hold here",
                  base_name(j->name), TOOLS_LLU(j->most));
        return SIZE_MAX;
    }
    if (j->n == j->capacity) {
        size_t larger = j->capacity ? j->capacity * 2 : 256;
        json_value *values = NULL;
        values = (json_value *)realloc(j->values, larger * sizeof(json_value));
        if (!values) {
            tool_fail(j->ctx, ATTN_E_MEMORY, "no memory to read %s", base_name(j->name));
            return SIZE_MAX;
        }
        j->values = values;
        j->capacity = larger;
    }
    memset(&j->values[j->n], 0, sizeof(json_value));
    j->values[j->n].kind = kind;
    j->values[j->n].span = 1;
    return j->n++;
}

/* The four hexadecimal digits of \uXXXX at p; -1 if they are none. */
TOOLS_FN long json_hex4(const json_parser *j, const char *p)
{
    long value = 0;
    if (j->end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        long digit = c >= '0' && c <= '9'   ? c - '0'
                     : c >= 'a' && c <= 'f' ? c - 'a' + 10
                     : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                            : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

TOOLS_FN char *json_put_utf8(char *out, long c)
{
    if (c < 0x80) {
        *out++ = (char)c;
    } else if (c < 0x800) {
        *out++ = (char)(0xc0 | c >> 6);
        *out++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *out++ = (char)(0xe0 | c >> 12);
        *out++ = (char)(0x80 | (c >> 6 & 63));
        *out++ = (char)(0x80 | (c & 63));
    } else {
        *out++ = (char)(0xf0 | c >> 18);
        *out++ = (char)(0x80 | (c >> 12 & 63));
        *out++ = (char)(0x80 | (c >> 6 & 63));
        *out++ = (char)(0x80 | (c & 63));
    }
    return out;
}

/* Number of bytes of the well-formed UTF-8 character at p; 0 if it is not one. */
TOOLS_FN size_t json_utf8_length(const json_parser *j, const char *p)
{
    const unsigned char *s = (const unsigned char *)p;
    size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n == 0 || s[0] > 0xf4 || (size_t)(j->end - p) < n)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

/* An escape; p is behind the backslash. Returns the character and moves p behind it; -1 after a message. */
TOOLS_FN long json_escape(json_parser *j)
{
    static const char names_of[] = "\"\\/bfnrt", values_of[] = "\"\\/\b\f\n\r\t";
    const char *start = j->p - 1, *found;
    long high, low;
    if (j->p < j->end && *j->p && (found = strchr(names_of, *j->p)) != NULL) {
        j->p++;
        return values_of[found - names_of];
    }
    if (j->p >= j->end || *j->p != 'u' || (high = json_hex4(j, j->p + 1)) < 0) {
        json_error(j, start, "an escape that JSON does not have");
        return -1;
    }
    j->p += 5;
    if (high < 0xd800 || high > 0xdfff)
        return high;
    if (high < 0xdc00 && j->end - j->p >= 6 && j->p[0] == '\\' && j->p[1] == 'u') {
        low = json_hex4(j, j->p + 2);
        if (low >= 0xdc00 && low <= 0xdfff) {
            j->p += 6;
            return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    json_error(j, start, "half of a surrogate pair");
    return -1;
}

/* A string, p at its opening quote. */
TOOLS_FN int json_string(json_parser *j, const char **text, size_t *size)
{
    char *start = j->p, *out = ++j->p;
    *text = out;
    while (j->p < j->end && *j->p != '"') {
        if (*j->p == '\\') {
            long c;
            j->p++;
            if ((c = json_escape(j)) < 0)
                return 0;
            out = json_put_utf8(out, c);
        } else {
            size_t n = json_utf8_length(j, j->p);
            if (n == 0)
                return json_error(j, j->p, "bytes that are not UTF-8");
            if ((unsigned char)*j->p < 0x20)
                return json_error(j, j->p, "a control character inside a string");
            memmove(out, j->p, n);
            out += n;
            j->p += n;
        }
    }
    if (j->p >= j->end)
        return json_error(j, start, "a string that does not end");
    j->p++;
    *size = (size_t)(out - *text);
    return 1;
}

/* Skips digits, and returns their number. */
TOOLS_FN size_t json_digits(json_parser *j)
{
    const char *start = j->p;
    while (j->p < j->end && *j->p >= '0' && *j->p <= '9')
        j->p++;
    return (size_t)(j->p - start);
}

/* -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)? */
TOOLS_FN int json_number(json_parser *j)
{
    const char *start = j->p;
    size_t v;
    if (*j->p == '-')
        j->p++;
    const char *first = j->p;
    size_t n = json_digits(j);
    if (n == 0 || (*first == '0' && n > 1))
        return json_error(j, start, "a value was expected here");
    if (j->p < j->end && *j->p == '.') {
        j->p++;
        if (json_digits(j) == 0)
            return json_error(j, start, "a number without digits behind its point");
    }
    if (j->p < j->end && (*j->p == 'e' || *j->p == 'E')) {
        j->p++;
        if (j->p < j->end && (*j->p == '+' || *j->p == '-'))
            j->p++;
        if (json_digits(j) == 0)
            return json_error(j, start, "a number without digits in its exponent");
    }
    if ((v = json_add(j, JSON_NUMBER)) == SIZE_MAX)
        return 0;
    j->values[v].text = start;
    j->values[v].size = (size_t)(j->p - start);
    return 1;
}

TOOLS_FN int json_word(json_parser *j, const char *word, json_kind kind)
{
    size_t n = strlen(word);
    if ((size_t)(j->end - j->p) < n || memcmp(j->p, word, n) != 0)
        return json_error(j, j->p, "a value was expected here");
    j->p += n;
    return json_add(j, kind) != SIZE_MAX;
}

TOOLS_FN int json_compare_keys(const void *a, const void *b)
{
    const json_value *x = *(const json_value *const *)a, *y = *(const json_value *const *)b;
    size_t n = x->key_size < y->key_size ? x->key_size : y->key_size;
    int order = n ? memcmp(x->key, y->key, n) : 0;
    return order ? order : (x->key_size > y->key_size) - (x->key_size < y->key_size);
}

TOOLS_FN int json_check_keys(json_parser *j, const json_value *object)
{
    const json_value *v = object + 1, **sorted;
    size_t n = object->size;
    shown name;
    int good = 1;
    if (n < 2)
        return 1;
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
    sorted = (const json_value **)malloc(n * sizeof *sorted);
    if (!sorted) {
        tool_fail(j->ctx, ATTN_E_MEMORY, "no memory to read %s", base_name(j->name));
        return 0;
    }
    for (size_t i = 0; i < n; i++, v += v->span)
        sorted[i] = v;
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
    qsort(sorted, n, sizeof *sorted, json_compare_keys);
    for (size_t i = 1; i < n && good; i++)
        if (json_compare_keys(&sorted[i - 1], &sorted[i]) == 0) {
            tool_fail(j->ctx, ATTN_E_FORMAT, "%s: the key \"%s\" appears twice", base_name(j->name),
                      show(name, sorted[i]->key, sorted[i]->key_size));
            good = 0;
        }
    free((void *)sorted);
    return good;
}

TOOLS_FN int json_any(json_parser *j, int depth);

/* Parses the elements between brackets or braces. */
TOOLS_FN int json_container(json_parser *j, json_kind kind, int depth)
{
    const char close = kind == JSON_OBJECT ? '}' : ']';
    const char *start = j->p++, *key = NULL, *const line_start = j->line_start;
    size_t count = 0, key_size = 0, child, v = json_add(j, kind);
    const size_t line = j->line;
    if (v == SIZE_MAX)
        return 0;
    if (depth >= JSON_MAX_DEPTH)
        return json_error(j, start, "more than 64 values inside each other");
    for (json_blank(j); j->p < j->end && *j->p != close; json_blank(j)) {
        if (count > 0) {
            if (*j->p != ',')
                return json_error(j, j->p, "a comma or the closing bracket was expected here");
            j->p++;
            json_blank(j);
        }
        if (kind == JSON_OBJECT) {
            if (j->p >= j->end || *j->p != '"')
                return json_error(j, j->p, "a key in quotes was expected here");
            if (!json_string(j, &key, &key_size))
                return 0;
            json_blank(j);
            if (j->p >= j->end || *j->p != ':')
                return json_error(j, j->p, "a colon was expected here");
            j->p++;
        }
        child = j->n;
        if (!json_any(j, depth + 1))
            return 0;
        j->values[child].key = key;
        j->values[child].key_size = key_size;
        count++;
    }
    if (j->p >= j->end) {
        j->line = line;
        j->line_start = line_start;
        return json_error(j, start, "what opens here is never closed");
    }
    j->p++;
    j->values[v].size = count;
    j->values[v].span = j->n - v;
    return kind != JSON_OBJECT || json_check_keys(j, &j->values[v]);
}

TOOLS_FN int json_any(json_parser *j, int depth)
{
    size_t v;
    json_blank(j);
    if (j->p >= j->end)
        return json_error(j, j->p, "the text ends where a value was expected");
    switch (*j->p) {
    case '{':
        return json_container(j, JSON_OBJECT, depth);
    case '[':
        return json_container(j, JSON_ARRAY, depth);
    case '"':
        if ((v = json_add(j, JSON_STRING)) == SIZE_MAX)
            return 0;
        return json_string(j, &j->values[v].text, &j->values[v].size);
    case 't':
        return json_word(j, "true", JSON_TRUE);
    case 'f':
        return json_word(j, "false", JSON_FALSE);
    case 'n':
        return json_word(j, "null", JSON_NULL);
    default:
        return json_number(j);
    }
}

/* Parses a text by a parser that has all but its place in it. */
TOOLS_FN attn_status json_run(json_parser *j, char *text, size_t size, json_value **root)
{
    j->p = text;
    j->line_start = text;
    j->end = text + size;
    *root = NULL;
    int good = json_any(j, 0);
    if (good) {
        json_blank(j);
        if (j->p < j->end)
            good = json_error(j, j->p, "something follows where the text should end");
    }
    if (!good) {
        free(j->values);
        return j->ctx->status;
    }
    *root = j->values;
    return ATTN_OK;
}

/* Parses a text that must be followed by a zero byte. *root is from malloc; give it to free().
 * `line` is the number of its first line in the file, for messages. */
TOOLS_FN attn_status json_parse_at(attn_ctx *ctx, const char *name, size_t line, char *text,
                                   size_t size, json_value **root)
{
    json_parser j = {ctx, name, NULL, NULL, NULL, line, NULL, 0, JSON_MAX_VALUES, 0};
    return json_run(&j, text, size, root);
}

TOOLS_FN attn_status json_parse(attn_ctx *ctx, const char *name, char *text, size_t size,
                                json_value **root)
{
    return json_parse_at(ctx, name, 1, text, size, root);
}

/* The member of that name; NULL if there is none, or if `object` is not an object. */
TOOLS_FN const json_value *json_find(const json_value *object, const char *key, size_t size)
{
    const json_value *v;
    size_t i;
    if (!object || object->kind != JSON_OBJECT)
        return NULL;
    for (i = 0, v = object + 1; i < object->size; i++, v += v->span)
        if (v->key_size == size && memcmp(v->key, key, size) == 0)
            return v;
    return NULL;
}

TOOLS_FN const json_value *json_get(const json_value *object, const char *key)
{
    return json_find(object, key, strlen(key));
}

TOOLS_FN int json_is(const json_value *v, const char *text)
{
    return v && v->kind == JSON_STRING && v->size == strlen(text) &&
           memcmp(v->text, text, v->size) == 0;
}

/* Has a string a zero byte (\u0000), at which C would end it? */
TOOLS_FN int json_has_zero(const json_value *v)
{
    return v && v->kind == JSON_STRING && memchr(v->text, 0, v->size) != NULL;
}

/* A whole number of at most 19 digits; 0 if the value is not one. */
TOOLS_FN int json_u64(const json_value *v, uint64_t *number)
{
    uint64_t n = 0;
    if (!v || v->kind != JSON_NUMBER || v->size > 19)
        return 0;
    for (size_t i = 0; i < v->size; i++) {
        if (v->text[i] < '0' || v->text[i] > '9')
            return 0;
        n = n * 10 + (uint64_t)(v->text[i] - '0');
    }
    *number = n;
    return 1;
}

TOOLS_FN int json_double(const json_value *v, double *number)
{
    if (v->kind != JSON_NUMBER)
        return 0;
    *number = number_at(v->text, NULL); /* ends where the number does: its spelling was checked */
    return 1;
}

#endif
