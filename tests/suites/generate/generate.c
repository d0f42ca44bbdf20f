/* Generation: PyTorch's texts of the included model (examples/tiny-stories/reference.json), drafts,
 * callbacks on text and on logits, stop strings, the reasons why a text ends, several texts at once. */
#include "tests/support/hooks.h"
#include "tests/support/refused.h"
#include "tests/fixtures/generation_vectors.h"
#include "tests/support/shared_models.h"

SUITE_WITH_MODELS("plain odd longer tiny");

/* ---- tiny-stories: what PyTorch made of it ---- */

/* One entry of reference.json's list; strings are unescaped. */
typedef struct story {
    char prompt[256], text[4096];
    int32_t prompt_tokens[32], ids[256];
    size_t n_prompt_tokens, n_ids, n_nll;
    double nll[512];
} story;

static const char *value_after(const char *at, const char *key)
{
    at = strstr(at, key);
    return at ? at + strlen(key) : NULL;
}

static void read_string(const char *at, char *text, size_t room)
{
    const char *const end = text + room - 1;
    for (; *at != '"' && text < end; at++) {
        if (*at == '\\')
            *text++ = *++at == 'n' ? '\n' : *at;
        else
            *text++ = *at;
    }
    *text = 0;
}

static size_t read_numbers(const char *at, double *numbers, size_t room)
{
    size_t n = 0;
    while (*(at += strspn(at, " ,\n")) != ']' && n < room) {
        char *end;
        numbers[n++] = strtod(at, &end);
        at = end;
    }
    return n;
}

static size_t read_ids(const char *at, int32_t *ids, size_t room)
{
    double numbers[512];
    size_t n = read_numbers(at, numbers, room);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)numbers[i];
    return n;
}

/* Story number n; 0 at the end of the list. */
static int read_story(story *s, const char *json, int n)
{
    const char *at = strstr(json, "\"greedy\"");
    for (n++; at && n > 0; n--)
        at = value_after(at, "\"prompt\": \"");
    if (!at)
        return 0;
    memset(s, 0, sizeof *s);
    read_string(at, s->prompt, sizeof s->prompt);
    s->n_prompt_tokens = read_ids(value_after(at, "\"prompt_ids\": ["), s->prompt_tokens, 32);
    s->n_ids = read_ids(value_after(at, "\"ids\": ["), s->ids, 256);
    read_string(value_after(at, "\"text\": \""), s->text, sizeof s->text);
    s->n_nll = read_numbers(value_after(at, "\"nll\": ["), s->nll, 512);
    return 1;
}

/* Collects text, checks that each piece is whole UTF-8, and stops after `most` pieces if not 0. */
typedef struct listener {
    char text[8192];
    size_t size, pieces, most;
    int whole;
} listener;

/* Well-formed UTF-8 by table 3-7 of the Unicode standard. */
static int is_utf8(const unsigned char *p, size_t size)
{
    while (size > 0) {
        const unsigned a = p[0],
                       low = a == 0xE0   ? 0xA0
                             : a == 0xF0 ? 0x90
                                         : 0x80,
                       high = a == 0xED   ? 0x9F
                              : a == 0xF4 ? 0x8F
                                          : 0xBF;
        const size_t n = a < 0x80   ? 1
                         : a < 0xC2 ? 0
                         : a < 0xE0 ? 2
                         : a < 0xF0 ? 3
                         : a < 0xF5 ? 4
                                    : 0;
        if (n == 0 || n > size || (n > 1 && (p[1] < low || p[1] > high)) ||
            (n > 2 && (p[2] & 0xC0) != 0x80) || (n > 3 && (p[3] & 0xC0) != 0x80))
            return 0;
        p += n;
        size -= n;
    }
    return 1;
}

static int listen(const char *text, size_t size, void *user)
{
    listener *l = (listener *)user;
    CHECKF(size > 0 && is_utf8((const unsigned char *)text, size),
           "a piece of %llu bytes is not "
           "whole UTF-8",
           LLU(size));
    if (CHECK(l->size + size < sizeof l->text)) {
        memcpy(l->text + l->size, text, size);
        l->size += size;
        l->text[l->size] = 0;
    }
    return ++l->pieces == l->most;
}

TEST(stories)
{
    attn_ctx ctx = alone();
    size_t size, n, i;
    SCOPED_TEXT json = (char *)test_read("examples/tiny-stories/reference.json", &size);
    SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
    story s;
    int number;
    if (!CHECK(json) || !session)
        return;
    for (number = 0; read_story(&s, json, number); number++) {
        int32_t ids[256], all[512];
        attn_token_stats stats[512];
        double worst = 0, expected = 0;
        listener l = {"", 0, 0, 0, 0};
        attn_generate_desc d = greedily(s.n_ids);
        CHECK(s.n_ids == 200 && s.n_prompt_tokens > 3 && s.n_nll == s.n_prompt_tokens + 199);
        d.ignore_eos = 1;

        n = 512;
        OK(&ctx,
           attn_encode(&ctx, all, &n, attn_model_tokenizer(tiny), s.prompt, strlen(s.prompt)));
        CHECKF(n == s.n_prompt_tokens && memcmp(all, s.prompt_tokens, n * sizeof *all) == 0,
               "prompt %d: the ids differ", number);

        memset(ids, 0, sizeof ids);
        OK(&ctx, attn_session_truncate(&ctx, session, 0));
        d.text_fn = listen;
        d.text_user = &l;
        OK(&ctx, generate_ids(&ctx, ids, &n, session, s.prompt, &d));
        for (i = 0; i < n && ids[i] == s.ids[i]; i++)
            ;
        CHECKF(n == 200 && i == 200, "prompt %d: %llu tokens, the same up to %llu", number, LLU(n),
               LLU(i));
        CHECKF(strcmp(l.text, s.text) == 0, "prompt %d: the text is %.60s...", number, l.text);

        memset(ids, 0, sizeof ids);
        d.prompt_tokens = s.prompt_tokens;
        d.n_prompt_tokens = s.n_prompt_tokens;
        OK(&ctx, attn_session_truncate(&ctx, session, 0));
        OK(&ctx, generate_ids(&ctx, ids, &n, session, NULL, &d));
        CHECKF(n == 200 && memcmp(ids, s.ids, 200 * sizeof *ids) == 0,
               "prompt %d: other tokens from ids", number);

        memcpy(all, s.prompt_tokens, s.n_prompt_tokens * sizeof *all);
        memcpy(all + s.n_prompt_tokens, s.ids, s.n_ids * sizeof *all);
        OK(&ctx, attn_session_truncate(&ctx, session, 0));
        OK(&ctx, attn_score(&ctx, stats, NULL, session, all, s.n_nll + 1));
        double mean = attn_mean_nll(stats, s.n_nll);
        for (i = 0; i < s.n_nll; i++) {
            const double error = fabs((double)stats[i].nll - s.nll[i]);
            worst = error > worst ? error : worst;
            expected += s.nll[i] / (double)s.n_nll;
        }
        CHECKF(worst < 1e-5, "prompt %d: a loss is off by %.3g", number, worst);
        CHECKF(fabs(mean - expected) < 1e-6, "prompt %d: mean loss %.9g", number, mean);
    }
    CHECKF(number == 6, "%d prompts", number);
}

/* ---- hooks ---- */

TEST(hooks_while_generating)
{
    enum { PROMPT = 6, MADE = 12 };
    attn_ctx ctx = alone();
    const int32_t *const prompt = random_tokens(tiny, PROMPT, 21);
    SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
    sight *const r = new_sight();
    int32_t ids[MADE];
    size_t n;
    attn_generate_desc d = greedily(MADE);
    d.prompt_tokens = prompt;
    d.n_prompt_tokens = PROMPT;
    d.ignore_eos = 1;
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.2.attn.hook_pattern", note, r));
    OK(&ctx, generate_ids(&ctx, ids, &n, session, NULL, &d));
    if (CHECK(r->n == 1 + MADE && n == MADE))
        for (size_t i = 0; i <= MADE; i++) {
            const seen *s = &r->all[i];
            CHECK(s->first == (i ? PROMPT + i - 1 : 0) && s->value.shape[1] == (i ? 1 : PROMPT));
            CHECK(s->value.shape[0] == 6 && s->value.shape[2] == PROMPT + i);
        }
}

/* ---- generating ---- */

/* A hook that makes the model say what a script says: at each step the input of the unembedding
 * becomes a vector whose largest logit is the next token's. */
typedef struct script {
    const attn_tensor *directions;
    size_t next, n;
} script;

static int recite(const attn_activation *a, void *user)
{
    script *s = (script *)user;
    const attn_tensor *from = &s->directions[s->next < s->n ? s->next : s->n - 1];
    memcpy(entry(a->value, a->value.shape[0] - 1, 0, 0), from->data,
           a->value.shape[1] * sizeof(float));
    s->next++;
    return 0;
}

