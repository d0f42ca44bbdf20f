/* What activations and weights say. The expected numbers are numpy's in float64, from the random
 * models of golden/ (make_lens_fixtures.py). */
#include "lens_fixtures.h"
#include "refused.h"

SUITE_WITH("lens", open_plain_and_odd, close_plain_and_odd);

static const attn_tensor no_scale; /* a lens takes the stream's own */

static attn_tensor expected_n(int model, const char *name, int n)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%d", name, n);
    return expected(model, full);
}

/* ---- attention heads ---- */

TEST(head_statistics)
{
    int i, kind;
    for (i = 0; i < 2; i++) {
        attn_ctx ctx = alone();
        const attn_tensor tokens = expected(i, "again"), pattern = expected(i, "pattern");
        const attn_tensor want = expected(i, "head_scores"), want_keys = expected(i, "keys");
        attn_tensor entropy = {0}, scores = {0}, only = {0}, one = {0};
        const size_t n = tokens.shape[0];
        OK(&ctx, attn_detect_heads(&ctx, &entropy, &scores, model_of(i), ids_of(tokens), n));
        close_to(entropy, expected(i, "entropy"), 2e-6, "entropy");
        close_to(scores, want, 1e-6, "head scores");
        OK(&ctx, attn_detect_heads(&ctx, NULL, &only, model_of(i), ids_of(tokens), n));
        same_bits(only, scores, "scores alone");

        OK(&ctx, attn_pattern_entropy(&ctx, &one, pattern));
        close_to(one, attn_select(expected(i, "entropy"), 0, 0), 1e-6, "entropy of a pattern");
        for (kind = 0; kind < ATTN_N_HEAD_KINDS; kind++) {
            attn_tensor keys = {0}, score = {0};
            OK(&ctx, attn_head_keys(&ctx, &keys, (attn_head_kind)kind, ids_of(tokens), n));
            same_bits(keys, attn_select(want_keys, 0, (size_t)kind), "keys");
            OK(&ctx, attn_head_score(&ctx, &score, pattern, keys));
            close_to(score, attn_select(attn_select(want, 0, (size_t)kind), 0, 0), 1e-6, "score");
        }
        attn_ctx_free(&ctx);
        pool_clear();
    }
}

TEST(bad_heads)
{
    attn_ctx ctx = alone();
    const attn_tensor tokens = expected(0, "again"), pattern = expected(0, "pattern");
    attn_tensor out = {0}, wrong = random_tensor(2, 3, 3);
    int32_t many[33] = {0};
    float even[4] = {0.25f, 0.25f, 0.25f, 0.25f}, sure[4] = {0, 1, 0, 0};
    OK(&ctx, attn_pattern_entropy(&ctx, &out, attn_borrow(even, ATTN_F32, attn_shape2(1, 4))));
    CHECK(fabs((double)attn_get1(out, 0) - log(4)) < 1e-6);
    OK(&ctx, attn_pattern_entropy(&ctx, &out, attn_borrow(sure, ATTN_F32, attn_shape2(1, 4))));
    CHECK(attn_get1(out, 0) == 0);
    attn_tensor_free(&ctx, &out);
    FAILS(&ctx, ATTN_E_SHAPE, "[.., Tq, Tk]", attn_pattern_entropy(&ctx, &out, floats(even, 4)));
    FAILS(&ctx, ATTN_E_SHAPE, "[3, 3]", attn_head_score(&ctx, &out, pattern, wrong));
    FAILS(&ctx, ATTN_E_ARGUMENT, "kind 3",
          attn_head_keys(&ctx, &out, ATTN_N_HEAD_KINDS, ids_of(tokens), 4));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no tokens",
          attn_head_keys(&ctx, &out, ATTN_HEAD_PREVIOUS, NULL, 4));
    FAILS(&ctx, ATTN_E_CONTEXT, "33 tokens", attn_detect_heads(&ctx, &out, NULL, plain, many, 33));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no tokens", attn_detect_heads(&ctx, &out, NULL, plain, many, 0));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no model", attn_detect_heads(&ctx, &out, NULL, NULL, many, 3));
    many[1] = -1;
    FAILS(&ctx, ATTN_E_TOKEN, "token 1", attn_detect_heads(&ctx, &out, NULL, plain, many, 3));
    many[1] = 0;
    FAILS(&ctx, ATTN_E_SHAPE, "[3, 2, 4]", attn_detect_heads(&ctx, &out, &wrong, plain, many, 3));
    CHECK(out.ndim == 0 && ctx.blocks == NULL);
    attn_ctx_free(&ctx);
    pool_clear();
}

/* ---- the residual stream, taken apart ---- */

TEST(labels)
{
    static const struct {
        attn_resid_kind kind;
        size_t index;
        const char *text;
    } want[] = {{ATTN_RESID_ACCUMULATED, 0, "0_pre"},
                {ATTN_RESID_ACCUMULATED, 2, "2_pre"},
                {ATTN_RESID_ACCUMULATED, 3, "final_post"},
                {ATTN_RESID_ACCUMULATED_MID, 4, "2_pre"},
                {ATTN_RESID_ACCUMULATED_MID, 5, "2_mid"},
                {ATTN_RESID_ACCUMULATED_MID, 6, "final_post"},
                {ATTN_RESID_SUBLAYERS, 0, "embed"},
                {ATTN_RESID_SUBLAYERS, 1, "pos_embed"},
                {ATTN_RESID_SUBLAYERS, 2, "0_attn_out"},
                {ATTN_RESID_SUBLAYERS, 7, "2_mlp_out"},
                {ATTN_RESID_HEADS, 0, "L0H0"},
                {ATTN_RESID_HEADS, 7, "L2H1"},
                {ATTN_RESID_HEADS, 9, "0_mlp_out"},
                {ATTN_RESID_HEADS, 11, "2_mlp_out"},
                {ATTN_RESID_HEADS, 12, "embed"},
                {ATTN_RESID_HEADS, 13, "pos_embed"},
                {ATTN_RESID_HEADS, 14, "bias"},
                {ATTN_RESID_HEADS, 15, ""},
                {ATTN_RESID_SUBLAYERS, 8, ""},
                {(attn_resid_kind)4, 0, ""}};
    size_t i;
    for (i = 0; i < sizeof want / sizeof want[0]; i++)
        CHECKF(strcmp(attn_resid_label(odd, want[i].kind, want[i].index).text, want[i].text) == 0,
               "part %zu of kind %d is called %s, expected %s", want[i].index, (int)want[i].kind,
               attn_resid_label(odd, want[i].kind, want[i].index).text, want[i].text);
    CHECK(attn_resid_count(odd, ATTN_RESID_HEADS) == 15 &&
          attn_resid_count(plain, (attn_resid_kind)9) == 0);
}

