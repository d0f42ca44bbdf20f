/* The model tier and the glass box. Three models: `plain` and `odd` are random, with every
 * activation worked out in float64 by numpy (golden/make_golden.py); `tiny` is the included model,
 * with what PyTorch made of it (examples/tiny-stories/reference.json). What must be the same is
 * compared bit by bit. */
#include "models.h"
#include "refused.h"
#include "tests/fixtures/generation_vectors.h"

static attn_model *plain, *odd, *tiny;
static attn_model *longer; /* 600 positions: more keys than one chain takes */

static int set_up(void)
{
    attn_ctx ctx = alone();
    plain = converted("tests/golden/plain", "model-plain.attn", "--no-tokenizer");
    odd = converted("tests/golden/odd", "model-odd.attn", "--no-tokenizer");
    longer = converted("tests/golden/long", "model-long.attn", "--no-tokenizer");
    OK(&ctx, attn_model_open(&ctx, &tiny, TEST_BUILD "/tiny-stories.attn", NULL));
    return plain && odd && longer && tiny;
}

static void tear_down(void)
{
    attn_model_close(plain);
    attn_model_close(odd);
    attn_model_close(longer);
    attn_model_close(tiny);
}

SUITE_WITH("model", set_up, tear_down);

/* ---- tools ---- */

static float *row_of(float *logits, size_t row, const attn_model *model)
{
    return logits + row * vocab_of(model);
}

/* ---- golden: every activation against float64 ---- */

/* Puts the pieces of one activation together, [T, ..] or [H, T, T], and compares. */
static void check_activation(const sight *s, const char *name, attn_tensor want)
{
    const int is_pattern = strstr(name, "hook_pattern") != NULL;
    const int over_keys = is_pattern || strstr(name, "hook_attn_scores") != NULL;
    attn_tensor whole = new_tensor(ATTN_F32, want.ndim, want.shape, LAYOUT_DENSE);
    size_t n_rows = 0, piece, i, j, k;
    for (i = 0; i < count_of(whole); i++)
        ((float *)whole.data)[i] = over_keys ? (is_pattern ? 0 : -INFINITY) : NAN;
    for (piece = 0; piece < s->n; piece++) {
        const seen *one = &s->all[piece];
        attn_tensor got = one->value;
        int expected_layer = -1;
        if (strcmp(one->name, name) != 0)
            continue;
        sscanf(name, "blocks.%d.", &expected_layer);
        CHECKF(one->layer == expected_layer, "%s says layer %d", name, one->layer);
        if (!CHECKF(got.ndim == want.ndim, "%s has shape %s", name, shape_text(got)))
            return;
        if (over_keys) {
            if (!CHECKF(one->first == n_rows && got.shape[0] == want.shape[0] &&
                            got.shape[2] == n_rows + got.shape[1] && got.shape[2] <= want.shape[2],
                        "%s at %llu has shape %s", name, LLU(one->first), shape_text(got)))
                return;
            for (i = 0; i < got.shape[0]; i++)
                for (j = 0; j < got.shape[1]; j++) {
                    double sum = 0;
                    for (k = 0; k < got.shape[2]; k++)
                        sum += (double)(*entry(whole, i, n_rows + j, k) = *entry(got, i, j, k));
                    CHECKF(!is_pattern || fabs(sum - 1) < 1e-6, "%s: row %llu sums to %.9g", name,
                           LLU(n_rows + j), sum);
                }
            n_rows += got.shape[1];
        } else {
            if (!CHECKF(one->first == n_rows && n_rows + got.shape[0] <= want.shape[0] &&
                            got.shape[1] == want.shape[1] && got.shape[2] == want.shape[2],
                        "%s at %llu has shape %s", name, LLU(one->first), shape_text(got)))
                return;
            memcpy(entry(whole, n_rows, 0, 0), got.data, count_of(got) * sizeof(float));
            n_rows += got.shape[0];
        }
    }
    if (CHECKF(n_rows == want.shape[over_keys ? 1 : 0], "%s: %llu rows were seen", name,
               LLU(n_rows)))
        close_to(whole, want, 2e-5, name);
}

static void check_golden(const attn_model *model, const char *path, size_t step)
{
    attn_ctx ctx = alone();
    size_t size, n, i, n_names = 0;
    unsigned char *const file = test_read(path, &size);
    sight *const r = new_sight();
    attn_session *session = session_on(&ctx, model, 0, 0);
    attn_tensor want, got;
    char name[64];
    const char *at = NULL;
    int32_t *tokens;
    double mean, expected_mean = 0;
    attn_token_stats *stats;
    if (!session || !CHECKF(file, "%s cannot be read", path))
        return;
    tokens = stored_tokens(file, &n);
    CHECK(n > 20);
    OK(&ctx, attn_hook(&ctx, NULL, session, "*", note, r));
    want = stored_tensor(file, "logits");
    close_to(attn_borrow(feed_all(&ctx, session, tokens, n, step ? step : n), ATTN_F32,
                         attn_shape2(n, vocab_of(model))),
             want, 2e-5, "logits");
    while ((at = next_stored(file, at, name, &want)) != NULL) {
        if (strcmp(name, "tokens") == 0 || strcmp(name, "logits") == 0 ||
            strcmp(name, "nll") == 0 || strstr(name, "hook_result"))
            continue;
        check_activation(r, name, want);
        n_names++;
    }
    CHECKF(n_names == 5 + 19 * attn_model_config(model)->n_layer, "%llu names", LLU(n_names));
    for (i = 0; i < r->n; i++)
        CHECKF(stored_tensor(file, r->all[i].name).ndim > 0 && r->all[i].session == session,
               "%s is not in the reference", r->all[i].name);

    attn_unhook_all(session);
    OK(&ctx, attn_truncate(&ctx, session, 0));
    want = stored_tensor(file, "nll");
    got = new_tensor(ATTN_F32, 1, want.shape, LAYOUT_DENSE);
    stats = (attn_token_stats *)pool_new(n * sizeof *stats);
    if (OK(&ctx, attn_score(&ctx, stats, NULL, 0, session, tokens, n))) {
        mean = attn_mean_nll(stats, n - 1);
        for (i = 0; i + 1 < n; i++)
            ((float *)got.data)[i] = stats[i].nll;
        close_to(got, want, 2e-5, "nll");
        for (i = 0; i + 1 < n; i++)
            expected_mean += value_of(want, i) / (double)(n - 1);
        CHECKF(fabs(mean - expected_mean) < 1e-5, "mean %.9g", mean);
    }
    attn_session_free(session);
    free(file);
    pool_clear();
}

TEST(golden_in_one_call)
{
    check_golden(plain, "tests/golden/plain/reference.safetensors", 0);
    check_golden(odd, "tests/golden/odd/reference.safetensors", 0);
}

TEST(golden_in_pieces)
{
    check_golden(plain, "tests/golden/plain/reference.safetensors", 1);
    check_golden(odd, "tests/golden/odd/reference.safetensors", 1);
    check_golden(odd, "tests/golden/odd/reference.safetensors", 7);
}

/* ---- tiny-stories: what PyTorch made of it ---- */

