/* What holds for every function of tools/lens that computes: one table of calls, and one case for each property. */
#include "tests/support/lens_fixtures.h"
#include "tools/lens/circuits.h"
#include "tools/lens/curve.h"
#include "tools/lens/decompose.h"
#include "tools/lens/detect.h"
#include "tools/lens/edges.h"
#include "tools/lens/exact.h"
#include "tools/lens/heads.h"
#include "tools/lens/interaction.h"
#include "tools/lens/pairs.h"
#include "tools/lens/patch.h"
#include "tools/lens/paths.h"
#include "tools/lens/process_weights.h"
#include "tools/lens/prune.h"
#include "tools/lens/qk.h"
#include "tools/lens/spectrum.h"
#include "tools/lens/steering.h"

SUITE_WITH_MODELS("odd");

enum { LENGTH = 5 };
static const int32_t clean[LENGTH] = {3, 1, 4, 1, 5}, corrupted[LENGTH] = {3, 1, 9, 1, 5};
static const lens_pair pair = {
    clean, corrupted, LENGTH, {LENS_METRIC_LOGIT, 2, 0, 0, NULL, NULL, NULL}};
static const lens_head head = {1, 2};

/* Makes *out a tensor of the bytes of another answer, so that the loops below compare all answers alike. */
static attn_status made_of(attn_ctx *ctx, attn_status status, attn_tensor *out, const void *bytes,
                           size_t size)
{
    return status ? status
                  : attn_copy(ctx, out, attn_borrow(bytes, ATTN_F32, attn_shape1(size / 4)));
}

static attn_status decompose(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    const lens_parts_desc what = {.kind = LENS_PARTS_HEADS, .tokens = clean, .n_tokens = LENGTH};
    return lens_decompose(ctx, out, NULL, b->model, &what);
}

static attn_status neurons(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    const lens_parts_desc what = {.kind = LENS_PARTS_NEURONS,
                                  .tokens = clean,
                                  .n_tokens = LENGTH,
                                  .apply_ln = 1,
                                  .project = attn_transpose(expected(1, "directions"), 0, 1)};
    return lens_decompose(ctx, out, NULL, b->model, &what);
}

static attn_status gradients(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    static const char *const name = "blocks.0.hook_resid_pre";
    const lens_gradients_desc what = {
        .tokens = clean, .n_tokens = LENGTH, .names = &name, .n_names = 1, .metric = pair.metric};
    attn_record *made = NULL;
    attn_tensor all = ATTN_ZERO;
    attn_status status = lens_gradients(ctx, out ? &made : NULL, NULL, b, &what);
    CHECK((status == ATTN_OK) == (made != NULL));
    if (status == ATTN_OK)
        status = attn_record_get(ctx, &all, made, name);
    if (status == ATTN_OK)
        status = attn_copy(ctx, out, all);
    attn_record_free(made);
    return status;
}

static attn_status patch(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    const lens_patch_desc what = {.pairs = &pair, .n_pairs = 1, .name = "hook_resid_pre"};
    return lens_patch(ctx, out, NULL, b->model, &what);
}

static attn_status patch_heads(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    const lens_patch_desc what = {
        .pairs = &pair, .n_pairs = 1, .name = "attn.hook_z", .kind = LENS_PATCH_HEADS};
    return lens_patch(ctx, out, NULL, b->model, &what);
}

static attn_status ablate_heads(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    const lens_ablate_desc what = {.pairs = &pair, .n_pairs = 1};
    double changes[9], whole;
    const attn_status status =
        lens_ablate_heads(ctx, out ? changes : NULL, &whole, b->model, &what);
    return made_of(ctx, status, out, changes, sizeof changes);
}

static attn_status paths(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    static const lens_sender sender = {LENS_SENDER_HEAD, 0, 1};
    static const lens_receiver receiver = {1, "hook_q_input", 0};
    const lens_paths_desc what = {.pairs = &pair,
                                  .n_pairs = 1,
                                  .senders = &sender,
                                  .n_senders = 1,
                                  .receivers = &receiver,
                                  .n_receivers = 1};
    return lens_patch_paths(ctx, out, NULL, b->model, &what);
}

static attn_status edge_scores(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    return lens_edge_scores(ctx, out, b, &pair, 1, 2);
}

static attn_status scores_by_rules(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    b->rules = LENS_RULES_GIM;
    const attn_status status = lens_edge_scores(ctx, out, b, &pair, 1, 1);
    b->rules = 0;
    return status;
}

