/* Replicas on 1 to 4 ranks: a step that is not finite on one rank is skipped by all, statistics are
 * rank 0's, ranks whose bits differ are found and named, and so are slow ones. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "dist_rig.h"
#include "eval/evaluator.h"
#include "watch/stragglers.h"

enum { BATCH = 2, SIZE = 32, CLASSES = 10 };

/* --- An engine with a small network, with only what is needed here --- */

static struct dt_config config;
static struct dt_engine engine;

static struct dt_graph *make_graph(void)
{
    static const double mean[3] = {0.5, 0.5, 0.5}, std[3] = {0.2, 0.2, 0.2};
    const struct dt_model *model = dt_model_find("resnet20");
    const struct dt_model_options options = {.num_classes = CLASSES};
    struct dt_graph *g = NULL;
    assert_ok(dt_graph_create(&g));
    assert_ok(dt_graph_begin(g, DT_TRAIN, BATCH, SIZE, SIZE));
    int image = dt_graph_ingest(g, mean, std);
    dt_graph_softmax_xent(g, model->build(g, image, model, &options), 0);
    assert_ok(dt_graph_differentiate(g));
    return g;
}

static int open_engine(void **state)
{
    (void)state;
    const struct dt_device_options device = {.threads = 1, .deterministic = true};
    const struct dt_plan_options plan = {.bucket_bytes = 1 << 18,
                                         .last_bucket_bytes = 1 << 16,
                                         .n_ranks = n,
                                         .comm = {.plane = DT_PLANE_MPI, .sum = DT_SUM_RING}};
    struct dt_engine *e = &engine;
    struct dt_sets sets;
    dt_sets_init(&sets, comm, &config, dt_task_of(&config));
    dt_engine_init(e, &sets);
    e->backend = &dt_backend_cpu;
    assert_ok(e->backend->open(&e->device, &device));
    e->graph = make_graph();
    assert_ok(dt_plan_build(&e->plan, e->graph, e->backend, e->device, n > 1 ? comm : NULL, &plan));
    assert_ok(dt_plan_init_params(e->plan, 3));
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    dt_plan_destroy(engine.plan);
    dt_graph_destroy(engine.graph);
    dt_backend_cpu.close(engine.device);
    return 0;
}

/* A step on pixels that differ from rank to rank. */
static void train_step(float diff_scale)
{
    static uint8_t pixels[BATCH * SIZE * SIZE * 3];
    const int32_t labels[BATCH] = {rank % CLASSES, 5};
    const struct dt_scalars scalars = {
        .lr = 0.1f, .diff_scale = diff_scale, .optim = {.momentum = 0.9}};
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 7 + i / 97 + (size_t)rank * 31);
    const struct dt_feed batch = {.pixels = pixels, .labels = labels};
    assert_ok(dt_plan_feed(engine.plan, DT_TRAIN, &batch));
    assert_ok(dt_plan_train(engine.plan, DT_TRAIN, &scalars, 0, 1));
    assert_ok(dt_plan_end_feed(engine.plan));
}

/* All values of an arena, one tensor after the other; free(). */
static float *read_arena(enum dt_arena arena, size_t *count)
{
    const struct dt_graph *g = engine.graph;
    enum dt_role role = arena == DT_ARENA_STATS ? DT_STAT : DT_PARAM;
    size_t at = 0;
    *count = 0;
    for (int t = 0; t < g->n_tensors; t++)
        *count += g->tensor[t].role == role ? dt_tensor_elements(&g->tensor[t]) : 0;
    float *values = malloc(*count * sizeof *values);
    assert_non_null(values);
    for (int t = 0; t < g->n_tensors; t++)
        if (g->tensor[t].role == role) {
            assert_ok(dt_plan_get(engine.plan, arena, t, values + at));
            at += dt_tensor_elements(&g->tensor[t]);
        }
    return values;
}

/* Changes the bits of one value; returns what it was. */
static uint32_t change(enum dt_arena arena, const char *name, size_t at, uint32_t bits)
{
    int t = dt_graph_find(engine.graph, name);
    assert_true(t >= 0);
    float *values = malloc(dt_tensor_elements(&engine.graph->tensor[t]) * sizeof *values);
    uint32_t was;
    assert_non_null(values);
    assert_ok(dt_plan_get(engine.plan, arena, t, values));
    memcpy(&was, &values[at], sizeof was);
    memcpy(&values[at], &bits, sizeof bits);
    assert_ok(dt_plan_set(engine.plan, arena, t, values));
    free(values);
    return was;
}

/* --- Steps that are not finite --- */

