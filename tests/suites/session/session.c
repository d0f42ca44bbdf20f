/* Sessions: batches, their capacity, truncating, copies, the cache of keys and values, what is refused
 * and how much memory they take. */
#include "tests/support/hooks.h"
#include "tests/support/refused.h"
#include "tests/support/same_bits.h"
#include "tests/support/shared_models.h"
#include "tools/common/session_file.h"
#include "tools/lens/logits.h"

SUITE_WITH_MODELS("plain odd narrow longer tiny bytes8");

/* ---- sessions that are made of others' keys and values ---- */

enum { MOST_LAYERS = 12 };

/* Everything of a session but its watchers, through the API, into another. */
static void rebuild(attn_ctx *ctx, attn_session *to, const attn_session *from)
{
    const size_t n = 2 * attn_model_config(attn_session_model(from))->n_layer;
    attn_tensor cache[2 * MOST_LAYERS] = {{0}};
    for (size_t i = 0; i < n; i++)
        OK(ctx, attn_session_get_cache(ctx, &cache[i], from,
                                       i % 2 ? ATTN_CACHE_VALUES : ATTN_CACHE_KEYS, i / 2, 0));
    OK(ctx, attn_session_restore(ctx, to, attn_session_tokens(from), attn_session_length(from),
                                 cache, attn_session_logits(from)));
    for (size_t i = 0; i < n; i++)
        attn_tensor_free(ctx, &cache[i]);
}

static attn_session *with_cache(attn_ctx *ctx, const attn_model *model, size_t n_ctx,
                                attn_dtype type)
{
    attn_session *session = NULL;
    attn_session_desc desc = {.n_ctx = n_ctx, .cache_dtype = type};
    OK(ctx, attn_session_new(ctx, &session, model, &desc));
    EQUAL(attn_session_cache_dtype(session), type);
    return session;
}

TEST(rebuilt_sessions)
{
    enum { LENGTH = 14, PAST = 9 };
    const attn_model *const models[] = {plain, odd, narrow, tiny, bytes8};
    attn_ctx ctx = alone();
    for (size_t m = 0; m < 10; m++) {
        const attn_model *const model = models[m / 2];
        const attn_dtype type = m % 2 ? ATTN_F16 : ATTN_F32;
        const int32_t *const tokens = random_tokens(model, LENGTH, 8 + m);
        SCOPED_SESSION from = with_cache(&ctx, model, 0, type);
        SCOPED_SESSION to = with_cache(&ctx, model, LENGTH, type);
        OK(&ctx, attn_feed(&ctx, to, random_tokens(model, LENGTH, 3), LENGTH)); /* an old text */
        OK(&ctx, attn_session_truncate(&ctx, to, 0));
        OK(&ctx, attn_feed(&ctx, from, tokens, PAST));
        rebuild(&ctx, to, from);
        EQUAL(attn_session_length(to), PAST);
        CHECK(memcmp(attn_session_tokens(to), tokens, PAST * sizeof *tokens) == 0);
        same_logits(attn_session_logits(to), attn_session_logits(from), 1, model, "rebuilt");
        OK(&ctx, attn_feed(&ctx, from, tokens + PAST, LENGTH - PAST));
        OK(&ctx, attn_feed(&ctx, to, tokens + PAST, LENGTH - PAST));
        same_logits(attn_session_logits(to), attn_session_logits(from), 1, model, "gone on");
    }
}

/* A call that is refused leaves the session's tokens, keys, values and logits as they were. */
TEST(sessions_that_cannot_be_rebuilt)
{
    enum { ROOM = 6, LENGTH = 3 };
    attn_ctx ctx = alone();
    const attn_config *const c = attn_model_config(odd);
    const size_t n = 2 * c->n_layer;
    int32_t tokens[ROOM + 1] = {1, 2, 3, 4, 5, 6, 7};
    const int32_t held[] = {7, 8, 9, 10};
    attn_session *session = session_on(&ctx, odd, ROOM, 0), *same = session_on(&ctx, odd, ROOM, 0);
    const attn_tensor two = random_tensor(3, 2, (int)c->n_head, (int)c->d_head);
    const attn_tensor wrong[] = {no_tensor, attn_slice(two, 0, 0, 1), attn_slice(two, 1, 0, 1),
                                 attn_transpose(two, 0, 1), attn_select(two, 0, 0)};
    attn_tensor cache[2 * MOST_LAYERS];
    for (size_t i = 0; i < n; i++)
        cache[i] = two;
    OK(&ctx, attn_feed(&ctx, session, held, LENGTH));
    OK(&ctx, attn_feed(&ctx, same, held, LENGTH));
    for (size_t i = 0; i < n; i++) /* one that is missing, or has another shape: the last one too */
        for (size_t j = 0; j < sizeof wrong / sizeof *wrong; j++) {
            const char *const named = test_text("cache[%d] ", (int)i);
            cache[i] = wrong[j];
            ctx.status = ATTN_OK;
            FAILS_IN(&ctx, j == 0 ? ATTN_E_ARGUMENT : ATTN_E_SHAPE, named,
                     attn_session_restore(&ctx, session, tokens, 2, cache, NULL));
            cache[i] = two;
        }
    FAILS(ARGUMENT, "no cache", attn_session_restore(&ctx, session, tokens, 2, NULL, NULL));
    FAILS(ARGUMENT, "no tokens", attn_session_restore(&ctx, session, tokens, 0, cache, NULL));
    FAILS(CONTEXT, "7 tokens do not fit into a session for 6",
          attn_session_restore(&ctx, session, tokens, ROOM + 1, cache, NULL));
    tokens[1] = (int32_t)c->n_vocab;
    FAILS(TOKEN, "token 1 is", attn_session_restore(&ctx, session, tokens, 2, cache, NULL));
    tokens[1] = 2;
    EQUAL(attn_session_length(session), LENGTH);
    same_logits(attn_session_logits(session), attn_session_logits(same), 1, odd, "refused");
    OK(&ctx, attn_feed(&ctx, session, held + LENGTH, 1));
    OK(&ctx, attn_feed(&ctx, same, held + LENGTH, 1));
    same_logits(attn_session_logits(session), attn_session_logits(same), 1, odd, "gone on");
    FAILS(ARGUMENT, "2 positions from 3 on; the session holds 4",
          attn_session_set_cache(&ctx, session, ATTN_CACHE_KEYS, 0, 3, two));
    OK(&ctx, attn_session_restore(&ctx, session, tokens, 2, cache, NULL));
    CHECK(attn_session_length(session) == 2 && !attn_session_logits(session));
    attn_record *record = record_on(&ctx, session, NULL, 0, 2, ROOM);
    FAILS(ARGUMENT, "a record watches",
          attn_session_restore(&ctx, session, tokens, 2, cache, NULL));
    attn_record_free(record);
    OK(&ctx, attn_feed(&ctx, session, tokens, ROOM - 2));
    attn_session_free(session);
    attn_session_free(same);
}

/* ---- sessions in files ---- */

TEST(saved_sessions)
{
    enum { LENGTH = 14, PAST = 9 };
    static const char path[] = TEST_TMP "saved";
    const attn_model *const models[] = {plain, odd, tiny, bytes8};
    attn_ctx ctx = alone();
    for (size_t m = 0; m < 8; m++) {
        const attn_model *const model = models[m / 2];
        const attn_dtype type = m % 2 ? ATTN_F16 : ATTN_F32;
        const int32_t *const tokens = random_tokens(model, LENGTH, 8 + m);
        SCOPED_SESSION from = with_cache(&ctx, model, 0, type);
        SCOPED_SESSION to = with_cache(&ctx, model, LENGTH, type);
        SCOPED_SESSION other = with_cache(&ctx, model, 0, m % 2 ? ATTN_F32 : ATTN_F16);
        FAILS(ARGUMENT, "holds no tokens", lens_session_save(&ctx, path, from));
        OK(&ctx, attn_feed(&ctx, from, tokens, PAST));
        OK(&ctx, lens_session_save(&ctx, path, from));
        OK(&ctx, lens_session_load(&ctx, to, path));
        same_logits(attn_session_logits(to), attn_session_logits(from), 1, model, "loaded");
        OK(&ctx, attn_feed(&ctx, from, tokens + PAST, LENGTH - PAST));
        OK(&ctx, attn_feed(&ctx, to, tokens + PAST, LENGTH - PAST));
        CHECK(memcmp(attn_session_tokens(to), tokens, LENGTH * sizeof *tokens) == 0);
        same_logits(attn_session_logits(to), attn_session_logits(from), 1, model, "gone on");
        FAILS(ARGUMENT, m % 2 ? "in f16, and not in f32" : "in f32, and not in f16",
              lens_session_load(&ctx, other, path));
        OK(&ctx, attn_session_truncate(&ctx, from, PAST)); /* and no logits */
        OK(&ctx, lens_session_save(&ctx, path, from));
        OK(&ctx, lens_session_load(&ctx, to, path));
        CHECK(attn_session_length(to) == PAST && !attn_session_logits(to));
    }
}

