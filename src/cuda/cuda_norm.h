/* What cuda_norm.c (forward) and cuda_norm_bwd.c share. */
#ifndef DTRAIN_CUDA_CUDA_NORM_H
#define DTRAIN_CUDA_CUDA_NORM_H

#include "cuda/fusion.h"

/* Of the three ops. */
dt_status dt_bn_prepare(struct dt_device *dev, struct dt_exec *exec);
/* The coefficients of the gradient in a scratch. */
float *dt_bn_coefs(const struct dt_exec *exec, char *scratch);
/* If synced, the slot of this rank; else NULL. */
float *dt_bn_own_slot(const struct dt_device *dev, const struct dt_exec *exec);
/* Those of the ranks of its group. */
const float *dt_bn_rank_slots(const struct dt_device *dev, const struct dt_exec *exec);
/* Of all launches. */
struct dt_norm_args dt_bn_args(const struct dt_device *dev, const struct dt_exec *exec);

#endif
