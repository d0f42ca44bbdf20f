/* attn_parallel_for, and the threads that attn.h makes itself (ATTN_THREADS): when they begin and end, what
 * they leave alone, and what happens to them at a fork and at an exit. All but what counts threads holds for
 * OpenMP's as well. */
#include "tools/common/files.h"
#include "tests/support/shared_models.h"
#include "tests/support/tasks.h"
#include <dirent.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

SUITE_WITH_MODELS("plain");

#if defined(ATTN_THREADS) && !defined(_OPENMP)
enum { OWN_THREADS = 1 };
#else
enum { OWN_THREADS = 0 };
#endif

static void rest(long milliseconds)
{
    struct timespec time = {0, 0};
    time.tv_nsec = milliseconds * 1000000;
    nanosleep(&time, NULL);
}

/* ---- attn_parallel_for ---- */

enum { MOST = 1000 };
typedef struct counts {
    int calls[MOST];
    int nested[MOST];
} counts;

static void count(size_t i, void *user)
{
    ((counts *)user)->calls[i]++;
}

/* A loop in a loop, and a product, each on one thread. */
static void count_and_compute(size_t i, void *user)
{
    SCOPED_CTX mine = {0};
    attn_tensor product = no_tensor, row = no_tensor;
    counts *c = (counts *)user;
    mine.n_threads = 1;
    c->calls[i]++;
    c->nested[i] = attn_parallel_for(&mine, 10, count, c) == ATTN_E_ARGUMENT;
    if (attn_zeros(&mine, &row, ATTN_F32, attn_shape2(20, 20)) ||
        attn_matmul(&mine, &product, row, row))
        c->nested[i] = 1;
}

TEST(every_index_once)
{
    static const size_t sizes[] = {0, 1, 2, 3, 17, MOST};
    SCOPED_CTX ctx = alone();
    for (ctx.n_threads = 1; ctx.n_threads <= 21; ctx.n_threads += ctx.n_threads < 5 ? 1 : 4)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            counts c = {{0}, {0}};
            OK(&ctx, attn_parallel_for(&ctx, sizes[k], count, &c));
            for (size_t i = 0; i < MOST; i++)
                CHECKF(c.calls[i] == (i < sizes[k]), "%d threads, %d of %d", ctx.n_threads, (int)i,
                       (int)sizes[k]);
        }
#ifdef TEST_THREADS
    EQUAL(attn_max_threads(&ctx), ctx.n_threads);
    ctx.n_threads = 1000;
    EQUAL(attn_max_threads(&ctx), 256);
#else
    EQUAL(attn_max_threads(&ctx), 1);
#endif
    CHECK(attn_max_threads(NULL) >= 1);
}

TEST(tasks_that_compute)
{
    SCOPED_CTX ctx = alone();
    static counts c;
    ctx.n_threads = 4;
    OK(&ctx, attn_parallel_for(&ctx, 40, count_and_compute, &c));
    for (size_t i = 10; i < 40; i++)
        CHECK(c.calls[i] == 1 && c.nested[i] == 0);
    FAILS(ARGUMENT, "attn_parallel_for", attn_parallel_for(&ctx, 3, NULL, NULL));
}

#ifdef TEST_THREADS
/* Each of n_threads tasks waits for the others. Ends after ten seconds, if a thread is missing. */
typedef struct meeting {
    pthread_mutex_t lock;
    int n_here, most;
} meeting;

static void meet(size_t i, void *user)
{
    meeting *const m = (meeting *)user;
    (void)i;
    pthread_mutex_lock(&m->lock);
    m->n_here++;
    for (int k = 0; k < 1000 && m->most < 4; k++) {
        m->most = m->n_here > m->most ? m->n_here : m->most;
        pthread_mutex_unlock(&m->lock);
        rest(10);
        pthread_mutex_lock(&m->lock);
    }
    m->n_here--;
    pthread_mutex_unlock(&m->lock);
}

TEST(as_many_threads_as_asked_for)
{
    SCOPED_CTX ctx = alone();
    meeting m = {PTHREAD_MUTEX_INITIALIZER, 0, 0};
    ctx.n_threads = 4;
    OK(&ctx, attn_parallel_for(&ctx, 4, meet, &m));
    EQUAL(m.most, 4);
}
#endif

