/* Linear layer. */
#ifndef DTRAIN_TESTS_OPS_LINEAR_H
#define DTRAIN_TESTS_OPS_LINEAR_H

#include "op_cases.h"

static void build_linear(struct dt_graph *g, const struct op_case *c)
{
    const int weights_dim[4] = {c->k, c->c * c->h * c->w, 1, 1};
    int fwd[3] = {add_src(g, c), dt_graph_tensor(g, "weights", DT_PARAM, DT_F32, 2, weights_dim),
                  add1(g, "bias", DT_PARAM, c->k)};
    int dst = add4(g, "dst", DT_ACT, c->n, c->k, 1, 1);
    add_node(g, NULL, DT_OP_LINEAR, 3, fwd, 1, &dst);
    int diff_dst = add_like(g, "diff_dst", DT_DIFF, DT_F32, dst);
    int diff_src = add_like(g, "diff_src", DT_DIFF, DT_F32, fwd[0]);
    int bwd_weights[2] = {fwd[0], diff_dst};
    int diffs[2] = {add_diff_param(g, "diff_weights", fwd[DT_LINEAR_WEIGHTS]),
                    add_diff_param(g, "diff_bias", fwd[DT_LINEAR_BIAS])};
    add_node(g, NULL, DT_OP_LINEAR_BWD_WEIGHTS, 2, bwd_weights, 2, diffs);
    int bwd_data[2] = {diff_dst, fwd[DT_LINEAR_WEIGHTS]};
    add_node(g, NULL, DT_OP_LINEAR_BWD_DATA, 2, bwd_data, 1, &diff_src);
}

static double ref_linear(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    size_t n_out = (size_t)ref_dim(r, node->src[1])[0];
    size_t n_in = (size_t)ref_dim(r, node->src[1])[1];
    const double *src = ref_src(r, node, 0) + i / n_out * n_in;
    const double *weights = ref_src(r, node, 1) + i % n_out * n_in;
    double sum = ref_src(r, node, DT_LINEAR_BIAS)[i % n_out];
    for (size_t f = 0; f < n_in; f++)
        sum += src[f] * weights[f];
    return sum;
}

static double ref_linear_bwd_data(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    size_t n_out = (size_t)ref_dim(r, node->src[1])[0];
    size_t n_in = (size_t)ref_dim(r, node->src[1])[1];
    const double *diff_dst = ref_src(r, node, 0) + i / n_in * n_out;
    const double *weights = ref_src(r, node, 1) + i % n_in;
    double sum = 0;
    for (size_t o = 0; o < n_out; o++)
        sum += diff_dst[o] * weights[o * n_in];
    return sum;
}

static double ref_linear_bwd_weights(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    const double *src = ref_src(r, node, 0), *diff_dst = ref_src(r, node, 1);
    size_t n_out = (size_t)ref_dim(r, node->dst[0])[0];
    size_t n_in = (size_t)ref_dim(r, node->dst[0])[1];
    size_t n_images = (size_t)ref_dim(r, node->src[1])[0];
    double sum = 0;
    for (size_t n = 0; n < n_images; n++)
        sum += which == 1 ? diff_dst[n * n_out + i]
                          : diff_dst[n * n_out + i / n_in] * src[n * n_in + i % n_in];
    return sum;
}

static const struct op_case linear_cases[] = {
    {2, 2048, 1, 1, 1000, 0, 0, 0, 0, 0}, {3, 64, 1, 1, 10, 0, 0, 0, 0, 0},
    {2, 64, 7, 7, 96, 0, 0, 0, 0, 0},     {3, 17, 3, 5, 20, 0, 0, 0, 0, 0},
    {4, 3, 4, 4, 5, 0, 0, 0, 0, 0},       {1, 20, 6, 6, 33, 0, 0, 0, 0, 0},
    {5, 7, 1, 1, 1, 0, 0, 0, 0, 0},       {2, 512, 1, 1, 256, 0, 0, 0, 0, 0},
};

OP_TEST(linear, build_linear, true)

static const struct op_test op_test_linear = {.element = ref_linear,
                                              .sampled = true,
                                              .bound = 1e-5,
                                              .gpu_bound = 1e-4,
                                              .n_roundings = 2,
                                              .tests = {TEST_OF(linear)}};
static const struct op_test op_test_linear_bwd_data = {.element = ref_linear_bwd_data,
                                                       .sampled = true,
                                                       .bound = 1e-5,
                                                       .gpu_bound = 1e-4,
                                                       .n_roundings = 1};
static const struct op_test op_test_linear_bwd_weights = {.element = ref_linear_bwd_weights,
                                                          .sampled = true,
                                                          .bound = 1e-5,
                                                          .gpu_bound = 1e-4,
                                                          .n_roundings = 1};

#endif
