/* The loss scale from step to step: halving, growth, bounds, counting. */
#include <stdbool.h>

#include "kernels/train_step.h"
#include "test.h"

static struct dt_step_counters counters;

static const struct dt_scale_state START = {.scale = DT_SCALE_START, .dynamic = 1};

static void advance(struct dt_scale_state *s, int n_steps, bool found)
{
    for (int i = 0; i < n_steps; i++) {
        s->found = found;
        dt_scale_state_advance(s, &counters);
        assert_int_equal(s->found, 0);
    }
}

static void assert_state(const struct dt_scale_state *s, float scale, int n_clean, int n_skipped)
{
    assert_true(s->scale == scale);
    assert_int_equal(s->n_clean, n_clean);
    assert_int_equal(counters.n_skipped, n_skipped);
}

static int reset_counters(void **state)
{
    (void)state;
    counters = (struct dt_step_counters){0};
    return 0;
}

TEST_WITH(halves, reset_counters, NULL)
{
    struct dt_scale_state s = START;
    advance(&s, 7, false);
    assert_state(&s, 65536, 7, 0);
    advance(&s, 1, true);
    assert_state(&s, 32768, 0, 1);
    advance(&s, 3, true);
    assert_state(&s, 4096, 0, 4);
}

TEST_WITH(doubles_after_clean_steps, reset_counters, NULL)
{
    struct dt_scale_state s = START;
    advance(&s, DT_SCALE_GROWTH_STEPS - 1, false);
    assert_state(&s, 65536, 1999, 0);
    advance(&s, 1, false);
    assert_state(&s, 131072, 0, 0);
    advance(&s, 2000, false);
    assert_state(&s, 262144, 0, 0);
}

TEST_WITH(overflow_restarts_the_count, reset_counters, NULL)
{
    struct dt_scale_state s = START;
    advance(&s, 1999, false);
    advance(&s, 1, true);
    advance(&s, 1999, false);
    assert_state(&s, 32768, 1999, 1);
    advance(&s, 1, false);
    assert_state(&s, 65536, 0, 1);
}

TEST_WITH(bounds, reset_counters, NULL)
{
    struct dt_scale_state s = START;
    advance(&s, 2000 * 20, false);
    assert_state(&s, DT_SCALE_MAX, 0, 0);
    advance(&s, 1, true);
    assert_state(&s, DT_SCALE_MAX / 2, 0, 1);
    advance(&s, 500, true);
    assert_state(&s, DT_SCALE_MIN, 0, 501);
    assert_true(1 / s.scale < 1e9f);
    advance(&s, 2000, false);
    assert_state(&s, DT_SCALE_MIN * 2, 0, 501);
}

TEST_WITH(static_scale, reset_counters, NULL)
{
    struct dt_scale_state s = {.scale = 128};
    advance(&s, 2 * DT_SCALE_GROWTH_STEPS, false);
    assert_state(&s, 128, 0, 0);
    advance(&s, 3, true);
    assert_state(&s, 128, 0, 3);
    advance(&s, 5, false);
    assert_state(&s, 128, 5, 3);
}

/* A step continues from the state of a checkpoint. */
TEST_WITH(goes_on, reset_counters, NULL)
{
    struct dt_scale_state s = {.scale = 1024, .n_clean = 1998, .dynamic = 1};
    advance(&s, 2, false);
    assert_state(&s, 2048, 0, 0);
}

/* The longest row, also where the counters begin anew in its middle. */
TEST_WITH(in_a_row, reset_counters, NULL)
{
    struct dt_scale_state s = {.scale = 1};
    advance(&s, 2, true);
    advance(&s, 1, false);
    advance(&s, 3, true);
    assert_int_equal(counters.n_in_a_row, 3);
    counters = (struct dt_step_counters){0};
    advance(&s, 1, true);
    assert_int_equal(counters.n_in_a_row, 4);
    counters = (struct dt_step_counters){0};
    advance(&s, 1, false);
    assert_int_equal(counters.n_in_a_row, 0);
    advance(&s, 1, true);
    assert_int_equal(counters.n_in_a_row, 1);
}

TEST_MAIN(NULL, NULL)
