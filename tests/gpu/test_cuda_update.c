/* The kernels of update.cu and train_step.cu against plain loops. */
#include "kernel_rig.h"
#include "kernels/ranges.h"

/* --- Update --- */

enum { N = 4096 };

static const struct dt_range RANGES[] = {{8, 8, 1, 1, 0, false},
                                         {32, 72, 0, 5, 1, false},
                                         {112, 0, 1, 1, 2, false},
                                         {112, 2400, 1, 0.5f, 2, false},
                                         {3000, 1000, 0, 1, 3, false}};

struct arena {
    struct array params, momentum, shadow, grads;
};

static struct arena arena_create(enum dt_dtype grads_type, enum dt_dtype shadow_type)
{
    return (struct arena){array_random(DT_F32, N, 1), array_random(DT_F32, N, 2),
                          array_random(shadow_type, N, 3), array_random(grads_type, N, 4)};
}

static struct dt_update_memory memory_of(const struct arena *a, bool with_shadow)
{
    return (struct dt_update_memory){.params = a->params.memory,
                                     .momentum = a->momentum.memory,
                                     .shadow = with_shadow ? a->shadow.memory : NULL,
                                     .grads = a->grads.memory};
}

static void arena_get(struct arena *a)
{
    array_get(&a->params);
    array_get(&a->momentum);
    array_get(&a->shadow);
    array_get(&a->grads);
}

/* Which range element i belongs to, -1 = padding. */
static int range_of(size_t i)
{
    for (size_t r = 0; r < DT_COUNT(RANGES); r++)
        if (i >= RANGES[r].first && i < RANGES[r].first + RANGES[r].count)
            return (int)r;
    return -1;
}

static void check_element(const struct arena *got, const struct arena *was, size_t i,
                          const struct dt_step_values *v, double loss_scale, bool with_shadow)
{
    int r = range_of(i);
    double w = (double)was->params.value[i], m = (double)was->momentum.value[i];
    double g = (double)was->grads.value[i] / loss_scale;
    double momentum = (double)v->optim.momentum;
    if (r >= 0) {
        g += (double)RANGES[r].decay * (double)v->optim.weight_decay * w;
        m = momentum * m + g;
        w -= (double)RANGES[r].rate * (double)v->lr * (v->optim.nesterov ? g + momentum * m : m);
    }
    assert_value(&got->params, i, w, 1e-6);
    assert_value(&got->momentum, i, m, 1e-6);
    /* The shadow is the new parameter as it is, rounded once. */
    double shadow = r >= 0 && with_shadow
                        ? (double)stored(got->shadow.type, (double)got->params.value[i])
                        : (double)was->shadow.value[i];
    assert_true((double)got->shadow.value[i] == shadow);
    assert_true(got->grads.value[i] == was->grads.value[i]);
    if (r < 0)
        assert_true(got->params.value[i] == was->params.value[i] &&
                    got->momentum.value[i] == was->momentum.value[i]);
}

static void check_update(enum dt_dtype grads_type, enum dt_dtype shadow_type, bool with_shadow,
                         float loss_scale, const struct dt_step_values *values)
{
    struct arena got = arena_create(grads_type, shadow_type);
    struct arena was = arena_create(grads_type, shadow_type);
    const struct dt_scale_state state = {.scale = loss_scale, .clip = 1};
    const struct dt_update_memory memory = memory_of(&got, with_shadow);
    struct dt_step_values *step = struct_create(values, sizeof *values);
    struct dt_scale_state *scale = struct_create(&state, sizeof state);
    CUDA(dt_kernel_update(stream, DT_OPTIM_SGD, &memory, shadow_type, grads_type, RANGES,
                          (int)DT_COUNT(RANGES), step, scale));
    arena_get(&got);
    for (size_t i = 0; i < N; i++)
        check_element(&got, &was, i, values, (double)loss_scale, with_shadow);
    free_all();
}

