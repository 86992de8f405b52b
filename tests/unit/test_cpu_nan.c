/* NaN gets through every ReLU of the backend's own loops, forward and backward, as in PyTorch: a
 * ReLU that turned it into 0 would hide that the training has diverged. */
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

static void test_relu(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 2);
    int src = add_act(&rig, "src", DT_ACT), zero = add_act(&rig, "zero", DT_ACT);
    int dst = add_act(&rig, "dst", DT_ACT), sum = add_act(&rig, "sum", DT_ACT);
    rig_node(&rig, DT_OP_RELU, RIG_IDS(src), RIG_IDS(dst));
    rig_node(&rig, DT_OP_ADD, RIG_IDS(zero, src), RIG_IDS(sum))->relu = true;
    rig_build(&rig);
    set_values(&rig, src);
    rig_run(&rig, &(struct dt_scalars){.step = 1});
    assert_nan_at(&rig, dst);
    assert_nan_at(&rig, sum);
    rig_close(&rig);
}

/* The gradient goes on where dst is NaN, and NaN in a gradient is not lost. */
static void test_relu_bwd(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 2);
    int diff = add_act(&rig, "diff", DT_DIFF), diff2 = add_act(&rig, "diff2", DT_DIFF);
    int dst = add_act(&rig, "dst", DT_ACT);
    int one = add_act(&rig, "one", DT_DIFF), two = add_act(&rig, "two", DT_DIFF);
    rig_node(&rig, DT_OP_RELU_BWD, RIG_IDS(diff, dst), RIG_IDS(one));
    rig_node(&rig, DT_OP_RELU_BWD, RIG_IDS(diff, dst, diff2), RIG_IDS(two));
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
static void test_bn_relu(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 2);
    int src = add_act(&rig, "src", DT_ACT), dst = add_act(&rig, "dst", DT_ACT);
    int scale = rig_vector(&rig, "scale", DT_PARAM, DT_F32, C);
    int shift = rig_vector(&rig, "shift", DT_PARAM, DT_F32, C);
    int mean = rig_vector(&rig, "mean", DT_STAT, DT_F32, C);
    int variance = rig_vector(&rig, "variance", DT_STAT, DT_F32, C);
    rig_node(&rig, DT_OP_BN, RIG_IDS(src, scale, shift, mean, variance), RIG_IDS(dst))->relu = true;
    rig_build(&rig);
    free(rig_fill(&rig, scale, 1, 0));
    free(rig_fill(&rig, variance, 1, 0));
    set_values(&rig, src);
    rig_run(&rig, &(struct dt_scalars){.step = 1});
    assert_nan_at(&rig, dst);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_relu), cmocka_unit_test(test_relu_bwd),
                                       cmocka_unit_test(test_bn_relu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
