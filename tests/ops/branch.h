/* Gate and scaled_add: a factor of each image and channel, or a scale of each channel and the
 * images that stochastic depth keeps. */
#ifndef DTRAIN_TESTS_OPS_BRANCH_H
#define DTRAIN_TESTS_OPS_BRANCH_H

#include "op_cases.h"

/* --- Gate --- */

static void build_gate(struct dt_graph *g, const struct op_case *c)
{
    const int src = add_src(g, c), factor = add4(g, "factor", DT_ACT, c->n, c->c, 1, 1);
    const int fwd[] = {src, factor}, dst = add_like(g, "dst", DT_ACT, DT_F32, src);
    add_node(g, NULL, DT_OP_GATE, 2, fwd, 1, &dst);
    if (c->flags & F_EVAL)
        return;
    const int bwd[] = {[DT_BRANCH_BWD_DIFF_DST] = add_like(g, "diff_dst", DT_DIFF, DT_F32, src),
                       [DT_BRANCH_BWD_FACTOR] = factor,
                       [DT_BRANCH_BWD_SRC] = src};
    const int diffs[] = {add_like(g, "diff_src", DT_DIFF, DT_F32, src),
                         add_like(g, "diff_factor", DT_DIFF, DT_F32, factor)};
    add_node(g, NULL, DT_OP_GATE_BWD, 3, bwd, 2, diffs);
}

static size_t ref_plane(const struct ref *r, const struct dt_node *node)
{
    const int *dim = ref_dim(r, node->src[0]);
    return (size_t)dim[2] * (size_t)dim[3];
}

static double ref_gate(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    return ref_src(r, node, DT_GATE_SRC)[i] *
           ref_src(r, node, DT_GATE_FACTOR)[i / ref_plane(r, node)];
}

static double ref_gate_bwd(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    const double *diff = ref_src(r, node, DT_BRANCH_BWD_DIFF_DST);
    const size_t plane = ref_plane(r, node);
    double sum = 0;
    if (which == DT_BRANCH_BWD_DIFF_SRC)
        return diff[i] * ref_src(r, node, DT_BRANCH_BWD_FACTOR)[i / plane];
    for (size_t j = i * plane; j < (i + 1) * plane; j++)
        sum += diff[j] * ref_src(r, node, DT_BRANCH_BWD_SRC)[j];
    return sum;
}

static const struct op_case gate_cases[] = {
    {1, 1, 1, 1, 0, 0, 0, 0, 0, 0},       {2, 3, 5, 7, 0, 0, 0, 0, 0, 0},
    {3, 17, 9, 5, 0, 0, 0, 0, 0, 0},      {2, 20, 1, 1, 0, 0, 0, 0, 0, 0},
    {4, 33, 3, 3, 0, 0, 0, 0, 0, 0},      {2, 96, 14, 14, 0, 0, 0, 0, 0, 0},
    {1, 16, 57, 41, 0, 0, 0, 0, 0, 0},    {2, 300, 2, 2, 0, 0, 0, 0, 0, 0},
    {2, 20, 7, 5, 0, 0, 0, 0, F_EVAL, 0}, {1, 33, 1, 3, 0, 0, 0, 0, F_EVAL, 0},
};

OP_TEST(gate, build_gate, true)

static const struct op_test op_test_gate = {
    .element = ref_gate, .bound = 1e-6, .n_own = 1, .tests = {TEST_OF(gate)}};
static const struct op_test op_test_gate_bwd = {.element = ref_gate_bwd, .bound = 5e-6, .n_own = 1};

/* --- Scaled add: stochastic depth with probability `smoothing`; F_BIAS: a scale, F_CONST: one
 * that is not trained --- */

