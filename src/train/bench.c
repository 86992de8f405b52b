/* `dtrain bench`: the training loop on synthetic data that goes through the loader like real data.
 * Warm-up steps, then rounds; a round counts with the time of its slowest rank. The console lines
 * have the form of Horovod's synthetic benchmark. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "dtrain/clock.h"
#include "dtrain/file.h"
#include "dtrain/json.h"
#include "dtrain/mem.h"
#include "dtrain/train.h"
#include "train/session.h"

struct bench {
    struct dt_session session;
    struct dt_config config; /* as given, with synthetic data */
    uint32_t epoch;
    int64_t step;
    int n_steps;                      /* measured */
    double *step_s;                   /* one per measured step: of the slowest rank */
    double *images_per_s;             /* one per round: of one rank */
    double wait_s, compute_s, comm_s; /* seconds per step, mean over ranks */
    double mean, spread;              /* of images_per_s: mean, 1.96 standard deviations */
    double rss_bytes;                 /* largest of all ranks */
};

static dt_status next_batch(struct bench *b, const struct dt_batch **batch)
{
    struct dt_session *s = &b->session;
    DT_TRY(dt_loader_next(s->train, batch));
    if (*batch)
        return DT_OK;
    DT_TRY(dt_loader_start(s->train, ++b->epoch, 0));
    DT_TRY(dt_loader_next(s->train, batch));
    if (!*batch)
        DT_FAIL(DT_ERR_INTERNAL, "an epoch of the synthetic data is empty");
    return DT_OK;
}

static dt_status run_step(struct bench *b)
{
    struct dt_session *s = &b->session;
    struct dt_scalars scalars = dt_session_scalars(s, b->step++);
    for (int pass = 0; pass < s->n_passes; pass++) {
        const struct dt_batch *batch;
        DT_TRY(next_batch(b, &batch));
        DT_TRY(dt_session_pass(s, batch, &scalars, pass));
    }
    return DT_OK;
}

