/* Threads other than the main thread, and a parallel loop over 0 .. n-1. */
#ifndef DTRAIN_BASE_THREAD_H
#define DTRAIN_BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>

#include "base/status.h"

/* Starts a thread that leaves signals to the main thread, except those raised by its own faults.
 * Debuggers show `name`, at most 15 bytes. Returns 0 or an errno. */
int dt_thread_start(pthread_t *thread, const char *name, void *(*run)(void *context),
                    void *context);

/* Processes item `index` on thread `thread`, one of 0 .. n_threads-1. */
typedef dt_status (*dt_work)(void *context, uint32_t index, int thread);

/* `asked`, or the number of CPUs this process may use if that is 0; at least 1, at most n. */
int dt_parallel_threads(int asked, uint32_t n);
/* Calls work for 0 .. n-1, started in this order; returns when all threads have finished. No new
 * item is started after a failure; if several fail, the error of the lowest index is returned. The
 * caller is one of the threads. */
dt_status dt_parallel_run(uint32_t n, int n_threads, dt_work work, void *context);

#endif