static void build_scaled_add(struct dt_graph *g, const struct op_case *c)
{
    const struct dt_node like = {.attr.dropout = {(float)c->smoothing, 77}};
    const bool scaled = c->flags & (F_BIAS | F_CONST), trained = c->flags & F_BIAS;
    const int src = add_src(g, c), shape[4] = {c->c, 1, 1, 1};
    const int residual = add_like(g, "residual", DT_ACT, DT_F32, src);
    const int scale = scaled ? dt_graph_tensor(g, "scale", DT_PARAM, DT_F32, 3, shape) : -1;
    const int fwd[] = {src, residual, scale}, dst = add_like(g, "dst", DT_ACT, DT_F32, src);
    add_node(g, &like, DT_OP_SCALED_ADD, 3, fwd, 1, &dst);
    if (c->flags & F_EVAL)
        return;
    const int bwd[] = {[DT_BRANCH_BWD_DIFF_DST] = add_like(g, "diff_dst", DT_DIFF, DT_F32, src),
                       [DT_BRANCH_BWD_FACTOR] = scale,
                       [DT_BRANCH_BWD_SRC] = trained ? src : -1};
    const int diffs[] = {add_like(g, "diff_src", DT_DIFF, DT_F32, src),
                         trained ? add_diff_param(g, "diff_scale", scale) : -1};
    add_node(g, &like, DT_OP_SCALED_ADD_BWD, 3, bwd, 2, diffs);
}

/* 0 or 1 / (1 - p), by one word of the stream for every image of the global batch. */
static double ref_keep(const struct dt_node *node, size_t image)
{
    const double p = (double)node->attr.dropout.p;
    struct dt_rng rng;
    dt_rng_init(&rng, CASE_SEED, DT_RNG_DROPOUT, case_scalars.step, node->attr.dropout.stream);
    for (uint32_t i = 0; i < case_scalars.first_row + image; i++)
        (void)dt_rng_u32(&rng);
    return dt_rng_uniform(&rng) < p ? 0 : 1 / (1 - p);
}

/* The factor of element i of src. */
static double ref_factor(struct ref *r, const struct dt_node *node, const double *scale, size_t i)
{
    const size_t channel = i / ref_plane(r, node), n = (size_t)ref_dim(r, node->src[0])[1];
    return ref_keep(node, channel / n) * (scale ? scale[channel % n] : 1);
}

static double ref_scaled_add(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    return ref_factor(r, node, ref_src(r, node, DT_SCALED_ADD_SCALE), i) *
               ref_src(r, node, DT_SCALED_ADD_SRC)[i] +
           ref_src(r, node, DT_SCALED_ADD_RESIDUAL)[i];
}

static double ref_scaled_add_bwd(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    const double *diff = ref_src(r, node, DT_BRANCH_BWD_DIFF_DST);
    const int *dim = ref_dim(r, node->src[0]);
    double sum = 0;
    if (which == DT_BRANCH_BWD_DIFF_SRC)
        return diff[i] * ref_factor(r, node, ref_src(r, node, DT_BRANCH_BWD_FACTOR), i);
    for (int image = 0; image < dim[0]; image++) {
        const double keep = ref_keep(node, (size_t)image);
        const size_t first = ref_index(dim, image, (int)i, 0, 0);
        for (size_t j = first; j < first + ref_plane(r, node); j++)
            sum += keep * diff[j] * ref_src(r, node, DT_BRANCH_BWD_SRC)[j];
    }
    return sum;
}

static const struct op_case scaled_add_cases[] = {
    {1, 1, 1, 1, 0, 0, 0, 0, F_BIAS, 0},
    {2, 3, 5, 7, 0, 0, 0, 0, F_BIAS, 0},
    {9, 17, 4, 5, 0, 0, 0, 0, F_BIAS, 0.5},
    {6, 20, 7, 5, 0, 0, 0, 0, F_BIAS, 0.2},
    {4, 33, 3, 3, 0, 0, 0, 0, F_CONST, 0.25},
    {3, 96, 14, 14, 0, 0, 0, 0, F_BIAS, 0.5},
    {9, 17, 4, 5, 0, 0, 0, 0, 0, 0.5},
    {5, 20, 7, 5, 0, 0, 0, 0, 0, 0.9},
    {1, 16, 57, 41, 0, 0, 0, 0, F_BIAS, 0},
    {2, 96, 14, 14, 0, 0, 0, 0, F_CONST, 0},
    {2, 20, 7, 5, 0, 0, 0, 0, F_BIAS | F_EVAL, 0},
    {1, 33, 1, 3, 0, 0, 0, 0, F_BIAS | F_EVAL, 0},
};

OP_TEST(scaled_add, build_scaled_add, true)

static const struct op_test op_test_scaled_add = {
    .element = ref_scaled_add, .bound = 1e-6, .n_own = 1, .tests = {TEST_OF(scaled_add)}};
static const struct op_test op_test_scaled_add_bwd = {
    .element = ref_scaled_add_bwd, .bound = 5e-6, .n_own = 1};

#endif
