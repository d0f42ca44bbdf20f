/* cc tools/bench/bench.c -I. -O2 -fopenmp -lm -o bench
 *
 * Measures speeds and compares each with the limit of this machine, its roof (as in the roofline
 * model). The roof is the time of the necessary arithmetic, or of reading the necessary bytes,
 * whichever is longer, at the rate at which this processor does that and nothing else. A share of
 * 100 % means that no program with these instructions could be faster. A roof is measured right
 * before the work and right after it, and the higher one counts. The parts, each in a header beside
 * this file:
 *
 *     measure.h      measuring a figure and its roof, and printing them
 *     roofs.h        the roofs of this machine
 *     bench_model.h  a model with random weights
 *     machine.h      the sections roofs and matmul
 *     passes.h       prompt, generation, speculation, batch and mixed
 *     hooks.h        hooks: records and patches
 *     process.h      first and memory, measured in another process
 *     threads.h      threads: numbers of threads compared
 *     encoding.h     tokenizer */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* for madvise */
#endif
#include "tools/common/system.h"
#if defined(__GNUC__) && defined(__x86_64__)
#include <cpuid.h>
#endif
#define ATTN_STATIC /* for the functions inside the header */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#define PROGRAM "bench"
#include "encoding.h"
#include "barrier.h"
#include "hooks.h"
#include "machine.h"
#include "threads.h"
#include <signal.h>

/* ---- the command line ---- */

#ifdef ATTN__TEAMS
#define COUNTS "1 256" /* ROOF_MAX_THREADS */
#else
#define COUNTS "1 1"
#endif

typedef struct options {
    const char *model, *tokenizer, *json;
    int size; /* an index of model_shapes, or -1 */
    unsigned dtypes, sections;
    size_t threads;
    int quick, cpu_time;
} options;

static const struct option table[] = {
#define AT(member) offsetof(options, member), 0 /* no commands */
    {'m', "model", "FILE", TEXT, AT(model), NULL, "the model, if it is not the first word"},
    {0, "size", "SIZE", CHOICE, AT(size), "124M 355M 774M 1558M",
     "of random weights: 124M (the default), 355M, 774M or 1558M"},
    {0, "dtype", "TYPE", CHOICES, AT(dtypes), DTYPES,
     "of random weights: f32, f16, q8 or q4; several with commas between them. "
     "Default: all; with --quick f32 and q8; above 124M q8"},
    {0, "only", "SECTION", CHOICES, AT(sections), SECTIONS,
     "roofs, matmul, prompt, generation, speculation, batch, mixed, hooks, threads, first, memory, "
     "tokenizer or barrier; several with commas between them"},
    {0, "quick", NULL, FLAG, AT(quick), NULL,
     "fewer cases and repeats; of random weights fewer sections too: under a minute"},
    {'t', "threads", "COUNT", COUNT, AT(threads), COUNTS,
     "compare one thread with this many instead of all"},
    {0, "tokenizer", "DIR", TEXT, AT(tokenizer), NULL,
     "measure the tokenizer of vocab.json and merges.txt in DIR instead of the model's"},
    {0, "cpu-time", NULL, FLAG, AT(cpu_time), NULL,
     "count processor time instead of wall-clock time, for one thread on a busy machine"},
    {0, "json", "FILE", OUTPUT, AT(json), NULL,
     "write the figures to FILE as JSON; with - to standard output, without the table"},
    PROGRAM_OPTIONS(0),
};
enum { N_OPTIONS = sizeof table / sizeof table[0] };

static const help_page help = {
    .usage = "bench [MODEL.attn] [options]",
    .about = "Measures MODEL.attn, or a model of one of GPT-2's sizes with random weights, "
             "which is written to a temporary file: speed does not depend on the weights."};

/* Refuses options that contradict each other. */
static int check_usage(const options *o)
{
    if (o->model && (o->size >= 0 || o->dtypes))
        return fail(USAGE,
                    "--size and --dtype are for random weights, not for a given model: "
                    "leave out %s or them",
                    o->model);
    return FINE;
}

/* Returns 0 if the program ends with *code. */
static int read_command(int argc, char **argv, options *o, int *code)
{
    static arguments given;
    const program self = {table, N_OPTIONS, 1, "one model at a time", &help, 1, NULL, NULL, NULL};
    size_t next = 0;
    o->size = -1;
    if (!read_command_line(&self, argc, argv, o, &given, code))
        return 0;
    o->model = option_or_word(o->model, &given, &next);
    *code = next < given.n_words ? refuse_word(given.words[next], self.hint) : check_usage(o);
    return *code == FINE;
}

/* ---- the run ---- */

