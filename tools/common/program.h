/* Shared by all programs here: reads the command line by a table of options, prints pages of help, reports
 * errors with advice, shows the progress of long work. A program defines its name before it includes this
 * file:
 *
 *     #define PROGRAM "attn-info"
 */
#ifndef TOOLS_PROGRAM_H
#define TOOLS_PROGRAM_H

#include "json_out.h"

enum { FINE = 0, FAILED = 1, USAGE = 2, INTERRUPTED = 130, PIPE_CLOSED = 141 };

/* The program's name, as it was called: `make install` puts attn- before some. */
static const char *called = PROGRAM;

TOOLS_FN void set_called(const char *path)
{
    static char name[64];
    const char *slash = strrchr(path, '/');
    snprintf(name, sizeof name, "%s", slash ? slash + 1 : path);
    if (strcmp(name, "attn-" PROGRAM) == 0)
        called = name;
}

/* Where fail puts its message, if a caller or an answer gets it; NULL: on standard error, if this is a program. */
enum { FAILURE_SIZE = 512 };
TOOLS_THREAD char *failure;

TOOLS_FN int fail(int code, const char *format, ...) TOOLS_PRINTF(2, 3);
TOOLS_FN int fail(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (failure) {
        vsnprintf(failure, FAILURE_SIZE, format, args);
    } else if (system_errors) {
        fprintf(system_errors, "%s: ", called);
        vfprintf(system_errors, format, args);
        fputc('\n', system_errors);
        fflush(system_errors); /* a console of Windows is buffered */
    }
    va_end(args);
    return code;
}
#ifdef __clang_analyzer__ /* as tool_fail */
#define fail(code, ...) (fail(code, __VA_ARGS__), (code))
#endif

/* The system's reason for an error, and advice. */
TOOLS_FN const char *why(int error)
{
    static const struct {
        int error;
        const char *advice;
    } known[] = {{ENOENT, "is the path right?"},
                 {ENOTDIR, "is the path right?"},
                 {EACCES, "ask the owner, or change its permissions with chmod"},
                 {EISDIR, "give the name of a file"},
                 {ENOSPC, "free some space, or write elsewhere"},
                 {EROFS, "write elsewhere"}};
    TOOLS_THREAD char text[160];
    size_t i;
    for (i = 0; i < sizeof known / sizeof known[0] && known[i].error != error; i++)
        continue;
    snprintf(text, sizeof text, "%s%s%s", system_word(error),
             i < sizeof known / sizeof known[0] ? "; " : "",
             i < sizeof known / sizeof known[0] ? known[i].advice : "");
    return text;
}

/* The message of a failed call of the library, without the function's name: the user of a program has
 * called no function. */
TOOLS_FN const char *message_of(const attn_ctx *ctx)
{
    const char *text = ctx->message, *colon = strstr(text, ": ");
    return strncmp(text, "attn_", 5) == 0 && colon == text + strcspn(text, ": ,") ? colon + 2
                                                                                  : text;
}

TOOLS_FN int fail_ctx(const attn_ctx *ctx)
{
    return fail(FAILED, "%s", message_of(ctx));
}

/* Flushes standard output at a program's end, and reports if it could not be written. Returns the exit
 * code. */
TOOLS_FN int finish_output(int code)
{
    const int lost = ferror(stdout);
    if (lost) { /* write again, to learn the reason */
        clearerr(stdout);
        putchar('\n');
    }
    if (fflush(stdout) == 0 && !lost)
        return code;
    if (errno == EPIPE) /* a program that ignores SIGPIPE */
        return PIPE_CLOSED;
    return code == FINE ? fail(FAILED, "cannot write the output: %s", why(errno)) : code;
}

/* >> The terminal ============================================================================== */

TOOLS_FN int shows_colour(FILE *file)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return system_is_terminal(file) && !(no && *no) &&
           !(term && (!*term || strcmp(term, "dumb") == 0));
}

/* The width of a line in columns, from COLUMNS or from the terminal; 0: no limit. */
TOOLS_FN int line_columns(FILE *file)
{
    const char *named = getenv("COLUMNS");
    const int columns = named ? atoi(named) : 0; /* NOLINT(cert-err34-c): else 0, as wanted */
    if (columns > 0)
        return columns < 10000 ? columns : 10000;
    return system_is_terminal(file) ? system_columns(file) : 0;
}

/* Tells a person at a terminal what input the program waits for. */
TOOLS_FN void announce_input(const char *what)
{
    if (system_errors && system_is_terminal(stdin))
        fprintf(system_errors, "Type %s, then Enter and Ctrl-D.\n", what);
}

/* The same for a named pipe: opening it waits until somebody writes to it. */
TOOLS_FN void announce_pipe(const char *path)
{
    const char *what = system_not_a_file(path);
    if (system_errors && what && strcmp(what, "a pipe") == 0 && strncmp(path, "/dev/", 5) != 0)
        fprintf(system_errors, "%s: waiting for somebody to write to the pipe %s\n", called, path);
}

/* >> Progress of long work ===================================================================== */

typedef struct progress {
    const char *what;
    double begin, last; /* last: the time when it was last shown, or negative */
    int columns;        /* 0: standard error is not a terminal */
} progress;

/* "what [####    ]  50 %, 3 s left" in less than `columns` columns. */
TOOLS_FN void progress_line(char *line, size_t size, const char *what, double fraction,
                            double elapsed, int columns)
{
    const double left = fraction > 0 ? elapsed / fraction - elapsed : 0;
    const int room = columns - (int)strlen(what) - 27, bar = room < 0 ? 0 : room < 40 ? room : 40;
    const int full = (int)(fraction * bar);
    char bars[48];
    for (int i = 0; i < bar; i++)
        bars[i] = i < full ? '#' : ' ';
    bars[bar] = 0;
    snprintf(line, size,
             left < 100 ? "%s [%s] %3d %%, %.0f s left" : "%s [%s] %3d %%, %.0f min left", what,
             bars, (int)(100 * fraction), left < 100 ? left : left / 60);
}

