/* The data plane over NCCL: sums in GPU memory, enqueued in a stream and done in its order.
 *
 * The communicator is non-blocking: a call hands its work to an NCCL thread and returns
 * ncclInProgress, so a missing rank leads to an expired deadline instead of a hang. Every call here
 * waits until its work is in the stream (DT_NCCL), which takes NCCL's thread a moment on the host.
 * A call can therefore be followed by an event in the same stream and can be captured (if the
 * capture was begun as ThreadLocal or Relaxed, because another thread calls CUDA). The first sums
 * also connect the ranks.
 *
 * Sums run uncaptured in the warm-up steps and captured afterwards; evaluation has none. NCCL
 * orders captured and uncaptured sums of one communicator as long as NCCL_GRAPH_MIXING_SUPPORT
 * keeps its default; 0 would save a few events per step, but then a sum concurrent with a replay is
 * undefined. */
#include <nccl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "comm/comm_internal.h"
#include "kernels/kernels.h"

#define HAS_NAMES (NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0))

/* A sum is in the stream after about 50 us, while connecting takes seconds: first spin, then sleep.
 */
static const double awake_s = 2e-3;
static const struct timespec nap = {.tv_nsec = 200000};
/* Closing waits for sums that other ranks have already started; they end soon or never. */
static const double close_timeout_s = 20.0;

struct nccl_plane {
    ncclComm_t nccl;     /* NULL until connected */
    ncclDataType_t type; /* of the reductions before first_fp32 */
    int first_fp32;
    cudaStream_t stream;
    double timeout_s;
    struct dt_slice_table slices; /* empty without slices */
    float *arrived; /* in GPU memory: parts of the others, for one sum after the other */
};

/* --- Calls --- */

/* Waits until no work is in progress; returns NCCL's state then, or ncclInProgress at the deadline.
 */
static ncclResult_t wait_ready(const struct nccl_plane *plane, double timeout_s)
{
    double start_s = dt_clock_s();
    for (;;) {
        ncclResult_t state, code = ncclCommGetAsyncError(plane->nccl, &state);
        if (code != ncclSuccess)
            return code;
        if (state != ncclInProgress)
            return state;
        double waited_s = dt_clock_s() - start_s;
        if (timeout_s > 0.0 && waited_s > timeout_s)
            return ncclInProgress;
        if (waited_s < awake_s)
            sched_yield();
        else
            nanosleep(&nap, NULL);
    }
}

/* The result of a call once its work is done; a call that connects the ranks needs all of them. */
static ncclResult_t await_result(const struct nccl_plane *plane, ncclResult_t code,
                                 double timeout_s)
{
    if (!plane->nccl || (code != ncclSuccess && code != ncclInProgress))
        return code;
    dt_pulse_wait(&dt_pulse_main, "NCCL");
    code = wait_ready(plane, timeout_s);
    dt_pulse_go_on(&dt_pulse_main);
    return code;
}

static const char *advice(ncclResult_t code)
{
    switch (code) {
    case ncclUnhandledCudaError:
        return "the GPU or its driver failed";
    case ncclInvalidArgument:
    case ncclInvalidUsage:
        return "NCCL rejects this usage or an NCCL_... variable";
    default:
        return "a peer rank or the network failed";
    }
}

static dt_status nccl_status(const struct dt_comm *comm, ncclResult_t code, const char *what,
                             const char *file, int line)
{
    if (code == ncclSuccess)
        return DT_OK;
    const struct nccl_plane *plane = comm->reduce;
    if (code == ncclInProgress)
        return dt_error_set(
            DT_ERR_DEVICE, file, line,
            "rank %d waited %g s for NCCL to %s: a rank is missing or cannot be reached; "
            "NCCL_DEBUG=INFO shows the connections, NCCL_SOCKET_IFNAME names the network "
            "interface to use, device.timeout_s is how long to wait",
            comm->rank, plane->timeout_s, what);
    const char *detail = ncclGetLastError(plane->nccl);
    if (!detail || !*detail)
        detail = "no details";
    if (strstr(detail, "Duplicate GPU"))
        return dt_error_set(DT_ERR_CONFIG, file, line,
                            "two ranks use the same GPU (NCCL: %s); start one rank for each GPU, "
                            "or set device.allow_shared_gpu = true for a slow test",
                            detail);
    return dt_error_set(DT_ERR_DEVICE, file, line,
                        "rank %d cannot %s with NCCL: %s: %s; %s (NCCL_DEBUG=INFO shows more)",
                        comm->rank, what, ncclGetErrorString(code), detail, advice(code));
}

