/* The trainer. Functions that take a `comm` are collective over its ranks.
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
    bool allow_config_change; /* resume even if the configuration makes it a different run */
    const char *trace;        /* "100-120": write a timeline of these steps; NULL = none */
};

/* From this call on, SIGUSR1, SIGUSR2, SIGTERM and SIGINT ask dt_train to stop instead of ending
 * the process; a second one, at least a second later, ends it at once. Call it before dt_comm_open,
 * so that no signal is missed. Ignores SIGPIPE and SIGXFSZ: the write fails instead. */
void dt_train_catch_signals(void);
/* dtrain train: runs config.train.epochs epochs from the newest checkpoint or from scratch. Stops
 * with a checkpoint and DT_STOPPED (no error text) on a signal (dt_train_catch_signals), after
 * max_time_s or before the end of the scheduler's allocation. A complete run says so and changes
 * nothing. */
dt_status dt_train(struct dt_comm *comm, const struct dt_config *config,
                   const struct dt_train_options *options);
/* --dry-run: prints the schedule and the memory; with print_plan also the list of actions. */
dt_status dt_dry_run(struct dt_comm *comm, const struct dt_config *config, bool print_plan);

#endif
