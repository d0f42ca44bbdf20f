/* Tier 1 without its arithmetic: tensors, views, data types, ownership, messages. */
#include "tests/support/test.h"
#include "examples/from_scratch/format.h"
#include "tests/support/fixture.h"
#include "examples/from_scratch/torch.h"
#include "tools/write/model_file.h"

SUITE();

static float numbers[120]; /* 0, 1, 2 ... */

/* numbers as a tensor of up to four dimensions; 0 ends the list. */
static attn_tensor counting(size_t d0, size_t d1, size_t d2, size_t d3)
{
    attn_shape shape = {0, {1, 1, 1, 1}};
    const size_t dims[4] = {d0, d1, d2, d3};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        numbers[i] = (float)i;
    while (shape.ndim < 4 && dims[shape.ndim]) {
        shape.dim[shape.ndim] = dims[shape.ndim];
        shape.ndim++;
    }
    return attn_borrow(numbers, ATTN_F32, shape);
}

static int is_shape(attn_tensor x, int ndim, size_t d0, size_t d1, size_t d2, size_t d3)
{
    return x.ndim == ndim && x.shape[0] == d0 && x.shape[1] == d1 && x.shape[2] == d2 &&
           x.shape[3] == d3;
}

/* A view that could not be made: no dimensions, and a reason. */
static int is_refused(attn_tensor x)
{
    return x.ndim == 0 && x.error && x.error[0];
}

/* ---- making tensors ----------------------------------------------------------------------- */

TEST(shapes)
{
    attn_shape s = attn_shape1(5);
    CHECK(s.ndim == 1 && s.dim[0] == 5);
    s = attn_shape2(5, 6);
    CHECK(s.ndim == 2 && s.dim[0] == 5 && s.dim[1] == 6);
    s = attn_shape3(5, 6, 7);
    CHECK(s.ndim == 3 && s.dim[0] == 5 && s.dim[1] == 6 && s.dim[2] == 7);
    s = attn_shape4(5, 6, 7, 8);
    CHECK(s.ndim == 4 && s.dim[0] == 5 && s.dim[1] == 6 && s.dim[2] == 7 && s.dim[3] == 8);
}

TEST(borrowed)
{
    attn_tensor x = counting(2, 3, 4, 5);
    CHECK(is_shape(x, 4, 2, 3, 4, 5));
    CHECK(x.stride[0] == 60 && x.stride[1] == 20 && x.stride[2] == 5 && x.stride[3] == 1);
    CHECK(x.data == numbers && x.owned == NULL && x.error == NULL && x.dtype == ATTN_F32);
    CHECK(attn_count(x) == 120 && is_dense(x));
    CHECK(attn_get4(x, 1, 2, 3, 4) == 119.0f && attn_get4(x, 1, 0, 2, 1) == 71.0f);
    x = counting(7, 0, 0, 0);
    CHECK(is_shape(x, 1, 7, 1, 1, 1) && x.stride[0] == 1);
    CHECK(x.stride[1] == 0 && x.stride[2] == 0 && x.stride[3] == 0);
    EQUAL(attn_get1(x, 3), 3.0f);
}

TEST(get_out_of_range)
{
    attn_tensor x = counting(2, 3, 0, 0), none;
    memset(&none, 0, sizeof none);
    CHECK(isnan(attn_get2(x, 2, 0)) && isnan(attn_get2(x, 0, 3)));
    CHECK(isnan(attn_get2(x, SIZE_MAX, 0)) && isnan(attn_get2(x, 0, SIZE_MAX)));
    CHECK(isnan(attn_get1(none, 0)));
    CHECK(isnan(attn_get2(attn_slice(x, 0, 1, 0), 0, 0)));
}

TEST(bad_shapes)
{
    attn_ctx ctx = {0};
    attn_tensor x = {0};
    attn_shape shape = attn_shape2(2, 3);
    shape.ndim = 0;
    CHECK(is_refused(attn_borrow(numbers, ATTN_F32, shape)));
    CHECK(attn_zeros(&ctx, &x, ATTN_F32, shape) != ATTN_OK && ctx.message[0] && x.ndim == 0);
    shape.ndim = 5;
    CHECK(is_refused(attn_borrow(numbers, ATTN_F32, shape)));
    CHECK(attn_zeros(&ctx, &x, ATTN_F32, shape) != ATTN_OK && x.ndim == 0);
    shape.ndim = -1;
    CHECK(is_refused(attn_borrow(numbers, ATTN_F32, shape)));
    CHECK(attn_zeros(&ctx, &x, ATTN_F32, shape) != ATTN_OK && x.ndim == 0);
    CHECK(attn_zeros(&ctx, &x, (attn_dtype)9, attn_shape1(1)) != ATTN_OK && x.ndim == 0);
    CHECK(ctx.blocks == NULL);
}

TEST(zeros)
{
    static const attn_dtype dtypes[] = {ATTN_F32, ATTN_F16, ATTN_I32};
    for (size_t d = 0; d < 3; d++) {
        meter m;
        attn_ctx ctx = metered(&m);
        attn_tensor x = {0};
        if (!OK(&ctx, attn_zeros(&ctx, &x, dtypes[d], attn_shape3(3, 5, 7))))
            return;
        CHECK(is_shape(x, 3, 3, 5, 7, 1) && x.dtype == dtypes[d] && is_dense(x));
        CHECK((uintptr_t)x.data % 64 == 0 && x.owned != NULL && m.live == 1);
        for (size_t i = 0; i < 105 * size_of(dtypes[d]); i++)
            if (!CHECK(((unsigned char *)x.data)[i] == 0))
                break;
        attn_tensor_free(&ctx, &x);
        CHECK(m.live == 0 && m.wrong == 0);
    }
}

