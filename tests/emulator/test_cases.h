// Run by test_emulator.cpp: correct and faulty kernels, and cases that need a separate process, for
// a different seed or because they end in an abort. A case returns the exit status and does not use
// cmocka.
#ifndef DTRAIN_EMULATOR_TEST_CASES_H
#define DTRAIN_EMULATOR_TEST_CASES_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/norm.cuh"

// --- Kernels ---

static __global__ void fill(int *dst, int count, int value)
{
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count)
        dst[i] = value + i;
}

static __global__ void add(int *dst, const int *src, int count)
{
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count)
        dst[i] += src[i];
}

// Sum over a block, by a tree in shared memory and by shuffles.
static __global__ void block_sums(float *tree, float *shuffled, unsigned *counter)
{
    __shared__ float part[256];
    unsigned t = threadIdx.y * blockDim.x + threadIdx.x;
    part[t] = static_cast<float>(t + blockIdx.x);
    __syncthreads();
    for (unsigned n = 128; n > 0; n /= 2) {
        if (t < n)
            part[t] += part[t + n];
        __syncthreads();
    }
    if (t == 0)
        tree[blockIdx.x] = part[0];
    float v = static_cast<float>(t + blockIdx.x);
    for (unsigned n = 16; n > 0; n /= 2)
        v += __shfl_down_sync(0xffffffffu, v, n);
    __syncthreads();
    if (t % 32 == 0)
        part[t / 32] = v;
    __syncthreads();
    if (t < 32) {
        v = t < 8 ? part[t] : 0;
        for (int n = 4; n > 0; n /= 2)
            v += __shfl_xor_sync(0xffffffffu, v, n);
        if (t == 0)
            shuffled[blockIdx.x] = v;
    }
    atomicAdd(counter, 1u);
}

static __global__ void lanes(int *dst)
{
    int t = static_cast<int>(threadIdx.x);
    dst[t] = __shfl_down_sync(0xffffffffu, t, 3, 8);
    dst[64 + t] = __shfl_xor_sync(0xffffffffu, t, 5, 8);
    dst[128 + t] = __shfl_sync(0xffffffffu, t, 2, 16);
    if (t < 8)
        dst[192 + t] = __shfl_xor_sync(0xffu, t, 1);
}

static __global__ void missed_barrier(int *dst)
{
    if (threadIdx.x == 5)
        return;
    __syncthreads();
    dst[threadIdx.x] = 1;
}

static __global__ void late_exit(int *dst)
{
    if (threadIdx.x != 5)
        __syncthreads();
    dst[threadIdx.x] = 1;
}

static __global__ void missed_shuffle(int *dst)
{
    if (threadIdx.x % 2 == 0)
        dst[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 2);
}

static __global__ void absent_lane(int *dst)
{
    if (threadIdx.x < 4)
        dst[threadIdx.x] = __shfl_down_sync(0xfu, 1, 1);
}

// Has no barrier between writing and reading.
static __global__ void racy(int *dst)
{
    __shared__ int part[64];
    part[threadIdx.x] = static_cast<int>(threadIdx.x);
    dst[threadIdx.x] = part[threadIdx.x ^ 1];
    __syncthreads();
    part[threadIdx.x] = -1;
}

// How a block finds out that it is its column's last.
enum class finds_last { by_ticket, by_index, too_early };

// *sum = the sum of 1 .. gridDim.y, added up by the last block.
static __global__ void sum_of_blocks(int *sum, int *part, unsigned *tickets, finds_last how)
{
    if (threadIdx.x == 0)
        part[blockIdx.y] = static_cast<int>(blockIdx.y) + 1;
    bool last = how == finds_last::by_ticket ? is_last_block(tickets) : blockIdx.y == gridDim.y - 1;
    if (threadIdx.x == 0 && how == finds_last::too_early)
        last = atomicInc(tickets, gridDim.y - 1) == gridDim.y - 2;
    if (!last || threadIdx.x != 0)
        return;
    *sum = 0;
    for (unsigned i = 0; i < gridDim.y; i++)
        *sum += __ldcg(&part[i]);
}

static __global__ void write_at(int *dst, int index)
{
    dst[index] = 1;
}

static const struct dt_geometry one_block = {1, 1, 64, 1};

// --- Cases ---

enum { N = 1000, STEPS = 8 };

static cudaStream_t streams[2];
static int *buffer[3];

static void open_two()
{
    for (cudaStream_t &s : streams)
        cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    for (int *&b : buffer)
        cudaMalloc(reinterpret_cast<void **>(&b), N * sizeof(int));
}

