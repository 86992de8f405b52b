/* The data plane of train.virtual_ranks: sums by the tree of dtrain/split.h.
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
    struct dt_slice_table table;
    struct sum *sums;
    int n_sums;
    MPI_Comm group; /* the ranks that share a group of slices; MPI_COMM_NULL: each has whole ones */
    float *pool;    /* for what arrives; a sum takes its part when it is first used */
    size_t n_used;
};

/* --- The table --- */

/* Plans the rest of the tree, the same on all ranks: the parts that every rank's passes leave
 * (add_slice in plan/actions.c), numbered in the order of the slices, and the additions that join
 * them. parts.part[k] is the k-th part that waits for its right sibling, and number[k] its number:
 * a join adds into the left part, which keeps its number, so the last one leaves the sum in part 0.
 * Whoever makes a portion of the sum runs these joins on it (add_portion; add_parts in nccl.c). */
dt_status dt_slice_table_make(struct dt_slice_table *t, const struct dt_comm *comm,
                              const struct dt_comm_options *options)
{
    const int n_slices = options->split.n_parts, group = options->split.group, n = comm->size;
    int max, number[DT_SLICE_PARTS + 1], n_joins = 0;
    struct dt_slice_parts parts = {0};
    t->slot = options->slot_bytes / sizeof(float);
    DT_TRY(DT_NEW(t->n_parts, (size_t)comm->size));
    DT_TRY(DT_NEW(t->joins, (size_t)comm->size * DT_SLICE_PARTS));
    for (int r = 0; r < comm->size; r++) {
        const struct dt_slice_parts of_rank =
            dt_slices_of(n_slices, dt_slices_first(n_slices, group, n, r),
                         dt_slices_first(n_slices, group, n, r + 1), &max);
        if (r == comm->rank)
            t->first = t->n;
        t->n_parts[r] = of_rank.n;
        t->n_others += r == comm->rank ? 0 : of_rank.n;
        for (int p = 0; p < of_rank.n; p++) {
            number[parts.n] = t->n++;
            dt_slices_add(&parts, of_rank.part[p].begin, of_rank.part[p].end);
            while (dt_slices_join(&parts, n_slices))
                t->joins[n_joins++] = (struct dt_slice_join){number[parts.n - 1], number[parts.n]};
        }
    }
    return DT_OK;
}

void dt_slice_table_free(struct dt_slice_table *t)
{
    free(t->n_parts);
    free(t->joins);
}

size_t dt_slice_portion(size_t *first, const struct dt_comm *comm, size_t count, int rank)
{
    const size_t blocks = count / DT_SLICE_ALIGN, r = (size_t)rank, n = (size_t)comm->size;
    *first = blocks * r / n * DT_SLICE_ALIGN;
    return (r + 1 == n ? count : blocks * (r + 1) / n * DT_SLICE_ALIGN) - *first;
}

/* --- The plane --- */

static void slices_describe(char *out, size_t bytes)
{
    dt_plane_mpi.describe(out, bytes);
}

