/* The inner loops of batch and group norm against plain loops: rows of many lengths and of several
 * columns (nhwc), and single columns of such rows, with and without mask, residual and writing past
 * the caches, in place, unaligned, in every instruction set of this CPU.
 *
 * Label: numeric. */
#include "cpu/isa.h"
#include "cpu_rig.h"

enum { MAX = 3 * 4096 + 21, MAX_COLUMNS = 3 };

static const struct dt_norm_loops *lanes;
static const struct dt_norm_row ROWS[] = {
    {0, 16, 1, 1, 16, 1},   {0, 16, 15, 1, 16, 1},  {1, 16, 0, 1, 16, 1},
    {1, 16, 1, 1, 16, 1},   {3, 16, 1, 1, 16, 1},   {49, 16, 0, 1, 16, 1},
    {256, 16, 0, 1, 16, 1}, {256, 16, 1, 1, 16, 1}, {3 * 256 + 1, 16, 5, 1, 16, 1},
    {300, 40, 0, 3, 8, 3},  {49, 48, 0, 3, 16, 3},  {256, 48, 0, 3, 16, 3},
    {260, 33, 0, 3, 1, 3},  {7, 10, 0, 1, 10, 1},   {300, 40, 0, 1, 8, 3},
    {260, 40, 0, 1, 16, 3}, {2, 64, 0, 2, 16, 4},
};

static float x[MAX + LANES] __attribute__((aligned(64)));
static float r[MAX + LANES] __attribute__((aligned(64)));
static float q[MAX + LANES] __attribute__((aligned(64)));
static float y[MAX + LANES] __attribute__((aligned(64)));
static float z[MAX + LANES] __attribute__((aligned(64)));
static uint16_t mask[MAX / LANES + 260];

/* A value of a row. */
struct place {
    size_t pixel, column, lane; /* the rest is one pixel more */
    size_t at, word;
};

static size_t width_at(const struct dt_norm_row *row, const struct place *p)
{
    return p->pixel == row->pixels                 ? row->rest
           : p->column + 1 == (size_t)row->columns ? (size_t)row->width
                                                   : LANES;
}

static bool next(struct place *p, const struct dt_norm_row *row)
{
    if (++p->lane >= width_at(row, p)) {
        p->lane = 0;
        if (++p->column >= (p->pixel < row->pixels ? (size_t)row->columns : 1)) {
            p->column = 0;
            p->pixel++;
        }
    }
    p->at = p->pixel * row->step + p->column * LANES + p->lane;
    p->word = p->pixel * (size_t)row->words + p->column;
    return p->pixel < row->pixels || (p->pixel == row->pixels && row->rest > 0);
}

/* Runs the body for every value `p` of a row. */
#define FOR_PLACES(p, row) for (struct place p = {.lane = (size_t)-1}; next(&p, row);)

/* All that is not in the row still has its first value. */
static void check_rest(const float *dst, const struct dt_norm_row *row)
{
    static bool is_in[MAX + LANES];
    memset(is_in, 0, sizeof is_in);
    FOR_PLACES(p, row)
    is_in[p.at] = true;
    for (size_t i = 0; i < MAX; i++)
        assert_true(is_in[i] || dst[i] == 77);
}

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
    for (size_t k = 0; k < DT_COUNT(ROWS); k++) {
        const struct dt_norm_row *row = &ROWS[k];
        struct dt_norm_sums sums[MAX_COLUMNS];
        double n[MAX_COLUMNS][LANES] = {0}, m[MAX_COLUMNS][LANES] = {0},
               s[MAX_COLUMNS][LANES] = {0};
        lanes->moments(sums, x, row);
        FOR_PLACES(p, row)
        {
            n[p.column][p.lane]++;
            m[p.column][p.lane] += (double)x[p.at];
        }
        FOR_PLACES(p, row)
        s[p.column][p.lane] += pow((double)x[p.at] - m[p.column][p.lane] / n[p.column][p.lane], 2);
        for (size_t i = 0; i < MAX_COLUMNS * LANES; i++) {
            const size_t c = i / LANES, lane = i % LANES;
            if (n[c][lane] == 0)
                continue;
            if (row->step == LANES)
                assert_true(n[c][lane] ==
                            dt_lane_count(row->pixels * LANES + row->rest, (int)lane));
            m[c][lane] /= n[c][lane];
            assert_near((double)sums[c].first[lane], m[c][lane], 1e-5 * fabs(m[c][lane]));
            assert_near((double)sums[c].second[lane], s[c][lane], 1e-5 * s[c][lane]);
        }
    }
}