static const struct dt_geometry n_threads = {4, 1, 256, 1};

// Eight times, stream 0 fills and stream 1 adds; with the waits the answer is always the same.
static int two_streams(bool wait_for_fill, bool wait_for_add)
{
    open_two();
    cudaEvent_t filled, added;
    cudaEventCreateWithFlags(&filled, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&added, cudaEventDisableTiming);
    dt_launch(fill, n_threads, streams[1], buffer[1], N, 0);
    for (int i = 0; i < STEPS; i++) {
        if (wait_for_add)
            cudaStreamWaitEvent(streams[0], added, 0);
        dt_launch(fill, n_threads, streams[0], buffer[0], N, i);
        cudaEventRecord(filled, streams[0]);
        if (wait_for_fill)
            cudaStreamWaitEvent(streams[1], filled, 0);
        dt_launch(add, n_threads, streams[1], buffer[1], buffer[0], N);
        cudaEventRecord(added, streams[1]);
    }
    cudaDeviceSynchronize();
    int out[N];
    cudaMemcpy(out, buffer[1], sizeof out, cudaMemcpyDeviceToHost);
    for (int i = 0; i < N; i++)
        if (out[i] != i * (STEPS + 1) + STEPS * (STEPS - 1) / 2)
            return 1;
    return 0;
}

// The host changes pinned memory without waiting for the copy.
static int case_reused_pinned()
{
    open_two();
    void *host;
    cudaHostAlloc(&host, N * sizeof(int), 0);
    memset(host, 0, N * sizeof(int));
    cudaMemcpyAsync(buffer[0], host, N * sizeof(int), cudaMemcpyHostToDevice, streams[0]);
    memset(host, 1, N * sizeof(int));
    int out;
    cudaStreamSynchronize(streams[0]);
    cudaMemcpy(&out, buffer[0], sizeof out, cudaMemcpyDeviceToHost);
    return out != 0;
}

// cudaMemset works in the legacy stream, for which a non-blocking stream does not wait.
static int case_memset_then_add()
{
    open_two();
    dt_launch(fill, n_threads, streams[0], buffer[1], N, 7);
    cudaMemset(buffer[0], 0, N * sizeof(int));
    dt_launch(add, n_threads, streams[0], buffer[1], buffer[0], N);
    cudaDeviceSynchronize();
    int out;
    cudaMemcpy(&out, buffer[1], sizeof out, cudaMemcpyDeviceToHost);
    return out != 7;
}

static int case_racy_kernel()
{
    open_two();
    dt_launch(fill, n_threads, streams[0], buffer[0], N, 0);
    dt_launch(racy, one_block, streams[0], buffer[0]);
    cudaDeviceSynchronize();
    int out[64];
    cudaMemcpy(out, buffer[0], sizeof out, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 64; i++)
        if (out[i] != (i ^ 1))
            return 1;
    return 0;
}

// Two launches as in a recording: the second one finds the ticket that the first one left.
static int last_block(finds_last how)
{
    enum { BLOCKS = 5 };
    const struct dt_geometry g = {1, BLOCKS, 64, 1};
    open_two();
    auto tickets = reinterpret_cast<unsigned *>(buffer[2]);
    int sum, n_wrong = 0;
    cudaMemsetAsync(tickets, 0, sizeof *tickets, streams[0]);
    for (int i = 0; i < 2; i++) {
        cudaMemsetAsync(buffer[0], 0xa5, sizeof sum, streams[0]);
        cudaMemsetAsync(buffer[1], 0xa5, BLOCKS * sizeof sum, streams[0]);
        dt_launch(sum_of_blocks, g, streams[0], buffer[0], buffer[1], tickets, how);
        cudaDeviceSynchronize();
        cudaMemcpy(&sum, buffer[0], sizeof sum, cudaMemcpyDeviceToHost);
        n_wrong += sum != BLOCKS * (BLOCKS + 1) / 2;
    }
    return n_wrong > 0;
}

// A copy enqueued in a stream is eventually done, without a call that waits.
static int case_runs_by_itself()
{
    open_two();
    void *host;
    cudaHostAlloc(&host, sizeof(int), 0);
    volatile int *seen = static_cast<volatile int *>(host);
    *seen = 3;
    dt_launch(fill, n_threads, streams[0], buffer[0], N, 42);
    cudaMemcpyAsync(host, buffer[0], sizeof(int), cudaMemcpyDeviceToHost, streams[0]);
    for (int i = 0; i < 5000 && *seen != 42; i++)
        usleep(1000);
    return *seen != 42;
}

