/* The three streams and their order, waiting with a deadline, recordings, time stamps.
 *
 * compute carries the walk, comm the reductions (with priority, because other ranks wait for them),
 * copy the input. None of them synchronises with the default stream. */
#include <nvtx3/nvToolsExt.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "cuda/cuda_internal.h"

/* --- Opening and closing --- */

static dt_status create_event(cudaEvent_t *event)
{
    return DT_CUDA("an event", cudaEventCreateWithFlags(event, cudaEventDisableTiming));
}

static void destroy_events(cudaEvent_t *events, int n)
{
    for (int i = 0; events && i < n; i++)
        if (events[i])
            (void)cudaEventDestroy(events[i]);
}

dt_status dt_cuda_open_streams(struct dt_device *dev)
{
    int min = 0, greatest = 0;
    DT_TRY(DT_CUDA("stream priorities", cudaDeviceGetStreamPriorityRange(&min, &greatest)));
    DT_TRY(DT_CUDA("the compute stream",
                   cudaStreamCreateWithPriority(&dev->compute, cudaStreamNonBlocking, min)));
    DT_TRY(DT_CUDA("the comm stream",
                   cudaStreamCreateWithPriority(&dev->comm, cudaStreamNonBlocking, greatest)));
    DT_TRY(DT_CUDA("the copy stream",
                   cudaStreamCreateWithPriority(&dev->copy, cudaStreamNonBlocking, min)));
    DT_TRY(create_event(&dev->fork));
    DT_TRY(create_event(&dev->wait));
    for (int i = 0; i < DT_CUDA_FEED_SLOTS; i++) {
        DT_TRY(create_event(&dev->fed[i]));
        DT_TRY(create_event(&dev->taken[i]));
    }
    return DT_NEW(dev->stamp, DT_CUDA_MAX_STAMPS);
}

static void close_marks(struct dt_device *dev)
{
    destroy_events(dev->mark, dev->n_marks);
    free(dev->mark);
    dev->mark = NULL;
    dev->n_marks = 0;
}

void dt_cuda_close_streams(struct dt_device *dev)
{
    destroy_events(dev->stamp, DT_CUDA_MAX_STAMPS);
    free(dev->stamp);
    close_marks(dev);
    destroy_events(dev->taken, DT_CUDA_FEED_SLOTS);
    destroy_events(dev->fed, DT_CUDA_FEED_SLOTS);
    destroy_events(&dev->wait, 1);
    destroy_events(&dev->fork, 1);
    cudaStream_t *const streams[] = {&dev->copy, &dev->comm, &dev->compute};
    for (size_t i = 0; i < DT_COUNT(streams); i++)
        if (*streams[i])
            (void)cudaStreamDestroy(*streams[i]);
}

/* --- Waiting --- */

enum { SPIN_US = 50, NAP_US = 50, POLL_US = 10000 };

static dt_status run_out_of_time(struct dt_device *dev, const char *what)
{
    dev->hung = true;
    DT_FAIL(DT_ERR_HANG,
            "%s did not finish on %s within %g s: the GPU hangs, or another rank has stopped; if "
            "this much time is needed, raise device.timeout_s",
            what, dev->name, dev->options.timeout_s);
}

