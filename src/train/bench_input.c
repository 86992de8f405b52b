/* `dtrain bench --input`: what the input pipeline can deliver, without a device or a network.
 *
 * First one thread makes rows part by part; then the loader alone, with a caller that only takes
 * batches, for 1, 2, 4 ... workers. Every measurement begins with the same images: first after the
 * system was asked to drop its cached pages (cold: from the disk), then those again (warm: from the
 * page cache). All ranks measure at the same time; data.cache_mb is not used. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dtrain/clock.h"
#include "dtrain/file.h"
#include "dtrain/json.h"
#include "dtrain/log.h"
#include "dtrain/mem.h"
#include "dtrain/sort.h"
#include "dtrain/train.h"
#include "train/input_verdict.h"
#include "train/memory.h"
#include "train/session.h"

enum {
    BATCH_MOST = 32,   /* rows of a batch: the clock is read after each */
    ROUND_LEAST = 32,  /* images of a rank in a round */
    STAGES_LEAST = 16, /* images of a rank for the table of stages */
    POINTS_MOST = 80,
    VERDICT_TEXT = 512
};
static const double round_s = 0.3, stages_s = 0.3;

/* What one thread does for an image. */
enum stage { READ_COLD, READ_WARM, ENTROPY, TRANSFORM, RESIZE, N_STAGES };

struct point {
    int workers;
    bool is_cold;
    double images_per_s, bytes_per_s;            /* of all ranks, median of the rounds */
    double read_share, decode_share, wait_share; /* of the workers' time */
};

/* One round of one rank; then sums over the ranks. */
struct round {
    double images_per_s, bytes_per_s, read_s, decode_s, workers_s;
    double seconds, images, bytes;
};
enum { N_ROUND_NUMBERS = sizeof(struct round) / sizeof(double) };

struct bench {
    struct dt_session session;
    struct dt_loader_options options;
    bool is_raw;
    int n_rounds, cpus;
    double stage_s[N_STAGES];         /* per image: medians of the rounds, mean over the ranks */
    double stage_images, stage_bytes; /* measured warm, of all ranks */
    struct point points[POINTS_MOST];
    int n_points;
    double *rounds[N_STAGES]; /* numbers of each round, for the median */
    double begin_s, planned_s;
    const char *limit;
    int workers;           /* what the verdict is about */
    double per_rank_per_s; /* images; from the disk where that is the limit */
    char verdict[VERDICT_TEXT];

    /* The point that is measured: */
    struct dt_loader *loader;
    bool is_cold;
    uint32_t epoch;
    uint64_t batch, end;          /* the next one; what is behind was not read when it was cold */
    double mark_s;                /* when the loader's work was counted last */
    struct dt_loader_times times; /* then */
};

static double mean_bytes(const struct bench *b)
{
    return b->stage_bytes / b->stage_images;
}

static double median(double *values, int n)
{
    dt_sort_f64(values, (size_t)n);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
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
    return dt_dataset_size(b->session.train_set) / (uint32_t)b->session.n_ranks;
}

/* Of the images of this rank. */
static dt_status measure(const struct bench *b, struct dt_input_stages *out, uint32_t first,
                         uint32_t n)
{
    first += images_per_rank(b) * (uint32_t)b->session.rank;
    return dt_input_measure(out, b->session.train_set, &b->options, first, n);
}

/* Images of a round that takes stages_s; most is what the rank has. */
static dt_status choose_images(struct bench *b, uint32_t most, uint32_t *n)
{
    struct dt_input_stages stages;
    *n = most < STAGES_LEAST ? most : STAGES_LEAST;
    double begin_s = dt_clock_s();
    DT_TRY(measure(b, &stages, 0, *n));
    double wanted = *n * stages_s / (dt_clock_s() - begin_s);
    if (wanted > *n)
        *n = wanted < most ? (uint32_t)wanted : most;
    return DT_OK;
}

