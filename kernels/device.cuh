// Shared by the kernels: launching, the three storage types, accesses of 8 elements.
#ifndef DTRAIN_KERNELS_DEVICE_CUH
#define DTRAIN_KERNELS_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/geometry.h"
#include "kernels/kernels.h"

#ifdef __CUDACC__ // else the emulator's build gives the compiler another dt_launch

// Enqueues one launch in the stream. Arguments are converted to the kernel's parameter types.
template <typename... P, typename... A>
static inline cudaError_t dt_launch(void (*kernel)(P...), struct dt_geometry g, cudaStream_t stream,
                                    A... args)
{
    if (g.grid_x == 0 || g.grid_y == 0)
        return cudaSuccess;
    kernel<<<dim3(g.grid_x, g.grid_y), dim3(g.block_x, g.block_y), 0, stream>>>(
        static_cast<P>(args)...);
    return cudaGetLastError();
}

#endif

// return DT_BY_TYPE(type, (call of a template with T)); T is the C++ type of `type`.
#define DT_BY_TYPE(type, call) \
    ((type) == DT_F16    ? [&] {                     \
        using T = __half;                            \
        return call;                                 \
    }()                                              \
     : (type) == DT_BF16 ? [&] {                     \
           using T = __nv_bfloat16;                  \
           return call;                              \
       }()                                           \
     : (type) == DT_F32  ? [&] {                     \
           using T = float;                          \
           return call;                              \
       }()                                           \
                         : cudaErrorInvalidValue)

// A loss as a multiple of 2^-24, as in src/cpu/cpu_internal.h: sums of these are exact in double.
static __device__ inline double dt_exact(double loss)
{
    return rint(loss * 0x1p24) * 0x1p-24;
}

// The thread's pack of DT_CHANNEL_PACK elements in a launch of dt_flat_geometry.
static __device__ inline size_t dt_flat_pack()
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

// The sum of v over a block of DT_BLOCK_THREADS threads, for all of them; always in the same order.
static __device__ inline double dt_fold_sum(double v)
{
    __shared__ double part[DT_BLOCK_THREADS];
    part[threadIdx.x] = v;
    for (unsigned half = DT_BLOCK_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    __syncthreads();
    v = part[0];
    __syncthreads();
    return v;
}

// 8 elements at an address that is a multiple of their size (16 or 32 bytes).
static __device__ inline void dt_load8(float v[8], const float *p)
{
    const float4 a = reinterpret_cast<const float4 *>(p)[0];
    const float4 b = reinterpret_cast<const float4 *>(p)[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

static __device__ inline void dt_load8(float v[8], const __half *p)
{
    const uint4 raw = *reinterpret_cast<const uint4 *>(p);
    const __half2 *h = reinterpret_cast<const __half2 *>(&raw);
    for (int i = 0; i < 4; i++) {
        const float2 f = __half22float2(h[i]);
        v[2 * i] = f.x, v[2 * i + 1] = f.y;
    }
}

static __device__ inline void dt_load8(float v[8], const __nv_bfloat16 *p)
{
    const uint4 raw = *reinterpret_cast<const uint4 *>(p);
    const __nv_bfloat162 *h = reinterpret_cast<const __nv_bfloat162 *>(&raw);
    for (int i = 0; i < 4; i++) {
        const float2 f = __bfloat1622float2(h[i]);
        v[2 * i] = f.x, v[2 * i + 1] = f.y;
    }
}

static __device__ inline void dt_store8(float *p, const float v[8])
{
    reinterpret_cast<float4 *>(p)[0] = make_float4(v[0], v[1], v[2], v[3]);
    reinterpret_cast<float4 *>(p)[1] = make_float4(v[4], v[5], v[6], v[7]);
}

static __device__ inline void dt_store8(__half *p, const float v[8])
{
    uint4 raw;
    __half2 *h = reinterpret_cast<__half2 *>(&raw);
    for (int i = 0; i < 4; i++)
        h[i] = __floats2half2_rn(v[2 * i], v[2 * i + 1]);
    *reinterpret_cast<uint4 *>(p) = raw;
}

static __device__ inline void dt_store8(__nv_bfloat16 *p, const float v[8])
{
    uint4 raw;
    __nv_bfloat162 *h = reinterpret_cast<__nv_bfloat162 *>(&raw);
    for (int i = 0; i < 4; i++)
        h[i] = __floats2bfloat162_rn(v[2 * i], v[2 * i + 1]);
    *reinterpret_cast<uint4 *>(p) = raw;
}

static __device__ inline void dt_store1(float *p, float v)
{
    *p = v;
}

static __device__ inline void dt_store1(__half *p, float v)
{
    *p = __float2half_rn(v);
}

static __device__ inline void dt_store1(__nv_bfloat16 *p, float v)
{
    *p = __float2bfloat16_rn(v);
}

#endif