TOOLS_FN void progress_begin(progress *p, const char *what)
{
    p->what = what;
    p->begin = system_seconds();
    p->last = -1;
    p->columns = 0;
    if (system_errors && system_is_terminal(system_errors))
        p->columns = line_columns(system_errors) ? line_columns(system_errors) : 80;
}

/* Shows progress if the work takes more than two seconds, at most ten times a second, in one line. */
TOOLS_FN void progress_at(progress *p, double fraction)
{
    const double now = p->columns ? system_seconds() : 0, elapsed = now - p->begin;
    char line[128];
    if (!system_errors || !p->columns || elapsed < 0.5 || elapsed <= 2 * fraction ||
        now - p->last < 0.1)
        return;
    p->last = now;
    progress_line(line, sizeof line, p->what, fraction, elapsed, p->columns);
    fprintf(system_errors, "\r%-*s", p->columns < 100 ? p->columns - 1 : 99, line);
    fflush(system_errors);
}

TOOLS_FN void progress_end(progress *p)
{
    if (system_errors && p->columns && p->last >= 0)
        fprintf(system_errors, "\r%*s\r", p->columns < 100 ? p->columns - 1 : 99, "");
}

/* An attn_progress_fn. */
TOOLS_FN int verified_so_far(double done, void *line)
{
    progress_at((progress *)line, done);
    return 0;
}

/* attn_model_open that shows how much of a large file is verified. desc may be NULL. */
TOOLS_FN attn_status open_verified(attn_ctx *ctx, attn_model **model, const char *path,
                                   const attn_model_desc *desc)
{
    attn_model_desc telling = ATTN_ZERO;
    progress line;
    if (desc)
        telling = *desc;
    telling.progress_fn = verified_so_far;
    telling.progress_user = &line;
    progress_begin(&line, "verifying");
    attn_status status = attn_model_open(ctx, model, path, &telling);
    progress_end(&line);
    return status;
}

/* >> Names ===================================================================================== */

/* Name i of a list with blanks between the names: returns where it begins; *size is its length. */
TOOLS_FN const char *name_at(const char *names, int i, size_t *size)
{
    for (; i > 0; i--) {
        names += strcspn(names, " ");
        names += *names == ' ';
    }
    *size = strcspn(names, " ");
    return names;
}

/* The index of a name in a list; -1: it is not there. */
TOOLS_FN int find_name(const char *names, const char *text, size_t length)
{
    const char *name;
    size_t size;
    for (int i = 0; *(name = name_at(names, i, &size)); i++)
        if (size == length && memcmp(name, text, size) == 0)
            return i;
    return -1;
}

/* "a, b or c" */
TOOLS_FN void list_names(const char *names, char *list, size_t room)
{
    const char *name;
    size_t size, used = 0;
    list[0] = 0;
    for (int i = 0; *(name = name_at(names, i, &size)) && used < room; i++)
        used += (size_t)snprintf(list + used, room - used, "%s%.*s",
                                 i == 0       ? ""
                                 : name[size] ? ", "
                                              : " or ",
                                 (int)size, name);
}

/* Options whose names are words of a language: how Python, R and the others spell them. "no-NAME" is NAME, set to
 * false. */
static const char *const face_names[][2] = {{"from", "from_"}, {"continue", "continues"}};

/* The first n letters of an option's name as faces spell them; *negated: the setting is its opposite. */
TOOLS_FN void spell_face_name(char out[40], const char *option, size_t n, int *negated)
{
    *negated = n > 3 && strncmp(option, "no-", 3) == 0;
    for (size_t i = 0; i < sizeof face_names / sizeof face_names[0]; i++)
        if (strlen(face_names[i][0]) == n && strncmp(option, face_names[i][0], n) == 0) {
            snprintf(out, 40, "%s", face_names[i][1]);
            return;
        }
    snprintf(out, 40, "%.*s", (int)n - (*negated ? 3 : 0), option + (*negated ? 3 : 0));
    for (char *at = out; *at; at++)
        *at = (char)(*at == '-' ? '_' : *at);
}

/* Number of letters to add, remove, change or swap with the next one, to make b of a. */
TOOLS_FN size_t edit_distance(const char *a, const char *b)
{
    size_t rows[3][32] = {{0}}, *before = rows[0], *last = rows[1], *row = rows[2], *free_row;
    const size_t n = strlen(a), m = strlen(b);
    size_t best;
    if (n > 31 || m > 31)
        return 31;
    for (size_t j = 0; j <= m; j++)
        last[j] = before[j] = j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            best = last[j - 1] + (a[i - 1] != b[j - 1]);
            best = best < last[j] + 1 ? best : last[j] + 1;
            best = best < row[j - 1] + 1 ? best : row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = best < before[j - 2] + 1 ? best : before[j - 2] + 1;
            row[j] = best;
        }
        free_row = before;
        before = last;
        last = row;
        row = free_row;
    }
    return last[m];
}

/* Distance of a misspelt word from a name; 1 if the word is the beginning of the name. SIZE_MAX if the name
 * cannot be meant. */
TOOLS_FN size_t name_distance(const char *word, const char *name)
{
    const size_t n = strlen(word);
    const size_t distance =
        n > 2 && strncmp(word, name, n) == 0 ? strlen(name) > n : edit_distance(word, name);
    return distance <= n / 3 + (n > 1) ? distance : SIZE_MAX;
}

/* >> The command line: one table has each option, how it is read, where it is kept, and its help ==== */

