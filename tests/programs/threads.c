/* Threads, for a race detector (make tsan) and for load (suites/load): many of them, each with a
 * context and sessions of its own, over one model, and each call of theirs divided over workers
 * where there is OpenMP. Every thread must get the bits and the text that one gets alone.
 *
 *     threads MODEL.attn [THREADS [WORKERS]]
 *
 * First of all they race for the choice of kernels, which is made once. Last, one stops another's feed. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "tools/write/model_file.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, TOKENS = 24 };

static attn_model *model;
static int n_workers;

typedef struct job {
    int wrong;
    uint64_t sum;
    char message[256];
    attn_session *last; /* of a model that is closed */
} job;

static uint64_t add(uint64_t sum, const void *data, size_t size)
{
    return model_checksum(sum, data, size);
}

static int count_calls(const attn_activation *activation, void *user)
{
    (void)activation;
    return ++*(long *)user < 0;
}

static int add_text(const char *text, size_t size, void *user)
{
    ((job *)user)->sum = add(((job *)user)->sum, text, size);
    return 0;
}

static int look(const attn_activation *activation, void *user)
{
    (void)user;
    return activation->value.data == NULL;
}

static void *choose(void *user)
{
    attn_ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    ((job *)user)->wrong = attn_isa(&ctx) == NULL;
    return NULL;
}

static void run(int n, void *(*body)(void *), job *jobs)
{
    pthread_t threads[MOST];
    for (int i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, body, &jobs[i])) {
            fprintf(stderr, "no thread number %d to be had\n", i);
            exit(2);
        }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

/* What a program does: tokenize, feed, a batch, hooks, generate, score. */
static void *work(void *user)
{
    job *j = (job *)user;
    attn_session *one = NULL, *two = NULL;
    attn_workspace *workspace = NULL;
    attn_workspace_desc room;
    attn_session_desc desc;
    attn_feed_item items[2];
    attn_generate_desc generating;
    attn_generation made;
    int32_t tokens[TOKENS], ids[8];
    size_t n_vocab = attn_model_config(model)->n_vocab;
    attn_token_stats stats[TOKENS];
    long calls = 0;
    attn_ctx ctx = {.n_threads = n_workers};
    memset(items, 0, sizeof items);
    memset(&generating, 0, sizeof generating);
    memset(&made, 0, sizeof made);
    for (size_t i = 0; i < TOKENS; i++)
        tokens[i] = (int32_t)(i * 7 % 11 % n_vocab);
    size_t n = 8;
    if (attn_model_tokenizer(model))
        attn_encode(&ctx, ids, &n, attn_model_tokenizer(model), "Once upon a time", 16);
    memset(&room, 0, sizeof room);
    memset(&desc, 0, sizeof desc);
    room.n_batch = 8;
    attn_workspace_new(&ctx, &workspace, model, &room);
    desc.n_ctx = TOKENS;
    desc.workspace = workspace;
    attn_session_new(&ctx, &one, model, &desc);
    attn_session_new(&ctx, &two, model, &desc);
    attn_workspace_free(workspace);
    if (one && two) {
        attn_feed(&ctx, one, tokens, 9);
        j->sum = add(j->sum, attn_session_logits(one), n_vocab * sizeof(float));
        items[0].session = one;
        items[1].session = two;
        items[0].tokens = items[1].tokens = tokens;
        items[0].n_tokens = 5;
        items[1].n_tokens = 12;
        attn_feed_batch(&ctx, items, 2);
        j->sum = add(j->sum, attn_session_logits(two), n_vocab * sizeof(float));
        attn_hook(&ctx, NULL, two, "*", count_calls, &calls);
        attn_feed(&ctx, two, tokens, 2);
        attn_unhook_all(two);
        generating.max_tokens = 8;
        generating.sampling.temperature = 0.8f;
        made.tokens = ids;
        made.room = 8;
        generating.ignore_eos = 1;
        generating.text_fn = add_text;
        generating.text_user = j;
        attn_generate(&ctx, &made, one, "", &generating);
        j->sum = add(j->sum, ids, made.n_tokens * sizeof *ids);
        attn_session_truncate(&ctx, two, 0);
        attn_score(&ctx, stats, NULL, two, tokens, TOKENS);
        for (size_t i = 0; i + 1 < TOKENS; i++)
            j->sum = add(j->sum, &stats[i].nll, sizeof stats[i].nll);
    }
    j->wrong = ctx.status != ATTN_OK || calls == 0;
    memcpy(j->message, ctx.message, sizeof j->message);
    attn_session_free(one);
    attn_session_free(two);
    attn_ctx_free(&ctx);
    return NULL;
}

