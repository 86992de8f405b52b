/* The graph: ops and tensors as shapes only, independent of memory and device.
 *
 * A graph holds the nodes of several programs over one set of parameters. A program is a phase,
 * DT_TRAIN (forward, loss, backward) or DT_EVAL (forward, counting), for one batch and size of
 * images; only one runs at a time. Ids are indices; nodes are in execution order within their
 * program. Shapes are logical (N, C, H, W); memory formats belong to the backend. */
#ifndef DTRAIN_GRAPH_H
#define DTRAIN_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "dtrain/activation.h"
#include "dtrain/anchors.h"
#include "dtrain/columns.h"
#include "dtrain/dtype.h"

enum { DT_NAME_MAX = 64, DT_MAX_SRC = 9, DT_MAX_DST = 4, DT_MAX_PROGRAMS = 12 };

enum dt_phase { DT_TRAIN, DT_EVAL, DT_N_PHASES };
enum dt_role {
    DT_INPUT,      /* filled by the caller before a run: pixels, labels, labels2, ... */
    DT_PARAM,      /* trained */
    DT_STAT,       /* running mean and variance, all of a frozen norm: saved, not trained */
    DT_ACT,        /* forward value */
    DT_SAVED,      /* kept by a forward op for its backward: mean, variance, workspace */
    DT_DIFF,       /* gradient of a forward value */
    DT_DIFF_PARAM, /* gradient of a parameter; lives in the grads arena */
    DT_DIFF_TERM,  /* one of several summands of such a gradient, in the parameter's format */
    DT_OUTPUT,     /* read by the caller after a run, in plain order: detections */
};

/* Initial value of a parameter or statistic. */
enum dt_init_kind { DT_INIT_CONSTANT, DT_INIT_NORMAL, DT_INIT_UNIFORM };
struct dt_init {
    enum dt_init_kind kind;
    double value; /* the constant; standard deviation; bound of uniform(-bound, bound) */
};

struct dt_tensor {
    char name[DT_NAME_MAX]; /* PARAM, STAT: torchvision's name; gradients: "diff_" + name */
    enum dt_dtype dtype;
    enum dt_role role;
    int n_dims;  /* as saved: linear weights 2, conv weights 4, bias 1 */
    int dim[4];  /* N C H W, O I H W, or trailing ones */
    bool decay;  /* PARAM: weight decay applies by default (weights of conv and linear) */
    float rate;  /* PARAM: factor on the learning rate, 1 */
    bool frozen; /* PARAM: not trained; it has no gradient (dt_graph_freeze) */
    struct dt_init init;
    int whole; /* ACT, DIFF: the tensor whose first channels it is, in its memory (dt_graph_share);
                  -1 = none */
    int diff;  /* PARAM: its DIFF_PARAM, -1 before autodiff; DIFF_PARAM, DIFF_TERM: its PARAM */
};

/* Whether it has one value per channel, whatever shape it is saved in (C, or C x 1 x 1 as
 * ConvNeXt's layer scale). Such a parameter and its gradient are fp32 in every precision and in
 * plain order, and weight decay does not apply to it by default. */
static inline bool dt_tensor_is_vector(const struct dt_tensor *t)
{
    return t->n_dims == 1 || (t->n_dims == 3 && t->dim[1] == 1 && t->dim[2] == 1);
}

/* --- Operands: indices of a node's src and, where there are several, dst. The op's row says how
 * many are required; the others are optional, and -1 where absent. --- */

/* ingest: u8 N,H,W,C to normalised f32; zero outside of sizes. */
enum { DT_INGEST_PIXELS, DT_INGEST_SIZES };
/* conv: attr conv, weights O x (C / groups) x H x W; ReLU fused after the bias. linear: weights
 * O x (C*H*W). */
enum { DT_CONV_SRC, DT_CONV_WEIGHTS, DT_CONV_BIAS, DT_CONV_DST = 0 };
enum { DT_LINEAR_SRC, DT_LINEAR_WEIGHTS, DT_LINEAR_BIAS };
/* The gradients of conv and linear: by data and by weights. */
enum { DT_BWD_DATA_DIFF_DST, DT_BWD_DATA_WEIGHTS, DT_BWD_DATA_DIFF_SRC = 0 };
enum { DT_BWD_WEIGHTS_SRC, DT_BWD_WEIGHTS_DIFF_DST };
enum { DT_BWD_DIFF_WEIGHTS, DT_BWD_DIFF_BIAS };
/* bn: updates running_*; with dst only (evaluation, or frozen) it normalises by them. The residual
 * is added before the ReLU; mask: where that is active. */
