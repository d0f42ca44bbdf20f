/* The hook interface: any patterns, against a matcher that is a plain table; hooks that change
 * numbers, stop, or read the session; logits that are the same again once the hooks are gone. */
#include "fuzz.h"

enum { MOST_NAMES = 120, MOST_HOOKS = 4, TOKENS = 6 };

static char names[MOST_NAMES][64];
static int n_names, n_usual; /* those from n_usual on are made on request only */

static int collect(const attn_activation *a, void *user)
{
    (void)user;
    MUST(n_names < MOST_NAMES && strlen(a->name) < 64);
    strcpy(names[n_names++], a->name);
    return 0;
}

/* fits[i]: the first i letters of the text match the pattern so far. */
static int matches(const char *pattern, const char *text)
{
    const size_t n = strlen(text);
    char fits[65] = {1}, next[65] = {0};
    size_t i;
    for (; *pattern; pattern++) {
        for (i = 0; i <= n; i++)
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

/* Runs a text once, with hooks that collect the names. */
static void collect_names(attn_ctx *ctx, attn_session *session)
{
    static const char *const on_request[] = {"*.hook_attn_in", "*.hook_q_input", "*.hook_k_input",
                                             "*.hook_v_input", "*.hook_result",  "*.hook_mlp_in"};
    static const int32_t tokens[] = {3, 1};
    size_t i;
    MUST(attn_hook(ctx, session, "*", collect, NULL) == ATTN_OK);
    MUST(attn_feed(ctx, session, tokens, 2) == ATTN_OK);
    attn_unhook_all(session);
    n_usual = n_names;
    MUST(n_usual > 20);
    for (i = 0; i < sizeof on_request / sizeof on_request[0]; i++)
        MUST(attn_hook(ctx, session, on_request[i], collect, NULL) == ATTN_OK);
    MUST(attn_rewind(ctx, session, 0) == ATTN_OK);
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
    size_t i, j, k;
    MUST(matches(w->pattern, a->name));
    MUST(a->session == w->session && a->value.ndim >= 2 && a->first % 2 == 0);
    w->calls++;
    for (i = 0; i < a->value.shape[0]; i++)
        for (j = 0; j < a->value.shape[1]; j++)
            for (k = 0; k < a->value.shape[2]; k++) {
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

int fuzz_hooks(const unsigned char *data, size_t size)
{
    static attn_session *session, *plain;
    static const int32_t tokens[TOKENS] = {3, 1, 4, 1, 5, 9};
    attn_session_desc desc = {TOKENS, 2, ATTN_F32}; /* three pieces of two rows */
    watcher w[MOST_HOOKS];
    attn_ctx ctx;
    attn_status status;
    input in;
    size_t n_vocab = attn_model_config(fuzz_model())->n_vocab, n, i;
    int k, n_hooks = 0, changing = 0, stopping = 0;
    in.data = data;
    in.size = size;
    memset(&ctx, 0, sizeof ctx);
    ctx.n_threads = 1;
    memset(w, 0, sizeof w);
    if (!session) {
        MUST(attn_session_new(&ctx, &session, fuzz_model(), &desc) == ATTN_OK);
        MUST(attn_session_new(&ctx, &plain, fuzz_model(), &desc) == ATTN_OK);
        collect_names(&ctx, plain);
    }
    for (i = 0; i < MOST_HOOKS && in.size > 0; i++) {
        watcher *next = &w[n_hooks];
        int found = 0;
        next->action = take(&in) % 5;
        next->session = session;
        take_pattern(&in, next->pattern);
        for (k = 0; k < n_names; k++)
            found += asks_for(next->pattern, k);
        status = attn_hook(&ctx, session, next->pattern, watch, next);
        MUST(status == (found ? ATTN_OK : ATTN_E_NAME));
        if (!found)
            continue;
        next->expected = found;
        changing |= next->action == 3;
        stopping |= next->action == 4;
        n_hooks++;
    }
    n = 1 + take(&in) % TOKENS;
    status = attn_feed(&ctx, session, tokens, n);
    MUST(status == (stopping ? ATTN_STOPPED : ATTN_OK));
    MUST(attn_session_length(session) == (stopping ? 0 : n));
    for (k = 0; k < n_hooks && !stopping; k++)
        MUST(w[k].calls == w[k].expected * (int)((n + 1) / 2));
    attn_unhook_all(session);
    if (changing || stopping) { /* what they wrote is in the cache: begin again */
        MUST(attn_rewind(&ctx, session, 0) == ATTN_OK);
        MUST(attn_feed(&ctx, session, tokens, n) == ATTN_OK);
    }
    MUST(attn_rewind(&ctx, plain, 0) == ATTN_OK);
    MUST(attn_feed(&ctx, plain, tokens, n) == ATTN_OK);
    MUST(memcmp(attn_logits(session), attn_logits(plain), n_vocab * sizeof(float)) == 0);
    MUST(attn_rewind(&ctx, session, 0) == ATTN_OK);
    return 0;
}
