/* Random calls on sessions of one model against what must happen: for each a list of tokens, a list
 * for each layer of the tokens whose keys and values it has, and what a fresh session says of such
 * a list when it is fed in one call: logits and residual streams, every bit of them. */
#include "fuzz.h"
#include <math.h>

enum { SESSIONS = 5 };

typedef struct token_list {
    int32_t ids[MOST];
    size_t n;
} token_list;

typedef struct twin {
    attn_session *session;
    attn_session_desc desc;
    token_list tokens, layer[LAYERS];
    int layers_known; /* not after drafts that turned out wrong */
    int has_logits, hooked;
    float logits[VOCAB];
    size_t rows_seen, rows_fed; /* by the hook, and what it must have seen */
} twin;

static attn_ctx ctx;

/* ---- what a fresh session says ---- */

typedef struct truth {
    attn_session *session;
    token_list tokens;
    float stream[LAYERS + 1][MOST][WIDE]; /* that enters each layer, and leaves the last */
    float logits[MOST][VOCAB];
} truth;

static int keep_stream(const attn_activation *a, void *user)
{
    truth *t = (truth *)user;
    const size_t which = a->layer + (strstr(a->name, "resid_post") != NULL);
    for (size_t i = 0; i < a->value.shape[0]; i++)
        for (size_t j = 0; j < WIDE; j++)
            t->stream[which][a->first + i][j] = attn_get2(a->value, i, j);
    return 0;
}

static const truth *fresh(attn_dtype cache, const token_list *tokens)
{
    static truth truths[2];
    truth *t = &truths[cache == ATTN_F16];
    attn_session_desc desc = {.n_ctx = MOST};
    desc.cache_dtype = cache;
    if (!t->session) {
        MUST(attn_session_new(&ctx, &t->session, fuzz_model(), &desc) == ATTN_OK);
        MUST(attn_hook(&ctx, NULL, t->session, "*.hook_resid_pre", keep_stream, t) == ATTN_OK);
        MUST(attn_hook(&ctx, NULL, t->session, "blocks.2.hook_resid_post", keep_stream, t) ==
             ATTN_OK);
    }
    if (t->tokens.n == tokens->n &&
        memcmp(t->tokens.ids, tokens->ids, tokens->n * sizeof *tokens->ids) == 0)
        return t;
    MUST(attn_session_truncate(&ctx, t->session, 0) == ATTN_OK);
    attn_feed_item item = {.session = t->session,
                           .tokens = tokens->ids,
                           .n_tokens = tokens->n,
                           .logits = t->logits[0]};
    MUST(attn_feed_batch(&ctx, &item, 1) == ATTN_OK);
    t->tokens = *tokens;
    return t;
}

static void check(const twin *t)
{
    const float *logits = attn_session_logits(t->session);
    const size_t n = t->tokens.n;
    MUST(attn_session_length(t->session) == n);
    MUST(attn_session_capacity(t->session) == t->desc.n_ctx);
    MUST(attn_session_model(t->session) == fuzz_model());
    MUST(memcmp(attn_session_tokens(t->session), t->tokens.ids, n * sizeof(int32_t)) == 0);
    MUST((logits != NULL) == t->has_logits);
    MUST(!logits || memcmp(t->logits, logits, sizeof t->logits) == 0);
    MUST(!t->hooked || t->rows_seen == t->rows_fed);
}

/* ---- what tokens do to the lists ---- */

static token_list joined(const token_list *a, const token_list *b)
{
    token_list both = *a;
    MUST(a->n + b->n <= MOST);
    memcpy(both.ids + a->n, b->ids, b->n * sizeof *b->ids);
    both.n += b->n;
    return both;
}

/* What feeding these to t must return, if they go through all layers. */
static attn_status expected(const twin *t, const token_list *tokens)
{
    if (tokens->n == 0)
        return ATTN_E_ARGUMENT;
    if (tokens->n > t->desc.n_ctx - t->tokens.n)
        return ATTN_E_CONTEXT;
    for (size_t i = 0; i < tokens->n; i++)
        if (tokens->ids[i] < 0 || tokens->ids[i] >= VOCAB)
            return ATTN_E_TOKEN;
    return ATTN_OK;
}

/* A pass over some layers: what was in them from its first one upwards and beyond the session's
 * tokens is gone; with the last layer the tokens are the session's. */