static void sum_of_parts(attn_tensor stack, attn_tensor want, double tolerance, const char *what)
{
    attn_tensor sum = new_tensor(ATTN_F32, want.ndim, want.shape, LAYOUT_DENSE);
    const size_t n = count_of(want);
    size_t i, part;
    for (i = 0; i < n; i++) {
        double total = 0;
        for (part = 0; part < stack.shape[0]; part++)
            total += value_of(stack, part * n + i);
        ((float *)sum.data)[i] = (float)total;
    }
    close_to(sum, want, tolerance, what);
}

TEST(parts)
{
    int i, kind;
    for (i = 0; i < 2; i++)
        for (kind = 0; kind < 4; kind++) {
            attn_ctx ctx = alone();
            const attn_tensor tokens = expected(i, "tokens");
            const size_t n = tokens.shape[0];
            attn_resid_stack some, all;
            memset(&some, 0, sizeof some);
            memset(&all, 0, sizeof all);
            OK(&ctx, attn_decompose_resid(&ctx, &some, model_of(i), ids_of(tokens), n,
                                          (attn_resid_kind)kind, FIRST, MOST));
            close_to(some.stack, expected_n(i, "parts", kind), 2e-6, "parts");
            close_to(some.scale, expected(i, "scale"), 1e-6, "scale");
            OK(&ctx, attn_decompose_resid(&ctx, &all, model_of(i), ids_of(tokens), n,
                                          (attn_resid_kind)kind, 0, 0));
            CHECK(all.stack.shape[1] == n && all.scale.shape[0] == n);
            same_bits(attn_slice(all.stack, 1, FIRST, MOST), some.stack, "the same positions");
            if (kind >= ATTN_RESID_SUBLAYERS)
                sum_of_parts(some.stack, expected(i, "resid"), 1e-6, "the sum of all parts");
            attn_ctx_free(&ctx);
            pool_clear();
        }
}

/* A text of more than one pass. */
TEST(parts_of_a_long_text)
{
    enum { LONG = 300, LAST = 20 };
    attn_ctx ctx = alone();
    attn_model *const model = converted("tests/golden/long", "long-lens.attn", "");
    const int32_t *const tokens = random_tokens(model, LONG, 8);
    attn_resid_stack all, last, stream;
    memset(&all, 0, sizeof all);
    memset(&last, 0, sizeof last);
    memset(&stream, 0, sizeof stream);
    OK(&ctx, attn_decompose_resid(&ctx, &all, model, tokens, LONG, ATTN_RESID_SUBLAYERS, 0, 0));
    OK(&ctx, attn_decompose_resid(&ctx, &last, model, tokens, LONG, ATTN_RESID_SUBLAYERS,
                                  LONG - LAST, LAST));
    OK(&ctx,
       attn_decompose_resid(&ctx, &stream, model, tokens, LONG, ATTN_RESID_ACCUMULATED, 0, 0));
    CHECK(all.stack.shape[1] == LONG && stream.stack.shape[1] == LONG);
    same_bits(attn_slice(all.stack, 1, LONG - LAST, LAST), last.stack, "the last positions");
    sum_of_parts(all.stack, attn_select(stream.stack, 0, stream.stack.shape[0] - 1), 1e-5,
                 "the sum of all parts");
    attn_model_close(model);
    attn_ctx_free(&ctx);
    pool_clear();
}

TEST(bad_parts)
{
    attn_ctx ctx = alone();
    const int32_t *const tokens = ids_of(expected(0, "tokens"));
    attn_resid_stack out;
    attn_tensor x = {0}, z = expected(0, "z");
    memset(&out, 0, sizeof out);
#define DECOMPOSE(model, kind, first, count)                                                       \
    attn_decompose_resid(&ctx, &out, model, tokens, 8, kind, first, count)
    FAILS(&ctx, ATTN_E_ARGUMENT, "no model", DECOMPOSE(NULL, ATTN_RESID_HEADS, 0, 0));
    FAILS(&ctx, ATTN_E_ARGUMENT, "kind 4", DECOMPOSE(plain, (attn_resid_kind)4, 0, 0));
    FAILS(&ctx, ATTN_E_ARGUMENT, "8 tokens", DECOMPOSE(plain, ATTN_RESID_HEADS, 8, 0));
    FAILS(&ctx, ATTN_E_ARGUMENT, "8 tokens", DECOMPOSE(plain, ATTN_RESID_HEADS, 1, SIZE_MAX));
    out.scale = random_tensor(1, 8);
    FAILS(&ctx, ATTN_E_SHAPE, "[8, 1]", DECOMPOSE(plain, ATTN_RESID_HEADS, 0, 0));
#undef DECOMPOSE
    CHECK(out.stack.ndim == 0 && ctx.blocks == NULL);
    FAILS(&ctx, ATTN_E_ARGUMENT, "layers 0 to 1", attn_head_results(&ctx, &x, plain, 2, z));
    FAILS(&ctx, ATTN_E_SHAPE, "[3, 3, 16]", attn_head_results(&ctx, &x, odd, 2, z));
    FAILS(&ctx, ATTN_E_ARGUMENT, "layer has 256",
          attn_neuron_results(&ctx, &x, plain, 0, expected(0, "post"), 250, 7));
    FAILS(&ctx, ATTN_E_SHAPE, "[3, 100]",
          attn_neuron_results(&ctx, &x, odd, 0, expected(0, "post"), 0, 7));
    CHECK(x.ndim == 0 && ctx.blocks == NULL);
    attn_ctx_free(&ctx);
    pool_clear();
}

