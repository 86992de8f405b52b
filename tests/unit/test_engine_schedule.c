/* Learning rates against values worked out by hand and closed forms written down a second time. */
#include <math.h>

#include "engine/schedule.h"
#include "test.h"
#include "train/best.h"

enum { N_IMAGES = 20 * 512 + 100 };

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
    config.schedule.n_factors = 2;
    config.schedule.factors[0] = 0.5;
    config.schedule.factors[1] = 0.05;
    config.schedule.decay_fraction = 0.5;
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
    {DT_SCHEDULE_LINEAR, 20, 0.2},
    {DT_SCHEDULE_LINEAR, 155, 0.02 + 0.18 * 0.25},
    {DT_SCHEDULE_LINEAR, 200, 0.02},
    {DT_SCHEDULE_PIECEWISE, 59, 0.2},
    {DT_SCHEDULE_PIECEWISE, 60, 0.1},
    {DT_SCHEDULE_PIECEWISE, 130, 0.01},
    {DT_SCHEDULE_EXPONENTIAL, 20, 0.2},
    {DT_SCHEDULE_EXPONENTIAL, 39, 0.2},
    {DT_SCHEDULE_EXPONENTIAL, 40, 0.02},
    {DT_SCHEDULE_EXPONENTIAL, 60, 0.002},
    {DT_SCHEDULE_WSD, 20, 0.2},
    {DT_SCHEDULE_WSD, 100, 0.2}, /* decay_fraction 1/2 */
    {DT_SCHEDULE_WSD, 104, 0.02 + 0.18 * 0.8},
    {DT_SCHEDULE_WSD, 125, 0.11},
    {DT_SCHEDULE_WSD, 200, 0.02},
    {DT_SCHEDULE_ONE_CYCLE, 0, 0.02},
    {DT_SCHEDULE_ONE_CYCLE, 19, 0.2},
    {DT_SCHEDULE_ONE_CYCLE, 79, 0.02 + 0.18 * 0.75},
    {DT_SCHEDULE_ONE_CYCLE, 199, 0.02},
    {DT_SCHEDULE_PLATEAU, 4, 0.02 + 0.18 / 4},
    {DT_SCHEDULE_PLATEAU, 199, 0.2},
};

TEST(table)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct dt_config config = base(table[i].kind);
        struct dt_schedule schedule;
        dt_schedule_init(&schedule, &config, 512, (uint32_t[DT_MAX_CANVASES]){N_IMAGES});
        double lr = dt_schedule_lr(&schedule, table[i].step);
        if (fabs(lr - table[i].lr) > 1e-12)
            fail_msg("row %zu: %.15g instead of %.15g", i, lr, table[i].lr);
    }
}

TEST(units_and_edges)
{
    struct dt_config config = base(DT_SCHEDULE_COSINE);
    struct dt_schedule schedule;
    config.schedule.lr_scaling = DT_LR_SCALING_NONE;
    config.schedule.warmup_epochs = 0;
    config.schedule.min_lr = 0;
    dt_schedule_init(&schedule, &config, 512, (uint32_t[DT_MAX_CANVASES]){N_IMAGES});
    assert_int_equal(schedule.warmup_steps, 0);
    assert_true(dt_schedule_lr(&schedule, 0) == 0.1);
    for (int64_t step = 0; step < 200; step++) {
        double expected = 0.1 * (1 + cos(acos(-1.0) * (double)step / 200)) / 2;
        assert_true(fabs(dt_schedule_lr(&schedule, step) - expected) < 1e-12);
    }
    /* Nothing but warm-up, and a fraction of an epoch. */
    config.schedule.warmup_epochs = 10;
    dt_schedule_init(&schedule, &config, 512, (uint32_t[DT_MAX_CANVASES]){N_IMAGES});
    assert_true(fabs(dt_schedule_lr(&schedule, 199) - 0.1) < 1e-15);
    assert_true(dt_schedule_lr(&schedule, 200) == 0);
    config.schedule.warmup_epochs = 0.26;
    dt_schedule_init(&schedule, &config, 512, (uint32_t[DT_MAX_CANVASES]){N_IMAGES});
    assert_int_equal(schedule.warmup_steps, 5);
    config.schedule.warmup_epochs = 0;
    config.schedule.warmup_steps = 7;
    config.schedule.kind = DT_SCHEDULE_WSD;
    config.schedule.decay_fraction = 1; /* the decay waits for the end of the warm-up */
    config.schedule.lr_scaling = DT_LR_SCALING_SQRT;
    dt_schedule_init(&schedule, &config, 1024, (uint32_t[DT_MAX_CANVASES]){N_IMAGES});
    assert_true(fabs(dt_schedule_lr(&schedule, 6) - 0.2) < 1e-15);
    assert_true(fabs(dt_schedule_lr(&schedule, 7) - 0.2) < 1e-15);
    config.schedule.kind = DT_SCHEDULE_ONE_CYCLE;
    config.schedule.warmup_steps = 1;
    dt_schedule_init(&schedule, &config, 1024, (uint32_t[DT_MAX_CANVASES]){N_IMAGES});
    assert_true(fabs(dt_schedule_lr(&schedule, 0) - 0.2) < 1e-15);
}

