/* Batch normalisation with fused residual addition and ReLU. We use our own loops because with a
 * library's batch norm the addition needs separate passes over memory.
 *
 * A few blocks of channels are processed at a time: first the sums of each row (one image, one
 * block), then the coefficients of each block, and then the rows are normalised while they are
 * still in the cache. Rows are combined in image order, so the results do not depend on the number
 * of threads. A row is processed in groups of 16 lanes; a block of 16, 8 or 1 channels repeats
 * across the lanes, so lane i always holds channel i % block. ReLU keeps one bit per value; for
 * another activation the backward pass computes its argument again.
 *
 * With statistics over a group of ranks, or of slices, the node runs in two halves. The first ends
 * with two sums per channel for the other ranks (mean and squared deviation; backward: the sums),
 * the second begins with combining them in the order of the ranks. */
#include "cpu/norm_block.h"

/* Number of blocks processed together, so that they stay in the cache: about 2 MiB per thread. */
static int blocks_together(const struct dt_cpu_rows *rows)
{
    const size_t cached = (size_t)2 << 20;
    size_t block_bytes = (size_t)rows->n * rows->row_elements * sizeof(real);
    return (int)(block_bytes < cached ? cached / block_bytes : 1);
}

static size_t row_offset(const struct bn *bn, int image, int block)
{
    return dt_bn_row_index(bn, image, block) * bn->rows->row_elements;
}

/* The same in src, diff_src or addend, which may be parts of others. */
static size_t part_offset(const struct bn *bn, int image_blocks, int image, int block)
{
    return (size_t)(image * image_blocks + block) * bn->rows->row_elements;
}

static uint16_t *row_mask(const struct bn *bn, int image, int block)
{
    size_t n_words = dt_n_groups(bn->rows->row_elements);
    return bn->mask ? bn->mask + dt_bn_row_index(bn, image, block) * n_words : NULL;
}

/* --- Forward --- */

static void apply_coefs(const struct bn *bn, const struct dt_norm_coefs *k, int image, int block)
{
    size_t offset = row_offset(bn, image, block);
    dt_norm_rows.apply(bn->dst + offset, row_mask(bn, image, block),
                       bn->src + part_offset(bn, bn->rows->image_blocks, image, block),
                       bn->residual ? bn->residual + offset : NULL, k, bn->relu, bn->activation,
                       bn->past_caches, bn->rows->row_elements);
}

static void forward_sums(const struct bn *bn, int image, int block)
{
    struct pair *sums = &bn->sums[dt_bn_row_index(bn, image, block)];
    dt_norm_rows.moments(sums->first, sums->second,
                         bn->src + part_offset(bn, bn->rows->image_blocks, image, block),
                         bn->rows->row_elements);
}

static void forward_apply(const struct bn *bn, int image, int block)
{
    apply_coefs(bn, &bn->coefs[block], image, block);
}

/* Inside a parallel region. */
static void forward_eval(const struct bn *bn)
{
    struct dt_cpu_span span = dt_cpu_own_span(bn->rows->n * bn->rows->n_blocks);

    for (int i = span.begin; i < span.end; i++) {
        int image = i / bn->rows->n_blocks, block = i % bn->rows->n_blocks;
        struct statistics s;
        struct dt_norm_coefs k;
        dt_bn_load_channels(s.mean, bn->running_mean, bn, block);
        dt_bn_load_channels(s.variance, bn->running_var, bn, block);
        dt_bn_forward_coefs(&k, bn, block, &s);
        apply_coefs(bn, &k, image, block);
    }
}

/* --- Backward --- */

static void load_forward_coefs(struct dt_norm_coefs *k, const struct bn *bn, int block)
{
    struct statistics s;
    if (!bn->activation)
        return;
    dt_bn_load_channels(s.mean, bn->mean, bn, block);
    dt_bn_load_channels(s.variance, bn->variance, bn, block);
    dt_bn_forward_coefs(k, bn, block, &s);
}

