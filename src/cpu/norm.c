/* Batch normalisation with fused residual addition and ReLU. We use our own loops because with a
 * library's batch norm the addition needs separate passes over memory.
 *
 * A few blocks of channels are processed at a time: first the sums of each row (one image, one
 * block), then the coefficients of each block, and then the rows are normalised while they are
 * still in the cache. Rows are combined in image order, so the results do not depend on the number
 * of threads. A row is processed in groups of 16 lanes; a block of 16, 8 or 1 channels repeats
 * across the lanes, so lane i always holds channel i % block. ReLU keeps one bit per value.
 *
 * With statistics over a group of ranks the node runs in two halves. The first ends with two sums
 * per channel for the other ranks (mean and squared deviation; backward: the sums), the second
 * begins with combining them in the order of the ranks. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "cpu/internal.h"
#include "cpu/lanes.h"

/* Two sums per lane of a row: mean and squared deviation, or the sums of the backward pass. */
struct pair {
    float first[LANES], second[LANES];
};

/* Arguments of one run. */
struct bn {
    const struct dt_cpu_rows *rows;
    struct pair *sums;            /* one per row, in memory order */
    struct dt_lanes_coefs *coefs; /* one per block */
    const float *src, *residual, *diff_dst, *diff_dst2, *scale, *shift;
    float *dst, *diff_src, *diff_residual, *diff_scale, *diff_shift;
    float *mean, *variance, *running_mean, *running_var;
    uint16_t *mask; /* bits of dst > 0 or NaN, a word per group of 16 */
    float *slots;   /* of each rank, two sums per channel, if synced */
    int rank, group;
    enum half { WHOLE, FIRST, SECOND } half;
    float eps, momentum;
    bool relu, past_caches;
};

/* Statistics of one block of channels, per lane; for padded channels see load_channels. */
struct statistics {
    double mean[LANES], variance[LANES];
};

/* A part of a list of tasks. */
struct span {
    int begin, end;
};

static struct span own_span(int n_tasks)
{
    int thread = omp_get_thread_num(), n_threads = omp_get_num_threads();
    return (struct span){(int)((int64_t)n_tasks * thread / n_threads),
                         (int)((int64_t)n_tasks * (thread + 1) / n_threads)};
}

/* Number of blocks processed together, so that they stay in the cache: about 2 MiB per thread. */
static int blocks_together(const struct dt_cpu_rows *rows)
{
    const size_t cached = (size_t)2 << 20;
    size_t block_bytes = (size_t)rows->n * rows->row_elements * sizeof(float);
    return (int)(block_bytes < cached ? cached / block_bytes : 1);
}

/* Whether whole blocks can be distributed over the threads with little loss (at most a quarter). */
static bool blocks_suffice(int n_blocks)
{
    int n_threads = omp_get_num_threads();
    int n_most = (n_blocks + n_threads - 1) / n_threads;
    return 4 * n_most * n_threads <= 5 * n_blocks;
}

static size_t row_index(const struct bn *bn, int image, int block)
{
    return (size_t)(image * bn->rows->n_blocks + block);
}

static size_t row_offset(const struct bn *bn, int image, int block)
{
    return row_index(bn, image, block) * bn->rows->row_elements;
}

static uint16_t *row_mask(const struct bn *bn, int image, int block)
{
    size_t n_words = dt_n_groups(bn->rows->row_elements);
    return bn->mask ? bn->mask + row_index(bn, image, block) * n_words : NULL;
}

/* Values of the channels of a block, per lane; 0 in padded channels and for NULL. */
static void load_channels(double out[LANES], const float *values, const struct bn *bn, int block)
{
    const struct dt_cpu_rows *rows = bn->rows;
    for (int i = 0; i < LANES; i++) {
        int channel = block * rows->block + i % rows->block;
        out[i] = values && channel < rows->channels ? (double)values[channel] : 0;
    }
}

/* --- Forward --- */

/* Values over which the statistics are taken: of this rank, or of its group. */
static double n_values(const struct bn *bn)
{
    return (double)bn->rows->n * bn->rows->height * bn->rows->width *
           (bn->group > 1 ? bn->group : 1);
}

