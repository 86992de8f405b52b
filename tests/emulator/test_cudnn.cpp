// The emulated cuDNN: compares the convolutions of every engine with plain sums in fp64, and checks
// the engines' notes and the use of plans.
#include "dnn_rig.h"

// --- Results ---

// Adds to the tensor written by the operation.
static std::vector<double> reference(const conv &v, const array &x, const array &w, const array &y)
{
    const bool forward = v.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
    const bool data = v.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
    const array &target = forward ? y : data ? x : w;
    std::vector<double> out(target.values.size());
    for (size_t i = 0; i < out.size(); i++)
        out[i] = static_cast<double>(v.beta) * static_cast<double>(target.values[i]);
    const auto at = [](const array &a, int i) {
        return static_cast<double>(a.values[static_cast<size_t>(i)]);
    };
    for (int image = 0; image < v.n; image++)
        for (int p = 0; p < v.p(); p++)
            for (int q = 0; q < v.q(); q++)
                for (int r = 0; r < v.r; r++)
                    for (int s = 0; s < v.s; s++) {
                        const int h = p * v.stride + r - v.pad, i = q * v.stride + s - v.pad;
                        if (h < 0 || h >= v.h || i < 0 || i >= v.w)
                            continue;
                        for (int k = 0; k < v.k; k++)
                            for (int c = 0; c < v.c; c++) {
                                const int xi = ((image * v.h + h) * v.w + i) * v.c + c;
                                const int wi = ((k * v.r + r) * v.s + s) * v.c + c;
                                const int yi = ((image * v.p() + p) * v.q() + q) * v.k + k;
                                out[static_cast<size_t>(forward ? yi
                                                        : data  ? xi
                                                                : wi)] +=
                                    forward ? at(x, xi) * at(w, wi)
                                    : data  ? at(y, yi) * at(w, wi)
                                            : at(y, yi) * at(x, xi);
                            }
                    }
    return out;
}

struct conv_memory {
    array x, w, y;
    explicit conv_memory(const conv &v)
        : x(v.type, static_cast<size_t>(v.n * v.h * v.w * v.c)),
          w(v.type, static_cast<size_t>(v.k * v.r * v.s * v.c)),
          y(v.type, static_cast<size_t>(v.n * v.p() * v.q() * v.k))
    {
    }
    const array &out(const conv &v) const
    {
        return v.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? y
               : v.kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? x
                                                                                        : w;
    }
};

// Runs a plan; beta = 0 overwrites the old values, including NaNs.
static std::vector<float> run(const conv &v, const conv_memory &m, D plan)
{
    const array &out = m.out(v);
    array workspace(number::f32, workspace_of(plan) / 4 + 1);
    if (v.beta == 0)
        OK(cudaMemset(out.device, 0xFF, out.values.size() * emu::bytes_of(v.type)));
    D pack = new_pack({1, 2, 3}, {m.x.device, m.w.device, m.y.device}, workspace.device);
    OK(cudnnBackendFinalize(pack));
    OK(cudnnBackendExecute(dnn, plan, pack));
    return out.download();
}

