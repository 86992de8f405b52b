/* Batch norm, group norm and layer norm. */
#ifndef DTRAIN_TESTS_OPS_NORM_H
#define DTRAIN_TESTS_OPS_NORM_H

#include "activation.h"
#include "op_cases.h"

static struct dt_node bn_like(const struct op_case *c)
{
    return (struct dt_node){
        .activation = c->flags & F_RELU ? DT_RELU : (enum dt_activation)(c->flags >> 20 & 255),
        .residual = c->flags & F_RESIDUAL,
        .attr.bn = {.eps = c->flags & F_CONST ? 0 : 1e-5f, .momentum = 0.1f}};
}

static enum dt_role bn_role(const struct op_case *c)
{
    return c->flags & F_CONST ? DT_STAT : DT_PARAM;
}

/* What the gradient of a bn reads. */
struct bn {
    int src, scale, shift;
    int dst[4]; /* mean and variance in training; mask with ReLU */
};

/* residual: read with F_RESIDUAL. */
static struct bn add_bn(struct dt_graph *g, const struct op_case *c, int src, int residual)
{
    const struct dt_node like = bn_like(c);
    const int channels = g->tensor[src].dim[1];
    const bool train = !(c->flags & F_EVAL);
    struct bn bn = {src,
                    add1(g, "scale", bn_role(c), channels),
                    add1(g, "shift", bn_role(c), channels),
                    {add_like(g, "dst", DT_ACT, DT_F32, src), -1, -1, -1}};
    const int from[6] = {src,
                         bn.scale,
                         bn.shift,
                         add1(g, "running_mean", DT_STAT, channels),
                         add1(g, "running_var", DT_STAT, channels),
                         residual};
    if (train) {
        bn.dst[DT_BN_MEAN] = add1(g, "mean", DT_SAVED, channels);
        bn.dst[DT_BN_VARIANCE] = add1(g, "variance", DT_SAVED, channels);
        if (like.activation == DT_RELU)
            bn.dst[DT_BN_MASK] = add_like(g, "workspace", DT_SAVED, DT_U8, src);
    }
    add_node(g, &like, DT_OP_BN, like.residual ? 6 : 5, from, 4, bn.dst);
    return bn;
}

/* diff_dst2: a tensor, -1: none. Returns diff_residual, or -1. */
static int add_bn_bwd(struct dt_graph *g, const struct op_case *c, const struct bn *bn,
                      int diff_dst, int diff_dst2)
{
    const struct dt_node like = bn_like(c);
    const int from[] = {[DT_BN_BWD_SRC] = bn->src,
                        [DT_BN_BWD_DIFF_DST] = diff_dst,
                        [DT_BN_BWD_SCALE] = bn->scale,
                        [DT_BN_BWD_SHIFT] = bn->shift,
                        [DT_BN_BWD_MEAN] = bn->dst[DT_BN_MEAN],
                        [DT_BN_BWD_VARIANCE] = bn->dst[DT_BN_VARIANCE],
                        [DT_BN_BWD_MASK] = bn->dst[DT_BN_MASK],
                        [DT_BN_BWD_DIFF_DST2] = diff_dst2,
                        [DT_BN_BWD_ADDEND] = c->flags & F_ADDEND
                                                 ? add_like(g, "addend", DT_DIFF, DT_F32, bn->src)
                                                 : -1};
    const int diffs[4] = {
        add_like(g, "diff_src", DT_DIFF, DT_F32, bn->src),
        add_diff_param(g, "diff_scale", bn->scale), add_diff_param(g, "diff_shift", bn->shift),
        like.residual ? add_like(g, "diff_residual", DT_DIFF, DT_F32, bn->src) : -1};
    add_node(g, &like, DT_OP_BN_BWD, 9, from, 4, diffs);
    return diffs[DT_BN_BWD_DIFF_RESIDUAL];
}

