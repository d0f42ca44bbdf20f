/* tools/lens/gradients.h, pairs.h, edges.h, sae.h, qk.h and steering.h against PyTorch's autograd and the formulas in
 * float64 (makers/make_gradient_fixtures.py), and their rules: gradients of every activation, of every
 * kind of metric, with the same bits everywhere. */
#define FIXTURE_FILE "tests/fixtures/gradients.bin"
#include "tests/support/refused.h"
#include "tests/support/patches.h"
#include "tools/lens/edges.h"
#include "tools/lens/qk.h"
#include "tools/lens/sae.h"
#include "tools/lens/steering.h"
#include "tests/support/shared_models.h"

SUITE_WITH_MODELS("narrow plain");

static attn_tensor wanted(const char *prefix, const char *name)
{
    attn_tensor t;
    CHECKF(fixture(&t, "%s.%s", prefix, name), "no fixture %s.%s", prefix, name);
    return t;
}

/* The metrics of makers/make_gradient_fixtures.py. */
static lens_gradients_desc asked(attn_tensor tokens, int n_vocab)
{
    const int32_t *ids = (const int32_t *)tokens.data;
    lens_gradients_desc d = {.tokens = ids,
                             .n_tokens = tokens.shape[0],
                             .names = every_name,
                             .n_names = N_EVERY_NAME,
                             .metric.kind = LENS_METRIC_LOGIT_DIFF,
                             .metric.token = (ids[0] + 1) % n_vocab};
    d.metric.against = (ids[d.n_tokens - 1] + 3) % n_vocab;
    return d;
}

static attn_record *gradients_of(attn_ctx *ctx, const attn_model *model, float *value,
                                 const lens_gradients_desc *desc)
{
    lens_backward b = ATTN_ZERO;
    attn_record *made = NULL;
    if (OK(ctx, lens_backward_new(ctx, &b, model)))
        OK(ctx, lens_gradients(ctx, &made, value, &b, desc));
    lens_backward_free(ctx, &b);
    return made;
}

/* Gives how many of the gradients are in the fixtures, and compares them. */
static int compare_gradients(attn_ctx *ctx, const attn_record *made, float value,
                             const char *prefix)
{
    const attn_tensor v = wanted(prefix, "value");
    int n = 0;
    if (!made || v.ndim == 0)
        return 0;
    CHECKF(fabs((double)value - value_of(v, 0)) < 2e-5, "%s: the value is %g, expected %g", prefix,
           (double)value, value_of(v, 0));
    for (size_t i = 0; i < attn_record_n_activations(made); i++) {
        const char *name = attn_record_name(made, i);
        attn_tensor want, got = no_tensor;
        if (!fixture(&want, "%s.%s", prefix, name))
            continue;
        OK(ctx, attn_record_get(ctx, &got, made, name));
        close_to(got, want, 1e-5, name);
        n++;
    }
    return n;
}

static int check_gradients(const attn_model *model, const char *prefix,
                           const lens_gradients_desc *desc)
{
    attn_ctx ctx = alone();
    float value = NAN;
    attn_record *made = gradients_of(&ctx, model, &value, desc);
    const int n = compare_gradients(&ctx, made, value, prefix);
    attn_record_free(made);
    done(&ctx);
    return n;
}

TEST(every_activation)
{
    const attn_tensor tokens = wanted("narrow", "tokens");
    const lens_gradients_desc d = asked(tokens, 43);
    SCOPED_CTX ctx = alone();
    SCOPED_RECORD made = gradients_of(&ctx, narrow, NULL, &d);
    const int n = check_gradients(narrow, "logit", &d);
    if (made)
        EQUAL(n, attn_record_n_activations(made)); /* PyTorch has each of them */
    CHECK(n > 3 * 25);
}

/* Relatives of GPT-2: other activation functions, and scores that are scaled in other ways. */
TEST(other_configurations)
{
    static const char *const variants[][2] = {
        {"erf", "\"activation_function\": \"gelu\", \"scale_attn_by_inverse_layer_idx\": true"},
        {"relu", "\"activation_function\": \"relu\""},
        {"silu", "\"activation_function\": \"silu\", \"scale_attn_weights\": false"}};
    const attn_tensor tokens = wanted("narrow", "tokens");
    const lens_gradients_desc d = asked(tokens, 43);
    for (size_t i = 0; i < 3; i++) {
        attn_model *model;
        const char *const directory = test_text("%s", test_tmp(variants[i][0]));
        const char *const command =
            test_text("rm -rf %s && mkdir %s && cp tests/golden/narrow/model.safetensors %s && "
                      "sed 's/\"activation_function\": \"gelu_new\"/%s/' "
                      "tests/golden/narrow/config.json >%s/config.json",
                      directory, directory, directory, variants[i][1], directory);
        if (!CHECKF(system(command) == 0, "%s failed", command))
            return;
        if ((model = converted(directory, test_text("%s.attn", variants[i][0]),
                               "--dtype f32 --no-tokenizer")) == NULL)
            return;
        EQUAL(check_gradients(model, variants[i][0], &d), 4);
        attn_model_close(model);
    }
}

TEST(losses_and_log_probabilities)
{
    const attn_tensor tokens = wanted("plain", "tokens");
    lens_gradients_desc d = asked(tokens, 97);
    const int32_t token = d.metric.token;
    memset(&d.metric, 0, sizeof d.metric); /* the loss */
    EQUAL(check_gradients(plain, "loss", &d), 4);
    d.metric.kind = LENS_METRIC_LOG_PROB;
    d.metric.token = token;
    d.metric.from_end = d.n_tokens - 1 - d.n_tokens / 2;
    EQUAL(check_gradients(plain, "log-prob", &d), 4);
}

