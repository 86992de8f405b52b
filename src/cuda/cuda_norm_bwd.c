/* The backward pass of batch norm: sums, then the gradient, or what nodes of its fusions leave of
 * that. */
#include "cuda/cuda_conv.h"
#include "cuda/fusion.h"

static float *coefs_of(const struct dt_exec *exec)
{
    return dt_bn_coefs(exec, exec->scratch);
}

static dt_status apply_bn_bwd(struct dt_device *dev, const struct dt_exec *exec)
{
    const struct dt_norm_args args = dt_bn_args(dev, exec);
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    const void *diff_dst = src[DT_BN_BWD_DIFF_DST], *diff_dst2 = src[DT_BN_BWD_DIFF_DST2];
    const uint8_t *mask = src[DT_BN_BWD_MASK];

    if (dst[DT_BN_BWD_DIFF_RESIDUAL]) { /* their masked sum */
        diff_dst = dst[DT_BN_BWD_DIFF_RESIDUAL];
        diff_dst2 = NULL;
        mask = NULL;
    }
    return DT_KERNEL(dev, exec, dt_kernel_bn_bwd_apply, exec->src[0]->type, dst[0],
                     src[DT_BN_BWD_ADDEND], src[0], diff_dst, diff_dst2, mask, coefs_of(exec),
                     &args);
}

static struct dt_bn_vectors bwd_vectors(const struct dt_exec *exec)
{
    void *const *src = exec->src_data;
    return (struct dt_bn_vectors){.scale = src[DT_BN_BWD_SCALE],
                                  .mean = src[DT_BN_BWD_MEAN],
                                  .variance = src[DT_BN_BWD_VARIANCE]};
}

static struct dt_bn_sums bwd_sums_of(const struct dt_device *dev, const struct dt_exec *exec,
                                     char *scratch)
{
    return (struct dt_bn_sums){.diff_scale = exec->dst_data[DT_BN_BWD_DIFF_SCALE],
                               .diff_shift = exec->dst_data[DT_BN_BWD_DIFF_SHIFT],
                               .coefs = dt_bn_coefs(exec, scratch),
                               .partial = (void *)scratch,
                               .slot = dt_bn_own_slot(dev, exec)};
}

/* Computes both gradients of a pair. The scratch of the second is behind that of the first. */
static dt_status run_pair_bwd(struct dt_device *dev, const struct dt_exec *exec,
                              const struct dt_exec *second)
{
    const struct dt_norm_args args = dt_bn_args(dev, exec);
    const struct dt_bn_vectors bn[2] = {bwd_vectors(exec), bwd_vectors(second)};
    const struct dt_bn_sums sums[2] = {
        bwd_sums_of(dev, exec, exec->scratch),
        bwd_sums_of(dev, second, exec->scratch + exec->scratch_bytes)};
    void *const *src = exec->src_data;
    const void *diff_dst = src[DT_BN_BWD_DIFF_DST], *diff_dst2 = src[DT_BN_BWD_DIFF_DST2];
    const uint8_t *mask = src[DT_BN_BWD_MASK];
    DT_TRY(DT_KERNEL(dev, exec, dt_kernel_bn_pair_bwd_sums, exec->src[0]->type, sums, src[0],
                     second->src_data[0], diff_dst, diff_dst2, mask, bn, &args));
    return DT_KERNEL(dev, exec, dt_kernel_bn_pair_bwd_apply, exec->src[0]->type, exec->dst_data[0],
                     second->dst_data[0], src[0], second->src_data[0], diff_dst, diff_dst2, mask,
                     sums[0].coefs, sums[1].coefs, &args);
}

/* The gradient of the convolution after it, if that is computed here, too; else NULL. */
static const struct dt_exec *conv_of(const struct dt_exec *exec)
{
    const struct dt_exec *plain = dt_cuda_partner(exec, DT_FUSION_CONV_BN_BWD, 2, 1);
    const struct dt_exec *add = dt_cuda_partner(exec, DT_FUSION_CONV_ADD_BN_BWD, 2, 1);
    return plain ? plain : add ? add : dt_cuda_partner(exec, DT_FUSION_CONV_PAIR_BWD, 3, 2);
}

/* The scratch of a pair's second bn is behind the first one's, and the workspace of a convolution
 * behind both. */
