/* The interface between ranks: a control plane (always MPI, src/comm/control.c) and a data plane
 * that sums gradients while the backward pass runs: over MPI in host memory (src/comm/mpi.c) or
 * over NCCL in GPU memory (src/comm/nccl.c). Main thread only. */
#ifndef DTRAIN_COMM_H
#define DTRAIN_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/host.h"
#include "base/mem.h"
#include "base/status.h"
#include "dtrain/dtype.h"
#include "dtrain/split.h"

struct dt_comm;

/* CENTRAL: over MPI too, the sum is on rank 0 only (src/comm/central.c). */
enum dt_plane { DT_PLANE_MPI, DT_PLANE_NCCL, DT_PLANE_CENTRAL, DT_PLANE_SLICES };

/* How sums are made, src/comm/rounds.h. All but LIBRARY add in an order that is fixed for a
 * number of ranks; AUTO's and BY_NODE's also depends on which ranks share a node. */
enum dt_sum {
    DT_SUM_AUTO,    /* BY_NODE, and by messages the fastest of the others for each size */
    DT_SUM_BY_NODE, /* in the memory of each node, and between nodes a ring */
    DT_SUM_RING,    /* in one ring through all ranks */
    DT_SUM_HALVING,
    DT_SUM_TREE,
    DT_SUM_LIBRARY, /* as MPI or NCCL choose */
};

struct dt_link {
    double bytes_per_s, latency_s; /* one direction */
};

struct dt_comm_options {
    enum dt_plane plane;
    enum dt_sum sum;                     /* NCCL: RING, or whatever else is the library's choice */
    const struct dt_comm_memory *memory; /* MPI: of buffers that a node sums in place; or NULL */
    struct dt_link link;                 /* between nodes, by which AUTO chooses */
    bool keeps_order;    /* MPI: DT_ERR_CONFIG where a node has no memory to sum in, but should */
    int n_reductions;    /* reductions that can be in flight at once: the number of buckets */
    size_t max_count;    /* largest count of a reduction, in elements */
    enum dt_dtype dtype; /* of the elements; MPI sums DT_F32 only */
    int n_fp32;          /* NCCL: the last n_fp32 reductions are of DT_F32 nevertheless */
    enum dt_dtype
        wire; /* MPI, but for LIBRARY: DT_F16 or DT_BF16 halve the messages (src/comm/mpi.c) */
    size_t total_count;    /* sum of the counts of all reductions; only a wire of DT_F16 needs it */
    struct dt_split split; /* SLICES and, where it has slices, NCCL: of a global batch */
    size_t slot_bytes;     /* and from one part of this rank's sums to the next */
    int exchange_ranks;    /* that exchange with each other, dt_comm_exchange; 0 = none */
    /* NCCL: */
    void *stream; /* the cudaStream_t that reductions are put into; the GPU is the current one */
    double timeout_s; /* for connecting the ranks, 0 = no limit */
    bool share;       /* several ranks on one GPU (tests) */
};

/* --- What the launcher's environment says: src/comm/launch.c. Local, without MPI. --- */

struct dt_comm_launch {
    const char *variable;       /* has the rank; "" if there is no launcher */
    int rank, n_ranks, n_local; /* n_local: on this node; both 0 if unknown */
};
struct dt_comm_launch dt_comm_launched(void);
/* DT_ERR_USAGE with the command to type if a launcher started several processes but MPI sees only
 * this one (n_ranks is MPI's size), so that every process would train alone. */
dt_status dt_comm_check_launch(int n_ranks);
/* After how many seconds Open MPI's keepalive, if it was set, notices that a node is gone; else 0.
 */
double dt_comm_keepalive_s(void);
/* Ends this rank, from any thread, and with it the job. */
_Noreturn void dt_comm_exit(int code);

/* --- Start, end, ranks: src/comm/comm.c, binding.c. Collective unless said otherwise. --- */

/* MPI_Init_thread and a check of the launch: fails on srun singletons (SLURM_NTASKS > 1 with one
 * rank) with DT_ERR_USAGE and the command to type. One rank without mpirun works. */
dt_status dt_comm_open(struct dt_comm **comm, int *argc, char ***argv);
void dt_comm_close(struct dt_comm *comm); /* MPI_Finalize; accepts NULL */
int dt_comm_rank(const struct dt_comm *comm);
int dt_comm_size(const struct dt_comm *comm);
int dt_comm_local_rank(const struct dt_comm *comm); /* on this node */
int dt_comm_local_size(const struct dt_comm *comm);
int dt_comm_first_of_node(const struct dt_comm *comm); /* rank of the node's local rank 0 */
const char *dt_comm_host(const struct dt_comm *comm, int rank); /* name of its node */
/* CPUs that this rank may use, within the quota of its control group, and how many ranks of its
 * node, itself included, may use some of them: from the sched_getaffinity masks when find_binding
 * was last called. Local. */
