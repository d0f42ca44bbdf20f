/* cc examples/gpt2.c -I. -O2 -fopenmp -lm -o gpt2        (without -fopenmp: one thread)
 *
 * Text from a prompt: opens a .attn file, feeds the prompt, then samples, prints and feeds one
 * token at a time. That loop, in generate(), is what attn_generate() does, without its guessing
 * ahead, written out so that it can show ids as well as text and stop at Ctrl-C between tokens. */

#define _DARWIN_C_SOURCE /* for getrusage under -std=c99 */
#include "tools/draft.h" /* first: it asks the system for POSIX */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <sys/resource.h>
#define HAVE_POSIX
#endif

enum { MAX_THREADS = 256 }; /* attn.h starts no more */
enum { FINE = 0, FAILED = 1, USAGE = 2, INTERRUPTED = 130, PIPE_CLOSED = 141 };

/* Options: one table says what there is, how it is read, where it is kept and what --help says. */

typedef struct options {
    const char *model, *prompt, *file, *ids, *logits, *isa;
    size_t tokens, top_k, repeat_last, seed, threads;
    float temperature, top_p, min_p, repeat_penalty;
    int special, ignore_eos, bos, print_ids, no_prompt, skip_checksums, quiet, help, version;
} options;

static const char *const isa_names[] = {"auto",   "portable", "base",       "avx2",
                                        "avx512", "neon",     "avx512-vnni"};

enum kind { FLAG, COUNT, NUMBER, TEXT };
static const struct option {
    char letter;
    const char *name, *argument;
    enum kind kind;
    size_t at;   /* offset in options */
    double most; /* largest COUNT or NUMBER */
    const char *help;
} table[] = {
#define AT(member) offsetof(options, member)
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
    {0, "file", "FILE", TEXT, AT(file), 0, "read the prompt from FILE (-: standard input)"},
    {0, "ids", "IDS", TEXT, AT(ids), 0, "the prompt as token ids: \"464 995\""},
    {0, "bos", NULL, FLAG, AT(bos), 0, "begin with the beginning-of-text token"},
    {0, "special", NULL, FLAG, AT(special), 0, "<|endoftext|> in the prompt is a token"},
    {0, "ignore-eos", NULL, FLAG, AT(ignore_eos), 0, "go on through the end-of-text token"},
    {0, "print-ids", NULL, FLAG, AT(print_ids), 0, "print token ids in place of text"},
    {0, "no-prompt", NULL, FLAG, AT(no_prompt), 0, "print only what is generated"},
    {0, "logits", "FILE", TEXT, AT(logits), 0,
     "write the logits of every position of the prompt\n"
     "                              as a NumPy array [T, vocab]; generates only if\n"
     "                              -n is given too"},
    {0, "skip-checksums", NULL, FLAG, AT(skip_checksums), 0, "open without verifying the file"},
    {'q', "quiet", NULL, FLAG, AT(quiet), 0, "no statistics on standard error"},
    {'h', "help", NULL, FLAG, AT(help), 0, "print this"},
    {0, "version", NULL, FLAG, AT(version), 0, "print the version"},
};
enum { N_OPTIONS = sizeof table / sizeof table[0] };

static void print_help(void)
{
    int i;
    printf("gpt2 MODEL.attn PROMPT: prints the prompt and how the model continues it\n\n"
           "The prompt may be - for standard input; after -- nothing is taken for an option.\n\n");
    for (i = 0; i < N_OPTIONS; i++)
        printf("  %c%c --%-14s %-6s  %s\n", table[i].letter ? '-' : ' ',
               table[i].letter ? table[i].letter : ' ', table[i].name,
               table[i].argument ? table[i].argument : "", table[i].help);
    printf("\nExit codes: 0 done, 1 the run failed, 2 wrong usage, 130 stopped by Ctrl-C,\n"
           "141 the reader of the output went away.\n");
}

