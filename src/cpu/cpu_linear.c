/* Linear layers by oneDNN's inner product.
 *
 * The source keeps its four dimensions N C H W and its blocked format; the weights are presented to
 * oneDNN as O C H W, so no flattening copy is made. Their logical order O x (C*H*W) is the same as
 * plain O C H W. The first forward node lets oneDNN choose the format of the weights; all other
 * nodes use it if they can, because these weights are large and copying them costs more than the
 * product. */
#include <string.h>

#include "cpu/cpu_internal.h"

enum kind { FORWARD, BWD_DATA, BWD_WEIGHTS };

/* The operands of one node, named as in the forward pass; values or gradients. */
struct product {
    enum kind kind;
    int src, weights, dst; /* tensors */
    dt_md src_md, weights_md, bias_md;
    dt_md values_md;   /* of the weights, where weights_md is of their gradient in another type */
    dt_md dst_md;      /* N x O, the result of oneDNN */
    dt_md dst_rows_md; /* the same bytes as N x O x 1 x 1, the stored format */
    dnnl_dims_t weights_dims;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t hint, pd;
};

static dt_status product_init(struct product *p, const struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    const enum kind kind = node->op == DT_OP_LINEAR            ? FORWARD
                           : node->op == DT_OP_LINEAR_BWD_DATA ? BWD_DATA
                                                               : BWD_WEIGHTS;
    *p = (struct product){.kind = kind,
                          .src = kind == BWD_DATA ? node->dst[0] : node->src[0],
                          .weights = kind == BWD_WEIGHTS ? node->dst[0] : node->src[1],
                          .dst = kind == FORWARD    ? node->dst[0]
                                 : kind == BWD_DATA ? node->src[0]
                                                    : node->src[1]};
    const struct dt_tensor *in = &exec->graph->tensor[p->src];
    const struct dt_tensor *out = &exec->graph->tensor[p->dst];
    const dnnl_dims_t weights = {out->dim[1], in->dim[1], in->dim[2], in->dim[3]};
    const dnnl_dims_t bias = {out->dim[1]};
    dnnl_dims_t rows;

    memcpy(p->weights_dims, weights, sizeof weights);
    (void)dt_cpu_dims(rows, out);
    DT_TRY(DT_DNNL(node->name, dt_md_create(&p->bias_md, DT_F32, 1, bias, dnnl_a)));
    const enum dt_dtype type = dt_cpu_wanted_type(exec, p->dst);
    DT_TRY(DT_DNNL(node->name, dt_md_create(&p->dst_md, type, 2, rows, dnnl_ab)));
    DT_TRY(DT_DNNL(node->name, dt_md_create(&p->dst_rows_md, type, 4, rows, dnnl_abcd)));
    return DT_DNNL(node->name, dt_attr_create(&p->attr, false));
}

/* The tensor whose format the source takes: for a gradient, its value. */
static int find_src(const struct dt_exec *exec, const struct product *p)
{
    for (int i = 0; p->kind == BWD_DATA && i < exec->graph->n_nodes; i++) {
        const struct dt_node *node = &exec->graph->node[i];
        if (node->op == DT_OP_LINEAR && node->program == exec->node->program &&
            node->src[1] == p->weights)
            return node->src[0];
    }
    return p->src;
}

/* oneDNN's reference code accepts every format but is far too slow to be used. */
static bool is_reference(dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) != dnnl_success ||
           strncmp(name, "ref", 3) == 0;
}

/* Tries one combination; sets p->pd on success. */
static dt_status try_formats(struct dt_exec *exec, struct product *p, dnnl_format_tag_t src,
                             dt_md_ref weights)
{
    const char *name = exec->node->name;
    dt_md_destroy(p->src_md);
    dt_md_destroy(p->weights_md);
    dt_md_destroy(p->values_md);
    p->src_md = p->weights_md = p->values_md = NULL;
    DT_TRY(dt_cpu_rows_choose(&exec->rows, &p->src_md, exec, find_src(exec, p), src));
    if (weights)
        DT_TRY(DT_DNNL(name, dt_md_clone(&p->weights_md, weights)));
    else
        DT_TRY(DT_DNNL(name, dt_md_create(&p->weights_md, dt_cpu_wanted_type(exec, p->weights), 4,
                                          p->weights_dims, dnnl_format_tag_any)));
    if (p->kind == BWD_WEIGHTS && exec->type == DT_BF16)
        DT_TRY(DT_DNNL(
            name, dt_md_create(&p->values_md, DT_BF16, 4, p->weights_dims, dnnl_format_tag_any)));

    dnnl_primitive_desc_t *first = p->kind == FORWARD ? &p->pd : &p->hint;
    dnnl_status_t status =
        dt_pd_linear(first, exec->dev->engine, p->src_md,
                     p->values_md ? p->values_md : p->weights_md, p->bias_md, p->dst_md, p->attr);
    if (status == dnnl_success && p->kind == BWD_DATA)
        status = dt_pd_linear_bwd_data(&p->pd, exec->dev->engine, p->src_md, p->weights_md,
                                       p->dst_md, p->hint, p->attr);
    if (status == dnnl_success && p->kind == BWD_WEIGHTS)
        status = dt_pd_linear_bwd_weights(&p->pd, exec->dev->engine, p->src_md, p->weights_md,
                                          p->bias_md, p->dst_md, p->hint, p->attr);
    if (!weights)
        DT_TRY(DT_DNNL(name, status));
    bool usable = status == dnnl_success && (!weights || !is_reference(p->pd));
    if (!usable && p->pd) {
        dnnl_primitive_desc_destroy(p->pd);
        p->pd = NULL;
    }
    if (!usable && p->hint) {
        dnnl_primitive_desc_destroy(p->hint);
        p->hint = NULL;
    }
    return DT_OK;
}

