/* The inner loops of batch and group normalisation. */
#include "cpu/norm_loops.h"

#include <string.h>

#include "cpu/activation_kinds.h"
#include "cpu/simd.h"

_Static_assert((int)LANES == (int)F32X16, "a group has one value per lane");

/* 8 KiB ahead: the loops are memory-bound, hardware prefetching stops at the end of every page, and
 * a row is usually followed by the next one. */
#define PREFETCH(p) __builtin_prefetch((p) + 8192 / sizeof(real))

/* Groups of a column that are summed in fp32, then in fp64; values of several columns that are read
 * twice. */
enum { CHUNK = 256, CACHED = 64 << 10 };

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

/* Adds the groups of so many pixels, which are `columns` groups each, the last of `width` values.
 */
INLINE void add_values(struct f32x16 *sum, const real *src, size_t pixels, size_t step,
                       size_t columns, size_t width)
{
    for (size_t i = 0; i < pixels; i++, src += step) {
        UNROLLED for (size_t c = 0; c < columns; c++)
        {
            PREFETCH(src + c * LANES);
            add(&sum[c], get_part(src + c * LANES, c + 1 < columns ? LANES : width));
        }
    }
}

INLINE void add_deviations(struct f32x16 *square, struct f32x16 *rest, const struct f32x16 *mean,
                           const real *src, size_t pixels, size_t step, size_t columns,
                           size_t width)
{
    for (size_t i = 0; i < pixels; i++, src += step) {
        UNROLLED for (size_t c = 0; c < columns; c++)
        {
            const struct f32x16 x = get_part(src + c * LANES, c + 1 < columns ? LANES : width);
            FOR_PARTS (k) {
                const vec d = x.part[k] - mean[c].part[k];
                square[c].part[k] += d * d;
                rest[c].part[k] += d;
            }
        }
    }
}

/* Adds the moments of n values per lane to those of `count` before them; `rest` corrects the
 * rounding of their mean. */
static void add_moments(double mean[LANES], double m2[LANES], double count, size_t n,
                        struct f32x16 own_mean, struct f32x16 square, struct f32x16 rest)
{
    float means[LANES], squares[LANES], rests[LANES];
    store(means, own_mean);
    store(squares, square);
    store(rests, rest);
    double inverse = 1 / (double)n, weight = (double)n / (count + (double)n);
    for (int lane = 0; lane < LANES; lane++) {
        double r = (double)rests[lane];
        double delta = (double)means[lane] + r * inverse - mean[lane];
        mean[lane] += delta * weight;
        m2[lane] += (double)squares[lane] - r * r * inverse + delta * delta * count * weight;
    }
}

static inline struct f32x16 times(struct f32x16 x, float factor)
{
    FOR_PARTS (k)
        x.part[k] *= factor;
    return x;
}

/* n adjacent groups, in several sums at a time. */
static void add_flat_chunk(double mean[LANES], double m2[LANES], double count, const real *src,
                           size_t n)
{
    struct f32x16 sum[4] = {0}, square[2] = {0}, rest[2] = {0};
    add_values(sum, src, n / 4, 4 * LANES, 4, LANES);
    add_values(sum, src + n / 4 * 4 * LANES, n % 4, LANES, 1, LANES);
    add(&sum[0], sum[1]);
    add(&sum[2], sum[3]);
    add(&sum[0], sum[2]);
    sum[0] = sum[1] = times(sum[0], 1.0f / (float)n);
    add_deviations(square, rest, sum, src, n / 2, 2 * LANES, 2, LANES);
    add_deviations(square, rest, sum, src + n / 2 * 2 * LANES, n % 2, LANES, 1, LANES);
    add(&square[0], square[1]);
    add(&rest[0], rest[1]);
    add_moments(mean, m2, count, n, sum[0], square[0], rest[0]);
}