TEST(update)
{
    const struct dt_step_values plain = {.lr = 0.1f,
                                         .optim = {.momentum = 0.9, .weight_decay = 0.01f}};
    struct dt_step_values nesterov = plain;
    nesterov.optim.nesterov = true;
    for (size_t g = 0; g < DT_COUNT(TYPES); g++)
        for (size_t s = 0; s < DT_COUNT(TYPES); s++) {
            check_update(TYPES[g], TYPES[s], true, 1, &plain);
            check_update(TYPES[g], TYPES[s], true, 8, &nesterov);
            check_update(TYPES[g], TYPES[s], false, 1, &nesterov);
        }
}

/* Nothing happens after a gradient that is not finite, nor without ranges. */
TEST(update_left_out)
{
    const struct dt_step_values values = {.lr = 0.1f};
    const struct dt_scale_state found = {.scale = 2, .found = 1, .clip = 1};
    struct arena got = arena_create(DT_F16, DT_F16), was = arena_create(DT_F16, DT_F16);
    struct dt_step_values *step = struct_create(&values, sizeof values);
    struct dt_scale_state *scale = struct_create(&found, sizeof found);
    const struct dt_update_memory memory = memory_of(&got, true);
    CUDA(dt_kernel_update(stream, DT_OPTIM_SGD, &memory, DT_F16, DT_F16, RANGES,
                          (int)DT_COUNT(RANGES), step, scale));
    CUDA(dt_kernel_update(stream, DT_OPTIM_SGD, &memory, DT_F16, DT_F16, RANGES, 0, step, scale));
    arena_get(&got);
    assert_memory_equal(got.params.value, was.params.value, N * sizeof(float));
    assert_memory_equal(got.momentum.value, was.momentum.value, N * sizeof(float));
    assert_memory_equal(got.shadow.value, was.shadow.value, N * sizeof(float));
    free_all();
}

TEST(update_refuses)
{
    const struct dt_range odd = {0, 12, 1, 1, 0, false};
    const struct dt_update_memory none = {0};
    static const struct dt_range many[DT_MAX_RANGES + 1];
    assert_int_equal(
        dt_kernel_update(stream, DT_OPTIM_SGD, &none, DT_F32, DT_F32, &odd, 1, NULL, NULL),
        cudaErrorInvalidValue);
    assert_int_equal(dt_kernel_update(stream, DT_OPTIM_SGD, &none, DT_F32, DT_F32, many,
                                      DT_MAX_RANGES + 1, NULL, NULL),
                     cudaErrorInvalidValue);
}

/* --- Sums and conversion --- */

static void check_accumulate(enum dt_dtype type, size_t count)
{
    struct array src = array_random(type, count, 1), dst = array_random(DT_F32, count, 2);
    CUDA(dt_kernel_accumulate(stream, dst.memory, type, src.memory, count, true));
    array_get(&dst);
    for (size_t i = 0; i < count; i++)
        assert_true(dst.value[i] == src.value[i]);
    CUDA(dt_kernel_accumulate(stream, dst.memory, type, src.memory, count, false));
    array_get(&dst);
    for (size_t i = 0; i < count; i++)
        assert_true(dst.value[i] == src.value[i] + src.value[i]);
    free_all();
}

static void check_convert(enum dt_dtype type, size_t count)
{
    struct array src = array_random(DT_F32, count, 1), dst = array_create(type, count);
    src.value[0] = NAN;
    src.value[1] = 65519; /* fp16: the largest that is not infinite */
    src.value[2] = 65520;
    src.value[3] = 1e-7f;
    src.value[4] = -3e38f;
    array_put(&src);
    CUDA(dt_kernel_convert(stream, type, dst.memory, src.memory, count));
    array_get(&dst);
    assert_true(isnan(dst.value[0]));
    for (size_t i = 1; i < count; i++)
        assert_true(dst.value[i] == stored(type, (double)src.value[i]));
    free_all();
}

