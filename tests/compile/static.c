/* Everything static, and most of it unused. */
#define ATTN_STATIC
#include "attn.h"

int main(void)
{
    return attn_version() != ATTN_VERSION;
}
