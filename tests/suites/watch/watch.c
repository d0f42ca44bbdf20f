/* Hooks: which activations there are and their names, callbacks that read and write them, in what order
 * they are called, and what they may not do. */
#include "tests/support/hooks.h"
#include "tests/support/refused.h"
#include "tests/support/same_bits.h"
#include "tests/support/shared_models.h"

SUITE_WITH_MODELS("plain odd narrow longer tiny bytes8");

/* ---- the same bits ---- */

TEST(hooks_that_change_nothing)
{
    watched(tiny, 120, 120, 0, 1);
    watched(tiny, 120, 50, 32, 2);
    watched(plain, 32, 32, 0, 2);
    watched(odd, 40, 40, 0, 1);
    watched(odd, 40, 1, 0, 1);
    watched(odd, 40, RANDOM_CUTS, 7, 2);
    watched(longer, 600, RANDOM_CUTS, 100, 2);
}

/* ---- hooks ---- */

/* What a hook changes: row `position` (all rows: EVERY) of head `head`, in a way of its own. */
enum { EVERY = 10000 };
typedef struct change {
    size_t position, head;
    float value;
} change;

static int changes_row(const change *c, const attn_activation *a, size_t row)
{
    return c->position == EVERY || a->first + row == c->position;
}

static int zero_head(const attn_activation *a, void *user)
{
    const change *c = (const change *)user;
    for (size_t i = 0; i < a->value.shape[0]; i++)
        for (size_t k = 0; changes_row(c, a, i) && k < a->value.shape[2]; k++)
            *entry(a->value, i, c->head, k) = 0;
    return 0;
}

static int add_to_row(const attn_activation *a, void *user)
{
    const change *c = (const change *)user;
    for (size_t i = 0; i < a->value.shape[0]; i++)
        for (size_t j = 0; changes_row(c, a, i) && j < a->value.shape[1]; j++)
            for (size_t k = 0; k < a->value.shape[2]; k++)
                *entry(a->value, i, j, k) += c->value * (float)(1 + (j + k) % 3);
    return 0;
}

/* Writes rows that depend on nothing but the position. */
static int set_rows(const attn_activation *a, void *user)
{
    const change *c = (const change *)user;
    for (size_t i = 0; i < a->value.shape[0]; i++)
        for (size_t j = 0; j < a->value.shape[1]; j++)
            *entry(a->value, i, j, 0) =
                c->value * (float)sin((double)(1 + (a->first + i) * 7 + j * 3));
    return 0;
}

/* Query `position` of head `head` looks at key (int)value alone. */
static int look_at_one(const attn_activation *a, void *user)
{
    const change *c = (const change *)user;
    const int is_scores = strstr(a->name, "scores") != NULL;
    for (size_t k = 0; k < a->value.shape[2]; k++)
        *entry(a->value, c->head, c->position - a->first, k) =
            is_scores ? (k == (size_t)c->value ? 3.0f : -INFINITY) : k == (size_t)c->value;
    return 0;
}

static int double_it(const attn_activation *a, void *user)
{
    (void)user;
    for (size_t i = 0; i < count_of(a->value); i++)
        *(float *)element(a->value, i) *= 2;
    return 0;
}

/* Without one head's z, what attention adds is the sum of the others'; and the logits are those of
 * a model whose W_O has zeros in that head's rows. */
TEST(ablation)
{
    enum { LENGTH = 20, HEAD = 2, D = 16, WIDTH = 64, HEADS = 4 };
    SCOPED_CTX ctx = alone();
    const int32_t *const tokens = random_tokens(plain, LENGTH, 13);
    const float *const untouched = logits_of(&ctx, plain, 0, tokens, LENGTH, LENGTH);
    const attn_model_desc unchecked = {.skip_checksums = 1};
    sight *const r = new_sight();
    change c = {EVERY, HEAD, 0};
    float *const got =
        hooked(plain, tokens, LENGTH, LENGTH, "blocks.1.attn.hook_z", zero_head, &c, "*", r);
    attn_tensor z, w_o = {0}, b_o = {0}, want = random_tensor(2, LENGTH, WIDTH);
    attn_model *edited = NULL;
    model_tensor info;
    unsigned char *file;
    size_t size, j, index;
    CHECK(differ(got, untouched, LENGTH * vocab_of(plain)));

    OK(&ctx, attn_model_tensor(&ctx, &w_o, plain, "blocks.1.attn.W_O"));
    OK(&ctx, attn_model_tensor(&ctx, &b_o, plain, "blocks.1.attn.b_O"));
    z = latest(r, "blocks.1.attn.hook_z");
    for (size_t t = 0; t < LENGTH; t++)
        for (j = 0; j < WIDTH; j++) {
            double sum = (double)*entry(b_o, j, 0, 0);
            for (size_t k = 0; k < HEADS * D; k++)
                if (k / D != HEAD)
                    sum +=
                        (double)*entry(z, t, k / D, k % D) * (double)*entry(w_o, k / D, k % D, j);
            *entry(want, t, j, 0) = (float)sum;
        }
    close_to(latest(r, "blocks.1.hook_attn_out"), want, 1e-6, "attention without a head");

    if ((file = editable(test_tmp("plain.attn"), &size)) != NULL) {
        for (index = 0, info = model_tensor_at(plain, 0);
             strcmp(info.name, "blocks.1.attn.W_O") != 0; info = model_tensor_at(plain, ++index))
            continue;
        for (size_t k = HEAD * D; k < (HEAD + 1) * D;
             k++) /* entry (k, j): see "panels" in the manual */
            for (j = 0; j < WIDTH; j++)
                memset(file + info.offset + 4 * ((j / 16 * WIDTH + k) * 16 + j % 16), 0, 4);
        if (OK(&ctx, attn_model_open_memory(&ctx, &edited, file, size, &unchecked)))
            same_logits(logits_of(&ctx, edited, 0, tokens, LENGTH, 3), got, LENGTH, plain,
                        "rows of W_O removed");
        attn_model_close(edited);
    }
}

TEST(writing_the_residual)
{
    enum { LENGTH = 30, AT = 12 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 14);
    const float *const untouched = logits_of(&ctx, odd, 0, tokens, LENGTH, LENGTH);
    change c = {AT, 0, 0.25f}, value = {EVERY, 0, 1.5f}, zero = {EVERY, 0, 0};
    float *post = hooked(odd, tokens, LENGTH, LENGTH, "blocks.0.hook_resid_post", add_to_row, &c,
                         NULL, NULL),
          *pre = hooked(odd, tokens, LENGTH, LENGTH, "blocks.1.hook_resid_pre", add_to_row, &c,
                        NULL, NULL);
    same_logits(post, untouched, AT, odd, "rows before the change");
    CHECK(differ(row_of(post, AT, odd), untouched + AT * vocab_of(odd), vocab_of(odd)));
    CHECK(differ(row_of(post, LENGTH - 1, odd), untouched + (LENGTH - 1) * vocab_of(odd),
                 vocab_of(odd)));
    same_logits(pre, post, LENGTH, odd, "resid_post of a block and resid_pre of the next");

    /* The embeddings replaced, or their sum */
    attn_session *session = session_on(&ctx, odd, 0, 0);
    OK(&ctx, attn_hook(&ctx, NULL, session, "hook_embed", set_rows, &value));
    OK(&ctx, attn_hook(&ctx, NULL, session, "hook_pos_embed", set_rows, &zero));
    pre = feed_all(&ctx, session, tokens, LENGTH, 4);
    attn_session_free(session);
    post = hooked(odd, tokens, LENGTH, LENGTH, "blocks.0.hook_resid_pre", set_rows, &value, NULL,
                  NULL);
    same_logits(pre, post, LENGTH, odd, "embeddings and resid_pre replaced");
    CHECK(differ(post, untouched, LENGTH * vocab_of(odd)));
}

