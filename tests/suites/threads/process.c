/* The process that a library or a program finds itself in: its floating-point modes, forks, limits,
 * locale, and pipes that nobody writes to yet. */
#include "tools/common/files.h"
#include "tests/support/test.h"
#include "tests/support/fixture.h"
#include "tests/support/tasks.h"
#include <stdlib.h>
#include <unistd.h>
#if defined(__SSE2__) && !defined(ATTN_NO_SIMD)
#include <emmintrin.h>
#endif
#include "tests/support/comma.h"

SUITE();

#define MODEL TEST_BUILD "/tiny-stories.attn"

/* Flushing to zero and reading denormals as zero, each alone and both. */
TEST(denormals_that_are_flushed)
{
#if defined(__SSE2__) && !defined(ATTN_NO_SIMD)
    static const unsigned modes[] = {0x8000, 0x0040, 0x8040};
    const unsigned before = _mm_getcsr();
    attn_ctx ctx = alone();
    CHECK(attn_isa(&ctx) && !strstr(attn_isa(&ctx), "inexact"));
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        _mm_setcsr(before | modes[i]);
        const char *name = attn_isa(&ctx);
        _mm_setcsr(before);
        CHECKF(name && strstr(name, " (inexact: denormals are flushed)"), "%x: %s", modes[i], name);
    }
    CHECK(!strstr(attn_isa(&ctx), "inexact"));
    done(&ctx);
#else
    test_skip("no SSE here");
#endif
}

/* A product of this size is shared by all threads that are allowed. */
static int multiply(attn_ctx *ctx, attn_tensor *product, int n_threads)
{
    attn_tensor a = no_tensor;
    ctx->n_threads = n_threads;
    if (attn_zeros(ctx, &a, ATTN_F32, attn_shape2(300, 300)))
        return 0;
    for (size_t i = 0; i < 300 * 300; i++)
        ((float *)a.data)[i] = (float)(i % 17) - 8;
    return attn_matmul(ctx, product, a, a) == ATTN_OK;
}

/* Forks; the child multiplies, and must have as many threads as it is told (0: it does not matter).
 * Comes before all cases that make threads. */
