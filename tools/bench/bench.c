/* cc tools/bench/bench.c -I. -O2 -fopenmp -lm -o bench
 *
 * How fast is it, and how fast could this machine be? Everything is measured next to the roofs that
 * bound it: the arithmetic that the work cannot do without, at the rate at which this processor
 * does nothing else, or the bytes that it must read, at the rate at which this processor does
 * nothing else, whichever takes longer. A share of 100 % means that no program with these
 * instructions could be faster. A roof is measured right before the work and right after it, and
 * the higher one counts. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* for madvise */
#endif
#include "tools/common/system.h"
#if defined(__GNUC__) && defined(__x86_64__)
#include <cpuid.h>
#endif
#define ATTN_STATIC /* matmul is timed as the model uses it: inside the header */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "tools/common/vocab_files.h"
#include "bench_model.h"
#include "roofs.h"
#include <signal.h>
#if defined(__unix__) || defined(__APPLE__)
#include <spawn.h>
#include <sys/wait.h>
extern char **environ;
#define BENCH_CHILD
#endif

#define PROGRAM "bench"
#include "tools/common/program.h"

#ifdef _OPENMP
#define COUNTS "1 256" /* ROOF_MAX_THREADS */
#else
#define COUNTS "1 1"
#endif
enum { MAX_REPEATS = 9, PROMPT = 32 };

/* Parts of the table, in its order; bits of bench.sections. */
typedef enum bench_section {
    ROOFS = 1,
    MATMUL = 2,
    PROMPTS = 4,
    GENERATION = 8,
    SPECULATION = 16,
    BATCH = 32,
    MIXED = 64,
    GLASS = 128,
    THREADS = 256,
    FIRST = 512,
    MEMORY = 1024,
    TOKENIZER = 2048
} bench_section;
#define SECTIONS                                                                                   \
    "roofs matmul prompt generation speculation batch mixed glass threads first memory tokenizer"
enum { N_SECTIONS = 12 };

static const char *section_name(int i)
{
    static char names[N_SECTIONS][16];
    size_t size;
    const char *name = name_at(SECTIONS, i, &size);
    memcpy(names[i], name, size);
    return names[i];
}

#define DTYPES "f32 f16 q8 q4"
static const struct {
    const char *name;
    attn_dtype dtype;
} dtypes[] = {{"f32", ATTN_F32}, {"f16", ATTN_F16}, {"q8", ATTN_Q8}, {"q4", ATTN_Q4}};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

typedef struct options {
    const char *model, *tokenizer, *json;
    int size; /* an index of model_shapes, or -1 */
    unsigned dtypes, sections;
    size_t threads;
    int quick, cpu_time, help, version;
} options;

static const struct option table[] = {
#define AT(member) offsetof(options, member), 0 /* no commands */
    {'m', "model", "FILE", TEXT, AT(model), NULL,
     "measure this model, as if it were the first word"},
    {0, "size", "SIZE", CHOICE, AT(size), "124M 355M 774M 1558M",
     "of random weights: 124M (the default), 355M, 774M or 1558M"},
    {0, "dtype", "TYPE", CHOICES, AT(dtypes), DTYPES,
     "of random weights: f32, f16, q8 or q4; several with commas between them. Default: all; with "
     "--quick f32 and q8; above 124M q8"},
    {0, "only", "SECTION", CHOICES, AT(sections), SECTIONS,
     "roofs, matmul, prompt, generation, speculation, batch, mixed, glass, threads, first, memory "
     "or tokenizer; several with commas between them"},
    {0, "quick", NULL, FLAG, AT(quick), NULL, "fewer cases and repeats: under a minute"},
    {'t', "threads", "COUNT", COUNT, AT(threads), COUNTS,
     "compare one thread with this many instead of all"},
    {0, "tokenizer", "DIR", TEXT, AT(tokenizer), NULL,
     "measure that of vocab.json and merges.txt in this directory instead of the model's"},
    {0, "cpu-time", NULL, FLAG, AT(cpu_time), NULL,
     "count the time that the program ran, not what passed: for one thread on a busy machine"},
    {0, "json", "FILE", TEXT, AT(json), NULL,
     "write the figures there as JSON; - is standard output, then without the table"},
    PROGRAM_OPTIONS(0),
};
enum { N_OPTIONS = sizeof table / sizeof table[0] };

static void print_help(void)
{
    print_about(
        "bench [MODEL.attn] [options]",
        "Measures MODEL.attn, or a model of one of GPT-2's sizes with random weights, which "
        "is written to a temporary file: speed does not depend on the weights.");
    print_options(table, N_OPTIONS);
}

static const char *dtype_name(attn_dtype dtype)
{
    size_t i;
    for (i = 0; dtypes[i].dtype != dtype; i++)
        continue;
    return dtypes[i].name;
}

typedef struct bench {
    attn_ctx ctx;
    const char *program; /* argv[0] */
    const char *path, *size, *tokenizer, *json_path;
    unsigned sections, wanted; /* bits of bench_section, bits of indices into dtypes */
    int quick, cpu_time;
    int threads[2], n_counts; /* the numbers of threads to measure with */
    int repeats;
    double shortest; /* seconds that a measurement takes at least */
    roofs r;

    /* the model at hand */
    char file[512]; /* where it lies */
    attn_model *model;
    const char *dtype;
    uint64_t weight_bytes;  /* what one token reads of it */
    double position_bytes;  /* what the cache holds for one position */
    double ping_pong;       /* seconds; 0: not measured */
    double wall, processor; /* of what was measured with one thread: is the machine busy? */
    int is_above;           /* a figure beyond its roof was printed */

    FILE *table, *json;
    int n_json;
} bench;

/* ---- one figure ---- */

/* What one unit of work cannot do without. */
typedef struct cost {
    double f32, bytes8; /* operations: a multiplication and an addition are two */
    double read;        /* bytes of weights and cache */
    size_t span;        /* how many bytes are read again and again: they may fit into a cache */
} cost;

/* What is measured. */
typedef struct task {
    const char *section;
    const char *dtype; /* of the weights; NULL if there are none */
    char name[40];
    double amount; /* in one unit of work, for a figure in `unit` per second */
    const char *unit;
    int by_time;   /* the figure is the time itself */
    int elsewhere; /* another process does the work */
    cost needs;
    double (*run)(bench *b, void *arg); /* one unit of work, in seconds; negative: it failed */
    void *arg;
} task;

/* The same, measured. A share is that of the roof in the same repeat. */
typedef struct measured {
    int threads, n;
    double value[MAX_REPEATS], roof[MAX_REPEATS], share[MAX_REPEATS];
    int by_memory;       /* how often that was the lower roof */
    double unit_seconds; /* what a unit of work took last */
} measured;

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of an odd number of values, which it sorts. *spread is the distance between the quartiles, as a
 * part of the median. */
static double median(double *values, int n, double *spread)
{
    double middle;
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    middle = values[n / 2];
    *spread = middle > 0 ? (values[n - 1 - n / 4] - values[n / 4]) / middle : 0;
    return middle;
}

static void put_number(FILE *f, const char *name, double value)
{
    if (value > 0 && value < 1e300)
        fprintf(f, ", \"%s\": %.6g", name, value);
    else
        fprintf(f, ", \"%s\": null", name);
}

/* Text as a JSON string: plain ASCII stays, the rest goes. */
static void put_text(FILE *f, const char *text)
{
    putc('"', f);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putc('\\', f);
        if (*text >= ' ' && *text < 127)
            putc(*text, f);
    }
    putc('"', f);
}

static void put_figure(bench *b, const task *t, const measured *m, double value, double spread,
                       double roof, double share)
{
    FILE *const f = b->json;
    if (!f)
        return;
    fprintf(f, "%s\n    {\"section\": \"%s\", \"dtype\": ", b->n_json++ ? "," : "", t->section);
    if (t->dtype)
        put_text(f, t->dtype);
    else
        fprintf(f, "null");
    fprintf(f, ", \"name\": ");
    put_text(f, t->name + strspn(t->name, " "));
    fprintf(f, ", \"unit\": \"%s\", \"threads\": %d", t->unit, m->threads);
    put_number(f, "value", value);
    fprintf(f, ", \"spread\": %.4f", spread);
    put_number(f, "roof", roof);
    put_number(f, "share", share);
    fprintf(f, ", \"bound\": %s}",
            roof <= 0                 ? "null"
            : m->by_memory * 2 > m->n ? "\"memory\""
                                      : "\"arithmetic\"");
}

/* 3 or 4 figures that matter, in 8 columns. */
static const char *shown_number(char out[16], double x)
{
    if (x <= 0)
        snprintf(out, 16, "-");
    else
        snprintf(out, 16, x < 10 ? "%.3f" : x < 100 ? "%.2f" : x < 1000 ? "%.1f" : "%.0f", x);
    return out;
}

