/* Whether a run is in progress, as far as the files of its folder show (checkpoint/run_folder.h).
 */
#ifndef DTRAIN_BASE_ALIVE_H
#define DTRAIN_BASE_ALIVE_H

#include <stdbool.h>

enum { DT_LEASE_S = 60 }; /* beats in heartbeat.bin count for so long */

/* RUN does not say "ended"; heartbeat.bin is younger than that, or missing as with
 * output.shared=false, and then there is a RUN; and if rank 0 is of this host, it holds .lock,
 * which the kernel releases with the process. Links are not followed. */
bool dt_run_is_alive(const char *folder);

#endif