static int fail(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("gpt2: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return code;
}

/* Both take digits and nothing else; strtoull alone would take signs, spaces and "12abc". */
static int parse_count(const char *text, double most, size_t *value)
{
    char *end;
    unsigned long long number;
    errno = 0;
    number = strtoull(text, &end, 10);
    *value = (size_t)number;
    return *text >= '0' && *text <= '9' && !*end && !errno && (double)number <= most;
}

static int parse_number(const char *text, double most, float *value)
{
    char *end;
    const double number = strtod(text, &end);
    *value = (float)number;
    return strchr("0123456789.", *text) && end != text && !*end && number <= most;
}

static int set_option(options *o, const struct option *option, const char *text)
{
    void *at = (char *)o + option->at;
    if (option->kind == FLAG)
        *(int *)at = 1;
    else if (option->kind == TEXT)
        *(const char **)at = text;
    else if (option->kind == COUNT && !parse_count(text, option->most, (size_t *)at))
        return fail(USAGE, "--%s: \"%s\" is not a whole number from 0 to %.0f", option->name, text,
                    option->most);
    else if (option->kind == NUMBER && !parse_number(text, option->most, (float *)at))
        return fail(USAGE, "--%s: \"%s\" is not a number from 0 to %g", option->name, text,
                    option->most);
    return FINE;
}

/* -x, --name or --name=value; *value points behind the =, or is NULL. */
static const struct option *find_option(const char *text, const char **value)
{
    const size_t length = strcspn(text, "=");
    int i;
    *value = text[length] ? text + length + 1 : NULL;
    for (i = 0; i < N_OPTIONS; i++)
        if ((length == 2 && text[1] == table[i].letter) ||
            (strncmp(text, "--", 2) == 0 && length - 2 == strlen(table[i].name) &&
             strncmp(text + 2, table[i].name, length - 2) == 0))
            return &table[i];
    return NULL;
}

static int parse_options(int argc, char **argv, options *o)
{
    int i, code, only_words = 0;
    for (i = 1; i < argc; i++) {
        const struct option *option;
        const char *value;
        if (!only_words && strcmp(argv[i], "--") == 0) {
            only_words = 1;
        } else if (only_words || argv[i][0] != '-' || argv[i][1] == 0) {
            if (o->prompt)
                return fail(USAGE, "too many arguments at \"%s\": quote the prompt", argv[i]);
            *(o->model ? &o->prompt : &o->model) = argv[i];
        } else if (!(option = find_option(argv[i], &value))) {
            return fail(USAGE, "there is no option %s; --help lists them", argv[i]);
        } else if (!option->argument && value) {
            return fail(USAGE, "--%s takes no value", option->name);
        } else if (option->argument && !value && !(value = argv[++i])) {
            return fail(USAGE, "--%s needs a value: %s", option->name, option->argument);
        } else if ((code = set_option(o, option, value)) != FINE) {
            return code;
        }
    }
    return FINE;
}

/* A run and what it keeps track of. */

typedef struct run {
    options o;
    attn_ctx ctx;
    attn_model *model;
    attn_session *session;
    attn_sampler *sampler;
    int32_t *prompt;
    size_t n_prompt, n_generated, n_printed;
    attn_utf8 utf8;
    double load_seconds, prompt_seconds, generate_seconds;
} run;

static volatile sig_atomic_t interrupted;
static void on_interrupt(int number)
{
    interrupted = 1;
    signal(number, SIG_DFL); /* a second Ctrl-C does not ask */
}

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

static int open_model(run *r)
{
    const size_t n_names = sizeof isa_names / sizeof isa_names[0];
    attn_model_desc desc = {0};
    size_t isa = 0;
    while (r->o.isa && isa < n_names && strcmp(r->o.isa, isa_names[isa]) != 0)
        isa++;
    if (isa == n_names)
        return fail(USAGE, "--isa: there is no \"%s\"; --help lists them", r->o.isa);
    r->ctx.isa = (attn_isa_kind)isa;
    r->ctx.n_threads = (int)r->o.threads;
    if (!attn_isa(&r->ctx))
        return fail(FAILED, "this processor or this build has no %s", r->o.isa);
    desc.skip_checksums = r->o.skip_checksums;
    if (attn_model_open(&r->ctx, &r->model, r->o.model, &desc))
        return fail(FAILED, "%s", r->ctx.message);
    return FINE;
}

/* A whole stream, which may hold any bytes. NULL: no memory. */
static char *read_all(FILE *file, size_t *size)
{
    size_t capacity = 4096, n;
    char *text = (char *)malloc(capacity), *larger;
    *size = 0;
    while (text && (n = fread(text + *size, 1, capacity - *size, file)) > 0) {
        if ((*size += n) < capacity)
            continue;
        if (!(larger = (char *)realloc(text, capacity *= 2)))
            free(text);
        text = larger;
    }
    return text;
}

/* Makes room for `size` tokens more: no text has more tokens than bytes. */
static int grow_prompt(run *r, size_t size)
{
    const size_t n = r->n_prompt + size + 1;
    int32_t *larger =
        n <= SIZE_MAX / sizeof *larger ? (int32_t *)realloc(r->prompt, n * sizeof *larger) : NULL;
    if (!larger)
        return fail(FAILED, "no memory for a prompt of %zu bytes", size);
    r->prompt = larger;
    return FINE;
}

static int add_ids(run *r, const char *text)
{
    const char *at, *const between = " ,\t\r\n";
    const long n_vocab = (long)attn_model_config(r->model)->n_vocab;
    if (grow_prompt(r, strlen(text)) != FINE)
        return FAILED;
    for (at = text + strspn(text, between); *at; at += strspn(at, between)) {
        char *end;
        long id;
        errno = 0;
        id = strtol(at, &end, 10);
        if (end == at || !strchr(between, *end) || errno || id < 0 || id > INT32_MAX)
            return fail(USAGE, "--ids: no token id at \"%.20s\"", at);
        if (id >= n_vocab)
            return fail(FAILED, "token %ld is not in the vocabulary of %ld", id, n_vocab);
        r->prompt[r->n_prompt++] = (int32_t)id;
        at = end;
    }
    return FINE;
}

static int add_text(run *r, const char *text, size_t size)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(r->model);
    size_t n;
    if (!tokenizer)
        return fail(FAILED, "%s has no tokenizer: give the prompt with --ids", r->o.model);
    if (grow_prompt(r, size) != FINE)
        return FAILED;
    if (attn_encode(&r->ctx, tokenizer, text, size, r->o.special, r->prompt + r->n_prompt, size,
                    &n))
        return fail(FAILED, "%s", r->ctx.message);
    r->n_prompt += n;
    return FINE;
}