/* Each getter reads tensors of its number of dimensions, and gives NaN for others. */
TEST(elements_by_their_indices)
{
    float values[120];
    for (size_t n = 0; n < 120; n++)
        values[n] = (float)n;
    {
        const attn_tensor a = attn_borrow(values, ATTN_F32, attn_shape1(120));
        const attn_tensor b = attn_borrow(values, ATTN_F32, attn_shape2(10, 12));
        const attn_tensor c = attn_borrow(values, ATTN_F32, attn_shape3(2, 5, 12));
        const attn_tensor d = attn_borrow(values, ATTN_F32, attn_shape4(2, 5, 3, 4));
        CHECK(attn_get1(a, 119) == 119 && isnan(attn_get1(a, 120)));
        CHECK(attn_get2(b, 9, 11) == 119 && isnan(attn_get2(b, 9, 12)) &&
              isnan(attn_get2(b, 10, 0)));
        CHECK(attn_get3(c, 1, 4, 11) == 119 && isnan(attn_get3(c, 1, 5, 11)) &&
              isnan(attn_get3(c, 1, 4, SIZE_MAX)));
        CHECK(attn_get4(d, 1, 4, 2, 3) == 119 && isnan(attn_get4(d, 1, 4, 3, 3)) &&
              isnan(attn_get4(d, 1, 4, 2, 4)));
        CHECK(attn_get2(attn_transpose(b, 0, 1), 3, 2) == 27);
        CHECK(isnan(attn_get1(b, 0)) && isnan(attn_get2(a, 0, 0)) && isnan(attn_get3(b, 0, 0, 0)) &&
              isnan(attn_get4(c, 0, 0, 0, 0)) && isnan(attn_get3(d, 0, 0, 0)));
    }
    {
        const attn_tensor none = {0};
        CHECK(isnan(attn_get1(none, 0)) && isnan(attn_get4(none, 0, 0, 0, 0)));
    }
}

TEST(sizes_that_overflow)
{
    meter m; /* its allocator refuses such sizes without a word from a sanitizer */
    attn_ctx ctx = metered(&m);
    attn_tensor x = {0};
    const size_t huge = SIZE_MAX / 2 + 2;
    float one = 1;
    CHECK(attn_zeros(&ctx, &x, ATTN_F32, attn_shape2(huge, 4)) != ATTN_OK && x.ndim == 0);
    CHECK(attn_zeros(&ctx, &x, ATTN_F32, attn_shape4(huge, huge, huge, huge)) != ATTN_OK);
    CHECK(attn_zeros(&ctx, &x, ATTN_F32, attn_shape1(SIZE_MAX / 4)) != ATTN_OK);
    CHECK(attn_zeros(&ctx, &x, ATTN_F32, attn_shape1(SIZE_MAX / 4 - 30)) != ATTN_OK);
    CHECK(x.ndim == 0 && ctx.message[0]);
    /* Empty inputs whose product would not fit; nothing of them is ever read. */
    attn_tensor tall = attn_borrow(&one, ATTN_F32, attn_shape2(huge, 0));
    attn_tensor wide = attn_borrow(&one, ATTN_F32, attn_shape2(0, huge));
    ctx.status = ATTN_OK;
    CHECK(attn_matmul(&ctx, &x, tall, wide) != ATTN_OK && ctx.message[0] && x.ndim == 0);
    tall = attn_borrow(&one, ATTN_F32, attn_shape2(1, 1));
    wide = attn_borrow(&one, ATTN_F32, attn_shape1(1));
    tall.shape[0] = huge;
    tall.stride[0] = 0;
    wide.shape[0] = huge;
    wide.stride[0] = 0;
    ctx.status = ATTN_OK;
    CHECK(attn_add(&ctx, &x, tall, wide) != ATTN_OK && ctx.message[0] && x.ndim == 0);
    CHECK(attn_copy(&ctx, &x, tall) != ATTN_OK && x.ndim == 0);
    CHECK(ctx.blocks == NULL);
}

TEST(ownership)
{
    meter m, m2;
    attn_ctx ctx = metered(&m), other = metered(&m2);
    attn_tensor a = {0}, b = {0}, c = {0};
    OK(&ctx, attn_zeros(&ctx, &a, ATTN_F32, attn_shape1(4)));
    OK(&ctx, attn_zeros(&ctx, &b, ATTN_F32, attn_shape1(5)));
    OK(&other, attn_zeros(&other, &c, ATTN_F32, attn_shape1(6)));
    attn_tensor view = attn_slice(b, 0, 1, 2);
    CHECK(view.owned == NULL);
    attn_tensor_free(&ctx, &view); /* safe on views ... */
    EQUAL(m.live, 2);
    attn_tensor_free(&ctx, &b);
    CHECK(m.live == 1 && b.owned == NULL);
    attn_tensor_free(&ctx, &b); /* ... and twice */
    EQUAL(m.live, 1);
    view = counting(3, 0, 0, 0);
    attn_tensor_free(&ctx, &view);
    CHECK(numbers[2] == 2.0f && m.live == 1);
    OK(&ctx, attn_zeros(&ctx, &b, ATTN_F32, attn_shape1(5)));
    attn_ctx_free(&ctx); /* only what this context made */
    CHECK(m.live == 0 && m.wrong == 0 && m2.live == 1 && ctx.blocks == NULL);
    attn_ctx_free(&ctx);
    attn_ctx_free(&other);
    CHECK(m.live == 0 && m2.live == 0 && m.wrong == 0 && m2.wrong == 0);
}

TEST(freed_in_any_order)
{
    meter m;
    attn_ctx ctx = metered(&m);
    attn_tensor x[40];
    size_t i, round;
    memset(x, 0, sizeof x);
    random_state = 5;
    for (round = 0; round < 400; round++) {
        i = random_below(40);
        if (x[i].ndim)
            attn_tensor_free(&ctx, &x[i]);
        else
            OK(&ctx, attn_zeros(&ctx, &x[i], ATTN_F32, attn_shape1(1 + i)));
        if (x[i].owned == NULL)
            memset(&x[i], 0, sizeof x[i]);
    }
    for (i = round = 0; i < 40; i++)
        round += x[i].ndim != 0;
    CHECKF(m.live == (long)round, "%ld blocks for %d tensors", m.live, (int)round);
    attn_ctx_free(&ctx);
    CHECK(m.live == 0 && m.wrong == 0);
}

/* ---- views --------------------------------------------------------------------------------- */