TEST(heads_and_neurons)
{
    int i;
    for (i = 0; i < 2; i++) {
        attn_ctx ctx = alone();
        const size_t last = attn_model_config(model_of(i))->n_layer - 1;
        attn_tensor result = {0}, neurons = {0};
        OK(&ctx, attn_head_results(&ctx, &result, model_of(i), last, expected(i, "z")));
        close_to(result, expected(i, "result"), 1e-6, "results of heads");
        OK(&ctx, attn_neuron_results(&ctx, &neurons, model_of(i), last, expected(i, "post"), 7, 3));
        close_to(neurons, expected(i, "neurons"), 1e-6, "results of neurons");
        attn_ctx_free(&ctx);
        pool_clear();
    }
}

/* What a hook has shown of one layer, put together again. */
typedef struct shown_results {
    attn_tensor z, result; /* [T, H, d], [T, H, C] */
} shown_results;

static int keep_results(const attn_activation *a, void *user)
{
    shown_results *const s = (shown_results *)user;
    attn_ctx ctx = alone();
    attn_tensor to =
        attn_slice(strstr(a->name, "hook_z") ? s->z : s->result, 0, a->first, a->value.shape[0]);
    return attn_copy(&ctx, &to, a->value) != ATTN_OK;
}

/* hook_result, attn_head_results and attn_decompose_resid give the same bits, whatever the type of
 * the weights, and whatever becomes of the text's pieces. */
TEST(results_have_the_same_bits)
{
    static const char *const dtypes[] = {"f32", "f16", "q8", "q4"};
    size_t i;
    for (i = 0; i < 4; i++) {
        attn_ctx ctx = alone();
        char options[32], name[32];
        attn_model *m;
        const attn_config *c;
        attn_session *session;
        int32_t *tokens;
        shown_results shown = {ATTN_ZERO, ATTN_ZERO};
        attn_tensor result = {0}, stack;
        attn_resid_stack parts = ATTN_ZERO;
        enum { N = 37, LAYER = 1 };
        size_t k;
        int is_nan = 0;
        snprintf(options, sizeof options, "--dtype %s", dtypes[i]);
        snprintf(name, sizeof name, "results-%s.attn", dtypes[i]);
        m = converted("examples/tiny-stories", name, options);
        if (!m)
            return;
        c = attn_model_config(m);
        tokens = random_tokens(m, N, 11);
        session = session_on(&ctx, m, 0, 16); /* in pieces of 16 */
        OK(&ctx, attn_zeros(&ctx, &shown.z, ATTN_F32, attn_shape3(N, c->n_head, c->d_head)));
        OK(&ctx, attn_zeros(&ctx, &shown.result, ATTN_F32, attn_shape3(N, c->n_head, c->d_model)));
        OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.1.attn.hook_z", keep_results, &shown));
        OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.1.attn.hook_result", keep_results, &shown));
        OK(&ctx, attn_feed(&ctx, session, tokens, N));
        OK(&ctx, attn_head_results(&ctx, &result, m, LAYER, shown.z));
        same_bits(result, shown.result, dtypes[i]);
        OK(&ctx, attn_decompose_resid(&ctx, &parts, m, tokens, N, ATTN_RESID_HEADS, 0, 0));
        stack = attn_slice(parts.stack, 0, LAYER * c->n_head, c->n_head);
        same_bits(attn_transpose(stack, 0, 1), shown.result, dtypes[i]);
        memset(parts.stack.data, 0xff, attn_count(parts.stack) * sizeof(float)); /* NaN */
        OK(&ctx, attn_decompose_resid(&ctx, &parts, m, tokens, N, ATTN_RESID_HEADS, 0, 0));
        same_bits(attn_transpose(stack, 0, 1), shown.result, dtypes[i]);
        for (k = 0; k < N * c->d_model; k++)
            is_nan |= isnan(((const float *)parts.stack.data)[attn_count(parts.stack) - 1 - k]);
        CHECK(!is_nan);
        attn_session_free(session);
        attn_model_close(m);
        attn_ctx_free(&ctx);
        pool_clear();
    }
}

/* ---- direct logit attribution ---- */

TEST(attribution)
{
    int i, kind;
    for (i = 0; i < 2; i++) {
        attn_ctx ctx = alone();
        const attn_model *const m = model_of(i);
        const size_t last = attn_model_config(m)->n_layer - 1;
        const attn_tensor scale = expected(i, "scale"), want = expected(i, "difference");
        attn_tensor directions = {0}, bias = {0}, neurons = {0}, one = {0}, x = {0};
        OK(&ctx, attn_logit_directions(&ctx, &directions, m, ids_of(expected(i, "right")),
                                       ids_of(expected(i, "wrong")), MOST));
        close_to(directions, expected(i, "directions"), 1e-7, "directions");
        OK(&ctx, attn_bias_logit_attrs(&ctx, &bias, m, directions));
        close_to(bias, expected(i, "bias"), 1e-6, "the bias's term");
        for (kind = 0; kind < 4; kind++) {
            attn_tensor terms = {0}, whole = {0};
            OK(&ctx,
               attn_logit_attrs(&ctx, &terms, m, expected_n(i, "parts", kind), scale, directions));
            close_to(terms, expected_n(i, "attributed", kind), 2e-6, "terms");
            if (kind < ATTN_RESID_SUBLAYERS) /* the whole stream is the last */
                terms = attn_slice(terms, 0, terms.shape[0] - 1, 1);
            OK(&ctx, attn_add(&ctx, &whole, terms,
                              attn_scale(&ctx, &x, bias, 1.0f / (float)terms.shape[0]) ? bias : x));
            attn_tensor_free(&ctx, &x);
            sum_of_parts(whole, want, 5e-6, "the terms' sum");
        }
        OK(&ctx, attn_neuron_logit_attrs(&ctx, &neurons, m, last, expected(i, "post"), scale,
                                         directions));
        close_to(neurons, expected(i, "neuron_terms"), 2e-6, "neurons' terms");
        memset(&neurons, 0, sizeof neurons);
        OK(&ctx, attn_neuron_logit_attrs(&ctx, &neurons, m, last, expected(i, "post"), scale,
                                         attn_slice(directions, 0, 0, 1)));
        close_to(neurons, expected(i, "neuron_terms_one"), 2e-6, "neurons' terms, one direction");
        OK(&ctx, attn_logit_attrs(&ctx, &one, m, expected(i, "resid"), scale,
                                  attn_slice(directions, 0, 1, 1)));
        CHECK(one.ndim == 1 && one.shape[0] == MOST);
        attn_ctx_free(&ctx);
        pool_clear();
    }
}