/* A file that was cut, damaged, made longer, or that is another model's: the session is as it was. */
TEST(bad_sessions_in_files)
{
    static const char path[] = TEST_TMP "bad";
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, plain, 0, 0), *small = session_on(&ctx, plain, 3, 0);
    attn_session *others[] = {session_on(&ctx, odd, 0, 0), session_on(&ctx, tiny, 0, 0)};
    float *logits = (float *)pool_new(vocab_of(plain) * sizeof *logits);
    size_t size, n_wrong = 0;
    OK(&ctx, attn_feed(&ctx, session, ten, 4));
    OK(&ctx, lens_session_save(&ctx, path, session));
    OK(&ctx, attn_feed(&ctx, session, ten, 3));
    memcpy(logits, attn_session_logits(session), vocab_of(plain) * sizeof *logits);
    for (size_t i = 0; i < 2; i++)
        FAILS(ARGUMENT, "another model", lens_session_load(&ctx, others[i], path));
    FAILS(CONTEXT, "holds 4 tokens; the session has room for 3",
          lens_session_load(&ctx, small, path));
    unsigned char *bytes = test_read(path, &size);
    for (size_t i = 0; i < size; i += i < 64 ? 1 : 97) {
        test_write(path, bytes, i);
        FAILS(FORMAT, "ends early", lens_session_load(&ctx, session, path));
        n_wrong += attn_session_length(session) != 7;
    }
    for (size_t i = 0; i < size; i += i < 64 ? 1 : 41) {
        bytes[i] ^= 0x10;
        test_write(path, bytes, size);
        CHECKF(lens_session_load(&ctx, session, path) != ATTN_OK, "byte %zu", i);
        n_wrong += attn_session_length(session) != 7;
        bytes[i] ^= 0x10;
    }
    EQUAL(n_wrong, 0);
    same_logits(attn_session_logits(session), logits, 1, plain, "after files that were refused");
    test_write(path, bytes, size + 1); /* the zero behind it */
    FAILS(CHECKSUM, "has more bytes than a session", lens_session_load(&ctx, session, path));
    test_write(path, bytes, size);
    OK(&ctx, lens_session_load(&ctx, session, path));
    EQUAL(attn_session_length(session), 4);
    FAILS(IO, "nowhere", lens_session_load(&ctx, session, TEST_BUILD "/nowhere"));
    FAILS(IO, "nowhere", lens_session_save(&ctx, TEST_BUILD "/nowhere/at/all", session));
    free(bytes);
    attn_session_free(session);
    attn_session_free(small);
    attn_session_free(others[0]);
    attn_session_free(others[1]);
}

/* ---- stopping from outside ---- */

static volatile int flag;

/* Raises the flag when it is called with this position or a later one, and counts the layers begun. */
typedef struct raiser {
    size_t first, n_layers, layer;
} raiser;

static int raise_flag(const attn_activation *a, void *user)
{
    raiser *r = (raiser *)user;
    r->n_layers++;
    if (a->layer == r->layer && a->first >= r->first)
        flag = 1;
    return 0;
}

/* The stop is seen before the layer after the next, in every number of threads; the session is as
 * before, and what is fed later has the same bits. */
TEST(stopped_from_outside)
{
    enum { LENGTH = 30, PAST = 5, STEP = 7 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(tiny, LENGTH, 31);
    float *const want = logits_of(&ctx, tiny, 0, tokens, LENGTH, LENGTH);
    ctx.stop_flag = &flag;
    for (size_t n_threads = 1; n_threads <= 4; n_threads++)
        for (size_t layer = 0; layer < 2; layer++) {
            attn_session *session;
            raiser r = {PAST + STEP, 0, layer}; /* in the second pass */
            ctx.n_threads = (int)n_threads;
            if ((session = session_on(&ctx, tiny, 0, STEP)) == NULL)
                return;
            OK(&ctx, attn_feed(&ctx, session, tokens, PAST));
            flag = 1;
            STOPS(&ctx, attn_feed(&ctx, session, tokens + PAST, 1));
            flag = 0;
            OK(&ctx, attn_hook(&ctx, NULL, session, "*.hook_resid_pre", raise_flag, &r));
            STOPS(&ctx, attn_feed(&ctx, session, tokens + PAST, LENGTH - PAST));
            EQUAL(r.n_layers, 4 + layer + 2); /* a whole pass before */
            EQUAL(attn_session_length(session), PAST);
            same_logits(attn_session_logits(session), row_of(want, PAST - 1, tiny), 1, tiny,
                        "the logits from before");
            flag = 0;
            attn_unhook_all(session);
            same_logits(feed_all(&ctx, session, tokens + PAST, LENGTH - PAST, 9),
                        row_of(want, PAST, tiny), LENGTH - PAST, tiny, "after a stop");
            attn_session_free(session);
        }
}

/* ---- the same bits ---- */

TEST(batch_of_full_sessions)
{
    check_batch(tiny, 256, 1, 1);
    check_batch(tiny, 7, 2, 1);
    check_batch(plain, 32, 1, 1);
    check_batch(odd, 256, 2, 1);
    check_batch(odd, 1, 1, 1);
}

TEST(batch_of_mixed_sessions)
{
    check_batch(tiny, 256, 1, 0);
    check_batch(plain, 7, 1, 0);
    check_batch(odd, 256, 2, 0);
    check_batch(odd, 32, 3, 0);
}

/* The scores of a long sequence, in a batch that begins with a small session. */
TEST(batch_behind_a_small_session)
{
    static const size_t past[] = {0, 150, 100}, fed[] = {39, 60, 90}, sizes[] = {40, 256, 200};
    for (size_t n_threads = 1; n_threads <= 2; n_threads++) {
        attn_ctx ctx = alone();
        attn_session *sessions[3];
        attn_feed_item items[3];
        float *want[3];
        ctx.n_threads = (int)n_threads;
        for (size_t i = 0; i < 3; i++) {
            const size_t total = past[i] + fed[i];
            const int32_t *const tokens = random_tokens(tiny, total, i + 40);
            want[i] = row_of(logits_of(&ctx, tiny, 0, tokens, total, total), past[i], tiny);
            if ((sessions[i] = session_on(&ctx, tiny, sizes[i], 0)) == NULL)
                return;
            if (past[i] > 0)
                OK(&ctx, attn_feed(&ctx, sessions[i], tokens, past[i]));
            items[i] = item_of(sessions[i], tokens + past[i], fed[i],
                               (float *)pool_new(fed[i] * vocab_of(tiny) * sizeof(float)));
        }
        share_workspace(&ctx, sessions, 3, 0);
        OK(&ctx, attn_feed_batch(&ctx, items, 3));
        for (size_t i = 0; i < 3; i++) {
            same_logits(items[i].logits, want[i], fed[i], tiny, "behind a small session");
            attn_session_free(sessions[i]);
        }
        pool_clear();
    }
}

/* Rows are chosen in a batch of one, with n_batch cutting through them. */
TEST(chosen_rows)
{
    enum { LENGTH = 30 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 3);
    float *const want = logits_of(&ctx, odd, 0, tokens, LENGTH, LENGTH);
    const size_t n_vocab = vocab_of(odd), n_batch[] = {1, 4, 32};
    size_t rows[LENGTH], set, i, b;
    for (b = 0; b < 3; b++)
        for (set = 0; set < 20; set++) {
            SCOPED_SESSION session = session_on(&ctx, odd, 0, n_batch[b]);
            attn_feed_item item = item_of(session, tokens, LENGTH, NULL);
            item.rows = rows;
            item.logits = (float *)pool_new((LENGTH + 1) * n_vocab * sizeof(float));
            memset(item.logits, 0x7E, (LENGTH + 1) * n_vocab * sizeof(float));
            for (i = 0; i < LENGTH; i++)
                if (set > 0 && random_below(set) == 0) /* set 0 has none, set 1 all */
                    rows[item.n_rows++] = i;
            OK(&ctx, attn_feed_batch(&ctx, &item, 1));
            for (i = 0; i < item.n_rows; i++)
                same_logits(row_of(item.logits, i, odd), row_of(want, rows[i], odd), 1, odd, "row");
            for (i = item.n_rows * n_vocab; i < (LENGTH + 1) * n_vocab; i++)
                if (!CHECKF(((unsigned char *)&item.logits[i])[0] == 0x7E, "written past the rows"))
                    break;
        }
}

/* ---- sessions ---- */

TEST(capacity)
{
    enum { FULL = 40 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, FULL + 1, 22);
    float *const want = logits_of(&ctx, odd, 0, tokens, FULL, FULL);
    static const size_t sizes[] = {1, 2, 15, 16, 17, 33, FULL};
    attn_session *session = session_on(&ctx, odd, 0, 0);
    size_t i;
    CHECK(attn_session_capacity(session) == FULL && attn_session_model(session) == odd);
    attn_session_free(session);
    for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const size_t n = sizes[i];
        session = session_on(&ctx, odd, n, 0);
        CHECK(attn_session_capacity(session) == n && attn_session_length(session) == 0);
        CHECK(attn_session_logits(session) == NULL);
        FAILS(CONTEXT, "do not fit", attn_feed(&ctx, session, tokens, n + 1));
        CHECK(attn_session_length(session) == 0 && attn_session_logits(session) == NULL);
        same_logits(feed_all(&ctx, session, tokens, n, n), want, n, odd, "a smaller session");
        FAILS(CONTEXT, "do not fit", attn_feed(&ctx, session, tokens, 1));
        EQUAL(attn_session_length(session), n);
        CHECK(memcmp(attn_session_tokens(session), tokens, n * sizeof *tokens) == 0);
        same_logits(attn_session_logits(session), row_of(want, n - 1, odd), 1, odd,
                    "after a refusal");
        attn_session_free(session);
    }
    attn_session_desc desc = {.n_ctx = FULL + 1};
    FAILS(ARGUMENT, "n_ctx is 40", attn_session_new(&ctx, &session, odd, &desc));
    CHECK(session == NULL);
    FAILS(ARGUMENT, "n_ctx is 40", attn_session_size(&ctx, &i, odd, &desc));
    desc.n_ctx = SIZE_MAX;
    FAILS(ARGUMENT, "n_ctx is 40", attn_session_new(&ctx, &session, odd, &desc));
    desc.n_ctx = 0;
    desc.n_batch = SIZE_MAX; /* more than it can ever need */
    if (OK(&ctx, attn_session_new(&ctx, &session, odd, &desc)))
        same_logits(feed_all(&ctx, session, tokens, FULL, FULL), want, FULL, odd,
                    "n_batch SIZE_MAX");
    attn_session_free(session);
}