/* A vector x with W_E[token] . x larger than every other row's, found as a perceptron finds it. */
static attn_tensor direction_of(attn_tensor w_e, int32_t token)
{
    attn_tensor x = new_tensor(ATTN_F32, 1, &w_e.shape[1], LAYOUT_DENSE);
    const size_t width = w_e.shape[1];
    float *const v = (float *)x.data;
    memcpy(v, entry(w_e, (size_t)token, 0, 0), width * sizeof *v);
    for (size_t round = 0; round < 5000; round++) {
        double best = -(double)INFINITY;
        size_t best_row = 0;
        for (size_t row = 0; row < w_e.shape[0]; row++) {
            double sum = row == (size_t)token ? -1e-3 : 0; /* not by a hair */
            for (size_t i = 0; i < width; i++)
                sum += (double)v[i] * (double)*entry(w_e, row, i, 0);
            if (sum > best) {
                best = sum;
                best_row = row;
            }
        }
        if (best_row == (size_t)token)
            return x;
        for (size_t i = 0; i < width; i++)
            v[i] += *entry(w_e, (size_t)token, i, 0) - *entry(w_e, best_row, i, 0);
    }
    test_fail(__FILE__, __LINE__, "no direction leads to token %ld", (long)token);
    return x;
}

static int32_t id_of_byte(unsigned char byte)
{
    for (int32_t id = 0; id < (int32_t)vocab_of(tiny); id++) {
        size_t size;
        const char *text = attn_token_bytes(&size, attn_model_tokenizer(tiny), id);
        if (text && size == 1 && (unsigned char)*text == byte)
            return id;
    }
    test_fail(__FILE__, __LINE__, "no token for byte %02x", byte);
    return 0;
}

/* Makes the model say these bytes, one token each, and listens. */
static void say(const char *said, const char *heard, size_t pieces)
{
    SCOPED_CTX ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
    const size_t n = strlen(said);
    attn_tensor w_e = {0}, directions[32];
    listener l = {"", 0, 0, 0, 0};
    size_t n_ids;
    int32_t ids[32];
    attn_generate_desc d = greedily(n);
    script s;
    const int32_t split = id_of_byte(0xC3); /* the prompt ends within a character */
    OK(&ctx, attn_model_tensor(&ctx, &w_e, tiny, "embed.W_E"));
    for (size_t i = 0; i < n; i++)
        directions[i] = direction_of(w_e, id_of_byte((unsigned char)said[i]));
    s.directions = directions;
    s.next = 0;
    s.n = n;
    d.prompt_tokens = &split;
    d.n_prompt_tokens = 1;
    OK(&ctx, attn_hook(&ctx, NULL, session, "ln_final.hook_normalized.post", recite, &s));
    d.text_fn = listen;
    d.text_user = &l;
    OK(&ctx, generate_ids(&ctx, ids, &n_ids, session, NULL, &d));
    for (size_t i = 0; i < n; i++)
        CHECKF(n_ids == n && ids[i] == id_of_byte((unsigned char)said[i]), "said another byte");
    CHECKF(strcmp(l.text, heard) == 0, "heard \"%s\", not \"%s\"", l.text, heard);
    CHECKF(l.pieces == pieces, "in %llu pieces, not %llu", LLU(l.pieces), LLU(pieces));
    pool_clear();
}

#define UNKNOWN "\xEF\xBF\xBD"
TEST(whole_characters)
{
    say("h\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80!", "h\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80!", 5);
    say("\xA9o", UNKNOWN "o", 2); /* the prompt's character is not finished here */
    say("o\xF0\x9F\x98", "o" UNKNOWN, 2);
    say("\xE2\x82"
        "a",
        UNKNOWN "a", 1);
    say("\xFF\xC3(", UNKNOWN UNKNOWN "(", 2);
}

TEST(stopping_the_callback)
{
    attn_ctx ctx = alone();
    int32_t all[30], ids[30];
    size_t n, n_all;
    SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
    attn_generate_desc d = greedily(30);
    OK(&ctx, generate_ids(&ctx, all, &n_all, session, "Once upon a time", &d));
    EQUAL(n_all, 30);
    for (size_t most = 1; most < 12; most += 5) {
        listener l = {"", 0, 0, 0, 0};
        l.most = most;
        d = greedily(30);
        OK(&ctx, attn_session_truncate(&ctx, session, 0));
        d.text_fn = listen;
        d.text_user = &l;
        OK(&ctx, generate_ids(&ctx, ids, &n, session, "Once upon a time", &d));
        CHECK(l.pieces == most && n == most && memcmp(ids, all, n * sizeof *ids) == 0);
        CHECK(attn_session_length(session) == 4 + most);
        d = greedily(30 - most); /* and on from there */
        OK(&ctx, generate_ids(&ctx, ids, &n, session, "", &d));
        CHECK(n == 30 - most && memcmp(ids, all + most, n * sizeof *ids) == 0);
    }
}

TEST(continuing)
{
    enum { TOTAL = 60 };
    attn_ctx ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
    int32_t all[TOTAL], ids[TOTAL];
    size_t n, at, i;
    attn_generate_desc d = greedily(TOTAL);
    OK(&ctx, generate_ids(&ctx, all, &n, session, "One day, a", &d));
    EQUAL(n, TOTAL);
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    for (at = 0, i = 1; at < TOTAL; at += n, i += 3) {
        d = greedily(i < TOTAL - at ? i : TOTAL - at);
        OK(&ctx, generate_ids(&ctx, ids + at, &n, session, at ? NULL : "One day, a", &d));
        if (!CHECK(n == d.max_tokens))
            break;
    }
    CHECK(memcmp(ids, all, sizeof all) == 0);
    d = greedily(0); /* 0 means 100 */
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    OK(&ctx, generate_ids(&ctx, NULL, &n, session, "One day, a", &d));
    EQUAL(n, 100);
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    OK(&ctx, attn_generate(&ctx, NULL, session, "One day, a", NULL));
    EQUAL(attn_session_length(session), 104);
}

/* The third story ends in the middle and another one begins. */
TEST(end_of_text)
{
    attn_ctx ctx = alone();
    const attn_config *config = attn_model_config(tiny);
    size_t size, n, end;
    SCOPED_TEXT json = (char *)test_read("examples/tiny-stories/reference.json", &size);
    SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
    story s;
    int32_t ids[200];
    listener l = {"", 0, 0, 0, 0};
    attn_generate_desc d = greedily(200);
    CHECK(config->eos == 2047 && config->bos == 2047);
    if (CHECK(json && read_story(&s, json, 2))) {
        for (end = 0; end < s.n_ids && s.ids[end] != config->eos; end++)
            ;
        CHECK(end > 50 && end < 190);
        d.text_fn = listen;
        d.text_user = &l;
        OK(&ctx, generate_ids(&ctx, ids, &n, session, s.prompt, &d));
        CHECK(n == end && memcmp(ids, s.ids, n * sizeof *ids) == 0);
        CHECK(!strstr(l.text, "<|endoftext|>") && strncmp(l.text, s.text, l.size) == 0);
        CHECK(attn_session_length(session) == s.n_prompt_tokens + end);
    }
}

/* ---- drafting ---- */

typedef struct telling {
    int32_t ids[300], tokens[600];
    size_t n, n_tokens, n_passes, stop_after; /* stop_after: pieces of text; 0 never */
    char text[4000];
    size_t size, pieces;
    float *logits;
    attn_status status;
} telling;

static int hear(const char *text, size_t size, void *user)
{
    telling *t = (telling *)user;
    if (t->size + size < sizeof t->text)
        memcpy(t->text + t->size, text, size);
    t->size += size;
    return ++t->pieces == t->stop_after;
}

/* One run of attn_generate on a session of its own, and all that can be seen of it. */
static telling tell(const attn_model *model, const int32_t *prompt, size_t n_prompt,
                    attn_generate_desc d, size_t capacity, size_t n_batch, size_t stop_after)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, model, capacity, n_batch);
    telling t = {.stop_after = stop_after};
    d.prompt_tokens = prompt;
    d.n_prompt_tokens = n_prompt;
    d.text_fn = hear;
    d.text_user = &t;
    attn_generation made = {.tokens = t.ids, .room = sizeof t.ids / sizeof *t.ids};
    t.status = attn_generate(&ctx, &made, session, NULL, &d);
    t.n = made.n_tokens;
    t.n_passes = made.n_passes;
    t.n_tokens = attn_session_length(session);
    memcpy(t.tokens, attn_session_tokens(session), t.n_tokens * sizeof *t.tokens);
    t.logits = (float *)pool_new(vocab_of(model) * sizeof(float));
    if (CHECK(attn_session_logits(session)))
        memcpy(t.logits, attn_session_logits(session), vocab_of(model) * sizeof(float));
    attn_session_free(session);
    return t;
}

