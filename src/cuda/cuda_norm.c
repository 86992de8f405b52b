/* Batch normalisation by our own kernels, because they fold the residual addition, the ReLU (kept
 * as one bit per value) and the sum of two gradients into passes over memory that are needed
 * anyway.
 *
 * Forward in training: statistics, then the normalisation; backward: sums, then the gradient. The
 * scratch holds the partial results of the blocks, then (backward) the coefficients of the gradient
 * and, with statistics over several ranks, the slots in which they exchange their sums: there a
 * node ends its first half, and the second begins with a kernel that combines them. */
#include "cuda/cuda_conv.h"
#include "cuda/fusion.h"

/* The geometry of the activation that is normalised. */
static struct dt_norm_args args_of(const struct dt_exec *exec)
{
    const struct dt_cuda_format *f = exec->src[0];
    return (struct dt_norm_args){.rows = (size_t)f->n * (size_t)f->h * (size_t)f->w,
                                 .cp = f->cp,
                                 .eps = exec->node->attr.bn.eps,
                                 .momentum = exec->node->attr.bn.momentum};
}

static size_t partial_bytes(const struct dt_norm_args *args)
{
    return dt_sums_partial_bytes(args->rows, args->cp, 2);
}

static size_t slot_floats(const struct dt_exec *exec)
{
    return DT_BN_SLOT_FLOATS(exec->src[0]->cp);
}

float *dt_bn_coefs(const struct dt_exec *exec, char *scratch)
{
    const struct dt_norm_args args = args_of(exec);
    return (void *)(scratch + partial_bytes(&args));
}

static size_t n_coefs(const struct dt_exec *exec)
{
    return exec->node->op == DT_OP_BN_BWD ? 3 * (size_t)exec->src[0]->cp : 0;
}

dt_status dt_bn_prepare(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const size_t rows = args_of(exec).rows;
    if (rows > INT32_MAX)
        DT_FAIL(DT_ERR_CONFIG,
                "batch norm '%s' has %zu pixels per micro-batch, the GPU supports up to %d: use a "
                "smaller "
                "batch",
                node->name, rows, INT32_MAX);
    if (node->op == DT_OP_BN_BWD || dt_node_has_statistics(node)) {
        /* A node by itself needs partial sums, then (backward) coefficients, then (synced) slots.
         */
        const struct dt_norm_args args = args_of(exec);
        size_t n_slots = dt_node_is_synced(exec->node) ? (size_t)dev->options.n_ranks : 0;
        exec->scratch_bytes =
            partial_bytes(&args) + (n_coefs(exec) + n_slots * slot_floats(exec)) * sizeof(float);
    }
    return DT_OK;
}

/* If synced, the slot of a rank. */
static float *slot_of(const struct dt_exec *exec, int rank)
{
    return dt_bn_coefs(exec, exec->scratch) + n_coefs(exec) + (size_t)rank * slot_floats(exec);
}

void *dt_cuda_exchange_slots(struct dt_device *dev, const struct dt_exec *exec, size_t *bytes)
{
    (void)dev;
    *bytes = slot_floats(exec) * sizeof(float);
    return slot_of(exec, 0);
}

/* With several ranks, NCCL's kernels want to start meanwhile. */
struct dt_norm_args dt_bn_args(const struct dt_device *dev, const struct dt_exec *exec)
{
    struct dt_norm_args args = args_of(exec);
    args.yields = dev->options.n_ranks > 1;
    args.tickets = dev->tickets;
    return args;
}

float *dt_bn_own_slot(const struct dt_device *dev, const struct dt_exec *exec)
{
    return dt_node_is_synced(exec->node) ? slot_of(exec, dev->options.rank) : NULL;
}

struct dt_bn_vectors dt_cuda_bn_vectors(const struct dt_exec *exec)
{
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    const bool train = dt_node_has_statistics(exec->node);
    return (struct dt_bn_vectors){
        .scale = src[DT_BN_SCALE],
        .shift = src[DT_BN_SHIFT],
        .mean = train ? dst[DT_BN_MEAN] : src[DT_BN_RUNNING_MEAN],
        .variance = train ? dst[DT_BN_VARIANCE] : src[DT_BN_RUNNING_VAR],
    };
}

