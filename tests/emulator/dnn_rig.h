// Descriptors of cuDNN's graph API for tests: created by one call each, destroyed after the test.
#ifndef DTRAIN_EMULATOR_DNN_RIG_H
#define DTRAIN_EMULATOR_DNN_RIG_H

#include <cudnn.h>

#include "test_rig.h"

typedef cudnnBackendDescriptor_t D;
static std::vector<D> made; // destroyed after each test
static cudnnHandle_t dnn;   // NULL: without a device

static inline D make(cudnnBackendDescriptorType_t type)
{
    D d = nullptr;
    OK(cudnnBackendCreateDescriptor(type, &d));
    made.push_back(d);
    return d;
}

static inline int destroy_made(void **)
{
    for (const D d : made)
        cudnnBackendDestroyDescriptor(d);
    made.clear();
    return 0;
}

template <typename T>
static inline cudnnStatus_t set(D d, cudnnBackendAttributeName_t name,
                                cudnnBackendAttributeType_t type, const std::vector<T> &values)
{
    return cudnnBackendSetAttribute(d, name, type, static_cast<int64_t>(values.size()),
                                    values.data());
}

static inline cudnnStatus_t set_ints(D d, cudnnBackendAttributeName_t name,
                                     const std::vector<int64_t> &values)
{
    return set(d, name, CUDNN_TYPE_INT64, values);
}

static inline cudnnStatus_t set_object(D d, cudnnBackendAttributeName_t name, D value)
{
    return cudnnBackendSetAttribute(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static inline cudnnDataType_t dnn_type(number type)
{
    return type == number::f16    ? CUDNN_DATA_HALF
           : type == number::bf16 ? CUDNN_DATA_BFLOAT16
                                  : CUDNN_DATA_FLOAT;
}

// A tensor that is not yet finalized.
static inline D new_tensor(number type, int64_t id, const std::vector<int64_t> &dims)
{
    D d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    OK(set<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
                            {dnn_type(type)}));
    OK(set_ints(d, CUDNN_ATTR_TENSOR_DIMENSIONS, dims));
    OK(set_ints(d, CUDNN_ATTR_TENSOR_STRIDES,
                {dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]}));
    OK(set_ints(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, {id}));
    OK(set_ints(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {16}));
    return d;
}

struct conv {
    cudnnBackendDescriptorType_t kind = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
    number type = number::f32;
    int n = 2, c = 4, h = 7, w = 6, k = 8, r = 3, s = 3, stride = 1, pad = 1, dilation = 1;
    float beta = 0;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    D x, weights, y, window, op, graph;

    int p() const
    {
        return (h + 2 * pad - dilation * (r - 1) - 1) / stride + 1;
    }
    int q() const
    {
        return (w + 2 * pad - dilation * (s - 1) - 1) / stride + 1;
    }
    void open();
};

static inline D new_window(const conv &v)
{
    D d = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    OK(set<cudnnDataType_t>(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
                            {CUDNN_DATA_FLOAT}));
    OK(set<cudnnConvolutionMode_t>(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                                   {v.mode}));
    OK(set_ints(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2}));
    OK(set_ints(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {v.pad, v.pad}));
    OK(set_ints(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {v.pad, v.pad}));
    OK(set_ints(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, {v.dilation, v.dilation}));
    OK(set_ints(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {v.stride, v.stride}));
    return d;
}

struct op_names {
    cudnnBackendAttributeName_t conv, x, w, y, beta;
};

static inline op_names names_of(cudnnBackendDescriptorType_t kind)
{
    if (kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
        return {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    if (kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
        return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

static inline D new_op(const conv &v)
{
    const op_names names = names_of(v.kind);
    D d = make(v.kind);
    OK(set_object(d, names.conv, v.window));
    OK(set_object(d, names.x, v.x));
    OK(set_object(d, names.w, v.weights));
    OK(set_object(d, names.y, v.y));
    OK(set<float>(d, names.beta, CUDNN_TYPE_FLOAT, {v.beta}));
    return d;
}

// Not yet finalized.
static inline D new_graph(const std::vector<D> &ops)
{
    D d = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    OK(set(d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, ops));
    if (dnn)
        OK(set<cudnnHandle_t>(d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, {dnn}));
    return d;
}

inline void conv::open()
{
    x = new_tensor(type, 1, {n, c, h, w});
    weights = new_tensor(type, 2, {k, c, r, s});
    y = new_tensor(type, 3, {n, k, p(), q()});
    window = new_window(*this);
    for (const D d : {x, weights, y, window})
        OK(cudnnBackendFinalize(d));
    op = new_op(*this);
    OK(cudnnBackendFinalize(op));
    graph = new_graph({op});
    OK(cudnnBackendFinalize(graph));
}

// The sums of v.y and of its squares, in two vectors of `n` values; not yet finalized.
static inline D new_stats(const conv &v, number type, int n)
{
    D d = make(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    const D sum = new_tensor(type, 4, {1, n, 1, 1}), square_sum = new_tensor(type, 5, {1, n, 1, 1});
    OK(cudnnBackendFinalize(sum));
    OK(cudnnBackendFinalize(square_sum));
    OK(set<cudnnGenStatsMode_t>(d, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE,
                                {CUDNN_GENSTATS_SUM_SQSUM}));
    OK(set<cudnnDataType_t>(d, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                            {CUDNN_DATA_FLOAT}));
    OK(set_object(d, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, v.y));
    OK(set_object(d, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum));
    OK(set_object(d, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, square_sum));
    return d;
}

static inline D new_heuristics(D graph, cudnnBackendHeurMode_t mode)
{
    D d = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    OK(set_object(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph));
    OK(set<cudnnBackendHeurMode_t>(d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, {mode}));
    return d;
}

static inline std::vector<D> configs_of(D graph, cudnnBackendHeurMode_t mode)
{
    std::vector<D> list;
    int64_t n = -1;
    D heuristics = new_heuristics(graph, mode);
    for (int i = 0; i < 16; i++)
        list.push_back(make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    if (cudnnBackendFinalize(heuristics) != CUDNN_STATUS_SUCCESS)
        return {};
    OK(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                CUDNN_TYPE_BACKEND_DESCRIPTOR, 16, &n, list.data()));
    list.resize(static_cast<size_t>(n));
    return list;
}

static inline unsigned notes_of(D config)
{
    D engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n = 0;
    unsigned bits = 0;
    OK(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                1, &n, &engine));
    OK(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes));
    for (int64_t i = 0; i < n; i++)
        bits |= 1u << notes[i];
    return bits;
}

static inline D new_plan(D config)
{
    D d = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    OK(set_object(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config));
    if (dnn)
        OK(set<cudnnHandle_t>(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, {dnn}));
    return d;
}

static inline size_t workspace_of(D plan)
{
    int64_t n = 0, bytes = -1;
    OK(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                &n, &bytes));
    return static_cast<size_t>(bytes);
}

static inline D new_pack(const std::vector<int64_t> &ids, const std::vector<void *> &data,
                         void *workspace)
{
    D d = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    OK(set_ints(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids));
    OK(set(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, data));
    OK(set<void *>(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, {workspace}));
    return d;
}

#endif
