/* What activations and weights say. The expected numbers are numpy's in float64, from the random
 * models of golden/ (make_lens_fixtures.py). */
#include "tests/support/lens_fixtures.h"
#include "tests/support/refused.h"
#include "tools/lens/process_weights.h"

SUITE_WITH_MODELS("plain odd");

static const attn_tensor no_scale; /* a lens takes the stream's own */

/* ---- the residual stream, taken apart ---- */

TEST(labels)
{
    static const struct {
        lens_parts_kind kind;
        size_t index;
        const char *text;
    } want[] = {{LENS_PARTS_STREAMS, 0, "0_pre"},        {LENS_PARTS_STREAMS, 2, "2_pre"},
                {LENS_PARTS_STREAMS, 3, "final_post"},   {LENS_PARTS_STREAMS_MID, 4, "2_pre"},
                {LENS_PARTS_STREAMS_MID, 5, "2_mid"},    {LENS_PARTS_STREAMS_MID, 6, "final_post"},
                {LENS_PARTS_SUBLAYERS, 0, "embed"},      {LENS_PARTS_SUBLAYERS, 1, "pos_embed"},
                {LENS_PARTS_SUBLAYERS, 2, "0_attn_out"}, {LENS_PARTS_SUBLAYERS, 7, "2_mlp_out"},
                {LENS_PARTS_HEADS, 0, "L0H0"},           {LENS_PARTS_HEADS, 7, "L2H1"},
                {LENS_PARTS_HEADS, 9, "0_mlp_out"},      {LENS_PARTS_HEADS, 11, "2_mlp_out"},
                {LENS_PARTS_HEADS, 12, "embed"},         {LENS_PARTS_HEADS, 13, "pos_embed"},
                {LENS_PARTS_HEADS, 14, "bias"},          {LENS_PARTS_HEADS, 15, ""},
                {LENS_PARTS_SUBLAYERS, 8, ""},           {LENS_N_PARTS_KINDS, 0, ""}};
    lens_parts_desc d;
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        d = final_parts(want[i].kind, NULL, 0, 0, 0);
        CHECKF(strcmp(lens_parts_label(odd, &d, want[i].index).text, want[i].text) == 0,
               "part %zu of kind %d is called %s, expected %s", want[i].index, (int)want[i].kind,
               lens_parts_label(odd, &d, want[i].index).text, want[i].text);
    }
    d = final_parts(LENS_PARTS_HEADS, NULL, 0, 0, 0);
    EQUAL(lens_parts_count(odd, &d), 15);
    d.kind = (lens_parts_kind)9;
    EQUAL(lens_parts_count(odd, &d), 0);
}

static void sum_of_parts(attn_tensor stack, attn_tensor want, double tolerance, const char *what)
{
    attn_tensor sum = new_tensor(ATTN_F32, want.ndim, want.shape, LAYOUT_DENSE);
    const size_t n = count_of(want);
    for (size_t i = 0; i < n; i++) {
        double total = 0;
        for (size_t part = 0; part < stack.shape[0]; part++)
            total += value_of(stack, part * n + i);
        ((float *)sum.data)[i] = (float)total;
    }
    close_to(sum, want, tolerance, what);
}

TEST(parts)
{
    for (int i = 0; i < 2; i++)
        for (int kind = 0; kind < 4; kind++) {
            SCOPED_CTX ctx = alone();
            const attn_tensor tokens = expected(i, "tokens");
            const size_t n = tokens.shape[0];
            stream_parts some, all;
            memset(&some, 0, sizeof some);
            memset(&all, 0, sizeof all);
            OK(&ctx, take_apart(&ctx, &some, model_of(i), kinds_of_parts[kind], ids_of(tokens), n,
                                FIRST, MOST));
            close_to(some.stack, expected_n(i, "parts", kind), 2e-6, "parts");
            close_to(some.scale, expected(i, "scale"), 1e-6, "scale");
            OK(&ctx,
               take_apart(&ctx, &all, model_of(i), kinds_of_parts[kind], ids_of(tokens), n, 0, 0));
            CHECK(all.stack.shape[1] == n && all.scale.shape[0] == n);
            same_bits(attn_slice(all.stack, 1, FIRST, MOST), some.stack, "the same positions");
            if (kinds_of_parts[kind] >= LENS_PARTS_SUBLAYERS)
                sum_of_parts(some.stack, expected(i, "resid"), 1e-6, "the sum of all parts");
            pool_clear();
        }
}

