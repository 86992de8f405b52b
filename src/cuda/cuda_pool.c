/* Max pooling, which keeps one byte per output for its backward, adaptive average pooling, and
 * upsampling. */
#include "cuda/cuda_internal.h"

/* `big` is the image side (src or diff_src), `small` the pooled side. */
static struct dt_pool_shape shape_of(const struct dt_node *node, const struct dt_cuda_format *big,
                                     const struct dt_cuda_format *small)
{
    struct dt_pool_shape shape = {.n = big->n,
                                  .cp = big->cp,
                                  .in_h = big->h,
                                  .in_w = big->w,
                                  .out_h = small->h,
                                  .out_w = small->w};
    if (node->op == DT_OP_MAX_POOL || node->op == DT_OP_MAX_POOL_BWD) {
        shape.kernel = node->attr.pool.kernel;
        shape.stride = node->attr.pool.stride;
        shape.pad = node->attr.pool.pad;
    }
    return shape;
}

static dt_status prepare_max_pool(struct dt_device *dev, struct dt_exec *exec)
{
    (void)dev;
    const struct dt_node *node = exec->node;
    enum { MAX_KERNEL = 16 }; /* a position in the window is one byte */
    if (node->attr.pool.kernel > MAX_KERNEL)
        DT_FAIL(DT_ERR_CONFIG, "max pooling '%s' has windows of %d x %d, the GPU supports up to %d",
                node->name, node->attr.pool.kernel, node->attr.pool.kernel, MAX_KERNEL);
    return DT_OK;
}

static dt_status run_max_pool(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_exec *bn = dt_cuda_partner(exec, DT_FUSION_BN_POOL, 1, 0);
    const struct dt_pool_shape shape = shape_of(node, exec->src[0], exec->dst[0]);
    if (bn) { /* it leaves its normalisation to the pooling */
        const struct dt_bn_vectors vectors = dt_cuda_bn_vectors(bn);
        return DT_KERNEL(dev, exec, dt_kernel_bn_max_pool, exec->dst[0]->type, exec->dst_data[0],
                         exec->dst_data[DT_MAX_POOL_WORKSPACE], bn->src_data[DT_BN_SRC], &vectors,
                         bn->node->attr.bn.eps, &shape);
    }
    return DT_KERNEL(dev, exec, dt_kernel_max_pool, exec->dst[0]->type, exec->dst_data[0],
                     exec->dst_data[DT_MAX_POOL_WORKSPACE], exec->src_data[0], &shape);
}

struct dt_pool_shape dt_cuda_pool_bwd_shape(const struct dt_exec *exec)
{
    return shape_of(exec->node, exec->dst[0], exec->src[0]);
}

static dt_status run_max_pool_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_pool_shape shape = dt_cuda_pool_bwd_shape(exec);
    if (dt_cuda_partner(exec, DT_FUSION_BN_POOL, 2, 3))
        return DT_OK; /* bn_bwd does it */
    return DT_KERNEL(dev, exec, dt_kernel_max_pool_bwd, exec->dst[0]->type, exec->dst_data[0],
                     exec->src_data[DT_MAX_POOL_BWD_DIFF_DST],
                     exec->src_data[DT_MAX_POOL_BWD_WORKSPACE], &shape);
}

static dt_status run_avg_pool(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_pool_shape shape = shape_of(exec->node, exec->src[0], exec->dst[0]);
    return DT_KERNEL(dev, exec, dt_kernel_avg_pool, exec->dst[0]->type, exec->dst_data[0],
                     exec->src_data[0], &shape);
}

static dt_status run_avg_pool_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_pool_shape shape = dt_cuda_pool_bwd_shape(exec);
    return DT_KERNEL(dev, exec, dt_kernel_avg_pool_bwd, exec->dst[0]->type, exec->dst_data[0],
                     exec->src_data[0], &shape);
}

static dt_status run_upsample_add(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_pool_shape shape = shape_of(exec->node, exec->dst[0], exec->src[0]);
    return DT_KERNEL(dev, exec, dt_kernel_upsample_add, exec->dst[0]->type, exec->dst_data[0],
                     exec->src_data[DT_UPSAMPLE_ADD_COARSE], exec->src_data[DT_UPSAMPLE_ADD_FINE],
                     &shape);
}

static dt_status run_upsample_add_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_pool_shape shape = shape_of(exec->node, exec->src[0], exec->dst[0]);
    return DT_KERNEL(dev, exec, dt_kernel_upsample_add_bwd, exec->dst[0]->type, exec->dst_data[0],
                     exec->src_data[0], &shape);
}

const struct dt_cuda_op dt_cuda_max_pool = {.prepare = prepare_max_pool, .run = run_max_pool};
const struct dt_cuda_op dt_cuda_max_pool_bwd = {.prepare = prepare_max_pool,
                                                .run = run_max_pool_bwd};
const struct dt_cuda_op dt_cuda_avg_pool = {.run = run_avg_pool};
const struct dt_cuda_op dt_cuda_avg_pool_bwd = {.run = run_avg_pool_bwd};
const struct dt_cuda_op dt_cuda_upsample_add = {.run = run_upsample_add};
const struct dt_cuda_op dt_cuda_upsample_add_bwd = {.run = run_upsample_add_bwd};
