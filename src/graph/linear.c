/* Linear layer. */
#include "graph/graph_internal.h"

static dt_status infer_linear(const struct dt_graph *g, const struct dt_node *node, int dim[4])
{
    const struct dt_tensor *weights = &g->tensor[node->src[DT_LINEAR_WEIGHTS]];
    size_t features = (size_t)dim[1] * (size_t)dim[2] * (size_t)dim[3];
    if ((size_t)weights->dim[1] != features)
        DT_FAIL(DT_ERR_INTERNAL, "%s: the input has %zu features, the weights expect %d",
                node->name, features, weights->dim[1]);
    dim[1] = weights->dim[0];
    dim[2] = dim[3] = 1;
    return DT_OK;
}

int dt_graph_linear(struct dt_graph *g, int src, const char *name, int out_features,
                    struct dt_init weight_init, struct dt_init bias_init)
{
    struct dt_node draft = {.op = DT_OP_LINEAR};
    if (!dt_draft_begin(g, &draft, name, 1, &src))
        return -1;
    const struct dt_tensor *t = &g->tensor[src];
    const int weights[4] = {out_features, t->dim[1] * t->dim[2] * t->dim[3], 1, 1};
    const int bias[4] = {out_features, 1, 1, 1};
    dt_draft_param(g, &draft, NULL, "weight", DT_PARAM, 2, weights, weight_init);
    dt_draft_param(g, &draft, NULL, "bias", DT_PARAM, 1, bias, bias_init);
    return dt_draft_commit(g, &draft);
}

static void gradient_linear(struct dt_autodiff *ad, const struct dt_node *node)
{
    dt_autodiff_weights_then_data(ad, node, DT_OP_LINEAR_BWD_WEIGHTS, DT_OP_LINEAR_BWD_DATA);
}

const struct dt_op_rule dt_rule_linear = {
    .infer = infer_linear, .flops = dt_flops_forward, .gradient = gradient_linear};
const struct dt_op_rule dt_rule_linear_bwd_data = {.flops = dt_flops_bwd_data};
const struct dt_op_rule dt_rule_linear_bwd_weights = {.flops = dt_flops_bwd_weights};