/* A line of the table. Where reading bounds one thread, a rate of operations turns into bytes. */
static void report(bench *b, const task *t, measured *m)
{
    const int as_bytes =
        strcmp(t->unit, "Gop/s") == 0 && m[0].by_memory * 2 > m[0].n && t->needs.read > 0;
    const double factor = as_bytes ? t->needs.read / 1e9 / t->amount : 1;
    const char *const unit = as_bytes ? "GB/s" : t->unit;
    int i;
    fprintf(b->table, "%-27s %-7s", t->name, unit);
    for (i = 0; i < b->n_counts; i++) {
        double spread, unused, value, roof, share;
        char value_text[16], roof_text[16], share_text[16];
        const int by_memory = m[i].by_memory * 2 > m[i].n;
        value = median(m[i].value, m[i].n, &spread) * factor;
        roof = median(m[i].roof, m[i].n, &unused) * factor;
        share = median(m[i].share, m[i].n, &unused);
        b->is_above |= share > 1.005;
        snprintf(share_text, sizeof share_text, "%3.0f%%%c", 100 * share, by_memory ? 'm' : 'a');
        fprintf(b->table, " |%9s %3.0f%% %8s %s", shown_number(value_text, value),
                100 * spread < 999 ? 100 * spread : 999.0, shown_number(roof_text, roof),
                share > 0 ? share_text : "    -");
        put_figure(b, t, &m[i], value / factor, spread, roof / factor, share);
    }
    putc('\n', b->table);
    fflush(b->table);
}

static void heading(bench *b, const char *title)
{
    int i;
    fprintf(b->table, "\n%-35s", title);
    for (i = 0; i < b->n_counts; i++)
        fprintf(b->table, " |%2d thread%s  +-     roof share", b->threads[i],
                b->threads[i] == 1 ? " " : "s");
    fprintf(b->table, "\n");
    fflush(b->table);
}

/* Seconds that the cost takes at the roofs of this moment; 0 if a roof is not known. */
static double least_seconds(bench *b, const cost *needs, int n_threads, int *by_memory)
{
    double arithmetic = 0, reading = 0;
    if (needs->f32 > 0)
        arithmetic += needs->f32 / roof_measure(&b->r, ROOF_F32, 0, n_threads);
    if (needs->bytes8 > 0) {
        const double rate = roof_measure(&b->r, ROOF_BYTES, 0, n_threads);
        if (rate <= 0) /* cover: plain C */
            return 0;
        arithmetic += needs->bytes8 / rate;
    }
    if (needs->read > 0)
        reading = needs->read / roof_measure(&b->r, ROOF_MEMORY, needs->span, n_threads);
    *by_memory += reading > arithmetic;
    return reading > arithmetic ? reading : arithmetic;
}

/* Units of work until there are enough of them. Seconds of one, negative after a failure. */
static double run_some(bench *b, const task *t, double shortest)
{
    const double wall = clock_seconds(0), processor = clock_seconds(1);
    double total = 0;
    int n = 0;
    do {
        const double took = t->run(b, t->arg);
        if (took < 0)
            return -1;
        total += took;
        n++;
    } while (total < shortest && n < 100000);
    if (b->ctx.n_threads == 1 && !t->elsewhere) {
        b->wall += clock_seconds(0) - wall;
        b->processor += clock_seconds(1) - processor;
    }
    return total / n;
}

/* Repeats: roof, work, roof, with each number of threads in turn. 0 after a failure. */
static int measure(bench *b, const task *t)
{
    measured m[2];
    int repeat, i;
    memset(m, 0, sizeof m);
    for (repeat = 0; repeat < b->repeats; repeat++)
        for (i = 0; i < b->n_counts; i++) {
            measured *const to = &m[i];
            double least, after, took = 0;
            int unused = 0;
            b->ctx.n_threads = to->threads = b->threads[i];
            least = least_seconds(b, &t->needs, b->threads[i], &to->by_memory);
            if (repeat == 0 ||
                to->unit_seconds < b->shortest) /* caches still hold the roof's bytes */
                took = run_some(b, t, 0);
            if (took >= 0)
                took = run_some(b, t, b->shortest);
            if (took < 0)
                return 0;
            took = took > 1e-12 ? took : 1e-12;
            after = least_seconds(b, &t->needs, b->threads[i], &unused);
            least = after < least ? after : least;
            to->unit_seconds = took;
            to->value[to->n] = t->by_time ? took * t->amount : t->amount / took;
            to->roof[to->n] = least <= 0 ? 0 : t->by_time ? least * t->amount : t->amount / least;
            to->share[to->n++] = least / took;
        }
    report(b, t, m);
    return 1;
}

/* A task of no needs yet. */
static task new_task(const bench *b, bench_section s, double amount, const char *unit,
                     double (*run)(bench *, void *), void *arg)
{
    task t;
    int i = 0;
    memset(&t, 0, sizeof t);
    while ((unsigned)s >> (i + 1))
        i++;
    t.section = section_name(i);
    t.dtype = s == ROOFS || s == TOKENIZER ? NULL : b->dtype;
    t.amount = amount;
    t.unit = unit;
    t.run = run;
    t.arg = arg;
    return t;
}

/* ---- roofs ---- */

/* Enough memory to read for a roof of this many bytes; beyond 1 GiB nothing changes. */
static int reserve(bench *b, uint64_t size)
{
    const uint64_t most = (uint64_t)1 << 30;
    if (roofs_memory(&b->r, (size_t)(size > most ? most : size)))
        return 1;
    return tool_fail(&b->ctx, ATTN_E_MEMORY, "no memory to measure reading with (%llu bytes)",
                     TOOLS_LLU(size)),
           0;
}

typedef struct roof_arg {
    roof_kind kind;
    size_t size;
    double amount;
} roof_arg;

/* A roof's rate is known after it was measured, so its unit of work is what takes a second. */
static double run_roof(bench *b, void *arg)
{
    const roof_arg *a = (const roof_arg *)arg;
    const double rate = roof_measure(&b->r, a->kind, a->size, b->ctx.n_threads);
    return rate > 0 ? 1e9 / rate : 1e300;
}

static int measure_roof(bench *b, roof_kind kind, const char *unit, size_t size, const char *name)
{
    roof_arg a;
    task t = new_task(b, ROOFS, 1, unit, run_roof, &a);
    a.kind = kind;
    a.size = size;
    snprintf(t.name, sizeof t.name, "%s", name);
    return measure(b, &t);
}

static int measure_reading(bench *b, uint64_t size, const char *what)
{
    char name[40];
    snprintf(name, sizeof name, size < 1000000 ? "read %.0f kB%s%s" : "read %.1f MB%s%s",
             size < 1000000 ? (double)size / 1e3 : (double)size / 1e6, *what ? ", " : "", what);
    return size > b->r.size || measure_roof(b, ROOF_MEMORY, "GB/s", (size_t)size, name);
}

static int section_roofs(bench *b)
{
    uint64_t sizes[N_DTYPES] = {0};
    size_t i, shape;
    int good;
    for (shape = 0; strcmp(model_shapes[shape].name, b->size) != 0; shape++)
        continue;
    for (i = 0; i < N_DTYPES; i++)
        if (b->path ? i == 0 : b->wanted >> i & 1)
            sizes[i] =
                b->path ? b->weight_bytes : model_bytes(&model_shapes[shape], dtypes[i].dtype);
    good = reserve(b, (uint64_t)8 << 20);
    for (i = 0; i < N_DTYPES; i++)
        good = good && reserve(b, sizes[i]);
    heading(b, "roofs");
    good = good && measure_roof(b, ROOF_F32, "Gop/s", 0, "f32 multiply-add") &&
           (!b->r.loops->bytes || measure_roof(b, ROOF_BYTES, "Gop/s", 0, "8-bit dot product"));
    for (i = 0; i < N_DTYPES && good; i++)
        if (sizes[i] > 0)
            good = measure_reading(b, sizes[i], b->path ? "the weights" : dtypes[i].name);
    good = good && measure_reading(b, (uint64_t)8 << 20, "") &&
           measure_reading(b, (uint64_t)1 << 19, "");
#if defined(__GNUC__)
    if (good && b->n_counts > 1) {
        const double took = roof_ping_pong(b->quick ? 0.02 : 0.2);
        if (took > 0)
            fprintf(b->table, "a cache line from one thread to another and back: %.0f ns\n",
                    1e9 * took);
        b->ping_pong = took;
    }
#endif
    return good;
}

/* ---- matmul, as the model does it ---- */

/* One matrix of every layer in turn, so that weights come from where the model finds them. */
typedef struct matmul_arg {
    attn__matmul_job job;
    const attn__panels *w;
    size_t n, next, per_unit;
    const attn__kernels *kernels;
    float *pack;
} matmul_arg;

static void matmul_work(attn__worker *me, void *arg)
{
    const matmul_arg *a = (const matmul_arg *)arg;
    attn__matmul_job job = a->job;
    size_t i;
    for (i = 0; i < a->per_unit; i++) {
        job.w = a->w[(a->next + i) % a->n];
        attn__matmul(me, a->kernels, &job, a->pack + (size_t)me->id * (ATTN__PACK + 64));
        attn__barrier(me);
    }
}

