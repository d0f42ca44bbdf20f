/* tools/lens/interaction.h against numpy in float64 (make_interaction_fixtures.py), on heads that stand in for each
 * other, and its rules. */
#define FIXTURE_FILE "tests/fixtures/exact/interactions.bin"
#include "tests/support/refused.h"
#include "tools/common/sha256.h"
#include "tools/lens/interaction.h"
#include "tools/write/writer.h"
#include "tests/support/patches.h"
#include "tests/support/repeats.h"
#include "tests/support/same_bits.h"
#include "tests/support/shared_models.h"

SUITE_WITH_MODELS("plain odd narrow");

#define PAIRS_DIGEST   "1ccfb135f5dec14232349be3be6f0e9bd8073372900125e38b705b1e652f91bd"
#define SHAPLEY_DIGEST "36f6e89a1d6318711551f98a51d3597c735b037c9334714d115fc9740d49568a"

enum { LENGTH = 6, NODES = 4 };

static lens_pair pair_on(const attn_model *model, uint64_t seed, size_t n_same)
{
    return pair_from(model, LENGTH, seed, n_same);
}

static lens_joint_desc about(const lens_pair *pairs, size_t n_pairs, const size_t *nodes,
                             size_t n_nodes)
{
    lens_joint_desc d = {.pairs = pairs, .n_pairs = n_pairs, .nodes = nodes, .n_nodes = n_nodes};
    return d;
}

/* ---- float64 ---- */

/* Numbers [n] are within 1e-5 of the largest, or within some roundings of a logit. */
static void check_numbers(const float *got, attn_tensor want, double scale, const char *what)
{
    const float *const x = (const float *)want.data;
    const size_t n = attn_count(want);
    double largest = 0;
    for (size_t k = 0; k < n; k++)
        largest = fmax(largest, fabs((double)x[k]));
    for (size_t k = 0; k < n; k++)
        CHECKF(fabs((double)got[k] - (double)x[k]) <= fmax(1e-5 * largest, scale),
               "%s %d: %.9g, expected %.9g", what, (int)k, (double)got[k], (double)x[k]);
    CHECK(largest > 1e-3 || largest == 0);
}

static void check_fixture(const attn_model *model, const char *name, int i)
{
    const attn_tensor clean = fixture_tensor("%s.%d.clean", name, i);
    const attn_tensor asked = fixture_tensor("%s.%d.metric", name, i);
    const attn_tensor effects = fixture_tensor("%s.%d.effects", name, i);
    const attn_tensor numbers = fixture_tensor("%s.%d.nodes", name, i);
    const size_t n = effects.shape[0], k = numbers.shape[0];
    size_t nodes[LENS_MOST_PLAYERS];
    float *const subsets = (float *)pool_new(sizeof(float) << k);
    lens_pair pair = ATTN_ZERO;
    lens_joint_desc d = about(&pair, 1, NULL, 0);
    lens_baseline whole = {0, 0};
    SCOPED_CTX ctx = alone();
    attn_tensor got = no_tensor;
    double sum = 0;
    pair.clean = (const int32_t *)clean.data;
    pair.corrupted = (const int32_t *)fixture_tensor("%s.%d.corrupted", name, i).data;
    pair.n_tokens = clean.shape[0];
    pair.metric.kind = (lens_metric_kind)arg_of(asked, 0);
    pair.metric.from_end = (size_t)arg_of(asked, 1);
    pair.metric.token = arg_of(asked, 2);
    pair.metric.against = arg_of(asked, 3);
    d.ablation = (lens_ablation)arg_of(fixture_tensor("%s.%d.ablation", name, i), 0);
    OK(&ctx, lens_interactions(&ctx, &got, &whole, model, &d));
    double scale = 4.8e-7 * fmax(fabs((double)whole.clean), 1);
    check_numbers((const float *)got.data, effects, scale, name);
    for (size_t a = 0; a < n; a++)
        for (size_t b = 0; b < n; b++)
            CHECK(
                fabs((double)attn_get3(got, 1, a, b) -
                     (a == b ? 0
                             : (double)attn_get2(effects, a, b) - (double)attn_get2(effects, a, a) -
                                   (double)attn_get2(effects, b, b))) < 1e-5 + 3 * scale);
    attn_tensor_free(&ctx, &got);
    for (size_t a = 0; a < k; a++)
        nodes[a] = (size_t)arg_of(numbers, a);
    d.nodes = nodes;
    d.n_nodes = k;
    d.subsets = subsets;
    OK(&ctx, lens_shapley(&ctx, &got, &whole, model, &d));
    check_numbers(subsets, fixture_tensor("%s.%d.subsets", name, i), scale, "set");
    check_numbers((const float *)got.data, fixture_tensor("%s.%d.shapley", name, i), scale,
                  "Shapley value");
    for (size_t a = 0; a < k; a++)
        sum += (double)attn_get2(got, a, a);
    CHECK(subsets[0] == 0 && fabs(sum - (double)subsets[((size_t)1 << k) - 1]) < 1e-5);
    attn_tensor_free(&ctx, &got);
}

