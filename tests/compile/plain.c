/* The header's declarations alone, as a second file of a program sees them; included twice, the second
 * time with part two. */
#include "attn.h"
#ifndef ATTN_UNSTABLE
#define ATTN_UNSTABLE
#endif
#include "attn.h"

int version_from_another_file(void);
int version_from_another_file(void)
{
    attn_ctx ctx = ATTN_ZERO;
    attn_tensor x = ATTN_ZERO;
    attn_edit edit = ATTN_ZERO;
    return attn_version() == ATTN_VERSION && ctx.status == ATTN_OK && x.data == edit.value.data;
}
