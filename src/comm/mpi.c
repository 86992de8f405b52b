/* The data plane over MPI: several sums in flight at once, advanced by dt_comm_poll from the main
 * thread.
 *
 * A reduction's buffer is cut into ranges, and each range is summed in a lane of its own, in the
 * rounds of a schedule (rounds.h): what arrives is received into the lane's memory and added, or,
 * once it is finished, received in place. A lane has one send and one receive in flight; N_LANES of
 * them keep messages flowing while others are being added. Lanes take ranges in the order of the
 * reductions' start, which is the same on all ranks, so a running number serves as the tag.
 *
 * By node (node.h), the ranks of a node first add in the memory that they share. Then the owners of
 * a part sum it with those on other nodes, in lanes, and write it into all buffers of their node.
 *
 * With a 16-bit wire (wire.c) the messages are half as long. A partial sum is rounded to 16 bits
 * whenever it is sent on, the additions are in fp32, and the finished sum is rounded once, by the
 * rank that sends it first, and there too: so all ranks have the same bits. In fp16 every rank adds
 * what its roundings of an element have lost in one reduction to what it sends of it in the next
 * (error feedback: Seide et al. 2014; Karimireddy et al. 2019), so that the errors do not add up.
 *
 * With DT_SUM_LIBRARY every reduction is one MPI_Iallreduce. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/trace.h"
#include "comm/add.h"
#include "comm/comm_internal.h"
#include "comm/node.h"
#include "comm/rounds.h"

enum {
    N_LANES = 16,
    N_TAGS = 32768, /* MPI guarantees tags up to 32767; far more than lanes in flight */
};

struct reduction {
    float *buffer;
    size_t count;
    bool is_active;
    double begin_s; /* 0 = not traced */
    float *kept;    /* of error feedback, one per float of the buffer; NULL = none */
    bool by_node;
    uint32_t times; /* that it was started by node */
    bool is_added;  /* within the node */
    bool is_done;   /* its part, within all nodes */
    /* This rank's part of the buffer: first float and number. */
    size_t first, n;
    size_t n_started; /* floats assigned to lanes */
    int n_lanes;      /* lanes working on this reduction */
};

struct lane {
    int reduction; /* -1: free */
    float *buffer;
    size_t count;
    float *received;         /* DT_SCHEDULE_SEGMENT floats of the lane's own; with a 16-bit wire */
    uint16_t *arrived, *out; /* its two halves */
    int tag, round;
    int n_pending; /* of its two requests */
    enum dt_schedule schedule;
    struct dt_round now; /* the round */
};

struct mpi_plane {
    enum dt_sum sum;
    struct dt_node node;
    int *all;            /* ranks that sum by messages if not by node */
    struct dt_link link; /* between nodes */
    int n_reductions, n_active;
    int n_waiting;                /* by node: whose part is done here */
    struct reduction *reductions; /* the last one stands for the exchange */
    /* Reductions not yet added, or with ranges not yet assigned to a lane, oldest first: a ring
     * buffer of n_reductions entries. */
    int *queue;
    int queue_first, queue_count;
    int n_lanes, n_free_lanes;
    int next_tag[2]; /* by messages; by node, where only the owners of a part take one */
    struct lane lanes[N_LANES];
    float *received;
    const struct dt_wire *wire; /* NULL = fp32 */
    float *kept;
    size_t n_kept, n_kept_used;
    MPI_Comm group; /* the ranks of an exchange, MPI_COMM_NULL = none */
    int group_first, group_size;
    /* Lane l receives with request 2 l and sends with 2 l + 1; LIBRARY: one per reduction. With a
     * group the last one is the exchange's. */
    int n_requests;
    MPI_Request *requests;
    int *completed;       /* indices, for MPI_Testsome */
    MPI_Status *statuses; /* GCC mistakes MPI_STATUSES_IGNORE of MPICH for an array */
};

/* --- Lanes --- */