/* Losses and what is to follow; the first of the improvements of 1 % is none. */
TEST(plateau)
{
    static const struct {
        double loss;
        bool reduced;
    } evaluations[] = {{2, false},    {1.99, false}, {NAN, false}, {2.1, true},
                       {1.9, false},  {1.9, false},  {1.9, false}, {1.89, true},
                       {1.89, false}, {1.0, false},  {0.5, false}};
    struct dt_config config = base(DT_SCHEDULE_PLATEAU);
    struct dt_checkpoint at = {0};
    struct dt_schedule schedule;
    config.schedule.patience = 2;
    config.schedule.threshold = 0.02;
    dt_best_init(&at, &config);
    dt_schedule_init(&schedule, &config, 512, (uint32_t[DT_MAX_CANVASES]){N_IMAGES});
    for (size_t i = 0; i < sizeof evaluations / sizeof *evaluations; i++)
        assert_true(dt_plateau_count(&at.plateau, &schedule, evaluations[i].loss) ==
                    evaluations[i].reduced);
    assert_true(at.plateau.best == 0.5 && at.plateau.waits == 0);
    schedule.plateau = at.plateau.factor;
    assert_true(dt_schedule_lr(&schedule, 150) == 0.02); /* 0.002, but for min_lr */
    config.schedule.metric = DT_METRIC_TOP1;
    dt_best_init(&at, &config);
    dt_schedule_init(&schedule, &config, 512, (uint32_t[DT_MAX_CANVASES]){N_IMAGES});
    assert_false(dt_plateau_count(&at.plateau, &schedule, 50));
    assert_false(dt_plateau_count(&at.plateau, &schedule, 50.5)); /* less than 2 % */
    assert_true(at.plateau.best == 50 && at.plateau.waits == 1);
    assert_false(dt_plateau_count(&at.plateau, &schedule, 52));
    assert_true(at.plateau.best == 52 && at.plateau.waits == 0 && at.plateau.factor == 1);
}

