// Statuses of the emulated cuDNN for misuse of descriptors. No device is needed, so the same
// program also runs with the real cuDNN, which must return the same statuses.
#include "dnn_rig.h"

TEST_WITH(tensor_attributes, nullptr, destroy_made)
{
    D t = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const cudnnStatus_t bad = CUDNN_STATUS_BAD_PARAM;
    const int64_t v[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    int64_t n = -1, got[4] = {0, 0, 77, 0};
    const auto type = CUDNN_ATTR_TENSOR_DATA_TYPE, strides = CUDNN_ATTR_TENSOR_STRIDES;
    GIVES(bad, cudnnBackendFinalize(t));
    GIVES(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, set_ints(t, type, {1}));
    for (const int64_t count : {-1, 0, 2})
        GIVES(bad, cudnnBackendSetAttribute(t, type, CUDNN_TYPE_DATA_TYPE, count, v));
    GIVES(bad, cudnnBackendSetAttribute(t, type, CUDNN_TYPE_DATA_TYPE, 1, nullptr));
    GIVES(bad, set_ints(t, CUDNN_ATTR_CONVOLUTION_DILATIONS, {1, 1}));
    GIVES(bad, set_ints(t, static_cast<cudnnBackendAttributeName_t>(9999), {1, 1}));
    GIVES(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, set_ints(nullptr, strides, {1}));
    t = new_tensor(number::f32, 1, {1, 2, 3, 4});
    GIVES(CUDNN_STATUS_NOT_INITIALIZED,
          cudnnBackendGetAttribute(t, strides, CUDNN_TYPE_INT64, 4, &n, got));
    OK(set_ints(t, strides, {1, 2, 3}));
    GIVES(bad, cudnnBackendFinalize(t));
    OK(set_ints(t, strides, {24, 1, 8, 2}));
    OK(set_ints(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {2}));
    GIVES(bad, cudnnBackendFinalize(t));
    OK(set_ints(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {16}));
    OK(cudnnBackendFinalize(t));
    GIVES(bad, cudnnBackendFinalize(t));
    GIVES(bad, set_ints(t, strides, {24, 1, 8, 2}));
    OK(cudnnBackendGetAttribute(t, strides, CUDNN_TYPE_INT64, 2, &n, got));
    assert_int_equal(n, 2);
    assert_int_equal(got[0], 24);
    assert_int_equal(got[2], 77);
    OK(cudnnBackendGetAttribute(t, strides, CUDNN_TYPE_INT64, 0, &n, nullptr));
    assert_int_equal(n, 4);
    GIVES(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
          cudnnBackendGetAttribute(t, strides, CUDNN_TYPE_FLOAT, 4, &n, got));
    GIVES(bad, cudnnBackendGetAttribute(t, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 4,
                                        &n, got));
}

TEST_WITH(operation_statuses, nullptr, destroy_made)
{
    conv v;
    v.open();
    const cudnnStatus_t bad = CUDNN_STATUS_BAD_PARAM;
    for (const auto name :
         {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES}) {
        D window = new_window(v);
        OK(set_ints(window, name, {0, 1}));
        GIVES(bad, cudnnBackendFinalize(window));
        OK(set_ints(window, name, {1, 1, 1}));
        GIVES(bad, cudnnBackendFinalize(window));
    }
    conv wrong = v; // y has the shape of x
    wrong.y = v.x;
    GIVES(bad, cudnnBackendFinalize(new_op(wrong)));
    D op = make(v.kind);
    GIVES(bad, cudnnBackendFinalize(op));
    GIVES(bad, set_object(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, nullptr));
    OK(set<double>(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_DOUBLE, {1}));
    D graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    const cudnnHandle_t none = nullptr;
    GIVES(bad, cudnnBackendFinalize(graph));
    GIVES(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
          set_object(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, op));
    GIVES(CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
          set<cudnnHandle_t>(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, {none}));
    D d = nullptr;
    GIVES(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
          cudnnBackendCreateDescriptor(static_cast<cudnnBackendDescriptorType_t>(999), &d));
    GIVES(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, cudnnBackendDestroyDescriptor(nullptr));
}

TEST_WITH(stats_statuses, nullptr, destroy_made)
{
    conv v;
    v.open();
    // That the sizes fit is only checked by the engines.
    for (const int n : {v.k, v.k + 1}) {
        D stats = new_stats(v, number::f32, n);
        OK(cudnnBackendFinalize(stats));
        OK(cudnnBackendFinalize(new_graph({v.op, stats})));
    }
}

static D new_function(cudnnPointwiseMode_t mode)
{
    D d = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    OK(set<cudnnPointwiseMode_t>(d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, {mode}));
    OK(set<cudnnDataType_t>(d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                            {CUDNN_DATA_FLOAT}));
    OK(cudnnBackendFinalize(d));
    return d;
}

TEST_WITH(pointwise_statuses, nullptr, destroy_made)
{
    static const auto X = CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                      B = CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                      Y = CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
                      DX = CUDNN_ATTR_OPERATION_POINTWISE_DXDESC,
                      DY = CUDNN_ATTR_OPERATION_POINTWISE_DYDESC;
    static const struct {
        cudnnPointwiseMode_t mode;
        std::vector<cudnnBackendAttributeName_t> needed;
    } functions[] = {
        {CUDNN_POINTWISE_MUL, {X, B, Y}},        {CUDNN_POINTWISE_ADD, {X, B, Y}},
        {CUDNN_POINTWISE_SUB, {X, B, Y}},        {CUDNN_POINTWISE_RELU_FWD, {X, Y}},
        {CUDNN_POINTWISE_RELU_BWD, {DY, X, DX}},
    };
    conv v;
    v.open();
    for (const auto &f : functions)
        for (size_t without = 0; without <= f.needed.size(); without++) {
            D d = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
            OK(set_object(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, new_function(f.mode)));
            for (size_t i = 0; i < f.needed.size(); i++)
                if (i != without)
                    OK(set_object(d, f.needed[i], v.x));
            GIVES(without < f.needed.size() ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_SUCCESS,
                  cudnnBackendFinalize(d));
        }
}

static const char device_json[] =
    "{\"deviceVer\":900,\"driverVer\":13000,\"deviceName\":\"NVIDIA H200\",\"cudaDeviceId\":0,"
    "\"pciDeviceId\":590680286,\"multiProcessorCount\":132,\"warpSize\":32,\"regsPerBlock\":65536,"
    "\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,"
    "\"maxThreadsPerSM\":2048,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,"
    "\"isTccDriver\":0,\"supportCoopLaunch\":1,\"totalGlobalMem\":150754820096,"
    "\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64]}";

static D new_device(const char *json)
{
    D d = make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    OK(cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                static_cast<int64_t>(strlen(json)), json));
    return d;
}