TEST(truncating)
{
    enum { LENGTH = 38 };
    attn_ctx ctx = alone();
    const int32_t *const one = random_tokens(odd, LENGTH, 23),
                         *other = random_tokens(odd, LENGTH, 24);
    float *const want = logits_of(&ctx, odd, 0, one, LENGTH, LENGTH);
    SCOPED_SESSION session = session_on(&ctx, odd, 0, 0);
    for (size_t length = 0; length < LENGTH; length += 5) {
        OK(&ctx, attn_session_truncate(&ctx, session, 0));
        if (length > 0)
            OK(&ctx, attn_feed(&ctx, session, one, length));
        OK(&ctx, attn_feed(&ctx, session, other, LENGTH - length));
        OK(&ctx, attn_session_truncate(&ctx, session, length));
        CHECK(attn_session_length(session) == length && attn_session_logits(session) == NULL);
        same_logits(feed_all(&ctx, session, one + length, LENGTH - length, 11),
                    row_of(want, length, odd), LENGTH - length, odd, "after truncating");
    }
    FAILS(ARGUMENT, "39", attn_session_truncate(&ctx, session, LENGTH + 1));
    FAILS(ARGUMENT, "attn_session_truncate", attn_session_truncate(&ctx, session, SIZE_MAX));
    CHECK(attn_session_length(session) == LENGTH && attn_session_logits(session));
    OK(&ctx, attn_session_truncate(&ctx, session, LENGTH));
}

TEST(copies)
{
    static const size_t capacities[] = {18, 21, 32, 40};
    enum { SHARED = 17 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, 40, 25);
    int32_t *const branch = random_tokens(odd, 40, 26);
    memcpy(branch, tokens, SHARED * sizeof *branch);
    float *want = logits_of(&ctx, odd, 0, tokens, 40, 40);
    float *branched = logits_of(&ctx, odd, 0, branch, 40, 40);
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 4; j++) {
            attn_session *from = session_on(&ctx, odd, capacities[i], 0);
            SCOPED_SESSION to = session_on(&ctx, odd, capacities[j], 5);
            OK(&ctx, attn_feed(&ctx, to, branch + 3, 2)); /* what it held is forgotten */
            OK(&ctx, attn_feed(&ctx, from, tokens, SHARED));
            OK(&ctx, attn_session_copy(&ctx, to, from));
            CHECK(attn_session_length(to) == SHARED && attn_session_capacity(to) == capacities[j]);
            CHECK(memcmp(attn_session_tokens(to), tokens, SHARED * sizeof *tokens) == 0);
            same_logits(attn_session_logits(to), row_of(want, SHARED - 1, odd), 1, odd,
                        "a copy's logits");
            same_logits(feed_all(&ctx, to, branch + SHARED, capacities[j] - SHARED, 2),
                        row_of(branched, SHARED, odd), capacities[j] - SHARED, odd, "a copy");
            same_logits(feed_all(&ctx, from, tokens + SHARED, capacities[i] - SHARED, 40),
                        row_of(want, SHARED, odd), capacities[i] - SHARED, odd, "the original");
            attn_session_free(from);
        }
    {
        attn_session *from = session_on(&ctx, odd, 0, 0), *small = session_on(&ctx, odd, 16, 0);
        SCOPED_SESSION other = session_on(&ctx, plain, 0, 0);
        OK(&ctx, attn_session_copy(&ctx, small, from)); /* nothing at all */
        CHECK(attn_session_length(small) == 0 && attn_session_logits(small) == NULL);
        OK(&ctx, attn_feed(&ctx, from, tokens, SHARED));
        OK(&ctx, attn_feed(&ctx, small, branch, 3));
        FAILS(CONTEXT, "17", attn_session_copy(&ctx, small, from));
        FAILS(ARGUMENT, "models differ", attn_session_copy(&ctx, other, from));
        same_logits(feed_all(&ctx, small, branch + 3, 13, 4), row_of(branched, 3, odd), 13, odd,
                    "after a refused copy");
        OK(&ctx, attn_session_copy(&ctx, from, from));
        CHECK(attn_session_length(from) == SHARED && attn_session_logits(from));
        OK(&ctx, attn_session_truncate(&ctx, from, 9));
        OK(&ctx, attn_session_copy(&ctx, small, from)); /* no logits to copy */
        CHECK(attn_session_length(small) == 9 && attn_session_logits(small) == NULL);
        same_logits(feed_all(&ctx, small, tokens + 9, 7, 7), row_of(want, 9, odd), 7, odd,
                    "a copy of a truncated session");
        attn_session_free(from);
        attn_session_free(small);
    }
}

/* attn_session_logits() after feeds that ask for logits of their own. */
TEST(logits_rules)
{
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(plain, 8, 27);
    float *const want = logits_of(&ctx, plain, 0, tokens, 8, 8);
    float *const room = (float *)pool_new(8 * vocab_of(plain) * sizeof *room);
    const size_t inner[] = {1, 5}, last[] = {2, 7};
    SCOPED_SESSION session = session_on(&ctx, plain, 0, 0);
    attn_feed_item item = item_of(session, tokens, 8, NULL);
    CHECK(attn_session_logits(session) == NULL);
    item.rows = inner;
    item.n_rows = 2;
    FAILS(ARGUMENT, "rows were given, and no room for their logits",
          attn_feed_batch(&ctx, &item, 1));
    item.logits = room;
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    CHECK(attn_session_logits(session) == NULL ||
          same_logits(attn_session_logits(session), row_of(want, 7, plain), 1, plain,
                      "other rows chosen"));
    item.rows = last;
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    same_logits(attn_session_logits(session), row_of(want, 7, plain), 1, plain,
                "the last row chosen");
}

