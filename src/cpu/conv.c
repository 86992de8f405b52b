/* Convolution and its two gradients by oneDNN.
 *
 * Every format is left to oneDNN ("any"), which picks blocked ones; only images (a few channels)
 * are taken as they are stored, because blocking would pad 3 channels to 16. The first forward
 * convolution fixes the format of the weights, and gradient and momentum share it; the backward
 * passes copy through scratch where they want another one. */
#include "cpu.h"

enum { MAX_IMAGE_CHANNELS = 4 };

/* What oneDNN may choose, and the window. Unused md stay NULL. */
struct shapes {
    dt_md src, weights, bias, dst;
    struct dt_window window;
};

static void shapes_reset(struct shapes *s)
{
    dt_md_destroy(s->src);
    dt_md_destroy(s->weights);
    dt_md_destroy(s->bias);
    dt_md_destroy(s->dst);
}

static dt_status make_any(dt_md *md, const struct dt_tensor *t)
{
    dnnl_dims_t dims;
    int n_dims = dt_cpu_dims(dims, t);
    DT_TRY(DT_DNNL(t->name,
                   dt_md_create(md, n_dims, dims, n_dims == 1 ? dnnl_a : dnnl_format_tag_any)));
    return DT_OK;
}

/* src, weights, dst: tensor ids in the forward sense, of values or of gradients; bias may be -1. */
static dt_status shapes_init(struct shapes *s, const struct dt_exec *exec, int src, int weights,
                             int bias, int dst)
{
    const struct dt_tensor *tensor = exec->graph->tensor;
    const struct dt_cpu_format *stored = dt_cpu_format_of(exec->formats, src);

    *s = (struct shapes){0};
    for (int i = 0; i < 2; i++) {
        s->window.stride[i] = exec->node->attr.conv.stride;
        s->window.pad[i] = exec->node->attr.conv.pad;
    }
    if (stored->md && tensor[src].dim[1] <= MAX_IMAGE_CHANNELS)
        DT_TRY(DT_DNNL(tensor[src].name, dt_md_clone(&s->src, stored->md)));
    else
        DT_TRY(make_any(&s->src, &tensor[src]));
    DT_TRY(make_any(&s->weights, &tensor[weights]));
    if (bias >= 0)
        DT_TRY(make_any(&s->bias, &tensor[bias]));
    DT_TRY(make_any(&s->dst, &tensor[dst]));
    return DT_OK;
}

/* A port in the format that pd has at (query, index), as an argument of the primitive. */
static dt_status add_port(struct dt_device *dev, struct dt_exec *exec, dnnl_primitive_desc_t pd,
                          dnnl_query_t query, int index, int arg)
{
    DT_TRY(dt_cpu_port_add(dev, exec, dnnl_primitive_desc_query_md(pd, query, index)));
    DT_TRY(dt_cpu_port_argument(dev, exec, arg, NULL));
    return DT_OK;
}

static dt_status prepare_conv(struct dt_device *dev, struct dt_exec *exec)
{
    dt_status status = DT_OK;
    const struct dt_node *node = exec->node;
    struct shapes s = {0};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    int bias = node->n_src > 2 ? node->src[2] : -1;

    DT_TRY_OUT(shapes_init(&s, exec, node->src[0], node->src[1], bias, node->dst[0]));
    DT_TRY_OUT(DT_DNNL(node->name, dt_attr_create(&attr, node->relu)));
    DT_TRY_OUT(DT_DNNL(node->name, dt_pd_conv(&pd, dev->engine, s.src, s.weights, s.bias, s.dst,
                                              &s.window, attr)));
    DT_TRY_OUT(add_port(dev, exec, pd, dnnl_query_src_md, 0, DNNL_ARG_SRC));
    DT_TRY_OUT(add_port(dev, exec, pd, dnnl_query_weights_md, 0, DNNL_ARG_WEIGHTS));
    if (bias >= 0)
        DT_TRY_OUT(add_port(dev, exec, pd, dnnl_query_weights_md, 1, DNNL_ARG_BIAS));
    DT_TRY_OUT(add_port(dev, exec, pd, dnnl_query_dst_md, 0, DNNL_ARG_DST));
    DT_TRY_OUT(dt_cpu_primitive(dev, exec, pd));
out:
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    shapes_reset(&s);
    return status;
}

