/* How ranks train together: what comm.mode means to ranks and plan. For the steps of training see
 * struct dt_mode_steps (src/train/run.h). */
#ifndef DTRAIN_ENGINE_PARALLEL_H
#define DTRAIN_ENGINE_PARALLEL_H

#include "dtrain/config.h"
#include "dtrain/plan.h"

struct dt_parallel {
    struct dt_plan_parallel mode; /* which actions there are: src/plan/modes.c */
    bool has_server;              /* rank 0 of several only serves the others */
    const char *why_inexact;      /* a resumed run goes another way; NULL: it does not */
};

/* How ranks train together in the configured mode. */
const struct dt_parallel *dt_parallel_of(const struct dt_config *config);

#endif
