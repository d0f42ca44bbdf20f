/* What gpt2 and lens do alike: read a command line by a table of options, tell what is wrong, open
 * a model, read a text, hear Ctrl-C. Whoever includes it has said who is speaking, and what it
 * calls its text:
 *
 *     #define PROGRAM "gpt2"
 *     #define INPUT "prompt"
 */
#ifndef TOOLS_PROGRAM_H
#define TOOLS_PROGRAM_H

#include "files.h"
#include <signal.h>

enum { MAX_THREADS = 256 }; /* attn.h starts no more */
enum { FINE = 0, FAILED = 1, USAGE = 2, INTERRUPTED = 130, PIPE_CLOSED = 141 };

TOOLS_FN int fail(int code, const char *format, ...) TOOLS_PRINTF(2, 3);
TOOLS_FN int fail(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs(PROGRAM ": ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return code;
}
#ifdef __clang_analyzer__ /* as tool_fail */
#define fail(code, ...) (fail(code, __VA_ARGS__), (code))
#endif

static volatile sig_atomic_t interrupted;
TOOLS_FN void on_interrupt(int number)
{
    interrupted = 1;
    signal(number, SIG_DFL); /* a second Ctrl-C does not ask */
}

/* After a call of the library failed. */
TOOLS_FN int failed(const attn_ctx *ctx)
{
    return interrupted ? INTERRUPTED : fail(FAILED, "%s", ctx->message);
}

/* Standard output could not take what was printed. */
TOOLS_FN int output_failed(void)
{
    shown why;
    return fail(FAILED, "cannot write the output: %s", reason(why));
}

/* >> The command line: one table says what there is, how it is read, where it is kept and what
 * --help says ================================================================================== */

enum kind { FLAG, COUNT, NUMBER, TEXT };
struct option {
    char letter;
    const char *name, *argument;
    enum kind kind;
    size_t at;    /* offset in the program's options */
    int commands; /* that know it, where there are commands */
    double most;  /* largest COUNT or NUMBER */
    const char *help;
};

typedef struct arguments {
    const char *words[64];  /* that are no options; NULL beyond n_words */
    size_t n_words, n_free; /* n_free: those before a -- */
    uint64_t given;         /* bit i: option i of the table */
} arguments;

/* `width` is that of the column of values. */
TOOLS_FN void print_options(const struct option *table, int n_options, int width)
{
    int i;
    for (i = 0; i < n_options; i++) {
        const char *line = table[i].help;
        printf("  %c%c --%-14s %-*s  ", table[i].letter ? '-' : ' ',
               table[i].letter ? table[i].letter : ' ', table[i].name, width,
               table[i].argument ? table[i].argument : "");
        for (; strchr(line, '\n'); line += strcspn(line, "\n") + 1)
            printf("%.*s\n%*s", (int)strcspn(line, "\n"), line, 24 + width, "");
        printf("%s\n", line);
    }
}

TOOLS_FN void print_version(void)
{
    printf(PROGRAM " of attn.h %d.%d.%d\n", ATTN_VERSION_MAJOR, ATTN_VERSION_MINOR,
           ATTN_VERSION_PATCH);
}

/* Both take digits and nothing else; strtoull alone would take signs, spaces and "12abc". */
TOOLS_FN int parse_count(const char *text, double most, size_t *value)
{
    char *end;
    unsigned long long number;
    errno = 0;
    number = strtoull(text, &end, 10);
    *value = (size_t)number;
    return *text >= '0' && *text <= '9' && !*end && !errno && (double)number <= most;
}

TOOLS_FN int parse_number(const char *text, double most, float *value)
{
    char *end;
    const double number = strtod(text, &end);
    *value = (float)number;
    return strchr("0123456789.", *text) && end != text && !*end && number <= most;
}

TOOLS_FN int set_option(void *options, const struct option *option, const char *text)
{
    void *at = (char *)options + option->at;
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
TOOLS_FN const struct option *find_option(const struct option *table, int n_options,
                                          const char *text, const char **value)
{
    const size_t length = strcspn(text, "=");
    int i;
    *value = text[length] ? text + length + 1 : NULL;
    for (i = 0; i < n_options; i++)
        if ((length == 2 && text[1] == table[i].letter) ||
            (strncmp(text, "--", 2) == 0 && length - 2 == strlen(table[i].name) &&
             strncmp(text + 2, table[i].name, length - 2) == 0))
            return &table[i];
    return NULL;
}

TOOLS_FN int parse_options(int argc, char **argv, const struct option *table, int n_options,
                           void *options, arguments *found, size_t most_words)
{
    int i, code, only_words = 0;
    for (i = 1; i < argc; i++) {
        const struct option *option;
        const char *value;
        if (!only_words && strcmp(argv[i], "--") == 0) {
            only_words = 1;
        } else if (only_words || argv[i][0] != '-' || argv[i][1] == 0) {
            if (found->n_words == most_words)
                return fail(USAGE, "too many arguments at \"%s\": quote the " INPUT, argv[i]);
            found->words[found->n_words++] = argv[i];
            found->n_free += !only_words;
        } else if (!(option = find_option(table, n_options, argv[i], &value))) {
            return fail(USAGE, "there is no option %s; --help lists them", argv[i]);
        } else if (!option->argument && value) {
            return fail(USAGE, "--%s takes no value", option->name);
        } else if (option->argument && !value && !(value = argv[++i])) {
            return fail(USAGE, "--%s needs a value: %s", option->name, option->argument);
        } else if ((code = set_option(options, option, value)) != FINE) {
            return code;
        } else {
            found->given |= (uint64_t)1 << (option - table);
        }
    }
    return FINE;
}

/* >> A model and a text ======================================================================== */

/* isa: a name or NULL. */
TOOLS_FN int open_model(attn_ctx *ctx, attn_model **model, const char *path, const char *isa,
                        int skip_checksums)
{
    static const char *const names[] = {"auto",   "portable", "base",       "avx2",
                                        "avx512", "neon",     "avx512-vnni"};
    const size_t n_names = sizeof names / sizeof names[0];
    attn_model_desc desc = {0};
    size_t i = 0;
    while (isa && i < n_names && strcmp(isa, names[i]) != 0)
        i++;
    if (i == n_names)
        return fail(USAGE, "--isa: there is no \"%s\"; --help lists them", isa);
    ctx->isa = (attn_isa_kind)i;
    if (!attn_isa(ctx))
        return fail(FAILED, "this processor or this build has no %s", isa);
    desc.skip_checksums = skip_checksums;
    return attn_model_open(ctx, model, path, &desc) ? failed(ctx) : FINE;
}

/* Appends the ids of a list; there is room for as many as it has bytes. */
TOOLS_FN int read_ids(const attn_model *model, const char *option, const char *list, int32_t *ids,
                      size_t *n)
{
    const char *at, *const between = " ,\t\r\n";
    const long n_vocab = (long)attn_model_config(model)->n_vocab;
    for (at = list + strspn(list, between); *at; at += strspn(at, between)) {
        char *end;
        long id;
        errno = 0;
        id = strtol(at, &end, 10);
        if (end == at || !strchr(between, *end) || errno || id < 0 || id > INT32_MAX)
            return fail(USAGE, "--%s: no token id at \"%.20s\"", option, at);
        if (id >= n_vocab)
            return fail(FAILED, "token %ld is not in the vocabulary of %ld", id, n_vocab);
        ids[(*n)++] = (int32_t)id;
        at = end;
    }
    return FINE;
}

/* A whole file, or standard input (-), which may hold any bytes. */
TOOLS_FN int read_text(attn_ctx *ctx, arena *memory, const char *name, const char **bytes,
                       size_t *size)
{
    const size_t limit = (size_t)1 << 28;
    FILE *file = strcmp(name, "-") == 0 ? stdin : system_open(name, "rb");
    attn_status status;
    char *text = NULL;
    shown why;
    shown_path shorter;
    if (!file)
        return fail(FAILED, "%s: %s", show_path(shorter, name), reason(why));
    status = read_all(ctx, memory, file, name, limit, &text, size);
    if (file != stdin)
        fclose(file);
    *bytes = text;
    return status ? failed(ctx) : FINE;
}

/* Where a text comes from: one of the three, or nothing but the beginning. */
typedef struct text_source {
    const char *word, *path, *ids;
    const char *option; /* that gives ids */
    int bos, special;   /* begins with that token; <|endoftext|> in the text is one */
} text_source;

TOOLS_FN int read_tokens(attn_ctx *ctx, arena *memory, const attn_model *model,
                         const char *model_path, const text_source *from, int32_t **ids, size_t *n)
{
    const attn_config *config = attn_model_config(model);
    const attn_tokenizer *tokenizer = attn_model_tokenizer(model);
    const char *path = from->word && strcmp(from->word, "-") == 0 ? "-" : from->path;
    const char *bytes = from->word;
    size_t size = bytes ? strlen(bytes) : 0, n_encoded = 0;
    int code = path ? read_text(ctx, memory, path, &bytes, &size) : FINE;
    if (code != FINE)
        return code;
    if (bytes && !tokenizer)
        return fail(FAILED, "%s has no tokenizer: give the " INPUT " with --%s", model_path,
                    from->option);
    if (from->bos && config->bos < 0)
        return fail(FAILED, "%s has no beginning-of-text token for --bos", model_path);
    *ids = (int32_t *)arena_alloc(ctx, memory, size + (from->ids ? strlen(from->ids) : 0) + 1,
                                  sizeof **ids);
    if (!*ids)
        return failed(ctx);
    *n = 0;
    if (from->bos)
        (*ids)[(*n)++] = config->bos;
    if (from->ids && (code = read_ids(model, from->option, from->ids, *ids, n)) != FINE)
        return code;
    if (bytes &&
        attn_encode(ctx, tokenizer, bytes, size, from->special, *ids + *n, size, &n_encoded))
        return failed(ctx);
    *n += n_encoded;
    if (*n == 0)
        return fail(FAILED, "the " INPUT " is empty: give some text, or --bos to begin with "
                            "nothing");
    if (*n > config->n_ctx)
        return fail(FAILED, "the " INPUT " has %zu tokens, but the model's context holds %u", *n,
                    (unsigned)config->n_ctx);
    return FINE;
}

#endif