/* The engine's own logits, from the engine's own parts. */
TEST(parts_make_logits)
{
    int i, kind;
    for (i = 0; i < 2; i++)
        for (kind = ATTN_RESID_SUBLAYERS; kind <= ATTN_RESID_HEADS; kind++) {
            attn_ctx ctx = alone();
            const attn_model *const m = model_of(i);
            const attn_tensor tokens = expected(i, "tokens");
            const size_t n = tokens.shape[0], n_vocab = attn_model_config(m)->n_vocab;
            const int32_t right = 11, wrong = 60;
            const attn_tensor logits = attn_borrow(logits_of(&ctx, m, 0, ids_of(tokens), n, n),
                                                   ATTN_F32, attn_shape2(n, n_vocab));
            attn_tensor direction = {0}, bias = {0}, terms = {0};
            attn_resid_stack p;
            double largest = 0;
            size_t t, part;
            memset(&p, 0, sizeof p);
            OK(&ctx,
               attn_decompose_resid(&ctx, &p, m, ids_of(tokens), n, (attn_resid_kind)kind, 0, 0));
            OK(&ctx, attn_logit_directions(&ctx, &direction, m, &right, &wrong, 1));
            OK(&ctx, attn_logit_attrs(&ctx, &terms, m, p.stack, p.scale, direction));
            OK(&ctx, attn_bias_logit_attrs(&ctx, &bias, m, direction));
            for (t = 0; t < n; t++) {
                double sum = value_of(bias, 0);
                for (part = 0; part < terms.shape[0]; part++)
                    sum += value_of(terms, part * n + t);
                sum -= value_of(logits, t * n_vocab + 11) - value_of(logits, t * n_vocab + 60);
                largest = fabs(sum) > largest ? fabs(sum) : largest;
            }
            CHECKF(largest < 5e-6, "%s: the parts' sum is %.3g off the logits", names[i], largest);
            attn_ctx_free(&ctx);
            pool_clear();
        }
}

TEST(bad_attribution)
{
    attn_ctx ctx = alone();
    const attn_tensor parts0 = expected(0, "parts.0"), scale = expected(0, "scale");
    const attn_tensor directions = expected(0, "directions"), post = expected(0, "post");
    attn_tensor x = {0}, none = {0};
    const int32_t one = 1, outside = 97;
    FAILS(&ctx, ATTN_E_TOKEN, "97", attn_logit_directions(&ctx, &x, plain, &one, &outside, 1));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no tokens",
          attn_logit_directions(&ctx, &x, plain, &one, &one, 0));
    FAILS(&ctx, ATTN_E_SHAPE, "[.., T, 48]",
          attn_logit_attrs(&ctx, &x, odd, parts0, scale, directions));
    FAILS(&ctx, ATTN_E_SHAPE, "scale has shape [3, 64]; expected [3, 1]",
          attn_logit_attrs(&ctx, &x, plain, parts0, directions, directions));
    FAILS(&ctx, ATTN_E_SHAPE, "expected [1, 64] or [3, 64]",
          attn_logit_attrs(&ctx, &x, plain, parts0, scale, attn_slice(directions, 0, 0, 2)));
    FAILS(
        &ctx, ATTN_E_SHAPE, "expected [1, 64] or [3, 64]",
        attn_neuron_logit_attrs(&ctx, &x, plain, 0, post, scale, attn_slice(directions, 0, 0, 2)));
    FAILS(&ctx, ATTN_E_SHAPE, "post has shape",
          attn_neuron_logit_attrs(&ctx, &x, plain, 0, scale, scale, directions));
    FAILS(&ctx, ATTN_E_SHAPE, "expected [3, 64]",
          attn_bias_logit_attrs(&ctx, &x, plain, attn_slice(directions, 1, 0, 3)));
    ctx.status = ATTN_OK;
    FAILS(&ctx, ATTN_E_ARGUMENT, "no tensor",
          attn_logit_attrs(&ctx, &x, plain, none, scale, directions));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no model",
          attn_logit_attrs(&ctx, &x, NULL, parts0, scale, directions));
    CHECK(x.ndim == 0 && ctx.blocks == NULL);
    attn_ctx_free(&ctx);
}

/* ---- the logit lens ---- */

TEST(lenses)
{
    int i;
    for (i = 0; i < 2; i++) {
        attn_ctx ctx = alone();
        const attn_model *const m = model_of(i);
        const attn_tensor streams = expected(i, "parts.0"), tokens = expected(i, "tokens");
        const attn_tensor scale = expected(i, "scale");
        const size_t n = tokens.shape[0], n_vocab = attn_model_config(m)->n_vocab;
        const int32_t some[4] = {90, 3, 3, 0};
        attn_tensor fresh = {0}, saved = {0}, chosen = {0}, x, y = {0};
        attn_resid_stack p;
        size_t row, j;
        OK(&ctx, attn_logit_lens(&ctx, &fresh, m, streams, no_scale, NULL, 0));
        close_to(fresh, expected(i, "lens_fresh"), 2e-6, "fresh lens");
        OK(&ctx, attn_logit_lens(&ctx, &saved, m, streams, scale, NULL, 0));
        close_to(saved, expected(i, "lens_saved"), 2e-6, "saved lens");
        OK(&ctx, attn_logit_lens(&ctx, &chosen, m, streams, scale, some, 4));
        for (row = 0; row < count_of(chosen) / 4; row++)
            for (j = 0; j < 4; j++)
                CHECK(value_of(chosen, row * 4 + j) ==
                      value_of(saved, row * n_vocab + (size_t)some[j]));

        memset(&p, 0, sizeof p); /* the last stream gives the model's own logits, bit by bit */
        x = attn_borrow(logits_of(&ctx, m, 0, ids_of(tokens), n, n), ATTN_F32,
                        attn_shape2(n, n_vocab));
        OK(&ctx,
           attn_decompose_resid(&ctx, &p, m, ids_of(tokens), n, ATTN_RESID_ACCUMULATED, 0, 0));
        p.stack = attn_select(p.stack, 0, p.stack.shape[0] - 1);
        OK(&ctx, attn_logit_lens(&ctx, &y, m, p.stack, no_scale, NULL, 0));
        same_bits(y, x, "the last stream's logits");
        OK(&ctx, attn_logit_lens(&ctx, &y, m, p.stack, p.scale, NULL, 0));
        same_bits(y, x, "the last stream's logits with the saved scale");
        attn_ctx_free(&ctx);
        pool_clear();
    }
}

