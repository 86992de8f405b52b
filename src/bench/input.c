/* `dtrain bench --input`: throughput of the input pipeline, without a device or a network.
 *
 * First one thread produces rows stage by stage; then the loader runs alone, with a caller that
 * only takes batches, for 1, 2, 4 ... workers. Every measurement uses the same images twice: cold,
 * after asking the system to drop its cached pages, and then warm, from the page cache. All ranks
 * measure at the same time; data.cache_mb is not used. */
#include "bench/input.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/sort.h"
#include "base/text.h"
#include "bench/bench.h"
#include "dtrain/bench.h"
#include "engine/task.h"

enum {
    MAX_BATCH = 32,        /* rows per batch: the clock is read after each batch */
    MIN_ROUND_IMAGES = 32, /* images per rank and round */
    MIN_STAGE_IMAGES = 16  /* images per rank for the table of stages */
};
static const double round_s = 0.3, stages_s = 0.3;

/* One round: of one rank first, then summed over the ranks. */
struct round {
    double images_per_s, bytes_per_s, read_s, decode_s, workers_s;
    double seconds, images, bytes;
};
enum { N_ROUND_NUMBERS = sizeof(struct round) / sizeof(double) };

struct bench {
    struct dt_sets sets;
    struct dt_engine engine;
    struct dt_loader_options options;
    struct dt_input_result result;
    double *rounds[DT_N_INPUT_STAGES]; /* values of each round, for the median */
    double begin_s, planned_s;

    /* The point being measured: */
    struct dt_loader *loader;
    bool is_cold;
    uint32_t epoch;
    uint64_t batch, end;          /* next batch; batches from `end` on were not read cold */
    double mark_s;                /* when the loader's times were last read */
    struct dt_loader_times times; /* their values at that time */
};

static double median(double *values, int n)
{
    dt_sort_f64(values, (size_t)n);
    return dt_percentile_f64(values, (size_t)n, 0.5);
}

static void show_progress(const struct bench *b, const char *what)
{
    char text[160], left[32];
    double left_s = b->planned_s - (dt_clock_s() - b->begin_s);
    snprintf(text, sizeof text, "bench --input: %s, about %s left", what,
             dt_clock_format(left, sizeof left, left_s > 0 ? left_s : 0));
    dt_log_progress(text);
}

/* --- Stages: one thread --- */

static uint32_t images_per_rank(const struct bench *b)
{
    return dt_dataset_size(b->sets.train_set) / (uint32_t)b->engine.ranks.n_ranks;
}

/* Measures images first .. first+n-1 of this rank's part. */
static dt_status measure_share(const struct bench *b, struct dt_input_stages *out, uint32_t first,
                               uint32_t n)
{
    dt_pulse_beat(&dt_pulse_main);
    first += images_per_rank(b) * (uint32_t)b->engine.ranks.rank;
    return dt_input_measure(out, b->sets.train_set, &b->options, first, n);
}

/* Files not read in an earlier round are still cold. */
static dt_status run_stage_round(struct bench *b, uint32_t first, uint32_t n, int *n_rounds)
{
    struct dt_input_stages cold, warm;
    if (first == 0)
        dt_dataset_forget(b->sets.train_set);
    DT_TRY(measure_share(b, &cold, first, n));
    DT_TRY(measure_share(b, &warm, first, n));
    if (warm.images == 0)
        return DT_OK;
    const double seconds[DT_N_INPUT_STAGES] = {cold.read_s, warm.read_s, warm.entropy_s,
                                               warm.transform_s, warm.resize_s};
    for (int i = 0; i < DT_N_INPUT_STAGES; i++)
        b->rounds[i][*n_rounds] = seconds[i] / (double)warm.images;
    b->result.stage_images += (double)warm.images;
    b->result.stage_bytes += (double)warm.bytes;
    (*n_rounds)++;
    return DT_OK;
}

