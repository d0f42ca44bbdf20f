/* JSON that a program printed, piece by piece: a test fails where a piece is missing. */
#ifndef PRINTED_JSON_H
#define PRINTED_JSON_H

#include "tools/common/json.h"
#include "test.h"
#include <math.h>

static inline const json_value *member(const json_value *object, const char *key)
{
    const json_value *v = object ? json_get(object, key) : NULL;
    CHECKF(v != NULL, "there is no \"%s\"", key);
    return v;
}

static inline const json_value *item(const json_value *array, size_t index)
{
    const json_value *v;
    if (!array ||
        !CHECKF(array->kind == JSON_ARRAY && index < array->size, "no item %d", (int)index))
        return NULL;
    for (v = array + 1; index > 0; index--)
        v += v->span;
    return v;
}

static inline double number(const json_value *v)
{
    double value = (double)NAN;
    CHECK(v && json_double(v, &value));
    return value;
}

#endif
