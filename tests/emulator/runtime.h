// Internals of the emulated runtime: work nodes, streams, events, captures, memory.
#ifndef DTRAIN_EMULATOR_RUNTIME_H
#define DTRAIN_EMULATOR_RUNTIME_H

#include <stdint.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "emulator.h"

namespace emu
{

// --- Nodes (queue.cpp) ---

// Work that runs once all nodes before it are done. A node owns those that depend on it.
struct node {
    std::function<bool()> work; // empty: nothing to do
    std::string what;
    int device;
    int stream; // CUstream_st::id of its stream
    int n_before = 0;
    bool done = false;
    std::vector<std::shared_ptr<node>> after = {};
    std::chrono::steady_clock::time_point done_at = {};
};
using node_ref = std::shared_ptr<node>;

node_ref add_node(const node &what, const std::vector<node_ref> &before); // null ones are ignored
void wait_for(const node_ref &n);                                         // null: returns
void wait_for_all(int device);
// Runs zero or more nodes.
void make_progress();
uint64_t random_below(uint64_t n);
// The device whose work is running, -1 = none.
int working_device();

// --- Streams ---

struct capture;
struct graph_node;

node_ref stream_add(cudaStream_t stream, const char *what,
                    std::function<bool()> work = nullptr); // not capturing
void stream_wait(cudaStream_t stream, const node_ref &n);
// nullptr and cudaStreamLegacy: the current device's legacy stream. Fails if it is not a stream.
cudaStream_t stream_of(cudaStream_t handle, const char *what);
std::vector<cudaStream_t> streams_of(int device);

// --- Captures (capture.cpp) ---

// Adds to the stream's capture if that is valid; false if the stream is not capturing.
bool capture_add(cudaStream_t stream, const graph_node &n);
void capture_invalidate(const std::shared_ptr<capture> &c);
// For runtime calls that any capture can forbid.
cudaError_t forbid_capture();
// For calls that the stream's own capture forbids, such as cudaStreamSynchronize.
cudaError_t forbid_on_stream(cudaStream_t stream);
// For calls that would make the legacy stream depend on a stream being captured.
cudaError_t forbid_implicit(cudaStream_t stream);
cudaError_t capture_record(cudaEvent_t event, cudaStream_t stream);
cudaError_t capture_wait(cudaStream_t stream, cudaEvent_t event);

// --- Memory (memory.cpp) ---

// While one exists, device memory can be accessed; mostly also afterwards, because closing it is
// slow.
struct device_access {
    device_access();
    ~device_access();
    device_access(const device_access &) = delete;
};
void check_guards(const std::string &what);

// --- Errors and devices (cudart.cpp) ---

cudaError_t error(cudaError_t code); // becomes the thread's last error, unless cudaSuccess

// Returns from a function of the runtime with an error.
#define EMU_TRY(call)                    \
    do {                                 \
        const cudaError_t code = (call); \
        if (code != cudaSuccess)         \
            return error(code);          \
    } while (0)

int n_devices();
cudaError_t need_device(int device = 0); // cudaSuccess: it exists
size_t device_memory();
void event_recorded(cudaEvent_t event, const node_ref &n); // by a graph launch
node_ref event_node(cudaEvent_t event);

} // namespace emu

struct CUstream_st {
    int id, device;
    bool blocking; // synchronises with the legacy stream
    emu::node_ref last = nullptr;
    std::shared_ptr<emu::capture> capture = nullptr; // set while it takes part in a capture
    std::vector<size_t> tail = {}; // nodes of the capture that precede the next one
};

struct CUevent_st {
    int device;
    bool timing;
    emu::node_ref node = nullptr;                    // of the last record; null: never recorded
    std::shared_ptr<emu::capture> capture = nullptr; // set if the last record was captured
    std::vector<size_t> tail = {};
};

// A node of a graph; each launch turns it into a work node.
struct emu::graph_node {
    std::function<bool()> work;
    std::string what;
    int device, stream;
    cudaEvent_t record = nullptr, wait = nullptr; // external event nodes
    std::vector<size_t> before = {};
};

#endif
