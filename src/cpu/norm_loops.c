/* The inner loops of batch and group normalisation. The tail of a row that does not fill a group
 * goes through a buffer. */
#include "cpu/norm_loops.h"

#include <string.h>

#include "cpu/simd.h"

_Static_assert((int)LANES == (int)F32X16, "a group has one value per lane");

/* 8 KiB ahead: the loops are memory-bound, hardware prefetching stops at the end of every page, and
 * a row is usually followed by the next one. */
#define PREFETCH(p) __builtin_prefetch((p) + 2048)

/* Values are summed in fp32 over a chunk that stays in the L1 cache, then in fp64. */
enum { CHUNK = 256 * LANES };

static inline bool is_aligned(const float *p)
{
    return (uintptr_t)p % sizeof(vec) == 0;
}

static inline void put(float *dst, struct f32x16 x, bool streams)
{
    if (streams)
        stream(dst, x);
    else
        store(dst, x);
}

static inline void load_rest(float buffer[LANES], const float *src, size_t n)
{
    memset(buffer, 0, LANES * sizeof(float));
    memcpy(buffer, src, n * sizeof(float));
}

static inline void add(struct f32x16 *sum, struct f32x16 x)
{
    FOR_PARTS (k)
        sum->part[k] += x.part[k];
}

static inline void add_deviation(struct f32x16 *square, struct f32x16 *rest, const float *src,
                                 struct f32x16 mean)
{
    const struct f32x16 x = load(src);
    FOR_PARTS (k) {
        const vec d = x.part[k] - mean.part[k];
        square->part[k] += d * d;
        rest->part[k] += d;
    }
}

/* Adds the moments of a chunk of `n` full groups to those of `count` groups before it. The second
 * pass corrects the rounding of the mean of the first. */