static double run_matmul(bench *b, void *arg)
{
    matmul_arg *a = (matmul_arg *)arg;
    const double start = seconds();
    attn__parallel(b->ctx.n_threads, matmul_work, a);
    a->next += a->per_unit;
    return seconds() - start;
}

static int measure_matmul(bench *b, const attn__panels *w, size_t n, size_t rows)
{
    const size_t n_in = w->n_in, n_out = w->n_out, threads = (size_t)b->threads[b->n_counts - 1];
    const size_t n_x = rows * n_in, n_y = rows * n_out, n_pack = threads * (ATTN__PACK + 64);
    const double ops = 2 * (double)rows * (double)n_in * (double)n_out;
    const size_t bytes = attn_panels_size(w->dtype, n_in, n_out);
    float *const block = (float *)malloc((n_x + n_y + n_pack) * sizeof(float));
    matmul_arg a;
    task t = new_task(b, MATMUL, 0, "Gop/s", run_matmul, &a);
    size_t i;
    int good;
    if (!block) {
        tool_fail(&b->ctx, ATTN_E_MEMORY, "no memory for a matmul of %llu rows", TOOLS_LLU(rows));
        return 0;
    }
    for (i = 0; i < n_x + n_y + n_pack; i++)
        block[i] = (float)(i % 1000) * 0.002f - 1.0f;
    memset(&a, 0, sizeof a);
    a.w = w;
    a.n = n;
    a.per_unit = rows <= 16 ? n : 1;
    a.kernels = attn__kernels_for(&b->ctx);
    a.pack = block + n_x + n_y;
    a.job.in = block;
    a.job.in_stride = (ptrdiff_t)n_in;
    a.job.in_step = 1;
    a.job.out = block + n_x;
    a.job.out_stride = n_out;
    a.job.rows = rows;
    snprintf(t.name, sizeof t.name, "%4u rows * [%u, %u]", (unsigned)rows, (unsigned)n_in,
             (unsigned)n_out);
    t.amount = ops * (double)a.per_unit / 1e9;
    t.needs.read = (double)bytes * (double)a.per_unit;
    t.needs.span = bytes * n;
    *(attn__is_quantized(w->dtype) ? &t.needs.bytes8 : &t.needs.f32) = ops * (double)a.per_unit;
    good = measure(b, &t);
    free(block);
    return good;
}

static int section_matmul(bench *b)
{
    static const size_t all_rows[] = {1, 2, 4, 8, 16, 64, 512, 1024}, few_rows[] = {1, 8, 512};
    const size_t n_rows = b->quick ? 3 : 8, n_layer = b->model->config.n_layer;
    attn__panels *const w = (attn__panels *)malloc(n_layer * sizeof *w);
    size_t shape, i, row;
    int good = w != NULL;
    if (!w)
        tool_fail(&b->ctx, ATTN_E_MEMORY, "no memory for a list of matrices");
    heading(b, "matmul");
    for (shape = 0; shape < 5 && good; shape++) {
        if (b->quick && (shape == 1 || shape == 2))
            continue;
        for (i = 0; i < n_layer; i++) {
            const attn__layer *l = &b->model->layers[i];
            w[i] = shape == 0   ? l->w_qkv
                   : shape == 1 ? l->w_o
                   : shape == 2 ? l->w_in
                   : shape == 3 ? l->w_out
                                : b->model->w_u;
        }
        for (row = 0; row < n_rows && good; row++) {
            const size_t rows = b->quick ? few_rows[row] : all_rows[row];
            if (shape < 4 || !b->quick || rows <= 8)
                good = measure_matmul(b, w, shape < 4 ? n_layer : 1, rows);
        }
    }
    free(w);
    return good;
}

/* ---- the model ---- */

static void add_matmul(cost *needs, const attn__panels *w, double rows)
{
    *(attn__is_quantized(w->dtype) ? &needs->bytes8 : &needs->f32) +=
        2 * (double)w->n_in * (double)w->n_out * rows;
}

/* What `rows` tokens need whose mean number of positions to look at is `length`, and `logits` of
 * which are followed by the unembedding: of the last layer, the others need keys and values only.
 */
static cost model_cost(const bench *b, double rows, double length, double logits)
{
    const attn_config *c = attn_model_config(b->model);
    cost needs;
    size_t i;
    memset(&needs, 0, sizeof needs);
    for (i = 0; i < c->n_layer; i++) {
        const attn__layer *l = &b->model->layers[i];
        const double on = i + 1 < c->n_layer ? rows : logits;
        add_matmul(&needs, &l->w_qkv, (2 * rows + on) / 3);
        add_matmul(&needs, &l->w_o, on);
        add_matmul(&needs, &l->w_in, on);
        add_matmul(&needs, &l->w_out, on);
        needs.f32 += on * 4 * length * c->d_model;
    }
    add_matmul(&needs, &b->model->w_u, logits);
    needs.read = (double)b->weight_bytes;
    needs.span = (size_t)b->weight_bytes;
    return needs;
}

/* Some sessions, each of which holds `start` tokens and is fed more. */
typedef struct feed_arg {
    attn_feed_item items[16];
    size_t n_items;
    int32_t tokens[16][N_CTX];
    size_t start, count; /* tokens that are there, and that come */
    int one_by_one;      /* pick them from the logits, else all at once */
    attn_sampler *greedy;
} feed_arg;

static void close_sessions(feed_arg *a)
{
    size_t i;
    for (i = 0; a && i < a->n_items; i++)
        attn_session_free(a->items[i].session);
    if (a)
        attn_sampler_free(a->greedy);
    free(a);
}

/* NULL after a message. */
static feed_arg *open_sessions(bench *b, size_t n_items, size_t n_ctx, attn_dtype cache)
{
    feed_arg *const a = (feed_arg *)calloc(1, sizeof *a);
    const size_t n_vocab = attn_model_config(b->model)->n_vocab;
    attn_workspace *workspace = NULL;
    attn_session_desc desc;
    attn_rng rng;
    size_t j;
    memset(&desc, 0, sizeof desc);
    desc.n_ctx = n_ctx;
    desc.cache_dtype = cache;
    b->ctx.n_threads = b->threads[b->n_counts - 1];
    attn_rng_seed(&rng, 2);
    if (!a)
        tool_fail(&b->ctx, ATTN_E_MEMORY, "no memory for sessions");
    else if (attn_sampler_new(&b->ctx, &a->greedy, n_vocab, NULL) == ATTN_OK &&
             attn_workspace_new(&b->ctx, &workspace, b->model, NULL) == ATTN_OK)
        for (desc.workspace = workspace; a->n_items < n_items; a->n_items++) {
            for (j = 0; j < n_ctx; j++)
                a->tokens[a->n_items][j] = (int32_t)(attn_rng_u32(&rng) % n_vocab);
            if (attn_session_new(&b->ctx, &a->items[a->n_items].session, b->model, &desc))
                break;
        }
    attn_workspace_free(workspace); /* the sessions keep it */
    if (a && a->n_items == n_items)
        return a;
    close_sessions(a);
    return NULL;
}

static void fill_sessions(bench *b, feed_arg *a, size_t start)
{
    size_t i;
    b->ctx.n_threads = b->threads[b->n_counts - 1];
    for (i = 0; i < a->n_items; i++) {
        attn_truncate(&b->ctx, a->items[i].session, 0);
        attn_feed(&b->ctx, a->items[i].session, a->tokens[i], start);
    }
    a->start = start;
}

static double run_feed(bench *b, void *arg)
{
    feed_arg *a = (feed_arg *)arg;
    int32_t next[16];
    size_t i, n;
    double start;
    for (i = 0; i < a->n_items; i++) {
        attn_truncate(&b->ctx, a->items[i].session, a->start);
        next[i] = a->tokens[i][a->start];
        a->items[i].tokens = a->one_by_one ? &next[i] : a->tokens[i];
        a->items[i].n_tokens = a->one_by_one ? 1 : a->count;
    }
    start = seconds();
    for (n = 0; n < (a->one_by_one ? a->count : 1); n++) {
        attn_feed_batch(&b->ctx, a->items, a->n_items);
        for (i = 0; i < a->n_items && a->one_by_one; i++)
            attn_sample(&b->ctx, &next[i], a->greedy, attn_logits(a->items[i].session), NULL, 0);
    }
    return b->ctx.status ? -1 : seconds() - start;
}

