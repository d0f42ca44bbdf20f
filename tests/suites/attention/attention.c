/* Attention and what is made of it: against PyTorch in float64 (make_op_fixtures.py), against published
 * notebooks, and against the smaller operations that it is made of. */
#include "tests/support/test.h"
#include "examples/from_scratch/torch.h"
#include "tests/support/ops.h"

SUITE();

/* ---- against PyTorch ------------------------------------------------------------------------ */

TEST(attention_against_torch)
{
    attn_ctx ctx = {0};
    attn_tensor q, k, v, args, f, want, want_pattern;
    int i;
    for (i = 0; fixture(&q, "attention.%d.q", i); i++) {
        attn_attention_desc desc = {.mask_kind = ATTN_MASK_NONE};
        if (!CHECK(fixture(&k, "attention.%d.k", i) && fixture(&v, "attention.%d.v", i) &&
                   fixture(&args, "attention.%d.args", i) && fixture(&f, "attention.%d.f", i) &&
                   fixture(&want, "attention.%d.out", i) &&
                   fixture(&want_pattern, "attention.%d.pattern", i)))
            return;
        fixture(&desc.mask, "attention.%d.mask", i);
        desc.mask_kind = (attn_mask_kind)arg_of(args, 0);
        desc.scale = float_of(f);
        for (int layout = 0; layout < N_LAYOUTS; layout++) {
            attn_tensor out = {0}, pattern = {0};
            attn_tensor a = laid_out(q, ATTN_F32, layout), b = laid_out(k, ATTN_F32, layout);
            attn_tensor c = laid_out(v, ATTN_F32, (layout + 1) % N_LAYOUTS);
            if (!OK(&ctx, attn_attention(&ctx, &out, a, b, c, &desc)))
                continue;
            close_to(out, want, ROWS, label("attention", i));
            if (!OK(&ctx, attn_attention_pattern(&ctx, &pattern, a, b, &desc)))
                continue;
            close_to(pattern, want_pattern, ROWS, label("pattern", i));
        }
        if (desc.mask_kind == ATTN_MASK_NONE && desc.scale == 0) {
            attn_tensor out = {0};
            OK(&ctx, attn_attention(&ctx, &out, q, k, v, NULL));
            close_to(out, want, ROWS, label("attention without a description", i));
        }
        done(&ctx);
    }
    CHECKF(i == 23, "%d cases", i);
}

/* The weights that a case has; those it lacks are zeroed tensors. */
static attn_block_weights weights_of(const char *name, int number)
{
    attn_block_weights w;
    memset(&w, 0, sizeof w);
    fixture(&w.ln1_w, "%s.%d.ln1_w", name, number);
    fixture(&w.ln1_b, "%s.%d.ln1_b", name, number);
    fixture(&w.w_q, "%s.%d.w_q", name, number);
    fixture(&w.b_q, "%s.%d.b_q", name, number);
    fixture(&w.w_k, "%s.%d.w_k", name, number);
    fixture(&w.b_k, "%s.%d.b_k", name, number);
    fixture(&w.w_v, "%s.%d.w_v", name, number);
    fixture(&w.b_v, "%s.%d.b_v", name, number);
    fixture(&w.w_o, "%s.%d.w_o", name, number);
    fixture(&w.b_o, "%s.%d.b_o", name, number);
    fixture(&w.ln2_w, "%s.%d.ln2_w", name, number);
    fixture(&w.ln2_b, "%s.%d.ln2_b", name, number);
    fixture(&w.w_in, "%s.%d.w_in", name, number);
    fixture(&w.b_in, "%s.%d.b_in", name, number);
    fixture(&w.w_out, "%s.%d.w_out", name, number);
    fixture(&w.b_out, "%s.%d.b_out", name, number);
    return w;
}