/* 1024 images: 2 epochs of 8 steps, 3 of 4, 5 of 16; the learning rate follows the batch. */
TEST(stages)
{
    struct dt_config config = base(DT_SCHEDULE_STEP);
    struct dt_schedule s;
    config.train.n_stages = 3;
    config.train.stages[0] = (struct dt_train_stage){.epoch = 2, .batch = 256};
    config.train.stages[1] = (struct dt_train_stage){.epoch = 5, .image_size = 64, .batch = 64};
    config.train.stages[2] = (struct dt_train_stage){.epoch = 10}; /* never */
    dt_schedule_init(&s, &config, 128, (uint32_t[DT_MAX_CANVASES]){1024 + 60});
    assert_true(s.n_parts == 3 && s.total_steps == 16 + 12 + 80);
    assert_true(s.warmup_steps == 8 && s.milestones[0] == 16 + 4 && s.milestones[1] == 28 + 24);
    assert_true(dt_schedule_lr(&s, 8) == 0.05 && dt_schedule_lr(&s, 15) == 0.05);
    assert_true(dt_schedule_lr(&s, 16) == 0.1 && fabs(dt_schedule_lr(&s, 20) - 0.01) < 1e-15);
    assert_true(fabs(dt_schedule_lr(&s, 28) - 0.0025) < 1e-15);
    assert_true(fabs(dt_schedule_lr(&s, 107) - 0.00025) < 1e-15);
    assert_true(dt_schedule_epochs(&s, 15) == 1.875 && dt_schedule_epochs(&s, 16) == 2);
    assert_true(dt_schedule_epochs(&s, 28 + 24) == 6.5);
    assert_true(dt_schedule_images(&s, 0, 108) == 10 * 1024);
    assert_true(dt_schedule_images(&s, 15, 17) == 128 + 256);
    assert_true(dt_schedule_pixels(&s, 27, 29) == 256 * 224 * 224 + 64 * 64 * 64);
    config.schedule.kind = DT_SCHEDULE_EXPONENTIAL;
    dt_schedule_init(&s, &config, 128, (uint32_t[DT_MAX_CANVASES]){1024 + 60});
    assert_true(fabs(dt_schedule_lr(&s, 8) - 0.05) < 1e-15); /* epoch 1, after the warm-up */
    assert_true(fabs(dt_schedule_lr(&s, 16) - 0.01) < 1e-15);
    assert_true(fabs(dt_schedule_lr(&s, 20) - 0.001) < 1e-15);
}

/* 50 steps of batches of 512 are 2.5 epochs, and so are 25 of 1024, wherever they come from. */
TEST(resume)
{
    static const enum dt_schedule_kind alike[] = {
        DT_SCHEDULE_CONSTANT, DT_SCHEDULE_STEP, DT_SCHEDULE_PIECEWISE, DT_SCHEDULE_EXPONENTIAL,
        DT_SCHEDULE_LINEAR,   DT_SCHEDULE_POLY, DT_SCHEDULE_COSINE,    DT_SCHEDULE_WSD};
    const uint32_t n_images[DT_MAX_CANVASES] = {N_IMAGES};
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++) {
        struct dt_config config = base(alike[i]);
        config.schedule.lr_scaling = DT_LR_SCALING_NONE;
        struct dt_checkpoint at = {.step = 50, .epoch = 2, .batch = 10, .global_batch_size = 512};
        const struct dt_checkpoint saved = at;
        struct dt_schedule old, now, once;
        dt_schedule_init(&old, &config, 512, n_images);
        const struct dt_schedule before = old;
        dt_schedule_resume(&old, &at);
        assert_memory_equal(&at, &saved, sizeof at);
        assert_memory_equal(&old, &before, sizeof old);
        dt_schedule_init(&now, &config, 1024, n_images);
        once = now;
        dt_schedule_resume(&now, &at);
        assert_true(at.step == 50 && at.epoch == 2 && at.batch == 5 && !at.eval_due);
        assert_true(dt_schedule_epochs(&now, 50) == 2.5 && now.total_steps == 50 + 75);
        assert_true(dt_schedule_images(&now, 50, 125) == 75 * 1024);
        for (int64_t step = 50; step <= 125; step++)
            if (fabs(dt_schedule_lr(&now, step) - dt_schedule_lr(&old, 2 * step - 50)) > 1e-12)
                fail_msg("kind %zu, step %d", i, (int)step);
        at = (struct dt_checkpoint){.step = 55, .epoch = 3, .global_batch_size = 512};
        dt_schedule_resume(&once, &at); /* the same run, saved and resumed again */
        assert_memory_equal(once.parts, now.parts, sizeof now.parts);
    }
}

/* In the warm-up, after all images of a shrunken epoch, and in stages whose batches have changed.
 */
