/* A suite whose cases pass, fail, are skipped and, with $CRASH, end the process, for suites/tools/runner.c. */
#include "tests/support/test.h"
#include <signal.h>
#include <stdlib.h>

SUITE();

TEST(passes)
{
    puts("nobody sees this");
    EQUAL(1 + 1, 2);
}

TEST(fails)
{
    int i;
    for (i = 0; i < 100; i++)
        if (system("echo a program prints") != 0)
            return;
    printf("%d lines\n", i);
    EQUAL(1 + 1, 3);
}

TEST(fails_at_length)
{
    char text[3000];
    int i;
    for (i = 0; i < 2999; i++)
        text[i] = i % 50 == 49 ? '\n' : 'x';
    text[i] = 0;
    test_fail(__FILE__, __LINE__, "begin %s end", text);
}

TEST(skips)
{
    test_skip("a reason");
}

TEST(skips_too)
{
    test_skip("a reason");
}

TEST_IF(getenv("CRASH") != NULL, crashes)
{
    puts("last words");
    fflush(stdout);
    raise(SIGKILL);
}
