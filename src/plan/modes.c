/* Ways to train in parallel other than summing gradients in every step. They work on the arenas
 * where they lie, in host memory: for CPUs only.
 *
 * What goes over the wire, M being the bytes of the trained parameters:
 *
 *   sum       per step 2 (n - 1) / n M from each rank to the next in the ring
 *   central   per step M from each rank to rank 0, which updates, and M back (dt_plan_share)
 *   local     per H steps 2 (n - 1) / n M in the ring: a sum of weights instead of gradients
 *             (dt_plan_average); each rank updates its own weights meanwhile (Stich 2018; Lin et
 *             al. 2018). The states of the optimizer stay local, as in PyTorch's
 *             PostLocalSGDOptimizer, or are averaged as well.
 *   async     per update M from a worker to rank 0 and M back, when the worker is ready
 *             (src/train/async.c) */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/pulse.h"
#include "plan/plan_internal.h"

bool dt_plan_is_replicated(const struct dt_plan *plan, enum dt_arena arena)
{
    if (arena == DT_ARENA_PARAMS)
        return true;
    return dt_plan_has_state(plan, arena) &&
           (!plan->options.parallel.local_optimizer_state || arena == DT_ARENA_OUTER);
}

size_t dt_plan_trained_bytes(const struct dt_plan *plan)
{
    return plan->arena_bytes[DT_ARENA_MOMENTUM];
}

void *dt_plan_gradients(const struct dt_plan *plan)
{
    return plan->arena[dt_plan_sum_arena(plan)];
}

/* --- central --- */

dt_status dt_plan_share(struct dt_plan *plan)
{
    static const float bad[DT_PLAN_ALIGN / sizeof(float)] = {NAN};
    const int rank = dt_comm_rank(plan->comm);
    int64_t own, n_updates;
    DT_TRY(plan->backend->get_updates(plan->device, &own));
    n_updates = own;
    for (int r = 1; r < dt_comm_size(plan->comm); r++) {
        DT_TRY(dt_comm_copy(plan->comm, &n_updates, sizeof n_updates, 0, r));
        DT_TRY(dt_comm_copy(plan->comm, plan->arena[DT_ARENA_PARAMS], dt_plan_trained_bytes(plan),
                            0, r));
    }
    if (rank != 0 && n_updates == own) /* rank 0 has skipped the step; let it count here too */
        return plan->backend->check(plan->device, bad, DT_F32, sizeof bad / sizeof *bad, NULL);
    return dt_plan_refresh(plan);
}

/* --- local --- */

static dt_status average_arena(struct dt_plan *plan, enum dt_arena arena)
{
    float *values = plan->arena[arena];
    const float n = (float)dt_comm_size(plan->comm);
    for (int b = 0; b < plan->n_buckets; b++)
        DT_TRY(
            dt_comm_reduce(plan->comm, b, values + plan->buckets[b].first, plan->buckets[b].count));
    for (int b = 0; b < plan->n_buckets; b++) {
        const struct dt_bucket *bucket = &plan->buckets[b];
        DT_TRY(dt_comm_wait(plan->comm, b));
        for (size_t i = bucket->first; i < bucket->first + bucket->count; i++)
            values[i] /= n;
    }
    return DT_OK;
}

void dt_plan_anchor(struct dt_plan *plan)
{
    if (plan->arena[DT_ARENA_ANCHOR])
        memcpy(plan->arena[DT_ARENA_ANCHOR], plan->arena[DT_ARENA_PARAMS],
               plan->arena_bytes[DT_ARENA_ANCHOR]);
}

dt_status dt_plan_average(struct dt_plan *plan, float outer_momentum)
{
    if (!plan->comm)
        return DT_OK;
    enum dt_section before = dt_pulse_enter(&dt_pulse_main, DT_SECTION_REDUCE);
    const double begin_s = dt_clock_s();
    dt_status status = DT_OK;
    for (enum dt_arena a = 0; a < DT_N_ARENAS; a++)
        if (a != DT_ARENA_OUTER && dt_plan_is_replicated(plan, a))
            DT_TRY_OUT(average_arena(plan, a));
    if (plan->arena[DT_ARENA_OUTER]) {
        float *params = plan->arena[DT_ARENA_PARAMS], *outer = plan->arena[DT_ARENA_OUTER];
        const float *anchor = plan->arena[DT_ARENA_ANCHOR];
        for (size_t i = 0; i < plan->arena_bytes[DT_ARENA_OUTER] / sizeof *outer; i++) {
            outer[i] = outer_momentum * outer[i] + (anchor[i] - params[i]);
            params[i] = anchor[i] - outer[i];
        }
        dt_plan_anchor(plan);
    }
    DT_TRY_OUT(dt_plan_refresh(plan));
out:
    plan->times.comm_s += dt_clock_s() - begin_s;
    dt_pulse_enter(&dt_pulse_main, before);
    return status;
}

/* --- async --- */

dt_status dt_plan_sync_weights(struct dt_plan *plan)
{
    DT_TRY(dt_comm_bcast(plan->comm, plan->arena[DT_ARENA_PARAMS],
                         plan->arena_bytes[DT_ARENA_PARAMS], 0));
    DT_TRY(dt_plan_refresh(plan));
    if (!plan->arena[DT_ARENA_STATS])
        return DT_OK;
    return dt_comm_bcast(plan->comm, plan->arena[DT_ARENA_STATS], plan->arena_bytes[DT_ARENA_STATS],
                         1);
}
