/* Generation step by step: what a step hands over, other work between two steps, and steps that cannot be
 * made. That steps cut neither characters nor stop strings is beside the stop strings, in generate.c. */
#include "tests/support/hooks.h"
#include "tests/support/shared_models.h"

SUITE_WITH_MODELS("plain tiny");

/* One text generated twice: `whole` by attn_generate, `heard` step by step with its own generator. */
typedef struct writer {
    char whole[4096], heard[4096];
    size_t n_whole, n_heard, n_steps;
    attn_session *session;
    attn_generate_desc desc;
    attn_generator *generator;
    attn_generation made;
    attn_token tokens[64];
} writer;

static int hear(const char *text, size_t size, void *user)
{
    writer *w = (writer *)user;
    if (CHECK(w->n_heard + size < sizeof w->heard)) {
        memcpy(w->heard + w->n_heard, text, size);
        w->n_heard += size;
    }
    return 0;
}

static const char *const stops[] = {"was a", "day"};

/* Writer number i of several, which differ in all that a caller can choose. */
static void prepare(writer *w, attn_ctx *ctx, attn_workspace *workspace, int i)
{
    memset(w, 0, sizeof *w);
    attn_session_desc d = {.n_ctx = i % 4 == 3 ? 24 : 128, .workspace = workspace};
    OK(ctx, attn_session_new(ctx, &w->session, tiny, &d));
    w->desc.sampling.temperature = i % 2 ? 0.8f : 0;
    w->desc.sampling.seed = (uint64_t)i;
    w->desc.max_tokens = i % 3 == 0 ? 40 : (size_t)i;
    w->desc.stop_strings = stops;
    w->desc.n_stop_strings = i % 5 == 1 ? 2 : 0;
    w->desc.no_draft = i % 7 == 2;
    w->desc.text_fn = hear;
    w->desc.text_user = w;
    w->made.tokens = w->tokens;
    w->made.room = 64;
    OK(ctx, attn_generate(ctx, &w->made, w->session, "Once upon a time", &w->desc));
    memcpy(w->whole, w->heard, w->n_heard);
    w->n_whole = w->n_heard;
    w->n_heard = 0;
    OK(ctx, attn_session_truncate(ctx, w->session, 0));
}

/* Texts on one workspace take their steps in turn, as several windows of a program do. */
TEST(texts_in_turn)
{
    enum { N = 12 };
    static writer writers[N];
    attn_ctx ctx = alone();
    SCOPED_WORKSPACE workspace = NULL;
    int i, left = N;
    OK(&ctx, attn_workspace_new(&ctx, &workspace, tiny, NULL));
    for (i = 0; i < N; i++) {
        writer *w = &writers[i];
        prepare(w, &ctx, workspace, i);
        OK(&ctx, attn_generator_new(&ctx, &w->generator, w->session, "Once upon a time", &w->desc));
    }
    while (left > 0)
        for (i = 0, left = 0; i < N; i++) {
            writer *w = &writers[i];
            const attn_generation whole = w->made;
            attn_token tokens[64];
            attn_generation now = {.tokens = tokens, .room = 64};
            if (!w->generator)
                continue;
            left++;
            w->n_steps++;
            if (!OK(&ctx, attn_generator_step(&ctx, &now, w->generator)))
                return;
            CHECK(attn_session_length(w->session) >= 4 && now.n_tokens <= whole.n_tokens);
            if (now.reason == ATTN_STOP_NONE)
                continue;
            CHECKF(now.reason == whole.reason && now.n_tokens == whole.n_tokens &&
                       now.n_passes == whole.n_passes && now.accepted == whole.accepted &&
                       now.which_stop == whole.which_stop,
                   "text %d ended otherwise", i);
            CHECKF(w->n_heard == w->n_whole && memcmp(w->heard, w->whole, w->n_whole) == 0,
                   "text %d is \"%.*s\", expected \"%.*s\"", i, (int)w->n_heard, w->heard,
                   (int)w->n_whole, w->whole);
            CHECKF(w->n_steps == now.n_passes + 1, "text %d: %d steps for %d passes", i,
                   (int)w->n_steps, (int)now.n_passes);
            FAILS(ARGUMENT, "has ended", attn_generator_step(&ctx, &now, w->generator));
            attn_generator_free(w->generator);
            w->generator = NULL;
        }
    for (i = 0; i < N; i++)
        attn_session_free(writers[i].session);
}

