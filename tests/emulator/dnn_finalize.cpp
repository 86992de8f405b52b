// The checks when a descriptor of the emulated cuDNN is finalized, and the values derived from its
// attributes. The statuses are those of cuDNN 9.19.
#include <algorithm>
#include <map>
#include <set>

#include "dnn.h"
#include "dnn_attributes.h"
#include "emulator.h"

namespace emu
{
namespace
{

cudnnStatus_t finalize_tensor(dnn_object *o)
{
    const auto dims = list_of<int64_t>(*o, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const auto strides = list_of<int64_t>(*o, CUDNN_ATTR_TENSOR_STRIDES);
    const auto type = one_of(*o, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT);
    const auto alignment = one_of<int64_t>(*o, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
    if (dims.size() != strides.size())
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM,
                          "tensor: the numbers of strides and dimensions differ");
    for (size_t i = 0; i < dims.size(); i++)
        if (dims[i] < 1 || strides[i] < 1)
            return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "tensor: a dimension or stride is below 1");
    number number;
    if (!find_number(&number, type))
        return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
                          "tensor: data type is not emulated");
    const auto size = static_cast<int64_t>(bytes_of(number));
    if (alignment < size || alignment % size != 0)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "tensor: bad alignment");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_convolution(dnn_object *o)
{
    const auto n = one_of<int64_t>(*o, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0);
    const struct {
        cudnnBackendAttributeName_t name;
        int64_t lowest;
    } lists[] = {
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, 1},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1},
    };
    for (const auto &l : lists) {
        const auto list = list_of<int64_t>(*o, l.name);
        if (static_cast<int64_t>(list.size()) != n)
            return dnn_refuse(CUDNN_STATUS_BAD_PARAM,
                              "convolution: a list does not have spatialDims entries");
        for (const int64_t v : list)
            if (v < l.lowest)
                return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "convolution: a value is too small");
    }
    if (n != 2)
        return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED,
                          "convolution: only 2 dimensions are emulated");
    return CUDNN_STATUS_SUCCESS;
}

dnn_tensor tensor_of(const dnn_object &o)
{
    return {one_of(o, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT),
            list_of<int64_t>(o, CUDNN_ATTR_TENSOR_DIMENSIONS),
            list_of<int64_t>(o, CUDNN_ATTR_TENSOR_STRIDES),
            one_of<int64_t>(o, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0),
            one_of<int64_t>(o, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0),
            one_of<char>(o, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0) != 0,
            &o};
}

std::vector<dnn_tensor> tensors_of(const dnn_object &o, const std::vector<int> &names)
{
    std::vector<dnn_tensor> list;
    for (const int name : names)
        list.push_back(tensor_of(object_of(o, name)));
    return list;
}

// NULL, or the shapes that contradict each other.
const char *shape_error(const dnn_problem &p)
{
    const auto &x = p.x.dims, &w = p.w.dims, &y = p.y.dims;
    if (x.size() != 4 || w.size() != 4 || y.size() != 4)
        return "operation: tensors of a 2D convolution have 4 dimensions";
    if (x[0] != y[0])
        return "operation: x and y have different batch sizes";
    if (x[1] % w[1] != 0)
        return "operation: channels of x and w do not match";
    if (y[1] != w[0])
        return "operation: channels of y and w do not match";
    for (size_t i = 0; i < 2; i++) {
        const int64_t window = p.dilations[i] * (w[2 + i] - 1) + 1;
        const int64_t rest = x[2 + i] + p.pre[i] + p.post[i] - window;
        if (rest < 0 || y[2 + i] != rest / p.strides[i] + 1)
            return "operation: the size of y does not follow from x and w";
    }
    return nullptr;
}

// The value of alpha or beta, which may be float or double.
double factor_of(const dnn_object &o, int name, double otherwise)
{
    if (!has(o, name))
        return otherwise;
    return o.values.at(name).type == CUDNN_TYPE_DOUBLE
               ? one_of<double>(o, name, otherwise)
               : static_cast<double>(one_of<float>(o, name, 0));
}

