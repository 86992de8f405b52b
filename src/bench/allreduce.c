/* `dtrain bench --allreduce`: the time of sums over all ranks, in the columns of nccl-tests.
 *
 * What sums in host memory is measured in turns, so that a disturbance of the machine meets all of
 * it. A repetition is a barrier and then as many sums as fill its time; the slowest rank counts,
 * and of the repetitions the median. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/memory.h"
#include "base/sort.h"
#include "bench/synthetic.h"
#include "dtrain/train.h"
#include "train/session.h"

enum { N_REPETITIONS = 7, MOST_SUMS = 10000, PERIOD = 7 };
enum { WARM_BYTES = 4 << 20, COMPARED_BYTES = 1 << 20, LEAST_BYTES = 8 };
static const size_t default_most_bytes = 256 << 20;
static const double repetition_s = 0.01;

enum kind { RING, IALLREDUCE, ALLREDUCE, NCCL, N_KINDS };
static const char *const names[N_KINDS] = {"ring", "MPI_Iallreduce", "MPI_Allreduce", "NCCL"};
enum place { OUT_OF_PLACE, IN_PLACE, N_PLACES };

struct size {
    size_t bytes;
    bool is_bucket;
};

struct row {
    enum kind kind;
    struct size size;
    double s[N_PLACES]; /* per sum; 0 = not measured */
    double n_wrong;     /* elements, of all ranks and both places; NaN = not compared */
};

struct bench {
    struct dt_session session;
    size_t most_bytes;
    float *in, *sum; /* host memory */
    void *on_device; /* what NCCL sums; owned by its plane */
    int open;        /* the kind whose plane is open, -1 = none */
    struct size *sizes;
    struct row *rows;
    int n_sizes, n_rows;
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
        for (int r = 0; r < b->session.n_ranks; r++)
            expected[i] += value(r, i);
    for (size_t i = 0; i < count; i++)
        n_wrong += !(b->sum[i] == expected[i % PERIOD]);
    return (double)n_wrong;
}

static dt_status open_nccl(struct bench *b, struct dt_comm_options *options)
{
    const struct dt_session *s = &b->session;
    options->plane = DT_PLANE_NCCL;
    options->ring = s->config->comm.algorithm == DT_ALGORITHM_RING;
    options->stream = s->backend->comm_stream(s->device);
    options->timeout_s = s->config->device.timeout_s;
    options->share = s->config->device.allow_shared_gpu;
    DT_TRY(dt_comm_open_reduce(s->comm, options));
    DT_TRY(dt_comm_alloc(s->comm, &b->on_device, b->most_bytes));
    return s->backend->zero(s->device, b->on_device, b->most_bytes);
}

static dt_status open_plane(struct bench *b, enum kind kind)
{
    struct dt_comm_options options = {.plane = DT_PLANE_MPI,
                                      .ring = kind == RING,
                                      .n_reductions = 1,
                                      .max_count = b->most_bytes / sizeof(float),
                                      .dtype = DT_F32};
    if (b->open == (int)kind || kind == ALLREDUCE)
        return DT_OK;
    b->open = (int)kind;
    return kind == NCCL ? open_nccl(b, &options) : dt_comm_open_reduce(b->session.comm, &options);
}

static dt_status sum_once(struct bench *b, enum kind kind, size_t count)
{
    struct dt_comm *comm = b->session.comm;
    if (kind == ALLREDUCE)
        return dt_comm_sum_f32(comm, b->sum, count);
    DT_TRY(dt_comm_reduce(comm, 0, kind == NCCL ? b->on_device : b->sum, count));
    return dt_comm_wait(comm, 0);
}

/* n sums, one after the other. The values grow meanwhile, which changes no time. */
static dt_status time_sums(struct bench *b, const struct row *row, enum place place, int n,
                           double *seconds)
{
    const struct dt_session *s = &b->session;
    DT_TRY(dt_comm_barrier(s->comm));
    double begin_s = dt_clock_s();
    for (int i = 0; i < n; i++) {
        if (place == OUT_OF_PLACE)
            memcpy(b->sum, b->in, row->size.bytes);
        DT_TRY(sum_once(b, row->kind, row->size.bytes / sizeof(float)));
    }
    if (row->kind == NCCL)
        DT_TRY(s->backend->sync(s->device));
    *seconds = (dt_clock_s() - begin_s) / n;
    return DT_OK;
}

