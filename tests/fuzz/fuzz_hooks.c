/* The hook interface. A first byte that divides by 4: any patterns, against a matcher that is a plain
 * table; hooks that change numbers, stop, or read the session; logits that are the same again once the
 * hooks are gone. Another even one: an edit of any pattern and any value, which must do what it does to
 * each activation by its name. An odd one: numbers that are changed in two ways, which must come to the same
 * bits: by callbacks with the text in pieces and now and then stopped, and by edits in one call;
 * records of the one are what a hook saw in the other; and keys and values are set in both. */
#include "fuzz.h"
#include <math.h>

enum { MOST_NAMES = 120, MOST_HOOKS = 4, TOKENS = 6 };

static char names[MOST_NAMES][64];
static int ranks[MOST_NAMES]; /* dimensions of each */
static int n_names, n_usual;  /* those from n_usual on are made on request only */

static int collect(const attn_activation *a, void *user)
{
    (void)user;
    MUST(n_names < MOST_NAMES && strlen(a->name) < 64);
    ranks[n_names] = a->value.ndim;
    strcpy(names[n_names++], a->name);
    return 0;
}

/* fits[i]: the first i letters of the text match the pattern so far. */
static int matches(const char *pattern, const char *text)
{
    const size_t n = strlen(text);
    char fits[65] = {1}, next[65] = {0};
    for (; *pattern; pattern++) {
        for (size_t i = 0; i <= n; i++)
            next[i] = (char)(*pattern == '*' ? fits[i] || (i > 0 && next[i - 1])
                                             : i > 0 && fits[i - 1] && *pattern == text[i - 1]);
        memcpy(fits, next, sizeof fits);
    }
    return fits[n];
}

/* Does the pattern ask for this activation? A star at its end asks for none of those on request. */
static int asks_for(const char *pattern, int name)
{
    const size_t n = strlen(pattern);
    return matches(pattern, names[name]) && (name < n_usual || pattern[n - 1] != '*');
}

static const char *const on_request[] = {"*.hook_attn_in", "*.hook_q_input", "*.hook_k_input",
                                         "*.hook_v_input", "*.hook_result",  "*.hook_mlp_in"};

/* Runs a text once, with hooks that collect the names. */
static void collect_names(attn_ctx *ctx, attn_session *session)
{
    static const int32_t tokens[] = {3, 1};
    MUST(attn_hook(ctx, NULL, session, "*", collect, NULL) == ATTN_OK);
    MUST(attn_feed(ctx, session, tokens, 2) == ATTN_OK);
    attn_unhook_all(session);
    n_usual = n_names;
    MUST(n_usual > 20);
    for (size_t i = 0; i < sizeof on_request / sizeof on_request[0]; i++)
        MUST(attn_hook(ctx, NULL, session, on_request[i], collect, NULL) == ATTN_OK);
    MUST(attn_session_truncate(ctx, session, 0) == ATTN_OK);
    MUST(attn_feed(ctx, session, tokens, 2) == ATTN_OK);
    attn_unhook_all(session);
    MUST(n_names == n_usual + 6 * (int)attn_model_config(fuzz_model())->n_layer);
}

typedef struct watcher {
    char pattern[24];
    unsigned action; /* 0 to 2: look; 3: write; 4: stop */
    int calls, expected;
    const attn_session *session;
} watcher;

static int watch(const attn_activation *a, void *user)
{
    watcher *w = (watcher *)user;
    MUST(matches(w->pattern, a->name));
    MUST(a->session == w->session && a->value.ndim >= 2 && a->first % 2 == 0);
    w->calls++;
    for (size_t i = 0; i < a->value.shape[0]; i++)
        for (size_t j = 0; j < a->value.shape[1]; j++)
            for (size_t k = 0; k < a->value.shape[2]; k++) {
                const ptrdiff_t at = (ptrdiff_t)i * a->value.stride[0] +
                                     (ptrdiff_t)j * a->value.stride[1] +
                                     (ptrdiff_t)k * a->value.stride[2];
                float *x = (float *)a->value.data + at;
                if (w->action == 3)
                    *x = k % 2 ? 1e30f : -*x;
            }
    return w->action == 4;
}

