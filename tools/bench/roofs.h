/* Measures the limits (roofs) of this machine: multiply-adds of floats, dot products of bytes, and bytes
 * read from memory, per second. Include it after the implementation of attn.h: the roofs run on the
 * same threads as the model (attn__parallel), with the same instruction set (attn_isa).
 *
 * The arithmetic loops keep 10 or more independent sums in registers and access no memory, so they
 * run at the rate of the arithmetic units. There are several forms of the reading loops, because
 * machines differ in which is the fastest: a thread reads its part as 1 to 8 parallel streams, with or
 * without prefetching, and the fastest form counts. */
#ifndef TOOLS_ROOFS_H
#define TOOLS_ROOFS_H

#include "tools/common/system.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#endif

/* Seconds since some moment; with of_thread, only those in which this thread ran. */
static double clock_seconds(int of_thread)
{
#if defined(__unix__) || defined(__APPLE__)
    struct timespec now;
    clock_gettime(of_thread ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#else
    (void)of_thread;
    return (double)clock() / CLOCKS_PER_SEC;
#endif
}

/* The clock of all measurements: 1 for that of the thread. */
static int clock_of_thread;

static double seconds(void)
{
    return clock_seconds(clock_of_thread);
}

/* ---- loops, for each instruction set ---- */

/* Runs n steps. x[0] and x[1] are operands that the compiler cannot know; the result is added to x[2]. */
typedef void (*roof_step_fn)(size_t n, float *x);
/* Reads `size` bytes, a multiple of streams * 256. The result depends on all of them. */
typedef uint64_t (*roof_read_fn)(const unsigned char *p, size_t size, int streams, size_t ahead);

typedef struct roof_loops {
    const char *isa; /* a word of attn_isa() */
    roof_step_fn f32, bytes;
    double f32_ops, bytes_ops; /* of one step; a multiply-add counts as two */
    roof_read_fn read;
} roof_loops;

/* Defines a function with `sums` independent sums, each of which takes one step in each of n rounds. */
#define ROOF_STEPS(name, target, vec, sums, set, step)                                             \
    target static void name(size_t n, float *x)                                                    \
    {                                                                                              \
        const vec w = set(x[0]), v = set(x[1]);                                                    \
        vec a[sums];                                                                               \
        float first;                                                                               \
        int i;                                                                                     \
        for (i = 0; i < (sums); i++)                                                               \
            a[i] = set((float)i);                                                                  \
        for (; n > 0; n--) {                                                                       \
            ATTN__UNROLL                                                                           \
            for (i = 0; i < (sums); i++)                                                           \
                a[i] = step(a[i], w, v);                                                           \
        }                                                                                          \
        for (i = 0; i < (sums); i++) {                                                             \
            memcpy(&first, &a[i], sizeof first);                                                   \
            x[2] += first;                                                                         \
        }                                                                                          \
    }

/* Defines a function that reads four cache lines of each stream at a time. */
#define ROOF_READ(name, target, vec, load, combine)                                                \
    target static uint64_t name(const unsigned char *p, size_t size, int streams, size_t ahead)    \
    {                                                                                              \
        const size_t part = size / (size_t)streams;                                                \
        vec a[4];                                                                                  \
        uint64_t words[4 * sizeof(vec) / 8], all = 0;                                              \
        size_t at, i;                                                                              \
        memset(a, 0, sizeof a);                                                                    \
        for (at = 0; at < part; at += 256) {                                                       \
            const unsigned char *line = p + at;                                                    \
            int s;                                                                                 \
            for (s = 0; s < streams; s++, line += part) {                                          \
                for (i = 0; ahead && i < 256; i += 64)                                             \
                    ATTN__PREFETCH(line + ahead + i);                                              \
                ATTN__UNROLL                                                                       \
                for (i = 0; i < 256 / sizeof(vec); i++)                                            \
                    a[i % 4] = combine(a[i % 4], load(line + i * sizeof(vec)));                    \
            }                                                                                      \
        }                                                                                          \
        memcpy(words, a, sizeof a);                                                                \
        for (i = 0; i < sizeof words / 8; i++)                                                     \
            all |= words[i];                                                                       \
        return all;                                                                                \
    }

#define ROOF_ANY /* no target attribute: the compiler flags decide */

#if defined(ATTN__DISPATCH) &&                                                                     \
    defined(ATTN__X86) /* code for processors that have more than the flags allow */
#define ROOF_AVX2   __attribute__((target("avx2,fma")))
#define ROOF_AVX512 __attribute__((target("avx512f,avx512bw")))
#define ROOF_VNNI   __attribute__((target("avx512f,avx512bw,avx512vnni")))

/* Products of bytes, added in pairs of pairs. In assembly, because the compiler would compute the
 * products, which are the same in every step, only once. */
ROOF_AVX2 ATTN__INLINE __m256i roof_dot_avx2(__m256i a, __m256i w, __m256i v)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i pairs;
    __asm__ volatile("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
                     : "+x"(a), "=&x"(pairs)
                     : "x"(w), "x"(v), "x"(ones));
    return a;
}
ROOF_AVX512 ATTN__INLINE __m512i roof_dot_avx512(__m512i a, __m512i w, __m512i v)
{
    const __m512i ones = _mm512_set1_epi16(1);
    __m512i pairs;
    __asm__ volatile("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
                     : "+v"(a), "=&v"(pairs)
                     : "v"(w), "v"(v), "v"(ones));
    return a;
}
/* In assembly, because gcc copies every sum before and after the intrinsic, which makes the loop up to
 * a fifth slower. */