TEST(resume_edges)
{
    struct dt_config config = base(DT_SCHEDULE_STEP);
    struct dt_checkpoint at = {.step = 4, .batch = 4, .global_batch_size = 1024};
    struct dt_schedule s;
    char text[DT_SCHEDULE_TEXT];
    dt_schedule_init(&s, &config, 512, (uint32_t[DT_MAX_CANVASES]){N_IMAGES});
    dt_schedule_resume(&s, &at);
    assert_true(at.batch == 8 && fabs(dt_schedule_lr(&s, 4) - (0.02 + 0.18 * 9 / 20)) < 1e-15);
    dt_schedule_describe(text, sizeof text, &s);
    assert_string_equal(text, "0.2, step, warm-up over 20 steps from 0.02, then 0.02 from step 56, "
                              "0.002 from step 126");
    at = (struct dt_checkpoint){.step = 100, .epoch = 5, .global_batch_size = 1024};
    dt_schedule_init(&s, &config, 512, (uint32_t[DT_MAX_CANVASES]){N_IMAGES});
    dt_schedule_resume(&s, &at);
    assert_true(s.resumed == 0 && s.total_steps == 200);
    at.step = 50;
    dt_schedule_resume(&s, &at);
    dt_schedule_describe(text, sizeof text, &s);
    assert_string_equal(text, "0.2, step, then 0.002 from step 80");
    at = (struct dt_checkpoint){.step = 205, .epoch = 9, .batch = 10, .global_batch_size = 1024};
    dt_schedule_resume(&s, &at);
    assert_true(at.epoch == 10 && at.batch == 0 && at.eval_due && s.total_steps == 205);
    config.train.n_stages = 1;
    config.train.stages[0] = (struct dt_train_stage){.epoch = 2, .batch = 256};
    dt_schedule_init(&s, &config, 128, (uint32_t[DT_MAX_CANVASES]){1024});
    at = (struct dt_checkpoint){.step = 20, .epoch = 3, .batch = 4, .global_batch_size = 128};
    dt_schedule_resume(&s, &at);
    assert_true(at.epoch == 3 && at.batch == 2 && at.global_batch_size == 256);
    assert_true(s.parts[1].step == 20 - 2 - 4 && s.total_steps == 20 + 2 + 6 * 4);
}

TEST(text)
{
    struct dt_config config = base(DT_SCHEDULE_STEP);
    struct dt_schedule schedule;
    char text[DT_SCHEDULE_TEXT];
    dt_schedule_init(&schedule, &config, 512, (uint32_t[DT_MAX_CANVASES]){N_IMAGES});
    dt_schedule_describe(text, sizeof text, &schedule);
    assert_string_equal(text, "0.2, step, warm-up over 20 steps from 0.02, then 0.02 from step 60, "
                              "0.002 from step 130");
    config.schedule.kind = DT_SCHEDULE_WSD;
    dt_schedule_describe(text, sizeof text, &schedule);
    assert_string_equal(text,
                        "0.2, wsd, warm-up over 20 steps from 0.02, decay from step 100, down "
                        "to 0.02 at step 200");
    config.schedule.kind = DT_SCHEDULE_PLATEAU;
    config.schedule.warmup_epochs = 0;
    dt_schedule_init(&schedule, &config, 512, (uint32_t[DT_MAX_CANVASES]){N_IMAGES});
    dt_schedule_describe(text, sizeof text, &schedule);
    assert_string_equal(text, "0.2, plateau, times 0.1 after 11 evaluations without a better loss, "
                              "at least 0.02");
}

TEST(max_steps_changes_nothing)
{
    struct dt_config config = base(DT_SCHEDULE_COSINE);
    struct dt_schedule a, b;
    dt_schedule_init(&a, &config, 512, (uint32_t[DT_MAX_CANVASES]){N_IMAGES});
    config.train.max_steps = 50;
    dt_schedule_init(&b, &config, 512, (uint32_t[DT_MAX_CANVASES]){N_IMAGES});
    for (int64_t step = 0; step < 50; step++)
        assert_true(dt_schedule_lr(&a, step) == dt_schedule_lr(&b, step));
}

TEST_MAIN(NULL, NULL)