TEST(multihead_against_torch)
{
    attn_ctx ctx = {0};
    attn_tensor x, y, args, want, want_pattern;
    int i;
    for (i = 0; fixture(&x, "multihead.%d.x", i); i++) {
        attn_tensor out = {0}, pattern = {0};
        attn_attention_desc desc = {.mask_kind = ATTN_MASK_NONE};
        attn_block_weights w = weights_of("multihead", i);
        CHECK(fixture(&args, "multihead.%d.args", i) && fixture(&want, "multihead.%d.out", i) &&
              fixture(&want_pattern, "multihead.%d.pattern", i));
        CHECK(fixture(&y, "multihead.%d.y", i) == arg_of(args, 2));
        w.n_head = (size_t)arg_of(args, 0);
        desc.mask_kind = (attn_mask_kind)arg_of(args, 1);
        if (y.ndim == 0)
            y = x;
        if (OK(&ctx, attn_multihead(&ctx, &out, x, y, &w, &desc)))
            close_to(out, want, ROWS, label("multihead", i));
        if (OK(&ctx, attn_multihead_pattern(&ctx, &pattern, x, y, &w, &desc)))
            close_to(pattern, want_pattern, ROWS, label("pattern", i));
        done(&ctx);
    }
    CHECKF(i == 7, "%d cases", i);
}

TEST(mlp_and_block_against_torch)
{
    attn_ctx ctx = {0};
    attn_tensor x, args, f, want;
    int i;
    for (i = 0; fixture(&x, "block.%d.x", i); i++) {
        attn_tensor out = {0}, tanh_form = {0}, erf_form = {0};
        attn_block_weights w = weights_of("block", i);
        CHECK(fixture(&args, "block.%d.args", i) && fixture(&f, "block.%d.f", i));
        CHECK(fixture(&want, "block.%d.tanh", i));
        if (OK(&ctx, attn_mlp(&ctx, &tanh_form, x, &w, ATTN_ACT_GELU_TANH)))
            close_to(tanh_form, want, ROWS, label("mlp", i));
        CHECK(fixture(&want, "block.%d.erf", i));
        if (OK(&ctx, attn_mlp(&ctx, &erf_form, x, &w, ATTN_ACT_GELU_ERF)))
            close_to(erf_form, want, ROWS, label("mlp with erf", i));
        CHECK(fixture(&want, "block.%d.out", i));
        w.n_head = (size_t)arg_of(args, 0);
        if (OK(&ctx, attn_block(&ctx, &out, x, &w, float_of(f), ATTN_ACT_GELU_TANH)))
            close_to(out, want, 2e-6, label("block", i));
        done(&ctx);
    }
    CHECKF(i == 4, "%d cases", i);
}

TEST(unembed_against_torch)
{
    attn_ctx ctx = {0};
    attn_tensor x, table, want;
    int i;
    for (i = 0; fixture(&x, "unembed.%d.x", i); i++) {
        attn_tensor out = {0};
        CHECK(fixture(&table, "unembed.%d.table", i) && fixture(&want, "unembed.%d.out", i));
        if (OK(&ctx, attn_unembed(&ctx, &out, x, table)))
            close_to(out, want, chain_error(x.shape[x.ndim - 1]), label("unembed", i));
        done(&ctx);
    }
    CHECKF(i == 3, "%d cases", i);
}

/* ---- published numbers ---------------------------------------------------------------------- */

/* The six words "Your journey starts with one step" of the notebooks on attention, and what
 * those print. Values are float32 from PyTorch 1.13. */
static float words[6][3] = {{0.43f, 0.15f, 0.89f}, {0.55f, 0.87f, 0.66f}, {0.57f, 0.85f, 0.64f},
                            {0.22f, 0.58f, 0.33f}, {0.77f, 0.25f, 0.10f}, {0.05f, 0.80f, 0.55f}};

static attn_tensor matrix(const float *data, size_t rows, size_t columns)
{
    union { /* attn_borrow takes numbers that may be written */
        const float *in;
        void *out;
    } unlock;
    unlock.in = data;
    return attn_borrow(unlock.out, ATTN_F32, attn_shape2(rows, columns));
}

