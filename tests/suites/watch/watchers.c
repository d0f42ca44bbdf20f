/* Watchers that write, at random: edits of every kind and callbacks, on every hook point, several on one
 * text. What a text comes to must not depend on how it is cut into calls and passes, on the number of
 * threads, on the texts beside it in a batch or on the records that look on. A minute's share of this is
 * here; `make watchers SECONDS=3600` goes on for an hour, with other seeds. */
#include "tests/support/hooks.h"
#include "tests/support/same_bits.h"
#include <time.h>

static attn_model *models[4];
enum { N_MODELS = sizeof models / sizeof models[0] };

static int set_up(void)
{
    models[0] = golden("narrow");
    models[1] = golden("odd");
    models[2] = converted("tests/golden/odd", "odd-q8.attn", "--dtype q8 --no-tokenizer");
    models[3] = included();
    return models[0] && models[1] && models[2] && models[3];
}

static void tear_down(void)
{
    for (int i = 0; i < N_MODELS; i++)
        attn_model_close(models[i]);
}

SUITE_WITH(set_up, tear_down);

/* Every hook point of a block, and those outside the blocks. */
static const char *const points[] = {"hook_embed",
                                     "hook_pos_embed",
                                     "ln_final.hook_scale",
                                     "ln_final.hook_normalized.pre",
                                     "ln_final.hook_normalized.post",
                                     "hook_resid_pre",
                                     "hook_resid_mid",
                                     "hook_resid_post",
                                     "ln1.hook_scale",
                                     "ln1.hook_normalized.pre",
                                     "ln1.hook_normalized.post",
                                     "ln2.hook_scale",
                                     "ln2.hook_normalized.pre",
                                     "ln2.hook_normalized.post",
                                     "attn.hook_q",
                                     "attn.hook_k",
                                     "attn.hook_v",
                                     "attn.hook_attn_scores",
                                     "attn.hook_pattern",
                                     "attn.hook_z",
                                     "attn.hook_result",
                                     "hook_attn_out",
                                     "hook_mlp_out",
                                     "mlp.hook_pre",
                                     "mlp.hook_post",
                                     "hook_attn_in",
                                     "hook_q_input",
                                     "hook_k_input",
                                     "hook_v_input",
                                     "hook_mlp_in"};
enum { N_POINTS = sizeof points / sizeof points[0], OUTSIDE = 5 };

static const char *const looked_at[] = {"*",
                                        "*.hook_result",
                                        "*.hook_attn_in",
                                        "*.hook_q_input",
                                        "*.hook_k_input",
                                        "*.hook_v_input",
                                        "*.hook_mlp_in"};
enum { N_LOOKED_AT = sizeof looked_at / sizeof looked_at[0] };

enum { MOST_WATCHERS = 5, MOST_TEXTS = 4, MOST_TOKENS = 24, WRITES = ATTN_EDIT_SCALE + 1 };

typedef struct watcher {
    char name[64]; /* one name, or "*." and a point: the same in every layer */
    int how;       /* an attn_edit_kind, or WRITES: a callback */
    int is_scale, over_keys;
    int reaches_end; /* of the text: an edit then has count 0 */
    size_t position, n_positions, head, n_heads;
    attn_tensor value; /* of an edit */
    float a, b;        /* a callback makes a * x + b * (a number of the place) of x */
} watcher;

typedef struct one_text {
    int32_t tokens[MOST_TOKENS];
    size_t n;
    watcher watchers[MOST_WATCHERS];
    size_t n_watchers;
    const float *logits; /* [n, V], of the text alone in one call */
    attn_record *record; /* of everything, then */
} one_text;

/* ---- what the watchers are ---- */

static int one_in(size_t n)
{
    return random_below(n) == 0;
}

/* A value for an edit, in one of the shapes that it may have. */
static attn_tensor random_value(const watcher *w, size_t heads, size_t width, size_t keys)
{
    const size_t n = w->how == ATTN_EDIT_MEAN ? 1 + random_below(4) : w->n_positions;
    size_t shape[3];
    int ndim = 3;
    if (w->over_keys) {
        shape[0] = one_in(2) ? w->n_heads : 1;
        shape[1] = one_in(2) ? n : 1;
        shape[2] = one_in(3) ? 1 : keys;
    } else {
        shape[0] = one_in(3) && w->how != ATTN_EDIT_MEAN ? 1 : n;
        shape[1] = one_in(2) ? w->n_heads : 1;
        shape[2] = one_in(3) ? 1 : width;
    }
    if (heads == 0) { /* [positions, width] */
        shape[1] = shape[2];
        ndim = 2;
    }
    attn_tensor x = new_tensor(ATTN_F32, ndim, shape, LAYOUT_DENSE);
    for (size_t i = 0; i < count_of(x); i++)
        set_value(x, i, w->is_scale ? 1 + random_float() / 2 : random_float());
    while (x.ndim > 1 && x.shape[0] == 1 && one_in(2))
        x = attn_select(x, 0, 0); /* a leading 1 may be missing */
    return x;
}

