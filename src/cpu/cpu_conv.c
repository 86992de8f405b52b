/* Convolution and its two gradients by oneDNN, or by our own Winograd (winograd.c) and loops
 * (conv_weights.c, conv_depthwise.c).
 *
 * Formats that are not chosen yet are left to oneDNN ("any"), which picks blocked ones; images (a
 * few channels) are used as stored, because blocking would pad 3 channels to 16. Other activations
 * are used as stored if oneDNN generates code for that. Left to choose, oneDNN 3.x takes nhwc for
 * the gradients of the data with stride 2, and copying from and to that costs more than it gains.
 * The first forward convolution fixes the format of the weights, which gradient and momentum share;
 * the backward passes copy through scratch if they want another one.
 *
 * oneDNN's ReLU after a convolution turns NaN into 0; the backend's own does not. */
#include "cpu/cpu_internal.h"

#include <string.h>

#include "base/mem.h"

enum { MAX_IMAGE_CHANNELS = 4 };

/* Ids of the tensors in these roles of the forward pass, values or gradients; bias may be -1. */
struct roles {
    int src, weights, bias, dst;
};

/* Weights as oneDNN sees them: O I H W or, with groups, G O I H W. Groups that fill no block, but
 * for those of one channel, are merged until they do. */
struct weights {
    int n_dims;
    dnnl_dims_t dims;
    struct dt_cpu_merge merge;
};

static struct weights weights_of(const struct dt_exec *exec, const struct roles *id)
{
    const struct dt_tensor *t = &exec->graph->tensor[id->weights];
    const int groups = dt_conv_groups(exec->graph, exec->node);
    const int inputs = t->dim[1], outputs = t->dim[0] / groups;
    int merged = 1;
    struct weights w = {.n_dims = 4};
    if (groups == 1) {
        const dnnl_dims_t dims = {exec->mirrored ? inputs : outputs,
                                  exec->mirrored ? outputs : inputs, t->dim[2], t->dim[3]};
        memcpy(w.dims, dims, sizeof dims);
    } else {
        const bool depthwise = inputs == 1 && outputs == 1;
        while (!depthwise && merged < groups &&
               (groups % merged != 0 || merged * inputs % DT_CPU_BLOCK != 0 ||
                merged * outputs % DT_CPU_BLOCK != 0))
            merged++;
        const dnnl_dims_t dims = {groups / merged, merged * outputs, merged * inputs, t->dim[2],
                                  t->dim[3]};
        memcpy(w.dims, dims, sizeof dims);
        w.n_dims = 5;
    }
    w.merge = (struct dt_cpu_merge){.merged = merged,
                                    .outputs = t->dim[0],
                                    .row = (size_t)inputs * (size_t)(t->dim[2] * t->dim[3]),
                                    .per_group = outputs};
    return w;
}

/* The formats that oneDNN may choose, and the window. Unused md stay NULL. */
struct shapes {
    dt_md src, weights, bias, dst;
    dt_md diff_weights; /* their gradient is always fp32 */
    struct dt_window window;
};

/* The plain format where blocks of channels have wrong gradients: strided depthwise windows with
 * gaps, with 512-bit SVE in oneDNN 2.6 (jit_dw:sve_512). */
static dnnl_format_tag_t tag_of(const struct dt_exec *exec)
{
#ifdef __aarch64__
    if (exec->node->attr.conv.stride > 1 && exec->node->attr.conv.dilation > 1 &&
        dt_conv_groups(exec->graph, exec->node) > 1)
        return dnnl_nchw;
#endif
    (void)exec;
    return dnnl_format_tag_any;
}

/* With a stride the convolution gives the gradient of the pixels that are read; others have none.
 */
static bool is_spread(const struct dt_exec *exec)
{
    return exec->mirrored && exec->node->attr.conv.stride > 1;
}

static dt_status make_activation(dt_md *md, const struct dt_exec *exec, int id, bool as_stored)
{
    const struct dt_tensor *t = &exec->graph->tensor[id];
    const struct dt_cpu_format *stored = dt_cpu_format_of(exec->formats, id);
    dnnl_dims_t dims;
    const int n_dims = dt_cpu_dims(dims, t);
    if (exec->n_passes > 1)
        dims[0] /= exec->n_passes;
    if (is_spread(exec) && id == exec->node->dst[0])
        for (int i = 2; i < 4; i++)
            dims[i] = exec->graph->tensor[exec->node->src[DT_BWD_DATA_DIFF_DST]].dim[i];
    const bool in_parts = stored->md && exec->n_passes > 1; /* which only change the type */
    if (exec->formats->nhwc && as_stored && !in_parts)
        return DT_DNNL(t->name, dt_md_create(md, exec->type, n_dims, dims, dnnl_acdb));
    if (stored->md && as_stored && tag_of(exec) == dnnl_format_tag_any)
        return DT_DNNL(t->name, dt_md_retype(md, stored->md, exec->type, n_dims, dims));
    return DT_DNNL(t->name, dt_md_create(md, exec->type, n_dims, dims, tag_of(exec)));
}

