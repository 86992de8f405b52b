/* Gate and scaled_add: rows times a factor of their image and channel. Backward, the products with
 * src are summed over a part of a row that stays in the cache, before it is multiplied. The sums
 * are made per row, so that they do not depend on the number of threads. */
#include "base/rng.h"
#include "cpu/norm_block.h"

enum { CHUNK = 128 }; /* groups */

/* Arguments of one run: dst = factor * src [+ residual], or sums over the rows of src * other. */
struct branch {
    const struct dt_cpu_rows *rows;
    const real *src, *residual, *other;
    real *dst;
    const real *factor;   /* of the images' channels, in the format of the rows; may be NULL */
    const float *scale;   /* of the channels; may be NULL */
    const float *keep;    /* of the images */
    float (*sums)[LANES]; /* of each row, times keep */
    bool past_caches;
};

static float keep_image(const struct dt_exec *exec, int image)
{
    const double p = (double)exec->node->attr.dropout.p;
    const uint64_t at = (uint64_t)exec->dev->scalars.first_row + (uint64_t)image;
    uint32_t word[4];
    dt_rng_fill(word, 4, exec->dev->options.seed, DT_RNG_DROPOUT, exec->dev->scalars.step,
                exec->node->attr.dropout.stream, at - at % 4);
    return word[at % 4] >= (uint32_t)(p * 0x1p32) ? (float)(1 / (1 - p)) : 0;
}

/* The first factor of a block, in a tensor of one pixel. */
static int first_factor(const struct dt_cpu_rows *rows, int row)
{
    const int block = row % rows->n_blocks * rows->block;
    return dt_cpu_is_nhwc(rows) ? row / rows->n_blocks * rows->channels + block : row * rows->block;
}

static void load_factors(float out[LANES], const struct branch *b, int row)
{
    const struct dt_cpu_rows *rows = b->rows;
    const int first = first_factor(rows, row);
    for (int lane = 0; lane < LANES; lane++) {
        const int i = lane % rows->block, c = row % rows->n_blocks * rows->block + i;
        const float factor = c >= rows->channels ? 0
                             : b->factor         ? from_real(b->factor[first + i])
                             : b->scale          ? b->scale[c]
                                                 : 1;
        out[lane] = factor * b->keep[row / rows->n_blocks];
    }
}

static void add_products(double sum[LANES], const struct branch *b, size_t at,
                         const struct dt_norm_row *part)
{
    static const struct dt_norm_coefs zero;
    struct dt_norm_sums sums;
    dt_norm_rows.bwd_sums(&sums, b->src + at, NULL, b->other + at, NULL, DT_NO_ACTIVATION, NULL,
                          &zero, part);
    for (int lane = 0; lane < LANES; lane++)
        sum[lane] += (double)sums.second[lane];
}

static void run_row(const struct branch *b, int row)
{
    const struct dt_cpu_rows *rows = b->rows;
    const int block = row % rows->n_blocks;
    const struct dt_norm_row all = dt_cpu_norm_row(rows, block, 1);
    const size_t begin = dt_cpu_block_offset(rows, rows->n_blocks, row / rows->n_blocks, block);
    struct dt_norm_coefs k = {0};
    double sum[LANES] = {0};
    load_factors(k.a, b, row);
    for (size_t first = 0; first < all.pixels + (all.rest > 0); first += CHUNK) {
        const size_t at = begin + first * all.step, left = all.pixels - first;
        struct dt_norm_row part = all;
        part.pixels = left < CHUNK ? left : CHUNK;
        part.rest = left < CHUNK ? all.rest : 0;
        if (b->other)
            add_products(sum, b, at, &part);
        dt_norm_rows.apply(b->dst + at, NULL, b->src + at, b->residual ? b->residual + at : NULL,
                           &k, DT_NO_ACTIVATION, b->past_caches, &part);
    }
    for (int lane = 0; lane < LANES && b->other; lane++)
        b->sums[row][lane] = (float)(sum[lane] * (double)b->keep[row / b->rows->n_blocks]);
}

/* The sum of a row of channel i of its block. */
static double sum_of(const struct branch *b, int row, int i)
{
    double sum = 0;
    for (int lane = i; lane < LANES; lane += b->rows->block)
        sum += (double)b->sums[row][lane];
    return sum;
}