/* Files that were not read in an earlier round are cold without asking again. */
static dt_status run_stage_round(struct bench *b, uint32_t first, uint32_t n, int *n_rounds)
{
    struct dt_input_stages cold, warm;
    if (first == 0)
        dt_dataset_forget(b->session.train_set);
    DT_TRY(measure(b, &cold, first, n));
    DT_TRY(measure(b, &warm, first, n));
    if (warm.images == 0)
        return DT_OK;
    const double seconds[N_STAGES] = {cold.read_s, warm.read_s, warm.entropy_s, warm.transform_s,
                                      warm.resize_s};
    for (int i = 0; i < N_STAGES; i++)
        b->rounds[i][*n_rounds] = seconds[i] / (double)warm.images;
    b->stage_images += (double)warm.images;
    b->stage_bytes += (double)warm.bytes;
    (*n_rounds)++;
    return DT_OK;
}

static dt_status measure_stages(struct bench *b)
{
    uint32_t most = images_per_rank(b), first = 0, n;
    int n_rounds = 0;
    DT_TRY(choose_images(b, most, &n));
    for (int i = 0; i < b->n_rounds; i++) {
        DT_TRY(run_stage_round(b, first, n, &n_rounds));
        first = first + 2 * n <= most ? first + n : 0;
    }
    if (n_rounds == 0)
        DT_FAIL(DT_ERR_DATA, "none of the images tried can be decoded; dtrain verify looks at all "
                             "of a folder of shards");
    for (int i = 0; i < N_STAGES; i++)
        b->stage_s[i] = median(b->rounds[i], n_rounds);
    return DT_OK;
}

static dt_status run_stages(struct bench *b)
{
    struct dt_session *s = &b->session;
    show_progress(b, "one thread, stage by stage");
    DT_TRY(dt_session_agree(s, measure_stages(b)));
    DT_TRY(dt_comm_sum_f64(s->comm, &b->stage_images, 1));
    DT_TRY(dt_comm_sum_f64(s->comm, &b->stage_bytes, 1));
    DT_TRY(dt_comm_sum_f64(s->comm, b->stage_s, N_STAGES));
    for (int i = 0; i < N_STAGES; i++)
        b->stage_s[i] /= s->n_ranks;
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
    b->batch++;
    if (b->is_cold && b->batch > b->end)
        b->end = b->batch;
    return DT_OK;
}

static void mark(struct bench *b)
{
    b->mark_s = dt_clock_s();
    dt_loader_times(b->loader, &b->times);
}

/* Cold: dropping the pages takes time that does not count. Warm: a whole epoch goes on into the
 * next one without a break. */
static dt_status begin_pass(struct bench *b)
{
    bool goes_on = !b->is_cold && b->batch == dt_loader_batches(b->loader);
    b->epoch = goes_on ? b->epoch + 1 : 0;
    b->batch = 0;
    if (b->is_cold)
        dt_dataset_forget(b->session.train_set);
    DT_TRY(dt_loader_start(b->loader, b->epoch, 0));
    if (b->is_cold)
        mark(b);
    return DT_OK;
}

static void count(struct bench *b, struct round *round)
{
    double before_s = b->mark_s;
    struct dt_loader_times before = b->times;
    mark(b);
    round->seconds += b->mark_s - before_s;
    round->images += (double)(b->times.images - before.images);
    round->bytes += (double)(b->times.bytes - before.bytes);
    round->read_s += b->times.read_s - before.read_s;
    round->decode_s += b->times.decode_s - before.decode_s;
}

static dt_status run_round(struct bench *b, struct round *round)
{
    *round = (struct round){0};
    mark(b); /* the ranks have waited for each other */
    while (round->seconds < round_s || round->images < ROUND_LEAST) {
        DT_TRY(take_batch(b));
        count(b, round);
        if (b->batch == (b->is_cold ? dt_loader_batches(b->loader) : b->end))
            DT_TRY(begin_pass(b));
    }
    round->images_per_s = round->images / round->seconds;
    round->bytes_per_s = round->bytes / round->seconds;
    round->workers_s = round->seconds * b->times.workers;
    return DT_OK;
}