/* A text of more than one pass. */
TEST(parts_of_a_long_text)
{
    enum { LONG = 300, LAST = 20 };
    SCOPED_CTX ctx = alone();
    SCOPED_MODEL const model = converted("tests/golden/long", "long-lens.attn", "");
    const int32_t *const tokens = random_tokens(model, LONG, 8);
    stream_parts all, last, stream;
    memset(&all, 0, sizeof all);
    memset(&last, 0, sizeof last);
    memset(&stream, 0, sizeof stream);
    OK(&ctx, take_apart(&ctx, &all, model, LENS_PARTS_SUBLAYERS, tokens, LONG, 0, 0));
    OK(&ctx, take_apart(&ctx, &last, model, LENS_PARTS_SUBLAYERS, tokens, LONG, LONG - LAST, LAST));
    OK(&ctx, take_apart(&ctx, &stream, model, LENS_PARTS_STREAMS, tokens, LONG, 0, 0));
    CHECK(all.stack.shape[1] == LONG && stream.stack.shape[1] == LONG);
    same_bits(attn_slice(all.stack, 1, LONG - LAST, LAST), last.stack, "the last positions");
    sum_of_parts(all.stack, attn_select(stream.stack, 0, stream.stack.shape[0] - 1), 1e-5,
                 "the sum of all parts");
}

TEST(bad_parts)
{
    SCOPED_CTX ctx = alone();
    const int32_t *const tokens = ids_of(expected(0, "tokens"));
    stream_parts out;
    memset(&out, 0, sizeof out);
#define DECOMPOSE(model, kind, first, count)                                                       \
    take_apart(&ctx, &out, model, kind, tokens, 8, first, count)
    FAILS(ARGUMENT, "8 tokens", DECOMPOSE(plain, LENS_PARTS_HEADS, 8, 0));
    FAILS(ARGUMENT, "8 tokens", DECOMPOSE(plain, LENS_PARTS_HEADS, 1, SIZE_MAX));
    out.scale = random_tensor(1, 8);
    FAILS(SHAPE, "[8, 1]", DECOMPOSE(plain, LENS_PARTS_HEADS, 0, 0));
#undef DECOMPOSE
    CHECK(out.stack.ndim == 0 && ctx.blocks == NULL);
}

static attn_tensor tensor_of_layer(attn_ctx *ctx, const attn_model *m, size_t layer,
                                   const char *name)
{
    attn_tensor out = {0};
    OK(ctx, attn_model_tensor(ctx, &out, m, test_text("blocks.%zu.%s", layer, name)));
    return out;
}

/* What single neurons add to the stream: post [T, n, 1] times their rows of W_out. */
TEST(neurons)
{
    for (int i = 0; i < 2; i++) {
        SCOPED_CTX ctx = alone();
        const size_t last = attn_model_config(model_of(i))->n_layer - 1;
        const attn_tensor w_out = tensor_of_layer(&ctx, model_of(i), last, "mlp.W_out");
        attn_tensor each = attn_slice(expected(i, "post"), 1, 7, 3), neurons = {0};
        each.ndim = 3;
        OK(&ctx, attn_mul(&ctx, &neurons, each, attn_slice(w_out, 0, 7, 3)));
        close_to(neurons, expected(i, "neurons"), 1e-6, "results of neurons");
        pool_clear();
    }
}

