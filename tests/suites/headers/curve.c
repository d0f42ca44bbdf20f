/* tools/lens/curve.h by its definition, and its rules. */
#include "tests/support/fixture.h"
#include "tools/lens/curve.h"
#include "tests/support/hooks.h"
#include "tests/support/patches.h"
#include "tests/support/shared_models.h"

SUITE_WITH_MODELS("odd");

enum { LENGTH = 5 };

/* Areas by hand: a faithfulness of 1 everywhere, and one that rises from -1 to 3 in the last part. */
TEST(integrals_of_a_curve)
{
    lens_curve curve = ATTN_ZERO;
    for (int i = 0; i < LENS_CURVE_POINTS; i++)
        curve.faithfulness[i] = 1;
    lens_integrate_curve(&curve);
    CHECK(fabs(curve.cpr - 0.999) < 1e-12 && curve.cmd == 0);
    for (int i = 0; i < LENS_CURVE_POINTS; i++)
        curve.faithfulness[i] = i == LENS_CURVE_POINTS - 1 ? 3 : -1;
    lens_integrate_curve(&curve);
    CHECKF(fabs(curve.cpr - (0.5 * 1 - 0.499)) < 1e-12, "%.9g", curve.cpr);
    CHECKF(fabs(curve.cmd - (0.5 * 2 + 0.499 * 2)) < 1e-12, "%.9g", curve.cmd);
}

/* Does an edge come before another one? */
static int is_before(const lens_edge *x, const lens_edge *y, lens_curve_order order, double sign)
{
    const double a =
        order == LENS_CURVE_HELPFUL ? -sign * (double)x->score : fabs((double)x->score);
    const double b =
        order == LENS_CURVE_HELPFUL ? -sign * (double)y->score : fabs((double)y->score);
    return a > b || (a >= b && x->sender < y->sender) ||
           (a >= b && x->sender == y->sender && x->receiver < y->receiver);
}

/* kept: the n best edges, each of which has fewer than n edges before it. */
static void keep_best(attn_tensor kept, const lens_edge *edges, size_t n_edges, size_t n,
                      lens_curve_order order, double sign)
{
    for (size_t i = 0; i < n_edges; i++) {
        size_t before = 0;
        for (size_t j = 0; j < n_edges; j++)
            before += (size_t)is_before(&edges[j], &edges[i], order, sign);
        *entry(kept, edges[i].sender, edges[i].receiver, 0) = before < n;
    }
}

/* Two pairs whose metric rises, or falls, from the corrupted texts to the clean ones. */
static void check_curve(int exchanged, lens_curve_order order)
{
    const lens_graph g = lens_graph_of(odd);
    attn_ctx ctx = alone();
    lens_backward b = ATTN_ZERO;
    lens_pair pairs[2];
    attn_tensor scores = no_tensor, kept = no_tensor;
    lens_edge *const edges = (lens_edge *)pool_new(g.n_edges * sizeof *edges);
    double means[3] = {0, 0, 0};
    float each[2][2 + LENS_CURVE_POINTS], value = 0;
    size_t pair;
    for (size_t i = 0; i < 2; i++) {
        pairs[i] = random_pair(odd, LENGTH, 1 + 2 * i);
        if (exchanged) {
            const int32_t *const was = pairs[i].clean;
            pairs[i].clean = pairs[i].corrupted;
            pairs[i].corrupted = was;
        }
    }
    OK(&ctx, lens_backward_new(&ctx, &b, odd));
    OK(&ctx, lens_edge_scores(&ctx, &scores, &b, pairs, 2, 1));
    lens_curve curve = {.each = each[0]};
    OK(&ctx, lens_edge_curve(&ctx, &curve, &b, pairs, 2, scores, order));
    for (size_t k = 0; k < LENS_CURVE_POINTS; k++)
        CHECK(fabs(curve.faithfulness[k] - ((double)each[0][2 + k] + (double)each[1][2 + k] -
                                            (double)each[0][1] - (double)each[1][1]) /
                                               ((double)each[0][0] + (double)each[1][0] -
                                                (double)each[0][1] - (double)each[1][1])) < 1e-12);
    OK(&ctx, lens_sort_edges(&ctx, edges, odd, scores));
    OK(&ctx, attn_zeros(&ctx, &kept, ATTN_F32, attn_shape2(g.n_senders, g.n_receivers)));
    for (size_t k = 0; k < 5; k++) { /* none, all, and the sizes of 1, 10 and 50 % */
        static const size_t shown[] = {3, 6, 8};
        static const size_t percent[] = {1, 10, 50};
        const size_t n = k == 0 ? 0 : k == 1 ? g.n_edges : g.n_edges * percent[k - 2] / 100;
        const size_t to = k < 2 ? k : 2;
        keep_best(kept, edges, g.n_edges, n, order, means[1] > means[0] ? 1 : -1);
        for (means[to] = 0, pair = 0; pair < 2; pair++) {
            OK(&ctx, lens_run_edges(&ctx, &value, &b, &pairs[pair], kept));
            means[to] += (double)value / 2;
        }
        if (k > 1) {
            const double want = (means[2] - means[0]) / (means[1] - means[0]);
            EQUAL((int)curve.n_edges[shown[k - 2]], (int)n);
            CHECKF(fabs(curve.faithfulness[shown[k - 2]] - want) < 1e-6, "%d edges: %.9g, not %.9g",
                   (int)n, curve.faithfulness[shown[k - 2]], want);
        }
    }
    CHECK(fabs(curve.faithfulness[LENS_CURVE_POINTS - 1] - 1) < 1e-6);
    lens_backward_free(&ctx, &b);
    attn_tensor_free(&ctx, &scores);
    attn_tensor_free(&ctx, &kept);
    done(&ctx);
}

TEST(curves)
{
    for (int i = 0; i < 4; i++)
        check_curve(i / 2, (lens_curve_order)(i % 2));
}

TEST(curves_refused)
{
    SCOPED_CTX ctx = alone();
    lens_backward b = ATTN_ZERO;
    lens_pair pair = random_pair(odd, LENGTH, 1);
    lens_curve curve = ATTN_ZERO;
    attn_tensor scores = no_tensor;
    OK(&ctx, lens_backward_new(&ctx, &b, odd));
    OK(&ctx, lens_edge_scores(&ctx, &scores, &b, &pair, 1, 1));
    FAILS(ARGUMENT, "order is 2",
          lens_edge_curve(&ctx, &curve, &b, &pair, 1, scores, (lens_curve_order)2));
    FAILS(ARGUMENT, "no pair",
          lens_edge_curve(&ctx, &curve, &b, &pair, 0, scores, LENS_CURVE_HELPFUL));
    FAILS(SHAPE, "expected [",
          lens_edge_curve(&ctx, &curve, &b, &pair, 1, attn_transpose(scores, 0, 1),
                          LENS_CURVE_HELPFUL));
    pair.corrupted = pair.clean;
    FAILS(ARGUMENT, "after both texts",
          lens_edge_curve(&ctx, &curve, &b, &pair, 1, scores, LENS_CURVE_HELPFUL));
    CHECK(curve.n_edges[9] == 0);
    lens_backward_free(&ctx, &b);
}
