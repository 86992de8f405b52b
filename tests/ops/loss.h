/* Softmax cross entropy. */
#ifndef DTRAIN_TESTS_OPS_LOSS_H
#define DTRAIN_TESTS_OPS_LOSS_H

#include "op_cases.h"

static void build_softmax_xent(struct dt_graph *g, const struct op_case *c)
{
    const struct dt_node like = {.attr.xent.smoothing = (float)c->smoothing};
    if (c->flags & F_MIXED)
        (void)dt_graph_mix_labels(g);
    if (c->flags & F_WEIGHTS)
        (void)dt_graph_weigh_classes(g, c->c);
    const struct dt_program *p = dt_graph_program(g);
    int src[5] = {add_src(g, c), p->labels, p->labels2, p->mix_share, p->class_weights};
    int diff = add_like(g, "diff_src", DT_DIFF, DT_F32, src[0]);
    add_node(g, &like, DT_OP_SOFTMAX_XENT, 5, src, c->flags & F_EVAL ? 0 : 1, &diff);
}

static double ref_weight(const struct ref *r, const struct dt_node *node, int k)
{
    const double *weights = ref_src(r, node, DT_XENT_CLASS_WEIGHTS);
    return weights ? weights[k] : 1;
}

/* Target of the class: (1 - s) * onehot(label) + s / classes, as PyTorch's label_smoothing, times
 * the class weight; with mixed labels onehot is that of two, each by its share. */
static double ref_target(const struct ref *r, const struct dt_node *node, int row, int k)
{
    const int classes = ref_dim(r, node->src[0])[1];
    const double *labels2 = ref_src(r, node, DT_XENT_LABELS2);
    double smoothing = (double)node->attr.xent.smoothing;
    double share = labels2 ? ref_src(r, node, DT_XENT_MIX_SHARE)[row] : 1;
    double onehot = k == (int)ref_src(r, node, DT_XENT_LABELS)[row] ? share : 0;
    if (labels2 && k == (int)labels2[row])
        onehot += 1 - share;
    return ref_weight(r, node, k) * ((1 - smoothing) * onehot + smoothing / classes);
}

static void ref_softmax_xent(struct ref *r, const struct dt_node *node)
{
    const int *dim = ref_dim(r, node->src[0]);
    for (int b = 0; b < dim[0]; b++) {
        const double *logits = ref_src(r, node, 0) + (size_t)b * (size_t)dim[1];
        int label = (int)ref_src(r, node, DT_XENT_LABELS)[b], n_above = 0;
        double top = -INFINITY, sum = 0, loss = 0, all = 0;
        for (int k = 0; k < dim[1]; k++)
            top = fmax(top, logits[k]);
        for (int k = 0; k < dim[1]; k++)
            sum += exp(logits[k] - top);
        for (int k = 0; k < dim[1]; k++)
            all += ref_target(r, node, b, k);
        for (int k = 0; k < dim[1]; k++) {
            double target = ref_target(r, node, b, k);
            double log_p = logits[k] - top - log(sum);
            loss -= target * log_p;
            n_above += label >= 0 && logits[k] > logits[label];
            if (ref_dst(r, node, 0))
                ref_dst(r, node, 0)[(size_t)b * (size_t)dim[1] + (size_t)k] =
                    label < 0 ? 0 : (all * exp(log_p) - target) * r->diff_scale;
        }
        if (label < 0)
            continue;
        r->counters.n++;
        r->counters.n_finite++;
        r->counters.loss += loss;
        r->counters.weight += ref_src(r, node, DT_XENT_LABELS2) ? 1 : ref_weight(r, node, label);
        r->counters.top1 += n_above < 1;
        r->counters.top5 += n_above < 5;
    }
}

static const struct op_case softmax_xent_cases[] = {
    {4, 2, 1, 1, 0, 0, 0, 0, 0, 0},
    {16, 10, 1, 1, 0, 0, 0, 0, 0, 0},
    {16, 10, 1, 1, 0, 0, 0, 0, F_IGNORE, 0.1},
    {8, 1000, 1, 1, 0, 0, 0, 0, F_IGNORE, 0.1},
    {7, 1000, 1, 1, 0, 0, 0, 0, 0, 0},
    {5, 4, 1, 1, 0, 0, 0, 0, F_IGNORE, 0.2},
    {1, 17, 1, 1, 0, 0, 0, 0, 0, 0.05},
    {33, 10, 1, 1, 0, 0, 0, 0, F_EVAL | F_IGNORE, 0.1},
    {3, 1000, 1, 1, 0, 0, 0, 0, F_EVAL, 0},
    /* With few classes some rows have the same label twice. */
    {15, 2, 1, 1, 0, 0, 0, 0, F_MIXED, 0},
    {33, 3, 1, 1, 0, 0, 0, 0, F_MIXED | F_IGNORE, 0.1},
    {7, 1000, 1, 1, 0, 0, 0, 0, F_MIXED, 0.1},
    {21, 17, 1, 1, 0, 0, 0, 0, F_MIXED | F_IGNORE, 0},
    {9, 10, 1, 1, 0, 0, 0, 0, F_MIXED | F_EVAL, 0.1},
    {16, 10, 1, 1, 0, 0, 0, 0, F_WEIGHTS, 0},
    {33, 2, 1, 1, 0, 0, 0, 0, F_WEIGHTS | F_IGNORE, 0.1},
    {8, 1000, 1, 1, 0, 0, 0, 0, F_WEIGHTS, 0.1},
    {21, 17, 1, 1, 0, 0, 0, 0, F_WEIGHTS | F_MIXED | F_IGNORE, 0.1},
    {9, 10, 1, 1, 0, 0, 0, 0, F_WEIGHTS | F_EVAL, 0.1},
};

OP_TEST(softmax_xent, build_softmax_xent, false)

static const struct op_test op_test_softmax_xent = {
    .whole = ref_softmax_xent, .bound = 1e-5, .n_roundings = 1, .tests = {TEST_OF(softmax_xent)}};

#endif
