/* Group norm: mean and deviation of each image's groups of adjacent channels, in any row format.
 *
 * A task is one image and the fewest blocks of channels that are whole groups: one block, unless a
 * group is larger or lies in two. A thread makes the sums of the rows of a task, combines those of
 * each group, and then normalises the rows while they are still in the cache. */
#include <math.h>

#include "cpu/norm_block.h"

/* Arguments of one run. */
struct group_norm {
    const struct dt_cpu_rows *rows;
    int groups, size;          /* channels of a group */
    int together;              /* blocks of a task */
    struct dt_norm_sums *sums; /* one per row, in memory order */
    const real *src, *diff_dst;
    real *dst, *diff_src;
    const float *scale, *shift;
    float *diff_scale, *diff_shift;
    float *mean, *inverse_std; /* of every image's groups, like what follows */
    float *offset, *slope;     /* diff_src = a * diff_dst - offset - slope * (src - mean) */
    float eps;
    bool past_caches;
};

static int blocks_together(const struct dt_cpu_rows *rows, int size)
{
    int n = 1;
    while (n < rows->n_blocks && n * rows->block % size != 0)
        n++;
    return n;
}

static struct dt_norm_sums *sums_of(const struct group_norm *gn, int image, int block)
{
    return &gn->sums[image * gn->rows->n_blocks + block];
}

static size_t block_offset(const struct group_norm *gn, int image, int block)
{
    return dt_cpu_block_offset(gn->rows, gn->rows->n_blocks, image, block);
}

/* The lanes of channel c: several if a block has fewer channels than there are lanes. */
#define FOR_LANES(gn, lane, c) \
    for (int lane = (c) % (gn)->rows->block; lane < LANES; lane += (gn)->rows->block)

/* -1 in the padding. */
static int channel_of(const struct group_norm *gn, int block, int lane)
{
    int c = block * gn->rows->block + lane % gn->rows->block;
    return c < gn->rows->channels ? c : -1;
}

/* --- Forward --- */

static void sum_rows(const struct group_norm *gn, int image, int block)
{
    const struct dt_norm_row row = dt_cpu_norm_row(gn->rows, block, 1);
    struct dt_norm_sums *sums = sums_of(gn, image, block);
    dt_norm_rows.moments(sums, gn->src + block_offset(gn, image, block), &row);
}

/* Combines lanes by their means and numbers of values: first the mean, then the deviations. */
static void make_statistics(const struct group_norm *gn, int image, int group)
{
    const struct dt_cpu_rows *rows = gn->rows;
    const double n = (double)gn->size * rows->height * rows->width;
    double mean = 0, m2 = 0;
    for (int c = group * gn->size; c < (group + 1) * gn->size; c++) {
        const struct dt_norm_sums *sums = sums_of(gn, image, c / rows->block);
        FOR_LANES (gn, lane, c)
            mean +=
                dt_lane_count(dt_cpu_block_elements(rows), lane) / n * (double)sums->first[lane];
    }
    for (int c = group * gn->size; c < (group + 1) * gn->size; c++) {
        const struct dt_norm_sums *sums = sums_of(gn, image, c / rows->block);
        FOR_LANES (gn, lane, c) {
            double delta = (double)sums->first[lane] - mean;
            m2 += (double)sums->second[lane] +
                  delta * delta * dt_lane_count(dt_cpu_block_elements(rows), lane);
        }
    }
    gn->mean[image * gn->groups + group] = (float)mean;
    gn->inverse_std[image * gn->groups + group] = (float)(1 / sqrt(m2 / n + (double)gn->eps));
}

/* The coefficients of a block: forward, or where there is an offset, backward. */
static struct dt_norm_coefs coefs_of(const struct group_norm *gn, int image, int block)
{
    struct dt_norm_coefs k = {0};
    for (int lane = 0; lane < LANES; lane++) {
        int c = channel_of(gn, block, lane), i = image * gn->groups + c / gn->size;
        if (c < 0)
            continue;
        double a = (double)gn->scale[c] * (double)gn->inverse_std[i];
        k.mean[lane] = gn->mean[i];
        k.a[lane] = (float)a;
        k.b[lane] =
            gn->offset ? gn->offset[i] : (float)((double)gn->shift[c] - (double)gn->mean[i] * a);
        k.c[lane] = gn->slope ? gn->slope[i] : 0;
    }
    return k;
}

