/* Circuits: what a head's weights do for any text, and which heads read which. Elhage et al.
 * 2021, "A Mathematical Framework for Transformer Circuits". Uses attn.h's public API only.
 *
 * Two products of weights describe a head, here for row vectors. W_QK = W_Q · W_Kᵀ scores a query
 * against a key (without biases and 1/sqrt(d)). W_OV = W_V · W_O maps the stream at a key to what the
 * head adds at the query. Both are [C, C] of rank d, so only their two factors are kept, as in
 * TransformerLens's FactoredMatrix.
 *
 *     const lens_head head = {5, 1};
 *     attn_tensor left = ATTN_ZERO, right = ATTN_ZERO, values = ATTN_ZERO, scores = ATTN_ZERO;
 *     lens_circuit(&ctx, &left, &right, model, head, LENS_CIRCUIT_OV);
 *     lens_singular_values(&ctx, &values, left, right);
 *     lens_composition_scores(&ctx, &scores, model, LENS_COMPOSE_K);
 *     if (ctx.status == ATTN_OK)
 *         printf("L5H1's keys compose with L4H11 by %.3f\n", attn_get4(scores, 4, 11, 5, 1));
 *
 * C = d_model, L layers, H heads of d. Results are f32 tensors and follow attn.h's rule for
 * outputs. LayerNorm's gain is part of these weights only in a model that lens_process_weights made
 * with LENS_PROCESS_FOLD_LN. */
#ifndef LENS_CIRCUITS_H
#define LENS_CIRCUITS_H

#include "result.h"
#include <math.h>

typedef enum lens_circuit_kind { LENS_CIRCUIT_QK = 0, LENS_CIRCUIT_OV } lens_circuit_kind;

/* left [C, d] and right [d, C], whose product is the circuit. */
LENS_FN attn_status lens_circuit(attn_ctx *ctx, attn_tensor *left, attn_tensor *right,
                                 const attn_model *model, lens_head of, lens_circuit_kind kind)
{
    static const char op[] = "lens_circuit";
    static const char *const factors[2][2] = {{"attn.W_Q", "attn.W_K"}, {"attn.W_V", "attn.W_O"}};
    lens_result first = ATTN_ZERO, second = ATTN_ZERO;
    attn_tensor all[2] = ATTN_ZERO;
    if (lens_need_layer(ctx, op, model, of.layer) != ATTN_OK)
        return lens_failure(ctx);
    const attn_config *c = attn_model_config(model);
    if (of.head >= c->n_head)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: head is %llu; expected 0 to %zu", op,
                         LENS_LLU(of.head), c->n_head - 1);
    if ((unsigned)kind > LENS_CIRCUIT_OV)
        return attn_fail(ctx, ATTN_E_ARGUMENT,
                         "%s: kind is %d; expected LENS_CIRCUIT_QK or LENS_CIRCUIT_OV", op,
                         (int)kind);
    attn_status status = lens_begin(ctx, op, left, attn_shape2(c->d_model, c->d_head), &first);
    if (status == ATTN_OK)
        status = lens_begin(ctx, op, right, attn_shape2(c->d_head, c->d_model), &second);
    if (status == ATTN_OK)
        status = lens_layer_tensor(ctx, &all[0], model, of.layer, factors[kind][0]);
    if (status == ATTN_OK)
        status = lens_layer_tensor(ctx, &all[1], model, of.layer, factors[kind][1]);
    if (status == ATTN_OK)
        status = attn_copy(ctx, &first.numbers, attn_select(all[0], 0, of.head));
    if (status == ATTN_OK) {
        const attn_tensor w = attn_select(all[1], 0, of.head);
        status =
            attn_copy(ctx, &second.numbers, kind == LENS_CIRCUIT_QK ? attn_transpose(w, 0, 1) : w);
    }
    attn_tensor_free(ctx, &all[0]);
    attn_tensor_free(ctx, &all[1]);
    status = first.out ? lens_finish(ctx, &first, status) : status;
    return second.out ? lens_finish(ctx, &second, status) : status;
}

/* ---- singular values ---- */

LENS_FN double lens_dot(const double *a, const double *b, size_t n)
{
    double sum = 0, other = 0; /* two independent sums, for speed */
    size_t i;
    for (i = 0; i + 1 < n; i += 2) {
        sum += a[i] * b[i];
        other += a[i + 1] * b[i + 1];
    }
    return i < n ? sum + a[i] * b[i] + other : sum + other;
}

