/* What is about to run, in one block of lines. Rank 0. */
#ifndef DTRAIN_TRAIN_SUMMARY_H
#define DTRAIN_TRAIN_SUMMARY_H

#include "train/session.h"

struct dt_summary {
    const char *run_dir, *start; /* "from scratch", "from .../step-N" */
    uint64_t checkpoint_bytes;
    int64_t n_parameters;
    double seconds;  /* from the start of the program's work to here */
    const char *end; /* why the run will stop by itself before its last step, or "" */
};
void dt_summary_print(const struct dt_session *s, const struct dt_summary *summary);

#endif
