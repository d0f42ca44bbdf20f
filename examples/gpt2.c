/* cc examples/gpt2.c -I. -O2 -fopenmp -lm -o gpt2        (without -fopenmp: one thread)
 *
 * Text from a prompt: opens a .attn file, feeds the prompt, then samples, prints and feeds one
 * token at a time. That loop, in generate(), is what attn_generate() does, without its drafts,
 * ahead, written out so that it can show ids as well as text and stop at Ctrl-C between tokens. */

#define _DARWIN_C_SOURCE /* for getrusage under -std=c99 */
#include "tools/draft.h" /* first: it asks the system for POSIX */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#define PROGRAM "gpt2"
#define INPUT   "prompt"
#include "tools/program.h"
#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <sys/resource.h>
#define HAVE_POSIX
#endif

typedef struct options {
    const char *model, *prompt, *file, *ids, *logits, *isa;
    size_t tokens, top_k, repeat_last, seed, threads;
    float temperature, top_p, min_p, repeat_penalty;
    int special, ignore_eos, bos, print_ids, no_prompt, skip_checksums, f16_cache, quiet, help,
        version;
} options;

static const struct option table[] = {
#define AT(member) offsetof(options, member), 0 /* no commands */
    {'n', "tokens", "COUNT", COUNT, AT(tokens), 1e9, "tokens to generate (default 100)"},
    {0, "temperature", "X", NUMBER, AT(temperature), 1000, "0: greedy (default); 1: as trained"},
    {0, "top-k", "K", COUNT, AT(top_k), 1e9, "sample from the K likeliest tokens"},
    {0, "top-p", "P", NUMBER, AT(top_p), 1, "... from the likeliest that together reach P"},
    {0, "min-p", "P", NUMBER, AT(min_p), 1, "... from those at least P times the likeliest"},
    {0, "repeat-penalty", "X", NUMBER, AT(repeat_penalty), 1000, "above 1: repeat less"},
    {0, "repeat-last", "COUNT", COUNT, AT(repeat_last), 1e9, "... of the last COUNT tokens"},
    {0, "seed", "SEED", COUNT, AT(seed), 4294967295., "same seed, same text (default 0)"},
    {0, "threads", "COUNT", COUNT, AT(threads), MAX_THREADS, "default: one for each processor"},
    {0, "isa", "NAME", TEXT, AT(isa), 0, "portable, base, avx2, avx512, avx512-vnni, neon"},
    {0, "f16-cache", NULL, FLAG, AT(f16_cache), 0, "round keys and values to half the bytes"},
    {0, "file", "FILE", TEXT, AT(file), 0, "read the prompt from FILE (-: standard input)"},
    {0, "ids", "IDS", TEXT, AT(ids), 0, "the prompt as token ids: \"464 995\""},
    {0, "bos", NULL, FLAG, AT(bos), 0, "begin with the beginning-of-text token"},
    {0, "special", NULL, FLAG, AT(special), 0, "<|endoftext|> in the prompt is a token"},
    {0, "ignore-eos", NULL, FLAG, AT(ignore_eos), 0, "go on through the end-of-text token"},
    {0, "print-ids", NULL, FLAG, AT(print_ids), 0, "print token ids in place of text"},
    {0, "no-prompt", NULL, FLAG, AT(no_prompt), 0, "print only what is generated"},
    {0, "logits", "FILE", TEXT, AT(logits), 0,
     "write the logits of every position of the prompt\n"
     "as a NumPy array [T, vocab]; generates only if\n"
     "-n is given too"},
    {0, "skip-checksums", NULL, FLAG, AT(skip_checksums), 0, "open without verifying the file"},
    {'q', "quiet", NULL, FLAG, AT(quiet), 0, "no statistics on standard error"},
    {'h', "help", NULL, FLAG, AT(help), 0, "print this"},
    {0, "version", NULL, FLAG, AT(version), 0, "print the version"},
};
enum { N_OPTIONS = sizeof table / sizeof table[0] };

static void print_help(void)
{
    printf("gpt2 MODEL.attn PROMPT: prints the prompt and how the model continues it\n\n"
           "The prompt may be - for standard input; after -- nothing is taken for an option.\n\n");
    print_options(table, N_OPTIONS, 6);
    printf("\nExit codes: 0 done, 1 the run failed, 2 wrong usage, 130 stopped by Ctrl-C,\n"
           "141 the reader of the output went away.\n");
}

/* A run and what it keeps track of. */

typedef struct run {
    options o;
    attn_ctx ctx;
    arena memory;
    attn_model *model;
    attn_session *session;
    attn_sampler *sampler;
    int32_t *prompt;
    size_t n_prompt, n_generated, n_printed;
    attn_utf8 utf8;
    double load_seconds, prompt_seconds, generate_seconds;
} run;

static double seconds(void)
{
#ifdef HAVE_POSIX
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
#else
    return (double)clock() / CLOCKS_PER_SEC;
#endif
}

