/* tools/lens/exact.h against numpy in float64 (make_exact_fixtures.py), against whole passes with hooks, and
 * its rules. */
#define FIXTURE_FILE "tests/fixtures/exact/effects.bin"
#include "tests/support/refused.h"
#include "tools/common/sha256.h"
#include "tools/lens/prune.h"
#include "tests/support/patches.h"
#include "tests/support/repeats.h"
#include "tests/support/same_bits.h"
#include "tests/support/shared_models.h"

SUITE_WITH_MODELS("plain odd narrow");

#define ODD_DIGEST "0e9d8cfb2c0b21d1f2391ac33cb1e90ce88d532d81e79a1eea3521af7d32358c"

enum { LENGTH = 7 };

static lens_pair pair_on(const attn_model *model, uint64_t seed, size_t n_same)
{
    return pair_from(model, LENGTH, seed, n_same);
}

static attn_status effects_of_odd(attn_ctx *ctx, attn_tensor *out, const void *desc)
{
    return lens_exact_effects(ctx, out, NULL, odd, (const lens_exact_desc *)desc);
}

/* ---- float64 ---- */

/* One text of a model: all effects are within 1e-5 of the largest one, or within four roundings of a logit. */
static void check_fixture(const attn_model *model, const char *name, int i)
{
    const attn_tensor clean = fixture_tensor("%s.%d.clean", name, i);
    const attn_tensor asked = fixture_tensor("%s.%d.metric", name, i);
    const attn_tensor values = fixture_tensor("%s.%d.values", name, i);
    lens_exact_desc d = ATTN_ZERO;
    attn_ctx ctx = alone();
    lens_pair pair = {.clean = (const int32_t *)clean.data,
                      .corrupted = (const int32_t *)fixture_tensor("%s.%d.corrupted", name, i).data,
                      .n_tokens = clean.shape[0],
                      .metric.kind = (lens_metric_kind)arg_of(asked, 0),
                      .metric.from_end = (size_t)arg_of(asked, 1),
                      .metric.token = arg_of(asked, 2),
                      .metric.against = arg_of(asked, 3)};
    d.pairs = &pair;
    d.n_pairs = 1;
    for (d.of_nodes = 0; d.of_nodes < 2; d.of_nodes++) {
        const attn_tensor want =
            fixture_tensor("%s.%d.%s", name, i, d.of_nodes ? "nodes" : "effects");
        const float *const x = (const float *)want.data;
        const double scale = fmax(fabs((double)attn_get1(values, 0)), 1);
        attn_tensor got = no_tensor;
        lens_baseline whole = {0, 0};
        double largest = 0;
        OK(&ctx, lens_exact_effects(&ctx, &got, &whole, model, &d));
        CHECK(fabs((double)(whole.clean - attn_get1(values, 0))) < 1e-6 * scale &&
              fabs((double)(whole.corrupted - attn_get1(values, 1))) < 1e-6 * scale);
        for (size_t k = 0; k < attn_count(want); k++)
            largest = fmax(largest, fabs((double)x[k]));
        for (size_t k = 0; k < attn_count(want); k++) {
            const double y = (double)((const float *)got.data)[k];
            CHECKF(fabs(y - (double)x[k]) <= fmax(1e-5 * largest, 2.4e-7 * scale),
                   "%s, text %d, %s %d: %.9g, expected %.9g", name, i, d.of_nodes ? "node" : "edge",
                   (int)k, y, (double)x[k]);
        }
        CHECK(largest > 0.01 && attn_count(got) == attn_count(want));
        attn_tensor_free(&ctx, &got);
    }
    done(&ctx);
}

TEST(float64)
{
    check_fixture(plain, "plain", 0);
    check_fixture(odd, "odd", 0);
    check_fixture(odd, "odd", 1);
    check_fixture(odd, "odd", 2);
    check_fixture(narrow, "narrow", 0);
    check_fixture(narrow, "narrow", 1);
}

