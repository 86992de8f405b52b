/* Inside of the graph module: the op table, drafts of nodes, and the book of gradients.
 *
 * An op's builder, shape inference, count of operations and gradient rule stand together in the
 * file of its family: conv.c, norm.c, pool.c, pointwise.c, linear.c, loss.c. */
#ifndef DTRAIN_GRAPH_INTERNAL_H
#define DTRAIN_GRAPH_INTERNAL_H

#include "dtrain/graph.h"

struct dt_autodiff;

/* What a family says of one op. Pointers may be NULL: then dst[0] has the shape of src[0],
 * `per_element` counts, and there is no gradient (backward ops). */
struct dt_op_rule {
    /* dims of dst[0] from those of src[0], which `dim` holds at entry; checks the other sources. */
    dt_status (*infer)(const struct dt_graph *g, const struct dt_node *node, int dim[4]);
    /* Exact for convolution and linear (2 per multiply-add), which dominate the time; the other ops
     * are bound by bytes and count `per_element`, a nominal number, for every element of src[0]. */
    double (*flops)(const struct dt_graph *g, const struct dt_node *node);
    double per_element;
    /* Appends the backward nodes. Errors are remembered by the graph. */
    void (*gradient)(struct dt_autodiff *ad, const struct dt_node *node);
};

/* dt_rule_conv and so on, one per row of DT_OP_LIST. */
#define DT_RULE_DECLARE(NAME, name, ...) extern const struct dt_op_rule dt_rule_##name;
DT_OP_LIST(DT_RULE_DECLARE)
#undef DT_RULE_DECLARE

struct dt_op_row {
    const char *name;
    int min_src, max_src, min_dst, max_dst;
    unsigned inplace;
    const struct dt_op_rule *rule;
};

const struct dt_op_row *dt_op_row(enum dt_op op);

/* --- graph.c --- */
/* Remembers the error that was just recorded (the first one wins). */
void dt_graph_remember(struct dt_graph *g, dt_status status);
/* Id of the tensor of that name and role, -1 if absent. */
int dt_graph_find_role(const struct dt_graph *g, const char *name, enum dt_role role);

/* --- ops.c: what the builders are made of. A builder starts a draft of its node, adds parameters,
 * lets the rule infer dst[0] and commits the node. --- */
/* False if the graph has an error already or gets one here: `src` must be a forward value. */
bool dt_draft_begin(struct dt_graph *g, struct dt_node *draft, enum dt_op op, const char *name,
                    int src);
/* Adds a source: the parameter or statistic "<node>.<suffix>". One that exists from the other phase
 * is shared; its shape must agree. */
void dt_draft_param(struct dt_graph *g, struct dt_node *draft, const char *suffix,
                    enum dt_role role, int n_dims, const int dim[4], struct dt_init init);
/* Adds a destination "<node><suffix>" of the given shape. */
void dt_draft_dst(struct dt_graph *g, struct dt_node *draft, const char *suffix, enum dt_role role,
                  enum dt_dtype dtype, int n_dims, const int dim[4]);
/* dst[0], with the dims of the rule; `dim` (may be NULL) holds them at return. */
void dt_draft_infer(struct dt_graph *g, struct dt_node *draft, int dim[4]);
/* Adds the node; returns the id of dst[0], -1 if there is none or after an error. */
int dt_draft_commit(struct dt_graph *g, const struct dt_node *draft);

/* Shape of windows of kernel x kernel over dim[2] x dim[3]: infer of convolution and pooling. */
dt_status dt_infer_window(const struct dt_node *node, int dim[4], int kernel, int stride, int pad);

/* Operations of convolution and linear: flops of dst = src * weights, of its data gradient and of
 * its weight gradient. */
double dt_flops_forward(const struct dt_graph *g, const struct dt_node *node);
double dt_flops_bwd_data(const struct dt_graph *g, const struct dt_node *node);
double dt_flops_bwd_weights(const struct dt_graph *g, const struct dt_node *node);

/* --- autodiff.c: the book of gradients. A value is a forward tensor, a diff its gradient. --- */
/* Does the tensor depend on a parameter? Then its gradient is wanted. */
bool dt_autodiff_needs(const struct dt_autodiff *ad, int value);
/* A new gradient tensor shaped as `value`; of a parameter: its DIFF_PARAM. */
int dt_autodiff_new(struct dt_autodiff *ad, int value);
int dt_autodiff_new_param(struct dt_autodiff *ad, int param);
/* One reader of `value` contributes `diff`; ignored where no gradient is wanted. */
void dt_autodiff_give(struct dt_autodiff *ad, int value, int diff);
/* The gradient of dst[0], summed by an add node where several readers gave one; of a node with a
 * fused ReLU, the gradient before that ReLU. */
int dt_autodiff_take(struct dt_autodiff *ad, const struct dt_node *node);
/* The gradient of `value` as one or two terms that the caller sums itself; returns how many. */
int dt_autodiff_take_terms(struct dt_autodiff *ad, int value, int term[2]);
/* A relu_bwd node for `node`, which sums the terms; its result is shaped and named as `value`. */
int dt_autodiff_through_relu(struct dt_autodiff *ad, const struct dt_node *node, int value);
/* Appends a backward node of `node`, with its name and attributes; NULL after an error. */
struct dt_node *dt_autodiff_append(struct dt_autodiff *ad, enum dt_op op,
                                   const struct dt_node *node, int n_src, const int *src, int n_dst,
                                   const int *dst);
/* The gradient rule of an op with one backward node: diff_dst [saved] -> gradient of src[0]; saved
 * is a tensor, or -1. */
void dt_autodiff_one_to_one(struct dt_autodiff *ad, enum dt_op op, const struct dt_node *node,
                            int saved);
/* The gradient rule of convolution and linear, whose sources are src weights [bias]. */
void dt_autodiff_weights_then_data(struct dt_autodiff *ad, const struct dt_node *node,
                                   enum dt_op bwd_weights, enum dt_op bwd_data);

#endif
