/* The resampler's loops in plain C: for CPUs without their own kernels, and as the reference that
 * the tests compare the others with. */
#include "image/resize_kernels.h"

enum { BLOCK = 64 };

static void filter_rows(uint8_t *dst, size_t dst_pitch, const uint8_t *src, size_t src_pitch,
                        int n_rows, const struct dt_resize_axis *x)
{
    for (int row = 0; row < n_rows; row++, dst += dst_pitch, src += src_pitch) {
        const int16_t *taps = x->taps;
        uint8_t *out = dst;
        for (int i = 0; i < x->size; i++, out += 3, taps += x->n_taps) {
            const uint8_t *pixel = src + 3 * (ptrdiff_t)x->windows[i].first;
            int32_t r = DT_RESIZE_HALF, g = DT_RESIZE_HALF, b = DT_RESIZE_HALF;
            for (int t = 0; t < x->windows[i].n; t++, pixel += 3) {
                r += taps[t] * pixel[0];
                g += taps[t] * pixel[1];
                b += taps[t] * pixel[2];
            }
            out[0] = (uint8_t)(r >> DT_RESIZE_BITS);
            out[1] = (uint8_t)(g >> DT_RESIZE_BITS);
            out[2] = (uint8_t)(b >> DT_RESIZE_BITS);
        }
    }
}

static void filter_block(uint8_t *dst, size_t n, const uint8_t *rows, size_t pitch,
                         const int16_t *taps, int n_taps)
{
    int32_t sums[BLOCK];
    for (size_t c = 0; c < n; c++)
        sums[c] = DT_RESIZE_HALF;
    for (int t = 0; t < n_taps; t++, rows += pitch) {
        int32_t tap = taps[t];
        for (size_t c = 0; c < n; c++)
            sums[c] += tap * rows[c];
    }
    for (size_t c = 0; c < n; c++)
        dst[c] = (uint8_t)(sums[c] >> DT_RESIZE_BITS);
}

static void filter_columns(uint8_t *dst, size_t n, const uint8_t *rows, size_t pitch,
                           const int16_t *taps, int n_taps)
{
    for (size_t c = 0; c < n; c += BLOCK)
        filter_block(dst + c, n - c < BLOCK ? n - c : BLOCK, rows + c, pitch, taps, n_taps);
}

const struct dt_resize_kernels dt_resize_plain = {"plain", filter_rows, filter_columns};
