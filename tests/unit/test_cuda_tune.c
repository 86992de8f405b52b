/* The search for the fastest variant, with invented times: which variants are measured, how often,
 * in which order, and what it chooses. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "cuda/tune.h"
#include "test_status.h"

#define CLOSE(a, b) assert_true(fabs((a) - (b)) < 1e-12)

enum { MAX_WAYS = 40, MAX_CALLS = 400 };

/* A device whose clock the tests control: a run of a variant takes run_s[way], of the first cold_s
 * seconds of work three times that, and every call drift_s more than the one before. */
struct fake {
    double run_s[MAX_WAYS]; /* 0: cannot be used */
    double cold_s, drift_s;
    double now_s, worked_s;
    dt_status failure; /* of a variant that cannot be used */
    struct {
        int variant, n;
        double before_s; /* work done before */
    } call[MAX_CALLS];
    int n_calls;
    int slow_at, fails_at; /* this call is slow; this one fails; 0 = none */
    bool for_good;         /* the variant that failed always fails from then on */
    int failed_variant;
};

static double fake_clock(void *context)
{
    return ((struct fake *)context)->now_s;
}

static dt_status fake_time(void *context, int variant, int n, double *seconds)
{
    struct fake *f = context;
    assert_in_range(f->n_calls, 0, MAX_CALLS - 1);
    f->call[f->n_calls].variant = variant;
    f->call[f->n_calls].n = n;
    f->call[f->n_calls++].before_s = f->worked_s;
    if (f->n_calls == f->fails_at)
        f->failed_variant = variant;
    if (f->run_s[variant] == 0 || f->n_calls == f->fails_at ||
        (f->for_good && f->n_calls > f->fails_at && variant == f->failed_variant))
        DT_FAIL(f->failure, "way %d cannot be used", variant);
    *seconds = f->run_s[variant] * (f->worked_s < f->cold_s ? 3 : 1) + f->n_calls * f->drift_s;
    *seconds *= f->n_calls == f->slow_at ? 10 : 1;
    f->worked_s += n * *seconds;
    f->now_s += n * *seconds;
    return DT_OK;
}

static void tune(struct dt_tune_rank *ranking, struct fake *f, int n_variants, double budget_s)
{
    const struct dt_tune_work work = {.n_variants = n_variants,
                                      .time = fake_time,
                                      .clock_s = fake_clock,
                                      .context = f,
                                      .budget_s = budget_s};
    f->failure = f->failure ? f->failure : DT_ERR_DEVICE;
    assert_ok(dt_tune(ranking, &work));
}

static int count_calls(const struct fake *f, int variant)
{
    int n = 0;
    for (int i = 0; i < f->n_calls; i++)
        n += f->call[i].variant == variant;
    return n;
}

/* The fastest of many, wherever it stands. */
TEST(all_ways)
{
    for (int fastest = 0; fastest < MAX_WAYS; fastest++) {
        struct fake f = {0};
        struct dt_tune_rank ranking[DT_TUNE_RANKING];
        for (int i = 0; i < MAX_WAYS; i++)
            f.run_s[i] = 200e-6 + 1e-6 * i;
        f.run_s[fastest] = 100e-6;
        tune(ranking, &f, MAX_WAYS, 100);
        assert_int_equal(ranking[0].variant, fastest);
        CLOSE(ranking[0].seconds, 100e-6);
        assert_int_equal(ranking[1].variant, fastest == 0);
        for (int i = 0; i < MAX_WAYS; i++)
            assert_true(count_calls(&f, i) > 0);
    }
}

/* Nothing counts before 10 ms of work are done, so that a cold device cannot mislead. */
TEST(warm_up)
{
    static const double run_s[] = {1e-9, 1e-6, 30e-6, 1e-3, 9e-3, 0.5};
    for (size_t i = 0; i < DT_COUNT(run_s); i++) {
        struct fake f = {.run_s = {run_s[i], 0.5 * run_s[i]}, .cold_s = 0.0099};
        struct dt_tune_rank ranking[DT_TUNE_RANKING];
        int n_warm = 0;
        tune(ranking, &f, 2, 100);
        while (f.call[n_warm + 1].n != 1) /* the first call to count is a single run */
            n_warm++;
        if (run_s[i] >= 1e-6) {
            assert_true(f.call[n_warm + 1].before_s >= 0.01);
            CLOSE(ranking[0].seconds, 0.5 * run_s[i]);
            CLOSE(ranking[1].seconds, run_s[i]);
        }
        assert_int_equal(ranking[0].variant, 1);
    }
}