static void passed(twin *t, const token_list *tokens, size_t first, size_t end)
{
    const token_list all = joined(&t->tokens, tokens);
    for (size_t i = first; i < LAYERS; i++)
        t->layer[i] = i < end ? all : t->tokens;
    if (first == 0)
        t->layers_known = 1;
    if (end < LAYERS)
        return;
    t->tokens = all;
    t->rows_fed += first < LAYERS ? tokens->n : 0; /* the hook is in the last layer */
    t->has_logits = 1;
    memcpy(t->logits, fresh(t->desc.cache_dtype, &all)->logits[all.n - 1], sizeof t->logits);
}

/* A pass that did not come to its end. */
static void broken_off(twin *t)
{
    for (size_t i = 0; i < LAYERS; i++)
        t->layer[i] = t->tokens;
}

/* Some tokens, now and then one that is none; or many; or what the first layer has of an earlier
 * text. Small ids come again and again, as drafting likes. */
static token_list take_tokens(input *in, const twin *t)
{
    const unsigned how = take(in);
    const token_list *earlier = &t->layer[0];
    token_list tokens;
    tokens.n = how % 16 < 12 ? how % 16 : 3 * (how % 16);
    tokens.n = tokens.n < MOST ? tokens.n : MOST;
    for (size_t i = 0; i < tokens.n; i++)
        if (how >= 192 && t->tokens.n + i < earlier->n)
            tokens.ids[i] = earlier->ids[t->tokens.n + i];
        else
            tokens.ids[i] = i < 12 ? (int32_t)(take(in) % 43) - 1 : tokens.ids[i - 7];
    for (size_t i = 0; i < tokens.n && how < 16; i++) /* the others are letters, and 260: none */
        tokens.ids[i] += tokens.ids[i] < 38 ? 96 : 220;
    return tokens;
}

/* ---- calls ---- */

static void feed(twin *t, input *in)
{
    const token_list tokens = take_tokens(in, t);
    const attn_status want = expected(t, &tokens);
    MUST(attn_feed(&ctx, t->session, tokens.ids, tokens.n) == want);
    if (want == ATTN_OK)
        passed(t, &tokens, 0, LAYERS);
}

/* One sequence's part of a batch, and what it was made of. */
typedef struct part {
    twin *of;
    token_list tokens;
    size_t rows[MOST];
    float resid[MOST][WIDE], resid_out[MOST][WIDE], logits[MOST][VOCAB];
} part;

static size_t end_of(const attn_feed_item *item)
{
    return item->layers.end || item->layers.embed_only ? item->layers.end : LAYERS;
}

static attn_status expected_of_part(const part *p, const attn_feed_item *item)
{
    const size_t first = item->layers.first, end = end_of(item);
    const attn_status status = expected(p->of, &p->tokens);
    if (status != ATTN_OK)
        return status;
    if (item->layers.embed_only && (first > 0 || end > 0 || item->layers.resid))
        return ATTN_E_ARGUMENT;
    if (end > LAYERS || first > end || (first == end && end < LAYERS && !item->layers.embed_only))
        return ATTN_E_ARGUMENT; /* no layers */
    if ((first > 0 && !item->layers.resid) || (end < LAYERS && (item->logits || item->rows)))
        return ATTN_E_ARGUMENT;
    token_list all = joined(&p->of->tokens, &p->tokens);
    for (size_t i = 0; i < first; i++)
        if (p->of->layer[i].n < all.n ||
            memcmp(p->of->layer[i].ids, all.ids, all.n * sizeof *all.ids) != 0)
            return ATTN_E_ARGUMENT; /* it has not seen these tokens */
    for (size_t i = 0; item->logits && item->rows && i < item->n_rows; i++)
        if (item->rows[i] >= item->n_tokens || (i > 0 && item->rows[i] <= item->rows[i - 1]))
            return ATTN_E_ARGUMENT;
    return ATTN_OK;
}

/* After drafts nobody knows what the layers have of the rejected ones: some token more is fed. */
static void make_known(twin *t)
{
    token_list last = t->tokens;
    if (t->layers_known)
        return;
    t->tokens.n -= t->tokens.n > 0;
    last.ids[0] = t->tokens.ids[t->tokens.n];
    last.n = 1;
    MUST(attn_session_truncate(&ctx, t->session, t->tokens.n) == ATTN_OK);
    MUST(attn_feed(&ctx, t->session, last.ids, 1) == ATTN_OK);
    passed(t, &last, 0, LAYERS);
}