enum { DT_BN_SRC, DT_BN_SCALE, DT_BN_SHIFT, DT_BN_RUNNING_MEAN, DT_BN_RUNNING_VAR, DT_BN_RESIDUAL };
enum { DT_BN_DST, DT_BN_MEAN, DT_BN_VARIANCE, DT_BN_MASK };
/* bn_bwd: for diff_dst + diff_dst2; mask with ReLU; with another activation it computes bn's
 * result again for the slope. The addend is added to diff_src. */
enum {
    DT_BN_BWD_SRC,
    DT_BN_BWD_DIFF_DST,
    DT_BN_BWD_SCALE,
    DT_BN_BWD_SHIFT,
    DT_BN_BWD_MEAN,
    DT_BN_BWD_VARIANCE,
    DT_BN_BWD_MASK,
    DT_BN_BWD_DIFF_DST2,
    DT_BN_BWD_ADDEND
};
enum { DT_BN_BWD_DIFF_SRC, DT_BN_BWD_DIFF_SCALE, DT_BN_BWD_DIFF_SHIFT, DT_BN_BWD_DIFF_RESIDUAL };
/* bn_frozen_bwd: of bn with dst only, no ReLU. */
enum { DT_BN_FROZEN_BWD_DIFF_DST, DT_BN_FROZEN_BWD_SCALE, DT_BN_FROZEN_BWD_RUNNING_VAR };
/* group_norm: mean and inverse_std are f32 N x groups; layer_norm, over the channels of each pixel:
 * f32 vectors of N * H * W. */
enum { DT_GN_SRC, DT_GN_SCALE, DT_GN_SHIFT };
enum { DT_GN_DST, DT_GN_MEAN, DT_GN_INVERSE_STD };
enum { DT_GN_BWD_SRC, DT_GN_BWD_DIFF_DST, DT_GN_BWD_SCALE, DT_GN_BWD_MEAN, DT_GN_BWD_INVERSE_STD };
enum { DT_GN_BWD_DIFF_SRC, DT_GN_BWD_DIFF_SCALE, DT_GN_BWD_DIFF_SHIFT };
/* activation_bwd: (diff_dst + diff_dst2) times the slope at src; ReLU takes dst for src. */
enum { DT_ACTIVATION_BWD_DIFF_DST, DT_ACTIVATION_BWD_SRC, DT_ACTIVATION_BWD_DIFF_DST2 };
/* gate: dst = factor * src with a factor of each image and channel, N x C x 1 x 1. scaled_add: dst
 * = keep * scale * src + residual with a scale of each channel, and keep 0 for an image with
 * probability p, else 1 / (1 - p): from (seed, step, stream, image in the global batch). */
enum { DT_GATE_SRC, DT_GATE_FACTOR };
enum { DT_SCALED_ADD_SRC, DT_SCALED_ADD_RESIDUAL, DT_SCALED_ADD_SCALE };
/* gate_bwd and scaled_add_bwd, whose factor is the scale and whose src is only there for its
 * gradient. The gradient of the residual is diff_dst. */
enum { DT_BRANCH_BWD_DIFF_DST, DT_BRANCH_BWD_FACTOR, DT_BRANCH_BWD_SRC };
enum { DT_BRANCH_BWD_DIFF_SRC, DT_BRANCH_BWD_DIFF_FACTOR };
/* max_pool: the workspace has the positions of the maxima. */
enum { DT_MAX_POOL_DST, DT_MAX_POOL_WORKSPACE };
enum { DT_MAX_POOL_BWD_DIFF_DST, DT_MAX_POOL_BWD_WORKSPACE, DT_MAX_POOL_BWD_DIFF_SRC = 0 };
/* upsample_add: each value of coarse four times, 2x2; fine is 2h x 2w. The gradient of fine is
 * diff_dst; upsample_add_bwd makes the gradient of coarse. */
enum { DT_UPSAMPLE_ADD_COARSE, DT_UPSAMPLE_ADD_FINE };
/* match: of every anchor the slot of its box, -1 background, -2 in between: torchvision's Matcher
 * (i32 N,anchors); count: foreground anchors of every image (f32 N). Counters n and weight. */