/* One entry of reference.json's list; strings are unescaped. */
typedef struct story {
    char prompt[256], text[4096];
    int32_t prompt_ids[32], ids[256];
    size_t n_prompt_ids, n_ids, n_nll;
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
    size_t i, n = read_numbers(at, numbers, room);
    for (i = 0; i < n; i++)
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
    s->n_prompt_ids = read_ids(value_after(at, "\"prompt_ids\": ["), s->prompt_ids, 32);
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

static attn_generate_desc greedily(size_t max_tokens, int32_t *ids, size_t *n_ids)
{
    attn_generate_desc d;
    memset(&d, 0, sizeof d);
    d.max_tokens = max_tokens;
    d.ids = ids;
    d.n_ids = n_ids;
    return d;
}

TEST(stories)
{
    attn_ctx ctx = alone();
    size_t size, n, i;
    char *json = (char *)test_read("examples/tiny-stories/reference.json", &size);
    attn_session *session = session_on(&ctx, tiny, 0, 0);
    story s;
    int number;
    if (!CHECK(json) || !session)
        return;
    for (number = 0; read_story(&s, json, number); number++) {
        int32_t ids[256], all[512];
        attn_token_stats stats[512];
        double mean, worst = 0, expected = 0;
        listener l = {"", 0, 0, 0, 0};
        attn_generate_desc d = greedily(s.n_ids, ids, &n);
        CHECK(s.n_ids == 200 && s.n_prompt_ids > 3 && s.n_nll == s.n_prompt_ids + 199);
        d.ignore_eos = 1;

        OK(&ctx, attn_encode(&ctx, all, 512, &n, attn_model_tokenizer(tiny), s.prompt,
                             strlen(s.prompt), 0));
        CHECKF(n == s.n_prompt_ids && memcmp(all, s.prompt_ids, n * sizeof *all) == 0,
               "prompt %d: the ids differ", number);

        memset(ids, 0, sizeof ids);
        OK(&ctx, attn_truncate(&ctx, session, 0));
        OK(&ctx, attn_generate(&ctx, session, s.prompt, &d, listen, &l));
        for (i = 0; i < n && ids[i] == s.ids[i]; i++)
            ;
        CHECKF(n == 200 && i == 200, "prompt %d: %llu tokens, the same up to %llu", number, LLU(n),
               LLU(i));
        CHECKF(strcmp(l.text, s.text) == 0, "prompt %d: the text is %.60s...", number, l.text);

        memset(ids, 0, sizeof ids);
        d.prompt_ids = s.prompt_ids;
        d.n_prompt_ids = s.n_prompt_ids;
        OK(&ctx, attn_truncate(&ctx, session, 0));
        OK(&ctx, attn_generate(&ctx, session, "ignored", &d, NULL, NULL));
        CHECKF(n == 200 && memcmp(ids, s.ids, 200 * sizeof *ids) == 0,
               "prompt %d: other tokens from ids", number);

        memcpy(all, s.prompt_ids, s.n_prompt_ids * sizeof *all);
        memcpy(all + s.n_prompt_ids, s.ids, s.n_ids * sizeof *all);
        OK(&ctx, attn_truncate(&ctx, session, 0));
        OK(&ctx, attn_score(&ctx, stats, NULL, 0, session, all, s.n_nll + 1));
        mean = attn_mean_nll(stats, s.n_nll);
        for (i = 0; i < s.n_nll; i++) {
            const double error = fabs((double)stats[i].nll - s.nll[i]);
            worst = error > worst ? error : worst;
            expected += s.nll[i] / (double)s.n_nll;
        }
        CHECKF(worst < 1e-5, "prompt %d: a loss is off by %.3g", number, worst);
        CHECKF(fabs(mean - expected) < 1e-6, "prompt %d: mean loss %.9g", number, mean);
    }
    CHECKF(number == 6, "%d prompts", number);
    attn_session_free(session);
    free(json);
}

/* ---- the same bits ---- */

static void cuts_and_batch_sizes(const attn_model *model, size_t n)
{
    static const size_t n_batch[] = {1, 7, 32, 256};
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(model, n, n);
    const float *const want = logits_of(&ctx, model, 0, tokens, n, n);
    size_t i;
    same_logits(logits_of(&ctx, model, 0, tokens, n, 1), want, n, model, "token by token");
    same_logits(logits_of(&ctx, model, 0, tokens, n, 16), want, n, model, "16 a call");
    for (i = 0; i < 3; i++)
        same_logits(logits_of(&ctx, model, 0, tokens, n, RANDOM_CUTS), want, n, model,
                    "random cuts");
    for (i = 0; i < 4; i++)
        same_logits(logits_of(&ctx, model, n_batch[i], tokens, n, n), want, n, model,
                    i == 0   ? "n_batch 1"
                    : i == 1 ? "n_batch 7"
                    : i == 2 ? "n_batch 32"
                             : "n_batch 256");
    same_logits(logits_of(&ctx, model, 7, tokens, n, RANDOM_CUTS), want, n, model,
                "cuts, n_batch 7");
    pool_clear();
}

TEST(any_cut)
{
    cuts_and_batch_sizes(tiny, 120);
    cuts_and_batch_sizes(plain, 32);
    cuts_and_batch_sizes(odd, 40);
    cuts_and_batch_sizes(longer, 600);
}

static void threads_on(const attn_model *model, size_t n)
{
    static const int threads[] = {2, 3, 4};
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(model, n, n + 1);
    const float *want;
    size_t i;
    ctx.n_threads = 1;
    want = logits_of(&ctx, model, 0, tokens, n, n);
    for (i = 0; i < 3; i++) {
        ctx.n_threads = threads[i];
        same_logits(logits_of(&ctx, model, 0, tokens, n, n), want, n, model, "threads");
    }
    ctx.n_threads = 2;
    same_logits(logits_of(&ctx, model, 5, tokens, n, RANDOM_CUTS), want, n, model,
                "2 threads, cuts");
    pool_clear();
}

/* The caller may change its mind after a session is made: fewer threads then do the work, and more
 * than the session has memory for do not hurt. */
TEST(another_number_later)
{
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(longer, 120, 5);
    float *const want = logits_of(&ctx, longer, 0, tokens, 120, 120);
    attn_session *session;
    int made, now;
    for (made = 1; made <= 4; made++) {
        ctx.n_threads = made;
        session = session_on(&ctx, longer, 0, 0);
        for (now = 1; now <= 9; now += 2) {
            ctx.n_threads = now;
            OK(&ctx, attn_truncate(&ctx, session, 0));
            same_logits(feed_all(&ctx, session, tokens, 120, 50), want, 120, longer,
                        "threads later");
        }
        attn_session_free(session);
    }
    pool_clear();
}

TEST(any_number_of_threads)
{
    threads_on(tiny, 120);
    threads_on(plain, 32);
    threads_on(odd, 40);
    threads_on(longer, 600);
}

static void isa_on(const attn_model *model, size_t n, double unfused)
{
    const int32_t *const tokens = random_tokens(model, n, n + 2);
    const attn_shape shape = attn_shape2(n, vocab_of(model));
    attn_ctx ctx = alone();
    float *want, *got;
    int kind, n_exact = 0;
    ctx.isa = ATTN_ISA_PORTABLE;
    want = logits_of(&ctx, model, 0, tokens, n, n);
    for (kind = ATTN_ISA_AUTO; kind <= ATTN_ISA_AMX; kind++) {
        const char *name;
        ctx.isa = (attn_isa_kind)kind;
        name = attn_isa(&ctx);
        if (!name) {
            attn_session *session;
            FAILS(&ctx, ATTN_E_UNSUPPORTED, "", attn_session_new(&ctx, &session, model, NULL));
            CHECK(session == NULL);
            continue;
        }
        got = logits_of(&ctx, model, 0, tokens, n, n);
        if (strstr(name, "no fused"))
            close_to(attn_borrow(got, ATTN_F32, shape), attn_borrow(want, ATTN_F32, shape), unfused,
                     name);
        else
            n_exact += same_logits(got, want, n, model, name);
    }
    CHECK(n_exact > 0);
    pool_clear();
}

TEST(any_instruction_set)
{
    isa_on(tiny, 120, 1e-4);
    isa_on(plain, 32, 1e-4);
    isa_on(odd, 40, 1e-4);
    isa_on(longer, 600, 1e-4);
}

/* Eight sequences; each has a past, then joins two batches. In the first they ask for the logits
 * of their last row, of all rows, or of a choice. */
static void check_batch(const attn_model *model, size_t n_batch, int n_threads, int full_capacity)
{
    enum { ITEMS = 8 };
    static const size_t past[] = {0, 3, 17, 0, 28, 1, 16, 8}, first[] = {1, 5, 7, 23, 2, 16, 2, 20},
                        second[] = {1, 2, 3, 4, 2, 1, 5, 1};
    attn_ctx ctx = alone();
    attn_feed_item items[ITEMS];
    attn_session *sessions[ITEMS];
    int32_t *tokens[ITEMS];
    float *want[ITEMS];
    size_t rows[ITEMS][32], i, j;
    ctx.n_threads = n_threads;
    for (i = 0; i < ITEMS; i++) {
        const size_t total = past[i] + first[i] + second[i];
        tokens[i] = random_tokens(model, total, i + n_batch);
        want[i] = logits_of(&ctx, model, 0, tokens[i], total, total);
        sessions[i] = session_on(&ctx, model, full_capacity ? 0 : total, n_batch);
        if (!sessions[i])
            return;
        if (past[i] > 0)
            OK(&ctx, attn_feed(&ctx, sessions[i], tokens[i], past[i]));
        items[i] = item_of(sessions[i], tokens[i] + past[i], first[i], NULL);
        if (i % 3 > 0)
            items[i].logits = (float *)pool_new(first[i] * vocab_of(model) * sizeof(float));
        if (i % 3 == 2) {
            for (j = 0; j < first[i]; j++)
                if (random_below(2))
                    rows[i][items[i].n_rows++] = j;
            items[i].rows = rows[i];
        }
    }
    share_workspace(&ctx, sessions, ITEMS, n_batch);
    OK(&ctx, attn_feed_batch(&ctx, items, ITEMS));
    for (i = 0; i < ITEMS; i++) {
        const size_t end = past[i] + first[i];
        CHECK(attn_session_length(sessions[i]) == end);
        CHECK(memcmp(attn_session_tokens(sessions[i]), tokens[i], end * sizeof **tokens) == 0);
        if (i % 3 == 0)
            same_logits(attn_logits(sessions[i]), row_of(want[i], end - 1, model), 1, model,
                        "the last row in a batch");
        if (i % 3 == 1)
            same_logits(items[i].logits, row_of(want[i], past[i], model), first[i], model,
                        "all rows in a batch");
        for (j = 0; i % 3 == 2 && j < items[i].n_rows; j++)
            same_logits(row_of(items[i].logits, j, model),
                        row_of(want[i], past[i] + rows[i][j], model), 1, model,
                        "a chosen row in a batch");
        items[i] = item_of(sessions[i], tokens[i] + end, second[i], NULL);
    }
    OK(&ctx, attn_feed_batch(&ctx, items, ITEMS));
    for (i = 0; i < ITEMS; i++)
        same_logits(attn_logits(sessions[i]),
                    row_of(want[i], past[i] + first[i] + second[i] - 1, model), 1, model,
                    "the second batch");
    for (i = 0; i < ITEMS; i++)
        attn_session_free(sessions[i]);
    pool_clear();
}

TEST(batch_of_full_sessions)
{
    check_batch(tiny, 256, 1, 1);
    check_batch(tiny, 7, 2, 1);
    check_batch(plain, 32, 1, 1);
    check_batch(odd, 256, 2, 1);
    check_batch(odd, 1, 1, 1);
}

TEST(batch_of_mixed_sessions)
{
    check_batch(tiny, 256, 1, 0);
    check_batch(plain, 7, 1, 0);
    check_batch(odd, 256, 2, 0);
    check_batch(odd, 32, 3, 0);
}

/* The scores of a long sequence, in a batch that begins with a small session. */
TEST(batch_behind_a_small_session)
{
    static const size_t past[] = {0, 150, 100}, fed[] = {39, 60, 90}, sizes[] = {40, 256, 200};
    size_t n_threads, i;
    for (n_threads = 1; n_threads <= 2; n_threads++) {
        attn_ctx ctx = alone();
        attn_session *sessions[3];
        attn_feed_item items[3];
        float *want[3];
        ctx.n_threads = (int)n_threads;
        for (i = 0; i < 3; i++) {
            const size_t total = past[i] + fed[i];
            const int32_t *const tokens = random_tokens(tiny, total, i + 40);
            want[i] = row_of(logits_of(&ctx, tiny, 0, tokens, total, total), past[i], tiny);
            if ((sessions[i] = session_on(&ctx, tiny, sizes[i], 0)) == NULL)
                return;
            if (past[i] > 0)
                OK(&ctx, attn_feed(&ctx, sessions[i], tokens, past[i]));
            items[i] = item_of(sessions[i], tokens + past[i], fed[i],
                               (float *)pool_new(fed[i] * vocab_of(tiny) * sizeof(float)));
        }
        share_workspace(&ctx, sessions, 3, 0);
        OK(&ctx, attn_feed_batch(&ctx, items, 3));
        for (i = 0; i < 3; i++) {
            same_logits(items[i].logits, want[i], fed[i], tiny, "behind a small session");
            attn_session_free(sessions[i]);
        }
        pool_clear();
    }
}

/* Rows are chosen in a batch of one, with n_batch cutting through them. */
TEST(chosen_rows)
{
    enum { LENGTH = 30 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 3);
    float *const want = logits_of(&ctx, odd, 0, tokens, LENGTH, LENGTH);
    const size_t n_vocab = vocab_of(odd), n_batch[] = {1, 4, 32};
    size_t rows[LENGTH], set, i, b;
    for (b = 0; b < 3; b++)
        for (set = 0; set < 20; set++) {
            attn_session *session = session_on(&ctx, odd, 0, n_batch[b]);
            attn_feed_item item = item_of(session, tokens, LENGTH, NULL);
            item.rows = rows;
            item.logits = (float *)pool_new((LENGTH + 1) * n_vocab * sizeof(float));
            memset(item.logits, 0x7E, (LENGTH + 1) * n_vocab * sizeof(float));
            for (i = 0; i < LENGTH; i++)
                if (set > 0 && random_below(set) == 0) /* set 0 has none, set 1 all */
                    rows[item.n_rows++] = i;
            OK(&ctx, attn_feed_batch(&ctx, &item, 1));
            for (i = 0; i < item.n_rows; i++)
                same_logits(row_of(item.logits, i, odd), row_of(want, rows[i], odd), 1, odd, "row");
            for (i = item.n_rows * n_vocab; i < (LENGTH + 1) * n_vocab; i++)
                if (!CHECKF(((unsigned char *)&item.logits[i])[0] == 0x7E, "written past the rows"))
                    break;
            attn_session_free(session);
        }
    pool_clear();
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

static void watched(const attn_model *model, size_t n, size_t step, size_t n_batch, int n_threads)
{
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(model, n, n + 5);
    const float *const want = logits_of(&ctx, model, 0, tokens, n, n);
    attn_session *session;
    size_t n_calls = 0;
    ctx.n_threads = n_threads;
    if ((session = session_on(&ctx, model, 0, n_batch)) == NULL)
        return;
    OK(&ctx, attn_hook(&ctx, NULL, session, "*", do_nothing, NULL));
    same_logits(feed_all(&ctx, session, tokens, n, step), want, n, model, "hooks that read");
    attn_unhook_all(session);
    OK(&ctx, attn_truncate(&ctx, session, 0));
    OK(&ctx, attn_hook(&ctx, NULL, session, "*", rewrite, &n_calls));
    same_logits(feed_all(&ctx, session, tokens, n, step), want, n, model, "hooks that rewrite");
    CHECK(n_calls >= 5 + 19 * attn_model_config(model)->n_layer);
    attn_session_free(session);
    pool_clear();
}

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

/* ---- 8-bit and 4-bit weights ---- */

/* Mean over positions of KL(p || q) in nats, where p and q are the softmax of two sets of logits.
 */
static double divergence(const float *p, const float *q, size_t rows, const attn_model *model)
{
    const size_t n_vocab = vocab_of(model);
    double total = 0;
    size_t row, i;
    for (row = 0; row < rows; row++, p += n_vocab, q += n_vocab) {
        double sum_p = 0, sum_q = 0, difference = 0;
        for (i = 0; i < n_vocab; i++) {
            sum_p += exp((double)p[i]);
            sum_q += exp((double)q[i]);
        }
        for (i = 0; i < n_vocab; i++)
            difference += exp((double)p[i]) / sum_p * ((double)p[i] - (double)q[i]);
        total += difference - log(sum_p) + log(sum_q);
    }
    return total / (double)rows;
}

/* Everything that holds for the other types holds for these: any cut, any batch, any number of
 * threads, any instruction set, and hooks that only look. And they still say what the model says:
 * the bounds are twice what tests/compare/compare_quantized.py shows on longer texts. */
TEST(quantized)
{
    static const struct {
        const char *options;
        double bound;
    } types[] = {{"--dtype q8", 1.4e-3}, {"--dtype q4", 0.12}};
    attn_ctx ctx = alone();
    size_t i;
    for (i = 0; i < 2; i++) {
        attn_model *small = converted("tests/golden/odd", "model-odd-q.attn", types[i].options);
        attn_model *model = converted("examples/tiny-stories", "model-q.attn", types[i].options);
        if (small && model) {
            size_t n = 0;
            int32_t ids[200];
            attn_generate_desc d = greedily(150, ids, &n);
            attn_session *session = session_on(&ctx, tiny, 0, 0);
            float *want, *got;
            OK(&ctx, attn_generate(&ctx, session, "One day, a dog", &d, NULL, NULL));
            n = attn_session_length(session);
            memcpy(ids, attn_session_tokens(session), n * sizeof *ids);
            attn_session_free(session);
            want = logits_of(&ctx, tiny, 0, ids, n, n);
            got = logits_of(&ctx, model, 0, ids, n, n);
            CHECKF(divergence(want, got, n, tiny) < types[i].bound, "%s: KL divergence %g",
                   types[i].options, divergence(want, got, n, tiny));
            cuts_and_batch_sizes(model, 120);
            cuts_and_batch_sizes(small, 40);
            threads_on(model, 120);
            threads_on(small, 40);
            isa_on(model, 120, 0.3);
            isa_on(small, 40, 0.3);
            check_batch(model, 256, 1, 1);
            check_batch(small, 7, 2, 0);
            watched(model, 120, RANDOM_CUTS, 50, 2);
        }
        attn_model_close(small);
        attn_model_close(model);
    }
    pool_clear();
}

/* odd in a directory of its own, its weights rounded to numbers that f16 holds. */
static void round_to_halfs(void)
{
    size_t size = 0, at, header;
    unsigned char *file = test_read("tests/golden/odd/model.safetensors", &size);
    if (!CHECK(file) ||
        !CHECK(system("mkdir -p build/test-tmp/model/half && cp "
                      "tests/golden/odd/config.json build/test-tmp/model/half") == 0))
        return;
    header = 8 + (file[0] | (size_t)file[1] << 8);
    for (at = header; at + 4 <= size; at += 4) {
        float value;
        memcpy(&value, file + at, 4);
        value = (float)half_value(half_of(value));
        memcpy(file + at, &value, 4);
    }
    test_write("build/test-tmp/model/half/model.safetensors", file, size);
    free(file);
}

TEST(halfs)
{
    attn_ctx ctx = alone();
    attn_model *wide, *half, *single;
    const int32_t *tokens;
    round_to_halfs();
    wide = converted("examples/tiny-stories", "model-tiny32.attn", "--dtype f32");
    half = converted("build/test-tmp/model/half", "model-f16.attn", "--dtype f16 --no-tokenizer");
    single = converted("build/test-tmp/model/half", "model-f32.attn", "--dtype f32 --no-tokenizer");
    if (CHECK(wide && half && single)) {
        attn_tensor_info info;
        OK(&ctx, attn_model_tensor_info(&ctx, &info, half, 0));
        CHECK(info.dtype == ATTN_F16);
        tokens = random_tokens(tiny, 120, 8);
        same_logits(logits_of(&ctx, wide, 0, tokens, 120, 120),
                    logits_of(&ctx, tiny, 0, tokens, 120, 120), 120, tiny, "tiny as f32 and f16");
        tokens = random_tokens(odd, 40, 8);
        same_logits(logits_of(&ctx, half, 0, tokens, 40, 40),
                    logits_of(&ctx, single, 0, tokens, 40, 40), 40, odd, "odd as f16 and f32");
        ctx.isa = ATTN_ISA_PORTABLE;
        same_logits(logits_of(&ctx, half, 0, tokens, 40, 1),
                    logits_of(&ctx, single, 0, tokens, 40, 9), 40, odd, "portable, f16 and f32");
    }
    attn_model_close(wide);
    attn_model_close(half);
    attn_model_close(single);
    pool_clear();
}

/* One model under several threads of the caller's, each with a session of its own. */
TEST(callers_threads)
{
#ifdef _OPENMP
    enum { CALLERS = 4, LENGTH = 40 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(tiny, LENGTH, 9);
    const float *const want = logits_of(&ctx, tiny, 0, tokens, LENGTH, LENGTH);
    float *got[CALLERS];
    int i, failures = 0;
    for (i = 0; i < CALLERS; i++)
        got[i] = (float *)pool_new(LENGTH * vocab_of(tiny) * sizeof(float));
#pragma omp parallel for num_threads(CALLERS) reduction(+ : failures)
    for (i = 0; i < CALLERS; i++) {
        attn_ctx mine = {0};
        attn_session *session;
        attn_feed_item item;
        mine.n_threads = 1;
        failures += attn_session_new(&mine, &session, tiny, NULL) != ATTN_OK;
        item = item_of(session, tokens, LENGTH, got[i]);
        failures += attn_feed_batch(&mine, &item, 1) != ATTN_OK;
        attn_session_free(session);
    }
    CHECK(failures == 0);
    for (i = 0; i < CALLERS; i++)
        same_logits(got[i], want, LENGTH, tiny, "a thread of the caller's");
    pool_clear();
#else
    test_skip("built without OpenMP");
#endif
}

/* ---- causality ---- */

typedef struct poison {
    size_t position;
    float value;
} poison;

static int poisoned(const attn_activation *a, void *user)
{
    const poison *p = (const poison *)user;
    size_t i;
    if (p->position >= a->first && p->position < a->first + a->value.shape[0])
        for (i = 0; i < a->value.shape[1]; i++)
            *entry(a->value, p->position - a->first, i, 0) = i % 2 ? p->value : -p->value;
    return 0;
}

/* Whatever comes at a position, logits before it keep their bits. */
static void check_causality(const attn_model *model, size_t n, size_t step)
{
    static const char *const hooks[] = {NULL, "hook_embed", "hook_pos_embed",
                                        "blocks.1.attn.hook_k", "blocks.0.attn.hook_v"};
    const float values[] = {1e30f, INFINITY, NAN};
    attn_ctx ctx = alone();
    int32_t *const tokens = random_tokens(model, n, 11);
    const float *const want = logits_of(&ctx, model, 0, tokens, n, n);
    size_t at[2], which, hook, kind;
    at[0] = n - 1;
    at[1] = n / 2;
    for (which = 0; which < 2; which++)
        for (hook = 0; hook < 5; hook++)
            for (kind = 0; kind < 6; kind++) {
                attn_session *session = session_on(&ctx, model, 0, 0);
                const int32_t kept = tokens[at[which]];
                poison p;
                p.position = at[which];
                p.value = values[kind % 3];
                if (!session)
                    return;
                if (kind >= 3)
                    OK(&ctx, attn_hook(&ctx, NULL, session, "*", do_nothing, NULL));
                if (hooks[hook])
                    OK(&ctx, attn_hook(&ctx, NULL, session, hooks[hook], poisoned, &p));
                else
                    tokens[at[which]] = (kept + 1) % (int32_t)vocab_of(model);
                {
                    float *const got = feed_all(&ctx, session, tokens, n, step);
                    same_logits(got, want, at[which], model,
                                kind < 3 ? "logits before a changed position"
                                         : "logits before a changed position, watched");
                    CHECKF(memcmp(row_of(got, at[which], model), want + at[which] * vocab_of(model),
                                  vocab_of(model) * sizeof *got) != 0,
                           "%s changed nothing", hooks[hook] ? hooks[hook] : "another token");
                }
                tokens[at[which]] = kept;
                attn_session_free(session);
            }
    pool_clear();
}

TEST(causality)
{
    check_causality(plain, 24, 24);
    check_causality(odd, 37, 37);
    check_causality(odd, 37, 5);
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
    size_t i, k;
    for (i = 0; i < a->value.shape[0]; i++)
        for (k = 0; changes_row(c, a, i) && k < a->value.shape[2]; k++)
            *entry(a->value, i, c->head, k) = 0;
    return 0;
}

static int add_to_row(const attn_activation *a, void *user)
{
    const change *c = (const change *)user;
    size_t i, j, k;
    for (i = 0; i < a->value.shape[0]; i++)
        for (j = 0; changes_row(c, a, i) && j < a->value.shape[1]; j++)
            for (k = 0; k < a->value.shape[2]; k++)
                *entry(a->value, i, j, k) += c->value * (float)(1 + (j + k) % 3);
    return 0;
}

/* Writes rows that depend on nothing but the position. */
static int set_rows(const attn_activation *a, void *user)
{
    const change *c = (const change *)user;
    size_t i, j;
    for (i = 0; i < a->value.shape[0]; i++)
        for (j = 0; j < a->value.shape[1]; j++)
            *entry(a->value, i, j, 0) =
                c->value * (float)sin((double)(1 + (a->first + i) * 7 + j * 3));
    return 0;
}

/* Query `position` of head `head` looks at key (int)value alone. */
static int look_at_one(const attn_activation *a, void *user)
{
    const change *c = (const change *)user;
    const int is_scores = strstr(a->name, "scores") != NULL;
    size_t k;
    for (k = 0; k < a->value.shape[2]; k++)
        *entry(a->value, c->head, c->position - a->first, k) =
            is_scores ? (k == (size_t)c->value ? 3.0f : -INFINITY) : k == (size_t)c->value;
    return 0;
}

static int double_it(const attn_activation *a, void *user)
{
    size_t i;
    (void)user;
    for (i = 0; i < count_of(a->value); i++)
        *(float *)element(a->value, i) *= 2;
    return 0;
}

/* The bytes of an open model in memory that may be changed, at a multiple of 64 in the pool. */
static unsigned char *editable(const char *path, size_t *size)
{
    unsigned char *file = test_read(path, size), *copy;
    if (!CHECK(file))
        return NULL;
    copy = (unsigned char *)pool_new(*size + 64);
    copy += (64 - (uintptr_t)copy % 64) % 64;
    memcpy(copy, file, *size);
    free(file);
    return copy;
}

/* Without one head's z, what attention adds is the sum of the others'; and the logits are those of
 * a model whose W_O has zeros in that head's rows. */
TEST(ablation)
{
    enum { LENGTH = 20, HEAD = 2, D = 16, WIDTH = 64, HEADS = 4 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(plain, LENGTH, 13);
    const float *const untouched = logits_of(&ctx, plain, 0, tokens, LENGTH, LENGTH);
    const attn_model_desc unchecked = {.skip_checksums = 1};
    sight *const r = new_sight();
    change c = {EVERY, HEAD, 0};
    float *const got =
        hooked(plain, tokens, LENGTH, LENGTH, "blocks.1.attn.hook_z", zero_head, &c, "*", r);
    attn_tensor z, w_o = {0}, b_o = {0}, want = random_tensor(2, LENGTH, WIDTH);
    attn_model *edited = NULL;
    attn_tensor_info info;
    unsigned char *file;
    size_t size, t, j, k, index;
    CHECK(differ(got, untouched, LENGTH * vocab_of(plain)));

    OK(&ctx, attn_model_tensor(&ctx, &w_o, plain, "blocks.1.attn.W_O"));
    OK(&ctx, attn_model_tensor(&ctx, &b_o, plain, "blocks.1.attn.b_O"));
    z = latest(r, "blocks.1.attn.hook_z");
    for (t = 0; t < LENGTH; t++)
        for (j = 0; j < WIDTH; j++) {
            double sum = (double)*entry(b_o, j, 0, 0);
            for (k = 0; k < HEADS * D; k++)
                if (k / D != HEAD)
                    sum +=
                        (double)*entry(z, t, k / D, k % D) * (double)*entry(w_o, k / D, k % D, j);
            *entry(want, t, j, 0) = (float)sum;
        }
    close_to(latest(r, "blocks.1.hook_attn_out"), want, 1e-6, "attention without a head");

    if ((file = editable(test_tmp("model-plain.attn"), &size)) != NULL) {
        for (index = 0;; index++)
            if (!OK(&ctx, attn_model_tensor_info(&ctx, &info, plain, index)) ||
                strcmp(info.name, "blocks.1.attn.W_O") == 0)
                break;
        for (k = HEAD * D; k < (HEAD + 1) * D; k++) /* entry (k, j): see "panels" in the manual */
            for (j = 0; j < WIDTH; j++)
                memset(file + info.offset + 4 * ((j / 16 * WIDTH + k) * 16 + j % 16), 0, 4);
        if (OK(&ctx, attn_model_open_memory(&ctx, &edited, file, size, &unchecked)))
            same_logits(logits_of(&ctx, edited, 0, tokens, LENGTH, 3), got, LENGTH, plain,
                        "rows of W_O removed");
        attn_model_close(edited);
    }
    attn_ctx_free(&ctx);
    pool_clear();
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
    attn_session *session;
    same_logits(post, untouched, AT, odd, "rows before the change");
    CHECK(differ(row_of(post, AT, odd), untouched + AT * vocab_of(odd), vocab_of(odd)));
    CHECK(differ(row_of(post, LENGTH - 1, odd), untouched + (LENGTH - 1) * vocab_of(odd),
                 vocab_of(odd)));
    same_logits(pre, post, LENGTH, odd, "resid_post of a block and resid_pre of the next");

    /* The embeddings replaced, or their sum */
    session = session_on(&ctx, odd, 0, 0);
    OK(&ctx, attn_hook(&ctx, NULL, session, "hook_embed", set_rows, &value));
    OK(&ctx, attn_hook(&ctx, NULL, session, "hook_pos_embed", set_rows, &zero));
    pre = feed_all(&ctx, session, tokens, LENGTH, 4);
    attn_session_free(session);
    post = hooked(odd, tokens, LENGTH, LENGTH, "blocks.0.hook_resid_pre", set_rows, &value, NULL,
                  NULL);
    same_logits(pre, post, LENGTH, odd, "embeddings and resid_pre replaced");
    CHECK(differ(post, untouched, LENGTH * vocab_of(odd)));
    pool_clear();
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
    size_t i;
    for (i = 0; i < 2; i++) {
        float *const whole =
            hooked(odd, tokens, LENGTH, LENGTH, names[i], add_to_row, &c, NULL, NULL);
        attn_session *session = session_on(&ctx, odd, 0, 0);
        OK(&ctx, attn_hook(&ctx, NULL, session, names[i], add_to_row, &c));
        OK(&ctx, attn_feed(&ctx, session, tokens, 10));
        attn_unhook_all(session);
        same_logits(feed_all(&ctx, session, tokens + 10, LENGTH - 10, 3), row_of(whole, 10, odd),
                    LENGTH - 10, odd, names[i]);
        CHECK(differ(row_of(whole, LENGTH - 1, odd), untouched + (LENGTH - 1) * vocab_of(odd),
                     vocab_of(odd)));
        attn_session_free(session);
    }
    pool_clear();
}

TEST(writing_the_pattern)
{
    enum { LENGTH = 20, AT = 11, HEAD = 1, D = 16 };
    static const char *const names[] = {"blocks.2.attn.hook_pattern",
                                        "blocks.2.attn.hook_attn_scores"};
    const int32_t *const tokens = random_tokens(odd, LENGTH, 16);
    sight *const before = new_sight();
    size_t i, key, t, head;
    hooked(odd, tokens, LENGTH, LENGTH, "hook_embed", do_nothing, NULL, "*", before);
    for (i = 0; i < 2; i++)
        for (key = 3; key <= AT; key += AT - 3) {
            change c = {AT, HEAD, 0};
            sight *const r = new_sight();
            attn_tensor z, v, z_before;
            c.value = (float)key;
            hooked(odd, tokens, LENGTH, LENGTH, names[i], look_at_one, &c, "*", r);
            v = latest(r, "blocks.2.attn.hook_v");
            z = latest(r, "blocks.2.attn.hook_z");
            z_before = latest(before, "blocks.2.attn.hook_z");
            for (t = 0; t < LENGTH; t++)
                for (head = 0; head < 3; head++) {
                    const int changed = t == AT && head == HEAD;
                    CHECKF(memcmp(entry(z, t, head, 0),
                                  changed ? entry(v, key, head, 0) : entry(z_before, t, head, 0),
                                  D * sizeof(float)) == 0,
                           "%s, key %llu: z [%llu, %llu] is wrong", names[i], LLU(key), LLU(t),
                           LLU(head));
                }
            CHECK(*entry(latest(r, "blocks.2.attn.hook_pattern"), HEAD, AT, key) == 1);
        }
    pool_clear();
}

/* hook_scale is what normalizing divides by; halving and doubling are exact. */
TEST(writing_the_scale)
{
    static const char *const norms[] = {"blocks.0.ln1.", "blocks.1.ln2.", "ln_final."};
    enum { LENGTH = 10 };
    const int32_t *const tokens = random_tokens(plain, LENGTH, 17);
    sight *const before = new_sight();
    size_t i, j;
    hooked(plain, tokens, LENGTH, LENGTH, "hook_embed", do_nothing, NULL, "*", before);
    for (i = 0; i < 3; i++) {
        char name[64];
        sight *const r = new_sight();
        attn_tensor got, want;
        snprintf(name, sizeof name, "%shook_scale", norms[i]);
        hooked(plain, tokens, LENGTH, LENGTH, name, double_it, NULL, "*", r);
        snprintf(name, sizeof name, "%shook_normalized.pre", norms[i]);
        got = latest(r, name);
        want = latest(before, name);
        for (j = 0; j < count_of(got); j++)
            *(float *)element(got, j) *= 2;
        same_bits(got, want, name);
    }
    pool_clear();
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
    attn_session *session = session_on(&ctx, plain, 0, 0);
    size_t i, j;
    hooked(plain, &token, 1, 1, "hook_embed", do_nothing, NULL, "*", everything);
    for (i = 0; i < sizeof good / sizeof good[0]; i++) {
        sight *const r = new_sight();
        size_t n = 0;
        OK(&ctx, attn_hook(&ctx, NULL, session, good[i], note, r));
        OK(&ctx, attn_feed(&ctx, session, &token, 1));
        for (j = 0; j < everything->n; j++)
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
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++)
        FAILS(&ctx, ATTN_E_NAME, bad[i], attn_hook(&ctx, NULL, session, bad[i], do_nothing, NULL));
    attn_session_free(session);
    pool_clear();
}

/* Hooks run in the order in which they were made, and each sees what the one before wrote. */
TEST(several_hooks)
{
    enum { LENGTH = 5 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(plain, LENGTH, 18);
    sight *const first = new_sight(), *const second = new_sight();
    attn_session *session = session_on(&ctx, plain, 0, 0);
    const char *const name = "blocks.0.mlp.hook_post";
    size_t i;
    OK(&ctx, attn_hook(&ctx, NULL, session, name, note, first));
    OK(&ctx, attn_hook(&ctx, NULL, session, name, double_it, NULL));
    OK(&ctx, attn_hook(&ctx, NULL, session, "*.mlp.*", note, second));
    OK(&ctx, attn_feed(&ctx, session, tokens, LENGTH));
    for (i = 0; i < LENGTH * 256; i++)
        if (!CHECK(value_of(latest(second, name), i) == 2 * value_of(latest(first, name), i)))
            break;
    attn_unhook_all(session);
    OK(&ctx, attn_feed(&ctx, session, tokens, LENGTH));
    CHECK(first->n == 1 && second->n == 4);
    attn_session_free(session);
    pool_clear();
}

typedef struct stopper {
    const char *name;
    size_t first; /* stop when rows from here on come by */
} stopper;

static int stop_at(const attn_activation *a, void *user)
{
    const stopper *s = (const stopper *)user;
    return strcmp(a->name, s->name) == 0 && a->first >= s->first;
}

TEST(stopping)
{
    enum { LENGTH = 20, PAST = 4 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 19);
    float *const want = logits_of(&ctx, odd, 0, tokens, LENGTH, LENGTH);
    sight *const everything = new_sight();
    size_t i, n_threads;
    hooked(odd, tokens, 1, 1, "hook_embed", do_nothing, NULL, "*", everything);
    for (n_threads = 1; n_threads <= 2; n_threads++)
        for (i = 0; i < everything->n; i += 5 * n_threads - 4) {
            attn_session *session;
            stopper s;
            ctx.n_threads = (int)n_threads;
            if ((session = session_on(&ctx, odd, 0, 6)) == NULL) /* the feed takes three passes */
                return;
            s.name = everything->all[i].name;
            s.first = i % 3 == 0 ? 0 : PAST + 6 * (i % 3);
            OK(&ctx, attn_feed(&ctx, session, tokens, PAST));
            OK(&ctx, attn_hook(&ctx, NULL, session, "*", stop_at, &s));
            FAILS(&ctx, ATTN_STOPPED, s.name,
                  attn_feed(&ctx, session, tokens + PAST, LENGTH - PAST));
            CHECK(attn_session_length(session) == PAST);
            same_logits(attn_logits(session), row_of(want, PAST - 1, odd), 1, odd,
                        "the logits from before");
            attn_unhook_all(session);
            same_logits(feed_all(&ctx, session, tokens + PAST, LENGTH - PAST, LENGTH - PAST),
                        row_of(want, PAST, odd), LENGTH - PAST, odd, "after a stop");
            attn_session_free(session);
        }
    pool_clear();
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
    size_t i;
    s.name = "ln_final.hook_normalized.post";
    s.first = PAST + 1; /* in its second pass, when the first session has its logits */
    for (i = 0; i < 3; i++) {
        sessions[i] = session_on(&ctx, plain, 0, 7);
        OK(&ctx, attn_feed(&ctx, sessions[i], tokens, PAST));
        items[i] = item_of(sessions[i], tokens + PAST, i == 0 ? 1 : LENGTH - PAST, NULL);
    }
    share_workspace(&ctx, sessions, 3, 7);
    OK(&ctx, attn_hook(&ctx, NULL, sessions[2], "*", stop_at, &s));
    FAILS(&ctx, ATTN_STOPPED, s.name, attn_feed_batch(&ctx, items, 3));
    for (i = 0; i < 3; i++) {
        CHECK(attn_session_length(sessions[i]) == PAST);
        same_logits(attn_logits(sessions[i]), row_of(want, PAST - 1, plain), 1, plain,
                    "the logits from before");
    }
    attn_unhook_all(sessions[2]);
    OK(&ctx, attn_feed_batch(&ctx, items, 3));
    for (i = 0; i < 3; i++) {
        same_logits(attn_logits(sessions[i]), row_of(want, PAST + items[i].n_tokens - 1, plain), 1,
                    plain, "after a stop");
        attn_session_free(sessions[i]);
    }
    pool_clear();
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
    size_t i, j;
    for (i = 0; i < ITEMS; i++) {
        const int32_t *const tokens = random_tokens(odd, past[i] + fed[i], i);
        by_itself[i] = new_sight();
        together[i] = new_sight();
        sessions[i] = session_on(&ctx, odd, 0, 0);
        if (past[i] > 0)
            OK(&ctx, attn_feed(&ctx, sessions[i], tokens, past[i]));
        OK(&ctx, attn_hook(&ctx, NULL, sessions[i], i == 3 ? "*.hook_q" : "*", note, by_itself[i]));
        OK(&ctx, attn_feed(&ctx, sessions[i], tokens + past[i], fed[i]));
        OK(&ctx, attn_truncate(&ctx, sessions[i], past[i]));
        attn_unhook_all(sessions[i]);
        if (i != 2) /* this one goes unwatched */
            OK(&ctx,
               attn_hook(&ctx, NULL, sessions[i], i == 3 ? "*.hook_q" : "*", note, together[i]));
        items[i] = item_of(sessions[i], tokens + past[i], fed[i], NULL);
    }
    share_workspace(&ctx, sessions, ITEMS, 0);
    OK(&ctx, attn_feed_batch(&ctx, items, ITEMS));
    for (i = 0; i < ITEMS; i++) {
        CHECKF(together[i]->n == (i == 2 ? 0 : by_itself[i]->n), "session %llu: %llu activations",
               LLU(i), LLU(together[i]->n));
        for (j = 0; j < together[i]->n; j++) {
            const seen *a = &by_itself[i]->all[j], *b = &together[i]->all[j];
            CHECK(strcmp(a->name, b->name) == 0 && b->session == sessions[i]);
            CHECK(b->first == past[i]);
            same_bits(b->value, a->value, a->name);
        }
        attn_session_free(sessions[i]);
    }
    pool_clear();
}

TEST(hooks_while_generating)
{
    enum { PROMPT = 6, MADE = 12 };
    attn_ctx ctx = alone();
    const int32_t *const prompt = random_tokens(tiny, PROMPT, 21);
    attn_session *session = session_on(&ctx, tiny, 0, 0);
    sight *const r = new_sight();
    int32_t ids[MADE];
    size_t n, i;
    attn_generate_desc d = greedily(MADE, ids, &n);
    d.prompt_ids = prompt;
    d.n_prompt_ids = PROMPT;
    d.ignore_eos = 1;
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.2.attn.hook_pattern", note, r));
    OK(&ctx, attn_generate(&ctx, session, NULL, &d, NULL, NULL));
    if (CHECK(r->n == 1 + MADE && n == MADE))
        for (i = 0; i <= MADE; i++) {
            const seen *s = &r->all[i];
            CHECK(s->first == (i ? PROMPT + i - 1 : 0) && s->value.shape[1] == (i ? 1 : PROMPT));
            CHECK(s->value.shape[0] == 6 && s->value.shape[2] == PROMPT + i);
        }
    attn_session_free(session);
    pool_clear();
}

/* ---- sessions ---- */

TEST(capacity)
{
    enum { FULL = 40 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, FULL + 1, 22);
    float *const want = logits_of(&ctx, odd, 0, tokens, FULL, FULL);
    static const size_t sizes[] = {1, 2, 15, 16, 17, 33, FULL};
    attn_session *session = session_on(&ctx, odd, 0, 0);
    attn_session_desc desc;
    size_t i;
    CHECK(attn_session_capacity(session) == FULL && attn_session_model(session) == odd);
    attn_session_free(session);
    for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const size_t n = sizes[i];
        session = session_on(&ctx, odd, n, 0);
        CHECK(attn_session_capacity(session) == n && attn_session_length(session) == 0);
        CHECK(attn_logits(session) == NULL);
        FAILS(&ctx, ATTN_E_CONTEXT, "do not fit", attn_feed(&ctx, session, tokens, n + 1));
        CHECK(attn_session_length(session) == 0 && attn_logits(session) == NULL);
        same_logits(feed_all(&ctx, session, tokens, n, n), want, n, odd, "a smaller session");
        FAILS(&ctx, ATTN_E_CONTEXT, "do not fit", attn_feed(&ctx, session, tokens, 1));
        CHECK(attn_session_length(session) == n);
        CHECK(memcmp(attn_session_tokens(session), tokens, n * sizeof *tokens) == 0);
        same_logits(attn_logits(session), row_of(want, n - 1, odd), 1, odd, "after a refusal");
        attn_session_free(session);
    }
    memset(&desc, 0, sizeof desc);
    desc.n_ctx = FULL + 1;
    FAILS(&ctx, ATTN_E_ARGUMENT, "n_ctx is 40", attn_session_new(&ctx, &session, odd, &desc));
    CHECK(session == NULL);
    FAILS(&ctx, ATTN_E_ARGUMENT, "n_ctx is 40", attn_session_size(&ctx, &i, odd, &desc));
    desc.n_ctx = SIZE_MAX;
    FAILS(&ctx, ATTN_E_ARGUMENT, "n_ctx is 40", attn_session_new(&ctx, &session, odd, &desc));
    desc.n_ctx = 0;
    desc.n_batch = SIZE_MAX; /* more than it can ever need */
    if (OK(&ctx, attn_session_new(&ctx, &session, odd, &desc)))
        same_logits(feed_all(&ctx, session, tokens, FULL, FULL), want, FULL, odd,
                    "n_batch SIZE_MAX");
    attn_session_free(session);
    pool_clear();
}

TEST(truncating)
{
    enum { LENGTH = 38 };
    attn_ctx ctx = alone();
    const int32_t *const one = random_tokens(odd, LENGTH, 23),
                         *other = random_tokens(odd, LENGTH, 24);
    float *const want = logits_of(&ctx, odd, 0, one, LENGTH, LENGTH);
    attn_session *session = session_on(&ctx, odd, 0, 0);
    size_t length;
    for (length = 0; length < LENGTH; length += 5) {
        OK(&ctx, attn_truncate(&ctx, session, 0));
        if (length > 0)
            OK(&ctx, attn_feed(&ctx, session, one, length));
        OK(&ctx, attn_feed(&ctx, session, other, LENGTH - length));
        OK(&ctx, attn_truncate(&ctx, session, length));
        CHECK(attn_session_length(session) == length && attn_logits(session) == NULL);
        same_logits(feed_all(&ctx, session, one + length, LENGTH - length, 11),
                    row_of(want, length, odd), LENGTH - length, odd, "after truncating");
    }
    FAILS(&ctx, ATTN_E_ARGUMENT, "39", attn_truncate(&ctx, session, LENGTH + 1));
    FAILS(&ctx, ATTN_E_ARGUMENT, "attn_truncate", attn_truncate(&ctx, session, SIZE_MAX));
    CHECK(attn_session_length(session) == LENGTH && attn_logits(session));
    OK(&ctx, attn_truncate(&ctx, session, LENGTH));
    attn_session_free(session);
    pool_clear();
}

TEST(copies)
{
    static const size_t capacities[] = {18, 21, 32, 40};
    enum { SHARED = 17 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, 40, 25);
    int32_t *const branch = random_tokens(odd, 40, 26);
    float *want, *branched;
    size_t i, j;
    memcpy(branch, tokens, SHARED * sizeof *branch);
    want = logits_of(&ctx, odd, 0, tokens, 40, 40);
    branched = logits_of(&ctx, odd, 0, branch, 40, 40);
    for (i = 0; i < 4; i++)
        for (j = 0; j < 4; j++) {
            attn_session *from = session_on(&ctx, odd, capacities[i], 0);
            attn_session *to = session_on(&ctx, odd, capacities[j], 5);
            OK(&ctx, attn_feed(&ctx, to, branch + 3, 2)); /* what it held is forgotten */
            OK(&ctx, attn_feed(&ctx, from, tokens, SHARED));
            OK(&ctx, attn_session_copy(&ctx, to, from));
            CHECK(attn_session_length(to) == SHARED && attn_session_capacity(to) == capacities[j]);
            CHECK(memcmp(attn_session_tokens(to), tokens, SHARED * sizeof *tokens) == 0);
            same_logits(attn_logits(to), row_of(want, SHARED - 1, odd), 1, odd, "a copy's logits");
            same_logits(feed_all(&ctx, to, branch + SHARED, capacities[j] - SHARED, 2),
                        row_of(branched, SHARED, odd), capacities[j] - SHARED, odd, "a copy");
            same_logits(feed_all(&ctx, from, tokens + SHARED, capacities[i] - SHARED, 40),
                        row_of(want, SHARED, odd), capacities[i] - SHARED, odd, "the original");
            attn_session_free(from);
            attn_session_free(to);
        }
    {
        attn_session *from = session_on(&ctx, odd, 0, 0), *small = session_on(&ctx, odd, 16, 0);
        attn_session *other = session_on(&ctx, plain, 0, 0);
        OK(&ctx, attn_session_copy(&ctx, small, from)); /* nothing at all */
        CHECK(attn_session_length(small) == 0 && attn_logits(small) == NULL);
        OK(&ctx, attn_feed(&ctx, from, tokens, SHARED));
        OK(&ctx, attn_feed(&ctx, small, branch, 3));
        FAILS(&ctx, ATTN_E_CONTEXT, "17", attn_session_copy(&ctx, small, from));
        FAILS(&ctx, ATTN_E_ARGUMENT, "models differ", attn_session_copy(&ctx, other, from));
        same_logits(feed_all(&ctx, small, branch + 3, 13, 4), row_of(branched, 3, odd), 13, odd,
                    "after a refused copy");
        OK(&ctx, attn_session_copy(&ctx, from, from));
        CHECK(attn_session_length(from) == SHARED && attn_logits(from));
        OK(&ctx, attn_truncate(&ctx, from, 9));
        OK(&ctx, attn_session_copy(&ctx, small, from)); /* no logits to copy */
        CHECK(attn_session_length(small) == 9 && attn_logits(small) == NULL);
        same_logits(feed_all(&ctx, small, tokens + 9, 7, 7), row_of(want, 9, odd), 7, odd,
                    "a copy of a truncated session");
        attn_session_free(from);
        attn_session_free(small);
        attn_session_free(other);
    }
    pool_clear();
}

/* attn_logits() after feeds that ask for logits of their own. */
TEST(logits_rules)
{
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(plain, 8, 27);
    float *const want = logits_of(&ctx, plain, 0, tokens, 8, 8);
    float *const room = (float *)pool_new(8 * vocab_of(plain) * sizeof *room);
    const size_t inner[] = {1, 5}, last[] = {2, 7};
    attn_session *session = session_on(&ctx, plain, 0, 0);
    attn_feed_item item = item_of(session, tokens, 8, NULL);
    CHECK(attn_logits(session) == NULL);
    item.rows = inner; /* without a place for logits the choice says nothing */
    item.n_rows = 2;
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    same_logits(attn_logits(session), row_of(want, 7, plain), 1, plain, "no place for logits");
    item.logits = room;
    OK(&ctx, attn_truncate(&ctx, session, 0));
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    CHECK(attn_logits(session) == NULL ||
          same_logits(attn_logits(session), row_of(want, 7, plain), 1, plain, "other rows chosen"));
    item.rows = last;
    OK(&ctx, attn_truncate(&ctx, session, 0));
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    same_logits(attn_logits(session), row_of(want, 7, plain), 1, plain, "the last row chosen");
    attn_session_free(session);
    pool_clear();
}

TEST(bad_tokens_and_rows)
{
    attn_session *pair[2];
    attn_ctx ctx = alone();
    static const int32_t wrong[] = {-1, 97, 98, INT32_MAX, INT32_MIN};
    static const size_t rows[][3] = {{0, 2, 1}, {1, 1, 2}, {0, 1, 3}, {SIZE_MAX, 0, 1}};
    static const int32_t too_large[] = {96, 97};
    int32_t tokens[3] = {1, 2, 3};
    float *const room = (float *)pool_new(3 * 97 * sizeof *room);
    attn_session *a = session_on(&ctx, plain, 0, 0), *b = session_on(&ctx, plain, 0, 0),
                 *other = session_on(&ctx, odd, 0, 0);
    attn_feed_item items[3];
    const float *want = logits_of(&ctx, plain, 0, tokens, 3, 3);
    attn_token_stats stats[3];
    char text[32];
    size_t i;
    for (i = 0; i < 5; i++) {
        tokens[1] = wrong[i];
        snprintf(text, sizeof text, "token 1 is %ld;", (long)wrong[i]);
        FAILS(&ctx, ATTN_E_TOKEN, text, attn_feed(&ctx, a, tokens, 3));
        FAILS(&ctx, ATTN_E_TOKEN, "below 97", attn_score(&ctx, stats, NULL, 0, a, tokens, 3));
    }
    tokens[1] = 2;
    FAILS(&ctx, ATTN_E_ARGUMENT, "no tokens", attn_feed(&ctx, a, tokens, 0));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no tokens", attn_feed(&ctx, a, NULL, 3));
    FAILS(&ctx, ATTN_E_ARGUMENT, "session", attn_feed(&ctx, NULL, tokens, 3));
    FAILS(&ctx, ATTN_E_CONTEXT, "do not fit", attn_feed(&ctx, a, tokens, SIZE_MAX));
    FAILS(&ctx, ATTN_E_ARGUMENT, "session", attn_feed_batch(&ctx, NULL, 1));
    FAILS(&ctx, ATTN_E_ARGUMENT, "session", attn_feed_batch(&ctx, items, 0));
    for (i = 0; i < 4; i++) {
        items[0] = item_of(a, tokens, 3, room);
        items[0].rows = rows[i];
        items[0].n_rows = 3;
        FAILS(&ctx, ATTN_E_ARGUMENT, "ascend", attn_feed_batch(&ctx, items, 1));
    }
    items[0] = item_of(a, tokens, 3, NULL);
    items[1] = item_of(b, tokens, 3, NULL);
    FAILS(&ctx, ATTN_E_ARGUMENT, "item 1's session does not share item 0's workspace",
          attn_feed_batch(&ctx, items, 2));
    pair[0] = a;
    pair[1] = b;
    share_workspace(&ctx, pair, 2, 0);
    items[0] = item_of(a, tokens, 3, NULL);
    items[1] = item_of(b, tokens, 3, NULL);
    items[2] = items[0];
    FAILS(&ctx, ATTN_E_ARGUMENT, "twice", attn_feed_batch(&ctx, items, 3));
    items[2] = item_of(other, tokens, 3, NULL);
    FAILS(&ctx, ATTN_E_ARGUMENT, "another model", attn_feed_batch(&ctx, items, 3));
    items[2] = item_of(NULL, tokens, 3, NULL);
    FAILS(&ctx, ATTN_E_ARGUMENT, "item 2: attn_feed: there is no session",
          attn_feed_batch(&ctx, items, 3));
    items[1] = item_of(b, too_large, 2, NULL);
    FAILS(&ctx, ATTN_E_TOKEN, "item 1: attn_feed: token 1 is 97", attn_feed_batch(&ctx, items, 2));
    items[1] = item_of(b, tokens, SIZE_MAX, NULL);
    FAILS(&ctx, ATTN_E_CONTEXT, "item 1: the session holds 0", attn_feed_batch(&ctx, items, 2));
    items[1] = item_of(b, tokens, 3, NULL);
    CHECK(attn_session_length(a) == 0 && attn_session_length(b) == 0);
    OK(&ctx, attn_feed_batch(&ctx, items, 2)); /* and now they work */
    same_logits(attn_logits(a), want + 2 * 97, 1, plain, "after all refusals");
    same_logits(attn_logits(b), want + 2 * 97, 1, plain, "after all refusals");
    attn_session_free(a);
    attn_session_free(b);
    attn_session_free(other);
    attn_session_free(NULL);
    attn_model_close(NULL);
    pool_clear();
}

/* Scores are the log-softmax of the logits, whatever came before and however the rows are cut. */
TEST(scores)
{
    enum { LENGTH = 90, PAST = 7 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(tiny, LENGTH, 28);
    float *const logits = logits_of(&ctx, tiny, 0, tokens, LENGTH, LENGTH);
    attn_token_stats first[LENGTH], stats[LENGTH];
    const size_t n_vocab = vocab_of(tiny), n_batch[] = {1, 7, 256};
    double sum = 0, mean = 0;
    size_t i, j, b;
    for (b = 0; b < 3; b++) {
        attn_session *session = session_on(&ctx, tiny, 0, n_batch[b]);
        OK(&ctx, attn_feed(&ctx, session, tokens, PAST));
        memset(stats, 0xFF, sizeof stats);
        OK(&ctx, attn_score(&ctx, stats, NULL, 0, session, tokens + PAST, LENGTH - PAST));
        mean = attn_mean_nll(stats, LENGTH - PAST - 1);
        CHECK(attn_session_length(session) == LENGTH);
        same_logits(attn_logits(session), row_of(logits, LENGTH - 1, tiny), 1, tiny, "scored");
        if (b == 0)
            memcpy(first, stats, sizeof stats);
        CHECK(memcmp(first, stats, (LENGTH - PAST - 1) * sizeof *stats) == 0);
        CHECK(isnan(stats[LENGTH - PAST - 1].nll)); /* not written */
        attn_session_free(session);
    }
    for (i = PAST; i + 1 < LENGTH; i++) {
        const float *row = row_of(logits, i, tiny);
        double total = 0, want;
        for (j = 0; j < n_vocab; j++)
            total += exp((double)row[j] - (double)row[tokens[i + 1]]);
        want = log(total);
        sum += want;
        CHECKF(fabs((double)stats[i - PAST].nll - want) <= 4e-7 * want + 4e-7,
               "nll %llu is %.9g, not %.9g", LLU(i), (double)stats[i - PAST].nll, want);
    }
    CHECK(fabs(mean - sum / (LENGTH - PAST - 1)) < 1e-6);
    pool_clear();
}

/* A score that is stopped half way leaves the session where it was. */
TEST(stopped_score)
{
    enum { LENGTH = 100 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(tiny, LENGTH, 29);
    float *const want = logits_of(&ctx, tiny, 0, tokens, LENGTH, LENGTH);
    attn_token_stats stats[LENGTH];
    attn_session *session = session_on(&ctx, tiny, 0, 0);
    stopper s;
    s.name = "blocks.3.hook_mlp_out";
    s.first = 60;
    OK(&ctx, attn_feed(&ctx, session, tokens, 5));
    OK(&ctx, attn_hook(&ctx, NULL, session, s.name, stop_at, &s));
    FAILS(&ctx, ATTN_STOPPED, s.name,
          attn_score(&ctx, stats, NULL, 0, session, tokens + 5, LENGTH - 5));
    CHECK(attn_session_length(session) == 5);
    same_logits(attn_logits(session), row_of(want, 4, tiny), 1, tiny, "the logits from before");
    attn_unhook_all(session);
    same_logits(feed_all(&ctx, session, tokens + 5, LENGTH - 5, 50), row_of(want, 5, tiny),
                LENGTH - 5, tiny, "after a stopped score");
    attn_session_free(session);
    pool_clear();
}

/* ---- memory ---- */

/* fixture.h's meter, and bytes. */
typedef struct scales {
    meter m;
    size_t bytes;
} scales;

static void *scales_alloc(size_t size, void *user)
{
    scales *s = (scales *)user;
    s->bytes += size;
    return meter_alloc(size, &s->m);
}

static void scales_free(void *block, void *user)
{
    meter_free(block, &((scales *)user)->m);
}

static attn_ctx weighed(scales *s)
{
    attn_ctx ctx = metered(&s->m);
    s->bytes = 0;
    ctx.alloc = scales_alloc;
    ctx.free = scales_free;
    ctx.user = s;
    ctx.n_threads = 1;
    return ctx;
}

TEST(session_sizes)
{
    static const size_t n_ctx[] = {0, 1, 17, 30}, n_batch[] = {0, 1, 9};
    attn_model *const models[] = {plain, odd, tiny};
    size_t m, i, j, threads;
    for (m = 0; m < 3; m++)
        for (i = 0; i < 4; i++)
            for (j = 0; j < 3; j++)
                for (threads = 1; threads < 4; threads++) {
                    scales s;
                    attn_ctx ctx = weighed(&s);
                    attn_session *session;
                    attn_session_desc desc = {.cache_dtype = ATTN_F32};
                    size_t told = 0;
                    memset(&desc, 0, sizeof desc);
                    ctx.n_threads = (int)threads;
                    desc.n_ctx = n_ctx[i];
                    desc.n_batch = n_batch[j];
                    OK(&ctx, attn_session_size(&ctx, &told, models[m], &desc));
                    CHECK(s.m.asked == 0);
                    OK(&ctx, attn_session_new(&ctx, &session, models[m], &desc));
                    CHECKF(told >= s.bytes && told - s.bytes <= s.bytes / 100,
                           "a session takes %llu bytes, not %llu", LLU(s.bytes), LLU(told));
                    attn_session_free(session);
                    CHECK(s.m.live == 0 && s.m.wrong == 0);
                }
}

/* After it is made, a session allocates nothing; scoring holds a few rows of logits. */
TEST(quiet_sessions)
{
    attn_session *pair[2];
    enum { LENGTH = 200 };
    scales s;
    attn_ctx ctx = weighed(&s);
    const int32_t *const tokens = random_tokens(tiny, LENGTH, 30);
    attn_session *session = session_on(&ctx, tiny, 0, 64), *other = session_on(&ctx, tiny, 0, 0);
    attn_sampler *sampler = NULL;
    attn_sampler_desc desc;
    attn_feed_item items[2];
    float *const logits = (float *)pool_new(LENGTH * vocab_of(tiny) * sizeof *logits);
    attn_token_stats stats[LENGTH];
    int32_t token = 1;
    size_t i;
    long asked;
    memset(&desc, 0, sizeof desc);
    desc.temperature = 0.9f;
    desc.top_k = 50;
    desc.top_p = 0.9f;
    desc.min_p = 0.01f;
    desc.repeat_penalty = 1.1f;
    OK(&ctx, attn_sampler_new(&ctx, &sampler, vocab_of(tiny), &desc));
    pair[0] = session;
    pair[1] = other;
    share_workspace(&ctx, pair, 2, 0);
    asked = s.m.asked;
    OK(&ctx, attn_feed(&ctx, session, tokens, 150));
    for (i = 0; i < 20; i++) {
        OK(&ctx, attn_sample(&ctx, &token, sampler, attn_logits(session),
                             attn_session_tokens(session), attn_session_length(session)));
        OK(&ctx, attn_feed(&ctx, session, &token, 1));
    }
    OK(&ctx, attn_session_copy(&ctx, other, session));
    OK(&ctx, attn_truncate(&ctx, session, 10));
    items[0] = item_of(session, tokens, 20, NULL);
    items[1] = item_of(other, tokens, 30, logits);
    OK(&ctx, attn_feed_batch(&ctx, items, 2));
    CHECKF(s.m.asked == asked, "%ld allocations", s.m.asked - asked);
    s.bytes = 0;
    OK(&ctx, attn_truncate(&ctx, session, 0));
    OK(&ctx, attn_score(&ctx, stats, NULL, 0, session, tokens, LENGTH));
    CHECKF(s.bytes < LENGTH * vocab_of(tiny) * sizeof(float) / 4, "%llu bytes", LLU(s.bytes));
    attn_sampler_free(sampler);
    attn_session_free(session);
    attn_session_free(other);
    CHECK(s.m.live == 0 && s.m.wrong == 0);
    pool_clear();
}

/* Calls `task` with the first allocation failing, then the second, ... until it succeeds. Each
 * failure must be ATTN_E_MEMORY and give everything back. */
typedef attn_status (*task_fn)(attn_ctx *ctx, void *user);
static void exhaust(const char *what, attn_ctx *ctx, meter *m, task_fn task, void *user)
{
    const long live = m->live;
    attn_status status = ATTN_E_MEMORY;
    long n;
    for (n = 0; n < 200 && status != ATTN_OK; n++) {
        m->fail_at = m->asked + n;
        ctx->message[0] = 0;
        status = task(ctx, user);
        m->fail_at = -1;
        CHECKF(status == ATTN_OK || (status == ATTN_E_MEMORY && strstr(ctx->message, "memory")),
               "%s, allocation %ld: %s (%s)", what, n, attn_status_name(status), ctx->message);
        CHECKF(m->live == live && m->wrong == 0, "%s, allocation %ld: %ld blocks leaked", what, n,
               m->live - live);
    }
    CHECKF(status == ATTN_OK && n > 1, "%s: %s after %ld rounds", what, attn_status_name(status),
           n);
}

static attn_status open_it(attn_ctx *ctx, void *user)
{
    attn_model *model = tiny;
    const attn_status status = attn_model_open(ctx, &model, (const char *)user, NULL);
    CHECK((model != NULL) == (status == ATTN_OK));
    attn_model_close(model);
    return status;
}

typedef struct bytes {
    const unsigned char *data;
    size_t size;
} bytes;

static attn_status open_unaligned(attn_ctx *ctx, void *user)
{
    const bytes *b = (const bytes *)user;
    attn_model *model = tiny;
    const attn_status status = attn_model_open_memory(ctx, &model, b->data, b->size, NULL);
    CHECK((model != NULL) == (status == ATTN_OK));
    attn_model_close(model);
    return status;
}

static attn_status make_session(attn_ctx *ctx, void *user)
{
    attn_session *session = (attn_session *)user;
    const attn_status status = attn_session_new(ctx, &session, tiny, NULL);
    CHECK((session != NULL) == (status == ATTN_OK));
    attn_session_free(session);
    return status;
}

static attn_status hook_it(attn_ctx *ctx, void *user)
{
    attn_session *session = (attn_session *)user;
    const attn_status status = attn_hook(ctx, NULL, session, "*", do_nothing, NULL);
    if (status == ATTN_OK) /* a failed one must leave nothing to take back */
        attn_unhook_all(session);
    return status;
}

static const int32_t short_text[] = {506, 511, 258, 433, 11, 400, 286};

static attn_status score_it(attn_ctx *ctx, void *user)
{
    attn_session *session = (attn_session *)user;
    const size_t before = attn_session_length(session);
    attn_token_stats stats[7];
    const attn_status status = attn_score(ctx, stats, NULL, 0, session, short_text, 7);
    CHECK(attn_session_length(session) == (status == ATTN_OK ? before + 7 : before));
    return status;
}

static attn_status generate_it(attn_ctx *ctx, void *user)
{
    attn_session *session = (attn_session *)user;
    const size_t before = attn_session_length(session);
    attn_generate_desc d = greedily(5, NULL, NULL);
    const attn_status status = attn_generate(
        ctx, session, "there was a little girl. She antidisestablishmentarianistically", &d, NULL,
        NULL);
    CHECK(status == ATTN_OK || attn_session_length(session) == before);
    return status;
}

static attn_status get_tensor(attn_ctx *ctx, void *user)
{
    attn_tensor w = {0};
    const attn_status status = attn_model_tensor(ctx, &w, (attn_model *)user, "embed.W_E");
    attn_tensor_free(ctx, &w);
    return status;
}

TEST(failing_allocations)
{
    meter m;
    attn_ctx ctx = metered(&m), usual = alone();
    attn_session *session = NULL;
    float *const want = logits_of(&usual, tiny, 0, short_text, 7, 7);
    bytes b;
    unsigned char *file = editable(TEST_BUILD "/tiny-stories.attn", &b.size);
    ctx.n_threads = 1;
    exhaust("attn_model_open", &ctx, &m, open_it,
            (void *)(uintptr_t)(TEST_BUILD "/tiny-stories.attn"));
    if (file) {
        unsigned char *moved = (unsigned char *)pool_new(b.size + 65);
        moved += 1 + (64 - (uintptr_t)moved % 64) % 64;
        memcpy(moved, file, b.size);
        b.data = moved;
        exhaust("attn_model_open_memory", &ctx, &m, open_unaligned, &b);
    }
    exhaust("attn_session_new", &ctx, &m, make_session, NULL);
    exhaust("attn_model_tensor", &ctx, &m, get_tensor, tiny);
    OK(&ctx, attn_session_new(&ctx, &session, tiny, NULL));
    if (session) {
        exhaust("attn_hook", &ctx, &m, hook_it, session);
        exhaust("attn_score", &ctx, &m, score_it, session);
        OK(&ctx, attn_truncate(&ctx, session, 0));
        exhaust("attn_generate", &ctx, &m, generate_it, session);
        OK(&ctx, attn_truncate(&ctx, session, 0));
        same_logits(feed_all(&ctx, session, short_text, 7, 7), want, 7, tiny, "after all failures");
    }
    attn_session_free(session);
    attn_ctx_free(&ctx);
    CHECK(m.live == 0 && m.wrong == 0);
    pool_clear();
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
    size_t i, row, round;
    memcpy(v, entry(w_e, (size_t)token, 0, 0), width * sizeof *v);
    for (round = 0; round < 5000; round++) {
        double best = -(double)INFINITY;
        size_t best_row = 0;
        for (row = 0; row < w_e.shape[0]; row++) {
            double sum = row == (size_t)token ? -1e-3 : 0; /* not by a hair */
            for (i = 0; i < width; i++)
                sum += (double)v[i] * (double)*entry(w_e, row, i, 0);
            if (sum > best) {
                best = sum;
                best_row = row;
            }
        }
        if (best_row == (size_t)token)
            return x;
        for (i = 0; i < width; i++)
            v[i] += *entry(w_e, (size_t)token, i, 0) - *entry(w_e, best_row, i, 0);
    }
    test_fail(__FILE__, __LINE__, "no direction leads to token %ld", (long)token);
    return x;
}

static int32_t id_of_byte(unsigned char byte)
{
    int32_t id;
    for (id = 0; id < (int32_t)vocab_of(tiny); id++) {
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
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, tiny, 0, 0);
    const size_t n = strlen(said);
    attn_tensor w_e = {0}, directions[32];
    listener l = {"", 0, 0, 0, 0};
    size_t i, n_ids;
    int32_t ids[32];
    attn_generate_desc d = greedily(n, ids, &n_ids);
    script s;
    const int32_t split = id_of_byte(0xC3); /* the prompt ends within a character */
    OK(&ctx, attn_model_tensor(&ctx, &w_e, tiny, "embed.W_E"));
    for (i = 0; i < n; i++)
        directions[i] = direction_of(w_e, id_of_byte((unsigned char)said[i]));
    s.directions = directions;
    s.next = 0;
    s.n = n;
    d.prompt_ids = &split;
    d.n_prompt_ids = 1;
    OK(&ctx, attn_hook(&ctx, NULL, session, "ln_final.hook_normalized.post", recite, &s));
    OK(&ctx, attn_generate(&ctx, session, NULL, &d, listen, &l));
    for (i = 0; i < n; i++)
        CHECKF(n_ids == n && ids[i] == id_of_byte((unsigned char)said[i]), "said another byte");
    CHECKF(strcmp(l.text, heard) == 0, "heard \"%s\", not \"%s\"", l.text, heard);
    CHECKF(l.pieces == pieces, "in %llu pieces, not %llu", LLU(l.pieces), LLU(pieces));
    attn_session_free(session);
    attn_ctx_free(&ctx);
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
    size_t n, n_all, most;
    attn_session *session = session_on(&ctx, tiny, 0, 0);
    attn_generate_desc d = greedily(30, all, &n_all);
    OK(&ctx, attn_generate(&ctx, session, "Once upon a time", &d, NULL, NULL));
    CHECK(n_all == 30);
    for (most = 1; most < 12; most += 5) {
        listener l = {"", 0, 0, 0, 0};
        l.most = most;
        d = greedily(30, ids, &n);
        OK(&ctx, attn_truncate(&ctx, session, 0));
        FAILS(&ctx, ATTN_STOPPED, "callback",
              attn_generate(&ctx, session, "Once upon a time", &d, listen, &l));
        CHECK(l.pieces == most && n == most && memcmp(ids, all, n * sizeof *ids) == 0);
        CHECK(attn_session_length(session) == 4 + most);
        d = greedily(30 - most, ids, &n); /* and on from there */
        OK(&ctx, attn_generate(&ctx, session, "", &d, NULL, NULL));
        CHECK(n == 30 - most && memcmp(ids, all + most, n * sizeof *ids) == 0);
    }
    attn_session_free(session);
}

TEST(continuing)
{
    enum { TOTAL = 60 };
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, tiny, 0, 0);
    int32_t all[TOTAL], ids[TOTAL];
    size_t n, at, i;
    attn_generate_desc d = greedily(TOTAL, all, &n);
    OK(&ctx, attn_generate(&ctx, session, "One day, a", &d, NULL, NULL));
    CHECK(n == TOTAL);
    OK(&ctx, attn_truncate(&ctx, session, 0));
    for (at = 0, i = 1; at < TOTAL; at += n, i += 3) {
        d = greedily(i < TOTAL - at ? i : TOTAL - at, ids + at, &n);
        OK(&ctx, attn_generate(&ctx, session, at ? NULL : "One day, a", &d, NULL, NULL));
        if (!CHECK(n == d.max_tokens))
            break;
    }
    CHECK(memcmp(ids, all, sizeof all) == 0);
    d = greedily(0, NULL, &n); /* 0 means 100 */
    OK(&ctx, attn_truncate(&ctx, session, 0));
    OK(&ctx, attn_generate(&ctx, session, "One day, a", &d, NULL, NULL));
    CHECK(n == 100);
    OK(&ctx, attn_truncate(&ctx, session, 0));
    OK(&ctx, attn_generate(&ctx, session, "One day, a", NULL, NULL, NULL));
    CHECK(attn_session_length(session) == 104);
    attn_session_free(session);
}

/* The third story ends in the middle and another one begins. */
TEST(end_of_text)
{
    attn_ctx ctx = alone();
    const attn_config *config = attn_model_config(tiny);
    size_t size, n, end;
    char *json = (char *)test_read("examples/tiny-stories/reference.json", &size);
    attn_session *session = session_on(&ctx, tiny, 0, 0);
    story s;
    int32_t ids[200];
    listener l = {"", 0, 0, 0, 0};
    attn_generate_desc d = greedily(200, ids, &n);
    CHECK(config->eos == 2047 && config->bos == 2047);
    if (CHECK(json && read_story(&s, json, 2))) {
        for (end = 0; end < s.n_ids && s.ids[end] != config->eos; end++)
            ;
        CHECK(end > 50 && end < 190);
        OK(&ctx, attn_generate(&ctx, session, s.prompt, &d, listen, &l));
        CHECK(n == end && memcmp(ids, s.ids, n * sizeof *ids) == 0);
        CHECK(!strstr(l.text, "<|endoftext|>") && strncmp(l.text, s.text, l.size) == 0);
        CHECK(attn_session_length(session) == s.n_prompt_ids + end);
    }
    attn_session_free(session);
    free(json);
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
    telling t;
    memset(&t, 0, sizeof t);
    t.stop_after = stop_after;
    d.prompt_ids = prompt;
    d.n_prompt_ids = n_prompt;
    d.ids = t.ids;
    d.n_ids = &t.n;
    d.n_passes = &t.n_passes;
    t.status = attn_generate(&ctx, session, NULL, &d, hear, &t);
    t.n_tokens = attn_session_length(session);
    memcpy(t.tokens, attn_session_tokens(session), t.n_tokens * sizeof *t.tokens);
    t.logits = (float *)pool_new(vocab_of(model) * sizeof(float));
    if (CHECK(attn_logits(session)))
        memcpy(t.logits, attn_logits(session), vocab_of(model) * sizeof(float));
    attn_session_free(session);
    return t;
}

static void check_drafting(const attn_model *model, const int32_t *prompt, size_t n_prompt,
                           attn_generate_desc d, size_t capacity, size_t stop_after)
{
    static const int drafts[] = {0, 1, 2, 7};
    telling want, got;
    size_t i;
    d.n_draft = -1;
    want = tell(model, prompt, n_prompt, d, capacity, 0, stop_after);
    CHECKF(want.n_passes == want.n_tokens - n_prompt, "%d passes without drafts",
           (int)want.n_passes);
    for (i = 0; i < 4; i++) {
        d.n_draft = drafts[i];
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
    size_t i;
    for (i = 0; i < 40; i++) {
        const attn_model *model = i % 4 < 2 ? tiny : i % 4 == 2 ? plain : odd;
        const size_t n_ctx = attn_model_config(model)->n_ctx;
        const size_t n_prompt = 1 + random_below(n_ctx / 2), period = 1 + random_below(9);
        int32_t *const prompt = random_tokens(model, n_prompt, i);
        attn_generate_desc d;
        size_t j;
        memset(&d, 0, sizeof d);
        d.ignore_eos = (int)(i % 3 == 0);
        for (j = period; i % 2 && j < n_prompt; j++) /* half of them go round in circles */
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
    attn_generate_desc d;
    telling t;
    memset(&d, 0, sizeof d);
    d.max_tokens = 300;
    d.ignore_eos = 1;
    t = tell(longer, prompt, 5, d, 0, 0, 0);
    CHECKF(t.n == 300 && t.n_passes < 300 / 4, "%d tokens in %d passes", (int)t.n, (int)t.n_passes);
    pool_clear();
}

TEST(full_context)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, tiny, 20, 0);
    int32_t ids[100], more[100];
    size_t n;
    attn_generate_desc d = greedily(100, ids, &n);
    OK(&ctx, attn_generate(&ctx, session, "Once upon a time", &d, NULL, NULL));
    CHECKF(n == 17, "%llu tokens", LLU(n)); /* what follows the last position is still known */
    CHECK(attn_session_length(session) == 20);
    d = greedily(100, more, &n);
    OK(&ctx, attn_generate(&ctx, session, NULL, &d, NULL, NULL));
    CHECK(n == 1 && more[0] == ids[16]);
    FAILS(&ctx, ATTN_E_CONTEXT, "do not fit", attn_generate(&ctx, session, "a", &d, NULL, NULL));
    CHECK(n == 0 && attn_session_length(session) == 20);
    attn_session_free(session);
}

TEST(prompts)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, tiny, 0, 0), *bare = session_on(&ctx, plain, 0, 0);
    const int32_t with_bos[] = {2047, 506, 511, 258, 433}, *prompt = with_bos + 1;
    int32_t ids[9], other[9];
    size_t n, i;
    attn_generate_desc d = greedily(9, ids, &n), e;

    /* the beginning-of-text token, in three ways; an empty prompt may stand behind it */
    d.prepend_bos = 1;
    OK(&ctx, attn_generate(&ctx, session, "Once upon a time", &d, NULL, NULL));
    CHECK(memcmp(attn_session_tokens(session), with_bos, sizeof with_bos) == 0);
    d.prompt_ids = prompt;
    d.n_prompt_ids = 4;
    OK(&ctx, attn_truncate(&ctx, session, 0));
    OK(&ctx, attn_generate(&ctx, session, NULL, &d, NULL, NULL));
    CHECK(memcmp(attn_session_tokens(session), with_bos, sizeof with_bos) == 0);
    e = greedily(9, other, &i);
    e.allow_special = 1;
    OK(&ctx, attn_truncate(&ctx, session, 0));
    OK(&ctx, attn_generate(&ctx, session, "<|endoftext|>Once upon a time", &e, NULL, NULL));
    CHECK(memcmp(attn_session_tokens(session), with_bos, sizeof with_bos) == 0);
    CHECK(n == 9 && i == 9 && memcmp(ids, other, sizeof ids) == 0);
    OK(&ctx, attn_generate(&ctx, session, "Once upon a time", &d, NULL, NULL)); /* not again */
    CHECK(attn_session_tokens(session)[14] == prompt[0]);
    OK(&ctx, attn_truncate(&ctx, session, 0));
    d = greedily(9, ids, &n);
    d.prepend_bos = 1;
    OK(&ctx, attn_generate(&ctx, session, "", &d, NULL, NULL));
    CHECK(n == 9 && attn_session_length(session) == 10);
    OK(&ctx, attn_truncate(&ctx, session, 0));
    e.allow_special = 0; /* its letters then */
    OK(&ctx, attn_generate(&ctx, session, "<|endoftext|>", &e, NULL, NULL));
    CHECK(attn_session_tokens(session)[0] != 2047 && attn_session_length(session) > 10);

    /* nothing to go on from */
    d = greedily(9, ids, &n);
    OK(&ctx, attn_truncate(&ctx, session, 0));
    FAILS(&ctx, ATTN_E_ARGUMENT, "prompt is empty",
          attn_generate(&ctx, session, "", &d, NULL, NULL));
    FAILS(&ctx, ATTN_E_ARGUMENT, "prompt is empty",
          attn_generate(&ctx, session, NULL, NULL, NULL, NULL));
    d.prompt_ids = prompt;
    FAILS(&ctx, ATTN_E_ARGUMENT, "prompt is empty",
          attn_generate(&ctx, session, NULL, &d, NULL, NULL));
    OK(&ctx, attn_feed(&ctx, session, prompt, 4));
    OK(&ctx, attn_truncate(&ctx, session, 3));
    FAILS(&ctx, ATTN_E_ARGUMENT, "after attn_truncate",
          attn_generate(&ctx, session, "", NULL, NULL, NULL));

    /* ids that are none, text that is too long, samplers that cannot be */
    ids[0] = 3;
    ids[1] = 2048;
    d.prompt_ids = ids;
    d.n_prompt_ids = 2;
    FAILS(&ctx, ATTN_E_TOKEN, "2048", attn_generate(&ctx, session, NULL, &d, NULL, NULL));
    d = greedily(9, ids, &n);
    d.sampling.temperature = -1;
    FAILS(&ctx, ATTN_E_ARGUMENT, "temperature", attn_generate(&ctx, session, "a", &d, NULL, NULL));
    {
        char *const text = (char *)pool_new(1001);
        memset(text, '?', 1000);
        text[1000] = 0;
        FAILS(&ctx, ATTN_E_CONTEXT, "do not fit",
              attn_generate(&ctx, session, text, NULL, NULL, NULL));
    }
    CHECK(attn_session_length(session) == 3);

    /* a model without tokenizer and without a beginning-of-text token */
    CHECK(attn_model_tokenizer(plain) == NULL && attn_model_config(plain)->bos == -1);
    FAILS(&ctx, ATTN_E_TOKENIZER, "prompt_ids", attn_generate(&ctx, bare, "a", NULL, NULL, NULL));
    d = greedily(9, ids, &n);
    d.prompt_ids = other;
    d.n_prompt_ids = 2;
    other[0] = 5, other[1] = 96;
    d.prepend_bos = 1;
    FAILS(&ctx, ATTN_E_ARGUMENT, "beginning-of-text",
          attn_generate(&ctx, bare, NULL, &d, NULL, NULL));
    d.prepend_bos = 0;
    {
        listener l = {"", 0, 0, 0, 0};
        OK(&ctx, attn_generate(&ctx, bare, NULL, &d, listen, &l));
        CHECK(n == 9 && l.pieces == 0 && attn_session_length(bare) == 11);
    }
    attn_session_free(session);
    attn_session_free(bare);
    pool_clear();
}

TEST(nan_logits)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, tiny, 0, 0);
    poison p = {6, NAN};
    int32_t ids[20];
    size_t n;
    attn_generate_desc d = greedily(20, ids, &n);
    OK(&ctx, attn_hook(&ctx, NULL, session, "ln_final.hook_normalized.post", poisoned, &p));
    FAILS(&ctx, ATTN_E_ARGUMENT, "NaN",
          attn_generate(&ctx, session, "Once upon a time", &d, NULL, NULL));
    CHECKF(n == 3, "%llu tokens before it", LLU(n));
    attn_session_free(session);
}

/* A seed draws what make_generation_vectors.py drew, in float64 with numpy's generator; another
 * seed does not. */
TEST(seeds)
{
    static const attn_isa_kind kinds[] = {ATTN_ISA_AUTO, ATTN_ISA_PORTABLE, ATTN_ISA_AVX2};
    attn_ctx ctx = alone();
    size_t v, i, n;
    for (v = 0; v < sizeof generation_vectors / sizeof generation_vectors[0]; v++)
        for (i = 0; i < 4; i++) {
            const int32_t *const want = generation_vectors[v].ids;
            int32_t ids[GENERATED];
            attn_session *session;
            attn_generate_desc d = greedily(GENERATED, ids, &n);
            ctx.isa = kinds[i % 3];
            ctx.n_threads = i == 3 ? 2 : 1;
            if (ctx.isa == ATTN_ISA_PORTABLE && v > 0)
                continue; /* once is slow enough */
            if (!attn_isa(&ctx) || (session = session_on(&ctx, tiny, 0, 0)) == NULL)
                continue;
            d.sampling = generation_vectors[v].sampler;
            d.ignore_eos = 1;
            memset(ids, 0, sizeof ids);
            OK(&ctx, attn_generate(&ctx, session, "Once upon a time", &d, NULL, NULL));
            CHECK(n == GENERATED);
            for (n = 0; n < GENERATED && ids[n] == want[n]; n++)
                ;
            CHECKF(n == GENERATED, "vector %llu, %s: token %llu is %ld, not %ld", LLU(v),
                   attn_isa(&ctx), LLU(n), (long)ids[n], (long)want[n]);
            d.sampling.seed++;
            OK(&ctx, attn_truncate(&ctx, session, 0));
            OK(&ctx, attn_generate(&ctx, session, "Once upon a time", &d, NULL, NULL));
            CHECK(memcmp(ids, want, sizeof ids) != 0);
            attn_session_free(session);
        }
}

/* What a caller forgot is an error too. */
TEST(missing_arguments)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, plain, 0, 0), *none;
    attn_model *model = plain;
    const int32_t tokens[] = {1, 2, 3};
    attn_tensor w = {0};
    attn_tensor_info info;
    attn_token_stats stats[3];
    size_t n;
    FAILS(&ctx, ATTN_E_ARGUMENT, "no path", attn_model_open(&ctx, &model, NULL, NULL));
    CHECK(model == NULL);
    model = plain;
    CHECK(attn_model_open_memory(&ctx, &model, NULL, 100, NULL) == ATTN_E_ARGUMENT);
    CHECK(model == NULL);
    FAILS(&ctx, ATTN_E_NAME, "nonsense", attn_model_tensor(&ctx, &w, plain, "nonsense"));
    FAILS(&ctx, ATTN_E_NAME, "\"\"", attn_model_tensor(&ctx, &w, plain, ""));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no model", attn_model_tensor(&ctx, &w, NULL, "embed.W_E"));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no model", attn_model_tensor_info(&ctx, &info, NULL, 0));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no place", attn_model_tensor_info(&ctx, NULL, plain, 0));
    attn_unhook_all(NULL);
    FAILS(&ctx, ATTN_E_ARGUMENT, "28 tensors",
          attn_model_tensor_info(&ctx, &info, plain, attn_model_n_tensors(plain)));
    none = session;
    FAILS(&ctx, ATTN_E_ARGUMENT, "no model", attn_session_new(&ctx, &none, NULL, NULL));
    CHECK(none == NULL);
    FAILS(&ctx, ATTN_E_ARGUMENT, "", attn_session_size(&ctx, &n, NULL, NULL));
    FAILS(&ctx, ATTN_E_ARGUMENT, "", attn_score(&ctx, stats, NULL, 0, NULL, tokens, 3));
    FAILS(&ctx, ATTN_E_ARGUMENT, "", attn_score(&ctx, stats, NULL, 0, session, NULL, 3));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no room", attn_score(&ctx, stats, NULL, 1, session, tokens, 3));
    FAILS(&ctx, ATTN_E_ARGUMENT, "", attn_truncate(&ctx, NULL, 0));
    FAILS(&ctx, ATTN_E_ARGUMENT, "", attn_session_copy(&ctx, session, NULL));
    FAILS(&ctx, ATTN_E_ARGUMENT, "", attn_session_copy(&ctx, NULL, session));
    FAILS(&ctx, ATTN_E_ARGUMENT, "", attn_hook(&ctx, NULL, NULL, "*", do_nothing, NULL));
    FAILS(&ctx, ATTN_E_ARGUMENT, "", attn_hook(&ctx, NULL, session, NULL, do_nothing, NULL));
    FAILS(&ctx, ATTN_E_ARGUMENT, "", attn_hook(&ctx, NULL, session, "*", NULL, NULL));
    FAILS(&ctx, ATTN_E_ARGUMENT, "", attn_generate(&ctx, NULL, "a", NULL, NULL, NULL));
    FAILS(&ctx, ATTN_E_ARGUMENT, "no name", attn_model_tensor(&ctx, &w, plain, NULL));
    CHECK(attn_session_length(session) == 0);
    OK(&ctx, attn_feed(&ctx, session, tokens, 3));
    attn_session_free(session);
}

