/* Long runs and load: thousands of sessions that come and go, 64 threads over one model, sessions
 * filled to the last position again and again, a model of GPT-2 XL's size. Memory must come back to
 * the byte, and the answers must stay what they were. With ATTN_TEST_FULL all of it is longer. */
#include "tools/bench/bench_model.h"
#include "tests/support/models.h"
#include "tests/support/command.h"
#include <sys/statvfs.h>
#include <unistd.h>

SUITE();

#define LONG    TEST_BUILD "/fuzz/long.attn" /* 40 tokens, 600 positions, 20 wide, one layer */
#define STORIES TEST_BUILD "/tiny-stories.attn"

/* ---- what is spent ---- */

/* An allocator that knows how many bytes are out. */
typedef struct ledger {
    size_t bytes, blocks;
} ledger;
enum { BEFORE = 16 }; /* bytes before a block, which hold its size */

static void *ledger_alloc(size_t size, void *user)
{
    ledger *l = (ledger *)user;
    unsigned char *block = (unsigned char *)malloc(BEFORE + size);
    if (!block)
        return NULL;
    memcpy(block, &size, sizeof size);
    l->bytes += size;
    l->blocks++;
    return block + BEFORE;
}

static void ledger_free(void *block, void *user)
{
    ledger *l = (ledger *)user;
    size_t size;
    memcpy(&size, (unsigned char *)block - BEFORE, sizeof size);
    CHECKF(l->blocks > 0 && l->bytes >= size, "a block is freed that was never given");
    l->bytes -= size;
    l->blocks--;
    free((unsigned char *)block - BEFORE);
}

static attn_ctx kept_by(ledger *l)
{
    attn_ctx ctx = alone();
    memset(l, 0, sizeof *l);
    ctx.alloc = ledger_alloc;
    ctx.free = ledger_free;
    ctx.user = l;
    return ctx;
}

/* What the process has: KiB mapped, KiB resident. Zeros where the system does not say. */
typedef struct spent {
    long mapped, resident;
} spent;

static spent spent_now(void)
{
    const long page = sysconf(_SC_PAGESIZE) / 1024;
    spent now = {0, 0};
    FILE *file = fopen("/proc/self/statm", "r");
    if (file) {
        if (fscanf(file, "%ld %ld", &now.mapped, &now.resident) != 2)
            now.mapped = now.resident = 0;
        fclose(file);
    }
    now.mapped *= page;
    now.resident *= page;
    return now;
}

/* ---- sessions that come and go ---- */

/* One call after another on a model; each draws from its seed alone. */
typedef struct work {
    attn_ctx ctx;
    attn_model *model;
    attn_session *one, *two;
    size_t generated;
} work;

static int count(const attn_activation *a, void *user)
{
    (void)a;
    ++*(long *)user;
    return 0;
}

/* Some more tokens, greedy or not, after a prompt of at least one token. */
static void go_on(work *w, attn_session *session, size_t n_prompt, size_t n, size_t seed)
{
    const size_t room = attn_session_capacity(session) - attn_session_length(session);
    attn_generation made;
    memset(&made, 0, sizeof made);
    if (room == 0)
        return;
    n_prompt = n_prompt < room ? n_prompt : room;
    int32_t *prompt = random_tokens(w->model, n_prompt, seed);
    attn_generate_desc desc = {
        .prompt_tokens = prompt, .n_prompt_tokens = n_prompt, .max_tokens = n, .ignore_eos = 1};
    if (seed % 3) {
        desc.sampling.temperature = 0.9f;
        desc.sampling.top_k = 20;
        desc.sampling.top_p = seed % 3 == 1 ? 0.95f : 0;
        desc.sampling.repeat_penalty = 1.1f;
        desc.sampling.seed = seed;
    }
    OK(&w->ctx, attn_generate(&w->ctx, &made, session, NULL, &desc));
    w->generated += made.n_tokens;
}

