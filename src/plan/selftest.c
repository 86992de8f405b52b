/* Checks that the ranks really sum: known values go through the data plane, in the memory,
 * reductions and types that training will use. They are small enough for the sums to be exact in
 * every type. */
#include <stdlib.h>

#include "base/mem.h"
#include "plan/plan_internal.h"

/* At each element only three ranks contribute, 1 to 7 each; the next element has different ones. */
enum { N_GIVERS = 3, N_BASES = 5 };

static int value(size_t i, int rank, int n_ranks)
{
    int turn = (int)((i + (size_t)rank) % (size_t)n_ranks);
    return turn < N_GIVERS ? 1 + (int)(i % N_BASES) + turn : 0;
}

static float sum(size_t i, int n_ranks)
{
    int total = 0, givers = n_ranks < N_GIVERS ? n_ranks : N_GIVERS;
    for (int turn = 0; turn < givers; turn++)
        total += 1 + (int)(i % N_BASES) + turn;
    return (float)total;
}

static bool is_in(const struct dt_plan *plan, const struct dt_bucket *bucket, int tensor)
{
    const struct dt_place *place = &plan->place[tensor];
    size_t first = place->offset / sizeof(float);
    return place->arena == DT_ARENA_PARAMS && first >= bucket->first &&
           first < bucket->first + bucket->count;
}

static dt_status fill_bucket(struct dt_plan *plan, const struct dt_bucket *bucket, float *host)
{
    int rank = dt_comm_rank(plan->comm), n_ranks = dt_comm_size(plan->comm);
    for (int t = 0; t < plan->graph->n_tensors; t++) {
        if (!is_in(plan, bucket, t))
            continue;
        size_t count = dt_tensor_elements(&plan->graph->tensor[t]);
        for (size_t i = 0; i < count; i++)
            host[i] = (float)value(i, rank, n_ranks);
        DT_TRY(dt_plan_set(plan, DT_ARENA_GRADS, t, host));
    }
    return DT_OK;
}

static dt_status verify(struct dt_plan *plan, const struct dt_bucket *bucket, float *host)
{
    int n_ranks = dt_comm_size(plan->comm);
    char plane[128];
    dt_comm_describe_plane(plan->options.comm.plane, plane, sizeof plane);
    for (int t = 0; t < plan->graph->n_tensors; t++) {
        const struct dt_tensor *tensor = &plan->graph->tensor[t];
        if (!is_in(plan, bucket, t))
            continue;
        DT_TRY(dt_plan_get(plan, DT_ARENA_GRADS, t, host));
        for (size_t i = 0; i < dt_tensor_elements(tensor); i++)
            if (!(host[i] == sum(i, n_ranks)))
                DT_FAIL(DT_ERR_DEVICE,
                        "rank %d: a test sum over %d ranks by %s gave %g instead of %g (%s, "
                        "element %zu); the network, the device or the library is faulty",
                        dt_comm_rank(plan->comm), n_ranks, plane, host[i], sum(i, n_ranks),
                        tensor->name, i);
    }
    return DT_OK;
}

static dt_status clear(struct dt_plan *plan, const struct dt_bucket *bucket)
{
    return plan->backend->zero(plan->device, dt_plan_sum_address(plan, bucket),
                               bucket->count *
                                   dt_dtype_bytes(dt_plan_sum_grads(plan, bucket).type));
}

dt_status dt_plan_test_reduce(struct dt_plan *plan, dt_status *result)
{
    const int tested[] = {0, plan->n_buckets - 1};
    int n = plan->n_buckets > 1 ? 2 : 1;
    float *host = NULL;
    dt_status status = DT_OK;
    *result = DT_OK;
    if (!plan->comm || plan->n_buckets == 0)
        return DT_OK;
    /* A rank that cannot fill its buffer still takes part, because the others wait for it. */
    *result = DT_NEW(host, dt_graph_largest(plan->graph, DT_PARAM));
    for (int i = 0; i < n && *result == DT_OK; i++)
        *result = fill_bucket(plan, &plan->buckets[tested[i]], host);
    for (int i = 0; i < n; i++) {
        int b = tested[i];
        const struct dt_backend *backend = plan->backend;
        if (backend->fork)
            DT_TRY_OUT(backend->fork(plan->device));
        DT_TRY_OUT(dt_comm_reduce(plan->comm, b, dt_plan_sum_address(plan, &plan->buckets[b]),
                                  plan->buckets[b].count));
        DT_TRY_OUT(backend->mark ? backend->mark(plan->device, b) : DT_OK);
    }
    for (int i = 0; i < n; i++) {
        DT_TRY_OUT(dt_comm_wait(plan->comm, tested[i]));
        DT_TRY_OUT(plan->backend->join ? plan->backend->join(plan->device, tested[i]) : DT_OK);
    }
    const bool has_sum = !plan->options.parallel.is_central || dt_comm_rank(plan->comm) == 0;
    for (int i = 0; i < n && *result == DT_OK && has_sum; i++)
        *result = verify(plan, &plan->buckets[tested[i]], host);
    for (int i = 0; i < n && *result == DT_OK; i++)
        *result = clear(plan, &plan->buckets[tested[i]]);
out:
    free(host);
    return status;
}
