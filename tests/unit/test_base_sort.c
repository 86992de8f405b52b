/* Percentiles, the 95 % interval of a mean against Student's t, repeated keys. */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/sort.h"
#include "test.h"

TEST(percentiles)
{
    double values[] = {5, 1, 4, 2, 3}, one = 7;
    dt_sort_f64(values, DT_COUNT(values));
    assert_true(dt_percentile_f64(values, 5, 0) == 1 && dt_percentile_f64(values, 5, 1) == 5);
    assert_true(dt_percentile_f64(values, 5, 0.5) == 3);
    assert_true(fabs(dt_percentile_f64(values, 5, 0.95) - 4.8) < 1e-12);
    assert_true(fabs(dt_percentile_f64(values, 5, 0.99) - 4.96) < 1e-12);
    assert_true(dt_percentile_f64(&one, 1, 0.99) == 7);
}

/* Of 0, 1, 0, 1, ... the deviation is known, so the interval tells the quantile. */
static double quantile(size_t freedom)
{
    double values[1001] = {0}, squares = 0, mean;
    const size_t n = freedom + 1;
    for (size_t i = 1; i < n; i += 2)
        values[i] = 1;
    mean = (double)(n / 2) / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (values[i] - mean) * (values[i] - mean);
    return dt_interval95_f64(values, n) / sqrt(squares / (double)freedom / (double)n);
}

TEST(interval)
{
    static const struct {
        size_t freedom;
        double t; /* scipy.stats.t.ppf(0.975, freedom) */
    } rows[] = {{1, 12.7062}, {2, 4.30265}, {3, 3.18245},  {4, 2.77645},
                {5, 2.57058}, {9, 2.26216}, {30, 2.04227}, {1000, 1.96234}};
    const double value = 3, same[] = {2, 2, 2};
    for (size_t i = 0; i < DT_COUNT(rows); i++)
        assert_true(fabs(quantile(rows[i].freedom) / rows[i].t - 1) < 2e-3);
    assert_true(isnan(dt_interval95_f64(&value, 1)));
    assert_true(dt_interval95_f64(same, 3) == 0);
}

TEST(repeated_keys)
{
    const uint64_t keys[] = {7, 0, 7 + 16, 7, 0, UINT64_MAX, 7};
    static const uint32_t want[] = {0, 1, 2, 0, 1, 5, 0};
    uint32_t *first;
    assert_int_equal(dt_find_repeated(&first, keys, DT_COUNT(keys)), DT_OK);
    assert_memory_equal(first, want, sizeof want);
    free(first);
    assert_int_equal(dt_find_repeated(&first, keys, 3), DT_OK);
    assert_null(first);
}

TEST_MAIN(NULL, NULL)