/* ---- the threads of a workspace ---- */

/* How many threads of this process may run on other processors than the first one may. */
static int n_displaced(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    char first[300] = "";
    int n = 0;
    while (tasks && (entry = readdir(tasks)) != NULL) {
        char path[300], line[300] = "";
        snprintf(path, sizeof path, "/proc/self/task/%.200s/status", entry->d_name);
        FILE *f = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        while (f && fgets(line, sizeof line, f) && strncmp(line, "Cpus_allowed:", 13) != 0)
            continue;
        if (f)
            fclose(f);
        if (f && first[0] == 0)
            memcpy(first, line, sizeof first);
        n += f && strcmp(first, line) != 0;
    }
    if (tasks)
        closedir(tasks);
    return n;
}

/* Is the number reached within ten seconds? */
static int comes_to(int n)
{
    for (int i = 0; i < 1000 && n_tasks() != n; i++)
        rest(10);
    return n_tasks() == n;
}

/* From ten milliseconds after a call on, the workers cost no processor time. */
static int is_asleep(void)
{
    rest(10);
    const clock_t before = clock();
    rest(200);
    return clock() - before < CLOCKS_PER_SEC / 100;
}

static void feed_on(attn_ctx *ctx, attn_session *session, int n_threads)
{
    ctx->n_threads = n_threads;
    OK(ctx, attn_session_truncate(ctx, session, 0));
    OK(ctx, attn_feed(ctx, session, ten, 10));
}

/* Threads are made by the first pass for several, wait asleep, and end with the workspace. A pass of fewer
 * workers leaves the others asleep, but ends none. */
TEST_IF(OWN_THREADS, threads_of_a_workspace)
{
    const int before = n_tasks();
    SCOPED_CTX ctx = alone();
    if (!before) {
        test_skip("no /proc/self/task here");
        return;
    }
    ctx.n_threads = 5;
    attn_session *session = session_on(&ctx, plain, 0, 0);
    feed_on(&ctx, session, 1);
    EQUAL(n_tasks(), before);
    attn_session_free(session);
    ctx.n_threads = 5;
    session = session_on(&ctx, plain, 0, 0);
    feed_on(&ctx, session, 5);
    EQUAL(n_tasks(), before + 4);
    CHECK(is_asleep());
    for (int i = 0; i < 20; i++)
        feed_on(&ctx, session, 2);
    EQUAL(n_tasks(), before + 4);
    CHECK(is_asleep());
    attn_session_free(session);
    CHECK(comes_to(before)); /* joined, but perhaps still listed */
}

/* A worker that wakes on the processor of the first one leaves it, and may run anywhere again. */
TEST(workers_may_run_anywhere)
{
    SCOPED_CTX ctx = alone();
    ctx.n_threads = 2;
    SCOPED_SESSION session = session_on(&ctx, plain, 0, 0);
    for (int i = 0; i < 6; i++) {
        static counts c;
        OK(&ctx, attn_feed(&ctx, session, ten, 3));
        OK(&ctx, attn_parallel_for(&ctx, 2, count, &c));
        EQUAL(n_displaced(), 0);
        OK(&ctx, attn_session_truncate(&ctx, session, 0));
        rest(60);
    }
}

TEST(a_thousand_workspaces)
{
    SCOPED_CTX ctx = alone();
    attn_session *session;
    const float *want = logits_of(&ctx, plain, 0, ten, 10, 10);
    int wrong = 0;
    for (int i = 0; i < 1000; i++) {
        ctx.n_threads = 2 + i % 3;
        session = session_on(&ctx, plain, 0, 0);
        OK(&ctx, attn_feed(&ctx, session, ten, 10));
        wrong += differ(attn_session_logits(session), want + 9 * vocab_of(plain), vocab_of(plain));
        attn_session_free(session);
    }
    EQUAL(wrong, 0);
    if (OWN_THREADS && n_tasks() > 0)
        CHECK(comes_to(1));
}

static volatile sig_atomic_t n_signals;