/* --- One size --- */

/* Compares a first sum of each place and finds how many fill a repetition. */
static dt_status try_row(struct bench *b, struct row *row, int *n_sums)
{
    double seconds = 0;
    size_t count = row->size.bytes / sizeof(float);
    bool on_host = row->kind != NCCL;
    row->n_wrong = on_host ? 0 : NAN;
    DT_TRY(open_plane(b, row->kind));
    for (enum place place = on_host ? OUT_OF_PLACE : IN_PLACE; place < N_PLACES; place++) {
        memcpy(b->sum, b->in, row->size.bytes);
        DT_TRY(time_sums(b, row, place, 1, &seconds));
        if (on_host)
            row->n_wrong += count_wrong(b, count);
    }
    DT_TRY(time_sums(b, row, IN_PLACE, 1, &seconds));
    DT_TRY(dt_comm_sum_f64(b->session.comm, &row->n_wrong, 1));
    DT_TRY(dt_comm_max_f64(b->session.comm, &seconds, 1));
    *n_sums = (int)fmin(fmax(repetition_s / seconds, 1), MOST_SUMS);
    return DT_OK;
}

/* A plane that has just been opened first touches its own memory. */
static dt_status repeat_row(struct bench *b, struct row *row, int n_sums, double s[N_PLACES])
{
    bool on_host = row->kind != NCCL;
    size_t warm = row->size.bytes < WARM_BYTES ? row->size.bytes : WARM_BYTES;
    DT_TRY(open_plane(b, row->kind));
    DT_TRY(sum_once(b, row->kind, warm / sizeof(float)));
    for (enum place place = on_host ? OUT_OF_PLACE : IN_PLACE; place < N_PLACES; place++)
        DT_TRY(time_sums(b, row, place, n_sums, &s[place]));
    return dt_comm_max_f64(b->session.comm, s, N_PLACES);
}

static void print_row(const struct bench *b, const struct row *row)
{
    double n = b->session.n_ranks, factor = 2 * (n - 1) / n;
    printf("%12zu %12zu %7s %6s %-15s", row->size.bytes, row->size.bytes / sizeof(float), "float",
           "sum", names[row->kind]);
    for (enum place place = OUT_OF_PLACE; place < N_PLACES; place++) {
        double gb_per_s = (double)row->size.bytes / row->s[place] / 1e9;
        if (row->s[place] > 0)
            printf(" %10.1f %7.2f %7.2f", 1e6 * row->s[place], gb_per_s, gb_per_s * factor);
        else
            printf(" %10s %7s %7s", "-", "-", "-");
    }
    if (isnan(row->n_wrong))
        printf(" %6s", "N/A");
    else
        printf(" %6.0f", row->n_wrong);
    printf("%s\n", row->size.is_bucket ? "  bucket" : "");
    fflush(stdout);
}

/* One size, by the kinds `first` to `last` in turns. */
static dt_status run_size(struct bench *b, struct size size, enum kind first, enum kind last)
{
    double s[N_KINDS][N_REPETITIONS][N_PLACES] = {0}, sorted[N_REPETITIONS];
    int n_sums[N_KINDS];
    struct row *rows = b->rows + b->n_rows;
    for (enum kind k = first; k <= last; k++) {
        rows[k - first] = (struct row){.kind = k, .size = size};
        DT_TRY(try_row(b, &rows[k - first], &n_sums[k]));
    }
    for (int i = 0; i < N_REPETITIONS; i++)
        for (enum kind k = first; k <= last; k++)
            DT_TRY(repeat_row(b, &rows[k - first], n_sums[k], s[k][i]));
    for (enum kind k = first; k <= last; k++) {
        for (enum place place = OUT_OF_PLACE; place < N_PLACES; place++) {
            for (int i = 0; i < N_REPETITIONS; i++)
                sorted[i] = s[k][i][place];
            dt_sort_f64(sorted, N_REPETITIONS);
            rows[k - first].s[place] = dt_percentile_f64(sorted, N_REPETITIONS, 0.5);
        }
        if (b->session.rank == 0)
            print_row(b, &rows[k - first]);
    }
    b->n_rows += (int)(last - first) + 1;
    return DT_OK;
}

