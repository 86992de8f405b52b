/* hang-<rank>.txt: what a rank knows when the watchdog ends it. */
#ifndef DTRAIN_WATCH_HANG_REPORT_H
#define DTRAIN_WATCH_HANG_REPORT_H

#include "watch/blame.h"
#include "watch/watchdog.h"

/* Best effort, in options->dir; may block where the file system hangs. remove: what an earlier
 * start has left of this rank. */
void dt_hang_report_remove(const struct dt_watchdog_options *options);
void dt_hang_report_write(const struct dt_watchdog_options *options, double step_limit_s,
                          const struct dt_verdict *verdict, const struct dt_view *ranks);

#endif