static int section_prompts(bench *b)
{
    static const size_t lengths[] = {64, 512, 1024};
    const size_t n_ctx = attn_model_config(b->model)->n_ctx;
    feed_arg *const a = open_sessions(b, 1, n_ctx < N_CTX ? n_ctx : N_CTX, ATTN_F32);
    task t = new_task(b, PROMPTS, 0, "tok/s", run_feed, a);
    size_t i;
    int good = a != NULL;
    heading(b, "prompt (logits of its last token)");
    for (i = 0; i < (b->quick ? 2 : 3) && good; i++)
        if (lengths[i] <= n_ctx) {
            a->count = lengths[i];
            t.amount = (double)lengths[i];
            t.needs = model_cost(b, t.amount, (t.amount + 1) / 2, 1);
            snprintf(t.name, sizeof t.name, "%u tokens", (unsigned)lengths[i]);
            good = measure(b, &t);
        }
    close_sessions(a);
    return good;
}

/* Generation costs its weights and, once more for every sequence, its cache. */
static cost generation_cost(const bench *b, size_t sequences, size_t start, size_t count,
                            attn_dtype cache)
{
    const double rows = (double)sequences, length = (double)start + ((double)count + 1) / 2;
    const double kept = cache == ATTN_F16 ? b->position_bytes / 2 : b->position_bytes;
    cost needs = model_cost(b, rows, length, rows);
    needs.read = (needs.read + rows * length * kept) * (double)count;
    needs.f32 *= (double)count;
    needs.bytes8 *= (double)count;
    return needs;
}

static int section_generation(bench *b)
{
    static const struct {
        size_t start;
        attn_dtype cache;
    } cases[] = {{32, ATTN_F32}, {512, ATTN_F32}, {960, ATTN_F32}, {960, ATTN_F16}};
    const size_t n_ctx = attn_model_config(b->model)->n_ctx;
    size_t i;
    int good = 1;
    heading(b, "generation (greedy)");
    for (i = 0; i < (b->quick ? 2 : 4) && good && cases[i].start + 16 <= n_ctx; i++) {
        feed_arg *const a = open_sessions(b, 1, cases[i].start + 16, cases[i].cache);
        task t = new_task(b, GENERATION, 16, "tok/s", run_feed, a);
        if (!a)
            return 0;
        a->count = 16;
        a->one_by_one = 1;
        t.needs = generation_cost(b, 1, cases[i].start, 16, cases[i].cache);
        snprintf(t.name, sizeof t.name, "after %u tokens%s", (unsigned)cases[i].start,
                 cases[i].cache == ATTN_F16 ? ", f16 cache" : "");
        fill_sessions(b, a, cases[i].start);
        good = measure(b, &t);
        close_sessions(a);
    }
    return good;
}

/* attn_generate on a session whose tokens repeat themselves or do not. */
typedef struct speculation_arg {
    attn_session *session;
    int32_t last; /* token of the prompt */
    attn_generate_desc desc;
} speculation_arg;

static double run_speculation(bench *b, void *arg)
{
    speculation_arg *a = (speculation_arg *)arg;
    double start;
    a->desc.prompt_ids = &a->last;
    a->desc.n_prompt_ids = 1;
    attn_truncate(&b->ctx, a->session, 2 * PROMPT - 1);
    start = seconds();
    return attn_generate(&b->ctx, a->session, NULL, &a->desc, NULL, NULL) ? -1 : seconds() - start;
}

/* Whether a model has fewer positions than a section needs; says so. */
static int too_short(const bench *b, size_t n)
{
    if (attn_model_config(b->model)->n_ctx >= n)
        return 0;
    fprintf(b->table, "not measured: the model has too few positions\n");
    return 1;
}

/* Two prompts. One repeats a text of 8 tokens, and a greedy model soon repeats it too: most drafts
 * are right. The other draws from 16 tokens at random, so that pairs of tokens recur with other
 * successors: most drafts are wrong. The roof is that of generation without drafts; right drafts
 * can pass it. */
static int section_speculation(bench *b)
{
    static const char *const names[] = {"repeating, without", "repeating, drafting",
                                        "random, without", "random, drafting wrong"};
    const size_t n_vocab = attn_model_config(b->model)->n_vocab;
    const size_t n_written = b->quick ? PROMPT : (size_t)4 * PROMPT;
    const size_t n_positions = (size_t)2 * PROMPT + n_written;
    feed_arg *a;
    speculation_arg s;
    task t = new_task(b, SPECULATION, 0, "tok/s", run_speculation, &s);
    size_t i, j;
    int good;
    heading(b, "speculation (attn_generate)");
    if (too_short(b, n_positions))
        return 1;
    a = open_sessions(b, 1, n_positions, ATTN_F32);
    good = a != NULL;
    for (i = 0; i < 4 && good; i++) {
        for (j = 0; j < (size_t)2 * PROMPT; j++)
            a->tokens[0][j] = (int32_t)((i < 2 ? j % 8 : j) * 37 % n_vocab);
        memset(&s, 0, sizeof s);
        s.session = a->items[0].session;
        s.last = a->tokens[0][2 * PROMPT - 1];
        s.desc.max_tokens = n_written;
        s.desc.ignore_eos = 1;
        s.desc.n_draft = i % 2 ? 0 : -1;
        s.desc.sampling.temperature = i < 2 ? 0 : 100.0f;
        s.desc.sampling.top_k = 16;
        t.amount = (double)n_written;
        t.needs = generation_cost(b, 1, (size_t)2 * PROMPT, n_written, ATTN_F32);
        snprintf(t.name, sizeof t.name, "%s", names[i]);
        fill_sessions(b, a, (size_t)2 * PROMPT);
        good = measure(b, &t);
    }
    close_sessions(a);
    return good;
}

static int section_batch(bench *b)
{
    static const size_t all[] = {1, 2, 4, 8, 16}, few[] = {1, 8};
    const size_t n = b->quick ? 2 : 5, count = 8;
    task t = new_task(b, BATCH, 0, "tok/s", run_feed, NULL);
    size_t i;
    int good = 1;
    heading(b, "batch (tokens of all sequences)");
    if (too_short(b, PROMPT + count))
        return 1;
    for (i = 0; i < n && good; i++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): few[i] for the first two */
        const size_t sequences = b->quick ? few[i] : all[i];
        feed_arg *const a = open_sessions(b, sequences, PROMPT + count, ATTN_F32);
        if (!a)
            return 0;
        fill_sessions(b, a, PROMPT);
        a->count = count;
        a->one_by_one = 1;
        t.arg = a;
        t.amount = (double)(sequences * count);
        t.needs = generation_cost(b, sequences, PROMPT, count, ATTN_F32);
        snprintf(t.name, sizeof t.name, "%u sequence%s after %d", (unsigned)sequences,
                 sequences == 1 ? "" : "s", PROMPT);
        good = measure(b, &t);
        close_sessions(a);
    }
    return good;
}

/* Texts of so many tokens, all in one call. */
typedef struct mixed_arg {
    feed_arg *texts;
    const size_t *lengths;
} mixed_arg;

static double run_mixed(bench *b, void *arg)
{
    const mixed_arg *const a = (const mixed_arg *)arg;
    double start;
    size_t i;
    for (i = 0; i < a->texts->n_items; i++) {
        attn_truncate(&b->ctx, a->texts->items[i].session, 0);
        a->texts->items[i].tokens = a->texts->tokens[i];
        a->texts->items[i].n_tokens = a->lengths[i];
    }
    start = seconds();
    attn_feed_batch(&b->ctx, a->texts->items, a->texts->n_items);
    return b->ctx.status ? -1 : seconds() - start;
}

/* As many tokens in texts of one length and of mixed ones, as a file of texts has them: a pass takes
 * 256 rows of whatever texts come next, so neither is padded. */
static int section_mixed(bench *b)
{
    enum { N = 16, EACH = 64 };
    static const struct {
        const char *name;
        size_t lengths[N];
    } cases[] = {
        {"16 texts of 64", {64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64}},
        {"16 texts of 5 to 240", {12, 240, 7, 33, 96, 5, 61, 18, 150, 9, 44, 128, 25, 6, 110, 80}}};
    mixed_arg a;
    task t = new_task(b, MIXED, (double)N * EACH, "tok/s", run_mixed, &a);
    size_t i, k;
    int good = 1;
    heading(b, "many texts (their last logits)");
    if (too_short(b, 240))
        return 1;
    a.texts = open_sessions(b, N, 240, ATTN_F32);
    for (i = 0; i < 2 && a.texts && good; i++) {
        double positions = 0; /* that all tokens look at */
        for (k = 0; k < N; k++)
            positions += (double)(cases[i].lengths[k] * (cases[i].lengths[k] + 1)) / 2;
        a.lengths = cases[i].lengths;
        t.needs = model_cost(b, t.amount, positions / t.amount, N);
        snprintf(t.name, sizeof t.name, "%s", cases[i].name);
        good = measure(b, &t);
    }
    good = good && a.texts;
    close_sessions(a.texts);
    return good;
}

/* ---- the glass box ---- */

/* A text, fed with and without a record; or two, swept and patched one by one. */
typedef struct glass_arg {
    attn_session *plain, *watched;
    attn_record *record;
    float *memory; /* the record's */
    size_t n_floats;
    int32_t text[256], corrupted[256];
    size_t n_tokens;
    const char *swept; /* what follows "blocks.i." */
    int by_head;
} glass_arg;

