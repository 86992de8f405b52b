/* The kernels of group_norm.cu against plain loops in fp64: groups smaller and larger than the 8
 * channels of a thread, images of one and of many blocks, values far from zero, the same bits in
 * place. */
#include "kernel_rig.h"

struct trial {
    int n, pixels, c, groups;
    double offset; /* of src */
};

struct net {
    struct dt_group_norm args;
    double offset;
    struct array src, diff_dst, scale, shift, dst, diff_src, mean, inverse_std, partial, coefs;
    struct array diff_scale, diff_shift;
};

enum { N_ARRAYS = 12 };

static struct net open_net(enum dt_dtype type, const struct trial *t)
{
    const int cp = (t->c + 7) / 8 * 8, padded = (t->groups + 7) / 8 * 8;
    const size_t rows = (size_t)t->n * (size_t)t->pixels, n_groups = (size_t)(t->n * padded);
    struct net net = {.args = {t->n, t->pixels, cp, t->groups, padded, t->c / t->groups, 1e-5f},
                      .offset = t->offset,
                      .src = array_rows(type, rows, t->c, cp, 1, 1),
                      .diff_dst = array_rows(type, rows, t->c, cp, 1, 2),
                      .scale = array_rows(DT_F32, 1, t->c, cp, 1, 3),
                      .shift = array_rows(DT_F32, 1, t->c, cp, 1, 4),
                      .dst = array_create(type, rows * (size_t)cp),
                      .diff_src = array_create(type, rows * (size_t)cp),
                      .mean = array_create(DT_F32, n_groups),
                      .inverse_std = array_create(DT_F32, n_groups),
                      .coefs = array_create(DT_F32, 2 * n_groups),
                      .diff_scale = array_create(DT_F32, (size_t)cp),
                      .diff_shift = array_create(DT_F32, (size_t)cp)};
    net.partial = array_create(DT_F32, dt_group_norm_partial_bytes(&net.args) / sizeof(float));
    for (size_t i = 0; i < net.src.count; i++)
        if ((int)(i % (size_t)cp) < t->c)
            net.src.value[i] = stored(type, (double)net.src.value[i] + t->offset);
    array_put(&net.src);
    return net;
}

/* Looks at the guards of all arrays. */
static void close_net(struct net *net)
{
    struct array *arrays[N_ARRAYS] = {&net->src,   &net->diff_dst,    &net->scale,
                                      &net->shift, &net->dst,         &net->diff_src,
                                      &net->mean,  &net->inverse_std, &net->partial,
                                      &net->coefs, &net->diff_scale,  &net->diff_shift};
    for (size_t i = 0; i < N_ARRAYS; i++)
        array_get(arrays[i]);
    free_all();
}

static void run_forward(struct net *net, struct array *dst)
{
    const struct dt_group_norm_statistics out = {net->mean.memory, net->inverse_std.memory,
                                                 net->partial.memory};
    CUDA(dt_kernel_group_norm(stream, dst->type, dst->memory, &out, net->src.memory,
                              net->scale.memory, net->shift.memory, &net->args));
    array_get(dst);
}

static void run_backward(struct net *net, struct array *diff_src, bool trained)
{
    const struct dt_group_norm_gradients out = {
        diff_src->memory, trained ? net->diff_scale.memory : NULL,
        trained ? net->diff_shift.memory : NULL, net->coefs.memory, net->partial.memory};
    CUDA(dt_kernel_group_norm_bwd(stream, diff_src->type, &out, net->src.memory,
                                  net->diff_dst.memory, net->scale.memory, net->mean.memory,
                                  net->inverse_std.memory, &net->args));
    array_get(diff_src);
}

/* Element of pixel j / size and channel j % size of a group. */
static size_t element(const struct net *net, int image, int group, int j)
{
    const struct dt_group_norm *a = &net->args;
    return ((size_t)image * (size_t)a->pixels + (size_t)(j / a->size)) * (size_t)a->cp +
           (size_t)(group * a->size + j % a->size);
}

