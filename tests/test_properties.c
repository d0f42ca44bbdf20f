/* What must hold whatever the numbers: at the edges of float, and under changes that ought to
 * change nothing. Every instruction set that is here takes part. */
#include "models.h"

SUITE("properties");

enum { MOST = 1030 };

/* Calls body for each instruction set that runs here, the portable one first. */
static void each_isa(void (*body)(attn_ctx *ctx))
{
    int kind;
    for (kind = ATTN_ISA_PORTABLE; kind <= (int)ATTN_ISA_AVX512_VNNI; kind++) {
        attn_ctx ctx;
        memset(&ctx, 0, sizeof ctx);
        ctx.isa = (attn_isa_kind)kind;
        if (attn_isa(&ctx))
            body(&ctx);
        attn_ctx_free(&ctx);
    }
}

static attn_tensor row(float *x, size_t n)
{
    return attn_borrow(x, ATTN_F32, attn_shape2(1, n));
}

/* exp(0) is 1, a sum of ones is exact, so n equal scores share exactly 1/n each. */
static void equal_scores_in(attn_ctx *ctx)
{
    static const float values[] = {0.0f,   -0.0f,  1.0f,   -104.0f, 3e38f,
                                   -3e38f, 1e-45f, 0.333f, 65504.0f};
    static float x[MOST];
    size_t n, i, v;
    for (n = 1; n < MOST; n += n < 70 ? 1 : 37)
        for (v = 0; v < sizeof values / sizeof *values; v++) {
            const float share = 1.0f / (float)n;
            attn_tensor out = {0};
            for (i = 0; i < n; i++)
                x[i] = values[v];
            if (!OK(ctx, attn_softmax(ctx, &out, row(x, n))))
                return;
            for (i = 0; i < n; i++)
                if (!CHECKF(((float *)out.data)[i] == share, "%s: %llu scores of %g: %g, not 1/n",
                            attn_isa(ctx), (unsigned long long)n, (double)values[v],
                            (double)((float *)out.data)[i]))
                    break;
            attn_tensor_free(ctx, &out);
        }
}
TEST(equal_scores)
{
    each_isa(equal_scores_in);
}

static void huge_scores_in(attn_ctx *ctx)
{
    static const struct {
        float x[4], p[4];
    } cases[] = {{{3e38f, 3e38f, -3e38f, 0}, {0.5f, 0.5f, 0, 0}},
                 {{-3e38f, -3.1e38f, -3.3e38f, -3.2e38f}, {1, 0, 0, 0}},
                 {{3.4e38f, 3.3e38f, 3.2e38f, -3.4e38f}, {1, 0, 0, 0}},
                 {{-INFINITY, 5, -INFINITY, 5}, {0, 0.5f, 0, 0.5f}},
                 {{-INFINITY, -INFINITY, -3e38f, -INFINITY}, {0, 0, 1, 0}},
                 {{1e30f, 1e30f, 1e30f, 1e30f}, {0.25f, 0.25f, 0.25f, 0.25f}},
                 {{200, 0, 200, -200}, {0.5f, 0, 0.5f, 0}}};
    size_t i, k;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_tensor p = {0}, log_p = {0};
        float x[4];
        memcpy(x, cases[i].x, sizeof x);
        OK(ctx, attn_softmax(ctx, &p, row(x, 4)));
        OK(ctx, attn_log_softmax(ctx, &log_p, row(x, 4)));
        for (k = 0; k < 4 && p.ndim && log_p.ndim; k++) {
            const float want = cases[i].p[k], got = ((float *)p.data)[k];
            CHECKF(got == want, "%s, case %llu: %g, expected %g", attn_isa(ctx),
                   (unsigned long long)i, (double)got, (double)want);
            CHECKF(!isnan(((float *)log_p.data)[k]) && ((float *)log_p.data)[k] <= 0 &&
                       (want == 0 ||
                        fabs((double)((float *)log_p.data)[k] - log((double)want)) < 1e-6),
                   "%s, case %llu: log %g", attn_isa(ctx), (unsigned long long)i,
                   (double)((float *)log_p.data)[k]);
        }
        attn_tensor_free(ctx, &p);
        attn_tensor_free(ctx, &log_p);
    }
}
TEST(huge_scores)
{
    each_isa(huge_scores_in);
}