enum kind {
    ASK,    /* nothing is kept: the program prints something and ends */
    FLAG,   /* int: 1 */
    COUNT,  /* size_t */
    NUMBER, /* float */
    SEED,   /* uint64_t: any number that fits into 64 bits, negative ones as two's complement */
    TEXT,   /* const char * */
    OUTPUT, /* const char *: a file that the program writes, and so none that it reads */
    TEXTS, /* text_list: may be given several times; but in paths \n, \t and \\ mean the same as in C */
    CHOICE,  /* int: the index of a name */
    CHOICES, /* unsigned: bits for some of the names; commas separate them */
    COLUMN   /* any number of texts, of a caller in the process (tools/waist/query.h) */
};
#define KIND_NAMES "ask flag count number seed text output texts choice choices column"
struct option {
    char letter;
    const char *name, *argument;
    enum kind kind;
    size_t at;         /* offset in the program's options */
    int commands;      /* bits: the commands that know it, or the pages of --help that list it */
    const char *takes; /* COUNT and NUMBER: "least most"; CHOICE and CHOICES: the names */
    const char *help;
}; /* An option with different meanings has a row for each of them, with other commands. Only the first row
    * of a name decides how the option is read. */

/* The last rows of every table: read_command_line finds them by their position. */
#define PROGRAM_OPTIONS(commands)                                                                  \
    {'h', "help", NULL, ASK, 0, commands, NULL, "print this"},                                     \
    {                                                                                              \
        'V', "version", NULL, ASK, 0, commands, NULL, "print the version"                          \
    }

/* A page of help. --help prints the first page of a program, --help NAME or NAME --help another one,
 * and --help all prints all of them, for the manual page.
 * --help json and --help complete are for programs that call this one. */
typedef struct help_page {
    const char *name;         /* NULL: the first page */
    const char *summary;      /* in the first page's list of the others */
    const char *usage;        /* ways to call the program, one a line; or NULL */
    const char *about;        /* paragraphs */
    int options;              /* the page lists options that have one of these bits; 0: all */
    void (*print_rows)(void); /* prints tables other than that of the options; or NULL */
    const char *examples;     /* commands, one a line; or NULL */
} help_page;

/* Command i: its name, the bits of its options, the settings that its words give behind that of the model, what it does.
 * NULL: there are fewer. */
typedef const char *command_at(size_t i, int *bits, const char **words, const char **about);

/* How a program is called. */
typedef struct program {
    const struct option *table;
    int n_options;
    size_t most_words;
    const char *hint; /* advice for a person who gave more words than most_words */
    const help_page *pages;
    int n_pages;
    const char *pages_title; /* of the first page's list of the others; NULL if there are none */
    command_at *command;     /* NULL: the program has no commands */
    const char *const (
        *columns)[2]; /* commands and the tables of their answers, for --help columns;
                                      * ends at NULL; or NULL */
} program;

enum { MOST_OPTIONS = 128 }; /* rows of a table */

typedef struct arguments {
    const char *words[64];             /* arguments that are not options; NULL beyond n_words */
    size_t n_words, n_free;            /* n_free: words before a -- */
    unsigned char given[MOST_OPTIONS]; /* 1: that row of the table was given */
} arguments;

/* Words in lines that fit. The first line begins at column `at`, the others are indented. A line that begins with
 * the program's name is a command. */
TOOLS_FN void print_wrapped(const char *text, int at, int indent, int columns)
{
    int follows = 0; /* 1: a word stands before this one in its line */
    int begins = 1;  /* 1: the word is the first of a line of the text */
    FILE *const out = system_out;
    if (!out)
        return;
    while (*text) {
        const size_t length = strcspn(text, " \n");
        const int is_name =
            begins && length == strlen(PROGRAM) && strncmp(text, PROGRAM, length) == 0;
        const int size = (int)(is_name ? strlen(called) : length);
        if (follows && at + 1 + size > columns) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
        } else if (follows) {
            fputc(' ', out);
            at++;
        }
        fprintf(out, "%.*s", size, is_name ? called : text);
        at += size;
        begins = text[length] == '\n' || strncmp(text, "`rlwrap ", 8) == 0;
        text += length;
        follows = *text != '\n';
        if (!follows) {
            fprintf(out, "\n%*s", text[1] == '\n' ? 0 : indent, "");
            at = indent;
        }
        text += *text != 0;
    }
    fputc('\n', out);
}

/* Width of the pages of help. */
TOOLS_FN int help_columns(void)
{
    const int columns = line_columns(stdout);
    return columns > 20 && columns < 80 ? columns : 80;
}

/* Prints a label, and a text beside it, or below it if the terminal is narrow. */
TOOLS_FN void print_row(const char *label, int width, const char *text)
{
    const int columns = help_columns(), beside = columns >= width + 36;
    if (beside)
        printf("  %-*s  ", width, label);
    else
        printf("  %s\n      ", label);
    print_wrapped(text, beside ? width + 4 : 6, beside ? width + 4 : 6, columns);
}

TOOLS_FN int is_on_page(const help_page *page, const struct option *option)
{
    return !page->options || option->commands & page->options;
}

/* The options of a page. Those of the first page are not explained again on another one. */
TOOLS_FN void print_options(const program *p, const help_page *page)
{
    const help_page *const first = p->pages;
    char label[64], others[400] = "";
    size_t used = 0;
    int n = 0;
    for (int i = 0; i < p->n_options; i++) {
        const struct option *o = &p->table[i];
        if (!is_on_page(page, o))
            continue;
        if (page != first && is_on_page(first, o)) {
            if (i >= p->n_options - 2) /* PROGRAM_OPTIONS */
                continue;
            used += (size_t)snprintf(others + used, sizeof others - used, " --%s", o->name);
            continue;
        }
        printf("%s", n++ ? "" : "\nOptions:\n");
        snprintf(label, sizeof label, "%c%c --%s%s%s", o->letter ? '-' : ' ',
                 o->letter ? o->letter : ' ', o->name, o->argument ? " " : "",
                 o->argument ? o->argument : "");
        print_row(label, 22, o->help);
    }
    if (used) {
        snprintf(label, sizeof label, "%sFurther options, see %s --help:", n ? "" : "\n", called);
        fputs(label, stdout);
        print_wrapped(others, (int)strlen(label), 2, help_columns());
    }
}

