/* Numbers as text, the same in every locale. strtod and printf follow the decimal point of setlocale, which programs
 * with a graphical interface call; files and answers have a point everywhere. */
#ifndef TOOLS_NUMBERS_H
#define TOOLS_NUMBERS_H

#include "files.h"
#include <locale.h>
#include <math.h>

/* As strtod in the locale "C"; end may be NULL. A spelling of more than 1,000 bytes is no number. */
TOOLS_FN double number_at(const char *text, char **end)
{
    const char *const point = localeconv()->decimal_point;
    const size_t size = strspn(text, " +-.0123456789abcdefinptxyABCDEFINPTXY"),
                 whole = strcspn(text, ".");
    char local[1040], *stop;
    if (strcmp(point, ".") == 0)
        return strtod(text, end);
    if (size > 1000 || strlen(point) > 16) {
        if (end)
            *end = (char *)(uintptr_t)text;
        return 0;
    }
    if (whole < size)
        snprintf(local, sizeof local, "%.*s%s%.*s", (int)whole, text, point,
                 (int)(size - whole - 1), text + whole + 1);
    else
        snprintf(local, sizeof local, "%.*s", (int)size, text);
    const double number = strtod(local, &stop);
    const size_t read = (size_t)(stop - local);
    if (end)
        *end = (char *)(uintptr_t)text +
               (whole < size && read > whole ? read - (strlen(point) - 1) : read);
    return number;
}

typedef char number_text[40];

/* As "%.*g" in the locale "C"; "nan" for any NaN. */
TOOLS_FN const char *spell_number(number_text out, double value, int digits)
{
    const char *const point = localeconv()->decimal_point;
    char *at;
    snprintf(out, sizeof(number_text), value != value ? "nan" : "%.*g", digits, value);
    if (strcmp(point, ".") != 0 && (at = strstr(out, point)) != NULL) {
        *at = '.';
        memmove(at + 1, at + strlen(point), strlen(at + strlen(point)) + 1);
    }
    return out;
}

#endif
