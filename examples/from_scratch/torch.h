/* What a notebook needs of PyTorch besides attn.h's operations: random numbers after manual_seed,
 * the weights that nn.Linear starts with, dropout, tril, masks, cat. It stands on attn.h's public
 * functions alone, and follows their rules: the context comes first and the outputs right after it;
 * a zeroed *out becomes a new tensor of the context, any other *out must have the result's shape and
 * is written in place; a failure returns a status and leaves a sentence in ctx->message.
 *
 *     attn_ctx ctx = ATTN_ZERO;
 *     attn_tensor x = ATTN_ZERO, w = ATTN_ZERO, bias = ATTN_ZERO, y = ATTN_ZERO;
 *     torch_rng rng;
 *     torch_manual_seed(&rng, 123);                            torch.manual_seed(123)
 *     torch_rand(&ctx, &x, attn_shape2(6, 3), &rng);           x = torch.rand(6, 3)
 *     torch_linear(&ctx, &w, &bias, 3, 2, &rng);               layer = nn.Linear(3, 2)
 *     attn_linear(&ctx, &y, x, w, bias);                       y = layer(x)
 *     torch_dropout(&ctx, &y, y, 0.5f, &rng);                  y = F.dropout(y, 0.5)
 *     if (ctx.status != ATTN_OK) fprintf(stderr, "%s\n", ctx.message);
 *     attn_ctx_free(&ctx);
 *
 * Include attn.h's implementation in one file of the program, as always. Results are f32. */
#ifndef TORCH_H
#define TORCH_H

#include "attn.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#if defined(__GNUC__)
#define TORCH_FN           static __attribute__((unused))
#define TORCH_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define TORCH_FN static
#define TORCH_PRINTF(a, b)
#endif

/* PyTorch's CPU generator: attn_rng's words, and what torch_randn keeps for its next call. */
typedef struct torch_rng {
    attn_rng words;
    int has_normal; /* torch_randn's short form makes two numbers at a time, */
    double normal;  /* and this one is still to be given out */
} torch_rng;

/* torch.manual_seed. Seeds below 2^32 give PyTorch's numbers. */
TORCH_FN void torch_manual_seed(torch_rng *rng, uint64_t seed)
{
    memset(rng, 0, sizeof *rng);
    attn_rng_seed(&rng->words, seed);
}

/* ---- errors, and tensors of a given shape ---- */

TORCH_FN attn_status torch_fail(attn_ctx *ctx, attn_status status, const char *format, ...)
    TORCH_PRINTF(3, 4);
TORCH_FN attn_status torch_fail(attn_ctx *ctx, attn_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(ctx->message, sizeof ctx->message, format, args);
    va_end(args);
    return ctx->status = status;
}

/* Tells a failure of one of attn.h's functions, called by `op`, under the name that the caller
 * knows. A message that the call only passed on stays as it is. */
TORCH_FN attn_status torch_failed_in(attn_ctx *ctx, const char *called, const char *op)
{
    const size_t from = strlen(called), to = strlen(op);
    if (strncmp(ctx->message, called, from) == 0 && ctx->message[from] == ':' &&
        to + strlen(ctx->message + from) < sizeof ctx->message) {
        memmove(ctx->message + to, ctx->message + from, strlen(ctx->message + from) + 1);
        memcpy(ctx->message, op, to);
    }
    return ctx->status;
}

/* "[2, 3]" */
TORCH_FN const char *torch_show(char text[96], int ndim, const size_t *dim)
{
    size_t at = 0;
    for (int i = 0; i < ndim && i < 4; i++)
        at += (size_t)snprintf(text + at, 96 - at, "%s%llu", i ? ", " : "[",
                               (unsigned long long)dim[i]);
    snprintf(text + at, 96 - at, "%s", at ? "]" : "[]");
    return text;
}