TEST(joint_float64)
{
    SCOPED_MODEL const single = converted("tests/fixtures/exact/single", "single.attn", "");
    SCOPED_MODEL const uneven = converted("tests/fixtures/exact/uneven", "uneven.attn", "");
    check_fixture(plain, "plain", 0);
    check_fixture(odd, "odd", 0);
    check_fixture(odd, "odd", 1);
    check_fixture(narrow, "narrow", 0);
    if (single && uneven) {
        check_fixture(single, "single", 0);
        check_fixture(single, "single", 1);
        check_fixture(uneven, "uneven", 0);
        check_fixture(uneven, "uneven", 1);
    }
}

/* ---- heads that stand in for each other ---- */

/* A number of a model twice as wide, with twice the heads. The stream is there twice, and its second copy is not
 * read. In layer 0 head 2 is a copy of head 0, each with half the weight. The other new heads write nothing. */
static float doubled_number(attn_tensor x, const char *name, size_t row, size_t column)
{
    const int of_qkv = strstr(name, "_QKV") != NULL, of_heads = strstr(name, "W_O") != NULL;
    const int reads = of_qkv || strstr(name, "_in") || strstr(name, "W_U");
    const size_t width = 64, d = 32;
    size_t part = 0;
    float factor = 1;
    if (of_heads) {
        const int is_twin = strstr(name, "blocks.0") && (row / d == 0 || row / d == 2);
        factor = is_twin ? 0.5f : row < width ? 1.0f : 0.0f;
        row %= width;
    } else if (reads && x.ndim == 2) {
        factor = row < width ? 1.0f : 0.0f;
        row %= width;
    }
    if (of_qkv) {
        part = column / (2 * width);
        column %= 2 * width;
        factor = column < width + d ? factor : 0.0f;
    }
    if (of_qkv || !reads)
        column = part * width + column % width;
    return factor * (x.ndim == 1 ? attn_get1(x, column) : attn_get2(x, row, column));
}

/* Adds a tensor of the doubled model. */
static void add_doubled(attn_ctx *ctx, lens_writer *w, const attn_model *model, const char *name)
{
    const int reads = strstr(name, "_QKV") || strstr(name, "_in") || strstr(name, "W_U");
    const int is_wider = strstr(name, "_QKV") || !reads;
    attn_tensor x = no_tensor, y = no_tensor;
    OK(ctx, attn_model_tensor(ctx, &x, model, name));
    if (x.ndim == 3)
        x = attn_reshape(x, attn_shape2(64, 64)); /* W_O */
    size_t rows =
        x.ndim == 1 ? 1 : x.shape[0] * (x.ndim == 2 && (reads || strstr(name, "W_O")) ? 2 : 1);
    size_t columns = x.shape[x.ndim - 1] * (is_wider ? 2 : 1);
    OK(ctx, attn_zeros(ctx, &y, ATTN_F32,
                       x.ndim == 1 ? attn_shape1(columns) : attn_shape2(rows, columns)));
    for (size_t i = 0; i < rows * columns; i++)
        ((float *)y.data)[i] = doubled_number(x, name, i / columns, i % columns);
    OK(ctx, lens_writer_add(ctx, w, name, ATTN_F32, y));
    attn_tensor_free(ctx, &x);
    attn_tensor_free(ctx, &y);
}

