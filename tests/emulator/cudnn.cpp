// cuDNN for tests: the backend (graph) API for one convolution, forward or backward, in NHWC, alone
// or with what dtrain computes along with it (why_not_fused in dnn_engines.h). Descriptors store
// their attributes generically and make the checks of the real library: types, counts, finalized or
// not; the statuses are those of cuDNN 9.19. Misuse that crashes the real library aborts with a
// message; features that are not emulated are refused as not supported.
//
// Heuristics offer several engines (dnn_engines.h), among them one that is not deterministic, one
// that rounds fp32 to TF32, one that sums in 16 bits, and one whose plans cannot be made.
#include <cudnn.h>

#include <set>

#include "dnn.h"
#include "dnn_attributes.h"
#include "emulator.h"

struct cudnnContext {
    int device;
    cudaStream_t stream;
};

using emu::attribute_rule;
using emu::dnn_object;
using emu::dnn_refuse;
using emu::dnn_tensor;
using emu::dnn_value;

namespace
{

thread_local std::string last_message;

struct descriptor { // what a cudnnBackendDescriptor_t points to
    emu::dnn_ref content;
};

// The live handles and descriptors; on any other the real library crashes, or worse.
std::set<const void *> &live()
{
    static std::set<const void *> set;
    return set;
}

descriptor *descriptor_of(cudnnBackendDescriptor_t d)
{
    const auto lock = emu_lock();
    if (d && !live().count(d))
        emu_fail("cuDNN: a descriptor was destroyed or never created");
    return static_cast<descriptor *>(d);
}

void check_live(cudnnHandle_t handle)
{
    const auto lock = emu_lock();
    if (!live().count(handle))
        emu_fail("cuDNN: a handle was destroyed or never created");
}

// --- Attributes ---

// The rule for an attribute, or NULL and a status.
const attribute_rule *find_rule(const dnn_object &o, cudnnBackendAttributeName_t name,
                                cudnnBackendAttributeType_t type, cudnnStatus_t *status)
{
    const std::string text =
        "descriptor " + std::to_string(o.type) + ", attribute " + std::to_string(name) + ": ";
    *status = dnn_refuse(CUDNN_STATUS_BAD_PARAM, text + "no such attribute");
    for (const attribute_rule &r : emu::attribute_rules) {
        if (r.descriptor != o.type || r.name != name)
            continue;
        if (r.use == emu::REFUSED) {
            *status = dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, text + "not emulated");
            return nullptr;
        }
        if (r.type == type) {
            last_message.clear();
            *status = CUDNN_STATUS_SUCCESS;
            return &r;
        }
        *status = dnn_refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, text + "has a different type");
    }
    return nullptr;
}

cudnnStatus_t set_objects(dnn_object *o, const attribute_rule &rule, int64_t count,
                          const void *elements)
{
    std::vector<emu::dnn_ref> list;
    for (int64_t i = 0; i < count; i++) {
        const descriptor *d = descriptor_of(static_cast<void *const *>(elements)[i]);
        if (!d)
            return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor is NULL");
        const bool fits = rule.name == CUDNN_ATTR_OPERATIONGRAPH_OPS
                              ? emu::is_operation(d->content->type)
                              : d->content->type == rule.target;
        if (!fits)
            emu_fail("cudnnBackendSetAttribute: attribute %d cannot be a descriptor of type %d",
                     static_cast<int>(rule.name), static_cast<int>(d->content->type));
        if (!d->content->finalized)
            return dnn_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                              "a descriptor that is not finalized is used");
        list.push_back(d->content);
    }
    emu::put_objects(o, rule.name, list);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_attribute(dnn_object *o, const attribute_rule &rule, int64_t count,
                            const void *elements)
{
    if (rule.type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return set_objects(o, rule, count, elements);
    if (rule.type == CUDNN_TYPE_HANDLE) {
        cudnnHandle_t handle;
        memcpy(&handle, elements, sizeof handle);
        if (!handle)
            return dnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the handle is NULL");
        check_live(handle);
    }
    const char *bytes = static_cast<const char *>(elements);
    const size_t size = static_cast<size_t>(count) * emu::bytes_of(rule.type);
    o->values[rule.name] = {rule.type, count, std::vector<char>(bytes, bytes + size), {}};
    return CUDNN_STATUS_SUCCESS;
}

// Descriptors are read into descriptors of the caller, which become finalized.
cudnnStatus_t get_objects(const std::vector<emu::dnn_ref> &list, int64_t count, void *elements,
                          int64_t *n_filled)
{
    for (*n_filled = 0; *n_filled < count; ++*n_filled) {
        descriptor *d = descriptor_of(static_cast<void **>(elements)[*n_filled]);
        const emu::dnn_ref &from = list[static_cast<size_t>(*n_filled)];
        if (!d || d->content->type != from->type)
            return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "no descriptor of the right type to fill");
        d->content = from;
    }
    return CUDNN_STATUS_SUCCESS;
}

