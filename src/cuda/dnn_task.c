/* The graphs of tasks, as tables: the tensors, the operations with the names of their attributes,
 * and for each kind of task its operations in order. */
#include "cuda/dnn_task.h"

#include <stdio.h>

#include "base/mem.h"
#include "cuda/cuda_internal.h"

typedef cudnnBackendDescriptor_t descriptor;
typedef struct dt_dnn_attribute attribute;

enum {
    ALIGNMENT = 16, /* of tensors, as required by the fast engines */
    MAX_OPERANDS = 10,
    MAX_OPS = 16,
};

/* --- Tasks --- */

static int out_size(const struct dt_conv_task *task, int in, int window)
{
    return (in + 2 * task->pad - task->dilation * (window - 1) - 1) / task->stride + 1;
}

int dt_conv_out_h(const struct dt_conv_task *task)
{
    return out_size(task, task->h, task->r);
}

int dt_conv_out_w(const struct dt_conv_task *task)
{
    return out_size(task, task->w, task->s);
}

bool dt_conv_equal(const struct dt_conv_task *a, const struct dt_conv_task *b)
{
    return a->kind == b->kind && a->type == b->type && a->n == b->n && a->c == b->c &&
           a->h == b->h && a->w == b->w && a->k == b->k && a->r == b->r && a->s == b->s &&
           a->stride == b->stride && a->pad == b->pad && a->dilation == b->dilation &&
           a->groups == b->groups && a->extra == b->extra;
}

const char *dt_conv_text(char out[DT_CONV_TEXT_MAX], const struct dt_conv_task *task)
{
    static const char *const kinds[] = {"conv", "conv_bwd_data", "conv_bwd_weights"};
    static const char *const extras[] = {
        [DT_CONV_PLAIN] = "",
        [DT_CONV_SUMS] = "+sums",
        [DT_CONV_NORM_SUMS] = "+norm+sums",
        [DT_CONV_NORM] = "+norm",
        [DT_CONV_BN_BWD] = "+bn_bwd",
        [DT_CONV_ADD_RESIDUAL_BN_BWD] = "+add+residual+bn_bwd",
        [DT_CONV_ADD_PAIR_BN_BWD] = "+add+pair+bn_bwd",
    };
    const char *type = task->type == DT_F16 ? "fp16" : task->type == DT_BF16 ? "bf16" : "fp32";
    const int n =
        snprintf(out, DT_CONV_TEXT_MAX, "%s%s %s x %dx%dx%dx%d w %dx%dx%dx%d stride %d pad %d",
                 kinds[task->kind], extras[task->extra], type, task->n, task->c, task->h, task->w,
                 task->k, task->c / task->groups, task->r, task->s, task->stride, task->pad);
    if (task->dilation > 1)
        snprintf(out + n, DT_CONV_TEXT_MAX - (size_t)n, " dilation %d", task->dilation);
    return out;
}

/* --- Tensors --- */

/* Values that one operation hands to another without storing them. They are numbered after the
 * tensors in memory. */
enum {
    SCALED = DT_DNN_N_TENSORS,
    SHIFTED,
    ACTIVATION, /* relu(scale * x + shift) */
    DIFF,       /* the gradient that the convolution computes */
    DIFF_SUM,
    NORMED, /* four steps; the last is the result */
    NORMED2 = NORMED + 4,
    RELU_SRC = NORMED2 + 4,
    N_VALUES,
};

enum size { SIZE_X, SIZE_W, SIZE_Y, PER_C, PER_K };

struct tensor {
    enum size size;
    bool fp32; /* whatever the type of the task */
};

