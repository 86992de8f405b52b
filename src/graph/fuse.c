/* Fusion: a ReLU moves into the conv, bn or add before it, another activation into the bn; an add
 * with ReLU moves into the bn before it. This requires that no other node reads the tensor between
 * them and that the backend can run the fused node.
 *
 * One pass in execution order. The surviving node keeps its position and takes over the dst of the
 * nodes folded into it; therefore the other summand must be computed before the bn runs. */
#include <stdlib.h>

#include "base/mem.h"
#include "graph/graph_internal.h"

struct fuser {
    struct dt_graph *g;
    dt_supports_fn *supports;
    void *context;
    int *n_readers; /* per tensor */
    int *producer;  /* per tensor: node id, -1 = none */
    bool *removed;  /* per node */
};

static bool is_plain(const struct dt_node *node)
{
    return !node->activation;
}

/* Replaces node `keep` by `fused`, whose dst comes from node `last`, which is removed.
 * In training, bn records where its ReLU was active; the tensor is created only if the fusion is
 * kept. */
static bool fuse_if_supported(struct fuser *f, int keep, int last, struct dt_node *fused)
{
    struct dt_graph *g = f->g;
    const int n_tensors = g->n_tensors;
    fused->activation = g->node[last].activation;
    fused->dst[0] = g->node[last].dst[0];
    if (fused->activation == DT_RELU && fused->op == DT_OP_BN && dt_node_has_statistics(fused)) {
        char name[DT_NAME_MAX + 16];
        snprintf(name, sizeof name, "%.*s.workspace", DT_NAME_MAX - 11, fused->name);
        fused->dst[DT_BN_MASK] =
            dt_graph_tensor(g, name, DT_SAVED, DT_U8, 4, g->tensor[fused->src[0]].dim);
        fused->n_dst++;
    }
    if (g->status != DT_OK || (f->supports && !f->supports(f->context, g, fused))) {
        g->n_tensors = n_tensors;
        return false;
    }
    g->node[keep] = *fused;
    f->removed[last] = true;
    f->producer[fused->dst[0]] = keep;
    return true;
}

/* bn + add + relu: one summand is the dst of a plain bn that runs after the other one is computed.
 */
static bool fuse_residual(struct fuser *f, int add, int relu)
{
    const struct dt_graph *g = f->g;
    for (int i = 0; i < 2; i++) {
        int through = g->node[add].src[i], residual = g->node[add].src[1 - i];
        int bn = f->producer[through];
        if (bn < 0 || g->node[bn].op != DT_OP_BN || !is_plain(&g->node[bn]) ||
            f->n_readers[through] != 1 || f->producer[residual] >= bn)
            continue;
        struct dt_node fused = g->node[bn];
        fused.residual = true;
        fused.src[DT_BN_RESIDUAL] = residual;
        fused.n_src++;
        if (fuse_if_supported(f, bn, relu, &fused)) {
            f->removed[add] = true;
            return true;
        }
    }
    return false;
}

/* The slope of an activation other than ReLU follows from bn's statistics; without them it would
 * need bn's result. */
static void fuse_activation(struct fuser *f, int activation)
{
    const struct dt_graph *g = f->g;
    const bool is_relu = g->node[activation].activation == DT_RELU;
    const int between = g->node[activation].src[0], before = f->producer[between];
    if (before < 0 || f->n_readers[between] != 1 || !is_plain(&g->node[before]))
        return;
    struct dt_node fused = g->node[before];
    if (is_relu && fused.op == DT_OP_ADD && fuse_residual(f, before, activation))
        return;
    if (is_relu
            ? fused.op == DT_OP_CONV || fused.op == DT_OP_BN || fused.op == DT_OP_ADD
            : fused.op == DT_OP_BN && (fused.phase == DT_EVAL || dt_node_has_statistics(&fused)))
        fuse_if_supported(f, before, activation, &fused);
}

bool dt_node_is_foldable(const struct dt_node *node)
{
    bool bn = node->op == DT_OP_BN || node->op == DT_OP_BN_BWD;
    bool relu_fuses = node->op == DT_OP_CONV || node->op == DT_OP_ADD;
    bool is_own = node->op == DT_OP_ACTIVATION || node->op == DT_OP_ACTIVATION_BWD;
    return (!node->residual || bn) &&
           (!node->activation || bn || is_own || (node->activation == DT_RELU && relu_fuses));
}

dt_status dt_graph_fuse(struct dt_graph *g, dt_supports_fn *supports, void *context)
{
    dt_status status;
    struct fuser f = {.g = g, .supports = supports, .context = context};
    int n_kept = 0;
    DT_TRY_OUT(g->status);
    DT_TRY_OUT(DT_NEW(f.n_readers, (size_t)g->n_tensors));
    DT_TRY_OUT(DT_NEW(f.producer, (size_t)g->n_tensors));
    DT_TRY_OUT(DT_NEW(f.removed, (size_t)g->n_nodes));
    for (int i = 0; i < g->n_tensors; i++)
        f.producer[i] = -1;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        for (int k = 0; k < node->n_src; k++)
            if (node->src[k] >= 0)
                f.n_readers[node->src[k]]++;
        for (int k = 0; k < node->n_dst; k++)
            f.producer[node->dst[k]] = i;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        if (g->node[i].op == DT_OP_ACTIVATION)
            fuse_activation(&f, i);
    }
    DT_TRY_OUT(g->status);
    for (int i = 0; i < g->n_nodes; i++) {
        if (!f.removed[i])
            g->node[n_kept++] = g->node[i];
    }
    g->n_nodes = n_kept;
out:
    free(f.n_readers);
    free(f.producer);
    free(f.removed);
    return status;
}