static float *slot_of(const struct bn *bn, int rank)
{
    return bn->slots + (size_t)rank * 2 * (size_t)bn->rows->channels;
}

/* Puts the sums of a block into this rank's slot. */
static void share_sums(const struct bn *bn, int block, const double first[LANES],
                       const double second[LANES])
{
    const struct dt_cpu_rows *rows = bn->rows;
    float *slot = slot_of(bn, bn->rank);
    for (int i = 0; i < rows->block && block * rows->block + i < rows->channels; i++) {
        slot[block * rows->block + i] = (float)first[i];
        slot[rows->channels + block * rows->block + i] = (float)second[i];
    }
}

static void load_sums(double first[LANES], double second[LANES], const struct bn *bn, int block,
                      int rank)
{
    const float *slot = slot_of(bn, rank);
    load_channels(first, slot, bn, block);
    load_channels(second, slot + bn->rows->channels, bn, block);
}

/* Adds the moments of n more values to those of *count (Chan et al.). m2: sums of squared
 * deviations. */
static void add_moments(double *count, double *mean, double *m2, double n, double n_mean,
                        double n_m2)
{
    double total = *count + n;
    double weight = total > 0 ? n / total : 0;
    double delta = n_mean - *mean;
    *mean += delta * weight;
    *m2 += n_m2 + delta * delta * *count * weight;
    *count = total;
}

/* Combines the moments of lanes that hold the same channel if a block has fewer channels than
 * lanes. */
static void fold_lanes(struct statistics *s, double m2[LANES], const struct bn *bn)
{
    int block = bn->rows->block;
    double count[LANES];

    for (int i = 0; i < LANES; i++)
        count[i] = bn->rows->n * dt_lane_count(bn->rows->row_elements, i);
    for (int i = block; i < LANES; i++) {
        int c = i % block;
        add_moments(&count[c], &s->mean[c], &m2[c], count[i], s->mean[i], m2[i]);
    }
    for (int i = block; i < LANES; i++) {
        s->mean[i] = s->mean[i % block];
        m2[i] = m2[i % block];
    }
}

/* Combines the rows of a block. A lane has the same number of values in each row, so all row means
 * have the same weight. */
static void combine_rows(struct statistics *s, double m2[LANES], const struct bn *bn, int block)
{
    const struct dt_cpu_rows *rows = bn->rows;
    double count[LANES], inverse = 1 / (double)rows->n;

    *s = (struct statistics){0};
    memset(m2, 0, LANES * sizeof *m2);
    for (int image = 0; image < rows->n; image++) {
        const struct pair *sums = &bn->sums[row_index(bn, image, block)];
        for (int i = 0; i < LANES; i++)
            s->mean[i] += (double)sums->first[i];
    }
    for (int i = 0; i < LANES; i++) {
        s->mean[i] *= inverse;
        count[i] = dt_lane_count(rows->row_elements, i);
    }
    for (int image = 0; image < rows->n; image++) {
        const struct pair *sums = &bn->sums[row_index(bn, image, block)];
        for (int i = 0; i < LANES; i++) {
            double delta = (double)sums->first[i] - s->mean[i];
            m2[i] += (double)sums->second[i] + delta * delta * count[i];
        }
    }
    if (rows->block < LANES)
        fold_lanes(s, m2, bn);
}

/* Combines the ranks of the group. */
static void combine_ranks(struct statistics *s, double m2[LANES], const struct bn *bn, int block)
{
    const int first = bn->rank / bn->group * bn->group;
    const double n = n_values(bn) / bn->group;
    double count[LANES] = {0}, mean[LANES], more[LANES];

    *s = (struct statistics){0};
    memset(m2, 0, LANES * sizeof *m2);
    for (int rank = first; rank < first + bn->group; rank++) {
        load_sums(mean, more, bn, block, rank);
        for (int i = 0; i < LANES; i++)
            add_moments(&count[i], &s->mean[i], &m2[i], n, mean[i], more[i]);
    }
}