/* ---- sessions that go from thread to thread ---- */

enum { HANDED = 8, TURNS = 60 };
static attn_session *handed[HANDED];
static pthread_mutex_t locks[HANDED];

/* Takes one session after another to a workspace of its own, whose other sessions another thread takes
 * away meanwhile. The locks are for the sessions; no lock is for a workspace. */
static void *take_over(void *user)
{
    static const int32_t tokens[] = {1, 2, 0};
    job *j = (job *)user;
    attn_ctx ctx;
    attn_workspace *workspace = NULL;
    attn_workspace_desc room;
    const size_t n_vocab = attn_model_config(model)->n_vocab;
    memset(&ctx, 0, sizeof ctx);
    memset(&room, 0, sizeof room);
    ctx.n_threads = n_workers;
    room.n_batch = 4;
    attn_workspace_new(&ctx, &workspace, model, &room);
    for (size_t i = 0; i < TURNS && ctx.status == ATTN_OK; i++) {
        const size_t k = (i * 5 + (size_t)(uintptr_t)user / sizeof *j) % HANDED;
        pthread_mutex_lock(&locks[k]);
        attn_session_set_workspace(&ctx, handed[k], workspace);
        if (i % 4 == 0) {
            attn_session_truncate(&ctx, handed[k], 0);
            attn_feed(&ctx, handed[k], tokens, 3);
            j->sum = add(j->sum, attn_session_logits(handed[k]), n_vocab * sizeof(float));
        }
        pthread_mutex_unlock(&locks[k]);
    }
    j->wrong = ctx.status != ATTN_OK;
    memcpy(j->message, ctx.message, sizeof j->message);
    attn_workspace_free(workspace); /* its sessions keep it */
    return NULL;
}

/* Half of the sessions have a hook, for which a workspace holds memory. */
static int hand_over(attn_ctx *ctx, int n)
{
    static job jobs[MOST];
    int wrong = 0;
    for (int i = 0; i < HANDED; i++) {
        attn_session_desc desc = {.n_ctx = 3};
        pthread_mutex_init(&locks[i], NULL);
        attn_session_new(ctx, &handed[i], model, &desc);
        if (handed[i] && i % 2)
            attn_hook(ctx, NULL, handed[i], "*.hook_pattern", look, NULL);
    }
    if (ctx->status == ATTN_OK)
        run(n, take_over, jobs);
    for (int i = 0; i < n; i++) {
        wrong += jobs[i].wrong || jobs[i].sum != jobs[0].sum;
        if (jobs[i].wrong)
            printf("handing over, thread %d: %s\n", i, jobs[i].message);
    }
    for (int i = 0; i < HANDED; i++) {
        attn_session_free(handed[i]);
        pthread_mutex_destroy(&locks[i]);
    }
    return wrong + (ctx->status != ATTN_OK);
}

/* ---- a feed that another thread stops ---- */

enum { ROUNDS = 40 };
static volatile int stop_flag;