static int mirrored_pad(const struct dt_exec *exec, const struct roles *id)
{
    const int kernel = exec->graph->tensor[id->weights].dim[2];
    return exec->node->attr.conv.dilation * (kernel - 1) - exec->node->attr.conv.pad;
}

static dt_status shapes_init(struct shapes *s, const struct dt_exec *exec, const struct roles *id,
                             bool as_stored)
{
    const struct dt_tensor *tensor = exec->graph->tensor;
    bool is_image = tensor[id->src].dim[1] <= MAX_IMAGE_CHANNELS;
    const int stride = exec->mirrored ? 1 : exec->node->attr.conv.stride;
    const int pad = exec->mirrored ? mirrored_pad(exec, id) : exec->node->attr.conv.pad;
    const int gap = exec->node->attr.conv.dilation - 1;
    const struct weights w = weights_of(exec, id);
    const char *name = exec->node->name;

    *s = (struct shapes){
        .window = {.stride = {stride, stride}, .pad = {pad, pad}, .gap = {gap, gap}}};
    DT_TRY(make_activation(&s->src, exec, id->src, as_stored || is_image));
    DT_TRY(DT_DNNL(name,
                   dt_md_create(&s->weights, exec->type, w.n_dims, w.dims, dnnl_format_tag_any)));
    DT_TRY(DT_DNNL(name,
                   dt_md_create(&s->diff_weights, DT_F32, w.n_dims, w.dims, dnnl_format_tag_any)));
    if (id->bias >= 0) {
        const dnnl_dims_t channels = {tensor[id->bias].dim[0]};
        DT_TRY(DT_DNNL(name, dt_md_create(&s->bias, DT_F32, 1, channels, dnnl_a)));
    }
    return make_activation(&s->dst, exec, id->dst, as_stored);
}

/* --- The descriptors of the three operations --- */

typedef dnnl_status_t make_fn(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                              const struct shapes *s, const_dnnl_primitive_attr_t attr);

static dnnl_status_t make_forward(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                  const struct shapes *s, const_dnnl_primitive_attr_t attr)
{
    return dt_pd_conv(pd, engine, s->src, s->weights, s->bias, s->dst, &s->window, attr);
}

