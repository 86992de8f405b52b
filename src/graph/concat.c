/* Concatenation along the channels. */
#include "graph/graph_internal.h"

static dt_status infer_concat(const struct dt_graph *g, const struct dt_node *node, int dim[4])
{
    for (int i = 1; i < node->n_src; i++)
        dim[1] += g->tensor[node->src[i]].dim[1];
    return DT_OK;
}

static void gradient_concat(struct dt_autodiff *ad, const struct dt_node *node)
{
    const int diff_dst = dt_autodiff_take(ad, node);
    int first = 0;
    for (int i = 0; i < node->n_src; i++) {
        if (dt_autodiff_needs(ad, node->src[i])) {
            int diff_src = dt_autodiff_new(ad, node->src[i]);
            struct dt_node *backward =
                dt_autodiff_append(ad, DT_OP_CONCAT_BWD, node, 1, &diff_dst, 1, &diff_src);
            if (backward)
                backward->attr.concat.first = first;
            dt_autodiff_give(ad, node->src[i], diff_src);
        }
        first += dt_autodiff_graph(ad)->tensor[node->src[i]].dim[1];
    }
}

/* --- Without copies --- */

enum { MAX_BLOCK = 16 }; /* channels that lie side by side in memory */

/* Whether all that read tensor t, but for `next` as its first source, are nodes of one of the two
 * ops, and have it as source `operand`. */
static bool is_read_by(const struct dt_graph *g, int t, const struct dt_node *next, enum dt_op op,
                       enum dt_op op2, int operand)
{
    for (const struct dt_node *node = g->node; node < g->node + g->n_nodes; node++)
        for (int k = 0; k < node->n_src; k++)
            if (node->src[k] == t &&
                (node == next ? k != 0 : (node->op != op && node->op != op2) || k != operand))
                return false;
    return true;
}

static const struct dt_node *maker(const struct dt_graph *g, int t)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (g->node[i].dst[0] == t)
            return &g->node[i];
    return NULL;
}

/* A concatenation that begins with another one; all its parts but the last fill their blocks. */
static void share_values(struct dt_graph *g, const struct dt_node *concat)
{
    struct dt_tensor *first = &g->tensor[concat->src[0]];
    const struct dt_node *before = maker(g, concat->src[0]);
    for (int i = 0; i + 1 < concat->n_src; i++)
        if (g->tensor[concat->src[i]].dim[1] % MAX_BLOCK != 0)
            return;
    if (before && before->op == DT_OP_CONCAT &&
        is_read_by(g, concat->src[0], concat, DT_OP_BN, DT_OP_BN_BWD, DT_BN_BWD_SRC))
        first->whole = dt_tensor_whole(g, concat->dst[0]);
}

/* The first part of a gradient, to which a batch norm adds its own, once no other part of it is
 * needed any more. */
static void share_gradients(struct dt_graph *g, const struct dt_node *part)
{
    const int t = part->dst[0], whole = part->src[0];
    const struct dt_node *sum = NULL;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        if (node->op == DT_OP_BN_BWD && node->src[DT_BN_BWD_ADDEND] == t)
            sum = node;
    }
    if (!sum || part->attr.concat.first > 0 || g->tensor[t].dim[1] % MAX_BLOCK != 0 ||
        !is_read_by(g, t, NULL, DT_OP_BN_BWD, DT_OP_BN_BWD, DT_BN_BWD_ADDEND) ||
        !is_read_by(g, sum->dst[0], NULL, DT_OP_CONCAT_BWD, DT_OP_CONCAT_BWD, 0) ||
        !is_read_by(g, whole, NULL, DT_OP_CONCAT_BWD, DT_OP_CONCAT_BWD, 0))
        return;
    for (const struct dt_node *node = sum; node < g->node + g->n_nodes; node++)
        if (node->op == DT_OP_CONCAT_BWD && node->src[0] == whole)
            return;
    g->tensor[t].whole = g->tensor[sum->dst[0]].whole = dt_tensor_whole(g, whole);
}

void dt_graph_share(struct dt_graph *g)
{
    for (int i = g->n_nodes - 1; i >= 0; i--)
        if (g->node[i].op == DT_OP_CONCAT)
            share_values(g, &g->node[i]);
    for (int i = 0; i < g->n_nodes; i++)
        if (g->node[i].op == DT_OP_CONCAT_BWD)
            share_gradients(g, &g->node[i]);
}

const struct dt_op_rule dt_rule_concat = {
    .infer = infer_concat, .per_element = 1, .gradient = gradient_concat};
const struct dt_op_rule dt_rule_concat_bwd = {.per_element = 1};
