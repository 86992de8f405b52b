// Background progress of the emulated NCCL's communicators and sums, whoever polls them.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "nccl_state.h"

namespace emu
{

// --- Shared memory ---

mapping::mapping(const char *segment, int n_ranks)
    : name(segment), n_ranks(n_ranks),
      bytes(sizeof(shared) + static_cast<size_t>(n_ranks) * CHUNK_BYTES +
            static_cast<size_t>(n_ranks * n_ranks) * sizeof(mailbox)),
      file(shm_open(segment, O_CREAT | O_RDWR, 0600))
{
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0)
        emu_fail("ncclCommInitRank: no shared memory: %s", strerror(errno));
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        emu_fail("ncclCommInitRank: cannot map shared memory: %s", strerror(errno));
}

mapping::~mapping()
{
    munmap(memory, bytes);
    close(file);
}

void mapping::unlink() const
{
    shm_unlink(name.c_str());
}

shared_rank &mapping::rank(int r) const
{
    return static_cast<shared *>(memory)->ranks[r];
}

char *mapping::chunk(int r) const
{
    return static_cast<char *>(memory) + sizeof(shared) + static_cast<size_t>(r) * CHUNK_BYTES;
}

mailbox &mapping::box(int from, int to) const
{
    return reinterpret_cast<mailbox *>(chunk(n_ranks))[from * n_ranks + to];
}

// The mark is a lock on a byte of the file.
static struct flock mark_of(int r)
{
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = r;
    lock.l_len = 1;
    return lock;
}

void mapping::hold(int r) const
{
    struct flock lock = mark_of(r);
    if (fcntl(file, F_SETLK, &lock) != 0)
        emu_fail("ncclCommInitRank: two processes are rank %d", r);
}

