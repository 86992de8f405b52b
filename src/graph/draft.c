/* Helpers shared by the op families: node drafts, shapes, operation counts. */
#include <string.h>

#include "graph/graph_internal.h"

static dt_status check_sources(const struct dt_graph *g, const char *name, int n, const int *src)
{
    if (strlen(name) >= DT_NAME_MAX)
        DT_FAIL(DT_ERR_INTERNAL, "the node name %s is longer than %d characters", name,
                DT_NAME_MAX - 1);
    if (n > DT_MAX_SRC)
        DT_FAIL(DT_ERR_INTERNAL, "%s: %d sources are more than %d", name, n, DT_MAX_SRC);
    for (int i = 0; i < n; i++) {
        if (src[i] < 0 || src[i] >= g->n_tensors)
            DT_FAIL(DT_ERR_INTERNAL, "node %s reads tensor %d, which does not exist", name, src[i]);
        const struct dt_tensor *t = &g->tensor[src[i]];
        if (t->dtype != DT_F32 || t->role != DT_ACT)
            DT_FAIL(DT_ERR_INTERNAL, "node %s reads %s, which is not a value of the network", name,
                    t->name);
    }
    return DT_OK;
}

bool dt_draft_begin(struct dt_graph *g, struct dt_node *draft, const char *name, int n_src,
                    const int *src)
{
    if (g->status == DT_OK)
        dt_graph_remember(g, check_sources(g, name, n_src, src));
    if (g->status != DT_OK)
        return false;
    memcpy(draft->name, name, strlen(name) + 1);
    memcpy(draft->src, src, (size_t)n_src * sizeof *src);
    draft->n_src = n_src;
    return true;
}

void dt_draft_dst(struct dt_graph *g, struct dt_node *draft, const char *suffix, enum dt_role role,
                  enum dt_dtype dtype, int n_dims, const int dim[4])
{
    char name[2 * DT_NAME_MAX];
    snprintf(name, sizeof name, "%s%s", draft->name, suffix);
    draft->dst[draft->n_dst++] = dt_graph_tensor(g, name, role, dtype, n_dims, dim);
}

static void infer(struct dt_graph *g, struct dt_node *draft)
{
    const struct dt_op_rule *rule = dt_op_row(draft->op)->rule;
    int dim[4];
    memcpy(dim, g->tensor[draft->src[0]].dim, sizeof dim);
    if (rule->infer)
        dt_graph_remember(g, rule->infer(g, draft, dim));
    dt_draft_dst(g, draft, "", DT_ACT, DT_F32, 4, dim);
    if (rule->save && g->status == DT_OK && dt_graph_program(g)->phase == DT_TRAIN)
        rule->save(g, draft, dim);
}

int dt_draft_commit(struct dt_graph *g, struct dt_node *draft)
{
    if (g->status == DT_OK && draft->n_dst == 0 && !dt_op_row(draft->op)->rule->is_loss)
        infer(g, draft);
    struct dt_node *node = dt_graph_node(g, draft->op, draft->name, draft->n_src, draft->src,
                                         draft->n_dst, draft->dst);
    if (!node)
        return -1;
    node->attr = draft->attr;
    node->activation = draft->activation;
    return node->dst[0];
}

int dt_graph_op(struct dt_graph *g, struct dt_node node, const char *name, int n_src,
                const int *src)
{
    node.n_dst = 0;
    return dt_draft_begin(g, &node, name, n_src, src) ? dt_draft_commit(g, &node) : -1;
}

static dt_status check_shape(const struct dt_graph *g, int id, int n_dims, const int dim[4])
{
    const struct dt_tensor *t = &g->tensor[id];
    if (t->n_dims != n_dims || memcmp(t->dim, dim, sizeof t->dim) != 0) {
        struct dt_tensor wanted = {.n_dims = n_dims, .dim = {dim[0], dim[1], dim[2], dim[3]}};
        char old_text[48], new_text[48];
        DT_FAIL(DT_ERR_CONFIG, "parameter %s is used with two shapes, %s and %s", t->name,
                dt_tensor_format_dims(old_text, sizeof old_text, t),
                dt_tensor_format_dims(new_text, sizeof new_text, &wanted));
    }
    return DT_OK;
}

