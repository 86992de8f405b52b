/* The inner loops of batch and group normalisation. */
#include "cpu/norm_loops.h"

#include "cpu/activation_kinds.h"
#include "cpu/simd.h"

_Static_assert((int)LANES == (int)F32X16, "a group has one value per lane");

/* 8 KiB ahead: the loops are memory-bound, hardware prefetching stops at the end of every page, and
 * a row is usually followed by the next one. */
#define PREFETCH(p) __builtin_prefetch((p) + 8192 / sizeof(real))

/* Groups that are summed in fp32, then in fp64. */
enum { CHUNK = 256 };

#define INLINE static inline __attribute__((always_inline))

INLINE struct f32x16 get_part(const real *src, size_t n)
{
    return n == LANES ? get(src) : get_rest(src, n);
}

INLINE void put_part(real *dst, struct f32x16 x, bool streams, size_t n)
{
    if (n == LANES)
        put(dst, x, streams);
    else
        put_rest(dst, x, n);
}

/* Calls GROUP(first value, word of a mask, column, values) for all groups of a row. Those of a row
 * of adjacent ones have constants, so that the compiler keeps their coefficients in registers. */
#define FOR_GROUPS(row, GROUP)                                                        \
    if ((row)->columns == 1 && (row)->step == LANES)                                  \
        for (size_t i = 0; i < (row)->pixels; i++)                                    \
            GROUP(i *LANES, i, 0, LANES);                                             \
    else                                                                              \
        for (size_t i = 0; i < (row)->pixels; i++)                                    \
            for (size_t c = 0; c < (size_t)(row)->columns; c++)                       \
                GROUP(i *(row)->step + c * LANES, i * (size_t)(row)->words + c, c,    \
                      c + 1 < (size_t)(row)->columns ? LANES : (size_t)(row)->width); \
    if ((row)->rest)                                                                  \
    GROUP((row)->pixels *(row)->step, (row)->pixels, 0, (row)->rest)

/* Stores past the caches need whole lines. */
static inline bool may_stream(const struct dt_norm_row *row, const real *dst)
{
    return is_aligned(dst) && row->step % LANES == 0 && row->step == (size_t)row->columns * LANES;
}

static inline void add(struct f32x16 *sum, struct f32x16 x)
{
    FOR_PARTS (k)
        sum->part[k] += x.part[k];
}

INLINE void add_deviation(struct f32x16 *square, struct f32x16 *rest, struct f32x16 x,
                          struct f32x16 mean)
{
    FOR_PARTS (k) {
        const vec d = x.part[k] - mean.part[k];
        square->part[k] += d * d;
        rest->part[k] += d;
    }
}

/* Adds the moments of a chunk of `n` full groups to those of `count` groups before it. The second
 * pass corrects the rounding of the mean of the first. */
INLINE void add_chunk(double mean[LANES], double m2[LANES], double count, const real *src, size_t n,
                      size_t step, size_t width)
{
    struct f32x16 sum[4] = {0}, square[2] = {0}, rest[2] = {0};
    float chunk_mean[LANES], squares[LANES], rests[LANES];
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        UNROLLED for (size_t j = 0; j < 4; j++)
        {
            PREFETCH(src + (i + j) * step);
            add(&sum[j], get_part(src + (i + j) * step, width));
        }
    }
    for (; i < n; i++)
        add(&sum[0], get_part(src + i * step, width));
    add(&sum[0], sum[1]);
    add(&sum[2], sum[3]);
    add(&sum[0], sum[2]);
    FOR_PARTS (k)
        sum[0].part[k] *= 1.0f / (float)n;

    for (i = 0; i + 2 <= n; i += 2) {
        UNROLLED for (size_t j = 0; j < 2; j++)
            add_deviation(&square[j], &rest[j], get_part(src + (i + j) * step, width), sum[0]);
    }
    if (i < n)
        add_deviation(&square[0], &rest[0], get_part(src + i * step, width), sum[0]);
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