static void add_chunk(double mean[][LANES], double m2[][LANES], double count, const real *src,
                      size_t n, const struct dt_norm_row *row)
{
    const size_t columns = (size_t)row->columns, width = (size_t)row->width;
    struct f32x16 sum[DT_NORM_STRIP], square[DT_NORM_STRIP], rest[DT_NORM_STRIP];
    for (size_t c = 0; c < columns; c++)
        sum[c] = square[c] = rest[c] = (struct f32x16){0};
    add_values(sum, src, n, row->step, columns, width);
    for (size_t c = 0; c < columns; c++)
        sum[c] = times(sum[c], 1.0f / (float)n);
    add_deviations(square, rest, sum, src, n, row->step, columns, width);
    for (size_t c = 0; c < columns; c++)
        add_moments(mean[c], m2[c], count, n, sum[c], square[c], rest[c]);
}

static void moments(struct dt_norm_sums *sums, const real *src, const struct dt_norm_row *row)
{
    double m[DT_NORM_STRIP][LANES], s[DT_NORM_STRIP][LANES];
    const size_t n = row->pixels, columns = (size_t)row->columns;
    const size_t fit = CACHED / (columns * LANES * sizeof(real));
    const size_t chunk = row->step == LANES || fit > CHUNK ? CHUNK : fit;

    memset(m, 0, columns * sizeof *m);
    memset(s, 0, columns * sizeof *s);
    for (size_t first = 0; first < n; first += chunk) {
        const size_t count = n - first < chunk ? n - first : chunk;
        const real *from = src + first * row->step;
        if (row->step == LANES)
            add_flat_chunk(m[0], s[0], (double)first, from, count);
        else
            add_chunk(m, s, (double)first, from, count, row);
    }
    for (size_t lane = 0; lane < row->rest; lane++) {
        const double x = (double)from_real(src[n * row->step + lane]), delta = x - m[0][lane];
        m[0][lane] += delta / (double)(n + 1);
        s[0][lane] += delta * (x - m[0][lane]);
    }
    for (size_t c = 0; c < columns; c++)
        for (int lane = 0; lane < LANES; lane++) {
            sums[c].first[lane] = (float)m[c][lane];
            sums[c].second[lane] = (float)s[c][lane];
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
                               const real *residual, const struct dt_norm_coefs *k, bool streams,
                               size_t n)
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
    put_part(dst, activate(kind, y), streams, n);
}

CONSTANT_KIND void apply_as(enum dt_activation kind, real *dst, uint16_t *mask, const real *src,
                            const real *residual, const struct dt_norm_coefs *k, bool past_caches,
                            const struct dt_norm_row *row)
{
    const bool streams = past_caches && may_stream(row, dst);
    const struct dt_norm_coefs first = *k;

#define GROUP(at, word, column, n)                                         \
    apply_group(kind, dst + (at), mask ? mask + (word) : NULL, src + (at), \
                residual ? residual + (at) : NULL, (column) ? &k[column] : &first, streams, n)
    FOR_GROUPS(row, GROUP);
#undef GROUP
    if (streams)
        stream_end();
}

