/* Checkpoints of a small hand-made network: everything comes back, damage is noticed, old ones go.
 */
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "dtrain/file.h"
#include "train/checkpoint.h"
#include "train/safetensors.h"
#include "train/session.h"

struct fixture {
    struct dt_device *device;
    struct dt_graph *graph;
    struct dt_plan *plan;
    char dir[64];
};

static void ok(dt_status status)
{
    if (status != DT_OK)
        fail_msg("%s: %s (%s)", dt_status_name(status), dt_error_text(), dt_error_trail());
}

static int build(struct dt_graph *g)
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

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct dt_device_options device = {.threads = 1, .deterministic = true, .seed = 1};
    struct dt_plan_options options = {
        .bucket_bytes = 1 << 20, .last_bucket_bytes = 1 << 20, .n_ranks = 1};
    assert_non_null(f);
    ok(dt_backend_cpu.open(&f->device, &device));
    ok(dt_graph_create(&f->graph));
    ok(dt_graph_begin(f->graph, DT_TRAIN, 2, 8));
    dt_graph_softmax_xent(f->graph, build(f->graph), 0);
    ok(dt_graph_check(f->graph));
    ok(dt_graph_differentiate(f->graph));
    ok(dt_plan_build(&f->plan, f->graph, &dt_backend_cpu, f->device, NULL, &options));
    snprintf(f->dir, sizeof f->dir, "/tmp/dtrain-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    *state = f;
    return 0;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(nftw(f->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
    dt_plan_destroy(f->plan);
    dt_graph_destroy(f->graph);
    dt_backend_cpu.close(f->device);
    free(f);
    return 0;
}

static enum dt_arena home(const struct dt_tensor *tensor)
{
    return tensor->role == DT_PARAM  ? DT_ARENA_PARAMS
           : tensor->role == DT_STAT ? DT_ARENA_STATS
                                     : DT_ARENA_NONE;
}

/* Every element of every tensor gets a value of its own, from `first` on, or is compared with it.
 */
static void visit(struct fixture *f, float first, bool compare)
{
    float values[512], found[512];
    for (int t = 0; t < f->graph->n_tensors; t++) {
        const struct dt_tensor *tensor = &f->graph->tensor[t];
        size_t n = dt_tensor_elements(tensor);
        for (int pass = 0; pass < 2; pass++) {
            enum dt_arena arena = pass == 0 ? home(tensor) : DT_ARENA_MOMENTUM;
            if (home(tensor) == DT_ARENA_NONE || (pass == 1 && tensor->role != DT_PARAM))
                continue;
            assert_true(n <= 512);
            for (size_t i = 0; i < n; i++)
                values[i] = first + (float)t * 1000 + (float)pass * 500 + (float)i / 16;
            if (!compare) {
                ok(dt_plan_set(f->plan, arena, t, values));
                continue;
            }
            ok(dt_plan_get(f->plan, arena, t, found));
            assert_memory_equal(values, found, n * sizeof *values);
        }
    }
}

static struct dt_checkpoint example(int64_t step)
{
    struct dt_checkpoint state = {.step = step,
                                  .epoch = 3,
                                  .batch = 7,
                                  .n_passes = 2 * step,
                                  .best_top1 = 12.625,
                                  .eval_due = true,
                                  .n_ranks = 4,
                                  .precision = DT_PRECISION_FP16,
                                  .loss_scale = {.scale = 0.015625f, .n_clean = 1999},
                                  .model = "hand",
                                  .num_classes = 3,
                                  .image_size = 8,
                                  .global_batch = 64,
                                  .seed = UINT64_C(9007199254740992),
                                  .fingerprint = UINT64_C(0xfedcba9876543210),
                                  .n_train_images = 1000};
    return state;
}

static void test_round_trip(void **state)
{
    struct fixture *f = *state;
    struct dt_checkpoint in = example(42), out;
    char path[DT_PATH_MAX], found[DT_PATH_MAX];
    ok(dt_plan_init_params(f->plan, 1));
    visit(f, 1, false);
    ok(dt_checkpoint_save(path, f->dir, f->plan, &in, "{\"train\": {\"seed\": 1}}", 3));
    assert_string_equal(strrchr(path, '/'), "/step-000000042");
    visit(f, 5, false);
    visit(f, 5, true);
    ok(dt_checkpoint_find(found, &out, f->dir));
    assert_string_equal(found, path);
    assert_memory_equal(&in.model, &out.model, sizeof in.model);
    assert_true(in.step == out.step && in.epoch == out.epoch && in.batch == out.batch);
    assert_true(in.n_passes == out.n_passes && in.best_top1 == out.best_top1);
    assert_true(out.eval_due);
    assert_true(in.seed == out.seed && in.fingerprint == out.fingerprint);
    assert_true(in.n_ranks == out.n_ranks && in.n_train_images == out.n_train_images);
    assert_int_equal(out.precision, DT_PRECISION_FP16);
    assert_true(out.loss_scale.scale == in.loss_scale.scale);
    assert_int_equal(out.loss_scale.n_clean, 1999);
    ok(dt_checkpoint_match(&out, &in, found));
    ok(dt_checkpoint_load(f->plan, found));
    visit(f, 1, true);
}

/* Checkpoints of older versions have neither precision nor loss scale; damaged ones are not taken
 * over. */
static void test_precision(void **state)
{
    struct fixture *f = *state;
    struct dt_checkpoint in = example(3), out;
    char path[DT_PATH_MAX], file[DT_PATH_MAX];
    in.precision = -1;
    in.loss_scale.scale = 0;
    ok(dt_plan_init_params(f->plan, 1));
    ok(dt_checkpoint_save(path, f->dir, f->plan, &in, "{}", 3));
    ok(dt_checkpoint_read_state(&out, path));
    assert_int_equal(out.precision, -1);
    assert_true(out.loss_scale.scale == 0 && out.loss_scale.n_clean == 0);

    static const char *const damaged[] = {"-4", "0", "1e9", "\"8\"", "null"};
    ok(dt_file_path(file, "%s/state.json", path));
    in = example(3);
    ok(dt_checkpoint_save(path, f->dir, f->plan, &in, "{}", 3));
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        char *text, changed[4096];
        size_t bytes;
        ok(dt_file_load(&text, &bytes, file, sizeof changed / 2));
        char *at = strstr(text, "\"loss_scale\": ");
        assert_non_null(at);
        at += strlen("\"loss_scale\": ");
        int n = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, damaged[i],
                         at + strcspn(at, ",\n"));
        ok(dt_file_save(file, changed, (size_t)n));
        free(text);
        ok(dt_checkpoint_read_state(&out, path));
        assert_true(out.loss_scale.scale == 0);
        assert_int_equal(out.precision, DT_PRECISION_FP16);
    }
}

