/* Momentum SGD and accumulation against plain loops. Label: numeric. */
#include "cpu_rig.h"

enum { N = 1000 };

static const struct dt_segment SEGMENTS[] = {
    {0, 1, 1, 1}, {16, 77, 0, 1}, {96, 3, 1, 10}, {112, 800, 1, 1}};

struct arrays {
    float w[N], m[N], g[N];
};

static void fill(struct arrays *a)
{
    for (size_t i = 0; i < N; i++) {
        a->w[i] = rig_value(i);
        a->m[i] = rig_value(i + N);
        a->g[i] = rig_value(i + 2 * N);
    }
}

/* Which segment element i belongs to, -1 = padding. */
static int segment_of(size_t i)
{
    for (size_t s = 0; s < DT_COUNT(SEGMENTS); s++) {
        if (i >= SEGMENTS[s].first && i < SEGMENTS[s].first + SEGMENTS[s].count)
            return (int)s;
    }
    return -1;
}

static void check(const struct dt_scalars *scalars, int threads)
{
    struct rig rig;
    static struct arrays got, was;
    fill(&got);
    fill(&was);
    rig_open(&rig, threads);
    const struct dt_update update = {.params = got.w,
                                     .momentum = got.m,
                                     .grads = got.g,
                                     .grads_type = DT_F32,
                                     .segments = SEGMENTS,
                                     .n_segments = (int)DT_COUNT(SEGMENTS)};
    OK(dt_backend_cpu.set_scalars(rig.dev, scalars));
    OK(dt_backend_cpu.update(rig.dev, &update));
    for (size_t i = 0; i < N; i++) {
        int s = segment_of(i);
        double momentum = (double)scalars->momentum;
        double w = (double)was.w[i], m = (double)was.m[i], g = (double)was.g[i];
        if (s >= 0) {
            g += (double)SEGMENTS[s].decay * (double)scalars->weight_decay * w;
            m = momentum * m + g;
            w -= (double)SEGMENTS[s].rate * (double)scalars->lr *
                 (scalars->nesterov ? g + momentum * m : m);
        }
        assert_near((double)got.w[i], w, s < 0 ? 0 : 1e-6);
        assert_near((double)got.m[i], m, s < 0 ? 0 : 1e-6);
    }
    assert_memory_equal(got.g, was.g, sizeof got.g);
    rig_close(&rig);
}

static void test_update(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        check(&(struct dt_scalars){.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f}, threads);
        check(
            &(struct dt_scalars){
                .lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .nesterov = true},
            threads);
        check(&(struct dt_scalars){.lr = 0.5f}, threads);
    }
}

static void test_update_of_nothing(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 2);
    OK(dt_backend_cpu.update(rig.dev, &(struct dt_update){.n_segments = 0}));
    rig_close(&rig);
}

static void test_accumulate(void **state)
{
    (void)state;
    struct rig rig;
    float a[37], b[37];
    for (size_t i = 0; i < 37; i++) {
        a[i] = rig_value(i);
        b[i] = rig_value(i + 37);
    }
    rig_open(&rig, 2);
    OK(dt_backend_cpu.accumulate(rig.dev, a, b, DT_F32, 36, false));
    for (size_t i = 0; i < 36; i++)
        assert_true(a[i] == rig_value(i) + b[i]);
    OK(dt_backend_cpu.accumulate(rig.dev, a, b, DT_F32, 35, true));
    for (size_t i = 0; i < 35; i++)
        assert_true(a[i] == b[i]);
    assert_true(a[35] == rig_value(35) + b[35] && a[36] == rig_value(36));
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_update),
                                       cmocka_unit_test(test_update_of_nothing),
                                       cmocka_unit_test(test_accumulate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
