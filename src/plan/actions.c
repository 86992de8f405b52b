/* The work of each kind of action. */
#include "base/fault.h"
#include "base/pulse.h"
#include "plan/plan_internal.h"

static dt_status run_op(const struct dt_walk *w, const struct dt_action *action)
{
    struct dt_plan *plan = w->plan;
    const struct dt_backend *backend = plan->backend;
    if (plan->n_lanes > 1)
        DT_TRY(dt_plan_bind(plan, action->node));
    return (action->second_half ? backend->run_second_half
                                : backend->run)(plan->device, plan->exec[action->node]);
}

/* Exchanges slots between the ranks of a group: `all` has one of `bytes` for every rank, and this
 * rank has filled its own. On a device with queues this is only enqueued, in the comm stream, after
 * all work so far; later work of the compute stream waits for it (mark n_buckets). */
static dt_status exchange_slots(const struct dt_plan *plan, void *all, size_t bytes)
{
    const struct dt_backend *backend = plan->backend;
    enum dt_section before = dt_pulse_enter(&dt_pulse_main, DT_SECTION_REDUCE);
    if (backend->fork)
        DT_TRY(backend->fork(plan->device));
    DT_TRY(dt_comm_exchange(plan->comm, all, bytes));
    if (backend->mark) {
        DT_TRY(backend->mark(plan->device, plan->n_buckets));
        DT_TRY(backend->join(plan->device, plan->n_buckets));
    }
    dt_pulse_enter(&dt_pulse_main, before);
    return DT_OK;
}

static dt_status run_sync(const struct dt_walk *w, const struct dt_action *action)
{
    struct dt_plan *plan = w->plan;
    size_t bytes;
    if (plan->options.split.group > 1)
        return dt_plan_sync_lanes(plan, action - plan->actions[w->program]);
    void *all = plan->backend->exchange_slots(plan->device, plan->exec[action->node], &bytes);
    return exchange_slots(plan, all, bytes);
}

/* Adds the divisor of this pass to this rank's slot of the counts; the first pass sets the slot. */
static dt_status run_count(const struct dt_walk *w, const struct dt_action *action)
{
    (void)action;
    const struct dt_plan *plan = w->plan;
    const int tensor = plan->graph->program[w->program].divisor;
    const char *from = (const char *)plan->arena[DT_ARENA_WORK] + plan->place[tensor].offset;
    const int rank = plan->comm ? dt_comm_rank(plan->comm) : 0;
    return plan->backend->count(plan->device, (float *)plan->arena[DT_ARENA_COUNTS] + rank,
                                (const float *)(const void *)from,
                                plan->graph->tensor[tensor].dim[0], w->first);
}

static dt_status run_divide(const struct dt_walk *w, const struct dt_action *action)
{
    (void)action;
    const struct dt_plan *plan = w->plan;
    if (plan->comm)
        DT_TRY(exchange_slots(plan, plan->arena[DT_ARENA_COUNTS], sizeof(float)));
    return plan->backend->divide(plan->device, plan->arena[DT_ARENA_COUNTS], plan->options.n_ranks);
}

/* With slices, only this rank's first slice of a step changes the running statistics: they are kept
 * after it and restored after each later slice. */
static dt_status keep_stats(const struct dt_walk *w)
{
    const struct dt_plan *plan = w->plan;
    float *stats = plan->arena[DT_ARENA_STATS], *kept = plan->arena[DT_ARENA_KEPT_STATS];
    const size_t count = plan->arena_bytes[DT_ARENA_KEPT_STATS] / sizeof *kept;
    if (count == 0)
        return DT_OK;
    return plan->backend->accumulate(plan->device, w->first ? kept : stats, w->first ? stats : kept,
                                     DT_F32, count, true);
}

static float *sum_slot(const struct dt_plan *plan, const struct dt_bucket *bucket, int slot)
{
    char *first = dt_plan_sum_address(plan, bucket);
    return (float *)(void *)(first + (size_t)slot * dt_plan_slot_bytes(plan));
}

/* Adds this pass's slice to the sums of the earlier ones along the tree of dtrain/split.h, whose
 * order of additions does not depend on how slices lie on ranks. The accum arena has a slot for
 * each part that waits for its right sibling; dt_slices_of finds the parts that the earlier passes
 * have left. Without a left sibling the slice is copied into the next slot. Otherwise it is added
 * into the slot of that sibling, and while this completes a node that has a left sibling, the node
 * is added into the slot before it, and its own slot is free again. ACCUMULATE does this for every
 * bucket in every pass; the parts that the last pass leaves are what REDUCE sends (comm/slices.c,
 * comm/nccl.c). */
static dt_status add_slice(const struct dt_walk *w, const struct dt_bucket *bucket,
                           struct dt_grads own)
{
    const struct dt_plan *plan = w->plan;
    const int n_slices = plan->options.split.n_parts, begin = plan->options.split.first;
    int max;
    struct dt_slice_parts parts = dt_slices_of(n_slices, begin, begin + w->pass, &max);
    dt_slices_add(&parts, begin + w->pass, begin + w->pass + 1);
    const bool has_sibling = dt_slices_join(&parts, n_slices);
    DT_TRY(plan->backend->accumulate(plan->device, sum_slot(plan, bucket, parts.n - 1),
                                     dt_plan_grads_address(plan, bucket, own), own.type,
                                     bucket->count, !has_sibling));
    while (has_sibling && dt_slices_join(&parts, n_slices))
        DT_TRY(plan->backend->accumulate(plan->device, sum_slot(plan, bucket, parts.n - 1),
                                         sum_slot(plan, bucket, parts.n), DT_F32, bucket->count,
                                         false));
    return DT_OK;
}