/* Quantized weights read rounded inputs, in the lens as in the model; rewritten, they are f32. */
TEST(quantized)
{
    attn_ctx ctx = alone();
    const attn_tensor tokens = expected(1, "tokens");
    const size_t n = tokens.shape[0];
    const int32_t some[3] = {300, 17, 4};
    attn_model *m = converted("tests/golden/odd", "lens-odd4.attn", "--dtype q4"), *made = NULL;
    attn_tensor logits, last, lens = {0}, chosen = {0}, before = {0}, after = {0};
    attn_resid_stack p;
    size_t t, j;
    if (!m)
        return;
    memset(&p, 0, sizeof p);
    log_probabilities(&ctx, m, ids_of(tokens), n, &logits);
    OK(&ctx, attn_decompose_resid(&ctx, &p, m, ids_of(tokens), n, ATTN_RESID_ACCUMULATED, 0, 0));
    last = attn_select(p.stack, 0, 3);
    OK(&ctx, attn_logit_lens(&ctx, &lens, m, last, no_scale, NULL, 0));
    same_bits(lens, logits, "the last stream's logits");
    OK(&ctx, attn_logit_lens(&ctx, &chosen, m, last, no_scale, some, 3));
    for (t = 0; t < n; t++)
        for (j = 0; j < 3; j++)
            CHECK(value_of(chosen, t * 3 + j) == value_of(lens, t * 301 + (size_t)some[j]));
    OK(&ctx, attn_process_weights(&ctx, &made, m, ATTN_CENTER_UNEMBEDDING));
    OK(&ctx, attn_model_tensor(&ctx, &before, m, "blocks.2.mlp.W_out"));
    OK(&ctx, attn_model_tensor(&ctx, &after, made, "blocks.2.mlp.W_out"));
    same_bits(after, before, "quantized weights as f32");
    attn_model_close(m);
    attn_model_close(made);
    attn_ctx_free(&ctx);
    pool_clear();
}

TEST(bad_lenses)
{
    attn_ctx ctx = alone();
    const attn_tensor streams = expected(0, "parts.0"), scale = expected(0, "scale");
    attn_tensor x = {0};
    const int32_t outside = 301;
    FAILS(&ctx, ATTN_E_SHAPE, "[.., T, 48]",
          attn_logit_lens(&ctx, &x, odd, streams, no_scale, NULL, 0));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no model",
          attn_logit_lens(&ctx, &x, NULL, streams, no_scale, NULL, 0));
    FAILS(&ctx, ATTN_E_TOKEN, "301",
          attn_logit_lens(&ctx, &x, plain, streams, no_scale, &outside, 1));
    FAILS(&ctx, ATTN_E_SHAPE, "scale has shape [2, 1]; expected [3, 1]",
          attn_logit_lens(&ctx, &x, plain, streams, attn_slice(scale, 0, 0, 2), NULL, 0));
    ctx.status = ATTN_OK;
    FAILS(&ctx, ATTN_E_ARGUMENT, "scale is no tensor: attn_slice",
          attn_logit_lens(&ctx, &x, plain, streams, attn_slice(scale, 0, 2, 2), NULL, 0));
    CHECK(x.ndim == 0 && ctx.blocks == NULL);
    attn_ctx_free(&ctx);
}

/* ---- circuits ---- */

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
            size_t layer, head;
            OK(&ctx,
               attn_circuit(&ctx, &left, &right, m, c->n_layer - 1, 1, (attn_circuit_kind)kind));
            OK(&ctx, attn_matmul(&ctx, &whole, left, right));
            close_to(attn_slice(whole, 0, 0, 16), expected(i, kind ? "ov" : "qk"), 1e-6, "circuit");
            for (layer = 0; layer < c->n_layer; layer++)
                for (head = 0; head < c->n_head; head++) {
                    attn_tensor values = {0};
                    OK(&ctx,
                       attn_circuit(&ctx, &left, &right, m, layer, head, (attn_circuit_kind)kind));
                    OK(&ctx, attn_singular_values(&ctx, &values, left, right));
                    close_to(values, attn_select(attn_select(want, 0, layer), 0, head), 1e-7,
                             "singular values");
                }
        }
        for (kind = 0; kind < 3; kind++) {
            attn_tensor scores = {0};
            OK(&ctx, attn_composition_scores(&ctx, &scores, m, (attn_composition_kind)kind));
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
    OK(&ctx, attn_singular_values(&ctx, &values, attn_borrow(x, ATTN_F32, attn_shape2(2, 2)),
                                  attn_borrow(one, ATTN_F32, attn_shape2(2, 2))));
    CHECKF(fabs((double)attn_get1(values, 1) / (1.5e-8 * sqrt(0.5)) - 1) < 1e-6, "%g and %g",
           (double)attn_get1(values, 0), (double)attn_get1(values, 1));
    attn_ctx_free(&ctx);
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
        OK(&ctx, attn_singular_values(&ctx, &values, laid_out(left, ATTN_F32, LAYOUT_BACKWARD),
                                      laid_out(right, ATTN_F32, LAYOUT_SWAPPED)));
        close_to(values, want, 1e-7, "singular values");
    }
    CHECK(n == 7);
    pool_clear();
    attn_ctx_free(&ctx);
}

