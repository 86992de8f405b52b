/* The kernels of norm.cu against plain loops in fp64: odd shapes, in place, values far from zero,
 * NaN, one row, the same bits each time. */
#include "norm_rig.h"

static const double EPS = 1e-5, MOMENTUM = 0.1;

enum {
    RELU = 1,
    RESIDUAL = 2,
    TWO = 4,
    IN_PLACE = 8,
    ALL_FLAGS = 16,
    YIELDS = 16, /* in the large cases, for which it makes a difference */
    MAX_CHANNELS = 2048
};

struct shape {
    size_t rows;
    int channels;
};

struct net {
    unsigned flags;
    enum dt_dtype type;
    int channels;
    double offset; /* of src */
    struct dt_norm_args args;
    struct array src, residual, diff_dst, diff_dst2, dst, mask, partial, coefs, diff_residual;
    struct array scale, shift, running_mean, running_var, mean, variance;
    struct array diff_scale, diff_shift, diff_src;
    /* What is expected; `on` has the mask of the ReLU as bytes. */
    double want_mean[MAX_CHANNELS], want_variance[MAX_CHANNELS];
    uint8_t *on;
};

static struct array make_vector(const struct net *n, double center, double range, uint32_t seed)
{
    struct array a = array_create(DT_F32, (size_t)n->args.cp);
    for (int c = 0; c < n->channels; c++)
        a.value[c] = (float)(center + range * random_value((size_t)c, seed));
    array_put(&a);
    return a;
}

static struct array make_src(const struct net *n)
{
    struct array a = array_create(n->type, n->args.rows * (size_t)n->args.cp);
    for (size_t i = 0; i < a.count; i++)
        if ((int)(i % (size_t)n->args.cp) < n->channels)
            a.value[i] = stored(n->type, n->offset + random_value(i, 1));
    array_put(&a);
    return a;
}

static struct net *open_net(struct shape shape, enum dt_dtype type, unsigned flags, double offset)
{
    struct net *n = calloc(1, sizeof *n);
    assert_non_null(n);
    n->flags = flags;
    n->type = type;
    n->channels = shape.channels;
    n->offset = offset;
    n->args = (struct dt_norm_args){.rows = shape.rows,
                                    .cp = (shape.channels + 7) / 8 * 8,
                                    .eps = (float)EPS,
                                    .momentum = (float)MOMENTUM,
                                    .yields = flags & YIELDS,
                                    .tickets = tickets.memory};
    size_t cp = (size_t)n->args.cp, count = shape.rows * cp;
    n->src = make_src(n);
    n->residual = array_rows(type, shape.rows, shape.channels, n->args.cp, 1, 2);
    n->diff_dst = array_rows(type, shape.rows, shape.channels, n->args.cp, 1, 3);
    n->diff_dst2 = array_rows(type, shape.rows, shape.channels, n->args.cp, 1, 4);
    n->dst = array_create(type, count);
    n->mask = array_create(DT_U8, count / 8);
    n->partial =
        array_create(DT_F32, dt_sums_partial_bytes(shape.rows, n->args.cp, 2) / sizeof(float));
    n->scale = make_vector(n, 1, 0.5, 5);
    n->shift = make_vector(n, 0, 0.5, 6);
    n->running_mean = make_vector(n, 0, 1, 7);
    n->running_var = make_vector(n, 2, 1, 8);
    n->mean = array_create(DT_F32, cp);
    n->variance = array_create(DT_F32, cp);
    n->coefs = array_create(DT_F32, 3 * cp);
    n->diff_scale = array_create(DT_F32, cp);
    n->diff_shift = array_create(DT_F32, cp);
    n->diff_residual = array_create(type, count);
    n->diff_src = array_create(type, count);
    n->on = calloc(count, 1);
    assert_non_null(n->on);
    return n;
}

/* Also looks at the guards of all arrays. */
static void close_net(struct net *n)
{
    struct array *arrays[] = {&n->src,           &n->residual, &n->diff_dst, &n->diff_dst2,
                              &n->dst,           &n->mask,     &n->partial,  &n->coefs,
                              &n->diff_residual, &n->scale,    &n->shift,    &n->running_mean,
                              &n->running_var,   &n->mean,     &n->variance, &n->diff_scale,
                              &n->diff_shift,    &n->diff_src};
    for (size_t i = 0; i < DT_COUNT(arrays); i++) {
        array_get(arrays[i]);
        array_free(arrays[i]);
    }
    free(n->on);
    free(n);
}

