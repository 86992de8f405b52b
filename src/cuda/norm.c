/* Batch normalisation by our own kernels, because they fold the residual addition, the ReLU (kept
 * as one bit per value) and the sum of two gradients into passes over memory that are needed
 * anyway.
 *
 * Forward in training: statistics, then the normalisation; backward: sums, then the gradient. The
 * scratch holds the partial results of the blocks, then (backward) the coefficients of the gradient
 * and, with statistics over several ranks, the slots in which they exchange their sums: there a
 * node ends its first half, and the second begins with a kernel that combines them. */
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

/* Of all launches. With several ranks, NCCL's kernels want to start meanwhile. */
static struct dt_norm_args launch_args(const struct dt_device *dev, const struct dt_exec *exec)
{
    struct dt_norm_args args = args_of(exec);
    args.yields = dev->options.n_ranks > 1;
    args.tickets = dev->tickets;
    return args;
}

/* The slot of this rank, NULL if the node is not synced. */
static float *own_slot(const struct dt_device *dev, const struct dt_exec *exec)
{
    return dt_node_is_synced(exec->node) ? slot_of(exec, dev->options.rank) : NULL;
}

static dt_status apply_bn(struct dt_device *dev, const struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_norm_args args = launch_args(dev, exec);
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    bool train = node->n_dst > 1;
    const float *mean = train ? dst[1] : src[3], *variance = train ? dst[2] : src[4];

    DT_TRY(DT_CUDA(node->name, dt_kernel_bn_apply(dev->compute, exec->src[0]->type, dst[0],
                                                  node->n_dst > 3 ? dst[3] : NULL, src[0],
                                                  node->residual ? src[5] : NULL, src[1], src[2],
                                                  mean, variance, node->relu, &args)));
    return DT_OK;
}

static struct dt_bn_statistics statistics_of(const struct dt_device *dev,
                                             const struct dt_exec *exec)
{
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    return (struct dt_bn_statistics){.mean = dst[1],
                                     .variance = dst[2],
                                     .running_mean = src[3],
                                     .running_var = src[4],
                                     .partial = (void *)exec->scratch,
                                     .slot = own_slot(dev, exec)};
}

static dt_status run_bn(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_norm_args args = launch_args(dev, exec);

    if (node->n_dst > 1) {
        const struct dt_bn_statistics out = statistics_of(dev, exec);
        DT_TRY(DT_CUDA(node->name, dt_kernel_bn_stats(dev->compute, exec->src[0]->type, &out,
                                                      exec->src_data[0], &args)));
    }
    return dt_node_is_synced(node) ? DT_OK : apply_bn(dev, exec);
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
    const struct dt_norm_args args = launch_args(dev, exec);
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

static struct dt_bn_vectors bwd_vectors(const struct dt_exec *exec)
{
    void *const *src = exec->src_data;
    return (struct dt_bn_vectors){.scale = src[2], .mean = src[4], .variance = src[5]};
}

static dt_status run_bn_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_norm_args args = launch_args(dev, exec);
    const struct dt_bn_vectors bn = bwd_vectors(exec);
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    const struct dt_bn_sums out = {.diff_scale = dst[1],
                                   .diff_shift = dst[2],
                                   .coefs = coefs_of(exec),
                                   .partial = (void *)exec->scratch,
                                   .slot = own_slot(dev, exec)};

    DT_TRY(DT_CUDA(node->name, dt_kernel_bn_bwd_sums(dev->compute, exec->src[0]->type, &out,
                                                     node->n_dst > 3 ? dst[3] : NULL, src[0],
                                                     src[1], second_term(exec),
                                                     node->relu ? src[6] : NULL, &bn, &args)));
    return dt_node_is_synced(node) ? DT_OK : apply_bn_bwd(dev, exec);
}

dt_status dt_cuda_finish(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_norm_args args = launch_args(dev, exec);
    const int group = node->attr.bn.group;
    const float *slots = slot_of(exec, dev->options.rank / group * group);

    if (node->op == DT_OP_BN) {
        const struct dt_bn_statistics out = statistics_of(dev, exec);
        DT_TRY(DT_CUDA(node->name, dt_kernel_bn_combine(dev->compute, &out, slots, group, &args)));
        return apply_bn(dev, exec);
    }
    const struct dt_bn_vectors bn = bwd_vectors(exec);
    DT_TRY(DT_CUDA(node->name, dt_kernel_bn_bwd_combine(dev->compute, coefs_of(exec), slots, group,
                                                        &bn, &args)));
    return apply_bn_bwd(dev, exec);
}

static dt_status run_bn_frozen_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_norm_args args = launch_args(dev, exec);
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
