/* Compares attn_attention and the layers that call it with PyTorch in float64 (make_op_fixtures.py), and with a
 * composition of attn.h's smaller operations. The suite `notebooks` has what published notebooks print. */
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