static void add_chunk(double mean[LANES], double m2[LANES], double count, const float *src,
                      size_t n)
{
    struct f32x16 sum[4] = {0}, square[2] = {0}, rest[2] = {0};
    float chunk_mean[LANES], squares[LANES], rests[LANES];
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        UNROLLED for (size_t j = 0; j < 4; j++)
        {
            PREFETCH(src + (i + j) * LANES);
            add(&sum[j], load(src + (i + j) * LANES));
        }
    }
    for (; i < n; i++)
        add(&sum[0], load(src + i * LANES));
    add(&sum[0], sum[1]);
    add(&sum[2], sum[3]);
    add(&sum[0], sum[2]);
    FOR_PARTS (k)
        sum[0].part[k] *= 1.0f / (float)n;

    for (i = 0; i + 2 <= n; i += 2) {
        UNROLLED for (size_t j = 0; j < 2; j++)
            add_deviation(&square[j], &rest[j], src + (i + j) * LANES, sum[0]);
    }
    if (i < n)
        add_deviation(&square[0], &rest[0], src + i * LANES, sum[0]);
    add(&square[0], square[1]);
    add(&rest[0], rest[1]);

    store(chunk_mean, sum[0]);
    store(squares, square[0]);
    store(rests, rest[0]);
    double inverse = 1 / (double)n, weight = (double)n / (count + (double)n);
    for (int lane = 0; lane < LANES; lane++) {
        double r = (double)rests[lane];
        double delta = (double)chunk_mean[lane] + r * inverse - mean[lane];
        mean[lane] += delta * weight;
        m2[lane] += (double)squares[lane] - r * r * inverse + delta * delta * count * weight;
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

static inline struct f32x16 apply_group(uint16_t *mask, const float *src, const float *residual,
                                        struct f32x16 a, struct f32x16 b, bool relu)
{
    struct f32x16 y = load(src);
    FOR_PARTS (k)
        y.part[k] = y.part[k] * a.part[k] + b.part[k];
    if (residual)
        add(&y, load(residual));
    if (mask)
        *mask = active(y);
    if (relu)
        FOR_PARTS (k)
            y.part[k] = (vec)((ivec)y.part[k] & ~(y.part[k] <= 0));
    return y;
}

static void apply(float *dst, uint16_t *mask, const float *src, const float *residual,
                  const struct dt_norm_coefs *k, bool relu, bool past_caches, size_t n)
{
    const struct f32x16 a = load(k->a), b = load(k->b);
    const bool streams = past_caches && is_aligned(dst);
    size_t i = 0, group = 0;

    for (; i + LANES <= n; i += LANES, group++) {
        PREFETCH(src + i);
        if (residual)
            PREFETCH(residual + i);
        const struct f32x16 y = apply_group(mask ? mask + group : NULL, src + i,
                                            residual ? residual + i : NULL, a, b, relu);
        put(dst + i, y, streams);
    }
    if (i < n) {
        float x[LANES], r[LANES];
        load_rest(x, src + i, n - i);
        if (residual)
            load_rest(r, residual + i, n - i);
        store(x, apply_group(mask ? mask + group : NULL, x, residual ? r : NULL, a, b, relu));
        memcpy(dst + i, x, (n - i) * sizeof(float));
    }
    if (streams)
        stream_end();
}

static inline struct f32x16 load_masked(const float *src, const uint16_t *mask)
{
    return mask ? keep_active(load(src), *mask) : load(src);
}

/* sum += dy, product += dy * (src - mean); with two terms, dy is also stored to diff_sum. */
static inline void add_group(struct f32x16 *sum, struct f32x16 *product, float *diff_sum,
                             const float *diff_dst, const float *diff_dst2, const float *src,
                             const uint16_t *mask, struct f32x16 mean)
{
    const struct f32x16 x = load(src);
    struct f32x16 dy = load_masked(diff_dst, mask);
    if (diff_dst2) {
        add(&dy, load_masked(diff_dst2, mask));
        store(diff_sum, dy);
    }
    FOR_PARTS (k) {
        sum->part[k] += dy.part[k];
        product->part[k] += dy.part[k] * (x.part[k] - mean.part[k]);
    }
}

static void bwd_sums(float sum[LANES], float product[LANES], float *diff_sum, const float *diff_dst,
                     const float *diff_dst2, const float *src, const uint16_t *mask,
                     const float mean[LANES], size_t n)
{
    const struct f32x16 m = load(mean);
    double s1[LANES] = {0}, s2[LANES] = {0};

    for (size_t first = 0; first < n; first += CHUNK) {
        size_t end = n - first < CHUNK ? n : first + CHUNK, i = first;
        struct f32x16 g1 = {0}, g2 = {0};
        if (diff_dst2) {
            for (; i + LANES <= end; i += LANES) {
                PREFETCH(diff_dst + i);
                PREFETCH(diff_dst2 + i);
                PREFETCH(src + i);
                add_group(&g1, &g2, diff_sum + i, diff_dst + i, diff_dst2 + i, src + i,
                          mask ? mask + i / LANES : NULL, m);
            }
        } else {
            for (; i + LANES <= end; i += LANES) {
                PREFETCH(diff_dst + i);
                PREFETCH(src + i);
                add_group(&g1, &g2, NULL, diff_dst + i, NULL, src + i,
                          mask ? mask + i / LANES : NULL, m);
            }
        }
        if (i < end) {
            float d[LANES], d2[LANES], x[LANES];
            load_rest(d, diff_dst + i, end - i);
            load_rest(x, src + i, end - i);
            if (diff_dst2)
                load_rest(d2, diff_dst2 + i, end - i);
            add_group(&g1, &g2, d, d, diff_dst2 ? d2 : NULL, x, mask ? mask + i / LANES : NULL, m);
            if (diff_dst2)
                memcpy(diff_sum + i, d, (end - i) * sizeof(float));
        }
        store(sum, g1);
        store(product, g2);
        for (int lane = 0; lane < LANES; lane++) {
            s1[lane] += (double)sum[lane];
            s2[lane] += (double)product[lane];
        }
    }
    for (int lane = 0; lane < LANES; lane++) {
        sum[lane] = (float)s1[lane];
        product[lane] = (float)s2[lane];
    }
}

/* a * (dy - b - c * (src - mean)) */
static inline struct f32x16 bwd_group(struct f32x16 dy, struct f32x16 x,
                                      const struct dt_norm_coefs *coefs)
{
    const struct f32x16 a = load(coefs->a), b = load(coefs->b), c = load(coefs->c);
    const struct f32x16 mean = load(coefs->mean);
    FOR_PARTS (k)
        x.part[k] = a.part[k] * (dy.part[k] - b.part[k] - c.part[k] * (x.part[k] - mean.part[k]));
    return x;
}

static void bwd_apply(float *diff_src, float *diff_residual, const float *diff_dst,
                      const float *src, const uint16_t *mask, const struct dt_norm_coefs *k,
                      bool past_caches, size_t n)
{
    const bool streams = past_caches && is_aligned(diff_src) && is_aligned(diff_residual);
    const struct dt_norm_coefs coefs = *k;
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        PREFETCH(diff_dst + i);
        PREFETCH(src + i);
        const struct f32x16 dy = load_masked(diff_dst + i, mask ? mask + i / LANES : NULL);
        const struct f32x16 dx = bwd_group(dy, load(src + i), &coefs);
        put(diff_src + i, dx, streams);
        if (diff_residual)
            put(diff_residual + i, dy, streams);
    }
    if (i < n) {
        float d[LANES], x[LANES];
        load_rest(d, diff_dst + i, n - i);
        load_rest(x, src + i, n - i);
        const struct f32x16 dy = load_masked(d, mask ? mask + i / LANES : NULL);
        store(x, bwd_group(dy, load(x), &coefs));
        store(d, dy);
        memcpy(diff_src + i, x, (n - i) * sizeof(float));
        if (diff_residual)
            memcpy(diff_residual + i, d, (n - i) * sizeof(float));
    }
    if (streams)
        stream_end();
}

/* a * dy - b - c * (src - mean) */
static inline struct f32x16 group_bwd_group(struct f32x16 dy, struct f32x16 x,
                                            const struct dt_norm_coefs *coefs)
{
    const struct f32x16 a = load(coefs->a), b = load(coefs->b), c = load(coefs->c);
    const struct f32x16 mean = load(coefs->mean);
    FOR_PARTS (k)
        x.part[k] = a.part[k] * dy.part[k] - b.part[k] - c.part[k] * (x.part[k] - mean.part[k]);
    return x;
}

static void group_bwd_apply(float *diff_src, const float *diff_dst, const float *src,
                            const struct dt_norm_coefs *k, bool past_caches, size_t n)
{
    const bool streams = past_caches && is_aligned(diff_src);
    const struct dt_norm_coefs coefs = *k;
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        PREFETCH(diff_dst + i);
        PREFETCH(src + i);
        put(diff_src + i, group_bwd_group(load(diff_dst + i), load(src + i), &coefs), streams);
    }
    if (i < n) {
        float d[LANES], x[LANES];
        load_rest(d, diff_dst + i, n - i);
        load_rest(x, src + i, n - i);
        store(x, group_bwd_group(load(d), load(x), &coefs));
        memcpy(diff_src + i, x, (n - i) * sizeof(float));
    }
    if (streams)
        stream_end();
}

const struct dt_norm_loops dt_norm_rows = {moments, apply, bwd_sums, bwd_apply, group_bwd_apply};