/* A pattern: a piece of a real name with stars in it, or any bytes. */
static void take_pattern(input *in, char *pattern)
{
    const unsigned kind = take(in);
    const char *name = names[kind % (unsigned)n_names];
    size_t n = take(in) % 24, i, from = strlen(name);
    from = from > 23 && kind >= 128 ? from - 23 : 0;
    for (i = 0; i < n && (kind < 64 || name[from + i]); i++) {
        const unsigned c = take(in);
        pattern[i] = kind < 64 ? (char)(c ? c : '*') : c % 4 == 0 ? '*' : name[from + i];
    }
    pattern[i] = 0;
}

static void fuzz_patterns(input *in, attn_session *session, attn_session *plain)
{
    static const int32_t tokens[TOKENS] = {3, 1, 4, 1, 5, 9};
    watcher w[MOST_HOOKS];
    attn_status status;
    size_t n_vocab = attn_model_config(fuzz_model())->n_vocab;
    int n_hooks = 0, changing = 0, stopping = 0;
    attn_ctx ctx = {.n_threads = 1};
    memset(w, 0, sizeof w);
    for (size_t i = 0; i < MOST_HOOKS && in->size > 0; i++) {
        watcher *next = &w[n_hooks];
        int found = 0;
        next->action = take(in) % 5;
        next->session = session;
        take_pattern(in, next->pattern);
        for (int k = 0; k < n_names; k++)
            found += asks_for(next->pattern, k);
        status = attn_hook(&ctx, NULL, session, next->pattern, watch, next);
        MUST(status == (found ? ATTN_OK : ATTN_E_NAME));
        if (!found)
            continue;
        next->expected = found;
        changing |= next->action == 3;
        stopping |= next->action == 4;
        n_hooks++;
    }
    size_t n = 1 + take(in) % TOKENS;
    status = attn_feed(&ctx, session, tokens, n);
    MUST(status == (stopping ? ATTN_STOPPED : ATTN_OK));
    MUST(attn_session_length(session) == (stopping ? 0 : n));
    for (int k = 0; k < n_hooks && !stopping; k++)
        MUST(w[k].calls == w[k].expected * (int)((n + 1) / 2));
    attn_unhook_all(session);
    if (changing || stopping) { /* what they wrote is in the cache: begin again */
        MUST(attn_session_truncate(&ctx, session, 0) == ATTN_OK);
        MUST(attn_feed(&ctx, session, tokens, n) == ATTN_OK);
    }
    MUST(attn_session_truncate(&ctx, plain, 0) == ATTN_OK);
    MUST(attn_feed(&ctx, plain, tokens, n) == ATTN_OK);
    MUST(memcmp(attn_session_logits(session), attn_session_logits(plain),
                n_vocab * sizeof(float)) == 0);
    MUST(attn_session_truncate(&ctx, session, 0) == ATTN_OK);
}

/* ---- one edit, several shapes ---- */

/* An edit whose value has any shape, from malloc: a read beyond its end is seen. */
static attn_edit take_edit(input *in, const char *pattern)
{
    static const size_t dims[] = {1, HEADS, 3, WIDE / HEADS, WIDE, DEEP};
    const unsigned how = take(in), ndim = 1 + how / 5 % 3;
    size_t d[3], n = 1;
    float *numbers;
    attn_edit e;
    memset(&e, 0, sizeof e);
    for (size_t i = 0; i < 3; i++) {
        d[i] = i < ndim ? dims[take(in) % 6] : 1;
        n *= d[i];
    }
    numbers = (float *)malloc(n * sizeof *numbers);
    MUST(numbers);
    for (size_t i = 0; i < n; i++)
        numbers[i] = (float)(1 + i % 7) / 4;
    e.name = pattern;
    e.kind = (attn_edit_kind)(how % 5);
    e.count = take(in) % 5;
    e.first = take(in) % TOKENS;
    e.first_head = take(in) % (HEADS + 1);
    e.n_heads = take(in) % (HEADS + 1);
    e.value = attn_borrow(numbers, ATTN_F32,
                          ndim == 1   ? attn_shape1(d[0])
                          : ndim == 2 ? attn_shape2(d[0], d[1])
                                      : attn_shape3(d[0], d[1], d[2]));
    return e;
}