/* The ranks that sum this reduction by messages. */
static int members(const struct mpi_plane *re, const struct dt_comm *comm,
                   const struct reduction *reduction, const int **ranks, int *self)
{
    *ranks = reduction->by_node ? re->node.owners : re->all;
    *self = reduction->by_node ? re->node.self : comm->rank;
    return reduction->by_node ? re->node.n_owners : comm->size;
}

static void end_reduction(struct mpi_plane *re, int index)
{
    struct reduction *reduction = &re->reductions[index];
    reduction->is_active = false;
    re->n_active--;
    dt_trace_add(DT_TRACE_REDUCTION, index, "reduction", NULL, NULL, reduction->begin_s,
                 dt_trace_now());
}

/* This rank has done its part. */
static void end_part(struct mpi_plane *re, int index)
{
    struct reduction *reduction = &re->reductions[index];
    if (!reduction->by_node) {
        end_reduction(re, index);
        return;
    }
    dt_node_finish(&re->node, index, reduction->times);
    reduction->is_done = true;
    re->n_waiting++;
}

/* Starts the messages of the lane's round. */
static dt_status lane_send_receive(struct dt_comm *comm, int index)
{
    struct mpi_plane *re = comm->reduce;
    struct lane *lane = &re->lanes[index];
    const struct reduction *reduction = &re->reductions[lane->reduction];
    const struct dt_round *now = &lane->now;
    const int *ranks;
    int self;
    (void)members(re, comm, reduction, &ranks, &self);
    float *values = lane->buffer + now->out, *segment = lane->buffer + now->in;
    void *in = now->gathers ? segment : lane->received, *out = values;
    const MPI_Datatype type = re->wire ? MPI_UINT16_T : MPI_FLOAT;
    const int n_out = (int)now->n_out;
    if (re->wire && now->to >= 0) {
        /* Round what the lane sends next. A finished sum is sent on as it came, without loss. */
        if (reduction->kept && (!now->gathers || now->is_first))
            re->wire->pack_keeping(lane->out, values,
                                   reduction->kept + (values - reduction->buffer), n_out);
        else
            re->wire->pack(lane->out, values, n_out);
        if (now->is_first)
            re->wire->unpack(values, lane->out, n_out);
    }
    if (re->wire) {
        in = lane->arrived;
        out = lane->out;
    }
    if (now->from >= 0)
        DT_MPI(MPI_Irecv(in, (int)now->n_in, type, ranks[now->from], lane->tag, comm->data,
                         &re->requests[2 * index]));
    if (now->to >= 0)
        DT_MPI(MPI_Isend(out, n_out, type, ranks[now->to], lane->tag, comm->data,
                         &re->requests[2 * index + 1]));
    if (now->to >= 0)
        comm->sent_bytes += (double)n_out * (re->wire ? sizeof(uint16_t) : sizeof(float));
    lane->n_pending = (now->from >= 0) + (now->to >= 0);
    return DT_OK;
}

/* Finds the lane's next round in which this rank has something to do; after the last one the lane
 * is free. */
static bool find_round(struct dt_comm *comm, int index)
{
    struct mpi_plane *re = comm->reduce;
    struct lane *lane = &re->lanes[index];
    struct reduction *reduction = &re->reductions[lane->reduction];
    const int *ranks;
    int self;
    const int n = members(re, comm, reduction, &ranks, &self);
    for (; lane->round < dt_schedule_rounds(lane->schedule, n); lane->round++) {
        dt_schedule_round(&lane->now, lane->schedule, n, self, lane->round, lane->count);
        if (lane->now.to >= 0 || lane->now.from >= 0)
            return true;
    }
    const int of = lane->reduction;
    lane->reduction = -1;
    re->n_free_lanes++;
    if (--reduction->n_lanes > 0 || reduction->n_started < reduction->n)
        return false;
    if (reduction->by_node)
        dt_node_spread(&re->node, reduction->buffer, reduction->count);
    end_part(re, of);
    return false;
}

