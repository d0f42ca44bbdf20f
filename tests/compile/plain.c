/* The header's declarations alone, as a second file of a program sees them; included twice. */
#include "attn.h"
#include "attn.h"

int version_from_another_file(void);
int version_from_another_file(void)
{
    return attn_version() == ATTN_VERSION;
}