/* Every number of both is the same. */
static void same_records(attn_ctx *ctx, const attn_record *got, const attn_record *want,
                         const char *what)
{
    if (!got || !want || !CHECK(attn_record_n_activations(got) == attn_record_n_activations(want)))
        return;
    for (size_t i = 0; i < attn_record_n_activations(want); i++) {
        attn_tensor a = no_tensor, b = no_tensor;
        OK(ctx, attn_record_get(ctx, &a, got, attn_record_name(want, i)));
        OK(ctx, attn_record_get(ctx, &b, want, attn_record_name(want, i)));
        same_bits(a, b, what);
    }
}

/* The metric of lens_gradients, as a function of the caller's. */
static int difference(float *value, attn_tensor d_logits, attn_tensor logits, void *user)
{
    const lens_metric *m = (const lens_metric *)user;
    const size_t last = logits.shape[0] - 1;
    *value =
        attn_get2(logits, last, (size_t)m->token) - attn_get2(logits, last, (size_t)m->against);
    *entry(d_logits, last, (size_t)m->token, 0) = 1;
    *entry(d_logits, last, (size_t)m->against, 0) = -1;
    return 0;
}

static int stop(float *value, attn_tensor d_logits, attn_tensor logits, void *user)
{
    (void)value, (void)d_logits, (void)logits, (void)user;
    return 1;
}

TEST(a_metric_of_the_callers)
{
    SCOPED_CTX ctx = alone();
    lens_gradients_desc d = asked(wanted("narrow", "tokens"), 43), own = d;
    float value, own_value;
    SCOPED_RECORD want = gradients_of(&ctx, narrow, &value, &d);
    memset(&own.metric, 0, sizeof own.metric);
    own.metric.kind = LENS_METRIC_FUNCTION;
    own.metric.fn = difference;
    own.metric.user = &d.metric;
    SCOPED_RECORD got = gradients_of(&ctx, narrow, &own_value, &own);
    EQUAL(own_value, value);
    same_records(&ctx, got, want, "a function of the caller's");
}

/* A stream in place of the embeddings, and a context that is used again. */
TEST(from_a_stream)
{
    static const char *const names[] = {"blocks.0.hook_resid_pre"};
    SCOPED_CTX ctx = alone();
    lens_gradients_desc d = asked(wanted("narrow", "tokens"), 43);
    attn_tensor stream = no_tensor, a = no_tensor, b = no_tensor;
    SCOPED_RECORD record = NULL;
    SCOPED_SESSION session = session_on(&ctx, narrow, 0, 0);
    attn_record_desc what = ATTN_ZERO;
    d.names = what.names = names;
    d.n_names = what.n_names = 1;
    OK(&ctx, attn_record_new(&ctx, &record, session, &what));
    OK(&ctx, attn_feed(&ctx, session, d.tokens, d.n_tokens));
    OK(&ctx, attn_record_get(&ctx, &stream, record, names[0]));
    SCOPED_RECORD want = gradients_of(&ctx, narrow, NULL, &d);
    d.resid = (const float *)stream.data;
    SCOPED_RECORD got = gradients_of(&ctx, narrow, NULL, &d);
    OK(&ctx, attn_record_get(&ctx, &a, got, names[0]));
    OK(&ctx, attn_record_get(&ctx, &b, want, names[0]));
    same_bits(a, b, "a stream");
}

/* A field that nobody set counts for nothing. */
TEST(a_zeroed_metric)
{
    float logits[] = {3, 1, 5, 2}, value = NAN;
    const int32_t tokens[] = {2};
    const attn_tensor row = attn_borrow(logits, ATTN_F32, attn_shape2(1, 4));
    SCOPED_CTX ctx = alone();
    lens_metric m = ATTN_ZERO;
    FAILS(ARGUMENT, "no position", lens_metric_value(&ctx, &value, row, &m, tokens));
    m.token = 2;
    FAILS(ARGUMENT, "token is set", lens_metric_value(&ctx, &value, row, &m, tokens));
    m.kind = LENS_METRIC_LOGIT;
    OK(&ctx, lens_metric_value(&ctx, &value, row, &m, tokens));
    EQUAL(value, 5);
    m.kind = LENS_METRIC_LOGIT_DIFF;
    OK(&ctx, lens_metric_value(&ctx, &value, row, &m, tokens));
    EQUAL(value, 5 - 3);
}

TEST(bad_gradients)
{
    const attn_tensor tokens = wanted("narrow", "tokens");
    const lens_gradients_desc good = asked(tokens, 43);
    static const char *const wrong[] = {"blocks.0.attn.hook_zz"};
    int32_t none[9] = {-1, -1, -1, -1, -1, -1, -1, -1, -1};
    SCOPED_CTX ctx = alone();
    lens_backward b = ATTN_ZERO;
    attn_record *made = NULL;
    lens_gradients_desc d = good;
    FAILS(ARGUMENT, "no model", lens_backward_new(&ctx, &b, NULL));
    FAILS(ARGUMENT, "lens_backward_new", lens_gradients(&ctx, &made, NULL, &b, &d));
    OK(&ctx, lens_backward_new(&ctx, &b, narrow));
#define WRONG(status, text, change)                                                                \
    d = good;                                                                                      \
    change;                                                                                        \
    FAILS_IN(&ctx, status, text, lens_gradients(&ctx, &made, NULL, &b, &d));                       \
    CHECK(made == NULL)
    WRONG(ATTN_E_ARGUMENT, "no tokens", d.n_tokens = 0);
    WRONG(ATTN_E_CONTEXT, "n_ctx", d.n_tokens = 25);
    WRONG(ATTN_E_TOKEN, "token is 43", d.metric.token = 43);
    WRONG(ATTN_E_TOKEN, "against is -2", d.metric.against = -2);
    WRONG(ATTN_E_ARGUMENT, "9 from the end", d.metric.from_end = 9);
    WRONG(ATTN_E_ARGUMENT, "kind 6", d.metric.kind = (lens_metric_kind)6);
    WRONG(ATTN_E_ARGUMENT, "against is set, but its kind LENS_METRIC_LOG_PROB",
          d.metric.kind = LENS_METRIC_LOG_PROB);
    WRONG(ATTN_E_ARGUMENT, "token is set, but its kind LENS_METRIC_LOSS",
          d.metric.kind = LENS_METRIC_LOSS);
    WRONG(ATTN_E_ARGUMENT, "fn is set, but its kind LENS_METRIC_LOGIT_DIFF", d.metric.fn = stop);
    WRONG(ATTN_E_ARGUMENT, "targets is set, but", d.metric.targets = none);
#define ZEROED memset(&d.metric, 0, sizeof d.metric)
    WRONG(ATTN_E_ARGUMENT, "no function", ZEROED; d.metric.kind = LENS_METRIC_FUNCTION);
    WRONG(ATTN_E_ARGUMENT, "from_end is set, but its kind LENS_METRIC_FUNCTION does", ZEROED;
          d.metric.kind = LENS_METRIC_FUNCTION; d.metric.from_end = 1);
    WRONG(ATTN_E_ARGUMENT, "no position", ZEROED; d.metric.targets = none);
    none[3] = 43;
    WRONG(ATTN_E_TOKEN, "a target is 43", ZEROED; d.metric.targets = none);
    WRONG(ATTN_E_NAME, "hook_z", d.names = wrong; d.n_names = 1);
    d = good;
    ZEROED;
    d.metric.kind = LENS_METRIC_FUNCTION;
    d.metric.fn = stop;
    ctx.status = ATTN_OK;
    STOPS(&ctx, lens_gradients(&ctx, &made, NULL, &b, &d));
    CHECK(made == NULL);
    lens_backward_free(&ctx, &b);
}