TEST(bad_tokens_and_rows)
{
    attn_session *pair[2];
    attn_ctx ctx = alone();
    static const int32_t wrong[] = {-1, 97, 98, INT32_MAX, INT32_MIN};
    static const size_t rows[][3] = {{0, 2, 1}, {1, 1, 2}, {0, 1, 3}, {SIZE_MAX, 0, 1}};
    static const int32_t too_large[] = {96, 97};
    int32_t tokens[3] = {1, 2, 3};
    float *const room = (float *)pool_new(3 * 97 * sizeof *room);
    attn_session *a = session_on(&ctx, plain, 0, 0), *b = session_on(&ctx, plain, 0, 0),
                 *other = session_on(&ctx, odd, 0, 0);
    attn_feed_item items[3];
    const float *want = logits_of(&ctx, plain, 0, tokens, 3, 3);
    attn_token_stats stats[3];
    for (size_t i = 0; i < 5; i++) {
        tokens[1] = wrong[i];
        FAILS(TOKEN, test_text("token 1 is %ld;", (long)wrong[i]), attn_feed(&ctx, a, tokens, 3));
        FAILS(TOKEN, "expected 0 to 96", attn_score(&ctx, stats, NULL, a, tokens, 3));
    }
    tokens[1] = 2;
    FAILS(ARGUMENT, "no tokens", attn_feed(&ctx, a, tokens, 0));
    FAILS(ARGUMENT, "no tokens", attn_feed(&ctx, a, NULL, 3));
    FAILS(ARGUMENT, "session", attn_feed(&ctx, NULL, tokens, 3));
    FAILS(CONTEXT, "do not fit", attn_feed(&ctx, a, tokens, SIZE_MAX));
    FAILS(ARGUMENT, "session", attn_feed_batch(&ctx, NULL, 1));
    FAILS(ARGUMENT, "session", attn_feed_batch(&ctx, items, 0));
    for (size_t i = 0; i < 4; i++) {
        items[0] = item_of(a, tokens, 3, room);
        items[0].rows = rows[i];
        items[0].n_rows = 3;
        FAILS(ARGUMENT, "ascend", attn_feed_batch(&ctx, items, 1));
    }
    items[0] = item_of(a, tokens, 3, NULL);
    items[1] = item_of(b, tokens, 3, NULL);
    FAILS(ARGUMENT, "item 1's session does not share item 0's workspace",
          attn_feed_batch(&ctx, items, 2));
    pair[0] = a;
    pair[1] = b;
    share_workspace(&ctx, pair, 2, 0);
    items[0] = item_of(a, tokens, 3, NULL);
    items[1] = item_of(b, tokens, 3, NULL);
    items[2] = items[0];
    FAILS(ARGUMENT, "twice", attn_feed_batch(&ctx, items, 3));
    items[2] = item_of(other, tokens, 3, NULL);
    FAILS(ARGUMENT, "another model", attn_feed_batch(&ctx, items, 3));
    items[2] = item_of(NULL, tokens, 3, NULL);
    FAILS(ARGUMENT, "item 2: attn_feed: there is no session", attn_feed_batch(&ctx, items, 3));
    items[1] = item_of(b, too_large, 2, NULL);
    FAILS(TOKEN, "item 1: attn_feed: token 1 is 97", attn_feed_batch(&ctx, items, 2));
    items[1] = item_of(b, tokens, SIZE_MAX, NULL);
    FAILS(CONTEXT, "item 1: the session holds 0", attn_feed_batch(&ctx, items, 2));
    items[1] = item_of(b, tokens, 3, NULL);
    CHECK(attn_session_length(a) == 0 && attn_session_length(b) == 0);
    OK(&ctx, attn_feed_batch(&ctx, items, 2)); /* and now they work */
    same_logits(attn_session_logits(a), want + 2 * 97, 1, plain, "after all refusals");
    same_logits(attn_session_logits(b), want + 2 * 97, 1, plain, "after all refusals");
    attn_session_free(a);
    attn_session_free(b);
    attn_session_free(other);
    attn_session_free(NULL);
    attn_model_close(NULL);
}

/* ---- memory ---- */

/* fixture.h's meter, and bytes. */
typedef struct scales {
    meter m;
    size_t bytes;
} scales;

static void *scales_alloc(size_t size, void *user)
{
    scales *s = (scales *)user;
    s->bytes += size;
    return meter_alloc(size, &s->m);
}

static void scales_free(void *block, void *user)
{
    meter_free(block, &((scales *)user)->m);
}

static attn_ctx weighed(scales *s)
{
    attn_ctx ctx = metered(&s->m);
    s->bytes = 0;
    ctx.alloc = scales_alloc;
    ctx.free = scales_free;
    ctx.user = s;
    ctx.n_threads = 1;
    return ctx;
}

TEST(session_sizes)
{
    static const size_t n_ctx[] = {0, 1, 17, 30}, n_batch[] = {0, 1, 9};
    attn_model *const models[] = {plain, odd, tiny};
    for (size_t m = 0; m < 3; m++)
        for (size_t i = 0; i < 4; i++)
            for (size_t j = 0; j < 3; j++)
                for (size_t threads = 1; threads < 4; threads++) {
                    scales s;
                    attn_ctx ctx = weighed(&s);
                    attn_session *session;
                    attn_session_desc desc = {.cache_dtype = ATTN_F32};
                    size_t told = 0;
                    memset(&desc, 0, sizeof desc);
                    ctx.n_threads = (int)threads;
                    desc.n_ctx = n_ctx[i];
                    desc.n_batch = n_batch[j];
                    OK(&ctx, attn_session_size(&ctx, &told, models[m], &desc));
                    EQUAL(s.m.asked, 0);
                    OK(&ctx, attn_session_new(&ctx, &session, models[m], &desc));
                    CHECKF(told >= s.bytes && told - s.bytes <= s.bytes / 100,
                           "a session takes %llu bytes, not %llu", LLU(s.bytes), LLU(told));
                    attn_session_free(session);
                    CHECK(s.m.live == 0 && s.m.wrong == 0);
                }
}

/* After it is made, a session allocates nothing; scoring holds a few rows of logits. */
TEST(quiet_sessions)
{
    attn_session *pair[2];
    enum { LENGTH = 200 };
    scales s;
    attn_ctx ctx = weighed(&s);
    const int32_t *const tokens = random_tokens(tiny, LENGTH, 30);
    attn_session *session = session_on(&ctx, tiny, 0, 64), *other = session_on(&ctx, tiny, 0, 0);
    attn_sampler *sampler = NULL;
    attn_feed_item items[2];
    float *const logits = (float *)pool_new(LENGTH * vocab_of(tiny) * sizeof *logits);
    attn_token_stats stats[LENGTH];
    int32_t token = 1;
    attn_sampler_desc desc = {
        .temperature = 0.9f, .top_k = 50, .top_p = 0.9f, .min_p = 0.01f, .repeat_penalty = 1.1f};
    OK(&ctx, attn_sampler_new(&ctx, &sampler, vocab_of(tiny), &desc));
    pair[0] = session;
    pair[1] = other;
    share_workspace(&ctx, pair, 2, 0);
    long asked = s.m.asked;
    OK(&ctx, attn_feed(&ctx, session, tokens, 150));
    for (size_t i = 0; i < 20; i++) {
        OK(&ctx, attn_sample(&ctx, &token, sampler, attn_session_logits(session),
                             attn_session_tokens(session), attn_session_length(session)));
        OK(&ctx, attn_feed(&ctx, session, &token, 1));
    }
    OK(&ctx, attn_session_copy(&ctx, other, session));
    OK(&ctx, attn_session_truncate(&ctx, session, 10));
    items[0] = item_of(session, tokens, 20, NULL);
    items[1] = item_of(other, tokens, 30, logits);
    OK(&ctx, attn_feed_batch(&ctx, items, 2));
    CHECKF(s.m.asked == asked, "%ld allocations", s.m.asked - asked);
    s.bytes = 0;
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    OK(&ctx, attn_score(&ctx, stats, NULL, session, tokens, LENGTH));
    CHECKF(s.bytes < LENGTH * vocab_of(tiny) * sizeof(float) / 4, "%llu bytes", LLU(s.bytes));
    attn_sampler_free(sampler);
    attn_session_free(session);
    attn_session_free(other);
    CHECK(s.m.live == 0 && s.m.wrong == 0);
}

/* ---- drafting ---- */