/* One layer of one head; odd d_head, no power of two anywhere, texts as long as the context; one token. */
TEST(float64_of_other_shapes)
{
    SCOPED_MODEL const single = converted("tests/fixtures/exact/single", "single.attn", "");
    SCOPED_MODEL const uneven = converted("tests/fixtures/exact/uneven", "uneven.attn", "");
    for (int i = 0; i < 3 && single && uneven; i++)
        check_fixture(single, "single", i);
    for (int i = 0; i < 2 && single && uneven; i++)
        check_fixture(uneven, "uneven", i);
}

/* ---- whole passes ---- */

/* One edge or node of a whole pass. The corrupted text's pass stores the sender's write; the clean text's
 * pass adds the difference to what the receiver reads. */
typedef struct whole_pass {
    char from[64], to[64];
    size_t from_head, to_head; /* SIZE_MAX: no heads */
    int is_clean;
    float was[LENGTH][256], difference[LENGTH][256];
} whole_pass;

static float *row_at(const attn_activation *a, size_t t, size_t head)
{
    return a->value.ndim == 3 ? entry(a->value, t, head, 0) : entry(a->value, t, 0, 0);
}

static int see_write(const attn_activation *a, void *user)
{
    whole_pass *w = (whole_pass *)user;
    const size_t width = a->value.shape[a->value.ndim - 1];
    for (size_t t = 0; t < a->value.shape[0]; t++)
        for (size_t i = 0; i < width; i++) {
            const float x = row_at(a, t, w->from_head)[i];
            if (w->is_clean)
                w->difference[a->first + t][i] = w->was[a->first + t][i] - x;
            else
                w->was[a->first + t][i] = x;
        }
    return 0;
}

static int change_input(const attn_activation *a, void *user)
{
    whole_pass *w = (whole_pass *)user;
    const size_t width = a->value.shape[a->value.ndim - 1];
    for (size_t t = 0; t < a->value.shape[0]; t++)
        for (size_t i = 0; i < width; i++)
            row_at(a, t, w->to_head)[i] += w->difference[a->first + t][i];
    return 0;
}

static float metric_after(attn_ctx *ctx, const lens_pair *pair, attn_session *session,
                          const int32_t *tokens)
{
    float *const logits =
        (float *)pool_new(pair->n_tokens * vocab_of(attn_session_model(session)) * sizeof *logits);
    const size_t n_vocab = vocab_of(attn_session_model(session));
    float value = 0;
    const int is_local = lens_metric_is_local(&pair->metric);
    attn_feed_item item = {
        .session = session, .tokens = tokens, .n_tokens = pair->n_tokens, .logits = logits};
    OK(ctx, attn_feed_batch(ctx, &item, 1));
    OK(ctx,
       lens_metric_value(
           ctx, &value,
           is_local ? attn_borrow(logits + (pair->n_tokens - 1 - pair->metric.from_end) * n_vocab,
                                  ATTN_F32, attn_shape2(1, n_vocab))
                    : attn_borrow(logits, ATTN_F32, attn_shape2(pair->n_tokens, n_vocab)),
           &pair->metric, tokens));
    return value;
}

/* The metric of the clean text with the edge of w changed. */
static float by_whole_passes(attn_ctx *ctx, const attn_model *model, const lens_pair *pair,
                             whole_pass *w)
{
    attn_session *session = session_on(ctx, model, 0, 0);
    w->is_clean = 0;
    OK(ctx, attn_hook(ctx, NULL, session, w->from, see_write, w));
    metric_after(ctx, pair, session, pair->corrupted);
    OK(ctx, attn_session_truncate(ctx, session, 0));
    w->is_clean = 1;
    OK(ctx, attn_hook(ctx, NULL, session, w->to, change_input, w));
    float value = metric_after(ctx, pair, session, pair->clean);
    attn_session_free(session);
    return value;
}

/* Names the activations of a sender, and its head. */
static void name_sender(whole_pass *w, size_t n_head, size_t sender)
{
    const int layer = (int)((sender - 1) / (n_head + 1));
    const size_t part = (sender - 1) % (n_head + 1);
    w->from_head = SIZE_MAX;
    if (sender == 0)
        snprintf(w->from, sizeof w->from, "blocks.0.hook_resid_pre");
    else if (part == n_head)
        snprintf(w->from, sizeof w->from, "blocks.%d.hook_mlp_out", layer);
    else {
        snprintf(w->from, sizeof w->from, "blocks.%d.attn.hook_result", layer);
        w->from_head = part;
    }
}

