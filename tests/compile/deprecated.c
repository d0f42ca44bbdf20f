/* A name that leaves: what ATTN_DEPRECATED makes the compiler say where it is used. */
#include "attn.h"

ATTN_DEPRECATED("attn_version")
int attn_version_of_old(void);

int uses_it(void);
int uses_it(void)
{
    return attn_version_of_old();
}
