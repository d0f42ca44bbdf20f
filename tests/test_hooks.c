/* The glass box: activations that are made on request, names, the cache, records, parts of a pass,
 * edits and patching. Three random models whose activations numpy worked out in float64
 * (golden/make_golden.py), one of them with heads of 5 dimensions, which lie across panels, and the
 * included model, whose weights are halfs. Most of it is compared bit by bit with another way. */
#include "tools/common/files.h"
#include "models.h"
#include "refused.h"

static const attn_tensor no_scale; /* a lens takes the stream's own */

static attn_model *plain, *odd, *narrow, *longer, *tiny, *bytes8;

static int set_up(void)
{
    attn_ctx ctx = alone();
    plain = converted("tests/golden/plain", "hooks-plain.attn", "--dtype f32 --no-tokenizer");
    odd = converted("tests/golden/odd", "hooks-odd.attn", "--dtype f32 --no-tokenizer");
    narrow = converted("tests/golden/narrow", "hooks-narrow.attn", "--dtype f32 --no-tokenizer");
    longer = converted("tests/golden/long", "hooks-long.attn", "--dtype f32 --no-tokenizer");
    OK(&ctx, attn_model_open(&ctx, &tiny, TEST_BUILD "/tiny-stories.attn", NULL));
    bytes8 = converted("examples/tiny-stories", "hooks-q8.attn", "--dtype q8 --no-tokenizer");
    return plain && odd && narrow && longer && tiny && bytes8;
}

static void tear_down(void)
{
    attn_model_close(plain);
    attn_model_close(odd);
    attn_model_close(narrow);
    attn_model_close(longer);
    attn_model_close(tiny);
    attn_model_close(bytes8);
}

SUITE_WITH("hooks", set_up, tear_down);

/* ---- tools ---- */

/* Takes the value out, puts rubbish in its place, and brings it back. */
static int rewrite(const attn_activation *a, void *user)
{
    const attn_tensor copy = laid_out(a->value, ATTN_F32, LAYOUT_DENSE);
    size_t i;
    ++*(size_t *)user;
    for (i = 0; i < count_of(copy); i++)
        *(volatile float *)element(a->value, i) = NAN;
    for (i = 0; i < count_of(copy); i++)
        *(volatile float *)element(a->value, i) = ((const float *)copy.data)[i];
    return 0;
}

/* Puts the rows of a whole value, [T, ..], where they belong. */
static int put_rows(const attn_activation *a, void *user)
{
    const attn_tensor *rows = (const attn_tensor *)user;
    const size_t width = count_of(a->value) / a->value.shape[0];
    size_t i, j;
    for (i = 0; i < a->value.shape[0]; i++)
        for (j = 0; j < width; j++)
            *(float *)element(a->value, i * width + j) =
                *(const float *)element(*rows, (a->first + i) * width + j);
    return 0;
}

/* Puts `value` at one position and one head, dimension by dimension. */
typedef struct spot {
    size_t position, head;
    const float *value; /* NULL: zeros */
} spot;
enum { EVERYWHERE = 100000 };
static int put_spot(const attn_activation *a, void *user)
{
    const spot *s = (const spot *)user;
    size_t i, k;
    for (i = 0; i < a->value.shape[0]; i++)
        for (k = 0; k < a->value.shape[2]; k++)
            if (a->first + i == s->position || s->position == EVERYWHERE)
                *entry(a->value, i, s->head, k) = s->value ? s->value[k] : 0;
    return 0;
}

/* ---- what is made on request ---- */

static const char *const opt_in[] = {"*.hook_result", "*_attn_in",      "*_q_input",
                                     "*hook_k_input", "*.hook_v_input", "*.hook_mlp_in"};
enum { OPT_IN = 6 };