/* Each function says that a kernel is not here, before anything else is done. */
TEST(kernels_that_are_not_here)
{
    attn_ctx ctx = {0}, fine = {0};
    attn_session *session = session_on(&fine, plain, 0, 0);
    const attn_config *c = attn_model_config(plain);
    const attn_tensor m = some(2, 3, c->d_model, 1), v = some(1, 3, 1, 1);
    const attn_tensor d = some(2, 3, c->d_model, 1), ids = some_ids(3, 0);
    attn_model *opened = NULL;
    attn_sampler *sampler = NULL;
    attn_token_stats stats[3];
    attn_prediction top[3];
    size_t size = 0;
    unsigned char *file = test_read(test_tmp("model-plain.attn"), &size);
    ctx.isa = ATTN_ISA_NEON;
    if (attn_isa(&ctx))
        ctx.isa = ATTN_ISA_AVX2;
#define NOT_HERE(call) REFUSED(ATTN_E_UNSUPPORTED, "kernels", call)
    NOT_HERE(attn_add(&ctx, &not_made, m, m));
    NOT_HERE(attn_cross_entropy(&ctx, &not_made, m, ids));
    NOT_HERE(attn_model_open_memory(&ctx, &opened, file, size, NULL));
    NOT_HERE(attn_sampler_new(&ctx, &sampler, 40, NULL));
    NOT_HERE(attn_logit_stats(&ctx, stats, top, 1, m, NULL));
    NOT_HERE(attn_logit_attrs(&ctx, &not_made, plain, m, no_tensor, d));
    NOT_HERE(attn_logit_lens(&ctx, &not_made, plain, m, no_tensor, NULL, 0));
    NOT_HERE(
        attn_logit_lens(&ctx, &not_made, plain, m, attn_reshape(v, attn_shape2(3, 1)), NULL, 0));
    CHECK(opened == NULL && sampler == NULL);
    free(file);
    attn_session_free(session);
    done(&ctx);
    done(&fine);
}