static void check_engine_statuses(const conv &v, D device, D config)
{
    int64_t n = -1, index = -1;
    D engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    GIVES(CUDNN_STATUS_BAD_PARAM, set_object(config, CUDNN_ATTR_ENGINECFG_ENGINE, engine));
    GIVES(CUDNN_STATUS_BAD_PARAM, cudnnBackendFinalize(config));
    OK(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                1, &n, &engine));
    OK(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n,
                                &index));
    D own = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    const cudnnBackendNumericalNote_t note = CUDNN_NUMERICAL_NOTE_WINOGRAD;
    GIVES(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, cudnnBackendFinalize(own));
    OK(set_object(own, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, v.graph));
    OK(set_object(own, CUDNN_ATTR_ENGINE_DEVICEPROP, device));
    GIVES(CUDNN_STATUS_NOT_SUPPORTED, cudnnBackendFinalize(own));
    OK(set_ints(own, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, {99999}));
    GIVES(CUDNN_STATUS_NOT_SUPPORTED, cudnnBackendFinalize(own));
    OK(set_ints(own, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, {index}));
    OK(cudnnBackendFinalize(own));
    GIVES(CUDNN_STATUS_BAD_PARAM,
          set<cudnnBackendNumericalNote_t>(own, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                           CUDNN_TYPE_NUMERICAL_NOTE, {note}));
    D own_config = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    OK(set_object(own_config, CUDNN_ATTR_ENGINECFG_ENGINE, own));
    OK(cudnnBackendFinalize(own_config));
    D plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    GIVES(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, cudnnBackendFinalize(plan));
}