/* A key or value that is changed before it joins the cache stays changed. */
TEST(writing_keys)
{
    enum { LENGTH = 30, AT = 6 };
    static const char *const names[] = {"blocks.1.attn.hook_k", "blocks.1.attn.hook_v"};
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 15);
    const float *const untouched = logits_of(&ctx, odd, 0, tokens, LENGTH, LENGTH);
    change c = {AT, 0, 0.5f};
    for (size_t i = 0; i < 2; i++) {
        float *const whole =
            hooked(odd, tokens, LENGTH, LENGTH, names[i], add_to_row, &c, NULL, NULL);
        SCOPED_SESSION session = session_on(&ctx, odd, 0, 0);
        OK(&ctx, attn_hook(&ctx, NULL, session, names[i], add_to_row, &c));
        OK(&ctx, attn_feed(&ctx, session, tokens, 10));
        attn_unhook_all(session);
        same_logits(feed_all(&ctx, session, tokens + 10, LENGTH - 10, 3), row_of(whole, 10, odd),
                    LENGTH - 10, odd, names[i]);
        CHECK(differ(row_of(whole, LENGTH - 1, odd), untouched + (LENGTH - 1) * vocab_of(odd),
                     vocab_of(odd)));
    }
}

TEST(writing_the_pattern)
{
    enum { LENGTH = 20, AT = 11, HEAD = 1, D = 16 };
    static const char *const names[] = {"blocks.2.attn.hook_pattern",
                                        "blocks.2.attn.hook_attn_scores"};
    const int32_t *const tokens = random_tokens(odd, LENGTH, 16);
    sight *const before = new_sight();
    hooked(odd, tokens, LENGTH, LENGTH, "hook_embed", do_nothing, NULL, "*", before);
    for (size_t i = 0; i < 2; i++)
        for (size_t key = 3; key <= AT; key += AT - 3) {
            change c = {AT, HEAD, 0};
            sight *const r = new_sight();
            c.value = (float)key;
            hooked(odd, tokens, LENGTH, LENGTH, names[i], look_at_one, &c, "*", r);
            attn_tensor v = latest(r, "blocks.2.attn.hook_v");
            attn_tensor z = latest(r, "blocks.2.attn.hook_z");
            attn_tensor z_before = latest(before, "blocks.2.attn.hook_z");
            for (size_t t = 0; t < LENGTH; t++)
                for (size_t head = 0; head < 3; head++) {
                    const int changed = t == AT && head == HEAD;
                    CHECKF(memcmp(entry(z, t, head, 0),
                                  changed ? entry(v, key, head, 0) : entry(z_before, t, head, 0),
                                  D * sizeof(float)) == 0,
                           "%s, key %llu: z [%llu, %llu] is wrong", names[i], LLU(key), LLU(t),
                           LLU(head));
                }
            CHECK(*entry(latest(r, "blocks.2.attn.hook_pattern"), HEAD, AT, key) == 1);
        }
}

/* hook_scale is what normalizing divides by; halving and doubling are exact. */
TEST(writing_the_scale)
{
    static const char *const norms[] = {"blocks.0.ln1.", "blocks.1.ln2.", "ln_final."};
    enum { LENGTH = 10 };
    const int32_t *const tokens = random_tokens(plain, LENGTH, 17);
    sight *const before = new_sight();
    hooked(plain, tokens, LENGTH, LENGTH, "hook_embed", do_nothing, NULL, "*", before);
    for (size_t i = 0; i < 3; i++) {
        char name[64];
        sight *const r = new_sight();
        snprintf(name, sizeof name, "%shook_scale", norms[i]);
        hooked(plain, tokens, LENGTH, LENGTH, name, double_it, NULL, "*", r);
        snprintf(name, sizeof name, "%shook_normalized.pre", norms[i]);
        attn_tensor got = latest(r, name);
        attn_tensor want = latest(before, name);
        for (size_t j = 0; j < count_of(got); j++)
            *(float *)element(got, j) *= 2;
        same_bits(got, want, name);
    }
}

/* `*` by its definition: nothing, or one character and again. */
static int matches(const char *pattern, const char *text)
{
    if (*pattern == '*')
        return matches(pattern + 1, text) || (*text && matches(pattern, text + 1));
    return *pattern == *text && (*text == 0 || matches(pattern + 1, text + 1));
}

TEST(names_and_patterns)
{
    static const char *const good[] = {"*",
                                       "**",
                                       "hook_embed",
                                       "blocks.0.attn.hook_q",
                                       "*hook_q",
                                       "blocks.1.*",
                                       "*ln*scale*",
                                       "b*s.*.h*_*_*",
                                       "*hook_normalized.p*e",
                                       "blocks.*.hook_resid_*",
                                       "*.hook_post",
                                       "*embed",
                                       "*attn*attn*",
                                       "ln_final.*.post",
                                       "*o*o*o*o*",
                                       "*0*hook*",
                                       "hook_embed*",
                                       "*hook_embed"};
    static const char *const bad[] = {"",        "hook",          "Hook_embed",
                                      "?",       "blocks.2.*",    "blocks.0.attn.hook_q ",
                                      "*hook_x", "hook_*_embedx", "blocks.00.hook_resid_pre",
                                      "blocks.0"};
    attn_ctx ctx = alone();
    const int32_t token = 5;
    sight *const everything = new_sight();
    SCOPED_SESSION session = session_on(&ctx, plain, 0, 0);
    hooked(plain, &token, 1, 1, "hook_embed", do_nothing, NULL, "*", everything);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        sight *const r = new_sight();
        size_t n = 0;
        OK(&ctx, attn_hook(&ctx, NULL, session, good[i], note, r));
        OK(&ctx, attn_feed(&ctx, session, &token, 1));
        for (size_t j = 0; j < everything->n; j++)
            if (matches(good[i], everything->all[j].name)) {
                CHECKF(n < r->n && strcmp(r->all[n].name, everything->all[j].name) == 0,
                       "\"%s\" missed %s", good[i], everything->all[j].name);
                n++;
            }
        CHECKF(n > 0 && n == r->n, "\"%s\" matched %llu activations, not %llu", good[i], LLU(r->n),
               LLU(n));
        attn_unhook_all(session);
        CHECK(r->n > 0 && count_of(r->all[0].value) > 0);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        FAILS(NAME, bad[i], attn_hook(&ctx, NULL, session, bad[i], do_nothing, NULL));
}

