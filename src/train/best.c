#include "train/best.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void dt_best_init(struct dt_checkpoint *at, const struct dt_config *config)
{
    at->best = (struct dt_best){.metric = dt_config_best_metric(config), .step = -1};
    at->goal = (struct dt_best){.metric = dt_config_goal_metric(config), .step = -1};
    if (config->schedule.kind == DT_SCHEDULE_PLATEAU)
        at->plateau = (struct dt_plateau){
            .best = dt_metric_gain(dt_config_plateau_metric(config), 0, 1) > 0 ? -DBL_MAX : DBL_MAX,
            .factor = 1};
}

void dt_best_adopt(struct dt_checkpoint *at, const struct dt_checkpoint *saved)
{
    if (saved->best.metric == at->best.metric)
        at->best = saved->best;
    if (at->plateau.factor > 0 && saved->plateau.factor > 0)
        at->plateau = saved->plateau;
    if (saved->goal.metric != at->goal.metric)
        return;
    at->goal = saved->goal;
    at->goal_reference = saved->goal_reference;
    at->goal_waits = saved->goal_waits;
}

static bool count(struct dt_best *best, const struct dt_checkpoint *at, double value)
{
    bool better =
        best->step < 0 ? isfinite(value) : dt_metric_gain(best->metric, best->value, value) > 0;
    if (better)
        *best = (struct dt_best){
            .metric = best->metric, .value = value, .step = at->step, .epoch = at->epoch};
    return better;
}

dt_status dt_best_count(bool *is_best, struct dt_checkpoint *at, const struct dt_config *config,
                        struct dt_comm *comm, double value[DT_N_METRICS])
{
    DT_TRY(dt_comm_bcast(comm, value, DT_N_METRICS * sizeof *value, 0));
    double goal = value[at->goal.metric];
    bool better = at->goal.step < 0 ? isfinite(goal)
                                    : dt_metric_gain(at->goal.metric, at->goal_reference, goal) >
                                          config->early_stop.min_delta;
    count(&at->goal, at, goal);
    if (better)
        at->goal_reference = goal;
    at->goal_waits = better ? 0 : at->goal_waits + 1;
    *is_best = count(&at->best, at, value[at->best.metric]);
    return DT_OK;
}

const char *dt_best_ends(const struct dt_checkpoint *at, const struct dt_config *config)
{
    const struct dt_config_early_stop *stop = &config->early_stop;
    if (stop->target > 0 && at->goal.step >= 0 &&
        dt_metric_gain(at->goal.metric, stop->target, at->goal.value) >= 0)
        return "early_stop.target";
    return stop->patience > 0 && at->goal_waits >= stop->patience ? "early_stop.patience" : NULL;
}

void dt_best_explain(char *out, size_t bytes, const struct dt_checkpoint *at,
                     const struct dt_config *config, const char *key)
{
    const char *name = dt_metric_name(at->goal.metric);
    if (strcmp(key, "early_stop.target") == 0)
        snprintf(out, bytes, "%s %.6g in epoch %" PRId64 " reached %s %.6g", name, at->goal.value,
                 at->goal.epoch, key, config->early_stop.target);
    else if (strcmp(key, "early_stop.patience") == 0)
        snprintf(out, bytes, "no better %s in %" PRId64 " evaluations (%s %d)", name,
                 at->goal_waits, key, config->early_stop.patience);
    else
        snprintf(out, bytes, "reached %s", key);
}

void dt_best_describe(char *out, size_t bytes, const struct dt_checkpoint *at)
{
    out[0] = '\0';
    if (at->best.step >= 0)
        snprintf(out, bytes, "best %s %.*f in epoch %" PRId64, dt_metric_name(at->best.metric),
                 dt_metric_is_percent(at->best.metric) ? 3 : 5, at->best.value, at->best.epoch);
}
