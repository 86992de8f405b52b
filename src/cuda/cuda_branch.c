/* Gate and scaled_add, by our own kernels. */
#include "cuda/cuda_internal.h"

static struct dt_branch args_of(const struct dt_device *dev, const struct dt_exec *exec)
{
    const struct dt_cuda_format *f = exec->src[0];
    return (struct dt_branch){.n = f->n,
                              .pixels = f->h * f->w,
                              .cp = f->cp,
                              .p = exec->node->attr.dropout.p,
                              .stream = exec->node->attr.dropout.stream,
                              .seed = dev->options.seed};
}

static dt_status prepare_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_branch args = args_of(dev, exec);
    exec->scratch_bytes = exec->src[DT_BRANCH_BWD_SRC] ? dt_branch_partial_bytes(&args) : 0;
    return DT_OK;
}

static dt_status run_gate(struct dt_device *dev, struct dt_exec *exec)
{
    struct dt_branch args = args_of(dev, exec);
    args.factor = exec->src_data[DT_GATE_FACTOR];
    return DT_KERNEL(dev, exec, dt_kernel_branch, exec->src[0]->type, exec->dst_data[0],
                     exec->src_data[0], NULL, &args, dev->step);
}

static dt_status run_scaled_add(struct dt_device *dev, struct dt_exec *exec)
{
    struct dt_branch args = args_of(dev, exec);
    args.scale = exec->src_data[DT_SCALED_ADD_SCALE];
    return DT_KERNEL(dev, exec, dt_kernel_branch, exec->src[0]->type, exec->dst_data[0],
                     exec->src_data[0], exec->src_data[DT_SCALED_ADD_RESIDUAL], &args, dev->step);
}

static dt_status run_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    struct dt_branch args = args_of(dev, exec);
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    const enum dt_dtype type = exec->src[0]->type;
    if (exec->node->op == DT_OP_GATE_BWD)
        args.factor = src[DT_BRANCH_BWD_FACTOR];
    else
        args.scale = src[DT_BRANCH_BWD_FACTOR];
    if (!src[DT_BRANCH_BWD_SRC])
        return DT_KERNEL(dev, exec, dt_kernel_branch, type, dst[0], src[0], NULL, &args, dev->step);
    return DT_KERNEL(dev, exec, dt_kernel_branch_bwd, type, dst[0], dst[DT_BRANCH_BWD_DIFF_FACTOR],
                     (void *)exec->scratch, src[0], src[DT_BRANCH_BWD_SRC], &args, dev->step);
}

const struct dt_cuda_op dt_cuda_gate = {.run = run_gate};
const struct dt_cuda_op dt_cuda_gate_bwd = {.prepare = prepare_bwd, .run = run_bwd};
const struct dt_cuda_op dt_cuda_scaled_add = {.run = run_scaled_add};
const struct dt_cuda_op dt_cuda_scaled_add_bwd = {.prepare = prepare_bwd, .run = run_bwd};