/* Makes *out, or sees that it is f32 of this shape. */
TORCH_FN attn_status torch_begin(attn_ctx *ctx, const char *op, attn_tensor *out, attn_shape shape)
{
    char has[96], expected[96];
    if (!out)
        return torch_fail(ctx, ATTN_E_ARGUMENT, "%s: no place for the result (NULL)", op);
    if (out->ndim == 0 && out->error)
        return torch_fail(ctx, ATTN_E_ARGUMENT, "%s: out is no tensor: %s", op, out->error);
    if (out->ndim == 0)
        return attn_zeros(ctx, out, ATTN_F32, shape) ? torch_failed_in(ctx, "attn_zeros", op)
                                                     : ATTN_OK;
    if (out->dtype != ATTN_F32)
        return torch_fail(ctx, ATTN_E_ARGUMENT, "%s: out must be ATTN_F32", op);
    if (out->ndim != shape.ndim ||
        memcmp(out->shape, shape.dim, sizeof *shape.dim * (size_t)out->ndim) != 0)
        return torch_fail(ctx, ATTN_E_SHAPE, "%s: the result has shape %s, but out has shape %s",
                          op, torch_show(expected, shape.ndim, shape.dim),
                          torch_show(has, out->ndim, out->shape));
    return ATTN_OK;
}

/* Element i of an f32 tensor, counted in row-major order. */
TORCH_FN float *torch_at(attn_tensor x, size_t i)
{
    float *at = (float *)x.data;
    for (int d = x.ndim; d-- > 0; i /= x.shape[d])
        at += (ptrdiff_t)(i % x.shape[d]) * x.stride[d];
    return at;
}

/* torch.full */
TORCH_FN attn_status torch_full(attn_ctx *ctx, attn_tensor *out, attn_shape shape, float value)
{
    if (torch_begin(ctx, "torch_full", out, shape) != ATTN_OK)
        return ctx->status;
    for (size_t i = 0; i < attn_count(*out); i++)
        *torch_at(*out, i) = value;
    return ATTN_OK;
}

/* ---- random numbers ---- */

/* Uniform numbers in [low, low + range). PyTorch computes u * range + low with one rounding. A
 * double holds the exact sum, because u is a multiple of 2^-24 below 1 and low is 0 or -range / 2. */
TORCH_FN attn_status torch_uniform(attn_ctx *ctx, const char *op, attn_tensor *out,
                                   attn_shape shape, float low, float range, torch_rng *rng)
{
    if (!rng)
        return torch_fail(ctx, ATTN_E_ARGUMENT, "%s: no generator (torch_rng) was given: NULL", op);
    if (torch_begin(ctx, op, out, shape) != ATTN_OK)
        return ctx->status;
    for (size_t i = 0; i < attn_count(*out); i++)
        *torch_at(*out, i) = (float)((double)attn_rng_uniform(&rng->words) * range + low);
    return ATTN_OK;
}

/* torch.rand: uniform in [0, 1). The same bits as PyTorch's after the same seed. */
TORCH_FN attn_status torch_rand(attn_ctx *ctx, attn_tensor *out, attn_shape shape, torch_rng *rng)
{
    return torch_uniform(ctx, "torch_rand", out, shape, 0, 1, rng);
}

/* The parameters that nn.Linear(n_in, n_out) starts with, bit for bit: weight and then bias
 * [n_out], uniform in +-1/sqrt(n_in). bias may be NULL for bias=False. The weight is [n_in, n_out],
 * as attn_linear takes it. PyTorch draws and stores it as [n_out, n_in]; a new one is stored so,
 * too, and seen through a transposed view, which owns the memory. */
TORCH_FN attn_status torch_linear(attn_ctx *ctx, attn_tensor *weight, attn_tensor *bias,
                                  size_t n_in, size_t n_out, torch_rng *rng)
{
    const float bound = n_in ? (float)(1 / sqrt((double)n_in)) : 0;
    char has[96];
    attn_tensor stored; /* [n_out, n_in], the order of the draws */
    if (!weight)
        return torch_fail(ctx, ATTN_E_ARGUMENT, "torch_linear: no place for the weight (NULL)");
    int is_new = weight->ndim == 0;
    if (!is_new && (weight->ndim != 2 || weight->shape[0] != n_in || weight->shape[1] != n_out))
        return torch_fail(ctx, ATTN_E_SHAPE,
                          "torch_linear: weight has shape %s; expected [%llu, %llu]",
                          torch_show(has, weight->ndim, weight->shape), (unsigned long long)n_in,
                          (unsigned long long)n_out);
    stored = is_new ? *weight : attn_transpose(*weight, 0, 1);
    attn_status status = torch_uniform(ctx, "torch_linear", &stored, attn_shape2(n_out, n_in),
                                       -bound, 2 * bound, rng);
    if (status == ATTN_OK && bias)
        status =
            torch_uniform(ctx, "torch_linear", bias, attn_shape1(n_out), -bound, 2 * bound, rng);
    if (status != ATTN_OK && is_new) {
        attn_tensor_free(ctx, &stored);
    } else if (is_new) {
        *weight = attn_transpose(stored, 0, 1);
        weight->owned = stored.owned;
    }
    return status;
}

