/* A small hand-made network whose state is saved into a temporary folder. */
#ifndef DTRAIN_TEST_CHECKPOINT_RIG_H
#define DTRAIN_TEST_CHECKPOINT_RIG_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/snapshot.h"
#include "engine/engine.h"
#include "test_status.h"

struct rig {
    struct dt_device *device;
    struct dt_graph *graph;
    struct dt_plan *plan;
    struct dt_snapshot *snapshot;
    struct dt_checkpoint_target target;
    char parent[64];
    char dir[96]; /* in `parent`; does not exist yet */
    dt_status commit_status;
    int n_commits; /* number of calls of may_commit */
};

#define ok(CALL) assert_ok(CALL)

static inline int build_network(struct dt_graph *g)
{
    const double mean[3] = {0.5, 0.5, 0.5}, std[3] = {0.25, 0.25, 0.25};
    struct dt_init normal = {DT_INIT_NORMAL, 0.1}, zero = {DT_INIT_CONSTANT, 0};
    struct dt_conv_options conv = {
        .out_channels = 5, .kernel = 3, .stride = 1, .pad = 1, .init = normal};
    int x = dt_graph_ingest(g, mean, std);
    x = dt_graph_conv(g, x, "conv1", conv);
    x = dt_graph_bn(g, x, "bn1", 1);
    x = dt_graph_relu(g, x, "relu");
    x = dt_graph_avg_pool(g, x, "pool", 1);
    return dt_graph_linear(g, x, "fc", 3, normal, zero);
}

static inline dt_status rig_commit(void *context)
{
    struct rig *r = context;
    r->n_commits++;
    if (r->commit_status != DT_OK)
        DT_FAIL(r->commit_status, "another run has taken over");
    return DT_OK;
}

