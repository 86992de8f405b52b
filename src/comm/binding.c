/* Which CPUs this rank may use and whether the ranks of the node share them: every rank's affinity
 * mask is gathered on the node and the masks are compared. mpirun pins each rank to one CPU when
 * -np is 1 or 2, which starves the rank's threads, so a mask that is too small gets a warning. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/host.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "comm/comm_internal.h"

/* Enough for the largest machines; sched_getaffinity fails if the mask is smaller than the
 * kernel's. */
enum { MAX_CPUS = 8192, MASK_WORDS = MAX_CPUS / 64 };

struct cpu_mask {
    uint64_t word[MASK_WORDS];
};

/* Masks of the node's ranks that have a CPU in common with `own`, which is one of them. */
static int count_sharing(const struct cpu_mask *masks, int n, const struct cpu_mask *own)
{
    int n_sharing = 0;
    for (int r = 0; r < n; r++) {
        bool is_shared = false;
        for (int w = 0; w < MASK_WORDS; w++)
            is_shared = is_shared || masks[r].word[w] & own->word[w];
        n_sharing += is_shared;
    }
    return n_sharing;
}

static int count_cpus(const struct cpu_mask *mask)
{
    int n = 0;
    for (int w = 0; w < MASK_WORDS; w++)
        n += __builtin_popcountll(mask->word[w]);
    return n;
}

dt_status dt_comm_find_binding(struct dt_comm *comm)
{
    struct cpu_mask mask = {{0}};
    if (sched_getaffinity(0, sizeof mask, (cpu_set_t *)&mask) != 0)
        DT_FAIL(DT_ERR_DEVICE, "cannot read the CPU affinity of this rank: %s", strerror(errno));
    comm->n_allowed_cpus = count_cpus(&mask);

    struct cpu_mask *masks;
    dt_status status = DT_OK;
    DT_TRY(DT_NEW(masks, (size_t)comm->local_size));
    DT_TRY_OUT(dt_comm_mpi_status(
        MPI_Allgather(&mask, sizeof mask, MPI_BYTE, masks, sizeof mask, MPI_BYTE, comm->node),
        "MPI_Allgather of CPU masks", __FILE__, __LINE__));
    comm->n_sharing = count_sharing(masks, comm->local_size, &mask);
    /* All ranks of the node share a quota, even if each has CPUs of its own. */
    comm->n_cpus = comm->n_allowed_cpus / comm->n_sharing * comm->local_size;
    comm->n_cpus = dt_cpus_within(comm->n_cpus, "") / comm->local_size;
    comm->is_bound = true;
    for (int r = 0; r < comm->local_size; r++)
        comm->is_bound &= count_sharing(masks, comm->local_size, &masks[r]) == 1;
out:
    free(masks);
    return status;
}

int dt_comm_allowed_cpus(const struct dt_comm *comm)
{
    return dt_cpus_within(comm->n_allowed_cpus, "");
}

int dt_comm_sharing_ranks(const struct dt_comm *comm)
{
    return comm->n_sharing;
}

int dt_comm_cpus(const struct dt_comm *comm)
{
    return comm->n_cpus > 0 ? comm->n_cpus : 1;
}

bool dt_comm_describe_binding(const struct dt_comm *comm, int threads, char *out, size_t bytes)
{
    static const char advice[] = "add --bind-to none or --map-by ppr:N:node:PE=T (N ranks per node "
                                 "with T CPUs each) to mpirun";
    struct cpu_mask mask = {{0}};
    /* The launcher may use the CPUs allocated to the job; only its ranks are bound. */
    (void)sched_getaffinity(getppid(), sizeof mask, (cpu_set_t *)&mask);
    int allowed = comm->n_allowed_cpus, given = dt_cpus_within(count_cpus(&mask), "");
    if (threads > allowed)
        snprintf(out, bytes,
                 "rank %d is bound to %d CPU%s but starts %d threads: %s, or lower "
                 "device.threads",
                 comm->rank, allowed, DT_S(allowed), threads, advice);
    else if (comm->is_bound && allowed * comm->local_size < given)
        snprintf(out, bytes,
                 "each rank on this node is bound to %d CPU%s, and %d of the "
                 "job's %d CPUs stay idle: %s",
                 allowed, DT_S(allowed), given - allowed * comm->local_size, given, advice);
    else
        return false;
    return comm->local_rank == 0;
}

void dt_comm_check_binding(const struct dt_comm *comm, int threads)
{
    static bool is_told;
    char text[512];
    if (!is_told && dt_comm_describe_binding(comm, threads, text, sizeof text))
        dt_log(DT_LOG_WARNING, "%s", text);
    is_told = true;
}
