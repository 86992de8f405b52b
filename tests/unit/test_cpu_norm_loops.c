/* The inner loops of batch and group norm against plain loops: rows of many lengths, with and
 * without mask, residual and writing past the caches, in place, unaligned, in every instruction set
 * of this CPU.
 *
 * Label: numeric. */
#include "cpu/isa.h"
#include "cpu_rig.h"

enum { MAX = 3 * 4096 + 21 };

static const struct dt_norm_loops *lanes;
static const size_t LENGTHS[] = {1, 15, 16, 17, 49, 784, 4096, 4097, MAX};

static float x[MAX + LANES] __attribute__((aligned(64)));
static float r[MAX + LANES] __attribute__((aligned(64)));
static float q[MAX + LANES] __attribute__((aligned(64)));
static float y[MAX + LANES] __attribute__((aligned(64)));
static float z[MAX + LANES] __attribute__((aligned(64)));
static uint16_t mask[MAX / LANES + 1];

/* With a drift, so that parts of a row have different means, and exact zeros. */
static void fill(void)
{
    for (size_t i = 0; i < MAX; i++) {
        x[i] = i % 11 == 0 ? 0 : 100 + 0.01f * (float)i + rig_value(i);
        r[i] = rig_value(i + MAX);
        q[i] = rig_value(i + 2 * MAX);
    }
    for (size_t i = 0; i < MAX + LANES; i++)
        y[i] = z[i] = 77;
}

TEST(moments)
{
    fill();
    for (size_t k = 0; k < DT_COUNT(LENGTHS); k++) {
        float mean[LANES], m2[LANES];
        lanes->moments(mean, m2, x, LENGTHS[k]);
        for (size_t lane = 0; lane < LANES; lane++) {
            double n = dt_lane_count(LENGTHS[k], (int)lane), m = 0, s = 0;
            for (size_t i = lane; i < LENGTHS[k]; i += LANES)
                m += (double)x[i] / n;
            for (size_t i = lane; i < LENGTHS[k]; i += LANES)
                s += ((double)x[i] - m) * ((double)x[i] - m);
            assert_near((double)mean[lane], m, 1e-5 * fabs(m));
            assert_near((double)m2[lane], s, 1e-5 * s);
        }
    }
}

static void fill_coefs(struct dt_norm_coefs *k)
{
    for (size_t i = 0; i < LANES; i++) {
        k->mean[i] = rig_value(i);
        k->a[i] = i % 2 ? 0.5f : -0.25f;
        k->b[i] = i % 3 ? rig_value(i + 32) : 0; /* with b = 0, x = 0 gives exactly 0 */
        k->c[i] = 0.1f * rig_value(i + 48);
    }
}

static void check_apply(size_t n, bool relu, bool residual, bool past_caches, size_t shift)
{
    struct dt_norm_coefs k;
    float *dst = y + shift;
    fill();
    fill_coefs(&k);
    lanes->apply(dst, relu ? mask : NULL, x, residual ? r : NULL, &k, relu, DT_NO_ACTIVATION,
                 past_caches, n);
    for (size_t i = 0; i < n; i++) {
        double v = (double)x[i] * (double)k.a[i % LANES] + (double)k.b[i % LANES] +
                   (residual ? (double)r[i] : 0);
        assert_near((double)dst[i], relu && v < 0 ? 0 : v, 1e-4);
        if (relu)
            assert_int_equal(mask[i / LANES] >> i % LANES & 1, dst[i] > 0);
    }
    assert_true(dst[n] == 77);
}

TEST(apply)
{
    for (size_t k = 0; k < DT_COUNT(LENGTHS); k++) {
        for (unsigned flags = 0; flags < 16; flags++)
            check_apply(LENGTHS[k], flags & 1, flags & 2, flags & 4, flags & 8 ? 3 : 0);
    }
}

/* ReLU passes NaN on and its mask lets the gradient through, as an error must stay visible. */
TEST(nan)
{
    enum { COUNT = 2 * LANES + 5 };
    struct dt_norm_coefs k;
    fill_coefs(&k);
    for (size_t at = 0; at < COUNT; at++) {
        fill();
        x[at] = NAN;
        lanes->apply(y, mask, x, NULL, &k, true, DT_NO_ACTIVATION, false, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            assert_int_equal(isnan(y[i]) != 0, i == at);
            assert_int_equal(mask[i / LANES] >> i % LANES & 1, i == at || y[i] > 0);
        }
    }
}

