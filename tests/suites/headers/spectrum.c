/* tools/lens/spectrum.h, decompose.h and detect.h against numpy in float64 (makers/make_circuit_fixtures.py), and
 * their rules. */
#define FIXTURE_FILE "tests/fixtures/circuits.bin"
#include "tests/support/refused.h"
#include "tools/lens/decompose.h"
#include "tools/lens/detect.h"
#include "tools/lens/spectrum.h"
#include "tests/support/shared_models.h"

SUITE_WITH_MODELS("odd narrow");

/* ---- eigenvalues ---- */

/* The same numbers in any order: each has its own near it, beside the largest of all. */
static void same_spectrum(attn_tensor got, attn_tensor want, double within, const char *what)
{
    const size_t n = want.shape[0];
    char taken[64] = {0};
    double largest = 0;
    if (!CHECKF(got.ndim == 2 && got.shape[0] == n && got.shape[1] == 2 && n <= 64, "%s: the shape",
                what))
        return;
    for (size_t i = 0; i < n; i++)
        largest =
            fmax(largest, hypot((double)attn_get2(want, i, 0), (double)attn_get2(want, i, 1)));
    for (size_t i = 0; i < n; i++) {
        size_t best = n;
        double least = INFINITY, off;
        for (size_t j = 0; j < n; j++) {
            off = hypot((double)(attn_get2(got, j, 0) - attn_get2(want, i, 0)),
                        (double)(attn_get2(got, j, 1) - attn_get2(want, i, 1)));
            if (!taken[j] && off < least) {
                least = off;
                best = j;
            }
        }
        if (best < n)
            taken[best] = 1;
        CHECKF(least <= within * fmax(largest, 1e-30), "%s: %g %+gi is %g away", what,
               (double)attn_get2(want, i, 0), (double)attn_get2(want, i, 1), least);
    }
    for (size_t i = 1; i < n; i++)
        CHECKF(hypot((double)attn_get2(got, i, 0), (double)attn_get2(got, i, 1)) <=
                   1.000001 *
                       hypot((double)attn_get2(got, i - 1, 0), (double)attn_get2(got, i - 1, 1)),
               "%s: number %d is larger than the one before it", what, (int)i);
}

TEST(eigenvalues)
{
    SCOPED_CTX ctx = alone();
    attn_tensor left;
    int n;
    for (n = 0; fixture(&left, "eig.%d.left", n); n++) {
        attn_tensor values = no_tensor, laid = no_tensor;
        const char *const what = test_text("product %d", n);
        OK(&ctx, lens_eigenvalues(&ctx, &values, left, fixture_tensor("eig.%d.right", n)));
        /* two or three equal ones move by the square or cube root of a rounding */
        same_spectrum(values, fixture_tensor("eig.%d.values", n), n == 11 ? 2e-5 : 2e-7, what);
        OK(&ctx,
           lens_eigenvalues(&ctx, &laid, laid_out(left, ATTN_F32, LAYOUT_BACKWARD),
                            laid_out(fixture_tensor("eig.%d.right", n), ATTN_F32, LAYOUT_SWAPPED)));
        same_bits(laid, values, what);
    }
    EQUAL(n, 12);
}

/* Heads of low rank: all columns of the left factor are equal, or all rows of the right one, or there are two
 * groups of equal columns. One or two eigenvalues are not 0, and their sum is the trace. */