/* A copy goes on with hooks, an edit and a record; then it lets go of all of them. */
static void watch_copy(work *w, size_t seed)
{
    static const char *const patterns[] = {"*", "blocks.0.attn.hook_pattern", "*hook_result",
                                           "*resid_post"};
    static const char *const names[] = {"*hook_z"};
    attn_record_desc desc;
    attn_record *record = NULL;
    attn_edit edit;
    size_t bytes = 0;
    long calls = 0;
    memset(&desc, 0, sizeof desc);
    memset(&edit, 0, sizeof edit);
    desc.names = names;
    desc.n_names = 1;
    desc.first = attn_session_length(w->one);
    edit.name = "blocks.0.hook_mlp_out";
    edit.kind = ATTN_EDIT_ZERO;
    OK(&w->ctx, attn_session_copy(&w->ctx, w->two, w->one));
    if (desc.first == attn_session_capacity(w->two))
        return;
    if (!OK(&w->ctx, attn_record_size(&w->ctx, &bytes, w->model, &desc)))
        return;
    void *memory = pool_new(bytes);
    desc.memory = memory;
    desc.memory_size = bytes;
    OK(&w->ctx, attn_record_new(&w->ctx, &record, w->two, &desc));
    OK(&w->ctx, attn_hook(&w->ctx, NULL, w->two, patterns[seed % 4], count, &calls));
    OK(&w->ctx, attn_hook_edit(&w->ctx, NULL, w->two, &edit));
    go_on(w, w->two, 1 + seed % 5, 4, seed + 1);
    CHECKF(calls > 0, "nothing was seen of %s", patterns[seed % 4]);
    attn_record_free(record);
    attn_unhook_all(w->two);
}

/* A model and two sessions from their beginning to their end. */
static void live(work *w, size_t seed)
{
    attn_session_desc desc;
    attn_tensor x;
    attn_token_stats *stats;
    int32_t *tokens;
    size_t n, length;
    memset(&desc, 0, sizeof desc);
    memset(&x, 0, sizeof x);
    if (!OK(&w->ctx, attn_model_open(&w->ctx, &w->model, LONG, NULL)))
        return;
    random_state = 2 * seed + 1;
    desc.n_ctx = 2 + random_below(attn_model_config(w->model)->n_ctx - 1);
    desc.n_batch = random_below(40);
    desc.cache_dtype = seed % 2 ? ATTN_F16 : ATTN_F32;
    OK(&w->ctx, attn_session_new(&w->ctx, &w->one, w->model, &desc));
    OK(&w->ctx, attn_session_new(&w->ctx, &w->two, w->model, &desc));
    if (w->one && w->two) {
        go_on(w, w->one, 1 + seed % 50, desc.n_ctx / 2, seed);
        watch_copy(w, seed);
        length = attn_session_length(w->one);
        OK(&w->ctx, attn_session_truncate(&w->ctx, w->one, length / 2));
        go_on(w, w->one, 1, 1 + seed % 70, seed + 2);
        n = 2 + seed % 20 < desc.n_ctx ? 2 + seed % 20 : desc.n_ctx;
        stats = (attn_token_stats *)pool_new(n * sizeof *stats);
        tokens = random_tokens(w->model, n, seed);
        OK(&w->ctx, attn_session_truncate(&w->ctx, w->two, 0));
        OK(&w->ctx, attn_score(&w->ctx, stats, NULL, w->two, tokens, n));
        OK(&w->ctx, attn_model_tensor(&w->ctx, &x, w->model, "blocks.0.attn.W_Q"));
    }
    attn_session_free(w->one);
    attn_session_free(w->two);
    attn_model_close(w->model);
    attn_ctx_free(&w->ctx);
    w->one = w->two = NULL;
    w->model = NULL;
    pool_clear();
}

/* A quarter of the way everything has been there once; from then on nothing may grow, but for what
 * malloc keeps at hand (`slack`, in KiB). A day of GPT-2 at 50 tokens a second is 4.3 million
 * tokens. */