ROOF_VNNI ATTN__INLINE __m512i roof_dot_vnni(__m512i a, __m512i w, __m512i v)
{
    __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(a) : "v"(w), "v"(v));
    return a;
}
#define ROOF_FMA_AVX2(a, w, v)   _mm256_fmadd_ps(a, w, v)
#define ROOF_FMA_AVX512(a, w, v) _mm512_fmadd_ps(a, w, v)
#define ROOF_SET_AVX2(x)         _mm256_castps_si256(_mm256_set1_ps(x))
#define ROOF_SET_AVX512(x)       _mm512_castps_si512(_mm512_set1_ps(x))
#define ROOF_LOAD_AVX2(p)        _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define ROOF_LOAD_AVX512(p)      _mm512_loadu_si512((const void *)(p))
ROOF_STEPS(roof_f32_avx2, ROOF_AVX2, __m256, 12, _mm256_set1_ps, ROOF_FMA_AVX2)
ROOF_STEPS(roof_f32_avx512, ROOF_AVX512, __m512, 16, _mm512_set1_ps, ROOF_FMA_AVX512)
ROOF_STEPS(roof_bytes_avx2, ROOF_AVX2, __m256i, 10, ROOF_SET_AVX2, roof_dot_avx2)
ROOF_STEPS(roof_bytes_avx512, ROOF_AVX512, __m512i, 16, ROOF_SET_AVX512, roof_dot_avx512)
ROOF_STEPS(roof_bytes_vnni, ROOF_VNNI, __m512i, 16, ROOF_SET_AVX512, roof_dot_vnni)
#ifdef ATTN__AVX2_VNNI
#define ROOF_AVX2_VNNI __attribute__((target("avx2,avxvnni")))
ROOF_AVX2_VNNI ATTN__INLINE __m256i roof_dot_avx2_vnni(__m256i a, __m256i w, __m256i v)
{
    __asm__ volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(a) : "x"(w), "x"(v));
    return a;
}
ROOF_STEPS(roof_bytes_avx2_vnni, ROOF_AVX2_VNNI, __m256i, 12, ROOF_SET_AVX2, roof_dot_avx2_vnni)
#endif
ROOF_READ(roof_read_avx2, ROOF_AVX2, __m256i, ROOF_LOAD_AVX2, _mm256_or_si256)
ROOF_READ(roof_read_avx512, ROOF_AVX512, __m512i, ROOF_LOAD_AVX512, _mm512_or_si512)
#endif

