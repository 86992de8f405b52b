/* Building a plan: prepare, autotune, lay out, allocate, bind. */
#include "dtrain/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/host.h"
#include "base/mem.h"
#include "plan/plan_internal.h"

static dt_status propose_fusions(struct dt_plan *plan)
{
    struct dt_fusion *fusions = NULL;
    int n = 0;
    dt_status status = DT_OK;
    if (!plan->backend->propose_fusion)
        return DT_OK;
    DT_TRY(dt_graph_fusions(plan->graph, &fusions, &n));
    for (int i = 0; i < n; i++)
        DT_TRY_OUT(plan->backend->propose_fusion(plan->device, &fusions[i], plan->exec));
out:
    free(fusions);
    return status;
}

static dt_status choose_formats(struct dt_plan *plan)
{
    const struct dt_graph *g = plan->graph;
    const struct dt_backend *backend = plan->backend;
    dt_status prepared = DT_OK;
    for (int n = 0; n < g->n_nodes && prepared == DT_OK; n++)
        prepared = backend->prepare(plan->device, &plan->exec[n], g, n);
    if (prepared == DT_OK)
        prepared = propose_fusions(plan);
    DT_TRY(backend->autotune(plan->device, prepared));
    dt_plan_find_lifetimes(plan);
    for (int n = 0; n < g->n_nodes; n++)
        plan->scratch_bytes[n] = backend->scratch_bytes(plan->device, plan->exec[n]);
    for (int t = 0; t < g->n_tensors; t++) {
        bool used = false;
        for (int p = 0; p < DT_MAX_PROGRAMS; p++)
            used = used || plan->place[t].first_use[p] >= 0;
        plan->place[t].bytes = used ? backend->tensor_bytes(plan->device, g, t) : 0;
    }
    return DT_OK;
}

static void leave_room_for_copy(struct dt_plan *plan)
{
    size_t bytes = 0, *max = &plan->options.max_bytes;
    for (enum dt_arena a = 0; a < DT_N_ARENAS && plan->options.copy_ranks > 0; a++)
        if (a == DT_ARENA_PARAMS || a == DT_ARENA_EMA || dt_plan_has_state(plan, a))
            bytes += plan->arena_bytes[a] / (size_t)plan->options.copy_ranks;
    if (*max > 0)
        *max = *max > bytes ? *max - bytes : 1; /* 0 is no limit */
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
    plan->record = options->record && !options->profile && backend->record;
    DT_TRY_OUT(DT_NEW(plan->exec, n_nodes));
    DT_TRY_OUT(DT_NEW(plan->scratch_bytes, n_nodes));
    DT_TRY_OUT(DT_NEW(plan->scratch_offset, n_nodes));
    DT_TRY_OUT(DT_NEW(plan->place, n_tensors));
    for (size_t t = 0; t < n_tensors; t++)
        plan->place[t].arena = DT_ARENA_NONE;
    DT_TRY_OUT(choose_formats(plan));
    DT_TRY_OUT(dt_plan_place_params(plan));
    DT_TRY_OUT(dt_plan_place_work(plan));
    dt_plan_place_lanes(plan);
    DT_TRY_OUT(dt_plan_make_actions(plan));
    size_t max = 0;
    for (int p = 0; p < DT_MAX_PROGRAMS; p++) {
        size_t bytes = 0;
        for (int t = 0; t < plan->graph->n_tensors; t++)
            if (plan->graph->tensor[t].role == DT_INPUT && plan->place[t].first_use[p] >= 0)
                bytes += dt_plan_align(plan->place[t].bytes);
        max = bytes > max ? bytes : max;
    }
    plan->feed_bytes = max;
    leave_room_for_copy(plan);
    *out = plan;
    plan = NULL;
out:
    dt_plan_destroy(plan);
    return status;
}

bool dt_plan_is_synced(const struct dt_plan *plan)
{
    int n = 0;
    while (n < plan->graph->n_nodes && !dt_node_is_synced(&plan->graph->node[n]))
        n++;
    return n < plan->graph->n_nodes;
}

/* Collective. */
static dt_status open_reduce(struct dt_plan *plan)
{
    const struct dt_backend *backend = plan->backend;
    struct dt_comm_options options = plan->options.comm;
    options.n_reductions = plan->n_buckets;
    options.dtype = dt_plan_sum_type(plan);
    options.n_fp32 = plan->n_wide > 0;
    options.split = plan->options.split;
    options.slot_bytes = dt_plan_slot_bytes(plan);
    if (plan->arena_bytes[DT_ARENA_COUNTS] > 0)
        options.exchange_ranks = plan->options.n_ranks;
    for (int b = 0; b < plan->n_buckets; b++) {
        const size_t count = plan->buckets[b].count;
        options.total_count += count;
        options.max_count = count > options.max_count ? count : options.max_count;
    }
    if (backend->comm_stream)
        options.stream = backend->comm_stream(plan->device);
    if (options.plane == DT_PLANE_MPI && plan->n_buckets > 0) {
        const enum dt_arena arena = dt_plan_sum_arena(plan);
        DT_TRY(dt_comm_alloc(plan->comm, &plan->sums, plan->arena_bytes[arena], plan->n_buckets));
        plan->arena[arena] = plan->sums.own;
        options.memory = &plan->sums;
    }
    DT_TRY(dt_comm_open_reduce(plan->comm, &options));
    if (backend->open_marks)
        DT_TRY(backend->open_marks(plan->device, plan->n_buckets + 1)); /* the last: SYNC */
    return DT_OK;
}

