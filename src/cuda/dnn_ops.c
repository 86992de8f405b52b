/* The graphs of tasks, as tables: the tensors, the operations with the names of their attributes,
 * and for each kind of task its operations in order. */
#include "cuda/dnn_ops.h"

#include <stdio.h>

#include "base/mem.h"
#include "cuda/internal.h"

typedef cudnnBackendDescriptor_t descriptor;
typedef struct dt_dnn_attribute attribute;

enum {
    ALIGNMENT = 16, /* of tensors, as required by the fast engines */
    MAX_OPERANDS = 10,
    MAX_OPS = 16,
};

/* --- Tensors --- */

enum { N_VALUES = DT_DNN_N_TENSORS };

enum size { SIZE_X, SIZE_W, SIZE_Y, PER_K };

static const struct tensor {
    enum size size;
    bool fp32; /* whatever the type of the task */
} tensors[] = {
    [DT_DNN_X] = {SIZE_X, false}, [DT_DNN_W] = {SIZE_W, false},        [DT_DNN_Y] = {SIZE_Y, false},
    [DT_DNN_SUM] = {PER_K, true}, [DT_DNN_SQUARE_SUM] = {PER_K, true},
};
_Static_assert(DT_COUNT(tensors) == DT_DNN_N_TENSORS, "a row for every tensor");

/* In the order N, C, H, W. */
static void get_dims(int64_t dims[4], const struct dt_conv_task *t, enum size size)
{
    const int sizes[][4] = {
        [SIZE_X] = {t->n, t->c, t->h, t->w},
        [SIZE_W] = {t->k, t->c, t->r, t->s},
        [SIZE_Y] = {t->n, t->k, dt_conv_out_h(t), dt_conv_out_w(t)},
        [PER_K] = {1, t->k, 1, 1},
    };
    for (int i = 0; i < 4; i++)
        dims[i] = sizes[size][i];
}

/* --- Operations --- */

enum op_type { NO_OP, CONV_FORWARD, CONV_BWD_DATA, CONV_BWD_WEIGHTS, SUMS };

static const float one = 1, zero = 0;
static const cudnnDataType_t fp32 = CUDNN_DATA_FLOAT;
static const cudnnGenStatsMode_t sums = CUDNN_GENSTATS_SUM_SQSUM;

// clang-format off
#define CONV(name)  CUDNN_ATTR_OPERATION_CONVOLUTION_##name
#define STATS(name) CUDNN_ATTR_OPERATION_GENSTATS_##name
static const struct {
    cudnnBackendDescriptorType_t type;
    int n_inputs;
    cudnnBackendAttributeName_t operand[MAX_OPERANDS]; /* the inputs, then the outputs */
    attribute constant[2];
    cudnnBackendAttributeName_t window; /* of convolutions */
} op_types[] = {
    [CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 2,
        {CONV(FORWARD_X), CONV(FORWARD_W), CONV(FORWARD_Y)},
        {{CONV(FORWARD_ALPHA), CUDNN_TYPE_FLOAT, 1, &one},
         {CONV(FORWARD_BETA), CUDNN_TYPE_FLOAT, 1, &zero}},
        CONV(FORWARD_CONV_DESC)},
    [CONV_BWD_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, 2,
        {CONV(BWD_DATA_DY), CONV(BWD_DATA_W), CONV(BWD_DATA_DX)},
        {{CONV(BWD_DATA_ALPHA), CUDNN_TYPE_FLOAT, 1, &one},
         {CONV(BWD_DATA_BETA), CUDNN_TYPE_FLOAT, 1, &zero}},
        CONV(BWD_DATA_CONV_DESC)},
    [CONV_BWD_WEIGHTS] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, 2,
        {CONV(BWD_FILTER_X), CONV(BWD_FILTER_DY), CONV(BWD_FILTER_DW)},
        {{CONV(BWD_FILTER_ALPHA), CUDNN_TYPE_FLOAT, 1, &one},
         {CONV(BWD_FILTER_BETA), CUDNN_TYPE_FLOAT, 1, &zero}},
        CONV(BWD_FILTER_CONV_DESC)},
    [SUMS] = {CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, 1,
        {STATS(XDESC), STATS(SUMDESC), STATS(SQSUMDESC)},
        {{STATS(MODE), CUDNN_TYPE_GENSTATS_MODE, 1, &sums},
         {STATS(MATH_PREC), CUDNN_TYPE_DATA_TYPE, 1, &fp32}}, 0},
};
#undef CONV
#undef STATS