static void check_drafting(const attn_model *model, const int32_t *prompt, size_t n_prompt,
                           attn_generate_desc d, size_t capacity, size_t stop_after)
{
    static const int drafts[] = {0, 1, 2, 7};
    telling got;
    d.no_draft = 1;
    telling want = tell(model, prompt, n_prompt, d, capacity, 0, stop_after);
    CHECKF(want.n_passes == want.n_tokens - n_prompt, "%d passes without drafts",
           (int)want.n_passes);
    for (size_t i = 0; i < 4; i++) {
        set_drafts(&d, drafts[i]);
        got = tell(model, prompt, n_prompt, d, capacity, i == 3 ? 3 : 0, stop_after);
        CHECKF(got.status == want.status && got.n == want.n && got.size == want.size &&
                   got.pieces == want.pieces && got.n_tokens == want.n_tokens,
               "n_draft %d: status %d, %d tokens, %d bytes, %d in the session; without: %d, %d, "
               "%d, %d",
               drafts[i], got.status, (int)got.n, (int)got.size, (int)got.n_tokens, want.status,
               (int)want.n, (int)want.size, (int)want.n_tokens);
        CHECK(memcmp(got.ids, want.ids, sizeof got.ids) == 0);
        CHECK(memcmp(got.tokens, want.tokens, sizeof got.tokens) == 0);
        CHECK(memcmp(got.text, want.text, sizeof got.text) == 0);
        same_logits(got.logits, want.logits, 1, model, "the last logits after drafting");
        CHECK(got.n_passes <= want.n_passes);
    }
}

/* Whatever is drafted, the text, the session and its logits are those of plain generation. */
TEST(drafting_changes_nothing)
{
    for (size_t i = 0; i < 40; i++) {
        const attn_model *model = i % 4 < 2 ? tiny : i % 4 == 2 ? plain : odd;
        const size_t n_ctx = attn_model_config(model)->n_ctx;
        const size_t n_prompt = 1 + random_below(n_ctx / 2), period = 1 + random_below(9);
        int32_t *const prompt = random_tokens(model, n_prompt, i);
        attn_generate_desc d = {.ignore_eos = (int)(i % 3 == 0)};
        for (size_t j = period; i % 2 && j < n_prompt; j++) /* half of them go round in circles */
            prompt[j] = prompt[j - period];
        d.max_tokens = 1 + random_below(200);
        if (i % 5 == 1) {
            d.sampling.temperature = 0.3f + random_float() * 0.2f;
            d.sampling.top_k = 5;
            d.sampling.seed = i;
        }
        if (i % 5 == 2)
            d.sampling.repeat_penalty = 1.3f;
        check_drafting(model, prompt, n_prompt, d,
                       i % 3 ? 0 : n_prompt + random_below(n_ctx - n_prompt),
                       i % 4 == 1 ? 1 + random_below(20) : 0);
        pool_clear();
    }
}

/* Once a text goes round in circles, as a random model's does, it needs few passes. */
TEST(drafting_saves_passes)
{
    static const int32_t prompt[] = {3, 1, 4, 1, 5};
    attn_generate_desc d = {.max_tokens = 300, .ignore_eos = 1};
    telling t = tell(longer, prompt, 5, d, 0, 0, 0);
    CHECKF(t.n == 300 && t.n_passes < 300 / 4, "%d tokens in %d passes", (int)t.n, (int)t.n_passes);
}

TEST(full_context)
{
    attn_ctx ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, tiny, 20, 0);
    int32_t ids[100], more[100];
    size_t n;
    attn_generate_desc d = greedily(100);
    OK(&ctx, generate_ids(&ctx, ids, &n, session, "Once upon a time", &d));
    CHECKF(n == 17, "%llu tokens", LLU(n)); /* what follows the last position is still known */
    EQUAL(attn_session_length(session), 20);
    d = greedily(100);
    OK(&ctx, generate_ids(&ctx, more, &n, session, NULL, &d));
    CHECK(n == 1 && more[0] == ids[16]);
    FAILS(CONTEXT, "do not fit", generate_ids(&ctx, more, &n, session, "a", &d));
    CHECK(n == 0 && attn_session_length(session) == 20);
}

TEST(prompts)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, tiny, 0, 0), *bare = session_on(&ctx, plain, 0, 0);
    const int32_t with_bos[] = {2047, 506, 511, 258, 433}, *prompt = with_bos + 1;
    int32_t ids[9], other[9];
    size_t n, i;
    attn_generate_desc d = greedily(9);

    /* the beginning-of-text token, in three ways; an empty prompt may stand behind it */
    d.prepend_bos = 1;
    OK(&ctx, generate_ids(&ctx, ids, &n, session, "Once upon a time", &d));
    CHECK(memcmp(attn_session_tokens(session), with_bos, sizeof with_bos) == 0);
    d.prompt_tokens = prompt;
    d.n_prompt_tokens = 4;
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    OK(&ctx, generate_ids(&ctx, ids, &n, session, NULL, &d));
    CHECK(memcmp(attn_session_tokens(session), with_bos, sizeof with_bos) == 0);
    attn_generate_desc e = greedily(9);
    e.allow_special = 1;
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    OK(&ctx, generate_ids(&ctx, other, &i, session, "<|endoftext|>Once upon a time", &e));
    CHECK(memcmp(attn_session_tokens(session), with_bos, sizeof with_bos) == 0);
    CHECK(n == 9 && i == 9 && memcmp(ids, other, sizeof ids) == 0);
    OK(&ctx, generate_ids(&ctx, ids, &n, session, NULL, &d)); /* not again */
    CHECK(attn_session_tokens(session)[14] == prompt[0]);
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    d = greedily(9);
    d.prepend_bos = 1;
    OK(&ctx, generate_ids(&ctx, ids, &n, session, "", &d));
    CHECK(n == 9 && attn_session_length(session) == 10);
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    e.allow_special = 0; /* its letters then */
    OK(&ctx, generate_ids(&ctx, other, &i, session, "<|endoftext|>", &e));
    CHECK(attn_session_tokens(session)[0] != 2047 && attn_session_length(session) > 10);

    /* nothing to go on from */
    d = greedily(9);
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    FAILS(ARGUMENT, "prompt is empty", generate_ids(&ctx, ids, &n, session, "", &d));
    FAILS(ARGUMENT, "prompt is empty", attn_generate(&ctx, NULL, session, NULL, NULL));
    d.prompt_tokens = prompt;
    FAILS(ARGUMENT, "prompt is empty", generate_ids(&ctx, ids, &n, session, NULL, &d));
    OK(&ctx, attn_feed(&ctx, session, prompt, 4));
    OK(&ctx, attn_session_truncate(&ctx, session, 3));
    FAILS(ARGUMENT, "after attn_session_truncate", attn_generate(&ctx, NULL, session, "", NULL));

    /* ids that are none, text that is too long, samplers that cannot be */
    ids[0] = 3;
    ids[1] = 2048;
    d.prompt_tokens = ids;
    d.n_prompt_tokens = 2;
    FAILS(TOKEN, "2048", generate_ids(&ctx, ids, &n, session, NULL, &d));
    d = greedily(9);
    d.sampling.temperature = -1;
    FAILS(ARGUMENT, "temperature", generate_ids(&ctx, ids, &n, session, "a", &d));
    {
        char *const text = (char *)pool_new(1001);
        memset(text, '?', 1000);
        text[1000] = 0;
        FAILS(CONTEXT, "do not fit", attn_generate(&ctx, NULL, session, text, NULL));
    }
    EQUAL(attn_session_length(session), 3);

    /* a model without tokenizer and without a beginning-of-text token */
    CHECK(attn_model_tokenizer(plain) == NULL && attn_model_config(plain)->bos == -1);
    FAILS(TOKENIZER, "prompt_tokens", attn_generate(&ctx, NULL, bare, "a", NULL));
    d = greedily(9);
    d.prompt_tokens = other;
    d.n_prompt_tokens = 2;
    other[0] = 5, other[1] = 96;
    d.prepend_bos = 1;
    FAILS(ARGUMENT, "beginning-of-text", generate_ids(&ctx, ids, &n, bare, NULL, &d));
    d.prepend_bos = 0;
    {
        listener l = {"", 0, 0, 0, 0};
        d.text_fn = listen;
        d.text_user = &l;
        OK(&ctx, generate_ids(&ctx, ids, &n, bare, NULL, &d));
        CHECK(n == 9 && l.pieces == 0 && attn_session_length(bare) == 11);
    }
    attn_session_free(session);
    attn_session_free(bare);
}

TEST(nan_logits)
{
    attn_ctx ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
    poison p = {6, NAN};
    int32_t ids[20];
    size_t n;
    attn_generate_desc d = greedily(20);
    OK(&ctx, attn_hook(&ctx, NULL, session, "ln_final.hook_normalized.post", poisoned, &p));
    FAILS(ARGUMENT, "NaN", generate_ids(&ctx, ids, &n, session, "Once upon a time", &d));
    CHECKF(n == 3, "%llu tokens before it", LLU(n));
}