/* A single run that takes more than 1.3 times the best so far is the last one. */
TEST(drops)
{
    struct fake f = {.run_s = {100e-6, 131e-6, 129e-6, 50e-6, 66e-6, 64e-6}};
    struct dt_tune_rank ranking[DT_TUNE_RANKING];
    tune(ranking, &f, 6, 100);
    assert_int_equal(count_calls(&f, 1), 1);
    assert_int_equal(count_calls(&f, 2), 2); /* it is no longer among the best at the end */
    assert_int_equal(count_calls(&f, 4), 1);
    assert_int_equal(count_calls(&f, 3), 2 + 6);
    assert_int_equal(count_calls(&f, 5), 2 + 6);
    assert_int_equal(ranking[0].variant, 3);
    assert_int_equal(ranking[1].variant, 5);
    assert_int_equal(ranking[2].variant, 4); /* with the time of its only run */
    CLOSE(ranking[2].seconds, 66e-6);
}

/* The best three take turns, forwards and backwards, six rounds of about a millisecond. */
TEST(turns)
{
    static const int order[] = {2, 0, 3, 3, 0, 2, 2, 0, 3, 3, 0, 2, 2, 0, 3, 3, 0, 2};
    struct fake f = {.run_s = {101e-6, 110e-6, 100e-6, 102e-6, 200e-6}};
    struct dt_tune_rank ranking[DT_TUNE_RANKING];
    tune(ranking, &f, 5, 100);
    const int first = f.n_calls - (int)DT_COUNT(order);
    for (int i = 0; i < (int)DT_COUNT(order); i++) {
        assert_int_equal(f.call[first + i].variant, order[i]);
        assert_int_equal(f.call[first + i].n, 10);
    }
    assert_int_equal(ranking[0].variant, 2);
    assert_int_equal(ranking[1].variant, 0);
    assert_int_equal(ranking[2].variant, 3);
}

/* A device that becomes slower and slower favours what is measured first. The turns and the median
 * take that out: they correct the order of the first pass. */
TEST(drift)
{
    struct fake f = {.run_s = {105e-6, 104e-6, 100e-6}, .drift_s = 2e-6};
    struct dt_tune_rank ranking[DT_TUNE_RANKING];
    tune(ranking, &f, 3, 100);
    assert_int_equal(f.call[f.n_calls - 18].variant, 0); /* ahead in the first pass */
    assert_int_equal(ranking[0].variant, 2);
    assert_int_equal(ranking[1].variant, 1);
}

/* One disturbed round does not change a median. */
TEST(outlier)
{
    struct fake f = {.run_s = {100e-6, 101e-6}};
    struct dt_tune_rank ranking[DT_TUNE_RANKING];
    tune(ranking, &f, 2, 100);
    for (int at = f.n_calls - 11; at <= f.n_calls; at++) {
        struct fake g = {.run_s = {100e-6, 101e-6}, .slow_at = at};
        tune(ranking, &g, 2, 100);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(ranking[i].variant, i);
            CLOSE(ranking[i].seconds, g.run_s[i]);
        }
    }
}

/* A variant that fails when it is measured again is out, even if it does so once. */
TEST(late_failure)
{
    struct fake f = {.run_s = {100e-6, 101e-6}};
    struct dt_tune_rank ranking[DT_TUNE_RANKING];
    tune(ranking, &f, 2, 100);
    for (int at = f.n_calls - 11; at <= f.n_calls; at++)
        for (int for_good = 0; for_good < 2; for_good++) {
            struct fake g = {.run_s = {100e-6, 101e-6}, .fails_at = at, .for_good = for_good};
            tune(ranking, &g, 2, 100);
            assert_int_equal(ranking[0].variant, 1 - g.failed_variant);
            assert_int_equal(ranking[1].variant, -1);
        }
}

