/* The updates do not depend on the number of threads; accumulation against plain loops. What they
 * compute is tested for all devices (tests/ops/arena_cases.h). Label: numeric. */
#include "cpu_rig.h"

enum { N = 60000, N_NORMS = 64 };

static const struct dt_segment SEGMENTS[] = {{0, 1, 1, 1, 0, true},
                                             {16, 77, 0, 1, 1, false},
                                             {96, 3, 1, 10, 2, true},
                                             {112, 59800, 1, 1, 3, true}};

struct arrays {
    float w[N], m[N], v[N], g[N];
    double norms[N_NORMS];
};

static void update(struct arrays *a, enum dt_optim optim, int threads)
{
    struct rig rig;
    const struct dt_scalars scalars = {.lr = 0.1f,
                                       .optim = {.momentum = 0.9,
                                                 .beta2 = 0.99,
                                                 .eps = 1e-6f,
                                                 .weight_decay = 0.01f,
                                                 .trust = 0.01f,
                                                 .clip_norm = 2}};
    const struct dt_update update = {.optim = optim,
                                     .params = a->w,
                                     .momentum = a->m,
                                     .square = a->v,
                                     .norms = a->norms,
                                     .grads = a->g,
                                     .grads_type = DT_F32,
                                     .segments = SEGMENTS,
                                     .n_segments = (int)DT_COUNT(SEGMENTS)};
    memset(a, 0, sizeof *a);
    for (size_t i = 0; i < N; i++) {
        a->w[i] = rig_value(i);
        a->g[i] = rig_value(i + N);
    }
    rig_open(&rig, threads);
    assert_ok(dt_backend_cpu.set_scalars(rig.dev, &scalars));
    for (int step = 0; step < 3; step++) {
        assert_ok(dt_backend_cpu.check(rig.dev, a->g, DT_F32, N, a->norms));
        assert_ok(dt_backend_cpu.clip(rig.dev, a->norms, dt_tiles(N)));
        assert_ok(dt_backend_cpu.update(rig.dev, &update));
        assert_ok(dt_backend_cpu.end_step(rig.dev));
    }
    rig_close(&rig);
}

TEST(update)
{
    static struct arrays one, more;
    for (int optim = 0; optim < DT_N_OPTIMS; optim++) {
        update(&one, optim, 1);
        assert_true(one.w[112] != rig_value(112) && one.w[15] == rig_value(15));
        for (int threads = 2; threads <= 5; threads++) {
            update(&more, optim, threads);
            assert_memory_equal(&more, &one, sizeof one);
        }
    }
}

TEST(update_of_nothing)
{
    struct rig rig;
    rig_open(&rig, 2);
    assert_ok(dt_backend_cpu.update(rig.dev, &(struct dt_update){.n_segments = 0}));
    rig_close(&rig);
}

TEST(accumulate)
{
    struct rig rig;
    float a[37], b[37];
    for (size_t i = 0; i < 37; i++) {
        a[i] = rig_value(i);
        b[i] = rig_value(i + 37);
    }
    rig_open(&rig, 2);
    assert_ok(dt_backend_cpu.accumulate(rig.dev, a, b, DT_F32, 36, false));
    for (size_t i = 0; i < 36; i++)
        assert_true(a[i] == rig_value(i) + b[i]);
    assert_ok(dt_backend_cpu.accumulate(rig.dev, a, b, DT_F32, 35, true));
    for (size_t i = 0; i < 35; i++)
        assert_true(a[i] == b[i]);
    assert_true(a[35] == rig_value(35) + b[35] && a[36] == rig_value(36));
    rig_close(&rig);
}

TEST_MAIN(NULL, NULL)