/* --- All sizes --- */

/* Powers of two, then the plan's buckets from the largest to the smallest, each size once. */
static dt_status list_sizes(struct bench *b, size_t least, size_t most)
{
    const struct dt_plan *plan = b->session.plan;
    size_t width = dt_dtype_bytes(plan->options.accumulate ? DT_F32 : plan->grads_type);
    DT_TRY(DT_NEW(b->sizes, sizeof(size_t) * CHAR_BIT + (size_t)plan->n_buckets));
    for (size_t bytes = LEAST_BYTES; bytes <= most; bytes *= 2)
        if (bytes >= least)
            b->sizes[b->n_sizes++] = (struct size){.bytes = bytes};
    for (int i = 0; i < plan->n_buckets; i++) {
        size_t bytes = plan->buckets[i].count * width;
        bool is_new = bytes >= least && bytes <= most;
        for (int j = 0; j < b->n_sizes; j++)
            is_new &= !b->sizes[j].is_bucket || b->sizes[j].bytes != bytes;
        if (is_new)
            b->sizes[b->n_sizes++] = (struct size){bytes, true};
    }
    return DT_NEW(b->rows, (size_t)b->n_sizes * N_KINDS);
}

/* The largest size: two buffers of it on every rank of the node in half of the free memory. */
static dt_status choose_sizes(struct bench *b, const struct dt_allreduce_options *options)
{
    const struct dt_session *s = &b->session;
    double room = (double)dt_memory_available("") / 4 / dt_comm_local_size(s->comm);
    double least_room = -fmin(room, (double)default_most_bytes);
    DT_TRY(dt_comm_max_f64(s->comm, &least_room, 1));
    size_t most = options->max_bytes > 0 ? options->max_bytes : (size_t)-least_room;
    DT_TRY(dt_comm_agree(s->comm, list_sizes(b, options->min_bytes, most)));
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
        b->in[i] = value(b->session.rank, i);
    return DT_OK;
}

static void print_head(const struct bench *b)
{
    const struct dt_session *s = &b->session;
    char mpi[128], nccl[128];
    dt_comm_describe_plane(DT_PLANE_MPI, mpi, sizeof mpi);
    dt_comm_describe_plane(DT_PLANE_NCCL, nccl, sizeof nccl);
    printf("# dtrain %s, %d rank(s), %d on this node; %s%s%s\n", DTRAIN_VERSION, s->n_ranks,
           dt_comm_local_size(s->comm), mpi, nccl[0] ? ", " : "", nccl);
    printf("# %58s %26s %27s\n", "", "out-of-place", "in-place");
    printf("%12s %12s %7s %6s %-15s %10s %7s %7s %10s %7s %7s %6s\n", "size", "count", "type",
           "redop", "by", "time", "algbw", "busbw", "time", "algbw", "busbw", "#wrong");
    printf("%12s %12s %7s %6s %-15s %10s %7s %7s %10s %7s %7s\n", "(B)", "(elements)", "", "", "",
           "(us)", "(GB/s)", "(GB/s)", "(us)", "(GB/s)", "(GB/s)");
}

/* --- Results --- */

/* Ratio of the ring's time to that of the faster one of MPI's own, over the sizes that count. */
static int compare(const struct bench *b, double *mean, double *worst)
{
    double logs = 0;
    int n = 0;
    *worst = 0;
    for (int i = 0; i + ALLREDUCE < b->n_rows && b->rows[i].kind == RING; i += ALLREDUCE + 1) {
        const struct row *row = b->rows + i;
        double own_s = fmin(row[IALLREDUCE].s[IN_PLACE], row[ALLREDUCE].s[IN_PLACE]);
        if (row->size.bytes < COMPARED_BYTES || b->session.n_ranks == 1)
            continue;
        *worst = fmax(*worst, row->s[IN_PLACE] / own_s);
        logs += log(row->s[IN_PLACE] / own_s);
        n++;
    }
    *mean = n > 0 ? exp(logs / n) : 0;
    return n;
}

static void print_foot(const struct bench *b)
{
    double mean, worst;
    printf("# Sums are in place. Out of place copies the values to the result first. busbw is "
           "algbw x 2 (n - 1) / n.\n");
    if (b->rows[b->n_rows - 1].kind == NCCL)
        printf("# NCCL sums in GPU memory; dtrain train compares its sums before it starts.\n");
    if (compare(b, &mean, &worst) > 0)
        printf("# Time of the ring : MPI's faster one, in place, from 1 MiB: %.2f (geometric "
               "mean), %.2f (worst)\n",
               mean, worst);
}