enum { DT_MATCH_BOXES, DT_MATCH_BOX_LABELS };
enum { DT_MATCH_DST, DT_MATCH_COUNT };
/* focal_loss, box_loss: of one level; dst is the gradient of values, times diff_scale.
 * focal_loss: sigmoid focal loss without anchors in between, of logits (N, anchors of a place *
 * classes, H, W) and box_labels. Adds to the counter loss, and 1 to n_finite for each image where
 * it is finite. box_loss: l1, smooth_l1 or giou of foreground anchors, of deltas (N, anchors of a
 * place * 4, H, W) and boxes. Adds to the counter box_loss. */
enum { DT_DETECT_LOSS_VALUES, DT_DETECT_LOSS_MATCH, DT_DETECT_LOSS_BOXES, DT_DETECT_LOSS_COUNT };
/* top_detections: the best scores of a level, for each image at most 1,000 above min_score: N,T,6,
 * each x1 y1 x2 y2 score label, by falling score, ties by anchor, then class; zero from n on. */
enum { DT_TOP_LOGITS, DT_TOP_DELTAS, DT_TOP_SIZES };
enum { DT_TOP_DST, DT_TOP_N };
/* softmax_xent: against mix_share * onehot(labels) + (1 - mix_share) * onehot(labels2), smoothed,
 * then times class_weights (so targets need not add up to 1); adds to the device's counters, top-k
 * with labels only; labels < 0 are ignored. dst is the gradient of logits, times diff_scale.
 * labels2 and mix_share: both or neither. */
enum { DT_XENT_LOGITS, DT_XENT_LABELS, DT_XENT_LABELS2, DT_XENT_MIX_SHARE, DT_XENT_CLASS_WEIGHTS };

/* One row per op: X(NAME, name, members of struct dt_op_row in src/graph): src and dst, a letter
 * for each operand, a capital for one that may be absent; in_place, bit mask of the sources whose
 * memory dst[0] may take over if this node is their last reader. Operands are
 *
 *   values of the network, or gradients of them or of parameters:
 *     a   shaped like src[0]
 *     c   the same but for the channels
 *     i   the same with one pixel
 *     s   of the same images and channels
 *     x   of any shape
 *   v   vector of the channels of src[0]
 *   w   mask, one byte for each value of src[0]
 *   g   statistics of groups, fp32 of any shape
 *   p   parameter, or its gradient
 *   o   anything else
 *
 * and dt_graph_node checks them, so that no backend has to. Forward ops come first and end with
 * softmax_xent. A row requires dt_rule_<name> in src/graph, dt_cpu_<name> in src/cpu,
 * dt_cuda_<name> in src/cuda and op_test_<name> in tests/ops; the build names a missing one.
 *
 * Ops without operands above:
 *
 *   activation   elementwise, by .activation
 *   add          a + b; ReLU fused
 *   concat       2 to 9 sources, one after the other along the channels
 *   concat_bwd   the channels of one of them: from attr concat.first on
 *   avg_pool     adaptive: window from the two shapes
 *   dropout      mask from (seed, step, stream, element)
 *   sum_grads    2 to 9 terms of the gradient of a shared parameter, in this order */
