/* The edits of lens (tools/lens/edits.h), against the same changes made by the library. */
#include "tools/common/system.h" /* first: it asks the system for POSIX */
#include "lens_tool.h"

SUITE_WITH("lens-tool", NULL, tear_down);

static int halve(const attn_activation *a, void *user)
{
    size_t t, i;
    (void)user;
    for (t = 0; t < a->value.shape[0]; t++)
        for (i = 0; i < a->value.shape[2]; i++)
            ((float *)a->value.data)[(ptrdiff_t)t * a->value.stride[0] + 4 * a->value.stride[1] +
                                     (ptrdiff_t)i] *= 0.5f;
    return 0;
}

/* An activation of a text, in a session of its own. */
static attn_tensor activation_of(story *s, const char *name, const char *text)
{
    attn_session *session = NULL;
    attn_record *record = NULL;
    attn_record_desc what = {0};
    attn_tensor view = {0}, copy = {0};
    what.names = &name;
    what.n_names = 1;
    OK(&s->ctx, attn_session_new(&s->ctx, &session, s->model, NULL));
    OK(&s->ctx, attn_record_new(&s->ctx, &record, session, &what, NULL, 0));
    OK(&s->ctx, attn_feed_text(&s->ctx, session, text));
    OK(&s->ctx, attn_record_get(&s->ctx, &view, record, name));
    OK(&s->ctx, attn_copy(&s->ctx, &copy, view));
    attn_record_free(record);
    attn_session_free(session);
    return copy;
}

static attn_tensor last_row(attn_tensor x)
{
    return attn_slice(x, 0, x.shape[0] - 1, 1);
}

/* The edits of `changes` below, by the library. */
static void change_story(story *s)
{
    static const attn_edit zero = {"blocks.2.attn.hook_z", ATTN_EDIT_ZERO, 0, 0, 3, 1, {0}, 0, {0}};
    attn_edit mean = zero, set = zero, add = zero;
    mean.name = "blocks.0.attn.hook_z";
    mean.kind = ATTN_EDIT_MEAN;
    mean.head = 1;
    mean.value = attn_select(activation_of(s, mean.name, TEXT), 1, 1);
    set.name = "blocks.1.hook_resid_pre";
    set.kind = ATTN_EDIT_SET;
    set.head = set.n_heads = 0;
    set.position = 2;
    set.n_positions = 1;
    set.value = attn_slice(activation_of(s, set.name, "The dog ran"), 0, 2, 1);
    add.name = "blocks.2.hook_resid_pre";
    add.kind = ATTN_EDIT_ADD;
    add.head = add.n_heads = 0;
    add.factor = 1.5f;
    OK(&s->ctx, attn_sub(&s->ctx, &add.value, last_row(activation_of(s, add.name, "very happy")),
                         last_row(activation_of(s, add.name, "sad"))));
    OK(&s->ctx, attn_hook_edit(&s->ctx, NULL, s->session, &zero));
    OK(&s->ctx, attn_hook_edit(&s->ctx, NULL, s->session, &mean));
    OK(&s->ctx, attn_hook_edit(&s->ctx, NULL, s->session, &set));
    OK(&s->ctx, attn_hook_edit(&s->ctx, NULL, s->session, &add));
    OK(&s->ctx, attn_hook(&s->ctx, NULL, s->session, "blocks.3.attn.hook_z", halve, NULL));
}

#define CHANGES                                                                                    \
    "'" TEXT "' --edit 'zero blocks.2.attn.hook_z head 3; mean blocks.0.attn.hook_z head 1' "      \
    "--edit 'set blocks.1.hook_resid_pre at 2' --edit 'add blocks.2.hook_resid_pre by 1.5; "       \
    "scale blocks.3.attn.hook_z by 0.5 head 4' --second 'The dog ran' --towards 'very happy' "     \
    "--away sad --json "

/* What the commands show of a changed model is what the library gives. */
TEST(edits)
{
    static const char *const name = "blocks.1.attn.hook_pattern";
    story s;
    attn_token_stats stats[64];
    attn_prediction top[64];
    attn_record_desc what = {&name, 1, 0, 0, {0}};
    attn_record *record = NULL;
    attn_tensor pattern = {0};
    const json_value *all;
    size_t t;
    if (!open_story(&s, TINY, TEXT))
        return;
    change_story(&s);
    OK(&s.ctx, attn_record_new(&s.ctx, &record, s.session, &what, NULL, 0));
    OK(&s.ctx, attn_score(&s.ctx, stats, &(attn_top){top, 1}, s.session, s.tokens, s.n));
    OK(&s.ctx, attn_record_get(&s.ctx, &pattern, record, name));
    all = member(parse(LENS MODEL "loss " CHANGES), "tokens");
    for (t = 1; t < s.n; t++)
        is_float(member(item(all, t), "loss"), stats[t - 1].nll, "a loss");
    all = member(parse(LENS MODEL "logit-lens " CHANGES), "layers");
    for (t = 0; t < s.n; t++) {
        const json_value *there = item(member(item(all, 4), "positions"), t);
        is_float(member(item(member(there, "top"), 0), "logit"), top[t].logit, "the last guess");
    }
    all = item(member(parse(LENS MODEL "patterns --layer 1 --head 5 " CHANGES), "patterns"), 0);
    for (t = 0; t < s.n; t++)
        is_float(item(item(member(all, "pattern"), s.n - 1), t),
                 attn_get2(attn_select(pattern, 0, 5), s.n - 1, t), "a weight");
    all = parse(LENS MODEL "attribute " CHANGES);
    is_float(member(all, "logit"), top[s.n - 1].logit, "the logit");
    CHECK(fabs(number(member(all, "sum")) - (double)top[s.n - 1].logit) < 1e-4);
    /* Edits of heads leave the sum whole: what is no head's, no MLP's and no embedding's is nothing. */
    all = parse(LENS MODEL "attribute '" TEXT "' --edit 'zero blocks.2.attn.hook_z head 3' --json");
    all = item(member(all, "grids"), 1);
    CHECK(member(all, "columns")->size == 5 && json_is(item(member(all, "columns"), 4), "edits"));
    CHECK(fabs(number(item(item(member(all, "values"), 0), 4))) < 1e-4);
    attn_record_free(record);
    close_story(&s);
    refuses(2, "does not begin with zero, set, mean, add or scale",
            LENS MODEL "Once --edit 'off blocks.0.attn.hook_z'");
    refuses(2, "needs \"by F\"", LENS MODEL "Once --edit 'scale blocks.0.attn.hook_z'");
    refuses(2, "this needs --second TEXT", LENS MODEL "Once --edit 'set blocks.0.attn.hook_z'");
    refuses(2, "\"hed 3\" where \"head H\"", LENS MODEL "Once --edit 'zero hook_embed hed 3'");
    refuses(1, "there is no head 6", LENS MODEL "Once --edit 'zero blocks.0.attn.hook_z head 6'");
    refuses(1, "blocks.9", LENS MODEL "Once --edit 'zero blocks.9.attn.hook_z'");
    refuses(2, "--edit means nothing to heads", LENS MODEL "heads Once --edit 'zero hook_embed'");
}