/* A session with room for this run and no more, and a sampler. */
static int make_session(run *r)
{
    const attn_config *config = attn_model_config(r->model);
    const size_t room = config->n_ctx - r->n_prompt;
    attn_session_desc desc = {0};
    attn_sampler_desc how = {0};
    desc.n_ctx = r->n_prompt + (r->o.tokens < room ? r->o.tokens : room);
    desc.cache = r->o.f16_cache ? ATTN_F16 : ATTN_F32;
    how.temperature = r->o.temperature;
    how.top_k = (int32_t)r->o.top_k;
    how.top_p = r->o.top_p;
    how.min_p = r->o.min_p;
    how.repeat_penalty = r->o.repeat_penalty;
    how.repeat_last = r->o.repeat_last;
    how.seed = r->o.seed;
    if (attn_session_new(&r->ctx, &r->session, r->model, &desc) ||
        attn_sampler_new(&r->ctx, &r->sampler, config->n_vocab, &how))
        return failed(&r->ctx);
    return FINE;
}

/* Prints the ids, or as much of their text as is whole characters; end: the last characters. */
static int print_tokens(run *r, const int32_t *ids, size_t n, int end)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(r->model);
    char text[3 * (64 + 4)];
    size_t i, done, piece, size, whole;
    for (i = 0; i < n; i++) {
        const char *bytes = tokenizer ? attn_token_bytes(tokenizer, ids[i], &size) : NULL;
        if (r->o.print_ids || !tokenizer)
            printf("%s%ld", r->n_printed++ ? " " : "", (long)ids[i]);
        else
            for (done = 0; bytes && done < size; done += piece) {
                piece = size - done < 64 ? size - done : 64;
                whole = attn_utf8_push(&r->utf8, bytes + done, piece, text);
                fwrite(text, 1, whole, stdout);
            }
    }
    if (end) {
        fwrite(text, 1, attn_utf8_push(&r->utf8, "", 0, text), stdout);
        putchar('\n');
    }
    if (fflush(stdout) == 0 && !ferror(stdout)) /* an earlier write may have failed */
        return FINE;
    if (errno == EPIPE) /* where nobody takes the signal for it */
        return PIPE_CLOSED;
    return fail(FAILED, "cannot write the output: %s", strerror(errno));
}

/* NumPy's format: a header of text in 128 bytes, then the numbers. */
static int write_npy_header(FILE *file, size_t n_rows, size_t n_columns)
{
    char shape[118];
    snprintf(shape, sizeof shape, "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %zu), }",
             n_rows, n_columns);
    return fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file) == 10 &&
           fprintf(file, "%-117s\n", shape) == 118;
}

static int write_floats(FILE *file, float *numbers, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) { /* little-endian on any host, in place */
        unsigned char *bytes = (unsigned char *)&numbers[i];
        uint32_t bits;
        memcpy(&bits, &numbers[i], sizeof bits);
        bytes[0] = (unsigned char)bits;
        bytes[1] = (unsigned char)(bits >> 8);
        bytes[2] = (unsigned char)(bits >> 16);
        bytes[3] = (unsigned char)(bits >> 24);
    }
    return fwrite(numbers, sizeof *numbers, n, file) == n;
}

/* The prompt goes in by pieces, which changes no bit of the result: so Ctrl-C is heard between two
 * of them, and the logits of a long text (if they go to a file) are never in memory together. */
static int feed_pieces(run *r, FILE *file, float *logits, size_t piece)
{
    size_t done, n;
    for (done = 0; done < r->n_prompt; done += n) {
        attn_feed_item item = {0};
        if (interrupted)
            return INTERRUPTED;
        n = r->n_prompt - done < piece ? r->n_prompt - done : piece;
        item.session = r->session;
        item.tokens = r->prompt + done;
        item.n_tokens = n;
        item.logits = logits;
        if (attn_feed_batch(&r->ctx, &item, 1))
            return failed(&r->ctx);
        if (file && !write_floats(file, logits, n * attn_model_config(r->model)->n_vocab))
            return fail(FAILED, "%s: %s", r->o.logits, strerror(errno));
    }
    return FINE;
}

static int feed_prompt(run *r)
{
    const size_t piece = 32, n_vocab = attn_model_config(r->model)->n_vocab;
    float *logits;
    draft array;
    int code;
    if (!r->o.logits)
        return feed_pieces(r, NULL, NULL, 256);
    if (system_same_file(r->o.model, r->o.logits))
        return fail(USAGE, "--logits %s: that is the model", r->o.logits);
    if (draft_open(&array, r->o.logits))
        return fail(FAILED, "%s: %s", r->o.logits, strerror(errno));
    if (!(logits = (float *)calloc(piece * n_vocab, sizeof *logits)))
        code = fail(FAILED, "no memory for logits");
    else if (!write_npy_header(array.file, r->n_prompt, n_vocab))
        code = fail(FAILED, "%s: %s", r->o.logits, strerror(errno));
    else
        code = feed_pieces(r, array.file, logits, piece);
    if (draft_close(&array, code == FINE) && code == FINE)
        code = fail(FAILED, "%s: %s", r->o.logits, strerror(errno));
    free(logits);
    return code;
}