/* Hooks run in the order in which they were made, and each sees what the one before wrote. */
TEST(several_hooks)
{
    enum { LENGTH = 5 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(plain, LENGTH, 18);
    sight *const first = new_sight(), *const second = new_sight();
    SCOPED_SESSION session = session_on(&ctx, plain, 0, 0);
    const char *const name = "blocks.0.mlp.hook_post";
    OK(&ctx, attn_hook(&ctx, NULL, session, name, note, first));
    OK(&ctx, attn_hook(&ctx, NULL, session, name, double_it, NULL));
    OK(&ctx, attn_hook(&ctx, NULL, session, "*.mlp.*", note, second));
    OK(&ctx, attn_feed(&ctx, session, tokens, LENGTH));
    for (size_t i = 0; i < LENGTH * 256; i++)
        if (!CHECK(value_of(latest(second, name), i) == 2 * value_of(latest(first, name), i)))
            break;
    attn_unhook_all(session);
    OK(&ctx, attn_feed(&ctx, session, tokens, LENGTH));
    CHECK(first->n == 1 && second->n == 4);
}

TEST(stopping)
{
    enum { LENGTH = 20, PAST = 4 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 19);
    float *const want = logits_of(&ctx, odd, 0, tokens, LENGTH, LENGTH);
    sight *const everything = new_sight();
    hooked(odd, tokens, 1, 1, "hook_embed", do_nothing, NULL, "*", everything);
    for (size_t n_threads = 1; n_threads <= 2; n_threads++)
        for (size_t i = 0; i < everything->n; i += 5 * n_threads - 4) {
            attn_session *session;
            stopper s;
            ctx.n_threads = (int)n_threads;
            if ((session = session_on(&ctx, odd, 0, 6)) == NULL) /* the feed takes three passes */
                return;
            s.name = everything->all[i].name;
            s.first = i % 3 == 0 ? 0 : PAST + 6 * (i % 3);
            OK(&ctx, attn_feed(&ctx, session, tokens, PAST));
            OK(&ctx, attn_hook(&ctx, NULL, session, "*", stop_at, &s));
            STOPS(&ctx, attn_feed(&ctx, session, tokens + PAST, LENGTH - PAST));
            EQUAL(attn_session_length(session), PAST);
            same_logits(attn_session_logits(session), row_of(want, PAST - 1, odd), 1, odd,
                        "the logits from before");
            attn_unhook_all(session);
            same_logits(feed_all(&ctx, session, tokens + PAST, LENGTH - PAST, LENGTH - PAST),
                        row_of(want, PAST, odd), LENGTH - PAST, odd, "after a stop");
            attn_session_free(session);
        }
}

/* A batch in which one session's hook asks to stop leaves all sessions as they were. */
TEST(stopping_a_batch)
{
    enum { LENGTH = 12, PAST = 3 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(plain, LENGTH, 20);
    float *const want = logits_of(&ctx, plain, 0, tokens, LENGTH, LENGTH);
    attn_session *sessions[3];
    attn_feed_item items[3];
    stopper s;
    s.name = "ln_final.hook_normalized.post";
    s.first = PAST + 1; /* in its second pass, when the first session has its logits */
    for (size_t i = 0; i < 3; i++) {
        sessions[i] = session_on(&ctx, plain, 0, 7);
        OK(&ctx, attn_feed(&ctx, sessions[i], tokens, PAST));
        items[i] = item_of(sessions[i], tokens + PAST, i == 0 ? 1 : LENGTH - PAST, NULL);
    }
    share_workspace(&ctx, sessions, 3, 7);
    OK(&ctx, attn_hook(&ctx, NULL, sessions[2], "*", stop_at, &s));
    STOPS(&ctx, attn_feed_batch(&ctx, items, 3));
    for (size_t i = 0; i < 3; i++) {
        EQUAL(attn_session_length(sessions[i]), PAST);
        same_logits(attn_session_logits(sessions[i]), row_of(want, PAST - 1, plain), 1, plain,
                    "the logits from before");
    }
    attn_unhook_all(sessions[2]);
    OK(&ctx, attn_feed_batch(&ctx, items, 3));
    for (size_t i = 0; i < 3; i++) {
        same_logits(attn_session_logits(sessions[i]),
                    row_of(want, PAST + items[i].n_tokens - 1, plain), 1, plain, "after a stop");
        attn_session_free(sessions[i]);
    }
}

/* In a batch each session's hooks see its own rows, with the bits that it has alone. */
TEST(hooks_in_a_batch)
{
    enum { ITEMS = 4 };
    static const size_t past[ITEMS] = {0, 9, 4, 1}, fed[ITEMS] = {5, 1, 8, 3};
    attn_ctx ctx = alone();
    attn_session *sessions[ITEMS];
    attn_feed_item items[ITEMS];
    sight *by_itself[ITEMS], *together[ITEMS];
    for (size_t i = 0; i < ITEMS; i++) {
        const int32_t *const tokens = random_tokens(odd, past[i] + fed[i], i);
        by_itself[i] = new_sight();
        together[i] = new_sight();
        sessions[i] = session_on(&ctx, odd, 0, 0);
        if (past[i] > 0)
            OK(&ctx, attn_feed(&ctx, sessions[i], tokens, past[i]));
        OK(&ctx, attn_hook(&ctx, NULL, sessions[i], i == 3 ? "*.hook_q" : "*", note, by_itself[i]));
        OK(&ctx, attn_feed(&ctx, sessions[i], tokens + past[i], fed[i]));
        OK(&ctx, attn_session_truncate(&ctx, sessions[i], past[i]));
        attn_unhook_all(sessions[i]);
        if (i != 2) /* this one goes unwatched */
            OK(&ctx,
               attn_hook(&ctx, NULL, sessions[i], i == 3 ? "*.hook_q" : "*", note, together[i]));
        items[i] = item_of(sessions[i], tokens + past[i], fed[i], NULL);
    }
    share_workspace(&ctx, sessions, ITEMS, 0);
    OK(&ctx, attn_feed_batch(&ctx, items, ITEMS));
    for (size_t i = 0; i < ITEMS; i++) {
        CHECKF(together[i]->n == (i == 2 ? 0 : by_itself[i]->n), "session %llu: %llu activations",
               LLU(i), LLU(together[i]->n));
        for (size_t j = 0; j < together[i]->n; j++) {
            const seen *a = &by_itself[i]->all[j], *b = &together[i]->all[j];
            CHECK(strcmp(a->name, b->name) == 0 && b->session == sessions[i]);
            CHECK(b->first == past[i]);
            same_bits(b->value, a->value, a->name);
        }
        attn_session_free(sessions[i]);
    }
}

/* ---- what is made on request ---- */

static const char *const opt_in[] = {"*.hook_result", "*_attn_in",      "*_q_input",
                                     "*hook_k_input", "*.hook_v_input", "*.hook_mlp_in"};
enum { OPT_IN = 6 };

static void check_results(const attn_model *model, const char *path, size_t step)
{
    SCOPED_CTX ctx = alone();
    size_t size, n, j, at;
    SCOPED_BYTES const file = test_read(path, &size);
    const attn_config *const c = attn_model_config(model);
    if (!CHECKF(file, "%s cannot be read", path))
        return;
    int32_t *tokens = stored_tokens(file, &n);
    for (size_t layer = 0; layer < c->n_layer; layer++) {
        sight *const s = new_sight();
        attn_tensor whole = random_tensor(3, (int)n, (int)c->n_head, (int)c->d_model), bias = {0};
        char name[64];
        const char *const block = test_text("blocks.%d.*", (int)layer);
        snprintf(name, sizeof name, "blocks.%d.attn.hook_result", (int)layer);
        hooked(model, tokens, n, step, name, note, s, block, s);
        for (at = 0, j = 0; j < s->n; j++)
            if (strcmp(s->all[j].name, name) == 0) {
                CHECK(s->all[j].first == at);
                memcpy(entry(whole, at, 0, 0), s->all[j].value.data,
                       count_of(s->all[j].value) * sizeof(float));
                at += s->all[j].value.shape[0];
            }
        EQUAL(at, n);
        close_to(whole, stored_tensor(file, name), 2e-5, name);

        /* The heads and b_O add up to attn_out, here in double. */
        snprintf(name, sizeof name, "blocks.%d.attn.b_O", (int)layer);
        OK(&ctx, attn_model_tensor(&ctx, &bias, model, name));
        snprintf(name, sizeof name, "blocks.%d.hook_attn_out", (int)layer);
        for (at = 0; at < s->n; at++)
            for (size_t t = 0; strcmp(s->all[at].name, name) == 0 && t < s->all[at].value.shape[0];
                 t++)
                for (j = 0; j < c->d_model; j++) {
                    double sum = (double)*entry(bias, j, 0, 0);
                    for (size_t head = 0; head < c->n_head; head++)
                        sum += (double)*entry(whole, s->all[at].first + t, head, j);
                    CHECKF(fabs(sum - (double)*entry(s->all[at].value, t, j, 0)) < 1e-5,
                           "%s [%llu, %llu]", name, LLU(t), LLU(j));
                }
    }
    pool_clear();
}

TEST(results)
{
    check_results(plain, "tests/golden/plain/reference.safetensors", 99);
    check_results(odd, "tests/golden/odd/reference.safetensors", 7);
    check_results(narrow, "tests/golden/narrow/reference.safetensors", 1);
    check_results(narrow, "tests/golden/narrow/reference.safetensors", 99);
}

/* Whoever only looks, or writes back what was there, changes no bit: in one call, in pieces, one
 * token at a time, in a batch with others. */
TEST(looking_changes_nothing)
{
    enum { LENGTH = 24 };
    const attn_model *const models[] = {plain, odd, narrow, tiny, bytes8};
    attn_ctx ctx = alone();
    size_t n_calls;
    for (size_t m = 0; m < 5; m++)
        for (int n_threads = 1; n_threads <= 2; n_threads++) {
            const int32_t *const tokens = random_tokens(models[m], LENGTH, m);
            const float *const want =
                hooked(models[m], tokens, LENGTH, LENGTH, NULL, NULL, NULL, NULL, NULL);
            attn_session *others[2], *trio[3];
            attn_feed_item items[3];
            ctx.n_threads = n_threads;
            attn_session *session = session_on(&ctx, models[m], 0, 10);
            for (size_t i = 0; i < 2; i++) {
                others[i] = session_on(&ctx, models[m], 0, 0);
                OK(&ctx, attn_feed(&ctx, others[i], tokens, i * 3 + 1));
            }
            for (size_t step = 1; step <= LENGTH; step += step > 1 ? 14 : 11) {
                n_calls = 0;
                for (size_t i = 0; i < OPT_IN; i++)
                    OK(&ctx, attn_hook(&ctx, NULL, session, opt_in[i], i % 2 ? do_nothing : rewrite,
                                       &n_calls));
                OK(&ctx, attn_hook(&ctx, NULL, session, "*", do_nothing, NULL));
                same_logits(feed_all(&ctx, session, tokens, LENGTH, step), want, LENGTH, models[m],
                            "hooks that look");
                attn_unhook_all(session);
                OK(&ctx, attn_session_truncate(&ctx, session, 0));
                for (size_t i = 0; i < OPT_IN; i++)
                    OK(&ctx, attn_hook(&ctx, NULL, session, opt_in[i], i % 2 ? rewrite : do_nothing,
                                       &n_calls));
                same_logits(feed_all(&ctx, session, tokens, LENGTH, step), want, LENGTH, models[m],
                            "hooks that look");
                CHECK(n_calls >= OPT_IN * attn_model_config(models[m])->n_layer);
                OK(&ctx, attn_session_truncate(&ctx, session, 0));
                attn_unhook_all(session);
            }
            for (size_t i = 0; i < OPT_IN; i++) {
                OK(&ctx, attn_hook(&ctx, NULL, session, opt_in[i], rewrite, &n_calls));
                OK(&ctx, attn_hook(&ctx, NULL, others[1], opt_in[i], do_nothing, &n_calls));
            }
            trio[0] = session;
            trio[1] = others[0];
            trio[2] = others[1];
            share_workspace(&ctx, trio, 3, 0);
            items[0] = item_of(others[0], tokens + 1, LENGTH - 1, NULL);
            items[1] = item_of(session, tokens, LENGTH, NULL);
            items[2] = item_of(others[1], tokens + 4, LENGTH - 4, NULL);
            OK(&ctx, attn_feed_batch(&ctx, items, 3));
            for (size_t i = 0; i < 3; i++)
                same_logits(attn_session_logits(items[i].session),
                            want + (LENGTH - 1) * vocab_of(models[m]), 1, models[m], "a batch");
            attn_session_free(session);
            attn_session_free(others[0]);
            attn_session_free(others[1]);
            pool_clear();
        }
}

/* A head whose copy of the stream is written reads that, and nothing else changes. */
static void check_split(const attn_model *model, size_t head)
{
    enum { LENGTH = 20, AT = 7 };
    static const char *const inputs[] = {"blocks.1.hook_q_input", "blocks.1.hook_k_input",
                                         "blocks.1.hook_v_input", "blocks.1.hook_attn_in"};
    static const char *const outputs[] = {"blocks.1.attn.hook_q", "blocks.1.attn.hook_k",
                                          "blocks.1.attn.hook_v"};
    const attn_config *const c = attn_model_config(model);
    const int32_t *const tokens = random_tokens(model, LENGTH, 3);
    const attn_tensor row = random_tensor(1, (int)c->d_model);
    attn_tensor w = {0}, b = {0}, gain = {0}, bias = {0};
    SCOPED_CTX ctx = alone();
    sight *const usual = new_sight();
    double mean = 0, variance = 0;
    spot s = {AT, 0, NULL};
    s.head = head;
    s.value = (const float *)row.data;
    OK(&ctx, attn_model_tensor(&ctx, &w, model, "blocks.1.attn.W_QKV"));
    OK(&ctx, attn_model_tensor(&ctx, &b, model, "blocks.1.attn.b_QKV"));
    OK(&ctx, attn_model_tensor(&ctx, &gain, model, "blocks.1.ln1.w"));
    OK(&ctx, attn_model_tensor(&ctx, &bias, model, "blocks.1.ln1.b"));
    for (size_t k = 0; k < c->d_model; k++)
        mean += value_of(row, k) / (double)c->d_model;
    for (size_t k = 0; k < c->d_model; k++)
        variance += (value_of(row, k) - mean) * (value_of(row, k) - mean) / (double)c->d_model;
    hooked(model, tokens, LENGTH, LENGTH, NULL, NULL, NULL, "blocks.1.*", usual);
    for (size_t i = 0; i < 4; i++) {
        sight *const r = new_sight();
        hooked(model, tokens, LENGTH, LENGTH, inputs[i], put_spot, &s, "blocks.1.*", r);
        same_bits(latest(r, "blocks.1.hook_resid_pre"), latest(usual, "blocks.1.hook_resid_pre"),
                  "the stream");
        for (size_t part = 0; part < 3; part++) {
            const attn_tensor got = latest(r, outputs[part]), was = latest(usual, outputs[part]);
            for (size_t t = 0; t < LENGTH; t++)
                for (size_t h = 0; h < c->n_head; h++)
                    for (size_t j = 0; j < c->d_head; j++) {
                        const size_t column = part * c->d_model + h * c->d_head + j;
                        double want = value_of(b, column);
                        if (t != AT || h != s.head || (i < 3 && i != part)) {
                            CHECKF(!differ(entry(got, t, h, j), entry(was, t, h, j), 1),
                                   "%s changed %s [%llu, %llu]", inputs[i], outputs[part], LLU(t),
                                   LLU(h));
                            continue;
                        }
                        for (size_t k = 0; k < c->d_model; k++)
                            want += ((value_of(row, k) - mean) / sqrt(variance + 1e-5) *
                                         value_of(gain, k) +
                                     value_of(bias, k)) *
                                    (double)*entry(w, k, column, 0);
                        CHECKF(fabs(want - (double)*entry(got, t, h, j)) < 1e-5,
                               "%s: %s is %.9g, expected %.9g", inputs[i], outputs[part],
                               (double)*entry(got, t, h, j), want);
                    }
        }
        CHECK(differ((float *)latest(r, "blocks.1.hook_resid_post").data,
                     (float *)latest(usual, "blocks.1.hook_resid_post").data, LENGTH * c->d_model));
    }
    pool_clear();
}

TEST(inputs_of_heads)
{
    check_split(plain, 3);
    check_split(odd, 1);
    check_split(narrow, 2);
    check_split(narrow, 0);
    check_split(tiny, 5);
}

/* The stream replaced in every head's copy, by one hook or by three, is the stream replaced; except
 * that the stream itself goes on. */
static int put_copies(const attn_activation *a, void *user)
{
    const attn_tensor *rows = (const attn_tensor *)user;
    for (size_t i = 0; i < a->value.shape[0]; i++)
        for (size_t j = 0; j < a->value.shape[1]; j++)
            for (size_t k = 0; k < a->value.shape[2]; k++)
                *entry(a->value, i, j, k) = *entry(*rows, a->first + i, k, 0);
    return 0;
}

TEST(whole_inputs)
{
    enum { LENGTH = 20 };
    static const char *const parts[] = {"blocks.1.hook_attn_in", "blocks.1.hook_*_input", NULL};
    const attn_model *const models[] = {odd, narrow};
    attn_ctx ctx = alone();
    for (size_t m = 0; m < 2; m++) {
        const attn_config *const c = attn_model_config(models[m]);
        const int32_t *const tokens = random_tokens(models[m], LENGTH, 4);
        attn_tensor rows = random_tensor(2, LENGTH, (int)c->d_model);
        sight *const want = new_sight(), *const usual = new_sight();
        hooked(models[m], tokens, LENGTH, LENGTH, NULL, NULL, NULL, "blocks.1.*", usual);
        hooked(models[m], tokens, LENGTH, LENGTH, "blocks.1.hook_resid_pre", put_rows, &rows,
               "blocks.1.*", want);
        for (size_t i = 0; i < 2; i++) {
            SCOPED_SESSION const session = session_on(&ctx, models[m], 0, 6);
            sight *const r = new_sight();
            if (i == 0) {
                OK(&ctx, attn_hook(&ctx, NULL, session, parts[0], put_copies, &rows));
            } else {
                OK(&ctx, attn_hook(&ctx, NULL, session, "*1.hook_q_input", put_copies, &rows));
                OK(&ctx, attn_hook(&ctx, NULL, session, "*1.hook_k_input", put_copies, &rows));
                OK(&ctx, attn_hook(&ctx, NULL, session, "*1.hook_v_input", put_copies, &rows));
            }
            OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.1.hook_attn_out", note, r));
            OK(&ctx, attn_feed(&ctx, session, tokens, LENGTH));
            for (size_t j = 0; j < r->n; j++)
                same_floats((const float *)r->all[j].value.data,
                            entry(latest(want, "blocks.1.hook_attn_out"), r->all[j].first, 0, 0), 1,
                            count_of(r->all[j].value), "attn_out of copies");
            CHECK(r->n == 4);
        }

        /* The same with the MLP's input. */
        {
            sight *const r = new_sight(), *const mid = new_sight();
            hooked(models[m], tokens, LENGTH, LENGTH, "blocks.1.hook_mlp_in", put_rows, &rows,
                   "blocks.1.*", r);
            hooked(models[m], tokens, LENGTH, LENGTH, "blocks.1.hook_resid_mid", put_rows, &rows,
                   "blocks.1.*", mid);
            attn_tensor added = latest(r, "blocks.1.hook_mlp_out");
            same_bits(added, latest(mid, "blocks.1.hook_mlp_out"), "mlp_out");
            attn_tensor stream = latest(r, "blocks.1.hook_resid_mid");
            same_bits(stream, latest(usual, "blocks.1.hook_resid_mid"), "the stream past the MLP");
            attn_tensor got = latest(r, "blocks.1.hook_resid_post");
            for (size_t j = 0; j < LENGTH; j++)
                for (size_t k = 0; k < c->d_model; k++)
                    CHECK(*entry(got, j, k, 0) == *entry(stream, j, k, 0) + *entry(added, j, k, 0));
        }
        pool_clear();
    }
}

/* A head's result that is taken away is a head's z that is taken away; where nothing was written
 * not a bit changes. */
TEST(writing_results)
{
    enum { LENGTH = 18, AT = 11, HEAD = 2 };
    const attn_model *const models[] = {plain, odd, narrow, tiny, bytes8};
    for (size_t m = 0; m < 5; m++) {
        const int32_t *const tokens = random_tokens(models[m], LENGTH, 6);
        const size_t width = attn_model_config(models[m])->d_model;
        sight *const by_z = new_sight(), *const by_result = new_sight(), *const usual = new_sight();
        spot s = {AT, HEAD, NULL};
        hooked(models[m], tokens, LENGTH, LENGTH, NULL, NULL, NULL, "blocks.0.*", usual);
        hooked(models[m], tokens, LENGTH, LENGTH, "blocks.0.attn.hook_z", put_spot, &s,
               "blocks.0.*", by_z);
        hooked(models[m], tokens, LENGTH, LENGTH, "blocks.0.attn.hook_result", put_spot, &s,
               "blocks.0.*", by_result);
        attn_tensor got = latest(by_result, "blocks.0.hook_attn_out");
        attn_tensor was = latest(usual, "blocks.0.hook_attn_out");
        close_to(got, latest(by_z, "blocks.0.hook_attn_out"), 2e-6, "attn_out");
        for (size_t t = 0; t < LENGTH; t++)
            CHECKF(differ(entry(got, t, 0, 0), entry(was, t, 0, 0), width) == (t == AT),
                   "attn_out, row %llu", LLU(t));
        s.position = EVERYWHERE; /* in pieces and at once, the same */
        const float *a =
            hooked(models[m], tokens, LENGTH, 5, "*.hook_result", put_spot, &s, NULL, NULL);
        const float *b =
            hooked(models[m], tokens, LENGTH, 18, "*.hook_result", put_spot, &s, NULL, NULL);
        same_logits(a, b, LENGTH, models[m], "results in pieces");
        for (size_t j = 0; j < 1; j++)
            CHECK(differ(a, hooked(models[m], tokens, LENGTH, 18, NULL, NULL, NULL, NULL, NULL),
                         LENGTH * vocab_of(models[m])));
        pool_clear();
    }
}

/* ---- names ---- */

TEST(names)
{
    static const struct {
        const char *wrong, *says;
    } cases[] = {
        {"blocks.0.attn.hook_patern", "did you mean blocks.0.attn.hook_pattern?"},
        {"blocks.1.attn.hook_scores", "did you mean blocks.1.attn.hook_attn_scores?"},
        {"blocks.*.attn.hook_patterns", "did you mean blocks.0.attn.hook_pattern?"},
        {"blocks.1.hook_pattern", "did you mean blocks.1.attn.hook_pattern?"},
        {"hook_z", "did you mean blocks.0.attn.hook_z?"},
        {"hook_residpre", "did you mean blocks.0.hook_resid_pre?"},
        {"blocks.1.hook_resid", "3 begin with it: hook_resid_pre, hook_resid_mid, hook_resid_post"},
        {"blocks.0.ln2", "3 begin with it: ln2.hook_scale, "},
        {"blocks.*.attn.hook", "7 begin with it: attn.hook_q, attn.hook_k, "},
        {"ln_final", "3 begin with it: ln_final.hook_scale, "},
        {"blocks.0.hook_scale", "did you mean blocks.0.ln1.hook_scale?"},
        {"blocks.0.mlp.hook_out", "did you mean blocks.0.hook_mlp_out?"},
        {"blocks.0.hook_q", "did you mean blocks.0.attn.hook_q?"},
        {"hook_embedd", "did you mean hook_embed?"},
        {"blocks.0.hook_resid_prey", "did you mean blocks.0.hook_resid_pre?"},
        {"ln_final.scale", "did you mean ln_final.hook_scale?"},
        {"blocks.1.hook_mlpout", "did you mean blocks.1.hook_mlp_out?"},
        {"blocks.2.hook_resid_pre", "the model has 2 layers, 0 to 1"},
        {"blocks.12.attn.*", "the model has 2 layers, 0 to 1"},
        {"blocks.99999999999999999999.hook_resid_pre", "the model has 2 layers, 0 to 1"},
        {"blocks.0.ln1.hook_normalized", ".pre"},
        {"*.hook_normalized", ".post"},
        {"ln_final.hook_normalized", "two things"},
        {"*.hook_resul*", "did you mean blocks.0.attn.hook_result?"},
        {"", "names look like"},
        {"blocks.", "names look like"},
        {"zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", "names look like"}};
    static const char *const good[] = {"blocks.0.attn.hook_result", "*hook_attn_in",
                                       "blocks.*.hook_q_input", "*mlp_in"};
    attn_ctx ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, plain, 0, 0);
    const int32_t tokens[] = {1, 2, 3};
    sight *s = new_sight();
    char endless[3000];
    memset(endless, 'a', sizeof endless - 1);
    endless[sizeof endless - 1] = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        FAILS(NAME, cases[i].says,
              attn_hook(&ctx, NULL, session, cases[i].wrong, do_nothing, NULL));
    FAILS(NAME, "names look like", attn_hook(&ctx, NULL, session, endless, do_nothing, NULL));
    for (size_t i = 0; i < 4; i++) {
        OK(&ctx, attn_hook(&ctx, NULL, session, good[i], note, s));
        OK(&ctx, attn_feed(&ctx, session, tokens, 1));
        CHECKF(s->n == (i == 0 ? 1 : 2), "%s was called %llu times", good[i], LLU(s->n));
        s->n = 0;
        attn_unhook_all(session);
    }
    /* Patterns that do not name them leave them alone. */
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.*", note, s));
    OK(&ctx, attn_hook(&ctx, NULL, session, "*hook_res*", note, s));
    OK(&ctx, attn_feed(&ctx, session, tokens, 3));
    for (size_t i = 0; i < s->n; i++)
        CHECK(!strstr(s->all[i].name, "result") && !strstr(s->all[i].name, "_in"));
    CHECK(s->n == 19 + 6);
}

/* ---- the cache ---- */

/* A callback may not change the session that is being fed, or use its workspace. */
static int meddle(const attn_activation *a, void *user)
{
    attn_ctx ctx = alone();
    const int32_t token = 1;
    attn_session *const *const others = (attn_session *const *)user, *const other = others[0];
    FAILS(ARGUMENT, "in use", attn_feed(&ctx, others[1], &token, 1));
    FAILS(ARGUMENT, "being fed", attn_session_truncate(&ctx, a->session, 0));
    FAILS(ARGUMENT, "being fed", attn_feed(&ctx, a->session, &token, 1));
    FAILS(ARGUMENT, "being fed", attn_hook(&ctx, NULL, a->session, "*", do_nothing, NULL));
    FAILS(ARGUMENT, "being fed", attn_session_copy(&ctx, a->session, other));
    FAILS(ARGUMENT, "being fed", attn_generate(&ctx, NULL, a->session, "", NULL));
    OK(&ctx, attn_feed(&ctx, other, &token, 1)); /* it has a workspace of its own */
    return 0;
}

TEST(meddling)
{
    enum { LENGTH = 9 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 2);
    float *const want = hooked(odd, tokens, LENGTH, LENGTH, NULL, NULL, NULL, NULL, NULL);
    attn_session *session = session_on(&ctx, odd, 0, 0), *others[2], *pair[2];
    others[0] = session_on(&ctx, odd, 0, 0);
    others[1] = session_on(&ctx, odd, 0, 0);
    pair[0] = session;
    pair[1] = others[1];
    share_workspace(&ctx, pair, 2, 0);
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.1.*", meddle, others));
    same_logits(feed_all(&ctx, session, tokens, LENGTH, LENGTH), want, LENGTH, odd, "meddling");
    CHECK(attn_session_length(others[0]) == 19 && attn_session_length(others[1]) == 0);
    attn_session_free(session);
    attn_session_free(others[0]);
    attn_session_free(others[1]);
}

/* Hooks leave nothing behind: not when memory runs out, not when they go. */
TEST(memory)
{
    meter m;
    attn_ctx ctx = metered(&m);
    attn_session *session;
    const int32_t tokens[] = {5, 6, 7};
    long n;
    ctx.n_threads = 1;
    if ((session = session_on(&ctx, odd, 0, 0)) == NULL)
        return;
    long live = m.live;
    for (size_t i = 0; i < OPT_IN; i++) {
        attn_status status = ATTN_E_MEMORY;
        for (n = 0; n < 20 && status != ATTN_OK; n++) {
            m.fail_at = m.asked + n;
            status = attn_hook(&ctx, NULL, session, opt_in[i], do_nothing, NULL);
            m.fail_at = -1;
            CHECK(status == ATTN_OK || (status == ATTN_E_MEMORY && m.live == live));
            OK(&ctx, attn_feed(&ctx, session, tokens, 1));
        }
        CHECK(status == ATTN_OK && m.live > live);
        n = m.asked;
        OK(&ctx, attn_feed(&ctx, session, tokens, 3));
        EQUAL(m.asked, n); /* feeding allocates nothing */
        attn_unhook_all(session);
        EQUAL(m.live, live);
        OK(&ctx, attn_session_truncate(&ctx, session, 0));
    }
    OK(&ctx, attn_hook(&ctx, NULL, session, "*.hook_result", do_nothing, NULL));
    attn_session_free(session);
    CHECK(m.live == 0 && m.wrong == 0);
}

/* ---- scores of hidden keys ---- */

static int fill(const attn_activation *a, void *user)
{
    for (size_t i = 0; i < count_of(a->value); i++)
        *(float *)element(a->value, i) = *(const float *)user;
    return 0;
}

static int see_scores(const attn_activation *a, void *user)
{
    ++*(size_t *)user;
    for (size_t head = 0; head < a->value.shape[0]; head++)
        for (size_t row = 0; row < a->value.shape[1]; row++)
            for (size_t key = 0; key < a->value.shape[2]; key++) {
                const float score = *entry(a->value, head, row, key);
                CHECKF(key > a->first + row ? score == -INFINITY : fabsf(score + 2e4f) < 1,
                       "the score of query %llu and key %llu is %g", LLU(a->first + row), LLU(key),
                       (double)score);
            }
    return 0;
}

/* With all visible scores at -20000, a row of z is the mean of the visible values, but only if hidden
 * scores are -inf: a score of -10000 would take all the weight. */
TEST(hidden_keys_have_no_weight)
{
    enum { LENGTH = 70 }; /* several blocks of queries */
    const attn_config *const c = attn_model_config(longer);
    const float one = 1, low = -2e4f / sqrtf((float)c->d_head);
    const int32_t *const tokens = random_tokens(longer, LENGTH, 9);
    for (size_t watched = 0; watched < 2; watched++) {
        attn_ctx ctx = alone();
        SCOPED_SESSION session = session_on(&ctx, longer, 0, 0);
        sight *const s = new_sight();
        size_t n_calls = 0;
        OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.attn.hook_q", fill, (void *)&one));
        OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.attn.hook_k", fill, (void *)&low));
        OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.attn.hook_v", note, s));
        OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.attn.hook_z", note, s));
        if (watched)
            OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.attn.hook_attn_scores", see_scores,
                               &n_calls));
        OK(&ctx, attn_feed(&ctx, session, tokens, LENGTH));
        CHECK(n_calls == watched && s->n == 2);
        for (size_t head = 0; head < c->n_head && s->n == 2; head++)
            for (size_t k = 0; k < c->d_head; k++) {
                double sum = 0;
                for (size_t t = 0; t < LENGTH; t++) {
                    const double z = (double)*entry(s->all[1].value, t, head, k);
                    sum += (double)*entry(s->all[0].value, t, head, k);
                    CHECKF(fabs(z - sum / (double)(t + 1)) < 1e-5,
                           "z[%llu, %llu, %llu] is %g, the mean of the values %g", LLU(t),
                           LLU(head), LLU(k), z, sum / (double)(t + 1));
                }
            }
    }
}

