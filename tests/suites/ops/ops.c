/* Tier 1's arithmetic: against numbers that PyTorch computed in float64 (make_op_fixtures.py), and
 * against the arithmetic contract of the manual (">>manual", THE SAME BITS), which is spelled out here
 * once more in plain C. Attention is in suites/attention. */
#include "tests/support/test.h"
#include "examples/from_scratch/format.h"
#include "tests/support/ops.h"
#include "tests/support/refused.h"

SUITE();

/* ---- against PyTorch ------------------------------------------------------------------------ */

TEST(matmul_against_torch)
{
    attn_ctx ctx = {0};
    attn_tensor a, b, want;
    int i;
    for (i = 0; fixture(&a, "matmul.%d.a", i); i++) {
        if (!CHECK(fixture(&b, "matmul.%d.b", i) && fixture(&want, "matmul.%d.out", i)))
            return;
        for (int layout = 0; layout < N_LAYOUTS; layout++) {
            attn_tensor out = {0};
            const double allowed = chain_error(a.shape[a.ndim - 1]);
            attn_tensor left = laid_out(a, a.dtype, layout);
            attn_tensor right = laid_out(b, b.dtype, (layout * 2 + i) % N_LAYOUTS);
            if (OK(&ctx, attn_matmul(&ctx, &out, left, right)))
                close_to(out, want, allowed, label("matmul", i));
            /* A·Bᵀ: b's transpose, dense, seen as b. */
            attn_tensor turned = laid_out(attn_transpose(right, -1, -2), b.dtype, LAYOUT_DENSE);
            attn_tensor into = new_tensor(ATTN_F32, want.ndim, want.shape, layout);
            if (OK(&ctx, attn_matmul(&ctx, &into, left, attn_transpose(turned, -1, -2))))
                close_to(into, want, allowed, label("matmul into", i));
        }
        done(&ctx);
    }
    CHECKF(i == 22, "%d cases", i);
}

TEST(linear_against_torch)
{
    attn_ctx ctx = {0};
    attn_tensor x, w, b, args, want;
    int i;
    for (i = 0; fixture(&x, "linear.%d.x", i); i++) {
        attn_tensor out = {0};
        fixture(&b, "linear.%d.b", i);
        if (!CHECK(fixture(&w, "linear.%d.w", i) && fixture(&args, "linear.%d.args", i) &&
                   fixture(&want, "linear.%d.out", i)))
            return;
        if (arg_of(args, 0))
            w = attn_transpose(w, 0, 1);
        if (OK(&ctx, attn_linear(&ctx, &out, x, w, b)))
            close_to(out, want, chain_error(w.shape[0]), label("linear", i));
        done(&ctx);
    }
    CHECKF(i == 9, "%d cases", i);
}

TEST(arithmetic_against_torch)
{
    static const struct {
        const char *name;
        attn_status (*run)(attn_ctx *, attn_tensor *, attn_tensor, attn_tensor);
    } operations[] = {{"add", attn_add}, {"sub", attn_sub}, {"mul", attn_mul}, {"div", attn_div}};
    attn_ctx ctx = {0};
    attn_tensor a, b, want, f;
    int i;
    for (i = 0; fixture(&a, "binary.%d.a", i); i++) {
        CHECK(fixture(&b, "binary.%d.b", i));
        for (size_t o = 0; o < 4; o++) {
            attn_tensor out = {0};
            CHECK(fixture(&want, "binary.%d.%s", i, operations[o].name));
            if (OK(&ctx, operations[o].run(&ctx, &out, a, b)))
                same_bits(out, want, label(operations[o].name, i));
            if (memcmp(a.shape, want.shape, sizeof a.shape) == 0 && a.ndim == want.ndim) {
                out = laid_out(a, ATTN_F32, (int)o); /* in place, into the left */
                if (OK(&ctx, operations[o].run(&ctx, &out, out, b)))
                    same_bits(out, want, label(operations[o].name, i));
            }
            if (memcmp(b.shape, want.shape, sizeof b.shape) == 0 && b.ndim == want.ndim) {
                out = laid_out(b, ATTN_F32, (int)o); /* and into the right */
                if (OK(&ctx, operations[o].run(&ctx, &out, a, out)))
                    same_bits(out, want, label(operations[o].name, i));
            }
        }
        done(&ctx);
    }
    CHECKF(i == 13, "%d cases", i);
    for (i = 0; fixture(&a, "scale.%d.x", i); i++) {
        attn_tensor out = {0};
        CHECK(fixture(&f, "scale.%d.f", i) && fixture(&want, "scale.%d.out", i));
        if (OK(&ctx, attn_scale(&ctx, &out, a, float_of(f))))
            same_bits(out, want, label("scale", i));
        out = laid_out(a, ATTN_F32, i);
        if (OK(&ctx, attn_scale(&ctx, &out, out, float_of(f))))
            same_bits(out, want, label("scale in place", i));
        done(&ctx);
    }
    CHECKF(i == 3, "%d cases", i);
}

TEST(exp_against_torch)
{
    SCOPED_CTX ctx = {0};
    attn_tensor x, want, out = {0};
    if (!CHECK(fixture(&x, "exp.0.x") && fixture(&want, "exp.0.out")) ||
        !OK(&ctx, attn_exp(&ctx, &out, x)) || !same_shape(out, want, "exp"))
        return;
    for (size_t i = 0; i < count_of(x); i++) {
        const double got = value_of(out, i), e = value_of(want, i);
        /* What is too small for a normal f32 may become zero. */
        CHECKF(got == e || fabs(got - e) <= 1.5e-7 * e ||
                   (e < 1.2e-38 && got >= 0 && got < 1.2e-38),
               "exp(%.9g) = %.9g, expected %.9g", value_of(x, i), got, e);
    }
    attn_tensor place = laid_out(x, ATTN_F32, LAYOUT_EVERY_2);
    OK(&ctx, attn_exp(&ctx, &place, place));
    same_bits(place, out, "exp in place");
}

TEST(reductions_against_torch)
{
    attn_ctx ctx = {0};
    attn_tensor x, want;
    int i;
    for (i = 0; fixture(&x, "reduce.%d.x", i); i++) {
        attn_tensor out = {0}, mean = {0}, variance = {0}, unbiased = {0};
        double largest = 0;
        for (size_t j = 0; j < count_of(x); j++)
            largest = fabs(value_of(x, j)) > largest ? fabs(value_of(x, j)) : largest;
        CHECK(fixture(&want, "reduce.%d.sum", i));
        OK(&ctx, attn_sum(&ctx, &out, x));
        if (count_of(out) == count_of(want))
            for (size_t j = 0; j < count_of(want); j++)
                CHECKF(fabs(value_of(out, j) - value_of(want, j)) <=
                           3e-7 * largest * sqrt((double)x.shape[x.ndim - 1]) +
                               1.2e-7 * fabs(value_of(want, j)),
                       "sum.%d: %.9g, expected %.9g", i, value_of(out, j), value_of(want, j));
        same_shape(out, want, label("sum", i));
        CHECK(fixture(&want, "reduce.%d.mean", i));
        OK(&ctx, attn_mean(&ctx, &mean, x));
        same_shape(mean, want, label("mean", i));
        for (size_t j = 0; j < count_of(want) && count_of(mean) == count_of(want); j++)
            CHECKF(fabs(value_of(mean, j) - value_of(want, j)) <= 3e-7 * largest,
                   "mean.%d: %.9g, expected %.9g", i, value_of(mean, j), value_of(want, j));
        /* The mean is an f32: where it is far from 0, its rounding shows in the variance. */
        CHECK(fixture(&want, "reduce.%d.variance", i));
        double allowed = i == 5 ? 1e-5 : ROWS;
        if (OK(&ctx, attn_variance(&ctx, &variance, x, 0)))
            close_to(variance, want, allowed, label("variance", i));
        if (fixture(&want, "reduce.%d.unbiased", i) &&
            OK(&ctx, attn_variance(&ctx, &unbiased, x, 1)))
            close_to(unbiased, want, allowed, label("unbiased variance", i));
        done(&ctx);
    }
    CHECKF(i == 8, "%d cases", i);
}

/* Row by row, because rows of one tensor may differ in magnitude. */
static void rows_close_to(attn_tensor got, attn_tensor want, double tolerance, const char *what)
{
    if (!same_shape(got, want, what))
        return;
    size_t rows = count_of(want) / want.shape[want.ndim - 1];
    got = attn_reshape(got, attn_shape2(rows, want.shape[want.ndim - 1]));
    want = attn_reshape(want, attn_shape2(rows, want.shape[want.ndim - 1]));
    for (size_t r = 0; r < rows; r++)
        close_to(attn_select(got, 0, r), attn_select(want, 0, r), tolerance, what);
}

TEST(softmax_against_torch)
{
    attn_ctx ctx = {0};
    attn_tensor x, want;
    int i;
    for (i = 0; fixture(&x, "softmax.%d.x", i); i++) {
        attn_tensor out = {0}, logs = {0};
        CHECK(fixture(&want, "softmax.%d.out", i));
        if (OK(&ctx, attn_softmax(&ctx, &out, x)))
            rows_close_to(out, want, ROWS, label("softmax", i));
        CHECK(fixture(&want, "softmax.%d.log", i));
        if (OK(&ctx, attn_log_softmax(&ctx, &logs, x)))
            rows_close_to(logs, want, ROWS, label("log_softmax", i));
        done(&ctx);
    }
    CHECKF(i == 11, "%d cases", i);
}

TEST(cross_entropy_against_torch)
{
    attn_ctx ctx = {0};
    attn_tensor logits, targets, want;
    int i;
    for (i = 0; fixture(&logits, "xent.%d.logits", i); i++) {
        attn_tensor nll = {0};
        CHECK(fixture(&targets, "xent.%d.targets", i) && fixture(&want, "xent.%d.out", i));
        if (OK(&ctx, attn_cross_entropy(&ctx, &nll, logits, targets)))
            close_to(nll, want, ROWS, label("cross_entropy", i));
        done(&ctx);
    }
    CHECKF(i == 5, "%d cases", i);
}

TEST(layernorm_against_torch)
{
    attn_ctx ctx = {0};
    attn_tensor x, w, b, f, want;
    int i;
    for (i = 0; fixture(&x, "layernorm.%d.x", i); i++) {
        attn_tensor out = {0};
        /* Case 6 lies around 1000, where one step of an f32 is 6e-5; case 7 has constant rows,
         * where the last bit of the mean is magnified by 1/sqrt(eps). */
        const double allowed = i == 6 ? 1e-4 : i == 7 ? 1e-2 : ROWS;
        fixture(&w, "layernorm.%d.w", i);
        fixture(&b, "layernorm.%d.b", i);
        CHECK(fixture(&f, "layernorm.%d.f", i) && fixture(&want, "layernorm.%d.out", i));
        if (OK(&ctx, attn_layernorm(&ctx, &out, x, w, b, float_of(f)))) {
            close_to(out, want, allowed, label("layernorm", i));
            if (i == 7) { /* 3.0 and 0.0 have exact sums: nothing but b is left */
                same_bits(attn_select(out, 0, 1), b, "layernorm of a constant row");
                same_bits(attn_select(out, 0, 3), b, "layernorm of zeros");
            }
        }
        done(&ctx);
    }
    CHECKF(i == 10, "%d cases", i);
}

TEST(gelu_against_torch)
{
    SCOPED_CTX ctx = {0};
    attn_tensor x, want[2];
    if (!CHECK(fixture(&x, "gelu.0.x") && fixture(&want[ATTN_ACT_GELU_TANH], "gelu.0.tanh") &&
               fixture(&want[ATTN_ACT_GELU_ERF], "gelu.0.erf")))
        return;
    for (int kind = ATTN_ACT_GELU_TANH; kind <= ATTN_ACT_GELU_ERF; kind++) {
        attn_tensor out = {0};
        if (!OK(&ctx, attn_apply_mlp_act(&ctx, &out, x, (attn_mlp_act)kind)))
            continue;
        same_shape(out, want[kind], "gelu");
        for (size_t j = 0; j < count_of(x) && count_of(x) == count_of(out); j++)
            CHECKF(fabs(value_of(out, j) - value_of(want[kind], j)) <=
                       2e-7 * fabs(value_of(x, j)) + 1e-38,
                   "gelu(%.9g) = %.9g, expected %.9g", value_of(x, j), value_of(out, j),
                   value_of(want[kind], j));
    }
}