static int generate(run *r)
{
    const int32_t eos = attn_model_config(r->model)->eos;
    while (r->n_generated < r->o.tokens) {
        const size_t length = attn_session_length(r->session);
        int32_t id;
        int code;
        if (interrupted)
            return INTERRUPTED;
        if (attn_sample(&r->ctx, r->sampler, attn_logits(r->session),
                        attn_session_tokens(r->session), length, &id))
            return failed(&r->ctx);
        if (id == eos && !r->o.ignore_eos)
            break;
        r->n_generated++;
        if ((code = print_tokens(r, &id, 1, 0)) != FINE)
            return code;
        if (length == attn_session_capacity(r->session))
            break;
        if (attn_feed(&r->ctx, r->session, &id, 1))
            return failed(&r->ctx);
    }
    return FINE;
}

static void print_statistics(const run *r)
{
    size_t threads = 1;
#ifdef _OPENMP
    threads = r->o.threads ? r->o.threads : (size_t)omp_get_max_threads();
    threads = threads < MAX_THREADS ? threads : MAX_THREADS;
#endif
    fprintf(stderr, "prompt %zu tokens, %.1f/s; generated %zu, %.1f/s; loaded in %.3f s; ",
            r->n_prompt, (double)r->n_prompt / (r->prompt_seconds + 1e-9), r->n_generated,
            (double)r->n_generated / (r->generate_seconds + 1e-9), r->load_seconds);
#ifdef HAVE_POSIX
    {
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage); /* in KiB, on Apple's systems in bytes */
#ifdef __APPLE__
        usage.ru_maxrss /= 1024;
#endif
        fprintf(stderr, "%.1f MiB; ", (double)usage.ru_maxrss / 1024);
    }
#endif
    fprintf(stderr, "%s; %zu thread%s\n", attn_isa(&r->ctx), threads, threads == 1 ? "" : "s");
}

static int run_all(run *r)
{
    const int silent = r->o.logits && r->o.tokens == 0; /* only the array was asked for */
    const text_source from = {r->o.prompt, r->o.file, r->o.ids, "ids", r->o.bos, r->o.special};
    double begin = seconds();
    int code, end_code;
    r->ctx.n_threads = (int)r->o.threads;
    code = open_model(&r->ctx, &r->model, r->o.model, r->o.isa, r->o.skip_checksums);
    if (code != FINE)
        return code;
    r->load_seconds = seconds() - begin;
    code = read_tokens(&r->ctx, &r->memory, r->model, r->o.model, &from, &r->prompt, &r->n_prompt);
    if (code != FINE || (code = make_session(r)) != FINE)
        return code;
    signal(SIGINT, on_interrupt);
    if (!silent && !r->o.no_prompt)
        code = print_tokens(r, r->prompt + r->o.bos, r->n_prompt - (size_t)r->o.bos, 0);
    begin = seconds();
    if (code == FINE)
        code = feed_prompt(r);
    r->prompt_seconds = seconds() - begin;
    if (code == FINE)
        code = generate(r);
    r->generate_seconds = seconds() - begin - r->prompt_seconds;
    if (code != FINE && code != INTERRUPTED)
        return code;
    end_code = silent ? FINE : print_tokens(r, NULL, 0, 1);
    if (!r->o.quiet)
        print_statistics(r);
    return code != FINE ? code : end_code;
}

int main(int argc, char **argv)
{
    static run r;
    static arguments given;
    const size_t not_given = SIZE_MAX;
    int code;
    r.o.tokens = not_given;
    if ((code = parse_options(argc, argv, table, N_OPTIONS, &r.o, &given, 2)) != FINE)
        return code;
    r.o.model = given.words[0];
    r.o.prompt = given.words[1];
    if (r.o.help)
        print_help();
    else if (r.o.version)
        print_version();
    if ((r.o.help || r.o.version) && fflush(stdout))
        return fail(FAILED, "cannot write the output: %s", strerror(errno));
    if (r.o.help || r.o.version)
        return FINE;
    if (!r.o.model)
        return fail(USAGE, "no model given: gpt2 MODEL.attn \"a prompt\" (--help tells more)");
    if (!r.o.prompt + !r.o.file + !r.o.ids < 2)
        return fail(USAGE, "give one prompt: as an argument, with --file or with --ids");
    if (!r.o.prompt && !r.o.file && !r.o.ids && !r.o.bos)
        return fail(USAGE, "no prompt given: text, --file, --ids, or --bos to begin with nothing");
    if (r.o.tokens == not_given)
        r.o.tokens = r.o.logits ? 0 : 100;
    code = run_all(&r);
    attn_sampler_free(r.sampler);
    attn_session_free(r.session);
    attn_model_close(r.model);
    arena_free(&r.memory);
    return code;
}
