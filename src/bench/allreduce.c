/* `dtrain bench --allreduce`: the time of sums over all ranks, in the columns of nccl-tests.
 *
 * What sums in host memory is measured in turns, so that a disturbance of the machine meets all of
 * it. A repetition is a barrier and then as many sums as fill its time; the slowest rank counts,
 * and of the repetitions the median. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/build.h"
#include "base/clock.h"
#include "base/host.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/sort.h"
#include "base/text.h"
#include "bench/bench.h"

enum { N_REPETITIONS = 7, MAX_SUMS = 10000, PERIOD = 7 };
enum { WARM_BYTES = 4 << 20, MIN_BYTES = 8 };
static const size_t default_max_bytes = 256 << 20;
static const double repetition_s = 0.01;

/* The kinds of sums: X(KIND, name, way); dtrain's own and both ways of MPI in host memory, NCCL in
 * the GPUs'. */
#define SUM_LIST(X)                          \
    X(AUTO, "auto", AUTO)                    \
    X(RING, "ring", RING)                    \
    X(HALVING, "halving", HALVING)           \
    X(TREE, "tree", TREE)                    \
    X(IALLREDUCE, "MPI_Iallreduce", LIBRARY) \
    X(ALLREDUCE, "MPI_Allreduce", LIBRARY)   \
    X(NCCL, "NCCL", LIBRARY)
#define KIND(NAME, name, way) SUM_##NAME,
#define ROW(NAME, name, way)  {name, DT_SUM_##way},
enum sum_kind { SUM_LIST(KIND) N_SUM_KINDS };
static const struct {
    const char *name;
    enum dt_sum sum;
} kinds[N_SUM_KINDS] = {SUM_LIST(ROW)};
enum sum_place { OUT_OF_PLACE, IN_PLACE, N_SUM_PLACES };

struct row {
    enum sum_kind kind;
    size_t bytes;
    bool is_bucket;         /* of the plan; else a power of two */
    double s[N_SUM_PLACES]; /* per sum; 0 = not measured */
    double n_wrong;         /* elements, of all ranks and both places; NaN = not compared */
};

struct bench {
    struct dt_bench base; /* lays out the plan */
    struct dt_comm *comm;
    size_t max_bytes;
    float *in, *sum; /* host memory */
    struct dt_comm_memory sums;
    void *on_device;   /* what NCCL sums */
    int open;          /* the kind whose plane is open, -1 = none */
    struct row *sizes; /* bytes and is_bucket */
    int n_sizes;
    struct row *rows; /* the results */
    int n_rows;
};

/* --- The table, the comparison of auto with MPI's own, and JSON --- */

enum { COMPARED_BYTES = 1 << 20 }; /* the ratio of auto and MPI counts from here on */

static void print_row(const struct bench *b, const struct row *row)
{
    double n = b->base.engine.ranks.n_ranks, factor = 2 * (n - 1) / n;
    printf("%12zu %12zu %7s %6s %-15s", row->bytes, row->bytes / sizeof(float), "float", "sum",
           kinds[row->kind].name);
    for (enum sum_place place = OUT_OF_PLACE; place < N_SUM_PLACES; place++) {
        double gb_per_s = (double)row->bytes / row->s[place] / 1e9;
        if (row->s[place] > 0)
            printf(" %10.1f %7.2f %7.2f", 1e6 * row->s[place], gb_per_s, gb_per_s * factor);
        else
            printf(" %10s %7s %7s", "-", "-", "-");
    }
    if (isnan(row->n_wrong))
        printf(" %6s", "N/A");
    else
        printf(" %6.0f", row->n_wrong);
    printf("%s\n", row->is_bucket ? "  bucket" : "");
    fflush(stdout);
}

/* Ratio of auto's time to that of the faster one of MPI's own, over the sizes that count. */
static int compare(const struct bench *b, double *mean, double *worst)
{
    double logs = 0;
    int n = 0;
    *worst = 0;
    for (int i = 0; i + SUM_ALLREDUCE < b->n_rows && b->rows[i].kind == SUM_AUTO;
         i += SUM_ALLREDUCE + 1) {
        const struct row *row = b->rows + i;
        double own_s = fmin(row[SUM_IALLREDUCE].s[IN_PLACE], row[SUM_ALLREDUCE].s[IN_PLACE]);
        if (row->bytes < COMPARED_BYTES || b->base.engine.ranks.n_ranks == 1)
            continue;
        *worst = fmax(*worst, row->s[IN_PLACE] / own_s);
        logs += log(row->s[IN_PLACE] / own_s);
        n++;
    }
    *mean = n > 0 ? exp(logs / n) : 0;
    return n;
}