TEST(embedding_against_torch)
{
    attn_ctx ctx = {0};
    attn_tensor table, ids, args, want;
    int i;
    for (i = 0; fixture(&table, "embedding.%d.table", i); i++) {
        CHECK(fixture(&ids, "embedding.%d.ids", i) && fixture(&want, "embedding.%d.out", i));
        for (int layout = 0; layout < N_LAYOUTS; layout++) {
            attn_tensor out = {0};
            if (OK(&ctx, attn_embedding(&ctx, &out, laid_out(table, table.dtype, layout),
                                        laid_out(ids, ATTN_I32, layout))))
                same_bits(out, want, label("embedding", i));
        }
        done(&ctx);
    }
    CHECKF(i == 5, "%d cases", i);
    for (i = 0; fixture(&table, "positions.%d.table", i); i++) {
        CHECK(fixture(&args, "positions.%d.args", i) && fixture(&want, "positions.%d.out", i));
        same_bits(attn_slice(table, 0, (size_t)arg_of(args, 0), (size_t)arg_of(args, 1)), want,
                  label("positions", i));
        done(&ctx);
    }
    CHECKF(i == 4, "%d cases", i);
}

TEST(random_numbers_against_torch)
{
    attn_tensor seed, at, words, uniform;
    attn_rng rng, floats;
    int i;
    for (i = 0; fixture(&seed, "rng.%d.seed", i); i++) {
        const uint64_t number = (uint32_t)arg_of(seed, 0) | (uint64_t)(uint32_t)arg_of(seed, 1)
                                                                << 32;
        size_t draw = 0;
        if (number >> 32) /* PyTorch would drop the high word */
            continue;
        CHECK(fixture(&at, "rng.%d.at", i) && fixture(&words, "rng.%d.u32", i) &&
              fixture(&uniform, "rng.%d.uniform", i));
        memset(&rng, 0x5A, sizeof rng); /* what was there before must not matter */
        memset(&floats, 0, sizeof floats);
        attn_rng_seed(&rng, number);
        attn_rng_seed(&floats, number);
        for (size_t j = 0; j < count_of(at); j++) {
            for (; draw < (size_t)arg_of(at, j); draw++) {
                attn_rng_u32(&rng);
                attn_rng_uniform(&floats);
            }
            draw++;
            CHECKF(attn_rng_u32(&rng) == (uint32_t)arg_of(words, j), "rng.%d, word %d", i,
                   (int)draw);
            CHECKF((double)attn_rng_uniform(&floats) == value_of(uniform, j), "rng.%d, float %d", i,
                   (int)draw);
        }
    }
    CHECKF(i == 8, "%d cases", i);
}

/* All 64 bits of a seed count. Python, random.seed(seed) and random.getrandbits(32). */
TEST(seeds_of_64_bits)
{
    static const struct {
        uint64_t seed;
        uint32_t words[3];
    } cases[] = {{0x100000000, {485306839, 1508871100, 1794561286}},
                 {0x100000005, {675479763, 2085189291, 1213270837}},
                 {0xDEADBEEFCAFEF00D, {3769845604u, 2965790136u, 3563436881u}},
                 {0xFFFFFFFFFFFFFFFF, {93740670, 1068495656, 1452108352}}};
    attn_rng rng;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_rng_seed(&rng, cases[i].seed);
        for (size_t j = 0; j < 3; j++)
            CHECKF(attn_rng_u32(&rng) == cases[i].words[j], "seed %d, word %d", (int)i, (int)j);
    }
}

/* ---- against the C library in double -------------------------------------------------------- */

static void check_curve(const char *name, attn_tensor x, attn_tensor got, double (*exact)(double),
                        double per_result, double per_input)
{
    double worst = 0, worst_x = 0;
    for (size_t i = 0; i < count_of(x); i++) {
        const double at = value_of(x, i), want = exact(at);
        const double error = fabs(value_of(got, i) - want) /
                             (per_result * fabs(want) + per_input * fabs(at) + 1e-38);
        if (!(error <= worst)) {
            worst = error;
            worst_x = at;
        }
    }
    CHECKF(worst <= 1, "%s is %.3g times as wrong as allowed at %.9g", name, worst, worst_x);
}