/* Each round takes about stages_s. */
static dt_status measure_stages(struct bench *b)
{
    const uint32_t max = images_per_rank(b);
    uint32_t first = 0, n = max < MIN_STAGE_IMAGES ? max : MIN_STAGE_IMAGES;
    struct dt_input_stages stages;
    int n_rounds = 0;
    const double begin_s = dt_clock_s();
    DT_TRY(measure_share(b, &stages, 0, n));
    const double wanted = n * stages_s / (dt_clock_s() - begin_s);
    if (wanted > n)
        n = wanted < max ? (uint32_t)wanted : max;
    for (int i = 0; i < b->result.n_rounds; i++) {
        DT_TRY(run_stage_round(b, first, n, &n_rounds));
        first = first + 2 * n <= max ? first + n : 0;
    }
    if (n_rounds == 0)
        DT_FAIL(DT_ERR_DATA, "none of the images tried can be decoded; dtrain verify checks all "
                             "images of a folder of shards");
    for (int i = 0; i < DT_N_INPUT_STAGES; i++)
        b->result.stage_s[i] = median(b->rounds[i], n_rounds);
    return DT_OK;
}

/* --- The loader alone --- */

static dt_status take_batch(struct bench *b)
{
    const struct dt_batch *batch;
    DT_TRY(dt_loader_next(b->loader, &batch));
    if (!batch)
        DT_FAIL(DT_ERR_INTERNAL, "the epoch ended before batch %" PRIu64, b->batch);
    dt_loader_release(b->loader, batch);
    dt_pulse_beat(&dt_pulse_main);
    b->batch++;
    if (b->is_cold && b->batch > b->end)
        b->end = b->batch;
    return DT_OK;
}

static void mark_round(struct bench *b)
{
    b->mark_s = dt_clock_s();
    dt_loader_times(b->loader, &b->times);
}

/* Cold: the time for dropping the pages is not counted. Warm: after a whole epoch the next one
 * follows without a pause. */
static dt_status begin_pass(struct bench *b)
{
    bool goes_on = !b->is_cold && b->batch == dt_loader_batches(b->loader);
    b->epoch = goes_on ? b->epoch + 1 : 0;
    b->batch = 0;
    if (b->is_cold)
        dt_dataset_forget(b->sets.train_set);
    DT_TRY(dt_loader_start(b->loader, b->epoch, 0));
    if (b->is_cold)
        mark_round(b);
    return DT_OK;
}

static dt_status run_round(struct bench *b, struct round *round)
{
    *round = (struct round){0};
    mark_round(b); /* exclude the time the ranks waited for each other */
    while (round->seconds < round_s || round->images < MIN_ROUND_IMAGES) {
        const double before_s = b->mark_s;
        const struct dt_loader_times before = b->times;
        DT_TRY(take_batch(b));
        mark_round(b);
        round->seconds += b->mark_s - before_s;
        round->images += (double)(b->times.images - before.images);
        round->bytes += (double)(b->times.bytes - before.bytes);
        round->read_s += b->times.read_s - before.read_s;
        round->decode_s += b->times.decode_s - before.decode_s;
        if (b->batch == (b->is_cold ? dt_loader_batches(b->loader) : b->end))
            DT_TRY(begin_pass(b));
    }
    round->images_per_s = round->images / round->seconds;
    round->bytes_per_s = round->bytes / round->seconds;
    round->workers_s = round->seconds * b->times.workers;
    return DT_OK;
}