size_t dt_plan_bytes(const struct dt_plan *plan)
{
    size_t bytes = (size_t)plan->backend->n_feed_blocks * plan->feed_bytes;
    for (int a = 0; a < DT_N_ARENAS; a++)
        bytes += plan->arena_bytes[a];
    return bytes;
}

const char *dt_plan_advice(const struct dt_plan *plan)
{
    if (!dt_split_has_slices(&plan->options.split))
        return "lower train.micro_batch_size (--dry-run says which fits)";
    return plan->n_lanes > 1 ? "make the groups of model.sync_bn smaller"
                             : "raise train.virtual_ranks";
}

dt_status dt_plan_check_memory(const struct dt_plan *plan)
{
    size_t bytes = dt_plan_bytes(plan), limit = plan->options.max_bytes;
    char text[3][64] = {""};
    if (limit == 0 || bytes <= limit)
        return DT_OK;
    if (plan->options.is_host_memory)
        dt_memory_limit_text(text[2], sizeof text[2], "");
    DT_FAIL(DT_ERR_MEMORY,
            "the plan needs %s on each rank%s but only %s are available%s; %s, lower "
            "eval.batch_size_per_rank, or start fewer ranks on this node",
            dt_memory_format(text[0], sizeof text[0], bytes),
            plan->options.copy_ranks > 0 ? ", apart from the copy that is saved," : "",
            dt_memory_format(text[1], sizeof text[1], limit), text[2], dt_plan_advice(plan));
}

static dt_status allocate_and_bind(struct dt_plan *plan)
{
    const struct dt_graph *g = plan->graph;
    for (int a = 0; a < DT_N_ARENAS; a++)
        if (plan->arena_bytes[a] > 0 && !plan->arena[a])
            DT_TRY(plan->backend->alloc(plan->device, &plan->arena[a], plan->arena_bytes[a]));
    if (plan->options.profile)
        DT_TRY(DT_NEW(plan->node_s, (size_t)g->n_nodes));
    DT_TRY(plan->backend->open_feed(plan->device, plan->feed_bytes));
    DT_TRY(dt_plan_open_lanes(plan));
    for (int n = 0; n < g->n_nodes; n++)
        DT_TRY(dt_plan_bind(plan, n));
    return DT_OK;
}

/* All ranks call this at the same time. Laying out and binding are local and may fail on one rank
 * only, but opening and closing the data plane are collective: a rank that returned early would
 * leave the others waiting in it. So the ranks agree on a status before the plane is opened, and
 * again before anyone may close it. */
dt_status dt_plan_build(struct dt_plan **out, const struct dt_graph *graph,
                        const struct dt_backend *backend, struct dt_device *device,
                        struct dt_comm *comm, const struct dt_plan_options *options)
{
    struct dt_plan *plan = NULL;
    *out = NULL;
    dt_status status = dt_plan_layout(&plan, graph, backend, device, options);
    if (status == DT_OK)
        status = dt_plan_check_memory(plan);
    if (options->n_ranks > 1)
        status = dt_comm_agree(comm, status); /* the calls below are collective */
    DT_TRY_OUT(status);
    plan->comm = options->n_ranks > 1 ? comm : NULL;
    if (plan->comm && (plan->n_buckets > 0 || dt_plan_is_synced(plan)))
        DT_TRY_OUT(open_reduce(plan));
    status = allocate_and_bind(plan);
    if (plan->comm)
        status = dt_comm_agree(comm, status); /* closing the plane is collective too */
    DT_TRY_OUT(status);
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
    for (int i = 0; i < DT_MAX_PROGRAMS * DT_N_PASS_KINDS; i++)
        if (plan->recording[i / DT_N_PASS_KINDS][i % DT_N_PASS_KINDS])
            plan->backend->release_recording(
                plan->device, plan->recording[i / DT_N_PASS_KINDS][i % DT_N_PASS_KINDS]);
    if (plan->comm)
        dt_comm_close_reduce(plan->comm); /* after the recordings, which contain its work */
    dt_plan_close_lanes(plan);
    for (int a = 0; a < DT_N_ARENAS; a++)
        if (plan->arena[a] && plan->arena[a] != plan->sums.own)
            plan->backend->free(plan->device, plan->arena[a], plan->arena_bytes[a]);
    dt_comm_free(&plan->sums);
    for (int b = 0; b < plan->n_buckets; b++)
        free(plan->buckets[b].segments);
    for (int p = 0; p < DT_MAX_PROGRAMS; p++)
        free(plan->actions[p]);
    free(plan->buckets);
    free(plan->place);
    free(plan->exec);
    free(plan->scratch_bytes);
    free(plan->scratch_offset);
    free(plan->node_s);
    free(plan);
}