/* Normal numbers by Box and Muller (1958): if a and b are uniform in [0, 1), then
 * sqrt(-2 log(1 - a)) times the cosine and the sine of 2 pi b are two independent normal numbers.
 * The functions below are good to about one unit in the last place of a double, so that
 * rounding them to float gives the nearest float. They call fma by name: an expression that may or
 * may not be fused would make the same seed mean different numbers on different machines. */

TORCH_FN double torch_polynomial(const double *c, int n, double x)
{
    double y = c[--n];
    while (n > 0)
        y = fma(y, x, c[--n]);
    return y;
}

/* log x for 0 < x <= 1: x = 2^e f with f near 1, and log f = 2 atanh(s), s = (f - 1) / (f + 1). */
TORCH_FN double torch_log(double x)
{
    static const double atanh_series[] = {0,        2.0 / 3,  2.0 / 5,  2.0 / 7,
                                          2.0 / 9,  2.0 / 11, 2.0 / 13, 2.0 / 15,
                                          2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23};
    const double log2_high = 0.693147180369123816490, log2_low = 1.90821492927058770002e-10;
    int e;
    double f = frexp(x, &e);
    if (f < 0.70710678118654752440) {
        f = f * 2;
        e--;
    }
    double s = (f - 1) / (f + 1);
    double y = torch_polynomial(atanh_series, 12, s * s) * s;
    y = fma(2, s, fma((double)e, log2_low, y));
    return fma((double)e, log2_high, y);
}

/* Cosine and sine of 0 <= x <= 2 pi: the nearest multiple of pi / 2 is taken off, in two parts
 * because pi / 2 is no double, and Taylor's series does the rest. */
TORCH_FN void torch_cos_sin(double x, double *cosine, double *sine)
{
    static const double cos_series[] = {1.0,
                                        -1.0 / 2,
                                        1.0 / 24,
                                        -1.0 / 720,
                                        1.0 / 40320,
                                        -1.0 / 3628800,
                                        1.0 / 479001600,
                                        -1.0 / 87178291200.0,
                                        1.0 / 20922789888000.0};
    static const double sin_series[] = {0,
                                        -1.0 / 6,
                                        1.0 / 120,
                                        -1.0 / 5040,
                                        1.0 / 362880,
                                        -1.0 / 39916800,
                                        1.0 / 6227020800.0,
                                        -1.0 / 1307674368000.0,
                                        1.0 / 355687428096000.0};
    const int quarter = (int)fma(x, 0.63661977236758134308, 0.5);
    double r = fma(-(double)quarter, 1.57079632679489661923, x);
    r = fma(-(double)quarter, 6.12323399573676588614e-17, r);
    double square = r * r;
    double c = torch_polynomial(cos_series, 9, square);
    double s = fma(torch_polynomial(sin_series, 9, square), r, r);
    *cosine = quarter & 1 ? (quarter & 2 ? s : -s) : (quarter & 2 ? -c : c);
    *sine = quarter & 1 ? (quarter & 2 ? -c : c) : (quarter & 2 ? -s : s);
}

/* Uniform numbers first .. first + 15 of x become 16 normal ones, each step rounded to float as
 * PyTorch does. */
TORCH_FN void torch_normal_16(attn_tensor x, size_t first)
{
    for (size_t i = first; i < first + 8; i++) {
        float *a = torch_at(x, i), *b = torch_at(x, i + 8);
        const float minus_log = -(float)torch_log(1.0 - *a);
        const float radius = (float)sqrt(2.0 * minus_log);
        const float angle = 6.28318530717958647693f * *b;
        double cosine, sine;
        torch_cos_sin(angle, &cosine, &sine);
        *a = radius * (float)cosine;
        *b = radius * (float)sine;
    }
}

