/* Pooling: max pooling by oneDNN (its workspace records the maxima), adaptive average pooling by
 * our own loops over rows, which need no special case for windows that do not divide the image; and
 * upsampling, in rows of any block. */
#include <string.h>

#include "cpu/cpu_internal.h"

struct shapes {
    dt_md src, dst;
    struct dt_window window;
};

static void shapes_reset(struct shapes *s)
{
    dt_md_destroy(s->src);
    dt_md_destroy(s->dst);
}

/* src and dst are tensors of the forward node; their gradients take the same formats. */
static dt_status shapes_init(struct shapes *s, struct dt_exec *exec, int src, int dst)
{
    const struct dt_tensor *t = exec->graph->tensor;
    const int kernel = exec->node->attr.pool.kernel, stride = exec->node->attr.pool.stride,
              pad = exec->node->attr.pool.pad;
    dnnl_dims_t dims;
    *s = (struct shapes){0};
    for (int i = 0; i < 2; i++) {
        const int end = (t[dst].dim[2 + i] - 1) * stride - pad + kernel - t[src].dim[2 + i];
        s->window.kernel[i] = kernel;
        s->window.stride[i] = stride;
        s->window.pad[i] = pad;
        s->window.pad_end[i] = end > pad ? end : pad;
    }
    DT_TRY(dt_cpu_rows_choose(&exec->rows, &s->src, exec, src, dnnl_format_tag_any));
    (void)dt_cpu_dims(dims, &exec->graph->tensor[dst]);
    return DT_DNNL(exec->node->name,
                   dt_md_create(&s->dst, exec->type, 4, dims, dnnl_format_tag_any));
}

static dt_status add_port(struct dt_exec *exec, dt_md_ref md, int arg)
{
    DT_TRY(dt_cpu_port_add(exec, md));
    return dt_cpu_port_argument(exec, arg, NULL);
}

/* Without AVX-512 oneDNN has it in fp32 only. */
static dt_status make_forward(dnnl_primitive_desc_t *pd, struct dt_exec *exec, struct shapes *s,
                              bool train, const struct dt_node *forward,
                              const_dnnl_primitive_attr_t attr)
{
    for (;;) {
        DT_TRY(shapes_init(s, exec, forward->src[0], forward->dst[0]));
        dnnl_status_t status =
            dt_pd_max_pool(pd, exec->dev->engine, train, s->src, s->dst, &s->window, attr);
        if (status != dnnl_unimplemented || exec->type == DT_F32)
            return dt_dnnl_check(status, "creating a max pooling", exec->node->name);
        exec->type = DT_F32;
        shapes_reset(s);
    }
}

static dt_status prepare_max_pool(struct dt_exec *exec)
{
    dt_status status = DT_OK;
    const struct dt_node *node = exec->node;
    struct shapes s = {0};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    const int workspace = node->dst[DT_MAX_POOL_WORKSPACE];

    DT_TRY_OUT(DT_DNNL(node->name, dt_attr_create(&attr, false)));
    DT_TRY_OUT(make_forward(&pd, exec, &s, workspace >= 0, node, attr));
    DT_TRY_OUT(add_port(exec, s.src, DNNL_ARG_SRC));
    DT_TRY_OUT(
        add_port(exec, dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0), DNNL_ARG_DST));
    if (workspace >= 0)
        DT_TRY_OUT(add_port(exec, dnnl_primitive_desc_query_md(pd, dnnl_query_workspace_md, 0),
                            DNNL_ARG_WORKSPACE));
    DT_TRY_OUT(dt_cpu_primitive(exec, pd));
out:
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    shapes_reset(&s);
    return status;
}

static dt_status prepare_max_pool_bwd(struct dt_exec *exec)
{
    dt_status status = DT_OK;
    const struct dt_node *node = exec->node;
    const struct dt_node *forward = NULL; /* the node that wrote the workspace */
    struct shapes s = {0};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t hint = NULL, pd = NULL;

    for (const struct dt_node *n = exec->graph->node; n < node; n++)
        if (n->op == DT_OP_MAX_POOL &&
            n->dst[DT_MAX_POOL_WORKSPACE] == node->src[DT_MAX_POOL_BWD_WORKSPACE])
            forward = n;
    if (!forward)
        DT_FAIL(DT_ERR_INTERNAL, "node '%s' has no max_pool that wrote its workspace", node->name);
    DT_TRY_OUT(DT_DNNL(node->name, dt_attr_create(&attr, false)));
    DT_TRY_OUT(make_forward(&hint, exec, &s, true, forward, attr));
    dt_md_ref dst = dnnl_primitive_desc_query_md(hint, dnnl_query_dst_md, 0);
    DT_TRY_OUT(DT_DNNL(
        node->name, dt_pd_max_pool_bwd(&pd, exec->dev->engine, s.src, dst, &s.window, hint, attr)));
    DT_TRY_OUT(add_port(exec, dst, DNNL_ARG_DIFF_DST));
    DT_TRY_OUT(add_port(exec, dnnl_primitive_desc_query_md(pd, dnnl_query_workspace_md, 0),
                        DNNL_ARG_WORKSPACE));
    DT_TRY_OUT(add_port(exec, s.src, DNNL_ARG_DIFF_SRC));
    DT_TRY_OUT(dt_cpu_primitive(exec, pd));
out:
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (hint)
        dnnl_primitive_desc_destroy(hint);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    shapes_reset(&s);
    return status;
}

