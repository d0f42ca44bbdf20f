/* Runs every suite, or the suites and cases that are named, some suites at the same time. Prints a line
 * for each suite, what failed, what was skipped and why, and last "N passed, N failed, N skipped".
 *
 *     test [SUITE | SUITE/CASE]...
 *     test --list                   the names of all cases
 *     test --isas                   the instruction sets here, for ATTN_TEST_ISA
 *
 * Each suite is a process, and what it and the programs that it runs print goes to
 * test-tmp/SUITE.log beside this program. The end of that is shown with a case that fails. One case that is named
 * alone runs in this process and prints where it runs, for a debugger. */
#define PROGRAM "test"
#include "tools/common/program.h"
#include "tests/support/test.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    int passed, failed, skipped;   /* cases of this suite so far */
    int case_failed, case_skipped; /* of the running case */
    const char *suite, *name;
    double began;        /* processor_seconds then */
    const char *program; /* how this program was called */
    FILE *report;        /* what the parent process shall print, see read_report */
    int log;             /* a file instead of standard output and standard error, or -1 */
    char **names;        /* the suites and cases that shall run: all if there are none */
    int n_names;
} state;

/* Copies the end of what the running case printed into the report: a few lines, none too long. */
enum { SHOWN_BYTES = 2000, SHOWN_LINES = 12, SHOWN_WIDTH = 160 };
static void report_log(FILE *to, const char *mark, int log)
{
    static char text[SHOWN_BYTES + 1];
    const off_t size = lseek(log, 0, SEEK_END), from = size > SHOWN_BYTES ? size - SHOWN_BYTES : 0;
    const ssize_t n = pread(log, text, SHOWN_BYTES, from);
    char *line = text, *at;
    int n_lines = 0;
    if (n <= 0)
        return;
    text[n] = 0;
    for (at = text + n; at > text && n_lines <= SHOWN_LINES; at--)
        if (at[-1] == '\n' && at[0] && n_lines++ < SHOWN_LINES)
            line = at;
    if (n_lines <= SHOWN_LINES && from == 0)
        line = text;
    fprintf(to, "%s    it printed%s:\n", mark, line > text || from > 0 ? ", at the end" : "");
    for (; *line; line += strcspn(line, "\n"), line += *line == '\n')
        fprintf(to, "%s    | %.*s\n", mark,
                (int)(strcspn(line, "\n") < SHOWN_WIDTH ? strcspn(line, "\n") : SHOWN_WIDTH), line);
}

