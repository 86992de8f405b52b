/* The links between nodes as the sums of a node's ranks see them: all its parts at once, so a part
 * has its share of the node's bandwidth. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/sort.h"
#include "comm/comm_internal.h"

enum { SMALL_BYTES = 1 << 12, LARGE_BYTES = 1 << 20, N_TIMES = 5 };

dt_status dt_comm_time_sum(struct dt_comm *comm, float *values, size_t bytes, int n_times,
                           double *median_s)
{
    double times[DT_COMM_TIMES + 1]; /* the first one connects the ranks */
    for (int i = 0; i <= n_times; i++) {
        DT_TRY(dt_comm_barrier(comm));
        const double begin_s = dt_clock_s();
        DT_TRY(dt_comm_reduce(comm, 0, values, bytes / sizeof *values));
        DT_TRY(dt_comm_wait(comm, 0));
        times[i] = dt_clock_s() - begin_s;
    }
    DT_TRY(dt_comm_max_f64(comm, times, n_times + 1));
    dt_sort_f64(times + 1, (size_t)n_times);
    *median_s = dt_percentile_f64(times + 1, (size_t)n_times, 0.5);
    return DT_OK;
}

static dt_status measure(struct dt_comm *comm, const struct dt_comm_memory *memory,
                         struct dt_link *link)
{
    const struct dt_comm_options options = {.sum = DT_SUM_BY_NODE,
                                            .n_reductions = 1,
                                            .max_count = LARGE_BYTES / sizeof(float),
                                            .dtype = DT_F32,
                                            .memory = memory};
    const int n = memory->n_nodes, n_messages = 2 * (n - 1);
    double small_s = 0, large_s = 0;
    dt_status status = DT_OK;
    DT_TRY(dt_comm_open_reduce(comm, &options));
    DT_TRY_OUT(dt_comm_time_sum(comm, memory->own, SMALL_BYTES, N_TIMES, &small_s));
    DT_TRY_OUT(dt_comm_time_sum(comm, memory->own, LARGE_BYTES, N_TIMES, &large_s));
    const double part = (double)LARGE_BYTES / memory->n_parts;
    const double moved_s = large_s > 1.01 * small_s ? large_s - small_s : 0.01 * small_s;
    link->latency_s = small_s / n_messages;
    link->bytes_per_s = n_messages * part / n / moved_s;
out:
    dt_comm_close_reduce(comm); /* it knows memory that is freed next */
    return status;
}

dt_status dt_comm_measure_link(struct dt_comm *comm, struct dt_link *link, int *n_nodes)
{
    struct dt_comm_memory memory;
    dt_status status = dt_comm_alloc(comm, &memory, LARGE_BYTES, 1);
    *n_nodes = status == DT_OK ? memory.n_nodes : 0;
    if (status == DT_OK && memory.n_nodes > 1)
        status = measure(comm, &memory, link);
    dt_comm_free(&memory);
    return status;
}
