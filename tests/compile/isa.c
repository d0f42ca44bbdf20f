/* Prints attn_isa: a build whose compiler rounds otherwise than C says shows there. */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>

int main(void)
{
    attn_ctx ctx = ATTN_ZERO;
    return puts(attn_isa(&ctx)) < 0;
}
