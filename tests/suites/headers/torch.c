/* examples/from_scratch/torch.h: random numbers, initial weights, dropout, masks and cat, against
 * PyTorch's numbers and their definitions. */
#include "tests/support/fixture.h"
#include "tests/support/refused.h"
#include "examples/from_scratch/torch.h"

SUITE();

/* PyTorch 1.13: manual_seed(7), then torch.randn of 3, 4, 17 and 5. The short rule makes two
 * numbers at a time, so that one is left over from the first call and the third, long one does not
 * touch it. */
TEST(randn)
{
    static const size_t length[4] = {3, 4, 17, 5};
    static const float expected[29] = {
        -0.146795094f, 0.786141276f,   0.94682163f,    -1.114344f,    1.69079018f,  -0.894827902f,
        -0.355625033f, -1.58266461f,   -0.0234779324f, 0.174375355f,  2.2983427f,   0.95710218f,
        -0.661867559f, -0.828452051f,  -0.605680287f,  -0.135436893f, 1.29733586f,  1.64093328f,
        -1.05668414f,  -0.261586726f,  -0.25013262f,   0.501121461f,  0.2600362f,   -1.6370213f,
        1.23238575f,   -0.0615480579f, 0.656212389f,   0.0371468179f, -0.479686588f};
    SCOPED_CTX ctx = {0};
    torch_rng rng;
    size_t at = 0;
    torch_manual_seed(&rng, 7);
    for (size_t i = 0; i < 4; i++) {
        attn_tensor x = {0};
        if (OK(&ctx, torch_randn(&ctx, &x, attn_shape1(length[i]), &rng)))
            for (size_t j = 0; j < length[i]; j++, at++)
                CHECKF(fabsf(attn_get1(x, j) - expected[at]) <= 5e-7f,
                       "number %d is %.9g, expected %.9g", (int)at, (double)attn_get1(x, j),
                       (double)expected[at]);
    }
    torch_manual_seed(&rng, 7); /* forgets what was left over */
    CHECK(rng.has_normal == 0 && rng.words.next == 624);
}

/* The same for views and for every size near a block. */
TEST(randn_sizes)
{
    SCOPED_CTX ctx = {0};
    torch_rng rng;
    for (size_t n = 0; n <= 50; n++) {
        float guarded[52];
        attn_tensor x = attn_borrow(guarded + 1, ATTN_F32, attn_shape1(n));
        torch_manual_seed(&rng, n);
        guarded[0] = guarded[n + 1] = 99;
        OK(&ctx, torch_randn(&ctx, &x, attn_shape1(n), &rng));
        CHECK(guarded[0] == 99 && guarded[n + 1] == 99);
        for (size_t i = 1; i <= n; i++)
            CHECK(fabsf(guarded[i]) < 8);
    }
}

TEST(masks)
{
    SCOPED_CTX ctx = {0};
    attn_tensor ones = {0}, lower = {0}, mask = {0}, wide = {0};
    OK(&ctx, torch_full(&ctx, &ones, attn_shape3(2, 4, 6), 1.5f));
    OK(&ctx, torch_tril(&ctx, &lower, ones));
    for (size_t b = 0; b < 2; b++)
        for (size_t i = 0; i < 4; i++)
            for (size_t j = 0; j < 6; j++)
                CHECK(attn_get3(lower, b, i, j) == (j <= i ? 1.5f : 0));
    OK(&ctx, torch_causal_mask(&ctx, &mask, 4, 6));
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 6; j++)
            CHECK(attn_get2(mask, i, j) == (j <= i + 2 ? 0 : -(float)INFINITY));
    OK(&ctx, torch_causal_mask(&ctx, &wide, 3, 1)); /* the first two queries see nothing */
    CHECK(isinf(attn_get2(wide, 1, 0)) && attn_get2(wide, 2, 0) == 0);
    FAILS(SHAPE, "two dimensions",
          torch_tril(&ctx, &wide, attn_borrow(ones.data, ATTN_F32, attn_shape1(3))));
}

