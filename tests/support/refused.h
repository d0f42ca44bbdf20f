/* Calls that must be refused, and must leave their output alone. */
#ifndef REFUSED_H
#define REFUSED_H

#include "fixture.h"

/* The output of such a call. */
static attn_tensor not_made;
#define REFUSED(status_, text, call)                                                               \
    do {                                                                                           \
        not_made = no_tensor;                                                                      \
        ctx.status = ATTN_OK;                                                                      \
        FAILS(&ctx, status_, text, call);                                                          \
        CHECK(not_made.ndim == 0);                                                                 \
    } while (0)

#endif
