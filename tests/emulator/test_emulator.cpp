// The emulator itself: kernels run as on a GPU, behaviour that CUDA leaves open differs between
// seeds, and misuse is found.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "emulator.h"
#include "kernels/device.cuh"
#include "support/test.h"
#include "test_cases.h"

#define OK(call) assert_int_equal((call), cudaSuccess)

// --- Helpers ---

static int *device_ints(int count)
{
    void *out;
    OK(cudaMalloc(&out, static_cast<size_t>(count) * sizeof(int)));
    return static_cast<int *>(out);
}

static cudaStream_t new_stream()
{
    cudaStream_t out;
    OK(cudaStreamCreateWithFlags(&out, cudaStreamNonBlocking));
    return out;
}

static cudaEvent_t new_event()
{
    cudaEvent_t out;
    OK(cudaEventCreateWithFlags(&out, cudaEventDisableTiming));
    return out;
}

static void download(int *dst, const int *src, int count)
{
    OK(cudaMemcpy(dst, src, static_cast<size_t>(count) * sizeof(int), cudaMemcpyDeviceToHost));
}

// Runs a case in a new process; returns its exit status, or -1 if it was killed by a signal. Its
// output must contain `message` (may be NULL).
static int run_case(const char *name, const char *seed, const char *n_gpus, const char *message)
{
    char command[512], line[1024];
    snprintf(command, sizeof command,
             "DTRAIN_EMULATE_SEED=%s DTRAIN_EMULATED_GPUS=%s exec /proc/%d/exe %s 2>&1", seed,
             n_gpus, static_cast<int>(getpid()), name);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    bool found = false;
    std::string text;
    while (fgets(line, sizeof line, out)) {
        text += line;
        found = found || (message && strstr(line, message));
    }
    int status = pclose(out);
    if (message && !found)
        fail_msg("%s: no \"%s\" in: %s", name, message, text.c_str());
    return WIFSIGNALED(status) ? -1 : WEXITSTATUS(status);
}

// How many of the seeds 1 .. 20 make the case give wrong numbers.
static int wrong_seeds(const char *name)
{
    int n = 0;
    for (int seed = 1; seed <= 20; seed++) {
        int status = run_case(name, std::to_string(seed).c_str(), "1", nullptr);
        assert_in_range(status, 0, 1);
        n += status;
    }
    return n;
}

// These cases return 0. A sanitizer turns a crash into a status of its own.
static void assert_aborts(const char *name, const char *message)
{
    assert_int_not_equal(run_case(name, "1", "2", message), 0);
}

// --- Tests ---

TEST(kernels)
{
    enum { BLOCKS = 5 };
    void *memory;
    OK(cudaMalloc(&memory, 4096));
    OK(cudaMemset(memory, 0, 4096));
    auto tree = static_cast<float *>(memory), shuffled = tree + 64;
    auto counter = reinterpret_cast<unsigned *>(tree + 128);
    struct dt_geometry g = {BLOCKS, 1, 32, 8};
    OK(dt_launch(block_sums, g, nullptr, tree, shuffled, counter));
    float got[129];
    OK(cudaMemcpy(got, memory, sizeof got, cudaMemcpyDeviceToHost));
    for (int b = 0; b < BLOCKS; b++) {
        assert_true(got[b] == static_cast<float>(255 * 128 + 256 * b));
        assert_true(got[64 + b] == got[b]);
    }
    unsigned count;
    memcpy(&count, &got[128], sizeof count);
    assert_int_equal(count, 256 * BLOCKS);
    OK(cudaFree(memory));
}

TEST(shuffles)
{
    int *dst = device_ints(256), got[200];
    OK(dt_launch(lanes, one_block, nullptr, dst));
    download(got, dst, 200);
    for (int t = 0; t < 64; t++) {
        assert_int_equal(got[t], t % 8 + 3 < 8 ? t + 3 : t);
        assert_int_equal(got[64 + t], t ^ 5);
        assert_int_equal(got[128 + t], t / 16 * 16 + 2);
        if (t < 8)
            assert_int_equal(got[192 + t], t ^ 1);
    }
    OK(cudaFree(dst));
}

