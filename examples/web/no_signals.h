/* For programs under WASI, which has no signals to catch: what tools/common/system.h needs of
 * <signal.h> beside its declarations. */
#ifndef NO_SIGNALS_H
#define NO_SIGNALS_H

#include <signal.h>

typedef struct siginfo_t {
    int si_code;
} siginfo_t;
typedef int signal_set;
struct sigaction {
    void (*sa_handler)(int);
    void (*sa_sigaction)(int, siginfo_t *, void *);
    signal_set sa_mask;
    int sa_flags;
};
enum { SA_SIGINFO = 4, SA_RESTART = 0x10000000 };

static inline int sigemptyset(signal_set *set)
{
    *set = 0;
    return 0;
}

static inline int sigaction(int number, const struct sigaction *now, struct sigaction *before)
{
    (void)number, (void)now;
    if (before)
        before->sa_handler = SIG_DFL;
    return 0;
}

#endif
