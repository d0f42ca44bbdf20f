/* The glass box: activations that are made on request, names, the cache, records, parts of a pass,
 * edits and patching. Three random models whose activations numpy worked out in float64
 * (golden/make_golden.py), one of them with heads of 5 dimensions, which lie across panels, and the
 * included model, whose weights are halfs. Most of it is compared bit by bit with another way. */
#include "fixture.h"

#ifndef TEST_BUILD
#define TEST_BUILD "build"
#endif

#define LLU(x) ((unsigned long long)(x))

static attn_model *plain, *odd, *narrow, *tiny;

/* ---- tools ---- */

static attn_ctx alone(void)
{
    attn_ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    ctx.n_threads = 1;
    return ctx;
}

static attn_model *converted(const char *from, const char *name)
{
    const char *const path = test_tmp(name);
    char command[512];
    attn_ctx ctx = alone();
    attn_model *model = NULL;
    snprintf(command, sizeof command, TEST_BUILD "/attn-convert %s %s --no-tokenizer >/dev/null",
             from, path);
    if (CHECKF(system(command) == 0, "%s failed", command))
        OK(&ctx, attn_model_open(&ctx, &model, path, NULL));
    return model;
}

static size_t vocab_of(const attn_model *model)
{
    return attn_model_config(model)->n_vocab;
}

static attn_session *session_on(attn_ctx *ctx, const attn_model *model, size_t n_batch)
{
    attn_session *session = NULL;
    attn_session_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.n_batch = n_batch;
    OK(ctx, attn_session_new(ctx, &session, model, &desc));
    return session;
}

static int32_t *random_tokens(const attn_model *model, size_t n, uint64_t seed)
{
    int32_t *tokens = (int32_t *)pool_new(n * sizeof *tokens);
    size_t i;
    random_state = seed * 2 + 1;
    for (i = 0; i < n; i++)
        tokens[i] = (int32_t)random_below(vocab_of(model));
    return tokens;
}

static attn_feed_item item_of(attn_session *session, const int32_t *tokens, size_t n, float *logits)
{
    attn_feed_item item;
    memset(&item, 0, sizeof item);
    item.session = session;
    item.tokens = tokens;
    item.n_tokens = n;
    item.logits = logits;
    return item;
}

/* All logits [n, n_vocab] of tokens fed `step` at a time. */
static float *feed_all(attn_ctx *ctx, attn_session *session, const int32_t *tokens, size_t n,
                       size_t step)
{
    const size_t n_vocab = vocab_of(attn_session_model(session));
    float *logits = (float *)pool_new(n * n_vocab * sizeof *logits);
    size_t at, take;
    memset(logits, 0xFF, n * n_vocab * sizeof *logits); /* NaN */
    for (at = 0; at < n; at += take) {
        attn_feed_item item;
        take = step < n - at ? step : n - at;
        item = item_of(session, tokens + at, take, logits + at * n_vocab);
        if (!OK(ctx, attn_feed_batch(ctx, &item, 1)))
            break;
    }
    return logits;
}

static int same_floats(const float *got, const float *want, size_t n, const char *what)
{
    size_t i;
    for (i = 0; i < n && memcmp(got + i, want + i, sizeof *got) == 0; i++)
        ;
    return CHECKF(i == n, "%s: number %llu is %.9g (%a), expected the bits of %.9g (%a)", what,
                  LLU(i), (double)got[i], (double)got[i], (double)want[i], (double)want[i]);
}

static int same_logits(const float *got, const float *want, size_t rows, const attn_model *model,
                       const char *what)
{
    return same_floats(got, want, rows * vocab_of(model), what);
}

static int differ(const float *a, const float *b, size_t n)
{
    return memcmp(a, b, n * sizeof *a) != 0;
}

static float *entry(attn_tensor x, size_t i, size_t j, size_t k)
{
    return (float *)x.data + (ptrdiff_t)i * x.stride[0] + (ptrdiff_t)j * x.stride[1] +
           (ptrdiff_t)k * x.stride[2];
}