static void bwd_sums(const struct bn *bn, int image, int block)
{
    const struct dt_cpu_rows *rows = bn->rows;
    struct pair *sums = &bn->sums[dt_bn_row_index(bn, image, block)];
    size_t offset = row_offset(bn, image, block);
    const float *mean = bn->mean + block * LANES;
    struct dt_norm_coefs forward;
    float padded[LANES];

    /* A full block of 16 channels is in memory in lane order. */
    if (rows->block < LANES || (block + 1) * LANES > rows->channels) {
        double values[LANES];
        dt_bn_load_channels(values, bn->mean, bn, block);
        for (int i = 0; i < LANES; i++)
            padded[i] = (float)values[i];
        mean = padded;
    }
    load_forward_coefs(&forward, bn, block);
    dt_norm_rows.bwd_sums(sums->first, sums->second, bn->diff_dst + offset,
                          bn->diff_dst2 ? bn->diff_dst2 + offset : NULL,
                          bn->src + part_offset(bn, rows->image_blocks, image, block),
                          row_mask(bn, image, block), bn->activation, &forward, mean,
                          rows->row_elements);
}

static void bwd_apply(const struct bn *bn, int image, int block)
{
    size_t offset = row_offset(bn, image, block);
    size_t part = part_offset(bn, bn->diff_src_blocks, image, block);
    struct dt_norm_coefs forward;
    load_forward_coefs(&forward, bn, block);
    dt_norm_rows.bwd_apply(
        bn->diff_src + part, bn->diff_residual ? bn->diff_residual + offset : NULL,
        bn->addend ? bn->addend + part : NULL, bn->diff_dst + offset,
        bn->diff_dst2 ? bn->diff_dst2 + offset : NULL,
        bn->src + part_offset(bn, bn->rows->image_blocks, image, block), row_mask(bn, image, block),
        bn->activation, &forward, &bn->coefs[block], bn->past_caches, bn->rows->row_elements);
}

/* --- The three stages, a few blocks at a time; inside a parallel region --- */

struct stages {
    void (*sums)(const struct bn *bn, int image, int block);
    void (*block)(const struct bn *bn, int block);
    void (*apply)(const struct bn *bn, int image, int block);
};
static const struct stages FORWARD = {forward_sums, dt_bn_forward_block, forward_apply};
static const struct stages BACKWARD = {bwd_sums, dt_bn_bwd_block, bwd_apply};

/* If there are enough blocks, each thread has its own and never waits for another, because on a
 * busy machine every barrier can cost a time slice. Otherwise all threads share the images of a few
 * blocks. Tasks are ordered by image, so that a thread accesses contiguous memory. */
static void run_stages(const struct bn *bn, const struct stages *stages)
{
    const struct dt_cpu_rows *rows = bn->rows;
    /* Whether whole blocks can be distributed over the threads with little loss (at most a
     * quarter). */
    int n_threads = omp_get_num_threads();
    int n_most = (rows->n_blocks + n_threads - 1) / n_threads;
    bool alone = 4 * n_most * n_threads <= 5 * rows->n_blocks;
    struct dt_cpu_span blocks =
        alone ? dt_cpu_own_span(rows->n_blocks) : (struct dt_cpu_span){0, rows->n_blocks};
    int together = blocks_together(rows) * (alone ? 1 : omp_get_num_threads());

    for (int first = blocks.begin; first < blocks.end; first += together) {
        int n = blocks.end - first < together ? blocks.end - first : together;
        struct dt_cpu_span all = {0, n * rows->n}, all_blocks = {0, n};
        struct dt_cpu_span own = alone ? all : dt_cpu_own_span(n * rows->n);
        struct dt_cpu_span own_blocks = alone ? all_blocks : dt_cpu_own_span(n);
        for (int i = own.begin; bn->half != SECOND && i < own.end; i++)
            stages->sums(bn, i / n, first + i % n);
        if (!alone) {
#pragma omp barrier
        }
        for (int i = own_blocks.begin; i < own_blocks.end; i++)
            stages->block(bn, first + i);
        if (!alone) {
#pragma omp barrier
        }
        for (int i = own.begin; bn->half != FIRST && i < own.end; i++)
            stages->apply(bn, i / n, first + i % n);
    }
}

/* --- Nodes --- */