/* A seed draws what make_generation_vectors.py drew, in float64 with numpy's generator; another
 * seed does not. */
TEST(seeds)
{
    static const attn_isa_kind kinds[] = {ATTN_ISA_AUTO, ATTN_ISA_AVX2};
    attn_ctx ctx = alone();
    size_t n;
    for (size_t v = 0; v < sizeof generation_vectors / sizeof generation_vectors[0]; v++)
        for (size_t i = 0; i < 3; i++) {
            const int32_t *const want = generation_vectors[v].ids;
            int32_t ids[GENERATED];
            attn_session *session;
            attn_generate_desc d = greedily(GENERATED);
            ctx.isa = kinds[i % 2];
            ctx.n_threads = i == 2 ? 2 : 1;
            if (!attn_isa(&ctx) || (session = session_on(&ctx, tiny, 0, 0)) == NULL)
                continue;
            d.sampling = generation_vectors[v].sampler;
            d.ignore_eos = 1;
            memset(ids, 0, sizeof ids);
            OK(&ctx, generate_ids(&ctx, ids, &n, session, "Once upon a time", &d));
            EQUAL(n, GENERATED);
            for (n = 0; n < GENERATED && ids[n] == want[n]; n++)
                ;
            CHECKF(n == GENERATED, "vector %llu, %s: token %llu is %ld, not %ld", LLU(v),
                   attn_isa(&ctx), LLU(n), (long)ids[n], (long)want[n]);
            d.sampling.seed++;
            OK(&ctx, attn_session_truncate(&ctx, session, 0));
            OK(&ctx, generate_ids(&ctx, ids, &n, session, "Once upon a time", &d));
            CHECK(memcmp(ids, want, sizeof ids) != 0);
            attn_session_free(session);
        }
}

/* A callback that would change the session it is told about. */
typedef struct meddler {
    attn_session *session, *other;
    char text[4096];
    size_t size, length;
    int meddles;
} meddler;

static int ignore(const attn_activation *a, void *user)
{
    (void)a, (void)user;
    return 0;
}

static int meddle(const char *text, size_t size, void *user)
{
    meddler *m = (meddler *)user;
    attn_ctx ctx = alone();
    const int32_t token = 1;
    memcpy(m->text + m->size, text, size);
    m->size += size;
    if (!m->meddles)
        return 0;
    FAILS(ARGUMENT, "being fed", attn_session_truncate(&ctx, m->session, 0));
    FAILS(ARGUMENT, "being fed", attn_feed(&ctx, m->session, &token, 1));
    FAILS(ARGUMENT, "being fed", attn_hook(&ctx, NULL, m->session, "*", ignore, NULL));
    FAILS(ARGUMENT, "being fed", attn_generate(&ctx, NULL, m->session, "", NULL));
    not_made = no_tensor;
    OK(&ctx, attn_session_get_cache(&ctx, &not_made, m->session, ATTN_CACHE_KEYS, 0, 0));
    FAILS(ARGUMENT, "being fed",
          attn_session_set_cache(&ctx, m->session, ATTN_CACHE_KEYS, 0, 0, not_made));
    OK(&ctx, attn_session_copy(&ctx, m->other, m->session)); /* it may look */
    CHECK(attn_session_length(m->other) == attn_session_length(m->session));
    attn_ctx_free(&ctx);
    return 0;
}

TEST(a_callback_may_look_but_not_touch)
{
    enum { LENGTH = 60 };
    SCOPED_CTX ctx = alone();
    SCOPED_MODEL stories = NULL;
    attn_generate_desc desc;
    static meddler with, without;
    attn_generation made = {.n_passes = 7};
    memset(&desc, 0, sizeof desc);
    memset(&with, 0, sizeof with);
    memset(&without, 0, sizeof without);
    OK(&ctx, attn_model_open(&ctx, &stories, TEST_BUILD "/tiny-stories.attn", NULL));
    with.session = session_on(&ctx, stories, 0, 0);
    with.other = session_on(&ctx, stories, 0, 0);
    without.session = session_on(&ctx, stories, 0, 0);
    with.meddles = 1;
    desc.max_tokens = LENGTH;
    desc.text_fn = meddle;
    desc.text_user = &with;
    OK(&ctx, attn_generate(&ctx, NULL, with.session, "the cat the cat the", &desc));
    desc.text_fn = meddle;
    desc.text_user = &without;
    OK(&ctx, attn_generate(&ctx, NULL, without.session, "the cat the cat the", &desc));
    CHECK(with.size == without.size && memcmp(with.text, without.text, with.size) == 0);
    CHECK(memcmp(attn_session_logits(with.session), attn_session_logits(without.session),
                 vocab_of(stories) * sizeof(float)) == 0);
    OK(&ctx, attn_session_truncate(&ctx, with.session, 0)); /* it is free again */
    FAILS(ARGUMENT, "the prompt is empty", attn_generate(&ctx, &made, with.session, "", &desc));
    EQUAL(made.n_passes, 0);
    attn_session_free(with.session);
    attn_session_free(with.other);
    attn_session_free(without.session);
}

/* ---- generation ---- */

enum { TOTAL = 48 };
static const int drafts[] = {-1, 0, 7};

/* The prompt goes round in circles, so that there is something to draft. */
static const int32_t circle[] = {506, 511, 258, 433, 265, 506, 511, 258, 433, 265, 506, 511};

static attn_generate_desc after_circle(int n_draft)
{
    attn_generate_desc d = {.prompt_tokens = circle,
                            .n_prompt_tokens = sizeof circle / sizeof circle[0],
                            .ignore_eos = 1};
    set_drafts(&d, n_draft);
    d.max_tokens = TOTAL;
    return d;
}

/* TOTAL tokens in calls of `step` tokens, with one sampler. */
static void in_calls(attn_sampler_desc how, size_t step, int n_draft, int32_t *ids)
{
    attn_ctx ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
    SCOPED_SAMPLER sampler = NULL;
    size_t n;
    OK(&ctx, attn_sampler_new(&ctx, &sampler, vocab_of(tiny), &how));
    for (size_t at = 0; at < TOTAL; at += n) {
        attn_generate_desc d = after_circle(n_draft);
        d.reuse_sampler = sampler;
        d.max_tokens = step < TOTAL - at ? step : TOTAL - at;
        d.n_prompt_tokens = at ? 0 : d.n_prompt_tokens;
        if (!OK(&ctx, generate_ids(&ctx, ids + at, &n, session, NULL, &d)) ||
            !CHECK(n == d.max_tokens))
            break;
    }
}

/* A sampler that lives on draws in several calls what one call draws, whatever is drafted. */
TEST(a_sampler_lives_on)
{
    size_t n;
    for (size_t i = 0; i < 6; i++) {
        attn_ctx ctx = alone();
        SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
        attn_sampler_desc how = sampler_of(i < 3 ? 0.8f : 0.3f, 7 + i);
        int32_t want[TOTAL], got[TOTAL];
        attn_generate_desc d = after_circle(drafts[i % 3]);
        how.repeat_penalty = i == 5 ? 1.2f : 0;
        d.sampling = how;
        OK(&ctx, generate_ids(&ctx, want, &n, session, NULL, &d));
        for (size_t step = 1; step <= TOTAL; step = 3 * step + 1) {
            in_calls(how, step, drafts[(i + step) % 3], got);
            CHECKF(memcmp(got, want, sizeof got) == 0, "seed %d in calls of %d: other tokens",
                   (int)how.seed, (int)step);
        }
    }
}

TEST(samplers_that_do_not_fit)
{
    attn_ctx ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
    attn_sampler *sampler = NULL, *other = NULL;
    attn_sampler_desc one[7];
    int32_t ids[TOTAL];
    size_t n;
    attn_generate_desc d = after_circle(0);
    memset(one, 0, sizeof one);
    one[0].temperature = one[2].top_p = one[3].min_p = one[4].repeat_penalty = 1;
    one[1].top_k = 1;
    one[5].repeat_last = 1;
    one[6].seed = 1;
    OK(&ctx, attn_sampler_new(&ctx, &sampler, vocab_of(tiny), NULL));
    OK(&ctx, attn_sampler_new(&ctx, &other, 97, NULL));
    d.reuse_sampler = sampler;
    for (size_t i = 0; i < 7; i++) {
        d.sampling = one[i];
        FAILS(ARGUMENT, "both", generate_ids(&ctx, ids, &n, session, NULL, &d));
    }
    memset(&d.sampling, 0, sizeof d.sampling);
    d.reuse_sampler = other;
    FAILS(ARGUMENT, "97", generate_ids(&ctx, ids, &n, session, NULL, &d));
    CHECK(attn_session_length(session) == 0 && n == 0);
    attn_sampler_free(sampler);
    attn_sampler_free(other);
}