static watcher random_watcher(const attn_model *model, size_t n)
{
    const attn_config *c = attn_model_config(model);
    const size_t point = random_below(N_POINTS);
    const char *const name = points[point];
    const int has_heads =
        strstr(name, "attn.") || strstr(name, "_attn_in") || strstr(name, "_input");
    const size_t heads = has_heads ? c->n_head : 0;
    const size_t width = strstr(name, "hook_scale") ? 1
                         : strstr(name, "mlp.")     ? c->d_mlp
                         : strstr(name, "_result") || strstr(name, "_input") || !has_heads ||
                                 strstr(name, "_attn_in")
                             ? c->d_model
                             : c->d_head;
    watcher w;
    memset(&w, 0, sizeof w);
    if (point < OUTSIDE)
        snprintf(w.name, sizeof w.name, "%s", name);
    else if (one_in(4))
        snprintf(w.name, sizeof w.name, "blocks.*.%s", name);
    else
        snprintf(w.name, sizeof w.name, "blocks.%d.%s", (int)random_below(c->n_layer), name);
    w.is_scale = width == 1;
    w.over_keys = strstr(name, "_scores") || strstr(name, "_pattern");
    w.how = (int)random_below(WRITES + 1);
    if ((w.is_scale && w.how == ATTN_EDIT_ZERO) || (w.over_keys && w.how == ATTN_EDIT_MEAN))
        w.how = ATTN_EDIT_SET; /* a scale of 0 divides; positions of patterns have no mean */
    w.position = random_below(n);
    w.n_positions = 1 + random_below(n - w.position);
    w.reaches_end = w.position + w.n_positions == n;
    w.n_heads = 1;
    if (heads) {
        w.head = random_below(heads);
        w.n_heads = 1 + random_below(heads - w.head);
    }
    w.a = w.is_scale ? 1.5f : random_float();
    w.b = w.is_scale ? 0 : random_float();
    if (w.how != ATTN_EDIT_ZERO && w.how != WRITES)
        w.value = random_value(&w, heads, width, n);
    return w;
}

/* A number that depends on the place alone. */
static float of_place(size_t position, size_t head, size_t k)
{
    return (float)((position * 7 + head * 3 + k * 5) % 17) / 8 - 1;
}

static int write_rows(const attn_activation *a, void *user)
{
    const watcher *w = (const watcher *)user;
    const int flat = a->value.ndim == 2, rows = w->over_keys ? 1 : 0;
    for (size_t i = 0; i < a->value.shape[rows]; i++) {
        const size_t at = a->first + i;
        if (at < w->position || at >= w->position + w->n_positions)
            continue;
        for (size_t head = w->head; head < w->head + w->n_heads; head++)
            for (size_t k = 0; k < a->value.shape[flat ? 1 : 2]; k++) {
                float *x = flat           ? entry(a->value, i, k, 0)
                           : w->over_keys ? entry(a->value, head, i, k)
                                          : entry(a->value, i, head, k);
                /* at later keys, anything: it counts for nothing */
                *x = w->over_keys && k > at ? 1e4f : w->a * *x + w->b * of_place(at, head, k);
            }
    }
    return 0;
}

static void put_watcher(attn_ctx *ctx, attn_session *session, watcher *w)
{
    if (w->how == WRITES) {
        OK(ctx, attn_hook(ctx, NULL, session, w->name, write_rows, w));
        return;
    }
    attn_edit e = edit_of(w->name, (attn_edit_kind)w->how);
    e.first = w->position;
    e.count = w->reaches_end ? 0 : w->n_positions;
    if (strstr(w->name, "attn.") || strstr(w->name, "_attn_in") || strstr(w->name, "_input")) {
        e.first_head = w->head;
        e.n_heads = w->n_heads;
    }
    e.value = w->value;
    CHECKF(attn_hook_edit(ctx, NULL, session, &e) == ATTN_OK, "%s: %s", w->name, ctx->message);
}

