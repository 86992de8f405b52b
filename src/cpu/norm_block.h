/* Statistics and coefficients of one block of channels, in fp64, for cpu_norm.c, which walks rows
 * and blocks; cpu_group_norm.c takes from here what is about rows. */
#ifndef DTRAIN_CPU_NORM_BLOCK_H
#define DTRAIN_CPU_NORM_BLOCK_H

#include "cpu/cpu_internal.h"
#include "cpu/norm_loops.h"

/* A tensor too large to stay in a cache until it is read is better written past the caches, which
 * saves reading its lines first. This does not apply to in-place results, whose lines are already
 * in the cache. */
static inline bool dt_goes_past_caches(const struct dt_cpu_rows *rows, const real *dst,
                                       const real *src, const real *src2)
{
    const size_t cached = (size_t)8 << 20;
    const size_t n_rows = (size_t)(rows->n * rows->n_blocks / rows->columns);
    return dst != src && dst != src2 && n_rows * rows->row_elements * sizeof(real) > cached;
}

/* Arguments of one run. */
struct bn {
    const struct dt_cpu_rows *rows;
    struct dt_norm_sums *sums;             /* of each image's blocks */
    struct dt_norm_coefs *coefs, *forward; /* one per block; forward: if an activation needs it */
    const real *src, *residual, *diff_dst, *diff_dst2, *addend;
    real *dst, *diff_src, *diff_residual;
    const float *scale, *shift;
    float *diff_scale, *diff_shift;
    float *mean, *variance, *running_mean, *running_var;
    uint16_t *mask;      /* bits of dst > 0 or NaN, a word per group of 16 */
    float *slots;        /* of each rank or slice, if synced */
    int diff_src_blocks; /* image_blocks of diff_src and addend */
    int slot, n_ranks;   /* of this pass; that share the statistics */
    enum half { WHOLE, FIRST, SECOND } half;
    float eps, momentum;
    bool past_caches;
    enum dt_activation activation;
};

/* Statistics of one block of channels, per lane; for padded channels see dt_bn_load_channels. */
struct statistics {
    double mean[LANES], variance[LANES];
};

static inline struct dt_norm_sums *dt_bn_sums(const struct bn *bn, int image, int block)
{
    return &bn->sums[image * bn->rows->n_blocks + block];
}

/* Values of the channels of a block, per lane; 0 in padded channels and for NULL. */
void dt_bn_load_channels(double out[LANES], const float *values, const struct bn *bn, int block);

/* The forward pass is y = a * x + b. */
void dt_bn_forward_coefs(struct dt_norm_coefs *k, const struct bn *bn, int block,
                         const struct statistics *s);

/* From the sums of the rows of a block, or of the ranks, to its coefficients and its channels'
 * statistics or gradients; in the first half, to this pass's slot. */
void dt_bn_forward_block(const struct bn *bn, int block);
void dt_bn_bwd_block(const struct bn *bn, int block);

#endif