static void write_rows(const struct bench *b, struct dt_jsonw *w)
{
    static const char *const keys[N_PLACES] = {"out_of_place_s", "in_place_s"};
    dt_jsonw_begin(w, "rows", '[');
    for (int i = 0; i < b->n_rows; i++) {
        const struct row *row = &b->rows[i];
        dt_jsonw_begin(w, NULL, '{');
        dt_jsonw_string(w, "by", names[row->kind]);
        dt_jsonw_integer(w, "bytes", (int64_t)row->size.bytes);
        dt_jsonw_string(w, "type", "float");
        dt_jsonw_bool(w, "is_bucket", row->size.is_bucket);
        for (enum place place = OUT_OF_PLACE; place < N_PLACES; place++)
            if (row->s[place] > 0)
                dt_jsonw_number(w, keys[place], row->s[place]);
        dt_jsonw_number(w, "n_wrong", row->n_wrong);
        dt_jsonw_close(w, '}');
    }
    dt_jsonw_close(w, ']');
}

static dt_status save_json(const struct bench *b, const char *path)
{
    struct dt_jsonw w;
    double mean, worst;
    dt_jsonw_init(&w, true);
    dt_jsonw_begin(&w, NULL, '{');
    dt_jsonw_string(&w, "dtrain", DTRAIN_VERSION);
    dt_jsonw_string(&w, "model", b->session.model->name);
    dt_jsonw_integer(&w, "ranks", b->session.n_ranks);
    if (compare(b, &mean, &worst) > 0) {
        dt_jsonw_number(&w, "ring_to_mpi_mean", mean);
        dt_jsonw_number(&w, "ring_to_mpi_worst", worst);
    }
    write_rows(b, &w);
    dt_jsonw_close(&w, '}');
    return dt_jsonw_save(&w, path);
}

static dt_status report(const struct bench *b, const char *json_path)
{
    double n_wrong = 0;
    if (b->session.rank == 0) {
        print_foot(b);
        if (fflush(stdout) != 0)
            DT_FAIL(DT_ERR_IO, "cannot write the result to standard output");
        if (json_path)
            DT_TRY(save_json(b, json_path));
    }
    for (int i = 0; i < b->n_rows; i++)
        n_wrong += b->rows[i].n_wrong > 0 ? b->rows[i].n_wrong : 0;
    if (n_wrong > 0)
        DT_FAIL(DT_ERR_DEVICE, "%.0f sums are wrong; the network or the MPI library is faulty",
                n_wrong);
    return DT_OK;
}

static dt_status run(struct bench *b, const struct dt_allreduce_options *options)
{
    struct dt_session *s = &b->session;
    struct dt_session_needs needs = {.train = true, .layout_only = true};
    DT_TRY(dt_session_open(s, &needs));
    DT_TRY(choose_sizes(b, options));
    DT_TRY(dt_comm_agree(s->comm, allocate(b)));
    if (s->rank == 0)
        print_head(b);
    for (int i = 0; i < b->n_sizes; i++)
        DT_TRY(run_size(b, b->sizes[i], RING, ALLREDUCE));
    for (int i = 0; i < b->n_sizes && s->plane == DT_PLANE_NCCL; i++)
        DT_TRY(run_size(b, b->sizes[i], NCCL, NCCL));
    return dt_comm_agree(s->comm, report(b, options->json_path));
}

dt_status dt_bench_allreduce(struct dt_comm *comm, const struct dt_config *config,
                             const struct dt_allreduce_options *options)
{
    static struct dt_config own;
    struct bench *b = NULL;
    DT_TRY(DT_NEW(b, 1));
    b->open = -1;
    dt_bench_use_synthetic(&own, config);
    dt_session_init(&b->session, comm, &own);
    dt_status status = run(b, options);
    if (status == DT_OK)
        dt_comm_close_reduce(comm);
    dt_session_close(&b->session, status);
    free(b->in);
    free(b->sum);
    free(b->sizes);
    free(b->rows);
    free(b);
    return status;
}
