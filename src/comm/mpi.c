/* The data plane over MPI: several sums in flight at once, advanced by dt_comm_poll from the main
 * thread.
 *
 * Ring: a reduction's buffer is cut into ranges, and each range travels round the ring in a lane of
 * its own: n - 1 rounds in which a segment is received into the lane's memory and added
 * (reduce-scatter), then n - 1 rounds in which finished segments are received in place
 * (all-gather). In round k, rank r sends segment r - k to its right neighbour and receives segment
 * r - k - 1 from its left one (mod n), so the order of the additions is fixed (ring.h). A lane has
 * one send and one receive in flight; N_LANES of them keep messages flowing while others are being
 * added. Lanes take ranges in the order of the reductions' start, which is the same on all ranks,
 * so a running number serves as the tag.
 *
 * With a 16-bit wire (wire.c) the messages are half as long. A partial sum is rounded to 16 bits
 * whenever it is sent on, the additions are in fp32, and the finished sum is rounded once, by the
 * rank that sends it first, and there too: so all ranks have the same bits. In fp16 every rank adds
 * what its roundings of an element have lost in one reduction to what it sends of it in the next
 * (error feedback: Seide et al. 2014; Karimireddy et al. 2019), so that the errors do not add up.
 *
 * Without the ring every reduction is one MPI_Iallreduce. */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/trace.h"
#include "comm/comm_internal.h"
#include "comm/ring.h"

enum {
    N_LANES = 16,
    N_TAGS = 32768,      /* MPI guarantees tags up to 32767; far more than lanes in flight */
    SPINS_PER_LOOK = 64, /* idle polls between two clock reads */
};

/* A wait first yields its CPU after every idle poll and later sleeps, so that loader threads and
 * ranks on the same CPUs make progress; Linux rounds a short sleep up to about 50 us anyway. */
static const double awake_s = 1e-3;
static const struct timespec nap = {.tv_nsec = 50000};

struct reduction {
    float *buffer;
    size_t count;
    size_t n_started; /* floats assigned to lanes */
    int n_lanes;      /* lanes working on this reduction */
    bool is_active;
    double begin_s; /* 0 = not traced */
    float *kept;    /* of error feedback, one per float of the buffer; NULL = none */
};

struct lane {
    int reduction; /* -1: free */
    float *buffer;
    size_t count;
    float *received;         /* DT_RING_SEGMENT floats of the lane's own; with a 16-bit wire */
    uint16_t *arrived, *out; /* its two halves */
    int tag, round;
    int n_pending; /* of its two requests */
};

struct mpi_plane {
    bool ring;
    int n_reductions, n_active;
    struct reduction *reductions; /* the last one stands for the exchange */
    /* Reductions with ranges not yet assigned to a lane, oldest first: a ring buffer of
     * n_reductions entries. */
    int *queue;
    int queue_first, queue_count;
    int n_lanes, n_free_lanes, next_tag;
    struct lane lanes[N_LANES];
    float *received;
    const struct dt_wire *wire; /* NULL = fp32 */
    float *kept;
    size_t n_kept, n_kept_used;
    MPI_Comm group; /* the ranks of an exchange, MPI_COMM_NULL = none */
    int group_first, group_size;
    /* Ring: lane l receives with request 2 l and sends with 2 l + 1. Otherwise one per reduction.
     * With a group the last one is the exchange's. */
    int n_requests;
    MPI_Request *requests;
    int *completed;       /* indices, for MPI_Testsome */
    MPI_Status *statuses; /* GCC mistakes MPI_STATUSES_IGNORE of MPICH for an array */
};

/* --- Ring --- */

static float *lane_segment(const struct lane *lane, const struct dt_comm *comm, int back,
                           int *count)
{
    int n = comm->size;
    int index = ((comm->rank - back) % n + n) % n;
    size_t first;
    *count = (int)dt_ring_segment(&first, lane->count, n, index);
    return lane->buffer + first;
}

