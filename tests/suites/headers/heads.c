/* tools/lens/heads.h against numpy in float64 (make_lens_fixtures.py), and its rules. */
#include "tests/support/lens_fixtures.h"
#include "tests/support/refused.h"
#include "tools/lens/heads.h"

SUITE_WITH_MODELS("plain odd");

TEST(head_statistics)
{
    for (int i = 0; i < 2; i++) {
        SCOPED_CTX ctx = alone();
        const attn_tensor tokens = expected(i, "again"), pattern = expected(i, "pattern");
        const attn_tensor want = expected(i, "head_scores"), want_keys = expected(i, "keys");
        attn_tensor entropy = {0}, scores = {0}, only = {0}, one = {0};
        const size_t n = tokens.shape[0];
        OK(&ctx, lens_detect_heads(&ctx, &entropy, &scores, model_of(i), ids_of(tokens), n));
        close_to(entropy, expected(i, "entropy"), 2e-6, "entropy");
        close_to(scores, want, 1e-6, "head scores");
        OK(&ctx, lens_detect_heads(&ctx, NULL, &only, model_of(i), ids_of(tokens), n));
        same_bits(only, scores, "scores alone");

        OK(&ctx, lens_pattern_entropy(&ctx, &one, pattern));
        close_to(one, attn_select(expected(i, "entropy"), 0, 0), 1e-6, "entropy of a pattern");
        for (int kind = 0; kind < LENS_N_HEAD_KINDS; kind++) {
            attn_tensor keys = {0}, score = {0};
            OK(&ctx, lens_head_keys(&ctx, &keys, (lens_head_kind)kind, ids_of(tokens), n));
            same_bits(keys, attn_select(want_keys, 0, (size_t)kind), "keys");
            OK(&ctx, lens_head_score(&ctx, &score, pattern, keys));
            close_to(score, attn_select(attn_select(want, 0, (size_t)kind), 0, 0), 1e-6, "score");
        }
        pool_clear();
    }
}

TEST(bad_heads)
{
    SCOPED_CTX ctx = alone();
    const attn_tensor pattern = expected(0, "pattern");
    attn_tensor out = {0}, wrong = random_tensor(2, 3, 3);
    int32_t many[33] = {0};
    float even[4] = {0.25f, 0.25f, 0.25f, 0.25f}, sure[4] = {0, 1, 0, 0};
    OK(&ctx, lens_pattern_entropy(&ctx, &out, attn_borrow(even, ATTN_F32, attn_shape2(1, 4))));
    CHECK(fabs((double)attn_get1(out, 0) - log(4)) < 1e-6);
    OK(&ctx, lens_pattern_entropy(&ctx, &out, attn_borrow(sure, ATTN_F32, attn_shape2(1, 4))));
    EQUAL(attn_get1(out, 0), 0);
    attn_tensor_free(&ctx, &out);
    FAILS(SHAPE, "[.., Tq, Tk]", lens_pattern_entropy(&ctx, &out, floats(even, 4)));
    FAILS(SHAPE, "[3, 3]", lens_head_score(&ctx, &out, pattern, wrong));
    FAILS(CONTEXT, "33 tokens", lens_detect_heads(&ctx, &out, NULL, plain, many, 33));
    FAILS(ARGUMENT, "no tokens", lens_detect_heads(&ctx, &out, NULL, plain, many, 0));
    many[1] = -1;
    FAILS(TOKEN, "token 1", lens_detect_heads(&ctx, &out, NULL, plain, many, 3));
    many[1] = 0;
    FAILS(SHAPE, "[3, 2, 4]", lens_detect_heads(&ctx, &out, &wrong, plain, many, 3));
    CHECK(out.ndim == 0 && ctx.blocks == NULL);
}