/* Names what a receiver reads, and its head. */
static void name_receiver(whole_pass *w, size_t n_layer, size_t n_head, size_t receiver)
{
    static const char *const names[] = {"hook_q_input", "hook_k_input", "hook_v_input"};
    const size_t layer = receiver / (3 * n_head + 1), part = receiver % (3 * n_head + 1);
    w->to_head = SIZE_MAX;
    if (layer == n_layer)
        snprintf(w->to, sizeof w->to, "blocks.%d.hook_resid_post", (int)layer - 1);
    else if (part == 3 * n_head)
        snprintf(w->to, sizeof w->to, "blocks.%d.hook_mlp_in", (int)layer);
    else {
        snprintf(w->to, sizeof w->to, "blocks.%d.%s", (int)layer, names[part / n_head]);
        w->to_head = part % n_head;
    }
}

static void is_close(float got, float want, double scale, const whole_pass *w)
{
    CHECKF(fabs((double)got - (double)want) < 3e-6 * scale,
           "%s, head %d, to %s, head %d: %.9g, expected %.9g", w->from, (int)w->from_head, w->to,
           (int)w->to_head, (double)got, (double)want);
}

/* Every edge of a model by whole passes. Returns the number of edges that change the metric. */
static size_t check_edges(const attn_model *model, const lens_pair *pairs, size_t n_pairs)
{
    const lens_graph g = lens_graph_of(model);
    attn_ctx ctx = alone();
    attn_tensor got = no_tensor;
    attn_session *session = session_on(&ctx, model, 0, 0);
    lens_baseline whole = {0, 0};
    float clean[4] = {0}, mean = 0;
    size_t n = 0;
    lens_exact_desc d = {.pairs = pairs, .n_pairs = n_pairs};
    OK(&ctx, lens_exact_effects(&ctx, &got, &whole, model, &d));
    for (size_t i = 0; i < n_pairs; i++) {
        clean[i] = metric_after(&ctx, &pairs[i], session, pairs[i].clean);
        mean += clean[i] / (float)n_pairs;
        OK(&ctx, attn_session_truncate(&ctx, session, 0));
    }
    CHECK(fabs((double)(whole.clean - mean)) < 1e-6 && whole.corrupted != whole.clean);
    for (size_t receiver = 0; receiver < g.n_receivers; receiver++)
        for (size_t sender = 0; sender < g.n_senders; sender++) {
            const float value = attn_get2(got, sender, receiver);
            whole_pass w;
            float want = 0;
            if (sender >= lens_senders_to(&g, receiver)) {
                CHECK(value == 0);
                continue;
            }
            name_sender(&w, g.n_head, sender);
            name_receiver(&w, g.n_layer, g.n_head, receiver);
            for (size_t i = 0; i < n_pairs; i++)
                want += (by_whole_passes(&ctx, model, &pairs[i], &w) - clean[i]) / (float)n_pairs;
            is_close(value, want, 1 + fabs((double)mean), &w);
            n += fabs((double)want) > 1e-5;
        }
    attn_session_free(session);
    attn_tensor_free(&ctx, &got);
    done(&ctx);
    return n;
}

/* Most edges must change the metric, or the check says little. */
static void check_all_edges(const attn_model *model, size_t n_same)
{
    const lens_pair pair = pair_on(model, 1, n_same);
    const size_t n_edges = lens_graph_of(model).n_edges, n = check_edges(model, &pair, 1);
    CHECKF(2 * n > n_edges, "only %d of %d edges change the metric", (int)n, (int)n_edges);
}

TEST(every_edge)
{
    check_all_edges(odd, 0);
}

TEST(every_edge_of_texts_that_differ_late)
{
    check_all_edges(narrow, 4);
}

/* Means over pairs; metrics of other positions, and of all. */
TEST(pairs_and_metrics)
{
    lens_pair pairs[2];
    pairs[0] = pair_on(odd, 5, 2);
    pairs[0].metric.from_end = 2;
    pairs[1] = pair_on(odd, 7, 0);
    memset(&pairs[1].metric, 0, sizeof pairs[1].metric); /* the loss */
    CHECK(check_edges(odd, pairs, 2) > 0);
}

