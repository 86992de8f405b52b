/* Fault injection, so that users can test their cluster and we can test our guarantees.
 * DTRAIN_FAULT is a comma-separated list:
 *
 *   kill@STEP:RANK    SIGKILL to itself        stop@STEP:RANK   SIGSTOP to itself
 *   nan@STEP:RANK     gradients are NaN        flip@STEP:RANK   one bit of a weight changes
 *   slow@RANK:FACTOR  compute takes FACTOR times as long
 *   crash@io:N        SIGKILL in the middle of the N-th writing I/O call of the process
 *   enospc@io:N, eio@io:N    that call fails; "N+": it and all that follow
 *
 * STEP is the number of updates done, from 0; kill and stop also accept the name of a section
 * (pulse.h: init, data, compute, reduce, eval, save) and then fire when the rank first enters it.
 * I/O calls are counted from 1 in this process, over all threads, in those functions of file.h that
 * change the file system. I/O faults hit rank 0 only. */
#ifndef DTRAIN_BASE_FAULT_H
#define DTRAIN_BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pulse.h"
#include "base/status.h"

/* X(KIND, name, what follows it in the list, errno of the failing I/O call). */
#define DT_FAULT_LIST(X)                  \
    X(KILL, kill, STEP_OR_SECTION, 0)     \
    X(STOP, stop, STEP_OR_SECTION, 0)     \
    X(NAN, nan, STEP, 0)                  \
    X(FLIP, flip, STEP, 0)                \
    X(SLOW, slow, FACTOR, 0)              \
    X(CRASH, crash, IO, 0)                \
    X(ENOSPC, enospc, IO_OR_MORE, ENOSPC) \
    X(EIO, eio, IO_OR_MORE, EIO)
#define DT_FAULT_VALUE(KIND, ...) DT_FAULT_##KIND,
enum dt_fault { DT_FAULT_LIST(DT_FAULT_VALUE) DT_N_FAULTS };
#undef DT_FAULT_VALUE

/* Parses DTRAIN_FAULT and warns loudly if it is set; DT_ERR_USAGE if it is malformed. Call once,
 * when the rank is known and before other threads exist. If this is not called, or the variable is
 * not set, everything below does nothing and costs one load. */
dt_status dt_fault_init(int rank);
/* Whether NAN or FLIP is due on this rank at this step. */
bool dt_fault_due(enum dt_fault kind, int64_t step);
/* The points where KILL and STOP fire: after `step` updates, and on entering a section. */
void dt_fault_at_step(int64_t step);
void dt_fault_at_section(enum dt_section section);
/* The SLOW factor of this rank, 1 if none. */
double dt_fault_slowness(void);
/* Counts an I/O call; returns 0 or the errno with which it must fail. *crash is set if the caller
 * should do half of the call and then call dt_fault_crash; if `crash` is NULL, the process is
 * killed here, before the call. Thread-safe. */
int dt_fault_io(bool *crash);
void dt_fault_crash(void) __attribute__((noreturn));

#endif
