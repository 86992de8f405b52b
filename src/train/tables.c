/* The tasks and parallel modes that a configuration chooses from; some are only a few flags. */
#include "engine/parallel.h"
#include "engine/task.h"
#include "train/run.h"

/* Local SGD. */
static dt_status average(struct run *r)
{
    return dt_plan_average(r->engine.plan, (float)r->engine.config->train.outer_momentum);
}

static const struct dt_parallel allreduce;
static const struct dt_parallel central = {
    .lists = {.is_central = true, .is_served = true, .has_own_states = true}};
static const struct dt_parallel local = {.lists = {.is_apart = true, .has_own_states = true},
                                         .meet = average};

const struct dt_parallel *dt_parallel_of(const struct dt_config *config)
{
    static const struct dt_parallel *const modes[] = {
        [DT_MODE_ALLREDUCE] = &allreduce,
        [DT_MODE_CENTRAL] = &central,
        [DT_MODE_LOCAL] = &local,
        [DT_MODE_ASYNC] = &dt_parallel_async,
    };
    return modes[dt_config_mode(config)];
}

struct dt_ranks dt_parallel_ranks(struct dt_comm *comm, const struct dt_config *config)
{
    return dt_ranks_of(comm, dt_parallel_of(config)->has_server, dt_config_sync_every(config));
}

const struct dt_task *dt_task_of(const struct dt_config *config)
{
    return dt_config_detects(config) ? &dt_detector : &dt_classifier;
}
