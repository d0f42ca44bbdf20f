/* Contexts: every allocation that fails is an error that leaves nothing behind; messages; kernels that
 * the context names and this processor lacks. */
#include "tools/common/files.h"
#include "tests/support/refused.h"
#include "tests/support/shared_models.h"
#include "tools/lens/logits.h"

SUITE_WITH_MODELS("plain tiny");

/* ---- memory ---- */

/* Calls `task` with the first allocation failing, then the second, ... until it succeeds. Each
 * failure must be ATTN_E_MEMORY and give everything back. */
typedef attn_status (*task_fn)(attn_ctx *ctx, void *user);
static void exhaust(const char *what, attn_ctx *ctx, meter *m, task_fn task, void *user)
{
    const long live = m->live;
    attn_status status = ATTN_E_MEMORY;
    long n;
    for (n = 0; n < 200 && status != ATTN_OK; n++) {
        m->fail_at = m->asked + n;
        ctx->message[0] = 0;
        status = task(ctx, user);
        m->fail_at = -1;
        CHECKF(status == ATTN_OK || (status == ATTN_E_MEMORY && strstr(ctx->message, "memory")),
               "%s, allocation %ld: %s (%s)", what, n, attn_status_name(status), ctx->message);
        CHECKF(m->live == live && m->wrong == 0, "%s, allocation %ld: %ld blocks leaked", what, n,
               m->live - live);
    }
    CHECKF(status == ATTN_OK && n > 1, "%s: %s after %ld rounds", what, attn_status_name(status),
           n);
}

static attn_status open_it(attn_ctx *ctx, void *user)
{
    attn_model *model = tiny;
    const attn_status status = attn_model_open(ctx, &model, (const char *)user, NULL);
    CHECK((model != NULL) == (status == ATTN_OK));
    attn_model_close(model);
    return status;
}

typedef struct bytes {
    const unsigned char *data;
    size_t size;
} bytes;

static attn_status open_unaligned(attn_ctx *ctx, void *user)
{
    const bytes *b = (const bytes *)user;
    attn_model *model = tiny;
    const attn_status status = attn_model_open_memory(ctx, &model, b->data, b->size, NULL);
    CHECK((model != NULL) == (status == ATTN_OK));
    attn_model_close(model);
    return status;
}

static attn_status make_session(attn_ctx *ctx, void *user)
{
    attn_session *session = (attn_session *)user;
    const attn_status status = attn_session_new(ctx, &session, tiny, NULL);
    CHECK((session != NULL) == (status == ATTN_OK));
    attn_session_free(session);
    return status;
}

static attn_status hook_it(attn_ctx *ctx, void *user)
{
    attn_session *session = (attn_session *)user;
    const attn_status status = attn_hook(ctx, NULL, session, "*", do_nothing, NULL);
    if (status == ATTN_OK) /* a failed one must leave nothing to take back */
        attn_unhook_all(session);
    return status;
}

static const int32_t short_text[] = {506, 511, 258, 433, 11, 400, 286};

static attn_status score_it(attn_ctx *ctx, void *user)
{
    attn_session *session = (attn_session *)user;
    const size_t before = attn_session_length(session);
    attn_token_stats stats[7];
    const attn_status status = attn_score(ctx, stats, NULL, session, short_text, 7);
    CHECK(attn_session_length(session) == (status == ATTN_OK ? before + 7 : before));
    return status;
}

static attn_status generate_it(attn_ctx *ctx, void *user)
{
    attn_session *session = (attn_session *)user;
    const size_t before = attn_session_length(session);
    attn_generate_desc d = greedily(5);
    const attn_status status = attn_generate(
        ctx, NULL, session, "there was a little girl. She antidisestablishmentarianistically", &d);
    CHECK(status == ATTN_OK || attn_session_length(session) == before);
    return status;
}

static attn_status get_tensor(attn_ctx *ctx, void *user)
{
    attn_tensor w = {0};
    const attn_status status = attn_model_tensor(ctx, &w, (attn_model *)user, "embed.W_E");
    attn_tensor_free(ctx, &w);
    return status;
}