TEST(nodes)
{
    const lens_graph g = lens_graph_of(odd);
    const lens_pair pair = pair_on(odd, 1, 1);
    SCOPED_CTX ctx = alone();
    attn_tensor got = no_tensor;
    lens_baseline whole = {0, 0};
    lens_exact_desc d = {.pairs = &pair, .n_pairs = 1, .of_nodes = 1};
    OK(&ctx, lens_exact_effects(&ctx, &got, &whole, odd, &d));
    CHECK(got.ndim == 1 && got.shape[0] == g.n_senders);
    for (size_t i = 0; i < g.n_senders; i++) {
        whole_pass w;
        name_sender(&w, g.n_head, i);
        memcpy(w.to, w.from, sizeof w.to);
        w.to_head = w.from_head;
        is_close(attn_get1(got, i), by_whole_passes(&ctx, odd, &pair, &w) - whole.clean,
                 1 + fabs((double)whole.clean), &w);
    }
    CHECK(fabs((double)(attn_get1(got, 0) - (whole.corrupted - whole.clean))) < 1e-5);
}

/* ---- what must be true ---- */

/* A sender that writes the same in both texts has no effect, to the bit; and while the scale of the last
 * LayerNorm does not change, the metric is linear in what the logits read, so that EAP is exact there. */
TEST(edges_that_are_known)
{
    const lens_graph g = lens_graph_of(odd);
    const size_t silent = 2, end = g.n_receivers - 1;
    const lens_pair pair = pair_on(odd, 1, 3);
    float scale = 1.25f;
    SCOPED_CTX ctx = alone();
    attn_edit edits[2];
    lens_backward b = ATTN_ZERO;
    attn_tensor got = no_tensor, estimates = no_tensor;
    memset(edits, 0, sizeof edits);
    edits[0].name = "blocks.0.attn.hook_z";
    edits[0].kind = ATTN_EDIT_ZERO;
    edits[0].first_head = 1;
    edits[0].n_heads = 1;
    edits[1].name = "ln_final.hook_scale";
    edits[1].kind = ATTN_EDIT_SET;
    edits[1].value = attn_borrow(&scale, ATTN_F32, attn_shape2(1, 1));
    lens_exact_desc d = {.pairs = &pair, .n_pairs = 1, .edits = edits, .n_edits = 2};
    OK(&ctx, lens_exact_effects(&ctx, &got, NULL, odd, &d));
    OK(&ctx, lens_backward_new(&ctx, &b, odd));
    b.edits = edits;
    b.n_edits = 2;
    OK(&ctx, lens_edge_scores(&ctx, &estimates, &b, &pair, 1, 1));
    for (size_t i = 0; i < g.n_receivers; i++)
        CHECK(attn_get2(got, silent, i) == 0);
    for (size_t i = 0; i < g.n_senders; i++) {
        const double x = (double)attn_get2(got, i, end), y = (double)attn_get2(estimates, i, end);
        CHECKF(fabs(x - y) < 5e-6, "sender %d to the logits: %.9g, not %.9g", (int)i, x, y);
        CHECK(i == silent || fabs(x) > 1e-5);
    }
    lens_backward_free(&ctx, &b);
}

TEST(equal_texts)
{
    lens_pair pair = pair_on(odd, 1, LENGTH);
    SCOPED_CTX ctx = alone();
    attn_tensor got = no_tensor;
    lens_exact_desc d = {.pairs = &pair, .n_pairs = 1};
    OK(&ctx, lens_exact_effects(&ctx, &got, NULL, odd, &d));
    for (size_t i = 0; i < attn_count(got); i++)
        CHECK(((const float *)got.data)[i] == 0);
}

/* The SHA-256 of the effects of all edges of `odd` is the same on any instruction set with fused
 * multiply-adds, and for any number of threads. */
TEST(exact_bits)
{
    const lens_pair pair = pair_on(odd, 1, 2);
    lens_exact_desc d = {.pairs = &pair, .n_pairs = 1};
    same_digest(effects_of_odd, &d, ODD_DIGEST);
}