/* What a hook has shown of one layer, put together again. */
static int keep_result(const attn_activation *a, void *user)
{
    const attn_tensor *const result = (const attn_tensor *)user; /* [T, H, C] */
    attn_ctx ctx = alone();
    attn_tensor to = attn_slice(*result, 0, a->first, a->value.shape[0]);
    return attn_copy(&ctx, &to, a->value) != ATTN_OK;
}

/* hook_result and lens_decompose give the same bits, whatever the type of
 * the weights, and whatever becomes of the text's pieces. */
TEST(results_have_the_same_bits)
{
    static const char *const dtypes[] = {"f32", "f16", "q8", "q4"};
    for (size_t i = 0; i < 4; i++) {
        SCOPED_CTX ctx = alone();
        attn_tensor shown = {0};
        stream_parts parts = ATTN_ZERO;
        enum { N = 37, LAYER = 1 };
        int is_nan = 0;
        SCOPED_MODEL m = converted("examples/tiny-stories", test_text("results-%s.attn", dtypes[i]),
                                   test_text("--dtype %s", dtypes[i]));
        if (!m)
            return;
        const attn_config *c = attn_model_config(m);
        int32_t *tokens = random_tokens(m, N, 11);
        attn_session *session = session_on(&ctx, m, 0, 16); /* in pieces of 16 */
        OK(&ctx, attn_zeros(&ctx, &shown, ATTN_F32, attn_shape3(N, c->n_head, c->d_model)));
        OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.1.attn.hook_result", keep_result, &shown));
        OK(&ctx, attn_feed(&ctx, session, tokens, N));
        OK(&ctx, take_apart(&ctx, &parts, m, LENS_PARTS_HEADS, tokens, N, 0, 0));
        attn_tensor stack = attn_slice(parts.stack, 0, LAYER * c->n_head, c->n_head);
        same_bits(attn_transpose(stack, 0, 1), shown, dtypes[i]);
        memset(parts.stack.data, 0xff, attn_count(parts.stack) * sizeof(float)); /* NaN */
        OK(&ctx, take_apart(&ctx, &parts, m, LENS_PARTS_HEADS, tokens, N, 0, 0));
        same_bits(attn_transpose(stack, 0, 1), shown, dtypes[i]);
        for (size_t k = 0; k < N * c->d_model; k++)
            is_nan |= isnan(((const float *)parts.stack.data)[attn_count(parts.stack) - 1 - k]);
        CHECK(!is_nan);
        attn_session_free(session);
        pool_clear();
    }
}

/* ---- direct logit attribution ---- */

/* The terms [T, F] of the neurons of a model's last layer, as the header's VERSIONS has them: times
 * post / scale, the directions with the gain along W_out's rows, each less its mean. */
static attn_tensor neuron_terms(attn_ctx *ctx, int i, attn_tensor directions)
{
    const attn_model *const m = model_of(i);
    const attn_tensor w_out =
        tensor_of_layer(ctx, m, attn_model_config(m)->n_layer - 1, "mlp.W_out");
    attn_tensor gain = {0}, mean = {0}, w = {0}, d = {0}, along = {0}, post = {0}, out = {0};
    OK(ctx, attn_model_tensor(ctx, &gain, m, "ln_final.w"));
    OK(ctx, attn_mul(ctx, &d, directions, gain));
    OK(ctx, attn_mean(ctx, &mean, w_out));
    OK(ctx, attn_sub(ctx, &w, w_out, mean));
    OK(ctx, attn_matmul(ctx, &along, d, attn_transpose(w, 0, 1)));
    OK(ctx, attn_div(ctx, &post, expected(i, "post"), expected(i, "scale")));
    OK(ctx, attn_mul(ctx, &out, post, along));
    return out;
}

