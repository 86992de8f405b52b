/* How ranks train together. All that differs between the modes is in the instances of dt_parallel
 * (tables.c, async.c) and in what their flags mean to a plan (src/plan/modes.c). */
#ifndef DTRAIN_ENGINE_PARALLEL_H
#define DTRAIN_ENGINE_PARALLEL_H

#include "dtrain/config.h"
#include "dtrain/plan.h"

struct run;

/* Functions may be NULL. begin, step and meet are collective; their status is this rank's. */
struct dt_parallel {
    struct dt_plan_parallel lists; /* of actions */
    bool has_server;               /* rank 0 of several only serves the others */
    const char *why_inexact;       /* a resumed run goes another way; NULL: it does not */
    /* For a plan that is laid out for so many ranks: DT_ERR_CONFIG. */
    dt_status (*check)(const struct dt_config *config, int n_ranks);
    dt_status (*begin)(struct run *r); /* before the first step */
    /* Instead of one step of all ranks: trains until they meet, n_steps later. */
    dt_status (*step)(struct run *r, int64_t n_steps);
    /* After a step after which all ranks must have the same weights. */
    dt_status (*meet)(struct run *r);
    void (*report)(struct run *r, bool is_last); /* at the end of an epoch */
    void (*end)(struct run *r);                  /* releases what begin has made */
};

extern const struct dt_parallel dt_parallel_async;
const struct dt_parallel *dt_parallel_of(const struct dt_config *config);
/* The place of this rank in the configured mode. */
struct dt_ranks dt_parallel_ranks(struct dt_comm *comm, const struct dt_config *config);

#endif
