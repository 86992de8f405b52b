/* The two inner loops of the resampler, once per instruction set. All sets compute the same bits:
 * (sum of tap * value + 1/2) in 32-bit integers, shifted back to 8 bits. */
#ifndef DTRAIN_IMAGE_RESIZE_KERNELS_H
#define DTRAIN_IMAGE_RESIZE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* A tap of one is 1 << DT_RESIZE_BITS. Taps are not negative and those of an output pixel sum to at
 * most one, so no result needs clamping. */
enum { DT_RESIZE_BITS = 14, DT_RESIZE_HALF = 1 << (DT_RESIZE_BITS - 1) };

/* Rows that one call of `rows` filters; outputs per row are a multiple of DT_RESIZE_OUTPUTS, taps
 * per output a multiple of DT_RESIZE_TAPS. */
enum { DT_RESIZE_ROWS = 4, DT_RESIZE_OUTPUTS = 4, DT_RESIZE_TAPS = 2 };

/* Source pixels of an output pixel: first .. first+n-1 of the needed ones; n is a multiple of
 * DT_RESIZE_TAPS. */
struct dt_resize_window {
    int first, n;
};

struct dt_resize_axis {
    struct dt_resize_window *windows;
    int16_t *taps; /* those of output i begin at i * n_taps and end with zeros */
    int n_taps;    /* the largest n */
    int size;      /* outputs, a multiple of DT_RESIZE_OUTPUTS */
};

struct dt_resize_kernels {
    const char *name;
    /* dst[n_rows][dst_pitch]: x->size RGB pixels each, from src[n_rows][src_pitch]; n_rows is 1 to
     * DT_RESIZE_ROWS. May read x->n_taps source pixels for every output and up to 10 bytes after
     * them. May write 4 bytes past the end of each row of dst, and DT_RESIZE_ROWS rows even if
     * n_rows is less. */
    void (*rows)(uint8_t *dst, size_t dst_pitch, const uint8_t *src, size_t src_pitch, int n_rows,
                 const struct dt_resize_axis *x);
    /* dst[n] = the weighted sum of n_taps rows[..][pitch]. */
    void (*columns)(uint8_t *dst, size_t n, const uint8_t *rows, size_t pitch, const int16_t *taps,
                    int n_taps);
};

extern const struct dt_resize_kernels dt_resize_plain;
#if defined(__x86_64__)
extern const struct dt_resize_kernels dt_resize_avx2;
#elif defined(__aarch64__)
extern const struct dt_resize_kernels dt_resize_neon;
#endif

/* Kernel set i of those that this CPU can run, from the fastest to the plain one; then NULL. */
const struct dt_resize_kernels *dt_resize_kernels(int i);

struct dt_resize;
/* For tests: selects another set than the fastest. */
void dt_resize_use(struct dt_resize *resize, const struct dt_resize_kernels *kernels);

#endif