static struct tensor tensor_of(int index)
{
    static const struct tensor tensors[] = {
        [DT_DNN_X] = {SIZE_X, false},        [DT_DNN_W] = {SIZE_W, false},
        [DT_DNN_Y] = {SIZE_Y, false},        [DT_DNN_SUM] = {PER_K, true},
        [DT_DNN_SQUARE_SUM] = {PER_K, true}, [DT_DNN_SCALE] = {PER_C, false},
        [DT_DNN_SHIFT] = {PER_C, false},     [DT_DNN_DIFF2] = {SIZE_X, false},
        [DT_DNN_RESIDUAL] = {SIZE_X, false},
    };
    if (index < DT_DNN_BN)
        return tensors[index];
    if (index >= DT_DNN_N_TENSORS)
        return (struct tensor){SIZE_X, true};
    const bool is_src = (index - DT_DNN_BN) % DT_DNN_BN_N_TENSORS == DT_DNN_BN_SRC;
    return is_src ? (struct tensor){SIZE_X, false} : (struct tensor){PER_C, true};
}

/* The dimensions in the order N, C, H, W. */
static void get_dims(int64_t dims[4], const struct dt_conv_task *t, enum size size)
{
    const int sizes[][4] = {
        [SIZE_X] = {t->n, t->c, t->h, t->w},
        [SIZE_W] = {t->k, t->c / t->groups, t->r, t->s},
        [SIZE_Y] = {t->n, t->k, dt_conv_out_h(t), dt_conv_out_w(t)},
        [PER_C] = {1, t->c, 1, 1},
        [PER_K] = {1, t->k, 1, 1},
    };
    for (int i = 0; i < 4; i++)
        dims[i] = sizes[size][i];
}

/* --- Operations --- */

enum op_type {
    NO_OP,
    CONV_FORWARD,
    CONV_BWD_DATA,
    CONV_BWD_WEIGHTS,
    SUMS,
    REDUCE, /* batch norm, backward: sums and coefficients */
    MULTIPLY,
    ADD,
    SUBTRACT,
    RELU,
    RELU_BWD,
};

static const float one = 1, zero = 0;
static const cudnnDataType_t fp32 = CUDNN_DATA_FLOAT;
static const cudnnGenStatsMode_t sums = CUDNN_GENSTATS_SUM_SQSUM;