/* Both messages of the lane's round are done. */
static dt_status end_lane_round(struct dt_comm *comm, int index)
{
    struct mpi_plane *re = comm->reduce;
    struct lane *lane = &re->lanes[index];
    float *segment = lane->buffer + lane->now.in;
    const int count = (int)lane->now.n_in;
    if (re->wire)
        (lane->now.gathers ? re->wire->unpack : re->wire->add)(segment, lane->arrived, count);
    else if (!lane->now.gathers)
        dt_sum_add(segment, lane->received, count);
    lane->round++;
    return find_round(comm, index) ? lane_send_receive(comm, index) : DT_OK;
}

static void leave_queue(struct mpi_plane *re)
{
    re->queue_first = (re->queue_first + 1) % re->n_reductions;
    re->queue_count--;
}

/* Assigns a range of a reduction to a lane. */
static void start_lane(struct dt_comm *comm, int index, int of)
{
    struct mpi_plane *re = comm->reduce;
    struct lane *lane = &re->lanes[index];
    struct reduction *reduction = &re->reductions[of];
    const int *ranks;
    int self;
    const int n = members(re, comm, reduction, &ranks, &self);
    const size_t left = reduction->n - reduction->n_started;
    lane->schedule =
        dt_schedule_choose(re->sum, n, (double)reduction->n * sizeof(float), &re->link);
    const size_t max = dt_schedule_max_messages(lane->schedule, n);
    lane->reduction = of;
    lane->buffer = reduction->buffer + reduction->first + reduction->n_started;
    lane->count = left < max ? left : max;
    lane->tag = 2 * re->next_tag[reduction->by_node] + reduction->by_node;
    lane->round = 0;
    re->next_tag[reduction->by_node] = (re->next_tag[reduction->by_node] + 1) % (N_TAGS / 2);
    re->n_free_lanes--;
    reduction->n_lanes++;
    reduction->n_started += lane->count;
    if (reduction->n_started == reduction->n)
        leave_queue(re);
}

/* Adds the oldest waiting reduction within the node once all its ranks have started it. Returns
 * whether messages are needed; without them it has left the queue. */
static bool add_in_node(struct mpi_plane *re, int of, bool *waits)
{
    struct reduction *reduction = &re->reductions[of];
    const bool has_part = re->node.n_owners > 0, is_last = re->node.n_owners < 2;
    *waits = has_part && !dt_node_is_offered(&re->node, of, reduction->times);
    if (*waits)
        return false;
    if (has_part)
        dt_node_add(&re->node, reduction->buffer, reduction->count, is_last);
    reduction->is_added = true;
    reduction->n = dt_node_part(&re->node, &reduction->first, reduction->count);
    if (!is_last && reduction->n > 0)
        return true;
    leave_queue(re);
    end_part(re, of);
    return false;
}

/* Moves the queue on: starts ranges of the oldest reduction in free lanes. Called on the main
 * thread when a reduction starts and in every poll. All ranks start reductions in the same order,
 * and only the head of the queue gives ranges to lanes, so a running number is the same tag on all
 * ranks; a reduction that overtook another would receive its messages. A reduction by node must
 * wait until all ranks of the node have offered their buffers, and the queue behind it waits, too.
 * When its own part needs no messages, add_in_node ends that part and takes it off the queue.
 * Returns when the queue is empty, the head waits, or no lane is free; *n_done counts what has
 * changed, so that mpi_poll calls again until nothing changes. */