TEST(dropout)
{
    SCOPED_CTX ctx = {0};
    torch_rng rng;
    attn_tensor ones = {0}, out = {0};
    size_t n_kept = 0;
    memset(&rng, 0, sizeof rng); /* every byte is compared below */
    torch_manual_seed(&rng, 1);
    OK(&ctx, torch_full(&ctx, &ones, attn_shape2(100, 100), 1));
    OK(&ctx, torch_dropout(&ctx, &out, ones, 0.2f, &rng));
    for (size_t i = 0; i < 10000; i++) {
        const float value = attn_get2(out, i / 100, i % 100);
        n_kept += value != 0;
        CHECK(value == 0 || value == 1.25f);
    }
    CHECKF(n_kept > 7800 && n_kept < 8200, "%d of 10000 kept", (int)n_kept);
    torch_rng before = rng;
    OK(&ctx, torch_dropout(&ctx, &out, ones, 0, &rng));
    EQUAL(attn_get2(out, 99, 99), 1);
    OK(&ctx, torch_dropout(&ctx, &out, out, 1, &rng)); /* in place */
    EQUAL(attn_get2(out, 0, 0), 0);
    CHECK(memcmp(&rng, &before, sizeof rng) == 0);
    FAILS(ARGUMENT, "probability", torch_dropout(&ctx, &out, ones, 1.5f, &rng));
    FAILS(ARGUMENT, "probability", torch_dropout(&ctx, &out, ones, NAN, &rng));
}

TEST(bad_shapes)
{
    SCOPED_CTX ctx = {0};
    torch_rng rng;
    attn_tensor out = {0}, bias = {0};
    attn_shape shape = attn_shape2(2, 3);
    torch_manual_seed(&rng, 0);
    shape.ndim = 7;
    FAILS(SHAPE, "torch_full", torch_full(&ctx, &out, shape, 1));
    FAILS(SHAPE, "torch_rand", torch_rand(&ctx, &out, shape, &rng));
    FAILS(SHAPE, "torch_randn", torch_randn(&ctx, &out, attn_shape2((size_t)-1, 5), &rng));
    FAILS(SHAPE, "torch_causal_mask", torch_causal_mask(&ctx, &out, (size_t)-1, (size_t)-1));
    FAILS(SHAPE, "torch_linear", torch_linear(&ctx, &out, &bias, (size_t)-1, (size_t)-1, &rng));
    CHECK(out.ndim == 0 && bias.ndim == 0);
    OK(&ctx, torch_rand(&ctx, &out, attn_shape2(2, 3), &rng));
    FAILS(SHAPE, "[2, 3]", torch_rand(&ctx, &out, attn_shape2(3, 2), &rng));
}

/* The weight comes in the shape that attn_linear takes, with the draws in the order of PyTorch's
 * [n_out, n_in], whether it is made or was there. */
TEST(a_linear_layer)
{
    attn_ctx ctx = {0};
    torch_rng rng;
    float room[3 * 5];
    attn_tensor w = {0}, bias = {0}, again = {0}, x = {0}, y = {0};
    attn_tensor into = attn_borrow(room, ATTN_F32, attn_shape2(3, 5));
    torch_manual_seed(&rng, 7);
    OK(&ctx, torch_linear(&ctx, &w, &bias, 3, 5, &rng));
    CHECK(w.ndim == 2 && w.shape[0] == 3 && w.shape[1] == 5 && w.owned != NULL);
    torch_manual_seed(&rng, 7);
    for (size_t j = 0; j < 5; j++)
        for (size_t i = 0; i < 3; i++) {
            const double bound = (double)(float)(1 / sqrt(3.0));
            const double want = (double)attn_rng_uniform(&rng.words) * 2 * bound - bound;
            CHECK(fabs((double)attn_get2(w, i, j) - want) < 1e-7);
        }
    torch_manual_seed(&rng, 7);
    OK(&ctx, torch_linear(&ctx, &into, &again, 3, 5, &rng));
    for (size_t i = 0; i < 15; i++)
        CHECK(room[i] == attn_get2(w, i / 5, i % 5) &&
              attn_get1(again, i % 5) == attn_get1(bias, i % 5));
    OK(&ctx, torch_full(&ctx, &x, attn_shape2(2, 3), 1));
    OK(&ctx, attn_linear(&ctx, &y, x, w, bias));
    attn_tensor small = attn_reshape(into, attn_shape2(5, 3));
    FAILS(SHAPE, "[5, 3]; expected [3, 5]", torch_linear(&ctx, &small, NULL, 3, 5, &rng));
    attn_tensor_free(&ctx, &w); /* the view owns its memory */
    attn_tensor_free(&ctx, &bias);
    attn_tensor_free(&ctx, &again);
    attn_tensor_free(&ctx, &x);
    attn_tensor_free(&ctx, &y);
    CHECK(ctx.blocks == NULL);
}