/* --- Graphs --- */

struct op {
    enum op_type type;
    unsigned char operand[MAX_OPERANDS]; /* tensors, in the order of op_types */
};

static const struct op graphs[][DT_CONV_N_EXTRAS][MAX_OPS] = {
    [DT_CONV_FORWARD] = {
        [DT_CONV_PLAIN] = {{CONV_FORWARD, {DT_DNN_X, DT_DNN_W, DT_DNN_Y}}},
        [DT_CONV_SUMS] = {{CONV_FORWARD, {DT_DNN_X, DT_DNN_W, DT_DNN_Y}},
                          {SUMS, {DT_DNN_Y, DT_DNN_SUM, DT_DNN_SQUARE_SUM}}},
    },
    [DT_CONV_BWD_DATA] = {
        [DT_CONV_PLAIN] = {{CONV_BWD_DATA, {DT_DNN_Y, DT_DNN_W, DT_DNN_X}}},
    },
    [DT_CONV_BWD_WEIGHTS] = {
        [DT_CONV_PLAIN] = {{CONV_BWD_WEIGHTS, {DT_DNN_X, DT_DNN_Y, DT_DNN_W}}},
    },
};
// clang-format on

static bool has_operand(const struct op *op, int i)
{
    return i < MAX_OPERANDS && op_types[op->type].operand[i] != 0;
}

enum use { UNUSED, READ, WRITTEN };

static enum use use_of(const struct dt_conv_task *task, enum dt_dnn_tensor tensor)
{
    enum use use = UNUSED;
    for (const struct op *op = graphs[task->kind][task->extra]; op->type != NO_OP; op++)
        for (int i = 0; has_operand(op, i); i++)
            if (op->operand[i] == tensor && use != WRITTEN)
                use = i < op_types[op->type].n_inputs ? READ : WRITTEN;
    return use;
}

bool dt_dnn_writes(const struct dt_conv_task *task, enum dt_dnn_tensor tensor)
{
    return use_of(task, tensor) == WRITTEN;
}

size_t dt_dnn_tensor_bytes(const struct dt_conv_task *task, enum dt_dnn_tensor tensor)
{
    int64_t dims[4];
    if (use_of(task, tensor) == UNUSED)
        return 0;
    get_dims(dims, task, tensors[tensor].size);
    return (size_t)(dims[0] * dims[1] * dims[2] * dims[3]) *
           dt_dtype_bytes(tensors[tensor].fp32 ? DT_F32 : task->type);
}

/* --- Making descriptors --- */

dt_status dt_dnn_create(descriptor *d, cudnnBackendDescriptorType_t type)
{
    return DT_CUDNN("creating a cuDNN descriptor", cudnnBackendCreateDescriptor(type, d));
}

void dt_dnn_destroy(descriptor *d)
{
    if (*d)
        cudnnBackendDestroyDescriptor(*d);
    *d = NULL;
}

dt_status dt_dnn_set(descriptor d, const attribute *attributes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const attribute *a = &attributes[i];
        char what[64];
        snprintf(what, sizeof(what), "setting attribute %d of a cuDNN descriptor", (int)a->name);
        DT_TRY(DT_CUDNN(what, cudnnBackendSetAttribute(d, a->name, a->type, a->count, a->values)));
    }
    return DT_OK;
}