/* What a caller forgot is an error too. */
TEST(missing_arguments)
{
    attn_ctx ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, plain, 0, 0);
    attn_model *model = plain;
    const int32_t tokens[] = {1, 2, 3};
    attn_tensor w = {0};
    attn_token_stats stats[3];
    size_t n;
    FAILS(ARGUMENT, "no path", attn_model_open(&ctx, &model, NULL, NULL));
    CHECK(model == NULL);
    model = plain;
    CHECK(attn_model_open_memory(&ctx, &model, NULL, 100, NULL) == ATTN_E_ARGUMENT);
    CHECK(model == NULL);
    FAILS(NAME, "nonsense", attn_model_tensor(&ctx, &w, plain, "nonsense"));
    FAILS(NAME, "\"\"", attn_model_tensor(&ctx, &w, plain, ""));
    FAILS(ARGUMENT, "no model", attn_model_tensor(&ctx, &w, NULL, "embed.W_E"));
    attn_unhook_all(NULL);
    attn_session *none = session;
    FAILS(ARGUMENT, "no model", attn_session_new(&ctx, &none, NULL, NULL));
    CHECK(none == NULL);
    FAILS(ARGUMENT, "", attn_session_size(&ctx, &n, NULL, NULL));
    FAILS(ARGUMENT, "", attn_score(&ctx, stats, NULL, NULL, tokens, 3));
    FAILS(ARGUMENT, "", attn_score(&ctx, stats, NULL, session, NULL, 3));
    FAILS(ARGUMENT, "no room", attn_score(&ctx, stats, &(attn_top){NULL, 1}, session, tokens, 3));
    FAILS(ARGUMENT, "", attn_session_truncate(&ctx, NULL, 0));
    FAILS(ARGUMENT, "", attn_session_copy(&ctx, session, NULL));
    FAILS(ARGUMENT, "", attn_session_copy(&ctx, NULL, session));
    FAILS(ARGUMENT, "", attn_hook(&ctx, NULL, NULL, "*", do_nothing, NULL));
    FAILS(ARGUMENT, "", attn_hook(&ctx, NULL, session, NULL, do_nothing, NULL));
    FAILS(ARGUMENT, "", attn_hook(&ctx, NULL, session, "*", NULL, NULL));
    FAILS(ARGUMENT, "", attn_generate(&ctx, NULL, NULL, "a", NULL));
    FAILS(ARGUMENT, "no name", attn_model_tensor(&ctx, &w, plain, NULL));
    EQUAL(attn_session_length(session), 0);
    OK(&ctx, attn_feed(&ctx, session, tokens, 3));
}

/* What is NULL, empty or beyond the model, one at a time. */
TEST(arguments_of_models)
{
    SCOPED_CTX ctx = {0};
    attn_session *session = session_on(&ctx, plain, 0, 0), *other = NULL;
    const attn_config *c = attn_model_config(plain);
    const size_t T = 5;
    attn_sampler *sampler = NULL;
    int32_t id = 7, bad[2] = {0, INT32_MAX};
    float *logits = (float *)pool_new(c->n_vocab * sizeof(float));
    char text[8];
    size_t n;
    OK(&ctx, attn_feed(&ctx, session, ten, T));
    REFUSED(ARGUMENT, "no session given",
            attn_session_get_cache(&ctx, &not_made, NULL, ATTN_CACHE_KEYS, 0, 0));
    REFUSED(ARGUMENT, "expected ATTN_CACHE_KEYS or ATTN_CACHE_VALUES",
            attn_session_get_cache(&ctx, &not_made, session, (attn_cache_part)2, 0, 0));
    not_made = some(2, 3, 3, 1);
    FAILS(SHAPE, "attn_session_get_cache",
          attn_session_get_cache(&ctx, &not_made, session, ATTN_CACHE_KEYS, 0, 0));
    REFUSED(ARGUMENT, "attn_session_set_cache",
            attn_session_set_cache(&ctx, session, ATTN_CACHE_KEYS, 0, 0, no_tensor));
    attn_tensor keys = no_tensor;
    ctx.status = ATTN_OK;
    OK(&ctx, attn_session_get_cache(&ctx, &keys, session, ATTN_CACHE_KEYS, 0, 0));
    REFUSED(SHAPE, "attn_session_set_cache: value has shape",
            attn_session_set_cache(&ctx, session, ATTN_CACHE_KEYS, 0, 0, attn_select(keys, 1, 0)));
    REFUSED(
        SHAPE, "attn_session_set_cache: value has shape",
        attn_session_set_cache(&ctx, session, ATTN_CACHE_KEYS, 0, 0, attn_slice(keys, 1, 0, 1)));
    REFUSED(
        SHAPE, "attn_session_set_cache: value has shape",
        attn_session_set_cache(&ctx, session, ATTN_CACHE_KEYS, 0, 0, attn_slice(keys, 2, 0, 1)));

    ctx.status = ATTN_OK;
    OK(&ctx, attn_sampler_new(&ctx, &sampler, c->n_vocab, NULL));
    for (n = 0; n < c->n_vocab; n++)
        logits[n] = (float)(n % 7);
    REFUSED(ARGUMENT, "no sampler", attn_sample(&ctx, &id, NULL, logits, NULL, 0));
    REFUSED(ARGUMENT, "feed a token first", attn_sample(&ctx, &id, sampler, NULL, NULL, 0));
    REFUSED(ARGUMENT, "no place for", attn_sample(&ctx, NULL, sampler, logits, NULL, 0));
    REFUSED(ARGUMENT, "seen tokens", attn_sample(&ctx, &id, sampler, logits, NULL, 3));
    EQUAL(id, 7);
    attn_sampler_free(sampler);
    {
        /* a penalty for tokens that are none is no penalty; a logit of infinity wins outright */
        attn_sampler_desc desc = {.temperature = 1, .repeat_penalty = 1.5f};
        ctx.status = ATTN_OK;
        OK(&ctx, attn_sampler_new(&ctx, &sampler, c->n_vocab, &desc));
        logits[3] = INFINITY;
        bad[0] = -1;
        OK(&ctx, attn_sample(&ctx, &id, sampler, logits, bad, 2));
        EQUAL(id, 3);
        attn_sampler_free(sampler);
    }

    n = 3;
    CHECK(attn_encode(&ctx, NULL, &n, attn_model_tokenizer(plain), NULL, 0) != ATTN_OK);
    n = 3;
    CHECK(attn_decode(&ctx, NULL, &n, attn_model_tokenizer(plain), ten, 1) != ATTN_OK);
    (void)text;
    attn_session_free(session);
    attn_session_free(other);
}

/* The text without its first tokens, straight from where the session remembers it. */
TEST(a_session_is_fed_its_own_tokens)
{
    enum { ALL = 100, DROPPED = 3, LEFT = ALL - DROPPED };
    SCOPED_CTX ctx = alone();
    SCOPED_MODEL const on = converted("tests/golden/long", "long.attn", "");
    const int32_t *const tokens = random_tokens(on, ALL, 6);
    const size_t row_bytes = vocab_of(on) * sizeof(float);
    attn_session *fresh = fed(&ctx, on, tokens + DROPPED, LEFT),
                 *session = fed(&ctx, on, tokens, ALL);
    attn_token_stats stats[2][LEFT];
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    OK(&ctx, attn_feed(&ctx, session, attn_session_tokens(session) + DROPPED, LEFT));
    CHECK(memcmp(attn_session_tokens(session), tokens + DROPPED, LEFT * sizeof *tokens) == 0);
    CHECK(memcmp(attn_session_logits(session), attn_session_logits(fresh), row_bytes) == 0);
    attn_session_free(session);

    session = fed(&ctx, on, tokens, ALL);
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    OK(&ctx, attn_session_truncate(&ctx, fresh, 0));
    memset(stats, 0, sizeof stats);
    OK(&ctx,
       attn_score(&ctx, stats[0], NULL, session, attn_session_tokens(session) + DROPPED, LEFT));
    OK(&ctx, attn_score(&ctx, stats[1], NULL, fresh, tokens + DROPPED, LEFT));
    CHECK(memcmp(stats[0], stats[1], sizeof stats[0]) == 0);
    attn_session_free(session);
    attn_session_free(fresh);
}

/* In a batch one session's tokens may not be read where another is about to write: wherever they
 * would overlap, and nowhere else. */
