/* Single-op cases as graphs: the builder of an op (in the header of its family) makes one forward
 * node and its backward nodes by hand, from the pieces here. */
#ifndef DTRAIN_TESTS_OP_BUILD_H
#define DTRAIN_TESTS_OP_BUILD_H

#include <string.h>

#include "dtrain/graph.h"

enum {
    F_BIAS = 1,
    F_RELU = 2,
    F_RESIDUAL = 4,
    F_EVAL = 8,
    F_IGNORE = 16,    /* some labels are -1 */
    F_TWO = 32,       /* activation_bwd and bn_bwd sum two gradients */
    F_COPY = 64,      /* src comes out of a convolution, in the format that one prefers */
    F_MIXED = 128,    /* labels2 and mix_share */
    F_WEIGHTS = 256,  /* class_weights */
    F_CONST = 512,    /* a frozen norm, without eps */
    F_SIZES = 1024,   /* images smaller than the canvas */
    F_FAR = 2048,     /* src is far from zero */
    F_CEIL = 8192,    /* max_pool: the last window hangs over the end */
    F_ADDEND = 16384, /* bn_bwd adds its gradient to another */
    F_COARSE = 4096,  /* matrices of multiples of 1/8: convolutions are exact, and ties are many */
};

/* Of convolutions, 0 means 1; of bn. */
#define F_GROUPS(n)        ((unsigned)(n) << 20)
#define F_DILATION(n)      ((unsigned)(n) << 28)
#define F_ACTIVATION(kind) ((unsigned)(kind) << 20)

/* A row of cases: what an op does not use is 0. */
struct op_case {
    int n, c, h, w; /* src */
    int k;          /* output channels, features or size */
    int kernel, stride, pad;
    unsigned flags;
    double smoothing;
};

#define COPY_WEIGHTS "copy_weights"
#define FAR_SRC      "far_src"

typedef void case_build_fn(struct dt_graph *g, const struct op_case *c);

static int add4(struct dt_graph *g, const char *name, enum dt_role role, int n, int c, int h, int w)
{
    const int dim[4] = {n, c, h, w};
    return dt_graph_tensor(g, name, role, DT_F32, 4, dim);
}

static int add1(struct dt_graph *g, const char *name, enum dt_role role, int n)
{
    const int dim[4] = {n, 1, 1, 1};
    return dt_graph_tensor(g, name, role, DT_F32, 1, dim);
}

static int add_like(struct dt_graph *g, const char *name, enum dt_role role, enum dt_dtype dtype,
                    int other)
{
    int dim[4];
    if (other < 0)
        return -1;
    memcpy(dim, g->tensor[other].dim, sizeof dim);
    int n_dims = g->tensor[other].n_dims;
    return dt_graph_tensor(g, name, role, dtype, n_dims, dim);
}

static int add_diff_param(struct dt_graph *g, const char *name, int param)
{
    int diff = add_like(g, name, DT_DIFF_PARAM, DT_F32, param);
    if (diff >= 0) {
        g->tensor[diff].diff = param;
        g->tensor[param].diff = diff;
    }
    return diff;
}

/* A node with the attributes of `like`, NULL: without. */
static void add_node(struct dt_graph *g, const struct dt_node *like, enum dt_op op, int n_src,
                     const int *src, int n_dst, const int *dst)
{
    struct dt_node *node = dt_graph_node(g, op, "case", n_src, src, n_dst, dst);
    if (!node || !like)
        return;
    node->attr = like->attr;
    node->activation = like->activation;
    node->residual = like->residual;
}

/* With F_COPY, src is an exact copy made by a 1x1 convolution (fill_inputs sets its weights to the
 * identity): the same values in the format a network has there. */
static int add_src(struct dt_graph *g, const struct op_case *c)
{
    const struct dt_node copy = {.attr.conv = {.stride = 1, .dilation = 1}};
    int src = add4(g, c->flags & F_FAR ? FAR_SRC : "src", DT_ACT, c->n, c->c, c->h, c->w);
    if (c->flags & F_COPY) {
        int from[2] = {add_like(g, c->flags & F_FAR ? FAR_SRC : "copy_src", DT_ACT, DT_F32, src),
                       add4(g, COPY_WEIGHTS, DT_PARAM, c->c, c->c, 1, 1)};
        add_node(g, &copy, DT_OP_CONV, 2, from, 1, &src);
    }
    return src;
}

static int window_out(int in, const struct op_case *c)
{
    const int more = c->flags & F_CEIL ? c->stride - 1 : 0;
    return (in + 2 * c->pad - c->kernel + more) / c->stride + 1;
}

#endif