TEST(attribution)
{
    for (int i = 0; i < 2; i++) {
        SCOPED_CTX ctx = alone();
        const attn_model *const m = model_of(i);
        const attn_tensor scale = expected(i, "scale"), want = expected(i, "difference");
        attn_tensor directions = {0}, bias = {0}, one = {0}, x = {0};
        OK(&ctx, attn_logit_directions(&ctx, &directions, m, ids_of(expected(i, "right")),
                                       ids_of(expected(i, "wrong")), MOST));
        close_to(directions, expected(i, "directions"), 1e-7, "directions");
        OK(&ctx, lens_bias_logit_attrs(&ctx, &bias, m, ids_of(expected(i, "right")),
                                       ids_of(expected(i, "wrong")), MOST));
        close_to(bias, expected(i, "bias"), 1e-6, "the bias's term");
        for (int kind = 0; kind < 4; kind++) {
            attn_tensor terms = {0}, whole = {0};
            OK(&ctx,
               lens_logit_attrs(&ctx, &terms, m, expected_n(i, "parts", kind), scale, directions));
            close_to(terms, expected_n(i, "attributed", kind), 2e-6, "terms");
            if (kinds_of_parts[kind] < LENS_PARTS_SUBLAYERS) /* the whole stream is the last */
                terms = attn_slice(terms, 0, terms.shape[0] - 1, 1);
            OK(&ctx, attn_add(&ctx, &whole, terms,
                              attn_scale(&ctx, &x, bias, 1.0f / (float)terms.shape[0]) ? bias : x));
            attn_tensor_free(&ctx, &x);
            sum_of_parts(whole, want, 5e-6, "the terms' sum");
        }
        attn_tensor neurons = neuron_terms(&ctx, i, directions);
        close_to(neurons, expected(i, "neuron_terms"), 2e-6, "neurons' terms");
        neurons = neuron_terms(&ctx, i, attn_slice(directions, 0, 0, 1));
        close_to(neurons, expected(i, "neuron_terms_one"), 2e-6, "neurons' terms, one direction");
        OK(&ctx, lens_logit_attrs(&ctx, &one, m, expected(i, "resid"), scale,
                                  attn_slice(directions, 0, 1, 1)));
        CHECK(one.ndim == 1 && one.shape[0] == MOST);
        pool_clear();
    }
}

/* The engine's own logits, from the engine's own parts. */
TEST(parts_make_logits)
{
    for (int i = 0; i < 2; i++)
        for (int kind = 2; kind < 4; kind++) { /* those that sum to the stream */
            SCOPED_CTX ctx = alone();
            const attn_model *const m = model_of(i);
            const attn_tensor tokens = expected(i, "tokens");
            const size_t n = tokens.shape[0], n_vocab = attn_model_config(m)->n_vocab;
            const int32_t right = 11, wrong = 60;
            const attn_tensor logits = attn_borrow(logits_of(&ctx, m, 0, ids_of(tokens), n, n),
                                                   ATTN_F32, attn_shape2(n, n_vocab));
            attn_tensor direction = {0}, bias = {0}, terms = {0};
            stream_parts p;
            double largest = 0;
            memset(&p, 0, sizeof p);
            OK(&ctx, take_apart(&ctx, &p, m, kinds_of_parts[kind], ids_of(tokens), n, 0, 0));
            OK(&ctx, attn_logit_directions(&ctx, &direction, m, &right, &wrong, 1));
            OK(&ctx, lens_logit_attrs(&ctx, &terms, m, p.stack, p.scale, direction));
            OK(&ctx, lens_bias_logit_attrs(&ctx, &bias, m, &right, &wrong, 1));
            for (size_t t = 0; t < n; t++) {
                double sum = value_of(bias, 0);
                for (size_t part = 0; part < terms.shape[0]; part++)
                    sum += value_of(terms, part * n + t);
                sum -= value_of(logits, t * n_vocab + 11) - value_of(logits, t * n_vocab + 60);
                largest = fabs(sum) > largest ? fabs(sum) : largest;
            }
            CHECKF(largest < 5e-6, "%s: the parts' sum is %.3g off the logits", lens_models[i],
                   largest);
            pool_clear();
        }
}