/* QR decomposition x = Q · R for x [m, r], f32: *triangle is R [r, r], row by row. Q is not kept, because
 * it changes no lengths. Column by column, a reflection makes the entries below the diagonal 0
 * (Householder 1958). `columns` is room for m * r numbers. */
LENS_FN void lens_triangle(double *triangle, attn_tensor x, double *columns)
{
    const size_t m = x.shape[0], r = x.shape[1];
    for (size_t j = 0; j < r; j++)
        for (size_t i = 0; i < m; i++)
            columns[j * m + i] =
                (double)((const float *)
                             x.data)[(ptrdiff_t)i * x.stride[0] + (ptrdiff_t)j * x.stride[1]];
    memset(triangle, 0, r * r * sizeof *triangle);
    for (size_t j = 0; j < r && j < m; j++) {
        double *v = columns + j * m + j; /* becomes the direction of the reflection */
        const size_t n = m - j;
        const double length = sqrt(lens_dot(v, v, n)), diagonal = v[0] > 0 ? -length : length;
        v[0] -= diagonal;
        double half = lens_dot(v, v, n) / 2;
        triangle[j * r + j] = diagonal;
        for (size_t k = j + 1; k < r; k++) {
            double *other = columns + k * m + j;
            const double factor = half > 0 ? lens_dot(v, other, n) / half : 0;
            for (size_t i = 0; i < n; i++)
                other[i] -= factor * v[i];
            triangle[j * r + k] = other[0];
        }
    }
}

/* One-sided Jacobi method (Hestenes 1958): rotates pairs of the n columns until their first n numbers are
 * orthogonal. The lengths of those are then the singular values. A few rounds suffice. A column has
 * `length` numbers, n or more; the rotations apply to all of them. */
LENS_FN void lens_rotate_columns(double *columns, size_t n, size_t length)
{
    size_t n_rotated = 1;
    for (size_t round = 0; round < 60 && n_rotated > 0; round++) {
        n_rotated = 0;
        for (size_t p = 0; p + 1 < n; p++)
            for (size_t q = p + 1; q < n; q++) {
                double *a = columns + p * length, *b = columns + q * length;
                const double aa = lens_dot(a, a, n), bb = lens_dot(b, b, n);
                const double ab = lens_dot(a, b, n);
                if (!(fabs(ab) > 1e-15 * sqrt(aa * bb)))
                    continue;
                double zeta = (bb - aa) / (2 * ab);
                double tangent = (zeta < 0 ? -1 : 1) / (fabs(zeta) + sqrt(zeta * zeta + 1));
                double cosine = 1 / sqrt(tangent * tangent + 1);
                double sine = cosine * tangent;
                for (size_t i = 0; i < length; i++) {
                    const double was = a[i];
                    a[i] = cosine * was - sine * b[i];
                    b[i] = sine * was + cosine * b[i];
                }
                n_rotated++;
            }
    }
}

/* values [r], largest first: the lengths of the r columns of length r. */
LENS_FN void lens_sorted_lengths(float *values, const double *columns, size_t r)
{
    size_t j;
    for (size_t i = 0; i < r; i++) { /* insertion sort */
        const float value = (float)sqrt(lens_dot(columns + i * r, columns + i * r, r));
        for (j = i; j > 0 && value > values[j - 1]; j--)
            values[j] = values[j - 1];
        values[j] = value;
    }
}

/* Memory for n * r doubles, which attn_free frees; NULL after a message. */
LENS_FN double *lens_doubles(attn_ctx *ctx, size_t n, size_t r)
{
    return (double *)attn_alloc(ctx, n, r * sizeof(double), "a decomposition");
}

/* Two factors of a product. */
LENS_FN attn_status lens_need_factors(attn_ctx *ctx, const char *op, attn_tensor left,
                                      attn_tensor right)
{
    if (lens_need(ctx, op, "left", left) || lens_need(ctx, op, "right", right))
        return lens_failure(ctx);
    if (left.ndim != 2 || right.ndim != 2 || left.shape[1] != right.shape[0])
        return attn_fail(ctx, ATTN_E_SHAPE,
                         "%s: left has shape %s and right %s; expected [m, r] and [r, n]", op,
                         lens_show(left).text, lens_show(right).text);
    return ATTN_OK;
}

/* out [r]: the singular values of left [m, r] · right [r, n], largest first. The product itself is not
 * computed: QR of both factors, then one-sided Jacobi rotations of the triangles, in double. */