static int add_file(run *r, const char *name)
{
    FILE *file = strcmp(name, "-") == 0 ? stdin : fopen(name, "rb");
    size_t size;
    char *text;
    int code;
    if (!file)
        return fail(FAILED, "%s: %s", name, strerror(errno));
    text = read_all(file, &size);
    if (ferror(file))
        code = fail(FAILED, "%s: %s", name, strerror(errno));
    else
        code = text ? add_text(r, text, size) : fail(FAILED, "no memory for the prompt");
    free(text);
    if (file != stdin)
        fclose(file);
    return code;
}

static int make_prompt(run *r)
{
    const attn_config *config = attn_model_config(r->model);
    int code = grow_prompt(r, 1);
    if (r->o.bos && config->bos < 0)
        return fail(FAILED, "%s has no beginning-of-text token for --bos", r->o.model);
    if (r->o.bos && code == FINE)
        r->prompt[r->n_prompt++] = config->bos;
    if (r->o.ids && code == FINE)
        code = add_ids(r, r->o.ids);
    if (r->o.file && code == FINE)
        code = add_file(r, r->o.file);
    if (r->o.prompt && code == FINE)
        code = strcmp(r->o.prompt, "-") == 0 ? add_file(r, "-")
                                             : add_text(r, r->o.prompt, strlen(r->o.prompt));
    if (code == FINE && r->n_prompt == 0)
        return fail(FAILED, "the prompt is empty: give some text, or --bos to begin with nothing");
    if (code == FINE && r->n_prompt > config->n_ctx)
        return fail(FAILED, "the prompt has %zu tokens, but the model's context holds %u",
                    r->n_prompt, (unsigned)config->n_ctx);
    return code;
}

/* A session with room for this run and no more, and a sampler. */
static int make_session(run *r)
{
    const attn_config *config = attn_model_config(r->model);
    const size_t room = config->n_ctx - r->n_prompt;
    attn_session_desc desc = {0};
    attn_sampler_desc how = {0};
    desc.n_ctx = r->n_prompt + (r->o.tokens < room ? r->o.tokens : room);
    how.temperature = r->o.temperature;
    how.top_k = (int32_t)r->o.top_k;
    how.top_p = r->o.top_p;
    how.min_p = r->o.min_p;
    how.repeat_penalty = r->o.repeat_penalty;
    how.repeat_last = r->o.repeat_last;
    how.seed = r->o.seed;
    if (attn_session_new(&r->ctx, &r->session, r->model, &desc) ||
        attn_sampler_new(&r->ctx, &r->sampler, config->n_vocab, &how))
        return fail(FAILED, "%s", r->ctx.message);
    return FINE;
}

/* Prints the ids, or as much of their text as is whole characters; end: the last characters. */
static int print_tokens(run *r, const int32_t *ids, size_t n, int end)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(r->model);
    char text[3 * (64 + 4)];
    size_t i, done, piece, size;
    for (i = 0; i < n; i++) {
        const char *bytes = tokenizer ? attn_token_bytes(tokenizer, ids[i], &size) : NULL;
        if (r->o.print_ids || !tokenizer)
            printf("%s%ld", r->n_printed++ ? " " : "", (long)ids[i]);
        else
            for (done = 0; bytes && done < size; done += piece) {
                piece = size - done < 64 ? size - done : 64;
                fwrite(text, 1, attn_utf8_push(&r->utf8, bytes + done, piece, text), stdout);
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
            return fail(FAILED, "%s", r->ctx.message);
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
            return fail(FAILED, "%s", r->ctx.message);
        if (id == eos && !r->o.ignore_eos)
            break;
        r->n_generated++;
        if ((code = print_tokens(r, &id, 1, 0)) != FINE)
            return code;
        if (length == attn_session_capacity(r->session))
            break;
        if (attn_feed(&r->ctx, r->session, &id, 1))
            return fail(FAILED, "%s", r->ctx.message);
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
    double begin = seconds();
    int code, end_code;
    if ((code = open_model(r)) != FINE)
        return code;
    r->load_seconds = seconds() - begin;
    if ((code = make_prompt(r)) != FINE || (code = make_session(r)) != FINE)
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
    const size_t not_given = SIZE_MAX;
    int code;
    r.o.tokens = not_given;
    if ((code = parse_options(argc, argv, &r.o)) != FINE)
        return code;
    if (r.o.help)
        print_help();
    else if (r.o.version)
        printf("gpt2 of attn.h %d.%d.%d\n", ATTN_VERSION_MAJOR, ATTN_VERSION_MINOR,
               ATTN_VERSION_PATCH);
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
    free(r.prompt);
    return code;
}
