// The order of work: runs nodes whose dependencies are done, in an order drawn from
// DTRAIN_EMULATE_SEED. A stream can be far ahead of or far behind another on which it does not
// depend, so that a missing wait gives wrong numbers.
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <set>

#include "runtime.h"

void emu_fail(const char *format, ...)
{
    fprintf(stderr, "CUDA emulator: ");
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    fflush(stderr);
    abort();
}

namespace emu
{

namespace
{

struct queue {
    std::recursive_mutex lock;
    std::vector<node_ref> ready;
    std::vector<size_t> n_pending; // per device
    uint64_t random = 0, shuffle = 0;
    uint64_t quick = 0;    // of 4 pieces of work, how many the device starts at once
    bool in_order = false; // seed 0: everything runs when it is enqueued
    int working = -1;
    std::atomic<uint64_t> n_calls{0};
    bool has_thread = false;
    std::atomic<bool> stop{false};
    std::thread *thread = nullptr;

    queue();
};

// Never destroyed: work may run until the process exits.
queue &q()
{
    static queue *one = new queue;
    return *one;
}

uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

queue::queue()
{
    const char *seed = getenv("DTRAIN_EMULATE_SEED"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    random = seed && *seed ? strtoull(seed, nullptr, 10) : 1;
    in_order = random == 0;
    random = mix(random + 1) + (rank ? strtoull(rank, nullptr, 10) : 0);
    shuffle = mix(random);
    quick = mix(random + 1) % 3;
    // A child that a test forks has none of its parent's threads.
    pthread_atfork([] { q().lock.lock(); }, [] { q().lock.unlock(); },
                   [] {
                       new (&q().lock) std::recursive_mutex;
                       q().has_thread = false;
                   });
}

// Streams have priorities that change occasionally, so that one can starve the others for a while.
size_t pick(const std::vector<node_ref> &among)
{
    if (q().in_order)
        return 0;
    if (random_below(32) == 0)
        q().shuffle++;
    if (random_below(8) == 0)
        return random_below(among.size());
    size_t best = 0;
    uint64_t highest = 0;
    for (size_t i = 0; i < among.size(); i++) {
        uint64_t priority = mix(mix(q().shuffle) + static_cast<uint64_t>(among[i]->stream));
        if (i == 0 || priority > highest)
            best = i, highest = priority;
    }
    return best;
}

void finish(const node_ref &n)
{
    n->done = true;
    n->done_at = std::chrono::steady_clock::now();
    n->work = nullptr;
    q().n_pending[static_cast<size_t>(n->device)]--;
    auto &ready = q().ready;
    ready.erase(std::find(ready.begin(), ready.end(), n));
    for (const node_ref &next : n->after)
        if (--next->n_before == 0)
            ready.push_back(next);
    n->after.clear();
}

// Runs one node that can run; false if there is none.
bool run_one()
{
    if (q().working >= 0)
        emu_fail("work in a stream calls a function that waits for streams");
    std::vector<node_ref> among = q().ready;
    while (!among.empty()) {
        size_t i = pick(among);
        node_ref n = among[i];
        bool done = true;
        if (n->work) {
            device_access access;
            q().working = n->device;
            done = n->work();
            check_guards(n->what);
            q().working = -1;
        }
        if (done) {
            finish(n);
            return true;
        }
        among.erase(among.begin() + static_cast<ptrdiff_t>(i));
    }
    return false;
}

// Continues the work while the program makes no calls, as a GPU would: other ranks may be waiting
// for it.
void idle_loop()
{
    uint64_t seen = q().n_calls;
    while (!q().stop) {
        usleep(3000);
        auto lock = emu_lock();
        uint64_t calls = --q().n_calls; // emu_lock has counted this one
        while (calls == seen && !q().stop && run_one()) {
            lock.unlock();
            sched_yield();
            lock.lock();
            calls = q().n_calls;
        }
        seen = calls;
    }
}

void start_thread()
{
    if (q().has_thread)
        return;
    q().has_thread = true;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); // signals are for the program's threads
    q().thread = new std::thread(idle_loop);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    static bool registered;
    if (!registered)
        atexit([] {
            q().stop = true;
            if (q().has_thread)
                q().thread->join();
        });
    registered = true;
}

} // namespace

uint64_t random_below(uint64_t n)
{
    q().random += 0x9e3779b97f4a7c15u;
    return mix(q().random) % n;
}

int working_device()
{
    return q().working;
}

node_ref add_node(const node &what, const std::vector<node_ref> &before)
{
    auto n = std::make_shared<node>(what);
    for (const node_ref &b : before) {
        if (!b || b->done)
            continue;
        b->after.push_back(n);
        n->n_before++;
    }
    auto device = static_cast<size_t>(n->device);
    if (q().n_pending.size() <= device)
        q().n_pending.resize(device + 1);
    q().n_pending[device]++;
    if (n->n_before == 0)
        q().ready.push_back(n);
    start_thread();
    return n;
}

static void run_some()
{
    if (run_one())
        return;
    if (q().ready.empty())
        emu_fail("waiting for work that can never run");
    q().lock.unlock();
    usleep(20);
    q().lock.lock();
}

void wait_for(const node_ref &n)
{
    if (!n || n->done)
        return;
    device_access access;
    while (!n->done)
        run_some();
}

void wait_for_all(int device)
{
    auto d = static_cast<size_t>(device);
    device_access access;
    while (d < q().n_pending.size() && q().n_pending[d] > 0)
        run_some();
}

void make_progress()
{
    device_access access;
    if (q().in_order) {
        while (run_one())
            ;
        return;
    }
    for (uint64_t i = random_below(4); i > 0 && run_one();)
        i--;
}

// --- Streams ---

namespace
{

std::set<cudaStream_t> &live_streams()
{
    static auto one = new std::set<cudaStream_t>;
    return *one;
}

cudaStream_t legacy_stream(int device)
{
    static auto &of = *new std::vector<cudaStream_t>;
    while (static_cast<int>(of.size()) <= device)
        of.push_back(
            new CUstream_st{-1 - static_cast<int>(of.size()), static_cast<int>(of.size()), true});
    return of[static_cast<size_t>(device)];
}

bool is_legacy(cudaStream_t stream)
{
    return stream->id < 0;
}

// The nodes that the stream's next node depends on.
std::vector<node_ref> stream_before(cudaStream_t stream)
{
    std::vector<node_ref> before = {stream->last};
    if (is_legacy(stream)) {
        for (cudaStream_t other : live_streams())
            if (other->device == stream->device && other->blocking)
                before.push_back(other->last);
    } else if (stream->blocking) {
        before.push_back(legacy_stream(stream->device)->last);
    }
    return before;
}

} // namespace

cudaStream_t stream_of(cudaStream_t handle, const char *what)
{
    if (handle == nullptr || handle == cudaStreamLegacy)
        return legacy_stream(emu_current_device());
    if (handle == cudaStreamPerThread)
        emu_fail("%s: the per-thread stream is not emulated", what);
    if (!live_streams().count(handle))
        emu_fail("%s: %p is not a stream, or was destroyed", what, static_cast<void *>(handle));
    return handle;
}

std::vector<cudaStream_t> streams_of(int device)
{
    std::vector<cudaStream_t> out = {legacy_stream(device)};
    for (cudaStream_t s : live_streams())
        if (s->device == device)
            out.push_back(s);
    return out;
}

node_ref stream_add(cudaStream_t stream, const char *what, std::function<bool()> work)
{
    stream->last =
        add_node({std::move(work), what, stream->device, stream->id}, stream_before(stream));
    // Sometimes the device is quick, sometimes it does nothing until the program waits.
    if (working_device() < 0 && (q().in_order || random_below(4) < q().quick))
        make_progress();
    return stream->last;
}

void stream_wait(cudaStream_t stream, const node_ref &n)
{
    std::vector<node_ref> before = stream_before(stream);
    before.push_back(n);
    stream->last = add_node({nullptr, "cudaStreamWaitEvent", stream->device, stream->id}, before);
}

} // namespace emu

