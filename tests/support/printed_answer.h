/* The tables of an answer that a program printed as JSON. */
#ifndef PRINTED_ANSWER_H
#define PRINTED_ANSWER_H

#include "printed_json.h"

/* Row `row` of a table of the answer. */
static inline const json_value *table_row(const json_value *all, const char *table, size_t row)
{
    return item(member(all, table), row);
}

/* A value of it; and one of the facts. */
static inline const json_value *cell(const json_value *all, const char *table, size_t row,
                                     const char *column)
{
    return member(table_row(all, table, row), column);
}

static inline const json_value *fact(const json_value *all, const char *column)
{
    return cell(all, "facts", 0, column);
}

#endif
