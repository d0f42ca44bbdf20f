/* cc examples/gpt2.c -I. -O2 -fopenmp -lm -o gpt2        (without -fopenmp: one thread)
 *
 * Text from a prompt: opens a .attn file, feeds the prompt, then samples, prints and feeds one
 * token at a time. The loop in generate() is the one of attn_generate(), but without drafts.
 * It is written out here so that it can show ids as well as text, and stop at Ctrl-C between
 * tokens. */

#define _DARWIN_C_SOURCE  /* for getrusage under -std=c99 */
#include "tools/system.h" /* first: it asks the system for POSIX */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#define PROGRAM "gpt2"
#define INPUT   "prompt"
#include "tools/prompt.h"
#ifdef _OPENMP
#include <omp.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <sys/resource.h>
#define HAVE_POSIX
#endif

typedef struct options {
    const char *model, *prompt, *file, *ids, *logits;
    size_t tokens, top_k, repeat_last, threads;
    uint64_t seed;
    float temperature, top_p, min_p, repeat_penalty;
    int isa, interactive, special, ignore_eos, bos, print_ids, no_prompt, skip_checksums, f16_cache,
        quiet, help, version;
} options;

static const struct option table[] = {
#define AT(member) offsetof(options, member), 0 /* no commands */
#define COUNTED    "0 1000000000"
    {'m', "model", "FILE", TEXT, AT(model), NULL, "the model, if it is not the first word"},
    {'p', "prompt", "TEXT", TEXT, AT(prompt), NULL, "the prompt, if it is not the next word"},
    {'f', "file", "FILE", TEXT, AT(file), NULL, "read the prompt from FILE (-: standard input)"},
    {'i', "interactive", NULL, FLAG, AT(interactive), NULL,
     "continue each line of standard input, one after the other"},
    {'n', "tokens", "COUNT", COUNT, AT(tokens), COUNTED, "tokens to generate (default 100)"},
    {0, "temperature", "X", NUMBER, AT(temperature), "0 1000",
     "0: greedy (default); 1: as trained"},
    {0, "top-k", "K", COUNT, AT(top_k), COUNTED, "sample from the K likeliest tokens"},
    {0, "top-p", "P", NUMBER, AT(top_p), "0 1", "... from the likeliest that together reach P"},
    {0, "min-p", "P", NUMBER, AT(min_p), "0 1", "... from those at least P times the likeliest"},
    {0, "repeat-penalty", "X", NUMBER, AT(repeat_penalty), "0 1000", "above 1: repeat less"},
    {0, "repeat-last", "COUNT", COUNT, AT(repeat_last), COUNTED, "... of the last COUNT tokens"},
    {'s', "seed", "SEED", SEED, AT(seed), NULL, "same seed, same text (default 0)"},
    {'t', "threads", "COUNT", COUNT, AT(threads), THREADS, "default: one for each processor"},
    {0, "isa", "NAME", CHOICE, AT(isa), ISA_NAMES,
     "portable, base, avx2, avx2-vnni, avx512, avx512-vnni, neon, neon-dot, neon-i8mm"},
    {0, "f16-cache", NULL, FLAG, AT(f16_cache), NULL, "round keys and values to half the bytes"},
    {0, "ids", "IDS", TEXT, AT(ids), NULL, "the prompt as token ids: \"464 995\""},
    {0, "bos", NULL, FLAG, AT(bos), NULL, "begin with the beginning-of-text token"},
    {0, "special", NULL, FLAG, AT(special), NULL, "<|endoftext|> in the prompt is a token"},
    {0, "ignore-eos", NULL, FLAG, AT(ignore_eos), NULL, "go on through the end-of-text token"},
    {0, "print-ids", NULL, FLAG, AT(print_ids), NULL, "print token ids in place of text"},
    {0, "no-prompt", NULL, FLAG, AT(no_prompt), NULL, "print only what is generated"},
    {0, "logits", "FILE", TEXT, AT(logits), NULL,
     "write the logits of every position of the prompt as a NumPy array [T, vocab]; generates only "
     "if -n is given too"},
    {0, "skip-checksums", NULL, FLAG, AT(skip_checksums), NULL, "open without verifying the file"},
    {'q', "quiet", NULL, FLAG, AT(quiet), NULL, "no statistics on standard error"},
    PROGRAM_OPTIONS(0),
};
enum { N_OPTIONS = sizeof table / sizeof table[0] };