static attn_model *doubled(attn_ctx *ctx, const attn_model *model)
{
    attn_config c = *attn_model_config(model);
    attn_model *made = NULL;
    lens_writer *w = NULL;
    CHECK(c.d_model == 64 && c.d_head == 32 && c.n_head == 2);
    c.d_model = 128;
    c.n_head = 4;
    c.tied = 0;
    OK(ctx, lens_writer_new(ctx, &w, NULL, &c, NULL, 0));
    for (size_t i = 0; i < model_n_tensors(model); i++)
        add_doubled(ctx, w, model, model_tensor_at(model, i).name);
    add_doubled(ctx, w, model, "unembed.W_U");
    OK(ctx, lens_writer_open(ctx, &made, w));
    lens_writer_free(w);
    return made;
}

/* The induction heads of layer 1 find their key by what head 0 of layer 0 writes, and half of it is enough to be
 * sure of the next token. */
TEST(redundant_heads)
{
    enum { N = 16 };
    const size_t twins[] = {1, 3}, head[] = {1};
    SCOPED_MODEL const m = converted("examples/induction", "induction-twins.attn", "");
    SCOPED_CTX ctx = alone();
    SCOPED_MODEL const twice = m ? doubled(&ctx, m) : NULL;
    attn_tensor one = no_tensor, both = no_tensor;
    lens_pair pairs[N];
    lens_joint_desc d = ATTN_ZERO;
    lens_baseline whole[2];
    if (!twice)
        return;
    for (size_t i = 0; i < N; i++) {
        pairs[i] = repeat_on(m, i);
        pairs[i].metric.kind = LENS_METRIC_LOG_PROB;
        pairs[i].metric.against = 0;
    }
    d = about(pairs, N, head, 1);
    d.ablation = LENS_ABLATION_ZERO;
    OK(&ctx, lens_interactions(&ctx, &one, &whole[0], m, &d));
    d.nodes = twins;
    d.n_nodes = 2;
    OK(&ctx, lens_interactions(&ctx, &both, &whole[1], twice, &d));
    double effect = (double)attn_get3(one, 0, 0, 0);
    double single = (double)attn_get3(both, 0, 0, 0);
    double interaction = (double)attn_get3(both, 1, 0, 1);
    CHECKF(fabs((double)(whole[0].clean - whole[1].clean)) < 1e-3 &&
               fabs(effect - (double)attn_get3(both, 0, 0, 1)) < 1e-3 &&
               fabs(single - (double)attn_get3(both, 0, 1, 1)) < 1e-3,
           "the doubled model is another one: %.6g, %.6g", effect,
           (double)attn_get3(both, 0, 0, 1));
    CHECKF(effect < -5 && fabs(single) < 0.02 * fabs(effect) && interaction < 0.95 * effect,
           "effect of the head %.3f, of one twin %.3f, interaction %.3f", effect, single,
           interaction);
}

/* ---- what must be true ---- */

/* The bits of an effect do not depend on the others of its batch. */
TEST(some_nodes)
{
    const size_t nodes[NODES] = {0, 3, 4, 7};
    const lens_pair pair = pair_on(odd, 1, 2);
    lens_joint_desc d = about(&pair, 1, NULL, 0);
    SCOPED_CTX ctx = alone();
    attn_tensor all = no_tensor, some = no_tensor;
    lens_baseline whole = {0, 0};
    float subsets[1 << NODES];
    OK(&ctx, lens_interactions(&ctx, &all, &whole, odd, &d));
    d.nodes = nodes;
    d.n_nodes = NODES;
    OK(&ctx, lens_interactions(&ctx, &some, NULL, odd, &d));
    for (size_t p = 0; p < 2; p++)
        for (size_t a = 0; a < NODES; a++)
            for (size_t b = 0; b < NODES; b++)
                CHECK(attn_get3(some, p, a, b) == attn_get3(all, p, nodes[a], nodes[b]));
    attn_tensor_free(&ctx, &some);
    d.subsets = subsets;
    OK(&ctx, lens_shapley(&ctx, &some, NULL, odd, &d));
    for (size_t a = 0; a < NODES; a++)
        for (size_t b = 0; b < NODES; b++)
            CHECK(subsets[1 << a | 1 << b] == attn_get3(all, 0, nodes[a], nodes[b]));
    CHECK(subsets[1] == whole.corrupted - whole.clean); /* the embeddings alone */
}