/* --- Launches --- */

static void *memory_if(bool wanted, const struct array *a)
{
    return wanted ? a->memory : NULL;
}

static struct array *dst_of(struct net *n)
{
    return n->flags & IN_PLACE ? &n->src : &n->dst;
}

static struct array *diff_src_of(struct net *n)
{
    return n->flags & IN_PLACE ? &n->diff_dst : &n->diff_src;
}

static struct dt_bn_statistics statistics_of(const struct net *n)
{
    return (struct dt_bn_statistics){.mean = n->mean.memory,
                                     .variance = n->variance.memory,
                                     .running_mean = n->running_mean.memory,
                                     .running_var = n->running_var.memory,
                                     .partial = n->partial.memory};
}

static void launch_stats(struct net *n)
{
    const struct dt_bn_statistics out = statistics_of(n);
    CUDA(dt_kernel_bn_stats(stream, n->type, &out, n->src.memory, &n->args));
}

static void launch_apply(struct net *n, const struct array *mean, const struct array *variance,
                         bool with_mask)
{
    CUDA(dt_kernel_bn_apply(stream, n->type, dst_of(n)->memory, memory_if(with_mask, &n->mask),
                            n->src.memory, memory_if(n->flags & RESIDUAL, &n->residual),
                            n->scale.memory, n->shift.memory, mean->memory, variance->memory,
                            n->flags & RELU, &n->args));
}

static void launch_backward(struct net *n)
{
    const void *diff_dst = n->diff_dst.memory;
    const void *diff_dst2 = memory_if(n->flags & TWO, &n->diff_dst2);
    const uint8_t *mask = memory_if(n->flags & RELU, &n->mask);
    void *diff_residual = memory_if(n->flags & RESIDUAL, &n->diff_residual);
    const struct dt_bn_vectors bn = {
        .scale = n->scale.memory, .mean = n->mean.memory, .variance = n->variance.memory};
    const struct dt_bn_sums out = {.diff_scale = n->diff_scale.memory,
                                   .diff_shift = n->diff_shift.memory,
                                   .coefs = n->coefs.memory,
                                   .partial = n->partial.memory};
    CUDA(dt_kernel_bn_bwd_sums(stream, n->type, &out, diff_residual, n->src.memory, diff_dst,
                               diff_dst2, mask, &bn, &n->args));
    if (diff_residual)
        diff_dst = diff_residual;
    CUDA(dt_kernel_bn_bwd_apply(stream, n->type, diff_src_of(n)->memory, n->src.memory, diff_dst,
                                diff_residual ? NULL : diff_dst2, diff_residual ? NULL : mask,
                                n->coefs.memory, &n->args));
}

/* --- What they should give --- */

static void check_padding(const struct net *n, const struct array *a)
{
    for (size_t i = 0; i < a->count; i++)
        if ((int)(i % (size_t)n->args.cp) >= n->channels)
            assert_true(a->value[i] == 0);
}

static void expect_statistics(struct net *n, int c)
{
    size_t cp = (size_t)n->args.cp;
    double rows = (double)n->args.rows, mean = 0, m2 = 0;
    for (size_t i = (size_t)c; i < n->src.count; i += cp)
        mean += (double)n->src.value[i] / rows;
    for (size_t i = (size_t)c; i < n->src.count; i += cp)
        m2 += pow((double)n->src.value[i] - mean, 2);
    n->want_mean[c] = mean;
    n->want_variance[c] = m2 / rows;
}

static void check_statistics(struct net *n)
{
    double rows = (double)n->args.rows, unbiased = rows > 1 ? rows / (rows - 1) : 1;
    struct array *vectors[] = {&n->mean, &n->variance, &n->running_mean, &n->running_var};
    float old[2][MAX_CHANNELS];
    for (int c = 0; c < n->channels; c++) {
        old[0][c] = n->running_mean.value[c];
        old[1][c] = n->running_var.value[c];
    }
    for (size_t i = 0; i < DT_COUNT(vectors); i++) {
        array_get(vectors[i]);
        check_padding(n, vectors[i]);
    }
    for (int c = 0; c < n->channels; c++) {
        size_t i = (size_t)c;
        double mean = n->want_mean[c], variance = n->want_variance[c];
        assert_value(&n->mean, i, mean, 1e-7);
        assert_value(&n->variance, i, variance, 2e-6 * variance);
        assert_value(&n->running_mean, i, 0.9 * (double)old[0][c] + 0.1 * mean, 1e-7);
        assert_value(&n->running_var, i, 0.9 * (double)old[1][c] + 0.1 * variance * unbiased, 1e-6);
    }
}