static double seconds_of(int who)
{
    struct rusage used;
    return getrusage(who, &used) != 0
               ? 0
               : (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                     (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* What this process and the programs that it ran took of a processor. */
static double processor_seconds(void)
{
    return seconds_of(RUSAGE_SELF) + seconds_of(RUSAGE_CHILDREN);
}

/* Counts the case that ended. What failed between two cases counts like one. */
static void end_case(void)
{
    if (state.case_failed)
        state.failed++;
    else if (state.case_skipped)
        state.skipped++;
    else if (state.name)
        state.passed++;
    fflush(stdout);
    if (state.case_failed && state.log >= 0)
        report_log(state.report, "!", state.log);
    fprintf(state.report, "=%d %d %d %.3f\n", state.passed, state.failed, state.skipped,
            processor_seconds() - state.began);
    fflush(state.report);
    state.name = NULL;
    state.case_failed = state.case_skipped = 0;
}

/* The lowest number that a file has not; it rises where one stays open. */
static int lowest_free(void)
{
    const int file = dup(STDERR_FILENO);
    close(file);
    return file;
}

enum { N_AT_END = 4 }; /* a file of cases has one, or none */
static void (*at_end[N_AT_END])(void);

void test_at_end(void (*call)(void))
{
    size_t i = 0;
    while (at_end[i] && at_end[i] != call)
        i++;
    at_end[i] = call;
}

typedef struct made_text {
    struct made_text *before;
    char text[];
} made_text;
static made_text *made_texts;

static void free_texts(void)
{
    while (made_texts) {
        made_text *const it = made_texts;
        made_texts = it->before;
        free(it);
    }
}

const char *test_text(const char *format, ...)
{
    enum { MOST = 16384 };
    char text[MOST];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, MOST, format, args);
    va_end(args);
    made_text *const made = (made_text *)malloc(sizeof *made + (size_t)(n < 0 ? 0 : n) + 1);
    if (!made || n < 0 || n >= MOST)
        abort();
    memcpy(made->text, text, (size_t)n + 1);
    made->before = made_texts;
    made_texts = made;
    test_at_end(free_texts);
    return made->text;
}

static void run_case(const test_case *one)
{
    end_case();
    if (state.log >= 0 && ftruncate(state.log, 0) != 0)
        test_fail(__FILE__, __LINE__, "cannot empty the log: %s", strerror(errno));
    state.name = one->name;
    state.began = processor_seconds();
    fprintf(state.report, ">%s\n", one->name);
    fflush(state.report);
    alarm(test_full() ? 0 : 900); /* what hangs, or takes quadratic time, fails */
    const int before = lowest_free();
    one->body();
    alarm(0);
    for (size_t i = 0; i < N_AT_END && at_end[i]; i++)
        at_end[i]();
    memset(at_end, 0, sizeof at_end);
    CHECKF(lowest_free() <= before, "it leaves file %d open", before);
    end_case();
}

/* Makes one line of a text, and leaves out the middle of a long one. */
static void shorten(char *text)
{
    enum { MOST = 400, TAIL = 120 };
    const size_t length = strlen(text);
    char *at;
    if (length > MOST) {
        memcpy(text + MOST - TAIL - 5, " ... ", 5);
        memmove(text + MOST - TAIL, text + length - TAIL, TAIL + 1);
    }
    for (at = text; *at; at++)
        if (*at == '\n')
            *at = ' ';
}

void test_fail(const char *file, int line, const char *format, ...)
{
    char text[4000];
    va_list args;
    if (state.case_failed++ >= 5)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    shorten(text);
    fprintf(state.report, "!FAILED %s/%s at %s:%d: %s   (%s %s%s%s)\n", state.suite,
            state.name ? state.name : "(between cases)", file, line, text, state.program,
            state.suite, state.name ? "/" : "", state.name ? state.name : "");
    fflush(state.report);
}

void test_skip(const char *reason)
{
    if (!state.case_skipped++)
        fprintf(state.report, "-%s\t%s/%s\n", reason, state.suite,
                state.name ? state.name : "(all)");
}

int test_equal(const char *file, int line, const char *what, double got, double expected)
{
    if (got == expected)
        return 1;
    test_fail(file, line, "%s is %.15g, expected %.15g", what, got, expected);
    return 0;
}

void test_fails(const char *file, int line, const char *what, const attn_ctx *ctx,
                attn_status expected, const char *text, attn_status actual)
{
    if (actual != expected)
        test_fail(file, line, "%s gave %s, expected %s (%s)", what, attn_status_name(actual),
                  attn_status_name(expected), ctx->message);
    else if (!strstr(ctx->message, text))
        test_fail(file, line, "%s: the message \"%s\" does not say \"%s\"", what, ctx->message,
                  text);
}

int test_full(void)
{
    return getenv("ATTN_TEST_FULL") != NULL;
}

const char *test_data(void)
{
    const char *named = getenv("ATTN_TEST_DATA");
    struct stat s;
    if (named)
        return named;
    return stat("../shared/gpt2-tokenizer", &s) == 0 ? "../shared" : NULL;
}

const char *test_data_path(const char *name)
{
    static char path[1024];
    struct stat s;
    if (!test_data())
        return NULL;
    snprintf(path, sizeof path, "%s/%s", test_data(), name);
    return stat(path, &s) == 0 ? path : NULL;
}

unsigned char *test_read(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    unsigned char *bytes = NULL;
    long n;
    if (!file)
        return NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (n = ftell(file)) >= 0 && fseek(file, 0, SEEK_SET) == 0) {
        bytes = (unsigned char *)malloc((size_t)n + 1);
        *size = (size_t)n;
        if (bytes && fread(bytes, 1, *size, file) == *size) {
            bytes[n] = 0;
        } else {
            free(bytes);
            bytes = NULL;
        }
    }
    fclose(file);
    return bytes;
}

void test_write(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    const size_t written = file ? fwrite(bytes, 1, size, file) : 0;
    if (!file || fclose(file) != 0 || written != size)
        test_fail(__FILE__, __LINE__, "cannot write %s", path);
}

int test_same_file(const char *path, const char *other)
{
    size_t size, other_size;
    unsigned char *a = test_read(path, &size), *b = test_read(other, &other_size);
    const int same = a && b && size == other_size && memcmp(a, b, size) == 0;
    free(a);
    free(b);
    return same;
}

const char *test_tmp(const char *name)
{
    static char paths[8][512];
    static int turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], TEST_BUILD "/test-tmp/%s/%s", state.suite, name);
    return path;
}