TEST(eigenvalues_of_low_rank)
{
    static const size_t sizes[] = {4, 16, 17, 33, 64};
    enum { WIDTH = 64, TIMES = 6 };
    SCOPED_CTX ctx = alone();
    size_t r;
    int kind;
    for (int time = 0; time < TIMES * 3 * (int)(sizeof sizes / sizeof sizes[0]); time++) {
        attn_tensor out = ATTN_ZERO;
        double trace = 0, sum = 0, rest = 0;
        kind = time % 3;
        r = sizes[(size_t)time / (3 * TIMES)];
        attn_tensor left = random_tensor(2, WIDTH, (int)r);
        attn_tensor right = random_tensor(2, (int)r, WIDTH);
        for (size_t i = 0; i < WIDTH; i++)
            for (size_t j = 0; j < r; j++) {
                if (kind == 1)
                    *entry(right, j, i, 0) = *entry(right, 0, i, 0);
                else
                    *entry(left, i, j, 0) = *entry(left, i, kind == 2 && j >= r / 2 ? r / 2 : 0, 0);
            }
        for (size_t k = 0; k < WIDTH; k++)
            for (size_t j = 0; j < r; j++)
                trace += (double)attn_get2(left, k, j) * (double)attn_get2(right, j, k);
        if (!OK(&ctx, lens_eigenvalues(&ctx, &out, left, right)))
            break;
        for (size_t j = 0; j < r; j++) {
            sum += (double)attn_get2(out, j, 0);
            rest = j > (size_t)(kind == 2) ? fmax(rest, fabs((double)attn_get2(out, j, 0))) : rest;
        }
        CHECKF(fabs(sum - trace) < 1e-4 * (1 + fabs(trace)) && rest < 1e-4,
               "kind %d, %d: sum %g, expected %g; another is %g", kind, (int)r, sum, trace, rest);
        attn_tensor_free(&ctx, &out);
        pool_clear();
    }
}

TEST(eigenvalues_of_circuits)
{
    static const char *const names[] = {"odd", "narrow"};
    SCOPED_CTX ctx = alone();
    for (int i = 0; i < 2; i++)
        for (int space = 0; space < 2; space++) {
            const attn_model *const m = i ? narrow : odd;
            const attn_tensor want = fixture_tensor("%s.ov.%d", names[i], space);
            attn_tensor values = no_tensor, scores = no_tensor;
            OK(&ctx, lens_ov_eigenvalues(&ctx, &values, m, (lens_ov_space)space));
            for (size_t layer = 0; layer < want.shape[0]; layer++)
                for (size_t head = 0; head < want.shape[1]; head++)
                    same_spectrum(attn_select(attn_select(values, 0, layer), 0, head),
                                  attn_select(attn_select(want, 0, layer), 0, head), 1e-5,
                                  names[i]);
            OK(&ctx, lens_copying_scores(&ctx, &scores, values));
            close_to(scores, fixture_tensor("%s.copying.%d", names[i], space), 1e-5,
                     "copying scores");
        }
}

/* U · S · Vᵀ is the product, and columns are at right angles. */
TEST(singular_vectors)
{
    SCOPED_CTX ctx = alone();
    const attn_tensor left = random_tensor(2, 20, 6), right = random_tensor(2, 6, 15);
    attn_tensor before = no_tensor, after = no_tensor, us = no_tensor, values = no_tensor, angles;
    lens_svd svd = {no_tensor, no_tensor, no_tensor};
    OK(&ctx, lens_singular_vectors(&ctx, &svd, left, right));
    OK(&ctx, lens_singular_values(&ctx, &values, left, right));
    close_to(svd.s, values, 1e-6, "singular values");
    OK(&ctx, attn_matmul(&ctx, &before, left, right));
    OK(&ctx, attn_mul(&ctx, &us, svd.u, svd.s));
    OK(&ctx, attn_matmul(&ctx, &after, us, attn_transpose(svd.v, 0, 1)));
    close_to(after, before, 2e-6, "U · S · Vᵀ");
    for (size_t side = 0; side < 2; side++) {
        const attn_tensor x = side ? svd.v : svd.u;
        angles = no_tensor;
        OK(&ctx, attn_matmul(&ctx, &angles, attn_transpose(x, 0, 1), x));
        for (size_t i = 0; i < 6; i++)
            for (size_t j = 0; j < 6; j++)
                CHECK(fabs((double)attn_get2(angles, i, j) - (i == j)) < 2e-6);
    }
    for (size_t j = 0; j < 6; j++) { /* the sign */
        float largest = 0;
        for (size_t i = 0; i < 20; i++)
            if (fabsf(attn_get2(svd.u, i, j)) > fabsf(largest))
                largest = attn_get2(svd.u, i, j);
        CHECK(largest > 0);
    }
    /* a matrix of rank 1 has one pair of singular vectors */
    OK(&ctx, lens_singular_vectors(&ctx, &svd, attn_slice(left, 0, 0, 20), right));
}

