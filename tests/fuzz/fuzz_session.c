/* Random calls on three sessions of one model against what must happen: a list of tokens for each,
 * and the logits that a fresh session gives for such a list. */
#include "fuzz.h"

enum { SESSIONS = 3, MOST = 24 };

typedef struct twin {
    attn_session *session;
    int32_t tokens[MOST];
    size_t n, capacity;
    int has_logits;
} twin;

static void check(const twin *t)
{
    static attn_session *fresh;
    const size_t n_vocab = attn_model_config(fuzz_model())->n_vocab;
    const float *logits = attn_logits(t->session);
    attn_ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    ctx.n_threads = 1;
    MUST(attn_session_length(t->session) == t->n);
    MUST(attn_session_capacity(t->session) == t->capacity);
    MUST(memcmp(attn_session_tokens(t->session), t->tokens, t->n * sizeof *t->tokens) == 0);
    MUST((logits != NULL) == t->has_logits);
    if (!logits)
        return;
    if (!fresh) {
        attn_session_desc desc = {MOST, 0, ATTN_F32};
        MUST(attn_session_new(&ctx, &fresh, fuzz_model(), &desc) == ATTN_OK);
    }
    MUST(attn_rewind(&ctx, fresh, 0) == ATTN_OK);
    MUST(attn_feed(&ctx, fresh, t->tokens, t->n) == ATTN_OK);
    MUST(memcmp(attn_logits(fresh), logits, n_vocab * sizeof *logits) == 0);
}

/* 0 to MOST tokens, now and then one that is none. */
static size_t take_tokens(input *in, int32_t *tokens)
{
    const size_t n = take(in) % 12;
    size_t i;
    for (i = 0; i < n; i++)
        tokens[i] = (int32_t)(take(in) % 43) - 1;
    return n;
}

/* What feeding these to t must return. */
static attn_status expected(const twin *t, const int32_t *tokens, size_t n)
{
    size_t i;
    if (n == 0)
        return ATTN_E_ARGUMENT;
    if (n > t->capacity - t->n)
        return ATTN_E_CONTEXT;
    for (i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= 40)
            return ATTN_E_TOKEN;
    return ATTN_OK;
}

static void append(twin *t, const int32_t *tokens, size_t n)
{
    memcpy(t->tokens + t->n, tokens, n * sizeof *tokens);
    t->n += n;
    t->has_logits = 1;
}

static void feed(attn_ctx *ctx, twin *t, input *in)
{
    int32_t tokens[MOST];
    const size_t n = take_tokens(in, tokens);
    const attn_status want = expected(t, tokens, n);
    MUST(attn_feed(ctx, t->session, tokens, n) == want);
    if (want == ATTN_OK)
        append(t, tokens, n);
}

/* All three, or two of them with one twice. */
static void feed_batch(attn_ctx *ctx, twin *all, input *in)
{
    int32_t tokens[SESSIONS][MOST];
    attn_feed_item items[SESSIONS];
    size_t n[SESSIONS], i;
    const int twice = take(in) % 8 == 0;
    int good = !twice;
    memset(items, 0, sizeof items);
    for (i = 0; i < SESSIONS; i++) {
        n[i] = take_tokens(in, tokens[i]);
        items[i].session = all[twice ? i % 2 : i].session;
        items[i].tokens = tokens[i];
        items[i].n_tokens = n[i];
        good = good && expected(&all[i], tokens[i], n[i]) == ATTN_OK;
    }
    MUST((attn_feed_batch(ctx, items, SESSIONS) == ATTN_OK) == good);
    for (i = 0; good && i < SESSIONS; i++)
        append(&all[i], tokens[i], n[i]);
}

static void rewind_to(attn_ctx *ctx, twin *t, size_t length)
{
    MUST((attn_rewind(ctx, t->session, length) == ATTN_OK) == (length <= t->n));
    if (length <= t->n) {
        t->n = length;
        t->has_logits = 0;
    }
}

static void copy(attn_ctx *ctx, twin *to, const twin *from)
{
    const int fits = from->n <= to->capacity;
    MUST(attn_session_copy(ctx, to->session, from->session) == (fits ? ATTN_OK : ATTN_E_CONTEXT));
    if (fits && to != from) {
        memcpy(to->tokens, from->tokens, sizeof to->tokens);
        to->n = from->n;
        to->has_logits = from->has_logits;
    }
}