static double factor_of(const struct net *n, int c)
{
    return (double)n->scale.value[c] / sqrt(n->want_variance[c] + EPS);
}

/* Around 0 rounding decides which side a value is on: there the mask is as the kernel says. */
static void check_forward(struct net *n, const float *src, bool with_mask)
{
    struct array *dst = dst_of(n);
    array_get(dst);
    check_padding(n, dst);
    if (with_mask)
        array_get(&n->mask);
    for (size_t i = 0; i < dst->count; i++) {
        int c = (int)(i % (size_t)n->args.cp), bit = (int)n->mask.value[i / 8] >> i % 8 & 1;
        if (c >= n->channels) {
            assert_int_equal(with_mask ? bit : 0, 0);
            continue;
        }
        double a = factor_of(n, c), size = fabs((double)src[i] * a) + fabs(n->want_mean[c] * a);
        double y = ((double)src[i] - n->want_mean[c]) * a + (double)n->shift.value[c] +
                   (n->flags & RESIDUAL ? (double)n->residual.value[i] : 0);
        double slack = 3e-7 * (2 + size);
        n->on[i] = with_mask && fabs(y) <= slack ? (uint8_t)bit : !(y <= 0);
        if (with_mask)
            assert_int_equal(bit, n->on[i]);
        assert_value(dst, i, n->flags & RELU && y <= 0 ? 0 : y, slack);
    }
}

static double expect_diff(const struct net *n, const float *diff_dst, size_t i)
{
    double g = (double)diff_dst[i] + (n->flags & TWO ? (double)n->diff_dst2.value[i] : 0);
    return n->flags & RELU && !n->on[i] ? 0 : g;
}

/* After check_forward; src and diff_dst as they were. */
static void check_backward_of(struct net *n, int c, const float *src, const float *diff_dst)
{
    size_t cp = (size_t)n->args.cp;
    /* The kernels know the rounded mean. */
    double rows = (double)n->args.rows, mean = (double)n->mean.value[c];
    double inverse = 1 / sqrt(n->want_variance[c] + EPS), a = factor_of(n, c);
    double s1 = 0, s2 = 0, size1 = 0, size2 = 0;
    for (size_t i = (size_t)c; i < n->src.count; i += cp) {
        double g = expect_diff(n, diff_dst, i), product = g * ((double)src[i] - mean) * inverse;
        s1 += g;
        s2 += product;
        size1 += fabs(g);
        size2 += fabs(product);
    }
    assert_value(&n->diff_shift, (size_t)c, s1, 1e-6 * size1);
    assert_value(&n->diff_scale, (size_t)c, s2, 2e-6 * size2);
    double slack = a * 1e-6 * (2 + fabs(mean) * inverse);
    if (n->flags & RESIDUAL) /* g has been rounded */
        slack += a * 2 * half_unit(n->type);
    for (size_t i = (size_t)c; i < n->src.count; i += cp) {
        double g = expect_diff(n, diff_dst, i);
        double normal = ((double)src[i] - mean) * inverse;
        assert_value(diff_src_of(n), i, a * (g - s1 / rows - normal * s2 / rows), slack);
        if (n->flags & RESIDUAL)
            assert_value(&n->diff_residual, i, g, 0);
    }
}

static void check_backward(struct net *n, const float *src, const float *diff_dst)
{
    struct array *out[] = {&n->diff_scale, &n->diff_shift, diff_src_of(n), &n->diff_residual};
    for (size_t i = 0; i < (n->flags & RESIDUAL ? 4 : 3); i++) {
        array_get(out[i]);
        check_padding(n, out[i]);
    }
    for (int c = 0; c < n->channels; c++)
        check_backward_of(n, c, src, diff_dst);
}

static float *copy_values(const struct array *a)
{
    float *copy = malloc(a->count * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, a->value, a->count * sizeof *copy);
    return copy;
}

