/* Lanes: train.virtual_ranks with model.sync_bn. Slices that share batch norm statistics cannot be
 * computed one after the other, since each SYNC needs the sums of all of them. So the main thread
 * gives every slice of a group a lane and walks lane by lane up to the next SYNC (dt_plan_walk). A
 * lane has its own memory for what a pass leaves behind, and nodes are bound to it before they run.
 * All lanes start with lane 0's running statistics, and only lane 0's are kept. Buckets still see
 * the slices in their order. Without such groups a plan has one lane. CPUs only: nothing is
 * recorded. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pulse.h"
#include "plan/plan_internal.h"

enum { WORK, GRADS, STATS, N_OF_LANES };
static const enum dt_arena of_lanes[N_OF_LANES] = {DT_ARENA_WORK, DT_ARENA_GRADS, DT_ARENA_STATS};

struct dt_lane {
    void *arena[N_OF_LANES];
    void **address; /* of every tensor: where nodes access it */
    struct dt_walk walk;
    struct dt_scalars scalars;
};

static size_t lane_bytes(const struct dt_plan *plan, int i)
{
    return dt_plan_align(i == WORK ? plan->train_bytes : plan->arena_bytes[of_lanes[i]]);
}

void dt_plan_place_lanes(struct dt_plan *plan)
{
    const int group = plan->options.split.group, own = plan->options.split.n_passes;
    plan->n_lanes = group <= 1 || !dt_plan_is_synced(plan) ? 1 : group < own ? group : own;
    for (int i = 0; i < N_OF_LANES; i++)
        plan->arena_bytes[DT_ARENA_LANES] += (size_t)(plan->n_lanes - 1) * lane_bytes(plan, i);
}

static void enter(struct dt_plan *plan, int lane)
{
    plan->at_lane = lane;
    for (int i = 0; i < N_OF_LANES; i++)
        plan->arena[of_lanes[i]] = plan->lane[lane].arena[i];
}

/* For a parameter in mixed precision, its shadow. */
static void *address_of(const struct dt_plan *plan, int tensor)
{
    const struct dt_place *place = &plan->place[tensor];
    if (place->arena == DT_ARENA_NONE)
        return NULL;
    if (place->arena == DT_ARENA_PARAMS &&
        plan->backend->dtype(plan->device, plan->graph, tensor) != DT_F32)
        return dt_plan_shadow(plan, tensor);
    return (char *)plan->arena[place->arena] + place->offset;
}

dt_status dt_plan_open_lanes(struct dt_plan *plan)
{
    char *memory = plan->arena[DT_ARENA_LANES];
    DT_TRY(DT_NEW(plan->lane, (size_t)plan->n_lanes));
    for (int i = 0; i < N_OF_LANES; i++)
        plan->lane[0].arena[i] = plan->arena[of_lanes[i]];
    for (int l = plan->n_lanes - 1; l >= 0; l--) {
        struct dt_lane *lane = &plan->lane[l];
        for (int i = 0; i < N_OF_LANES && l > 0; i++) {
            lane->arena[i] = memory;
            memory += lane_bytes(plan, i);
        }
        enter(plan, l);
        DT_TRY(DT_NEW(lane->address, (size_t)plan->graph->n_tensors));
        for (int t = 0; t < plan->graph->n_tensors; t++)
            lane->address[t] = address_of(plan, t);
    }
    return DT_OK;
}

void dt_plan_close_lanes(struct dt_plan *plan)
{
    if (!plan->lane)
        return;
    enter(plan, 0);
    for (int l = 0; l < plan->n_lanes; l++)
        free(plan->lane[l].address);
    free(plan->lane);
}

dt_status dt_plan_bind(struct dt_plan *plan, int node)
{
    return plan->backend->bind(plan->device, plan->exec[node], plan->lane[plan->at_lane].address,
                               (char *)plan->arena[DT_ARENA_WORK] + plan->scratch_offset[node]);
}

dt_status dt_plan_enter_lane(struct dt_plan *plan, int lane, const struct dt_walk **walk)
{
    enter(plan, lane);
    *walk = &plan->lane[lane].walk;
    return plan->backend->set_scalars(plan->device, &plan->lane[lane].scalars);
}

/* Enters lane `l` and finds where its node of action `at` keeps the sums of the group's slices. */
static dt_status find_slots(char **slots, size_t *bytes, struct dt_plan *plan, int l, ptrdiff_t at)
{
    const int node = plan->actions[plan->lane[l].walk.program][at].node;
    enter(plan, l);
    DT_TRY(dt_plan_bind(plan, node));
    *slots = plan->backend->exchange_slots(plan->device, plan->exec[node], bytes);
    return DT_OK;
}

dt_status dt_plan_sync_lanes(struct dt_plan *plan, ptrdiff_t at)
{
    const size_t group = (size_t)plan->options.split.group;
    char *first = NULL, *slots;
    size_t bytes;
    for (int l = 0; l < plan->n_lanes; l++) {
        const size_t own = (size_t)plan->lane[l].scalars.slot;
        DT_TRY(find_slots(&slots, &bytes, plan, l, at));
        if (l > 0) {
            memcpy(first + own * bytes, slots + own * bytes, bytes);
            continue;
        }
        first = slots;
        memset(first, 0, own * bytes);
        memset(first + (own + 1) * bytes, 0, (group - own - 1) * bytes);
    }
    enum dt_section before = dt_pulse_enter(&dt_pulse_main, DT_SECTION_REDUCE);
    if (plan->comm)
        DT_TRY(dt_comm_unite(plan->comm, first, group * bytes));
    dt_pulse_enter(&dt_pulse_main, before);
    for (int l = 1; l < plan->n_lanes; l++) {
        DT_TRY(find_slots(&slots, &bytes, plan, l, at));
        memcpy(slots, first, group * bytes);
    }
    return DT_OK;
}

static void begin_lane(struct dt_plan *plan, int lane)
{
    enter(plan, lane);
    if (plan->arena_bytes[DT_ARENA_STATS] > 0)
        memcpy(plan->arena[DT_ARENA_STATS], plan->lane[0].arena[STATS],
               plan->arena_bytes[DT_ARENA_STATS]);
}

dt_status dt_plan_train_lanes(const struct dt_walk *w, const struct dt_scalars *scalars)
{
    struct dt_plan *plan = w->plan;
    plan->lane[plan->at_lane].walk = *w;
    plan->lane[plan->at_lane].scalars = *scalars;
    if (plan->at_lane + 1 < plan->n_lanes) { /* the next slice goes there */
        begin_lane(plan, plan->at_lane + 1);
        return DT_OK;
    }
    DT_TRY(dt_plan_walk(w, plan->n_lanes));
    enter(plan, 0);
    return DT_OK;
}
