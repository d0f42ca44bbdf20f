/* Calls that must be refused, and must leave their output alone. */
#ifndef REFUSED_H
#define REFUSED_H

#include "fixture.h"

/* The output of such a call. */
static attn_tensor not_made;
#define REFUSED_AS(status_, text, call)                                                            \
    do {                                                                                           \
        not_made = no_tensor;                                                                      \
        ctx.status = ATTN_OK;                                                                      \
        FAILS_IN(&ctx, status_, text, call);                                                       \
        CHECK(not_made.ndim == 0);                                                                 \
    } while (0)
#define REFUSED(error, text, call) REFUSED_AS(ATTN_E_##error, text, call)

#endif