/* The processor's name, as the processor reports it. */
static void cpu_name(char *name, size_t size)
{
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
    for (size_t n = strlen(name); n > 0 && name[n - 1] == ' '; n--) /* cover: another processor */
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

static void opening(bench *b)
{
    char cpu[64];
    cpu_name(cpu, sizeof cpu);
    fprintf(b->table, "%s, %d thread%s, %s, %s\n", cpu, b->threads[b->n_counts - 1],
            b->threads[b->n_counts - 1] == 1 ? "" : "s", attn_isa(&b->ctx), compiler());
    fprintf(b->table,
            "Medians of %d repeats; +-: between the quartiles; share: of the roof,\n"
            "which arithmetic (a) or memory (m) sets.\n",
            b->repeats);
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
                "\nA share above 100 %%: "
                "memory was faster during the work than before it and after it, or a part\n"
                "of the bytes was still in a cache.\n");
    if (part < 0.95)
        fprintf(b->table,
                "\nSomething else was running: "
                "a single thread had its processor %.0f %% of the time.\n%s",
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

/* A file that is deleted when the program ends or is interrupted. */
static const char *volatile temporary_file, *volatile temporary_draft;
static const char *volatile unfinished; /* the file of --json until it is whole */

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
    const char *const figures = unfinished;
    remove_temporary();
    if (figures) /* NOLINTNEXTLINE(bugprone-signal-handler,cert-sig30-c): as above */
        remove(figures);
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

/* Counts the bytes that one token reads, and prints which model this is. */
static int describe_model(bench *b)
{
    const attn_config *c = attn_model_config(b->model);
    const size_t n = model_n_tensors(b->model);
    attn_session_desc desc = ATTN_ZERO;
    size_t half = 0, whole = 0;
    b->weight_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const model_tensor t = model_tensor_at(b->model, i);
        if (strcmp(t.name, "pos_embed.W_pos") != 0 && (c->tied || strcmp(t.name, "embed.W_E") != 0))
            b->weight_bytes += t.size;
    }
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
        snprintf(draft, sizeof draft, "%s.00.part",
                 b->file); /* the name that lens_writer_new gives it */
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
                    {HOOKS, section_hooks},
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
    const unsigned of_model = (1u << N_SECTIONS) - 1 - ROOFS - TOKENIZER - BARRIER;
    int good = 1;
#ifdef BENCH_BARRIER
    if (b->sections & BARRIER)
        good = section_barrier(b);
    if (b->sections == BARRIER)
        return good;
#endif
    if (b->path)
        return bench_model(b, ATTN_F32);
    if (b->sections & ROOFS)
        good = section_roofs(b);
    for (int i = 0; i < N_DTYPES && good && (b->sections & of_model); i++)
        if (b->wanted >> i & 1)
            good = bench_model(b, dtypes[i].dtype);
    return good && (!(b->sections & TOKENIZER) || section_tokenizer(b));
}

/* Sets the measurements to make, and their settings, by the options. */
static void set_up(bench *b, const options *o)
{
    b->path = o->model;
    b->tokenizer = o->tokenizer;
    b->json_path = o->json;
    b->quick = o->quick;
    b->cpu_time = o->cpu_time;
    b->sections = o->sections ? o->sections : (1u << N_SECTIONS) - 1;
    if (o->quick && !o->sections && !o->model)
        b->sections = ROOFS | MATMUL | PROMPTS | GENERATION | BATCH | FIRST | TOKENIZER;
    b->wanted = o->dtypes;
    if (!b->wanted)
        b->wanted = o->size > 0 ? 4 : b->quick ? 5 : 15;
    b->size = model_shapes[o->size < 0 ? 0 : o->size].name;
    b->ctx.n_threads = (int)o->threads;
    int count = attn_max_threads(&b->ctx);
    b->threads[0] = 1;
    b->threads[1] = count;
    b->n_counts = count == 1 || b->cpu_time ? 1 : 2;
    if (b->cpu_time)
        b->sections &= ~(unsigned)(THREADS | FIRST | MEMORY | BARRIER);
    b->repeats = b->quick ? 3 : 5;
    b->shortest = b->quick ? 0.003 : 0.02;
    clock_of_thread = b->cpu_time;
    roofs_init(&b->r, attn_isa(&b->ctx), b->shortest / 4);
}

int main(int argc, char **argv)
{
    static options o;
    lens_new_file *file = NULL;
    bench *b;
    int failed, code;
    system_begin(&argc, &argv);
    if (argc == 5 && strcmp(argv[1], "--child") == 0)
        return child(argv);
#ifdef BENCH_CHILD
    if (argc == 2 && strcmp(argv[1], "--busy") == 0)
        return busy();
#endif
    if (!read_command(argc, argv, &o, &code))
        return code;
    b = (bench *)calloc(1, sizeof *b);
    if (!b)
        return fail(FAILED, "no memory");
    b->program = argv[0];
    signal(SIGINT, interrupted);
    signal(SIGTERM, interrupted);
    set_up(b, &o);
    b->table = stdout;
    if (b->json_path && strcmp(b->json_path, "-") == 0) {
        b->json = stdout;
        b->table = tmpfile();
    } else if (b->json_path && lens_new_file_begin(&b->ctx, &file, b->json_path) == ATTN_OK) {
        b->json = (FILE *)lens_new_file_stream(file);
        unfinished = file->part;
    }
    failed = b->ctx.status != ATTN_OK ||
             (!b->table && tool_fail(&b->ctx, ATTN_E_IO, "no temporary file: %s", why(errno)));
    if (!failed) {
        opening(b);
        failed = !bench_all(b);
        closing(b);
        if (fflush(b->table) || ferror(b->table) ||
            (b->json && (fflush(b->json) || ferror(b->json)))) {
            tool_fail(&b->ctx, ATTN_E_IO, "cannot write the figures: %s", why(errno));
            failed = 1;
        }
    }
    unfinished = NULL;
    if (lens_new_file_end(&b->ctx, file, failed ? ATTN_STOPPED : ATTN_OK))
        failed = 1;
    if (failed)
        fail_ctx(&b->ctx);
    roofs_free(&b->r);
    attn_ctx_free(&b->ctx);
    free(b);
    return failed != 0;
}
