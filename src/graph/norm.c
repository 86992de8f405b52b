/* Batch norm, group norm and layer norm. */
#include "base/mem.h"
#include "graph/graph_internal.h"

/* Weight and bias have the role; the statistics follow them, as in PyTorch. */
static void draft_vectors(struct dt_graph *g, struct dt_node *draft, enum dt_role role,
                          double scale_init)
{
    const int channels[4] = {g->tensor[draft->src[0]].dim[1], 1, 1, 1};
    const struct dt_init scale = {DT_INIT_CONSTANT, scale_init};
    const struct dt_init zeros = {DT_INIT_CONSTANT, 0}, ones = {DT_INIT_CONSTANT, 1};
    dt_draft_param(g, draft, NULL, "weight", role, 1, channels, scale);
    dt_draft_param(g, draft, NULL, "bias", role, 1, channels, zeros);
    dt_draft_param(g, draft, NULL, "running_mean", DT_STAT, 1, channels, zeros);
    dt_draft_param(g, draft, NULL, "running_var", DT_STAT, 1, channels, ones);
}

int dt_graph_bn(struct dt_graph *g, int src, const char *name, double scale_init)
{
    return dt_graph_bn_with(g, src, name, scale_init, 1e-5, 0.1);
}

int dt_graph_bn_with(struct dt_graph *g, int src, const char *name, double scale_init, double eps,
                     double momentum)
{
    struct dt_node draft;
    if (!dt_draft_begin(g, &draft, DT_OP_BN, name, src))
        return -1;
    draft.attr.bn.eps = (float)eps;
    draft.attr.bn.momentum = (float)momentum;
    draft.attr.bn.n_ranks = dt_graph_program(g)->phase == DT_TRAIN ? g->bn_ranks : 0;
    const int channels[4] = {g->tensor[src].dim[1], 1, 1, 1};
    draft_vectors(g, &draft, DT_PARAM, scale_init);
    dt_draft_infer(g, &draft, NULL);
    if (dt_graph_program(g)->phase == DT_TRAIN) {
        dt_draft_dst(g, &draft, ".mean", DT_SAVED, DT_F32, 1, channels);
        dt_draft_dst(g, &draft, ".variance", DT_SAVED, DT_F32, 1, channels);
    }
    return dt_draft_commit(g, &draft);
}

int dt_graph_frozen_bn(struct dt_graph *g, int src, const char *name, double eps)
{
    struct dt_node draft;
    if (!dt_draft_begin(g, &draft, DT_OP_BN, name, src))
        return -1;
    draft.attr.bn.eps = (float)eps;
    draft_vectors(g, &draft, DT_STAT, 1);
    return dt_draft_infer_and_commit(g, &draft);
}

/* With fixed statistics it is a multiplication; a fused ReLU and addition come after it. */
static void gradient_frozen_bn(struct dt_autodiff *ad, const struct dt_node *node)
{
    int diff = dt_autodiff_take(ad, node);
    if (node->residual)
        dt_autodiff_give(ad, node->src[DT_BN_RESIDUAL], diff);
    if (!dt_autodiff_needs(ad, node->src[0]))
        return;
    const int src[] = {[DT_BN_FROZEN_BWD_DIFF_DST] = diff,
                       [DT_BN_FROZEN_BWD_SCALE] = node->src[DT_BN_SCALE],
                       [DT_BN_FROZEN_BWD_RUNNING_VAR] = node->src[DT_BN_RUNNING_VAR]};
    int diff_src = dt_autodiff_new(ad, node->src[0]);
    dt_autodiff_append(ad, DT_OP_BN_FROZEN_BWD, node, DT_COUNT(src), src, 1, &diff_src);
    dt_autodiff_give(ad, node->src[0], diff_src);
}

/* bn_bwd also differentiates a fused ReLU, using the mask, sums two gradient terms itself, and adds
 * its own to another one of src.
 */
static void gradient_bn(struct dt_autodiff *ad, const struct dt_node *node)
{
    int term[2];
    if (!dt_node_has_statistics(node)) {
        gradient_frozen_bn(ad, node);
        return;
    }
    dt_autodiff_take_terms(ad, node->dst[0], term);
    const int residual = node->src[DT_BN_RESIDUAL];
    const bool needs_residual = residual >= 0 && dt_autodiff_needs(ad, residual);
    const int src[] = {[DT_BN_BWD_SRC] = node->src[DT_BN_SRC],
                       [DT_BN_BWD_DIFF_DST] = term[0],
                       [DT_BN_BWD_SCALE] = node->src[DT_BN_SCALE],
                       [DT_BN_BWD_SHIFT] = node->src[DT_BN_SHIFT],
                       [DT_BN_BWD_MEAN] = node->dst[DT_BN_MEAN],
                       [DT_BN_BWD_VARIANCE] = node->dst[DT_BN_VARIANCE],
                       [DT_BN_BWD_MASK] = node->dst[DT_BN_MASK],
                       [DT_BN_BWD_DIFF_DST2] = term[1],
                       [DT_BN_BWD_ADDEND] = dt_autodiff_take_addend(ad, node->src[DT_BN_SRC])};
    int dst[DT_MAX_DST] = {dt_autodiff_new(ad, node->src[DT_BN_SRC])};
    dst[DT_BN_BWD_DIFF_SCALE] = dt_autodiff_new_param(ad, node->src[DT_BN_SCALE]);
    dst[DT_BN_BWD_DIFF_SHIFT] = dt_autodiff_new_param(ad, node->src[DT_BN_SHIFT]);
    dst[DT_BN_BWD_DIFF_RESIDUAL] = needs_residual ? dt_autodiff_new(ad, residual) : -1;
    struct dt_node *backward =
        dt_autodiff_append(ad, DT_OP_BN_BWD, node, DT_COUNT(src), src, DT_MAX_DST, dst);
    if (!backward)
        return;
    backward->residual = needs_residual;
    dt_autodiff_give(ad, node->src[DT_BN_SRC], dst[DT_BN_BWD_DIFF_SRC]);
    if (needs_residual)
        dt_autodiff_give(ad, residual, dst[DT_BN_BWD_DIFF_RESIDUAL]);
}