static void fuzz_shapes(input *in, attn_session *one, attn_session *each)
{
    static const int32_t tokens[TOKENS] = {3, 1, 4, 1, 5, 9};
    attn_edit alone;
    attn_status status = ATTN_OK;
    char pattern[24];
    int found = 0;
    attn_ctx ctx = {.n_threads = 1};
    take_pattern(in, pattern);
    attn_edit e = alone = take_edit(in, pattern);
    for (int k = 0; k < n_names; k++)
        if (asks_for(pattern, k)) {
            found = 1;
            alone.name = names[k];
            status = status ? status : attn_hook_edit(&ctx, NULL, each, &alone);
        }
    MUST(!attn_hook_edit(&ctx, NULL, one, &e) == (found && !status));
    if (found && !status) {
        status = attn_feed(&ctx, each, tokens, TOKENS);
        MUST(attn_feed(&ctx, one, tokens, TOKENS) == status);
        MUST(status || memcmp(attn_session_logits(one), attn_session_logits(each),
                              VOCAB * sizeof(float)) == 0);
    }
    attn_unhook_all(one);
    attn_unhook_all(each);
    free(e.value.data);
}

/* ---- changes in two ways ---- */

enum { TEXT = 12, ROW = HEADS * 24 }; /* positions; most floats of one, heads and keys included */

static attn_ctx ctx;

/* Values for positions from `position` on, the same for all its heads and numbers. */
typedef struct change {
    char name[64];
    attn_edit_kind kind;
    int rank, over_keys;
    size_t position, n_positions, head, n_heads;
    float values[4];
} change;

/* The rows, heads and numbers of an activation, and where they lie. */
typedef struct axes {
    size_t n[3];
    ptrdiff_t step[3];
} axes;

static axes axes_of(const attn_activation *a)
{
    const int over_keys = strstr(a->name, "_scores") || strstr(a->name, "_pattern");
    const int order[3] = {over_keys ? 1 : 0, over_keys ? 0 : 1, 2};
    axes x = {{1, 1, 1}, {0, 0, 0}};
    for (int i = 0; i < 3; i++) {
        const int from = a->value.ndim == 2 && i > 0 ? i - 1 : order[i];
        if (a->value.ndim == 2 && i == 1)
            continue; /* no heads */
        x.n[i] = a->value.shape[from];
        x.step[i] = a->value.stride[from];
    }
    return x;
}

/* What attn_hook_edit does, as a callback. */
static int alter(const attn_activation *a, void *user)
{
    const change *c = (const change *)user;
    const axes x = axes_of(a);
    float mean = 0;
    size_t head;
    for (size_t i = 0; i < c->n_positions; i++)
        mean += c->values[i] / (float)c->n_positions; /* exact: eighths, by 1, 2 or 4 */
    for (size_t i = 0; i < x.n[0]; i++) {
        const size_t at = a->first + i;
        if (at < c->position || at >= c->position + c->n_positions)
            continue;
        for (head = c->head; head < c->head + c->n_heads; head++)
            for (size_t k = 0; k < x.n[2]; k++) {
                float *number = (float *)a->value.data + (ptrdiff_t)i * x.step[0] +
                                (ptrdiff_t)head * x.step[1] + (ptrdiff_t)k * x.step[2];
                const float value = c->values[at - c->position];
                *number = c->kind == ATTN_EDIT_ZERO    ? 0
                          : c->kind == ATTN_EDIT_SET   ? value
                          : c->kind == ATTN_EDIT_ADD   ? *number + value
                          : c->kind == ATTN_EDIT_SCALE ? *number * value
                                                       : mean;
            }
    }
    return 0;
}

static attn_status edit(attn_session *session, change *c)
{
    attn_edit e = {.name = c->name,
                   .kind = c->kind,
                   .first = c->position,
                   .count = c->n_positions,
                   .first_head = c->head,
                   .n_heads = c->rank == 3 ? c->n_heads : 0,
                   .value = attn_borrow(c->values, ATTN_F32,
                                        c->over_keys   ? attn_shape3(1, c->n_positions, 1)
                                        : c->rank == 3 ? attn_shape3(c->n_positions, 1, 1)
                                                       : attn_shape2(c->n_positions, 1))};
    return attn_hook_edit(&ctx, NULL, session, &e);
}

