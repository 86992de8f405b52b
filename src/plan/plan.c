/* Building a plan (prepare, lay out, allocate, bind) and walking its lists.
 *
 * The walk is the training step: everything that happens in it is an entry of plan->steps. */
#include "dtrain/plan.h"

#include <stdlib.h>
#include <string.h>

#include "dtrain/clock.h"
#include "dtrain/mem.h"
#include "internal.h"

static dt_status prepare_nodes(struct dt_plan *plan)
{
    const struct dt_graph *g = plan->graph;
    for (int n = 0; n < g->n_nodes; n++)
        DT_TRY(plan->backend->prepare(plan->device, &plan->exec[n], &plan->scratch_bytes[n], g, n));
    for (int t = 0; t < g->n_tensors; t++) {
        bool used =
            plan->place[t].first_use[DT_TRAIN] >= 0 || plan->place[t].first_use[DT_EVAL] >= 0;
        plan->place[t].bytes = used ? plan->backend->tensor_bytes(plan->device, g, t) : 0;
    }
    return DT_OK;
}

dt_status dt_plan_layout(struct dt_plan **out, const struct dt_graph *graph,
                         const struct dt_backend *backend, struct dt_device *device,
                         const struct dt_plan_options *options)
{
    struct dt_plan *plan = NULL;
    dt_status status = DT_OK;
    size_t n_nodes = (size_t)graph->n_nodes, n_tensors = (size_t)graph->n_tensors;
    *out = NULL;
    DT_TRY(DT_NEW(plan, 1));
    plan->graph = graph;
    plan->backend = backend;
    plan->device = device;
    plan->options = *options;
    DT_TRY_OUT(DT_NEW(plan->exec, n_nodes));
    DT_TRY_OUT(DT_NEW(plan->scratch_bytes, n_nodes));
    DT_TRY_OUT(DT_NEW(plan->scratch_offset, n_nodes));
    DT_TRY_OUT(DT_NEW(plan->place, n_tensors));
    for (size_t t = 0; t < n_tensors; t++)
        plan->place[t].arena = DT_ARENA_NONE;
    dt_plan_find_lifetimes(plan);
    DT_TRY_OUT(prepare_nodes(plan));
    DT_TRY_OUT(dt_plan_place_params(plan));
    DT_TRY_OUT(dt_plan_place_work(plan));
    DT_TRY_OUT(dt_plan_make_steps(plan));
    *out = plan;
    plan = NULL;
out:
    dt_plan_destroy(plan);
    return status;
}

static dt_status open_reduce(struct dt_plan *plan)
{
    struct dt_comm_options options = {.ring = plan->options.ring, .n_slots = plan->n_buckets};
    for (int b = 0; b < plan->n_buckets; b++)
        if (plan->buckets[b].count > options.max_count)
            options.max_count = plan->buckets[b].count;
    return dt_comm_open_reduce(plan->comm, &options);
}

static dt_status check_memory(const struct dt_plan *plan)
{
    size_t bytes = 0, limit = plan->options.max_bytes;
    for (int a = 0; a < DT_N_ARENAS; a++)
        bytes += plan->arena_bytes[a];
    if (limit > 0 && bytes > limit)
        DT_FAIL(DT_ERR_MEMORY,
                "the plan needs %.1f GiB on each rank but only %.1f GiB are there for it; lower "
                "train.micro_batch (or train.eval_batch), or start fewer ranks on this node",
                (double)bytes / (1 << 30), (double)limit / (1 << 30));
    return DT_OK;
}

static dt_status bind_nodes(struct dt_plan *plan)
{
    const struct dt_graph *g = plan->graph;
    void **address = NULL;
    dt_status status = DT_OK;
    DT_TRY(DT_NEW(address, (size_t)g->n_tensors));
    for (int t = 0; t < g->n_tensors; t++)
        if (plan->place[t].arena != DT_ARENA_NONE)
            address[t] = (char *)plan->arena[plan->place[t].arena] + plan->place[t].offset;
    for (int n = 0; n < g->n_nodes; n++)
        DT_TRY_OUT(
            plan->backend->bind(plan->device, plan->exec[n], address,
                                (char *)plan->arena[DT_ARENA_WORK] + plan->scratch_offset[n]));
out:
    free(address);
    return status;
}

dt_status dt_plan_build(struct dt_plan **out, const struct dt_graph *graph,
                        const struct dt_backend *backend, struct dt_device *device,
                        struct dt_comm *comm, const struct dt_plan_options *options)
{
    struct dt_plan *plan = NULL;
    dt_status status = DT_OK;
    *out = NULL;
    DT_TRY(dt_plan_layout(&plan, graph, backend, device, options));
    plan->comm = options->n_ranks > 1 ? comm : NULL;
    DT_TRY_OUT(check_memory(plan));
    if (plan->comm && plan->n_buckets > 0)
        DT_TRY_OUT(open_reduce(plan));
    for (int a = 0; a < DT_N_ARENAS; a++)
        if (plan->arena_bytes[a] > 0)
            DT_TRY_OUT(backend->alloc(device, &plan->arena[a], plan->arena_bytes[a]));
    DT_TRY_OUT(bind_nodes(plan));
    *out = plan;
    plan = NULL;
out:
    dt_plan_destroy(plan);
    return status;
}