static void moments(float mean[LANES], float m2[LANES], const real *src,
                    const struct dt_norm_row *row)
{
    double m[LANES] = {0}, s[LANES] = {0};
    const size_t n = row->pixels;

    for (size_t first = 0; first < n; first += CHUNK) {
        const size_t count = n - first < CHUNK ? n - first : CHUNK;
        const real *from = src + first * row->step;
        if (row->step == LANES)
            add_chunk(m, s, (double)first, from, count, LANES, LANES);
        else
            add_chunk(m, s, (double)first, from, count, row->step, (size_t)row->width);
    }
    for (size_t lane = 0; lane < row->rest; lane++) {
        const double x = (double)from_real(src[n * row->step + lane]), delta = x - m[lane];
        m[lane] += delta / (double)(n + 1);
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

/* A group of n values; the residual may be NULL. */
CONSTANT_KIND void apply_group(enum dt_activation kind, real *dst, uint16_t *mask, const real *src,
                               const real *residual, const struct dt_norm_coefs *k, bool relu,
                               bool streams, size_t n)
{
    const struct f32x16 a = load(k->a), b = load(k->b);
    struct f32x16 y = get_part(src, n);
    PREFETCH(src);
    FOR_PARTS (part)
        y.part[part] = y.part[part] * a.part[part] + b.part[part];
    if (residual) {
        PREFETCH(residual);
        add(&y, get_part(residual, n));
    }
    if (mask)
        *mask = active(y);
    if (relu)
        FOR_PARTS (part)
            y.part[part] = (vec)((ivec)y.part[part] & ~(y.part[part] <= 0));
    put_part(dst, activate(kind, y), streams, n);
}

CONSTANT_KIND void apply_as(enum dt_activation kind, real *dst, uint16_t *mask, const real *src,
                            const real *residual, const struct dt_norm_coefs *k, bool relu,
                            bool past_caches, const struct dt_norm_row *row)
{
    const bool streams = past_caches && may_stream(row, dst);
    const struct dt_norm_coefs first = *k;

#define GROUP(at, word, column, n)                                                                \
    apply_group(kind, dst + (at), mask ? mask + (word) : NULL, src + (at),                        \
                residual ? residual + (at) : NULL, (column) ? &k[column] : &first, relu, streams, \
                n)
    FOR_GROUPS(row, GROUP);
#undef GROUP
    if (streams)
        stream_end();
}

static void apply(real *dst, uint16_t *mask, const real *src, const real *residual,
                  const struct dt_norm_coefs *k, bool relu, enum dt_activation activation,
                  bool past_caches, const struct dt_norm_row *row)
{
#define LOOP_OF(kind) apply_as(kind, dst, mask, src, residual, k, relu, past_caches, row)
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

/* n values of the gradient of dst: one term, or the sum of two. */
INLINE struct f32x16 get_diff(const real *diff_dst, const real *diff_dst2, const uint16_t *mask,
                              size_t n)
{
    struct f32x16 dy = get_part(diff_dst, n);
    if (diff_dst2)
        add(&dy, get_part(diff_dst2, n));
    return mask ? keep_active(dy, *mask) : dy;
}

CONSTANT_KIND void bwd_sums_as(enum dt_activation kind, float sum[LANES], float product[LANES],
                               const real *diff_dst, const real *diff_dst2, const real *src,
                               const uint16_t *mask, const struct dt_norm_coefs *forward,
                               const float mean[LANES], const struct dt_norm_row *row)
{
    const struct f32x16 m = load(mean);
    const size_t n_groups = row->pixels + (row->rest > 0);
    double s1[LANES] = {0}, s2[LANES] = {0};

    for (size_t first = 0; first < n_groups; first += CHUNK) {
        struct dt_norm_row part = *row;
        struct f32x16 g1 = {0}, g2 = {0};
        const size_t begin = first * row->step, left = row->pixels - first;
        part.pixels = left < CHUNK ? left : CHUNK;
        part.rest = n_groups - first <= CHUNK ? row->rest : 0;
#define GROUP(at, word, column, n)                                                 \
    do {                                                                           \
        const size_t from = begin + (at);                                          \
        PREFETCH(diff_dst + from);                                                 \
        PREFETCH(src + from);                                                      \
        if (diff_dst2)                                                             \
            PREFETCH(diff_dst2 + from);                                            \
        const struct f32x16 x = get_part(src + from, n);                           \
        const struct f32x16 dy =                                                   \
            get_diff(diff_dst + from, diff_dst2 ? diff_dst2 + from : NULL,         \
                     mask ? mask + first * (size_t)row->words + (word) : NULL, n); \
        add_products(&g1, &g2, through_activation(kind, dy, x, forward), x, m);    \
    } while (0)
        FOR_GROUPS(&part, GROUP);
#undef GROUP
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
                     const float mean[LANES], const struct dt_norm_row *row)
{
#define LOOP_OF(kind) \
    bwd_sums_as(kind, sum, product, diff_dst, diff_dst2, src, mask, forward, mean, row)
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
                                bool past_caches, const struct dt_norm_row *row)
{
    const bool streams = past_caches && may_stream(row, diff_src) && may_stream(row, diff_residual);
    const struct dt_norm_coefs first = *k;

#define GROUP(at, word, column, n)                                                            \
    do {                                                                                      \
        PREFETCH(diff_dst + (at));                                                            \
        PREFETCH(src + (at));                                                                 \
        const struct f32x16 x = get_part(src + (at), n);                                      \
        const struct f32x16 dy =                                                              \
            through_activation(kind,                                                          \
                               get_diff(diff_dst + (at), diff_dst2 ? diff_dst2 + (at) : NULL, \
                                        mask ? mask + (word) : NULL, n),                      \
                               x, forward + (column));                                        \
        struct f32x16 dx = bwd_group(dy, x, (column) ? &k[column] : &first);                  \
        if (addend) {                                                                         \
            PREFETCH(addend + (at));                                                          \
            add(&dx, get_part(addend + (at), n));                                             \
        }                                                                                     \
        put_part(diff_src + (at), dx, streams, n);                                            \
        if (diff_residual)                                                                    \
            put_part(diff_residual + (at), dy, streams, n);                                   \
    } while (0)
    FOR_GROUPS(row, GROUP);
#undef GROUP
    if (streams)
        stream_end();
}

static void bwd_apply(real *diff_src, real *diff_residual, const real *addend, const real *diff_dst,
                      const real *diff_dst2, const real *src, const uint16_t *mask,
                      enum dt_activation activation, const struct dt_norm_coefs *forward,
                      const struct dt_norm_coefs *k, bool past_caches,
                      const struct dt_norm_row *row)
{
#define LOOP_OF(kind)                                                                            \
    bwd_apply_as(kind, diff_src, diff_residual, addend, diff_dst, diff_dst2, src, mask, forward, \
                 k, past_caches, row)
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
                            const struct dt_norm_coefs *k, bool past_caches,
                            const struct dt_norm_row *row)
{
    const bool streams = past_caches && may_stream(row, diff_src);
    const struct dt_norm_coefs first = *k;

#define GROUP(at, word, column, n)                                                      \
    do {                                                                                \
        PREFETCH(diff_dst + (at));                                                      \
        PREFETCH(src + (at));                                                           \
        put_part(diff_src + (at),                                                       \
                 group_bwd_group(get_part(diff_dst + (at), n), get_part(src + (at), n), \
                                 (column) ? &k[column] : &first),                       \
                 streams, n);                                                           \
    } while (0)
    FOR_GROUPS(row, GROUP);
#undef GROUP
    if (streams)
        stream_end();
}

const struct dt_norm_loops dt_norm_rows = {moments, apply, bwd_sums, bwd_apply, group_bwd_apply};
