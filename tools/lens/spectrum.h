/* Singular vectors and eigenvalues of a circuit, and how much a head copies. Elhage et al. 2021, "A
 * Mathematical Framework for Transformer Circuits". Uses attn.h's public API only.
 *
 * A circuit is a product of two factors (circuits.h), A [m, r] · B [r, n]. Everything here works on the
 * factors, as TransformerLens's FactoredMatrix does. The singular value decomposition is U · S · Vᵀ. If the
 * product is square, r of its eigenvalues are those of B · A [r, r], because A · B · x = λ x gives
 * B · A · (B · x) = λ (B · x); the other m - r are 0.
 *
 *     attn_tensor values = ATTN_ZERO, scores = ATTN_ZERO;
 *     if (lens_ov_eigenvalues(&ctx, &values, model, LENS_OV_TOKENS) == ATTN_OK &&
 *         lens_copying_scores(&ctx, &scores, values) == ATTN_OK)
 *         printf("L5H1 copies by %.2f\n", attn_get2(scores, 5, 1));
 *
 * If a head raises the logits of the tokens that it looks at, the eigenvalues of its W_E · W_OV · W_U have
 * positive real parts. Its copying score is sum(λ) / sum(|λ|): 1 if all are positive, -1 if all are
 * negative. LayerNorm's gain is part of these weights only in a model that lens_process_weights
 * made with LENS_PROCESS_FOLD_LN, which TransformerLens's from_pretrained gives by default.
 *
 * L layers, H heads of d, V = n_vocab, C = d_model. Results are f32 tensors and follow attn.h's rule for
 * outputs. Intermediate results are in double. */
#ifndef LENS_SPECTRUM_H
#define LENS_SPECTRUM_H

#include "refactor.h"
#include <float.h>

/* ---- singular vectors ---- */

typedef struct lens_svd {
    attn_tensor u; /* [m, r]: columns are left singular vectors */
    attn_tensor s; /* [r], largest first */
    attn_tensor v; /* [n, r]: columns are right singular vectors */
} lens_svd;

/* *out (zeroed, or tensors of those shapes): left [m, r] · right [r, n] = U · diag(S) · Vᵀ, as
 * FactoredMatrix.svd. The sign of singular vectors is arbitrary: here the entry of each column of U with
 * the largest magnitude is positive. If a singular value is 0, both of its columns are 0. */
LENS_FN attn_status lens_singular_vectors(attn_ctx *ctx, lens_svd *out, attn_tensor left,
                                          attn_tensor right)
{
    static const char op[] = "lens_singular_vectors";
    attn_tensor x = ATTN_ZERO, y = ATTN_ZERO;
    lens_result u = ATTN_ZERO, s = ATTN_ZERO, v = ATTN_ZERO;
    if (!out)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: no place for the result given (NULL)", op);
    if (lens_need_factors(ctx, op, left, right) != ATTN_OK)
        return lens_failure(ctx);
    size_t m = left.shape[0];
    size_t r = left.shape[1];
    size_t n = right.shape[1];
    attn_status status = lens_begin(ctx, op, &out->u, attn_shape2(m, r), &u);
    if (status == ATTN_OK)
        status = lens_begin(ctx, op, &out->s, attn_shape1(r), &s);
    if (status == ATTN_OK)
        status = lens_begin(ctx, op, &out->v, attn_shape2(n, r), &v);
    if (status == ATTN_OK)
        status = attn_scale(ctx, &x, left, 1); /* f32, dense */
    if (status == ATTN_OK)
        status = attn_scale(ctx, &y, attn_transpose(right, 0, 1), 1);
    if (status == ATTN_OK)
        status = lens_refactor(ctx, x, y, 0);
    for (size_t j = 0; j < r && status == ATTN_OK; j++) {
        double square = 0;
        for (size_t i = 0; i < m; i++)
            square += (double)attn_get2(x, i, j) * (double)attn_get2(x, i, j);
        double length = sqrt(square);
        ((float *)s.numbers.data)[j] = (float)length;
        for (size_t i = 0; i < m && length > 0; i++)
            ((float *)u.numbers.data)[i * r + j] = (float)((double)attn_get2(x, i, j) / length);
        for (size_t i = 0; i < n; i++)
            ((float *)v.numbers.data)[i * r + j] = attn_get2(y, i, j);
    }
    attn_tensor_free(ctx, &x);
    attn_tensor_free(ctx, &y);
    status = u.out ? lens_finish(ctx, &u, status) : status;
    status = s.out ? lens_finish(ctx, &s, status) : status;
    return v.out ? lens_finish(ctx, &v, status) : status;
}

