/* Max pooling and adaptive average pooling. */
#include "graph/internal.h"

static dt_status infer_max_pool(const struct dt_graph *g, const struct dt_node *node, int dim[4])
{
    (void)g;
    DT_TRY(dt_infer_window(node, dim, node->attr.pool.kernel, node->attr.pool.stride,
                           node->attr.pool.pad));
    return DT_OK;
}

int dt_graph_max_pool(struct dt_graph *g, int src, const char *name, int kernel, int stride,
                      int pad)
{
    struct dt_node draft;
    int dim[4];
    if (!dt_draft_begin(g, &draft, DT_OP_MAX_POOL, name, src))
        return -1;
    draft.attr.pool.kernel = kernel;
    draft.attr.pool.stride = stride;
    draft.attr.pool.pad = pad;
    dt_draft_infer(g, &draft, dim);
    if (dt_graph_program(g)->phase == DT_TRAIN)
        dt_draft_dst(g, &draft, ".workspace", DT_SAVED, DT_U8, 4, dim);
    return dt_draft_commit(g, &draft);
}

static void gradient_max_pool(struct dt_autodiff *ad, const struct dt_node *node)
{
    dt_autodiff_one_to_one(ad, DT_OP_MAX_POOL_BWD, node, node->dst[1]);
}

int dt_graph_avg_pool(struct dt_graph *g, int src, const char *name, int out_size)
{
    struct dt_node draft;
    if (!dt_draft_begin(g, &draft, DT_OP_AVG_POOL, name, src))
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

const struct dt_op_rule dt_rule_max_pool = {
    .infer = infer_max_pool, .per_element = 2, .gradient = gradient_max_pool};
const struct dt_op_rule dt_rule_max_pool_bwd = {.per_element = 1};
const struct dt_op_rule dt_rule_avg_pool = {.per_element = 1, .gradient = gradient_avg_pool};
const struct dt_op_rule dt_rule_avg_pool_bwd = {.per_element = 1};