TEST(bad_attribution)
{
    SCOPED_CTX ctx = alone();
    const attn_tensor parts0 = expected(0, "parts.0"), scale = expected(0, "scale");
    const attn_tensor directions = expected(0, "directions");
    attn_tensor x = {0}, none = {0};
    const int32_t one = 1, outside = 97;
    FAILS(TOKEN, "97", attn_logit_directions(&ctx, &x, plain, &one, &outside, 1));
    FAILS(ARGUMENT, "no tokens", attn_logit_directions(&ctx, &x, plain, &one, &one, 0));
    FAILS(SHAPE, "[.., T, 48]", lens_logit_attrs(&ctx, &x, odd, parts0, scale, directions));
    FAILS(SHAPE, "scale has shape [3, 64]; expected [3, 1]",
          lens_logit_attrs(&ctx, &x, plain, parts0, directions, directions));
    FAILS(SHAPE, "expected [1, 64] or [3, 64]",
          lens_logit_attrs(&ctx, &x, plain, parts0, scale, attn_slice(directions, 0, 0, 2)));
    FAILS(TOKEN, "97", lens_bias_logit_attrs(&ctx, &x, plain, &outside, NULL, 1));
    FAILS(TOKEN, "97", lens_bias_logit_attrs(&ctx, &x, plain, &one, &outside, 1));
    ctx.status = ATTN_OK;
    FAILS(ARGUMENT, "no tensor", lens_logit_attrs(&ctx, &x, plain, none, scale, directions));
    CHECK(x.ndim == 0 && ctx.blocks == NULL);
}

/* ---- the logit lens ---- */

TEST(lenses)
{
    for (int i = 0; i < 2; i++) {
        SCOPED_CTX ctx = alone();
        const attn_model *const m = model_of(i);
        const attn_tensor streams = expected(i, "parts.0"), tokens = expected(i, "tokens");
        const attn_tensor scale = expected(i, "scale");
        const size_t n = tokens.shape[0], n_vocab = attn_model_config(m)->n_vocab;
        const int32_t some[4] = {90, 3, 3, 0};
        attn_tensor fresh = {0}, saved = {0}, chosen = {0}, y = {0};
        stream_parts p;
        OK(&ctx, lens_logit_lens(&ctx, &fresh, m, streams, no_scale, no_tensor));
        close_to(fresh, expected(i, "lens_fresh"), 2e-6, "fresh lens");
        OK(&ctx, lens_logit_lens(&ctx, &saved, m, streams, scale, no_tensor));
        close_to(saved, expected(i, "lens_saved"), 2e-6, "saved lens");
        OK(&ctx, lens_logit_lens(&ctx, &chosen, m, streams, scale,
                                 attn_borrow(some, ATTN_I32, attn_shape1(4))));
        for (size_t row = 0; row < count_of(chosen) / 4; row++)
            for (size_t j = 0; j < 4; j++)
                CHECK(value_of(chosen, row * 4 + j) ==
                      value_of(saved, row * n_vocab + (size_t)some[j]));

        memset(&p, 0, sizeof p); /* the last stream gives the model's own logits, bit by bit */
        attn_tensor x = attn_borrow(logits_of(&ctx, m, 0, ids_of(tokens), n, n), ATTN_F32,
                                    attn_shape2(n, n_vocab));
        OK(&ctx, take_apart(&ctx, &p, m, LENS_PARTS_STREAMS, ids_of(tokens), n, 0, 0));
        p.stack = attn_select(p.stack, 0, p.stack.shape[0] - 1);
        OK(&ctx, lens_logit_lens(&ctx, &y, m, p.stack, no_scale, no_tensor));
        same_bits(y, x, "the last stream's logits");
        OK(&ctx, lens_logit_lens(&ctx, &y, m, p.stack, p.scale, no_tensor));
        same_bits(y, x, "the last stream's logits with the saved scale");
        pool_clear();
    }
}

