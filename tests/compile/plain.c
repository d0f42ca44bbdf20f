/* The header's declarations alone, as a second file of a program sees them; included twice. */
#include "attn.h"
#include "attn.h"

int version_from_another_file(void);
int version_from_another_file(void)
{
    attn_ctx ctx = ATTN_ZERO;
    attn_tensor x = ATTN_ZERO;
    attn_edit edit = ATTN_ZERO;
    return attn_version() == ATTN_VERSION && ctx.status == ATTN_OK && x.data == edit.value.data;
}