static void store_factor_gradients(const struct branch *b, real *diff_factor)
{
    const struct dt_cpu_rows *rows = b->rows;
#pragma omp parallel for schedule(static)
    for (int row = 0; row < rows->n * rows->n_blocks; row++)
        for (int i = 0; i < dt_cpu_block_width(rows, row % rows->n_blocks); i++)
            diff_factor[first_factor(rows, row) + i] = to_real((float)sum_of(b, row, i));
}

static void store_scale_gradients(const struct branch *b, float *diff_scale)
{
    const struct dt_cpu_rows *rows = b->rows;
#pragma omp parallel for schedule(static)
    for (int c = 0; c < rows->channels; c++) {
        double sum = 0;
        for (int image = 0; image < rows->n; image++)
            sum += sum_of(b, image * rows->n_blocks + c / rows->block, c % rows->block);
        diff_scale[c] = (float)sum;
    }
}

/* The scratch holds keep of every image, then the sums of the rows. */
static dt_status prepare_branch(struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const bool backward = node->op == DT_OP_GATE_BWD || node->op == DT_OP_SCALED_ADD_BWD;
    const int value = backward ? node->src[DT_BRANCH_BWD_SRC] : -1;
    DT_TRY(dt_cpu_rows_choose(&exec->rows, NULL, exec, value < 0 ? node->src[0] : value,
                              dnnl_format_tag_any));
    const size_t n_sums = backward ? (size_t)exec->rows.n_blocks * LANES : 0;
    exec->work_offset = dt_cpu_reserve(exec, (size_t)exec->rows.n * (1 + n_sums) * sizeof(float));
    return exec->rows.block == 1 ? dt_cpu_port_add_plain(exec)
                                 : dt_cpu_port_add_blocks(exec, exec->rows.tag, exec->rows.block);
}

static void run(struct dt_exec *exec, struct branch *b)
{
    float *keep = exec->work;
    b->rows = &exec->rows;
    b->src = dt_cpu_src(exec, 0);
    b->dst = dt_cpu_dst(exec, 0);
    for (int image = 0; image < b->rows->n; image++)
        keep[image] = keep_image(exec, image);
    b->keep = keep;
    b->sums = (void *)(keep + b->rows->n);
    b->past_caches =
        dt_goes_past_caches(b->rows, b->dst, b->src, b->residual ? b->residual : b->other);
#pragma omp parallel for schedule(static)
    for (int row = 0; row < b->rows->n * b->rows->n_blocks; row++)
        run_row(b, row);
}

static dt_status run_gate(struct dt_exec *exec)
{
    run(exec, &(struct branch){.factor = dt_cpu_src(exec, DT_GATE_FACTOR)});
    return DT_OK;
}

static dt_status run_scaled_add(struct dt_exec *exec)
{
    run(exec, &(struct branch){.residual = dt_cpu_src(exec, DT_SCALED_ADD_RESIDUAL),
                               .scale = dt_cpu_src(exec, DT_SCALED_ADD_SCALE)});
    return DT_OK;
}

static dt_status run_gate_bwd(struct dt_exec *exec)
{
    struct branch b = {.factor = dt_cpu_src(exec, DT_BRANCH_BWD_FACTOR),
                       .other = dt_cpu_src(exec, DT_BRANCH_BWD_SRC)};
    run(exec, &b);
    store_factor_gradients(&b, dt_cpu_dst(exec, DT_BRANCH_BWD_DIFF_FACTOR));
    return DT_OK;
}

static dt_status run_scaled_add_bwd(struct dt_exec *exec)
{
    struct branch b = {.scale = dt_cpu_src(exec, DT_BRANCH_BWD_FACTOR),
                       .other = dt_cpu_src(exec, DT_BRANCH_BWD_SRC)};
    run(exec, &b);
    if (b.other)
        store_scale_gradients(&b, dt_cpu_dst(exec, DT_BRANCH_BWD_DIFF_FACTOR));
    return DT_OK;
}

DT_CPU_OP(gate, prepare_branch, run_gate, true);
DT_CPU_OP(gate_bwd, prepare_branch, run_gate_bwd, true);
DT_CPU_OP(scaled_add, prepare_branch, run_scaled_add, true);
DT_CPU_OP(scaled_add_bwd, prepare_branch, run_scaled_add_bwd, true);
