/* Single-op cases as graphs: each builder makes one forward op and its backward ops by hand. */
#ifndef DTRAIN_TESTS_OP_BUILD_H
#define DTRAIN_TESTS_OP_BUILD_H

#include <string.h>

#include "dtrain/graph.h"

enum {
    F_BIAS = 1,
    F_RELU = 2,
    F_RESIDUAL = 4,
    F_EVAL = 8,
    F_IGNORE = 16, /* some labels are -1 */
    F_TWO = 32,    /* relu_bwd and bn_bwd sum two gradients */
    F_COPY = 64,   /* src comes out of a convolution, in the format that one prefers */
    F_MIXED = 128, /* labels2 and weights */
};

struct op_case {
    int n, c, h, w; /* src */
    int k;          /* output channels, features or size */
    int kernel, stride, pad;
    unsigned flags;
    double smoothing;
};

#define COPY_WEIGHTS "copy_weights"

typedef void case_build_fn(struct dt_graph *g, const struct op_case *c);

static int add4(struct dt_graph *g, const char *name, enum dt_role role, int n, int c, int h, int w)
{
    const int dim[4] = {n, c, h, w};
    return dt_graph_tensor(g, name, role, DT_F32, 4, dim);
}

static int add1(struct dt_graph *g, const char *name, enum dt_role role, int n)
{
    const int dim[4] = {n, 1, 1, 1};
    return dt_graph_tensor(g, name, role, DT_F32, 1, dim);
}

static int add_like(struct dt_graph *g, const char *name, enum dt_role role, enum dt_dtype dtype,
                    int other)
{
    int dim[4];
    if (other < 0)
        return -1;
    memcpy(dim, g->tensor[other].dim, sizeof dim);
    int n_dims = g->tensor[other].n_dims;
    return dt_graph_tensor(g, name, role, dtype, n_dims, dim);
}

static int add_diff_param(struct dt_graph *g, const char *name, int param)
{
    int diff = add_like(g, name, DT_DIFF_PARAM, DT_F32, param);
    if (diff >= 0) {
        g->tensor[diff].diff = param;
        g->tensor[param].diff = diff;
    }
    return diff;
}

/* A node with the attributes of the case. */
static void add_node(struct dt_graph *g, const struct op_case *c, enum dt_op op, int n_src,
                     const int *src, int n_dst, const int *dst)
{
    struct dt_node *node = dt_graph_node(g, op, "case", n_src, src, n_dst, dst);
    if (!node)
        return;
    bool fuses = op == DT_OP_CONV || op == DT_OP_BN || op == DT_OP_BN_BWD || op == DT_OP_ADD;
    node->relu = fuses && c->flags & F_RELU;
    node->residual = (op == DT_OP_BN || op == DT_OP_BN_BWD) && c->flags & F_RESIDUAL;
    switch (op) {
    case DT_OP_INGEST:
        for (int i = 0; i < 3; i++) {
            node->attr.ingest.mean[i] = 0.4f + 0.05f * (float)i;
            node->attr.ingest.std[i] = 0.2f + 0.03f * (float)i;
        }
        break;
    case DT_OP_CONV:
    case DT_OP_CONV_BWD_DATA:
    case DT_OP_CONV_BWD_WEIGHTS:
        node->attr.conv.stride = c->stride;
        node->attr.conv.pad = c->pad;
        break;
    case DT_OP_MAX_POOL:
    case DT_OP_MAX_POOL_BWD:
        node->attr.pool.kernel = c->kernel;
        node->attr.pool.stride = c->stride;
        node->attr.pool.pad = c->pad;
        break;
    case DT_OP_BN:
    case DT_OP_BN_BWD:
        node->attr.bn.eps = 1e-5f;
        node->attr.bn.momentum = 0.1f;
        break;
    case DT_OP_SOFTMAX_XENT:
        node->attr.xent.smoothing = (float)c->smoothing;
        break;
    default:
        break;
    }
}

/* With F_COPY, src is an exact copy made by a 1x1 convolution (fill_inputs sets its weights to the
 * identity): the same values in the format a network has there. */
static int add_src(struct dt_graph *g, const struct op_case *c)
{
    static const struct op_case copy = {.stride = 1};
    int src = add4(g, "src", DT_ACT, c->n, c->c, c->h, c->w);
    if (c->flags & F_COPY) {
        int from[2] = {add_like(g, "copy_src", DT_ACT, DT_F32, src),
                       add4(g, COPY_WEIGHTS, DT_PARAM, c->c, c->c, 1, 1)};
        add_node(g, &copy, DT_OP_CONV, 2, from, 1, &src);
    }
    return src;
}

