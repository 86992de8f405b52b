/* Batch normalisation by our own kernels, because they fold the residual addition, the ReLU (kept
 * as one bit per value) and the sum of two gradients into passes over memory that are needed
 * anyway.
 *
 * Forward in training: statistics, then the normalisation; backward: sums, then the gradient. The
 * scratch holds the partial results of the blocks, then (backward) the coefficients of the gradient
 * and, with statistics over several ranks, the slots in which they exchange their sums: there a
 * node ends its first half, and the second begins with a kernel that combines them. */
#include "cuda/group.h"

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
    return dt_sums_partial_bytes(args->rows, args->cp, 2);
}

/* Floats of a slot: two sums per channel. */
static size_t slot_floats(const struct dt_exec *exec)
{
    return 2 * (size_t)exec->src[0]->cp;
}

/* Backward: the coefficients of the gradient. */
static float *coefs_in(const struct dt_exec *exec, char *scratch)
{
    const struct dt_norm_args args = args_of(exec);
    return (void *)(scratch + partial_bytes(&args));
}

static float *coefs_of(const struct dt_exec *exec)
{
    return coefs_in(exec, exec->scratch);
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

struct dt_bn_vectors dt_cuda_bn_vectors(const struct dt_exec *exec)
{
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    const bool train = exec->node->n_dst > 1;
    return (struct dt_bn_vectors){src[1], src[2], train ? dst[1] : src[3], train ? dst[2] : src[4]};
}

/* Where the ReLU is active; NULL if no node asks for it. */
static uint8_t *mask_of(const struct dt_exec *exec)
{
    return exec->node->n_dst > 3 && !exec->dst[3]->unused ? exec->dst_data[3] : NULL;
}

/* In the place of a mask that no node asks for: NULL if there is one. For a pair, that of its
 * second bn holds first the second's and then the first's. */
static float *inverse_std_of(const struct dt_exec *exec)
{
    const struct dt_exec *second = dt_cuda_partner(exec, DT_GROUP_CONV_PAIR_BWD, 0, 1);
    if (second)
        return (float *)second->dst_data[3] + exec->src[0]->cp;
    return exec->node->n_dst > 3 && exec->dst[3]->instead > 0 ? exec->dst_data[3] : NULL;
}

/* Of a pair, `first` is the one that would be the residual. */
static dt_status apply_pair(struct dt_device *dev, const struct dt_exec *exec,
                            const struct dt_exec *first)
{
    const struct dt_node *node = exec->node;
    const struct dt_norm_args args = launch_args(dev, exec);
    const struct dt_bn_vectors own = dt_cuda_bn_vectors(exec), other = dt_cuda_bn_vectors(first);
    void *const *dst = exec->dst_data;
    DT_TRY(DT_CUDA(node->name,
                   dt_kernel_bn_pair_apply(dev->compute, exec->src[0]->type, dst[0], mask_of(exec),
                                           exec->src_data[0], first->src_data[0], &own, &other,
                                           node->relu, &args)));
    return DT_OK;
}

static dt_status apply_bn(struct dt_device *dev, const struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_norm_args args = launch_args(dev, exec);
    const struct dt_exec *first = dt_cuda_partner(exec, DT_GROUP_BN_PAIR, 1, 0);
    const struct dt_bn_vectors bn = dt_cuda_bn_vectors(exec);
    void *const *src = exec->src_data, *const *dst = exec->dst_data;

    if (first)
        return apply_pair(dev, exec, first);
    DT_TRY(DT_CUDA(node->name,
                   dt_kernel_bn_apply(dev->compute, exec->src[0]->type, dst[0], mask_of(exec),
                                      src[0], node->residual ? src[5] : NULL, bn.scale, bn.shift,
                                      bn.mean, bn.variance, node->relu, &args)));
    return DT_OK;
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

size_t dt_bn_factor_bytes(const struct dt_exec *bn)
{
    return 2 * dt_cuda_align((size_t)bn->src[0]->cp * dt_dtype_bytes(bn->src[0]->type));
}

static void *scale_of(const struct dt_exec *exec)
{
    return exec->dst_data[0];
}

static void *shift_of(const struct dt_exec *exec)
{
    return (char *)exec->dst_data[0] + dt_bn_factor_bytes(exec) / 2;
}

void dt_bn_place_factors(struct dt_dnn_memory *memory, const struct dt_exec *bn)
{
    memory->at[DT_DNN_X] = bn->src_data[0];
    memory->at[DT_DNN_SCALE] = scale_of(bn);
    memory->at[DT_DNN_SHIFT] = shift_of(bn);
}

/* The bn before the convolution that runs here, NULL if that is applied by itself. */
static const struct dt_exec *inner_bn(const struct dt_exec *exec)
{
    return dt_cuda_partner(exec, DT_GROUP_BN_CONV, 2, 0);
}

static size_t bn_scratch_bytes(const struct dt_exec *exec)
{
    const struct dt_exec *conv = dt_cuda_partner(exec, DT_GROUP_CONV_BN, 1, 0);
    if (!conv)
        return exec->scratch_bytes;
    return sums_bytes(exec) + dt_group_problem(conv)->plan.workspace_bytes;
}

static void release_pack(struct dt_device *dev, struct dt_exec *exec)
{
    (void)dev;
    dt_dnn_pack_destroy(exec->own);
    exec->own = NULL;
}

static dt_status bind_pack(struct dt_device *dev, struct dt_exec *exec,
                           const struct dt_dnn_memory *memory)
{
    cudnnBackendDescriptor_t pack = NULL;
    release_pack(dev, exec);
    DT_TRY(dt_dnn_pack_create(&pack, memory));
    exec->own = pack;
    return DT_OK;
}

static dt_status bind_bn(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_exec *conv = dt_cuda_partner(exec, DT_GROUP_CONV_BN, 1, 0);
    if (!conv)
        return DT_OK;
    const struct dt_exec *bn = inner_bn(exec);
    struct dt_dnn_memory memory = dt_conv_memory(conv);
    memory.at[DT_DNN_SUM] = sums_of(exec);
    memory.at[DT_DNN_SQUARE_SUM] = sums_of(exec) + exec->src[0]->cp;
    memory.workspace = exec->scratch + sums_bytes(exec);
    if (bn)
        dt_bn_place_factors(&memory, bn);
    return bind_pack(dev, exec, &memory);
}

/* The other bn of a pair, max_pool or conv does it. */
static bool is_applied_later(const struct dt_exec *exec)
{
    return dt_cuda_partner(exec, DT_GROUP_BN_PAIR, 0, 1) ||
           dt_cuda_partner(exec, DT_GROUP_BN_POOL, 0, 1) ||
           dt_cuda_partner(exec, DT_GROUP_BN_CONV, 0, 1);
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
                                     .slot = own_slot(dev, exec),
                                     .inverse_std = inverse_std_of(exec)};
}

/* With the convolution before it, which leaves the sums of its results and of their squares. */
static dt_status run_conv_bn(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_norm_args args = launch_args(dev, exec);
    const struct dt_bn_statistics out = statistics_of(dev, exec);
    const float *sums = sums_of(exec);
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    const struct dt_exec *conv = dt_cuda_partner(exec, DT_GROUP_CONV_BN, 1, 0);
    const bool is_second = dt_cuda_partner(exec, DT_GROUP_BN_PAIR, 1, 0);

    DT_TRY(dt_dnn_run(dev->dnn, &dt_group_problem(conv)->plan, exec->own));
    if (is_second || is_applied_later(exec)) {
        const struct dt_bn_vectors bn = dt_cuda_bn_vectors(exec);
        const bool has_factors = dt_cuda_partner(exec, DT_GROUP_BN_CONV, 0, 1);
        DT_TRY(DT_CUDA(node->name, dt_kernel_bn_finalize_sums(dev->compute, exec->src[0]->type,
                                                              has_factors ? scale_of(exec) : NULL,
                                                              has_factors ? shift_of(exec) : NULL,
                                                              &out, sums, &bn, &args)));
        return is_second ? apply_bn(dev, exec) : DT_OK;
    }
    DT_TRY(DT_CUDA(node->name,
                   dt_kernel_bn_apply_sums(dev->compute, exec->src[0]->type, dst[0], mask_of(exec),
                                           src[0], node->residual ? src[5] : NULL, src[1], src[2],
                                           &out, sums, node->relu, &args)));
    return DT_OK;
}

static dt_status make_factors(struct dt_device *dev, const struct dt_exec *exec)
{
    const struct dt_norm_args args = args_of(exec);
    const struct dt_bn_vectors bn = dt_cuda_bn_vectors(exec);
    DT_TRY(DT_CUDA(exec->node->name,
                   dt_kernel_bn_scale_shift(dev->compute, exec->src[0]->type, scale_of(exec),
                                            shift_of(exec), &bn, &args)));
    return DT_OK;
}

static dt_status run_bn(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_norm_args args = launch_args(dev, exec);

    if (dt_cuda_partner(exec, DT_GROUP_CONV_BN, 1, 0))
        return run_conv_bn(dev, exec);
    if (node->n_dst > 1) {
        const struct dt_bn_statistics out = statistics_of(dev, exec);
        DT_TRY(DT_CUDA(node->name, dt_kernel_bn_stats(dev->compute, exec->src[0]->type, &out,
                                                      exec->src_data[0], &args)));
    }
    if (dt_cuda_partner(exec, DT_GROUP_BN_CONV, 0, 1))
        return make_factors(dev, exec);
    return dt_node_is_synced(node) || is_applied_later(exec) ? DT_OK : apply_bn(dev, exec);
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

static struct dt_bn_sums bwd_sums_of(const struct dt_device *dev, const struct dt_exec *exec,
                                     char *scratch)
{
    return (struct dt_bn_sums){.diff_scale = exec->dst_data[1],
                               .diff_shift = exec->dst_data[2],
                               .coefs = coefs_in(exec, scratch),
                               .partial = (void *)scratch,
                               .slot = own_slot(dev, exec)};
}

/* Both gradients of a pair. The scratch of the second is behind that of the first. */
static dt_status run_pair_bwd(struct dt_device *dev, const struct dt_exec *exec,
                              const struct dt_exec *second)
{
    const struct dt_norm_args args = launch_args(dev, exec);
    const struct dt_bn_vectors bn[2] = {bwd_vectors(exec), bwd_vectors(second)};
    const struct dt_bn_sums sums[2] = {
        bwd_sums_of(dev, exec, exec->scratch),
        bwd_sums_of(dev, second, exec->scratch + exec->scratch_bytes)};
    void *const *src = exec->src_data;
    const uint8_t *mask = exec->node->relu ? src[6] : NULL;
    DT_TRY(
        DT_CUDA(exec->node->name, dt_kernel_bn_pair_bwd_sums(dev->compute, exec->src[0]->type, sums,
                                                             src[0], second->src_data[0], src[1],
                                                             second_term(exec), mask, bn, &args)));
    DT_TRY(DT_CUDA(exec->node->name,
                   dt_kernel_bn_pair_bwd_apply(dev->compute, exec->src[0]->type, exec->dst_data[0],
                                               second->dst_data[0], src[0], second->src_data[0],
                                               src[1], second_term(exec), mask, sums[0].coefs,
                                               sums[1].coefs, &args)));
    return DT_OK;
}

/* With the gradient of the pooling after it. */
static dt_status run_pool_bwd(struct dt_device *dev, const struct dt_exec *exec,
                              const struct dt_exec *pool)
{
    const struct dt_norm_args args = launch_args(dev, exec);
    const struct dt_bn_vectors bn = bwd_vectors(exec);
    const struct dt_bn_sums sums = bwd_sums_of(dev, exec, exec->scratch);
    const struct dt_pool_shape shape = dt_cuda_pool_bwd_shape(pool);
    const void *src = exec->src_data[0], *diff_dst = pool->src_data[0], *where = pool->src_data[1];
    const enum dt_dtype type = exec->src[0]->type;
    DT_TRY(
        DT_CUDA(exec->node->name, dt_kernel_bn_pool_bwd_sums(dev->compute, type, &sums, src,
                                                             diff_dst, where, &bn, &args, &shape)));
    DT_TRY(DT_CUDA(exec->node->name,
                   dt_kernel_bn_pool_bwd_apply(dev->compute, type, exec->dst_data[0], src, diff_dst,
                                               where, sums.coefs, &shape)));
    return DT_OK;
}

/* The gradient of the convolution after it, if that is computed here, too; else NULL. */
static const struct dt_exec *conv_of(const struct dt_exec *exec)
{
    const struct dt_exec *plain = dt_cuda_partner(exec, DT_GROUP_CONV_BN_BWD, 2, 1);
    const struct dt_exec *add = dt_cuda_partner(exec, DT_GROUP_CONV_ADD_BN_BWD, 2, 1);
    return plain ? plain : add ? add : dt_cuda_partner(exec, DT_GROUP_CONV_PAIR_BWD, 3, 2);
}

/* That of the second of a pair is behind that of the first, and the workspace of a convolution
 * behind both. */
static size_t own_scratch_bytes(const struct dt_exec *exec)
{
    const bool is_first = dt_cuda_partner(exec, DT_GROUP_BN_PAIR_BWD, 0, 1);
    return dt_cuda_align((is_first ? 2 : 1) * exec->scratch_bytes);
}

static size_t bwd_scratch_bytes(const struct dt_exec *exec)
{
    const struct dt_exec *conv = conv_of(exec);
    return own_scratch_bytes(exec) + (conv ? dt_group_problem(conv)->plan.workspace_bytes : 0);
}

/* What the convolution leaves of diff_dst and diff_dst2: their sum where the ReLU was active. */
static void *masked_sum(const struct dt_exec *exec)
{
    if (dt_cuda_partner(exec, DT_GROUP_CONV_PAIR_BWD, 3, 4))
        return exec->src_data[7];
    return exec->node->n_dst > 3 ? exec->dst_data[3] : exec->src_data[1];
}

static void place_bn(void **bn, const struct dt_exec *exec, char *scratch, float *inverse_std)
{
    void *const *src = exec->src_data;
    float *coefs = coefs_in(exec, scratch);
    const int cp = exec->src[0]->cp;
    bn[DT_BN_SRC] = src[0];
    bn[DT_BN_MEAN] = src[4];
    bn[DT_BN_INV_STD] = inverse_std;
    bn[DT_BN_SCALE] = src[2];
    bn[DT_BN_SHIFT] = src[3];
    bn[DT_BN_DIFF_SCALE] = exec->dst_data[1];
    bn[DT_BN_DIFF_SHIFT] = exec->dst_data[2];
    bn[DT_BN_COEF_DIFF] = coefs;
    bn[DT_BN_COEF_SRC] = coefs + cp;
    bn[DT_BN_COEF_ONE] = coefs + 2 * cp;
}

static dt_status bind_conv(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_exec *conv = conv_of(exec);
    const struct dt_exec *bn = dt_cuda_partner(exec, DT_GROUP_CONV_ADD_BN_BWD, 2, 0);
    const struct dt_exec *second = dt_cuda_partner(exec, DT_GROUP_CONV_PAIR_BWD, 3, 4);
    float *inverse_std = exec->src_data[6];
    struct dt_dnn_memory memory = dt_conv_memory(conv);
    memory.at[DT_DNN_X] = masked_sum(exec);
    place_bn(&memory.at[DT_DNN_BN], exec, exec->scratch, inverse_std);
    if (bn || second)
        memory.at[DT_DNN_DIFF2] = exec->src_data[1];
    if (bn)
        memory.at[DT_DNN_RESIDUAL] = bn->src_data[5];
    if (second)
        place_bn(&memory.at[DT_DNN_BN2], second, exec->scratch + exec->scratch_bytes,
                 inverse_std + exec->src[0]->cp);
    memory.workspace = exec->scratch + own_scratch_bytes(exec);
    return bind_pack(dev, exec, &memory);
}

/* With the last node of the group, as the addresses of all are known then. */
static dt_status bind_bn_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    if (dt_cuda_partner(exec, DT_GROUP_CONV_PAIR_BWD, 4, 3))
        return bind_conv(dev, exec->group[dt_group_slot(DT_GROUP_CONV_PAIR_BWD, 4)]->exec[3]);
    if (!conv_of(exec) || dt_cuda_partner(exec, DT_GROUP_CONV_PAIR_BWD, 3, 4))
        return DT_OK;
    return bind_conv(dev, exec);
}

static dt_status run_conv_bn_bwd(struct dt_device *dev, const struct dt_exec *exec)
{
    const struct dt_norm_args args = launch_args(dev, exec);
    const struct dt_exec *second = dt_cuda_partner(exec, DT_GROUP_CONV_PAIR_BWD, 3, 4);
    const enum dt_dtype type = exec->src[0]->type;
    void *const *src = exec->src_data, *const *dst = exec->dst_data;

    DT_TRY(dt_dnn_run(dev->dnn, &dt_group_problem(conv_of(exec))->plan, exec->own));
    if (second)
        DT_TRY(DT_CUDA(exec->node->name,
                       dt_kernel_bn_pair_bwd_apply(
                           dev->compute, type, dst[0], second->dst_data[0], src[0],
                           second->src_data[0], masked_sum(exec), NULL, NULL, coefs_of(exec),
                           coefs_in(second, exec->scratch + exec->scratch_bytes), &args)));
    else
        DT_TRY(DT_CUDA(exec->node->name,
                       dt_kernel_bn_bwd_apply(dev->compute, type, dst[0], src[0], masked_sum(exec),
                                              NULL, NULL, coefs_of(exec), &args)));
    return DT_OK;
}

static dt_status run_bn_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_norm_args args = launch_args(dev, exec);
    const struct dt_bn_vectors bn = bwd_vectors(exec);
    const struct dt_exec *second = dt_cuda_partner(exec, DT_GROUP_BN_PAIR_BWD, 0, 1);
    const struct dt_exec *pool = dt_cuda_partner(exec, DT_GROUP_BN_POOL, 3, 2);
    void *const *src = exec->src_data, *const *dst = exec->dst_data;
    const struct dt_bn_sums out = bwd_sums_of(dev, exec, exec->scratch);

    if (dt_cuda_partner(exec, DT_GROUP_BN_PAIR_BWD, 1, 0))
        return DT_OK; /* the first one did it */
    if (conv_of(exec))
        return run_conv_bn_bwd(dev, exec);
    if (second)
        return run_pair_bwd(dev, exec, second);
    if (pool)
        return run_pool_bwd(dev, exec, pool);
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

const struct dt_cuda_op dt_cuda_bn = {prepare_bn, run_bn, bn_scratch_bytes, bind_bn, release_pack};
const struct dt_cuda_op dt_cuda_bn_bwd = {prepare_bn_bwd, run_bn_bwd, bwd_scratch_bytes,
                                          bind_bn_bwd, release_pack};
const struct dt_cuda_op dt_cuda_bn_frozen_bwd = {.prepare = prepare_bn_frozen_bwd,
                                                 .run = run_bn_frozen_bwd};