static dt_status run_rounds(struct bench *b, struct dt_input_point *point)
{
    struct round round;
    double read_s = 0, decode_s = 0, workers_s = 0;
    char what[64];
    snprintf(what, sizeof what, "%d worker%s, %s", point->workers, DT_S(point->workers),
             b->is_cold ? "cold" : "warm");
    for (int i = 0; i < b->result.n_rounds; i++) {
        show_progress(b, what);
        DT_TRY(dt_comm_agree(b->engine.ranks.comm, run_round(b, &round)));
        DT_TRY(dt_comm_sum_f64(b->engine.ranks.comm, (double *)&round, N_ROUND_NUMBERS));
        b->rounds[0][i] = round.images_per_s;
        b->rounds[1][i] = round.bytes_per_s;
        read_s += round.read_s;
        decode_s += round.decode_s;
        workers_s += round.workers_s;
    }
    point->images_per_s = median(b->rounds[0], b->result.n_rounds); /* sorts */
    point->slowest = b->rounds[0][0];
    point->fastest = b->rounds[0][b->result.n_rounds - 1];
    point->bytes_per_s = median(b->rounds[1], b->result.n_rounds);
    point->read_share = read_s / workers_s;
    point->decode_share = decode_s / workers_s;
    point->wait_share = fmax(1 - point->read_share - point->decode_share, 0);
    return DT_OK;
}

/* Takes one batch first, so that the epoch is shuffled before the clock starts. A cold pass ends
 * with its epoch, because afterwards the images are no longer cold. */
static dt_status open_loader(struct bench *b, const struct dt_input_point *point)
{
    struct dt_loader_options options = b->options;
    options.workers = point->workers;
    options.epochs = point->is_cold ? 1 : 0;
    b->is_cold = point->is_cold;
    b->batch = 0;
    DT_TRY(dt_loader_create(&b->loader, b->sets.train_set, &options));
    DT_TRY(dt_loader_start(b->loader, 0, 0));
    DT_TRY(take_batch(b));
    if (b->is_cold)
        b->end = 0;
    else if (b->result.is_raw)
        b->end = dt_loader_batches(b->loader);
    b->batch = 0;
    return begin_pass(b);
}

static dt_status run_point(struct bench *b, int workers, bool is_cold)
{
    struct dt_input_point *point = &b->result.points[b->result.n_points++];
    *point = (struct dt_input_point){.workers = workers, .is_cold = is_cold};
    DT_TRY(dt_comm_agree(b->engine.ranks.comm, open_loader(b, point)));
    DT_TRY(run_rounds(b, point));
    dt_loader_destroy(b->loader);
    b->loader = NULL;
    return DT_OK;
}

static bool is_measured(const struct bench *b, int workers)
{
    bool is_power = (workers & (workers - 1)) == 0;
    return workers == b->result.workers || workers == b->result.cpus ||
           (is_power && workers < b->result.cpus);
}

static int max_workers(const struct bench *b)
{
    return b->result.workers > b->result.cpus ? b->result.workers : b->result.cpus;
}

/* --- All measurements --- */

/* Small batches, one per step; neither changes the rates. */
static dt_status begin_result(struct bench *b)
{
    const struct dt_config *config = b->engine.config;
    const int given = config->train.micro_batch_size;
    const uint32_t max = images_per_rank(b) < MAX_BATCH ? images_per_rank(b) : MAX_BATCH;
    int batch = given > 0 && given < (int)max ? given : (int)max;
    if (batch % 2 != 0 && batch > 1)
        batch--; /* mixup and CutMix need pairs */
    b->engine.stage.split.images = b->engine.ranks.n_workers * batch;
    b->engine.stage.split = dt_engine_split(&b->engine, 1);
    b->options = dt_engine_loader_options(&b->engine, true);
    const int side = dt_sets_crop(&b->sets, b->engine.stage.image_size);
    b->result = (struct dt_input_result){
        .path = config->data.train,
        .is_raw = dt_config_is_synthetic(config),
        .n_images = dt_dataset_size(b->sets.train_set),
        .image_size = side,
        .resize = side > 0 ? dt_crop_resize(&config->data, side) : 0,
        .n_ranks = b->engine.ranks.n_ranks,
        .n_rounds = config->bench.rounds,
        .round_s = round_s,
    };
    dt_sets_sizes(&b->sets, b->engine.stage.image_size, b->result.sizes);
    double fewest = -dt_comm_cpus(b->engine.ranks.comm); /* all ranks measure the same points */
    DT_TRY(dt_comm_max_f64(b->engine.ranks.comm, &fewest, 1));
    b->result.cpus = (int)-fewest;
    b->result.workers = config->data.workers > 0 ? config->data.workers : b->result.cpus;
    return DT_OK;
}