static void build_bn(struct dt_graph *g, const struct op_case *c)
{
    const int src = add_src(g, c);
    const int residual = c->flags & F_RESIDUAL ? add_like(g, "residual", DT_ACT, DT_F32, src) : -1;
    const struct bn bn = add_bn(g, c, src, residual);
    if (c->flags & F_EVAL)
        return;
    const int diff_dst = add_like(g, "diff_dst", DT_DIFF, DT_F32, src);
    add_bn_bwd(g, c, &bn, diff_dst,
               c->flags & F_TWO ? add_like(g, "diff_dst2", DT_DIFF, DT_F32, src) : -1);
}

static void ref_bn_statistics(const struct ref *r, const struct dt_node *node, int c, double *mean,
                              double *variance)
{
    const int *dim = ref_dim(r, node->src[0]);
    size_t plane = (size_t)dim[2] * (size_t)dim[3];
    double n = (double)dim[0] * (double)plane;
    *mean = 0;
    *variance = 0;
    for (int b = 0; b < dim[0]; b++)
        for (size_t i = 0; i < plane; i++)
            *mean += ref_src(r, node, 0)[ref_index(dim, b, c, 0, 0) + i] / n;
    for (int b = 0; b < dim[0]; b++)
        for (size_t i = 0; i < plane; i++) {
            double d = ref_src(r, node, 0)[ref_index(dim, b, c, 0, 0) + i] - *mean;
            *variance += d * d / n;
        }
}

static void ref_bn(struct ref *r, const struct dt_node *node)
{
    const int *dim = ref_dim(r, node->src[0]);
    size_t plane = (size_t)dim[2] * (size_t)dim[3];
    double n = (double)dim[0] * (double)plane, momentum = (double)node->attr.bn.momentum;
    const double *scale = ref_src(r, node, DT_BN_SCALE), *shift = ref_src(r, node, DT_BN_SHIFT);
    const double *residual = ref_src(r, node, DT_BN_RESIDUAL);
    double *running_mean = r->value[node->src[DT_BN_RUNNING_MEAN]];
    double *running_var = r->value[node->src[DT_BN_RUNNING_VAR]];
    double *mask = ref_dst(r, node, DT_BN_MASK);
    for (int c = 0; c < dim[1]; c++) {
        double mean = running_mean[c], variance = running_var[c];
        if (dt_node_has_statistics(node)) {
            ref_bn_statistics(r, node, c, &mean, &variance);
            ref_dst(r, node, DT_BN_MEAN)[c] = mean;
            ref_dst(r, node, DT_BN_VARIANCE)[c] = variance;
            running_mean[c] += momentum * (mean - running_mean[c]);
            running_var[c] += momentum * (variance * n / (n > 1 ? n - 1 : 1) - running_var[c]);
        }
        double factor = scale[c] / sqrt(variance + (double)node->attr.bn.eps);
        const bool is_relu = node->activation == DT_RELU;
        for (int b = 0; b < dim[0]; b++)
            for (size_t i = 0; i < plane; i++) {
                size_t at = ref_index(dim, b, c, 0, 0) + i;
                double y = (ref_src(r, node, 0)[at] - mean) * factor + shift[c];
                y += residual ? residual[at] : 0;
                r->margin = fmin(r->margin, activation_margin(node->activation, y));
                ref_dst(r, node, DT_BN_DST)[at] =
                    is_relu ? ref_relu(r, true, y) : ref_activate(node->activation, y);
                if (mask)
                    mask[at] = !is_relu || y > 0;
            }
    }
}

/* diff_dst [+ diff_dst2], where the ReLU was active, or times the slope of another activation;
 * normal: of the source of channel c. */
static double ref_bn_diff(const struct ref *r, const struct dt_node *node, size_t at, int c,
                          double normal)
{
    const double *diff2 = ref_src(r, node, DT_BN_BWD_DIFF_DST2);
    const double *mask = ref_src(r, node, DT_BN_BWD_MASK);
    double diff = ref_src(r, node, DT_BN_BWD_DIFF_DST)[at] + (diff2 ? diff2[at] : 0);
    if (node->activation > DT_RELU)
        diff *= ref_slope(node->activation, normal * ref_src(r, node, DT_BN_BWD_SCALE)[c] +
                                                ref_src(r, node, DT_BN_BWD_SHIFT)[c]);
    return mask ? diff * mask[at] : diff;
}

