/* The operations of a task as descriptors of cuDNN's graph API (dnn_ops.c), and how descriptors are
 * made. */
#ifndef DTRAIN_CUDA_DNN_OPS_H
#define DTRAIN_CUDA_DNN_OPS_H

#include "cuda/dnn_graph.h"

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

/* By which an execution identifies a tensor. */
static inline int64_t dt_dnn_id(int tensor)
{
    return tensor + 1;
}

/* Makes offer->graph and the parts that it consists of; after a failure, too, they belong to the
 * offer. */
dt_status dt_dnn_make_graph(struct dt_dnn_offer *offer, const struct dt_dnn_target *target,
                            const struct dt_conv_task *task);

#endif