static change take_change(input *in)
{
    static const attn_edit_kind kinds[] = {ATTN_EDIT_ZERO, ATTN_EDIT_SET, ATTN_EDIT_MEAN,
                                           ATTN_EDIT_ADD, ATTN_EDIT_SCALE};
    const unsigned name = take(in) % (unsigned)n_names, how = take(in);
    change c;
    float strength;
    memset(&c, 0, sizeof c);
    strcpy(c.name, names[name]);
    c.rank = ranks[name];
    c.kind = kinds[how % 5];
    c.n_positions = (size_t)1 << how / 5 % 3;
    c.position = how / 15 % (TEXT - 3);
    c.n_heads = 1;
    if (c.rank == 3) {
        c.head = take(in) % HEADS;
        c.n_heads = 1 + take(in) % (HEADS - c.head);
    }
    strength = ((float)take(in) - 128) / 8;
    for (size_t i = 0; i < c.n_positions; i++) {
        c.values[i] = ((float)take(in) - 128) / 8;
        if (c.kind == ATTN_EDIT_ADD)
            c.values[i] *= strength;
    }
    /* Of later keys there are as many as the piece has rows: they stay as they are. */
    c.over_keys = strstr(c.name, "_scores") || strstr(c.name, "_pattern");
    if (c.over_keys)
        c.kind = strstr(c.name, "_scores") ? ATTN_EDIT_ADD : ATTN_EDIT_ZERO;
    if (strstr(c.name, "hook_scale")) { /* what is divided by */
        c.kind = ATTN_EDIT_SET;
        for (size_t i = 0; i < c.n_positions; i++)
            c.values[i] = c.values[i] > 0 ? c.values[i] : 1 - c.values[i];
    }
    return c;
}

/* The same change made elsewhere, if there is such a place; how many names that takes. */
static int elsewhere(const change *c, char (*others)[64])
{
    const char *inputs[] = {"q", "k", "v"};
    int layer = 0, i;
    if (sscanf(c->name, "blocks.%d.", &layer) == 1 && strstr(c->name, "resid_post") &&
        layer + 1 < LAYERS) {
        snprintf(others[0], 64, "blocks.%d.hook_resid_pre", layer + 1);
        return 1;
    }
    if (strstr(c->name, "_pattern")) { /* only to zero: then the sum over keys is zero */
        snprintf(others[0], 64, "blocks.%d.attn.hook_z", layer);
        return 1;
    }
    for (i = 0; i < 3 && strstr(c->name, "hook_attn_in"); i++)
        snprintf(others[i], 64, "blocks.%d.hook_%s_input", layer, inputs[i]);
    return i;
}

/* ---- what a hook saw ---- */

static float seen[MOST_NAMES][TEXT][ROW];

static int index_of(const char *name)
{
    int i = 0;
    while (strcmp(names[i], name) != 0)
        i++;
    return i;
}

UNTRACED static int see(const attn_activation *a, void *user)
{
    const axes x = axes_of(a);
    float(*rows)[ROW] = seen[index_of(a->name)];
    size_t i, head, k;
    (void)user;
    MUST(x.n[1] * x.n[2] <= ROW && a->first + x.n[0] <= TEXT);
    for (i = 0; i < x.n[0]; i++)
        for (head = 0; head < x.n[1]; head++)
            for (k = 0; k < x.n[2]; k++)
                rows[a->first + i][head * x.n[2] + k] =
                    *((const float *)a->value.data + (ptrdiff_t)i * x.step[0] +
                      (ptrdiff_t)head * x.step[1] + (ptrdiff_t)k * x.step[2]);
    return 0;
}

