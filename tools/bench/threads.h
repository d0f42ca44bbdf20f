/* Section threads: compares numbers of threads, on an idle machine and on a busy one. */
#ifndef BENCH_THREADS_H
#define BENCH_THREADS_H

#include "process.h"
#include <signal.h>

#ifdef BENCH_CHILD
/* bench --busy: keeps a processor busy until it is killed or the bench has ended. */
static int busy(void)
{
    const pid_t parent = getppid();
    volatile unsigned n = 0;
    while (++n % 1000000 || getppid() == parent)
        continue;
    return 0;
}

enum { MAX_BUSY = 256, MAX_COUNTS = 5 };

/* Starts n busy processes; returns how many run. */
static int start_busy(bench *b, pid_t *pids, int n)
{
    char *words[3];
    int i;
    words[0] = (char *)(uintptr_t)b->program;
    words[1] = (char *)(uintptr_t) "--busy";
    words[2] = NULL;
    for (i = 0; i < n; i++)
        if (posix_spawnp(&pids[i], b->program, NULL, NULL, words, environ)) {
            tool_fail(&b->ctx, ATTN_E_IO, "a second process of %s failed", b->program);
            break;
        }
    return i;
}

static void stop_busy(const pid_t *pids, int n)
{
    while (n-- > 0) {
        kill(pids[n], SIGKILL);
        waitpid(pids[n], NULL, 0);
    }
}

/* The same work with several numbers of threads. The last is 0, the default. */
typedef struct race {
    int n_counts, counts[MAX_COUNTS];
    feed_arg *
        sessions[MAX_COUNTS]; /* one for each number, because a session remembers the best number */
    measured m[MAX_COUNTS];
    double worst; /* the lowest speed of the default, as a share of the best number's */
} race;

/* The numbers are 1, ..., most / 4, most / 2, most, and 0 for the default. */
static void race_counts(race *r, int most)
{
    int n = 1;
    for (int i = most; i > 1 && n < MAX_COUNTS - 1; i /= 2)
        n++;
    r->n_counts = n + 1;
    r->counts[0] = 1;
    r->counts[n] = 0;
    for (int i = most; --n > 0; i /= 2)
        r->counts[n] = i;
}

/* Runs the numbers in turn. The first turn does not count, because the default looks for its number
 * then. The start of each run does not count either: OpenMP's threads of the run before still keep
 * processors busy. */
static int race_run(bench *b, race *r, const task *t, double seconds_each)
{
    const int n_repeats = b->quick ? 1 : b->repeats;
    memset(r->m, 0, sizeof r->m);
    for (int repeat = -1; repeat < n_repeats; repeat++)
        for (int i = 0; i < r->n_counts; i++) {
            task mine = *t;
            mine.arg = r->sessions[i];
            b->ctx.n_threads = r->m[i].threads = r->counts[i];
            double took = run_some(b, &mine, b->quick ? 0.01 : 0.05);
            if (took >= 0)
                took = run_some(b, &mine, seconds_each);
            if (took < 0)
                return 0;
            if (repeat >= 0)
                r->m[i].value[r->m[i].n++] = t->amount / took;
        }
    return 1;
}

static void race_report(bench *b, race *r, const task *t)
{
    double best = 0, value = 0, spread;
    char text[16];
    fprintf(b->table, "%-27s", t->name);
    for (int i = 0; i < r->n_counts; i++) {
        value = median(r->m[i].value, r->m[i].n, &spread);
        fprintf(b->table, " %10s", shown_number(text, value));
        put_figure(b, t, &r->m[i], value, spread, 0, 0);
        if (r->counts[i] && value > best)
            best = value;
    }
    fprintf(b->table, " %7.0f%%\n", 100 * value / best);
    fflush(b->table);
    if (value / best < r->worst)
        r->worst = value / best;
}

static int race_beside(bench *b, race *r, const char *work, task *t, int n_busy)
{
    pid_t pids[MAX_BUSY];
    int running = start_busy(b, pids, n_busy < MAX_BUSY ? n_busy : MAX_BUSY);
    int good = running == n_busy && race_run(b, r, t, b->quick ? 0.01 : 0.5);
    stop_busy(pids, running);
    snprintf(t->name, sizeof t->name, n_busy ? "%s, %d busy" : "%s, idle", work, n_busy);
    if (good)
        race_report(b, r, t);
    return good;
}

/* Generation, or prompts of 64 tokens: with no busy process, with one and with many. */
static int race_all(bench *b, race *r, const char *work, int one_by_one)
{
    const int most = b->threads[b->n_counts - 1], beside[] = {0, 1, most};
    const size_t count = !one_by_one ? 64 : b->quick ? 4 : 16;
    task t = new_task(b, THREADS, (double)count, "tok/s", run_feed, NULL);
    int good = 1;
    for (int i = 0; i < r->n_counts && good; i++) {
        feed_arg *const a = r->sessions[i] = open_sessions(b, 1, 96, ATTN_F32);
        good = a != NULL;
        if (!a)
            break;
        a->count = count;
        a->one_by_one = one_by_one;
        if (one_by_one)
            fill_sessions(b, a, PROMPT);
    }
    for (int i = 0; i < (most > 1 ? 3 : 2) && good; i++)
        good = race_beside(b, r, work, &t, beside[i]);
    for (int i = 0; i < r->n_counts; i++) {
        close_sessions(r->sessions[i]);
        r->sessions[i] = NULL;
    }
    return good;
}

static int section_threads(bench *b)
{
    race r = ATTN_ZERO;
    race_counts(&r, b->threads[b->n_counts - 1]);
    r.worst = 1e300;
    fprintf(b->table, "\nthreads, tok/s%13s", "");
    for (int i = 0; i < r.n_counts - 1; i++)
        fprintf(b->table, " %3d thread%s", r.counts[i], r.counts[i] == 1 ? "" : "s");
    fprintf(b->table, "    default  of best\n");
    if (too_short(b, 96))
        return 1;
    int good = race_all(b, &r, "generation", 1) && race_all(b, &r, "prompt of 64", 0);
    if (good)
        fprintf(b->table, "the default is at %.0f %% of the best fixed number at worst\n",
                100 * r.worst);
    return good;
}
#endif

#endif