static void multiply_in_a_child(int n_threads)
{
    attn_ctx ctx = alone();
    attn_tensor ours = no_tensor, theirs = no_tensor;
    int status = -1;
    pid_t child;
    CHECK(multiply(&ctx, &ours, 1));
    if (!CHECK((child = fork()) >= 0))
        return;
    if (child == 0) {
        alarm(20); /* in place of a wait that does not end */
        if (!multiply(&ctx, &theirs, 4) ||
            memcmp(ours.data, theirs.data, 300 * 300 * sizeof(float)) != 0)
            _exit(1);
        _exit(n_threads && n_tasks() && n_tasks() != n_threads ? 2 : 0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECKF(status == 0, "the child's status is %d", status);
    done(&ctx);
}

/* A process with one thread has a child that may have more. One whose own parallel regions made threads
 * has a child that would wait for them; the library then had two of them. */
TEST(forks_beside_other_threads)
{
    int n = 0;
#ifdef _OPENMP
    SCOPED_CTX ctx = alone();
    attn_tensor product = no_tensor;
    multiply_in_a_child(TEST_SANITIZED || n_tasks() != 1 ? 0 : 4);
#pragma omp parallel num_threads(2) reduction(+ : n)
    n++;
    CHECK(n == 2);
    CHECK(multiply(&ctx, &product, 2));
#else
    (void)n;
#endif
    multiply_in_a_child(0);
}

/* The child of a process whose threads worked has none of them, and works all the same. */
TEST(forks)
{
    SCOPED_CTX ctx = alone();
    attn_tensor ours = no_tensor, theirs = no_tensor;
    int status = -1;
    pid_t child;
    CHECK(multiply(&ctx, &ours, 4));
    if (!CHECK((child = fork()) >= 0))
        return;
    if (child == 0) {
        alarm(20); /* in place of a wait that does not end */
        _exit(!multiply(&ctx, &theirs, 4) ||
              memcmp(ours.data, theirs.data, 300 * 300 * sizeof(float)) != 0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECKF(status == 0, "the child's status is %d", status);
    CHECK(multiply(&ctx, &theirs, 4));
}

/* Stacks so large that memory suffices for a few: OpenMP would end the program. */
TEST(threads_that_are_refused)
{
    static const char command[] =
        TEST_BUILD "/gpt2 " MODEL " -n 5 --temperature 0 --quiet --threads %d --ids '%s'";
    char plain[400], ids[200] = "";
    for (int i = 0; i < 30; i++)
        snprintf(ids + strlen(ids), sizeof ids - strlen(ids), "%d ", 300 + i);
    snprintf(plain, sizeof plain, command, 1, ids);
    if (TEST_SANITIZED || run("ulimit -S -s 700000 && ulimit -S -v 2500000 && %s", plain) != 0) {
        test_skip("no such limits here");
        return;
    }
    char *want = prints(plain);
    for (int i = 2; i <= 32; i *= 2) {
        snprintf(plain, sizeof plain, command, i, ids);
        CHECKF(run("ulimit -S -s 700000 && ulimit -S -v 2500000 && %s", plain) == 0,
               "%d threads: %s", i, err);
        CHECK(want && out && strcmp(out, want) == 0);
    }
    free(want);
    forget();
}

TEST(numbers_in_messages)
{
    attn_ctx ctx = alone();
    attn_sampler *sampler;
    if (!comma_begin()) {
        test_skip("no locale with a comma");
        return;
    }
    attn_sampler_desc desc = {.top_p = 1.5f, .min_p = 0.25f};
    FAILS(ARGUMENT, "top_p is 1.5 and min_p 0.25;", attn_sampler_new(&ctx, &sampler, 5, &desc));
    desc.top_p = desc.min_p = 0;
    desc.temperature = -2.5e-7f;
    FAILS(ARGUMENT, "temperature is -2.5e-07;", attn_sampler_new(&ctx, &sampler, 5, &desc));
    comma_end();
    done(&ctx);
    forget();
}

/* The reason is at the end of a message, and stays however long the path is. */
TEST(long_paths)
{
    char path[901];
    size_t i;
    for (i = 0; i + 1 < sizeof path; i++)
        path[i] = i % 88 == 84 ? '/' : "ab\xc3\xa9"[i % 4];
    path[i] = 0;
    run(TEST_BUILD "/attn-convert '%s' x.attn", path);
    CHECKF(strstr(err, "cannot open ab") && strstr(err, "...") &&
               strstr(err, ": No such file or directory\n"),
           "%s", err);
    run(TEST_BUILD "/attn-tokenize '%s' --prompt x", path);
    CHECKF(strstr(err, ": No such file or directory; is the path right?\n") && strlen(err) < 300,
           "%s", err);
    for (i = 0; err[i]; i++) /* no half of a character */
        CHECK((unsigned char)err[i] != 0xc3 || (unsigned char)err[i + 1] == 0xa9);
    forget();
}

/* A person who opens a pipe by mistake learns why nothing happens. */
TEST(pipes_that_are_waited_for)
{
    char path[512], named[600];
    snprintf(path, sizeof path, "%s", test_tmp("pipe"));
    snprintf(named, sizeof named, "waiting for somebody to write to the pipe %s\n", path);
    CHECK(run("rm -f %s; mkfifo %s", path, path) == 0);
    CHECK(run("cat " MODEL " >%s & " TEST_BUILD "/gpt2 %s Once -n 2 --quiet", path, path) == 0);
    CHECKF(strstr(err, named), "%s", err);
    CHECK(run("echo Once >%s & " TEST_BUILD "/gpt2 " MODEL " --file %s -n 2 --quiet", path, path) ==
          0);
    CHECKF(strstr(err, named), "%s", err);
    CHECK(run("echo '{\"text\": \"Once\"}' >%s & " TEST_BUILD "/score " MODEL " %s -q", path,
              path) == 0);
    CHECKF(strstr(err, named), "%s", err);
    CHECK(run("echo '{\"text\": \"Once\"}' >%s & mkdir -p %s.d; " TEST_BUILD "/lens " MODEL
              " record --lines %s hook_embed -o %s.d; code=$?; rm -r %s.d; exit $code",
              path, path, path, path, path) == 0);
    CHECKF(strstr(err, named), "%s", err);
    CHECK(run("echo Once | " TEST_BUILD "/gpt2 " MODEL " -n 2 --quiet") == 0);
    CHECKF(!strstr(err, "waiting"), "%s", err);
    remove(path);
    forget();
}