TEST(notebook_without_weights)
{
    static const float weights[6][6] = {
        {0.20983477f, 0.20058146f, 0.19814923f, 0.12422822f, 0.12204872f, 0.14515767f},
        {0.13854758f, 0.23789129f, 0.23327404f, 0.12399159f, 0.10818187f, 0.15811361f},
        {0.13900760f, 0.23692146f, 0.23260196f, 0.12420440f, 0.11080021f, 0.15646443f},
        {0.14352688f, 0.20739442f, 0.20455202f, 0.14619224f, 0.12629525f, 0.17203920f},
        {0.15261085f, 0.19583867f, 0.19749065f, 0.13668668f, 0.18785891f, 0.12951429f},
        {0.13847117f, 0.21836372f, 0.21275944f, 0.14204757f, 0.09880637f, 0.18955176f}};
    static const float context[6][3] = {
        {0.44205943f, 0.59309864f, 0.57898915f}, {0.44186574f, 0.65148199f, 0.56830889f},
        {0.44312754f, 0.64959466f, 0.56707311f}, {0.43038973f, 0.62982810f, 0.55102706f},
        {0.46710175f, 0.59099275f, 0.52659655f}, {0.41772449f, 0.65032321f, 0.56453520f}};
    SCOPED_CTX ctx = {0};
    attn_tensor x = matrix(words[0], 6, 3), scores = {0}, pattern = {0}, out = {0}, again = {0};
    attn_attention_desc desc = {.mask_kind = ATTN_MASK_NONE, .scale = 1.0f};
    OK(&ctx, attn_matmul(&ctx, &scores, x, attn_transpose(x, -1, -2)));
    OK(&ctx, attn_softmax(&ctx, &pattern, scores));
    OK(&ctx, attn_matmul(&ctx, &out, pattern, x));
    close_to(pattern, matrix(weights[0], 6, 6), TIGHT, "weights");
    close_to(out, matrix(context[0], 6, 3), TIGHT, "context");
    OK(&ctx, attn_attention(&ctx, &again, x, x, x, &desc));
    close_to(again, matrix(context[0], 6, 3), TIGHT, "context in one call");
}

/* SelfAttention_v1: torch.manual_seed(123) and three torch.rand(3, 2). */
TEST(notebook_self_attention_v1)
{
    static const float query[3][2] = {{0.29611194133758545f, 0.516562283039093f},
                                      {0.2516707181930542f, 0.6885567903518677f},
                                      {0.07397246360778809f, 0.866521954536438f}};
    static const float value[3][2] = {{0.07563531398773193f, 0.19663816690444946f},
                                      {0.31641197204589844f, 0.4017401337623596f},
                                      {0.1185683012008667f, 0.8273953795433044f}};
    static const float weights_2[6] = {0.15001948f, 0.22638379f, 0.21987164f,
                                       0.13107006f, 0.09062888f, 0.18202609f};
    static const float context[6][2] = {{0.29958206f, 0.80531412f}, {0.30610022f, 0.82103032f},
                                        {0.30578110f, 0.82029575f}, {0.29476595f, 0.79386634f},
                                        {0.29270607f, 0.78908432f}, {0.29901004f, 0.80403680f}};
    SCOPED_CTX ctx = {0};
    attn_tensor x = matrix(words[0], 6, 3), qkv[3], out = {0}, pattern = {0};
    float w[3][6];
    attn_rng rng;
    memset(qkv, 0, sizeof qkv);
    attn_rng_seed(&rng, 123);
    for (size_t i = 0; i < 3; i++) {
        for (size_t j = 0; j < 6; j++)
            w[i][j] = attn_rng_uniform(&rng);
        OK(&ctx, attn_matmul(&ctx, &qkv[i], x, matrix(w[i], 3, 2)));
    }
    CHECK(memcmp(w[0], query, sizeof query) == 0 && memcmp(w[2], value, sizeof value) == 0);
    OK(&ctx, attn_attention(&ctx, &out, qkv[0], qkv[1], qkv[2], NULL));
    OK(&ctx, attn_attention_pattern(&ctx, &pattern, qkv[0], qkv[1], NULL));
    close_to(attn_slice(pattern, 0, 1, 1), matrix(weights_2, 1, 6), TIGHT, "weights of word 2");
    close_to(out, matrix(context[0], 6, 2), TIGHT, "context");
}

/* nn.Linear(3, 2): uniform in +-1/sqrt(3), stored [N, K]. */
static void draw_linear(attn_rng *rng, float *w, size_t count)
{
    const float bound = 0.57735026918962576f;
    for (size_t i = 0; i < count; i++)
        w[i] = attn_rng_uniform(rng) * (bound + bound) - bound;
}

