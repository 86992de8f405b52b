/* The resampler's loops with NEON, which every 64-bit Arm has. */
#include "image/resize_kernels.h"

#if defined(__aarch64__)

#include <arm_neon.h>

enum { WIDTH = 16 };

/* One output pixel: r g b 0. */
static inline uint16x4_t filter_pixel(const uint8_t *src, const int16_t *taps, int n_taps)
{
    /* Shuffles two pixels to r g b 0 r g b 0 in 16 bits each; an index out of range gives 0. */
    static const uint8_t split[16] = {0, 99, 1, 99, 2, 99, 99, 99, 3, 99, 4, 99, 5, 99, 99, 99};
    const uint8x16_t index = vld1q_u8(split);
    uint32x4_t sum = vdupq_n_u32(0);
    for (int t = 0; t < n_taps; t += 2, src += 6) {
        uint16x8_t two = vreinterpretq_u16_u8(vqtbl1q_u8(vld1q_u8(src), index));
        sum = vmlal_n_u16(sum, vget_low_u16(two), (uint16_t)taps[t]);
        sum = vmlal_high_n_u16(sum, two, (uint16_t)taps[t + 1]);
    }
    return vrshrn_n_u32(sum, DT_RESIZE_BITS);
}

static void filter_row(uint8_t *dst, const uint8_t *src, const struct dt_resize_axis *x)
{
    static const uint8_t join[16] = {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 99, 99, 99, 99};
    const int16_t *taps = x->taps;
    const struct dt_resize_window *window = x->windows, *end = window + x->size;
    for (; window < end; window += 4, dst += 12) {
        uint16x4_t p[4];
        for (int k = 0; k < 4; k++, taps += x->n_taps)
            p[k] = filter_pixel(src + 3 * (ptrdiff_t)window[k].first, taps, x->n_taps);
        uint8x16_t all =
            vcombine_u8(vmovn_u16(vcombine_u16(p[0], p[1])), vmovn_u16(vcombine_u16(p[2], p[3])));
        vst1q_u8(dst, vqtbl1q_u8(all, vld1q_u8(join))); /* the next store overwrites 4 bytes */
    }
}

static void filter_rows(uint8_t *dst, size_t dst_pitch, const uint8_t *src, size_t src_pitch,
                        int n_rows, const struct dt_resize_axis *x)
{
    for (int row = 0; row < n_rows; row++, dst += dst_pitch, src += src_pitch)
        filter_row(dst, src, x);
}

static inline void filter_block(uint8_t *dst, const uint8_t *rows, size_t pitch,
                                const int16_t *taps, int n_taps)
{
    uint32x4_t s0 = vdupq_n_u32(0), s1 = s0, s2 = s0, s3 = s0;
    for (int t = 0; t < n_taps; t++, rows += pitch) {
        uint8x16_t row = vld1q_u8(rows);
        uint16x8_t low = vmovl_u8(vget_low_u8(row)), high = vmovl_high_u8(row);
        uint16_t tap = (uint16_t)taps[t];
        s0 = vmlal_n_u16(s0, vget_low_u16(low), tap);
        s1 = vmlal_high_n_u16(s1, low, tap);
        s2 = vmlal_n_u16(s2, vget_low_u16(high), tap);
        s3 = vmlal_high_n_u16(s3, high, tap);
    }
    uint16x8_t low =
        vcombine_u16(vrshrn_n_u32(s0, DT_RESIZE_BITS), vrshrn_n_u32(s1, DT_RESIZE_BITS));
    uint16x8_t high =
        vcombine_u16(vrshrn_n_u32(s2, DT_RESIZE_BITS), vrshrn_n_u32(s3, DT_RESIZE_BITS));
    vst1q_u8(dst, vcombine_u8(vmovn_u16(low), vmovn_u16(high)));
}

static void filter_columns(uint8_t *dst, size_t n, const uint8_t *rows, size_t pitch,
                           const int16_t *taps, int n_taps)
{
    if (n < WIDTH) {
        dt_resize_plain.columns(dst, n, rows, pitch, taps, n_taps);
        return;
    }
    for (size_t c = 0; c < n; c += WIDTH) {
        size_t at = c + WIDTH <= n ? c : n - WIDTH; /* the last block overlaps the one before it */
        filter_block(dst + at, rows + at, pitch, taps, n_taps);
    }
}

const struct dt_resize_kernels dt_resize_neon = {"neon", filter_rows, filter_columns};

#endif