TEST(bad_circuits)
{
    attn_ctx ctx = alone();
    attn_tensor x = {0}, y = random_tensor(2, 3, 4), z = random_tensor(2, 3, 5);
    FAILS(&ctx, ATTN_E_ARGUMENT, "head 4", attn_circuit(&ctx, &x, &x, plain, 0, 4, 0));
    FAILS(&ctx, ATTN_E_ARGUMENT, "kind 2",
          attn_circuit(&ctx, &x, &x, plain, 0, 0, (attn_circuit_kind)2));
    FAILS(&ctx, ATTN_E_ARGUMENT, "layer 2", attn_circuit(&ctx, &x, &x, plain, 2, 0, 0));
    FAILS(&ctx, ATTN_E_SHAPE, "[16, 64]", attn_circuit(&ctx, &x, &y, plain, 0, 0, 0));
    FAILS(&ctx, ATTN_E_SHAPE, "[3, 4] and right [3, 5]", attn_singular_values(&ctx, &x, y, z));
    FAILS(&ctx, ATTN_E_ARGUMENT, "kind 3",
          attn_composition_scores(&ctx, &x, plain, (attn_composition_kind)3));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no model",
          attn_composition_scores(&ctx, &x, NULL, ATTN_COMPOSE_Q));
    CHECK(x.ndim == 0 && ctx.blocks == NULL);
    pool_clear();
    attn_ctx_free(&ctx);
}

/* ---- all of it: on any machine the same bits, and without memory an error ---- */

typedef struct findings {
    attn_tensor all[24];
    int n;
} findings;

static attn_tensor *next_of(findings *f)
{
    return &f->all[f->n++];
}

/* Every function once; stops at the first failure. `made` receives a rewritten model. */
static attn_status find_everything(attn_ctx *ctx, findings *f, attn_model **made)
{
    const attn_tensor tokens = expected(1, "again"), post = expected(1, "post");
    const attn_tensor z = expected(1, "z"), pattern = expected(1, "pattern");
    const int32_t *const ids = ids_of(tokens);
    const size_t n = tokens.shape[0];
    attn_tensor *directions, *left, *right, *keys;
    attn_resid_stack p;
    int i;
    memset(f, 0, sizeof *f);
    memset(&p, 0, sizeof p);
    directions = next_of(f), left = next_of(f), right = next_of(f), keys = next_of(f);
    if (attn_detect_heads(ctx, next_of(f), next_of(f), odd, ids, n) ||
        attn_decompose_resid(ctx, &p, odd, ids, n, ATTN_RESID_HEADS, 3, 3))
        return ctx->status;
    *next_of(f) = p.stack;
    *next_of(f) = p.scale;
    if (attn_logit_directions(ctx, directions, odd, ids, ids + 3, 3) ||
        attn_logit_attrs(ctx, next_of(f), odd, p.stack, p.scale, *directions) ||
        attn_bias_logit_attrs(ctx, next_of(f), odd, *directions) ||
        attn_neuron_logit_attrs(ctx, next_of(f), odd, 1, post, p.scale, *directions) ||
        attn_head_results(ctx, next_of(f), odd, 1, z) ||
        attn_neuron_results(ctx, next_of(f), odd, 1, post, 3, 50) ||
        attn_logit_lens(ctx, next_of(f), odd, p.stack, no_scale, NULL, 0) ||
        attn_logit_lens(ctx, next_of(f), odd, p.stack, p.scale, ids, 5) ||
        attn_pattern_entropy(ctx, next_of(f), pattern) ||
        attn_head_keys(ctx, keys, ATTN_HEAD_INDUCTION, ids, n) ||
        attn_head_score(ctx, next_of(f), pattern, *keys) ||
        attn_circuit(ctx, left, right, odd, 1, 2, ATTN_CIRCUIT_OV) ||
        attn_singular_values(ctx, next_of(f), *left, *right))
        return ctx->status;
    for (i = 0; i < 3; i++)
        if (attn_composition_scores(ctx, next_of(f), odd, (attn_composition_kind)i) != ATTN_OK)
            return ctx->status;
    if (attn_process_weights(ctx, made, odd, 7) != ATTN_OK)
        return ctx->status;
    return attn_model_save(ctx, test_tmp("made.attn"), *made);
}

TEST(same_everywhere)
{
    static const attn_isa_kind kinds[] = {ATTN_ISA_AUTO, ATTN_ISA_AUTO, ATTN_ISA_PORTABLE,
                                          ATTN_ISA_AVX2};
    attn_ctx ctx[4];
    findings f[4];
    int i, k, first = -1;
    for (k = 0; k < 4; k++) {
        attn_model *made = NULL;
        ctx[k] = alone();
        ctx[k].isa = kinds[k];
        ctx[k].n_threads = k == 1 ? 3 : 1;
        if (!attn_isa(&ctx[k]) || strstr(attn_isa(&ctx[k]), "no fused"))
            continue;
        OK(&ctx[k], find_everything(&ctx[k], &f[k], &made));
        attn_model_close(made);
        if (first < 0) {
            first = k;
            CHECK(rename(test_tmp("made.attn"), test_tmp("lens-made-first.attn")) == 0);
            continue;
        }
        CHECK(f[k].n == f[first].n);
        for (i = 0; i < f[first].n; i++)
            same_bits(f[k].all[i], f[first].all[i], "what was found");
        CHECK(test_same_file(test_tmp("made.attn"), test_tmp("lens-made-first.attn")));
    }
    for (k = 0; k < 4; k++)
        attn_ctx_free(&ctx[k]);
    pool_clear();
}

TEST(failing_allocations)
{
    attn_status status = ATTN_E_MEMORY;
    long n;
    for (n = 0; n < 2000 && status != ATTN_OK; n++) {
        meter m;
        attn_ctx ctx = metered(&m);
        attn_model *made = NULL;
        findings f;
        int i;
        ctx.n_threads = 1;
        m.fail_at = n;
        status = find_everything(&ctx, &f, &made);
        CHECKF(status == ATTN_OK || (status == ATTN_E_MEMORY && strstr(ctx.message, "memory")),
               "allocation %ld: %s (%s)", n, attn_status_name(status), ctx.message);
        for (i = 0; i < f.n; i++)
            attn_tensor_free(&ctx, &f.all[i]);
        CHECK(made || status != ATTN_OK);
        attn_model_close(made);
        CHECKF(m.live == 0 && m.wrong == 0, "allocation %ld: %ld blocks leaked", n, m.live);
        attn_ctx_free(&ctx);
    }
    CHECKF(status == ATTN_OK && n > 100, "%s after %ld rounds", attn_status_name(status), n);
    pool_clear();
}