/* One node has the effect that exact.h gives it, and equal texts leave nothing to ablate. */
TEST(single_nodes)
{
    lens_pair pair = pair_on(odd, 1, 1);
    lens_joint_desc d = about(&pair, 1, NULL, 0);
    SCOPED_CTX ctx = alone();
    attn_tensor all = no_tensor, nodes = no_tensor;
    lens_exact_desc exact = {.pairs = &pair, .n_pairs = 1, .of_nodes = 1};
    OK(&ctx, lens_interactions(&ctx, &all, NULL, odd, &d));
    OK(&ctx, lens_exact_effects(&ctx, &nodes, NULL, odd, &exact));
    for (size_t i = 0; i < nodes.shape[0]; i++)
        CHECK(fabs((double)(attn_get3(all, 0, i, i) - attn_get1(nodes, i))) < 2e-6);
    pair.corrupted = pair.clean;
    OK(&ctx, lens_interactions(&ctx, &all, NULL, odd, &d));
    for (size_t i = 0; i < attn_count(all); i++)
        CHECK(((const float *)all.data)[i] == 0);
}

/* An edit that has no effect changes no bit, though all logits are computed then; one that has changes the effects. */
TEST(joint_edits)
{
    const size_t nodes[] = {1, 5, 8};
    const lens_pair pair = pair_on(odd, 1, 1);
    lens_joint_desc d = about(&pair, 1, nodes, 3);
    SCOPED_CTX ctx = alone();
    attn_tensor plainly = no_tensor, edited = no_tensor;
    float factor = 1;
    OK(&ctx, lens_shapley(&ctx, &plainly, NULL, odd, &d));
    attn_edit edit = {.name = "blocks.1.hook_mlp_out",
                      .kind = ATTN_EDIT_SCALE,
                      .value = attn_borrow(&factor, ATTN_F32, attn_shape2(1, 1))};
    d.edits = &edit;
    d.n_edits = 1;
    OK(&ctx, lens_shapley(&ctx, &edited, NULL, odd, &d));
    same_bits(edited, plainly, "Shapley values");
    factor = 3;
    OK(&ctx, lens_shapley(&ctx, &edited, NULL, odd, &d));
    CHECK(attn_get2(edited, 0, 0) != attn_get2(plainly, 0, 0));
}

/* Every row of `each` has the bits of the pair alone, and asking for rows changes no bit of the means. */
TEST(joint_numbers_of_every_pair)
{
    attn_status (*const calls[])(attn_ctx *, attn_tensor *, lens_baseline *, const attn_model *,
                                 const lens_joint_desc *) = {lens_interactions, lens_shapley};
    const size_t nodes[] = {2, 3, 8};
    lens_pair pairs[3];
    SCOPED_CTX ctx = alone();
    size_t n;
    for (size_t i = 0; i < 3; i++)
        pairs[i] = pair_on(odd, 1 + 2 * i, i);
    for (size_t c = 0; c < 2; c++) {
        lens_joint_desc d = about(pairs, 3, nodes, 3);
        attn_tensor means = no_tensor, again = no_tensor;
        lens_baseline whole = {0, 0};
        OK(&ctx, calls[c](&ctx, &means, NULL, odd, &d));
        n = attn_count(means);
        d.each = (float *)pool_new(3 * (2 + n) * sizeof *d.each);
        OK(&ctx, calls[c](&ctx, &again, NULL, odd, &d));
        same_bits(again, means, "means");
        for (size_t i = 0; i < 3; i++) {
            lens_joint_desc one = about(&pairs[i], 1, nodes, 3);
            OK(&ctx, calls[c](&ctx, &again, &whole, odd, &one));
            CHECK(memcmp(d.each + i * (2 + n), &whole, sizeof whole) == 0);
            CHECK(memcmp(d.each + i * (2 + n) + 2, again.data, n * sizeof(float)) == 0);
        }
        attn_tensor_free(&ctx, &means);
        attn_tensor_free(&ctx, &again);
    }
}