/* Raises the flag after a while: at once in the first round, later in the others. */
static void *raise_flag(void *user)
{
    const int rounds = *(const int *)user;
    volatile int i;
    for (i = 0; i < rounds * 20000; i++)
        ;
    __atomic_store_n(&stop_flag, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* Wherever the stop finds it, the session is as it was before, or the feed has ended. */
static int stop_from_outside(void)
{
    attn_ctx ctx;
    attn_session *session = NULL;
    attn_session_desc desc;
    int32_t tokens[TOKENS];
    const size_t n_vocab = attn_model_config(model)->n_vocab;
    uint64_t want = 0;
    int i, wrong = 0;
    memset(&ctx, 0, sizeof ctx);
    memset(&desc, 0, sizeof desc);
    ctx.n_threads = n_workers;
    ctx.stop_flag = &stop_flag;
    desc.n_ctx = TOKENS;
    desc.n_batch = 3;
    for (i = 0; i < TOKENS; i++)
        tokens[i] = (int32_t)((size_t)i * 7 % 11 % n_vocab);
    if (attn_session_new(&ctx, &session, model, &desc) == ATTN_OK &&
        attn_feed(&ctx, session, tokens, TOKENS) == ATTN_OK)
        want = add(0, attn_session_logits(session), n_vocab * sizeof(float));
    for (i = 0; i < ROUNDS && ctx.status == ATTN_OK; i++) {
        pthread_t thread;
        attn_session_truncate(&ctx, session, 0);
        if (pthread_create(&thread, NULL, raise_flag, &i))
            break;
        if (i == 0)
            pthread_join(thread, NULL);
        attn_status status = attn_feed(&ctx, session, tokens, TOKENS);
        if (i > 0)
            pthread_join(thread, NULL);
        __atomic_store_n(&stop_flag, 0, __ATOMIC_RELAXED);
        wrong += status != ATTN_OK && status != ATTN_STOPPED;
        wrong += i == 0 && status != ATTN_STOPPED;
        wrong += attn_session_length(session) != (status == ATTN_OK ? TOKENS : 0);
        attn_session_truncate(&ctx, session, 0);
        attn_feed(&ctx, session, tokens, TOKENS);
        wrong += add(0, attn_session_logits(session), n_vocab * sizeof(float)) != want;
    }
    if (i < ROUNDS || wrong)
        printf("stopped from outside: %d of %d rounds, %d wrong: %s\n", i, (int)ROUNDS, wrong,
               ctx.message);
    attn_session_free(session);
    return wrong + (i < ROUNDS);
}

/* Uses a model that its owner has closed. The last thread that lets go of it frees it. */
static void *let_go(void *user)
{
    job *j = (job *)user;
    attn_session *another = NULL;
    attn_ctx ctx = {.n_threads = 1};
    j->wrong = attn_session_new(&ctx, &another, attn_session_model(j->last), NULL) != ATTN_OK;
    attn_session_free(j->last);
    attn_session_free(another);
    return NULL;
}

int main(int argc, char **argv)
{
    static job jobs[MOST], alone;
    attn_ctx ctx;
    int n = argc > 2 ? atoi(argv[2]) : 4, wrong = 0;
    n = n < 1 ? 1 : n > MOST ? MOST : n;
    n_workers = argc > 3 ? atoi(argv[3]) : 1;
    run(n, choose, jobs);
    memset(&ctx, 0, sizeof ctx);
    if (argc < 2 || attn_model_open(&ctx, &model, argv[1], NULL) != ATTN_OK) {
        fprintf(stderr, "%s\n",
                argc < 2 ? "usage: threads MODEL [THREADS [WORKERS]]" : ctx.message);
        return 2;
    }
    run(n, work, jobs);
    wrong += stop_from_outside();
    n_workers = 1;
    work(&alone);
    for (int i = 0; i < n; i++)
        if (jobs[i].wrong || jobs[i].sum != alone.sum) {
            printf("thread %d: %s\n", i, jobs[i].wrong ? jobs[i].message : "other bits");
            wrong++;
        }
    wrong += hand_over(&ctx, n);
    for (int i = 0; i < n; i++)
        wrong += attn_session_new(&ctx, &jobs[i].last, model, NULL) != ATTN_OK;
    attn_model_close(model);
    run(n, let_go, jobs);
    for (int i = 0; i < n; i++)
        wrong += jobs[i].wrong;
    printf("%d threads over one model, %d with other results\n", n, wrong);
    return wrong != 0;
}