// All plans that can be made; returns their number.
static int check_conv(conv v)
{
    int n_plans = 0;
    v.open();
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
        for (const D config : configs_of(v.graph, mode)) {
            const conv_memory m(v);
            const bool tf32 = v.type == number::f32 &&
                              (notes_of(config) & 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
            D plan = new_plan(config);
            const cudnnStatus_t status = cudnnBackendFinalize(plan);
            if (status == CUDNN_STATUS_NOT_SUPPORTED)
                continue;
            OK(status);
            n_plans++;
            const double error = error_of(run(v, m, plan), reference(v, m.x, m.w, m.y));
            const bool is_short =
                notes_of(config) & 1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
            if (error > bound_of(v.type, tf32) * (is_short ? 2 : 1))
                fail_msg("error %g with notes 0x%x", error, notes_of(config));
            if (tf32)
                assert_true(error > 1e-5);
        }
    destroy_made(nullptr);
    return n_plans;
}

TEST_WITH(convolutions, nullptr, destroy_made)
{
    static const cudnnBackendDescriptorType_t kinds[] = {
        CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
        CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR};
    static const int windows[][4] = {{3, 3, 1, 1}, {3, 3, 2, 1}, {1, 1, 1, 0}, {1, 1, 2, 0},
                                     {5, 2, 2, 2}, {7, 6, 1, 0}, {3, 3, 2, 0}};
    for (const auto kind : kinds)
        for (const number type : {number::f32, number::f16, number::bf16})
            for (const auto &window : windows) {
                conv v;
                v.kind = kind;
                v.type = type;
                v.r = window[0];
                v.s = window[1];
                v.stride = window[2];
                v.pad = window[3];
                v.beta = v.stride == 2 ? 1 : 0;
                const bool winograd = v.r == 3 && v.s == 3 && v.stride == 1;
                assert_int_equal(check_conv(v), 5 + winograd + (type != number::f32));
            }
}

// The engine noted as not deterministic is not, and all others are.
TEST_WITH(order_of_sums, nullptr, destroy_made)
{
    conv v;
    v.c = 32;
    v.open();
    const conv_memory m(v);
    for (const D config : configs_of(v.graph, CUDNN_HEUR_MODE_A)) {
        D plan = new_plan(config);
        if (cudnnBackendFinalize(plan) != CUDNN_STATUS_SUCCESS)
            continue;
        const std::vector<float> first = run(v, m, plan);
        bool differs = false;
        for (int i = 0; i < 10; i++)
            differs = differs || run(v, m, plan) != first;
        assert_int_equal(differs,
                         (notes_of(config) & 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) != 0);
    }
}

// The engine noted as summing in 16 bits rounds more than the others.
TEST_WITH(short_sums, nullptr, destroy_made)
{
    conv v;
    v.type = number::f16;
    v.c = 32;
    v.open();
    const conv_memory m(v);
    double error[2] = {};
    for (const D config : configs_of(v.graph, CUDNN_HEUR_MODE_A)) {
        D plan = new_plan(config);
        if (cudnnBackendFinalize(plan) != CUDNN_STATUS_SUCCESS)
            continue;
        const bool is_short =
            notes_of(config) & 1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
        error[is_short] =
            std::max(error[is_short], error_of(run(v, m, plan), reference(v, m.x, m.w, m.y)));
    }
    assert_true(error[0] > 0 && error[1] > 1.05 * error[0]);
}

// --- Plans and their use ---

TEST_WITH(unsupported, nullptr, destroy_made)
{
    conv mirrored, scaled;
    mirrored.mode = CUDNN_CONVOLUTION;
    scaled.beta = 0.5f;
    for (conv *v : {&mirrored, &scaled}) {
        v->open();
        assert_int_equal(configs_of(v->graph, CUDNN_HEUR_MODE_A).size(), 0);
        GIVES(CUDNN_STATUS_NOT_SUPPORTED,
              cudnnBackendFinalize(new_heuristics(v->graph, CUDNN_HEUR_MODE_FALLBACK)));
    }
    char message[100] = "";
    cudnnGetLastErrorString(message, sizeof message);
    assert_non_null(strstr(message, "beta"));
    cudnnGetLastErrorString(message, sizeof message);
    assert_string_equal(message, "");
    D t = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), d = nullptr;
    GIVES(CUDNN_STATUS_NOT_SUPPORTED, set_ints(t, CUDNN_ATTR_TENSOR_VECTOR_COUNT, {4}));
    GIVES(CUDNN_STATUS_NOT_SUPPORTED,
          cudnnBackendCreateDescriptor(CUDNN_BACKEND_RESAMPLE_DESCRIPTOR, &d));
}

// A convolution with its sums: several engines, all listed by mode A, or none at all.
TEST_WITH(fused_graphs, nullptr, destroy_made)
{
    static const struct {
        number type, sums;
        int c, n_sums, dilation, n_configs;
    } cases[] = {
        {number::f16, number::f32, 8, 8, 1, 4}, {number::f16, number::f32, 4, 8, 1, 0},
        {number::f16, number::f32, 8, 9, 1, 0}, {number::f16, number::f32, 8, 8, 2, 0},
        {number::f16, number::f16, 8, 8, 1, 0}, {number::bf16, number::f32, 8, 8, 1, 0},
        {number::f32, number::f32, 8, 8, 1, 0},
    };
    for (const auto &k : cases) {
        conv v;
        v.type = k.type;
        v.c = k.c;
        v.dilation = k.dilation;
        v.open();
        D stats = new_stats(v, k.sums, k.n_sums);
        OK(cudnnBackendFinalize(stats));
        for (const bool swapped : {false, true}) {
            D graph = swapped ? new_graph({stats, v.op}) : new_graph({v.op, stats});
            OK(cudnnBackendFinalize(graph));
            assert_int_equal(configs_of(graph, CUDNN_HEUR_MODE_A).size(),
                             swapped ? 0 : k.n_configs);
            assert_int_equal(configs_of(graph, CUDNN_HEUR_MODE_FALLBACK).size(), 0);
        }
    }
}

