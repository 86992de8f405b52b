/* The bytes that ops move through memory again, for profiles: a second pass over a tensor that does
 * not stay in the caches. kernels/README.md has the table of all kernels. */
#include "cuda/cuda_conv.h"
#include "cuda/cuda_internal.h"

static int64_t bytes_of(const struct dt_cuda_format *f)
{
    return !f ? 0 : (int64_t)(f->unused ? f->reuse_bytes : f->elements * dt_dtype_bytes(f->type));
}

/* The bytes of all tensors of a node whose work another one does. */
static int64_t own_bytes(const struct dt_exec *exec)
{
    int64_t bytes = 0;
    for (int i = 0; i < exec->node->n_src; i++)
        bytes += bytes_of(exec->src[i]);
    for (int i = 0; i < exec->node->n_dst; i++)
        bytes += bytes_of(exec->dst[i]);
    return bytes;
}

/* Sums first, then the gradient; diff_residual holds what the second pass needs of diff_dst. */
static int64_t again_bn_bwd(const struct dt_exec *exec)
{
    const struct dt_exec *second = dt_cuda_partner(exec, DT_FUSION_BN_PAIR_BWD, 0, 1);
    const struct dt_exec *pool = dt_cuda_partner(exec, DT_FUSION_BN_POOL, 3, 2);
    int64_t bytes = bytes_of(exec->src[0]);
    if (dt_cuda_partner(exec, DT_FUSION_BN_PAIR_BWD, 1, 0))
        return -own_bytes(exec);
    if (dt_cuda_partner(exec, DT_FUSION_CONV_BN_BWD, 2, 1))
        return bytes + bytes_of(exec->src[DT_BN_BWD_DIFF_DST]);
    if (dt_cuda_partner(exec, DT_FUSION_CONV_PAIR_BWD, 3, 4))
        return bytes + bytes_of(second->src[0]) + bytes_of(exec->src[DT_BN_BWD_DIFF_DST2]);
    if (exec->dst[DT_BN_BWD_DIFF_RESIDUAL] && !second)
        return bytes + bytes_of(exec->dst[DT_BN_BWD_DIFF_RESIDUAL]);
    bytes += bytes_of(exec->src[DT_BN_BWD_DIFF_DST]) + bytes_of(exec->src[DT_BN_BWD_DIFF_DST2]) +
             bytes_of(exec->src[DT_BN_BWD_MASK]);
    if (second)
        bytes += bytes_of(second->src[0]);
    if (pool)
        bytes += bytes_of(pool->src[0]) + bytes_of(pool->src[1]);
    return bytes;
}

/* The matches of other levels are not read; box_loss also reads few deltas. */
static int64_t again_detect_loss(const struct dt_exec *exec)
{
    const struct dt_detect *detect = &exec->node->attr.detect;
    const int64_t anchors = dt_anchors_of_level(&detect->anchors, detect->level);
    const int64_t own = exec->src[DT_DETECT_LOSS_MATCH]->n * anchors * (int64_t)sizeof(int32_t);
    const bool all = exec->node->op == DT_OP_FOCAL_LOSS;
    return own - bytes_of(exec->src[DT_DETECT_LOSS_MATCH]) - (all ? 0 : bytes_of(exec->src[0]));
}

int64_t dt_cuda_again_bytes(struct dt_device *dev, const struct dt_exec *exec)
{
    (void)dev;
    const struct dt_node *node = exec->node;
    switch (node->op) {
    case DT_OP_BN:
        /* Statistics first, then the normalisation, unless another node does that. */
        if (dt_cuda_partner(exec, DT_FUSION_CONV_BN, 1, 0))
            return exec->dst[0]->unused ? 0 : bytes_of(exec->src[0]);
        return dt_node_has_statistics(exec->node) && !exec->dst[0]->unused ? bytes_of(exec->src[0])
                                                                           : 0;
    case DT_OP_MAX_POOL_BWD:
        return dt_cuda_partner(exec, DT_FUSION_BN_POOL, 2, 3) ? -own_bytes(exec) : 0;
    case DT_OP_BN_BWD:
        return again_bn_bwd(exec);
    case DT_OP_CONV_BWD_DATA:
        return dt_conv_runs_elsewhere(exec) ? -own_bytes(exec) : 0;
    case DT_OP_CONV: /* bias and ReLU, in place */
        if (dt_conv_runs_elsewhere(exec))
            return -own_bytes(exec);
        return exec->src[DT_CONV_BIAS] || node->activation ? 2 * bytes_of(exec->dst[0]) : 0;
    case DT_OP_GROUP_NORM:
        return bytes_of(exec->src[0]);
    case DT_OP_GROUP_NORM_BWD:
        return bytes_of(exec->src[DT_GN_BWD_SRC]) + bytes_of(exec->src[DT_GN_BWD_DIFF_DST]);
    case DT_OP_FOCAL_LOSS:
    case DT_OP_BOX_LOSS:
        return again_detect_loss(exec);
    case DT_OP_TOP_DETECTIONS: /* scores are counted, then collected; few deltas are read */
        return bytes_of(exec->src[DT_TOP_LOGITS]) - bytes_of(exec->src[DT_TOP_DELTAS]);
    case DT_OP_LINEAR:
        return 2 * bytes_of(exec->dst[0]);
    case DT_OP_CONV_BWD_WEIGHTS: /* the gradient of the bias */
    case DT_OP_LINEAR_BWD_WEIGHTS:
        return exec->dst[DT_BWD_DIFF_BIAS] ? bytes_of(exec->src[DT_BWD_WEIGHTS_DIFF_DST]) : 0;
    default:
        return 0;
    }
}
