/* GIM's rules of the backward pass (tools/lens/gradients.h, pairs.h, edges.h) against gim-explain on HookedTransformer
 * in float64 (makers/make_gim_fixtures.py), on a model of odd sizes: by all three rules and by each alone. */
#define FIXTURE_FILE "tests/fixtures/gim.bin"
#include "tests/support/refused.h"
#include "tools/lens/edges.h"
#include "tests/support/shared_models.h"

SUITE_WITH_MODELS("narrow");

static const struct {
    const char *name;
    int rules;
    size_t n_least; /* of gradients that the fixtures have */
} methods[] = {{"gim", LENS_RULES_GIM, 80},
               {"gim-norm", LENS_RULE_NORM, 8},
               {"gim-softmax", LENS_RULE_SOFTMAX, 8},
               {"gim-qkv", LENS_RULE_QKV, 8}};
enum { N_METHODS = sizeof methods / sizeof methods[0] };

static lens_pair two_texts(void)
{
    const attn_tensor clean = fixture_tensor("tokens"), corrupted = fixture_tensor("corrupted");
    lens_pair pair = {.clean = (const int32_t *)clean.data,
                      .corrupted = (const int32_t *)corrupted.data,
                      .n_tokens = clean.shape[0],
                      .metric.kind = LENS_METRIC_LOGIT_DIFF};
    pair.metric.token = (pair.clean[0] + 1) % 43;
    pair.metric.against = (pair.clean[pair.n_tokens - 1] + 3) % 43;
    return pair;
}

static lens_backward backward_by(attn_ctx *ctx, int rules)
{
    lens_backward b = ATTN_ZERO;
    OK(ctx, lens_backward_new(ctx, &b, narrow));
    b.rules = rules;
    return b;
}

/* The gradients of every activation, those on request too, of the first text. */
static attn_record *gradients_by(attn_ctx *ctx, lens_backward *b)
{
    const lens_pair pair = two_texts();
    const lens_gradients_desc d = lens_text_of(&pair, pair.clean, every_name, N_EVERY_NAME);
    attn_record *made = NULL;
    OK(ctx, lens_gradients(ctx, &made, NULL, b, &d));
    return made;
}

/* Compares the gradients with the fixtures of a method, but for names with `not_in` (may be NULL), and gives how many
 * there are. */
static size_t compare(attn_ctx *ctx, const attn_record *made, const char *method,
                      const char *not_in)
{
    attn_tensor want, got = no_tensor;
    size_t n = 0;
    for (size_t i = 0; made && i < attn_record_n_activations(made); i++) {
        const char *const name = attn_record_name(made, i);
        if ((not_in && strstr(name, not_in)) || !fixture(&want, "%s.%s", method, name))
            continue;
        OK(ctx, attn_record_get(ctx, &got, made, name));
        close_to(got, want, 1e-5, name);
        n++;
    }
    return n;
}

TEST(rules_of_gim)
{
    for (int i = 0; i < N_METHODS; i++) {
        attn_ctx ctx = alone();
        lens_backward b = backward_by(&ctx, methods[i].rules);
        attn_record *made = gradients_by(&ctx, &b);
        const size_t n = compare(&ctx, made, methods[i].name, NULL);
        CHECKF(n >= methods[i].n_least, "%s: %d gradients", methods[i].name, (int)n);
        if (made && i == 0)
            EQUAL(n, attn_record_n_activations(made)); /* gim-explain has each of them */
        attn_record_free(made);
        lens_backward_free(&ctx, &b);
        done(&ctx);
    }
}

