/* Detects ranks that are slower than the others. Collective. */
#ifndef DTRAIN_WATCH_STRAGGLERS_H
#define DTRAIN_WATCH_STRAGGLERS_H

#include <stdbool.h>
#include <stdint.h>

#include "dtrain/comm.h"
#include "dtrain/events.h"

/* Own time per rank: waiting for data, and computing without waiting for others. */
struct dt_stragglers {
    struct dt_comm *comm;
    struct dt_events *events; /* rank 0 only, else NULL */
    bool has_queues;          /* the device has queues: work_s includes waiting for other ranks */
    int64_t next_step;        /* next comparison */
    double data_s, work_s;    /* sums since the last comparison */
    int n_windows;            /* consecutive windows with the same slow rank */
    int rank;                 /* the slow rank, -1 = none */
    bool warned;
};
/* `step`: updates done so far. comm and events are borrowed. */
void dt_stragglers_init(struct dt_stragglers *stragglers, struct dt_comm *comm,
                        struct dt_events *events, bool has_queues, int64_t step);
/* Adds one step and compares the ranks every 100 steps. A rank 1.3 times slower than the median in
 * 3 consecutive comparisons is reported once, with host and section, and again only after it has
 * recovered. On devices with queues only the time spent waiting for data is compared. */
dt_status dt_stragglers_step(struct dt_stragglers *stragglers, int64_t step, double data_s,
                             double work_s);

#endif
