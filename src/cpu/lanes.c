/* Inner loops of batch normalisation on vectors of 16 floats (GNU C vectors: one AVX-512 register
 * or several smaller ones). The tail of a row that does not fill a vector goes through a buffer. */
#include "cpu/lanes.h"

#include <string.h>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

typedef float vec __attribute__((vector_size(64)));
typedef int32_t ivec __attribute__((vector_size(64)));
typedef float loose_vec __attribute__((vector_size(64), aligned(4), may_alias)); /* in memory */

#define LOAD(p)     ((vec)(*(const loose_vec *)(p)))
#define STORE(p, v) (*(loose_vec *)(p) = (v))

/* 8 KiB ahead: the loops are memory-bound, hardware prefetching stops at the end of every page, and
 * a row is usually followed by the next one. */
#define PREFETCH(p) __builtin_prefetch((p) + 2048)

/* Three operations that GNU C vectors cannot express well, as AVX-512 instructions if available.
 * Vectors are passed by pointer because passing them by value depends on the instruction set. ReLU
 * tests for "not <= 0", so that NaN and its gradient pass through. */
#ifdef __AVX512F__

static inline void store_active(uint16_t *mask, const vec *v)
{
    *mask = _mm512_cmp_ps_mask((__m512)*v, _mm512_setzero_ps(), _CMP_NLE_UQ);
}

static inline void load_masked(vec *v, const float *src, const uint16_t *mask)
{
    *v = mask ? (vec)_mm512_maskz_loadu_ps(*mask, src) : LOAD(src);
}

/* Non-temporal store to an aligned p. Finish with stream_end. */
static inline void stream(float *p, const vec *v)
{
    _mm512_stream_ps(p, (__m512)*v);
}

static inline void stream_end(void)
{
    _mm_sfence();
}

#else

static const ivec BIT = {1,      1 << 1, 1 << 2,  1 << 3,  1 << 4,  1 << 5,  1 << 6,  1 << 7,
                         1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15};

static inline void store_active(uint16_t *mask, const vec *v)
{
    ivec bits = ~(*v <= 0) & BIT;
    int32_t word = 0;
    for (int i = 0; i < LANES; i++)
        word |= bits[i];
    *mask = (uint16_t)word;
}

static inline void load_masked(vec *v, const float *src, const uint16_t *mask)
{
    *v = LOAD(src);
    if (mask) {
        ivec open = (((ivec){0} + *mask) & BIT) != 0;
        *v = (vec)((ivec)*v & open);
    }
}

static inline void stream(float *p, const vec *v)
{
    STORE(p, *v);
}

static inline void stream_end(void)
{
}

#endif

/* Values are summed in fp32 over a chunk that stays in the L1 cache, then in fp64. */
enum { CHUNK = 256 * LANES };

static inline void load_rest(float buffer[LANES], const float *src, size_t n)
{
    memset(buffer, 0, LANES * sizeof(float));
    memcpy(buffer, src, n * sizeof(float));
}

/* Adds the moments of a chunk of `n` full groups to those of `count` groups before it. The second
 * pass corrects the rounding of the mean of the first. */
static void add_chunk(double mean[LANES], double m2[LANES], double count, const float *src,
                      size_t n)
{
    vec sum[4] = {{0}, {0}, {0}, {0}};
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        for (size_t j = 0; j < 4; j++) {
            PREFETCH(src + (i + j) * LANES);
            sum[j] += LOAD(src + (i + j) * LANES);
        }
    }
    for (; i < n; i++)
        sum[0] += LOAD(src + i * LANES);
    vec chunk_mean = ((sum[0] + sum[1]) + (sum[2] + sum[3])) * (1.0f / (float)n);

    vec square[2] = {{0}, {0}}, rest[2] = {{0}, {0}};
    for (i = 0; i + 2 <= n; i += 2) {
        for (size_t j = 0; j < 2; j++) {
            vec d = LOAD(src + (i + j) * LANES) - chunk_mean;
            square[j] += d * d;
            rest[j] += d;
        }
    }
    if (i < n) {
        vec d = LOAD(src + i * LANES) - chunk_mean;
        square[0] += d * d;
        rest[0] += d;
    }
    square[0] += square[1];
    rest[0] += rest[1];

    double inverse = 1 / (double)n, weight = (double)n / (count + (double)n);
    for (int lane = 0; lane < LANES; lane++) {
        double r = (double)rest[0][lane];
        double delta = (double)chunk_mean[lane] + r * inverse - mean[lane];
        mean[lane] += delta * weight;
        m2[lane] += (double)square[0][lane] - r * r * inverse + delta * delta * count * weight;
    }
}

static void moments(float mean[LANES], float m2[LANES], const float *src, size_t n)
{
    double m[LANES] = {0}, s[LANES] = {0};
    size_t n_full = n / LANES * LANES;

    for (size_t first = 0; first < n_full; first += CHUNK) {
        size_t count = n_full - first < CHUNK ? n_full - first : CHUNK;
        add_chunk(m, s, (double)(first / LANES), src + first, count / LANES);
    }
    for (size_t lane = 0; lane < n - n_full; lane++) {
        double delta = (double)src[n_full + lane] - m[lane];
        m[lane] += delta / (double)(n_full / LANES + 1);
        s[lane] += delta * ((double)src[n_full + lane] - m[lane]);
    }
    for (int lane = 0; lane < LANES; lane++) {
        mean[lane] = (float)m[lane];
        m2[lane] = (float)s[lane];
    }
}

static inline void apply_group(vec *y, uint16_t *mask, const float *src, const float *residual,
                               const vec *a, const vec *b, bool relu)
{
    *y = LOAD(src) * *a + *b;
    if (residual)
        *y += LOAD(residual);
    if (mask)
        store_active(mask, y);
    if (relu)
        *y = (vec)((ivec)*y & ~(*y <= 0));
}

