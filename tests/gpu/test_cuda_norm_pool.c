/* The kernels of norm_pool.cu: forward bit by bit against batch norm and max pooling one after the
 * other, backward against plain loops in fp64. Windows that overlap, hang over the edge, or do not
 * divide the image; ties, NaN, values that are rounded to 0. */
#include "norm_rig.h"

static const float EPS = 1e-5f;

enum { NO_GRADIENT = 255 };

struct net {
    enum dt_dtype type;
    int channels;
    struct dt_pool_shape shape;
    struct dt_norm_args args;
    struct array src, scale, shift, mean, variance;
    struct array dst, where, diff_dst, diff_src, partial, coefs, diff_scale, diff_shift;
    /* Of the kernels one after the other. */
    struct array normal, mask, pooled, taken, diff_normal, normal_diff_src;
};

static size_t pixels(const struct dt_pool_shape *s)
{
    return (size_t)s->n * (size_t)s->in_h * (size_t)s->in_w;
}

static size_t windows(const struct dt_pool_shape *s)
{
    return (size_t)s->n * (size_t)s->out_h * (size_t)s->out_w;
}

static struct array make_vector(const struct net *n, double center, double range, uint32_t seed)
{
    struct array a = array_create(DT_F32, (size_t)n->args.cp);
    for (int c = 0; c < n->channels; c++)
        a.value[c] = (float)(center + range * random_value((size_t)c, seed));
    return a;
}

/* Coarse values, so that ties are many. Two channels are special: 0 everywhere, and so small that
 * fp16 rounds positive values to 0. */
static void set_values(struct net *n)
{
    for (size_t i = 0; i < n->src.count; i++)
        if ((int)(i % (size_t)n->args.cp) < n->channels)
            n->src.value[i] = stored(n->type, floor(16 * random_value(i, 1)) / 16);
    n->scale.value[0] = 0;
    n->shift.value[0] = 0;
    n->scale.value[1] = 1e-9f;
    n->shift.value[1] = 0;
    n->mean.value[1] = 0;
    struct array *put[] = {&n->src, &n->scale, &n->shift, &n->mean, &n->variance};
    for (size_t i = 0; i < DT_COUNT(put); i++)
        array_put(put[i]);
}

static struct net *open_net(const struct dt_pool_shape *shape, int channels, enum dt_dtype type)
{
    struct net *n = calloc(1, sizeof *n);
    assert_non_null(n);
    struct dt_pool_shape *s = &n->shape;
    *s = *shape;
    s->out_h = (s->in_h + 2 * s->pad - s->kernel) / s->stride + 1;
    s->out_w = (s->in_w + 2 * s->pad - s->kernel) / s->stride + 1;
    n->type = type;
    n->channels = channels;
    n->args = (struct dt_norm_args){
        .rows = pixels(s), .cp = s->cp, .eps = EPS, .tickets = tickets.memory};
    size_t cp = (size_t)s->cp, big = pixels(s) * cp, small = windows(s) * cp;
    n->src = array_create(type, big);
    n->scale = make_vector(n, 0, 1.5, 2);
    n->shift = make_vector(n, 0, 0.3, 3);
    n->mean = make_vector(n, 0, 0.3, 4);
    n->variance = make_vector(n, 1, 0.5, 5);
    n->dst = array_create(type, small);
    n->where = array_create(DT_U8, small);
    n->diff_dst = array_rows(type, windows(s), channels, s->cp, 1, 6);
    n->diff_src = array_create(type, big);
    n->partial =
        array_create(DT_F32, dt_sums_partial_bytes(n->args.rows, s->cp, 2) / sizeof(float));
    n->coefs = array_create(DT_F32, 3 * cp);
    n->diff_scale = array_create(DT_F32, cp);
    n->diff_shift = array_create(DT_F32, cp);
    n->normal = array_create(type, big);
    n->mask = array_create(DT_U8, big / 8);
    n->pooled = array_create(type, small);
    n->taken = array_create(DT_U8, small);
    n->diff_normal = array_create(type, big);
    n->normal_diff_src = array_create(type, big);
    set_values(n);
    return n;
}

/* Also looks at the guards of all arrays. */
static void close_net(struct net *n)
{
    struct array *arrays[] = {&n->src,        &n->scale,       &n->shift,          &n->mean,
                              &n->variance,   &n->dst,         &n->where,          &n->diff_dst,
                              &n->diff_src,   &n->partial,     &n->coefs,          &n->diff_scale,
                              &n->diff_shift, &n->normal,      &n->mask,           &n->pooled,
                              &n->taken,      &n->diff_normal, &n->normal_diff_src};
    for (size_t i = 0; i < DT_COUNT(arrays); i++) {
        array_get(arrays[i]);
        array_free(arrays[i]);
    }
    free(n);
}

/* --- Forward --- */

