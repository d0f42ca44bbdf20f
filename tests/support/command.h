/* Programs, tried as a person uses them: through a shell, by what they print and their exit codes.
 * Include this last, for `out` and `err` are names that others use. */
#ifndef COMMAND_H
#define COMMAND_H

#include "test.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* What the last run printed, as text that ends in a zero. */
static char *out, *err;
static size_t out_size, err_size;

static inline void forget(void)
{
    free(out);
    free(err);
    out = err = NULL;
}

/* Runs a shell command and gives its exit code, 128 + n for signal n, or -1. */
static inline int run(const char *format, ...)
{
    static char command[16384];
    va_list args;
    int n = snprintf(command, sizeof command, "{ ");
    va_start(args, format);
    n += vsnprintf(command + n, sizeof command - (size_t)n, format, args);
    va_end(args);
    snprintf(command + n, sizeof command - (size_t)n, "\n} >%s 2>%s </dev/null", test_tmp("out"),
             test_tmp("err"));
    int status = system(command);
    forget();
    out = (char *)test_read(test_tmp("out"), &out_size);
    err = (char *)test_read(test_tmp("err"), &err_size);
    if (!CHECK(out && err && status != -1))
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Runs a command that must succeed. If it fails, the test prints its standard error. */
#define RUNS(...) CHECKF(run(__VA_ARGS__) == 0, "%s", err)

/* Ctrl-C for the program that was last put into the background, as soon as it catches that signal:
 * bit 1 of Linux's SigCgt is SIGINT's. The shell catches it too, and the process is a copy of the
 * shell until the program takes its place. It may also have ended already. On other systems
 * the program has a second. */
#define INTERRUPT                                                                                  \
    "run=$!; i=0; while [ $i -lt 600 ] && { [ -d /proc/$run ] || [ ! -d /proc/self ]; } && "       \
    "{ [ /proc/$run/exe -ef /proc/$$/exe ] || ! grep -q "                                          \
    "'^SigCgt:.*[2367abef]$\\|^State:.*Z' /proc/$run/status; }; "                                  \
    "do test -d /proc/self || { sleep 1; break; }; sleep 0.1; i=$((i + 1)); done 2>/dev/null; "    \
    "kill -INT $run; "

/* Returns 1 if `script` can give a command a terminal. Otherwise skips the running case and returns 0. */
static inline int has_terminal(void)
{
    const int has = run("command -v script >/dev/null && script -qec true /dev/null") == 0;
    if (!has)
        test_skip("no `script` here, which makes a terminal");
    return has;
}

/* A command that must exit with `code`, print nothing on standard output and say `text`. */
static inline void refuses(int code, const char *text, const char *command)
{
    const int got = run("%s", command);
    CHECKF(got == code, "%s: exit code %d, expected %d (%s)", command, got, code, err ? err : "");
    CHECKF(out_size == 0, "%s: printed \"%.40s\"", command, out);
    CHECKF(err && strstr(err, text), "%s: said \"%s\", not \"%s\"", command, err, text);
    CHECKF(err && strchr(err, '\n') == err + err_size - 1, "%s: more than one line: %s", command,
           err);
}

/* A command that must succeed. What it printed is a copy that the caller frees, or NULL. */
static inline char *prints(const char *command)
{
    const int code = run("%s", command);
    char *text = out;
    if (!CHECKF(code == 0, "%s: exit code %d (%s)", command, code, err ? err : ""))
        return NULL;
    out = NULL;
    return text;
}

/* How often a word stands in a text. */
static inline size_t occurrences(const char *text, const char *word)
{
    size_t n = 0;
    for (; text && (text = strstr(text, word)) != NULL; text++)
        n++;
    return n;
}

/* Two commands that must print the same. */
static inline void same(const char *a, const char *b)
{
    char *first = prints(a), *second = prints(b);
    if (first && second)
        CHECKF(strcmp(first, second) == 0, "%s printed \"%.60s\", but %s \"%.60s\"", a, first, b,
               second);
    free(first);
    free(second);
}

#endif
