/* Runs every suite, or the suites and cases that are named, some suites at the same time, and ends
 * in the line "N passed, N failed, N skipped".
 *
 *     test [SUITE | SUITE/CASE]...
 *     test --list                   the names of all cases
 *     test --isas                   the instruction sets here, for ATTN_TEST_ISA */
#define PROGRAM "test"
#include "tools/common/program.h" /* first: it asks the system for POSIX */
#include "test.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    int passed, failed, skipped;   /* cases of this suite so far */
    int case_failed, case_skipped; /* of the running case */
    const char *suite, *name;
} state;

/* Counts the case that ended. What failed between two cases counts like one. */
static void end_case(void)
{
    if (state.case_failed)
        state.failed++;
    else if (state.case_skipped)
        state.skipped++;
    else if (state.name)
        state.passed++;
    state.name = NULL;
    state.case_failed = state.case_skipped = 0;
    fflush(stdout);
}

static void run_case(const test_case *one)
{
    end_case();
    state.name = one->name;
    alarm(getenv("ATTN_TEST_FULL") ? 0 : 900); /* what hangs, or takes quadratic time, fails */
    one->body();
    alarm(0);
    end_case();
}

void test_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    if (state.case_failed++ >= 5)
        return;
    printf("FAILED %s/%s at %s:%d: ", state.suite, state.name ? state.name : "(between cases)",
           file, line);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