/* SelfAttention_v2, and the same with a causal mask: torch.manual_seed(789) and three nn.Linear. */
TEST(notebook_self_attention_v2_and_causal)
{
    static const float query[2][3] = {{0.31605908f, 0.45680857f, 0.51183486f},
                                      {-0.16828540f, -0.33787704f, -0.09177387f}};
    static const float context[6][2] = {{-0.07389025f, 0.07128990f}, {-0.07481071f, 0.07030930f},
                                        {-0.07485618f, 0.07024164f}, {-0.07600163f, 0.06845011f},
                                        {-0.07632761f, 0.06794281f}, {-0.07544429f, 0.06930491f}};
    static const float causal_weights[6][6] = {
        {1, 0, 0, 0, 0, 0},
        {0.55167806f, 0.44832197f, 0, 0, 0, 0},
        {0.37996724f, 0.30971354f, 0.31031927f, 0, 0, 0},
        {0.27584285f, 0.24602845f, 0.24624714f, 0.23188154f, 0, 0},
        {0.21751539f, 0.19828095f, 0.19839796f, 0.18875295f, 0.19705282f, 0},
        {0.19347237f, 0.16633299f, 0.16656809f, 0.15418623f, 0.16656083f, 0.15287954f}};
    static const float causal_context[6][2] = {
        {-0.08721808f, 0.02858998f}, {-0.09906915f, 0.05009484f}, {-0.09994501f, 0.06334987f},
        {-0.09825490f, 0.04894814f}, {-0.05144593f, 0.10984372f}, {-0.07544429f, 0.06930491f}};
    SCOPED_CTX ctx = {0};
    attn_tensor x = matrix(words[0], 6, 3), qkv[3], none = {0}, out = {0}, masked = {0};
    attn_tensor pattern = {0};
    attn_attention_desc desc = {.mask_kind = ATTN_MASK_CAUSAL};
    float w[3][6];
    attn_rng rng;
    memset(qkv, 0, sizeof qkv);
    attn_rng_seed(&rng, 789);
    for (size_t i = 0; i < 3; i++) {
        draw_linear(&rng, w[i], 6);
        OK(&ctx, attn_linear(&ctx, &qkv[i], x, attn_transpose(matrix(w[i], 2, 3), 0, 1), none));
    }
    close_to(matrix(w[0], 2, 3), matrix(query[0], 2, 3), 2e-7, "nn.Linear's start");
    OK(&ctx, attn_attention(&ctx, &out, qkv[0], qkv[1], qkv[2], NULL));
    close_to(out, matrix(context[0], 6, 2), ROWS, "context");
    OK(&ctx, attn_attention(&ctx, &masked, qkv[0], qkv[1], qkv[2], &desc));
    OK(&ctx, attn_attention_pattern(&ctx, &pattern, qkv[0], qkv[1], &desc));
    close_to(pattern, matrix(causal_weights[0], 6, 6), TIGHT, "causal weights");
    close_to(masked, matrix(causal_context[0], 6, 2), ROWS, "causal context");
}

/* MultiHeadAttention: two heads of width 1, causal, an output projection with a bias. */
TEST(notebook_multi_head_attention)
{
    static const float query[2][3] = {{-0.23542964f, 0.01912448f, -0.28674594f},
                                      {0.21772662f, -0.49193421f, 0.42322308f}};
    static const float key[2][3] = {{-0.41964141f, -0.45901766f, -0.36482018f},
                                    {0.26147819f, -0.21332640f, 0.21605217f}};
    static const float value[2][3] = {{-0.49001414f, -0.35029206f, -0.21198919f},
                                      {-0.11346072f, -0.44043937f, 0.37804362f}};
    static const float projection[2][2] = {{-0.16675779f, 0.22697258f}, {0.50002599f, 0.13173823f}};
    static float bias[2] = {0.19335887f, 0.68254095f};
    static const float last_weights[2][6] = {
        {0.16488339f, 0.17260772f, 0.17239271f, 0.16248472f, 0.16236998f, 0.16526155f},
        {0.16245085f, 0.16669115f, 0.16656192f, 0.16909997f, 0.16498106f, 0.17021511f}};
    static const float context[6][2] = {{0.31901830f, 0.48576289f}, {0.29434600f, 0.38967627f},
                                        {0.28557467f, 0.35927770f}, {0.26926368f, 0.38732666f},
                                        {0.26387054f, 0.39279571f}, {0.25747356f, 0.40278262f}};
    SCOPED_CTX ctx = {0};
    attn_tensor x = matrix(words[0], 6, 3), out = {0}, pattern = {0};
    attn_attention_desc desc = {.mask_kind = ATTN_MASK_CAUSAL};
    attn_block_weights w = {.w_q = attn_transpose(matrix(query[0], 2, 3), 0, 1),
                            .w_k = attn_transpose(matrix(key[0], 2, 3), 0, 1),
                            .w_v = attn_transpose(matrix(value[0], 2, 3), 0, 1),
                            .w_o = attn_transpose(matrix(projection[0], 2, 2), 0, 1),
                            .b_o = attn_borrow(bias, ATTN_F32, attn_shape1(2)),
                            .n_head = 2};
    OK(&ctx, attn_multihead(&ctx, &out, x, x, &w, &desc));
    OK(&ctx, attn_multihead_pattern(&ctx, &pattern, x, x, &w, &desc));
    close_to(out, matrix(context[0], 6, 2), TIGHT, "context");
    close_to(attn_select(pattern, -2, 5), matrix(last_weights[0], 2, 6), TIGHT, "last weights");
}