/* ---- eigenvalues of a square matrix ----
 *
 * First the matrix is brought to Hessenberg form, with zeros below the first subdiagonal. Then steps of the
 * QR algorithm (Francis 1961) make the last subdiagonal entries 0. Each step applies two shifts at once, so
 * that all numbers stay real. Neither changes the eigenvalues. */

/* A matrix [n, n], row by row. */
typedef struct lens_square {
    double *a;
    size_t n;
} lens_square;

LENS_FN double *lens_at(const lens_square *x, size_t i, size_t j)
{
    return x->a + i * x->n + j;
}

/* Rows or columns that a reflection changes. */
typedef struct lens_range {
    size_t first, end;
} lens_range;

/* A reflection: x becomes Q · x · Q for Q = 1 - v · vᵀ / half. v [m] applies to rows and columns from `at`
 * on. Q · x is computed in `columns` only, x · Q in `rows` only. */
LENS_FN void lens_reflect(const lens_square *x, size_t at, const double *v, size_t m,
                          lens_range columns, lens_range rows)
{
    const double half = lens_dot(v, v, m) / 2;
    if (!(half > 0))
        return; /* v is 0: there is nothing to reflect */
    for (size_t j = columns.first; j < columns.end; j++) {
        double sum = 0;
        for (size_t i = 0; i < m; i++)
            sum += v[i] * *lens_at(x, at + i, j);
        for (size_t i = 0; i < m; i++)
            *lens_at(x, at + i, j) -= sum / half * v[i];
    }
    for (size_t i = rows.first; i < rows.end; i++) {
        double *row = lens_at(x, i, at);
        const double factor = lens_dot(v, row, m) / half;
        for (size_t j = 0; j < m; j++)
            row[j] -= factor * v[j];
    }
}

/* v [m] becomes the direction of the reflection that makes all its entries but the first 0. Returns the
 * first entry after that reflection. */
LENS_FN double lens_direction(double *v, size_t m)
{
    const double length = sqrt(lens_dot(v, v, m)), first = v[0] > 0 ? -length : length;
    v[0] -= first;
    return first;
}

/* Hessenberg form; v has room for n numbers. */
LENS_FN void lens_hessenberg(const lens_square *x, double *v)
{
    const size_t n = x->n;
    for (size_t j = 0; j + 2 < n; j++) {
        const lens_range columns = {j + 1, n}, rows = {0, n};
        for (size_t i = j + 1; i < n; i++)
            v[i - j - 1] = *lens_at(x, i, j);
        *lens_at(x, j + 1, j) = lens_direction(v, n - j - 1);
        for (size_t i = j + 2; i < n; i++)
            *lens_at(x, i, j) = 0;
        lens_reflect(x, j + 1, v, n - j - 1, columns, rows);
    }
}

/* The shifts of a step, as the sum and the product of two numbers. */
typedef struct lens_shifts {
    double sum, product;
} lens_shifts;

/* The shifts for a block that ends with row `last`: the eigenvalues of its last two rows and columns. Every
 * tenth step takes other shifts, because with these some matrices never converge. */
LENS_FN lens_shifts lens_shifts_of(const lens_square *x, size_t last, int step)
{
    const double a = *lens_at(x, last - 1, last - 1), b = *lens_at(x, last - 1, last);
    const double c = *lens_at(x, last, last - 1), d = *lens_at(x, last, last);
    lens_shifts s = {a + d, a * d - b * c};
    if (step % 10 == 9) {
        const double size = fabs(c) + fabs(*lens_at(x, last - 1, last - 2));
        s.sum = 1.5 * size;
        s.product = size * size;
    }
    return s;
}

