/* The NCCL plane with a GPU, or with the emulator of one: exact sums in all types, equal bits on
 * all ranks and in every run, a captured sum replayed. Ranks share GPUs where there are fewer of
 * them. Exits with 77 without a GPU. */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "dist_rig.h"

enum { MAX_COUNT = 300001, MAX_BYTES = 4 * MAX_COUNT, SKIPPED = 77 };

static bool is_shared; /* GPUs by ranks */
static cudaStream_t compute, stream;

static void cuda(cudaError_t code)
{
    assert_ok(code == cudaSuccess ? DT_OK
                                  : DT_ERROR(DT_ERR_DEVICE, "CUDA: %s", cudaGetErrorString(code)));
}

static void open_plane(enum dt_dtype dtype)
{
    struct dt_comm_options options = {
        .plane = DT_PLANE_NCCL,
        .sum = DT_SUM_RING,
        .n_reductions = 2,
        .max_count = MAX_COUNT,
        .dtype = dtype,
        .stream = stream,
        .timeout_s = 60.0,
        .share = is_shared,
    };
    assert_ok(dt_comm_open_reduce(comm, &options));
}

/* A small integer, which all types hold exactly. */
static float integer_value(int r, size_t i)
{
    return (float)((int)(i % 13) - 6 + r);
}

static void put(void *out, enum dt_dtype dtype, size_t i, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t half = (uint16_t)(bits >> 16);
    if (dtype == DT_F16 && value != 0.0F)
        half = (uint16_t)((bits >> 16 & 0x8000) + (((bits >> 23 & 0xff) - 112) << 10) +
                          (bits >> 13 & 0x3ff));
    if (dtype == DT_F32)
        ((float *)out)[i] = value;
    else
        ((uint16_t *)out)[i] = half;
}

/* The contribution of rank r to a sum, or the sum if r = n. */
static void fill(void *out, enum dt_dtype dtype, size_t count, int shift, int r)
{
    for (size_t i = 0; i < count; i++) {
        float value = 0.0F;
        for (int from = 0; from < n; from++)
            if (from == r || r == n)
                value += integer_value(from + shift, i);
        put(out, dtype, i, value);
    }
}

static char *host, *expected;

