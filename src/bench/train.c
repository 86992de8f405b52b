/* One measurement of `dtrain bench`: the training loop, or the forward pass alone, on batches that
 * pass through the loader as in training. Warm-up steps, then rounds; the slowest rank determines
 * the time of a round. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sort.h"
#include "bench/bench.h"

enum { PER_RANK = 32 /* images, unless the configuration says: as in Horovod's benchmark */ };

/* --- Steps --- */

/* Incomplete batches, at the end of a validation set, are skipped. */
static dt_status run_pass(struct dt_bench *b, struct dt_scalars *scalars, int pass)
{
    const struct dt_batch *batch = NULL;
    while (!batch || batch->n < dt_split_min(&b->engine.stage.split)) {
        if (batch)
            dt_loader_release(b->loader, batch);
        DT_TRY(dt_loader_next(b->loader, &batch));
        if (!batch)
            DT_TRY(dt_loader_start(b->loader, b->phase == DT_TRAIN ? ++b->epoch : 0, 0));
    }
    b->n_passes[dt_engine_program(&b->engine, b->phase, batch)]++;
    if (b->phase == DT_TRAIN)
        return dt_engine_train(&b->engine, &b->sets, batch, scalars, pass);
    dt_status status = dt_engine_eval(&b->engine, &b->sets, batch);
    dt_loader_release(b->loader, batch);
    return status;
}

/* Twice a second on a terminal; in a log a line after half a minute without output. */
static void show_progress(struct dt_bench *b)
{
    const double now_s = dt_clock_s(), quiet_s = now_s - b->said_s;
    const size_t done = (size_t)b->step;
    const size_t total = (size_t)(b->engine.config->bench.warmup_steps + b->n_steps);
    char left[32];
    if (b->engine.ranks.rank != 0 || quiet_s < 0.5)
        return;
    if (dt_log_is_terminal()) {
        dt_log_progress_of("bench", done, total, "steps", b->begin_s);
    } else if (quiet_s > 30) {
        double left_s = (now_s - b->begin_s) / (double)done * (double)(total - done);
        dt_log(DT_LOG_INFO, "bench: %zu of %zu steps, about %s left", done, total,
               dt_clock_format(left, sizeof left, left_s));
    } else {
        return;
    }
    b->said_s = now_s;
}

dt_status dt_bench_step(struct dt_bench *b)
{
    struct dt_scalars scalars = dt_engine_scalars(&b->engine, b->step++);
    for (int pass = 0; pass < b->engine.stage.split.n_passes; pass++)
        DT_TRY(run_pass(b, &scalars, pass));
    show_progress(b);
    return DT_OK;
}

static dt_status run_round(struct dt_bench *b, int round)
{
    const int n_steps = b->engine.config->bench.steps_per_round;
    DT_TRY(dt_comm_barrier(b->engine.ranks.comm));
    double begin_s = dt_clock_s(), last_s = begin_s;
    for (int i = 0; i < n_steps; i++) {
        const int64_t number = (int64_t)round * n_steps + i + 1;
        dt_timeline_step(&b->timeline, number);
        DT_TRY(dt_bench_step(b));
        dt_timeline_add(number, last_s);
        if (i == n_steps - 1) /* the host runs ahead until here: step times show its pace */
            DT_TRY(b->engine.backend->sync(b->engine.device));
        double now_s = dt_clock_s();
        b->step_s[round * n_steps + i] = now_s - last_s;
        last_s = now_s;
    }
    double round_s = last_s - begin_s;
    b->own.step_s += round_s / b->n_steps;
    DT_TRY(dt_comm_max_f64(b->engine.ranks.comm, &round_s, 1));
    b->images_per_s[round] = (double)n_steps * b->images / round_s;
    if (b->engine.ranks.rank == 0) {
        dt_log_progress("");
        printf("Iter #%d: %.1f img/sec per rank\n", round, b->images_per_s[round]);
        (void)fflush(stdout);
        b->said_s = dt_clock_s();
    }
    return DT_OK;
}

/* Seconds that this thread has waited for a CPU; NaN if the system does not tell. */
static double queued_s(void)
{
    unsigned long long ns = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "r");
    const bool is_known = file && fscanf(file, "%*u %llu", &ns) == 1;
    if (file)
        fclose(file);
    return is_known ? 1e-9 * (double)ns : NAN;
}

dt_status dt_bench_start(struct dt_bench *b)
{
    b->begin_s = b->said_s = dt_clock_s();
    return dt_loader_start(b->loader, 0, 0);
}

