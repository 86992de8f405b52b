/* Batch normalisation by our own kernels, because they fold the residual addition, the ReLU (kept
 * as one bit per value) and the sum of two gradients into passes over memory that are needed
 * anyway.
 *
 * Forward in training: statistics, then the normalisation; backward: sums, then the gradient. In
 * between, a small kernel combines the partial results of the blocks. Those are in the scratch,
 * followed (backward) by the coefficients of the gradient and, with statistics over several ranks,
 * by the slots in which they exchange their sums: there a node ends its first half, and the second
 * begins with a kernel that combines them. */
#include "cuda/internal.h"

/* The geometry of the activation that is normalised. */
static struct dt_norm_args args_of(const struct dt_exec *exec)
{
    const struct dt_cuda_format *f = exec->src[0];
    return (struct dt_norm_args){.rows = (size_t)f->n * (size_t)f->h * (size_t)f->w,
                                 .cp = f->cp,
                                 .eps = exec->node->attr.bn.eps,
                                 .momentum = exec->node->attr.bn.momentum};
}

static bool lies_alike(const struct dt_cuda_format *f, const struct dt_cuda_format *like)
{
    return f->layout == DT_LAYOUT_ACTIVATION && f->type == like->type && f->cp == like->cp &&
           f->elements == like->elements;
}

/* Bit i of the workspace belongs to element i of the activation. */
static bool is_mask(const struct dt_cuda_format *f, const struct dt_cuda_format *like)
{
    return f->layout == DT_LAYOUT_BITS && f->elements == like->elements / 8;
}

/* Ports by kind: a = activation like src[0], v = vector of its channels, w = workspace. */
static dt_status prepare_rows(struct dt_exec *exec, const char *src_kinds, const char *dst_kinds)
{
    const struct dt_node *node = exec->node;
    const struct dt_cuda_format *like = exec->src[0];
    size_t rows = args_of(exec).rows;

    if (rows > INT32_MAX)
        DT_FAIL(DT_ERR_CONFIG,
                "batch norm '%s' has %zu pixels per micro-batch, the GPU supports up to %d: use a "
                "smaller "
                "batch",
                node->name, rows, INT32_MAX);
    for (int i = 0; i < node->n_src + node->n_dst; i++) {
        bool is_src = i < node->n_src;
        char kind = is_src ? src_kinds[i] : dst_kinds[i - node->n_src];
        const struct dt_cuda_format *f = is_src ? exec->src[i] : exec->dst[i - node->n_src];
        bool ok = kind == 'a'   ? lies_alike(f, like) && f->cp % DT_GROUP == 0
                  : kind == 'w' ? is_mask(f, like)
                                : f->layout == DT_LAYOUT_VECTOR && f->cp == like->cp;
        if (!ok)
            DT_FAIL(DT_ERR_INTERNAL, "the tensors of node '%s' differ in layout (%s %d)",
                    node->name, is_src ? "source" : "destination", is_src ? i : i - node->n_src);
    }
    return DT_OK;
}

static size_t partial_bytes(const struct dt_norm_args *args)
{
    return dt_channel_partial_bytes(args->rows, args->cp, 2);
}

/* Floats of a slot: two sums per channel. */
static size_t slot_floats(const struct dt_exec *exec)
{
    return 2 * (size_t)exec->src[0]->cp;
}

/* Backward: the coefficients of the gradient. */
static float *coefs_of(const struct dt_exec *exec)
{
    const struct dt_norm_args args = args_of(exec);
    return (void *)(exec->scratch + partial_bytes(&args));
}

static size_t n_coefs(const struct dt_exec *exec)
{
    return exec->node->op == DT_OP_BN_BWD ? 3 * (size_t)exec->src[0]->cp : 0;
}

static size_t scratch_bytes(const struct dt_device *dev, const struct dt_exec *exec)
{
    const struct dt_norm_args args = args_of(exec);
    size_t n_slots = dt_node_is_synced(exec->node) ? (size_t)dev->options.n_ranks : 0;
    return partial_bytes(&args) + (n_coefs(exec) + n_slots * slot_floats(exec)) * sizeof(float);
}

static dt_status prepare_bn(struct dt_device *dev, struct dt_exec *exec)
{
    DT_TRY(prepare_rows(exec, "avvvva", "avvw"));
    exec->scratch_bytes = exec->node->n_dst > 1 ? scratch_bytes(dev, exec) : 0;
    return DT_OK;
}

static dt_status prepare_bn_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    DT_TRY(prepare_rows(exec, exec->node->relu ? "aavvvvwa" : "aavvvva", "avva"));
    exec->scratch_bytes = scratch_bytes(dev, exec);
    return DT_OK;
}

static dt_status prepare_bn_frozen_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    (void)dev;
    DT_TRY(prepare_rows(exec, "avv", "a"));
    return DT_OK;
}

/* If synced, the slot of a rank. */
static float *slot_of(const struct dt_exec *exec, int rank)
{
    return coefs_of(exec) + n_coefs(exec) + (size_t)rank * slot_floats(exec);
}

