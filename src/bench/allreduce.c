/* `dtrain bench --allreduce`: the time of sums over all ranks, in the columns of nccl-tests.
 *
 * What sums in host memory is measured in turns, so that a disturbance of the machine meets all of
 * it. A repetition is a barrier and then as many sums as fill its time; the slowest rank counts,
 * and of the repetitions the median. */
#include "bench/allreduce.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/memory.h"
#include "base/sort.h"
#include "bench/bench.h"

enum { N_REPETITIONS = 7, MOST_SUMS = 10000, PERIOD = 7 };
enum { WARM_BYTES = 4 << 20, LEAST_BYTES = 8 };
static const size_t default_most_bytes = 256 << 20;
static const double repetition_s = 0.01;

struct bench {
    struct dt_bench base; /* lays out the plan */
    size_t most_bytes;
    float *in, *sum;          /* host memory */
    void *on_device;          /* what NCCL sums */
    int open;                 /* the kind whose plane is open, -1 = none */
    struct dt_sum_row *sizes; /* bytes and is_bucket */
    int n_sizes;
    struct dt_allreduce_result result;
};

/* --- One sum --- */

/* Small integers: their sums are exact in any order. */
static float value(int rank, size_t i)
{
    return (float)(1 + (i + (size_t)rank) % PERIOD);
}

static double count_wrong(const struct bench *b, size_t count)
{
    float expected[PERIOD] = {0};
    size_t n_wrong = 0;
    for (size_t i = 0; i < PERIOD; i++)
        for (int r = 0; r < b->base.engine.ranks.n_ranks; r++)
            expected[i] += value(r, i);
    for (size_t i = 0; i < count; i++)
        n_wrong += !(b->sum[i] == expected[i % PERIOD]);
    return (double)n_wrong;
}

static dt_status open_nccl(struct bench *b, struct dt_comm_options *options)
{
    options->plane = DT_PLANE_NCCL;
    options->stream = b->base.engine.backend->comm_stream(b->base.engine.device);
    DT_TRY(dt_comm_open_reduce(b->base.engine.ranks.comm, options));
    return dt_comm_agree(
        b->base.engine.ranks.comm,
        b->base.engine.backend->alloc(b->base.engine.device, &b->on_device, b->most_bytes));
}

static dt_status open_plane(struct bench *b, enum dt_sum_kind kind)
{
    struct dt_comm_options options = dt_engine_comm_options(&b->base.engine);
    options.n_reductions = 1;
    options.max_count = b->most_bytes / sizeof(float);
    options.dtype = options.wire = DT_F32;
    if (b->open == (int)kind || kind == DT_SUM_ALLREDUCE)
        return DT_OK;
    b->open = (int)kind;
    if (kind == DT_SUM_NCCL)
        return open_nccl(b, &options);
    options.plane = DT_PLANE_MPI;
    options.ring = kind == DT_SUM_RING;
    return dt_comm_open_reduce(b->base.engine.ranks.comm, &options);
}

static dt_status sum_once(struct bench *b, enum dt_sum_kind kind, size_t count)
{
    struct dt_comm *comm = b->base.engine.ranks.comm;
    if (kind == DT_SUM_ALLREDUCE)
        return dt_comm_sum_f32(comm, b->sum, count);
    DT_TRY(dt_comm_reduce(comm, 0, kind == DT_SUM_NCCL ? b->on_device : b->sum, count));
    return dt_comm_wait(comm, 0);
}

/* n sums, one after the other. The values grow meanwhile, which changes no time. */
static dt_status time_sums(struct bench *b, const struct dt_sum_row *row, enum dt_sum_place place,
                           int n, double *seconds)
{
    DT_TRY(dt_comm_barrier(b->base.engine.ranks.comm));
    double begin_s = dt_clock_s();
    for (int i = 0; i < n; i++) {
        if (place == DT_OUT_OF_PLACE)
            memcpy(b->sum, b->in, row->bytes);
        DT_TRY(sum_once(b, row->kind, row->bytes / sizeof(float)));
    }
    if (row->kind == DT_SUM_NCCL)
        DT_TRY(b->base.engine.backend->sync(b->base.engine.device));
    *seconds = (dt_clock_s() - begin_s) / n;
    return DT_OK;
}

/* --- One size --- */