static void put_watchers(attn_ctx *ctx, attn_session *session, one_text *t)
{
    for (size_t i = 0; i < t->n_watchers; i++)
        put_watcher(ctx, session, &t->watchers[i]);
}

/* ---- the texts in one way ---- */

static attn_record *record_all(attn_ctx *ctx, attn_session *session, size_t n)
{
    return record_on(ctx, session, looked_at, N_LOOKED_AT, 0, n);
}

/* A text alone, in one call on one thread; with a record of everything that changes nothing. */
static void run_alone(attn_ctx *ctx, const attn_model *model, one_text *t)
{
    attn_session *plain = session_on(ctx, model, t->n, 0),
                 *looked = session_on(ctx, model, t->n, 0);
    put_watchers(ctx, plain, t);
    t->logits = feed_all(ctx, plain, t->tokens, t->n, t->n);
    put_watchers(ctx, looked, t);
    t->record = record_all(ctx, looked, t->n);
    same_logits(feed_all(ctx, looked, t->tokens, t->n, t->n), t->logits, t->n, model, "a record");
    attn_session_free(plain);
    attn_session_free(looked);
}

/* ---- in another ---- */

/* One session of a batch. */
typedef struct part {
    one_text *text;
    attn_session *session;
    attn_record *before, *after; /* of the watchers, or NULL */
    float *logits;
    size_t at;
} part;

static void begin_part(attn_ctx *ctx, const attn_model *model, part *p, one_text *t)
{
    memset(p, 0, sizeof *p);
    p->text = t;
    p->session = session_on(ctx, model, t->n, 0);
    if (one_in(3))
        p->before = record_all(ctx, p->session, t->n);
    if (one_in(4))
        OK(ctx, attn_hook(ctx, NULL, p->session, "*", do_nothing, NULL));
    put_watchers(ctx, p->session, t);
    if (one_in(3))
        p->after = record_all(ctx, p->session, t->n);
    p->logits = (float *)pool_new(t->n * vocab_of(model) * sizeof(float));
}

/* Tokens that are forgotten again. */
static void stray(attn_ctx *ctx, const part *p)
{
    const size_t n = attn_session_capacity(p->session) - p->at,
                 n_stray = n ? 1 + random_below(n) : 0;
    if (n_stray)
        OK(ctx, attn_feed(ctx, p->session, ten, n_stray < 10 ? n_stray : 10));
    OK(ctx, attn_session_truncate(ctx, p->session, p->at));
}

/* The layers below `cut` first, then the others, of the stream that left those. */
static void feed_in_two(attn_ctx *ctx, attn_feed_item *items, size_t n, size_t cut)
{
    const size_t width = attn_model_config(attn_session_model(items[0].session))->d_model;
    float *logits[MOST_TEXTS];
    for (size_t i = 0; i < n; i++) {
        logits[i] = items[i].logits;
        items[i].logits = NULL;
        items[i].layers.end = cut;
        items[i].layers.resid_out = (float *)pool_new(items[i].n_tokens * width * sizeof(float));
    }
    OK(ctx, attn_feed_batch(ctx, items, n));
    for (size_t i = 0; i < n; i++) {
        items[i].logits = logits[i];
        items[i].layers.first = cut;
        items[i].layers.end = 0;
        items[i].layers.resid = items[i].layers.resid_out;
        items[i].layers.resid_out = NULL;
    }
    OK(ctx, attn_feed_batch(ctx, items, n));
}

/* Feeds the next tokens of some of the parts, in one pass over all layers or in two over some each. */
static void feed_some(attn_ctx *ctx, const attn_model *model, part *parts, size_t n)
{
    const size_t n_layer = attn_model_config(model)->n_layer;
    attn_feed_item items[MOST_TEXTS];
    size_t n_items = 0, n_records = 0;
    for (size_t i = 0; i < n; i++) {
        part *p = &parts[i];
        const size_t left = p->text->n - p->at, most = one_in(3) ? 1 : 1 + random_below(left + 1);
        const size_t some_tokens = most < left ? most : left;
        if (some_tokens == 0 || one_in(4))
            continue;
        items[n_items++] = item_of(p->session, p->text->tokens + p->at, some_tokens,
                                   row_of(p->logits, p->at, model));
        n_records += p->before || p->after;
        p->at += some_tokens;
    }
    if (n_items == 0)
        return;
    if (n_records == 0 && n_layer > 1 && one_in(3)) /* a record takes whole passes */
        feed_in_two(ctx, items, n_items, 1 + random_below(n_layer - 1));
    else
        OK(ctx, attn_feed_batch(ctx, items, n_items));
}