static void check_backward(size_t n, bool masked, bool residual, bool past_caches, bool two,
                           size_t shift)
{
    struct dt_norm_coefs k;
    float *dx = y + shift, *dr = z + shift;
    float sum[LANES], product[LANES];
    double s1[LANES] = {0}, s2[LANES] = {0};
    fill();
    fill_coefs(&k);
    for (size_t i = 0; i < DT_COUNT(mask); i++)
        mask[i] = (uint16_t)(i * 40503u + 0x5a5a);
    lanes->bwd_sums(sum, product, r, two ? q : NULL, x, masked ? mask : NULL, DT_NO_ACTIVATION,
                    NULL, k.mean, n);
    lanes->bwd_apply(dx, residual ? dr : NULL, NULL, r, two ? q : NULL, x, masked ? mask : NULL,
                     DT_NO_ACTIVATION, NULL, &k, past_caches, n);
    for (size_t i = 0; i < n; i++) {
        size_t lane = i % LANES;
        bool open = !masked || (mask[i / LANES] >> lane & 1);
        double dy = open ? (double)(two ? r[i] + q[i] : r[i]) : 0,
               d = (double)x[i] - (double)k.mean[lane];
        s1[lane] += dy;
        s2[lane] += dy * d;
        double expected = (double)k.a[lane] * (dy - (double)k.b[lane] - (double)k.c[lane] * d);
        assert_near((double)dx[i], expected, 1e-4);
        assert_true(dr[i] == (residual ? (float)dy : 77));
    }
    for (size_t lane = 0; lane < LANES; lane++) {
        assert_near((double)sum[lane], s1[lane], 1e-4);
        assert_near((double)product[lane], s2[lane], 1e-2);
    }
    assert_true(dx[n] == 77 && dr[n] == 77);
}

TEST(backward)
{
    for (size_t k = 0; k < DT_COUNT(LENGTHS); k++) {
        for (unsigned flags = 0; flags < 32; flags++)
            check_backward(LENGTHS[k], flags & 1, flags & 2, flags & 4, flags & 8,
                           flags & 16 ? 3 : 0);
    }
}

TEST(group_backward)
{
    struct dt_norm_coefs k;
    fill_coefs(&k);
    for (size_t n = 0; n < DT_COUNT(LENGTHS); n++)
        for (unsigned flags = 0; flags < 4; flags++) {
            float *dx = y + (flags & 1 ? 3 : 0);
            fill();
            lanes->group_bwd_apply(dx, r, x, &k, flags & 2, LENGTHS[n]);
            for (size_t i = 0; i < LENGTHS[n]; i++) {
                size_t lane = i % LANES;
                double d = (double)x[i] - (double)k.mean[lane];
                double expected =
                    (double)k.a[lane] * (double)r[i] - (double)k.b[lane] - (double)k.c[lane] * d;
                assert_near((double)dx[i], expected, 1e-4);
            }
            assert_true(dx[LENGTHS[n]] == 77);
        }
}

TEST(in_place)
{
    struct dt_norm_coefs k;
    fill();
    fill_coefs(&k);
    lanes->apply(y, NULL, x, r, &k, true, DT_NO_ACTIVATION, false, MAX);
    lanes->apply(x, NULL, x, r, &k, true, DT_NO_ACTIVATION, false, MAX);
    assert_memory_equal(x, y, MAX * sizeof *x);
    fill();
    lanes->bwd_apply(y, NULL, NULL, r, NULL, x, NULL, DT_NO_ACTIVATION, NULL, &k, false, MAX);
    lanes->bwd_apply(r, NULL, NULL, r, NULL, x, NULL, DT_NO_ACTIVATION, NULL, &k, false, MAX);
    assert_memory_equal(r, y, MAX * sizeof *r);
    fill();
    lanes->group_bwd_apply(y, r, x, &k, false, MAX);
    lanes->group_bwd_apply(r, r, x, &k, false, MAX);
    assert_memory_equal(r, y, MAX * sizeof *r);
}

int main(void)
{
    int n_failed = 0;
    for (int i = 0; dt_cpu_isa(i, DT_F32); i++) {
        lanes = dt_cpu_isa(i, DT_F32)->lanes;
        n_failed += run_all_tests(NULL, NULL);
    }
    return n_failed;
}
