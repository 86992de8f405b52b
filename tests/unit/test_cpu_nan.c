/* NaN gets through every ReLU of the backend's own loops, forward and backward, as in PyTorch: a
 * ReLU that turned it into 0 would hide that the training has diverged. But it leaves no traces in
 * running statistics, and a step with such gradients is skipped. */
#include <float.h>

#include "cpu_rig.h"

enum { N = 2, C = 20, SIZE = 5, COUNT = N * C * SIZE * SIZE };

static const int AT[] = {0, 333, COUNT - 1};

/* Values in [-1, 1), NaN at AT. */
static void set_values(struct rig *rig, int tensor)
{
    float *values = rig_fill(rig, tensor, 0, 1);
    for (size_t i = 0; i < DT_COUNT(AT); i++)
        values[AT[i]] = NAN;
    rig_set(rig, tensor, values);
    free(values);
}

static void assert_nan_at(struct rig *rig, int tensor)
{
    float *values = rig_get(rig, tensor);
    int n_nan = 0;
    for (int i = 0; i < COUNT; i++)
        n_nan += isnan(values[i]) != 0;
    for (size_t i = 0; i < DT_COUNT(AT); i++)
        assert_true(isnan(values[AT[i]]));
    assert_int_equal(n_nan, DT_COUNT(AT));
    free(values);
}

static int add_act(struct rig *rig, const char *name, enum dt_role role)
{
    return rig_tensor(rig, name, role, N, C, SIZE, SIZE);
}

TEST(relu)
{
    struct rig rig;
    rig_open(&rig, 2);
    int src = add_act(&rig, "src", DT_ACT), zero = add_act(&rig, "zero", DT_ACT);
    int dst = add_act(&rig, "dst", DT_ACT), sum = add_act(&rig, "sum", DT_ACT);
    rig_node(&rig, DT_OP_ACTIVATION, RIG_IDS(src), RIG_IDS(dst))->activation = DT_RELU;
    rig_node(&rig, DT_OP_ADD, RIG_IDS(zero, src), RIG_IDS(sum))->activation = DT_RELU;
    rig_build(&rig);
    set_values(&rig, src);
    rig_run(&rig, &(struct dt_scalars){.step = 1});
    assert_nan_at(&rig, dst);
    assert_nan_at(&rig, sum);
    rig_close(&rig);
}

/* The gradient passes where dst is NaN, and NaN in a gradient is not lost. */
TEST(relu_bwd)
{
    struct rig rig;
    rig_open(&rig, 2);
    int diff = add_act(&rig, "diff", DT_DIFF), diff2 = add_act(&rig, "diff2", DT_DIFF);
    int dst = add_act(&rig, "dst", DT_ACT);
    int one = add_act(&rig, "one", DT_DIFF), two = add_act(&rig, "two", DT_DIFF);
    const enum dt_op op = DT_OP_ACTIVATION_BWD;
    rig_node(&rig, op, RIG_IDS(diff, dst), RIG_IDS(one))->activation = DT_RELU;
    rig_node(&rig, op, RIG_IDS(diff, dst, diff2), RIG_IDS(two))->activation = DT_RELU;
    rig_build(&rig);
    set_values(&rig, dst);
    float *values = rig_fill(&rig, diff2, 3, 0);
    free(values);
    values = rig_fill(&rig, diff, 2, 0);
    rig_run(&rig, &(struct dt_scalars){.step = 1});
    float *first = rig_get(&rig, one), *second = rig_get(&rig, two);
    for (size_t i = 0; i < DT_COUNT(AT); i++) {
        assert_true(first[AT[i]] == 2);
        assert_true(second[AT[i]] == 5);
        values[AT[i]] = NAN;
    }
    rig_set(&rig, diff, values);
    rig_run(&rig, &(struct dt_scalars){.step = 1});
    assert_nan_at(&rig, one);
    assert_nan_at(&rig, two);
    free(first);
    free(second);
    free(values);
    rig_close(&rig);
}

/* Evaluation, so that NaN stays where it is. */
TEST(bn_relu)
{
    struct rig rig;
    rig_open(&rig, 2);
    int src = add_act(&rig, "src", DT_ACT), dst = add_act(&rig, "dst", DT_ACT);
    int scale = rig_vector(&rig, "scale", DT_PARAM, DT_F32, C);
    int shift = rig_vector(&rig, "shift", DT_PARAM, DT_F32, C);
    int mean = rig_vector(&rig, "mean", DT_STAT, DT_F32, C);
    int variance = rig_vector(&rig, "variance", DT_STAT, DT_F32, C);
    rig_node(&rig, DT_OP_BN, RIG_IDS(src, scale, shift, mean, variance), RIG_IDS(dst))->activation =
        DT_RELU;
    rig_build(&rig);
    free(rig_fill(&rig, scale, 1, 0));
    free(rig_fill(&rig, variance, 1, 0));
    set_values(&rig, src);
    rig_run(&rig, &(struct dt_scalars){.step = 1});
    assert_nan_at(&rig, dst);
    rig_close(&rig);
}

/* In training NaN takes its channel, whose running statistics stay as they were; those of the
 * others move. So does a variance beyond fp32. */