static dnnl_status_t make_bwd_data(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                   const struct shapes *s, const_dnnl_primitive_attr_t attr)
{
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t status = make_forward(&hint, engine, s, attr);
    if (status != dnnl_success)
        return status;
    status = dt_pd_conv_bwd_data(pd, engine, s->src, s->weights, s->dst, &s->window, hint, attr);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

static dnnl_status_t make_bwd_weights(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                      const struct shapes *s, const_dnnl_primitive_attr_t attr)
{
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t status = make_forward(&hint, engine, s, attr);
    if (status != dnnl_success)
        return status;
    status = dt_pd_conv_bwd_weights(pd, engine, s->src, s->diff_weights, s->bias, s->dst,
                                    &s->window, hint, attr);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

/* oneDNN's other code for convolutions, plain loops and im2col, is several times slower. */
static bool is_generated(const_dnnl_primitive_desc_t pd)
{
    const char *name;
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success &&
           (!strncmp(name, "jit", 3) || !strncmp(name, "brg", 3));
}

/* *pd remains NULL if the activations are wanted as stored or in bf16, and oneDNN generates no code
 * for that. The caller destroys it. */
static dt_status make_conv_pd(dnnl_primitive_desc_t *pd, const struct dt_exec *exec,
                              const struct roles *id, bool as_stored, make_fn *make_pd)
{
    const char *name = exec->node->name;
    dt_status status = DT_OK;
    dnnl_primitive_attr_t attr = NULL;
    struct shapes s = {0};

    DT_TRY_OUT(shapes_init(&s, exec, id, as_stored));
    DT_TRY_OUT(DT_DNNL(name, dt_attr_create(&attr, exec->node->activation == DT_RELU)));
    dnnl_status_t created = make_pd(pd, exec->dev->engine, &s, attr);
    const bool is_picky = as_stored || exec->type == DT_BF16;
    if (is_picky && created == dnnl_success && !is_generated(*pd)) {
        dnnl_primitive_desc_destroy(*pd);
        *pd = NULL;
    }
    if (!is_picky || created != dnnl_unimplemented)
        DT_TRY_OUT(dt_dnnl_check(created, "creating a convolution", name));
out:
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    dt_md_destroy(s.src);
    dt_md_destroy(s.weights);
    dt_md_destroy(s.diff_weights);
    dt_md_destroy(s.bias);
    dt_md_destroy(s.dst);
    return status;
}

/* --- Nodes --- */

/* One tensor of a node, in the node's order: how to find its format in the descriptor, and its
 * argument in the primitive. */
struct port {
    dnnl_query_t query;
    int index; /* 1: the bias or its gradient, which is optional */
    int arg;
};

/* Weights have the format of fp32 convolutions in bf16 too: that of their gradient. */
static dt_status set_weights_format(struct dt_exec *exec, const struct roles *id)
{
    dt_status status = DT_OK;
    dnnl_primitive_desc_t pd = NULL;
    const struct weights w = weights_of(exec, id);
    if (exec->type == DT_F32 || w.merge.merged > 1 ||
        dt_cpu_format_of(exec->formats, id->weights)->md)
        return DT_OK;
    exec->type = DT_F32;
    DT_TRY_OUT(make_conv_pd(&pd, exec, id, false, make_forward));
    DT_TRY_OUT(dt_cpu_format_set(exec->formats, id->weights,
                                 dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0),
                                 w.n_dims, w.dims));
    exec->type = DT_BF16;
out:
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    return status;
}

/* In bf16 with AMX oneDNN beats Winograd's algorithm, which is fp32, everywhere; with AVX-512's
 * instructions for bf16, which double the rate of fp32, where that saves less than half. */
static bool has_fast_direct(const struct dt_exec *exec)
{
    return dt_cpu_product_type(exec) == DT_BF16 &&
           (dt_cpu_has(dnnl_cpu_isa_avx512_core_amx) || exec->node->attr.conv.stride > 1);
}

/* As few as keep the converted activations of a pass in a cache. */
static int passes_of(const struct dt_exec *exec, const struct roles *id)
{
    const size_t cached = (size_t)6 << 20;
    const struct dt_tensor *tensor = exec->graph->tensor;
    const int n = tensor[id->src].dim[0];
    const size_t bytes = sizeof(float) * (dt_tensor_elements(&tensor[id->src]) +
                                          dt_tensor_elements(&tensor[id->dst]));
    int n_passes = 1;
    while (n_passes < n && (n % n_passes != 0 || bytes / (size_t)n_passes > cached))
        n_passes++;
    return n_passes;
}

/* The next port of a primitive. */
static dt_status add_port(struct dt_exec *exec, const struct roles *id, const struct port *port,
                          dt_md_ref md)
{
    const bool is_weights = port->index == 0 && (port->query == dnnl_query_weights_md ||
                                                 port->query == dnnl_query_diff_weights_md);
    if (is_weights) {
        const struct weights w = weights_of(exec, id);
        DT_TRY(w.merge.merged > 1 ? dt_cpu_port_add_merged(exec, md, w.dims, &w.merge)
                                  : dt_cpu_port_add_dims(exec, md, w.n_dims, w.dims));
    } else if (is_spread(exec) && port->query == dnnl_query_dst_md) {
        dt_md all = NULL;
        DT_TRY(dt_cpu_rows_choose(&exec->rows, &all, exec, id->dst, dnnl_acdb));
        dt_status status = dt_cpu_port_add(exec, all);
        dt_md_destroy(all);
        DT_TRY(status);
        return dt_cpu_port_argument(exec, port->arg, md);
    } else
        DT_TRY(dt_cpu_port_add(exec, md));
    return dt_cpu_port_argument(exec, port->arg, NULL);
}

static dt_status prepare_conv_op(struct dt_exec *exec, struct roles id, make_fn *make_pd,
                                 const struct port *ports, size_t n_ports)
{
    dt_status status = DT_OK;
    dnnl_primitive_desc_t pd = NULL;

    const struct dt_tensor *tensor = exec->graph->tensor;
    const bool is_dense =
        dt_conv_groups(exec->graph, exec->node) == 1 && exec->node->attr.conv.dilation == 1;
    if (is_dense && exec->dev->options.winograd && !exec->formats->nhwc && !has_fast_direct(exec) &&
        dt_cpu_winograd_pays(exec->node, &tensor[id.src], &tensor[id.weights]))
        return dt_cpu_winograd_prepare(exec);
    if (is_dense && dt_cpu_weights_bf16_pays(exec))
        return dt_cpu_weights_bf16_prepare(exec);
    if (dt_cpu_depthwise_pays(exec))
        return dt_cpu_depthwise_prepare(exec);
    exec->type = dt_cpu_product_type(exec);
    DT_TRY_OUT(set_weights_format(exec, &id));
    if (exec->type == DT_BF16)
        DT_TRY_OUT(make_conv_pd(&pd, exec, &id, true, make_pd));
    if (!pd && exec->type == DT_BF16)
        DT_TRY_OUT(make_conv_pd(&pd, exec, &id, false, make_pd));
    if (!pd) {
        exec->type = DT_F32;
        exec->n_passes = exec->formats->type == DT_BF16 ? passes_of(exec, &id) : 1;
        DT_TRY_OUT(make_conv_pd(&pd, exec, &id, true, make_pd));
    }
    if (!pd) {
        exec->n_passes = 1;
        DT_TRY_OUT(make_conv_pd(&pd, exec, &id, false, make_pd));
    }
    for (size_t i = 0; i < n_ports; i++) {
        const struct port *port = &ports[i];
        if (port->index == 0 || id.bias >= 0)
            DT_TRY_OUT(add_port(exec, &id, port,
                                dnnl_primitive_desc_query_md(pd, port->query, port->index)));
    }
    DT_TRY_OUT(dt_cpu_primitive(exec, pd));
    exec->work_offset = exec->scratch_bytes;
    if (is_spread(exec))
        (void)dt_cpu_reserve(exec, dnnl_memory_desc_get_size(
                                       dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0)));
    for (int i = exec->node->n_src; exec->n_passes > 1 && i < exec->n_ports; i++)
        if (exec->port[i].wanted)
            (void)dt_cpu_reserve(exec, dnnl_memory_desc_get_size(exec->port[i].wanted));
out:
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    return status;
}