static size_t own_scratch_bytes(const struct dt_exec *exec)
{
    const bool is_first = dt_cuda_partner(exec, DT_FUSION_BN_PAIR_BWD, 0, 1);
    return dt_cuda_align((is_first ? 2 : 1) * exec->scratch_bytes);
}

static size_t bwd_scratch_bytes(const struct dt_exec *exec)
{
    const struct dt_exec *conv = conv_of(exec);
    return own_scratch_bytes(exec) + (conv ? dt_fusion_problem(conv)->exec.workspace_bytes : 0);
}

/* Memory in which the convolution leaves the sum of diff_dst and diff_dst2, kept where the ReLU was
 * active. */
static void *masked_sum(const struct dt_exec *exec)
{
    if (dt_cuda_partner(exec, DT_FUSION_CONV_PAIR_BWD, 3, 4))
        return exec->src_data[DT_BN_BWD_DIFF_DST2];
    void *diff_residual = exec->dst_data[DT_BN_BWD_DIFF_RESIDUAL];
    return diff_residual ? diff_residual : exec->src_data[DT_BN_BWD_DIFF_DST];
}

static void place_bn(void **bn, const struct dt_exec *exec, char *scratch, float *inverse_std)
{
    void *const *src = exec->src_data;
    float *coefs = dt_bn_coefs(exec, scratch);
    const int cp = exec->src[0]->cp;
    bn[DT_DNN_BN_SRC] = src[DT_BN_BWD_SRC];
    bn[DT_DNN_BN_MEAN] = src[DT_BN_BWD_MEAN];
    bn[DT_DNN_BN_INV_STD] = inverse_std;
    bn[DT_DNN_BN_SCALE] = src[DT_BN_BWD_SCALE];
    bn[DT_DNN_BN_SHIFT] = src[DT_BN_BWD_SHIFT];
    bn[DT_DNN_BN_DIFF_SCALE] = exec->dst_data[DT_BN_BWD_DIFF_SCALE];
    bn[DT_DNN_BN_DIFF_SHIFT] = exec->dst_data[DT_BN_BWD_DIFF_SHIFT];
    bn[DT_DNN_BN_COEF_DIFF] = coefs;
    bn[DT_DNN_BN_COEF_SRC] = coefs + cp;
    bn[DT_DNN_BN_COEF_ONE] = coefs + 2 * cp;
}

static dt_status bind_conv(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_exec *conv = conv_of(exec);
    const struct dt_exec *bn = dt_cuda_partner(exec, DT_FUSION_CONV_ADD_BN_BWD, 2, 0);
    const struct dt_exec *second = dt_cuda_partner(exec, DT_FUSION_CONV_PAIR_BWD, 3, 4);
    float *inverse_std = exec->src_data[DT_BN_BWD_MASK];
    struct dt_dnn_memory memory = dt_conv_memory(conv);
    memory.at[DT_DNN_X] = masked_sum(exec);
    place_bn(&memory.at[DT_DNN_BN], exec, exec->scratch, inverse_std);
    if (bn || second)
        memory.at[DT_DNN_DIFF2] = exec->src_data[DT_BN_BWD_DIFF_DST];
    if (bn)
        memory.at[DT_DNN_RESIDUAL] = bn->src_data[DT_BN_RESIDUAL];
    if (second)
        place_bn(&memory.at[DT_DNN_BN2], second, exec->scratch + exec->scratch_bytes,
                 inverse_std + exec->src[0]->cp);
    memory.workspace = exec->scratch + own_scratch_bytes(exec);
    return dt_conv_bind(dev, exec, &memory);
}

/* The convolution is bound with the last node of the fusion, when all addresses are known. */
static dt_status bind_bn_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    if (dt_cuda_partner(exec, DT_FUSION_CONV_PAIR_BWD, 4, 3))
        return bind_conv(dev, exec->fusion[dt_fusion_slot(DT_FUSION_CONV_PAIR_BWD, 4)]->exec[3]);
    if (!conv_of(exec) || dt_cuda_partner(exec, DT_FUSION_CONV_PAIR_BWD, 3, 4))
        return DT_OK;
    return bind_conv(dev, exec);
}