/* One step on the block of rows and columns [first, last], three or more. */
LENS_FN void lens_qr_step(const lens_square *x, size_t first, size_t last, lens_shifts s)
{
    const double a = *lens_at(x, first, first), b = *lens_at(x, first, first + 1);
    const double c = *lens_at(x, first + 1, first), d = *lens_at(x, first + 1, first + 1);
    /* the first column of (x - shift)(x - other shift) */
    double v[3] = {a * a + b * c - s.sum * a + s.product, c * (a + d - s.sum),
                   c * *lens_at(x, first + 2, first + 1)};
    for (size_t k = first; k < last; k++) {
        const size_t m = last - k >= 2 ? 3 : 2;
        const lens_range columns = {k, last + 1};
        const lens_range rows = {first, (last - k > 3 ? k + 3 : last) + 1};
        if (k > first) { /* move the entries below the subdiagonal one row down */
            for (size_t i = 0; i < m; i++)
                v[i] = *lens_at(x, k + i, k - 1);
            *lens_at(x, k, k - 1) = lens_direction(v, m);
            for (size_t i = 1; i < m; i++)
                *lens_at(x, k + i, k - 1) = 0;
        } else {
            lens_direction(v, m);
        }
        lens_reflect(x, k, v, m, columns, rows);
    }
}

/* The eigenvalues of a block of two rows and columns, as real and imaginary parts. */
LENS_FN void lens_pair_of(double values[4], const lens_square *x, size_t first)
{
    const double a = *lens_at(x, first, first), b = *lens_at(x, first, first + 1);
    const double c = *lens_at(x, first + 1, first), d = *lens_at(x, first + 1, first + 1);
    const double half = (a - d) / 2, inside = half * half + b * c, root = sqrt(fabs(inside));
    if (inside < 0) {
        values[0] = values[2] = d + half;
        values[1] = root;
        values[3] = -root;
    } else { /* first the eigenvalue that loses no digits, then the other from their product */
        const double far_one = half < 0 ? half - root : half + root;
        values[0] = d + far_one;
        values[2] = far_one == 0 ? d : d - b * c / far_one;
        values[1] = values[3] = 0;
    }
}

/* The first row of the block that ends with row `last`. The subdiagonal entry before that row is negligible
 * against the matrix, whose own numbers have rounded as much, and becomes 0. Its neighbours on the diagonal
 * tell nothing: those of a matrix of low rank are rounding errors too. */
LENS_FN size_t lens_block_of(const lens_square *x, size_t last, double norm)
{
    size_t i = last;
    while (i > 0 && fabs(*lens_at(x, i, i - 1)) > DBL_EPSILON * norm)
        i--;
    if (i > 0)
        *lens_at(x, i, i - 1) = 0;
    return i;
}

/* values [n, 2]: the eigenvalues of a matrix in Hessenberg form, which is overwritten. 0 if the steps do not
 * converge. */
LENS_FN int lens_qr(double *values, const lens_square *x, double norm)
{
    size_t end = x->n;
    int step = 0;
    while (end > 0) {
        const size_t last = end - 1, first = lens_block_of(x, last, norm);
        if (last - first <= 1) {
            if (last == first) {
                values[2 * last] = *lens_at(x, last, last);
                values[2 * last + 1] = 0;
            } else {
                lens_pair_of(values + 2 * first, x, first);
            }
            end = first;
            step = 0;
        } else if (step < 300) {
            lens_qr_step(x, first, last, lens_shifts_of(x, last, step));
            step++;
        } else { /* cover: no matrix is known that needs 300 steps */
            return 0;
        }
    }
    return 1;
}

/* Sorts by magnitude, largest first; of two conjugates, the positive imaginary part first. */
LENS_FN void lens_sort_eigenvalues(double *values, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t j = i; j > 0; j--) {
            double *a = values + 2 * (j - 1), *b = values + 2 * j;
            const double size_a = lens_dot(a, a, 2), size_b = lens_dot(b, b, 2);
            if (size_b < size_a || (size_b <= size_a && b[1] <= a[1]))
                break;
            for (size_t k = 0; k < 2; k++) {
                const double was = a[k];
                a[k] = b[k];
                b[k] = was;
            }
        }
}