/* What is NULL, empty or beyond the model, one at a time. */
TEST(arguments_of_models)
{
    attn_ctx ctx = {0};
    attn_session *session = session_on(&ctx, plain, 0, 0), *other = NULL;
    const attn_config *c = attn_model_config(plain);
    const size_t T = 5;
    attn_tensor keys;
    attn_sampler *sampler = NULL;
    int32_t id = 7, bad[2] = {0, INT32_MAX};
    float *logits = (float *)pool_new(c->n_vocab * sizeof(float));
    char text[8];
    size_t n;
    OK(&ctx, attn_feed(&ctx, session, ten, T));
    REFUSED(ATTN_E_ARGUMENT, "no session given",
            attn_cache_get(&ctx, &not_made, NULL, ATTN_CACHE_KEYS, 0, 0, 1));
    REFUSED(ATTN_E_ARGUMENT, "expected ATTN_CACHE_KEYS or ATTN_CACHE_VALUES",
            attn_cache_get(&ctx, &not_made, session, (attn_cache_part)2, 0, 0, 1));
    not_made = some(2, 3, 3, 1);
    FAILS(&ctx, ATTN_E_SHAPE, "attn_cache_get",
          attn_cache_get(&ctx, &not_made, session, ATTN_CACHE_KEYS, 0, 0, 1));
    REFUSED(ATTN_E_ARGUMENT, "attn_cache_set",
            attn_cache_set(&ctx, session, ATTN_CACHE_KEYS, 0, 0, no_tensor));
    keys = no_tensor;
    ctx.status = ATTN_OK;
    OK(&ctx, attn_cache_get(&ctx, &keys, session, ATTN_CACHE_KEYS, 0, 0, 2));
    REFUSED(ATTN_E_SHAPE, "attn_cache_set: expected",
            attn_cache_set(&ctx, session, ATTN_CACHE_KEYS, 0, 0, attn_select(keys, 1, 0)));
    REFUSED(ATTN_E_SHAPE, "attn_cache_set: expected",
            attn_cache_set(&ctx, session, ATTN_CACHE_KEYS, 0, 0, attn_slice(keys, 1, 0, 1)));
    REFUSED(ATTN_E_SHAPE, "attn_cache_set: expected",
            attn_cache_set(&ctx, session, ATTN_CACHE_KEYS, 0, 0, attn_slice(keys, 2, 0, 1)));

    ctx.status = ATTN_OK;
    OK(&ctx, attn_sampler_new(&ctx, &sampler, c->n_vocab, NULL));
    for (n = 0; n < c->n_vocab; n++)
        logits[n] = (float)(n % 7);
    REFUSED(ATTN_E_ARGUMENT, "no sampler", attn_sample(&ctx, &id, NULL, logits, NULL, 0));
    REFUSED(ATTN_E_ARGUMENT, "feed a token first", attn_sample(&ctx, &id, sampler, NULL, NULL, 0));
    REFUSED(ATTN_E_ARGUMENT, "no place for", attn_sample(&ctx, NULL, sampler, logits, NULL, 0));
    REFUSED(ATTN_E_ARGUMENT, "seen tokens", attn_sample(&ctx, &id, sampler, logits, NULL, 3));
    CHECK(id == 7);
    attn_sampler_free(sampler);
    {
        /* a penalty for tokens that are none is no penalty; a logit of infinity wins outright */
        attn_sampler_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.temperature = 1;
        desc.repeat_penalty = 1.5f;
        ctx.status = ATTN_OK;
        OK(&ctx, attn_sampler_new(&ctx, &sampler, c->n_vocab, &desc));
        logits[3] = INFINITY;
        bad[0] = -1;
        OK(&ctx, attn_sample(&ctx, &id, sampler, logits, bad, 2));
        CHECK(id == 3);
        attn_sampler_free(sampler);
    }

    CHECK(attn_encode(&ctx, NULL, 3, &n, attn_model_tokenizer(plain), NULL, 0, 0) != ATTN_OK);
    CHECK(attn_decode(&ctx, NULL, 3, &n, attn_model_tokenizer(plain), ten, 1) != ATTN_OK);
    (void)text;
    attn_session_free(session);
    attn_session_free(other);
    done(&ctx);
}