static dt_status advance_queue(struct dt_comm *comm, int *n_done)
{
    struct mpi_plane *re = comm->reduce;
    while (re->queue_count > 0) {
        const int of = re->queue[re->queue_first];
        struct reduction *reduction = &re->reductions[of];
        bool waits = false;
        if (!reduction->is_added && !add_in_node(re, of, &waits)) {
            *n_done += !waits;
            if (waits)
                return DT_OK;
            continue;
        }
        int free_lane = 0;
        while (free_lane < re->n_lanes && re->lanes[free_lane].reduction >= 0)
            free_lane++;
        if (free_lane == re->n_lanes)
            return DT_OK;
        start_lane(comm, free_lane, of);
        if (find_round(comm, free_lane))
            DT_TRY(lane_send_receive(comm, free_lane));
    }
    return DT_OK;
}

/* Ends the reductions of which all parts are done. */
static void end_nodes(struct mpi_plane *re, int *n_done)
{
    for (int r = 0; r < re->n_reductions && re->n_waiting > 0; r++) {
        struct reduction *reduction = &re->reductions[r];
        if (!reduction->is_active || !reduction->is_done ||
            !dt_node_is_done(&re->node, r, reduction->times))
            continue;
        re->n_waiting--;
        end_reduction(re, r);
        (*n_done)++;
    }
}

static dt_status complete(struct dt_comm *comm, int request)
{
    struct mpi_plane *re = comm->reduce;
    int index = request / 2;
    if (re->sum == DT_SUM_LIBRARY || index == N_LANES) {
        end_reduction(re, re->sum == DT_SUM_LIBRARY ? request : re->n_reductions);
        return DT_OK;
    }
    if (--re->lanes[index].n_pending > 0)
        return DT_OK;
    return end_lane_round(comm, index);
}

/* --- Polling and waiting --- */

/* Whether messages are on the way. */
static bool has_messages(const struct mpi_plane *re)
{
    return re->sum == DT_SUM_LIBRARY || re->n_free_lanes < re->n_lanes ||
           re->reductions[re->n_reductions].is_active;
}

