/* Convolution. */
#include "graph/graph_internal.h"

static dt_status infer_conv(const struct dt_graph *g, const struct dt_node *node, int dim[4])
{
    const struct dt_tensor *weights = &g->tensor[node->src[DT_CONV_WEIGHTS]];
    if (dim[1] % weights->dim[1] != 0 || weights->dim[0] % (dim[1] / weights->dim[1]) != 0)
        DT_FAIL(DT_ERR_INTERNAL, "%s: weights of %d x %d channels do not fit an input of %d",
                node->name, weights->dim[0], weights->dim[1], dim[1]);
    const int window = node->attr.conv.dilation * (weights->dim[2] - 1) + 1;
    DT_TRY(dt_infer_window(node, dim, window, node->attr.conv.stride, node->attr.conv.pad));
    dim[1] = weights->dim[0];
    return DT_OK;
}

int dt_graph_conv(struct dt_graph *g, int src, const char *name, struct dt_conv_options options)
{
    struct dt_node draft = {
        .op = DT_OP_CONV,
        .attr.conv = {options.stride, options.pad, options.dilation > 0 ? options.dilation : 1}};
    const int groups = options.groups > 0 ? options.groups : 1;
    if (!dt_draft_begin(g, &draft, name, 1, &src))
        return -1;
    const int channels = g->tensor[src].dim[1];
    if (channels % groups != 0 || options.out_channels % groups != 0) {
        dt_graph_remember(g, DT_ERROR(DT_ERR_CONFIG, "%s: %d to %d channels do not make %d groups",
                                      name, channels, options.out_channels, groups));
        return -1;
    }
    const int weights[4] = {options.out_channels, channels / groups, options.kernel,
                            options.kernel};
    const int bias[4] = {options.out_channels, 1, 1, 1};
    dt_draft_param(g, &draft, options.module, "weight", DT_PARAM, options.linear ? 2 : 4, weights,
                   options.init);
    if (options.bias)
        dt_draft_param(g, &draft, options.module, "bias", DT_PARAM, 1, bias, options.bias_init);
    return dt_draft_commit(g, &draft);
}

static void gradient_conv(struct dt_autodiff *ad, const struct dt_node *node)
{
    dt_autodiff_weights_then_data(ad, node, DT_OP_CONV_BWD_WEIGHTS, DT_OP_CONV_BWD_DATA);
}

int dt_conv_groups(const struct dt_graph *g, const struct dt_node *node)
{
    const bool by_weights = node->op == DT_OP_CONV_BWD_WEIGHTS;
    const int src = node->op == DT_OP_CONV_BWD_DATA ? node->dst[0] : node->src[0];
    const int weights = by_weights ? node->dst[DT_BWD_DIFF_WEIGHTS] : node->src[DT_CONV_WEIGHTS];
    return g->tensor[src].dim[1] / g->tensor[weights].dim[1];
}

const struct dt_op_rule dt_rule_conv = {
    .infer = infer_conv, .flops = dt_flops_forward, .gradient = gradient_conv};
const struct dt_op_rule dt_rule_conv_bwd_data = {.flops = dt_flops_bwd_data};
const struct dt_op_rule dt_rule_conv_bwd_weights = {.flops = dt_flops_bwd_weights};
