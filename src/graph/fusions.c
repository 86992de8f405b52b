/* Finds fusions: nodes whose values pass from one to the other only. Synced nodes are in none, as
 * other work comes between their halves. */
#include <stdlib.h>

#include "base/mem.h"
#include "graph/graph_internal.h"

/* The training nodes that make and read each tensor. */
struct finder {
    const struct dt_graph *g;
    int *producer, *reader, *n_readers; /* producer, reader: node id, -1 = none */
};

/* The node of that op which makes tensor t, if only one node reads t; else NULL. */
static const struct dt_node *maker(const struct finder *f, int t, enum dt_op op)
{
    const int id = f->producer[t];
    if (id < 0 || f->n_readers[t] != 1 || f->g->node[id].op != op)
        return NULL;
    return &f->g->node[id];
}

/* A bn that takes statistics, by itself. */
static bool is_own_bn(const struct dt_node *node)
{
    return dt_node_has_statistics(node) && !dt_node_is_synced(node) && node->activation <= DT_RELU;
}

/* A bn_bwd of two terms. */
static bool is_sum(const struct dt_node *node)
{
    return node->src[DT_BN_BWD_DIFF_DST2] >= 0;
}

static bool has_addend(const struct dt_node *node)
{
    return node->src[DT_BN_BWD_ADDEND] >= 0;
}

/* Whether the node is the last of a fusion, all of whose nodes are then in `found`. */
typedef bool finder_fn(const struct finder *f, const struct dt_node *last,
                       const struct dt_node *found[DT_MAX_FUSED]);

static bool find_bn_pair(const struct finder *f, const struct dt_node *last,
                         const struct dt_node *found[DT_MAX_FUSED])
{
    if (!last->residual || !is_own_bn(last))
        return false;
    const struct dt_node *first = maker(f, last->src[DT_BN_RESIDUAL], DT_OP_BN);
    found[0] = first;
    found[1] = last;
    return first && first->activation != DT_RELU && !first->residual && is_own_bn(first) &&
           first->attr.bn.eps == last->attr.bn.eps;
}

static bool find_bn_pair_bwd(const struct finder *f, const struct dt_node *last,
                             const struct dt_node *found[DT_MAX_FUSED])
{
    const int diff_dst = last->src[DT_BN_BWD_DIFF_DST];
    const struct dt_node *first = maker(f, diff_dst, DT_OP_BN_BWD);
    found[0] = first;
    found[1] = last;
    return first && first->dst[DT_BN_BWD_DIFF_RESIDUAL] == diff_dst &&
           last->activation != DT_RELU && !is_sum(last) && !last->residual && !has_addend(first) &&
           !has_addend(last) && !dt_node_is_synced(first) && !dt_node_is_synced(last) &&
           first->attr.bn.eps == last->attr.bn.eps;
}

static bool find_bn_pool(const struct finder *f, const struct dt_node *last,
                         const struct dt_node *found[DT_MAX_FUSED])
{
    const struct dt_node *unpool = maker(f, last->src[DT_BN_BWD_DIFF_DST], DT_OP_MAX_POOL_BWD);
    if (!unpool || last->activation != DT_RELU || is_sum(last) || last->residual ||
        has_addend(last) || dt_node_is_synced(last))
        return false;
    const int id = f->producer[unpool->src[DT_MAX_POOL_BWD_WORKSPACE]];
    if (id < 0)
        return false;
    const struct dt_node *pool = &f->g->node[id];
    found[0] = maker(f, pool->src[0], DT_OP_BN);
    found[1] = pool;
    found[2] = unpool;
    found[3] = last;
    return found[0] && found[0]->activation == DT_RELU && !found[0]->residual;
}

static bool find_conv_bn(const struct finder *f, const struct dt_node *last,
                         const struct dt_node *found[DT_MAX_FUSED])
{
    const int id = f->producer[last->src[0]];
    if (id < 0)
        return false;
    const struct dt_node *conv = &f->g->node[id];
    found[0] = conv;
    found[1] = last;
    return is_own_bn(last) && last == conv + 1 && conv->op == DT_OP_CONV &&
           conv->src[DT_CONV_BIAS] < 0 && conv->activation != DT_RELU;
}

/* bn_bwd right after conv_bwd_data, whose result it alone reads, and the bn of both. */
static bool find_bwd(const struct finder *f, const struct dt_node *last,
                     const struct dt_node *found[DT_MAX_FUSED])
{
    const struct dt_node *conv = last - 1;
    const int bn = f->producer[last->src[DT_BN_BWD_MEAN]];
    if (bn < 0)
        return false;
    found[0] = &f->g->node[bn];
    found[1] = conv;
    found[2] = last;
    return last->activation == DT_RELU && !dt_node_is_synced(last) &&
           conv->op == DT_OP_CONV_BWD_DATA && f->n_readers[conv->dst[0]] == 1 &&
           f->reader[conv->dst[0]] == (int)(last - f->g->node);
}