static void apply(float *dst, uint16_t *mask, const float *src, const float *residual,
                  const struct dt_lanes_coefs *k, bool relu, bool past_caches, size_t n)
{
    const vec va = LOAD(k->a), vb = LOAD(k->b);
    bool streams = past_caches && (uintptr_t)dst % sizeof(vec) == 0;
    size_t i = 0, group = 0;
    vec y;

    for (; i + LANES <= n; i += LANES, group++) {
        PREFETCH(src + i);
        if (residual)
            PREFETCH(residual + i);
        apply_group(&y, mask ? mask + group : NULL, src + i, residual ? residual + i : NULL, &va,
                    &vb, relu);
        if (streams)
            stream(dst + i, &y);
        else
            STORE(dst + i, y);
    }
    if (i < n) {
        float x[LANES], r[LANES];
        load_rest(x, src + i, n - i);
        if (residual)
            load_rest(r, residual + i, n - i);
        apply_group(&y, mask ? mask + group : NULL, x, residual ? r : NULL, &va, &vb, relu);
        STORE(x, y);
        memcpy(dst + i, x, (n - i) * sizeof(float));
    }
    if (streams)
        stream_end();
}

/* sum += dy, product += dy * (src - mean); with two terms, dy is also stored to diff_sum. */
static inline void add_group(vec *sum, vec *product, float *diff_sum, const float *diff_dst,
                             const float *diff_dst2, const float *src, const uint16_t *mask,
                             const vec *mean)
{
    vec dy;
    load_masked(&dy, diff_dst, mask);
    if (diff_dst2) {
        vec second;
        load_masked(&second, diff_dst2, mask);
        dy += second;
        STORE(diff_sum, dy);
    }
    *sum += dy;
    *product += dy * (LOAD(src) - *mean);
}

static void bwd_sums(float sum[LANES], float product[LANES], float *diff_sum, const float *diff_dst,
                     const float *diff_dst2, const float *src, const uint16_t *mask,
                     const float mean[LANES], size_t n)
{
    const vec vm = LOAD(mean);
    double s1[LANES] = {0}, s2[LANES] = {0};

    for (size_t first = 0; first < n; first += CHUNK) {
        size_t end = n - first < CHUNK ? n : first + CHUNK, i = first;
        vec v1 = {0}, v2 = {0};
        if (diff_dst2) {
            for (; i + LANES <= end; i += LANES) {
                PREFETCH(diff_dst + i);
                PREFETCH(diff_dst2 + i);
                PREFETCH(src + i);
                add_group(&v1, &v2, diff_sum + i, diff_dst + i, diff_dst2 + i, src + i,
                          mask ? mask + i / LANES : NULL, &vm);
            }
        } else {
            for (; i + LANES <= end; i += LANES) {
                PREFETCH(diff_dst + i);
                PREFETCH(src + i);
                add_group(&v1, &v2, NULL, diff_dst + i, NULL, src + i,
                          mask ? mask + i / LANES : NULL, &vm);
            }
        }
        if (i < end) {
            float d[LANES], d2[LANES], x[LANES];
            load_rest(d, diff_dst + i, end - i);
            load_rest(x, src + i, end - i);
            if (diff_dst2)
                load_rest(d2, diff_dst2 + i, end - i);
            add_group(&v1, &v2, d, d, diff_dst2 ? d2 : NULL, x, mask ? mask + i / LANES : NULL,
                      &vm);
            if (diff_dst2)
                memcpy(diff_sum + i, d, (end - i) * sizeof(float));
        }
        for (int lane = 0; lane < LANES; lane++) {
            s1[lane] += (double)v1[lane];
            s2[lane] += (double)v2[lane];
        }
    }
    for (int lane = 0; lane < LANES; lane++) {
        sum[lane] = (float)s1[lane];
        product[lane] = (float)s2[lane];
    }
}

static void bwd_apply(float *diff_src, float *diff_residual, const float *diff_dst,
                      const float *src, const uint16_t *mask, const struct dt_lanes_coefs *k,
                      bool past_caches, size_t n)
{
    const vec va = LOAD(k->a), vb = LOAD(k->b), vc = LOAD(k->c), vm = LOAD(k->mean);
    bool streams = past_caches && (uintptr_t)diff_src % sizeof(vec) == 0 &&
                   (uintptr_t)diff_residual % sizeof(vec) == 0;
    size_t i = 0;
    vec dy, dx;

    for (; i + LANES <= n; i += LANES) {
        PREFETCH(diff_dst + i);
        PREFETCH(src + i);
        load_masked(&dy, diff_dst + i, mask ? mask + i / LANES : NULL);
        dx = va * (dy - vb - vc * (LOAD(src + i) - vm));
        if (streams) {
            stream(diff_src + i, &dx);
            if (diff_residual)
                stream(diff_residual + i, &dy);
        } else {
            STORE(diff_src + i, dx);
            if (diff_residual)
                STORE(diff_residual + i, dy);
        }
    }
    if (i < n) {
        float d[LANES], x[LANES];
        load_rest(d, diff_dst + i, n - i);
        load_rest(x, src + i, n - i);
        load_masked(&dy, d, mask ? mask + i / LANES : NULL);
        STORE(x, va * (dy - vb - vc * (LOAD(x) - vm)));
        STORE(d, dy);
        memcpy(diff_src + i, x, (n - i) * sizeof(float));
        if (diff_residual)
            memcpy(diff_residual + i, d, (n - i) * sizeof(float));
    }
    if (streams)
        stream_end();
}

const struct dt_lane_loops dt_lanes = {moments, apply, bwd_sums, bwd_apply};