/* NCCL's only place is the second. */
static enum dt_sum_place first_place(enum dt_sum_kind kind)
{
    return kind == DT_SUM_NCCL ? DT_IN_PLACE : DT_OUT_OF_PLACE;
}

/* Compares a first sum of each place and finds how many fill a repetition. */
static dt_status try_row(struct bench *b, struct dt_sum_row *row, int *n_sums)
{
    double seconds = 0;
    size_t count = row->bytes / sizeof(float);
    bool on_host = row->kind != DT_SUM_NCCL;
    row->n_wrong = on_host ? 0 : NAN;
    DT_TRY(open_plane(b, row->kind));
    for (enum dt_sum_place place = first_place(row->kind); place < DT_N_SUM_PLACES; place++) {
        memcpy(b->sum, b->in, row->bytes);
        DT_TRY(time_sums(b, row, place, 1, &seconds));
        if (on_host)
            row->n_wrong += count_wrong(b, count);
    }
    DT_TRY(time_sums(b, row, DT_IN_PLACE, 1, &seconds));
    DT_TRY(dt_comm_sum_f64(b->base.engine.ranks.comm, &row->n_wrong, 1));
    DT_TRY(dt_comm_max_f64(b->base.engine.ranks.comm, &seconds, 1));
    *n_sums = (int)fmin(fmax(repetition_s / seconds, 1), MOST_SUMS);
    return DT_OK;
}

/* A plane that has just been opened first touches its own memory. */
static dt_status repeat_row(struct bench *b, struct dt_sum_row *row, int n_sums,
                            double s[DT_N_SUM_PLACES])
{
    size_t warm = row->bytes < WARM_BYTES ? row->bytes : WARM_BYTES;
    DT_TRY(open_plane(b, row->kind));
    DT_TRY(sum_once(b, row->kind, warm / sizeof(float)));
    for (enum dt_sum_place place = first_place(row->kind); place < DT_N_SUM_PLACES; place++)
        DT_TRY(time_sums(b, row, place, n_sums, &s[place]));
    return dt_comm_max_f64(b->base.engine.ranks.comm, s, DT_N_SUM_PLACES);
}

/* One size, by the kinds `first` to `last` in turns. */
static dt_status run_size(struct bench *b, const struct dt_sum_row *size, enum dt_sum_kind first,
                          enum dt_sum_kind last)
{
    double s[DT_N_SUM_KINDS][N_REPETITIONS][DT_N_SUM_PLACES] = {0}, sorted[N_REPETITIONS];
    int n_sums[DT_N_SUM_KINDS];
    struct dt_sum_row *rows = b->result.rows + b->result.n_rows;
    for (enum dt_sum_kind k = first; k <= last; k++) {
        rows[k - first] = *size;
        rows[k - first].kind = k;
        DT_TRY(try_row(b, &rows[k - first], &n_sums[k]));
    }
    for (int i = 0; i < N_REPETITIONS; i++)
        for (enum dt_sum_kind k = first; k <= last; k++)
            DT_TRY(repeat_row(b, &rows[k - first], n_sums[k], s[k][i]));
    for (enum dt_sum_kind k = first; k <= last; k++) {
        for (enum dt_sum_place place = DT_OUT_OF_PLACE; place < DT_N_SUM_PLACES; place++) {
            for (int i = 0; i < N_REPETITIONS; i++)
                sorted[i] = s[k][i][place];
            dt_sort_f64(sorted, N_REPETITIONS);
            rows[k - first].s[place] = dt_percentile_f64(sorted, N_REPETITIONS, 0.5);
        }
        if (b->base.engine.ranks.rank == 0)
            dt_allreduce_print_row(&b->result, &rows[k - first]);
    }
    b->result.n_rows += (int)(last - first) + 1;
    return DT_OK;
}

/* --- All sizes --- */