/* The product of ones [3, 2] · [2, 4] is 2 everywhere: s = 2 * sqrt(12), 0. */
TEST(singular_vectors_of_rank_one)
{
    SCOPED_CTX ctx = alone();
    const attn_tensor left = some(2, 3, 2, 1), right = some(2, 2, 4, 1);
    lens_svd svd = {no_tensor, no_tensor, no_tensor};
    for (size_t i = 0; i < 6; i++)
        set_value(left, i, 1);
    for (size_t i = 0; i < 8; i++)
        set_value(right, i, 1);
    OK(&ctx, lens_singular_vectors(&ctx, &svd, left, right));
    CHECK(fabs((double)attn_get1(svd.s, 0) - 2 * sqrt(12)) < 1e-5);
    CHECK(attn_get1(svd.s, 1) == 0);
    for (size_t i = 0; i < 3; i++) {
        CHECK(fabs((double)attn_get2(svd.u, i, 0) - 1 / sqrt(3)) < 1e-6);
        CHECK(attn_get2(svd.u, i, 1) == 0);
    }
    for (size_t i = 0; i < 4; i++) {
        CHECK(fabs((double)attn_get2(svd.v, i, 0) - 0.5) < 1e-6);
        CHECK(attn_get2(svd.v, i, 1) == 0);
    }
}

TEST(spectra_refused)
{
    SCOPED_CTX ctx = alone();
    const attn_tensor m = some(2, 3, 4, 1), n = some(2, 4, 5, 1), flat = some(1, 4, 1, 1);
    attn_tensor endless = laid_out(some(2, 4, 3, 1), ATTN_F32, LAYOUT_DENSE);
    lens_svd svd = {no_tensor, no_tensor, no_tensor};
    set_value(endless, 5, INFINITY);
    REFUSED(SHAPE, "a square product", lens_eigenvalues(&ctx, &not_made, m, n));
    REFUSED(SHAPE, "expected [m, r]", lens_eigenvalues(&ctx, &not_made, m, m));
    REFUSED(ARGUMENT, "left", lens_eigenvalues(&ctx, &not_made, no_tensor, n));
    REFUSED(ARGUMENT, "not finite", lens_eigenvalues(&ctx, &not_made, m, endless));
    REFUSED(ARGUMENT, "space 2", lens_ov_eigenvalues(&ctx, &not_made, narrow, (lens_ov_space)2));
    REFUSED(SHAPE, "[.., r, 2]", lens_copying_scores(&ctx, &not_made, m));
    REFUSED(SHAPE, "[.., r, 2]", lens_copying_scores(&ctx, &not_made, some(3, 2, 3, 4)));
    REFUSED(ARGUMENT, "eigenvalues", lens_copying_scores(&ctx, &not_made, no_tensor));
    FAILS(SHAPE, "expected [m, r]", lens_singular_vectors(&ctx, &svd, m, flat));
    svd.s = flat;
    FAILS(SHAPE, "", lens_singular_vectors(&ctx, &svd, n, some(2, 5, 3, 1)));
    CHECK(svd.u.ndim == 0 && svd.v.ndim == 0);
    FAILS(ARGUMENT, "no place", lens_eigenvalues(&ctx, NULL, m, attn_transpose(m, 0, 1)));
}

/* ---- the stream taken apart ---- */