/* Against the definition: element by element, from the part that its index along `dim` falls in. */
TEST(concatenation)
{
    static const size_t sizes[] = {3, 0, 1, 4};
    attn_ctx ctx = {0};
    for (int ndim = 1; ndim <= 4; ndim++)
        for (int dim = -ndim; dim < ndim; dim++)
            for (int layout = 0; layout < N_LAYOUTS; layout++) {
                const int d = dim < 0 ? dim + ndim : dim;
                attn_tensor parts[4], out = {0};
                size_t first = 0, shape[4] = {2, 3, 2, 5};
                for (size_t i = 0; i < 4; i++) {
                    shape[d] = sizes[i];
                    parts[i] = new_tensor(ATTN_F32, ndim, shape, (layout + (int)i) % N_LAYOUTS);
                    for (size_t j = 0; j < count_of(parts[i]); j++)
                        set_value(parts[i], j, random_float());
                }
                shape[d] = 8;
                attn_tensor into = new_tensor(ATTN_F32, ndim, shape, layout);
                if (!OK(&ctx, torch_cat(&ctx, &out, parts, 4, dim)) ||
                    !OK(&ctx, torch_cat(&ctx, &into, parts, 4, dim)))
                    return;
                same_bits(into, out, "concat into a layout");
                for (size_t i = 0; i < 4; first += sizes[i++]) {
                    attn_tensor place = attn_slice(out, d, first, sizes[i]);
                    CHECK(is_dense(out) && out.dtype == ATTN_F32);
                    same_bits(place, parts[i], "a part of the result");
                }
                attn_tensor_free(&ctx, &out);
                pool_clear();
            }
    CHECK(ctx.blocks == NULL);
}

