/* Which evaluation is the best, and when training ends early, on 1 to 4 ranks that measure
 * different values. */
#include <math.h>

#include "base/mem.h"
#include "dist_rig.h"
#include "engine/schedule.h"
#include "train/best.h"

struct evaluation {
    double value;
    bool is_best, ends;
};

static struct dt_config config_of(enum dt_metric metric)
{
    struct dt_config config;
    dt_config_init(&config);
    config.early_stop.metric = metric;
    return config;
}

/* Counts one evaluation after each epoch, and at each also a resume: the state goes through a copy.
 */
static void check_course(const struct dt_config *config, const struct evaluation *course,
                         int n_course)
{
    struct dt_checkpoint at = {0};
    dt_best_init(&at, config);
    for (int i = 0; i < n_course; i++) {
        struct dt_checkpoint resumed = {.step = 10 * (i + 1), .epoch = i + 1};
        double values[DT_N_METRICS];
        for (int m = 0; m < DT_N_METRICS; m++)
            values[m] = NAN;
        values[config->early_stop.metric] = rank == 0 ? course[i].value : 10 - i;
        dt_best_init(&resumed, config);
        dt_best_adopt(&resumed, &at);
        at = resumed;
        bool is_best;
        assert_all(dt_best_count(&is_best, &at, config, comm, values) == DT_OK);
        bool ends = dt_best_ends(&at, config) != NULL;
        if (is_best != course[i].is_best || ends != course[i].ends)
            print_error("evaluation %d of %g: best %d, ends %d\n", i, course[i].value, is_best,
                        ends);
        assert_all(is_best == course[i].is_best && ends == course[i].ends);
        assert_all((at.best.step == at.step) == is_best);
    }
}

#define CHECK(config, ...)                                       \
    do {                                                         \
        static const struct evaluation course[] = {__VA_ARGS__}; \
        check_course(config, course, DT_COUNT(course));          \
    } while (0)

TEST(patience)
{
    struct dt_config config = config_of(DT_METRIC_AUC);
    CHECK(&config, {0.5, true, false}, {0.4, false, false}, {0.4, false, false});
    config.early_stop.patience = 2;
    CHECK(&config, {0.5, true, false}, {0.6, true, false}, {0.6, false, false},
          {0.59, false, true});
    CHECK(&config, {0.5, true, false}, {0.4, false, false}, {0.51, true, false},
          {NAN, false, false}, {0.51, false, true}, {0.9, true, false});
    /* Small steps are progress for the choice of the best, but not for patience. */
    config.early_stop.min_delta = 0.1;
    CHECK(&config, {0.5, true, false}, {0.55, true, false}, {0.6, true, true});
    CHECK(&config, {0.5, true, false}, {0.55, true, false}, {0.601, true, false},
          {0.62, true, false}, {0.7, true, true});
}

TEST(loss)
{
    struct dt_config config = config_of(DT_METRIC_LOSS);
    config.early_stop.patience = 1;
    CHECK(&config, {INFINITY, false, true}, {3, true, false}, {2, true, false}, {2.5, false, true});
    config.early_stop.patience = 0;
    config.early_stop.target = 1.5;
    CHECK(&config, {3, true, false}, {1.6, true, false}, {1.5, true, true}, {2, false, true});
}

TEST(target)
{
    struct dt_config config = config_of(DT_METRIC_TOP1);
    config.early_stop.target = 75;
    CHECK(&config, {50, true, false}, {74.99, true, false}, {75, true, true});
    config.early_stop.min_delta = 5; /* concerns patience only */
    CHECK(&config, {74, true, false}, {75, true, true});
}

/* Two metrics: one stops, the other chooses. A changed metric forgets. */
TEST(two_metrics)
{
    struct dt_config config = config_of(DT_METRIC_LOSS);
    struct dt_checkpoint at = {.step = 5, .epoch = 1}, next = {.step = 6};
    double values[DT_N_METRICS] = {[DT_METRIC_LOSS] = 2, [DT_METRIC_TOP1] = 40};
    char text[128];
    bool is_best;
    config.checkpoint.best_metric = DT_METRIC_TOP1;
    dt_best_init(&at, &config);
    dt_best_describe(text, sizeof text, &at);
    assert_string_equal(text, "");
    assert_all(dt_best_count(&is_best, &at, &config, comm, values) == DT_OK && is_best);
    at.step = 9;
    values[DT_METRIC_LOSS] = 1;
    assert_all(dt_best_count(&is_best, &at, &config, comm, values) == DT_OK && !is_best);
    assert_true(at.best.step == 5 && at.goal.step == 9 && at.goal_waits == 0);
    dt_best_describe(text, sizeof text, &at);
    assert_string_equal(text, "best top1 40.000 in epoch 1");
    config.early_stop.metric = DT_METRIC_TOP5;
    dt_best_init(&next, &config);
    dt_best_adopt(&next, &at);
    assert_true(next.best.step == 5 && next.goal.step == -1);
}

/* Ranks that measured different losses take one decision on the learning rate, rank 0's. */
TEST(plateau)
{
    struct dt_config config = config_of(DT_METRIC_AUTO);
    const struct dt_schedule schedule = {.config = &config.schedule,
                                         .metric = DT_METRIC_TRAIN_LOSS};
    struct dt_checkpoint at = {.step = 5, .epoch = 1};
    bool is_best;
    config.schedule.kind = DT_SCHEDULE_PLATEAU;
    config.schedule.metric = schedule.metric;
    config.schedule.patience = 0;
    dt_best_init(&at, &config);
    for (int i = 0; i < 3; i++) {
        /* Rank 0: 4, 3, 3; the others get better all the time. */
        double values[DT_N_METRICS] = {[DT_METRIC_TRAIN_LOSS] = rank == 0 ? (i ? 3 : 4) : 10 - i};
        assert_all(dt_best_count(&is_best, &at, &config, comm, values) == DT_OK);
        const bool drops = dt_plateau_count(&at.plateau, &schedule, values[schedule.metric]);
        assert_all(drops == (i == 2));
    }
    assert_all(at.plateau.factor == config.schedule.gamma && at.plateau.best == 3);
}

RANKS_TEST_MAIN(NULL, NULL)
