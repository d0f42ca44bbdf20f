/* Measures one figure: repeats a unit of work between measurements of its roof, and writes the result
 * as a line of the table and of the JSON. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "tools/common/program.h"
#include "bench_model.h"
#include "roofs.h"

enum { MAX_REPEATS = 9, PROMPT = 32 };

/* The parts of the table, in its order; the bits of bench.sections. */
typedef enum bench_section {
    ROOFS = 1,
    MATMUL = 2,
    PROMPTS = 4,
    GENERATION = 8,
    SPECULATION = 16,
    BATCH = 32,
    MIXED = 64,
    HOOKS = 128,
    THREADS = 256,
    FIRST = 512,
    MEMORY = 1024,
    TOKENIZER = 2048,
    BARRIER = 4096
} bench_section;
#define SECTIONS                                                                                   \
    "roofs matmul prompt generation speculation batch mixed hooks threads first memory tokenizer " \
    "barrier"
enum { N_SECTIONS = 13 };

#define DTYPES "f32 f16 q8 q4"
static const struct {
    const char *name;
    attn_dtype dtype;
} dtypes[] = {{"f32", ATTN_F32}, {"f16", ATTN_F16}, {"q8", ATTN_Q8}, {"q4", ATTN_Q4}};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

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
    unsigned sections, wanted; /* bits of bench_section; bits of indices into dtypes */
    int quick, cpu_time;
    int threads[2], n_counts; /* the numbers of threads to measure with */
    int repeats;
    double shortest; /* the least seconds of a measurement */
    roofs r;

    /* the model that is measured */
    char file[512];
    attn_model *model;
    const char *dtype;
    uint64_t weight_bytes; /* bytes of weights that one token reads */
    double position_bytes; /* bytes of the cache for one position */
    double ping_pong;      /* in seconds; 0: not measured */
    double wall,
        processor; /* seconds of the measurements with one thread; they differ on a busy machine */
    int is_above;  /* a figure above its roof was printed */

    FILE *table, *json;
    int n_json;
} bench;

/* The least that one unit of work needs. */
typedef struct cost {
    double f32, bytes8; /* operations; a multiply-add counts as two */
    double read;        /* bytes of weights and cache */
    size_t span;        /* the bytes that each unit reads again; they may fit in a cache */
} cost;

/* A measurement to make. */
typedef struct task {
    bench_section section;
    const char *dtype; /* of the weights; NULL if there are none */
    char name[40];
    double amount; /* of `unit` in one unit of work; the figure is `unit` per second */
    const char *unit;
    int by_time;   /* the figure is the time itself */
    int elsewhere; /* another process does the work */
    cost needs;
    double (*run)(bench *b, void *arg); /* runs a unit; the seconds, or negative after a failure */
    void *arg;
} task;

/* The results of a task. Each share is relative to the roof in the same repeat. */
typedef struct measured {
    int threads, n;
    double value[MAX_REPEATS], roof[MAX_REPEATS], share[MAX_REPEATS];
    int by_memory;       /* in how many repeats memory was the lower roof */
    double unit_seconds; /* the seconds of a unit in the last repeat */
} measured;

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of an odd number of values, which are sorted. *spread is the distance between the
 * quartiles, divided by the median. */
