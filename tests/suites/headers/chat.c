/* examples/chat.h: forbidden words over the borders of tokens, a limit in bytes, room in the session, and
 * what a session remembers of an answer. */
#include "tests/support/test.h"
#include "examples/chat.h"
#include <ctype.h>

static attn_ctx ctx;
static attn_model *model;

static int set_up(void)
{
    return OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL));
}

static void tear_down(void)
{
    attn_model_close(model);
    attn_ctx_free(&ctx);
}

SUITE_WITH(set_up, tear_down);

/* A conversation with a session of n_ctx tokens (0: the model's), greedy */
static chat begin(size_t n_ctx, size_t max_tokens)
{
    attn_session_desc desc = {.n_ctx = n_ctx};
    chat c = {.how.max_tokens = max_tokens};
    OK(&ctx, attn_session_new(&ctx, &c.session, model, &desc));
    return c;
}

/* The text of a session's tokens from `first` on; valid until the next call */
static const char *remembered(const attn_session *session, size_t first)
{
    static char text[20000];
    size_t size = sizeof text - 1;
    OK(&ctx,
       attn_decode(&ctx, text, &size, attn_model_tokenizer(model),
                   attn_session_tokens(session) + first, attn_session_length(session) - first));
    text[size] = 0;
    return text;
}

/* Is the word in the text, in any case? */
static int contains(const char *text, const char *word)
{
    char a[20000], b[64];
    for (size_t i = 0; i <= strlen(text); i++)
        a[i] = (char)tolower((unsigned char)text[i]);
    for (size_t i = 0; i <= strlen(word); i++)
        b[i] = (char)tolower((unsigned char)word[i]);
    return strstr(a, b) != NULL;
}

/* A word is made of the end of each token and the beginning of the next: forbidden, it does not come, and
 * nothing before it changes. */
TEST(forbidden_over_a_border)
{
    char plain[401], answer[401], word[64];
    const char *words = word;
    int32_t tokens[40];
    chat c = begin(0, 40);
    attn_generation result = {.tokens = tokens, .room = 40};
    c.answer = plain;
    c.max_bytes = 400;
    OK(&ctx, chat_turn(&ctx, &result, &c, "Once upon a time"));
    size_t n = result.n_tokens;
    CHECK(n == 40 && c.n_bytes == strlen(plain) && !c.is_cut);
    c.answer = answer;
    c.forbidden = &words;
    c.n_forbidden = 1;
    for (size_t i = 0; i + 1 < n; i++) {
        size_t size[2];
        const attn_tokenizer *tokenizer = attn_model_tokenizer(model);
        const char *left = attn_token_bytes(&size[0], tokenizer, tokens[i]);
        const char *right = attn_token_bytes(&size[1], tokenizer, tokens[i + 1]);
        snprintf(word, sizeof word, "%.*s%.*s", 2, left + (size[0] > 2 ? size[0] - 2 : 0),
                 size[1] < 2 ? 1 : 2, right);
        if (size[0] < 2)
            snprintf(word, sizeof word, "%.1s%.*s", left, size[1] < 2 ? 1 : 2, right);
        CHECKF(contains(plain, word), "no \"%s\" in \"%s\"", word, plain);
        word[0] = (char)toupper((unsigned char)word[0]);
        OK(&ctx, attn_session_truncate(&ctx, c.session, 0));
        OK(&ctx, chat_turn(&ctx, NULL, &c, "Once upon a time"));
        CHECKF(!contains(answer, word) && c.n_bytes > 40, "\"%s\" is in \"%s\"", word, answer);
        word[0] = (char)tolower((unsigned char)word[0]);
        size_t before = (size_t)(strstr(plain, word) ? strstr(plain, word) - plain : 0);
        CHECKF(strncmp(plain, answer, before) == 0, "without \"%s\": \"%s\"", word, answer);
    }
    attn_session_free(c.session);
}

