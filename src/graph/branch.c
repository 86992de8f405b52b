/* Ops that scale a branch of a block: the gate of squeeze and excitation; layer scale and
 * stochastic depth before the residual is added. */
#include "base/mem.h"
#include "base/rng.h"
#include "graph/graph_internal.h"

static void gradient_gate(struct dt_autodiff *ad, const struct dt_node *node)
{
    const int *value = node->src;
    const int src[] = {[DT_BRANCH_BWD_DIFF_DST] = dt_autodiff_take(ad, node),
                       [DT_BRANCH_BWD_FACTOR] = value[DT_GATE_FACTOR],
                       [DT_BRANCH_BWD_SRC] = value[DT_GATE_SRC]};
    const int dst[] = {[DT_BRANCH_BWD_DIFF_SRC] = dt_autodiff_new(ad, value[DT_GATE_SRC]),
                       [DT_BRANCH_BWD_DIFF_FACTOR] = dt_autodiff_new(ad, value[DT_GATE_FACTOR])};
    dt_autodiff_append(ad, DT_OP_GATE_BWD, node, DT_COUNT(src), src, DT_COUNT(dst), dst);
    dt_autodiff_give(ad, value[DT_GATE_SRC], dst[DT_BRANCH_BWD_DIFF_SRC]);
    dt_autodiff_give(ad, value[DT_GATE_FACTOR], dst[DT_BRANCH_BWD_DIFF_FACTOR]);
}

int dt_graph_scaled_add(struct dt_graph *g, int src, int residual, const char *name, double p,
                        const char *module, double scale_init)
{
    if (dt_graph_program(g)->phase == DT_EVAL)
        p = 0;
    if (p == 0 && !module)
        return dt_graph_add(g, src, residual, name);
    struct dt_node draft = {.op = DT_OP_SCALED_ADD, .attr.dropout = {(float)p, dt_rng_hash(name)}};
    if (!dt_draft_begin(g, &draft, name, 2, (const int[]){src, residual}))
        return -1;
    const int shape[4] = {g->tensor[src].dim[1], 1, 1, 1};
    if (module)
        dt_draft_param(g, &draft, module, "layer_scale", DT_PARAM, 3, shape,
                       (struct dt_init){DT_INIT_CONSTANT, scale_init});
    return dt_draft_commit(g, &draft);
}

static void gradient_scaled_add(struct dt_autodiff *ad, const struct dt_node *node)
{
    const int diff = dt_autodiff_take(ad, node), value = node->src[DT_SCALED_ADD_SRC];
    const int scale = node->src[DT_SCALED_ADD_SCALE];
    const bool trained = scale >= 0 && dt_autodiff_needs(ad, scale);
    dt_autodiff_give(ad, node->src[DT_SCALED_ADD_RESIDUAL], diff);
    if (!trained && !dt_autodiff_needs(ad, value))
        return;
    const int src[] = {[DT_BRANCH_BWD_DIFF_DST] = diff,
                       [DT_BRANCH_BWD_FACTOR] = scale,
                       [DT_BRANCH_BWD_SRC] = trained ? value : -1};
    const int dst[] = {[DT_BRANCH_BWD_DIFF_SRC] = dt_autodiff_new(ad, value),
                       [DT_BRANCH_BWD_DIFF_FACTOR] =
                           trained ? dt_autodiff_new_param(ad, scale) : -1};
    dt_autodiff_append(ad, DT_OP_SCALED_ADD_BWD, node, DT_COUNT(src), src, DT_COUNT(dst), dst);
    dt_autodiff_give(ad, value, dst[DT_BRANCH_BWD_DIFF_SRC]);
}

const struct dt_op_rule dt_rule_gate = {.per_element = 1, .gradient = gradient_gate};
const struct dt_op_rule dt_rule_gate_bwd = {.per_element = 3};
const struct dt_op_rule dt_rule_scaled_add = {
    .infer = dt_infer_drop, .per_element = 2, .gradient = gradient_scaled_add};
const struct dt_op_rule dt_rule_scaled_add_bwd = {.per_element = 3};