static void take_item(input *in, part *p, attn_feed_item *item, unsigned layers)
{
    const unsigned how = take(in);
    token_list all;
    memset(item, 0, sizeof *item);
    if (layers >= 128) {
        make_known(p->of);
        item->layers.first = layers % 4;
        item->layers.end = layers / 4 % 5;
        item->layers.first += how == 255;
        item->layers.embed_only = how / 8 % 8 == 7;
    }
    p->tokens = take_tokens(in, p->of);
    item->session = p->of->session;
    item->tokens = p->tokens.ids;
    item->n_tokens = p->tokens.n;
    if (how % 4 > 1)
        item->logits = p->logits[0];
    if (how % 4 == 3) { /* some rows; in a wrong order if all of how's bits are zero */
        const unsigned bits = take(in), n = bits % 4;
        item->rows = p->rows;
        for (; item->n_rows < n; item->n_rows++)
            p->rows[item->n_rows] = bits / 4 % 4 + item->n_rows * (bits / 16 % 8);
    }
    if (how / 4 % 2)
        item->layers.resid_out = p->resid_out[0];
    if (layers >= 128 && layers / 20 % 8 > 0) {
        memset(p->resid, 0, sizeof p->resid);
        if (expected(p->of, &p->tokens) == ATTN_OK && item->layers.first <= LAYERS) {
            all = joined(&p->of->tokens, &p->tokens);
            memcpy(p->resid,
                   fresh(p->of->desc.cache_dtype, &all)->stream[item->layers.first] +
                       p->of->tokens.n,
                   p->tokens.n * sizeof *p->resid);
        }
        item->layers.resid = p->resid[0];
    }
}

/* What a pass left in memory of ours, and in the session. */
static void check_part(const part *p, const attn_feed_item *item)
{
    twin *t = p->of;
    const size_t before = t->tokens.n, end = end_of(item);
    const token_list all = joined(&t->tokens, &p->tokens);
    const truth *said = fresh(t->desc.cache_dtype, &all);
    size_t n = item->rows ? item->n_rows : p->tokens.n;
    if (item->layers.resid_out)
        MUST(memcmp(p->resid_out, said->stream[end] + before, p->tokens.n * sizeof *p->resid) == 0);
    for (size_t i = 0; item->logits && i < n; i++)
        MUST(memcmp(p->logits[i], said->logits[before + (item->rows ? p->rows[i] : i)],
                    sizeof p->logits[i]) == 0);
    passed(t, &p->tokens, item->layers.first, end);
    if (end == LAYERS && item->logits && item->rows)
        t->has_logits = n > 0 && p->rows[n - 1] == p->tokens.n - 1;
}

/* One to all of the sessions, now and then one of them twice, or one that runs other layers. */
static void feed_batch(twin *all, input *in)
{
    static part parts[SESSIONS];
    attn_feed_item items[SESSIONS];
    const unsigned how = take(in), layers = take(in);
    const size_t n = 1 + how % SESSIONS, from = how / 8 % SESSIONS;
    unsigned wrong = 0; /* a bit for each status that is deserved */
    attn_status status;
    for (size_t i = 0; i < n; i++) {
        parts[i].of = &all[(from + (how < 240 ? i : i % 2)) % SESSIONS];
        take_item(in, &parts[i], &items[i], layers);
        status = expected_of_part(&parts[i], &items[i]);
        wrong |= status == ATTN_OK ? 0 : 1u << status;
        if (items[i].layers.first != items[0].layers.first ||
            items[i].layers.embed_only != items[0].layers.embed_only || (how >= 240 && i > 1))
            wrong |= 1u << ATTN_E_ARGUMENT;
    }
    status = attn_feed_batch(&ctx, items, n);
    MUST(wrong ? status != ATTN_OK && (wrong >> status & 1) : status == ATTN_OK);
    for (size_t i = 0; !wrong && i < n; i++)
        check_part(&parts[i], &items[i]);
}

static void truncate_to(twin *t, size_t length)
{
    MUST((attn_session_truncate(&ctx, t->session, length) == ATTN_OK) == (length <= t->tokens.n));
    if (length < t->tokens.n) {
        t->tokens.n = length;
        t->has_logits = 0;
    }
}

