/* Losses and predictions: log-softmaxes of the logits, and numpy's in float64
 * (make_lens_fixtures.py). */
#include "tests/support/lens_fixtures.h"
#include "tests/support/hooks.h"

SUITE_WITH_MODELS("plain odd tiny");

/* ---- sessions ---- */

/* Scores are the log-softmax of the logits, whatever came before and however the rows are cut. */
TEST(scores)
{
    enum { LENGTH = 90, PAST = 7 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(tiny, LENGTH, 28);
    float *const logits = logits_of(&ctx, tiny, 0, tokens, LENGTH, LENGTH);
    attn_token_stats first[LENGTH], stats[LENGTH];
    const size_t n_vocab = vocab_of(tiny), n_batch[] = {1, 7, 256};
    double sum = 0, mean = 0;
    for (size_t b = 0; b < 3; b++) {
        SCOPED_SESSION session = session_on(&ctx, tiny, 0, n_batch[b]);
        OK(&ctx, attn_feed(&ctx, session, tokens, PAST));
        memset(stats, 0xFF, sizeof stats);
        OK(&ctx, attn_score(&ctx, stats, NULL, session, tokens + PAST, LENGTH - PAST));
        mean = attn_mean_nll(stats, LENGTH - PAST - 1);
        EQUAL(attn_session_length(session), LENGTH);
        same_logits(attn_session_logits(session), row_of(logits, LENGTH - 1, tiny), 1, tiny,
                    "scored");
        if (b == 0)
            memcpy(first, stats, sizeof stats);
        CHECK(memcmp(first, stats, (LENGTH - PAST - 1) * sizeof *stats) == 0);
        CHECK(isnan(stats[LENGTH - PAST - 1].nll)); /* not written */
    }
    for (size_t i = PAST; i + 1 < LENGTH; i++) {
        const float *row = row_of(logits, i, tiny);
        double total = 0;
        for (size_t j = 0; j < n_vocab; j++)
            total += exp((double)row[j] - (double)row[tokens[i + 1]]);
        double want = log(total);
        sum += want;
        CHECKF(fabs((double)stats[i - PAST].nll - want) <= 4e-7 * want + 4e-7,
               "nll %llu is %.9g, not %.9g", LLU(i), (double)stats[i - PAST].nll, want);
    }
    CHECK(fabs(mean - sum / (LENGTH - PAST - 1)) < 1e-6);
}

/* A score that is stopped half way leaves the session where it was. */
TEST(stopped_score)
{
    enum { LENGTH = 100 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(tiny, LENGTH, 29);
    float *const want = logits_of(&ctx, tiny, 0, tokens, LENGTH, LENGTH);
    attn_token_stats stats[LENGTH];
    SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
    stopper s;
    s.name = "blocks.3.hook_mlp_out";
    s.first = 60;
    OK(&ctx, attn_feed(&ctx, session, tokens, 5));
    OK(&ctx, attn_hook(&ctx, NULL, session, s.name, stop_at, &s));
    STOPS(&ctx, attn_score(&ctx, stats, NULL, session, tokens + 5, LENGTH - 5));
    EQUAL(attn_session_length(session), 5);
    same_logits(attn_session_logits(session), row_of(want, 4, tiny), 1, tiny,
                "the logits from before");
    attn_unhook_all(session);
    same_logits(feed_all(&ctx, session, tokens + 5, LENGTH - 5, 50), row_of(want, 5, tiny),
                LENGTH - 5, tiny, "after a stopped score");
}

static volatile int flag;

static int raise_flag(const attn_activation *a, void *user)
{
    flag |= a->first >= *(const size_t *)user;
    return 0;
}

TEST(stopped_from_outside)
{
    enum { LENGTH = 100 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(tiny, LENGTH, 29);
    attn_token_stats stats[LENGTH];
    SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
    size_t from = 60;
    ctx.stop_flag = &flag;
    OK(&ctx, attn_feed(&ctx, session, tokens, 5));
    OK(&ctx, attn_hook(&ctx, NULL, session, "hook_embed", raise_flag, &from));
    STOPS(&ctx, attn_score(&ctx, stats, NULL, session, tokens + 5, LENGTH - 5));
    EQUAL(attn_session_length(session), 5);
    flag = 0;
    from = LENGTH;
    OK(&ctx, attn_score(&ctx, stats, NULL, session, tokens + 5, LENGTH - 5));
}

/* ---- losses and predictions ---- */

static void check_stats(int model, const attn_token_stats *stats, const attn_prediction *top)
{
    const attn_tensor rank = expected(model, "rank"), ids = expected(model, "top");
    const size_t n = rank.shape[0], n_top = count_of(ids);
    attn_tensor nll = random_tensor(1, (int)n), p = random_tensor(1, (int)n);
    attn_tensor top_p = random_tensor(2, (int)n + 1, 5);
    for (size_t t = 0; t < n; t++) {
        ((float *)nll.data)[t] = stats[t].nll;
        ((float *)p.data)[t] = stats[t].probability;
        CHECKF(stats[t].rank == (size_t)ids_of(rank)[t], "rank %zu of token %zu, expected %d",
               stats[t].rank, t + 1, (int)ids_of(rank)[t]);
    }
    for (size_t t = 0; t < n_top; t++) {
        ((float *)top_p.data)[t] = top[t].probability;
        CHECKF(top[t].token == ids_of(ids)[t], "prediction %zu is %d, expected %d", t,
               (int)top[t].token, (int)ids_of(ids)[t]);
    }
    close_to(nll, expected(model, "nll"), 1e-6, "nll");
    close_to(p, expected(model, "probability"), 1e-6, "probability");
    close_to(top_p, expected(model, "top_probability"), 4e-6, "probabilities of the likeliest");
}

TEST(text_statistics)
{
    for (int i = 0; i < 2; i++) {
        SCOPED_CTX ctx = alone();
        const attn_tensor tokens = expected(i, "tokens");
        const size_t n = tokens.shape[0], n_vocab = attn_model_config(model_of(i))->n_vocab;
        attn_token_stats stats[64], again[64];
        attn_prediction top[64 * 5], again_top[5];
        SCOPED_SESSION session = session_on(&ctx, model_of(i), 0, 0);
        attn_token_stats alone_stats[64];
        double sum = 0;
        OK(&ctx, attn_score(&ctx, stats, &(attn_top){top, 5}, session, ids_of(tokens), n));
        check_stats(i, stats, top);
        CHECK(attn_session_length(session) == n && attn_session_logits(session) != NULL);

        OK(&ctx, attn_session_truncate(&ctx, session,
                                       0)); /* alone, and none: the text is fed all the same */
        OK(&ctx, attn_score(&ctx, alone_stats, NULL, session, ids_of(tokens), n));
        CHECK(memcmp(alone_stats, stats, (n - 1) * sizeof *stats) == 0);
        OK(&ctx, attn_session_truncate(&ctx, session, 0));
        OK(&ctx, attn_score(&ctx, NULL, NULL, session, ids_of(tokens), n));
        CHECK(attn_session_length(session) == n && attn_session_logits(session) != NULL);
        for (size_t t = 0; t + 1 < n; t++)
            sum += (double)stats[t].nll;
        CHECK(fabs(attn_mean_nll(stats, n - 1) - sum / (double)(n - 1)) < 1e-12);
        CHECK(isnan(attn_mean_nll(stats, 0)) && isnan(attn_mean_nll(NULL, 3)));

        OK(&ctx,
           attn_session_truncate(&ctx, session, 0)); /* the same from logits that somebody has */
        float *logits = feed_all(&ctx, session, ids_of(tokens), n, n);
        OK(&ctx, attn_logit_stats(&ctx, again, NULL,
                                  attn_borrow(logits, ATTN_F32, attn_shape2(n - 1, n_vocab)),
                                  ids_of(tokens) + 1));
        for (size_t t = 0; t + 1 < n; t++)
            CHECK(again[t].nll == stats[t].nll && again[t].rank == stats[t].rank &&
                  again[t].probability == stats[t].probability);

        OK(&ctx,
           attn_session_truncate(&ctx, session, n - 1)); /* a text of one token: only predictions */
        OK(&ctx,
           attn_score(&ctx, stats, &(attn_top){again_top, 5}, session, ids_of(tokens) + n - 1, 1));
        for (size_t t = 0; t < 5; t++)
            CHECK(again_top[t].token == top[(n - 1) * 5 + t].token &&
                  again_top[t].logit == top[(n - 1) * 5 + t].logit);
        pool_clear();
    }
}

TEST(equal_logits)
{
    SCOPED_CTX ctx = alone();
    float x[2][6] = {{1, 3, 3, -2, 3, 1}, {0, 0, 0, 0, 0, 0}};
    const int32_t targets[2] = {2, 5};
    attn_token_stats stats[2];
    attn_prediction top[2][6];
    const attn_tensor logits = attn_borrow(x, ATTN_F32, attn_shape2(2, 6));
    static const int32_t order[2][6] = {{1, 2, 4, 0, 5, 3}, {0, 1, 2, 3, 4, 5}};
    OK(&ctx, attn_logit_stats(&ctx, stats, &(attn_top){top[0], 6}, logits, targets));
    CHECK(stats[0].rank == 1 && stats[1].rank == 5);
    CHECK(fabs((double)stats[1].nll - log(6)) < 1e-6);
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < 6; i++)
            CHECK(top[t][i].token == order[t][i] && top[t][i].logit == x[t][order[t][i]]);
    for (int i = 1; i < 6; i++) { /* fewer: of equals at the end, too, the first */
        attn_prediction fewer[10];
        OK(&ctx, attn_logit_stats(&ctx, NULL, &(attn_top){fewer, (size_t)i}, logits, NULL));
        for (int t = 0; t < 2 * i; t++)
            CHECK(fewer[t].token == order[t / i][t % i]);
    }
    x[0][5] = -INFINITY; /* a token that cannot come */
    OK(&ctx, attn_logit_stats(&ctx, NULL, &(attn_top){top[0], 6}, logits, NULL));
    CHECK(top[0][5].token == 5 && top[0][5].probability == 0);

    FAILS(ARGUMENT, "7 likeliest",
          attn_logit_stats(&ctx, NULL, &(attn_top){top[0], 7}, logits, NULL));
    FAILS(ARGUMENT, "no room", attn_logit_stats(&ctx, NULL, &(attn_top){NULL, 1}, logits, NULL));
    FAILS(ARGUMENT, "no target", attn_logit_stats(&ctx, stats, NULL, logits, NULL));
    FAILS(ARGUMENT, "no room", attn_logit_stats(&ctx, NULL, NULL, logits, targets));
    FAILS(SHAPE, "[T, V]", attn_logit_stats(&ctx, stats, NULL, floats(x[0], 6), targets));
    {
        const int32_t outside[2] = {0, 6};
        FAILS(TOKEN, "target 1 is 6", attn_logit_stats(&ctx, stats, NULL, logits, outside));
    }
    x[0][5] = x[0][2] = INFINITY; /* the first is certain, as attn_sample has it */
    {
        const int32_t first[2] = {2, 0}, second[2] = {5, 0};
        OK(&ctx, attn_logit_stats(&ctx, stats, &(attn_top){top[0], 2}, logits, first));
        CHECK(stats[0].nll == 0 && stats[0].probability == 1 && stats[0].rank == 0);
        CHECK(top[0][0].token == 2 && top[0][0].probability == 1);
        CHECK(top[0][1].token == 5 && top[0][1].probability == 0);
        OK(&ctx, attn_logit_stats(&ctx, stats, NULL, logits, second));
        CHECK(stats[0].nll == INFINITY && stats[0].probability == 0 && stats[0].rank == 1);
    }
    x[0][0] = NAN;
    FAILS(ARGUMENT, "row 0 hold a NaN",
          attn_logit_stats(&ctx, stats, &(attn_top){top[0], 2}, logits, targets));
    for (int i = 0; i < 6; i++)
        x[0][i] = -INFINITY;
    FAILS(ARGUMENT, "row 0 hold a NaN, or are all -inf",
          attn_logit_stats(&ctx, stats, &(attn_top){top[0], 2}, logits, targets));
    x[0][1] = 0;
    x[1][3] = NAN;
    FAILS(ARGUMENT, "row 1",
          attn_logit_stats(&ctx, stats, &(attn_top){top[0], 2}, logits, targets));
}

/* All of a large vocabulary in order, which is quick only if the work per token grows slower than
 * the vocabulary. Ascending logits are the worst case: every token displaces another. */
TEST(every_token_in_order)
{
    const size_t n = 1 << 20;
    SCOPED_CTX ctx = alone();
    float *x = (float *)pool_new(n * sizeof(float));
    attn_prediction *top = (attn_prediction *)pool_new(n * sizeof(attn_prediction));
    const attn_tensor logits = attn_borrow(x, ATTN_F32, attn_shape2(1, n));
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(i / 2) * 1e-5f; /* pairs of equals */
    for (size_t k = n; k > 1000; k /= 3) {
        OK(&ctx, attn_logit_stats(&ctx, NULL, &(attn_top){top, k}, logits, NULL));
        for (size_t i = 0; i < k; i++) /* the smaller of a pair comes first */
            if (!CHECK(top[i].token == (int32_t)(n - 2 - i / 2 * 2 + i % 2) &&
                       top[i].logit == x[top[i].token]))
                break;
    }
}

/* A text that fails leaves the session as it was. */
TEST(failing_statistics)
{
    SCOPED_CTX ctx = alone();
    const attn_tensor tokens = expected(0, "tokens");
    attn_token_stats stats[40];
    SCOPED_SESSION session = NULL;
    const int32_t beyond[3] = {1, 97, 2};
    float before[97];
    OK(&ctx, attn_session_new(&ctx, &session, plain, NULL));
    OK(&ctx, attn_feed(&ctx, session, ids_of(tokens), 10));
    memcpy(before, attn_session_logits(session), sizeof before);
    FAILS(TOKEN, "97", attn_score(&ctx, stats, NULL, session, beyond, 3));
    FAILS(CONTEXT, "32", attn_score(&ctx, stats, NULL, session, ids_of(tokens), 23));
    FAILS(ARGUMENT, "no tokens", attn_score(&ctx, stats, NULL, session, NULL, 3));
    FAILS(ARGUMENT, "98 likeliest",
          attn_score(&ctx, stats, &(attn_top){(attn_prediction *)before, 98}, session,
                     ids_of(tokens), 3));
    FAILS(ARGUMENT, "no session", attn_score(&ctx, stats, NULL, NULL, ids_of(tokens), 3));
    CHECK(attn_session_length(session) == 10 &&
          memcmp(attn_session_logits(session), before, sizeof before) == 0);
}
