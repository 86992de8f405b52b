/* The kernels of pool.cu against plain loops: windows that overlap, hang over the edge, or do not
 * divide the image. */
#include "kernel_rig.h"

static size_t at(const struct dt_pool_shape *s, bool big, int n, int h, int w, int c)
{
    size_t height = (size_t)(big ? s->in_h : s->out_h), width = (size_t)(big ? s->in_w : s->out_w);
    return (((size_t)n * height + (size_t)h) * width + (size_t)w) * (size_t)s->cp + (size_t)c;
}

static size_t big_rows(const struct dt_pool_shape *s)
{
    return (size_t)s->n * (size_t)s->in_h * (size_t)s->in_w;
}

static size_t small_rows(const struct dt_pool_shape *s)
{
    return (size_t)s->n * (size_t)s->out_h * (size_t)s->out_w;
}

/* What one output keeps, and where it lies in src. */
struct maximum {
    double value;
    int where;
    size_t index;
};

static struct maximum find_max(const struct dt_pool_shape *s, const struct array *src, int n,
                               int oh, int ow, int c)
{
    struct maximum m = {(double)-INFINITY, -1, 0};
    for (int y = 0; y < s->kernel; y++)
        for (int x = 0; x < s->kernel; x++) {
            int h = oh * s->stride - s->pad + y, w = ow * s->stride - s->pad + x;
            if (h < 0 || h >= s->in_h || w < 0 || w >= s->in_w)
                continue;
            double v = (double)src->value[at(s, true, n, h, w, c)];
            if (m.where < 0 || (!isnan(m.value) && (isnan(v) || v > m.value)))
                m = (struct maximum){v, y * s->kernel + x, at(s, true, n, h, w, c)};
        }
    return m;
}

/* Coarse values, so that ties are many; some NaN and a window of nothing but -infinity. */
static void set_max_values(struct array *src, const struct dt_pool_shape *s, int c)
{
    for (size_t i = 0; i < src->count; i++) {
        if ((int)(i % (size_t)s->cp) >= c)
            continue;
        src->value[i] = stored(src->type, floor(4 * random_value(i, 1)) / 4);
        if (i % 97 == 5)
            src->value[i] = NAN;
    }
    for (int h = 0; h < s->in_h; h++)
        for (int w = 0; w < s->in_w; w++)
            src->value[at(s, true, 0, h, w, 1)] = -INFINITY;
    array_put(src);
}

/* Compares dst, and `where` if given, with the maxima of src; adds diff_dst to sum, if given, at
 * their places. */
static void check_maxima(const struct dt_pool_shape *s, const struct array *src,
                         const struct array *dst, const struct array *where,
                         const struct array *diff_dst, double *sum)
{
    for (size_t i = 0; i < dst->count; i++) {
        int pixel = (int)(i / (size_t)s->cp), line = pixel / s->out_w;
        struct maximum m = find_max(s, src, line / s->out_h, line % s->out_h, pixel % s->out_w,
                                    (int)(i % (size_t)s->cp));
        assert_value(dst, i, m.value, 0);
        if (where)
            assert_value(where, i, m.where, 0);
        if (sum)
            sum[m.index] += (double)diff_dst->value[i];
    }
}

static void check_max_pool(enum dt_dtype type, const struct dt_pool_shape *s, int c)
{
    size_t small = small_rows(s) * (size_t)s->cp, big = big_rows(s) * (size_t)s->cp;
    struct array src = array_create(type, big), dst = array_create(type, small);
    struct array eval = array_create(type, small), where = array_create(DT_U8, small);
    struct array diff_dst = array_rows(type, small_rows(s), c, s->cp, 1, 2);
    struct array diff_src = array_create(type, big);
    double *sum = calloc(big, sizeof *sum);
    assert_non_null(sum);
    set_max_values(&src, s, c);

    CUDA(dt_kernel_max_pool(stream, type, eval.memory, NULL, src.memory, s));
    CUDA(dt_kernel_max_pool(stream, type, dst.memory, where.memory, src.memory, s));
    CUDA(dt_kernel_max_pool_bwd(stream, type, diff_src.memory, diff_dst.memory, where.memory, s));
    array_get(&eval);
    array_get(&dst);
    array_get(&where);
    array_get(&diff_src);
    check_maxima(s, &src, &eval, NULL, NULL, NULL);
    check_maxima(s, &src, &dst, &where, &diff_dst, sum);
    for (size_t i = 0; i < big; i++)
        assert_value(&diff_src, i, sum[i], 1e-6);
    free(sum);
    free_all();
}

TEST(max_pool)
{
    static const struct {
        struct dt_pool_shape shape; /* n cp in_h in_w out_h out_w kernel stride pad */
        int c;
    } cases[] = {{{2, 8, 7, 9, 4, 5, 3, 2, 1}, 8},    {{3, 16, 6, 6, 3, 3, 2, 2, 0}, 11},
                 {{1, 24, 5, 4, 5, 4, 3, 1, 1}, 20},  {{2, 8, 13, 13, 6, 6, 3, 2, 0}, 5},
                 {{1, 8, 20, 18, 5, 4, 16, 1, 0}, 3}, {{1, 8, 9, 9, 3, 3, 2, 4, 0}, 8},
                 {{2, 64, 16, 16, 8, 8, 3, 2, 1}, 64}};
    for (size_t t = 0; t < DT_COUNT(TYPES); t++)
        for (size_t i = 0; i < DT_COUNT(cases); i++) {
            struct dt_pool_shape s = cases[i].shape;
            s.out_h = (s.in_h + 2 * s.pad - s.kernel) / s.stride + 1;
            s.out_w = (s.in_w + 2 * s.pad - s.kernel) / s.stride + 1;
            check_max_pool(TYPES[t], &s, cases[i].c);
        }
}

