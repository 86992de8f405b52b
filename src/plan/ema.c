/* The moving averages of parameters and running statistics. */
#include "plan/plan_internal.h"

typedef dt_status work_function(const struct dt_plan *plan, float *average, float *values,
                                size_t count);

static dt_status for_both(const struct dt_plan *plan, work_function *work)
{
    static const enum dt_arena pairs[][2] = {{DT_ARENA_EMA, DT_ARENA_PARAMS},
                                             {DT_ARENA_EMA_STATS, DT_ARENA_STATS}};
    for (int i = 0; i < 2; i++)
        if (plan->arena[pairs[i][0]])
            DT_TRY(work(plan, plan->arena[pairs[i][0]], plan->arena[pairs[i][1]],
                        plan->arena_bytes[pairs[i][0]] / sizeof(float)));
    return DT_OK;
}

bool dt_plan_has_ema(const struct dt_plan *plan)
{
    return plan->options.ema;
}

static dt_status copy(const struct dt_plan *plan, float *dst, float *src, size_t count)
{
    return plan->backend->accumulate(plan->device, dst, src, DT_F32, count, true);
}

dt_status dt_plan_start_ema(struct dt_plan *plan)
{
    return for_both(plan, copy);
}

static dt_status follow(const struct dt_plan *plan, float *average, float *values, size_t count)
{
    return plan->backend->lerp(plan->device, average, values, count);
}

dt_status dt_plan_follow_ema(struct dt_plan *plan)
{
    return for_both(plan, follow);
}

/* Between two walks the work arena is free. */
static dt_status swap(const struct dt_plan *plan, float *average, float *values, size_t count)
{
    float *spare = plan->arena[DT_ARENA_WORK];
    const size_t max = plan->arena_bytes[DT_ARENA_WORK] / sizeof *spare;
    for (size_t at = 0, n; at < count; at += n) {
        n = count - at < max ? count - at : max;
        DT_TRY(copy(plan, spare, values + at, n));
        DT_TRY(copy(plan, values + at, average + at, n));
        DT_TRY(copy(plan, average + at, spare, n));
    }
    return DT_OK;
}

dt_status dt_plan_swap_ema(struct dt_plan *plan)
{
    DT_TRY(for_both(plan, swap));
    return dt_plan_refresh(plan);
}
