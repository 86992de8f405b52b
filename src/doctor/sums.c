/* Sums over all ranks, in the memory and on the plane of training: a plan with one layer, whose
 * gradients are one bucket. */
#include <math.h>

#include "base/clock.h"
#include "base/sort.h"
#include "doctor/doctor.h"

enum { N_REPETITIONS = 5, LEAST_BYTES = 4 << 10, IMAGE_SIZE = 8, N_INPUTS = 3 * 8 * 8 };
static const size_t one_bucket = (size_t)1 << 40;
static const size_t sizes[DT_SUM_SIZES] = {LEAST_BYTES, 1 << 20, 64 << 20};
static const double sum_s = 0.5; /* that a sum may take on the slowest link */
static const double all_s = 1;   /* for the repetitions of a size */

/* A sum moves twice its bytes through every link. */
static size_t most_bytes(const struct dt_doctor *d)
{
    double slowest = INFINITY;
    for (int i = 0; i < d->n_pairs; i++)
        slowest = fmin(slowest, fmin(d->pairs[i].forth_bytes_per_s, d->pairs[i].back_bytes_per_s));
    return (size_t)fmin(fmax(slowest * sum_s / 2, LEAST_BYTES), (double)sizes[DT_SUM_SIZES - 1]);
}

static dt_status build(struct dt_plan **plan, struct dt_graph *g, struct dt_doctor *d, size_t bytes)
{
    static const double mean[3] = {0.5, 0.5, 0.5}, std[3] = {0.25, 0.25, 0.25};
    static const struct dt_init zero;
    const struct dt_plan_options options = {
        .bucket_bytes = one_bucket,
        .last_bucket_bytes = one_bucket,
        .n_ranks = d->n_ranks,
        .comm = dt_engine_comm_options(&d->bench.engine),
    };
    const int n_outputs = (int)(bytes / sizeof(float) / (N_INPUTS + 1));
    DT_TRY(dt_graph_begin(g, DT_TRAIN, 1, IMAGE_SIZE, IMAGE_SIZE));
    int src = dt_graph_ingest(g, mean, std);
    src = dt_graph_linear(g, src, "sum", n_outputs > 2 ? n_outputs : 2, zero, zero);
    dt_graph_softmax_xent(g, src, 0);
    DT_TRY(dt_graph_check(g));
    DT_TRY(dt_graph_differentiate(g));
    return dt_plan_build(plan, g, d->bench.engine.backend, d->bench.engine.device, d->comm,
                         &options);
}

static dt_status time_sums(struct dt_doctor *d, struct dt_plan *plan, size_t count,
                           double *median_s)
{
    double seconds[N_REPETITIONS], spent_s = 0;
    int n = 0;
    while (n < N_REPETITIONS && spent_s < all_s) {
        DT_TRY(dt_comm_barrier(d->comm));
        const double begin_s = dt_clock_s();
        DT_TRY(dt_comm_reduce(d->comm, 0, plan->arena[DT_ARENA_GRADS], count));
        DT_TRY(dt_comm_wait(d->comm, 0));
        DT_TRY(d->bench.engine.backend->sync(d->bench.engine.device));
        seconds[n] = dt_clock_s() - begin_s;
        DT_TRY(dt_comm_max_f64(d->comm, &seconds[n], 1));
        spent_s += seconds[n++];
    }
    dt_sort_f64(seconds, (size_t)n);
    *median_s = dt_percentile_f64(seconds, (size_t)n, 0.5);
    return DT_OK;
}

/* A GPU pads the bucket, which is checked as a whole. */
static dt_status test_size(struct dt_doctor *d, struct dt_plan *plan, size_t bytes,
                           struct dt_sum_test *test)
{
    const size_t width = dt_dtype_bytes(plan->grads_type), all_count = plan->buckets[0].count;
    const size_t count = bytes / width < all_count ? bytes / width : all_count;
    dt_status result;
    bool all;
    DT_TRY(dt_plan_test_reduce(plan, &result));
    DT_TRY(dt_doctor_note_all(d, DT_STAGE_SUMS, result, "", &all));
    test->bytes = count * width;
    return time_sums(d, plan, count, &test->seconds);
}

/* What one rank cannot build, none can. */
static dt_status test_sum(struct dt_doctor *d, size_t bytes, struct dt_sum_test *test)
{
    struct dt_graph *graph = NULL;
    struct dt_plan *plan = NULL;
    dt_status status = dt_graph_create(&graph);
    if (status == DT_OK)
        status = build(&plan, graph, d, bytes);
    status = dt_comm_agree(d->comm, status);
    if (status == DT_OK)
        status = test_size(d, plan, bytes, test);
    else
        dt_doctor_note(d, DT_STAGE_SUMS, d->rank == dt_error_origin() ? status : DT_OK, "");
    dt_plan_destroy(plan);
    dt_graph_destroy(graph);
    return test->bytes > 0 ? status : DT_OK;
}

dt_status dt_doctor_sums(struct dt_doctor *d)
{
    const size_t most = most_bytes(d);
    size_t bytes = 0;
    for (int i = 0; i < DT_SUM_SIZES && d->has_device && d->n_ranks > 1 && bytes < most; i++) {
        bytes = sizes[i] < most ? sizes[i] : most;
        DT_TRY(test_sum(d, bytes, &d->sums[i]));
    }
    return DT_OK;
}
