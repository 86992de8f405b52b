/* The gradient rules of the op table: each takes the gradient of the node's dst out of the book,
 * appends the backward nodes and gives every source that wants one its gradient. */
#include "graph/ops.h"

/* Appends a backward node of `node`: same name and attributes. */
static void append(struct dt_autodiff *ad, enum dt_op op, const struct dt_node *node, int n_src,
                   const int *src, int n_dst, const int *dst)
{
    struct dt_node *backward =
        dt_graph_node(dt_autodiff_graph(ad), op, node->name, n_src, src, n_dst, dst);
    if (backward)
        backward->attr = node->attr;
}

/* The gradient in front of the ReLU of `node`; the sum of two terms is folded in. The new tensor is
 * shaped and named as `value`. */
static int through_relu(struct dt_autodiff *ad, const struct dt_node *node, int value)
{
    int term[2];
    int n_terms = dt_autodiff_take_terms(ad, node->dst[0], term);
    int src[3] = {term[0], node->dst[0], term[1]};
    int diff_src = dt_autodiff_new(ad, value);
    append(ad, DT_OP_RELU_BWD, node, 1 + n_terms, src, 1, &diff_src);
    return diff_src;
}

static int take(struct dt_autodiff *ad, const struct dt_node *node)
{
    return node->relu ? through_relu(ad, node, node->dst[0]) : dt_autodiff_take(ad, node->dst[0]);
}

/* One backward node from diff_dst (and `second`, if >= 0) to the gradient of src[0]. */
static void one_to_one(struct dt_autodiff *ad, enum dt_op op, const struct dt_node *node,
                       int diff_dst, int second)
{
    int src[2] = {diff_dst, second};
    int diff_src = dt_autodiff_new(ad, node->src[0]);
    append(ad, op, node, second >= 0 ? 2 : 1, src, 1, &diff_src);
    dt_autodiff_give(ad, node->src[0], diff_src);
}

/* Weights first: their gradient is on its way to the other ranks while the data gradient computes.
 */
static void weights_then_data(struct dt_autodiff *ad, const struct dt_node *node, int diff_dst,
                              enum dt_op bwd_weights, enum dt_op bwd_data)
{
    int src[2] = {node->src[0], diff_dst};
    int dst[2];
    int n_dst = 0;
    for (int i = 1; i < node->n_src; i++)
        dst[n_dst++] = dt_autodiff_new_param(ad, node->src[i]);
    append(ad, bwd_weights, node, 2, src, n_dst, dst);
    if (dt_autodiff_needs(ad, node->src[0]))
        one_to_one(ad, bwd_data, node, diff_dst, node->src[1]);
}

void dt_gradient_conv(struct dt_autodiff *ad, const struct dt_node *node)
{
    weights_then_data(ad, node, take(ad, node), DT_OP_CONV_BWD_WEIGHTS, DT_OP_CONV_BWD_DATA);
}

void dt_gradient_linear(struct dt_autodiff *ad, const struct dt_node *node)
{
    weights_then_data(ad, node, take(ad, node), DT_OP_LINEAR_BWD_WEIGHTS, DT_OP_LINEAR_BWD_DATA);
}

/* A fused ReLU is undone inside bn_bwd, with the help of the workspace; the sum of two terms is
 * folded in. */
void dt_gradient_bn(struct dt_autodiff *ad, const struct dt_node *node)
{
    struct dt_graph *g = dt_autodiff_graph(ad);
    int term[2];
    int n_terms = dt_autodiff_take_terms(ad, node->dst[0], term);
    int src[DT_MAX_SRC] = {node->src[0], term[0], node->src[1], node->src[2]};
    int n_src = 4;
    for (int i = 1; i < node->n_dst; i++)
        src[n_src++] = node->dst[i]; /* mean, variance and, with ReLU, workspace */
    if (n_terms == 2)
        src[n_src++] = term[1];
    int dst[DT_MAX_DST] = {dt_autodiff_new(ad, node->src[0]),
                           dt_autodiff_new_param(ad, node->src[1]),
                           dt_autodiff_new_param(ad, node->src[2])};
    int n_dst = 3;
    int residual = node->residual ? node->src[node->n_src - 1] : -1;
    if (residual >= 0 && dt_autodiff_needs(ad, residual))
        dst[n_dst++] = dt_autodiff_new(ad, residual);
    struct dt_node *backward = dt_graph_node(g, DT_OP_BN_BWD, node->name, n_src, src, n_dst, dst);
    if (!backward)
        return;
    backward->attr = node->attr;
    backward->relu = node->relu;
    backward->residual = n_dst == 4;
    dt_autodiff_give(ad, node->src[0], dst[0]);
    if (n_dst == 4)
        dt_autodiff_give(ad, residual, dst[3]);
}

void dt_gradient_relu(struct dt_autodiff *ad, const struct dt_node *node)
{
    dt_autodiff_give(ad, node->src[0], through_relu(ad, node, node->src[0]));
}

/* The gradient of a sum is the gradient of both summands: one tensor, no copy. */
void dt_gradient_add(struct dt_autodiff *ad, const struct dt_node *node)
{
    int diff = take(ad, node);
    for (int i = 0; i < 2; i++)
        dt_autodiff_give(ad, node->src[i], diff);
}

void dt_gradient_max_pool(struct dt_autodiff *ad, const struct dt_node *node)
{
    one_to_one(ad, DT_OP_MAX_POOL_BWD, node, dt_autodiff_take(ad, node->dst[0]), node->dst[1]);
}

void dt_gradient_avg_pool(struct dt_autodiff *ad, const struct dt_node *node)
{
    one_to_one(ad, DT_OP_AVG_POOL_BWD, node, dt_autodiff_take(ad, node->dst[0]), -1);
}

void dt_gradient_dropout(struct dt_autodiff *ad, const struct dt_node *node)
{
    one_to_one(ad, DT_OP_DROPOUT_BWD, node, dt_autodiff_take(ad, node->dst[0]), -1);
}

/* The forward node has computed the gradient of the logits already. */
void dt_gradient_softmax_xent(struct dt_autodiff *ad, const struct dt_node *node)
{
    dt_autodiff_give(ad, node->src[0], node->dst[0]);
}