#if defined(ATTN__NEON)
ATTN__INLINE int32x4_t roof_dot_neon(int32x4_t a, int8x16_t w, int8x16_t v)
{
    int16x8_t products;
    __asm__ volatile("smull %0.8h, %1.8b, %2.8b" : "=w"(products) : "w"(w), "w"(v));
    return vpadalq_s16(a, products);
}
#define ROOF_DOT_NEON(a, w, v) roof_dot_neon(a, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(v))
#define ROOF_FMA_NEON(a, w, v) vfmaq_f32(v, a, w)
#define ROOF_SET_NEON(x)       vreinterpretq_s32_f32(vdupq_n_f32(x))
ROOF_STEPS(roof_f32_neon, ROOF_ANY, float32x4_t, 16, vdupq_n_f32, ROOF_FMA_NEON)
ROOF_STEPS(roof_bytes_neon, ROOF_ANY, int32x4_t, 16, ROOF_SET_NEON, ROOF_DOT_NEON)
#if defined(ATTN__DISPATCH)
#define ROOF_DOT  __attribute__((target(ATTN__DOT)))
#define ROOF_I8MM __attribute__((target(ATTN__I8MM)))
#else
#define ROOF_DOT
#define ROOF_I8MM
#endif
#if defined(ATTN__DISPATCH) || ATTN__WIDEST >= 6
#define ROOF_DOT_SDOT(a, w, v) vdotq_s32(a, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(v))
ROOF_STEPS(roof_bytes_dot, ROOF_DOT, int32x4_t, 16, ROOF_SET_NEON, ROOF_DOT_SDOT)
#endif
#if defined(ATTN__DISPATCH) || ATTN__WIDEST >= 7
#define ROOF_DOT_SMMLA(a, w, v) vmmlaq_s32(a, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(v))
ROOF_STEPS(roof_bytes_i8mm, ROOF_I8MM, int32x4_t, 16, ROOF_SET_NEON, ROOF_DOT_SMMLA)
#endif
ROOF_READ(roof_read_neon, ROOF_ANY, uint8x16_t, vld1q_u8, vorrq_u8)
#endif

#if defined(ATTN__X86) /* SSE2 has no fused multiply-add, and multiplies 16 bits instead of 8 */
ATTN__INLINE __m128i roof_dot_base(__m128i a, __m128i w, __m128i v)
{
#if defined(__GNUC__)
    __asm__ volatile("pmaddwd %1, %0" : "+x"(w) : "x"(v));
    return _mm_add_epi32(a, w);
#else
    return _mm_add_epi32(a, _mm_madd_epi16(w, v));
#endif
}
#define ROOF_FMA_BASE(a, w, v) _mm_add_ps(_mm_mul_ps(a, w), v)
#define ROOF_SET_BASE(x)       _mm_castps_si128(_mm_set1_ps(x))
#define ROOF_LOAD_BASE(p)      _mm_loadu_si128((const __m128i *)(const void *)(p))
ROOF_STEPS(roof_f32_base, ROOF_ANY, __m128, 12, _mm_set1_ps, ROOF_FMA_BASE)
ROOF_STEPS(roof_bytes_base, ROOF_ANY, __m128i, 10, ROOF_SET_BASE, roof_dot_base)
ROOF_READ(roof_read_base, ROOF_ANY, __m128i, ROOF_LOAD_BASE, _mm_or_si128)
enum { ROOF_BASE_F32 = 12 * 8, ROOF_BASE_BYTES = 10 * 16 };
#else
ATTN__INLINE uint64_t roof_word(const unsigned char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}
#define ROOF_FMA_BASE(a, w, v) ((a) * (w) + (v))
#define ROOF_SET_BASE(x)       (x)
#define ROOF_OR_BASE(a, b)     ((a) | (b))
ROOF_STEPS(roof_f32_base, ROOF_ANY, float, 16, ROOF_SET_BASE, ROOF_FMA_BASE)
ROOF_READ(roof_read_base, ROOF_ANY, uint64_t, roof_word, ROOF_OR_BASE)
#define roof_bytes_base        NULL /* the roof is not known */
enum { ROOF_BASE_F32 = 16 * 2, ROOF_BASE_BYTES = 0 };
#endif

