/* The two inner loops of the resampler, once per instruction set. All sets compute the same bits:
 * (sum of weight * value + 1/2) in 32-bit integers, shifted back to 8 bits. */
#ifndef DTRAIN_IMAGE_RESIZE_KERNELS_H
#define DTRAIN_IMAGE_RESIZE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* A weight of one is 1 << DT_RESIZE_BITS. Weights are not negative and those of an output pixel sum
 * up to at most one, so no result needs to be clamped. */
enum { DT_RESIZE_BITS = 14, DT_RESIZE_HALF = 1 << (DT_RESIZE_BITS - 1) };

/* Rows that one call of `rows` filters; outputs per row and taps per output are multiples. */
enum { DT_RESIZE_ROWS = 4, DT_RESIZE_OUTPUTS = 4, DT_RESIZE_TAPS = 2 };

/* Sources of an output pixel: first .. first+n-1 of the needed ones, n a multiple of
 * DT_RESIZE_TAPS. */
struct dt_resize_tap {
    int first, n;
};

struct dt_resize_axis {
    struct dt_resize_tap *taps;
    int16_t *weights; /* of output i at i * n_taps; zeros behind the last one */
    int n_taps;       /* the largest n */
    int size;         /* outputs, a multiple of DT_RESIZE_OUTPUTS */
};

struct dt_resize_kernels {
    const char *name;
    /* dst[n_rows][dst_pitch]: x->size RGB pixels each, from src[n_rows][src_pitch]; n_rows is 1 to
     * DT_RESIZE_ROWS. x->n_taps are read for every pixel, and up to 10 bytes behind them. May write
     * 4 bytes behind a row of dst, and DT_RESIZE_ROWS rows. */
    void (*rows)(uint8_t *dst, size_t dst_pitch, const uint8_t *src, size_t src_pitch, int n_rows,
                 const struct dt_resize_axis *x);
    /* dst[n] = the weighted sum of n_taps rows[..][pitch]. */
    void (*columns)(uint8_t *dst, size_t n, const uint8_t *rows, size_t pitch,
                    const int16_t *weights, int n_taps);
};

extern const struct dt_resize_kernels dt_resize_plain;
#if defined(__x86_64__)
extern const struct dt_resize_kernels dt_resize_avx2;
#elif defined(__aarch64__)
extern const struct dt_resize_kernels dt_resize_neon;
#endif

/* Set i of those that this CPU can run, the fastest first, the plain one last; NULL behind it. */
const struct dt_resize_kernels *dt_resize_kernels(int i);

struct dt_resize;
/* For tests: another set than the fastest. */
void dt_resize_use(struct dt_resize *resize, const struct dt_resize_kernels *kernels);

#endif