/* A run that needs two logits has the bits of one that makes all of them, as runs with edits do. */
TEST(bits_of_two_logits)
{
    lens_pair pair = pair_on(odd, 1, 2);
    SCOPED_CTX ctx = alone();
    float one = 1;
    attn_edit same = {.name = "blocks.1.hook_mlp_out",
                      .kind = ATTN_EDIT_SCALE,
                      .value = attn_borrow(&one, ATTN_F32, attn_shape2(1, 1))};
    lens_exact_desc d = {.pairs = &pair, .n_pairs = 1, .edits = &same};
    for (pair.metric.from_end = 0; pair.metric.from_end < 4; pair.metric.from_end++) {
        attn_tensor got[2] = {no_tensor, no_tensor};
        for (d.of_nodes = 0; d.of_nodes < 2; d.of_nodes++) {
            for (d.n_edits = 0; d.n_edits < 2; d.n_edits++)
                OK(&ctx, lens_exact_effects(&ctx, &got[d.n_edits], NULL, odd, &d));
            same_bits(got[0], got[1], "effects");
            attn_tensor_free(&ctx, &got[0]);
            attn_tensor_free(&ctx, &got[1]);
        }
    }
}

TEST(progress_and_stop)
{
    lens_pair pairs[2];
    double told[3] = {0, 0, 0};
    SCOPED_CTX ctx = alone();
    attn_tensor got = no_tensor;
    pairs[0] = pair_on(odd, 1, 2);
    pairs[1] = pair_on(odd, 3, 1);
    lens_exact_desc d = {.pairs = pairs, .n_pairs = 2, .progress = count_progress, .user = told};
    OK(&ctx, lens_exact_effects(&ctx, &got, NULL, odd, &d));
    CHECK(fabs(told[0] - 1) < 1e-9 && told[1] > 6);
    attn_tensor_free(&ctx, &got);
    told[0] = told[1] = 0;
    told[2] = 3;
    CHECK(lens_exact_effects(&ctx, &got, NULL, odd, &d) == ATTN_STOPPED);
    CHECK(told[1] == 3 && got.ndim == 0 && ctx.status == ATTN_OK);
}

/* ---- a circuit that is known ---- */

enum { N_REPEATS = 48 };

/* The circuit of examples/induction, edge by edge. */
static int is_of_the_circuit(const lens_graph *g, const lens_edge *e)
{
    static const char *const known[][2] = {
        {"input", "a0.h0<v>"}, {"input", "a0.h1<q>"}, {"input", "a0.h1<k>"}, {"input", "a0.h1<v>"},
        {"a0.h0", "a1.h0<k>"}, {"a0.h0", "a1.h1<k>"}, {"a0.h1", "a1.h0<v>"}, {"a0.h1", "a1.h1<v>"},
        {"a1.h0", "logits"},   {"a1.h1", "logits"}};
    for (size_t i = 0; i < 10; i++)
        if (strcmp(lens_sender_name(g, e->sender).text, known[i][0]) == 0 &&
            strcmp(lens_receiver_name(g, e->receiver).text, known[i][1]) == 0)
            return 1;
    return 0;
}

/* The ten largest true effects are those of the ten edges of the circuit. EAP has some of them among the
 * smallest: where attention is sharp, its gradient is near zero. */