/* out [n, 2]: the eigenvalues of the matrix core [n, n], which is overwritten. `room` is for 3 * n numbers. */
LENS_FN attn_status lens_eigenvalues_of(attn_ctx *ctx, const char *op, float *out, double *core,
                                        size_t n, double *room)
{
    const lens_square x = {core, n};
    const double norm = sqrt(lens_dot(core, core, n * n));
    if (!(norm <= DBL_MAX))
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: a factor has a number that is not finite", op);
    lens_hessenberg(&x, room + 2 * n);
    if (!lens_qr(room, &x, norm)) /* cover: see lens_qr */
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: the eigenvalues were not found in 300 steps",
                         op);
    lens_sort_eigenvalues(room, n);
    for (size_t i = 0; i < 2 * n; i++)
        out[i] = (float)room[i];
    return ATTN_OK;
}

/* ---- eigenvalues of a circuit ---- */

/* core [r, r] = right [r, m] · left [m, r], in double. Both are f32 and dense. */
LENS_FN void lens_inner_product(double *core, attn_tensor left, attn_tensor right)
{
    const float *const x = (const float *)left.data, *const y = (const float *)right.data;
    const size_t r = left.shape[1], m = left.shape[0];
    memset(core, 0, r * r * sizeof *core);
    for (size_t i = 0; i < r; i++)
        for (size_t k = 0; k < m; k++) {
            const double factor = (double)y[i * m + k];
            for (size_t j = 0; j < r; j++)
                core[i * r + j] += factor * (double)x[k * r + j];
        }
}

/* out [r, 2]: real and imaginary parts of the eigenvalues of left [m, r] · right [r, m], largest
 * magnitude first, as FactoredMatrix.eigenvalues (which has another order). With m < r, r - m of them
 * are 0 but for rounding. */
LENS_FN attn_status lens_eigenvalues(attn_ctx *ctx, attn_tensor *out, attn_tensor left,
                                     attn_tensor right)
{
    static const char op[] = "lens_eigenvalues";
    attn_tensor x = ATTN_ZERO, y = ATTN_ZERO;
    lens_result result;
    if (lens_need_factors(ctx, op, left, right) != ATTN_OK)
        return lens_failure(ctx);
    if (left.shape[0] != right.shape[1])
        return attn_fail(ctx, ATTN_E_SHAPE,
                         "%s: left has shape %s and right %s; "
                         "expected [m, r] and [r, m], a square product",
                         op, lens_show(left).text, lens_show(right).text);
    size_t r = left.shape[1];
    if (lens_begin(ctx, op, out, attn_shape2(r, 2), &result) != ATTN_OK)
        return lens_failure(ctx);
    double *core = lens_doubles(ctx, r + 3, r);
    int failed =
        !core || attn_scale(ctx, &x, left, 1) || attn_scale(ctx, &y, right, 1); /* f32, dense */
    if (!failed) {
        lens_inner_product(core, x, y);
        failed = lens_eigenvalues_of(ctx, op, (float *)result.numbers.data, core, r,
                                     core + r * r) != ATTN_OK;
    }
    attn_tensor_free(ctx, &x);
    attn_tensor_free(ctx, &y);
    attn_free(core);
    return lens_finish(ctx, &result, failed ? lens_failure(ctx) : ATTN_OK);
}

typedef enum lens_ov_space {
    LENS_OV_STREAM = 0, /* W_OV, from the stream to the stream */
    LENS_OV_TOKENS      /* W_E · W_OV · W_U, from the token at the key to the logits */
} lens_ov_space;