static dt_status prepare_conv(struct dt_exec *exec)
{
    static const struct port ports[] = {{dnnl_query_src_md, 0, DNNL_ARG_SRC},
                                        {dnnl_query_weights_md, 0, DNNL_ARG_WEIGHTS},
                                        {dnnl_query_weights_md, 1, DNNL_ARG_BIAS},
                                        {dnnl_query_dst_md, 0, DNNL_ARG_DST}};
    const struct dt_node *node = exec->node;
    const struct roles roles = {node->src[DT_CONV_SRC], node->src[DT_CONV_WEIGHTS],
                                node->src[DT_CONV_BIAS], node->dst[0]};
    return prepare_conv_op(exec, roles, make_forward, ports, DT_COUNT(ports));
}

/* Whether weights are stored in the blocks from which own loops make mirrored ones. */
static dt_status has_blocks(bool *has, const struct dt_exec *exec, const struct roles *id)
{
    const struct dt_cpu_format *stored = dt_cpu_format_of(exec->formats, id->weights);
    dt_md blocks = NULL;
    *has = stored->shadow && stored->n_dims == 4;
    if (!*has)
        return DT_OK;
    DT_TRY(DT_DNNL(exec->node->name,
                   dt_md_create(&blocks, DT_BF16, 4, stored->dims, dnnl_ABcd16b16a)));
    *has = dnnl_memory_desc_equal(stored->shadow, blocks);
    dt_md_destroy(blocks);
    return DT_OK;
}

/* oneDNN has better code for convolutions by AMX than for their gradients. */
static dt_status mirror(struct dt_exec *exec, const struct roles *id)
{
    const struct dt_tensor *weights = &exec->graph->tensor[id->weights];
    dnnl_primitive_desc_t pd = NULL;
    int wide;
    bool is_in_blocks;
    DT_TRY(has_blocks(&is_in_blocks, exec, id));
    if (!is_in_blocks || !exec->formats->nhwc || dt_cpu_product_type(exec) == DT_F32 ||
        dt_conv_groups(exec->graph, exec->node) > 1 || weights->dim[2] != weights->dim[3] ||
        mirrored_pad(exec, id) < 0 ||
        (exec->node->attr.conv.stride > 1 &&
         (weights->dim[2] > 1 || exec->node->attr.conv.pad > 0)))
        return DT_OK;
    exec->mirrored = true;
    dt_status status = make_conv_pd(&pd, exec, id, true, make_forward);
    if (!pd || !dt_cpu_is_wide(&wide, dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0),
                               weights_of(exec, id).dims))
        exec->mirrored = false;
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    return status;
}

