/* Batch normalisation with fused residual addition and ReLU. We use our own loops because with a
 * library's batch norm the addition needs separate passes over memory.
 *
 * A few blocks of channels are processed at a time: first the sums of each row (one image, one
 * block), then the coefficients of each block, and then the rows are normalised while they are
 * still in the cache; in nhwc, where a row has all blocks, that is all of the tensor. Rows are
 * combined in image order, so the results do not depend on the number of threads. A row is
 * processed in groups of 16 lanes; a block of 16, 8 or 1 channels repeats across the lanes, so lane
 * i always holds channel i % block. ReLU keeps one bit per value; for
 * another activation the backward pass computes its argument again.
 *
 * With statistics over a group of ranks, or of slices, the node runs in two halves. The first ends
 * with two sums per channel for the other ranks (mean and squared deviation; backward: the sums),
 * the second begins with combining them in the order of the ranks. */
#include "cpu/norm_block.h"

/* Number of rows of an image processed together, so that they stay in the cache: about 2 MiB per
 * thread. */
static int rows_together(const struct dt_cpu_rows *rows)
{
    const size_t cached = (size_t)2 << 20;
    size_t bytes = (size_t)rows->n * rows->row_elements * sizeof(real);
    return (int)(bytes < cached ? cached / bytes : 1);
}

static size_t block_offset(const struct bn *bn, int image, int block)
{
    return dt_cpu_block_offset(bn->rows, bn->rows->n_blocks, image, block);
}

/* The same in src, which may be part of another tensor. */
static size_t src_offset(const struct bn *bn, int image, int block)
{
    return dt_cpu_block_offset(bn->rows, bn->rows->image_blocks, image, block);
}

static uint16_t *block_mask(const struct bn *bn, int image, int block)
{
    const struct dt_cpu_rows *rows = bn->rows;
    const int row = (image * rows->n_blocks + block) / rows->columns;
    const size_t words = dt_n_groups(dt_cpu_block_elements(rows)) * (size_t)rows->columns;
    return bn->mask ? bn->mask + (size_t)row * words + block % rows->columns : NULL;
}

/* --- Forward --- */

static void forward_sums(const struct bn *bn, int image, int block, int columns)
{
    const struct dt_norm_row row = dt_cpu_norm_row(bn->rows, block, columns);
    dt_norm_rows.moments(dt_bn_sums(bn, image, block), bn->src + src_offset(bn, image, block),
                         &row);
}

static void forward_apply(const struct bn *bn, int image, int block)
{
    const struct dt_norm_row row = dt_cpu_norm_row(bn->rows, block, bn->rows->columns);
    const size_t offset = block_offset(bn, image, block);
    dt_norm_rows.apply(bn->dst + offset, block_mask(bn, image, block),
                       bn->src + src_offset(bn, image, block),
                       bn->residual ? bn->residual + offset : NULL, &bn->coefs[block],
                       bn->activation, bn->past_caches, &row);
}

static void load_forward_coefs(struct dt_norm_coefs *k, const struct bn *bn, int block,
                               const float *mean, const float *variance)
{
    struct statistics s;
    dt_bn_load_channels(s.mean, mean, bn, block);
    dt_bn_load_channels(s.variance, variance, bn, block);
    dt_bn_forward_coefs(k, bn, block, &s);
}

/* Inside a parallel region. */
static void forward_eval(const struct bn *bn)
{
    const int n_rows = bn->rows->n_blocks / bn->rows->columns;
    struct dt_cpu_span span = dt_cpu_own_span(bn->rows->n_blocks);
    for (int block = span.begin; block < span.end; block++)
        load_forward_coefs(&bn->coefs[block], bn, block, bn->running_mean, bn->running_var);
#pragma omp barrier
    span = dt_cpu_own_span(bn->rows->n * n_rows);
    for (int i = span.begin; i < span.end; i++)
        forward_apply(bn, i / n_rows, i % n_rows * bn->rows->columns);
}

/* --- Backward --- */

static void load_coefs(const struct bn *bn, int block)
{
    double mean[LANES];
    dt_bn_load_channels(mean, bn->mean, bn, block);
    for (int i = 0; i < LANES; i++)
        bn->coefs[block].mean[i] = (float)mean[i];
    if (bn->activation)
        load_forward_coefs(&bn->forward[block], bn, block, bn->mean, bn->variance);
}

static void bwd_sums(const struct bn *bn, int image, int block, int columns)
{
    const struct dt_norm_row row = dt_cpu_norm_row(bn->rows, block, columns);
    const size_t offset = block_offset(bn, image, block);
    dt_norm_rows.bwd_sums(dt_bn_sums(bn, image, block), bn->diff_dst + offset,
                          bn->diff_dst2 ? bn->diff_dst2 + offset : NULL,
                          bn->src + src_offset(bn, image, block), block_mask(bn, image, block),
                          bn->activation, &bn->forward[block], &bn->coefs[block], &row);
}