/* y = a * x + b */
static void forward_coefs(struct dt_lanes_coefs *k, const struct bn *bn, int block,
                          const struct statistics *s)
{
    double scale[LANES], shift[LANES];
    load_channels(scale, bn->scale, bn, block);
    load_channels(shift, bn->shift, bn, block);
    for (int i = 0; i < LANES; i++) {
        double a = scale[i] / sqrt(s->variance[i] + (double)bn->eps);
        k->a[i] = (float)a;
        k->b[i] = (float)(shift[i] - s->mean[i] * a);
    }
}

/* Saves the statistics of a block for the backward pass and updates the running ones, except in
 * channels where those would not be finite: they would never recover. */
static void store_statistics(const struct bn *bn, int block, const struct statistics *s)
{
    const struct dt_cpu_rows *rows = bn->rows;
    double n = n_values(bn);
    double unbiased = n > 1 ? n / (n - 1) : 1, momentum = (double)bn->momentum;

    for (int i = 0; i < rows->block && block * rows->block + i < rows->channels; i++) {
        int c = block * rows->block + i;
        bn->mean[c] = (float)s->mean[i];
        bn->variance[c] = (float)s->variance[i];
        float mean = (float)((1 - momentum) * (double)bn->running_mean[c] + momentum * s->mean[i]);
        float variance = (float)((1 - momentum) * (double)bn->running_var[c] +
                                 momentum * s->variance[i] * unbiased);
        if (!isfinite(mean) || !isfinite(variance))
            continue;
        bn->running_mean[c] = mean;
        bn->running_var[c] = variance;
    }
}

static void apply_coefs(const struct bn *bn, const struct dt_lanes_coefs *k, int image, int block)
{
    size_t offset = row_offset(bn, image, block);
    dt_lanes.apply(bn->dst + offset, row_mask(bn, image, block), bn->src + offset,
                   bn->residual ? bn->residual + offset : NULL, k, bn->relu, bn->past_caches,
                   bn->rows->row_elements);
}

static void forward_sums(const struct bn *bn, int image, int block)
{
    struct pair *sums = &bn->sums[row_index(bn, image, block)];
    dt_lanes.moments(sums->first, sums->second, bn->src + row_offset(bn, image, block),
                     bn->rows->row_elements);
}

static void forward_block(const struct bn *bn, int block)
{
    struct statistics s;
    double m2[LANES], n = n_values(bn);
    (bn->half == SECOND ? combine_ranks : combine_rows)(&s, m2, bn, block);
    if (bn->half == FIRST) {
        share_sums(bn, block, s.mean, m2);
        return;
    }
    for (int i = 0; i < LANES; i++)
        s.variance[i] = m2[i] / n;
    forward_coefs(&bn->coefs[block], bn, block, &s);
    store_statistics(bn, block, &s);
}

static void forward_apply(const struct bn *bn, int image, int block)
{
    apply_coefs(bn, &bn->coefs[block], image, block);
}

/* Inside a parallel region. */
static void forward_eval(const struct bn *bn)
{
    struct span span = own_span(bn->rows->n * bn->rows->n_blocks);

    for (int i = span.begin; i < span.end; i++) {
        int image = i / bn->rows->n_blocks, block = i % bn->rows->n_blocks;
        struct statistics s;
        struct dt_lanes_coefs k;
        load_channels(s.mean, bn->running_mean, bn, block);
        load_channels(s.variance, bn->running_var, bn, block);
        forward_coefs(&k, bn, block, &s);
        apply_coefs(bn, &k, image, block);
    }
}

/* --- Backward --- */

static void bwd_add_rows(double s1[LANES], double s2[LANES], const struct bn *bn, int block)
{
    const struct dt_cpu_rows *rows = bn->rows;

    for (int image = 0; image < rows->n; image++) {
        const struct pair *sums = &bn->sums[row_index(bn, image, block)];
        for (int i = 0; i < LANES; i++) {
            s1[i] += (double)sums->first[i];
            s2[i] += (double)sums->second[i];
        }
    }
    for (int i = rows->block; i < LANES; i++) {
        s1[i % rows->block] += s1[i];
        s2[i % rows->block] += s2[i];
    }
    for (int i = rows->block; i < LANES; i++) {
        s1[i] = s1[i % rows->block];
        s2[i] = s2[i % rows->block];
    }
}

