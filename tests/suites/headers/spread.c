/* tools/lens/spread.h by SciPy (makers/make_spread_fixtures.py), and the numbers of every pair that other headers
 * give it. */
#define FIXTURE_FILE "tests/fixtures/spread.bin"
#include "tests/support/fixture.h"
#include "tools/lens/exact.h"
#include "tools/lens/patch.h"
#include "tools/lens/paths.h"
#include "tools/lens/spread.h"
#include "tests/support/hooks.h"
#include "tests/support/patches.h"
#include "tests/support/shared_models.h"

SUITE_WITH_MODELS("odd");

enum { LENGTH = 5, N_PAIRS = 3, SPREADS = 4 };

/* The same draws give the ends to rounding, other draws to a tenth of the width. Up to 13 pairs p-values are exact. */
static void check_spread(const lens_spread *s, int n, int kind, size_t k)
{
    const double low = (double)attn_get2(fixture_tensor("%d.%d.ends", n, kind), k, 0);
    const double high = (double)attn_get2(fixture_tensor("%d.%d.ends", n, kind), k, 1);
    const attn_tensor others = fixture_tensor("%d.%d.scipy", n, kind);
    const double p = (double)attn_get1(fixture_tensor("%d.%d.p", n, kind), k);
    CHECKF(fabs(s->low - low) < 1e-6 && fabs(s->high - high) < 1e-6,
           "%d pairs, kind %d: %.9g to %.9g, not %.9g to %.9g", n, kind, s->low, s->high, low,
           high);
    CHECK(s->low <= s->mean && s->mean <= s->high);
    CHECK(fabs(s->low - (double)attn_get2(others, k, 0)) <= 1e-6 + 0.1 * (s->high - s->low) &&
          fabs(s->high - (double)attn_get2(others, k, 1)) <= 1e-6 + 0.1 * (s->high - s->low));
    CHECKF(fabs(s->p - p) < (lens_flips_all((size_t)n) ? 1e-6 : 0.02),
           "%d pairs, kind %d: p %.9g, not %.9g", n, kind, s->p, p);
}

TEST(intervals_and_p_values)
{
    static const int sizes[] = {5, 13, 14, 60};
    SCOPED_CTX ctx = alone();
    lens_spread s[SPREADS];
    for (size_t i = 0; i < 4; i++)
        for (int kind = LENS_SPREAD_CHANGES; kind <= LENS_SPREAD_SHARES; kind++) {
            const attn_tensor each = fixture_tensor("%d.each", sizes[i]);
            const attn_tensor holm = fixture_tensor("%d.%d.holm", sizes[i], kind);
            OK(&ctx, lens_spreads(&ctx, s, (const float *)each.data, each.shape[0], SPREADS,
                                  (lens_spread_kind)kind));
            for (size_t k = 0; k < SPREADS; k++)
                check_spread(&s[k], sizes[i], kind, k);
            CHECK(s[2].low >= 0 && s[2].high <= 0 && s[2].p >= 1); /* no change at all */
            OK(&ctx, lens_holm(&ctx, s, SPREADS));
            for (size_t k = 0; k < SPREADS; k++)
                CHECK(fabs(s[k].p - (double)attn_get1(holm, k)) <
                      (lens_flips_all(each.shape[0]) ? 1e-6 : 0.08));
        }
}

/* A symmetric matrix: each pair counts once. */
TEST(p_values_of_symmetric_numbers)
{
    static const char *const names[] = {"joint.beside", "joint.diagonal"};
    const attn_tensor each = fixture_tensor("joint.each");
    SCOPED_CTX ctx = alone();
    lens_spread s[9];
    for (int diagonal = 0; diagonal < 2; diagonal++) {
        const float *const want = (const float *)fixture_tensor("%s", names[diagonal]).data;
        OK(&ctx,
           lens_spreads(&ctx, s, (const float *)each.data, each.shape[0], 9, LENS_SPREAD_VALUES));
        OK(&ctx, lens_holm_pairs(&ctx, s, 3, diagonal));
        for (size_t i = 0; i < 9; i++)
            CHECKF(fabs(s[i].p - (double)want[i]) < 1e-6, "%s, entry %d: p %.9g, not %.9g",
                   names[diagonal], (int)i, s[i].p, (double)want[i]);
    }
    OK(&ctx, lens_holm_pairs(&ctx, s, 0, 1));
}