static void score(attn_ctx *ctx, twin *t, input *in)
{
    int32_t tokens[MOST];
    float nll[MOST];
    const size_t n = take_tokens(in, tokens);
    attn_status want = expected(t, tokens, n);
    if (want == ATTN_OK && n < 2)
        want = ATTN_E_ARGUMENT;
    MUST(attn_score(ctx, t->session, tokens, n, nll, NULL) == want);
    if (want == ATTN_OK)
        append(t, tokens, n);
}

/* Greedy, with guesses: each token is the first of the largest logits, which check() has seen. */
static void generate(attn_ctx *ctx, twin *t, input *in)
{
    attn_generate_desc desc;
    int32_t ids[MOST];
    const int32_t *held;
    size_t n_ids = 0, i, now;
    memset(&desc, 0, sizeof desc);
    desc.max_tokens = 1 + take(in) % 12;
    desc.ignore_eos = 1;
    desc.guess = (int)(take(in) % 6) - 1;
    desc.ids = ids;
    desc.n_ids = &n_ids;
    if (!t->has_logits) { /* empty, or rewound: there is nothing to sample from */
        MUST(attn_generate(ctx, t->session, "", &desc, NULL, NULL) == ATTN_E_ARGUMENT);
        return;
    }
    MUST(attn_generate(ctx, t->session, "", &desc, NULL, NULL) == ATTN_OK);
    held = attn_session_tokens(t->session);
    now = attn_session_length(t->session);
    MUST(now >= t->n && now <= t->n + n_ids && n_ids <= desc.max_tokens && now + 1 >= t->n + n_ids);
    for (i = t->n; i < now; i++)
        MUST(held[i] == ids[i - t->n]);
    memcpy(t->tokens, held, now * sizeof *held);
    t->n = now;
    t->has_logits = attn_logits(t->session) != NULL;
}

typedef struct stop_after {
    unsigned left;
} stop_after;
static int stop(const attn_activation *activation, void *user)
{
    (void)activation;
    return ((stop_after *)user)->left-- == 0;
}

/* A feed that a hook stops changes nothing. */
static void stopped(attn_ctx *ctx, twin *t, input *in)
{
    int32_t tokens[MOST];
    stop_after counter;
    size_t n;
    attn_status want;
    counter.left = take(in) % 20;
    n = take_tokens(in, tokens);
    want = expected(t, tokens, n);
    MUST(attn_hook(ctx, t->session, "*", stop, &counter) == ATTN_OK);
    if (want == ATTN_OK)
        want = ATTN_STOPPED; /* there are more than 20 activations */
    MUST(attn_feed(ctx, t->session, tokens, n) == want);
    attn_unhook_all(t->session);
}

int fuzz_session(const unsigned char *data, size_t size)
{
    static const attn_session_desc sizes[SESSIONS] = {
        {MOST, 5, ATTN_F32}, {MOST, 0, ATTN_F32}, {9, 1, ATTN_F32}};
    twin all[SESSIONS];
    attn_ctx ctx;
    input in;
    size_t i;
    int calls = 0;
    in.data = data;
    in.size = size;
    memset(&ctx, 0, sizeof ctx);
    ctx.n_threads = 1;
    memset(all, 0, sizeof all);
    for (i = 0; i < SESSIONS; i++) {
        MUST(attn_session_new(&ctx, &all[i].session, fuzz_model(), &sizes[i]) == ATTN_OK);
        all[i].capacity = sizes[i].n_ctx;
    }
    while (in.size > 0 && calls++ < 40) {
        const unsigned op = take(&in);
        twin *t = &all[op / 16 % SESSIONS];
        switch (op % 16) {
        case 0:
            feed_batch(&ctx, all, &in);
            break;
        case 1:
            rewind_to(&ctx, t, take(&in) % (MOST + 2));
            break;
        case 2:
            rewind_to(&ctx, t, t->n - t->n / 3);
            break;
        case 3:
            copy(&ctx, t, &all[take(&in) % SESSIONS]);
            break;
        case 4:
            score(&ctx, t, &in);
            break;
        case 5:
        case 6:
            generate(&ctx, t, &in);
            break;
        case 7:
            stopped(&ctx, t, &in);
            break;
        default:
            feed(&ctx, t, &in);
        }
        for (i = 0; i < SESSIONS; i++)
            check(&all[i]);
    }
    for (i = 0; i < SESSIONS; i++)
        attn_session_free(all[i].session);
    return 0;
}