static dt_status check_unused(const struct dt_graph *g, int id)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        for (int k = 0; k < node->n_src; k++) {
            if (node->program == g->current && node->src[k] == id)
                DT_FAIL(DT_ERR_INTERNAL,
                        "parameter %s is used by two nodes of one program; give the "
                        "second node another name, or share the parameter",
                        g->tensor[id].name);
        }
    }
    return DT_OK;
}

void dt_draft_param(struct dt_graph *g, struct dt_node *draft, const char *module,
                    const char *suffix, enum dt_role role, int n_dims, const int dim[4],
                    struct dt_init init)
{
    char name[2 * DT_NAME_MAX];
    if (g->status != DT_OK)
        return;
    snprintf(name, sizeof name, "%s.%s", module ? module : draft->name, suffix);
    int id = dt_graph_find_role(g, name, role);
    if (id >= 0) {
        dt_graph_remember(g, check_shape(g, id, n_dims, dim));
        if (!module)
            dt_graph_remember(g, check_unused(g, id));
    } else {
        id = dt_graph_tensor(g, name, role, DT_F32, n_dims, dim);
        if (id < 0)
            return;
        g->tensor[id].init = init;
        g->tensor[id].decay = role == DT_PARAM && !dt_tensor_is_vector(&g->tensor[id]);
    }
    draft->src[draft->n_src++] = id;
}

void dt_draft_vector(struct dt_graph *g, struct dt_node *draft, const char *module,
                     const char *suffix, enum dt_role role, int n, double value)
{
    dt_draft_param(g, draft, module, suffix, role, 1, (const int[4]){n, 1, 1, 1},
                   (struct dt_init){DT_INIT_CONSTANT, value});
}

/* --- Shapes and operation counts --- */

dt_status dt_infer_drop(const struct dt_graph *g, const struct dt_node *node, int dim[4])
{
    (void)g, (void)dim;
    const float p = node->attr.dropout.p;
    if (!(p >= 0 && p < 1))
        DT_FAIL(DT_ERR_CONFIG, "%s: %s %g is not in [0, 1)", node->name,
                node->op == DT_OP_DROPOUT ? "dropout" : "stochastic depth", (double)p);
    return DT_OK;
}

dt_status dt_infer_window(const struct dt_node *node, int dim[4], int kernel, int stride, int pad)
{
    if (kernel < 1 || stride < 1 || pad < 0 || pad >= kernel)
        DT_FAIL(DT_ERR_CONFIG, "%s: kernel %d, stride %d, padding %d is not a valid window",
                node->name, kernel, stride, pad);
    for (int i = 2; i < 4; i++) {
        if (dim[i] + 2 * pad < kernel)
            DT_FAIL(DT_ERR_CONFIG,
                    "%s: a %dx%d window does not fit in %dx%d with padding %d; "
                    "use a larger model.image_size",
                    node->name, kernel, kernel, dim[2], dim[3], pad);
    }
    for (int i = 2; i < 4; i++)
        dim[i] = (dim[i] + 2 * pad - kernel) / stride + 1;
    return DT_OK;
}

double dt_node_flops(const struct dt_graph *g, const struct dt_node *node)
{
    const struct dt_op_rule *rule = dt_op_row(node->op)->rule;
    if (rule->flops)
        return rule->flops(g, node);
    return rule->per_element * (double)dt_tensor_elements(&g->tensor[node->src[0]]);
}

/* 2 * (elements of the output side) * (inputs per output), for all three passes alike. */
static double flops_product(const struct dt_tensor *dst, const struct dt_tensor *weights)
{
    double inputs = (double)weights->dim[1] * weights->dim[2] * weights->dim[3];
    return 2.0 * (double)dt_tensor_elements(dst) * inputs;
}

double dt_flops_forward(const struct dt_graph *g, const struct dt_node *node)
{
    return flops_product(&g->tensor[node->dst[0]], &g->tensor[node->src[1]]);
}

double dt_flops_bwd_data(const struct dt_graph *g, const struct dt_node *node)
{
    return flops_product(&g->tensor[node->src[0]], &g->tensor[node->src[1]]);
}

double dt_flops_bwd_weights(const struct dt_graph *g, const struct dt_node *node)
{
    return flops_product(&g->tensor[node->src[1]], &g->tensor[node->dst[0]]);
}