static void note_signal(int number)
{
    (void)number;
    n_signals++;
}

/* As many as there may be, twice. */
TEST(the_most_threads)
{
    SCOPED_CTX ctx = alone();
    const float *want = logits_of(&ctx, plain, 0, ten, 10, 10) + 9 * vocab_of(plain);
    ctx.n_threads = 256;
    SCOPED_SESSION session = session_on(&ctx, plain, 0, 0);
    for (int i = 0; i < 2; i++) {
        OK(&ctx, attn_session_truncate(&ctx, session, 0));
        OK(&ctx, attn_feed(&ctx, session, ten, 10));
        CHECK(!differ(attn_session_logits(session), want, vocab_of(plain)));
    }
}

/* A signal that the program blocks does not reach the workers; the program's mask stays as it was. */
TEST_IF(OWN_THREADS, signals_are_the_programs)
{
    SCOPED_CTX ctx = alone();
    struct sigaction handling, before;
    sigset_t one, old, now;
    memset(&handling, 0, sizeof handling);
    handling.sa_handler = note_signal;
    sigaction(SIGUSR1, &handling, &before);
    ctx.n_threads = 3;
    SCOPED_SESSION session = session_on(&ctx, plain, 0, 0);
    feed_on(&ctx, session, 3);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    sigprocmask(SIG_BLOCK, &one, &old);
    CHECK(!sigismember(&old, SIGUSR1));
    kill(getpid(), SIGUSR1);
    feed_on(&ctx, session, 3);
    rest(20);
    EQUAL(n_signals, 0);
    sigpending(&now);
    CHECK(sigismember(&now, SIGUSR1));
    sigprocmask(SIG_SETMASK, &old, NULL);
    int wanted = n_signals;
    EQUAL(wanted, 1);
    sigaction(SIGUSR1, &before, NULL);
}

static struct {
    char *bytes;
    size_t size;
    pthread_t program;
    volatile sig_atomic_t n_opened;
} pages;

static void open_page(int number, siginfo_t *info, void *more)
{
    char *const at = (char *)info->si_addr - (size_t)info->si_addr % pages.size;
    (void)number, (void)more;
    if (mprotect(at, pages.size, PROT_READ | PROT_WRITE) != 0)
        _exit(3);
    pages.n_opened++;
}

/* Leaves the tasks to the workers. */
static void touch_page(size_t i, void *user)
{
    (void)user;
    if (pthread_equal(pthread_self(), pages.program))
        rest(20);
    else
        pages.bytes[i * pages.size] = 1;
}

