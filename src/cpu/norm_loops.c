/* The inner loops of batch and group normalisation. */
#include "cpu/norm_loops.h"

#include "cpu/activation_kinds.h"
#include "cpu/simd.h"

_Static_assert((int)LANES == (int)F32X16, "a group has one value per lane");

/* 8 KiB ahead: the loops are memory-bound, hardware prefetching stops at the end of every page, and
 * a row is usually followed by the next one. */
#define PREFETCH(p) __builtin_prefetch((p) + 8192 / sizeof(real))

/* Values are summed in fp32 over a chunk that stays in the L1 cache, then in fp64. */
enum { CHUNK = 256 * LANES };

static inline void add(struct f32x16 *sum, struct f32x16 x)
{
    FOR_PARTS (k)
        sum->part[k] += x.part[k];
}

static inline void add_deviation(struct f32x16 *square, struct f32x16 *rest, const real *src,
                                 struct f32x16 mean)
{
    const struct f32x16 x = get(src);
    FOR_PARTS (k) {
        const vec d = x.part[k] - mean.part[k];
        square->part[k] += d * d;
        rest->part[k] += d;
    }
}

/* Adds the moments of a chunk of `n` full groups to those of `count` groups before it. The second
 * pass corrects the rounding of the mean of the first. */
static void add_chunk(double mean[LANES], double m2[LANES], double count, const real *src, size_t n)
{
    struct f32x16 sum[4] = {0}, square[2] = {0}, rest[2] = {0};
    float chunk_mean[LANES], squares[LANES], rests[LANES];
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        UNROLLED for (size_t j = 0; j < 4; j++)
        {
            PREFETCH(src + (i + j) * LANES);
            add(&sum[j], get(src + (i + j) * LANES));
        }
    }
    for (; i < n; i++)
        add(&sum[0], get(src + i * LANES));
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

static void moments(float mean[LANES], float m2[LANES], const real *src, size_t n)
{
    double m[LANES] = {0}, s[LANES] = {0};
    size_t n_full = n / LANES * LANES;

    for (size_t first = 0; first < n_full; first += CHUNK) {
        size_t count = n_full - first < CHUNK ? n_full - first : CHUNK;
        add_chunk(m, s, (double)(first / LANES), src + first, count / LANES);
    }
    for (size_t lane = 0; lane < n - n_full; lane++) {
        const double x = (double)from_real(src[n_full + lane]), delta = x - m[lane];
        m[lane] += delta / (double)(n_full / LANES + 1);
        s[lane] += delta * (x - m[lane]);
    }
    for (int lane = 0; lane < LANES; lane++) {
        mean[lane] = (float)m[lane];
        m2[lane] = (float)s[lane];
    }
}

/* --- Activations --- */

CONSTANT_KIND struct f32x16 activate(enum dt_activation kind, struct f32x16 x)
{
    float value[LANES];
    store(value, x);
#pragma omp simd
    for (int i = 0; i < LANES; i++)
        value[i] = dt_activate(kind, value[i]);
    return load(value);
}

/* dy times the slope at a * x + b. */
CONSTANT_KIND struct f32x16 through_activation(enum dt_activation kind, struct f32x16 dy,
                                               struct f32x16 x, const struct dt_norm_coefs *forward)
{
    if (kind == DT_NO_ACTIVATION)
        return dy;
    const struct f32x16 a = load(forward->a), b = load(forward->b);
    float value[LANES];
    FOR_PARTS (k)
        x.part[k] = x.part[k] * a.part[k] + b.part[k];
    store(value, x);
#pragma omp simd
    for (int i = 0; i < LANES; i++)
        value[i] = dt_activation_slope(kind, value[i]);
    x = load(value);
    FOR_PARTS (k)
        dy.part[k] *= x.part[k];
    return dy;
}