/* ---- callbacks on logits ---- */

/* What a callback saw, and what it does. */
typedef struct watcher {
    attn_ctx *ctx;
    size_t calls, stop_at;   /* stop_at: this call stops; 0 none does */
    int32_t last[TOTAL + 1]; /* before each draw, and a number of the logits then */
    float logit[TOTAL + 1];
    size_t length[TOTAL + 1];
    const int32_t *forced; /* if not NULL: the only tokens it leaves, one a call */
    int32_t forbidden;     /* else a token that it forbids, or -1 */
    int feeds, forbids_all;
} watcher;

static int watch(float *logits, const attn_session *session, void *user)
{
    watcher *w = (watcher *)user;
    const size_t n_vocab = vocab_of(tiny), length = attn_session_length(session);
    const size_t call = w->calls++;
    if (!CHECK(call <= TOTAL))
        return 1;
    same_floats(logits, attn_session_logits(session), 1, n_vocab, "the copy of the logits");
    w->length[call] = length;
    w->last[call] = attn_session_tokens(session)[length - 1];
    w->logit[call] = logits[call];
    if (w->feeds)
        FAILS_IN(w->ctx, ATTN_E_ARGUMENT, "callback",
                 attn_feed(w->ctx, (attn_session *)(uintptr_t)session, circle, 1));
    for (size_t i = 0; i < n_vocab; i++)
        if (w->forbids_all || (w->forced && (int32_t)i != w->forced[call]) ||
            (int32_t)i == w->forbidden)
            logits[i] = -INFINITY;
    return w->calls == w->stop_at;
}

static watcher watching(attn_ctx *ctx)
{
    watcher w = {.ctx = ctx, .forbidden = -1};
    return w;
}

/* A callback is called once for each token, with a session as it is without drafts. */
TEST(logits_are_shown)
{
    attn_ctx ctx = alone();
    watcher want = watching(&ctx);
    int32_t ids[3][TOTAL];
    size_t n;
    for (size_t i = 0; i < 3; i++) {
        SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
        attn_generate_desc d = after_circle(drafts[i]);
        watcher w = watching(&ctx);
        w.feeds = i == 2;
        d.sampling = sampler_of(0.5f, 3);
        d.logits_fn = watch;
        d.logits_user = &w;
        OK(&ctx, generate_ids(&ctx, ids[i], &n, session, NULL, &d));
        w.feeds = 0;
        if (i == 0)
            want = w;
        CHECKF(n == TOTAL && w.calls == TOTAL && w.length[0] == d.n_prompt_tokens &&
                   w.length[TOTAL - 1] == d.n_prompt_tokens + TOTAL - 1,
               "%d calls, the last with %d tokens", (int)w.calls, (int)w.length[TOTAL - 1]);
        CHECK(memcmp(ids[i], ids[0], sizeof ids[0]) == 0 && memcmp(&w, &want, sizeof w) == 0);
        CHECK(memcmp(w.last + 1, ids[0], (TOTAL - 1) * sizeof *w.last) == 0);
        CHECK(attn_session_logits(session) &&
              attn_session_length(session) == d.n_prompt_tokens + TOTAL);
    }
}

/* A forbidden token never comes; the others are those of a loop that forbids it by hand. */
TEST(logits_are_changed)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, tiny, 0, 0), *other = session_on(&ctx, tiny, 0, 0);
    int32_t ids[TOTAL], usual[TOTAL];
    float *const logits = (float *)pool_new(vocab_of(tiny) * sizeof *logits);
    attn_sampler *greedy = NULL;
    size_t n;
    watcher w = watching(&ctx);
    attn_generate_desc d = after_circle(0);
    OK(&ctx, attn_sampler_new(&ctx, &greedy, vocab_of(tiny), NULL));
    OK(&ctx, generate_ids(&ctx, usual, &n, session, NULL, &d));
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    d = after_circle(0);
    d.logits_fn = watch;
    d.logits_user = &w;
    w.forbidden = usual[5];
    OK(&ctx, generate_ids(&ctx, ids, &n, session, NULL, &d));
    OK(&ctx, attn_feed(&ctx, other, circle, d.n_prompt_tokens));
    for (size_t i = 0; i < TOTAL; i++) {
        int32_t token = -1;
        memcpy(logits, attn_session_logits(other), vocab_of(tiny) * sizeof *logits);
        logits[usual[5]] = -INFINITY;
        OK(&ctx, attn_sample(&ctx, &token, greedy, logits, NULL, 0));
        CHECKF(ids[i] == token && token != usual[5], "token %d is %d", (int)i, (int)ids[i]);
        OK(&ctx, attn_feed(&ctx, other, &token, 1));
    }
    same_logits(attn_session_logits(session), attn_session_logits(other), 1, tiny,
                "the last logits");
    w.forbids_all = 1;
    w.calls = 0;
    FAILS(ARGUMENT, "all logits are -inf", generate_ids(&ctx, ids, &n, session, NULL, &d));
    EQUAL(n, 0);
    attn_sampler_free(greedy);
    attn_session_free(session);
    attn_session_free(other);
}

/* ---- why it ended ---- */

TEST(stopped_by_logits)
{
    attn_ctx ctx = alone();
    int32_t ids[TOTAL];
    size_t n;
    for (size_t at = 1; at < 30; at += 7) {
        SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
        watcher w = watching(&ctx);
        attn_generate_desc d = after_circle(drafts[at % 3]);
        attn_generation made = {.tokens = ids, .room = TOTAL};
        w.stop_at = at;
        d.logits_fn = watch;
        d.logits_user = &w;
        OK(&ctx, attn_generate(&ctx, &made, session, "", &d));
        n = made.n_tokens;
        CHECK(n == at - 1 && made.reason == ATTN_STOP_CALLBACK);
        CHECK(attn_session_length(session) == d.n_prompt_tokens + n &&
              attn_session_logits(session));
    }
}

typedef struct heard {
    char text[4000];
    size_t size, pieces, most; /* most: pieces to take before it asks to stop; 0: all */
} heard;

static int keep_text(const char *text, size_t size, void *user)
{
    heard *h = (heard *)user;
    if (CHECK(h->size + size < sizeof h->text))
        memcpy(h->text + h->size, text, size);
    h->size += size;
    return ++h->pieces == h->most;
}

static int forbid_odd(float *logits, const attn_session *session, void *user)
{
    (void)user;
    for (size_t i = 1; i < vocab_of(attn_session_model(session)); i += 2)
        logits[i] = -INFINITY;
    return 0;
}

/* The log-probabilities of generated tokens are those that attn_score finds in the finished text, be
 * they drawn by any rule, with drafts or without, and whatever logits_fn makes of the logits. */
TEST(log_probabilities)
{
    enum { MADE = 60, PROMPT = 4 };
    static const int32_t start[PROMPT] = {506, 511, 258, 433};
    for (int way = 0; way < 4; way++) {
        attn_ctx ctx = alone();
        attn_session *session = session_on(&ctx, tiny, 0, 0);
        int32_t ids[PROMPT + MADE];
        float log_probs[MADE];
        attn_token_stats stats[PROMPT + MADE];
        attn_generation made = {.tokens = ids + PROMPT, .log_probs = log_probs, .room = MADE};
        attn_generate_desc d = greedily(MADE);
        memcpy(ids, start, sizeof start);
        d.prompt_tokens = start;
        d.n_prompt_tokens = PROMPT;
        d.ignore_eos = 1;
        if (way == 1)
            d.sampling = (attn_sampler_desc){.temperature = 0.9f, .top_k = 50, .seed = 3};
        if (way == 2)
            d.sampling = (attn_sampler_desc){.repeat_penalty = 2};
        if (way == 3)
            d.logits_fn = forbid_odd;
        OK(&ctx, attn_generate(&ctx, &made, session, NULL, &d));
        EQUAL(made.n_tokens, MADE);
        OK(&ctx, attn_session_truncate(&ctx, session, 0));
        OK(&ctx, attn_score(&ctx, stats, NULL, session, ids, PROMPT + MADE));
        for (size_t i = 0; i < MADE; i++)
            CHECKF(log_probs[i] == -stats[PROMPT - 1 + i].nll, "way %d, token %zu: %g, %g", way, i,
                   (double)log_probs[i], -(double)stats[PROMPT - 1 + i].nll);
        attn_session_free(session);
        done(&ctx);
    }
}