/* ---- the arithmetic contract, spelled out --------------------------------------------------- */

/* Attention over a whole text, against each query alone with the keys it sees: how a prompt is cut
 * into calls must not show. */
TEST(causal_rows_alone_give_the_same_bits)
{
    SCOPED_CTX ctx = {0};
    attn_attention_desc desc = {.mask_kind = ATTN_MASK_CAUSAL};
    attn_tensor whole = {0}, pattern = {0};
    random_state = 71;
    attn_tensor q = random_tensor(3, 2, 50, 24);
    attn_tensor k = random_tensor(3, 2, 50, 24);
    attn_tensor v = random_tensor(3, 2, 50, 20);
    for (size_t k_kind = 0; k_kind < N_KINDS; k_kind++) {
        ctx.isa = all_kinds[k_kind];
        if (kind_of(ctx.isa) != 1)
            continue;
        memset(&whole, 0, sizeof whole);
        memset(&pattern, 0, sizeof pattern);
        if (!OK(&ctx, attn_attention(&ctx, &whole, q, k, v, &desc)) ||
            !OK(&ctx, attn_attention_pattern(&ctx, &pattern, q, k, &desc)))
            break;
        for (size_t t = 0; t < 50; t++) {
            attn_tensor alone = {0}, tail = {0}, one = {0};
            const size_t first = t >= 4 ? t - 4 : 0;
            if (OK(&ctx,
                   attn_attention(&ctx, &alone, attn_slice(q, 1, t, 1), attn_slice(k, 1, 0, t + 1),
                                  attn_slice(v, 1, 0, t + 1), &desc)))
                same_bits(alone, attn_slice(whole, 1, t, 1), label("query alone", (int)t));
            if (OK(&ctx, attn_attention_pattern(&ctx, &one, attn_slice(q, 1, t, 1),
                                                attn_slice(k, 1, 0, t + 1), &desc)))
                same_bits(one, attn_slice(attn_slice(pattern, 1, t, 1), 2, 0, t + 1),
                          label("its pattern", (int)t));
            if (OK(&ctx,
                   attn_attention(&ctx, &tail, attn_slice(q, 1, first, t + 1 - first),
                                  attn_slice(k, 1, 0, t + 1), attn_slice(v, 1, 0, t + 1), &desc)))
                same_bits(tail, attn_slice(whole, 1, first, t + 1 - first),
                          label("the last queries", (int)t));
        }
    }
}

/* ---- the larger operations are made of the smaller ones ---------------------------------------
 */

TEST(attention_is_its_parts)
{
    SCOPED_CTX ctx = {0};
    random_state = 4;
    for (int causal = 0; causal < 2; causal++) {
        attn_attention_desc desc = {.mask_kind = ATTN_MASK_NONE, .scale = 0.25f};
        attn_tensor q = random_tensor(3, 2, 19, 16), k = random_tensor(3, 2, 37, 16);
        attn_tensor v = random_tensor(3, 2, 37, 9), out = {0}, pattern = {0}, scores = {0};
        attn_tensor scaled = {0}, mask = {0}, masked = {0}, weights = {0}, mixed = {0};
        desc.mask_kind = causal ? ATTN_MASK_CAUSAL : ATTN_MASK_NONE;
        OK(&ctx, attn_attention(&ctx, &out, q, k, v, &desc));
        OK(&ctx, attn_attention_pattern(&ctx, &pattern, q, k, &desc));
        OK(&ctx, attn_matmul(&ctx, &scores, q, attn_transpose(k, -1, -2)));
        OK(&ctx, attn_scale(&ctx, &scaled, scores, 0.25f));
        OK(&ctx, torch_causal_mask(&ctx, &mask, 19, 37));
        OK(&ctx, attn_add(&ctx, &masked, scaled, mask));
        OK(&ctx, attn_softmax(&ctx, &weights, causal ? masked : scaled));
        OK(&ctx, attn_matmul(&ctx, &mixed, pattern, v));
        same_bits(pattern, weights, causal ? "causal pattern" : "pattern");
        same_bits(out, mixed, causal ? "causal attention" : "attention");
    }
}

