// Thread blocks on the CPU. A fiber runs thread after thread; when a thread has to wait, its fiber
// is suspended with it and another fiber continues with the threads that have not started.
#include "device.h"

#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "emulator.h"
#include "fiber.h"
#include "runtime.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace
{

// Of blocks; threads run backwards in `reverse`.
enum class order { forward, reverse, shuffled };

enum class state { fresh, runs, at_barrier, in_exchange, resumes, exited };

// A thread of the block.
struct thread {
    state now;
    emu::fiber *fiber; // while it waits
    // Exchange:
    const char *what;
    unsigned mask;
    uint64_t value, result;
    int source;
};

struct block {
    const char *call;
    const std::function<void()> *body;
    std::vector<thread> threads;
    unsigned n_begun, n_exited, n_at_barrier, current;
    bool backwards;
};

// Device work holds the emulator's lock, so one is enough. Never destroyed, like all of the
// emulator's state.
block &now = *new block;

// Idle fibers.
std::vector<emu::fiber *> &idle = *new std::vector<emu::fiber *>;

const char *place()
{
    static char text[200];
    snprintf(text, sizeof text, "in %.100s, block (%u, %u) of (%u, %u), %zu threads", now.call,
             blockIdx.x, blockIdx.y, gridDim.x, gridDim.y, now.threads.size());
    return text;
}

void set_index(unsigned t)
{
    now.current = t;
    threadIdx = {t % blockDim.x, t / blockDim.x, 0};
}

// The order in which threads take turns.
unsigned turn(unsigned i)
{
    return now.backwards ? static_cast<unsigned>(now.threads.size()) - 1 - i : i;
}

void run_threads()
{
    while (now.n_begun < now.threads.size()) {
        unsigned t = turn(now.n_begun++);
        set_index(t);
        now.threads[t].now = state::runs;
        (*now.body)();
        now.threads[now.current].now = state::exited;
        now.n_exited++;
    }
}

void fiber_main(emu::fiber *self)
{
    for (;;) {
        run_threads();
        idle.push_back(self);
        emu::fiber_leave(self);
    }
}

// The current thread waits until something makes it resume.
void wait_as(state why)
{
    unsigned t = now.current;
    now.threads[t].now = why;
    now.threads[t].fiber = emu::fiber_current();
    emu::fiber_leave(now.threads[t].fiber);
    set_index(t);
    now.threads[t].now = state::runs;
}

[[noreturn]] void fail_stuck()
{
    unsigned n[6] = {0};
    const thread *exchange = nullptr;
    for (const thread &t : now.threads) {
        n[static_cast<int>(t.now)]++;
        if (t.now == state::in_exchange)
            exchange = &t;
    }
    emu_fail(
        "%s: the block is stuck: %u threads wait at __syncthreads, %u in %s (mask %08x), %u "
        "have returned. All threads of a block must reach each __syncthreads, and all lanes of "
        "the mask each shuffle",
        place(), n[static_cast<int>(state::at_barrier)], n[static_cast<int>(state::in_exchange)],
        exchange ? exchange->what : "a shuffle", exchange ? exchange->mask : 0,
        n[static_cast<int>(state::exited)]);
}

// One turn for every thread that can continue; false if there is none.
bool take_turns()
{
    bool moved = false;
    for (unsigned i = 0; i < now.threads.size(); i++) {
        thread &t = now.threads[turn(i)];
        if (t.now != state::resumes)
            continue;
        moved = true;
        emu::fiber_enter(t.fiber);
    }
    return moved;
}

void run_block()
{
    for (thread &t : now.threads)
        t = thread{};
    now.n_begun = now.n_exited = now.n_at_barrier = 0;
    while (now.n_begun < now.threads.size()) {
        if (idle.empty())
            idle.push_back(emu::fiber_create(fiber_main));
        emu::fiber *next = idle.back();
        idle.pop_back();
        emu::fiber_enter(next);
    }
    while (now.n_exited < now.threads.size()) {
        if (take_turns())
            continue;
        if (now.n_at_barrier < now.threads.size())
            fail_stuck();
        for (thread &t : now.threads)
            t.now = state::resumes;
        now.n_at_barrier = 0;
    }
}

order draw_order()
{
    static const char *const names[] = {"forward", "reverse", "shuffled"};
    const char *wanted = getenv("DTRAIN_EMULATE_ORDER");
    if (!wanted || strcmp(wanted, "random") == 0)
        return static_cast<order>(emu::random_below(3));
    for (int i = 0; i < 3; i++)
        if (strcmp(wanted, names[i]) == 0)
            return static_cast<order>(i);
    emu_fail("DTRAIN_EMULATE_ORDER must be forward, reverse, shuffled or random");
}

std::vector<uint64_t> block_order(uint64_t n, order drawn)
{
    std::vector<uint64_t> blocks(n);
    std::iota(blocks.begin(), blocks.end(), uint64_t{0});
    if (drawn == order::reverse)
        std::reverse(blocks.begin(), blocks.end());
    for (uint64_t i = n; drawn == order::shuffled && i > 1; i--)
        std::swap(blocks[i - 1], blocks[emu::random_below(i)]);
    return blocks;
}

void run_grid(const char *call, struct dt_geometry g, const std::function<void()> &body)
{
    blockDim = dim3(g.block_x, g.block_y);
    gridDim = dim3(g.grid_x, g.grid_y);
    now.call = call;
    now.body = &body;
    now.threads.resize(static_cast<size_t>(g.block_x) * g.block_y);
    order drawn = draw_order();
    now.backwards = drawn == order::reverse;
    for (uint64_t b : block_order(static_cast<uint64_t>(g.grid_x) * g.grid_y, drawn)) {
        blockIdx = {static_cast<unsigned>(b % g.grid_x), static_cast<unsigned>(b / g.grid_x), 0};
        run_block();
    }
}

// Lanes of the current thread's warp: [first, first + n).
unsigned warp_first()
{
    return now.current / 32 * 32;
}

// All lanes of the mask are in the same exchange: gives each its result.
void finish_exchange(thread *warp, unsigned n_lanes, unsigned mask)
{
    for (unsigned lane = 0; lane < n_lanes; lane++) {
        if (!(mask >> lane & 1))
            continue;
        thread &t = warp[lane];
        if (t.source < 0 || t.source >= 32 || !(mask >> t.source & 1) ||
            static_cast<unsigned>(t.source) >= n_lanes)
            emu_fail("%s: %s of lane %u reads lane %d, which does not take part (mask %08x)",
                     place(), t.what, lane, t.source, mask);
        t.result = warp[t.source].value;
    }
}

} // namespace

