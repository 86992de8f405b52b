/* What norm.c (forward) and norm_bwd.c share. */
#ifndef DTRAIN_CUDA_NORM_H
#define DTRAIN_CUDA_NORM_H

#include "cuda/conv.h"
#include "cuda/group.h"

/* Checks the tensors of a node: a = activation like src[0], v = vector of its channels, w = mask of
 * the ReLU. */
dt_status dt_bn_prepare(struct dt_exec *exec, const char *src_kinds, const char *dst_kinds);
/* Of a node by itself: partial sums, then (backward) coefficients, then (synced) slots. */
size_t dt_bn_scratch_bytes(const struct dt_device *dev, const struct dt_exec *exec);
/* The coefficients of the gradient in a scratch. */
float *dt_bn_coefs(const struct dt_exec *exec, char *scratch);
/* If synced, the slot of this rank; else NULL. */
float *dt_bn_own_slot(const struct dt_device *dev, const struct dt_exec *exec);
/* Those of the ranks of its group. */
const float *dt_bn_group_slots(const struct dt_device *dev, const struct dt_exec *exec);
/* Of all launches. */
struct dt_norm_args dt_bn_args(const struct dt_device *dev, const struct dt_exec *exec);

#endif