TEST(a_batch_is_fed_anothers_tokens)
{
    enum { ALL = 8, CUT = 4 };
    SCOPED_CTX ctx = alone();
    const int32_t *const tokens = random_tokens(plain, 2 * ALL, 7), *theirs;
    attn_session *sessions[2] = {session_on(&ctx, plain, 0, 0), session_on(&ctx, plain, 0, 0)};
    attn_feed_item items[2];
    share_workspace(&ctx, sessions, 2, 0);
    theirs = attn_session_tokens(sessions[0]);
    for (size_t order = 0; order < 2; order++)
        for (size_t first = 0; first < ALL; first++)
            for (size_t n = 1; n <= ALL - first; n++) {
                const int meets = first < CUT + 2 && first + n > CUT;
                SCOPED_SESSION alone_one = fed(&ctx, plain, tokens + first, n);
                OK(&ctx, attn_session_truncate(&ctx, sessions[0], 0));
                OK(&ctx, attn_feed(&ctx, sessions[0], tokens, ALL));
                OK(&ctx, attn_session_truncate(&ctx, sessions[0], CUT));
                OK(&ctx, attn_session_truncate(&ctx, sessions[1], 0));
                items[order] = item_of(sessions[0], tokens + ALL, 2, NULL);
                items[!order] = item_of(sessions[1], theirs + first, n, NULL);
                if (meets) {
                    FAILS(ARGUMENT,
                          order ? "item 0's tokens lie where another item's"
                                : "item 1's tokens lie where another item's",
                          attn_feed_batch(&ctx, items, 2));
                    CHECK(memcmp(theirs, tokens, ALL * sizeof *tokens) == 0);
                } else {
                    OK(&ctx, attn_feed_batch(&ctx, items, 2));
                    same_logits(attn_session_logits(sessions[1]), attn_session_logits(alone_one), 1,
                                plain, "fed");
                }
            }
    attn_session_free(sessions[0]);
    attn_session_free(sessions[1]);
}

/* Thousands of sessions, each fed a token that the one before holds: nowhere are they compared with each
 * other, and a token that lies where another session writes is found among them. */