static void build_ingest(struct dt_graph *g, const struct op_case *c)
{
    int dst = add_like(g, "dst", DT_ACT, DT_F32, g->pixels[g->phase]);
    add_node(g, c, DT_OP_INGEST, 1, &g->pixels[g->phase], 1, &dst);
}

static int window_out(int in, const struct op_case *c)
{
    return (in + 2 * c->pad - c->kernel) / c->stride + 1;
}

static void build_conv(struct dt_graph *g, const struct op_case *c)
{
    int n_bias = c->flags & F_BIAS ? 1 : 0;
    int src = add_src(g, c);
    int weights = add4(g, "weights", DT_PARAM, c->k, c->c, c->kernel, c->kernel);
    int bias = n_bias ? add1(g, "bias", DT_PARAM, c->k) : -1;
    int dst = add4(g, "dst", DT_ACT, c->n, c->k, window_out(c->h, c), window_out(c->w, c));
    int fwd[3] = {src, weights, bias};
    add_node(g, c, DT_OP_CONV, 2 + n_bias, fwd, 1, &dst);
    if (c->flags & F_EVAL)
        return;
    int diff_dst = add_like(g, "diff_dst", DT_DIFF, DT_F32, dst);
    int diff_src = add_like(g, "diff_src", DT_DIFF, DT_F32, src);
    int diff_weights = add_diff_param(g, "diff_weights", weights);
    int diff_bias = n_bias ? add_diff_param(g, "diff_bias", bias) : -1;
    int bwd_weights[2] = {src, diff_dst}, diffs[2] = {diff_weights, diff_bias};
    add_node(g, c, DT_OP_CONV_BWD_WEIGHTS, 2, bwd_weights, 1 + n_bias, diffs);
    int bwd_data[2] = {diff_dst, weights};
    add_node(g, c, DT_OP_CONV_BWD_DATA, 2, bwd_data, 1, &diff_src);
}

static void build_bn(struct dt_graph *g, const struct op_case *c)
{
    bool train = !(c->flags & F_EVAL);
    int n_residual = c->flags & F_RESIDUAL ? 1 : 0, n_mask = c->flags & F_RELU ? 1 : 0;
    int fwd[6] = {add_src(g, c),
                  add1(g, "scale", DT_PARAM, c->c),
                  add1(g, "shift", DT_PARAM, c->c),
                  add1(g, "running_mean", DT_STAT, c->c),
                  add1(g, "running_var", DT_STAT, c->c),
                  -1};
    if (n_residual)
        fwd[5] = add_like(g, "residual", DT_ACT, DT_F32, fwd[0]);
    int dst[4] = {add_like(g, "dst", DT_ACT, DT_F32, fwd[0]), -1, -1, -1};
    if (train) {
        dst[1] = add1(g, "mean", DT_SAVED, c->c);
        dst[2] = add1(g, "variance", DT_SAVED, c->c);
        if (n_mask)
            dst[3] = add_like(g, "workspace", DT_SAVED, DT_U8, fwd[0]);
    }
    add_node(g, c, DT_OP_BN, 5 + n_residual, fwd, train ? 3 + n_mask : 1, dst);
    if (!train)
        return;
    int n_two = c->flags & F_TWO ? 1 : 0;
    int bwd[8] = {
        fwd[0], add_like(g, "diff_dst", DT_DIFF, DT_F32, fwd[0]), fwd[1], fwd[2], dst[1], dst[2],
        dst[3]};
    if (n_two)
        bwd[6 + n_mask] = add_like(g, "diff_dst2", DT_DIFF, DT_F32, fwd[0]);
    int diffs[4] = {add_like(g, "diff_src", DT_DIFF, DT_F32, fwd[0]),
                    add_diff_param(g, "diff_scale", fwd[1]),
                    add_diff_param(g, "diff_shift", fwd[2]), -1};
    if (n_residual)
        diffs[3] = add_like(g, "diff_residual", DT_DIFF, DT_F32, fwd[0]);
    add_node(g, c, DT_OP_BN_BWD, 6 + n_mask + n_two, bwd, 3 + n_residual, diffs);
}