/* The residual may be NULL. */
static inline struct f32x16 apply_group(uint16_t *mask, struct f32x16 y,
                                        const struct f32x16 *residual, struct f32x16 a,
                                        struct f32x16 b, bool relu)
{
    FOR_PARTS (k)
        y.part[k] = y.part[k] * a.part[k] + b.part[k];
    if (residual)
        add(&y, *residual);
    if (mask)
        *mask = active(y);
    if (relu)
        FOR_PARTS (k)
            y.part[k] = (vec)((ivec)y.part[k] & ~(y.part[k] <= 0));
    return y;
}

CONSTANT_KIND void apply_as(enum dt_activation kind, real *dst, uint16_t *mask, const real *src,
                            const real *residual, const struct dt_norm_coefs *k, bool relu,
                            bool past_caches, size_t n)
{
    const struct f32x16 a = load(k->a), b = load(k->b);
    const bool streams = past_caches && is_aligned(dst);
    struct f32x16 r = {0};
    size_t i = 0, group = 0;

    for (; i + LANES <= n; i += LANES, group++) {
        PREFETCH(src + i);
        if (residual) {
            PREFETCH(residual + i);
            r = get(residual + i);
        }
        const struct f32x16 y =
            apply_group(mask ? mask + group : NULL, get(src + i), residual ? &r : NULL, a, b, relu);
        put(dst + i, activate(kind, y), streams);
    }
    if (i < n) {
        if (residual)
            r = get_rest(residual + i, n - i);
        const struct f32x16 y = apply_group(mask ? mask + group : NULL, get_rest(src + i, n - i),
                                            residual ? &r : NULL, a, b, relu);
        put_rest(dst + i, activate(kind, y), n - i);
    }
    if (streams)
        stream_end();
}

static void apply(real *dst, uint16_t *mask, const real *src, const real *residual,
                  const struct dt_norm_coefs *k, bool relu, enum dt_activation activation,
                  bool past_caches, size_t n)
{
#define LOOP_OF(kind) apply_as(kind, dst, mask, src, residual, k, relu, past_caches, n)
    FOR_KIND(activation)
#undef LOOP_OF
}

static inline void add_products(struct f32x16 *sum, struct f32x16 *product, struct f32x16 dy,
                                struct f32x16 x, struct f32x16 mean)
{
    FOR_PARTS (k) {
        sum->part[k] += dy.part[k];
        product->part[k] += dy.part[k] * (x.part[k] - mean.part[k]);
    }
}

/* The gradient of dst: one term, or the sum of two. */
static inline struct f32x16 get_diff(const real *diff_dst, const real *diff_dst2,
                                     const uint16_t *mask, size_t at)
{
    struct f32x16 dy = get(diff_dst + at);
    if (diff_dst2)
        add(&dy, get(diff_dst2 + at));
    return mask ? keep_active(dy, mask[at / LANES]) : dy;
}

static inline struct f32x16 get_diff_rest(const real *diff_dst, const real *diff_dst2,
                                          const uint16_t *mask, size_t at, size_t n)
{
    struct f32x16 dy = get_rest(diff_dst + at, n);
    if (diff_dst2)
        add(&dy, get_rest(diff_dst2 + at, n));
    return mask ? keep_active(dy, mask[at / LANES]) : dy;
}