/* One step of training: forward, src as it was, backward. */
static void run_case(struct shape shape, enum dt_dtype type, unsigned flags, double offset)
{
    struct net *n = open_net(shape, type, flags, offset);
    float *src = copy_values(&n->src), *diff_dst = copy_values(&n->diff_dst);
    for (int c = 0; c < n->channels; c++)
        expect_statistics(n, c);
    launch_stats(n);
    launch_apply(n, &n->mean, &n->variance, flags & RELU);
    check_statistics(n);
    check_forward(n, src, flags & RELU);
    memcpy(n->src.value, src, n->src.count * sizeof *src);
    array_put(&n->src);
    launch_backward(n);
    check_backward(n, src, diff_dst);
    free(src);
    free(diff_dst);
    close_net(n);
}

/* --- From the sums that a convolution leaves --- */

static struct array make_sums(const struct net *n)
{
    size_t cp = (size_t)n->args.cp;
    struct array a = array_create(DT_F32, 2 * cp);
    for (size_t c = 0; c < cp; c++) {
        double sum = 0, square = 0;
        for (size_t i = c; i < n->src.count; i += cp) {
            sum += (double)n->src.value[i];
            square += pow((double)n->src.value[i], 2);
        }
        a.value[c] = (float)sum;
        a.value[cp + c] = (float)square;
    }
    array_put(&a);
    return a;
}

static void check_factors(struct net *n, struct array *scale, struct array *shift)
{
    array_get(scale);
    array_get(shift);
    check_padding(n, scale);
    check_padding(n, shift);
    for (int c = 0; c < n->channels; c++) {
        const double a = factor_of(n, c), b = (double)n->shift.value[c] - n->want_mean[c] * a;
        assert_value(scale, (size_t)c, a, 2e-6 * fabs(a));
        assert_value(shift, (size_t)c, b, 2e-6 * (1 + fabs(b)));
    }
}

static void run_sums(struct shape shape, enum dt_dtype type, unsigned flags)
{
    struct net *n = open_net(shape, type, flags, 0);
    float *src = copy_values(&n->src);
    size_t cp = (size_t)n->args.cp;
    struct array sums = make_sums(n), inverse_std = array_create(DT_F32, cp);
    struct array scale = array_create(type, cp), shift = array_create(type, cp);
    struct dt_bn_statistics out = statistics_of(n);
    const struct dt_bn_vectors bn = {n->scale.memory, n->shift.memory, n->mean.memory,
                                     n->variance.memory};
    out.inverse_std = inverse_std.memory;
    for (int c = 0; c < n->channels; c++)
        expect_statistics(n, c);
    CUDA(dt_kernel_bn_apply_sums(stream, type, dst_of(n)->memory, memory_if(flags & RELU, &n->mask),
                                 n->src.memory, memory_if(flags & RESIDUAL, &n->residual),
                                 n->scale.memory, n->shift.memory, &out, sums.memory, flags & RELU,
                                 &n->args));
    check_statistics(n);
    check_forward(n, src, flags & RELU);
    array_get(&inverse_std);
    for (int c = 0; c < n->channels; c++)
        assert_value(&inverse_std, (size_t)c, 1 / sqrt(n->want_variance[c] + EPS), 1e-5);
    CUDA(dt_kernel_bn_finalize_sums(stream, type, scale.memory, shift.memory, &out, sums.memory,
                                    &bn, &n->args));
    check_statistics(n);
    check_factors(n, &scale, &shift);
    CUDA(dt_kernel_bn_scale_shift(stream, type, scale.memory, shift.memory, &bn, &n->args));
    check_factors(n, &scale, &shift);
    array_free(&sums);
    array_free(&inverse_std);
    array_free(&scale);
    array_free(&shift);
    free(src);
    close_net(n);
}

/* --- Tests --- */

TEST(sums)
{
    static const struct shape shapes[] = {{7, 20}, {300, 264}, {8449, 64}};
    for (size_t i = 0; i < DT_COUNT(shapes); i++)
        for (size_t k = 0; k < DT_COUNT(TYPES); k++)
            for (unsigned flags = 0; flags < ALL_FLAGS; flags++)
                if (!(flags & TWO))
                    run_sums(shapes[i], TYPES[k], flags);
}

