/* The checks before training on 1 to 4 ranks: what differs on one rank is found on all, sums are
 * tested in the plan's own memory, samples are decoded, space is counted. */
#include "base/mem.h"
#include "dist_rig.h"
#include "engine/preflight.h"
#include "eval/evaluator.h"
#include "pack/pack.h"
#include "test_dir.h"

static struct dt_config config;

static bool has_text(const char *part)
{
    return strstr(dt_error_text(), part) != NULL;
}

/* A small network on synthetic images, with several buckets; one folder for all ranks. */
static int make_config(void **state)
{
    if (rank == 0)
        assert_ok(make_test_dir(state) == 0 ? DT_OK : DT_ERR_IO);
    assert_ok(dt_comm_bcast(comm, test_dir, sizeof test_dir, 0));
    dt_config_init(&config);
    snprintf(config.model.name, sizeof config.model.name, "tiny");
    config.model.num_classes = 10;
    config.model.image_size = 32;
    config.data.source = DT_SOURCE_SYNTHETIC;
    config.data.synthetic_train = 120;
    config.data.synthetic_val = 24;
    config.data.workers = 1;
    config.train.global_batch_size = 12;
    config.eval.batch_size_per_rank = 4;
    config.device.kind = DT_DEVICE_CPU;
    config.device.threads = 1;
    config.comm.bucket_cap_mb = 0.01;
    config.comm.last_bucket_cap_mb = 0.001;
    snprintf(config.output.dir, sizeof config.output.dir, "%s/run", test_dir);
    return 0;
}

static int remove_dir(void **state)
{
    assert_ok(dt_comm_barrier(comm));
    return rank == 0 ? remove_test_dir(state) : 0;
}

static struct dt_sets sets;
static struct dt_engine engine;

static void open_engine(const struct dt_config *with)
{
    const struct dt_engine_options options = {.train = true, .eval = true};
    dt_sets_init(&sets, comm, with, dt_task_of(with));
    dt_engine_init(&engine, &sets);
    assert_ok(dt_engine_open(&engine, &sets, &options, NULL));
}

static void close_engine(void)
{
    dt_engine_close(&engine, &sets, DT_OK);
}

/* --- Comparing --- */

static void fill_identity(struct dt_preflight_identity *identity, int r)
{
    *identity = (struct dt_preflight_identity){.config_hash = 17, .libraries = "oneDNN 3.1.1"};
    snprintf(identity->host, sizeof identity->host, "node%02d", r);
}

static void check_difference(const struct dt_preflight_identity *ranks, const char *const *parts)
{
    char warning[1200];
    assert_int_equal(dt_preflight_compare(ranks, 4, warning, sizeof warning), DT_ERR_DISAGREE);
    for (; *parts; parts++)
        assert_true(has_text(*parts));
    assert_string_equal(warning, "");
}

TEST_WITH(compare, make_config, remove_dir)
{
    struct dt_preflight_identity ranks[4];
    char warning[1200];
    for (int r = 0; r < 4; r++)
        fill_identity(&ranks[r], r);
    assert_ok(dt_preflight_compare(ranks, 4, warning, sizeof warning));
    assert_string_equal(warning, "");
    memcpy(ranks[2].libraries, "oneDNN 2.6.0", 13);
    assert_ok(dt_preflight_compare(ranks, 4, warning, sizeof warning));
    assert_non_null(strstr(warning, "rank 2 (node02) uses oneDNN 2.6.0, but rank 0 "
                                    "(node00) uses oneDNN 3.1.1"));
    fill_identity(&ranks[2], 2);

    ranks[1].config_hash++;
    check_difference(ranks, (const char *[]){"rank 1 (node01)", "a different configuration", NULL});
}

/* Whether all ranks report that only the last one differs, as an error of rank 0. */
static void check_agree(const char *part)
{
    char last[32];
    snprintf(last, sizeof last, "rank %d (", n - 1);
    dt_status status = dt_preflight_agree(&engine, &sets);
    if (n == 1)
        assert_all(status == DT_OK);
    else
        assert_all(status == DT_ERR_DISAGREE && dt_error_origin() == 0 && has_text(last) &&
                   has_text(part));
}

TEST_WITH(agree, make_config, remove_dir)
{
    static struct dt_config other;
    open_engine(&config);
    assert_all(dt_preflight_agree(&engine, &sets) == DT_OK);
    other = config;
    other.schedule.lr *= 2;
    if (rank == n - 1)
        engine.config = &other;
    check_agree("a different configuration");
    close_engine();
}

/* --- Sums --- */

/* Whether all gradients are zero. */
static bool is_clear(struct dt_plan *plan)
{
    size_t n_wrong = 0;
    for (int t = 0; t < plan->graph->n_tensors; t++) {
        size_t count = dt_tensor_elements(&plan->graph->tensor[t]);
        float *values = NULL;
        if (plan->place[t].arena != DT_ARENA_PARAMS)
            continue;
        assert_ok(DT_NEW(values, count));
        assert_ok(dt_plan_get(plan, DT_ARENA_GRADS, t, values));
        for (size_t i = 0; i < count; i++)
            n_wrong += values[i] != 0;
        free(values);
    }
    return n_wrong == 0;
}

static void check_sums(const struct dt_config *with)
{
    dt_status status;
    open_engine(with);
    assert_all(n == 1 || engine.plan->n_buckets > 2);
    assert_all(dt_plan_test_reduce(engine.plan, &status) == DT_OK && status == DT_OK);
    assert_all(is_clear(engine.plan));
    assert_all(dt_preflight_try(&engine, &sets) == DT_OK);
    close_engine();
}

