/* The fuzz targets on their corpus, and on a few mutations of it. (make fuzz goes on from there.)
 * A program of their own runs them, for what breaks there ends it. */
#include "tests/support/test.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

SUITE();

static void replay(const char *target)
{
    int status = system(
        test_text(TEST_BUILD "/fuzz/replay 40 499 %s >%s 2>&1", target, test_tmp("replay.out")));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        size_t size;
        SCOPED_TEXT text = (char *)test_read(test_tmp("replay.out"), &size);
        test_fail(__FILE__, __LINE__, "%s broke on " TEST_BUILD "/fuzz/input: %.300s", target,
                  text ? text + (size > 300 ? size - 300 : 0) : "");
    }
}

/* A target that something ended leaves its directory behind; the next one removes it, and not that
 * of a process which still runs. */
TEST(leavings)
{
    const char *parent = access("/dev/shm", F_OK) == 0 ? "/dev/shm" : TEST_BUILD "/fuzz";
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    const char *const gone = test_text("%s/attn-fuzz.%ld", parent, (long)child);
    const char *const ours = test_text("%s/attn-fuzz.%ld", parent, (long)getpid());
    CHECK(mkdir(gone, 0700) == 0 && mkdir(ours, 0700) == 0);
    test_write(test_text("%s/in", gone), "x", 1);
    CHECK(system(TEST_BUILD "/fuzz/replay 0 0 llmc >/dev/null") == 0);
    CHECK(access(gone, F_OK) != 0);
    EQUAL(rmdir(ours), 0);
}

#define TARGET(name)                                                                               \
    TEST(name)                                                                                     \
    {                                                                                              \
        replay(#name);                                                                             \
    }
TARGET(attn)
TARGET(huggingface)
TARGET(gguf)
TARGET(llmc)
TARGET(vocab)
TARGET(tokenizer)
TARGET(session)
TARGET(sampler)
TARGET(hooks)
TARGET(lens)
TARGET(surprisal)
