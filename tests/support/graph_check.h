/* Invariants of every differentiated graph, and nodes as text for comparisons. */
#ifndef DTRAIN_TESTS_GRAPH_CHECK_H
#define DTRAIN_TESTS_GRAPH_CHECK_H

#include <stdlib.h>
#include <string.h>

#include "dtrain/graph.h"
#include "test_status.h"

/* A graph of two images of 8 x 8 pixels, `src`. */
static inline struct dt_graph *begin_small(enum dt_phase phase, int *src)
{
    static const double mean[3] = {0, 0, 0}, std[3] = {1, 1, 1};
    struct dt_graph *g;
    assert_ok(dt_graph_create(&g));
    assert_ok(dt_graph_begin(g, phase, 2, 8, 8));
    *src = dt_graph_ingest(g, mean, std);
    return g;
}

/* A test that begins with such a graph, `g`, and destroys it itself. */
#define GRAPH_TEST(NAME, PHASE)                                 \
    static void test_graph_##NAME(struct dt_graph *g, int src); \
    TEST(NAME)                                                  \
    {                                                           \
        int src;                                                \
        struct dt_graph *g = begin_small(PHASE, &src);          \
        test_graph_##NAME(g, src);                              \
    }                                                           \
    static void test_graph_##NAME(struct dt_graph *g, int src)

/* "op name: src src -> dst dst\n" for nodes first .. n_nodes-1, without attributes. */
static inline void describe_nodes(const struct dt_graph *g, int first, char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = first; i < g->n_nodes && used < bytes; i++) {
        const struct dt_node *node = &g->node[i];
        used += (size_t)snprintf(out + used, bytes - used, "%s%s%s %s:", dt_op_name(node->op),
                                 node->activation == DT_RELU ? "+relu" : "",
                                 node->residual ? "+residual" : "", node->name);
        for (int k = 0; k < node->n_src + node->n_dst && used < bytes; k++) {
            int id = k < node->n_src ? node->src[k] : node->dst[k - node->n_src];
            if (id < 0)
                continue;
            used += (size_t)snprintf(out + used, bytes - used, "%s %s",
                                     k == node->n_src ? " ->" : "", g->tensor[id].name);
        }
        if (used < bytes)
            used += (size_t)snprintf(out + used, bytes - used, "\n");
    }
    assert_true(used < bytes);
}

/* Counts the nodes of one phase with this op; relu and residual: 0, 1, or -1 for either. */
static inline int count_nodes(const struct dt_graph *g, enum dt_phase phase, enum dt_op op,
                              int relu, int residual)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        n += node->phase == phase && node->op == op &&
             (relu < 0 || (node->activation == DT_RELU) == (relu == 1)) &&
             (residual < 0 || node->residual == (residual == 1));
    }
    return n;
}

/* Every tensor is written at most once, before it is read and in the same phase. */
static inline void check_order(const struct dt_graph *g)
{
    int *writer = calloc((size_t)g->n_tensors, sizeof *writer);
    assert_non_null(writer);
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        for (int k = 0; k < node->n_src; k++) {
            if (node->src[k] < 0)
                continue;
            const struct dt_tensor *t = &g->tensor[node->src[k]];
            if (t->role == DT_INPUT || t->role == DT_PARAM || t->role == DT_STAT)
                continue;
            if (!writer[node->src[k]])
                fail_msg("%s reads %s before it is written", node->name, t->name);
            assert_int_equal(g->node[writer[node->src[k]] - 1].phase, node->phase);
        }
        for (int k = 0; k < node->n_dst; k++) {
            if (writer[node->dst[k]])
                fail_msg("%s is written twice", g->tensor[node->dst[k]].name);
            writer[node->dst[k]] = i + 1;
        }
    }
    free(writer);
}