TEST(edges_of_a_known_circuit)
{
    SCOPED_MODEL const m = converted("examples/induction", "induction-edges.attn", "");
    SCOPED_CTX ctx = alone();
    attn_tensor effects = no_tensor, estimates = no_tensor;
    lens_backward b = ATTN_ZERO;
    lens_pair pairs[N_REPEATS];
    lens_edge edges[128];
    size_t n[2] = {0, 0};
    if (!m)
        return;
    for (size_t i = 0; i < N_REPEATS; i++)
        pairs[i] = repeat_on(m, i);
    lens_graph g = lens_graph_of(m);
    lens_exact_desc d = {.pairs = pairs, .n_pairs = N_REPEATS};
    OK(&ctx, lens_exact_effects(&ctx, &effects, NULL, m, &d));
    OK(&ctx, lens_backward_new(&ctx, &b, m));
    OK(&ctx, lens_edge_scores(&ctx, &estimates, &b, pairs, N_REPEATS, 1));
    CHECK(g.n_edges <= 128);
    OK(&ctx, lens_sort_edges(&ctx, edges, m, effects));
    for (size_t i = 0; i < 10; i++)
        n[0] += is_of_the_circuit(&g, &edges[i]) != 0;
    CHECKF(n[0] == 10, "%d of the ten largest effects are those of the circuit", (int)n[0]);
    OK(&ctx, lens_sort_edges(&ctx, edges, m, estimates));
    for (size_t i = 0; i < 10; i++)
        n[1] += is_of_the_circuit(&g, &edges[i]) != 0;
    CHECKF(n[1] >= 5 && n[1] <= 7, "EAP finds %d of the circuit's ten edges", (int)n[1]);
    lens_backward_free(&ctx, &b);
}

/* ---- pruning ---- */

/* Removes the edges again, each by a call of its own: the metric moves as `found` says, and at each step the
 * removed edge has no larger effect than any other edge in the whole model or when it was last measured. */
static void check_removals(attn_ctx *ctx, lens_backward *b, const lens_prune_desc *d,
                           const lens_pruned *found)
{
    const lens_graph g = lens_graph_of(b->model);
    attn_tensor kept = no_tensor;
    double value = found->clean;
    OK(ctx, attn_zeros(ctx, &kept, ATTN_F32, attn_shape2(g.n_senders, g.n_receivers)));
    for (size_t i = 0; i < g.n_edges; i++)
        *entry(kept, found->edges[i].sender, found->edges[i].receiver, 0) = 1;
    for (size_t i = g.n_edges; i > found->n_kept; i--) {
        const lens_edge *const e = &found->edges[i - 1];
        double next = 0;
        *entry(kept, e->sender, e->receiver, 0) = 0;
        for (size_t j = 0; j < d->n_pairs; j++) {
            float one = 0;
            OK(ctx, lens_run_edges(ctx, &one, b, &d->pairs[j], kept));
            next += (double)one / (double)d->n_pairs;
        }
        CHECKF((float)(next - value) == e->score, "removal %d: %.9g, not %.9g",
               (int)(g.n_edges - i), next - value, (double)e->score);
        CHECK(fabs(next - found->clean) <= d->amount);
        value = next;
    }
    CHECK(value == found->value);
    for (size_t i = 1; i < found->n_kept; i++)
        CHECK(fabsf(found->edges[i].score) <= fabsf(found->edges[i - 1].score));
    attn_tensor_free(ctx, &kept);
}

TEST(prune)
{
    const volatile int stopped = 1;
    lens_pair pairs[2];
    SCOPED_CTX ctx = alone();
    lens_pruned found = ATTN_ZERO;
    pairs[0] = pair_on(odd, 1, 2);
    pairs[1] = pair_on(odd, 3, 1);
    lens_backward b = {.model = odd};
    lens_prune_desc d = {.pairs = pairs, .n_pairs = 2};
    for (double amount = 0; amount < 200; amount = amount < 1 ? amount + 0.3 : 1000 * amount / 7) {
        d.amount = amount;
        OK(&ctx, lens_prune(&ctx, &found, &b, &d));
        check_removals(&ctx, &b, &d, &found);
        CHECK(found.n_runs >= 2 * (lens_graph_of(odd).n_edges - found.n_kept));
        CHECK(amount < 100 || found.n_kept == 0);
        attn_free(found.edges);
    }
    ctx.stop_flag = &stopped;
    STOPS(&ctx, lens_prune(&ctx, &found, &b, &d)); /* in the effects, which it computes first */
    ctx.stop_flag = NULL;
    d.amount = -1;
    FAILS(ARGUMENT, "an amount of -1", lens_prune(&ctx, &found, &b, &d));
    d.amount = 1;
    d.n_pairs = 0;
    FAILS(ARGUMENT, "no pair", lens_prune(&ctx, &found, &b, &d));
    FAILS(ARGUMENT, "no description", lens_prune(&ctx, &found, &b, NULL));
    FAILS(ARGUMENT, "no lens_backward", lens_prune(&ctx, &found, NULL, &d));
}