static void apply(real *dst, uint16_t *mask, const real *src, const real *residual,
                  const struct dt_norm_coefs *k, enum dt_activation activation, bool past_caches,
                  const struct dt_norm_row *row)
{
#define LOOP_OF(kind) apply_as(kind, dst, mask, src, residual, k, past_caches, row)
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

/* The sources of the sums of a chunk. */
struct diffs {
    const real *diff_dst, *diff_dst2, *src;
    const uint16_t *mask;
    const struct dt_norm_coefs *forward, *k;
};

CONSTANT_KIND void add_diffs(enum dt_activation kind, struct f32x16 *sum, struct f32x16 *product,
                             const struct diffs *d, size_t at, const uint16_t *mask, size_t columns,
                             size_t width)
{
    UNROLLED for (size_t c = 0; c < columns; c++, at += LANES)
    {
        const size_t n = c + 1 < columns ? LANES : width;
        PREFETCH(d->diff_dst + at);
        PREFETCH(d->src + at);
        if (d->diff_dst2)
            PREFETCH(d->diff_dst2 + at);
        const struct f32x16 x = get_part(d->src + at, n);
        const struct f32x16 dy = get_diff(d->diff_dst + at, d->diff_dst2 ? d->diff_dst2 + at : NULL,
                                          mask ? mask + c : NULL, n);
        add_products(&sum[c], &product[c], through_activation(kind, dy, x, d->forward + c), x,
                     load(d->k[c].mean));
    }
}

/* Pixels first .. end, and the rest if it is among them. */
CONSTANT_KIND void add_diff_chunk(enum dt_activation kind, struct f32x16 *sum,
                                  struct f32x16 *product, const struct diffs *d, size_t first,
                                  size_t end, const struct dt_norm_row *row)
{
    const size_t n = end < row->pixels ? end : row->pixels, words = (size_t)row->words;
    if (row->columns == 1 && row->step == LANES) {
        struct f32x16 own_sum[1] = {0}, own_product[1] = {0};
        const struct dt_norm_coefs k = *d->k;
        struct diffs own = *d;
        own.k = &k;
        for (size_t i = first; i < n; i++)
            add_diffs(kind, own_sum, own_product, &own, i * LANES, d->mask ? d->mask + i : NULL, 1,
                      LANES);
        if (end > n)
            add_diffs(kind, own_sum, own_product, &own, n * LANES, d->mask ? d->mask + n : NULL, 1,
                      row->rest);
        *sum = *own_sum;
        *product = *own_product;
        return;
    }
    for (size_t c = 0; c < (size_t)row->columns; c++)
        sum[c] = product[c] = (struct f32x16){0};
    for (size_t i = first; i < n; i++)
        add_diffs(kind, sum, product, d, i * row->step, d->mask ? d->mask + i * words : NULL,
                  (size_t)row->columns, (size_t)row->width);
}

CONSTANT_KIND void bwd_sums_as(enum dt_activation kind, struct dt_norm_sums *sums,
                               const struct diffs *d, const struct dt_norm_row *row)
{
    const size_t n_groups = row->pixels + (row->rest > 0), columns = (size_t)row->columns;
    double s[DT_NORM_STRIP][2][LANES];

    memset(s, 0, columns * sizeof *s);
    for (size_t first = 0; first < n_groups; first += CHUNK) {
        struct f32x16 sum[DT_NORM_STRIP], product[DT_NORM_STRIP];
        const size_t end = n_groups - first < CHUNK ? n_groups : first + CHUNK;
        add_diff_chunk(kind, sum, product, d, first, end, row);
        for (size_t c = 0; c < columns; c++) {
            store(sums[c].first, sum[c]);
            store(sums[c].second, product[c]);
            for (int lane = 0; lane < LANES; lane++) {
                s[c][0][lane] += (double)sums[c].first[lane];
                s[c][1][lane] += (double)sums[c].second[lane];
            }
        }
    }
    for (size_t c = 0; c < columns; c++)
        for (int lane = 0; lane < LANES; lane++) {
            sums[c].first[lane] = (float)s[c][0][lane];
            sums[c].second[lane] = (float)s[c][1][lane];
        }
}

static void bwd_sums(struct dt_norm_sums *sums, const real *diff_dst, const real *diff_dst2,
                     const real *src, const uint16_t *mask, enum dt_activation activation,
                     const struct dt_norm_coefs *forward, const struct dt_norm_coefs *k,
                     const struct dt_norm_row *row)
{
    const struct diffs d = {diff_dst, diff_dst2, src, mask, forward, k};
#define LOOP_OF(kind) (kind) == DT_RELU ? (void)0 : bwd_sums_as(kind, sums, &d, row)
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
    (kind) == DT_RELU ? (void)0                                                                  \
                      : bwd_apply_as(kind, diff_src, diff_residual, addend, diff_dst, diff_dst2, \
                                     src, mask, forward, k, past_caches, row)
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
