// Shared by the parts of the CUDA emulator (tests/emulator). See README.md there.
//
// Work enqueued in a stream does NOT run at once: it is a node of a dependency graph (stream order,
// events) and runs later, on the caller's thread inside a call that waits or polls, or on the
// emulator's own thread while the program does other things. The order of independent nodes is
// random. So `work` must own everything that it needs: copy scalars, descriptors and pointers when
// the call is made. While a stream is being captured, the work goes into the graph instead and runs
// once per launch: it must be callable many times.
#ifndef DTRAIN_EMULATOR_H
#define DTRAIN_EMULATOR_H

#include <cuda_runtime_api.h>
#include <functional>
#include <mutex>
#include <vector>

// Prints "CUDA emulator: ..." and aborts: the program did something that CUDA forbids or leaves
// undefined, or that is not emulated.
[[noreturn]] void emu_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Enqueues work in a stream (or its capture). `what` names it in messages and is copied; `touched`
// are the device addresses among its arguments, for emu_watch.
void emu_enqueue(cudaStream_t stream, std::function<void()> work, const char *what = "work",
                 const std::vector<const void *> &touched = {});

// From now on calls `watcher` for everything that emu_enqueue gets; NULL: no longer.
extern "C" void emu_watch(void (*watcher)(const char *what, const void *const *touched, int n));
bool emu_is_watched();

// Like emu_enqueue, for work that depends on other processes: called repeatedly until it returns
// true; must never block. It may run on a thread other than the one that calls MPI.
void emu_enqueue_poll(cudaStream_t stream, std::function<bool()> work, const char *what);

// Fails unless [ptr, ptr + bytes) is inside one allocation of the current device (within work: of
// the stream's device); with bytes 0, ptr is not checked. Device memory is only accessible within
// work.
void emu_check_device(const void *ptr, size_t bytes, const char *what);

// Whether ptr is in device memory at all.
bool emu_is_device(const void *ptr);

int emu_current_device();
int emu_stream_device(cudaStream_t stream);
bool emu_is_capturing(cudaStream_t stream);

// For library calls that allocate or synchronise (cudnnCreate, ncclCommInitRank, ...): if a capture
// currently forbids such a call, invalidates the capture and returns the error.
cudaError_t emu_forbid_capture(const char *what);

// Work and the runtime's functions run with this lock held. Take it to access state that work also
// uses; the lock is recursive.
std::unique_lock<std::recursive_mutex> emu_lock();

#endif