/* Tests all requests once; *n_done is the number of those that completed, and of other changes. */
static dt_status progress(struct dt_comm *comm, int *n_done)
{
    struct mpi_plane *re = comm->reduce;
    *n_done = 0;
    if (has_messages(re))
        DT_MPI(MPI_Testsome(re->n_requests, re->requests, n_done, re->completed, re->statuses));
    if (*n_done == MPI_UNDEFINED)
        *n_done = 0;
    for (int i = 0; i < *n_done; i++)
        DT_TRY(complete(comm, re->completed[i]));
    DT_TRY(advance_queue(comm, n_done));
    end_nodes(re, n_done);
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

/* The watchdog counts arriving messages and finished additions as progress. */
static dt_status mpi_wait(struct dt_comm *comm, int reduction)
{
    const struct mpi_plane *re = comm->reduce;
    const struct reduction *s = &re->reductions[reduction];
    struct dt_idle idle = {0};
    dt_status status = DT_OK;
    if (!s->is_active)
        return DT_OK;
    dt_pulse_wait(&dt_pulse_main, "reduce");
    while (s->is_active) {
        int n_done;
        DT_TRY_OUT(progress(comm, &n_done));
        dt_idle_wait(&idle, n_done > 0);
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
    const bool by_node = re->sum <= DT_SUM_BY_NODE && dt_node_has(&re->node, buffer, count);
    *s = (struct reduction){.buffer = buffer,
                            .count = count,
                            .is_active = true,
                            .begin_s = dt_trace_now(),
                            .kept = s->kept,
                            .by_node = by_node,
                            .times = s->times + by_node,
                            .is_added = !by_node,
                            .n = count};
    /* A reduction takes its part when it is first used; from then on its count is the same. */
    if (re->kept && !s->kept) {
        if (count > re->n_kept - re->n_kept_used)
            DT_FAIL(DT_ERR_INTERNAL, "the reductions are larger than the declared total of %zu",
                    re->n_kept);
        s->kept = re->kept + re->n_kept_used;
        re->n_kept_used += count;
    }
    re->n_active++;
    if (re->sum == DT_SUM_LIBRARY) {
        DT_MPI(MPI_Iallreduce(MPI_IN_PLACE, buffer, (int)count, MPI_FLOAT, MPI_SUM, comm->data,
                              &re->requests[reduction]));
        return DT_OK;
    }
    re->queue[(re->queue_first + re->queue_count) % re->n_reductions] = reduction;
    re->queue_count++;
    if (by_node)
        dt_node_offer(&re->node, reduction, s->times);
    return advance_queue(comm, &(int){0});
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
    re->sum = options->sum;
    re->wire = dt_wire_find(options->wire);
    re->n_reductions = options->n_reductions;
    DT_TRY(DT_NEW(re->reductions, (size_t)re->n_reductions + 1));
    DT_TRY(DT_NEW(re->queue, (size_t)re->n_reductions));
    if (comm->size == 1)
        return DT_OK;
    DT_TRY(DT_NEW(re->all, (size_t)comm->size));
    for (int r = 0; r < comm->size; r++)
        re->all[r] = r;
    if (re->sum != DT_SUM_LIBRARY) {
        re->n_lanes = re->n_free_lanes = N_LANES;
        size_t floats = (size_t)N_LANES * DT_SCHEDULE_SEGMENT;
        re->received = dt_mem_alloc_aligned(floats * sizeof(float), "receive buffers of sums");
        if (!re->received)
            return DT_ERR_MEMORY;
        for (int i = 0; i < N_LANES; i++) {
            float *received = re->received + (size_t)i * DT_SCHEDULE_SEGMENT;
            re->lanes[i] = (struct lane){.reduction = -1,
                                         .received = received,
                                         .arrived = (uint16_t *)received,
                                         .out = (uint16_t *)received + DT_SCHEDULE_SEGMENT};
        }
    }
    if (re->wire && re->wire->keeps) {
        re->n_kept = options->total_count;
        DT_TRY(DT_NEW(re->kept, re->n_kept));
    }
    re->n_requests = (re->sum == DT_SUM_LIBRARY ? re->n_reductions : 2 * N_LANES) +
                     (options->exchange_ranks > 1);
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
    const bool by_library = options->sum == DT_SUM_LIBRARY;
    if (by_library && dt_wire_find(options->wire))
        DT_FAIL(DT_ERR_INTERNAL, "MPI's own sums have no 16-bit wire");
    if (by_library && options->max_count > INT_MAX)
        DT_FAIL(DT_ERR_INTERNAL, "MPI cannot sum up to %zu floats at once", options->max_count);
    struct mpi_plane *re;
    DT_TRY(DT_NEW(re, 1));
    comm->reduce = re;
    re->group = MPI_COMM_NULL;
    if (options->exchange_ranks > 1) { /* first, as all ranks must call it */
        int color = comm->rank / options->exchange_ranks;
        re->group_first = color * options->exchange_ranks;
        re->group_size = options->exchange_ranks;
        DT_MPI(MPI_Comm_split(comm->data, color, comm->rank, &re->group));
    }
    DT_TRY(allocate(comm, options));
    re->link = options->link;
    DT_TRY(dt_node_open(&re->node, comm->rank, comm->size, options->memory));
    for (int r = 0; r < re->n_reductions; r++)
        re->reductions[r].times = dt_node_times(&re->node, r);
    if (options->keeps_order && comm->local_size > 1 && options->memory &&
        !options->memory->shared.is_mapped)
        DT_FAIL(DT_ERR_CONFIG,
                "the ranks of %s cannot share memory, without which comm.algorithm "
                "\"hierarchical\" adds in another order, but train.deterministic is true; set "
                "comm.algorithm to \"ring\"",
                comm->hosts[comm->rank]);
    return DT_OK;
}

static void mpi_close(struct dt_comm *comm)
{
    struct mpi_plane *re = comm->reduce;
    if (re->group != MPI_COMM_NULL)
        (void)MPI_Comm_free(&re->group);
    dt_node_close(&re->node);
    free(re->all);
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