TEST(concatenation_of_types)
{
    SCOPED_CTX ctx = {0};
    float x[2] = {1.5f, 70000};
    uint16_t h[2] = {0x3C00, 0xC000}; /* 1, -2 */
    attn_tensor f32 = attn_borrow(x, ATTN_F32, attn_shape1(2)), none = {0};
    attn_tensor f16 = attn_borrow(h, ATTN_F16, attn_shape1(2)), i32 = some_ids(2, 7);
    attn_tensor parts[2], out = {0}, bad = {0};
    parts[0] = f16, parts[1] = f32;
    OK(&ctx, torch_cat(&ctx, &out, parts, 2, 0));
    CHECK(out.dtype == ATTN_F32 && attn_get1(out, 1) == -2 && attn_get1(out, 3) == 70000);
    FAILS(SHAPE, "result has shape [4], but out has shape [2]", torch_cat(&ctx, &f32, parts, 2, 0));
    FAILS(ARGUMENT, "out must be ATTN_F32", torch_cat(&ctx, &f16, parts, 2, 0));
    parts[1] = i32;
    FAILS(ARGUMENT, "part 1 holds integers", torch_cat(&ctx, &bad, parts, 2, 0));
    parts[0] = f32;
    FAILS(ARGUMENT, "no tensors", torch_cat(&ctx, &bad, parts, 0, 0));
    FAILS(ARGUMENT, "no tensors", torch_cat(&ctx, &bad, NULL, 2, 0));
    parts[1] = f32;
    FAILS(ARGUMENT, "no place", torch_cat(&ctx, NULL, parts, 2, 0));
    FAILS(ARGUMENT, "expected -1 to 0", torch_cat(&ctx, &bad, parts, 2, 1));
    FAILS(ARGUMENT, "expected -1 to 0", torch_cat(&ctx, &bad, parts, 2, -2));
    parts[1] = attn_slice(f32, 0, 1, 2);
    FAILS(ARGUMENT, "part 1 is no tensor: attn_slice", torch_cat(&ctx, &bad, parts, 2, 0));
    ctx.status = ATTN_OK;
    parts[1] = none;
    FAILS(ARGUMENT, "part 1", torch_cat(&ctx, &bad, parts, 2, 0));
    ctx.status = ATTN_E_SHAPE; /* an earlier call failed to make it: that message stays */
    strcpy(ctx.message, "earlier");
    FAILS(SHAPE, "earlier", torch_cat(&ctx, &bad, parts, 2, 0));
    parts[0] = attn_reshape(f32, attn_shape2(1, 2));
    parts[1] = attn_reshape(f32, attn_shape2(2, 1));
    FAILS(SHAPE, "part 0 has shape [1, 2] and part 1 [2, 1]", torch_cat(&ctx, &bad, parts, 2, 0));
    parts[1] = f32;
    FAILS(SHAPE, "part 1 [2]", torch_cat(&ctx, &bad, parts, 2, 0));
    parts[0] = parts[1] = f32;
    parts[0].shape[0] = parts[1].shape[0] = SIZE_MAX / 2 + 1;
    parts[0].stride[0] = parts[1].stride[0] = 0;
    FAILS(SHAPE, "", torch_cat(&ctx, &bad, parts, 2, 0));
    EQUAL(bad.ndim, 0);
}

/* Softmax of scores and the mask, against PyTorch's masked_fill and softmax in float64. */
TEST(causal_softmax)
{
    attn_ctx ctx = {0};
    attn_tensor x, want;
    int i;
    for (i = 0; fixture(&x, "causal.%d.x", i); i++) {
        attn_tensor out = {0}, mask = {0};
        CHECK(fixture(&want, "causal.%d.out", i));
        OK(&ctx, torch_causal_mask(&ctx, &mask, x.shape[x.ndim - 2], x.shape[x.ndim - 1]));
        OK(&ctx, attn_add(&ctx, &out, x, mask));
        OK(&ctx, attn_softmax(&ctx, &out, out));
        close_to(out, want, 1e-6, "softmax behind a mask");
        done(&ctx);
    }
    CHECKF(i == 7, "%d cases", i);
}

