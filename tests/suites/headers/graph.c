/* tools/lens/graph.h against numpy in float64, which carries each source forwards (make_graph_fixtures.py), and
 * its rules. */
#define FIXTURE_FILE "tests/fixtures/graph/graphs.bin"
#include "tests/support/fixture.h"
#include "tools/lens/graph_check.h"
#include "tools/lens/graph_prune.h"
#include "tools/lens/graph_files.h"
#include "tests/support/models.h"

static attn_model *model;
static lens_backward backward;
static attn_ctx shared;

static int open_model(void)
{
    model = converted("tests/fixtures/graph/model", "graph.attn", "");
    return model && OK(&shared, lens_backward_new(&shared, &backward, model));
}

static void close_model(void)
{
    lens_backward_free(&shared, &backward);
    attn_model_close(model);
    model = NULL;
    attn_ctx_free(&shared);
}

SUITE_WITH(open_model, close_model);

#define GRAPHS "tests/fixtures/graph/"

static int open_transcoder(attn_ctx *ctx, lens_sae *sae, const char *name, size_t layer)
{
    const char *const path = test_text(GRAPHS "%s/layer%d", name, (int)layer);
    return OK(ctx, lens_sae_open(ctx, sae, path));
}

/* Begins the graph of a case with the transcoders of some layers, bit by bit, the last one first. */
static int begin(attn_ctx *ctx, lens_feature_graph *g, const char *name, unsigned layers,
                 size_t keep)
{
    const attn_tensor ids = fixture_tensor("%s.ids", name);
    memset(g, 0, sizeof *g);
    g->tokens = (const int32_t *)ids.data;
    g->n_tokens = attn_count(ids);
    g->keep = keep;
    int good = OK(ctx, lens_feature_graph_begin(ctx, g, &backward));
    for (size_t layer = 3; layer-- > 0;) {
        lens_sae sae = ATTN_ZERO;
        if (!(layers >> layer & 1) || !good)
            continue;
        good = open_transcoder(ctx, &sae, name, layer) &&
               OK(ctx, lens_feature_graph_add(ctx, g, &sae));
        lens_sae_free(ctx, &sae);
    }
    return good;
}

static int make(attn_ctx *ctx, lens_feature_graph *g, const char *name, unsigned layers,
                size_t keep)
{
    return begin(ctx, g, name, layers, keep) && OK(ctx, lens_feature_graph_plan(ctx, g)) &&
           OK(ctx, lens_feature_graph_fill(ctx, g));
}

/* ---- float64 ---- */

static double weight_of(const lens_feature_graph *g, size_t from, size_t to)
{
    for (size_t i = g->rows[to]; i < g->rows[to + 1]; i++)
        if (g->edges[i].from == from)
            return (double)g->edges[i].weight;
    return 0;
}

static void check_nodes(const lens_feature_graph *g, attn_tensor want)
{
    if (!CHECKF(want.shape[0] == g->n_nodes, "%d nodes, expected %d", (int)g->n_nodes,
                (int)want.shape[0]))
        return;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const lens_graph_node *const node = &g->nodes[i];
        const int32_t *const w = (const int32_t *)want.data + 4 * i;
        CHECKF((int)node->kind == w[0] && node->layer == (size_t)w[1] &&
                   node->position == (size_t)w[2] && node->feature == (size_t)w[3],
               "node %d is %d %d %d %d", (int)i, (int)node->kind, (int)node->layer,
               (int)node->position, (int)node->feature);
    }
}