static dt_status save_json(const struct bench *b, const char *path)
{
    static const char *const keys[N_SUM_PLACES] = {"out_of_place_s", "in_place_s"};
    struct dt_jsonw w = {.pretty = true};
    double mean, worst;
    dt_jsonw_add(&w, "{dtrain: %s, model: %s, ranks: %d", dt_version, b->base.engine.model->name,
                 b->base.engine.ranks.n_ranks);
    if (compare(b, &mean, &worst) > 0)
        dt_jsonw_add(&w, "auto_to_mpi_mean: %g, auto_to_mpi_worst: %g", mean, worst);
    dt_jsonw_begin(&w, "rows", '[');
    for (const struct row *row = b->rows; row < b->rows + b->n_rows; row++) {
        dt_jsonw_add(&w, "{by: %s, bytes: %zu, type: %s, is_bucket: %hhd", kinds[row->kind].name,
                     row->bytes, "float", row->is_bucket);
        for (enum sum_place place = OUT_OF_PLACE; place < N_SUM_PLACES; place++)
            if (row->s[place] > 0)
                dt_jsonw_number(&w, keys[place], row->s[place]);
        dt_jsonw_add(&w, "n_wrong: %g}", row->n_wrong);
    }
    dt_jsonw_add(&w, "]}");
    return dt_jsonw_save(&w, path);
}

static dt_status report(const struct bench *b, const char *json_path)
{
    double n_wrong = 0;
    double mean, worst;
    printf("# Sums are in place. Out of place copies the values to the result first. busbw is "
           "algbw x 2 (n - 1) / n.\n");
    if (b->rows[b->n_rows - 1].kind == SUM_NCCL)
        printf("# NCCL sums in GPU memory; dtrain train compares its sums before it starts.\n");
    if (compare(b, &mean, &worst) > 0)
        printf("# Time of auto : MPI's faster one, in place, from 1 MiB: %.2f (geometric "
               "mean), %.2f (worst)\n",
               mean, worst);
    if (fflush(stdout) != 0)
        DT_FAIL(DT_ERR_IO, "cannot write the result to standard output");
    if (json_path)
        DT_TRY(save_json(b, json_path));
    for (int i = 0; i < b->n_rows; i++)
        n_wrong += b->rows[i].n_wrong > 0 ? b->rows[i].n_wrong : 0;
    if (n_wrong > 0)
        DT_FAIL(DT_ERR_DEVICE, "%.0f sums are wrong; the network or the MPI library is faulty",
                n_wrong);
    return DT_OK;
}

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

static dt_status open_plane(struct bench *b, enum sum_kind kind)
{
    const struct dt_engine *engine = &b->base.engine;
    struct dt_comm_options options = dt_engine_comm_options(engine);
    options.n_reductions = 1;
    options.max_count = b->max_bytes / sizeof(float);
    options.dtype = options.wire = DT_F32;
    if (b->open == (int)kind || kind == SUM_ALLREDUCE)
        return DT_OK;
    b->open = (int)kind;
    options.plane = kind == SUM_NCCL ? DT_PLANE_NCCL : DT_PLANE_MPI;
    options.sum = kinds[kind].sum;
    options.memory = &b->sums;
    options.keeps_order = false;
    if (kind != SUM_NCCL)
        return dt_comm_open_reduce(b->comm, &options);
    options.stream = engine->backend->comm_stream(engine->device);
    DT_TRY(dt_comm_open_reduce(b->comm, &options));
    return dt_comm_agree(b->comm,
                         engine->backend->alloc(engine->device, &b->on_device, b->max_bytes));
}

static dt_status sum_once(struct bench *b, enum sum_kind kind, size_t count)
{
    if (kind == SUM_ALLREDUCE)
        return dt_comm_sum_f32(b->comm, b->sum, count);
    DT_TRY(dt_comm_reduce(b->comm, 0, kind == SUM_NCCL ? b->on_device : b->sum, count));
    return dt_comm_wait(b->comm, 0);
}

/* n sums, one after the other. The values grow meanwhile, which changes no time. */
static dt_status time_sums(struct bench *b, const struct row *row, enum sum_place place, int n,
                           double *seconds)
{
    DT_TRY(dt_comm_barrier(b->comm));
    double begin_s = dt_clock_s();
    for (int i = 0; i < n; i++) {
        if (place == OUT_OF_PLACE)
            memcpy(b->sum, b->in, row->bytes);
        DT_TRY(sum_once(b, row->kind, row->bytes / sizeof(float)));
    }
    if (row->kind == SUM_NCCL)
        DT_TRY(b->base.engine.backend->sync(b->base.engine.device));
    *seconds = (dt_clock_s() - begin_s) / n;
    return DT_OK;
}

