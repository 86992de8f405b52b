// NCCL for tests: all-reduce between processes of one machine, for communicators that block or not.
//
// Ranks meet in shared memory named by the unique id; each rank has a part of it for data. A sum is
// work of its stream that advances whenever it is polled: a rank copies a chunk to its part, waits
// until all ranks have done so, and adds the parts in rank order, in fp32. (MPI is unsuitable: work
// runs on any thread, and dtrain calls MPI from one thread only.)
//
// A non-blocking communicator is as slow to answer as the real one: after a call its state is
// ncclInProgress, and the sum is in the stream only when that is over.
#include <nccl.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <random>
#include <set>

#include "nccl_state.h"

using namespace emu;

struct ncclComm {
    comm_ref state;
};

namespace
{

enum { ID_MAGIC = 0x6e63636c };

struct unique_id { // stored inside ncclUniqueId
    uint32_t magic;
    char name[64];
};

std::set<const void *> live_comms;
char last_error[1024];

comm_ref state_of(ncclComm_t comm)
{
    if (!live_comms.count(comm))
        emu_fail("NCCL: a communicator was destroyed or never created");
    return comm->state;
}

// --- Groups ---

thread_local int group_depth;
thread_local std::vector<std::shared_ptr<sum>> group;

ncclResult_t launch(const std::shared_ptr<sum> &s)
{
    s->comm->waiting.push_back(s);
    return nccl_settle(s->comm.get());
}

// --- Opening ---

void join(communicator *c)
{
    shared_rank &own = c->memory->rank(c->rank);
    if (own.state.load() != ABSENT)
        emu_fail("ncclCommInitRank: rank %d has already joined", c->rank);
    const char *host = getenv("NCCL_HOSTID");
    if (host && *host)
        snprintf(own.host, sizeof own.host, "id %s", host);
    else
        gethostname(own.host, sizeof own.host - 1);
    c->memory->hold(c->rank);
    own.n_ranks = c->n_ranks;
    own.device = c->device;
    own.state.store(JOINED, std::memory_order_release);
}

ncclResult_t open(ncclComm_t *out, int n_ranks, const ncclUniqueId &id, int rank, bool blocks)
{
    unique_id name;
    memcpy(&name, &id, sizeof name);
    if (group_depth > 0)
        emu_fail("ncclCommInitRank in a group is not emulated");
    if (emu_forbid_capture("ncclCommInitRank") != cudaSuccess)
        return nccl_refuse(ncclUnhandledCudaError, "ncclCommInitRank: a stream is being captured");
    if (!out || n_ranks < 1 || rank < 0 || rank >= n_ranks)
        return nccl_refuse(ncclInvalidArgument, "Invalid rank requested : %d/%d", rank, n_ranks);
    if (name.magic != ID_MAGIC)
        return nccl_refuse(ncclInvalidArgument, "ncclCommInitRank: this is not a unique id");
    if (n_ranks > MAX_RANKS)
        emu_fail("ncclCommInitRank: more than %d ranks are not emulated", MAX_RANKS);
    const auto c = std::make_shared<communicator>();
    c->rank = rank;
    c->n_ranks = n_ranks;
    c->device = emu_current_device();
    c->blocks = blocks;
    c->memory = std::make_unique<mapping>(name.name, n_ranks);
    join(c.get());
    *out = new ncclComm{c};
    {
        const auto lock = emu_lock();
        live_comms.insert(*out);
    }
    const ncclResult_t code = nccl_settle(c.get());
    if (code != ncclSuccess && code != ncclInProgress) {
        ncclCommAbort(*out);
        *out = nullptr;
    }
    return code;
}

void forget(ncclComm_t comm, rank_state last)
{
    comm->state->memory->rank(comm->state->rank).state.store(last, std::memory_order_release);
    live_comms.erase(comm);
    delete comm;
}

} // namespace

ncclResult_t emu::nccl_refuse(ncclResult_t code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof last_error, format, args);
    va_end(args);
    return code;
}

// --- The library ---