/* The whole matrix is within 1e-5 of its largest edge; constants and values within that of the largest value. */
static void check_case(const char *name, unsigned layers)
{
    const attn_tensor weights = fixture_tensor("%s.weights", name);
    const attn_tensor values = fixture_tensor("%s.values", name);
    lens_feature_graph g;
    attn_ctx ctx = alone();
    double most = 0, largest = 0, off = 0;
    size_t k = 0;
    if (!make(&ctx, &g, name, layers, 0))
        return;
    check_nodes(&g, fixture_tensor("%s.nodes", name));
    for (size_t i = 0; i < attn_count(weights); i++)
        largest = fmax(largest, fabs((double)((const float *)weights.data)[i]));
    for (size_t i = 0; i < attn_count(values); i++)
        most = fmax(most, fabs((double)((const float *)values.data)[i]));
    for (size_t i = 0; i < g.n_nodes; i++) {
        const lens_graph_node *const node = &g.nodes[i];
        if (node->kind != LENS_GRAPH_FEATURE && node->kind != LENS_GRAPH_LOGIT) {
            CHECK(g.rows[i] == g.rows[i + 1]);
            continue;
        }
        for (size_t s = 0; s < weights.shape[1]; s++)
            off = fmax(off, fabs(weight_of(&g, s, i) - (double)attn_get2(weights, k, s)));
        CHECKF(fabs((double)(node->pre_activation - attn_get2(values, k, 0))) <= 1e-5 * most &&
                   fabs(node->constant - (double)attn_get2(values, k, 1)) <= 1e-5 * most,
               "%s, target %d: %.9g and %.9g, expected %.9g and %.9g", name, (int)k,
               (double)node->pre_activation, node->constant, (double)attn_get2(values, k, 0),
               (double)attn_get2(values, k, 1));
        k++;
    }
    printf("%s: weights are off by %.3g of the largest, sums by %.3g of their terms\n", name,
           off / largest, g.off_share);
    CHECKF(k == weights.shape[0] && largest > 1 && off <= 1e-5 * largest, "%s: off by %g of %g",
           name, off, largest);
    CHECKF(g.off > 0 && g.off_share < 1e-6 && g.kept == 1, "%s: sums are off by %g, %g of them",
           name, g.off, g.off_share);
    lens_feature_graph_free(&ctx, &g);
    done(&ctx);
}

/* A layer without a transcoder; skip and top-k. Transcoders at each layer; both normalizations. One token. */
TEST(whole_matrix)
{
    check_case("missing", 5);
    check_case("whole", 7);
    check_case("first", 2);
}

/* The published rule, on whole matrices. */
static void check_pruned(const char *name, unsigned layers)
{
    const attn_tensor influence = fixture_tensor("%s.influence", name);
    const attn_tensor stay = fixture_tensor("%s.stay", name);
    const attn_tensor scores = fixture_tensor("%s.scores", name);
    const int32_t *const n_edges = (const int32_t *)fixture_tensor("%s.n_edges", name).data;
    lens_feature_graph g;
    attn_ctx ctx = alone();
    size_t n = 0;
    lens_graph_pruned p = {.node_threshold = 0.8, .edge_threshold = 0.98};
    if (!make(&ctx, &g, name, layers, 0) || !OK(&ctx, lens_feature_graph_prune(&ctx, &p, &g)))
        return;
    CHECK(attn_count(influence) == g.n_nodes);
    for (size_t i = 0; i < g.n_nodes; i++) {
        CHECKF(fabs(p.influence[i] - (double)attn_get1(influence, i)) < 1e-6 &&
                   p.nodes[i] == ((const int32_t *)stay.data)[i],
               "%s, node %d: influence %.9g, expected %.9g", name, (int)i, p.influence[i],
               (double)attn_get1(influence, i));
        n += p.nodes[i];
    }
    CHECKF(p.n_nodes == n && n < g.n_nodes && p.n_edges == (size_t)*n_edges && p.n_edges > 10,
           "%s: %d nodes and %d edges stay, expected %d and %d", name, (int)p.n_nodes,
           (int)p.n_edges, (int)n, (int)*n_edges);
    CHECK(fabs(p.replacement - (double)attn_get1(scores, 0)) < 1e-6 &&
          fabs(p.completeness - (double)attn_get1(scores, 1)) < 1e-6);
    lens_graph_pruned_free(&p);
    lens_feature_graph_free(&ctx, &g);
    done(&ctx);
}

TEST(pruning)
{
    check_pruned("missing", 5);
    check_pruned("whole", 7);
    check_pruned("first", 2);
}

/* Spearman's rank correlation, as its definition has it; equal numbers share a rank. */
static double spearman(const double *x, const double *y, size_t n)
{
    double xy = 0, xx = 0, yy = 0;
    for (size_t i = 0; i < n; i++) {
        double a = 0, b = 0;
        for (size_t j = 0; j < n; j++) {
            a += (x[j] < x[i]) - (x[j] > x[i]);
            b += (y[j] < y[i]) - (y[j] > y[i]);
        }
        xy += a * b;
        xx += a * a;
        yy += b * b;
    }
    return xy / sqrt(xx * yy);
}