TOOLS_FN void print_lines(const char *lines)
{
    for (; *lines; lines += strcspn(lines, "\n"), lines += *lines == '\n') {
        char line[400];
        snprintf(line, sizeof line, "%.*s", (int)strcspn(lines, "\n"), lines);
        fputs("  ", stdout);
        print_wrapped(line, 2, 6, help_columns());
    }
}

TOOLS_FN void print_page(const program *p, const help_page *page)
{
    if (page->usage) {
        printf("Usage: ");
        print_wrapped(page->usage, 7, 7, help_columns());
        printf("\n");
    }
    print_wrapped(page->about, 0, 0, help_columns());
    if (page->print_rows)
        page->print_rows();
    if (page == p->pages && p->n_pages > 1) {
        printf("\n%s:\n", p->pages_title);
        for (int i = 1; i < p->n_pages; i++)
            print_row(p->pages[i].name, 10, p->pages[i].summary);
    }
    print_options(p, page);
    if (page->examples) {
        printf("\nExamples:\n");
        print_lines(page->examples);
    }
    if (page != p->pages)
        return;
    printf("\n");
    print_wrapped("A value follows as in -n5, -n 5 or -n=5; after -- nothing is an option.\n"
                  "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 Ctrl-C, 141 broken pipe.",
                  0, 0, help_columns());
}

/* The tables of the answers of a command, or of all commands if it is NULL. 0: they have none. */
TOOLS_FN int print_tables(const program *p, const char *command)
{
    int n = 0;
    for (const char *const(*of)[2] = p->columns; of && (*of)[0]; of++)
        if (!command || strcmp(command, (*of)[0]) == 0) {
            printf(
                "%s%s:\n",
                n++ ? "\n"
                    : "TABLE: COLUMN ...; those before | tell rows apart, those in [] are of some settings\n\n",
                (*of)[0]);
            print_lines((*of)[1]);
        }
    return n > 0;
}

/* The page that a word of the command line names, or the first one; with "all", every page; with "columns", tables. */
TOOLS_FN void print_help(const program *p, const arguments *found)
{
    size_t i;
    for (i = 0; i < found->n_free; i++)
        if (strcmp(found->words[i], "columns") == 0 &&
            print_tables(p, found->n_free == 1 ? NULL : found->words[i == 0]))
            return;
    for (i = 0; i < found->n_free; i++) {
        for (int page = 1; page < p->n_pages; page++)
            if (strcmp(found->words[i], p->pages[page].name) == 0) {
                print_page(p, &p->pages[page]);
                return;
            }
        if (strcmp(found->words[i], "all") == 0)
            break;
    }
    print_page(p, p->pages);
    for (int page = 1; i < found->n_free && page < p->n_pages; page++) {
        printf("\n%s:\n", p->pages[page].name);
        print_page(p, &p->pages[page]);
    }
}

/* parse_count and parse_number accept only digits; strtoull itself accepts signs, spaces and "12abc". */
TOOLS_FN int parse_count(const char *text, const char *takes, size_t *value)
{
    char *end, *most;
    const double least = number_at(takes, &most);
    unsigned long long number;
    errno = 0;
    number = strtoull(text, &end, 10);
    *value = (size_t)number;
    return *text >= '0' && *text <= '9' && !*end && !errno && (double)number >= least &&
           (double)number <= number_at(most, NULL);
}

TOOLS_FN int parse_number(const char *text, const char *takes, float *value)
{
    char *end, *most;
    const double number = number_at(text, &end), least = number_at(takes, &most),
                 top = number_at(most, &most);
    const char *digits = text + (least < 0 && *text == '-');
    *value = (float)number;
    return strchr("0123456789.", *digits) && end != text && !*end && number >= least &&
           number <= top;
}

/* A top-p that a person gave. 0 keeps the likeliest token, where 0 in attn_sampler_desc keeps all. */
TOOLS_FN float given_top_p(float p)
{
    return p > 0 ? p : 1e-30f;
}

TOOLS_FN int parse_seed(const char *text, uint64_t *value)
{
    const int negative = *text == '-';
    char *end;
    unsigned long long number;
    text += negative;
    errno = 0;
    number = strtoull(text, &end, 10);
    *value = negative ? 0 - (uint64_t)number : (uint64_t)number;
    return *text >= '0' && *text <= '9' && !*end && !errno && number <= UINT64_MAX &&
           (!negative || number <= (unsigned long long)1 << 63);
}

/* The values of an option that may be given several times. */
typedef struct text_list {
    const char *at[16];
    size_t n;
} text_list;

/* Adds a text; 0 if the list is full. */
TOOLS_FN int texts_add(text_list *list, const char *text)
{
    if (list->n == sizeof list->at / sizeof list->at[0])
        return 0;
    list->at[list->n++] = text;
    return 1;
}

/* Replaces \n by a newline, \t by a tab, and \\ by a backslash, in place: words of the command line may be
 * changed. */
TOOLS_FN const char *unescape(char *text)
{
    char *from, *to;
    for (from = to = text; *from; from++) {
        const int escaped = *from == '\\' && from[1] && strchr("nt\\", from[1]);
        from += escaped;
        *to++ = (char)(!escaped ? *from : *from == 'n' ? '\n' : *from == 't' ? '\t' : '\\');
    }
    *to = 0;
    return text;
}

/* A list of names with commas as bits. 0: one of them is not a name. */
TOOLS_FN unsigned parse_choices(const char *names, const char *text)
{
    unsigned bits = 0;
    while (1) {
        const size_t length = strcspn(text, ",");
        const int i = find_name(names, text, length);
        if (i < 0)
            return 0;
        bits |= 1u << i;
        if (!text[length])
            return bits;
        text += length + 1;
    }
}

TOOLS_FN int refuse_value(const struct option *option, const char *text)
{
    char list[160];
    const int least = (int)strcspn(option->takes, " ");
    if (option->kind == COUNT || option->kind == NUMBER)
        return fail(USAGE, "--%s: \"%s\" is not a %s from %.*s to %s", option->name, text,
                    option->kind == COUNT ? "whole number" : "number", least, option->takes,
                    option->takes + least + 1);
    list_names(option->takes, list, sizeof list);
    return fail(USAGE, "--%s: there is no \"%s\"; choose %s%s", option->name, text, list,
                option->kind == CHOICES ? ", or several with commas between them" : "");
}