static int poison(const attn_activation *a, void *user)
{
    size_t i;
    (void)user;
    if (a->first <= 5 && a->first + a->value.shape[0] > 5)
        for (i = 0; i < a->value.shape[1]; i++)
            *entry(a->value, 5 - a->first, i, 0) = NAN;
    return 0;
}

TEST(arguments_of_statistics)
{
    attn_ctx ctx = {0};
    attn_session *session = session_on(&ctx, plain, 0, 2);
    const attn_config *c = attn_model_config(plain);
    const size_t C = c->d_model;
    const attn_tensor v = some(1, C, 1, 1), m = some(2, 3, C, 1), wider = some(2, 3, C + 1, 1);
    const attn_tensor pattern = some(3, 2, 4, 4), scale = some(2, 3, 1, 1);
    const attn_tensor post = some(2, 3, c->d_mlp, 1);
    attn_tensor keys = no_tensor;
    attn_token_stats stats[10];
    attn_prediction top[10];
    attn_resid_stack parts;
    int32_t wrong[3] = {0, 1, 2};
    float *before = (float *)pool_new(c->n_vocab * sizeof(float));
    memset(&parts, 0, sizeof parts);
    REFUSED(ATTN_E_ARGUMENT, "logits", attn_logit_stats(&ctx, stats, top, 1, no_tensor, wrong));
    REFUSED(ATTN_E_SHAPE, "logits", attn_logit_stats(&ctx, stats, top, 1, v, wrong));
    REFUSED(ATTN_E_SHAPE, "logits", attn_logit_stats(&ctx, stats, top, 1, some(2, 3, 0, 1), wrong));
    wrong[1] = -1;
    REFUSED(ATTN_E_TOKEN, "-1", attn_logit_stats(&ctx, stats, top, 1, m, wrong));
    wrong[1] = (int32_t)C;
    REFUSED(ATTN_E_TOKEN, "", attn_logit_stats(&ctx, stats, top, 1, m, wrong));
    REFUSED(ATTN_E_ARGUMENT, "pattern", attn_pattern_entropy(&ctx, &not_made, no_tensor));
    REFUSED(ATTN_E_ARGUMENT, "", attn_head_keys(&ctx, &not_made, ATTN_HEAD_PREVIOUS, NULL, 3));
    REFUSED(ATTN_E_ARGUMENT, "", attn_head_keys(&ctx, &not_made, ATTN_HEAD_PREVIOUS, ten, 0));
    REFUSED(ATTN_E_ARGUMENT, "", attn_head_keys(&ctx, &not_made, ATTN_N_HEAD_KINDS, ten, 3));
    ctx.status = ATTN_OK;
    OK(&ctx, attn_head_keys(&ctx, &keys, ATTN_HEAD_PREVIOUS, ten, 4));
    REFUSED(ATTN_E_ARGUMENT, "pattern", attn_head_score(&ctx, &not_made, no_tensor, keys));
    REFUSED(ATTN_E_ARGUMENT, "keys", attn_head_score(&ctx, &not_made, pattern, no_tensor));
    REFUSED(ATTN_E_SHAPE, "attn_head_score", attn_head_score(&ctx, &not_made, m, keys));
    REFUSED(ATTN_E_SHAPE, "attn_head_score", attn_head_score(&ctx, &not_made, pattern, v));
    REFUSED(ATTN_E_SHAPE, "attn_head_score",
            attn_head_score(&ctx, &not_made, pattern, attn_slice(keys, 0, 0, 3)));
    REFUSED(ATTN_E_SHAPE, "attn_head_score",
            attn_head_score(&ctx, &not_made, pattern, attn_slice(keys, 1, 0, 3)));

    REFUSED(ATTN_E_ARGUMENT, "no place for the parts",
            attn_decompose_resid(&ctx, NULL, plain, ten, 4, ATTN_RESID_HEADS, 0, 0));
    REFUSED(ATTN_E_ARGUMENT, "is not an attn_resid_kind",
            attn_decompose_resid(&ctx, &parts, plain, ten, 4, (attn_resid_kind)9, 0, 0));
    CHECK(attn_neuron_results(&ctx, &not_made, NULL, 0, post, 0, 1) != ATTN_OK &&
          not_made.ndim == 0);
    REFUSED(ATTN_E_ARGUMENT, "neurons from",
            attn_neuron_results(&ctx, &not_made, plain, 0, post, c->d_mlp + 1, 0));
    REFUSED(ATTN_E_ARGUMENT, "neurons from",
            attn_neuron_results(&ctx, &not_made, plain, 0, post, 1, c->d_mlp));
    REFUSED(ATTN_E_ARGUMENT, "post",
            attn_neuron_results(&ctx, &not_made, plain, 0, no_tensor, 0, 1));
    CHECK(attn_logit_directions(&ctx, &not_made, NULL, ten, NULL, 2) != ATTN_OK &&
          not_made.ndim == 0);
    CHECK(attn_logit_directions(&ctx, &not_made, plain, NULL, NULL, 2) != ATTN_OK &&
          not_made.ndim == 0);
    CHECK(attn_logit_directions(&ctx, &not_made, plain, ten, NULL, 0) != ATTN_OK &&
          not_made.ndim == 0);
    CHECK(attn_logit_attrs(&ctx, &not_made, NULL, m, no_tensor, m) != ATTN_OK &&
          not_made.ndim == 0);
    REFUSED(ATTN_E_ARGUMENT, "directions",
            attn_logit_attrs(&ctx, &not_made, plain, m, scale, no_tensor));
    REFUSED(ATTN_E_SHAPE, "", attn_logit_attrs(&ctx, &not_made, plain, m, scale, v));
    REFUSED(ATTN_E_SHAPE, "", attn_logit_attrs(&ctx, &not_made, plain, m, scale, wider));
    REFUSED(ATTN_E_SHAPE, "", attn_logit_attrs(&ctx, &not_made, plain, v, scale, m));
    REFUSED(ATTN_E_SHAPE, "", attn_logit_attrs(&ctx, &not_made, plain, wider, scale, m));
    CHECK(attn_neuron_logit_attrs(&ctx, &not_made, NULL, 0, post, scale, m) != ATTN_OK);
    REFUSED(ATTN_E_SHAPE, "", attn_neuron_logit_attrs(&ctx, &not_made, plain, 0, post, v, m));
    CHECK(attn_bias_logit_attrs(&ctx, &not_made, NULL, m) != ATTN_OK);
    REFUSED(ATTN_E_ARGUMENT, "resid",
            attn_logit_lens(&ctx, &not_made, plain, no_tensor, no_tensor, NULL, 0));
    REFUSED(ATTN_E_SHAPE, "resid has shape",
            attn_logit_lens(&ctx, &not_made, plain, v, no_tensor, NULL, 0));
    REFUSED(ATTN_E_SHAPE, "resid has shape",
            attn_logit_lens(&ctx, &not_made, plain, wider, no_tensor, NULL, 0));
    REFUSED(ATTN_E_ARGUMENT, "left", attn_singular_values(&ctx, &not_made, no_tensor, m));
    REFUSED(ATTN_E_ARGUMENT, "right", attn_singular_values(&ctx, &not_made, m, no_tensor));
    REFUSED(ATTN_E_SHAPE, "expected [m, r]", attn_singular_values(&ctx, &not_made, v, m));
    REFUSED(ATTN_E_SHAPE, "expected [m, r]", attn_singular_values(&ctx, &not_made, m, v));
    REFUSED(ATTN_E_SHAPE, "expected [m, r]", attn_singular_values(&ctx, &not_made, m, m));
    {
        attn_tensor tall = attn_borrow(before, ATTN_F32, attn_shape2(1, 1));
        tall.shape[0] = SIZE_MAX / 8;
        tall.stride[0] = tall.stride[1] = 0;
        REFUSED(ATTN_E_MEMORY, "no room in memory as doubles",
                attn_singular_values(&ctx, &not_made, tall, attn_slice(scale, 0, 0, 1)));
        tall.shape[0] = SIZE_MAX / 16;
        tall.shape[1] = 64;
        REFUSED(ATTN_E_MEMORY, "no room in memory as doubles",
                attn_singular_values(&ctx, &not_made, tall, some(2, 64, 1, 1)));
        tall.shape[0] = SIZE_MAX / 256;
        REFUSED(ATTN_E_MEMORY, "no room in memory as doubles",
                attn_singular_values(&ctx, &not_made, tall, some(2, 64, 1, 1)));
    }

    /* a text whose logits are no numbers leaves the session as it was */
    ctx.status = ATTN_OK;
    OK(&ctx, attn_feed(&ctx, session, ten, 2));
    memcpy(before, attn_logits(session), c->n_vocab * sizeof(float));
    OK(&ctx, attn_hook(&ctx, NULL, session, "ln_final.hook_normalized.post", poison, NULL));
    REFUSED(ATTN_E_ARGUMENT, "the logits at position 5 hold a NaN",
            attn_score(&ctx, stats, top, 1, session, ten + 2, 6));
    CHECK(attn_logits(session) && !differ(before, attn_logits(session), c->n_vocab));
    attn_unhook_all(session);
    ctx.status = ATTN_OK;
    OK(&ctx, attn_score(&ctx, stats, NULL, 0, session, ten + 2, 6));
    OK(&ctx, attn_truncate(&ctx, session, 2));
    OK(&ctx, attn_score(&ctx, NULL, top, 1, session, ten + 2, 6));
    attn_session_free(session);
    done(&ctx);
}