void dt_plan_destroy(struct dt_plan *plan)
{
    if (!plan)
        return;
    for (int n = 0; plan->exec && n < plan->graph->n_nodes; n++)
        plan->backend->release(plan->device, plan->exec[n]);
    for (int a = 0; a < DT_N_ARENAS; a++)
        if (plan->arena[a])
            plan->backend->free(plan->device, plan->arena[a], plan->arena_bytes[a]);
    for (int b = 0; b < plan->n_buckets; b++)
        free(plan->buckets[b].segments);
    for (int phase = 0; phase < DT_N_PHASES; phase++)
        free(plan->steps[phase]);
    free(plan->buckets);
    free(plan->place);
    free(plan->exec);
    free(plan->scratch_bytes);
    free(plan->scratch_offset);
    free(plan);
}

dt_status dt_plan_feed(struct dt_plan *plan, enum dt_phase phase, const uint8_t *pixels,
                       const int32_t *labels)
{
    const int tensor[2] = {plan->graph->pixels[phase], plan->graph->labels[phase]};
    const void *const data[2] = {pixels, labels};
    for (int i = 0; i < 2; i++) {
        const struct dt_place *place = &plan->place[tensor[i]];
        void *dst = (char *)plan->arena[DT_ARENA_WORK] + place->offset;
        DT_TRY(plan->backend->upload(plan->device, dst, data[i], place->bytes));
    }
    return DT_OK;
}

/* Gradients of the passes before the last are summed in the accum arena; the last pass adds that
 * sum to its own, so that the reduction works in the grads arena as always. */
static dt_status accumulate(struct dt_plan *plan, const struct dt_bucket *bucket, int pass,
                            int n_passes)
{
    float *grads = (float *)plan->arena[DT_ARENA_GRADS] + bucket->first;
    float *sum = (float *)plan->arena[DT_ARENA_ACCUM] + bucket->first;
    if (n_passes == 1)
        return DT_OK;
    if (pass == n_passes - 1)
        return plan->backend->accumulate(plan->device, grads, sum, bucket->count);
    if (pass == 0)
        return plan->backend->upload(plan->device, sum, grads, bucket->count * sizeof(float));
    return plan->backend->accumulate(plan->device, sum, grads, bucket->count);
}

static dt_status run_bucket_step(struct dt_plan *plan, const struct dt_step *step,
                                 const struct dt_scalars *scalars)
{
    const struct dt_bucket *bucket = &plan->buckets[step->bucket];
    float *grads = plan->arena[DT_ARENA_GRADS];
    switch (step->kind) {
    case DT_STEP_REDUCE:
        return dt_comm_reduce(plan->comm, step->bucket, grads + bucket->first, bucket->count);
    case DT_STEP_WAIT:
        return dt_comm_wait(plan->comm, step->bucket);
    default:
        return plan->backend->update(plan->device, plan->arena[DT_ARENA_PARAMS],
                                     plan->arena[DT_ARENA_MOMENTUM], grads, bucket->segments,
                                     bucket->n_segments, scalars);
    }
}

static dt_status run_step(struct dt_plan *plan, const struct dt_step *step,
                          const struct dt_scalars *scalars, int pass, int n_passes)
{
    struct dt_plan_times *times = &plan->times;
    double start = dt_clock_s(), end;
    if (step->kind == DT_STEP_OP) {
        DT_TRY(plan->backend->run(plan->device, plan->exec[step->node], scalars));
        end = dt_clock_s();
        times->op_s[plan->graph->node[step->node].op] += end - start;
        times->compute_s += end - start;
        if (plan->comm) {
            DT_TRY(dt_comm_poll(plan->comm));
            times->comm_s += dt_clock_s() - end;
        }
        return DT_OK;
    }
    double *clock = &times->comm_s;
    if (step->kind == DT_STEP_ACCUMULATE) {
        DT_TRY(accumulate(plan, &plan->buckets[step->bucket], pass, n_passes));
        clock = &times->compute_s;
    } else if (pass == n_passes - 1) {
        DT_TRY(run_bucket_step(plan, step, scalars));
        if (step->kind == DT_STEP_UPDATE)
            clock = &times->update_s;
    }
    *clock += dt_clock_s() - start;
    return DT_OK;
}

dt_status dt_plan_train(struct dt_plan *plan, const struct dt_scalars *scalars, int pass,
                        int n_passes)
{
    for (int i = 0; i < plan->n_steps[DT_TRAIN]; i++)
        DT_TRY(run_step(plan, &plan->steps[DT_TRAIN][i], scalars, pass, n_passes));
    return DT_OK;
}

dt_status dt_plan_eval(struct dt_plan *plan)
{
    static const struct dt_scalars none = {.diff_scale = 1.0f};
    for (int i = 0; i < plan->n_steps[DT_EVAL]; i++)
        DT_TRY(run_step(plan, &plan->steps[DT_EVAL][i], &none, 0, 1));
    return DT_OK;
}

void dt_plan_reset_times(struct dt_plan *plan)
{
    plan->times = (struct dt_plan_times){0};
}

void dt_plan_get_times(const struct dt_plan *plan, struct dt_plan_times *out)
{
    *out = plan->times;
}
