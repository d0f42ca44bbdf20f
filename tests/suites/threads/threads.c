/* The number of threads changes no bit, and a program's own threads may share a model. */
#include "tests/support/same_bits.h"
#include "tests/support/shared_models.h"

SUITE_WITH_MODELS("plain odd longer tiny");

/* ---- the same bits ---- */

/* The caller may change its mind after a session is made: fewer threads then do the work, and more
 * than the session has memory for do not hurt. */
TEST(another_number_later)
{
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(longer, 120, 5);
    float *const want = logits_of(&ctx, longer, 0, tokens, 120, 120);
    attn_session *session;
    for (int made = 1; made <= 4; made++) {
        ctx.n_threads = made;
        session = session_on(&ctx, longer, 0, 0);
        for (int now = 1; now <= 9; now += 2) {
            ctx.n_threads = now;
            OK(&ctx, attn_session_truncate(&ctx, session, 0));
            same_logits(feed_all(&ctx, session, tokens, 120, 50), want, 120, longer,
                        "threads later");
        }
        attn_session_free(session);
    }
}

TEST(any_number_of_threads)
{
    threads_on(tiny, 120);
    threads_on(plain, 32);
    threads_on(odd, 40);
    threads_on(longer, 600);
}

/* ---- 8-bit and 4-bit weights ---- */

/* What four threads get and give back. Each thread feeds one session. */
enum { CALLERS = 4, LENGTH = 40 };
typedef struct callers {
    const int32_t *tokens;
    float *got[CALLERS];
    attn_model *model;
    attn_session *sessions[CALLERS];
    int failed[CALLERS + 1];
} callers;

static void feed_one(size_t i, void *user)
{
    callers *c = (callers *)user;
    attn_session *session;
    attn_ctx mine = {.n_threads = 1};
    c->failed[i] = attn_session_new(&mine, &session, tiny, NULL) != ATTN_OK;
    attn_feed_item item = item_of(session, c->tokens, LENGTH, c->got[i]);
    c->failed[i] += attn_feed_batch(&mine, &item, 1) != ATTN_OK;
    attn_session_free(session);
}

/* One model under several threads of the caller's, each with a session of its own. */
TEST(callers_threads)
{
    attn_ctx ctx = alone();
    callers c = {.tokens = random_tokens(tiny, LENGTH, 9)};
    const float *want = logits_of(&ctx, tiny, 0, c.tokens, LENGTH, LENGTH);
    for (int i = 0; i < CALLERS; i++)
        c.got[i] = (float *)pool_new(LENGTH * vocab_of(tiny) * sizeof(float));
    ctx.n_threads = CALLERS;
    OK(&ctx, attn_parallel_for(&ctx, CALLERS, feed_one, &c));
    for (int i = 0; i < CALLERS; i++) {
        EQUAL(c.failed[i], 0);
        same_logits(c.got[i], want, LENGTH, tiny, "a thread of the caller's");
    }
}

/* The first closes the model, the others use it. */
static void close_or_use(size_t i, void *user)
{
    enum { TIMES = 25 };
    callers *c = (callers *)user;
    attn_ctx mine = {.n_threads = 1};
    if (i == 0) {
        attn_model_close(c->model);
        return;
    }
    for (int n = 0; n < TIMES; n++) {
        SCOPED_SESSION another = NULL;
        c->failed[i] += attn_session_new(&mine, &another, attn_session_model(c->sessions[i - 1]),
                                         NULL) != ATTN_OK;
    }
    c->failed[i] += attn_feed(&mine, c->sessions[i - 1], ten, 10) != ATTN_OK;
    attn_session_free(c->sessions[i - 1]);
}

/* A model that is closed while threads use it: the last of them frees it. */
TEST(a_model_closed_in_use)
{
    meter m;
    attn_ctx ctx = metered(&m), several = alone();
    callers c = {0};
    OK(&ctx, attn_model_open(&ctx, &c.model, TEST_BUILD "/tiny-stories.attn", NULL));
    for (int i = 0; i < CALLERS; i++) {
        attn_ctx mine = alone();
        OK(&mine, attn_session_new(&mine, &c.sessions[i], c.model, NULL));
    }
    several.n_threads = CALLERS + 1;
    OK(&several, attn_parallel_for(&several, CALLERS + 1, close_or_use, &c));
    for (int i = 0; i <= CALLERS; i++)
        EQUAL(c.failed[i], 0);
    CHECKF(m.live == 0 && m.wrong == 0, "%ld blocks are left", m.live);
}

/* ---- drafting ---- */

/* A session made for one thread has scratch memory for one, whatever is asked for later. */
TEST(more_threads_than_the_session_has)
{
    SCOPED_CTX ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, plain, 0, 0);
    float *want = logits_of(&ctx, plain, 0, ten, 10, 10);
    ctx.n_threads = 4;
    OK(&ctx, attn_feed(&ctx, session, ten, 10));
    CHECK(!differ(attn_session_logits(session), want + 9 * vocab_of(plain), vocab_of(plain)));
}