/* Quantized weights read rounded inputs, in the lens as in the model; rewritten, they are f32. */
TEST(quantized)
{
    SCOPED_CTX ctx = alone();
    const attn_tensor tokens = expected(1, "tokens");
    const size_t n = tokens.shape[0];
    const int32_t some[3] = {300, 17, 4};
    attn_model *m = converted("tests/golden/odd", "lens-odd4.attn", "--dtype q4"), *made = NULL;
    attn_tensor logits, lens = {0}, chosen = {0}, before = {0}, after = {0};
    stream_parts p;
    if (!m)
        return;
    memset(&p, 0, sizeof p);
    log_probabilities(&ctx, m, ids_of(tokens), n, &logits);
    OK(&ctx, take_apart(&ctx, &p, m, LENS_PARTS_STREAMS, ids_of(tokens), n, 0, 0));
    attn_tensor last = attn_select(p.stack, 0, 3);
    OK(&ctx, lens_logit_lens(&ctx, &lens, m, last, no_scale, no_tensor));
    same_bits(lens, logits, "the last stream's logits");
    OK(&ctx, lens_logit_lens(&ctx, &chosen, m, last, no_scale,
                             attn_borrow(some, ATTN_I32, attn_shape1(3))));
    for (size_t t = 0; t < n; t++)
        for (size_t j = 0; j < 3; j++)
            CHECK(value_of(chosen, t * 3 + j) == value_of(lens, t * 301 + (size_t)some[j]));
    OK(&ctx, lens_process_weights(&ctx, &made, m, LENS_PROCESS_CENTER_UNEMBED));
    OK(&ctx, attn_model_tensor(&ctx, &before, m, "blocks.2.mlp.W_out"));
    OK(&ctx, attn_model_tensor(&ctx, &after, made, "blocks.2.mlp.W_out"));
    same_bits(after, before, "quantized weights as f32");
    attn_model_close(m);
    attn_model_close(made);
}

/* The logits of chosen tokens are those of all, whatever the weights: in any order, repeated, from a view;
 * and 90 of them take as many allocations, so as many products, as 2 do. */
static void check_chosen(const attn_model *m, const char *what)
{
    enum { ROWS = 5, MOST_CHOSEN = 90 };
    const size_t width = attn_model_config(m)->d_model, n_vocab = attn_model_config(m)->n_vocab;
    const attn_tensor x = random_tensor(3, 1, ROWS, (int)width);
    long asked = 0;
    attn_tensor all = {0};
    SCOPED_CTX ctx = alone();
    int32_t ids[2 * MOST_CHOSEN];
    OK(&ctx, attn_model_logits(&ctx, &all, m, x, no_tensor));
    for (size_t i = 0; i < MOST_CHOSEN; i++) {
        ids[2 * i] = (int32_t)(i % 7 == 6 ? n_vocab - 1 : (n_vocab * 3 - 31 * i) % n_vocab);
        ids[2 * i + 1] = -1;
    }
    for (size_t n = 2; n <= MOST_CHOSEN; n += MOST_CHOSEN - 2) {
        meter count;
        attn_ctx counted = metered(&count);
        attn_tensor chosen = {0}, tokens = attn_borrow(ids, ATTN_I32, attn_shape2(n, 2));
        OK(&counted, attn_model_logits(&counted, &chosen, m, x, attn_select(tokens, 1, 0)));
        CHECK(chosen.ndim == 3 && chosen.shape[1] == ROWS && chosen.shape[2] == n);
        for (size_t row = 0; row < ROWS; row++)
            for (size_t i = 0; i < n; i++)
                CHECKF(value_of(chosen, row * n + i) ==
                           value_of(all, row * n_vocab + (size_t)ids[2 * i]),
                       "%s: row %zu, token %d", what, row, (int)ids[2 * i]);
        CHECKF(n == 2 || count.asked == asked, "%s: %ld allocations for 2 tokens, %ld for %d", what,
               asked, count.asked, (int)MOST_CHOSEN);
        asked = count.asked;
        attn_tensor_free(&counted, &chosen);
        CHECK(count.live == 0);
    }
}

