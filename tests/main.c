/* Runs every suite, or those named on the command line, and ends in the line
 * "N passed, N failed, N skipped". */
#include "test.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct {
    int passed, failed, skipped;   /* cases so far */
    int case_failed, case_skipped; /* of the running case */
    const char *suite, *name;
} state;

void test_run(const char *suite, const char *name, void (*body)(void))
{
    state.suite = suite;
    state.name = name;
    state.case_failed = state.case_skipped = 0;
    body();
    if (state.case_failed)
        state.failed++;
    else if (state.case_skipped)
        state.skipped++;
    else
        state.passed++;
    fflush(stdout);
}

void test_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    if (state.case_failed++ >= 5)
        return;
    printf("FAILED %s/%s at %s:%d: ", state.suite, state.name, file, line);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

void test_skip(const char *reason)
{
    if (!state.case_skipped++)
        printf("skipped %s/%s: %s\n", state.suite, state.name, reason);
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
    snprintf(path, sizeof paths[0], "build/test-tmp/%s", name);
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

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } suites[] = {{"tensors", suite_tensors},     {"ops", suite_ops},
                  {"kernels", suite_kernels},     {"fma", suite_fma},
                  {"tokenizer", suite_tokenizer}, {"format", suite_format},
                  {"model", suite_model},         {"hooks", suite_hooks},
                  {"sampling", suite_sampling},   {"convert", suite_convert},
                  {"tools", suite_tools},         {"notebooks", suite_notebooks},
                  {"lens", suite_lens},           {"bench", suite_bench},
                  {"lens-tool", suite_lens_tool}, {"properties", suite_properties},
                  {"fuzz", suite_fuzz},           {"corners", suite_corners},
                  {"faults", suite_faults},       {"load", suite_load},
                  {"sizes", suite_sizes}};
    size_t i;
    int arg;
    if (mkdir("build/test-tmp", 0777) != 0 && errno != EEXIST) {
        printf("run this from the top of the repository, after make: no build/ here\n");
        return 2;
    }
    for (i = 0; i < sizeof suites / sizeof suites[0]; i++) {
        int wanted = argc < 2;
        for (arg = 1; arg < argc; arg++)
            wanted |= strcmp(argv[arg], suites[i].name) == 0;
        if (wanted)
            suites[i].run();
    }
    printf("%d passed, %d failed, %d skipped\n", state.passed, state.failed, state.skipped);
    return state.failed != 0;
}
