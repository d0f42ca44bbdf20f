/* tools/lens/circuits.h against numpy in float64 (make_lens_fixtures.py), and its rules. */
#include "lens_fixtures.h"
#include "refused.h"
#include "tools/lens/refactor.h"

SUITE_WITH("headers", open_plain_and_odd, close_plain_and_odd);

TEST(circuits)
{
    int i, kind;
    for (i = 0; i < 2; i++) {
        attn_ctx ctx = alone();
        const attn_model *const m = model_of(i);
        const attn_config *c = attn_model_config(m);
        for (kind = 0; kind < 2; kind++) {
            const attn_tensor want = expected_n(i, "singular", kind);
            attn_tensor left = {0}, right = {0}, whole = {0};
            const lens_head last = {c->n_layer - 1, 1};
            size_t layer, head;
            OK(&ctx, lens_circuit(&ctx, &left, &right, m, last, (lens_circuit_kind)kind));
            OK(&ctx, attn_matmul(&ctx, &whole, left, right));
            close_to(attn_slice(whole, 0, 0, 16), expected(i, kind ? "ov" : "qk"), 1e-6, "circuit");
            for (layer = 0; layer < c->n_layer; layer++)
                for (head = 0; head < c->n_head; head++) {
                    const lens_head at = {layer, head};
                    attn_tensor values = {0};
                    OK(&ctx, lens_circuit(&ctx, &left, &right, m, at, (lens_circuit_kind)kind));
                    OK(&ctx, lens_singular_values(&ctx, &values, left, right));
                    close_to(values, attn_select(attn_select(want, 0, layer), 0, head), 1e-7,
                             "singular values");
                }
        }
        for (kind = 0; kind < 3; kind++) {
            attn_tensor scores = {0};
            OK(&ctx, lens_composition_scores(&ctx, &scores, m, (lens_composition_kind)kind));
            close_to(scores, expected_n(i, "composition", kind), 1e-6, "composition");
        }
        attn_ctx_free(&ctx);
        pool_clear();
    }
}

/* [[1, 1], [x, 0]] has sqrt(2) and, to x * x, x / sqrt(2): nothing of the small one may be lost in
 * the first column's length. */
TEST(a_small_singular_value)
{
    attn_ctx ctx = alone();
    float x[4] = {1, 1, 1.5e-8f, 0}, one[4] = {1, 0, 0, 1};
    attn_tensor values = {0};
    OK(&ctx, lens_singular_values(&ctx, &values, attn_borrow(x, ATTN_F32, attn_shape2(2, 2)),
                                  attn_borrow(one, ATTN_F32, attn_shape2(2, 2))));
    CHECKF(fabs((double)attn_get1(values, 1) / (1.5e-8 * sqrt(0.5)) - 1) < 1e-6, "%g and %g",
           (double)attn_get1(values, 0), (double)attn_get1(values, 1));
    attn_ctx_free(&ctx);
}

/* left [m, r] becomes U · S^a and right [n, r] V · S^(1 - a): columns at right angles, of the lengths
 * that numpy's singular values say, with the product that they had. */
static void check_refactored(attn_ctx *ctx, attn_tensor left, attn_tensor right, attn_tensor values,
                             int even)
{
    const size_t r = left.shape[1];
    const double most = value_of(values, 0);
    attn_tensor before = {0}, after = {0}, x = {0}, y = {0}, angles = {0};
    size_t side, i, j;
    OK(ctx, attn_scale(ctx, &x, left, 1));
    OK(ctx, attn_scale(ctx, &y, right, 1));
    OK(ctx, attn_matmul(ctx, &before, x, attn_transpose(y, 0, 1)));
    OK(ctx, lens_refactor(ctx, x, y, even));
    OK(ctx, attn_matmul(ctx, &after, x, attn_transpose(y, 0, 1)));
    close_to(after, before, 2e-6, "the product");
    for (side = 0; side < 2; side++) {
        const attn_tensor f = side ? y : x;
        OK(ctx, attn_matmul(ctx, &angles, attn_transpose(f, 0, 1), f));
        for (i = 0; i < r; i++)
            for (j = 0; j < r; j++) {
                const double s = value_of(values, i), t = value_of(values, j);
                const double square = even ? s : side ? 1 : s * s; /* of a column's length */
                const double across = even ? sqrt(s * t) : side ? 1 : s * t;
                const double got = (double)attn_get2(angles, i, j);
                if (s <= 1e-6 * most || t <= 1e-6 * most)
                    continue; /* which is 0 but for rounding */
                CHECKF(fabs(got - (i == j ? square : 0)) < 1e-5 * (i == j ? square : across),
                       "side %zu, columns %zu and %zu: %g", side, i, j, got);
            }
        attn_tensor_free(ctx, &angles);
    }
}