cudnnStatus_t finalize_convolution_op(dnn_object *o)
{
    static const struct {
        cudnnBackendDescriptorType_t type;
        conv_kind kind;
        int conv, x, w, y, alpha, beta;
    } operations[] = {
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, conv_kind::forward,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, conv_kind::bwd_data,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, conv_kind::bwd_filter,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
    };
    for (const auto &op : operations) {
        if (op.type != o->type)
            continue;
        const dnn_object &conv = object_of(*o, op.conv);
        o->problem = {op.kind,
                      tensor_of(object_of(*o, op.x)),
                      tensor_of(object_of(*o, op.w)),
                      tensor_of(object_of(*o, op.y)),
                      one_of(conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT),
                      one_of(conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CONVOLUTION),
                      list_of<int64_t>(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
                      list_of<int64_t>(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
                      list_of<int64_t>(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS),
                      list_of<int64_t>(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
                      factor_of(*o, op.alpha, 1),
                      factor_of(*o, op.beta, 0),
                      {}};
        const int out = op.kind == conv_kind::forward    ? op.y
                        : op.kind == conv_kind::bwd_data ? op.x
                                                         : op.w;
        o->op = {dnn_op_kind::convolution, {}, tensors_of(*o, {out})};
        for (const int in : {op.x, op.w, op.y})
            if (in != out)
                o->op.in.push_back(tensor_of(object_of(*o, in)));
    }
    const char *error = shape_error(o->problem);
    return error ? dnn_refuse(CUDNN_STATUS_BAD_PARAM, error) : CUDNN_STATUS_SUCCESS;
}

bool is_convolution(cudnnBackendDescriptorType_t type)
{
    return type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
           type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
           type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
}

cudnnStatus_t finalize_operation(dnn_object *o)
{
    enum {
        X = CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
        B = CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
        Y = CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
        DX = CUDNN_ATTR_OPERATION_POINTWISE_DXDESC,
        DY = CUDNN_ATTR_OPERATION_POINTWISE_DYDESC
    };
    static const auto pointwise = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
    static const struct {
        cudnnBackendDescriptorType_t type;
        int mode; // of pointwise operations
        dnn_op_kind kind;
        std::vector<int> in, out;
    } operations[] = {
        {CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR,
         -1,
         dnn_op_kind::stats,
         {CUDNN_ATTR_OPERATION_GENSTATS_XDESC},
         {CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC}},
        {CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR,
         -1,
         dnn_op_kind::bn_bwd,
         {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC,
          CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC,
          CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC,
          CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC},
         {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC,
          CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC,
          CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC,
          CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC,
          CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS}},
        {pointwise, CUDNN_POINTWISE_MUL, dnn_op_kind::mul, {X, B}, {Y}},
        {pointwise, CUDNN_POINTWISE_ADD, dnn_op_kind::add, {X, B}, {Y}},
        {pointwise, CUDNN_POINTWISE_SUB, dnn_op_kind::sub, {X, B}, {Y}},
        {pointwise, CUDNN_POINTWISE_RELU_FWD, dnn_op_kind::relu, {X}, {Y}},
        {pointwise, CUDNN_POINTWISE_RELU_BWD, dnn_op_kind::relu_bwd, {DY, X}, {DX}},
    };
    if (is_convolution(o->type))
        return finalize_convolution_op(o);
    const int mode = o->type == pointwise
                         ? one_of<int>(object_of(*o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR),
                                       CUDNN_ATTR_POINTWISE_MODE, -1)
                         : -1;
    for (const auto &op : operations) {
        if (op.type != o->type || op.mode != mode)
            continue;
        for (const auto *list : {&op.in, &op.out})
            for (const int name : *list)
                if (!has(*o, name))
                    return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "operation: a tensor is missing");
        o->op = {op.kind, tensors_of(*o, op.in), tensors_of(*o, op.out)};
        return CUDNN_STATUS_SUCCESS;
    }
    return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "operation: this function is not emulated");
}

cudnnStatus_t finalize_graph(dnn_object *o)
{
    const auto &ops = o->values.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).objects;
    const auto conv = std::find_if(ops.begin(), ops.end(),
                                   [](const dnn_ref &op) { return is_convolution(op->type); });
    if (conv == ops.end())
        return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN,
                          "graph: without a convolution it is not emulated");
    std::map<int64_t, const void *> descriptors;
    std::set<int64_t> written;
    o->problem = (*conv)->problem;
    for (const dnn_ref &op : ops) {
        o->problem.ops.push_back(op->op);
        for (const auto *list : {&op->op.in, &op->op.out})
            for (const dnn_tensor &t : *list)
                if (descriptors.emplace(t.id, t.descriptor).first->second != t.descriptor)
                    return dnn_refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
                                      "graph: different tensors have the same unique id");
        for (const dnn_tensor &t : op->op.in)
            if (t.is_virtual && !written.count(t.id))
                return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN,
                                  "graph: a virtual tensor is read before it is written");
        for (const dnn_tensor &t : op->op.out)
            written.insert(t.id);
    }
    put<int64_t>(o, CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_TYPE_INT64, {N_ENGINES});
    return CUDNN_STATUS_SUCCESS;
}