static void fill_coefs(struct dt_norm_coefs k[MAX_COLUMNS])
{
    for (size_t i = 0; i < MAX_COLUMNS * LANES; i++) {
        struct dt_norm_coefs *column = &k[i / LANES];
        column->mean[i % LANES] = rig_value(i);
        column->a[i % LANES] = i % 2 ? 0.5f : -0.25f;
        column->b[i % LANES] = i % 3 ? rig_value(i + 32) : 0; /* b = 0, x = 0 give exactly 0 */
        column->c[i % LANES] = 0.1f * rig_value(i + 48);
    }
}

static void check_apply(const struct dt_norm_row *row, bool relu, bool residual, bool past_caches,
                        size_t shift)
{
    struct dt_norm_coefs k[MAX_COLUMNS];
    float *dst = y + shift;
    fill();
    fill_coefs(k);
    lanes->apply(dst, relu ? mask : NULL, x, residual ? r : NULL, k,
                 relu ? DT_RELU : DT_NO_ACTIVATION, past_caches, row);
    FOR_PLACES(p, row)
    {
        double v = (double)x[p.at] * (double)k[p.column].a[p.lane] + (double)k[p.column].b[p.lane] +
                   (residual ? (double)r[p.at] : 0);
        assert_near((double)dst[p.at], relu && v < 0 ? 0 : v, 1e-4);
        if (relu)
            assert_int_equal(mask[p.word] >> p.lane & 1, dst[p.at] > 0);
    }
    check_rest(dst, row);
}

TEST(apply)
{
    for (size_t k = 0; k < DT_COUNT(ROWS); k++) {
        for (unsigned flags = 0; flags < 16; flags++)
            check_apply(&ROWS[k], flags & 1, flags & 2, flags & 4, flags & 8 ? 3 : 0);
    }
}

/* ReLU passes NaN on and its mask lets the gradient through, as an error must stay visible. */
TEST(nan)
{
    enum { COUNT = 2 * LANES + 5 };
    const struct dt_norm_row row = dt_norm_flat(COUNT);
    struct dt_norm_coefs k[MAX_COLUMNS];
    fill_coefs(k);
    for (size_t at = 0; at < COUNT; at++) {
        fill();
        x[at] = NAN;
        lanes->apply(y, mask, x, NULL, k, DT_RELU, false, &row);
        for (size_t i = 0; i < COUNT; i++) {
            assert_int_equal(isnan(y[i]) != 0, i == at);
            assert_int_equal(mask[i / LANES] >> i % LANES & 1, i == at || y[i] > 0);
        }
    }
}