TEST(refactored_products)
{
    attn_ctx ctx = alone();
    attn_tensor left, right, values;
    int i, even;
    for (i = 0; fixture(&left, "svd.%d.left", i); i++)
        for (even = 0; even < 2; even++) {
            attn_tensor turned = {0};
            fixture(&right, "svd.%d.right", i);
            fixture(&values, "svd.%d.values", i);
            OK(&ctx, attn_copy(&ctx, &turned, attn_transpose(right, 0, 1)));
            check_refactored(&ctx, left, turned, values, even);
        }
    CHECK(i == 7);
    attn_ctx_free(&ctx);
    pool_clear();
}

/* The refactored model says the same, its value biases are 0, and each W_O turns without stretching. */
TEST(refactored_models)
{
    int i;
    for (i = 0; i < 2; i++) {
        attn_ctx ctx = alone();
        const attn_model *const m = model_of(i);
        const attn_tensor tokens = expected(i, "tokens");
        const char *const path = test_tmp("refactored.attn");
        attn_model *made = NULL;
        attn_tensor logits, w_o = {0}, b_v = {0}, square = {0}, one = {0};
        size_t j;
        OK(&ctx, lens_refactor_attention(&ctx, path, m, NULL, 0));
        if (!OK(&ctx, attn_model_open(&ctx, &made, path, NULL)))
            continue;
        close_to(log_probabilities(&ctx, made, ids_of(tokens), tokens.shape[0], &logits),
                 log_probabilities(&ctx, m, ids_of(tokens), tokens.shape[0], &logits), 3e-6,
                 "log-probabilities");
        OK(&ctx, attn_model_tensor(&ctx, &b_v, made, "blocks.1.attn.b_V"));
        for (j = 0; j < count_of(b_v); j++)
            CHECK(value_of(b_v, j) == 0);
        OK(&ctx, attn_model_tensor(&ctx, &w_o, made, "blocks.1.attn.W_O"));
        w_o = attn_select(w_o, 0, 1);
        OK(&ctx, attn_matmul(&ctx, &square, w_o, attn_transpose(w_o, 0, 1)));
        OK(&ctx, attn_zeros(&ctx, &one, ATTN_F32, attn_shape2(w_o.shape[0], w_o.shape[0])));
        for (j = 0; j < w_o.shape[0]; j++)
            ((float *)one.data)[j * w_o.shape[0] + j] = 1;
        close_to(square, one, 1e-5, "W_O · W_Oᵀ");
        attn_model_close(made);
        FAILS(&ctx, ATTN_E_IO, "nowhere/",
              lens_refactor_attention(&ctx, "build/nowhere/x.attn", m, NULL, 0));
        FAILS(&ctx, ATTN_E_ARGUMENT, "no model",
              lens_refactor_attention(&ctx, path, NULL, NULL, 0));
        attn_ctx_free(&ctx);
        pool_clear();
    }
}

TEST(products)
{
    attn_ctx ctx = alone();
    attn_tensor left, right, want;
    int n;
    for (n = 0; fixture(&left, "svd.%d.left", n); n++) {
        attn_tensor values = {0};
        fixture(&right, "svd.%d.right", n);
        fixture(&want, "svd.%d.values", n);
        OK(&ctx, lens_singular_values(&ctx, &values, laid_out(left, ATTN_F32, LAYOUT_BACKWARD),
                                      laid_out(right, ATTN_F32, LAYOUT_SWAPPED)));
        close_to(values, want, 1e-7, "singular values");
    }
    EQUAL(n, 7);
    pool_clear();
    attn_ctx_free(&ctx);
}

TEST(bad_circuits)
{
    attn_ctx ctx = alone();
    attn_tensor x = {0}, y = random_tensor(2, 3, 4), z = random_tensor(2, 3, 5);
    const lens_head first = {0, 0}, no_head = {0, 4}, no_layer = {2, 0};
    FAILS(&ctx, ATTN_E_ARGUMENT, "head 4",
          lens_circuit(&ctx, &x, &x, plain, no_head, LENS_CIRCUIT_QK));
    FAILS(&ctx, ATTN_E_ARGUMENT, "kind 2",
          lens_circuit(&ctx, &x, &x, plain, first, (lens_circuit_kind)2));
    FAILS(&ctx, ATTN_E_ARGUMENT, "layer 2",
          lens_circuit(&ctx, &x, &x, plain, no_layer, LENS_CIRCUIT_QK));
    FAILS(&ctx, ATTN_E_SHAPE, "[16, 64]",
          lens_circuit(&ctx, &x, &y, plain, first, LENS_CIRCUIT_QK));
    FAILS(&ctx, ATTN_E_SHAPE, "[3, 4] and right [3, 5]", lens_singular_values(&ctx, &x, y, z));
    FAILS(&ctx, ATTN_E_ARGUMENT, "kind 3",
          lens_composition_scores(&ctx, &x, plain, (lens_composition_kind)3));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no model",
          lens_composition_scores(&ctx, &x, NULL, LENS_COMPOSE_Q));
    CHECK(x.ndim == 0 && ctx.blocks == NULL);
    pool_clear();
    attn_ctx_free(&ctx);
}

