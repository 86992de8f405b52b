/* Layer norm: mean and deviation of the channels of each pixel, in any row format.
 *
 * A group of 16 adjacent values of a row is one pixel of a block of 16 channels, two pixels of 8,
 * or 16 pixels of one. The rows of an image are processed in chunks of a few groups each, so small
 * that the same part of all its rows stays in the cache from the sums to the result. A task is so
 * many chunks of an image that there are a few hundred tasks, whatever the number of threads: their
 * sums for the gradients of weight and bias are added up in order. The first pass over a chunk
 * prefetches the next. */
#include <math.h>

#include "cpu/norm_block.h"
#include "cpu/simd.h"

enum { CHUNK_BYTES = 48 << 10, MIN_GROUPS = 4, MAX_GROUPS = 64, TASKS = 256 };

/* One value per value of a row in a chunk; those of one pixel are equal. */
struct pixels {
    _Alignas(64) float at[MAX_GROUPS * LANES];
};

/* Arguments of one run. */
struct layer_norm {
    const struct dt_cpu_rows *rows;
    size_t chunk;                /* values of a block */
    size_t step;                 /* from one group of a block to the next */
    int chunks, per_task, tasks; /* chunks of an image, of a task; tasks of an image */
    struct dt_norm_coefs *coefs; /* of each block: a scale, b shift, c 1 or, in the padding, 0 */
    float *sums;                 /* of each task: of diff_dst and of its products, by channel */
    const real *src, *diff_dst;
    real *dst;
    float *mean, *inverse_std;
    float eps;
    bool past_caches;
};

/* The part of a thread: values [first, first + n) of the rows of an image. */
struct part {
    int image;
    size_t first, n;
    float *sums; /* of the task */
    struct pixels mean, inverse, m[2];
};

/* Index of value i of a block, in memory whose groups are `step` apart. */
static inline size_t place(const struct layer_norm *ln, size_t i)
{
    return i / LANES * ln->step;
}

static size_t offset_of(const struct layer_norm *ln, const struct part *p, int block)
{
    return dt_cpu_block_offset(ln->rows, ln->rows->n_blocks, p->image, block) + place(ln, p->first);
}

static inline struct f32x16 get_group(const struct layer_norm *ln, const real *src, size_t i,
                                      size_t n)
{
    src += place(ln, i);
    return n - i < LANES ? get_rest(src, n - i) : get(src);
}

static inline void put_group(const struct layer_norm *ln, real *dst, size_t i, size_t n,
                             struct f32x16 x, bool streams)
{
    dst += place(ln, i);
    if (n - i < LANES)
        put_rest(dst, x, n - i);
    else
        put(dst, x, streams);
}