/* `what` completes "cannot ... with NCCL". */
#define DT_NCCL(comm, what, call)                                                          \
    do {                                                                                   \
        const struct nccl_plane *dt_plane = (comm)->reduce;                                \
        ncclResult_t dt_nccl_code = await_result(dt_plane, (call), dt_plane->timeout_s);   \
        dt_status dt_nccl = nccl_status((comm), dt_nccl_code, (what), __FILE__, __LINE__); \
        if (dt_nccl != DT_OK)                                                              \
            return dt_nccl;                                                                \
    } while (0)

/* The calls of a group: the first failure, else the answer of the last one. */
#define NCCL_ADD(code, call)                                   \
    do {                                                       \
        ncclResult_t dt_code = (call);                         \
        if ((code) == ncclSuccess || (code) == ncclInProgress) \
            (code) = dt_code;                                  \
    } while (0)

/* During shutdown a failure is reported but stops nothing. Returns true on success. */
static bool is_good(ncclResult_t code, const char *call)
{
    if (code == ncclSuccess)
        return true;
    dt_log(DT_LOG_WARNING, "%s failed: %s: %s", call, ncclGetErrorString(code),
           ncclGetLastError(NULL));
    return false;
}

/* --- Opening --- */

static dt_status set_default(const char *name, const char *value)
{
    if (setenv(name, value, 0) != 0)
        DT_FAIL(DT_ERR_MEMORY, "cannot set %s in the environment: out of memory", name);
    return DT_OK;
}

static dt_status find_type(ncclDataType_t *out, enum dt_dtype dtype)
{
    switch (dtype) {
    case DT_F32:
        *out = ncclFloat32;
        return DT_OK;
    case DT_F16:
        *out = ncclFloat16;
        return DT_OK;
    case DT_BF16:
        *out = ncclBfloat16;
        return DT_OK;
    default:
        DT_FAIL(DT_ERR_INTERNAL, "gradients of type %d cannot be summed", (int)dtype);
    }
}

static dt_status cuda_status(cudaError_t code, const char *what)
{
    if (code == cudaSuccess)
        return DT_OK;
    DT_FAIL(code == cudaErrorMemoryAllocation ? DT_ERR_MEMORY : DT_ERR_DEVICE, "%s: %s", what,
            cudaGetErrorString(code));
}

static dt_status prepare_slices(struct dt_comm *comm, const struct dt_comm_options *options)
{
    struct nccl_plane *plane = comm->reduce;
    DT_TRY(dt_slice_table_make(&plane->slices, comm, options));
    const size_t portion = options->max_count / (size_t)comm->size + 2 * DT_SLICE_ALIGN;
    void *arrived = NULL;
    DT_TRY(
        cuda_status(cudaMalloc(&arrived, (size_t)plane->slices.n_others * portion * sizeof(float)),
                    "GPU memory for the sums of other ranks' virtual ranks"));
    plane->arrived = arrived;
    return DT_OK;
}

/* Everything that can fail on a single rank. */
static dt_status prepare_plane(struct dt_comm *comm, const struct dt_comm_options *options,
                               ncclUniqueId *id)
{
    struct nccl_plane *plane;
    DT_TRY(DT_NEW(plane, 1));
    comm->reduce = plane;
    plane->stream = options->stream;
    plane->timeout_s = options->timeout_s;
    plane->first_fp32 = options->n_reductions - options->n_fp32;
    DT_TRY(find_type(&plane->type, options->dtype));
    /* The environment is set before the first NCCL call, because NCCL reads some variables only
     * once. The user's own settings are kept. */
    const char *algorithm = getenv("NCCL_ALGO");
    if (options->sum == DT_SUM_RING && algorithm && strcasecmp(algorithm, "ring") != 0)
        dt_log(DT_LOG_INFO, "NCCL_ALGO=%s overrides the ring of comm.algorithm", algorithm);
    if (options->sum == DT_SUM_RING)
        DT_TRY(set_default("NCCL_ALGO", "Ring"));
    if (options->share) {
        /* NCCL treats ranks with different NCCL_HOSTID as being on different nodes, which lets
         * several share a GPU and leaves sockets as their only transport. Few blocks, so that one
         * rank's kernel leaves room for the other's. */
        static const char *const settings[][2] = {
            {"NCCL_NET", "Socket"},     {"NCCL_IB_DISABLE", "1"}, {"NCCL_SOCKET_IFNAME", "lo"},
            {"NCCL_MNNVL_ENABLE", "0"}, {"NCCL_PROTO", "Simple"}, {"NCCL_MAX_CTAS", "2"},
        };
        char host_id[32];
        snprintf(host_id, sizeof host_id, "dtrain-%d", comm->rank);
        DT_TRY(set_default("NCCL_HOSTID", host_id));
        for (size_t i = 0; i < DT_COUNT(settings); i++)
            DT_TRY(set_default(settings[i][0], settings[i][1]));
    }
    /* A replayed recording that uses registered memory can hang without an error: between nodes,
     * when a small call follows a large one (NVIDIA/nccl issue 2389), and within a node, in sends
     * and receives (sgl-project/sglang pull request 38936). No report concerns sums within a node,
     * but what registration saves there, a copy in GPU memory and some of NCCL's blocks, is
     * behind the backward pass. */
    DT_TRY(set_default("NCCL_GRAPH_REGISTER", "0"));
    if (dt_split_has_slices(&options->split))
        DT_TRY(prepare_slices(comm, options));
    if (comm->rank == 0)
        DT_NCCL(comm, "create the address at which the ranks meet", ncclGetUniqueId(id));
    return DT_OK;
}

