/* Internals of the plan room: where gradients lie, the walk of the list, lanes, and the stages of
 * dt_plan_layout (plan.c), which calls them in this order: dt_plan_find_lifetimes, place_params,
 * place_work, place_lanes, make_actions. */
#ifndef DTRAIN_PLAN_PLAN_INTERNAL_H
#define DTRAIN_PLAN_PLAN_INTERNAL_H

#include "dtrain/plan.h"

/* Bytes; alignment of every tensor in its arena. Two cache lines of a GPU, also for the 16-bit
 * copies and gradients of parameters, which lie at half the offset. */
enum { DT_PLAN_ALIGN = 256, DT_PLAN_PARAM_ALIGN = 512 };

static inline size_t dt_plan_align(size_t bytes)
{
    return (bytes + DT_PLAN_ALIGN - 1) / DT_PLAN_ALIGN * DT_PLAN_ALIGN;
}

static inline size_t dt_plan_align_param(size_t bytes)
{
    return (bytes + DT_PLAN_PARAM_ALIGN - 1) / DT_PLAN_PARAM_ALIGN * DT_PLAN_PARAM_ALIGN;
}

/* The arena in which buckets are summed over the ranks, and the type of the gradients there, but of
 * the wide ones. */
static inline enum dt_arena dt_plan_sum_arena(const struct dt_plan *plan)
{
    return plan->options.accumulate ? DT_ARENA_ACCUM : DT_ARENA_GRADS;
}

static inline enum dt_dtype dt_plan_sum_type(const struct dt_plan *plan)
{
    return plan->options.accumulate ? DT_F32 : plan->grads_type;
}

/* The gradients of a bucket in memory: element i is origin + i * the type's size bytes into the
 * arena. */
struct dt_grads {
    enum dt_dtype type;
    enum dt_arena arena;
    size_t origin;
};

static inline struct dt_grads dt_plan_own_grads(const struct dt_plan *plan,
                                                const struct dt_bucket *bucket)
{
    if (dt_plan_is_wide(plan, bucket))
        return (struct dt_grads){DT_F32, DT_ARENA_GRADS, 0};
    const size_t wider = sizeof(float) - dt_dtype_bytes(plan->grads_type);
    return (struct dt_grads){plan->grads_type, DT_ARENA_GRADS, plan->n_wide * wider};
}

/* The same where they are summed. */
static inline struct dt_grads dt_plan_sum_grads(const struct dt_plan *plan,
                                                const struct dt_bucket *bucket)
{
    if (plan->options.accumulate)
        return (struct dt_grads){DT_F32, DT_ARENA_ACCUM, 0};
    return dt_plan_own_grads(plan, bucket);
}

static inline void *dt_plan_grads_address(const struct dt_plan *plan,
                                          const struct dt_bucket *bucket, struct dt_grads grads)
{
    return (char *)plan->arena[grads.arena] + grads.origin +
           bucket->first * dt_dtype_bytes(grads.type);
}

/* Bytes from a sum of slices in the accum arena to the next. */
static inline size_t dt_plan_slot_bytes(const struct dt_plan *plan)
{
    return plan->arena_bytes[DT_ARENA_ACCUM] / (size_t)plan->n_slots;
}

static inline void *dt_plan_sum_address(const struct dt_plan *plan, const struct dt_bucket *bucket)
{
    return dt_plan_grads_address(plan, bucket, dt_plan_sum_grads(plan, bucket));
}

/* The 16-bit copy of a parameter. */
static inline void *dt_plan_shadow(const struct dt_plan *plan, int param)
{
    return (char *)plan->arena[DT_ARENA_SHADOW] + plan->place[param].offset / 2;
}

/* One walk of a list of actions (walk.c). */
struct dt_walk {
    struct dt_plan *plan;
    int program;
    int pass; /* of the update */
    bool first, last;
    bool update_only; /* only what is last_only */
    int sum_stamps;   /* two stamps per bucket from here on time its sum; 0 = none */
};
/* actions.c: what an action of each kind does. */
extern const struct dt_action_work {
    dt_status (*run)(const struct dt_walk *w, const struct dt_action *action);
    size_t clock;   /* in dt_plan_times */
    bool last_only; /* only in the last pass of an update */
} dt_action_works[DT_N_ACTION_KINDS];
/* ema.c: the action EMA. */
dt_status dt_plan_follow_ema(struct dt_plan *plan);
/* walk.c: runs all actions. With several lanes it walks them in turn; w is the pass of the last. */
dt_status dt_plan_walk(const struct dt_walk *w, int n_lanes);
/* plan.c: whether any node is synced. */
bool dt_plan_is_synced(const struct dt_plan *plan);
/* lanes.c. Sets n_lanes and the bytes of the lanes arena; the other arenas have their sizes. */
void dt_plan_place_lanes(struct dt_plan *plan);
/* Gives each lane its part of that arena, once all arenas are allocated. */
dt_status dt_plan_open_lanes(struct dt_plan *plan);
void dt_plan_close_lanes(struct dt_plan *plan);
/* Binds a node to the memory of lane plan->at_lane. */
dt_status dt_plan_bind(struct dt_plan *plan, int node);
/* Gives a pass to lane at_lane and prepares the next lane; in the last lane, walks them all. */
dt_status dt_plan_train_lanes(const struct dt_walk *w, const struct dt_scalars *scalars);
/* Lets actions work on a lane's memory and scalars from here on; *walk is its pass. */
dt_status dt_plan_enter_lane(struct dt_plan *plan, int lane, const struct dt_walk **walk);
/* Does the work of the SYNC at place `at` of the list, for the slices of all lanes. */
dt_status dt_plan_sync_lanes(struct dt_plan *plan, ptrdiff_t at);
/* "reduce" */
const char *dt_action_kind_name(enum dt_action_kind kind);
/* The tensors that a node touches for others of its fusions (dt_backend.extra_tensors); their
 * number. */
static inline int dt_plan_extra_tensors(const struct dt_plan *plan, int node,
                                        int tensor[DT_MAX_EXTRA_TENSORS])
{
    return plan->backend->extra_tensors ? plan->backend->extra_tensors(plan->exec[node], tensor)
                                        : 0;
}
/* work.c: sets place[].first_use and last_use from the nodes. */
void dt_plan_find_lifetimes(struct dt_plan *plan);
/* buckets.c: sets the places of parameters, gradients and statistics, and makes the buckets. */
dt_status dt_plan_place_params(struct dt_plan *plan);
/* work.c: sets the places of everything in the work arena, in place where an op allows it. */
dt_status dt_plan_place_work(struct dt_plan *plan);
/* buckets.c: writes the lists of actions. */
dt_status dt_plan_make_actions(struct dt_plan *plan);

#endif