TEST(chosen_tokens)
{
    static const char *const types[] = {"f32", "f16", "q8", "q4"};
    static const int32_t ids[] = {11, 60};
    SCOPED_CTX ctx = alone();
    attn_model *made = NULL;
    attn_tensor each = {0}, against = {0};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        made = converted("tests/golden/odd", "chosen.attn", test_text("--dtype %s", types[i]));
        if (made)
            check_chosen(made, types[i]);
        attn_model_close(made);
    }
    if (OK(&ctx, lens_process_weights(&ctx, &made, plain, LENS_PROCESS_FOLD_LN))) {
        check_chosen(made, "with b_U");
        OK(&ctx, lens_bias_logit_attrs(&ctx, &each, made, ids, NULL, 2));
        OK(&ctx, lens_bias_logit_attrs(&ctx, &against, made, ids, ids + 1, 1));
        CHECK(fabs(value_of(against, 0) - (value_of(each, 0) - value_of(each, 1))) < 1e-6);
    }
    attn_model_close(made);
}

TEST(bad_lenses)
{
    SCOPED_CTX ctx = alone();
    const attn_tensor streams = expected(0, "parts.0"), scale = expected(0, "scale");
    attn_tensor x = {0};
    const int32_t outside = 301, inside = 1;
    const volatile int stopped = 1;
    FAILS(SHAPE, "[.., T, 48]", lens_logit_lens(&ctx, &x, odd, streams, no_scale, no_tensor));
    FAILS(TOKEN, "301",
          lens_logit_lens(&ctx, &x, plain, streams, no_scale,
                          attn_borrow(&outside, ATTN_I32, attn_shape1(1))));
    FAILS(SHAPE, "tokens have shape [3, 1]",
          attn_model_logits(&ctx, &x, plain, attn_select(streams, 0, 0), scale));
    FAILS(SHAPE, "normed has shape [3, 64]; expected [.., 48]",
          attn_model_logits(&ctx, &x, odd, attn_select(streams, 0, 0), no_tensor));
    FAILS(SHAPE, "scale has shape [2, 1]; expected [3, 1]",
          lens_logit_lens(&ctx, &x, plain, streams, attn_slice(scale, 0, 0, 2), no_tensor));
    ctx.status = ATTN_OK;
    FAILS(ARGUMENT, "scale is no tensor: attn_slice",
          lens_logit_lens(&ctx, &x, plain, streams, attn_slice(scale, 0, 2, 2), no_tensor));
    ctx.stop_flag = &stopped;
    STOPS(&ctx, lens_logit_lens(&ctx, &x, plain, streams, no_scale, no_tensor));
    STOPS(&ctx, lens_logit_lens(&ctx, &x, plain, streams, no_scale,
                                attn_borrow(&inside, ATTN_I32, attn_shape1(1))));
    CHECK(x.ndim == 0 && ctx.blocks == NULL);
}

static int poison(const attn_activation *a, void *user)
{
    (void)user;
    if (a->first <= 5 && a->first + a->value.shape[0] > 5)
        for (size_t i = 0; i < a->value.shape[1]; i++)
            *entry(a->value, 5 - a->first, i, 0) = NAN;
    return 0;
}

