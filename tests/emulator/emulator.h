// What the parts of the CUDA emulator (tests/emulator) share. See README.md there.
//
// Work put into a stream does NOT run at once: it is a node of a graph of dependencies (order of
// the stream, events) and runs later, on the caller's thread inside a call that waits or polls, or
// on the emulator's own thread while the program does other things. The order among nodes without a
// dependency is random. So `work` must own all that it needs: copy scalars, descriptors and
// pointers when the call is made. While a stream is being captured the work goes into the graph
// instead, and runs once per launch: it must be callable many times.
#ifndef DTRAIN_EMULATOR_H
#define DTRAIN_EMULATOR_H

#include <cuda_runtime_api.h>
#include <functional>
#include <mutex>

// Prints "CUDA emulator: ..." and aborts: the program did what CUDA forbids or leaves undefined, or
// what is not emulated.
[[noreturn]] void emu_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Puts work into a stream (or its capture). `what` names it in messages and is copied.
void emu_enqueue(cudaStream_t stream, std::function<void()> work, const char *what = "work");

// As emu_enqueue, for work that depends on other processes: called again and again until it returns
// true; never blocks. It may run on another thread than the one that calls MPI.
void emu_enqueue_poll(cudaStream_t stream, std::function<bool()> work, const char *what);

// Fails unless [ptr, ptr + bytes) lies in one allocation of the device that is current (bytes 0:
// ptr is not looked at). In work: of the stream's device. Device memory is only accessible inside
// work.
void emu_check_device(const void *ptr, size_t bytes, const char *what);

// Whether ptr lies in device memory at all.
bool emu_is_device(const void *ptr);

int emu_current_device();
int emu_stream_device(cudaStream_t stream);
bool emu_is_capturing(cudaStream_t stream);

// For library calls that allocate or synchronise (cudnnCreate, ncclCommInitRank, ...): if a capture
// forbids such a call now, the capture is invalidated and this returns the error.
cudaError_t emu_forbid_capture(const char *what);

// Work runs with this lock held, and so do the functions of the runtime. Take it to reach state
// that work uses too; it may be taken again by its owner.
std::unique_lock<std::recursive_mutex> emu_lock();

#endif