TEST(skipped_by_all)
{
    size_t count;
    struct dt_counters counters;
    train_step(0.25f / (float)n);
    float *was = read_arena(DT_ARENA_PARAMS, &count), *m = read_arena(DT_ARENA_MOMENTUM, &count);
    train_step(rank == n - 1 ? NAN : 0.25f / (float)n);
    float *now = read_arena(DT_ARENA_PARAMS, &count), *m2 = read_arena(DT_ARENA_MOMENTUM, &count);
    assert_all(memcmp(was, now, count * sizeof *now) == 0);
    assert_all(memcmp(m, m2, count * sizeof *m) == 0);
    assert_ok(dt_backend_cpu.download(engine.device, &counters));
    assert_all(counters.n_skipped == 1 && counters.n_in_a_row == 1);
    assert_all(counters.n == 2 * BATCH && counters.n_finite == 2 * BATCH);
    train_step(0.25f / (float)n);
    free(now);
    now = read_arena(DT_ARENA_PARAMS, &count);
    assert_all(memcmp(was, now, count * sizeof *now) != 0);
    assert_ok(dt_backend_cpu.download(engine.device, &counters));
    assert_all(counters.n_skipped == 0 && counters.n_in_a_row == 0);
    assert_ok(dt_replicas_compare(&engine, 3, ""));
    free(was);
    free(now);
    free(m);
    free(m2);
}

/* --- Statistics --- */

TEST(broadcast_stats)
{
    size_t count;
    train_step(0.25f / (float)n);
    float *own = read_arena(DT_ARENA_STATS, &count), *root = malloc(count * sizeof *root);
    assert_non_null(root);
    memcpy(root, own, count * sizeof *root);
    assert_ok(dt_comm_bcast(comm, root, count * sizeof *root, 0));
    assert_all(rank == 0 || memcmp(own, root, count * sizeof *own) != 0);
    assert_ok(dt_plan_broadcast_stats(engine.plan));
    float *now = read_arena(DT_ARENA_STATS, &count);
    assert_all(memcmp(now, root, count * sizeof *now) == 0);
    free(own);
    free(root);
    free(now);
}

/* --- Comparison --- */

/* `status` on all ranks, whose text has all the words; "" = no more words. */
static void expect(dt_status status, const char *const words[5])
{
    dt_error_clear();
    dt_error_set_origin(-9);
    dt_status got = dt_replicas_compare(&engine, 12, rank == 0 ? "/x/step-000000010" : "");
    bool is_good = got == status && (status == DT_OK || dt_error_origin() == 0);
    for (int i = 0; i < 5 && words[i]; i++)
        is_good = is_good && strstr(dt_error_text(), words[i]);
    if (!is_good)
        print_error("rank %d: %d, not %d: %s\n", rank, got, status, dt_error_text());
    assert_all(is_good);
}

TEST(equal)
{
    expect(DT_OK, (const char *[5]){NULL});
    for (int i = 0; i < 3; i++)
        train_step(0.25f / (float)n);
    expect(DT_OK, (const char *[5]){NULL});
}

/* One bit on one rank, in the weights or in the momentum. */
TEST(one_differs)
{
    const enum dt_arena arenas[] = {DT_ARENA_PARAMS, DT_ARENA_MOMENTUM};
    char host[DT_HOST_MAX] = "", name[DT_HOST_MAX + 32], others[64];
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    if (n < 2)
        return;
    train_step(0.25f / (float)n);
    for (int odd = 0; odd < n; odd++)
        for (size_t a = 0; a < DT_COUNT(arenas); a++) {
            uint32_t was = 0;
            if (rank == odd)
                was = change(arenas[a], "fc.weight", 17, 0x3f000001);
            snprintf(name, sizeof name, "rank %d (%s)", odd, host);
            snprintf(others, sizeof others, "the %d others", n - 1);
            if (n > 2)
                expect(DT_ERR_DIVERGED,
                       (const char *[5]){name, others, "after step 12", "/x/step-000000010"});
            else
                expect(DT_ERR_DIVERGED, (const char *[5]){"rank 0 (", " and rank 1 (",
                                                          "no hash has a majority", "step 12"});
            if (n > 2)
                for (int i = 0; i < n; i++) {
                    snprintf(name, sizeof name, "rank %d (", i);
                    assert_all((strstr(dt_error_text(), name) != NULL) == (i == odd));
                }
            if (rank == odd)
                change(arenas[a], "fc.weight", 17, was);
        }
    expect(DT_OK, (const char *[5]){NULL});
}

/* Two pairs: no majority. */
TEST(no_majority)
{
    if (n != 4)
        return;
    uint32_t was = 0;
    if (rank % 2)
        was = change(DT_ARENA_PARAMS, "fc.bias", 0, 0x3f000001);
    expect(DT_ERR_DIVERGED,
           (const char *[5]){"rank 0 (", "), rank 1 (", "), rank 2 (", ") and rank 3 ("});
    if (rank % 2)
        change(DT_ARENA_PARAMS, "fc.bias", 0, was);
    expect(DT_OK, (const char *[5]){NULL});
}

