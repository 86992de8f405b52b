/* `dtrain launch`: a supervisor above mpirun, without MPI of its own. It builds the launcher's
 * command line, passes signals on, ends a launcher that stays behind, and starts the job again on
 * the hosts that are left. */
#ifndef DTRAIN_LAUNCH_LAUNCH_H
#define DTRAIN_LAUNCH_LAUNCH_H

#include <stdbool.h>

#include "base/status.h"

struct dt_launch_options {
    const char *hosts;     /* "a:8,b:8", or NULL */
    const char *hostfile;  /* or NULL: of the allocation, if there is one */
    const char *interface; /* network between the hosts, or NULL */
    int n_ranks;           /* 0: one per slot of the hosts */
    int n_cpus;            /* that each rank is bound to; 0: not bound */
    int max_restarts;
    const char *run_dir; /* of a training, or NULL: then nothing is known but how it ends */
    char **words;        /* arguments of dtrain */
    int n_words;
};

/* Runs the job until it has ended for good; *code is its exit code. If it was started more than
 * once, or should have been, its run folder has a line for each start in restarts.jsonl. Takes the
 * signals of the process. DT_ERR_USAGE: wrong hosts; DT_ERR_NO_INPUT: no launcher. */
dt_status dt_launch(const struct dt_launch_options *options, int *code);

#endif
