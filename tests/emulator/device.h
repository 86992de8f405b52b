// Runs kernels on the CPU: the GPU environment of a kernel, for g++, which includes it before the
// first line of a kernel's source.
//
// The threads of a block are fibers that run one after the other between barriers (device.cpp);
// blocks run one after the other, in an order drawn per launch (DTRAIN_EMULATE_ORDER).
// __shared__ arrays are static: a block finds in them what the previous block left behind.
#ifndef DTRAIN_EMULATOR_DEVICE_H
#define DTRAIN_EMULATOR_DEVICE_H

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "kernels/geometry.h"

#undef __shared__
#define __shared__ static
#ifndef __launch_bounds__
#define __launch_bounds__(...)
#endif

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
static constexpr int warpSize = 32;

// --- Between threads (device.cpp) ---

void __syncthreads();

// The value that the calling lane gets from `source`, a lane of its warp; waits for all lanes of
// `mask`.
uint64_t emu_exchange(const char *what, unsigned mask, uint64_t value, int source);
int emu_lane();

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    emu_exchange("__syncwarp", mask, 0, emu_lane());
}

template <typename T>
static inline T emu_shuffle(const char *what, unsigned mask, T value, int source)
{
    static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned> ||
                  std::is_same_v<T, long long> || std::is_same_v<T, unsigned long long> ||
                  std::is_same_v<T, float> || std::is_same_v<T, double>);
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = emu_exchange(what, mask, bits, source);
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <typename T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32)
{
    return emu_shuffle("__shfl_sync", mask, value,
                       (emu_lane() & ~(width - 1)) + (source & (width - 1)));
}

// Past the end of the group of `width` lanes, a lane gets its own value.
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    int lane = emu_lane(), last = lane | (width - 1);
    bool inside = delta <= static_cast<unsigned>(last - lane);
    return emu_shuffle("__shfl_down_sync", mask, value,
                       inside ? lane + static_cast<int>(delta) : lane);
}

template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32)
{
    int lane = emu_lane(), other = lane ^ lane_mask;
    return emu_shuffle("__shfl_xor_sync", mask, value,
                       other <= (lane | (width - 1)) ? other : lane);
}

// --- Atomic operations: threads take turns, so plain ones suffice. ---

#define EMU_ATOMIC(name, type, expression)             \
    static inline type name(type *address, type value) \
    {                                                  \
        type old = *address;                           \
        *address = (expression);                       \
        return old;                                    \
    }
EMU_ATOMIC(atomicAdd, int,
           static_cast<int>(static_cast<unsigned>(old) + static_cast<unsigned>(value)))
EMU_ATOMIC(atomicAdd, unsigned, old + value)
EMU_ATOMIC(atomicAdd, unsigned long long, old + value)
EMU_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
EMU_ATOMIC(atomicMax, int, old > value ? old : value)
EMU_ATOMIC(atomicMax, unsigned, old > value ? old : value)
EMU_ATOMIC(atomicMin, int, old < value ? old : value)
EMU_ATOMIC(atomicMin, unsigned, old < value ? old : value)
EMU_ATOMIC(atomicOr, int, old | value)
EMU_ATOMIC(atomicOr, unsigned, old | value)
EMU_ATOMIC(atomicExch, int, value)
EMU_ATOMIC(atomicExch, unsigned, value)
#undef EMU_ATOMIC

static inline void __threadfence()
{
}
static inline void __threadfence_block()
{
}

// --- Arithmetic missing in C++ ---

template <typename T> static inline T __ldg(const T *address)
{
    return *address;
}
template <typename T> static inline T __ldcg(const T *address)
{
    return *address;
}

#define rsqrtf emu_rsqrtf
static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

// Not contracted: -ffp-contract=off.
#define EMU_ROUNDED(name, operation)           \
    static inline float name(float a, float b) \
    {                                          \
        return a operation b;                  \
    }
EMU_ROUNDED(__fadd_rn, +)
EMU_ROUNDED(__fsub_rn, -)
EMU_ROUNDED(__fmul_rn, *)
EMU_ROUNDED(__fdiv_rn, /)
#undef EMU_ROUNDED

static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}

#define EMU_BITS(name, from, to)                   \
    static inline to name(from value)              \
    {                                              \
        static_assert(sizeof(to) == sizeof(from)); \
        to out;                                    \
        memcpy(&out, &value, sizeof out);          \
        return out;                                \
    }
EMU_BITS(__float_as_uint, float, unsigned)
EMU_BITS(__float_as_int, float, int)
EMU_BITS(__uint_as_float, unsigned, float)
EMU_BITS(__int_as_float, int, float)
#undef EMU_BITS

template <typename T> static inline T min(T a, T b)
{
    return b < a ? b : a;
}

template <typename T> static inline T max(T a, T b)
{
    return a < b ? b : a;
}

// --- Launching ---

// Fails unless ptr, an argument of a kernel, is NULL or device memory.
void emu_check_argument(const char *call, const void *ptr);
// If somebody watches, adds the device addresses in an argument, which may be a struct.
void emu_find_addresses(std::vector<const void *> *found, const void *argument, size_t bytes);
cudaError_t emu_launch_threads(const char *call, struct dt_geometry g, cudaStream_t stream,
                               std::function<void()> thread,
                               const std::vector<const void *> &touched);

template <typename P> static inline P emu_argument(const char *call, P value)
{
    static_assert(std::is_trivially_copyable_v<P>, "kernel arguments are copied as bytes");
    if constexpr (std::is_pointer_v<P>)
        emu_check_argument(call, value);
    return value;
}

template <typename... P, typename... A>
static inline cudaError_t emu_launch(const char *call, void (*kernel)(P...), struct dt_geometry g,
                                     cudaStream_t stream, A... args)
{
    if (g.grid_x == 0 || g.grid_y == 0)
        return cudaSuccess;
    std::tuple<P...> copy(emu_argument<P>(call, static_cast<P>(args))...);
    std::vector<const void *> touched;
    std::apply([&](const P &...p) { (emu_find_addresses(&touched, &p, sizeof p), ...); }, copy);
    return emu_launch_threads(
        call, g, stream, [kernel, copy] { std::apply(kernel, copy); }, touched);
}

// A macro, so that messages can name the kernel.
#define dt_launch(...) emu_launch(#__VA_ARGS__, __VA_ARGS__)

#endif
