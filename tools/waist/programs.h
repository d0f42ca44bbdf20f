/* The programs that answer questions of callers, for who compiles them into one library: libattn.so, the R package, the
 * page, attn-verify. */
#ifndef WAIST_PROGRAMS_H
#define WAIST_PROGRAMS_H

#ifndef OTHER_PROGRAMS /* for who includes others before, those of files last */
#define OTHER_PROGRAMS
#endif
#include "tools/lens/program/asked.h"
#include "tools/score/asked.h"
#include "tools/surprisal/asked.h"

static const lens_asked *const *asked_programs(void)
{
    static const lens_asked *const programs[] = {&asked_lens, &asked_surprisal, &asked_score,
                                                 OTHER_PROGRAMS NULL};
    return programs;
}

#endif