using namespace emu;

std::unique_lock<std::recursive_mutex> emu_lock()
{
    q().n_calls++;
    return std::unique_lock(q().lock);
}

void emu_enqueue_poll(cudaStream_t handle, std::function<bool()> work, const char *what)
{
    auto lock = emu_lock();
    if (working_device() >= 0)
        emu_fail("%s: work in a stream enqueues work in a stream", what);
    cudaStream_t stream = stream_of(handle, what);
    if (stream->device != emu_current_device())
        emu_fail("%s: the stream belongs to device %d, but device %d is current", what,
                 stream->device, emu_current_device());
    if (!capture_add(stream, {work, what, stream->device, stream->id}))
        stream_add(stream, what, std::move(work));
}

static void (*watcher)(const char *what, const void *const *touched, int n);

void emu_watch(void (*now)(const char *what, const void *const *touched, int n))
{
    watcher = now;
}

bool emu_is_watched()
{
    return watcher != nullptr;
}

void emu_enqueue(cudaStream_t stream, std::function<void()> work, const char *what,
                 const std::vector<const void *> &touched)
{
    if (watcher)
        watcher(what, touched.data(), static_cast<int>(touched.size()));
    emu_enqueue_poll(
        stream,
        [work = std::move(work)] {
            work();
            return true;
        },
        what);
}