/* What a file says is shown, not obeyed. */
TEST(nothing_for_the_terminal)
{
    attn_ctx ctx = {0};
    REFUSED(ATTN_E_NAME, "a?[31m?b???m\xc3\x84\xc2\xa0 ?",
            attn_model_tensor(&ctx, &not_made, plain,
                              "a\x1b[31m\nb\x7f\xc2\x9bm\xc3\x84\xc2\xa0 \x9b"));
    CHECK(!strpbrk(ctx.message, "\x1b\n\x7f"));
    done(&ctx);
}

static attn_session *fed(attn_ctx *ctx, const attn_model *on, const int32_t *tokens, size_t n)
{
    attn_session *session = session_on(ctx, on, 0, 0);
    OK(ctx, attn_feed(ctx, session, tokens, n));
    return session;
}

/* The text without its first tokens, straight from where the session remembers it. */
TEST(a_session_is_fed_its_own_tokens)
{
    enum { ALL = 100, DROPPED = 3, LEFT = ALL - DROPPED };
    attn_ctx ctx = alone();
    attn_model *const on = converted("tests/golden/long", "long.attn", "");
    const int32_t *const tokens = random_tokens(on, ALL, 6);
    const size_t row_bytes = vocab_of(on) * sizeof(float);
    attn_session *fresh = fed(&ctx, on, tokens + DROPPED, LEFT),
                 *session = fed(&ctx, on, tokens, ALL);
    attn_token_stats stats[2][LEFT];
    OK(&ctx, attn_truncate(&ctx, session, 0));
    OK(&ctx, attn_feed(&ctx, session, attn_session_tokens(session) + DROPPED, LEFT));
    CHECK(memcmp(attn_session_tokens(session), tokens + DROPPED, LEFT * sizeof *tokens) == 0);
    CHECK(memcmp(attn_logits(session), attn_logits(fresh), row_bytes) == 0);
    attn_session_free(session);

    session = fed(&ctx, on, tokens, ALL);
    OK(&ctx, attn_truncate(&ctx, session, 0));
    OK(&ctx, attn_truncate(&ctx, fresh, 0));
    memset(stats, 0, sizeof stats);
    OK(&ctx,
       attn_score(&ctx, stats[0], NULL, 0, session, attn_session_tokens(session) + DROPPED, LEFT));
    OK(&ctx, attn_score(&ctx, stats[1], NULL, 0, fresh, tokens + DROPPED, LEFT));
    CHECK(memcmp(stats[0], stats[1], sizeof stats[0]) == 0);
    attn_session_free(session);
    attn_session_free(fresh);
    attn_model_close(on);
    done(&ctx);
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
    FAILS(&ctx, ATTN_E_ARGUMENT, "being fed", attn_truncate(&ctx, m->session, 0));
    FAILS(&ctx, ATTN_E_ARGUMENT, "being fed", attn_feed(&ctx, m->session, &token, 1));
    FAILS(&ctx, ATTN_E_ARGUMENT, "being fed", attn_hook(&ctx, NULL, m->session, "*", ignore, NULL));
    FAILS(&ctx, ATTN_E_ARGUMENT, "being fed",
          attn_generate(&ctx, m->session, "", NULL, NULL, NULL));
    not_made = no_tensor;
    OK(&ctx, attn_cache_get(&ctx, &not_made, m->session, ATTN_CACHE_KEYS, 0, 0, 1));
    FAILS(&ctx, ATTN_E_ARGUMENT, "being fed",
          attn_cache_set(&ctx, m->session, ATTN_CACHE_KEYS, 0, 0, not_made));
    OK(&ctx, attn_session_copy(&ctx, m->other, m->session)); /* it may look */
    CHECK(attn_session_length(m->other) == attn_session_length(m->session));
    attn_ctx_free(&ctx);
    return 0;
}