static void copy(twin *to, const twin *from)
{
    const attn_status want = to->desc.cache_dtype != from->desc.cache_dtype ? ATTN_E_ARGUMENT
                             : from->tokens.n > to->desc.n_ctx              ? ATTN_E_CONTEXT
                                                                            : ATTN_OK;
    MUST(attn_session_copy(&ctx, to->session, from->session) == want);
    if (want != ATTN_OK || to == from)
        return;
    to->tokens = from->tokens;
    to->layers_known = from->layers_known;
    to->has_logits = from->has_logits;
    memcpy(to->logits, from->logits, sizeof to->logits);
    for (size_t i = 0; i < LAYERS; i++) {
        to->layer[i] = from->layer[i];
        if (to->layer[i].n > to->desc.n_ctx)
            to->layer[i].n = to->desc.n_ctx;
    }
}

/* Losses by their definition, in double; an attn_score's own sums are floats. */
static void check_losses(const truth *said, const token_list *tokens, size_t before,
                         const attn_token_stats *stats)
{
    double sum = 0;
    size_t i;
    for (i = 0; i + 1 < tokens->n; i++) {
        const float *row = said->logits[before + i];
        double total = 0;
        for (size_t j = 0; j < VOCAB; j++)
            total += exp((double)row[j]);
        double loss = log(total) - (double)row[tokens->ids[i + 1]];
        MUST(fabs(loss - (double)stats[i].nll) < 1e-5 * (1 + fabs(loss)));
        sum += (double)stats[i].nll;
    }
    if (tokens->n > 1)
        MUST(fabs(attn_mean_nll(stats, i) - sum / (double)i) < 1e-9 * (1 + sum));
}

static void score(twin *t, input *in)
{
    const token_list tokens = take_tokens(in, t);
    const size_t before = t->tokens.n;
    const attn_status want = expected(t, &tokens);
    attn_token_stats stats[MOST];
    MUST(attn_score(&ctx, stats, NULL, t->session, tokens.ids, tokens.n) == want);
    if (want != ATTN_OK)
        return;
    passed(t, &tokens, 0, LAYERS);
    check_losses(fresh(t->desc.cache_dtype, &t->tokens), &tokens, before, stats);
}

/* ---- generation, token by token and without drafts ---- */

static token_list generate_plainly(const twin *t, const token_list *prompt,
                                   const attn_generate_desc *d)
{
    static attn_session *writers[2];
    attn_session **writer = &writers[t->desc.cache_dtype == ATTN_F16];
    attn_session_desc desc = {.n_ctx = MOST};
    attn_sampler *sampler;
    token_list held = joined(&t->tokens, prompt), made;
    desc.cache_dtype = t->desc.cache_dtype;
    if (!*writer)
        MUST(attn_session_new(&ctx, writer, fuzz_model(), &desc) == ATTN_OK);
    MUST(attn_sampler_new(&ctx, &sampler, VOCAB, &d->sampling) == ATTN_OK);
    MUST(attn_session_truncate(&ctx, *writer, 0) == ATTN_OK);
    MUST(attn_feed(&ctx, *writer, held.ids, held.n) == ATTN_OK);
    for (made.n = 0; made.n < d->max_tokens;) {
        int32_t id;
        MUST(attn_sample(&ctx, &id, sampler, attn_session_logits(*writer), held.ids, held.n) ==
             ATTN_OK);
        if (id == END && !d->ignore_eos)
            break;
        made.ids[made.n++] = id;
        if (held.n == t->desc.n_ctx)
            break;
        held.ids[held.n++] = id;
        MUST(attn_feed(&ctx, *writer, &id, 1) == ATTN_OK);
    }
    attn_sampler_free(sampler);
    return made;
}

/* The text of some ids, as attn_generate hands it on. */
static size_t text_of(const token_list *ids, char *text)
{
    attn_utf8 utf8;
    size_t n = 0, size;
    memset(&utf8, 0, sizeof utf8);
    for (size_t i = 0; i < ids->n; i++) {
        const char *bytes =
            attn_token_bytes(&size, attn_model_tokenizer(fuzz_model()), ids->ids[i]);
        if (bytes && size > 0)
            n += attn_utf8_push(text + n, &utf8, bytes, size);
    }
    return n + attn_utf8_push(text + n, &utf8, "", 0);
}

typedef struct listener {
    unsigned left; /* pieces of text to take before it asks to stop */
    int stopped;
    char text[64 * MOST];
    size_t n;
} listener;

static int listen(const char *text, size_t size, void *user)
{
    listener *l = (listener *)user;
    MUST(!l->stopped && size > 0);
    memcpy(l->text + l->n, text, size);
    l->n += size;
    l->stopped = l->left-- == 0;
    return l->stopped;
}