/* ---- pairs of texts ---- */

static lens_pair two_texts(void)
{
    const attn_tensor clean = wanted("narrow", "tokens"), corrupted = wanted("narrow", "corrupted");
    lens_pair pair = {.clean = (const int32_t *)clean.data,
                      .corrupted = (const int32_t *)corrupted.data,
                      .n_tokens = clean.shape[0],
                      .metric = asked(clean, 43).metric};
    return pair;
}

TEST(attribution_patching)
{
    static const char *const names[] = {"hook_resid_pre", "hook_mlp_out", "attn.hook_z",
                                        "attn.hook_pattern"};
    const lens_pair pair = two_texts();
    SCOPED_CTX ctx = alone();
    lens_backward b = ATTN_ZERO;
    OK(&ctx, lens_backward_new(&ctx, &b, narrow));
    for (size_t i = 0; i < 4; i++) {
        attn_tensor got = no_tensor;
        OK(&ctx, lens_attribution_patch(&ctx, &got, &b, &pair, names[i]));
        close_to(got, wanted("patch", names[i]), 1e-5, names[i]);
    }
    REFUSED(ARGUMENT, "hook_pattern",
            lens_attribution_patch(&ctx, &not_made, &b, &pair, "attn.hook_attn_scores"));
    REFUSED(NAME, "hook_zz", lens_attribution_patch(&ctx, &not_made, &b, &pair, "attn.hook_zz"));
    REFUSED(ARGUMENT, "plain name", lens_attribution_patch(&ctx, &not_made, &b, &pair, "attn.*"));
    REFUSED(ARGUMENT, "no pair", lens_attribution_patch(&ctx, &not_made, &b, NULL, "attn.hook_z"));
    lens_backward_free(&ctx, &b);
}

TEST(edge_scores)
{
    const lens_pair pair = two_texts();
    const lens_graph g = lens_graph_of(narrow);
    SCOPED_CTX ctx = alone();
    lens_backward b = ATTN_ZERO;
    attn_tensor one = no_tensor, three = no_tensor, twice = no_tensor;
    const lens_pair pairs[] = {pair, pair};
    OK(&ctx, lens_backward_new(&ctx, &b, narrow));
    OK(&ctx, lens_edge_scores(&ctx, &one, &b, &pair, 1, 1));
    OK(&ctx, lens_edge_scores(&ctx, &three, &b, &pair, 1, 3));
    OK(&ctx, lens_edge_scores(&ctx, &twice, &b, pairs, 2, 1));
    close_to(one, wanted("eap", "1"), 1e-5, "EAP");
    close_to(three, wanted("eap", "3"), 1e-5, "EAP-IG");
    close_to(twice, one, 1e-6, "the mean over pairs");
    EQUAL(g.n_senders, one.shape[0]);
    EQUAL(g.n_receivers, one.shape[1]);
    CHECK(strcmp(lens_sender_name(&g, 0).text, "input") == 0);
    CHECK(strcmp(lens_sender_name(&g, 6 + 3).text, "a1.h3") == 0);
    CHECK(strcmp(lens_sender_name(&g, 15).text, "m2") == 0);
    CHECK(strcmp(lens_receiver_name(&g, 13 + 4).text, "a1.h0<k>") == 0);
    CHECK(strcmp(lens_receiver_name(&g, 12).text, "m0") == 0);
    CHECK(strcmp(lens_receiver_name(&g, 39).text, "logits") == 0);
    REFUSED(ARGUMENT, "no pairs", lens_edge_scores(&ctx, &not_made, &b, &pair, 0, 1));
    REFUSED(ARGUMENT, "no pair", lens_edge_scores(&ctx, &not_made, &b, NULL, 1, 1));
    lens_backward_free(&ctx, &b);
}

/* The metric of one of the texts as it is. */
static float metric_of(attn_ctx *ctx, const lens_pair *pair, const int32_t *tokens)
{
    const float *logits = logits_of(ctx, narrow, 0, tokens, pair->n_tokens, pair->n_tokens);
    const float *last = logits + (pair->n_tokens - 1) * 43;
    return last[pair->metric.token] - last[pair->metric.against];
}

/* Which edges of `kept` lead to or from a head, all of its own, are set to `value`. */
static void set_edges(attn_tensor kept, size_t sender, float value)
{
    for (size_t i = 0; i < kept.shape[1]; i++)
        *entry(kept, sender, i, 0) = value;
}

