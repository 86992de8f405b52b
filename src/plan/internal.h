/* Inside the plan module: the stages of dt_plan_layout, in the order in which they run. */
#ifndef DTRAIN_PLAN_INTERNAL_H
#define DTRAIN_PLAN_INTERNAL_H

#include "dtrain/plan.h"

enum { DT_PLAN_ALIGN = 64 }; /* bytes, of every tensor */

static inline size_t dt_plan_align(size_t bytes)
{
    return (bytes + DT_PLAN_ALIGN - 1) / DT_PLAN_ALIGN * DT_PLAN_ALIGN;
}

/* place[].first_use, last_use and arena, from the nodes. */
void dt_plan_find_lifetimes(struct dt_plan *plan);
/* Offsets of parameters, gradients, momentum and statistics, and the buckets. */
dt_status dt_plan_place_params(struct dt_plan *plan);
/* Offsets of everything in the work arena, in place where an op allows it. */
dt_status dt_plan_place_work(struct dt_plan *plan);
dt_status dt_plan_make_steps(struct dt_plan *plan);

#endif
