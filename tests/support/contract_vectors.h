/* Reads tests/contract/vectors.json. The last section of contract.md describes its entries. */
#ifndef CONTRACT_VECTORS_H
#define CONTRACT_VECTORS_H

#include "tools/common/json.h"
#include "test.h"

#define VECTORS "tests/contract/vectors.json"

typedef struct vector_file {
    arena memory;
    json_value *root;
    const json_value *entry; /* the present one */
    size_t index, n;         /* its number, from 0 on; of so many */
} vector_file;

static inline int vectors_open(vector_file *v)
{
    attn_ctx ctx = {0};
    char *text = NULL;
    size_t size = 0;
    memset(v, 0, sizeof *v);
    if (!OK(&ctx, read_file(&ctx, &v->memory, VECTORS, 1 << 20, &text, &size)) ||
        !OK(&ctx, json_parse(&ctx, VECTORS, text, size, &v->root)))
        return 0;
    const json_value *list = json_get(v->root, "vectors");
    if (!CHECK(list && list->kind == JSON_ARRAY))
        return 0;
    v->entry = list + 1;
    v->n = list->size;
    return 1;
}

static inline void vectors_next(vector_file *v)
{
    v->entry += v->entry->span;
    v->index++;
}

static inline void vectors_close(vector_file *v)
{
    free(v->root);
    arena_free(&v->memory);
}

static inline double vectors_number(const json_value *object, const char *name)
{
    const json_value *value = json_get(object, name);
    double number = 0;
    CHECKF(value && json_double(value, &number), "no number %s", name);
    return number;
}

static inline int vectors_is(const json_value *object, const char *name, const char *word)
{
    return json_is(json_get(object, name), word);
}

/* Numbers that a seed makes, or a list of their bits; *n of them. */
static inline float *vectors_floats(vector_file *v, const json_value *array, size_t *n)
{
    attn_ctx ctx = {0};
    const int made = CHECK(array != NULL) && array->kind == JSON_OBJECT;
    float scale = 0, *x;
    uint32_t bits = 0;
    *n = made ? (size_t)vectors_number(array, "count") : array ? array->size : 0;
    x = (float *)arena_alloc(&ctx, &v->memory, *n + 1, sizeof *x);
    if (made) {
        bits = (uint32_t)vectors_number(array, "seed");
        scale = (float)vectors_number(array, "scale");
    } else if (array)
        array++;
    for (size_t i = 0; i < *n; i++)
        if (made) {
            bits = bits * 1664525u + 1013904223u;
            x[i] = (float)((int32_t)(bits >> 8) - (1 << 23)) / 16777216.0f * scale;
        } else {
            bits = (uint32_t)strtoul(array->text, NULL, 16);
            memcpy(&x[i], &bits, 4);
            array += array->span;
        }
    return x;
}

static inline int32_t *vectors_ids(vector_file *v, const json_value *list, size_t *n)
{
    attn_ctx ctx = {0};
    attn_token *ids;
    size_t i;
    *n = CHECK(list && list->kind == JSON_ARRAY) ? list->size : 0;
    ids = (int32_t *)arena_alloc(&ctx, &v->memory, *n + 1, sizeof *ids);
    for (i = 0, list++; i < *n; i++, list += list->span) {
        double id = -1;
        CHECK(json_double(list, &id));
        ids[i] = (int32_t)id;
    }
    return ids;
}

/* The results have the bits of `out`. */
static inline void vectors_compare(vector_file *v, const float *got, size_t n, const char *isa)
{
    const json_value *what = json_get(v->entry, "function");
    size_t n_expected = 0;
    const float *expected = vectors_floats(v, json_get(v->entry, "out"), &n_expected);
    if (CHECKF(got && n == n_expected, "%s, entry %d: %d numbers, expected %d", isa, (int)v->index,
               (int)n, (int)n_expected))
        for (size_t i = 0; i < n; i++)
            CHECKF(memcmp(got + i, expected + i, 4) == 0,
                   "%s, entry %d, %.*s, result %d: %.9g, expected %.9g", isa, (int)v->index,
                   (int)what->size, what->text, (int)i, (double)got[i], (double)expected[i]);
}

#endif