/* The scratch holds the slots of all ranks, or of a group's slices, the sums of all rows, then the
 * coefficients of all blocks. */
static size_t slots_bytes(struct dt_device *dev, const struct dt_exec *exec)
{
    size_t bytes;
    (void)dt_cpu_exchange_slots(dev, exec, &bytes);
    const int n_ranks = exec->node->attr.bn.n_ranks;
    const int n_slots = n_ranks > dev->options.n_ranks ? n_ranks : dev->options.n_ranks;
    bytes = dt_node_is_synced(exec->node) ? (size_t)n_slots * bytes : 0;
    return (bytes + 63) / 64 * 64;
}

static dt_status prepare_bn(struct dt_device *dev, struct dt_exec *exec)
{
    static const struct {
        const char *src, *dst;
    } kinds[DT_N_OPS] = {[DT_OP_BN] = {"appppa", "appw"},
                         [DT_OP_BN_BWD] = {"aappppwaa", "appa"},
                         [DT_OP_BN_FROZEN_BWD] = {"app", "a"}};
    const struct dt_node *node = exec->node;
    dt_md md = NULL;

    DT_TRY(dt_cpu_rows_choose(&exec->rows, &md, exec, node->src[0], 0));
    size_t n_rows = (size_t)exec->rows.n * (size_t)exec->rows.n_blocks;
    size_t mask_bytes = n_rows * dt_n_groups(exec->rows.row_elements) * sizeof(uint16_t);
    dt_status status = dt_cpu_port_add_kinds(dev, exec, md, kinds[node->op].src,
                                             kinds[node->op].dst, (mask_bytes + 3) / 4 * 4);
    exec->work_offset =
        dt_cpu_reserve(exec, slots_bytes(dev, exec) + n_rows * sizeof(struct pair) +
                                 (size_t)exec->rows.n_blocks * sizeof(struct dt_norm_coefs));
    dt_md_destroy(md);
    return status;
}

static struct bn arguments(struct dt_device *dev, const struct dt_exec *exec)
{
    struct pair *sums = (void *)((char *)exec->work + slots_bytes(dev, exec));
    return (struct bn){.rows = &exec->rows,
                       .slots = exec->work,
                       .sums = sums,
                       .coefs = (void *)(sums + exec->rows.n * exec->rows.n_blocks),
                       .src = dt_cpu_src(exec, DT_BN_SRC),
                       .slot = dev->scalars.slot,
                       .n_ranks = exec->node->attr.bn.n_ranks,
                       .half = dt_node_is_synced(exec->node) ? FIRST : WHOLE,
                       .eps = exec->node->attr.bn.eps};
}

static struct bn forward_arguments(struct dt_device *dev, const struct dt_exec *exec)
{
    struct bn bn = arguments(dev, exec);
    bn.scale = dt_cpu_src(exec, DT_BN_SCALE);
    bn.shift = dt_cpu_src(exec, DT_BN_SHIFT);
    bn.running_mean = dt_cpu_src(exec, DT_BN_RUNNING_MEAN);
    bn.running_var = dt_cpu_src(exec, DT_BN_RUNNING_VAR);
    bn.residual = dt_cpu_src(exec, DT_BN_RESIDUAL);
    bn.dst = dt_cpu_dst(exec, DT_BN_DST);
    bn.mean = dt_cpu_dst(exec, DT_BN_MEAN);
    bn.variance = dt_cpu_dst(exec, DT_BN_VARIANCE);
    bn.mask = dt_cpu_dst(exec, DT_BN_MASK);
    bn.momentum = exec->node->attr.bn.momentum;
    bn.relu = exec->node->relu;
    bn.activation = exec->node->activation;
    bn.past_caches = dt_goes_past_caches(bn.rows, bn.dst, bn.src, bn.residual);
    return bn;
}