TEST(circuits_refused)
{
    attn_ctx ctx = {0};
    const attn_tensor v = some(1, 64, 1, 1), m = some(2, 3, 64, 1), scale = some(2, 3, 1, 1);
    const lens_head first = {0, 0};
    attn_tensor x = no_tensor;
    float number = 0;
    REFUSED(ATTN_E_ARGUMENT, "left", lens_singular_values(&ctx, &not_made, no_tensor, m));
    REFUSED(ATTN_E_ARGUMENT, "right", lens_singular_values(&ctx, &not_made, m, no_tensor));
    REFUSED(ATTN_E_SHAPE, "expected [m, r]", lens_singular_values(&ctx, &not_made, v, m));
    REFUSED(ATTN_E_SHAPE, "expected [m, r]", lens_singular_values(&ctx, &not_made, m, v));
    REFUSED(ATTN_E_SHAPE, "expected [m, r]", lens_singular_values(&ctx, &not_made, m, m));
    {
        attn_tensor tall = attn_borrow(&number, ATTN_F32, attn_shape2(1, 1));
        tall.shape[0] = SIZE_MAX / 8;
        tall.stride[0] = tall.stride[1] = 0;
        REFUSED(ATTN_E_MEMORY, "no memory for factors",
                lens_singular_values(&ctx, &not_made, tall, attn_slice(scale, 0, 0, 1)));
        tall.shape[0] = SIZE_MAX / 16;
        tall.shape[1] = 64;
        not_made = no_tensor;
        CHECK(lens_singular_values(&ctx, &not_made, tall, some(2, 64, 1, 1)) != ATTN_OK);
        CHECK(not_made.ndim == 0 && strstr(ctx.message, "memory"));
        tall.shape[0] = SIZE_MAX / 256;
        not_made = no_tensor;
        CHECK(lens_singular_values(&ctx, &not_made, tall, some(2, 64, 1, 1)) != ATTN_OK);
        CHECK(not_made.ndim == 0 && strstr(ctx.message, "memory"));
    }
    FAILS(&ctx, ATTN_E_ARGUMENT, "no place",
          lens_singular_values(&ctx, NULL, m, attn_transpose(m, 0, 1)));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no place",
          lens_circuit(&ctx, NULL, &x, plain, first, LENS_CIRCUIT_OV));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no place",
          lens_circuit(&ctx, &x, NULL, plain, first, LENS_CIRCUIT_OV));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no model",
          lens_circuit(&ctx, &x, &x, NULL, first, LENS_CIRCUIT_OV));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no place",
          lens_composition_scores(&ctx, NULL, plain, LENS_COMPOSE_K));
    EQUAL(x.ndim, 0);
    done(&ctx);
}

static attn_status everything(attn_ctx *ctx, int call, attn_tensor *out, attn_tensor *second)
{
    const attn_tensor post = expected(1, "post");
    const lens_head head = {1, 2};
    return call == 0   ? lens_circuit(ctx, out, second, odd, head, LENS_CIRCUIT_OV)
           : call == 1 ? lens_singular_values(ctx, out, post, attn_transpose(post, 0, 1))
                       : lens_composition_scores(ctx, out, odd, (lens_composition_kind)(call - 2));
}

/* The same bits on any instruction set and any number of threads. */
TEST(same_everywhere)
{
    static const attn_isa_kind kinds[] = {ATTN_ISA_AUTO, ATTN_ISA_PORTABLE, ATTN_ISA_AVX2};
    attn_ctx ctx[3];
    attn_tensor found[3][5], second[3];
    int i, k;
    memset(found, 0, sizeof found);
    memset(second, 0, sizeof second);
    for (k = 0; k < 3; k++) {
        ctx[k] = alone();
        ctx[k].isa = kinds[k];
        ctx[k].n_threads = k ? 1 : 3;
        if (!attn_isa(&ctx[k]) || strstr(attn_isa(&ctx[k]), "no fused"))
            continue;
        for (i = 0; i < 5; i++) {
            OK(&ctx[k], everything(&ctx[k], i, &found[k][i], &second[k]));
            if (found[0][i].ndim)
                same_bits(found[k][i], found[0][i], "what was found");
        }
    }
    for (k = 0; k < 3; k++)
        attn_ctx_free(&ctx[k]);
    pool_clear();
}

/* Every allocation that fails says so and leaves nothing behind. */
TEST(circuits_without_memory)
{
    int call;
    for (call = 0; call < 3; call++) {
        attn_status status = ATTN_E_MEMORY;
        long n;
        for (n = 0; n < 2000 && status == ATTN_E_MEMORY; n++) {
            meter m;
            attn_ctx ctx = metered(&m);
            attn_tensor out = {0}, second = {0};
            ctx.n_threads = 1;
            m.fail_at = n;
            status = everything(&ctx, call, &out, &second);
            CHECK(status == ATTN_OK ? n > 0
                                    : strstr(ctx.message, "memory") && !out.ndim && !second.ndim);
            attn_ctx_free(&ctx);
            CHECK(m.live == 0 && m.wrong == 0);
        }
        CHECKF(status == ATTN_OK, "call %d: %s after %ld rounds", call, attn_status_name(status),
               n);
    }
    pool_clear();
}