/* ---- edges ------------------------------------------------------------------------------------
 */

TEST(hidden_entries_are_never_seen)
{
    SCOPED_CTX ctx = {0};
    attn_attention_desc desc = {.mask_kind = ATTN_MASK_CAUSAL};
    attn_tensor out = {0}, again = {0};
    attn_tensor x = random_tensor(2, 20, 8);
    attn_tensor k = laid_out(x, ATTN_F32, 0);
    OK(&ctx, attn_attention(&ctx, &out, x, k, x, &desc));
    for (size_t j = 0; j < 8; j++)
        set_value(k, 19 * 8 + j, j % 2 ? NAN : INFINITY);
    OK(&ctx, attn_attention(&ctx, &again, x, k, x, &desc));
    if (out.ndim && again.ndim)
        same_bits(attn_slice(again, 0, 0, 19), attn_slice(out, 0, 0, 19),
                  "queries before a bad key");
    CHECK(isnan(attn_get2(again, 19, 0)));
}

/* ---- refusals ---------------------------------------------------------------------------------
 */

/* exp(0) is 1, a sum of ones is exact, so n equal scores share exactly 1/n each. */
static void equal_scores_in(attn_ctx *ctx)
{
    static const float values[] = {0.0f,   -0.0f,  1.0f,   -104.0f, 3e38f,
                                   -3e38f, 1e-45f, 0.333f, 65504.0f};
    static float x[MOST];
    for (size_t n = 1; n < MOST; n += n < 70 ? 1 : 37)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            const float share = 1.0f / (float)n;
            attn_tensor out = {0};
            for (size_t i = 0; i < n; i++)
                x[i] = values[v];
            if (!OK(ctx, attn_softmax(ctx, &out, row(x, n))))
                return;
            for (size_t i = 0; i < n; i++)
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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_tensor p = {0}, log_p = {0};
        float x[4];
        memcpy(x, cases[i].x, sizeof x);
        OK(ctx, attn_softmax(ctx, &p, row(x, 4)));
        OK(ctx, attn_log_softmax(ctx, &log_p, row(x, 4)));
        for (size_t k = 0; k < 4 && p.ndim && log_p.ndim; k++) {
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
    random_state = 11;
    for (size_t i = 0; i < 300; i++) {
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

/* With all visible scores at -20000, a row is the mean of the visible values, but only if hidden scores
 * are -inf: a score of -10000 would take all the weight. */
TEST(hidden_keys_have_no_weight)
{
    enum { LENGTH = 21, WIDTH = 4 }; /* so that scores are divided by 2 */
    SCOPED_CTX ctx = {0};
    attn_attention_desc desc = {.mask_kind = ATTN_MASK_CAUSAL};
    attn_tensor q = random_tensor(2, LENGTH, WIDTH), k = random_tensor(2, LENGTH, WIDTH);
    attn_tensor v = random_tensor(2, LENGTH, WIDTH), out = {0};
    for (size_t j = 0; j < count_of(q); j++) {
        set_value(q, j, 1);
        set_value(k, j, -1e4f);
    }
    OK(&ctx, attn_attention(&ctx, &out, q, k, v, &desc));
    for (size_t j = 0; j < WIDTH && out.ndim; j++) {
        double sum = 0;
        for (size_t t = 0; t < LENGTH; t++) {
            sum += (double)attn_get2(v, t, j);
            CHECKF(fabs((double)attn_get2(out, t, j) - sum / (double)(t + 1)) < 1e-5,
                   "out[%d, %d] is %g, the mean of the values %g", (int)t, (int)j,
                   (double)attn_get2(out, t, j), sum / (double)(t + 1));
        }
    }
}