static void test_torch_names(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"conv1.weight",    "bn1.weight",
                                        "bn1.bias",        "bn1.running_mean",
                                        "bn1.running_var", "bn1.num_batches_tracked",
                                        "fc.weight",       "fc.bias"};
    struct dt_checkpoint in = example(5);
    char path[DT_PATH_MAX], file[DT_PATH_MAX];
    struct dt_st_reader *reader;
    int64_t tracked = 0;
    ok(dt_plan_init_params(f->plan, 1));
    ok(dt_checkpoint_save(path, f->dir, f->plan, &in, "{}", 3));
    ok(dt_file_path(file, "%s/model.safetensors", path));
    ok(dt_st_open(&reader, file));
    assert_int_equal(dt_st_count(reader), sizeof names / sizeof *names);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_non_null(dt_st_find(reader, names[i]));
    const struct dt_st_tensor *counter = dt_st_find(reader, "bn1.num_batches_tracked");
    assert_int_equal(counter->n_dims, 0);
    ok(dt_st_read_i64(reader, counter, &tracked));
    assert_int_equal(tracked, 10);
    dt_st_close(reader);
}

static bool is_there(const struct fixture *f, int64_t step)
{
    char path[DT_PATH_MAX];
    ok(dt_file_path(path, "%s/step-%09lld", f->dir, (long long)step));
    return dt_file_exists(path);
}

