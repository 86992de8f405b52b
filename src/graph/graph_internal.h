/* Internals of the graph module: the op table, node drafts, and bookkeeping of gradients.
 *
 * An op's shape inference, operation count and gradient rule, and its builder unless that is a
 * wrapper in dtrain/graph.h, are together in the file of its family: conv.c, norm.c, pool.c,
 * pointwise.c, branch.c, concat.c, linear.c, loss.c, detect.c. */
#ifndef DTRAIN_GRAPH_GRAPH_INTERNAL_H
#define DTRAIN_GRAPH_GRAPH_INTERNAL_H

#include "dtrain/graph.h"

struct dt_autodiff;

/* The rule of one op. Pointers may be NULL, with these defaults: dst[0] has the shape of src[0],
 * the operation count follows from `per_element`, and there is no gradient (backward ops). */
struct dt_op_rule {
    /* Turns `dim` from the dims of src[0] into those of dst[0]; checks attributes and sources. */
    dt_status (*infer)(const struct dt_graph *g, const struct dt_node *node, int dim[4]);
    /* Adds the destinations that are saved for the backward pass, in training; dim: of dst[0]. */
    void (*save)(struct dt_graph *g, struct dt_node *draft, const int dim[4]);
    /* Exact for convolution and linear (2 per multiply-add), which dominate the time; the other ops
     * are memory-bound and count `per_element`, a nominal number, per element of src[0]. */
    double (*flops)(const struct dt_graph *g, const struct dt_node *node);
    double per_element;
    /* The forward node computes gradients itself, as dst, and nothing reads it: where
     * differentiation begins. */
    bool is_loss;
    /* Appends the backward nodes. Errors are remembered by the graph. */
    void (*gradient)(struct dt_autodiff *ad, const struct dt_node *node);
};

/* dt_rule_conv and so on, one per row of DT_OP_LIST. */
#define DT_RULE_DECLARE(NAME, name, ...) extern const struct dt_op_rule dt_rule_##name;
DT_OP_LIST(DT_RULE_DECLARE)
#undef DT_RULE_DECLARE

struct dt_op_row {
    const char *name;
    const char *src, *dst;
    unsigned in_place;
    const struct dt_op_rule *rule;
};

const struct dt_op_row *dt_op_row(enum dt_op op);

/* --- graph.c --- */
/* Remembers the error that was just recorded (the first one wins). */
void dt_graph_remember(struct dt_graph *g, dt_status status);
/* Removes all destinations of a forward node but dst[0]: nothing is saved for a backward pass. */
void dt_node_save_nothing(struct dt_node *node);
/* Id of the tensor of that name and role, -1 if absent. */
int dt_graph_find_role(const struct dt_graph *g, const char *name, enum dt_role role);

/* --- draft.c: what dt_graph_op consists of, for builders with parameters or destinations of their
 * own: they begin a draft, a node with op and attributes, add to it, and commit it. --- */
/* Adds the name and the sources; false if the graph already has an error or gets one here because
 * one of these is not a forward value. */
bool dt_draft_begin(struct dt_graph *g, struct dt_node *draft, const char *name, int n_src,
                    const int *src);
/* Adds a source: the parameter or statistic "<module>.<suffix>"; module NULL: the node. If another
 * program has already created it, it is shared, and within a program if it is another module's; the
 * shapes must agree. */
void dt_draft_param(struct dt_graph *g, struct dt_node *draft, const char *module,
                    const char *suffix, enum dt_role role, int n_dims, const int dim[4],
                    struct dt_init init);
/* The same with a constant for every one of n channels. */
void dt_draft_vector(struct dt_graph *g, struct dt_node *draft, const char *module,
                     const char *suffix, enum dt_role role, int n, double value);
/* Adds a destination "<node><suffix>" of the given shape. */
void dt_draft_dst(struct dt_graph *g, struct dt_node *draft, const char *suffix, enum dt_role role,
                  enum dt_dtype dtype, int n_dims, const int dim[4]);
/* Adds the node, of which an op but a loss gets its destinations by the rule if it has none;
 * returns the id of dst[0], -1 if there is none or after an error. */
int dt_draft_commit(struct dt_graph *g, struct dt_node *draft);

/* --- loss.c: shared by all losses --- */
/* Adds, in training, the gradient of src[0] as dst[0], and then the node. */
void dt_draft_commit_loss(struct dt_graph *g, struct dt_node *draft);
/* The gradient rule of a loss: the forward node has already computed that. */
void dt_gradient_of_loss(struct dt_autodiff *ad, const struct dt_node *node);

/* The check of attr dropout. */
dt_status dt_infer_drop(const struct dt_graph *g, const struct dt_node *node, int dim[4]);

/* Output size of kernel x kernel windows over dim[2] x dim[3], for convolution and pooling; kernel:
 * of the dilated window. */
dt_status dt_infer_window(const struct dt_node *node, int dim[4], int kernel, int stride, int pad);

/* Operation count of convolution and linear: dst = src * weights, its data gradient and its weight
 * gradient. */
double dt_flops_forward(const struct dt_graph *g, const struct dt_node *node);
double dt_flops_bwd_data(const struct dt_graph *g, const struct dt_node *node);
double dt_flops_bwd_weights(const struct dt_graph *g, const struct dt_node *node);

/* --- autodiff.c: bookkeeping of gradients. A value is a forward tensor, a diff its gradient. ---
 */
const struct dt_graph *dt_autodiff_graph(const struct dt_autodiff *ad);
/* True if the tensor depends on a parameter that is trained, so that its gradient is needed. */
bool dt_autodiff_needs(const struct dt_autodiff *ad, int value);
/* A new gradient tensor shaped like `value`; for a parameter its DIFF_PARAM or, if several nodes of
 * the program share it, one of the terms that sum_grads adds up. */
int dt_autodiff_new(struct dt_autodiff *ad, int value);
int dt_autodiff_new_param(struct dt_autodiff *ad, int param);
/* One reader of `value` contributes `diff`; ignored if no gradient is needed. */
void dt_autodiff_give(struct dt_autodiff *ad, int value, int diff);
/* The gradient of dst[0], summed by an add node if several readers contributed; for a node with a
 * fused ReLU, the gradient before that ReLU. */
int dt_autodiff_take(struct dt_autodiff *ad, const struct dt_node *node);
/* The gradient of `value` as one or two terms that the caller sums itself; -1: no second one. */
void dt_autodiff_take_terms(struct dt_autodiff *ad, int value, int term[2]);
/* The gradient of `value` so far, if it is one term, for a node that adds it to the term that it
 * gives; else -1. */
int dt_autodiff_take_addend(struct dt_autodiff *ad, int value);
/* An activation_bwd node for `node`, which sums the terms; its result is shaped and named like
 * `value`. */
int dt_autodiff_through_activation(struct dt_autodiff *ad, const struct dt_node *node, int value);
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
