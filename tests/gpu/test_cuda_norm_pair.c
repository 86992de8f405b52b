/* The kernels of norm_pair.cu against plain loops in fp64, and backward bit by bit against those of
 * norm_bwd.cu, run once for each of the two: odd shapes, in place, values far from zero, NaN. */
#include "norm_rig.h"

static const double EPS = 1e-5;

enum { RELU = 1, TWO = 2, IN_PLACE = 4, ALL_FLAGS = 8, YIELDS = 8 };

struct shape {
    size_t rows;
    int channels;
};

/* One of the two batch norms, with statistics that are not those of src. */
struct norm {
    struct array src, scale, shift, mean, variance, diff_src;
    /* The coefficients of the pair, and of this one alone. */
    struct array diff_scale, diff_shift, partial, coefs, alone_partial, alone_diff_src;
};

struct pair {
    unsigned flags;
    enum dt_dtype type;
    int channels;
    struct dt_norm_args args;
    struct norm of[2];
    struct array diff_dst, diff_dst2, dst, mask;
};

static struct array make_vector(const struct pair *p, double center, uint32_t seed)
{
    struct array a = array_create(DT_F32, (size_t)p->args.cp);
    for (int c = 0; c < p->channels; c++)
        a.value[c] = (float)(center + 0.5 * random_value((size_t)c, seed));
    array_put(&a);
    return a;
}

static struct norm open_norm(const struct pair *p, double offset, uint32_t seed)
{
    size_t cp = (size_t)p->args.cp, count = p->args.rows * cp;
    size_t n_partials = dt_sums_partial_bytes(p->args.rows, p->args.cp, 2) / sizeof(float);
    struct norm n = {.src = array_create(p->type, count),
                     .scale = make_vector(p, 1, seed + 1),
                     .shift = make_vector(p, 0, seed + 2),
                     .mean = make_vector(p, offset, seed + 3),
                     .variance = make_vector(p, 1, seed + 4),
                     .diff_src = array_create(p->type, count),
                     .diff_scale = array_create(DT_F32, cp),
                     .diff_shift = array_create(DT_F32, cp),
                     .partial = array_create(DT_F32, n_partials),
                     .coefs = array_create(DT_F32, 3 * cp),
                     .alone_partial = array_create(DT_F32, n_partials),
                     .alone_diff_src = array_create(p->type, count)};
    for (size_t i = 0; i < count; i++)
        if ((int)(i % cp) < p->channels)
            n.src.value[i] = stored(p->type, offset + random_value(i, seed));
    array_put(&n.src);
    return n;
}

static struct pair *open_pair(struct shape shape, enum dt_dtype type, unsigned flags, double offset)
{
    struct pair *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->flags = flags;
    p->type = type;
    p->channels = shape.channels;
    p->args = (struct dt_norm_args){.rows = shape.rows,
                                    .cp = (shape.channels + 7) / 8 * 8,
                                    .eps = (float)EPS,
                                    .yields = flags & YIELDS,
                                    .tickets = tickets.memory};
    size_t count = shape.rows * (size_t)p->args.cp;
    p->of[0] = open_norm(p, offset, 10);
    p->of[1] = open_norm(p, -offset / 2, 20);
    p->diff_dst = array_rows(type, shape.rows, shape.channels, p->args.cp, 1, 1);
    p->diff_dst2 = array_rows(type, shape.rows, shape.channels, p->args.cp, 1, 2);
    p->dst = array_create(type, count);
    p->mask = array_create(DT_U8, count / 8);
    return p;
}

/* Also looks at the guards of all arrays. */
static void close_arrays(struct array *const *arrays, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        array_get(arrays[i]);
        array_free(arrays[i]);
    }
}

static void close_pair(struct pair *p)
{
    struct array *shared[] = {&p->diff_dst, &p->diff_dst2, &p->dst, &p->mask};
    close_arrays(shared, DT_COUNT(shared));
    for (int k = 0; k < 2; k++) {
        struct norm *n = &p->of[k];
        struct array *own[] = {&n->src,      &n->scale,    &n->shift,         &n->mean,
                               &n->variance, &n->diff_src, &n->diff_scale,    &n->diff_shift,
                               &n->partial,  &n->coefs,    &n->alone_partial, &n->alone_diff_src};
        close_arrays(own, DT_COUNT(own));
    }
    free(p);
}

/* --- Launches --- */

static struct array *dst_of(struct pair *p)
{
    return p->flags & IN_PLACE ? &p->of[1].src : &p->dst;
}

static struct array *diff_src_of(struct pair *p, int k)
{
    struct array *in_place[] = {&p->diff_dst, &p->diff_dst2};
    return p->flags & IN_PLACE && (k == 0 || p->flags & TWO) ? in_place[k] : &p->of[k].diff_src;
}