/* Nothing is written beyond the room, all tokens count; arrays whose room was forgotten are refused. */
TEST(room_for_results)
{
    enum { MADE = 9 };
    attn_ctx ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
    int32_t want[MADE], tokens[MADE];
    float log_probs[MADE];
    attn_generation made = {.tokens = want, .room = MADE};
    attn_generate_desc d = greedily(MADE);
    OK(&ctx, attn_generate(&ctx, &made, session, "Once upon a time", &d));
    CHECK(made.n_tokens == MADE && made.accepted == attn_session_length(session));
    for (size_t i = 0; i < MADE; i++) {
        tokens[i] = -7;
        log_probs[i] = 7;
    }
    made.tokens = tokens;
    made.log_probs = log_probs;
    made.room = 4;
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    OK(&ctx, attn_generate(&ctx, &made, session, "Once upon a time", &d));
    CHECK(made.n_tokens == MADE && memcmp(tokens, want, 4 * sizeof *tokens) == 0);
    for (size_t i = 0; i < MADE; i++)
        CHECK(i < 4 ? log_probs[i] <= 0 : tokens[i] == -7 && log_probs[i] == 7);
    made.room = 0;
    FAILS(ARGUMENT, "room is 0", attn_generate(&ctx, &made, session, "a", &d));
    made.tokens = NULL;
    FAILS(ARGUMENT, "room is 0", attn_generate(&ctx, &made, session, "a", &d));
    CHECK(made.n_tokens == 0 && attn_session_length(session) == 4 + MADE);
    made.log_probs = NULL;
    d.workspace = (attn_workspace *)&made; /* looked at by nobody */
    FAILS(ARGUMENT, "desc->workspace was given", attn_generate(&ctx, &made, session, "a", &d));
}

TEST(reasons)
{
    static const char *const stop[] = {"upon"};
    attn_ctx ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, tiny, 20, 0);
    attn_generation made = {.reason = ATTN_STOP_EOS};
    const int32_t eos = attn_model_config(tiny)->eos;
    heard h;
    watcher w = watching(&ctx);
    attn_generate_desc d;
    memset(&h, 0, sizeof h);
    memset(&d, 0, sizeof d);
    FAILS(ARGUMENT, "", attn_generate(&ctx, &made, session, "", &d));
    CHECK(made.reason == ATTN_STOP_NONE);
    d.max_tokens = 16; /* which just fit */
    OK(&ctx, attn_generate(&ctx, &made, session, "Once upon a time", &d));
    CHECK(made.reason == ATTN_STOP_COUNT && attn_session_length(session) == 20);
    OK(&ctx, attn_generate(&ctx, &made, session, NULL, &d));
    CHECK(made.reason == ATTN_STOP_CONTEXT && attn_session_length(session) == 20);
    d.max_tokens = 1; /* drawn, though it does not fit */
    OK(&ctx, attn_generate(&ctx, &made, session, NULL, &d));
    CHECK(made.reason == ATTN_STOP_COUNT);
    d.max_tokens = 0;
    h.most = 3;
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    d.text_fn = keep_text;
    d.text_user = &h;
    OK(&ctx, attn_generate(&ctx, &made, session, "Once upon", &d));
    CHECK(made.reason == ATTN_STOP_CALLBACK);
    w.forced = &eos;
    d.logits_fn = watch;
    d.logits_user = &w;
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    OK(&ctx, attn_generate(&ctx, &made, session, "Once upon", &d));
    CHECK(made.reason == ATTN_STOP_EOS && attn_session_length(session) == 2);
    d.logits_fn = NULL;
    d.stop_strings = stop;
    d.n_stop_strings = 1;
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    OK(&ctx, attn_feed(&ctx, session, circle, 1));
    OK(&ctx, attn_generate(&ctx, &made, session, NULL, &d));
    CHECKF(made.reason == ATTN_STOP_STRING, "%s", attn_stop_reason_name(made.reason));
    CHECK(strcmp(attn_stop_reason_name(ATTN_STOP_NONE), "none") == 0);
    CHECK(strcmp(attn_stop_reason_name(ATTN_STOP_EOS), "end of text") == 0);
    CHECK(strcmp(attn_stop_reason_name(ATTN_STOP_COUNT), "token count") == 0);
    CHECK(strcmp(attn_stop_reason_name(ATTN_STOP_CONTEXT), "context full") == 0);
    CHECK(strcmp(attn_stop_reason_name(ATTN_STOP_CALLBACK), "callback") == 0);
    CHECK(strcmp(attn_stop_reason_name(ATTN_STOP_STRING), "stop string") == 0);
    CHECK(strcmp(attn_stop_reason_name((attn_stop_reason)6), "none") == 0);
}

/* ---- stop strings ---- */

static int32_t byte_token(unsigned char byte)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(tiny);
    size_t size;
    for (int32_t id = 0; id < (int32_t)vocab_of(tiny); id++) {
        const char *text = attn_token_bytes(&size, tokenizer, id);
        if (text && size == 1 && (unsigned char)*text == byte)
            return id;
    }
    test_fail(__FILE__, __LINE__, "no token for byte %02x", byte);
    return 0;
}

/* Ids of a text: a token for each byte, or the tokenizer's. */
static size_t ids_for(const char *text, int bytewise, int32_t *ids)
{
    attn_ctx ctx = alone();
    size_t n = bytewise ? 0 : TOTAL;
    if (!bytewise)
        OK(&ctx, attn_encode(&ctx, ids, &n, attn_model_tokenizer(tiny), text, strlen(text)));
    for (; bytewise && text[n]; n++)
        ids[n] = byte_token((unsigned char)text[n]);
    return n;
}

static int begins(const char *string, const char *text, size_t n)
{
    return n <= strlen(string) && memcmp(string, text, n) == 0;
}

/* By the definition: how much of the first n bytes of a text is handed over. *found is 0, or if they hold
 * a stop string, 1 more than its index. */
static size_t handed_over(const char *text, size_t n, const char *const *stop, size_t n_stop,
                          int *found)
{
    *found = 0;
    for (size_t end = 1; end <= n; end++)
        for (size_t from = 0; from < end; from++)
            for (size_t i = 0; i < n_stop; i++)
                if (end - from == strlen(stop[i]) && begins(stop[i], text + from, end - from)) {
                    *found = 1 + (int)i;
                    return from;
                }
    for (size_t from = 0; from < n; from++)
        for (size_t i = 0; i < n_stop; i++)
            if (begins(stop[i], text + from, n - from))
                return from;
    return n;
}

/* A text that is forced on the model, and what should have been handed over before each draw. */
typedef struct recital {
    const char *text, *const *stop;
    size_t n_stop, n, at; /* n tokens; at: so far */
    int32_t ids[TOTAL];
    heard heard;
} recital;

static int force_text(float *logits, const attn_session *session, void *user)
{
    recital *r = (recital *)user;
    size_t i, size, bytes = 0;
    int found;
    (void)session;
    for (i = 0; i < r->at; i++) {
        attn_token_bytes(&size, attn_model_tokenizer(tiny), r->ids[i]);
        bytes += size;
    }
    i = handed_over(r->text, bytes, r->stop, r->n_stop, &found);
    CHECKF(!found, "\"%s\": generation went on after a stop string", r->text);
    CHECKF(r->heard.size == i && memcmp(r->heard.text, r->text, i) == 0,
           "\"%s\" after %d bytes: \"%s\" was handed over, not %d bytes", r->text, (int)bytes,
           r->heard.text, (int)i);
    for (i = 0; i < vocab_of(tiny); i++)
        if ((int32_t)i != r->ids[r->at])
            logits[i] = -INFINITY;
    r->at++;
    return 0;
}

/* How many of a text's tokens end within its first `size` bytes. */
static size_t n_within(const recital *r, size_t size)
{
    size_t n, length, bytes = 0;
    for (n = 0; n < r->at; n++) {
        attn_token_bytes(&length, attn_model_tokenizer(tiny), r->ids[n]);
        bytes += length;
        if (bytes > size)
            break;
    }
    return n;
}

/* attn_generate step by step. */
static attn_status generate_in_steps(attn_ctx *ctx, attn_generation *made, attn_session *session,
                                     const char *prompt, const attn_generate_desc *d)
{
    attn_generator *generator = NULL;
    attn_status status = attn_generator_new(ctx, &generator, session, prompt, d);
    while (status == ATTN_OK && made->reason == ATTN_STOP_NONE)
        status = attn_generator_step(ctx, made, generator);
    attn_generator_free(generator);
    return status;
}

typedef attn_status (*generate_fn)(attn_ctx *, attn_generation *, attn_session *, const char *,
                                   const attn_generate_desc *);
static const generate_fn ways_to_generate[] = {attn_generate, generate_in_steps};