static void to_device(void *device, size_t bytes)
{
    cuda(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
}

static void to_host(const void *device, size_t bytes)
{
    memset(host, 0x55, bytes);
    cuda(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
    cuda(cudaStreamSynchronize(stream));
}

static void check_sums(enum dt_dtype dtype, char *device)
{
    static const size_t counts[] = {1, 3, 1000, 65537, MAX_COUNT};
    for (size_t c = 0; c < DT_COUNT(counts); c++) {
        size_t bytes = counts[c] * dt_dtype_bytes(dtype);
        fill(host, dtype, counts[c], (int)c, rank);
        fill(expected, dtype, counts[c], (int)c, n);
        to_device(device, bytes);
        assert_ok(dt_comm_reduce(comm, (int)c % 2, device, counts[c]));
        assert_ok(dt_comm_poll(comm));
        assert_ok(dt_comm_wait(comm, (int)c % 2));
        to_host(device, bytes);
        assert_all(memcmp(host, expected, bytes) == 0);
    }
}

static void check_type(enum dt_dtype dtype)
{
    open_plane(dtype);
    void *memory;
    cuda(cudaMalloc(&memory, MAX_BYTES));
    check_sums(dtype, memory);
    dt_comm_close_reduce(comm);
    cuda(cudaFree(memory));
}

TEST(fp32)
{
    check_type(DT_F32);
}

TEST(fp16)
{
    check_type(DT_F16);
}

TEST(bf16)
{
    check_type(DT_BF16);
}

TEST(bits)
{
    enum { COUNT = 100003, BYTES = 4 * COUNT };
    open_plane(DT_F32);
    void *device;
    cuda(cudaMalloc(&device, BYTES));
    for (int run = 0; run < 3; run++) {
        struct dt_rng rng;
        dt_rng_init(&rng, 42, DT_RNG_SYNTHETIC, 0, (uint32_t)rank);
        for (size_t i = 0; i < COUNT; i++)
            put(host, DT_F32, i, (float)((dt_rng_uniform(&rng) - 0.5) * 1e3));
        to_device(device, BYTES);
        assert_ok(dt_comm_reduce(comm, 0, device, COUNT));
        to_host(device, BYTES);
        if (run == 0) {
            memcpy(expected, host, BYTES);
            assert_ok(dt_comm_bcast(comm, expected, BYTES, 0));
        }
        assert_all(memcmp(host, expected, BYTES) == 0);
    }
    dt_comm_close_reduce(comm);
    cuda(cudaFree(device));
}

/* Two sums on the comm stream, forked off the compute stream and joined to it, as in a step. */
static cudaGraphExec_t capture(char *first, char *second, size_t count)
{
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cuda(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    cuda(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    cuda(cudaStreamBeginCapture(compute, cudaStreamCaptureModeThreadLocal));
    cuda(cudaEventRecord(fork, compute));
    cuda(cudaStreamWaitEvent(stream, fork, 0));
    assert_ok(dt_comm_reduce(comm, 0, first, count));
    assert_ok(dt_comm_poll(comm));
    assert_ok(dt_comm_reduce(comm, 1, second, count));
    cuda(cudaEventRecord(join, stream));
    cuda(cudaStreamWaitEvent(compute, join, 0));
    cuda(cudaStreamEndCapture(compute, &graph));
    cuda(cudaGraphInstantiate(&exec, graph, 0));
    cuda(cudaGraphDestroy(graph));
    cuda(cudaEventDestroy(fork));
    cuda(cudaEventDestroy(join));
    return exec;
}

TEST(capture)
{
    enum { COUNT = 70001, BYTES = 2 * COUNT };
    open_plane(DT_F16);
    void *memory;
    char *first;
    cuda(cudaMalloc(&memory, MAX_BYTES));
    first = memory;
    check_sums(DT_F16, first); /* uncaptured ones before, as in warm-up steps */
    cudaGraphExec_t exec = capture(first, first + BYTES, COUNT);
    for (int step = 0; step < 4; step++) {
        fill(host, DT_F16, COUNT, step, rank);
        fill(host + BYTES, DT_F16, COUNT, step + 2, rank);
        fill(expected, DT_F16, COUNT, step, n);
        fill(expected + BYTES, DT_F16, COUNT, step + 2, n);
        to_device(first, 2 * BYTES);
        cuda(cudaStreamSynchronize(stream));
        cuda(cudaGraphLaunch(exec, compute));
        cuda(cudaStreamSynchronize(compute));
        assert_ok(dt_comm_poll(comm));
        to_host(first, 2 * BYTES);
        assert_all(memcmp(host, expected, 2 * BYTES) == 0);
    }
    cuda(cudaGraphExecDestroy(exec)); /* before the plane: it waits for that */
    dt_comm_close_reduce(comm);
    cuda(cudaFree(memory));
}

/* Each rank takes a GPU of its own where it can; false without any. */
static bool find_device(void)
{
    int n_devices = 0;
    if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0)
        return false;
    is_shared = n_devices < dt_comm_local_size(comm);
    cuda(cudaSetDevice(dt_comm_local_rank(comm) % n_devices));
    cuda(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return true;
}

int main(int argc, char **argv)
{
    if (!open_ranks(&argc, &argv))
        return 1;
    if (!find_device()) {
        print_message("skipped: no GPU\n");
        dt_comm_close(comm);
        return SKIPPED;
    }
    host = dt_mem_alloc_aligned(MAX_BYTES, "values of a test");
    expected = dt_mem_alloc_aligned(MAX_BYTES, "values of a test");
    assert_ok(host && expected ? DT_OK : DT_ERR_MEMORY);
    int n_failed = run_all_tests(NULL, NULL);
    cuda(cudaStreamDestroy(stream));
    cuda(cudaStreamDestroy(compute));
    free(host);
    free(expected);
    dt_comm_close(comm);
    return n_failed ? 1 : 0;
}