/* Claimed effects by a system of equations, measured ones by whole passes in float64. */
static void check_effects(const char *name, unsigned layers, size_t n_features)
{
    const attn_tensor claimed = fixture_tensor("%s.claimed", name);
    const attn_tensor measured = fixture_tensor("%s.measured", name);
    lens_feature_graph g;
    attn_ctx ctx = alone();
    const attn_tensor values = fixture_tensor("%s.values", name);
    double x[256], y[256], most = 0,
                           value = 1; /* value: the largest, which logits are rounded by */
    size_t n = 0;
    const attn_tensor members = fixture_tensor("%s.group", name);
    const attn_tensor together = fixture_tensor("%s.together", name);
    lens_graph_group group = ATTN_ZERO;
    size_t nodes[64];
    for (group.n = 0; group.n < attn_count(members); group.n++)
        nodes[group.n] = (size_t)((const int32_t *)members.data)[group.n];
    group.nodes = nodes;
    lens_graph_check check = {.groups = &group, .n_groups = 1};
    if (!make(&ctx, &g, name, layers, 0) || !OK(&ctx, lens_feature_graph_check(&ctx, &check, &g)))
        return;
    for (size_t i = 0; i < g.n_nodes; i++)
        most = fmax(most, fabs((double)attn_get1(claimed, i)));
    for (size_t i = 0; i < values.shape[0]; i++)
        value = fmax(value, fabs((double)attn_get2(values, i, 0)));
    for (size_t i = 0; i < g.n_nodes; i++) {
        const double c = (double)attn_get1(claimed, i), m = (double)attn_get1(measured, i);
        CHECKF(fabs(check.claimed[i] - c) <= 1e-5 * most,
               "%s, node %d: claimed %.9g, expected %.9g", name, (int)i, check.claimed[i], c);
        if (!isfinite(m)) {
            CHECK(isnan(check.measured[i]));
            continue;
        }
        CHECKF(fabs(check.measured[i] - m) <= 2e-6 * value,
               "%s, node %d: measured %.9g, expected %.9g", name, (int)i, check.measured[i], m);
        x[n] = (double)(float)check.claimed[i];
        y[n++] = (double)(float)check.measured[i];
    }
    CHECKF(group.n > 1 && fabs(group.claimed - (double)attn_get1(together, 0)) <= 1e-5 * most &&
               fabs(group.measured - (double)attn_get1(together, 1)) <= 2e-6 * value,
           "%s: together %.9g and %.9g, expected %.9g and %.9g", name, group.claimed,
           group.measured, (double)attn_get1(together, 0), (double)attn_get1(together, 1));
    CHECK(n == g.n_features && n == check.n_measured && n == n_features);
    CHECKF(fabs(check.correlation - spearman(x, y, n)) < 1e-12, "correlation %g, expected %g",
           check.correlation, spearman(x, y, n));
    lens_graph_check_free(&check);
    nodes[0] = g.n_nodes - 1;
    check.groups = &group;
    check.n_groups = 1;
    FAILS(ARGUMENT, "is not a feature of the graph", lens_feature_graph_check(&ctx, &check, &g));
    lens_feature_graph_free(&ctx, &g);
    ctx.status = ATTN_OK;
    done(&ctx);
}

TEST(effects)
{
    check_effects("missing", 5, 60);
    check_effects("whole", 7, 127);
    check_effects("first", 2, 6);
}

/* ---- what must be true ---- */

TEST(threads)
{
    lens_feature_graph g[4];
    SCOPED_CTX ctx = alone();
    for (int t = 0; t < 4; t++) {
        ctx.n_threads = t + 1;
        if (!make(&ctx, &g[t], "whole", 7, 0))
            return;
        CHECK(g[t].n_edges == g[0].n_edges && g[t].n_nodes == g[0].n_nodes);
        CHECK(memcmp(g[t].edges, g[0].edges, g[0].n_edges * sizeof *g[0].edges) == 0);
        CHECK(memcmp(&g[t].off, &g[0].off, sizeof g[0].off) == 0);
        for (size_t i = 0; i < g[0].n_nodes; i++)
            CHECK(memcmp(&g[t].nodes[i].constant, &g[0].nodes[i].constant, sizeof(double)) == 0 &&
                  g[t].nodes[i].pre_activation == g[0].nodes[i].pre_activation);
    }
    for (int t = 0; t < 4; t++)
        lens_feature_graph_free(&ctx, &g[t]);
}

