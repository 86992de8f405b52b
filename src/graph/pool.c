/* Max pooling, adaptive average pooling, and upsampling. */
#include <string.h>

#include "graph/graph_internal.h"

static dt_status infer_max_pool(const struct dt_graph *g, const struct dt_node *node, int dim[4])
{
    const int *in = g->tensor[node->src[0]].dim, stride = node->attr.pool.stride;
    DT_TRY(dt_infer_window(node, dim, node->attr.pool.kernel, stride, node->attr.pool.pad));
    for (int i = 2; i < 4 && node->attr.pool.ceil; i++)
        dim[i] += dim[i] * stride < in[i] && in[i] > (dim[i] - 1) * stride + node->attr.pool.kernel;
    return DT_OK;
}

static void save_max_pool(struct dt_graph *g, struct dt_node *draft, const int dim[4])
{
    dt_draft_dst(g, draft, ".workspace", DT_SAVED, DT_U8, 4, dim);
}

static void gradient_max_pool(struct dt_autodiff *ad, const struct dt_node *node)
{
    dt_autodiff_one_to_one(ad, DT_OP_MAX_POOL_BWD, node, node->dst[DT_MAX_POOL_WORKSPACE]);
}

int dt_graph_avg_pool(struct dt_graph *g, int src, const char *name, int out_size)
{
    struct dt_node draft = {.op = DT_OP_AVG_POOL};
    if (!dt_draft_begin(g, &draft, name, 1, &src))
        return -1;
    const struct dt_tensor *t = &g->tensor[src];
    if (t->dim[2] == out_size && t->dim[3] == out_size)
        return src; /* every window is a single value: nothing to do */
    const int dim[4] = {t->dim[0], t->dim[1], out_size, out_size};
    dt_draft_dst(g, &draft, "", DT_ACT, DT_F32, 4, dim);
    return dt_draft_commit(g, &draft);
}

static void gradient_avg_pool(struct dt_autodiff *ad, const struct dt_node *node)
{
    dt_autodiff_one_to_one(ad, DT_OP_AVG_POOL_BWD, node, -1);
}

/* Doubles the height and width of coarse, which must give the shape of fine. */
static dt_status infer_upsample_add(const struct dt_graph *g, const struct dt_node *node,
                                    int dim[4])
{
    const struct dt_tensor *coarse = &g->tensor[node->src[0]],
                           *fine = &g->tensor[node->src[DT_UPSAMPLE_ADD_FINE]];
    dim[2] *= 2;
    dim[3] *= 2;
    if (memcmp(dim, fine->dim, sizeof fine->dim) != 0) {
        char text[2][48];
        DT_FAIL(DT_ERR_CONFIG,
                "%s: %s does not have twice the height and width of %s; use images whose height "
                "and width are multiples of 32",
                node->name, dt_tensor_format_dims(text[0], sizeof text[0], fine),
                dt_tensor_format_dims(text[1], sizeof text[1], coarse));
    }
    return DT_OK;
}

static void gradient_upsample_add(struct dt_autodiff *ad, const struct dt_node *node)
{
    dt_autodiff_give(ad, node->src[DT_UPSAMPLE_ADD_FINE], dt_autodiff_take(ad, node));
    if (dt_autodiff_needs(ad, node->src[0]))
        dt_autodiff_one_to_one(ad, DT_OP_UPSAMPLE_ADD_BWD, node, -1);
}

const struct dt_op_rule dt_rule_max_pool = {.infer = infer_max_pool,
                                            .save = save_max_pool,
                                            .per_element = 2,
                                            .gradient = gradient_max_pool};
const struct dt_op_rule dt_rule_max_pool_bwd = {.per_element = 1};
const struct dt_op_rule dt_rule_avg_pool = {.per_element = 1, .gradient = gradient_avg_pool};
const struct dt_op_rule dt_rule_avg_pool_bwd = {.per_element = 1};
const struct dt_op_rule dt_rule_upsample_add = {
    .infer = infer_upsample_add, .per_element = 4, .gradient = gradient_upsample_add};
const struct dt_op_rule dt_rule_upsample_add_bwd = {.per_element = 1};