/* --- One size --- */

/* Compares a first sum of each place, of which NCCL has only the second, and finds how many fill a
 * repetition. */
static dt_status try_row(struct bench *b, struct row *row, int *n_sums)
{
    double seconds = 0;
    size_t count = row->bytes / sizeof(float);
    bool on_host = row->kind != SUM_NCCL;
    row->n_wrong = on_host ? 0 : NAN;
    DT_TRY(open_plane(b, row->kind));
    for (enum sum_place place = on_host ? OUT_OF_PLACE : IN_PLACE; place < N_SUM_PLACES; place++) {
        memcpy(b->sum, b->in, row->bytes);
        DT_TRY(time_sums(b, row, place, 1, &seconds));
        if (on_host)
            row->n_wrong += count_wrong(b, count);
    }
    DT_TRY(time_sums(b, row, IN_PLACE, 1, &seconds));
    DT_TRY(dt_comm_sum_f64(b->comm, &row->n_wrong, 1));
    DT_TRY(dt_comm_max_f64(b->comm, &seconds, 1));
    *n_sums = (int)fmin(fmax(repetition_s / seconds, 1), MAX_SUMS);
    return DT_OK;
}

/* One size, by the kinds `first` to `last` in turns. */
static dt_status run_size(struct bench *b, const struct row *size, enum sum_kind first,
                          enum sum_kind last)
{
    double s[N_SUM_KINDS][N_REPETITIONS][N_SUM_PLACES] = {0}, sorted[N_REPETITIONS];
    const size_t warm = size->bytes < WARM_BYTES ? size->bytes : WARM_BYTES;
    int n_sums[N_SUM_KINDS];
    struct row *rows = b->rows + b->n_rows;
    for (enum sum_kind k = first; k <= last; k++) {
        rows[k - first] = *size;
        rows[k - first].kind = k;
        DT_TRY(try_row(b, &rows[k - first], &n_sums[k]));
    }
    for (int i = 0; i < N_REPETITIONS; i++)
        for (enum sum_kind k = first; k <= last; k++) {
            DT_TRY(open_plane(b, k)); /* which then first touches its own memory */
            DT_TRY(sum_once(b, k, warm / sizeof(float)));
            for (enum sum_place place = k == SUM_NCCL ? IN_PLACE : OUT_OF_PLACE;
                 place < N_SUM_PLACES; place++)
                DT_TRY(time_sums(b, &rows[k - first], place, n_sums[k], &s[k][i][place]));
            DT_TRY(dt_comm_max_f64(b->comm, s[k][i], N_SUM_PLACES));
        }
    for (enum sum_kind k = first; k <= last; k++) {
        for (enum sum_place place = OUT_OF_PLACE; place < N_SUM_PLACES; place++) {
            for (int i = 0; i < N_REPETITIONS; i++)
                sorted[i] = s[k][i][place];
            dt_sort_f64(sorted, N_REPETITIONS);
            rows[k - first].s[place] = dt_percentile_f64(sorted, N_REPETITIONS, 0.5);
        }
        if (b->base.engine.ranks.rank == 0)
            print_row(b, &rows[k - first]);
    }
    b->n_rows += (int)(last - first) + 1;
    return DT_OK;
}

/* --- All sizes --- */

/* Powers of two, then the plan's buckets, each size once. */
static dt_status list_sizes(struct bench *b, size_t min, size_t max)
{
    const struct dt_plan *plan = b->base.engine.plan;
    DT_TRY(DT_NEW(b->sizes, sizeof(size_t) * CHAR_BIT + (size_t)plan->n_buckets));
    for (size_t bytes = MIN_BYTES; bytes <= max; bytes *= 2)
        if (bytes >= min)
            b->sizes[b->n_sizes++] = (struct row){.bytes = bytes};
    for (int i = 0; i < plan->n_buckets; i++) {
        size_t bytes = dt_plan_bucket_bytes(plan, i);
        bool is_new = bytes >= min && bytes <= max;
        for (int j = 0; j < b->n_sizes; j++)
            is_new &= !b->sizes[j].is_bucket || b->sizes[j].bytes != bytes;
        if (is_new)
            b->sizes[b->n_sizes++] = (struct row){.bytes = bytes, .is_bucket = true};
    }
    return DT_NEW(b->rows, (size_t)b->n_sizes * N_SUM_KINDS);
}