/* The strongest edges of each target stay, and no others; the sums are still of all. */
TEST(strongest_edges)
{
    lens_feature_graph all, some;
    SCOPED_CTX ctx = alone();
    double sum = 0, kept = 0;
    size_t k, s;
    if (!make(&ctx, &all, "whole", 7, 0) || !make(&ctx, &some, "whole", 7, 5))
        return;
    CHECK(all.off == some.off && some.n_edges < all.n_edges);
    for (size_t i = 0; i < all.n_nodes; i++) {
        const size_t n = all.rows[i + 1] - all.rows[i], m = some.rows[i + 1] - some.rows[i];
        double least = INFINITY;
        CHECK(m == (n < 5 ? n : 5));
        for (k = some.rows[i]; k < some.rows[i + 1]; k++) {
            const double w = fabs((double)some.edges[k].weight);
            CHECK(weight_of(&all, some.edges[k].from, i) == (double)some.edges[k].weight);
            CHECK(k == some.rows[i] || some.edges[k].from > some.edges[k - 1].from);
            least = fmin(least, w);
            kept += w;
        }
        for (k = all.rows[i], s = 0; k < all.rows[i + 1]; k++) {
            s += fabs((double)all.edges[k].weight) > least;
            sum += fabs((double)all.edges[k].weight);
        }
        CHECK(s < 5);
    }
    CHECK(fabs(some.kept - kept / sum) < 1e-12 && some.kept < 1);
    lens_feature_graph_free(&ctx, &all);
    lens_feature_graph_free(&ctx, &some);
}

/* ---- transcoders and calls that are refused ---- */

/* A transcoder of "whole", changed in one place. */
static void refuse(attn_ctx *ctx, lens_feature_graph *g, const lens_sae *sae, attn_status status,
                   const char *text)
{
    FAILS_IN(ctx, status, text, lens_feature_graph_add(ctx, g, sae));
}

TEST(refused)
{
    static const char other[] = "blocks.7.hook_mlp_out";
    SCOPED_CTX ctx = alone();
    const attn_edit edit = ATTN_ZERO;
    lens_feature_graph g;
    lens_backward edited = backward;
    lens_sae good = ATTN_ZERO;
    if (!open_transcoder(&ctx, &good, "whole", 0) || !begin(&ctx, &g, "whole", 0, 0))
        return;
    FAILS(ARGUMENT, "no feature of the 0 transcoders is active", lens_feature_graph_plan(&ctx, &g));
    lens_feature_graph_free(&ctx, &g);
    if (!begin(&ctx, &g, "whole", 2, 0))
        return;
    refuse(&ctx, &g, NULL, ATTN_E_ARGUMENT, "no weights; lens_sae_open reads one");
    lens_sae sae = good;
    memcpy(sae.hook_out, other, sizeof other);
    refuse(&ctx, &g, &sae, ATTN_E_ARGUMENT,
           "predicts blocks.7.hook_mlp_out; expected the output of an MLP of this model, "
           "blocks.0.hook_mlp_out to blocks.2.hook_mlp_out");
    sae = good;
    memcpy(sae.hook, other, sizeof other);
    refuse(&ctx, &g, &sae, ATTN_E_ARGUMENT,
           "of blocks.0.hook_mlp_out reads blocks.7.hook_mlp_out; expected");
    sae = good;
    sae.n = 14;
    refuse(&ctx, &g, &sae, ATTN_E_SHAPE, "reads 14 numbers and writes 15; the width of this model");
    sae = good;
    sae.n_out = 0;
    refuse(&ctx, &g, &sae, ATTN_E_ARGUMENT, "an autoencoder of blocks.0.ln2");
    sae = good;
    sae.hook[7] = sae.hook_out[7] = '1';
    refuse(&ctx, &g, &sae, ATTN_E_ARGUMENT, "a second transcoder predicts blocks.1.hook_mlp_out");
    float *bias = (float *)good.b_enc.data;
    bias[3] = NAN;
    refuse(&ctx, &g, &good, ATTN_E_ARGUMENT,
           "of blocks.0.hook_mlp_out: b_enc holds a number that is not finite");
    for (size_t i = 0; i < good.m; i++)
        bias[i] = -1e9f;
    lens_feature_graph_free(&ctx, &g);
    if (!begin(&ctx, &g, "whole", 0, 0))
        return;
    OK(&ctx, lens_feature_graph_add(&ctx, &g, &good));
    FAILS(ARGUMENT, "no feature of the 1 transcoders is active in this text",
          lens_feature_graph_plan(&ctx, &g));
    lens_feature_graph_free(&ctx, &g);
    lens_sae_free(&ctx, &good);
    edited.edits = &edit;
    edited.n_edits = 1;
    FAILS(ARGUMENT, "the model has edits", lens_feature_graph_begin(&ctx, &g, &edited));
    FAILS(ARGUMENT, "no tokens given", lens_feature_graph_begin(&ctx, &g, &backward));
    FAILS(ARGUMENT, "no graph given", lens_feature_graph_begin(&ctx, NULL, &backward));
}
