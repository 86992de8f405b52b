/* hang-<rank>.txt: the state of a rank when the watchdog ends it. */
#ifndef DTRAIN_WATCH_HANG_REPORT_H
#define DTRAIN_WATCH_HANG_REPORT_H

#include "watch/diagnosis.h"

struct dt_hang_report {
    const char *dir; /* run folder */
    int rank, n_ranks;
    double init_s, step_s, save_s; /* limits, 0 = none */
    const struct dt_diagnosis *diagnosis;
    const struct dt_view *ranks;
};
/* Best effort; may block if the file system hangs. */
void dt_hang_report_write(const struct dt_hang_report *report);
/* Removes this rank's file of an earlier start. */
void dt_hang_report_remove(const char *dir, int rank);

#endif
