/* Layer norm by our own kernels. */
#include "cuda/cuda_internal.h"

static struct dt_layer_norm args_of(const struct dt_exec *exec)
{
    const struct dt_cuda_format *f = exec->src[0];
    return (struct dt_layer_norm){.rows = f->elements / (size_t)f->cp,
                                  .channels = f->c,
                                  .cp = f->cp,
                                  .eps = exec->node->attr.group_norm.eps};
}

static dt_status prepare_layer_norm(struct dt_device *dev, struct dt_exec *exec)
{
    (void)dev;
    const struct dt_layer_norm args = args_of(exec);
    if (args.cp > DT_ROW_CHANNELS)
        DT_FAIL(DT_ERR_CONFIG, "layer norm '%s' has %d channels, more than %d", exec->node->name,
                args.channels, (int)DT_ROW_CHANNELS);
    exec->scratch_bytes =
        exec->node->op == DT_OP_LAYER_NORM ? 0 : dt_layer_norm_partial_bytes(&args);
    return DT_OK;
}

static dt_status run_layer_norm(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_layer_norm args = args_of(exec);
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    return DT_KERNEL(dev, exec, dt_kernel_layer_norm, exec->src[0]->type, dst[DT_GN_DST],
                     dst[DT_GN_MEAN], dst[DT_GN_INVERSE_STD], src[DT_GN_SRC], src[DT_GN_SCALE],
                     src[DT_GN_SHIFT], &args);
}

static dt_status run_layer_norm_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_layer_norm args = args_of(exec);
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    return DT_KERNEL(dev, exec, dt_kernel_layer_norm_bwd, exec->src[0]->type,
                     dst[DT_GN_BWD_DIFF_SRC], dst[DT_GN_BWD_DIFF_SCALE], dst[DT_GN_BWD_DIFF_SHIFT],
                     (void *)exec->scratch, src[DT_GN_BWD_SRC], src[DT_GN_BWD_DIFF_DST],
                     src[DT_GN_BWD_SCALE], src[DT_GN_BWD_MEAN], src[DT_GN_BWD_INVERSE_STD], &args);
}

const struct dt_cuda_op dt_cuda_layer_norm = {.prepare = prepare_layer_norm, .run = run_layer_norm};
const struct dt_cuda_op dt_cuda_layer_norm_bwd = {.prepare = prepare_layer_norm,
                                                  .run = run_layer_norm_bwd};