/* A hook that keeps dense copies of what it saw. */
typedef struct seen {
    char name[64];
    size_t first;
    attn_tensor value;
} seen;
typedef struct sight {
    size_t n;
    seen all[1500];
} sight;

static sight *new_sight(void)
{
    sight *s = (sight *)pool_new(sizeof *s);
    s->n = 0;
    return s;
}

static int note(const attn_activation *a, void *user)
{
    sight *s = (sight *)user;
    seen *one = &s->all[s->n];
    if (!CHECK(s->n < sizeof s->all / sizeof s->all[0]))
        return 1;
    s->n++;
    snprintf(one->name, sizeof one->name, "%s", a->name);
    one->first = a->first;
    one->value = laid_out(a->value, ATTN_F32, LAYOUT_DENSE);
    return 0;
}

static attn_tensor latest(const sight *s, const char *name)
{
    attn_tensor none;
    size_t i;
    for (i = s->n; i-- > 0;)
        if (strcmp(s->all[i].name, name) == 0)
            return s->all[i].value;
    memset(&none, 0, sizeof none);
    test_fail(__FILE__, __LINE__, "%s was not seen", name);
    return none;
}

static int do_nothing(const attn_activation *a, void *user)
{
    (void)a, (void)user;
    return 0;
}

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

/* What one hook makes of a text: its logits, and what `sees` (may be NULL) shows. */
static float *hooked(const attn_model *model, const int32_t *tokens, size_t n, size_t step,
                     const char *pattern, attn_hook_fn fn, void *user, const char *sees, sight *s)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, model, 0);
    float *logits;
    if (pattern)
        OK(&ctx, attn_hook(&ctx, session, pattern, fn, user));
    if (sees)
        OK(&ctx, attn_hook(&ctx, session, sees, note, s));
    logits = feed_all(&ctx, session, tokens, n, step);
    attn_session_free(session);
    return logits;
}

/* ---- golden references ---- */

/* reference.safetensors: {"name":{"dtype":"F32","shape":[..],"data_offsets":[from,to]},...} */
static attn_tensor safetensor(const unsigned char *file, const char *name)
{
    char quoted[80];
    attn_tensor none;
    attn_shape shape = {0, {1, 1, 1, 1}};
    size_t header = 0;
    const char *p;
    int i;
    for (i = 8; i-- > 0;)
        header = header << 8 | file[i];
    memset(&none, 0, sizeof none);
    snprintf(quoted, sizeof quoted, "\"%s\":{", name);
    p = strstr((const char *)file + 8, quoted);
    if (!p || p > (const char *)file + 8 + header)
        return none;
    for (p = strstr(p, "\"shape\":[") + 9; *p != ']'; p += *p == ',')
        shape.dim[shape.ndim++] = (size_t)strtoul(p, (char **)(uintptr_t)&p, 10);
    p = strstr(p, "\"data_offsets\":[") + 16;
    return attn_borrow((void *)(uintptr_t)(file + 8 + header + strtoul(p, NULL, 10)), ATTN_F32,
                       shape);
}