TEST_WITH(plans, nullptr, destroy_made)
{
    conv v;
    v.open();
    const auto list = configs_of(v.graph, CUDNN_HEUR_MODE_A);
    assert_int_equal(list.size(), 5);
    const unsigned notes[] = {
        1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE, 0, 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
        1u << CUDNN_NUMERICAL_NOTE_WINOGRAD | 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4, 0};
    const bool has_kernel[] = {true, false, true, true, true};
    const bool has_workspace[] = {true, false, true, true, false};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(notes_of(list[i]), notes[i]);
        D plan = new_plan(list[i]);
        GIVES(has_kernel[i] ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED,
              cudnnBackendFinalize(plan));
        if (has_kernel[i])
            assert_int_equal(workspace_of(plan) > 0, has_workspace[i]);
    }
}

TEST_WITH(execute_arguments, nullptr, destroy_made)
{
    conv v;
    v.open();
    const conv_memory m(v);
    void *x = m.x.device, *w = m.w.device, *y = m.y.device;
    D plan = new_plan(configs_of(v.graph, CUDNN_HEUR_MODE_A)[0]);
    D early = new_pack({1, 2, 3}, {x, w, y}, nullptr);
    GIVES(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, cudnnBackendExecute(dnn, plan, early));
    OK(cudnnBackendFinalize(plan));
    array workspace(number::f32, workspace_of(plan) / 4 + 9);
    char *place = static_cast<char *>(workspace.device);
    const auto call = [&](const std::vector<int64_t> &ids, void *y_at, void *workspace_at) {
        D pack = new_pack(ids, {x, w, y_at}, workspace_at);
        OK(cudnnBackendFinalize(pack));
        return cudnnBackendExecute(dnn, plan, pack);
    };
    OK(call({1, 2, 3}, y, place));
    GIVES(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, call({1, 2, 4}, y, place));
    GIVES(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, call({1, 2, 3}, nullptr, place));
    GIVES(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, call({1, 2, 3}, y, nullptr));
    GIVES(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
          call({1, 2, 3}, static_cast<char *>(y) + 4, place));
    GIVES(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, call({1, 2, 3}, y, place + 4));
    D bad = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    OK(set_ints(bad, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {1, 2}));
    GIVES(CUDNN_STATUS_BAD_PARAM, cudnnBackendFinalize(bad));
    OK(cudaDeviceSynchronize());
}

// Descriptors may be destroyed before the objects made from them.
TEST_WITH(lifetimes, nullptr, destroy_made)
{
    conv v;
    v.open();
    const conv_memory m(v);
    D plan = new_plan(configs_of(v.graph, CUDNN_HEUR_MODE_A)[4]);
    OK(cudnnBackendFinalize(plan));
    made.erase(std::find(made.begin(), made.end(), plan));
    destroy_made(nullptr);
    assert_true(error_of(run(v, m, plan), reference(v, m.x, m.w, m.y)) < 2e-6);
    OK(cudnnBackendDestroyDescriptor(plan));
}

// --- Undefined behaviour ---

static void abuse_descriptor()
{
    D t = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    OK(cudnnBackendDestroyDescriptor(t));
    cudnnBackendFinalize(t);
}

static void abuse_type()
{
    conv v;
    v.open();
    D op = make(v.kind);
    set_object(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, v.window);
}

static void execute_with(size_t config, size_t y_bytes, bool overlap_workspace)
{
    conv v;
    v.open();
    const conv_memory m(v);
    void *y = nullptr;
    D plan = new_plan(configs_of(v.graph, CUDNN_HEUR_MODE_A)[config]);
    OK(cudnnBackendFinalize(plan));
    OK(cudaMalloc(&y, y_bytes));
    D pack =
        new_pack({1, 2, 3}, {m.x.device, m.w.device, y}, overlap_workspace ? m.x.device : nullptr);
    OK(cudnnBackendFinalize(pack));
    OK(cudnnBackendExecute(dnn, plan, pack));
    OK(cudaDeviceSynchronize());
}

static const abuse abuses[] = {
    {"descriptor", "a descriptor was destroyed", abuse_descriptor},
    {"type", "cannot be a descriptor of type", abuse_type},
    {"config", "without an engine",
     [] { cudnnBackendFinalize(make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)); }},
    {"size", "cuDNN: tensor 3", [] { execute_with(4, 2 * 8 * 7 * 6 * 4 - 16, false); }},
    {"workspace", "the workspace overlaps", [] { execute_with(0, 2 * 8 * 7 * 6 * 4, true); }},
};

TEST_WITH(abuses, nullptr, destroy_made)
{
    for (const abuse &a : abuses)
        assert_aborts(a);
}

int main(int argc, char **argv)
{
    OK(cudnnCreate(&dnn));
    const int n_failed = run_tests_or_abuse(abuses, argc, argv);
    cudnnDestroy(dnn);
    return n_failed;
}
