/* The data plane as other modules see it: selects the implementation, checks the arguments, and
 * makes all ranks agree in collective calls. */
#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "comm/comm_internal.h"

static const struct dt_plane_ops *const planes[] = {
    [DT_PLANE_MPI] = &dt_plane_mpi,
    [DT_PLANE_CENTRAL] = &dt_plane_central,
    [DT_PLANE_SLICES] = &dt_plane_slices,
#ifdef DTRAIN_HAVE_NCCL
    [DT_PLANE_NCCL] = &dt_plane_nccl,
#endif
};

void dt_idle_wait(struct dt_idle *idle, bool moved)
{
    enum { POLLS_PER_LOOK = 64 }; /* between two clock reads */
    static const double awake_s = 1e-3;
    /* Linux rounds a shorter sleep up to about that anyway. */
    static const struct timespec nap = {.tv_nsec = 50000};
    if (moved) {
        dt_pulse_beat(&dt_pulse_main);
        *idle = (struct dt_idle){0};
        return;
    }
    if (idle->n_polls++ == 0)
        idle->since_s = dt_clock_s();
    else if (idle->n_polls % POLLS_PER_LOOK == 0)
        idle->is_long = dt_clock_s() - idle->since_s > awake_s;
    if (idle->is_long)
        nanosleep(&nap, NULL);
    else
        sched_yield();
}

bool dt_comm_has_plane(enum dt_plane plane)
{
    return (size_t)plane < DT_COUNT(planes) && planes[plane];
}

void dt_comm_describe_plane(enum dt_plane plane, char *out, size_t bytes)
{
    out[0] = '\0';
    if (dt_comm_has_plane(plane))
        planes[plane]->describe(out, bytes);
}

static dt_status open_plane(struct dt_comm *comm, const struct dt_comm_options *options)
{
    if (!dt_comm_has_plane(options->plane))
        DT_FAIL(DT_ERR_CONFIG, "this build of dtrain has no NCCL; set comm.backend = mpi, or build "
                               "with -DDTRAIN_CUDA=ON");
    if (options->n_reductions < 0)
        DT_FAIL(DT_ERR_INTERNAL, "cannot reduce with %d reductions", options->n_reductions);
    comm->plane = planes[options->plane];
    comm->n_reductions = options->n_reductions;
    comm->max_count = options->max_count;
    comm->has_failed = false;
    DT_TRY(comm->plane->open(comm, options));
    return DT_OK;
}

/* Remembers a failure: a failed connection is not closed collectively. */
static dt_status note(struct dt_comm *comm, dt_status status)
{
    if (status != DT_OK)
        comm->has_failed = true;
    return status;
}

dt_status dt_comm_open_reduce(struct dt_comm *comm, const struct dt_comm_options *options)
{
    dt_comm_close_reduce(comm);
    dt_status status = note(comm, dt_comm_agree(comm, open_plane(comm, options)));
    if (status != DT_OK)
        dt_comm_close_reduce(comm);
    return status;
}

void dt_comm_close_reduce(struct dt_comm *comm)
{
    if (comm->reduce)
        comm->plane->close(comm);
    comm->reduce = NULL;
    comm->plane = NULL;
}

static dt_status check_open(const struct dt_comm *comm)
{
    if (!comm->plane)
        DT_FAIL(DT_ERR_INTERNAL, "the data plane was used before dt_comm_open_reduce");
    return DT_OK;
}

static dt_status check_reduction(const struct dt_comm *comm, int reduction)
{
    DT_TRY(check_open(comm));
    if (reduction < 0 || reduction >= comm->n_reductions)
        DT_FAIL(DT_ERR_INTERNAL, "reduction %d does not exist (of %d)", reduction,
                comm->n_reductions);
    return DT_OK;
}

dt_status dt_comm_reduce(struct dt_comm *comm, int reduction, void *buffer, size_t count)
{
    DT_TRY(check_reduction(comm, reduction));
    if (count > comm->max_count)
        DT_FAIL(DT_ERR_INTERNAL, "a reduction of %zu elements exceeds the declared maximum of %zu",
                count, comm->max_count);
    DT_TRY(note(comm, comm->plane->reduce(comm, reduction, buffer, count)));
    return DT_OK;
}

double dt_comm_sent_bytes(const struct dt_comm *comm)
{
    return comm->sent_bytes;
}

dt_status dt_comm_poll(struct dt_comm *comm)
{
    int is_done;
    if (comm->request != MPI_REQUEST_NULL) /* it stays complete until dt_comm_end_max */
        DT_MPI(MPI_Request_get_status(comm->request, &is_done, MPI_STATUS_IGNORE));
    if (!comm->plane)
        return DT_OK;
    DT_TRY(note(comm, comm->plane->poll(comm)));
    return DT_OK;
}

dt_status dt_comm_wait(struct dt_comm *comm, int reduction)
{
    DT_TRY(check_reduction(comm, reduction));
    if (!comm->plane->wait)
        return DT_OK;
    DT_TRY(note(comm, comm->plane->wait(comm, reduction)));
    return DT_OK;
}

dt_status dt_comm_exchange(struct dt_comm *comm, void *all, size_t bytes)
{
    DT_TRY(check_open(comm));
    DT_TRY(note(comm, comm->plane->exchange(comm, all, bytes)));
    return DT_OK;
}

dt_status dt_comm_unite(struct dt_comm *comm, void *words, size_t bytes)
{
    DT_TRY(check_open(comm));
    DT_TRY(note(comm, comm->plane->unite(comm, words, bytes)));
    return DT_OK;
}
