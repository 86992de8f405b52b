/* Whether a run is in progress, as the files of its folder show (checkpoint/run_folder.h). */
#ifndef DTRAIN_BASE_ALIVE_H
#define DTRAIN_BASE_ALIVE_H

#include <stdbool.h>

/* Beats in heartbeat.bin count for so long; without them, as with output.shared=false, RUN and the
 * events do for an hour. */
enum { DT_LEASE_S = 60, DT_EVENT_LEASE_S = 3600 };

/* RUN does not say "ended"; the beats, or what stands for them, are younger than that; and if rank
 * 0 is of this host, it holds .lock, which the kernel releases with the process. Links are not
 * followed. */
bool dt_run_is_alive(const char *folder);

#endif