static void abort_nccl(struct nccl_plane *plane)
{
    if (plane->nccl)
        (void)is_good(ncclCommAbort(plane->nccl), "ncclCommAbort");
    plane->nccl = NULL;
}

/* The ranks agree twice: first that each could prepare, because rank 0's address is then broadcast
 * to all of them, and then that all are connected. A rank whose connection fails aborts it before
 * it reports, since the others may still be waiting for that rank inside NCCL. */
static dt_status nccl_open(struct dt_comm *comm, const struct dt_comm_options *options)
{
    ncclUniqueId id = {{0}};
    DT_TRY(dt_comm_agree(comm, prepare_plane(comm, options, &id)));
    DT_TRY(dt_comm_bcast(comm, &id, sizeof id, 0));
    struct nccl_plane *plane = comm->reduce;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
#if HAS_NAMES
    config.commName = "dtrain";
#endif
    ncclResult_t code = ncclCommInitRankConfig(&plane->nccl, comm->size, id, comm->rank, &config);
    code = await_result(plane, code, plane->timeout_s);
    dt_status status = nccl_status(comm, code, "connect the ranks", __FILE__, __LINE__);
    if (status != DT_OK)
        abort_nccl(plane);
    /* Report the error of the rank that caused the failure, not of one that was affected by it. */
    const bool is_consequence =
        code == ncclInProgress || code == ncclRemoteError || code == ncclSystemError;
    DT_TRY(dt_comm_agree(comm, is_consequence ? DT_OK : status));
    return status;
}

/* --- Sums of slices: as in slices.c, in the order of the stream --- */

/* This rank's portion of the parts of the others, for theirs of its own parts. */
static ncclResult_t exchange_parts(const struct dt_comm *comm, float *buffer, size_t count)
{
    const struct nccl_plane *plane = comm->reduce;
    const struct dt_slice_table *t = &plane->slices;
    size_t first;
    const size_t own = dt_slice_portion(&first, comm, count, comm->rank);
    float *arrived = plane->arrived;
    ncclResult_t code = ncclGroupStart();
    for (int r = 0; r < comm->size; r++)
        for (int p = 0; r != comm->rank && own > 0 && p < t->n_parts[r]; p++, arrived += own)
            NCCL_ADD(code, ncclRecv(arrived, own, ncclFloat32, r, plane->nccl, plane->stream));
    for (int r = 0; r < comm->size; r++) {
        const size_t length = dt_slice_portion(&first, comm, count, r);
        for (int p = 0; r != comm->rank && length > 0 && p < t->n_parts[comm->rank]; p++)
            NCCL_ADD(code, ncclSend(buffer + (size_t)p * t->slot + first, length, ncclFloat32, r,
                                    plane->nccl, plane->stream));
    }
    NCCL_ADD(code, ncclGroupEnd());
    return code;
}

/* This rank's portion of the sum, into the first of its own parts. */
static dt_status add_parts(const struct dt_comm *comm, float *buffer, size_t count)
{
    const struct nccl_plane *plane = comm->reduce;
    const struct dt_slice_table *t = &plane->slices;
    size_t first;
    const size_t own = dt_slice_portion(&first, comm, count, comm->rank);
    float *arrived = plane->arrived;
    if (own == 0)
        return DT_OK;
    for (int i = 0; i < t->n - 1; i++)
        DT_TRY(cuda_status(
            dt_kernel_accumulate(
                plane->stream, dt_slice_values(t, t->joins[i].to, buffer, arrived, first, own),
                DT_F32, dt_slice_values(t, t->joins[i].from, buffer, arrived, first, own), own,
                false),
            "adding virtual ranks"));
    const float *all = dt_slice_values(t, 0, buffer, arrived, first, own);
    if (all != buffer + first)
        DT_TRY(
            cuda_status(dt_kernel_accumulate(plane->stream, buffer + first, DT_F32, all, own, true),
                        "copying a sum of virtual ranks"));
    return DT_OK;
}