static double run_text(bench *b, glass_arg *a, attn_session *session)
{
    const double start = seconds();
    if (attn_truncate(&b->ctx, session, 0) || /* cover: nothing in it can fail */
        attn_feed(&b->ctx, session, a->text, a->n_tokens))
        return -1;
    return seconds() - start;
}

static void copy_half(attn__worker *me, void *arg)
{
    const glass_arg *a = (const glass_arg *)arg;
    const size_t half = a->n_floats / 2;
    size_t first, last;
    attn__share(me, half, &first, &last);
    memcpy(a->memory + half + first, a->memory + first, (last - first) * sizeof(float));
}

/* A run with a record, less the time to copy as many bytes, in plain runs. */
static double run_record(bench *b, void *arg)
{
    glass_arg *a = (glass_arg *)arg;
    const double plain = run_text(b, a, a->plain), recorded = run_text(b, a, a->watched);
    double beyond = seconds();
    if (plain < 0 || recorded < 0) /* cover: they cannot fail */
        return -1;
    attn__parallel(b->ctx.n_threads, copy_half, a);
    attn__parallel(b->ctx.n_threads, copy_half, a);
    beyond += recorded - seconds();
    return beyond > 0 ? beyond / plain : 0; /* on a busy machine the copies may seem to take more */
}

static int measure_record(bench *b, glass_arg *a, const char *name)
{
    task t = new_task(b, GLASS, 1, "runs", run_record, a);
    attn_record_desc desc;
    size_t bytes;
    int good;
    memset(&desc, 0, sizeof desc);
    desc.names = &name;
    desc.n_names = name != NULL;
    desc.n_positions = a->n_tokens;
    if (attn_record_size(&b->ctx, &bytes, b->model, &desc))
        return 0;
    t.by_time = 1;
    snprintf(t.name, sizeof t.name, "%u tokens, recording %s", (unsigned)a->n_tokens,
             name ? "one" : "all");
    a->n_floats = bytes / sizeof(float);
    a->memory = (float *)malloc(bytes);
    if (!a->memory)
        return tool_fail(&b->ctx, ATTN_E_MEMORY, "no memory for a record"), 0;
    attn_truncate(&b->ctx, a->watched, 0);
    good = attn_record_new(&b->ctx, &a->record, a->watched, &desc, a->memory, bytes) == ATTN_OK &&
           measure(b, &t);
    attn_unhook_all(a->watched);
    attn_record_free(a->record);
    free(a->memory);
    return good;
}

/* One forward pass with a patch in the middle layer, as many times as a sweep has patches, in
 * sweeps. */
static double run_sweep(bench *b, void *arg)
{
    glass_arg *a = (glass_arg *)arg;
    const attn_config *c = attn_model_config(b->model);
    const size_t n_patches = c->n_layer * (a->by_head ? c->n_head : a->n_tokens);
    attn_patch_desc desc;
    attn_tensor out;
    double naive, start;
    memset(&desc, 0, sizeof desc);
    memset(&out, 0, sizeof out);
    desc.clean = a->text;
    desc.corrupted = a->corrupted;
    desc.n_tokens = a->n_tokens;
    desc.right = 1;
    naive = run_text(b, a, a->watched);
    start = seconds();
    if ((a->by_head ? attn_patch_heads : attn_patch_positions)(&b->ctx, &out, b->model, &desc,
                                                               a->swept))
        return -1;
    naive = naive * (double)n_patches / (seconds() - start);
    attn_tensor_free(&b->ctx, &out);
    return naive;
}

static int measure_sweep(bench *b, glass_arg *a, const char *swept, int by_head)
{
    task t = new_task(b, GLASS, 1, "times", run_sweep, a);
    char name[64];
    attn_edit edit;
    int good;
    t.by_time = 1;
    a->swept = swept;
    a->by_head = by_head;
    snprintf(t.name, sizeof t.name, "%u, sweep of %s", (unsigned)a->n_tokens, swept);
    snprintf(name, sizeof name, "blocks.%u.%s", attn_model_config(b->model)->n_layer / 2, swept);
    memset(&edit, 0, sizeof edit);
    edit.name = name;
    edit.kind = ATTN_EDIT_ZERO;
    edit.position = a->n_tokens / 2;
    edit.n_positions = 1;
    good = attn_hook_edit(&b->ctx, NULL, a->watched, &edit) == ATTN_OK && measure(b, &t);
    attn_unhook_all(a->watched);
    return good;
}

/* The texts of a sweep part after a third, as one name put for another does. */
static int section_glass(bench *b)
{
    const attn_config *c = attn_model_config(b->model);
    glass_arg a;
    attn_session_desc desc;
    size_t i;
    int good;
    memset(&a, 0, sizeof a);
    memset(&desc, 0, sizeof desc);
    heading(b, "glass box");
    a.n_tokens = c->n_ctx < 256 ? c->n_ctx : 256;
    for (i = 0; i < 256; i++)
        a.text[i] = a.corrupted[i] = (int32_t)(i * 37 % c->n_vocab);
    desc.n_ctx = a.n_tokens;
    b->ctx.n_threads = b->threads[b->n_counts - 1];
    good = attn_session_new(&b->ctx, &a.plain, b->model, &desc) == ATTN_OK &&
           attn_session_new(&b->ctx, &a.watched, b->model, &desc) == ATTN_OK &&
           measure_record(b, &a, "blocks.0.hook_resid_post") && measure_record(b, &a, NULL);
    for (a.n_tokens = 15; good && a.n_tokens <= (b->quick ? 15 : 60) && a.n_tokens <= c->n_ctx;
         a.n_tokens *= 4) {
        a.corrupted[a.n_tokens / 3] = (a.text[a.n_tokens / 3] + 1) % (int32_t)c->n_vocab;
        good = measure_sweep(b, &a, "hook_resid_pre", 0) && measure_sweep(b, &a, "attn.hook_z", 1);
        a.corrupted[a.n_tokens / 3] = a.text[a.n_tokens / 3];
    }
    attn_session_free(a.plain);
    attn_session_free(a.watched);
    return good;
}

/* ---- a process of its own: the first token, and memory ---- */

/* Resident bytes of this process without the pages of one file; negative: it cannot be told. The
 * kernel may know the file by another path than the user. */
static double resident_without(const char *path)
{
    FILE *const f = fopen("/proc/self/smaps", "r");
    char line[1024];
    double bytes = 0, kib;
    int counts = 1;
    if (!f)
        return -1;
    while (fgets(line, sizeof line, f)) {
        unsigned long from, to;
        int at = 0;
        /* NOLINTBEGIN(cert-err34-c): the kernel's numbers */
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &from, &to, &at) == 2) {
            line[strcspn(line, "\n")] = 0;
            counts = !system_same_file(path, line + at);
        } else if (counts && sscanf(line, "Rss: %lf kB", &kib) == 1)
            bytes += 1024 * kib;
        /* NOLINTEND(cert-err34-c) */
    }
    fclose(f);
    return bytes;
}

/* bench --child FILE THREADS COUNT: what a user's program does, up to a number of tokens. Says "t"
 * when it has the first one, and how much memory it has used at the end. */
static int child(char **argv)
{
    attn_ctx ctx;
    attn_model *model = NULL;
    attn_session *session = NULL;
    attn_sampler *greedy = NULL;
    int32_t tokens[PROMPT];
    long n = strtol(argv[4], NULL, 10);
    size_t i, count = PROMPT;
    memset(&ctx, 0, sizeof ctx);
    ctx.n_threads = (int)strtol(argv[3], NULL, 10);
    if (attn_model_open(&ctx, &model, argv[2], NULL) == ATTN_OK &&
        attn_session_new(&ctx, &session, model, NULL) == ATTN_OK)
        attn_sampler_new(&ctx, &greedy, attn_model_config(model)->n_vocab, NULL);
    for (i = 0; i < PROMPT && !ctx.status; i++)
        tokens[i] = (int32_t)(i * 37 % attn_model_config(model)->n_vocab);
    for (; n > 0 && !ctx.status; n--) {
        if (attn_feed(&ctx, session, tokens, count) ||
            attn_sample(&ctx, &tokens[0], greedy, attn_logits(session), NULL, 0))
            break;
        if (count == PROMPT && (putchar('t'), fflush(stdout)))
            break;
        count = 1;
    }
    if (ctx.status)
        fprintf(stderr, "bench: %s\n", ctx.message);
    else
        printf(" %.0f\n", resident_without(argv[2]));
    attn_sampler_free(greedy);
    attn_session_free(session);
    attn_model_close(model);
    return ctx.status != ATTN_OK;
}

