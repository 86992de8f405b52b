/* The same work for many things on several threads, for the tools. */
#ifndef DTRAIN_PACK_PARALLEL_H
#define DTRAIN_PACK_PARALLEL_H

#include <stdint.h>

#include "base/status.h"

/* `index` is worked on by thread `thread` of 0 .. n_threads-1. */
typedef dt_status (*dt_work)(void *context, uint32_t index, int thread);

/* CPUs this process may use if asked is 0, else `asked`; at most `n`, at least 1. */
int dt_parallel_threads(int asked, uint32_t n);
/* Calls work for 0 .. n-1, begun in this order; returns when all threads are through. After a
 * failure nothing new is begun; of several failures the one of the lowest index is returned, with
 * its text. The caller is one of the threads. */
dt_status dt_parallel_run(uint32_t n, int n_threads, dt_work work, void *context);

#endif