DT_CPU_OP(max_pool, prepare_max_pool, dt_cpu_run_primitive, true);
DT_CPU_OP(max_pool_bwd, prepare_max_pool_bwd, dt_cpu_run_primitive, true);

/* --- Adaptive average pooling --- */

/* Output i of n_out averages inputs first .. last - 1 of n_in. */
struct range {
    int first, last;
};

static struct range window_of(int i, int n_in, int n_out)
{
    return (struct range){(int)((int64_t)i * n_in / n_out),
                          (int)(((int64_t)(i + 1) * n_in + n_out - 1) / n_out)};
}

/* `big` is the image side (src or diff_src), `small` the pooled side. */
struct average {
    int big_height, big_width, small_height, small_width;
    int step; /* from one pixel to the next */
};

/* Runs a loop, whose last argument is the width of a block, with one that the compiler knows. */
#define BY_BLOCK(block, line, ...)          \
    ((block) == 16  ? line(__VA_ARGS__, 16) \
     : (block) == 8 ? line(__VA_ARGS__, 8)  \
     : (block) == 1 ? line(__VA_ARGS__, 1)  \
                    : line(__VA_ARGS__, block))

static inline void average_row(real *dst, const real *src, const struct average *a, int width)
{
    for (int oh = 0; oh < a->small_height; oh++) {
        struct range rh = window_of(oh, a->big_height, a->small_height);
        for (int ow = 0; ow < a->small_width; ow++, dst += a->step) {
            struct range rw = window_of(ow, a->big_width, a->small_width);
            float sum[16] = {0};
            for (int h = rh.first; h < rh.last; h++) {
                const real *from = src + (size_t)(h * a->big_width + rw.first) * a->step;
                for (int w = rw.first; w < rw.last; w++, from += a->step) {
#pragma omp simd
                    for (int c = 0; c < width; c++)
                        sum[c] += from_real(from[c]);
                }
            }
            float area = (float)((rh.last - rh.first) * (rw.last - rw.first));
#pragma omp simd
            for (int c = 0; c < width; c++)
                dst[c] = to_real(sum[c] / area);
        }
    }
}

/* Windows overlap when they do not divide the image: a pixel's are window_of the other way round.
 */
static inline void spread_row(real *diff_src, const real *diff_dst, const struct average *a,
                              int width)
{
    for (int h = 0; h < a->big_height; h++) {
        struct range oh = window_of(h, a->small_height, a->big_height);
        for (int w = 0; w < a->big_width; w++, diff_src += a->step) {
            struct range ow = window_of(w, a->small_width, a->big_width);
            float sum[16] = {0};
            for (int i = oh.first; i < oh.last; i++) {
                struct range rh = window_of(i, a->big_height, a->small_height);
                const real *from = diff_dst + (size_t)(i * a->small_width + ow.first) * a->step;
                for (int k = ow.first; k < ow.last; k++, from += a->step) {
                    struct range rw = window_of(k, a->big_width, a->small_width);
                    float area = (float)((rh.last - rh.first) * (rw.last - rw.first));
#pragma omp simd
                    for (int c = 0; c < width; c++)
                        sum[c] += from_real(from[c]) / area;
                }
            }
#pragma omp simd
            for (int c = 0; c < width; c++)
                diff_src[c] = to_real(sum[c]);
        }
    }
}

/* The src of this node or, if it is a backward node, of the forward node with its shapes. */
static int find_forward_src(const struct dt_exec *exec)
{
    const struct dt_graph *g = exec->graph;
    const struct dt_tensor *small = &g->tensor[exec->node->src[0]];
    const struct dt_tensor *big = &g->tensor[exec->node->dst[0]];
    int src = exec->node->src[0];

    for (int i = 0; i < g->n_nodes && exec->node->op == DT_OP_AVG_POOL_BWD; i++) {
        const struct dt_node *node = &g->node[i];
        if (node->op != DT_OP_AVG_POOL || node->program != exec->node->program)
            continue;
        if (memcmp(g->tensor[node->src[0]].dim, big->dim, sizeof big->dim) == 0 &&
            memcmp(g->tensor[node->dst[0]].dim, small->dim, sizeof small->dim) == 0)
            src = node->src[0];
    }
    return src;
}

/* Both sides take the row format of src, whose gradient the same nodes read. exec->rows describes
 * src[0] of the node. */
static dt_status prepare_average(struct dt_exec *exec)
{
    struct dt_cpu_rows like;
    DT_TRY(dt_cpu_rows_choose(&like, NULL, exec, find_forward_src(exec), dnnl_format_tag_any));
    return dt_cpu_port_add_rows(exec, like.tag, exec->node->src[0]);
}