/* One normal number in double precision; every other call makes two. */
TORCH_FN double torch_normal(torch_rng *rng)
{
    double uniform[2], cosine, sine;
    if (rng->has_normal) {
        rng->has_normal = 0;
        return rng->normal;
    }
    for (int i = 0; i < 2; i++) { /* 53 bits */
        const uint64_t high = attn_rng_u32(&rng->words);
        const uint64_t bits = (high << 32 | attn_rng_u32(&rng->words)) & 0x1fffffffffffffu;
        uniform[i] = (double)bits * (1.0 / 9007199254740992.0);
    }
    double radius = sqrt(-2.0 * torch_log(1.0 - uniform[1]));
    torch_cos_sin(6.28318530717958647693 * uniform[0], &cosine, &sine);
    rng->normal = radius * sine;
    rng->has_normal = 1;
    return radius * cosine;
}

/* torch.randn: normal numbers, mean 0 and variance 1. It follows torch.randn draw by draw; PyTorch's
 * own logarithm and cosine are a few units of the last place less exact than these, so the numbers
 * agree to 5e-7, not in every bit.
 *
 * PyTorch has two rules, and a notebook's numbers depend on which one made them. Fewer than 16
 * numbers are made one by one. From 16 on all are uniform first and each block of 16 is turned
 * into normal ones; an incomplete last block is replaced by drawing the last 16 again. */
TORCH_FN attn_status torch_randn(attn_ctx *ctx, attn_tensor *out, attn_shape shape, torch_rng *rng)
{
    if (!rng)
        return torch_fail(ctx, ATTN_E_ARGUMENT,
                          "torch_randn: no generator (torch_rng) was given: NULL");
    if (torch_begin(ctx, "torch_randn", out, shape) != ATTN_OK)
        return ctx->status;
    size_t n = attn_count(*out);
    for (size_t i = 0; i < n; i++)
        *torch_at(*out, i) = n < 16 ? (float)torch_normal(rng) : attn_rng_uniform(&rng->words);
    for (size_t i = 0; i + 16 <= n; i += 16)
        torch_normal_16(*out, i);
    if (n > 16 && n % 16 != 0) {
        for (size_t i = n - 16; i < n; i++)
            *torch_at(*out, i) = attn_rng_uniform(&rng->words);
        torch_normal_16(*out, n - 16);
    }
    return ATTN_OK;
}

/* F.dropout, as in training: each element becomes 0 with probability p, else x / (1 - p). One word
 * of rng seeds the choice; the same elements are dropped as in a PyTorch built with MKL, whose
 * generator is MCG31m1, with the modulus 2^31 - 1. 0 <= p <= 1; nothing is drawn for 0 and 1. In
 * place works. Srivastava et al. 2014. */
TORCH_FN attn_status torch_dropout(attn_ctx *ctx, attn_tensor *out, attn_tensor x, float p,
                                   torch_rng *rng)
{
    const double keep_below = 1.0 - p;
    const float factor = p < 1 ? 1 / (float)keep_below : 0;
    uint64_t draw = 1;
    if (!rng)
        return torch_fail(ctx, ATTN_E_ARGUMENT,
                          "torch_dropout: no generator (torch_rng) was given: NULL");
    if (!(p >= 0 && p <= 1))
        return torch_fail(ctx, ATTN_E_ARGUMENT, "torch_dropout: p is a probability, 0 to 1");
    if (attn_scale(ctx, out, x, 1) != ATTN_OK)
        return torch_failed_in(ctx, "attn_scale", "torch_dropout");
    if (p > 0 && p < 1 && attn_count(*out) > 0)
        draw = attn_rng_u32(&rng->words) % 2147483647u;
    draw += draw == 0;
    for (size_t i = 0; i < attn_count(*out); i++) {
        *torch_at(*out, i) *= p <= 0 || (double)draw / 2147483647.0 < keep_below ? factor : 0;
        draw = draw * 1132489760u % 2147483647u;
    }
    return ATTN_OK;
}

/* ---- masks ---- */

/* torch.tril: zero above the diagonal of the last two dimensions. In place works. */
TORCH_FN attn_status torch_tril(attn_ctx *ctx, attn_tensor *out, attn_tensor x)
{
    char has[96];
    if (x.ndim == 1)
        return torch_fail(ctx, ATTN_E_SHAPE,
                          "torch_tril: x has shape %s; expected at least two dimensions",
                          torch_show(has, x.ndim, x.shape));
    if (attn_scale(ctx, out, x, 1) != ATTN_OK)
        return torch_failed_in(ctx, "attn_scale", "torch_tril");
    for (size_t i = 0; i < attn_count(x); i++) {
        const size_t n = x.shape[x.ndim - 1], row = i / n % x.shape[x.ndim - 2];
        if (i % n > row)
            *torch_at(*out, i) = 0;
    }
    return ATTN_OK;
}