TEST_WITH(sums, make_config, remove_dir)
{
    struct dt_config other = config;
    check_sums(&config);
    other.train.micro_batch_size = 1; /* sums of several passes: another arena */
    check_sums(&other);
}

static const struct dt_backend *real;

/* A device that gets the value of one element wrong. */
static dt_status set_wrong(struct dt_device *dev, const struct dt_graph *g, int tensor, void *dst,
                           const float *src)
{
    float *changed;
    size_t count = dt_tensor_elements(&g->tensor[tensor]);
    DT_TRY(DT_NEW(changed, count));
    memcpy(changed, src, count * sizeof *src);
    changed[count - 1] += 1;
    dt_status status = real->set_tensor(dev, g, tensor, dst, changed);
    free(changed);
    return status;
}

static dt_status get_wrong(struct dt_device *dev, const struct dt_graph *g, int tensor, float *dst,
                           const void *src)
{
    DT_TRY(real->get_tensor(dev, g, tensor, dst, src));
    dst[0] = -dst[0];
    return DT_OK;
}

static void check_fault(const struct dt_backend *wrong, int guilty)
{
    char name[64];
    open_engine(&config);
    if (rank == n - 1)
        engine.plan->backend = wrong;
    dt_status status = dt_preflight_try(&engine, &sets);
    engine.plan->backend = real;
    snprintf(name, sizeof name, "rank %d: a test sum over %d", guilty, n);
    assert_all(n == 1 ? status == DT_OK
                      : status == DT_ERR_DEVICE && dt_error_origin() == guilty && has_text(name));
    close_engine();
}

TEST_WITH(wrong_sums, make_config, remove_dir)
{
    struct dt_backend sends, receives;
    real = &dt_backend_cpu;
    sends = receives = *real;
    sends.set_tensor = set_wrong; /* all ranks see it */
    receives.get_tensor = get_wrong;
    check_fault(&sends, 0);
    check_fault(&receives, n - 1);
}

/* --- Samples --- */

static int truncate_file(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info;
    (void)where;
    return type == FTW_F ? truncate(path, 300) : 0;
}

TEST_WITH(samples, make_config, remove_dir)
{
    struct dt_config other = config;
    other.data.source = DT_SOURCE_FOLDER;
    snprintf(other.data.train, sizeof other.data.train, "%s/train", test_dir);
    snprintf(other.data.val, sizeof other.data.val, "%s/val", test_dir);
    if (rank == 0) {
        assert_ok(dt_shapes_write(other.data.train, 3, 32, 1));
        assert_ok(dt_shapes_write(other.data.val, 1, 32, 2));
    }
    assert_ok(dt_comm_barrier(comm));
    open_engine(&other);
    assert_all(dt_preflight_try(&engine, &sets) == DT_OK);
    assert_ok(dt_comm_barrier(comm));

    /* Small sets are decoded whole, each rank its share, and judged together. */
    other.data.check_images = 10;
    static const char *const bad[] = {"circle", "cross", "ring"}; /* 8 of 10 are tried */
    for (size_t i = 0; i < DT_COUNT(bad) && rank == 0; i++) {
        char path[DT_PATH_MAX];
        assert_ok(dt_file_path(path, "%s/%s/00000.jpg", other.data.val, bad[i]));
        assert_int_equal(truncate(path, 300), 0);
    }
    assert_ok(dt_comm_barrier(comm));
    assert_all(dt_preflight_try(&engine, &sets) == DT_ERR_DATA &&
               has_text("3 of 10 validation images are bad, but data.max_bad_fraction allows"));
    other.data.check_images = 0;
    assert_all(dt_preflight_try(&engine, &sets) == DT_OK); /* warnings only */
    assert_ok(dt_comm_barrier(comm));

    if (rank == 0)
        assert_int_equal(nftw(other.data.train, truncate_file, 16, FTW_PHYS), 0);
    assert_ok(dt_comm_barrier(comm));
    dt_status status = dt_preflight_try(&engine, &sets);
    char none[80];
    snprintf(none, sizeof none, "none of %d samples of data.train could be decoded; one is ",
             8 * n);
    assert_all(status == DT_ERR_DATA && dt_error_origin() == 0 && has_text(none) &&
               has_text(".jpg: "));
    close_engine();
}

/* --- Space --- */

TEST_WITH(space, make_config, remove_dir)
{
    const uint64_t bytes = (uint64_t)1 << 60;
    char path[DT_PATH_MAX];
    if (rank == 0) {
        assert_ok(dt_file_path(path, "%s/checkpoints/step-000000007", config.output.dir));
        assert_ok(dt_file_make_folder(config.output.dir));
        assert_int_equal(dt_preflight_space(&config, bytes), DT_ERR_CREATE);
        assert_true(has_text(" free; 5 checkpoints of 1153 PB need 5765 PB; "));
        assert_ok(dt_file_make_folder(path));
        assert_int_equal(dt_preflight_space(&config, bytes), DT_ERR_CREATE);
        assert_true(has_text("; 4 checkpoints of "));
        config.checkpoint.keep = 1;
        assert_ok(dt_file_path(path, "%s/checkpoints/step-000000008", config.output.dir));
        assert_ok(dt_file_make_folder(path));
        assert_int_equal(dt_preflight_space(&config, bytes), DT_ERR_CREATE);
        assert_true(has_text("; 1 checkpoint of "));
        assert_ok(dt_preflight_space(&config, 1000));
    }
}

RANKS_TEST_MAIN(NULL, NULL)