static double median(double *values, int n, double *spread)
{
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    double middle = values[n / 2];
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

/* Writes a text as a JSON string, without the bytes that are not printable ASCII. */
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
    size_t size;
    int i = 0;
    if (!f)
        return;
    while ((unsigned)t->section >> (i + 1))
        i++;
    const char *const section = name_at(SECTIONS, i, &size), *const quote = t->dtype ? "\"" : "";
    fprintf(f,
            "%s\n    {\"section\": \"%.*s\", \"dtype\": %s%s%s, \"name\": ", b->n_json++ ? "," : "",
            (int)size, section, quote, t->dtype ? t->dtype : "null", quote);
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

/* A number with 3 or 4 significant digits, in 8 columns. */
static const char *shown_number(char out[16], double x)
{
    if (x <= 0)
        snprintf(out, 16, "-");
    else
        snprintf(out, 16, x < 10 ? "%.3f" : x < 100 ? "%.2f" : x < 1000 ? "%.1f" : "%.0f", x);
    return out;
}

/* Prints a line of the table. If memory is the roof of one thread, Gop/s are converted to GB/s. */
static void report(bench *b, const task *t, measured *m)
{
    const int as_bytes =
        strcmp(t->unit, "Gop/s") == 0 && m[0].by_memory * 2 > m[0].n && t->needs.read > 0;
    const double factor = as_bytes ? t->needs.read / 1e9 / t->amount : 1;
    const char *const unit = as_bytes ? "GB/s" : t->unit;
    fprintf(b->table, "%-27s %-7s", t->name, unit);
    for (int i = 0; i < b->n_counts; i++) {
        double spread, unused;
        char value_text[16], roof_text[16], share_text[16];
        const int by_memory = m[i].by_memory * 2 > m[i].n;
        double value = median(m[i].value, m[i].n, &spread) * factor;
        double roof = median(m[i].roof, m[i].n, &unused) * factor;
        double share = median(m[i].share, m[i].n, &unused);
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
    fprintf(b->table, "\n%-35s", title);
    for (int i = 0; i < b->n_counts; i++)
        fprintf(b->table, " |%2d thread%s  +-     roof share", b->threads[i],
                b->threads[i] == 1 ? " " : "s");
    fprintf(b->table, "\n");
    fflush(b->table);
}

/* Prints a line and returns 1 if the model has fewer positions than a section needs. */
static int too_short(const bench *b, size_t n)
{
    const int is_short = attn_model_config(b->model)->n_ctx < n;
    if (is_short)
        fprintf(b->table, "not measured: the model has too few positions\n");
    return is_short;
}

/* The seconds that `needs` takes at the present roofs; 0 if a roof is not known. */
static double least_seconds(bench *b, const cost *needs, int n_threads, int *by_memory)
{
    double arithmetic = 0, reading = 0;
    if (needs->f32 > 0)
        arithmetic += needs->f32 / roof_measure(&b->r, ROOF_F32, 0, n_threads);
    if (needs->bytes8 > 0) {
        const double rate = roof_measure(&b->r, ROOF_BYTES, 0, n_threads);
        if (rate <= 0) /* cover: only in plain C */
            return 0;
        arithmetic += needs->bytes8 / rate;
    }
    if (needs->read > 0)
        reading = needs->read / roof_measure(&b->r, ROOF_MEMORY, needs->span, n_threads);
    *by_memory += reading > arithmetic;
    return reading > arithmetic ? reading : arithmetic;
}

/* Runs units of work for at least `shortest` seconds. The seconds of one, negative after a failure. */
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

/* Measures roof, work, roof with each number of threads in turn, b->repeats times. 0 after a failure. */
static int measure(bench *b, const task *t)
{
    measured m[2];
    memset(m, 0, sizeof m);
    for (int repeat = 0; repeat < b->repeats; repeat++)
        for (int i = 0; i < b->n_counts; i++) {
            measured *const to = &m[i];
            double took = 0;
            int unused = 0;
            b->ctx.n_threads = to->threads = b->threads[i];
            double least = least_seconds(b, &t->needs, b->threads[i], &to->by_memory);
            if (repeat == 0 ||
                to->unit_seconds < b->shortest) /* measuring the roof has filled the caches */
                took = run_some(b, t, 0);
            if (took >= 0)
                took = run_some(b, t, b->shortest);
            if (took < 0)
                return 0;
            took = took > 1e-12 ? took : 1e-12;
            double after = least_seconds(b, &t->needs, b->threads[i], &unused);
            least = after < least ? after : least;
            to->unit_seconds = took;
            to->value[to->n] = t->by_time ? took * t->amount : t->amount / took;
            to->roof[to->n] = least <= 0 ? 0 : t->by_time ? least * t->amount : t->amount / least;
            to->share[to->n++] = least / took;
        }
    report(b, t, m);
    return 1;
}

/* A task whose needs are zero. */
static task new_task(const bench *b, bench_section s, double amount, const char *unit,
                     double (*run)(bench *, void *), void *arg)
{
    const int of_model = s != ROOFS && s != TOKENIZER && s != BARRIER;
    return (task){.section = s,
                  .dtype = of_model ? b->dtype : NULL,
                  .amount = amount,
                  .unit = unit,
                  .run = run,
                  .arg = arg};
}

#endif