/* The bytes that say where the ReLU is active; NULL if no node asks for them. */
static uint8_t *mask_of(const struct dt_exec *exec)
{
    const struct dt_cuda_format *mask = exec->dst[DT_BN_MASK];
    return mask && !mask->unused ? exec->dst_data[DT_BN_MASK] : NULL;
}

/* Memory in the place of a mask that no node asks for; NULL if a node does. For a pair, the one of
 * its second bn holds first the second's and then the first's. */
static float *inverse_std_of(const struct dt_exec *exec)
{
    const struct dt_exec *second = dt_cuda_partner(exec, DT_FUSION_CONV_PAIR_BWD, 0, 1);
    if (second)
        return (float *)second->dst_data[DT_BN_MASK] + exec->src[0]->cp;
    const struct dt_cuda_format *mask = exec->dst[DT_BN_MASK];
    return mask && mask->reuse_bytes > 0 ? exec->dst_data[DT_BN_MASK] : NULL;
}

static dt_status apply_bn(struct dt_device *dev, const struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_norm_args args = dt_bn_args(dev, exec);
    const struct dt_exec *first = dt_cuda_partner(exec, DT_FUSION_BN_PAIR, 1, 0);
    const struct dt_bn_vectors bn = dt_cuda_bn_vectors(exec);
    void *const *src = exec->src_data, *const *dst = exec->dst_data;

    if (first) {
        /* The first of a pair is the one that would be the residual. */
        const struct dt_bn_vectors other = dt_cuda_bn_vectors(first);
        return DT_KERNEL(dev, exec, dt_kernel_bn_pair_apply, exec->src[0]->type, dst[0],
                         mask_of(exec), src[0], first->src_data[0], &bn, &other,
                         node->activation == DT_RELU, &args);
    }
    return DT_KERNEL(dev, exec, dt_kernel_bn_apply, exec->src[0]->type, dst[0], mask_of(exec),
                     src[DT_BN_SRC], src[DT_BN_RESIDUAL], bn.scale, bn.shift, bn.mean, bn.variance,
                     node->activation == DT_RELU, &args);
}

/* If the convolution runs here, its sums of every channel and of their squares are at the start of
 * the scratch, and its workspace is behind them. */
static float *sums_of(const struct dt_exec *exec)
{
    return (void *)exec->scratch;
}

static size_t sums_bytes(const struct dt_exec *exec)
{
    return dt_cuda_align(slot_floats(exec) * sizeof(float));
}

static size_t bn_scratch_bytes(const struct dt_exec *exec)
{
    const struct dt_exec *conv = dt_cuda_partner(exec, DT_FUSION_CONV_BN, 1, 0);
    if (!conv)
        return exec->scratch_bytes;
    return sums_bytes(exec) + dt_fusion_problem(conv)->exec.workspace_bytes;
}

static dt_status bind_bn(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_exec *conv = dt_cuda_partner(exec, DT_FUSION_CONV_BN, 1, 0);
    if (!conv)
        return DT_OK;
    struct dt_dnn_memory memory = dt_conv_memory(conv);
    memory.at[DT_DNN_SUM] = sums_of(exec);
    memory.at[DT_DNN_SQUARE_SUM] = sums_of(exec) + exec->src[0]->cp;
    memory.workspace = exec->scratch + sums_bytes(exec);
    dt_conv_place_factors(&memory, dt_cuda_partner(exec, DT_FUSION_BN_CONV, 2, 0));
    return dt_conv_bind(dev, exec, &memory);
}

/* The other bn of a pair, max_pool or conv does it. */
static bool is_applied_later(const struct dt_exec *exec)
{
    return dt_cuda_partner(exec, DT_FUSION_BN_PAIR, 0, 1) ||
           dt_cuda_partner(exec, DT_FUSION_BN_POOL, 0, 1) ||
           dt_cuda_partner(exec, DT_FUSION_BN_CONV, 0, 1);
}

