/* Values of parameters and statistics: initialisation, access by tensor, broadcast to all ranks.
 * Everything goes through logical fp32 on the host, so ranks need not agree on memory formats. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "plan/plan_internal.h"

bool dt_plan_has_state(const struct dt_plan *plan, enum dt_arena arena)
{
    return arena == DT_ARENA_MOMENTUM ||
           (arena == DT_ARENA_SQUARE && dt_optim_has_square(plan->options.optim)) ||
           (arena == DT_ARENA_OUTER && plan->options.outer);
}

/* Address of the values; *tensor becomes the tensor whose format and type they have. */
static dt_status find_memory(const struct dt_plan *plan, enum dt_arena arena, int *tensor,
                             void **memory)
{
    const struct dt_tensor *t = &plan->graph->tensor[*tensor];
    enum dt_arena home = plan->place[*tensor].arena;
    size_t offset = plan->place[*tensor].offset;
    bool same =
        home == arena || (home == DT_ARENA_STATS && arena == DT_ARENA_EMA_STATS) ||
        (home == DT_ARENA_PARAMS && (arena == DT_ARENA_EMA || dt_plan_has_state(plan, arena)));
    if (home == DT_ARENA_PARAMS && arena == DT_ARENA_GRADS && t->diff >= 0) {
        same = true;
        arena = dt_plan_sum_arena(plan); /* accum is fp32, like params */
        if (arena == DT_ARENA_GRADS) {
            *tensor = t->diff;
            offset = plan->place[t->diff].offset;
        }
    }
    if (!same || !plan->arena[arena])
        DT_FAIL(DT_ERR_INTERNAL, "tensor %s is not in arena %d", t->name, (int)arena);
    *memory = (char *)plan->arena[arena] + offset;
    return DT_OK;
}

/* Frozen parameters have no states: they read as zero. */
static bool is_absent(const struct dt_plan *plan, enum dt_arena arena, int tensor)
{
    return dt_plan_has_state(plan, arena) && plan->graph->tensor[tensor].frozen;
}

dt_status dt_plan_get(struct dt_plan *plan, enum dt_arena arena, int tensor, float *out)
{
    void *memory = NULL;
    if (is_absent(plan, arena, tensor)) {
        memset(out, 0, dt_tensor_elements(&plan->graph->tensor[tensor]) * sizeof *out);
        return DT_OK;
    }
    DT_TRY(find_memory(plan, arena, &tensor, &memory));
    return plan->backend->get_tensor(plan->device, plan->graph, tensor, out, memory);
}

dt_status dt_plan_set(struct dt_plan *plan, enum dt_arena arena, int tensor, const float *in)
{
    void *memory = NULL;
    if (is_absent(plan, arena, tensor))
        return DT_OK;
    DT_TRY(find_memory(plan, arena, &tensor, &memory));
    DT_TRY(plan->backend->set_tensor(plan->device, plan->graph, tensor, memory, in));
    if (arena != DT_ARENA_PARAMS || !plan->arena[DT_ARENA_SHADOW])
        return DT_OK;
    return plan->backend->refresh(plan->device, dt_plan_shadow(plan, tensor), memory,
                                  plan->place[tensor].bytes / sizeof(float));
}

dt_status dt_plan_refresh(struct dt_plan *plan)
{
    if (!plan->arena[DT_ARENA_SHADOW])
        return DT_OK;
    return plan->backend->refresh(plan->device, plan->arena[DT_ARENA_SHADOW],
                                  plan->arena[DT_ARENA_PARAMS],
                                  plan->arena_bytes[DT_ARENA_PARAMS] / sizeof(float));
}

dt_status dt_plan_read(struct dt_plan *plan, int tensor, void *out)
{
    const struct dt_place *place = &plan->place[tensor];
    const struct dt_tensor *t = &plan->graph->tensor[tensor];
    if (t->role != DT_OUTPUT || place->arena != DT_ARENA_WORK)
        DT_FAIL(DT_ERR_INTERNAL, "tensor %s is not an output of the plan", t->name);
    return plan->backend->read(plan->device, out,
                               (char *)plan->arena[DT_ARENA_WORK] + place->offset,
                               dt_tensor_elements(t) * dt_dtype_bytes(t->dtype));
}