int emu_stream_device(cudaStream_t stream)
{
    auto lock = emu_lock();
    return stream_of(stream, "emu_stream_device")->device;
}

bool emu_is_capturing(cudaStream_t stream)
{
    auto lock = emu_lock();
    return stream_of(stream, "emu_is_capturing")->capture != nullptr;
}

// --- The runtime's functions on streams ---

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int)
{
    auto lock = emu_lock();
    static int n_streams;
    EMU_TRY(need_device());
    if (flags > cudaStreamNonBlocking)
        return error(cudaErrorInvalidValue);
    *out = new CUstream_st{++n_streams, emu_current_device(), flags != cudaStreamNonBlocking};
    live_streams().insert(*out);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    return cudaStreamCreateWithPriority(out, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithPriority(out, cudaStreamDefault, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *greatest)
{
    *lowest = 0;
    *greatest = -5;
    return cudaSuccess;
}

// Work still in the stream runs; nothing waits for it.
cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    auto lock = emu_lock();
    cudaStream_t stream = stream_of(handle, "cudaStreamDestroy");
    if (is_legacy(stream))
        return error(cudaErrorInvalidResourceHandle);
    if (stream->capture)
        capture_invalidate(stream->capture);
    live_streams().erase(stream);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    auto lock = emu_lock();
    cudaStream_t stream = stream_of(handle, "cudaStreamQuery");
    EMU_TRY(forbid_on_stream(stream));
    make_progress();
    for (const node_ref &n : stream_before(stream))
        if (n && !n->done)
            return error(cudaErrorNotReady);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    auto lock = emu_lock();
    cudaStream_t stream = stream_of(handle, "cudaStreamSynchronize");
    EMU_TRY(forbid_on_stream(stream));
    for (const node_ref &n : stream_before(stream))
        wait_for(n);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags)
{
    auto lock = emu_lock();
    cudaStream_t stream = stream_of(handle, "cudaStreamWaitEvent");
    const node_ref n = event_node(event); // checks the event
    if (stream->capture && flags == cudaEventWaitExternal) {
        capture_add(stream,
                    {nullptr, "wait of an event", stream->device, stream->id, nullptr, event});
        return cudaSuccess;
    }
    if (flags != cudaEventWaitDefault)
        return error(cudaErrorInvalidValue);
    if (stream->capture || event->capture)
        return error(capture_wait(stream, event));
    if (n)
        stream_wait(stream, n);
    return cudaSuccess;
}

} // extern "C"
