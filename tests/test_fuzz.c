/* The fuzz targets on their corpus, and on a few mutations of it. (make fuzz goes on from there.)
 * A program of their own runs them, for what breaks there ends it. */
#define _POSIX_C_SOURCE 200809L
#include "test.h"
#include <stdlib.h>
#include <sys/wait.h>

static void replay(const char *target)
{
    char command[256];
    int status;
    snprintf(command, sizeof command, TEST_BUILD "/fuzz/replay 40 499 %s >%s 2>&1", target,
             test_tmp("replay.out"));
    status = system(command);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        size_t size;
        char *text = (char *)test_read(test_tmp("replay.out"), &size);
        test_fail(__FILE__, __LINE__, "%s broke on " TEST_BUILD "/fuzz/input: %.300s", target,
                  text ? text + (size > 300 ? size - 300 : 0) : "");
        free(text);
    }
}

#define TARGET(name)                                                                               \
    static void name(void)                                                                         \
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

void suite_fuzz(void)
{
    RUN("fuzz", attn);
    RUN("fuzz", huggingface);
    RUN("fuzz", gguf);
    RUN("fuzz", llmc);
    RUN("fuzz", vocab);
    RUN("fuzz", tokenizer);
    RUN("fuzz", session);
    RUN("fuzz", sampler);
    RUN("fuzz", hooks);
}