static attn_status interactions_of_odd(attn_ctx *ctx, attn_tensor *out, const void *desc)
{
    return lens_interactions(ctx, out, NULL, odd, (const lens_joint_desc *)desc);
}

static attn_status shapley_of_odd(attn_ctx *ctx, attn_tensor *out, const void *desc)
{
    return lens_shapley(ctx, out, NULL, odd, (const lens_joint_desc *)desc);
}

TEST(joint_bits)
{
    const size_t nodes[] = {0, 2, 4, 5, 9};
    const lens_pair pair = pair_on(odd, 1, 2);
    const lens_joint_desc all = about(&pair, 1, NULL, 0), some = about(&pair, 1, nodes, 5);
    same_digest(interactions_of_odd, &all, PAIRS_DIGEST);
    same_digest(shapley_of_odd, &some, SHAPLEY_DIGEST);
}

TEST(joint_progress_and_stop)
{
    lens_pair pairs[2];
    lens_joint_desc d = ATTN_ZERO;
    double told[3] = {0, 0, 0};
    SCOPED_CTX ctx = alone();
    attn_tensor got = no_tensor;
    pairs[0] = pair_on(odd, 1, 2);
    pairs[1] = pair_on(odd, 3, 1);
    d = about(pairs, 2, NULL, 0);
    d.progress = count_progress;
    d.user = told;
    OK(&ctx, lens_interactions(&ctx, &got, NULL, odd, &d));
    CHECK(fabs(told[0] - 1) < 1e-9 && told[1] > 3);
    attn_tensor_free(&ctx, &got);
    told[0] = told[1] = 0;
    told[2] = 2;
    CHECK(lens_interactions(&ctx, &got, NULL, odd, &d) == ATTN_STOPPED);
    CHECK(told[1] == 2 && got.ndim == 0 && ctx.status == ATTN_OK);
}

TEST(joint_refused)
{
    const size_t beyond[] = {1, 99}, twice[] = {1, 2, 2}, many[21] = {0};
    const lens_pair pair = pair_on(odd, 1, 0);
    lens_joint_desc d = ATTN_ZERO;
    SCOPED_CTX ctx = alone();
    REFUSED(ARGUMENT, "no pair", lens_interactions(&ctx, &not_made, NULL, odd, &d));
    REFUSED(ARGUMENT, "no description", lens_shapley(&ctx, &not_made, NULL, odd, NULL));
    d = about(&pair, 1, NULL, 0);
    REFUSED(ARGUMENT, "lens_shapley: 0 nodes; expected 1 to 20",
            lens_shapley(&ctx, &not_made, NULL, odd, &d));
    d.n_nodes = 2;
    REFUSED(ARGUMENT, "nodes[0] is -1; expected ascending numbers of 0 to 12",
            lens_interactions(&ctx, &not_made, NULL, odd, &d));
    d = about(&pair, 1, many, 21);
    REFUSED(ARGUMENT, "21 nodes", lens_shapley(&ctx, &not_made, NULL, odd, &d));
    d = about(&pair, 1, beyond, 2);
    REFUSED(ARGUMENT, "nodes[1] is 99", lens_shapley(&ctx, &not_made, NULL, odd, &d));
    d = about(&pair, 1, twice, 3);
    REFUSED(ARGUMENT, "nodes[2] is 2", lens_interactions(&ctx, &not_made, NULL, odd, &d));
    d = about(&pair, 1, twice, 2);
    d.ablation = (lens_ablation)3;
    REFUSED(ARGUMENT, "ablation is 3", lens_shapley(&ctx, &not_made, NULL, odd, &d));
    d.ablation = LENS_ABLATION_ZERO;
    attn_edit edit = {.name = "blocks.1.hook_resid_mid", .kind = ATTN_EDIT_ZERO};
    d.edits = &edit;
    d.n_edits = 1;
    REFUSED(ARGUMENT, "lens_shapley: an edit of blocks.1.hook_resid_mid leaves no sum",
            lens_shapley(&ctx, &not_made, NULL, odd, &d));
}