TEST(transposes)
{
    attn_tensor x = counting(2, 3, 4, 0), y = attn_transpose(x, 0, 2);
    CHECK(is_shape(y, 3, 4, 3, 2, 1) && y.data == x.data && y.owned == NULL);
    CHECK(attn_get3(y, 3, 1, 0) == attn_get3(x, 0, 1, 3) && !is_dense(y));
    y = attn_transpose(x, -1, -2);
    CHECK(is_shape(y, 3, 2, 4, 3, 1) && attn_get3(y, 1, 3, 2) == attn_get3(x, 1, 2, 3));
    y = attn_transpose(attn_transpose(x, 0, -1), -1, 0);
    CHECK(is_shape(y, 3, 2, 3, 4, 1) && is_dense(y));
    y = attn_transpose(x, 1, 1);
    CHECK(is_shape(y, 3, 2, 3, 4, 1) && is_dense(y));
    y = attn_transpose(x, -3, 0);
    CHECK(is_shape(y, 3, 2, 3, 4, 1));
    CHECK(is_refused(attn_transpose(x, 0, 3)) && is_refused(attn_transpose(x, -4, 0)));
    CHECK(is_refused(attn_transpose(counting(5, 0, 0, 0), -1, -2)));
    CHECK(is_refused(attn_transpose(x, 0x7FFFFFFF, 0)) &&
          is_refused(attn_transpose(x, 0, -0x7FFFFFFF - 1)));
}

TEST(slices)
{
    attn_tensor x = counting(4, 6, 0, 0), y = attn_slice(x, 1, 2, 3);
    CHECK(is_shape(y, 2, 4, 3, 1, 1) && y.stride[0] == 6 && !is_dense(y) && y.owned == NULL);
    CHECK(attn_get2(y, 3, 2) == 22.0f && isnan(attn_get2(y, 3, 3)));
    y = attn_slice(x, 0, 1, 2);
    CHECK(is_shape(y, 2, 2, 6, 1, 1) && is_dense(y) && attn_get2(y, 0, 0) == 6.0f);
    y = attn_slice(attn_slice(x, -2, 1, 3), -1, 1, 4);
    CHECK(is_shape(y, 2, 3, 4, 1, 1) && attn_get2(y, 2, 3) == 22.0f);
    y = attn_slice(x, 1, 0, 6);
    CHECK(is_shape(y, 2, 4, 6, 1, 1) && is_dense(y));
    y = attn_slice(x, 1, 6, 0); /* empty at the very end */
    CHECK(is_shape(y, 2, 4, 0, 1, 1) && attn_count(y) == 0 && is_dense(y));
    CHECK(is_refused(attn_slice(x, 1, 6, 1)) && is_refused(attn_slice(x, 1, 7, 0)));
    CHECK(is_refused(attn_slice(x, 0, 0, 5)) && is_refused(attn_slice(x, 2, 0, 1)));
    CHECK(is_refused(attn_slice(x, -3, 0, 1)) && is_refused(attn_slice(x, 0, SIZE_MAX, 2)));
    CHECK(is_refused(attn_slice(x, 0, 2, SIZE_MAX)));
}

TEST(selects)
{
    attn_tensor x = counting(2, 3, 4, 0), y = attn_select(x, 1, 2);
    CHECK(is_shape(y, 2, 2, 4, 1, 1) && attn_get2(y, 1, 3) == 23.0f && y.owned == NULL);
    y = attn_select(x, -1, 3);
    CHECK(is_shape(y, 2, 2, 3, 1, 1) && attn_get2(y, 1, 1) == 19.0f);
    y = attn_select(attn_select(x, 0, 1), 0, 0);
    CHECK(is_shape(y, 1, 4, 1, 1, 1) && attn_get1(y, 2) == 14.0f && y.stride[1] == 0);
    CHECK(is_refused(attn_select(x, 0, 2)) && is_refused(attn_select(x, 3, 0)));
    CHECK(is_refused(attn_select(x, 0, SIZE_MAX)) && is_refused(attn_select(x, -4, 0)));
    y = attn_select(y, 0, 1); /* one number needs one dimension */
    CHECK(is_refused(y) || (is_shape(y, 1, 1, 1, 1, 1) && attn_get1(y, 0) == 13.0f));
}

static int is_one_row(attn_tensor x)
{
    const attn_tensor row = attn_reshape(x, attn_shape1(attn_count(x)));
    return row.ndim == 1 && (row.stride[0] == 1 || row.shape[0] == 1);
}

/* As one dimension, a tensor without gaps has a stride of 1. */
TEST(density)
{
    attn_tensor x = counting(4, 5, 0, 0);
    CHECK(!is_one_row(attn_transpose(x, 0, 1)) && !is_one_row(attn_slice(x, 1, 0, 1)));
    CHECK(is_one_row(attn_slice(attn_slice(x, 0, 1, 1), 1, 1, 1)));
    CHECK(is_one_row(attn_slice(attn_slice(x, 0, 1, 1), 1, 1, 2))); /* one row has no gaps */
    CHECK(is_one_row(attn_transpose(counting(1, 7, 0, 0), 0, 1)));
    CHECK(is_one_row(attn_transpose(counting(3, 1, 5, 0), 0, 1)));
    CHECK(!is_one_row(attn_transpose(counting(3, 2, 1, 0), 0, 1)));
}

TEST(views_of_views_that_failed)
{
    attn_tensor bad = attn_slice(counting(2, 3, 0, 0), 0, 5, 1);
    const char *reason = bad.error;
    attn_ctx ctx = {0};
    attn_tensor out = {0}, none = {0};
    CHECK(is_refused(bad));
    attn_tensor y = attn_transpose(bad, 0, 1);
    CHECK(y.ndim == 0 && y.error == reason);
    y = attn_slice(bad, 0, 0, 1);
    CHECK(y.ndim == 0 && y.error == reason);
    y = attn_select(bad, 0, 0);
    CHECK(y.ndim == 0 && y.error == reason);
    y = attn_reshape(bad, attn_shape1(1));
    CHECK(y.ndim == 0 && y.error == reason);
    CHECK(attn_count(bad) == 0 && isnan(attn_get1(bad, 0)));
    CHECK(attn_transpose(none, 0, 1).ndim == 0 && attn_slice(none, 0, 0, 0).ndim == 0);
    CHECK(attn_select(none, 0, 0).ndim == 0 && attn_reshape(none, attn_shape1(1)).ndim == 0);
    EQUAL(attn_count(none), 0);
    CHECK(attn_copy(&ctx, &out, attn_transpose(bad, 0, 1)) != ATTN_OK && out.ndim == 0);
    CHECKF(ctx.status != ATTN_OK && reason && strstr(ctx.message, reason),
           "\"%s\" does not say \"%s\"", ctx.message, reason ? reason : "why");
}