/* A record of n positions has the bits that the hook saw, of later keys 0 or -inf. */
UNTRACED static void check_record(const attn_record *record, size_t first, size_t n)
{
    for (size_t which = 0; which < attn_record_n_activations(record); which++) {
        attn_activation a = {.name = attn_record_name(record, which)};
        MUST(attn_record_get(&ctx, &a.value, record, a.name) == ATTN_OK);
        axes x = axes_of(&a);
        MUST(x.n[0] == n - first);
        for (size_t i = 0; i < x.n[0]; i++)
            for (size_t head = 0; head < x.n[1]; head++)
                for (size_t k = 0; k < x.n[2]; k++) {
                    const float *number = (const float *)a.value.data + (ptrdiff_t)i * x.step[0] +
                                          (ptrdiff_t)head * x.step[1] + (ptrdiff_t)k * x.step[2];
                    MUST(memcmp(number, &seen[index_of(a.name)][first + i][head * x.n[2] + k],
                                sizeof *number) == 0);
                }
    }
}

/* ---- the cache ---- */

typedef float cache_of_layer[TEXT * WIDE];

static void get_cache(const attn_session *session, size_t layer, int part, size_t first, size_t n,
                      float *to)
{
    attn_tensor out = attn_borrow(to, ATTN_F32, attn_shape3(n, HEADS, WIDE / HEADS)), held = {0};
    MUST(attn_session_get_cache(&ctx, &held, session, (attn_cache_part)part, layer, first) ==
         ATTN_OK);
    MUST(attn_copy(&ctx, &out, attn_slice(held, 0, 0, n)) == ATTN_OK);
    attn_tensor_free(&ctx, &held);
}

static void get_caches(const attn_session *session, cache_of_layer *to)
{
    const size_t n = attn_session_length(session);
    for (int i = 0; i < 2 * LAYERS && n > 0; i++)
        get_cache(session, (size_t)i / 2, i % 2, 0, n, to[i]);
}

typedef struct cache_change {
    int part;
    size_t layer, first, n;
    float values[TEXT * WIDE];
} cache_change;

static void set_cache(attn_session *session, cache_change *c)
{
    MUST(attn_session_set_cache(
             &ctx, session, (attn_cache_part)c->part, c->layer, c->first,
             attn_borrow(c->values, ATTN_F32, attn_shape3(c->n, HEADS, WIDE / HEADS))) == ATTN_OK);
}

static int set_in_hook(const attn_activation *a, void *user)
{
    set_cache(a->session, (cache_change *)user);
    return 0;
}

/* Scores and z of the last row by their definitions, from the queries and patterns that a hook saw
 * and what the cache says. */
static void check_attention(const attn_session *session, size_t layer)
{
    static const char *const points[] = {"q", "attn_scores", "pattern", "z"};
    static cache_of_layer keys, values;
    const size_t n = attn_session_length(session), d = WIDE / HEADS;
    const float *saw[4];
    for (size_t k = 0; k < 4; k++) {
        char name[64];
        snprintf(name, sizeof name, "blocks.%d.attn.hook_%s", (int)layer, points[k]);
        saw[k] = seen[index_of(name)][n - 1];
    }
    get_cache(session, layer, 0, 0, n, keys);
    get_cache(session, layer, 1, 0, n, values);
    for (size_t head = 0; head < HEADS; head++) {
        double z[WIDE] = {0}, most[WIDE] = {0};
        for (size_t j = 0; j < n; j++) {
            double score = 0, size = 1;
            for (size_t k = 0; k < d; k++) {
                const double product = (double)saw[0][head * d + k] *
                                       (double)keys[(j * HEADS + head) * d + k] / sqrt((double)d);
                const double share =
                    (double)saw[2][head * n + j] * (double)values[(j * HEADS + head) * d + k];
                score += product;
                size += fabs(product);
                z[k] += share;
                most[k] += fabs(share);
            }
            MUST(fabs(score - (double)saw[1][head * n + j]) <= 1e-5 * size);
        }
        for (size_t k = 0; k < d; k++)
            MUST(fabs(z[k] - (double)saw[3][head * d + k]) <= 1e-5 * (1 + most[k]));
    }
}