TEST(accumulate_and_convert)
{
    for (size_t t = 0; t < DT_COUNT(TYPES); t++) {
        check_accumulate(TYPES[t], 8);
        check_accumulate(TYPES[t], 5000);
        check_convert(TYPES[t], 8);
        check_convert(TYPES[t], 5000);
    }
}

/* --- The step's values and the loss scale --- */

static void check_found(enum dt_dtype type, float value, size_t at, int32_t was, int32_t found)
{
    enum { COUNT = 4104 };
    struct array src = array_random(type, COUNT, 1);
    struct dt_scale_state got = {0}, *scale = struct_create(&got, sizeof got);
    got.found = was;
    src.value[at] = value;
    array_put(&src);
    CUDA(dt_kernel_set_scale(stream, scale, &got));
    CUDA(dt_kernel_check(stream, scale, type, src.memory, COUNT));
    struct_get(&got, scale, sizeof got);
    assert_int_equal(got.found, found);
    free_all();
}

TEST(check)
{
    for (size_t t = 0; t < DT_COUNT(TYPES); t++) {
        check_found(TYPES[t], 1, 0, 0, 0);
        check_found(TYPES[t], 1, 0, 1, 1);
        check_found(TYPES[t], TYPES[t] == DT_F16 ? 65504 : 0x1p127f, 7, 0, 0);
        check_found(TYPES[t], NAN, 0, 0, 1);
        check_found(TYPES[t], INFINITY, 2051, 0, 1);
        check_found(TYPES[t], -INFINITY, 4103, 0, 1);
    }
}

TEST(settle)
{
    struct dt_scale_state want = {
        .scale = 1024, .n_clean = DT_SCALE_GROWTH_STEPS - 2, .dynamic = 1};
    struct dt_scale_state *scale = struct_create(&want, sizeof want), got;
    struct dt_step_counters sums = {.n = 7}, read;
    struct dt_step_counters *counters = struct_create(&sums, sizeof sums);
    for (int i = 0; i < 6; i++) {
        struct_get(&got, scale, sizeof got);
        got.found = want.found = i == 3;
        CUDA(dt_kernel_set_scale(stream, scale, &got));
        CUDA(dt_kernel_settle(stream, scale, counters));
        dt_scale_state_advance(&want, &sums);
        struct_get(&got, scale, sizeof got);
        struct_get(&read, counters, sizeof read);
        assert_true(got.scale == want.scale && got.n_clean == want.n_clean &&
                    got.found == want.found && got.n_in_a_row == want.n_in_a_row);
        assert_memory_equal(&read, &sums, sizeof read);
    }
    assert_true(want.scale == 1024 && sums.n_skipped == 1 && want.n_clean == 2);
    free_all();
}

/* Values are taken when the call is made, also where the stream is far behind. */
TEST(set_step)
{
    const struct dt_step_values zero = {0};
    const struct dt_scale_state one = {.n_updates = 1};
    struct dt_scale_state *scale = struct_create(&one, sizeof one);
    struct dt_step_values *step = struct_create(&zero, sizeof zero), got[3];
    struct dt_step_values values = {
        .lr = 0.5f, .optim = {.momentum = 0.5f, .beta2 = 0.75f}, .step = 7, .first_row = 9};
    struct dt_step_values *copies = struct_create(got, sizeof got);
    for (uint32_t i = 0; i < 3; i++) {
        values.step = 7 + i;
        CUDA(dt_kernel_set_step(stream, step, &values, scale));
        CUDA(cudaMemcpyAsync(&copies[i], step, sizeof *step, cudaMemcpyDeviceToDevice, stream));
    }
    values = zero;
    struct_get(got, copies, sizeof got);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(got[i].step, 7 + i);
        assert_int_equal(got[i].first_row, 9);
        assert_true(got[i].lr == 0.5f && got[i].optim.momentum == 0.5f);
        assert_true(got[i].unbias1 == 1 / 0.75 && got[i].unbias2 == 1 / sqrt(1 - 0.5625));
    }
    free_all();
}

KERNEL_TEST_MAIN()
