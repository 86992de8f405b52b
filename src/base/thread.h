/* Threads beside the main thread. */
#ifndef DTRAIN_BASE_THREAD_H
#define DTRAIN_BASE_THREAD_H

#include <pthread.h>

/* Starts a thread that leaves signals to the main thread, but for those its own faults raise.
 * Debuggers see `name`, at most 15 bytes. 0 or an errno. */
int dt_thread_start(pthread_t *thread, const char *name, void *(*run)(void *context),
                    void *context);

#endif