/* The largest size: two buffers of it on every rank of the node in half of the free memory. */
static dt_status choose_sizes(struct bench *b, const struct dt_allreduce_options *options)
{
    double room = (double)dt_memory_available("") / 4 / dt_comm_local_size(b->comm);
    double min_room = -fmin(room, (double)default_max_bytes);
    DT_TRY(dt_comm_max_f64(b->comm, &min_room, 1));
    size_t max = options->max_bytes > 0 ? options->max_bytes : (size_t)-min_room;
    DT_TRY(dt_comm_agree(b->comm, list_sizes(b, options->min_bytes, max)));
    if (b->n_sizes == 0)
        DT_FAIL_ON_ALL_RANKS(
            DT_ERR_USAGE,
            "--min-bytes %zu and --max-bytes %zu: no power of two from 8 and no bucket "
            "lies between them",
            options->min_bytes, max);
    for (int i = 0; i < b->n_sizes; i++)
        b->max_bytes = b->sizes[i].bytes > b->max_bytes ? b->sizes[i].bytes : b->max_bytes;
    return DT_OK;
}

static dt_status allocate(struct bench *b)
{
    b->in = dt_mem_alloc_aligned(b->max_bytes, "what is summed");
    if (!b->in)
        return DT_ERR_MEMORY;
    for (size_t i = 0; i < b->max_bytes / sizeof(float); i++)
        b->in[i] = value(b->base.engine.ranks.rank, i);
    return DT_OK;
}

static dt_status run(struct bench *b, const struct dt_allreduce_options *options)
{
    DT_TRY(dt_bench_open(&b->base, true));
    DT_TRY(choose_sizes(b, options));
    DT_TRY(dt_comm_agree(b->comm, allocate(b)));
    DT_TRY(dt_comm_alloc(b->comm, &b->sums, b->max_bytes, 1));
    b->sum = b->sums.own;
    if (b->base.engine.ranks.rank == 0) {
        char mpi[128], nccl[128];
        dt_comm_describe_plane(DT_PLANE_MPI, mpi, sizeof mpi);
        dt_comm_describe_plane(DT_PLANE_NCCL, nccl, sizeof nccl);
        printf("# dtrain %s, %d rank%s, %d on this node; %s%s%s\n", dt_version,
               b->base.engine.ranks.n_ranks, DT_S(b->base.engine.ranks.n_ranks),
               dt_comm_local_size(b->comm), mpi, nccl[0] ? ", " : "", nccl);
        printf("# %58s %26s %27s\n", "", "out-of-place", "in-place");
        printf("%12s %12s %7s %6s %-15s %10s %7s %7s %10s %7s %7s %6s\n", "size", "count", "type",
               "redop", "by", "time", "algbw", "busbw", "time", "algbw", "busbw", "#wrong");
        printf("%12s %12s %7s %6s %-15s %10s %7s %7s %10s %7s %7s\n", "(B)", "(elements)", "", "",
               "", "(us)", "(GB/s)", "(GB/s)", "(us)", "(GB/s)", "(GB/s)");
    }
    for (int i = 0; i < b->n_sizes; i++)
        DT_TRY(run_size(b, &b->sizes[i], SUM_AUTO, SUM_ALLREDUCE));
    for (int i = 0; i < b->n_sizes && b->base.engine.plane == DT_PLANE_NCCL; i++)
        DT_TRY(run_size(b, &b->sizes[i], SUM_NCCL, SUM_NCCL));
    return dt_comm_agree(b->comm,
                         b->base.engine.ranks.rank == 0 ? report(b, options->json_path) : DT_OK);
}

dt_status dt_bench_allreduce(struct dt_comm *comm, const struct dt_config *config,
                             const struct dt_allreduce_options *options)
{
    const struct dt_bench_options plain = {0};
    struct bench *b = NULL;
    DT_TRY(DT_NEW(b, 1));
    b->comm = comm;
    b->open = -1;
    dt_status status = dt_bench_begin(&b->base, comm, config, &plain, 0);
    if (status == DT_OK)
        status = run(b, options);
    if (status == DT_OK)
        dt_comm_close_reduce(comm);
    if (status == DT_OK && b->on_device) /* else sums that never end may use it */
        b->base.engine.backend->free(b->base.engine.device, b->on_device, b->max_bytes);
    dt_bench_end(&b->base, status);
    free(b->in);
    dt_comm_free(&b->sums);
    free(b->sizes);
    free(b->rows);
    free(b);
    return status;
}