/* The first entry whose `isa` is a word of attn_isa() is used. */
static const roof_loops roof_table[] = {
#if defined(ATTN__DISPATCH) && defined(ATTN__X86)
    {"avx512 vnni", roof_f32_avx512, roof_bytes_vnni, 16 * 32, 16 * 128, roof_read_avx512},
    {"avx512", roof_f32_avx512, roof_bytes_avx512, 16 * 32, 16 * 128, roof_read_avx512},
#ifdef ATTN__AVX2_VNNI
    {"avx2 vnni", roof_f32_avx2, roof_bytes_avx2_vnni, 12 * 16, 12 * 64, roof_read_avx2},
#endif
    {"avx2", roof_f32_avx2, roof_bytes_avx2, 12 * 16, 10 * 64, roof_read_avx2},
#endif
#if defined(ATTN__NEON)
#if defined(ATTN__DISPATCH) || ATTN__WIDEST >= 7
    {"i8mm", roof_f32_neon, roof_bytes_i8mm, 16 * 8, 16 * 64, roof_read_neon},
#endif
#if defined(ATTN__DISPATCH) || ATTN__WIDEST >= 6
    {"dotprod", roof_f32_neon, roof_bytes_dot, 16 * 8, 16 * 32, roof_read_neon},
#endif
    {"neon", roof_f32_neon, roof_bytes_neon, 16 * 8, 16 * 16, roof_read_neon},
#endif
    {"", roof_f32_base, roof_bytes_base, ROOF_BASE_F32, ROOF_BASE_BYTES, roof_read_base}};

/* ---- measuring ---- */

typedef enum roof_kind { ROOF_F32, ROOF_BYTES, ROOF_MEMORY, ROOF_KINDS } roof_kind;

enum { ROOF_MAX_THREADS = 256, ROOF_FORMS = 12 };
static const struct {
    int streams;
    size_t ahead;
} roof_forms[ROOF_FORMS] = {{1, 0}, {1, 1024}, {1, 4096}, {2, 0}, {2, 1024}, {2, 4096},
                            {4, 0}, {4, 1024}, {4, 4096}, {8, 0}, {8, 1024}, {8, 4096}};

typedef struct roofs {
    const roof_loops *loops;
    double shortest;       /* the least seconds of a measurement */
    unsigned char *memory; /* to be read; at a multiple of 2 MiB */
    size_t size;
    void *block;
    int form[ROOF_MAX_THREADS + 1]; /* by number of threads: 1 + the fastest form, 0 if not known */
    double
        rate[ROOF_MAX_THREADS + 1]; /* by number of threads: the highest rate of reading so far */
    size_t steps[ROOF_MEMORY];      /* of arithmetic: as many as take `shortest` */
    float sink[ROOF_MAX_THREADS][64];
} roofs;

typedef struct roof_job {
    roofs *r;
    roof_kind kind;
    size_t n; /* steps, or bytes to read */
    int form;
    size_t rounds;
} roof_job;

static void roof_work(attn__worker *me, void *arg)
{
    const roof_job *job = (const roof_job *)arg;
    const roof_loops *loops = job->r->loops;
    float *x = job->r->sink[me->id];
    size_t first, last;
    x[0] = 0.5f;
    x[1] = 0.25f;
    if (job->kind != ROOF_MEMORY) {
        (job->kind == ROOF_F32 ? loops->f32 : loops->bytes)(job->n, x);
        return;
    }
    attn__share(me, job->n / 4096, &first, &last);
    for (size_t round = 0; round < job->rounds; round++)
        x[3] = (float)loops->read(job->r->memory + first * 4096, (last - first) * 4096,
                                  roof_forms[job->form].streams, roof_forms[job->form].ahead);
}

static double roof_time(const roof_job *job, int n_threads)
{
    const double start = seconds();
    attn__parallel(NULL, n_threads, roof_work, (void *)(uintptr_t)job);
    return seconds() - start;
}

static double roof_once(roofs *r, roof_kind kind, size_t size, int n_threads, int form)
{
    roof_job job = {r, kind, 0, form, 1};
    double amount, rate;
    if (kind == ROOF_MEMORY) {
        size = size > r->size ? r->size : size < 65536 ? 65536 : size;
        job.n = size / 4096 * 4096;
        amount = (double)job.n;
        roof_time(&job, n_threads); /* fills the caches */
        job.rounds = (size_t)(r->shortest * r->rate[n_threads] / amount) + 1;
        rate = amount * (double)job.rounds / roof_time(&job, n_threads);
        r->rate[n_threads] = rate > r->rate[n_threads] ? rate : r->rate[n_threads];
        return rate;
    }
    amount = (double)n_threads * (kind == ROOF_F32 ? r->loops->f32_ops : r->loops->bytes_ops);
    job.n = r->steps[kind];
    return amount * (double)job.n / roof_time(&job, n_threads);
}