TOOLS_FN int set_option(void *options, const struct option *option, const char *text)
{
    void *at = (char *)options + option->at;
    unsigned bits;
    switch (option->kind) {
    case TEXT:
    case OUTPUT:
        *(const char **)at = text;
        return FINE;
    case TEXTS:
        return texts_add((text_list *)at,
                         strcmp(option->argument, "DIR") ? unescape((char *)text) : text)
                   ? FINE
                   : fail(USAGE, "--%s: at most %zu can be given", option->name,
                          ((text_list *)at)->n);
    case COUNT:
        return parse_count(text, option->takes, (size_t *)at) ? FINE : refuse_value(option, text);
    case NUMBER:
        return parse_number(text, option->takes, (float *)at) ? FINE : refuse_value(option, text);
    case SEED:
        return parse_seed(text, (uint64_t *)at)
                   ? FINE
                   : fail(USAGE, "--%s: \"%s\" is not a whole number of 64 bits", option->name,
                          text);
    case CHOICE:
        *(int *)at = find_name(option->takes, text, strlen(text));
        return *(int *)at >= 0 ? FINE : refuse_value(option, text);
    default:
        bits = parse_choices(option->takes, text);
        *(unsigned *)at |= bits;
        return bits ? FINE : refuse_value(option, text);
    }
}

/* The state of reading a command line. */
typedef struct command_line {
    int argc, at;
    char **argv;
    const program *p;
    void *options;
    arguments *found;
} command_line;

TOOLS_FN const struct option *find_long(const program *p, const char *name, size_t length)
{
    for (int i = 0; i < p->n_options; i++)
        if (length == strlen(p->table[i].name) && strncmp(name, p->table[i].name, length) == 0)
            return &p->table[i];
    return NULL;
}

TOOLS_FN const struct option *find_letter(const program *p, char letter)
{
    for (int i = 0; i < p->n_options; i++)
        if (letter && letter == p->table[i].letter)
            return &p->table[i];
    return NULL;
}

/* The option whose name is nearest to a word; NULL: none is near. */
TOOLS_FN const struct option *nearest_option(const struct option *table, int n, const char *word)
{
    const struct option *best = NULL;
    size_t least = SIZE_MAX, distance;
    for (int i = 0; i < n; i++)
        if ((distance = name_distance(word, table[i].name)) < least) {
            least = distance;
            best = &table[i];
        }
    return best;
}

TOOLS_FN int refuse_option(const command_line *r, const char *text)
{
    const char *word = text + 1 + (text[1] == '-');
    const int length = (int)strcspn(text, "=");
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    const struct option *meant = nearest_option(r->p->table, r->p->n_options, name);
    if (strchr(text, ' ')) /* no option has a blank */
        return fail(USAGE, "there is no option %.30s...: if that is a text, write -- before it",
                    text);
    if (meant && word[1])
        return fail(USAGE, "there is no option %.*s; do you mean --%s?", length, text, meant->name);
    if (strncmp(text, "-o", 2) == 0)
        return fail(USAGE, "there is no option -o: "
                           "the result is on standard output, so > FILE keeps it");
    return fail(USAGE, "there is no option %.*s; --help lists them", length, text);
}

/* `value`: the rest of the word after the option, as in --seed=1; NULL if there is none. */
TOOLS_FN int read_option(command_line *r, const struct option *option, const char *value)
{
    if (!option->argument && value)
        return fail(USAGE, "--%s takes no value", option->name);
    r->found->given[option - r->p->table] = 1;
    if (option->kind == FLAG)
        *(int *)((char *)r->options + option->at) = 1;
    if (!option->argument)
        return FINE;
    if (value)
        return set_option(r->options, option, value);
    value = ++r->at < r->argc ? r->argv[r->at] : NULL;
    if (!value)
        return fail(USAGE, "--%s needs a value: %s", option->name, option->argument);
    if (strncmp(value, "--", 2) == 0 && find_long(r->p, value + 2, strcspn(value + 2, "=")))
        return fail(USAGE, "--%s needs a value (%s) before %s", option->name, option->argument,
                    value);
    return set_option(r->options, option, value);
}

/* -q, -n5, -n 5, -n=5, and -qn5 */
TOOLS_FN int read_letters(command_line *r, const char *text)
{
    const struct option *option =
        text[2] ? nearest_option(r->p->table, r->p->n_options, text + 1) : NULL;
    const char *at;
    int code;
    if (option && strncmp(text + 1, option->name, strlen(text + 1)) == 0 && text[3])
        return refuse_option(r, text); /* a long option with one dash only */
    for (at = text + 1; *at; at++) {
        if (!(option = find_letter(r->p, *at)))
            return refuse_option(r, text);
        if (option->argument || at[1] == '=')
            return read_option(r, option, at[1] ? at + 1 + (at[1] == '=') : NULL);
        if ((code = read_option(r, option, NULL)) != FINE)
            return code;
    }
    return FINE;
}

/* --name, --name value, --name=value */
TOOLS_FN int read_name(command_line *r, const char *text)
{
    const size_t length = strcspn(text + 2, "=");
    const struct option *option = find_long(r->p, text + 2, length);
    return option ? read_option(r, option, text[2 + length] ? text + 3 + length : NULL)
                  : refuse_option(r, text);
}

TOOLS_FN int refuse_word(const char *word, const char *hint)
{
    return fail(USAGE, "too many arguments at \"%s\": %s", word, hint);
}

/* Does the option's value name a file or a directory that the program reads or writes? */
TOOLS_FN int takes_path(const struct option *option)
{
    return option->kind == OUTPUT || (option->kind == TEXT && option->argument &&
                                      find_name("FILE PATH DIR DIRECTORY INPUT", option->argument,
                                                strlen(option->argument)) >= 0);
}