#define DT_OP_LIST(X)                                                                             \
    X(INGEST, ingest, .src = "oO", .dst = "a")                                                    \
    X(CONV, conv, .src = "apP", .dst = "x")                                                       \
    X(BN, bn, .src = "avvvvA", .dst = "aVVW", .in_place = 1 << DT_BN_SRC)                         \
    X(GROUP_NORM, group_norm, .src = "avv", .dst = "aGG", .in_place = 1 << DT_GN_SRC)             \
    X(LAYER_NORM, layer_norm, .src = "avv", .dst = "aGG", .in_place = 1 << DT_GN_SRC)             \
    X(ACTIVATION, activation, .src = "a", .dst = "a", .in_place = 1)                              \
    X(ADD, add, .src = "aa", .dst = "a", .in_place = 1 << 0 | 1 << 1)                             \
    X(GATE, gate, .src = "ai", .dst = "a", .in_place = 1 << DT_GATE_SRC)                          \
    X(SCALED_ADD, scaled_add, .src = "aaV", .dst = "a",                                           \
      .in_place = 1 << DT_SCALED_ADD_SRC | 1 << DT_SCALED_ADD_RESIDUAL)                           \
    X(MAX_POOL, max_pool, .src = "a", .dst = "sO")                                                \
    X(AVG_POOL, avg_pool, .src = "a", .dst = "s")                                                 \
    X(UPSAMPLE_ADD, upsample_add, .src = "as", .dst = "s", .in_place = 1 << DT_UPSAMPLE_ADD_FINE) \
    X(CONCAT, concat, .src = "acCCCCCCC", .dst = "c")                                             \
    X(LINEAR, linear, .src = "app", .dst = "x")                                                   \
    X(DROPOUT, dropout, .src = "a", .dst = "a", .in_place = 1)                                    \
    X(MATCH, match, .src = "oo", .dst = "oo")                                                     \
    X(FOCAL_LOSS, focal_loss, .src = "aooo", .dst = "A")                                          \
    X(BOX_LOSS, box_loss, .src = "aooo", .dst = "A")                                              \
    X(TOP_DETECTIONS, top_detections, .src = "aco", .dst = "oo")                                  \
    X(SOFTMAX_XENT, softmax_xent, .src = "aoOOO", .dst = "A")                                     \
    X(CONV_BWD_DATA, conv_bwd_data, .src = "ap", .dst = "x")                                      \
    X(CONV_BWD_WEIGHTS, conv_bwd_weights, .src = "ax", .dst = "pP")                               \
    X(BN_BWD, bn_bwd, .src = "aavvvvWAA", .dst = "avvA", .in_place = 1 << DT_BN_BWD_DIFF_DST)     \
    X(BN_FROZEN_BWD, bn_frozen_bwd, .src = "avv", .dst = "a",                                     \
      .in_place = 1 << DT_BN_FROZEN_BWD_DIFF_DST)                                                 \
    X(GROUP_NORM_BWD, group_norm_bwd, .src = "aavgg", .dst = "aVV",                               \
      .in_place = 1 << DT_GN_BWD_DIFF_DST)                                                        \
    X(LAYER_NORM_BWD, layer_norm_bwd, .src = "aavgg", .dst = "aVV",                               \
      .in_place = 1 << DT_GN_BWD_DIFF_DST)                                                        \
    X(ACTIVATION_BWD, activation_bwd, .src = "aaA", .dst = "a",                                   \
      .in_place = 1 << DT_ACTIVATION_BWD_DIFF_DST | 1 << DT_ACTIVATION_BWD_SRC |                  \
                  1 << DT_ACTIVATION_BWD_DIFF_DST2)                                               \
    X(GATE_BWD, gate_bwd, .src = "aia", .dst = "ai",                                              \
      .in_place = 1 << DT_BRANCH_BWD_DIFF_DST | 1 << DT_BRANCH_BWD_SRC)                           \
    X(SCALED_ADD_BWD, scaled_add_bwd, .src = "aVA", .dst = "aV",                                  \
      .in_place = 1 << DT_BRANCH_BWD_DIFF_DST | 1 << DT_BRANCH_BWD_SRC)                           \
    X(MAX_POOL_BWD, max_pool_bwd, .src = "ao", .dst = "s")                                        \
    X(AVG_POOL_BWD, avg_pool_bwd, .src = "a", .dst = "s")                                         \
    X(UPSAMPLE_ADD_BWD, upsample_add_bwd, .src = "a", .dst = "s")                                 \
    X(CONCAT_BWD, concat_bwd, .src = "a", .dst = "c")                                             \
    X(LINEAR_BWD_DATA, linear_bwd_data, .src = "ap", .dst = "x")                                  \
    X(LINEAR_BWD_WEIGHTS, linear_bwd_weights, .src = "ax", .dst = "pp")                           \
    X(DROPOUT_BWD, dropout_bwd, .src = "a", .dst = "a", .in_place = 1)                            \
    X(SUM_GRADS, sum_grads, .src = "aaAAAAAAA", .dst = "a")

enum dt_op {
#define DT_OP_ENUM(NAME, ...) DT_OP_##NAME,
    DT_OP_LIST(DT_OP_ENUM)
#undef DT_OP_ENUM
        DT_N_OPS
};