static dt_status lane_send_receive(struct dt_comm *comm, int index)
{
    struct mpi_plane *re = comm->reduce;
    struct lane *lane = &re->lanes[index];
    int n = comm->size, n_in, n_out;
    float *segment = lane_segment(lane, comm, lane->round + 1, &n_in);
    float *values = lane_segment(lane, comm, lane->round, &n_out);
    void *in = lane->round < n - 1 ? lane->received : segment, *out = values;
    MPI_Datatype type = re->wire ? MPI_UINT16_T : MPI_FLOAT;
    if (re->wire) {
        /* Round what the lane sends next. A finished sum is sent on as it came, without loss. */
        const struct reduction *reduction = &re->reductions[lane->reduction];
        if (reduction->kept && lane->round < n)
            re->wire->pack_keeping(lane->out, values,
                                   reduction->kept + (values - reduction->buffer), n_out);
        else
            re->wire->pack(lane->out, values, n_out);
        if (lane->round == n - 1)
            re->wire->unpack(values, lane->out, n_out);
        in = lane->arrived;
        out = lane->out;
    }
    DT_MPI(MPI_Irecv(in, n_in, type, (comm->rank + n - 1) % n, lane->tag, comm->data,
                     &re->requests[2 * index]));
    DT_MPI(MPI_Isend(out, n_out, type, (comm->rank + 1) % n, lane->tag, comm->data,
                     &re->requests[2 * index + 1]));
    comm->sent_bytes += (double)n_out * (re->wire ? sizeof(uint16_t) : sizeof(float));
    lane->n_pending = 2;
    return DT_OK;
}

/* Assigns ranges of waiting reductions to free lanes. */
static dt_status start_lanes(struct dt_comm *comm)
{
    struct mpi_plane *re = comm->reduce;
    size_t range_max = (size_t)DT_RING_SEGMENT * (size_t)comm->size;
    for (int i = 0; i < re->n_lanes && re->n_free_lanes > 0 && re->queue_count > 0; i++) {
        struct lane *lane = &re->lanes[i];
        if (lane->reduction >= 0)
            continue;
        lane->reduction = re->queue[re->queue_first];
        struct reduction *reduction = &re->reductions[lane->reduction];
        size_t left = reduction->count - reduction->n_started;
        lane->buffer = reduction->buffer + reduction->n_started;
        lane->count = left < range_max ? left : range_max;
        lane->tag = re->next_tag;
        lane->round = 0;
        re->next_tag = (re->next_tag + 1) % N_TAGS;
        re->n_free_lanes--;
        reduction->n_lanes++;
        reduction->n_started += lane->count;
        if (reduction->n_started == reduction->count) {
            re->queue_first = (re->queue_first + 1) % re->n_reductions;
            re->queue_count--;
        }
        DT_TRY(lane_send_receive(comm, i));
    }
    return DT_OK;
}

static void end_reduction(struct mpi_plane *re, int index)
{
    struct reduction *reduction = &re->reductions[index];
    reduction->is_active = false;
    re->n_active--;
    dt_trace_add(DT_TRACE_REDUCTION, index, "reduction", NULL, NULL, reduction->begin_s,
                 dt_trace_now());
}

/* Both messages of the lane's round are done: add, then start the next round or finish the range.
 */
static dt_status end_lane_round(struct dt_comm *comm, int index)
{
    struct mpi_plane *re = comm->reduce;
    struct lane *lane = &re->lanes[index];
    int count;
    float *segment = lane_segment(lane, comm, lane->round + 1, &count);
    const bool adds = lane->round < comm->size - 1;
    if (re->wire)
        (adds ? re->wire->add : re->wire->unpack)(segment, lane->arrived, count);
    else if (adds)
        dt_ring_add(segment, lane->received, count);
    if (++lane->round < 2 * (comm->size - 1))
        return lane_send_receive(comm, index);
    const int index_of_sum = lane->reduction;
    struct reduction *reduction = &re->reductions[index_of_sum];
    lane->reduction = -1;
    re->n_free_lanes++;
    if (--reduction->n_lanes == 0 && reduction->n_started == reduction->count)
        end_reduction(re, index_of_sum);
    return DT_OK;
}

static dt_status complete(struct dt_comm *comm, int request)
{
    struct mpi_plane *re = comm->reduce;
    int index = request / 2;
    if (!re->ring || index == N_LANES) {
        end_reduction(re, re->ring ? re->n_reductions : request);
        return DT_OK;
    }
    if (--re->lanes[index].n_pending > 0)
        return DT_OK;
    return end_lane_round(comm, index);
}