void *dt_cuda_exchanged(struct dt_device *dev, const struct dt_exec *exec, size_t *bytes)
{
    (void)dev;
    *bytes = slot_floats(exec) * sizeof(float);
    return slot_of(exec, 0);
}

/* For the kernels that add nothing up: with several ranks, NCCL's kernels want to start meanwhile.
 */
static struct dt_norm_args apply_args(const struct dt_device *dev, const struct dt_exec *exec)
{
    struct dt_norm_args args = args_of(exec);
    args.yields = dev->options.n_ranks > 1;
    return args;
}

static dt_status apply_bn(struct dt_device *dev, const struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_norm_args args = apply_args(dev, exec);
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    bool train = node->n_dst > 1;
    const float *mean = train ? dst[1] : src[3], *variance = train ? dst[2] : src[4];

    DT_TRY(DT_CUDA(node->name, dt_kernel_bn_apply(dev->compute, exec->src[0]->type, dst[0],
                                                  node->n_dst > 3 ? dst[3] : NULL, src[0],
                                                  node->residual ? src[5] : NULL, src[1], src[2],
                                                  mean, variance, node->relu, &args)));
    return DT_OK;
}

static dt_status run_bn(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_norm_args args = args_of(exec);
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    float *partial = (void *)exec->scratch;
    bool synced = dt_node_is_synced(node);

    if (node->n_dst > 1) {
        DT_TRY(DT_CUDA(node->name, dt_kernel_bn_stats(dev->compute, exec->src[0]->type, partial,
                                                      src[0], &args)));
        DT_TRY(DT_CUDA(node->name,
                       dt_kernel_bn_finalize(dev->compute, dst[1], dst[2], src[3], src[4],
                                             synced ? slot_of(exec, dev->options.rank) : NULL,
                                             partial, &args)));
    }
    return synced ? DT_OK : apply_bn(dev, exec);
}

/* diff_dst2 of bn_bwd. */
static const void *second_term(const struct dt_exec *exec)
{
    int n_src = exec->node->relu ? 7 : 6; /* without it */
    return exec->node->n_src > n_src ? exec->src_data[n_src] : NULL;
}

static dt_status apply_bn_bwd(struct dt_device *dev, const struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_norm_args args = apply_args(dev, exec);
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    const void *diff_dst = src[1], *diff_dst2 = second_term(exec);
    const uint8_t *mask = node->relu ? src[6] : NULL;

    if (node->n_dst > 3) { /* diff_residual is their masked sum */
        diff_dst = dst[3];
        diff_dst2 = NULL;
        mask = NULL;
    }
    DT_TRY(DT_CUDA(node->name,
                   dt_kernel_bn_bwd_apply(dev->compute, exec->src[0]->type, dst[0], src[0],
                                          diff_dst, diff_dst2, mask, coefs_of(exec), &args)));
    return DT_OK;
}

static dt_status run_bn_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_norm_args args = args_of(exec);
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    float *partial = (void *)exec->scratch;
    bool synced = dt_node_is_synced(node);

    DT_TRY(DT_CUDA(node->name, dt_kernel_bn_bwd_sums(dev->compute, exec->src[0]->type, partial,
                                                     node->n_dst > 3 ? dst[3] : NULL, src[0],
                                                     src[1], second_term(exec),
                                                     node->relu ? src[6] : NULL, src[4], &args)));
    DT_TRY(DT_CUDA(node->name,
                   dt_kernel_bn_bwd_finalize(dev->compute, dst[1], dst[2], coefs_of(exec),
                                             synced ? slot_of(exec, dev->options.rank) : NULL,
                                             partial, src[2], src[4], src[5], &args)));
    return synced ? DT_OK : apply_bn_bwd(dev, exec);
}

dt_status dt_cuda_finish(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_norm_args args = args_of(exec);
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    const int group = node->attr.bn.group;
    const float *slots = slot_of(exec, dev->options.rank / group * group);

    if (node->op == DT_OP_BN) {
        DT_TRY(DT_CUDA(node->name, dt_kernel_bn_combine(dev->compute, dst[1], dst[2], src[3],
                                                        src[4], slots, group, &args)));
        return apply_bn(dev, exec);
    }
    DT_TRY(DT_CUDA(node->name, dt_kernel_bn_bwd_combine(dev->compute, coefs_of(exec), slots, group,
                                                        src[2], src[4], src[5], &args)));
    return apply_bn_bwd(dev, exec);
}

static dt_status run_bn_frozen_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_norm_args args = apply_args(dev, exec);
    void *const *src = exec->src_data;
    DT_TRY(DT_CUDA(exec->node->name,
                   dt_kernel_bn_apply(dev->compute, exec->src[0]->type, exec->dst_data[0], NULL,
                                      src[0], NULL, src[1], NULL, NULL, src[2], false, &args)));
    return DT_OK;
}

const struct dt_cuda_op dt_cuda_bn = {.prepare = prepare_bn, .run = run_bn};
const struct dt_cuda_op dt_cuda_bn_bwd = {.prepare = prepare_bn_bwd, .run = run_bn_bwd};
const struct dt_cuda_op dt_cuda_bn_frozen_bwd = {.prepare = prepare_bn_frozen_bwd,
                                                 .run = run_bn_frozen_bwd};