static void check_results(const attn_model *model, const char *path, size_t step)
{
    attn_ctx ctx = alone();
    size_t size, n, layer, t, head, j, at;
    unsigned char *const file = test_read(path, &size);
    const attn_config *const c = attn_model_config(model);
    int32_t *tokens;
    if (!CHECKF(file, "%s cannot be read", path))
        return;
    tokens = stored_tokens(file, &n);
    for (layer = 0; layer < c->n_layer; layer++) {
        sight *const s = new_sight();
        attn_tensor whole = random_tensor(3, (int)n, (int)c->n_head, (int)c->d_model), bias = {0};
        char name[64], block[32];
        snprintf(block, sizeof block, "blocks.%d.*", (int)layer);
        snprintf(name, sizeof name, "blocks.%d.attn.hook_result", (int)layer);
        hooked(model, tokens, n, step, name, note, s, block, s);
        for (at = 0, j = 0; j < s->n; j++)
            if (strcmp(s->all[j].name, name) == 0) {
                CHECK(s->all[j].first == at);
                memcpy(entry(whole, at, 0, 0), s->all[j].value.data,
                       count_of(s->all[j].value) * sizeof(float));
                at += s->all[j].value.shape[0];
            }
        CHECK(at == n);
        close_to(whole, stored_tensor(file, name), 2e-5, name);

        /* The heads and b_O add up to attn_out, here in double. */
        snprintf(name, sizeof name, "blocks.%d.attn.b_O", (int)layer);
        OK(&ctx, attn_model_tensor(&ctx, &bias, model, name));
        snprintf(name, sizeof name, "blocks.%d.hook_attn_out", (int)layer);
        for (at = 0; at < s->n; at++)
            for (t = 0; strcmp(s->all[at].name, name) == 0 && t < s->all[at].value.shape[0]; t++)
                for (j = 0; j < c->d_model; j++) {
                    double sum = (double)*entry(bias, j, 0, 0);
                    for (head = 0; head < c->n_head; head++)
                        sum += (double)*entry(whole, s->all[at].first + t, head, j);
                    CHECKF(fabs(sum - (double)*entry(s->all[at].value, t, j, 0)) < 1e-5,
                           "%s [%llu, %llu]", name, LLU(t), LLU(j));
                }
    }
    attn_ctx_free(&ctx);
    free(file);
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
    size_t m, i, step, n_calls;
    int n_threads;
    for (m = 0; m < 5; m++)
        for (n_threads = 1; n_threads <= 2; n_threads++) {
            const int32_t *const tokens = random_tokens(models[m], LENGTH, m);
            const float *const want =
                hooked(models[m], tokens, LENGTH, LENGTH, NULL, NULL, NULL, NULL, NULL);
            attn_session *session, *others[2], *trio[3];
            attn_feed_item items[3];
            ctx.n_threads = n_threads;
            session = session_on(&ctx, models[m], 0, 10);
            for (i = 0; i < 2; i++) {
                others[i] = session_on(&ctx, models[m], 0, 0);
                OK(&ctx, attn_feed(&ctx, others[i], tokens, i * 3 + 1));
            }
            for (step = 1; step <= LENGTH; step += step > 1 ? 14 : 11) {
                n_calls = 0;
                for (i = 0; i < OPT_IN; i++)
                    OK(&ctx, attn_hook(&ctx, NULL, session, opt_in[i], i % 2 ? do_nothing : rewrite,
                                       &n_calls));
                OK(&ctx, attn_hook(&ctx, NULL, session, "*", do_nothing, NULL));
                same_logits(feed_all(&ctx, session, tokens, LENGTH, step), want, LENGTH, models[m],
                            "hooks that look");
                attn_unhook_all(session);
                OK(&ctx, attn_truncate(&ctx, session, 0));
                for (i = 0; i < OPT_IN; i++)
                    OK(&ctx, attn_hook(&ctx, NULL, session, opt_in[i], i % 2 ? rewrite : do_nothing,
                                       &n_calls));
                same_logits(feed_all(&ctx, session, tokens, LENGTH, step), want, LENGTH, models[m],
                            "hooks that look");
                CHECK(n_calls >= OPT_IN * attn_model_config(models[m])->n_layer);
                OK(&ctx, attn_truncate(&ctx, session, 0));
                attn_unhook_all(session);
            }
            for (i = 0; i < OPT_IN; i++) {
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
            for (i = 0; i < 3; i++)
                same_logits(attn_logits(items[i].session),
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
    attn_ctx ctx = alone();
    sight *const usual = new_sight();
    double mean = 0, variance = 0;
    spot s = {AT, 0, NULL};
    size_t i, j, k, t, h, part;
    s.head = head;
    s.value = (const float *)row.data;
    OK(&ctx, attn_model_tensor(&ctx, &w, model, "blocks.1.attn.W_QKV"));
    OK(&ctx, attn_model_tensor(&ctx, &b, model, "blocks.1.attn.b_QKV"));
    OK(&ctx, attn_model_tensor(&ctx, &gain, model, "blocks.1.ln1.w"));
    OK(&ctx, attn_model_tensor(&ctx, &bias, model, "blocks.1.ln1.b"));
    for (k = 0; k < c->d_model; k++)
        mean += value_of(row, k) / c->d_model;
    for (k = 0; k < c->d_model; k++)
        variance += (value_of(row, k) - mean) * (value_of(row, k) - mean) / c->d_model;
    hooked(model, tokens, LENGTH, LENGTH, NULL, NULL, NULL, "blocks.1.*", usual);
    for (i = 0; i < 4; i++) {
        sight *const r = new_sight();
        hooked(model, tokens, LENGTH, LENGTH, inputs[i], put_spot, &s, "blocks.1.*", r);
        same_bits(latest(r, "blocks.1.hook_resid_pre"), latest(usual, "blocks.1.hook_resid_pre"),
                  "the stream");
        for (part = 0; part < 3; part++) {
            const attn_tensor got = latest(r, outputs[part]), was = latest(usual, outputs[part]);
            for (t = 0; t < LENGTH; t++)
                for (h = 0; h < c->n_head; h++)
                    for (j = 0; j < c->d_head; j++) {
                        const size_t column = part * c->d_model + h * c->d_head + j;
                        double want = value_of(b, column);
                        if (t != AT || h != s.head || (i < 3 && i != part)) {
                            CHECKF(!differ(entry(got, t, h, j), entry(was, t, h, j), 1),
                                   "%s changed %s [%llu, %llu]", inputs[i], outputs[part], LLU(t),
                                   LLU(h));
                            continue;
                        }
                        for (k = 0; k < c->d_model; k++)
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
    attn_ctx_free(&ctx);
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
    size_t i, j, k;
    for (i = 0; i < a->value.shape[0]; i++)
        for (j = 0; j < a->value.shape[1]; j++)
            for (k = 0; k < a->value.shape[2]; k++)
                *entry(a->value, i, j, k) = *entry(*rows, a->first + i, k, 0);
    return 0;
}

TEST(whole_inputs)
{
    enum { LENGTH = 20 };
    static const char *const parts[] = {"blocks.1.hook_attn_in", "blocks.1.hook_*_input", NULL};
    const attn_model *const models[] = {odd, narrow};
    attn_ctx ctx = alone();
    size_t m, i, j, k;
    for (m = 0; m < 2; m++) {
        const attn_config *const c = attn_model_config(models[m]);
        const int32_t *const tokens = random_tokens(models[m], LENGTH, 4);
        attn_tensor rows = random_tensor(2, LENGTH, (int)c->d_model);
        sight *const want = new_sight(), *const usual = new_sight();
        hooked(models[m], tokens, LENGTH, LENGTH, NULL, NULL, NULL, "blocks.1.*", usual);
        hooked(models[m], tokens, LENGTH, LENGTH, "blocks.1.hook_resid_pre", put_rows, &rows,
               "blocks.1.*", want);
        for (i = 0; i < 2; i++) {
            attn_session *const session = session_on(&ctx, models[m], 0, 6);
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
            for (j = 0; j < r->n; j++)
                same_floats((const float *)r->all[j].value.data,
                            entry(latest(want, "blocks.1.hook_attn_out"), r->all[j].first, 0, 0), 1,
                            count_of(r->all[j].value), "attn_out of copies");
            CHECK(r->n == 4);
            attn_session_free(session);
        }

        /* The same with the MLP's input. */
        {
            sight *const r = new_sight(), *const mid = new_sight();
            attn_tensor got, stream, added;
            hooked(models[m], tokens, LENGTH, LENGTH, "blocks.1.hook_mlp_in", put_rows, &rows,
                   "blocks.1.*", r);
            hooked(models[m], tokens, LENGTH, LENGTH, "blocks.1.hook_resid_mid", put_rows, &rows,
                   "blocks.1.*", mid);
            added = latest(r, "blocks.1.hook_mlp_out");
            same_bits(added, latest(mid, "blocks.1.hook_mlp_out"), "mlp_out");
            stream = latest(r, "blocks.1.hook_resid_mid");
            same_bits(stream, latest(usual, "blocks.1.hook_resid_mid"), "the stream past the MLP");
            got = latest(r, "blocks.1.hook_resid_post");
            for (j = 0; j < LENGTH; j++)
                for (k = 0; k < c->d_model; k++)
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
    size_t m, j, t;
    for (m = 0; m < 5; m++) {
        const int32_t *const tokens = random_tokens(models[m], LENGTH, 6);
        const size_t width = attn_model_config(models[m])->d_model;
        sight *const by_z = new_sight(), *const by_result = new_sight(), *const usual = new_sight();
        spot s = {AT, HEAD, NULL};
        attn_tensor got, was;
        const float *a, *b;
        hooked(models[m], tokens, LENGTH, LENGTH, NULL, NULL, NULL, "blocks.0.*", usual);
        hooked(models[m], tokens, LENGTH, LENGTH, "blocks.0.attn.hook_z", put_spot, &s,
               "blocks.0.*", by_z);
        hooked(models[m], tokens, LENGTH, LENGTH, "blocks.0.attn.hook_result", put_spot, &s,
               "blocks.0.*", by_result);
        got = latest(by_result, "blocks.0.hook_attn_out");
        was = latest(usual, "blocks.0.hook_attn_out");
        close_to(got, latest(by_z, "blocks.0.hook_attn_out"), 2e-6, "attn_out");
        for (t = 0; t < LENGTH; t++)
            CHECKF(differ(entry(got, t, 0, 0), entry(was, t, 0, 0), width) == (t == AT),
                   "attn_out, row %llu", LLU(t));
        s.position = EVERYWHERE; /* in pieces and at once, the same */
        a = hooked(models[m], tokens, LENGTH, 5, "*.hook_result", put_spot, &s, NULL, NULL);
        b = hooked(models[m], tokens, LENGTH, 18, "*.hook_result", put_spot, &s, NULL, NULL);
        same_logits(a, b, LENGTH, models[m], "results in pieces");
        for (j = 0; j < 1; j++)
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
    } cases[] = {{"blocks.0.attn.hook_patern", "did you mean blocks.0.attn.hook_pattern?"},
                 {"blocks.1.attn.hook_scores", "did you mean blocks.1.attn.hook_attn_scores?"},
                 {"blocks.*.attn.hook_patterns", "did you mean blocks.0.attn.hook_pattern?"},
                 {"blocks.1.hook_pattern", "did you mean blocks.1.attn.hook_pattern?"},
                 {"hook_z", "did you mean blocks.0.attn.hook_z?"},
                 {"hook_residpre", "did you mean blocks.0.hook_resid_pre?"},
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
    attn_session *session = session_on(&ctx, plain, 0, 0);
    const int32_t tokens[] = {1, 2, 3};
    sight *s = new_sight();
    char endless[3000];
    size_t i;
    memset(endless, 'a', sizeof endless - 1);
    endless[sizeof endless - 1] = 0;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        FAILS(&ctx, ATTN_E_NAME, cases[i].says,
              attn_hook(&ctx, NULL, session, cases[i].wrong, do_nothing, NULL));
    FAILS(&ctx, ATTN_E_NAME, "names look like",
          attn_hook(&ctx, NULL, session, endless, do_nothing, NULL));
    for (i = 0; i < 4; i++) {
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
    for (i = 0; i < s->n; i++)
        CHECK(!strstr(s->all[i].name, "result") && !strstr(s->all[i].name, "_in"));
    CHECK(s->n == 19 + 6);
    attn_session_free(session);
    pool_clear();
}

/* ---- the cache ---- */

static int refill(const attn_activation *a, void *user)
{
    const attn_tensor *past = (const attn_tensor *)user;
    attn_ctx ctx = alone();
    OK(&ctx, attn_cache_set(&ctx, a->session, ATTN_CACHE_KEYS, 1, 2, past[0]));
    OK(&ctx, attn_cache_set(&ctx, a->session, ATTN_CACHE_VALUES, 1, 2, past[1]));
    return 0;
}

static int look_back(const attn_activation *a, void *user)
{
    attn_tensor past = {0};
    attn_ctx ctx = alone();
    ++*(size_t *)user;
    OK(&ctx, attn_cache_get(&ctx, &past, a->session, ATTN_CACHE_KEYS, 0, 0, a->first));
    CHECK(past.shape[0] == a->first);
    FAILS(&ctx, ATTN_E_ARGUMENT, "positions from",
          attn_cache_get(&ctx, &past, a->session, ATTN_CACHE_KEYS, 0, 0, a->first + 1));
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
        float *got, *want;
        spot zero = {3, 1, NULL};
        char name[64];
        memset(now, 0, sizeof now);
        for (i = 0; i < 2; i++)
            past[i] = random_tensor(3, COUNT, (int)c->n_head, (int)c->d_head);

        /* What is remembered is what hook_k and hook_v showed. */
        OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.1.attn.hook_k", note, s));
        OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.1.attn.hook_v", note, s));
        OK(&ctx, attn_feed(&ctx, session, tokens, PAST));
        attn_unhook_all(session);
        OK(&ctx, attn_cache_get(&ctx, &now[0], session, ATTN_CACHE_KEYS, 1, 0, PAST));
        OK(&ctx, attn_cache_get(&ctx, &now[1], session, ATTN_CACHE_VALUES, 1, 0, PAST));
        CHECK(s->n == 6);
        for (i = 0; i < s->n; i++)
            same_floats((const float *)s->all[i].value.data,
                        entry(now[i % 2], s->all[i].first, 0, 0), 1, count_of(s->all[i].value),
                        "remembered");

        /* Set between feeds, set in a hook of a token that is generated: the same. */
        OK(&ctx, attn_cache_set(&ctx, session, ATTN_CACHE_KEYS, 1, FIRST, past[0]));
        OK(&ctx, attn_cache_set(&ctx, session, ATTN_CACHE_VALUES, 1, FIRST, past[1]));
        attn_tensor_free(&ctx, &now[0]);
        now[0].ndim = 0;
        OK(&ctx, attn_cache_get(&ctx, &now[0], session, ATTN_CACHE_KEYS, 1, FIRST, COUNT));
        same_bits(now[0], past[0], "what was set");
        want = feed_all(&ctx, session, tokens + PAST, LENGTH - PAST, 1);
        OK(&ctx, attn_truncate(&ctx, session, 0));
        OK(&ctx, attn_feed(&ctx, session, tokens, PAST));
        OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.1.attn.hook_q", refill, past));
        OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.hook_resid_pre", look_back, &n_calls));
        got = feed_all(&ctx, session, tokens + PAST, LENGTH - PAST, 3);
        same_logits(got, want, LENGTH - PAST, models[m], "a past set in a hook");
        attn_unhook_all(session);

        /* Zeros for one head's value at one position are those that a hook puts there. In the last
         * layer, where the position's own attention to itself has no consequences for the others.
         */
        snprintf(name, sizeof name, "blocks.%d.attn.hook_v", (int)c->n_layer - 1);
        OK(&ctx, attn_truncate(&ctx, session, 0));
        OK(&ctx, attn_hook(&ctx, NULL, session, name, put_spot, &zero));
        want = feed_all(&ctx, session, tokens, LENGTH, 4);
        attn_unhook_all(session);
        OK(&ctx, attn_truncate(&ctx, session, 0));
        OK(&ctx, attn_feed(&ctx, session, tokens, 4));
        attn_tensor_free(&ctx, &now[1]);
        now[1].ndim = 0;
        OK(&ctx, attn_cache_get(&ctx, &now[1], session, ATTN_CACHE_VALUES, c->n_layer - 1, 3, 1));
        for (j = 0; j < c->d_head; j++)
            *entry(now[1], 0, 1, j) = 0;
        OK(&ctx, attn_cache_set(&ctx, session, ATTN_CACHE_VALUES, c->n_layer - 1, 3, now[1]));
        same_logits(feed_all(&ctx, session, tokens + 4, LENGTH - 4, 7),
                    want + 4 * vocab_of(models[m]), LENGTH - 4, models[m], "a value of zeros");

        FAILS(&ctx, ATTN_E_ARGUMENT, "layer",
              attn_cache_get(&ctx, &now[0], session, ATTN_CACHE_KEYS, c->n_layer, 0, 1));
        FAILS(&ctx, ATTN_E_ARGUMENT, "holds 20",
              attn_cache_set(&ctx, session, ATTN_CACHE_KEYS, 0, LENGTH - 1, past[0]));
        FAILS(&ctx, ATTN_E_ARGUMENT, "holds 20",
              attn_cache_get(&ctx, &now[0], session, ATTN_CACHE_KEYS, 0, SIZE_MAX, 2));
        FAILS(&ctx, ATTN_E_SHAPE, "heads",
              attn_cache_set(&ctx, session, ATTN_CACHE_KEYS, 0, 0, attn_transpose(past[0], 0, 1)));
        FAILS(&ctx, ATTN_E_ARGUMENT, "no session",
              attn_cache_set(&ctx, NULL, ATTN_CACHE_KEYS, 0, 0, past[0]));
        attn_session_free(session);
        attn_ctx_free(&ctx);
        pool_clear();
    }
    CHECK(n_calls > 12);
}

/* A callback may not change the session that is being fed, or use its workspace. */
static int meddle(const attn_activation *a, void *user)
{
    attn_ctx ctx = alone();
    const int32_t token = 1;
    attn_session *const *const others = (attn_session *const *)user, *const other = others[0];
    FAILS(&ctx, ATTN_E_ARGUMENT, "in use", attn_feed(&ctx, others[1], &token, 1));
    FAILS(&ctx, ATTN_E_ARGUMENT, "being fed", attn_truncate(&ctx, a->session, 0));
    FAILS(&ctx, ATTN_E_ARGUMENT, "being fed", attn_feed(&ctx, a->session, &token, 1));
    FAILS(&ctx, ATTN_E_ARGUMENT, "being fed",
          attn_hook(&ctx, NULL, a->session, "*", do_nothing, NULL));
    FAILS(&ctx, ATTN_E_ARGUMENT, "being fed", attn_session_copy(&ctx, a->session, other));
    FAILS(&ctx, ATTN_E_ARGUMENT, "being fed",
          attn_generate(&ctx, a->session, "", NULL, NULL, NULL));
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
    pool_clear();
}

/* Hooks leave nothing behind: not when memory runs out, not when they go. */
TEST(memory)
{
    meter m;
    attn_ctx ctx = metered(&m);
    attn_session *session;
    const int32_t tokens[] = {5, 6, 7};
    size_t i;
    long live, n;
    ctx.n_threads = 1;
    if ((session = session_on(&ctx, odd, 0, 0)) == NULL)
        return;
    live = m.live;
    for (i = 0; i < OPT_IN; i++) {
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
        CHECK(m.asked == n); /* feeding allocates nothing */
        attn_unhook_all(session);
        CHECK(m.live == live);
        OK(&ctx, attn_truncate(&ctx, session, 0));
    }
    OK(&ctx, attn_hook(&ctx, NULL, session, "*.hook_result", do_nothing, NULL));
    attn_session_free(session);
    CHECK(m.live == 0 && m.wrong == 0);
}

/* ---- records ---- */

/* A record of `names` (n 0: all), with memory from the pool of exactly the size that was asked. */
static attn_record *record_on(attn_ctx *ctx, attn_session *session, const char *const *record_names,
                              size_t n, size_t first, size_t room)
{
    attn_record *record = NULL;
    attn_record_desc desc;
    size_t bytes = 0;
    memset(&desc, 0, sizeof desc);
    desc.names = record_names;
    desc.n_names = n;
    desc.first = first;
    desc.n_positions = room;
    OK(ctx, attn_record_size(ctx, &bytes, attn_session_model(session), &desc));
    CHECK(bytes > 0);
    OK(ctx, attn_record_new(ctx, &record, session, &desc, pool_new(bytes), bytes));
    return record;
}

static attn_tensor view(const attn_record *record, const char *name)
{
    attn_tensor value;
    attn_ctx ctx = alone();
    memset(&value, 0, sizeof value);
    OK(&ctx, attn_record_get(&ctx, &value, record, name));
    return value;
}

static const char *const all_names[] = {"*", "*.hook_result", "*.hook_mlp_in"};

TEST(recorded_golden)
{
    static const char *const paths[] = {"tests/golden/plain/reference.safetensors",
                                        "tests/golden/odd/reference.safetensors",
                                        "tests/golden/narrow/reference.safetensors"};
    const attn_model *const models[] = {plain, odd, narrow};
    attn_ctx ctx = alone();
    size_t m, i, j, k, n, size, n_compared;
    for (m = 0; m < 3; m++) {
        unsigned char *const file = test_read(paths[m], &size);
        attn_session *session = session_on(&ctx, models[m], 0, 9);
        const int32_t *tokens;
        attn_record *record;
        if (!CHECK(file))
            return;
        tokens = stored_tokens(file, &n);
        record = record_on(&ctx, session, all_names, 2, 0, n);
        if (!record)
            return;
        OK(&ctx, attn_feed(&ctx, session, tokens, n));
        for (n_compared = i = 0; i < attn_record_count(record); i++) {
            const char *name = attn_record_name(record, i);
            const attn_tensor got = view(record, name), want = stored_tensor(file, name);
            n_compared += (size_t)CHECKF(want.ndim > 0, "%s is not in the reference", name);
            close_to(got, want, 2e-5, name);
            if (strstr(name, "hook_pattern"))
                for (j = 0; j < got.shape[0] * got.shape[1]; j++) {
                    double sum = 0;
                    for (k = 0; k < got.shape[2]; k++)
                        sum += value_of(got, j * got.shape[2] + k);
                    CHECKF(fabs(sum - 1) < 1e-6, "%s, row %llu sums to %.9g", name, LLU(j), sum);
                }
        }
        CHECK(n_compared == 5 + 20 * attn_model_config(models[m])->n_layer);
        CHECK(attn_record_name(record, i) == NULL);
        attn_record_free(record);
        attn_session_free(session);
        free(file);
        pool_clear();
    }
}

/* Token by token, in pieces, in one call, from some position on, in a batch: always the rows of one
 * full forward over the final text, and always the same logits. */
static void check_growth(const attn_model *model, size_t length, size_t step, size_t first,
                         int n_threads)
{
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(model, length, step);
    attn_session *whole = session_on(&ctx, model, 0, 0), *session;
    attn_record *want = record_on(&ctx, whole, all_names, 3, 0, length), *got;
    const float *const logits = feed_all(&ctx, whole, tokens, length, length);
    size_t i;
    ctx.n_threads = n_threads;
    session = session_on(&ctx, model, 0, 8);
    got = record_on(&ctx, session, all_names, 3, first, length + 3 - first);
    same_logits(feed_all(&ctx, session, tokens, length, step), logits, length, model, "recorded");
    CHECK(attn_record_count(want) == attn_record_count(got));
    for (i = 0; i < attn_record_count(want); i++) {
        const char *name = attn_record_name(want, i);
        attn_tensor rows = view(want, name);
        const int dim = strstr(name, "scores") || strstr(name, "pattern") ? 1 : 0;
        rows = attn_slice(rows, dim, first, length - first);
        same_bits(view(got, name), rows, name);
    }
    attn_session_free(session);
    same_bits(view(got, "ln_final.hook_scale"),
              attn_slice(view(want, "ln_final.hook_scale"), 0, first, length - first),
              "after the session");
    attn_record_free(got);
    attn_record_free(want);
    attn_session_free(whole);
    pool_clear();
}

TEST(growing_records)
{
    check_growth(plain, 24, 1, 0, 1);
    check_growth(odd, 37, 5, 0, 2);
    check_growth(odd, 37, 37, 7, 1);
    check_growth(narrow, 20, 1, 11, 2);
    check_growth(tiny, 40, 40, 0, 1);
    check_growth(tiny, 70, 9, 33, 3);
}

/* Each activation by itself: nothing else is recorded then, and nobody wants logits, so nothing
 * else keeps the rows that it is made of. */
static void one_at_a_time(const attn_model *model, size_t length)
{
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(model, length, 7);
    attn_session *whole = session_on(&ctx, model, 0, 0);
    attn_record *all = record_on(&ctx, whole, all_names, 3, 0, length), *one;
    size_t i;
    OK(&ctx, attn_feed(&ctx, whole, tokens, length));
    for (i = 0; i < attn_record_count(all); i++) {
        const char *const name = attn_record_name(all, i);
        attn_session *session = session_on(&ctx, model, 0, 0);
        one = record_on(&ctx, session, &name, 1, 0, length);
        OK(&ctx, attn_feed(&ctx, session, tokens, length));
        same_bits(view(one, name), view(all, name), name);
        attn_record_free(one);
        attn_session_free(session);
    }
    attn_record_free(all);
    attn_session_free(whole);
    pool_clear();
}

TEST(lone_records)
{
    one_at_a_time(plain, 9);
    one_at_a_time(odd, 6);
}

TEST(recording_while_generating)
{
    enum { PROMPT = 7, MADE = 25 };
    static const char *const wanted[] = {"*"};
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, tiny, 0, 0), *whole = session_on(&ctx, tiny, 0, 0);
    const int32_t *const prompt = random_tokens(tiny, PROMPT, 21);
    attn_record *got = record_on(&ctx, session, wanted, 1, 0, PROMPT + MADE);
    attn_record *want = record_on(&ctx, whole, wanted, 1, 0, PROMPT + MADE);
    attn_generate_desc d;
    size_t i;
    memset(&d, 0, sizeof d);
    d.max_tokens = MADE;
    d.ignore_eos = 1;
    d.sampling.temperature = 0.8f;
    d.prompt_ids = prompt;
    d.n_prompt_ids = PROMPT;
    OK(&ctx, attn_generate(&ctx, session, NULL, &d, NULL, NULL));
    CHECK(attn_session_length(session) == PROMPT + MADE);
    OK(&ctx, attn_feed(&ctx, whole, attn_session_tokens(session), PROMPT + MADE));
    for (i = 0; i < attn_record_count(want); i++)
        same_bits(view(got, attn_record_name(want, i)), view(want, attn_record_name(want, i)),
                  attn_record_name(want, i));
    attn_record_free(got);
    attn_record_free(want);
    attn_session_free(session);
    attn_session_free(whole);
    pool_clear();
}

/* Several sequences of a batch, recorded by some: each as it is alone. And a record among hooks
 * shows what those before it wrote. */
TEST(records_in_a_batch)
{
    enum { ITEMS = 3 };
    static const size_t past[ITEMS] = {0, 6, 3}, fed[ITEMS] = {9, 1, 12};
    attn_ctx ctx = alone();
    attn_session *sessions[ITEMS];
    attn_feed_item items[ITEMS];
    attn_record *one[ITEMS], *together[ITEMS];
    spot s = {4, 1, NULL};
    size_t i, j;
    ctx.n_threads = 2;
    for (i = 0; i < ITEMS; i++) {
        const int32_t *const tokens = random_tokens(odd, past[i] + fed[i], i);
        sessions[i] = session_on(&ctx, odd, 0, 0);
        if (i == 2)
            OK(&ctx, attn_hook(&ctx, NULL, sessions[i], "*.hook_z", put_spot, &s));
        one[i] = record_on(&ctx, sessions[i], all_names, 3, 0, 15);
        if (past[i] > 0)
            OK(&ctx, attn_feed(&ctx, sessions[i], tokens, past[i]));
        OK(&ctx, attn_feed(&ctx, sessions[i], tokens + past[i], fed[i]));
        OK(&ctx, attn_truncate(&ctx, sessions[i], 0));
        attn_unhook_all(sessions[i]);
        if (i == 2)
            OK(&ctx, attn_hook(&ctx, NULL, sessions[i], "*.hook_z", put_spot, &s));
        together[i] = record_on(&ctx, sessions[i], all_names, 3, 0, 15);
        if (i == 0)
            OK(&ctx,
               attn_hook(&ctx, NULL, sessions[i], "*.hook_z", put_spot, &s)); /* comes after it */
        if (past[i] > 0)
            OK(&ctx, attn_feed(&ctx, sessions[i], tokens, past[i]));
        items[i] = item_of(sessions[i], tokens + past[i], fed[i], NULL);
    }
    share_workspace(&ctx, sessions, ITEMS, 0);
    OK(&ctx, attn_feed_batch(&ctx, items, ITEMS));
    CHECK(*entry(view(together[2], "blocks.1.attn.hook_z"), 4, 1, 3) == 0);
    CHECK(*entry(view(together[0], "blocks.0.attn.hook_z"), 4, 1, 3) != 0);
    for (i = 0; i < ITEMS; i++) { /* the same alone, in one call */
        attn_session *again = session_on(&ctx, odd, 0, 0);
        attn_record *r;
        if (i == 2)
            OK(&ctx, attn_hook(&ctx, NULL, again, "*.hook_z", put_spot, &s));
        r = record_on(&ctx, again, all_names, 3, 0, 15);
        if (i == 0)
            OK(&ctx, attn_hook(&ctx, NULL, again, "*.hook_z", put_spot, &s));
        OK(&ctx, attn_feed(&ctx, again, attn_session_tokens(sessions[i]), past[i] + fed[i]));
        for (j = 0; j < attn_record_count(r); j++)
            same_bits(view(together[i], attn_record_name(r, j)), view(r, attn_record_name(r, j)),
                      attn_record_name(r, j));
        CHECK(view(one[i], "hook_embed").shape[0] == 0);
        attn_record_free(one[i]);
        attn_record_free(together[i]);
        attn_record_free(r);
        attn_session_free(again);
        attn_session_free(sessions[i]);
    }
    pool_clear();
}

static int stop_late(const attn_activation *a, void *user)
{
    return *(const int *)user && a->layer == 1;
}

/* Too little memory, too many positions, stops and truncations: a status, and all can go on. */
TEST(record_rules)
{
    enum { LENGTH = 20, ROOM = 12 };
    static const char *const two[] = {"blocks.0.hook_resid_pre", "*.hook_pattern"};
    static const char *const wrong[] = {"hook_embed", "blocks.0.hook_resid_pree"};
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 30);
    float *const want = hooked(odd, tokens, LENGTH, LENGTH, NULL, NULL, NULL, NULL, NULL);
    const attn_config *const c = attn_model_config(odd);
    attn_session *session = session_on(&ctx, odd, 0, 5), *other = session_on(&ctx, odd, 0, 5);
    attn_record *record = NULL;
    attn_record_desc desc;
    attn_tensor value = {0};
    size_t bytes = 0;
    int stop = 0;
    unsigned char *memory_of;
    memset(&desc, 0, sizeof desc);
    desc.names = two;
    desc.n_names = 2;
    desc.n_positions = ROOM;
    OK(&ctx, attn_record_size(&ctx, &bytes, odd, &desc));
    CHECK(bytes == 4 * (ROOM * c->d_model + c->n_layer * c->n_head * ROOM * ROOM));
    memory_of = (unsigned char *)pool_new(bytes + 8);
    memset(memory_of, 0x5A, bytes + 8);
    FAILS(&ctx, ATTN_E_SPACE, "need 7488 bytes",
          attn_record_new(&ctx, &record, session, &desc, memory_of, 9));
    CHECK(record == NULL);
    FAILS(&ctx, ATTN_E_SPACE, "need",
          attn_record_new(&ctx, &record, session, &desc, memory_of, bytes - 1));
    FAILS(&ctx, ATTN_E_ARGUMENT, "aligned",
          attn_record_new(&ctx, &record, session, &desc, memory_of + 1, bytes));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no memory",
          attn_record_new(&ctx, &record, session, &desc, NULL, bytes));
    desc.names = wrong;
    FAILS(&ctx, ATTN_E_NAME, "did you mean blocks.0.hook_resid_pre?",
          attn_record_size(&ctx, &bytes, odd, &desc));
    FAILS(&ctx, ATTN_E_NAME, "did you mean blocks.0.hook_resid_pre?",
          attn_record_new(&ctx, &record, session, &desc, memory_of, bytes));
    desc.names = two;
    desc.n_positions = 41;
    FAILS(&ctx, ATTN_E_ARGUMENT, "n_ctx is 40", attn_record_size(&ctx, &bytes, odd, &desc));
    desc.n_positions = SIZE_MAX;
    desc.first = 3;
    FAILS(&ctx, ATTN_E_ARGUMENT, "n_ctx is 40", attn_record_size(&ctx, &bytes, odd, &desc));
    desc.n_positions = ROOM;
    desc.first = 0;
    OK(&ctx, attn_feed(&ctx, session, tokens, 2));
    FAILS(&ctx, ATTN_E_ARGUMENT, "attn_truncate it",
          attn_record_new(&ctx, &record, session, &desc, memory_of, bytes));
    OK(&ctx, attn_truncate(&ctx, session, 0));

    OK(&ctx, attn_record_new(&ctx, &record, session, &desc, memory_of, bytes));
    OK(&ctx, attn_record_get(&ctx, &value, record, two[0]));
    CHECK(value.shape[0] == 0 && value.shape[1] == c->d_model);
    OK(&ctx, attn_feed(&ctx, session, tokens, 8));
    FAILS(&ctx, ATTN_E_SPACE, "room for 12 positions", attn_feed(&ctx, session, tokens, 5));
    CHECK(attn_session_length(session) == 8);
    FAILS(&ctx, ATTN_E_NAME, "not among", attn_record_get(&ctx, &value, record, "hook_embed"));
    FAILS(&ctx, ATTN_E_NAME, "did you mean hook_embed",
          attn_record_get(&ctx, &value, record, "hook_embe"));
    FAILS(&ctx, ATTN_E_ARGUMENT, "a record watches", attn_session_copy(&ctx, session, other));
    OK(&ctx, attn_feed(&ctx, session, tokens + 8, 4));
    same_logits(attn_logits(session), want + 11 * vocab_of(odd), 1, odd, "a full record");
    FAILS(&ctx, ATTN_E_SPACE, "bytes", attn_feed(&ctx, session, tokens, 1));
    CHECK(view(record, two[0]).shape[0] == ROOM);

    /* A stop leaves the record as it was; truncating takes rows away. */
    OK(&ctx, attn_truncate(&ctx, session, 7));
    CHECK(view(record, two[0]).shape[0] == 7);
    OK(&ctx, attn_hook(&ctx, NULL, session, "*.hook_z", stop_late, &stop));
    stop = 1;
    FAILS(&ctx, ATTN_STOPPED, "asked to stop", attn_feed(&ctx, session, tokens + 7, 3));
    CHECK(view(record, two[0]).shape[0] == 7 &&
          view(record, "blocks.2.attn.hook_pattern").shape[1] == 7);
    stop = 0;
    OK(&ctx, attn_feed(&ctx, session, tokens + 7, 3));
    CHECK(view(record, "blocks.2.attn.hook_pattern").shape[2] == 10);
    {
        attn_token_stats stats[LENGTH]; /* a score needs the room, too */
        FAILS(&ctx, ATTN_E_SPACE, "room", attn_score(&ctx, stats, NULL, 0, session, tokens, 18));
        CHECK(view(record, two[0]).shape[0] == 10 && attn_session_length(session) == 10);
    }
    same_logits(attn_logits(session), want + 9 * vocab_of(odd), 1, odd, "after a stop");
    attn_record_free(record);
    OK(&ctx, attn_feed(&ctx, session, tokens + 10, 10));
    same_logits(attn_logits(session), want + 19 * vocab_of(odd), 1, odd, "after the record");
    CHECK(memory_of[bytes] == 0x5A && memory_of[bytes + 7] == 0x5A);
    attn_record_free(NULL);
    attn_session_free(session);
    attn_session_free(other);
    pool_clear();
}

/* Nothing is allocated while a record grows, and nothing is left when it could not be made. */
TEST(record_memory)
{
    meter m;
    attn_ctx ctx = metered(&m);
    attn_session *session;
    attn_record *record = NULL;
    attn_record_desc desc;
    const int32_t *const tokens = random_tokens(odd, 20, 4);
    attn_status status = ATTN_E_MEMORY;
    void *memory_of;
    size_t bytes = 0;
    long live, n;
    ctx.n_threads = 1;
    memset(&desc, 0, sizeof desc);
    if ((session = session_on(&ctx, odd, 0, 0)) == NULL)
        return;
    OK(&ctx, attn_record_size(&ctx, &bytes, odd, NULL));
    memory_of = pool_new(bytes);
    live = m.live;
    for (n = 0; n < 20 && status != ATTN_OK; n++) {
        m.fail_at = m.asked + n;
        status = attn_record_new(&ctx, &record, session, NULL, memory_of, bytes);
        m.fail_at = -1;
        CHECK(status == ATTN_OK || (status == ATTN_E_MEMORY && m.live == live && !record));
    }
    CHECK(status == ATTN_OK && n > 3);
    n = m.asked;
    OK(&ctx, attn_feed(&ctx, session, tokens, 19));
    OK(&ctx, attn_feed(&ctx, session, tokens + 19, 1));
    CHECK(m.asked == n);
    for (n = 0, status = ATTN_E_MEMORY; n < 20 && status != ATTN_OK; n++) {
        m.fail_at = m.asked + n;
        status = attn_record_save(&ctx, test_tmp("record.npz"), record);
        m.fail_at = -1;
    }
    CHECK(status == ATTN_OK && n == 5);
    attn_record_free(record);
    CHECK(m.live == live);
    attn_session_free(session);
    CHECK(m.live == 0 && m.wrong == 0);
    pool_clear();
}

/* ---- files ---- */

/* CRC-32 by its definition, bit by bit. */
static uint32_t crc_of(const unsigned char *p, size_t n)
{
    uint32_t crc = 0xFFFFFFFFu;
    int bit;
    for (; n > 0; n--, p++)
        for (crc ^= *p, bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    return ~crc;
}

static void check_npz(const unsigned char *file, size_t size, const attn_record *record)
{
    size_t at = 0, i;
    for (i = 0; i < attn_record_count(record); i++) {
        const char *name = attn_record_name(record, i);
        const attn_tensor want = view(record, name);
        const unsigned char *p = file + at, *npy;
        size_t n_name, n, j, header;
        char shape[100] = "(";
        int dim;
        if (!CHECKF(at + 100 < size && get_u32(p) == 0x04034b50, "%s has no entry", name))
            return;
        n = get_u32(p + 18);
        n_name = p[26] | (size_t)p[27] << 8;
        CHECK(n_name == strlen(name) + 4 && memcmp(p + 30, name, strlen(name)) == 0);
        npy = p + 30 + n_name;
        CHECK(get_u32(p + 22) == n && crc_of(npy, n) == get_u32(p + 14));
        header = 10 + (npy[8] | (size_t)npy[9] << 8);
        CHECK(memcmp(npy, "\x93NUMPY\x01\0", 8) == 0 && header % 64 == 0);
        CHECK(npy[header - 1] == '\n' && n == header + 4 * count_of(want));
        for (dim = 0; dim < want.ndim; dim++)
            snprintf(shape + strlen(shape), 30, "%s%llu", dim ? ", " : "", LLU(want.shape[dim]));
        CHECKF(strstr((const char *)npy + 10, shape), "%s: the shape is not %s", name, shape);
        for (j = 0; j < count_of(want) && n == header + 4 * count_of(want); j++)
            if (!CHECK(memcmp(npy + header + 4 * j, element(want, j), 4) == 0))
                break;
        at += 30 + n_name + n;
    }
    CHECK(size > 22 && get_u32(file + size - 22) == 0x06054b50 && get_u32(file + size - 6) == at);
    CHECK(size > 22 && (file[size - 12] | (size_t)file[size - 11] << 8) == i);
}

TEST(saved_records)
{
    enum { LENGTH = 11 };
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, narrow, 0, 0);
    attn_record *record = record_on(&ctx, session, all_names, 3, 2, 15);
    char path[2][512];
    unsigned char *file;
    size_t size, i, j;
    FILE *list;
    OK(&ctx, attn_feed(&ctx, session, random_tokens(narrow, LENGTH, 4), LENGTH));
    snprintf(path[0], sizeof path[0], "%s", test_tmp("record.safetensors"));
    snprintf(path[1], sizeof path[1], "%s", test_tmp("record.npz"));
    for (i = 0; i < 2; i++)
        OK(&ctx, attn_record_save(&ctx, path[i], record));
    if (CHECK((file = test_read(path[0], &size)) != NULL)) {
        size_t total = 8 + get_u32(file);
        CHECK(total % 8 == 0);
        for (i = 0; i < attn_record_count(record); i++) {
            const char *name = attn_record_name(record, i);
            const attn_tensor want = view(record, name);
            same_bits(stored_tensor(file, name), want, name);
            total += 4 * count_of(want);
        }
        CHECKF(size == total, "%llu bytes, expected %llu", LLU(size), LLU(total));
        free(file);
    }
    if (CHECK((file = test_read(path[1], &size)) != NULL)) {
        check_npz(file, size, record);
        free(file);
    }

    /* Python reads both, if it is here: a sum of bits of every tensor must be ours. */
    list = fopen(test_tmp("record.list"), "w");
    for (i = 0; list && i < attn_record_count(record); i++) {
        const attn_tensor x = view(record, attn_record_name(record, i));
        uint64_t sum = 0;
        for (j = 0; j < count_of(x); j++)
            sum += (j + 1) * (uint64_t)get_u32((const unsigned char *)element(x, j));
        fprintf(list, "%s %s %llu\n", attn_record_name(record, i), shape_text(x), LLU(sum));
    }
    if (list)
        fclose(list);
    attn_record_free(record);
    attn_session_free(session);
    pool_clear();
}

static const char *python_with(const char *module)
{
    static const char *const pythons[] = {"python3", "/usr/bin/python3"};
    char command[200];
    size_t i;
    for (i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "%s -c 'import %s' 2>/dev/null", pythons[i], module);
        if (system(command) == 0)
            return pythons[i];
    }
    return NULL;
}

static void python_reads(const char *module, const char *format)
{
    const char *const python = python_with(module);
    char command[700];
    if (!python) {
        snprintf(command, sizeof command, "no python3 with %s here", module);
        test_skip(command);
        return;
    }
    snprintf(command, sizeof command,
             "%s tests/compare/check_saved.py %s build/test-tmp/hooks/record.%s %s", python, module,
             format, "build/test-tmp/hooks/record.list");
    CHECKF(system(command) == 0, "%s failed", command);
}

TEST(numpy_reads_npz)
{
    python_reads("numpy", "npz");
}
TEST(numpy_reads_safetensors)
{
    python_reads("numpy", "safetensors");
}
TEST(torch_reads_npz)
{
    python_reads("torch", "npz");
}
TEST(torch_reads_safetensors)
{
    python_reads("torch", "safetensors");
}

TEST(saving)
{
    attn_ctx ctx = alone();
    uint16_t halfs[6] = {0x3C00, 0xC000, 0x7BFF, 1, 0, 0x8000};
    int32_t ids[3] = {1, -1, INT32_MAX};
    attn_tensor values[3];
    const char *tensor_names[] = {"a", "b.half", "ids"};
    const char *const bad[] = {"", "two words", "a\"b", "../up", "C:x", NULL};
    unsigned char *file;
    size_t size, i;
    values[0] = attn_transpose(random_tensor(3, 2, 3, 5), 0, 2);
    values[1] = attn_borrow(halfs, ATTN_F16, attn_shape2(2, 3));
    values[2] = attn_borrow(ids, ATTN_I32, attn_shape1(3));
    OK(&ctx, attn_save(&ctx, test_tmp("saved.safetensors"), tensor_names, values, 3));
    if (CHECK((file = test_read(test_tmp("saved.safetensors"), &size)) != NULL)) {
        const size_t data = 8 + get_u32(file);
        same_bits(stored_tensor(file, "a"), laid_out(values[0], ATTN_F32, LAYOUT_DENSE), "turned");
        CHECK(size == data + 120 + 12 + 12);
        CHECK(strstr((char *)file + 8, "\"b.half\":{\"dtype\":\"F16\",\"shape\":[2, 3],"
                                       "\"data_offsets\":[120,132]}"));
        CHECK(memcmp(file + data + 120, "\x00\x3C\x00\xC0\xFF\x7B\x01\x00\x00\x00\x00\x80", 12) ==
              0);
        CHECK(memcmp(file + data + 132, "\1\0\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 12) == 0);
        free(file);
    }
    OK(&ctx, attn_save(&ctx, test_tmp("none.npz"), NULL, NULL, 0));
    CHECK((file = test_read(test_tmp("none.npz"), &size)) != NULL && size == 22);
    free(file);
    FAILS(&ctx, ATTN_E_ARGUMENT, ".npz", attn_save(&ctx, "build/x.pt", tensor_names, values, 3));
    FAILS(&ctx, ATTN_E_ARGUMENT, ".npz", attn_save(&ctx, NULL, tensor_names, values, 3));
    FAILS(&ctx, ATTN_E_IO, "directory",
          attn_save(&ctx, "build/no-such-place/x.npz", tensor_names, values, 3));
    for (i = 0; i < 6; i++) {
        tensor_names[1] = bad[i];
        FAILS(&ctx, ATTN_E_NAME, "name 1", attn_save(&ctx, "build/x.npz", tensor_names, values, 3));
    }
    tensor_names[1] = "a";
    FAILS(&ctx, ATTN_E_NAME, "two tensors",
          attn_save(&ctx, "build/x.npz", tensor_names, values, 3));
    tensor_names[1] = "b";
    values[1] = attn_reshape(values[0], attn_shape1(7));
    FAILS(&ctx, ATTN_E_ARGUMENT, "b is no tensor",
          attn_save(&ctx, "build/x.npz", tensor_names, values, 3));
    values[1] = attn_borrow(ids, ATTN_I32, attn_shape2((size_t)1 << 15, (size_t)1 << 15));
    values[1].stride[0] = values[1].stride[1] = 0;
    if (sizeof(size_t) > 4)
        FAILS(&ctx, ATTN_E_SPACE, "4 GiB", attn_save(&ctx, "build/x.npz", tensor_names, values, 3));
    else
        FAILS(&ctx, ATTN_E_ARGUMENT, "that fit in memory",
              attn_save(&ctx, "build/x.npz", tensor_names, values, 3));
    pool_clear();
}

/* ---- parts of a pass ---- */

static attn_feed_item part_of(attn_session *session, const int32_t *tokens, size_t n, size_t first,
                              size_t end, const float *resid, float *resid_out)
{
    attn_feed_item item = item_of(session, tokens, n, NULL);
    item.layers.first = first;
    item.layers.end = end;
    item.layers.resid = resid;
    item.layers.resid_out = resid_out;
    return item;
}

/* A pass cut between any two layers, and the stream handed over, is the whole pass. */
TEST(cut_between_layers)
{
    enum { LENGTH = 20 };
    const attn_model *const models[] = {plain, odd, narrow, tiny, bytes8};
    attn_ctx ctx = alone();
    size_t m, cut, at, i;
    ctx.n_threads = 2;
    for (m = 0; m < 5; m++) {
        const attn_config *const c = attn_model_config(models[m]);
        const int32_t *const tokens = random_tokens(models[m], LENGTH, m);
        sight *const s = new_sight();
        const float *const want =
            hooked(models[m], tokens, LENGTH, LENGTH, NULL, NULL, NULL, "*.hook_resid_p*", s);
        float *const stream = (float *)pool_new(LENGTH * c->d_model * sizeof(float));
        for (cut = 1; cut <= c->n_layer; cut++) {
            attn_session *session = session_on(&ctx, models[m], 0, 7);
            attn_feed_item item;
            char name[64];
            OK(&ctx, attn_feed(&ctx, session, tokens, 4));
            for (at = 4; at < LENGTH; at += 8) {
                if (cut < c->n_layer) {
                    item = part_of(session, tokens + at, 8, 0, cut, NULL, stream);
                    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
                    CHECK(attn_session_length(session) == at);
                    snprintf(name, sizeof name, "blocks.%d.hook_resid_pre", (int)cut);
                    same_floats(stream, entry(latest(s, name), at, 0, 0), 8, c->d_model, name);
                    item = part_of(session, tokens + at, 8, cut, 0, stream, stream);
                } else { /* all layers, then the logits again from the stream */
                    item = part_of(session, tokens + at, 8, 0, 0, NULL, stream);
                    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
                    OK(&ctx, attn_truncate(&ctx, session, at));
                    item = part_of(session, tokens + at, 8, cut, 0, stream, NULL);
                }
                OK(&ctx, attn_feed_batch(&ctx, &item, 1));
                CHECK(attn_session_length(session) == at + 8);
                same_logits(attn_logits(session), want + (at + 7) * vocab_of(models[m]), 1,
                            models[m], "a pass in two parts");
            }
            /* A stream of the caller's in place of the embedding. */
            OK(&ctx, attn_truncate(&ctx, session, 0));
            item = part_of(session, tokens, LENGTH, 0, 0,
                           (const float *)latest(s, "blocks.0.hook_resid_pre").data, NULL);
            OK(&ctx, attn_feed_batch(&ctx, &item, 1));
            same_logits(attn_logits(session), want + (LENGTH - 1) * vocab_of(models[m]), 1,
                        models[m], "an embedding of the caller's");
            attn_session_free(session);
        }

        /* The logit lens at the end is the model; below it, that of a hook on the last stream. */
        for (i = 0; i < c->n_layer; i++) {
            attn_tensor logits = {0}, scaled = {0}, scale;
            char name[64];
            sight *const r = new_sight();
            const float *by_hook;
            attn_tensor rows;
            snprintf(name, sizeof name, "blocks.%d.hook_resid_post", (int)i);
            rows = latest(s, name);
            snprintf(name, sizeof name, "blocks.%d.hook_resid_post", (int)c->n_layer - 1);
            by_hook = hooked(models[m], tokens, LENGTH, 6, name, put_rows, &rows, NULL, NULL);
            OK(&ctx, attn_logit_lens(&ctx, &logits, models[m], rows, no_scale, NULL, 0));
            CHECK(logits.ndim == 2 && logits.shape[0] == LENGTH);
            same_logits((const float *)logits.data, i + 1 == c->n_layer ? want : by_hook, LENGTH,
                        models[m], "logit lens");
            hooked(models[m], tokens, LENGTH, LENGTH, NULL, NULL, NULL, "ln_final.hook_scale", r);
            scale = latest(r, "ln_final.hook_scale");
            by_hook = hooked(models[m], tokens, LENGTH, LENGTH, "ln_final.hook_scale", put_rows,
                             &scale, NULL, NULL);
            OK(&ctx, attn_logit_lens(&ctx, &scaled, models[m], rows, scale, NULL, 0));
            if (i + 1 == c->n_layer)
                same_logits((const float *)scaled.data, by_hook, LENGTH, models[m], "saved scale");
            else
                CHECK(differ((const float *)scaled.data, (const float *)logits.data,
                             vocab_of(models[m])));
        }
        attn_ctx_free(&ctx);
        pool_clear();
    }
}

/* What a pass builds on must be there, for the same tokens; each refusal leaves all as it was. */
TEST(what_layers_hold)
{
    enum { LENGTH = 16 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 5), *const others =
                                                                     random_tokens(odd, LENGTH, 6);
    const size_t width = attn_model_config(odd)->d_model;
    const float *const want = hooked(odd, tokens, LENGTH, LENGTH, NULL, NULL, NULL, NULL, NULL);
    float *const stream = (float *)pool_new(LENGTH * width * sizeof(float));
    float *const logits = (float *)pool_new(LENGTH * vocab_of(odd) * sizeof(float));
    attn_session *session = session_on(&ctx, odd, 0, 0), *copy = session_on(&ctx, odd, 0, 0);
    attn_session *pair[2];
    attn_feed_item item, two[2];
    size_t i;
    memset(stream, 0, LENGTH * width * sizeof(float));
    item = part_of(session, tokens, 4, 2, 0, stream, NULL);
    FAILS(&ctx, ATTN_E_ARGUMENT, "layer 0 must hold keys and values of 4 positions; it holds 0",
          attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, tokens, 8, 0, 1, NULL, stream);
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, tokens, 8, 2, 0, stream, NULL);
    FAILS(&ctx, ATTN_E_ARGUMENT, "layer 1 must hold", attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, others, 8, 1, 0, stream, NULL);
    FAILS(&ctx, ATTN_E_ARGUMENT, "other tokens", attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, tokens, 9, 1, 0, stream, NULL);
    FAILS(&ctx, ATTN_E_ARGUMENT, "of 9 positions; it holds 8", attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, tokens, 5, 1, 0, stream, NULL); /* fewer are fine */
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    same_logits(attn_logits(session), want + 4 * vocab_of(odd), 1, odd, "some of them");
    item = part_of(session, tokens + 5, 3, 1, 0, stream + 5 * width, NULL);
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    same_logits(attn_logits(session), want + 7 * vocab_of(odd), 1, odd, "the rest");
    OK(&ctx, attn_feed(&ctx, session, tokens + 8, 8));

    /* A truncated copy keeps the keys and values past its end until other tokens overwrite them. */
    OK(&ctx, attn_session_copy(&ctx, copy, session));
    OK(&ctx, attn_truncate(&ctx, session, 3));
    OK(&ctx, attn_session_copy(&ctx, copy, session));
    CHECK(attn_session_length(copy) == 3);
    item = part_of(copy, tokens + 3, 13, 2, 0, stream, NULL);
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    OK(&ctx, attn_truncate(&ctx, copy, 3));
    OK(&ctx, attn_feed(&ctx, copy, others, 2));
    OK(&ctx, attn_truncate(&ctx, copy, 3));
    item = part_of(copy, tokens + 3, 13, 2, 0, stream, NULL);
    FAILS(&ctx, ATTN_E_ARGUMENT, "it holds 5", attn_feed_batch(&ctx, &item, 1));
    item.n_tokens = 2;
    FAILS(&ctx, ATTN_E_ARGUMENT, "other tokens", attn_feed_batch(&ctx, &item, 1));
    OK(&ctx, attn_feed(&ctx, copy, tokens + 3, 13));
    same_logits(attn_logits(copy), want + 15 * vocab_of(odd), 1, odd, "fed anew");

    /* A stop takes back what the pass wrote over, and no more. */
    {
        int stop = 1;
        OK(&ctx, attn_truncate(&ctx, copy, 3));
        OK(&ctx, attn_hook(&ctx, NULL, copy, "*.hook_z", stop_late, &stop));
        FAILS(&ctx, ATTN_STOPPED, "", attn_feed(&ctx, copy, tokens + 3, 13));
        attn_unhook_all(copy);
        item = part_of(copy, tokens + 3, 13, 2, 0, stream, NULL);
        FAILS(&ctx, ATTN_E_ARGUMENT, "it holds 3", attn_feed_batch(&ctx, &item, 1));
        CHECK(attn_session_length(copy) == 3);
    }

    item = part_of(session, tokens + 3, 2, 4, 0, stream, NULL);
    FAILS(&ctx, ATTN_E_ARGUMENT, "layers 4", attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, tokens + 3, 2, 2, 1, stream, NULL);
    FAILS(&ctx, ATTN_E_ARGUMENT, "layers 2", attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, tokens + 3, 2, 1, 1, stream, NULL);
    FAILS(&ctx, ATTN_E_ARGUMENT, "layers 1", attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, tokens + 3, 2, 0, 9, NULL, NULL);
    FAILS(&ctx, ATTN_E_ARGUMENT, "before 9", attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, tokens + 3, 2, 1, 0, NULL, NULL);
    FAILS(&ctx, ATTN_E_ARGUMENT, "resid", attn_feed_batch(&ctx, &item, 1));
    item = part_of(session, tokens + 3, 2, 0, 1, NULL, NULL);
    item.logits = logits;
    FAILS(&ctx, ATTN_E_ARGUMENT, "no logits", attn_feed_batch(&ctx, &item, 1));
    pair[0] = session;
    pair[1] = copy;
    share_workspace(&ctx, pair, 2, 0);
    for (i = 0; i < 4;
         i++) { /* another beginning, another end, a stream; another beginning alone */
        two[0] = part_of(session, tokens + 3, 2, 0, 0, i == 3 ? stream : NULL, NULL);
        two[1] =
            part_of(copy, tokens + 3, 2, i == 0 || i == 3, i == 1, i == 1 ? NULL : stream, NULL);
        OK(&ctx, attn_truncate(&ctx, copy, 0));
        OK(&ctx, attn_feed(&ctx, copy, tokens, 16));
        OK(&ctx, attn_truncate(&ctx, copy, 3));
        FAILS(&ctx, ATTN_E_ARGUMENT, "same layers", attn_feed_batch(&ctx, two, 2));
    }
    OK(&ctx, attn_feed(&ctx, session, tokens + 3, 13));
    same_logits(attn_logits(session), want + 15 * vocab_of(odd), 1, odd, "after all that");
    attn_session_free(session);
    attn_session_free(copy);
    pool_clear();
}

/* A record of a pass in parts shows what was run, and no row that was not. */
TEST(recorded_parts)
{
    enum { LENGTH = 12 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 5);
    attn_session *session = session_on(&ctx, odd, 0, 5), *whole = session_on(&ctx, odd, 0, 0);
    attn_record *record = record_on(&ctx, session, NULL, 0, 0, LENGTH);
    attn_record *want = record_on(&ctx, whole, NULL, 0, 0, LENGTH);
    float *const stream = (float *)pool_new(LENGTH * 64 * sizeof(float));
    attn_feed_item item = part_of(session, tokens, LENGTH, 0, 2, NULL, stream);
    size_t i;
    OK(&ctx, attn_feed(&ctx, whole, tokens, LENGTH));
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    CHECK(view(record, "blocks.1.hook_resid_post").shape[0] == LENGTH);
    CHECK(view(record, "blocks.2.hook_resid_pre").shape[0] == 0);
    CHECK(view(record, "ln_final.hook_scale").shape[0] == 0);
    item = part_of(session, tokens, LENGTH, 2, 0, stream, NULL);
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    for (i = 0; i < attn_record_count(want); i++)
        same_bits(view(record, attn_record_name(want, i)), view(want, attn_record_name(want, i)),
                  attn_record_name(want, i));
    OK(&ctx, attn_truncate(&ctx, session, 5));
    CHECK(view(record, "blocks.0.hook_resid_pre").shape[0] == 5);
    item = part_of(session, tokens + 5, 4, 2, 0, stream + 5 * 48, NULL);
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    for (i = 0; i < attn_record_count(want); i++) {
        const char *name = attn_record_name(want, i);
        attn_tensor rows = view(want, name);
        if (strstr(name, "scores") || strstr(name, "pattern"))
            rows = attn_slice(attn_slice(rows, 1, 0, 9), 2, 0, 9);
        else
            rows = attn_slice(rows, 0, 0, 9);
        same_bits(view(record, name), rows, name);
    }

    /* An embedding of the caller's leaves hook_embed without rows, and that cannot be filled. */
    OK(&ctx, attn_truncate(&ctx, session, 0));
    item = part_of(session, tokens, LENGTH - 2, 0, 0, stream, NULL);
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    CHECK(view(record, "hook_embed").shape[0] == 0);
    FAILS(&ctx, ATTN_E_ARGUMENT, "gap", attn_feed(&ctx, session, tokens, 2));
    attn_record_free(record);
    OK(&ctx, attn_feed(&ctx, session, tokens, 2));
    attn_record_free(want);
    attn_session_free(session);
    attn_session_free(whole);
    pool_clear();
}

/* ---- edits ---- */

static attn_edit edit_of(const char *name, attn_edit_kind kind)
{
    attn_edit e;
    memset(&e, 0, sizeof e);
    e.name = name;
    e.kind = kind;
    return e;
}

static float *edited(const attn_model *model, const int32_t *tokens, size_t n, size_t step,
                     const attn_edit *edit, const char *sees, sight *s)
{
    attn_ctx ctx = alone();
    attn_session *session;
    float *logits;
    ctx.n_threads = 1 + (int)(step % 2);
    session = session_on(&ctx, model, 0, 0);
    OK(&ctx, attn_hook_edit(&ctx, NULL, session, edit));
    if (sees)
        OK(&ctx, attn_hook(&ctx, NULL, session, sees, note, s));
    logits = feed_all(&ctx, session, tokens, n, step);
    attn_session_free(session);
    return logits;
}

/* Every activation set to its own values, of the same run, changes no bit. */
TEST(patched_with_itself)
{
    enum { LENGTH = 18 };
    const attn_model *const models[] = {plain, odd, narrow, bytes8};
    attn_ctx ctx = alone();
    size_t m, i, step;
    for (m = 0; m < 4; m++) {
        const int32_t *const tokens = random_tokens(models[m], LENGTH, 9);
        attn_session *session = session_on(&ctx, models[m], 0, 0);
        const char *const names_of[] = {"*", "*.hook_result", "*.hook_*_in", "*_input"};
        attn_record *record = record_on(&ctx, session, names_of, 4, 0, LENGTH);
        const float *const want = feed_all(&ctx, session, tokens, LENGTH, LENGTH);
        CHECK(attn_record_count(record) == 5 + 25 * attn_model_config(models[m])->n_layer);
        for (i = 0; i < attn_record_count(record); i++) {
            attn_edit e = edit_of(attn_record_name(record, i), ATTN_EDIT_SET);
            e.value = view(record, e.name);
            for (step = 5; step <= LENGTH; step += 13)
                same_logits(edited(models[m], tokens, LENGTH, step, &e, NULL, NULL), want, LENGTH,
                            models[m], e.name);
        }
        attn_record_free(record);
        attn_session_free(session);
        pool_clear();
    }
}

/* Adds by hand what an edit adds, and sets, zeroes and averages likewise. */
typedef struct by_hand {
    attn_edit_kind kind;
    size_t position, n, head, n_heads;
    attn_tensor value; /* dense [n or 1, n_heads, width] */
    float factor;
} by_hand;
static int edit_by_hand(const attn_activation *a, void *user)
{
    const by_hand *b = (const by_hand *)user;
    size_t i, h, k;
    for (i = 0; i < a->value.shape[0]; i++)
        for (h = 0; h < b->n_heads; h++)
            for (k = 0; k < a->value.shape[a->value.ndim - 1]; k++) {
                const size_t at = a->first + i - b->position;
                float *x, v;
                if (a->first + i < b->position || at >= b->n)
                    continue;
                x = a->value.ndim == 3 ? entry(a->value, i, b->head + h, k)
                                       : entry(a->value, i, k, 0);
                v = b->kind == ATTN_EDIT_ZERO
                        ? 0
                        : *entry(b->value, b->value.shape[0] > 1 ? at : 0, h, k);
                *x = b->kind == ATTN_EDIT_ADD ? fmaf(v, b->factor, *x) : v;
            }
    return 0;
}

TEST(edits)
{
    enum { LENGTH = 20 };
    static const struct {
        const char *name;
        attn_edit_kind kind;
        size_t position, n, head, n_heads, rows;
    } cases[] = {{"blocks.1.hook_resid_pre", ATTN_EDIT_ADD, 0, 0, 0, 0, 1},
                 {"blocks.*.hook_resid_post", ATTN_EDIT_ADD, 3, 5, 0, 0, 5},
                 {"blocks.0.attn.hook_z", ATTN_EDIT_ZERO, 0, 0, 1, 1, 1},
                 {"blocks.1.attn.hook_z", ATTN_EDIT_SET, 4, 0, 0, 2, 7},
                 {"blocks.1.attn.hook_k", ATTN_EDIT_SET, 6, 1, 1, 0, 1},
                 {"*.attn.hook_result", ATTN_EDIT_ZERO, 2, 9, 2, 1, 1},
                 {"blocks.1.hook_q_input", ATTN_EDIT_ADD, 0, 0, 1, 1, 20},
                 {"blocks.0.hook_mlp_out", ATTN_EDIT_SET, 19, 1, 0, 0, 1},
                 {"ln_final.hook_scale", ATTN_EDIT_SET, 0, 0, 0, 0, 20},
                 {"blocks.0.mlp.hook_post", ATTN_EDIT_MEAN, 1, 0, 0, 0, 6},
                 {"blocks.0.attn.hook_z", ATTN_EDIT_MEAN, 0, 4, 0, 3, 20}};
    attn_ctx ctx = alone();
    size_t i, j, k, t;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int32_t *const tokens = random_tokens(odd, LENGTH, i);
        const float *const usual =
            hooked(odd, tokens, LENGTH, LENGTH, NULL, NULL, NULL, NULL, NULL);
        sight *const s = new_sight();
        attn_edit e = edit_of(cases[i].name, cases[i].kind);
        attn_tensor like;
        by_hand b;
        size_t heads, width;
        hooked(odd, tokens, LENGTH, LENGTH, NULL, NULL, NULL, cases[i].name, s);
        like = s->all[0].value;
        heads = like.ndim < 3      ? 1
                : cases[i].n_heads ? cases[i].n_heads
                                   : like.shape[1] - cases[i].head;
        width = like.shape[like.ndim - 1];
        b.kind = e.kind;
        b.position = e.position = cases[i].position;
        e.n_positions = cases[i].n;
        b.head = e.head = cases[i].head;
        e.n_heads = cases[i].n_heads;
        b.n_heads = heads;
        b.n = cases[i].n                                      ? cases[i].n
              : cases[i].rows > 1 && e.kind != ATTN_EDIT_MEAN ? cases[i].rows
                                                              : 1000;
        b.factor = e.factor = -1.7f;
        b.value = random_tensor(3, (int)cases[i].rows, (int)heads, (int)width);
        if (like.ndim == 3)
            e.value = laid_out(b.value, ATTN_F32, LAYOUT_COLUMNS);
        else
            e.value = attn_reshape(b.value, attn_shape2(cases[i].rows, width));
        if (like.ndim == 2 && cases[i].rows == 1)
            e.value = attn_reshape(e.value, attn_shape1(width));
        if (e.kind == ATTN_EDIT_MEAN) {
            attn_tensor mean = random_tensor(3, 1, (int)heads, (int)width);
            for (j = 0; j < heads; j++)
                for (k = 0; k < width; k++) {
                    double sum = 0;
                    for (t = 0; t < cases[i].rows; t++)
                        sum += (double)*entry(b.value, t, j, k);
                    *entry(mean, 0, j, k) = (float)(sum / (double)cases[i].rows);
                }
            b.value = mean;
            b.kind = ATTN_EDIT_SET;
        }
        for (j = 1; j <= LENGTH; j += 19) {
            const float *const got = edited(odd, tokens, LENGTH, j, &e, NULL, NULL);
            CHECKF(differ(got, usual, LENGTH * vocab_of(odd)), "%s changed nothing", e.name);
            same_logits(got,
                        hooked(odd, tokens, LENGTH, LENGTH, e.name, edit_by_hand, &b, NULL, NULL),
                        LENGTH, odd, e.name);
        }
        pool_clear();
    }
    attn_ctx_free(&ctx);
}

/* Steering by hand: x + v at every position is what a model does whose own addition it is. */
static int add_vector(const attn_activation *a, void *user)
{
    size_t i, k;
    for (i = 0; i < a->value.shape[0]; i++)
        for (k = 0; k < a->value.shape[1]; k++)
            *entry(a->value, i, k, 0) += ((const float *)user)[k];
    return 0;
}

TEST(steering)
{
    enum { LENGTH = 16 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(tiny, LENGTH, 3);
    attn_tensor v = random_tensor(1, 192), twice = {0};
    attn_edit e = edit_of("blocks.2.hook_resid_pre", ATTN_EDIT_ADD);
    const float *want;
    e.value = v;
    e.factor = 1;
    want = hooked(tiny, tokens, LENGTH, LENGTH, e.name, add_vector, v.data, NULL, NULL);
    same_logits(edited(tiny, tokens, LENGTH, 1, &e, NULL, NULL), want, LENGTH, tiny, "steering");
    e.name = "blocks.1.hook_resid_post";
    same_logits(edited(tiny, tokens, LENGTH, 6, &e, NULL, NULL), want, LENGTH, tiny, "steering");
    OK(&ctx, attn_scale(&ctx, &twice, v, 2)); /* exact, so that the product is not rounded */
    e.factor = 2;
    same_logits(edited(tiny, tokens, LENGTH, 16, &e, NULL, NULL),
                hooked(tiny, tokens, LENGTH, LENGTH, e.name, add_vector, twice.data, NULL, NULL),
                LENGTH, tiny, "steering twice as far");
    attn_ctx_free(&ctx);
    pool_clear();
}

/* Patterns: one head's rows from another text; and the zeros of a head are its z without. */
TEST(edited_patterns)
{
    enum { LENGTH = 15, FROM = 4, COUNT = 6 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 1), *const others =
                                                                     random_tokens(odd, LENGTH, 2);
    sight *const clean = new_sight(), *const got = new_sight(), *const usual = new_sight();
    attn_edit e = edit_of("blocks.1.attn.hook_pattern", ATTN_EDIT_SET);
    attn_tensor pattern, was, now;
    size_t h, t, k, step;
    hooked(odd, others, LENGTH, LENGTH, NULL, NULL, NULL, e.name, clean);
    hooked(odd, tokens, LENGTH, LENGTH, NULL, NULL, NULL, e.name, usual);
    pattern = latest(clean, e.name);
    was = latest(usual, e.name);
    e.position = FROM;
    e.head = 1;
    e.n_heads = 1;
    e.value = attn_slice(attn_slice(pattern, 0, 1, 1), 1, FROM, COUNT);
    for (step = 3; step <= LENGTH; step += 12) {
        size_t i;
        got->n = 0;
        edited(odd, tokens, LENGTH, step, &e, e.name, got);
        for (i = 0; i < got->n; i++) {
            now = got->all[i].value;
            for (h = 0; h < 3; h++)
                for (t = 0; t < now.shape[1]; t++)
                    for (k = 0; k < now.shape[2]; k++) {
                        const size_t at = got->all[i].first + t;
                        const int is_edited = h == 1 && at >= FROM && at < FROM + COUNT;
                        CHECK(*entry(now, h, t, k) == *entry(is_edited ? pattern : was, h, at, k));
                    }
        }
    }

    /* Too few keys for what is fed: known before anything runs. */
    {
        attn_session *session = session_on(&ctx, odd, 0, 0);
        e.n_positions = 0;
        e.value = attn_slice(e.value, 2, 0, 9);
        OK(&ctx, attn_hook_edit(&ctx, NULL, session, &e));
        OK(&ctx, attn_feed(&ctx, session, tokens, 9));
        FAILS(&ctx, ATTN_E_SHAPE, "9 keys", attn_feed(&ctx, session, tokens + 9, 1));
        CHECK(attn_session_length(session) == 9);
        attn_unhook_all(session);
        OK(&ctx, attn_feed(&ctx, session, tokens + 9, 1));
        attn_session_free(session);
    }
    pool_clear();
}

TEST(wrong_edits)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, odd, 0, 0); /* 40 positions, 3 heads of 16 */
    attn_tensor vector = random_tensor(1, 48), rows = random_tensor(2, 5, 48),
                z = random_tensor(3, 5, 3, 16);
    attn_edit e = edit_of("blocks.1.hook_resid_pre", ATTN_EDIT_SET), wrong;
    const int32_t tokens[] = {1, 2, 3};
    e.value = vector;
    wrong = e;
    wrong.name = "blocks.1.hook_resid_pree";
    FAILS(&ctx, ATTN_E_NAME, "did you mean", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong = e;
    wrong.position = 40;
    FAILS(&ctx, ATTN_E_ARGUMENT, "room for 40", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong.position = 30;
    wrong.n_positions = 11;
    FAILS(&ctx, ATTN_E_ARGUMENT, "room for 40", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong = e;
    wrong.n_heads = 1;
    FAILS(&ctx, ATTN_E_ARGUMENT, "heads", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong = e;
    wrong.name = "*.hook_z";
    FAILS(&ctx, ATTN_E_SHAPE, "[48]", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong.value = z;
    wrong.head = 3;
    FAILS(&ctx, ATTN_E_ARGUMENT, "has 3", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong.head = 1;
    FAILS(&ctx, ATTN_E_SHAPE, "2 heads", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong.head = 0;
    wrong.n_positions = 4;
    FAILS(&ctx, ATTN_E_SHAPE, "4 positions", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong.name = "*.hook_pattern";
    wrong.kind = ATTN_EDIT_MEAN;
    FAILS(&ctx, ATTN_E_ARGUMENT, "no mean", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong = e;
    wrong.value = rows;
    wrong.n_positions = 3;
    FAILS(&ctx, ATTN_E_SHAPE, "3 positions", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong = e;
    wrong.name = "*.hook_resid_mid";
    wrong.value = attn_transpose(rows, 0, 1);
    FAILS(&ctx, ATTN_E_ARGUMENT, "48 positions from 0 on; the session has room for 40",
          attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong.n_positions = 5;
    FAILS(&ctx, ATTN_E_SHAPE, "[48, 5]", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong.value = attn_reshape(rows, attn_shape1(7));
    FAILS(&ctx, ATTN_E_ARGUMENT, "number of elements", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong.value = vector;
    wrong.value.dtype = ATTN_F16; /* it would be read beyond its end */
    FAILS(&ctx, ATTN_E_ARGUMENT, "expected ATTN_F32", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong = e;
    wrong.kind = (attn_edit_kind)9;
    FAILS(&ctx, ATTN_E_ARGUMENT, "number 9", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong = edit_of("blocks.1.attn.hook_*", ATTN_EDIT_SET); /* one position, or three? */
    wrong.value = random_tensor(3, 3, 3, 16);
    OK(&ctx, attn_hook_edit(&ctx, NULL, session, &wrong));
    attn_unhook_all(session);
    wrong.value = random_tensor(3, 2, 3, 16);
    FAILS(&ctx, ATTN_E_SHAPE, "hook_attn_scores", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong.value = random_tensor(3, 3, 2, 16);
    FAILS(&ctx, ATTN_E_SHAPE, "hook_q", attn_hook_edit(&ctx, NULL, session, &wrong));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no session", attn_hook_edit(&ctx, NULL, NULL, &e));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no edit", attn_hook_edit(&ctx, NULL, session, NULL));
    e.name = NULL;
    FAILS(&ctx, ATTN_E_ARGUMENT, "no name", attn_hook_edit(&ctx, NULL, session, &e));
    OK(&ctx, attn_feed(&ctx, session, tokens, 3));
    same_logits(attn_logits(session),
                hooked(odd, tokens, 3, 3, NULL, NULL, NULL, NULL, NULL) + 2 * vocab_of(odd), 1, odd,
                "no edit was left behind");
    attn_session_free(session);
    pool_clear();
}

/* A value of more positions than the session has room for is refused, said or not. */
TEST(a_value_that_reaches_further)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, odd, 0, 0); /* 40 positions */
    attn_edit e = edit_of("blocks.1.hook_resid_pre", ATTN_EDIT_SET);
    e.value = random_tensor(2, 70, 48);
    FAILS(&ctx, ATTN_E_ARGUMENT, "70 positions from 0 on; the session has room for 40",
          attn_hook_edit(&ctx, NULL, session, &e));
    e.value = random_tensor(2, 8, 48);
    e.position = 33;
    FAILS(&ctx, ATTN_E_ARGUMENT, "8 positions from 33 on", attn_hook_edit(&ctx, NULL, session, &e));
    e.position = 32;
    OK(&ctx, attn_hook_edit(&ctx, NULL, session, &e));
    attn_session_free(session);
    pool_clear();
}

/* Leading dimensions of a value may be missing: [H, d] for one position, [T, d] for one head,
 * [T, Tk] for the patterns of all heads. A factor of 0 is 1. */
TEST(values_without_leading_dimensions)
{
    enum { LENGTH = 12 };
    static const struct {
        const char *name;
        size_t head, n_heads;
        int full[3], part[2];
    } ways[] = {{"blocks.1.attn.hook_z", 0, 0, {1, 3, 16}, {3, 16}},
                {"blocks.1.attn.hook_z", 2, 1, {LENGTH, 1, 16}, {LENGTH, 16}},
                {"blocks.1.attn.hook_pattern", 0, 0, {1, LENGTH, LENGTH}, {LENGTH, LENGTH}}};
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 3);
    float *logits[2];
    size_t i, way;
    for (i = 0; i < 3; i++) {
        const attn_tensor full =
            random_tensor(3, ways[i].full[0], ways[i].full[1], ways[i].full[2]);
        for (way = 0; way < 2; way++) {
            attn_session *session = session_on(&ctx, odd, 0, 0);
            attn_edit e = edit_of(ways[i].name, ATTN_EDIT_ADD);
            e.head = ways[i].head;
            e.n_heads = ways[i].n_heads;
            e.factor = way ? 0 : 1;
            e.value = way ? attn_reshape(
                                full, attn_shape2((size_t)ways[i].part[0], (size_t)ways[i].part[1]))
                          : full;
            logits[way] = (float *)pool_new(vocab_of(odd) * sizeof(float));
            OK(&ctx, attn_hook_edit(&ctx, NULL, session, &e));
            OK(&ctx, attn_feed(&ctx, session, tokens, LENGTH));
            memcpy(logits[way], attn_logits(session), vocab_of(odd) * sizeof(float));
            attn_session_free(session);
        }
        same_logits(logits[1], logits[0], 1, odd, ways[i].name);
    }
    pool_clear();
}

/* Later keys stay hidden whatever is written to scores or patterns, so an edit gives the same bits
 * however a text is cut. */
TEST(edits_however_a_text_is_cut)
{
    enum { LENGTH = 24 };
    static const char *const names[] = {"blocks.1.attn.hook_attn_scores",
                                        "blocks.1.attn.hook_pattern"};
    static const size_t n_batch[] = {256, 4, 1};
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 4);
    float *want;
    size_t i, b;
    for (i = 0; i < 2; i++) {
        attn_edit e = edit_of(names[i], i ? ATTN_EDIT_ADD : ATTN_EDIT_ZERO);
        e.value = random_tensor(3, 1, 1, LENGTH);
        want = NULL;
        for (b = 0; b < 3; b++) {
            attn_session *session = session_on(&ctx, odd, 0, n_batch[b]);
            float *got;
            OK(&ctx, attn_hook_edit(&ctx, NULL, session, &e));
            got = feed_all(&ctx, session, tokens, LENGTH, LENGTH);
            if (want)
                same_logits(got, want, LENGTH, odd, names[i]);
            want = got;
            attn_session_free(session);
        }
    }
    pool_clear();
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
    attn_session *session = session_on(&ctx, odd, 0, 0);
    remover r[3];
    attn_hook_id id[3];
    size_t i;
    memset(r, 0, sizeof r);
    for (i = 0; i < 3; i++)
        OK(&ctx, attn_hook(&ctx, &id[i], session, "*.hook_attn_scores", remove_one, &r[i]));
    CHECK(id[0] && id[1] && id[2] && id[0] != id[1] && id[1] != id[2]);
    r[0].id = id[0]; /* its own */
    r[1].id = id[2]; /* before it was ever called */
    OK(&ctx, attn_feed(&ctx, session, tokens, LENGTH));
    CHECKF(r[0].n_calls == 1 && r[2].n_calls == 0 && r[1].n_calls > 1, "%llu %llu %llu calls",
           LLU(r[0].n_calls), LLU(r[1].n_calls), LLU(r[2].n_calls));
    FAILS(&ctx, ATTN_E_ARGUMENT, "removed before", attn_unhook(&ctx, session, id[0]));
    OK(&ctx, attn_unhook(&ctx, session, id[1]));
    FAILS(&ctx, ATTN_E_ARGUMENT, "another session", attn_unhook(&ctx, session, 99));
    FAILS(&ctx, ATTN_E_ARGUMENT, "0 is not the id", attn_unhook(&ctx, session, 0));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no session", attn_unhook(&ctx, NULL, 1));
    attn_session_free(session);
    pool_clear();
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
    FAILS(&ctx, ATTN_STOPPED, "freed a session", attn_feed(&ctx, session, tokens, LENGTH));
    pool_clear();
}

/* ---- patching ---- */

static int surprise(float *value, const float *logits, void *user)
{
    *value = logits[3] * 2 - logits[*(const int *)user];
    return 0;
}

static int give_up(float *value, const float *logits, void *user)
{
    *value = logits[0];
    return --*(int *)user < 0;
}

/* The naive way: one full forward for each patch, with a hook of our own. */
static float patched(const attn_model *model, const int32_t *tokens, size_t n, const char *name,
                     attn_tensor clean, int over_keys, size_t position, size_t head, int right,
                     int wrong)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, model, 0, 0);
    attn_edit e = edit_of(name, ATTN_EDIT_SET);
    float value;
    if (position < n) {
        e.position = position;
        e.n_positions = 1;
        e.value = attn_slice(clean, over_keys, position, 1);
    } else {
        e.head = head;
        e.n_heads = 1;
        e.value = attn_slice(clean, !over_keys, head, 1);
    }
    OK(&ctx, attn_hook_edit(&ctx, NULL, session, &e));
    OK(&ctx, attn_feed(&ctx, session, tokens, n));
    value = attn_logits(session)[right] - attn_logits(session)[wrong];
    attn_session_free(session);
    return value;
}

static void check_sweep(const attn_model *model, size_t n, const char *name)
{
    const attn_config *const c = attn_model_config(model);
    const int over_keys = strstr(name, "pattern") || strstr(name, "scores");
    const int has_heads = over_keys || strstr(name, "attn.") || strstr(name, "_input");
    attn_ctx ctx = alone();
    attn_patch_desc d;
    attn_tensor got = {0}, heads = {0};
    sight *const s = new_sight();
    char full[64];
    float clean, corrupted;
    size_t layer, i, n_differ = 0;
    int32_t *const corrupt = random_tokens(model, n, 2);
    memset(&d, 0, sizeof d);
    d.clean = random_tokens(model, n, 1);
    memcpy(corrupt, d.clean, n / 4 * sizeof *corrupt); /* they part and meet again */
    memcpy(corrupt + n / 2, d.clean + n / 2, (n - n / 2) * sizeof *corrupt);
    d.corrupted = corrupt;
    d.n_tokens = n;
    d.right = 7;
    d.wrong = 3;
    d.clean_value = &clean;
    d.corrupted_value = &corrupted;
    ctx.n_threads = 2;
    snprintf(full, sizeof full, "*.%s", name);
    hooked(model, d.clean, n, n, NULL, NULL, NULL, full, s);
    OK(&ctx, attn_patch_positions(&ctx, &got, model, &d, name));
    if (has_heads)
        OK(&ctx, attn_patch_heads(&ctx, &heads, model, &d, name));
    CHECK(got.ndim == 2 && got.shape[0] == c->n_layer && got.shape[1] == n);
    for (layer = 0; layer < c->n_layer; layer++) {
        snprintf(full, sizeof full, "blocks.%d.%s", (int)layer, name);
        for (i = 0; i < n; i++) {
            const float want =
                patched(model, corrupt, n, full, latest(s, full), over_keys, i, 0, 7, 3);
            n_differ += want != corrupted;
            CHECKF(*entry(got, layer, i, 0) == want, "%s at %llu: %.9g, expected %.9g", full,
                   LLU(i), (double)*entry(got, layer, i, 0), (double)want);
        }
        for (i = 0; has_heads && i < c->n_head; i++)
            CHECKF(*entry(heads, layer, i, 0) ==
                       patched(model, corrupt, n, full, latest(s, full), over_keys, n, i, 7, 3),
                   "%s, head %llu", full, LLU(i));
    }
    CHECK(n_differ > 0 && clean != corrupted);
    if (strcmp(name, "hook_resid_pre") == 0) /* the last position's last stream is all there is */
        CHECK(*entry(got, c->n_layer - 1, n - 1, 0) != clean);
    attn_ctx_free(&ctx);
    pool_clear();
}

/* Patches of more positions than they have rows together. */
TEST(sweep_of_a_long_text)
{
    enum { LENGTH = 530, PART = 517 };
    static const char *const name = "blocks.0.attn.hook_z";
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, longer, 0, 0);
    attn_record *record = NULL;
    attn_record_desc recorded;
    attn_patch_desc d;
    attn_tensor clean = {0}, heads = {0};
    size_t bytes = 0;
    int32_t *const corrupt = random_tokens(longer, LENGTH, 2);
    size_t i;
    memset(&d, 0, sizeof d);
    d.clean = random_tokens(longer, LENGTH, 1);
    memcpy(corrupt, d.clean, PART * sizeof *corrupt);
    d.corrupted = corrupt;
    d.n_tokens = LENGTH;
    d.right = 7;
    d.wrong = 3;
    memset(&recorded, 0, sizeof recorded);
    recorded.names = &name;
    recorded.n_names = 1;
    recorded.n_positions = LENGTH;
    OK(&ctx, attn_record_size(&ctx, &bytes, longer, &recorded));
    OK(&ctx, attn_record_new(&ctx, &record, session, &recorded, pool_new(bytes), bytes));
    OK(&ctx, attn_feed(&ctx, session, d.clean, LENGTH));
    OK(&ctx, attn_record_get(&ctx, &clean, record, name));
    OK(&ctx, attn_patch_heads(&ctx, &heads, longer, &d, "attn.hook_z"));
    for (i = 0; i < 2; i++)
        CHECK(*entry(heads, 0, i, 0) ==
              patched(longer, corrupt, LENGTH, name, clean, 0, LENGTH, i, 7, 3));
    CHECK(*entry(heads, 0, 0, 0) != *entry(heads, 0, 1, 0));
    attn_record_free(record);
    attn_session_free(session);
    attn_ctx_free(&ctx);
    pool_clear();
}

TEST(sweeps)
{
    static const char *const swept[] = {
        "hook_resid_pre",   "hook_resid_mid", "hook_resid_post",      "hook_attn_out",
        "hook_mlp_out",     "attn.hook_z",    "attn.hook_pattern",    "attn.hook_v",
        "attn.hook_result", "hook_q_input",   "attn.hook_attn_scores"};
    size_t i;
    for (i = 0; i < sizeof swept / sizeof swept[0]; i++) {
        check_sweep(odd, 11, swept[i]);
        check_sweep(i % 2 ? plain : narrow, 4, swept[i]); /* as many positions as heads */
    }
    check_sweep(odd, 40, "hook_resid_pre"); /* more patches than run at once */
    check_sweep(tiny, 9, "attn.hook_z");
    check_sweep(bytes8, 5, "hook_mlp_out");
}

/* Head 0 of layer 0 reads channels 0 to 15 alone, and where two texts part, at position 2, their
 * tokens differ only in that others change places: whole numbers, so that mean and variance stay
 * exact. What head 0 does then first differs at position 3, what the others do at 2, and the
 * patches of the layer begin at different positions. */
TEST(a_blind_head)
{
    enum { LENGTH = 11, AT = 2, CHANNELS = 16, WIDTH = 64 };
    const attn_model_desc unchecked = {.skip_checksums = 1};
    attn_ctx ctx = alone();
    attn_model *model = NULL;
    attn_tensor_info info;
    attn_tensor v[2];
    size_t size, i, j, k;
    unsigned char *file = test_read(test_tmp("hooks-plain.attn"), &size);
    int text;
    for (i = 0; file && i < attn_model_n_tensors(plain); i++) {
        unsigned char *data = file;
        if (!OK(&ctx, attn_model_tensor_info(&ctx, &info, plain, i)))
            break;
        data += info.offset; /* entry (k, n) of a matrix: see "panels" in the manual */
        if (strcmp(info.name, "pos_embed.W_pos") == 0)
            memset(data + 4 * AT * WIDTH, 0, 4 * WIDTH);
        for (text = 0; text < 2 && strcmp(info.name, "embed.W_E") == 0; text++) {
            const size_t n = (size_t)random_tokens(plain, LENGTH, (uint64_t)text + 1)[AT];
            for (k = 0; k < WIDTH; k++) {
                const size_t from = text && k >= CHANNELS ? k ^ 1 : k;
                const float value = (float)(from * from % 7) - 3;
                memcpy(data + 4 * ((n / 16 * WIDTH + k) * 16 + n % 16), &value, 4);
            }
        }
        for (j = 0; j < 3 * WIDTH && strcmp(info.name, "blocks.0.attn.W_QKV") == 0; j += WIDTH)
            for (k = CHANNELS; k < WIDTH; k++)
                memset(data + 4 * (j / 16 * WIDTH + k) * 16, 0, 4 * 16);
    }
    if (CHECK(file))
        test_write(test_tmp("hooks-blind.attn"), file, size);
    free(file);
    if (!OK(&ctx, attn_model_open(&ctx, &model, test_tmp("hooks-blind.attn"), &unchecked)))
        return;
    for (text = 0; text < 2; text++) { /* those of check_sweep */
        sight *const s = new_sight();
        hooked(model, random_tokens(model, LENGTH, (uint64_t)text + 1), LENGTH, LENGTH, NULL, NULL,
               NULL, "blocks.0.attn.hook_v", s);
        v[text] = latest(s, "blocks.0.attn.hook_v");
    }
    CHECK(!differ(entry(v[0], AT, 0, 0), entry(v[1], AT, 0, 0), 16));
    CHECK(differ(entry(v[0], AT, 1, 0), entry(v[1], AT, 1, 0), 16));
    CHECK(differ(entry(v[0], AT + 1, 0, 0), entry(v[1], AT + 1, 0, 0), 16));
    check_sweep(model, LENGTH, "attn.hook_v");
    check_sweep(model, LENGTH, "attn.hook_z");
    attn_model_close(model);
    attn_ctx_free(&ctx);
}

/* A path by its definition: run the corrupted text with the sender clean and every other writer
 * frozen at what it wrote, and see what reaches the reader; then run again with that. */
static void check_path(const attn_model *model, const attn_path *path)
{
    enum { LENGTH = 10 };
    const attn_config *const c = attn_model_config(model);
    attn_ctx ctx = alone();
    const int32_t *const clean = random_tokens(model, LENGTH, 1), *const corrupted = random_tokens(
                                                                      model, LENGTH, 2);
    attn_session *session = session_on(&ctx, model, 0, 0);
    sight *const was = new_sight(), *const is = new_sight(), *const reached = new_sight();
    attn_tensor outs[64];
    attn_patch_desc d;
    attn_edit e;
    char name[64];
    size_t i, j, k;
    float got = 0, want;
    memset(&d, 0, sizeof d);
    d.clean = clean;
    d.corrupted = corrupted;
    d.n_tokens = LENGTH;
    d.right = 5;
    d.wrong = 6;
    OK(&ctx, attn_patch_path(&ctx, &got, model, &d, path));
    hooked(model, clean, LENGTH, LENGTH, NULL, NULL, NULL, "*.hook_result", is);
    hooked(model, corrupted, LENGTH, LENGTH, NULL, NULL, NULL, "*_out", was);
    for (i = 0; i < c->n_layer; i++) { /* what others write, frozen */
        snprintf(name, sizeof name, "blocks.%d.hook_mlp_out", (int)i);
        outs[2 * i] = latest(was, name);
        OK(&ctx, attn_hook(&ctx, NULL, session, name, put_rows, &outs[2 * i]));
        snprintf(name, sizeof name, "blocks.%d.hook_attn_out", (int)i);
        outs[2 * i + 1] = latest(was, name);
        if (i != path->from_layer)
            OK(&ctx, attn_hook(&ctx, NULL, session, name, put_rows, &outs[2 * i + 1]));
    }
    snprintf(name, sizeof name, "blocks.%d.attn.hook_result", (int)path->from_layer);
    e = edit_of(name, ATTN_EDIT_SET);
    e.head = path->from_head;
    e.n_heads = 1;
    e.value = attn_slice(latest(is, name), 1, path->from_head, 1);
    OK(&ctx, attn_hook_edit(&ctx, NULL, session, &e));
    OK(&ctx, attn_hook(&ctx, NULL, session, "*.hook_resid_*", note, reached));
    OK(&ctx, attn_feed(&ctx, session, corrupted, LENGTH));
    want = attn_logits(session)[5] - attn_logits(session)[6];
    if (path->to_layer < c->n_layer) {
        attn_tensor stream;
        attn_unhook_all(session);
        OK(&ctx, attn_truncate(&ctx, session, 0));
        snprintf(name, sizeof name, "blocks.%d.hook_resid_%s", (int)path->to_layer,
                 strstr(path->to, "mlp") ? "mid" : "pre");
        stream = latest(reached, name);
        snprintf(name, sizeof name, "blocks.%d.%s", (int)path->to_layer, path->to);
        e = edit_of(name, ATTN_EDIT_SET);
        e.value = stream;
        if (strstr(path->to, "_input")) {
            attn_tensor copies = random_tensor(3, LENGTH, 1, (int)c->d_model);
            for (i = 0; i < LENGTH; i++)
                for (j = 0, k = 0; k < c->d_model; k++)
                    *entry(copies, i, j, k) = *entry(stream, i, k, 0);
            e.head = path->to_head;
            e.n_heads = 1;
            e.value = copies;
        }
        OK(&ctx, attn_hook_edit(&ctx, NULL, session, &e));
        OK(&ctx, attn_feed(&ctx, session, corrupted, LENGTH));
        want = attn_logits(session)[5] - attn_logits(session)[6];
    }
    CHECKF(fabs((double)got - (double)want) < 2e-5 * (1 + fabs((double)want)),
           "%llu.%llu to %s of %llu: %.9g, expected %.9g", LLU(path->from_layer),
           LLU(path->from_head), path->to, LLU(path->to_layer), (double)got, (double)want);
    {
        float *const usual =
            hooked(model, corrupted, LENGTH, LENGTH, NULL, NULL, NULL, NULL, NULL) +
            (LENGTH - 1) * vocab_of(model);
        CHECKF(fabs((double)got - (double)(usual[5] - usual[6])) > 1e-5, "%s changed nothing",
               path->to);
    }
    attn_session_free(session);
    pool_clear();
}

TEST(paths)
{
    static const attn_path all[] = {
        {.from_layer = 0, .from_head = 1, .to_layer = 1, .to = "hook_q_input", .to_head = 2},
        {.from_layer = 0, .from_head = 0, .to_layer = 2, .to = "hook_k_input", .to_head = 1},
        {.from_layer = 1, .from_head = 2, .to_layer = 2, .to = "hook_v_input", .to_head = 0},
        {.from_layer = 0, .from_head = 1, .to_layer = 2, .to = "hook_resid_pre", .to_head = 0},
        {.from_layer = 0, .from_head = 2, .to_layer = 3, .to = "hook_resid_pre", .to_head = 0},
        {.from_layer = 1, .from_head = 1, .to_layer = 1, .to = "hook_mlp_in", .to_head = 0},
        {.from_layer = 0, .from_head = 1, .to_layer = 2, .to = "hook_mlp_in", .to_head = 0},
        {.from_layer = 2, .from_head = 0, .to_layer = 3, .to = "hook_resid_pre", .to_head = 0}};
    size_t i;
    for (i = 0; i < sizeof all / sizeof all[0]; i++) {
        check_path(odd, &all[i]);
        check_path(narrow, &all[i]);
    }
}

TEST(patch_rules)
{
    attn_ctx ctx = alone();
    const int32_t clean[] = {1, 2, 3, 4}, corrupted[] = {5, 2, 3, 4}, bad[] = {1, 2, 301, 4};
    attn_tensor out = {0}, small = random_tensor(2, 3, 5);
    attn_patch_desc d, wrong;
    attn_path path = {.from_layer = 0,
                      .from_head = 0,
                      .to_layer = 1,
                      .to = "hook_q_input",
                      .to_head = 0},
              astray;
    float value = 0;
    int question = 9, patience = 5;
    meter m;
    attn_ctx counted = metered(&m);
    attn_status status = ATTN_E_MEMORY;
    long n;
    memset(&d, 0, sizeof d);
    d.clean = clean;
    d.corrupted = corrupted;
    d.n_tokens = 4;
    d.right = 1;
    d.wrong = 2;
    FAILS(&ctx, ATTN_E_NAME, "did you mean",
          attn_patch_positions(&ctx, &out, odd, &d, "hook_resid_prex"));
    FAILS(&ctx, ATTN_E_NAME, "", attn_patch_positions(&ctx, &out, odd, &d, "*"));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no name", attn_patch_positions(&ctx, &out, odd, &d, NULL));
    FAILS(&ctx, ATTN_E_NAME, "no heads", attn_patch_heads(&ctx, &out, odd, &d, "hook_mlp_out"));
    FAILS(&ctx, ATTN_E_SHAPE, "[3, 4]",
          attn_patch_positions(&ctx, &small, odd, &d, "hook_mlp_out"));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no model",
          attn_patch_positions(&ctx, &out, NULL, &d, "hook_mlp_out"));
    wrong = d;
    wrong.n_tokens = 0;
    FAILS(&ctx, ATTN_E_ARGUMENT, "0 tokens",
          attn_patch_positions(&ctx, &out, odd, &wrong, "hook_mlp_out"));
    wrong = d;
    wrong.corrupted = bad;
    FAILS(&ctx, ATTN_E_TOKEN, "corrupted token 2 is 301",
          attn_patch_positions(&ctx, &out, odd, &wrong, "hook_mlp_out"));
    wrong = d;
    wrong.wrong = -1;
    FAILS(&ctx, ATTN_E_TOKEN, "wrong -1",
          attn_patch_positions(&ctx, &out, odd, &wrong, "hook_mlp_out"));
    wrong = d;
    wrong.metric = give_up;
    wrong.user = &patience;
    FAILS(&ctx, ATTN_STOPPED, "metric",
          attn_patch_positions(&ctx, &out, odd, &wrong, "hook_mlp_out"));
    CHECK(patience == -1 && out.ndim == 0);
    wrong.metric = surprise;
    wrong.user = &question;
    OK(&ctx, attn_patch_positions(&ctx, &out, odd, &wrong, "hook_resid_pre"));
    {
        const float *const logits =
            hooked(odd, clean, 4, 4, NULL, NULL, NULL, NULL, NULL) + 3 * vocab_of(odd);
        CHECK(*entry(out, 0, 0, 0) == logits[3] * 2 - logits[9]); /* only that token differed */
    }
    astray = path;
    astray.to_layer = 0;
    FAILS(&ctx, ATTN_E_ARGUMENT, "no path", attn_patch_path(&ctx, &value, odd, &d, &astray));
    astray = path;
    astray.from_head = 3;
    FAILS(&ctx, ATTN_E_ARGUMENT, "no path", attn_patch_path(&ctx, &value, odd, &d, &astray));
    astray = path;
    astray.to_layer = 3;
    FAILS(&ctx, ATTN_E_ARGUMENT, "no path", attn_patch_path(&ctx, &value, odd, &d, &astray));
    astray = path;
    astray.to = "attn.hook_z";
    FAILS(&ctx, ATTN_E_NAME, "hook_mlp_in", attn_patch_path(&ctx, &value, odd, &d, &astray));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no path given", attn_patch_path(&ctx, &value, odd, &d, NULL));

    /* Whatever runs out, nothing is left behind. */
    counted.n_threads = 1;
    for (n = 0; n < 400 && status != ATTN_OK; n++) {
        attn_tensor made = {0};
        m.fail_at = m.asked + n;
        status = attn_patch_heads(&counted, &made, odd, &d, "attn.hook_z");
        m.fail_at = -1;
        CHECK(status == ATTN_OK || status == ATTN_E_MEMORY);
        attn_tensor_free(&counted, &made);
        CHECKF(m.live == 0 && m.wrong == 0, "allocation %ld: %ld blocks are left", n, m.live);
    }
    CHECKF(status == ATTN_OK && n > 10, "%s after %ld", attn_status_name(status), n);
    for (n = 0, status = ATTN_E_MEMORY; n < 400 && status != ATTN_OK; n++) {
        m.fail_at = m.asked + n;
        status = attn_patch_path(&counted, &value, odd, &d, &path);
        m.fail_at = -1;
        CHECK((status == ATTN_OK || status == ATTN_E_MEMORY) && m.live == 0);
    }
    CHECK(status == ATTN_OK && n > 10);
    attn_ctx_free(&ctx);
    pool_clear();
}

/* A hook on one session of a batch that would change what another is being fed. */
static int reach_over(const attn_activation *a, void *user)
{
    attn_session *const other = (attn_session *)user;
    const attn_config *const c = attn_model_config(attn_session_model(other));
    attn_ctx ctx = alone();
    FAILS(&ctx, ATTN_E_ARGUMENT, "the session holds 0",
          attn_cache_set(&ctx, other, ATTN_CACHE_VALUES, (size_t)a->layer, 0,
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
    same_logits(attn_logits(other), attn_logits(session), 1, odd, "of a session left alone");
    attn_session_free(session);
    attn_session_free(other);
    pool_clear();
}

/* ---- keys and values kept as f16 ---- */

static int halve(const attn_activation *a, void *user)
{
    size_t t, head, j;
    (void)user;
    for (t = 0; t < a->value.shape[0]; t++)
        for (head = 0; head < a->value.shape[1]; head++)
            for (j = 0; j < a->value.shape[2]; j++) {
                float *const x = entry(a->value, t, head, j);
                *x = attn_f32_from_f16(attn_f16_from_f32(*x));
            }
    return 0;
}

static attn_session *halved(attn_ctx *ctx, const attn_model *model, size_t n_ctx)
{
    attn_session *session = NULL;
    attn_session_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.n_ctx = n_ctx;
    desc.n_batch = 11;
    desc.cache_dtype = ATTN_F16;
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
    attn_ctx ctx = fused();
    attn_session *rounded = session_on(&ctx, model, 0, 0), *session, *other;
    attn_tensor want_kept = {0}, kept = {0};
    attn_feed_item items[2];
    float *want, *logits = (float *)pool_new(vocab_of(model) * sizeof *logits);
    size_t layer, i;
    int part, kind;
    OK(&ctx, attn_hook(&ctx, NULL, rounded, "*.hook_k", halve, NULL));
    OK(&ctx, attn_hook(&ctx, NULL, rounded, "*.hook_v", halve, NULL));
    want = feed_all(&ctx, rounded, tokens, n, n);
    CHECK(memcmp(want, logits_of(&ctx, model, 0, tokens, n, n),
                 n * vocab_of(model) * sizeof *want) != 0);
    for (kind = ATTN_ISA_AUTO; kind <= ATTN_ISA_AMX; kind++) {
        ctx.isa = (attn_isa_kind)kind;
        ctx.n_threads = 1 + kind % 2;
        if (!attn_isa(&ctx) || strstr(attn_isa(&ctx), "no fused"))
            continue;
        session = halved(&ctx, model, 0);
        same_logits(feed_all(&ctx, session, tokens, n, n), want, n, model, attn_isa(&ctx));
        OK(&ctx, attn_truncate(&ctx, session, 0));
        same_logits(feed_all(&ctx, session, tokens, n, RANDOM_CUTS), want, n, model, "cuts");
        attn_session_free(session);
    }
    ctx = fused();
    session = halved(&ctx, model, n); /* copied half-way into one of another size, in a batch */
    other = halved(&ctx, model, 0);
    OK(&ctx, attn_feed(&ctx, session, tokens, n / 2));
    OK(&ctx, attn_session_copy(&ctx, other, session));
    OK(&ctx, attn_truncate(&ctx, other, n / 2 - 1));
    items[0] = item_of(session, tokens + n / 2, n - n / 2, NULL);
    items[1] = item_of(other, tokens + n / 2 - 1, n - n / 2 + 1, NULL);
    pair[0] = session;
    pair[1] = other;
    share_workspace(&ctx, pair, 2, 0);
    OK(&ctx, attn_feed_batch(&ctx, items, 2));
    memcpy(logits, attn_logits(session), vocab_of(model) * sizeof *logits);
    same_logits(logits, want + (n - 1) * vocab_of(model), 1, model, "in a batch");
    same_logits(attn_logits(other), want + (n - 1) * vocab_of(model), 1, model, "of a copy");
    for (part = ATTN_CACHE_KEYS; part <= ATTN_CACHE_VALUES; part++)
        for (layer = 0; layer < c->n_layer; layer++) {
            const attn_cache_part of = (attn_cache_part)part;
            OK(&ctx, attn_cache_get(&ctx, &want_kept, rounded, of, layer, 0, n));
            OK(&ctx, attn_cache_get(&ctx, &kept, other, of, layer, 0, n));
            same_floats((float *)kept.data, (float *)want_kept.data, 1, per_layer, "kept");
        }
    attn_tensor_free(&ctx, &kept);
    want_kept = random_tensor(3, 2, (int)c->n_head, (int)d); /* what is written is rounded too */
    OK(&ctx, attn_cache_set(&ctx, other, ATTN_CACHE_VALUES, 0, 3, want_kept));
    OK(&ctx, attn_cache_get(&ctx, &kept, other, ATTN_CACHE_VALUES, 0, 3, 2));
    for (i = 0; i < 2 * c->n_head * d; i++) {
        const size_t t = i / d / c->n_head, head = i / d % c->n_head;
        CHECK(*entry(kept, t, head, i % d) ==
              attn_f32_from_f16(attn_f16_from_f32(*entry(want_kept, t, head, i % d))));
    }
    FAILS(&ctx, ATTN_E_ARGUMENT, "one session keeps f16, the other f32",
          attn_session_copy(&ctx, rounded, session));
    attn_session_free(rounded);
    attn_session_free(session);
    attn_session_free(other);
    attn_ctx_free(&ctx);
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
    check_halves(tiny, 70);
    check_halves(longer, 300); /* values in more than one chain */
    memset(&desc, 0, sizeof desc);
    OK(&ctx, attn_session_size(&ctx, &whole, tiny, &desc));
    desc.cache_dtype = ATTN_F16;
    OK(&ctx, attn_session_size(&ctx, &half, tiny, &desc));
    CHECK(whole - half == (size_t)2 * 2 * attn_model_config(tiny)->n_layer *
                              attn_model_config(tiny)->n_ctx * attn_model_config(tiny)->d_model);
    desc.cache_dtype = ATTN_Q8;
    FAILS(&ctx, ATTN_E_ARGUMENT, "ATTN_F32 or ATTN_F16",
          attn_session_new(&ctx, &session, tiny, &desc));
    CHECK(session == NULL);
}

TEST(arguments_of_records)
{
    attn_ctx ctx = {0};
    attn_session *session = session_on(&ctx, plain, 0, 0);
    static const char *const names[] = {"*hook_resid_pre", NULL};
    attn_record_desc desc;
    attn_record *record = NULL;
    float *memory;
    size_t bytes = 0;
    memset(&desc, 0, sizeof desc);
    REFUSED(ATTN_E_ARGUMENT, "no model or session", attn_record_size(&ctx, &bytes, NULL, NULL));
    REFUSED(ATTN_E_ARGUMENT, "no model or session",
            attn_record_new(&ctx, &record, NULL, NULL, &bytes, 8));
    desc.n_names = 2;
    REFUSED(ATTN_E_ARGUMENT, "name 0 is missing", attn_record_size(&ctx, &bytes, plain, &desc));
    desc.names = names;
    REFUSED(ATTN_E_ARGUMENT, "name 1 is missing", attn_record_size(&ctx, &bytes, plain, &desc));
    REFUSED(ATTN_E_ARGUMENT, "name 1 is missing",
            attn_record_new(&ctx, &record, session, &desc, &bytes, 8));
    desc.n_names = 1;
    desc.first = attn_model_config(plain)->n_ctx;
    REFUSED(ATTN_E_ARGUMENT, "the model's n_ctx is", attn_record_size(&ctx, &bytes, plain, &desc));
    desc.first = 1;
    desc.n_positions = attn_model_config(plain)->n_ctx;
    REFUSED(ATTN_E_ARGUMENT, "the model's n_ctx is", attn_record_size(&ctx, &bytes, plain, &desc));
    desc.first = desc.n_positions = 0;
    ctx.status = ATTN_OK;
    OK(&ctx, attn_record_size(&ctx, &bytes, plain, &desc));
    memory = (float *)pool_new(bytes);
    OK(&ctx, attn_record_new(&ctx, &record, session, &desc, memory, bytes));
    OK(&ctx, attn_feed(&ctx, session, ten, 4));
    REFUSED(ATTN_E_ARGUMENT, "no record",
            attn_record_get(&ctx, &not_made, NULL, "blocks.0.hook_resid_pre"));
    REFUSED(ATTN_E_ARGUMENT, "no name", attn_record_get(&ctx, &not_made, record, NULL));
    REFUSED(ATTN_E_ARGUMENT, "place for the tensor",
            attn_record_get(&ctx, NULL, record, "blocks.0.hook_resid_pre"));
    REFUSED(ATTN_E_ARGUMENT, "no record", attn_record_save(&ctx, test_tmp("x.npz"), NULL));
    attn_record_free(record);
    attn_session_free(session);
    done(&ctx);
}

TEST(arguments_of_edits)
{
    attn_ctx ctx = {0};
    attn_session *session = session_on(&ctx, plain, 0, 0);
    const attn_config *c = attn_model_config(plain);
    attn_tensor mean = some(1, c->d_model, 1, 1), got = no_tensor;
    attn_edit edit;
    sight *s = new_sight();
    memset(&edit, 0, sizeof edit);
    edit.name = "blocks.0.hook_resid_mid";
    edit.kind = ATTN_EDIT_SET;
    REFUSED(ATTN_E_ARGUMENT, "the value is no tensor", attn_hook_edit(&ctx, NULL, session, &edit));
    edit.value.error = "a reason";
    REFUSED(ATTN_E_ARGUMENT, "the value is no tensor: a reason",
            attn_hook_edit(&ctx, NULL, session, &edit));
    edit.value = some_ids(c->d_model, 0);
    REFUSED(ATTN_E_ARGUMENT, "expected ATTN_F32", attn_hook_edit(&ctx, NULL, session, &edit));
    edit.value.ndim = 7;
    REFUSED(ATTN_E_ARGUMENT, "the value has 7 dimensions",
            attn_hook_edit(&ctx, NULL, session, &edit));
    edit.value = some(3, 1, 1, c->d_model); /* there are no heads here */
    REFUSED(ATTN_E_SHAPE, "attn_hook_edit", attn_hook_edit(&ctx, NULL, session, &edit));
    edit.value = mean;
    edit.n_heads = 1;
    REFUSED(ATTN_E_ARGUMENT, "heads from", attn_hook_edit(&ctx, NULL, session, &edit));
    edit.name = "blocks.0.attn.hook_z";
    edit.value = some(1, c->d_head, 1, 1);
    edit.n_heads = c->n_head + 1;
    REFUSED(ATTN_E_ARGUMENT, "heads from", attn_hook_edit(&ctx, NULL, session, &edit));
    edit.n_heads = 1;
    edit.value = some(3, 1, 2, c->d_head);
    REFUSED(ATTN_E_SHAPE, "attn_hook_edit", attn_hook_edit(&ctx, NULL, session, &edit));

    /* the mean over one position is what stands there, at every position from 1 on */
    edit.name = "blocks.0.hook_resid_mid";
    edit.n_heads = 0;
    edit.kind = ATTN_EDIT_MEAN;
    edit.value = mean;
    edit.position = 1;
    ctx.status = ATTN_OK;
    OK(&ctx, attn_hook_edit(&ctx, NULL, session, &edit));
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.hook_resid_mid", note, s));
    OK(&ctx, attn_feed(&ctx, session, ten, 3));
    got = latest(s, "blocks.0.hook_resid_mid");
    if (CHECK(got.ndim == 2)) {
        CHECK(differ((const float *)got.data, (const float *)mean.data, c->d_model));
        CHECK(
            !differ((const float *)got.data + got.stride[0], (const float *)mean.data, c->d_model));
        CHECK(!differ((const float *)got.data + 2 * got.stride[0], (const float *)mean.data,
                      c->d_model));
    }
    attn_session_free(session);
    done(&ctx);
}

TEST(arguments_of_patches)
{
    attn_ctx ctx = {0};
    int32_t clean[4] = {1, 2, 3, 4}, corrupted[4] = {1, 5, 3, 4};
    attn_patch_desc d;
    attn_path path;
    float value = 3;
    const int32_t n_vocab = (int32_t)attn_model_config(plain)->n_vocab;
    memset(&d, 0, sizeof d);
    memset(&path, 0, sizeof path);
#define POSITIONS(text, status_)                                                                   \
    REFUSED(status_, text, attn_patch_positions(&ctx, &not_made, plain, &d, "hook_resid_pre"))
    REFUSED(ATTN_E_ARGUMENT, "no model given",
            attn_patch_positions(&ctx, &not_made, NULL, &d, "hook_resid_pre"));
    REFUSED(ATTN_E_ARGUMENT, "no description given",
            attn_patch_positions(&ctx, &not_made, plain, NULL, "hook_resid_pre"));
    POSITIONS("no clean text", ATTN_E_ARGUMENT);
    d.clean = clean;
    POSITIONS("no corrupted text", ATTN_E_ARGUMENT);
    d.corrupted = corrupted;
    POSITIONS("texts of 0 tokens", ATTN_E_ARGUMENT);
    d.n_tokens = attn_model_config(plain)->n_ctx + 1;
    POSITIONS("expected 1 to", ATTN_E_ARGUMENT);
    d.n_tokens = 4;
    d.right = -1;
    POSITIONS("right is -1", ATTN_E_TOKEN);
    d.right = n_vocab;
    POSITIONS("right is", ATTN_E_TOKEN);
    d.right = 0;
    d.wrong = -1;
    POSITIONS("wrong -1", ATTN_E_TOKEN);
    d.wrong = n_vocab;
    POSITIONS("and wrong", ATTN_E_TOKEN);
    d.wrong = 1;
    clean[2] = -5;
    POSITIONS("clean token 2 is -5", ATTN_E_TOKEN);
    clean[2] = 3;
    corrupted[1] = n_vocab;
    POSITIONS("corrupted token 1 is 97", ATTN_E_TOKEN);
    corrupted[1] = 5;
    REFUSED(ATTN_E_ARGUMENT, "no place for the result",
            attn_patch_positions(&ctx, NULL, plain, &d, "hook_resid_pre"));
    REFUSED(ATTN_E_ARGUMENT, "no name", attn_patch_positions(&ctx, &not_made, plain, &d, NULL));

#define PATH(text, status_)                                                                        \
    REFUSED(status_, text, attn_patch_path(&ctx, &value, plain, &d, &path));                       \
    CHECK(value == 3)
    PATH("not nothing", ATTN_E_NAME);
    path.to = "hook_z";
    PATH("not hook_z", ATTN_E_NAME);
    path.to = "hook_mlp_in";
    path.from_head = attn_model_config(plain)->n_head;
    CHECK(attn_patch_path(&ctx, &value, plain, &d, &path) != ATTN_OK);
    path.from_head = 0;
    path.to_head = attn_model_config(plain)->n_head;
    CHECK(attn_patch_path(&ctx, &value, plain, &d, &path) != ATTN_OK);
    path.to_head = 0;
    path.from_layer = attn_model_config(plain)->n_layer;
    CHECK(attn_patch_path(&ctx, &value, plain, &d, &path) != ATTN_OK);
    path.from_layer = 0;
    REFUSED(ATTN_E_ARGUMENT, "no place for the value",
            attn_patch_path(&ctx, NULL, plain, &d, &path));
    REFUSED(ATTN_E_ARGUMENT, "no path given", attn_patch_path(&ctx, &value, plain, &d, NULL));
    d.n_tokens = 0;
    PATH("texts of 0 tokens", ATTN_E_ARGUMENT);
    done(&ctx);
}

typedef struct stopper {
    int calls, later, at; /* at: the call that stops */
} stopper;

static int stop(const attn_activation *a, void *user)
{
    stopper *s = (stopper *)user;
    (void)a;
    return s->calls++ == s->at;
}

static int come_later(const attn_activation *a, void *user)
{
    (void)a;
    ((stopper *)user)->later++;
    return 0;
}

/* After a hook has stopped a pass no other hook is called, and whatever ran the pass says so. */
TEST(stopped_in_the_middle)
{
    attn_ctx ctx = {0};
    attn_session *session = session_on(&ctx, plain, 0, 2);
    attn_generate_desc desc;
    stopper s = {0, 0, 0};
    attn_token_stats stats[9];
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.hook_resid_mid", stop, &s));
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.hook_resid_mid", come_later, &s));
    FAILS(&ctx, ATTN_STOPPED, "", attn_feed(&ctx, session, ten, 1));
    CHECK(s.calls == 1 && s.later == 0);
    s.calls = s.later = 0;
    FAILS(&ctx, ATTN_STOPPED, "", attn_score(&ctx, stats, NULL, 0, session, ten, 10));
    CHECK(s.calls == 1 && s.later == 0);
    memset(&desc, 0, sizeof desc);
    desc.max_tokens = 6;
    desc.n_draft = -1;
    desc.prompt_ids = ten;
    desc.n_prompt_ids = 2;
    s.calls = 0;
    s.at = 3; /* the prompt is one pass, and then there is one for each token */
    FAILS(&ctx, ATTN_STOPPED, "", attn_generate(&ctx, session, NULL, &desc, NULL, NULL));
    CHECK(s.calls == 4);
    attn_session_free(session);
    done(&ctx);
}

TEST(names_of_any_length)
{
    attn_ctx ctx = {0};
    attn_session *session = session_on(&ctx, plain, 0, 0);
    char name[100];
    memset(name, 'x', sizeof name);
    name[99] = 0;
    memcpy(name, "blocks.0.", 9);
    REFUSED(ATTN_E_NAME, "", attn_model_tensor(&ctx, &not_made, plain, name));
    FAILS(&ctx, ATTN_E_NAME, "", attn_hook(&ctx, NULL, session, name, stop, NULL));
    REFUSED(ATTN_E_NAME, "", attn_model_tensor(&ctx, &not_made, plain, "blocks.0.attn.WxQ"));
    REFUSED(ATTN_E_NAME, "", attn_model_tensor(&ctx, &not_made, plain, "W_Q"));
    attn_session_free(session);
    done(&ctx);
}