TEST_WITH(heuristics, nullptr, destroy_made)
{
    conv v;
    v.open();
    int64_t n = -1;
    D bad_device = new_device("{bad}"), device = new_device(device_json);
    GIVES(CUDNN_STATUS_BAD_PARAM, cudnnBackendFinalize(bad_device));
    OK(cudnnBackendFinalize(device));
    D h = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    GIVES(CUDNN_STATUS_BAD_PARAM, cudnnBackendFinalize(h));
    h = new_heuristics(v.graph, CUDNN_HEUR_MODE_A);
    OK(set_object(h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device));
    GIVES(CUDNN_STATUS_BAD_PARAM, set_object(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, v.graph));
    const auto results = CUDNN_ATTR_ENGINEHEUR_RESULTS;
    const auto objects = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    GIVES(CUDNN_STATUS_NOT_INITIALIZED,
          cudnnBackendGetAttribute(h, results, objects, 0, &n, nullptr));
    OK(cudnnBackendFinalize(h));
    D list[2] = {make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR),
                 make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)};
    OK(cudnnBackendGetAttribute(h, results, objects, 0, &n, nullptr));
    assert_true(n > 5); // an upper bound
    OK(cudnnBackendGetAttribute(h, results, objects, 2, &n, list));
    assert_int_equal(n, 2);
    OK(cudnnBackendGetAttribute(h, results, objects, 2, &n, list)); // filled already
    assert_int_equal(n, 0);
    check_engine_statuses(v, device, list[0]);
}

TEST_WITH(pack_statuses, nullptr, destroy_made)
{
    int value = 0;
    void *data[3] = {&value, &value, &value};
    D empty = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    OK(cudnnBackendFinalize(empty));
    GIVES(CUDNN_STATUS_BAD_PARAM, cudnnBackendFinalize(empty));
    D pack = new_pack({1, 2, 3}, {data[0], data[1], data[2]}, nullptr);
    OK(cudnnBackendFinalize(pack));
    GIVES(CUDNN_STATUS_BAD_PARAM, set_ints(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {1}));
    GIVES(CUDNN_STATUS_BAD_PARAM, cudnnBackendExecute(nullptr, pack, pack));
    assert_string_equal(cudnnGetErrorString(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED),
                        "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED");
    assert_string_equal(cudnnGetErrorString(static_cast<cudnnStatus_t>(77777)),
                        "CUDNN_UNKNOWN_STATUS");
    GIVES(CUDNN_STATUS_BAD_PARAM, cudnnCreate(nullptr));
    GIVES(CUDNN_STATUS_BAD_PARAM, cudnnSetStream(nullptr, nullptr));
    GIVES(CUDNN_STATUS_SUCCESS, cudnnDestroy(nullptr));
    GIVES(CUDNN_STATUS_BAD_PARAM, cudnnGetProperty(static_cast<libraryPropertyType>(9), &value));
    OK(cudnnGetProperty(MAJOR_VERSION, &value));
    assert_int_equal(value, 9);
}

int main(void)
{
    // For the version that the emulator follows; other versions may return other statuses.
    if (cudnnGetVersion() / 100 != 919)
        return 77;
    return run_all_tests(nullptr, nullptr);
}