/* Under a sanitizer of memory an allocation that is too large fails, as it does elsewhere. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
const char *__msan_default_options(void);
const char *__msan_default_options(void)
{
    return "allocator_may_return_null=1";
}

/* The suites of the program. */
enum { MAX_SUITES = 64, MAX_JOBS = 4 };
static struct {
    test_suite *suite;
    int wanted;
    int lock;     /* this file is locked while the suite runs */
    pid_t child;  /* its process while it runs */
    double began; /* the time of its beginning */
} suites[MAX_SUITES];
static int n_suites;

/* Puts a file's part of a suite behind those of other files that name the same suite. */
static void add_part(test_suite *part)
{
    for (int i = 0; i < n_suites; i++)
        if (strcmp(suites[i].suite->name, part->name) == 0) {
            part->next = suites[i].suite->next;
            suites[i].suite->next = part;
            return;
        }
    if (n_suites < MAX_SUITES)
        suites[n_suites++].suite = part;
}

void test_register(test_suite *suite, test_case *added)
{
    test_case **at = &suite->cases;
    if (!suite->cases)
        add_part(suite);
    while (*at && (*at)->line < added->line)
        at = &(*at)->next;
    added->next = *at;
    *at = added;
}

/* The suites that take long begin, so that none of them is left for the end. */
static int rank_of(const char *name)
{
    static const char *const longest[] = {
        "faults", "readers", "bench", "lens-tool", "convert",   "session",    "generate",
        "gpt2",   "ops",     "watch", "tools",     "notebooks", "score-tool", "fuzz"};
    enum { N = sizeof longest / sizeof longest[0] };
    int i;
    for (i = 0; i < N && strcmp(name, longest[i]) != 0; i++)
        ;
    return i;
}

static int compare_suites(const void *a, const void *b)
{
    const char *x = (*(test_suite *const *)a)->name, *y = (*(test_suite *const *)b)->name;
    const int difference = rank_of(x) - rank_of(y);
    return difference ? difference : strcmp(x, y);
}

/* What became of a suite, and of all. */
typedef struct result {
    int passed, failed, skipped;
    double processor; /* seconds that it took of a processor, with the programs that it ran */
} result;

static const char *path_of(int suite, const char *suffix)
{
    static char path[128];
    snprintf(path, sizeof path, TEST_BUILD "/test-tmp/%s.%s", suites[suite].suite->name, suffix);
    return path;
}

static int has_case(const test_suite *part, const char *name)
{
    const test_case *one = part->cases;
    while (one && strcmp(one->name, name) != 0)
        one = one->next;
    return one != NULL;
}

/* Was this suite named, or this case of it? */
static int is_wanted(const test_suite *part, const test_case *one)
{
    const size_t length = strlen(part->name);
    for (int i = 0; i < state.n_names; i++)
        if (strncmp(state.names[i], part->name, length) == 0 &&
            (!state.names[i][length] || (state.names[i][length] == '/' &&
                                         strcmp(state.names[i] + length + 1, one->name) == 0)))
            return 1;
    return state.n_names == 0;
}

static int is_wanted_part(const test_suite *part)
{
    const test_case *one = part->cases;
    while (one && !is_wanted(part, one))
        one = one->next;
    return one != NULL;
}

