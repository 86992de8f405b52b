/* The ranks compared: is one of them slow. Collective. */
#ifndef DTRAIN_WATCH_STRAGGLERS_H
#define DTRAIN_WATCH_STRAGGLERS_H

#include <stdbool.h>
#include <stdint.h>

#include "dtrain/comm.h"
#include "dtrain/report.h"

/* Own time per rank: waiting for data, and computing without waiting for others. */
struct dt_stragglers {
    struct dt_comm *comm;
    struct dt_report *report; /* of rank 0, else NULL */
    bool has_queues;          /* of the device: work_s contains waiting for other ranks */
    int64_t next_step;        /* of the next comparison */
    double data_s, work_s;    /* sums since the last one */
    int n_windows;            /* in a row with the same rank slow */
    int rank;                 /* that one, -1 = none */
    bool warned;
};
/* `step` updates are done; comm and report are kept. */
void dt_stragglers_init(struct dt_stragglers *stragglers, struct dt_comm *comm,
                        struct dt_report *report, bool has_queues, int64_t step);
/* Adds one step; every 100 steps compares: a rank 1.3 x slower than the median in 3 comparisons in
 * a row is named once with host and phase, again after it has recovered. */
dt_status dt_stragglers_step(struct dt_stragglers *stragglers, int64_t step, double data_s,
                             double work_s);

#endif