/* A record has what the record of the text alone has; one from before the watchers may differ. */
static int check_records(attn_ctx *ctx, const part *p)
{
    for (size_t i = 0; p->after && i < attn_record_n_activations(p->after); i++) {
        const char *const name = attn_record_name(p->after, i);
        attn_tensor got, want;
        if (OK(ctx, attn_record_get(ctx, &got, p->after, name)) &&
            OK(ctx, attn_record_get(ctx, &want, p->text->record, name)) &&
            !same_bits(got, want, name))
            return 0;
    }
    return 1;
}

static int run_together(attn_ctx *ctx, const attn_model *model, one_text *texts, size_t n)
{
    static const size_t n_batch[] = {1, 2, 3, 5, 8, 16, 0};
    part parts[MOST_TEXTS];
    attn_session *sessions[MOST_TEXTS];
    size_t left;
    int ok = 1;
    ctx->n_threads = 1 + (int)random_below(3);
    for (size_t i = 0; i < n; i++) {
        begin_part(ctx, model, &parts[i], &texts[i]);
        sessions[i] = parts[i].session;
    }
    share_workspace(ctx, sessions, n, n_batch[random_below(7)]);
    do {
        feed_some(ctx, model, parts, n);
        for (size_t i = left = 0; i < n; i++) {
            if (one_in(6))
                stray(ctx, &parts[i]);
            left += parts[i].text->n - parts[i].at;
        }
    } while (left > 0 && ctx->status == ATTN_OK);
    for (size_t i = 0; i < n; i++) {
        ok = same_logits(parts[i].logits, texts[i].logits, texts[i].n, model,
                         "in a batch, in pieces") &&
             check_records(ctx, &parts[i]) && ok;
        attn_record_free(parts[i].before);
        attn_record_free(parts[i].after);
        attn_session_free(parts[i].session);
    }
    return ok && ctx->status == ATTN_OK;
}

/* Runs one to four texts, each with its own watchers: first each text alone, then all of them as a
 * batch, twice. Returns 0 if a result differs. */
static int check_texts(uint64_t seed)
{
    one_text texts[MOST_TEXTS];
    attn_ctx ctx = alone();
    random_state = seed * 2654435761u + 1;
    const attn_model *model = models[random_below(8) ? random_below(N_MODELS - 1) : N_MODELS - 1];
    size_t n = 1 + random_below(MOST_TEXTS);
    ctx.n_threads = 1;
    memset(texts, 0, sizeof texts);
    for (size_t i = 0; i < n; i++) {
        one_text *t = &texts[i];
        t->n = 1 + random_below(MOST_TOKENS);
        for (size_t j = 0; j < t->n; j++)
            t->tokens[j] = (int32_t)random_below(vocab_of(model));
        t->n_watchers = random_below(MOST_WATCHERS + 1);
        for (size_t j = 0; j < t->n_watchers; j++)
            t->watchers[j] = random_watcher(model, t->n);
        run_alone(&ctx, model, t);
    }
    int ok = run_together(&ctx, model, texts, n) && run_together(&ctx, model, texts, n);
    CHECKF(ok, "with ATTN_TEST_SEED=%llu", LLU(seed));
    for (size_t i = 0; i < n; i++)
        attn_record_free(texts[i].record);
    attn_ctx_free(&ctx);
    pool_clear();
    return ok;
}

/* How many rounds there are, or with ATTN_TEST_SECONDS as many as fit into that time. ATTN_TEST_SEED
 * begins elsewhere. */
TEST(random_watchers)
{
    const char *const seconds = getenv("ATTN_TEST_SECONDS"), *seed = getenv("ATTN_TEST_SEED");
    const uint64_t first = seed ? (uint64_t)strtoul(seed, NULL, 10) : 1;
    const time_t end = time(NULL) + (seconds ? (time_t)strtol(seconds, NULL, 10) : 0);
    const uint64_t rounds = TEST_SANITIZED ? 8 : 30;
    uint64_t round;
    for (round = 0; seconds ? time(NULL) < end : round < rounds; round++)
        if (!check_texts(first + round))
            break;
    printf("%llu rounds from seed %llu on\n", LLU(round), LLU(first));
}