static dt_status run_rounds(struct bench *b, struct point *point)
{
    struct round round;
    double read_s = 0, decode_s = 0, workers_s = 0;
    char what[64];
    snprintf(what, sizeof what, "%d worker(s), %s", point->workers, b->is_cold ? "cold" : "warm");
    for (int i = 0; i < b->n_rounds; i++) {
        show_progress(b, what);
        DT_TRY(dt_session_agree(&b->session, run_round(b, &round)));
        DT_TRY(dt_comm_sum_f64(b->session.comm, (double *)&round, N_ROUND_NUMBERS));
        b->rounds[0][i] = round.images_per_s;
        b->rounds[1][i] = round.bytes_per_s;
        read_s += round.read_s;
        decode_s += round.decode_s;
        workers_s += round.workers_s;
    }
    point->images_per_s = median(b->rounds[0], b->n_rounds);
    point->bytes_per_s = median(b->rounds[1], b->n_rounds);
    point->read_share = read_s / workers_s;
    point->decode_share = decode_s / workers_s;
    point->wait_share = fmax(1 - point->read_share - point->decode_share, 0);
    return DT_OK;
}

/* One batch first, so that the order of the epoch is known when the clock starts. A cold pass ends
 * with its epoch: the images of the next one are no longer cold. */
static dt_status open_loader(struct bench *b, const struct point *point)
{
    struct dt_loader_options options = b->options;
    options.workers = point->workers;
    options.epochs = point->is_cold ? 1 : 0;
    b->is_cold = point->is_cold;
    b->batch = 0;
    DT_TRY(dt_loader_create(&b->loader, b->session.train_set, &options));
    DT_TRY(dt_loader_start(b->loader, 0, 0));
    DT_TRY(take_batch(b));
    if (b->is_cold)
        b->end = 0;
    else if (b->is_raw)
        b->end = dt_loader_batches(b->loader);
    b->batch = 0;
    return begin_pass(b);
}

static dt_status run_point(struct bench *b, int workers, bool is_cold)
{
    struct point *point = &b->points[b->n_points++];
    *point = (struct point){.workers = workers, .is_cold = is_cold};
    DT_TRY(dt_session_agree(&b->session, open_loader(b, point)));
    DT_TRY(run_rounds(b, point));
    dt_loader_destroy(b->loader);
    b->loader = NULL;
    return DT_OK;
}

static bool is_measured(const struct bench *b, int workers)
{
    int given = b->session.config->data.workers;
    bool is_power = (workers & (workers - 1)) == 0;
    return workers == given || workers == b->cpus || (is_power && workers < b->cpus);
}

static int most_workers(const struct bench *b)
{
    int given = b->session.config->data.workers;
    return given > b->cpus ? given : b->cpus;
}

static dt_status run_points(struct bench *b)
{
    for (int workers = 1; workers <= most_workers(b); workers++) {
        if (!is_measured(b, workers))
            continue;
        if (!b->is_raw)
            DT_TRY(run_point(b, workers, true));
        DT_TRY(run_point(b, workers, false));
    }
    return DT_OK;
}

/* --- Verdict --- */

static void say_decoding(struct bench *b, const struct point *cold, const struct point *warm)
{
    double n_ranks = b->session.n_ranks;
    char advice[160] = "";
    int resize = b->options.resize;
    if (dt_input_is_large(mean_bytes(b), resize))
        snprintf(advice, sizeof advice,
                 " Shards resized to %d (dtrain shard --resize-short %d) take less decoding.",
                 resize, resize);
    b->limit = "decoding";
    b->per_rank_per_s = warm->images_per_s / n_ranks;
    snprintf(b->verdict, sizeof b->verdict,
             "Decoding is the limit: with %d worker(s) a rank gets %.0f images/s (%.1f MB/s) from "
             "memory, %.0f from the disk. Training that takes more will wait for data.%s",
             warm->workers, b->per_rank_per_s, warm->bytes_per_s / n_ranks / 1e6,
             cold->images_per_s / n_ranks, advice);
}