dt_status dt_dnn_make(descriptor *d, cudnnBackendDescriptorType_t type, const attribute *attributes,
                      size_t n, const char *what)
{
    DT_TRY(dt_dnn_create(d, type));
    DT_TRY(dt_dnn_set(*d, attributes, n));
    DT_TRY(DT_CUDNN(what, cudnnBackendFinalize(*d)));
    return DT_OK;
}

/* What a graph is being made of; the descriptors belong to the offer. */
struct parts {
    struct dt_dnn_offer *offer;
    const struct dt_conv_task *task;
    descriptor window, tensor[N_VALUES], op[MAX_OPS];
};
_Static_assert(N_VALUES + MAX_OPS + 1 <= DT_DNN_MAX_PARTS, "room for the parts of any graph");

static dt_status add_part(struct parts *p, descriptor *out, cudnnBackendDescriptorType_t type,
                          const attribute *attributes, size_t n, const char *what)
{
    descriptor *part = &p->offer->part[p->offer->n_parts++];
    DT_TRY(dt_dnn_make(part, type, attributes, n, what));
    *out = *part;
    return DT_OK;
}

/* The strides make it NHWC. */
static dt_status add_tensor(struct parts *p, int index)
{
    const struct tensor t = tensors[index];
    int64_t dims[4];
    get_dims(dims, p->task, t.size);
    const int64_t strides[4] = {dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]};
    const int64_t id = dt_dnn_id(index), alignment = ALIGNMENT;
    const cudnnDataType_t stored = t.fp32 || p->task->type == DT_F32 ? CUDNN_DATA_FLOAT
                                   : p->task->type == DT_F16         ? CUDNN_DATA_HALF
                                                                     : CUDNN_DATA_BFLOAT16;
    const attribute attributes[] = {
        {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &stored},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides},
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
    };
    return add_part(p, &p->tensor[index], CUDNN_BACKEND_TENSOR_DESCRIPTOR, attributes,
                    DT_COUNT(attributes), "describing a tensor of a convolution");
}

static dt_status add_window(struct parts *p)
{
    const struct dt_conv_task *task = p->task;
    const int64_t n_dims = 2, dilations[2] = {1, 1};
    const int64_t strides[2] = {task->stride, task->stride}, pads[2] = {task->pad, task->pad};
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const attribute attributes[] = {
        {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &fp32},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode},
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n_dims},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides},
    };
    return add_part(p, &p->window, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, attributes,
                    DT_COUNT(attributes), "describing the window of a convolution");
}

static dt_status add_op(struct parts *p, descriptor *out, const struct op *op)
{
    attribute attributes[MAX_OPERANDS + 3];
    size_t n = 0;
    for (int i = 0; has_operand(op, i); i++) {
        descriptor *tensor = &p->tensor[op->operand[i]];
        if (!*tensor)
            DT_TRY(add_tensor(p, op->operand[i]));
        attributes[n++] =
            (attribute){op_types[op->type].operand[i], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, tensor};
    }
    for (size_t i = 0; i < DT_COUNT(op_types[0].constant); i++)
        attributes[n++] = op_types[op->type].constant[i];
    if (op_types[op->type].window != 0)
        attributes[n++] =
            (attribute){op_types[op->type].window, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &p->window};
    return add_part(p, out, op_types[op->type].type, attributes, n, "describing a convolution");
}

dt_status dt_dnn_make_graph(struct dt_dnn_offer *offer, const struct dt_dnn_target *target,
                            const struct dt_conv_task *task)
{
    struct parts p = {.offer = offer, .task = task};
    int n = 0;
    DT_TRY(add_window(&p));
    for (const struct op *op = graphs[task->kind][task->extra]; op->type != NO_OP; op++)
        DT_TRY(add_op(&p, &p.op[n++], op));
    const attribute attributes[] = {
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, p.op},
        {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle},
    };
    return dt_dnn_make(&offer->graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, attributes,
                       target->handle ? 2 : 1, "making the graph of a convolution");
}