static dt_status run_rounds(struct bench *b)
{
    struct dt_session *s = &b->session;
    int n_rounds = b->config.bench.rounds, n_steps = b->config.bench.steps_per_round;
    struct dt_counters counters;
    DT_TRY(dt_loader_start(s->train, 0, 0));
    for (int i = 0; i < b->config.bench.warmup_steps; i++)
        DT_TRY(run_step(b));
    DT_TRY(s->backend->download(s->device, &counters));
    double wait_s = dt_loader_wait_s(s->train);
    dt_plan_reset_times(s->plan);
    for (int round = 0; round < n_rounds; round++) {
        DT_TRY(dt_comm_barrier(s->comm));
        double begin_s = dt_clock_s(), last_s = begin_s;
        for (int i = 0; i < n_steps; i++) {
            DT_TRY(run_step(b));
            if (i == n_steps - 1) /* waits for the device */
                DT_TRY(s->backend->download(s->device, &counters));
            double now_s = dt_clock_s();
            b->step_s[round * n_steps + i] = now_s - last_s;
            last_s = now_s;
        }
        double round_s = last_s - begin_s;
        DT_TRY(dt_comm_max_f64(s->comm, &round_s, 1));
        b->images_per_s[round] = (double)n_steps * s->global_batch / s->n_ranks / round_s;
    }
    b->wait_s = dt_loader_wait_s(s->train) - wait_s;
    return DT_OK;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Value below which `part` of the sorted values lie, by linear interpolation. */
static double percentile(const double *sorted, int n, double part)
{
    double at = part * (n - 1);
    int low = (int)at, high = low + 1 < n ? low + 1 : low;
    return sorted[low] + (at - low) * (sorted[high] - sorted[low]);
}

static dt_status summarise(struct bench *b)
{
    struct dt_session *s = &b->session;
    struct dt_plan_times times;
    struct rusage usage;
    int n_rounds = b->config.bench.rounds;
    double sum = 0, squares = 0;
    dt_plan_get_times(s->plan, &times);
    getrusage(RUSAGE_SELF, &usage);
    b->rss_bytes = (double)usage.ru_maxrss * 1024;
    double sums[] = {b->wait_s, times.compute_s + times.update_s, times.comm_s};
    DT_TRY(dt_comm_sum_f64(s->comm, sums, 3));
    DT_TRY(dt_comm_max_f64(s->comm, &b->rss_bytes, 1));
    DT_TRY(dt_comm_max_f64(s->comm, b->step_s, b->n_steps));
    double rank_steps = (double)b->n_steps * s->n_ranks;
    b->wait_s = sums[0] / rank_steps;
    b->compute_s = sums[1] / rank_steps;
    b->comm_s = sums[2] / rank_steps;
    for (int i = 0; i < n_rounds; i++)
        sum += b->images_per_s[i];
    b->mean = sum / n_rounds;
    for (int i = 0; i < n_rounds; i++)
        squares += (b->images_per_s[i] - b->mean) * (b->images_per_s[i] - b->mean);
    b->spread = 1.96 * sqrt(squares / n_rounds);
    qsort(b->step_s, (size_t)b->n_steps, sizeof *b->step_s, ascending);
    return DT_OK;
}

static void write_numbers(const struct bench *b, struct dt_jsonw *w)
{
    const struct dt_session *s = &b->session;
    double median_s = percentile(b->step_s, b->n_steps, 0.5), mean_s = 0;
    for (int i = 0; i < b->n_steps; i++)
        mean_s += b->step_s[i] / b->n_steps;
    const struct {
        const char *key;
        double value;
    } numbers[] = {
        {"images_per_s_per_rank", b->mean},
        {"images_per_s", b->mean * s->n_ranks},
        {"images_per_s_spread", b->spread * s->n_ranks},
        {"step_median_s", median_s},
        {"step_p95_s", percentile(b->step_s, b->n_steps, 0.95)},
        {"step_mean_s", mean_s},
        {"data_wait_s", b->wait_s},
        {"compute_s", b->compute_s},
        {"exposed_comm_s", b->comm_s},
        {"data_wait_share", b->wait_s / mean_s},
        {"compute_share", b->compute_s / mean_s},
        {"exposed_comm_share", b->comm_s / mean_s},
        {"peak_rss_bytes", b->rss_bytes},
    };
    for (size_t i = 0; i < DT_COUNT(numbers); i++)
        dt_jsonw_number(w, numbers[i].key, numbers[i].value);
}

static dt_status save_json(const struct bench *b, const char *path)
{
    const struct dt_session *s = &b->session;
    struct dt_jsonw w;
    char device[256];
    s->backend->describe(s->device, device, sizeof device);
    dt_jsonw_init(&w, true);
    dt_jsonw_begin(&w, NULL, '{');
    dt_jsonw_string(&w, "dtrain", DTRAIN_VERSION);
    dt_jsonw_string(&w, "device", device);
    dt_jsonw_string(&w, "model", s->model->name);
    dt_jsonw_integer(&w, "image_size", b->config.model.image_size);
    dt_jsonw_integer(&w, "ranks", s->n_ranks);
    dt_jsonw_integer(&w, "threads", s->n_threads);
    dt_jsonw_integer(&w, "global_batch", s->global_batch);
    dt_jsonw_integer(&w, "micro_batch", s->micro_batch);
    dt_jsonw_integer(&w, "steps", b->n_steps);
    write_numbers(b, &w);
    dt_jsonw_close(&w, '}');
    dt_status status = dt_jsonw_end(&w);
    if (status == DT_OK)
        status = dt_file_save(path, w.text, w.bytes);
    dt_jsonw_reset(&w);
    return status;
}

static void print_profile(const struct bench *b, FILE *out)
{
    struct dt_plan_times times;
    dt_plan_get_times(b->session.plan, &times);
    fprintf(out, "ms per step, rank 0\n");
    for (int op = 0; op < DT_N_OPS; op++)
        if (times.op_s[op] > 0)
            fprintf(out, "  %-20s %10.3f\n", dt_op_name((enum dt_op)op),
                    1e3 * times.op_s[op] / b->n_steps);
    fprintf(out, "  %-20s %10.3f\n", "update", 1e3 * times.update_s / b->n_steps);
    fprintf(out, "  %-20s %10.3f\n", "exposed communication", 1e3 * times.comm_s / b->n_steps);
}

static dt_status print_results(const struct bench *b, const struct dt_bench_options *options)
{
    const struct dt_session *s = &b->session;
    if (s->rank != 0)
        return DT_OK;
    printf("Img/sec per rank: %.1f +-%.1f\n", b->mean, b->spread);
    printf("Total img/sec on %d rank(s): %.1f +-%.1f\n", s->n_ranks, b->mean * s->n_ranks,
           b->spread * s->n_ranks);
    if (options->profile)
        print_profile(b, stdout);
    if (fflush(stdout) != 0)
        DT_FAIL(DT_ERR_IO, "cannot write the result to standard output");
    return options->json_path ? save_json(b, options->json_path) : DT_OK;
}

static dt_status run(struct bench *b, const struct dt_bench_options *options)
{
    struct dt_session *s = &b->session;
    struct dt_session_needs needs = {.train = true};
    DT_TRY(dt_session_open(s, &needs));
    DT_TRY(dt_plan_init_params(s->plan, b->config.train.seed));
    DT_TRY(dt_plan_broadcast(s->plan));
    DT_TRY(run_rounds(b));
    DT_TRY(summarise(b));
    return dt_session_agree(s, print_results(b, options));
}

dt_status dt_bench(struct dt_comm *comm, const struct dt_config *config,
                   const struct dt_bench_options *options, int *origin)
{
    struct bench *b = NULL;
    dt_status status = DT_OK;
    *origin = DT_ORIGIN_LOCAL;
    DT_TRY(DT_NEW(b, 1));
    b->config = *config;
    b->config.data.source = DT_SOURCE_SYNTHETIC;
    if (b->config.data.synthetic_train < b->config.train.global_batch)
        b->config.data.synthetic_train = b->config.train.global_batch;
    b->n_steps = config->bench.rounds * config->bench.steps_per_round;
    dt_session_init(&b->session, comm, &b->config);
    DT_TRY_OUT(DT_NEW(b->step_s, (size_t)b->n_steps));
    DT_TRY_OUT(DT_NEW(b->images_per_s, (size_t)config->bench.rounds));
    status = run(b, options);
out:
    *origin = b->session.origin;
    dt_session_close(&b->session, status);
    free(b->step_s);
    free(b->images_per_s);
    free(b);
    return status;
}