/* Runs those cases of one file that are wanted. */
static void run_part(const test_suite *part)
{
    const test_case *one;
    if (!is_wanted_part(part))
        return;
    if (!part->set_up || part->set_up())
        for (one = part->cases; one; one = one->next)
            if (is_wanted(part, one))
                run_case(one);
    if (part->tear_down)
        part->tear_down();
    end_case();
}

/* Runs a suite in this process. Its report's lines begin with a mark: > a case that begins, ! a line to
 * print, - a reason, a tab and the case that was skipped for it, = the three counts so far and
 * the seconds of a processor that the case took, . the end and the seconds of the suite. */
static int run_suite(int number, int with_log)
{
    const test_suite *part = suites[number].suite;
    state.suite = part->name;
    state.report = fopen(path_of(number, "report"), "w");
    state.log =
        with_log ? open(path_of(number, "log"), O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0666) : -1;
    if (!state.report ||
        (with_log && (state.log < 0 || dup2(state.log, 1) < 0 || dup2(state.log, 2) < 0)))
        return 2;
    fcntl(fileno(state.report), F_SETFD, FD_CLOEXEC);
    if (with_log)
        fcntl(state.log, F_SETFD, FD_CLOEXEC);
    for (; part; part = part->next)
        run_part(part);
    fprintf(state.report, ".%.3f\n", processor_seconds());
    return fclose(state.report) != 0;
}

/* The cases that were skipped, as "reason\tcase" each, in the order of their reasons. */
enum { MAX_SKIPPED = 2000 };
static char *skipped[MAX_SKIPPED];
static int n_skipped;

static char *copy_of(const char *text)
{
    char *copy = (char *)malloc(strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}

/* Reads the report of a suite whose process ended with `status`: prints its line and what failed, and
 * keeps what was skipped. */
static result read_report(int number, int status, double seconds)
{
    const char *const name = suites[number].suite->name;
    FILE *const file = fopen(path_of(number, "report"), "r");
    char *lines[1000], line[1400], last[200] = "";
    result r = {0, 0, 0, 0};
    int n_lines = 0, ended = 0, log;
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] == '>')
            snprintf(last, sizeof last, "/%.190s", line + 1);
        else if (line[0] == '!' && n_lines < 1000 && (lines[n_lines] = copy_of(line + 1)) != NULL)
            n_lines++;
        else if (line[0] == '-' && n_skipped < MAX_SKIPPED &&
                 (skipped[n_skipped] = copy_of(line + 1)) != NULL)
            n_skipped++;
        else if (line[0] == '=')
            sscanf(line, "=%d %d %d", &r.passed, &r.failed, &r.skipped);
        else if (line[0] == '.')
            ended = sscanf(line, ".%lf", &r.processor);
    }
    if (file)
        fclose(file);
    r.failed += !ended || status != 0;
    printf("%-14s%5d passed", name, r.passed);
    if (r.failed)
        printf("%5d failed", r.failed);
    if (r.skipped)
        printf("%5d skipped", r.skipped);
    printf("%*.1f s,%6.1f s CPU\n", 31 - 12 * (r.failed > 0) - 13 * (r.skipped > 0), seconds,
           r.processor);
    for (int i = 0; i < n_lines; i++) {
        printf("%s\n", lines[i]);
        free(lines[i]);
    }
    if (!ended || status != 0) {
        printf("FAILED %s%s: its process ended with %s %d   (%s %s%s)\n", name, last,
               WIFSIGNALED(status) ? "signal" : "code",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), state.program, name,
               last);
        if ((log = open(path_of(number, "log"), O_RDONLY)) >= 0) {
            report_log(stdout, "", log);
            close(log);
        }
    }
    fflush(stdout);
    return r;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* One paragraph for each reason: the reason, and the cases. */
static void print_skipped(void)
{
    enum { WIDTH = 100 };
    int i, column = 0;
    qsort(skipped, (size_t)n_skipped, sizeof skipped[0], compare_texts);
    for (i = 0; i < n_skipped; i++) {
        const size_t length = strcspn(skipped[i], "\t");
        const char *const name = skipped[i] + length + (skipped[i][length] != 0);
        const int again = i > 0 && strncmp(skipped[i], skipped[i - 1], length + 1) == 0;
        if (!again)
            column =
                printf("%sskipped, %.*s:", i > 0 ? "\n" : "", (int)length, skipped[i]) - (i > 0);
        if (column + 1 + (int)strlen(name) > WIDTH)
            column = printf("\n   ") - 1;
        column += printf(" %s", name);
    }
    if (n_skipped > 0)
        printf("\n");
}