/* Scores [S, R] that differ, of no run. */
static attn_tensor any_scores(const attn_model *model, float step)
{
    const lens_graph g = lens_graph_of(model);
    const size_t shape[2] = {g.n_senders, g.n_receivers};
    attn_tensor x = new_tensor(ATTN_F32, 2, shape, LAYOUT_DENSE);
    for (size_t i = 0; i < count_of(x); i++)
        set_value(x, i, (float)(i * 7 % 31) * step);
    return x;
}

static attn_status run_edges(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    float value = 0;
    const attn_status status =
        lens_run_edges(ctx, out ? &value : NULL, b, &pair, any_scores(odd, 0));
    return made_of(ctx, status, out, &value, sizeof value);
}

static attn_status curve(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    lens_curve found = ATTN_ZERO;
    const attn_status status = lens_edge_curve(ctx, out ? &found : NULL, b, &pair, 1,
                                               any_scores(odd, 1), LENS_CURVE_HELPFUL);
    return made_of(ctx, status, out, found.faithfulness, sizeof found.faithfulness);
}

static attn_status prune(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    const lens_prune_desc what = {
        .pairs = &pair, .n_pairs = 1, .amount = 0.1, .scores = any_scores(odd, 1)};
    lens_pruned found = ATTN_ZERO;
    const attn_status status = lens_prune(ctx, out ? &found : NULL, b, &what);
    CHECK((status == ATTN_OK) == (found.edges != NULL));
    attn_free(found.edges);
    return made_of(ctx, status, out, &found.clean, 2 * sizeof found.clean);
}

static attn_status attribution(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    return lens_attribution_patch(ctx, out, b, &pair, "attn.hook_z");
}

static attn_status exact_nodes(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    const lens_exact_desc what = {.pairs = &pair, .n_pairs = 1, .of_nodes = 1};
    return lens_exact_effects(ctx, out, NULL, b->model, &what);
}

static const size_t nodes[] = {0, 5, 6};
static const lens_joint_desc joint = {.pairs = &pair, .n_pairs = 1, .nodes = nodes, .n_nodes = 3};

static attn_status interactions(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    return lens_interactions(ctx, out, NULL, b->model, &joint);
}

static attn_status shapley(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    return lens_shapley(ctx, out, NULL, b->model, &joint);
}

/* Entropies and scores, of which either may be left out. */
static attn_status detect_heads(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    attn_tensor entropy = ATTN_ZERO;
    const attn_status status =
        lens_detect_heads(ctx, out ? &entropy : NULL, out, b->model, clean, LENGTH);
    CHECK(status == ATTN_OK || entropy.ndim == 0);
    attn_tensor_free(ctx, &entropy);
    return status;
}

static attn_status detect_head(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    const lens_detect_desc what = {.tokens = clean, .n_tokens = LENGTH};
    return lens_detect_head(ctx, out, b->model, &what);
}

static attn_status qk_terms(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    static const lens_qk which = {clean, LENGTH, 1, 0, 3, 2};
    return lens_qk_terms(ctx, out, b->model, &which);
}

static attn_status steering_vector(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    static const lens_tokens texts[2] = {{clean, LENGTH}, {corrupted, LENGTH}};
    return lens_steering_vector(ctx, out, b->model, "blocks.1.hook_resid_pre", &texts[0],
                                &texts[1]);
}

static attn_status logit_lens(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    return lens_logit_lens(ctx, out, b->model, expected(1, "parts.0"), expected(1, "scale"),
                           no_tensor);
}

static attn_status some_logits(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    return lens_logit_lens(ctx, out, b->model, expected(1, "parts.0"), no_tensor,
                           attn_borrow(clean, ATTN_I32, attn_shape1(LENGTH)));
}

static attn_status logit_attrs(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    return lens_logit_attrs(ctx, out, b->model, expected(1, "parts.0"), expected(1, "scale"),
                            expected(1, "directions"));
}

static attn_status bias_logit_attrs(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    return lens_bias_logit_attrs(ctx, out, b->model, clean, corrupted, LENGTH);
}

/* Both factors, one behind the other. */
static attn_status circuit(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    attn_tensor left = ATTN_ZERO;
    const attn_status status =
        lens_circuit(ctx, out ? &left : NULL, out, b->model, head, LENS_CIRCUIT_OV);
    CHECK(status == ATTN_OK || left.ndim == 0);
    attn_tensor_free(ctx, &left);
    return status;
}

static attn_status singular_values(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    const attn_tensor post = expected(1, "post");
    (void)b;
    return lens_singular_values(ctx, out, post, attn_transpose(post, 0, 1));
}

