/* Ops that treat tensors as flat arrays, as our own OpenMP loops: additions, dropout; and
 * ingest, from bytes to the first activation.
 *
 * All tensors of a node are accessed in one format, padding included: padding is zero in every
 * source and all these functions map zero to zero. ReLU lets NaN through. Schedules are static. */
#include <string.h>

#include "base/rng.h"
#include "cpu/cpu_internal.h"

/* Gives all ports the format of the forward value, to which gradients adapt, or the plain format if
 * it has none yet. */
dt_status dt_cpu_prepare_like_value(struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const int value = node->op == DT_OP_ACTIVATION_BWD ? DT_ACTIVATION_BWD_SRC : 0;
    const struct dt_tensor *t = &exec->graph->tensor[exec->node->src[value]];
    const struct dt_cpu_format *stored = dt_cpu_format_of(exec->formats, exec->node->src[value]);
    dt_md md = NULL;

    if (stored->md) {
        DT_TRY(DT_DNNL(node->name, dt_md_clone(&md, stored->md)));
    } else {
        dnnl_dims_t dims;
        (void)dt_cpu_dims(dims, t);
        DT_TRY(DT_DNNL(node->name, dt_md_create(&md, dt_cpu_wanted_type(exec, node->src[value]), 4,
                                                dims, dnnl_abcd)));
    }
    exec->n_elements = dnnl_memory_desc_get_size(md) / sizeof(real);
    return dt_cpu_port_add_kinds(exec, md, 0);
}

static dt_status run_add(struct dt_exec *exec)
{
    const real *a = dt_cpu_src(exec, 0), *b = dt_cpu_src(exec, 1);
    real *dst = dt_cpu_dst(exec, 0);
    size_t n = exec->n_elements;

    if (exec->node->activation) {
#pragma omp parallel for simd schedule(static)
        for (size_t i = 0; i < n; i++) {
            float sum = from_real(a[i]) + from_real(b[i]);
            dst[i] = to_real(dt_relu(sum));
        }
    } else {
#pragma omp parallel for simd schedule(static)
        for (size_t i = 0; i < n; i++)
            dst[i] = to_real(from_real(a[i]) + from_real(b[i]));
    }
    return DT_OK;
}

/* --- The sum of the gradients of a shared parameter --- */

enum { SUM_CHUNK = 4096 };

/* All tensors have the format of the parameter: whichever its readers chose. */
static dt_status prepare_sum_grads(struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_cpu_format *stored = dt_cpu_format_of(exec->formats, node->dst[0]);

    exec->n_elements = stored->md ? dnnl_memory_desc_get_size(stored->md) / sizeof(float)
                                  : dt_tensor_elements(&exec->graph->tensor[node->dst[0]]);
    for (int i = 0; i < node->n_src + node->n_dst; i++)
        DT_TRY(stored->md ? dt_cpu_port_add_dims(exec, stored->md, stored->n_dims, stored->dims)
                          : dt_cpu_port_add_block(exec, 0));
    return DT_OK;
}

static dt_status run_sum_grads(struct dt_exec *exec)
{
    float *dst = dt_cpu_dst(exec, 0);
    size_t n = exec->n_elements;

#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < n; first += SUM_CHUNK) {
        size_t end = n - first < SUM_CHUNK ? n : first + SUM_CHUNK;
        for (int k = 1; k < exec->node->n_src; k++) {
            const float *sum = k == 1 ? dt_cpu_src(exec, 0) : dst, *term = dt_cpu_src(exec, k);
#pragma omp simd
            for (size_t i = first; i < end; i++)
                dst[i] = sum[i] + term[i];
        }
    }
    return DT_OK;
}

/* --- Dropout: the same loop forward and backward, because the mask is a function of the element's
 * logical index in the global batch; it therefore always works in plain order. --- */

enum { DROPOUT_CHUNK = 1024 };

static dt_status prepare_dropout(struct dt_exec *exec)
{
    exec->n_elements = dt_tensor_elements(&exec->graph->tensor[exec->node->src[0]]);
    return dt_cpu_port_add_plain(exec);
}

