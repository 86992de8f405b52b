/* Summary of the run that is about to start, in one block of lines (rank 0) and as an event. */
#ifndef DTRAIN_TRAIN_SUMMARY_H
#define DTRAIN_TRAIN_SUMMARY_H

#include "engine/engine.h"

struct dt_summary {
    const struct dt_engine *engine;
    const struct dt_sets *sets;
    const char *run_dir, *start; /* "from scratch", "from .../step-N" */
    uint64_t checkpoint_bytes;
    int64_t n_parameters;
    double seconds;  /* since dt_train was called */
    const char *end; /* why the run may stop before its last step, or "" */
};
void dt_summary_print(const struct dt_summary *summary);
/* --dry-run: schedule and memory. Rank 0. */
void dt_summary_print_dry(const struct dt_engine *engine, const struct dt_sets *sets, FILE *out);

/* Sends run_start; `config_json` is the complete configuration. Collective. */
dt_status dt_announce_start(struct dt_engine *engine, struct dt_sets *sets, const char *config_json,
                            int64_t start_step);

#endif
