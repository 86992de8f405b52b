/* Where the time of training goes: a clock whose laps each belong to one kind, so that the kinds
 * add up to the time that has passed. Main thread only. */
#ifndef DTRAIN_TRAIN_LAPS_H
#define DTRAIN_TRAIN_LAPS_H

#include "engine/engine.h"

/* The kinds of a step, with their fields of the step event (dtrain/events.h). */
#define DT_LAP_LIST(X)                                                                          \
    X(DATA, data_wait_s)  /* waiting for the loader */                                          \
    X(COMPUTE, compute_s) /* passes; on devices with queues with whatever the host waits for */ \
    X(COMM, comm_s)       /* in passes, but for sums of gradients; 0 on devices with queues */  \
    X(SYNC, sync_s)       /* in other collective calls: agreements, sums of counters */         \
    X(OTHER, other_s)     /* the rest: reports, telemetry, beginning an epoch */

#define DT_LAP_ID(NAME, field) DT_LAP_##NAME,
enum dt_lap { DT_LAP_LIST(DT_LAP_ID) DT_N_LAPS, DT_LAP_PAUSE = DT_N_LAPS };
#undef DT_LAP_ID

struct dt_laps {
    double s[DT_N_LAPS + 1]; /* seconds so far, by kind; the last are those of no step */
    double at_s;             /* dt_clock_s of the last call */
    double comm_s, sync_s;   /* of plan and comm at that time */
};

void dt_laps_begin(struct dt_laps *laps, const struct dt_engine *engine);
/* Ends a lap: the time since the last call belongs to `kind`, except the parts of it that were COMM
 * or SYNC. All of a PAUSE (evaluation, saving) belongs to it. */
void dt_lap(struct dt_laps *laps, const struct dt_engine *engine, enum dt_lap kind);
double dt_laps_total(const double s[DT_N_LAPS]); /* of dt_laps.s or differences: without pauses */

#endif