TEST(sessions_come_and_go)
{
    const size_t wanted = test_full() ? 4320000 : 100000, slack = 2048;
    ledger l;
    spent first = {0, 0}, now;
    size_t lives = 0;
    size_t quarter = 0;
    work w = {.ctx = kept_by(&l)};
    while (w.generated < wanted) {
        const size_t before = w.generated;
        live(&w, lives++);
        if (!CHECKF(l.bytes == 0 && l.blocks == 0, "life %llu left %llu bytes in %llu blocks",
                    LLU(lives), LLU(l.bytes), LLU(l.blocks)) ||
            !CHECKF(w.generated > before, "life %llu generated nothing", LLU(lives)))
            return;
        if (w.generated / (wanted / 4) == quarter)
            continue;
        quarter++;
        now = spent_now();
        if (quarter == 1)
            first = now;
        if (TEST_SANITIZED) /* it keeps what was freed */
            continue;
        CHECKF(now.mapped <= first.mapped + (long)slack,
               "%ld KiB are mapped after %llu lives, %ld were at first", now.mapped, LLU(lives),
               first.mapped);
        CHECKF(now.resident <= first.resident + (long)slack,
               "%ld KiB are resident after %llu lives, %ld were at first", now.resident, LLU(lives),
               first.resident);
    }
    CHECK(quarter >= 4);
}

/* ---- a full session ---- */

/* What greedy generation makes after one token, to the last position and one token beyond, which
 * nobody has room to feed. */
static size_t fill(attn_ctx *ctx, attn_session *session, int32_t token, int n_draft, int32_t *ids)
{
    attn_generation made = {.tokens = ids, .room = attn_session_capacity(session) + 7};
    attn_generate_desc desc = {.prompt_tokens = &token,
                               .n_prompt_tokens = 1,
                               .max_tokens = attn_session_capacity(session) + 7,
                               .ignore_eos = 1};
    set_drafts(&desc, n_draft);
    OK(ctx, attn_generate(ctx, &made, session, NULL, &desc));
    return made.n_tokens;
}

/* One more is refused, as often as it is asked for, and all is as it was. */
static void is_full(attn_ctx *ctx, attn_session *session, float *logits)
{
    const size_t size = vocab_of(attn_session_model(session)) * sizeof(float);
    const int32_t token = 0;
    CHECK(attn_session_length(session) == attn_session_capacity(session));
    if (!CHECK(attn_session_logits(session) != NULL))
        return;
    memcpy(logits, attn_session_logits(session), size);
    for (int i = 0; i < 2; i++) {
        FAILS_IN(ctx, ATTN_E_CONTEXT, "do not fit", attn_feed(ctx, session, &token, 1));
        CHECK(attn_session_length(session) == attn_session_capacity(session) &&
              memcmp(logits, attn_session_logits(session), size) == 0);
    }
}

TEST(to_the_last_position)
{
    static const size_t capacities[] = {1, 2, 17, 64, 255, 600};
    const int rounds = test_full() ? 1000 : 20;
    ledger l;
    attn_ctx ctx = kept_by(&l);
    attn_model *model = NULL;
    if (!OK(&ctx, attn_model_open(&ctx, &model, LONG, NULL)))
        return;
    for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) {
        const size_t n = capacities[i], before = l.bytes;
        int32_t *first = (int32_t *)pool_new((n + 8) * sizeof *first);
        int32_t *again = (int32_t *)pool_new((n + 8) * sizeof *again);
        float *logits = (float *)pool_new(vocab_of(model) * sizeof *logits);
        attn_session *session = session_on(&ctx, model, n, 0);
        if (!session)
            break;
        size_t held = l.bytes;
        CHECKF(fill(&ctx, session, 3, -1, first) == n, "%llu positions", LLU(n));
        is_full(&ctx, session, logits);
        random_state = 9;
        for (int round = 0; round < rounds; round++) { /* back to somewhere, and on to the end */
            const size_t from = random_below(n);
            CHECK(attn_session_tokens(session)[from] == (from ? first[from - 1] : 3));
            OK(&ctx, attn_session_truncate(&ctx, session, from));
            CHECK(attn_session_logits(session) == NULL);
            CHECKF(fill(&ctx, session, from ? first[from - 1] : 3, round % 3 - 1, again) ==
                           n - from &&
                       memcmp(again, first + from, (n - from) * sizeof *again) == 0,
                   "%llu positions, again from %llu on: other tokens", LLU(n), LLU(from));
            is_full(&ctx, session, logits);
        }
        CHECKF(l.bytes == held, "%llu bytes more than at first", LLU(l.bytes - held));
        attn_session_free(session);
        EQUAL(l.bytes, before);
        pool_clear();
    }
    attn_model_close(model);
    CHECK(l.bytes == 0 && l.blocks == 0);
}