// clang-format off
#define CONV(name)  CUDNN_ATTR_OPERATION_CONVOLUTION_##name
#define STATS(name) CUDNN_ATTR_OPERATION_GENSTATS_##name
#define BN(name)    CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_##name
#define VALUE(name) CUDNN_ATTR_OPERATION_POINTWISE_##name
#define POINTWISE   CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR
static const struct {
    cudnnBackendDescriptorType_t type;
    int n_inputs;
    cudnnBackendAttributeName_t operand[MAX_OPERANDS]; /* the inputs, then the outputs */
    attribute constant[2];
    cudnnBackendAttributeName_t detail; /* a convolution's window, or a function: */
    cudnnPointwiseMode_t function;
} op_types[] = {
    [CONV_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 2,
        {CONV(FORWARD_X), CONV(FORWARD_W), CONV(FORWARD_Y)},
        {{CONV(FORWARD_ALPHA), CUDNN_TYPE_FLOAT, 1, &one},
         {CONV(FORWARD_BETA), CUDNN_TYPE_FLOAT, 1, &zero}},
        CONV(FORWARD_CONV_DESC), 0},
    [CONV_BWD_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, 2,
        {CONV(BWD_DATA_DY), CONV(BWD_DATA_W), CONV(BWD_DATA_DX)},
        {{CONV(BWD_DATA_ALPHA), CUDNN_TYPE_FLOAT, 1, &one},
         {CONV(BWD_DATA_BETA), CUDNN_TYPE_FLOAT, 1, &zero}},
        CONV(BWD_DATA_CONV_DESC), 0},
    [CONV_BWD_WEIGHTS] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, 2,
        {CONV(BWD_FILTER_X), CONV(BWD_FILTER_DY), CONV(BWD_FILTER_DW)},
        {{CONV(BWD_FILTER_ALPHA), CUDNN_TYPE_FLOAT, 1, &one},
         {CONV(BWD_FILTER_BETA), CUDNN_TYPE_FLOAT, 1, &zero}},
        CONV(BWD_FILTER_CONV_DESC), 0},
    [SUMS] = {CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, 1,
        {STATS(XDESC), STATS(SUMDESC), STATS(SQSUMDESC)},
        {{STATS(MODE), CUDNN_TYPE_GENSTATS_MODE, 1, &sums},
         {STATS(MATH_PREC), CUDNN_TYPE_DATA_TYPE, 1, &fp32}}, 0, 0},
    [REDUCE] = {CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR, 5,
        {BN(DY_DESC), BN(X_DESC), BN(MEAN_DESC), BN(INVSTD_DESC), BN(BN_SCALE_DESC),
         BN(DBN_SCALE_DESC), BN(DBN_BIAS_DESC),
         BN(EQ_DY_SCALE_DESC), BN(EQ_X_SCALE_DESC), BN(EQ_BIAS)},
        {{BN(MATH_PREC), CUDNN_TYPE_DATA_TYPE, 1, &fp32}}, 0, 0},
    [MULTIPLY] = {POINTWISE, 2, {VALUE(XDESC), VALUE(BDESC), VALUE(YDESC)}, {{0}},
        VALUE(PW_DESCRIPTOR), CUDNN_POINTWISE_MUL},
    [ADD] = {POINTWISE, 2, {VALUE(XDESC), VALUE(BDESC), VALUE(YDESC)}, {{0}},
        VALUE(PW_DESCRIPTOR), CUDNN_POINTWISE_ADD},
    [SUBTRACT] = {POINTWISE, 2, {VALUE(XDESC), VALUE(BDESC), VALUE(YDESC)}, {{0}},
        VALUE(PW_DESCRIPTOR), CUDNN_POINTWISE_SUB},
    [RELU] = {POINTWISE, 1, {VALUE(XDESC), VALUE(YDESC)}, {{0}},
        VALUE(PW_DESCRIPTOR), CUDNN_POINTWISE_RELU_FWD},
    [RELU_BWD] = {POINTWISE, 2, {VALUE(DYDESC), VALUE(XDESC), VALUE(DXDESC)}, {{0}},
        VALUE(PW_DESCRIPTOR), CUDNN_POINTWISE_RELU_BWD},
};
#undef CONV
#undef STATS
#undef BN
#undef VALUE
#undef POINTWISE

/* --- Graphs --- */

struct op {
    enum op_type type;
    unsigned char operand[MAX_OPERANDS]; /* tensors or values, in the order of op_types */
};

#define APPLY_NORM                                \
    {MULTIPLY, {DT_DNN_X, DT_DNN_SCALE, SCALED}}, \
    {ADD, {SCALED, DT_DNN_SHIFT, SHIFTED}},       \
    {RELU, {SHIFTED, ACTIVATION}}
/* cuDNN knows the value before the ReLU in no other form. */
#define NORMALISE(bn, step)                                      \
    {SUBTRACT, {bn + DT_DNN_BN_SRC, bn + DT_DNN_BN_MEAN, step}}, \
    {MULTIPLY, {step, bn + DT_DNN_BN_INV_STD, step + 1}},        \
    {MULTIPLY, {step + 1, bn + DT_DNN_BN_SCALE, step + 2}},      \
    {ADD, {step + 2, bn + DT_DNN_BN_SHIFT, step + 3}}
#define REDUCE_TO(bn)                                                                     \
    {REDUCE, {DT_DNN_X, bn + DT_DNN_BN_SRC, bn + DT_DNN_BN_MEAN, bn + DT_DNN_BN_INV_STD,  \
              bn + DT_DNN_BN_SCALE, bn + DT_DNN_BN_DIFF_SCALE, bn + DT_DNN_BN_DIFF_SHIFT, \
              bn + DT_DNN_BN_COEF_DIFF, bn + DT_DNN_BN_COEF_SRC, bn + DT_DNN_BN_COEF_ONE}}

