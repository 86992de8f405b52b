/* The communicator: start and end of MPI, who the ranks are.
 *
 * The control plane and the data plane have a communicator each, so that a collective can never
 * match a message of a pending reduction. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "comm/comm_internal.h"

/* A duplicate communicator that returns errors instead of aborting the process. */
static dt_status dup_world(struct dt_comm *comm, MPI_Comm *out)
{
    DT_MPI_WAIT("connect", MPI_Comm_dup(MPI_COMM_WORLD, out));
    DT_MPI(MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN));
    return DT_OK;
}

static dt_status connect_ranks(struct dt_comm *comm)
{
    DT_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    DT_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &comm->rank));
    DT_MPI(MPI_Comm_size(MPI_COMM_WORLD, &comm->size));
    DT_TRY(dt_comm_check_launch(comm->size));
    DT_TRY(dup_world(comm, &comm->control));
    DT_TRY(dup_world(comm, &comm->data));
    /* Two builds must be able to exchange this and what follows up to the check that they are one.
     */
    char host[DT_HOST_MAX];
    dt_host_name(host);
    DT_TRY(DT_NEW(comm->hosts, (size_t)comm->size));
    DT_TRY(dt_comm_gather(comm, comm->hosts, host, sizeof host));
    DT_MPI_WAIT("connect", MPI_Comm_split_type(comm->control, MPI_COMM_TYPE_SHARED, comm->rank,
                                               MPI_INFO_NULL, &comm->node));
    DT_MPI(MPI_Comm_set_errhandler(comm->node, MPI_ERRORS_RETURN));
    DT_MPI(MPI_Comm_rank(comm->node, &comm->local_rank));
    DT_MPI(MPI_Comm_size(comm->node, &comm->local_size));
    comm->first_of_node = comm->rank;
    DT_TRY(dt_comm_bcast_among(comm, comm->node, &comm->first_of_node, sizeof(int), 0));
    return dt_comm_find_binding(comm);
}

dt_status dt_comm_open(struct dt_comm **out, int *argc, char ***argv)
{
    *out = NULL;
    /* Ranks that wait in a collective must not take the CPU from loader threads; the user's own
     * setting takes precedence. */
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    /* Without mpirun there is one rank, which starts no others: no daemon for it. Open MPI 4.1.4
     * ends the thread that talks to the daemon too late, and one process in some hundreds crashed
     * in MPI_Finalize. Such processes would share one session folder, which the first to end
     * removes while the next begins; one rank needs none. */
    setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
    if (!dt_comm_launched().variable[0])
        setenv("OMPI_MCA_orte_create_session_dirs", "0", 0);
    int level = MPI_THREAD_SINGLE;
    dt_status status = DT_OK;
    struct dt_comm *comm;
    DT_TRY(DT_NEW(comm, 1));
    comm->control = comm->data = comm->node = MPI_COMM_NULL;
    comm->request = MPI_REQUEST_NULL;
    DT_MPI_WAIT("MPI_Init", MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level));
    if (level < MPI_THREAD_FUNNELED)
        DT_TRY_OUT(DT_ERROR(DT_ERR_DEVICE,
                            "this MPI does not allow threads besides the main thread "
                            "(MPI_THREAD_FUNNELED); use an MPI built with threads"));
    DT_TRY_OUT(connect_ranks(comm));
    *out = comm;
    return DT_OK;
out:
    dt_comm_close(comm);
    return status;
}

static void free_comm(MPI_Comm *comm)
{
    if (*comm != MPI_COMM_NULL)
        MPI_Comm_free(comm);
}

void dt_comm_close(struct dt_comm *comm)
{
    if (!comm)
        return;
    dt_comm_close_reduce(comm);
    dt_pulse_wait(&dt_pulse_main, "MPI_Finalize");
    free_comm(&comm->node);
    free_comm(&comm->data);
    free_comm(&comm->control);
    free(comm->hosts);
    free(comm);
    MPI_Finalize();
    dt_pulse_go_on(&dt_pulse_main);
}

int dt_comm_rank(const struct dt_comm *comm)
{
    return comm->rank;
}

int dt_comm_size(const struct dt_comm *comm)
{
    return comm->size;
}

int dt_comm_local_rank(const struct dt_comm *comm)
{
    return comm->local_rank;
}

int dt_comm_local_size(const struct dt_comm *comm)
{
    return comm->local_size;
}

int dt_comm_first_of_node(const struct dt_comm *comm)
{
    return comm->first_of_node;
}

const char *dt_comm_host(const struct dt_comm *comm, int rank)
{
    return comm->hosts[rank];
}

struct dt_ranks dt_ranks_of(struct dt_comm *comm, bool has_server, int sync_every)
{
    const bool serves = has_server && comm->size > 1;
    struct dt_ranks ranks = {
        .comm = comm,
        .rank = comm->rank,
        .n_ranks = comm->size,
        .n_workers = comm->size - serves,
        .worker = comm->rank - (serves && comm->rank > 0),
        .n_parts = 1,
        .sync_every = sync_every,
    };
    if (has_server || sync_every > 1)
        ranks.n_parts = ranks.n_workers;
    return ranks;
}