/* Other keys or values: between feeds in one session, from a hook in the other. */
static void change_cache(input *in, attn_session *one, attn_session *other, int halfs)
{
    static cache_change c;
    static float back[TEXT * WIDE];
    const size_t n = attn_session_length(one);
    const int32_t token = (int32_t)(take(in) % VOCAB);
    if (n == TEXT)
        return;
    c.part = take(in) % 2;
    c.layer = take(in) % LAYERS;
    c.first = take(in) % n;
    c.n = 1 + take(in) % (n - c.first);
    for (size_t i = 0; i < c.n * WIDE; i++)
        c.values[i] = ((float)take(in) - 100) / 64 + (float)i / 1024;
    set_cache(one, &c);
    get_cache(one, c.layer, c.part, c.first, c.n, back);
    for (size_t i = 0; i < c.n * WIDE; i++) /* the same, or the nearest half */
        MUST(fabs((double)back[i] - (double)c.values[i]) <=
             (halfs ? ldexp(fabs((double)c.values[i]), -11) : 0));
    MUST(attn_hook(&ctx, NULL, one, "*", see, NULL) == ATTN_OK);
    MUST(attn_hook(&ctx, NULL, other, "hook_embed", set_in_hook, &c) == ATTN_OK);
    MUST(attn_feed(&ctx, one, &token, 1) == ATTN_OK);
    MUST(attn_feed(&ctx, other, &token, 1) == ATTN_OK);
    MUST(memcmp(attn_session_logits(one), attn_session_logits(other), VOCAB * sizeof(float)) == 0);
    check_attention(one, c.layer);
    get_cache(other, c.layer, c.part, c.first, c.n, c.values); /* as it rounds them */
    MUST(memcmp(back, c.values, c.n * WIDE * sizeof *back) == 0);
    attn_unhook_all(one);
    attn_unhook_all(other);
}

/* ---- both ways ---- */

typedef struct stopper {
    unsigned left;
} stopper;
static int stop(const attn_activation *a, void *user)
{
    (void)a;
    return ((stopper *)user)->left-- == 0;
}

/* A feed that is stopped, if it comes to that, leaves all as it was. */
static void feed_stopped(attn_session *session, stopper *s, const int32_t *tokens, size_t n,
                         unsigned left)
{
    static cache_of_layer before[2 * LAYERS], after[2 * LAYERS];
    static float logits[VOCAB];
    const size_t length = attn_session_length(session);
    const float *had = attn_session_logits(session);
    if (had)
        memcpy(logits, had, sizeof logits);
    get_caches(session, before);
    s->left = left;
    MUST(attn_feed(&ctx, session, tokens, n) == ATTN_STOPPED);
    s->left = ~0u;
    MUST(attn_session_length(session) == length && !attn_session_logits(session) == !had);
    MUST(!had || memcmp(attn_session_logits(session), logits, sizeof logits) == 0);
    get_caches(session, after);
    MUST(length == 0 || memcmp(before, after, sizeof before) == 0);
}

/* Feeds the text in pieces; their logits. */
static void feed_pieces(input *in, attn_session *session, stopper *s, const int32_t *tokens,
                        size_t n, float (*logits)[VOCAB])
{
    size_t count;
    for (size_t at = 0; at < n; at += count) {
        const unsigned how = take(in);
        count = 1 + how % 8;
        count = count < n - at ? count : n - at;
        if (how >= 192)
            feed_stopped(session, s, tokens + at, count, how % 48); /* there are more than that */
        attn_feed_item item = {
            .session = session, .tokens = tokens + at, .n_tokens = count, .logits = logits[at]};
        MUST(attn_feed_batch(&ctx, &item, 1) == ATTN_OK);
    }
}

