// Internals of the emulated NCCL: state shared by the ranks, communicators, and pending sums.
#ifndef DTRAIN_EMULATOR_NCCL_STATE_H
#define DTRAIN_EMULATOR_NCCL_STATE_H

#include <nccl.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "emulator.h"
#include "numbers.h"

namespace emu
{

// --- State shared by the ranks ---

enum { MAX_RANKS = 16, CHUNK_BYTES = 1 << 20, HOST_BYTES = 128, LETTER_BYTES = 1 << 16 };

enum rank_state : uint32_t { ABSENT, JOINED, FINALIZED, GONE, ABORTED };

struct shared_rank {
    std::atomic<uint32_t> state;
    int32_t n_ranks, device;
    char host[HOST_BYTES]; // the node's name, as NCCL sees it
    // Chunks published to the other ranks, and chunks summed over all ranks, since the beginning.
    std::atomic<uint64_t> n_published, n_consumed;
    uint64_t ordinal, count, type; // of the current sum: must be the same on all ranks
};

struct shared {
    shared_rank ranks[MAX_RANKS];
};

// From one rank to another: a part of a message, until it is read.
struct mailbox {
    std::atomic<uint64_t> n_written, n_read;
    uint64_t message_bytes, bytes;
    char letter[LETTER_BYTES];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free, "atomics are shared by processes");

// The memory shared by ranks with the same unique id: their messages, and a chunk of data per rank.
// It is initially zero, which is a valid state of everything in it.
class mapping
{
  public:
    mapping(const char *segment, int n_ranks);
    ~mapping();
    mapping(const mapping &) = delete;
    void unlink() const; // existing mappings remain valid
    shared_rank &rank(int r) const;
    char *chunk(int r) const;
    mailbox &box(int from, int to) const;
    // Marks a rank as held by this process; the mark disappears when the process ends, however it
    // ends.
    void hold(int r) const;
    bool is_held(int r) const; // by another process?

  private:
    std::string name;
    int n_ranks;
    size_t bytes;
    int file;
    void *memory;
};

// --- Communicators ---

enum phase { CONNECTING, READY, FINALIZING, CLOSED, FAILED };

struct sum;

struct communicator {
    std::unique_ptr<mapping> memory;
    int rank, n_ranks, device;
    bool blocks;
    phase now = CONNECTING;
    ncclResult_t error = ncclSuccess; // in phase FAILED
    int n_polls = 0;                  // polls that still return ncclInProgress
    bool aborted = false;
    std::vector<std::shared_ptr<sum>> waiting; // not yet enqueued in their streams
    cudaStream_t stream = nullptr;             // of all sums
    bool has_stream = false;
    uint64_t n_sums = 0, n_chunks = 0;
    size_t n_enqueued = 0; // enqueued sums that are not done; those of graphs do not count
    sum *running = nullptr;
    // Held by the sums in graphs: a communicator must outlive its graphs.
    std::shared_ptr<int> in_graphs = std::make_shared<int>(0);
};

using comm_ref = std::shared_ptr<communicator>;

struct message {
    bool sends;
    int peer;
    char *data;
    size_t bytes, n_done;
};

// Or, if it has messages, a group of sends and receives.
struct sum {
    comm_ref comm;
    std::vector<message> messages;
    const void *from;
    void *to;
    size_t count;
    ncclDataType_t type;
    cudaStream_t stream;
    uint64_t ordinal; // among the sums of the communicator
    bool gathers;     // AllGather: `to` has room for the values of every rank
    std::shared_ptr<int> in_graph;
    size_t n_done = 0;
    bool published = false;
};

// --- Used by the API functions; the lock is held, except in nccl_settle ---

// Keeps the message for ncclGetLastError and returns the code.
ncclResult_t nccl_refuse(ncclResult_t code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool nccl_number(number *out, ncclDataType_t type);
// One step of what the real library's own thread does.
void nccl_progress(communicator *c);
ncclResult_t nccl_result(const communicator &c);
// The end of a call: a blocking communicator waits here.
ncclResult_t nccl_settle(communicator *c);
// A call is refused while an earlier one is in progress, and after a failure.
ncclResult_t nccl_check_ready(const communicator &c, const char *call);

} // namespace emu

#endif