static void launch_forward(struct net *n, bool with_where)
{
    const struct dt_bn_vectors bn = {n->scale.memory, n->shift.memory, n->mean.memory,
                                     n->variance.memory};
    CUDA(dt_kernel_bn_max_pool(stream, n->type, n->dst.memory, with_where ? n->where.memory : NULL,
                               n->src.memory, &bn, EPS, &n->shape));
}

static void launch_apart(struct net *n)
{
    CUDA(dt_kernel_bn_apply(stream, n->type, n->normal.memory, n->mask.memory, n->src.memory, NULL,
                            n->scale.memory, n->shift.memory, n->mean.memory, n->variance.memory,
                            true, &n->args));
    CUDA(dt_kernel_max_pool(stream, n->type, n->pooled.memory, n->taken.memory, n->normal.memory,
                            &n->shape));
}

/* The element of src at index `where` in the window that gave element i of dst. */
static size_t taken_element(const struct dt_pool_shape *s, size_t i, int where)
{
    int c = (int)(i % (size_t)s->cp), window = (int)(i / (size_t)s->cp), line = window / s->out_w;
    int h = line % s->out_h * s->stride - s->pad + where / s->kernel;
    int w = window % s->out_w * s->stride - s->pad + where % s->kernel;
    assert_true(h >= 0 && h < s->in_h && w >= 0 && w < s->in_w);
    size_t pixel = ((size_t)(line / s->out_h) * (size_t)s->in_h + (size_t)h) * (size_t)s->in_w;
    return (pixel + (size_t)w) * (size_t)s->cp + (size_t)c;
}

static void check_equal(const struct array *a, const struct array *b)
{
    assert_memory_equal(a->value, b->value, a->count * sizeof *a->value);
}

static void check_dst(struct net *n)
{
    array_get(&n->dst);
    check_equal(&n->dst, &n->pooled);
}

static void check_forward(struct net *n)
{
    launch_apart(n);
    array_get(&n->mask);
    array_get(&n->pooled);
    array_get(&n->taken);
    launch_forward(n, false);
    check_dst(n);
    launch_forward(n, true);
    check_dst(n);
    array_get(&n->where);
    for (size_t i = 0; i < n->dst.count; i++) {
        int taken = (int)n->taken.value[i];
        size_t from = taken_element(&n->shape, i, taken);
        bool positive = (int)n->mask.value[from / 8] >> from % 8 & 1;
        assert_int_equal((int)n->where.value[i], positive ? taken : NO_GRADIENT);
    }
}

/* --- Backward, after check_forward --- */

static void launch_gradient(struct net *n, const struct array *diff_src)
{
    CUDA(dt_kernel_bn_pool_bwd_apply(stream, n->type, diff_src->memory, n->src.memory,
                                     n->diff_dst.memory, n->where.memory, n->coefs.memory,
                                     &n->shape));
}

static void launch_backward(struct net *n)
{
    const struct dt_bn_vectors bn = {n->scale.memory, NULL, n->mean.memory, n->variance.memory};
    const struct dt_bn_sums sums = {n->diff_scale.memory, n->diff_shift.memory, n->coefs.memory,
                                    n->partial.memory, NULL};
    CUDA(dt_kernel_bn_pool_bwd_sums(stream, n->type, &sums, n->src.memory, n->diff_dst.memory,
                                    n->where.memory, &bn, &n->args, &n->shape));
    launch_gradient(n, &n->diff_src);
}

/* With the coefficients of the fused kernels. */
static void launch_backward_apart(struct net *n)
{
    CUDA(dt_kernel_max_pool_bwd(stream, n->type, n->diff_normal.memory, n->diff_dst.memory,
                                n->taken.memory, &n->shape));
    CUDA(dt_kernel_bn_bwd_apply(stream, n->type, n->normal_diff_src.memory, n->src.memory,
                                n->diff_normal.memory, NULL, n->mask.memory, n->coefs.memory,
                                &n->args));
}

static void check_sums(const struct net *n, const double *g, int c)
{
    double mean = (double)n->mean.value[c], s1 = 0, s2 = 0, size1 = 0, size2 = 0;
    double inverse = 1 / sqrt((double)n->variance.value[c] + (double)EPS);
    for (size_t i = (size_t)c; i < n->src.count; i += (size_t)n->args.cp) {
        double product = g[i] * ((double)n->src.value[i] - mean) * inverse;
        s1 += g[i];
        s2 += product;
        size1 += fabs(g[i]);
        size2 += fabs(product);
    }
    assert_value(&n->diff_shift, (size_t)c, s1, 1e-6 * size1);
    assert_value(&n->diff_scale, (size_t)c, s2, 2e-6 * size2);
}

