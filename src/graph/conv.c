/* Convolution. */
#include "graph/graph_internal.h"

static dt_status infer_conv(const struct dt_graph *g, const struct dt_node *node, int dim[4])
{
    const struct dt_tensor *weights = &g->tensor[node->src[DT_CONV_WEIGHTS]];
    if (weights->dim[1] != dim[1])
        DT_FAIL(DT_ERR_INTERNAL, "%s: the input has %d channels, the weights expect %d", node->name,
                dim[1], weights->dim[1]);
    DT_TRY(
        dt_infer_window(node, dim, weights->dim[2], node->attr.conv.stride, node->attr.conv.pad));
    dim[1] = weights->dim[0];
    return DT_OK;
}

int dt_graph_conv(struct dt_graph *g, int src, const char *name, struct dt_conv_options options)
{
    struct dt_node draft;
    if (!dt_draft_begin(g, &draft, DT_OP_CONV, name, src))
        return -1;
    draft.attr.conv.stride = options.stride;
    draft.attr.conv.pad = options.pad;
    const int weights[4] = {options.out_channels, g->tensor[src].dim[1], options.kernel,
                            options.kernel};
    const int bias[4] = {options.out_channels, 1, 1, 1};
    dt_draft_param(g, &draft, options.module, "weight", DT_PARAM, 4, weights, options.init);
    if (options.bias)
        dt_draft_param(g, &draft, options.module, "bias", DT_PARAM, 1, bias, options.bias_init);
    return dt_draft_infer_and_commit(g, &draft);
}

static void gradient_conv(struct dt_autodiff *ad, const struct dt_node *node)
{
    dt_autodiff_weights_then_data(ad, node, DT_OP_CONV_BWD_WEIGHTS, DT_OP_CONV_BWD_DATA);
}

const struct dt_op_rule dt_rule_conv = {
    .infer = infer_conv, .flops = dt_flops_forward, .gradient = gradient_conv};
const struct dt_op_rule dt_rule_conv_bwd_data = {.flops = dt_flops_bwd_data};
const struct dt_op_rule dt_rule_conv_bwd_weights = {.flops = dt_flops_bwd_weights};