/* --- Polling and waiting --- */

/* Tests all requests once; *n_done is the number that completed. */
static dt_status progress(struct dt_comm *comm, int *n_done)
{
    struct mpi_plane *re = comm->reduce;
    *n_done = 0;
    DT_MPI(MPI_Testsome(re->n_requests, re->requests, n_done, re->completed, re->statuses));
    if (*n_done == MPI_UNDEFINED)
        *n_done = 0;
    for (int i = 0; i < *n_done; i++)
        DT_TRY(complete(comm, re->completed[i]));
    if (*n_done > 0 && re->queue_count > 0)
        DT_TRY(start_lanes(comm));
    return DT_OK;
}

static dt_status mpi_poll(struct dt_comm *comm)
{
    const struct mpi_plane *re = comm->reduce;
    int n_done = 1;
    while (n_done > 0 && re->n_active > 0)
        DT_TRY(progress(comm, &n_done));
    return DT_OK;
}

/* The watchdog counts only arriving messages as progress. */
static dt_status mpi_wait(struct dt_comm *comm, int reduction)
{
    const struct mpi_plane *re = comm->reduce;
    const struct reduction *s = &re->reductions[reduction];
    double idle_since_s = 0.0;
    int n_idle = 0;
    bool is_long = false;
    dt_status status = DT_OK;
    if (!s->is_active)
        return DT_OK;
    dt_pulse_wait(&dt_pulse_main, "reduce");
    while (s->is_active) {
        int n_done;
        DT_TRY_OUT(progress(comm, &n_done));
        if (n_done > 0) {
            dt_pulse_beat(&dt_pulse_main);
            n_idle = 0;
            is_long = false;
            continue;
        }
        if (n_idle++ == 0)
            idle_since_s = dt_clock_s();
        else if (n_idle % SPINS_PER_LOOK == 0)
            is_long = dt_clock_s() - idle_since_s > awake_s;
        if (is_long)
            nanosleep(&nap, NULL);
        else
            sched_yield();
    }
out:
    dt_pulse_go_on(&dt_pulse_main);
    return status;
}

static dt_status mpi_reduce(struct dt_comm *comm, int reduction, void *buffer, size_t count)
{
    struct mpi_plane *re = comm->reduce;
    struct reduction *s = &re->reductions[reduction];
    if (s->is_active)
        DT_FAIL(DT_ERR_INTERNAL, "reduction %d was started again before it finished", reduction);
    if (comm->size == 1 || count == 0)
        return DT_OK;
    *s = (struct reduction){.buffer = buffer,
                            .count = count,
                            .is_active = true,
                            .begin_s = dt_trace_now(),
                            .kept = s->kept};
    /* A reduction takes its part when it is first used; from then on its count is the same. */
    if (re->kept && !s->kept) {
        if (count > re->n_kept - re->n_kept_used)
            DT_FAIL(DT_ERR_INTERNAL, "the reductions are larger than the declared total of %zu",
                    re->n_kept);
        s->kept = re->kept + re->n_kept_used;
        re->n_kept_used += count;
    }
    re->n_active++;
    if (!re->ring) {
        DT_MPI(MPI_Iallreduce(MPI_IN_PLACE, buffer, (int)count, MPI_FLOAT, MPI_SUM, comm->data,
                              &re->requests[reduction]));
        return DT_OK;
    }
    re->queue[(re->queue_first + re->queue_count) % re->n_reductions] = reduction;
    re->queue_count++;
    DT_TRY(start_lanes(comm));
    return DT_OK;
}

/* Waiting also advances the reductions. */
static dt_status mpi_exchange(struct dt_comm *comm, void *all, size_t bytes)
{
    struct mpi_plane *re = comm->reduce;
    char *slots = (char *)all + (size_t)re->group_first * bytes;
    comm->sent_bytes += (double)bytes * (re->group_size - 1);
    re->reductions[re->n_reductions] = (struct reduction){.is_active = true};
    re->n_active++;
    DT_MPI(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, slots, (int)bytes, MPI_BYTE,
                          re->group, &re->requests[re->n_requests - 1]));
    return mpi_wait(comm, re->n_reductions);
}