TEST(failing_allocations)
{
    meter m;
    attn_ctx ctx = metered(&m), usual = alone();
    attn_session *session = NULL;
    float *const want = logits_of(&usual, tiny, 0, short_text, 7, 7);
    bytes b;
    unsigned char *file = editable(TEST_BUILD "/tiny-stories.attn", &b.size);
    ctx.n_threads = 1;
    exhaust("attn_model_open", &ctx, &m, open_it,
            (void *)(uintptr_t)(TEST_BUILD "/tiny-stories.attn"));
    if (file) {
        unsigned char *moved = (unsigned char *)pool_new(b.size + 65);
        moved += 1 + (64 - (uintptr_t)moved % 64) % 64;
        memcpy(moved, file, b.size);
        b.data = moved;
        exhaust("attn_model_open_memory", &ctx, &m, open_unaligned, &b);
    }
    exhaust("attn_session_new", &ctx, &m, make_session, NULL);
    exhaust("attn_model_tensor", &ctx, &m, get_tensor, tiny);
    OK(&ctx, attn_session_new(&ctx, &session, tiny, NULL));
    if (session) {
        exhaust("attn_hook", &ctx, &m, hook_it, session);
        exhaust("attn_score", &ctx, &m, score_it, session);
        OK(&ctx, attn_session_truncate(&ctx, session, 0));
        exhaust("attn_generate", &ctx, &m, generate_it, session);
        OK(&ctx, attn_session_truncate(&ctx, session, 0));
        same_logits(feed_all(&ctx, session, short_text, 7, 7), want, 7, tiny, "after all failures");
    }
    attn_session_free(session);
    attn_ctx_free(&ctx);
    CHECK(m.live == 0 && m.wrong == 0);
}

/* ---- drafting ---- */

/* Each function says that a kernel is not here, before anything else is done. */
TEST(kernels_that_are_not_here)
{
    attn_ctx ctx = {0}, fine = {0};
    attn_session *session = session_on(&fine, plain, 0, 0);
    const attn_config *c = attn_model_config(plain);
    const attn_tensor m = some(2, 3, c->d_model, 1), v = some(1, 3, 1, 1);
    const attn_tensor ids = some_ids(3, 0);
    attn_model *opened = NULL;
    attn_sampler *sampler = NULL;
    attn_token_stats stats[3];
    attn_prediction top[3];
    size_t size = 0;
    unsigned char *file = test_read(test_tmp("plain.attn"), &size);
    ctx.isa = ATTN_ISA_NEON;
    if (attn_isa(&ctx))
        ctx.isa = ATTN_ISA_AVX2;
#define NOT_HERE(call) REFUSED(UNSUPPORTED, "kernels", call)
    NOT_HERE(attn_add(&ctx, &not_made, m, m));
    NOT_HERE(attn_cross_entropy(&ctx, &not_made, m, ids));
    NOT_HERE(attn_model_open_memory(&ctx, &opened, file, size, NULL));
    NOT_HERE(attn_sampler_new(&ctx, &sampler, 40, NULL));
    NOT_HERE(attn_logit_stats(&ctx, stats, &(attn_top){top, 1}, m, NULL));
    NOT_HERE(attn_model_logits(&ctx, &not_made, plain, m, no_tensor));
    NOT_HERE(attn_model_logits(&ctx, &not_made, plain, m, ids));
    NOT_HERE(lens_logit_lens(&ctx, &not_made, plain, m, no_tensor, no_tensor));
    NOT_HERE(
        lens_logit_lens(&ctx, &not_made, plain, m, attn_reshape(v, attn_shape2(3, 1)), no_tensor));
    CHECK(opened == NULL && sampler == NULL);
    free(file);
    attn_session_free(session);
    done(&ctx);
    done(&fine);
}

/* What a file says is shown, not obeyed. */
TEST(nothing_for_the_terminal)
{
    SCOPED_CTX ctx = {0};
    REFUSED(NAME, "a?[31m?b???m\xc3\x84\xc2\xa0 ?",
            attn_model_tensor(&ctx, &not_made, plain,
                              "a\x1b[31m\nb\x7f\xc2\x9bm\xc3\x84\xc2\xa0 \x9b"));
    CHECK(!strpbrk(ctx.message, "\x1b\n\x7f"));
}

/* Messages of the library and of the tools follow one rule for any two bytes. */
TEST(one_rule_for_controls)
{
    SCOPED_CTX ctx = {0}, own = {0}, of_tools = {0};
    for (unsigned a = 1; a < 256; a++)
        for (unsigned b = 1; b < 256; b++) {
            const char name[] = {'x', (char)a, (char)b, 'y', (char)b, 0};
            attn_tensor none = no_tensor;
            CHECK(attn_model_tensor(&ctx, &none, plain, name) == ATTN_E_NAME);
            attn_fail(&own, ATTN_E_NAME, "%s", name);
            tool_fail(&of_tools, ATTN_E_NAME, "%s", name);
            const char *said = own.message;
            if (!CHECKF(strstr(ctx.message, said) && strcmp(said, of_tools.message) == 0,
                        "bytes %x %x: \"%s\", \"%s\" and \"%s\"", a, b, ctx.message, said,
                        of_tools.message))
                return;
        }
}