static dt_status run_dropout(struct dt_exec *exec)
{
    const real *src = dt_cpu_src(exec, 0);
    real *dst = dt_cpu_dst(exec, 0);
    size_t n = exec->n_elements;
    double p = (double)exec->node->attr.dropout.p;
    uint32_t stream = exec->node->attr.dropout.stream;
    float scale = p < 1 ? (float)(1 / (1 - p)) : 0;
    double limit = p * 0x1p32;
    size_t n_images = (size_t)exec->graph->tensor[exec->node->src[0]].dim[0];
    uint64_t base = (uint64_t)exec->dev->scalars.first_row * (n / n_images);
    size_t skip = base % 4; /* words come in blocks of 4 */
    uint32_t threshold = limit < 0x1p32 ? (uint32_t)limit : UINT32_MAX;

#pragma omp parallel for schedule(static)
    for (size_t first = 0; first < n; first += DROPOUT_CHUNK) {
        uint32_t word[DROPOUT_CHUNK + 3];
        size_t count = n - first < DROPOUT_CHUNK ? n - first : DROPOUT_CHUNK;
        dt_rng_fill(word, skip + count, exec->dev->options.seed, DT_RNG_DROPOUT,
                    exec->dev->scalars.step, stream, base + first - skip);
#pragma omp simd
        for (size_t i = 0; i < count; i++)
            dst[first + i] =
                word[skip + i] >= threshold ? to_real(from_real(src[first + i]) * scale) : 0;
    }
    return DT_OK;
}

/* --- Ingest --- */

static dt_status prepare_ingest(struct dt_exec *exec)
{
    const struct dt_tensor *pixels = &exec->graph->tensor[exec->node->src[0]];
    if (pixels->dim[1] > 3)
        DT_FAIL(DT_ERR_INTERNAL, "node '%s' takes images of up to 3 channels, not %d",
                exec->node->name, pixels->dim[1]);
    if (!exec->formats->nhwc)
        return dt_cpu_port_add_plain(exec);
    struct dt_cpu_rows rows;
    dt_md md = NULL;
    DT_TRY(dt_cpu_rows_choose(&rows, &md, exec, exec->node->dst[0], dnnl_acdb));
    return dt_cpu_port_add_kinds(exec, md, 0);
}

/* n pixels of a line of one channel; the others of the line, up to `width`, are 0. */
static inline void fill_line(real *to, const uint8_t *from, int n, int width, float a, float b,
                             int from_step, int to_step)
{
#pragma omp simd
    for (int w = 0; w < n; w++)
        to[w * to_step] = to_real((float)from[w * from_step] * a + b);
    for (int w = n; w < width; w++)
        to[w * to_step] = 0;
}

/* Pixels of a line that are part of its image. */
static int inside(const int32_t *size, int line, int width)
{
    int n = !size ? width : line < size[0] ? size[1] : 0;
    return n < 0 ? 0 : n < width ? n : width;
}

static dt_status run_ingest(struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const struct dt_tensor *t = &exec->graph->tensor[node->dst[0]];
    const uint8_t *src = dt_cpu_src(exec, DT_INGEST_PIXELS);
    const int32_t *sizes = dt_cpu_src(exec, DT_INGEST_SIZES);
    real *dst = dt_cpu_dst(exec, 0);
    int n_channels = t->dim[1], height = t->dim[2], width = t->dim[3];
    size_t plane = (size_t)height * (size_t)width;
    float a[3], b[3];

    for (int c = 0; c < n_channels; c++) {
        a[c] = (float)(1 / (255 * (double)node->attr.ingest.std[c]));
        b[c] = -node->attr.ingest.mean[c] / node->attr.ingest.std[c];
    }
#pragma omp parallel for schedule(static)
    for (int row = 0; row < t->dim[0] * height; row++) {
        const uint8_t *from = src + (size_t)row * (size_t)width * (size_t)n_channels;
        size_t image = (size_t)(row / height), line = (size_t)(row % height);
        int n = inside(sizes ? sizes + 2 * image : NULL, row % height, width);
        for (int c = 0; c < n_channels; c++) {
            real *to = dst + image * (size_t)n_channels * plane;
            if (exec->formats->nhwc)
                fill_line(to + line * (size_t)(width * n_channels) + c, from + c, n, width, a[c],
                          b[c], n_channels, n_channels);
            else
                fill_line(to + (size_t)c * plane + line * (size_t)width, from + c, n, width, a[c],
                          b[c], n_channels, 1);
        }
    }
    return DT_OK;
}

DT_CPU_OP(ingest, prepare_ingest, run_ingest, true);
DT_CPU_OP(add, dt_cpu_prepare_like_value, run_add, true);
DT_CPU_OP(dropout, prepare_dropout, run_dropout, true);
DT_CPU_OP(dropout_bwd, prepare_dropout, run_dropout, true);
DT_CPU_OP(sum_grads, prepare_sum_grads, run_sum_grads, true);