int dt_comm_allowed_cpus(const struct dt_comm *comm);
int dt_comm_sharing_ranks(const struct dt_comm *comm);
/* The rank's own CPUs, or its part of those, or of the quota, that ranks of the node share; at
 * least 1. Local. */
int dt_comm_cpus(const struct dt_comm *comm);
/* Collective. dt_comm_open calls it; call it again after ranks have bound themselves. */
dt_status dt_comm_find_binding(struct dt_comm *comm);

/* The place of this rank among those that train. */
struct dt_ranks {
    struct dt_comm *comm;
    int rank, n_ranks;
    int n_workers, worker; /* ranks that train, and the place of this one among them */
    int n_parts;           /* of a global batch, each of which makes an update of its own */
    int sync_every;        /* steps after which all ranks have the same weights */
};
/* `has_server`: rank 0 of several only serves the others. With it, or with sync_every above 1,
 * every worker updates on its own. Local. */
struct dt_ranks dt_ranks_of(struct dt_comm *comm, bool has_server, int sync_every);

/* --- Control plane. Collective unless said otherwise. --- */

dt_status dt_comm_bcast(struct dt_comm *comm, void *data, size_t bytes, int root);
dt_status dt_comm_sum_f64(struct dt_comm *comm, double *values,
                          int count); /* in place, all ranks */
/* MPI_Allreduce of INT_MAX values at most, whose order of additions is the library's choice. */
dt_status dt_comm_sum_f32(struct dt_comm *comm, float *values, size_t count);
dt_status dt_comm_sum_i64(struct dt_comm *comm, int64_t *values, int count);
dt_status dt_comm_max_f64(struct dt_comm *comm, double *values, int count);
/* The same for a few values that travel while the caller does something else; dt_comm_poll moves
 * them forward. `begin` only starts it, `end` waits and fills in the values. One at a time. */
enum { DT_COMM_MAXIMA = 8 };
dt_status dt_comm_begin_max(struct dt_comm *comm, const double *values, int count);
dt_status dt_comm_end_max(struct dt_comm *comm, double *values);
/* Seconds that this rank has spent in the calls of the control plane so far. Local. */
double dt_comm_wait_s(const struct dt_comm *comm);
/* Gathers `bytes` of each rank on all ranks: out has size * bytes. */
dt_status dt_comm_gather(struct dt_comm *comm, void *out, const void *in, size_t bytes);
/* Gives all ranks the bytes of rank 0, read-only: one copy per node, where its ranks can map each
 * other's memory, else one per rank. `data` and `bytes` are rank 0's. */
dt_status dt_comm_share(struct dt_comm *comm, struct dt_shared *shared, const void *data,
                        size_t bytes);
/* Memory for sums, zeroed and aligned to cache lines: the ranks of a node that may map each other's
 * share it, and their sums of buffers in it need no messages. Starts as {0}. */
struct dt_comm_memory {
    struct dt_shared shared; /* counters, then memory, of all ranks of the node in their order */
    size_t counts_bytes, own_bytes;
    void *own;            /* this rank's part */
    int *first;           /* of each rank, the lowest rank of those that it shares with: a node */
    int n_nodes, n_parts; /* nodes, and ranks of the smallest one */
};
/* n_reductions: at most, of the planes that get this memory. */
dt_status dt_comm_alloc(struct dt_comm *comm, struct dt_comm_memory *memory, size_t bytes,
                        int n_reductions);
void dt_comm_free(struct dt_comm_memory *memory); /* local; sets it to {0} */
/* Median time of `n_times` sums of `bytes` by the open data plane, after one that connects the
 * ranks; of the slowest rank. The values grow. Collective. */
enum { DT_COMM_TIMES = 15 };
dt_status dt_comm_time_sum(struct dt_comm *comm, float *values, size_t bytes, int n_times,
                           double *median_s);
/* Measures the links between nodes as sums by node use them, in less than a second, and finds how
 * many nodes there are; with one, *link stays as it is. Closes the data plane. */
