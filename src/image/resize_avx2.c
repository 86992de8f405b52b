/* The resampler's loops with AVX2. The functions carry their target, so that a build for any x86-64
 * has them; resize.c asks the CPU. Both loops are compiled for the common numbers of taps and for
 * any: known counts halve the time. With AVX-512 the same loops were 2 to 14 % faster (Cascade
 * Lake), which is not worth a file. */
#include "image/resize_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define AVX2        __attribute__((target("avx2")))
#define AVX2_INLINE __attribute__((target("avx2"), always_inline)) static inline

enum { WIDTH = 32 };

/* Two neighbouring weights, in every 32 bits. */
AVX2_INLINE __m256i load_weights(const int16_t *weights)
{
    int32_t pair;
    memcpy(&pair, weights, sizeof pair);
    return _mm256_set1_epi32(pair);
}

/* 16 bytes of one row below 16 of another. */
AVX2_INLINE __m256i load_two(const uint8_t *a, const uint8_t *b)
{
    __m128i low = _mm_loadu_si128((const __m128i *)a), high = _mm_loadu_si128((const __m128i *)b);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

AVX2_INLINE __m256i add_products(__m256i sum, __m256i values, __m256i weights)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(values, weights));
}

/* One output pixel of four rows, whose first tap is `at` bytes from the begin of each: r g b 0 in
 * 32 bits each, rows 0 and 1 in pixel[0], 2 and 3 in pixel[1]. */
AVX2_INLINE void filter_pixel(__m256i pixel[2], const uint8_t *const rows[4], ptrdiff_t at,
                              const int16_t *weights, int n_taps)
{
    /* Pixels 0 and 1, or 2 and 3, to r r g g b b 0 0 in 16 bits each. */
    const __m256i early = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
    const __m256i late = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
    __m256i low = _mm256_set1_epi32(DT_RESIZE_HALF), high = low;
    for (int t = 0; t < n_taps; t += 4, at += 12) {
        __m256i a = load_two(rows[0] + at, rows[1] + at), b = load_two(rows[2] + at, rows[3] + at);
        __m256i pair = load_weights(weights + t);
        low = add_products(low, _mm256_shuffle_epi8(a, early), pair);
        high = add_products(high, _mm256_shuffle_epi8(b, early), pair);
        if (t + 2 == n_taps)
            break;
        pair = load_weights(weights + t + 2);
        low = add_products(low, _mm256_shuffle_epi8(a, late), pair);
        high = add_products(high, _mm256_shuffle_epi8(b, late), pair);
    }
    pixel[0] = _mm256_srai_epi32(low, DT_RESIZE_BITS);
    pixel[1] = _mm256_srai_epi32(high, DT_RESIZE_BITS);
}

/* Four pixels of two rows: 12 bytes, and 4 that the next ones overwrite. */
AVX2_INLINE void store_pixels(uint8_t *a, uint8_t *b, __m256i p0, __m256i p1, __m256i p2,
                              __m256i p3)
{
    const __m256i join = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    __m256i all = _mm256_packus_epi16(_mm256_packs_epi32(p0, p1), _mm256_packs_epi32(p2, p3));
    all = _mm256_shuffle_epi8(all, join);
    _mm_storeu_si128((__m128i *)a, _mm256_castsi256_si128(all));
    _mm_storeu_si128((__m128i *)b, _mm256_extracti128_si256(all, 1));
}

AVX2_INLINE void filter_four_rows(uint8_t *dst, size_t pitch, const uint8_t *const rows[4],
                                  const struct dt_resize_axis *x, int n_taps)
{
    const int16_t *weights = x->weights;
    const struct dt_resize_tap *tap = x->taps, *end = tap + x->size;
    for (; tap < end; tap += 4, dst += 12, weights += 4 * n_taps) {
        __m256i p[4][2];
        filter_pixel(p[0], rows, 3 * (ptrdiff_t)tap[0].first, weights, n_taps);
        filter_pixel(p[1], rows, 3 * (ptrdiff_t)tap[1].first, weights + n_taps, n_taps);
        filter_pixel(p[2], rows, 3 * (ptrdiff_t)tap[2].first, weights + 2 * n_taps, n_taps);
        filter_pixel(p[3], rows, 3 * (ptrdiff_t)tap[3].first, weights + 3 * n_taps, n_taps);
        store_pixels(dst, dst + pitch, p[0][0], p[1][0], p[2][0], p[3][0]);
        store_pixels(dst + 2 * pitch, dst + 3 * pitch, p[0][1], p[1][1], p[2][1], p[3][1]);
    }
}