static attn_generator *begun(attn_ctx *ctx, attn_session *session, const attn_generate_desc *desc)
{
    attn_generator *generator = NULL;
    attn_generation made = ATTN_ZERO;
    OK(ctx, attn_generator_new(ctx, &generator, session, "Once upon a time", desc));
    CHECK(attn_session_length(session) == 0);
    OK(ctx, attn_generator_step(ctx, &made, generator));
    CHECK(made.n_tokens == 1 && made.n_passes == 0 && made.reason == ATTN_STOP_NONE);
    return generator;
}

/* A text that is left after any number of steps goes on by another call as if it had not been left. */
TEST(left_and_continued)
{
    attn_ctx ctx = alone();
    for (size_t n_steps = 1; n_steps < 12; n_steps++) {
        writer w;
        prepare(&w, &ctx, NULL, 0);
        w.made.reason = ATTN_STOP_NONE;
        OK(&ctx, attn_generator_new(&ctx, &w.generator, w.session, "Once upon a time", &w.desc));
        for (size_t i = 0; i < n_steps && w.made.reason == ATTN_STOP_NONE; i++)
            OK(&ctx, attn_generator_step(&ctx, &w.made, w.generator));
        attn_generator_free(w.generator);
        size_t n_left = w.desc.max_tokens - w.made.n_tokens;
        if (w.made.reason == ATTN_STOP_NONE && CHECK(n_left > 0)) {
            CHECK(attn_session_length(w.session) == 4 + w.made.n_tokens - 1);
            w.desc.max_tokens = n_left;
            w.desc.prompt_tokens = &w.tokens[w.made.n_tokens - 1];
            w.desc.n_prompt_tokens = 1;
            OK(&ctx, attn_generate(&ctx, NULL, w.session, NULL, &w.desc));
        }
        CHECKF(w.n_heard == w.n_whole && memcmp(w.heard, w.whole, w.n_whole) == 0,
               "after %d steps: \"%.*s\", expected \"%.*s\"", (int)n_steps, (int)w.n_heard, w.heard,
               (int)w.n_whole, w.whole);
        attn_session_free(w.session);
    }
}

/* What a program may do to the session between two steps: look. */
TEST(changed_in_between)
{
    SCOPED_CTX ctx = alone();
    attn_session *session = session_on(&ctx, tiny, 0, 0);
    attn_generation made = ATTN_ZERO;
    attn_generator *generator = begun(&ctx, session, NULL);
    const size_t length = attn_session_length(session);
    attn_token token = 1;
    CHECK(attn_session_logits(session) != NULL);
    OK(&ctx, attn_feed(&ctx, session, &token, 1));
    FAILS(ARGUMENT, "another call", attn_generator_step(&ctx, &made, generator));
    OK(&ctx, attn_session_truncate(&ctx, session, length)); /* the old length, but other keys */
    FAILS(ARGUMENT, "another call", attn_generator_step(&ctx, &made, generator));
    attn_generator_free(generator);
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    generator = begun(&ctx, session, NULL);
    attn_session_free(session); /* the generator keeps it alive */
    FAILS(ARGUMENT, "another call", attn_generator_step(&ctx, &made, generator));
    attn_generator_free(generator);
    attn_generator_free(NULL);
}

/* A session of the same length, but of another text, is another one. */
TEST(another_text_of_the_same_length)
{
    attn_ctx ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
    attn_generation made = ATTN_ZERO;
    SCOPED_GENERATOR generator = begun(&ctx, session, NULL);
    const size_t length = attn_session_length(session);
    const attn_token other = 7;
    OK(&ctx, attn_session_truncate(&ctx, session, length - 1));
    OK(&ctx, attn_feed(&ctx, session, &other, 1));
    FAILS(ARGUMENT, "another call", attn_generator_step(&ctx, &made, generator));
}

/* A session that text_fn frees, at each piece of the text. */
typedef struct ender {
    attn_session *session;
    size_t left;
} ender;