#ifdef BENCH_CHILD
/* Seconds from the start of a child to its first token, or negative after a failure. */
static double run_child(bench *b, int n_tokens, double *resident)
{
    char threads[16], count[16], text[64];
    char *words[6];
    posix_spawn_file_actions_t actions;
    double start, took = -1;
    size_t size = 0;
    ssize_t n;
    pid_t pid;
    int ends[2], status = 0;
    snprintf(threads, sizeof threads, "%d", b->ctx.n_threads);
    snprintf(count, sizeof count, "%d", n_tokens);
    words[0] = (char *)(uintptr_t)b->program;
    words[1] = (char *)(uintptr_t) "--child";
    words[2] = b->file;
    words[3] = threads;
    words[4] = count;
    words[5] = NULL;
    if (pipe(ends))
        return tool_fail_io(&b->ctx, "cannot make", "a pipe"), -1.0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    start = clock_seconds(0);
    status = posix_spawnp(&pid, b->program, &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (status == 0) {
        while (size + 1 < sizeof text &&
               (n = read(ends[0], text + size, sizeof text - 1 - size)) > 0) {
            if (size == 0)
                took = clock_seconds(0) - start;
            size += (size_t)n;
        }
        text[size] = 0;
        if (resident)
            *resident = size > 1 ? strtod(text + 1, NULL) : -1;
        if (waitpid(pid, &status, 0) != pid || status != 0 || size < 2 || text[0] != 't')
            took = -1;
    }
    close(ends[0]);
    if (took < 0)
        tool_fail(&b->ctx, ATTN_E_IO, "a second process of %s failed", b->program);
    return took;
}

static double run_first(bench *b, void *arg)
{
    (void)arg;
    return run_child(b, 1, NULL);
}

static int section_first(bench *b)
{
    task t = new_task(b, FIRST, 1000, "ms", run_first, NULL);
    heading(b, "first token");
    if (too_short(b, PROMPT))
        return 1;
    snprintf(t.name, sizeof t.name, "process start, prompt of %d", PROMPT);
    t.by_time = 1;
    t.elsewhere = 1;
    t.needs = model_cost(b, PROMPT, (PROMPT + 1) / 2.0, 1);
    return measure(b, &t);
}

/* The unit of work is chosen such that the seconds are MiB. */
static double run_memory(bench *b, void *arg)
{
    double resident = -1;
    (void)arg;
    if (run_child(b, 128, &resident) < 0)
        return -1;
    return resident / (1 << 20);
}

static int section_memory(bench *b)
{
    task t = new_task(b, MEMORY, 1, "MiB", run_memory, NULL);
    double resident = -1;
    size_t size = 0;
    heading(b, "memory beyond the weights' file");
    if (too_short(b, PROMPT + 128))
        return 1;
    b->ctx.n_threads = 1;
    if (run_child(b, 1, &resident) < 0)
        return 0;
    attn_session_size(&b->ctx, &size, b->model, NULL);
    if (resident < 0) {
        fprintf(b->table, "not measured: this system has no /proc/self/smaps\n");
        return 1;
    }
    snprintf(t.name, sizeof t.name, "resident after %d tokens", PROMPT + 128);
    t.by_time = 1;
    t.elsewhere = 1;
    if (!measure(b, &t))
        return 0;
    fprintf(b->table, "a session for all %u positions, touched as it fills: %.1f MiB\n",
            (unsigned)attn_model_config(b->model)->n_ctx, (double)size / (1 << 20));
    return 1;
}

/* ---- numbers of threads, on an idle machine and beside other work ---- */

/* bench --busy: keeps a processor busy until it is killed, or the bench has ended. */
static int busy(void)
{
    const pid_t parent = getppid();
    volatile unsigned n = 0;
    while (++n % 1000000 || getppid() == parent)
        continue;
    return 0;
}

enum { MAX_BUSY = 256, MAX_COUNTS = 5 };

/* Starts n of those; returns how many run. */
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

/* The same work with several numbers of threads, the last of which is 0: the default. */
typedef struct race {
    int n_counts, counts[MAX_COUNTS];
    feed_arg *sessions[MAX_COUNTS]; /* one each: a session remembers which number did best */
    measured m[MAX_COUNTS];
    double worst; /* of the default, as a share of the best */
} race;

/* 1, ..., most / 4, most / 2, most, then the default. */
static void race_counts(race *r, int most)
{
    int i, n = 1;
    for (i = most; i > 1 && n < MAX_COUNTS - 1; i /= 2)
        n++;
    r->n_counts = n + 1;
    r->counts[0] = 1;
    r->counts[n] = 0;
    for (i = most; --n > 0; i /= 2)
        r->counts[n] = i;
}

/* In turn, and the first turn does not count: the default looks for its number then. Nor does the
 * start of each: OpenMP's threads of the one before still keep a core busy. */
static int race_run(bench *b, race *r, const task *t, double seconds_each)
{
    int repeat, i;
    memset(r->m, 0, sizeof r->m);
    for (repeat = -1; repeat < b->repeats; repeat++)
        for (i = 0; i < r->n_counts; i++) {
            task mine = *t;
            double took;
            mine.arg = r->sessions[i];
            b->ctx.n_threads = r->m[i].threads = r->counts[i];
            took = run_some(b, &mine, 0.05);
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
    int i;
    fprintf(b->table, "%-27s", t->name);
    for (i = 0; i < r->n_counts; i++) {
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
    int running, good;
    running = start_busy(b, pids, n_busy < MAX_BUSY ? n_busy : MAX_BUSY);
    good = running == n_busy && race_run(b, r, t, b->quick ? 0.05 : 0.5);
    stop_busy(pids, running);
    snprintf(t->name, sizeof t->name, n_busy ? "%s, %d busy" : "%s, idle", work, n_busy);
    if (good)
        race_report(b, r, t);
    return good;
}

/* Generation, or prompts of 64 tokens: idle, beside one busy process, and beside many. */
static int race_all(bench *b, race *r, const char *work, int one_by_one)
{
    const int most = b->threads[b->n_counts - 1], beside[] = {0, 1, most};
    const size_t count = one_by_one ? 16 : 64;
    task t = new_task(b, THREADS, (double)count, "tok/s", run_feed, NULL);
    int i, good = 1;
    for (i = 0; i < r->n_counts && good; i++) {
        feed_arg *const a = r->sessions[i] = open_sessions(b, 1, 96, ATTN_F32);
        good = a != NULL;
        if (!a)
            break;
        a->count = count;
        a->one_by_one = one_by_one;
        if (one_by_one)
            fill_sessions(b, a, PROMPT);
    }
    for (i = 0; i < (most > 1 ? 3 : 2) && good; i++)
        good = race_beside(b, r, work, &t, beside[i]);
    for (i = 0; i < r->n_counts; i++) {
        close_sessions(r->sessions[i]);
        r->sessions[i] = NULL;
    }
    return good;
}

static int section_threads(bench *b)
{
    race r;
    int i, good;
    memset(&r, 0, sizeof r);
    race_counts(&r, b->threads[b->n_counts - 1]);
    r.worst = 1e300;
    fprintf(b->table, "\nthreads, tok/s%13s", "");
    for (i = 0; i < r.n_counts - 1; i++)
        fprintf(b->table, " %3d thread%s", r.counts[i], r.counts[i] == 1 ? "" : "s");
    fprintf(b->table, "    default  of best\n");
    if (too_short(b, 96))
        return 1;
    good = race_all(b, &r, "generation", 1) && race_all(b, &r, "prompt of 64", 0);
    if (good)
        fprintf(b->table, "the default is at %.0f %% of the best fixed number at worst\n",
                100 * r.worst);
    return good;
}
#endif

/* ---- the tokenizer ---- */

typedef struct text_arg {
    const attn_tokenizer *tokenizer;
    char *text;
    size_t size;
    int32_t *ids;
} text_arg;

static double run_encode(bench *b, void *arg)
{
    const text_arg *a = (const text_arg *)arg;
    const double start = seconds();
    size_t n;
    if (attn_encode(&b->ctx, a->ids, a->size, &n, a->tokenizer, a->text, a->size, 0))
        return -1;
    return seconds() - start;
}

/* Sentences in which words come as often as in English: the i-th commonest as 1 / i, and one in 20
 * a word that nobody has seen. The last word may go up to MOST_BEYOND beyond the size. */
enum { MOST_BEYOND = 64 };
static void fill_english(char *text, size_t size, attn_rng *rng)
{
    static const char words[] =
        "the of and to in a is that it was for on with he as his they at be this from have or by "
        "one had not but what all were when we there can an your which their said if do will each "
        "about how up out them then she many some so these would other into has more her two like "
        "him see time could no make than first been its who now people my made over did down only "
        "way find use may water long little very after words called just where most know get "
        "through back much before go good new write our used me man too any day same right look "
        "think also around another came come work three word must because does part even place "
        "well such here take why things help put years different away again off went old number "
        "great tell men say small every found still between name should home big give air line set "
        "own under read last never us left end along while might next sound below saw something "
        "thought both few those always looked show large often together asked house world going "
        "want school important until form food keep children feet land side without boy once "
        "animals life enough took sometimes four head above kind began almost live page got earth "
        "need far hand high year mother light parts country father let night following picture "
        "being study second eyes soon times story boys since white days ever paper hard near "
        "sentence better best across during today others however sure means knew try told young "
        "miles sun ways thing whole hear example heard several change answer room sea against top "
        "turned learn point city play toward five using himself usually money seen car morning "
        "given ship government language experience consider particular attention temperature";
    const char *starts[512];
    double total = 0, sums[512];
    size_t n = 0, i, at = 0, in_sentence = 0;
    for (i = 0; words[i]; i++)
        if (i == 0 || words[i - 1] == ' ') {
            starts[n] = words + i;
            total += 1.0 / (double)(n + 1);
            sums[n++] = total;
        }
    while (at < size) {
        char word[32] = "";
        size_t length = 0;
        if (attn_rng_u32(rng) % 20 == 0) {
            length = 3 + attn_rng_u32(rng) % 9;
            for (i = 0; i < length; i++)
                word[i] = (char)(i % 2 ? "aeiou"[attn_rng_u32(rng) % 5]
                                       : "bcdfglmnprst"[attn_rng_u32(rng) % 12]);
        } else {
            const double pick = total * (double)attn_rng_uniform(rng);
            for (i = 0; i + 1 < n && sums[i] < pick; i++)
                continue;
            while (starts[i][length] && starts[i][length] != ' ') {
                word[length] = starts[i][length];
                length++;
            }
        }
        if (in_sentence == 0)
            word[0] = (char)(word[0] - 'a' + 'A');
        for (i = 0; i < length; i++)
            text[at++] = word[i];
        in_sentence++;
        if (in_sentence > 5 && attn_rng_u32(rng) % 10 == 0) {
            in_sentence = 0;
            text[at++] = '.';
            text[at++] = attn_rng_u32(rng) % 6 ? ' ' : '\n';
        } else {
            if (attn_rng_u32(rng) % 14 == 0)
                text[at++] = ',';
            text[at++] = ' ';
        }
    }
}

static void fill_text(char *text, size_t size, int kind)
{
    attn_rng rng;
    size_t i;
    attn_rng_seed(&rng, 3);
    if (kind == 0)
        fill_english(text, size, &rng);
    for (i = 0; i < size && kind > 0; i++)
        text[i] = (char)(kind == 1   ? 'a'
                         : kind == 2 ? ' '
                         : kind == 3 ? 'a' + attn_rng_u32(&rng) % 26
                                     : attn_rng_u32(&rng));
}

static int section_tokenizer(bench *b)
{
    static const char *const kinds[] = {"English-like text", "one letter", "blanks",
                                        "one word of any letters", "random bytes"};
    const char *directory = b->tokenizer ? b->tokenizer : "examples/tiny-stories";
    unsigned char *section = NULL;
    attn_tokenizer *own = NULL;
    const int threads = b->n_counts;
    text_arg a;
    task t = new_task(b, TOKENIZER, 0, "MB/s", run_encode, &a);
    size_t i, section_size = 0;
    int good = 1;
    memset(&a, 0, sizeof a);
    b->n_counts = 1;
    heading(b, "tokenizer");
    if (!b->tokenizer && b->model)
        a.tokenizer = attn_model_tokenizer(b->model);
    if (!a.tokenizer) {
        if (!b->tokenizer && !system_is_directory(directory)) {
            fprintf(b->table,
                    "not measured: the model has no tokenizer; --tokenizer DIR gives one\n");
            b->n_counts = threads;
            return 1;
        }
        if (vocab_read(&b->ctx, directory, &section, &section_size, NULL) ||
            attn_tokenizer_new(&b->ctx, &own, section, section_size))
            good = 0;
        a.tokenizer = own;
    }
    a.size = (size_t)(b->quick ? 256 : 2048) << 10;
    a.text = (char *)malloc(a.size + MOST_BEYOND);
    a.ids = (int32_t *)malloc(a.size * sizeof(int32_t));
    if (good && (!a.text || !a.ids))
        good = tool_fail(&b->ctx, ATTN_E_MEMORY, "no memory for a text") == ATTN_OK;
    if (good)
        fprintf(b->table, "%u tokens, of %s\n", (unsigned)attn_tokenizer_n_tokens(a.tokenizer),
                own ? directory : "the model");
    for (i = 0; i < sizeof kinds / sizeof kinds[0] && good; i++) {
        fill_text(a.text, a.size, (int)i);
        snprintf(t.name, sizeof t.name, "%s", kinds[i]);
        t.amount = (double)a.size / 1e6;
        good = measure(b, &t);
    }
    b->n_counts = threads;
    free(a.text);
    free(a.ids);
    attn_tokenizer_free(own);
    free(section);
    return good;
}

/* ---- the whole ---- */

/* The processor's name, as it gives it. */
static void cpu_name(char *name, size_t size)
{
    size_t n;
    snprintf(name, size, "unknown processor");
#if defined(ATTN__DISPATCH)
    {
        unsigned words[12], i;
        char text[49];
        for (i = 0; i < 3; i++) /* cover: a processor without a name */
            if (!__get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                             &words[4 * i + 3]))
                return;
        memcpy(text, words, 48);
        text[48] = 0;
        snprintf(name, size, "%s", text + strspn(text, " "));
    }
#else
    {
        FILE *const f = fopen("/proc/cpuinfo", "r");
        char line[256];
        while (f && fgets(line, sizeof line, f))
            if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
                line[strcspn(line, "\n")] = 0;
                snprintf(name, size, "%s", strchr(line, ':') + 2);
                break;
            }
        if (f)
            fclose(f);
    }
#endif
    for (n = strlen(name); n > 0 && name[n - 1] == ' '; n--) /* cover: another processor */
        name[n - 1] = 0;
}

static const char *compiler(void)
{
#if defined(__clang__)
    return "clang " __clang_version__;
#elif defined(__GNUC__)
    return "gcc " __VERSION__;
#else
    return "another compiler";
#endif
}

/* Tiles of bytes: bit 25 of EDX in leaf 7 of CPUID. */
static int has_amx(void)
{
#if defined(__GNUC__) && defined(__x86_64__)
    unsigned a, registers[3];
    return __get_cpuid_count(7, 0, &a, registers, registers + 1, registers + 2) &&
           registers[2] >> 25 & 1;
#else
    return 0;
#endif
}

static void opening(bench *b)
{
    char cpu[64];
    cpu_name(cpu, sizeof cpu);
    fprintf(b->table, "%s, %d thread%s, %s, %s\n", cpu, b->threads[b->n_counts - 1],
            b->threads[b->n_counts - 1] == 1 ? "" : "s", attn_isa(&b->ctx), compiler());
    fprintf(b->table,
            "Medians of %d repeats; +-: between the quartiles; share: of what the roof allows,\n"
            "which is set by arithmetic (a) or memory (m).\n%s",
            b->repeats,
            has_amx()
                ? "The roof of 8-bit products is that of vector instructions. This processor has "
                  "AMX, which this\nlibrary does not use, and which could go beyond that roof.\n"
                : "");
    if (!b->json)
        return;
    fprintf(b->json, "{\n  \"cpu\": ");
    put_text(b->json, cpu);
    fprintf(b->json, ",\n  \"threads\": %d,\n  \"isa\": ", b->threads[b->n_counts - 1]);
    put_text(b->json, attn_isa(&b->ctx));
    fprintf(b->json, ",\n  \"compiler\": ");
    put_text(b->json, compiler());
    fprintf(b->json, ",\n  \"model\": ");
    put_text(b->json, b->path ? base_name(b->path) : b->size);
    fprintf(b->json, ",\n  \"repeats\": %d,\n  \"clock\": \"%s\",\n  \"figures\": [", b->repeats,
            b->cpu_time ? "processor" : "wall");
}

static void closing(bench *b)
{
    const double part = b->wall > 0 ? b->processor / b->wall : 1;
    if (b->is_above)
        fprintf(b->table,
                "\nA share above 100 %%: memory was faster during the work than before it and "
                "after it, or a part\nof the bytes was still in a cache.\n");
    if (part < 0.95)
        fprintf(b->table,
                "\nSomething else was running: a single thread had its processor %.0f %% of the "
                "time.\n%s",
                100 * part,
                b->cpu_time
                    ? ""
                    : "Repeat this on an idle machine, or for one thread with --cpu-time.\n");
    if (b->json) {
        fprintf(b->json, "\n  ],\n  \"processor_share\": %.3f", part);
        put_number(b->json, "ping_pong_seconds", b->ping_pong);
        fprintf(b->json, "\n}\n");
    }
}

/* A file that goes when the program does, also when it is interrupted. */
static const char *volatile temporary_file, *volatile temporary_draft;

static void remove_temporary(void)
{
    const char *const file = temporary_file, *const draft = temporary_draft;
    temporary_file = temporary_draft = NULL;
    if (draft) /* NOLINTNEXTLINE(bugprone-signal-handler,cert-sig30-c): as below */
        remove(draft);
    if (file) /* NOLINTNEXTLINE(bugprone-signal-handler,cert-sig30-c): it is unlink, which may */
        remove(file);
}

static void interrupted(int number)
{
    remove_temporary();
    signal(number, SIG_DFL);
    raise(number);
}

static void close_model(bench *b)
{
    attn_model_close(b->model);
    b->model = NULL;
    b->dtype = NULL;
    remove_temporary();
}

/* Counts what one token reads, and says which model this is. */
static int describe_model(bench *b)
{
    const attn_config *c = attn_model_config(b->model);
    const size_t n = attn_model_n_tensors(b->model);
    attn_session_desc desc;
    attn_tensor_info t = ATTN_ZERO;
    size_t i, half = 0, whole = 0;
    b->weight_bytes = 0;
    for (i = 0; i < n; i++) {
        attn_model_tensor_info(&b->ctx, &t, b->model, i);
        if (strcmp(t.name, "pos_embed.W_pos") != 0 && (c->tied || strcmp(t.name, "embed.W_E") != 0))
            b->weight_bytes += t.size;
    }
    memset(&desc, 0, sizeof desc);
    b->ctx.n_threads = 1;
    desc.n_ctx = c->n_ctx / 2;
    if (attn_session_size(&b->ctx, &whole, b->model, NULL) || /* cover: 32-bit */
        (desc.n_ctx > 0 && attn_session_size(&b->ctx, &half, b->model, &desc)))
        return 0;
    b->position_bytes = (double)(whole - half) / (double)(c->n_ctx - desc.n_ctx);
    b->dtype = dtype_name(b->model->layers[0].w_qkv.dtype);
    fprintf(b->table, "\n==== %s, %s: %u layers of %u, %.1f MB of weights a token\n",
            b->path ? base_name(b->path) : b->size, b->dtype, (unsigned)c->n_layer,
            (unsigned)c->d_model, (double)b->weight_bytes / 1e6);
    return 1;
}

/* Opens the given model, or makes one with weights of this type. */
static int open_model(bench *b, attn_dtype dtype)
{
    static char draft[sizeof b->file + sizeof ".00.part"];
    const char *directory = getenv("TMPDIR");
    size_t i;
    if (b->path) {
        snprintf(b->file, sizeof b->file, "%s", b->path);
        if (strlen(b->path) >= sizeof b->file)
            return tool_fail(&b->ctx, ATTN_E_ARGUMENT, "the path %.40s... is too long", b->path), 0;
    } else {
        for (i = 0; strcmp(model_shapes[i].name, b->size) != 0; i++)
            continue;
#ifdef _WIN32
        directory = directory ? directory : getenv("TEMP");
#endif
        snprintf(b->file, sizeof b->file, "%s/bench-%lu.attn",
                 directory && *directory ? directory : "/tmp", system_process());
        snprintf(draft, sizeof draft, "%s.00.part", b->file); /* attn_writer_new makes it */
        temporary_draft = draft;
        temporary_file = b->file;
        if (model_write(&b->ctx, b->file, &model_shapes[i], dtype))
            return 0;
    }
    return check_model_path(&b->ctx, b->file) == ATTN_OK &&
           attn_model_open(&b->ctx, &b->model, b->file, NULL) == ATTN_OK && describe_model(b);
}

static int bench_model(bench *b, attn_dtype dtype)
{
    static const struct {
        bench_section bit;
        int (*run)(bench *b);
    } sections[] = {{ROOFS, section_roofs},
                    {MATMUL, section_matmul},
                    {PROMPTS, section_prompts},
                    {GENERATION, section_generation},
                    {SPECULATION, section_speculation},
                    {BATCH, section_batch},
                    {MIXED, section_mixed},
                    {GLASS, section_glass},
#ifdef BENCH_CHILD
                    {THREADS, section_threads},
                    {FIRST, section_first},
                    {MEMORY, section_memory}
#endif
    };
    size_t i;
    int good = open_model(b, dtype) && reserve(b, b->weight_bytes);
    for (i = 0; i < sizeof sections / sizeof sections[0] && good; i++)
        if ((b->sections & (unsigned)sections[i].bit) && (b->path || sections[i].bit != ROOFS))
            good = sections[i].run(b);
    if (good && b->path && (b->sections & TOKENIZER))
        good = section_tokenizer(b);
    close_model(b);
    return good;
}

static int bench_all(bench *b)
{
    const unsigned of_model = (1u << N_SECTIONS) - 1 - ROOFS - TOKENIZER;
    int i, good = 1;
    if (b->path)
        return bench_model(b, ATTN_F32);
    if (b->sections & ROOFS)
        good = section_roofs(b);
    for (i = 0; i < N_DTYPES && good && (b->sections & of_model); i++)
        if (b->wanted >> i & 1)
            good = bench_model(b, dtypes[i].dtype);
    return good && (!(b->sections & TOKENIZER) || section_tokenizer(b));
}

/* ---- options ---- */

/* Refuses options that contradict each other. */
static int check_usage(const options *o)
{
    if (o->model && (o->size >= 0 || o->dtypes))
        return fail(USAGE,
                    "--size and --dtype are for random weights, not for a given model: leave "
                    "out %s or them",
                    o->model);
    if (o->model && o->json && system_same_file(o->model, o->json))
        return fail(USAGE, "--json would overwrite the model %s: name another file", o->model);
    return FINE;
}

static int read_command(int argc, char **argv, options *o)
{
    static arguments given;
    static const char hint[] = "one model at a time";
    size_t next = 0;
    int code;
    o->size = -1;
    code = parse_options(argc, argv, table, N_OPTIONS, o, &given, 1, hint);
    if (code != FINE || o->help || o->version)
        return code;
    o->model = option_or_word(o->model, &given, &next);
    if (next < given.n_words)
        return fail(USAGE, "too many arguments at \"%s\": %s", given.words[next], hint);
    return check_usage(o);
}

/* Reads from the command line the measurements to make, and their settings. */
static void set_up(bench *b, const options *o)
{
    int count;
    b->path = o->model;
    b->tokenizer = o->tokenizer;
    b->json_path = o->json;
    b->quick = o->quick;
    b->cpu_time = o->cpu_time;
    b->sections = o->sections ? o->sections : (1u << N_SECTIONS) - 1;
    b->wanted = o->dtypes;
    if (!b->wanted)
        b->wanted = o->size > 0 ? 4 : b->quick ? 5 : 15;
    b->size = model_shapes[o->size < 0 ? 0 : o->size].name;
    b->ctx.n_threads = (int)o->threads;
    count = attn__max_threads(&b->ctx);
    b->threads[0] = 1;
    b->threads[1] = count;
    b->n_counts = count == 1 || b->cpu_time ? 1 : 2;
    if (b->cpu_time)
        b->sections &= ~(unsigned)(THREADS | FIRST | MEMORY);
    b->repeats = b->quick ? 3 : 5;
    b->shortest = b->quick ? 0.003 : 0.02;
    clock_of_thread = b->cpu_time;
    roofs_init(&b->r, attn_isa(&b->ctx), b->shortest / 4);
}

int main(int argc, char **argv)
{
    static options o;
    bench *b;
    int failed, code;
    system_begin(&argc, &argv);
    if (argc == 5 && strcmp(argv[1], "--child") == 0)
        return child(argv);
#ifdef BENCH_CHILD
    if (argc == 2 && strcmp(argv[1], "--busy") == 0)
        return busy();
#endif
    b = (bench *)calloc(1, sizeof *b);
    if (!b)
        return fail(FAILED, "no memory");
    b->program = argv[0];
    code = read_command(argc, argv, &o);
    if (code != FINE || print_on_request(o.help, o.version, print_help))
        return free(b), finish_output(code);
    signal(SIGINT, interrupted);
    signal(SIGTERM, interrupted);
    set_up(b, &o);
    b->table = stdout;
    if (b->json_path && strcmp(b->json_path, "-") == 0) {
        b->json = stdout;
        b->table = tmpfile();
    } else if (b->json_path) {
        b->json = system_open(b->json_path, "w");
    }
    if (!b->table || (b->json_path && !b->json)) {
        tool_fail(&b->ctx, ATTN_E_IO, "cannot write %s: %s", b->json_path, why(errno));
        failed = 1;
    } else {
        opening(b);
        failed = !bench_all(b);
        closing(b);
        if (fflush(b->table) || ferror(b->table) ||
            (b->json && (fflush(b->json) || ferror(b->json)))) {
            tool_fail(&b->ctx, ATTN_E_IO, "cannot write the figures: %s", why(errno));
            failed = 1;
        }
    }
    if (failed)
        fail_ctx(&b->ctx);
    if (b->json && b->json != stdout)
        fclose(b->json);
    roofs_free(&b->r);
    attn_ctx_free(&b->ctx);
    free(b);
    return failed != 0;
}