/* Frequent letters, drawn at a high temperature; a text that repeats itself is drafted. */
TEST(forbidden_whatever_is_drawn)
{
    static const char *const words[] = {"he", " a", "O", "ing", "\n", ".", "er"};
    char answer[2001];
    chat c = begin(0, 120);
    c.answer = answer;
    c.max_bytes = 2000;
    c.forbidden = words;
    c.n_forbidden = sizeof words / sizeof *words;
    for (size_t seed = 0; seed < 8; seed++) {
        c.how.sampling.seed = seed;
        c.how.sampling.temperature = seed ? 1.5f : 0;
        OK(&ctx, attn_session_truncate(&ctx, c.session, 0));
        OK(&ctx, chat_turn(&ctx, NULL, &c, "Sam saw Jim. Sam saw Jim. Sam saw Jim. Sam"));
        for (size_t i = 0; i < c.n_forbidden; i++)
            CHECKF(!contains(answer, words[i]) && c.n_bytes > 0, "\"%s\" is in \"%s\"", words[i],
                   answer);
    }
    attn_session_free(c.session);
}

/* The person begins a word that the model would complete. */
TEST(forbidden_across_the_prompt)
{
    static const char prompt[] = "Once upon a time, there was a little gir";
    const char *word = "giraffe";
    char answer[101], text[200];
    chat c = begin(0, 10);
    c.answer = answer;
    c.max_bytes = 100;
    c.forbidden = &word;
    for (int forbids = 0; forbids < 2; forbids++) {
        c.n_forbidden = (size_t)forbids;
        OK(&ctx, attn_session_truncate(&ctx, c.session, 0));
        OK(&ctx, chat_turn(&ctx, NULL, &c, prompt));
        snprintf(text, sizeof text, "%s%s", prompt, answer);
        CHECKF(contains(text, word) == !forbids, "%s", text);
    }
    attn_session_free(c.session);
}

/* Forces the tokens of a text, one after the other. */
typedef struct forced {
    const int32_t *ids;
    size_t n, begin;
} forced;

static int force(float *logits, const attn_session *session, void *user)
{
    const forced *f = (const forced *)user;
    const size_t at = attn_session_length(session) - f->begin;
    for (size_t i = 0; i < attn_model_config(model)->n_vocab; i++)
        logits[i] = at < f->n && (int32_t)i == f->ids[at] ? 1 : -INFINITY;
    return at >= f->n;
}

/* Each character comes in several tokens. Whatever the limit, whole ones are handed over, as many as fit, and
 * the session has their tokens alone. */
TEST(limit_in_bytes)
{
    static const char text[] = "\xf0\x9f\x99\x82\xc3\xa9\xe2\x82\xac!\xf0\x9f\x99\x82";
    static const size_t ends[] = {0, 4, 6, 9, 10, 14};
    int32_t ids[32];
    size_t n = 32, whole, i;
    char answer[33];
    chat c = begin(0, 32);
    attn_generation result = ATTN_ZERO;
    forced f;
    OK(&ctx, attn_encode(&ctx, ids, &n, attn_model_tokenizer(model), text, strlen(text)));
    CHECKF(n == 14, "%d tokens", (int)n);
    f.ids = ids;
    f.n = n;
    c.how.logits_fn = force;
    c.how.logits_user = &f;
    c.answer = answer;
    for (size_t limit = 1; limit < 20; limit++) {
        for (i = 0; i < 5 && ends[i + 1] <= limit; i++)
            ;
        whole = ends[i];
        memset(answer, '#', sizeof answer);
        c.max_bytes = limit;
        OK(&ctx, attn_session_truncate(&ctx, c.session, 0));
        OK(&ctx, attn_feed_text(&ctx, c.session, "I like"));
        f.begin = attn_session_length(c.session) + 1;
        OK(&ctx, chat_turn(&ctx, &result, &c, " it"));
        CHECKF(c.n_bytes == whole && memcmp(answer, text, whole) == 0 && answer[whole] == 0,
               "limit %d: %d bytes \"%s\"", (int)limit, (int)c.n_bytes, answer);
        CHECK(c.is_cut == (limit < 14) && result.reason == ATTN_STOP_CALLBACK);
        CHECKF(strncmp(remembered(c.session, 0), "I like it", 9) == 0 &&
                   strcmp(remembered(c.session, 0) + 9, answer) == 0,
               "limit %d: the session has \"%s\"", (int)limit, remembered(c.session, 0));
    }
    attn_session_free(c.session);
}