static void fuzz_changes(input *in, attn_session *pieces, attn_session *whole, int halfs)
{
    static float memory[400000], logits[2][TEXT][VOCAB];
    static cache_of_layer caches[2][2 * LAYERS];
    change c[3];
    char others[3][64];
    int32_t tokens[TEXT];
    const char *recorded[2] = {"*", NULL};
    attn_record_desc desc;
    attn_record *record = NULL;
    stopper s = {~0u};
    const unsigned how = take(in);
    const size_t n = 1 + how % TEXT, n_changes = 1 + take(in) % 3;
    size_t room;
    int n_others = 0;
    memset(&desc, 0, sizeof desc);
    memset(caches, 0, sizeof caches);
    for (size_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(take(in) % VOCAB);
    for (size_t i = 0; i < n_changes; i++)
        c[i] = take_change(in);
    if (n_changes == 1 && take(in) % 2)
        n_others = elsewhere(&c[0], others);

    for (size_t i = 0; i < n_changes; i++)
        MUST(attn_hook(&ctx, NULL, pieces, c[i].name, alter, &c[i]) == ATTN_OK);
    for (size_t i = 0; i < n_changes && n_others == 0; i++)
        MUST(edit(whole, &c[i]) == ATTN_OK);
    for (int k = 0; k < n_others; k++) {
        c[k] = c[0]; /* an edit's values stay where they are */
        c[k].over_keys = 0;
        strcpy(c[k].name, others[k]);
        MUST(edit(whole, &c[k]) == ATTN_OK);
    }

    recorded[1] = on_request[take(in) % 6];
    desc.names = recorded;
    desc.n_names = 2;
    desc.first = take(in) % 4;
    room = take(in) % (2 * TEXT);
    desc.n_positions = room < TEXT ? room : 0;
    desc.memory = memory;
    desc.memory_size = sizeof memory;
    MUST(attn_record_new(&ctx, &record, pieces, &desc) == ATTN_OK);
    if (desc.n_positions > 0 && desc.first + desc.n_positions < n) {
        MUST(attn_feed(&ctx, pieces, tokens, n) == ATTN_E_SPACE);
        MUST(attn_session_length(pieces) == 0 && !attn_session_logits(pieces));
        attn_record_free(record);
        record = NULL;
    }
    MUST(attn_hook(&ctx, NULL, pieces, "*", stop, &s) == ATTN_OK);
    MUST(attn_hook(&ctx, NULL, whole, "*", see, NULL) == ATTN_OK);
    MUST(attn_hook(&ctx, NULL, whole, recorded[1], see, NULL) == ATTN_OK);

    feed_pieces(in, pieces, &s, tokens, n, logits[0]);
    attn_feed_item item = {
        .session = whole, .tokens = tokens, .n_tokens = n, .logits = logits[1][0]};
    MUST(attn_feed_batch(&ctx, &item, 1) == ATTN_OK);
    MUST(memcmp(logits[0], logits[1], n * sizeof logits[0][0]) == 0);
    get_caches(pieces, caches[0]);
    get_caches(whole, caches[1]);
    MUST(memcmp(caches[0], caches[1], sizeof caches[0]) == 0);
    if (record && n_others == 0 && n > desc.first)
        check_record(record, desc.first, n);
    attn_unhook_all(pieces);
    attn_unhook_all(whole);
    attn_record_free(record);
    change_cache(in, pieces, whole, halfs);
}

int fuzz_hooks(const unsigned char *data, size_t size)
{
    static attn_session *session, *plain, *pieces[2], *whole[2];
    input in;
    int i;
    in.data = data;
    in.size = size;
    memset(&ctx, 0, sizeof ctx);
    ctx.n_threads = 1;
    if (!session) {
        attn_session_desc desc = {.n_ctx = TOKENS, .n_batch = 2}; /* three pieces of two rows */
        MUST(attn_session_new(&ctx, &session, fuzz_model(), &desc) == ATTN_OK);
        MUST(attn_session_new(&ctx, &plain, fuzz_model(), &desc) == ATTN_OK);
        for (i = 0; i < 2; i++) {
            desc.n_ctx = TEXT;
            desc.cache_dtype = i ? ATTN_F16 : ATTN_F32;
            desc.n_batch = 3;
            MUST(attn_session_new(&ctx, &pieces[i], fuzz_model(), &desc) == ATTN_OK);
            desc.n_batch = 0;
            MUST(attn_session_new(&ctx, &whole[i], fuzz_model(), &desc) == ATTN_OK);
        }
        collect_names(&ctx, plain);
    }
    unsigned kind = take(&in);
    if (kind % 4 == 0) {
        fuzz_patterns(&in, session, plain);
        return 0;
    }
    i = kind % 4 == 3;
    MUST(attn_session_truncate(&ctx, pieces[i], 0) == ATTN_OK);
    MUST(attn_session_truncate(&ctx, whole[i], 0) == ATTN_OK);
    if (kind % 2)
        fuzz_changes(&in, pieces[i], whole[i], i);
    else
        fuzz_shapes(&in, pieces[i], whole[i]);
    return 0;
}