static void bwd_add_ranks(double s1[LANES], double s2[LANES], const struct bn *bn, int block)
{
    const int first = bn->rank / bn->group * bn->group;
    double more1[LANES], more2[LANES];

    for (int rank = first; rank < first + bn->group; rank++) {
        load_sums(more1, more2, bn, block, rank);
        for (int i = 0; i < LANES; i++) {
            s1[i] += more1[i];
            s2[i] += more2[i];
        }
    }
}

/* With S1 = sum of dy and S2 = sum of dy * (x - mean) over the n values of a channel:
 * dx = a * (dy - b - c * (x - mean)), a = scale / std, b = S1 / n, c = S2 / (n * var). */
static void bwd_coefs(const struct bn *bn, int block, const double s1[LANES],
                      const double s2[LANES])
{
    struct dt_lanes_coefs *k = &bn->coefs[block];
    double inverse_n = 1 / n_values(bn), scale[LANES], mean[LANES], variance[LANES];

    load_channels(scale, bn->scale, bn, block);
    load_channels(mean, bn->mean, bn, block);
    load_channels(variance, bn->variance, bn, block);
    for (int i = 0; i < LANES; i++) {
        double inverse_std = 1 / sqrt(variance[i] + (double)bn->eps);
        k->mean[i] = (float)mean[i];
        k->a[i] = (float)(scale[i] * inverse_std);
        k->b[i] = (float)(s1[i] * inverse_n);
        k->c[i] = (float)(s2[i] * inverse_std * inverse_std * inverse_n);
    }
}

/* Of this rank's values: the reduction of the gradients adds those of the other ranks. */
static void bwd_store(const struct bn *bn, int block, const double s1[LANES],
                      const double s2[LANES])
{
    const struct dt_cpu_rows *rows = bn->rows;
    for (int i = 0; i < rows->block && block * rows->block + i < rows->channels; i++) {
        int c = block * rows->block + i;
        bn->diff_scale[c] = (float)(s2[i] * (1 / sqrt((double)bn->variance[c] + (double)bn->eps)));
        bn->diff_shift[c] = (float)s1[i];
    }
}

static void bwd_block(const struct bn *bn, int block)
{
    double s1[LANES] = {0}, s2[LANES] = {0};
    (bn->half == SECOND ? bwd_add_ranks : bwd_add_rows)(s1, s2, bn, block);
    if (bn->half != SECOND)
        bwd_store(bn, block, s1, s2);
    if (bn->half == FIRST)
        share_sums(bn, block, s1, s2);
    else
        bwd_coefs(bn, block, s1, s2);
}

static void bwd_sums(const struct bn *bn, int image, int block)
{
    const struct dt_cpu_rows *rows = bn->rows;
    struct pair *sums = &bn->sums[row_index(bn, image, block)];
    size_t offset = row_offset(bn, image, block);
    const float *mean = bn->mean + block * LANES;
    float padded[LANES];

    /* A full block of 16 channels is in memory in lane order. */
    if (rows->block < LANES || (block + 1) * LANES > rows->channels) {
        double values[LANES];
        load_channels(values, bn->mean, bn, block);
        for (int i = 0; i < LANES; i++)
            padded[i] = (float)values[i];
        mean = padded;
    }
    dt_lanes.bwd_sums(sums->first, sums->second, bn->diff_src + offset, bn->diff_dst + offset,
                      bn->diff_dst2 ? bn->diff_dst2 + offset : NULL, bn->src + offset,
                      row_mask(bn, image, block), mean, rows->row_elements);
}

/* With two terms, diff_src now holds the masked sum. */
static void bwd_apply(const struct bn *bn, int image, int block)
{
    size_t offset = row_offset(bn, image, block);
    bool summed = bn->diff_dst2 != NULL;
    dt_lanes.bwd_apply(bn->diff_src + offset, bn->diff_residual ? bn->diff_residual + offset : NULL,
                       (summed ? bn->diff_src : bn->diff_dst) + offset, bn->src + offset,
                       summed ? NULL : row_mask(bn, image, block), &bn->coefs[block],
                       bn->past_caches, bn->rows->row_elements);
}

/* --- The three stages, a few blocks at a time; inside a parallel region --- */