/* Of equal effects that of the later receiver goes first, then that of the later sender. */
TEST(prune_ties)
{
    const lens_pair pair = pair_on(odd, 1, LENGTH);
    const size_t n = lens_graph_of(odd).n_edges;
    SCOPED_CTX ctx = alone();
    lens_pruned found = ATTN_ZERO;
    lens_backward b = {.model = odd};
    lens_prune_desc d = {.pairs = &pair, .n_pairs = 1};
    OK(&ctx, lens_prune(&ctx, &found, &b, &d));
    CHECK(found.n_kept == 0 && found.n_runs == n + 1);
    for (size_t i = 0; i + 1 < n; i++) {
        const lens_edge *const later = &found.edges[i], *const first = &found.edges[i + 1];
        CHECK(first->receiver > later->receiver ||
              (first->receiver == later->receiver && first->sender > later->sender));
    }
    attn_free(found.edges);
}

/* What is left of the model of examples/induction is its circuit. */
TEST(prune_a_known_circuit)
{
    SCOPED_MODEL const m = converted("examples/induction", "induction-prune.attn", "");
    SCOPED_CTX ctx = alone();
    lens_pruned found = ATTN_ZERO;
    lens_pair pairs[4];
    if (!m)
        return;
    for (size_t i = 0; i < 4; i++)
        pairs[i] = repeat_on(m, i);
    lens_backward b = {.model = m};
    lens_graph g = lens_graph_of(m);
    lens_prune_desc d = {.pairs = pairs, .n_pairs = 4, .amount = 1};
    OK(&ctx, lens_prune(&ctx, &found, &b, &d));
    CHECKF(found.n_kept <= 10, "%d edges are left", (int)found.n_kept);
    for (size_t i = 0; i < found.n_kept; i++)
        CHECKF(is_of_the_circuit(&g, &found.edges[i]), "%s to %s is left",
               lens_sender_name(&g, found.edges[i].sender).text,
               lens_receiver_name(&g, found.edges[i].receiver).text);
    attn_free(found.edges);
}

/* ---- states ---- */

static lens_exact_state state_of(const attn_model *model)
{
    const size_t n = lens_exact_count(model, 0);
    lens_exact_state s = {.sums = (float *)pool_new(n * sizeof(float)),
                          .values = (float *)pool_new(n * sizeof(float)),
                          .done = (unsigned char *)pool_new(n)};
    memset(s.sums, 0, n * sizeof(float));
    memset(s.values, 0, n * sizeof(float));
    memset(s.done, 0, n);
    return s;
}

/* A call that is stopped again and again, and continued, has the bits of one call. */
TEST(continued)
{
    lens_pair pairs[2];
    double told[3] = {0, 0, 0};
    SCOPED_CTX ctx = alone();
    attn_tensor whole = no_tensor, got = no_tensor;
    lens_baseline first = {0, 0}, second = {0, 0};
    attn_status status = ATTN_STOPPED;
    int n = 0;
    pairs[0] = pair_on(odd, 1, 2);
    pairs[1] = pair_on(odd, 3, 1);
    lens_exact_desc d = {.pairs = pairs, .n_pairs = 2};
    OK(&ctx, lens_exact_effects(&ctx, &whole, &first, odd, &d));
    lens_exact_state state = state_of(odd);
    d.state = &state;
    d.progress = count_progress;
    d.user = told;
    for (; status == ATTN_STOPPED && n < 50; n++) {
        told[0] = told[1] = 0;
        told[2] = 2;
        status = lens_exact_effects(&ctx, &got, &second, odd, &d);
    }
    CHECKF(status == ATTN_OK && n > 4, "%s after %d calls", attn_status_name(status), n);
    same_bits(got, whole, "effects");
    CHECK(state.n_pairs == 2 && memcmp(&first, &second, sizeof first) == 0);
}

/* The bits of an effect do not depend on the others of its batch, nor on the order: every third edge first, in
 * batches of their own, and then the rest. */
