/* Random numbers: Random123's known answers, independence of streams, bounds, moments. */
#include <string.h>

#include <math.h>

#include "base/rng.h"
#include "test.h"

/* philox4x32 10 rounds with counter 0 and key 0, from Random123's kat_vectors; the counter of a
 * stream with purpose 0, epoch 0, id 0 is all zero. */
TEST(known_answer)
{
    static const uint32_t expected[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    struct dt_rng rng;
    dt_rng_init(&rng, 0, (enum dt_rng_purpose)0, 0, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(dt_rng_u32(&rng), expected[i]);
}

TEST(fill_equals_stream)
{
    uint32_t bulk[23];
    struct dt_rng rng;
    dt_rng_fill(bulk, 23, 42, DT_RNG_DROPOUT, 7, 9, 8);
    dt_rng_init(&rng, 42, DT_RNG_DROPOUT, 7, 9);
    for (int i = 0; i < 8; i++)
        dt_rng_u32(&rng);
    for (int i = 0; i < 23; i++)
        assert_int_equal(dt_rng_u32(&rng), bulk[i]);
}

TEST(streams_differ)
{
    struct dt_rng rng[5];
    dt_rng_init(&rng[0], 1, DT_RNG_AUGMENT, 2, 3);
    dt_rng_init(&rng[1], 2, DT_RNG_AUGMENT, 2, 3);
    dt_rng_init(&rng[2], 1, DT_RNG_SHUFFLE, 2, 3);
    dt_rng_init(&rng[3], 1, DT_RNG_AUGMENT, 3, 3);
    dt_rng_init(&rng[4], 1, DT_RNG_AUGMENT, 2, 4);
    uint32_t first[5];
    for (int i = 0; i < 5; i++)
        first[i] = dt_rng_u32(&rng[i]);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < i; j++)
            assert_int_not_equal(first[i], first[j]);
}

TEST(below_is_uniform)
{
    enum { N = 7, DRAWS = 70000 };
    int count[N] = {0};
    struct dt_rng rng;
    dt_rng_init(&rng, 5, DT_RNG_SHUFFLE, 0, 0);
    for (int i = 0; i < DRAWS; i++) {
        uint32_t v = dt_rng_below(&rng, N);
        assert_true(v < N);
        count[v]++;
    }
    double chi2 = 0;
    for (int i = 0; i < N; i++)
        chi2 += pow(count[i] - DRAWS / N, 2) / (DRAWS / N);
    assert_true(chi2 < 22.5); /* 6 degrees of freedom, p = 0.001 */
    assert_int_equal(dt_rng_below(&rng, 1), 0);
}

TEST(normal_moments)
{
    enum { DRAWS = 200000 };
    double sum = 0, squares = 0;
    struct dt_rng rng;
    dt_rng_init(&rng, 5, DT_RNG_INIT, 0, 1);
    for (int i = 0; i < DRAWS; i++) {
        double v = dt_rng_normal(&rng);
        sum += v;
        squares += v * v;
    }
    assert_true(fabs(sum / DRAWS) < 0.01);
    assert_true(fabs(squares / DRAWS - 1) < 0.02);
}

static void check_beta_moments(double alpha)
{
    enum { DRAWS = 100000 };
    double sum = 0, squares = 0, variance = 1 / (8 * alpha + 4);
    struct dt_rng rng;
    dt_rng_init(&rng, 5, DT_RNG_MIX, 0, 1);
    for (int i = 0; i < DRAWS; i++) {
        double v = dt_rng_beta(&rng, alpha);
        assert_true(v >= 0 && v <= 1);
        sum += v - 0.5;
        squares += (v - 0.5) * (v - 0.5);
    }
    assert_true(fabs(sum / DRAWS) < 4 * sqrt(variance / DRAWS));
    assert_true(fabs(squares / DRAWS - variance) < 0.02 * variance);
}

TEST(beta_moments)
{
    /* The smallest: all weight at 0 and 1, and 1 / alpha is infinite. */
    static const double alphas[] = {1e-320, 0.01, 0.2, 0.999, 1, 1.5, 8, 100};
    for (size_t i = 0; i < sizeof alphas / sizeof alphas[0]; i++)
        check_beta_moments(alphas[i]);
}

TEST(beta_of_one_is_uniform)
{
    enum { N = 10, DRAWS = 70000 };
    int count[N] = {0};
    double chi2 = 0;
    struct dt_rng rng;
    dt_rng_init(&rng, 5, DT_RNG_MIX, 0, 2);
    for (int i = 0; i < DRAWS; i++)
        count[(int)(dt_rng_beta(&rng, 1) * (N - 1e-9))]++;
    for (int i = 0; i < N; i++)
        chi2 += pow(count[i] - DRAWS / N, 2) / (DRAWS / N);
    assert_true(chi2 < 27.9); /* 9 degrees of freedom, p = 0.001 */
}

TEST(beta_is_pure)
{
    struct dt_rng a, b, c;
    dt_rng_init(&a, 5, DT_RNG_MIX, 3, 2);
    dt_rng_init(&b, 5, DT_RNG_MIX, 3, 2);
    dt_rng_init(&c, 5, DT_RNG_MIX, 4, 2);
    for (int i = 0; i < 100; i++) {
        double v = dt_rng_beta(&a, 0.2);
        assert_true(v == dt_rng_beta(&b, 0.2));
        assert_true(v != dt_rng_beta(&c, 0.2));
    }
}

TEST_MAIN(NULL, NULL)