TEST(circuits_of_edges)
{
    const lens_pair pair = two_texts();
    const lens_graph g = lens_graph_of(narrow);
    SCOPED_CTX ctx = alone();
    lens_backward b = ATTN_ZERO;
    attn_tensor scores = no_tensor, all = no_tensor, some_of_them = no_tensor, patched = no_tensor;
    float value = 0;
    size_t n = 0;
    OK(&ctx, lens_backward_new(&ctx, &b, narrow));
    OK(&ctx, lens_edge_scores(&ctx, &scores, &b, &pair, 1, 1));
    OK(&ctx, lens_best_edges(&ctx, &all, narrow, scores, g.n_edges));
    OK(&ctx, lens_run_edges(&ctx, &value, &b, &pair, all));
    float want = metric_of(&ctx, &pair, pair.clean);
    CHECKF(fabs((double)(value - want)) < 1e-4, "all edges: %g, not %g", (double)value,
           (double)want);
    OK(&ctx, lens_best_edges(&ctx, &some_of_them, narrow, scores, 0));
    OK(&ctx, lens_run_edges(&ctx, &value, &b, &pair, some_of_them));
    want = metric_of(&ctx, &pair, pair.corrupted);
    CHECKF(fabs((double)(value - want)) < 1e-4, "no edge: %g, not %g", (double)value, (double)want);
    OK(&ctx, lens_best_edges(&ctx, &some_of_them, narrow, scores, 7));
    for (size_t i = 0; i < attn_count(some_of_them); i++)
        n += value_of(some_of_them, i) > 0;
    EQUAL(n, 7);

    /* without the edges of one head the clean text has that head's corrupted result: patching the
     * other way round */
    lens_pair texts = {.clean = pair.corrupted,
                       .corrupted = pair.clean,
                       .n_tokens = pair.n_tokens,
                       .metric = pair.metric};
    OK(&ctx, patch_heads(&ctx, &patched, NULL, narrow, &texts, "attn.hook_z"));
    for (size_t i = 0; i < g.n_layer * g.n_head; i++) {
        const size_t sender = lens_senders_before(&g, i / g.n_head, 0) + i % g.n_head;
        set_edges(all, sender, 0);
        OK(&ctx, lens_run_edges(&ctx, &value, &b, &pair, all));
        set_edges(all, sender, 1);
        want = attn_get2(patched, i / g.n_head, i % g.n_head);
        CHECKF(fabs((double)(value - want)) < 1e-4, "head %d: %g, not %g", (int)i, (double)value,
               (double)want);
    }
    FAILS(SHAPE, "expected [16, 40]", lens_run_edges(&ctx, &value, &b, &pair, patched));
    REFUSED(SHAPE, "expected [16, 40]", lens_best_edges(&ctx, &not_made, narrow, patched, 3));
    ((float *)all.data)[0] = NAN;
    REFUSED(ARGUMENT, "the score of the edge input->",
            lens_best_edges(&ctx, &not_made, narrow, all, 3));
    lens_backward_free(&ctx, &b);
}

/* ---- in a changed model ---- */

enum { MOST_EDITS = 20 };

/* The edits EDITED of the fixtures' maker, whose values are fixtures. */
typedef struct edit_list {
    const char *name;
    attn_edit edits[MOST_EDITS];
    size_t n;
    float factors[MOST_EDITS]; /* of the fixtures; 0: 1 */
} edit_list;

static const edit_list edit_lists[] = {
    {"edited.stream",
     {{"blocks.0.attn.hook_z", ATTN_EDIT_ZERO, 0, 0, 1, 1, {0}, {0}},
      {"blocks.1.hook_resid_pre", ATTN_EDIT_SET, 2, 2, 0, 0, {0}, {0}},
      {"blocks.1.hook_mlp_out", ATTN_EDIT_ADD, 0, 0, 0, 0, {0}, {0}},
      {"blocks.0.mlp.hook_post", ATTN_EDIT_SCALE, 0, 0, 0, 0, {0}, {0}},
      {"blocks.1.attn.hook_pattern", ATTN_EDIT_ZERO, 4, 2, 2, 1, {0}, {0}},
      {"blocks.0.hook_attn_out", ATTN_EDIT_MEAN, 5, 1, 0, 0, {0}, {0}},
      {"blocks.2.attn.hook_k", ATTN_EDIT_SCALE, 0, 0, 1, 2, {0}, {0}},
      {"blocks.2.attn.hook_v", ATTN_EDIT_SCALE, 0, 0, 0, 0, {0}, {0}},
      {"blocks.2.ln2.hook_scale", ATTN_EDIT_SET, 1, 1, 0, 0, {0}, {0}},
      {"ln_final.hook_scale", ATTN_EDIT_SCALE, 0, 0, 0, 0, {0}, {0}},
      {"blocks.0.ln1.hook_normalized.pre", ATTN_EDIT_ADD, 3, 1, 0, 0, {0}, {0}},
      {"blocks.0.ln1.hook_scale", ATTN_EDIT_ADD, 0, 0, 0, 0, {0}, {0}},
      {"blocks.1.ln1.hook_normalized.pre", ATTN_EDIT_SCALE, 0, 0, 0, 0, {0}, {0}},
      {"blocks.1.ln1.hook_normalized.post", ATTN_EDIT_ZERO, 0, 2, 0, 0, {0}, {0}},
      {"blocks.2.hook_resid_mid", ATTN_EDIT_SCALE, 6, 1, 0, 0, {0}, {0}},
      {"blocks.1.attn.hook_attn_scores", ATTN_EDIT_SET, 0, 0, 3, 1, {0}, {0}},
      {"hook_embed", ATTN_EDIT_SCALE, 0, 0, 0, 0, {0}, {0}},
      {"*.attn.hook_q", ATTN_EDIT_SCALE, 2, 5, 0, 0, {0}, {0}}},
     18,
     {[2] = 0.7f, [11] = 0.3f}},
    {"edited.copies",
     {{"blocks.1.attn.hook_result", ATTN_EDIT_ZERO, 0, 0, 0, 1, {0}, {0}},
      {"blocks.0.attn.hook_result", ATTN_EDIT_SCALE, 0, 0, 2, 1, {0}, {0}},
      {"blocks.2.hook_q_input", ATTN_EDIT_SET, 3, 4, 1, 1, {0}, {0}},
      {"*.hook_v_input", ATTN_EDIT_SCALE, 0, 0, 0, 0, {0}, {0}},
      {"blocks.2.hook_attn_in", ATTN_EDIT_ADD, 0, 0, 2, 2, {0}, {0}},
      {"blocks.0.hook_mlp_in", ATTN_EDIT_ZERO, 4, 1, 0, 0, {0}, {0}},
      {"blocks.1.hook_mlp_in", ATTN_EDIT_SCALE, 0, 0, 0, 0, {0}, {0}},
      {"blocks.1.hook_attn_in", ATTN_EDIT_SCALE, 5, 2, 3, 1, {0}, {0}},
      {"blocks.0.attn.hook_z", ATTN_EDIT_ZERO, 0, 0, 1, 1, {0}, {0}},
      {"blocks.2.ln2.hook_normalized.pre", ATTN_EDIT_SCALE, 0, 0, 0, 0, {0}, {0}}},
     10,
     {0}},
    {"edited.paths",
     {{"blocks.0.attn.hook_z", ATTN_EDIT_ZERO, 0, 0, 1, 1, {0}, {0}},
      {"blocks.1.hook_q_input", ATTN_EDIT_SCALE, 0, 0, 2, 1, {0}, {0}},
      {"blocks.2.hook_mlp_in", ATTN_EDIT_SET, 3, 1, 0, 0, {0}, {0}},
      {"blocks.1.attn.hook_result", ATTN_EDIT_SCALE, 0, 0, 3, 1, {0}, {0}},
      {"blocks.0.hook_mlp_out", ATTN_EDIT_SCALE, 0, 0, 0, 0, {0}, {0}},
      {"blocks.1.hook_resid_mid", ATTN_EDIT_ADD, 0, 0, 0, 0, {0}, {0}},
      {"blocks.2.attn.hook_pattern", ATTN_EDIT_ZERO, 2, 3, 0, 1, {0}, {0}},
      {"blocks.0.hook_resid_pre", ATTN_EDIT_SCALE, 0, 0, 0, 0, {0}, {0}}},
     8,
     {0}}};
