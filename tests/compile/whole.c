/* The implementation, nothing else, and the header once more after it. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#undef ATTN_IMPLEMENTATION
#include "attn.h"

int version_from_another_file(void);

#ifdef TWO_FILES
int main(void)
{
    return !version_from_another_file();
}
#else
int main(void)
{
    return attn_version() != ATTN_VERSION;
}
#endif
