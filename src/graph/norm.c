/* Batch norm, group norm and layer norm. */
#include "base/mem.h"
#include "graph/graph_internal.h"

/* Weight and bias have the role; the statistics follow them, as in PyTorch. */
static int add_bn(struct dt_graph *g, struct dt_node draft, int src, const char *name,
                  enum dt_role role, double scale_init)
{
    if (!dt_draft_begin(g, &draft, name, 1, &src))
        return -1;
    const int channels = g->tensor[src].dim[1];
    dt_draft_vector(g, &draft, NULL, "weight", role, channels, scale_init);
    dt_draft_vector(g, &draft, NULL, "bias", role, channels, 0);
    dt_draft_vector(g, &draft, NULL, "running_mean", DT_STAT, channels, 0);
    dt_draft_vector(g, &draft, NULL, "running_var", DT_STAT, channels, 1);
    return dt_draft_commit(g, &draft);
}

int dt_graph_bn_with(struct dt_graph *g, int src, const char *name, double scale_init, double eps,
                     double momentum)
{
    const int n_ranks = dt_graph_program(g)->phase == DT_TRAIN ? g->bn_ranks : 0;
    const struct dt_node node = {.op = DT_OP_BN, .attr.bn = {(float)eps, (float)momentum, n_ranks}};
    return add_bn(g, node, src, name, DT_PARAM, scale_init);
}

int dt_graph_frozen_bn(struct dt_graph *g, int src, const char *name, double eps)
{
    const struct dt_node node = {.op = DT_OP_BN, .attr.bn.eps = (float)eps};
    return add_bn(g, node, src, name, DT_STAT, 1);
}

/* A frozen one takes no statistics. */
static void save_bn(struct dt_graph *g, struct dt_node *draft, const int dim[4])
{
    const int channels[4] = {dim[1], 1, 1, 1};
    if (g->tensor[draft->src[DT_BN_SCALE]].role == DT_STAT)
        return;
    dt_draft_dst(g, draft, ".mean", DT_SAVED, DT_F32, 1, channels);
    dt_draft_dst(g, draft, ".variance", DT_SAVED, DT_F32, 1, channels);
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

static int add_norm(struct dt_graph *g, struct dt_node draft, int src, const char *name,
                    const char *module)
{
    if (!dt_draft_begin(g, &draft, name, 1, &src))
        return -1;
    dt_draft_vector(g, &draft, module, "weight", DT_PARAM, g->tensor[src].dim[1], 1);
    dt_draft_vector(g, &draft, module, "bias", DT_PARAM, g->tensor[src].dim[1], 0);
    return dt_draft_commit(g, &draft);
}

int dt_graph_group_norm(struct dt_graph *g, int src, const char *name, const char *module,
                        int groups)
{
    const struct dt_node node = {.op = DT_OP_GROUP_NORM, .attr.group_norm = {groups, 1e-5f}};
    return add_norm(g, node, src, name, module);
}

int dt_graph_layer_norm(struct dt_graph *g, int src, const char *name)
{
    const struct dt_node node = {.op = DT_OP_LAYER_NORM, .attr.group_norm.eps = 1e-6f};
    return add_norm(g, node, src, name, NULL);
}

static dt_status infer_group_norm(const struct dt_graph *g, const struct dt_node *node, int dim[4])
{
    (void)g;
    const int groups = node->attr.group_norm.groups;
    if (groups < 1 || dim[1] % groups != 0)
        DT_FAIL(DT_ERR_CONFIG, "%s: %d channels do not make %d groups", node->name, dim[1], groups);
    return DT_OK;
}

static void save_norm(struct dt_graph *g, struct dt_node *draft, const int dim[4])
{
    const int groups = draft->attr.group_norm.groups, pixels = dim[2] * dim[3];
    const int shape[4] = {groups ? dim[0] : dim[0] * pixels, groups ? groups : 1, 1, 1};
    dt_draft_dst(g, draft, ".mean", DT_SAVED, DT_F32, groups ? 2 : 1, shape);
    dt_draft_dst(g, draft, ".inverse_std", DT_SAVED, DT_F32, groups ? 2 : 1, shape);
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

const struct dt_op_rule dt_rule_bn = {.save = save_bn, .per_element = 5, .gradient = gradient_bn};
const struct dt_op_rule dt_rule_bn_bwd = {.per_element = 8};
const struct dt_op_rule dt_rule_bn_frozen_bwd = {.per_element = 1};
const struct dt_op_rule dt_rule_group_norm = {
    .infer = infer_group_norm, .save = save_norm, .per_element = 5, .gradient = gradient_norm};
const struct dt_op_rule dt_rule_group_norm_bwd = {.per_element = 8};
const struct dt_op_rule dt_rule_layer_norm = {
    .save = save_norm, .per_element = 7, .gradient = gradient_norm};
const struct dt_op_rule dt_rule_layer_norm_bwd = {.per_element = 12};