/* Powers of two, then the plan's buckets, each size once. */
static dt_status list_sizes(struct bench *b, size_t least, size_t most)
{
    const struct dt_plan *plan = b->base.engine.plan;
    DT_TRY(DT_NEW(b->sizes, sizeof(size_t) * CHAR_BIT + (size_t)plan->n_buckets));
    for (size_t bytes = LEAST_BYTES; bytes <= most; bytes *= 2)
        if (bytes >= least)
            b->sizes[b->n_sizes++] = (struct dt_sum_row){.bytes = bytes};
    for (int i = 0; i < plan->n_buckets; i++) {
        size_t bytes = dt_plan_bucket_bytes(plan, i);
        bool is_new = bytes >= least && bytes <= most;
        for (int j = 0; j < b->n_sizes; j++)
            is_new &= !b->sizes[j].is_bucket || b->sizes[j].bytes != bytes;
        if (is_new)
            b->sizes[b->n_sizes++] = (struct dt_sum_row){.bytes = bytes, .is_bucket = true};
    }
    return DT_NEW(b->result.rows, (size_t)b->n_sizes * DT_N_SUM_KINDS);
}

/* The largest size: two buffers of it on every rank of the node in half of the free memory. */
static dt_status choose_sizes(struct bench *b, const struct dt_allreduce_options *options)
{
    double room =
        (double)dt_memory_available("") / 4 / dt_comm_local_size(b->base.engine.ranks.comm);
    double least_room = -fmin(room, (double)default_most_bytes);
    DT_TRY(dt_comm_max_f64(b->base.engine.ranks.comm, &least_room, 1));
    size_t most = options->max_bytes > 0 ? options->max_bytes : (size_t)-least_room;
    DT_TRY(dt_comm_agree(b->base.engine.ranks.comm, list_sizes(b, options->min_bytes, most)));
    if (b->n_sizes == 0)
        DT_FAIL_ALIKE(DT_ERR_USAGE,
                      "--min-bytes %zu and --max-bytes %zu: no power of two from 8 and no bucket "
                      "lies between them",
                      options->min_bytes, most);
    for (int i = 0; i < b->n_sizes; i++)
        b->most_bytes = b->sizes[i].bytes > b->most_bytes ? b->sizes[i].bytes : b->most_bytes;
    return DT_OK;
}

static dt_status allocate(struct bench *b)
{
    b->in = dt_mem_alloc_aligned(b->most_bytes, "what is summed");
    b->sum = b->in ? dt_mem_alloc_aligned(b->most_bytes, "the sums") : NULL;
    if (!b->sum)
        return DT_ERR_MEMORY;
    for (size_t i = 0; i < b->most_bytes / sizeof(float); i++)
        b->in[i] = value(b->base.engine.ranks.rank, i);
    return DT_OK;
}

static dt_status run(struct bench *b, const struct dt_allreduce_options *options)
{
    DT_TRY(dt_bench_open(&b->base, true));
    DT_TRY(choose_sizes(b, options));
    DT_TRY(dt_comm_agree(b->base.engine.ranks.comm, allocate(b)));
    b->result.model = b->base.engine.model->name;
    b->result.n_ranks = b->base.engine.ranks.n_ranks;
    b->result.n_local_ranks = dt_comm_local_size(b->base.engine.ranks.comm);
    if (b->base.engine.ranks.rank == 0)
        dt_allreduce_print_head(&b->result);
    for (int i = 0; i < b->n_sizes; i++)
        DT_TRY(run_size(b, &b->sizes[i], DT_SUM_RING, DT_SUM_ALLREDUCE));
    for (int i = 0; i < b->n_sizes && b->base.engine.plane == DT_PLANE_NCCL; i++)
        DT_TRY(run_size(b, &b->sizes[i], DT_SUM_NCCL, DT_SUM_NCCL));
    dt_status status = b->base.engine.ranks.rank == 0
                           ? dt_allreduce_report(&b->result, options->json_path)
                           : DT_OK;
    return dt_comm_agree(b->base.engine.ranks.comm, status);
}

dt_status dt_bench_allreduce(struct dt_comm *comm, const struct dt_config *config,
                             const struct dt_allreduce_options *options)
{
    const struct dt_bench_options plain = {0};
    struct bench *b = NULL;
    DT_TRY(DT_NEW(b, 1));
    b->open = -1;
    dt_status status = dt_bench_begin(&b->base, comm, config, &plain, 0);
    if (status == DT_OK)
        status = run(b, options);
    if (status == DT_OK)
        dt_comm_close_reduce(comm);
    if (status == DT_OK && b->on_device) /* else sums that never end may use it */
        b->base.engine.backend->free(b->base.engine.device, b->on_device, b->most_bytes);
    dt_bench_end(&b->base, status);
    free(b->in);
    free(b->sum);
    free(b->sizes);
    free(b->result.rows);
    free(b);
    return status;
}
