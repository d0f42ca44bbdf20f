/* How the functions of this folder and of tools/lens are declared, and how their messages show numbers and shapes. Uses
 * attn.h's public API only. */
#ifndef LENS_BASE_H
#define LENS_BASE_H

#include "attn.h"
#include <stdio.h>
#include <string.h>

/* No warning for functions that a program does not use. */
#if !defined(LENS_FN) && defined(__GNUC__)
#define LENS_FN static __attribute__((unused))
#elif !defined(LENS_FN)
#define LENS_FN static
#endif
#if defined(__MINGW_PRINTF_FORMAT)
#define LENS_PRINTF(a, b) __attribute__((format(__MINGW_PRINTF_FORMAT, a, b)))
#elif defined(__GNUC__)
#define LENS_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define LENS_PRINTF(a, b)
#endif

#define LENS_LLU(x) ((unsigned long long)(x))

typedef struct lens_shape_text {
    char text[100];
} lens_shape_text;

/* "[2, 3]" */
LENS_FN lens_shape_text lens_show(attn_tensor x)
{
    lens_shape_text out;
    size_t at = 0;
    for (int i = 0; i < x.ndim && i < 4; i++)
        at += (size_t)snprintf(out.text + at, sizeof out.text - at, "%s%llu", i ? ", " : "[",
                               LENS_LLU(x.shape[i]));
    snprintf(out.text + at, sizeof out.text - at, "%s", at ? "]" : "[]");
    return out;
}

/* Does a name end so? */
LENS_FN int lens_ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* Did the caller ask to stop? Feeds look by themselves; so does what takes long beside them. */
LENS_FN int lens_is_stopped(const attn_ctx *ctx)
{
    return ctx->stop_flag && *ctx->stop_flag;
}

#endif