TEST(ties)
{
    struct fake f = {.run_s = {0, 90e-6, 80e-6, 80e-6, 80e-6, 80e-6}};
    struct dt_tune_rank ranking[DT_TUNE_RANKING];
    tune(ranking, &f, 6, 100);
    for (int i = 0; i < DT_TUNE_RANKING; i++)
        assert_int_equal(ranking[i].variant, 2 + i);
}

/* Nothing begins after the budget is spent, and there is always a choice. */
TEST(budget)
{
    for (int n = -1; n < 60; n++) { /* -1: those before have spent more than all */
        struct fake f = {0};
        struct dt_tune_rank ranking[DT_TUNE_RANKING];
        const double budget_s = 0.02 * n;
        for (int i = 0; i < MAX_WAYS; i++)
            f.run_s[i] = 0.004 - 1e-5 * i;
        tune(ranking, &f, MAX_WAYS, budget_s);
        int n_measured = 0;
        while (n_measured < MAX_WAYS && count_calls(&f, n_measured) > 0)
            n_measured++;
        assert_int_equal(ranking[0].variant, n_measured - 1);
        assert_true(f.now_s <= fmax(budget_s, 0) + 0.012 + 3 * 0.004 + 1e-9);
        if (n > 26)
            assert_int_equal(n_measured, MAX_WAYS);
        if (n <= 0)
            assert_int_equal(n_measured, 1);
    }
}

/* However slow the variants are, many searches do not take longer than they may together, but for
 * the one measurement that each of them makes in any case; a few do not wait for 2 s each. */
TEST(shared_budget)
{
    enum { N_SEARCHES = 100 };
    static const double total_s = 120;
    for (int slow = 0; slow < 2; slow++) {
        double now_s = 0, slowest_s = 0;
        for (int i = 0; i < N_SEARCHES; i++) {
            struct fake f = {0};
            struct dt_tune_rank ranking[DT_TUNE_RANKING];
            for (int k = 0; k < MAX_WAYS; k++)
                f.run_s[k] = slow || i >= N_SEARCHES / 2 ? 0.05 : 1e-4;
            tune(ranking, &f, MAX_WAYS, dt_tune_budget(total_s - now_s, N_SEARCHES - i));
            assert_int_equal(ranking[0].variant, 0);
            now_s += f.now_s;
            slowest_s = fmax(slowest_s, f.now_s);
        }
        assert_true(now_s < total_s + 4 * 0.05);
        assert_true(slow ? slowest_s < 1.5 : slowest_s > 1.9 && slowest_s < 2.3);
    }
}

TEST(unusable)
{
    static const dt_status failures[] = {DT_ERR_DEVICE, DT_ERR_MEMORY};
    for (size_t i = 0; i < DT_COUNT(failures); i++) {
        struct fake f = {.run_s = {0, 0, 50e-6, 0, 49e-6}, .failure = failures[i]};
        struct dt_tune_rank ranking[DT_TUNE_RANKING];
        tune(ranking, &f, 5, 100);
        assert_int_equal(ranking[0].variant, 4);
        assert_int_equal(ranking[1].variant, 2);
        assert_int_equal(ranking[2].variant, -1);
        assert_int_equal(count_calls(&f, 0), 1);
        f = (struct fake){.failure = failures[i]};
        tune(ranking, &f, 5, 100);
        assert_int_equal(ranking[0].variant, -1);
        tune(ranking, &f, 0, 100);
        assert_int_equal(ranking[0].variant, -1);
    }
}

/* A device that hangs, or the end of the job, ends the search at once. */
TEST(end)
{
    struct fake f = {.run_s = {50e-6, 49e-6, 48e-6}, .failure = DT_ERR_HANG};
    const struct dt_tune_work work = {
        .n_variants = 3, .time = fake_time, .clock_s = fake_clock, .context = &f, .budget_s = 100};
    struct dt_tune_rank ranking[DT_TUNE_RANKING];
    for (f.fails_at = 1; f.fails_at <= 20; f.fails_at++) {
        f.n_calls = 0;
        assert_int_equal(dt_tune(ranking, &work), DT_ERR_HANG);
        assert_int_equal(f.n_calls, f.fails_at);
        dt_error_clear();
    }
}

TEST_MAIN(NULL, NULL)