static inline bool same_shape(const struct dt_tensor *a, const struct dt_tensor *b)
{
    return a->n_dims == b->n_dims && memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

/* Readers and writers of gradients: every DIFF is written once and read; every trained parameter of
 * the training phase has one DIFF_PARAM, written once and never read; shapes agree; a tensor saved
 * by a node is read by exactly one backward node, the matches of boxes by all losses. */
static inline void check_gradients(const struct dt_graph *g)
{
    int *n_reads = calloc((size_t)g->n_tensors, sizeof *n_reads);
    int *n_writes = calloc((size_t)g->n_tensors, sizeof *n_writes);
    bool *is_match = calloc((size_t)g->n_tensors, sizeof *is_match);
    assert_true(n_reads && n_writes && is_match);
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        for (int k = 0; k < node->n_src; k++)
            if (node->src[k] >= 0)
                n_reads[node->src[k]] += node->phase == DT_TRAIN;
        for (int k = 0; k < node->n_dst; k++)
            n_writes[node->dst[k]] += node->phase == DT_TRAIN;
        for (int k = 0; k < node->n_dst && node->op == DT_OP_MATCH; k++)
            is_match[node->dst[k]] = true;
    }
    for (int i = 0; i < g->n_tensors; i++) {
        const struct dt_tensor *t = &g->tensor[i];
        if (t->role == DT_PARAM && t->frozen) {
            assert_int_equal(t->diff, -1);
        } else if (t->role == DT_PARAM) {
            const struct dt_tensor *diff = &g->tensor[t->diff];
            assert_in_range(t->diff, 0, g->n_tensors - 1);
            assert_int_equal(diff->role, DT_DIFF_PARAM);
            assert_int_equal(diff->diff, i);
            assert_true(same_shape(t, diff));
        } else if (t->role == DT_DIFF_PARAM) {
            assert_int_equal(g->tensor[t->diff].diff, i);
            assert_int_equal(n_writes[i], 1);
            assert_int_equal(n_reads[i], 0);
        } else if (t->role == DT_DIFF_TERM) {
            assert_int_equal(n_writes[i], 1);
            assert_int_equal(n_reads[i], 1);
            assert_true(same_shape(&g->tensor[t->diff], t));
        } else if (t->role == DT_DIFF) {
            char name[DT_NAME_MAX];
            assert_int_equal(n_writes[i], 1);
            if (n_reads[i] == 0)
                fail_msg("%s is never read", t->name);
            assert_memory_equal(t->name, "diff_", 5);
            memcpy(name, t->name + 5, sizeof name - 5);
            name[strcspn(name, "#")] = '\0';
            assert_in_range(dt_graph_find(g, name), 0, g->n_tensors - 1);
            assert_true(same_shape(&g->tensor[dt_graph_find(g, name)], t));
        } else if (t->role == DT_SAVED && n_writes[i] > 0) {
            assert_int_equal(n_writes[i], 1);
            assert_true(is_match[i] ? n_reads[i] > 1 : n_reads[i] == 1);
        }
    }
    free(n_reads);
    free(n_writes);
    free(is_match);
}

static inline bool is_forward(enum dt_op op)
{
    return op <= DT_OP_SOFTMAX_XENT;
}

static inline bool is_loss(const struct dt_graph *g, const struct dt_node *node)
{
    return is_forward(node->op) && node->n_dst > 0 && g->tensor[node->dst[0]].role == DT_DIFF &&
           g->tensor[node->src[0]].role == DT_ACT;
}

/* With every op replaced by the sum of its sources, the gradient of a parameter is the number of
 * paths from it to the losses. Counts them on the forward nodes and by running the backward nodes.
 */
static inline void check_paths(const struct dt_graph *g)
{
    double *n_paths = calloc((size_t)g->n_tensors, sizeof *n_paths);
    double *diff = calloc((size_t)g->n_tensors, sizeof *diff);
    assert_true(n_paths && diff);
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const struct dt_node *node = &g->node[i];
        bool gradient = node->n_dst > 0 && g->tensor[node->dst[0]].role == DT_DIFF;
        if (is_loss(g, node))
            n_paths[node->src[0]]++;
        if (node->phase != DT_TRAIN || !is_forward(node->op) || gradient)
            continue;
        for (int k = 0; k < node->n_src; k++)
            n_paths[node->src[k]] += n_paths[node->dst[0]];
    }
    for (int i = 0; i < g->n_nodes; i++) {
        const struct dt_node *node = &g->node[i];
        bool second = node->op == DT_OP_CONV_BWD_WEIGHTS || node->op == DT_OP_LINEAR_BWD_WEIGHTS ||
                      node->op == DT_OP_BN_BWD || node->op == DT_OP_GROUP_NORM_BWD ||
                      node->op == DT_OP_LAYER_NORM_BWD;
        double sum = diff[node->src[second ? 1 : 0]];
        if (is_loss(g, node))
            sum = 1;
        else if (node->op == DT_OP_ADD)
            sum += diff[node->src[1]];
        else if (node->op == DT_OP_ACTIVATION_BWD && node->src[DT_ACTIVATION_BWD_DIFF_DST2] >= 0)
            sum += diff[node->src[DT_ACTIVATION_BWD_DIFF_DST2]];
        else if (node->op == DT_OP_BN_BWD && node->src[DT_BN_BWD_DIFF_DST2] >= 0)
            sum += diff[node->src[DT_BN_BWD_DIFF_DST2]];
        for (int k = 1; k < node->n_src && node->op == DT_OP_SUM_GRADS; k++)
            sum += diff[node->src[k]];
        for (int k = 0; k < node->n_dst; k++)
            diff[node->dst[k]] = sum;
        if (node->op == DT_OP_BN_BWD && node->src[DT_BN_BWD_ADDEND] >= 0)
            diff[node->dst[DT_BN_BWD_DIFF_SRC]] += diff[node->src[DT_BN_BWD_ADDEND]];
    }
    for (int i = 0; i < g->n_tensors; i++) {
        if (g->tensor[i].role == DT_PARAM && !g->tensor[i].frozen) {
            assert_true(n_paths[i] >= 1);
            assert_true(diff[g->tensor[i].diff] == n_paths[i]);
        }
    }
    free(n_paths);
    free(diff);
}

static inline void check_differentiated(const struct dt_graph *g)
{
    check_order(g);
    check_gradients(g);
    check_paths(g);
}

#endif