/* ---- later keys stay hidden, whatever is written at them ---- */

/* Writes at every key: at those that the query sees, one number for each head, position and key; at
 * later ones, rubbish. */
typedef struct scribble {
    int later;   /* 0: leaves the later keys; else writes this kind of rubbish there */
    int visible; /* 0: leaves the others; 1: adds to them; 2: makes them 0 */
} scribble;

static int scribble_on(const attn_activation *a, void *user)
{
    static const float rubbish[] = {0, 0, 1e30f, -1e30f, INFINITY, NAN};
    const scribble *s = (const scribble *)user;
    for (size_t head = 0; head < a->value.shape[0]; head++)
        for (size_t t = 0; t < a->value.shape[1]; t++)
            for (size_t key = 0; key < a->value.shape[2]; key++) {
                float *x = entry(a->value, head, t, key);
                if (key <= a->first + t && s->visible == 1)
                    *x += (float)((head * 7 + (a->first + t) * 5 + key * 3) % 11) / 8;
                else if (key <= a->first + t && s->visible == 2)
                    *x = 0;
                else if (key > a->first + t && s->later)
                    *x = rubbish[s->later];
            }
    return 0;
}

/* The logits of a text that is fed `step` tokens at a time, while somebody scribbles; with a mate: in
 * a batch beside another text. */