struct dt_node {
    enum dt_op op;
    enum dt_phase phase; /* of its program */
    int program;
    char name[DT_NAME_MAX];
    int n_src, n_dst;                     /* up to the last that is present */
    int src[DT_MAX_SRC], dst[DT_MAX_DST]; /* -1: absent; of dst only at the end */
    bool residual;                        /* bn: has one; bn_bwd: makes its gradient */
    enum dt_activation activation; /* of its op, or fused: into bn, and ReLU into conv, add */
    union {
        struct {
            float mean[3], std[3];
        } ingest; /* of pixels scaled to 0..1 */
        struct {
            int stride, pad, dilation;
        } conv; /* all conv ops; kernel size and groups from the weights */
        struct {
            float eps, momentum; /* new = (1-momentum) * old + momentum * batch */
            int n_ranks;         /* dt_graph.bn_ranks */
        } bn;
        struct {
            int groups; /* layer_norm: 0 */
            float eps;
        } group_norm; /* and layer_norm */
        struct {
            int kernel, stride, pad;
            bool ceil; /* the last window may hang over the end */
        } pool;        /* max_pool and its backward */
        struct {
            int first;
        } concat; /* concat_bwd */
        struct {
            float p;
            uint32_t stream;
        } dropout; /* and scaled_add: p of an image */
        struct {
            float smoothing;
        } xent;
        struct dt_detect detect; /* match, focal_loss, box_loss, top_detections */
    } attr;
};

/* Tensor ids of a program; -1 = none. */
struct dt_program {
    enum dt_phase phase;
    int batch, height, width; /* of the images of one pass; 0 = there is no such program */
    DT_COLUMN_MEMBERS(DT_COLUMN_TENSOR, int); /* labels2 and mix_share: both or neither */
    int class_weights;                        /* f32, one per class */
    int match, count;                         /* what dt_graph_match has made of the boxes */
    int logits;                               /* of a classifier */
    int divisor; /* f32 vector of training: the gradients of an update are divided by the sum of its
                    elements in all passes and on all ranks, or by 1 if that is less */
    int detections[DT_MAX_LEVELS], n_detections[DT_MAX_LEVELS]; /* of a detector, in evaluation */
};

struct dt_graph {
    struct dt_tensor *tensor;
    struct dt_node *node;
    int n_tensors, n_nodes;
    size_t tensor_capacity, node_capacity;
    /* program[DT_TRAIN] and program[DT_EVAL] are the first of each phase. */
    struct dt_program program[DT_MAX_PROGRAMS];
    int current;  /* new nodes belong to program[current] */
    int bn_ranks; /* ranks, or slices of train.virtual_ranks, over which bn takes its statistics in
                     training; 0 or 1 = one */
    dt_status status; /* the first error of building, kept for dt_graph_check */
};

dt_status dt_graph_create(struct dt_graph **graph);
void dt_graph_destroy(struct dt_graph *graph);

/* Starts a program; its inputs are pixels and labels. */
dt_status dt_graph_begin(struct dt_graph *g, enum dt_phase phase, int batch, int height, int width);
static inline const struct dt_program *dt_graph_program(const struct dt_graph *g)
{
    return &g->program[g->current];
}
/* Adds a column of the samples as an input; max_boxes: of an image, for columns with that extent.
 */
dt_status dt_graph_column(struct dt_graph *g, enum dt_sample_column column, int max_boxes);
/* Adds the inputs boxes, box_labels and sizes. */
dt_status dt_graph_boxes(struct dt_graph *g, int max_boxes);
/* Each image of the program is mixed from two (mixup, CutMix). Adds the inputs labels2 and
 * mix_share, which dt_graph_softmax_xent reads. */
dt_status dt_graph_mix_labels(struct dt_graph *g);
/* Adds the input class_weights (f32, n_classes) for dt_graph_softmax_xent to read. */
dt_status dt_graph_weigh_classes(struct dt_graph *g, int n_classes);

/* --- Building blocks of models. Each adds a node and returns the id of dst[0]. An error (bad
 * shape, memory) is remembered: later calls do nothing and return -1, and dt_graph_check reports
 * it, so model code needs no checks. `name` is torchvision's module name: "layer1.0.conv1" makes
 * the parameter "layer1.0.conv1.weight". A parameter that already exists (from another program) is
 * reused; within a program only where `module` asks for the parameters of that module instead.
 * Identities (dropout in evaluation or with p = 0, avg_pool to the same size) add no node.
 */
/* Any op without parameters, whose sources are values of the network: it gets op, attr and
 * activation of `node`, the rest of which is ignored. */
int dt_graph_op(struct dt_graph *g, struct dt_node node, const char *name, int n_src,
                const int *src);
