/* Group norm by our own kernels. The scratch holds the sums of the blocks, then two values for each
 * group: its statistics where nobody keeps them, or (backward) coefficients of the gradient. */
#include "cuda/cuda_internal.h"

static struct dt_group_norm args_of(const struct dt_exec *exec)
{
    const struct dt_cuda_format *f = exec->src[0];
    const int groups = exec->node->attr.group_norm.groups;
    return (struct dt_group_norm){.n = f->n,
                                  .pixels = f->h * f->w,
                                  .cp = f->cp,
                                  .groups = groups,
                                  .groups_padded = (groups + DT_CHANNEL_PACK - 1) /
                                                   DT_CHANNEL_PACK * DT_CHANNEL_PACK,
                                  .size = f->c / groups,
                                  .eps = exec->node->attr.group_norm.eps};
}

static float *group_scratch(const struct dt_exec *exec, int i)
{
    const struct dt_group_norm args = args_of(exec);
    float *first = (void *)(exec->scratch + dt_group_norm_partial_bytes(&args));
    return first + i * args.n * args.groups_padded;
}

static size_t scratch_bytes(const struct dt_exec *exec)
{
    const struct dt_group_norm args = args_of(exec);
    const size_t n_groups = (size_t)args.n * (size_t)args.groups_padded;
    return dt_group_norm_partial_bytes(&args) + 2 * n_groups * sizeof(float);
}

static dt_status run_group_norm(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_group_norm args = args_of(exec);
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    float *mean = dst[DT_GN_MEAN], *inverse_std = dst[DT_GN_INVERSE_STD];
    const struct dt_group_norm_statistics out = {
        .mean = mean ? mean : group_scratch(exec, 0),
        .inverse_std = inverse_std ? inverse_std : group_scratch(exec, 1),
        .partial = (void *)exec->scratch};
    return DT_KERNEL(dev, exec, dt_kernel_group_norm, exec->src[0]->type, dst[0], &out, src[0],
                     src[DT_GN_SCALE], src[DT_GN_SHIFT], &args);
}

static dt_status run_group_norm_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_group_norm args = args_of(exec);
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    const struct dt_group_norm_gradients out = {.diff_src = dst[DT_GN_BWD_DIFF_SRC],
                                                .diff_scale = dst[DT_GN_BWD_DIFF_SCALE],
                                                .diff_shift = dst[DT_GN_BWD_DIFF_SHIFT],
                                                .coefs = group_scratch(exec, 0),
                                                .partial = (void *)exec->scratch};
    return DT_KERNEL(dev, exec, dt_kernel_group_norm_bwd, exec->src[0]->type, &out,
                     src[DT_GN_BWD_SRC], src[DT_GN_BWD_DIFF_DST], src[DT_GN_BWD_SCALE],
                     src[DT_GN_BWD_MEAN], src[DT_GN_BWD_INVERSE_STD], &args);
}

const struct dt_cuda_op dt_cuda_group_norm = {.run = run_group_norm,
                                              .scratch_bytes = scratch_bytes};
const struct dt_cuda_op dt_cuda_group_norm_bwd = {.run = run_group_norm_bwd,
                                                  .scratch_bytes = scratch_bytes};
