/* Reads the members of a JSON object by a table of options: the rules of the command line, for lines of a
 * stream. */
#ifndef TOOLS_JSON_KEYS_H
#define TOOLS_JSON_KEYS_H

#include "json.h"
#include "json_out.h"
#include "program.h"

TOOLS_FN const char *kind_name(const json_value *v)
{
    static const char *const names[] = {"null", "false", "true", NULL, NULL, "a list", "an object"};
    return names[v->kind];
}

TOOLS_FN attn_status refuse_key(attn_ctx *ctx, const struct option *key, const json_value *v)
{
    char expected[160];
    shown value;
    const char *kind = kind_name(v);
    const int least = key->takes ? (int)strcspn(key->takes, " ") : 0;
    if (key->kind == COUNT || key->kind == NUMBER)
        snprintf(expected, sizeof expected, "a %s from %.*s to %s",
                 key->kind == COUNT ? "whole number" : "number", least, key->takes,
                 key->takes + least + 1);
    else if (key->kind == CHOICE && key->takes)
        list_names(key->takes, expected, sizeof expected);
    else
        snprintf(expected, sizeof expected, "%s",
                 key->kind == FLAG   ? "true or false"
                 : key->kind == SEED ? "a whole number of 64 bits"
                                     : key->takes);
    return tool_fail(ctx, ATTN_E_ARGUMENT, "%s: expected %s, not %s%s%s", key->name, expected,
                     v->kind == JSON_STRING ? "\"" : "",
                     kind ? kind : show(value, v->text, v->size),
                     v->kind == JSON_STRING ? "\"" : "");
}

/* Has a value the type that a key of kind TEXT takes? The elements of lists are checked later. */
TOOLS_FN int is_taken(const struct option *key, const json_value *v)
{
    const char *takes = key->takes;
    return v->kind == JSON_STRING   ? strstr(takes, "a string") != NULL
           : v->kind == JSON_NUMBER ? strstr(takes, "a number") != NULL
           : v->kind == JSON_ARRAY  ? strstr(takes, "a list") != NULL
                                    : 0;
}

/* The size of a number without a fraction of zeros: pandas writes 5.0 for a 5 in a column that has
 * missing numbers. */
TOOLS_FN size_t whole_size(const json_value *v)
{
    size_t n = v->size;
    if (!memchr(v->text, '.', n))
        return n;
    while (v->text[n - 1] == '0')
        n--;
    return v->text[n - 1] == '.' ? n - 1 : v->size;
}

/* Reads a value into options, as set_option reads one of the command line. A TEXT is the value. */
TOOLS_FN attn_status read_value(attn_ctx *ctx, void *into, const struct option *key,
                                const json_value *v)
{
    void *at = (char *)into + key->at;
    char number[64] = "";
    int good = 0;
    if (v->kind == JSON_NULL)
        return ATTN_OK;
    if (v->kind == JSON_NUMBER && v->size < sizeof number) {
        memcpy(number, v->text, v->size);
        if (key->kind == COUNT || key->kind == SEED)
            number[whole_size(v)] = 0;
    }
    if (key->kind == TEXT && (good = is_taken(key, v)) != 0)
        *(const json_value **)at = v;
    else if (key->kind == FLAG && (good = v->kind == JSON_TRUE || v->kind == JSON_FALSE) != 0)
        *(int *)at = v->kind == JSON_TRUE;
    else if (key->kind == CHOICE && v->kind == JSON_STRING)
        good = (*(int *)at = find_name(key->takes, v->text, v->size)) >= 0;
    else if (key->kind == COUNT && number[0])
        good = parse_count(number, key->takes, (size_t *)at);
    else if (key->kind == NUMBER && number[0])
        good = parse_number(number, key->takes, (float *)at);
    else if (key->kind == SEED && number[0])
        good = parse_seed(number, (uint64_t *)at);
    return good ? ATTN_OK : refuse_key(ctx, key, v);
}

/* The row of the table that a member names: top_k is top-k. NULL: none. */
TOOLS_FN const struct option *find_key(const struct option *table, int n, const json_value *v)
{
    size_t k;
    for (int i = 0; i < n; i++) {
        const char *const name = table[i].name;
        for (k = 0; k < v->key_size && name[k] &&
                    (name[k] == v->key[k] || (name[k] == '-' && v->key[k] == '_'));
             k++)
            continue;
        if (k == v->key_size && !name[k])
            return &table[i];
    }
    return NULL;
}

TOOLS_FN attn_status refuse_name(attn_ctx *ctx, const struct option *table, int n,
                                 const json_value *v, const char *hint)
{
    shown name;
    const struct option *meant = nearest_option(table, n, show(name, v->key, v->key_size));
    return tool_fail(ctx, ATTN_E_ARGUMENT, "there is no key \"%s\"%s%s%s", name,
                     meant ? "; do you mean \"" : "", meant ? meant->name : "",
                     meant ? "\"?" : hint);
}

/* Writes the id of a line as it was given, if it has one. */
TOOLS_FN void out_id(json_out *o, const json_value *id)
{
    if (id && id->kind == JSON_STRING)
        out_text(o, "id", id->text, id->size);
    else if (id && id->kind == JSON_NUMBER)
        out_spelled(o, "id", id->text, id->size);
}

/* Writes a value of a line as it was given. */
TOOLS_FN void out_value(json_out *o, arena *memory, const char *key, const json_value *v)
{
    const int is_object = v->kind == JSON_OBJECT;
    const json_value *part = v + 1;
    attn_ctx ctx = {0};
    if (v->kind == JSON_NULL) {
        out_null(o, key);
    } else if (v->kind == JSON_STRING) {
        out_text(o, key, v->text, v->size);
    } else if (v->kind == JSON_NUMBER) {
        out_spelled(o, key, v->text, v->size);
    } else if (v->kind == JSON_TRUE || v->kind == JSON_FALSE) {
        out_flag(o, key, v->kind == JSON_TRUE);
    } else {
        out_open(o, key, is_object ? '{' : '[');
        for (size_t i = 0; i < v->size; i++, part += part->span)
            out_value(o, memory,
                      is_object ? arena_text(&ctx, memory, part->key, part->key_size) : NULL, part);
        out_close(o, is_object ? '}' : ']');
    }
}

#endif