struct dt_conv_options {
    int out_channels, kernel, stride, pad;
    int groups;   /* output channel o reads the channels of group o / (O / groups); 0 means 1 */
    int dilation; /* distance of the taps in pixels; 0 means 1 */
    bool bias;
    bool linear;        /* the weights have the two dimensions of a linear layer's; kernel 1 */
    const char *module; /* whose parameters; NULL: its own */
    struct dt_init init, bias_init; /* bias_init omitted: zeros */
};
int dt_graph_ingest(struct dt_graph *g, const double mean[3], const double std[3]);
int dt_graph_conv(struct dt_graph *g, int src, const char *name, struct dt_conv_options options);
int dt_graph_bn_with(struct dt_graph *g, int src, const char *name, double scale_init, double eps,
                     double momentum);
static inline int dt_graph_bn(struct dt_graph *g, int src, const char *name, double scale_init)
{
    return dt_graph_bn_with(g, src, name, scale_init, 1e-5, 0.1);
}
/* Batch norm with constants instead of weight, bias and statistics (torchvision's
 * FrozenBatchNorm2d): they are saved under the same names and not trained. It is the same in both
 * phases. */
int dt_graph_frozen_bn(struct dt_graph *g, int src, const char *name, double eps);
/* Normalises `groups` groups of adjacent channels in each image; eps is 1e-5. */
int dt_graph_group_norm(struct dt_graph *g, int src, const char *name, const char *module,
                        int groups);
/* Normalises the channels of each pixel (torchvision's LayerNorm2d; eps is 1e-6). */
int dt_graph_layer_norm(struct dt_graph *g, int src, const char *name);
static inline int dt_graph_activation(struct dt_graph *g, int src, const char *name,
                                      enum dt_activation kind)
{
    const struct dt_node node = {.op = DT_OP_ACTIVATION, .activation = kind};
    return dt_graph_op(g, node, name, 1, &src);
}
static inline int dt_graph_relu(struct dt_graph *g, int src, const char *name)
{
    return dt_graph_activation(g, src, name, DT_RELU);
}
static inline int dt_graph_add(struct dt_graph *g, int a, int b, const char *name)
{
    return dt_graph_op(g, (struct dt_node){.op = DT_OP_ADD}, name, 2, (const int[]){a, b});
}
/* The gate of a squeeze-and-excitation block: a factor of each image and channel. */
static inline int dt_graph_gate(struct dt_graph *g, int src, int factor, const char *name)
{
    return dt_graph_op(g, (struct dt_node){.op = DT_OP_GATE}, name, 2, (const int[]){src, factor});
}
/* The end of a residual block with layer scale (ConvNeXt; the parameter is "<module>.layer_scale",
 * module NULL: none) and stochastic depth in torchvision's mode "row": in training an image goes
 * without src with probability p. With neither it is dt_graph_add. */
int dt_graph_scaled_add(struct dt_graph *g, int src, int residual, const char *name, double p,
                        const char *module, double scale_init);
static inline int dt_graph_max_pool(struct dt_graph *g, int src, const char *name, int kernel,
                                    int stride, int pad)
{
    const struct dt_node node = {.op = DT_OP_MAX_POOL, .attr.pool = {kernel, stride, pad, false}};
    return dt_graph_op(g, node, name, 1, &src);
}
/* Without padding, and the last pixels are pooled even if they fill no window: PyTorch's
 * ceil_mode. */
static inline int dt_graph_max_pool_ceil(struct dt_graph *g, int src, const char *name, int kernel,
                                         int stride)
{
    const struct dt_node node = {.op = DT_OP_MAX_POOL, .attr.pool = {kernel, stride, 0, true}};
    return dt_graph_op(g, node, name, 1, &src);
}
int dt_graph_avg_pool(struct dt_graph *g, int src, const char *name, int out_size);
static inline int dt_graph_upsample_add(struct dt_graph *g, int coarse, int fine, const char *name)
{
    const int src[] = {[DT_UPSAMPLE_ADD_COARSE] = coarse, [DT_UPSAMPLE_ADD_FINE] = fine};
    return dt_graph_op(g, (struct dt_node){.op = DT_OP_UPSAMPLE_ADD}, name, 2, src);
}
/* 2 to DT_MAX_SRC sources of the same size, one after the other along the channels. */
static inline int dt_graph_concat(struct dt_graph *g, int n_src, const int *src, const char *name)
{
    return dt_graph_op(g, (struct dt_node){.op = DT_OP_CONCAT}, name, n_src, src);
}
int dt_graph_linear(struct dt_graph *g, int src, const char *name, int out_features,
                    struct dt_init weight_init, struct dt_init bias_init);
