// Stream capture and graphs.
#include <string.h>

#include <set>

#include "runtime.h"

struct CUgraph_st {
    std::vector<emu::graph_node> nodes;
};

struct CUgraphExec_st {
    std::vector<emu::graph_node> nodes;
    emu::node_ref last; // launches of a graph run one after the other
};

struct emu::capture {
    CUgraph_st graph;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    cudaStream_t origin;
    bool invalid, ended;
};

namespace emu
{

namespace
{

template <typename T> std::set<T> &live()
{
    static auto one = new std::set<T>;
    return *one;
}

template <typename T> T check(T handle, const char *what)
{
    if (!live<T>().count(handle))
        emu_fail("%s: %p is not a live handle", what, static_cast<void *>(handle));
    return handle;
}

// Active captures.
std::vector<std::shared_ptr<capture>> &active()
{
    static auto one = new std::vector<std::shared_ptr<capture>>;
    return *one;
}

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

// Whether capture c forbids potentially unsafe calls of this thread
// (cudaThreadExchangeStreamCaptureMode).
bool forbids(const capture &c)
{
    if (thread_mode == cudaStreamCaptureModeRelaxed)
        return false;
    if (c.thread == std::this_thread::get_id())
        return c.mode != cudaStreamCaptureModeRelaxed;
    return thread_mode == cudaStreamCaptureModeGlobal && c.mode == cudaStreamCaptureModeGlobal;
}

// The nodes in `last` and all their predecessors.
std::vector<bool> ancestors(const CUgraph_st &graph, const std::vector<size_t> &last)
{
    std::vector<bool> found(graph.nodes.size());
    for (size_t i : last)
        found[i] = true;
    for (size_t i = graph.nodes.size(); i-- > 0;) // nodes come after those they depend on
        if (found[i])
            for (size_t before : graph.nodes[i].before)
                found[before] = true;
    return found;
}

std::vector<cudaStream_t> members(const std::shared_ptr<capture> &c)
{
    std::vector<cudaStream_t> out;
    for (int device = 0; device < n_devices(); device++)
        for (cudaStream_t s : streams_of(device))
            if (s->capture == c)
                out.push_back(s);
    return out;
}

bool is_joined(const std::shared_ptr<capture> &c)
{
    std::vector<bool> joined = ancestors(c->graph, c->origin->tail);
    for (cudaStream_t s : members(c))
        for (size_t i : s->tail)
            if (!joined[i])
                return false;
    return true;
}

void merge(std::vector<size_t> &into, const std::vector<size_t> &more)
{
    std::set<size_t> all(into.begin(), into.end());
    all.insert(more.begin(), more.end());
    into.assign(all.begin(), all.end());
}

} // namespace

bool capture_add(cudaStream_t stream, const graph_node &n)
{
    capture *c = stream->capture.get();
    if (!c)
        return false;
    if (c->invalid)
        return true;
    c->graph.nodes.push_back(n);
    c->graph.nodes.back().before = stream->tail;
    stream->tail = {c->graph.nodes.size() - 1};
    return true;
}

void capture_invalidate(const std::shared_ptr<capture> &c)
{
    c->invalid = true;
}

cudaError_t forbid_capture()
{
    cudaError_t out = cudaSuccess;
    for (const auto &c : active()) {
        if (!forbids(*c))
            continue;
        c->invalid = true;
        out = cudaErrorStreamCaptureUnsupported;
    }
    return out;
}

cudaError_t forbid_on_stream(cudaStream_t stream)
{
    if (stream->capture) {
        stream->capture->invalid = true;
        return cudaErrorStreamCaptureUnsupported;
    }
    return forbid_capture();
}

cudaError_t forbid_implicit(cudaStream_t stream)
{
    if (stream->id >= 0)
        return cudaSuccess;
    for (cudaStream_t s : streams_of(stream->device))
        if (s->capture && s->blocking) {
            s->capture->invalid = true;
            return cudaErrorStreamCaptureImplicit;
        }
    return cudaSuccess;
}

cudaError_t capture_record(cudaEvent_t event, cudaStream_t stream)
{
    if (stream->capture->invalid)
        return cudaErrorStreamCaptureInvalidated;
    event->capture = stream->capture;
    event->tail = stream->tail;
    return cudaSuccess;
}

// At least one of the two is in a capture.
cudaError_t capture_wait(cudaStream_t stream, cudaEvent_t event)
{
    if (stream->capture && stream->capture->invalid)
        return cudaErrorStreamCaptureInvalidated;
    if (!event->capture) {
        if (!event->node)
            return cudaSuccess; // never recorded: no effect
        stream->capture->invalid = true;
        return cudaErrorStreamCaptureIsolation;
    }
    if (event->capture->ended) {
        if (stream->capture)
            stream->capture->invalid = true;
        return cudaErrorCapturedEvent;
    }
    if (event->capture->invalid)
        return cudaErrorStreamCaptureInvalidated;
    if (!stream->capture) {
        if (stream->id < 0)
            return cudaErrorStreamCaptureImplicit;
        stream->capture = event->capture;
        stream->tail = event->tail;
        return cudaSuccess;
    }
    if (stream->capture != event->capture) {
        stream->capture->invalid = event->capture->invalid = true;
        return cudaErrorStreamCaptureMerge;
    }
    merge(stream->tail, event->tail);
    return cudaSuccess;
}

} // namespace emu