static double exact_gelu_tanh(double x)
{
    return x / 2 * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

/* The same where the sum of 1 and tanh would lose everything. */
static double exact_gelu_tail(double x)
{
    return x / (1 + exp(-2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static double exact_gelu_erf(double x)
{
    return x / 2 * erfc(-x * 0.70710678118654752440);
}

static double exact_relu(double x)
{
    return x > 0 ? x : 0;
}

static double exact_silu(double x)
{
    return x / (1 + exp(-x));
}

/* A hundred thousand points on each curve. */
TEST(curves)
{
    SCOPED_CTX ctx = {0};
    const size_t n = 100000;
    attn_tensor x = random_tensor(1, (int)n), e = {0}, t = {0}, f = {0}, l = {0}, nothing;
    attn_tensor r = {0}, s = {0};
    for (size_t i = 0; i < n; i++)
        set_value(x, i, (float)(-87.3 + 176.0 * (double)i / (double)n));
    if (OK(&ctx, attn_exp(&ctx, &e, x)))
        check_curve("exp", x, e, exp, 1.2e-7, 0);
    if (OK(&ctx, attn_apply_mlp_act(&ctx, &s, x, ATTN_ACT_SILU)))
        check_curve("silu", x, s, exact_silu, 3e-7, 0);
    if (OK(&ctx, attn_apply_mlp_act(&ctx, &r, x, ATTN_ACT_RELU)))
        check_curve("relu", x, r, exact_relu, 0, 0);
    for (size_t i = 0; i < n; i++)
        set_value(x, i, (float)(-10 + 20.0 * (double)i / (double)n));
    set_value(x, 0, 1e-10f);
    if (OK(&ctx, attn_apply_mlp_act(&ctx, &t, x, ATTN_ACT_GELU_TANH)))
        check_curve("gelu, tanh form", x, t, exact_gelu_tanh, 1e-7, 1e-7);
    check_curve("gelu, its tail", attn_slice(x, 0, 1, n / 2), attn_slice(t, 0, 1, n / 2),
                exact_gelu_tail, 2e-5, 0);
    if (OK(&ctx, attn_apply_mlp_act(&ctx, &f, x, ATTN_ACT_GELU_ERF)))
        check_curve("gelu, erf form", x, f, exact_gelu_erf, 0, 2e-7);
    check_curve("gelu, erf form's tail", attn_slice(x, 0, 1, n / 2), attn_slice(f, 0, 1, n / 2),
                exact_gelu_erf, 8e-7, 0);
    /* log, seen through log_softmax of pairs: -log(1 + e^-d) and -d - log(1 + e^-d). */
    attn_tensor rows = attn_reshape(x, attn_shape2(n / 2, 2));
    if (OK(&ctx, attn_log_softmax(&ctx, &l, rows))) {
        double worst = 0;
        for (size_t i = 0; i < n; i++) {
            const double other = value_of(rows, i ^ 1) - value_of(rows, i);
            const double want = -log1p(exp(other)), got = value_of(l, i);
            worst = fabs(got - want) > worst ? fabs(got - want) : worst;
        }
        CHECKF(worst < 1e-6, "log_softmax is off by %.3g", worst);
    }
    memset(&nothing, 0, sizeof nothing);
}

TEST(limits_of_exp_and_softmax)
{
    static float values[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 100.0f, -200.0f, 1e38f, -1e38f};
    static float rows[3][2] = {{-INFINITY, -INFINITY}, {INFINITY, 0}, {NAN, 1}};
    SCOPED_CTX ctx = {0};
    attn_tensor out = {0}, soft = {0}, logs = {0};
    OK(&ctx, attn_exp(&ctx, &out, attn_borrow(values, ATTN_F32, attn_shape1(9))));
    if (out.ndim == 1) {
        const float *y = (const float *)out.data;
        CHECK(y[0] == 1.0f && y[1] == 1.0f && isinf(y[2]) && y[2] > 0 && y[3] == 0.0f &&
              isnan(y[4]));
        CHECK(isinf(y[5]) && y[6] == 0.0f && isinf(y[7]) && y[8] == 0.0f && !signbit(y[8]));
    }
    OK(&ctx, attn_softmax(&ctx, &soft, attn_borrow(rows, ATTN_F32, attn_shape2(3, 2))));
    OK(&ctx, attn_log_softmax(&ctx, &logs, attn_borrow(rows, ATTN_F32, attn_shape2(3, 2))));
    CHECK(isnan(attn_get2(soft, 0, 0)) && isnan(attn_get2(soft, 0, 1)));
    CHECK(isnan(attn_get2(soft, 1, 0)) && isnan(attn_get2(soft, 2, 1)));
    CHECK(isnan(attn_get2(logs, 0, 0)) && isnan(attn_get2(logs, 2, 1)));
}

/* ---- every operation, in every way ---------------------------------------------------------- */

static attn_status run_copy(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_copy(ctx, out, in[0]);
}

static attn_status run_add(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_add(ctx, out, in[0], in[1]);
}

static attn_status run_sub(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_sub(ctx, out, in[0], in[1]);
}

static attn_status run_mul(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_mul(ctx, out, in[0], in[1]);
}

static attn_status run_div(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_div(ctx, out, in[0], in[1]);
}

static attn_status run_scale(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_scale(ctx, out, in[0], 0.7f);
}

static attn_status run_exp(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_exp(ctx, out, in[0]);
}

static attn_status run_sum(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_sum(ctx, out, in[0]);
}

static attn_status run_mean(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_mean(ctx, out, in[0]);
}

static attn_status run_variance(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_variance(ctx, out, in[0], 0);
}

static attn_status run_unbiased(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_variance(ctx, out, in[0], 1);
}

static attn_status run_matmul(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_matmul(ctx, out, in[0], in[1]);
}

static attn_status run_linear(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_linear(ctx, out, in[0], in[1], in[2]);
}

static attn_status run_softmax(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_softmax(ctx, out, in[0]);
}

static attn_status run_log_softmax(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_log_softmax(ctx, out, in[0]);
}

static attn_status run_cross_entropy(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_cross_entropy(ctx, out, in[0], in[1]);
}

static attn_status run_layernorm(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_layernorm(ctx, out, in[0], in[1], in[2], 1e-5f);
}

static attn_status run_gelu(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_apply_mlp_act(ctx, out, in[0], ATTN_ACT_GELU_TANH);
}

static attn_status run_gelu_erf(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_apply_mlp_act(ctx, out, in[0], ATTN_ACT_GELU_ERF);
}

static attn_status run_relu(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_apply_mlp_act(ctx, out, in[0], ATTN_ACT_RELU);
}

static attn_status run_silu(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_apply_mlp_act(ctx, out, in[0], ATTN_ACT_SILU);
}

static attn_status run_embedding(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_embedding(ctx, out, in[0], in[1]);
}

static attn_status attend(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in,
                          attn_mask_kind kind)
{
    attn_attention_desc desc = {.mask_kind = ATTN_MASK_NONE};
    desc.mask_kind = kind;
    desc.mask = in[3];
    return attn_attention(ctx, out, in[0], in[1], in[2], &desc);
}

static attn_status run_attention(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attend(ctx, out, in, ATTN_MASK_NONE);
}

static attn_status run_attention_causal(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attend(ctx, out, in, ATTN_MASK_CAUSAL);
}

static attn_status run_attention_masked(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attend(ctx, out, in, ATTN_MASK_GIVEN);
}

static attn_status run_pattern(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    attn_attention_desc desc = {.mask_kind = ATTN_MASK_CAUSAL};
    return attn_attention_pattern(ctx, out, in[0], in[1], &desc);
}

static attn_block_weights weights_in(const attn_tensor *in)
{
    attn_block_weights w;
    w.n_head = 3;
    w.w_q = in[0], w.b_q = in[1], w.w_k = in[2], w.b_k = in[3];
    w.w_v = in[4], w.b_v = in[5], w.w_o = in[6], w.b_o = in[7];
    w.ln1_w = in[8], w.ln1_b = in[9], w.ln2_w = in[10], w.ln2_b = in[11];
    w.w_in = in[12], w.b_in = in[13], w.w_out = in[14], w.b_out = in[15];
    return w;
}

static attn_status run_multihead(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    attn_block_weights w = weights_in(in + 2);
    attn_attention_desc desc = {.mask_kind = ATTN_MASK_CAUSAL};
    return attn_multihead(ctx, out, in[0], in[1], &w, &desc);
}

static attn_status run_multihead_pattern(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    attn_block_weights w = weights_in(in + 2);
    attn_attention_desc desc = {.mask_kind = ATTN_MASK_NONE, .scale = 0.3f};
    return attn_multihead_pattern(ctx, out, in[0], in[1], &w, &desc);
}

static attn_status run_mlp(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    attn_block_weights w;
    memset(&w, 0, sizeof w);
    w.w_in = in[1], w.b_in = in[2], w.w_out = in[3], w.b_out = in[4];
    return attn_mlp(ctx, out, in[0], &w, ATTN_ACT_GELU_TANH);
}

static attn_status run_block(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    attn_block_weights w = weights_in(in + 1);
    return attn_block(ctx, out, in[0], &w, 1e-5f, ATTN_ACT_GELU_TANH);
}

static attn_status run_unembed(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    return attn_unembed(ctx, out, in[0], in[1]);
}

/* w_q, b_q, w_k, b_k, w_v, b_v, w_o, b_o; then those of the norms and of the MLP. */
#define ATTENTION_12 "f12,12 f12 f12,12 f12 f12,12 f12 f12,12 f12"
#define ATTENTION_96 "f96,96 f96 f96,96 f96 f96,96 f96 f96,96 f96"
#define WEIGHTS_12   ATTENTION_12 " f12 f12 f12 f12 f12,50 f50 f50,12 f12"
#define WEIGHTS_96   ATTENTION_96 " f96 f96 f96 f96 f96,384 f384 f384,96 f96"

/* Inputs as text: f is f32, i an id below the number after the colon; then the dimensions. */
typedef struct operation {
    const char *name;
    attn_status (*run)(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in);
    const char *inputs, *result;
    int copies; /* keeps the type of its input */
} operation;

static const operation operations[] = {
    {"copy", run_copy, "f3,2,5,7", "f3,2,5,7", 1},
    {"copy", run_copy, "f300,400", "f300,400", 1},
    {"add", run_add, "f3,1,5,7 f2,1,7", "f3,2,5,7", 0},
    {"add", run_add, "f300,400 f400", "f300,400", 0},
    {"sub", run_sub, "f5,1 f4,1,33", "f4,5,33", 0},
    {"mul", run_mul, "f7 f1", "f7", 0},
    {"div", run_div, "f2,3,17 f2,3,17", "f2,3,17", 0},
    {"scale", run_scale, "f2,3,17", "f2,3,17", 0},
    {"exp", run_exp, "f2,3,17", "f2,3,17", 0},
    {"exp", run_exp, "f300,301", "f300,301", 0},
    {"sum", run_sum, "f2,3,37", "f2,3,1", 0},
    {"sum", run_sum, "f500,301", "f500,1", 0},
    {"mean", run_mean, "f5,16", "f5,1", 0},
    {"variance", run_variance, "f2,2,2,19", "f2,2,2,1", 0},
    {"unbiased variance", run_unbiased, "f9", "f1", 0},
    {"matmul", run_matmul, "f7,45 f45,33", "f7,33", 0},
    {"matmul", run_matmul, "f2,1,5,6 f3,6,17", "f2,3,5,17", 0},
    {"matmul", run_matmul, "f1,77 f77,16", "f1,16", 0},
    {"matmul", run_matmul, "f70,300 f300,310", "f70,310", 0},
    {"matmul", run_matmul, "f1,400 f400,2100", "f1,2100", 0},
    {"linear", run_linear, "f2,3,20 f20,31 f31", "f2,3,31", 0},
    {"linear", run_linear, "f2,3,20 f20,31 -", "f2,3,31", 0},
    {"linear", run_linear, "f20 f20,16 f16", "f16", 0},
    {"linear", run_linear, "f90,200 f200,301 f301", "f90,301", 0},
    {"softmax", run_softmax, "f3,5,37", "f3,5,37", 0},
    {"softmax", run_softmax, "f300,301", "f300,301", 0},
    {"log_softmax", run_log_softmax, "f3,5,37", "f3,5,37", 0},
    {"cross_entropy", run_cross_entropy, "f9,53 i9:53", "f9", 0},
    {"cross_entropy", run_cross_entropy, "f70,1003 i70:1003", "f70", 0},
    {"layernorm", run_layernorm, "f3,5,37 f37 f37", "f3,5,37", 0},
    {"layernorm", run_layernorm, "f7,16 - f16", "f7,16", 0},
    {"layernorm", run_layernorm, "f300,301 f301 -", "f300,301", 0},
    {"gelu", run_gelu, "f3,5,37", "f3,5,37", 0},
    {"gelu", run_gelu, "f300,301", "f300,301", 0},
    {"gelu erf", run_gelu_erf, "f3,5,37", "f3,5,37", 0},
    {"relu", run_relu, "f3,5,37", "f3,5,37", 0},
    {"silu", run_silu, "f3,5,37", "f3,5,37", 0},
    {"embedding", run_embedding, "f11,7 i2,3:11", "f2,3,7", 0},
    {"attention", run_attention, "f2,3,5,7 f2,3,9,7 f2,3,9,4", "f2,3,5,4", 0},
    {"attention", run_attention, "f4,70,32 f4,130,32 f4,130,32", "f4,70,32", 0},
    {"causal attention", run_attention_causal, "f2,5,7 f2,9,7 f2,9,4", "f2,5,4", 0},
    {"causal attention", run_attention_causal, "f4,70,32 f4,130,32 f4,130,32", "f4,70,32", 0},
    {"masked attention", run_attention_masked, "f2,3,5,7 f2,3,9,7 f2,3,9,4 f3,5,9", "f2,3,5,4", 0},
    {"pattern", run_pattern, "f2,5,7 f2,19,7", "f2,5,19", 0},
    {"multihead", run_multihead, "f2,4,12 f2,9,12 " ATTENTION_12, "f2,4,12", 0},
    {"multihead", run_multihead, "f70,96 f100,96 " ATTENTION_96, "f70,96", 0},
    {"multihead pattern", run_multihead_pattern, "f2,4,12 f2,9,12 f12,12 f12 f12,12 f12",
     "f2,3,4,9", 0},
    {"mlp", run_mlp, "f2,4,12 f12,50 f50 f50,12 f12", "f2,4,12", 0},
    {"mlp", run_mlp, "f2,4,12 f12,50 - f50,12 -", "f2,4,12", 0},
    {"block", run_block, "f2,9,12 " WEIGHTS_12, "f2,9,12", 0},
    {"block", run_block, "f70,96 " WEIGHTS_96, "f70,96", 0},
    {"unembed", run_unembed, "f2,3,20 f33,20", "f2,3,33", 0},
    {"unembed", run_unembed, "f3,96 f2048,96", "f3,2048", 0}};
#define N_OPERATIONS (sizeof operations / sizeof operations[0])
#define MAX_INPUTS   18

/* The next tensor of such a text, filled with random numbers. */
static attn_tensor parse_tensor(const char **text)
{
    attn_tensor x;
    size_t shape[4] = {1, 1, 1, 1};
    const char kind = **text;
    int ndim = 0, limit = 0;
    char *end;
    memset(&x, 0, sizeof x);
    ++*text;
    while (**text == ',' || (**text >= '0' && **text <= '9')) {
        *text += **text == ',';
        shape[ndim++] = (size_t)strtol(*text, &end, 10);
        *text = end;
    }
    if (**text == ':') {
        limit = (int)strtol(*text + 1, &end, 10);
        *text = end;
    }
    *text += **text == ' ';
    if (kind == '-')
        return x;
    x = new_tensor(kind == 'i' ? ATTN_I32 : ATTN_F32, ndim, shape, LAYOUT_DENSE);
    for (size_t i = 0; i < count_of(x); i++)
        set_value(x, i, limit ? (float)random_below((size_t)limit) : random_float());
    return x;
}

/* Fills `in` and gives how many there are; the rest are zeroed. */
static size_t make_inputs(const operation *op, attn_tensor *in, attn_tensor *result)
{
    const char *text = op->inputs;
    size_t n = 0;
    memset(in, 0, MAX_INPUTS * sizeof *in);
    random_state = 1000003;
    while (*text)
        in[n++] = parse_tensor(&text);
    text = op->result;
    *result = parse_tensor(&text);
    return n;
}

static const char *op_label(const operation *op, const char *way)
{
    static char text[120];
    snprintf(text, sizeof text, "%s (%s), %s", op->name, op->inputs, way);
    return text;
}

/* An activation of NaN is NaN. An activation of a number far below zero is 0 or -0. */
TEST(limits_of_activations_on_every_isa)
{
    static const float limits[] = {NAN, -INFINITY, -1e30f, -88.71f};
    float values[20]; /* more than a vector */
    SCOPED_CTX ctx = {0};
    for (size_t i = 0; i < 20; i++)
        values[i] = limits[i % 4];
    for (size_t k = 0; k < N_KINDS; k++) {
        ctx.isa = all_kinds[k];
        for (int kind = 0; kind_of(ctx.isa) != 0 && kind <= (int)ATTN_ACT_SILU; kind++) {
            attn_tensor out = {0};
            if (!OK(&ctx,
                    attn_apply_mlp_act(&ctx, &out, attn_borrow(values, ATTN_F32, attn_shape1(20)),
                                       (attn_mlp_act)kind)))
                continue;
            for (size_t i = 0; i < 20; i++)
                CHECKF(i % 4 == 0 ? isnan(value_of(out, i)) : value_of(out, i) == 0,
                       "isa %d, kind %d: %g became %g", (int)ctx.isa, kind, (double)values[i],
                       value_of(out, i));
            attn_tensor_free(&ctx, &out);
        }
    }
}

/* Rule of the manual: the same bits on every instruction set with any number of threads. */
TEST(same_bits_on_every_isa_with_any_threads)
{
    size_t tried = 0;
    for (size_t o = 0; o < N_OPERATIONS; o++) {
        const operation *op = &operations[o];
        attn_tensor in[MAX_INPUTS], shape, want = {0};
        make_inputs(op, in, &shape);
        attn_ctx ctx = {.isa = ATTN_ISA_PORTABLE, .n_threads = 1};
        if (!OK(&ctx, op->run(&ctx, &want, in)) ||
            !same_shape(want, shape, op_label(op, "the result"))) {
            done(&ctx);
            continue;
        }
        for (size_t k = 0; k < N_KINDS; k++) {
            const int here = kind_of(all_kinds[k]);
            for (size_t t = 0; here && t < N_THREADS; t++) {
                attn_tensor got = {0};
                const char *const way =
                    test_text("isa %d, %d threads", (int)all_kinds[k], all_threads[t]);
                ctx.isa = all_kinds[k];
                ctx.n_threads = all_threads[t];
                if (!OK(&ctx, op->run(&ctx, &got, in)))
                    continue;
                if (here == 1)
                    same_bits(got, want, op_label(op, way));
                else
                    close_to(got, want, 1e-5, op_label(op, way));
                tried++;
            }
        }
        ctx.isa = ATTN_ISA_AUTO;
        ctx.n_threads = 0;
        memset(&shape, 0, sizeof shape);
        if (OK(&ctx, op->run(&ctx, &shape, in)) && kind_of(ATTN_ISA_AUTO) == 1)
            same_bits(shape, want, op_label(op, "what AUTO takes"));
        done(&ctx);
    }
    CHECK(kind_of(ATTN_ISA_PORTABLE) == 1 && kind_of(ATTN_ISA_BASE) != 0);
    CHECK(tried >= N_OPERATIONS * 2 * N_THREADS);
}

TEST(strides_do_not_matter)
{
    size_t n;
    for (size_t o = 0; o < N_OPERATIONS; o++) {
        const operation *op = &operations[o];
        attn_tensor in[MAX_INPUTS], moved[MAX_INPUTS], shape, want = {0};
        attn_ctx ctx = {0};
        n = make_inputs(op, in, &shape);
        if (!OK(&ctx, op->run(&ctx, &want, in)))
            continue;
        for (int layout = 1; layout < N_LAYOUTS; layout++) {
            attn_tensor got = {0};
            memset(moved, 0, sizeof moved);
            for (size_t i = 0; i < n; i++) /* neighbours get different layouts */
                moved[i] = laid_out(in[i], in[i].dtype, (layout + (int)i) % N_LAYOUTS);
            if (OK(&ctx, op->run(&ctx, &got, moved)))
                same_bits(got, want, op_label(op, "with strides"));
        }
        done(&ctx);
    }
}

TEST(halfs_widen_exactly)
{
    size_t n;
    for (size_t o = 0; o < N_OPERATIONS; o++) {
        const operation *op = &operations[o];
        attn_tensor in[MAX_INPUTS], halfs[MAX_INPUTS], shape, want = {0};
        attn_ctx ctx = {0};
        n = make_inputs(op, in, &shape);
        for (size_t i = 0; i < n; i++)
            if (in[i].ndim && in[i].dtype == ATTN_F32)
                in[i] = laid_out(laid_out(in[i], ATTN_F16, 0), ATTN_F32, 0);
        if (!OK(&ctx, op->run(&ctx, &want, in)))
            continue;
        for (int layout = 0; layout < N_LAYOUTS; layout++) {
            attn_tensor got = {0};
            memset(halfs, 0, sizeof halfs);
            for (size_t i = 0; i < n; i++)
                halfs[i] = laid_out(in[i], in[i].dtype == ATTN_I32 ? ATTN_I32 : ATTN_F16, layout);
            if (!OK(&ctx, op->run(&ctx, &got, halfs)))
                continue;
            CHECKF(got.dtype == (op->copies ? ATTN_F16 : ATTN_F32), "%s",
                   op_label(op, "type of the result"));
            if (op->copies)
                got = laid_out(got, ATTN_F32, 0);
            same_bits(got, want, op_label(op, "with halfs"));
        }
        done(&ctx);
    }
}

/* Into the caller's tensor, whatever its strides, and nowhere else. */
TEST(results_go_where_they_are_told)
{
    for (size_t o = 0; o < N_OPERATIONS; o++) {
        const operation *op = &operations[o];
        attn_tensor in[MAX_INPUTS], shape, want = {0};
        attn_ctx ctx = {0};
        make_inputs(op, in, &shape);
        if (!OK(&ctx, op->run(&ctx, &want, in)))
            continue;
        for (int layout = 0; layout < N_LAYOUTS; layout++) {
            attn_tensor out = new_tensor(ATTN_F32, shape.ndim, shape.shape, layout), before = out;
            if (!OK(&ctx, op->run(&ctx, &out, in)))
                continue;
            CHECKF(memcmp(&out, &before, sizeof out) == 0, "%s", op_label(op, "moved its result"));
            same_bits(out, want, op_label(op, "into a given tensor"));
            if (layout == LAYOUT_EVERY_2) {
                const float *all = (const float *)out.data;
                for (size_t i = 1; i < 2 * count_of(out); i += 2)
                    if (!CHECKF(isnan(all[i]), "%s", op_label(op, "wrote between its elements")))
                        break;
            }
            if (layout == LAYOUT_ROW_GAPS) {
                const float *all = (const float *)out.data;
                const size_t row = out.shape[out.ndim - 1];
                for (size_t i = 0; i < count_of(out) / row * (row + 3); i++)
                    if (i % (row + 3) >= row &&
                        !CHECKF(isnan(all[i]), "%s", op_label(op, "wrote behind a row")))
                        break;
            }
        }
        done(&ctx);
    }
}

TEST(wrong_results_and_inputs_are_refused)
{
    size_t n;
    for (size_t o = 0; o < N_OPERATIONS; o++) {
        const operation *op = &operations[o];
        attn_tensor in[MAX_INPUTS], shape, kept;
        attn_ctx ctx = {0};
        n = make_inputs(op, in, &shape);
        /* A result of another shape: both shapes are named, nothing is written. */
        attn_tensor wrong = shape;
        wrong.shape[shape.ndim - 1] += 1;
        attn_tensor out = new_tensor(ATTN_F32, shape.ndim, wrong.shape, LAYOUT_DENSE);
        FAILS(SHAPE, shape_text(out), op->run(&ctx, &out, in));
        CHECKF(strstr(ctx.message, shape_text(shape)) != NULL, "%s: \"%s\" does not say %s",
               op_label(op, "wrong result"), ctx.message, shape_text(shape));
        for (size_t i = 0; i < count_of(out); i++)
            if (!CHECKF(isnan(value_of(out, i)), "%s", op_label(op, "wrote a wrong result")))
                break;
        /* A result of integers. */
        ctx.status = ATTN_OK;
        out = new_tensor(ATTN_I32, shape.ndim, shape.shape, LAYOUT_DENSE);
        CHECKF(op->run(&ctx, &out, in) != ATTN_OK && ctx.status != ATTN_OK && ctx.message[0], "%s",
               op_label(op, "into integers"));
        for (size_t i = 0; i < n; i++) {
            if (in[i].ndim == 0)
                continue;
            kept = in[i];
            memset(&out, 0, sizeof out);
            /* A view that could not be made: the reason is reported, optional input or not. */
            ctx.status = ATTN_OK;
            in[i] = attn_slice(kept, 0, kept.shape[0], 1);
            CHECKF(op->run(&ctx, &out, in) != ATTN_OK && ctx.status != ATTN_OK && in[i].error &&
                       strstr(ctx.message, in[i].error),
                   "%s, input %d: \"%s\" does not say \"%s\"", op_label(op, "bad view"), (int)i,
                   ctx.message, in[i].error ? in[i].error : "why");
            CHECKF(out.ndim == 0, "%s", op_label(op, "made a result after all"));
            /* Another type than it takes. */
            if (!op->copies) {
                ctx.status = ATTN_OK;
                ctx.message[0] = 0;
                in[i] = laid_out(kept, kept.dtype == ATTN_I32 ? ATTN_F32 : ATTN_I32, 0);
                CHECKF(op->run(&ctx, &out, in) != ATTN_OK && ctx.status != ATTN_OK &&
                           ctx.message[0] && out.ndim == 0,
                       "%s, input %d", op_label(op, "wrong type"), (int)i);
                attn_tensor_free(&ctx, &out);
            }
            in[i] = kept;
        }
        CHECKF(ctx.blocks == NULL, "%s", op_label(op, "left tensors behind"));
        done(&ctx);
    }
}

/* Every malloc of every operation fails once; nothing is lost and nothing is left. */
TEST(every_allocation_can_fail)
{
    for (size_t o = 0; o < N_OPERATIONS; o++) {
        const operation *op = &operations[o];
        for (int given = 0; given < 2; given++) {
            attn_tensor in[MAX_INPUTS], shape, want = {0}, out;
            attn_ctx plain = {0};
            meter m;
            long n = 0;
            make_inputs(op, in, &shape);
            OK(&plain, op->run(&plain, &want, in));
            attn_ctx ctx = metered(&m);
            for (;;) {
                if (given)
                    out = new_tensor(ATTN_F32, shape.ndim, shape.shape, LAYOUT_DENSE);
                else
                    memset(&out, 0, sizeof out);
                ctx.status = ATTN_OK;
                m.asked = 0;
                m.fail_at = n++;
                attn_status status = op->run(&ctx, &out, in);
                if (status == ATTN_OK)
                    break;
                CHECKF(status == ATTN_E_MEMORY && ctx.status == ATTN_E_MEMORY &&
                           strstr(ctx.message, "memory"),
                       "%s: %s, \"%s\"", op_label(op, "no memory"), attn_status_name(status),
                       ctx.message);
                if (!CHECKF(m.live == 0 && ctx.blocks == NULL && (given || out.ndim == 0), "%s",
                            op_label(op, "left something behind")) ||
                    !CHECKF(n < 1000, "%s", op_label(op, "never succeeds")))
                    break;
            }
            CHECKF(m.asked < n, "%s", op_label(op, "succeeded without its memory"));
            CHECKF(given || n > 1, "%s", op_label(op, "made a result from no memory"));
            CHECKF(m.live == !given, "%s: %ld blocks are left", op_label(op, "at the end"), m.live);
            same_bits(out, want, op_label(op, "after failures"));
            attn_ctx_free(&ctx);
            CHECKF(m.live == 0 && m.wrong == 0, "%s", op_label(op, "leaks"));
            done(&plain);
        }
    }
}

/* Some batches [B, M, K] times one matrix [K, N]: the matrix is packed once, before anything is
 * written, so that not even a result that lies over it disturbs later items. (The manual forbids
 * such a result; here it shows when the matrix is read.) */
TEST(one_matrix_for_a_batch_is_read_once)
{
    attn_ctx ctx = {0};
    for (int kind = 0; kind < 4; kind++) { /* rows that join in memory; transposed ones; halves */
        attn_tensor b = random_tensor(2, 40, 7), want[5];
        float *room = (float *)pool_new(40 * 7 * sizeof(float));
        memset(want, 0, sizeof want);
        attn_tensor a = kind == 0   ? random_tensor(3, 5, 2, 40)
                        : kind == 1 ? attn_transpose(random_tensor(3, 2, 5, 40), 0, 1)
                        : kind == 2 ? attn_transpose(random_tensor(3, 5, 40, 2), 1, 2)
                                    : laid_out(random_tensor(3, 5, 2, 40), ATTN_F16, LAYOUT_DENSE);
        for (size_t i = 0; i < 5; i++)
            OK(&ctx, attn_matmul(&ctx, &want[i], attn_select(a, 0, i), b));
        memcpy(room, b.data, 40 * 7 * sizeof(float));
        b = attn_borrow(room, ATTN_F32, attn_shape2(40, 7));
        attn_tensor out = attn_borrow(room, ATTN_F32, attn_shape3(5, 2, 7));
        OK(&ctx, attn_matmul(&ctx, &out, a, b));
        for (size_t i = 0; i < 5; i++)
            same_bits(attn_select(out, 0, i), want[i], label("item", (int)i));
        done(&ctx);
    }
}

/* Memory is asked for by the size of the job. */
TEST(small_jobs_take_little_memory)
{
    meter m;
    attn_ctx ctx = metered(&m);
    attn_tensor small = random_tensor(2, 2, 2), x = random_tensor(2, 20, 300);
    attn_tensor w = random_tensor(2, 300, 40), out = {0}, none = {0};
    ctx.n_threads = 16;
    OK(&ctx, attn_matmul(&ctx, &out, small, small));
    CHECKF(m.bytes < 512, "a product of 2 by 2 asked for %llu bytes", (unsigned long long)m.bytes);
    attn_tensor_free(&ctx, &out);
    m.bytes = 0;
    OK(&ctx, attn_linear(&ctx, &out, small, small, none));
    CHECKF(m.bytes < 1024, "a linear layer of 2 by 2 asked for %llu bytes",
           (unsigned long long)m.bytes);
    attn_tensor_free(&ctx, &out);
    m.bytes = 0;
    OK(&ctx, attn_attention(&ctx, &out, small, small, small, NULL));
    CHECKF(m.bytes < 512, "attention over 2 keys asked for %llu bytes",
           (unsigned long long)m.bytes);
    attn_tensor_free(&ctx, &out);
    m.bytes = 0;
    OK(&ctx, attn_matmul(&ctx, &out, x, w)); /* w in panels, the result, and rows for 3 threads */
    CHECKF(m.bytes < 4 * (300 * 48 + 20 * 40 + 3 * 20 * 300) + 1024,
           "a product of [20, 300] and [300, 40] asked for %llu bytes",
           (unsigned long long)m.bytes);
    done(&ctx);
    EQUAL(m.live, 0);
}

TEST(isas_that_are_not_here)
{
    int missing = 0;
    for (size_t k = 0; k <= N_KINDS; k++) {
        attn_ctx ctx = {.isa = k < N_KINDS ? all_kinds[k] : (attn_isa_kind)99};
        if (attn_isa(&ctx) != NULL)
            continue;
        missing++;
        for (size_t o = 0; o < N_OPERATIONS; o++) {
            attn_tensor in[MAX_INPUTS], shape, out = {0};
            make_inputs(&operations[o], in, &shape);
            if (operations[o].run == run_matmul || operations[o].run == run_softmax ||
                operations[o].run == run_layernorm || operations[o].run == run_gelu ||
                operations[o].run == run_attention || operations[o].run == run_block) {
                FAILS(UNSUPPORTED, "", operations[o].run(&ctx, &out, in));
                CHECK(ctx.message[0] && out.ndim == 0 && ctx.blocks == NULL);
            }
            pool_clear();
        }
    }
    CHECK(missing >= 2); /* no processor has both AVX and NEON, and 99 is nothing */
}

/* ---- the arithmetic contract, spelled out --------------------------------------------------- */

/* Magnitudes differ, so that another order of operations gives other bits. */
static attn_tensor wild_tensor(int ndim, int d0, int d1)
{
    attn_tensor x = random_tensor(ndim, d0, d1);
    for (size_t i = 0; i < count_of(x); i++)
        set_value(x, i,
                  random_below(20)  ? ldexpf(random_float(), (int)random_below(9) - 4)
                  : random_below(2) ? 0.0f
                                    : -0.0f);
    return x;
}

/* Rule 1: chains of fused multiply-adds over 256 k each, added in order, then the bias. */
static attn_tensor chained(attn_tensor a, attn_tensor b, attn_tensor bias)
{
    const size_t rows = a.shape[0], depth = a.shape[1], columns = b.shape[1];
    attn_tensor out = random_tensor(2, (int)rows, (int)columns);
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < columns; c++) {
            float sum = 0, chain = 0;
            for (size_t k = 0; k < depth; k++) {
                chain = fmaf((float)value_of(a, r * depth + k), (float)value_of(b, k * columns + c),
                             chain);
                if (k % 256 == 255 || k + 1 == depth) {
                    sum = k < 256 ? chain : sum + chain;
                    chain = 0;
                }
            }
            if (bias.ndim)
                sum += (float)value_of(bias, c);
            set_value(out, r * columns + c, sum);
        }
    }
    return out;
}

static void check_matmul_bits(int rows, int depth, int columns)
{
    static const attn_tensor none;
    attn_ctx ctx = {0};
    const attn_dtype a_type = random_below(4) ? ATTN_F32 : ATTN_F16;
    const attn_dtype b_type = random_below(3) ? ATTN_F32 : ATTN_F16;
    attn_tensor a = laid_out(wild_tensor(2, rows, depth), a_type, (int)random_below(N_LAYOUTS));
    attn_tensor b = laid_out(wild_tensor(2, depth, columns), b_type, (int)random_below(N_LAYOUTS));
    attn_tensor bias = wild_tensor(1, columns, 1), product = chained(a, b, none);
    attn_tensor linear = chained(a, b, bias);
    for (size_t k = 0; k < N_KINDS; k++) {
        const int here = kind_of(all_kinds[k]);
        for (size_t t = 0; here && t < N_THREADS; t++) {
            attn_tensor out = {0}, with_bias = {0};
            const char *const what = test_text(
                "[%d, %d] x [%d, %d], types %d %d, isa %d, %d threads", rows, depth, depth, columns,
                (int)a_type, (int)b_type, (int)all_kinds[k], all_threads[t]);
            ctx.isa = all_kinds[k];
            ctx.n_threads = all_threads[t];
            if (!OK(&ctx, attn_matmul(&ctx, &out, a, b)) ||
                !OK(&ctx, attn_linear(&ctx, &with_bias, a, b, bias)))
                continue;
            if (here == 1) {
                same_bits(out, product, what);
                same_bits(with_bias, linear, what);
            } else {
                close_to(out, product, chain_error((size_t)depth), what);
                close_to(with_bias, linear, chain_error((size_t)depth), what);
            }
        }
    }
    done(&ctx);
}

TEST(matmul_is_chains_of_256)
{
    static const int widths[] = {1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 96, 130};
    static const int depths[] = {1, 2, 3, 5, 8, 16, 17, 64, 100, 257};
    random_state = 31;
    for (int rows = 1; rows <= 40; rows += test_full() ? 1 : 3)
        check_matmul_bits(rows, 1 + (int)random_below(40), 1 + (int)random_below(70));
    for (int round = 0; round < (test_full() ? 60 : 20); round++)
        check_matmul_bits(1 + (int)random_below(40), depths[random_below(10)],
                          widths[random_below(16)]);
    for (int rows = 1; rows <= 7; rows++)
        check_matmul_bits(rows, 3072 + rows % 2, 16 + rows); /* longer than any block over k */
    check_matmul_bits(150, 70, 600);
    check_matmul_bits(1, 500, 1200);
}

/* Batches are the same chains. */
TEST(batched_matmul_is_the_same_chains)
{
    static const attn_tensor none;
    attn_ctx ctx = {0};
    attn_tensor out = {0};
    random_state = 8;
    attn_tensor a = random_tensor(4, 2, 1, 6, 19);
    attn_tensor b = random_tensor(3, 3, 19, 21);
    if (!OK(&ctx, attn_matmul(&ctx, &out, a, b)) || kind_of(ATTN_ISA_AUTO) != 1) {
        done(&ctx);
        return;
    }
    for (size_t i = 0; i < 2; i++)
        for (size_t j = 0; j < 3; j++)
            same_bits(attn_select(attn_select(out, 0, i), 0, j),
                      chained(attn_select(attn_select(a, 0, i), 0, 0), attn_select(b, 0, j), none),
                      "one matrix of a batch");
    done(&ctx);
}

/* Rule 2: 16 partial sums, folded upper half onto lower half. */
static float folded(float *partial)
{
    for (int width = 8; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            partial[j] += partial[j + width];
    return partial[0];
}

TEST(sums_use_16_partial_sums)
{
    random_state = 17;
    for (int columns = 1; columns <= 400; columns += columns < 70 ? 1 : 37) {
        attn_ctx ctx = {0};
        attn_tensor x = wild_tensor(2, 5, columns), sum = random_tensor(2, 5, 1);
        attn_tensor mean = random_tensor(2, 5, 1);
        for (size_t r = 0; r < 5; r++) {
            float partial[16] = {0};
            for (size_t j = 0; j < (size_t)columns; j++)
                partial[j % 16] += (float)value_of(x, r * (size_t)columns + j);
            set_value(sum, r, folded(partial));
            set_value(mean, r, (float)value_of(sum, r) / (float)columns);
        }
        for (size_t k = 0; k < N_KINDS; k++) {
            attn_tensor got = {0}, got_mean = {0};
            ctx.isa = all_kinds[k];
            if (kind_of(all_kinds[k]) == 0)
                continue;
            if (OK(&ctx, attn_sum(&ctx, &got, x))) /* no products: exact without fusing, too */
                same_bits(got, sum, label("sum of columns", columns));
            if (OK(&ctx, attn_mean(&ctx, &got_mean, x)))
                close_to(got_mean, mean, 1.2e-7, label("mean of columns", columns));
        }
        done(&ctx);
    }
}

/* A row's result does not depend on the rows around it, nor an element's on its place. */
TEST(rows_do_not_know_their_neighbours)
{
    for (size_t o = 0; o < N_OPERATIONS; o++) {
        const operation *op = &operations[o];
        attn_tensor in[MAX_INPUTS], shape, whole = {0};
        attn_ctx ctx = {0};
        make_inputs(op, in, &shape);
        /* Those whose first dimension is a batch of independent rows. */
        if (op->run != run_matmul && op->run != run_linear && op->run != run_softmax &&
            op->run != run_layernorm && op->run != run_gelu && op->run != run_exp &&
            op->run != run_mlp && op->run != run_unembed && op->run != run_log_softmax &&
            op->run != run_sum && op->run != run_variance) {
            pool_clear();
            continue;
        }
        attn_tensor kept = in[0];
        if (kept.ndim < 2 || !OK(&ctx, op->run(&ctx, &whole, in))) {
            done(&ctx);
            continue;
        }
        for (size_t r = 0; r < kept.shape[0]; r += 1 + kept.shape[0] / 5) {
            const size_t rows = r % 2 && r + 3 <= kept.shape[0] ? 3 : 1;
            attn_tensor part = {0};
            in[0] = attn_slice(kept, 0, r, rows);
            if (OK(&ctx, op->run(&ctx, &part, in)))
                same_bits(part, attn_slice(whole, 0, r, rows), op_label(op, "some rows alone"));
        }
        done(&ctx);
    }
}

TEST(elements_do_not_know_their_place)
{
    SCOPED_CTX ctx = {0};
    for (int kind = 0; kind < 5; kind++) {
        attn_tensor x = random_tensor(1, 64), whole = {0};
        for (size_t i = 0; i < 64; i++)
            set_value(x, i, 6 * random_float());
        OK(&ctx, kind == 4 ? attn_exp(&ctx, &whole, x)
                           : attn_apply_mlp_act(&ctx, &whole, x, (attn_mlp_act)kind));
        for (int n = 1; n < 40; n++) {
            attn_tensor part = {0}, some = attn_slice(x, 0, (size_t)(n % 7), (size_t)n);
            OK(&ctx, kind == 4 ? attn_exp(&ctx, &part, some)
                               : attn_apply_mlp_act(&ctx, &part, some, (attn_mlp_act)kind));
            if (whole.ndim && part.ndim)
                same_bits(part, attn_slice(whole, 0, (size_t)(n % 7), (size_t)n), "some elements");
        }
    }
}

/* ---- the larger operations are made of the smaller ones ---------------------------------------
 */

static void block_of(attn_mlp_act kind)
{
    attn_ctx ctx = {0};
    attn_attention_desc desc = {.mask_kind = ATTN_MASK_CAUSAL};
    attn_tensor in[MAX_INPUTS], shape, none = {0}, out = {0}, h = {0}, attended = {0}, mid = {0};
    attn_tensor q = {0}, k = {0}, v = {0}, z = {0}, joined = {0}, projected = {0}, n2 = {0},
                up = {0};
    attn_tensor act = {0}, down = {0}, last = {0}, mlp = {0};
    const operation op = {"block", run_block, "f2,21,12 " WEIGHTS_12, "f2,21,12", 0};
    const attn_shape heads = attn_shape4(2, 21, 3, 4);
    make_inputs(&op, in, &shape);
    attn_tensor x = in[0];
    attn_block_weights w = weights_in(in + 1);
    OK(&ctx, attn_block(&ctx, &out, x, &w, 1e-5f, kind));
    OK(&ctx, attn_layernorm(&ctx, &h, x, w.ln1_w, w.ln1_b, 1e-5f));
    OK(&ctx, attn_multihead(&ctx, &attended, h, h, &w, &desc));
    OK(&ctx, attn_linear(&ctx, &q, h, w.w_q, w.b_q));
    OK(&ctx, attn_linear(&ctx, &k, h, w.w_k, w.b_k));
    OK(&ctx, attn_linear(&ctx, &v, h, w.w_v, w.b_v));
    OK(&ctx, attn_attention(&ctx, &z, attn_transpose(attn_reshape(q, heads), 1, 2),
                            attn_transpose(attn_reshape(k, heads), 1, 2),
                            attn_transpose(attn_reshape(v, heads), 1, 2), &desc));
    OK(&ctx, attn_copy(&ctx, &joined, attn_transpose(z, 1, 2)));
    OK(&ctx,
       attn_linear(&ctx, &projected, attn_reshape(joined, attn_shape3(2, 21, 12)), w.w_o, w.b_o));
    same_bits(attended, projected, "multihead");
    OK(&ctx, attn_add(&ctx, &mid, x, attended));
    OK(&ctx, attn_layernorm(&ctx, &n2, mid, w.ln2_w, w.ln2_b, 1e-5f));
    OK(&ctx, attn_linear(&ctx, &up, n2, w.w_in, w.b_in));
    OK(&ctx, attn_apply_mlp_act(&ctx, &act, up, kind));
    OK(&ctx, attn_linear(&ctx, &down, act, w.w_out, w.b_out));
    OK(&ctx, attn_mlp(&ctx, &mlp, n2, &w, kind));
    same_bits(mlp, down, "mlp");
    OK(&ctx, attn_add(&ctx, &last, mid, down));
    same_bits(out, last, "block");
    OK(&ctx, attn_unembed(&ctx, &none, mid, w.w_o));
    memset(&z, 0, sizeof z);
    OK(&ctx, attn_matmul(&ctx, &z, mid, attn_transpose(w.w_o, 0, 1)));
    same_bits(none, z, "unembed");
    done(&ctx);
}

TEST(block_is_its_parts)
{
    block_of(ATTN_ACT_GELU_TANH);
    block_of(ATTN_ACT_GELU_ERF);
    block_of(ATTN_ACT_RELU);
    block_of(ATTN_ACT_SILU);
}

/* ---- edges ------------------------------------------------------------------------------------
 */

/* Padding of the kernels' lines must not meet infinities, nor NaN another row or column. */
TEST(infinities_stay_where_they_belong)
{
    static const int sizes[][3] = {{5, 7, 17}, {1, 3, 1}, {16, 15, 31}};
    static const attn_tensor none;
    attn_ctx ctx = {0};
    random_state = 6;
    for (size_t s = 0; s < 3; s++) {
        const size_t rows = (size_t)sizes[s][0], depth = (size_t)sizes[s][1];
        const size_t columns = (size_t)sizes[s][2];
        for (int type = ATTN_F32; type <= ATTN_F16; type++) {
            attn_tensor a = random_tensor(2, sizes[s][0], sizes[s][1]);
            attn_tensor b =
                laid_out(random_tensor(2, sizes[s][1], sizes[s][2]), (attn_dtype)type, 0);
            set_value(a, rows * depth - 1, INFINITY); /* the last row's last */
            set_value(a, 0, NAN);                     /* the first row's first */
            set_value(b, depth * columns - 1, -INFINITY);
            attn_tensor want = chained(a, b, none);
            for (size_t k = 0; k < N_KINDS; k++) {
                attn_tensor out = {0};
                ctx.isa = all_kinds[k];
                if (kind_of(ctx.isa) == 0 || !OK(&ctx, attn_matmul(&ctx, &out, a, b)))
                    continue;
                for (size_t r = 0; r < rows; r++) {
                    for (size_t c = 0; c < columns; c++) {
                        const double got = value_of(out, r * columns + c);
                        const double w = value_of(want, r * columns + c);
                        CHECKF(isnan(w)   ? isnan(got)
                               : isinf(w) ? got == w
                                          : fabs(got - w) < 1e-5,
                               "row %d, column %d: %g, expected %g", (int)r, (int)c, got, w);
                    }
                }
            }
            done(&ctx);
        }
    }
}

/* Any dimension may be zero. */
TEST(empty_tensors)
{
    static const operation empties[] = {
        {"copy", run_copy, "f0,3", "f0,3", 0},
        {"add", run_add, "f0,3 f3", "f0,3", 0},
        {"add", run_add, "f2,0 f1", "f2,0", 0},
        {"mul", run_mul, "f1,1 f4,0", "f4,0", 0},
        {"scale", run_scale, "f0", "f0", 0},
        {"exp", run_exp, "f0,0,0,0", "f0,0,0,0", 0},
        {"sum", run_sum, "f0,5", "f0,1", 0},
        {"mean", run_mean, "f0,5", "f0,1", 0},
        {"variance", run_variance, "f0,5", "f0,1", 0},
        {"matmul", run_matmul, "f0,5 f5,3", "f0,3", 0},
        {"matmul", run_matmul, "f2,5 f5,0", "f2,0", 0},
        {"matmul", run_matmul, "f0,2,5 f5,3", "f0,2,3", 0},
        {"linear", run_linear, "f0,5 f5,3 f3", "f0,3", 0},
        {"linear", run_linear, "f2,5 f5,0 f0", "f2,0", 0},
        {"softmax", run_softmax, "f0,5", "f0,5", 0},
        {"softmax", run_softmax, "f3,0", "f3,0", 0},
        {"log_softmax", run_log_softmax, "f3,0", "f3,0", 0},
        {"cross_entropy", run_cross_entropy, "f0,5 i0:5", "f0", 0},
        {"layernorm", run_layernorm, "f0,5 f5 f5", "f0,5", 0},
        {"layernorm", run_layernorm, "f3,0 f0 f0", "f3,0", 0},
        {"gelu", run_gelu, "f0,5", "f0,5", 0},
        {"embedding", run_embedding, "f4,5 i0:4", "f0,5", 0},
        {"embedding", run_embedding, "f4,0 i2:4", "f2,0", 0},
        {"embedding", run_embedding, "f0,5 i0:4", "f0,5", 0},
        {"attention", run_attention, "f0,8 f3,8 f3,4", "f0,4", 0},
        {"attention", run_attention, "f0,2,8 f0,3,8 f0,3,4", "f0,2,4", 0},
        {"attention", run_attention, "f2,8 f3,8 f3,0", "f2,0", 0},
        {"causal attention", run_attention_causal, "f0,8 f0,8 f0,4", "f0,4", 0},
        {"multihead", run_multihead, "f0,12 f0,12 " ATTENTION_12, "f0,12", 0},
        {"mlp", run_mlp, "f0,12 f12,50 f50 f50,12 f12", "f0,12", 0},
        {"block", run_block, "f0,12 " WEIGHTS_12, "f0,12", 0},
        {"block", run_block, "f0,4,12 " WEIGHTS_12, "f0,4,12", 0},
        {"unembed", run_unembed, "f0,6 f9,6", "f0,9", 0},
        {"unembed", run_unembed, "f2,6 f0,6", "f2,0", 0}};
    for (size_t o = 0; o < sizeof empties / sizeof empties[0]; o++) {
        const operation *op = &empties[o];
        for (size_t k = 0; k < N_KINDS; k++) {
            attn_tensor in[MAX_INPUTS], shape, out = {0}, again;
            meter m;
            attn_ctx ctx = metered(&m);
            ctx.isa = all_kinds[k];
            if (kind_of(ctx.isa) == 0)
                continue;
            make_inputs(op, in, &shape);
            if (OK(&ctx, op->run(&ctx, &out, in))) {
                same_shape(out, shape, op_label(op, "empty"));
                again = out; /* and into the empty result */
                OK(&ctx, op->run(&ctx, &again, in));
            }
            done(&ctx);
            CHECK(m.live == 0 && m.wrong == 0);
        }
    }
}

/* Sums over nothing are zero. */
TEST(sums_over_nothing)
{
    SCOPED_CTX ctx = {0};
    attn_tensor bias = random_tensor(1, 3), out = {0}, linear = {0}, sum = {0};
    attn_tensor a = new_tensor(ATTN_F32, 2, attn_slice(random_tensor(2, 2, 1), 1, 0, 0).shape, 0);
    attn_tensor b = new_tensor(ATTN_F32, 2, attn_slice(random_tensor(2, 1, 3), 0, 0, 0).shape, 0);
    attn_tensor zero = random_tensor(2, 2, 3);
    memset(zero.data, 0, 24);
    OK(&ctx, attn_matmul(&ctx, &out, a, b));
    same_bits(out, zero, "matmul over no k");
    OK(&ctx, attn_linear(&ctx, &linear, a, b, bias));
    if (linear.ndim == 2) {
        same_bits(attn_select(linear, 0, 0), bias, "linear over no k");
        same_bits(attn_select(linear, 0, 1), bias, "linear over no k");
    }
    OK(&ctx, attn_sum(&ctx, &sum, a));
    CHECK(sum.ndim == 2 && sum.shape[1] == 1 && attn_get2(sum, 0, 0) == 0.0f &&
          attn_get2(sum, 1, 0) == 0.0f);
}

/* A view whose rows are all the same row, as broadcasting by hand makes it. */
TEST(repeated_rows)
{
    SCOPED_CTX ctx = {0};
    attn_tensor row = random_tensor(1, 21), b = random_tensor(2, 21, 18), got = {0};
    attn_tensor want = {0}, soft = {0}, soft_want = {0};
    attn_tensor x = attn_reshape(row, attn_shape2(1, 21));
    x.shape[0] = 4;
    x.stride[0] = 0;
    attn_tensor dense = laid_out(x, ATTN_F32, LAYOUT_DENSE);
    OK(&ctx, attn_matmul(&ctx, &got, x, b));
    OK(&ctx, attn_matmul(&ctx, &want, dense, b));
    same_bits(got, want, "matmul of repeated rows");
    OK(&ctx, attn_softmax(&ctx, &soft, x));
    OK(&ctx, attn_softmax(&ctx, &soft_want, dense));
    same_bits(soft, soft_want, "softmax of repeated rows");
}

/* ---- refusals ---------------------------------------------------------------------------------
 */

/* A mismatch is ATTN_E_SHAPE and names both shapes. */
static void check_shapes(attn_status (*run)(attn_ctx *, attn_tensor *, const attn_tensor *),
                         const char *inputs, const char *one, const char *two)
{
    operation op = {"mismatch", NULL, NULL, "f1", 0};
    attn_tensor in[MAX_INPUTS], shape, out = {0};
    attn_ctx ctx = {0};
    op.inputs = inputs;
    make_inputs(&op, in, &shape);
    attn_status status = run(&ctx, &out, in);
    CHECKF(status == ATTN_E_SHAPE && ctx.status == ATTN_E_SHAPE && strstr(ctx.message, one) &&
               strstr(ctx.message, two) && out.ndim == 0 && ctx.blocks == NULL,
           "(%s) gave %s \"%s\", expected ATTN_E_SHAPE with %s and %s", inputs,
           attn_status_name(status), ctx.message, one, two);
    done(&ctx);
}

static attn_status run_multihead_5(attn_ctx *ctx, attn_tensor *out, const attn_tensor *in)
{
    attn_block_weights w = weights_in(in + 2);
    w.n_head = 5;
    return attn_multihead(ctx, out, in[0], in[1], &w, NULL);
}

TEST(mismatches_name_both_shapes)
{
    check_shapes(run_matmul, "f2,3 f4,5", "[2, 3]", "[4, 5]");
    check_shapes(run_matmul, "f2,7,3 f4,3,5", "[2, 7, 3]", "[4, 3, 5]");
    check_shapes(run_matmul, "f3 f3,5", "[3]", "[3, 5]");
    check_shapes(run_matmul, "f2,3 f3", "[2, 3]", "[3]");
    check_shapes(run_linear, "f2,3 f4,5 -", "[2, 3]", "[4, 5]");
    check_shapes(run_linear, "f2,3 f3,5 f4", "[3, 5]", "[4]");
    check_shapes(run_linear, "f2,3 f3,5 f1,5", "[3, 5]", "[1, 5]");
    check_shapes(run_linear, "f2,3 f6,3,5 -", "[2, 3]", "[6, 3, 5]");
    check_shapes(run_add, "f2,3 f4,3", "[2, 3]", "[4, 3]");
    check_shapes(run_sub, "f2,3 f2", "[2, 3]", "[2]");
    check_shapes(run_mul, "f0,3 f2,3", "[0, 3]", "[2, 3]");
    check_shapes(run_div, "f2,1,3 f2,2,4", "[2, 1, 3]", "[2, 2, 4]");
    check_shapes(run_cross_entropy, "f5,7 i4:7", "[5, 7]", "[4]");
    check_shapes(run_layernorm, "f2,3 f4 -", "[2, 3]", "[4]");
    check_shapes(run_layernorm, "f2,3 - f4", "[2, 3]", "[4]");
    check_shapes(run_layernorm, "f2,3 f1,3 -", "[2, 3]", "[1, 3]");
    check_shapes(run_attention, "f5,8 f6,7 f6,4", "[5, 8]", "[6, 7]");
    check_shapes(run_attention, "f5,8 f6,8 f7,4", "[6, 8]", "[7, 4]");
    check_shapes(run_attention, "f2,5,8 f3,6,8 f3,6,4", "[2, 5, 8]", "[3, 6, 8]");
    check_shapes(run_attention, "f3,5,8 f3,6,8 f2,6,4", "[3, 5, 8]", "[2, 6, 4]");
    check_shapes(run_attention_masked, "f5,8 f6,8 f6,4 f6,6", "[5, 6]", "[6, 6]");
    check_shapes(run_attention_masked, "f2,5,8 f2,6,8 f2,6,4 f3,5,6", "[2, 5, 6]", "[3, 5, 6]");
    check_shapes(run_multihead, "f4,12 f9,11 " ATTENTION_12, "[9, 11]", "[12, 12]");
    check_shapes(run_multihead, "f4,11 f9,12 " ATTENTION_12, "[4, 11]", "[12, 12]");
    check_shapes(run_multihead, "f2,4,12 f3,9,12 " ATTENTION_12, "[2, 4, 12]", "[3, 9, 12]");
    check_shapes(run_multihead, "f4,12 f9,12 f12,12 - f12,15 - f12,12 - f12,12 -", "[12, 12]",
                 "[12, 15]");
    check_shapes(run_multihead, "f4,12 f9,12 f12,12 - f12,12 - f12,12 - f15,12 -", "[15, 12]",
                 "12]");
    check_shapes(run_mlp, "f4,11 f12,50 f50 f50,12 f12", "[4, 11]", "[12, 50]");
    check_shapes(run_mlp, "f4,12 f12,50 f50 f51,12 f12", "[51, 12]", "50]");
    check_shapes(run_block, "f4,11 " WEIGHTS_12, "[4, 11]", "[12]");
    check_shapes(run_unembed, "f2,3 f9,4", "[2, 3]", "[9, 4]");
}

TEST(other_refusals)
{
    SCOPED_CTX ctx = {0};
    attn_tensor in[MAX_INPUTS], shape, out = {0}, none = {0};
    attn_attention_desc desc = {.mask_kind = ATTN_MASK_GIVEN};
    static const operation op = {"multihead", run_multihead, "f4,12 f9,12 " ATTENTION_12, "f4,12",
                                 0};
    make_inputs(&op, in, &shape);
    attn_tensor x = in[0];
    /* 12 columns are not 5 heads; no head is none. */
    CHECK(run_multihead_5(&ctx, &out, in) != ATTN_OK && strstr(ctx.message, "5") != NULL);
    {
        attn_block_weights w = weights_in(in + 2);
        w.n_head = 0;
        ctx.status = ATTN_OK;
        CHECK(attn_multihead(&ctx, &out, x, x, &w, NULL) != ATTN_OK && ctx.status != ATTN_OK);
    }
    /* A mask that is promised and missing, and a kind of mask that there is not. */
    ctx.status = ATTN_OK;
    CHECK(attn_attention(&ctx, &out, x, x, x, &desc) != ATTN_OK && ctx.status != ATTN_OK);
    desc.mask_kind = (attn_mask_kind)7;
    ctx.status = ATTN_OK;
    CHECK(attn_attention(&ctx, &out, x, x, x, &desc) != ATTN_OK && ctx.status != ATTN_OK);
    attn_tensor_free(&ctx, &out);
    ctx.status = ATTN_OK;
    FAILS(ARGUMENT, "kind is 4", attn_apply_mlp_act(&ctx, &out, x, (attn_mlp_act)4));
    /* Ids outside the table, and targets outside the vocabulary. */
    attn_tensor table = random_tensor(2, 6, 4);
    attn_tensor ids = laid_out(random_tensor(1, 3), ATTN_I32, 0);
    ((int32_t *)ids.data)[2] = 6;
    FAILS(TOKEN, "6", attn_embedding(&ctx, &out, table, ids));
    FAILS(TOKEN, "6", attn_cross_entropy(&ctx, &out, random_tensor(2, 3, 6), ids));
    ((int32_t *)ids.data)[2] = -1;
    FAILS(TOKEN, "-1", attn_embedding(&ctx, &out, table, ids));
    FAILS(TOKEN, "-1", attn_cross_entropy(&ctx, &out, random_tensor(2, 3, 6), ids));
    ((int32_t *)ids.data)[2] = INT32_MIN;
    FAILS(TOKEN, "-2147483648", attn_embedding(&ctx, &out, table, ids));
    /* Four dimensions of ids would make five. */
    ids = attn_reshape(laid_out(random_tensor(1, 3), ATTN_I32, 0), attn_shape4(1, 1, 1, 3));
    memset(ids.data, 0, 12);
    ctx.status = ATTN_OK;
    CHECK(attn_embedding(&ctx, &out, table, ids) != ATTN_OK && ctx.status != ATTN_OK);
    /* A pattern of another shape. */
    desc.mask_kind = ATTN_MASK_NONE;
    table = random_tensor(2, 4, 5);
    FAILS(SHAPE, "[4, 5]", attn_attention_pattern(&ctx, &table, x, x, &desc));
    CHECK(strstr(ctx.message, "[4, 4]") != NULL);
    CHECK(attn_linear(&ctx, &out, x, none, none) != ATTN_OK);
    CHECK(out.ndim == 0 && ctx.blocks == NULL);
}

/* A result that is a view which could not be made must not turn into a tensor of its own: what was
 * written would never arrive. */
TEST(results_that_could_not_be_made)
{
    for (size_t o = 0; o < N_OPERATIONS; o++) {
        const operation *op = &operations[o];
        attn_tensor in[MAX_INPUTS], shape, out;
        attn_ctx ctx = {0};
        make_inputs(op, in, &shape);
        attn_tensor bad = out = attn_slice(shape, 0, shape.shape[0], 1);
        CHECKF(op->run(&ctx, &out, in) != ATTN_OK && ctx.status != ATTN_OK && bad.error &&
                   strstr(ctx.message, bad.error) && out.ndim == 0 && ctx.blocks == NULL,
               "%s: \"%s\"", op_label(op, "into a bad view"), ctx.message);
        attn_ctx_free(&ctx);
        memset(&ctx, 0, sizeof ctx);
        memset(&out, 0, sizeof out);
        OK(&ctx, attn_zeros(&ctx, &out, ATTN_F32, attn_shape1(3)));
        attn_tensor_free(&ctx, &out); /* a freed one is like a fresh one */
        OK(&ctx, op->run(&ctx, &out, in));
        same_shape(out, shape, op_label(op, "into a freed tensor"));
        done(&ctx);
    }
}

/* Empty tensors can have dimensions that no buffer can have. They may work or be refused. */
TEST(sizes_beyond_memory)
{
    const size_t huge = SIZE_MAX / 8; /* in bytes it fits in ptrdiff_t, with a little more not */
    meter m;
    SCOPED_CTX ctx = metered(&m);
    attn_tensor wide = attn_borrow(NULL, ATTN_F32, attn_shape2(0, huge)), none = {0}, x, out = {0};
    attn_tensor tall = attn_borrow(NULL, ATTN_F32, attn_shape2(huge, 0));
    attn_tensor vast = attn_borrow(NULL, ATTN_F32, attn_shape2(huge / 4, 0));
    if (!CHECK(wide.ndim == 2 && tall.ndim == 2 && vast.ndim == 2))
        return;
    x = new_tensor(ATTN_F32, 2, attn_slice(wide, 1, 0, 0).shape, LAYOUT_DENSE); /* [0, 0] */
    x.shape[0] = 2;
#define TRY(call)                                                                                  \
    do {                                                                                           \
        ctx.message[0] = 0;                                                                        \
        CHECK((call) == ATTN_OK || ctx.message[0]);                                                \
        attn_tensor_free(&ctx, &out);                                                              \
        memset(&out, 0, sizeof out);                                                               \
        EQUAL(m.live, 0);                                                                          \
    } while (0)
    TRY(attn_add(&ctx, &out, wide, wide));
    TRY(attn_exp(&ctx, &out, wide));
    TRY(attn_sum(&ctx, &out, wide));
    TRY(attn_softmax(&ctx, &out, wide));
    TRY(attn_log_softmax(&ctx, &out, wide));
    TRY(attn_layernorm(&ctx, &out, wide, none, none, 1e-5f));
    TRY(attn_apply_mlp_act(&ctx, &out, wide, ATTN_ACT_GELU_TANH));
    TRY(attn_copy(&ctx, &out, wide));
    TRY(attn_matmul(&ctx, &out, x, wide));
    TRY(attn_matmul(&ctx, &out, wide, tall));
    TRY(attn_matmul(&ctx, &out, tall, x));
    TRY(attn_linear(&ctx, &out, x, wide, none));
    TRY(attn_unembed(&ctx, &out, x, tall));
    TRY(attn_attention(&ctx, &out, x, tall, tall, NULL));
    TRY(attn_attention(&ctx, &out, x, vast, vast, NULL));
    TRY(attn_attention(&ctx, &out, tall, x, x, NULL));
    TRY(attn_attention(&ctx, &out, wide, wide, wide, NULL));
#undef TRY
}

TEST(shapes_that_are_refused)
{
    SCOPED_CTX ctx = {0};
    const attn_tensor v = some(1, 4, 1, 1), m = some(2, 3, 4, 1), sq = some(2, 4, 4, 1);
    const attn_tensor x3 = some(3, 2, 3, 4), ids = some_ids(3, 0), ids2 = some_ids(2, 0);
    attn_tensor grid = some_ids(3, 0), strided;
    attn_block_weights w;
    attn_attention_desc desc;
    memset(&w, 0, sizeof w);
    memset(&desc, 0, sizeof desc);
    REFUSED(SHAPE, "attn_cross_entropy", attn_cross_entropy(&ctx, &not_made, x3, ids));
    REFUSED(SHAPE, "attn_cross_entropy", attn_cross_entropy(&ctx, &not_made, m, ids2));
    REFUSED(SHAPE, "attn_cross_entropy",
            attn_cross_entropy(&ctx, &not_made, m, attn_reshape(ids, attn_shape2(3, 1))));
    REFUSED(SHAPE, "attn_unembed", attn_unembed(&ctx, &not_made, m, v));
    REFUSED(SHAPE, "attn_unembed", attn_unembed(&ctx, &not_made, m, some(2, 4, 5, 1)));
    REFUSED(SHAPE, "attn_embedding", attn_embedding(&ctx, &not_made, v, ids));
    attn_shape shape = attn_shape4(3, 1, 1, 1);
    grid = attn_reshape(grid, shape);
    REFUSED(SHAPE, "attn_embedding", attn_embedding(&ctx, &not_made, m, grid));
    REFUSED(SHAPE, "attn_embedding", attn_embedding(&ctx, &not_made, m, v));
    REFUSED(SHAPE, "attn_attention", attn_attention(&ctx, &not_made, v, sq, sq, NULL));
    REFUSED(SHAPE, "attn_attention", attn_attention(&ctx, &not_made, sq, v, sq, NULL));
    REFUSED(SHAPE, "attn_attention", attn_attention(&ctx, &not_made, sq, sq, v, NULL));
    REFUSED(SHAPE, "attn_attention_pattern", attn_attention_pattern(&ctx, &not_made, v, sq, NULL));
    REFUSED(SHAPE, "attn_attention_pattern", attn_attention_pattern(&ctx, &not_made, sq, v, NULL));
    desc.mask_kind = (attn_mask_kind)-1;
    REFUSED(ARGUMENT, "mask_kind is", attn_attention(&ctx, &not_made, sq, sq, sq, &desc));
    desc.mask_kind = (attn_mask_kind)3;
    REFUSED(ARGUMENT, "mask_kind is 3", attn_attention(&ctx, &not_made, sq, sq, sq, &desc));
    desc.mask_kind = ATTN_MASK_CAUSAL;
    REFUSED(SHAPE, "no more queries than keys",
            attn_attention(&ctx, &not_made, some(2, 5, 4, 1), sq, sq, &desc));
    desc.mask_kind = ATTN_MASK_GIVEN;
    desc.mask = v;
    REFUSED(SHAPE, "the mask has shape", attn_attention(&ctx, &not_made, sq, sq, sq, &desc));
    desc.mask = some(2, 3, 4, 1);
    REFUSED(SHAPE, "the mask has shape", attn_attention(&ctx, &not_made, sq, sq, sq, &desc));
    desc.mask = some(2, 4, 3, 1);
    REFUSED(SHAPE, "the mask has shape", attn_attention(&ctx, &not_made, sq, sq, sq, &desc));
    desc.mask = some(3, 2, 4, 4); /* for a batch that there is not */
    REFUSED(SHAPE, "the mask has shape", attn_attention(&ctx, &not_made, sq, sq, sq, &desc));
    desc.mask = no_tensor;
    REFUSED(ARGUMENT, "mask", attn_attention(&ctx, &not_made, sq, sq, sq, &desc));

    w.n_head = 2;
    w.w_q = w.w_k = w.w_v = sq;
    REFUSED(SHAPE, "expected [T, C]", attn_multihead(&ctx, &not_made, v, v, &w, NULL));
    REFUSED(SHAPE, "expected [T, C]", attn_multihead(&ctx, &not_made, m, x3, &w, NULL));
    REFUSED(SHAPE, "expected [T, C]",
            attn_multihead(&ctx, &not_made, attn_reshape(x3, attn_shape4(1, 2, 3, 4)),
                           attn_reshape(x3, attn_shape4(1, 2, 3, 4)), &w, NULL));
    w.w_q = v;
    REFUSED(SHAPE, "for both", attn_multihead(&ctx, &not_made, m, m, &w, NULL));
    w.w_q = sq;
    w.w_k = v;
    REFUSED(SHAPE, "for both", attn_multihead(&ctx, &not_made, m, m, &w, NULL));
    w.w_k = some(2, 4, 6, 1);
    REFUSED(SHAPE, "for both", attn_multihead(&ctx, &not_made, m, m, &w, NULL));
    w.w_k = sq;
    w.w_v = v;
    REFUSED(SHAPE, "does not divide", attn_multihead(&ctx, &not_made, m, m, &w, NULL));
    w.w_v = some(2, 4, 3, 1);
    REFUSED(SHAPE, "does not divide", attn_multihead(&ctx, &not_made, m, m, &w, NULL));
    w.w_v = sq;
    w.n_head = 3;
    REFUSED(SHAPE, "w_q [4, 4] does not divide into 3",
            attn_multihead(&ctx, &not_made, m, m, &w, NULL));
    REFUSED(SHAPE, "w_q [4, 4] does not divide into 3",
            attn_multihead_pattern(&ctx, &not_made, m, m, &w, NULL));
    w.n_head = 0;
    REFUSED(SHAPE, "does not divide into 0", attn_multihead(&ctx, &not_made, m, m, &w, NULL));

    /* out of another shape or type; into halves, whole numbers and columns it goes */
    not_made = some(3, 1, 3, 4);
    FAILS(SHAPE, "attn_copy", attn_copy(&ctx, &not_made, m));
    not_made = some(2, 4, 3, 1);
    FAILS(SHAPE, "attn_copy", attn_copy(&ctx, &not_made, m));
    ctx.status = ATTN_OK;
    attn_tensor bits = some_ids(3, 7);
    not_made = some(1, 3, 1, 1);
    OK(&ctx, attn_copy(&ctx, &not_made, bits));
    EQUAL(attn_get1(not_made, 2), 9);
    OK(&ctx, attn_copy(&ctx, &bits, bits));
    CHECK(((int32_t *)bits.data)[1] == 8);
    {
        const size_t dims[2] = {3, 4};
        strided = new_tensor(ATTN_F16, 2, dims, LAYOUT_DENSE);
    }
    OK(&ctx, attn_scale(&ctx, &strided, m, 2));
    CHECK(fabs((double)attn_get2(strided, 2, 3) - 2 * (double)attn_get2(m, 2, 3)) < 1e-3);
}

/* Empty tensors through what else runs over rows. */
TEST(rows_of_nothing)
{
    SCOPED_CTX ctx = {0};
    attn_tensor empty = no_tensor;
    char text[64];
    OK(&ctx, attn_zeros(&ctx, &empty, ATTN_F32, attn_shape2(3, 0)));
    format_tensor(text, sizeof text, empty, 2);
    CHECK(strstr(text, "[]") != NULL);
    CHECK(attn_slice(attn_borrow(NULL, ATTN_F32, attn_shape1(0)), 0, 0, 0).data == NULL);
}

/* Work for more threads than there are rows or panels: some get nothing to do, and the rows are
 * shared out by as many as divide the threads. With 128 rows or more for a thread, each has two parts
 * of them. The bits do not change. */
TEST(more_threads_than_work)
{
    static const size_t rows[] = {1, 2, 20, 50, 130, 390, 1100};
    static const int threads[] = {2, 3, 6, 8};
    for (size_t i = 0; i < 7; i++) {
        const attn_tensor a = some(2, rows[i], 300, 1), b = some(2, 300, 40, 1);
        attn_ctx ctx = alone();
        attn_tensor want = no_tensor;
        OK(&ctx, attn_matmul(&ctx, &want, a, b));
        for (size_t t = 0; t < 4; t++) {
            attn_tensor got = no_tensor;
            ctx.n_threads = threads[t];
            OK(&ctx, attn_matmul(&ctx, &got, a, b));
            CHECK(same_bits(got, want, "matmul"));
        }
        done(&ctx);
    }
}

/* Nothing varies, so the gain has nothing to work on and the bias is what comes out: exactly where
 * the mean is exact, else within what the mean's rounding can make of it. */
static void constant_rows_in(attn_ctx *ctx)
{
    static const float values[] = {0, 1, -2, 0.1f, 1e-30f, 1e-45f, 12345.678f, 1e15f};
    static float x[MOST], w[MOST], b[MOST];
    static const size_t widths[] = {1, 2, 15, 16, 17, 64, 768, 1024};
    for (size_t k = 0; k < sizeof widths / sizeof *widths; k++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            const size_t n = widths[k];
            const int exact = values[v] == 0 || values[v] == 1 || values[v] == -2;
            const double off = fabs((double)values[v]) * 1e-6 / sqrt(1e-5); /* 16 ulp of the mean */
            attn_tensor out = {0};
            for (size_t i = 0; i < n; i++) {
                x[i] = values[v];
                w[i] = 3;
                b[i] = (float)i - 7;
            }
            if (!OK(ctx,
                    attn_layernorm(ctx, &out, row(x, n), attn_borrow(w, ATTN_F32, attn_shape1(n)),
                                   attn_borrow(b, ATTN_F32, attn_shape1(n)), 1e-5f)))
                return;
            for (size_t i = 0; i < n; i++) {
                const double error = fabs((double)((float *)out.data)[i] - (double)b[i]);
                /* a normalized value is at most sqrt(n); of equal ones, 1 */
                if (!CHECKF(exact ? error == 0 : error <= 3 * (off < 1.001 ? off : 1.001) + 1e-5,
                            "%s: %llu times %g: off by %g", attn_isa(ctx), (unsigned long long)n,
                            (double)values[v], error))
                    break;
            }
            attn_tensor_free(ctx, &out);
        }
}

TEST(constant_rows)
{
    each_isa(constant_rows_in);
}

/* Denormal numbers are numbers: nothing flushes them to zero. */
static void denormals_in(attn_ctx *ctx)
{
    static const float tiny[] = {1e-45f, -1e-45f, 3e-42f, 1.1e-38f, -1.17549421e-38f};
    float x[40], one[40], id[1] = {1};
    attn_tensor out = {0}, tall = {0}, halves = {0}, half_out = {0};
    for (size_t i = 0; i < 40; i++) {
        x[i] = tiny[i % 5];
        one[i] = 1;
    }
    OK(ctx, attn_add(ctx, &out, row(x, 40), row(x, 40)));
    for (size_t i = 0; i < 40 && out.ndim; i++)
        CHECKF((double)((float *)out.data)[i] == 2 * (double)x[i], "%s: a sum", attn_isa(ctx));
    OK(ctx, attn_mul(ctx, &out, row(x, 40), row(one, 40)));
    for (size_t i = 0; i < 40 && out.ndim; i++)
        CHECKF(((float *)out.data)[i] == x[i], "%s: a product", attn_isa(ctx));
    OK(ctx, attn_scale(ctx, &out, row(x, 40), 0x1p100f));
    for (size_t i = 0; i < 40 && out.ndim; i++)
        CHECKF((double)((float *)out.data)[i] == ldexp((double)x[i], 100), "%s: scaled up",
               attn_isa(ctx));
    /* [40, 1] · [1, 1], and one output that sums them all: 8 of each kind */
    OK(ctx, attn_matmul(ctx, &tall, attn_borrow(x, ATTN_F32, attn_shape2(40, 1)), row(id, 1)));
    for (size_t i = 0; i < 40 && tall.ndim; i++)
        CHECKF(((float *)tall.data)[i] == x[i], "%s: through a matmul", attn_isa(ctx));
    attn_tensor_free(ctx, &out);
    OK(ctx, attn_matmul(ctx, &out, row(x, 40), attn_borrow(one, ATTN_F32, attn_shape2(40, 1))));
    if (out.ndim) {
        double sum = 0; /* exact in double and in denormal floats */
        for (size_t i = 0; i < 40; i++)
            sum += (double)x[i];
        CHECKF((double)*(float *)out.data == sum, "%s: %g, expected %g", attn_isa(ctx),
               (double)*(float *)out.data, sum);
    }
    /* f16's own denormals, as weights: [1, 1] · [1, 1023] */
    OK(ctx, attn_zeros(ctx, &halves, ATTN_F16, attn_shape2(1, 1023)));
    for (size_t i = 0; i < 1023 && halves.ndim; i++)
        ((uint16_t *)halves.data)[i] = (uint16_t)(i + 1);
    OK(ctx, attn_matmul(ctx, &half_out, row(id, 1), halves));
    for (size_t i = 0; i < 1023 && half_out.ndim; i++)
        if (!CHECKF((double)((float *)half_out.data)[i] == ldexp((double)(i + 1), -24),
                    "%s: half number %llu", attn_isa(ctx), (unsigned long long)(i + 1)))
            break;
}

TEST(denormals)
{
    each_isa(denormals_in);
}

/* Signs of zero: kept where arithmetic keeps them, and no difference to a distribution. */
static void negative_zero_in(attn_ctx *ctx)
{
    float zero[20], plus[20], id[1] = {1};
    attn_tensor out = {0}, p = {0};
    size_t i;
    for (i = 0; i < 20; i++) {
        zero[i] = -0.0f;
        plus[i] = 0.0f;
    }
#define EACH(condition)                                                                            \
    for (i = 0; i < 20 && out.ndim; i++)                                                           \
    CHECKF(condition, "%s: %s, element %llu is %g", attn_isa(ctx), #condition,                     \
           (unsigned long long)i, (double)((float *)out.data)[i])
#define AT ((float *)out.data)[i]
    OK(ctx, attn_add(ctx, &out, row(zero, 20), row(zero, 20)));
    EACH(AT == 0 && signbit(AT));
    OK(ctx, attn_add(ctx, &out, row(zero, 20), row(plus, 20)));
    EACH(AT == 0 && !signbit(AT));
    OK(ctx, attn_sub(ctx, &out, row(zero, 20), row(plus, 20)));
    EACH(AT == 0 && signbit(AT));
    OK(ctx, attn_scale(ctx, &out, row(plus, 20), -3));
    EACH(AT == 0 && signbit(AT));
    OK(ctx, attn_exp(ctx, &out, row(zero, 20)));
    EACH(AT == 1);
    OK(ctx, attn_apply_mlp_act(ctx, &out, row(zero, 20), ATTN_ACT_GELU_TANH));
    EACH(AT == 0);
    OK(ctx, attn_apply_mlp_act(ctx, &out, row(zero, 20), ATTN_ACT_GELU_ERF));
    EACH(AT == 0);
    OK(ctx, attn_matmul(ctx, &out, row(id, 1), row(zero, 20))); /* 0 + 1 * -0 */
    EACH(AT == 0 && !signbit(AT));
#undef AT
#undef EACH
    zero[3] = plus[3];
    OK(ctx, attn_softmax(ctx, &p, row(zero, 20)));
    for (i = 0; i < 20 && p.ndim; i++)
        CHECKF(((float *)p.data)[i] == 0.05f, "%s: zeros of both signs", attn_isa(ctx));
}

TEST(negative_zero)
{
    each_isa(negative_zero_in);
}