/* Text that waits for a stop string comes in pieces that end within tokens: whatever the limit, the answer
 * has whole tokens, which the session has too. */
TEST(limit_and_stop_strings)
{
    static const char *const stops[] = {"eZ", " gQ", "yX", "nnn", "?!", ". Z"};
    static const char said[] = "Once upon a";
    char answer[100];
    size_t n_cut = 0;
    chat c = begin(0, 30);
    c.answer = answer;
    c.how.n_stop_strings = 1;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        for (size_t limit = 1; limit < 60; limit++) {
            c.how.stop_strings = &stops[i];
            c.max_bytes = limit;
            OK(&ctx, attn_session_truncate(&ctx, c.session, 0));
            OK(&ctx, chat_turn(&ctx, NULL, &c, said));
            n_cut += (size_t)c.is_cut;
            CHECKF(strlen(answer) == c.n_bytes && c.n_bytes <= limit &&
                       strcmp(remembered(c.session, 0) + strlen(said), answer) == 0,
                   "stop \"%s\", limit %d: \"%s\", the session has \"%s\"", stops[i], (int)limit,
                   answer, remembered(c.session, 0));
        }
    CHECKF(n_cut > 300, "%d were cut", (int)n_cut);
    attn_session_free(c.session);
}

/* A token of broken bytes becomes U+FFFD, which has other bytes than it. */
TEST(limit_and_broken_bytes)
{
    static const char text[] = "a\xff\xfe z\xc3 b";
    static const char shown_as[] = "a\xef\xbf\xbd\xef\xbf\xbd z\xef\xbf\xbd b";
    int32_t ids[16];
    size_t n = 16;
    char answer[32], again[64];
    chat c = begin(0, 16);
    forced f;
    OK(&ctx, attn_encode(&ctx, ids, &n, attn_model_tokenizer(model), text, strlen(text)));
    f.ids = ids;
    f.n = n;
    c.how.logits_fn = force;
    c.how.logits_user = &f;
    c.answer = answer;
    for (size_t limit = 1; limit < strlen(shown_as); limit++) {
        attn_utf8 utf8 = ATTN_ZERO;
        c.max_bytes = limit;
        OK(&ctx, attn_session_truncate(&ctx, c.session, 0));
        OK(&ctx, attn_feed_text(&ctx, c.session, "I like"));
        f.begin = attn_session_length(c.session) + 1;
        OK(&ctx, chat_turn(&ctx, NULL, &c, " it"));
        size_t size = strlen(remembered(c.session, f.begin));
        again[attn_utf8_push(again, &utf8, remembered(c.session, f.begin), size)] = 0;
        CHECKF(c.is_cut && strlen(answer) <= limit && strcmp(again, answer) == 0 && utf8.n == 0 &&
                   strncmp(shown_as, answer, strlen(answer)) == 0,
               "limit %d: \"%s\", the session has \"%s\"", (int)limit, answer, again);
    }
    attn_session_free(c.session);
}

/* The token before the first word is none of the answer's. */
TEST(limit_after_bos)
{
    char answer[21];
    chat c = begin(0, 12);
    c.how.prepend_bos = 1;
    c.answer = answer;
    c.max_bytes = 20;
    OK(&ctx, chat_turn(&ctx, NULL, &c, "One day"));
    CHECK(c.is_cut && attn_session_tokens(c.session)[0] == attn_model_config(model)->bos);
    CHECKF(strncmp(remembered(c.session, 1), "One day", 7) == 0 &&
               strcmp(remembered(c.session, 1) + 7, answer) == 0,
           "\"%s\", answered was \"%s\"", remembered(c.session, 1), answer);
    attn_session_free(c.session);
}