/* Whether a shape can be a view of x at all: its strides are forced by where the elements lie, so
 * try them on every element. */
static int can_view(attn_tensor x, attn_shape shape)
{
    attn_tensor y = x;
    size_t step = 1;
    y.ndim = shape.ndim;
    for (int d = 0; d < 4; d++)
        y.shape[d] = d < shape.ndim ? shape.dim[d] : 1;
    for (int d = shape.ndim - 1; d >= 0; d--) {
        y.stride[d] = y.shape[d] > 1 ? (float *)element(x, step) - (float *)x.data : 0;
        step *= y.shape[d];
    }
    for (size_t i = 0; i < count_of(x); i++)
        if (element(x, i) != element(y, i))
            return 0;
    return 1;
}

static attn_shape random_factors(size_t count)
{
    attn_shape shape = {0, {1, 1, 1, 1}};
    shape.ndim = 1 + (int)random_below(4);
    for (int d = 0; d < shape.ndim - 1; d++) {
        size_t factor = 1 + random_below(count < 13 ? count : 13);
        while (count % factor)
            factor--;
        shape.dim[d] = factor;
        count /= factor;
    }
    shape.dim[shape.ndim - 1] = count;
    return shape;
}

TEST(reshapes)
{
    int viewed = 0, refused = 0;
    random_state = 77;
    for (int round = 0; round < 20000; round++) {
        attn_tensor x = counting(120, 0, 0, 0);
        x = attn_reshape(x, random_factors(120));
        for (int step = (int)random_below(4); step > 0; step--) {
            const int dim = (int)random_below((size_t)x.ndim);
            const size_t start = random_below(x.shape[dim]);
            if (random_below(2))
                x = attn_transpose(x, dim, (int)random_below((size_t)x.ndim));
            else
                x = attn_slice(x, dim, start, 1 + random_below(x.shape[dim] - start));
        }
        if (!CHECKF(x.ndim > 0, "%s", x.error ? x.error : "no view"))
            return;
        attn_shape shape = random_factors(count_of(x));
        attn_tensor y = attn_reshape(x, shape);
        if (y.ndim == 0) {
            CHECKF(!can_view(x, shape) && is_refused(y), "%s was not reshaped", shape_text(x));
            refused++;
            continue;
        }
        viewed++;
        CHECK(y.ndim == shape.ndim &&
              memcmp(y.shape, shape.dim, (size_t)y.ndim * sizeof(size_t)) == 0);
        for (size_t i = 0; i < count_of(x); i++)
            if (!CHECKF(element(x, i) == element(y, i), "%s to %s moved element %d", shape_text(x),
                        shape_text(y), (int)i))
                return;
    }
    CHECKF(viewed > 5000 && refused > 3000, "%d views, %d refusals", viewed, refused);
}

TEST(reshape_rules)
{
    attn_tensor x = counting(2, 5, 12, 0);
    /* One head of several out of a row that holds queries, keys and values. */
    attn_tensor y = attn_reshape(attn_slice(x, -1, 4, 4), attn_shape4(2, 5, 2, 2));
    CHECK(is_shape(y, 4, 2, 5, 2, 2) && attn_get4(y, 1, 4, 1, 0) == attn_get3(x, 1, 4, 6));
    y = attn_transpose(y, 1, 2); /* [B, H, T, d] */
    CHECK(is_refused(attn_reshape(y, attn_shape3(2, 5, 4))));
    y = attn_reshape(attn_transpose(y, 1, 2), attn_shape3(2, 5, 4)); /* heads joined again */
    CHECK(is_shape(y, 3, 2, 5, 4, 1) && attn_get3(y, 1, 2, 3) == attn_get3(x, 1, 2, 7));
    CHECK(is_refused(attn_reshape(x, attn_shape2(11, 11))));
    CHECK(is_refused(attn_reshape(x, attn_shape1(119))) &&
          is_refused(attn_reshape(x, attn_shape2(120, 0))));
    CHECK(is_refused(attn_reshape(x, attn_shape2(SIZE_MAX, 120))));
    CHECK(is_refused(attn_reshape(x, attn_shape4((size_t)1 << 30, (size_t)1 << 30, 16, 15))));
    y = attn_reshape(attn_slice(x, 1, 0, 0), attn_shape2(0, 7)); /* nothing has any shape */
    CHECK(is_shape(y, 2, 0, 7, 1, 1));
    CHECK(is_refused(attn_reshape(attn_slice(x, 1, 0, 0), attn_shape2(1, 7))));
}

/* ---- copies and data types ----------------------------------------------------------------- */

TEST(copies)
{
    SCOPED_CTX ctx = {0};
    static const size_t shape[4] = {3, 4, 5, 2};
    random_state = 9;
    for (int ndim = 1; ndim <= 4; ndim++) {
        for (int layout = 0; layout < N_LAYOUTS; layout++) {
            attn_tensor x = new_tensor(ATTN_F32, ndim, shape, layout), out = {0};
            for (size_t i = 0; i < count_of(x); i++)
                set_value(x, i, random_float());
            if (!OK(&ctx, attn_copy(&ctx, &out, x)))
                break;
            CHECK(is_dense(out) && out.owned != NULL && out.data != x.data);
            same_bits(out, x, "copy");
            attn_tensor into = new_tensor(ATTN_F32, ndim, shape, (layout + 2) % N_LAYOUTS);
            OK(&ctx, attn_copy(&ctx, &into, x));
            same_bits(into, x, "copy into another layout");
            for (size_t i = 0; i < count_of(x); i++) {
                size_t at[4] = {0, 0, 0, 0}, left = i;
                for (int d = ndim - 1; d >= 0; d--) {
                    at[d] = left % shape[d];
                    left /= shape[d];
                }
                const float got = ndim == 1   ? attn_get1(x, at[0])
                                  : ndim == 2 ? attn_get2(x, at[0], at[1])
                                  : ndim == 3 ? attn_get3(x, at[0], at[1], at[2])
                                              : attn_get4(x, at[0], at[1], at[2], at[3]);
                CHECK((double)got == value_of(x, i));
            }
        }
    }
}

