/* libFuzzer's entry to the target that -DTARGET names. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    return TARGET(data, size);
}