static void ref_bn_bwd(struct ref *r, const struct dt_node *node)
{
    const int *dim = ref_dim(r, node->src[0]);
    size_t plane = (size_t)dim[2] * (size_t)dim[3];
    double n = (double)dim[0] * (double)plane;
    const double *src = ref_src(r, node, DT_BN_BWD_SRC);
    const double *addend = ref_src(r, node, DT_BN_BWD_ADDEND);
    double *diff_residual = ref_dst(r, node, DT_BN_BWD_DIFF_RESIDUAL);
    for (int c = 0; c < dim[1]; c++) {
        double mean = ref_src(r, node, DT_BN_BWD_MEAN)[c];
        double variance = ref_src(r, node, DT_BN_BWD_VARIANCE)[c];
        double inverse = 1 / sqrt(variance + (double)node->attr.bn.eps);
        double diff_scale = 0, diff_shift = 0;
        for (int b = 0; b < dim[0]; b++)
            for (size_t i = 0; i < plane; i++) {
                size_t at = ref_index(dim, b, c, 0, 0) + i;
                double normal = (src[at] - mean) * inverse;
                double diff = ref_bn_diff(r, node, at, c, normal);
                diff_shift += diff;
                diff_scale += diff * normal;
            }
        ref_dst(r, node, DT_BN_BWD_DIFF_SCALE)[c] = diff_scale;
        ref_dst(r, node, DT_BN_BWD_DIFF_SHIFT)[c] = diff_shift;
        for (int b = 0; b < dim[0]; b++)
            for (size_t i = 0; i < plane; i++) {
                size_t at = ref_index(dim, b, c, 0, 0) + i;
                double normal = (src[at] - mean) * inverse;
                double diff = ref_bn_diff(r, node, at, c, normal);
                ref_dst(r, node, DT_BN_BWD_DIFF_SRC)[at] =
                    ref_src(r, node, DT_BN_BWD_SCALE)[c] * inverse *
                        (diff - diff_shift / n - normal * diff_scale / n) +
                    (addend ? addend[at] : 0);
                if (diff_residual)
                    diff_residual[at] = diff;
            }
    }
}