TEST(bn_training)
{
    const float values[] = {NAN, INFINITY, -INFINITY, 3e38f};
    const int channel = 11;
    for (size_t v = 0; v < DT_COUNT(values); v++) {
        struct rig rig;
        rig_open(&rig, 2);
        int src = add_act(&rig, "src", DT_ACT), dst = add_act(&rig, "dst", DT_ACT);
        int scale = rig_vector(&rig, "scale", DT_PARAM, DT_F32, C);
        int shift = rig_vector(&rig, "shift", DT_PARAM, DT_F32, C);
        int mean = rig_vector(&rig, "mean", DT_STAT, DT_F32, C);
        int variance = rig_vector(&rig, "variance", DT_STAT, DT_F32, C);
        int batch_mean = rig_vector(&rig, "batch_mean", DT_SAVED, DT_F32, C);
        int batch_var = rig_vector(&rig, "batch_var", DT_SAVED, DT_F32, C);
        struct dt_node *node = rig_node(&rig, DT_OP_BN, RIG_IDS(src, scale, shift, mean, variance),
                                        RIG_IDS(dst, batch_mean, batch_var));
        node->attr.bn.momentum = 0.1f;
        node->attr.bn.eps = 1e-5f;
        rig_build(&rig);
        free(rig_fill(&rig, scale, 1, 0));
        free(rig_fill(&rig, mean, 5, 0));
        free(rig_fill(&rig, variance, 7, 0));
        float *in = rig_fill(&rig, src, 0, 1);
        in[(1 * C + channel) * SIZE * SIZE + 3] = values[v];
        rig_set(&rig, src, in);
        rig_run(&rig, NULL);
        float *got_mean = rig_get(&rig, mean), *got_var = rig_get(&rig, variance);
        float *of_batch = rig_get(&rig, batch_var);
        for (int c = 0; c < C; c++) {
            assert_int_equal(got_mean[c] == 5, c == channel);
            assert_int_equal(got_var[c] == 7, c == channel);
            assert_int_equal(isfinite(of_batch[c]) != 0, c != channel);
        }
        free(in);
        free(got_mean);
        free(got_var);
        free(of_batch);
        rig_close(&rig);
    }
}

/* Wherever a value that is not finite stands, with any number of threads; the largest finite ones
 * are fine, and the step after a skipped one counts. */
static void check_one_value(struct rig *rig, float *grads, size_t count, size_t at, float value)
{
    const struct dt_segment segment = {.count = 1, .decay = 1, .rate = 1};
    const struct dt_scalars scalars = {.lr = 1};
    float w = 3, m = 0, g = 1;
    const struct dt_update update = {.params = &w,
                                     .momentum = &m,
                                     .grads = &g,
                                     .grads_type = DT_F32,
                                     .segments = &segment,
                                     .n_segments = 1};
    float was = grads[at];
    grads[at] = value;
    assert_ok(dt_backend_cpu.set_scalars(rig->dev, &scalars));
    assert_ok(dt_backend_cpu.check(rig->dev, grads, DT_F32, count, NULL));
    grads[at] = was;
    assert_ok(dt_backend_cpu.check(rig->dev, grads, DT_F32, count, NULL)); /* forgets nothing */
    assert_ok(dt_backend_cpu.update(rig->dev, &update));
    assert_true(w == (isfinite(value) ? 2 : 3));
    assert_true(m == (isfinite(value) ? 1 : 0));
    assert_ok(dt_backend_cpu.end_step(rig->dev));
    assert_ok(dt_backend_cpu.update(rig->dev, &update));
    assert_true(w == (isfinite(value) ? 1 : 2));
}

TEST(check)
{
    enum { N_GRADS = 48 };
    const float values[] = {NAN, -NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, FLT_MIN / 2, -0.0f};
    for (int threads = 1; threads <= 3; threads++) {
        float grads[N_GRADS];
        struct rig rig;
        struct dt_counters counters;
        rig_open(&rig, threads);
        for (size_t i = 0; i < N_GRADS; i++)
            grads[i] = rig_value(i);
        for (size_t v = 0; v < DT_COUNT(values); v++)
            for (size_t at = 0; at < N_GRADS; at++)
                check_one_value(&rig, grads, N_GRADS, at, values[v]);
        assert_ok(dt_backend_cpu.download(rig.dev, &counters));
        assert_int_equal(counters.n_skipped, 4 * N_GRADS);
        assert_int_equal(counters.n_in_a_row, 4 * N_GRADS);
        rig_close(&rig);
    }
}

/* Skipped steps of a list of steps ('x': not finite, '.': clean, '|': download). */
TEST(in_a_row)
{
    const char steps[] = "..xx.xxx.|.|xx|x|x.x|";
    const int64_t expected[][2] = {{5, 3}, {0, 0}, {2, 2}, {1, 3}, {2, 4}};
    const float good[16] = {1}, bad[16] = {INFINITY};
    struct rig rig;
    size_t n_downloads = 0;
    rig_open(&rig, 1);
    for (const char *step = steps; *step; step++) {
        struct dt_counters counters;
        if (*step != '|') {
            assert_ok(dt_backend_cpu.check(rig.dev, *step == 'x' ? bad : good, DT_F32, 16, NULL));
            assert_ok(dt_backend_cpu.end_step(rig.dev));
            continue;
        }
        assert_ok(dt_backend_cpu.download(rig.dev, &counters));
        assert_int_equal(counters.n_skipped, expected[n_downloads][0]);
        assert_int_equal(counters.n_in_a_row, expected[n_downloads++][1]);
    }
    assert_int_equal(n_downloads, DT_COUNT(expected));
    rig_close(&rig);
}

TEST_MAIN(NULL, NULL)