static dt_status add_port(struct dt_exec *exec, dt_md_ref md, int arg)
{
    DT_TRY(dt_cpu_port_add(exec, md));
    return dt_cpu_port_argument(exec, arg, NULL);
}

static dt_status add_weights(struct dt_exec *exec, const struct product *p, dnnl_query_t query,
                             int arg)
{
    dt_md_ref md = dnnl_primitive_desc_query_md(p->pd, query, 0);
    DT_TRY(dt_cpu_port_add_dims(exec, md, 4, p->weights_dims));
    return dt_cpu_port_argument(exec, arg, NULL);
}

static dt_status add_dst(struct dt_exec *exec, const struct product *p, int arg)
{
    DT_TRY(dt_cpu_port_add(exec, p->dst_rows_md));
    return dt_cpu_port_argument(exec, arg, p->dst_md);
}

/* Ports are added in the order of the node's tensors. */
static dt_status add_ports(struct dt_exec *exec, const struct product *p)
{
    switch (p->kind) {
    case FORWARD:
        DT_TRY(add_port(exec, p->src_md, DNNL_ARG_SRC));
        DT_TRY(add_weights(exec, p, dnnl_query_weights_md, DNNL_ARG_WEIGHTS));
        DT_TRY(add_port(exec, p->bias_md, DNNL_ARG_BIAS));
        DT_TRY(add_dst(exec, p, DNNL_ARG_DST));
        break;
    case BWD_DATA:
        DT_TRY(add_dst(exec, p, DNNL_ARG_DIFF_DST));
        DT_TRY(add_weights(exec, p, dnnl_query_weights_md, DNNL_ARG_WEIGHTS));
        DT_TRY(add_port(exec, p->src_md, DNNL_ARG_DIFF_SRC));
        break;
    case BWD_WEIGHTS:
        DT_TRY(add_port(exec, p->src_md, DNNL_ARG_SRC));
        DT_TRY(add_dst(exec, p, DNNL_ARG_DIFF_DST));
        DT_TRY(add_weights(exec, p, dnnl_query_diff_weights_md, DNNL_ARG_DIFF_WEIGHTS));
        DT_TRY(add_port(exec, p->bias_md, DNNL_ARG_DIFF_BIAS));
        break;
    }
    return DT_OK;
}

static dt_status prepare_linear(struct dt_exec *exec)
{
    dt_status status = DT_OK;
    struct product p = {0};

    exec->type = dt_cpu_product_type(exec);
    DT_TRY_OUT(product_init(&p, exec));
    const struct dt_cpu_format *format = dt_cpu_format_of(exec->formats, p.weights);
    dt_md_ref stored = dt_cpu_wanted_type(exec, p.weights) == DT_BF16 ? format->shadow : format->md;
    if (stored)
        DT_TRY_OUT(try_formats(exec, &p, dnnl_format_tag_any, stored));
    if (stored && !p.pd)
        DT_TRY_OUT(try_formats(exec, &p, dnnl_abcd, stored));
    if (!p.pd)
        DT_TRY_OUT(try_formats(exec, &p, dnnl_format_tag_any, NULL));
    DT_TRY_OUT(add_ports(exec, &p));
    DT_TRY_OUT(dt_cpu_primitive(exec, p.pd));
out:
    dt_md_destroy(p.src_md);
    dt_md_destroy(p.weights_md);
    dt_md_destroy(p.values_md);
    dt_md_destroy(p.bias_md);
    dt_md_destroy(p.dst_md);
    dt_md_destroy(p.dst_rows_md);
    if (p.pd)
        dnnl_primitive_desc_destroy(p.pd);
    if (p.hint)
        dnnl_primitive_desc_destroy(p.hint);
    if (p.attr)
        dnnl_primitive_attr_destroy(p.attr);
    return status;
}

DT_CPU_OP(linear, prepare_linear, dt_cpu_run_primitive, true);
DT_CPU_OP(linear_bwd_data, prepare_linear, dt_cpu_run_primitive, true);
DT_CPU_OP(linear_bwd_weights, prepare_linear, dt_cpu_run_primitive, true);