static void apply(const struct group_norm *gn, int image, int block)
{
    const struct dt_norm_row row = dt_cpu_norm_row(gn->rows, block, 1);
    const struct dt_norm_coefs k = coefs_of(gn, image, block);
    size_t at = block_offset(gn, image, block);
    dt_norm_rows.apply(gn->dst + at, NULL, gn->src + at, NULL, &k, DT_NO_ACTIVATION,
                       gn->past_caches, &row);
}

/* --- Backward --- */

static void bwd_sum_rows(const struct group_norm *gn, int image, int block)
{
    const struct dt_norm_row row = dt_cpu_norm_row(gn->rows, block, 1);
    const struct dt_norm_coefs k = coefs_of(gn, image, block); /* of which the mean is known */
    size_t at = block_offset(gn, image, block);
    dt_norm_rows.bwd_sums(sums_of(gn, image, block), gn->diff_dst + at, NULL, gn->src + at, NULL,
                          DT_NO_ACTIVATION, NULL, &k, &row);
}

/* With S1 = sum of scale * dy and S2 = sum of scale * dy * (x - mean) over the n values of a group:
 * dx = (scale * dy - S1 / n - (x - mean) * S2 / (n * var)) / std. */
static void make_bwd_coefs(const struct group_norm *gn, int image, int group)
{
    const struct dt_cpu_rows *rows = gn->rows;
    const double n = (double)gn->size * rows->height * rows->width;
    const int i = image * gn->groups + group;
    const double inverse = (double)gn->inverse_std[i];
    double s1 = 0, s2 = 0;
    for (int c = group * gn->size; c < (group + 1) * gn->size; c++) {
        const struct dt_norm_sums *sums = sums_of(gn, image, c / rows->block);
        FOR_LANES (gn, lane, c) {
            s1 += (double)gn->scale[c] * (double)sums->first[lane];
            s2 += (double)gn->scale[c] * (double)sums->second[lane];
        }
    }
    gn->offset[i] = (float)(inverse * s1 / n);
    gn->slope[i] = (float)(inverse * inverse * inverse * s2 / n);
}

static void bwd_apply(const struct group_norm *gn, int image, int block)
{
    const struct dt_norm_row row = dt_cpu_norm_row(gn->rows, block, 1);
    const struct dt_norm_coefs k = coefs_of(gn, image, block);
    size_t at = block_offset(gn, image, block);
    dt_norm_rows.group_bwd_apply(gn->diff_src + at, gn->diff_dst + at, gn->src + at, &k,
                                 gn->past_caches, &row);
}

static void store_gradients(const struct group_norm *gn, int c)
{
    double s1 = 0, s2 = 0;
    for (int image = 0; image < gn->rows->n; image++) {
        const struct dt_norm_sums *sums = sums_of(gn, image, c / gn->rows->block);
        double inverse = (double)gn->inverse_std[image * gn->groups + c / gn->size];
        FOR_LANES (gn, lane, c) {
            s1 += (double)sums->first[lane];
            s2 += (double)sums->second[lane] * inverse;
        }
    }
    gn->diff_shift[c] = (float)s1;
    gn->diff_scale[c] = (float)s2;
}

/* --- Tasks --- */

struct stages {
    void (*row)(const struct group_norm *gn, int image, int block);
    void (*group)(const struct group_norm *gn, int image, int group);
    void (*apply)(const struct group_norm *gn, int image, int block);
};
static const struct stages FORWARD = {sum_rows, make_statistics, apply};
static const struct stages BACKWARD = {bwd_sum_rows, make_bwd_coefs, bwd_apply};

static void run_tasks(const struct group_norm *gn, const struct stages *stages)
{
    const int per_image = (gn->rows->n_blocks + gn->together - 1) / gn->together;
#pragma omp parallel for schedule(static)
    for (int i = 0; i < gn->rows->n * per_image; i++) {
        int image = i / per_image;
        int begin = i % per_image * gn->together;
        const struct dt_cpu_rows *rows = gn->rows;
        int end = begin + gn->together < rows->n_blocks ? begin + gn->together : rows->n_blocks;
        int last = end * rows->block < rows->channels ? end * rows->block : rows->channels;

        for (int block = begin; block < end; block++)
            stages->row(gn, image, block);
        for (int group = begin * rows->block / gn->size; group < last / gn->size; group++)
            stages->group(gn, image, group);
        for (int block = begin; block < end; block++)
            stages->apply(gn, image, block);
    }
}