enum { N_LISTS = sizeof edit_lists / sizeof edit_lists[0], STREAM = 0, PATHS = 2 };

/* A copy of x times a factor, in the pool. */
static attn_tensor scaled(attn_tensor x, float factor)
{
    const attn_tensor y = new_tensor(ATTN_F32, x.ndim, x.shape, LAYOUT_DENSE);
    for (size_t i = 0; i < count_of(x); i++)
        set_value(y, i, (float)value_of(x, i) * factor);
    return y;
}

static edit_list edits_of(int which)
{
    edit_list list = edit_lists[which];
    for (size_t i = 0; i < list.n; i++)
        if (list.edits[i].kind != ATTN_EDIT_ZERO) {
            const int found = fixture(&list.edits[i].value, "%s.%d", list.name, (int)i);
            CHECKF(found, "no fixture %s.%d", list.name, (int)i);
            if (list.factors[i] != 0)
                list.edits[i].value = scaled(list.edits[i].value, list.factors[i]);
        }
    return list;
}

/* Backward passes in the changed model; list must outlive them. */
static lens_backward changed_backward(attn_ctx *ctx, const edit_list *list)
{
    lens_backward b = ATTN_ZERO;
    OK(ctx, lens_backward_new(ctx, &b, narrow));
    b.edits = list->edits;
    b.n_edits = list->n;
    return b;
}

TEST(under_edits)
{
    static const int least[] = {14, 14, 14};
    const lens_gradients_desc d = asked(wanted("narrow", "tokens"), 43);
    for (int i = 0; i < N_LISTS; i++) {
        attn_ctx ctx = alone();
        const edit_list list = edits_of(i);
        lens_backward b = changed_backward(&ctx, &list);
        attn_record *made = NULL;
        float value = NAN;
        OK(&ctx, lens_gradients(&ctx, &made, &value, &b, &d));
        CHECKF(compare_gradients(&ctx, made, value, list.name) >= least[i], "few of %s", list.name);
        attn_record_free(made);
        lens_backward_free(&ctx, &b);
        done(&ctx);
    }
}

/* The metric with a multiple of `direction` added to an activation, behind all edits. */
static double metric_at(attn_ctx *ctx, edit_list list, const char *name, attn_tensor direction,
                        float step)
{
    const attn_tensor tokens = wanted("narrow", "tokens");
    const lens_gradients_desc d = asked(tokens, 43);
    lens_backward b = ATTN_ZERO;
    attn_record *record = NULL;
    attn_edit *e = &list.edits[list.n++];
    float value = NAN;
    memset(e, 0, sizeof *e);
    e->name = name;
    e->kind = ATTN_EDIT_ADD;
    e->value = scaled(direction, step);
    b = changed_backward(ctx, &list);
    OK(ctx, lens_record_metric(ctx, &record, &value, &b, &d));
    attn_record_free(record);
    lens_backward_free(ctx, &b);
    return (double)value;
}