/* Scores that are multiples of 1/256 keep every difference when a power of two is added. */
static void shifted_scores_in(attn_ctx *ctx)
{
    static float x[300], y[300];
    attn_tensor p = {0}, q = {0};
    size_t i;
    random_state = 11;
    for (i = 0; i < 300; i++) {
        x[i] = (float)(int)random_below(4096) / 256 - 8;
        y[i] = x[i] + 512;
    }
    OK(ctx, attn_softmax(ctx, &p, row(x, 300)));
    OK(ctx, attn_softmax(ctx, &q, row(y, 300)));
    same_bits(q, p, "softmax of shifted scores");
}
TEST(shifted_scores)
{
    each_isa(shifted_scores_in);
}

/* Nothing varies, so the gain has nothing to work on and the bias is what comes out: exactly where
 * the mean is exact, else within what the mean's rounding can make of it. */
static void constant_rows_in(attn_ctx *ctx)
{
    static const float values[] = {0, 1, -2, 0.1f, 1e-30f, 1e-45f, 12345.678f, 1e15f};
    static float x[MOST], w[MOST], b[MOST];
    static const size_t widths[] = {1, 2, 15, 16, 17, 64, 768, 1024};
    size_t i, v, k;
    for (k = 0; k < sizeof widths / sizeof *widths; k++)
        for (v = 0; v < sizeof values / sizeof *values; v++) {
            const size_t n = widths[k];
            const int exact = values[v] == 0 || values[v] == 1 || values[v] == -2;
            const double off = fabs((double)values[v]) * 1e-6 / sqrt(1e-5); /* 16 ulp of the mean */
            attn_tensor out = {0};
            for (i = 0; i < n; i++) {
                x[i] = values[v];
                w[i] = 3;
                b[i] = (float)i - 7;
            }
            if (!OK(ctx,
                    attn_layernorm(ctx, &out, row(x, n), attn_borrow(w, ATTN_F32, attn_shape1(n)),
                                   attn_borrow(b, ATTN_F32, attn_shape1(n)), 1e-5f)))
                return;
            for (i = 0; i < n; i++) {
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
    size_t i;
    for (i = 0; i < 40; i++) {
        x[i] = tiny[i % 5];
        one[i] = 1;
    }
    OK(ctx, attn_add(ctx, &out, row(x, 40), row(x, 40)));
    for (i = 0; i < 40 && out.ndim; i++)
        CHECKF((double)((float *)out.data)[i] == 2 * (double)x[i], "%s: a sum", attn_isa(ctx));
    OK(ctx, attn_mul(ctx, &out, row(x, 40), row(one, 40)));
    for (i = 0; i < 40 && out.ndim; i++)
        CHECKF(((float *)out.data)[i] == x[i], "%s: a product", attn_isa(ctx));
    OK(ctx, attn_scale(ctx, &out, row(x, 40), 0x1p100f));
    for (i = 0; i < 40 && out.ndim; i++)
        CHECKF((double)((float *)out.data)[i] == ldexp((double)x[i], 100), "%s: scaled up",
               attn_isa(ctx));
    /* [40, 1] · [1, 1], and one output that sums them all: 8 of each kind */
    OK(ctx, attn_matmul(ctx, &tall, attn_borrow(x, ATTN_F32, attn_shape2(40, 1)), row(id, 1)));
    for (i = 0; i < 40 && tall.ndim; i++)
        CHECKF(((float *)tall.data)[i] == x[i], "%s: through a matmul", attn_isa(ctx));
    attn_tensor_free(ctx, &out);
    OK(ctx, attn_matmul(ctx, &out, row(x, 40), attn_borrow(one, ATTN_F32, attn_shape2(40, 1))));
    if (out.ndim) {
        double sum = 0; /* exact in double and in denormal floats */
        for (i = 0; i < 40; i++)
            sum += (double)x[i];
        CHECKF((double)*(float *)out.data == sum, "%s: %g, expected %g", attn_isa(ctx),
               (double)*(float *)out.data, sum);
    }
    /* f16's own denormals, as weights: [1, 1] · [1, 1023] */
    OK(ctx, attn_zeros(ctx, &halves, ATTN_F16, attn_shape2(1, 1023)));
    for (i = 0; i < 1023 && halves.ndim; i++)
        ((uint16_t *)halves.data)[i] = (uint16_t)(i + 1);
    OK(ctx, attn_matmul(ctx, &half_out, row(id, 1), halves));
    for (i = 0; i < 1023 && half_out.ndim; i++)
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
    OK(ctx, attn_gelu(ctx, &out, row(zero, 20), ATTN_GELU_TANH));
    EACH(AT == 0);
    OK(ctx, attn_gelu(ctx, &out, row(zero, 20), ATTN_GELU_ERF));
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

/* ---- a batch, and logits ---- */

enum { SEQUENCES = 4, VOCAB = 40 };

static attn_model *open_long(attn_ctx *ctx)
{
    attn_model *model = NULL;
    OK(ctx, attn_model_open(ctx, &model, TEST_BUILD "/fuzz/long.attn", NULL));
    return model;
}

/* All 24 orders of four sequences of different lengths: each gets what it gets alone. */
TEST(permuted_batches)
{
    static const size_t lengths[SEQUENCES] = {3, 1, 17, 8};
    int32_t tokens[64];
    float want[SEQUENCES][VOCAB];
    attn_ctx ctx = {0};
    attn_model *model = open_long(&ctx);
    attn_session *s[SEQUENCES] = {NULL};
    size_t i, order, n_orders = 0;
    int able = model != NULL;
    for (i = 0; i < 64; i++)
        tokens[i] = (int32_t)(i * 13 % VOCAB);
    for (i = 0; i < SEQUENCES && able; i++) {
        able = (s[i] = session_on(&ctx, model, 64, 16)) != NULL &&
               OK(&ctx, attn_feed(&ctx, s[i], tokens + i, i + 1)) &&
               OK(&ctx, attn_feed(&ctx, s[i], tokens + 5 * i, lengths[i]));
        if (able)
            memcpy(want[i], attn_logits(s[i]), sizeof want[i]);
    }
    if (able)
        share_workspace(&ctx, s, SEQUENCES, 16);
    for (order = 0; order < 256 && able; order++) {
        const size_t at[SEQUENCES] = {order % 4, order / 4 % 4, order / 16 % 4, order / 64};
        attn_feed_item items[SEQUENCES];
        if (((1u << at[0]) | (1u << at[1]) | (1u << at[2]) | (1u << at[3])) != 15)
            continue;
        n_orders++;
        for (i = 0; i < SEQUENCES; i++) {
            OK(&ctx, attn_rewind(&ctx, s[i], i + 1)); /* what came before stays */
            items[at[i]] = item_of(s[i], tokens + 5 * i, lengths[i], NULL);
        }
        if (!OK(&ctx, attn_feed_batch(&ctx, items, SEQUENCES)))
            break;
        for (i = 0; i < SEQUENCES; i++)
            CHECKF(memcmp(attn_logits(s[i]), want[i], sizeof want[i]) == 0,
                   "order %llu, sequence %llu", LLU(order), LLU(i));
    }
    CHECK(!able || n_orders == 24);
    for (i = 0; i < SEQUENCES; i++)
        attn_session_free(s[i]);
    attn_model_close(model);
}

/* Logits that all move by the same number say the same: every filter, every seed, the same token.
 * (Multiples of 1/256 moved by 512 keep their differences exactly. What centring the unembedding
 * does to a model's logits is in the suite of lenses.) */
TEST(shifted_logits)
{
    attn_ctx ctx = {0};
    uint64_t seed;
    random_state = 3;
    for (seed = 0; seed < 200; seed++) {
        attn_sampler_desc d;
        attn_sampler *a = NULL, *b = NULL;
        float x[200], y[200];
        int32_t from_x = -1, from_y = -2;
        size_t i;
        memset(&d, 0, sizeof d);
        d.temperature = 0.7f;
        d.top_k = seed % 3 ? 0 : 20;
        d.top_p = seed % 5 ? 0 : 0.8f;
        d.min_p = seed % 7 ? 0 : 0.05f;
        d.seed = seed;
        for (i = 0; i < 200; i++) {
            x[i] = (float)(int)random_below(2048) / 256 - 4;
            y[i] = x[i] + 512;
        }
        OK(&ctx, attn_sampler_new(&ctx, &a, 200, &d));
        OK(&ctx, attn_sampler_new(&ctx, &b, 200, &d));
        OK(&ctx, attn_sample(&ctx, a, x, NULL, 0, &from_x));
        OK(&ctx, attn_sample(&ctx, b, y, NULL, 0, &from_y));
        CHECKF(from_x == from_y, "seed %d: %d and %d", (int)seed, (int)from_x, (int)from_y);
        attn_sampler_free(a);
        attn_sampler_free(b);
    }
}