/* ---- many threads ---- */

/* threads.c checks that each gets the bits and the text that one thread gets alone. */
TEST(many_threads)
{
    CHECKF(run(TEST_BUILD "/tests/threads " LONG " 64") == 0, "%s%s", out, err);
    CHECK(out && strncmp(out, "64 threads", 10) == 0);
    CHECKF(run(TEST_BUILD "/tests/threads " STORIES " %s", test_full() ? "64" : "8") == 0, "%s%s",
           out, err);
#ifdef TEST_THREADS
    CHECKF(run(TEST_BUILD "/tests/threads " LONG " %s 2", test_full() ? "64" : "8") == 0, "%s%s",
           out, err);
#endif
    forget();
}

/* ---- a large model ---- */

/* Greedy text of a model, in one way of feeding: the tokens, and the logits of the last. */
static void some_text(attn_ctx *ctx, const attn_model *model, size_t step, int32_t ids[6],
                      float *logits)
{
    static const int32_t prompt[] = {464, 2068, 7586, 21831, 50256};
    SCOPED_SESSION session = session_on(ctx, model, 16, 0);
    size_t best;
    if (!session)
        return;
    for (size_t i = 0; i < 5; i += step)
        OK(ctx, attn_feed(ctx, session, prompt + i, step));
    for (size_t i = 0; i < 6; i++) {
        const float *now = attn_session_logits(session);
        size_t k;
        if (!CHECK(now != NULL))
            break;
        for (best = 0, k = 1; k < vocab_of(model); k++)
            best = now[k] > now[best] ? k : best;
        memcpy(logits, now, vocab_of(model) * sizeof *logits);
        ids[i] = (int32_t)best;
        OK(ctx, attn_feed(ctx, session, &ids[i], 1));
    }
}

/* GPT-2 XL's size, 1.5 billion random weights of 4 bits: made, opened, run, closed. */
TEST_IF(test_full(), one_and_a_half_billion)
{
    const model_shape *const shape = &model_shapes[N_SHAPES - 1];
    const uint64_t size = model_bytes(shape, ATTN_Q4) + (uint64_t)4 * N_CTX * shape->d_model;
    const char *const path = TEST_TMP "xl.attn";
    static float logits[2][N_VOCAB];
    int32_t ids[2][6] = {{0}};
    struct statvfs disk;
    ledger l;
    attn_ctx ctx = kept_by(&l);
    attn_model *model = NULL;
    if (statvfs(TEST_TMP, &disk) != 0 || (uint64_t)disk.f_bavail * disk.f_frsize < 2 * size) {
        test_skip("no 2 GB of disk for a model of 1.5 billion weights");
        return;
    }
    if (sizeof(size_t) < 8 ||
        (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) < 4 * size) {
        test_skip("no 4 GB of memory for a model of 1.5 billion weights");
        return;
    }
    spent before = spent_now();
    if (OK(&ctx, model_write(&ctx, path, shape, ATTN_Q4)) &&
        OK(&ctx, attn_model_open(&ctx, &model, path, NULL))) {
        CHECK(attn_model_config(model)->n_layer == 48 && attn_model_config(model)->d_model == 1600);
        some_text(&ctx, model, 5, ids[0], logits[0]);
        some_text(&ctx, model, 1, ids[1], logits[1]);
        CHECK(memcmp(ids[0], ids[1], sizeof ids[0]) == 0);
        same_floats(logits[0], logits[1], 1, N_VOCAB, "a token at a time");
        EQUAL(logits[0][0] - logits[0][0], 0); /* a number */
        CHECK(differ(logits[0], logits[0] + 1, N_VOCAB - 1));
    }
    attn_model_close(model);
    remove(path);
    CHECK(l.bytes == 0 && l.blocks == 0);
    spent after = spent_now();
    if (!TEST_SANITIZED)
        CHECKF(after.mapped <= before.mapped + 65536,
               "%ld KiB mapped, %ld before there was a model", after.mapped, before.mapped);
}
