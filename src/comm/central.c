/* The data plane of a parameter server: the sum of a bucket arises on rank 0 alone.
 *
 * Over the wire per step: every other rank sends its gradients to rank 0 and, once that has updated
 * the weights, receives them (dt_plan_share): 2 x the model per rank, but (n - 1) x 2 x the model
 * through the one link of rank 0, where the ring has 2 (n - 1) / n x the model through each. Rank 0
 * adds in the order of the ring (rounds.h), so that training has the same bits.
 *
 * Nothing overlaps: messages are sent and received where the walk waits for the bucket. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pulse.h"
#include "comm/add.h"
#include "comm/comm_internal.h"
#include "comm/rounds.h"

struct bucket {
    float *buffer;
    size_t count;
};

struct central {
    struct bucket *buckets;
    float *values; /* rank 0: a segment of each rank; in the place of its own, the sum */
};

static void central_describe(char *out, size_t bytes)
{
    dt_plane_mpi.describe(out, bytes);
}

static dt_status central_open(struct dt_comm *comm, const struct dt_comm_options *options)
{
    struct central *c;
    DT_TRY(DT_NEW(c, 1));
    comm->reduce = c;
    DT_TRY(DT_NEW(c->buckets, (size_t)options->n_reductions));
    if (comm->rank != 0)
        return DT_OK;
    c->values = dt_mem_alloc_aligned((size_t)comm->size * DT_SCHEDULE_SEGMENT * sizeof(float),
                                     "gradients of the other ranks");
    return c->values ? DT_OK : DT_ERR_MEMORY;
}

static dt_status central_reduce(struct dt_comm *comm, int reduction, void *buffer, size_t count)
{
    struct central *c = comm->reduce;
    c->buckets[reduction] = (struct bucket){buffer, count};
    return DT_OK;
}

static dt_status central_poll(struct dt_comm *comm)
{
    (void)comm;
    return DT_OK;
}

/* Segment `index` of a range: own[0 .. count), which on rank 0 becomes the sum. */
static dt_status move_segment(struct dt_comm *comm, int tag, int index, float *own, size_t count)
{
    const struct central *c = comm->reduce;
    float *sum = c->values;
    if (comm->rank != 0) {
        comm->sent_bytes += (double)(count * sizeof *own);
        DT_MPI(MPI_Send(own, (int)count, MPI_FLOAT, 0, tag, comm->data));
        return DT_OK;
    }
    for (int r = 1; r < comm->size; r++) {
        DT_MPI(MPI_Recv(c->values + (size_t)DT_SCHEDULE_SEGMENT * (size_t)r, (int)count, MPI_FLOAT,
                        r, tag, comm->data, MPI_STATUS_IGNORE));
        dt_pulse_beat(&dt_pulse_main);
    }
    for (int k = 0; k < comm->size; k++) {
        const int r = (index + k) % comm->size;
        const float *values = r == 0 ? own : c->values + (size_t)DT_SCHEDULE_SEGMENT * (size_t)r;
        if (k == 0)
            memcpy(sum, values, count * sizeof *sum);
        else
            dt_sum_add(sum, values, (int)count);
    }
    memcpy(own, sum, count * sizeof *sum);
    return DT_OK;
}

static dt_status central_wait(struct dt_comm *comm, int reduction)
{
    const struct central *c = comm->reduce;
    dt_status status = DT_OK;
    struct bucket *b = &c->buckets[reduction];
    const size_t range_max = (size_t)DT_SCHEDULE_SEGMENT * (size_t)comm->size;
    dt_pulse_wait(&dt_pulse_main, "reduce");
    for (size_t done = 0; done < b->count; done += range_max) {
        const size_t left = b->count - done, count = left < range_max ? left : range_max;
        for (int s = 0; s < comm->size; s++) {
            size_t first, length = dt_schedule_segment(&first, count, comm->size, s);
            DT_TRY_OUT(move_segment(comm, reduction, s, b->buffer + done + first, length));
        }
    }
    b->count = 0;
out:
    dt_pulse_go_on(&dt_pulse_main);
    return status;
}

static void central_close(struct dt_comm *comm)
{
    struct central *c = comm->reduce;
    free(c->values);
    free(c->buckets);
    free(c);
}

const struct dt_plane_ops dt_plane_central = {
    .describe = central_describe,
    .open = central_open,
    .reduce = central_reduce,
    .poll = central_poll,
    .wait = central_wait,
    .close = central_close,
};