static dt_status prepare_conv_bwd_data(struct dt_exec *exec)
{
    static const struct port mirrored[] = {{dnnl_query_src_md, 0, DNNL_ARG_SRC},
                                           {dnnl_query_weights_md, 0, DNNL_ARG_WEIGHTS},
                                           {dnnl_query_dst_md, 0, DNNL_ARG_DST}};
    static const struct port ports[] = {{dnnl_query_diff_dst_md, 0, DNNL_ARG_DIFF_DST},
                                        {dnnl_query_weights_md, 0, DNNL_ARG_WEIGHTS},
                                        {dnnl_query_diff_src_md, 0, DNNL_ARG_DIFF_SRC}};
    const struct dt_node *node = exec->node;
    const struct roles roles = {node->dst[0], node->src[DT_BWD_DATA_WEIGHTS], -1,
                                node->src[DT_BWD_DATA_DIFF_DST]};
    const struct roles exchanged = {roles.dst, roles.weights, -1, roles.src};
    DT_TRY(mirror(exec, &exchanged));
    if (exec->mirrored)
        return prepare_conv_op(exec, exchanged, make_forward, mirrored, DT_COUNT(mirrored));
    return prepare_conv_op(exec, roles, make_bwd_data, ports, DT_COUNT(ports));
}

static dt_status prepare_conv_bwd_weights(struct dt_exec *exec)
{
    static const struct port ports[] = {{dnnl_query_src_md, 0, DNNL_ARG_SRC},
                                        {dnnl_query_diff_dst_md, 0, DNNL_ARG_DIFF_DST},
                                        {dnnl_query_diff_weights_md, 0, DNNL_ARG_DIFF_WEIGHTS},
                                        {dnnl_query_diff_weights_md, 1, DNNL_ARG_DIFF_BIAS}};
    const struct dt_node *node = exec->node;
    const struct roles roles = {node->src[DT_BWD_WEIGHTS_SRC], node->dst[DT_BWD_DIFF_WEIGHTS],
                                node->dst[DT_BWD_DIFF_BIAS], node->src[DT_BWD_WEIGHTS_DIFF_DST]};
    return prepare_conv_op(exec, roles, make_bwd_weights, ports, DT_COUNT(ports));
}

/* Runs the primitive into scratch, and puts its pixels where they belong. */
static dt_status run_spread(struct dt_exec *exec)
{
    const struct dt_cpu_rows *rows = &exec->rows;
    struct dt_cpu_port *port = &exec->port[exec->node->n_src];
    const int stride = exec->node->attr.conv.stride, n_lines = (rows->height + stride - 1) / stride;
    const size_t pixel = (size_t)rows->channels, line = pixel * (size_t)rows->width;
    const size_t small_line = pixel * (size_t)((rows->width + stride - 1) / stride);
    real *dst = port->data;
    DT_TRY(DT_DNNL(exec->node->name, dnnl_memory_set_data_handle(port->argument, exec->work)));
    DT_TRY(dt_cpu_run_primitive(exec));
#pragma omp parallel for schedule(static)
    for (int i = 0; i < rows->n * rows->height; i++) {
        const int image = i / rows->height, y = i % rows->height;
        const real *from =
            (const real *)exec->work + (size_t)(image * n_lines + y / stride) * small_line;
        real *to = dst + (size_t)i * line;
        if (y % stride > 0) {
            memset(to, 0, line * sizeof *to);
            continue;
        }
        for (int x = 0; x < rows->width; x++, to += pixel) {
            if (x % stride > 0)
                memset(to, 0, pixel * sizeof *to);
            else
                memcpy(to, from + (size_t)(x / stride) * pixel, pixel * sizeof *to);
        }
    }
    return DT_OK;
}

static dt_status run_conv_op(struct dt_exec *exec)
{
    if (is_spread(exec))
        return run_spread(exec);
    if (!exec->loops)
        return exec->n_passes > 1 ? dt_cpu_run_passes(exec) : dt_cpu_run_primitive(exec);
    exec->loops(exec);
    return DT_OK;
}

DT_CPU_OP(conv, prepare_conv, run_conv_op, true);
DT_CPU_OP(conv_bwd_data, prepare_conv_bwd_data, run_conv_op, true);
DT_CPU_OP(conv_bwd_weights, prepare_conv_bwd_weights, run_conv_op, true);