static void say_reading(struct bench *b, const struct point *cold, const struct point *warm)
{
    double n_ranks = b->session.n_ranks;
    double set_mib = mean_bytes(b) * dt_dataset_size(b->session.train_set) / (1 << 20);
    b->limit = "reading";
    b->per_rank_per_s = cold->images_per_s / n_ranks;
    snprintf(b->verdict, sizeof b->verdict,
             "Reading is the limit: with %d worker(s) a rank gets %.0f images/s (%.1f MB/s) from "
             "the disk, %.0f from memory. Training that takes more will wait for data, unless the "
             "data set (%.0f MiB) stays in the page cache or in data.cache_mb.",
             cold->workers, b->per_rank_per_s, cold->bytes_per_s / n_ranks / 1e6,
             warm->images_per_s / n_ranks, ceil(set_mib));
}

static void say_raw(struct bench *b, const struct point *warm)
{
    b->limit = "generating";
    b->per_rank_per_s = warm->images_per_s / b->session.n_ranks;
    snprintf(b->verdict, sizeof b->verdict,
             "Synthetic images, nothing is read from a disk or decoded: with %d worker(s) a rank "
             "gets %.0f images/s.",
             warm->workers, b->per_rank_per_s);
}

static const struct point *find_point(const struct bench *b, bool is_cold)
{
    for (int i = 0; i < b->n_points; i++)
        if (b->points[i].workers == b->workers && b->points[i].is_cold == is_cold)
            return &b->points[i];
    return NULL;
}

static void find_verdict(struct bench *b)
{
    b->workers = b->session.config->data.workers;
    if (b->workers == 0)
        b->workers = b->cpus;
    const struct point *cold = find_point(b, true), *warm = find_point(b, false);
    if (!cold)
        say_raw(b, warm);
    else if (cold->read_share > cold->decode_share)
        say_reading(b, cold, warm);
    else
        say_decoding(b, cold, warm);
}

/* --- Results --- */

struct stage_row {
    const char *name, *key;
    enum stage stage;
};

static const struct stage_row stages_of_files[] = {
    {"read, cold", "read_cold_ms", READ_COLD}, {"read, warm", "read_ms", READ_WARM},
    {"entropy decode", "entropy_ms", ENTROPY}, {"transform", "transform_ms", TRANSFORM},
    {"resize", "resize_ms", RESIZE},
};
static const struct stage_row stages_of_raw[] = {
    {"generate", "read_ms", READ_WARM},
    {"copy", "resize_ms", RESIZE},
};

static const struct stage_row *list_stages(const struct bench *b, int *n)
{
    *n = b->is_raw ? DT_COUNT(stages_of_raw) : DT_COUNT(stages_of_files);
    return b->is_raw ? stages_of_raw : stages_of_files;
}

static double all_stages_s(const struct bench *b)
{
    double sum = 0;
    for (int i = READ_WARM; i < N_STAGES; i++)
        sum += b->stage_s[i];
    return sum;
}

/* share < 0: none */
static void print_stage(const struct bench *b, const char *name, double s, double share)
{
    char text[16] = "-", rate[16] = "-";
    if (share >= 0)
        snprintf(text, sizeof text, "%.1f %%", 100 * share);
    if (s > 0)
        snprintf(rate, sizeof rate, "%.1f", mean_bytes(b) / 1e6 / s);
    printf("  %-16s %9.3f %9s %9s\n", name, 1e3 * s, text, rate);
}

static void print_stages(const struct bench *b)
{
    int n;
    const struct stage_row *rows = list_stages(b, &n);
    double sum = all_stages_s(b);
    printf("#\n# One thread, %.0f images: where the time of an image goes\n", b->stage_images);
    printf("# %-16s %9s %9s %9s\n", "stage", "ms/image", "share", "MB/s");
    for (int i = 0; i < n; i++) {
        double s = b->stage_s[rows[i].stage];
        print_stage(b, rows[i].name, s, rows[i].stage == READ_COLD ? -1 : s / sum);
    }
    print_stage(b, "all, warm", sum, 1);
}