bool mapping::is_held(int r) const
{
    struct flock lock = mark_of(r);
    return fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

namespace
{

// --- Sums ---

enum { N_POLLS = 3 }; // polls before an answer is available

bool all_at_least(const communicator &c, std::atomic<uint64_t> shared_rank::*counter, uint64_t n)
{
    for (int r = 0; r < c.n_ranks; r++)
        if ((c.memory->rank(r).*counter).load(std::memory_order_acquire) < n)
            return false;
    return true;
}

void publish(sum *s, size_t n, size_t size)
{
    communicator &c = *s->comm;
    shared_rank &own = c.memory->rank(c.rank);
    memcpy(c.memory->chunk(c.rank), static_cast<const char *>(s->from) + s->n_done * size,
           n * size);
    own.ordinal = s->ordinal;
    own.count = s->count;
    own.type = s->type;
    own.n_published.store(c.n_chunks + 1, std::memory_order_release);
    s->published = true;
}

void add_chunks(sum *s, size_t n, number type)
{
    communicator &c = *s->comm;
    for (int r = 0; r < c.n_ranks; r++) {
        const shared_rank &other = c.memory->rank(r);
        if (other.ordinal != s->ordinal || other.count != s->count ||
            other.type != static_cast<uint64_t>(s->type))
            emu_fail(
                "ncclAllReduce: rank %d sums %zu elements of type %d in call %llu, but rank %d "
                "%llu of type %d in call %llu",
                c.rank, s->count, static_cast<int>(s->type),
                static_cast<unsigned long long>(s->ordinal), r,
                static_cast<unsigned long long>(other.count), static_cast<int>(other.type),
                static_cast<unsigned long long>(other.ordinal));
    }
    for (int r = 0; s->gathers && r < c.n_ranks; r++)
        memcpy(static_cast<char *>(s->to) +
                   (static_cast<size_t>(r) * s->count + s->n_done) * bytes_of(type),
               c.memory->chunk(r), n * bytes_of(type));
    for (size_t i = 0; !s->gathers && i < n; i++) {
        float total = load_number(c.memory->chunk(0), type, i);
        for (int r = 1; r < c.n_ranks; r++)
            total += load_number(c.memory->chunk(r), type, i);
        store_number(s->to, type, s->n_done + i, total);
    }
    c.memory->rank(c.rank).n_consumed.store(++c.n_chunks, std::memory_order_release);
    s->published = false;
    s->n_done += n;
}

// Moves a message forward; true when it is done.
bool pass_on(const communicator &c, message *m)
{
    mailbox &box = m->sends ? c.memory->box(c.rank, m->peer) : c.memory->box(m->peer, c.rank);
    while (m->n_done < m->bytes) {
        const uint64_t n_written = box.n_written.load(std::memory_order_acquire);
        const uint64_t n_read = box.n_read.load(std::memory_order_acquire);
        if ((n_written == n_read) != m->sends)
            return false;
        if (m->sends) {
            box.message_bytes = m->bytes;
            box.bytes = std::min<size_t>(m->bytes - m->n_done, LETTER_BYTES);
            memcpy(box.letter, m->data + m->n_done, box.bytes);
            m->n_done += box.bytes;
            box.n_written.store(n_written + 1, std::memory_order_release);
        } else {
            if (box.message_bytes != m->bytes)
                emu_fail("ncclRecv: rank %d expects %zu bytes of rank %d, which sends %llu", c.rank,
                         m->bytes, m->peer, static_cast<unsigned long long>(box.message_bytes));
            memcpy(m->data + m->n_done, box.letter, box.bytes);
            m->n_done += box.bytes;
            box.n_read.store(n_read + 1, std::memory_order_release);
        }
    }
    return true;
}

// Those between two ranks in their order; true when all are done.
bool pass_on_all(sum *s)
{
    bool is_blocked[2][MAX_RANKS] = {}, all_done = true;
    for (message &m : s->messages) {
        bool &blocked = is_blocked[m.sends][m.peer];
        blocked = blocked || !pass_on(*s->comm, &m);
        all_done = all_done && !blocked;
    }
    for (message &m : s->messages)
        m.n_done = all_done ? 0 : m.n_done;
    return all_done;
}

// The work of a stream: true when the sum is done. A graph calls it once more for every launch.
bool go_on(sum *s)
{
    communicator &c = *s->comm;
    if (c.aborted)
        return true;
    if (c.now == FAILED || (c.running && c.running != s))
        return false;
    number type;
    nccl_number(&type, s->type);
    const size_t size = bytes_of(type);
    c.running = s;
    if (!s->messages.empty() && !pass_on_all(s))
        return false;
    if (s->n_done == 0 && !s->published) {
        emu_check_device(s->from, s->count * size, "ncclAllReduce: send buffer");
        emu_check_device(s->to, s->count * size * (s->gathers ? static_cast<size_t>(c.n_ranks) : 1),
                         "ncclAllReduce: receive buffer");
    }
    while (s->n_done < s->count) {
        const size_t n = std::min<size_t>(s->count - s->n_done, CHUNK_BYTES / size);
        if (!s->published) {
            if (!all_at_least(c, &shared_rank::n_consumed, c.n_chunks))
                return false;
            publish(s, n, size);
        }
        if (!all_at_least(c, &shared_rank::n_published, c.n_chunks + 1))
            return false;
        add_chunks(s, n, type);
    }
    s->n_done = 0;
    c.running = nullptr;
    if (!s->in_graph)
        c.n_enqueued--;
    return true;
}

void submit(const std::shared_ptr<sum> &s)
{
    communicator &c = *s->comm;
    if (emu_is_capturing(s->stream))
        s->in_graph = c.in_graphs;
    else
        c.n_enqueued++;
    emu_enqueue_poll(
        s->stream, [s] { return go_on(s.get()); }, "ncclAllReduce");
}

// --- Progress ---

void fail(communicator *c, ncclResult_t code)
{
    c->now = FAILED;
    c->error = code;
    c->waiting.clear();
}

// A lost rank has aborted, or its process has ended.
bool has_left(const communicator &c, int r)
{
    const uint32_t state = c.memory->rank(r).state.load(std::memory_order_acquire);
    if (state == JOINED && !c.memory->is_held(r)) // it may just have left in good order
        return c.memory->rank(r).state.load(std::memory_order_acquire) == JOINED;
    return state == ABORTED;
}

void check_peers(communicator *c)
{
    for (int r = 0; r < c->n_ranks; r++)
        if (r != c->rank && has_left(*c, r)) {
            nccl_refuse(ncclRemoteError, "rank %d has closed the connection", r);
            fail(c, ncclRemoteError);
        }
}

bool all_are(const communicator &c, rank_state lowest)
{
    for (int r = 0; r < c.n_ranks; r++)
        if (c.memory->rank(r).state.load(std::memory_order_acquire) < lowest)
            return false;
    return true;
}

void connect(communicator *c)
{
    if (!all_are(*c, JOINED))
        return;
    if (c->rank == 0)
        c->memory->unlink();
    for (int r = 0; r < c->n_ranks; r++) {
        const shared_rank &a = c->memory->rank(r);
        if (a.n_ranks != c->n_ranks)
            emu_fail("ncclCommInitRank: %d ranks here, %d ranks on rank %d", c->n_ranks, a.n_ranks,
                     r);
        for (int q = r + 1; q < c->n_ranks; q++) {
            const shared_rank &b = c->memory->rank(q);
            if (a.device == b.device && strcmp(a.host, b.host) == 0) {
                nccl_refuse(ncclInvalidUsage,
                            "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x",
                            r, q, static_cast<unsigned>(a.device));
                return fail(c, ncclInvalidUsage);
            }
        }
    }
    c->now = READY;
}

// All enqueued sums must be done, and no graph with a sum may remain.
void finish(communicator *c)
{
    if (c->n_enqueued > 0 || c->in_graphs.use_count() > 1)
        return;
    shared_rank &own = c->memory->rank(c->rank);
    if (own.state.load() == JOINED)
        own.state.store(FINALIZED, std::memory_order_release);
    if (all_are(*c, FINALIZED))
        c->now = CLOSED;
}

} // namespace

bool nccl_number(number *out, ncclDataType_t type)
{
    *out = type == ncclFloat16 ? number::f16 : type == ncclBfloat16 ? number::bf16 : number::f32;
    return type == ncclFloat16 || type == ncclBfloat16 || type == ncclFloat32;
}

void nccl_progress(communicator *c)
{
    if (c->now == CONNECTING) // first, because a rank that has found an error may already be gone
        connect(c);
    else if (c->now == FINALIZING)
        finish(c);
    if (c->now == CONNECTING || c->now == READY)
        check_peers(c);
    if (c->now == FAILED || c->now == CONNECTING || c->now == FINALIZING)
        return;
    if (c->n_polls > 0 && --c->n_polls > 0)
        return;
    for (const auto &s : c->waiting)
        submit(s);
    c->waiting.clear();
}

ncclResult_t nccl_result(const communicator &c)
{
    if (c.now == FAILED)
        return c.error;
    return c.now == CONNECTING || c.now == FINALIZING || c.n_polls > 0 ? ncclInProgress
                                                                       : ncclSuccess;
}

ncclResult_t nccl_settle(communicator *c)
{
    c->n_polls = c->blocks ? 0 : N_POLLS;
    if (!c->blocks)
        return ncclInProgress;
    for (;;) {
        {
            const auto lock = emu_lock();
            nccl_progress(c);
            if (nccl_result(*c) != ncclInProgress)
                return nccl_result(*c);
        }
        usleep(200);
    }
}

ncclResult_t nccl_check_ready(const communicator &c, const char *call)
{
    const ncclResult_t state = nccl_result(c);
    if (state == ncclInProgress)
        return nccl_refuse(ncclInvalidArgument,
                           "%s: Attempt to use communicator before the previous operation returned "
                           "ncclSuccess",
                           call);
    if (state == ncclSuccess && c.now != READY)
        return nccl_refuse(ncclInvalidUsage, "%s: the communicator is finalized", call);
    return state;
}

} // namespace emu
