/* Ctrl-C for programs: a call of the library ends when `interrupted` is its ctx.stop_flag. */
#ifndef TOOLS_INTERRUPT_H
#define TOOLS_INTERRUPT_H

#include "system.h"

static volatile int
    interrupted; /* the number of a signal that came, for attn_ctx.stop_flag; 0: none */
SYSTEM_FN void on_interrupt(int number)
{
    interrupted = number;
    signal(number, number == SIGINT ? SIG_DFL : on_interrupt); /* a second Ctrl-C ends at once */
}

#endif