TEST(copy_keeps_or_converts_types)
{
    SCOPED_CTX ctx = {0};
    static uint16_t halfs[3] = {0x3C00, 0xC000, 0x7BFF};
    static int32_t ints[3] = {7, -3, 16777217};
    static const size_t four = 4;
    attn_tensor h = attn_borrow(halfs, ATTN_F16, attn_shape1(3)), out = {0};
    attn_tensor n = attn_borrow(ints, ATTN_I32, attn_shape1(3));
    OK(&ctx, attn_copy(&ctx, &out, h)); /* a copy has the type of what it copies */
    same_bits(out, h, "f16 to f16");
    CHECK(attn_get1(h, 1) == -2.0f && attn_get1(n, 0) == 7.0f);
    memset(&out, 0, sizeof out);
    OK(&ctx, attn_copy(&ctx, &out, n));
    same_bits(out, n, "i32 to i32");
    attn_tensor into = new_tensor(ATTN_F32, 1, h.shape, LAYOUT_EVERY_2);
    OK(&ctx, attn_copy(&ctx, &into, h));
    CHECK(value_of(into, 0) == 1 && value_of(into, 1) == -2 && value_of(into, 2) == 65504);
    OK(&ctx, attn_copy(&ctx, &into, n));
    CHECK(value_of(into, 0) == 7 && value_of(into, 1) == -3 && value_of(into, 2) == 16777216);
    into = new_tensor(ATTN_I32, 1, h.shape, LAYOUT_ROW_GAPS); /* floats never become integers */
    FAILS(ARGUMENT, "integers", attn_copy(&ctx, &into, h));
    EQUAL(value_of(into, 0), INT32_MAX);
    OK(&ctx, attn_copy(&ctx, &into, n));
    same_bits(into, n, "i32 into i32");
    into = new_tensor(ATTN_F16, 1, h.shape, LAYOUT_BACKWARD);
    OK(&ctx, attn_copy(&ctx, &into, n));
    CHECK(value_of(into, 0) == 7 && value_of(into, 1) == -3 && isinf(value_of(into, 2)));
    into = new_tensor(ATTN_F32, 1, &four, LAYOUT_DENSE);
    FAILS(SHAPE, "[4]", attn_copy(&ctx, &into, h));
    CHECK(strstr(ctx.message, "[3]") != NULL && isnan(value_of(into, 0)));
}

TEST(every_half_widens)
{
    uint32_t bits;
    for (uint32_t h = 0; h < 65536; h++) {
        const float got = attn_f32_from_f16((uint16_t)h);
        const double want = half_value((uint16_t)h);
        if (isnan(want)) {
            CHECKF(isnan(got), "%04x gave %g", (unsigned)h, (double)got);
            CHECKF((attn_f16_from_f32(got) & 0x7C00) == 0x7C00 &&
                       (attn_f16_from_f32(got) & 0x3FF) != 0,
                   "NaN %04x did not come back as NaN", (unsigned)h);
            /* its payload stays and it is quiet, as processors have it */
            memcpy(&bits, &got, sizeof bits);
            CHECKF(bits == ((h & 0x8000) << 16 | 0x7FC00000 | (h & 0x3FF) << 13), "%04x gave %08x",
                   (unsigned)h, (unsigned)bits);
            continue;
        }
        CHECKF((double)got == want && !signbit(got) == !(h >> 15), "%04x gave %a, expected %a",
               (unsigned)h, (double)got, want);
        CHECKF(attn_f16_from_f32(got) == h, "%04x came back as %04x", (unsigned)h,
               (unsigned)attn_f16_from_f32(got));
    }
}

static void check_narrowing(float value)
{
    CHECKF(attn_f16_from_f32(value) == half_of(value), "%a gave %04x, expected %04x", (double)value,
           (unsigned)attn_f16_from_f32(value), (unsigned)half_of(value));
}

TEST(narrowing_rounds_to_even)
{
    attn_tensor x, y;
    for (uint32_t h = 0; h < 0x7C00; h++) {
        /* 65536 stands for what would follow the largest half. */
        const double low = half_value((uint16_t)h);
        const double high = h == 0x7BFF ? 65536.0 : half_value((uint16_t)(h + 1));
        const float middle = (float)((low + high) / 2);
        check_narrowing(middle);
        check_narrowing(nextafterf(middle, 0.0f));
        check_narrowing(nextafterf(middle, 1e9f));
        check_narrowing(-middle);
        check_narrowing(nextafterf(-middle, -1e9f));
    }
    random_state = 3;
    for (uint32_t h = 0; h < 300000; h++) {
        const uint32_t bits = random_u32();
        float value;
        memcpy(&value, &bits, 4);
        if (!isnan(value))
            check_narrowing(value);
    }
    CHECK(attn_f16_from_f32(65504.0f) == 0x7BFF && attn_f16_from_f32(65519.996f) == 0x7BFF);
    CHECK(attn_f16_from_f32(65520.0f) == 0x7C00 && attn_f16_from_f32(-1e30f) == 0xFC00);
    CHECK(attn_f16_from_f32(INFINITY) == 0x7C00 && attn_f16_from_f32(-INFINITY) == 0xFC00);
    CHECK((attn_f16_from_f32(NAN) & 0x7FFF) > 0x7C00);
    CHECK(attn_f16_from_f32(ldexpf(1, -25)) == 0 && attn_f16_from_f32(-0.0f) == 0x8000);
    CHECK(attn_f16_from_f32(nextafterf(ldexpf(1, -25), 1)) == 1);
    /* numpy and PyTorch agree. */
    if (!CHECK(fixture(&x, "half.0.x") && fixture(&y, "half.0.h")))
        return;
    for (size_t i = 0; i < count_of(x); i++)
        CHECKF(attn_f16_from_f32(((const float *)x.data)[i]) == ((const uint16_t *)y.data)[i],
               "half number %d", (int)i);
}