static void print_points(const struct bench *b)
{
    printf(
        "#\n# The loader alone, all ranks together; medians of %d rounds of %.1f s or more. read, "
        "decode and wait:\n# shares of the workers' time; wait: for a free row, or between rows.\n",
        b->n_rounds, round_s);
    printf("# %7s %6s %10s %9s %11s %8s %8s %8s\n", "workers", "files", "images/s", "MB/s",
           "per worker", "read", "decode", "wait");
    for (int i = 0; i < b->n_points; i++) {
        const struct point *p = &b->points[i];
        printf("  %7d %6s %10.1f %9.1f %11.1f %6.1f %% %6.1f %% %6.1f %%\n", p->workers,
               p->is_cold ? "cold" : "warm", p->images_per_s, p->bytes_per_s / 1e6,
               p->images_per_s / p->workers / b->session.n_ranks, 100 * p->read_share,
               100 * p->decode_share, 100 * p->wait_share);
    }
}

static void print_head(const struct bench *b)
{
    const struct dt_session *s = &b->session;
    double n = dt_dataset_size(s->train_set);
    char bytes[32];
    printf("# dtrain bench --input: what the input pipeline delivers when nothing trains\n");
    printf("# data     %.0f images, %.1f KB each, %s in all: %s\n", n, mean_bytes(b) / 1e3,
           dt_memory_format(bytes, sizeof bytes, (uint64_t)(n * mean_bytes(b))),
           b->is_raw ? "synthetic" : s->config->data.train);
    printf("# rows     %d x %d pixels\n", b->options.image_size, b->options.image_size);
    printf("# ranks    %d, each with %d CPU(s)\n", s->n_ranks, b->cpus);
    printf("# MB/s are of encoded bytes. cold: the page cache was dropped before, where the file "
           "system allows it.\n");
}

static void write_points(const struct bench *b, struct dt_jsonw *w)
{
    dt_jsonw_begin(w, "loader", '[');
    for (int i = 0; i < b->n_points; i++) {
        const struct point *p = &b->points[i];
        dt_jsonw_begin(w, NULL, '{');
        dt_jsonw_integer(w, "workers", p->workers);
        dt_jsonw_bool(w, "cold", p->is_cold);
        dt_jsonw_number(w, "images_per_s", p->images_per_s);
        dt_jsonw_number(w, "mb_per_s", p->bytes_per_s / 1e6);
        dt_jsonw_number(w, "images_per_s_per_worker",
                        p->images_per_s / p->workers / b->session.n_ranks);
        dt_jsonw_number(w, "read_share", p->read_share);
        dt_jsonw_number(w, "decode_share", p->decode_share);
        dt_jsonw_number(w, "wait_share", p->wait_share);
        dt_jsonw_close(w, '}');
    }
    dt_jsonw_close(w, ']');
}

static void write_stages(const struct bench *b, struct dt_jsonw *w)
{
    int n;
    const struct stage_row *rows = list_stages(b, &n);
    dt_jsonw_begin(w, "stages", '{');
    dt_jsonw_number(w, "images", b->stage_images);
    for (int i = 0; i < n; i++)
        dt_jsonw_number(w, rows[i].key, 1e3 * b->stage_s[rows[i].stage]);
    dt_jsonw_close(w, '}');
}

static dt_status save_json(const struct bench *b, const char *path)
{
    const struct dt_session *s = &b->session;
    struct dt_jsonw w;
    dt_jsonw_init(&w, true);
    dt_jsonw_begin(&w, NULL, '{');
    dt_jsonw_string(&w, "dtrain", DTRAIN_VERSION);
    dt_jsonw_integer(&w, "images", dt_dataset_size(s->train_set));
    dt_jsonw_number(&w, "mean_bytes", mean_bytes(b));
    dt_jsonw_integer(&w, "image_size", b->options.image_size);
    dt_jsonw_integer(&w, "ranks", s->n_ranks);
    dt_jsonw_integer(&w, "cpus_per_rank", b->cpus);
    dt_jsonw_integer(&w, "rounds", b->n_rounds);
    write_stages(b, &w);
    write_points(b, &w);
    dt_jsonw_string(&w, "limit", b->limit);
    dt_jsonw_integer(&w, "workers", b->workers);
    dt_jsonw_number(&w, "images_per_s_per_rank", b->per_rank_per_s);
    dt_jsonw_string(&w, "verdict", b->verdict);
    dt_jsonw_close(&w, '}');
    dt_status status = dt_jsonw_end(&w);
    if (status == DT_OK)
        status = dt_file_save(path, w.text, w.bytes);
    dt_jsonw_reset(&w);
    return status;
}