/* Along a random direction, (metric(x + h) - metric(x - h)) / 2h is the product with the gradient. */
TEST(finite_differences_under_edits)
{
    static const char *const names[] = {
        "blocks.0.hook_resid_pre",   "blocks.0.attn.hook_v",  "blocks.0.attn.hook_pattern",
        "blocks.1.mlp.hook_pre",     "blocks.1.attn.hook_q",  "blocks.0.ln1.hook_scale",
        "blocks.1.attn.hook_result", "blocks.1.hook_q_input", "hook_pos_embed"};
    const float h = 5e-4f;
    lens_gradients_desc d = asked(wanted("narrow", "tokens"), 43);
    for (int which = 0; which < N_LISTS; which++) {
        attn_ctx ctx = alone();
        const edit_list list = edits_of(which);
        lens_backward b = changed_backward(&ctx, &list);
        attn_record *made = NULL;
        d.names = names;
        d.n_names = sizeof names / sizeof names[0];
        OK(&ctx, lens_gradients(&ctx, &made, NULL, &b, &d));
        for (size_t i = 0; made && i < d.n_names; i++) {
            attn_tensor gradient = no_tensor, direction = no_tensor;
            double product = 0;
            if (which == STREAM && strstr(names[i], "_input"))
                continue; /* ln1 is edited, and a copy that is written leaves it */
            OK(&ctx, attn_record_get(&ctx, &gradient, made, names[i]));
            OK(&ctx, attn_copy(&ctx, &direction, gradient));
            for (size_t j = 0; j < count_of(direction); j++) {
                set_value(direction, j, random_float());
                product += value_of(direction, j) * value_of(gradient, j);
            }
            double slope = (metric_at(&ctx, list, names[i], direction, h) -
                            metric_at(&ctx, list, names[i], direction, -h)) /
                           (2 * (double)h);
            CHECKF(fabs(slope - product) < 2e-2 * (fabs(product) + 0.3), "%s, %s: %g, not %g",
                   list.name, names[i], product, slope);
        }
        attn_record_free(made);
        lens_backward_free(&ctx, &b);
        done(&ctx);
    }
}

/* The metric of a text in the changed model, by a session alone. */
static float changed_metric(attn_ctx *ctx, const edit_list *list, const lens_pair *pair,
                            const int32_t *tokens)
{
    attn_session *session = session_on(ctx, narrow, 0, 0);
    const float *logits;
    float value = NAN;
    for (size_t i = 0; i < list->n; i++)
        OK(ctx, attn_hook_edit(ctx, NULL, session, &list->edits[i]));
    OK(ctx, attn_feed(ctx, session, tokens, pair->n_tokens));
    if ((logits = attn_session_logits(session)) != NULL)
        value = logits[pair->metric.token] - logits[pair->metric.against];
    attn_session_free(session);
    return value;
}

TEST(pairs_under_edits)
{
    static const char *const names[] = {"hook_resid_pre", "attn.hook_z"};
    const lens_pair pair = two_texts();
    const lens_graph g = lens_graph_of(narrow);
    const edit_list list = edits_of(PATHS);
    SCOPED_CTX ctx = alone();
    lens_backward b = changed_backward(&ctx, &list);
    attn_tensor got = no_tensor, kept = no_tensor;
    float value = NAN, want;
    attn_edit wrong = list.edits[0];
    for (size_t i = 0; i < 2; i++) {
        attn_tensor change = no_tensor;
        OK(&ctx, lens_attribution_patch(&ctx, &change, &b, &pair, names[i]));
        close_to(change, wanted("edited.patch", names[i]), 1e-5, names[i]);
    }
    OK(&ctx, lens_edge_scores(&ctx, &got, &b, &pair, 1, 1));
    close_to(got, wanted("edited.eap", "1"), 1e-5, "EAP under edits");
    OK(&ctx, lens_edge_scores(&ctx, &got, &b, &pair, 1, 3));
    close_to(got, wanted("edited.eap", "3"), 1e-5, "EAP-IG under edits");
    for (size_t i = 0; i < 2; i++) { /* all edges, and none */
        OK(&ctx, lens_best_edges(&ctx, &kept, narrow, got, i ? 0 : g.n_edges));
        OK(&ctx, lens_run_edges(&ctx, &value, &b, &pair, kept));
        want = changed_metric(&ctx, &list, &pair, i ? pair.corrupted : pair.clean);
        CHECKF(fabs((double)(value - want)) < 1e-4, "%s: %g, not %g", i ? "no edge" : "all edges",
               (double)value, (double)want);
    }
    wrong.name = "blocks.*.hook_resid_mid";
    wrong.first_head = wrong.n_heads = 0;
    b.edits = &wrong;
    b.n_edits = 1;
    FAILS(ARGUMENT, "blocks.0.hook_resid_mid leaves no sum",
          lens_run_edges(&ctx, &value, &b, &pair, kept));
    REFUSED(ARGUMENT, "leaves no sum", lens_edge_scores(&ctx, &not_made, &b, &pair, 1, 1));
    b.edits = NULL;
    REFUSED(ARGUMENT, "no edits given",
            lens_attribution_patch(&ctx, &not_made, &b, &pair, "attn.hook_z"));
    lens_backward_free(&ctx, &b);
}

/* ---- sparse autoencoders ---- */

static lens_sae sae_of(const char *kind)
{
    lens_sae s = ATTN_ZERO;
    const char *const prefix = test_text("sae.%s", kind);
    s.n = 12;
    s.m = 40;
    s.k = 5;
    s.kind = strcmp(kind, "jumprelu") == 0   ? LENS_SAE_JUMPRELU
             : strcmp(kind, "gated") == 0    ? LENS_SAE_GATED
             : strcmp(kind, "standard") == 0 ? LENS_SAE_STANDARD
                                             : LENS_SAE_TOPK;
    s.norm = s.kind == LENS_SAE_JUMPRELU ? LENS_SAE_NORM_LAYER
             : strcmp(kind, "topk") == 0 ? LENS_SAE_NORM_CONSTANT
                                         : LENS_SAE_NORM_NONE;
    s.apply_b_dec = s.kind == LENS_SAE_STANDARD || s.kind == LENS_SAE_TOPK;
    s.by_decoder_norm = strcmp(kind, "norms") == 0;
    s.w_enc = wanted(prefix, "W_enc");
    s.w_dec = wanted(prefix, "W_dec");
    s.b_dec = wanted(prefix, "b_dec");
    s.b_enc = wanted(prefix, s.kind == LENS_SAE_GATED ? "b_gate" : "b_enc");
    if (s.kind == LENS_SAE_JUMPRELU)
        s.threshold = wanted(prefix, "threshold");
    if (s.kind == LENS_SAE_GATED) {
        s.b_mag = wanted(prefix, "b_mag");
        s.gain = laid_out(wanted(prefix, "r_mag"), ATTN_F32, LAYOUT_DENSE);
        for (size_t i = 0; i < s.m; i++)
            set_value(s.gain, i, (float)exp(value_of(s.gain, i)));
    }
    if (s.by_decoder_norm) {
        s.norms = some(1, s.m, 1, 1);
        for (size_t i = 0; i < s.m; i++) {
            double sum = 0;
            for (size_t j = 0; j < s.n; j++)
                sum += pow((double)attn_get2(s.w_dec, i, j), 2);
            set_value(s.norms, i, (float)sqrt(sum));
        }
    }
    return s;
}