/* Tensors convert by the same rules, whatever kernel does it. */
TEST(tensors_convert_like_numbers)
{
    static const attn_isa_kind kinds[] = {
        ATTN_ISA_PORTABLE,  ATTN_ISA_BASE,     ATTN_ISA_AVX2,
        ATTN_ISA_AVX512,    ATTN_ISA_NEON,     ATTN_ISA_AVX512_VNNI,
        ATTN_ISA_AVX2_VNNI, ATTN_ISA_NEON_DOT, ATTN_ISA_NEON_I8MM};
    static uint16_t halfs[65536];
    for (size_t i = 0; i < 65536; i++)
        halfs[i] = (uint16_t)i;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        attn_tensor all = attn_borrow(halfs, ATTN_F16, attn_shape2(256, 256));
        attn_ctx ctx = {.isa = kinds[k]};
        if (attn_isa(&ctx) == NULL)
            continue;
        attn_tensor wide = new_tensor(ATTN_F32, 2, all.shape, LAYOUT_DENSE);
        attn_tensor narrow = new_tensor(ATTN_F16, 2, all.shape, LAYOUT_ROW_GAPS);
        OK(&ctx, attn_copy(&ctx, &wide, all));
        OK(&ctx, attn_copy(&ctx, &narrow, wide));
        same_bits(narrow, all, attn_isa(&ctx));
        for (size_t i = 0; i < 65536; i++) {
            const double got = value_of(wide, i), want = half_value((uint16_t)i);
            CHECKF(got == want || (isnan(got) && isnan(want)), "%04x gave %a", (unsigned)i, got);
        }
        random_state = 11 + k;
        for (size_t i = 0; i < 65536; i++) {
            uint32_t bits = random_u32();
            float value;
            bits = (bits & 0x8FFFFFFFu) | (random_u32() & 1 ? 0x30000000u : 0x40000000u);
            memcpy(&value, &bits, 4); /* exponents around those of halfs */
            set_value(wide, i, value);
        }
        OK(&ctx, attn_copy(&ctx, &narrow, wide));
        same_bits(narrow, laid_out(wide, ATTN_F16, LAYOUT_DENSE), attn_isa(&ctx));
        pool_clear();
    }
}

/* ---- errors -------------------------------------------------------------------------------- */

TEST(status_names)
{
    CHECK(strcmp(attn_status_name(ATTN_OK), "ATTN_OK") == 0);
    CHECK(strcmp(attn_status_name(ATTN_E_SHAPE), "ATTN_E_SHAPE") == 0);
    CHECK(strcmp(attn_status_name(ATTN_E_TOKENIZER), "ATTN_E_TOKENIZER") == 0);
    CHECK(strcmp(attn_status_name(ATTN_STOPPED), "ATTN_STOPPED") == 0);
    for (int status = 0; status <= ATTN_STOPPED; status++)
        CHECK(strncmp(attn_status_name((attn_status)status), "ATTN_", 5) == 0);
    CHECK(attn_status_name((attn_status)1000) != NULL && attn_status_name((attn_status)-1) != NULL);
    CHECK(attn_version() == ATTN_VERSION);
}

/* What follows a failure names its own call and quotes the first failure; a success changes nothing. */
TEST(the_first_failure_is_quoted)
{
    SCOPED_CTX ctx = {0};
    attn_tensor a = counting(2, 3, 0, 0), scores = {0}, pattern = {0}, sum = {0}, copy = {0};
    char first[256];
    FAILS(SHAPE, "[2, 3]", attn_matmul(&ctx, &scores, a, a));
    EQUAL(scores.ndim, 0);
    memcpy(first, ctx.message, sizeof first);
    FAILS(ARGUMENT,
          "attn_softmax: x is no tensor (attn_zeros makes one); before that: attn_matmul: ",
          attn_softmax(&ctx, &pattern, scores));
    EQUAL(pattern.ndim, 0);
    FAILS(ARGUMENT, "attn_add: b is no tensor (attn_zeros makes one); before that: attn_matmul: ",
          attn_add(&ctx, &sum, a, pattern));
    CHECK(strcmp(strstr(ctx.message, "attn_matmul"), first) == 0);
    CHECK(attn_copy(&ctx, &copy, attn_transpose(scores, 0, 1)) == ATTN_E_ARGUMENT);
    CHECK(strcmp(strstr(ctx.message, "attn_matmul"), first) == 0);
    memcpy(first, ctx.message, sizeof first);
    OK(&ctx, attn_add(&ctx, &sum, a, a)); /* a success erases nothing */
    CHECK(ctx.status == ATTN_E_ARGUMENT && strcmp(ctx.message, first) == 0);
}

TEST(a_missing_tensor_is_reported)
{
    attn_ctx ctx = {0};
    attn_tensor none = {0}, out = {0}, a = counting(2, 3, 0, 0);
    FAILS(ARGUMENT, "attn_softmax: x is no tensor (attn_zeros makes one)",
          attn_softmax(&ctx, &out, none));
    memset(&ctx, 0, sizeof ctx);
    FAILS(ARGUMENT, "attn_matmul: b is no tensor (attn_zeros makes one)",
          attn_matmul(&ctx, &out, a, none));
    attn_fail(&ctx, ATTN_E_IO, "an optional file cannot be read"); /* and was not needed */
    FAILS(ARGUMENT,
          "attn_copy: x is no tensor (attn_zeros makes one); before that: an optional file",
          attn_copy(&ctx, &out, none));
    EQUAL(out.ndim, 0);
}

TEST(no_memory)
{
    meter m;
    attn_ctx ctx = metered(&m);
    attn_tensor x = {0}, a = counting(2, 3, 0, 0);
    m.fail_at = 0;
    FAILS(MEMORY, "bytes", attn_zeros(&ctx, &x, ATTN_F32, attn_shape2(2, 3)));
    CHECK(x.ndim == 0 && x.data == NULL && x.owned == NULL && m.live == 0);
    m.asked = 0;
    FAILS(MEMORY, "bytes", attn_copy(&ctx, &x, a));
    CHECK(x.ndim == 0 && m.live == 0 && ctx.blocks == NULL);
    m.fail_at = -1;
    OK(&ctx, attn_copy(&ctx, &x, a));
    attn_ctx_free(&ctx);
    EQUAL(m.live, 0);
}

