/* The outside program that is built against each package: does it have the header's own version? */
#include <attn.h>
#include <stdio.h>

int main(void)
{
    attn_ctx ctx = ATTN_ZERO;
    return printf("attn %d, %s\n", attn_version(), attn_isa(&ctx)) < 0 ||
           attn_version() != ATTN_VERSION;
}