int dt_graph_dropout(struct dt_graph *g, int src, const char *name, double p);
void dt_graph_softmax_xent(struct dt_graph *g, int logits, double smoothing);
/* Matches the program's boxes with all anchors; the losses of the levels follow. With
 * detect->global, the number of foreground anchors becomes the program's divisor. */
void dt_graph_match(struct dt_graph *g, const struct dt_detect *detect);
void dt_graph_focal_loss(struct dt_graph *g, int logits, const struct dt_detect *detect);
void dt_graph_box_loss(struct dt_graph *g, int deltas, const struct dt_detect *detect);
/* The candidates of level detect->level, whose heads give logits N,9K,H,W (channel anchor * K +
 * class) and deltas N,36,H,W (channel anchor * 4 + dx dy dw dh). The two results are the program's
 * detections and n_detections of that level. Needs dt_graph_boxes. */
void dt_graph_top_detections(struct dt_graph *g, int logits, int deltas,
                             const struct dt_detect *detect);
dt_status dt_graph_check(const struct dt_graph *g);

/* Low level, used by the gradient rules: adds a tensor of the given shape; adds a node with the
 * given dst. Absent operands are -1, at the end they may be counted in n_src and n_dst or not. */
int dt_graph_tensor(struct dt_graph *g, const char *name, enum dt_role role, enum dt_dtype dtype,
                    int n_dims, const int dim[4]);
struct dt_node *dt_graph_node(struct dt_graph *g, enum dt_op op, const char *name, int n_src,
                              const int *src, int n_dst, const int *dst);

/* Freezes the parameters of all modules named `module` or below it ("layer1": "layer1.0.conv1" and
 * so on): they are not trained, and in training their batch norms use the running statistics and
 * leave them as they are. Returns the number of these parameters. Call after building the models
 * and before dt_graph_fuse. */
int dt_graph_freeze(struct dt_graph *g, const char *module);
/* Fuses adjacent forward nodes in both phases: conv+relu, bn+relu, bn+add+relu, add+relu,
 * bn+activation; in training bn+relu gets its workspace. A fusion is done only if `supports` says
 * that the fused node can run (NULL: always). Call after building the models and before
 * dt_graph_differentiate. */
typedef bool dt_supports_fn(void *context, const struct dt_graph *g, const struct dt_node *node);
dt_status dt_graph_fuse(struct dt_graph *g, dt_supports_fn *supports, void *context);
/* Whether only fusions of dt_graph_fuse and of their gradients are folded into the node: the answer
 * of `supports` for a backend that can run all of them. */
bool dt_node_is_foldable(const struct dt_node *node);
/* Appends the backward nodes of phase DT_TRAIN; parameter gradients are created in the order they
 * become ready. Frozen parameters get none, and nothing is computed for values that depend on no
 * others. The gradient of a value with several readers is summed by add nodes; a sum whose
 * only reader is activation_bwd or bn_bwd is folded into it. Frees nothing; call it only once. */
dt_status dt_graph_differentiate(struct dt_graph *g);

/* Concatenations without copies: where all that is read of a concatenation is another one that
 * begins with it and batch norms, it lies in the memory of the last of such a chain; its gradient
 * likewise. For backends with `shares`, whose nodes find it there. Values and gradients are the
 * same, bit for bit. Call after dt_graph_differentiate, if that is called. */
void dt_graph_share(struct dt_graph *g);

/* --- Fusions: training nodes that a backend may run together, in fewer passes over memory than one
 * after the other. They stay nodes of the graph; the results differ by rounding only.
 *
 * X(NAME, name, members of struct rule in src/graph/fusions.c); the nodes, in order of execution:
 * - bn_pair: bn bn; the second adds the first as its residual, which nothing else reads
 * - bn_pair_bwd: bn_bwd bn_bwd; the gradients of such a pair
 * - bn_pool: bn max_pool max_pool_bwd bn_bwd; bn with ReLU, which only max_pool reads
 * - conv_bn: conv bn; a plain conv and the bn right after it
 * - conv_bn_bwd: bn conv_bwd_data bn_bwd; bn with ReLU, which only the conv reads, and its gradient
 * - conv_add_bn_bwd: the same for bn with a residual and two gradients
 * - bn_conv: bn conv bn conv_bwd_weights; bn with ReLU, which only the two conv read
 * - conv_pair_bwd: bn bn conv_bwd_data bn_bwd bn_bwd; as conv_add_bn_bwd, for a pair */
