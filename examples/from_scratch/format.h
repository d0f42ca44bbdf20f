/* A tensor as text, as print(tensor) shows it in PyTorch. On attn.h's public API alone. */
#ifndef FORMAT_H
#define FORMAT_H

#include "attn.h"
#include <float.h>
#include <math.h>
#include <string.h>

static inline float format_number(const attn_tensor *x, ptrdiff_t at)
{
    return x->dtype == ATTN_F32   ? ((const float *)x->data)[at]
           : x->dtype == ATTN_F16 ? attn_f32_from_f16(((const uint16_t *)x->data)[at])
                                  : (float)((const int32_t *)x->data)[at];
}

/* Where the text goes: beyond `size` it is only counted. */
typedef struct format_writer {
    char *text;
    size_t size, length;
} format_writer;

static inline void format_write(format_writer *to, const char *text, size_t n)
{
    for (; n > 0; n--, text++, to->length++)
        if (to->length + 1 < to->size)
            to->text[to->length] = *text;
}
static inline void format_write_many(format_writer *to, char c, size_t n)
{
    for (; n > 0; n--)
        format_write(to, &c, 1);
}

/* The decimal digits of m * 2^e, e >= 0, with a point before the last `decimals` of them. A float
 * is m * 2^e, so the integer nearest to m * 2^e * 10^decimals has the digits that printf's %.*f
 * would print; it fits in 32 * 6 bits. */
static inline void format_write_digits(format_writer *to, uint64_t m, int e, int decimals)
{
    uint32_t word[6];
    char digits[64]; /* the last one first */
    int n = 0, i, more;
    for (i = 0; i < 6; i++) {
        const int at = 32 * i - e;
        word[i] = at >= 64 || at <= -32 ? 0 : (uint32_t)(at >= 0 ? m >> at : m << -at);
    }
    do { /* the next digit is what is left after a division by ten */
        uint64_t rest = 0;
        for (i = 5, more = 0; i >= 0; i--) {
            rest = rest << 32 | word[i];
            word[i] = (uint32_t)(rest / 10);
            rest %= 10;
            more |= word[i] != 0;
        }
        digits[n++] = (char)('0' + (int)rest);
        if (n == decimals)
            digits[n++] = '.';
    } while (more || n < (decimals ? decimals + 2 : 1));
    while (n > 0)
        format_write(to, &digits[--n], 1);
}

/* Rounded exactly, ties to even. */
static inline void format_write_float(format_writer *to, float value, int decimals)
{
    int e;
    if (!(fabsf(value) <= FLT_MAX)) {
        format_write(to, value > 0 ? "inf" : value < 0 ? "-inf" : "nan", value < 0 ? 4 : 3);
        return;
    }
    uint64_t m = (uint64_t)ldexpf(frexpf(fabsf(value), &e), 24);
    e -= 24;
    for (int i = 0; i < decimals; i++)
        m *= 10; /* stays below 2^54 */
    if (e < 0) {
        const int shift = e < -63 ? 63 : -e; /* m >> 63 is 0 already */
        const uint64_t half = (uint64_t)1 << (shift - 1), rest = m & (2 * half - 1);
        m = (m >> shift) + (rest > half || (rest == half && (m >> shift & 1)));
        e = 0;
    }
    format_write(to, "-", signbit(value) ? 1 : 0);
    format_write_digits(to, m, e, decimals);
}

/* A tensor is printed in three walks over the elements that will be seen: are they all whole
 * numbers (then "2." is enough); how wide is the widest; and then the text. */
enum { FORMAT_WALK_WHOLE, FORMAT_WALK_WIDTH, FORMAT_WALK_TEXT };
typedef struct format_printer {
    attn_tensor x;
    int decimals;
    int walk;
    int whole;
    int shorten; /* show the first and the last 3 of a longer dimension */
    size_t width;
    format_writer to;
} format_printer;

