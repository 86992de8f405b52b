// The runtime's functions for devices, events and errors. Streams are in queue.cpp, memory in
// memory.cpp, captures and graphs in capture.cpp.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <set>

#include "runtime.h"

namespace emu
{

namespace
{

thread_local int current_device;
thread_local cudaError_t last_error = cudaSuccess;

size_t number_from(const char *name, size_t otherwise, size_t limit)
{
    const char *text = getenv(name);
    if (!text || !*text)
        return otherwise;
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (*end || value > limit)
        emu_fail("%s=%s is not a number from 0 to %zu", name, text, limit);
    return value;
}

std::set<cudaEvent_t> &live_events()
{
    static auto one = new std::set<cudaEvent_t>;
    return *one;
}

void check_event(cudaEvent_t event, const char *what)
{
    if (!live_events().count(event))
        emu_fail("%s: %p is not an event, or was destroyed", what, static_cast<void *>(event));
}

cudaError_t query_of(cudaEvent_t event)
{
    if (event->capture) {
        capture_invalidate(event->capture);
        return cudaErrorCapturedEvent;
    }
    return forbid_capture();
}

// Errors that the emulator returns or is asked to name.
const struct {
    cudaError_t code;
    const char *name, *text;
} errors[] = {
#define ERROR(name, text) \
    {                     \
        name, #name, text \
    }
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorInvalidValue, "invalid argument"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInitializationError, "initialization error"),
    ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR(cudaErrorInsufficientDriver,
          "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR(cudaErrorNoKernelImageForDevice,
          "no kernel image is available for execution on the device"),
    ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    ERROR(cudaErrorNotReady, "device not ready"),
    ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR(cudaErrorHostMemoryAlreadyRegistered,
          "part or all of the requested memory range is already mapped"),
    ERROR(cudaErrorHostMemoryNotRegistered,
          "pointer does not correspond to a registered memory region"),
    ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR(cudaErrorNotSupported, "operation not supported"),
    ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ERROR(cudaErrorStreamCaptureInvalidated,
          "operation failed due to a previous error during capture"),
    ERROR(cudaErrorStreamCaptureMerge,
          "operation would result in a merge of separate capture sequences"),
    ERROR(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ERROR(cudaErrorStreamCaptureIsolation,
          "dependency created on uncaptured work in another stream"),
    ERROR(cudaErrorStreamCaptureImplicit,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR(cudaErrorCapturedEvent,
          "operation not permitted on an event last recorded in a capturing "
          "stream"),
    ERROR(cudaErrorStreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another thread"),
    ERROR(cudaErrorUnknown, "unknown error"),
#undef ERROR
};

} // namespace

cudaError_t error(cudaError_t code)
{
    if (code != cudaSuccess)
        last_error = code;
    return code;
}

int n_devices()
{
    static int n = static_cast<int>(number_from("DTRAIN_EMULATED_GPUS", 1, 64));
    return n;
}

cudaError_t need_device(int device)
{
    const bool exists = device >= 0 && device < n_devices();
    return exists ? cudaSuccess : n_devices() == 0 ? cudaErrorNoDevice : cudaErrorInvalidDevice;
}

size_t device_memory()
{
    static size_t bytes = number_from("DTRAIN_EMULATED_MEMORY_MB", 4096, 1u << 20) << 20;
    return bytes;
}

void event_recorded(cudaEvent_t event, const node_ref &n)
{
    check_event(event, "cudaGraphLaunch");
    event->node = n;
    event->capture.reset();
}

node_ref event_node(cudaEvent_t event)
{
    check_event(event, "cudaStreamWaitEvent");
    return event->node;
}

} // namespace emu

using namespace emu;

int emu_current_device()
{
    return current_device;
}

extern "C" {

// --- Errors ---

cudaError_t cudaGetLastError()
{
    cudaError_t out = last_error;
    last_error = cudaSuccess;
    return out;
}

cudaError_t cudaPeekAtLastError()
{
    return last_error;
}

const char *cudaGetErrorName(cudaError_t code)
{
    for (const auto &e : errors)
        if (e.code == code)
            return e.name;
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t code)
{
    for (const auto &e : errors)
        if (e.code == code)
            return e.text;
    return "unrecognized error code";
}

// --- Devices ---

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = n_devices();
    return error(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    EMU_TRY(need_device(device));
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    EMU_TRY(need_device());
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION; // a driver exists, even without a device
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

// An H200, except for its memory.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *prop, int device)
{
    EMU_TRY(need_device(device));
    memset(prop, 0, sizeof *prop);
    snprintf(prop->name, sizeof prop->name, "emulated H200");
    memcpy(prop->uuid.bytes, "dtrain-emulated", 15);
    prop->uuid.bytes[15] = static_cast<char>(device);
    prop->totalGlobalMem = device_memory();
    prop->sharedMemPerBlock = 48 << 10;
    prop->sharedMemPerMultiprocessor = 228 << 10;
    prop->sharedMemPerBlockOptin = 227 << 10;
    prop->regsPerBlock = prop->regsPerMultiprocessor = 65536;
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = 1024;
    prop->maxThreadsPerMultiProcessor = 2048;
    prop->maxBlocksPerMultiProcessor = 32;
    prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
    prop->maxThreadsDim[2] = 64;
    prop->maxGridSize[0] = 2147483647;
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->major = 9;
    prop->multiProcessorCount = 132;
    prop->canMapHostMemory = prop->unifiedAddressing = 1;
    prop->concurrentKernels = prop->streamPrioritiesSupported = 1;
    prop->asyncEngineCount = 3;
    prop->memoryBusWidth = 6144;
    prop->l2CacheSize = 50 << 20;
    prop->hostRegisterSupported = 1;
    prop->pciBusID = device + 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    cudaDeviceProp prop;
    EMU_TRY(cudaGetDeviceProperties(&prop, device));
    const struct {
        cudaDeviceAttr attribute;
        int value;
    } values[] = {
        {cudaDevAttrComputeCapabilityMajor, prop.major},
        {cudaDevAttrComputeCapabilityMinor, prop.minor},
        {cudaDevAttrMultiProcessorCount, prop.multiProcessorCount},
        {cudaDevAttrMaxThreadsPerBlock, prop.maxThreadsPerBlock},
        {cudaDevAttrMaxThreadsPerMultiProcessor, prop.maxThreadsPerMultiProcessor},
        {cudaDevAttrWarpSize, prop.warpSize},
        {cudaDevAttrL2CacheSize, prop.l2CacheSize},
        {cudaDevAttrGlobalMemoryBusWidth, prop.memoryBusWidth},
        {cudaDevAttrMemoryClockRate, 3201000},
        {cudaDevAttrClockRate, 1980000},
        {cudaDevAttrPciBusId, prop.pciBusID},
        {cudaDevAttrPciDeviceId, prop.pciDeviceID},
        {cudaDevAttrPciDomainId, prop.pciDomainID},
        {cudaDevAttrComputeMode, cudaComputeModeDefault},
    };
    for (const auto &v : values)
        if (v.attribute == attribute) {
            *value = v.value;
            return cudaSuccess;
        }
    emu_fail("cudaDeviceGetAttribute: attribute %d is not emulated", attribute);
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int device)
{
    EMU_TRY(need_device(device));
    if (bytes < 13)
        return error(cudaErrorInvalidValue);
    snprintf(out, static_cast<size_t>(bytes), "0000:%02x:00.0", device + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize()
{
    auto lock = emu_lock();
    EMU_TRY(need_device());
    EMU_TRY(forbid_capture());
    wait_for_all(current_device);
    return cudaSuccess;
}

// --- Events ---

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    auto lock = emu_lock();
    EMU_TRY(need_device());
    if (flags & ~static_cast<unsigned>(cudaEventBlockingSync | cudaEventDisableTiming))
        return error(cudaErrorInvalidValue);
    *out = new CUevent_st{current_device, !(flags & cudaEventDisableTiming)};
    live_events().insert(*out);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    auto lock = emu_lock();
    check_event(event, "cudaEventDestroy");
    live_events().erase(event);
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned flags)
{
    auto lock = emu_lock();
    check_event(event, "cudaEventRecord");
    cudaStream_t stream = stream_of(handle, "cudaEventRecord");
    if (flags != cudaEventRecordDefault && flags != cudaEventRecordExternal)
        return error(cudaErrorInvalidValue);
    if (stream->device != event->device)
        return error(cudaErrorInvalidResourceHandle);
    EMU_TRY(forbid_implicit(stream));
    if (stream->capture && flags == cudaEventRecordDefault)
        return error(capture_record(event, stream));
    if (capture_add(stream, {nullptr, "record of an event", stream->device, stream->id, event}))
        return cudaSuccess;
    if (flags == cudaEventRecordExternal)
        return error(cudaErrorIllegalState); // allowed only while the stream is being captured
    event->node = stream_add(stream, "record of an event");
    event->capture.reset();
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    auto lock = emu_lock();
    check_event(event, "cudaEventQuery");
    EMU_TRY(query_of(event));
    make_progress();
    return error(!event->node || event->node->done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    auto lock = emu_lock();
    check_event(event, "cudaEventSynchronize");
    EMU_TRY(query_of(event));
    wait_for(event->node);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    auto lock = emu_lock();
    check_event(start, "cudaEventElapsedTime");
    check_event(end, "cudaEventElapsedTime");
    if (!start->timing || !end->timing || !start->node || !end->node ||
        start->device != end->device)
        return error(cudaErrorInvalidResourceHandle);
    if (!start->node->done || !end->node->done)
        return error(cudaErrorNotReady);
    *ms =
        std::chrono::duration<float, std::milli>(end->node->done_at - start->node->done_at).count();
    return cudaSuccess;
}

} // extern "C"