static int launch(void (*kernel)(int *))
{
    open_two();
    dt_launch(kernel, one_block, streams[0], buffer[0]);
    cudaDeviceSynchronize();
    return 0;
}

static int case_host_pointer()
{
    static int host[N];
    open_two();
    dt_launch(fill, n_threads, streams[0], static_cast<int *>(host), N, 0);
    return 0;
}

static int case_host_access()
{
    open_two();
    *static_cast<volatile int *>(buffer[0]) = 0;
    return 0;
}

static int write_to(int index)
{
    open_two();
    dt_launch(write_at, dt_geometry{1, 1, 1, 1}, streams[0], buffer[0], index);
    cudaDeviceSynchronize();
    return 0;
}

static int case_copy_too_long()
{
    static int host[2 * N];
    open_two();
    cudaMemcpy(buffer[0], host, sizeof host, cudaMemcpyHostToDevice);
    return 0;
}

static int case_wrong_kind()
{
    static int host[N];
    open_two();
    cudaMemcpy(buffer[0], host, sizeof host, cudaMemcpyDeviceToHost);
    return 0;
}

static int case_used_after_free()
{
    open_two();
    cudaFree(buffer[0]);
    dt_launch(fill, n_threads, streams[0], buffer[0], N, 0);
    return 0;
}

static int case_unpinned_too_early()
{
    static int host[N];
    open_two();
    cudaHostRegister(host, sizeof host, 0);
    for (int i = 0; i < 100; i++)
        cudaMemcpyAsync(buffer[0], host, sizeof host, cudaMemcpyHostToDevice, streams[0]);
    cudaHostUnregister(host);
    cudaDeviceSynchronize();
    return 0;
}

static int case_destroyed_stream()
{
    open_two();
    cudaStreamDestroy(streams[0]);
    cudaStreamSynchronize(streams[0]);
    return 0;
}

static int case_pageable_in_capture()
{
    static int host[N];
    open_two();
    cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal);
    cudaMemcpyAsync(buffer[0], host, sizeof host, cudaMemcpyHostToDevice, streams[0]);
    return 0;
}

static int case_no_device()
{
    int n = -1;
    void *memory;
    return !(cudaGetDeviceCount(&n) == cudaErrorNoDevice && n == 0 &&
             cudaMalloc(&memory, 1) == cudaErrorNoDevice);
}

static int case_two_devices()
{
    int n = 0;
    char first[16], second[16];
    cudaGetDeviceCount(&n);
    cudaDeviceGetPCIBusId(first, sizeof first, 0);
    cudaDeviceGetPCIBusId(second, sizeof second, 1);
    return !(n == 2 && strcmp(first, second) != 0 && cudaSetDevice(1) == cudaSuccess &&
             cudaSetDevice(2) == cudaErrorInvalidDevice);
}

static int case_other_device()
{
    open_two();
    cudaSetDevice(1);
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    cudaMemsetAsync(buffer[0], 0, 4, stream);
    return 0;
}

#define CASE(name)         \
    {                      \
#name, case_##name \
    }
static const struct {
    const char *name;
    int (*run)();
} cases[] = {
    {"ordered", [] { return two_streams(true, true); }},
    {"no_wait_for_fill", [] { return two_streams(false, true); }},
    {"no_wait_for_add", [] { return two_streams(true, false); }},
    {"last_block", [] { return last_block(finds_last::by_ticket); }},
    {"last_by_index", [] { return last_block(finds_last::by_index); }},
    {"last_too_early", [] { return last_block(finds_last::too_early); }},
    {"missed_barrier", [] { return launch(missed_barrier); }},
    {"late_exit", [] { return launch(late_exit); }},
    {"missed_shuffle", [] { return launch(missed_shuffle); }},
    {"absent_lane", [] { return launch(absent_lane); }},
    {"write_behind", [] { return write_to(N); }},
    {"write_far_behind", [] { return write_to(N + 100); }},
    CASE(reused_pinned),
    CASE(memset_then_add),
    CASE(racy_kernel),
    CASE(runs_by_itself),
    CASE(host_pointer),
    CASE(host_access),
    CASE(copy_too_long),
    CASE(wrong_kind),
    CASE(used_after_free),
    CASE(unpinned_too_early),
    CASE(destroyed_stream),
    CASE(pageable_in_capture),
    CASE(no_device),
    CASE(two_devices),
    CASE(other_device),
};

#endif
