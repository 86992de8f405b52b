/* Learning rates against values worked out by hand and closed forms written down a second time.
 * Label: numeric. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/schedule.h"

static struct dt_config base(enum dt_schedule_kind kind)
{
    struct dt_config config;
    dt_config_init(&config);
    config.train.epochs = 10;
    config.schedule.kind = kind;
    config.schedule.lr = 0.1;
    config.schedule.lr_base_size = 256; /* 0.2 */
    config.schedule.warmup_epochs = 1;
    config.schedule.warmup_start = 0.1;
    config.schedule.n_milestones = 2;
    config.schedule.milestones[0] = 3;
    config.schedule.milestones[1] = 6.5;
    config.schedule.gamma = 0.1;
    config.schedule.power = 2;
    config.schedule.min_lr = 0.01; /* 0.02 */
    return config;
}

/* 20 steps per epoch: warm-up in 0..19, 200 in all. */
static const struct {
    enum dt_schedule_kind kind;
    int64_t step;
    double lr;
} table[] = {
    {DT_SCHEDULE_CONSTANT, 0, 0.02 + 0.18 / 20},
    {DT_SCHEDULE_CONSTANT, 9, 0.02 + 0.18 / 2},
    {DT_SCHEDULE_CONSTANT, 19, 0.2},
    {DT_SCHEDULE_CONSTANT, 20, 0.2},
    {DT_SCHEDULE_CONSTANT, 199, 0.2},
    {DT_SCHEDULE_STEP, 4, 0.02 + 0.18 / 4},
    {DT_SCHEDULE_STEP, 20, 0.2},
    {DT_SCHEDULE_STEP, 59, 0.2},
    {DT_SCHEDULE_STEP, 60, 0.02},
    {DT_SCHEDULE_STEP, 129, 0.02},
    {DT_SCHEDULE_STEP, 130, 0.002},
    {DT_SCHEDULE_STEP, 1000, 0.002},
    {DT_SCHEDULE_COSINE, 19, 0.2},
    {DT_SCHEDULE_COSINE, 20, 0.2},
    {DT_SCHEDULE_COSINE, 80, 0.02 + 0.18 * 0.75}, /* a third: cos(60 deg) = 1/2 */
    {DT_SCHEDULE_COSINE, 110, 0.11},              /* half */
    {DT_SCHEDULE_COSINE, 140, 0.02 + 0.18 * 0.25},
    {DT_SCHEDULE_COSINE, 200, 0.02},
    {DT_SCHEDULE_COSINE, 300, 0.02},
    {DT_SCHEDULE_POLY, 20, 0.2},
    {DT_SCHEDULE_POLY, 110, 0.02 + 0.18 * 0.25},
    {DT_SCHEDULE_POLY, 155, 0.02 + 0.18 * 0.0625},
    {DT_SCHEDULE_POLY, 200, 0.02},
};

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct dt_config config = base(table[i].kind);
        struct dt_schedule schedule;
        dt_schedule_init(&schedule, &config, 512, 20);
        double lr = dt_schedule_lr(&schedule, table[i].step);
        if (fabs(lr - table[i].lr) > 1e-12)
            fail_msg("row %zu: %.15g instead of %.15g", i, lr, table[i].lr);
    }
}

static void test_units_and_edges(void **state)
{
    (void)state;
    struct dt_config config = base(DT_SCHEDULE_COSINE);
    struct dt_schedule schedule;
    config.schedule.lr_base_size = 0;
    config.schedule.warmup_epochs = 0;
    config.schedule.min_lr = 0;
    dt_schedule_init(&schedule, &config, 512, 20);
    assert_int_equal(schedule.warmup_steps, 0);
    assert_true(dt_schedule_lr(&schedule, 0) == 0.1);
    for (int64_t step = 0; step < 200; step++) {
        double expected = 0.1 * (1 + cos(acos(-1.0) * (double)step / 200)) / 2;
        assert_true(fabs(dt_schedule_lr(&schedule, step) - expected) < 1e-12);
    }
    /* Nothing but warm-up, and a fraction of an epoch. */
    config.schedule.warmup_epochs = 10;
    dt_schedule_init(&schedule, &config, 512, 20);
    assert_true(fabs(dt_schedule_lr(&schedule, 199) - 0.1) < 1e-15);
    assert_true(dt_schedule_lr(&schedule, 200) == 0);
    config.schedule.warmup_epochs = 0.26;
    dt_schedule_init(&schedule, &config, 512, 20);
    assert_int_equal(schedule.warmup_steps, 5);
}

static void test_max_steps_changes_nothing(void **state)
{
    (void)state;
    struct dt_config config = base(DT_SCHEDULE_COSINE);
    struct dt_schedule a, b;
    dt_schedule_init(&a, &config, 512, 20);
    config.train.max_steps = 50;
    dt_schedule_init(&b, &config, 512, 20);
    for (int64_t step = 0; step < 50; step++)
        assert_true(dt_schedule_lr(&a, step) == dt_schedule_lr(&b, step));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_units_and_edges),
        cmocka_unit_test(test_max_steps_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
