/* The hosts of a job: given, of the allocation, or none, if the launcher knows them or there is
 * only this machine. */
#ifndef DTRAIN_LAUNCH_HOSTS_H
#define DTRAIN_LAUNCH_HOSTS_H

#include <stdbool.h>

#include "base/host.h"
#include "base/status.h"

struct dt_launch_host {
    char name[DT_HOST_MAX];
    int slots;
    bool answers; /* when asked the last time */
    bool is_gone; /* answered once and does so no longer */
};

struct dt_launch_hosts {
    struct dt_launch_host *list; /* free() it */
    int n;
};

/* "a:8,b:8", or lines "a", "a:8" or "a slots = 8" of a file, where # begins a comment and a name
 * that comes again adds a slot; either may be NULL. Without both, the file that PBS, LSF or
 * Kubernetes names, or the nodes of the job of Slurm. DT_ERR_USAGE, or those of reading a file. */
dt_status dt_launch_hosts_find(struct dt_launch_hosts *out, const char *hosts,
                               const char *hostfile);
int dt_launch_slots(const struct dt_launch_hosts *hosts); /* that are not gone */
/* Ends what is left of this start on this machine and on all hosts, by its DTRAIN_LAUNCH, removes
 * shared memory that nobody uses any more (neither if `id` is NULL), and finds out which of them
 * answer: to srun in a job of Slurm, otherwise to ssh. The names of the others go to `silent`. */
void dt_launch_hosts_clean(struct dt_launch_hosts *hosts, const char *id, char *silent, int bytes);

#endif