static float *scribbled(const attn_model *model, const int32_t *tokens, size_t n, size_t step,
                        size_t n_batch, const char *name, scribble *s, int with_mate)
{
    attn_ctx ctx = alone();
    attn_session *sessions[2];
    float *logits;
    ctx.n_threads = 1; /* hundreds of these */
    sessions[0] = session_on(&ctx, model, 0, n_batch);
    sessions[1] = NULL;
    OK(&ctx, attn_hook(&ctx, NULL, sessions[0], name, scribble_on, s));
    if (with_mate) {
        attn_feed_item items[2];
        logits = (float *)pool_new(n * vocab_of(model) * sizeof *logits);
        sessions[1] = session_on(&ctx, model, 0, n_batch);
        share_workspace(&ctx, sessions, 2, n_batch);
        items[1] = item_of(sessions[0], tokens, n, logits); /* its rows come after the mate's */
        items[0] = item_of(sessions[1], tokens + n / 2, n - n / 2, NULL);
        OK(&ctx, attn_feed_batch(&ctx, items, 2));
    } else {
        logits = feed_all(&ctx, sessions[0], tokens, n, step);
    }
    attn_session_free(sessions[0]);
    attn_session_free(sessions[1]);
    return logits;
}

/* Token by token there are no later keys, so that is the right value for every cut. */
TEST(later_keys_stay_hidden)
{
    enum { LENGTH = 37 };
    static const char *const points[] = {"*.hook_attn_scores", "*.hook_pattern",
                                         "blocks.1.attn.hook_attn_scores"};
    static const size_t n_batch[] = {256, 32, 4, 3};
    const attn_model *const models[] = {odd, tiny};
    const size_t n_models = TEST_SANITIZED ? 1 : 2;
    for (size_t m = 0; m < n_models; m++)
        for (size_t i = 0; i < 3; i++)
            for (int visible = (int)m; visible < 3; visible += 1 + 2 * (int)m) {
                const int32_t *const tokens = random_tokens(models[m], LENGTH, i);
                scribble s = {0, visible};
                const float *const want =
                    scribbled(models[m], tokens, LENGTH, 1, 0, points[i], &s, 0);
                for (int later = 0; later < 6; later += 1 + 2 * (int)m) {
                    s.later = later;
                    for (size_t b = 0; b < 4; b++)
                        same_logits(scribbled(models[m], tokens, LENGTH, LENGTH, n_batch[b],
                                              points[i], &s, 0),
                                    want, LENGTH, models[m], points[i]);
                    same_logits(
                        scribbled(models[m], tokens, LENGTH, RANDOM_CUTS, 7, points[i], &s, 0),
                        want, LENGTH, models[m], "random cuts");
                    same_logits(scribbled(models[m], tokens, LENGTH, LENGTH, 16, points[i], &s, 1),
                                want, LENGTH, models[m], "in a batch");
                }
                pool_clear();
            }
}