static const void *diff_dst2_of(const struct pair *p)
{
    return p->flags & TWO ? p->diff_dst2.memory : NULL;
}

static uint8_t *mask_of(const struct pair *p)
{
    return p->flags & RELU ? p->mask.memory : NULL;
}

static struct dt_bn_vectors vectors_of(const struct norm *n)
{
    return (struct dt_bn_vectors){n->scale.memory, n->shift.memory, n->mean.memory,
                                  n->variance.memory};
}

static struct dt_bn_sums sums_of(const struct norm *n, const struct array *partial)
{
    return (struct dt_bn_sums){n->diff_scale.memory, n->diff_shift.memory, n->coefs.memory,
                               partial->memory, NULL};
}

static void launch_forward(struct pair *p)
{
    const struct dt_bn_vectors bn[2] = {vectors_of(&p->of[0]), vectors_of(&p->of[1])};
    CUDA(dt_kernel_bn_pair_apply(stream, p->type, dst_of(p)->memory, mask_of(p),
                                 p->of[0].src.memory, p->of[1].src.memory, &bn[0], &bn[1],
                                 p->flags & RELU, &p->args));
}

static void launch_backward(struct pair *p)
{
    struct norm *a = &p->of[0], *b = &p->of[1];
    const struct dt_bn_vectors bn[2] = {vectors_of(a), vectors_of(b)};
    const struct dt_bn_sums sums[2] = {sums_of(a, &a->partial), sums_of(b, &b->partial)};
    CUDA(dt_kernel_bn_pair_bwd_sums(stream, p->type, sums, a->src.memory, b->src.memory,
                                    p->diff_dst.memory, diff_dst2_of(p), mask_of(p), bn, &p->args));
    CUDA(dt_kernel_bn_pair_bwd_apply(stream, p->type, diff_src_of(p, 0)->memory,
                                     diff_src_of(p, 1)->memory, a->src.memory, b->src.memory,
                                     p->diff_dst.memory, diff_dst2_of(p), mask_of(p),
                                     a->coefs.memory, b->coefs.memory, &p->args));
}

/* Each by the kernels for one. */
static void launch_alone(struct pair *p)
{
    for (int k = 0; k < 2; k++) {
        struct norm *n = &p->of[k];
        const struct dt_bn_vectors bn = vectors_of(n);
        const struct dt_bn_sums sums = sums_of(n, &n->alone_partial);
        CUDA(dt_kernel_bn_bwd_sums(stream, p->type, &sums, NULL, n->src.memory, p->diff_dst.memory,
                                   diff_dst2_of(p), mask_of(p), &bn, &p->args));
        CUDA(dt_kernel_bn_bwd_apply(stream, p->type, n->alone_diff_src.memory, n->src.memory,
                                    p->diff_dst.memory, diff_dst2_of(p), mask_of(p),
                                    n->coefs.memory, &p->args));
    }
}

/* --- What they should give --- */

static double factor_of(const struct norm *n, int c)
{
    return (double)n->scale.value[c] / sqrt((double)n->variance.value[c] + EPS);
}

/* Around 0 rounding decides which side a value is on. The values of `of` are those before. */
static void check_forward(struct pair *p)
{
    struct array got = *dst_of(p);
    got.value = calloc(got.count, sizeof *got.value);
    assert_non_null(got.value);
    array_get(&got);
    if (p->flags & RELU)
        array_get(&p->mask);
    for (size_t i = 0; i < got.count; i++) {
        int c = (int)(i % (size_t)p->args.cp), bit = (int)p->mask.value[i / 8] >> i % 8 & 1;
        double y = 0, size = 2;
        for (int k = 0; k < 2; k++) {
            const struct norm *n = &p->of[k];
            double a = factor_of(n, c), x = (double)n->src.value[i],
                   mean = (double)n->mean.value[c];
            y += (x - mean) * a + (double)n->shift.value[c];
            size += fabs(x * a) + fabs(mean * a);
        }
        double slack = c < p->channels ? 3e-7 * size : 0;
        assert_value(&got, i, p->flags & RELU && y <= 0 ? 0 : y, slack);
        if (p->flags & RELU && (fabs(y) > slack || c >= p->channels))
            assert_int_equal(bit, !(y <= 0));
    }
    free(got.value);
}

static double gradient_at(const struct pair *p, size_t i)
{
    if (p->flags & RELU && !((int)p->mask.value[i / 8] >> i % 8 & 1))
        return 0;
    return (double)p->diff_dst.value[i] + (p->flags & TWO ? (double)p->diff_dst2.value[i] : 0);
}