static dt_status print_results(struct bench *b, const char *json_path)
{
    dt_log_progress("");
    if (b->session.rank != 0)
        return DT_OK;
    find_verdict(b);
    print_head(b);
    print_stages(b);
    print_points(b);
    printf("#\n# %s\n", b->verdict);
    if (fflush(stdout) != 0)
        DT_FAIL(DT_ERR_IO, "cannot write the result to standard output");
    return json_path ? save_json(b, json_path) : DT_OK;
}

/* --- Together --- */

/* Batches are small and one to a step: that changes no rate. */
static void choose_options(struct bench *b)
{
    struct dt_session *s = &b->session;
    int given = s->config->train.micro_batch;
    uint32_t most = images_per_rank(b) < BATCH_MOST ? images_per_rank(b) : BATCH_MOST;
    int batch = given > 0 && given < (int)most ? given : (int)most;
    if (batch % 2 != 0 && batch > 1)
        batch--; /* pairs may be mixed */
    s->micro_batch = batch;
    s->global_batch = s->n_ranks * batch;
    b->options = dt_session_loader_options(s, true);
    b->is_raw = s->config->data.source == DT_SOURCE_SYNTHETIC;
    b->cpus = dt_session_cpus(s);
}

static double plan_s(const struct bench *b)
{
    int n = 0;
    for (int workers = 1; workers <= most_workers(b); workers++)
        n += is_measured(b, workers);
    return b->n_rounds * (2 * stages_s + n * (2 - b->is_raw) * round_s);
}

/* The index that training keeps in its run folder is used, but none is made there. */
static dt_status open_set(struct bench *b)
{
    struct dt_session *s = &b->session;
    char index[DT_PATH_MAX];
    const char *dir = s->config->output.dir;
    struct dt_session_needs needs = {.train = true, .input_only = true};
    int64_t found = 0;
    if (s->rank == 0 && dt_file_path(index, "%s/index", dir) == DT_OK)
        found = dt_file_exists(index);
    DT_TRY(dt_comm_sum_i64(s->comm, &found, 1));
    if (found)
        needs.cache_dir = dir;
    DT_TRY(dt_session_open(s, &needs));
    if (images_per_rank(b) > 0)
        return DT_OK;
    s->origin = 0;
    DT_FAIL(DT_ERR_CONFIG, "the training data have fewer images than there are ranks");
}

static dt_status make_room(struct bench *b)
{
    b->n_rounds = b->session.config->bench.rounds;
    for (int i = 0; i < N_STAGES; i++)
        DT_TRY(DT_NEW(b->rounds[i], (size_t)b->n_rounds));
    return DT_OK;
}

static dt_status run(struct bench *b, const char *json_path)
{
    DT_TRY(open_set(b));
    choose_options(b);
    DT_TRY(dt_session_agree(&b->session, make_room(b)));
    b->begin_s = dt_clock_s();
    b->planned_s = plan_s(b);
    DT_TRY(run_stages(b));
    DT_TRY(run_points(b));
    return dt_session_agree(&b->session, print_results(b, json_path));
}

dt_status dt_bench_input(struct dt_comm *comm, const struct dt_config *config,
                         const char *json_path, int *origin)
{
    struct bench *b = NULL;
    *origin = DT_ORIGIN_LOCAL;
    DT_TRY(DT_NEW(b, 1));
    dt_session_init(&b->session, comm, config);
    dt_status status = run(b, json_path);
    *origin = b->session.origin;
    dt_loader_destroy(b->loader);
    dt_session_close(&b->session, status);
    for (int i = 0; i < N_STAGES; i++)
        free(b->rounds[i]);
    free(b);
    return status;
}