static void check_diff_src(const struct net *n, const double *g, int c)
{
    double mean = (double)n->mean.value[c], rows = (double)n->args.rows;
    double inverse = 1 / sqrt((double)n->variance.value[c] + (double)EPS);
    double a = (double)n->scale.value[c] * inverse;
    for (size_t i = (size_t)c; i < n->src.count; i += (size_t)n->args.cp) {
        double normal = ((double)n->src.value[i] - mean) * inverse;
        double mean_g = (double)n->diff_shift.value[c] / rows;
        double want = a * (g[i] - mean_g - normal * (double)n->diff_scale.value[c] / rows);
        assert_value(&n->diff_src, i, want, fabs(a) * 1e-6 * (4 + fabs(g[i])));
    }
}

static void check_backward(struct net *n)
{
    double *g = calloc(n->src.count, sizeof *g);
    assert_non_null(g);
    for (size_t i = 0; i < n->where.count; i++)
        if ((int)n->where.value[i] != NO_GRADIENT)
            g[taken_element(&n->shape, i, (int)n->where.value[i])] += (double)n->diff_dst.value[i];
    launch_backward(n);
    launch_backward_apart(n);
    struct array *get[] = {&n->diff_shift, &n->diff_scale, &n->diff_src, &n->normal_diff_src};
    for (size_t i = 0; i < DT_COUNT(get); i++)
        array_get(get[i]);
    for (int c = 0; c < n->args.cp; c++) {
        check_sums(n, g, c);
        check_diff_src(n, g, c);
    }
    if (n->type == DT_F32) /* 16-bit types round the gradient between the two */
        check_equal(&n->diff_src, &n->normal_diff_src);
    launch_gradient(n, &n->src);
    array_get(&n->src);
    check_equal(&n->diff_src, &n->src);
    free(g);
}

static void run_case(const struct dt_pool_shape *shape, int channels, enum dt_dtype type)
{
    struct net *n = open_net(shape, channels, type);
    check_forward(n);
    check_backward(n);
    close_net(n);
}

/* --- Tests --- */

TEST(windows)
{
    static const struct {
        struct dt_pool_shape shape; /* n cp in_h in_w out_h out_w kernel stride pad */
        int channels;
    } cases[] = {{{2, 8, 7, 9, 0, 0, 3, 2, 1}, 8},    {{3, 16, 6, 6, 0, 0, 2, 2, 0}, 11},
                 {{1, 24, 5, 4, 0, 0, 3, 1, 1}, 20},  {{2, 8, 13, 13, 0, 0, 3, 2, 0}, 5},
                 {{1, 8, 20, 18, 0, 0, 15, 1, 0}, 3}, {{1, 8, 9, 9, 0, 0, 2, 4, 0}, 8},
                 {{1, 8, 11, 12, 0, 0, 5, 3, 2}, 7},  {{1, 8, 1, 1, 0, 0, 3, 2, 1}, 2},
                 {{2, 64, 16, 16, 0, 0, 3, 2, 1}, 64}};
    for (size_t t = 0; t < DT_COUNT(TYPES); t++)
        for (size_t i = 0; i < DT_COUNT(cases); i++)
            run_case(&cases[i].shape, cases[i].channels, TYPES[t]);
}

/* As many blocks as there may be, rows that do not come out even. */
TEST(large)
{
    run_case(&(struct dt_pool_shape){2, 64, 113, 301, 0, 0, 3, 2, 1}, 64, DT_F16);
}

/* A window of 16 x 16 would need index 255. */
TEST(window_too_large)
{
    struct net *n = open_net(&(struct dt_pool_shape){1, 8, 20, 20, 0, 0, 16, 1, 0}, 8, DT_F32);
    const struct dt_bn_vectors bn = {n->scale.memory, n->shift.memory, n->mean.memory,
                                     n->variance.memory};
    assert_int_equal(dt_kernel_bn_max_pool(stream, n->type, n->dst.memory, n->where.memory,
                                           n->src.memory, &bn, EPS, &n->shape),
                     cudaErrorInvalidValue);
    close_net(n);
}

/* NaN is a maximum with a gradient; that goes to NaN and, by the sums, to its channel only. */
TEST(nan)
{
    for (size_t t = 0; t < DT_COUNT(TYPES); t++) {
        struct net *n = open_net(&(struct dt_pool_shape){2, 16, 9, 8, 0, 0, 3, 2, 1}, 13, TYPES[t]);
        size_t cp = 16;
        for (size_t pixel = 7; pixel < pixels(&n->shape); pixel += 11)
            n->src.value[pixel * cp + 5] = NAN;
        array_put(&n->src);
        check_forward(n);
        launch_backward(n);
        array_get(&n->diff_src);
        for (size_t i = 0; i < n->diff_src.count; i++)
            assert_int_equal(isnan(n->diff_src.value[i]) != 0, i % cp == 5);
        close_net(n);
    }
}

NORM_TEST_MAIN()