TEST(not_finite)
{
    const uint32_t values[] = {0x7f800000, 0xff800000, 0x7fc00001, 0x7f800001};
    char name[32];
    for (size_t v = 0; v < DT_COUNT(values); v++)
        for (int bad = 0; bad < n; bad++) {
            uint32_t was = 0;
            if (rank == bad)
                was = change(v % 2 ? DT_ARENA_PARAMS : DT_ARENA_MOMENTUM, "fc.weight", 639,
                             values[v]);
            snprintf(name, sizeof name, "on rank %d (", bad);
            expect(DT_ERR_NUMERICAL,
                   (const char *[5]){v % 2 ? "the value of fc.weight" : "the momentum of fc.weight",
                                     name, "/x/step-000000010"});
            if (rank == bad)
                change(v % 2 ? DT_ARENA_PARAMS : DT_ARENA_MOMENTUM, "fc.weight", 639, was);
        }
    expect(DT_OK, (const char *[5]){NULL});
}

/* --- Stragglers --- */

struct watch {
    struct dt_stragglers stragglers;
    int64_t step;
    char dir[64];
};

static void watch_open(struct watch *w)
{
    snprintf(w->dir, sizeof w->dir, "/tmp/dtrain-replicas-XXXXXX");
    w->step = 1000;
    if (rank == 0) {
        assert_non_null(mkdtemp(w->dir));
        static struct dt_config reporting;
        const struct dt_events_options options = {.config = &reporting, .dir = w->dir};
        dt_config_init(&reporting);
        snprintf(reporting.output.sinks, sizeof reporting.output.sinks, "jsonl\n");
        assert_ok(dt_events_open(&engine.events, &options));
    }
    dt_stragglers_init(&w->stragglers, engine.ranks.comm, engine.events,
                       !dt_engine_has_times(&engine), w->step);
}

/* The warnings so far; removes the folder. */
static char *watch_close(struct watch *w)
{
    char path[DT_PATH_MAX], *text = NULL;
    size_t bytes;
    if (rank > 0)
        return NULL;
    dt_events_close(engine.events);
    engine.events = NULL;
    assert_ok(dt_file_path(path, "%s/metrics.jsonl", w->dir));
    assert_ok(dt_file_load(&text, &bytes, path, 1 << 20));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(w->dir), 0);
    return text;
}

static void run_windows(struct watch *w, int n_windows, double data_s, double work_s)
{
    for (int i = 0; i < 100 * n_windows; i++)
        assert_ok(dt_stragglers_step(&w->stragglers, ++w->step, data_s, work_s));
}

static int count(const char *text, const char *word)
{
    int found = 0;
    for (; (text = strstr(text, word)); text++)
        found++;
    return found;
}

/* Rank 0 has seen `n_warnings`, each with the words. */
static void assert_warned(char *text, int n_warnings, const char *word, const char *word2)
{
    bool is_good = rank > 0 || n == 1 ||
                   (count(text, "\"warning\"") == n_warnings && count(text, word) == n_warnings &&
                    count(text, word2) == n_warnings);
    if (!is_good)
        print_error("%s\n", text);
    assert_all(is_good && (rank > 0 || n > 1 || !strstr(text, "warning")));
    free(text);
}

TEST(slow_compute)
{
    struct watch w;
    watch_open(&w);
    bool slow = rank == n - 1;
    run_windows(&w, 2, 0.001, slow ? 0.030 : 0.010);
    run_windows(&w, 1, 0.001, 0.010); /* not three in a row */
    run_windows(&w, 7, 0.001, slow ? 0.030 : 0.010);
    char name[32];
    snprintf(name, sizeof name, "rank %d (", n - 1);
    assert_warned(watch_close(&w), 1, name, "takes 2.8 times as long");
}

TEST(slow_data)
{
    struct watch w;
    watch_open(&w);
    run_windows(&w, 4, rank == 0 ? 0.011 : 0.001, 0.009);
    assert_warned(watch_close(&w), 1, "rank 0 (", "mostly in data; 50 % of the job's time");
}

/* Again after it has recovered; not below 1.3. */
TEST(recovers)
{
    struct watch w;
    watch_open(&w);
    for (int i = 0; i < 2; i++) {
        run_windows(&w, 5, 0, rank == 0 ? 0.020 : 0.010);
        run_windows(&w, 2, 0, rank == 0 ? 0.0125 : 0.010);
    }
    assert_warned(watch_close(&w), 2, "rank 0 (", "mostly in compute; 50 %");
}

static dt_status no_stamp(struct dt_device *dev, int i, bool is_comm)
{
    (void)dev;
    (void)i;
    (void)is_comm;
    return DT_ERR_INTERNAL;
}

/* On such a device the time of a pass includes waiting, on the ranks that are not slow. */
TEST(device_with_queues)
{
    struct dt_backend queues = dt_backend_cpu;
    queues.stamp = no_stamp;
    struct watch w;
    engine.backend = &queues;
    watch_open(&w);
    run_windows(&w, 4, rank == 0 ? 0.011 : 0.001, rank == 0 ? 0.009 : 0.019);
    run_windows(&w, 4, 0.0001 * rank, 0.010); /* little data, much jitter */
    engine.backend = &dt_backend_cpu;
    assert_warned(watch_close(&w), 1, "rank 0 (", "mostly in data; 50 %");
}

RANKS_TEST_MAIN(open_engine, close_engine)