/* Before the results in place have been read. */
static void check_sums(const struct pair *p, const struct norm *n, int c)
{
    double inverse = 1 / sqrt((double)n->variance.value[c] + EPS);
    double s1 = 0, s2 = 0, size1 = 0, size2 = 0;
    for (size_t i = (size_t)c; i < n->src.count; i += (size_t)p->args.cp) {
        double g = gradient_at(p, i);
        double product = g * ((double)n->src.value[i] - (double)n->mean.value[c]) * inverse;
        s1 += g;
        s2 += product;
        size1 += fabs(g);
        size2 += fabs(product);
    }
    assert_value(&n->diff_shift, (size_t)c, s1, 1e-6 * size1);
    assert_value(&n->diff_scale, (size_t)c, s2, 2e-6 * size2);
}

static void check_diff_src(const struct pair *p, const struct norm *n, int c)
{
    size_t cp = (size_t)p->args.cp;
    double rows = (double)p->args.rows, mean = (double)n->mean.value[c], a = factor_of(n, c);
    double inverse = 1 / sqrt((double)n->variance.value[c] + EPS);
    double slack = fabs(a) * 1e-6 * (3 + fabs(mean) * inverse);
    for (size_t i = (size_t)c; i < n->src.count; i += cp) {
        double normal = ((double)n->src.value[i] - mean) * inverse;
        double want = a * (gradient_at(p, i) - (double)n->diff_shift.value[c] / rows -
                           normal * (double)n->diff_scale.value[c] / rows);
        assert_value(&n->alone_diff_src, i, want, slack);
    }
}

static void check_equal(struct array *a, struct array *b)
{
    array_get(a);
    array_get(b);
    assert_memory_equal(a->value, b->value, a->count * sizeof *a->value);
}

static void run_case(struct shape shape, enum dt_dtype type, unsigned flags, double offset)
{
    struct pair *p = open_pair(shape, type, flags, offset);
    launch_forward(p);
    check_forward(p);
    if (flags & IN_PLACE)
        array_put(&p->of[1].src);
    launch_alone(p);
    launch_backward(p);
    for (int k = 0; k < 2; k++) {
        struct norm *n = &p->of[k];
        array_get(&n->diff_shift);
        array_get(&n->diff_scale);
        array_get(&n->alone_diff_src);
        for (int c = 0; c < p->args.cp; c++) {
            check_sums(p, n, c);
            check_diff_src(p, n, c);
        }
    }
    for (int k = 0; k < 2; k++) {
        check_equal(&p->of[k].partial, &p->of[k].alone_partial);
        check_equal(diff_src_of(p, k), &p->of[k].alone_diff_src);
    }
    close_pair(p);
}

/* --- Tests --- */

TEST(all_forms)
{
    static const struct shape shapes[] = {{1, 12},  {2, 3},     {7, 20},  {33, 64},
                                          {50, 92}, {300, 264}, {1500, 5}};
    for (size_t i = 0; i < DT_COUNT(shapes); i++)
        for (size_t k = 0; k < DT_COUNT(TYPES); k++)
            for (unsigned flags = 0; flags < ALL_FLAGS; flags++)
                run_case(shapes[i], TYPES[k], flags, 0);
}

/* As many blocks as there may be, rows that do not come out even, also in parts. */
TEST(large)
{
    run_case((struct shape){135173, 12}, DT_BF16, RELU | TWO, 0);
    run_case((struct shape){8449, 256}, DT_F16, RELU | TWO | IN_PLACE, 0);
    run_case((struct shape){16899, 256}, DT_F16, RELU | TWO | YIELDS, 0);
    run_case((struct shape){300, 2048}, DT_F32, RELU, 0);
}

TEST(far_from_zero)
{
    run_case((struct shape){5000, 20}, DT_F32, RELU | TWO, 1000);
    run_case((struct shape){5000, 20}, DT_F16, RELU, 30);
}

/* A NaN in either stays where it is, gets through the ReLU and has its bit in the mask; backward it
 * takes its channel in that one's gradient only. */
TEST(nan)
{
    for (int k = 0; k < 2; k++) {
        struct pair *p = open_pair((struct shape){3000, 12}, DT_BF16, RELU | TWO, 0);
        size_t cp = (size_t)p->args.cp, at = 1234 * cp + 7;
        p->of[k].src.value[at] = NAN;
        array_put(&p->of[k].src);
        launch_forward(p);
        launch_backward(p);
        array_get(&p->mask);
        assert_int_equal((int)p->mask.value[at / 8] >> at % 8 & 1, 1);
        array_get(&p->dst);
        array_get(&p->of[0].diff_src);
        array_get(&p->of[1].diff_src);
        for (size_t i = 0; i < p->dst.count; i++) {
            assert_int_equal(isnan(p->dst.value[i]) != 0, i == at);
            assert_int_equal(isnan(p->of[k].diff_src.value[i]) != 0, i % cp == 7);
            assert_int_equal(isnan(p->of[1 - k].diff_src.value[i]) != 0, 0);
        }
        close_pair(p);
    }
}

NORM_TEST_MAIN()
