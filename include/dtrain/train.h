/* The trainer and its sub-commands. What takes a `comm` is collective over its ranks.
 *
 * On failure dt_error_origin (base/status.h) says which rank prints, and whether it must end the
 * job with dt_comm_abort because the others may wait in a collective call. */
#ifndef DTRAIN_TRAIN_H
#define DTRAIN_TRAIN_H

#include <stdbool.h>

#include "dtrain/comm.h"
#include "dtrain/config.h"

struct dt_train_options {
    const char *resume;       /* "auto", "must", "never" or a checkpoint folder */
    double max_time_s;        /* 0 = no limit */
    bool dry_run;             /* print the plan and the schedule, stop */
    bool allow_config_change; /* resume although the configuration makes it another run */
};

/* Makes SIGUSR1, SIGUSR2, SIGTERM and SIGINT ask dt_train for a stop instead of ending the process,
 * from here on; a second one, a second later or more, ends it at once. Before dt_comm_open, so that
 * no moment is left out. Ignores SIGPIPE and SIGXFSZ: writing fails instead. */
void dt_train_catch_signals(void);
/* dtrain train: runs config.train.epochs epochs from the newest checkpoint or from scratch. Stops
 * with a checkpoint and DT_STOPPED (no error text) on a signal (dt_train_catch_signals), after
 * max_time_s or before the end of the scheduler's allocation. A run that is complete says so and
 * changes nothing. */
dt_status dt_train(struct dt_comm *comm, const struct dt_config *config,
                   const struct dt_train_options *options);
/* dtrain eval: loss, top-1 and top-5 of `weights` (a safetensors file, a checkpoint folder or a run
 * folder) on the validation set; one JSON line on stdout. */
dt_status dt_evaluate(struct dt_comm *comm, const struct dt_config *config, const char *weights);

struct dt_bench_options {
    const char *json_path; /* NULL = no file */
    bool profile;          /* seconds by op, on stdout */
};
/* dtrain bench: synthetic data, warm-up, rounds, images/s. */
dt_status dt_bench(struct dt_comm *comm, const struct dt_config *config,
                   const struct dt_bench_options *options);

/* dtrain bench --input: how many images/s the input pipeline makes by itself, per stage and for 1,
 * 2, 4 ... workers, from the disk and from memory, and what limits it; as text on stdout and, if
 * json_path is not NULL, as JSON. Of config it uses the data, the image size and bench.rounds. */
dt_status dt_bench_input(struct dt_comm *comm, const struct dt_config *config,
                         const char *json_path);

#endif
