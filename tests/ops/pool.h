/* Max pooling, adaptive average pooling, and upsampling. */
#ifndef DTRAIN_TESTS_OPS_POOL_H
#define DTRAIN_TESTS_OPS_POOL_H

#include "op_cases.h"

/* --- Max pooling --- */

static void build_max_pool(struct dt_graph *g, const struct op_case *c)
{
    const struct dt_node like = {.attr.pool = {c->kernel, c->stride, c->pad}};
    int src = add_src(g, c);
    int dst[2] = {add4(g, "dst", DT_ACT, c->n, c->c, window_out(c->h, c), window_out(c->w, c)), -1};
    if (c->flags & F_EVAL) {
        add_node(g, &like, DT_OP_MAX_POOL, 1, &src, 1, dst);
        return;
    }
    dst[1] = add_like(g, "workspace", DT_SAVED, DT_U8, dst[0]);
    add_node(g, &like, DT_OP_MAX_POOL, 1, &src, 2, dst);
    int bwd[2] = {add_like(g, "diff_dst", DT_DIFF, DT_F32, dst[0]), dst[1]};
    int diff_src = add_like(g, "diff_src", DT_DIFF, DT_F32, src);
    add_node(g, &like, DT_OP_MAX_POOL_BWD, 2, bwd, 1, &diff_src);
}

/* dst[0]: the maximum; dst[1]: its index in src. */
static double ref_max_pool(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    const double *src = ref_src(r, node, 0);
    const int *sd = ref_dim(r, node->src[0]);
    int stride = node->attr.pool.stride, pad = node->attr.pool.pad, at[4];
    ref_decode(at, ref_dim(r, node->dst[0]), i);
    double best = -INFINITY, second = -INFINITY;
    size_t best_index = 0;
    for (int y = 0; y < node->attr.pool.kernel; y++)
        for (int x = 0; x < node->attr.pool.kernel; x++) {
            int h = at[2] * stride - pad + y, w = at[3] * stride - pad + x;
            if (h < 0 || h >= sd[2] || w < 0 || w >= sd[3])
                continue;
            size_t index = ref_index(sd, at[0], at[1], h, w);
            if (src[index] > best) {
                second = best;
                best = src[index];
                best_index = index;
            } else {
                second = fmax(second, src[index]);
            }
        }
    /* Equal values tie harmlessly, as zeros behind a ReLU often do: the first is taken. */
    if (best > second)
        r->margin = fmin(r->margin, best - second);
    return which == 0 ? best : (double)best_index;
}

static double ref_max_pool_bwd(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    const double *diff_dst = ref_src(r, node, 0), *index = ref_src(r, node, 1);
    const int *dd = ref_dim(r, node->src[0]);
    int stride = node->attr.pool.stride, pad = node->attr.pool.pad, at[4];
    ref_decode(at, ref_dim(r, node->dst[0]), i);
    double sum = 0;
    for (int y = 0; y < dd[2]; y++) {
        int dy = at[2] + pad - y * stride;
        for (int x = 0; dy >= 0 && dy < node->attr.pool.kernel && x < dd[3]; x++) {
            size_t j = ref_index(dd, at[0], at[1], y, x);
            if (index[j] == (double)i)
                sum += diff_dst[j];
        }
    }
    return sum;
}

static const struct op_case max_pool_cases[] = {
    {2, 16, 8, 8, 0, 2, 2, 0, 0, 0},        {2, 5, 9, 7, 0, 2, 2, 0, 0, 0},
    {2, 16, 12, 12, 0, 3, 2, 1, 0, 0},      {2, 17, 11, 13, 0, 3, 2, 1, 0, 0},
    {1, 64, 112, 112, 0, 3, 2, 1, 0, 0},    {2, 3, 15, 15, 0, 3, 2, 0, 0, 0},
    {1, 20, 6, 6, 0, 3, 1, 1, 0, 0},        {2, 512, 2, 2, 0, 2, 2, 0, 0, 0},
    {2, 16, 12, 8, 0, 3, 2, 0, F_CEIL, 0},  {3, 5, 9, 6, 0, 3, 2, 0, F_CEIL, 0},
    {2, 20, 13, 13, 0, 3, 2, 0, F_EVAL, 0}, {2, 16, 12, 12, 0, 3, 2, 1, F_EVAL, 0},
};

OP_TEST(max_pool, build_max_pool, true)

static const struct op_test op_test_max_pool = {.element = ref_max_pool,
                                                .tests = {TEST_OF(max_pool)}};
static const struct op_test op_test_max_pool_bwd = {
    .element = ref_max_pool_bwd, .bound = 1e-6, .n_roundings = 1};

/* --- Average pooling --- */

static void build_avg_pool(struct dt_graph *g, const struct op_case *c)
{
    int src = add_src(g, c), dst = add4(g, "dst", DT_ACT, c->n, c->c, c->k, c->k);
    add_node(g, NULL, DT_OP_AVG_POOL, 1, &src, 1, &dst);
    int diff_dst = add_like(g, "diff_dst", DT_DIFF, DT_F32, dst);
    int diff_src = add_like(g, "diff_src", DT_DIFF, DT_F32, src);
    add_node(g, NULL, DT_OP_AVG_POOL_BWD, 1, &diff_dst, 1, &diff_src);
}

/* Adaptive window of output o: [floor(o * in / out), ceil((o + 1) * in / out)). */
static int ref_window_first(int o, int in, int out)
{
    return o * in / out;
}

static int ref_window_last(int o, int in, int out)
{
    return ((o + 1) * in + out - 1) / out - 1;
}