/* The portions of the sum to all ranks. */
static ncclResult_t share_sums(const struct dt_comm *comm, float *buffer, size_t count)
{
    const struct nccl_plane *plane = comm->reduce;
    size_t own, first;
    const size_t own_length = dt_slice_portion(&own, comm, count, comm->rank);
    ncclResult_t code = ncclGroupStart();
    for (int r = 0; r < comm->size; r++) {
        const size_t length = dt_slice_portion(&first, comm, count, r);
        if (r != comm->rank && length > 0)
            NCCL_ADD(code,
                     ncclRecv(buffer + first, length, ncclFloat32, r, plane->nccl, plane->stream));
        if (r != comm->rank && own_length > 0)
            NCCL_ADD(code, ncclSend(buffer + own, own_length, ncclFloat32, r, plane->nccl,
                                    plane->stream));
    }
    NCCL_ADD(code, ncclGroupEnd());
    return code;
}

/* Enqueues a sum of slices; run_reduce calls it on the main thread, also while a step is recorded.
 * Each of the two exchanges is one NCCL group, because every rank sends to every other one and
 * receives from it: NCCL runs the calls of a group together, while alone each would wait for its
 * partner. Calls between two ranks match by their order, here the order of the parts. A portion may
 * be empty; both sides see that from `count` and make no call. DT_NCCL returns when the group is in
 * the stream, so that the additions follow it there. plane->arrived serves all buckets, since the
 * stream makes one sum after the other. After a failed call NCCL_ADD still ends the group. */
static dt_status reduce_slices(struct dt_comm *comm, float *buffer, size_t count)
{
    DT_NCCL(comm, "exchange gradients", exchange_parts(comm, buffer, count));
    DT_TRY(add_parts(comm, buffer, count));
    DT_NCCL(comm, "sum gradients", share_sums(comm, buffer, count));
    return DT_OK;
}

/* --- Sums --- */

static dt_status nccl_reduce(struct dt_comm *comm, int reduction, void *buffer, size_t count)
{
    const struct nccl_plane *plane = comm->reduce;
    const ncclDataType_t type = reduction < plane->first_fp32 ? plane->type : ncclFloat32;
    if (count == 0)
        return DT_OK;
    if (plane->slices.n > 0)
        return reduce_slices(comm, buffer, count);
    DT_NCCL(comm, "sum gradients",
            ncclAllReduce(buffer, buffer, count, type, ncclSum, plane->nccl, plane->stream));
    return DT_OK;
}

/* The slots of all ranks are exchanged, because vectors of a few kilobytes do not deserve
 * communicators of the groups. */
static dt_status nccl_exchange(struct dt_comm *comm, void *all, size_t bytes)
{
    const struct nccl_plane *plane = comm->reduce;
    DT_NCCL(comm, "exchange statistics",
            ncclAllGather((char *)all + (size_t)comm->rank * bytes, all, bytes / sizeof(float),
                          ncclFloat32, plane->nccl, plane->stream));
    return DT_OK;
}

static dt_status nccl_poll(struct dt_comm *comm)
{
    const struct nccl_plane *plane = comm->reduce;
    ncclResult_t state, code = ncclCommGetAsyncError(plane->nccl, &state);
    if (code == ncclSuccess && state != ncclInProgress)
        code = state;
    return nccl_status(comm, code, "sum gradients", __FILE__, __LINE__);
}

/* --- Closing --- */

/* Leaves together with the other ranks; returns false, with the communicator still open, on
 * failure. */
static bool leave_plane(struct nccl_plane *plane)
{
    ncclResult_t code = ncclCommFinalize(plane->nccl);
    if (!is_good(await_result(plane, code, close_timeout_s), "ncclCommFinalize"))
        return false;
    (void)is_good(ncclCommDestroy(plane->nccl), "ncclCommDestroy");
    plane->nccl = NULL;
    return true;
}

static void nccl_close(struct dt_comm *comm)
{
    struct nccl_plane *plane = comm->reduce;
    /* After a failure a rank may be missing, so no rank waits for another. */
    if (plane->nccl && (comm->has_failed || !leave_plane(plane)))
        abort_nccl(plane);
    cudaFree(plane->arrived);
    dt_slice_table_free(&plane->slices);
    free(plane);
}

static void nccl_describe(char *out, size_t bytes)
{
    snprintf(out, bytes, "NCCL %d.%d.%d", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
}

const struct dt_plane_ops dt_plane_nccl = {
    .describe = nccl_describe,
    .open = nccl_open,
    .reduce = nccl_reduce,
    .exchange = nccl_exchange,
    .poll = nccl_poll,
    .close = nccl_close,
};