static void check_backward(const struct dt_norm_row *row, bool masked, bool residual,
                           bool past_caches, bool two, size_t shift)
{
    struct dt_norm_coefs k[MAX_COLUMNS];
    float *dx = y + shift, *dr = z + shift;
    struct dt_norm_sums sums[MAX_COLUMNS];
    double s1[MAX_COLUMNS][LANES] = {0}, s2[MAX_COLUMNS][LANES] = {0};
    fill();
    fill_coefs(k);
    for (size_t i = 0; i < DT_COUNT(mask); i++)
        mask[i] = (uint16_t)(i * 40503u + 0x5a5a);
    lanes->bwd_apply(dx, residual ? dr : NULL, NULL, r, two ? q : NULL, x, masked ? mask : NULL,
                     DT_NO_ACTIVATION, k, k, past_caches, row);
    FOR_PLACES(p, row)
    {
        const struct dt_norm_coefs *c = &k[p.column];
        bool open = !masked || (mask[p.word] >> p.lane & 1);
        double dy = open ? (double)(two ? r[p.at] + q[p.at] : r[p.at]) : 0,
               d = (double)x[p.at] - (double)c->mean[p.lane];
        s1[p.column][p.lane] += dy;
        s2[p.column][p.lane] += dy * d;
        double expected =
            (double)c->a[p.lane] * (dy - (double)c->b[p.lane] - (double)c->c[p.lane] * d);
        assert_near((double)dx[p.at], expected, 1e-4);
        assert_true(dr[p.at] == (residual ? (float)dy : 77));
    }
    check_rest(dx, row);
    check_rest(dr, row);
    lanes->bwd_sums(sums, r, two ? q : NULL, x, masked ? mask : NULL, DT_NO_ACTIVATION, k, k, row);
    FOR_PLACES(p, row)
    {
        const double sum = s1[p.column][p.lane], product = s2[p.column][p.lane];
        assert_near((double)sums[p.column].first[p.lane], sum, 1e-4);
        assert_near((double)sums[p.column].second[p.lane], product, 1e-2);
    }
}

TEST(backward)
{
    for (size_t k = 0; k < DT_COUNT(ROWS); k++) {
        for (unsigned flags = 0; flags < 32; flags++)
            check_backward(&ROWS[k], flags & 1, flags & 2, flags & 4, flags & 8,
                           flags & 16 ? 3 : 0);
    }
}

TEST(group_backward)
{
    struct dt_norm_coefs k[MAX_COLUMNS];
    fill_coefs(k);
    for (size_t n = 0; n < DT_COUNT(ROWS); n++)
        for (unsigned flags = 0; flags < 4; flags++) {
            float *dx = y + (flags & 1 ? 3 : 0);
            fill();
            lanes->group_bwd_apply(dx, r, x, k, flags & 2, &ROWS[n]);
            FOR_PLACES(p, &ROWS[n])
            {
                const struct dt_norm_coefs *c = &k[p.column];
                double d = (double)x[p.at] - (double)c->mean[p.lane];
                double expected = (double)c->a[p.lane] * (double)r[p.at] - (double)c->b[p.lane] -
                                  (double)c->c[p.lane] * d;
                assert_near((double)dx[p.at], expected, 1e-4);
            }
            check_rest(dx, &ROWS[n]);
        }
}

TEST(in_place)
{
    for (size_t n = 0; n < DT_COUNT(ROWS); n++) {
        const struct dt_norm_row *row = &ROWS[n];
        struct dt_norm_coefs k[MAX_COLUMNS];
        fill();
        fill_coefs(k);
        memcpy(y, x, sizeof y);
        lanes->apply(y, NULL, x, r, k, DT_RELU, false, row);
        lanes->apply(x, NULL, x, r, k, DT_RELU, false, row);
        assert_memory_equal(x, y, MAX * sizeof *x);
        fill();
        memcpy(y, r, sizeof y);
        memcpy(z, r, sizeof z);
        lanes->bwd_apply(y, NULL, NULL, r, NULL, x, NULL, DT_NO_ACTIVATION, k, k, false, row);
        lanes->bwd_apply(z, NULL, NULL, z, NULL, x, NULL, DT_NO_ACTIVATION, k, k, false, row);
        assert_memory_equal(z, y, MAX * sizeof *z);
        lanes->group_bwd_apply(y, r, x, k, false, row);
        lanes->group_bwd_apply(r, r, x, k, false, row);
        FOR_PLACES(p, row)
        assert_true(r[p.at] == y[p.at]);
    }
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