/* Scores alone, entropies alone, and places of the wrong shape for either. */
TEST(heads_of_a_text)
{
    SCOPED_CTX ctx = {0};
    attn_tensor e = no_tensor, s = no_tensor, e2 = no_tensor, s2 = no_tensor;
    FAILS(CONTEXT, "n_ctx is", /* before a token is looked at */
          lens_detect_heads(&ctx, &e, &s, plain, ten, SIZE_MAX));
    OK(&ctx, lens_detect_heads(&ctx, &e, &s, plain, ten, 8));
    OK(&ctx, lens_detect_heads(&ctx, &e2, NULL, plain, ten, 8));
    OK(&ctx, lens_detect_heads(&ctx, NULL, &s2, plain, ten, 8));
    CHECK(same_bits(e2, e, "entropies alone") && same_bits(s2, s, "scores alone"));
    e2 = no_tensor;
    s2 = some(2, 3, 3, 1);
    FAILS(SHAPE, "", lens_detect_heads(&ctx, &e2, &s2, plain, ten, 8));
    EQUAL(e2.ndim, 0);
    e2 = some(2, 3, 3, 1);
    s2 = no_tensor;
    FAILS(SHAPE, "", lens_detect_heads(&ctx, &e2, &s2, plain, ten, 8));
    EQUAL(s2.ndim, 0);
}

TEST(heads_refused)
{
    SCOPED_CTX ctx = {0};
    const attn_tensor v = some(1, 64, 1, 1), m = some(2, 3, 64, 1), pattern = some(3, 2, 4, 4);
    attn_tensor keys = no_tensor, bad = attn_slice(v, 0, 64, 1);
    REFUSED(ARGUMENT, "pattern", lens_pattern_entropy(&ctx, &not_made, no_tensor));
    REFUSED(ARGUMENT, "no tokens", lens_head_keys(&ctx, &not_made, LENS_HEAD_PREVIOUS, NULL, 3));
    REFUSED(ARGUMENT, "no tokens", lens_head_keys(&ctx, &not_made, LENS_HEAD_PREVIOUS, ten, 0));
    REFUSED(ARGUMENT, "kind 3", lens_head_keys(&ctx, &not_made, LENS_N_HEAD_KINDS, ten, 3));
    ctx.status = ATTN_OK;
    OK(&ctx, lens_head_keys(&ctx, &keys, LENS_HEAD_PREVIOUS, ten, 4));
    REFUSED(ARGUMENT, "pattern", lens_head_score(&ctx, &not_made, no_tensor, keys));
    REFUSED(ARGUMENT, "keys", lens_head_score(&ctx, &not_made, pattern, no_tensor));
    REFUSED(SHAPE, "lens_head_score", lens_head_score(&ctx, &not_made, m, keys));
    REFUSED(SHAPE, "lens_head_score", lens_head_score(&ctx, &not_made, pattern, v));
    REFUSED(SHAPE, "lens_head_score",
            lens_head_score(&ctx, &not_made, pattern, attn_slice(keys, 0, 0, 3)));
    REFUSED(SHAPE, "lens_head_score",
            lens_head_score(&ctx, &not_made, pattern, attn_slice(keys, 1, 0, 3)));
    FAILS(ARGUMENT, "out is no tensor: attn_slice", lens_pattern_entropy(&ctx, &bad, pattern));
    FAILS(ARGUMENT, "data type 2", lens_pattern_entropy(&ctx, &not_made, some_ids(3, 1)));
}

/* Patterns of any layout, into places of any layout; in pieces as in one. */
TEST(layouts)
{
    SCOPED_CTX ctx = alone();
    const attn_tensor pattern = expected(0, "pattern");
    attn_tensor dense = {0}, out = {0}, half = {0};
    const size_t shape[2] = {pattern.shape[0], pattern.shape[1]};
    attn_tensor into = new_tensor(ATTN_F32, 2, shape, LAYOUT_COLUMNS);
    OK(&ctx, lens_pattern_entropy(&ctx, &dense, pattern));
    OK(&ctx, lens_pattern_entropy(&ctx, &out, laid_out(pattern, ATTN_F32, LAYOUT_BACKWARD)));
    OK(&ctx, lens_pattern_entropy(&ctx, &into, pattern));
    same_bits(out, dense, "a pattern backward");
    same_bits(into, dense, "into columns");
    OK(&ctx, lens_pattern_entropy(&ctx, &half, laid_out(pattern, ATTN_F16, LAYOUT_DENSE)));
    close_to(half, dense, 2e-3, "halves");
}
