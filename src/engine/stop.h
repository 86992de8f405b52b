/* Reasons to stop early (signals, the time limit, the end of the scheduler's allocation, the loss
 * of the run folder), and the collective in which all ranks agree on what is due. */
#ifndef DTRAIN_ENGINE_STOP_H
#define DTRAIN_ENGINE_STOP_H

#include "checkpoint/run_folder.h"
#include "dtrain/comm.h"

struct dt_stop {
    double end_s;     /* dt_clock_s at which the run must be over, INFINITY = none */
    double save_s;    /* the longest save so far; rank 0 keeps it up to date */
    double save_at_s; /* rank 0: dt_clock_s at which a timed save is due, INFINITY = none */
    double log_at_s;  /* rank 0: the same for a line of progress */
    const struct dt_run_folder *folder; /* rank 0 stops when it is lost; NULL = none */
    bool must_look;         /* the watchdog does not look at the folder (output.shared=false) */
    const char *end_reason; /* "--max-time" or "the end of the Slurm allocation" */
    double step_s;          /* recent maximum */
    int64_t n_steps;        /* between two steps after which the run can stop */
    double checked_s;
    int64_t checked_step, next_step;
    bool asks_all; /* what was sent last: everything, or the status only */
};

/* Actions that are due now, the same on all ranks. */
struct dt_due {
    const char *stop; /* why to stop, NULL = continue */
    bool save;        /* rank 0's timed save */
    bool log;         /* rank 0's timed line of progress */
};

/* See dt_train_catch_signals (dtrain/train.h). */
void dt_stop_catch_signals(void);
/* The end is begin_s + limit_s (0 = none), or 30 s before SLURM_JOB_END_TIME if that comes first;
 * an implausible value of that is ignored with a warning. `step` updates are done. */
void dt_stop_init(struct dt_stop *stop, double limit_s, double begin_s, int64_t step);
/* All ranks agree on their statuses in every step, and on what is due about twice a second, at
 * steps that follow from shared numbers. For a limit in time, the stop is due 2 x (save_s + n_steps
 * x step_s) before it. dt_stop_send only sends, dt_stop_receive waits for the answer; what lies
 * between hides the latency of the network. `step` updates are done. If a rank has sent a failure,
 * dt_stop_receive returns it on all ranks, like dt_comm_agree. Both collective, once per step. */
dt_status dt_stop_send(struct dt_stop *stop, struct dt_comm *comm, int64_t step, dt_status status);
dt_status dt_stop_receive(struct dt_stop *stop, struct dt_comm *comm, dt_status status,
                          struct dt_due *due);
/* Both at once, and nothing when only statuses would be compared: before the first step, and after
 * every batch of an evaluation, with a batch counter and a separate dt_stop
 * (dt_stop_begin_batches). */
dt_status dt_stop_check(struct dt_stop *stop, struct dt_comm *comm, int64_t step, dt_status status,
                        struct dt_due *due);
/* A stop with the same limits that counts batches from 0. */
void dt_stop_begin_batches(struct dt_stop *batches, const struct dt_stop *stop);
/* Excludes `seconds` that were not spent on steps, as in an evaluation. */
void dt_stop_pause(struct dt_stop *stop, double seconds);

#endif