TEST(launch_errors)
{
    int *dst = device_ints(1);
    assert_int_equal(dt_launch(fill, dt_geometry{1, 1, 1025, 1}, nullptr, dst, 1, 0),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(dt_launch(fill, dt_geometry{1, 70000, 32, 1}, nullptr, dst, 1, 0),
                     cudaErrorInvalidConfiguration);
    OK(dt_launch(fill, dt_geometry{0, 1, 32, 1}, nullptr, dst, 1, 0));
    OK(cudaGetLastError());
    OK(cudaFree(dst));
}

TEST(memory)
{
    int *p = device_ints(3), got[3];
    assert_int_equal(reinterpret_cast<uintptr_t>(p) % 256, 0);
    download(got, p, 3);
    assert_int_equal(got[1], static_cast<int>(0xA5A5A5A5));
    size_t free_bytes, total, after;
    OK(cudaMemGetInfo(&free_bytes, &total));
    OK(cudaFree(p));
    OK(cudaMemGetInfo(&after, &total));
    assert_int_equal(after - free_bytes, 12);
    void *much;
    assert_int_equal(cudaMalloc(&much, total + 1), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    OK(cudaGetLastError());
    assert_string_equal(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
    OK(cudaFree(nullptr));
}

TEST(pinned)
{
    static char host[4096];
    OK(cudaHostRegister(host, sizeof host, cudaHostRegisterDefault));
    assert_int_equal(cudaHostRegister(host + 100, 8, 0), cudaErrorHostMemoryAlreadyRegistered);
    OK(cudaHostUnregister(host));
    assert_int_equal(cudaHostUnregister(host), cudaErrorHostMemoryNotRegistered);
    cudaGetLastError();
}

// Polling: not ready at first, finally ready; the elapsed time requires both events to be done.
TEST(events)
{
    cudaStream_t stream = new_stream();
    cudaEvent_t begin, end, untimed = new_event();
    OK(cudaEventCreate(&begin));
    OK(cudaEventCreate(&end));
    OK(cudaEventQuery(begin)); // never recorded
    int *p = device_ints(N), n_not_ready = 0;
    float ms = -1;
    for (int i = 0; i < 20; i++) {
        OK(cudaEventRecord(begin, stream));
        for (int k = 0; k < 10; k++)
            OK(dt_launch(fill, n_threads, stream, p, N, k));
        OK(cudaEventRecord(end, stream));
        cudaError_t code;
        while ((code = cudaEventQuery(end)) == cudaErrorNotReady)
            n_not_ready++;
        OK(code);
        cudaGetLastError();
        OK(cudaEventElapsedTime(&ms, begin, end));
        assert_true(ms >= 0);
    }
    assert_true(n_not_ready > 20);
    assert_int_equal(cudaEventElapsedTime(&ms, begin, untimed), cudaErrorInvalidResourceHandle);
    assert_int_equal(dt_launch(fill, n_threads, stream, p, N, 0), cudaErrorInvalidResourceHandle);
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamQuery(stream));
    OK(cudaFree(p));
    OK(cudaEventDestroy(begin));
    OK(cudaEventDestroy(end));
    OK(cudaEventDestroy(untimed));
    OK(cudaStreamDestroy(stream));
}

static cudaGraphExec_t instantiate(cudaGraph_t graph)
{
    cudaGraphExec_t exec;
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    return exec;
}

// A fork and a join in a capture; each launch repeats the work with the arguments at capture time.
TEST(capture)
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t fork = new_event(), join = new_event(), stamp;
    OK(cudaEventCreate(&stamp));
    int *x = device_ints(N), *y = device_ints(N), got[N];
    OK(dt_launch(fill, n_threads, a, y, N, 0));
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    OK(dt_launch(fill, n_threads, a, x, N, 5));
    OK(cudaEventRecord(fork, a));
    OK(cudaStreamWaitEvent(b, fork, 0));
    cudaStreamCaptureStatus status;
    OK(cudaStreamIsCapturing(b, &status));
    assert_int_equal(status, cudaStreamCaptureStatusActive);
    OK(dt_launch(add, n_threads, b, y, x, N));
    OK(cudaEventRecord(join, b));
    OK(cudaStreamWaitEvent(a, join, 0));
    OK(cudaEventRecordWithFlags(stamp, a, cudaEventRecordExternal));
    OK(dt_launch(add, n_threads, a, y, x, N));
    cudaGraph_t graph;
    OK(cudaStreamEndCapture(a, &graph));
    OK(cudaStreamIsCapturing(b, &status));
    assert_int_equal(status, cudaStreamCaptureStatusNone);
    size_t n_nodes = 0;
    OK(cudaGraphGetNodes(graph, nullptr, &n_nodes));
    assert_int_equal(n_nodes, 4);
    cudaGraphExec_t exec = instantiate(graph);
    for (int i = 1; i <= 3; i++) {
        OK(cudaGraphLaunch(exec, a));
        OK(cudaStreamSynchronize(a));
        OK(cudaEventQuery(stamp));
        download(got, y, N);
        assert_int_equal(got[10], 10 + 2 * i * 15);
    }
    assert_int_equal(cudaEventQuery(fork), cudaErrorCapturedEvent);
    OK(cudaEventRecord(fork, a)); // outside the capture again
    OK(cudaEventSynchronize(fork));
    cudaGetLastError();
    OK(cudaGraphExecDestroy(exec));
    OK(cudaFree(x));
    OK(cudaFree(y));
    for (cudaEvent_t e : {fork, join, stamp})
        OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
}

// Begins a capture on a, which b joins if `fork`.
static void begin_capture(cudaStream_t a, cudaStream_t b, cudaEvent_t event, bool fork)
{
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(event, a));
    if (fork)
        OK(cudaStreamWaitEvent(b, event, 0));
}

