// Runs the graphs of the emulated cuDNN, one operation after the other. Values that pass between
// operations are in fp32, also those that are stored in 16 bits as well, as in fused kernels.
#include <random>
#include <set>

#include "dnn.h"
#include "emulator.h"

namespace emu
{
namespace
{

size_t size_of(const dnn_tensor &t)
{
    size_t n = 1;
    for (const int64_t d : t.dims)
        n *= static_cast<size_t>(d);
    return n;
}

number number_of(const dnn_tensor &t)
{
    number type;
    find_number(&type, t.type);
    return type;
}

region region_of(const dnn_run &run, const dnn_tensor &t)
{
    return {run.data.at(t.id), size_of(t) * bytes_of(number_of(t))};
}

using values = std::vector<float>;
using all_values = std::map<int64_t, values>; // by the id of the tensor

// The values of a tensor: computed before, or from memory.
const values &read(all_values *all, const dnn_run &run, const dnn_tensor &t)
{
    const auto [found, is_new] = all->emplace(t.id, values());
    if (is_new) {
        found->second.resize(size_of(t));
        for (size_t i = 0; i < found->second.size(); i++)
            found->second[i] = load_number(run.data.at(t.id), number_of(t), i);
    }
    return found->second;
}

// --- Operations: inputs to outputs ---

// As a convolution reads it: tensor cores take 16 bits or TF32.
values factors_of(const values &in, number type, bool tf32)
{
    values out(in.size());
    for (size_t i = 0; i < in.size(); i++) {
        store_number(&out[i], type, 0, in[i]);
        out[i] = load_number(&out[i], type, 0);
        out[i] = tf32 ? round_tf32(out[i]) : out[i];
    }
    return out;
}

size_t random_start()
{
    static std::mt19937_64 random(std::random_device{}());
    return static_cast<size_t>(random() % 65521);
}

void convolve(all_values *all, const dnn_run &run, const dnn_op &op)
{
    const dnn_problem &p = run.problem;
    const dnn_tensor *const tensors[] = {&p.x, &p.w, &p.y};
    const number type = number_of(p.w);
    const bool tf32 = type == number::f32 && run.engine == ENGINE_TENSOR_CORE;
    const conv_run conv = {shape_of(p), type, run.engine == ENGINE_SHORT,
                           run.engine == ENGINE_RANDOM ? random_start() : 0};
    const dnn_tensor &out = op.out[0];
    values factors[3], old;
    for (int i = 0; i < 3; i++)
        if (tensors[i]->id != out.id)
            factors[i] = factors_of(read(all, run, *tensors[i]), type, tf32);
    if (p.beta != 0)
        old = read(all, run, out);
    run_convolution(conv, factors);
    for (int i = 0; i < 3; i++)
        if (tensors[i]->id == out.id)
            (*all)[out.id] = factors[i];
    for (size_t i = 0; i < old.size(); i++)
        (*all)[out.id][i] += old[i];
}

// The sums of the values and of their squares, per channel.
std::vector<values> add_stats(const std::vector<values> &in, size_t n_channels)
{
    std::vector<values> sums(2, values(n_channels));
    for (size_t i = 0; i < in[0].size(); i++) {
        sums[0][i % n_channels] += in[0][i];
        sums[1][i % n_channels] += in[0][i] * in[0][i];
    }
    return sums;
}

// dy, x, mean, inverse standard deviation and scale to the gradients of scale and shift, and to the
// factors in dx = f[0] * dy + f[1] * x + f[2].
std::vector<values> reduce_bn(const std::vector<values> &in, size_t n_channels)
{
    const values &dy = in[0], &x = in[1], &mean = in[2], &inverse = in[3], &scale = in[4];
    const float n = static_cast<float>(dy.size() / n_channels);
    std::vector<values> out(5, values(n_channels));
    for (size_t i = 0; i < dy.size(); i++) {
        const size_t c = i % n_channels;
        out[0][c] += dy[i] * (x[i] - mean[c]) * inverse[c];
        out[1][c] += dy[i];
    }
    for (size_t c = 0; c < n_channels; c++) {
        out[2][c] = scale[c] * inverse[c];
        out[3][c] = -out[2][c] * inverse[c] * out[0][c] / n;
        out[4][c] = -out[2][c] * out[1][c] / n - out[3][c] * mean[c];
    }
    return out;
}

float apply(dnn_op_kind kind, float a, float b)
{
    switch (kind) {
    case dnn_op_kind::mul:
        return a * b;
    case dnn_op_kind::add:
        return a + b;
    case dnn_op_kind::sub:
        return a - b;
    case dnn_op_kind::relu:
        return a > 0 ? a : 0;
    default: // relu_bwd
        return b > 0 ? a : 0;
    }
}

// The second input may be a value per channel.
std::vector<values> apply_all(dnn_op_kind kind, const std::vector<values> &in)
{
    values out(in[0].size());
    for (size_t i = 0; i < out.size(); i++)
        out[i] = apply(kind, in[0][i], in.size() > 1 ? in[1][i % in[1].size()] : 0);
    return {out};
}

void execute_op(all_values *all, const dnn_run &run, const dnn_op &op)
{
    if (op.kind == dnn_op_kind::convolution)
        return convolve(all, run, op);
    const auto n_channels = static_cast<size_t>(op.in[0].dims[1]);
    std::vector<values> in;
    for (const dnn_tensor &t : op.in)
        in.push_back(read(all, run, t));
    const std::vector<values> out = op.kind == dnn_op_kind::stats    ? add_stats(in, n_channels)
                                    : op.kind == dnn_op_kind::bn_bwd ? reduce_bn(in, n_channels)
                                                                     : apply_all(op.kind, in);
    for (size_t i = 0; i < out.size(); i++)
        (*all)[op.out[i].id] = out[i];
}

} // namespace

void dnn_check_overlap(const dnn_run &run)
{
    std::map<int64_t, region> regions;
    std::set<int64_t> written;
    for (const dnn_op &op : run.problem.ops) {
        for (const auto *list : {&op.in, &op.out})
            for (const dnn_tensor &t : *list)
                if (!t.is_virtual)
                    regions[t.id] = region_of(run, t);
        for (const dnn_tensor &t : op.out)
            written.insert(t.id);
    }
    for (const auto &[id, r] : regions) {
        for (const auto &[other, r2] : regions)
            if (id != other && written.count(id) && overlap(r, r2))
                emu_fail("cudnnBackendExecute: the result overlaps with an input");
        if (overlap(r, run.workspace))
            emu_fail("cudnnBackendExecute: the workspace overlaps with a tensor");
    }
}

void dnn_execute(const dnn_run &run)
{
    all_values all;
    emu_check_device(run.workspace.begin, run.workspace.bytes, "cuDNN: workspace");
    if (run.workspace.bytes > 0) // NaNs, to expose a caller that keeps data there
        memset(const_cast<void *>(run.workspace.begin), 0xFF, run.workspace.bytes);
    for (const dnn_op &op : run.problem.ops) {
        for (const auto *list : {&op.in, &op.out})
            for (const dnn_tensor &t : *list)
                if (!t.is_virtual) {
                    const region r = region_of(run, t);
                    emu_check_device(r.begin, r.bytes,
                                     ("cuDNN: tensor " + std::to_string(t.id)).c_str());
                }
        execute_op(&all, run, op);
    }
    for (const dnn_op &op : run.problem.ops)
        for (const dnn_tensor &t : op.out)
            for (size_t i = 0; !t.is_virtual && i < all[t.id].size(); i++)
                store_number(run.data.at(t.id), number_of(t), i, all[t.id][i]);
}

} // namespace emu