static attn_status singular_vectors(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    const attn_tensor post = expected(1, "post");
    lens_svd svd = ATTN_ZERO;
    attn_status status =
        lens_singular_vectors(ctx, out ? &svd : NULL, post, attn_transpose(post, 0, 1));
    (void)b;
    CHECK(status == ATTN_OK || (!svd.u.ndim && !svd.s.ndim && !svd.v.ndim));
    if (status == ATTN_OK)
        status = attn_copy(ctx, out, svd.u);
    attn_tensor_free(ctx, &svd.u);
    attn_tensor_free(ctx, &svd.s);
    attn_tensor_free(ctx, &svd.v);
    return status;
}

static attn_status composition_scores(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    return lens_composition_scores(ctx, out, b->model, LENS_COMPOSE_V);
}

static attn_status ov_eigenvalues(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    return lens_ov_eigenvalues(ctx, out, b->model, LENS_OV_TOKENS);
}

static attn_status pattern_entropy(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    (void)b;
    return lens_pattern_entropy(ctx, out, expected(1, "pattern"));
}

static attn_status head_keys(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    (void)b;
    return lens_head_keys(ctx, out, LENS_HEAD_INDUCTION, clean, LENGTH);
}

static attn_status head_score(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    const attn_tensor pattern = expected(1, "pattern");
    (void)b;
    return lens_head_score(ctx, out, pattern, attn_select(pattern, 0, 0));
}

static attn_status logit_directions(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    return attn_logit_directions(ctx, out, b->model, clean, corrupted, LENGTH);
}

/* The bytes of the file that it is saved to. */
static attn_status process_weights(attn_ctx *ctx, attn_tensor *out, lens_backward *b)
{
    attn_model *made = NULL;
    size_t size = 0;
    attn_status status = lens_process_weights(ctx, out ? &made : NULL, b->model, 7);
    CHECK((status == ATTN_OK) == (made != NULL));
    if (status == ATTN_OK)
        status = lens_model_save(ctx, test_tmp("made.attn"), made);
    attn_model_close(made);
    void *const file = status ? NULL : test_read(test_tmp("made.attn"), &size);
    status = made_of(ctx, status, out, file, size);
    free(file);
    return status;
}

/* What a function takes. */
enum {
    NO_MODEL = 0,
    A_MODEL = 1,
    PASSES = A_MODEL | 2, /* of the model, which can be stopped */
    MAYBE_A_PLACE = 4     /* for its result, which may be left out */
};

static const struct {
    const char *name;
    attn_status (*call)(attn_ctx *ctx, attn_tensor *out, lens_backward *b);
    int takes;
} calls[] = {{"decompose", decompose, PASSES},
             {"neurons", neurons, PASSES},
             {"gradients", gradients, PASSES},
             {"patch", patch, PASSES},
             {"patch_heads", patch_heads, PASSES},
             {"ablate_heads", ablate_heads, PASSES},
             {"paths", paths, PASSES},
             {"edge_scores", edge_scores, PASSES},
             {"scores_by_rules", scores_by_rules, PASSES},
             {"run_edges", run_edges, PASSES},
             {"curve", curve, PASSES},
             {"prune", prune, PASSES},
             {"attribution", attribution, PASSES},
             {"exact_nodes", exact_nodes, PASSES},
             {"interactions", interactions, PASSES},
             {"shapley", shapley, PASSES},
             {"detect_heads", detect_heads, PASSES | MAYBE_A_PLACE},
             {"detect_head", detect_head, PASSES},
             {"qk_terms", qk_terms, PASSES},
             {"steering_vector", steering_vector, PASSES},
             {"logit_lens", logit_lens, A_MODEL},
             {"some_logits", some_logits, A_MODEL},
             {"logit_attrs", logit_attrs, A_MODEL},
             {"bias_logit_attrs", bias_logit_attrs, A_MODEL},
             {"circuit", circuit, A_MODEL},
             {"singular_values", singular_values, NO_MODEL},
             {"singular_vectors", singular_vectors, NO_MODEL},
             {"composition_scores", composition_scores, A_MODEL},
             {"ov_eigenvalues", ov_eigenvalues, A_MODEL},
             {"pattern_entropy", pattern_entropy, NO_MODEL},
             {"head_keys", head_keys, NO_MODEL},
             {"head_score", head_score, NO_MODEL},
             {"logit_directions", logit_directions, A_MODEL},
             {"process_weights", process_weights, A_MODEL}};
enum { N_CALLS = sizeof calls / sizeof calls[0] };

/* An allocator that asks to stop at its n-th call. */
static int stop, countdown;

static void *count_down(size_t size, void *user)
{
    (void)user;
    stop |= countdown-- == 0;
    return malloc(size);
}

static void free_block(void *block, void *user)
{
    (void)user;
    free(block);
}

/* A stopped call says so by its status alone, and makes nothing. Later in the call, the stop comes after
 * the last layer, and the call ends as without it. */