static const char *const sae_kinds[] = {"standard", "jumprelu", "topk", "gated", "norms"};

TEST(autoencoders)
{
    const attn_tensor x = wanted("sae", "x");
    SCOPED_CTX ctx = alone();
    for (size_t i = 0; i < 5; i++) {
        const lens_sae s = sae_of(sae_kinds[i]);
        attn_tensor features = no_tensor, rebuilt = no_tensor;
        const char *const prefix = test_text("sae.%s", sae_kinds[i]);
        OK(&ctx, lens_sae_encode(&ctx, &features, &s, x));
        close_to(features, wanted(prefix, "features"), 1e-5, sae_kinds[i]);
        OK(&ctx, lens_sae_decode(&ctx, &rebuilt, &s, features, x));
        close_to(rebuilt, wanted(prefix, "rebuilt"), 1e-5, sae_kinds[i]);
    }
}

/* An activation that a session would show. */
static attn_activation shown_as(attn_tensor value)
{
    attn_activation a = {.name = "blocks.0.hook_resid_pre", .value = value};
    return a;
}

TEST(changed_features)
{
    const attn_tensor x = wanted("sae", "x");
    const lens_sae s = sae_of("standard");
    const attn_tensor features = wanted("sae.standard", "features");
    const lens_sae_change changes[] = {
        {3, LENS_SAE_CLAMP, 2}, {7, LENS_SAE_STEER, -1.5f}, {9, LENS_SAE_SCALE, 0.5f}};
    attn_activation a = shown_as(laid_out(x, ATTN_F32, LAYOUT_DENSE));
    attn_tensor want = laid_out(x, ATTN_F32, LAYOUT_DENSE);
    lens_sae_watch w = {.sae = &s};
    EQUAL(lens_sae_hook(&a, &w), 0);
    close_to(a.value, wanted("sae.standard", "rebuilt"), 1e-5, "the reconstruction");
    w.keep_error = 1;
    a = shown_as(laid_out(x, ATTN_F32, LAYOUT_DENSE));
    EQUAL(lens_sae_hook(&a, &w), 0);
    close_to(a.value, x, 1e-6, "nothing changed");
    w.changes = changes;
    w.n_changes = 3;
    EQUAL(lens_sae_hook(&a, &w), 0);
    for (size_t t = 0; t < x.shape[0]; t++)
        for (size_t i = 0; i < s.n; i++) { /* by the rows of W_dec */
            const double was = (double)attn_get2(features, t, 3);
            const double half = (double)attn_get2(features, t, 9) / 2;
            *entry(want, t, i, 0) += (float)((2 - was) * (double)attn_get2(s.w_dec, 3, i) -
                                             1.5 * (double)attn_get2(s.w_dec, 7, i) -
                                             half * (double)attn_get2(s.w_dec, 9, i));
        }
    close_to(a.value, want, 1e-5, "three changes");
}

TEST(bad_autoencoders)
{
    const lens_sae s = sae_of("standard"), none = ATTN_ZERO;
    const lens_sae_change beyond[] = {{40, LENS_SAE_CLAMP, 2}};
    const attn_tensor x = wanted("sae", "x"), y = random_tensor(2, 3, 5);
    SCOPED_CTX ctx = alone();
    attn_activation a = shown_as(laid_out(x, ATTN_F32, LAYOUT_DENSE));
    REFUSED(SHAPE, "expected [T, 12]", lens_sae_encode(&ctx, &not_made, &s, y));
    REFUSED(ARGUMENT, "no autoencoder", lens_sae_encode(&ctx, &not_made, &none, x));
    REFUSED(SHAPE, "expected [T, 40]", lens_sae_decode(&ctx, &not_made, &s, x, x));
    lens_sae_watch w = {.sae = &s, .changes = beyond, .n_changes = 1};
    EQUAL(lens_sae_hook(&a, &w), 1);
    CHECK(strstr(w.ctx.message, "feature 40") != NULL);
    same_bits(a.value, x, "refused");
}

/* One that lacks what its kind reads is refused. */
TEST(autoencoders_made_by_hand)
{
    const attn_tensor x = wanted("sae", "x");
    SCOPED_CTX ctx = alone();
    lens_sae s;
#define LACKS(kind, what, change)                                                                  \
    s = sae_of(kind);                                                                              \
    change;                                                                                        \
    REFUSED(ARGUMENT, "the autoencoder has no " what, lens_sae_encode(&ctx, &not_made, &s, x))
    LACKS("standard", "w_enc", s.w_enc = no_tensor);
    LACKS("standard", "w_dec", s.w_dec = no_tensor);
    LACKS("standard", "b_dec", s.b_dec = no_tensor);
    LACKS("standard", "b_enc", s.b_enc = no_tensor);
    LACKS("topk", "k", s.k = 0);
    LACKS("jumprelu", "threshold", s.threshold = no_tensor);
    LACKS("gated", "gain", s.gain = no_tensor);
    LACKS("gated", "b_mag", s.b_mag = no_tensor);
    LACKS("norms", "norms", s.norms = no_tensor);
}

/* ---- scores taken apart, steering ---- */