TEST(refusals)
{
    SCOPED_CTX ctx = {0};
    torch_rng rng;
    attn_tensor ids = some_ids(3, 0), into = some(2, 3, 4, 1), bad = attn_slice(into, 0, 4, 1);
    torch_manual_seed(&rng, 1);
    REFUSED(ARGUMENT, "torch_dropout: x", torch_dropout(&ctx, &not_made, no_tensor, 0.5f, &rng));
    REFUSED(ARGUMENT, "torch_dropout: no generator",
            torch_dropout(&ctx, &not_made, into, 0.5f, NULL));
    REFUSED(ARGUMENT, "torch_tril: x", torch_tril(&ctx, &not_made, no_tensor));
    REFUSED(ARGUMENT, "torch_tril: x holds integers",
            torch_tril(&ctx, &not_made, attn_reshape(ids, attn_shape2(1, 3))));
    REFUSED(ARGUMENT, "no generator", torch_rand(&ctx, &not_made, attn_shape1(3), NULL));
    REFUSED(ARGUMENT, "no generator", torch_randn(&ctx, &not_made, attn_shape1(3), NULL));
    REFUSED(ARGUMENT, "no generator", torch_linear(&ctx, &not_made, NULL, 2, 3, NULL));
    FAILS(ARGUMENT, "no place", torch_linear(&ctx, NULL, NULL, 2, 3, &rng));
    FAILS(ARGUMENT, "no place", torch_full(&ctx, NULL, attn_shape1(3), 1));
    FAILS(ARGUMENT, "no place", torch_rand(&ctx, NULL, attn_shape1(3), &rng));
    FAILS(ARGUMENT, "no place", torch_randn(&ctx, NULL, attn_shape1(3), &rng));
    FAILS(ARGUMENT, "no place", torch_causal_mask(&ctx, NULL, 3, 3));
    FAILS(ARGUMENT, "torch_tril: no place", torch_tril(&ctx, NULL, into));
    FAILS(ARGUMENT, "torch_dropout: no place", torch_dropout(&ctx, NULL, into, 0.5f, &rng));
    FAILS(ARGUMENT, "torch_full: out is no tensor: attn_slice",
          torch_full(&ctx, &bad, attn_shape1(3), 1));
    /* a weight that was there stays when the bias cannot be made */
    FAILS(ARGUMENT, "torch_linear: out is no tensor", torch_linear(&ctx, &into, &bad, 3, 4, &rng));
    EQUAL(into.ndim, 2);
}

/* Every allocation that fails says so and leaves nothing behind. */
TEST(without_memory)
{
    const attn_tensor x = some(2, 3, 4, 1);
    torch_rng rng;
    torch_manual_seed(&rng, 1);
    for (int call = 0; call < 8; call++) {
        attn_status status = ATTN_E_MEMORY;
        for (long n = 0; n < 20 && status == ATTN_E_MEMORY; n++) {
            meter m;
            attn_ctx ctx = metered(&m);
            attn_tensor out = {0}, bias = {0};
            m.fail_at = n;
            status = call == 0   ? torch_full(&ctx, &out, attn_shape1(7), 2)
                     : call == 1 ? torch_rand(&ctx, &out, attn_shape1(7), &rng)
                     : call == 2 ? torch_randn(&ctx, &out, attn_shape1(7), &rng)
                     : call == 3 ? torch_linear(&ctx, &out, &bias, 3, 4, &rng)
                     : call == 4 ? torch_dropout(&ctx, &out, x, 0.5f, &rng)
                     : call == 5 ? torch_tril(&ctx, &out, x)
                     : call == 6 ? torch_causal_mask(&ctx, &out, 3, 4)
                                 : torch_cat(&ctx, &out, &x, 1, 0);
            CHECKF(status == ATTN_OK ? n > 0 : strstr(ctx.message, "memory") != NULL,
                   "call %d, allocation %ld: %s", call, n, ctx.message);
            CHECK(status == ATTN_OK || (out.ndim == 0 && bias.ndim == 0));
            attn_ctx_free(&ctx);
            CHECK(m.live == 0 && m.wrong == 0);
        }
        CHECK(status == ATTN_OK);
    }
}

/* Tensors without elements. */
TEST(nothing)
{
    SCOPED_CTX ctx = {0};
    attn_tensor x = no_tensor, y = no_tensor, z = no_tensor, empty = no_tensor, bias = no_tensor;
    torch_rng rng;
    torch_manual_seed(&rng, 1);
    OK(&ctx, attn_zeros(&ctx, &empty, ATTN_F32, attn_shape2(3, 0)));
    OK(&ctx, torch_dropout(&ctx, &x, empty, 0.5f, &rng));
    OK(&ctx, torch_tril(&ctx, &y, empty));
    CHECK(attn_count(x) == 0 && attn_count(y) == 0 && x.shape[0] == 3 && y.shape[0] == 3);
    EQUAL(rng.words.next, 624); /* nothing was drawn */
    OK(&ctx, torch_linear(&ctx, &z, &bias, 0, 4, &rng));
    CHECK(z.shape[0] == 0 && z.shape[1] == 4 && attn_get1(bias, 3) == 0);
}