#define DT_FUSION_LIST(X)                                                   \
    X(BN_PAIR, bn_pair, .n_nodes = 2, .last = DT_OP_BN)                     \
    X(BN_PAIR_BWD, bn_pair_bwd, .n_nodes = 2, .last = DT_OP_BN_BWD)         \
    X(BN_POOL, bn_pool, .n_nodes = 4, .last = DT_OP_BN_BWD)                 \
    X(CONV_BN, conv_bn, .n_nodes = 2, .last = DT_OP_BN)                     \
    X(CONV_BN_BWD, conv_bn_bwd, .n_nodes = 3, .last = DT_OP_BN_BWD)         \
    X(CONV_ADD_BN_BWD, conv_add_bn_bwd, .n_nodes = 3, .last = DT_OP_BN_BWD) \
    X(BN_CONV, bn_conv, .n_nodes = 4, .last = DT_OP_CONV_BWD_WEIGHTS)       \
    X(CONV_PAIR_BWD, conv_pair_bwd, .n_nodes = 5, .last = DT_OP_BN_BWD)

enum dt_fusion_kind {
#define DT_FUSION_ENUM(NAME, ...) DT_FUSION_##NAME,
    DT_FUSION_LIST(DT_FUSION_ENUM)
#undef DT_FUSION_ENUM
        DT_N_FUSION_KINDS
};
enum { DT_MAX_FUSED = 5 };
struct dt_fusion {
    enum dt_fusion_kind kind;
    int n_nodes, node[DT_MAX_FUSED]; /* ids */
};
/* All fusions of a graph, after dt_graph_differentiate; a node may be in several.
 * The caller frees *fusions. DT_ERR_MEMORY. */
dt_status dt_graph_fusions(const struct dt_graph *g, struct dt_fusion **fusions, int *n_fusions);
const char *dt_fusion_name(enum dt_fusion_kind kind); /* "bn_pair" */

/* --- Queries --- */
const char *dt_op_name(enum dt_op op);
/* The tensors of a node that are present: sources, then destinations. Returns how many. */
int dt_node_tensors(const struct dt_node *node, int tensor[DT_MAX_SRC + DT_MAX_DST]);
/* Whether a bn takes statistics, instead of the running ones. */
static inline bool dt_node_has_statistics(const struct dt_node *node)
{
    return node->dst[DT_BN_MEAN] >= 0;
}
/* Whether a node runs in two halves, between which ranks or slices exchange sums: bn and bn_bwd
 * over a group of them. */
static inline bool dt_node_is_synced(const struct dt_node *node)
{
    bool is_bn = (node->op == DT_OP_BN && dt_node_has_statistics(node)) || node->op == DT_OP_BN_BWD;
    return is_bn && node->attr.bn.n_ranks > 1;
}
/* The letter of operand i of a node, sources first, in the op list. */
char dt_node_kind(const struct dt_node *node, int i);
/* Groups of a convolution or one of its gradients. */
int dt_conv_groups(const struct dt_graph *g, const struct dt_node *node);
unsigned dt_op_inplace(enum dt_op op); /* the bit mask of the op list */
size_t dt_tensor_elements(const struct dt_tensor *tensor);
/* Elements of the largest tensor with the role, 0 if there is none. */
size_t dt_graph_largest(const struct dt_graph *g, enum dt_role role);
int dt_graph_find(const struct dt_graph *g, const char *tensor_name); /* -1 if absent */
/* Whether a node or tensor is the module or in it: "layer1.0.bn1.weight" is within "layer1". */
bool dt_graph_is_within(const char *name, const char *module);
/* The tensor in whose memory `tensor` lies: its whole, or itself. */
static inline int dt_tensor_whole(const struct dt_graph *g, int tensor)
{
    return g->tensor[tensor].whole >= 0 ? g->tensor[tensor].whole : tensor;
}
/* Floating-point operations (2 per multiply-add) per pass. */
double dt_node_flops(const struct dt_graph *g, const struct dt_node *node);
/* "64x3x7x7" into out[bytes]. */
const char *dt_tensor_format_dims(char *out, size_t bytes, const struct dt_tensor *tensor);

#endif
