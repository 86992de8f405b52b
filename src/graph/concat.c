/* Concatenation along the channels. */
#include "graph/graph_internal.h"

static dt_status infer_concat(const struct dt_graph *g, const struct dt_node *node, int dim[4])
{
    for (int i = 1; i < node->n_src; i++) {
        const struct dt_tensor *a = &g->tensor[node->src[0]], *b = &g->tensor[node->src[i]];
        if (b->dim[0] != a->dim[0] || b->dim[2] != a->dim[2] || b->dim[3] != a->dim[3]) {
            char text[2][48];
            DT_FAIL(DT_ERR_INTERNAL, "%s: cannot concatenate %s and %s", node->name,
                    dt_tensor_format_dims(text[0], sizeof text[0], a),
                    dt_tensor_format_dims(text[1], sizeof text[1], b));
        }
        dim[1] += b->dim[1];
    }
    return DT_OK;
}

int dt_graph_concat(struct dt_graph *g, int n_src, const int *src, const char *name)
{
    struct dt_node draft;
    for (int i = n_src - 1; i >= 0; i--)
        if (!dt_draft_begin(g, &draft, DT_OP_CONCAT, name, src[i]))
            return -1;
    while (draft.n_src < n_src && draft.n_src < DT_MAX_SRC) {
        draft.src[draft.n_src] = src[draft.n_src];
        draft.n_src++;
    }
    return dt_draft_infer_and_commit(g, &draft);
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

const struct dt_op_rule dt_rule_concat = {
    .infer = infer_concat, .per_element = 1, .gradient = gradient_concat};
const struct dt_op_rule dt_rule_concat_bwd = {.per_element = 1};