/* *is_told: the watchdog has been told that this rank may be waiting for others. */
static dt_status wait_for_event(struct dt_device *dev, cudaEvent_t event, const char *what,
                                bool *is_told)
{
    const struct dt_device_options *options = &dev->options;
    const double start = dt_clock_s();
    double polled = start;
    for (;;) {
        cudaError_t code = cudaEventQuery(event);
        if (code != cudaErrorNotReady) {
            DT_TRY(DT_CUDA(what, code));
            return DT_OK;
        }
        (void)cudaGetLastError(); /* "not ready" is not an error, and the next launch must not see
                                     it */
        double now = dt_clock_s();
        if (options->timeout_s > 0 && now - start > options->timeout_s)
            return run_out_of_time(dev, what);
        if (options->poll && now - polled > POLL_US * 1e-6) {
            dt_status status = options->poll(options->context);
            dev->hung = dev->hung || status != DT_OK; /* the event may never complete */
            DT_TRY(status);
            polled = now;
        }
        if (now - start < SPIN_US * 1e-6)
            continue;
        if (options->share && !*is_told)
            dt_pulse_wait(&dt_pulse_main, "GPU work");
        *is_told = options->share;
        /* If a signal shortens the nap, the event is polled once more than needed. */
        (void)nanosleep(&(struct timespec){.tv_nsec = NAP_US * 1000}, NULL);
    }
}

/* With several ranks the work may contain NCCL sums, which end only when all ranks have reached
 * them: a rank that waits for the GPU is not to blame. */
dt_status dt_cuda_wait(struct dt_device *dev, cudaEvent_t event, const char *what)
{
    bool is_told = false;
    dt_status status = wait_for_event(dev, event, what, &is_told);
    if (is_told)
        dt_pulse_go_on(&dt_pulse_main);
    return status;
}

dt_status dt_cuda_wait_stream(struct dt_device *dev, cudaStream_t stream, const char *what)
{
    DT_TRY(DT_CUDA(what, cudaEventRecord(dev->wait, stream)));
    return dt_cuda_wait(dev, dev->wait, what);
}

dt_status dt_cuda_sync(struct dt_device *dev)
{
    DT_TRY(dt_cuda_wait_stream(dev, dev->copy, "copying input"));
    DT_TRY(dt_cuda_wait_stream(dev, dev->compute, "the work on the compute stream"));
    DT_TRY(dt_cuda_wait_stream(dev, dev->comm, "the work on the comm stream"));
    return DT_OK;
}

/* --- Order of compute and comm --- */

void *dt_cuda_comm_stream(struct dt_device *dev)
{
    return dev->comm;
}

dt_status dt_cuda_open_marks(struct dt_device *dev, int n)
{
    close_marks(dev);
    DT_TRY(DT_NEW(dev->mark, (size_t)n));
    dev->n_marks = n;
    for (int i = 0; i < n; i++)
        DT_TRY(create_event(&dev->mark[i]));
    return DT_OK;
}

static dt_status check_mark(const struct dt_device *dev, int mark)
{
    if (mark < 0 || mark >= dev->n_marks)
        DT_FAIL(DT_ERR_INTERNAL, "mark %d of the comm stream, but only %d are open", mark,
                dev->n_marks);
    return DT_OK;
}

dt_status dt_cuda_fork(struct dt_device *dev)
{
    DT_TRY(DT_CUDA("fork of the comm stream", cudaEventRecord(dev->fork, dev->compute)));
    return DT_CUDA("fork of the comm stream", cudaStreamWaitEvent(dev->comm, dev->fork, 0));
}

dt_status dt_cuda_mark(struct dt_device *dev, int mark)
{
    DT_TRY(check_mark(dev, mark));
    return DT_CUDA("mark of the comm stream", cudaEventRecord(dev->mark[mark], dev->comm));
}

dt_status dt_cuda_join(struct dt_device *dev, int mark)
{
    DT_TRY(check_mark(dev, mark));
    return DT_CUDA("join of the comm stream",
                   cudaStreamWaitEvent(dev->compute, dev->mark[mark], 0));
}

/* --- Recordings ---
 *
 * While the compute stream is captured, events recorded in it are points in the recording, and a
 * stream that waits for one is captured too. After the recording the events of fork and mark still
 * refer to such points, which is harmless: they are used nowhere else and are recorded again before
 * anything waits for them. */

struct dt_recording {
    cudaGraphExec_t exec;
};

