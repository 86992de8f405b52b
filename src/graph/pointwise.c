/* Elementwise ops: ingest, activations, additions, dropout. */
#include "base/mem.h"
#include "base/rng.h"
#include "graph/graph_internal.h"

static dt_status check_ingest(const struct dt_graph *g, const double std[3])
{
    if (dt_graph_program(g)->pixels < 0)
        DT_FAIL(DT_ERR_INTERNAL, "ingest needs pixels: call dt_graph_begin first");
    for (int i = 0; i < 3; i++) {
        if (!(std[i] > 0))
            DT_FAIL(DT_ERR_CONFIG, "data.std: %g is not a positive standard deviation", std[i]);
    }
    return DT_OK;
}

int dt_graph_ingest(struct dt_graph *g, const double mean[3], const double std[3])
{
    if (g->status == DT_OK)
        dt_graph_remember(g, check_ingest(g, std));
    if (g->status != DT_OK)
        return -1;
    struct dt_node draft = {.op = DT_OP_INGEST, .name = "ingest", .n_src = 2};
    draft.src[DT_INGEST_PIXELS] = dt_graph_program(g)->pixels;
    draft.src[DT_INGEST_SIZES] = dt_graph_program(g)->sizes;
    for (int i = 0; i < 3; i++) {
        draft.attr.ingest.mean[i] = (float)mean[i];
        draft.attr.ingest.std[i] = (float)std[i];
    }
    return dt_draft_commit(g, &draft);
}

static void gradient_activation(struct dt_autodiff *ad, const struct dt_node *node)
{
    dt_autodiff_give(ad, node->src[0], dt_autodiff_through_activation(ad, node, node->src[0]));
}

static double flops_activation(const struct dt_graph *g, const struct dt_node *node)
{
    const int per_element = node->op == DT_OP_ACTIVATION ? 8 : 12;
    return (node->activation == DT_RELU ? 1 : per_element) *
           (double)dt_tensor_elements(&g->tensor[node->src[0]]);
}

/* The gradient of a sum is the gradient of both summands: one tensor, no copy. */
static void gradient_add(struct dt_autodiff *ad, const struct dt_node *node)
{
    int diff = dt_autodiff_take(ad, node);
    for (int i = 0; i < 2; i++)
        dt_autodiff_give(ad, node->src[i], diff);
}

int dt_graph_dropout(struct dt_graph *g, int src, const char *name, double p)
{
    const struct dt_node node = {.op = DT_OP_DROPOUT,
                                 .attr.dropout = {(float)p, dt_rng_hash(name)}};
    const bool is_identity = p == 0 || dt_graph_program(g)->phase == DT_EVAL;
    return is_identity ? src : dt_graph_op(g, node, name, 1, &src);
}

static void gradient_dropout(struct dt_autodiff *ad, const struct dt_node *node)
{
    dt_autodiff_one_to_one(ad, DT_OP_DROPOUT_BWD, node, -1);
}

const struct dt_op_rule dt_rule_ingest = {.per_element = 2};
const struct dt_op_rule dt_rule_activation = {.flops = flops_activation,
                                              .gradient = gradient_activation};
const struct dt_op_rule dt_rule_activation_bwd = {.flops = flops_activation};
const struct dt_op_rule dt_rule_add = {.per_element = 1, .gradient = gradient_add};
const struct dt_op_rule dt_rule_dropout = {
    .infer = dt_infer_drop, .per_element = 1, .gradient = gradient_dropout};
const struct dt_op_rule dt_rule_dropout_bwd = {.per_element = 1};
const struct dt_op_rule dt_rule_sum_grads = {.per_element = 2};