using namespace emu;

cudaError_t emu_forbid_capture(const char *)
{
    auto lock = emu_lock();
    return forbid_capture();
}

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode)
{
    std::swap(*mode, thread_mode);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode)
{
    auto lock = emu_lock();
    cudaStream_t stream = stream_of(handle, "cudaStreamBeginCapture");
    if (stream->id < 0)
        return error(cudaErrorStreamCaptureUnsupported);
    if (stream->capture)
        return error(cudaErrorIllegalState);
    stream->capture = std::make_shared<capture>();
    stream->capture->mode = mode;
    stream->capture->thread = std::this_thread::get_id();
    stream->capture->origin = stream;
    stream->tail.clear();
    active().push_back(stream->capture);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *out)
{
    auto lock = emu_lock();
    cudaStream_t stream = stream_of(handle, "cudaStreamEndCapture");
    *out = nullptr;
    std::shared_ptr<capture> c = stream->capture;
    if (!c)
        return error(cudaErrorIllegalState);
    if (c->origin != stream)
        return error(cudaErrorStreamCaptureUnmatched);
    if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id())
        return error(cudaErrorStreamCaptureWrongThread);
    bool joined = is_joined(c);
    for (cudaStream_t s : members(c)) {
        s->capture.reset();
        s->tail.clear();
    }
    c->ended = true;
    for (size_t i = 0; i < active().size(); i++)
        if (active()[i] == c)
            active().erase(active().begin() + static_cast<ptrdiff_t>(i--));
    if (c->invalid)
        return error(cudaErrorStreamCaptureInvalidated);
    if (!joined)
        return error(cudaErrorStreamCaptureUnjoined);
    *out = new CUgraph_st(std::move(c->graph));
    live<cudaGraph_t>().insert(*out);
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus *status)
{
    auto lock = emu_lock();
    cudaStream_t stream = stream_of(handle, "cudaStreamIsCapturing");
    if (forbid_implicit(stream) != cudaSuccess)
        return error(cudaErrorStreamCaptureImplicit);
    *status = !stream->capture           ? cudaStreamCaptureStatusNone
              : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    auto lock = emu_lock();
    check(graph, "cudaGraphInstantiate");
    if (flags & ~static_cast<unsigned long long>(cudaGraphInstantiateFlagUseNodePriority))
        emu_fail("cudaGraphInstantiate: flags %llu are not emulated", flags);
    *out = new CUgraphExec_st{graph->nodes, nullptr};
    live<cudaGraphExec_t>().insert(*out);
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph,
                                          unsigned long long flags)
{
    return cudaGraphInstantiate(out, graph, flags);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    auto lock = emu_lock();
    check(exec, "cudaGraphUpload");
    stream_of(stream, "cudaGraphUpload");
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle)
{
    auto lock = emu_lock();
    check(exec, "cudaGraphLaunch");
    cudaStream_t stream = stream_of(handle, "cudaGraphLaunch");
    if (stream->capture)
        emu_fail("cudaGraphLaunch on a stream that is being captured is not emulated");
    stream_wait(stream, exec->last);
    node_ref first = stream->last;
    std::vector<node_ref> made, all = {first};
    for (const graph_node &g : exec->nodes) {
        std::vector<node_ref> before;
        for (size_t i : g.before)
            before.push_back(made[i]);
        if (before.empty())
            before.push_back(first);
        if (g.wait)
            before.push_back(event_node(g.wait));
        made.push_back(add_node({g.work, g.what, g.device, g.stream}, before));
        if (g.record)
            event_recorded(g.record, made.back());
        all.push_back(made.back());
    }
    stream->last = exec->last =
        add_node({nullptr, "end of a graph", stream->device, stream->id}, all);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    auto lock = emu_lock();
    live<cudaGraph_t>().erase(check(graph, "cudaGraphDestroy"));
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    auto lock = emu_lock();
    live<cudaGraphExec_t>().erase(check(exec, "cudaGraphExecDestroy"));
    delete exec;
    return cudaSuccess;
}

// Node handles can only be counted.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n_nodes)
{
    auto lock = emu_lock();
    check(graph, "cudaGraphGetNodes");
    size_t count = graph->nodes.size();
    for (size_t i = 0; nodes && i < *n_nodes; i++)
        nodes[i] = i < count ? reinterpret_cast<cudaGraphNode_t>(&graph->nodes[i]) : nullptr;
    if (!nodes || *n_nodes > count)
        *n_nodes = count;
    return cudaSuccess;
}

} // extern "C"