struct stages {
    void (*sums)(const struct bn *bn, int image, int block);
    void (*block)(const struct bn *bn, int block);
    void (*apply)(const struct bn *bn, int image, int block);
};
static const struct stages FORWARD = {forward_sums, forward_block, forward_apply};
static const struct stages BACKWARD = {bwd_sums, bwd_block, bwd_apply};

/* If there are enough blocks, each thread has its own and never waits for another, because on a
 * busy machine every barrier can cost a time slice. Otherwise all threads share the images of a few
 * blocks. Tasks are ordered by image, so that a thread accesses contiguous memory. */
static void run_stages(const struct bn *bn, const struct stages *stages)
{
    const struct dt_cpu_rows *rows = bn->rows;
    bool alone = blocks_suffice(rows->n_blocks);
    struct span blocks = alone ? own_span(rows->n_blocks) : (struct span){0, rows->n_blocks};
    int together = blocks_together(rows) * (alone ? 1 : omp_get_num_threads());

    for (int first = blocks.begin; first < blocks.end; first += together) {
        int n = blocks.end - first < together ? blocks.end - first : together;
        struct span all = {0, n * rows->n}, all_blocks = {0, n};
        struct span own = alone ? all : own_span(n * rows->n);
        struct span own_blocks = alone ? all_blocks : own_span(n);
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

/* The scratch holds the slots of all ranks, the sums of all rows, then the coefficients of all
 * blocks. */
static size_t slots_bytes(struct dt_device *dev, const struct dt_exec *exec)
{
    size_t bytes;
    (void)dt_cpu_exchanged(dev, exec, &bytes);
    return dt_node_is_synced(exec->node) ? (size_t)dev->options.n_ranks * bytes : 0;
}

/* Ports by kind: a = activation in the row format of src[0], p = plain, w = workspace. */
static dt_status prepare_rows(struct dt_device *dev, struct dt_exec *exec, const char *src_kinds,
                              const char *dst_kinds)
{
    const struct dt_node *node = exec->node;
    dt_status status = DT_OK;
    dt_md md = NULL;

    DT_TRY(dt_cpu_rows_choose(&exec->rows, &md, exec->formats, node->src[0], 0));
    size_t n_rows = (size_t)exec->rows.n * (size_t)exec->rows.n_blocks;
    size_t mask_bytes = n_rows * dt_n_groups(exec->rows.row_elements) * sizeof(uint16_t);
    for (int i = 0; i < node->n_src + node->n_dst; i++) {
        char kind = i < node->n_src ? src_kinds[i] : dst_kinds[i - node->n_src];
        if (kind == 'a')
            DT_TRY_OUT(dt_cpu_port_add(dev, exec, md));
        else
            DT_TRY_OUT(dt_cpu_port_add_block(exec, kind == 'w' ? (mask_bytes + 3) / 4 * 4 : 0));
    }
    exec->work_offset =
        dt_cpu_reserve(exec, slots_bytes(dev, exec) + n_rows * sizeof(struct pair) +
                                 (size_t)exec->rows.n_blocks * sizeof(struct dt_lanes_coefs));
out:
    dt_md_destroy(md);
    return status;
}

static dt_status prepare_bn(struct dt_device *dev, struct dt_exec *exec)
{
    DT_TRY(prepare_rows(dev, exec, "appppa", "appw"));
    return DT_OK;
}

static dt_status prepare_bn_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    DT_TRY(prepare_rows(dev, exec, exec->node->relu ? "aappppwa" : "aappppa", "appa"));
    return DT_OK;
}

/* A tensor too large to stay in a cache until it is read is better written past the caches, which
 * saves reading its lines first. This does not apply to in-place results, whose lines are already
 * in the cache. */
static bool goes_past_caches(const struct dt_cpu_rows *rows, const float *dst, const float *src,
                             const float *src2)
{
    const size_t cached = (size_t)8 << 20;
    size_t n_rows = (size_t)rows->n * (size_t)rows->n_blocks;
    return dst != src && dst != src2 && n_rows * rows->row_elements * sizeof(float) > cached;
}

static dt_status prepare_bn_frozen_bwd(struct dt_device *dev, struct dt_exec *exec)
{
    DT_TRY(prepare_rows(dev, exec, "app", "a"));
    return DT_OK;
}

static struct bn arguments(struct dt_device *dev, const struct dt_exec *exec)
{
    struct pair *sums = (void *)((char *)exec->work + slots_bytes(dev, exec));
    return (struct bn){.rows = &exec->rows,
                       .slots = exec->work,
                       .sums = sums,
                       .coefs = (void *)(sums + exec->rows.n * exec->rows.n_blocks),
                       .src = dt_cpu_src(exec, 0),
                       .rank = dev->options.rank,
                       .group = exec->node->attr.bn.group,
                       .half = dt_node_is_synced(exec->node) ? FIRST : WHOLE,
                       .eps = exec->node->attr.bn.eps};
}

static struct bn forward_arguments(struct dt_device *dev, const struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    bool train = node->n_dst > 1;
    struct bn bn = arguments(dev, exec);
    bn.scale = dt_cpu_src(exec, 1);
    bn.shift = dt_cpu_src(exec, 2);
    bn.running_mean = dt_cpu_src(exec, 3);
    bn.running_var = dt_cpu_src(exec, 4);
    bn.residual = node->residual ? dt_cpu_src(exec, 5) : NULL;
    bn.dst = dt_cpu_dst(exec, 0);
    bn.mean = train ? dt_cpu_dst(exec, 1) : NULL;
    bn.variance = train ? dt_cpu_dst(exec, 2) : NULL;
    bn.mask = node->n_dst > 3 ? dt_cpu_dst(exec, 3) : NULL;
    bn.momentum = node->attr.bn.momentum;
    bn.relu = node->relu;
    bn.past_caches = goes_past_caches(bn.rows, bn.dst, bn.src, bn.residual);
    return bn;
}

static struct bn bwd_arguments(struct dt_device *dev, const struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    int n_src = node->relu ? 7 : 6; /* without diff_dst2 */
    struct bn bn = arguments(dev, exec);
    bn.diff_dst = dt_cpu_src(exec, 1);
    bn.diff_dst2 = node->n_src > n_src ? dt_cpu_src(exec, n_src) : NULL;
    bn.scale = dt_cpu_src(exec, 2);
    bn.mean = dt_cpu_src(exec, 4);
    bn.variance = dt_cpu_src(exec, 5);
    bn.mask = node->relu ? dt_cpu_src(exec, 6) : NULL;
    bn.diff_src = dt_cpu_dst(exec, 0);
    bn.diff_scale = dt_cpu_dst(exec, 1);
    bn.diff_shift = dt_cpu_dst(exec, 2);
    bn.diff_residual = node->n_dst > 3 ? dt_cpu_dst(exec, 3) : NULL;
    bn.past_caches = !bn.diff_dst2 && goes_past_caches(bn.rows, bn.diff_src, bn.diff_dst, bn.src);
    return bn;
}

static dt_status run_bn(struct dt_device *dev, struct dt_exec *exec,
                        const struct dt_scalars *scalars)
{
    (void)scalars;
    struct bn bn = forward_arguments(dev, exec);
#pragma omp parallel
    {
        if (exec->node->n_dst > 1)
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

dt_status dt_cpu_finish(struct dt_device *dev, struct dt_exec *exec)
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
    (void)dev;
    (void)scalars;
    struct bn bn = {.rows = &exec->rows,
                    .src = dt_cpu_src(exec, 0),
                    .scale = dt_cpu_src(exec, 1),
                    .running_var = dt_cpu_src(exec, 2),
                    .dst = dt_cpu_dst(exec, 0),
                    .eps = exec->node->attr.bn.eps};
    bn.past_caches = goes_past_caches(bn.rows, bn.dst, bn.src, NULL);
#pragma omp parallel
    forward_eval(&bn);
    return DT_OK;
}

const struct dt_cpu_op DT_ISA_NAME(dt_cpu_bn) = {prepare_bn, run_bn};
const struct dt_cpu_op DT_ISA_NAME(dt_cpu_bn_bwd) = {prepare_bn_bwd, run_bn_bwd};
const struct dt_cpu_op DT_ISA_NAME(dt_cpu_bn_frozen_bwd) = {prepare_bn_frozen_bwd,
                                                            run_bn_frozen_bwd};
