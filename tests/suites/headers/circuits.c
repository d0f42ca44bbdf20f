/* tools/lens/circuits.h against numpy in float64 (make_lens_fixtures.py), and its rules. */
#include "tests/support/lens_fixtures.h"
#include "tests/support/refused.h"
#include "tools/lens/circuits.h"
#include "tests/support/patches.h"
#include "tools/lens/heads.h"
#include "tools/lens/edges.h"
#include "tools/lens/process_weights.h"
#include "tools/lens/refactor.h"

SUITE_WITH_MODELS("plain odd");

TEST(circuits)
{
    for (int i = 0; i < 2; i++) {
        SCOPED_CTX ctx = alone();
        const attn_model *const m = model_of(i);
        const attn_config *c = attn_model_config(m);
        for (int kind = 0; kind < 2; kind++) {
            const attn_tensor want = expected_n(i, "singular", kind);
            attn_tensor left = {0}, right = {0}, whole = {0};
            const lens_head last = {c->n_layer - 1, 1};
            OK(&ctx, lens_circuit(&ctx, &left, &right, m, last, (lens_circuit_kind)kind));
            OK(&ctx, attn_matmul(&ctx, &whole, left, right));
            close_to(attn_slice(whole, 0, 0, 16), expected(i, kind ? "ov" : "qk"), 1e-6, "circuit");
            for (size_t layer = 0; layer < c->n_layer; layer++)
                for (size_t head = 0; head < c->n_head; head++) {
                    const lens_head at = {layer, head};
                    attn_tensor values = {0};
                    OK(&ctx, lens_circuit(&ctx, &left, &right, m, at, (lens_circuit_kind)kind));
                    OK(&ctx, lens_singular_values(&ctx, &values, left, right));
                    close_to(values, attn_select(attn_select(want, 0, layer), 0, head), 1e-7,
                             "singular values");
                }
        }
        for (int kind = 0; kind < 3; kind++) {
            attn_tensor scores = {0};
            OK(&ctx, lens_composition_scores(&ctx, &scores, m, (lens_composition_kind)kind));
            close_to(scores, expected_n(i, "composition", kind), 1e-6, "composition");
        }
        pool_clear();
    }
}

/* A result that nobody zeroed is refused, and so is such an input. */
TEST(not_zeroed)
{
    static const unsigned char bytes[] = {1, 0x80, 0xa5, 0xff};
    SCOPED_CTX ctx = alone();
    attn_tensor out, same, values = {0};
    for (size_t i = 0; i < sizeof bytes; i++) {
        memset(&out, bytes[i], sizeof out);
        same = out;
        FAILS(ARGUMENT, "was the struct zeroed?",
              lens_composition_scores(&ctx, &out, model_of(0), LENS_COMPOSE_Q));
        CHECK(memcmp(&out, &same, sizeof out) == 0);
        FAILS(ARGUMENT, " dimensions and data type ",
              lens_singular_values(&ctx, &values, out, out));
    }
}

/* [[1, 1], [x, 0]] has sqrt(2) and, to x * x, x / sqrt(2): nothing of the small one may be lost in
 * the first column's length. */
TEST(a_small_singular_value)
{
    SCOPED_CTX ctx = alone();
    float x[4] = {1, 1, 1.5e-8f, 0}, one[4] = {1, 0, 0, 1};
    attn_tensor values = {0};
    OK(&ctx, lens_singular_values(&ctx, &values, attn_borrow(x, ATTN_F32, attn_shape2(2, 2)),
                                  attn_borrow(one, ATTN_F32, attn_shape2(2, 2))));
    CHECKF(fabs((double)attn_get1(values, 1) / (1.5e-8 * sqrt(0.5)) - 1) < 1e-6, "%g and %g",
           (double)attn_get1(values, 0), (double)attn_get1(values, 1));
}

/* left [m, r] becomes U · S^a and right [n, r] V · S^(1 - a): columns at right angles, of the lengths
 * that numpy's singular values say, with the product that they had. */