/* A host buffer that holds any parameter or statistic of the graph. */
static dt_status alloc_host(const struct dt_plan *plan, float **host)
{
    size_t max = 0;
    for (int t = 0; t < plan->graph->n_tensors; t++) {
        enum dt_role role = plan->graph->tensor[t].role;
        size_t count = dt_tensor_elements(&plan->graph->tensor[t]);
        if ((role == DT_PARAM || role == DT_STAT) && count > max)
            max = count;
    }
    return DT_NEW(*host, max);
}

dt_status dt_plan_init_params(struct dt_plan *plan, uint64_t seed)
{
    const struct dt_graph *g = plan->graph;
    float *host = NULL;
    dt_status status = DT_OK;
    DT_TRY(alloc_host(plan, &host));
    for (int t = 0; t < g->n_tensors; t++) {
        enum dt_arena arena = plan->place[t].arena;
        size_t count = dt_tensor_elements(&g->tensor[t]);
        if (arena != DT_ARENA_PARAMS && arena != DT_ARENA_STATS)
            continue;
        const struct dt_init *init = &g->tensor[t].init;
        struct dt_rng rng;
        dt_rng_init(&rng, seed, DT_RNG_INIT, 0, dt_rng_hash(g->tensor[t].name));
        for (size_t i = 0; i < count; i++) {
            switch (init->kind) {
            case DT_INIT_CONSTANT:
                host[i] = (float)init->value;
                break;
            case DT_INIT_NORMAL:
                host[i] = (float)(init->value * dt_rng_normal(&rng));
                break;
            case DT_INIT_UNIFORM:
                host[i] = (float)(init->value * (2.0 * dt_rng_uniform(&rng) - 1.0));
                break;
            }
        }
        DT_TRY_OUT(dt_plan_set(plan, arena, t, host));
        memset(host, 0, count * sizeof(float));
        for (enum dt_arena a = 0; a < DT_N_ARENAS; a++)
            if (arena == DT_ARENA_PARAMS && dt_plan_has_state(plan, a) && plan->arena[a])
                DT_TRY_OUT(dt_plan_set(plan, a, t, host));
    }
out:
    free(host);
    return status;
}

static dt_status broadcast_arena(struct dt_plan *plan, enum dt_arena arena, float *host)
{
    const struct dt_graph *g = plan->graph;
    for (int t = 0; t < g->n_tensors; t++) {
        bool of_stats = arena == DT_ARENA_STATS || arena == DT_ARENA_EMA_STATS;
        if (plan->place[t].arena != (of_stats ? DT_ARENA_STATS : DT_ARENA_PARAMS))
            continue;
        DT_TRY(dt_plan_get(plan, arena, t, host));
        DT_TRY(
            dt_comm_bcast(plan->comm, host, dt_tensor_elements(&g->tensor[t]) * sizeof(float), 0));
        DT_TRY(dt_plan_set(plan, arena, t, host));
    }
    return DT_OK;
}

static dt_status broadcast(struct dt_plan *plan, const enum dt_arena *arenas, size_t n_arenas)
{
    float *host = NULL;
    dt_status status = DT_OK;
    if (!plan->comm)
        return DT_OK;
    DT_TRY(alloc_host(plan, &host));
    for (size_t i = 0; i < n_arenas; i++)
        if (plan->arena[arenas[i]])
            DT_TRY_OUT(broadcast_arena(plan, arenas[i], host));
out:
    free(host);
    return status;
}

dt_status dt_plan_broadcast(struct dt_plan *plan)
{
    static const enum dt_arena arenas[] = {DT_ARENA_PARAMS,   DT_ARENA_MOMENTUM, DT_ARENA_SQUARE,
                                           DT_ARENA_OUTER,    DT_ARENA_STATS,    DT_ARENA_EMA,
                                           DT_ARENA_EMA_STATS};
    return broadcast(plan, arenas, DT_COUNT(arenas));
}

dt_status dt_plan_broadcast_stats(struct dt_plan *plan)
{
    static const enum dt_arena arenas[] = {DT_ARENA_STATS, DT_ARENA_EMA_STATS};
    return broadcast(plan, arenas, DT_COUNT(arenas));
}
