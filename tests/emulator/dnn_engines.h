// The emulated cuDNN's engines: the requests of a graph, which engines accept it, their needs and
// their notes.
#ifndef DTRAIN_EMULATOR_DNN_ENGINES_H
#define DTRAIN_EMULATOR_DNN_ENGINES_H

#include <cudnn.h>

#include <algorithm>
#include <vector>

#include "convolution.h"

namespace emu
{

struct dnn_tensor {
    cudnnDataType_t type;
    std::vector<int64_t> dims, strides;
    int64_t id, alignment;
    bool is_virtual; // not in memory
    const void *descriptor;
};

// stats: GEN_STATS, bn_bwd: BN_BWD_WEIGHTS; the others from mul on are pointwise.
enum class dnn_op_kind { convolution, stats, bn_bwd, mul, add, sub, relu, relu_bwd };

// An operation of a graph.
struct dnn_op {
    dnn_op_kind kind;
    std::vector<dnn_tensor> in, out;
};

// A convolution, and in a graph all operations in order, itself included.
struct dnn_problem {
    conv_kind kind;
    dnn_tensor x, w, y;
    cudnnDataType_t sums;
    cudnnConvolutionMode_t mode;
    std::vector<int64_t> pre, post, dilations, strides;
    double alpha, beta;
    std::vector<dnn_op> ops;
};

inline bool find_number(number *out, cudnnDataType_t type)
{
    *out = type == CUDNN_DATA_HALF       ? number::f16
           : type == CUDNN_DATA_BFLOAT16 ? number::bf16
                                         : number::f32;
    return type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_FLOAT;
}

inline bool is_nhwc(const dnn_tensor &t)
{
    const auto &d = t.dims;
    return d.size() == 4 &&
           t.strides == std::vector<int64_t>{d[1] * d[2] * d[3], 1, d[1] * d[3], d[1]};
}

inline bool is_fused(const dnn_problem &p)
{
    return p.ops.size() > 1;
}

// NULL, or the reason why no engine can do more than the convolution in one go.
inline const char *why_not_fused(const dnn_problem &p)
{
    using kind = dnn_op_kind;
#define NORMALISE kind::sub, kind::mul, kind::mul, kind::add
    static const struct {
        conv_kind conv;
        std::vector<kind> ops;
    } patterns[] = {
        {conv_kind::forward, {kind::convolution, kind::stats}},
        {conv_kind::forward, {kind::mul, kind::add, kind::relu, kind::convolution, kind::stats}},
        {conv_kind::bwd_filter, {kind::mul, kind::add, kind::relu, kind::convolution}},
        {conv_kind::bwd_data, {kind::convolution, NORMALISE, kind::relu_bwd, kind::bn_bwd}},
        {conv_kind::bwd_data,
         {kind::convolution, kind::add, NORMALISE, kind::relu_bwd, kind::bn_bwd}},
        {conv_kind::bwd_data,
         {kind::convolution, kind::add, NORMALISE, kind::add, kind::relu_bwd, kind::bn_bwd}},
        {conv_kind::bwd_data,
         {kind::convolution, kind::add, NORMALISE, NORMALISE, kind::add, kind::relu_bwd,
          kind::bn_bwd, kind::bn_bwd}},
    };
#undef NORMALISE
    std::vector<kind> kinds;
    for (const dnn_op &op : p.ops)
        kinds.push_back(op.kind);
    bool is_known = false;
    for (const auto &pattern : patterns)
        is_known = is_known || (pattern.conv == p.kind && pattern.ops == kinds);
    if (!is_known)
        return "there is no engine for these operations";
    if (p.kind == conv_kind::bwd_data && kinds[1] == kind::add &&
        p.strides != std::vector<int64_t>{1, 1})
        return "a gradient is added to that of a convolution with a stride";
    if (p.x.dims[1] != p.w.dims[1] || p.dilations != std::vector<int64_t>{1, 1})
        return "there are groups, or there is dilation";
    if (p.w.type != CUDNN_DATA_HALF)
        return "the operations around a convolution are in fp16 only";
    if (p.x.dims[1] % 8 != 0 || p.y.dims[1] % 8 != 0 || p.w.dims[2] * p.w.dims[3] > 32)
        return "the channels are not multiples of 8, or the window is larger than 32";
    for (const dnn_op &op : p.ops)
        for (const auto *list : {&op.in, &op.out})
            for (const dnn_tensor &t : *list) {
                const dnn_tensor &like = op.in[0];
                if (!is_nhwc(t) || !is_nhwc(like))
                    return "a tensor is not packed NHWC";
                const bool is_vector = t.dims == std::vector<int64_t>{1, like.dims[1], 1, 1};
                if (op.kind != kind::convolution && !is_vector && t.dims != like.dims)
                    return "a tensor has the wrong size";
                // Vectors are in fp32, but for those that are applied to x.
                const bool is_applied =
                    p.kind != conv_kind::bwd_data && (op.kind == kind::mul || op.kind == kind::add);
                const bool is_half = is_vector ? is_applied : !t.is_virtual;
                if (t.type != (is_half ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT))
                    return "a tensor has the wrong type";
            }
    return nullptr;
}

// NULL, or the reason why no engine can run it.
inline const char *why_not(const dnn_problem &p)
{
    number type;
    const auto is_stored = [&](const dnn_tensor &t) {
        return !t.is_virtual && is_nhwc(t) && t.type == p.w.type;
    };
    if (!find_number(&type, p.w.type))
        return "the data types are not all fp32, fp16 or bf16";
    if (p.sums != CUDNN_DATA_FLOAT)
        return "the computation type is not fp32";
    if (!is_fused(p) && (!is_stored(p.x) || !is_stored(p.w) || !is_stored(p.y)))
        return "a tensor is not packed NHWC in memory, or has another type";
    if (p.mode != CUDNN_CROSS_CORRELATION)
        return "the mode is not cross correlation";
    if (p.x.dims[1] % p.w.dims[1] != 0 || p.w.dims[0] % (p.x.dims[1] / p.w.dims[1]) != 0)
        return "the channels do not make groups";
    if (p.dilations[0] != p.dilations[1])
        return "the two dilations differ";
    if (p.alpha != 1 || (p.beta != 0 && (p.beta != 1 || is_fused(p))))
        return "alpha is not 1 or beta is neither 0 nor 1";
    return is_fused(p) ? why_not_fused(p) : nullptr;
}

inline conv_shape shape_of(const dnn_problem &p)
{
    const auto size = [](int64_t n) { return static_cast<size_t>(n); };
    const auto &x = p.x.dims, &w = p.w.dims, &y = p.y.dims;
    return {p.kind,
            size(x[0]),
            size(x[1]),
            size(x[2]),
            size(x[3]),
            size(w[0]),
            size(w[2]),
            size(w[3]),
            size(y[2]),
            size(y[3]),
            {size(p.strides[0]), size(p.strides[1])},
            {size(p.pre[0]), size(p.pre[1])},
            size(p.dilations[0]),
            size(x[1] / w[1])};
}

// --- Engines ---

enum engine_index : int64_t {
    ENGINE_PLAIN,
    ENGINE_RANDOM,      // adds in a different order each time
    ENGINE_TENSOR_CORE, // rounds fp32 to TF32
    ENGINE_WINOGRAD,
    ENGINE_NO_KERNEL, // its plans cannot be made
    ENGINE_SHORT,     // in 16 bits: rounds partial sums to the type of the tensors
    N_ENGINES,
};

struct dnn_engine {
    std::vector<cudnnBackendNumericalNote_t> numerical;
    std::vector<cudnnBackendBehaviorNote_t> behavior;
};

inline const dnn_engine &engine_of(int64_t index)
{
    static const dnn_engine engines[N_ENGINES] = {
        {{}, {CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API}},
        {{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, {}},
        {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API}},
        {{CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4}, {}},
        {{}, {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}},
        {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, {}},
    };
    return engines[index];
}

inline bool engine_takes(int64_t index, const dnn_problem &p)
{
    if (index < 0 || index >= N_ENGINES || why_not(p))
        return false;
    const bool is_3x3 = p.w.dims[2] == 3 && p.w.dims[3] == 3;
    const bool is_dense = p.strides == std::vector<int64_t>{1, 1};
    if (index == ENGINE_SHORT)
        return p.w.type != CUDNN_DATA_FLOAT && !is_fused(p);
    const bool is_plain = p.x.dims[1] == p.w.dims[1] && p.dilations == std::vector<int64_t>{1, 1};
    return index != ENGINE_WINOGRAD || (is_3x3 && is_dense && is_plain && !is_fused(p));
}

// Sizes that are not round numbers, like the real ones.
inline int64_t workspace_of(int64_t index, const dnn_problem &p)
{
    const conv_shape v = shape_of(p);
    switch (index) {
    case ENGINE_RANDOM:
        return static_cast<int64_t>(v.w_size() * sizeof(float)) + 52;
    case ENGINE_TENSOR_CORE:
        return static_cast<int64_t>(v.y_size()) + 20;
    case ENGINE_WINOGRAD:
        return static_cast<int64_t>(v.w_size() * sizeof(float) * 4) + 4;
    default:
        return 0;
    }
}

struct engine_config {
    int64_t engine, tile; // tile: value of the one knob, 0 or 1
};

// Best first, as the modes of the heuristics list them. For a fused graph there is no fallback.
inline std::vector<engine_config> configs_of(cudnnBackendHeurMode_t mode, const dnn_problem &p)
{
    std::vector<engine_config> list;
    if (mode == CUDNN_HEUR_MODE_FALLBACK)
        list = {{ENGINE_PLAIN, 0}, {ENGINE_PLAIN, 1}};
    else
        list = {{ENGINE_SHORT, 0},  {ENGINE_TENSOR_CORE, 1}, {ENGINE_NO_KERNEL, 0},
                {ENGINE_RANDOM, 0}, {ENGINE_WINOGRAD, 0},    {ENGINE_PLAIN, 0}};
    std::vector<engine_config> out;
    for (const engine_config &c : list)
        if (engine_takes(c.engine, p) && !(is_fused(p) && mode == CUDNN_HEUR_MODE_FALLBACK))
            out.push_back(c);
    return out;
}

} // namespace emu

#endif