static void bwd_apply(const struct bn *bn, int image, int block)
{
    const struct dt_norm_row row = dt_cpu_norm_row(bn->rows, block, bn->rows->columns);
    const size_t offset = block_offset(bn, image, block);
    const size_t part = dt_cpu_block_offset(bn->rows, bn->diff_src_blocks, image, block);
    dt_norm_rows.bwd_apply(
        bn->diff_src + part, bn->diff_residual ? bn->diff_residual + offset : NULL,
        bn->addend ? bn->addend + part : NULL, bn->diff_dst + offset,
        bn->diff_dst2 ? bn->diff_dst2 + offset : NULL, bn->src + src_offset(bn, image, block),
        block_mask(bn, image, block), bn->activation, &bn->forward[block], &bn->coefs[block],
        bn->past_caches, &row);
}

/* --- The three stages, a few rows of each image at a time; inside a parallel region --- */

struct stages {
    void (*begin)(const struct bn *bn, int block); /* may be NULL */
    void (*sums)(const struct bn *bn, int image, int block, int columns);
    void (*block)(const struct bn *bn, int block);
    void (*apply)(const struct bn *bn, int image, int block); /* to all blocks of its row */
};
static const struct stages FORWARD = {NULL, forward_sums, dt_bn_forward_block, forward_apply};
static const struct stages BACKWARD = {load_coefs, bwd_sums, dt_bn_bwd_block, bwd_apply};

/* If there are enough rows, each thread has its own and never waits for another, because on a busy
 * machine every barrier can cost a time slice. Otherwise all threads share the images of a few
 * rows. Tasks are ordered by image, so that a thread accesses contiguous memory. */
static void run_stages(const struct bn *bn, const struct stages *stages)
{
    const int columns = bn->rows->columns, n_rows = bn->rows->n_blocks / columns;
    /* Whether whole rows can be distributed over the threads with little loss (at most a quarter).
     */
    int n_threads = omp_get_num_threads();
    int n_max = (n_rows + n_threads - 1) / n_threads;
    bool alone = 4 * n_max * n_threads <= 5 * n_rows;
    struct dt_cpu_span rows = alone ? dt_cpu_own_span(n_rows) : (struct dt_cpu_span){0, n_rows};
    int together = rows_together(bn->rows) * (alone ? 1 : omp_get_num_threads());

    for (int first = rows.begin; first < rows.end; first += together) {
        int n = rows.end - first < together ? rows.end - first : together;
        struct dt_cpu_span all = {0, n * bn->rows->n}, all_blocks = {0, n * columns};
        struct dt_cpu_span own = alone ? all : dt_cpu_own_span(all.end);
        struct dt_cpu_span blocks = alone ? all_blocks : dt_cpu_own_span(all_blocks.end);
        for (int i = blocks.begin; stages->begin && i < blocks.end; i++)
            stages->begin(bn, first * columns + i);
        if (!alone && stages->begin) {
#pragma omp barrier
        }
        for (int i = own.begin; bn->half != SECOND && i < own.end; i++)
            for (int c = 0; c < columns; c += DT_NORM_STRIP)
                stages->sums(bn, i / n, (first + i % n) * columns + c,
                             columns - c < DT_NORM_STRIP ? columns - c : DT_NORM_STRIP);
        if (!alone) {
#pragma omp barrier
        }
        for (int i = blocks.begin; i < blocks.end; i++)
            stages->block(bn, first * columns + i);
        if (!alone) {
#pragma omp barrier
        }
        for (int i = own.begin; bn->half != FIRST && i < own.end; i++)
            stages->apply(bn, i / n, (first + i % n) * columns);
    }
}

/* --- Nodes --- */

/* Rows of nhwc: lines of an image, which stay in the cache from one column to the next, as if they
 * were an image. Fewer values are added up in each, and there are enough rows for all threads. */
static void divide_images(struct dt_cpu_rows *rows)
{
    const size_t cached = (size_t)256 << 10;
    int parts = 1;
    while (parts < rows->height && (rows->height % parts != 0 ||
                                    rows->row_elements * sizeof(real) / (size_t)parts > cached))
        parts++;
    rows->n *= parts;
    rows->height /= parts;
    rows->row_elements /= (size_t)parts;
}

/* The scratch holds the slots of all ranks, or of a group's slices, the sums of all blocks, then
 * the coefficients of the blocks. */
static size_t slots_bytes(const struct dt_exec *exec)
{
    size_t bytes;
    (void)dt_cpu_exchange_slots(exec->dev, exec, &bytes);
    const int n_ranks = exec->node->attr.bn.n_ranks;
    const int n_slots = n_ranks > exec->dev->options.n_ranks ? n_ranks : exec->dev->options.n_ranks;
    bytes = dt_node_is_synced(exec->node) ? (size_t)n_slots * bytes : 0;
    return (bytes + 63) / 64 * 64;
}