TEST(a_callback_may_look_but_not_touch)
{
    enum { LENGTH = 60 };
    attn_ctx ctx = alone();
    attn_model *stories = NULL;
    attn_generate_desc desc;
    static meddler with, without;
    size_t n_passes = 7;
    memset(&desc, 0, sizeof desc);
    memset(&with, 0, sizeof with);
    memset(&without, 0, sizeof without);
    OK(&ctx, attn_model_open(&ctx, &stories, TEST_BUILD "/tiny-stories.attn", NULL));
    with.session = session_on(&ctx, stories, 0, 0);
    with.other = session_on(&ctx, stories, 0, 0);
    without.session = session_on(&ctx, stories, 0, 0);
    with.meddles = 1;
    desc.max_tokens = LENGTH;
    OK(&ctx, attn_generate(&ctx, with.session, "the cat the cat the", &desc, meddle, &with));
    OK(&ctx, attn_generate(&ctx, without.session, "the cat the cat the", &desc, meddle, &without));
    CHECK(with.size == without.size && memcmp(with.text, without.text, with.size) == 0);
    CHECK(memcmp(attn_logits(with.session), attn_logits(without.session),
                 vocab_of(stories) * sizeof(float)) == 0);
    OK(&ctx, attn_truncate(&ctx, with.session, 0)); /* it is free again */
    desc.n_passes = &n_passes;
    FAILS(&ctx, ATTN_E_ARGUMENT, "the prompt is empty",
          attn_generate(&ctx, with.session, "", &desc, NULL, NULL));
    CHECK(n_passes == 0);
    attn_session_free(with.session);
    attn_session_free(with.other);
    attn_session_free(without.session);
    attn_model_close(stories);
    done(&ctx);
}