CONSTANT_KIND void bwd_sums_as(enum dt_activation kind, float sum[LANES], float product[LANES],
                               const real *diff_dst, const real *diff_dst2, const real *src,
                               const uint16_t *mask, const struct dt_norm_coefs *forward,
                               const float mean[LANES], size_t n)
{
    const struct f32x16 m = load(mean);
    double s1[LANES] = {0}, s2[LANES] = {0};

    for (size_t first = 0; first < n; first += CHUNK) {
        size_t end = n - first < CHUNK ? n : first + CHUNK, i = first;
        struct f32x16 g1 = {0}, g2 = {0};
        for (; i + LANES <= end; i += LANES) {
            PREFETCH(diff_dst + i);
            PREFETCH(src + i);
            if (diff_dst2)
                PREFETCH(diff_dst2 + i);
            const struct f32x16 x = get(src + i), dy = get_diff(diff_dst, diff_dst2, mask, i);
            add_products(&g1, &g2, through_activation(kind, dy, x, forward), x, m);
        }
        if (i < end) {
            const struct f32x16 x = get_rest(src + i, end - i);
            const struct f32x16 dy = get_diff_rest(diff_dst, diff_dst2, mask, i, end - i);
            add_products(&g1, &g2, through_activation(kind, dy, x, forward), x, m);
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

static void bwd_sums(float sum[LANES], float product[LANES], const real *diff_dst,
                     const real *diff_dst2, const real *src, const uint16_t *mask,
                     enum dt_activation activation, const struct dt_norm_coefs *forward,
                     const float mean[LANES], size_t n)
{
#define LOOP_OF(kind) \
    bwd_sums_as(kind, sum, product, diff_dst, diff_dst2, src, mask, forward, mean, n)
    FOR_KIND(activation)
#undef LOOP_OF
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

CONSTANT_KIND void bwd_apply_as(enum dt_activation kind, real *diff_src, real *diff_residual,
                                const real *addend, const real *diff_dst, const real *diff_dst2,
                                const real *src, const uint16_t *mask,
                                const struct dt_norm_coefs *forward, const struct dt_norm_coefs *k,
                                bool past_caches, size_t n)
{
    const bool streams = past_caches && is_aligned(diff_src) && is_aligned(diff_residual);
    const struct dt_norm_coefs coefs = *k;
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        PREFETCH(diff_dst + i);
        PREFETCH(src + i);
        const struct f32x16 x = get(src + i);
        const struct f32x16 dy =
            through_activation(kind, get_diff(diff_dst, diff_dst2, mask, i), x, forward);
        struct f32x16 dx = bwd_group(dy, x, &coefs);
        if (addend) {
            PREFETCH(addend + i);
            add(&dx, get(addend + i));
        }
        put(diff_src + i, dx, streams);
        if (diff_residual)
            put(diff_residual + i, dy, streams);
    }
    if (i < n) {
        const struct f32x16 x = get_rest(src + i, n - i);
        const struct f32x16 dy = through_activation(
            kind, get_diff_rest(diff_dst, diff_dst2, mask, i, n - i), x, forward);
        struct f32x16 dx = bwd_group(dy, x, &coefs);
        if (addend)
            add(&dx, get_rest(addend + i, n - i));
        put_rest(diff_src + i, dx, n - i);
        if (diff_residual)
            put_rest(diff_residual + i, dy, n - i);
    }
    if (streams)
        stream_end();
}

static void bwd_apply(real *diff_src, real *diff_residual, const real *addend, const real *diff_dst,
                      const real *diff_dst2, const real *src, const uint16_t *mask,
                      enum dt_activation activation, const struct dt_norm_coefs *forward,
                      const struct dt_norm_coefs *k, bool past_caches, size_t n)
{
#define LOOP_OF(kind)                                                                            \
    bwd_apply_as(kind, diff_src, diff_residual, addend, diff_dst, diff_dst2, src, mask, forward, \
                 k, past_caches, n)
    FOR_KIND(activation)
#undef LOOP_OF
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

static void group_bwd_apply(real *diff_src, const real *diff_dst, const real *src,
                            const struct dt_norm_coefs *k, bool past_caches, size_t n)
{
    const bool streams = past_caches && is_aligned(diff_src);
    const struct dt_norm_coefs coefs = *k;
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        PREFETCH(diff_dst + i);
        PREFETCH(src + i);
        put(diff_src + i, group_bwd_group(get(diff_dst + i), get(src + i), &coefs), streams);
    }
    if (i < n) {
        put_rest(diff_src + i,
                 group_bwd_group(get_rest(diff_dst + i, n - i), get_rest(src + i, n - i), &coefs),
                 n - i);
    }
    if (streams)
        stream_end();
}

const struct dt_norm_loops dt_norm_rows = {moments, apply, bwd_sums, bwd_apply, group_bwd_apply};
