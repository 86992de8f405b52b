/* The clocks of the hosts, and the time of messages between pairs of ranks: between all hosts if
 * they are few, otherwise in the order of a ring; and between neighbours on a host. Then the sums
 * over all ranks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/sort.h"
#include "doctor/doctor.h"

enum {
    HOSTS_ALL_PAIRS = 8,
    N_PASSES = 2, /* over all pairs; the better one counts */
    N_ECHOES = 100,
    N_REPETITIONS = 3,
    MIN_BYTES = 64 << 10,
    MAX_BYTES = 8 << 20,
};
static const double echoes_s = 0.1; /* for all of a pair */
static const double long_s = 0.02;  /* a message that is large enough */

/* --- Clocks --- */

dt_status dt_doctor_clocks(struct dt_doctor *d)
{
    double offset_s, error_s, day_s = dt_clock_unix_s() - dt_clock_s(), day_0_s = day_s;
    DT_TRY(dt_comm_clock(d->comm, &offset_s, &error_s));
    DT_TRY(dt_comm_bcast(d->comm, &day_0_s, sizeof day_0_s, 0));
    d->own.clock_s = day_s - day_0_s - offset_s;
    return DT_OK;
}

/* --- A pair: `from` measures, `to` answers --- */

static dt_status send(struct dt_doctor *d, struct dt_pair *p, void *data, size_t bytes, bool forth)
{
    return dt_comm_copy(d->comm, data, bytes, forth ? p->from : p->to, forth ? p->to : p->from);
}

/* The other side learns from each echo whether another one follows. */
static dt_status measure_latency(struct dt_doctor *d, struct dt_pair *p)
{
    const double begin_s = dt_clock_s();
    double s[N_ECHOES] = {0};
    int64_t goes_on = 1;
    int n = 0;
    while (goes_on) {
        const double sent_s = dt_clock_s();
        goes_on = n + 1 < N_ECHOES && sent_s - begin_s < echoes_s;
        DT_TRY(send(d, p, &goes_on, sizeof goes_on, true));
        DT_TRY(send(d, p, &goes_on, sizeof goes_on, false));
        s[n++] = (dt_clock_s() - sent_s) / 2;
    }
    dt_sort_f64(s, (size_t)n);
    const double median_s = dt_percentile_f64(s, (size_t)n, 0.5);
    p->latency_s = p->latency_s > 0 ? fmin(p->latency_s, median_s) : median_s;
    return DT_OK;
}

/* One way, with an empty answer, or a request and the way back. */
static dt_status time_message(struct dt_doctor *d, struct dt_pair *p, void *data, int64_t bytes,
                              bool forth, double *seconds)
{
    int64_t empty = 0;
    const double begin_s = dt_clock_s();
    if (!forth)
        DT_TRY(send(d, p, &empty, sizeof empty, true));
    DT_TRY(send(d, p, data, (size_t)bytes, forth));
    if (forth)
        DT_TRY(send(d, p, &empty, sizeof empty, false));
    *seconds = dt_clock_s() - begin_s;
    return DT_OK;
}

static double rate(int64_t bytes, double seconds, double empty_s)
{
    return (double)bytes / (seconds > 2 * empty_s ? seconds - empty_s : seconds);
}

/* Doubles the message until the fastest of some takes long: whatever disturbs, delays. */
static dt_status measure_bandwidth(struct dt_doctor *d, struct dt_pair *p, void *data)
{
    double forth_s = INFINITY, back_s = INFINITY;
    int64_t next[] = {MIN_BYTES, N_REPETITIONS}; /* bytes, repetitions that are left */
    while (next[1] > 0) {
        double s[2] = {0};
        DT_TRY(time_message(d, p, data, next[0], true, &s[0]));
        DT_TRY(time_message(d, p, data, next[0], false, &s[1]));
        forth_s = fmin(forth_s, s[0]);
        back_s = fmin(back_s, s[1]);
        if (forth_s + back_s > long_s + 8 * p->latency_s || next[0] == MAX_BYTES) {
            next[1]--;
        } else {
            next[0] *= 2;
            next[1] = N_REPETITIONS;
            forth_s = back_s = INFINITY;
        }
        /* The measuring side decides. */
        DT_TRY(send(d, p, next, sizeof next, true));
    }
    p->forth_bytes_per_s = fmax(p->forth_bytes_per_s, rate(next[0], forth_s, 2 * p->latency_s));
    p->back_bytes_per_s = fmax(p->back_bytes_per_s, rate(next[0], back_s, 2 * p->latency_s));
    return DT_OK;
}

/* --- All pairs --- */

static void add_pair(struct dt_doctor *d, int from, int to)
{
    d->pairs[d->n_pairs++] =
        (struct dt_pair){.from = from, .to = to, .is_remote = d->host_of[from] != d->host_of[to]};
}

/* First the pairs of hosts, whose number is returned: all, or neighbours in a ring, every other
 * pair first, so that half of them are measured at once. Then the ranks of a host, one after the
 * other. */
