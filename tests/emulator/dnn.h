// Internals of the emulated cuDNN: descriptors and the values of their attributes.
#ifndef DTRAIN_EMULATOR_DNN_H
#define DTRAIN_EMULATOR_DNN_H

#include <cudnn.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dnn_engines.h"

namespace emu
{

struct dnn_object;
using dnn_ref = std::shared_ptr<dnn_object>;

struct dnn_value {
    cudnnBackendAttributeType_t type;
    int64_t count;
    std::vector<char> bytes;      // for everything but descriptors
    std::vector<dnn_ref> objects; // descriptors, sharing the content of the caller's
};

// The content of a descriptor. It is immutable once finalized, so others can share it and outlive
// the descriptor itself.
struct dnn_object {
    cudnnBackendDescriptorType_t type;
    bool finalized = false;
    std::map<int, dnn_value> values;
    dnn_op op;                          // operations, when finalized
    dnn_problem problem;                // convolutions and graphs, when finalized
    std::vector<engine_config> configs; // heuristics
};

inline dnn_ref new_object(cudnnBackendDescriptorType_t type)
{
    auto o = std::make_shared<dnn_object>();
    o->type = type;
    return o;
}

// --- Reading ---

inline bool has(const dnn_object &o, int name)
{
    return o.values.count(name) > 0;
}

template <typename T> std::vector<T> list_of(const dnn_object &o, int name)
{
    std::vector<T> out;
    if (!has(o, name))
        return out;
    const dnn_value &v = o.values.at(name);
    out.resize(static_cast<size_t>(v.count));
    if (!v.bytes.empty())
        memcpy(static_cast<void *>(out.data()), v.bytes.data(), v.bytes.size());
    return out;
}

template <typename T> T one_of(const dnn_object &o, int name, T otherwise)
{
    const std::vector<T> list = list_of<T>(o, name);
    return list.empty() ? otherwise : list[0];
}

inline const dnn_object &object_of(const dnn_object &o, int name)
{
    return *o.values.at(name).objects[0];
}

// --- Writing ---

template <typename T>
void put(dnn_object *o, int name, cudnnBackendAttributeType_t type, const std::vector<T> &list)
{
    dnn_value v = {type, static_cast<int64_t>(list.size()), {}, {}};
    v.bytes.resize(list.size() * sizeof(T));
    if (!list.empty())
        memcpy(v.bytes.data(), list.data(), v.bytes.size());
    o->values[name] = v;
}

inline void put_objects(dnn_object *o, int name, const std::vector<dnn_ref> &list)
{
    o->values[name] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(list.size()), {}, list};
}

// --- Checks ---

// Keeps the message for cudnnGetLastErrorString and returns the status.
cudnnStatus_t dnn_refuse(cudnnStatus_t status, const std::string &message);
bool is_operation(cudnnBackendDescriptorType_t type);
// Everything that cudnnBackendFinalize checks and derives (dnn_finalize.cpp).
cudnnStatus_t dnn_finalize(dnn_object *o);

// --- Execution (dnn_execute.cpp) ---

struct dnn_run {
    dnn_problem problem;
    int64_t engine;
    std::map<int64_t, void *> data; // of the tensors in memory, by id
    region workspace;
};

void dnn_check_overlap(const dnn_run &run);
void dnn_execute(const dnn_run &run);

} // namespace emu

#endif