/* What is generated token by token, from the cache, is what the same text has when it is fed whole;
 * a batch writes it too. */
TEST(generating_beside_written_keys)
{
    enum { MADE = 12 };
    static const char *const points[] = {"*.hook_attn_scores", "*.hook_pattern"};
    static const int32_t start[] = {506, 511, 258, 433};
    for (size_t i = 0; i < 2; i++) {
        attn_ctx ctx = alone();
        scribble s = {2, 1};
        SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
        attn_generate_desc d = greedily(MADE);
        int32_t ids[4 + MADE];
        attn_generation made = {.tokens = ids + 4, .room = MADE};
        memcpy(ids, start, sizeof start);
        d.prompt_tokens = start;
        d.n_prompt_tokens = 4;
        d.ignore_eos = 1;
        OK(&ctx, attn_hook(&ctx, NULL, session, points[i], scribble_on, &s));
        OK(&ctx, attn_generate(&ctx, &made, session, NULL, &d));
        EQUAL(made.n_tokens, MADE);
        float *logits = scribbled(tiny, ids, 4 + MADE, 4 + MADE, 0, points[i], &s, 0);
        for (size_t t = 4; t < 4 + MADE; t++) {
            const float *row = logits + (t - 1) * vocab_of(tiny);
            size_t best = 0;
            for (size_t id = 1; id < vocab_of(tiny); id++)
                best = row[id] > row[best] ? id : best;
            EQUAL(ids[t], best);
        }
        pool_clear();
    }
}

