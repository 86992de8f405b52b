/* A fault whose signal is blocked kills the process without a report, so those signals stay
 * unblocked. */
#include "base/thread.h"

#include <signal.h>

#include "base/mem.h"

int dt_thread_start(pthread_t *thread, const char *name, void *(*run)(void *context), void *context)
{
    static const int own_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < DT_COUNT(own_faults); i++)
        sigdelset(&blocked, own_faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int error = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        pthread_setname_np(*thread, name);
    return error;
}