/* The value of an option that takes a path. NULL: the option has no value, or takes none. */
TOOLS_FN const char *path_in(const struct option *o, int is_given, const void *options)
{
    return is_given && takes_path(o) ? *(const char *const *)((const char *)options + o->at) : NULL;
}

/* The other argument that names the file `output` of option `to`: a word, or the value of an option. NULL: there is none. */
TOOLS_FN const char *named_again(const struct option *table, size_t n_rows,
                                 const unsigned char *given, const void *options,
                                 const char *const *words, size_t n_words, size_t to,
                                 const char *output)
{
    for (size_t k = 0; k < n_words; k++)
        if (system_same_file(output, words[k]))
            return words[k];
    for (size_t k = 0; k < n_rows; k++) {
        const char *const path = k == to ? NULL : path_in(&table[k], given[k], options);
        if (path && (system_same_file(output, path) ||
                     (table[k].kind == OUTPUT && strcmp(output, path) == 0)))
            return path;
    }
    return NULL;
}

/* Refuses an output that another argument names too, so that no input is lost. A device is no file that could be lost. */
TOOLS_FN int refuse_overwriting(const struct option *table, size_t n_rows,
                                const unsigned char *given, const void *options,
                                const char *const *words, size_t n_words)
{
    for (size_t i = 0; i < n_rows; i++) {
        const char *const output =
            table[i].kind == OUTPUT ? path_in(&table[i], given[i], options) : NULL;
        if (!output || strcmp(output, "-") == 0 ||
            (system_not_a_file(output) && !system_is_directory(output)))
            continue;
        const char *const other =
            named_again(table, n_rows, given, options, words, n_words, i, output);
        if (other)
            return fail(USAGE, "--%s %s would overwrite %s: name another file", table[i].name,
                        output, other);
    }
    return FINE;
}

TOOLS_FN int parse_options(const program *p, int argc, char **argv, void *options, arguments *found)
{
    command_line r = {argc, 1, argv, p, options, found};
    int code = FINE, only_words = 0;
    for (; r.at < argc && code == FINE; r.at++) {
        const char *text = argv[r.at];
        if (!only_words && strcmp(text, "--") == 0) {
            only_words = 1;
        } else if (only_words || text[0] != '-' || text[1] == 0) {
            if (found->n_words == p->most_words)
                return refuse_word(text, p->hint);
            found->words[found->n_words++] = text;
            found->n_free += !only_words;
        } else {
            code = text[1] == '-' ? read_name(&r, text) : read_letters(&r, text);
        }
    }
    return code != FINE ? code
                        : refuse_overwriting(p->table, (size_t)p->n_options, found->given, options,
                                             (const char *const *)found->words, found->n_words);
}

TOOLS_FN void print_version(void)
{
    printf("%s of attn.h %d.%d.%d\n", called, ATTN_VERSION_MAJOR, ATTN_VERSION_MINOR,
           ATTN_VERSION_PATCH);
}

/* >> The table for programs that call this one: JSON, and what a shell may complete ============ */

/* The default of an option as text, or "". A count or number of 0 says that there is none. */
TOOLS_FN void spell_usual(char out[40], const void *options, const struct option *o)
{
    const void *const at = (const char *)options + o->at;
    const char *name;
    size_t size;
    *out = 0;
    if (o->kind == COUNT && *(const size_t *)at != SIZE_MAX && *(const size_t *)at != 0) {
        snprintf(out, 40, "%zu", *(const size_t *)at);
    } else if (o->kind == NUMBER && *(const float *)at != 0 &&
               (double)*(const float *)at >= number_at(o->takes, NULL)) {
        spell_number(out, (double)*(const float *)at, 6);
    } else if (o->kind == CHOICE && *(const int *)at >= 0) {
        name = name_at(o->takes, *(const int *)at, &size);
        snprintf(out, 40, "%.*s", (int)size, name);
    }
}

/* Row i, if a command with these bits knows it: of several rows of one name, the first that it knows. bits 0: of a
 * program without commands. *read becomes the row that decides how the option is read. Else NULL. */
TOOLS_FN const struct option *known_row(const program *p, int i, int bits,
                                        const struct option **read)
{
    const struct option *known = NULL;
    *read = NULL;
    for (int k = 0; k <= i; k++)
        if (strcmp(p->table[k].name, p->table[i].name) == 0) {
            *read = *read ? *read : &p->table[k];
            known = known || (bits && !(p->table[k].commands & bits)) ? known : &p->table[k];
        }
    return known == &p->table[i] ? known : NULL;
}

TOOLS_FN void out_names(json_out *o, const char *key, const char *names)
{
    const char *name;
    size_t size;
    out_open(o, key, '[');
    for (int i = 0; *(name = name_at(names, i, &size)); i++)
        out_text(o, NULL, name, size);
    out_close(o, ']');
}

TOOLS_FN void out_word_or_null(json_out *o, const char *key, const char *text)
{
    if (*text)
        out_word(o, key, text);
    else
        out_null(o, key);
}

TOOLS_FN void out_takes(json_out *o, const struct option *read)
{
    const char *const takes = read->takes ? read->takes : "";
    const size_t least = strcspn(takes, " ");
    if (takes[least] && (read->kind == COUNT || read->kind == NUMBER)) {
        out_open(o, "takes", '{');
        out_spelled(o, "least", takes, least);
        out_spelled(o, "most", takes + least + 1, strlen(takes + least + 1));
        out_close(o, '}');
    } else if (read->kind == CHOICE || read->kind == CHOICES) {
        out_open(o, "takes", '{');
        out_names(o, "choices", takes);
        out_close(o, '}');
    } else {
        out_null(o, "takes");
    }
}