static dt_status run_conv_bn_bwd(struct dt_device *dev, const struct dt_exec *exec)
{
    const struct dt_norm_args args = dt_bn_args(dev, exec);
    const struct dt_exec *second = dt_cuda_partner(exec, DT_FUSION_CONV_PAIR_BWD, 3, 4);
    const enum dt_dtype type = exec->src[0]->type;
    void *const *src = exec->src_data, *const *dst = exec->dst_data;

    DT_TRY(dt_dnn_run(dev->dnn, &dt_fusion_problem(conv_of(exec))->exec, exec->own));
    if (second)
        DT_TRY(DT_KERNEL(dev, exec, dt_kernel_bn_pair_bwd_apply, type, dst[0], second->dst_data[0],
                         src[0], second->src_data[0], masked_sum(exec), NULL, NULL, coefs_of(exec),
                         dt_bn_coefs(second, exec->scratch + exec->scratch_bytes), &args));
    else
        DT_TRY(DT_KERNEL(dev, exec, dt_kernel_bn_bwd_apply, type, dst[0], src[DT_BN_BWD_ADDEND],
                         src[0], masked_sum(exec), NULL, NULL, coefs_of(exec), &args));
    return DT_OK;
}

static dt_status run_bn_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_norm_args args = dt_bn_args(dev, exec);
    const struct dt_bn_vectors bn = bwd_vectors(exec);
    const struct dt_exec *second = dt_cuda_partner(exec, DT_FUSION_BN_PAIR_BWD, 0, 1);
    const struct dt_exec *pool = dt_cuda_partner(exec, DT_FUSION_BN_POOL, 3, 2);
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    const struct dt_bn_sums out = bwd_sums_of(dev, exec, exec->scratch);

    if (dt_cuda_partner(exec, DT_FUSION_BN_PAIR_BWD, 1, 0))
        return DT_OK; /* the first one did it */
    if (conv_of(exec))
        return run_conv_bn_bwd(dev, exec);
    if (second)
        return run_pair_bwd(dev, exec, second);
    if (pool) {
        /* The kernels compute the gradient of the pooling, too, which runs before this node. */
        const struct dt_pool_shape shape = dt_cuda_pool_bwd_shape(pool);
        const void *diff_dst = pool->src_data[DT_MAX_POOL_BWD_DIFF_DST];
        const void *where = pool->src_data[DT_MAX_POOL_BWD_WORKSPACE];
        const enum dt_dtype type = exec->src[0]->type;
        DT_TRY(DT_KERNEL(dev, exec, dt_kernel_bn_pool_bwd_sums, type, &out, src[0], diff_dst, where,
                         &bn, &args, &shape));
        return DT_KERNEL(dev, exec, dt_kernel_bn_pool_bwd_apply, type, dst[0], src[0], diff_dst,
                         where, out.coefs, &shape);
    }
    DT_TRY(DT_KERNEL(dev, exec, dt_kernel_bn_bwd_sums, exec->src[0]->type, &out,
                     dst[DT_BN_BWD_DIFF_RESIDUAL], src[DT_BN_BWD_SRC], src[DT_BN_BWD_DIFF_DST],
                     src[DT_BN_BWD_DIFF_DST2], src[DT_BN_BWD_MASK], &bn, &args));
    return dt_node_is_synced(node) ? DT_OK : apply_bn_bwd(dev, exec);
}

static dt_status finish_bn_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_norm_args args = dt_bn_args(dev, exec);
    const struct dt_bn_vectors bn = bwd_vectors(exec);
    DT_TRY(DT_KERNEL(dev, exec, dt_kernel_bn_bwd_combine, coefs_of(exec),
                     dt_bn_rank_slots(dev, exec), exec->node->attr.bn.n_ranks, &bn, &args));
    return apply_bn_bwd(dev, exec);
}

static dt_status run_bn_frozen_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_norm_args args = dt_bn_args(dev, exec);
    void *const *src = exec->src_data;
    return DT_KERNEL(dev, exec, dt_kernel_bn_apply, exec->src[0]->type, exec->dst_data[0], NULL,
                     src[0], NULL, src[DT_BN_FROZEN_BWD_SCALE], NULL, NULL,
                     src[DT_BN_FROZEN_BWD_RUNNING_VAR], false, &args);
}

const struct dt_cuda_op dt_cuda_bn_bwd = {run_bn_bwd,  dt_bn_prepare,   bwd_scratch_bytes,
                                          bind_bn_bwd, dt_conv_release, finish_bn_bwd};
const struct dt_cuda_op dt_cuda_bn_frozen_bwd = {.prepare = dt_bn_prepare,
                                                 .run = run_bn_frozen_bwd};
