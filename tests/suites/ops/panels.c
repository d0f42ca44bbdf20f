/* Weights that are packed once: attn_linear takes panels, and nothing else does. */
#include "tests/support/test.h"
#include "tests/support/ops.h"
#include "tests/support/refused.h"

SUITE();

/* w [K, N] as the manual lays out panels, [N / 16, K, 16], each a part of one twice as long. */
static attn_tensor as_panels(attn_tensor w)
{
    const size_t depth = w.shape[0];
    attn_tensor longer = random_tensor(3, (int)(w.shape[1] + 15) / 16, 2 * (int)depth, 16);
    attn_tensor panels = attn_slice(longer, 1, depth, depth);
    for (size_t k = 0; k < depth; k++)
        for (size_t n = 0; n < w.shape[1]; n++)
            set_value(panels, (n / 16 * depth + k) * 16 + n % 16, attn_get2(w, k, n));
    panels.dtype = ATTN_PANELS;
    return panels;
}

/* Panels that are made already give the bits of the matrix that they hold. */
TEST(linear_takes_panels)
{
    static const int sizes[][3] = {
        {1, 300, 150}, {7, 64, 32}, {13, 5, 16}, {50, 260, 70}, {1, 1, 1}};
    SCOPED_CTX ctx = {0};
    random_state = 11;
    for (size_t i = 0; i < 5 * N_THREADS; i++) {
        const int *size = sizes[i / N_THREADS], all = (size[2] + 15) / 16 * 16;
        const attn_tensor x = random_tensor(2, size[0], size[1]), bias = random_tensor(1, all);
        const attn_tensor w = random_tensor(2, size[1], size[2]), panels = as_panels(w);
        attn_tensor want = no_tensor, got = no_tensor, row = no_tensor;
        ctx.n_threads = all_threads[i % N_THREADS];
        OK(&ctx, attn_linear(&ctx, &want, x, w, attn_slice(bias, 0, 0, w.shape[1])));
        OK(&ctx, attn_linear(&ctx, &got, x, panels, bias));
        EQUAL(got.shape[1], all);
        same_bits(attn_slice(got, 1, 0, w.shape[1]), want, "a product with panels");
        OK(&ctx, attn_linear(&ctx, &row, attn_select(x, 0, 0), panels, bias));
        same_bits(row, attn_select(got, 0, 0), "one row of it");
    }
    REFUSED(SHAPE, "[5, 32]",
            attn_linear(&ctx, &not_made, random_tensor(2, 3, 4), as_panels(random_tensor(2, 5, 32)),
                        no_tensor));
}

/* Panels have a type, so that no weight is taken for them, and they for no weight. */
TEST(panels_are_no_other_tensor)
{
    SCOPED_CTX ctx = {0};
    const attn_tensor x = random_tensor(2, 3, 5), panels = as_panels(random_tensor(2, 5, 32));
    attn_tensor narrow = attn_slice(panels, 2, 0, 15), turned = attn_transpose(panels, 1, 2);
    attn_tensor given = panels;
    REFUSED(SHAPE, "[2, 5, 16]",
            attn_linear(&ctx, &not_made, x, random_tensor(3, 2, 5, 16), no_tensor));
    REFUSED(ARGUMENT, "w has 3 dimensions and data type 5; expected",
            attn_linear(&ctx, &not_made, x, narrow, no_tensor));
    REFUSED(ARGUMENT, "w has 3 dimensions and data type 5",
            attn_linear(&ctx, &not_made, x, turned, no_tensor));
    REFUSED(ARGUMENT, "w has 2 dimensions and data type 5",
            attn_linear(&ctx, &not_made, x, attn_select(panels, 0, 0), no_tensor));
    REFUSED(ARGUMENT, "attn_linear: x has 3 dimensions and data type 5",
            attn_linear(&ctx, &not_made, panels, panels, no_tensor));
    REFUSED(ARGUMENT, "attn_matmul: b has 3 dimensions and data type 5",
            attn_matmul(&ctx, &not_made, x, panels));
    REFUSED(ARGUMENT, "attn_copy: x has 3 dimensions and data type 5",
            attn_copy(&ctx, &not_made, panels));
    REFUSED(ARGUMENT, "attn_unembed: table has 3 dimensions and data type 5",
            attn_unembed(&ctx, &not_made, x, panels));
    FAILS(ARGUMENT, "attn_add: out has 3 dimensions and data type 5",
          attn_add(&ctx, &given, random_tensor(3, 2, 5, 16), random_tensor(3, 2, 5, 16)));
    FAILS(SHAPE, "type 5", attn_zeros(&ctx, &not_made, ATTN_PANELS, attn_shape1(16)));
    EQUAL(attn_get3(panels, 0, 1, 2), ((const float *)panels.data)[16 + 2]);
}