static dt_status slices_open(struct dt_comm *comm, const struct dt_comm_options *options)
{
    struct slices *s;
    DT_TRY(DT_NEW(s, 1));
    comm->reduce = s;
    s->group = MPI_COMM_NULL;
    const int n_slices = options->split.n_parts, group = options->split.group;
    if (group > 1 && comm->size > n_slices / group) { /* first, as all ranks must call it */
        const int first = dt_slices_first(n_slices, group, comm->size, comm->rank);
        DT_MPI(MPI_Comm_split(comm->data, first / group, comm->rank, &s->group));
    }
    DT_TRY(dt_slice_table_make(&s->table, comm, options));
    const int n_others = s->table.n_others;
    DT_TRY(DT_NEW(s->sums, (size_t)options->n_reductions));
    s->n_sums = options->n_reductions;
    for (int i = 0; i < s->n_sums; i++)
        DT_TRY(DT_NEW(s->sums[i].requests, (size_t)(n_others + comm->size * DT_SLICE_PARTS)));
    const size_t portions = options->total_count / (size_t)comm->size +
                            2 * DT_SLICE_ALIGN * (size_t)options->n_reductions;
    s->pool = dt_mem_alloc_aligned((size_t)n_others * portions * sizeof(float),
                                   "parts of the other ranks");
    return s->pool ? DT_OK : DT_ERR_MEMORY;
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
    const size_t own = dt_slice_portion(&first, comm, count, comm->rank);
    if (sum->arrived && sum->count != count)
        DT_FAIL(DT_ERR_INTERNAL, "reduction %d has %zu elements, and had %zu", reduction, count,
                sum->count);
    if (!sum->arrived) {
        sum->arrived = s->pool + s->n_used;
        s->n_used += (size_t)s->table.n_others * own;
        sum->count = count;
    }
    float *arrived = sum->arrived;
    for (int r = 0; r < comm->size; r++)
        for (int p = 0; r != comm->rank && p < s->table.n_parts[r]; p++, arrived += own)
            DT_TRY(receive(comm, sum, arrived, own, r, reduction));
    for (int r = 0; r < comm->size; r++) {
        const size_t length = dt_slice_portion(&first, comm, count, r);
        for (int p = 0; r != comm->rank && p < s->table.n_parts[comm->rank]; p++)
            DT_TRY(send(comm, sum, sum->buffer + (size_t)p * s->table.slot + first, length, r,
                        reduction));
    }
    return DT_OK;
}

/* This rank's portion of the sum, in the first of its own parts. */
static void add_portion(const struct dt_comm *comm, const struct sum *sum)
{
    const struct slices *s = comm->reduce;
    size_t first;
    const size_t count = dt_slice_portion(&first, comm, sum->count, comm->rank);
    const struct dt_slice_table *t = &s->table;
    for (int i = 0; i < t->n - 1; i++)
        dt_sum_add(dt_slice_values(t, t->joins[i].to, sum->buffer, sum->arrived, first, count),
                   dt_slice_values(t, t->joins[i].from, sum->buffer, sum->arrived, first, count),
                   (int)count);
    const float *all = dt_slice_values(t, 0, sum->buffer, sum->arrived, first, count);
    if (all != sum->buffer + first)
        memcpy(sum->buffer + first, all, count * sizeof(float));
}

static dt_status share_portion(struct dt_comm *comm, struct sum *sum, int reduction)
{
    size_t own, first;
    const size_t own_length = dt_slice_portion(&own, comm, sum->count, comm->rank);
    sum->n_requests = 0;
    sum->stage = SUMS;
    for (int r = 0; r < comm->size; r++) {
        const size_t length = dt_slice_portion(&first, comm, sum->count, r);
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

/* A reduction sends somewhat more than a gather would, but needs no counts. */
static dt_status slices_unite(struct dt_comm *comm, void *words, size_t bytes)
{
    const struct slices *s = comm->reduce;
    if (s->group == MPI_COMM_NULL)
        return DT_OK;
    comm->sent_bytes += (double)bytes;
    DT_MPI_WAIT("exchange", MPI_Allreduce(MPI_IN_PLACE, words, (int)(bytes / sizeof(uint32_t)),
                                          MPI_UINT32_T, MPI_BOR, s->group));
    return DT_OK;
}

static void slices_close(struct dt_comm *comm)
{
    struct slices *s = comm->reduce;
    if (s->group != MPI_COMM_NULL)
        (void)MPI_Comm_free(&s->group);
    for (int i = 0; i < s->n_sums; i++)
        free(s->sums[i].requests);
    free(s->pool);
    free(s->sums);
    dt_slice_table_free(&s->table);
    free(s);
}

const struct dt_plane_ops dt_plane_slices = {
    .describe = slices_describe,
    .open = slices_open,
    .reduce = slices_reduce,
    .poll = slices_poll,
    .wait = slices_wait,
    .exchange = slices_exchange,
    .unite = slices_unite,
    .close = slices_close,
};