/* --- Results --- */

static dt_status collect(struct dt_bench *b)
{
    const size_t n = (size_t)b->n_steps;
    struct dt_plan_times times;
    struct rusage usage;
    double *sorted = b->step_s + n;
    memcpy(sorted, b->step_s, n * sizeof *sorted);
    dt_sort_f64(sorted, n);
    b->own.step_median_s = dt_percentile_f64(sorted, n, 0.5);
    dt_plan_get_times(b->engine.plan, &times);
    const bool has_times = dt_engine_has_times(&b->engine);
    b->own.compute_s = has_times ? (times.compute_s + times.update_s) / b->n_steps : NAN;
    b->own.comm_s = has_times ? times.comm_s / b->n_steps : NAN;
    getrusage(RUSAGE_SELF, &usage);
    b->own.rss_bytes = (double)usage.ru_maxrss * 1024;
    DT_TRY(dt_bench_peaks(b));
    DT_TRY(dt_comm_max_f64(b->engine.ranks.comm, b->step_s, b->n_steps));
    DT_TRY(dt_comm_gather(b->engine.ranks.comm, b->ranks, &b->own, sizeof b->own));
    dt_bench_sum_up(b);
    return DT_OK;
}

static dt_status show(const struct dt_bench *b, struct dt_jsonw *w)
{
    if (b->engine.ranks.rank != 0)
        return DT_OK;
    dt_bench_print(b);
    if (b->options->profile)
        DT_TRY(dt_bench_print_profile(b));
    dt_jsonw_begin(w, NULL, '{');
    dt_status status = dt_bench_write(b, w);
    if (status == DT_OK && b->options->profile)
        status = dt_bench_write_profile(b, w);
    dt_jsonw_close(w, '}');
    return status;
}

/* --- Begin and end --- */

uint32_t dt_bench_max_images(const struct dt_sets *sets, const struct dt_dataset *set)
{
    uint32_t n[DT_MAX_CANVASES], max = 0;
    dt_loader_count(n, NULL, set, &sets->config->data, &sets->canvases);
    for (int i = 0; i < DT_MAX_CANVASES; i++)
        max = n[i] > max ? n[i] : max;
    return max;
}

/* Neither the classes nor the split of the real data apply to synthetic ones. */
static void use_synthetic(struct dt_config *config, int global_batch_size)
{
    struct dt_config_data *data = &config->data;
    data->source = DT_SOURCE_SYNTHETIC;
    data->class_map[0] = '\0';
    data->val_fraction = 0;
    config->train.n_class_weights = 0;
    if (data->synthetic_train < global_batch_size)
        data->synthetic_train = global_batch_size;
    if (data->synthetic_val < global_batch_size)
        data->synthetic_val = global_batch_size;
}

/* One pass over the images of a rank per step. */
dt_status dt_bench_begin(struct dt_bench *b, struct dt_comm *comm, const struct dt_config *config,
                         const struct dt_bench_options *options, int per_rank)
{
    static struct dt_config own; /* after a failure workers may still read it */
    struct dt_config_train *train = &own.train;
    own = *config;
    train->n_stages = 0;
    *b = (struct dt_bench){
        .options = options, .old = b->old, .phase = options->forward_only ? DT_EVAL : DT_TRAIN};
    if (per_rank > 0)
        train->global_batch_size = 0;
    if (per_rank > 0 || (train->global_batch_size == 0 && train->batch_size_per_rank == 0))
        train->batch_size_per_rank = per_rank > 0 ? per_rank : PER_RANK;
    dt_sets_init(&b->sets, comm, &own, dt_task_of(&own));
    dt_engine_init(&b->engine, &b->sets);
    if (!options->real_data)
        use_synthetic(&own, b->engine.stage.split.images);
    else if (dt_config_is_synthetic(config))
        DT_FAIL_ON_ALL_RANKS(DT_ERR_CONFIG,
                             "--data real: the configuration has synthetic data only; name "
                             "a folder or shards in data.train");
    if (!options->forward_only &&
        (b->engine.ranks.n_parts > 1 || b->engine.ranks.n_workers < b->engine.ranks.n_ranks))
        DT_FAIL_ON_ALL_RANKS(
            DT_ERR_CONFIG,
            "dtrain bench measures steps in which all ranks update together; remove comm.mode "
            "async and train.sync_every (scripts/compare_modes.sh trains in all modes)");
    if (options->forward_only) { /* one pass over the images of a rank per step */
        struct dt_split *split = &b->engine.stage.split;
        own.eval.batch_size_per_rank = split->images / b->engine.ranks.n_ranks;
        split->images = own.eval.batch_size_per_rank * b->engine.ranks.n_ranks;
        *split = dt_engine_split(&b->engine, 1);
    }
    b->images = (double)b->engine.stage.split.images / b->engine.ranks.n_ranks;
    b->n_steps = own.bench.rounds * own.bench.steps_per_round;
    if (options->trace)
        return dt_timeline_init_all(&b->timeline, comm, b->n_steps, options->trace);
    return dt_timeline_init(&b->timeline, comm, NULL);
}