static int32_t *reference_tokens(const unsigned char *file, size_t *n)
{
    const attn_tensor stored = safetensor(file, "tokens"); /* I64, little-endian */
    int32_t *tokens = (int32_t *)pool_new(stored.shape[0] * sizeof *tokens);
    for (*n = 0; *n < stored.shape[0]; ++*n)
        tokens[*n] = ((const unsigned char *)stored.data)[8 * *n] |
                     ((const unsigned char *)stored.data)[8 * *n + 1] << 8;
    return tokens;
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
    tokens = reference_tokens(file, &n);
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
        close_to(whole, safetensor(file, name), 2e-5, name);

        /* The heads and b_O add up to attn_out, here in double. */
        snprintf(name, sizeof name, "blocks.%d.attn.b_O", (int)layer);
        OK(&ctx, attn_model_tensor(&ctx, model, name, &bias));
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

static void results(void)
{
    check_results(plain, "tests/golden/plain/reference.safetensors", 99);
    check_results(odd, "tests/golden/odd/reference.safetensors", 7);
    check_results(narrow, "tests/golden/narrow/reference.safetensors", 1);
    check_results(narrow, "tests/golden/narrow/reference.safetensors", 99);
}

/* Whoever only looks, or writes back what was there, changes no bit: in one call, in pieces, one
 * token at a time, in a batch with others. */
static void looking_changes_nothing(void)
{
    enum { LENGTH = 24 };
    const attn_model *const models[] = {plain, odd, narrow, tiny};
    attn_ctx ctx = alone();
    size_t m, i, step, n_calls;
    int n_threads;
    for (m = 0; m < 4; m++)
        for (n_threads = 1; n_threads <= 2; n_threads++) {
            const int32_t *const tokens = random_tokens(models[m], LENGTH, m);
            const float *const want =
                hooked(models[m], tokens, LENGTH, LENGTH, NULL, NULL, NULL, NULL, NULL);
            attn_session *session, *others[2];
            attn_feed_item items[3];
            ctx.n_threads = n_threads;
            session = session_on(&ctx, models[m], 10);
            for (i = 0; i < 2; i++) {
                others[i] = session_on(&ctx, models[m], 0);
                OK(&ctx, attn_feed(&ctx, others[i], tokens, i * 3 + 1));
            }
            for (step = 1; step <= LENGTH; step += step > 1 ? 14 : 11) {
                n_calls = 0;
                for (i = 0; i < OPT_IN; i++)
                    OK(&ctx,
                       attn_hook(&ctx, session, opt_in[i], i % 2 ? do_nothing : rewrite, &n_calls));
                OK(&ctx, attn_hook(&ctx, session, "*", do_nothing, NULL));
                same_logits(feed_all(&ctx, session, tokens, LENGTH, step), want, LENGTH, models[m],
                            "hooks that look");
                attn_unhook_all(session);
                OK(&ctx, attn_rewind(&ctx, session, 0));
                for (i = 0; i < OPT_IN; i++)
                    OK(&ctx,
                       attn_hook(&ctx, session, opt_in[i], i % 2 ? rewrite : do_nothing, &n_calls));
                same_logits(feed_all(&ctx, session, tokens, LENGTH, step), want, LENGTH, models[m],
                            "hooks that look");
                CHECK(n_calls >= OPT_IN * attn_model_config(models[m])->n_layer);
                OK(&ctx, attn_rewind(&ctx, session, 0));
                attn_unhook_all(session);
            }
            for (i = 0; i < OPT_IN; i++) {
                OK(&ctx, attn_hook(&ctx, session, opt_in[i], rewrite, &n_calls));
                OK(&ctx, attn_hook(&ctx, others[1], opt_in[i], do_nothing, &n_calls));
            }
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
    OK(&ctx, attn_model_tensor(&ctx, model, "blocks.1.attn.W_QKV", &w));
    OK(&ctx, attn_model_tensor(&ctx, model, "blocks.1.attn.b_QKV", &b));
    OK(&ctx, attn_model_tensor(&ctx, model, "blocks.1.ln1.w", &gain));
    OK(&ctx, attn_model_tensor(&ctx, model, "blocks.1.ln1.b", &bias));
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

static void inputs_of_heads(void)
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

static void whole_inputs(void)
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
            attn_session *const session = session_on(&ctx, models[m], 6);
            sight *const r = new_sight();
            if (i == 0) {
                OK(&ctx, attn_hook(&ctx, session, parts[0], put_copies, &rows));
            } else {
                OK(&ctx, attn_hook(&ctx, session, "*1.hook_q_input", put_copies, &rows));
                OK(&ctx, attn_hook(&ctx, session, "*1.hook_k_input", put_copies, &rows));
                OK(&ctx, attn_hook(&ctx, session, "*1.hook_v_input", put_copies, &rows));
            }
            OK(&ctx, attn_hook(&ctx, session, "blocks.1.hook_attn_out", note, r));
            OK(&ctx, attn_feed(&ctx, session, tokens, LENGTH));
            for (j = 0; j < r->n; j++)
                same_floats((const float *)r->all[j].value.data,
                            entry(latest(want, "blocks.1.hook_attn_out"), r->all[j].first, 0, 0),
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
static void writing_results(void)
{
    enum { LENGTH = 18, AT = 11, HEAD = 2 };
    const attn_model *const models[] = {plain, odd, narrow, tiny};
    size_t m, j, t;
    for (m = 0; m < 4; m++) {
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

static void names(void)
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
    attn_session *session = session_on(&ctx, plain, 0);
    const int32_t tokens[] = {1, 2, 3};
    sight *s = new_sight();
    char endless[3000];
    size_t i;
    memset(endless, 'a', sizeof endless - 1);
    endless[sizeof endless - 1] = 0;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++)
        FAILS(&ctx, ATTN_E_NAME, cases[i].says,
              attn_hook(&ctx, session, cases[i].wrong, do_nothing, NULL));
    FAILS(&ctx, ATTN_E_NAME, "names look like",
          attn_hook(&ctx, session, endless, do_nothing, NULL));
    for (i = 0; i < 4; i++) {
        OK(&ctx, attn_hook(&ctx, session, good[i], note, s));
        OK(&ctx, attn_feed(&ctx, session, tokens, 1));
        CHECKF(s->n == (i == 0 ? 1 : 2), "%s was called %llu times", good[i], LLU(s->n));
        s->n = 0;
        attn_unhook_all(session);
    }
    /* Patterns that do not name them leave them alone. */
    OK(&ctx, attn_hook(&ctx, session, "blocks.0.*", note, s));
    OK(&ctx, attn_hook(&ctx, session, "*hook_res*", note, s));
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
    OK(&ctx, attn_cache_set(&ctx, a->session, ATTN_KEYS, 1, 2, past[0]));
    OK(&ctx, attn_cache_set(&ctx, a->session, ATTN_VALUES, 1, 2, past[1]));
    return 0;
}

static int look_back(const attn_activation *a, void *user)
{
    attn_tensor past = {0};
    attn_ctx ctx = alone();
    ++*(size_t *)user;
    OK(&ctx, attn_cache_get(&ctx, a->session, ATTN_KEYS, 0, 0, a->first, &past));
    CHECK(past.shape[0] == a->first);
    FAILS(&ctx, ATTN_E_ARGUMENT, "positions from",
          attn_cache_get(&ctx, a->session, ATTN_KEYS, 0, 0, a->first + 1, &past));
    attn_ctx_free(&ctx);
    return 0;
}

static void cache(void)
{
    enum { LENGTH = 20, PAST = 9, FIRST = 2, COUNT = 5 };
    const attn_model *const models[] = {plain, odd, narrow, tiny};
    attn_ctx ctx = alone();
    size_t m, i, j, n_calls = 0;
    for (m = 0; m < 4; m++) {
        const attn_config *const c = attn_model_config(models[m]);
        const int32_t *const tokens = random_tokens(models[m], LENGTH, 8);
        attn_tensor past[2], now[2];
        sight *const s = new_sight();
        attn_session *session = session_on(&ctx, models[m], 4);
        float *got, *want;
        spot zero = {3, 1, NULL};
        char name[64];
        memset(now, 0, sizeof now);
        for (i = 0; i < 2; i++)
            past[i] = random_tensor(3, COUNT, (int)c->n_head, (int)c->d_head);

        /* What is remembered is what hook_k and hook_v showed. */
        OK(&ctx, attn_hook(&ctx, session, "blocks.1.attn.hook_k", note, s));
        OK(&ctx, attn_hook(&ctx, session, "blocks.1.attn.hook_v", note, s));
        OK(&ctx, attn_feed(&ctx, session, tokens, PAST));
        attn_unhook_all(session);
        OK(&ctx, attn_cache_get(&ctx, session, ATTN_KEYS, 1, 0, PAST, &now[0]));
        OK(&ctx, attn_cache_get(&ctx, session, ATTN_VALUES, 1, 0, PAST, &now[1]));
        CHECK(s->n == 6);
        for (i = 0; i < s->n; i++)
            same_floats((const float *)s->all[i].value.data,
                        entry(now[i % 2], s->all[i].first, 0, 0), count_of(s->all[i].value),
                        "remembered");

        /* Set between feeds, set in a hook of a token that is generated: the same. */
        OK(&ctx, attn_cache_set(&ctx, session, ATTN_KEYS, 1, FIRST, past[0]));
        OK(&ctx, attn_cache_set(&ctx, session, ATTN_VALUES, 1, FIRST, past[1]));
        attn_tensor_free(&ctx, &now[0]);
        now[0].ndim = 0;
        OK(&ctx, attn_cache_get(&ctx, session, ATTN_KEYS, 1, FIRST, COUNT, &now[0]));
        same_bits(now[0], past[0], "what was set");
        want = feed_all(&ctx, session, tokens + PAST, LENGTH - PAST, 1);
        OK(&ctx, attn_rewind(&ctx, session, 0));
        OK(&ctx, attn_feed(&ctx, session, tokens, PAST));
        OK(&ctx, attn_hook(&ctx, session, "blocks.1.attn.hook_q", refill, past));
        OK(&ctx, attn_hook(&ctx, session, "blocks.0.hook_resid_pre", look_back, &n_calls));
        got = feed_all(&ctx, session, tokens + PAST, LENGTH - PAST, 3);
        same_logits(got, want, LENGTH - PAST, models[m], "a past set in a hook");
        attn_unhook_all(session);

        /* Zeros for one head's value at one position are those that a hook puts there. In the last
         * layer, where the position's own attention to itself has no consequences for the others.
         */
        snprintf(name, sizeof name, "blocks.%d.attn.hook_v", (int)c->n_layer - 1);
        OK(&ctx, attn_rewind(&ctx, session, 0));
        OK(&ctx, attn_hook(&ctx, session, name, put_spot, &zero));
        want = feed_all(&ctx, session, tokens, LENGTH, 4);
        attn_unhook_all(session);
        OK(&ctx, attn_rewind(&ctx, session, 0));
        OK(&ctx, attn_feed(&ctx, session, tokens, 4));
        attn_tensor_free(&ctx, &now[1]);
        now[1].ndim = 0;
        OK(&ctx, attn_cache_get(&ctx, session, ATTN_VALUES, c->n_layer - 1, 3, 1, &now[1]));
        for (j = 0; j < c->d_head; j++)
            *entry(now[1], 0, 1, j) = 0;
        OK(&ctx, attn_cache_set(&ctx, session, ATTN_VALUES, c->n_layer - 1, 3, now[1]));
        same_logits(feed_all(&ctx, session, tokens + 4, LENGTH - 4, 7),
                    want + 4 * vocab_of(models[m]), LENGTH - 4, models[m], "a value of zeros");

        FAILS(&ctx, ATTN_E_ARGUMENT, "layer",
              attn_cache_get(&ctx, session, ATTN_KEYS, c->n_layer, 0, 1, &now[0]));
        FAILS(&ctx, ATTN_E_ARGUMENT, "holds 20",
              attn_cache_set(&ctx, session, ATTN_KEYS, 0, LENGTH - 1, past[0]));
        FAILS(&ctx, ATTN_E_ARGUMENT, "holds 20",
              attn_cache_get(&ctx, session, ATTN_KEYS, 0, SIZE_MAX, 2, &now[0]));
        FAILS(&ctx, ATTN_E_SHAPE, "heads",
              attn_cache_set(&ctx, session, ATTN_KEYS, 0, 0, attn_transpose(past[0], 0, 1)));
        FAILS(&ctx, ATTN_E_ARGUMENT, "no session",
              attn_cache_set(&ctx, NULL, ATTN_KEYS, 0, 0, past[0]));
        attn_session_free(session);
        attn_ctx_free(&ctx);
        pool_clear();
    }
    CHECK(n_calls > 12);
}

/* A hook may not pull the rug from under the pass that called it. */
static int meddle(const attn_activation *a, void *user)
{
    attn_ctx ctx = alone();
    const int32_t token = 1;
    attn_session *const other = (attn_session *)user;
    FAILS(&ctx, ATTN_E_ARGUMENT, "being fed", attn_rewind(&ctx, a->session, 0));
    FAILS(&ctx, ATTN_E_ARGUMENT, "being fed", attn_feed(&ctx, a->session, &token, 1));
    FAILS(&ctx, ATTN_E_ARGUMENT, "being fed", attn_hook(&ctx, a->session, "*", do_nothing, NULL));
    FAILS(&ctx, ATTN_E_ARGUMENT, "being fed", attn_session_copy(&ctx, a->session, other));
    attn_unhook_all(a->session);
    OK(&ctx, attn_feed(&ctx, other, &token, 1)); /* another session is nobody's rug */
    return 0;
}

static void meddling(void)
{
    enum { LENGTH = 9 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 2);
    float *const want = hooked(odd, tokens, LENGTH, LENGTH, NULL, NULL, NULL, NULL, NULL);
    attn_session *session = session_on(&ctx, odd, 0), *other = session_on(&ctx, odd, 0);
    OK(&ctx, attn_hook(&ctx, session, "blocks.1.*", meddle, other));
    same_logits(feed_all(&ctx, session, tokens, LENGTH, LENGTH), want, LENGTH, odd, "meddling");
    CHECK(attn_session_length(other) == 19);
    attn_session_free(session);
    attn_session_free(other);
    pool_clear();
}

/* Hooks leave nothing behind: not when memory runs out, not when they go. */
static void memory(void)
{
    meter m;
    attn_ctx ctx = metered(&m);
    attn_session *session;
    const int32_t tokens[] = {5, 6, 7};
    size_t i;
    long live, n;
    ctx.n_threads = 1;
    if ((session = session_on(&ctx, odd, 0)) == NULL)
        return;
    live = m.live;
    for (i = 0; i < OPT_IN; i++) {
        attn_status status = ATTN_E_MEMORY;
        for (n = 0; n < 20 && status != ATTN_OK; n++) {
            m.fail_at = m.asked + n;
            status = attn_hook(&ctx, session, opt_in[i], do_nothing, NULL);
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
        OK(&ctx, attn_rewind(&ctx, session, 0));
    }
    OK(&ctx, attn_hook(&ctx, session, "*.hook_result", do_nothing, NULL));
    attn_session_free(session);
    CHECK(m.live == 0 && m.wrong == 0);
}

void suite_hooks(void)
{
    attn_ctx ctx = alone();
    plain = converted("tests/golden/plain", "hooks-plain.attn");
    odd = converted("tests/golden/odd", "hooks-odd.attn");
    narrow = converted("tests/golden/narrow", "hooks-narrow.attn");
    OK(&ctx, attn_model_open(&ctx, &tiny, TEST_BUILD "/tiny-stories.attn", NULL));
    if (plain && odd && narrow && tiny) {
        RUN("hooks", results);
        RUN("hooks", looking_changes_nothing);
        RUN("hooks", inputs_of_heads);
        RUN("hooks", whole_inputs);
        RUN("hooks", writing_results);
        RUN("hooks", names);
        RUN("hooks", cache);
        RUN("hooks", meddling);
        RUN("hooks", memory);
    }
    attn_model_close(plain);
    attn_model_close(odd);
    attn_model_close(narrow);
    attn_model_close(tiny);
}