/* Scores alone, entropies alone, and places of the wrong shape for either. */
TEST(heads_of_a_text)
{
    attn_ctx ctx = {0};
    attn_tensor e = no_tensor, s = no_tensor, e2 = no_tensor, s2 = no_tensor;
    FAILS(&ctx, ATTN_E_CONTEXT, "n_ctx is", /* before a token is looked at */
          attn_detect_heads(&ctx, &e, &s, plain, ten, SIZE_MAX));
    OK(&ctx, attn_detect_heads(&ctx, &e, &s, plain, ten, 8));
    OK(&ctx, attn_detect_heads(&ctx, &e2, NULL, plain, ten, 8));
    OK(&ctx, attn_detect_heads(&ctx, NULL, &s2, plain, ten, 8));
    CHECK(same_bits(e2, e, "entropies alone") && same_bits(s2, s, "scores alone"));
    e2 = no_tensor;
    s2 = some(2, 3, 3, 1);
    FAILS(&ctx, ATTN_E_SHAPE, "", attn_detect_heads(&ctx, &e2, &s2, plain, ten, 8));
    CHECK(e2.ndim == 0);
    e2 = some(2, 3, 3, 1);
    s2 = no_tensor;
    FAILS(&ctx, ATTN_E_SHAPE, "", attn_detect_heads(&ctx, &e2, &s2, plain, ten, 8));
    CHECK(s2.ndim == 0);
    done(&ctx);
}

/* Positions beyond the first batch of a long text are the same alone as among all. */
TEST(positions_of_a_long_text)
{
    attn_ctx ctx = {0};
    attn_model *longer = NULL;
    attn_resid_stack all, some_of;
    int32_t *tokens;
    size_t i;
    memset(&all, 0, sizeof all);
    memset(&some_of, 0, sizeof some_of);
    if (!OK(&ctx, attn_model_open(&ctx, &longer, TEST_BUILD "/fuzz/long.attn", NULL)))
        return;
    tokens = random_tokens(longer, 520, 5);
    OK(&ctx, attn_decompose_resid(&ctx, &all, longer, tokens, 520, ATTN_RESID_HEADS, 0, 0));
    for (i = 0; i < 3; i++) {
        static const size_t first[] = {0, 250, 400}, count[] = {10, 20, 30};
        OK(&ctx, attn_decompose_resid(&ctx, &some_of, longer, tokens, 520, ATTN_RESID_HEADS,
                                      first[i], count[i]));
        CHECK(same_bits(some_of.stack, attn_slice(all.stack, 1, first[i], count[i]), "parts"));
        CHECK(same_bits(some_of.scale, attn_slice(all.scale, 0, first[i], count[i]), "scales"));
        attn_tensor_free(&ctx, &some_of.stack);
        attn_tensor_free(&ctx, &some_of.scale);
    }
    attn_model_close(longer);
    done(&ctx);
}