/* keep: the stop string is handed over, too. most: pieces that text_fn takes before it stops; 0: all. */
static void check_stop_by(generate_fn generate, recital r, int n_draft, int keep, size_t most)
{
    attn_ctx ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
    attn_generation made = {0};
    int found;
    size_t size = strlen(r.text), want = handed_over(r.text, size, r.stop, r.n_stop, &found);
    attn_generate_desc d = {.max_tokens = r.n, .prompt_tokens = circle, .n_prompt_tokens = 1};
    set_drafts(&d, n_draft);
    d.stop_strings = r.stop;
    d.n_stop_strings = r.n_stop;
    d.keep_stop = keep;
    d.logits_fn = force_text;
    d.logits_user = &r;
    d.text_fn = keep_text;
    d.text_user = &r.heard;
    r.heard.most = most;
    OK(&ctx, generate(&ctx, &made, session, NULL, &d));
    if (most > 0 && r.heard.pieces == most) {
        CHECK(made.reason == ATTN_STOP_CALLBACK && r.heard.size <= size);
        want = r.heard.size;
    } else if (found) {
        CHECKF(made.reason == ATTN_STOP_STRING && made.which_stop == (size_t)found - 1,
               "\"%s\" ended by %s %zu", r.text, attn_stop_reason_name(made.reason),
               made.which_stop);
        want += keep ? strlen(r.stop[found - 1]) : 0;
    } else {
        CHECKF(made.reason == ATTN_STOP_COUNT, "\"%s\" ended by %s", r.text,
               attn_stop_reason_name(made.reason));
        want = size;
    }
    CHECKF(r.heard.size == want && memcmp(r.heard.text, r.text, want) == 0,
           "of \"%s\" was heard \"%s\"", r.text, r.heard.text);
    CHECK(made.n_tokens == r.at && attn_session_length(session) == 1 + made.n_tokens);
    CHECKF(made.accepted == 1 + n_within(&r, want),
           "of \"%s\", %zu bytes, %zu tokens count, not %zu", r.text, want, made.accepted - 1,
           n_within(&r, want));
    OK(&ctx, attn_session_truncate(&ctx, session, made.accepted));
}

static void check_stop(recital r, int n_draft, int keep, size_t most)
{
    check_stop_by(ways_to_generate[0], r, n_draft, keep, most);
    check_stop_by(ways_to_generate[1], r, n_draft, keep, most);
}

static void check_stops(const char *text, const char *const *stop, size_t n_stop, int bytewise,
                        int n_draft)
{
    recital r = {.text = text, .stop = stop, .n_stop = n_stop};
    r.n = ids_for(text, bytewise, r.ids);
    check_stop(r, n_draft, 0, 0);
    check_stop(r, n_draft, 1, 0);
    check_stop(r, n_draft, bytewise, 1);
    check_stop(r, n_draft, 0, 3);
}

TEST(stop_strings)
{
    static const char *const overlapping[] = {"abcd", "bc", "bcx"}, *const aab[] = {"aab"};
    static const char *const turns[] = {"\nUser:", "\nBot:"}, *const end[] = {".", "end"};
    static const char *const accents[] = {"\xC3\xA9t", "\xE2\x82\xAC"};
    for (int way = 0; way < 4; way++) {
        const int bytewise = way % 2, n_draft = way < 2 ? -1 : 0;
        check_stops("xabcdx", overlapping, 3, bytewise, n_draft); /* "bc" ends first */
        check_stops("aaaaab", aab, 1, bytewise, n_draft);
        check_stops("aacaabaab", aab, 1, bytewise, n_draft);
        check_stops("aaaaaa", aab, 1, bytewise, n_draft); /* held back to the end, then let go */
        check_stops("Hello\nUs\nUser: you", turns, 2, bytewise, n_draft);
        check_stops("Hello\nBo", turns, 2, bytewise, n_draft);
        check_stops("upon a time.", end, 2, bytewise, n_draft);
        check_stops("the endless", end, 2, bytewise, n_draft);
        check_stops("caf\xC3\xA9 \xC3\xA8 \xC3\xA9\xC3\xA9t\xC3\xA9", accents, 2, bytewise,
                    n_draft);
        check_stops("\xE2\x82\xAD is \xE2\x82\xAC!", accents, 2, bytewise, n_draft);
    }
}

/* Short strings of few letters meet in every way. */
TEST(any_stop_strings)
{
    char text[33], strings[3][6];
    const char *stop[3];
    random_state = 1;
    for (size_t i = 0; i < 150; i++) {
        const size_t n = 1 + random_below(32), n_stop = 1 + random_below(3);
        for (size_t j = 0; j < n; j++)
            text[j] = "aab "[random_below(4)];
        text[n] = 0;
        for (size_t j = 0; j < n_stop; j++) {
            const size_t length = 1 + random_below(5);
            for (size_t k = 0; k < length; k++)
                strings[j][k] = "aab "[random_below(4)];
            strings[j][length] = 0;
            stop[j] = strings[j];
        }
        check_stops(text, stop, n_stop, i % 2, (int)(i % 3) - 1);
    }
}

TEST(stop_strings_that_cannot_be)
{
    static const char *const empty[] = {"a", ""}, *const none[] = {NULL}, *const fine[] = {"a"};
    attn_ctx ctx = alone();
    SCOPED_MODEL bare = converted("tests/golden/plain", "plain.attn", "--no-tokenizer");
    attn_session *session = session_on(&ctx, tiny, 0, 0), *other = session_on(&ctx, bare, 0, 0);
    attn_generate_desc d = {.prompt_tokens = circle + 2, .n_prompt_tokens = 1, .n_stop_strings = 2};
    FAILS(ARGUMENT, "stop_strings is NULL", attn_generate(&ctx, NULL, session, NULL, &d));
    d.stop_strings = empty;
    FAILS(ARGUMENT, "stop string 1 is empty", attn_generate(&ctx, NULL, session, NULL, &d));
    d.stop_strings = none;
    FAILS(ARGUMENT, "stop string 0 is NULL", attn_generate(&ctx, NULL, session, NULL, &d));
    d.stop_strings = fine;
    d.n_stop_strings = 1;
    FAILS(TOKENIZER, "stop strings", attn_generate(&ctx, NULL, other, NULL, &d));
    CHECK(attn_session_length(session) == 0 && attn_session_length(other) == 0);
    attn_session_free(session);
    attn_session_free(other);
}

/* ---- several texts at once ---- */

static const char *const openings[] = {"Once upon a time",    "The cat",    "One day, a dog",
                                       "Once upon a time",    "Lily was",   "a b a b a b a b a b",
                                       "There was a caf\xC3", "Tom and Sue"};
enum { TEXTS = sizeof openings / sizeof openings[0] };

/* Each text is the one that attn_generate makes alone, with its seed. */
static void same_texts(const attn_continuation *texts, size_t n, attn_generate_desc d)
{
    for (size_t i = 0; i < n; i++) {
        attn_ctx ctx = alone();
        SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
        attn_generate_desc one = d;
        int32_t ids[300];
        float log_probs[300];
        heard h;
        memset(&h, 0, sizeof h);
        one.sampling.seed += i;
        one.prompt_tokens = texts[i].prompt_tokens;
        one.n_prompt_tokens = texts[i].n_prompt_tokens;
        attn_generation made = {.tokens = ids, .log_probs = log_probs, .room = 300};
        one.text_fn = keep_text;
        one.text_user = &h;
        OK(&ctx, attn_generate(&ctx, &made, session, texts[i].prompt, &one));
        CHECKF(made.n_tokens == texts[i].n_tokens &&
                   memcmp(ids, texts[i].tokens, made.n_tokens * sizeof *ids) == 0,
               "text %d: other tokens than alone", (int)i);
        CHECKF(memcmp(log_probs, texts[i].log_probs, made.n_tokens * sizeof *log_probs) == 0,
               "text %d: other log-probabilities than alone", (int)i);
        CHECKF(h.size == texts[i].size && strlen(texts[i].text) == h.size &&
                   memcmp(h.text, texts[i].text, h.size) == 0,
               "text %d: \"%s\"", (int)i, texts[i].text);
        CHECKF(made.reason == texts[i].reason, "text %d ended by %s, alone by %s", (int)i,
               attn_stop_reason_name(texts[i].reason), attn_stop_reason_name(made.reason));
    }
}

TEST(many_texts)
{
    static const char *const stop[] = {".", "and the"};
    attn_ctx ctx = alone();
    attn_continuation texts[TEXTS];
    attn_generate_desc d;
    for (size_t round = 0; round < 4; round++) {
        const size_t n = round == 1 ? 2 : TEXTS;
        memset(texts, 0, sizeof texts);
        memset(&d, 0, sizeof d);
        for (size_t i = 0; i < n; i++) {
            texts[i].prompt = i == 4 ? NULL : openings[i];
            texts[i].prompt_tokens = i == 4 ? circle : NULL;
            texts[i].n_prompt_tokens = i == 4 ? 9 : 0;
        }
        d.max_tokens = round == 2 ? 250 : 40;
        d.sampling = sampler_of(round ? 0.7f : 0, 5);
        d.n_draft = round == 3 ? 7 : 0;
        d.prepend_bos = round == 1;
        d.ignore_eos = round == 2; /* then the context ends them */
        d.stop_strings = stop;
        d.n_stop_strings = round == 3 ? 2 : 0;
        OK(&ctx, attn_generate_many(&ctx, texts, n, tiny, &d));
        CHECK(texts[0].reason == (round == 2   ? ATTN_STOP_COUNT
                                  : round == 3 ? ATTN_STOP_STRING
                                               : texts[0].reason));
        same_texts(texts, n, d);
        attn_continuations_free(texts, n);
        CHECK(!texts[0].text && !texts[0].tokens && !texts[0].log_probs &&
              texts[0].prompt == openings[0]);
    }
    attn_continuations_free(NULL, 3);
}

