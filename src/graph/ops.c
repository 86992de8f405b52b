/* The op table, generated from DT_OP_LIST: name and arity from the list, and per op one RULE_ line
 * with shape inference, count of floating-point operations and gradient rule.
 *
 * Convolution and linear dominate the time and are counted exactly; the numbers of the other ops
 * are nominal, they are bound by bytes (dt_plan_node_bytes). */
#include "graph/ops.h"

static const struct dt_tensor *tensor(const struct dt_graph *g, int id)
{
    return &g->tensor[id];
}

/* --- Shapes --- */

static dt_status infer_window(const struct dt_node *node, int dim[4], int kernel, int stride,
                              int pad)
{
    if (kernel < 1 || stride < 1 || pad < 0 || pad >= kernel)
        DT_FAIL(DT_ERR_CONFIG, "%s: kernel %d, stride %d, padding %d is not a valid window",
                node->name, kernel, stride, pad);
    for (int i = 2; i < 4; i++) {
        if (dim[i] + 2 * pad < kernel)
            DT_FAIL(DT_ERR_CONFIG,
                    "%s: a %dx%d window does not fit in %dx%d with padding %d; "
                    "use a larger model.image_size",
                    node->name, kernel, kernel, dim[2], dim[3], pad);
    }
    for (int i = 2; i < 4; i++)
        dim[i] = (dim[i] + 2 * pad - kernel) / stride + 1;
    return DT_OK;
}

static dt_status infer_conv(const struct dt_graph *g, const struct dt_node *node, int dim[4])
{
    const struct dt_tensor *weights = tensor(g, node->src[1]);
    if (weights->dim[1] != dim[1])
        DT_FAIL(DT_ERR_INTERNAL, "%s: %d channels come in, the weights have %d", node->name, dim[1],
                weights->dim[1]);
    DT_TRY(infer_window(node, dim, weights->dim[2], node->attr.conv.stride, node->attr.conv.pad));
    dim[1] = weights->dim[0];
    return DT_OK;
}

static dt_status infer_max_pool(const struct dt_graph *g, const struct dt_node *node, int dim[4])
{
    (void)g;
    DT_TRY(infer_window(node, dim, node->attr.pool.kernel, node->attr.pool.stride,
                        node->attr.pool.pad));
    return DT_OK;
}

static dt_status infer_add(const struct dt_graph *g, const struct dt_node *node, int dim[4])
{
    const struct dt_tensor *b = tensor(g, node->src[1]);
    for (int i = 0; i < 4; i++) {
        if (b->dim[i] != dim[i]) {
            char text_a[48], text_b[48];
            DT_FAIL(DT_ERR_INTERNAL, "%s: cannot add %s and %s", node->name,
                    dt_tensor_format_dims(text_a, sizeof text_a, tensor(g, node->src[0])),
                    dt_tensor_format_dims(text_b, sizeof text_b, b));
        }
    }
    return DT_OK;
}

static dt_status infer_linear(const struct dt_graph *g, const struct dt_node *node, int dim[4])
{
    const struct dt_tensor *weights = tensor(g, node->src[1]);
    size_t features = (size_t)dim[1] * (size_t)dim[2] * (size_t)dim[3];
    if ((size_t)weights->dim[1] != features)
        DT_FAIL(DT_ERR_INTERNAL, "%s: %zu features come in, the weights have %d", node->name,
                features, weights->dim[1]);
    dim[1] = weights->dim[0];
    dim[2] = dim[3] = 1;
    return DT_OK;
}

/* --- Floating-point operations --- */

/* 2 * (elements of the output side) * (inputs per output), for all three passes alike. */
static double flops_product(const struct dt_tensor *dst, const struct dt_tensor *weights)
{
    double inputs = (double)weights->dim[1] * weights->dim[2] * weights->dim[3];
    return 2.0 * (double)dt_tensor_elements(dst) * inputs;
}

static double flops_forward(const struct dt_graph *g, const struct dt_node *node)
{
    return flops_product(tensor(g, node->dst[0]), tensor(g, node->src[1]));
}

static double flops_bwd_data(const struct dt_graph *g, const struct dt_node *node)
{
    return flops_product(tensor(g, node->src[0]), tensor(g, node->src[1]));
}

static double flops_bwd_weights(const struct dt_graph *g, const struct dt_node *node)
{
    return flops_product(tensor(g, node->src[1]), tensor(g, node->dst[0]));
}

/* --- The table: infer, flops, per element, gradient --- */
#define RULE_INGEST             NULL, NULL, 2, NULL
#define RULE_CONV               infer_conv, flops_forward, 0, dt_gradient_conv
#define RULE_BN                 NULL, NULL, 5, dt_gradient_bn
#define RULE_RELU               NULL, NULL, 1, dt_gradient_relu
#define RULE_ADD                infer_add, NULL, 1, dt_gradient_add
#define RULE_MAX_POOL           infer_max_pool, NULL, 2, dt_gradient_max_pool
#define RULE_AVG_POOL           NULL, NULL, 1, dt_gradient_avg_pool
#define RULE_LINEAR             infer_linear, flops_forward, 0, dt_gradient_linear
#define RULE_DROPOUT            NULL, NULL, 1, dt_gradient_dropout
#define RULE_SOFTMAX_XENT       NULL, NULL, 5, dt_gradient_softmax_xent
#define RULE_CONV_BWD_DATA      NULL, flops_bwd_data, 0, NULL
#define RULE_CONV_BWD_WEIGHTS   NULL, flops_bwd_weights, 0, NULL
#define RULE_BN_BWD             NULL, NULL, 8, NULL
#define RULE_RELU_BWD           NULL, NULL, 1, NULL
#define RULE_MAX_POOL_BWD       NULL, NULL, 1, NULL
#define RULE_AVG_POOL_BWD       NULL, NULL, 1, NULL
#define RULE_LINEAR_BWD_DATA    NULL, flops_bwd_data, 0, NULL
#define RULE_LINEAR_BWD_WEIGHTS NULL, flops_bwd_weights, 0, NULL
#define RULE_DROPOUT_BWD        NULL, NULL, 1, NULL

static const struct dt_op_row table[DT_N_OPS] = {
#define ROW(NAME, name, min_src, max_src, min_dst, max_dst, inplace) \
    [DT_OP_##NAME] = {#name, min_src, max_src, min_dst, max_dst, inplace, RULE_##NAME},
    DT_OP_LIST(ROW)
#undef ROW
};

const struct dt_op_row *dt_op_row(enum dt_op op)
{
    return &table[op];
}

const char *dt_op_name(enum dt_op op)
{
    return table[op].name;
}

unsigned dt_op_inplace(enum dt_op op)
{
    return table[op].inplace;
}

double dt_node_flops(const struct dt_graph *g, const struct dt_node *node)
{
    const struct dt_op_row *row = &table[node->op];
    if (row->flops)
        return row->flops(g, node);
    return row->per_element * (double)dt_tensor_elements(tensor(g, node->src[0]));
}