void test_skip(const char *reason)
{
    if (!state.case_skipped++)
        printf("skipped %s/%s: %s\n", state.suite, state.name ? state.name : "(all)", reason);
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

const char *test_data(void)
{
    const char *named = getenv("ATTN_TEST_DATA");
    struct stat s;
    if (named)
        return named;
    return stat("../shared/golden", &s) == 0 ? "../shared" : NULL;
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
    snprintf(path, sizeof paths[0], "build/test-tmp/%s/%s", state.suite, name);
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
    const char *only; /* this case alone, or NULL */
} suites[MAX_SUITES];
static int n_suites;

void test_register(test_suite *suite, test_case *added)
{
    test_case **at = &suite->cases;
    if (!suite->cases && n_suites < MAX_SUITES)
        suites[n_suites++].suite = suite;
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

/* What a process tells of a suite that it ran to its end. */
typedef struct result {
    int suite, passed, failed, skipped;
} result;

static void run_suite(const test_suite *suite, const char *only)
{
    const test_case *one;
    memset(&state, 0, sizeof state);
    state.suite = suite->name;
    if (!suite->set_up || suite->set_up())
        for (one = suite->cases; one; one = one->next)
            if (!only || strcmp(only, one->name) == 0)
                run_case(one);
    if (suite->tear_down)
        suite->tear_down();
    end_case();
}

/* Runs the suites whose numbers come out of a pipe, one byte each. */
static void run_suites(int todo, int results)
{
    unsigned char i;
    ssize_t n;
    while ((n = read(todo, &i, 1)) == 1 || (n < 0 && errno == EINTR)) {
        result r;
        if (n < 0)
            continue;
        run_suite(suites[i].suite, suites[i].only);
        r.suite = i;
        r.passed = state.passed;
        r.failed = state.failed;
        r.skipped = state.skipped;
        if (write(results, &r, sizeof r) != (ssize_t)sizeof r)
            exit(2);
    }
}

/* How many suites run at the same time: $ATTN_TEST_JOBS, else as many as there are processors, but
 * at most MAX_JOBS. */
static int jobs_for(int n_wanted)
{
    const char *const named = getenv("ATTN_TEST_JOBS");
    long n = named ? atol(named) : sysconf(_SC_NPROCESSORS_ONLN);
    n = n > MAX_JOBS ? MAX_JOBS : n;
    n = n > n_wanted ? n_wanted : n;
    return n < 1 ? 1 : (int)n;
}

/* Starts so many processes, which take suites until none is left. One alone is this process, where
 * a debugger sees it. */
static void start(int n_jobs, const int todo[2], const int results[2])
{
    int job;
    fflush(stdout);
    for (job = 0; job < n_jobs; job++) {
        const pid_t child = n_jobs > 1 ? fork() : 0;
        if (child < 0)
            printf("cannot start a process: %s\n", strerror(errno));
        if (child != 0)
            continue;
        run_suites(todo[0], results[1]);
        if (n_jobs > 1)
            exit(0);
    }
}

static int made(const char *directory)
{
    return mkdir(directory, 0777) == 0 || errno == EEXIST;
}

/* One for each suite. */
static int make_directories(void)
{
    char path[64];
    int i, fine = access("attn.h", R_OK) == 0 && made("build") && made("build/test-tmp");
    for (i = 0; i < n_suites && fine; i++) {
        snprintf(path, sizeof path, "build/test-tmp/%s", suites[i].suite->name);
        fine = made(path);
    }
    return fine;
}

static int has_case(const test_suite *suite, const char *name)
{
    const test_case *one = suite->cases;
    while (one && strcmp(one->name, name) != 0)
        one = one->next;
    return one != NULL;
}

/* Marks the suite that is named, or with "suite/case" one case of it. */
static int want(unsigned char *wanted, const char *name)
{
    const size_t length = strcspn(name, "/");
    const char *const only = name[length] ? name + length + 1 : NULL;
    int i;
    for (i = 0; i < n_suites; i++)
        if (strlen(suites[i].suite->name) == length &&
            memcmp(name, suites[i].suite->name, length) == 0 &&
            (!only || has_case(suites[i].suite, only))) {
            suites[i].only = only;
            return wanted[i] = 1;
        }
    printf("no suite or case is named \"%s\"; the suites are:", name);
    for (i = 0; i < n_suites; i++)
        printf(" %s", suites[i].suite->name);
    printf("\nbuild/test --list names the cases\n");
    return 0;
}

static int list_cases(void)
{
    const test_case *one;
    int i;
    for (i = 0; i < n_suites; i++)
        for (one = suites[i].suite->cases; one; one = one->next)
            printf("%s/%s\n", suites[i].suite->name, one->name);
    return 0;
}

/* Adds up what comes out of the pipe, and tells on a terminal how far it is. A process can also end
 * in a signal, or find at its end that it lost memory. */
static int all_passed(int results, unsigned char *missing, int n_wanted)
{
    result total = {0, 0, 0, 0}, r;
    progress bar;
    int n_done = 0;
    int status, i, broken = 0;
    progress_begin(&bar, "suites");
    while (read(results, &r, sizeof r) == (ssize_t)sizeof r) {
        progress_at(&bar, (double)++n_done / n_wanted);
        total.passed += r.passed;
        total.failed += r.failed;
        total.skipped += r.skipped;
        missing[r.suite] = 0;
    }
    progress_end(&bar);
    for (; wait(&status) > 0; broken |= status != 0)
        if (status != 0)
            printf("a process of the tests ended with %s %d\n",
                   WIFSIGNALED(status) ? "signal" : "code",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    for (i = 0; i < n_suites; i++)
        if (missing[i]) {
            printf("FAILED %s: it did not come to its end\n", suites[i].suite->name);
            total.failed++;
        }
    printf("%d passed, %d failed, %d skipped\n", total.passed, total.failed, total.skipped);
    return !broken && total.failed == 0;
}

/* Those that give the promised bits. */
static int list_isas(void)
{
    attn_ctx ctx;
    int kind;
    memset(&ctx, 0, sizeof ctx);
    for (kind = ATTN_ISA_PORTABLE; kind <= ATTN_ISA_NEON_I8MM; kind++) {
        ctx.isa = (attn_isa_kind)kind;
        if (attn_isa(&ctx) && !strchr(attn_isa(&ctx), '('))
            printf("%s\n", attn_isa(&ctx));
    }
    return 0;
}

int main(int argc, char **argv)
{
    unsigned char wanted[MAX_SUITES] = {0}, i;
    int todo[2], results[2], n_wanted = 0, arg;
    setvbuf(stdout, NULL, _IOLBF, 0); /* lines of two processes stay whole */
    qsort(suites, (size_t)n_suites, sizeof suites[0], compare_suites);
    if (argc == 2 && strcmp(argv[1], "--list") == 0)
        return list_cases();
    if (argc == 2 && strcmp(argv[1], "--isas") == 0)
        return list_isas();
    if (pipe(todo) != 0 || pipe(results) != 0 || fcntl(todo[0], F_SETFD, FD_CLOEXEC) != 0 ||
        fcntl(results[1], F_SETFD, FD_CLOEXEC) != 0) {
        printf("no pipes: %s\n", strerror(errno));
        return 2;
    }
    for (arg = 1; arg < argc; arg++)
        if (!want(wanted, argv[arg]))
            return 2;
    if (!make_directories()) {
        printf("run this from the top of the repository: no attn.h here, or no way to make "
               "build/test-tmp\n");
        return 2;
    }
    for (i = 0; i < n_suites; i++) {
        wanted[i] |= argc < 2;
        if (wanted[i] && write(todo[1], &i, 1) == 1)
            n_wanted++;
    }
    close(todo[1]);
    start(jobs_for(n_wanted), todo, results);
    close(results[1]);
    return !all_passed(results[0], wanted, n_wanted);
}