dt_status dt_comm_measure_link(struct dt_comm *comm, struct dt_link *link, int *n_nodes);
/* Copies data[0 .. bytes) from one rank to another; the others do nothing. */
dt_status dt_comm_copy(struct dt_comm *comm, void *data, size_t bytes, int from, int to);
/* A number to another rank, and the next one from any. Only the two take part; wait_s counts. */
dt_status dt_comm_send_note(struct dt_comm *comm, int64_t note, int to);
dt_status dt_comm_take_note(struct dt_comm *comm, int64_t *note, int *from);
/* The offset from this rank's dt_clock_s to rank 0's clock, and its largest error: half the
 * shortest of several round trips. */
dt_status dt_comm_clock(struct dt_comm *comm, double *offset_s, double *error_s);
/* Looks for another rank with the same identity, a text in a field of `bytes` (the same on all
 * ranks): *peer is the lowest such rank; -1 if there is none or this rank's identity is "".
 * Collective, but the answer is local: ranks must agree before acting on it. */
dt_status dt_comm_find_same(struct dt_comm *comm, const char *identity, size_t bytes, int *peer);
dt_status dt_comm_barrier(struct dt_comm *comm);
/* A barrier whose waiters sleep, so that they do not disturb what others measure meanwhile. */
dt_status dt_comm_rest(struct dt_comm *comm);
/* Every rank passes its own status and all return the same one: DT_OK, or the status of the lowest
 * failing rank. That rank's error text becomes the error text everywhere, and dt_error_origin tells
 * which rank it was, so that the message is printed only once. */
dt_status dt_comm_agree(struct dt_comm *comm, dt_status status);
/* Aborts the job on all ranks, for a failure in the middle of a step. Local, does not return. */
void dt_comm_abort(struct dt_comm *comm, dt_status status) __attribute__((noreturn));

/* --- Data plane: sums over all ranks, in place. --- */

/* Whether this build has the plane. */
bool dt_comm_has_plane(enum dt_plane plane);
/* The plane's library and version, "" if this build has none. Local; works before dt_comm_open. */
void dt_comm_describe_plane(enum dt_plane plane, char *out, size_t bytes);
/* Collective: all ranks return the same status. Allocates everything that reductions need; nothing
 * is allocated later. A plane that is already open is closed first. NCCL: sets defaults for
 * NCCL_... environment variables that are not set. */
dt_status dt_comm_open_reduce(struct dt_comm *comm, const struct dt_comm_options *options);
/* Collective, unless a call of the plane has failed. Accepts a comm without a plane. NCCL:
 * recordings with reductions must have been released (it waits for them), and the device must still
 * be open. */
void dt_comm_close_reduce(struct dt_comm *comm);
/* Starts the sum of buffer[0 .. count) in `reduction` and returns at once. MPI: the buffer must
 * stay untouched until dt_comm_wait. NCCL: the sum is enqueued in the stream and happens in its
 * order. All ranks start reductions in the same order. */
dt_status dt_comm_reduce(struct dt_comm *comm, int reduction, void *buffer, size_t count);
/* Advances reductions without blocking (MPI) or checks the connections for errors (NCCL); called
 * between the actions of the plan and while waiting for the device. */
dt_status dt_comm_poll(struct dt_comm *comm);
/* MPI: waits. NCCL: nothing to do, the compute stream joins the comm stream. */
dt_status dt_comm_wait(struct dt_comm *comm, int reduction);
/* Bytes of gradients, weights and statistics that this rank has sent so far. Broadcasts, and
 * reductions with NCCL or where MPI chooses the algorithm, are not counted: their bytes are not
 * known. Local. */
double dt_comm_sent_bytes(const struct dt_comm *comm);
/* Shares small vectors of floats among options.exchange_ranks consecutive ranks. `all` has a slot
 * of `bytes` for every rank of the job, of which this rank's is filled; fills the slots of its
 * group (NCCL: all). MPI: waits, while reductions continue. NCCL: is enqueued in the stream. All
 * ranks call it in the same order, also with respect to dt_comm_reduce. */
dt_status dt_comm_exchange(struct dt_comm *comm, void *all, size_t bytes);
/* SLICES: each word has been set by one of the ranks that share a group of slices and is 0 on the
 * others; then all of them have all words. 4 bytes a word. Waits. */
dt_status dt_comm_unite(struct dt_comm *comm, void *words, size_t bytes);
/* Rank 0 of a node: whether `threads` exceeds the CPUs this rank may use, or binding leaves CPUs of
 * the job idle; out[bytes] says so and what to do. Call before ranks bind themselves. Local. */
bool dt_comm_describe_binding(const struct dt_comm *comm, int threads, char *out, size_t bytes);
/* Warns of that, once. */
void dt_comm_check_binding(const struct dt_comm *comm, int threads);

#endif
