/* Fault switches, so that users can test their cluster and dtrain its own promises. DTRAIN_FAULT is
 * a list with commas:
 *
 *   kill@STEP:RANK    SIGKILL to itself        stop@STEP:RANK   SIGSTOP to itself
 *   nan@STEP:RANK     gradients are NaN        flip@STEP:RANK   one bit of a weight changes
 *   slow@RANK:FACTOR  compute takes FACTOR times as long
 *   crash@io:N        SIGKILL in the middle of the N-th writing I/O call of the process
 *   enospc@io:N, eio@io:N    that call fails; "N+": it and all that follow
 *
 * STEP counts updates done from 0; for kill and stop it may also be the name of a section (pulse.h:
 * init, data, compute, reduce, eval, save), which then fires when the rank first enters it. I/O is
 * counted from 1 in this process, over all threads, in file.h's functions that change the file
 * system. Faults of I/O hit rank 0 only. */
#ifndef DTRAIN_BASE_FAULT_H
#define DTRAIN_BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pulse.h"
#include "base/status.h"

enum dt_fault {
    DT_FAULT_KILL,
    DT_FAULT_STOP,
    DT_FAULT_NAN,
    DT_FAULT_FLIP,
    DT_FAULT_SLOW,
    DT_FAULT_CRASH,
    DT_FAULT_ENOSPC,
    DT_FAULT_EIO,
    DT_N_FAULTS
};

/* Reads DTRAIN_FAULT; warns loudly if it is set. DT_ERR_USAGE for what cannot be read. Call once,
 * with the rank known, before other threads exist. Without it, or unset, everything below does
 * nothing and costs a load. */
dt_status dt_fault_init(int rank);
/* Whether NAN or FLIP is due on this rank at this step. */
bool dt_fault_due(enum dt_fault kind, int64_t step);
/* The places where KILL and STOP happen: after `step` updates, and after a section was entered. */
void dt_fault_at_step(int64_t step);
void dt_fault_at_section(enum dt_section section);
/* Factor of SLOW for this rank, 1 if none. */
double dt_fault_slowness(void);
/* Counts an I/O call. 0, or the errno with which it must fail. *crash (may be NULL) says that half
 * of the call should be done and the process then killed by dt_fault_crash; with NULL that happens
 * here, before the call. Thread-safe. */
int dt_fault_io(bool *crash);
void dt_fault_crash(void) __attribute__((noreturn));

#endif