dt_status dt_cuda_record(struct dt_device *dev)
{
    /* The first failure from here on is the reason if the recording fails. */
    dt_error_clear();
    /* Thread-local: other threads (of NCCL, of the loader) may keep calling any function. */
    return DT_CUDA("starting to record the step",
                   cudaStreamBeginCapture(dev->compute, cudaStreamCaptureModeThreadLocal));
}

dt_status dt_cuda_end_record(struct dt_device *dev, struct dt_recording **out)
{
    dt_status status = DT_OK;
    cudaGraph_t graph = NULL;
    struct dt_recording *recording = NULL;

    *out = NULL;
    /* The capture of all streams ends, even on failure; no graph is made then. */
    cudaError_t code = cudaStreamEndCapture(dev->compute, &graph);
    if (code != cudaSuccess || !graph) {
        (void)cudaGetLastError();
        const char *reason = dt_error_text();
        DT_TRY_OUT(DT_ERROR(DT_ERR_DEVICE, "recording the step: %s: %s%s%s", cudaGetErrorName(code),
                            cudaGetErrorString(code), reason[0] ? "; it began with: " : "",
                            reason));
    }
    DT_TRY_OUT(DT_NEW(recording, 1));
    /* Reductions keep the priority of the comm stream. */
    DT_TRY_OUT(DT_CUDA("preparing the recorded step",
                       cudaGraphInstantiateWithFlags(&recording->exec, graph,
                                                     cudaGraphInstantiateFlagUseNodePriority)));
    *out = recording;
    recording = NULL;
out:
    dt_cuda_release_recording(dev, recording);
    if (graph)
        (void)cudaGraphDestroy(graph);
    return status;
}

dt_status dt_cuda_replay(struct dt_device *dev, struct dt_recording *recording)
{
    return DT_CUDA("starting the recorded step", cudaGraphLaunch(recording->exec, dev->compute));
}

void dt_cuda_release_recording(struct dt_device *dev, struct dt_recording *recording)
{
    if (!recording)
        return;
    if (recording->exec && !dev->hung)
        (void)cudaGraphExecDestroy(recording->exec);
    free(recording);
}

/* --- Time stamps --- */

static dt_status check_stamp(int i)
{
    if (i < 0 || i >= DT_CUDA_MAX_STAMPS)
        DT_FAIL(DT_ERR_INTERNAL, "time stamp %d is not in 0 .. %d", i, DT_CUDA_MAX_STAMPS - 1);
    return DT_OK;
}

dt_status dt_cuda_stamp(struct dt_device *dev, int i, bool is_comm)
{
    cudaStream_t stream = is_comm ? dev->comm : dev->compute;
    DT_TRY(check_stamp(i));
    if (!dev->stamp[i])
        DT_TRY(DT_CUDA("a time stamp", cudaEventCreate(&dev->stamp[i])));
    return DT_CUDA("a time stamp", cudaEventRecord(dev->stamp[i], stream));
}

dt_status dt_cuda_elapsed(struct dt_device *dev, int from, int to, double *seconds)
{
    float ms = 0;
    DT_TRY(check_stamp(from));
    DT_TRY(check_stamp(to));
    if (!dev->stamp[from] || !dev->stamp[to])
        DT_FAIL(DT_ERR_INTERNAL, "time stamp %d or %d was never taken", from, to);
    DT_TRY(dt_cuda_wait(dev, dev->stamp[from], "the work before a time stamp"));
    DT_TRY(dt_cuda_wait(dev, dev->stamp[to], "the work before a time stamp"));
    DT_TRY(DT_CUDA("the time between stamps",
                   cudaEventElapsedTime(&ms, dev->stamp[from], dev->stamp[to])));
    *seconds = (double)ms * 1e-3;
    return DT_OK;
}

/* --- Ranges: without a profiler a call is one test of a pointer. --- */

void dt_cuda_push_range(const char *name)
{
    (void)nvtxRangePushA(name);
}

void dt_cuda_pop_range(void)
{
    (void)nvtxRangePop();
}