/* Of the stream that a layer's attention reads, or its MLP; layer 3, which the model lacks: ln_final. */
static lens_parts_desc parts_of(attn_tensor tokens, lens_parts_kind kind, size_t layer,
                                int mlp_input)
{
    lens_parts_desc d = {.kind = kind,
                         .tokens = (const int32_t *)tokens.data,
                         .n_tokens = tokens.shape[0],
                         .first = 4,
                         .count = 2,
                         .reader = layer == 3  ? LENS_READER_FINAL
                                   : mlp_input ? LENS_READER_MLP
                                               : LENS_READER_ATTN,
                         .layer = layer == 3 ? 0 : layer};
    return d;
}

TEST(parts_of_the_stream)
{
    static const int layers[][2] = {{0, 0}, {1, 1}, {2, 0}, {3, 0}};
    const attn_tensor tokens = fixture_tensor("tokens"), project = fixture_tensor("project");
    SCOPED_CTX ctx = alone();
    for (int i = 0; i < 4; i++)
        for (int kind = 0; kind < LENS_N_PARTS_KINDS; kind++)
            for (int ln = 0; ln < 2; ln++) {
                lens_parts_desc d =
                    parts_of(tokens, (lens_parts_kind)kind, (size_t)layers[i][0], layers[i][1]);
                attn_tensor parts = no_tensor, projected = no_tensor, product = no_tensor;
                d.apply_ln = ln;
                const char *const name =
                    test_text("%d.%d.%d.%d", kind, layers[i][0], layers[i][1], ln);
                OK(&ctx, lens_decompose(&ctx, &parts, NULL, narrow, &d));
                EQUAL(parts.shape[0], lens_parts_count(narrow, &d));
                if (kind < LENS_PARTS_NEURONS)
                    close_to(parts, fixture_tensor("parts.%s", name), 1e-6, name);
                d.project = project;
                OK(&ctx, lens_decompose(&ctx, &projected, NULL, narrow, &d));
                close_to(projected, fixture_tensor("projected.%s", name), 2e-6, name);
                OK(&ctx, attn_matmul(&ctx, &product, parts, project));
                close_to(projected, product, 2e-6, "a projection");
            }
}

/* Without embeddings, the other parts; and all positions from `first` on. */
TEST(some_of_the_parts)
{
    static const lens_parts_kind kinds[] = {LENS_PARTS_SUBLAYERS, LENS_PARTS_ATTNS,
                                            LENS_PARTS_MLPS};
    const attn_tensor tokens = fixture_tensor("tokens");
    SCOPED_CTX ctx = alone();
    for (size_t i = 0; i < 3; i++) {
        lens_parts_desc d = parts_of(tokens, kinds[i], 2, 0);
        attn_tensor all = no_tensor, some_parts = no_tensor, four = no_tensor;
        OK(&ctx, lens_decompose(&ctx, &all, NULL, narrow, &d));
        d.no_embeds = 1;
        OK(&ctx, lens_decompose(&ctx, &some_parts, NULL, narrow, &d));
        same_bits(some_parts, attn_slice(all, 0, 2, all.shape[0] - 2), "without embeddings");
        d.no_embeds = 0;
        d.count = 0;
        OK(&ctx, lens_decompose(&ctx, &four, NULL, narrow, &d));
        EQUAL(four.shape[1], 4);
        same_bits(attn_slice(four, 1, 0, 2), all, "more positions");
    }
}

