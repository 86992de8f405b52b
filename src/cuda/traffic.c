/* What the ops move through memory again, for profiles: a second pass over a tensor that does not
 * stay in the caches. kernels/README.md has the table of all kernels. */
#include "cuda/internal.h"

static size_t bytes_of(const struct dt_cuda_format *f)
{
    return f->elements * dt_dtype_bytes(f->type);
}

/* Sums first, then the gradient; diff_residual holds what the second pass needs of diff_dst. */
static size_t again_bn_bwd(const struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    size_t bytes = bytes_of(exec->src[0]);
    if (node->n_dst > 3)
        return bytes + bytes_of(exec->dst[3]);
    bytes += bytes_of(exec->src[1]);
    for (int i = 6; i < node->n_src; i++) /* the mask and a second gradient */
        bytes += bytes_of(exec->src[i]);
    return bytes;
}

size_t dt_cuda_again_bytes(struct dt_device *dev, const struct dt_exec *exec)
{
    (void)dev;
    const struct dt_node *node = exec->node;
    switch (node->op) {
    case DT_OP_BN: /* statistics */
        return node->n_dst > 1 ? bytes_of(exec->src[0]) : 0;
    case DT_OP_BN_BWD:
        return again_bn_bwd(exec);
    case DT_OP_CONV: /* bias and ReLU, in place */
        return node->n_src > 2 || node->relu ? 2 * bytes_of(exec->dst[0]) : 0;
    case DT_OP_LINEAR:
        return 2 * bytes_of(exec->dst[0]);
    case DT_OP_CONV_BWD_WEIGHTS: /* the gradient of the bias */
    case DT_OP_LINEAR_BWD_WEIGHTS:
        return node->n_dst > 1 ? bytes_of(exec->src[1]) : 0;
    default:
        return 0;
    }
}