static void print_help(void)
{
    print_about(
        "gpt2 MODEL.attn PROMPT [options]",
        "Prints the prompt and how the model continues it. The prompt may be - for standard "
        "input, and what comes through a pipe is the prompt if there is no other. On a "
        "terminal the prompt has a colour of its own, unless NO_COLOR is set.");
    print_options(table, N_OPTIONS);
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
    int colour;        /* the prompt has one */
    const char *ended; /* why the generation did */
    progress progress;
    double load_seconds, prompt_seconds, generate_seconds;
} run;

/* A session with room for this run and no more. */
static int make_session(run *r)
{
    const attn_config *config = attn_model_config(r->model);
    const size_t room = config->n_ctx - r->n_prompt;
    attn_session_desc desc = {0};
    desc.n_ctx = r->n_prompt + (r->o.tokens < room ? r->o.tokens : room);
    desc.cache = r->o.f16_cache ? ATTN_F16 : ATTN_F32;
    return attn_session_new(&r->ctx, &r->session, r->model, &desc) ? failed(&r->ctx) : FINE;
}

static int make_sampler(run *r)
{
    attn_sampler_desc how = {0};
    how.temperature = r->o.temperature;
    how.top_k = (int32_t)r->o.top_k;
    how.top_p = r->o.top_p;
    how.min_p = r->o.min_p;
    how.repeat_penalty = r->o.repeat_penalty;
    how.repeat_last = r->o.repeat_last;
    how.seed = r->o.seed;
    return attn_sampler_new(&r->ctx, &r->sampler, attn_model_config(r->model)->n_vocab, &how)
               ? failed(&r->ctx)
               : FINE;
}

/* Prints the ids, or as much of their text as is whole characters; end: the last characters. */
static int print_tokens(run *r, const int32_t *ids, size_t n, int end)
{
    const attn_tokenizer *tokenizer = attn_model_tokenizer(r->model);
    char text[3 * (64 + 4)];
    size_t i, done, piece, size, whole;
    for (i = 0; i < n; i++) {
        const char *bytes = tokenizer ? attn_token_bytes(&size, tokenizer, ids[i]) : NULL;
        if (r->o.print_ids || !tokenizer)
            printf("%s%ld", r->n_printed++ ? " " : "", (long)ids[i]);
        else
            for (done = 0; bytes && done < size; done += piece) {
                piece = size - done < 64 ? size - done : 64;
                whole = attn_utf8_push(text, &r->utf8, bytes + done, piece);
                fwrite(text, 1, whole, stdout);
            }
    }
    if (end) {
        fwrite(text, 1, attn_utf8_push(text, &r->utf8, "", 0), stdout);
        putchar('\n');
    }
    if (fflush(stdout) == 0 && !ferror(stdout)) /* an earlier write may have failed */
        return FINE;
    if (errno == EPIPE) /* where nobody takes the signal for it */
        return PIPE_CLOSED;
    return fail(FAILED, "cannot write the output: %s", why(errno));
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
    progress_begin(&r->progress, "prompt");
    for (done = 0; done < r->n_prompt; done += n) {
        attn_feed_item item = {0};
        if (interrupted)
            return INTERRUPTED;
        progress_at(&r->progress, (double)done / (double)r->n_prompt);
        n = r->n_prompt - done < piece ? r->n_prompt - done : piece;
        item.session = r->session;
        item.tokens = r->prompt + done;
        item.n_tokens = n;
        item.logits = logits;
        if (attn_feed_batch(&r->ctx, &item, 1))
            return failed(&r->ctx);
        if (file && !write_floats(file, logits, n * attn_model_config(r->model)->n_vocab))
            return FINE; /* attn_draft_end says why */
    }
    return FINE;
}