TEST(all_forms)
{
    static const struct shape shapes[] = {{2, 3},     {7, 20},    {33, 64},
                                          {2500, 92}, {300, 264}, {1500, 5}};
    for (size_t i = 0; i < DT_COUNT(shapes); i++)
        for (size_t k = 0; k < DT_COUNT(TYPES); k++)
            for (unsigned flags = 0; flags < ALL_FLAGS; flags++)
                run_case(shapes[i], TYPES[k], flags, 0);
}

/* As many blocks as there may be, rows that do not come out even, also in two parts, and the widest
 * matrix. */
TEST(large)
{
    run_case((struct shape){540673, 3}, DT_BF16, RELU, 0);
    run_case((struct shape){8449, 512}, DT_F16, RELU | RESIDUAL | TWO, 0);
    run_case((struct shape){16899, 512}, DT_F16, RELU | TWO | YIELDS, 0);
    run_case((struct shape){300, 2048}, DT_F32, RELU, 0);
}

/* Sums of squares in fp32 would lose the variance here. */
TEST(far_from_zero)
{
    run_case((struct shape){5000, 20}, DT_F32, 0, 1000);
    run_case((struct shape){5000, 20}, DT_F32, RELU | RESIDUAL, -1000);
    run_case((struct shape){5000, 20}, DT_F16, RELU, 30);
}

/* Moments and sums of ranks, around a mean far from zero, against fp64 in two passes. */
TEST(combine)
{
    enum { N_SLOTS = 5, CP = 72, ROWS = 300 };
    const struct dt_norm_args args = {.rows = ROWS, .cp = CP, .eps = 1e-5f, .momentum = 1};
    struct array slots = array_create(DT_F32, (size_t)N_SLOTS * 2 * CP);
    struct array out[4], coefs = array_create(DT_F32, (size_t)3 * CP);
    for (size_t i = 0; i < 4; i++) {
        out[i] = array_create(DT_F32, CP);
        array_put(&out[i]);
    }
    for (size_t i = 0; i < slots.count; i++)
        slots.value[i] =
            (float)(i / CP % 2 == 0 ? 10000 + random_value(i, 1) : ROWS * (2 + random_value(i, 2)));
    array_put(&slots);
    const struct dt_bn_statistics statistics = {.mean = out[0].memory,
                                                .variance = out[1].memory,
                                                .running_mean = out[2].memory,
                                                .running_var = out[3].memory};
    const struct dt_bn_vectors bn = {
        .scale = out[0].memory, .mean = out[0].memory, .variance = out[1].memory};
    CUDA(dt_kernel_bn_combine(stream, &statistics, slots.memory, N_SLOTS, &args));
    CUDA(dt_kernel_bn_bwd_combine(stream, coefs.memory, slots.memory, N_SLOTS, &bn, &args));
    for (size_t i = 0; i < 4; i++)
        array_get(&out[i]);
    array_get(&coefs);
    for (size_t c = 0; c < CP; c++) {
        double n = ROWS * N_SLOTS, mean = 0, m2 = 0, s2 = 0;
        for (size_t i = 0; i < N_SLOTS; i++)
            mean += (double)slots.value[i * 2 * CP + c] / N_SLOTS;
        for (size_t i = 0; i < N_SLOTS; i++) {
            m2 += ROWS * pow((double)slots.value[i * 2 * CP + c] - mean, 2);
            s2 += (double)slots.value[i * 2 * CP + CP + c];
        }
        m2 += s2;
        double scale = (double)out[0].value[c]; /* any positive vector */
        double inverse = 1 / sqrt((double)out[1].value[c] + 1e-5), a = scale * inverse;
        double b = -a * s2 * inverse * inverse / n, d = -a * mean * N_SLOTS / n - b * scale;
        assert_value(&out[0], c, mean, 1e-7);
        assert_value(&out[1], c, m2 / n, 1e-6);
        assert_value(&out[2], c, mean, 1e-7);
        assert_value(&out[3], c, m2 / (n - 1), 1e-6);
        assert_value(&coefs, c, a, 1e-6 * a);
        assert_value(&coefs, CP + c, b, 1e-6 * fabs(b));
        assert_value(&coefs, 2 * CP + c, d, 1e-6 * fabs(d));
    }
    for (size_t i = 0; i < 4; i++)
        array_free(&out[i]);
    array_free(&slots);
    array_free(&coefs);
}

TEST(one_row)
{
    for (size_t k = 0; k < DT_COUNT(TYPES); k++)
        run_case((struct shape){1, 12}, TYPES[k], RELU, 0);
}