/* --- Average --- */

static int window_first(int o, int in, int out)
{
    return o * in / out;
}

static int window_end(int o, int in, int out)
{
    return (int)ceil((double)(o + 1) * in / out);
}

/* One output's window: average of src into *dst, and *diff / area added to sum. */
static void take_window(const struct dt_pool_shape *s, const struct array *src, double *average,
                        double *sum, double diff, const int place[4])
{
    int h0 = window_first(place[1], s->in_h, s->out_h),
        h1 = window_end(place[1], s->in_h, s->out_h);
    int w0 = window_first(place[2], s->in_w, s->out_w),
        w1 = window_end(place[2], s->in_w, s->out_w);
    double area = (double)(h1 - h0) * (w1 - w0);
    *average = 0;
    for (int h = h0; h < h1; h++)
        for (int w = w0; w < w1; w++) {
            *average += (double)src->value[at(s, true, place[0], h, w, place[3])] / area;
            sum[at(s, true, place[0], h, w, place[3])] += diff / area;
        }
}

static void check_avg_pool(enum dt_dtype type, const struct dt_pool_shape *s, int c)
{
    size_t small = small_rows(s) * (size_t)s->cp, big = big_rows(s) * (size_t)s->cp;
    struct array src = array_rows(type, big_rows(s), c, s->cp, 1, 1);
    struct array dst = array_create(type, small), diff_src = array_create(type, big);
    struct array diff_dst = array_rows(type, small_rows(s), c, s->cp, 1, 2);
    double *sum = calloc(big, sizeof *sum), average;
    assert_non_null(sum);
    CUDA(dt_kernel_avg_pool(stream, type, dst.memory, src.memory, s));
    CUDA(dt_kernel_avg_pool_bwd(stream, type, diff_src.memory, diff_dst.memory, s));
    array_get(&dst);
    array_get(&diff_src);
    for (size_t i = 0; i < small; i++) {
        int pixel = (int)(i / (size_t)s->cp), line = pixel / s->out_w;
        const int place[4] = {line / s->out_h, line % s->out_h, pixel % s->out_w,
                              (int)(i % (size_t)s->cp)};
        take_window(s, &src, &average, sum, (double)diff_dst.value[i], place);
        assert_value(&dst, i, average, 1e-6);
    }
    for (size_t i = 0; i < big; i++)
        assert_value(&diff_src, i, sum[i], 1e-6);
    free(sum);
    free_all();
}

TEST(avg_pool)
{
    static const struct dt_pool_shape shapes[] = {
        {3, 16, 7, 7, 1, 1, 0, 0, 0},   {2, 8, 6, 5, 4, 3, 0, 0, 0},
        {1, 24, 2, 3, 5, 7, 0, 0, 0},   {2, 8, 12, 12, 6, 6, 0, 0, 0},
        {1, 8, 13, 13, 6, 6, 0, 0, 0},  {1, 8, 1, 1, 7, 7, 0, 0, 0},
        {1, 8, 10, 7, 3, 7, 0, 0, 0},   {2, 72, 40, 33, 1, 1, 0, 0, 0},
        {1, 136, 13, 20, 2, 2, 0, 0, 0}};
    for (size_t t = 0; t < DT_COUNT(TYPES); t++)
        for (size_t i = 0; i < DT_COUNT(shapes); i++)
            check_avg_pool(TYPES[t], &shapes[i], shapes[i].cp - 3);
}

/* --- Upsampling --- */

static void check_upsample_add(enum dt_dtype type, const struct dt_pool_shape *s, int c)
{
    struct array coarse = array_rows(type, small_rows(s), c, s->cp, 1, 1);
    struct array fine = array_rows(type, big_rows(s), c, s->cp, 1, 2);
    struct array dst = array_create(type, fine.count), diff = array_create(type, coarse.count);
    double *sum = calloc(coarse.count, sizeof *sum);
    assert_non_null(sum);
    CUDA(dt_kernel_upsample_add_bwd(stream, type, diff.memory, fine.memory, s));
    CUDA(dt_kernel_upsample_add(stream, type, dst.memory, coarse.memory, fine.memory, s));
    CUDA(dt_kernel_upsample_add(stream, type, fine.memory, coarse.memory, fine.memory, s));
    array_get(&dst);
    array_get(&diff);
    for (size_t i = 0; i < dst.count; i++) {
        int pixel = (int)(i / (size_t)s->cp), line = pixel / s->in_w;
        size_t j = at(s, false, line / s->in_h, line % s->in_h / 2, pixel % s->in_w / 2,
                      (int)(i % (size_t)s->cp));
        sum[j] += (double)fine.value[i];
        assert_value(&dst, i, (double)coarse.value[j] + (double)fine.value[i], 0);
    }
    for (size_t j = 0; j < diff.count; j++)
        assert_value(&diff, j, sum[j], 1e-6);
    array_get(&fine); /* in place */
    for (size_t i = 0; i < dst.count; i++)
        assert_value(&fine, i, (double)dst.value[i], 0);
    free(sum);
    free_all();
}

TEST(upsample_add)
{
    static const struct dt_pool_shape shapes[] = {
        {1, 8, 2, 2, 1, 1, 0, 0, 0}, {2, 16, 6, 10, 3, 5, 0, 0, 0}, {3, 264, 8, 2, 4, 1, 0, 0, 0}};
    for (size_t t = 0; t < DT_COUNT(TYPES); t++)
        for (size_t i = 0; i < DT_COUNT(shapes); i++)
            check_upsample_add(TYPES[t], &shapes[i], shapes[i].cp - 3);
}

KERNEL_TEST_MAIN()
