/* What a program does wrong without a word from the compiler. */
#include "tests/support/fixture.h"
#include "tests/support/shared_models.h"

SUITE_WITH_MODELS("plain tiny");

/* An argument of attn_fail may be the message of the call that failed. */
TEST(a_message_before_a_message)
{
    SCOPED_CTX ctx = alone();
    attn_fail(&ctx, ATTN_E_IO, "the disk is gone");
    attn_fail(&ctx, ctx.status, "cannot load: %s", ctx.message);
    CHECKF(strcmp(ctx.message, "cannot load: the disk is gone") == 0, "%s", ctx.message);
}

TEST(no_name)
{
    CHECK(attn_activation_kind_of(NULL) == NULL);
    CHECK(!attn_activation_matches(NULL, "hook_embed"));
    CHECK(!attn_activation_matches("*", NULL));
}

TEST(a_generator_without_a_seed)
{
    attn_rng seeded, zeroed = {{0}, 0};
    attn_rng_seed(&seeded, 0);
    for (int i = 0; i < 2000; i++)
        CHECK(attn_rng_u32(&zeroed) == attn_rng_u32(&seeded));
}

TEST(a_number_of_rows_without_rows)
{
    SCOPED_CTX ctx = alone();
    SCOPED_SESSION session = NULL;
    static const int32_t tokens[] = {1, 2, 3};
    float logits[1] = {0};
    attn_feed_item item = {.tokens = tokens, .n_tokens = 3, .logits = logits, .n_rows = 1};
    OK(&ctx, attn_session_new(&ctx, &session, plain, NULL));
    item.session = session;
    FAILS(ARGUMENT, "rows is NULL", attn_feed_batch(&ctx, &item, 1));
}

TEST(results_that_nobody_freed)
{
    SCOPED_CTX ctx = alone();
    static const int32_t tokens[] = {1, 2, 3};
    attn_continuation text = {.prompt_tokens = tokens, .n_prompt_tokens = 3};
    attn_generate_desc how = {.max_tokens = 2};
    OK(&ctx, attn_generate_many(&ctx, &text, 1, plain, &how));
    FAILS(ARGUMENT, "has results already", attn_generate_many(&ctx, &text, 1, plain, &how));
    attn_continuations_free(&text, 1);
    OK(&ctx, attn_generate_many(&ctx, &text, 1, plain, &how));
    attn_continuations_free(&text, 1);
}

TEST(two_prompts)
{
    SCOPED_CTX ctx = alone();
    SCOPED_SESSION session = NULL;
    static const int32_t tokens[] = {1, 2, 3};
    attn_generate_desc how = {.prompt_tokens = tokens, .n_prompt_tokens = 3, .max_tokens = 1};
    OK(&ctx, attn_session_new(&ctx, &session, tiny, NULL));
    FAILS(ARGUMENT, "both were given", attn_generate(&ctx, NULL, session, "a text", &how));
    how.prompt_tokens = NULL;
    FAILS(ARGUMENT, "no prompt_tokens", attn_generate(&ctx, NULL, session, "a text", &how));
    EQUAL(attn_session_length(session), 0);
}

/* To go on after a text: result.accepted is the session's length if no text was held back. */
TEST(truncating_to_the_length)
{
    SCOPED_CTX ctx = alone();
    SCOPED_SESSION session = NULL;
    static const int32_t tokens[] = {1, 2, 3};
    OK(&ctx, attn_session_new(&ctx, &session, plain, NULL));
    OK(&ctx, attn_feed(&ctx, session, tokens, 3));
    OK(&ctx, attn_session_truncate(&ctx, session, 3));
    CHECK(attn_session_logits(session) != NULL);
    OK(&ctx, attn_session_truncate(&ctx, session, 2));
    CHECK(attn_session_logits(session) == NULL);
}

static size_t n_seen[2];
static int count_positions(const attn_activation *activation, void *user)
{
    attn_ctx *ctx = (attn_ctx *)user;
    for (size_t layer = 0; layer < 2; layer++) {
        attn_tensor keys = {0};
        OK(ctx, attn_session_get_cache(ctx, &keys, activation->session, ATTN_CACHE_KEYS, layer, 0));
        n_seen[layer] = keys.shape[0];
        attn_tensor_free(ctx, &keys);
    }
    return 0;
}

/* The second pass of a feed of layer 0: layer 1 has no position yet. */
TEST(keys_of_a_layer_that_does_not_run)
{
    attn_ctx ctx = alone(), inner = alone();
    attn_session *session = NULL;
    static const int32_t tokens[] = {1, 2, 3, 4};
    attn_session_desc desc = {.n_batch = 2};
    attn_feed_item item = {.tokens = tokens, .n_tokens = 4, .layers = {.end = 1}};
    OK(&ctx, attn_session_new(&ctx, &session, plain, &desc));
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.hook_resid_pre", count_positions, &inner));
    item.session = session;
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    EQUAL(n_seen[0], 2);
    EQUAL(n_seen[1], 0);
    attn_session_free(session);
    done(&inner);
    done(&ctx);
}