static int list_pairs(struct dt_doctor *d)
{
    const int n = d->n_hosts;
    if (n <= HOSTS_ALL_PAIRS)
        for (int i = 0; i < n; i++)
            for (int j = i + 1; j < n; j++)
                add_pair(d, d->first_of[i], d->first_of[j]);
    for (int odd = 0; odd < 2 && n > HOSTS_ALL_PAIRS; odd++)
        for (int i = odd; i < n; i += 2)
            add_pair(d, d->first_of[i], d->first_of[(i + 1) % n]);
    const int n_remote = d->n_pairs;
    for (int r = 0; r < d->n_ranks; r++) {
        int next = r + 1;
        while (next < d->n_ranks && d->host_of[next] != d->host_of[r])
            next++;
        if (next < d->n_ranks)
            add_pair(d, r, next);
    }
    return n_remote;
}

/* Every pair is known to one rank. */
static dt_status share_pairs(struct dt_doctor *d)
{
    enum { N = 3 };
    double *values;
    dt_status status = DT_OK;
    DT_TRY(DT_NEW(values, (size_t)d->n_pairs * N));
    for (int i = 0; i < d->n_pairs; i++)
        if (d->pairs[i].from == d->rank)
            memcpy(&values[i * N], &d->pairs[i].latency_s, N * sizeof *values);
    DT_TRY_OUT(dt_comm_sum_f64(d->comm, values, d->n_pairs * N));
    for (int i = 0; i < d->n_pairs; i++)
        memcpy(&d->pairs[i].latency_s, &values[i * N], N * sizeof *values);
out:
    free(values);
    return status;
}

/* All ranks go through the same list; the two ranks of a pair measure it, the others skip it. Pairs
 * of hosts come first: one at a time if hosts are few, else every other pair of the ring at once,
 * then the rest. dt_comm_rest separates what must not run at the same time; ranks sleep in it, to
 * leave the CPUs to those that measure. Pairs on a host need none: each shares a rank with the one
 * before it. There are two passes, of which the better values count, as disturbances only slow
 * down. `from` decides how long a pair is measured and keeps the result, which share_pairs gives to
 * all. Memory is agreed on first: partners of a rank without any would wait for ever. A message
 * that never arrives is left to the watchdog. */
dt_status dt_doctor_network(struct dt_doctor *d)
{
    const size_t max_pairs = (size_t)d->n_ranks + HOSTS_ALL_PAIRS * HOSTS_ALL_PAIRS;
    const bool one_by_one = d->n_hosts <= HOSTS_ALL_PAIRS;
    uint8_t *data = NULL;
    dt_status status = DT_NEW(data, MAX_BYTES);
    if (status == DT_OK)
        status = DT_NEW(d->pairs, max_pairs);
    DT_TRY_OUT(dt_comm_agree(d->comm, status));
    const int n_remote = list_pairs(d);
    for (int pass = 0; pass < N_PASSES; pass++) {
        for (int i = 0; i < d->n_pairs; i++) {
            /* Pairs that are not measured at once must not disturb each other. */
            if (i == n_remote || (i < n_remote && (one_by_one || i == (n_remote + 1) / 2)))
                DT_TRY_OUT(dt_comm_rest(d->comm));
            if (d->rank != d->pairs[i].from && d->rank != d->pairs[i].to)
                continue;
            DT_TRY_OUT(measure_latency(d, &d->pairs[i]));
            DT_TRY_OUT(measure_bandwidth(d, &d->pairs[i], data));
        }
        DT_TRY_OUT(dt_comm_rest(d->comm));
    }
    DT_TRY_OUT(share_pairs(d));
    DT_TRY_OUT(dt_doctor_cpus(d)); /* again, after the measurements */
out:
    free(data);
    return status;
}

/* --- Sums over all ranks, in the memory and on the plane of training: a plan with one layer, whose
 * gradients are one bucket --- */

enum { N_SUMS = 5, MIN_SUM_BYTES = 4 << 10, IMAGE_SIZE = 8, N_INPUTS = 3 * 8 * 8 };
static const size_t one_bucket = (size_t)1 << 40;
static const size_t sum_sizes[DT_SUM_SIZES] = {MIN_SUM_BYTES, 1 << 20, 64 << 20};
static const double sum_s = 0.5; /* that a sum may take on the slowest link */
static const double all_s = 1;   /* for the repetitions of a size */

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
    double seconds[N_SUMS], spent_s = 0;
    int n = 0;
    while (n < N_SUMS && spent_s < all_s) {
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

/* A plan that one rank cannot build is measured by none. */
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
    double slowest = INFINITY; /* bytes/s; a sum moves twice its bytes through every link */
    for (int i = 0; i < d->n_pairs; i++)
        slowest = fmin(slowest, fmin(d->pairs[i].forth_bytes_per_s, d->pairs[i].back_bytes_per_s));
    const double room = fmax(slowest * sum_s / 2, MIN_SUM_BYTES);
    const size_t max = (size_t)fmin(room, (double)sum_sizes[DT_SUM_SIZES - 1]);
    size_t bytes = 0;
    for (int i = 0; i < DT_SUM_SIZES && d->has_device && d->n_ranks > 1 && bytes < max; i++) {
        bytes = sum_sizes[i] < max ? sum_sizes[i] : max;
        DT_TRY(test_sum(d, bytes, &d->sums[i]));
    }
    return DT_OK;
}