static int collect(const char *text, size_t size, void *user)
{
    strncat((char *)user, text, size);
    return 0;
}

/* A limit without a buffer, and one that no answer reaches; text_fn gets what the buffer gets. */
TEST(limit_and_text_fn)
{
    char answer[1001], seen[1001];
    for (size_t limit = 1; limit < 200; limit = limit * 3 / 2 + 1) {
        chat c = begin(0, 30);
        c.max_bytes = limit;
        c.answer = limit % 2 ? answer : NULL;
        c.how.text_fn = collect;
        c.how.text_user = seen;
        seen[0] = 0;
        OK(&ctx, chat_turn(&ctx, NULL, &c, "Once upon a time"));
        CHECKF(strlen(seen) == c.n_bytes && c.n_bytes <= limit, "%d bytes of %d: %s",
               (int)c.n_bytes, (int)limit, seen);
        CHECK(!c.answer || strcmp(answer, seen) == 0);
        CHECK(strcmp(remembered(c.session, 0) + strlen("Once upon a time"), seen) == 0);
        CHECK(c.is_cut == (attn_session_length(c.session) < 34));
        attn_session_free(c.session);
    }
}

/* The session has all that was said, in its order, and no stop string. */
TEST(remembers_what_was_said)
{
    static const char *const stops[] = {".", "!", " little", "re"};
    static const char *const said[] = {"Once upon a time", " She", " \"Mom", " And then"};
    char answer[401], whole[4000] = "";
    chat c = begin(0, 60);
    c.answer = answer;
    c.max_bytes = 400;
    c.how.stop_strings = stops;
    c.how.n_stop_strings = 4;
    for (size_t i = 0; i < 12; i++) {
        OK(&ctx, chat_turn(&ctx, NULL, &c, said[i % 4]));
        strcat(whole, said[i % 4]);
        const char *now = remembered(c.session, 0);
        size_t size = strlen(now);
        /* a stop string may begin within a token, whose first letters were handed over */
        CHECKF(strncmp(now, whole, strlen(whole)) == 0 && size - strlen(whole) <= c.n_bytes &&
                   size - strlen(whole) + 12 >= c.n_bytes &&
                   strncmp(now + strlen(whole), answer, size - strlen(whole)) == 0,
               "the session has \"%s\", said was \"%s\"", now, answer);
        strcpy(whole, now);
        CHECK(!strchr(answer, '.') && !strchr(answer, '!') && !strstr(answer, " little"));
    }
    attn_session_free(c.session);
}

/* A session of 64 tokens goes on for ever: its first tokens stay, its last ones are the latest turn, and it
 * answers as one to which the same tokens were fed. */