TEST(arguments_of_statistics)
{
    SCOPED_CTX ctx = {0};
    SCOPED_SESSION session = session_on(&ctx, plain, 0, 2);
    const attn_config *c = attn_model_config(plain);
    const size_t C = c->d_model;
    const attn_tensor v = some(1, C, 1, 1), m = some(2, 3, C, 1), wider = some(2, 3, C + 1, 1);
    const attn_tensor scale = some(2, 3, 1, 1);
    attn_token_stats stats[10];
    attn_prediction top[10];
    int32_t wrong[3] = {0, 1, 2};
    float *before = (float *)pool_new(c->n_vocab * sizeof(float));
    REFUSED(ARGUMENT, "logits",
            attn_logit_stats(&ctx, stats, &(attn_top){top, 1}, no_tensor, wrong));
    REFUSED(SHAPE, "logits", attn_logit_stats(&ctx, stats, &(attn_top){top, 1}, v, wrong));
    REFUSED(SHAPE, "logits",
            attn_logit_stats(&ctx, stats, &(attn_top){top, 1}, some(2, 3, 0, 1), wrong));
    wrong[1] = -1;
    REFUSED(TOKEN, "-1", attn_logit_stats(&ctx, stats, &(attn_top){top, 1}, m, wrong));
    wrong[1] = (int32_t)C;
    REFUSED(TOKEN, "", attn_logit_stats(&ctx, stats, &(attn_top){top, 1}, m, wrong));
    CHECK(attn_logit_directions(&ctx, &not_made, plain, NULL, NULL, 2) != ATTN_OK &&
          not_made.ndim == 0);
    REFUSED(ARGUMENT, "directions", lens_logit_attrs(&ctx, &not_made, plain, m, scale, no_tensor));
    REFUSED(SHAPE, "", lens_logit_attrs(&ctx, &not_made, plain, m, scale, v));
    REFUSED(SHAPE, "", lens_logit_attrs(&ctx, &not_made, plain, m, scale, wider));
    REFUSED(SHAPE, "", lens_logit_attrs(&ctx, &not_made, plain, v, scale, m));
    REFUSED(SHAPE, "", lens_logit_attrs(&ctx, &not_made, plain, wider, scale, m));
    REFUSED(ARGUMENT, "resid",
            lens_logit_lens(&ctx, &not_made, plain, no_tensor, no_tensor, no_tensor));
    REFUSED(SHAPE, "resid has shape",
            lens_logit_lens(&ctx, &not_made, plain, v, no_tensor, no_tensor));
    REFUSED(SHAPE, "resid has shape",
            lens_logit_lens(&ctx, &not_made, plain, wider, no_tensor, no_tensor));
    /* a text whose logits are no numbers leaves the session as it was */
    ctx.status = ATTN_OK;
    OK(&ctx, attn_feed(&ctx, session, ten, 2));
    memcpy(before, attn_session_logits(session), c->n_vocab * sizeof(float));
    OK(&ctx, attn_hook(&ctx, NULL, session, "ln_final.hook_normalized.post", poison, NULL));
    REFUSED(ARGUMENT, "the logits at position 5 hold a NaN",
            attn_score(&ctx, stats, &(attn_top){top, 1}, session, ten + 2, 6));
    CHECK(attn_session_logits(session) &&
          !differ(before, attn_session_logits(session), c->n_vocab));
    attn_unhook_all(session);
    ctx.status = ATTN_OK;
    OK(&ctx, attn_score(&ctx, stats, NULL, session, ten + 2, 6));
    OK(&ctx, attn_session_truncate(&ctx, session, 2));
    OK(&ctx, attn_score(&ctx, NULL, &(attn_top){top, 1}, session, ten + 2, 6));
}

/* Positions beyond the first batch of a long text are the same alone as among all. */
TEST(positions_of_a_long_text)
{
    SCOPED_CTX ctx = {0};
    SCOPED_MODEL model = NULL;
    stream_parts all, some_of;
    memset(&all, 0, sizeof all);
    memset(&some_of, 0, sizeof some_of);
    if (!OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/fuzz/long.attn", NULL)))
        return;
    int32_t *tokens = random_tokens(model, 520, 5);
    OK(&ctx, take_apart(&ctx, &all, model, LENS_PARTS_HEADS, tokens, 520, 0, 0));
    for (size_t i = 0; i < 3; i++) {
        static const size_t first[] = {0, 250, 400}, count[] = {10, 20, 30};
        OK(&ctx,
           take_apart(&ctx, &some_of, model, LENS_PARTS_HEADS, tokens, 520, first[i], count[i]));
        CHECK(same_bits(some_of.stack, attn_slice(all.stack, 1, first[i], count[i]), "parts"));
        CHECK(same_bits(some_of.scale, attn_slice(all.scale, 0, first[i], count[i]), "scales"));
        attn_tensor_free(&ctx, &some_of.stack);
        attn_tensor_free(&ctx, &some_of.scale);
    }
}