TEST(estimates_by_gim)
{
    static const char *const names[] = {"hook_resid_pre", "attn.hook_q"};
    const lens_pair pair = two_texts();
    SCOPED_CTX ctx = alone();
    lens_backward b = backward_by(&ctx, 0);
    attn_tensor got = no_tensor;
    for (int i = 0; i < N_METHODS; i++) {
        b.rules = methods[i].rules;
        OK(&ctx, lens_edge_scores(&ctx, &got, &b, &pair, 1, 1));
        close_to(got, fixture_tensor("%s.edges.1", methods[i].name), 1e-5, methods[i].name);
    }
    b.rules = LENS_RULES_GIM;
    OK(&ctx, lens_edge_scores(&ctx, &got, &b, &pair, 1, 3));
    close_to(got, fixture_tensor("gim.edges.3"), 1e-5, "GIM in three steps");
    for (int i = 0; i < 2; i++) {
        attn_tensor change = no_tensor;
        OK(&ctx, lens_attribution_patch(&ctx, &change, &b, &pair, names[i]));
        close_to(change, fixture_tensor("gim.patch.%s", names[i]), 1e-5, names[i]);
    }
    b.rules = LENS_RULES_GIM + 1;
    REFUSED(ARGUMENT, "rules of lens_backward are 8; expected bits of lens_rule, 0 to 7",
            lens_edge_scores(&ctx, &not_made, &b, &pair, 1, 1));
    REFUSED(ARGUMENT, "lens_edge_scores: steps is 1001; expected at most 1000",
            lens_edge_scores(&ctx, &not_made, &b, &pair, 1, LENS_MOST_STEPS + 1));
    b.rules = -1;
    REFUSED(ARGUMENT, "are -1;", lens_attribution_patch(&ctx, &not_made, &b, &pair, "attn.hook_q"));
    lens_backward_free(&ctx, &b);
}

/* Edits that multiply by 1 change no number, but take the formulas for edits. A copy of the stream that is edited is
 * none of ln1's. */
TEST(rules_under_edits)
{
    static const char *const names[] = {"*.hook_scale",       "blocks.1.hook_q_input",
                                        "*.hook_v_input",     "blocks.2.hook_attn_in",
                                        "*.attn.hook_result", "*.attn.hook_pattern"};
    static const size_t first[] = {0, 1, 6};
    float one = 1;
    attn_edit edits[6];
    size_t list;
    memset(edits, 0, sizeof edits);
    for (size_t i = 0; i < 6; i++) {
        edits[i].name = names[i];
        edits[i].kind = ATTN_EDIT_SCALE;
        edits[i].value = attn_borrow(&one, ATTN_F32, attn_shape1(1));
    }
    for (size_t i = 0; i < 2 * N_METHODS; i++) {
        attn_ctx ctx = alone();
        lens_backward b = backward_by(&ctx, methods[i / 2].rules);
        list = i % 2;
        b.edits = edits + first[list];
        b.n_edits = first[list + 1] - first[list];
        attn_record *made = gradients_by(&ctx, &b);
        CHECK(compare(&ctx, made, methods[i / 2].name, list ? ".ln1." : NULL) >= 8);
        attn_record_free(made);
        lens_backward_free(&ctx, &b);
        done(&ctx);
    }
}

/* Every number of two records is the same. */
static int same_numbers(attn_ctx *ctx, const attn_record *got, const attn_record *want,
                        const char *what)
{
    attn_tensor a = no_tensor, b = no_tensor;
    int same = got && want;
    for (size_t i = 0; same && i < attn_record_n_activations(want); i++) {
        OK(ctx, attn_record_get(ctx, &a, got, attn_record_name(want, i)));
        OK(ctx, attn_record_get(ctx, &b, want, attn_record_name(want, i)));
        same = same_bits(a, b, what);
    }
    return same;
}

/* A pass by rules leaves the plain ones as they were. */
TEST(plain_gradients_after_rules)
{
    SCOPED_CTX ctx = alone();
    attn_record *made[3];
    lens_backward b = backward_by(&ctx, 0);
    for (int i = 0; i < 3; i++) {
        b.rules = i == 1 ? LENS_RULES_GIM : 0;
        made[i] = gradients_by(&ctx, &b);
    }
    CHECK(same_numbers(&ctx, made[2], made[0], "plain gradients after GIM's"));
    for (int i = 0; i < 3; i++)
        attn_record_free(made[i]);
    lens_backward_free(&ctx, &b);
}