/* Lane i gets its sum with lane i ^ distance. */
static inline struct f32x16 add_swapped(struct f32x16 x, int distance)
{
    static const int32_t LANE[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const ivec from = (ivec)LOAD(LANE) ^ distance;
    struct f32x16 sum;
    FOR_PARTS (k)
        sum.part[k] = x.part[k] + (distance < WIDTH ? __builtin_shuffle(x.part[k], from)
                                                    : x.part[k ^ (distance / WIDTH)]);
    return sum;
}

/* All lanes of the group's pixels get the value of the first. */
static inline void spread(float group[LANES], int block)
{
    for (int first = 0; first < LANES; first += block)
        for (int lane = 1; lane < block; lane++)
            group[first + lane] = group[first];
}

static void spread_pixels(float group[LANES], int block)
{
    if (block == 16)
        spread(group, 16);
    else if (block == 8)
        spread(group, 8);
}

/* From sums over blocks to means over the channels of each pixel. */
static void fold_pixels(struct pixels *p, const struct layer_norm *ln, size_t n)
{
    const float share = 1.0f / (float)ln->rows->channels;
    for (size_t i = 0; i < n; i += LANES) {
        struct f32x16 x = load(p->at + i);
        if (ln->rows->block == 16)
            x = add_swapped(x, 8);
        if (ln->rows->block > 1)
            x = add_swapped(add_swapped(add_swapped(x, 4), 2), 1);
        FOR_PARTS (k)
            x.part[k] *= share;
        store(p->at + i, x);
    }
}

/* --- Forward --- */

static void clear(const struct part *p, struct pixels *pixels)
{
    memset(pixels, 0, dt_n_groups(p->n) * LANES * sizeof(float));
}

static void make_means(const struct layer_norm *ln, struct part *p)
{
    struct pixels *mean = &p->mean;
    clear(p, mean);
    for (int block = 0; block < ln->rows->n_blocks; block++) {
        const real *src = ln->src + offset_of(ln, p, block);
        for (size_t i = 0; i < p->n; i += LANES) {
            __builtin_prefetch(src + place(ln, i + ln->chunk));
            const struct f32x16 x = get_group(ln, src, i, p->n);
            struct f32x16 sum = load(mean->at + i);
            FOR_PARTS (k)
                sum.part[k] += x.part[k];
            store(mean->at + i, sum);
        }
    }
    fold_pixels(mean, ln, p->n);
}

static void make_deviations(const struct layer_norm *ln, struct part *p)
{
    struct pixels *mean = &p->mean, *inverse = &p->inverse;
    clear(p, inverse);
    for (int block = 0; block < ln->rows->n_blocks; block++) {
        const real *src = ln->src + offset_of(ln, p, block);
        const struct f32x16 valid = load(ln->coefs[block].c);
        for (size_t i = 0; i < p->n; i += LANES) {
            const struct f32x16 x = get_group(ln, src, i, p->n), m = load(mean->at + i);
            struct f32x16 square = load(inverse->at + i);
            FOR_PARTS (k) {
                const vec d = (x.part[k] - m.part[k]) * valid.part[k];
                square.part[k] += d * d;
            }
            store(inverse->at + i, square);
        }
    }
    fold_pixels(inverse, ln, p->n);
    for (size_t i = 0; i < p->n; i += LANES) {
        for (int lane = 0; lane < LANES; lane += ln->rows->block)
            inverse->at[i + lane] = 1 / sqrtf(inverse->at[i + lane] + ln->eps);
        spread_pixels(inverse->at + i, ln->rows->block);
    }
}

static void forward_part(const struct layer_norm *ln, struct part *p)
{
    make_means(ln, p);
    make_deviations(ln, p);
    for (int block = 0; block < ln->rows->n_blocks; block++) {
        const real *src = ln->src + offset_of(ln, p, block);
        real *dst = ln->dst + offset_of(ln, p, block);
        const struct f32x16 a = load(ln->coefs[block].a), b = load(ln->coefs[block].b);
        const bool streams = ln->past_caches && is_aligned(dst);
        for (size_t i = 0; i < p->n; i += LANES) {
            const struct f32x16 m = load(p->mean.at + i), inv = load(p->inverse.at + i);
            struct f32x16 x = get_group(ln, src, i, p->n);
            FOR_PARTS (k)
                x.part[k] = (x.part[k] - m.part[k]) * inv.part[k] * a.part[k] + b.part[k];
            put_group(ln, dst, i, p->n, x, streams);
        }
    }
    const size_t block = (size_t)ln->rows->block;
    const size_t pixel = ((size_t)p->image * dt_cpu_block_elements(ln->rows) + p->first) / block;
    for (size_t i = 0; i < p->n / block && ln->mean; i++) {
        ln->mean[pixel + i] = p->mean.at[i * block];
        ln->inverse_std[pixel + i] = p->inverse.at[i * block];
    }
}

/* --- Backward: with x = (src - mean) * inverse_std, and means over the channels,
 * diff_src = (scale * dy - mean(scale * dy) - x * mean(scale * dy * x)) * inverse_std. --- */

static void load_pixels(const struct layer_norm *ln, const struct part *p, struct pixels *to,
                        const float *from)
{
    const size_t block = (size_t)ln->rows->block;
    const size_t pixel = ((size_t)p->image * dt_cpu_block_elements(ln->rows) + p->first) / block;
    clear(p, to);
    for (size_t i = 0; i < p->n / block; i++)
        to->at[i * block] = from[pixel + i];
    for (size_t i = 0; i < p->n; i += LANES)
        spread_pixels(to->at + i, ln->rows->block);
}

static void make_bwd_means(const struct layer_norm *ln, struct part *p)
{
    const int block = ln->rows->block, n_channels = ln->rows->n_blocks * block;
    struct pixels *m = p->m;
    clear(p, &m[0]);
    clear(p, &m[1]);
    for (int b = 0; b < ln->rows->n_blocks; b++) {
        const real *src = ln->src + offset_of(ln, p, b), *diff = ln->diff_dst + (src - ln->src);
        const struct f32x16 a = load(ln->coefs[b].a);
        struct f32x16 sum = {0}, product = {0};
        float lanes[2][LANES];
        for (size_t i = 0; i < p->n; i += LANES) {
            __builtin_prefetch(src + place(ln, i + ln->chunk));
            __builtin_prefetch(diff + place(ln, i + ln->chunk));
            const struct f32x16 x = get_group(ln, src, i, p->n), dy = get_group(ln, diff, i, p->n);
            const struct f32x16 mu = load(p->mean.at + i), inv = load(p->inverse.at + i);
            struct f32x16 s1 = load(m[0].at + i), s2 = load(m[1].at + i);
            FOR_PARTS (k) {
                const vec xdy = dy.part[k] * ((x.part[k] - mu.part[k]) * inv.part[k]);
                sum.part[k] += dy.part[k];
                product.part[k] += xdy;
                s1.part[k] += a.part[k] * dy.part[k];
                s2.part[k] += a.part[k] * xdy;
            }
            store(m[0].at + i, s1);
            store(m[1].at + i, s2);
        }
        store(lanes[0], sum);
        store(lanes[1], product);
        for (int lane = 0; lane < LANES; lane++) {
            p->sums[b * block + lane % block] += lanes[0][lane];
            p->sums[n_channels + b * block + lane % block] += lanes[1][lane];
        }
    }
    fold_pixels(&m[0], ln, p->n);
    fold_pixels(&m[1], ln, p->n);
}

static void bwd_part(const struct layer_norm *ln, struct part *p)
{
    load_pixels(ln, p, &p->mean, ln->mean);
    load_pixels(ln, p, &p->inverse, ln->inverse_std);
    make_bwd_means(ln, p);
    for (int b = 0; b < ln->rows->n_blocks; b++) {
        const size_t at = offset_of(ln, p, b);
        const struct f32x16 a = load(ln->coefs[b].a), valid = load(ln->coefs[b].c);
        const bool streams = ln->past_caches && is_aligned(ln->dst + at);
        for (size_t i = 0; i < p->n; i += LANES) {
            const struct f32x16 dy = get_group(ln, ln->diff_dst + at, i, p->n);
            const struct f32x16 mu = load(p->mean.at + i), inv = load(p->inverse.at + i);
            const struct f32x16 m1 = load(p->m[0].at + i), m2 = load(p->m[1].at + i);
            struct f32x16 x = get_group(ln, ln->src + at, i, p->n);
            FOR_PARTS (k) {
                const vec normal = (x.part[k] - mu.part[k]) * inv.part[k];
                x.part[k] = (a.part[k] * dy.part[k] - m1.part[k] - normal * m2.part[k]) *
                            inv.part[k] * valid.part[k];
            }
            put_group(ln, ln->dst + at, i, p->n, x, streams);
        }
    }
}

static void store_gradients(const struct layer_norm *ln, float *diff_scale, float *diff_shift)
{
    const int n_channels = ln->rows->n_blocks * ln->rows->block;
#pragma omp parallel for schedule(static)
    for (int c = 0; c < ln->rows->channels; c++) {
        double sum = 0, product = 0;
        for (int task = 0; task < ln->rows->n * ln->tasks; task++) {
            sum += (double)ln->sums[task * 2 * n_channels + c];
            product += (double)ln->sums[(task * 2 + 1) * n_channels + c];
        }
        diff_shift[c] = (float)sum;
        diff_scale[c] = (float)product;
    }
}

/* --- Nodes --- */

static struct layer_norm arguments(const struct dt_exec *exec)
{
    const struct dt_cpu_rows *rows = &exec->rows;
    const int fit = CHUNK_BYTES / (int)sizeof(float) / LANES / rows->n_blocks;
    const int groups = fit < MIN_GROUPS ? MIN_GROUPS : fit < MAX_GROUPS ? fit : MAX_GROUPS;
    struct layer_norm ln = {.rows = rows,
                            .chunk = (size_t)groups * LANES,
                            .step = dt_cpu_is_nhwc(rows) ? (size_t)rows->channels : LANES,
                            .coefs = exec->work,
                            .src = dt_cpu_src(exec, DT_GN_SRC),
                            .dst = dt_cpu_dst(exec, DT_GN_DST),
                            .eps = exec->node->attr.group_norm.eps};
    ln.chunks = (int)((dt_cpu_block_elements(rows) + ln.chunk - 1) / ln.chunk);
    ln.per_task = (int)(((int64_t)rows->n * ln.chunks + TASKS - 1) / TASKS);
    ln.tasks = (ln.chunks + ln.per_task - 1) / ln.per_task;
    return ln;
}

/* The scratch holds the coefficients of the blocks, then (backward) the sums of the tasks. */
static dt_status prepare_layer_norm(struct dt_exec *exec)
{
    const bool forward = exec->node->op == DT_OP_LAYER_NORM;
    struct dt_cpu_rows *rows = &exec->rows;
    dt_md md = NULL;

    const bool has_blocks = exec->graph->tensor[exec->node->src[0]].dim[1] % LANES == 0;
    DT_TRY(dt_cpu_rows_choose(rows, &md, exec, exec->node->src[0],
                              has_blocks ? dnnl_format_tag_any : dnnl_format_tag_undef));
    DT_TRY(dt_cpu_port_add_kinds(exec, md, 0));
    const size_t n_blocks = (size_t)rows->n_blocks;
    const size_t tasks = forward ? 0 : (size_t)(rows->n * arguments(exec).tasks);
    exec->work_offset =
        dt_cpu_reserve(exec, n_blocks * sizeof(struct dt_norm_coefs) +
                                 tasks * 2 * n_blocks * (size_t)rows->block * sizeof(float));
    return DT_OK;
}

/* shift may be NULL. */
static void load_coefs(const struct layer_norm *ln, const float *scale, const float *shift)
{
    for (int i = 0; i < ln->rows->n_blocks * LANES; i++) {
        struct dt_norm_coefs *k = &ln->coefs[i / LANES];
        const int c = i / LANES * ln->rows->block + i % LANES % ln->rows->block;
        const bool valid = c < ln->rows->channels;
        k->a[i % LANES] = valid ? scale[c] : 0;
        k->b[i % LANES] = valid && shift ? shift[c] : 0;
        k->c[i % LANES] = valid;
    }
}

static void run_task(const struct layer_norm *ln, struct part *p, int task,
                     void (*run)(const struct layer_norm *ln, struct part *p))
{
    const size_t n_sums = 2 * (size_t)(ln->rows->n_blocks * ln->rows->block);
    p->image = task / ln->tasks;
    p->first = (size_t)(task % ln->tasks * ln->per_task) * ln->chunk;
    p->sums = ln->sums ? ln->sums + (size_t)task * n_sums : NULL;
    for (size_t i = 0; p->sums && i < n_sums; i++)
        p->sums[i] = 0;
    for (int i = 0; i < ln->per_task && p->first < dt_cpu_block_elements(ln->rows); i++) {
        const size_t left = dt_cpu_block_elements(ln->rows) - p->first;
        p->n = left < ln->chunk ? left : ln->chunk;
        run(ln, p);
        p->first += p->n;
    }
    stream_end();
}

static void run_tasks(const struct layer_norm *ln,
                      void (*run)(const struct layer_norm *ln, struct part *p))
{
#pragma omp parallel
    {
        struct part part;
#pragma omp for schedule(static)
        for (int task = 0; task < ln->rows->n * ln->tasks; task++)
            run_task(ln, &part, task, run);
    }
}

static dt_status run_layer_norm(struct dt_exec *exec)
{
    struct layer_norm ln = arguments(exec);
    ln.mean = dt_cpu_dst(exec, DT_GN_MEAN);
    ln.inverse_std = dt_cpu_dst(exec, DT_GN_INVERSE_STD);
    ln.past_caches = ln.step == LANES && dt_goes_past_caches(ln.rows, ln.dst, ln.src, NULL);
    load_coefs(&ln, dt_cpu_src(exec, DT_GN_SCALE), dt_cpu_src(exec, DT_GN_SHIFT));
    run_tasks(&ln, forward_part);
    return DT_OK;
}

static dt_status run_layer_norm_bwd(struct dt_exec *exec)
{
    struct layer_norm ln = arguments(exec);
    ln.diff_dst = dt_cpu_src(exec, DT_GN_BWD_DIFF_DST);
    ln.mean = dt_cpu_src(exec, DT_GN_BWD_MEAN);
    ln.inverse_std = dt_cpu_src(exec, DT_GN_BWD_INVERSE_STD);
    ln.sums = (void *)(ln.coefs + ln.rows->n_blocks);
    ln.past_caches = ln.step == LANES && dt_goes_past_caches(ln.rows, ln.dst, ln.diff_dst, ln.src);
    load_coefs(&ln, dt_cpu_src(exec, DT_GN_BWD_SCALE), NULL);
    run_tasks(&ln, bwd_part);
    float *diff_scale = dt_cpu_dst(exec, DT_GN_BWD_DIFF_SCALE);
    if (diff_scale)
        store_gradients(&ln, diff_scale, dt_cpu_dst(exec, DT_GN_BWD_DIFF_SHIFT));
    return DT_OK;
}

DT_CPU_OP(layer_norm, prepare_layer_norm, run_layer_norm, true);
DT_CPU_OP(layer_norm_bwd, prepare_layer_norm, run_layer_norm_bwd, true);