static dt_status prepare_bn(struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    dt_md md = NULL;

    DT_TRY(dt_cpu_rows_choose(&exec->rows, &md, exec, node->src[0], dnnl_format_tag_any));
    if (dt_cpu_is_nhwc(&exec->rows))
        divide_images(&exec->rows);
    size_t n_sums = (size_t)exec->rows.n * (size_t)exec->rows.n_blocks;
    size_t mask_bytes = n_sums * dt_n_groups(dt_cpu_block_elements(&exec->rows)) * sizeof(uint16_t);
    DT_TRY(dt_cpu_port_add_kinds(exec, md, (mask_bytes + 3) / 4 * 4));
    exec->work_offset =
        dt_cpu_reserve(exec, slots_bytes(exec) + n_sums * sizeof(struct dt_norm_sums) +
                                 2 * (size_t)exec->rows.n_blocks * sizeof(struct dt_norm_coefs));
    return DT_OK;
}

static struct bn arguments(const struct dt_exec *exec)
{
    struct dt_norm_sums *sums = (void *)((char *)exec->work + slots_bytes(exec));
    struct dt_norm_coefs *coefs = (void *)(sums + exec->rows.n * exec->rows.n_blocks);
    return (struct bn){.rows = &exec->rows,
                       .slots = exec->work,
                       .sums = sums,
                       .coefs = coefs,
                       .forward = coefs + exec->rows.n_blocks,
                       .src = dt_cpu_src(exec, DT_BN_SRC),
                       .slot = exec->dev->scalars.slot,
                       .n_ranks = exec->node->attr.bn.n_ranks,
                       .half = dt_node_is_synced(exec->node) ? FIRST : WHOLE,
                       .eps = exec->node->attr.bn.eps};
}

static struct bn forward_arguments(const struct dt_exec *exec)
{
    struct bn bn = arguments(exec);
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
    bn.activation = exec->node->activation;
    bn.past_caches = dt_goes_past_caches(bn.rows, bn.dst, bn.src, bn.residual);
    return bn;
}

static struct bn bwd_arguments(const struct dt_exec *exec)
{
    struct bn bn = arguments(exec);
    bn.diff_dst = dt_cpu_src(exec, DT_BN_BWD_DIFF_DST);
    bn.diff_dst2 = dt_cpu_src(exec, DT_BN_BWD_DIFF_DST2);
    bn.scale = dt_cpu_src(exec, DT_BN_BWD_SCALE);
    bn.shift = dt_cpu_src(exec, DT_BN_BWD_SHIFT);
    bn.activation = exec->node->activation == DT_RELU ? DT_NO_ACTIVATION : exec->node->activation;
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

static dt_status run_bn(struct dt_exec *exec)
{
    struct bn bn = forward_arguments(exec);
#pragma omp parallel
    {
        if (dt_node_has_statistics(exec->node))
            run_stages(&bn, &FORWARD);
        else
            forward_eval(&bn);
    }
    return DT_OK;
}

static dt_status run_bn_bwd(struct dt_exec *exec)
{
    struct bn bn = bwd_arguments(exec);
#pragma omp parallel
    run_stages(&bn, &BACKWARD);
    return DT_OK;
}

dt_status dt_cpu_run_second_half(struct dt_exec *exec)
{
    bool is_forward = exec->node->op == DT_OP_BN;
    struct bn bn = (is_forward ? forward_arguments : bwd_arguments)(exec);
    bn.half = SECOND;
#pragma omp parallel
    run_stages(&bn, is_forward ? &FORWARD : &BACKWARD);
    return DT_OK;
}

/* The forward pass without mean and shift. */
static dt_status run_bn_frozen_bwd(struct dt_exec *exec)
{
    struct bn bn = arguments(exec);
    bn.src = dt_cpu_src(exec, DT_BN_FROZEN_BWD_DIFF_DST);
    bn.scale = dt_cpu_src(exec, DT_BN_FROZEN_BWD_SCALE);
    bn.running_var = dt_cpu_src(exec, DT_BN_FROZEN_BWD_RUNNING_VAR);
    bn.dst = dt_cpu_dst(exec, 0);
    bn.past_caches = dt_goes_past_caches(bn.rows, bn.dst, bn.src, NULL);
#pragma omp parallel
    forward_eval(&bn);
    return DT_OK;
}

DT_CPU_OP(bn, prepare_bn, run_bn, true);
DT_CPU_OP(bn_bwd, prepare_bn, run_bn_bwd, true);
DT_CPU_OP(bn_frozen_bwd, prepare_bn, run_bn_frozen_bwd, true);
