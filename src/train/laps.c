#include "train/metrics.h"

#include "base/clock.h"

static struct dt_laps look(const struct dt_engine *engine)
{
    struct dt_plan_times times = {0};
    if (dt_engine_has_times(engine))
        dt_plan_get_times(engine->plan, &times);
    return (struct dt_laps){
        .at_s = dt_clock_s(), .comm_s = times.comm_s, .sync_s = dt_comm_wait_s(engine->ranks.comm)};
}

void dt_laps_begin(struct dt_laps *laps, const struct dt_engine *engine)
{
    *laps = look(engine);
}

void dt_lap(struct dt_laps *laps, const struct dt_engine *engine, enum dt_lap kind)
{
    const struct dt_laps now = look(engine);
    bool is_pause = kind == DT_LAP_PAUSE;
    double comm_s = is_pause ? 0 : now.comm_s - laps->comm_s;
    double sync_s = is_pause ? 0 : now.sync_s - laps->sync_s;
    laps->s[DT_LAP_COMM] += comm_s;
    laps->s[DT_LAP_SYNC] += sync_s;
    laps->s[kind] += now.at_s - laps->at_s - comm_s - sync_s;
    laps->at_s = now.at_s;
    laps->comm_s = now.comm_s;
    laps->sync_s = now.sync_s;
}

double dt_laps_total(const double s[DT_N_LAPS])
{
    double sum_s = 0;
    for (int i = 0; i < DT_N_LAPS; i++)
        sum_s += s[i];
    return sum_s;
}