/* A head whose scores all become 0 attends evenly to what it sees: z is the mean of these values. */
TEST(scores_of_zero_are_an_even_pattern)
{
    enum { LENGTH = 8 };
    static const int32_t tokens[] = {506, 511, 258, 433, 265, 338, 414, 286};
    static const size_t n_batch[] = {256, 4, 1};
    const attn_config *c = attn_model_config(tiny);
    for (size_t b = 0; b < 3; b++) {
        attn_ctx ctx = alone();
        SCOPED_SESSION session = session_on(&ctx, tiny, 0, n_batch[b]);
        static const char *const seen_names[] = {"blocks.1.attn.hook_v", "blocks.1.attn.hook_z",
                                                 "blocks.1.attn.hook_pattern"};
        attn_edit e = edit_of("blocks.1.attn.hook_attn_scores", ATTN_EDIT_ZERO);
        attn_tensor v = {0}, z = {0}, pattern = {0};
        OK(&ctx, attn_hook_edit(&ctx, NULL, session, &e));
        SCOPED_RECORD record = record_on(&ctx, session, seen_names, 3, 0, LENGTH);
        OK(&ctx, attn_feed(&ctx, session, tokens, LENGTH));
        OK(&ctx, attn_record_get(&ctx, &v, record, seen_names[0]));
        OK(&ctx, attn_record_get(&ctx, &z, record, seen_names[1]));
        OK(&ctx, attn_record_get(&ctx, &pattern, record, seen_names[2]));
        for (size_t t = 0; t < LENGTH; t++)
            for (size_t head = 0; head < c->n_head; head++) {
                for (size_t key = 0; key < LENGTH; key++)
                    CHECK(fabsf(*entry(pattern, head, t, key) -
                                (key <= t ? 1.0f / (float)(t + 1) : 0)) < 1e-7f);
                for (size_t k = 0; k < c->d_head; k++) {
                    double sum = 0;
                    for (size_t key = 0; key <= t; key++)
                        sum += (double)*entry(v, key, head, k);
                    CHECK(fabs((double)*entry(z, t, head, k) - sum / (double)(t + 1)) < 1e-6);
                }
            }
        pool_clear();
    }
}

/* ---- removing ---- */

typedef struct remover {
    attn_ctx ctx;
    attn_hook_id id; /* to remove at its first call */
    attn_record *record;
    attn_session *session;
    size_t n_calls;
} remover;

static int remove_one(const attn_activation *a, void *user)
{
    remover *r = (remover *)user;
    if (++r->n_calls == 1 && r->id)
        OK(&r->ctx, attn_unhook(&r->ctx, a->session, r->id));
    if (r->n_calls == 1 && r->record)
        attn_record_free(r->record);
    if (r->n_calls == 1)
        attn_session_free(r->session);
    return 0;
}

/* Hooks go in any order; a callback removes its own, or one that comes after it. */
TEST(removing_hooks)
{
    enum { LENGTH = 6 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 5);
    SCOPED_SESSION session = session_on(&ctx, odd, 0, 0);
    remover r[3];
    attn_hook_id id[3];
    memset(r, 0, sizeof r);
    for (size_t i = 0; i < 3; i++)
        OK(&ctx, attn_hook(&ctx, &id[i], session, "*.hook_attn_scores", remove_one, &r[i]));
    CHECK(id[0] && id[1] && id[2] && id[0] != id[1] && id[1] != id[2]);
    r[0].id = id[0]; /* its own */
    r[1].id = id[2]; /* before it was ever called */
    OK(&ctx, attn_feed(&ctx, session, tokens, LENGTH));
    CHECKF(r[0].n_calls == 1 && r[2].n_calls == 0 && r[1].n_calls > 1, "%llu %llu %llu calls",
           LLU(r[0].n_calls), LLU(r[1].n_calls), LLU(r[2].n_calls));
    FAILS(ARGUMENT, "removed before", attn_unhook(&ctx, session, id[0]));
    OK(&ctx, attn_unhook(&ctx, session, id[1]));
    FAILS(ARGUMENT, "another session", attn_unhook(&ctx, session, 99));
    FAILS(ARGUMENT, "0 is not the id", attn_unhook(&ctx, session, 0));
    FAILS(ARGUMENT, "no session", attn_unhook(&ctx, NULL, 1));
}