/* attn_fail sets the status and as much of the message as there is room for. */
TEST(failures_of_a_caller)
{
    char endless[600];
    attn_ctx ctx = {0};
    memset(endless, 'm', sizeof endless - 1);
    endless[sizeof endless - 1] = 0;
    CHECK(attn_fail(&ctx, ATTN_E_SPACE, "%s: %d of %zu", "room", 3, (size_t)4) == ATTN_E_SPACE);
    CHECK(ctx.status == ATTN_E_SPACE && strcmp(ctx.message, "room: 3 of 4") == 0);
    CHECK(attn_fail(&ctx, ATTN_E_IO, "%s", endless) == ATTN_E_IO && ctx.status == ATTN_E_IO);
    CHECK(strlen(ctx.message) == sizeof ctx.message - 1 && strspn(ctx.message, "m") == 255);
}

typedef attn_status (*attempt)(attn_ctx *ctx, attn_session *session);

static attn_status attend_to_halves(attn_ctx *ctx, attn_session *session)
{
    const size_t dims[3] = {2, 4, 4};
    const attn_tensor q = new_tensor(ATTN_F16, 3, dims, LAYOUT_DENSE);
    attn_tensor made = no_tensor;
    (void)session;
    attn_status status = attn_attention(ctx, &made, q, q, q, NULL);
    attn_tensor_free(ctx, &made);
    return status;
}

static attn_status encode_specials(attn_ctx *ctx, attn_session *session)
{
    char text[3100]; /* a long word takes memory, a short one none */
    int32_t ids[3100];
    (void)session;
    memset(text, 'e', 3000);
    memcpy(text + 3000, "<|endoftext|>the cat", 20);
    size_t n = 3100;
    return attn_encode_special(ctx, ids, &n, attn_model_tokenizer(tiny), text, 3020);
}

static attn_status generate_from_text(attn_ctx *ctx, attn_session *session)
{
    char text[161]; /* a long word takes memory, a short one none */
    attn_generate_desc desc = {.max_tokens = 2};
    memset(text, 'e', 160);
    text[160] = 0;
    return attn_generate(ctx, NULL, session, text, &desc);
}

static attn_status edit_with_a_mean(attn_ctx *ctx, attn_session *session)
{
    attn_edit edit = {.name = "blocks.0.hook_resid_mid",
                      .kind = ATTN_EDIT_MEAN,
                      .value = some(2, 3, attn_model_config(tiny)->d_model, 1)};
    return attn_hook_edit(ctx, NULL, session, &edit);
}

static attn_status lens_without_scale(attn_ctx *ctx, attn_session *session)
{
    attn_tensor made = no_tensor;
    (void)session;
    attn_status status = lens_logit_lens(
        ctx, &made, tiny, some(2, 2, attn_model_config(tiny)->d_model, 1), no_tensor, no_tensor);
    attn_tensor_free(ctx, &made);
    return status;
}

/* Each allocation fails in turn: a status, nothing kept, and the next attempt goes on as ever. */
TEST(no_memory)
{
    static const attempt attempts[] = {attend_to_halves, encode_specials, generate_from_text,
                                       edit_with_a_mean, lens_without_scale};
    for (size_t i = 0; i < sizeof attempts / sizeof attempts[0]; i++) {
        attn_ctx fine = {0};
        attn_session *session = session_on(&fine, tiny, 0, 0);
        int n, failures = 0;
        for (n = 0; n < 100; n++) {
            meter m;
            attn_ctx ctx = metered(&m);
            m.fail_at = n;
            attn_status status = attempts[i](&ctx, session);
            attn_unhook_all(session);
            CHECKF(m.live == 0 && m.wrong == 0, "attempt %d, call %d: %ld blocks kept", (int)i, n,
                   m.live);
            OK(&fine, attn_session_truncate(&fine, session, 0));
            if (status == ATTN_OK)
                break;
            failures++;
            CHECKF(status == ATTN_E_MEMORY, "attempt %d, call %d: %s", (int)i, n, ctx.message);
        }
        CHECKF(failures > 0 && n < 100, "attempt %d fails %d times", (int)i, failures);
        attn_session_free(session);
        done(&fine);
    }
}
