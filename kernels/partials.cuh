// Sums of channels over rows: the threads of a block in a tree, then its partial results, floats
// [blocks][cp], in an order that depends only on their number.
#ifndef DTRAIN_KERNELS_PARTIALS_CUH
#define DTRAIN_KERNELS_PARTIALS_CUH

#include "kernels/device.cuh"

// Adds up sum over the threads of a block of DT_BLOCK_THREADS with the same threadIdx.x, whose sums
// are of channels c .. c + 7; the block's results go to row blockIdx.y of partial. All threads take
// part, also those with c >= cp.
static __device__ inline void store_partial_sums(float *partial, float sum[DT_CHANNEL_PACK], int c,
                                                 int cp)
{
    alignas(16) __shared__ float sums[DT_BLOCK_THREADS][DT_CHANNEL_PACK];
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    __syncthreads(); // others may still read what an earlier call left
    dt_store8(sums[thread], sum);
    for (unsigned distance = blockDim.y / 2; distance > 0; distance /= 2) {
        __syncthreads();
        if (threadIdx.y < distance)
            for (int k = 0; k < DT_CHANNEL_PACK; k++)
                sums[thread][k] += sums[thread + distance * blockDim.x][k];
    }
    if (c < cp && threadIdx.y == 0) { // this thread wrote its sums itself
        dt_load8(sum, sums[thread]);
        dt_store8(partial + (size_t)blockIdx.y * cp + c, sum);
    }
}

enum { PARTIAL_ADDERS = DT_BLOCK_THREADS / DT_CHANNEL_PACK }; // threads that share a channel

// 8 channels per block, for image blockIdx.y: out is T [images][cp].
template <typename T>
static __global__ void add_partials_kernel(T *out, const float *partial, int n_partials, int cp)
{
    __shared__ float sums[PARTIAL_ADDERS][DT_CHANNEL_PACK];
    const int x = threadIdx.x, y = threadIdx.y, channel = blockIdx.x * DT_CHANNEL_PACK + x;
    const float *from = partial + (size_t)blockIdx.y * n_partials * cp + channel;
    float sum = 0;
    for (int i = y; i < n_partials; i += PARTIAL_ADDERS)
        sum += from[(size_t)i * cp];
    sums[y][x] = sum;
    for (int distance = PARTIAL_ADDERS / 2; distance > 0; distance /= 2) {
        __syncthreads();
        if (y < distance)
            sums[y][x] += sums[y + distance][x];
    }
    if (y == 0)
        dt_store1(out + (size_t)blockIdx.y * cp + channel, sums[0][x]);
}

// The sums of n_images times n_partials rows.
template <typename T>
static inline cudaError_t add_partials(cudaStream_t stream, void *out, const float *partial,
                                       unsigned n_images, unsigned n_partials, int cp)
{
    const struct dt_geometry g = {(unsigned)cp / DT_CHANNEL_PACK, n_images, DT_CHANNEL_PACK,
                                  PARTIAL_ADDERS};
    return dt_launch(add_partials_kernel<T>, g, stream, static_cast<T *>(out), partial, n_partials,
                     cp);
}

#endif