static void check_generated(const token_list *plain, const token_list *ids, const listener *heard)
{
    char text[64 * MOST];
    const size_t n = text_of(ids, text);
    MUST(ids->n <= plain->n && memcmp(ids->ids, plain->ids, ids->n * sizeof *ids->ids) == 0);
    MUST(heard->stopped || ids->n == plain->n);
    MUST(heard->n <= n && memcmp(text, heard->text, heard->n) == 0);
    MUST(heard->stopped || heard->n == n);
}

static void generate(twin *t, input *in)
{
    static const attn_sampler_desc samplers[] = {
        {.temperature = 0},
        {.temperature = 0.8f, .top_p = 0.9f, .seed = 7},
        {.temperature = 1, .top_k = 5, .repeat_penalty = 1.2f, .repeat_last = 4, .seed = 1},
        {.repeat_penalty = 1.3f}};
    const unsigned how = take(in);
    attn_generate_desc desc;
    listener heard;
    token_list given, prompt, plain, ids; /* given, and with what comes before it */
    size_t before, now;
    attn_status want = ATTN_OK;
    memset(&desc, 0, sizeof desc);
    memset(&heard, 0, sizeof heard);
    desc.max_tokens = 1 + take(in) % MOST;
    desc.no_draft = how % 8 == 0;
    desc.n_draft = how % 8 > 0 ? how % 8 - 1 : 0;
    desc.ignore_eos = how / 8 % 2;
    desc.sampling = samplers[how / 16 % 4];
    desc.text_fn = listen;
    desc.text_user = &heard;
    attn_generation made = {.tokens = ids.ids, .room = desc.max_tokens};
    heard.left = how >= 128 ? take(in) % 8 : 1000;
    given.n = 0;
    if (how / 64 % 2)
        given = take_tokens(in, t);
    desc.prompt_tokens = given.ids;
    desc.n_prompt_tokens = given.n;
    desc.prepend_bos = desc.max_tokens % 4 == 3 && given.n < MOST;
    prompt.n = desc.prepend_bos && t->tokens.n == 0;
    prompt.ids[0] = END;
    prompt = joined(&prompt, &given);
    if (prompt.n > 0)
        want = expected(t, &prompt);
    else if (!t->has_logits)
        want = ATTN_E_ARGUMENT; /* empty, or truncated: there is nothing to sample from */
    if (want != ATTN_OK) {
        MUST(attn_generate(&ctx, &made, t->session, "", &desc) == want);
        MUST(made.n_tokens == 0 && heard.n == 0);
        return;
    }
    plain = generate_plainly(t, &prompt, &desc);
    want = attn_generate(&ctx, &made, t->session, "", &desc);
    ids.n = made.n_tokens;
    MUST(want == ATTN_OK && (made.reason == ATTN_STOP_CALLBACK) == heard.stopped);
    check_generated(&plain, &ids, &heard);
    if (prompt.n > 0)
        passed(t, &prompt, 0, LAYERS);
    before = t->tokens.n;
    now = attn_session_length(t->session);
    MUST(now <= before + ids.n && now + 1 >= before + ids.n);
    ids.n = now - before;
    if (ids.n > 0)
        passed(t, &ids, 0, LAYERS);
    t->layers_known = t->hooked || desc.no_draft;
}

/* ---- hooks ---- */

typedef struct stop_after {
    unsigned left;
    int fired;
} stop_after;
static int stop(const attn_activation *activation, void *user)
{
    stop_after *s = (stop_after *)user;
    (void)activation;
    s->fired |= s->left-- == 0;
    return s->fired;
}

/* A feed, or a score, that a hook stops changes nothing. */
static void stopped(twin *t, input *in)
{
    stop_after counter = {0, 0};
    const unsigned how = take(in);
    token_list tokens;
    attn_token_stats stats[MOST];
    attn_status want, status;
    counter.left = how < 128 ? how % 16 : how;
    tokens = take_tokens(in, t);
    want = expected(t, &tokens);
    MUST(attn_hook(&ctx, NULL, t->session, "*", stop, &counter) == ATTN_OK);
    if (tokens.n > 1 && how % 4 == 3)
        status = attn_score(&ctx, stats, NULL, t->session, tokens.ids, tokens.n);
    else
        status = attn_feed(&ctx, t->session, tokens.ids, tokens.n);
    MUST(!counter.fired || want == ATTN_OK);
    MUST(status == (counter.fired ? ATTN_STOPPED : want));
    attn_unhook_all(t->session);
    t->hooked = 0;
    if (counter.fired) {
        broken_off(t);
        t->layers_known = tokens.n <= 32 && t->layers_known; /* one that was whole may be there */
    } else if (want == ATTN_OK) {
        passed(t, &tokens, 0, LAYERS);
    }
}