TEST(a_batch_of_thousands)
{
    enum { MANY = 4000 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(plain, 2, 3);
    SCOPED_WORKSPACE workspace = NULL;
    attn_session **const sessions = (attn_session **)pool_new(MANY * sizeof(attn_session *));
    attn_feed_item *const items = (attn_feed_item *)pool_new(MANY * sizeof *items);
    attn_workspace_desc small = {.n_ctx = 3};
    attn_session_desc desc = {.n_ctx = 3};
    SCOPED_SESSION one = fed(&ctx, plain, tokens, 2);
    OK(&ctx, attn_workspace_new(&ctx, &workspace, plain, &small));
    desc.workspace = workspace;
    for (size_t i = 0; i < MANY; i++) {
        if (!OK(&ctx, attn_session_new(&ctx, &sessions[i], plain, &desc)))
            return;
        items[i] = item_of(sessions[i], tokens, 2, NULL);
    }
    OK(&ctx, attn_feed_batch(&ctx, items, MANY));
    for (size_t i = 0; i < MANY; i += 777)
        same_logits(attn_session_logits(sessions[i]), attn_session_logits(one), 1, plain, "fed");
    for (size_t i = 0; i < MANY; i++) {
        OK(&ctx, attn_session_truncate(&ctx, sessions[i], 1));
        items[i] =
            item_of(sessions[i], attn_session_tokens(sessions[i ? i - 1 : MANY - 1]), 1, NULL);
    }
    OK(&ctx, attn_feed_batch(&ctx, items, MANY));
    for (size_t i = 0; i < MANY; i++)
        OK(&ctx, attn_session_truncate(&ctx, sessions[i], 1));
    items[3210].tokens++;
    FAILS(ARGUMENT, "item 3210's tokens lie where another item's",
          attn_feed_batch(&ctx, items, MANY));
    for (size_t i = 0; i < MANY; i++) {
        CHECK(attn_session_tokens(sessions[i])[0] == tokens[0] &&
              attn_session_tokens(sessions[i])[1] == tokens[0]);
        attn_session_free(sessions[i]);
    }
}

/* A session may be copied onto itself, hooks and all; a weight of one key repeats. */
TEST(small_things)
{
    SCOPED_CTX ctx = {0};
    SCOPED_SESSION session = session_on(&ctx, plain, 0, 0);
    const attn_config *c = attn_model_config(plain);
    sight *s = new_sight();
    float one = 0.25f, *before = (float *)pool_new(c->n_vocab * sizeof(float));
    attn_tensor a = no_tensor, b = no_tensor, empty = no_tensor;
    static const size_t row = 0;
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.1.attn.hook_pattern", note, s));
    OK(&ctx, attn_feed(&ctx, session, ten, 3));
    memcpy(before, attn_session_logits(session), c->n_vocab * sizeof(float));
    OK(&ctx, attn_session_copy(&ctx, session, session));
    CHECK(!differ(before, attn_session_logits(session), c->n_vocab));
    attn_edit edit = {.name = "blocks.0.attn.hook_pattern",
                      .kind = ATTN_EDIT_SET,
                      .value = attn_borrow(&one, ATTN_F32, attn_shape3(1, 1, 1))};
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    attn_unhook_all(session);
    OK(&ctx, attn_hook_edit(&ctx, NULL, session, &edit));
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.attn.hook_pattern", note, s));
    OK(&ctx, attn_feed(&ctx, session, ten, 3));
    attn_tensor got = latest(s, "blocks.0.attn.hook_pattern");
    CHECK(got.ndim == 3 && attn_get3(got, 1, 2, 1) == 0.25f && attn_get3(got, 0, 0, 0) == 0.25f);
    attn_unhook_all(session);

    attn_feed_item item = item_of(session, ten, 2, NULL);
    item.rows = &row;
    item.n_rows = 1;
    item.layers.end = 1;
    ctx.status = ATTN_OK;
    FAILS(ARGUMENT, "makes no logits", attn_feed_batch(&ctx, &item, 1));
    ctx.status = ATTN_OK;

    /* values of no dimensions */
    OK(&ctx, attn_zeros(&ctx, &empty, ATTN_F32, attn_shape2(4, 0)));
    OK(&ctx, attn_attention(&ctx, &a, some(2, 3, 4, 1), some(2, 4, 4, 1), empty, NULL));
    CHECK(a.shape[0] == 3 && a.shape[1] == 0);
    OK(&ctx, attn_zeros(&ctx, &b, ATTN_F32, attn_shape2(0, c->d_model)));
    empty = no_tensor;
    OK(&ctx, lens_logit_lens(&ctx, &empty, plain, b, no_tensor, no_tensor));
    CHECK(empty.shape[0] == 0 && empty.shape[1] == c->n_vocab);
    empty = no_tensor;
    b = attn_reshape(b, attn_shape2(0, c->d_model));
    OK(&ctx, lens_logit_lens(&ctx, &empty, plain, b, attn_borrow(&one, ATTN_F32, attn_shape2(0, 1)),
                             no_tensor));
    EQUAL(empty.shape[0], 0);
    if (sizeof(size_t) > 4) { /* panels of more bytes than there are */
        attn_tensor wide = attn_borrow(&one, ATTN_F32, attn_shape2(1, 1)), tall = wide;
        wide.shape[1] = tall.shape[0] = SIZE_MAX / 8;
        wide.stride[1] = tall.stride[0] = 0;
        REFUSED(SHAPE, "is too large", attn_matmul(&ctx, &not_made, wide, tall));
    }
}

enum { SEQUENCES = 4, VOCAB = 40 };

static attn_model *open_long(attn_ctx *ctx)
{
    attn_model *model = NULL;
    OK(ctx, attn_model_open(ctx, &model, TEST_BUILD "/fuzz/long.attn", NULL));
    return model;
}

/* All 24 orders of four sequences of different lengths: each gets what it gets alone. */
TEST(permuted_batches)
{
    static const size_t lengths[SEQUENCES] = {3, 1, 17, 8};
    int32_t tokens[64];
    float want[SEQUENCES][VOCAB];
    attn_ctx ctx = {0};
    SCOPED_MODEL model = open_long(&ctx);
    attn_session *s[SEQUENCES] = {NULL};
    size_t n_orders = 0;
    int able = model != NULL;
    for (size_t i = 0; i < 64; i++)
        tokens[i] = (int32_t)(i * 13 % VOCAB);
    for (size_t i = 0; i < SEQUENCES && able; i++) {
        able = (s[i] = session_on(&ctx, model, 64, 16)) != NULL &&
               OK(&ctx, attn_feed(&ctx, s[i], tokens + i, i + 1)) &&
               OK(&ctx, attn_feed(&ctx, s[i], tokens + 5 * i, lengths[i]));
        if (able)
            memcpy(want[i], attn_session_logits(s[i]), sizeof want[i]);
    }
    if (able)
        share_workspace(&ctx, s, SEQUENCES, 16);
    for (size_t order = 0; order < 256 && able; order++) {
        const size_t at[SEQUENCES] = {order % 4, order / 4 % 4, order / 16 % 4, order / 64};
        attn_feed_item items[SEQUENCES];
        if (((1u << at[0]) | (1u << at[1]) | (1u << at[2]) | (1u << at[3])) != 15)
            continue;
        n_orders++;
        for (size_t i = 0; i < SEQUENCES; i++) {
            OK(&ctx, attn_session_truncate(&ctx, s[i], i + 1)); /* earlier tokens stay */
            items[at[i]] = item_of(s[i], tokens + 5 * i, lengths[i], NULL);
        }
        if (!OK(&ctx, attn_feed_batch(&ctx, items, SEQUENCES)))
            break;
        for (size_t i = 0; i < SEQUENCES; i++)
            CHECKF(memcmp(attn_session_logits(s[i]), want[i], sizeof want[i]) == 0,
                   "order %llu, sequence %llu", LLU(order), LLU(i));
    }
    CHECK(!able || n_orders == 24);
    for (size_t i = 0; i < SEQUENCES; i++)
        attn_session_free(s[i]);
}

/* ---- the cache ---- */

static int refill(const attn_activation *a, void *user)
{
    const attn_tensor *past = (const attn_tensor *)user;
    attn_ctx ctx = alone();
    OK(&ctx, attn_session_set_cache(&ctx, a->session, ATTN_CACHE_KEYS, 1, 2, past[0]));
    OK(&ctx, attn_session_set_cache(&ctx, a->session, ATTN_CACHE_VALUES, 1, 2, past[1]));
    return 0;
}

static int look_back(const attn_activation *a, void *user)
{
    attn_tensor past = {0};
    attn_ctx ctx = alone();
    ++*(size_t *)user;
    OK(&ctx, attn_session_get_cache(&ctx, &past, a->session, ATTN_CACHE_KEYS, 0, 0));
    CHECK(past.shape[0] == a->first);
    FAILS(ARGUMENT, "positions from",
          attn_session_get_cache(&ctx, &past, a->session, ATTN_CACHE_KEYS, 0, a->first + 1));
    attn_ctx_free(&ctx);
    return 0;
}

TEST(cache)
{
    enum { LENGTH = 20, PAST = 9, FIRST = 2, COUNT = 5 };
    const attn_model *const models[] = {plain, odd, narrow, tiny, bytes8};
    attn_ctx ctx = alone();
    size_t m, i, j, n_calls = 0;
    for (m = 0; m < 5; m++) {
        const attn_config *const c = attn_model_config(models[m]);
        const int32_t *const tokens = random_tokens(models[m], LENGTH, 8);
        attn_tensor past[2], now[2];
        sight *const s = new_sight();
        attn_session *session = session_on(&ctx, models[m], 0, 4);
        spot zero = {3, 1, NULL};
        memset(now, 0, sizeof now);
        for (i = 0; i < 2; i++)
            past[i] = random_tensor(3, COUNT, (int)c->n_head, (int)c->d_head);

        /* What is remembered is what hook_k and hook_v showed. */
        OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.1.attn.hook_k", note, s));
        OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.1.attn.hook_v", note, s));
        OK(&ctx, attn_feed(&ctx, session, tokens, PAST));
        attn_unhook_all(session);
        OK(&ctx, attn_session_get_cache(&ctx, &now[0], session, ATTN_CACHE_KEYS, 1, 0));
        OK(&ctx, attn_session_get_cache(&ctx, &now[1], session, ATTN_CACHE_VALUES, 1, 0));
        CHECK(s->n == 6);
        for (i = 0; i < s->n; i++)
            same_floats((const float *)s->all[i].value.data,
                        entry(now[i % 2], s->all[i].first, 0, 0), 1, count_of(s->all[i].value),
                        "remembered");

        /* Set between feeds, set in a hook of a token that is generated: the same. */
        OK(&ctx, attn_session_set_cache(&ctx, session, ATTN_CACHE_KEYS, 1, FIRST, past[0]));
        OK(&ctx, attn_session_set_cache(&ctx, session, ATTN_CACHE_VALUES, 1, FIRST, past[1]));
        attn_tensor_free(&ctx, &now[0]);
        now[0].ndim = 0;
        OK(&ctx, attn_session_get_cache(&ctx, &now[0], session, ATTN_CACHE_KEYS, 1, FIRST));
        same_bits(attn_slice(now[0], 0, 0, COUNT), past[0], "what was set");
        float *want = feed_all(&ctx, session, tokens + PAST, LENGTH - PAST, 1);
        OK(&ctx, attn_session_truncate(&ctx, session, 0));
        OK(&ctx, attn_feed(&ctx, session, tokens, PAST));
        OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.1.attn.hook_q", refill, past));
        OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.hook_resid_pre", look_back, &n_calls));
        float *got = feed_all(&ctx, session, tokens + PAST, LENGTH - PAST, 3);
        same_logits(got, want, LENGTH - PAST, models[m], "a past set in a hook");
        attn_unhook_all(session);

        /* Zeros for one head's value at one position are those that a hook puts there. In the last
         * layer, where the position's own attention to itself has no consequences for the others.
         */
        const char *const name = test_text("blocks.%d.attn.hook_v", (int)c->n_layer - 1);
        OK(&ctx, attn_session_truncate(&ctx, session, 0));
        OK(&ctx, attn_hook(&ctx, NULL, session, name, put_spot, &zero));
        want = feed_all(&ctx, session, tokens, LENGTH, 4);
        attn_unhook_all(session);
        OK(&ctx, attn_session_truncate(&ctx, session, 0));
        OK(&ctx, attn_feed(&ctx, session, tokens, 4));
        attn_tensor_free(&ctx, &now[1]);
        now[1].ndim = 0;
        OK(&ctx,
           attn_session_get_cache(&ctx, &now[1], session, ATTN_CACHE_VALUES, c->n_layer - 1, 3));
        for (j = 0; j < c->d_head; j++)
            *entry(now[1], 0, 1, j) = 0;
        OK(&ctx,
           attn_session_set_cache(&ctx, session, ATTN_CACHE_VALUES, c->n_layer - 1, 3, now[1]));
        same_logits(feed_all(&ctx, session, tokens + 4, LENGTH - 4, 7),
                    want + 4 * vocab_of(models[m]), LENGTH - 4, models[m], "a value of zeros");

        FAILS(ARGUMENT, "layer",
              attn_session_get_cache(&ctx, &now[0], session, ATTN_CACHE_KEYS, c->n_layer, 0));
        FAILS(ARGUMENT, "holds 20",
              attn_session_set_cache(&ctx, session, ATTN_CACHE_KEYS, 0, LENGTH + 1, past[0]));
        FAILS(ARGUMENT, "holds 20",
              attn_session_get_cache(&ctx, &now[0], session, ATTN_CACHE_KEYS, 0, SIZE_MAX));
        FAILS(SHAPE, "value has shape",
              attn_session_set_cache(&ctx, session, ATTN_CACHE_KEYS, 0, 0,
                                     attn_transpose(past[0], 0, 1)));
        FAILS(ARGUMENT, "no session",
              attn_session_set_cache(&ctx, NULL, ATTN_CACHE_KEYS, 0, 0, past[0]));
        attn_session_free(session);
        attn_ctx_free(&ctx);
        pool_clear();
    }
    CHECK(n_calls > 12);
}

/* ---- keys and values kept as f16 ---- */

static int halve(const attn_activation *a, void *user)
{
    (void)user;
    for (size_t t = 0; t < a->value.shape[0]; t++)
        for (size_t head = 0; head < a->value.shape[1]; head++)
            for (size_t j = 0; j < a->value.shape[2]; j++) {
                float *const x = entry(a->value, t, head, j);
                *x = attn_f32_from_f16(attn_f16_from_f32(*x));
            }
    return 0;
}

static attn_session *halved(attn_ctx *ctx, const attn_model *model, size_t n_ctx)
{
    attn_session *session = NULL;
    attn_session_desc desc = {.n_ctx = n_ctx, .n_batch = 11, .cache_dtype = ATTN_F16};
    OK(ctx, attn_session_new(ctx, &session, model, &desc));
    return session;
}

/* One thread, and bits that every fused instruction set has. */
static attn_ctx fused(void)
{
    attn_ctx ctx = alone();
    if (strstr(attn_isa(&ctx), "no fused"))
        ctx.isa = ATTN_ISA_PORTABLE;
    return ctx;
}

/* The model's bits are those of a session whose keys and values a hook rounds, however the text is
 * cut, on any instruction set and number of threads. */
static void check_halves(const attn_model *model, size_t n)
{
    attn_session *pair[2];
    const attn_config *const c = attn_model_config(model);
    const size_t d = c->d_head, per_layer = n * c->n_head * d;
    const int32_t *const tokens = random_tokens(model, n, n);
    SCOPED_CTX ctx = fused();
    attn_session *rounded = session_on(&ctx, model, 0, 0), *session;
    attn_tensor want_kept = {0}, kept = {0};
    attn_feed_item items[2];
    float *logits = (float *)pool_new(vocab_of(model) * sizeof *logits);
    OK(&ctx, attn_hook(&ctx, NULL, rounded, "*.hook_k", halve, NULL));
    OK(&ctx, attn_hook(&ctx, NULL, rounded, "*.hook_v", halve, NULL));
    float *want = feed_all(&ctx, rounded, tokens, n, n);
    CHECK(memcmp(want, logits_of(&ctx, model, 0, tokens, n, n),
                 n * vocab_of(model) * sizeof *want) != 0);
    for (int kind = ATTN_ISA_AUTO; kind <= ATTN_ISA_NEON_I8MM; kind++) {
        ctx.isa = (attn_isa_kind)kind;
        ctx.n_threads = 1 + kind % 2;
        if (!attn_isa(&ctx) || strstr(attn_isa(&ctx), "no fused"))
            continue;
        session = halved(&ctx, model, 0);
        same_logits(feed_all(&ctx, session, tokens, n, n), want, n, model, attn_isa(&ctx));
        OK(&ctx, attn_session_truncate(&ctx, session, 0));
        same_logits(feed_all(&ctx, session, tokens, n, RANDOM_CUTS), want, n, model, "cuts");
        attn_session_free(session);
    }
    ctx = fused();
    session = halved(&ctx, model, n); /* copied half-way into one of another size, in a batch */
    SCOPED_SESSION other = halved(&ctx, model, 0);
    OK(&ctx, attn_feed(&ctx, session, tokens, n / 2));
    OK(&ctx, attn_session_copy(&ctx, other, session));
    OK(&ctx, attn_session_truncate(&ctx, other, n / 2 - 1));
    items[0] = item_of(session, tokens + n / 2, n - n / 2, NULL);
    items[1] = item_of(other, tokens + n / 2 - 1, n - n / 2 + 1, NULL);
    pair[0] = session;
    pair[1] = other;
    share_workspace(&ctx, pair, 2, 0);
    OK(&ctx, attn_feed_batch(&ctx, items, 2));
    memcpy(logits, attn_session_logits(session), vocab_of(model) * sizeof *logits);
    same_logits(logits, want + (n - 1) * vocab_of(model), 1, model, "in a batch");
    same_logits(attn_session_logits(other), want + (n - 1) * vocab_of(model), 1, model,
                "of a copy");
    for (int part = ATTN_CACHE_KEYS; part <= ATTN_CACHE_VALUES; part++)
        for (size_t layer = 0; layer < c->n_layer; layer++) {
            const attn_cache_part of = (attn_cache_part)part;
            OK(&ctx, attn_session_get_cache(&ctx, &want_kept, rounded, of, layer, 0));
            OK(&ctx, attn_session_get_cache(&ctx, &kept, other, of, layer, 0));
            same_floats((float *)kept.data, (float *)want_kept.data, 1, per_layer, "kept");
        }
    attn_tensor_free(&ctx, &kept);
    want_kept = random_tensor(3, 2, (int)c->n_head, (int)d); /* what is written is rounded too */
    OK(&ctx, attn_session_set_cache(&ctx, other, ATTN_CACHE_VALUES, 0, 3, want_kept));
    OK(&ctx, attn_session_get_cache(&ctx, &kept, other, ATTN_CACHE_VALUES, 0, 3));
    for (size_t i = 0; i < 2 * c->n_head * d; i++) {
        const size_t t = i / d / c->n_head, head = i / d % c->n_head;
        CHECK(*entry(kept, t, head, i % d) ==
              attn_f32_from_f16(attn_f16_from_f32(*entry(want_kept, t, head, i % d))));
    }
    FAILS(ARGUMENT, "one session keeps f16, the other f32",
          attn_session_copy(&ctx, rounded, session));
    attn_session_free(rounded);
    attn_session_free(session);
    pool_clear();
}

TEST(halves)
{
    attn_ctx ctx = alone();
    attn_session *session = NULL;
    attn_session_desc desc;
    size_t whole = 0, half = 0;
    check_halves(plain, 30);
    check_halves(odd, 40);
    check_halves(narrow, 12);
    check_halves(tiny, 24);
    check_halves(longer, 300); /* values in more than one chain */
    memset(&desc, 0, sizeof desc);
    OK(&ctx, attn_session_size(&ctx, &whole, tiny, &desc));
    desc.cache_dtype = ATTN_F16;
    OK(&ctx, attn_session_size(&ctx, &half, tiny, &desc));
    CHECK(whole - half == (size_t)2 * 2 * attn_model_config(tiny)->n_layer *
                              attn_model_config(tiny)->n_ctx * attn_model_config(tiny)->d_model);
    desc.cache_dtype = ATTN_Q8;
    FAILS(ARGUMENT, "ATTN_F32 or ATTN_F16", attn_session_new(&ctx, &session, tiny, &desc));
    CHECK(session == NULL);
}

/* A pass of one layer changes one row of a stream, and later layers go on with that row and the old
 * rows behind it: the layer has kept its keys and values there. */
TEST(one_layer_alone)
{
    enum { LENGTH = 9, AT = 3, LAYER = 1 };
    SCOPED_CTX ctx = alone();
    const attn_config *const c = attn_model_config(odd);
    const size_t width = c->d_model;
    const int32_t *const tokens = random_tokens(odd, LENGTH, 5);
    float *const streams = (float *)pool_new(2 * LENGTH * width * sizeof *streams);
    float *const before = streams, *const after = streams + LENGTH * width;
    attn_session *session = session_on(&ctx, odd, 0, 0), *other = session_on(&ctx, odd, 0, 0);
    attn_feed_item below = part_of(session, tokens, LENGTH, 0, LAYER, NULL, before);
    attn_feed_item all = part_of(session, tokens, LENGTH, LAYER, LAYER + 1, before, after);
    attn_feed_item row =
        part_of(session, tokens + AT, 1, LAYER, LAYER + 1, before + AT * width, after + AT * width);
    attn_feed_item rest =
        part_of(session, tokens + AT, LENGTH - AT, LAYER + 1, 0, after + AT * width, NULL);
    attn_edit edit = edit_of("blocks.1.hook_resid_post", ATTN_EDIT_SET);
    int stop = 1;
    OK(&ctx, attn_feed(&ctx, session, tokens, LENGTH));
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    OK(&ctx, attn_feed_batch(&ctx, &below, 1));
    OK(&ctx, attn_feed_batch(&ctx, &all, 1));
    for (size_t i = 0; i < width; i++)
        before[AT * width + i] *= -1;
    OK(&ctx, attn_feed(&ctx, session, tokens, LENGTH));
    OK(&ctx, attn_session_truncate(&ctx, session, AT));
    OK(&ctx, attn_feed_batch(&ctx, &row, 1));
    EQUAL(attn_session_length(session), AT);
    OK(&ctx, attn_feed_batch(&ctx, &rest, 1));
    edit.first = AT; /* the same stream by an edit */
    edit.count = LENGTH - AT;
    edit.value = attn_borrow(after + AT * width, ATTN_F32, attn_shape2(LENGTH - AT, width));
    OK(&ctx, attn_hook_edit(&ctx, NULL, other, &edit));
    OK(&ctx, attn_feed(&ctx, other, tokens, LENGTH));
    same_logits(attn_session_logits(session), attn_session_logits(other), 1, odd, "one row alone");

    /* of a pass that was stopped, no row behind its first counts as kept */
    OK(&ctx, attn_session_truncate(&ctx, session, AT));
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.1.hook_resid_post", stop_late, &stop));
    STOPS(&ctx, attn_feed_batch(&ctx, &row, 1));
    attn_unhook_all(session);
    FAILS(ARGUMENT, "layer 1 must hold keys and values of 9 positions; it holds 3",
          attn_feed_batch(&ctx, &rest, 1));

    /* and of two layers, the upper one has not kept them */
    OK(&ctx, attn_feed(&ctx, session, tokens + AT, LENGTH - AT));
    OK(&ctx, attn_session_truncate(&ctx, session, AT));
    row.layers.first = 0;
    row.layers.end = 2;
    row.layers.resid = NULL;
    OK(&ctx, attn_feed_batch(&ctx, &row, 1));
    FAILS(ARGUMENT, "layer 0 must hold keys and values of 9 positions; it holds 4",
          attn_feed_batch(&ctx, &rest, 1));
    attn_session_free(session);
    attn_session_free(other);
}
