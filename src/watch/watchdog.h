/* Every rank watches itself and the others: it checks the pulses (pulse.h) about once a second
 * (every few seconds with many ranks) and writes a beat into a file that the ranks of its node
 * share. The first of these that answers relays: it exchanges that file's beats with
 * <run folder>/heartbeat.bin, so that a shared file system is read once per node. Where ranks
 * cannot share a file, each of them uses the run folder.
 *
 * A rank is stuck if its main thread or its checkpoint writer has not moved for the time limit of
 * its section and is not waiting for other ranks. It is dead if its beat has not changed for the
 * limit of the section in which the others wait. If every rank waits, the network is to blame. A
 * rank that waits for a moving one is fine. When a rank is stuck or dead, the lowest live rank
 * prints its number, host, section and step, every live rank writes hang-<rank>.txt (its last
 * moves), and all exit with DT_ERR_HANG.
 *
 * Without a run folder nothing is known of the ranks on other nodes: if all ranks of this node wait
 * for longer than init_timeout_s, one of those hangs. Whoever blames another node or the network
 * speaks last: a watchdog there may know better, and Open MPI's keepalive, if it is set, must have
 * noticed a lost node first, because mpirun does not end if its ranks leave before.
 *
 * If the watchdog itself slept far too long (job suspended, virtual machine paused), all timers
 * restart. All times are of the monotonic clock. */
#ifndef DTRAIN_WATCH_WATCHDOG_H
#define DTRAIN_WATCH_WATCHDOG_H

#include <stdint.h>

#include "base/status.h"
#include "dtrain/comm.h"
#include "dtrain/config.h"

struct dt_watchdog_options {
    const char *dir;            /* existing run folder, or NULL */
    const struct dt_comm *comm; /* to know the hosts; NULL before MPI has started */
    int rank, n_ranks;
    int node, n_local; /* with a folder: the first rank of this node, and how many it has */
    int64_t start_id;  /* >= 0, random, the same on all ranks: other beats are ignored */
    struct dt_config_watchdog limits;
};

/* Starts the watchdog of this process and then stops the one before, if any. Local, main thread. */
dt_status dt_watchdog_start(const struct dt_watchdog_options *options);
/* Sets the limit of data, compute, reduce and eval to max(step_timeout_s, 10 x median_s). Main
 * thread. */
void dt_watchdog_set_step(double median_s);
/* Rank 0: whether the lock of the run folder has been removed or replaced, perhaps with the folder.
 * Unlike a look at the folder it never waits for the file system. */
bool dt_watchdog_has_lost_lock(void);
void dt_watchdog_stop(void); /* ends the threads, if there is a watchdog */

/* In crash.c: installs handlers for SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT, which print rank,
 * section and step, then let the signal end the process. */
void dt_watchdog_catch_crashes(int rank);
/* There, too: from here on SIGQUIT prints the stacks of all threads, and the process goes on. */
void dt_watchdog_show_stacks(int rank);

#endif