TEST(other_batches)
{
    const lens_pair pair = pair_on(odd, 1, 2);
    const size_t n = lens_exact_count(odd, 0);
    SCOPED_CTX ctx = alone();
    attn_tensor whole = no_tensor, got = no_tensor;
    lens_exact_state part = state_of(odd), rest = state_of(odd);
    lens_exact_desc d = {.pairs = &pair, .n_pairs = 1};
    OK(&ctx, lens_exact_effects(&ctx, &whole, NULL, odd, &d));
    for (size_t i = 0; i < n; i++) {
        part.done[i] = i % 3 != 0;
        rest.done[i] = i % 3 == 0;
    }
    d.state = &part;
    OK(&ctx, lens_exact_effects(&ctx, &got, NULL, odd, &d));
    memcpy(rest.values, got.data, n * sizeof(float));
    d.state = &rest;
    OK(&ctx, lens_exact_effects(&ctx, &got, NULL, odd, &d));
    same_bits(got, whole, "effects");
}

typedef struct peak {
    size_t live, most;
} peak;

static void *peak_alloc(size_t size, void *user)
{
    peak *const p = (peak *)user;
    size_t *const block = (size_t *)malloc(size + 64);
    if (!block)
        return NULL;
    block[0] = size;
    p->live += size;
    p->most = p->live > p->most ? p->live : p->most;
    return (char *)block + 64;
}

static void peak_free(void *memory, void *user)
{
    peak *const p = (peak *)user;
    size_t *const block = (size_t *)(void *)((char *)memory - 64);
    p->live -= block[0];
    free(block);
}

/* What lens_exact_size says is at least what is taken, and less than three times that. */
TEST(memory_of_effects)
{
    lens_pair pair = pair_on(odd, 1, 2);
    peak p = {0, 0};
    SCOPED_CTX ctx = alone();
    attn_tensor got = no_tensor;
    double bytes;
    ctx.alloc = peak_alloc;
    ctx.free = peak_free;
    ctx.user = &p;
    lens_exact_desc d = {.pairs = &pair, .n_pairs = 1};
    for (d.of_nodes = 0; d.of_nodes < 2; d.of_nodes++) {
        pair.metric.kind = d.of_nodes ? LENS_METRIC_LOSS : LENS_METRIC_LOGIT;
        pair.metric.against = 0;
        pair.metric.token = d.of_nodes ? 0 : 5;
        bytes = 0;
        p.most = p.live;
        OK(&ctx, lens_exact_size(&ctx, &bytes, odd, &d));
        OK(&ctx, lens_exact_effects(&ctx, &got, NULL, odd, &d));
        CHECKF((double)p.most <= bytes && bytes < 3 * (double)p.most, "%.0f bytes said, %.0f taken",
               bytes, (double)p.most);
        attn_tensor_free(&ctx, &got);
    }
    CHECK(p.live == 0);
}

TEST(exact_refused)
{
    lens_pair pair = pair_on(odd, 1, 0);
    SCOPED_CTX ctx = alone();
    lens_exact_desc d = ATTN_ZERO;
    lens_exact_state state;
    REFUSED(ARGUMENT, "no pair", lens_exact_effects(&ctx, &not_made, NULL, odd, &d));
    d.pairs = &pair;
    d.n_pairs = 1;
    REFUSED(ARGUMENT, "no description", lens_exact_effects(&ctx, &not_made, NULL, odd, NULL));
    memset(&state, 0, sizeof state);
    d.state = &state;
    REFUSED(ARGUMENT, "no arrays", lens_exact_effects(&ctx, &not_made, NULL, odd, &d));
    state = state_of(odd);
    state.n_pairs = 2;
    REFUSED(ARGUMENT, "2 pairs", lens_exact_effects(&ctx, &not_made, NULL, odd, &d));
    d.state = NULL;
    attn_edit edit = {.name = "blocks.1.hook_resid_mid", .kind = ATTN_EDIT_ZERO};
    d.edits = &edit;
    d.n_edits = 1;
    REFUSED(ARGUMENT, "no sum", lens_exact_effects(&ctx, &not_made, NULL, odd, &d));
}