static const struct op_case bn_cases[] = {
    {2, 1, 5, 5, 0, 0, 0, 0, 0, 0},
    {2, 3, 4, 4, 0, 0, 0, 0, 0, 0},
    {4, 16, 6, 6, 0, 0, 0, 0, 0, 0},
    {3, 20, 7, 5, 0, 0, 0, 0, 0, 0},
    {2, 64, 14, 14, 0, 0, 0, 0, 0, 0},
    {2, 2048, 7, 7, 0, 0, 0, 0, 0, 0},
    {8, 16, 1, 1, 0, 0, 0, 0, 0, 0},
    {16, 3, 1, 1, 0, 0, 0, 0, 0, 0},
    {1, 64, 56, 56, 0, 0, 0, 0, 0, 0},
    {2, 1, 5, 5, 0, 0, 0, 0, F_RELU, 0},
    {2, 3, 4, 4, 0, 0, 0, 0, F_RELU, 0},
    {4, 16, 6, 6, 0, 0, 0, 0, F_RELU, 0},
    {3, 20, 7, 5, 0, 0, 0, 0, F_RELU, 0},
    {3, 264, 10, 10, 0, 0, 0, 0, F_RELU, 0},
    {1, 33, 7, 7, 0, 0, 0, 0, F_RELU, 0},
    {2, 3, 4, 4, 0, 0, 0, 0, F_RELU | F_RESIDUAL, 0},
    {4, 16, 6, 6, 0, 0, 0, 0, F_RELU | F_RESIDUAL, 0},
    {3, 20, 7, 5, 0, 0, 0, 0, F_RELU | F_RESIDUAL, 0},
    {2, 64, 14, 14, 0, 0, 0, 0, F_RELU | F_RESIDUAL, 0},
    {2, 3, 4, 4, 0, 0, 0, 0, F_TWO, 0},
    {3, 20, 7, 5, 0, 0, 0, 0, F_TWO, 0},
    {3, 20, 7, 5, 0, 0, 0, 0, F_RELU | F_TWO, 0},
    {2, 92, 16, 18, 0, 0, 0, 0, F_RELU | F_TWO, 0},
    {2, 3, 4, 4, 0, 0, 0, 0, F_RELU | F_RESIDUAL | F_TWO, 0},
    {3, 20, 7, 5, 0, 0, 0, 0, F_RELU | F_RESIDUAL | F_TWO, 0},
    {2, 5, 33, 32, 0, 0, 0, 0, F_RELU | F_RESIDUAL | F_TWO, 0},
    {2, 3, 4, 4, 0, 0, 0, 0, F_ADDEND, 0},
    {4, 16, 6, 6, 0, 0, 0, 0, F_RELU | F_ADDEND, 0},
    {3, 20, 7, 5, 0, 0, 0, 0, F_RELU | F_RESIDUAL | F_TWO | F_ADDEND, 0},
    {2, 3, 4, 4, 0, 0, 0, 0, F_EVAL, 0},
    {1, 16, 1, 1, 0, 0, 0, 0, F_EVAL, 0},
    {2, 20, 7, 5, 0, 0, 0, 0, F_EVAL, 0},
    {2, 64, 14, 14, 0, 0, 0, 0, F_EVAL | F_RELU, 0},
    {3, 17, 5, 5, 0, 0, 0, 0, F_EVAL | F_RELU, 0},
    {2, 64, 14, 14, 0, 0, 0, 0, F_EVAL | F_RELU | F_RESIDUAL, 0},
    {3, 17, 5, 5, 0, 0, 0, 0, F_EVAL | F_RELU | F_RESIDUAL, 0},
    {2, 20, 7, 5, 0, 0, 0, 0, F_RESIDUAL, 0},
    {3, 20, 7, 5, 0, 0, 0, 0, F_RESIDUAL | F_TWO, 0},
    {2, 20, 7, 5, 0, 0, 0, 0, F_EVAL | F_RESIDUAL, 0},
    {2, 20, 7, 5, 0, 0, 0, 0, F_EVAL | F_CONST, 0},
    {5, 20, 40, 25, 0, 0, 0, 0, F_FAR, 0},
    {5, 20, 40, 25, 0, 0, 0, 0, F_FAR | F_RESIDUAL | F_TWO, 0},
    {2, 20, 7, 5, 0, 0, 0, 0, F_FAR | F_EVAL, 0},
    {3, 17, 5, 5, 0, 0, 0, 0, F_EVAL | F_CONST | F_RELU | F_RESIDUAL, 0},
    {2, 20, 7, 5, 0, 0, 0, 0, F_ACTIVATION(DT_RELU6), 0},
    {3, 20, 7, 5, 0, 0, 0, 0, F_TWO | F_ACTIVATION(DT_RELU6), 0},
    {2, 16, 20, 20, 0, 0, 0, 0, F_TWO | F_ACTIVATION(DT_SILU), 0},
    {2, 3, 4, 4, 0, 0, 0, 0, F_ACTIVATION(DT_SILU), 0},
    {3, 17, 5, 5, 0, 0, 0, 0, F_ACTIVATION(DT_HARD_SWISH), 0},
    {2, 64, 14, 14, 0, 0, 0, 0, F_ACTIVATION(DT_GELU), 0},
    {3, 17, 5, 5, 0, 0, 0, 0, F_EVAL | F_ACTIVATION(DT_GELU_TANH), 0},
    {2, 64, 14, 14, 0, 0, 0, 0, F_EVAL | F_ACTIVATION(DT_SILU), 0},
};

OP_TEST(bn, build_bn, true)

static void build_bn_frozen_bwd(struct dt_graph *g, const struct op_case *c)
{
    const struct dt_node like = bn_like(c);
    int src[3] = {add_src(g, c), add1(g, "scale", bn_role(c), c->c),
                  add1(g, "running_var", DT_STAT, c->c)};
    int dst = add_like(g, "diff_src", DT_DIFF, DT_F32, src[0]);
    add_node(g, &like, DT_OP_BN_FROZEN_BWD, 3, src, 1, &dst);
}

