/* The inner loops of batch and group normalisation over values in groups of 16 lanes, each lane
 * with its own coefficients. dst may be src. */
#ifndef DTRAIN_CPU_NORM_LOOPS_H
#define DTRAIN_CPU_NORM_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/real.h"
#include "dtrain/activation.h"

/* The name of something that every instruction set (isa.h) has its own of. */
#ifndef DT_ISA
#define DT_ISA plain
#endif
#define DT_ISA_JOIN(name, isa)   name##_##isa
#define DT_ISA_EXPAND(name, isa) DT_ISA_JOIN(name, isa)
#define DT_ISA_NAME(name)        DT_ISA_EXPAND(name, DT_ISA)

enum { LANES = 16 };

static inline size_t dt_n_groups(size_t n)
{
    return (n + LANES - 1) / LANES;
}

/* Number of values that belong to `lane` of n in groups. */
static inline double dt_lane_count(size_t n, int lane)
{
    return (double)(n / LANES + ((size_t)lane < n % LANES));
}

/* Per lane; the forward pass uses only a and b, and the backward pass of an activation too. */
struct dt_norm_coefs {
    float mean[LANES], a[LANES], b[LANES], c[LANES];
};

/* Values in memory: `pixels` times `columns` adjacent groups, from one pixel to the next `step`
 * values; the last group of a pixel has `width` values. Then come `rest` values more. */
struct dt_norm_row {
    size_t pixels, step, rest;
    int columns, width;
    int words; /* of a mask, from one pixel to the next */
};

/* n adjacent values. */
static inline struct dt_norm_row dt_norm_flat(size_t n)
{
    return (struct dt_norm_row){n / LANES, LANES, n % LANES, 1, LANES, 1};
}

/* Two sums per lane of a column. */
struct dt_norm_sums {
    float first[LANES], second[LANES];
};

/* The most columns that are summed at a time. */
enum { DT_NORM_STRIP = 64 };

struct dt_norm_loops {
    /* Mean and sum of squared deviations from it, of every column. */
    void (*moments)(struct dt_norm_sums *sums, const real *src, const struct dt_norm_row *row);

    /* dst = activation(a * src + b [+ residual]). mask (may be NULL) gets one bit per value: 1 if
     * the activation's argument was positive or NaN. past_caches: dst is too
     * large to still be in a cache when it is read. k: one per column. */
    void (*apply)(real *dst, uint16_t *mask, const real *src, const real *residual,
                  const struct dt_norm_coefs *k, enum dt_activation activation, bool past_caches,
                  const struct dt_norm_row *row);

    /* Sums, for every column, dy and dy * (src - mean of k), where dy = diff_dst + diff_dst2 (may
     * be NULL), or 0 where mask has a 0, or that times the activation's slope at a * src + b of
     * `forward`, which is not read without one. */
    void (*bwd_sums)(struct dt_norm_sums *sums, const real *diff_dst, const real *diff_dst2,
                     const real *src, const uint16_t *mask, enum dt_activation activation,
                     const struct dt_norm_coefs *forward, const struct dt_norm_coefs *k,
                     const struct dt_norm_row *row);

    /* diff_src = a * (dy - b - c * (src - mean)) [+ addend]; diff_residual (may be NULL) = dy. */
    void (*bwd_apply)(real *diff_src, real *diff_residual, const real *addend, const real *diff_dst,
                      const real *diff_dst2, const real *src, const uint16_t *mask,
                      enum dt_activation activation, const struct dt_norm_coefs *forward,
                      const struct dt_norm_coefs *k, bool past_caches,
                      const struct dt_norm_row *row);

    /* diff_src = a * diff_dst - b - c * (src - mean). */
    void (*group_bwd_apply)(real *diff_src, const real *diff_dst, const real *src,
                            const struct dt_norm_coefs *k, bool past_caches,
                            const struct dt_norm_row *row);
};

#define dt_norm_rows DT_ISA_NAME(dt_norm_rows)
extern const struct dt_norm_loops dt_norm_rows;

#endif