TEST(bad_panels)
{
    CHECK(model_panels_size(ATTN_F32, 1, SIZE_MAX) == 0);
    CHECK(model_panels_size(ATTN_F32, 2, SIZE_MAX / 8 + 1) == 0);
    CHECK(model_panels_size(ATTN_PANELS, 2, 2) == 0);
}

/* What a failed malloc leads to must not be read. */
TEST(borrowing_nothing)
{
    attn_ctx ctx = {0};
    attn_tensor x = attn_borrow(NULL, ATTN_F32, attn_shape2(2, 2)), out = {0};
    CHECK(x.ndim == 0 && strstr(x.error, "no data"));
    FAILS(ARGUMENT, "no data", attn_exp(&ctx, &out, x));
    CHECK(attn_borrow(NULL, ATTN_F32, attn_shape2(0, 2)).ndim == 2);
    CHECK(attn_borrow(&out, ATTN_Q8, attn_shape2(2, 2)).ndim == 0);
    FAILS(SHAPE, "type 3", attn_zeros(&ctx, &out, ATTN_Q8, attn_shape2(2, 2)));
}

/* A copy of a context has its settings and none of its tensors, whichever is freed first. */
TEST(copied_contexts)
{
    meter m;
    attn_ctx ctx = metered(&m), copy;
    attn_tensor x = {0}, y = {0}, z = {0};
    for (int first = 0; first < 2; first++) {
        memset(&x, 0, sizeof x);
        memset(&y, 0, sizeof y);
        OK(&ctx, torch_full(&ctx, &x, attn_shape1(5), 1));
        copy = ctx;
        attn_tensor_free(&copy, &(attn_tensor){.owned = x.owned}); /* left for the other */
        EQUAL(m.live, 1);
        copy = ctx;
        OK(&copy, torch_full(&copy, &y, attn_shape1(7), 2));
        EQUAL(m.live, 2);
        attn_ctx_free(first ? &copy : &ctx);
        CHECK(m.live == 1 && (first ? attn_get1(x, 4) == 1 : attn_get1(y, 6) == 2));
        attn_ctx_free(first ? &ctx : &copy);
        CHECK(m.live == 0 && m.wrong == 0);
    }
    memset(&x, 0, sizeof x);
    OK(&ctx, torch_full(&ctx, &x, attn_shape1(5), 1));
    copy = ctx; /* of a context that has been freed: its list is gone */
    attn_ctx_free(&ctx);
    OK(&copy, torch_full(&copy, &z, attn_shape1(3), 3));
    attn_ctx_free(&copy);
    CHECK(m.live == 0 && m.wrong == 0);
    attn_ctx saved = ctx; /* put back where it was taken from */
    ctx.n_threads = 1;
    ctx = saved;
    memset(&x, 0, sizeof x);
    OK(&ctx, torch_full(&ctx, &x, attn_shape1(5), 1));
    saved = ctx;
    ctx = saved;
    attn_ctx_free(&ctx);
    CHECK(m.live == 0 && m.wrong == 0);
}

/* In any order, and through a context that did not make them. */
TEST(freed_through_another_context)
{
    static const int orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 2, 0, 3}, {2, 3, 1, 0}};
    meter m;
    attn_ctx ctx = metered(&m), another = {0};
    attn_tensor x[4], view;
    for (size_t order = 0; order < 4; order++) {
        for (size_t i = 0; i < 4; i++) {
            memset(&x[i], 0, sizeof x[i]);
            OK(&ctx, torch_full(&ctx, &x[i], attn_shape1(5), (float)i));
        }
        view = attn_slice(x[0], 0, 1, 2);
        attn_tensor_free(&ctx, &view);
        CHECK(m.live == 4 && view.ndim == 0);
        for (size_t i = 0; i < 4; i++) {
            attn_tensor_free(&ctx, &x[orders[order][i]]);
            attn_tensor_free(&ctx, &x[orders[order][i]]); /* none by now */
            CHECK(m.live == 3 - (long)i && x[orders[order][i]].ndim == 0);
        }
        CHECK(m.live == 0 && m.wrong == 0 && ctx.blocks == NULL);
    }
    for (size_t i = 0; i < 3; i++) {
        memset(&x[i], 0, sizeof x[i]);
        OK(&ctx, torch_full(&ctx, &x[i], attn_shape1(5), (float)i));
    }
    view = x[2];
    attn_tensor_free(&another, &view); /* left for the context that made it */
    CHECK(m.live == 3 && attn_get1(x[2], 4) == 2);
    attn_tensor_free(&another, &x[0]); /* gone from the other's chain */
    CHECK(m.live == 2 && m.wrong == 0);
    attn_ctx_free(&ctx);
    CHECK(m.live == 0 && m.wrong == 0);
}

/* What no function here makes. */
TEST(made_by_hand)
{
    attn_ctx ctx = {0};
    char text[40];
    float room[16] = {0};
    attn_tensor good = attn_borrow(room, ATTN_F32, attn_shape1(4)), bad = good, to = {0};
    bad.ndim = 9;
    FAILS(ARGUMENT, "x has 9 dimensions", attn_exp(&ctx, &to, bad));
    FAILS(ARGUMENT, "out has 9 dimensions", attn_copy(&ctx, &bad, good));
    bad.ndim = 1;
    bad.dtype = (attn_dtype)7;
    FAILS(ARGUMENT, "data type 7", attn_exp(&ctx, &to, bad));
    FAILS(ARGUMENT, "out has 1 dimensions and data type 7", attn_exp(&ctx, &bad, good));
    FAILS(ARGUMENT, "out has 1 dimensions and data type 7", attn_copy(&ctx, &bad, good));
    EQUAL(to.ndim, 0);
    bad = attn_borrow(room, ATTN_I32, attn_shape2(1, 2)); /* two times as many as SIZE_MAX counts */
    bad.shape[0] = SIZE_MAX / 2 + 1;
    FAILS(ARGUMENT, "more elements than memory can hold",
          attn_embedding(&ctx, &to, attn_borrow(room, ATTN_F32, attn_shape2(4, 4)), bad));
    FAILS(ARGUMENT, "more elements", attn_copy(&ctx, &to, bad));
    bad = attn_borrow(room, ATTN_F32, attn_shape1(4));
    bad.ndim = 7;
    CHECK(attn_transpose(bad, 5, 6).ndim == 0 && attn_slice(bad, 6, 0, 1).ndim == 0);
    CHECK(attn_select(bad, 5, 0).ndim == 0 && attn_reshape(bad, attn_shape1(4)).ndim == 0);
    CHECK(strstr(attn_reshape(bad, attn_shape1(4)).error, "1 to 4 dimensions") != NULL);
    CHECK(format_tensor(text, sizeof text, bad, 2) == strlen("tensor(none)"));
    CHECK(strcmp(text, "tensor(none)") == 0);
}