static struct dt_bn_statistics statistics_of(const struct dt_device *dev,
                                             const struct dt_exec *exec)
{
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    return (struct dt_bn_statistics){.mean = dst[DT_BN_MEAN],
                                     .variance = dst[DT_BN_VARIANCE],
                                     .running_mean = src[DT_BN_RUNNING_MEAN],
                                     .running_var = src[DT_BN_RUNNING_VAR],
                                     .partial = (void *)exec->scratch,
                                     .slot = dt_bn_own_slot(dev, exec),
                                     .inverse_std = inverse_std_of(exec)};
}

/* Runs the convolution before the bn, too, which leaves the sums of its results and of their
 * squares. */
static dt_status run_conv_bn(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_norm_args args = dt_bn_args(dev, exec);
    const struct dt_bn_statistics out = statistics_of(dev, exec);
    const float *sums = sums_of(exec);
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    const struct dt_exec *conv = dt_cuda_partner(exec, DT_FUSION_CONV_BN, 1, 0);
    const bool is_second = dt_cuda_partner(exec, DT_FUSION_BN_PAIR, 1, 0);

    DT_TRY(dt_dnn_run(dev->dnn, &dt_fusion_problem(conv)->exec, exec->own));
    if (is_second || is_applied_later(exec)) {
        const struct dt_bn_vectors bn = dt_cuda_bn_vectors(exec);
        const bool has_factors = dt_cuda_partner(exec, DT_FUSION_BN_CONV, 0, 1);
        DT_TRY(DT_KERNEL(dev, exec, dt_kernel_bn_finalize_sums, exec->src[0]->type,
                         has_factors ? dt_bn_scale_factors(exec) : NULL,
                         has_factors ? dt_bn_shift_factors(exec) : NULL, &out, sums, &bn, &args));
        return is_second ? apply_bn(dev, exec) : DT_OK;
    }
    return DT_KERNEL(dev, exec, dt_kernel_bn_apply_sums, exec->src[0]->type, dst[0], mask_of(exec),
                     src[DT_BN_SRC], src[DT_BN_RESIDUAL], src[DT_BN_SCALE], src[DT_BN_SHIFT], &out,
                     sums, node->activation == DT_RELU, &args);
}

static dt_status run_bn(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_norm_args args = dt_bn_args(dev, exec);

    if (dt_cuda_partner(exec, DT_FUSION_CONV_BN, 1, 0))
        return run_conv_bn(dev, exec);
    if (dt_node_has_statistics(node)) {
        const struct dt_bn_statistics out = statistics_of(dev, exec);
        DT_TRY(DT_KERNEL(dev, exec, dt_kernel_bn_stats, exec->src[0]->type, &out, exec->src_data[0],
                         &args));
    }
    if (dt_cuda_partner(exec, DT_FUSION_BN_CONV, 0, 1)) {
        const struct dt_norm_args own = args_of(exec);
        const struct dt_bn_vectors bn = dt_cuda_bn_vectors(exec);
        return DT_KERNEL(dev, exec, dt_kernel_bn_scale_shift, exec->src[0]->type,
                         dt_bn_scale_factors(exec), dt_bn_shift_factors(exec), &bn, &own);
    }
    return dt_node_is_synced(node) || is_applied_later(exec) ? DT_OK : apply_bn(dev, exec);
}

const float *dt_bn_rank_slots(const struct dt_device *dev, const struct dt_exec *exec)
{
    const int group = exec->node->attr.bn.n_ranks;
    return slot_of(exec, dev->options.rank / group * group);
}

static dt_status finish_bn(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_norm_args args = dt_bn_args(dev, exec);
    const struct dt_bn_statistics out = statistics_of(dev, exec);
    DT_TRY(DT_KERNEL(dev, exec, dt_kernel_bn_combine, &out, dt_bn_rank_slots(dev, exec),
                     exec->node->attr.bn.n_ranks, &args));
    return apply_bn(dev, exec);
}

const struct dt_cuda_op dt_cuda_bn = {run_bn,  dt_bn_prepare,   bn_scratch_bytes,
                                      bind_bn, dt_conv_release, finish_bn};
