/* A task for cuDNN: a convolution and the extras that are computed along with it, its tensors, and
 * its operations as a graph of cuDNN's descriptors. */
#ifndef DTRAIN_CUDA_DNN_TASK_H
#define DTRAIN_CUDA_DNN_TASK_H

#include <cudnn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "dtrain/dtype.h"

enum dt_conv_kind { DT_CONV_FORWARD, DT_CONV_BWD_DATA, DT_CONV_BWD_WEIGHTS };

/* Extras that are computed along with a convolution, in the same kernels. cuDNN 9.19 does it in
 * fp16 only, with c and k multiples of 8, windows of at most 32 pixels and, for those with ADD,
 * stride 1; for other tasks its offer is empty. */
enum dt_conv_extra {
    DT_CONV_PLAIN,
    /* Forward: the sums of y and of its squares, per channel. */
    DT_CONV_SUMS,
    /* Forward: relu(scale * x + shift), rounded, takes the place of x; and the sums. */
    DT_CONV_NORM_SUMS,
    /* Backward weights: relu(scale * x + shift), rounded, takes the place of x. */
    DT_CONV_NORM,
    /* Backward data, where x = relu(bn(src)): the gradient of x is set to 0 where x is 0, and
     * reduced to what bn's backward pass needs. */
    DT_CONV_BN_BWD,
    /* diff2, another gradient of x, is added before that, and x = relu(bn(src) + residual) */
    DT_CONV_ADD_RESIDUAL_BN_BWD,
    DT_CONV_ADD_PAIR_BN_BWD, /* or x = relu(bn(src) + bn2(src2)), reduced for both */
    DT_CONV_N_EXTRAS
};

/* A distinct convolution. x: n x c x h x w, weights: k x (c / groups) x r x s, y: the resulting
 * shape; all NHWC with padded channels, of one type; sums in fp32. x, w and y keep their names in
 * the backward kinds, which read or write the gradients of x, w and y. */
struct dt_conv_task {
    enum dt_conv_kind kind;
    enum dt_dtype type;
    int n, c, h, w, k, r, s;
    int stride, pad, dilation, groups;
    enum dt_conv_extra extra;
};

enum { DT_CONV_TEXT_MAX = 160 };

/* A batch norm whose backward pass is begun: src like x, and vectors of c values. */
enum dt_bn_tensor {
    DT_DNN_BN_SRC,
    DT_DNN_BN_MEAN,
    DT_DNN_BN_INV_STD, /* 1 / sqrt(variance + eps) */
    DT_DNN_BN_SCALE,
    DT_DNN_BN_SHIFT,
    DT_DNN_BN_DIFF_SCALE, /* from here on written */
    DT_DNN_BN_DIFF_SHIFT,
    /* As of dt_kernel_bn_bwd_apply: coef_diff * x's gradient + coef_src * src + coef_one is the
     * gradient of src. */
    DT_DNN_BN_COEF_DIFF,
    DT_DNN_BN_COEF_SRC,
    DT_DNN_BN_COEF_ONE,
    DT_DNN_BN_N_TENSORS
};

/* The tensors of all kinds of tasks, 16-byte aligned. Vectors are in fp32, but for scale and shift,
 * which have the type of the task. */
enum dt_dnn_tensor {
    DT_DNN_X,
    DT_DNN_W,
    DT_DNN_Y,
    DT_DNN_SUM, /* of y, rounded or not: k values */
    DT_DNN_SQUARE_SUM,
    DT_DNN_SCALE, /* c values */
    DT_DNN_SHIFT,
    DT_DNN_DIFF2, /* like x */
    DT_DNN_RESIDUAL,
    DT_DNN_BN, /* + dt_bn_tensor */
    DT_DNN_BN2 = DT_DNN_BN + DT_DNN_BN_N_TENSORS,
    DT_DNN_N_TENSORS = DT_DNN_BN2 + DT_DNN_BN_N_TENSORS
};
/* 0: the task does not use it. */
size_t dt_dnn_tensor_bytes(const struct dt_conv_task *task, enum dt_dnn_tensor tensor);
/* Whether the task writes a tensor, all of it. */
bool dt_dnn_writes(const struct dt_conv_task *task, enum dt_dnn_tensor tensor);

int dt_conv_out_h(const struct dt_conv_task *task);
int dt_conv_out_w(const struct dt_conv_task *task);
bool dt_conv_equal(const struct dt_conv_task *a, const struct dt_conv_task *b);
/* "conv+sums fp16 x 256x64x56x56 w 64x64x3x3 stride 1 pad 1" into out[DT_CONV_TEXT_MAX]; different
 * tasks have different texts. */
const char *dt_conv_text(char out[DT_CONV_TEXT_MAX], const struct dt_conv_task *task);

enum { DT_DNN_MAX_PARTS = 96 };
struct dt_dnn_graph {
    cudnnBackendDescriptor_t graph, part[DT_DNN_MAX_PARTS]; /* part: what it consists of */
    int n_parts;
};
/* *graph is empty before; to be destroyed also after a failure. handle: NULL = for a described
 * device. */
dt_status dt_dnn_graph_make(struct dt_dnn_graph *graph, const struct dt_conv_task *task,
                            cudnnHandle_t handle);
void dt_dnn_graph_destroy(struct dt_dnn_graph *graph); /* accepts an empty one */

/* --- Descriptors of any kind --- */

/* The arguments of one cudnnBackendSetAttribute. */
struct dt_dnn_attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    const void *values;
};

dt_status dt_dnn_create(cudnnBackendDescriptor_t *d, cudnnBackendDescriptorType_t type);
dt_status dt_dnn_set(cudnnBackendDescriptor_t d, const struct dt_dnn_attribute *attributes,
                     size_t n);
/* Creates, sets and finalizes; on failure *d may hold an unfinished descriptor, which its owner
 * destroys. */
dt_status dt_dnn_make(cudnnBackendDescriptor_t *d, cudnnBackendDescriptorType_t type,
                      const struct dt_dnn_attribute *attributes, size_t n, const char *what);
void dt_dnn_destroy(cudnnBackendDescriptor_t *d); /* accepts a pointer to NULL, and leaves one */

/* The id by which an execution identifies a tensor. */
static inline int64_t dt_dnn_id(int tensor)
{
    return tensor + 1;
}

#endif
