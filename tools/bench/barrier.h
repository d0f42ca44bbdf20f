/* Section barrier: the time of one barrier of all workers, and, for comparison, the time in which a cache
 * line travels from one worker to another and back. */
#ifndef BENCH_BARRIER_H
#define BENCH_BARRIER_H

#include "measure.h"

#ifdef ATTN__TEAMS
#define BENCH_BARRIER

/* A counter that two workers increment in turn. It has a cache line to itself. */
typedef struct ball {
    char before[128];
    int n;
    char after[128];
} ball;

typedef struct meeting {
    int n_rounds; /* a multiple of 2 */
    double seconds;
    ball ball;
} meeting;

static void meet(attn__worker *me, void *arg)
{
    meeting *m = (meeting *)arg;
    attn__barrier(me);
    double began = clock_seconds(0);
    for (int i = 0; i < m->n_rounds; i++)
        attn__barrier(me);
    if (me->id == 0)
        m->seconds = clock_seconds(0) - began;
}

/* The first worker raises the number when it is even, the last one when it is odd. */
static void play(attn__worker *me, void *arg)
{
    meeting *m = (meeting *)arg;
    const int parity = me->id == 0 ? 0 : 1;
    int spins = 0;
    attn__barrier(me);
    if (me->id > 0 && me->id + 1 < me->count)
        return;
    double began = clock_seconds(0);
    for (int i = parity; i < m->n_rounds; i += 2) {
        while (__atomic_load_n(&m->ball.n, __ATOMIC_ACQUIRE) != i)
            if (++spins % 1000 == 0)
                ATTN__YIELD(); /* the other may need this processor */
        __atomic_store_n(&m->ball.n, i + 1, __ATOMIC_RELEASE);
    }
    if (me->id == 0)
        m->seconds = clock_seconds(0) - began;
}

/* Nanoseconds of a round of `body`, the median of b->repeats; `each` rounds count as one. */
static double time_rounds(bench *b, int n_workers, void (*body)(attn__worker *, void *), int each,
                          double *spread)
{
    double values[MAX_REPEATS];
    meeting m = ATTN_ZERO;
    int i;
    for (i = 0, m.n_rounds = 64; i < b->repeats;) {
        m.ball.n = 0;
        attn__parallel(NULL, n_workers, body, &m);
        if (m.seconds < b->shortest && m.n_rounds < 1 << 20)
            m.n_rounds *= 2;
        else
            values[i++] = m.seconds / m.n_rounds * each * 1e9;
    }
    return median(values, b->repeats, spread);
}

static int section_barrier(bench *b)
{
    fprintf(b->table, "\nbarrier                      ns   +-   a line there and back, ns\n");
    for (int n = 2; n <= 16; n *= 2) {
        double spread, unused;
        const double barrier = time_rounds(b, n, meet, 1, &spread);
        const double line = time_rounds(b, n, play, 2, &unused);
        task t = new_task(b, BARRIER, 1, "ns", NULL, NULL);
        measured m = ATTN_ZERO;
        char text[2][16];
        m.threads = n;
        snprintf(t.name, sizeof t.name, "%d workers%s", n, n > attn__offered() ? ", too many" : "");
        fprintf(b->table, "%-22s %8s %3.0f%% %10s\n", t.name, shown_number(text[0], barrier),
                100 * spread, shown_number(text[1], line));
        put_figure(b, &t, &m, barrier, spread, line, 0);
    }
    fflush(b->table);
    return 1;
}
#endif

#endif