/* Operations or bytes per second, or 0 if the roof is not known. For ROOF_MEMORY, `size` bytes are read
 * repeatedly. */
static double roof_measure(roofs *r, roof_kind kind, size_t size, int n_threads)
{
    if (kind == ROOF_BYTES && !r->loops->bytes)
        return 0;
    if (kind == ROOF_MEMORY && !r->form[n_threads]) {
        double best = 0;
        for (int round = 0; round < 2; round++)
            for (int form = 0; form < ROOF_FORMS; form++) {
                const double rate = roof_once(r, kind, size, n_threads, form);
                if (rate > best)
                    r->form[n_threads] = form + 1;
                best = rate > best ? rate : best;
            }
    }
    return roof_once(r, kind, size, n_threads, r->form[n_threads] - 1);
}

/* Makes the memory at least `size` bytes large, in large pages if the system has them. */
static int roofs_memory(roofs *r, size_t size)
{
    const size_t page = (size_t)2 << 20;
    size = (size + page - 1) / page * page;
    if (size <= r->size)
        return 1;
    free(r->block);
    r->size = 0;
    r->block = malloc(size + page);
    if (!r->block)
        return 0;
    r->memory = (unsigned char *)r->block + (page - (uintptr_t)r->block % page) % page;
#if defined(MADV_HUGEPAGE)
    madvise(r->memory, size, MADV_HUGEPAGE); /* only a hint, so it may fail */
#endif
    memset(r->memory, 1, size);
    r->size = size;
    return 1;
}

static void roofs_init(roofs *r, const char *isa, double shortest)
{
    roof_job job = {.r = r};
    *r = (roofs){.loops = roof_table, .shortest = shortest};
    while (!strstr(isa, r->loops->isa))
        r->loops++;
    for (job.kind = ROOF_F32; job.kind <= (r->loops->bytes ? ROOF_BYTES : ROOF_F32); job.kind++) {
        job.n = 1000;
        while (roof_time(&job, 1) < shortest)
            job.n *= 2;
        r->steps[job.kind] = job.n;
    }
}

static void roofs_free(roofs *r)
{
    free(r->block);
    r->block = NULL;
}

/* ---- the latency between two threads ---- */

#if defined(__GNUC__)
typedef struct ping_pong {
    int ball; /* whose turn it is */
    char line[60];
    double took;
    long trips;
    double until;
} ping_pong;

static void ping_pong_work(attn__worker *me, void *arg)
{
    ping_pong *p = (ping_pong *)arg;
    int ball = 0;
    if (me->count != 2)
        return;
    for (;;) {
        const double start = seconds();
        for (int i = 0; i < 1000; i++) {
            while ((ball = __atomic_load_n(&p->ball, __ATOMIC_ACQUIRE)) >= 0 && ball != me->id)
                continue;
            if (ball < 0)
                return;
            __atomic_store_n(&p->ball, 1 - me->id, __ATOMIC_RELEASE);
        }
        if (me->id == 0) {
            const double now = seconds(), took = (now - start) / 1000;
            p->took = p->trips == 0 || took < p->took ? took : p->took;
            p->trips += 1000;
            if (now > p->until) {
                do
                    ball = __atomic_load_n(&p->ball, __ATOMIC_ACQUIRE);
                while (ball != 0);
                __atomic_store_n(&p->ball, -1, __ATOMIC_RELEASE);
                return;
            }
        }
    }
}

/* The seconds in which a cache line goes from one thread to another and back, or 0 with one processor.
 * The fastest of many runs of 1000, since only the distance of the threads is of interest. */
static double roof_ping_pong(double how_long)
{
    ping_pong p = {.until = seconds() + how_long};
    attn__parallel(NULL, 2, ping_pong_work, &p);
    return p.took;
}
#endif

#endif