static const struct op graphs[][DT_CONV_N_EXTRAS][MAX_OPS] = {
    [DT_CONV_FORWARD] = {
        [DT_CONV_PLAIN] = {{CONV_FORWARD, {DT_DNN_X, DT_DNN_W, DT_DNN_Y}}},
        [DT_CONV_SUMS] = {{CONV_FORWARD, {DT_DNN_X, DT_DNN_W, DT_DNN_Y}},
                          {SUMS, {DT_DNN_Y, DT_DNN_SUM, DT_DNN_SQUARE_SUM}}},
        [DT_CONV_NORM_SUMS] = {APPLY_NORM,
                               {CONV_FORWARD, {ACTIVATION, DT_DNN_W, DT_DNN_Y}},
                               {SUMS, {DT_DNN_Y, DT_DNN_SUM, DT_DNN_SQUARE_SUM}}},
    },
    [DT_CONV_BWD_DATA] = {
        [DT_CONV_PLAIN] = {{CONV_BWD_DATA, {DT_DNN_Y, DT_DNN_W, DT_DNN_X}}},
        [DT_CONV_BN_BWD] = {{CONV_BWD_DATA, {DT_DNN_Y, DT_DNN_W, DIFF}},
                            NORMALISE(DT_DNN_BN, NORMED),
                            {RELU_BWD, {DIFF, NORMED + 3, DT_DNN_X}},
                            REDUCE_TO(DT_DNN_BN)},
        [DT_CONV_ADD_RESIDUAL_BN_BWD] = {{CONV_BWD_DATA, {DT_DNN_Y, DT_DNN_W, DIFF}},
                                         {ADD, {DIFF, DT_DNN_DIFF2, DIFF_SUM}},
                                         NORMALISE(DT_DNN_BN, NORMED),
                                         {ADD, {NORMED + 3, DT_DNN_RESIDUAL, RELU_SRC}},
                                         {RELU_BWD, {DIFF_SUM, RELU_SRC, DT_DNN_X}},
                                         REDUCE_TO(DT_DNN_BN)},
        [DT_CONV_ADD_PAIR_BN_BWD] = {{CONV_BWD_DATA, {DT_DNN_Y, DT_DNN_W, DIFF}},
                                     {ADD, {DIFF, DT_DNN_DIFF2, DIFF_SUM}},
                                     NORMALISE(DT_DNN_BN, NORMED),
                                     NORMALISE(DT_DNN_BN2, NORMED2),
                                     {ADD, {NORMED + 3, NORMED2 + 3, RELU_SRC}},
                                     {RELU_BWD, {DIFF_SUM, RELU_SRC, DT_DNN_X}},
                                     REDUCE_TO(DT_DNN_BN),
                                     REDUCE_TO(DT_DNN_BN2)},
    },
    [DT_CONV_BWD_WEIGHTS] = {
        [DT_CONV_PLAIN] = {{CONV_BWD_WEIGHTS, {DT_DNN_X, DT_DNN_Y, DT_DNN_W}}},
        [DT_CONV_NORM] = {APPLY_NORM, {CONV_BWD_WEIGHTS, {ACTIVATION, DT_DNN_Y, DT_DNN_W}}},
    },
};
#undef APPLY_NORM
#undef NORMALISE
#undef REDUCE_TO
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
    get_dims(dims, task, tensor_of((int)tensor).size);
    return (size_t)(dims[0] * dims[1] * dims[2] * dims[3]) *
           dt_dtype_bytes(tensor_of((int)tensor).fp32 ? DT_F32 : task->type);
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
    return DT_CUDNN(what, cudnnBackendFinalize(*d));
}

/* The parts of a graph in the making; the descriptors belong to it. */
struct parts {
    struct dt_dnn_graph *graph;
    const struct dt_conv_task *task;
    descriptor tensor[N_VALUES], op[MAX_OPS];
};
_Static_assert(N_VALUES + 2 * MAX_OPS <= DT_DNN_MAX_PARTS, "room for the parts of any graph");