typedef attn_status (*attempt)(attn_ctx *ctx, attn_session *session);

static attn_status attend_to_halves(attn_ctx *ctx, attn_session *session)
{
    const size_t dims[3] = {2, 4, 4};
    const attn_tensor q = new_tensor(ATTN_F16, 3, dims, LAYOUT_DENSE);
    attn_tensor made = no_tensor;
    attn_status status;
    (void)session;
    status = attn_attention(ctx, &made, q, q, q, NULL);
    attn_tensor_free(ctx, &made);
    return status;
}

static attn_status encode_specials(attn_ctx *ctx, attn_session *session)
{
    char text[3100]; /* a long word takes memory, a short one none */
    int32_t ids[3100];
    size_t n;
    (void)session;
    memset(text, 'e', 3000);
    memcpy(text + 3000, "<|endoftext|>the cat", 20);
    return attn_encode(ctx, ids, 3100, &n, attn_model_tokenizer(tiny), text, 3020, 1);
}

static attn_status generate_from_text(attn_ctx *ctx, attn_session *session)
{
    attn_generate_desc desc;
    char text[161]; /* a long word takes memory, a short one none */
    memset(&desc, 0, sizeof desc);
    desc.max_tokens = 2;
    memset(text, 'e', 160);
    text[160] = 0;
    return attn_generate(ctx, session, text, &desc, NULL, NULL);
}