LENS_FN attn_status lens_singular_values(attn_ctx *ctx, attn_tensor *out, attn_tensor left,
                                         attn_tensor right)
{
    static const char op[] = "lens_singular_values";
    attn_tensor one = ATTN_ZERO, two = ATTN_ZERO;
    lens_result result;
    if (lens_need_factors(ctx, op, left, right) != ATTN_OK)
        return lens_failure(ctx);
    size_t r = left.shape[1];
    size_t n_rows = left.shape[0] > right.shape[1] ? left.shape[0] : right.shape[1];
    if (n_rows > SIZE_MAX / 8 - 3 * r)
        return attn_fail(ctx, ATTN_E_MEMORY, "%s: no memory for factors as large as %s", op,
                         lens_show(left).text);
    if (lens_begin(ctx, op, out, attn_shape1(r), &result) != ATTN_OK)
        return lens_failure(ctx);
    double *columns = lens_doubles(ctx, n_rows + 3 * r, r);
    int failed = !columns || attn_scale(ctx, &one, left, 1) || /* f32, dense */
                 attn_scale(ctx, &two, attn_transpose(right, 0, 1), 1);
    if (!failed) {
        double *const first = columns + n_rows * r, *const second = first + r * r;
        double *const core = second + r * r;
        lens_triangle(first, one, columns);
        lens_triangle(second, two, columns);
        for (size_t i = 0; i < r; i++)
            for (size_t j = 0; j < r; j++)
                core[j * r + i] = lens_dot(first + i * r, second + j * r, r);
        lens_rotate_columns(core, r, r);
        lens_sorted_lengths((float *)result.numbers.data, core, r);
    }
    attn_free(columns);
    attn_tensor_free(ctx, &one);
    attn_tensor_free(ctx, &two);
    return lens_finish(ctx, &result, failed ? lens_failure(ctx) : ATTN_OK);
}

/* ---- composition ---- */

/* A later head can read what an earlier head adds through its queries, its keys or its values. */
typedef enum lens_composition_kind {
    LENS_COMPOSE_Q = 0, /* |W_OV · W_QK| / (|W_OV| |W_QK|), Frobenius norms */
    LENS_COMPOSE_K,     /* the same with W_QKᵀ */
    LENS_COMPOSE_V      /* the same with the later head's W_OV */
} lens_composition_kind;

/* What composition needs of one layer. The norm of a circuit P · S is that of the product of two
 * triangles, |R_P · R_Sᵀ|. So only the triangle of the writer's left factor and that of the reader's right
 * factor matter. */
typedef struct lens_composer {
    attn_tensor written;      /* triangle of W_V [H, d, d] */
    attn_tensor read;         /* triangle of Sᵀ [H, d, d] */
    attn_tensor norm_written; /* of W_OV [H] */
    attn_tensor norm_read;    /* of P · S [H] */
} lens_composer;

/* Which of a layer's W_Q, W_K, W_V and W_Oᵀ are P and Sᵀ for each kind. */
static const int lens_read_factors[3][2] = {{0, 1}, {1, 0}, {2, 3}};

/* The weights of one layer as matrices of all heads: W_Q, W_K, W_V and W_Oᵀ, each [C, H * d]. They
 * are views of *w_qkv and *w_o, which the caller frees. */
LENS_FN attn_status lens_all_heads(attn_ctx *ctx, attn_tensor all[4], attn_tensor *w_qkv,
                                   attn_tensor *w_o, const attn_model *model, size_t layer)
{
    const size_t width = attn_model_config(model)->d_model;
    attn_status status = lens_layer_tensor(ctx, w_qkv, model, layer, "attn.W_QKV");
    if (status == ATTN_OK)
        status = lens_layer_tensor(ctx, w_o, model, layer, "attn.W_O");
    for (size_t i = 0; i < 3; i++) /* after a failure each view has an error, not data */
        all[i] = attn_slice(*w_qkv, 1, i * width, width);
    all[3] = attn_transpose(attn_reshape(*w_o, attn_shape2(width, width)), 0, 1);
    return status;
}

/* The triangles [H, d, d] of all heads' [C, d] in w [C, H * d]. */
LENS_FN attn_status lens_triangles(attn_ctx *ctx, attn_tensor *triangles, const attn_config *c,
                                   attn_tensor w)
{
    const size_t d = c->d_head, size = d * d;
    double *triangle; /* and behind it room for the columns */
    if (attn_zeros(ctx, triangles, ATTN_F32, attn_shape3(c->n_head, d, d)) != ATTN_OK ||
        (triangle = lens_doubles(ctx, c->d_model + d, d)) == NULL)
        return lens_failure(ctx);
    for (size_t head = 0; head < c->n_head && !lens_is_stopped(ctx); head++) {
        lens_triangle(triangle, attn_slice(w, 1, head * d, d), triangle + size);
        for (size_t i = 0; i < size; i++)
            ((float *)triangles->data)[head * size + i] = (float)triangle[i];
    }
    attn_free(triangle);
    return lens_is_stopped(ctx) ? ATTN_STOPPED : ATTN_OK;
}