/* Adds weight, bias and, in training, mean and inverse_std of the given shape. */
static int commit_norm(struct dt_graph *g, struct dt_node *draft, const char *module, int n_dims,
                       const int statistics[4])
{
    const int channels[4] = {g->tensor[draft->src[0]].dim[1], 1, 1, 1};
    const struct dt_init zeros = {DT_INIT_CONSTANT, 0}, ones = {DT_INIT_CONSTANT, 1};
    dt_draft_param(g, draft, module, "weight", DT_PARAM, 1, channels, ones);
    dt_draft_param(g, draft, module, "bias", DT_PARAM, 1, channels, zeros);
    dt_draft_infer(g, draft, NULL);
    if (dt_graph_program(g)->phase == DT_TRAIN) {
        dt_draft_dst(g, draft, ".mean", DT_SAVED, DT_F32, n_dims, statistics);
        dt_draft_dst(g, draft, ".inverse_std", DT_SAVED, DT_F32, n_dims, statistics);
    }
    return dt_draft_commit(g, draft);
}

int dt_graph_group_norm(struct dt_graph *g, int src, const char *name, const char *module,
                        int groups)
{
    struct dt_node draft;
    if (!dt_draft_begin(g, &draft, DT_OP_GROUP_NORM, name, src))
        return -1;
    const int n = g->tensor[src].dim[0], c = g->tensor[src].dim[1];
    if (groups < 1 || c % groups != 0) {
        dt_graph_remember(
            g, DT_ERROR(DT_ERR_CONFIG, "%s: %d channels do not make %d groups", name, c, groups));
        return -1;
    }
    draft.attr.group_norm.groups = groups;
    draft.attr.group_norm.eps = 1e-5f;
    return commit_norm(g, &draft, module, 2, (const int[4]){n, groups, 1, 1});
}

int dt_graph_layer_norm(struct dt_graph *g, int src, const char *name)
{
    struct dt_node draft;
    if (!dt_draft_begin(g, &draft, DT_OP_LAYER_NORM, name, src))
        return -1;
    const int *dim = g->tensor[src].dim;
    draft.attr.group_norm.eps = 1e-6f;
    return commit_norm(g, &draft, NULL, 1, (const int[4]){dim[0] * dim[2] * dim[3], 1, 1, 1});
}

static void gradient_norm(struct dt_autodiff *ad, const struct dt_node *node)
{
    const enum dt_op op =
        node->op == DT_OP_LAYER_NORM ? DT_OP_LAYER_NORM_BWD : DT_OP_GROUP_NORM_BWD;
    const int src[] = {[DT_GN_BWD_SRC] = node->src[DT_GN_SRC],
                       [DT_GN_BWD_DIFF_DST] = dt_autodiff_take(ad, node),
                       [DT_GN_BWD_SCALE] = node->src[DT_GN_SCALE],
                       [DT_GN_BWD_MEAN] = node->dst[DT_GN_MEAN],
                       [DT_GN_BWD_INVERSE_STD] = node->dst[DT_GN_INVERSE_STD]};
    int dst[3] = {dt_autodiff_new(ad, node->src[0])};
    int n_dst = 1;
    for (int i = 1; i < 3 && dt_autodiff_needs(ad, node->src[i]); i++)
        dst[n_dst++] = dt_autodiff_new_param(ad, node->src[i]);
    dt_autodiff_append(ad, op, node, DT_COUNT(src), src, n_dst, dst);
    dt_autodiff_give(ad, node->src[0], dst[0]);
}

const struct dt_op_rule dt_rule_bn = {.per_element = 5, .gradient = gradient_bn};
const struct dt_op_rule dt_rule_bn_bwd = {.per_element = 8};
const struct dt_op_rule dt_rule_bn_frozen_bwd = {.per_element = 1};
const struct dt_op_rule dt_rule_group_norm = {.per_element = 5, .gradient = gradient_norm};
const struct dt_op_rule dt_rule_group_norm_bwd = {.per_element = 8};
const struct dt_op_rule dt_rule_layer_norm = {.per_element = 7, .gradient = gradient_norm};
const struct dt_op_rule dt_rule_layer_norm_bwd = {.per_element = 12};