static inline void format_write_number(format_writer *to, const format_printer *p, ptrdiff_t at)
{
    if (p->x.dtype == ATTN_I32) {
        const int64_t value = ((const int32_t *)p->x.data)[at];
        format_write(to, "-", value < 0);
        format_write_digits(to, (uint64_t)(value < 0 ? -value : value), 0, 0);
    } else {
        const float value = format_number(&p->x, at);
        format_write_float(to, value, p->whole ? 0 : p->decimals);
        format_write(to, ".", p->whole && fabsf(value) <= FLT_MAX);
    }
}

static inline void format_print_element(format_printer *p, ptrdiff_t at)
{
    if (p->walk == FORMAT_WALK_WHOLE) {
        const float value = format_number(&p->x, at);
        if (fabsf(value) <= FLT_MAX && value != floorf(value))
            p->whole = 0;
    } else {
        char text[64];
        format_writer number = {text, sizeof text, 0};
        format_write_number(&number, p, at);
        if (p->walk == FORMAT_WALK_WIDTH) {
            p->width = number.length > p->width ? number.length : p->width;
        } else {
            format_write_many(&p->to, ' ', p->width - number.length);
            format_write(&p->to, text, number.length);
        }
    }
}

/* One dimension in brackets. The last one is filled into lines; the others begin a new line, or
 * leave some empty, for each of their parts. */
static inline void format_print_dim(format_printer *p, int dim, ptrdiff_t at)
{
    const size_t n = p->x.shape[dim], indent = sizeof "tensor(" + (size_t)dim;
    const size_t fit = (81 - indent) / (p->width + 2); /* no number is wider than 50 */
    /* A tensor has 4 dimensions at most: gcc -O3 unrolls the recursion, and would warn of a fifth. */
    const int last = dim == 3 || dim == p->x.ndim - 1;
    const int shorten = p->shorten && n > 6;
    size_t n_shown = 0;
    format_write(&p->to, "[", 1);
    for (size_t i = 0; i < n; i++, n_shown++) {
        const int new_line = n_shown > 0 && (!last || n_shown % fit == 0);
        format_write(&p->to, new_line ? "," : ", ", n_shown == 0 ? 0 : new_line ? 1 : 2);
        if (new_line) {
            format_write_many(&p->to, '\n', last ? 1 : (size_t)(p->x.ndim - 1 - dim));
            format_write_many(&p->to, ' ', indent);
        }
        if (shorten && i == 3) {
            format_write(&p->to, last ? " ..." : "...", last ? 4 : 3);
            i = n - 4;
        } else if (last) {
            format_print_element(p, at + (ptrdiff_t)i * p->x.stride[dim]);
        } else {
            format_print_dim(p, dim + 1, at + (ptrdiff_t)i * p->x.stride[dim]);
        }
    }
    format_write(&p->to, "]", 1);
}

/* The text of print(tensor) in PyTorch: "tensor([[1.0000, 0.5000], ...", rounded to `decimals`
 * places (0 to 9; PyTorch's default is 4), a long dimension as "..." once there are more than 1000
 * elements, lines of at most 80 characters. Never in scientific notation, and with a point in every
 * locale. Works like snprintf: writes at most `size` bytes with the zero that ends them, and
 * returns the length of the whole text. */
static inline size_t format_tensor(char *text, size_t size, attn_tensor x, int decimals)
{
    format_printer p = ATTN_ZERO;
    p.x = x;
    p.decimals = decimals < 0 ? 0 : decimals > 9 ? 9 : decimals;
    p.whole = 1;
    p.shorten = attn_count(x) > 1000;
    for (p.walk = FORMAT_WALK_WHOLE; p.walk <= FORMAT_WALK_TEXT; p.walk++) {
        p.to.text = text;
        p.to.size = p.walk == FORMAT_WALK_TEXT ? size : 0;
        p.to.length = 0;
        format_write(&p.to, "tensor(", 7);
        if (x.ndim < 1 || x.ndim > 4)
            format_write(&p.to, "none", 4);
        else if (attn_count(x) == 0)
            format_write(&p.to, "[]", 2);
        else
            format_print_dim(&p, 0, 0);
        format_write(&p.to, ")", 1);
    }
    if (size > 0)
        text[p.to.length < size ? p.to.length : size - 1] = 0;
    return p.to.length;
}

#endif
