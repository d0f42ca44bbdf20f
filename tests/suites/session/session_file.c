/* A program that uses short names for itself includes session_file.h. This file compiles only if the header uses none of
 * them. */
#include "tests/support/shared_models.h"

typedef struct arena {
    int n;
} arena;
static const int show = 1, why = 2, fail = 3, failure = 4, option = 5, control_size = 6,
                 names_find = 7;

#include "tools/common/session_file.h"

SUITE_WITH_MODELS("tiny");

TEST(names_of_a_program)
{
    SCOPED_CTX ctx = alone();
    attn_session *session = NULL, *again = NULL;
    const char *const path = test_tmp("named.session");
    const arena mine = {show + why + fail + failure + option + control_size + names_find};
    CHECK(mine.n == 28);
    if (OK(&ctx, attn_session_new(&ctx, &session, tiny, NULL)) &&
        OK(&ctx, attn_session_new(&ctx, &again, tiny, NULL)) &&
        OK(&ctx, attn_feed(&ctx, session, (attn_token[]){1, 2}, 2)) &&
        OK(&ctx, lens_session_save(&ctx, path, session)) &&
        OK(&ctx, lens_session_load(&ctx, again, path)))
        CHECK(attn_session_length(again) == 2);
    CHECK(lens_session_load(&ctx, again, "no/such/file") == ATTN_E_IO &&
          strstr(ctx.message, "no/such/file: cannot be opened: No such file"));
    attn_session_free(session);
    attn_session_free(again);
}
