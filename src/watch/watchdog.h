/* Every rank watches itself and the others: a thread that looks at the pulses (pulse.h) about once
 * a second (with many ranks, every few seconds) and writes a beat into <run folder>/heartbeat.bin.
 *
 * A rank is stuck if its main thread, or its writer, has not moved for the limit of its section and
 * it does not wait for others; dead if its beat has not changed for the limit of the section in
 * which the others wait. If every rank waits, all are stuck: the network. A rank that waits for one
 * that moves is fine. When a rank is stuck or dead, the lowest live rank prints which rank, host,
 * section and step, every live rank writes hang-<rank>.txt (its last moves), and all leave with
 * DT_ERR_HANG.
 *
 * A thread that finds its own sleep far too long (job suspended, virtual machine paused) starts all
 * times anew. All times are of the monotonic clock. */
#ifndef DTRAIN_WATCH_WATCHDOG_H
#define DTRAIN_WATCH_WATCHDOG_H

#include <stdint.h>

#include "base/status.h"
#include "dtrain/config.h"

struct dt_watchdog_options {
    /* Run folder, which is there. NULL = there is none yet: nothing is known of other ranks, and
     * waiting for them for longer than the limit ends this one. */
    const char *dir;
    int rank, n_ranks;
    int64_t start_id; /* >= 0, random, of all ranks: other beats are ignored */
    struct dt_config_watchdog limits;
};

struct dt_watchdog;
/* Starts the thread. Local; one per process. */
dt_status dt_watchdog_start(struct dt_watchdog **watchdog,
                            const struct dt_watchdog_options *options);
/* The limit of data, compute, reduce and eval becomes max(step_timeout_s, 10 x median_s). Main
 * thread. */
void dt_watchdog_set_step(struct dt_watchdog *watchdog, double median_s);
void dt_watchdog_stop(struct dt_watchdog *watchdog); /* ends the thread; accepts NULL */

/* crash.c: prints rank, section and step when this process crashes (SIGSEGV, SIGBUS, SIGFPE,
 * SIGILL, SIGABRT), then lets it die of the signal. */
void dt_watchdog_catch_crashes(int rank);

#endif