static void check_refactored(attn_ctx *ctx, attn_tensor left, attn_tensor right, attn_tensor values,
                             int even)
{
    const size_t r = left.shape[1];
    const double most = value_of(values, 0);
    attn_tensor before = {0}, after = {0}, x = {0}, y = {0}, angles = {0};
    OK(ctx, attn_scale(ctx, &x, left, 1));
    OK(ctx, attn_scale(ctx, &y, right, 1));
    OK(ctx, attn_matmul(ctx, &before, x, attn_transpose(y, 0, 1)));
    OK(ctx, lens_refactor(ctx, x, y, even));
    OK(ctx, attn_matmul(ctx, &after, x, attn_transpose(y, 0, 1)));
    close_to(after, before, 2e-6, "the product");
    for (size_t side = 0; side < 2; side++) {
        const attn_tensor f = side ? y : x;
        OK(ctx, attn_matmul(ctx, &angles, attn_transpose(f, 0, 1), f));
        for (size_t i = 0; i < r; i++)
            for (size_t j = 0; j < r; j++) {
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
    SCOPED_CTX ctx = alone();
    attn_tensor left, right, values;
    int i;
    for (i = 0; fixture(&left, "svd.%d.left", i); i++)
        for (int even = 0; even < 2; even++) {
            attn_tensor turned = {0};
            fixture(&right, "svd.%d.right", i);
            fixture(&values, "svd.%d.values", i);
            OK(&ctx, attn_copy(&ctx, &turned, attn_transpose(right, 0, 1)));
            check_refactored(&ctx, left, turned, values, even);
        }
    CHECK(i == 7);
}

/* The refactored model says the same, its value biases are 0, and each W_O turns without stretching. */
TEST(refactored_models)
{
    for (int i = 0; i < 2; i++) {
        SCOPED_CTX ctx = alone();
        const attn_model *const m = model_of(i);
        const attn_tensor tokens = expected(i, "tokens");
        const char *const path = test_tmp("refactored.attn");
        attn_model *made = NULL;
        attn_tensor logits, w_o = {0}, b_v = {0}, square = {0}, one = {0};
        OK(&ctx, lens_refactor_attention(&ctx, path, m));
        if (!OK(&ctx, attn_model_open(&ctx, &made, path, NULL)))
            continue;
        close_to(log_probabilities(&ctx, made, ids_of(tokens), tokens.shape[0], &logits),
                 log_probabilities(&ctx, m, ids_of(tokens), tokens.shape[0], &logits), 3e-6,
                 "log-probabilities");
        OK(&ctx, attn_model_tensor(&ctx, &b_v, made, "blocks.1.attn.b_V"));
        for (size_t j = 0; j < count_of(b_v); j++)
            CHECK(value_of(b_v, j) == 0);
        OK(&ctx, attn_model_tensor(&ctx, &w_o, made, "blocks.1.attn.W_O"));
        w_o = attn_select(w_o, 0, 1);
        OK(&ctx, attn_matmul(&ctx, &square, w_o, attn_transpose(w_o, 0, 1)));
        OK(&ctx, attn_zeros(&ctx, &one, ATTN_F32, attn_shape2(w_o.shape[0], w_o.shape[0])));
        for (size_t j = 0; j < w_o.shape[0]; j++)
            ((float *)one.data)[j * w_o.shape[0] + j] = 1;
        close_to(square, one, 1e-5, "W_O · W_Oᵀ");
        attn_model_close(made);
        FAILS(IO, "nowhere/", lens_refactor_attention(&ctx, "build/nowhere/x.attn", m));
        FAILS(ARGUMENT, "no model", lens_refactor_attention(&ctx, path, NULL));
        pool_clear();
    }
}

TEST(products)
{
    SCOPED_CTX ctx = alone();
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
}

TEST(bad_circuits)
{
    SCOPED_CTX ctx = alone();
    attn_tensor x = {0}, y = random_tensor(2, 3, 4), z = random_tensor(2, 3, 5);
    const lens_head first = {0, 0}, no_head = {0, 4}, no_layer = {2, 0};
    FAILS(ARGUMENT, "head is 4", lens_circuit(&ctx, &x, &x, plain, no_head, LENS_CIRCUIT_QK));
    FAILS(ARGUMENT, "kind is 2", lens_circuit(&ctx, &x, &x, plain, first, (lens_circuit_kind)2));
    FAILS(ARGUMENT, "layer 2", lens_circuit(&ctx, &x, &x, plain, no_layer, LENS_CIRCUIT_QK));
    FAILS(SHAPE, "[16, 64]", lens_circuit(&ctx, &x, &y, plain, first, LENS_CIRCUIT_QK));
    FAILS(SHAPE, "[3, 4] and right [3, 5]", lens_singular_values(&ctx, &x, y, z));
    FAILS(ARGUMENT, "kind 3", lens_composition_scores(&ctx, &x, plain, (lens_composition_kind)3));
    CHECK(x.ndim == 0 && ctx.blocks == NULL);
}

TEST(circuits_refused)
{
    SCOPED_CTX ctx = {0};
    const attn_tensor v = some(1, 64, 1, 1), m = some(2, 3, 64, 1), scale = some(2, 3, 1, 1);
    const lens_head first = {0, 0};
    attn_tensor x = no_tensor;
    float number = 0;
    REFUSED(ARGUMENT, "left", lens_singular_values(&ctx, &not_made, no_tensor, m));
    REFUSED(ARGUMENT, "right", lens_singular_values(&ctx, &not_made, m, no_tensor));
    REFUSED(SHAPE, "expected [m, r]", lens_singular_values(&ctx, &not_made, v, m));
    REFUSED(SHAPE, "expected [m, r]", lens_singular_values(&ctx, &not_made, m, v));
    REFUSED(SHAPE, "expected [m, r]", lens_singular_values(&ctx, &not_made, m, m));
    {
        attn_tensor tall = attn_borrow(&number, ATTN_F32, attn_shape2(1, 1));
        tall.shape[0] = SIZE_MAX / 8;
        tall.stride[0] = tall.stride[1] = 0;
        REFUSED(MEMORY, "no memory for factors",
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
    FAILS(ARGUMENT, "no place", lens_circuit(&ctx, &x, NULL, plain, first, LENS_CIRCUIT_OV));
    EQUAL(x.ndim, 0);
}

/* ---- a model whose circuit is known: examples/induction ----
 *
 * Head 0 of layer 0 looks at the previous token; both heads of layer 1 find, by what it wrote, the
 * token that followed an earlier occurrence of this one, and copy it. Everything must say so. */

enum { N_TEXTS = 6, PERIOD = 20, KNOWN = 10, LENGTH = 1 + PERIOD + KNOWN + 1 };

/* Token 0, a phrase of different tokens, and half of it again: what follows is known. In the
 * corrupted text another token stands where the last one stood first. */
typedef struct repeats {
    int32_t clean[LENGTH], corrupted[LENGTH], right, wrong;
} repeats;

/* The tokens 1 to 127 in random order. */
static void shuffle(int32_t all[127], uint64_t seed)
{
    random_state = seed * 2 + 1;
    for (size_t i = 0; i < 127; i++)
        all[i] = (int32_t)i + 1;
    for (size_t i = 126; i > 0; i--) {
        const size_t j = random_below(i + 1);
        const int32_t was = all[i];
        all[i] = all[j];
        all[j] = was;
    }
}

static repeats repeats_of(uint64_t seed)
{
    int32_t all[127];
    repeats r;
    shuffle(all, seed);
    r.clean[0] = 0;
    for (size_t i = 1; i < LENGTH; i++)
        r.clean[i] = all[(i - 1) % PERIOD];
    memcpy(r.corrupted, r.clean, sizeof r.clean);
    r.corrupted[1 + KNOWN] = all[100];
    r.right = all[KNOWN + 1];
    r.wrong = all[KNOWN + 5];
    return r;
}

static lens_pair pair_of(const repeats *r)
{
    lens_pair p = {.clean = r->clean,
                   .corrupted = r->corrupted,
                   .n_tokens = LENGTH,
                   .metric.kind = LENS_METRIC_LOGIT_DIFF,
                   .metric.token = r->right,
                   .metric.against = r->wrong};
    return p;
}

/* What one method says of the heads, [layer][head]: the previous-token head before the other of its
 * layer, by more than twice, and both induction heads. `least` is the share that an induction head has. */
static void names_the_circuit(double by_head[2][2], double least, const char *method)
{
    CHECKF(by_head[0][0] > 2 * fabs(by_head[0][1]), "%s: layer 0 has %.3f and %.3f", method,
           by_head[0][0], by_head[0][1]);
    CHECKF(by_head[1][0] > least && by_head[1][1] > least, "%s: layer 1 has %.3f and %.3f", method,
           by_head[1][0], by_head[1][1]);
}

static void add_heads(double by_head[2][2], attn_tensor values, double less)
{
    for (size_t i = 0; i < 2; i++)
        for (size_t j = 0; j < 2; j++)
            by_head[i][j] += ((double)attn_get2(values, i, j) - less) / N_TEXTS;
}

/* [0, R, R] with forty different tokens R: the loss on the second R, with one head's result zeroed (layer
 * 2: none); where patterns [2] are wanted, those of both layers. */
enum { HALF = 40, TWICE = 1 + 2 * HALF };

static double loss_without(attn_ctx *ctx, const attn_model *m, const int32_t *ids, size_t layer,
                           size_t head)
{
    attn_session *session = session_on(ctx, m, 0, 0);
    attn_token_stats stats[TWICE - 1];
    const char *const name = test_text("blocks.%d.attn.hook_z", (int)layer);
    attn_edit off = {.name = name, .first_head = head, .n_heads = 1};
    if (layer < 2)
        OK(ctx, attn_hook_edit(ctx, NULL, session, &off));
    OK(ctx, attn_score(ctx, stats, NULL, session, ids, TWICE));
    double loss = attn_mean_nll(stats + HALF + 1, HALF - 1);
    attn_session_free(session);
    return loss;
}

/* The share of a layer's attention from the second R on that goes where a kind of head looks. */
static void score_heads(attn_ctx *ctx, double by_head[2], const attn_model *m, const int32_t *ids,
                        int layer, lens_head_kind kind)
{
    sight *const s = new_sight();
    attn_tensor keys = {0}, score = {0};
    const char *const name = test_text("blocks.%d.attn.hook_pattern", layer);
    hooked(m, ids, TWICE, TWICE, NULL, NULL, NULL, name, s);
    OK(ctx, lens_head_keys(ctx, &keys, kind, ids, TWICE));
    OK(ctx, lens_head_score(ctx, &score, attn_slice(latest(s, name), 1, HALF + 2, HALF - 1),
                            attn_slice(keys, 0, HALF + 2, HALF - 1)));
    for (size_t head = 0; head < 2; head++)
        by_head[head] += (double)attn_get1(score, head) / N_TEXTS;
}

static void detect_and_ablate(attn_ctx *ctx, const attn_model *m)
{
    double scores[2][2] = {{0}}, losses[2][2] = {{0}}, whole = 0;
    for (size_t text = 0; text < N_TEXTS; text++) {
        int32_t ids[TWICE] = {0}, all[127];
        shuffle(all, text);
        for (size_t t = 1; t < TWICE; t++)
            ids[t] = all[(t - 1) % HALF];
        score_heads(ctx, scores[0], m, ids, 0, LENS_HEAD_PREVIOUS);
        score_heads(ctx, scores[1], m, ids, 1, LENS_HEAD_INDUCTION);
        whole += loss_without(ctx, m, ids, 2, 0) / N_TEXTS;
        for (size_t i = 0; i < 4; i++)
            losses[i / 2][i % 2] += loss_without(ctx, m, ids, i / 2, i % 2) / N_TEXTS;
    }
    for (size_t i = 0; i < 4; i++)
        losses[i / 2][i % 2] -= whole;
    CHECKF(whole < 0.1, "the loss on the second R is %.3f", whole);
    names_the_circuit(scores, 0.9, "detection");
    CHECKF(scores[0][0] > 0.9, "the previous-token head has %.3f", scores[0][0]);
    names_the_circuit(losses, 0.1, "ablation");
}

/* Activation patching, its estimate, and paths into the keys of layer 1. */
static void patch_and_estimate(attn_ctx *ctx, const attn_model *m, lens_backward *b)
{
    static const char *const inputs[] = {"hook_q_input", "hook_k_input", "hook_v_input"};
    double patched[2][2] = {{0}}, estimated[2][2] = {{0}}, paths[3][2][2] = {{{0}}}, gap = 0;
    for (size_t text = 0; text < N_TEXTS; text++) {
        const repeats r = repeats_of(text);
        const lens_pair pair = pair_of(&r);
        lens_baseline whole;
        attn_tensor values = {0}, changes = {0};
        OK(ctx, patch_heads(ctx, &values, &whole, m, &pair, "attn.hook_z"));
        double whole_gap = (double)whole.clean - (double)whole.corrupted;
        gap += whole_gap / N_TEXTS;
        add_heads(patched, values, (double)whole.corrupted);
        OK(ctx, lens_attribution_patch(ctx, &changes, b, &pair, "attn.hook_z"));
        add_heads(estimated, changes, 0);
        for (size_t part = 0; part < 3; part++)
            for (size_t i = 0; i < 2; i++)
                for (size_t j = 0; j < 2; j++) {
                    one_path path = {{LENS_SENDER_HEAD, 0, 0}, 1, NULL, 0, LENS_MLPS_FROZEN};
                    float value = 0;
                    path.from.head = i;
                    path.to = inputs[part];
                    path.to_head = j;
                    OK(ctx, patch_path(ctx, &value, m, &pair, &path));
                    paths[part][i][j] += ((double)value - (double)whole.corrupted) / N_TEXTS;
                }
    }
    CHECKF(gap > 5, "a gap of %.3f", gap);
    names_the_circuit(patched, gap / 20, "patching");
    names_the_circuit(estimated, gap / 20, "attribution patching");
    for (size_t j = 0; j < 2; j++) /* from head 0 of layer 0 into the keys, by no other way */
        CHECKF(paths[1][0][j] > gap / 20 && paths[1][0][j] > 3 * fabs(paths[1][1][j]) &&
                   paths[1][0][j] > 3 * fabs(paths[0][0][j]) &&
                   paths[1][0][j] > 3 * fabs(paths[2][0][j]),
               "paths to head %d: keys %.3f and %.3f, queries %.3f, values %.3f", (int)j,
               paths[1][0][j], paths[1][1][j], paths[0][0][j], paths[2][0][j]);
}

/* The best edges are those of the circuit: from the previous-token head to the induction heads' keys,
 * and from these to the logits. */
static void find_edges(attn_ctx *ctx, const attn_model *m, lens_backward *b)
{
    const lens_graph g = lens_graph_of(m);
    repeats r[N_TEXTS];
    lens_pair pairs[N_TEXTS];
    attn_tensor scores = {0}, kept = {0};
    lens_edge *edges = (lens_edge *)pool_new(g.n_edges * sizeof *edges);
    size_t n_found = 0;
    for (size_t i = 0; i < N_TEXTS; i++) {
        r[i] = repeats_of(i);
        pairs[i] = pair_of(&r[i]);
    }
    OK(ctx, lens_edge_scores(ctx, &scores, b, pairs, N_TEXTS, 5));
    OK(ctx, lens_sort_edges(ctx, edges, m, scores));
    for (size_t i = 0; i < 8; i++) {
        const char *from = lens_sender_name(&g, edges[i].sender).text;
        const char *to = lens_receiver_name(&g, edges[i].receiver).text;
        for (size_t j = 0; j < 2; j++) {
            const char *const keys = j ? "a1.h1<k>" : "a1.h0<k>", *const head =
                                                                      j ? "a1.h1" : "a1.h0";
            n_found += (strcmp(from, "a0.h0") == 0 && strcmp(to, keys) == 0) ||
                       (strcmp(from, head) == 0 && strcmp(to, "logits") == 0);
        }
    }
    CHECKF(n_found == 4, "%d of the circuit's four edges are among the best eight", (int)n_found);
    (void)kept;
}

/* A hook that keeps row 1. */
static int keep_row(const attn_activation *a, void *user)
{
    memcpy(user, entry(a->value, 1, 0, 0), a->value.shape[1] * sizeof(float));
    return 0;
}

/* What layer 1 reads of each token by itself, normalized: x [128, C]. It is the embedding with what
 * head 1 of layer 0, which looks at its own position, and the MLP add to it. */
static attn_tensor read_of_tokens(attn_ctx *ctx, const attn_model *m)
{
    const size_t width = attn_model_config(m)->d_model;
    attn_tensor x = some(2, 128, width, 1);
    attn_edit off = {.name = "blocks.0.attn.hook_z", .n_heads = 1};
    for (size_t t = 0; t < 128; t++) {
        const int32_t ids[] = {0, (int32_t)t};
        SCOPED_SESSION session = session_on(ctx, m, 0, 0);
        OK(ctx, attn_hook_edit(ctx, NULL, session, &off));
        OK(ctx, attn_hook(ctx, NULL, session, "blocks.1.ln1.hook_normalized.post", keep_row,
                          entry(x, t, 0, 0)));
        OK(ctx, attn_feed(ctx, session, ids, 2));
    }
    return x;
}

/* K-composition, and the share of tokens whose own logit a head's W_OV raises most of all. */
static void compose_and_copy(attn_ctx *ctx, const attn_model *m)
{
    SCOPED_MODEL folded = NULL;
    attn_tensor scores[3] = {{0}}, embed = {0}, unembed = {0};
    double copies[2][2];
    size_t v;
    OK(ctx, lens_process_weights(ctx, &folded, m,
                                 LENS_PROCESS_FOLD_LN | LENS_PROCESS_CENTER_WRITING_WEIGHTS |
                                     LENS_PROCESS_CENTER_UNEMBED));
    for (size_t i = 0; i < 3; i++)
        OK(ctx, lens_composition_scores(ctx, &scores[i], folded, (lens_composition_kind)i));
    for (size_t j = 0; j < 2; j++)
        CHECKF(attn_get4(scores[1], 0, 0, 1, j) > attn_get4(scores[1], 0, 1, 1, j) &&
                   attn_get4(scores[1], 0, 0, 1, j) > attn_get4(scores[0], 0, 0, 1, j) &&
                   attn_get4(scores[1], 0, 0, 1, j) > attn_get4(scores[2], 0, 0, 1, j),
               "K-composition with head %d is not the largest", (int)j);
    embed = read_of_tokens(ctx, folded);
    OK(ctx, attn_model_tensor(ctx, &unembed, folded, "unembed.W_U"));
    for (size_t i = 0; i < 4; i++) {
        const lens_head head = {i / 2, i % 2};
        attn_tensor left = {0}, right = {0}, a = {0}, b = {0}, all = {0};
        size_t n = 0;
        OK(ctx, lens_circuit(ctx, &left, &right, folded, head, LENS_CIRCUIT_OV));
        OK(ctx, attn_matmul(ctx, &a, embed, left));
        OK(ctx, attn_matmul(ctx, &b, right, unembed));
        OK(ctx, attn_matmul(ctx, &all, a, b));
        for (size_t t = 1; t < 128; t++) {
            for (v = 0; v < 128 && !(attn_get2(all, t, v) > attn_get2(all, t, t)); v++)
                ;
            n += v == 128;
        }
        copies[i / 2][i % 2] = (double)n / 127;
    }
    CHECKF(copies[1][0] > 0.9 && copies[1][1] > 0.9 && copies[0][0] < 0.5 && copies[0][1] < 0.5,
           "copying scores: %.3f %.3f %.3f %.3f", copies[0][0], copies[0][1], copies[1][0],
           copies[1][1]);
}

TEST(a_known_circuit)
{
    SCOPED_MODEL const m = converted("examples/induction", "induction.attn", "");
    SCOPED_CTX ctx = alone();
    lens_backward b = ATTN_ZERO;
    if (!m)
        return;
    OK(&ctx, lens_backward_new(&ctx, &b, m));
    detect_and_ablate(&ctx, m);
    patch_and_estimate(&ctx, m, &b);
    find_edges(&ctx, m, &b);
    compose_and_copy(&ctx, m);
    lens_backward_free(&ctx, &b);
}