TOOLS_FN void out_setting(json_out *o, const struct option *row, const struct option *read,
                          const void *options)
{
    const char letter[] = {read->letter, 0};
    char name[40], usual[40];
    int negated;
    size_t size;
    const char *const kind = name_at(KIND_NAMES, (int)read->kind, &size);
    spell_face_name(name, read->name, strlen(read->name), &negated);
    spell_usual(usual, options, read);
    out_open(o, NULL, '{');
    out_word(o, "option", read->name);
    out_word(o, "name", name);
    out_word_or_null(o, "letter", letter);
    out_word_or_null(o, "argument", row->argument ? row->argument : "");
    out_text(o, "kind", kind, size);
    out_takes(o, read);
    if (!*usual || read->kind == CHOICE)
        out_word_or_null(o, "default", usual);
    else
        out_spelled(o, "default", usual, strlen(usual));
    out_word(o, "help", row->help);
    out_flag(o, "is_many", read->kind == TEXTS);
    out_flag(o, "is_file", takes_path(read));
    out_flag(o, "is_negated", negated);
    out_close(o, '}');
}

TOOLS_FN const char *program_command(const program *p, size_t i, int *bits, const char **words,
                                     const char **about)
{
    if (p->command)
        return p->command(i, bits, words, about);
    *bits = 0;
    *words = "";
    *about = p->pages->about;
    return i == 0 ? called : NULL;
}

/* All commands and their settings, each setting in a line. */
TOOLS_FN void print_help_json(const program *p, const void *options)
{
    const struct option *row, *read;
    const char *name, *words, *about;
    char version[40];
    json_out o = {NULL, 0, 0, 0, 0};
    int bits;
    snprintf(version, sizeof version, "%d.%d.%d", ATTN_VERSION_MAJOR, ATTN_VERSION_MINOR,
             ATTN_VERSION_PATCH);
    out_open(&o, NULL, '{');
    out_word(&o, "program", called);
    out_word(&o, "version", version);
    out_open(&o, "commands", '[');
    for (size_t i = 0; (name = program_command(p, i, &bits, &words, &about)) != NULL; i++) {
        out_open(&o, NULL, '{');
        out_word(&o, "name", name);
        out_word(&o, "about", about);
        if (p->command)
            out_names(&o, "words", words);
        out_open(&o, "settings", '[');
        for (int k = 0; k < p->n_options; k++)
            if ((row = known_row(p, k, bits, &read)) != NULL) {
                out_bytes(&o, o.follows ? ",\n  " : "\n  ", o.follows ? 4 : 3);
                o.follows = 0;
                out_setting(&o, row, read, options);
            }
        out_close(&o, ']');
        out_close(&o, '}');
    }
    out_close(&o, ']');
    out_close(&o, '}');
    out_line(&o, stdout);
    out_free(&o);
}

/* What stands before the word that is completed. */
typedef struct typed_line {
    int is_named, bits; /* is_named: a command; else bits and words are those of the first one */
    const char *words;
    size_t n_words;             /* those that are neither options nor the command */
    const struct option *waits; /* for its value, or NULL */
} typed_line;

/* Takes a word for the command that it names, if none is known yet; else counts it. */
TOOLS_FN void read_typed_word(const program *p, typed_line *t, const char *word)
{
    typed_line of = *t;
    const char *name, *about;
    t->n_words++;
    for (size_t i = 0;
         p->command && !t->is_named && (name = p->command(i, &of.bits, &of.words, &about)) != NULL;
         i++)
        if (strcmp(name, word) == 0) {
            *t = of;
            t->is_named = 1;
        }
}

TOOLS_FN void read_typed(const program *p, typed_line *t, int n, char **given)
{
    for (int i = 0; i < n; i++) {
        const char *const word = given[i];
        if (t->waits) { /* bash parts --name=value into three words */
            t->waits = strcmp(word, "=") == 0 ? t->waits : NULL;
            continue;
        }
        if (*word != '-') {
            read_typed_word(p, t, word);
            continue;
        }
        t->waits = word[1] == '-'        ? find_long(p, word + 2, strlen(word + 2))
                   : word[1] && !word[2] ? find_letter(p, word[1])
                                         : NULL;
        t->waits = t->waits && t->waits->argument ? t->waits : NULL;
        t->n_words += t->waits && strcmp(t->waits->name, "model") == 0;
    }
}

TOOLS_FN void print_values(const struct option *o)
{
    const int has_names = o && (o->kind == CHOICE || o->kind == CHOICES);
    const char *name;
    size_t size;
    if (o && takes_path(o))
        printf(":files\n");
    for (int i = 0; has_names && *(name = name_at(o->takes, i, &size)); i++)
        printf("%.*s\n", (int)size, name);
}

/* What stands for a word: commands, and what the next setting of the command takes, behind the model. */
TOOLS_FN void print_words(const program *p, const typed_line *t)
{
    const char *name, *words, *about;
    size_t size;
    int bits;
    for (size_t i = 0;
         p->command && !t->is_named && (name = p->command(i, &bits, &words, &about)) != NULL; i++)
        printf("%s\t%s\n", name, about);
    name = name_at(t->words, t->n_words ? (int)t->n_words - 1 : 0, &size);
    if (!p->command || t->n_words == 0)
        printf(":files\n");
    else
        print_values(find_long(p, name, size));
}

/* --help complete WORD...: a line for each word that may stand in place of the last one, which may be "", behind the
 * others, with a tab and what it means; ":files" stands for all files. A shell keeps those that begin as the last word
 * does. */
TOOLS_FN void print_completions(const program *p, int n, char **given)
{
    const char *const last = n > 0 ? given[n - 1] : "", *about;
    const struct option *row, *read;
    typed_line t = {!p->command, 0, NULL, 0, NULL};
    program_command(p, 0, &t.bits, &t.words, &about);
    read_typed(p, &t, n - 1, given);
    if (t.waits)
        print_values(t.waits);
    else if (strncmp(last, "--", 2) == 0 && strchr(last, '='))
        print_values(find_long(p, last + 2, strcspn(last + 2, "=")));
    else if (*last != '-')
        print_words(p, &t);
    for (int i = 0; i < p->n_options && *last == '-' && !t.waits && !strchr(last, '='); i++)
        if ((row = known_row(p, i, t.bits, &read)) != NULL)
            printf("--%s\t%.*s\n", row->name, (int)strcspn(row->help, "\n"), row->help);
}