/* How many suites run at the same time: $ATTN_TEST_JOBS, else as many as there are processors, but
 * at most MAX_JOBS. */
static int n_jobs(void)
{
    const char *const named = getenv("ATTN_TEST_JOBS");
    const long n = named ? atol(named) : sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > MAX_JOBS ? MAX_JOBS : (int)n;
}

/* Locks a file of this suite until the suite ends here: what it writes has one place. */
static int lock_suite(int number)
{
    struct flock lock;
    memset(&lock, 0, sizeof lock);
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    suites[number].lock = open(path_of(number, "lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (suites[number].lock >= 0 && fcntl(suites[number].lock, F_SETLK, &lock) == 0)
        return 1;
    if (fcntl(suites[number].lock, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK)
        printf("FAILED %s: process %ld runs this suite now; wait for its end, or build and test "
               "elsewhere: make test BUILD=build/other\n",
               suites[number].suite->name, (long)lock.l_pid);
    else
        printf("FAILED %s: cannot lock %s: %s\n", suites[number].suite->name,
               path_of(number, "lock"), strerror(errno));
    return 0;
}

static void unlock_suite(int number)
{
    if (suites[number].lock >= 0)
        close(suites[number].lock);
}

static int begin_suite(int number)
{
    fflush(stdout);
    if (!lock_suite(number))
        return 0;
    remove(path_of(number, "report"));
    suites[number].began = system_seconds();
    if ((suites[number].child = fork()) == 0) {
        signal(SIGALRM, SIG_DFL);
        exit(run_suite(number, 1));
    }
    if (suites[number].child < 0)
        printf("FAILED %s: no process for it: %s\n", suites[number].suite->name, strerror(errno));
    return suites[number].child > 0;
}

/* Which suites run, and how many of their cases have begun. */
static void print_running(void)
{
    int n = 0;
    for (int i = 0; i < n_suites; i++) {
        const test_suite *part;
        const test_case *one;
        FILE *report;
        int begun = 0, all = 0, last = '\n', c;
        if (suites[i].child <= 0 || (report = fopen(path_of(i, "report"), "r")) == NULL)
            continue;
        for (; (c = getc(report)) != EOF; last = c)
            begun += last == '\n' && c == '>';
        fclose(report);
        for (part = suites[i].suite; part; part = part->next)
            for (one = part->cases; one; one = one->next)
                all += is_wanted(part, one);
        printf("%s%s (case %d of %d)", n++ ? ", " : "  still running: ", suites[i].suite->name,
               begun, all);
    }
    printf("%s", n ? "\n" : "");
    fflush(stdout);
}

static void on_alarm(int number)
{
    (void)number;
}

/* Runs the suites that are wanted, each in a process of its own, and adds up what became of them. Prints
 * something at least each QUIET seconds. */
static result run_all(void)
{
    enum { QUIET = 8 };
    result all = {0, 0, 0, 0}, r;
    int next = 0, n_running = 0, status, i;
    const int most = n_jobs();
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    sigaction(SIGALRM, &action, NULL);
    for (;;) {
        pid_t ended;
        for (; next < n_suites && n_running < most; next++) {
            const int began = suites[next].wanted && begin_suite(next);
            n_running += began;
            all.failed += suites[next].wanted && !began;
        }
        if (n_running == 0)
            return all;
        alarm(QUIET);
        if ((ended = wait(&status)) < 0) {
            print_running();
            continue;
        }
        for (i = 0; i < n_suites; i++)
            if (suites[i].child > 0 && suites[i].child == ended) {
                r = read_report(i, status, system_seconds() - suites[i].began);
                all.passed += r.passed;
                all.failed += r.failed;
                all.skipped += r.skipped;
                all.processor += r.processor;
                suites[i].child = 0;
                unlock_suite(i);
                n_running--;
            }
    }
}

/* A directory, and those that it is in. */
static int made(char *path)
{
    char *slash = path;
    while ((slash = strchr(slash + 1, '/')) != NULL) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

/* One for each suite. */
static int make_directories(void)
{
    char path[1024];
    int fine = access("attn.h", R_OK) == 0;
    for (int i = 0; i < n_suites && fine; i++) {
        snprintf(path, sizeof path, TEST_BUILD "/test-tmp/%s", suites[i].suite->name);
        fine = made(path);
    }
    return fine;
}

/* Marks the suite that is named, or with "suite/case" one case of it. */
static int want(const char *name)
{
    const size_t length = strcspn(name, "/");
    const test_suite *part;
    const test_case *one;
    for (int i = 0; i < n_suites; i++) {
        const char *const suite = suites[i].suite->name;
        if (strncmp(name, suite, length) != 0 || suite[length])
            continue;
        for (part = suites[i].suite; part; part = part->next)
            if (!name[length] || has_case(part, name + length + 1))
                return suites[i].wanted = 1;
        printf("the suite %s has no case \"%s\"; its cases are:", suite, name + length + 1);
        for (part = suites[i].suite; part; part = part->next)
            for (one = part->cases; one; one = one->next)
                printf(" %s", one->name);
        printf("\n");
        return 0;
    }
    printf("no suite is named \"%.*s\"; the suites are:", (int)length, name);
    for (int n = 0; n < n_suites; n++)
        printf(" %s", suites[n].suite->name);
    printf("\n%s --list names the cases\n", state.program);
    return 0;
}

static int list_cases(void)
{
    const test_suite *part;
    const test_case *one;
    for (int i = 0; i < n_suites; i++)
        for (part = suites[i].suite; part; part = part->next)
            for (one = part->cases; one; one = one->next)
                printf("%s/%s\n", part->name, one->name);
    return 0;
}

/* Those that give the promised bits. */
static int list_isas(void)
{
    attn_ctx ctx;
    memset(&ctx, 0, sizeof ctx);
    for (int kind = ATTN_ISA_PORTABLE; kind <= ATTN_ISA_NEON_I8MM; kind++) {
        ctx.isa = (attn_isa_kind)kind;
        if (attn_isa(&ctx) && !strchr(attn_isa(&ctx), '('))
            printf("%s\n", attn_isa(&ctx));
    }
    return 0;
}

/* Commands of tests that go elsewhere find the programs as $BUILT/gpt2. */
static void tell_where_built(void)
{
    char path[4096], *here;
    if (TEST_BUILD[0] == '/')
        setenv("BUILT", TEST_BUILD, 1);
    else if ((here = getcwd(path, sizeof path - sizeof TEST_BUILD - 1)) != NULL)
        setenv("BUILT", strcat(strcat(here, "/"), TEST_BUILD), 1);
}

int main(int argc, char **argv)
{
    result all;
    int i;
    state.program = argv[0];
    tell_where_built();
    qsort(suites, (size_t)n_suites, sizeof suites[0], compare_suites);
    if (argc == 2 && strcmp(argv[1], "--list") == 0)
        return list_cases();
    if (argc == 2 && strcmp(argv[1], "--isas") == 0)
        return list_isas();
    state.names = argv + 1;
    state.n_names = argc - 1;
    for (int arg = 1; arg < argc; arg++)
        if (!want(argv[arg]))
            return 2;
    if (!make_directories()) {
        printf(
            "run this from the top of the repository: no attn.h here, or no way to make " TEST_BUILD
            "/test-tmp\n");
        return 2;
    }
    for (i = 0; i < n_suites; i++)
        suites[i].wanted |= argc < 2;
    if (argc == 2 && strchr(argv[1], '/')) {
        const double began = system_seconds();
        for (i = 0; !suites[i].wanted; i++)
            ;
        if (!lock_suite(i))
            return 2;
        int status = run_suite(i, 0);
        all = read_report(i, status, system_seconds() - began);
        unlock_suite(i);
    } else {
        all = run_all();
    }
    print_skipped();
    printf("%d passed, %d failed, %d skipped\n", all.passed, all.failed, all.skipped);
    return all.failed != 0;
}
