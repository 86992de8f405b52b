/* Reasons to stop early: SIGUSR1, SIGUSR2 and the time limit. */
#ifndef DTRAIN_TRAIN_STOP_H
#define DTRAIN_TRAIN_STOP_H

#include "dtrain/comm.h"

struct dt_stop {
    double begin_s, limit_s; /* limit 0 = none */
    double checked_s;
    int64_t checked_step, next_step;
};

/* From now on the two signals set a flag instead of ending the process. */
void dt_stop_catch_signals(void);
/* The time limit counts from begin_s. `step` updates are done. */
void dt_stop_init(struct dt_stop *stop, double limit_s, double begin_s, int64_t step);
/* *reason: why to stop now, agreed by all ranks, or NULL. Asks the others only about twice a
 * second, at steps that follow from numbers all ranks share. Collective: call after every step. */
dt_status dt_stop_check(struct dt_stop *stop, struct dt_comm *comm, int64_t step,
                        const char **reason);

#endif