dt_status dt_bench_open(struct dt_bench *b, bool is_layout)
{
    const bool trains = b->phase == DT_TRAIN;
    const struct dt_engine_options engine = {
        .train = trains,
        .eval = !trains,
        .profile = b->options->profile,
        .no_comm = b->options->no_comm || !trains,
        .layout_only = is_layout,
    };
    const char *cache_dir = NULL;
    DT_TRY(dt_bench_find_index(b->engine.config, &b->engine.ranks, &cache_dir));
    return dt_engine_open(&b->engine, &b->sets, &engine, cache_dir);
}

static dt_status allocate(struct dt_bench *b)
{
    DT_TRY(DT_NEW(b->step_s, 2 * (size_t)b->n_steps)); /* the second half is for sorting */
    DT_TRY(DT_NEW(b->images_per_s, (size_t)b->engine.config->bench.rounds));
    DT_TRY(DT_NEW(b->ranks, (size_t)b->engine.ranks.n_ranks));
    return DT_NEW(b->hosts, (size_t)b->engine.ranks.n_ranks);
}

/* Called by all ranks, from sizes.c. The memory and the comparison with an old result are local to
 * a rank and may fail on one alone, so that the ranks agree on them before the first step: a rank
 * that left later would leave the others in a sum. The result is printed last and agreed on, too.
 */
dt_status dt_bench_measure(struct dt_bench *b, struct dt_jsonw *w)
{
    char host[DT_HOST_MAX];
    DT_TRY(dt_bench_open(b, false));
    b->loader = b->phase == DT_TRAIN ? b->sets.train : b->sets.val;
    if (b->phase == DT_EVAL &&
        dt_bench_max_images(&b->sets, b->sets.val_set) < (uint32_t)b->engine.stage.split.images)
        DT_FAIL_ON_ALL_RANKS(
            DT_ERR_CONFIG, "--forward-only: a batch of %d is more than the %u validation images%s",
            b->engine.stage.split.images, dt_bench_max_images(&b->sets, b->sets.val_set),
            b->sets.canvases.n > 1 ? " of a canvas" : "");
    DT_TRY(dt_comm_agree(b->engine.ranks.comm, allocate(b)));
    dt_host_name(host);
    DT_TRY(dt_comm_gather(b->engine.ranks.comm, b->hosts, host, sizeof host));
    const bool compares = b->engine.ranks.rank == 0 && b->old;
    DT_TRY(dt_comm_agree(b->engine.ranks.comm, compares ? dt_bench_check_old(b) : DT_OK));
    if (b->engine.ranks.rank == 0)
        dt_bench_print_header(b);
    DT_TRY(dt_plan_init_params(b->engine.plan, b->engine.config->train.seed));
    DT_TRY(dt_plan_broadcast(b->engine.plan));
    DT_TRY(dt_bench_start(b));
    for (int i = 0; i < b->engine.config->bench.warmup_steps; i++)
        DT_TRY(dt_bench_step(b));
    DT_TRY(b->engine.backend->sync(b->engine.device));
    const double wait_s = dt_loader_wait_s(b->loader), begin_queued_s = queued_s();
    dt_plan_reset_times(b->engine.plan);
    for (int round = 0; round < b->engine.config->bench.rounds; round++)
        DT_TRY(run_round(b, round));
    dt_timeline_step(&b->timeline, INT64_MAX);
    b->own.wait_s = (dt_loader_wait_s(b->loader) - wait_s) / b->n_steps;
    b->own.queued_s = (queued_s() - begin_queued_s) / b->n_steps;
    DT_TRY(collect(b));
    return dt_comm_agree(b->engine.ranks.comm, show(b, w));
}

void dt_bench_end(struct dt_bench *b, dt_status status)
{
    dt_engine_close(&b->engine, &b->sets, status);
    free(b->step_s);
    free(b->images_per_s);
    free(b->ranks);
    free(b->hosts);
}