TEST(labels_of_parts)
{
    /* as transformer-lens 3.9 prints them for a model of three layers, four heads, 50 neurons */
    static const struct {
        lens_parts_kind kind;
        size_t layer;
        int mlp_input;
        size_t count, index[3];
        const char *labels[3];
    } wants[] = {
        {LENS_PARTS_STREAMS, 3, 0, 4, {0, 2, 3}, {"0_pre", "2_pre", "final_post"}},
        {LENS_PARTS_STREAMS, 1, 1, 3, {0, 1, 2}, {"0_pre", "1_pre", "1_mid"}},
        {LENS_PARTS_STREAMS_MID, 1, 1, 4, {0, 1, 3}, {"0_pre", "0_mid", "1_mid"}},
        {LENS_PARTS_SUBLAYERS, 2, 1, 7, {1, 5, 6}, {"pos_embed", "1_mlp_out", "2_attn_out"}},
        {LENS_PARTS_ATTNS, 2, 0, 4, {0, 2, 3}, {"embed", "0_attn_out", "1_attn_out"}},
        {LENS_PARTS_MLPS, 3, 0, 5, {0, 2, 4}, {"embed", "0_mlp_out", "2_mlp_out"}},
        {LENS_PARTS_HEADS, 1, 1, 12, {7, 8, 11}, {"L1H3", "0_mlp_out", "bias"}},
        {LENS_PARTS_NEURONS, 2, 0, 111, {8, 63, 108}, {"L0N0", "L1N5", "embed"}}};
    for (size_t i = 0; i < sizeof wants / sizeof wants[0]; i++) {
        lens_parts_desc d =
            parts_of(fixture_tensor("tokens"), wants[i].kind, wants[i].layer, wants[i].mlp_input);
        EQUAL(lens_parts_count(narrow, &d), wants[i].count);
        for (size_t k = 0; k < 3; k++)
            CHECKF(strcmp(lens_parts_label(narrow, &d, wants[i].index[k]).text,
                          wants[i].labels[k]) == 0,
                   "%s, not %s", lens_parts_label(narrow, &d, wants[i].index[k]).text,
                   wants[i].labels[k]);
        CHECK(lens_parts_label(narrow, &d, wants[i].count).text[0] == 0);
    }
    EQUAL(lens_parts_count(NULL, NULL), 0);
}

TEST(parts_refused)
{
    const attn_tensor tokens = fixture_tensor("tokens");
    SCOPED_CTX ctx = alone();
    lens_parts_desc d = parts_of(tokens, LENS_N_PARTS_KINDS, 1, 0);
    REFUSED(ARGUMENT, "kind 7", lens_decompose(&ctx, &not_made, NULL, narrow, &d));
    EQUAL(lens_parts_count(narrow, &d), 0);
    d.kind = LENS_PARTS_HEADS;
    d.layer = 3;
    REFUSED(ARGUMENT, "layer 3; the model has layers 0 to 2",
            lens_decompose(&ctx, &not_made, NULL, narrow, &d));
    EQUAL(lens_parts_count(narrow, &d), 0);
    d.reader = (lens_reader)3;
    REFUSED(ARGUMENT, "reader 3", lens_decompose(&ctx, &not_made, NULL, narrow, &d));
    EQUAL(lens_parts_count(narrow, &d), 0);
    d.reader = LENS_READER_FINAL;
    d.layer = 1;
    REFUSED(ARGUMENT, "layer is 1, but the reader is LENS_READER_FINAL",
            lens_decompose(&ctx, &not_made, NULL, narrow, &d));
    EQUAL(lens_parts_count(narrow, &d), 0);
    d.layer = 0;
    EQUAL(lens_parts_count(narrow, &d), 3 * 4 + 3 + 2 + 1); /* zeroed: all that reaches ln_final */
    d.first = 8;
    REFUSED(ARGUMENT, "positions from 8 on", lens_decompose(&ctx, &not_made, NULL, narrow, &d));
    d.first = 7;
    REFUSED(ARGUMENT, "2 positions from 7 on", lens_decompose(&ctx, &not_made, NULL, narrow, &d));
    d.first = 4;
    d.project = some(2, 3, 4, 1);
    REFUSED(SHAPE, "expected [20, n]", lens_decompose(&ctx, &not_made, NULL, narrow, &d));
    d.project = some_ids(3, 1);
    REFUSED(ARGUMENT, "project", lens_decompose(&ctx, &not_made, NULL, narrow, &d));
    d.project = no_tensor;
    REFUSED(ARGUMENT, "no description", lens_decompose(&ctx, &not_made, NULL, narrow, NULL));
    d.tokens = NULL;
    REFUSED(ARGUMENT, "no tokens", lens_decompose(&ctx, &not_made, NULL, narrow, &d));
}