static attn_status edit_with_a_mean(attn_ctx *ctx, attn_session *session)
{
    attn_edit edit;
    memset(&edit, 0, sizeof edit);
    edit.name = "blocks.0.hook_resid_mid";
    edit.kind = ATTN_EDIT_MEAN;
    edit.value = some(2, 3, attn_model_config(tiny)->d_model, 1);
    return attn_hook_edit(ctx, NULL, session, &edit);
}

static attn_status lens_without_scale(attn_ctx *ctx, attn_session *session)
{
    attn_tensor made = no_tensor;
    attn_status status;
    (void)session;
    status = attn_logit_lens(ctx, &made, tiny, some(2, 2, attn_model_config(tiny)->d_model, 1),
                             no_tensor, NULL, 0);
    attn_tensor_free(ctx, &made);
    return status;
}

/* Each allocation fails in turn: a status, nothing kept, and the next attempt goes on as ever. */
TEST(no_memory)
{
    static const attempt attempts[] = {attend_to_halves, encode_specials, generate_from_text,
                                       edit_with_a_mean, lens_without_scale};
    size_t i;
    for (i = 0; i < sizeof attempts / sizeof attempts[0]; i++) {
        attn_ctx fine = {0};
        attn_session *session = session_on(&fine, tiny, 0, 0);
        int n, failures = 0;
        for (n = 0; n < 100; n++) {
            meter m;
            attn_ctx ctx = metered(&m);
            attn_status status;
            m.fail_at = n;
            status = attempts[i](&ctx, session);
            attn_unhook_all(session);
            CHECKF(m.live == 0 && m.wrong == 0, "attempt %d, call %d: %ld blocks kept", (int)i, n,
                   m.live);
            OK(&fine, attn_truncate(&fine, session, 0));
            if (status == ATTN_OK)
                break;
            failures++;
            CHECKF(status == ATTN_E_MEMORY, "attempt %d, call %d: %s", (int)i, n, ctx.message);
        }
        CHECKF(failures > 0 && n < 100, "attempt %d fails %d times", (int)i, failures);
        attn_session_free(session);
        done(&fine);
    }
}

/* A session made for one thread has scratch memory for one, whatever is asked for later. */
TEST(more_threads_than_the_session_has)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, plain, 0, 0);
    float *want = logits_of(&ctx, plain, 0, ten, 10, 10);
    ctx.n_threads = 4;
    OK(&ctx, attn_feed(&ctx, session, ten, 10));
    CHECK(!differ(attn_logits(session), want + 9 * vocab_of(plain), vocab_of(plain)));
    attn_session_free(session);
    done(&ctx);
}

/* A session may be copied onto itself, hooks and all; a weight of one key repeats. */
TEST(small_things)
{
    attn_ctx ctx = {0};
    attn_session *session = session_on(&ctx, plain, 0, 0);
    const attn_config *c = attn_model_config(plain);
    sight *s = new_sight();
    float one = 0.25f, *before = (float *)pool_new(c->n_vocab * sizeof(float));
    attn_edit edit;
    attn_feed_item item;
    attn_tensor got, a = no_tensor, b = no_tensor, w = no_tensor, empty = no_tensor;
    attn_attention_desc desc;
    static const size_t row = 0;
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.1.attn.hook_pattern", note, s));
    OK(&ctx, attn_feed(&ctx, session, ten, 3));
    memcpy(before, attn_logits(session), c->n_vocab * sizeof(float));
    OK(&ctx, attn_session_copy(&ctx, session, session));
    CHECK(!differ(before, attn_logits(session), c->n_vocab));
    memset(&edit, 0, sizeof edit);
    edit.name = "blocks.0.attn.hook_pattern";
    edit.kind = ATTN_EDIT_SET;
    edit.value = attn_borrow(&one, ATTN_F32, attn_shape3(1, 1, 1));
    OK(&ctx, attn_truncate(&ctx, session, 0));
    attn_unhook_all(session);
    OK(&ctx, attn_hook_edit(&ctx, NULL, session, &edit));
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.attn.hook_pattern", note, s));
    OK(&ctx, attn_feed(&ctx, session, ten, 3));
    got = latest(s, "blocks.0.attn.hook_pattern");
    CHECK(got.ndim == 3 && attn_get3(got, 1, 2, 1) == 0.25f && attn_get3(got, 0, 0, 0) == 0.25f);
    attn_unhook_all(session);

    item = item_of(session, ten, 2, NULL);
    item.rows = &row;
    item.n_rows = 1;
    item.layers.end = 1;
    ctx.status = ATTN_OK;
    FAILS(&ctx, ATTN_E_ARGUMENT, "makes no logits", attn_feed_batch(&ctx, &item, 1));
    ctx.status = ATTN_OK;

    /* values of no dimensions still have a pattern */
    memset(&desc, 0, sizeof desc);
    desc.pattern = &w;
    OK(&ctx, attn_zeros(&ctx, &empty, ATTN_F32, attn_shape2(4, 0)));
    OK(&ctx, attn_attention(&ctx, &a, some(2, 3, 4, 1), some(2, 4, 4, 1), empty, &desc));
    CHECK(a.shape[0] == 3 && a.shape[1] == 0 && w.shape[0] == 3 && w.shape[1] == 4);
    CHECK(fabs((double)attn_get2(w, 2, 0) + (double)attn_get2(w, 2, 1) +
               (double)attn_get2(w, 2, 2) + (double)attn_get2(w, 2, 3) - 1) < 1e-6);
    OK(&ctx, attn_zeros(&ctx, &b, ATTN_F32, attn_shape2(0, c->d_model)));
    empty = no_tensor;
    OK(&ctx, attn_logit_lens(&ctx, &empty, plain, b, no_tensor, NULL, 0));
    CHECK(empty.shape[0] == 0 && empty.shape[1] == c->n_vocab);
    empty = no_tensor;
    b = attn_reshape(b, attn_shape2(0, c->d_model));
    OK(&ctx, attn_logit_lens(&ctx, &empty, plain, b, attn_borrow(&one, ATTN_F32, attn_shape2(0, 1)),
                             NULL, 0));
    CHECK(empty.shape[0] == 0);
    if (sizeof(size_t) > 4) { /* panels of more bytes than there are */
        attn_tensor wide = attn_borrow(&one, ATTN_F32, attn_shape2(1, 1)), tall = wide;
        wide.shape[1] = tall.shape[0] = SIZE_MAX / 8;
        wide.stride[1] = tall.stride[0] = 0;
        REFUSED(ATTN_E_SHAPE, "is too large", attn_matmul(&ctx, &not_made, wide, tall));
    }
    attn_session_free(session);
    done(&ctx);
}

enum { SEQUENCES = 4, VOCAB = 40 };

static attn_model *open_long(attn_ctx *ctx)
{
    attn_model *model = NULL;
    OK(ctx, attn_model_open(ctx, &model, TEST_BUILD "/fuzz/long.attn", NULL));
    return model;
}

/* All 24 orders of four sequences of different lengths: each gets what it gets alone. */
TEST(permuted_batches)
{
    static const size_t lengths[SEQUENCES] = {3, 1, 17, 8};
    int32_t tokens[64];
    float want[SEQUENCES][VOCAB];
    attn_ctx ctx = {0};
    attn_model *model = open_long(&ctx);
    attn_session *s[SEQUENCES] = {NULL};
    size_t i, order, n_orders = 0;
    int able = model != NULL;
    for (i = 0; i < 64; i++)
        tokens[i] = (int32_t)(i * 13 % VOCAB);
    for (i = 0; i < SEQUENCES && able; i++) {
        able = (s[i] = session_on(&ctx, model, 64, 16)) != NULL &&
               OK(&ctx, attn_feed(&ctx, s[i], tokens + i, i + 1)) &&
               OK(&ctx, attn_feed(&ctx, s[i], tokens + 5 * i, lengths[i]));
        if (able)
            memcpy(want[i], attn_logits(s[i]), sizeof want[i]);
    }
    if (able)
        share_workspace(&ctx, s, SEQUENCES, 16);
    for (order = 0; order < 256 && able; order++) {
        const size_t at[SEQUENCES] = {order % 4, order / 4 % 4, order / 16 % 4, order / 64};
        attn_feed_item items[SEQUENCES];
        if (((1u << at[0]) | (1u << at[1]) | (1u << at[2]) | (1u << at[3])) != 15)
            continue;
        n_orders++;
        for (i = 0; i < SEQUENCES; i++) {
            OK(&ctx, attn_truncate(&ctx, s[i], i + 1)); /* earlier tokens stay */
            items[at[i]] = item_of(s[i], tokens + 5 * i, lengths[i], NULL);
        }
        if (!OK(&ctx, attn_feed_batch(&ctx, items, SEQUENCES)))
            break;
        for (i = 0; i < SEQUENCES; i++)
            CHECKF(memcmp(attn_logits(s[i]), want[i], sizeof want[i]) == 0,
                   "order %llu, sequence %llu", LLU(order), LLU(i));
    }
    CHECK(!able || n_orders == 24);
    for (i = 0; i < SEQUENCES; i++)
        attn_session_free(s[i]);
    attn_model_close(model);
}
