/* The gradient of the weights of depthwise convolutions with windows of 5x5 and 7x7, for which
 * oneDNN generates no code.
 *
 * sums[tap][channel] = the sum over all pixels of diff_dst[pixel][channel] * src[pixel of the
 * tap][channel]. A task is a block of channels of an image, which stays in the caches; then the
 * images are added in their order, so that the results do not depend on the threads. */
#include <string.h>

#include "cpu/cpu_internal.h"
#include "cpu/simd.h"

enum { BLOCK = DT_CPU_BLOCK, PARTS = BLOCK / WIDTH, MAX_SIDE = 7 };

struct depthwise {
    const real *src, *diff_dst;
    int images, blocks, channels;
    int height, width, out_height, out_width;
    int side, stride, pad;
    float *weights, *bias; /* the gradients; bias may be NULL */
    float *partial;        /* [image][block][tap, at last the bias][BLOCK] */
};

static struct depthwise depthwise_of(const struct dt_exec *exec)
{
    const struct dt_tensor *tensor = exec->graph->tensor;
    const struct dt_tensor *src = &tensor[exec->node->src[DT_BWD_WEIGHTS_SRC]];
    const struct dt_tensor *dst = &tensor[exec->node->src[DT_BWD_WEIGHTS_DIFF_DST]];
    return (struct depthwise){
        .images = src->dim[0],
        .blocks = (src->dim[1] + BLOCK - 1) / BLOCK,
        .channels = src->dim[1],
        .height = src->dim[2],
        .width = src->dim[3],
        .out_height = dst->dim[2],
        .out_width = dst->dim[3],
        .side = tensor[exec->node->dst[DT_BWD_DIFF_WEIGHTS]].dim[2],
        .stride = exec->node->attr.conv.stride,
        .pad = exec->node->attr.conv.pad,
    };
}

static size_t n_sums(const struct depthwise *d)
{
    return (size_t)(d->side * d->side + 1) * BLOCK;
}

/* A row of the gradient and the row of src under `side` taps, whose sums stay in registers. */
static inline __attribute__((always_inline)) void add_row(int side, float *sums, const real *src,
                                                          const real *diff_dst,
                                                          const struct depthwise *d)
{
    vec sum[MAX_SIDE][PARTS];
    memset(sum, 0, sizeof sum);
    for (int out = 0; out < d->out_width; out++) {
        const int first = out * d->stride - d->pad;
        const bool is_inside = first >= 0 && first + side <= d->width;
        for (int part = 0; part < PARTS; part++) {
            const vec diff = load_real(diff_dst + out * BLOCK + part * WIDTH);
#pragma GCC unroll 7
            for (int tap = 0; tap < side; tap++)
                if (is_inside || (first + tap >= 0 && first + tap < d->width))
                    sum[tap][part] += diff * load_real(src + (first + tap) * BLOCK + part * WIDTH);
        }
    }
    for (int tap = 0; tap < side; tap++)
        for (int part = 0; part < PARTS; part++) {
            float *at = sums + tap * BLOCK + part * WIDTH;
            STORE(at, LOAD(at) + sum[tap][part]);
        }
}

static void add_bias(float *sums, const real *diff_dst, int n)
{
    for (int part = 0; part < PARTS; part++) {
        vec sum = {0};
        for (int i = 0; i < n; i++)
            sum += load_real(diff_dst + i * BLOCK + part * WIDTH);
        STORE(sums + part * WIDTH, LOAD(sums + part * WIDTH) + sum);
    }
}

static void run_task(const struct depthwise *d, int task)
{
    const size_t row = (size_t)d->width * BLOCK, out_row = (size_t)d->out_width * BLOCK;
    const real *src = d->src + (size_t)task * (size_t)d->height * row;
    const real *diff_dst = d->diff_dst + (size_t)task * (size_t)d->out_height * out_row;
    float *sums = d->partial + (size_t)task * n_sums(d);
    memset(sums, 0, n_sums(d) * sizeof *sums);
    for (int out = 0; out < d->out_height; out++, diff_dst += out_row) {
        for (int tap = 0; tap < d->side; tap++) {
            const int y = out * d->stride - d->pad + tap;
            float *at = sums + tap * d->side * BLOCK;
            if (y < 0 || y >= d->height)
                continue;
            if (d->side == 5)
                add_row(5, at, src + (size_t)y * row, diff_dst, d);
            else
                add_row(7, at, src + (size_t)y * row, diff_dst, d);
        }
        if (d->bias)
            add_bias(sums + d->side * d->side * BLOCK, diff_dst, d->out_width);
    }
}

static void run(struct dt_exec *exec)
{
    struct depthwise d = depthwise_of(exec);
    d.weights = dt_cpu_dst(exec, DT_BWD_DIFF_WEIGHTS);
    d.bias = dt_cpu_dst(exec, DT_BWD_DIFF_BIAS);
    d.src = dt_cpu_src(exec, DT_BWD_WEIGHTS_SRC);
    d.diff_dst = dt_cpu_src(exec, DT_BWD_WEIGHTS_DIFF_DST);
    d.partial = exec->work;
    const int n = (int)n_sums(&d), n_taps = n - BLOCK;
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (int task = 0; task < d.images * d.blocks; task++)
            run_task(&d, task);
#pragma omp for schedule(static)
        for (int block = 0; block < d.blocks; block++)
            for (int i = 0; i < n; i++) {
                const int channel = block * BLOCK + i - n_taps;
                float sum = 0;
                for (int image = 0; image < d.images; image++)
                    sum += d.partial[(image * d.blocks + block) * n + i];
                if (i < n_taps)
                    d.weights[block * n_taps + i] = sum;
                else if (d.bias && channel < d.channels)
                    d.bias[channel] = sum;
            }
    }
}

bool dt_cpu_depthwise_pays(const struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    if (node->op != DT_OP_CONV_BWD_WEIGHTS || node->attr.conv.dilation > 1)
        return false;
    const int *dim = exec->graph->tensor[node->dst[DT_BWD_DIFF_WEIGHTS]].dim;
    return dt_conv_groups(exec->graph, node) == dim[0] && dim[1] == 1 && dim[2] == dim[3] &&
           (dim[2] == 5 || dim[2] == 7);
}

dt_status dt_cpu_depthwise_prepare(struct dt_exec *exec)
{
    const struct depthwise d = depthwise_of(exec);
    DT_TRY(dt_cpu_port_add_blocks(exec, DT_CPU_BLOCKS, BLOCK));
    exec->loops = run;
    exec->algorithm = "depthwise";
    exec->work_offset =
        dt_cpu_reserve(exec, (size_t)(d.images * d.blocks) * n_sums(&d) * sizeof(float));
    return DT_OK;
}