static void ref_bn_frozen_bwd(struct ref *r, const struct dt_node *node)
{
    const int *dim = ref_dim(r, node->src[0]);
    size_t plane = (size_t)dim[2] * (size_t)dim[3];
    for (int b = 0; b < dim[0]; b++)
        for (int c = 0; c < dim[1]; c++)
            for (size_t i = 0; i < plane; i++) {
                size_t at = ref_index(dim, b, c, 0, 0) + i;
                double variance =
                    ref_src(r, node, DT_BN_FROZEN_BWD_RUNNING_VAR)[c] + (double)node->attr.bn.eps;
                r->value[node->dst[0]][at] = ref_src(r, node, DT_BN_FROZEN_BWD_DIFF_DST)[at] *
                                             ref_src(r, node, DT_BN_FROZEN_BWD_SCALE)[c] /
                                             sqrt(variance);
            }
}

static const struct op_case bn_frozen_bwd_cases[] = {
    {2, 3, 4, 4, 0, 0, 0, 0, 0, 0},        {1, 16, 1, 1, 0, 0, 0, 0, 0, 0},
    {3, 17, 5, 5, 0, 0, 0, 0, 0, 0},       {2, 20, 7, 5, 0, 0, 0, 0, 0, 0},
    {2, 64, 14, 14, 0, 0, 0, 0, 0, 0},     {1, 64, 56, 56, 0, 0, 0, 0, 0, 0},
    {2, 20, 7, 5, 0, 0, 0, 0, F_CONST, 0},
};

OP_TEST(bn_frozen_bwd, build_bn_frozen_bwd, true)

static const struct op_test op_test_bn = {
    .whole = ref_bn, .bound = 1e-5, .gpu_bound = 3e-6, .n_own = 1, .tests = {TEST_OF(bn)}};
static const struct op_test op_test_bn_frozen_bwd = {
    .whole = ref_bn_frozen_bwd, .bound = 1e-6, .n_own = 1, .tests = {TEST_OF(bn_frozen_bwd)}};
static const struct op_test op_test_bn_bwd = {
    .whole = ref_bn_bwd, .bound = 2e-5, .gpu_bound = 5e-6, .n_roundings = 2, .n_own = 1};

/* --- Group norm: of k groups --- */

static void build_group_norm(struct dt_graph *g, const struct op_case *c)
{
    const struct dt_node like = {.attr.group_norm = {c->k, 1e-5f}};
    const int groups[4] = {c->n, c->k, 1, 1};
    int fwd[3] = {add_src(g, c), add1(g, "scale", DT_PARAM, c->c),
                  add1(g, "shift", DT_PARAM, c->c)};
    int dst[3] = {add_like(g, "dst", DT_ACT, DT_F32, fwd[0]), -1, -1};
    if (!(c->flags & F_EVAL)) {
        dst[DT_GN_MEAN] = dt_graph_tensor(g, "mean", DT_SAVED, DT_F32, 2, groups);
        dst[DT_GN_INVERSE_STD] = dt_graph_tensor(g, "inverse_std", DT_SAVED, DT_F32, 2, groups);
    }
    add_node(g, &like, DT_OP_GROUP_NORM, 3, fwd, 3, dst);
    if (c->flags & F_EVAL)
        return;
    const int bwd[] = {[DT_GN_BWD_SRC] = fwd[DT_GN_SRC],
                       [DT_GN_BWD_DIFF_DST] = add_like(g, "diff_dst", DT_DIFF, DT_F32, fwd[0]),
                       [DT_GN_BWD_SCALE] = fwd[DT_GN_SCALE],
                       [DT_GN_BWD_MEAN] = dst[DT_GN_MEAN],
                       [DT_GN_BWD_INVERSE_STD] = dst[DT_GN_INVERSE_STD]};
    int diffs[3] = {add_like(g, "diff_src", DT_DIFF, DT_F32, fwd[0]),
                    add_diff_param(g, "diff_scale", fwd[DT_GN_SCALE]),
                    add_diff_param(g, "diff_shift", fwd[DT_GN_SHIFT])};
    add_node(g, &like, DT_OP_GROUP_NORM_BWD, 5, bwd, 3, diffs);
}

/* The elements of a group are adjacent, and those of a channel in it. */
struct ref_group {
    size_t first, count, plane;
    int channel; /* the first */
};