static void test_retention(void **state)
{
    struct fixture *f = *state;
    char path[DT_PATH_MAX], latest[DT_PATH_MAX], *text;
    struct dt_checkpoint out;
    size_t bytes;
    ok(dt_plan_init_params(f->plan, 1));
    for (int64_t step = 10; step <= 50; step += 10) {
        struct dt_checkpoint in = example(step);
        ok(dt_checkpoint_save(path, f->dir, f->plan, &in, "{}", 2));
    }
    assert_false(is_there(f, 10) || is_there(f, 20) || is_there(f, 30));
    assert_true(is_there(f, 40) && is_there(f, 50));
    ok(dt_file_path(latest, "%s/latest", f->dir));
    ok(dt_file_load(&text, &bytes, latest, 100));
    assert_string_equal(text, "step-000000050\n");
    free(text);
    /* Saving the same step again replaces it; keeping one never removes the newest. */
    struct dt_checkpoint in = example(50);
    ok(dt_checkpoint_save(path, f->dir, f->plan, &in, "{}", 1));
    assert_true(is_there(f, 50) && !is_there(f, 40));
    ok(dt_checkpoint_find(path, &out, f->dir));
    assert_int_equal(out.step, 50);
}

static void cut(const char *path, const char *name)
{
    char file[DT_PATH_MAX];
    ok(dt_file_path(file, "%s/%s", path, name));
    assert_int_equal(truncate(file, 100), 0);
}

static void test_damage_falls_back(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"model.safetensors", "optim.safetensors", "state.json"};
    char path[DT_PATH_MAX], first[DT_PATH_MAX], found[DT_PATH_MAX];
    struct dt_checkpoint out, in = example(1);
    ok(dt_plan_init_params(f->plan, 1));
    ok(dt_checkpoint_save(first, f->dir, f->plan, &in, "{}", 10));
    for (int i = 0; i < 3; i++) {
        in = example(2 + i);
        ok(dt_checkpoint_save(path, f->dir, f->plan, &in, "{}", 10));
        ok(dt_checkpoint_find(found, &out, f->dir));
        assert_string_equal(found, path);
        cut(path, names[i]);
        ok(dt_checkpoint_find(found, &out, f->dir));
        assert_string_equal(found, first);
    }
    cut(first, names[0]);
    ok(dt_checkpoint_find(found, &out, f->dir));
    assert_string_equal(found, "");
}

static void test_match_lists_all(void **state)
{
    (void)state;
    struct dt_checkpoint a = example(1), b = example(9);
    ok(dt_checkpoint_match(&a, &b, "x"));
    b.seed = 2;
    b.global_batch = 128;
    snprintf(b.model, sizeof b.model, "other");
    assert_int_equal(dt_checkpoint_match(&a, &b, "x"), DT_ERR_CONFIG);
    assert_non_null(strstr(dt_error_text(), "train.seed"));
    assert_non_null(strstr(dt_error_text(), "train.global_batch: 64 there, 128 now"));
    assert_non_null(strstr(dt_error_text(), "model.name: hand there, other now"));
    assert_null(strstr(dt_error_text(), "image_size"));
}

static void test_nothing_there(void **state)
{
    struct fixture *f = *state;
    char found[DT_PATH_MAX];
    struct dt_checkpoint out;
    ok(dt_checkpoint_find(found, &out, f->dir));
    assert_string_equal(found, "");
    ok(dt_checkpoint_find(found, &out, "/nonexistent/folder"));
    assert_string_equal(found, "");
    assert_int_equal(dt_checkpoint_read_state(&out, f->dir), DT_ERR_NO_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_precision, setup, teardown),
        cmocka_unit_test_setup_teardown(test_torch_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_retention, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage_falls_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_there, setup, teardown),
        cmocka_unit_test(test_match_lists_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
