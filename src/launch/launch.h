/* `dtrain launch`: a supervisor above mpirun, without MPI of its own. It builds the launcher's
 * command line, passes signals on, ends a launcher that stays behind, and starts the job again on
 * the hosts that are left.
 *
 *   state      ends with                            and at the latest
 *   look       hosts and launcher are known         25 s for mpirun --version, 30 s for scontrol
 *   wait       all hosts answer                     --wait, and a round of asking: 10 s
 *   start      a rank is seen: run                  start_s: end; 5 s after a request
 *              the launcher has ended: clean
 *   run        the launcher has ended: clean        ranks that do not move end themselves
 *                                                   (watchdog.h); a silent host 30 s, or what
 *                                                   its save may take; all hosts silent 5 min;
 *                                                   a launcher without ranks 30 s: end
 *   end        the launcher has ended: clean        5 s after SIGTERM it gets SIGKILL
 *   clean      all hosts have answered              10 s; not after 0 without a request
 *   examine    dtrain doctor has ended              60 s x ranks per CPU; then nothing is known
 *   back off   time is up: start                    60 s, and no longer than the last start ran
 *
 * If a start is late, its hosts are asked (10 s): those that do not answer are lost from then on.
 * If all answer, or what is written may be seen only elsewhere (!sees_run), a warning says so, and
 * start goes on without a limit, as it does under srun, which may wait in a queue. The number of
 * starts is limited by max_restarts, and two without a newer checkpoint between them are the last.
 *
 * A request (SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2) is a blocked signal, so it waits until it
 * is heard. In start a training gets SIGUSR1 each second, and once more in run: the launcher may
 * die of it before it has ranks, and ranks before they listen, but then nothing is lost; ranks that
 * listen take all for one (stop.c). The second request leads to end, as does the first of other
 * jobs. In every other state, the first one is the last thing that happens, and so is the end of
 * max_time_s; in run, ranks look at that themselves.
 *
 * The exit code after a request is 75, or 0 if RUN says that this start has finished, or an error
 * of dtrain's that would come again. */
#ifndef DTRAIN_LAUNCH_LAUNCH_H
#define DTRAIN_LAUNCH_LAUNCH_H

#include <signal.h>
#include <stdbool.h>
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
    bool sees_run;       /* what is written there must be seen from here */
    double start_s;      /* in which a training must have begun to write there, INFINITY = any */
    double max_time_s;   /* of a training, all its starts together; 0 = no limit */
    char **words;        /* arguments of dtrain */
    int n_words;
    sigset_t signals; /* from dt_launch_listen */
};

/* Blocks the requests to end, and the end of a child; to be called before all else, as a request
 * before it ends this process at once. */
void dt_launch_listen(sigset_t *signals);

/* Runs the job until it has ended for good; *code is its exit code. If it was started more than
 * once, or should have been, its run folder has a line for each start in restarts.jsonl.
 * DT_ERR_USAGE: wrong hosts; DT_ERR_NO_INPUT: no launcher. */
dt_status dt_supervise(const struct dt_launch_options *options, int *code);

#endif