static struct ref_group ref_group_at(const struct ref *r, const struct dt_node *node, int i)
{
    const int *dim = ref_dim(r, node->src[0]), groups = node->attr.group_norm.groups;
    const int channels = dim[1] / groups, image = i / groups, channel = i % groups * channels;
    size_t plane = (size_t)dim[2] * (size_t)dim[3];
    return (struct ref_group){ref_index(dim, image, channel, 0, 0), (size_t)channels * plane, plane,
                              channel};
}

static void ref_group_norm(struct ref *r, const struct dt_node *node)
{
    const double *src = ref_src(r, node, DT_GN_SRC), *scale = ref_src(r, node, DT_GN_SCALE);
    const double *shift = ref_src(r, node, DT_GN_SHIFT);
    for (int i = 0; i < ref_dim(r, node->src[0])[0] * node->attr.group_norm.groups; i++) {
        struct ref_group at = ref_group_at(r, node, i);
        double mean = 0, variance = (double)node->attr.group_norm.eps;
        for (size_t j = 0; j < at.count; j++)
            mean += src[at.first + j] / (double)at.count;
        for (size_t j = 0; j < at.count; j++)
            variance += pow(src[at.first + j] - mean, 2) / (double)at.count;
        for (size_t j = 0; j < at.count; j++) {
            size_t c = (size_t)at.channel + j / at.plane;
            r->value[node->dst[0]][at.first + j] =
                (src[at.first + j] - mean) / sqrt(variance) * scale[c] + shift[c];
        }
        if (!ref_dst(r, node, DT_GN_MEAN))
            continue;
        ref_dst(r, node, DT_GN_MEAN)[i] = mean;
        ref_dst(r, node, DT_GN_INVERSE_STD)[i] = 1 / sqrt(variance);
    }
}

/* By the chain rule over normal = (src - mean) * inverse_std. */
static void ref_group_norm_bwd(struct ref *r, const struct dt_node *node)
{
    const double *src = ref_src(r, node, DT_GN_BWD_SRC);
    const double *diff = ref_src(r, node, DT_GN_BWD_DIFF_DST);
    const double *scale = ref_src(r, node, DT_GN_BWD_SCALE);
    double *diff_scale = ref_dst(r, node, DT_GN_BWD_DIFF_SCALE);
    double *diff_shift = ref_dst(r, node, DT_GN_BWD_DIFF_SHIFT);
    for (int which = 1; which < node->n_dst; which++)
        memset(r->value[node->dst[which]], 0, (size_t)ref_dim(r, node->src[0])[1] * sizeof(double));
    for (int i = 0; i < ref_dim(r, node->src[0])[0] * node->attr.group_norm.groups; i++) {
        struct ref_group at = ref_group_at(r, node, i);
        double mean = ref_src(r, node, DT_GN_BWD_MEAN)[i];
        double inverse = ref_src(r, node, DT_GN_BWD_INVERSE_STD)[i];
        double sum = 0, product = 0;
        for (size_t j = at.first; j < at.first + at.count; j++) {
            size_t c = (size_t)at.channel + (j - at.first) / at.plane;
            double normal = (src[j] - mean) * inverse;
            sum += diff[j] * scale[c] / (double)at.count;
            product += diff[j] * scale[c] * normal / (double)at.count;
            if (!diff_scale)
                continue;
            diff_scale[c] += diff[j] * normal;
            diff_shift[c] += diff[j];
        }
        for (size_t j = at.first; j < at.first + at.count; j++) {
            size_t c = (size_t)at.channel + (j - at.first) / at.plane;
            double normal = (src[j] - mean) * inverse;
            r->value[node->dst[0]][j] = inverse * (diff[j] * scale[c] - sum - normal * product);
        }
    }
}

