/* The test harness. A suite is a folder of suites/, whose name it has. A case registers itself where it
 * is written:
 *
 *     SUITE();                 once in a file, above its first case
 *     TEST(sum_of_two) { ... } a case of this suite
 *
 * A case passes if nothing in it failed. A case that cannot run here says why and counts as
 * skipped. */
#ifndef TEST_H
#define TEST_H

#include "tools/common/system.h"
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the programs are, and where this suite may write. The Makefile defines both names by the build
 * directory and the folder. */
#ifndef TEST_BUILD
#define TEST_BUILD "build"
#endif
#define TEST_TMP TEST_BUILD "/test-tmp/" TEST_SUITE "/"

/* Is this a build whose sanitizer keeps freed memory and wants all addresses for itself? */
#if defined(__SANITIZE_ADDRESS__)
#define TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif
#if defined(_OPENMP) || defined(ATTN_THREADS)
#define TEST_THREADS /* the library works on several */
#endif
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif

typedef struct test_case {
    const char *name;
    void (*body)(void);
    int line;
    struct test_case *next;
} test_case;

typedef struct test_suite {
    const char *name;
    int (*set_up)(void);     /* runs before the cases; if it returns 0 they do not run. Or NULL */
    void (*tear_down)(void); /* runs after them. Or NULL */
    test_case *cases;        /* in the order of the file */
    struct test_suite *next; /* another file's part of the suite of this name */
} test_suite;

/* Adds a case to its suite, and the suite of a first case to the program. */
void test_register(test_suite *suite, test_case *added);

#define SUITE() SUITE_WITH(NULL, NULL)
#define SUITE_WITH(set_up, tear_down)                                                              \
    static test_suite this_suite = {TEST_SUITE, set_up, tear_down, NULL, NULL}

/* Defines and registers a case. The constructor runs before main. */
#define TEST(name) TEST_IF(1, name)
/* A case that exists only where the condition holds. */
#define TEST_IF(condition, name)                                                                   \
    static void name(void);                                                                        \
    __attribute__((constructor)) static void register_##name(void)                                 \
    {                                                                                              \
        static test_case this_case = {#name, name, __LINE__, NULL};                                \
        if (condition)                                                                             \
            test_register(&this_suite, &this_case);                                                \
    }                                                                                              \
    static void name(void)

/* What these declare is freed where its block ends, the last one first: SCOPED_CTX ctx = {0}; */
#define SCOPED_CTX       SCOPED(attn_ctx_free) attn_ctx
#define SCOPED_MODEL     SCOPED(test_end_model) attn_model *
#define SCOPED_SESSION   SCOPED(test_end_session) attn_session *
#define SCOPED_RECORD    SCOPED(test_end_record) attn_record *
#define SCOPED_WORKSPACE SCOPED(test_end_workspace) attn_workspace *
#define SCOPED_SAMPLER   SCOPED(test_end_sampler) attn_sampler *
#define SCOPED_GENERATOR SCOPED(test_end_generator) attn_generator *
#define SCOPED_TEXT      SCOPED(test_end_bytes) char *
#define SCOPED_BYTES     SCOPED(test_end_bytes) unsigned char *
#define SCOPED(end)      __attribute__((cleanup(end)))
#define TEST_END(name, type, release)                                                              \
    static inline void name(type *const *it)                                                       \
    {                                                                                              \
        release(*it);                                                                              \
    }
TEST_END(test_end_model, attn_model, attn_model_close)
TEST_END(test_end_session, attn_session, attn_session_free)
TEST_END(test_end_record, attn_record, attn_record_free)
TEST_END(test_end_workspace, attn_workspace, attn_workspace_free)
TEST_END(test_end_sampler, attn_sampler, attn_sampler_free)
TEST_END(test_end_generator, attn_generator, attn_generator_free)
static inline void test_end_bytes(const void *it) /* the address of a pointer, of any type */
{
    void *bytes;
    memcpy(&bytes, it, sizeof bytes);
    free(bytes);
}

/* A text that lasts until the running case has ended. */
__attribute__((format(printf, 1, 2))) const char *test_text(const char *format, ...);

/* Calls a function when the running case has ended. */
void test_at_end(void (*call)(void));

/* Reports a failure of the running case with a sentence; the case goes on. */
void test_fail(const char *file, int line, const char *format, ...);
/* Marks the running case as skipped, with the reason. Return right after it. */
void test_skip(const char *reason);

/* CHECK(condition) or CHECKF(condition, "sentence %d", ...). Both give the condition's value. */
#define CHECK(condition)       ((condition) ? 1 : (test_fail(__FILE__, __LINE__, "%s", #condition), 0))
#define CHECKF(condition, ...) ((condition) ? 1 : (test_fail(__FILE__, __LINE__, __VA_ARGS__), 0))
/* Two numbers that must be the same, and are shown if they are not: whole ones up to 2^53, or floats. */
#define EQUAL(got, expected)   test_equal(__FILE__, __LINE__, #got, (double)(got), (double)(expected))
int test_equal(const char *file, int line, const char *what, double got, double expected);
/* An attn call that must succeed; its message is shown if it does not. */
#define OK(ctx, call) CHECKF((call) == ATTN_OK, "%s: %s", #call, (ctx)->message)
/* An attn call that must fail with this status and a message that contains this text. */
#define FAILS_IN(ctx, status_, text, call)                                                         \
    test_fails(__FILE__, __LINE__, #call, (ctx), (status_), (text), (call))
void test_fails(const char *file, int line, const char *what, const attn_ctx *ctx,
                attn_status expected, const char *text, attn_status actual);

/* The same in the context `ctx`: FAILS(SHAPE, "[2, 3]", attn_add(&ctx, ...)). */
#define FAILS(error, text, call) FAILS_IN(&ctx, ATTN_E_##error, text, call)

/* Is there time for all of a check that takes long (ATTN_TEST_FULL=1)? `make test` does a part of it then,
 * and .ci/run all. */
int test_full(void);

/* An attn call that a callback or the flag stops: that is no failure, and the context shows none. */
#define STOPS(ctx, call)                                                                           \
    do {                                                                                           \
        const attn_ctx before_ = *(ctx);                                                           \
        CHECKF((call) == ATTN_STOPPED, "%s was not stopped: %s", #call, (ctx)->message);           \
        CHECK((ctx)->status == before_.status && strcmp((ctx)->message, before_.message) == 0);    \
    } while (0)

/* A directory with data that is not ours to give away, or NULL: $ATTN_TEST_DATA, or a directory `shared`
 * beside the repository. In it is gpt2-tokenizer/: GPT-2's vocabulary, and texts with their ids. */
const char *test_data(void);
/* "test_data()/name", in a static buffer, or NULL if there is no such file. */
const char *test_data_path(const char *name);
/* A whole file in memory from malloc, with a zero after it; NULL if it cannot be read. */
unsigned char *test_read(const char *path, size_t *size);
/* Writes a file, or fails the running case. */
void test_write(const char *path, const void *bytes, size_t size);
/* Two files that can be read and hold the same bytes. */
int test_same_file(const char *path, const char *other);
/* TEST_TMP "name" for what suites share, in one of a few rotating static buffers. */
const char *test_tmp(const char *name);

#endif