static int end_the_first(float *logits, const attn_session *session, void *user)
{
    (void)logits;
    return attn_session_tokens(session)[0] == *(const int32_t *)user &&
           attn_session_length(session) > 14;
}

/* A text is handed over as it is made; where its text_fn stops, it ends, and the others go on. The
 * caller's workspace serves, and is free for others afterwards. */
TEST(many_texts_as_they_are_made)
{
    static const char *const stop[] = {"nowhere", "."};
    attn_ctx ctx = alone();
    attn_continuation texts[TEXTS], want[TEXTS];
    heard heard_of[TEXTS];
    SCOPED_WORKSPACE workspace = NULL;
    attn_session *session = NULL;
    attn_generate_desc d = greedily(30);
    memset(texts, 0, sizeof texts);
    memset(heard_of, 0, sizeof heard_of);
    for (size_t i = 0; i < TEXTS; i++) {
        texts[i].prompt = openings[i];
        want[i] = texts[i];
        texts[i].text_fn = keep_text;
        texts[i].text_user = &heard_of[i];
    }
    heard_of[1].most = 2;
    d.stop_strings = stop;
    d.n_stop_strings = 2;
    OK(&ctx, attn_workspace_new(&ctx, &workspace, tiny, NULL));
    OK(&ctx, attn_generate_many(&ctx, want, TEXTS, tiny, &d));
    d.workspace = workspace;
    OK(&ctx, attn_generate_many(&ctx, texts, TEXTS, tiny, &d));
    for (size_t i = 0; i < TEXTS; i++) {
        CHECK(texts[i].size == heard_of[i].size &&
              memcmp(texts[i].text, heard_of[i].text, texts[i].size) == 0);
        CHECK(texts[i].reason == (i == 1 ? ATTN_STOP_CALLBACK : want[i].reason));
        CHECK(i == 1 ? texts[i].size < want[i].size && heard_of[i].pieces == 2
                     : strcmp(texts[i].text, want[i].text) == 0);
        CHECK(texts[i].which_stop == (texts[i].reason == ATTN_STOP_STRING));
    }
    attn_continuations_free(texts, TEXTS);
    attn_continuations_free(want, TEXTS);
    attn_session_desc shares = {.workspace = workspace};
    OK(&ctx, attn_session_new(&ctx, &session, tiny, &shares));
    OK(&ctx, attn_feed(&ctx, session, circle, 3));
    attn_session_free(session);
    texts[0].prompt = NULL;
    texts[0].prompt_tokens = circle + 2;
    texts[0].n_prompt_tokens = 1;
    FAILS(ARGUMENT, "item 0: the workspace was made for another model",
          attn_generate_many(&ctx, texts, 1, odd, &d));
}

TEST(many_texts_end_for_themselves)
{
    attn_ctx ctx = alone();
    attn_continuation texts[2];
    attn_generate_desc d;
    int32_t first = circle[0];
    memset(texts, 0, sizeof texts);
    memset(&d, 0, sizeof d);
    texts[0].prompt_tokens = circle;
    texts[0].n_prompt_tokens = 12;
    texts[1].prompt = "The cat";
    d.max_tokens = 20;
    d.ignore_eos = 1;
    d.logits_fn = end_the_first;
    d.logits_user = &first;
    OK(&ctx, attn_generate_many(&ctx, texts, 2, tiny, &d));
    CHECK(texts[0].reason == ATTN_STOP_CALLBACK && texts[0].n_tokens == 3);
    CHECK(texts[1].reason == ATTN_STOP_COUNT && texts[1].n_tokens == 20);
    attn_continuations_free(texts, 2);
}

/* ---- stopping from outside ---- */

static volatile int flag;
static size_t n_until_flag;

static int raise_flag_in_text(const char *text, size_t size, void *user)
{
    (void)text, (void)size, (void)user;
    flag |= --n_until_flag == 0;
    return 0;
}

static int raise_flag_in_draw(float *logits, const attn_session *session, void *user)
{
    (void)logits, (void)session, (void)user;
    flag |= --n_until_flag == 0;
    return 0;
}

/* A text ends in the feed after the flag went up: its last token was drawn and is not fed. */
TEST(stopped_from_outside)
{
    attn_ctx ctx = alone();
    int32_t want[12], ids[12];
    size_t n;
    attn_continuation texts[3] = {{0}};
    SCOPED_SESSION session = session_on(&ctx, tiny, 0, 0);
    attn_generate_desc d = greedily(12);
    ctx.stop_flag = &flag;
    d.no_draft = 1;
    OK(&ctx, generate_ids(&ctx, want, &n, session, "Once upon a time", &d));
    EQUAL(n, 12);
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    d.text_fn = raise_flag_in_text;
    n_until_flag = 3;
    attn_generation made = {.tokens = ids, .room = 12};
    OK(&ctx, attn_generate(&ctx, &made, session, "Once upon a time", &d));
    CHECK(made.reason == ATTN_STOP_CALLBACK && ctx.status == ATTN_OK);
    CHECK(made.n_tokens == 3 && attn_session_length(session) == 4 + 2);
    flag = 0;
    d = greedily(9); /* and on from there */
    d.prompt_tokens = ids + 2;
    d.n_prompt_tokens = 1;
    OK(&ctx, generate_ids(&ctx, ids + 3, &n, session, NULL, &d));
    CHECK(n == 9 && memcmp(ids, want, sizeof want) == 0);
    flag = 1;
    OK(&ctx, attn_generate(&ctx, &made, session, NULL, &d)); /* in the prompt */
    CHECK(made.reason == ATTN_STOP_CALLBACK && made.n_tokens == 0);
    flag = 0;
    d = greedily(12);
    d.logits_fn = raise_flag_in_draw;
    n_until_flag = 7; /* the first of the third draws */
    for (n = 0; n < 3; n++)
        texts[n].prompt = "Once upon a time";
    OK(&ctx, attn_generate_many(&ctx, texts, 3, tiny, &d));
    for (n = 0; n < 3; n++)
        CHECK(texts[n].reason == ATTN_STOP_CALLBACK && texts[n].n_tokens >= 2 && *texts[n].text);
    flag = 0;
    attn_continuations_free(texts, 3);
}

TEST(many_texts_refused)
{
    attn_ctx ctx = alone();
    attn_continuation texts[3];
    attn_generate_desc d;
    int32_t *const ids = random_tokens(tiny, 300, 1);
    SCOPED_SAMPLER sampler = NULL;
    memset(texts, 0, sizeof texts);
    memset(&d, 0, sizeof d);
    texts[0].prompt = texts[1].prompt = "a";
    FAILS(ARGUMENT, "item 2: the prompt is empty", attn_generate_many(&ctx, texts, 3, tiny, &d));
    CHECK(!texts[0].text && !texts[1].tokens);
    texts[2].prompt_tokens = ids;
    texts[2].n_prompt_tokens = 300;
    FAILS(CONTEXT, "item 2: the prompt has 300 tokens",
          attn_generate_many(&ctx, texts, 3, tiny, NULL));
    ids[1] = 2048;
    texts[2].n_prompt_tokens = 2;
    FAILS(TOKEN, "item 2: attn_feed: token 1 is 2048",
          attn_generate_many(&ctx, texts, 3, tiny, NULL));
    CHECK(!texts[0].text && texts[0].n_tokens == 0);
    FAILS(ARGUMENT, "no texts", attn_generate_many(&ctx, NULL, 3, tiny, NULL));
    FAILS(ARGUMENT, "no texts", attn_generate_many(&ctx, texts, 0, tiny, NULL));
    FAILS(ARGUMENT, "no model", attn_generate_many(&ctx, texts, 3, NULL, NULL));
    OK(&ctx, attn_sampler_new(&ctx, &sampler, vocab_of(tiny), NULL));
    d.reuse_sampler = sampler;
    FAILS(ARGUMENT, "->reuse_sampler", attn_generate_many(&ctx, texts, 2, tiny, &d));
    d.reuse_sampler = NULL;
    d.prompt_tokens = ids;
    FAILS(ARGUMENT, "->prompt_tokens", attn_generate_many(&ctx, texts, 2, tiny, &d));
    d.prompt_tokens = NULL;
    d.text_fn = hear;
    FAILS(ARGUMENT, "->text_fn", attn_generate_many(&ctx, texts, 2, tiny, &d));
}