static const struct op_case group_norm_cases[] = {
    {1, 1, 5, 5, 1, 0, 0, 0, 0, 0},       {2, 6, 4, 7, 3, 0, 0, 0, 0, 0},
    {1, 16, 6, 6, 2, 0, 0, 0, 0, 0},      {3, 20, 7, 5, 10, 0, 0, 0, 0, 0},
    {2, 96, 3, 5, 32, 0, 0, 0, 0, 0},     {1, 48, 5, 4, 1, 0, 0, 0, 0, 0},
    {2, 64, 14, 9, 2, 0, 0, 0, 0, 0},     {1, 256, 10, 12, 32, 0, 0, 0, 0, 0},
    {2, 256, 1, 2, 32, 0, 0, 0, 0, 0},    {1, 33, 7, 9, 11, 0, 0, 0, 0, 0},
    {4, 17, 3, 3, 17, 0, 0, 0, 0, 0},     {1, 20, 1, 1, 4, 0, 0, 0, 0, 0},
    {1, 64, 57, 40, 8, 0, 0, 0, 0, 0},    {2, 20, 7, 5, 5, 0, 0, 0, F_EVAL, 0},
    {1, 33, 1, 3, 3, 0, 0, 0, F_EVAL, 0}, {1, 64, 14, 9, 32, 0, 0, 0, F_EVAL, 0},
};

OP_TEST(group_norm, build_group_norm, true)

static const struct op_test op_test_group_norm = {
    .whole = ref_group_norm, .bound = 1e-5, .n_roundings = 1, .tests = {TEST_OF(group_norm)}};
static const struct op_test op_test_group_norm_bwd = {
    .whole = ref_group_norm_bwd, .bound = 2e-5, .n_roundings = 4};

/* --- Layer norm --- */

static void build_layer_norm(struct dt_graph *g, const struct op_case *c)
{
    const struct dt_node like = {.attr.group_norm = {0, 1e-6f}};
    const int pixels = c->n * c->h * c->w;
    int fwd[3] = {add_src(g, c), add1(g, "scale", DT_PARAM, c->c),
                  add1(g, "shift", DT_PARAM, c->c)};
    int dst[3] = {add_like(g, "dst", DT_ACT, DT_F32, fwd[0]), -1, -1};
    if (!(c->flags & F_EVAL)) {
        dst[DT_GN_MEAN] = add1(g, "mean", DT_SAVED, pixels);
        dst[DT_GN_INVERSE_STD] = add1(g, "inverse_std", DT_SAVED, pixels);
    }
    add_node(g, &like, DT_OP_LAYER_NORM, 3, fwd, 3, dst);
    if (c->flags & F_EVAL)
        return;
    const int bwd[] = {[DT_GN_BWD_SRC] = fwd[DT_GN_SRC],
                       [DT_GN_BWD_DIFF_DST] = add_like(g, "diff_dst", DT_DIFF, DT_F32, fwd[0]),
                       [DT_GN_BWD_SCALE] = fwd[DT_GN_SCALE],
                       [DT_GN_BWD_MEAN] = dst[DT_GN_MEAN],
                       [DT_GN_BWD_INVERSE_STD] = dst[DT_GN_INVERSE_STD]};
    int diffs[3] = {add_like(g, "diff_src", DT_DIFF, DT_F32, fwd[0]), -1, -1};
    if (!(c->flags & F_CONST)) {
        diffs[DT_GN_BWD_DIFF_SCALE] = add_diff_param(g, "diff_scale", fwd[DT_GN_SCALE]);
        diffs[DT_GN_BWD_DIFF_SHIFT] = add_diff_param(g, "diff_shift", fwd[DT_GN_SHIFT]);
    }
    add_node(g, &like, DT_OP_LAYER_NORM_BWD, 5, bwd, 3, diffs);
}

/* The element of channel c of pixel i. */
static size_t ref_pixel(const int *dim, int i, int c)
{
    const int plane = dim[2] * dim[3];
    return ref_index(dim, i / plane, c, 0, 0) + (size_t)(i % plane);
}

