/* Activations, by their definitions. */
#ifndef DTRAIN_TESTS_OPS_ACTIVATION_H
#define DTRAIN_TESTS_OPS_ACTIVATION_H

#include "op_cases.h"

static double relu6(double x)
{
    return fmin(fmax(x, 0), 6);
}

static double ref_activate(enum dt_activation kind, double x)
{
    switch (kind) {
    case DT_RELU:
        return fmax(x, 0);
    case DT_RELU6:
        return relu6(x);
    case DT_SILU:
        return x / (1 + exp(-x));
    case DT_SIGMOID:
        return 1 / (1 + exp(-x));
    case DT_HARD_SIGMOID:
        return relu6(x + 3) / 6;
    case DT_HARD_SWISH:
        return x * relu6(x + 3) / 6;
    case DT_GELU:
        return x * (1 + erf(x / sqrt(2))) / 2;
    case DT_GELU_TANH:
        return x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2;
    default:
        return x;
    }
}

/* Exact for polynomials of degree 4, and to 1e-11 for the others; at a kink, that of one side. */
static double ref_slope(enum dt_activation kind, double x)
{
    const double h = 1e-3;
    double slope = 0;
    static const double weights[] = {1 / 12.0, -8 / 12.0, 0, 8 / 12.0, -1 / 12.0};
    if (kind == DT_RELU)
        return x > 0;
    if (kind == DT_RELU6)
        return x > 0 && x < 6;
    if (kind == DT_HARD_SIGMOID)
        return x > -3 && x < 3 ? 1 / 6.0 : 0;
    if (kind == DT_HARD_SWISH)
        return x < -3 ? 0 : x > 3 ? 1 : x / 3 + 0.5;
    for (int i = 0; i < 5; i++)
        slope += weights[i] * ref_activate(kind, x + (i - 2) * h) / h;
    return slope;
}

/* How far all but 0, whose side survives rounding, are from a kink. */
static double activation_margin(enum dt_activation kind, double x)
{
    if (kind == DT_RELU6)
        return fabs(x - 6);
    if (kind == DT_HARD_SIGMOID || kind == DT_HARD_SWISH)
        return fabs(fabs(x) - 3);
    return INFINITY;
}

static void build_activation(struct dt_graph *g, const struct op_case *c)
{
    const struct dt_node like = {.activation = (enum dt_activation)c->k};
    int src = add_src(g, c), dst = add_like(g, "dst", DT_ACT, DT_F32, src);
    add_node(g, &like, DT_OP_ACTIVATION, 1, &src, 1, &dst);
    int bwd[3] = {add_like(g, "diff_dst", DT_DIFF, DT_F32, src), c->k == DT_RELU ? dst : src, -1};
    if (c->flags & F_TWO)
        bwd[DT_ACTIVATION_BWD_DIFF_DST2] = add_like(g, "diff_dst2", DT_DIFF, DT_F32, src);
    int diff_src = add_like(g, "diff_src", DT_DIFF, DT_F32, src);
    add_node(g, &like, DT_OP_ACTIVATION_BWD, 3, bwd, 1, &diff_src);
}

static double ref_activation(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    const double x = ref_src(r, node, 0)[i];
    (void)which;
    r->margin = fmin(r->margin, activation_margin(node->activation, x));
    if (node->activation == DT_RELU || node->activation == DT_RELU6)
        r->margin = fmin(r->margin, fabs(x));
    return ref_activate(node->activation, x);
}

/* From -6 to 10, exactly in every precision, so that all pieces of the functions occur. */
static void widen_arguments(struct ref *input, const struct dt_node *node)
{
    double *src = input->value[node->src[0]];
    for (size_t i = 0; i < dt_tensor_elements(&input->g->tensor[node->src[0]]); i++)
        src[i] *= 8;
}

static double ref_activation_bwd(struct ref *r, const struct dt_node *node, int which, size_t i)
{
    (void)which;
    const double *diff2 = ref_src(r, node, DT_ACTIVATION_BWD_DIFF_DST2);
    const double diff = ref_src(r, node, DT_ACTIVATION_BWD_DIFF_DST)[i] + (diff2 ? diff2[i] : 0);
    return diff * ref_slope(node->activation, ref_src(r, node, DT_ACTIVATION_BWD_SRC)[i]);
}

/* k: the kind. */
#define KINDS(n, c, h, w, flags)                                                                  \
    {n, c, h, w, DT_RELU, 0, 0, 0, flags, 0}, {n, c, h, w, DT_RELU6, 0, 0, 0, flags, 0},          \
        {n, c, h, w, DT_SILU, 0, 0, 0, flags, 0}, {n, c, h, w, DT_SIGMOID, 0, 0, 0, flags, 0},    \
        {n, c, h, w, DT_HARD_SIGMOID, 0, 0, 0, flags, 0},                                         \
        {n, c, h, w, DT_HARD_SWISH, 0, 0, 0, flags, 0}, {n, c, h, w, DT_GELU, 0, 0, 0, flags, 0}, \
    {                                                                                             \
        n, c, h, w, DT_GELU_TANH, 0, 0, 0, flags, 0                                               \
    }
static const struct op_case activation_cases[] = {
    KINDS(2, 17, 5, 7, 0),
    KINDS(3, 64, 14, 14, F_TWO),
    {1, 1, 1, 1, DT_SILU, 0, 0, 0, 0, 0},
    {4, 4100, 1, 1, DT_GELU, 0, 0, 0, 0, 0},
    {4, 4096, 1, 1, DT_RELU, 0, 0, 0, 0, 0},
    {3, 17, 9, 9, DT_RELU, 0, 0, 0, F_TWO, 0},
};
#undef KINDS

OP_TEST(activation, build_activation, true)

static const struct op_test op_test_activation = {.element = ref_activation,
                                                  .bound = 1e-6,
                                                  .n_roundings = 1,
                                                  .adjust = widen_arguments,
                                                  .tests = {TEST_OF(activation)}};
static const struct op_test op_test_activation_bwd = {
    .element = ref_activation_bwd, .bound = 3e-6, .n_roundings = 1};

#endif