/* A callback frees a record, and the session that is being fed: the feed stops with a sentence, and
 * nothing is used after it is freed (the sanitizers look). */
TEST(freeing_from_a_callback)
{
    enum { LENGTH = 6 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 6);
    attn_session *session = session_on(&ctx, odd, 0, 0);
    remover r;
    memset(&r, 0, sizeof r);
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.1.hook_resid_pre", remove_one, &r));
    r.record = record_on(&ctx, session, NULL, 0, 0, LENGTH);
    OK(&ctx, attn_feed(&ctx, session, tokens, LENGTH));
    memset(&r, 0, sizeof r);
    r.session = session;
    STOPS(&ctx, attn_feed(&ctx, session, tokens, LENGTH));
}

/* ---- patching ---- */

/* A hook on one session of a batch that would change what another is being fed. */
static int reach_over(const attn_activation *a, void *user)
{
    attn_session *const other = (attn_session *)user;
    const attn_config *const c = attn_model_config(attn_session_model(other));
    attn_ctx ctx = alone();
    FAILS(ARGUMENT, "the session holds 0",
          attn_session_set_cache(&ctx, other, ATTN_CACHE_VALUES, a->layer, 0,
                                 random_tensor(3, 2, (int)c->n_head, (int)c->d_head)));
    return 0;
}

TEST(reaching_over)
{
    attn_session *pair[2];
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, 8, 1);
    attn_session *session = session_on(&ctx, odd, 0, 0), *other = session_on(&ctx, odd, 0, 0);
    attn_feed_item items[2];
    OK(&ctx, attn_hook(&ctx, NULL, session, "*.hook_attn_scores", reach_over, other));
    OK(&ctx, attn_hook(&ctx, NULL, session, "*.hook_z", reach_over, other));
    items[0] = item_of(other, tokens, 8, NULL);
    items[1] = item_of(session, tokens, 8, NULL);
    pair[0] = session;
    pair[1] = other;
    share_workspace(&ctx, pair, 2, 0);
    OK(&ctx, attn_feed_batch(&ctx, items, 2));
    same_logits(attn_session_logits(other), attn_session_logits(session), 1, odd,
                "of a session left alone");
    attn_session_free(session);
    attn_session_free(other);
}

/* ---- keys and values kept as f16 ---- */

typedef struct stop_count {
    int calls, later, at; /* at: the call that stops */
} stop_count;

static int stop_at_call(const attn_activation *a, void *user)
{
    stop_count *s = (stop_count *)user;
    (void)a;
    return s->calls++ == s->at;
}

static int come_later(const attn_activation *a, void *user)
{
    (void)a;
    ((stop_count *)user)->later++;
    return 0;
}

/* After a hook has stopped a pass no other hook is called, and whatever ran the pass says so. */
TEST(stopped_in_the_middle)
{
    SCOPED_CTX ctx = {0};
    SCOPED_SESSION session = session_on(&ctx, plain, 0, 2);
    attn_generation made = {0};
    stop_count s = {0, 0, 0};
    attn_token_stats stats[9];
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.hook_resid_mid", stop_at_call, &s));
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.hook_resid_mid", come_later, &s));
    STOPS(&ctx, attn_feed(&ctx, session, ten, 1));
    CHECK(s.calls == 1 && s.later == 0);
    s.calls = s.later = 0;
    STOPS(&ctx, attn_score(&ctx, stats, NULL, session, ten, 10));
    CHECK(s.calls == 1 && s.later == 0);
    attn_generate_desc desc = {
        .max_tokens = 6, .no_draft = 1, .prompt_tokens = ten, .n_prompt_tokens = 2};
    s.calls = 0;
    s.at = 3; /* the prompt is one pass, and then there is one for each token */
    OK(&ctx, attn_generate(&ctx, &made, session, NULL, &desc));
    EQUAL(s.calls, 4);
    CHECK(made.reason == ATTN_STOP_CALLBACK && ctx.status == ATTN_OK);
}

/* How often hooks saw an activation, which must be as its kind says. */
static size_t times_seen(const sight *s, const char *name, const attn_activation_kind *kind,
                         size_t layer)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        const attn_tensor x = s->all[i].value;
        if (strcmp(s->all[i].name, name) != 0)
            continue;
        n++;
        CHECKF(s->all[i].layer == layer, "%s in layer %zu", name, s->all[i].layer);
        CHECKF(kind->axes == ATTN_AXES_POSITIONS ? x.ndim == 2 && x.shape[0] == 3
               : kind->axes == ATTN_AXES_HEADS   ? x.ndim == 3 && x.shape[0] == 3
                                                 : x.ndim == 3 && x.shape[2] == 3,
               "%s has shape %s, its axes are %d", name, shape_text(x), (int)kind->axes);
    }
    return n;
}

/* Hooks of every pattern see exactly the activations that attn_activation_matches names. */
TEST(kinds)
{
    static const char *const patterns[] = {"*",
                                           "blocks.*",
                                           "*.hook_result",
                                           "*hook_mlp_in",
                                           "*.hook_*_input",
                                           "blocks.1.hook_attn_in",
                                           "*resid_m*d",
                                           "ln_final.*",
                                           "blocks.0.attn.hook_pattern",
                                           "*.hook_resid_*",
                                           "hook_embed"};
    const int32_t tokens[] = {1, 2, 3};
    attn_ctx ctx = alone();
    const attn_activation_kind *kind;
    size_t k, n_known = 0;
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        SCOPED_SESSION session = session_on(&ctx, plain, 0, 0);
        sight *s = new_sight();
        size_t n_matching = 0;
        OK(&ctx, attn_hook(&ctx, NULL, session, patterns[i], note, s));
        OK(&ctx, attn_feed(&ctx, session, tokens, 3));
        for (k = 0; (kind = attn_activation_kind_at(k)) != NULL; k++)
            for (size_t layer = 0; layer < (kind->in_block ? 2 : 1); layer++) {
                const char *const block = test_text("blocks.%zu.", layer);
                const char *const name = test_text("%s%s", kind->in_block ? block : "", kind->name);
                int matches = attn_activation_matches(patterns[i], name);
                CHECK(attn_activation_kind_of(name) == kind);
                CHECK(attn_activation_kind_of(kind->name) == kind);
                CHECKF(times_seen(s, name, kind, kind->in_block ? layer : ATTN_NO_LAYER) ==
                           (size_t)matches,
                       "%s: seen by %s", name, patterns[i]);
                n_matching += (size_t)matches;
            }
        CHECKF(n_matching == s->n && n_matching > 0, "%s: %zu of %zu", patterns[i], n_matching,
               s->n);
        n_known = k;
    }
    CHECK(n_known == 30);
    CHECK(!attn_activation_kind_of("hook_resid") &&
          !attn_activation_kind_of("blocks.1.hook_resid"));
    CHECK(!attn_activation_kind_of("blocks.hook_embed") && !attn_activation_kind_of("blocks.1") &&
          !attn_activation_kind_of("blocks.0.hook_embed"));
    CHECK(!attn_activation_matches("*", "blocks.1.hook_resid"));
}

TEST(names_of_any_length)
{
    SCOPED_CTX ctx = {0};
    SCOPED_SESSION session = session_on(&ctx, plain, 0, 0);
    char name[100];
    memset(name, 'x', sizeof name);
    name[99] = 0;
    memcpy(name, "blocks.0.", 9);
    REFUSED(NAME, "", attn_model_tensor(&ctx, &not_made, plain, name));
    FAILS(NAME, "", attn_hook(&ctx, NULL, session, name, stop_at_call, NULL));
    REFUSED(NAME, "", attn_model_tensor(&ctx, &not_made, plain, "blocks.0.attn.WxQ"));
    REFUSED(NAME, "", attn_model_tensor(&ctx, &not_made, plain, "W_Q"));
}