static void ref_layer_norm(struct ref *r, const struct dt_node *node)
{
    const double *src = ref_src(r, node, DT_GN_SRC), *scale = ref_src(r, node, DT_GN_SCALE);
    const double *shift = ref_src(r, node, DT_GN_SHIFT);
    const int *dim = ref_dim(r, node->src[0]);
    for (int i = 0; i < dim[0] * dim[2] * dim[3]; i++) {
        double mean = 0, variance = (double)node->attr.group_norm.eps;
        for (int c = 0; c < dim[1]; c++)
            mean += src[ref_pixel(dim, i, c)] / dim[1];
        for (int c = 0; c < dim[1]; c++)
            variance += pow(src[ref_pixel(dim, i, c)] - mean, 2) / dim[1];
        for (int c = 0; c < dim[1]; c++)
            r->value[node->dst[0]][ref_pixel(dim, i, c)] =
                (src[ref_pixel(dim, i, c)] - mean) / sqrt(variance) * scale[c] + shift[c];
        if (!ref_dst(r, node, DT_GN_MEAN))
            continue;
        ref_dst(r, node, DT_GN_MEAN)[i] = mean;
        ref_dst(r, node, DT_GN_INVERSE_STD)[i] = 1 / sqrt(variance);
    }
}

/* By the chain rule over normal = (src - mean) * inverse_std. */
static void ref_layer_norm_bwd(struct ref *r, const struct dt_node *node)
{
    const double *src = ref_src(r, node, DT_GN_BWD_SRC);
    const double *diff = ref_src(r, node, DT_GN_BWD_DIFF_DST);
    const double *scale = ref_src(r, node, DT_GN_BWD_SCALE);
    const int *dim = ref_dim(r, node->src[0]);
    for (int which = 1; which < node->n_dst; which++)
        memset(r->value[node->dst[which]], 0, (size_t)dim[1] * sizeof(double));
    for (int i = 0; i < dim[0] * dim[2] * dim[3]; i++) {
        const double mean = ref_src(r, node, DT_GN_BWD_MEAN)[i];
        const double inverse = ref_src(r, node, DT_GN_BWD_INVERSE_STD)[i];
        double sum = 0, product = 0;
        for (int c = 0; c < dim[1]; c++) {
            const size_t at = ref_pixel(dim, i, c);
            const double normal = (src[at] - mean) * inverse;
            sum += diff[at] * scale[c] / dim[1];
            product += diff[at] * scale[c] * normal / dim[1];
            if (node->n_dst == 1)
                continue;
            ref_dst(r, node, DT_GN_BWD_DIFF_SCALE)[c] += diff[at] * normal;
            ref_dst(r, node, DT_GN_BWD_DIFF_SHIFT)[c] += diff[at];
        }
        for (int c = 0; c < dim[1]; c++) {
            const size_t at = ref_pixel(dim, i, c);
            const double normal = (src[at] - mean) * inverse;
            r->value[node->dst[0]][at] = inverse * (diff[at] * scale[c] - sum - normal * product);
        }
    }
}

static const struct op_case layer_norm_cases[] = {
    {2, 3, 5, 7, 0, 0, 0, 0, 0, 0},        {3, 17, 9, 5, 0, 0, 0, 0, 0, 0},
    {2, 20, 1, 1, 0, 0, 0, 0, 0, 0},       {4, 33, 3, 3, 0, 0, 0, 0, 0, 0},
    {2, 96, 14, 14, 0, 0, 0, 0, 0, 0},     {1, 16, 57, 41, 0, 0, 0, 0, 0, 0},
    {1, 2048, 2, 3, 0, 0, 0, 0, 0, 0},     {2, 520, 3, 4, 0, 0, 0, 0, 0, 0},
    {1, 24, 150, 150, 0, 0, 0, 0, 0, 0},   {300, 20, 2, 2, 0, 0, 0, 0, 0, 0},
    {2, 20, 7, 5, 0, 0, 0, 0, F_CONST, 0}, {2, 20, 7, 5, 0, 0, 0, 0, F_EVAL, 0},
    {1, 33, 1, 3, 0, 0, 0, 0, F_EVAL, 0},  {1, 64, 14, 9, 0, 0, 0, 0, F_EVAL, 0},
};

OP_TEST(layer_norm, build_layer_norm, true)

static const struct op_test op_test_layer_norm = {
    .whole = ref_layer_norm, .bound = 1e-5, .n_own = 1, .tests = {TEST_OF(layer_norm)}};
static const struct op_test op_test_layer_norm_bwd = {
    .whole = ref_layer_norm_bwd, .bound = 2e-5, .n_own = 1};

#endif