/* Reads the command line, and prints help or the version if it asks for them. 0: the program must end with
 * *code. */
TOOLS_FN int read_command_line(const program *p, int argc, char **argv, void *options,
                               arguments *found, int *code)
{
    const int help = p->n_options - 2, version = p->n_options - 1; /* PROGRAM_OPTIONS */
    set_called(argc > 0 ? argv[0] : PROGRAM);
    if (argc > 2 && strcmp(argv[1], "--help") == 0 &&
        find_name("json complete", argv[2], strlen(argv[2])) >= 0) {
        if (*argv[2] == 'j')
            print_help_json(p, options);
        else
            print_completions(p, argc - 3, argv + 3);
        *code = finish_output(FINE);
        return 0;
    }
    if ((*code = parse_options(p, argc, argv, options, found)) != FINE)
        return 0;
    if (found->given[help] ||
        (p->n_pages > 1 && found->n_words && strcmp(found->words[0], "help") == 0))
        print_help(p, found);
    else if (found->given[version])
        print_version();
    else
        return 1;
    *code = finish_output(FINE);
    return 0;
}

/* The value of the option, or the next word of the command line if the option was not given. */
TOOLS_FN const char *option_or_word(const char *option, const arguments *found, size_t *next)
{
    return option || *next >= found->n_words ? option : found->words[(*next)++];
}

TOOLS_FN int is_model_name(const char *word)
{
    const size_t n = strlen(word);
    return n > 5 && strcmp(word + n - 5, ".attn") == 0;
}

/* Exchanges the two words if the model is the second: a text or a file comes before it. */
TOOLS_FN void swap_model(const char **model, const char **text)
{
    const char *const word = *model;
    if (word && *text && !is_model_name(word) && is_model_name(*text) && system_exists(*text)) {
        *model = *text;
        *text = word;
    }
}

/* Takes the model, and the file of a program that reads one (else NULL), from the words of the command
 * line where no option gave them. Refuses a line without a model, which then says the `words` that the program takes,
 * and one with words that remain. */
TOOLS_FN int take_words(const program *p, const arguments *found, const char **model,
                        const char **file, const char *words)
{
    size_t next = 0;
    *model = option_or_word(*model, found, &next);
    if (file) {
        *file = option_or_word(*file, found, &next);
        swap_model(model, file);
    }
    if (!*model)
        return fail(USAGE, "no model given: %s %s (--help tells more)", called, words);
    return next < found->n_words ? refuse_word(found->words[next], p->hint) : FINE;
}

/* The main function of a program that reads a command line, works, and prints. `options` is the first
 * member of what work gets, or all of it. Returns the exit code: work's, or that of a failed write to
 * standard output. */
TOOLS_FN int program_main(const program *p, int argc, char **argv, void *options,
                          int (*work)(const program *, arguments *, void *options))
{
    static arguments found;
    int code;
    system_begin(&argc, &argv);
    if (!read_command_line(p, argc, argv, options, &found, &code))
        return code;
    return finish_output(work(p, &found, options));
}

/* >> A model's file ============================================================================ */

/* Names the kind of a file by its first bytes, with advice; NULL for an unknown kind. */
TOOLS_FN const char *kind_of_file(const unsigned char *start, size_t size)
{
    static const struct {
        const char *start;
        size_t size;
        const char *kind;
    } kinds[] = {
        {"\x89PNG", 4, "a picture; is that the path to the model?"},
        {"\xff\xd8\xff", 3, "a picture; is that the path to the model?"},
        {"GIF8", 4, "a picture; is that the path to the model?"},
        {"GGUF", 4, "a GGUF file; attn-convert makes an .attn file of it"},
        {"\xc6\xd7\x34\x01", 4, "an llm.c checkpoint; attn-convert makes an .attn file of it"},
        {"PK\3\4", 4,
         "a zip archive or a PyTorch pickle; attn-convert makes an .attn file of a pickle"},
        {"\x1f\x8b", 2, "a compressed file; unpack it first"},
        {"version https://git-lfs", 23,
         "a note of Git LFS that stands for a file; `git lfs pull` fetches the file"},
        {"\x7f"
         "ELF",
         4, "a program; is that the path to the model?"},
    };
    size_t i;
    for (i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (size >= kinds[i].size && memcmp(start, kinds[i].start, kinds[i].size) == 0)
            return kinds[i].kind;
    if (size > 9 && get_u64(start) < ((uint64_t)1 << 32) && start[8] == '{')
        return "a safetensors file; give its directory to attn-convert, which makes an .attn file";
    for (i = 0; i < size && (start[i] >= ' ' || (start[i] && strchr("\t\r\n", start[i]))); i++)
        continue;
    return size && i == size ? "a text; is that the path to the model?" : NULL;
}

/* Explains why a path cannot be opened as a model, as far as the system and the first bytes show it. All
 * other paths pass, for the library to open; so do pipes, which can be read only once. */
TOOLS_FN attn_status check_model_path(attn_ctx *ctx, const char *path)
{
    const char *what = system_not_a_file(path), *kind;
    unsigned char start[64];
    FILE *file;
    if (what && strcmp(what, "a directory") == 0)
        return tool_fail(ctx, ATTN_E_IO,
                         "%s is a directory, where an .attn file is needed; attn-convert makes one "
                         "of a checkpoint's directory",
                         path);
    if (what) {
        announce_pipe(path);
        return ATTN_OK;
    }
    if (!(file = system_open(path, "rb")))
        return tool_fail(ctx, ATTN_E_IO, "%s: %s", path, why(errno));
    size_t size = fread(start, 1, sizeof start, file);
    fclose(file);
    if ((kind = kind_of_file(start, size)) != NULL)
        return tool_fail(ctx, ATTN_E_FORMAT, "%s is not an .attn file but %s", path, kind);
    return ATTN_OK;
}

#endif