TEST(stopped_anywhere)
{
    SCOPED_CTX ctx = alone();
    lens_backward backward = ATTN_ZERO;
    OK(&ctx, lens_backward_new(&ctx, &backward, odd));
    for (size_t i = 0; i < N_CALLS; i++) {
        int n, n_stopped = 0;
        for (n = 0, stop = 1; stop && calls[i].takes & 2; n++) {
            SCOPED_CTX stopped = alone();
            attn_tensor out = ATTN_ZERO;
            stopped.alloc = count_down;
            stopped.free = free_block;
            stopped.stop_flag = &stop;
            stopped.status = ATTN_E_IO; /* of an earlier call */
            stop = 0;
            countdown = n;
            attn_status status = calls[i].call(&stopped, &out, &backward);
            CHECKF(stopped.status == ATTN_E_IO &&
                       (status == ATTN_OK || (status == ATTN_STOPPED && stop)),
                   "%s, stopped at allocation %d: returned %s, with status %s: %s", calls[i].name,
                   n, attn_status_name(status), attn_status_name(stopped.status), stopped.message);
            CHECKF(status == ATTN_OK || out.ndim == 0, "%s made a tensor", calls[i].name);
            n_stopped += status == ATTN_STOPPED;
            attn_tensor_free(&stopped, &out);
            CHECKF(!stopped.blocks, "%s leaked", calls[i].name);
            pool_clear();
        }
        CHECKF(n_stopped > 2 || !(calls[i].takes & 2), "%s: stopped at %d of %d allocations",
               calls[i].name, n_stopped, n);
    }
    lens_backward_free(&ctx, &backward);
}

typedef struct asked {
    size_t call;
    lens_backward *backward;
} asked;

static attn_status ask(attn_ctx *ctx, attn_tensor *out, const void *of)
{
    const asked *const a = (const asked *)of;
    return calls[a->call].call(ctx, out, a->backward);
}

TEST(without_memory)
{
    SCOPED_CTX ctx = alone();
    lens_backward backward = ATTN_ZERO;
    OK(&ctx, lens_backward_new(&ctx, &backward, odd));
    for (size_t i = 0; i < N_CALLS; i++) {
        const asked a = {i, &backward};
        CHECKF(fail_each_allocation(ask, &a) > 0, "%s", calls[i].name);
        pool_clear();
    }
    lens_backward_free(&ctx, &backward);
}

/* The same bits on every instruction set and for any number of threads. */
TEST(same_everywhere)
{
    SCOPED_CTX own = alone();
    lens_backward backward = ATTN_ZERO;
    OK(&own, lens_backward_new(&own, &backward, odd));
    for (size_t i = 0; i < N_CALLS; i++) {
        attn_tensor want = no_tensor;
        SCOPED_CTX first = alone();
        first.isa = ATTN_ISA_PORTABLE;
        OK(&first, calls[i].call(&first, &want, &backward));
        for (int kind = ATTN_ISA_AUTO; kind <= ATTN_ISA_NEON_I8MM; kind++) {
            attn_tensor got = no_tensor;
            SCOPED_CTX ctx = alone();
            ctx.isa = (attn_isa_kind)kind;
            ctx.n_threads = kind == ATTN_ISA_AUTO ? 3 : 1 + kind % 3;
            if (attn_isa(&ctx) && !strstr(attn_isa(&ctx), "no fused") &&
                OK(&ctx, calls[i].call(&ctx, &got, &backward)))
                same_bits(got, want, calls[i].name);
        }
        pool_clear();
    }
    lens_backward_free(&own, &backward);
}

/* Without a model, and without a place for the result. */
TEST(nothing_given)
{
    SCOPED_CTX ctx = alone();
    lens_backward backward = ATTN_ZERO, none = ATTN_ZERO;
    OK(&ctx, lens_backward_new(&ctx, &backward, odd));
    for (size_t i = 0; i < N_CALLS; i++) {
        attn_tensor out = no_tensor;
        CHECKF(calls[i].takes == NO_MODEL ||
                   (calls[i].call(&ctx, &out, &none) == ATTN_E_ARGUMENT && out.ndim == 0 &&
                    (strstr(ctx.message, "no model") || strstr(ctx.message, "no lens_backward"))),
               "%s without a model: %s", calls[i].name, ctx.message);
        ctx.status = ATTN_OK;
        CHECKF(calls[i].takes & MAYBE_A_PLACE ||
                   (calls[i].call(&ctx, NULL, &backward) == ATTN_E_ARGUMENT &&
                    strstr(ctx.message, "no place")),
               "%s without a place: %s", calls[i].name, ctx.message);
        ctx.status = ATTN_OK;
    }
    lens_backward_free(&ctx, &backward);
}