AVX2 static void filter_rows(uint8_t *dst, size_t dst_pitch, const uint8_t *src, size_t src_pitch,
                             int n_rows, const struct dt_resize_axis *x)
{
    const uint8_t *rows[DT_RESIZE_ROWS];
    for (int row = 0; row < DT_RESIZE_ROWS; row++)
        rows[row] = row < n_rows ? src + (size_t)row * src_pitch : src;
    if (x->n_taps == 2)
        filter_four_rows(dst, dst_pitch, rows, x, 2);
    else if (x->n_taps == 4)
        filter_four_rows(dst, dst_pitch, rows, x, 4);
    else if (x->n_taps == 6)
        filter_four_rows(dst, dst_pitch, rows, x, 6);
    else
        filter_four_rows(dst, dst_pitch, rows, x, x->n_taps);
}

AVX2_INLINE void filter_block(uint8_t *dst, const uint8_t *rows, size_t pitch,
                              const int16_t *weights, int n_taps)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i s0 = _mm256_set1_epi32(DT_RESIZE_HALF), s1 = s0, s2 = s0, s3 = s0;
    for (int t = 0; t < n_taps; t += 2, rows += 2 * pitch) {
        __m256i pair = load_weights(weights + t);
        __m256i a = _mm256_loadu_si256((const __m256i *)rows);
        __m256i b = _mm256_loadu_si256((const __m256i *)(rows + pitch));
        __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
        s0 = add_products(s0, _mm256_unpacklo_epi8(low, zero), pair);
        s1 = add_products(s1, _mm256_unpackhi_epi8(low, zero), pair);
        s2 = add_products(s2, _mm256_unpacklo_epi8(high, zero), pair);
        s3 = add_products(s3, _mm256_unpackhi_epi8(high, zero), pair);
    }
    s0 = _mm256_srai_epi32(s0, DT_RESIZE_BITS);
    s1 = _mm256_srai_epi32(s1, DT_RESIZE_BITS);
    s2 = _mm256_srai_epi32(s2, DT_RESIZE_BITS);
    s3 = _mm256_srai_epi32(s3, DT_RESIZE_BITS);
    __m256i all = _mm256_packus_epi16(_mm256_packs_epi32(s0, s1), _mm256_packs_epi32(s2, s3));
    _mm256_storeu_si256((__m256i *)dst, all);
}

AVX2_INLINE void filter_blocks(uint8_t *dst, size_t n, const uint8_t *rows, size_t pitch,
                               const int16_t *weights, int n_taps)
{
    for (size_t c = 0; c < n; c += WIDTH) {
        size_t at = c + WIDTH <= n ? c : n - WIDTH; /* the last one overlaps the one before */
        filter_block(dst + at, rows + at, pitch, weights, n_taps);
    }
}

AVX2 static void filter_columns(uint8_t *dst, size_t n, const uint8_t *rows, size_t pitch,
                                const int16_t *weights, int n_taps)
{
    if (n < WIDTH)
        dt_resize_plain.columns(dst, n, rows, pitch, weights, n_taps);
    else if (n_taps == 2)
        filter_blocks(dst, n, rows, pitch, weights, 2);
    else if (n_taps == 4)
        filter_blocks(dst, n, rows, pitch, weights, 4);
    else
        filter_blocks(dst, n, rows, pitch, weights, n_taps);
}

const struct dt_resize_kernels dt_resize_avx2 = {"avx2", filter_rows, filter_columns};

#endif