static int end_session(const char *text, size_t size, void *user)
{
    ender *e = (ender *)user;
    (void)text, (void)size;
    if (--e->left > 0)
        return 0;
    attn_session_free(e->session);
    return 1;
}

TEST(freed_by_text_fn)
{
    for (size_t piece = 1; piece <= 5; piece++) {
        attn_ctx ctx = alone();
        attn_generation made = ATTN_ZERO;
        ender e;
        e.session = session_on(&ctx, tiny, 0, 0);
        e.left = piece;
        attn_generate_desc d = {.max_tokens = 5, .text_fn = end_session, .text_user = &e};
        OK(&ctx, attn_generate(&ctx, &made, e.session, "Once upon a time", &d));
        CHECK(made.reason == ATTN_STOP_CALLBACK);
    }
}

static attn_generator *own;
static attn_ctx own_ctx;

static int step_inside(const char *text, size_t size, void *user)
{
    attn_generation made = ATTN_ZERO;
    (void)text, (void)size, (void)user;
    FAILS_IN(&own_ctx, ATTN_E_ARGUMENT, "being fed", attn_generator_step(&own_ctx, &made, own));
    return 0;
}

TEST(a_step_within_a_step)
{
    attn_ctx ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
    attn_generation made = ATTN_ZERO;
    attn_generate_desc d = {.text_fn = step_inside};
    OK(&ctx, attn_generator_new(&ctx, &own, session, "Once upon", &d));
    OK(&ctx, attn_generator_step(&ctx, &made, own));
    attn_generator_free(own);
}

/* A hook that comes between two steps sees each token once: nothing is drafted any more. */
static int count_rows(const attn_activation *a, void *user)
{
    *(size_t *)user += a->value.shape[0];
    return 0;
}

TEST(a_hook_in_between)
{
    attn_ctx ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
    attn_generation made = ATTN_ZERO;
    size_t n_rows = 0;
    attn_generate_desc d = {.max_tokens = 60};
    SCOPED_GENERATOR generator = begun(&ctx, session, &d);
    OK(&ctx, attn_generator_step(&ctx, &made, generator));
    OK(&ctx, attn_hook(&ctx, NULL, session, "hook_embed", count_rows, &n_rows));
    size_t before = attn_session_length(session);
    while (made.reason == ATTN_STOP_NONE && OK(&ctx, attn_generator_step(&ctx, &made, generator)))
        ;
    CHECKF(n_rows == attn_session_length(session) - before, "%d rows for %d tokens", (int)n_rows,
           (int)(attn_session_length(session) - before));
}

TEST(stopped_between_steps)
{
    attn_ctx ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
    volatile int stop = 0;
    attn_generation made = ATTN_ZERO;
    ctx.stop_flag = &stop;
    SCOPED_GENERATOR generator = begun(&ctx, session, NULL);
    stop = 1;
    OK(&ctx, attn_generator_step(&ctx, &made, generator));
    CHECK(made.reason == ATTN_STOP_CALLBACK && made.n_tokens == 1);
}

TEST(what_cannot_begin)
{
    attn_ctx ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, plain, 0, 0);
    attn_generator *generator = NULL;
    attn_generation made = ATTN_ZERO;
    FAILS(ARGUMENT, "the prompt is empty",
          attn_generator_new(&ctx, &generator, session, NULL, NULL));
    CHECK(!generator);
    FAILS(ARGUMENT, "place", attn_generator_new(&ctx, NULL, session, NULL, NULL));
    FAILS(ARGUMENT, "no generator", attn_generator_step(&ctx, &made, NULL));
    attn_generate_desc d = {.n_stop_strings = 1};
    FAILS(ARGUMENT, "prompt", attn_generator_new(&ctx, &generator, session, NULL, &d));
}

/* A context that was never zeroed is told so before its allocator is called. */
TEST(a_context_that_was_not_zeroed)
{
    attn_ctx ctx;
    attn_model *model = NULL;
    memset(&ctx, 0xAA, sizeof ctx);
    FAILS(MEMORY, "zero the struct (ATTN_ZERO)",
          attn_model_open(&ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL));
}