/* --- Opening and closing --- */

static dt_status allocate(struct dt_comm *comm, const struct dt_comm_options *options)
{
    struct mpi_plane *re = comm->reduce;
    re->ring = options->ring;
    re->wire = dt_wire_find(options->wire);
    re->n_reductions = options->n_reductions;
    DT_TRY(DT_NEW(re->reductions, (size_t)re->n_reductions + 1));
    DT_TRY(DT_NEW(re->queue, (size_t)re->n_reductions));
    if (comm->size == 1)
        return DT_OK;
    if (re->ring) {
        re->n_lanes = re->n_free_lanes = N_LANES;
        size_t floats = (size_t)N_LANES * DT_RING_SEGMENT;
        re->received = dt_mem_alloc_aligned(floats * sizeof(float), "receive buffers of the ring");
        if (!re->received)
            return DT_ERR_MEMORY;
        for (int i = 0; i < N_LANES; i++) {
            float *received = re->received + (size_t)i * DT_RING_SEGMENT;
            re->lanes[i] = (struct lane){.reduction = -1,
                                         .received = received,
                                         .arrived = (uint16_t *)received,
                                         .out = (uint16_t *)received + DT_RING_SEGMENT};
        }
    }
    if (re->wire && re->wire->keeps) {
        re->n_kept = options->total_count;
        DT_TRY(DT_NEW(re->kept, re->n_kept));
    }
    re->n_requests = (re->ring ? 2 * N_LANES : re->n_reductions) + (options->exchange_ranks > 1);
    DT_TRY(DT_NEW(re->requests, (size_t)re->n_requests));
    for (int i = 0; i < re->n_requests; i++)
        re->requests[i] = MPI_REQUEST_NULL;
    DT_TRY(DT_NEW(re->completed, (size_t)re->n_requests));
    return DT_NEW(re->statuses, (size_t)re->n_requests);
}

static dt_status mpi_open(struct dt_comm *comm, const struct dt_comm_options *options)
{
    if (options->dtype != DT_F32)
        DT_FAIL(DT_ERR_INTERNAL, "the MPI plane sums fp32 only");
    if (!options->ring && dt_wire_find(options->wire))
        DT_FAIL(DT_ERR_INTERNAL, "only the ring has a 16-bit wire");
    if (!options->ring && options->max_count > INT_MAX)
        DT_FAIL(DT_ERR_INTERNAL, "MPI cannot sum up to %zu floats at once without the ring",
                options->max_count);
    struct mpi_plane *re;
    DT_TRY(DT_NEW(re, 1));
    comm->reduce = re;
    re->group = MPI_COMM_NULL;
    DT_TRY(allocate(comm, options));
    if (options->exchange_ranks > 1) {
        int color = comm->rank / options->exchange_ranks;
        re->group_first = color * options->exchange_ranks;
        re->group_size = options->exchange_ranks;
        DT_MPI(MPI_Comm_split(comm->data, color, comm->rank, &re->group));
    }
    return DT_OK;
}

static void mpi_close(struct dt_comm *comm)
{
    struct mpi_plane *re = comm->reduce;
    if (re->group != MPI_COMM_NULL)
        (void)MPI_Comm_free(&re->group);
    free(re->statuses);
    free(re->completed);
    free(re->requests);
    free(re->received);
    free(re->kept);
    free(re->queue);
    free(re->reductions);
    free(re);
}

/* "Open MPI v4.1.4, package: ...": cut at the comma or the end of the line. */
static void mpi_describe(char *out, size_t bytes)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int n;
    if (MPI_Get_library_version(text, &n) != MPI_SUCCESS)
        text[0] = '\0';
    snprintf(out, bytes, "%.*s", (int)strcspn(text, ",\n"), text);
}

const struct dt_plane_ops dt_plane_mpi = {
    .describe = mpi_describe,
    .open = mpi_open,
    .reduce = mpi_reduce,
    .poll = mpi_poll,
    .wait = mpi_wait,
    .exchange = mpi_exchange,
    .close = mpi_close,
};