extern "C" {

ncclResult_t ncclGetVersion(int *version)
{
    if (!version)
        return ncclInvalidArgument;
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t code)
{
    static const struct {
        ncclResult_t code;
        const char *text;
    } texts[] = {
        {ncclSuccess, "no error"},
        {ncclUnhandledCudaError, "unhandled cuda error (run with NCCL_DEBUG=INFO for details)"},
        {ncclSystemError, "unhandled system error (run with NCCL_DEBUG=INFO for details)"},
        {ncclInternalError, "internal error - please report this issue to the NCCL developers"},
        {ncclInvalidArgument, "invalid argument (run with NCCL_DEBUG=WARN for details)"},
        {ncclInvalidUsage, "invalid usage (run with NCCL_DEBUG=WARN for details)"},
        {ncclRemoteError, "remote process exited or there was a network error"},
        {ncclInProgress, "NCCL operation in progress"},
    };
    for (const auto &t : texts)
        if (t.code == code)
            return t.text;
    return "unknown result code";
}

// The last error of any communicator, as in the real library.
const char *ncclGetLastError(ncclComm_t)
{
    return last_error;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *out)
{
    if (!out)
        return nccl_refuse(ncclInvalidArgument, "ncclGetUniqueId : argument is NULL");
    std::random_device random;
    unique_id id = {ID_MAGIC, ""};
    snprintf(id.name, sizeof id.name, "/dtrain-nccl-%d-%08x%08x", getpid(), random(), random());
    memset(out, 0, sizeof *out);
    memcpy(out, &id, sizeof id);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    const ncclConfig_t known = NCCL_CONFIG_INITIALIZER;
    if (config && (config->magic != known.magic || config->size != known.size))
        return nccl_refuse(ncclInvalidArgument, "ncclConfig_t argument not initialized via "
                                                "NCCL_CONFIG_INITIALIZER");
    if (config && config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking != 0 &&
        config->blocking != 1)
        return nccl_refuse(ncclInvalidArgument, "Invalid config blocking attribute value %d",
                           config->blocking);
    return open(comm, n_ranks, id, rank, !config || config->blocking != 0);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank)
{
    return open(comm, n_ranks, id, rank, true);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out)
{
    if (!comm || !out)
        return nccl_refuse(ncclInvalidArgument, "ncclGetAsyncError : argument is NULL");
    const auto lock = emu_lock();
    const comm_ref c = state_of(comm);
    nccl_progress(c.get());
    *out = nccl_result(*c);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    comm_ref c;
    {
        const auto lock = emu_lock();
        c = state_of(comm);
        const ncclResult_t ready = nccl_check_ready(*c, "ncclCommFinalize");
        if (ready != ncclSuccess)
            return ready;
        c->now = FINALIZING;
    }
    return nccl_settle(c.get());
}

// If it is not yet finalized, this does so, which waits for the other ranks.
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    comm_ref c;
    {
        const auto lock = emu_lock();
        c = state_of(comm);
        if (nccl_result(*c) == ncclInProgress)
            return nccl_refuse(ncclInvalidArgument,
                               "ncclCommDestroy: an operation of the communicator is in progress");
        if (c->now == READY && c->in_graphs.use_count() > 1)
            emu_fail("ncclCommDestroy: a graph that contains a sum still exists, NCCL would wait "
                     "for it forever");
        if (c->now == READY)
            c->now = FINALIZING;
    }
    c->blocks = true;
    const ncclResult_t code = nccl_settle(c.get());
    const auto lock = emu_lock();
    forget(comm, GONE);
    return code;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    const auto lock = emu_lock();
    const comm_ref c = state_of(comm);
    c->aborted = true;
    c->waiting.clear();
    if (c->now == CONNECTING)
        c->memory->unlink();
    forget(comm, c->now == CLOSED ? GONE : ABORTED);
    return ncclSuccess;
}

// What any call needs: a communicator that is ready, a type, and its stream.
static ncclResult_t check_call(const comm_ref &c, const char *call, ncclDataType_t type,
                               size_t *size, cudaStream_t stream)
{
    number stored;
    const ncclResult_t ready = nccl_check_ready(*c, call);
    if (ready != ncclSuccess)
        return ready;
    if (type < 0 || type >= ncclNumTypes)
        return nccl_refuse(ncclInvalidArgument, "%s : invalid type %d", call, type);
    if (!nccl_number(&stored, type))
        emu_fail("%s: type %d is not emulated", call, type);
    if (emu_stream_device(stream) != c->device)
        emu_fail("%s: the communicator belongs to device %d, the stream to device %d", call,
                 c->device, emu_stream_device(stream));
    if (c->has_stream && c->stream != stream)
        emu_fail("%s: a communicator with calls in two streams is not emulated", call);
    c->has_stream = true;
    c->stream = stream;
    *size = bytes_of(stored);
    return ncclSuccess;
}

