/* Inside of the graph module: the op table and what the gradient rules are written with. */
#ifndef DTRAIN_GRAPH_OPS_H
#define DTRAIN_GRAPH_OPS_H

#include "dtrain/graph.h"

struct dt_autodiff;

/* One row per op of DT_OP_LIST. Pointers may be NULL: backward ops infer nothing, have no gradient.
 */
struct dt_op_row {
    const char *name;
    int min_src, max_src, min_dst, max_dst;
    unsigned inplace;
    /* dims of dst[0] from those of src[0], which `dim` holds at entry; checks the other sources. */
    dt_status (*infer)(const struct dt_graph *g, const struct dt_node *node, int dim[4]);
    /* Exact for convolution and linear (2 per multiply-add); the other ops count `per_element`, a
     * nominal number, for every element of src[0]. */
    double (*flops)(const struct dt_graph *g, const struct dt_node *node);
    double per_element;
    /* Appends the backward nodes. Errors are remembered by the graph. */
    void (*gradient)(struct dt_autodiff *ad, const struct dt_node *node);
};

const struct dt_op_row *dt_op_row(enum dt_op op);

/* Remembers the error that was just recorded (the first one wins). */
void dt_graph_remember(struct dt_graph *g, dt_status status);
/* Id of the tensor of that name and role, -1 if absent. */
int dt_graph_find_role(const struct dt_graph *g, const char *name, enum dt_role role);

/* --- autodiff.c: the book of gradients. A value is a forward tensor, a diff its gradient. --- */
struct dt_graph *dt_autodiff_graph(struct dt_autodiff *ad);
/* Does the tensor depend on a parameter? Then its gradient is wanted. */
bool dt_autodiff_needs(const struct dt_autodiff *ad, int value);
/* A new gradient tensor shaped as `value`; of a parameter: its DIFF_PARAM. */
int dt_autodiff_new(struct dt_autodiff *ad, int value);
int dt_autodiff_new_param(struct dt_autodiff *ad, int param);
/* One reader of `value` contributes `diff`; ignored where no gradient is wanted. */
void dt_autodiff_give(struct dt_autodiff *ad, int value, int diff);
/* The gradient of `value`, summed by an add node where several readers gave one. */
int dt_autodiff_take(struct dt_autodiff *ad, int value);
/* The gradient as one or two terms that the caller sums itself; returns how many. */
int dt_autodiff_take_terms(struct dt_autodiff *ad, int value, int term[2]);

/* --- gradients.c: the rules named in the op table. --- */
void dt_gradient_conv(struct dt_autodiff *ad, const struct dt_node *node);
void dt_gradient_bn(struct dt_autodiff *ad, const struct dt_node *node);
void dt_gradient_relu(struct dt_autodiff *ad, const struct dt_node *node);
void dt_gradient_add(struct dt_autodiff *ad, const struct dt_node *node);
void dt_gradient_max_pool(struct dt_autodiff *ad, const struct dt_node *node);
void dt_gradient_avg_pool(struct dt_autodiff *ad, const struct dt_node *node);
void dt_gradient_linear(struct dt_autodiff *ad, const struct dt_node *node);
void dt_gradient_dropout(struct dt_autodiff *ad, const struct dt_node *node);
void dt_gradient_softmax_xent(struct dt_autodiff *ad, const struct dt_node *node);

#endif