TEST(makes_room)
{
    static const char rules[] = "Lily had a red ball. She was a good girl.";
    char answer[401], again[401], whole[8000];
    size_t forgot = 0;
    for (size_t n_first = 0; n_first <= 8; n_first += 8) {
        chat c = begin(64, 12), other = begin(64, 12);
        int32_t first[8];
        OK(&ctx, attn_feed_text(&ctx, c.session, rules));
        memcpy(first, attn_session_tokens(c.session), n_first * sizeof *first);
        strcpy(whole, remembered(c.session, n_first));
        c.n_first = n_first;
        c.answer = answer;
        other.answer = again;
        c.max_bytes = other.max_bytes = 400;
        for (size_t turn = 0; turn < 12; turn++) {
            const size_t before = attn_session_length(c.session);
            OK(&ctx, attn_session_truncate(&ctx, other.session, 0));
            if (before + 3 + 12 <= 64) /* no room is needed */
                OK(&ctx, attn_feed(&ctx, other.session, attn_session_tokens(c.session), before));
            OK(&ctx, chat_turn(&ctx, NULL, &c, " The dog said"));
            CHECK(attn_session_length(c.session) <= 64);
            CHECK(memcmp(first, attn_session_tokens(c.session), n_first * sizeof *first) == 0);
            /* what is left is the end of all that was said, and not the latest turn alone */
            strcat(strcat(whole, " The dog said"), answer);
            const char *end = remembered(c.session, n_first);
            CHECKF(strlen(end) <= strlen(whole) &&
                       strcmp(whole + strlen(whole) - strlen(end), end) == 0,
                   "turn %d: the session ends \"%s\"", (int)turn, end);
            CHECK(turn < 2 || attn_session_length(c.session) >= n_first + 15 + 10);
            if (attn_session_length(other.session) > 0) {
                OK(&ctx, chat_turn(&ctx, NULL, &other, " The dog said"));
                CHECKF(strcmp(answer, again) == 0, "turn %d: \"%s\"", (int)turn, again);
            } else {
                forgot += attn_session_length(c.session) < before + 15;
            }
        }
        attn_session_free(c.session);
        attn_session_free(other.session);
    }
    CHECKF(forgot >= 4, "room was made %d times", (int)forgot);
}

/* A line that is longer than the context: its end is answered. */
TEST(a_long_line)
{
    char line[4000] = "", answer[401];
    chat c = begin(64, 12);
    for (size_t i = 0; i < 100; i++)
        strcat(line, " and the cat ran");
    c.answer = answer;
    c.max_bytes = 400;
    for (size_t i = 0; i < 3; i++) {
        OK(&ctx, chat_turn(&ctx, NULL, &c, line));
        CHECK(c.n_bytes > 0 && attn_session_length(c.session) <= 64);
    }
    attn_session_free(c.session);
}

/* Twelve tokens, and nothing said twice, are twenty-four tokens. */
TEST(nothing_said)
{
    char once[401], answer[401], whole[802];
    chat a = begin(0, 24), b = begin(0, 12);
    a.answer = once;
    b.answer = answer;
    a.max_bytes = b.max_bytes = 400;
    OK(&ctx, chat_turn(&ctx, NULL, &a, "One day"));
    OK(&ctx, chat_turn(&ctx, NULL, &b, "One day"));
    strcpy(whole, answer);
    OK(&ctx, chat_turn(&ctx, NULL, &b, ""));
    strcat(whole, answer);
    CHECKF(strcmp(whole, once) == 0, "\"%s\", not \"%s\"", whole, once);
    attn_session_free(a.session);
    attn_session_free(b.session);
}

TEST(refused)
{
    const char *word = "";
    char long_word[300], answer[8] = "1234567";
    chat c = begin(0, 12);
    c.answer = answer;
    FAILS(ARGUMENT, "max_bytes is 0", chat_turn(&ctx, NULL, &c, "A"));
    c.max_bytes = 7;
    c.forbidden = &word;
    c.n_forbidden = 1;
    FAILS(ARGUMENT, "forbidden word 0 has 0 bytes", chat_turn(&ctx, NULL, &c, "A"));
    memset(long_word, 'a', sizeof long_word);
    long_word[257] = 0;
    word = long_word;
    FAILS(ARGUMENT, "forbidden word 0 has 257 bytes", chat_turn(&ctx, NULL, &c, "A"));
    long_word[256] = 0;
    OK(&ctx, chat_turn(&ctx, NULL, &c, "A"));
    c.n_forbidden = 0;
    OK(&ctx, attn_session_truncate(&ctx, c.session, 0));
    FAILS(ARGUMENT, "the prompt is empty and so is the session", chat_turn(&ctx, NULL, &c, ""));
    CHECK(answer[0] == 0);
    attn_session_free(c.session);
}