/* --- Nodes --- */

/* The scratch holds the sums of all rows and two values for each group. */
static dt_status prepare_group_norm(struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    dt_md md = NULL;

    DT_TRY(dt_cpu_rows_choose(&exec->rows, &md, exec, node->src[0], dnnl_format_tag_any));
    DT_TRY(dt_cpu_port_add_kinds(exec, md, 0));
    size_t n_groups = (size_t)(exec->rows.n * node->attr.group_norm.groups);
    exec->work_offset = dt_cpu_reserve(exec, (size_t)(exec->rows.n * exec->rows.n_blocks) *
                                                     sizeof(struct dt_norm_sums) +
                                                 2 * n_groups * sizeof(float));
    return DT_OK;
}

static float *group_scratch(const struct dt_exec *exec, int i)
{
    float *first = (void *)((struct dt_norm_sums *)exec->work + exec->rows.n * exec->rows.n_blocks);
    return first + i * exec->rows.n * exec->node->attr.group_norm.groups;
}

static struct group_norm arguments(const struct dt_exec *exec)
{
    const struct dt_cpu_rows *rows = &exec->rows;
    const int groups = exec->node->attr.group_norm.groups, size = rows->channels / groups;
    return (struct group_norm){.rows = rows,
                               .groups = groups,
                               .size = size,
                               .together = blocks_together(rows, size),
                               .sums = exec->work,
                               .src = dt_cpu_src(exec, DT_GN_SRC),
                               .eps = exec->node->attr.group_norm.eps};
}

static dt_status run_group_norm(struct dt_exec *exec)
{
    struct group_norm gn = arguments(exec);
    float *mean = dt_cpu_dst(exec, DT_GN_MEAN), *inverse_std = dt_cpu_dst(exec, DT_GN_INVERSE_STD);
    gn.scale = dt_cpu_src(exec, DT_GN_SCALE);
    gn.shift = dt_cpu_src(exec, DT_GN_SHIFT);
    gn.dst = dt_cpu_dst(exec, DT_GN_DST);
    gn.mean = mean ? mean : group_scratch(exec, 0);
    gn.inverse_std = inverse_std ? inverse_std : group_scratch(exec, 1);
    gn.past_caches = dt_goes_past_caches(gn.rows, gn.dst, gn.src, NULL);
    run_tasks(&gn, &FORWARD);
    return DT_OK;
}

static dt_status run_group_norm_bwd(struct dt_exec *exec)
{
    struct group_norm gn = arguments(exec);
    gn.diff_dst = dt_cpu_src(exec, DT_GN_BWD_DIFF_DST);
    gn.scale = dt_cpu_src(exec, DT_GN_BWD_SCALE);
    gn.mean = dt_cpu_src(exec, DT_GN_BWD_MEAN);
    gn.inverse_std = dt_cpu_src(exec, DT_GN_BWD_INVERSE_STD);
    gn.offset = group_scratch(exec, 0);
    gn.slope = group_scratch(exec, 1);
    gn.diff_src = dt_cpu_dst(exec, DT_GN_BWD_DIFF_SRC);
    gn.past_caches = dt_goes_past_caches(gn.rows, gn.diff_src, gn.diff_dst, gn.src);
    run_tasks(&gn, &BACKWARD);
    gn.diff_scale = dt_cpu_dst(exec, DT_GN_BWD_DIFF_SCALE);
    gn.diff_shift = dt_cpu_dst(exec, DT_GN_BWD_DIFF_SHIFT);
    for (int c = 0; gn.diff_scale && c < gn.rows->channels; c++)
        store_gradients(&gn, c);
    return DT_OK;
}

DT_CPU_OP(group_norm, prepare_group_norm, run_group_norm, true);
DT_CPU_OP(group_norm_bwd, prepare_group_norm, run_group_norm_bwd, true);