static void assert_end(cudaStream_t stream, cudaError_t expected)
{
    cudaGraph_t graph = reinterpret_cast<cudaGraph_t>(&graph);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), expected);
    assert_null(graph);
    assert_int_equal(cudaGetLastError(), expected);
}

TEST(capture_errors)
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t event = new_event(), other = new_event();
    int *x = device_ints(N);
    void *memory;

    begin_capture(a, b, event, true);
    OK(dt_launch(fill, n_threads, b, x, N, 0));
    assert_end(a, cudaErrorStreamCaptureUnjoined);

    begin_capture(a, b, event, true);
    cudaGraph_t graph;
    assert_int_equal(cudaStreamEndCapture(b, &graph), cudaErrorStreamCaptureUnmatched);
    assert_int_equal(cudaMalloc(&memory, 1), cudaErrorStreamCaptureUnsupported);
    assert_end(a, cudaErrorStreamCaptureInvalidated);

    begin_capture(a, b, event, false);
    assert_int_equal(cudaStreamSynchronize(a), cudaErrorStreamCaptureUnsupported);
    assert_end(a, cudaErrorStreamCaptureInvalidated);

    begin_capture(a, b, event, false);
    assert_int_equal(cudaEventQuery(event), cudaErrorCapturedEvent);
    assert_end(a, cudaErrorStreamCaptureInvalidated);

    OK(cudaEventRecord(other, b));
    begin_capture(a, b, event, false);
    assert_int_equal(cudaStreamWaitEvent(a, other, 0), cudaErrorStreamCaptureIsolation);
    assert_end(a, cudaErrorStreamCaptureInvalidated);

    begin_capture(a, b, event, false);
    int zero = 0;
    assert_int_equal(cudaMemcpy(x, &zero, 4, cudaMemcpyHostToDevice),
                     cudaErrorStreamCaptureUnsupported);
    assert_end(a, cudaErrorStreamCaptureInvalidated);

    OK(cudaFree(x));
    OK(cudaEventDestroy(event));
    OK(cudaEventDestroy(other));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
}

// A missing wait, a reused buffer, a missing barrier or a wrong guess of which block is the last
// gives wrong numbers for some seeds.
TEST(races)
{
    assert_int_equal(wrong_seeds("ordered"), 0);
    assert_int_equal(wrong_seeds("last_block"), 0);
    for (const char *name : {"no_wait_for_fill", "no_wait_for_add", "reused_pinned",
                             "memset_then_add", "racy_kernel", "last_by_index", "last_too_early"}) {
        int n = wrong_seeds(name);
        print_message("%s: wrong for %d of 20 seeds\n", name, n);
        assert_in_range(n, 1, 20);
    }
}

TEST(in_order)
{
    assert_int_equal(run_case("no_wait_for_fill", "0", "1", nullptr), 0);
    assert_int_equal(run_case("ordered", "0", "1", nullptr), 0);
}

TEST(runs_by_itself)
{
    assert_int_equal(run_case("runs_by_itself", "1", "1", nullptr), 0);
}

TEST(misuse)
{
    assert_aborts("missed_barrier", "have returned");
    assert_aborts("late_exit", "have returned");
    assert_aborts("missed_shuffle", "__shfl_xor_sync");
    assert_aborts("absent_lane", "does not take part");
    assert_aborts("host_pointer", "is not device memory");
    assert_aborts("host_access", nullptr);
    assert_aborts("write_behind", "wrote outside");
    assert_aborts("write_far_behind", nullptr);
    assert_aborts("copy_too_long", "its allocation ends");
    assert_aborts("wrong_kind", "kind 2");
    assert_aborts("used_after_free", "is not device memory");
    assert_aborts("unpinned_too_early", "was unpinned");
    assert_aborts("destroyed_stream", "was destroyed");
    assert_aborts("pageable_in_capture", "pageable");
    assert_aborts("other_device", "memory of device 0");
}

TEST(devices)
{
    assert_int_equal(run_case("no_device", "1", "0", nullptr), 0);
    assert_int_equal(run_case("two_devices", "1", "2", nullptr), 0);
}

int main(int argc, char **argv)
{
    for (const auto &c : cases)
        if (argc == 2 && strcmp(argv[1], c.name) == 0)
            return c.run();
    return run_all_tests(nullptr, nullptr);
}