/* What a row x [C] gives the query or the key of a head, in double; NULL: the biases. */
static void side_by_hand(double *to, const float *x, double scale, const lens_qk *which, char side)
{
    SCOPED_CTX ctx = alone();
    attn_tensor w = no_tensor, b = no_tensor, gain = no_tensor, shift = no_tensor;
    double mean = 0;
    OK(&ctx, lens_layer_tensor(&ctx, &w, narrow, which->layer, test_text("attn.W_%c", side)));
    OK(&ctx, lens_layer_tensor(&ctx, &b, narrow, which->layer, test_text("attn.b_%c", side)));
    OK(&ctx, lens_layer_tensor(&ctx, &gain, narrow, which->layer, "ln1.w"));
    OK(&ctx, lens_layer_tensor(&ctx, &shift, narrow, which->layer, "ln1.b"));
    for (size_t i = 0; i < 20 && x; i++)
        mean += (double)x[i] / 20;
    for (size_t j = 0; j < 5; j++) {
        to[j] = x ? 0 : (double)attn_get2(b, which->head, j);
        for (size_t i = 0; i < 20; i++)
            to[j] += (x ? ((double)x[i] - mean) / scale * (double)attn_get1(gain, i)
                        : (double)attn_get1(shift, i)) *
                     (double)attn_get3(w, which->head, i, j);
    }
}

/* Some parts of the stream at one position: an embedding, a head's result, an MLP's, the biases. */
static const char *const some_parts[] = {"embed", "L0H2", "L1H0", "1_mlp_out", "bias"};
enum { N_PARTS = 5 };

static const float *part_by_hand(const sight *s, size_t part, size_t position)
{
    static const char *const written[] = {"hook_embed", "blocks.0.attn.hook_result",
                                          "blocks.1.attn.hook_result", "blocks.1.hook_mlp_out"};
    static const size_t heads[] = {0, 2, 0, 0};
    if (part == N_PARTS - 1)
        return NULL;
    attn_tensor x = latest(s, written[part]);
    return x.ndim == 3 ? entry(x, position, heads[part], 0) : entry(x, position, 0, 0);
}

TEST(scores_taken_apart)
{
    const attn_tensor tokens = wanted("narrow", "tokens");
    lens_qk which = {(const int32_t *)tokens.data, tokens.shape[0], 2, 3, 8, 4};
    sight *const s = new_sight();
    SCOPED_CTX ctx = alone();
    attn_tensor terms = no_tensor;
    double q[N_PARTS][5], k[N_PARTS][5], sum = 0;
    size_t index[N_PARTS], j, n = lens_qk_count(narrow, 2);
    OK(&ctx, lens_qk_terms(&ctx, &terms, narrow, &which));
    hooked(narrow, which.tokens, 9, 9, NULL, NULL, NULL, "*", s);
    hooked(narrow, which.tokens, 9, 9, NULL, NULL, NULL, "*.hook_result", s);
    EQUAL(n, 2 + 2 * 6 + 1);
    for (size_t i = 0; i < n * n; i++)
        sum += value_of(terms, i);
    attn_tensor scores = latest(s, "blocks.2.attn.hook_attn_scores");
    double want = (double)attn_get3(scores, 3, 8, 4);
    CHECKF(fabs(sum - want) < 1e-5 * fmax(1, fabs(want)), "the sum is %g, not %g", sum, want);
    attn_tensor scale = latest(s, "blocks.2.ln1.hook_scale");
    for (size_t i = 0; i < N_PARTS; i++) {
        side_by_hand(q[i], part_by_hand(s, i, 8), (double)attn_get2(scale, 8, 0), &which, 'Q');
        side_by_hand(k[i], part_by_hand(s, i, 4), (double)attn_get2(scale, 4, 0), &which, 'K');
        for (j = 0; j < n && strcmp(lens_qk_label(narrow, 2, j).text, some_parts[i]); j++)
            ;
        index[i] = j;
        CHECKF(j < n, "no part is called %s", some_parts[i]);
    }
    for (size_t i = 0; i < N_PARTS; i++)
        for (j = 0; j < N_PARTS; j++) {
            size_t d;
            for (d = 0, want = 0; d < 5; d++)
                want += q[i][d] * k[j][d] / sqrt(5);
            CHECKF(fabs((double)attn_get2(terms, index[i], index[j]) - want) < 1e-5,
                   "%s with %s: %g, not %g", some_parts[i], some_parts[j],
                   (double)attn_get2(terms, index[i], index[j]), want);
        }
    which.key = 9;
    REFUSED(ARGUMENT, "key 9", lens_qk_terms(&ctx, &not_made, narrow, &which));
    which.layer = 3;
    REFUSED(ARGUMENT, "layer 3", lens_qk_terms(&ctx, &not_made, narrow, &which));
}

TEST(steering)
{
    const attn_tensor ids = wanted("narrow", "tokens"), other = wanted("narrow", "corrupted");
    const lens_tokens towards = {(const int32_t *)ids.data, 9};
    const lens_tokens away = {(const int32_t *)other.data, 5};
    static const char name[] = "blocks.1.hook_resid_mid";
    sight *const a = new_sight(), *const b = new_sight();
    SCOPED_CTX ctx = alone();
    attn_tensor got = no_tensor, want = some(2, 1, 20, 1);
    OK(&ctx, lens_steering_vector(&ctx, &got, narrow, name, &towards, &away));
    hooked(narrow, towards.ids, 9, 9, NULL, NULL, NULL, name, a);
    hooked(narrow, away.ids, 5, 5, NULL, NULL, NULL, name, b);
    for (size_t i = 0; i < 20; i++) {
        double sum = 0;
        for (size_t t = 0; t < 9; t++)
            sum += (double)attn_get2(latest(a, name), t, i) / 9;
        for (size_t t = 0; t < 5; t++)
            sum -= (double)attn_get2(latest(b, name), t, i) / 5;
        set_value(want, i, (float)sum);
    }
    close_to(got, want, 1e-6, "the difference of two texts");
    REFUSED(ARGUMENT, "one activation",
            lens_steering_vector(&ctx, &not_made, narrow, "*", &towards, &away));
    REFUSED(ARGUMENT, "no tokens",
            lens_steering_vector(&ctx, &not_made, narrow, name, &towards, &(lens_tokens){NULL, 0}));
}
