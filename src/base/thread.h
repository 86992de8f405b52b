/* Threads other than the main thread. */
#ifndef DTRAIN_BASE_THREAD_H
#define DTRAIN_BASE_THREAD_H

#include <pthread.h>

/* Starts a thread that leaves signals to the main thread, except those raised by its own faults.
 * Debuggers show `name`, at most 15 bytes. Returns 0 or an errno. */
int dt_thread_start(pthread_t *thread, const char *name, void *(*run)(void *context),
                    void *context);

#endif