static bool find_conv_bn_bwd(const struct finder *f, const struct dt_node *last,
                             const struct dt_node *found[DT_MAX_FUSED])
{
    return find_bwd(f, last, found) && !is_sum(last) && !last->residual && !found[0]->residual;
}

/* If the residual is a bn, this is no fusion: see bn_pair. */
static bool find_conv_add_bn_bwd(const struct finder *f, const struct dt_node *last,
                                 const struct dt_node *found[DT_MAX_FUSED])
{
    return find_bwd(f, last, found) && last->residual &&
           last->src[DT_BN_BWD_DIFF_DST2] == found[1]->dst[0] && found[0]->residual &&
           !maker(f, found[0]->src[DT_BN_RESIDUAL], DT_OP_BN);
}

static bool find_conv_pair_bwd(const struct finder *f, const struct dt_node *last,
                               const struct dt_node *found[DT_MAX_FUSED])
{
    const struct dt_node *pair[DT_MAX_FUSED], *with[DT_MAX_FUSED];
    if (!find_bn_pair_bwd(f, last, pair) || !find_bwd(f, pair[0], with))
        return false;
    found[0] = &f->g->node[f->producer[last->src[DT_BN_BWD_MEAN]]];
    found[1] = with[0];
    found[2] = with[1];
    found[3] = pair[0];
    found[4] = last;
    return pair[0]->src[DT_BN_BWD_DIFF_DST2] == with[1]->dst[0];
}

static bool find_bn_conv(const struct finder *f, const struct dt_node *last,
                         const struct dt_node *found[DT_MAX_FUSED])
{
    const int id = f->producer[last->src[0]];
    if (id < 0 || id + 2 >= f->g->n_nodes)
        return false;
    const struct dt_node *bn = &f->g->node[id], *conv = bn + 1;
    const struct dt_node *conv_bn[DT_MAX_FUSED];
    found[0] = bn;
    found[1] = conv;
    found[2] = bn + 2;
    found[3] = last;
    return bn->op == DT_OP_BN && is_own_bn(bn) && bn->activation == DT_RELU && !bn->residual &&
           conv->src[0] == bn->dst[0] && f->n_readers[bn->dst[0]] == 2 &&
           found[2]->op == DT_OP_BN && find_conv_bn(f, found[2], conv_bn) &&
           last->dst[DT_BWD_DIFF_BIAS] < 0;
}

static const struct rule {
    const char *name;
    finder_fn *find;
    int n_nodes;
    enum dt_op last;
} rules[DT_N_FUSION_KINDS] = {
#define ROW(NAME, kind, ...) [DT_FUSION_##NAME] = {.name = #kind, .find = find_##kind, __VA_ARGS__},
    DT_FUSION_LIST(ROW)
#undef ROW
};

const char *dt_fusion_name(enum dt_fusion_kind kind)
{
    return rules[kind].name;
}

dt_status dt_graph_fusions(const struct dt_graph *g, struct dt_fusion **fusions, int *n_fusions)
{
    struct finder f = {.g = g};
    dt_status status = DT_OK;
    *fusions = NULL;
    *n_fusions = 0;
    const size_t n = (size_t)g->n_tensors;
    DT_TRY_OUT(DT_NEW(f.producer, n));
    DT_TRY_OUT(DT_NEW(f.reader, n));
    DT_TRY_OUT(DT_NEW(f.n_readers, n));
    for (size_t t = 0; t < n; t++)
        f.producer[t] = f.reader[t] = -1;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        for (int k = 0; k < node->n_src && node->phase == DT_TRAIN; k++) {
            if (node->src[k] < 0)
                continue;
            f.reader[node->src[k]] = i;
            f.n_readers[node->src[k]]++;
        }
        for (int k = 0; k < node->n_dst && node->phase == DT_TRAIN; k++)
            f.producer[node->dst[k]] = i;
    }
    DT_TRY_OUT(DT_NEW(*fusions, (size_t)g->n_nodes * DT_N_FUSION_KINDS));
    for (int i = 0; i < g->n_nodes; i++)
        for (int kind = 0; kind < DT_N_FUSION_KINDS; kind++) {
            const struct rule *rule = &rules[kind];
            const struct dt_node *node = &g->node[i], *found[DT_MAX_FUSED];
            if (node->phase != DT_TRAIN || node->op != rule->last || !rule->find(&f, node, found))
                continue;
            struct dt_fusion *fusion = &(*fusions)[(*n_fusions)++];
            *fusion = (struct dt_fusion){.kind = kind, .n_nodes = rule->n_nodes};
            for (int k = 0; k < rule->n_nodes; k++)
                fusion->node[k] = (int)(found[k] - g->node);
        }
out:
    free(f.producer);
    free(f.reader);
    free(f.n_readers);
    return status;
}