TEST(evaluation)
{
    for (size_t k = 0; k < DT_COUNT(TYPES); k++) {
        for (unsigned flags = 0; flags < ALL_FLAGS; flags++) {
            if (flags & TWO)
                continue;
            struct net *n = open_net((struct shape){77, 20}, TYPES[k], flags, 1);
            float *src = copy_values(&n->src);
            for (int c = 0; c < n->channels; c++) {
                n->want_mean[c] = (double)n->running_mean.value[c];
                n->want_variance[c] = (double)n->running_var.value[c];
            }
            launch_apply(n, &n->running_mean, &n->running_var, false);
            check_forward(n, src, false);
            free(src);
            close_net(n);
        }
    }
}

/* In evaluation NaN stays where it is, gets through the ReLU and has its bit in the mask. */
TEST(nan_in_evaluation)
{
    for (size_t k = 0; k < DT_COUNT(TYPES); k++) {
        struct net *n = open_net((struct shape){45, 20}, TYPES[k], RELU, 0);
        size_t at = 17 * (size_t)n->args.cp + 5;
        n->src.value[at] = NAN;
        array_put(&n->src);
        launch_apply(n, &n->running_mean, &n->running_var, true);
        array_get(&n->dst);
        array_get(&n->mask);
        for (size_t i = 0; i < n->dst.count; i++)
            assert_int_equal(isnan(n->dst.value[i]) != 0, i == at);
        assert_int_equal((int)n->mask.value[at / 8] >> at % 8 & 1, 1);
        close_net(n);
    }
}

/* Those of one channel are as they were, those of the others have moved. */
static void check_running(struct net *n, int kept)
{
    float *mean = copy_values(&n->running_mean), *variance = copy_values(&n->running_var);
    array_get(&n->running_mean);
    array_get(&n->running_var);
    for (int c = 0; c < n->channels; c++) {
        assert_int_equal(n->running_mean.value[c] == mean[c], c == kept);
        assert_int_equal(n->running_var.value[c] == variance[c], c == kept);
    }
    free(mean);
    free(variance);
}

/* In training NaN takes its channel and no other, there and back, and leaves nothing in the running
 * statistics. */
TEST(nan_in_training)
{
    for (unsigned flags = RELU; flags < ALL_FLAGS; flags += 2) {
        struct net *n = open_net((struct shape){3000, 12}, DT_BF16, flags & ~(unsigned)IN_PLACE, 0);
        size_t cp = (size_t)n->args.cp;
        n->src.value[1234 * cp + 7] = NAN;
        array_put(&n->src);
        launch_stats(n);
        launch_apply(n, &n->mean, &n->variance, true);
        launch_backward(n);
        array_get(&n->dst);
        array_get(&n->diff_src);
        for (size_t i = 0; i < n->dst.count; i++) {
            assert_int_equal(isnan(n->dst.value[i]) != 0, i % cp == 7);
            assert_int_equal(isnan(n->diff_src.value[i]) != 0, i % cp == 7);
        }
        check_running(n, 7);
        close_net(n);
    }
}

/* Whichever block is the last: the emulator runs them in another order each time. */
TEST(same_bits)
{
    enum { N_RUNS = 6, CHANNELS = 264 };
    struct net *n[N_RUNS];
    for (int i = 0; i < N_RUNS; i++) {
        n[i] = open_net((struct shape){6000, CHANNELS}, DT_F32, RELU | RESIDUAL | TWO, 1);
        launch_stats(n[i]);
        launch_apply(n[i], &n[i]->mean, &n[i]->variance, true);
        launch_backward(n[i]);
        array_get(&n[i]->diff_src);
        array_get(&n[i]->diff_scale);
        array_get(&n[i]->running_var);
        assert_memory_equal(n[0]->diff_src.value, n[i]->diff_src.value,
                            6000 * CHANNELS * sizeof(float));
        assert_memory_equal(n[0]->diff_scale.value, n[i]->diff_scale.value,
                            CHANNELS * sizeof(float));
        assert_memory_equal(n[0]->running_var.value, n[i]->running_var.value,
                            CHANNELS * sizeof(float));
    }
    for (int i = 0; i < N_RUNS; i++)
        close_net(n[i]);
}

NORM_TEST_MAIN()