static inline int rig_setup(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    struct dt_device_options device = {.threads = 1, .deterministic = true, .seed = 1};
    struct dt_plan_options options = {.bucket_bytes = 1 << 20,
                                      .last_bucket_bytes = 1 << 20,
                                      .n_ranks = 1,
                                      .optim = DT_OPTIM_ADAMW};
    assert_non_null(r);
    /* In memory if possible, because of thousands of fsyncs. */
    snprintf(r->parent, sizeof r->parent, "%s/dtrain-test-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    ok(dt_backend_cpu.open(&r->device, &device));
    ok(dt_graph_create(&r->graph));
    ok(dt_graph_begin(r->graph, DT_TRAIN, 2, 8, 8));
    dt_graph_softmax_xent(r->graph, build_network(r->graph), 0);
    ok(dt_graph_check(r->graph));
    ok(dt_graph_differentiate(r->graph));
    ok(dt_plan_build(&r->plan, r->graph, &dt_backend_cpu, r->device, NULL, &options));
    ok(dt_plan_init_params(r->plan, 1));
    ok(dt_snapshot_create(&r->snapshot, r->plan));
    assert_non_null(mkdtemp(r->parent));
    snprintf(r->dir, sizeof r->dir, "%s/checkpoints", r->parent);
    r->target = (struct dt_checkpoint_target){.dir = r->dir,
                                              .config_json = "{\"train\": {\"seed\": 1}}",
                                              .config_hash = UINT64_C(0xfedcba9876543210),
                                              .run_id = "0123-run",
                                              .build_id = "build",
                                              .repro = "a device; a library 1.2",
                                              .incarnation = 7,
                                              .resumed_step = -1,
                                              .config.keep = 3,
                                              .may_commit = rig_commit,
                                              .context = r};
    *state = r;
    return 0;
}

static inline int rig_remove_entry(const char *path, const struct stat *info, int type,
                                   struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

/* Removes a folder and its contents; it need not exist. */
static inline void rig_remove_tree(const char *path)
{
    if (dt_file_exists(path))
        assert_int_equal(nftw(path, rig_remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static inline int rig_teardown(void **state)
{
    struct rig *r = *state;
    rig_remove_tree(r->parent);
    dt_snapshot_destroy(r->snapshot);
    dt_plan_destroy(r->plan);
    dt_graph_destroy(r->graph);
    dt_backend_cpu.close(r->device);
    free(r);
    return 0;
}

/* A test with a rig of its own: `r`. */
#define RIG_TEST(NAME) RIG_TEST_WITH(NAME, rig_setup, rig_teardown)
#define RIG_TEST_WITH(NAME, BEFORE, AFTER)           \
    static void test_with_rig_##NAME(struct rig *r); \
    TEST_WITH(NAME, BEFORE, AFTER)                   \
    {                                                \
        test_with_rig_##NAME(*state);                \
    }                                                \
    static void test_with_rig_##NAME(struct rig *r)

/* folder/name; valid for the next 7 calls. */
static inline const char *rig_path(const char *folder, const char *name)
{
    static char paths[8][DT_PATH_MAX];
    static int next;
    char *path = paths[next++ % 8];
    ok(dt_file_path(path, "%s/%s", folder, name));
    return path;
}

/* Gives every element of every tensor a distinct value, counted from `first`, or compares it. */
static inline void rig_visit(struct rig *r, float first, bool compare)
{
    enum { MAX = 512 };
    float values[MAX], found[MAX];
    for (int t = 0; t < r->graph->n_tensors; t++) {
        const struct dt_tensor *tensor = &r->graph->tensor[t];
        size_t n = dt_tensor_elements(tensor);
        if (tensor->role != DT_PARAM && tensor->role != DT_STAT)
            continue;
        for (int pass = 0; pass < (tensor->role == DT_PARAM ? 3 : 1); pass++) {
            static const enum dt_arena arenas[] = {DT_ARENA_PARAMS, DT_ARENA_MOMENTUM,
                                                   DT_ARENA_SQUARE};
            enum dt_arena arena = tensor->role == DT_STAT ? DT_ARENA_STATS : arenas[pass];
            assert_true(n <= MAX);
            for (size_t i = 0; i < n; i++)
                values[i] = first + (float)t * 1000 + (float)pass * 300 + (float)i / 16;
            if (!compare) {
                ok(dt_plan_set(r->plan, arena, t, values));
                continue;
            }
            ok(dt_plan_get(r->plan, arena, t, found));
            assert_memory_equal(values, found, n * sizeof *values);
        }
    }
}

static inline struct dt_checkpoint rig_state(int64_t step)
{
    return (struct dt_checkpoint){.step = step,
                                  .epoch = 3,
                                  .batch = 7,
                                  .n_passes = 2 * step,
                                  .best = {DT_METRIC_TOP5, 12.625, 10, 1},
                                  .goal = {DT_METRIC_LOSS, 1.5, 20, 2},
                                  .goal_reference = 1.75,
                                  .goal_waits = 2,
                                  .plateau = {.best = 1.5, .waits = 3, .factor = 0.01},
                                  .epoch_loss = {.epoch = 3, .loss = 0.1, .weight = 24},
                                  .eval_due = true,
                                  .n_ranks = 4,
                                  .micro_batch_size = 13,
                                  .n_parts = 5,
                                  .precision = DT_PRECISION_FP16,
                                  .loss_scale = {.scale = 0.015625f, .n_clean = 1999},
                                  .model = "hand",
                                  .num_classes = 3,
                                  .image_size = 8,
                                  .global_batch_size = 64,
                                  .seed = UINT64_C(9007199254740991),
                                  .fingerprint = UINT64_C(0xfedcba9876543210),
                                  .n_train_images = 1000};
}

/* Fills in values that start at the step, and saves a checkpoint of them. */
static inline dt_status rig_save_state(struct rig *r, char *path, const struct dt_checkpoint *at)
{
    rig_visit(r, (float)at->step, false);
    ok(dt_snapshot_take(r->snapshot, at));
    return dt_checkpoint_write(path, &r->target, r->snapshot);
}

static inline dt_status rig_save(struct rig *r, char *path, int64_t step)
{
    const struct dt_checkpoint at = rig_state(step);
    return rig_save_state(r, path, &at);
}

/* Checks that the checkpoint holds what rig_save stored. */
static inline void rig_check(struct rig *r, const char *path, int64_t step)
{
    struct dt_checkpoint found;
    ok(dt_checkpoint_verify(&found, path));
    assert_int_equal(found.step, step);
    rig_visit(r, -1, false);
    ok(dt_checkpoint_load(r->plan, path, true));
    rig_visit(r, (float)step, true);
}

/* Makes the file unreadable; root changes its user ID until rig_unlock. */
static inline void rig_lock(const struct rig *r, const char *file)
{
    assert_int_equal(chmod(r->parent, 0755), 0);
    assert_int_equal(chmod(file, 0), 0);
    if (getuid() == 0)
        assert_int_equal(seteuid(65534), 0);
}

static inline void rig_unlock(const char *file)
{
    if (getuid() == 0)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(file, 0644), 0);
}

static inline bool rig_has(const struct rig *r, int64_t step)
{
    char path[DT_PATH_MAX];
    ok(dt_file_path(path, "%s/step-%09lld", r->dir, (long long)step));
    return dt_file_exists(path);
}

#endif
