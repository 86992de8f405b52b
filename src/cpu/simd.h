/* A group of 16 floats: one AVX-512 register or several smaller ones. Loops over the parts of a
 * group are unrolled, so that groups are passed and returned in registers. Activations are loaded
 * and stored as real.h says. */
#ifndef DTRAIN_CPU_SIMD_H
#define DTRAIN_CPU_SIMD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cpu/real.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { F32X16 = 16 };
/* Floats in a register. */
#if defined(__AVX512F__)
enum { WIDTH = 16 };
#elif defined(__AVX__)
enum { WIDTH = 8 };
#else
enum { WIDTH = 4 };
#endif

typedef float vec __attribute__((vector_size(4 * WIDTH)));
typedef int32_t ivec __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t uvec __attribute__((vector_size(4 * WIDTH)));
typedef float loose_vec __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef uint16_t half_vec __attribute__((vector_size(2 * WIDTH), aligned(2), may_alias));

struct f32x16 {
    vec part[F32X16 / WIDTH];
};

#define UNROLLED       _Pragma("GCC unroll 4")
#define FOR_PARTS(k)   UNROLLED for (int k = 0; k < F32X16 / WIDTH; k++)
#define LOAD(from)     ((vec)(*(const loose_vec *)(from)))
#define STORE(to, vec) (*(loose_vec *)(to) = (vec))

/* gcc 12 converts vectors between 16 and 32 bits by halves, so the wide ones have intrinsics. */
static inline vec load_real(const real *from)
{
#if !defined(DT_REAL_BF16)
    return LOAD(from);
#elif defined(__AVX512F__)
    return (vec)((uvec)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from)) << 16);
#elif defined(__AVX2__)
    return (vec)((uvec)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from)) << 16);
#else
    return (vec)(__builtin_convertvector(*(const half_vec *)from, uvec) << 16);
#endif
}

#ifdef DT_REAL_BF16
/* As dt_float_to_bf16. */
static inline half_vec round_vec(vec x)
{
    const uvec bits = (uvec)x;
    const uvec rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
#ifdef __AVX512F__
    const __mmask16 nan = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
    return (half_vec)_mm512_cvtepi32_epi16(
        _mm512_mask_mov_epi32((__m512i)rounded, nan, (__m512i)quiet));
#else
    const uvec is_nan = (uvec)(x != x);
    return __builtin_convertvector((rounded & ~is_nan) | (quiet & is_nan), half_vec);
#endif
}
#endif

static inline void store_real(real *to, vec x)
{
#ifdef DT_REAL_BF16
    *(half_vec *)to = round_vec(x);
#else
    STORE(to, x);
#endif
}

/* A store past the caches to an aligned `to`; finish with stream_end. */
static inline void stream_real(real *to, vec x)
{
#if defined(DT_REAL_BF16) && defined(__AVX512F__)
    _mm256_stream_si256((__m256i *)to, (__m256i)round_vec(x));
#elif defined(DT_REAL_BF16) && defined(__AVX__)
    _mm_stream_si128((__m128i *)to, (__m128i)round_vec(x));
#elif defined(DT_REAL_BF16)
    store_real(to, x);
#elif defined(__AVX512F__)
    _mm512_stream_ps(to, (__m512)x);
#elif defined(__AVX__)
    _mm256_stream_ps(to, (__m256)x);
#elif defined(__SSE2__)
    _mm_stream_ps(to, (__m128)x);
#else
    STORE(to, x);
#endif
}

static inline struct f32x16 load(const float *src)
{
    struct f32x16 x;
    FOR_PARTS (k)
        x.part[k] = LOAD(src + k * WIDTH);
    return x;
}

static inline void store(float *dst, struct f32x16 x)
{
    FOR_PARTS (k)
        STORE(dst + k * WIDTH, x.part[k]);
}

static inline struct f32x16 get(const real *src)
{
    struct f32x16 x;
    FOR_PARTS (k)
        x.part[k] = load_real(src + k * WIDTH);
    return x;
}

static inline void put(real *dst, struct f32x16 x, bool streams)
{
    FOR_PARTS (k) {
        if (streams)
            stream_real(dst + k * WIDTH, x.part[k]);
        else
            store_real(dst + k * WIDTH, x.part[k]);
    }
}

/* For streams. */
static inline bool is_aligned(const real *p)
{
    return (uintptr_t)p % (WIDTH * sizeof(real)) == 0;
}

/* The first n of a group's values; the others are 0. */
static inline struct f32x16 get_rest(const real *src, size_t n)
{
#if defined(DT_REAL_BF16) && defined(__AVX512F__)
    const __m256i part = _mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), src);
    return (struct f32x16){{(vec)((uvec)_mm512_cvtepu16_epi32(part) << 16)}};
#else
    real buffer[F32X16] = {0};
    memcpy(buffer, src, n * sizeof(real));
    return get(buffer);
#endif
}

static inline void put_rest(real *dst, struct f32x16 x, size_t n)
{
#if defined(DT_REAL_BF16) && defined(__AVX512F__)
    _mm256_mask_storeu_epi16(dst, (__mmask16)((1u << n) - 1), (__m256i)round_vec(x.part[0]));
#else
    real buffer[F32X16];
    put(buffer, x, false);
    memcpy(dst, buffer, n * sizeof(real));
#endif
}

static inline void stream_end(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

/* One bit per lane: 0 if the value is <= 0, so that NaN and its gradient pass through ReLU. */
static inline uint16_t active(struct f32x16 x)
{
    unsigned bits = 0;
    FOR_PARTS (k) {
#if defined(__AVX512F__)
        bits = _mm512_cmp_ps_mask((__m512)x.part[k], _mm512_setzero_ps(), _CMP_NLE_UQ);
#elif defined(__AVX__)
        bits |= (unsigned)_mm256_movemask_ps((__m256) ~(x.part[k] <= 0)) << k * WIDTH;
#elif defined(__SSE2__)
        bits |= (unsigned)_mm_movemask_ps((__m128) ~(x.part[k] <= 0)) << k * WIDTH;
#else
        for (int i = 0; i < WIDTH; i++)
            bits |= (unsigned)!(x.part[k][i] <= 0) << (k * WIDTH + i);
#endif
    }
    return (uint16_t)bits;
}

/* The values whose bit is 1, and zeros. */
static inline struct f32x16 keep_active(struct f32x16 x, uint16_t bits)
{
#if defined(__AVX512F__)
    x.part[0] = (vec)_mm512_maskz_mov_ps(bits, (__m512)x.part[0]);
#else
    static const int32_t BIT[F32X16] = {1,       1 << 1,  1 << 2,  1 << 3, 1 << 4,  1 << 5,
                                        1 << 6,  1 << 7,  1 << 8,  1 << 9, 1 << 10, 1 << 11,
                                        1 << 12, 1 << 13, 1 << 14, 1 << 15};
    FOR_PARTS (k) {
        const ivec bit = (ivec)LOAD(BIT + k * WIDTH);
        x.part[k] = (vec)((ivec)x.part[k] & ((((ivec){0} + bits) & bit) == bit));
    }
#endif
    return x;
}

#endif
