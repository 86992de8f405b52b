/* The timeline of some steps: spans of all ranks (base/trace.h) in one file in Chrome's trace
 * format, which https://ui.perfetto.dev shows. Collective. A failure is a warning: it never ends a
 * run. */
#ifndef DTRAIN_TRACE_TIMELINE_H
#define DTRAIN_TRACE_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "dtrain/comm.h"

struct dt_timeline {
    struct dt_comm *comm;
    char path[DT_PATH_MAX]; /* set by the caller */
    int64_t first, last;    /* steps, from 1; last 0 = none, or done */
    int64_t now;            /* the step of the last call */
    bool is_on;
    double overlap; /* share of the sums' time in which ranks computed; NaN until the file is
                       written, and without sums */
};

/* `range` is "100-120" or "100", NULL for no timeline; DT_ERR_USAGE alike on all ranks. */
dt_status dt_timeline_init(struct dt_timeline *timeline, struct dt_comm *comm, const char *range);
/* A timeline of steps 1 to n_steps, in the file `path`. */
dt_status dt_timeline_init_all(struct dt_timeline *timeline, struct dt_comm *comm, int64_t n_steps,
                               const char *path);
/* DT_ERR_USAGE, alike on all ranks, if the range begins after `last_step`, the run's end. A resumed
 * run that has made the steps of the range already, `step` in all, writes no timeline and says so.
 */
dt_status dt_timeline_check(struct dt_timeline *timeline, int64_t step, int64_t last_step);
/* Call before step `step` (from 1) and, with INT64_MAX, at the end: begins at the first step of
 * the range, writes the file after the last one. */
void dt_timeline_step(struct dt_timeline *timeline, int64_t step);
/* Records a step that ends now, if there is a timeline. Local. */
void dt_timeline_add(int64_t step, double begin_s);

/* overlap.c: how much of the sums of gradients the spans show to be behind computing. */
struct dt_overlap {
    double sums_s;     /* during which at least one sum was running */
    double computed_s; /* of these: during which the rank computed as well */
};
/* The overlap of this process; after dt_trace_end. DT_ERR_MEMORY. */
dt_status dt_overlap_find(struct dt_overlap *out);

#endif
