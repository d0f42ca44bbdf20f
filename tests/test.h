/* The test harness: a case is a function, a suite a list of cases. A case passes if nothing in it
 * failed; one that cannot run here says why and counts as skipped. */
#ifndef TEST_H
#define TEST_H

#include "attn.h"
#include <stdio.h>

/* Where the programs are. */
#ifndef TEST_BUILD
#define TEST_BUILD "build"
#endif

/* Is this a build whose sanitizer keeps freed memory and wants all addresses for itself? */
#if defined(__SANITIZE_ADDRESS__)
#define TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif

/* Runs one case of this suite and counts it. */
void test_run(const char *name, void (*body)(void));
#define RUN(name) test_run(#name, name)

/* Reports a failure of the running case with a sentence; the case goes on. */
void test_fail(const char *file, int line, const char *format, ...);
/* Marks the running case as skipped, with the reason. Return right after it. */
void test_skip(const char *reason);

/* CHECK(condition) or CHECKF(condition, "sentence %d", ...). Both give the condition's value. */
#define CHECK(condition)       ((condition) ? 1 : (test_fail(__FILE__, __LINE__, "%s", #condition), 0))
#define CHECKF(condition, ...) ((condition) ? 1 : (test_fail(__FILE__, __LINE__, __VA_ARGS__), 0))
/* An attn call that must succeed; its message is shown if it does not. */
#define OK(ctx, call)          CHECKF((call) == ATTN_OK, "%s: %s", #call, (ctx)->message)
/* An attn call that must fail with this status and a message that contains this text. */
#define FAILS(ctx, status_, text, call)                                                            \
    test_fails(__FILE__, __LINE__, #call, (ctx), (status_), (text), (call))
void test_fails(const char *file, int line, const char *what, const attn_ctx *ctx,
                attn_status expected, const char *text, attn_status actual);

/* A directory with larger test data ($ATTN_TEST_DATA, else ../shared), or NULL. */
const char *test_data(void);
/* "test_data()/name", in a static buffer, or NULL if there is no such file. */
const char *test_data_path(const char *name);
/* A whole file in memory from malloc, with a zero after it; NULL if it cannot be read. */
unsigned char *test_read(const char *path, size_t *size);
/* Writes a file, or fails the running case. */
void test_write(const char *path, const void *bytes, size_t size);
/* Two files that can be read and hold the same bytes. */
int test_same_file(const char *path, const char *other);
/* Where this suite may write: "build/test-tmp/suite/name", in one of a few rotating static buffers.
 */
const char *test_tmp(const char *name);

/* The suites. */
void suite_tensors(void);
void suite_ops(void);
void suite_kernels(void);
void suite_fma(void);
void suite_model(void);
void suite_hooks(void);
void suite_lens(void);
void suite_lens_tool(void);
void suite_format(void);
void suite_tokenizer(void);
void suite_sampling(void);
void suite_convert(void);
void suite_tools(void);
void suite_notebooks(void);
void suite_properties(void);
void suite_fuzz(void);
void suite_faults(void);
void suite_bench(void);
void suite_corners(void);
void suite_load(void);
void suite_sizes(void);
void suite_mistakes(void);

#endif