static double ref_avg_pool(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    const double *src = ref_src(r, node, 0);
    const int *sd = ref_dim(r, node->src[0]), *dd = ref_dim(r, node->dst[0]);
    int at[4], n = 0;
    ref_decode(at, dd, i);
    double sum = 0;
    for (int h = ref_window_first(at[2], sd[2], dd[2]); h <= ref_window_last(at[2], sd[2], dd[2]);
         h++)
        for (int w = ref_window_first(at[3], sd[3], dd[3]);
             w <= ref_window_last(at[3], sd[3], dd[3]); w++, n++)
            sum += src[ref_index(sd, at[0], at[1], h, w)];
    return sum / n;
}

static double ref_avg_pool_bwd(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    const double *diff_dst = ref_src(r, node, 0);
    const int *dd = ref_dim(r, node->src[0]), *sd = ref_dim(r, node->dst[0]);
    int at[4];
    ref_decode(at, sd, i);
    double sum = 0;
    for (int y = 0; y < dd[2]; y++)
        for (int x = 0; x < dd[3]; x++) {
            int h = ref_window_first(y, sd[2], dd[2]), h_last = ref_window_last(y, sd[2], dd[2]);
            int w = ref_window_first(x, sd[3], dd[3]), w_last = ref_window_last(x, sd[3], dd[3]);
            if (at[2] >= h && at[2] <= h_last && at[3] >= w && at[3] <= w_last)
                sum += diff_dst[ref_index(dd, at[0], at[1], y, x)] /
                       ((double)(h_last - h + 1) * (w_last - w + 1));
        }
    return sum;
}

/* k: output size. */
static const struct op_case avg_pool_cases[] = {
    {2, 2048, 7, 7, 1, 0, 0, 0, 0, 0}, {3, 17, 8, 8, 1, 0, 0, 0, 0, 0},
    {2, 64, 4, 6, 1, 0, 0, 0, 0, 0},   {1, 3, 1, 1, 1, 0, 0, 0, 0, 0},
    {2, 20, 7, 7, 7, 0, 0, 0, 0, 0},   {2, 20, 8, 8, 7, 0, 0, 0, 0, 0},
    {2, 16, 10, 10, 7, 0, 0, 0, 0, 0}, {2, 16, 14, 14, 7, 0, 0, 0, 0, 0},
    {2, 20, 3, 3, 7, 0, 0, 0, 0, 0},   {1, 512, 1, 1, 7, 0, 0, 0, 0, 0},
    {2, 5, 6, 13, 6, 0, 0, 0, 0, 0},
};

OP_TEST(avg_pool, build_avg_pool, true)

static const struct op_test op_test_avg_pool = {
    .element = ref_avg_pool, .bound = 1e-6, .n_roundings = 1, .tests = {TEST_OF(avg_pool)}};
static const struct op_test op_test_avg_pool_bwd = {
    .element = ref_avg_pool_bwd, .bound = 1e-6, .n_roundings = 1};

/* --- Upsampling --- */

/* fine is src, and the gradient that comes back too, so that both are seen behind a convolution. */
static void build_upsample_add(struct dt_graph *g, const struct op_case *c)
{
    int fine = add_src(g, c);
    int src[2] = {add4(g, "coarse", DT_ACT, c->n, c->c, c->h / 2, c->w / 2), fine};
    int diff_coarse = add_like(g, "diff_coarse", DT_DIFF, DT_F32, src[0]);
    add_node(g, NULL, DT_OP_UPSAMPLE_ADD_BWD, 1, &fine, 1, &diff_coarse);
    int dst = add_like(g, "dst", DT_ACT, DT_F32, fine);
    add_node(g, NULL, DT_OP_UPSAMPLE_ADD, 2, src, 1, &dst);
}

static double ref_upsample_add(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    int at[4];
    ref_decode(at, ref_dim(r, node->dst[0]), i);
    size_t j = ref_index(ref_dim(r, node->src[0]), at[0], at[1], at[2] / 2, at[3] / 2);
    return ref_src(r, node, 0)[j] + ref_src(r, node, 1)[i];
}

static double ref_upsample_add_bwd(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    const int *dim = ref_dim(r, node->src[0]);
    int at[4];
    ref_decode(at, ref_dim(r, node->dst[0]), i);
    double sum = 0;
    for (int h = 2 * at[2]; h < 2 * at[2] + 2; h++)
        for (int w = 2 * at[3]; w < 2 * at[3] + 2; w++)
            sum += ref_src(r, node, 0)[ref_index(dim, at[0], at[1], h, w)];
    return sum;
}

static const struct op_case upsample_add_cases[] = {
    {1, 1, 2, 2, 0, 0, 0, 0, 0, 0},    {2, 3, 10, 14, 0, 0, 0, 0, 0, 0},
    {1, 16, 8, 18, 0, 0, 0, 0, 0, 0},  {3, 17, 12, 6, 0, 0, 0, 0, 0, 0},
    {2, 20, 2, 16, 0, 0, 0, 0, 0, 0},  {1, 256, 14, 18, 0, 0, 0, 0, 0, 0},
    {2, 64, 24, 20, 0, 0, 0, 0, 0, 0},
};

OP_TEST(upsample_add, build_upsample_add, true)

static const struct op_test op_test_upsample_add = {
    .element = ref_upsample_add, .bound = 1e-6, .n_roundings = 1, .tests = {TEST_OF(upsample_add)}};
static const struct op_test op_test_upsample_add_bwd = {
    .element = ref_upsample_add_bwd, .bound = 1e-6, .n_roundings = 1};

#endif