emu::dnn_ref make_config(const dnn_object &heuristics, const emu::engine_config &c)
{
    const auto &graph = heuristics.values.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).objects;
    const auto engine = emu::new_object(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    emu::put_objects(engine.get(), CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    emu::put<int64_t>(engine.get(), CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, {c.engine});
    const auto knob = emu::new_object(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    emu::put<int>(knob.get(), CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE,
                  {CUDNN_KNOB_TYPE_TILE_SIZE});
    emu::put<int64_t>(knob.get(), CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, {c.tile});
    const auto config = emu::new_object(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    emu::put_objects(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE, {engine});
    emu::put_objects(config.get(), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, {knob});
    for (const emu::dnn_ref &o : {engine, knob, config}) {
        if (emu::dnn_finalize(o.get()) != CUDNN_STATUS_SUCCESS)
            emu_fail("the heuristics of the emulated cuDNN offer an invalid configuration");
        o->finalized = true;
    }
    return config;
}

// If asked for none, it returns an upper bound; a descriptor that is already filled ends the list.
cudnnStatus_t get_results(const dnn_object &heuristics, int64_t count, void *elements, int64_t *n)
{
    enum { UPPER_BOUND = 13 };
    *n = UPPER_BOUND;
    if (count == 0 || !elements)
        return CUDNN_STATUS_SUCCESS;
    const auto available = static_cast<int64_t>(heuristics.configs.size());
    for (*n = 0; *n < count && *n < available; ++*n) {
        descriptor *d = descriptor_of(static_cast<void **>(elements)[*n]);
        if (!d || d->content->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
            return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "heuristics: no configuration to fill");
        if (d->content->finalized)
            break;
        d->content = make_config(heuristics, heuristics.configs[static_cast<size_t>(*n)]);
    }
    return CUDNN_STATUS_SUCCESS;
}

// --- Execution ---

// The pack's address of a tensor.
cudnnStatus_t find_data(void **out, const dnn_object &pack, const dnn_tensor &tensor)
{
    const auto ids = emu::list_of<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto data = emu::list_of<void *>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    *out = nullptr;
    for (size_t i = 0; i < ids.size(); i++)
        if (ids[i] == tensor.id)
            *out = data[i];
    if (!*out)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
                          "execute: no address for tensor " + std::to_string(tensor.id));
    if (!emu::is_aligned(*out, static_cast<uint64_t>(tensor.alignment)))
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                          "execute: tensor " + std::to_string(tensor.id) + " is misaligned");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t find_workspace(emu::region *out, const dnn_object &pack, int64_t bytes)
{
    void *const begin = emu::one_of<void *>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
    *out = {begin, static_cast<size_t>(bytes)};
    if (bytes > 0 && !begin)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "execute: no workspace");
    if (bytes > 0 && !emu::is_aligned(begin, 16))
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                          "execute: the workspace is misaligned");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t make_run(emu::dnn_run *run, const dnn_object &plan, const dnn_object &pack)
{
    const dnn_object &config = object_of(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const dnn_object &engine = object_of(config, CUDNN_ATTR_ENGINECFG_ENGINE);
    run->problem = object_of(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH).problem;
    run->engine = emu::one_of<int64_t>(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);
    for (const emu::dnn_op &op : run->problem.ops)
        for (const auto *list : {&op.in, &op.out})
            for (const dnn_tensor &t : *list) {
                const cudnnStatus_t status =
                    t.is_virtual ? CUDNN_STATUS_SUCCESS : find_data(&run->data[t.id], pack, t);
                if (status != CUDNN_STATUS_SUCCESS)
                    return status;
            }
    return find_workspace(&run->workspace, pack, emu::workspace_of(run->engine, run->problem));
}

const struct {
    cudnnStatus_t status;
    const char *name;
} statuses[] = {
#define S(name)                                    \
    {                                              \
        CUDNN_STATUS_##name, "CUDNN_STATUS_" #name \
    }
    S(SUCCESS),
    S(NOT_INITIALIZED),
    S(BAD_PARAM),
    S(BAD_PARAM_NULL_POINTER),
    S(BAD_PARAM_MISALIGNED_POINTER),
    S(BAD_PARAM_NOT_FINALIZED),
    S(BAD_PARAM_OUT_OF_BOUND),
    S(BAD_PARAM_STREAM_MISMATCH),
    S(BAD_PARAM_SHAPE_MISMATCH),
    S(BAD_PARAM_DUPLICATED_ENTRIES),
    S(BAD_PARAM_ATTRIBUTE_TYPE),
    S(BAD_PARAM_DESCRIPTOR_TYPE),
    S(NOT_SUPPORTED),
    S(NOT_SUPPORTED_GRAPH_PATTERN),
    S(NOT_SUPPORTED_DATA_TYPE),
    S(NOT_SUPPORTED_LAYOUT),
    S(INTERNAL_ERROR),
    S(INTERNAL_ERROR_HOST_ALLOCATION_FAILED),
    S(INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED),
    S(EXECUTION_FAILED),
    S(EXECUTION_FAILED_CUDART),
#undef S
};

bool is_emulated(cudnnBackendDescriptorType_t type)
{
    for (const attribute_rule &r : emu::attribute_rules)
        if (r.descriptor == type)
            return true;
    return false;
}

} // namespace

cudnnStatus_t emu::dnn_refuse(cudnnStatus_t status, const std::string &message)
{
    last_message = message;
    return status;
}

// --- The library ---

extern "C" {

size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

size_t cudnnGetCudartVersion(void)
{
    return CUDART_VERSION;
}

cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int *out)
{
    if (!out || type < MAJOR_VERSION || type > PATCH_LEVEL)
        return CUDNN_STATUS_BAD_PARAM;
    *out = type == MAJOR_VERSION   ? CUDNN_MAJOR
           : type == MINOR_VERSION ? CUDNN_MINOR
                                   : CUDNN_PATCHLEVEL;
    return CUDNN_STATUS_SUCCESS;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    for (const auto &s : statuses)
        if (s.status == status)
            return s.name;
    return "CUDNN_UNKNOWN_STATUS";
}

// Reading the message clears it.
void cudnnGetLastErrorString(char *out, size_t size)
{
    if (out && size > 0) {
        const size_t n = std::min(size - 1, last_message.size());
        memcpy(out, last_message.data(), n);
        out[n] = '\0';
    }
    last_message.clear();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *out)
{
    int n = 0;
    if (!out)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "handle == NULL");
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0)
        return dnn_refuse(CUDNN_STATUS_NOT_INITIALIZED, "no device");
    if (emu_forbid_capture("cudnnCreate") != cudaSuccess)
        return dnn_refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDART, "a stream is being captured");
    const auto lock = emu_lock();
    *out = new cudnnContext{emu_current_device(), nullptr};
    live().insert(*out);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    if (!handle)
        return CUDNN_STATUS_SUCCESS;
    check_live(handle);
    if (emu_forbid_capture("cudnnDestroy") != cudaSuccess)
        return dnn_refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDART, "a stream is being captured");
    const auto lock = emu_lock();
    live().erase(handle);
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    if (!handle)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "handle == NULL");
    check_live(handle);
    if (stream && emu_stream_device(stream) != handle->device)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH,
                          "the stream and the handle belong to different devices");
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *out)
{
    if (!handle || !out)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "handle or stream is NULL");
    check_live(handle);
    *out = handle->stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out)
{
    if (!out)
        emu_fail("cudnnBackendCreateDescriptor: the result pointer is NULL");
    if (type < 0 || type > CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR)
        return dnn_refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no such descriptor");
    if (!is_emulated(type))
        return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "this descriptor is not emulated");
    const auto lock = emu_lock();
    *out = new descriptor{emu::new_object(type)};
    live().insert(*out);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
    descriptor *own = descriptor_of(d);
    if (!own)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the descriptor is NULL");
    const auto lock = emu_lock();
    live().erase(d);
    delete own;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d)
{
    const descriptor *own = descriptor_of(d);
    if (!own)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the descriptor is NULL");
    if (own->content->finalized)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "the descriptor is already finalized");
    const cudnnStatus_t status = emu::dnn_finalize(own->content.get());
    own->content->finalized = status == CUDNN_STATUS_SUCCESS;
    return status;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *elements)
{
    const descriptor *own = descriptor_of(d);
    if (!own)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the descriptor is NULL");
    dnn_object *o = own->content.get();
    if (o->finalized)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "the descriptor is already finalized");
    cudnnStatus_t status;
    const attribute_rule *rule = find_rule(*o, name, type, &status);
    if (!rule)
        return status;
    if (rule->use == emu::RESULT)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "this attribute is read-only");
    if (!elements || count < 1)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "no elements");
    if (count > rule->max_count)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "too many elements");
    return set_attribute(o, *rule, count, elements);
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const d,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       int64_t *n_elements, void *elements)
{
    const descriptor *own = descriptor_of(d);
    if (!own)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the descriptor is NULL");
    const dnn_object &o = *own->content;
    if (!o.finalized)
        return dnn_refuse(CUDNN_STATUS_NOT_INITIALIZED, "the descriptor is not finalized");
    cudnnStatus_t status;
    const attribute_rule *rule = find_rule(o, name, type, &status);
    if (!rule)
        return status;
    if (count < 0)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "a negative number of elements");
    int64_t n = 0;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        status = get_results(o, count, elements, &n);
    } else if (!emu::has(o, name)) {
        return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "default values are not emulated");
    } else {
        const dnn_value &v = o.values.at(name);
        if (v.type != type)
            return dnn_refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
                              "it was set with a different type");
        n = count == 0 || !elements ? v.count : std::min(count, v.count);
        if (count > 0 && elements && rule->type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
            status = get_objects(v.objects, n, elements, &n);
        else if (count > 0 && elements && n > 0)
            memcpy(elements, v.bytes.data(), static_cast<size_t>(n) * emu::bytes_of(rule->type));
    }
    if (n_elements)
        *n_elements = n;
    return status;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    const descriptor *p = descriptor_of(plan), *v = descriptor_of(pack);
    if (!handle || !p || !v)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "execute: handle, plan or pack is NULL");
    check_live(handle);
    if (p->content->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
        v->content->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "execute: no plan or no variant pack");
    if (!p->content->finalized || !v->content->finalized)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                          "execute: plan or pack is not finalized");
    if (emu::has(*p->content, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP))
        emu_fail("cudnnBackendExecute: the plan was made for a description of a device");
    emu::dnn_run run = {};
    const cudnnStatus_t status = make_run(&run, *p->content, *v->content);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    if (emu_current_device() != handle->device)
        emu_fail("cudnnBackendExecute: device %d is current, but the handle belongs to device %d",
                 emu_current_device(), handle->device);
    dnn_check_overlap(run);
    std::vector<const void *> touched;
    for (const auto &[id, data] : run.data)
        touched.push_back(data);
    emu_enqueue(
        handle->stream, [run] { dnn_execute(run); }, "cudnnBackendExecute", touched);
    return CUDNN_STATUS_SUCCESS;
}

} // extern "C"
