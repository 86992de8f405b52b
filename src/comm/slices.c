/* The data plane of train.virtual_ranks: sums by the tree of dtrain/comm.h.
 *
 * A rank sends each other one that one's portion of all its parts, adds the parts of its own
 * portion by the tree, and sends the sum to all. Where the parts of each rank are one, as with a
 * power of two of slices per rank, these are the bytes of a ring, 2 (n - 1) / n of the buffer;
 * where slices lie across the tree, a rank has a few parts, each of which is sent. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/trace.h"
#include "comm/add.h"
#include "comm/comm_internal.h"

enum { ALIGN = 16 }; /* floats to which portions are cut */

struct sum {
    enum { IDLE, PARTS, SUMS } stage;
    float *buffer;
    size_t count;
    double begin_s;
    float *arrived; /* parts of the others in their order, each as long as this rank's portion */
    MPI_Request *requests;
    int n_requests;
};

struct slices {
    int n_slices;
    size_t slot;                  /* floats from a part of this rank to the next */
    struct dt_slice_parts *parts; /* of every rank */
    int n_others;                 /* parts of the other ranks */
    struct sum *sums;
    int n_sums;
    float *pool; /* for what arrives; a sum takes its part when it is first used */
    size_t n_used;
};

static void slices_describe(char *out, size_t bytes)
{
    dt_plane_mpi.describe(out, bytes);
}

static dt_status slices_open(struct dt_comm *comm, const struct dt_comm_options *options)
{
    struct slices *s;
    int most;
    DT_TRY(DT_NEW(s, 1));
    comm->reduce = s;
    s->n_slices = options->n_slices;
    s->slot = options->slot_bytes / sizeof(float);
    DT_TRY(DT_NEW(s->parts, (size_t)comm->size));
    for (int r = 0; r < comm->size; r++) {
        s->parts[r] = dt_slices_of(s->n_slices, dt_slices_first(s->n_slices, comm->size, r),
                                   dt_slices_first(s->n_slices, comm->size, r + 1), &most);
        s->n_others += r == comm->rank ? 0 : s->parts[r].n;
    }
    DT_TRY(DT_NEW(s->sums, (size_t)options->n_reductions));
    s->n_sums = options->n_reductions;
    for (int i = 0; i < s->n_sums; i++)
        DT_TRY(DT_NEW(s->sums[i].requests, (size_t)(s->n_others + comm->size * DT_SLICE_PARTS)));
    const size_t portions =
        options->total_count / (size_t)comm->size + 2 * ALIGN * (size_t)options->n_reductions;
    s->pool = dt_mem_alloc_aligned((size_t)s->n_others * portions * sizeof(float),
                                   "parts of the other ranks");
    return s->pool ? DT_OK : DT_ERR_MEMORY;
}

/* The floats from *first on of which a rank makes the sum; their number. */
static size_t portion(size_t *first, const struct dt_comm *comm, size_t count, int rank)
{
    const size_t blocks = count / ALIGN, r = (size_t)rank, n = (size_t)comm->size;
    *first = blocks * r / n * ALIGN;
    return (r + 1 == n ? count : blocks * (r + 1) / n * ALIGN) - *first;
}

/* Both go to another rank, or come from it, in the same order. */
static dt_status send(struct dt_comm *comm, struct sum *sum, const float *values, size_t count,
                      int rank, int tag)
{
    comm->sent_bytes += (double)(count * sizeof *values);
    DT_MPI(MPI_Isend(values, (int)count, MPI_FLOAT, rank, tag, comm->data,
                     &sum->requests[sum->n_requests++]));
    return DT_OK;
}

static dt_status receive(struct dt_comm *comm, struct sum *sum, float *values, size_t count,
                         int rank, int tag)
{
    DT_MPI(MPI_Irecv(values, (int)count, MPI_FLOAT, rank, tag, comm->data,
                     &sum->requests[sum->n_requests++]));
    return DT_OK;
}

static dt_status slices_reduce(struct dt_comm *comm, int reduction, void *buffer, size_t count)
{
    struct slices *s = comm->reduce;
    struct sum *sum = &s->sums[reduction];
    if (sum->stage != IDLE)
        DT_FAIL(DT_ERR_INTERNAL, "reduction %d was started again before it finished", reduction);
    sum->stage = PARTS;
    sum->buffer = buffer;
    sum->begin_s = dt_trace_now();
    sum->n_requests = 0;
    size_t first;
    const size_t own = portion(&first, comm, count, comm->rank);
    if (sum->arrived && sum->count != count)
        DT_FAIL(DT_ERR_INTERNAL, "reduction %d has %zu elements, and had %zu", reduction, count,
                sum->count);
    if (!sum->arrived) {
        sum->arrived = s->pool + s->n_used;
        s->n_used += (size_t)s->n_others * own;
        sum->count = count;
    }
    float *arrived = sum->arrived;
    for (int r = 0; r < comm->size; r++)
        for (int p = 0; r != comm->rank && p < s->parts[r].n; p++, arrived += own)
            DT_TRY(receive(comm, sum, arrived, own, r, reduction));
    for (int r = 0; r < comm->size; r++) {
        const size_t length = portion(&first, comm, count, r);
        for (int p = 0; r != comm->rank && p < s->parts[comm->rank].n; p++)
            DT_TRY(
                send(comm, sum, sum->buffer + (size_t)p * s->slot + first, length, r, reduction));
    }
    return DT_OK;
}