static void check_group(const struct net *net, int image, int group, double *diff_scale,
                        double *diff_shift)
{
    const int n = net->args.pixels * net->args.size;
    const double slack = 2e-6 * (1 + fabs(net->offset));
    double mean = 0, variance = (double)net->args.eps, sum = 0, product = 0;
    for (int j = 0; j < n; j++)
        mean += (double)net->src.value[element(net, image, group, j)] / n;
    for (int j = 0; j < n; j++)
        variance += pow((double)net->src.value[element(net, image, group, j)] - mean, 2) / n;
    const double inverse = 1 / sqrt(variance);
    const size_t at = (size_t)(image * net->args.groups_padded + group);
    assert_value(&net->mean, at, mean, slack);
    assert_value(&net->inverse_std, at, inverse, slack * inverse);
    for (int pass = 0; pass < 2; pass++)
        for (int j = 0; j < n; j++) {
            const size_t i = element(net, image, group, j), c = i % (size_t)net->args.cp;
            const double normal = ((double)net->src.value[i] - mean) * inverse;
            const double diff = (double)net->diff_dst.value[i], scale = (double)net->scale.value[c];
            if (pass == 0) {
                sum += diff * scale / n;
                product += diff * scale * normal / n;
                diff_scale[c] += diff * normal;
                diff_shift[c] += diff;
                assert_value(&net->dst, i, normal * scale + (double)net->shift.value[c],
                             slack * inverse);
            } else {
                assert_value(&net->diff_src, i, inverse * (diff * scale - sum - normal * product),
                             slack * inverse * inverse);
            }
        }
}

static void check_padding(const struct net *net)
{
    for (size_t i = 0; i < net->dst.count; i++)
        if ((int)(i % (size_t)net->args.cp) >= net->args.groups * net->args.size)
            assert_true(net->dst.value[i] == 0 && net->diff_src.value[i] == 0);
}

static void check_trial(enum dt_dtype type, const struct trial *t)
{
    struct net net = open_net(type, t);
    double *sums = calloc(2 * (size_t)net.args.cp, sizeof *sums);
    assert_non_null(sums);
    run_forward(&net, &net.dst);
    run_backward(&net, &net.diff_src, true);
    array_get(&net.mean);
    array_get(&net.inverse_std);
    array_get(&net.diff_scale);
    array_get(&net.diff_shift);
    for (int i = 0; i < t->n * t->groups; i++)
        check_group(&net, i / t->groups, i % t->groups, sums, sums + net.args.cp);
    for (int c = 0; c < net.args.cp; c++) {
        const double slack = 2e-6 * (1 + fabs(t->offset)) * sqrt((double)t->n * t->pixels);
        assert_value(&net.diff_scale, (size_t)c, sums[c], 4 * slack);
        assert_value(&net.diff_shift, (size_t)c, sums[net.args.cp + c], slack);
    }
    check_padding(&net);
    run_backward(&net, &net.diff_dst, false); /* in place */
    run_forward(&net, &net.src);
    assert_memory_equal(net.src.value, net.dst.value, net.dst.count * sizeof(float));
    assert_memory_equal(net.diff_dst.value, net.diff_src.value, net.dst.count * sizeof(float));
    free(sums);
    close_net(&net);
}

TEST(group_norm)
{
    static const struct trial trials[] = {
        {1, 1, 8, 1, 0},     {2, 35, 20, 10, 0},    {3, 63, 17, 17, 0},   {1, 500, 96, 32, 3},
        {2, 1200, 64, 2, 0}, {1, 3000, 40, 5, 100}, {2, 700, 256, 32, 0}, {5, 300, 33, 3, 0}};
    for (size_t t = 0; t < DT_COUNT(TYPES); t++)
        for (size_t i = 0; i < DT_COUNT(trials); i++)
            check_trial(TYPES[t], &trials[i]);
}

KERNEL_TEST_MAIN()