static dt_status run_average(struct dt_exec *exec)
{
    const bool forward = exec->node->op == DT_OP_AVG_POOL;
    const struct dt_tensor *t = exec->graph->tensor;
    const struct dt_tensor *src = &t[exec->node->src[0]], *dst = &t[exec->node->dst[0]];
    const struct dt_tensor *big = forward ? src : dst, *small = forward ? dst : src;
    const struct dt_cpu_rows *rows = &exec->rows;
    struct dt_cpu_rows dst_rows = *rows;
    dst_rows.row_elements = rows->row_elements / (size_t)(rows->height * rows->width) *
                            (size_t)(dst->dim[2] * dst->dim[3]);
    const real *from = dt_cpu_src(exec, 0);
    real *to = dt_cpu_dst(exec, 0);

#pragma omp parallel for schedule(static)
    for (int i = 0; i < rows->n * rows->n_blocks; i++) {
        const int image = i / rows->n_blocks, block = i % rows->n_blocks;
        const struct average a = {.big_height = big->dim[2],
                                  .big_width = big->dim[3],
                                  .small_height = small->dim[2],
                                  .small_width = small->dim[3],
                                  .step = dt_cpu_pixel_step(rows)};
        const int width = dt_cpu_block_width(rows, block);
        real *block_to = to + dt_cpu_block_offset(&dst_rows, rows->n_blocks, image, block);
        const real *block_from = from + dt_cpu_block_offset(rows, rows->n_blocks, image, block);
        if (forward)
            BY_BLOCK(width, average_row, block_to, block_from, &a);
        else
            BY_BLOCK(width, spread_row, block_to, block_from, &a);
    }
    return DT_OK;
}

DT_CPU_OP(avg_pool, prepare_average, run_average, true);
DT_CPU_OP(avg_pool_bwd, prepare_average, run_average, true);

/* --- Upsampling --- */

/* All tensors take the row format of `big`. exec->rows describes `small`. */
static dt_status prepare_upsampling(struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const bool forward = node->op == DT_OP_UPSAMPLE_ADD;
    const int small = forward ? node->src[DT_UPSAMPLE_ADD_COARSE] : node->dst[0];
    const int big = node->src[forward ? DT_UPSAMPLE_ADD_FINE : 0];
    struct dt_cpu_rows like;
    DT_TRY(dt_cpu_rows_choose(&like, NULL, exec, big, dnnl_format_tag_any));
    return dt_cpu_port_add_rows(exec, like.tag, small);
}

/* Two lines of dst, which may be fine, from one of coarse. */
static inline void upsample_line(real *dst, const real *fine, const real *coarse, int width,
                                 int block)
{
    for (int h = 0; h < 2; h++) {
        for (int w = 0; w < 2 * width; w++, dst += block, fine += block) {
            const real *from = coarse + w / 2 * block;
#pragma omp simd
            for (int c = 0; c < block; c++)
                dst[c] = to_real(from_real(fine[c]) + from_real(from[c]));
        }
    }
}

static inline void sum_line(real *diff_coarse, const real *diff_dst, int width, int block)
{
    const real *below = diff_dst + (size_t)(2 * width * block);
    for (int w = 0; w < width; w++, diff_dst += 2 * block, below += 2 * block) {
        real *to = diff_coarse + w * block;
#pragma omp simd
        for (int c = 0; c < block; c++)
            to[c] = to_real((from_real(diff_dst[c]) + from_real(diff_dst[block + c])) +
                            (from_real(below[c]) + from_real(below[block + c])));
    }
}

static dt_status run_upsample_add(struct dt_exec *exec)
{
    const struct dt_cpu_rows *rows = &exec->rows;
    const real *coarse = dt_cpu_src(exec, DT_UPSAMPLE_ADD_COARSE),
               *fine = dt_cpu_src(exec, DT_UPSAMPLE_ADD_FINE);
    real *dst = dt_cpu_dst(exec, 0);
    const int block = dt_cpu_pixel_step(rows), n_rows = rows->n * rows->n_blocks / rows->columns;
    size_t line = (size_t)(rows->width * block);

#pragma omp parallel for schedule(static)
    for (int i = 0; i < n_rows * rows->height; i++) {
        size_t at = (size_t)i * line;
        BY_BLOCK(block, upsample_line, dst + 4 * at, fine + 4 * at, coarse + at, rows->width);
    }
    return DT_OK;
}

static dt_status run_upsample_add_bwd(struct dt_exec *exec)
{
    const struct dt_cpu_rows *rows = &exec->rows;
    const real *diff_dst = dt_cpu_src(exec, 0);
    real *diff_coarse = dt_cpu_dst(exec, 0);
    const int block = dt_cpu_pixel_step(rows), n_rows = rows->n * rows->n_blocks / rows->columns;
    size_t line = (size_t)(rows->width * block);

#pragma omp parallel for schedule(static)
    for (int i = 0; i < n_rows * rows->height; i++) {
        size_t at = (size_t)i * line;
        BY_BLOCK(block, sum_line, diff_coarse + at, diff_dst + 4 * at, rows->width);
    }
    return DT_OK;
}

DT_CPU_OP(upsample_add, prepare_upsampling, run_upsample_add, true);
DT_CPU_OP(upsample_add_bwd, prepare_upsampling, run_upsample_add_bwd, true);