/* This rank's portion of the sum, in the first of its own parts. */
static void add_portion(const struct dt_comm *comm, const struct sum *sum)
{
    const struct slices *s = comm->reduce;
    size_t first;
    const size_t count = portion(&first, comm, sum->count, comm->rank);
    float *values[DT_SLICE_PARTS], *arrived = sum->arrived;
    struct dt_slice_parts parts = {0};
    for (int r = 0; r < comm->size; r++)
        for (int p = 0; p < s->parts[r].n; p++) {
            values[parts.n] = r == comm->rank ? sum->buffer + (size_t)p * s->slot + first : arrived;
            arrived += r == comm->rank ? 0 : count;
            dt_slices_add(&parts, s->parts[r].part[p].begin, s->parts[r].part[p].end);
            while (dt_slices_join(&parts, s->n_slices))
                dt_sum_add(values[parts.n - 1], values[parts.n], (int)count);
        }
    if (values[0] != sum->buffer + first)
        memcpy(sum->buffer + first, values[0], count * sizeof(float));
}

static dt_status share_portion(struct dt_comm *comm, struct sum *sum, int reduction)
{
    size_t own, first;
    const size_t own_length = portion(&own, comm, sum->count, comm->rank);
    sum->n_requests = 0;
    sum->stage = SUMS;
    for (int r = 0; r < comm->size; r++) {
        const size_t length = portion(&first, comm, sum->count, r);
        if (r == comm->rank)
            continue;
        DT_TRY(receive(comm, sum, sum->buffer + first, length, r, reduction));
        DT_TRY(send(comm, sum, sum->buffer + own, own_length, r, reduction));
    }
    return DT_OK;
}

/* Whether the sum has gone further. */
static dt_status advance(struct dt_comm *comm, int reduction, bool *moved)
{
    const struct slices *s = comm->reduce;
    struct sum *sum = &s->sums[reduction];
    int is_done = 0;
    if (sum->stage == IDLE)
        return DT_OK;
    DT_MPI(MPI_Testall(sum->n_requests, sum->requests, &is_done, MPI_STATUSES_IGNORE));
    if (!is_done)
        return DT_OK;
    *moved = true;
    if (sum->stage == PARTS) {
        add_portion(comm, sum);
        return share_portion(comm, sum, reduction);
    }
    sum->stage = IDLE;
    dt_trace_add(DT_TRACE_REDUCTION, reduction, "reduction", NULL, NULL, sum->begin_s,
                 dt_trace_now());
    return DT_OK;
}

static dt_status advance_all(struct dt_comm *comm, bool *moved)
{
    const struct slices *s = comm->reduce;
    *moved = false;
    for (int i = 0; i < s->n_sums; i++)
        DT_TRY(advance(comm, i, moved));
    return DT_OK;
}

static dt_status slices_poll(struct dt_comm *comm)
{
    bool moved;
    return advance_all(comm, &moved);
}

static dt_status slices_wait(struct dt_comm *comm, int reduction)
{
    const struct slices *s = comm->reduce;
    struct dt_idle idle = {0};
    dt_status status = DT_OK;
    bool moved;
    dt_pulse_wait(&dt_pulse_main, "reduce");
    while (s->sums[reduction].stage != IDLE) {
        DT_TRY_OUT(advance_all(comm, &moved));
        dt_idle_wait(&idle, moved);
    }
out:
    dt_pulse_go_on(&dt_pulse_main);
    return status;
}

static dt_status slices_exchange(struct dt_comm *comm, void *all, size_t bytes)
{
    comm->sent_bytes += (double)bytes * (comm->size - 1);
    DT_MPI_WAIT("exchange", MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, (int)bytes,
                                          MPI_BYTE, comm->data));
    return DT_OK;
}

static void slices_close(struct dt_comm *comm)
{
    struct slices *s = comm->reduce;
    for (int i = 0; i < s->n_sums; i++)
        free(s->sums[i].requests);
    free(s->pool);
    free(s->sums);
    free(s->parts);
    free(s);
}

const struct dt_plane_ops dt_plane_slices = {
    .describe = slices_describe,
    .open = slices_open,
    .reduce = slices_reduce,
    .poll = slices_poll,
    .wait = slices_wait,
    .exchange = slices_exchange,
    .close = slices_close,
};