static int feed_prompt(run *r)
{
    const size_t piece = 32, n_vocab = attn_model_config(r->model)->n_vocab;
    unsigned char header[128];
    float *logits;
    attn_draft *array;
    FILE *file;
    int code;
    if (!r->o.logits)
        return feed_pieces(r, NULL, NULL, system_is_terminal(stderr) ? 64 : 256);
    if (system_same_file(r->o.model, r->o.logits))
        return fail(USAGE, "--logits %s: that is the model", r->o.logits);
    if (attn_draft_begin(&r->ctx, &array, r->o.logits))
        return failed(&r->ctx);
    file = (FILE *)attn_draft_stream(array);
    attn_npy_header(header, ATTN_F32, attn_shape2(r->n_prompt, n_vocab));
    fwrite(header, 1, sizeof header, file);
    if (!(logits = (float *)calloc(piece * n_vocab, sizeof *logits)))
        code = fail(FAILED, "no memory for logits");
    else
        code = feed_pieces(r, file, logits, piece);
    if (attn_draft_end(&r->ctx, array, code == FINE ? ATTN_OK : ATTN_STOPPED) && code == FINE)
        code = failed(&r->ctx);
    free(logits);
    return code;
}

static int generate(run *r)
{
    const int32_t eos = attn_model_config(r->model)->eos;
    r->ended = "all that -n asks for";
    while (r->n_generated < r->o.tokens) {
        const size_t length = attn_session_length(r->session);
        int32_t id;
        int code;
        if (interrupted)
            return INTERRUPTED;
        if (attn_sample(&r->ctx, &id, r->sampler, attn_logits(r->session),
                        attn_session_tokens(r->session), length))
            return failed(&r->ctx);
        if (id == eos && !r->o.ignore_eos) {
            r->ended = "the text ended";
            break;
        }
        r->n_generated++;
        if ((code = print_tokens(r, &id, 1, 0)) != FINE)
            return code;
        if (length == attn_session_capacity(r->session)) {
            r->ended = r->n_generated < r->o.tokens ? "the context is full" : r->ended;
            break;
        }
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
    fprintf(stderr, "prompt %zu tokens, %.1f/s; generated %zu, %.1f/s: %s; loaded in %.3f s; ",
            r->n_prompt, (double)r->n_prompt / (r->prompt_seconds + 1e-9), r->n_generated,
            (double)r->n_generated / (r->generate_seconds + 1e-9), r->ended, r->load_seconds);
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

/* On a terminal in a colour of its own, which the continuation has not. */
static int print_prompt(run *r)
{
    int code;
    if (r->o.no_prompt || (r->o.logits && r->o.tokens == 0))
        return FINE;
    if (r->colour)
        fputs("\033[36m", stdout);
    code = print_tokens(r, r->prompt + r->o.bos, r->n_prompt - (size_t)r->o.bos, 0);
    if (r->colour)
        fputs("\033[0m", stdout);
    return code;
}

/* At a terminal a long prompt is printed after it was fed, because the progress uses its line. */
static int feed_and_print(run *r)
{
    const int last = system_is_terminal(stderr) && r->n_prompt > 64;
    double begin;
    int code = last ? FINE : print_prompt(r);
    begin = system_seconds();
    if (code == FINE)
        code = feed_prompt(r);
    progress_end(&r->progress);
    r->prompt_seconds = system_seconds() - begin;
    return code == FINE && last ? print_prompt(r) : code;
}

/* Prints one prompt and its continuation. */
static int continue_text(run *r, const text_source *from)
{
    const int silent = r->o.logits && r->o.tokens == 0; /* only the array was asked for */
    double begin;
    int code, end_code;
    code = read_tokens(&r->ctx, &r->memory, r->model, r->o.model, from, &r->prompt, &r->n_prompt);
    if (code != FINE || (code = make_session(r)) != FINE)
        return code;
    r->ended = "stopped";
    r->n_generated = r->n_printed = 0;
    code = feed_and_print(r);
    begin = system_seconds();
    if (code == FINE)
        code = generate(r);
    r->generate_seconds = system_seconds() - begin;
    if (code != FINE && code != INTERRUPTED)
        return code;
    if (code == INTERRUPTED)
        r->ended = "stopped by Ctrl-C";
    end_code = silent ? FINE : print_tokens(r, NULL, 0, 1);
    if (!r->o.quiet)
        print_statistics(r);
    attn_session_free(r->session);
    r->session = NULL;
    return code != FINE ? code : end_code;
}

/* Reads a line of any length; NULL at the end. */
static char *read_line(run *r)
{
    size_t size = 0, room = 256;
    char *line = (char *)arena_alloc(&r->ctx, &r->memory, room, 1), *longer;
    if (system_is_terminal(stdin))
        fputs("> ", stderr);
    while (line && fgets(line + size, (int)(room - size), stdin)) {
        size += strlen(line + size);
        if (size && line[size - 1] == '\n') {
            line[size - 1] = 0;
            return line;
        }
        if (size + 1 < room)
            continue;
        longer = (char *)arena_alloc(&r->ctx, &r->memory, 2 * room, 1);
        if (longer)
            memcpy(longer, line, size);
        line = longer;
        room *= 2;
    }
    return size ? line : NULL;
}

static int continue_lines(run *r, text_source from)
{
    char *line;
    int code = FINE;
    if (system_is_terminal(stdin))
        fputs("Type a prompt, then Enter; Ctrl-D ends.\n", stderr);
    from.path = from.ids = NULL;
    while (code == FINE && !interrupted && (line = read_line(r)) != NULL) {
        from.word = line;
        if (*line)
            code = continue_text(r, &from);
    }
    return code == FINE && r->ctx.status ? failed(&r->ctx) : code;
}

static int run_all(run *r)
{
    const text_source from = {
        r->o.prompt,
        r->o.file,
        r->o.ids,
        "ids",
        r->o.bos,
        r->o.special,
        "no prompt given: text, --file, --ids, or --bos to begin with nothing"};
    const int given = r->o.prompt || r->o.file || r->o.ids || (r->o.bos && !r->o.interactive);
    const double begin = system_seconds();
    int code;
    r->ctx.n_threads = (int)r->o.threads;
    r->colour = shows_colour(stdout);
    code = open_model(&r->ctx, &r->model, r->o.model, r->o.isa, r->o.skip_checksums);
    if (code != FINE)
        return code;
    r->load_seconds = system_seconds() - begin;
    signal(SIGINT, on_interrupt);
    code = make_sampler(r);
    if (code == FINE && (given || !r->o.interactive))
        code = continue_text(r, &from);
    return code == FINE && r->o.interactive ? continue_lines(r, from) : code;
}

static int check_usage(const options *o, const arguments *given, size_t next)
{
    if (!o->model)
        return fail(USAGE, "no model given: gpt2 MODEL.attn \"a prompt\" (--help tells more)");
    if (next < given->n_words)
        return fail(USAGE, "too many arguments at \"%s\": give one prompt, in quotes",
                    given->words[next]);
    if (!o->prompt + !o->file + !o->ids < 2)
        return fail(USAGE, "give one prompt: as an argument, with --file or with --ids");
    if (o->interactive && o->logits)
        return fail(USAGE, "--logits takes one prompt: leave -i out");
    if (!o->prompt && !o->file && !o->ids && !o->bos && !o->interactive &&
        system_is_terminal(stdin))
        return fail(USAGE, "no prompt given: text, --file, --ids, - or -i to type it, or --bos to "
                           "begin with nothing");
    return FINE;
}

int main(int argc, char **argv)
{
    static run r;
    static arguments given;
    const size_t not_given = SIZE_MAX;
    size_t next = 0;
    int code;
    system_begin(&argc, &argv);
    r.o.tokens = not_given;
    code = parse_options(argc, argv, table, N_OPTIONS, &r.o, &given, 2, "quote the prompt");
    if (code != FINE)
        return code;
    if (print_on_request(r.o.help, r.o.version, print_help))
        return finish_output(FINE);
    r.o.model = option_or_word(r.o.model, &given, &next);
    r.o.prompt = option_or_word(r.o.prompt, &given, &next);
    if ((code = check_usage(&r.o, &given, next)) != FINE)
        return code;
    if (r.o.tokens == not_given)
        r.o.tokens = r.o.logits ? 0 : 100;
    code = run_all(&r);
    attn_sampler_free(r.sampler);
    attn_session_free(r.session);
    attn_model_close(r.model);
    arena_free(&r.memory);
    return code;
}