TEST(spreads_refused)
{
    const float each[6] = {1, 2, 3, 1, 2, (float)NAN};
    SCOPED_CTX ctx = alone();
    lens_spread s;
    FAILS(ARGUMENT, "needs two pairs or more; got 0",
          lens_spreads(&ctx, &s, each, 0, 1, LENS_SPREAD_VALUES));
    FAILS(ARGUMENT, "needs two pairs or more; got 1",
          lens_spreads(&ctx, &s, each, 1, 1, LENS_SPREAD_VALUES));
    FAILS(ARGUMENT, "no values", lens_spreads(&ctx, &s, NULL, 2, 1, LENS_SPREAD_VALUES));
    FAILS(ARGUMENT, "no place", lens_spreads(&ctx, NULL, each, 2, 1, LENS_SPREAD_VALUES));
    FAILS(ARGUMENT, "kind is 3", lens_spreads(&ctx, &s, each, 2, 1, (lens_spread_kind)3));
    OK(&ctx, lens_spreads(&ctx, &s, each, 2, 1, LENS_SPREAD_VALUES));
    CHECK(isnan(s.low) && isnan(s.high) && isnan(s.p));
    OK(&ctx, lens_holm(&ctx, &s, 0));
}

/* ---- the numbers of every pair ---- */

static attn_status patch(attn_ctx *ctx, attn_tensor *out, lens_baseline *whole,
                         const lens_pair *pairs, size_t n, float *each)
{
    lens_patch_desc d = {.pairs = pairs,
                         .n_pairs = n,
                         .name = "attn.hook_z",
                         .kind = LENS_PATCH_POSITION_HEADS,
                         .each = each};
    return lens_patch(ctx, out, whole, odd, &d);
}

static attn_status paths(attn_ctx *ctx, attn_tensor *out, lens_baseline *whole,
                         const lens_pair *pairs, size_t n, float *each)
{
    static const lens_sender senders[] = {{LENS_SENDER_HEAD, 0, 1}, {LENS_SENDER_EMBED, 0, 0}};
    static const lens_receiver receivers[] = {{1, "hook_q_input", 0}, {1, "hook_mlp_in", 0}};
    lens_paths_desc d = {.pairs = pairs, .n_pairs = n, .senders = senders, .receivers = receivers};
    d.n_senders = d.n_receivers = 2;
    d.each_receiver = 1;
    d.each = each;
    return lens_patch_paths(ctx, out, whole, odd, &d);
}

static attn_status exact(attn_ctx *ctx, attn_tensor *out, lens_baseline *whole,
                         const lens_pair *pairs, size_t n, float *each)
{
    lens_exact_desc d = {.pairs = pairs, .n_pairs = n, .of_nodes = 1, .each = each};
    return lens_exact_effects(ctx, out, whole, odd, &d);
}

/* Every row has the bits of the pair alone, and asking for the rows changes no bit of the means. */
TEST(numbers_of_every_pair)
{
    attn_status (*const calls[])(attn_ctx *, attn_tensor *, lens_baseline *, const lens_pair *,
                                 size_t, float *) = {patch, paths, exact};
    SCOPED_CTX ctx = alone();
    lens_pair pairs[N_PAIRS];
    size_t n;
    for (size_t i = 0; i < N_PAIRS; i++)
        pairs[i] = random_pair(odd, LENGTH, 1 + 2 * i);
    for (size_t c = 0; c < 3; c++) {
        attn_tensor means = no_tensor, again = no_tensor;
        lens_baseline whole = {0, 0};
        float *each;
        OK(&ctx, calls[c](&ctx, &means, NULL, pairs, N_PAIRS, NULL));
        n = attn_count(means);
        each = (float *)pool_new(N_PAIRS * (2 + n) * sizeof *each);
        OK(&ctx, calls[c](&ctx, &again, NULL, pairs, N_PAIRS, each));
        CHECK(memcmp(means.data, again.data, n * sizeof(float)) == 0);
        for (size_t i = 0; i < N_PAIRS; i++) {
            const float *const row = each + i * (2 + n);
            OK(&ctx, calls[c](&ctx, &again, &whole, &pairs[i], 1, NULL));
            CHECK(memcmp(row, &whole, sizeof whole) == 0);
            CHECKF(memcmp(row + 2, again.data, n * sizeof(float)) == 0, "call %d, pair %d", (int)c,
                   (int)i);
        }
        attn_tensor_free(&ctx, &means);
        attn_tensor_free(&ctx, &again);
    }
}