static int count_rows(const attn_activation *a, void *user)
{
    twin *t = (twin *)user;
    MUST(a->session == t->session && a->layer == LAYERS - 1);
    t->rows_seen += a->value.shape[0];
    return 0;
}

/* Hooks that only watch stay through other calls, which give what they gave without. */
static void watch(twin *t)
{
    if (t->hooked)
        attn_unhook_all(t->session);
    else
        MUST(attn_hook(&ctx, NULL, t->session, "blocks.2.hook_resid_post", count_rows, t) ==
             ATTN_OK);
    t->hooked = !t->hooked;
    t->rows_seen = t->rows_fed = 0;
}

/* Keys and values are a fresh session's. */
static void look_at_cache(const twin *t, input *in)
{
    const attn_cache_part which = (attn_cache_part)(take(in) % 2);
    const size_t layer = take(in) % (LAYERS + 1), first = take(in) % MOST;
    const size_t count = first < t->tokens.n ? t->tokens.n - first : 0;
    static float ours[MOST * WIDE], theirs[MOST * WIDE];
    const attn_shape shape = attn_shape3(count, HEADS, WIDE / HEADS);
    attn_tensor a = attn_borrow(ours, ATTN_F32, shape), b = attn_borrow(theirs, ATTN_F32, shape);
    const int good = layer < LAYERS && first <= t->tokens.n;
    MUST((attn_session_get_cache(&ctx, &a, t->session, which, layer, first) == ATTN_OK) == good);
    if (!good || count == 0)
        return;
    MUST(attn_session_get_cache(&ctx, &b, fresh(t->desc.cache_dtype, &t->tokens)->session, which,
                                layer, first) == ATTN_OK);
    MUST(memcmp(ours, theirs, count * WIDE * sizeof *ours) == 0);
}

static void one_call(twin *all, input *in)
{
    const unsigned op = take(in);
    twin *t = &all[op / 16 % SESSIONS];
    switch (op % 16) {
    case 0:
    case 9:
    case 10:
        feed_batch(all, in);
        break;
    case 1:
        truncate_to(t, take(in) % (MOST + 2));
        break;
    case 2:
        truncate_to(t, t->tokens.n - t->tokens.n / 3);
        break;
    case 3:
        copy(t, &all[take(in) % SESSIONS]);
        break;
    case 4:
        score(t, in);
        break;
    case 5:
    case 6:
        generate(t, in);
        break;
    case 7:
        stopped(t, in);
        break;
    case 11:
        look_at_cache(t, in);
        break;
    case 12:
        watch(t);
        break;
    default:
        feed(t, in);
    }
}

int fuzz_session(const unsigned char *data, size_t size)
{
    static const size_t n_ctx[SESSIONS] = {MOST, MOST, 9, MOST, 19};
    static twin all[SESSIONS];
    attn_workspace *workspace;
    attn_workspace_desc room;
    input in;
    int calls = 0;
    in.data = data;
    in.size = size;
    memset(&ctx, 0, sizeof ctx);
    ctx.n_threads = 1;
    memset(all, 0, sizeof all);
    memset(&room, 0, sizeof room);
    room.n_batch = size % 6; /* 0: more than there ever are */
    MUST(attn_workspace_new(&ctx, &workspace, fuzz_model(), &room) == ATTN_OK);
    for (size_t i = 0; i < SESSIONS; i++) {
        all[i].desc.n_ctx = n_ctx[i];
        all[i].desc.cache_dtype = i == 1 || i == 4 ? ATTN_F16 : ATTN_F32;
        all[i].desc.workspace = workspace;
        MUST(attn_session_new(&ctx, &all[i].session, fuzz_model(), &all[i].desc) == ATTN_OK);
        all[i].layers_known = 1;
    }
    attn_workspace_free(workspace);
    while (in.size > 0 && calls++ < 40) {
        one_call(all, &in);
        for (size_t i = 0; i < SESSIONS; i++)
            check(&all[i]);
    }
    for (size_t i = 0; i < SESSIONS; i++)
        attn_session_free(all[i].session);
    return 0;
}