/* W_U · W_E [C, C], a factor of the circuits of all heads. */
LENS_FN attn_status lens_token_product(attn_ctx *ctx, attn_tensor *product, const attn_model *model)
{
    attn_tensor w_u = ATTN_ZERO, w_e = ATTN_ZERO;
    const int failed = attn_model_tensor(ctx, &w_u, model, "unembed.W_U") ||
                       attn_model_tensor(ctx, &w_e, model, "embed.W_E") ||
                       attn_matmul(ctx, product, w_u, w_e);
    attn_tensor_free(ctx, &w_u);
    attn_tensor_free(ctx, &w_e);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* out [L, H, d, 2]: the eigenvalues of every head's OV circuit, in the order of lens_eigenvalues. With
 * LENS_OV_TOKENS no matrix is larger than W_E: they are the eigenvalues of W_O · (W_U · W_E) · W_V [d, d]. */
LENS_FN attn_status lens_ov_eigenvalues(attn_ctx *ctx, attn_tensor *out, const attn_model *model,
                                        lens_ov_space space)
{
    static const char op[] = "lens_ov_eigenvalues";
    attn_tensor tokens = ATTN_ZERO, w_v = ATTN_ZERO, w_o = ATTN_ZERO, half = ATTN_ZERO;
    lens_result result;
    attn_status status = ATTN_OK;
    if (lens_need_layer(ctx, op, model, 0) != ATTN_OK)
        return lens_failure(ctx);
    if ((unsigned)space > LENS_OV_TOKENS)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "%s: space %d is neither LENS_OV_STREAM nor LENS_OV_TOKENS", op,
                         (int)space);
    const attn_config *c = attn_model_config(model);
    if (lens_begin(ctx, op, out, attn_shape4(c->n_layer, c->n_head, c->d_head, 2), &result))
        return lens_failure(ctx);
    if (space == LENS_OV_TOKENS)
        status = lens_token_product(ctx, &tokens, model);
    for (size_t layer = 0; layer < c->n_layer; layer++) {
        if (status == ATTN_OK)
            status = lens_layer_tensor(ctx, &w_v, model, layer, "attn.W_V");
        if (status == ATTN_OK)
            status = lens_layer_tensor(ctx, &w_o, model, layer, "attn.W_O");
        for (size_t head = 0; head < c->n_head && status == ATTN_OK; head++) {
            attn_tensor values = attn_select(attn_select(result.numbers, 0, layer), 0, head);
            attn_tensor right = attn_select(w_o, 0, head);
            if (lens_is_stopped(ctx))
                status = ATTN_STOPPED;
            else if (space == LENS_OV_TOKENS) {
                status = attn_matmul(ctx, &half, right, tokens);
                right = half;
            }
            if (status == ATTN_OK)
                status = lens_eigenvalues(ctx, &values, attn_select(w_v, 0, head), right);
        }
    }
    attn_tensor_free(ctx, &tokens);
    attn_tensor_free(ctx, &w_v);
    attn_tensor_free(ctx, &w_o);
    attn_tensor_free(ctx, &half);
    return lens_finish(ctx, &result, status);
}

/* out [..] = sum of the real parts / sum of the magnitudes, for eigenvalues [.., r, 2]: the OV copying
 * score (Elhage et al. 2021; TransformerLens's Main_Demo). 0 if all eigenvalues are 0. */
LENS_FN attn_status lens_copying_scores(attn_ctx *ctx, attn_tensor *out, attn_tensor eigenvalues)
{
    static const char op[] = "lens_copying_scores";
    attn_tensor dense = ATTN_ZERO;
    attn_shape shape = ATTN_ZERO;
    lens_result result;
    if (lens_need(ctx, op, "eigenvalues", eigenvalues) != ATTN_OK)
        return lens_failure(ctx);
    if (eigenvalues.ndim < 3 || eigenvalues.shape[eigenvalues.ndim - 1] != 2)
        return attn_fail(ctx, ATTN_E_SHAPE, "%s: eigenvalues have shape %s; expected [.., r, 2]",
                         op, lens_show(eigenvalues).text);
    shape.ndim = eigenvalues.ndim - 2;
    memcpy(shape.dim, eigenvalues.shape, sizeof *shape.dim * (size_t)shape.ndim);
    if (lens_begin(ctx, op, out, shape, &result) != ATTN_OK)
        return lens_failure(ctx);
    size_t r = eigenvalues.shape[eigenvalues.ndim - 2];
    attn_status status = attn_scale(ctx, &dense, eigenvalues, 1);
    for (size_t i = 0; i < attn_count(result.numbers) && status == ATTN_OK; i++) {
        const float *of = (const float *)dense.data + i * r * 2;
        double sum = 0, sizes = 0;
        for (size_t j = 0; j < r; j++) {
            const double re = (double)of[2 * j], im = (double)of[2 * j + 1];
            sum += re;
            sizes += sqrt(re * re + im * im);
        }
        ((float *)result.numbers.data)[i] = sizes > 0 ? (float)(sum / sizes) : 0;
    }
    attn_tensor_free(ctx, &dense);
    return lens_finish(ctx, &result, status);
}

#endif
