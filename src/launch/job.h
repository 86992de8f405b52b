/* A job as its run folder shows it from outside: beats of its ranks, how it has ended, how far it
 * has got. */
#ifndef DTRAIN_LAUNCH_JOB_H
#define DTRAIN_LAUNCH_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "launch/launch.h"
#include "watch/heartbeat.h"

struct dt_job_beat {
    struct dt_heartbeat beat;
    bool lives;    /* it has changed since the start */
    double seen_s; /* when */
    double late_s; /* of the first rank of a node: how long all of it has been silent beyond
                      patience */
};

struct dt_job {
    const struct dt_launch_options *options;
    char dir[DT_PATH_MAX]; /* run folder, "" = unknown */
    int n_ranks;
    int64_t incarnation; /* of the run before the start */
    struct dt_job_beat *ranks;
    bool has_begun;           /* a beat of this start has been seen, or its incarnation in RUN */
    double start_s;           /* for that; may be changed until then */
    double waited_s, woken_s; /* for it so far, without pauses of this process; last look */
    double looked_s;          /* at beats */
};

enum dt_job_state {
    DT_JOB_RUNS, /* or nothing is known */
    DT_JOB_LATE, /* no rank has been seen in start_s */
    DT_JOB_SILENT_HOST,
    DT_JOB_SILENT,    /* no rank of any host */
    DT_JOB_HAS_ENDED, /* all ranks have left, or have found a hang */
};

/* Remembers what is there before a start; n_ranks 0: the launcher chooses. `options` stay. */
dt_status dt_job_begin(struct dt_job *job, const struct dt_launch_options *options, int n_ranks);
/* Looks once; `host` gets the name of a host whose ranks have been silent while others answer. Call
 * it about once a second: after a longer pause of this process all times begin anew. */
enum dt_job_state dt_job_look(struct dt_job *job, char host[DT_HOST_MAX]);
/* The exit code that the run itself has written, or what the launcher says; DT_ERR_HANG of a job
 * that was ended for a host that does not answer, even if it has saved. 0 of the latter is
 * believed of a run that had finished before, or of which nothing is seen here, unless the job was
 * asked to stop; otherwise it becomes 205, as Open MPI 4 says of a lost node. */
int dt_job_code(const struct dt_job *job, int code, bool is_asked);
/* Step of the newest checkpoint, -1 if there is none. */
int64_t dt_job_step(const struct dt_job *job);
void dt_job_end(struct dt_job *job);

#endif