static std::shared_ptr<sum> make_sum(const comm_ref &c, cudaStream_t stream)
{
    const auto s = std::make_shared<sum>();
    s->comm = c;
    s->type = ncclFloat32;
    s->stream = stream;
    s->ordinal = c->n_sums++;
    return s;
}

static ncclResult_t enqueue(const void *from, void *to, size_t count, ncclDataType_t type,
                            ncclRedOp_t op, bool gathers, ncclComm_t comm, cudaStream_t stream)
{
    size_t size;
    if (!comm)
        return nccl_refuse(ncclInvalidArgument, "AllReduce : comm argument is NULL");
    const auto lock = emu_lock();
    const comm_ref c = state_of(comm);
    if (op < 0 || op >= ncclNumOps)
        return nccl_refuse(ncclInvalidArgument, "AllReduce : invalid operation %d", op);
    if (op != ncclSum)
        emu_fail("ncclAllReduce: operation %d is not emulated", op);
    const ncclResult_t ready = check_call(c, "ncclAllReduce", type, &size, stream);
    if (ready != ncclSuccess)
        return ready;
    if (count == 0)
        return ncclSuccess;
    if (!from || !to)
        return nccl_refuse(ncclInvalidArgument, "AllReduce : a buffer is NULL");
    const size_t bytes = count * size;
    const char *own =
        static_cast<char *>(to) + (gathers ? bytes * static_cast<size_t>(c->rank) : 0);
    const size_t all = gathers ? bytes * static_cast<size_t>(c->n_ranks) : bytes;
    if (from != own && overlap({from, bytes}, {to, all}))
        emu_fail("ncclAllReduce: the buffers overlap and are not the same");
    const auto s = make_sum(c, stream);
    s->from = from;
    s->to = to;
    s->count = count;
    s->type = type;
    s->gathers = gathers;
    if (group_depth == 0)
        return launch(s);
    group.push_back(s);
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return enqueue(from, to, count, type, op, false, comm, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return enqueue(from, to, count, type, ncclSum, true, comm, stream);
}

// The sends and receives of a group go on at the same time.
static ncclResult_t enqueue_message(bool sends, void *data, size_t count, ncclDataType_t type,
                                    int peer, ncclComm_t comm, cudaStream_t stream)
{
    const char *call = sends ? "ncclSend" : "ncclRecv";
    size_t size;
    if (!comm)
        return nccl_refuse(ncclInvalidArgument, "%s : comm argument is NULL", call);
    const auto lock = emu_lock();
    const comm_ref c = state_of(comm);
    const ncclResult_t ready = check_call(c, call, type, &size, stream);
    if (ready != ncclSuccess)
        return ready;
    if (peer < 0 || peer >= c->n_ranks)
        return nccl_refuse(ncclInvalidArgument, "%s : invalid peer %d", call, peer);
    if (peer == c->rank)
        emu_fail("%s: a message to oneself is not emulated", call);
    emu_check_device(data, count * size, call);
    const bool joins = !group.empty() && !group.back()->messages.empty() &&
                       group.back()->comm == c && group.back()->stream == stream;
    const auto s = joins ? group.back() : make_sum(c, stream);
    s->messages.push_back({sends, peer, static_cast<char *>(data), count * size, 0});
    if (group_depth == 0)
        return launch(s);
    if (!joins)
        group.push_back(s);
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return enqueue_message(true, const_cast<void *>(from), count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return enqueue_message(false, to, count, type, peer, comm, stream);
}

ncclResult_t ncclGroupStart(void)
{
    group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (group_depth == 0)
        return nccl_refuse(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
    if (--group_depth > 0)
        return ncclSuccess;
    const auto lock = emu_lock();
    ncclResult_t code = ncclSuccess;
    for (const auto &s : group) {
        const ncclResult_t one = launch(s);
        code = one == ncclSuccess ? code : one;
    }
    group.clear();
    return code;
}

} // extern "C"