/* A variable that nobody wrote, with any byte all over: it is refused as an output and as an input, and
 * its `error` is not read as a text. */
TEST(not_zeroed)
{
    static const unsigned char bytes[] = {1, 0x7f, 0x80, 0xa5, 0xcc, 0xff};
    SCOPED_CTX ctx = {0};
    float room[16] = {0};
    const attn_tensor x = attn_borrow(room, ATTN_F32, attn_shape2(4, 4));
    attn_tensor out, same, none = {0};
    for (size_t i = 0; i < sizeof bytes; i++) {
        memset(&out, bytes[i], sizeof out);
        same = out;
        FAILS(ARGUMENT, "was the struct zeroed?", attn_exp(&ctx, &out, x));
        FAILS(ARGUMENT, "attn_add: out has ", attn_add(&ctx, &out, x, x));
        FAILS(ARGUMENT, "attn_copy: out has ", attn_copy(&ctx, &out, x));
        FAILS(ARGUMENT, "attn_matmul: out has ", attn_matmul(&ctx, &out, x, x));
        FAILS(ARGUMENT, "attn_softmax: out has ", attn_softmax(&ctx, &out, x));
        FAILS(ARGUMENT, "attn_sum: out has ", attn_sum(&ctx, &out, x));
        FAILS(ARGUMENT, "attn_layernorm: out has ",
              attn_layernorm(&ctx, &out, x, none, none, 1e-5f));
        FAILS(ARGUMENT, "attn_attention: out has ", attn_attention(&ctx, &out, x, x, x, NULL));
        FAILS(ARGUMENT, "torch_full: out must be ATTN_F32",
              torch_full(&ctx, &out, attn_shape1(3), 1));
        CHECK(memcmp(&out, &same, sizeof out) == 0);
        FAILS(ARGUMENT, "attn_exp: x has ", attn_exp(&ctx, &none, out));
        FAILS(ARGUMENT, "attn_matmul: b has ", attn_matmul(&ctx, &none, x, out));
        CHECK(none.ndim == 0);
    }
    out = attn_borrow(room, ATTN_F32, attn_shape1(3)); /* all but its error was written */
    memset(&out.error, 0xa5, sizeof out.error);
    FAILS(SHAPE, "but out has shape [3]", attn_exp(&ctx, &out, x));
}

static void *bump(size_t size, void *user)
{
    size_t *at = (size_t *)user;
    static double room[1 << 12];
    void *block = (char *)room + *at;
    *at += (size + 15) / 16 * 16;
    return *at <= sizeof room ? block : NULL;
}

/* An allocator that never takes anything back needs no free, and malloc's is not asked. */
TEST(an_allocator_without_free)
{
    size_t at = 0;
    attn_tensor x = no_tensor, y = no_tensor;
    attn_ctx ctx = {.alloc = bump, .user = &at};
    OK(&ctx, torch_full(&ctx, &x, attn_shape1(5), 2));
    OK(&ctx, attn_add(&ctx, &y, x, x));
    CHECK(at > 40 && attn_get1(y, 4) == 4);
    attn_tensor_free(&ctx, &x);
    attn_ctx_free(&ctx);
    CHECK(ctx.blocks == NULL);
}

/* Elements beyond the edge are not numbers, whichever edge. */
TEST(beyond_the_edge)
{
    const attn_tensor x = attn_reshape(some(3, 2, 3, 4), attn_shape4(2, 1, 3, 4));
    CHECK(!isnan(attn_get4(x, 1, 0, 2, 3)));
    CHECK(isnan(attn_get4(x, 2, 0, 0, 0)) && isnan(attn_get4(x, 0, 1, 0, 0)));
    CHECK(isnan(attn_get4(x, 0, 0, 3, 0)) && isnan(attn_get4(x, 0, 0, 0, 4)));
}

/* Infinities, NaNs, wide numbers, and more or fewer decimals than there are. */
TEST(printed_numbers)
{
    float values[4] = {INFINITY, -INFINITY, 1, 0};
    char text[512];
    values[3] = NAN;
    attn_tensor x = attn_borrow(values, ATTN_F32, attn_shape1(4));
    format_tensor(text, sizeof text, x, 2);
    CHECKF(strstr(text, "inf") && strstr(text, "-inf") && strstr(text, "nan"), "%s", text);
    values[0] = values[1] = values[3] = 0.123456789f;
    format_tensor(text, sizeof text, x, -5);
    CHECKF(strstr(text, "[0, 0, 1, 0]") != NULL, "%s", text);
    format_tensor(text, sizeof text, x, 99);
    CHECKF(strstr(text, "0.123456791") != NULL, "%s", text);
    values[0] = 3e38f; /* 39 digits and a point */
    values[1] = -3e38f;
    format_tensor(text, sizeof text, x, 9);
    CHECKF(strstr(text, "300000000549775575777803994281145270272.000000000") != NULL, "%s", text);
    values[0] = 0.125f; /* ties, to the even digit */
    values[1] = 0.375f;
    values[2] = -0.625f;
    values[3] = 0.875f;
    format_tensor(text, sizeof text, x, 2);
    CHECKF(strcmp(text, "tensor([ 0.12,  0.38, -0.62,  0.88])") == 0, "%s", text);
}