static dt_status run_accumulate(const struct dt_walk *w, const struct dt_action *action)
{
    struct dt_plan *plan = w->plan;
    const struct dt_bucket *bucket = &plan->buckets[action->bucket];
    const struct dt_grads own = dt_plan_own_grads(plan, bucket);
    const bool is_slice = dt_split_has_slices(&plan->options.split);
    if (is_slice && action->bucket == 0)
        DT_TRY(keep_stats(w));
    if (is_slice)
        return add_slice(w, bucket, own);
    return plan->backend->accumulate(plan->device, dt_plan_sum_address(plan, bucket),
                                     dt_plan_grads_address(plan, bucket, own), own.type,
                                     bucket->count, w->first);
}

static dt_status stamp_sum(const struct dt_walk *w, int bucket, int end)
{
    struct dt_plan *plan = w->plan;
    if (w->sum_stamps == 0)
        return DT_OK;
    return plan->backend->stamp(plan->device, w->sum_stamps + 2 * bucket + end, true);
}

static dt_status run_reduce(const struct dt_walk *w, const struct dt_action *action)
{
    struct dt_plan *plan = w->plan;
    const struct dt_backend *backend = plan->backend;
    const struct dt_bucket *bucket = &plan->buckets[action->bucket];
    if (backend->fork)
        DT_TRY(backend->fork(plan->device));
    DT_TRY(stamp_sum(w, action->bucket, 0));
    DT_TRY(dt_comm_reduce(plan->comm, action->bucket, dt_plan_sum_address(plan, bucket),
                          bucket->count));
    DT_TRY(stamp_sum(w, action->bucket, 1));
    if (backend->mark)
        DT_TRY(backend->mark(plan->device, action->bucket));
    return DT_OK;
}

static dt_status run_wait(const struct dt_walk *w, const struct dt_action *action)
{
    struct dt_plan *plan = w->plan;
    enum dt_section before = dt_pulse_enter(&dt_pulse_main, DT_SECTION_REDUCE);
    dt_fault_at_section(DT_SECTION_REDUCE);
    DT_TRY(dt_comm_wait(plan->comm, action->bucket));
    if (plan->backend->join)
        DT_TRY(plan->backend->join(plan->device, action->bucket));
    dt_pulse_enter(&dt_pulse_main, before);
    return DT_OK;
}

static dt_status run_check(const struct dt_walk *w, const struct dt_action *action)
{
    struct dt_plan *plan = w->plan;
    const struct dt_bucket *bucket = &plan->buckets[action->bucket];
    double *norms = plan->options.clip ? plan->arena[DT_ARENA_NORMS] : NULL;
    return plan->backend->check(plan->device, dt_plan_sum_address(plan, bucket),
                                dt_plan_sum_grads(plan, bucket).type, bucket->count,
                                norms ? norms + bucket->first_tile : NULL);
}

static dt_status run_clip(const struct dt_walk *w, const struct dt_action *action)
{
    (void)action;
    const struct dt_plan *plan = w->plan;
    const struct dt_bucket *last = &plan->buckets[plan->n_buckets - 1];
    return plan->backend->clip(plan->device, plan->arena[DT_ARENA_NORMS],
                               last->first_tile + dt_tiles(last->count));
}

static dt_status run_update(const struct dt_walk *w, const struct dt_action *action)
{
    struct dt_plan *plan = w->plan;
    const struct dt_bucket *bucket = &plan->buckets[action->bucket];
    const struct dt_grads grads = dt_plan_sum_grads(plan, bucket);
    const struct dt_update update = {
        .optim = plan->options.optim,
        .params = plan->arena[DT_ARENA_PARAMS],
        .momentum = plan->arena[DT_ARENA_MOMENTUM],
        .square = plan->arena[DT_ARENA_SQUARE],
        .norms = plan->arena[DT_ARENA_NORMS],
        .shadow = plan->arena[DT_ARENA_SHADOW],
        .grads = (char *)plan->arena[grads.arena] + grads.origin,
        .grads_type = grads.type,
        .segments = bucket->segments,
        .n_segments = bucket->n_segments,
    };
    return plan->backend->update(plan->device, &update);
}

static dt_status run_ema(const struct dt_walk *w, const struct dt_action *action)
{
    (void)action;
    return dt_plan_follow_ema(w->plan);
}

static dt_status run_settle(const struct dt_walk *w, const struct dt_action *action)
{
    (void)action;
    return w->plan->backend->end_step(w->plan->device);
}

static dt_status run_share(const struct dt_walk *w, const struct dt_action *action)
{
    (void)action;
    return dt_plan_share(w->plan);
}

#define WORK(NAME, name, clock, last_only) \
    {run_##name, offsetof(struct dt_plan_times, clock), last_only},
const struct dt_action_work dt_action_works[DT_N_ACTION_KINDS] = {DT_ACTION_LIST(WORK)};