/* A handler of faults, as runtimes have that open pages on demand, runs in the worker that made one. */
TEST_IF(OWN_THREADS && !TEST_SANITIZED, faults_reach_their_handler)
{
    SCOPED_CTX ctx = alone();
    struct sigaction handling, before;
    memset(&handling, 0, sizeof handling);
    handling.sa_sigaction = open_page;
    handling.sa_flags = SA_SIGINFO;
    pages.program = pthread_self();
    pages.size = (size_t)sysconf(_SC_PAGESIZE);
    pages.bytes =
        (char *)mmap(NULL, 64 * pages.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ctx.n_threads = 4;
    sigaction(SIGSEGV, &handling, &before);
    OK(&ctx, attn_parallel_for(&ctx, 64, touch_page, NULL));
    sigaction(SIGSEGV, &before, NULL);
    CHECK(pages.n_opened > 0);
    munmap(pages.bytes, 64 * pages.size);
}

static void *feed_rounding_upward(void *session)
{
    attn_ctx ctx = alone();
    fesetround(FE_UPWARD);
    feed_on(&ctx, (attn_session *)session, 2);
    return NULL;
}

/* The first pass of a workspace may come from a thread with another floating-point environment, which its workers do not
 * inherit. */
TEST_IF(OWN_THREADS, rounding_is_not_inherited)
{
    SCOPED_CTX ctx = alone();
    const float *want = logits_of(&ctx, plain, 0, ten, 10, 10) + 9 * vocab_of(plain);
    pthread_t thread;
    ctx.n_threads = 2;
    SCOPED_SESSION const session = session_on(&ctx, plain, 0, 0);
    if (CHECK(pthread_create(&thread, NULL, feed_rounding_upward, session) == 0))
        pthread_join(thread, NULL);
    feed_on(&ctx, session, 2);
    CHECK(!differ(attn_session_logits(session), want, vocab_of(plain)));
}

/* A pass on one thread needs no more stack than a build without threads: programs have fibers. */
static void *feed_alone(void *session)
{
    attn_ctx ctx = alone();
    feed_on(&ctx, (attn_session *)session, 1);
    return NULL;
}

TEST_IF(!TEST_SANITIZED, a_small_stack)
{
    SCOPED_CTX ctx = alone();
    pthread_attr_t small;
    pthread_t thread;
    ctx.n_threads = 1;
    SCOPED_SESSION const session = session_on(&ctx, plain, 0, 0);
    pthread_attr_init(&small);
    CHECK(pthread_attr_setstacksize(&small, 40 * 1024) == 0);
    if (CHECK(pthread_create(&thread, &small, feed_alone, session) == 0))
        pthread_join(thread, NULL);
    pthread_attr_destroy(&small);
}

#ifdef __linux__
/* A container's processors, and those that a program allows itself, may change while it runs. */
TEST_IF(OWN_THREADS, processors_are_asked_again)
{
    unsigned long before[128], one[128] = {0};
    const long size = syscall(SYS_sched_getaffinity, 0, sizeof before, before);
    const int most = attn_max_threads(NULL);
    size_t i = 0;
    if (size <= 0 || most < 2) {
        test_skip("one processor here");
        return;
    }
    while (!before[i])
        i++;
    one[i] = before[i] & (~before[i] + 1); /* the lowest bit */
    syscall(SYS_sched_setaffinity, 0, size, one);
    EQUAL(attn_max_threads(NULL), 1);
    syscall(SYS_sched_setaffinity, 0, size, before);
    EQUAL(attn_max_threads(NULL), most);
}
#endif

/* The child of a fork feeds its copy of the session, on threads that it makes, and frees it. The parent then feeds the
 * session on the threads that it had. */
TEST(a_session_across_a_fork)
{
    SCOPED_CTX ctx = alone();
    const float *want = logits_of(&ctx, plain, 0, ten, 10, 10) + 9 * vocab_of(plain);
    int status;
    ctx.n_threads = 3;
    attn_session *session = session_on(&ctx, plain, 0, 0);
    feed_on(&ctx, session, 3);
    for (int i = 0; i < 10; i++) {
        const pid_t child = fork();
        if (!CHECK(child >= 0))
            break;
        if (child == 0) {
            alarm(20); /* in place of a wait that does not end */
            if (i % 2 == 0)
                feed_on(&ctx, session, 3);
            int wrong = differ(attn_session_logits(session), want, vocab_of(plain));
            attn_session_free(session);
            _exit(wrong);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECKF(status == 0, "the child's status is %d", status);
        feed_on(&ctx, session, 3);
        CHECK(!differ(attn_session_logits(session), want, vocab_of(plain)));
    }
    attn_session_free(session);
}

/* The first ends the program while the other is in a pass. */
static void leave_or_feed(size_t i, void *user)
{
    attn_session *session = (attn_session *)user;
    if (i == 0) {
        rest(3);
        exit(7); /* NOLINT(concurrency-mt-unsafe): this is the case */
    }
    attn_ctx mine = {.n_threads = 2};
    for (;;) {
        attn_session_truncate(&mine, session, 0);
        attn_feed(&mine, session, ten, 10);
    }
}

TEST(an_exit_during_a_pass)
{
    SCOPED_CTX ctx = alone();
    int status = 0;
    ctx.n_threads = 2;
    SCOPED_SESSION session = session_on(&ctx, plain, 0, 0);
    for (int i = 0; i < 10; i++) {
        const pid_t child = fork();
        if (!CHECK(child >= 0))
            break;
        if (child == 0) {
            alarm(20);
            attn_parallel_for(&ctx, 2, leave_or_feed, session);
            _exit(1);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECKF(WIFEXITED(status) && WEXITSTATUS(status) == 7, "the child's status is %d", status);
    }
}