/* norms [n] of n dense matrices of `size` numbers */
LENS_FN void lens_frobenius(float *norms, const float *matrices, size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++, matrices += size) {
        double sum = 0;
        for (size_t j = 0; j < size; j++)
            sum += (double)matrices[j] * (double)matrices[j];
        norms[i] = (float)sqrt(sum);
    }
}

/* norms [H] of the products of two stacks of triangles, R_P · R_Sᵀ */
LENS_FN attn_status lens_product_norms(attn_ctx *ctx, attn_tensor *norms, attn_tensor p,
                                       attn_tensor s)
{
    attn_tensor products = ATTN_ZERO;
    attn_status status = attn_matmul(ctx, &products, p, attn_transpose(s, 1, 2));
    if (status == ATTN_OK)
        status = attn_zeros(ctx, norms, ATTN_F32, attn_shape1(p.shape[0]));
    if (status == ATTN_OK)
        lens_frobenius((float *)norms->data, (const float *)products.data, p.shape[0],
                       p.shape[1] * p.shape[1]);
    attn_tensor_free(ctx, &products);
    return status;
}

LENS_FN attn_status lens_prepare(attn_ctx *ctx, lens_composer *c, const attn_model *model,
                                 size_t layer, lens_composition_kind kind)
{
    attn_tensor all[4], w_qkv = ATTN_ZERO, w_o = ATTN_ZERO, outer = ATTN_ZERO, inner = ATTN_ZERO;
    const attn_config *config = attn_model_config(model);
    const int *factors = lens_read_factors[kind];
    const int failed = lens_all_heads(ctx, all, &w_qkv, &w_o, model, layer) ||
                       lens_triangles(ctx, &c->written, config, all[2]) ||
                       lens_triangles(ctx, &outer, config, all[3]) ||
                       lens_product_norms(ctx, &c->norm_written, c->written, outer) ||
                       lens_triangles(ctx, &inner, config, all[factors[0]]) ||
                       lens_triangles(ctx, &c->read, config, all[factors[1]]) ||
                       lens_product_norms(ctx, &c->norm_read, inner, c->read);
    attn_tensor_free(ctx, &w_qkv);
    attn_tensor_free(ctx, &w_o);
    attn_tensor_free(ctx, &outer);
    attn_tensor_free(ctx, &inner);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* scores [H, H], a view: of an earlier layer's heads with a later layer's. |V · O · P · S| =
 * |R_V · (O · P) · R_Sᵀ|, a matrix of [d, d] for each pair. */
LENS_FN attn_status lens_compose(attn_ctx *ctx, attn_tensor scores, const lens_composer *earlier,
                                 const lens_composer *later, attn_tensor o, attn_tensor p)
{
    const size_t n_head = scores.shape[0], d = earlier->written.shape[1];
    attn_tensor between = ATTN_ZERO, half = ATTN_ZERO, whole = ATTN_ZERO;
    int failed = attn_matmul(ctx, &between, o, p) != ATTN_OK; /* [H * d, H * d] */
    for (size_t i = 0; i < n_head && !failed;
         i++) { /* one head at a time, to stop soon when asked */
        const attn_tensor pairs =
            attn_transpose(attn_reshape(between, attn_shape4(n_head, d, n_head, d)), 1, 2);
        float *row = (float *)scores.data + (ptrdiff_t)i * scores.stride[0];
        failed = lens_is_stopped(ctx) ||
                 attn_matmul(ctx, &half, attn_select(earlier->written, 0, i),
                             attn_select(pairs, 0, i)) ||
                 attn_matmul(ctx, &whole, half, attn_transpose(later->read, 1, 2));
        if (failed)
            break;
        lens_frobenius(row, (const float *)whole.data, n_head, d * d);
        for (size_t j = 0; j < n_head; j++) {
            const float norms =
                attn_get1(earlier->norm_written, i) * attn_get1(later->norm_read, j);
            row[j] = norms > 0 ? row[j] / norms : 0;
        }
    }
    attn_tensor_free(ctx, &between);
    attn_tensor_free(ctx, &half);
    attn_tensor_free(ctx, &whole);
    return failed ? lens_failure(ctx) : ATTN_OK;
}

/* All layers' scores, while they are computed. A step prepares one layer, or compares two. */
typedef struct lens_composing {
    const attn_model *model;
    lens_composition_kind kind;
    lens_composer *composers; /* [n_layer] */
    attn_progress_fn progress;
    void *user;
    size_t n_done, n_all; /* steps */
} lens_composing;

LENS_FN attn_status lens_composed(lens_composing *c)
{
    return lens_progress(c->progress, c->user, (double)++c->n_done / (double)c->n_all);
}

/* All pairs that end in layer `to`, into scores [L, H, L, H]. */
LENS_FN attn_status lens_compose_with(attn_ctx *ctx, attn_tensor scores, lens_composing *c,
                                      size_t to)
{
    const size_t width = attn_model_config(c->model)->d_model;
    attn_tensor all[4], w_qkv = ATTN_ZERO, w_o = ATTN_ZERO;
    attn_status status = lens_all_heads(ctx, all, &w_qkv, &w_o, c->model, to);
    for (size_t from = 0; from < to && status == ATTN_OK; from++) {
        const attn_tensor pairs = attn_select(attn_select(scores, 0, from), 1, to);
        attn_tensor o = ATTN_ZERO;
        status = lens_layer_tensor(ctx, &o, c->model, from, "attn.W_O");
        if (status == ATTN_OK)
            status = lens_compose(ctx, pairs, &c->composers[from], &c->composers[to],
                                  attn_reshape(o, attn_shape2(width, width)),
                                  all[lens_read_factors[c->kind][0]]);
        attn_tensor_free(ctx, &o);
        if (status == ATTN_OK)
            status = lens_composed(c);
    }
    attn_tensor_free(ctx, &w_qkv);
    attn_tensor_free(ctx, &w_o);
    return status;
}

/* lens_composition_scores, which tells progress_fn (may be NULL) the share that is done. ATTN_STOPPED if progress_fn
 * asks to stop; out is then as it was. */
LENS_FN attn_status lens_composition_scores_told(attn_ctx *ctx, attn_tensor *out,
                                                 const attn_model *model,
                                                 lens_composition_kind kind,
                                                 attn_progress_fn progress_fn, void *user)
{
    static const char op[] = "lens_composition_scores";
    lens_composing c = ATTN_ZERO;
    lens_result result;
    if (lens_need_layer(ctx, op, model, 0) != ATTN_OK)
        return lens_failure(ctx);
    if ((unsigned)kind > LENS_COMPOSE_V)
        return attn_fail(ctx, ATTN_E_ARGUMENT, "%s: kind %d is none of LENS_COMPOSE_Q, _K, _V", op,
                         (int)kind);
    size_t n_layer = attn_model_config(model)->n_layer;
    size_t n_head = attn_model_config(model)->n_head;
    if (lens_begin(ctx, op, out, attn_shape4(n_layer, n_head, n_layer, n_head), &result) != ATTN_OK)
        return lens_failure(ctx);
    c.model = model;
    c.kind = kind;
    c.composers =
        (lens_composer *)attn_alloc(ctx, n_layer, sizeof *c.composers, "composition scores");
    c.progress = progress_fn;
    c.user = user;
    c.n_all = n_layer + n_layer * (n_layer - 1) / 2;
    attn_status status = c.composers ? ATTN_OK : ATTN_E_MEMORY;
    for (size_t i = 0; i < n_layer && status == ATTN_OK; i++) {
        status = lens_prepare(ctx, &c.composers[i], model, i, kind);
        if (status == ATTN_OK)
            status = lens_composed(&c);
    }
    for (size_t i = 1; i < n_layer && status == ATTN_OK; i++)
        status = lens_compose_with(ctx, result.numbers, &c, i);
    for (size_t i = 0; i < n_layer && c.composers; i++) {
        attn_tensor_free(ctx, &c.composers[i].written);
        attn_tensor_free(ctx, &c.composers[i].read);
        attn_tensor_free(ctx, &c.composers[i].norm_written);
        attn_tensor_free(ctx, &c.composers[i].norm_read);
    }
    attn_free(c.composers);
    return lens_finish(ctx, &result, status);
}

/* out [L, H, L, H]: entry [i, j, l, h] says how much head h of layer l composes with head j of the earlier
 * layer i. 0 if i is not earlier than l. (TransformerLens's all_composition_scores.) */
LENS_FN attn_status lens_composition_scores(attn_ctx *ctx, attn_tensor *out,
                                            const attn_model *model, lens_composition_kind kind)
{
    return lens_composition_scores_told(ctx, out, model, kind, NULL, NULL);
}

#endif