static dt_status add_part(struct parts *p, descriptor *out, cudnnBackendDescriptorType_t type,
                          const attribute *attributes, size_t n, const char *what)
{
    descriptor *part = &p->graph->part[p->graph->n_parts++];
    DT_TRY(dt_dnn_make(part, type, attributes, n, what));
    *out = *part;
    return DT_OK;
}

/* The strides make it NHWC. */
static dt_status add_tensor(struct parts *p, int index)
{
    const struct tensor t = tensor_of(index);
    int64_t dims[4];
    get_dims(dims, p->task, t.size);
    const int64_t strides[4] = {dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]};
    const int64_t id = dt_dnn_id(index), alignment = ALIGNMENT;
    const bool is_virtual = index >= DT_DNN_N_TENSORS;
    const cudnnDataType_t stored = t.fp32 || p->task->type == DT_F32 ? CUDNN_DATA_FLOAT
                                   : p->task->type == DT_F16         ? CUDNN_DATA_HALF
                                                                     : CUDNN_DATA_BFLOAT16;
    const attribute attributes[] = {
        {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &stored},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides},
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
        {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual},
    };
    return add_part(p, &p->tensor[index], CUDNN_BACKEND_TENSOR_DESCRIPTOR, attributes,
                    DT_COUNT(attributes), "describing a tensor of a convolution");
}

static dt_status add_function(struct parts *p, descriptor *out, cudnnPointwiseMode_t function)
{
    const attribute attributes[] = {
        {CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &function},
        {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &fp32},
    };
    return add_part(p, out, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, attributes, DT_COUNT(attributes),
                    "describing a pointwise function");
}

static dt_status add_detail(struct parts *p, descriptor *out, enum op_type type)
{
    if (op_types[type].type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
        return add_function(p, out, op_types[type].function);
    const struct dt_conv_task *task = p->task;
    const int64_t n_dims = 2, dilations[2] = {task->dilation, task->dilation};
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
    return add_part(p, out, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, attributes, DT_COUNT(attributes),
                    "describing the window of a convolution");
}

static dt_status add_op(struct parts *p, descriptor *out, const struct op *op)
{
    attribute attributes[MAX_OPERANDS + 3];
    descriptor detail = NULL;
    size_t n = 0;
    for (int i = 0; has_operand(op, i); i++) {
        descriptor *tensor = &p->tensor[op->operand[i]];
        if (!*tensor)
            DT_TRY(add_tensor(p, op->operand[i]));
        attributes[n++] =
            (attribute){op_types[op->type].operand[i], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, tensor};
    }
    for (size_t i = 0; i < DT_COUNT(op_types[0].constant); i++)
        if (op_types[op->type].constant[i].name != 0)
            attributes[n++] = op_types[op->type].constant[i];
    if (op_types[op->type].detail != 0) {
        DT_TRY(add_detail(p, &detail, op->type));
        attributes[n++] =
            (attribute){op_types[op->type].detail, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &detail};
    }
    return add_part(p, out, op_types[op->type].type, attributes, n, "describing a convolution");
}

dt_status dt_dnn_graph_make(struct dt_dnn_graph *graph, const struct dt_conv_task *task,
                            cudnnHandle_t handle)
{
    struct parts p = {.graph = graph, .task = task};
    int n = 0;
    for (const struct op *op = graphs[task->kind][task->extra]; op->type != NO_OP; op++)
        DT_TRY(add_op(&p, &p.op[n++], op));
    const attribute attributes[] = {
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, p.op},
        {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle},
    };
    return dt_dnn_make(&graph->graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, attributes,
                       handle ? 2 : 1, "making the graph of a convolution");
}

void dt_dnn_graph_destroy(struct dt_dnn_graph *graph)
{
    dt_dnn_destroy(&graph->graph);
    while (graph->n_parts > 0)
        dt_dnn_destroy(&graph->part[--graph->n_parts]);
}