// For a graph that no engine takes, mode A has an empty list and the fallback refuses, unless the
// graph has several operations.
cudnnStatus_t finalize_heuristics(dnn_object *o)
{
    const auto mode = one_of(*o, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A);
    const dnn_object &graph = object_of(*o, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    if (mode != CUDNN_HEUR_MODE_A && mode != CUDNN_HEUR_MODE_B && mode != CUDNN_HEUR_MODE_FALLBACK)
        return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "heuristics: this mode is not emulated");
    o->configs = configs_of(mode, graph.problem);
    if (o->configs.empty() && mode == CUDNN_HEUR_MODE_FALLBACK && !is_fused(graph.problem))
        return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED,
                          std::string("heuristics: ") + why_not(graph.problem));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_engine(dnn_object *o)
{
    const auto index = one_of<int64_t>(*o, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);
    const dnn_object &graph = object_of(*o, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    if (!engine_takes(index, graph.problem))
        return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "engine: does not take this graph");
    const dnn_engine &engine = engine_of(index);
    put(o, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, engine.numerical);
    put(o, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, engine.behavior);
    const dnn_ref knob = new_object(CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR);
    put<int>(knob.get(), CUDNN_ATTR_KNOB_INFO_TYPE, CUDNN_TYPE_KNOB_TYPE,
             {CUDNN_KNOB_TYPE_TILE_SIZE});
    put<int64_t>(knob.get(), CUDNN_ATTR_KNOB_INFO_MINIMUM_VALUE, CUDNN_TYPE_INT64, {0});
    put<int64_t>(knob.get(), CUDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE, CUDNN_TYPE_INT64, {1});
    put<int64_t>(knob.get(), CUDNN_ATTR_KNOB_INFO_STRIDE, CUDNN_TYPE_INT64, {1});
    knob->finalized = true;
    put_objects(o, CUDNN_ATTR_ENGINE_KNOB_INFO, {knob});
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_config(dnn_object *o)
{
    const auto choices = o->values.find(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
    if (choices == o->values.end())
        return CUDNN_STATUS_SUCCESS;
    for (const dnn_ref &choice : choices->second.objects) {
        const int type = one_of<int>(*choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, -1);
        const auto chosen = one_of<int64_t>(*choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, -1);
        if (type != CUDNN_KNOB_TYPE_TILE_SIZE || chosen < 0 || chosen > 1)
            return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED,
                              "configuration: the engine has no such knob");
    }
    return CUDNN_STATUS_SUCCESS;
}

const dnn_object &engine_of_plan(const dnn_object &plan)
{
    return object_of(object_of(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG),
                     CUDNN_ATTR_ENGINECFG_ENGINE);
}

cudnnStatus_t finalize_plan(dnn_object *o)
{
    const dnn_object &engine = engine_of_plan(*o);
    const auto index = one_of<int64_t>(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);
    const dnn_object &graph = object_of(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    if (index == ENGINE_NO_KERNEL)
        return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED,
                          "plan: the engine has no kernel for this device");
    put<int64_t>(o, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                 {workspace_of(index, graph.problem)});
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_pack(dnn_object *o)
{
    const auto ids = list_of<int64_t>(*o, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto data = list_of<void *>(*o, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    if (ids.size() != data.size())
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM,
                          "variant pack: as many pointers as ids are needed");
    if (std::set<int64_t>(ids.begin(), ids.end()).size() != ids.size())
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "variant pack: an id twice");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_device(dnn_object *o)
{
    const auto chars = list_of<char>(*o, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
    const std::string json(chars.begin(), chars.end());
    if (has(*o, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION)) {
        if (json.front() != '{' || json.find("\"deviceVer\"") == std::string::npos)
            return dnn_refuse(CUDNN_STATUS_BAD_PARAM,
                              "device: the JSON does not describe a device");
        return CUDNN_STATUS_SUCCESS;
    }
    int n = 0;
    const auto index = one_of<int32_t>(*o, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, 0);
    if (cudaGetDeviceCount(&n) != cudaSuccess || index < 0 || index >= n)
        return dnn_refuse(CUDNN_STATUS_NOT_INITIALIZED, "device: there is none with this number");
    const std::string made = "{\"deviceVer\":900,\"deviceName\":\"emulated\"}";
    put(o, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
        std::vector<char>(made.begin(), made.end()));
    return CUDNN_STATUS_SUCCESS;
}

// cuDNN's own statuses for what is missing differ from descriptor to descriptor.
cudnnStatus_t missing(const dnn_object &o, cudnnBackendAttributeName_t name)
{
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE)
        emu_fail("cudnnBackendFinalize: an engine configuration without an engine");
    const cudnnStatus_t status =
        name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG ? CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED
        : name == CUDNN_ATTR_ENGINE_OPERATION_GRAPH     ? CUDNN_STATUS_BAD_PARAM_NULL_POINTER
        : name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX        ? CUDNN_STATUS_NOT_SUPPORTED
                                                        : CUDNN_STATUS_BAD_PARAM;
    return dnn_refuse(status, "descriptor " + std::to_string(o.type) + ": attribute " +
                                  std::to_string(name) + " is not set");
}

} // namespace

bool is_operation(cudnnBackendDescriptorType_t type)
{
    return is_convolution(type) || type == CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR ||
           type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR ||
           type == CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR;
}

cudnnStatus_t dnn_finalize(dnn_object *o)
{
    for (const attribute_rule &r : attribute_rules)
        if (r.descriptor == o->type && r.use == NEEDED && !has(*o, r.name))
            return missing(*o, r.name);
    static const std::map<int, cudnnStatus_t (*)(dnn_object *)> checks = {
        {CUDNN_BACKEND_TENSOR_DESCRIPTOR, finalize_tensor},
        {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, finalize_convolution},
        {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, finalize_graph},
        {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, finalize_heuristics},
        {CUDNN_BACKEND_ENGINE_DESCRIPTOR, finalize_engine},
        {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, finalize_config},
        {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, finalize_plan},
        {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, finalize_pack},
        {CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, finalize_device},
    };
    if (is_operation(o->type))
        return finalize_operation(o);
    const auto check = checks.find(o->type);
    return check != checks.end() ? check->second(o) : CUDNN_STATUS_SUCCESS;
}

} // namespace emu
