/* A block of bytes that all ranks read, and memory of which each rank has a part. The ranks of a
 * node map the memory of its first rank, in a file that has no name (memfd_create), so that nothing
 * stays behind and no /dev/shm is needed; where they may not, as in containers of their own, each
 * has its own. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "comm/comm_internal.h"
#include "comm/node.h"

/* The first rank of a node tells the others the address of its memory, and what lies at its end. */
struct place {
    int64_t pid, fd;
    uint64_t mark;
};

static void *map(int fd, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* On the first rank of a node; -1 if it cannot. */
static int make_memory(struct dt_shared *shared, struct place *place, size_t bytes)
{
    const size_t all = bytes + sizeof place->mark;
    const int fd = memfd_create("dtrain", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)all) == 0)
        shared->data = map(fd, all);
    if (fd >= 0 && shared->data)
        memcpy((char *)shared->data + bytes, &place->mark, sizeof place->mark);
    return fd;
}

/* On the others. Whether it is that rank's memory shows at its end. */
static void find_memory(struct dt_shared *shared, const struct place *place, size_t bytes)
{
    const size_t all = bytes + sizeof place->mark;
    char path[64];
    struct stat info;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)place->pid, (long long)place->fd);
    const int fd = place->fd < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    if (fstat(fd, &info) == 0 && (size_t)info.st_size == all)
        shared->data = map(fd, all);
    close(fd);
    if (shared->data &&
        memcmp((char *)shared->data + bytes, &place->mark, sizeof place->mark) != 0) {
        munmap(shared->data, all);
        shared->data = NULL;
    }
}

/* One memory for the ranks of a node, or none. */
static dt_status map_node(struct dt_shared *shared, struct dt_comm *comm, size_t bytes)
{
    const bool is_first = comm->local_rank == 0;
    struct place place = {.pid = getpid(), .fd = -1, .mark = (uint64_t)(dt_clock_s() * 1e9)};
    if (is_first)
        place.fd = make_memory(shared, &place, bytes);
    DT_TRY(dt_comm_bcast_among(comm, comm->node, &place, sizeof place, 0));
    if (!is_first)
        find_memory(shared, &place, bytes);
    int have = shared->data != NULL;
    DT_MPI_WAIT("share", MPI_Allreduce(MPI_IN_PLACE, &have, 1, MPI_INT, MPI_MIN, comm->node));
    if (is_first && place.fd >= 0)
        close((int)place.fd);
    shared->is_mapped = true;
    shared->bytes = bytes + sizeof place.mark;
    if (!have)
        dt_shared_free(shared);
    return DT_OK;
}

/* From rank 0 to the first rank of every node, and from these to the others if each has its own. */
static dt_status send(struct dt_comm *comm, struct dt_shared *shared, size_t bytes)
{
    MPI_Comm first_ranks;
    const int color = comm->local_rank == 0 ? 0 : MPI_UNDEFINED;
    DT_MPI_WAIT("share", MPI_Comm_split(comm->control, color, comm->rank, &first_ranks));
    dt_status status = DT_OK;
    if (first_ranks != MPI_COMM_NULL) {
        status = dt_comm_bcast_among(comm, first_ranks, shared->data, bytes, 0);
        MPI_Comm_free(&first_ranks);
    }
    DT_TRY(status);
    if (!shared->is_mapped)
        return dt_comm_bcast_among(comm, comm->node, shared->data, bytes, 0);
    DT_MPI_WAIT("share", MPI_Barrier(comm->node));
    return DT_OK;
}

dt_status dt_comm_share(struct dt_comm *comm, struct dt_shared *shared, const void *data,
                        size_t bytes)
{
    int64_t n = (int64_t)bytes;
    dt_status status = DT_OK;
    *shared = (struct dt_shared){0};
    DT_TRY(dt_comm_bcast(comm, &n, sizeof n, 0));
    bytes = (size_t)n;
    DT_TRY(map_node(shared, comm, bytes));
    if (!shared->data) {
        shared->bytes = bytes;
        shared->data = dt_mem_alloc(bytes, 1, "what the ranks share");
        status = shared->data ? DT_OK : DT_ERR_MEMORY;
    }
    DT_TRY_OUT(dt_comm_agree(comm, status));
    if (comm->rank == 0 && bytes > 0)
        memcpy(shared->data, data, bytes);
    DT_TRY_OUT(send(comm, shared, bytes));
    if (shared->is_mapped)
        (void)mprotect(shared->data, shared->bytes, PROT_READ);
    return DT_OK;
out:
    dt_shared_free(shared);
    return status;
}

static dt_status allocate_alone(struct dt_comm_memory *memory, size_t bytes)
{
    memory->own = memory->shared.data = dt_mem_alloc_aligned(bytes, "gradients");
    memory->shared.bytes = bytes;
    if (!memory->own)
        return DT_ERR_MEMORY;
    memset(memory->own, 0, bytes);
    return DT_OK;
}

dt_status dt_comm_alloc(struct dt_comm *comm, struct dt_comm_memory *memory, size_t bytes,
                        int n_reductions)
{
    enum { PAGE = 4096 };
    const size_t of_counts = (size_t)n_reductions * 2 * sizeof(uint32_t);
    const size_t n = (size_t)comm->local_size;
    *memory = (struct dt_comm_memory){.counts_bytes = (of_counts + PAGE - 1) / PAGE * PAGE,
                                      .own_bytes = (bytes + PAGE - 1) / PAGE * PAGE};
    const size_t of_node = n * (memory->counts_bytes + memory->own_bytes);
    dt_status status = DT_OK;
    if (n > 1 && comm->local_rank == 0)
        status = dt_mem_check(of_node, "the gradients of this node's ranks");
    DT_TRY(dt_comm_agree(comm, status));
    if (n > 1)
        DT_TRY(map_node(&memory->shared, comm, of_node));
    const bool is_shared = memory->shared.data;
    status = DT_NEW(memory->first, (size_t)comm->size);
    if (is_shared)
        memory->own = (char *)memory->shared.data + n * memory->counts_bytes +
                      (size_t)comm->local_rank * memory->own_bytes;
    else if (status == DT_OK)
        status = allocate_alone(memory, bytes);
    if (is_shared) /* that it counts as used, and lies near this rank */
        memset(memory->own, 0, memory->own_bytes);
    DT_TRY(dt_comm_agree(comm, status));
    const int own = is_shared ? comm->first_of_node : comm->rank;
    DT_TRY(dt_comm_gather(comm, memory->first, &own, sizeof own));
    return dt_comm_agree(comm, dt_node_count(memory, comm->size));
}

void dt_comm_free(struct dt_comm_memory *memory)
{
    dt_shared_free(&memory->shared);
    free(memory->first);
    *memory = (struct dt_comm_memory){0};
}