static void build_relu(struct dt_graph *g, const struct op_case *c)
{
    int src = add_src(g, c), dst = add_like(g, "dst", DT_ACT, DT_F32, src);
    add_node(g, c, DT_OP_RELU, 1, &src, 1, &dst);
    int n_two = c->flags & F_TWO ? 1 : 0;
    int bwd[3] = {add_like(g, "diff_dst", DT_DIFF, DT_F32, src), dst, -1};
    if (n_two)
        bwd[2] = add_like(g, "diff_dst2", DT_DIFF, DT_F32, src);
    int diff_src = add_like(g, "diff_src", DT_DIFF, DT_F32, src);
    add_node(g, c, DT_OP_RELU_BWD, 2 + n_two, bwd, 1, &diff_src);
}

static void build_add(struct dt_graph *g, const struct op_case *c)
{
    int src[2] = {add_src(g, c), -1};
    src[1] = add_like(g, "src2", DT_ACT, DT_F32, src[0]);
    int dst = add_like(g, "dst", DT_ACT, DT_F32, src[0]);
    add_node(g, c, DT_OP_ADD, 2, src, 1, &dst);
}

static void build_max_pool(struct dt_graph *g, const struct op_case *c)
{
    int src = add_src(g, c);
    int dst[2] = {add4(g, "dst", DT_ACT, c->n, c->c, window_out(c->h, c), window_out(c->w, c)), -1};
    if (c->flags & F_EVAL) {
        add_node(g, c, DT_OP_MAX_POOL, 1, &src, 1, dst);
        return;
    }
    dst[1] = add_like(g, "workspace", DT_SAVED, DT_U8, dst[0]);
    add_node(g, c, DT_OP_MAX_POOL, 1, &src, 2, dst);
    int bwd[2] = {add_like(g, "diff_dst", DT_DIFF, DT_F32, dst[0]), dst[1]};
    int diff_src = add_like(g, "diff_src", DT_DIFF, DT_F32, src);
    add_node(g, c, DT_OP_MAX_POOL_BWD, 2, bwd, 1, &diff_src);
}

static void build_avg_pool(struct dt_graph *g, const struct op_case *c)
{
    int src = add_src(g, c), dst = add4(g, "dst", DT_ACT, c->n, c->c, c->k, c->k);
    add_node(g, c, DT_OP_AVG_POOL, 1, &src, 1, &dst);
    int diff_dst = add_like(g, "diff_dst", DT_DIFF, DT_F32, dst);
    int diff_src = add_like(g, "diff_src", DT_DIFF, DT_F32, src);
    add_node(g, c, DT_OP_AVG_POOL_BWD, 1, &diff_dst, 1, &diff_src);
}

static void build_linear(struct dt_graph *g, const struct op_case *c)
{
    const int weights_dim[4] = {c->k, c->c * c->h * c->w, 1, 1};
    int fwd[3] = {add_src(g, c), dt_graph_tensor(g, "weights", DT_PARAM, DT_F32, 2, weights_dim),
                  add1(g, "bias", DT_PARAM, c->k)};
    int dst = add4(g, "dst", DT_ACT, c->n, c->k, 1, 1);
    add_node(g, c, DT_OP_LINEAR, 3, fwd, 1, &dst);
    int diff_dst = add_like(g, "diff_dst", DT_DIFF, DT_F32, dst);
    int diff_src = add_like(g, "diff_src", DT_DIFF, DT_F32, fwd[0]);
    int bwd_weights[2] = {fwd[0], diff_dst};
    int diffs[2] = {add_diff_param(g, "diff_weights", fwd[1]),
                    add_diff_param(g, "diff_bias", fwd[2])};
    add_node(g, c, DT_OP_LINEAR_BWD_WEIGHTS, 2, bwd_weights, 2, diffs);
    int bwd_data[2] = {diff_dst, fwd[1]};
    add_node(g, c, DT_OP_LINEAR_BWD_DATA, 2, bwd_data, 1, &diff_src);
}

static void build_softmax_xent(struct dt_graph *g, const struct op_case *c)
{
    bool mixed = c->flags & F_MIXED && dt_graph_mix_labels(g) == DT_OK;
    int src[4] = {add_src(g, c), g->labels[g->phase], g->labels2[g->phase], g->weights[g->phase]};
    int diff = add_like(g, "diff_src", DT_DIFF, DT_F32, src[0]);
    add_node(g, c, DT_OP_SOFTMAX_XENT, mixed ? 4 : 2, src, c->flags & F_EVAL ? 0 : 1, &diff);
}

#endif