static struct bn bwd_arguments(struct dt_device *dev, const struct dt_exec *exec)
{
    struct bn bn = arguments(dev, exec);
    bn.diff_dst = dt_cpu_src(exec, DT_BN_BWD_DIFF_DST);
    bn.diff_dst2 = dt_cpu_src(exec, DT_BN_BWD_DIFF_DST2);
    bn.scale = dt_cpu_src(exec, DT_BN_BWD_SCALE);
    bn.shift = dt_cpu_src(exec, DT_BN_BWD_SHIFT);
    bn.activation = exec->node->activation;
    bn.mean = dt_cpu_src(exec, DT_BN_BWD_MEAN);
    bn.variance = dt_cpu_src(exec, DT_BN_BWD_VARIANCE);
    bn.mask = dt_cpu_src(exec, DT_BN_BWD_MASK);
    bn.addend = dt_cpu_src(exec, DT_BN_BWD_ADDEND);
    bn.diff_src = dt_cpu_dst(exec, DT_BN_BWD_DIFF_SRC);
    bn.diff_scale = dt_cpu_dst(exec, DT_BN_BWD_DIFF_SCALE);
    bn.diff_shift = dt_cpu_dst(exec, DT_BN_BWD_DIFF_SHIFT);
    bn.diff_residual = dt_cpu_dst(exec, DT_BN_BWD_DIFF_RESIDUAL);
    const struct dt_graph *g = exec->graph;
    const int whole = dt_tensor_whole(g, exec->node->dst[DT_BN_BWD_DIFF_SRC]);
    bn.diff_src_blocks = (g->tensor[whole].dim[1] + bn.rows->block - 1) / bn.rows->block;
    bn.past_caches = bn.diff_src != bn.diff_dst2 && bn.diff_src != bn.addend &&
                     dt_goes_past_caches(bn.rows, bn.diff_src, bn.diff_dst, bn.src);
    return bn;
}

static dt_status run_bn(struct dt_device *dev, struct dt_exec *exec,
                        const struct dt_scalars *scalars)
{
    (void)scalars;
    struct bn bn = forward_arguments(dev, exec);
#pragma omp parallel
    {
        if (dt_node_has_statistics(exec->node))
            run_stages(&bn, &FORWARD);
        else
            forward_eval(&bn);
    }
    return DT_OK;
}

static dt_status run_bn_bwd(struct dt_device *dev, struct dt_exec *exec,
                            const struct dt_scalars *scalars)
{
    (void)scalars;
    struct bn bn = bwd_arguments(dev, exec);
#pragma omp parallel
    run_stages(&bn, &BACKWARD);
    return DT_OK;
}

dt_status dt_cpu_run_second_half(struct dt_device *dev, struct dt_exec *exec)
{
    bool is_forward = exec->node->op == DT_OP_BN;
    struct bn bn = (is_forward ? forward_arguments : bwd_arguments)(dev, exec);
    bn.half = SECOND;
#pragma omp parallel
    run_stages(&bn, is_forward ? &FORWARD : &BACKWARD);
    return DT_OK;
}

/* The forward pass without mean and shift. */
static dt_status run_bn_frozen_bwd(struct dt_device *dev, struct dt_exec *exec,
                                   const struct dt_scalars *scalars)
{
    (void)dev, (void)scalars;
    struct bn bn = {.rows = &exec->rows,
                    .src = dt_cpu_src(exec, DT_BN_FROZEN_BWD_DIFF_DST),
                    .scale = dt_cpu_src(exec, DT_BN_FROZEN_BWD_SCALE),
                    .running_var = dt_cpu_src(exec, DT_BN_FROZEN_BWD_RUNNING_VAR),
                    .dst = dt_cpu_dst(exec, 0),
                    .eps = exec->node->attr.bn.eps};
    bn.past_caches = dt_goes_past_caches(bn.rows, bn.dst, bn.src, NULL);
#pragma omp parallel
    forward_eval(&bn);
    return DT_OK;
}

const struct dt_cpu_op DT_ISA_NAME(dt_cpu_bn) = {prepare_bn, run_bn, true};
const struct dt_cpu_op DT_ISA_NAME(dt_cpu_bn_bwd) = {prepare_bn, run_bn_bwd, true};
const struct dt_cpu_op DT_ISA_NAME(dt_cpu_bn_frozen_bwd) = {prepare_bn, run_bn_frozen_bwd, true};
