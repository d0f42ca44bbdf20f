/* What the notebooks share: showing a tensor, comparing two, and saying what went wrong.
 *
 * attn.h remembers the first failure in its context, and every call that depends on it fails too.
 * So the programs do not look at each call's status, they ask once, in finish(). */
#ifndef NOTEBOOK_H
#define NOTEBOOK_H

#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "format.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef BUILD
#define BUILD "build" /* where `make` puts the models */
#endif

static const attn_tensor none; /* no tensor: "no bias", or one that the next call shall make */

/* A sentence, then the numbers as Python would print them: show("Scores", x) is print(x). */
static inline void show(const char *sentence, attn_tensor x)
{
    const size_t size = format_tensor(NULL, 0, x, 4) + 1;
    char *text = (char *)malloc(size);
    if (text) {
        format_tensor(text, size, x, 4);
        printf("\n%s\n%s\n", sentence, text);
    }
    free(text);
}

/* Weights as a picture, a matrix of numbers from 0 to 1. All pictures have one scale, which a line below
 * them explains: the darker the sign, the larger the weight. Eight columns have room for the weight
 * in percent, too. Rows and columns have the same names, or none (NULL). */
static inline void show_picture(const char *sentence, attn_tensor x, const char *const *names)
{
    static const char shades[] = " .:-=+*%#@";
    const int wide = x.ndim == 2 && x.shape[1] <= 8;
    size_t j;
    printf("\n%s\n", sentence);
    for (j = 0; names && j < x.shape[1]; j++)
        printf("%s%-8s", j ? "" : "          ", names[j]);
    printf(names ? "\n" : "");
    for (size_t i = 0; x.ndim == 2 && i < x.shape[0]; i++, printf("\n"))
        for (j = 0, printf(names ? "  %-8s" : "  %s", names ? names[i] : ""); j < x.shape[1]; j++) {
            const float weight = fminf(fmaxf(attn_get2(x, i, j), 0), 1);
            const char shade = shades[(int)(weight * 9 + 0.5f)];
            if (wide)
                printf("%3d%% %c%c%c", (int)(weight * 100 + 0.5f), shade, shade, shade);
            else
                printf("%c%c", shade, shade);
        }
    printf("  scale:");
    for (size_t i = 0; i < 10; i++)
        printf("%s '%c' %d%%", i ? " " : "", shades[i], (int)((double)i * 100 / 9 + 0.5));
    printf("\n");
}

/* A number as Python prints it: the fewest digits from which it can be read back. */
static inline void show_number(const char *sentence, double x)
{
    char text[32];
    int digits = 0;
    do
        snprintf(text, sizeof text, "%.*g", ++digits, x);
    while (digits < 17 && strtod(text, NULL) != x);
    printf("%s %s%s\n", sentence, text, strpbrk(text, ".en") ? "" : ".0");
}

/* print(x.shape) */
static inline void show_shape(const char *sentence, attn_tensor x)
{
    printf("%s: [", sentence);
    for (int i = 0; i < x.ndim; i++)
        printf(i ? ", %d" : "%d", (int)x.shape[i]);
    printf("]\n");
}

/* The largest |a - b|; infinite if the shapes differ. */
static inline double difference(attn_tensor a, attn_tensor b)
{
    double largest = 0;
    if (a.ndim != b.ndim || a.ndim == 0 || a.shape[0] != b.shape[0])
        return HUGE_VAL;
    for (size_t i = 0; i < a.shape[0] && largest < HUGE_VAL; i++) {
        const double d = a.ndim == 1 ? fabs(attn_get1(a, i) - attn_get1(b, i))
                                     : difference(attn_select(a, 0, i), attn_select(b, 0, i));
        if (!(d <= largest)) /* NaN too */
            largest = d == d ? d : HUGE_VAL;
    }
    return largest;
}

/* Checks of a notebook that failed, which finish tells. */
static int n_wrong;

static inline int check(int holds)
{
    n_wrong += !holds;
    return holds;
}

/* The largest difference between two results of the same computation. Checks that rounding explains it. */
static inline double checked_difference(attn_tensor a, attn_tensor b)
{
    const double d = difference(a, b);
    check(d < 1e-5);
    return d;
}

/* The last line of main: frees the tensors. The exit code is 0 if nothing failed, no check either. */
static inline int finish(attn_ctx *ctx)
{
    const int wrong = n_wrong, unwritten = fflush(stdout) || ferror(stdout);
    if (unwritten)
        perror("cannot write the output");
    if (ctx->status != ATTN_OK)
        fprintf(stderr, "%s\n", ctx->message);
    if (wrong)
        fprintf(stderr, "%d of the checks above failed\n", wrong);
    n_wrong = 0;
    attn_ctx_free(ctx);
    return ctx->status != ATTN_OK || wrong || unwritten;
}

#ifdef NOTEBOOK_PAGE /* for a page of `make docs` */
#include "page/marks.h"
#endif

#endif