/* [n_queries, n_keys]: 0 where query i may look, -inf beyond key i + n_keys - n_queries. To be
 * added to scores, or given to attn_attention as its mask: what
 * torch.full((n_queries, n_keys), -inf).triu(n_keys - n_queries + 1) gives. */
TORCH_FN attn_status torch_causal_mask(attn_ctx *ctx, attn_tensor *out, size_t n_queries,
                                       size_t n_keys)
{
    if (torch_begin(ctx, "torch_causal_mask", out, attn_shape2(n_queries, n_keys)) != ATTN_OK)
        return ctx->status;
    for (size_t row = 0; row < n_queries; row++)
        for (size_t i = 0; i < n_keys;
             i++) /* i <= row + n_keys - n_queries, without going below zero */
            *torch_at(*out, row * n_keys + i) =
                i + n_queries <= row + n_keys ? 0 : -(float)INFINITY;
    return ATTN_OK;
}

/* ---- cat ---- */

/* Adds part i, which `d` joins to the others, to the joint shape, or says why it does not fit. */
TORCH_FN attn_status torch_join(attn_ctx *ctx, attn_shape *shape, const attn_tensor *parts,
                                size_t i, int d)
{
    const attn_tensor *x = &parts[i];
    char first[96], other[96];
    int same = x->ndim == parts->ndim;
    for (int k = 0; k < parts->ndim && same; k++)
        same = k == d || x->shape[k] == parts->shape[k];
    if (!same || x->shape[d] > SIZE_MAX - shape->dim[d])
        return torch_fail(ctx, ATTN_E_SHAPE,
                          "torch_cat: part 0 has shape %s and part %llu %s; expected the same but "
                          "along dimension %d",
                          torch_show(first, parts->ndim, parts->shape), (unsigned long long)i,
                          torch_show(other, x->ndim, x->shape), d);
    if (x->dtype == ATTN_I32)
        return torch_fail(ctx, ATTN_E_ARGUMENT,
                          "torch_cat: part %llu holds integers; attn_copy converts them to floats",
                          (unsigned long long)i);
    shape->dim[d] += x->shape[d];
    return ATTN_OK;
}

/* torch.cat: joins the parts along dimension `dim` (negative: counted from the last). Every other
 * dimension must have the same size in all parts, which are f32 or f16. */
TORCH_FN attn_status torch_cat(attn_ctx *ctx, attn_tensor *out, const attn_tensor *parts,
                               size_t n_parts, int dim)
{
    attn_shape shape;
    size_t at = 0;
    if (!parts || n_parts == 0)
        return torch_fail(ctx, ATTN_E_ARGUMENT, "torch_cat: no tensors were given");
    for (size_t i = 0; i < n_parts; i++)
        if (parts[i].ndim == 0 && !parts[i].error && ctx->status != ATTN_OK)
            return ctx->status; /* an earlier call failed to make it */
        else if (parts[i].ndim == 0)
            return torch_fail(ctx, ATTN_E_ARGUMENT, "torch_cat: part %llu is no tensor%s%s",
                              (unsigned long long)i, parts[i].error ? ": " : "; make it first",
                              parts[i].error ? parts[i].error : "");
    int d = dim < 0 ? dim + parts->ndim : dim;
    if (d < 0 || d >= parts->ndim)
        return torch_fail(ctx, ATTN_E_ARGUMENT,
                          "torch_cat: dimension %d of a tensor of %d; expected %d to %d", dim,
                          parts->ndim, -parts->ndim, parts->ndim - 1);
    shape.ndim = parts->ndim;
    memcpy(shape.dim, parts->shape, sizeof shape.dim);
    shape.dim[d] = 0;
    for (size_t i = 0; i < n_parts; i++)
        if (torch_join(ctx, &shape, parts, i, d) != ATTN_OK)
            return ctx->status;
    if (torch_begin(ctx, "torch_cat", out, shape) != ATTN_OK)
        return ctx->status;
    for (size_t i = 0; i < n_parts; at += parts[i++].shape[d]) {
        attn_tensor place = attn_slice(*out, d, at, parts[i].shape[d]);
        if (attn_copy(ctx, &place, parts[i]) != ATTN_OK)
            return torch_failed_in(ctx, "attn_copy", "torch_cat");
    }
    return ATTN_OK;
}

#endif /* TORCH_H */