int emu_lane()
{
    return static_cast<int>(now.current % 32);
}

void __syncthreads()
{
    if (now.n_exited > 0)
        emu_fail("%s: thread %u is at __syncthreads, but %u threads have returned", place(),
                 now.current, now.n_exited);
    now.n_at_barrier++;
    wait_as(state::at_barrier);
}

uint64_t emu_exchange(const char *what, unsigned mask, uint64_t value, int source)
{
    unsigned self = now.current, first = warp_first(), lane = self - first;
    auto n_lanes = static_cast<unsigned>(now.threads.size()) - first;
    n_lanes = n_lanes < 32 ? n_lanes : 32;
    thread *warp = &now.threads[first];
    if (!(mask >> lane & 1))
        emu_fail("%s: lane %u calls %s with mask %08x, which excludes it", place(), lane, what,
                 mask);
    warp[lane].what = what, warp[lane].mask = mask;
    warp[lane].value = value, warp[lane].source = source;
    bool complete = true;
    for (unsigned i = 0; i < n_lanes; i++) {
        if (i == lane || !(mask >> i & 1))
            continue;
        const thread &t = warp[i];
        if (t.now == state::exited)
            emu_fail("%s: lane %u is in %s with mask %08x, but lane %u has returned", place(), lane,
                     what, mask, i);
        if (t.now != state::in_exchange)
            complete = false;
        else if (t.mask != mask || strcmp(t.what, what) != 0)
            emu_fail("%s: lane %u is in %s (mask %08x), lane %u in %s (mask %08x)", place(), lane,
                     what, mask, i, t.what, t.mask);
    }
    if (!complete) {
        wait_as(state::in_exchange);
        return warp[lane].result;
    }
    finish_exchange(warp, n_lanes, mask);
    for (unsigned i = 0; i < n_lanes; i++)
        if (i != lane && mask >> i & 1)
            warp[i].now = state::resumes;
    return warp[lane].result;
}

void emu_check_argument(const char *call, const void *ptr)
{
    if (ptr && !emu_is_device(ptr))
        emu_fail("%.100s...): argument %p is not device memory", call, ptr);
}

void emu_find_addresses(std::vector<const void *> *found, const void *argument, size_t bytes)
{
    for (size_t at = 0; emu_is_watched() && at + sizeof(void *) <= bytes; at += sizeof(void *)) {
        const void *ptr;
        memcpy(&ptr, static_cast<const char *>(argument) + at, sizeof ptr);
        if (emu_is_device(ptr))
            found->push_back(ptr);
    }
}

cudaError_t emu_launch_threads(const char *call, struct dt_geometry g, cudaStream_t stream,
                               std::function<void()> thread,
                               const std::vector<const void *> &touched)
{
    uint64_t n_threads = static_cast<uint64_t>(g.block_x) * g.block_y;
    bool fits = n_threads > 0 && n_threads <= 1024 && g.grid_x <= 2147483647u && g.grid_y <= 65535;
    std::string name(call, strcspn(call, ","));
    if (fits)
        emu_enqueue(
            stream, [name, g, thread] { run_grid(name.c_str(), g, thread); }, name.c_str(),
            touched);
    else
        emu::error(cudaErrorInvalidConfiguration);
    // As after <<<>>>: also reports an error left by an earlier call of this thread.
    return cudaGetLastError();
}
