/* `dtrain launch`: a supervisor above mpirun, without MPI of its own. It builds the launcher's
 * command line, passes signals on, ends a launcher that stays behind, and starts the job again on
 * the hosts that are left. */
#ifndef DTRAIN_LAUNCH_LAUNCH_H
#define DTRAIN_LAUNCH_LAUNCH_H

#include <stddef.h>

#include "base/status.h"

struct dt_launch_options {
    const char *hosts;     /* "a:8,b:8", or NULL */
    const char *hostfile;  /* or NULL: of the allocation, if there is one */
    const char *interface; /* network between the hosts, or NULL */
    const char *program;   /* words that start dtrain on a host, NULL: this program */
    int n_ranks;           /* 0: one per slot of the hosts */
    int ranks_per_node;    /* the slots of each host; 0: as the hosts are given */
    int n_cpus;            /* that each rank is bound to; 0: not bound */
    int max_restarts;
    double wait_s; /* for hosts that do not answer, before each start */
    /* NAME=VALUE for the environment of all ranks; or NAME: of this process. */
    const char *const *variables;
    size_t n_variables;
    const char *run_dir; /* of a training, or NULL: then nothing is known but how it ends */
    char **words;        /* arguments of dtrain */
    int n_words;
};

/* Runs the job until it has ended for good; *code is its exit code. If it was started more than
 * once, or should have been, its run folder has a line for each start in restarts.jsonl. Takes the
 * signals of the process. DT_ERR_USAGE: wrong hosts; DT_ERR_NO_INPUT: no launcher. */
dt_status dt_launch(const struct dt_launch_options *options, int *code);

#endif