/* ---- head detection ---- */

TEST(detected_heads)
{
    static const lens_head some_heads[] = {{0, 1}, {2, 3}};
    const attn_tensor tokens = fixture_tensor("again"), keys = fixture_tensor("keys");
    SCOPED_CTX ctx = alone();
    for (int kind = 0; kind < 4; kind++)
        for (int measure = 0; measure < 2; measure++)
            for (int bos = 0; bos < 2; bos++)
                for (int current = 0; current < 2; current++) {
                    const attn_tensor want =
                        fixture_tensor("heads.%d.%d.%d.%d", kind, measure, bos, current);
                    attn_tensor all = no_tensor, chosen = no_tensor;
                    lens_detect_desc d = {.tokens = (const int32_t *)tokens.data,
                                          .n_tokens = tokens.shape[0],
                                          .kind =
                                              kind < 3 ? (lens_head_kind)kind : LENS_HEAD_PREVIOUS};
                    if (kind == 3)
                        d.keys = laid_out(keys, ATTN_F32, LAYOUT_COLUMNS);
                    d.measure = (lens_head_measure)measure;
                    d.exclude_bos = bos;
                    d.exclude_current_token = current;
                    OK(&ctx, lens_detect_head(&ctx, &all, narrow, &d));
                    close_to(all, want, 1e-6, "head scores");
                    d.heads = some_heads;
                    d.n_heads = 2;
                    OK(&ctx, lens_detect_head(&ctx, &chosen, narrow, &d));
                    for (size_t layer = 0; layer < 3; layer++)
                        for (size_t head = 0; head < 4; head++)
                            EQUAL(attn_get2(chosen, layer, head),
                                  (layer == 0 && head == 1) || (layer == 2 && head == 3)
                                      ? attn_get2(all, layer, head)
                                      : -1);
                }
}

TEST(detection_refused)
{
    static const lens_head beyond[] = {{0, 1}, {1, 4}};
    SCOPED_CTX ctx = alone();
    lens_detect_desc d = {.tokens = ten, .n_tokens = 4, .heads = beyond, .n_heads = 2};
    REFUSED(ARGUMENT, "head 4 of layer 1; the model has heads 0 to 3 in layers 0 to 2",
            lens_detect_head(&ctx, &not_made, narrow, &d));
    d.heads = NULL;
    REFUSED(ARGUMENT, "n_heads is 2", lens_detect_head(&ctx, &not_made, narrow, &d));
    d.n_heads = 0;
    d.measure = (lens_head_measure)2;
    REFUSED(ARGUMENT, "measure 2", lens_detect_head(&ctx, &not_made, narrow, &d));
    d.measure = LENS_HEAD_ABS;
    d.kind = LENS_N_HEAD_KINDS;
    REFUSED(ARGUMENT, "kind 3", lens_detect_head(&ctx, &not_made, narrow, &d));
    d.keys = some(2, 4, 3, 1);
    REFUSED(SHAPE, "expected [4, 4]", lens_detect_head(&ctx, &not_made, narrow, &d));
    d.keys = some_ids(4, 1);
    REFUSED(ARGUMENT, "keys", lens_detect_head(&ctx, &not_made, narrow, &d));
    d.keys = laid_out(some(2, 4, 4, 1), ATTN_F32, LAYOUT_DENSE);
    set_value(d.keys, 6, 0.5f);
    REFUSED(ARGUMENT, "later key", lens_detect_head(&ctx, &not_made, narrow, &d));
    REFUSED(ARGUMENT, "no description", lens_detect_head(&ctx, &not_made, narrow, NULL));
    d.n_tokens = 0;
    REFUSED(ARGUMENT, "no tokens", lens_detect_head(&ctx, &not_made, narrow, &d));
}

/* ---- without memory ---- */