/* A benchmark does not create an index there. */
dt_status dt_bench_find_index(const struct dt_config *config, const struct dt_ranks *ranks,
                              const char **dir)
{
    char index[DT_PATH_MAX];
    int64_t found = 0;
    if (ranks->rank == 0 && dt_file_path(index, "%s/index", config->output.dir) == DT_OK)
        found = dt_file_exists(index);
    DT_TRY(dt_comm_sum_i64(ranks->comm, &found, 1));
    *dir = found ? config->output.dir : NULL;
    return DT_OK;
}

static dt_status make_room(struct bench *b)
{
    for (int i = 0; i < DT_N_INPUT_STAGES; i++)
        DT_TRY(DT_NEW(b->rounds[i], (size_t)b->result.n_rounds));
    return DT_OK;
}

static dt_status run_input_bench(struct bench *b, const char *json_path)
{
    struct dt_sets_options data = {.train = true, .is_raw = true};
    int n_points = 0;
    DT_TRY(dt_bench_find_index(b->engine.config, &b->engine.ranks, &data.cache_dir));
    DT_TRY(dt_sets_open(&b->sets, &data));
    if (images_per_rank(b) == 0)
        DT_FAIL_ON_ALL_RANKS(DT_ERR_CONFIG,
                             "the training data have fewer images than there are ranks");
    DT_TRY(begin_result(b));
    DT_TRY(dt_comm_agree(b->engine.ranks.comm, make_room(b)));
    for (int workers = 1; workers <= max_workers(b); workers++)
        n_points += is_measured(b, workers) * (2 - b->result.is_raw);
    b->begin_s = dt_clock_s();
    b->planned_s = b->result.n_rounds * (2 * stages_s + n_points * round_s);
    /* The stages in one thread, then the loader alone. */
    show_progress(b, "one thread, stage by stage");
    DT_TRY(dt_comm_agree(b->engine.ranks.comm, measure_stages(b)));
    DT_TRY(dt_comm_sum_f64(b->engine.ranks.comm, &b->result.stage_images, 1));
    DT_TRY(dt_comm_sum_f64(b->engine.ranks.comm, &b->result.stage_bytes, 1));
    DT_TRY(dt_comm_sum_f64(b->engine.ranks.comm, b->result.stage_s, DT_N_INPUT_STAGES));
    for (int i = 0; i < DT_N_INPUT_STAGES; i++)
        b->result.stage_s[i] /= b->engine.ranks.n_ranks;
    for (int workers = 1; workers <= max_workers(b); workers++) {
        if (!is_measured(b, workers))
            continue;
        if (!b->result.is_raw)
            DT_TRY(run_point(b, workers, true));
        DT_TRY(run_point(b, workers, false));
    }
    dt_log_progress("");
    const bool reports = b->engine.ranks.rank == 0;
    return dt_comm_agree(b->engine.ranks.comm,
                         reports ? dt_input_result_report(&b->result, json_path) : DT_OK);
}

dt_status dt_bench_input(struct dt_comm *comm, const struct dt_config *config,
                         const char *json_path)
{
    struct bench *b = NULL;
    DT_TRY(DT_NEW(b, 1));
    dt_sets_init(&b->sets, comm, config, dt_task_of(config));
    dt_engine_init(&b->engine, &b->sets);
    dt_status status = run_input_bench(b, json_path);
    dt_loader_destroy(b->loader);
    dt_engine_close(&b->engine, &b->sets, status);
    for (int i = 0; i < DT_N_INPUT_STAGES; i++)
        free(b->rounds[i]);
    free(b);
    return status;
}