static dt_status prepare_conv_bwd_data(struct dt_device *dev, struct dt_exec *exec)
{
    dt_status status = DT_OK;
    const struct dt_node *node = exec->node;
    struct shapes s = {0};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t hint = NULL, pd = NULL;

    DT_TRY_OUT(shapes_init(&s, exec, node->dst[0], node->src[1], -1, node->src[0]));
    DT_TRY_OUT(DT_DNNL(node->name, dt_attr_create(&attr, false)));
    DT_TRY_OUT(DT_DNNL(node->name, dt_pd_conv(&hint, dev->engine, s.src, s.weights, NULL, s.dst,
                                              &s.window, attr)));
    DT_TRY_OUT(DT_DNNL(node->name, dt_pd_conv_bwd_data(&pd, dev->engine, s.src, s.weights, s.dst,
                                                       &s.window, hint, attr)));
    DT_TRY_OUT(add_port(dev, exec, pd, dnnl_query_diff_dst_md, 0, DNNL_ARG_DIFF_DST));
    DT_TRY_OUT(add_port(dev, exec, pd, dnnl_query_weights_md, 0, DNNL_ARG_WEIGHTS));
    DT_TRY_OUT(add_port(dev, exec, pd, dnnl_query_diff_src_md, 0, DNNL_ARG_DIFF_SRC));
    DT_TRY_OUT(dt_cpu_primitive(dev, exec, pd));
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

static dt_status prepare_conv_bwd_weights(struct dt_device *dev, struct dt_exec *exec)
{
    dt_status status = DT_OK;
    const struct dt_node *node = exec->node;
    struct shapes s = {0};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t hint = NULL, pd = NULL;
    int bias = node->n_dst > 1 ? node->dst[1] : -1;

    DT_TRY_OUT(shapes_init(&s, exec, node->src[0], node->dst[0], bias, node->src[1]));
    DT_TRY_OUT(DT_DNNL(node->name, dt_attr_create(&attr, false)));
    DT_TRY_OUT(DT_DNNL(node->name, dt_pd_conv(&hint, dev->engine, s.src, s.weights, s.bias, s.dst,
                                              &s.window, attr)));
    DT_TRY_OUT(DT_DNNL(node->name, dt_pd_conv_bwd_weights(&pd, dev->engine, s.src, s.weights,
                                                          s.bias, s.dst, &s.window, hint, attr)));
    DT_TRY_OUT(add_port(dev, exec, pd, dnnl_query_src_md, 0, DNNL_ARG_SRC));
    DT_TRY_OUT(add_port(dev, exec, pd, dnnl_query_diff_dst_md, 0, DNNL_ARG_DIFF_DST));
    DT_TRY_OUT(add_port(dev, exec, pd, dnnl_query_diff_weights_md, 0, DNNL_ARG_DIFF_WEIGHTS));
    if (bias >= 0)
        DT_TRY_OUT(add_port(dev, exec, pd, dnnl_query_diff_weights_md, 1, DNNL_ARG_DIFF_BIAS));
    DT_TRY_OUT(dt_cpu_primitive(dev, exec, pd));
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

const struct dt_cpu_op dt_cpu_conv = {prepare_conv, dt_cpu_run_primitive};
const struct dt_cpu_op dt_cpu_conv_bwd_data = {prepare_conv_bwd_data, dt_cpu_run_primitive};
const struct dt_cpu_op dt_cpu_conv_bwd_weights = {prepare_conv_bwd_weights, dt_cpu_run_primitive};
